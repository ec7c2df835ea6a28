//! Programs started by this process: none outlives it, and none inherits its environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use goondan_confinement::{ProgramContext, ProgramRights, find_program};
use goondan_protocol::proxy::{CA_VARIABLES, PROXY_VARIABLES};
use goondan_protocol::sandbox::{Level, SandboxPath, SandboxPolicy};
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::command_line::BECOME;
use crate::limits::NOTE_BYTES_MAX;
use crate::sandboxed_program::{CANNOT_BE_STARTED, EXIT_CANNOT_BECOME};

/// Environment variables of this process that programs inherit, with those of the network, which
/// [`ProgramRights`] removes from programs without one.
const PASSED_ON: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Access of a connection's programs, and the search path for programs.
pub(crate) fn allowed(
    project_root: &Path,
    sandbox: &SandboxPolicy,
    egress: Option<&Path>,
) -> ProgramRights {
    let ground = ProgramContext {
        project: project_root,
        work_dir: None,
        temporary: None,
        egress,
    };
    ProgramRights::of(sandbox, &ground)
}

/// Creates the command of a connection's program, in its sandbox and with piped standard streams.
/// The program ends with this process, however this process ends. The first word is the program.
///
/// # Errors
///
/// If the system does not report the path of this process's own executable.
pub(crate) fn command(
    words: &[OsString],
    project_root: &Path,
    mut allowed: ProgramRights,
) -> std::io::Result<Command> {
    if allowed.policy.require != Level::Off {
        let path = allowed.path();
        let program = words
            .first()
            .and_then(|word| file_of(word, project_root, &path));
        allowed.policy.read.extend(program);
    }
    let passed_on = PASSED_ON
        .iter()
        .chain(&PROXY_VARIABLES)
        .chain(&CA_VARIABLES)
        .filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut command = Command::new(own_program()?);
    command
        .args(allowed.in_words())
        .arg(BECOME)
        .args(words)
        .current_dir(working_directory(ProcessPurpose::Connection {
            project_root,
        }))
        .env_clear()
        .envs(passed_on)
        // Nothing writes into the project at run time (`ROOT-2`).
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for (name, value) in &allowed.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Ok(command)
}

/// Executable of this process, even if its file has been replaced or is hidden by the sandbox.
pub(crate) fn own_program() -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}

/// Resolves the file of a configured program.
pub(crate) fn file_of(word: &OsStr, project_root: &Path, path: &OsStr) -> Option<SandboxPath> {
    let file = match Path::new(word).components().count() {
        1 => find_program(word.to_str()?, path)?,
        _ => project_root.join(word),
    };
    std::fs::canonicalize(file).ok()?.try_into().ok()
}

/// Process group of a program started by [`command`]. Dropping it kills the remaining processes.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group of `child`.
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }

    /// Kills the program and every process it started.
    pub(crate) fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // It may have ended already.
            killpg(group, Signal::SIGKILL).ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Converts a command line to system strings.
pub(crate) fn words(command: &[String]) -> Vec<OsString> {
    command.iter().map(OsString::from).collect()
}

/// Reason that a program was never started, if a line of its stderr says it.
pub(crate) fn not_started_line(line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line).ok()?;
    let is_reason = text.starts_with(CANNOT_BE_STARTED);
    is_reason.then(|| text.chars().take(NOTE_BYTES_MAX).collect())
}

/// True if a program that ended so was never started.
pub(crate) fn was_not_started(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(EXIT_CANNOT_BECOME))
}

/// Exit status of a program, as text to follow its name.
pub(crate) fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
