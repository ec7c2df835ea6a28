//! The process that turns into a connection's program, within its sandbox (`SEC-3`, `SEC-6`).
//!
//! Without a sandbox, and at the level `landlock`, it executes the program in place. At the level
//! `full`, one process creates the namespaces and waits; the first process inside starts the
//! program and reaps orphans, as every init process must.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, ExitStatus};

use goondan_confinement::{Sandbox, SandboxEntry};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

use crate::parent::die_with_parent;

/// Exit code of a program that could not be started, as in a shell.
pub(crate) const EXIT_CANNOT_BECOME: u8 = 127;

/// Prefix of the line on stderr with the reason.
pub(crate) const CANNOT_BE_STARTED: &str = "cannot be started: ";

/// Offset that a shell adds to the number of the signal that ended a program.
const SIGNAL_BASE: i32 = 128;

/// The process that adopts orphans.
const INIT: u32 = 1;

/// Executes another program, or supervises it until it ends. The process is killed when its parent,
/// a connector process, ends (`SUP-7`), because the parent-death signal survives `exec`. Must be
/// called while the process is single-threaded.
pub(crate) fn become_program(sandbox: Option<&Sandbox>, command: &[OsString]) -> ExitCode {
    become_it(sandbox, command).unwrap_or_else(|why| {
        let text = format!("{CANNOT_BE_STARTED}{why}\n");
        drop(std::io::stderr().write_all(text.as_bytes()));
        ExitCode::from(EXIT_CANNOT_BECOME)
    })
}

fn become_it(sandbox: Option<&Sandbox>, command: &[OsString]) -> Result<ExitCode, String> {
    let told = |error: std::io::Error| error.to_string();
    let is_first_process = sandbox.is_some_and(Sandbox::is_first_process);
    if !is_first_process {
        die_with_parent().map_err(told)?;
        // A parent that ended before that call causes no signal.
        if std::os::unix::process::parent_id() == INIT {
            return Err(told(std::io::ErrorKind::NotConnected.into()));
        }
    }
    match sandbox.map(Sandbox::enter) {
        None | Some(Ok(SandboxEntry::Inside)) => {}
        Some(Ok(SandboxEntry::Ended(status))) => return Ok(code_of(status)),
        Some(Err(error)) => return Err(error.to_string()),
    }
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| told(std::io::ErrorKind::InvalidInput.into()))?;
    let mut program = Command::new(program);
    program.args(arguments);
    if !is_first_process {
        return Err(told(program.exec()));
    }
    let child = program.spawn().map_err(told)?;
    let child = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    let status = wait_as_first_process(Pid::from_raw(child)).map_err(|errno| errno.to_string())?;
    // All other processes in the namespace end with this one.
    Ok(code_of(status))
}

/// Reaps every child until `child` has ended.
fn wait_as_first_process(child: Pid) -> nix::Result<ExitStatus> {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                return Ok(ExitStatus::from_raw(code << 8));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                return Ok(ExitStatus::from_raw(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn code_of(status: ExitStatus) -> ExitCode {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(number)) => SIGNAL_BASE.saturating_add(number),
        (None, None) => i32::from(u8::MAX),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
