//! Start and end of the daemon.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use goondan_durable::disk::Disk;
use goondan_log::unix_millis_now;
use goondan_protocol::proxy::{Proxy, ProxySettings};
use goondan_protocol::secret::ALLOW_DEBUGGER_VAR;
use goondan_protocol::state_root;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use goondan_protocol::version::Version;
use goondan_replicated_disk::ConfirmPoint;
use goondan_store::StoreError;
use goondan_store::limits::INSTANCE_DESCRIPTORS;
use goondan_store::root::{Layout, SystemRoot};
use goondan_store::workspace;
use goondan_store::writer::Worker;
use goondan_trees::{Guard, GuardedDisk};
use goondan_writers::Writers;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook_tokio::Signals;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ancestry::Descent;
use super::cgroups::Cgroups;
use super::child::Reports;
use super::control::ControlServer;
use super::control::socket::Socket;
use super::conversation_snapshots::JointThread;
use super::descriptors;
use super::event::ShellEvent;
use super::frame_memory::FrameMemory;
use super::fresh_ids::FreshIds;
use super::launcher::Launcher;
use super::logs::{LogHub, journal};
use super::masking::Masks;
use super::oauth::OAuthThread;
use super::offline_verification;
use super::orphans::{self, Mark};
use super::orphans_of_agents;
use super::programs::Programs;
use super::proposals;
use super::replication::handle::Replication;
use super::replication::{self, PreparedReplication, Surroundings};
use super::restored;
use super::self_check;
use super::signals;
use super::supervisor::EventLoop;
use super::tasks::{TaskIo, TaskThread};
use super::timed_disk::TimedDisk;
use super::workspace_load::{InstanceCache, LoadParams, ProjectReadResult, Projects};
use crate::args::Args;
use crate::limits::{
    CHILD_FRAMES_BYTES_MAX, CONTROL_FRAMES_BYTES_MAX, CORE_QUEUE_INPUTS, STORE_DESCRIPTORS_PART,
    WRITER_THREADS,
};
use goondan_core::{Core, CoreInput, Facts, LoadPurpose, LoadedWorkspace, WorkspaceLoadResult};

/// Exit code if another orchestrator owns the System Root.
const EXIT_IN_USE: u8 = 3;
/// Exit code if this program does not support the format of the System Root (`REL-1`).
const EXIT_NEWER_FORMAT: u8 = 4;
/// Exit code if the project named by `--open` cannot run.
const EXIT_INVALID_PROJECT: u8 = 6;
/// Exit code if another node has taken over a workspace (`REP-1`): the next start follows that
/// node.
const EXIT_DEPOSED: u8 = 7;

/// Reason why the daemon could not start, printed to stderr.
struct StartFailure {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl StartFailure {
    fn new(error: &(dyn std::error::Error + 'static)) -> Self {
        Self {
            code: 1,
            message: goondan_log::error_chain(error),
            hint: None,
        }
    }

    /// Prints the failure to stderr, and reports it to the service manager, so that
    /// `systemctl status` shows it.
    fn tell(&self) {
        let mut lines = vec![format!("error: {}", self.message)];
        lines.extend(self.hint.iter().map(|hint| format!("hint: {hint}")));
        let status = lines.join("; ").replace('\n', " ");
        // Without a service manager, stderr and the exit code must suffice.
        drop(sd_notify::notify(&[NotifyState::Status(&status)]));
        let mut err = std::io::stderr().lock();
        let is_journal = journal::is_stream(&err);
        for line in lines.iter().flat_map(|text| text.lines()) {
            let priority = if is_journal { journal::ERROR } else { "" };
            drop(writeln!(err, "{priority}{line}"));
        }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    match start(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code)
        }
    }
}

fn start(args: &Args) -> Result<(), StartFailure> {
    if args.detach {
        // Fails only if the process already leads a group, and so is detached.
        nix::unistd::setsid().ok();
    }
    let state_root = args.state_root().ok_or_else(|| StartFailure {
        code: 1,
        message: "no home directory for the state".to_owned(),
        hint: Some("pass a state directory with `--state-root`".to_owned()),
    })?;
    if let Some(project) = &args.open {
        check_apart(project, &state_root)?;
    }
    check_owners(&state_root)?;
    if args.verify {
        return verify_offline(&state_root);
    }
    let programs = Programs::find().map_err(|error| StartFailure::new(&error))?;
    // Before other descriptors are open, because the launcher's thread would keep them.
    let launcher = Launcher::begin(programs).map_err(|error| StartFailure::new(&error))?;
    let root = SystemRoot::take(&state_root).map_err(|error| not_taken(&error))?;
    descriptors::raise_limit();
    hide_memory();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| StartFailure::new(&error))?;
    let ended = runtime.block_on(run(args, &root, Arc::new(launcher)));
    if ended.is_err() {
        // Pending work must not delay the exit.
        runtime.shutdown_background();
    }
    ended
}

