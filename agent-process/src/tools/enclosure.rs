//! The process that stands around one command, so that nothing the command starts outlives it.
//!
//! `agent → enclosure → bash → …`. The enclosure is this crate's own binary under
//! [`ARGUMENT`]. It adopts every orphan of the command's tree and ends the whole tree when
//!
//! * the command itself has ended: what it left in the background goes with it;
//! * its standard input, a pipe the agent holds, is closed: the call was given up or timed out, or the
//!   agent is gone, even by `SIGKILL`.
//!
//! It exits with the command's exit code, or with 128 and the signal's number as a shell does.
//!
//! Only the enclosure knows which processes belong to which call: an agent that runs several commands
//! at once could not tell their orphans apart. It leads a process group of its own, so that a signal
//! to the agent's group, or a command that signals its own group, does not take it away first.

use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::descendants;

/// The first argument that makes the binary an enclosure; the command follows.
pub const ARGUMENT: &str = "--enclose";

/// Exit code of a command that could not be started, as in a shell.
const NOT_STARTED: u8 = 127;
/// What a shell adds to the number of the signal that ended a command.
const SIGNAL_BASE: i32 = 128;
/// The number of `SIGKILL`, which ends a command that is given up.
const SIGKILL_NUMBER: i32 = 9;

/// Runs `command` with bash and returns the exit code to end with.
///
/// # Errors
///
/// If the process cannot be set up or bash cannot be started.
pub fn run(command: &str) -> std::io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(enclose(command));
    descendants::end_all();
    Ok(code.unwrap_or_else(|error| {
        tell(&format!("goondan: cannot run bash: {error}\n"));
        NOT_STARTED
    }))
}

async fn enclose(command: &str) -> std::io::Result<u8> {
    descendants::adopt_orphans()?;
    // A command may signal its parent; the tree is to be ended all the same.
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        drop(signal(kind)?);
    }
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = pipe::Receiver::from_owned_fd(control)?;
    let mut bash = Command::new("bash")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()?;
    let group = bash.id();
    let status = tokio::select! {
        status = bash.wait() => Some(status?),
        _ = control.read_u8() => None,
    };
    end_group(group);
    Ok(status.map_or_else(|| code_of_signal(SIGKILL_NUMBER), code_of))
}

/// Ends the command's group: all of it where orphans cannot be adopted, most of it at once where they
/// can.
fn end_group(group: Option<u32>) {
    use nix::sys::signal::{Signal, killpg};
    if let Some(group) = group.and_then(|pid| i32::try_from(pid).ok()) {
        // Nobody may be left in it.
        killpg(nix::unistd::Pid::from_raw(group), Signal::SIGKILL).ok();
    }
}

fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(number)) => code_of_signal(number),
        (None, None) => u8::MAX,
    }
}

fn code_of_signal(number: i32) -> u8 {
    u8::try_from(SIGNAL_BASE.saturating_add(number)).unwrap_or(u8::MAX)
}

fn tell(text: &str) {
    use std::io::Write as _;
    // The agent that reads this may be gone.
    drop(std::io::stderr().write_all(text.as_bytes()));
}
