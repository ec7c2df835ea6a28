//! Reading a workspace from disk: its configuration, its record, its instances with work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use goondan_config::{
    Diagnostics, Loader, LocalMachine, ProcessEnvironment, ProjectConfig, Secrets, Sources,
};
use goondan_durable::disk::Disk;
use goondan_protocol::control::{ControlError, ErrorCode, InstanceSummary, PermissionDecision};
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ids::{InstanceRef, ResourceName, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_store::configuration::{self, StoredConfiguration};
use goondan_store::index::InstanceIndex;
use goondan_store::instance::Metadata;
use goondan_store::root::Layout;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::{StoreError, audit, ledger, workspace};
use goondan_vault::{ExternalIdentities, ProjectIdentity, RealFiles, SecretReader, Vault};

use super::daemon_files::DaemonFiles;
use super::masking::Masks;
use super::module_preflight;
use super::proposals::ProposalFiles;
use super::replication::handle::Replication;
use super::replication::messages::NotOwner;
use super::secrets::SecretKeeper;
use goondan_core::{
    Accounts, Fallback, LoadPurpose, LoadedWorkspace, StandingApprovals, UnknownCalls,
    WorkspaceSettings, parked_among,
};

/// Dependencies for reading projects.
#[derive(Clone)]
pub(super) struct Projects {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) layout: Layout,
    pub(super) known: InstanceCache,
    masks: Arc<Masks>,
    /// The program that confines others.
    agent_process: PathBuf,
    vault: Arc<Vault>,
    pub(super) secrets: Arc<SecretKeeper>,
    /// True if a project with an invalid configuration does not run at all (`--strict`).
    pub(super) is_strict: bool,
    /// Set if this node must own a workspace before it may change the workspace's files.
    pub(super) replication: Option<Replication>,
    /// Loads run one after another, so that a later result is never older.
    turn: Arc<Mutex<()>>,
}

/// Parameters of reading a project.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadParams {
    /// The expected workspace of the project, if known.
    pub(super) workspace_id: Option<WorkspaceId>,
    pub(super) settings: WorkspaceSettings,
    /// True if the last known good configuration may be used.
    pub(super) may_fall_back: bool,
    /// True if all instances are needed, because they may be restarted from scratch.
    pub(super) all_instances: bool,
}

/// Project of a conversation's own configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverlayProject<'a> {
    pub(super) project_root: &'a Path,
    pub(super) package: Option<&'a str>,
    pub(super) env_files: &'a [PathBuf],
    pub(super) swarm: Option<&'a ResourceName>,
}

/// Result of reading a project, and its sources.
pub(super) type ProjectReadResult = (Arc<Sources>, Result<LoadedWorkspace, ControlError>);

impl Projects {
    /// Properties of this machine that decide if a project can run on it.
    pub(super) fn machine(&self) -> LocalMachine {
        let agent_process = self.agent_process.clone();
        let rights = move || goondan_confinement::probe_all(&agent_process);
        LocalMachine::new(self.layout.root().to_owned(), rights)
            .with_readable(goondan_confinement::readable)
            .with_open_beneath(goondan_confinement::open_beneath)
            .with_tasks_root(self.layout.tasks_root())
    }

    /// goondan's own files, and directories that others write.
    pub(super) fn files(&self) -> DaemonFiles {
        DaemonFiles(self.disk.clone())
    }

    pub(super) fn proposal_files(&self) -> ProposalFiles {
        ProposalFiles::new(self.files(), self.replication.is_some())
    }

    pub(super) fn new(
        disk: Arc<dyn Disk>,
        layout: Layout,
        known: InstanceCache,
        masks: Arc<Masks>,
        agent_process: PathBuf,
        is_strict: bool,
        replication: Option<Replication>,
    ) -> Self {
        let vault = Arc::new(Vault::new(
            layout.root(),
            ExternalIdentities::to_this_process(),
        ));
        let secrets = SecretKeeper::new(
            vault.clone(),
            Box::new(RealFiles),
            disk.clone(),
            layout.clone(),
            masks.clone(),
        );
        secrets.note_documents();
        Self {
            disk,
            layout,
            known,
            masks,
            agent_process,
            vault,
            secrets: Arc::new(secrets),
            is_strict,
            replication,
            turn: Arc::default(),
        }
    }