/// Prints the state of all files of a System Root that no daemon owns.
fn verify_offline(state_root: &Path) -> Result<(), StartFailure> {
    if !state_root.is_dir() {
        return Err(StartFailure {
            code: 1,
            message: format!("`{}` is not a directory", state_root.display()),
            hint: Some("name the state directory with `--state-root`".to_owned()),
        });
    }
    let root = SystemRoot::take(state_root).map_err(|error| not_taken(&error))?;
    let disk = guarded_disk(root.layout());
    let found = offline_verification::run(&root, &disk);
    let found = found.map_err(|error| StartFailure::new(&error))?;
    let text = serde_json::to_string(&found).map_err(|error| StartFailure::new(&error))?;
    let written = writeln!(std::io::stdout().lock(), "{text}");
    written.map_err(|error| StartFailure::new(&error))
}

/// Reason why this daemon cannot own the System Root, with the next step.
fn not_taken(error: &StoreError) -> StartFailure {
    let failure = StartFailure::new(error);
    let (code, hint) = match error {
        StoreError::RootInUse { .. } => {
            let hint = "see it with `gdn daemon status`, or stop it with `gdn daemon shutdown`";
            (EXIT_IN_USE, hint.to_owned())
        }
        StoreError::NewerFormat { source, .. } => (EXIT_NEWER_FORMAT, source.hint()),
        StoreError::UnknownFormat { path, .. } => {
            let path = path.display();
            let hint = format!(
                "restore the file from a backup; if no newer goondan ever ran here: `rm '{path}'`"
            );
            (failure.code, hint)
        }
        StoreError::TasksRoot { .. } => {
            let hint =
                "choose another directory: `tasksRoot` in config.json, or GOONDAN_TASKS_ROOT";
            (failure.code, hint.to_owned())
        }
        _ => return failure,
    };
    StartFailure { code, ..failure }.hint(hint)
}

/// Refuses a state root that another user owns or can partly write, before anything is read from it
/// (`SEC-4`).
fn check_owners(state_root: &Path) -> Result<(), StartFailure> {
    let user = nix::unistd::geteuid().as_raw();
    for path in state_root::owned(state_root) {
        let found = match std::fs::metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                let message = format!("failed to read the owner of `{}`: {error}", path.display());
                let hint = format!("check its permissions: `ls -ld '{}'`", path.display());
                return Err(StartFailure {
                    code: 1,
                    message,
                    hint: Some(hint),
                });
            }
        };
        state_root::check(path, found.uid(), found.mode(), user).map_err(|exposed| {
            let hint = exposed.hint();
            StartFailure::new(&exposed).hint(hint)
        })?;
    }
    Ok(())
}

