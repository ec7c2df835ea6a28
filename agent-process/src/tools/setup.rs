//! Sets up the directories of an agent's tools, and the access that confinement permits to their
//! programs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use goondan_confinement::{ProgramContext, ProgramRights};
use goondan_protocol::definition::{AgentAssignment, ModuleSandbox, ProjectWork};
use goondan_protocol::sandbox::{Level, SandboxPath, SandboxPolicy};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

use super::host::Hosts;
use super::pipe::Surroundings;
use super::places::{Access, LaterRoot, ToolRoots};
use super::residents::Residents;
use super::rooted_files::Root;
use super::runtimes::Runtimes;
use super::secret_files::SecretFiles;
use super::session::Sessions;
use super::work_area::keep_directories;
use super::worker_sandbox::WorkerSandbox;

/// A directory of the assignment cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("failed to open the {what} `{}`, which must exist before an agent starts", path.display())]
pub struct NoDirectory {
    /// `work directory` or `project root`.
    what: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Directory for temporary files, within the work directory, if programs may not write to the
/// system's own.
const TEMPORARY_DIRECTORY: &str = ".goondan/tmp";

fn allowed_to(assignment: &AgentAssignment) -> ProgramRights {
    let egress = assignment.egress_socket.as_deref();
    let mut allowed = allowed_by(&assignment.agent.sandbox, egress, assignment);
    work_in_project(&mut allowed.policy, assignment);
    allowed
}

/// Work in the project, if a person has allowed it and the agent has no copy of the project.
fn project_work(assignment: &AgentAssignment) -> Option<&ProjectWork> {
    let has_own_place = assignment.task.is_some() || WorkerSandbox::of(assignment).is_some();
    let work = assignment.agent.project_work.as_ref();
    work.filter(|_| !has_own_place)
}

/// Existing paths of the project that stay read-only, relative to it.
fn protected_paths(work: &ProjectWork, project_root: &Path) -> Vec<PathBuf> {
    // A link that a program could replace cannot be protected.
    let is_plain = |path: &PathBuf| {
        let full = project_root.join(path);
        full.canonicalize().is_ok_and(|real| real == full)
    };
    let always = ProjectWork::ALWAYS_PROTECTED.iter().map(PathBuf::from);
    let always = always.filter(is_plain);
    let own = work.protected.iter().cloned();
    let own = own.filter(|path| project_root.join(path).exists());
    own.chain(always).collect()
}

/// Makes the project writable, except for protected paths. Never for modules of packages, which
/// have only what their package was granted.
fn work_in_project(policy: &mut SandboxPolicy, assignment: &AgentAssignment) {
    let Some(work) = project_work(assignment).filter(|_| policy.require != Level::Off) else {
        return;
    };
    let root = &assignment.project_root;
    let protected = protected_paths(work, root).into_iter();
    let protected = protected.map(|path| root.join(path));
    let protected = protected.filter_map(|path| SandboxPath::try_from(path).ok());
    policy.read.extend(protected);
    policy
        .write
        .extend(SandboxPath::try_from(root.clone()).ok());
}

/// Policy of the agent's own process: the files of its programs. If the agent starts no programs,
/// only the files of its file tools, at the level that programs would have.
pub(crate) fn own_files(assignment: &AgentAssignment) -> SandboxPolicy {
    if assignment.agent.programs().is_some() {
        return allowed_to(assignment).policy;
    }
    let asked = SandboxPolicy {
        require: Level::Landlock,
        ..assignment.agent.sandbox.clone()
    };
    let mut policy = allowed_by(&asked, None, assignment).policy;
    work_in_project(&mut policy, assignment);
    policy
}

/// The agent's work directory of the conversation, or of its sandbox.
fn own_work_dir(assignment: &AgentAssignment) -> PathBuf {
    let sandbox = WorkerSandbox::of(assignment);
    sandbox.as_ref().map_or_else(
        || assignment.work_dir.clone(),
        |sandbox| sandbox.work().to_owned(),
    )
}

/// Access under a policy, including the files that each program of the agent may use.
fn allowed_by(
    policy: &SandboxPolicy,
    egress: Option<&Path>,
    assignment: &AgentAssignment,
) -> ProgramRights {
    let sandbox = WorkerSandbox::of(assignment);
    let work_dir = sandbox
        .as_ref()
        .map_or(&*assignment.work_dir, WorkerSandbox::work);
    let temporary = work_dir.join(TEMPORARY_DIRECTORY);
    let ground = ProgramContext {
        project: &assignment.project_root,
        work_dir: Some(work_dir),
        temporary: Some(&temporary),
        egress,
    };
    let asked = sandbox
        .as_ref()
        .map_or(policy.clone(), |it| it.beside(policy));
    let mut allowed = ProgramRights::of(&asked, &ground);
    if assignment.task.is_some() {
        keep_directories(&mut allowed, work_dir);
    }
    allowed
}

/// Directory of the working copies of the agent's changesets, if it makes any (`BUNDLE-3`). The
/// directory exists before the process starts if the agent may write there.
pub(crate) fn changesets_of(assignment: &AgentAssignment) -> Option<&Path> {
    assignment.changesets.as_deref().filter(|dir| dir.is_dir())
}

/// The directory of all sandboxes of the workspace, if the agent may read those of its conversation: that of its run is
/// made later, and a process cannot extend its own confinement.
pub(crate) fn runs_of(assignment: &AgentAssignment) -> Option<&Path> {
    assignment
        .run
        .as_deref()?
        .parent()
        .filter(|dir| dir.is_dir())
}

/// Purpose for which the tools are set up.
fn purpose_of<'a>(assignment: &'a AgentAssignment, work_dir: &'a Path) -> ProcessPurpose<'a> {
    match &assignment.task {
        Some(_) => ProcessPurpose::Task {
            work_area: work_dir,
            copy: None,
        },
        None => ProcessPurpose::Agent {
            mode: assignment.agent.cwd_mode,
            work_dir,
            project_root: &assignment.project_root,
        },
    }
}

/// Opens the directories of an agent's tools. `supervisor` is this crate's binary.
pub(super) fn places_of(
    assignment: &AgentAssignment,
    supervisor: PathBuf,
) -> Result<ToolRoots, NoDirectory> {
    let secret_files = Arc::new(SecretFiles::of(&assignment.agent));
    let open = |what: &'static str, path: &Path| {
        let opened = Root::open(path).map(|root| root.keeping(secret_files.clone()));
        opened.map_err(|source| NoDirectory {
            what,
            path: path.to_owned(),
            source,
        })
    };
    let sandbox = WorkerSandbox::of(assignment);
    let work_dir = sandbox
        .as_ref()
        .map_or(&*assignment.work_dir, WorkerSandbox::work);
    let work = open("work directory", work_dir)?;
    let work = Arc::new(work.kept_for(assignment.task.is_some()));
    let allowed = allowed_to(assignment);
    let mut beside = match &sandbox {
        Some(sandbox) => vec![
            (
                open("baseline of the sandbox", sandbox.input())?,
                Access::Read,
            ),
            (
                open("proposal of the sandbox", sandbox.proposal())?,
                Access::Write,
            ),
        ],
        None => Vec::new(),
    };
    for folder in &assignment.agent.skills {
        beside.push((open("folder of a skill", folder)?, Access::Read));
    }
    if let Some(changesets) = changesets_of(assignment) {
        let opened = open("directory of the changesets", changesets)?;
        beside.push((opened, Access::Write));
    }
    if matches!(allowed.policy.require, Level::Landlock | Level::Seatbelt) {
        // If creating it fails, the programs that need it report the error.
        work.make_directory(Path::new(TEMPORARY_DIRECTORY)).ok();
    }
    let run = assignment.run.as_ref().map(|run| LaterRoot {
        path: run.clone(),
        secret_files: secret_files.clone(),
        opened: OnceLock::new(),
    });
    let in_project = project_work(assignment).map(|work| {
        let protected = protected_paths(work, &assignment.project_root);
        let opened = open("project root", &assignment.project_root);
        opened.map(|root| root.protecting(protected))
    });
    let path = allowed.path();
    let surroundings = surroundings_of(assignment, supervisor, work_dir, allowed);
    let within = |modules: &ModuleSandbox| Arc::new(narrowed(&surroundings, modules, assignment));
    let of_packages = assignment.agent.package_sandboxes.iter();
    let of_packages = of_packages.map(|it| (it.clone(), within(it))).collect();
    let of_extensions = assignment.agent.extension_sandbox.as_deref().map(within);
    Ok(ToolRoots {
        work,
        project: open("project root", &assignment.project_root)?,
        in_project: in_project.transpose()?,
        may_work_in_project: may_work_in_project(assignment),
        beside,
        run,
        surroundings: Arc::new(surroundings),
        of_packages,
        of_extensions,
        sessions: Sessions::default(),
        hosts: Hosts::default(),
        runtimes: Runtimes::in_path(path),
    })
}