    /// Reads and registers the workspace of a project, and passes it on before another is read.
    /// Blocks.
    pub(super) fn read_then<T>(
        &self,
        project_root: &Path,
        wanted: &LoadParams,
        then: impl FnOnce(ProjectReadResult) -> T,
    ) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        then(self.read(project_root, wanted))
    }

    /// Reads and registers the workspace of a project. Blocks.
    pub(super) fn read(&self, project_root: &Path, wanted: &LoadParams) -> ProjectReadResult {
        let root = match std::fs::canonicalize(project_root) {
            Ok(root) => root,
            Err(error) => {
                let text = format!(
                    "failed to open the project `{}`: {error}",
                    project_root.display()
                );
                let error = ControlError::new(ErrorCode::InvalidConfiguration, text)
                    .suggest("pass an existing project, or create one with `gdn init`");
                return (Arc::new(Sources::of(project_root)), Err(error));
            }
        };
        let (record, renamed) = match self.record_of(&root, wanted) {
            Ok(found) => found,
            Err(error) => return (Arc::new(Sources::of(&root)), Err(error)),
        };
        let env_files = wanted.settings.env_files.clone();
        let env_files = env_files
            .or_else(|| Some(record.as_ref()?.env_files.clone()))
            .unwrap_or_default();
        let swarm = wanted.settings.swarm.clone();
        let swarm = swarm.unwrap_or_else(|| record.as_ref()?.swarm.clone());
        // A project without a readable name has no consents for secrets.
        let package = goondan_config::package_name(&root).unwrap_or_default();
        let project = ProjectIdentity::new(&root, package.as_deref());
        let secrets = SecretReader::new(&self.vault, &project);
        let decisions = self.decisions(&project);
        let machine = self.machine();
        let loader = Loader::new(&ProcessEnvironment)
            .with_env_files(&env_files)
            .with_swarm(swarm.as_ref())
            .with_secrets(&secrets)
            .with_decisions(&decisions)
            .with_machine(&machine);
        let loaded = loader.load(&root);
        self.masks.add(&loaded.secrets);
        let mut sources = loaded.sources;
        let result = match (loaded.bundle, renamed) {
            (Ok(_), Some(error)) => Err(error),
            (Ok(bundle), None) => {
                let package = bundle.package.as_ref().map(|package| &*package.name);
                self.open(&root, package, &wanted.settings)
                    .and_then(|record| self.read_instances(record, Ok(bundle), wanted))
                    .map(|found| LoadedWorkspace {
                        may_be_kept: !loaded.secrets.is_any_written_out(),
                        ..found
                    })
            }
            (Err(problems), _) => {
                let error = invalid(&problems, &loaded.secrets, &root);
                match record.filter(|record| record.registered) {
                    // A project that cannot run is not registered, but an existing registration
                    // stays.
                    None => Err(error),
                    Some(record) if wanted.may_fall_back && !self.is_strict => {
                        self.fall_back(&root, record, &env_files, error, wanted, &mut sources)
                    }
                    Some(record) => self.read_instances(record, Err(error), wanted),
                }
            }
        };
        (Arc::new(sources), result)
    }

    /// The record of the project's workspace, if there is one, and the reason why a valid project
    /// cannot be it.
    fn record_of(
        &self,
        root: &Path,
        wanted: &LoadParams,
    ) -> Result<(Option<WorkspaceRecord>, Option<ControlError>), ControlError> {
        let disk = self.disk.as_ref();
        let read = |id: &WorkspaceId| {
            workspace::recall(disk, &self.layout, id).map_err(|error| storage(&error.into()))
        };
        // A project without a readable name may still be the expected one.
        let package = goondan_config::package_name(root).unwrap_or_default();
        let id = goondan_store::file_names::workspace_id(root, package.as_deref())
            .map_err(|problem| ControlError::new(ErrorCode::Internal, problem.to_string()))?;
        if let Some(expected) = &wanted.workspace_id {
            let renamed = (*expected != id).then(|| renamed(root, &id));
            return Ok((read(expected)?, renamed));
        }
        if let Some(record) = read(&id)? {
            return Ok((Some(record), None));
        }
        if !wanted.may_fall_back {
            return Ok((None, None));
        }
        let (records, _) = workspace::list(disk, &self.layout).map_err(|error| storage(&error))?;
        let mut of_root = records
            .into_iter()
            .filter(|record| record.registered && record.project_root == root);
        // With several candidates, the right one is unknown.
        Ok((of_root.next().filter(|_| of_root.next().is_none()), None))
    }

    /// Registers the workspace of a valid project, with the client's settings.
    fn open(
        &self,
        root: &Path,
        package: Option<&str>,
        settings: &WorkspaceSettings,
    ) -> Result<WorkspaceRecord, ControlError> {
        let disk = self.disk.as_ref();
        let before = self.open_known(root, package)?;
        let mut record = before.clone();
        record.watch = settings.watch.unwrap_or(record.watch);
        if let Some(env_files) = &settings.env_files {
            record.env_files.clone_from(env_files);
        }
        if let Some(swarm) = &settings.swarm {
            record.swarm.clone_from(swarm);
        }
        if record != before {
            workspace::write(disk, &self.layout, &record).map_err(|error| storage(&error))?;
        }
        Ok(record)
    }

    /// Opens the workspace of a project once this node owns it.
    fn open_known(
        &self,
        root: &Path,
        package: Option<&str>,
    ) -> Result<WorkspaceRecord, ControlError> {
        if let Some(replication) = &self.replication {
            let id = goondan_store::file_names::workspace_id(root, package)
                .map_err(|problem| ControlError::new(ErrorCode::Internal, problem.to_string()))?;
            let acquired = replication.acquire(&id);
            acquired.map_err(|why| not_here(&id, &why))?;
        }
        let disk = self.disk.as_ref();
        let opened = self.known.open(disk, &self.layout, root, package);
        opened.map_err(|error| storage(&error))
    }

    /// Reads the last known good configuration of a workspace whose project cannot run.
    fn fall_back(
        &self,
        root: &Path,
        record: WorkspaceRecord,
        env_files: &[PathBuf],
        error: ControlError,
        wanted: &LoadParams,
        sources: &mut Sources,
    ) -> Result<LoadedWorkspace, ControlError> {
        let id = &record.workspace_id;
        let kept = configuration::read(self.disk.as_ref(), &self.layout, id);
        let kept = match kept {
            Ok(Some(kept)) => kept,
            Ok(None) => return self.read_instances(record, Err(error), wanted),
            Err(unreadable) => {
                let why = format!(
                    "{}\n\nFailed to read the last known good configuration: {}",
                    error.message,
                    goondan_log::error_chain(&unreadable)
                );
                let error = ControlError {
                    message: why,
                    ..error
                };
                return self.read_instances(record, Err(error), wanted);
            }
        };
        let files = kept.files.iter();
        let files = files.map(|(path, text)| (PathBuf::from(path), text.clone()));
        // The stored configuration keeps its package name, even if the project has changed it.
        let project = ProjectIdentity::new(root, record.package.as_deref());
        let secrets = SecretReader::new(&self.vault, &project);
        let decisions = self.decisions(&project);
        let loader = Loader::new(&ProcessEnvironment)
            .with_env_files(env_files)
            .with_swarm(record.swarm.as_ref())
            .with_secrets(&secrets)
            .with_decisions(&decisions);
        let loaded = loader.load_kept(root, &files.collect());
        self.masks.add(&loaded.secrets);
        sources.add_secrets(loaded.sources.secrets());
        let (bundle, fallback) = match loaded.bundle {
            Ok(bundle) => {
                let since = kept.since;
                (Ok(bundle), Some(Fallback { error, since }))
            }
            Err(problems) => {
                let message = format!(
                    "{}\n\nThe last known good configuration of {} cannot run either:\n{problems}",
                    error.message, kept.since
                );
                (Err(ControlError { message, ..error }), None)
            }
        };
        // As for a valid configuration: remains of crashes are removed before anything runs.
        let package = record.package.as_deref();
        let record = self.open_known(root, package)?;
        let found = self.read_instances(record, bundle, wanted)?;
        Ok(LoadedWorkspace { fallback, ..found })
    }

    /// Loads a conversation's own configuration in full. Blocks.
    pub(super) fn load_overlay(
        &self,
        of: &OverlayProject<'_>,
        files: &BTreeMap<String, Option<String>>,
    ) -> Result<ProjectConfig, String> {
        let project = ProjectIdentity::new(of.project_root, of.package);
        let secrets = SecretReader::new(&self.vault, &project);
        let decisions = self.decisions(&project);
        let machine = self.machine();
        let loader = Loader::new(&ProcessEnvironment)
            .with_env_files(of.env_files)
            .with_swarm(of.swarm)
            .with_secrets(&secrets)
            .with_decisions(&decisions)
            .with_machine(&machine);
        let files = files.iter();
        let files = files.map(|(path, text)| (PathBuf::from(path), text.clone()));
        let loaded = loader.load_kept(of.project_root, &files.collect());
        self.masks.add(&loaded.secrets);
        loaded.bundle.map_err(|problems| problems.to_string())
    }

    /// Decisions of people about permissions of a project's workspace. Unreadable decisions allow
    /// nothing.
    fn decisions(&self, project: &ProjectIdentity) -> Vec<PermissionDecision> {
        match self.vault.permissions(&RealFiles) {
            Ok(found) => found.of_project(project),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to read the permissions of workspaces; none is in effect"
                );
                Vec::new()
            }
        }
    }

    pub(super) fn agent_process(&self) -> &Path {
        &self.agent_process
    }

    /// Starts the modules of an agent's tools once, confined. Blocks.
    pub(super) fn start_modules(&self, assignment: &AgentAssignment) -> Result<(), String> {
        let started = module_preflight::start_modules(&self.agent_process, assignment);
        // The output of a module may contain secrets that it should not know.
        started.map_err(|problems| self.masks.text(&problems).into_owned())
    }

    /// Reads the instances of a workspace, and those with pending work.
    fn read_instances(
        &self,
        record: WorkspaceRecord,
        bundle: Result<ProjectConfig, ControlError>,
        wanted: &LoadParams,
    ) -> Result<LoadedWorkspace, ControlError> {
        let (disk, known) = (self.disk.as_ref(), &self.known);
        let instances = self.layout.instances(&record.workspace_id);
        let listed = workspace::list_instances(disk, &instances);
        let (found, mut unusable) = listed.map_err(|error| storage(&error))?;
        known.index.take_up(&record.workspace_id, &found);
        let ledger = ledger::read(disk, &self.layout, &record.workspace_id);
        let ledger = ledger.map_err(|error| storage(&error))?;
        let mut unknown_calls = UnknownCalls::default();
        let (layout, id) = (&self.layout, &record.workspace_id);
        audit::each_with(disk, layout, id, &UnknownCalls::RECORDS, |record| {
            unknown_calls.follow(record);
        })
        .map_err(|error| storage(&error))?;
        let mut standing = StandingApprovals::default();
        audit::each_with(disk, layout, id, &StandingApprovals::RECORDS, |record| {
            standing.follow(record);
        })
        .map_err(|error| storage(&error))?;
        standing.retain_existing(&found);
        let schedules = workspace::schedules_among(disk, &instances, &found);
        let with_work = workspace::with_work_among(disk, &instances, &found, &mut unusable);
        known.warned.report(&unusable);
        let parked = parked_among(&found);
        let to_begin_anew = if wanted.all_instances {
            found
        } else {
            Vec::new()
        };
        Ok(LoadedWorkspace {
            record,
            bundle,
            fallback: None,
            may_be_kept: false,
            accounts: Accounts::of(&ledger.lines),
            unknown_calls,
            standing,
            schedules,
            with_work,
            parked,
            to_begin_anew,
        })
    }

    /// Reads a workspace that was registered when the daemon last ran. A workspace with an
    /// unreadable project is still returned, with the reason. Blocks.
    pub(super) fn read_registered(&self, record: WorkspaceRecord) -> ProjectReadResult {
        let wanted = LoadParams {
            workspace_id: Some(record.workspace_id.clone()),
            may_fall_back: LoadPurpose::Start.may_fall_back(),
            ..LoadParams::default()
        };
        let (sources, found) = self.read(&record.project_root, &wanted);
        let found = match found {
            Ok(found) => Ok(found),
            Err(error) => self.read_instances(record, Err(error), &wanted),
        };
        (sources, found)
    }

    /// Checks if a workspace of another node could run here: its project, environment files,
    /// secrets and programs, or the last known good configuration. Changes nothing. Blocks.
    ///
    /// # Errors
    ///
    /// The reason why it could not, as text.
    pub(super) fn check_runnable(
        &self,
        record: &WorkspaceRecord,
        machine: &LocalMachine,
    ) -> Result<(), String> {
        let root = &record.project_root;
        let package = goondan_config::package_name(root).unwrap_or_default();
        let project = ProjectIdentity::new(root, package.as_deref());
        let secrets = SecretReader::new(&self.vault, &project);
        let decisions = self.decisions(&project);
        let loader = Loader::new(&ProcessEnvironment)
            .with_env_files(&record.env_files)
            .with_swarm(record.swarm.as_ref())
            .with_secrets(&secrets)
            .with_decisions(&decisions)
            .with_machine(machine);
        let loaded = loader.load(root);
        self.masks.add(&loaded.secrets);
        let Err(problems) = loaded.bundle else {
            return Ok(());
        };
        let why = invalid(&problems, &loaded.secrets, root).message;
        if self.is_strict {
            return Err(why);
        }
        let kept = configuration::read(self.disk.as_ref(), &self.layout, &record.workspace_id);
        let Ok(Some(kept)) = kept else {
            return Err(why);
        };
        let project = ProjectIdentity::new(root, record.package.as_deref());
        let secrets = SecretReader::new(&self.vault, &project);
        let decisions = self.decisions(&project);
        let files = kept.files.iter();
        let files = files.map(|(path, text)| (PathBuf::from(path), text.clone()));
        let loader = Loader::new(&ProcessEnvironment)
            .with_env_files(&record.env_files)
            .with_swarm(record.swarm.as_ref())
            .with_secrets(&secrets)
            .with_decisions(&decisions);
        let loaded = loader.load_kept(root, &files.collect());
        self.masks.add(&loaded.secrets);
        loaded.bundle.map(drop).map_err(|_problems| why)
    }

    /// Stores the sources of a running configuration, unless a later one was stored meanwhile.
    /// Blocks.
    pub(super) fn keep(
        &self,
        number: u64,
        id: &WorkspaceId,
        digest: String,
        since: Timestamp,
        sources: &Sources,
    ) {
        let files = sources.kept().iter();
        let files =
            files.map(|(path, text)| Some((path.to_str()?.to_owned(), text.map(str::to_owned))));
        let Some(files) = files.collect::<Option<BTreeMap<_, _>>>() else {
            tracing::warn!(
                workspace_id = %id,
                "a path of the configuration is not UTF-8; not storing it as last known good"
            );
            return;
        };
        let mut kept = self
            .known
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let latest = kept.entry(id.clone()).or_default();
        if *latest >= number {
            return;
        }
        *latest = number;
        let configuration = StoredConfiguration {
            digest,
            since,
            files,
        };
        let written = configuration::keep(self.disk.as_ref(), &self.layout, id, &configuration);
        if let Err(error) = written {
            tracing::warn!(
                workspace_id = %id,
                error = &error as &dyn std::error::Error,
                "failed to store the last known good configuration"
            );
        }
    }
}

