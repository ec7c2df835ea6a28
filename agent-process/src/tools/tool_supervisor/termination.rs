//! The end of a supervised program: its process group and its exit code.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// Offset that a shell adds to the number of the signal that ended a command.
const SIGNAL_BASE: i32 = 128;
/// The number of `SIGKILL`, which ends a canceled command.
const SIGKILL_NUMBER: i32 = 9;

/// Exit code of a program that has ended or was canceled.
pub(super) fn code_at_end(status: Option<ExitStatus>) -> u8 {
    status.map_or_else(|| code_of_signal(SIGKILL_NUMBER), code_of)
}

/// Kills the command's process group. Where orphans cannot be adopted, this ends the whole command;
/// elsewhere it ends most processes immediately.
pub(super) fn end_group(group: Option<u32>) {
    use nix::sys::signal::{Signal, killpg};
    if let Some(group) = group.and_then(|pid| i32::try_from(pid).ok()) {
        // The group may be empty.
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
