//! Starts tool supervisors and reads their output.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::BytesMut;
use goondan_confinement::{Denials, ProgramRights, denial_of_packages};
use goondan_protocol::definition::SwarmView;
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::sandbox::{Level, SandboxPath};
use goondan_protocol::task::AssignedTask;
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::capture::Capture;
use super::fault::ToolFault;
use super::residents::Residents;
use super::tool_supervisor::{NOT_CONFINED, NOT_CONFINED_WORDS};
use crate::tool_call::ToolOutcome;

/// Prefix of the variables that goondan sets for commands; inherited variables with this prefix are
/// removed.
const OWN_PREFIX: &str = "GOONDAN_";

/// Error code of a call that started nothing because its sandbox could not be created.
const NO_SANDBOX: &str = "E_SANDBOX";

/// Advice for agents of the older contract that no person has allowed to change the project.
pub(super) const PROJECT_ADVICE: &str =
    "a person can allow it for all agents of the project: `gdn workspace permission allow project`";

/// Words of the explanation that a path can be read but not changed.
const READ_ONLY: &str = "may only be read";

/// Additional environment of module hosts. It stops runtimes from searching for packages in their
/// start directory and from running cached code instead of a module.
const HOST_ENVIRONMENT: [(&str, &str); 4] = [
    ("BUN_RUNTIME_TRANSPILER_CACHE_PATH", "0"),
    ("DENO_NO_PACKAGE_JSON", "1"),
    ("DENO_NO_UPDATE_CHECK", "1"),
    ("NODE_DISABLE_COMPILE_CACHE", "1"),
];

/// Time for a tool supervisor to end its process tree before it is killed itself.
pub(crate) const SUPERVISOR_GRACE: Duration = Duration::from_secs(6);
/// Time for the rest of the output after the supervisor has ended. Every process that could hold
/// the pipes open is dead by then, unless the supervisor itself was killed.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes per read of a pipe.
const READ_BYTES: usize = 16 * 1024;

/// Environment of every process that tools start.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// Program that wraps each command ([`super::tool_supervisor`]).
    pub(crate) supervisor: PathBuf,
    pub(crate) cwd: PathBuf,
    /// The directory tools may write to.
    pub(crate) work_dir: PathBuf,
    pub(crate) project_root: PathBuf,
    /// True if a person can allow programs to work in the project.
    pub(crate) may_work_in_project: bool,
    pub(crate) instance_key: InstanceKey,
    pub(crate) agent_name: AgentName,
    /// The swarm, under the older contract.
    pub(crate) swarm: Option<SwarmView>,
    /// Task of the agent, if it works for one, with the secrets provided for it.
    pub(crate) task: Option<AssignedTask>,
    pub(crate) allowed: ProgramRights,
    /// Directory of the run's sandboxes, which a coordinator's programs may read once it exists.
    pub(crate) run: Option<PathBuf>,
    /// The packages of the modules; empty for the project's own.
    pub(crate) packages: Vec<String>,
    /// Tool supervisors that outlive a call.
    pub(crate) residents: Residents,
}

impl Surroundings {
    /// Access of a program that is started now.
    fn allowed_now(&self) -> Cow<'_, ProgramRights> {
        let policy = &self.allowed.policy;
        let is_confined = policy.require != Level::Off;
        let run = self.run.as_ref().filter(|run| is_confined && run.is_dir());
        let Some(run) = run.and_then(|run| SandboxPath::try_from(run.clone()).ok()) else {
            return Cow::Borrowed(&self.allowed);
        };
        let mut allowed = self.allowed.clone();
        allowed.policy.read.push(run);
        Cow::Owned(allowed)
    }
}

/// A tool supervisor where the agent works, with the environment of tools. The caller adds the
/// supervised program and the standard input.
pub(crate) fn supervisor_in(surroundings: &Surroundings) -> Command {
    supervisor_at(surroundings, &surroundings.cwd)
}

/// Creates a tool supervisor for a host of modules, with the same environment. Runtimes read
/// configuration files from their start directory, `HOME` and their caches, and agents and packages
/// can write to the work directory. A host therefore starts in another directory, has its own
/// `HOME`, and keeps no cache.
pub(crate) fn host_supervisor(surroundings: &Surroundings) -> Command {
    let mut supervisor = supervisor_at(surroundings, working_directory(ProcessPurpose::Module));
    supervisor.envs(HOST_ENVIRONMENT);
    if let Some(home) = host_home(surroundings.allowed.policy.require) {
        supervisor.env("HOME", home);
    }
    supervisor
}

