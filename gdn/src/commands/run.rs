//! `gdn run`.

use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use goondan_protocol::control::{
    CloseWorkspace, ListWorkspaces, OpenWorkspace, ProcessInfo, ProcessState, Readiness,
    UnhealthyProcess, WatchProcesses, WorkspaceInfo, WorkspacePermission,
};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::active_configuration::{self, ActiveConfig};
use super::attach::attach_or_start;
use super::chat::{self, ChatArgs};
use super::consent;
use super::follow::Processes;
use super::health;
use super::send::{self, SendArgs};
use super::status;
use crate::client::{Client, Notice, RequestTimeout};
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Table, listed};
use crate::output::text;
use crate::project::{self, EnvFiles, ProjectChoice};
use crate::schemas;

/// Start the daemon if none runs, and this project's workspace
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn run                 the project in this directory, with the daemon in the background
  gdn run my-swarm
  gdn run --foreground    the daemon in this terminal, its log on stdout; Ctrl-C stops it
  gdn run --watch         and restart processes that an edit of the project affects
  gdn run --env-file prod.env
  gdn run --swarm night   the Swarm `night` of several; remembered
  gdn run --input \"Hello\"   and send a message to it

The workspace stays registered until `gdn stop`: later starts of the daemon start it, too.")]
pub(crate) struct RunArgs {
    /// The project
    #[arg(value_name = "PATH", conflicts_with_all = ["project", "workspace"])]
    path: Option<PathBuf>,
    /// Run the daemon in this terminal
    #[arg(long)]
    foreground: bool,
    /// From now on, restart what an edit of the project's files affects
    #[arg(long, short, overrides_with = "no_watch")]
    watch: bool,
    /// Stop watching the project's files
    #[arg(long, overrides_with = "watch")]
    no_watch: bool,
    #[command(flatten)]
    env: EnvFiles,
    /// Stop using additional environment files for the workspace
    #[arg(long, conflicts_with = "env_file")]
    no_env_file: bool,
    /// Do not fall back to the last known good configuration; stop it if it runs
    #[arg(long)]
    strict: bool,
    /// Allow the project this permission, like `gdn workspace permission allow`
    #[arg(long, value_name = "PERMISSION")]
    allow: Vec<WorkspacePermission>,
    /// Then chat with it, like `gdn chat`
    #[arg(long, conflicts_with_all = ["foreground", "input"])]
    interactive: bool,
    /// Then send this message and print the reply, like `gdn send`
    #[arg(long, value_name = "TEXT", conflicts_with = "foreground")]
    input: Option<String>,
    /// Like --input, with the text of this file
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["foreground", "input", "interactive"])]
    input_file: Option<PathBuf>,
    /// From now on, run this one of the project's Swarms, instead of the first
    #[arg(long, short, value_name = "NAME", conflicts_with = "first_swarm")]
    swarm: Option<ResourceName>,
    /// From now on, run the project's first Swarm again
    #[arg(long)]
    first_swarm: bool,
    /// Has no effect, because `gdn run` never installs packages
    #[arg(long, hide = true)]
    no_install: bool,
}

impl RunArgs {
    /// Runs the project in a directory.
    pub(crate) fn of_project(root: PathBuf) -> Self {
        Self {
            path: Some(root),
            foreground: false,
            watch: false,
            no_watch: false,
            env: EnvFiles::default(),
            no_env_file: false,
            strict: false,
            allow: Vec::new(),
            interactive: false,
            input: None,
            input_file: None,
            swarm: None,
            first_swarm: false,
            no_install: false,
        }
    }
}

/// Maximum wait for connectors to become ready.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// Maximum wait for connectors that report that they are not ready.
const UNREADY_LIMIT: Duration = Duration::from_secs(1);

/// Maximum number of watched files listed.
const WATCHED_FILES_NAMED: usize = 5;

pub(crate) async fn run(args: &RunArgs, context: &Context) -> Result<(), Failure> {
    if args.no_install {
        let note = "`--no-install` has no effect: `gdn run` installs nothing.";
        context.output.note(note);
    }
    let input = input_of(args)?;
    start(args, context).await?;
    if !args.interactive && input.is_none() {
        return Ok(());
    }
    let there = match &args.path {
        Some(path) => {
            let root = project::find(Some(path))?;
            context.elsewhere(context.state_root.clone(), root)
        }
        None => context.clone(),
    };
    match input {
        Some(text) => send::run(SendArgs::usual(text), &there).await,
        None => chat::run(ChatArgs::usual(), &there).await,
    }
}