/// Refuses a state root inside the project that it will serve, before anything is created in it
/// (`ROOT-1`, `ROOT-2`).
fn check_apart(project: &Path, state_root: &Path) -> Result<(), StartFailure> {
    // A missing project is refused when it is loaded. Of a missing state root, the existing part of
    // the path decides.
    let project = project
        .canonicalize()
        .unwrap_or_else(|_| project.to_owned());
    let state_root = std::path::absolute(state_root).unwrap_or_else(|_| state_root.to_owned());
    let existing = state_root.ancestors().find_map(|dir| {
        let rest = state_root.strip_prefix(dir).ok()?;
        Some(dir.canonicalize().ok()?.join(rest))
    });
    let state_root = existing.unwrap_or(state_root);
    goondan_store::root::check_separate(&project, &state_root).map_err(|error| {
        let failure = StartFailure::new(&error);
        let code = EXIT_INVALID_PROJECT;
        StartFailure { code, ..failure }
            .hint("move the project, or choose another state directory with `--state-root`")
    })
}

/// Hides the memory, which contains the secrets of all projects, from other processes of the same
/// user: no debugger, no `/proc/PID/mem` or `environ` (which may contain an identity), and no core
/// dump, here and in every child (`SEC-6`). On macOS, only core dumps can be disabled without
/// `unsafe`.
fn hide_memory() {
    use nix::sys::resource::{Resource, setrlimit};
    // Unsupported protections are skipped, because there is no alternative.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).ok();
    #[cfg(target_os = "linux")]
    if !is_memory_open() {
        nix::sys::prctl::set_dumpable(false).ok();
    }
}

/// True if the user who started the daemon allows others to read its memory, for debugging.
fn is_memory_open() -> bool {
    std::env::var_os(ALLOW_DEBUGGER_VAR).is_some()
}

/// The file system with checked paths below the directories of workspaces, because agents' programs
/// write there: in work areas, work directories and sandboxes.
fn guarded_disk(layout: &Layout) -> GuardedDisk {
    let workspaces = Guard {
        directory: layout.workspaces(),
        // The workspace and its part: `tasks`, `instances`, `sandboxes`.
        own_names: 2,
    };
    let tasks = layout.tasks_root().map(|tasks_root| Guard {
        directory: tasks_root.to_owned(),
        // The workspace.
        own_names: 1,
    });
    GuardedDisk::new(std::iter::once(workspaces).chain(tasks).collect())
}

