//! Sets up the directories of an agent's tools, and the access that confinement permits to their
//! programs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use goondan_confinement::{ProgramContext, ProgramRights};
use goondan_protocol::definition::{AgentAssignment, ModuleSandbox};
use goondan_protocol::sandbox::{Level, SandboxPolicy};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};

use super::host::Hosts;
use super::pipe::Surroundings;
use super::places::{Access, LaterRoot, ToolRoots};
use super::residents::Residents;
use super::rooted::Root;
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
    allowed_by(&assignment.agent.sandbox, egress, assignment)
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
    allowed_by(&asked, None, assignment).policy
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

/// What its tools are started for.
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
    let path = allowed.path();
    let surroundings = surroundings_of(assignment, supervisor, work_dir, allowed);
    let within = |modules: &ModuleSandbox| Arc::new(narrowed(&surroundings, modules, assignment));
    let of_packages = assignment.agent.package_sandboxes.iter();
    let of_packages = of_packages.map(|it| (it.clone(), within(it))).collect();
    let of_extensions = assignment.agent.extension_sandbox.as_deref().map(within);
    Ok(ToolRoots {
        work,
        project: open("project root", &assignment.project_root)?,
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

/// Environment of every process that tools start, except modules of packages.
fn surroundings_of(
    assignment: &AgentAssignment,
    supervisor: PathBuf,
    work_dir: &Path,
    allowed: ProgramRights,
) -> Surroundings {
    Surroundings {
        supervisor,
        cwd: working_directory(purpose_of(assignment, work_dir)).to_owned(),
        work_dir: work_dir.to_owned(),
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
        ..own.clone()
    }
}