/// Message to send after the start, read before it so that an unreadable file changes nothing.
fn input_of(args: &RunArgs) -> Result<Option<String>, Failure> {
    let Some(file) = &args.input_file else {
        return Ok(args.input.clone());
    };
    std::fs::read_to_string(file).map(Some).map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("failed to read the message in {}", file.display()),
            "pass a text file, or the text itself: `gdn run --input TEXT`",
        )
        .caused_by(Some(&error))
    })
}

async fn start(args: &RunArgs, context: &Context) -> Result<(), Failure> {
    // A workspace named by its id is registered, so only the daemon is needed.
    let root = match &args.path {
        Some(path) => Some(project::find(Some(path))?),
        None if context.is_by_id() => None,
        None => Some(context.project()?),
    };
    if let Some(root) = &root {
        project::check_apart(root, &context.state_root)?;
    }
    let settings = RunSettings::of(args)?;
    if args.foreground {
        if let Some(root) = &root {
            let choice = settings.choice();
            consent::before_foreground(root, &choice, &args.allow, context).await?;
        }
        let options = settings.options(args.strict);
        return Err(daemon::become_daemon(&context.state_root, root.as_deref(), &options).into());
    }
    let (mut client, log_dir) = attach_or_start(context, args.strict).await?;
    let root = match root {
        // Settings of a registered workspace are changed by opening it again.
        None if settings.is_any() || !args.allow.is_empty() => {
            Some(context.find(&mut client).await?.project_root)
        }
        root => root,
    };
    let (info, refused) = match root {
        Some(root) => open(&mut client, root, settings, args, context).await?,
        None => (context.find(&mut client).await?, None),
    };
    // Otherwise the conversation prints the result.
    let is_last = !args.interactive && args.input.is_none();
    if !is_last && refused.is_none() {
        return Ok(());
    }
    let (info, silent) = match refused {
        None => ready(&mut client, info, context).await?,
        Some(_) => (info, Vec::new()),
    };
    context.output.object(
        schemas::RUN,
        &json!({
            "daemon": {
                "pid": client.daemon().pid,
                "started": log_dir.is_some(),
                "stateRoot": client.daemon().state_root,
                "logDir": log_dir,
            },
            "workspace": info,
        }),
    )?;
    tell(&info, refused, &silent, context)
}

/// Waits until every connector is ready or reports a failure. Returns the workspace's state and the connectors that
/// have not reported.
pub(super) async fn ready(
    client: &mut Client,
    info: WorkspaceInfo,
    context: &Context,
) -> Result<(WorkspaceInfo, Vec<String>), Failure> {
    if info.connections.is_empty() {
        return Ok((info, Vec::new()));
    }
    // Dropping a watch closes its connection.
    let mut watcher = context.connect().await?;
    let silent = silent_connectors(&mut watcher, &info.workspace_id).await;
    Ok((
        context.find_by_id(client, &info.workspace_id).await?,
        silent,
    ))
}

/// Watches the processes until all connectors are ready or the time limit is reached.
async fn silent_connectors(client: &mut Client, workspace_id: &WorkspaceId) -> Vec<String> {
    let (told, mut changes) = mpsc::unbounded_channel();
    let request = WatchProcesses {
        workspace_id: Some(workspace_id.clone()),
        memory: false,
    };
    let mut take = |notice| {
        if let Notice::Processes(change) = notice {
            // The receiver is in this function.
            drop(told.send(change));
        }
    };
    let watching = client.watch(request, RequestTimeout::Endless, &mut take);
    tokio::pin!(watching);
    let mut processes = Processes::default();
    let mut wait = ReadinessWait::new(Instant::now());
    loop {
        tokio::select! {
            biased;
            Some(change) = changes.recv() => {
                if processes.take(change) && wait.is_over(&processes.all(), Instant::now()) {
                    break;
                }
            }
            // If the watch is refused, the later query of the workspace reports the error.
            _ = &mut watching => break,
            () = sleep_until(wait.until.into()) => break,
        }
    }
    wait.silent
}

/// Time limits for connectors.
#[derive(Debug)]
struct ReadinessWait {
    limit: Instant,
    /// Deadline if nothing changes.
    until: Instant,
    /// Connectors that have not reported.
    silent: Vec<String>,
}

impl ReadinessWait {
    fn new(begun: Instant) -> Self {
        let limit = begun + READY_LIMIT;
        Self {
            limit,
            until: limit,
            silent: Vec::new(),
        }
    }