fn renamed(root: &Path, id: &WorkspaceId) -> ControlError {
    let text = format!(
        "the project `{}` is now workspace `{id}` because its package was renamed",
        root.display()
    );
    ControlError::new(ErrorCode::WorkspaceConflict, text)
        .suggest("run it under its new name with `gdn run`, or restore the package's old name")
}

fn invalid(diagnostics: &Diagnostics, secrets: &Secrets, project_root: &Path) -> ControlError {
    let message = format!("the configuration is not valid\n\n{diagnostics}");
    // The message names the secrets to allow, so that a person can be asked.
    let is_all = |code: &str| {
        diagnostics
            .as_slice()
            .iter()
            .all(|found| found.code == code)
    };
    if let Some(name) = secrets.refused().keys().next()
        && is_all(goondan_config::codes::SECRET_NOT_ALLOWED)
    {
        let error = ControlError::new(ErrorCode::SecretNotAllowed, message);
        return error.suggest(format!(
            "if you trust the project with it, run `gdn secret allow {name}` in `{}`",
            project_root.display()
        ));
    }
    ControlError::new(ErrorCode::InvalidConfiguration, message).suggest(format!(
        "fix it, then check it with `gdn validate {}`",
        project_root.display()
    ))
}

fn not_here(id: &WorkspaceId, why: &NotOwner) -> ControlError {
    ControlError::new(
        ErrorCode::WorkspaceElsewhere,
        format!("workspace `{id}`: {why}"),
    )
    .suggest("find its node: `gdn daemon node list`")
}

