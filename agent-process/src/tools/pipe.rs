//! Starting tool supervisors and reading their outputs.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::BytesMut;
use goondan_confinement::{Allowed, Denials, denial_of_packages};
use goondan_protocol::definition::SwarmView;
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::sandbox::{Level, SandboxPath};
use goondan_protocol::task::AssignedTask;
use goondan_protocol::working_directory::{Purpose, working_directory};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::capture::Capture;
use super::fault::ToolFault;
use super::residents::Residents;
use super::tool_supervisor::{NOT_CONFINED, NOT_CONFINED_WORDS};
use crate::tool_call::ToolOutcome;

/// What the environment of a command may have under goondan's own prefix, and nothing else.
const OWN_PREFIX: &str = "GOONDAN_";

/// The code of a call that started nothing, since its sandbox could not be made.
const NO_SANDBOX: &str = "E_SANDBOX";

/// What hosts of modules have in their environment beside what commands have: runtimes look for no package of where they
/// start, and do not run what a cache holds in the place of a module.
const HOST_ENVIRONMENT: [(&str, &str); 4] = [
    ("BUN_RUNTIME_TRANSPILER_CACHE_PATH", "0"),
    ("DENO_NO_PACKAGE_JSON", "1"),
    ("DENO_NO_UPDATE_CHECK", "1"),
    ("NODE_DISABLE_COMPILE_CACHE", "1"),
];

/// Time a tool supervisor has to end its tree before it is killed itself.
pub(crate) const SUPERVISOR_GRACE: Duration = Duration::from_secs(6);
/// Time for the rest of the output once the supervisor has ended. Everybody who could hold the pipes
/// open is dead by then; this bounds the case that the supervisor was killed.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes read from a pipe at once.
const READ_BYTES: usize = 16 * 1024;

/// What everything that tools start is started with.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// The program that stands around each command ([`super::tool_supervisor`]).
    pub(crate) supervisor: PathBuf,
    /// The directory that commands start in.
    pub(crate) cwd: PathBuf,
    /// The directory tools may write to.
    pub(crate) work_dir: PathBuf,
    /// The project.
    pub(crate) project_root: PathBuf,
    /// The conversation.
    pub(crate) instance_key: InstanceKey,
    /// The agent.
    pub(crate) agent_name: AgentName,
    /// The swarm, under the older contract.
    pub(crate) swarm: Option<SwarmView>,
    /// The task it works for, if it does, with the secrets that were provided for that.
    pub(crate) task: Option<AssignedTask>,
    /// What of the machine they may touch.
    pub(crate) allowed: Allowed,
    /// What they may read beside that once it exists: the sandboxes of the agents that this one coordinates.
    pub(crate) run: Option<PathBuf>,
    /// The packages whose modules they are; none for what is the project's own.
    pub(crate) packages: Vec<String>,
    /// Tool supervisors that outlive a call.
    pub(crate) residents: Residents,
}

impl Surroundings {
    /// What a program may touch that is started now.
    fn allowed_now(&self) -> Cow<'_, Allowed> {
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

/// A tool supervisor where the agent works, with the environment of tools. What it supervises and where its
/// standard input comes from is the caller's.
pub(crate) fn supervisor_in(surroundings: &Surroundings) -> Command {
    supervisor_at(surroundings, &surroundings.cwd)
}

/// A tool supervisor for a host of modules, with the same environment. Runtimes take files for their configuration that
/// lie where they start, in `HOME`, and in their caches, and agents and packages write in the work directory: a host
/// starts elsewhere, has a `HOME` of its own, and keeps no cache.
pub(crate) fn host_supervisor(surroundings: &Surroundings) -> Command {
    let mut supervisor = supervisor_at(surroundings, working_directory(Purpose::Module));
    supervisor.envs(HOST_ENVIRONMENT);
    if let Some(home) = host_home(surroundings.allowed.policy.require) {
        supervisor.env("HOME", home);
    }
    supervisor
}

/// The home directory of a host of modules: an empty one in its own memory, or one that no program beneath an agent
/// writes. Without a sandbox it is the user's, as everything of the user's is open then.
fn host_home(level: Level) -> Option<&'static str> {
    match level {
        Level::Full => Some("/run/home"),
        Level::Landlock | Level::Seatbelt => Some("/var/empty"),
        Level::Off => None,
    }
}

fn supervisor_at(surroundings: &Surroundings, cwd: &Path) -> Command {
    // A key may hold any character, an environment variable may not hold a zero.
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

/// A tool supervisor with the environment of tools, but for goondan's own variables. `cwd` is what
/// [`working_directory`](goondan_protocol::working_directory::working_directory) says.
pub(crate) fn confined_supervisor(supervisor: &Path, cwd: &Path, allowed: &Allowed) -> Command {
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

/// The outcome of a program that has failed, with what the sandbox may have denied it.
pub(crate) fn explained(outcome: ToolOutcome, surroundings: &Surroundings) -> ToolOutcome {
    let has_failed = outcome.is_error || outcome.has_failed;
    let denial = has_failed
        .then(|| Denials::of_agent(&surroundings.allowed.policy).explain(&outcome.text))
        .flatten();
    match denial {
        None => outcome,
        Some(denial) => {
            let mut text = outcome.text;
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&denial);
            if let Some(of_package) = denial_of_packages(&surroundings.packages) {
                text.push_str(&of_package);
            }
            ToolOutcome { text, ..outcome }
        }
    }
}

/// Whether a result says that nothing was started, since the sandbox could not be made.
pub(crate) fn has_no_sandbox(result: &str) -> bool {
    result.starts_with(NO_SANDBOX)
}

/// What a tool supervisor said that has ended with `code`, since it could not make the sandbox; none if it
/// ended otherwise.
pub(crate) fn not_confined(code: Option<i32>, said: &Capture) -> Option<ToolFault> {
    if code != Some(NOT_CONFINED.into()) {
        return None;
    }
    let stderr = said.beginning_of_stderr();
    let reason = stderr.strip_prefix(NOT_CONFINED_WORDS)?;
    Some(ToolFault::new(NO_SANDBOX, reason.trim_end()))
}

/// One output of the supervisor, until its end.
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

    /// The next bytes; none at the end. Cancel-safe.
    pub(crate) async fn read(&mut self) -> BytesMut {
        let Some(source) = &mut self.source else {
            return BytesMut::new();
        };
        self.buffer.reserve(READ_BYTES);
        // An output that cannot be read any further has ended.
        if source.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
            self.source = None;
        }
        self.buffer.split()
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::Stream;
    use super::super::rooted::Root;
    use super::*;

    #[test]
    fn sec_6_a_sandbox_that_cannot_be_made_is_told_apart_from_a_command_that_failed() {
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