/// Home directory of a host of modules: an empty in-memory one, or one that no program of an agent
/// can write. Without a sandbox it is the user's, because all files of the user are accessible
/// anyway.
fn host_home(level: Level) -> Option<&'static str> {
    match level {
        Level::Full => Some("/run/home"),
        Level::Landlock | Level::Seatbelt => Some("/var/empty"),
        Level::Off => None,
    }
}

fn supervisor_at(surroundings: &Surroundings, cwd: &Path) -> Command {
    // A key may hold any character, but an environment variable cannot hold NUL.
    let instance_key = surroundings.instance_key.as_str().replace('\0', "\u{fffd}");
    let allowed = surroundings.allowed_now();
    let mut supervisor = confined_supervisor(&surroundings.supervisor, cwd, &allowed);
    supervisor
        .env("GOONDAN_WORK_DIR", &surroundings.work_dir)
        .env("GOONDAN_PROJECT_ROOT", &surroundings.project_root)
        .env("GOONDAN_INSTANCE_KEY", instance_key);
    if let Some(task) = &surroundings.task {
        supervisor
            .env("GOONDAN_TASK_ID", task.task_id.as_str())
            .envs(&task.secrets);
    }
    supervisor
}

/// Creates a tool supervisor with the inherited environment, without goondan's own variables. `cwd`
/// is a result of [`working_directory`](goondan_protocol::working_directory::working_directory).
pub(crate) fn confined_supervisor(
    supervisor: &Path,
    cwd: &Path,
    allowed: &ProgramRights,
) -> Command {
    let mut supervisor = Command::new(supervisor);
    supervisor
        .current_dir(cwd)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .args(allowed.in_words());
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(OWN_PREFIX.as_bytes()) {
            supervisor.env_remove(name);
        }
    }
    for (name, value) in &allowed.environment {
        match value {
            Some(value) => supervisor.env(name, value),
            None => supervisor.env_remove(name),
        };
    }
    supervisor
}

/// Adds to the outcome of a failed program the accesses that the sandbox may have denied.
pub(crate) fn explained(outcome: ToolOutcome, surroundings: &Surroundings) -> ToolOutcome {
    let has_failed = outcome.is_error || outcome.has_failed;
    let denial = has_failed
        .then(|| Denials::of_agent(&surroundings.allowed.policy).explain(&outcome.text))
        .flatten();
    match denial {
        None => outcome,
        Some(denial) => {
            let refusal = Some(denial.trim_end().to_owned());
            let mut text = outcome.text;
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&denial);
            if surroundings.may_work_in_project && denial.contains(READ_ONLY) {
                text.push_str(&format!("[{PROJECT_ADVICE}]\n"));
            }
            if let Some(of_package) = denial_of_packages(&surroundings.packages) {
                text.push_str(&of_package);
            }
            ToolOutcome {
                text,
                refusal,
                ..outcome
            }
        }
    }
}

/// True if the result reports that nothing was started because the sandbox could not be created.
pub(crate) fn has_no_sandbox(result: &str) -> bool {
    result.starts_with(NO_SANDBOX)
}

/// Error of a tool supervisor that exited with `code` because it could not create the sandbox;
/// `None` for any other exit.
pub(crate) fn not_confined(code: Option<i32>, said: &Capture) -> Option<ToolFault> {
    if code != Some(NOT_CONFINED.into()) {
        return None;
    }
    let stderr = said.beginning_of_stderr();
    let reason = stderr.strip_prefix(NOT_CONFINED_WORDS)?;
    Some(ToolFault::new(NO_SANDBOX, reason.trim_end()))
}

/// One output stream of the supervisor.
#[derive(Debug)]
pub(crate) struct Pipe<R> {
    source: Option<R>,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    pub(crate) fn new(source: Option<R>) -> Self {
        Self {
            source,
            buffer: BytesMut::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// Reads the next bytes; empty at the end. Cancel-safe.
    pub(crate) async fn read(&mut self) -> BytesMut {
        let Some(source) = &mut self.source else {
            return BytesMut::new();
        };
        self.buffer.reserve(READ_BYTES);
        // An unreadable stream counts as ended.
        if source.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
            self.source = None;
        }
        self.buffer.split()
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::Stream;
    use super::super::rooted_files::Root;
    use super::*;

    #[test]
    fn sec_6_sandbox_setup_failure_differs_from_command_failure() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let said = |text: &str| {
            let mut capture = Capture::new("c");
            capture.push(&root, Stream::Stderr, text.as_bytes());
            capture
        };
        let reason = format!("{NOT_CONFINED_WORDS}this kernel has none\n");
        let fault = not_confined(Some(125), &said(&reason)).unwrap();
        assert_eq!(fault.to_string(), "E_SANDBOX: this kernel has none");
        assert_eq!(not_confined(Some(1), &said(&reason)), None);
        assert_eq!(not_confined(Some(125), &said("no such container")), None);
    }
}