fn storage(error: &StoreError) -> ControlError {
    goondan_core::control_error(error)
}

/// Cached facts about instances.
#[derive(Debug, Clone, Default)]
pub(super) struct InstanceCache {
    pub(super) index: InstanceIndex,
    pub(super) warned: WarnedPaths,
    opened: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    /// The number of the latest configuration that was kept, by workspace.
    kept: Arc<Mutex<BTreeMap<WorkspaceId, u64>>>,
}

impl InstanceCache {
    /// Forgets a workspace that another node may change from here on.
    pub(super) fn forget(&self, id: &WorkspaceId) {
        self.index.forget(id);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.remove(id);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(id);
    }

    /// Opens a workspace, and registers one that this daemon has opened before.
    fn open(
        &self,
        disk: &dyn Disk,
        layout: &Layout,
        project_root: &Path,
        package: Option<&str>,
    ) -> Result<WorkspaceRecord, StoreError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let id = goondan_store::file_names::workspace_id(project_root, package);
        if id.is_ok_and(|id| opened.contains(&id)) {
            return workspace::register(disk, layout, project_root, package);
        }
        let record = workspace::open(disk, layout, project_root, package)?;
        opened.insert(record.workspace_id.clone());
        Ok(record)
    }
}

/// Paths that were already reported as unusable, to report each once (`INST-4`).
#[derive(Debug, Clone, Default)]
pub(super) struct WarnedPaths(Arc<Mutex<BTreeSet<PathBuf>>>);

