//! Test start of confined modules before their configuration takes effect (`BUNDLE-7`).
//!
//! The agent binary runs it in a separate process, which receives the tools on stdin and reports
//! problems on stdout. The process has no socket to the daemon and a time limit. Replays use the
//! same mechanism.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use goondan_bundles::limits::{GATE_MS, MODULE_LOAD_MS, MODULE_STAY_MS};
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ipc::START_MODULES;
use goondan_protocol::limits::MAX_MESSAGE_BYTES;
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::launcher::passed_on;

/// Starts the modules of an agent's tools once. Blocks for at most [`GATE_MS`].
///
/// # Errors
///
/// The problem with the modules.
pub(super) fn start_modules(
    agent_process: &Path,
    assignment: &AgentAssignment,
) -> Result<(), String> {
    let cannot = |error: &dyn std::fmt::Display| format!("failed to test modules: {error}");
    let assignment = serde_json::to_vec(assignment).map_err(|error| cannot(&error))?;
    let asked = PreflightRun {
        arguments: &[
            START_MODULES.to_owned(),
            MODULE_LOAD_MS.to_string(),
            MODULE_STAY_MS.to_string(),
        ],
        limit_ms: GATE_MS,
    };
    match ask(agent_process, &asked, assignment).map_err(|error| cannot(&error))? {
        None => Err(format!("its modules did not start within {GATE_MS} ms")),
        Some(said) => match serde_json::from_slice::<Vec<String>>(&said) {
            Ok(problems) if problems.is_empty() => Ok(()),
            Ok(problems) => Err(problems.join("\n")),
            Err(_) => Err(cannot(&"the process that starts them ended early")),
        },
    }
}

/// A run of the agent binary in a separate process.
pub(super) struct PreflightRun<'a> {
    pub(super) arguments: &'a [String],
    /// Time limit in milliseconds.
    pub(super) limit_ms: u64,
}

/// Runs the agent binary: sends `input` to its stdin and returns its stdout; `None` if it exceeds
/// the time limit. Kills the process group at the end. Blocks.
///
/// # Errors
///
/// The operating system's error.
pub(super) fn ask(
    agent_process: &Path,
    asked: &PreflightRun<'_>,
    input: Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    let mut child = launch(agent_process, asked.arguments)?;
    let said = converse(&mut child, input, asked.limit_ms);
    end(&mut child);
    said
}

fn launch(agent_process: &Path, arguments: &[String]) -> io::Result<Child> {
    Command::new(agent_process)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .env_clear()
        .envs(passed_on())
        .current_dir(working_directory(ProcessPurpose::Own))
        .spawn()
}

/// Sends the input to the process and returns its output; `None` if it exceeds the time limit.
fn converse(child: &mut Child, text: Vec<u8>, limit_ms: u64) -> io::Result<Option<Vec<u8>>> {
    let missing = || io::Error::other("it has no pipes");
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let (tell, told) = mpsc::channel();
    // Ends with the process, which is killed if it does not exit.
    thread::Builder::new()
        .name("module-gate".to_owned())
        .spawn(move || {
            let talk = || -> io::Result<Vec<u8>> {
                input.write_all(&text)?;
                drop(input);
                let mut said = Vec::new();
                let most = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX);
                output.take(most).read_to_end(&mut said)?;
                Ok(said)
            };
            // After the time limit, the receiver is gone.
            drop(tell.send(talk()));
        })?;
    told.recv_timeout(Duration::from_millis(limit_ms))
        .ok()
        .transpose()
}

/// Kills the rest of its process group. Its descendants end with it.
fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        killpg(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
    child.kill().ok();
    child.wait().ok();
}
