//! The process that wraps a tool's program, so that no process of the tool outlives its purpose.
//!
//! `agent → supervisor → bash → …`. The supervisor is this crate's own binary with one of five
//! arguments:
//!
//! | argument | supervised program | standard input of the supervisor |
//! | --- | --- | --- |
//! | [`COMMAND`] | one bash command | a pipe without data |
//! | [`SESSION`] | one shell that runs command after command (`session`) | a socket: commands in, exit codes out |
//! | [`PROGRAM`] | a program within limits (`program`) | a pipe that feeds the program's standard input |
//! | [`HOST`] | the same, with a channel of its own instead of its standard streams | a pipe that feeds the channel |
//! | [`TASK`] | the program that works for a task (`task`) | a socket: orders in, reports out |
//!
//! It adopts every orphan of the process tree beneath it and ends the entire tree when
//!
//! * the supervised program has ended: its background processes end with it;
//! * its standard input, which the agent holds, is closed: the call was canceled or timed out, or
//!   the agent is gone, even by `SIGKILL`.
//!
//! A sandbox policy ([`Sandbox`]) can precede these arguments. The supervisor enters that sandbox
//! before it does anything else. If it fails, it starts nothing, prints the reason to its standard
//! error and exits with 125.
//!
//! It exits with the exit code of the supervised program, or with 128 plus the signal's number,
//! like a shell.
//!
//! Only the supervisor knows which processes belong to which call: an agent that runs several
//! commands at once cannot attribute their orphans. It leads its own process group, so that a
//! signal to the agent's group, or a command that signals its own group, does not kill the
//! supervisor before the tree.

mod limits;
mod program;
pub(super) mod session;
pub(crate) mod task;
mod termination;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::process::Stdio;

use goondan_confinement::{Sandbox, SandboxEntry, out_of_words};
use goondan_protocol::process_limits::ProcessLimits;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

pub(super) use limits::in_words;

use super::orphan_reaper;
use program::ProgramChannel;
use termination::{code_at_end, end_group};

/// The argument before a bash command.
pub const COMMAND: &str = "--enclose";
/// The argument that makes the binary supervise a shell.
pub const SESSION: &str = "--enclose-session";
/// The argument before encoded limits, a program and its arguments.
pub const PROGRAM: &str = "--enclose-program";
/// The same for a program that speaks with the agent over its own channel, so that programs which it
/// starts cannot write into the protocol or read from it.
pub const HOST: &str = "--enclose-host";

/// The argument that makes the binary supervise the program of a task.
pub const TASK: &str = "--enclose-task";

/// Exit code of a command that could not be started, as in a shell.
const NOT_STARTED: u8 = 127;
/// Exit code if the sandbox could not be created and nothing was started. Other wrapper programs
/// use it too.
pub(crate) const NOT_CONFINED: u8 = 125;
/// Start of standard error in that case. A command that imitates both deceives only its own caller.
pub(crate) const NOT_CONFINED_WORDS: &str = "goondan: nothing was started: ";

/// A tool supervisor's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervision {
    sandbox: Option<Sandbox>,
    supervised: SupervisedProgram,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SupervisedProgram {
    Command(OsString),
    /// A shell that runs command after command.
    Session,
    Task,
    /// A program with its arguments; the limits apply to each of its processes.
    Program(ProcessLimits, Vec<OsString>, ProgramChannel),
}

impl Supervision {
    /// Parses the binary's arguments; `None` if they do not request a supervisor.
    #[must_use]
    pub fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        let (sandbox, arguments) = out_of_words(arguments);
        Some(Self {
            sandbox,
            supervised: SupervisedProgram::from_arguments(arguments)?,
        })
    }
}

impl SupervisedProgram {
    fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        match arguments {
            [flag, command] if flag == COMMAND => Some(Self::Command(command.clone())),
            [flag] if flag == SESSION => Some(Self::Session),
            [flag] if flag == TASK => Some(Self::Task),
            [flag, words @ ..] => {
                let channel = match flag.to_str()? {
                    PROGRAM => ProgramChannel::StandardStreams,
                    HOST => ProgramChannel::Own,
                    _ => return None,
                };
                let (limits, program) = limits::out_of_words(words)?;
                (!program.is_empty()).then(|| Self::Program(limits, program.to_vec(), channel))
            }
            _ => None,
        }
    }
}

/// Enters the sandbox, supervises the program until it ends, and returns the exit code. Must be
/// called before a second thread exists.
///
/// # Errors
///
/// If the process cannot be set up.
pub fn run(supervision: &Supervision) -> std::io::Result<u8> {
    match supervision.sandbox.as_ref().map(Sandbox::enter) {
        None | Some(Ok(SandboxEntry::Inside)) => {}
        Some(Ok(SandboxEntry::Ended(status))) => return Ok(code_at_end(Some(status))),
        Some(Err(error)) => {
            tell(&format!("{NOT_CONFINED_WORDS}{error}\n"));
            return Ok(NOT_CONFINED);
        }
    }
    let supervised = &supervision.supervised;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        orphan_reaper::adopt_orphans()?;
        ignore_signals()?;
        match supervised {
            SupervisedProgram::Command(command) => supervise(command).await,
            SupervisedProgram::Session => session::supervise().await,
            SupervisedProgram::Task => task::supervise().await,
            SupervisedProgram::Program(limits, program, channel) => {
                limits::apply(limits)?;
                program::supervise(program, *channel).await
            }
        }
    });
    orphan_reaper::end_all();
    Ok(code.unwrap_or_else(|error| {
        let what = match supervised {
            SupervisedProgram::Command(_) | SupervisedProgram::Session => "bash".into(),
            SupervisedProgram::Task => "the program of a task".into(),
            SupervisedProgram::Program(_, program, _) => {
                program.first().cloned().unwrap_or_default()
            }
        };
        let what = what.display();
        tell(&format!("goondan: cannot run {what}: {error}\n"));
        NOT_STARTED
    }))
}

/// The supervised program may signal its parent, and the supervisor must survive to end the tree.
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

async fn supervise(command: &OsString) -> std::io::Result<u8> {
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

fn tell(text: &str) {
    use std::io::Write as _;
    // The agent that reads this may be gone.
    drop(std::io::stderr().write_all(text.as_bytes()));
}
