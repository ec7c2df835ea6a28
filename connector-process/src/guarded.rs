//! Programs that this process starts: none outlives it, and none sees its environment.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use goondan_protocol::working_directory::{Purpose, working_directory};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::command_line::BECOME;

/// Variables of this process's environment that a program gets too.
const PASSED_ON: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// A program of a connection, to be started with pipes for all that it reads and writes. It ends with
/// this process, however that ends.
///
/// # Errors
///
/// If the system does not tell where this program itself is.
pub(crate) fn command<A: AsRef<OsStr>>(
    program: impl IntoIterator<Item = A>,
    project_root: &Path,
) -> std::io::Result<Command> {
    let passed_on = PASSED_ON
        .iter()
        .filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(BECOME)
        .args(program)
        .current_dir(working_directory(Purpose::Connection { project_root }))
        .env_clear()
        .envs(passed_on)
        // Nothing at run time writes into the project (`ROOT-2`).
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// The process group of a program that was started by [`command`]. Dropping it kills whoever is left.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group of `child`.
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }

    /// Kills the program and whatever it started.
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

/// The words of a command line as the system takes them.
pub(crate) fn words(command: &[String]) -> impl Iterator<Item = OsString> {
    command.iter().map(OsString::from)
}

/// How a program ended, in words that follow its name.
pub(crate) fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended by itself with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