    /// Processes an update. True if there is no connector to wait for.
    fn is_over(&mut self, processes: &[ProcessInfo], now: Instant) -> bool {
        let unready = processes
            .iter()
            .filter(|process| process.role == ChildRole::Connector)
            .filter(|process| process.state != ProcessState::Terminated)
            .filter(|process| {
                // After a reload, the former process ends first.
                process.readiness != Some(Readiness::Ready)
                    || process.state == ProcessState::Draining
            });
        let unready: Vec<&ProcessInfo> = unready.collect();
        let has_reported = |process: &&ProcessInfo| {
            process.state == ProcessState::CrashLoopBackOff
                || process.readiness == Some(Readiness::NotReady)
        };
        let silent = unready.iter().filter(|process| !has_reported(process));
        self.silent = silent.map(|process| process.name.clone()).collect();
        if !self.silent.is_empty() {
            self.until = self.limit;
        } else if self.until == self.limit {
            // A connector that failed to connect may retry immediately.
            self.until = self.limit.min(now + UNREADY_LIMIT);
        }
        unready.is_empty()
    }
}

/// Opens a project's workspace. If the project is rejected but an earlier configuration runs, returns that workspace
/// with the problem.
async fn open(
    client: &mut Client,
    project_root: PathBuf,
    settings: RunSettings,
    args: &RunArgs,
    context: &Context,
) -> Result<(WorkspaceInfo, Option<Failure>), Failure> {
    let is_strict = args.strict;
    let open = OpenWorkspace {
        project_root: project_root.clone(),
        watch: settings.watch,
        env_files: settings.env_files,
        swarm: settings.swarm,
    };
    let failure = match consent::open(client, open, &args.allow, context).await {
        Ok(info) => return Ok((info, None)),
        Err(failure) => failure,
    };
    match running_instead(client, &project_root, &failure).await? {
        None => Err(failure),
        Some(info) if is_strict && info.last_known_good => {
            Err(stopped_instead(client, info, failure).await?)
        }
        Some(info) => Ok((info, Some(failure))),
    }
}

/// Prints what runs and what to do next, or why the project was rejected.
fn tell(
    info: &WorkspaceInfo,
    refused: Option<Failure>,
    silent: &[String],
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    output.data(summary(info).render(output.canvas()))?;
    if let Some(failure) = refused {
        return Err(told_with_what_runs(failure, info, context));
    }
    health::report(info, context);
    if let Some(unready) = unready(info, silent, context) {
        return Err(unready);
    }
    // A project without agents has none to chat with.
    let next = if info.agents.is_empty() {
        format!(
            "Create a task: {}",
            context.command("task new TITLE --start")
        )
    } else {
        format!("Chat with it: {}", context.command("chat"))
    };
    let watch = context.command("logs -f");
    output.note(format!("{next}    Watch it: {watch}"));
    Ok(())
}

/// Failure if some connectors of the running workspace are not ready.
pub(super) fn unready(
    info: &WorkspaceInfo,
    silent: &[String],
    context: &Context,
) -> Option<Failure> {
    let is_connector = |process: &&UnhealthyProcess| process.role == ChildRole::Connector;
    let unhealthy = info.unhealthy.iter().filter(is_connector);
    let reasons = unhealthy.map(|process| text::printable(&health::unhealthy_text(process)));
    let seconds = READY_LIMIT.as_secs();
    let silent = silent
        .iter()
        .map(|name| format!("connector {name} has not started within {seconds} s"));
    let reasons: Vec<String> = reasons.chain(silent).collect();
    if reasons.is_empty() {
        return None;
    }
    let message = format!("the workspace runs, but {}", reasons.join("; "));
    let hint = format!(
        "fix the cause; the daemon retries automatically; for details: `{}`, `{}`",
        context.command("ps"),
        context.command("logs --process connector")
    );
    Some(Failure::new(Exit::Degraded, message, hint))
}

/// Returns the workspace of a rejected project if an earlier configuration runs.
async fn running_instead(
    client: &mut Client,
    project_root: &Path,
    failure: &Failure,
) -> Result<Option<WorkspaceInfo>, Failure> {
    if failure.exit != Exit::InvalidConfiguration {
        return Ok(None);
    }
    let of_project = ListWorkspaces {
        project_root: Some(project_root.to_owned()),
        ..ListWorkspaces::default()
    };
    let of_project = client.all(of_project).await?;
    let mut running = of_project
        .into_iter()
        .filter(|info| info.config_digest.is_some());
    Ok(running.next())
}

/// Stops the workspace with the configuration that the daemon fell back to.
async fn stopped_instead(
    client: &mut Client,
    info: WorkspaceInfo,
    failure: Failure,
) -> Result<Failure, Failure> {
    let running = ActiveConfig::of(&info).description();
    let workspace_id = info.workspace_id;
    client.change(CloseWorkspace { workspace_id }).await?;
    let message = failure.message;
    Ok(Failure {
        message: format!(
            "{message}\n\n{running}. It was stopped, because only a valid configuration is allowed"
        ),
        ..failure
    })
}