impl WarnedPaths {
    /// Logs unusable directories that were not logged before.
    pub(super) fn report(&self, unusable: &[workspace::UnusableEntry]) {
        for found in unusable {
            if self.is_new(&found.path) {
                tracing::warn!(
                    path = %found.path.display(),
                    error = &found.error as &dyn std::error::Error,
                    "skipping unusable state directory"
                );
            }
        }
    }

    fn is_new(&self, path: &Path) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warned.insert(path.to_owned())
    }
}

/// Every instance of a workspace that is open.
pub(super) fn list_instances(
    known: &InstanceCache,
    workspace_id: &WorkspaceId,
    is_processing: impl Fn(&InstanceRef) -> bool,
) -> Vec<InstanceSummary> {
    let found = known.index.list(workspace_id).unwrap_or_default();
    let summary = |metadata: Metadata| {
        let at = InstanceRef {
            workspace_id: workspace_id.clone(),
            instance_key: metadata.instance_key,
        };
        let status = if is_processing(&at) {
            "processing"
        } else {
            metadata.status.as_str()
        };
        InstanceSummary {
            status: status.to_owned(),
            workspace_id: at.workspace_id,
            instance_key: at.instance_key,
            agent_name: metadata.agent_name,
            created_at: metadata.created_at,
            updated_at: metadata.updated_at,
        }
    };
    found.into_iter().map(summary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inst_4_unusable_instance_is_warned_about_once() {
        let warned = WarnedPaths::default();
        let path = Path::new("/root/workspaces/w/instances/x");
        assert!(warned.is_new(path));
        assert!(!warned.clone().is_new(path));
        assert!(warned.is_new(&path.with_file_name("y")));
    }
}
