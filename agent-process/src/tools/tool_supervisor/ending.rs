//! The end of what a tool supervisor stands around: its process group and its exit code.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// What a shell adds to the number of the signal that ended a command.
const SIGNAL_BASE: i32 = 128;
/// The number of `SIGKILL`, which ends a command that is given up.
const SIGKILL_NUMBER: i32 = 9;

/// The exit code of what has ended, or was given up.
pub(super) fn code_at_end(status: Option<ExitStatus>) -> u8 {
    status.map_or_else(|| code_of_signal(SIGKILL_NUMBER), code_of)
}

/// Ends the command's group: all of it where orphans cannot be adopted, most of it at once where they
/// can.
pub(super) fn end_group(group: Option<u32>) {
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
