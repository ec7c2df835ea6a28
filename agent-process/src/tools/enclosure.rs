//! The process that stands around what a tool starts, so that nothing of it outlives its purpose.
//!
//! `agent → enclosure → bash → …`. The enclosure is this crate's own binary under one of three arguments:
//!
//! | argument | around | standard input of the enclosure |
//! | --- | --- | --- |
//! | [`COMMAND`] | one command of bash | a pipe that says nothing |
//! | [`SESSION`] | one shell that runs command after command (`session`) | a socket: commands in, exit codes out |
//! | [`PROGRAM`] | a program within limits (`program`) | a pipe that is the program's standard input |
//!
//! It adopts every orphan of the tree beneath it and ends the whole tree when
//!
//! * what it stands around has ended: what that left in the background goes with it;
//! * its standard input, which the agent holds, is closed: the call was given up or timed out, or the agent
//!   is gone, even by `SIGKILL`.
//!
//! It exits with the exit code of what it stands around, or with 128 and the signal's number as a shell
//! does.
//!
//! Only the enclosure knows which processes belong to which call: an agent that runs several commands
//! at once could not tell their orphans apart. It leads a process group of its own, so that a signal
//! to the agent's group, or a command that signals its own group, does not take it away first.

mod limits;
mod program;
pub(super) mod session;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use goondan_protocol::process_limits::ProcessLimits;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

pub(super) use limits::in_words;

use super::descendants;

/// The argument before a command of bash.
pub const COMMAND: &str = "--enclose";
/// The argument that makes the binary the enclosure of a shell.
pub const SESSION: &str = "--enclose-session";
/// The argument before limits in words, a program and its arguments.
pub const PROGRAM: &str = "--enclose-program";

/// Exit code of a command that could not be started, as in a shell.
const NOT_STARTED: u8 = 127;
/// What a shell adds to the number of the signal that ended a command.
const SIGNAL_BASE: i32 = 128;
/// The number of `SIGKILL`, which ends a command that is given up.
const SIGKILL_NUMBER: i32 = 9;

/// What an enclosure stands around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enclosed {
    /// A command of bash.
    Command(OsString),
    /// A shell for command after command.
    Session,
    /// A program with its arguments, each of whose processes has these limits.
    Program(ProcessLimits, Vec<OsString>),
}

impl Enclosed {
    /// Reads the binary's arguments; none if they ask for no enclosure.
    #[must_use]
    pub fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        match arguments {
            [flag, command] if flag == COMMAND => Some(Self::Command(command.clone())),
            [flag] if flag == SESSION => Some(Self::Session),
            [flag, words @ ..] if flag == PROGRAM => {
                let (limits, program) = limits::out_of_words(words)?;
                (!program.is_empty()).then(|| Self::Program(limits, program.to_vec()))
            }
            _ => None,
        }
    }
}

/// Stands around something until its end and returns the exit code to end with.
///
/// # Errors
///
/// If the process cannot be set up.
pub fn run(enclosed: &Enclosed) -> std::io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        descendants::adopt_orphans()?;
        ignore_signals()?;
        match enclosed {
            Enclosed::Command(command) => enclose(command).await,
            Enclosed::Session => session::enclose().await,
            Enclosed::Program(limits, program) => {
                limits::apply(limits)?;
                program::enclose(program).await
            }
        }
    });
    descendants::end_all();
    Ok(code.unwrap_or_else(|error| {
        let what = match enclosed {
            Enclosed::Command(_) | Enclosed::Session => "bash".into(),
            Enclosed::Program(_, program) => program.first().cloned().unwrap_or_default(),
        };
        let what = what.display();
        tell(&format!("goondan: cannot run {what}: {error}\n"));
        NOT_STARTED
    }))
}

/// What is enclosed may signal its parent; the tree is to be ended all the same.
fn ignore_signals() -> std::io::Result<()> {
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        drop(signal(kind)?);
    }
    Ok(())
}

async fn enclose(command: &OsString) -> std::io::Result<u8> {
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
    Ok(code_at_end(status))
}

/// The exit code of what has ended, or was given up.
fn code_at_end(status: Option<ExitStatus>) -> u8 {
    status.map_or_else(|| code_of_signal(SIGKILL_NUMBER), code_of)
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