/// Combines the configuration problem with what runs instead and how to change that.
fn told_with_what_runs(failure: Failure, info: &WorkspaceInfo, context: &Context) -> Failure {
    let running = ActiveConfig::of(info);
    let hints = [Some(failure.hint), running.refusal(context)];
    Failure {
        message: format!("{}\n\n{}", failure.message, running.description()),
        hint: hints.into_iter().flatten().collect::<Vec<_>>().join("; "),
        ..failure
    }
}

/// Run options; options not given keep their value.
struct RunSettings {
    watch: Option<bool>,
    env_files: Option<Vec<PathBuf>>,
    swarm: Option<Option<ResourceName>>,
}

impl RunSettings {
    fn of(args: &RunArgs) -> Result<Self, Failure> {
        let env_files = args.env.absolute()?;
        Ok(Self {
            watch: (args.watch || args.no_watch).then_some(args.watch),
            env_files: (args.no_env_file || !env_files.is_empty()).then_some(env_files),
            swarm: (args.first_swarm || args.swarm.is_some()).then(|| args.swarm.clone()),
        })
    }

    fn is_any(&self) -> bool {
        self.watch.is_some() || self.env_files.is_some() || self.swarm.is_some()
    }

    fn choice(&self) -> ProjectChoice {
        ProjectChoice {
            env_files: self.env_files.clone().unwrap_or_default(),
            swarm: self.swarm.clone().flatten(),
        }
    }

    fn options(&self, is_strict: bool) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        match self.watch {
            Some(true) => options.push("--watch".into()),
            Some(false) => options.push("--no-watch".into()),
            None => {}
        }
        match self.env_files.as_deref() {
            Some([]) => options.push("--no-env-file".into()),
            Some(files) => options.extend(
                files
                    .iter()
                    .flat_map(|file| ["--env-file".into(), file.clone().into_os_string()]),
            ),
            None => {}
        }
        match &self.swarm {
            Some(Some(swarm)) => options.extend(["--swarm".into(), swarm.as_str().into()]),
            Some(None) => options.push("--first-swarm".into()),
            None => {}
        }
        options.extend(is_strict.then(|| "--strict".into()));
        options
    }
}

fn summary(info: &WorkspaceInfo) -> Table {
    let entry = info.entry_agent.as_ref();
    let agents: Vec<String> = info
        .agents
        .iter()
        .map(|agent| match entry {
            Some(entry) if entry == agent => format!("{agent} (entry)"),
            _ => agent.to_string(),
        })
        .collect();
    let mut table = Table::of_fields();
    table.field("Workspace", &info.workspace_id);
    table.field("Project", info.project_root.to_string_lossy());
    if let Some(package) = &info.package {
        table.field("Package", package);
    }
    if let Some(swarm) = &info.swarm {
        table.field("Swarm", swarms(swarm, &info.idle_swarms));
    }
    let programs = info.task_agents.iter();
    let programs = programs.map(|agent| format!("{agent} (for tasks)"));
    let agents: Vec<String> = agents.into_iter().chain(programs).collect();
    table.field("Agents", listed(&agents));
    table.field("Connections", listed(&info.connections));
    if let Some(digest) = &info.config_digest
        && info.last_known_good
    {
        let text = format!("last known good, {}", active_configuration::short(digest));
        table.field("Configuration", Cell::styled(text, style::WARN));
    }
    table.field("Watch", status::watch(info));
    if !info.watched_files.is_empty() {
        table.field("", watched(info));
    }
    if !info.env_files.is_empty() {
        let files = info.env_files.iter();
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        table.field("Env files", listed(&files));
    }
    table
}

/// The Swarm that runs, and the others: `day (not running: night)`.
pub(super) fn swarms(running: &ResourceName, idle: &[ResourceName]) -> String {
    if idle.is_empty() {
        return running.to_string();
    }
    let idle: Vec<&str> = idle.iter().map(ResourceName::as_str).collect();
    format!("{running} (not running: {})", idle.join(", "))
}

/// Watched files: `goondan.yaml, prompts/clerk.md and 3 more`.
fn watched(info: &WorkspaceInfo) -> String {
    let names = info.watched_files.iter().take(WATCHED_FILES_NAMED);
    let names: Vec<String> = names
        .map(|path| path.strip_prefix(&info.project_root).unwrap_or(path))
        .map(|path| path.display().to_string())
        .collect();
    let more = info.watched_files_total.saturating_sub(names.len());
    match more {
        0 => names.join(", "),
        more => format!(
            "{} and {}",
            names.join(", "),
            text::count(more, "more file")
        ),
    }
}