/// True if a person can allow the agent's tools to work in the project.
fn may_work_in_project(assignment: &AgentAssignment) -> bool {
    let agent = &assignment.agent;
    let has_own_place = assignment.task.is_some() || WorkerSandbox::of(assignment).is_some();
    !agent.contract.is_own()
        && agent.project_work.is_none()
        && !has_own_place
        && agent.sandbox.require == Level::Full
}

/// Environment of every process that tools start, except modules of packages.
fn surroundings_of(
    assignment: &AgentAssignment,
    supervisor: PathBuf,
    work_dir: &Path,
    allowed: ProgramRights,
) -> Surroundings {
    let (cwd, work_dir) = match project_work(assignment) {
        Some(_) => (&*assignment.project_root, &*assignment.project_root),
        None => (
            working_directory(purpose_of(assignment, work_dir)),
            work_dir,
        ),
    };
    Surroundings {
        supervisor,
        cwd: cwd.to_owned(),
        work_dir: work_dir.to_owned(),
        may_work_in_project: may_work_in_project(assignment),
        project_root: assignment.project_root.clone(),
        instance_key: assignment.instance_key.clone(),
        agent_name: assignment.agent.name.clone(),
        swarm: assignment.agent.swarm.clone(),
        task: assignment.task.clone(),
        allowed,
        run: assignment.run.clone(),
        packages: Vec::new(),
        residents: Residents::default(),
    }
}

/// Environment of a package's modules: that of the agent's programs, narrowed to the access granted
/// to the package.
fn narrowed(
    own: &Surroundings,
    modules: &ModuleSandbox,
    assignment: &AgentAssignment,
) -> Surroundings {
    let caller = modules.caller(&assignment.agent.name).to_string();
    let egress = assignment
        .package_sockets
        .get(&caller)
        .map(PathBuf::as_path);
    let mut task = own.task.clone();
    if let Some(task) = &mut task {
        task.secrets
            .retain(|name, _| modules.secrets.contains(name));
    }
    Surroundings {
        task,
        allowed: allowed_by(&modules.sandbox, egress, assignment),
        run: None,
        packages: modules.packages.clone(),
        work_dir: own_work_dir(assignment),
        may_work_in_project: false,
        ..own.clone()
    }
}