async fn run(args: &Args, root: &SystemRoot, launcher: Arc<Launcher>) -> Result<(), StartFailure> {
    let layout = root.layout().clone();
    let disk = TimedDisk::new(guarded_disk(&layout));
    let (syncs, gate) = (disk.times(), disk.gate());
    let plain: Arc<dyn Disk> = Arc::new(disk);
    let prepared = prepare_replication(root)?;
    let replication = prepared.as_ref().map(|(handle, _)| handle.clone());
    let node = prepared.as_ref().map(|(_, prepared)| prepared.node());
    let disk_that = |waits| match &replication {
        Some(replication) => replication.disk(plain.clone(), waits),
        None => plain.clone(),
    };
    let disk = disk_that(ConfirmPoint::AtEachSync);
    let io = |error: std::io::Error| StartFailure::new(&error);

    // With a handler, a write beyond the limit of file sizes fails with EFBIG instead of killing the
    // daemon. Programs that it starts have the default again.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(io)?;

    let known = InstanceCache::default();
    let masks = Arc::new(Masks::default());
    // An unusable setting is reported by each connection that needs it.
    let proxies = ProxySettings::of(|name| std::env::var(name).ok()).unwrap_or_default();
    for (_, password) in proxies.all().filter_map(Proxy::credentials) {
        masks.add_value(password);
    }
    let projects = Projects::new(
        disk.clone(),
        layout.clone(),
        known.clone(),
        masks.clone(),
        launcher.agent_process().to_owned(),
        args.strict,
        replication.clone(),
    );
    let (hub, log_guard) =
        LogHub::start(args.log_dir.as_deref(), &root.config().log, masks.clone()).map_err(io)?;
    hub.install(TraceId::from_uuid(Uuid::now_v7()));
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(io)?;
    let adopts_orphans = adopt_orphans();
    let mark = end_orphans(layout.root());
    let cgroups = take_cgroups();
    let descent = Arc::new(Descent {
        adopts_orphans,
        mark,
        child_groups: cgroups.child_groups(),
    });
    let (events, incoming) = mpsc::channel(CORE_QUEUE_INPUTS);
    let replicating = CancellationToken::new();
    let mut links = tokio::task::JoinSet::new();
    let mut deposed = None;
    if let Some((handle, prepared)) = prepared {
        let with = Surroundings {
            disk: plain.clone(),
            projects: projects.clone(),
            launcher: launcher.clone(),
            hub: hub.clone(),
            events: events.clone(),
            ending: replicating.clone(),
        };
        deposed = Some(replication::start(&handle, prepared, with, &mut links).map_err(io)?);
    }
    let opened = read_opened(args, &projects)?;
    let socket = listen(&layout)?;

    let for_store = descriptors::limit() / STORE_DESCRIPTORS_PART;
    let threads = writer_threads(for_store);
    let of_writers = disk_that(ConfirmPoint::AtConfirm);
    let of_leaving = of_writers.clone();
    let workers = Worker::for_threads(&of_writers, &layout, &known.index, threads, for_store);
    let (writers, stored) = Writers::start(workers).map_err(io)?;
    let facts = Facts {
        layout: layout.clone(),
        pid: std::process::id(),
        started_at: Timestamp::from_unix_millis(unix_millis_now()),
        log_dir: args.log_dir.clone(),
        cgroup: cgroups.dir().map(Path::to_owned),
        program: std::env::current_exe()
            .and_then(|program| program.canonicalize())
            .ok(),
        is_memory_open: is_memory_open(),
        restored: restored::read(&layout),
        node,
    };
    log_start(&layout, &launcher);
    self_check::log_what_is_missing();
    let mut ids = FreshIds::new();
    let core = Core::new(facts, move || ids.now());
    let reports = Reports {
        frames: FrameMemory::new(CHILD_FRAMES_BYTES_MAX),
        events: events.clone(),
        hub: hub.clone(),
    };
    let tasks_thread = TaskThread::start(TaskIo {
        disk: disk.clone(),
        layout: layout.clone(),
        secrets: projects.secrets.clone(),
        masks,
        events: events.clone(),
    })
    .map_err(io)?;
    let joint_thread =
        JointThread::start(disk.clone(), layout.clone(), events.clone()).map_err(io)?;
    let oauth_thread = OAuthThread::start(projects.secrets.clone(), events.clone()).map_err(io)?;
    let supervisor = EventLoop::new(
        core,
        launcher,
        reports,
        writers,
        projects.clone(),
        (cgroups, syncs),
        (tasks_thread, joint_thread, oauth_thread),
    );

    let ending = CancellationToken::new();
    let server = ControlServer {
        frames: FrameMemory::new(CONTROL_FRAMES_BYTES_MAX),
        events: events.clone(),
        hub: hub.clone(),
        descent,
        gate,
        ending: ending.clone(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    let recovered = recover_proposals(projects.clone(), events.clone());
    let registered = open_registered(projects, opened, events.clone());
    tasks.spawn(async move {
        // Clients that connect meanwhile wait, so that they never see a registered workspace
        // missing, or a project's files between old and new.
        recovered.await;
        registered.await;
        server.serve(socket).await;
    });
    tasks.spawn(signals::forward(signals, events, ending.clone()));

    drop(sd_notify::notify(&[NotifyState::Ready]));
    let (writers, tasks_thread) = tokio::select! {
        ended = supervisor.run(incoming, stored) => ended,
        why = until_deposed(deposed) => return Err(deposed_failure(why)),
    };

    ending.cancel();
    while tasks.join_next().await.is_some() {}
    // Joining threads comes last.
    tasks_thread.finish();
    writers.finish();
    if let Some(replication) = replication {
        replication.stop(of_leaving.as_ref(), &layout);
    }
    replicating.cancel();
    while links.join_next().await.is_some() {}
    remove_socket(&layout.socket());
    tracing::info!("orchestrator ended");
    drop(log_guard);
    Ok(())
}

/// Prepares replication, if it is configured.
fn prepare_replication(
    root: &SystemRoot,
) -> Result<Option<(Replication, PreparedReplication)>, StartFailure> {
    let layout = root.layout();
    let Some(config) = &root.config().replication else {
        return match replication::has_notes(layout) {
            Ok(false) => Ok(None),
            Ok(true) => Err(has_left(layout)),
            Err(error) => Err(StartFailure::new(&error)),
        };
    };
    let prepared = replication::prepare(config, layout);
    prepared
        .map(Some)
        .map_err(|error| StartFailure::new(&error))
}

/// Otherwise, changes without the log would count as the log's state when this node joins again.
fn has_left(layout: &Layout) -> StartFailure {
    let dir = layout.replication();
    StartFailure {
        code: 1,
        message: format!(
            "`{}` has no `replication`, but `{}` shows that this node has followed logs of workspaces",
            layout.config_file().display(),
            dir.display()
        ),
        hint: None,
    }
    .hint(
        "restore `replication` and start the daemon. To leave the other nodes permanently: run \
         `gdn daemon node drain`, remove `replication` while the daemon runs, and run `gdn daemon node leave`. \
         Otherwise several nodes could run the same workspaces",
    )
}

/// Waits until another node has taken over a workspace; forever without replication.
async fn until_deposed(deposed: Option<oneshot::Receiver<String>>) -> String {
    match deposed {
        Some(why) => match why.await {
            Ok(why) => why,
            Err(_ended) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn deposed_failure(why: String) -> StartFailure {
    StartFailure {
        code: EXIT_DEPOSED,
        message: why,
        hint: None,
    }
    .hint(
        "start the daemon again (a service restarts automatically); it then follows the workspace",
    )
}

/// A project as read, with its sources.
type OpenedProject = (Arc<goondan_config::Sources>, LoadedWorkspace);

/// Reads the project of the command line, if any. If it is invalid, nothing starts.
fn read_opened(args: &Args, projects: &Projects) -> Result<Option<OpenedProject>, StartFailure> {
    let Some(project) = &args.open else {
        return Ok(None);
    };
    let wanted = LoadParams {
        settings: args.settings(),
        may_fall_back: true,
        ..LoadParams::default()
    };
    let (sources, found) = projects.read(project, &wanted);
    let found = found.and_then(|found| found.bundle.clone().map(|_| found));
    let found = found.map_err(|error| StartFailure {
        code: EXIT_INVALID_PROJECT,
        message: error.message,
        hint: error.suggestion,
    })?;
    Ok(Some((sources, found)))
}

fn listen(layout: &Layout) -> Result<Socket, StartFailure> {
    let path = layout.socket();
    Socket::bind(layout).map_err(|error| {
        let message = format!("failed to listen on `{}`: {error}", path.display());
        StartFailure {
            code: 1,
            message,
            hint: None,
        }
        .hint("choose a shorter state directory with `--state-root`; a socket's path is limited")
    })
}

/// Makes this process the parent of its children's orphans; false if the system refuses.
fn adopt_orphans() -> bool {
    let adopted = orphans_of_agents::adopt_orphans();
    if let Err(error) = &adopted {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "cannot adopt orphans: only process groups are ended, and no client counts as a person"
        );
    }
    adopted.is_ok()
}

fn take_cgroups() -> Cgroups {
    Cgroups::take().unwrap_or_else(|error| {
        let why = error.to_string();
        tracing::info!(
            why,
            "no control groups: limits apply to each process separately"
        );
        Cgroups::default()
    })
}

/// Logs facts about a starting daemon for operators.
fn log_start(layout: &Layout, launcher: &Launcher) {
    tracing::info!(
        version = %Version::current(),
        state_root = %layout.root().display(),
        "orchestrator started"
    );
    if let Some(missing) = launcher.missing() {
        tracing::warn!(
            error = missing as &dyn std::error::Error,
            "no connections and no models except `scripted` can run"
        );
    }
    if is_memory_open() {
        tracing::warn!(
            variable = ALLOW_DEBUGGER_VAR,
            "any program of this user can read the memory of the daemon and its children, secrets included"
        );
    }
}

/// Each thread keeps at least one conversation open, and opens another one in addition.
fn writer_threads(descriptors: u64) -> usize {
    let threads = descriptors / (2 * INSTANCE_DESCRIPTORS);
    usize::try_from(threads)
        .unwrap_or(WRITER_THREADS)
        .clamp(1, WRITER_THREADS)
}

/// Ends processes of an earlier daemon of this System Root, and marks this daemon, whose children
/// inherit the mark; `None` if marking fails.
fn end_orphans(root: &Path) -> Option<Mark> {
    match orphans::mark_descendants(root) {
        Ok(mark) => {
            let count = orphans::end_all(mark);
            if count > 0 {
                tracing::warn!(count, "ended processes left over from an earlier daemon");
            }
            Some(mark)
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot mark child processes: if the daemon is killed together with its children, \
                 their tools may survive and then make decisions that require a person"
            );
            None
        }
    }
}

/// Finishes interrupted operations of an earlier daemon, before clients can send new ones.
async fn recover_proposals(projects: Projects, events: mpsc::Sender<ShellEvent>) {
    if projects.replication.is_some() {
        // Each workspace is recovered when this node takes it over.
        return;
    }
    let now = Timestamp::from_unix_millis(unix_millis_now());
    let recovering = tokio::task::spawn_blocking(move || {
        proposals::recover_all(&projects.proposal_files(), &projects.layout, now)
    });
    for input in recovering.await.unwrap_or_default() {
        drop(events.send(ShellEvent::Input(input)).await);
    }
}

/// Opens the requested workspace, and those that were registered when the daemon last ran.
async fn open_registered(
    projects: Projects,
    opened: Option<OpenedProject>,
    events: mpsc::Sender<ShellEvent>,
) {
    let loading = tokio::task::spawn_blocking(move || {
        let mut all: Vec<WorkspaceLoadResult> = Vec::new();
        let asked_for = opened
            .as_ref()
            .map(|(_, found)| found.record.workspace_id.clone());
        all.extend(opened.map(|(sources, found)| WorkspaceLoadResult {
            purpose: LoadPurpose::Start,
            workspace_id: Some(found.record.workspace_id.clone()),
            sources,
            result: Ok(found),
        }));
        if projects.replication.is_some() {
            // The node's own workspaces run after it has confirmed their ownership.
            return all;
        }
        let (records, unusable) = match workspace::list(projects.disk.as_ref(), &projects.layout) {
            Ok(listed) => listed,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to list registered workspaces"
                );
                return all;
            }
        };
        for found in unusable {
            tracing::warn!(
                path = %found.path.display(),
                error = &found.error as &dyn std::error::Error,
                "skipping unusable workspace"
            );
        }
        for record in records {
            if record.registered && Some(&record.workspace_id) != asked_for.as_ref() {
                let workspace_id = Some(record.workspace_id.clone());
                let (sources, result): ProjectReadResult = projects.read_registered(record);
                all.push(WorkspaceLoadResult {
                    purpose: LoadPurpose::Start,
                    workspace_id,
                    sources,
                    result,
                });
            }
        }
        all
    });
    for loaded in loading.await.unwrap_or_default() {
        drop(
            events
                .send(ShellEvent::Input(CoreInput::Loaded(Box::new(loaded))))
                .await,
        );
    }
}

fn remove_socket(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "failed to remove the socket"
        );
    }
}
