//! Reaping of orphans (`SUP-7`): kills every descendant of the daemon that outlives its parent.
//!
//! The daemon is a child subreaper: a process whose parent exits is re-parented to the daemon, even
//! if it left its process group and session. Every child that the daemon did not start is such a
//! stray. On systems other than Linux, only process groups are killed. [`super::orphans`] handles
//! the leftovers of an earlier daemon.

use std::collections::HashSet;

/// Makes orphaned descendants of this process its children.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() -> nix::Result<()> {
    Ok(())
}

/// Maximum number of rounds of [`end_all`], because killing a stray can create new ones.
#[cfg(target_os = "linux")]
const ROUNDS_MAX: usize = 16;

/// Kills every adopted child and its descendants. Returns their number. `started` is called only if
/// there is a child to check.
#[cfg(target_os = "linux")]
pub(super) fn end_all(started: impl Fn() -> HashSet<u32>) -> usize {
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;

    let mut ended = 0;
    for _ in 0..ROUNDS_MAX {
        let mut strays = children_of_main_thread();
        if !strays.is_empty() {
            let started = started();
            strays.retain(|pid| !started.contains(pid));
        }
        if strays.is_empty() {
            break;
        }
        let strays = strays.into_iter().filter_map(|pid| i32::try_from(pid).ok());
        let strays = strays.map(nix::unistd::Pid::from_raw);
        for pid in strays {
            // A child that has already exited only has to be reaped.
            kill(pid, Signal::SIGKILL).ok();
            if waitpid(pid, None).is_ok() {
                ended += 1;
            }
        }
    }
    ended
}

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn end_all(_started: impl Fn() -> HashSet<u32>) -> usize {
    0
}

/// The children of the main thread. Adopted processes become children of the first living thread,
/// and started ones are children of the [`super::launcher`] thread, so this list is usually empty
/// even with thousands of children. A kernel without this list returns all children.
#[cfg(target_os = "linux")]
fn children_of_main_thread() -> Vec<u32> {
    let own = std::process::id();
    match std::fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(list) => list
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect(),
        Err(_) => children_of(own),
    }
}

/// The children of a process, from `/proc`.
#[cfg(target_os = "linux")]
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

/// The parent of a process; `None` if the process is gone.
#[cfg(target_os = "linux")]
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    parent_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn parent_of(_pid: u32) -> Option<u32> {
    None
}

/// Parses the parent's pid in `/proc/<pid>/stat`. The command name precedes it in parentheses and
/// may contain any character.
#[cfg(target_os = "linux")]
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        assert_eq!(parent_in("12 (a) R 9 (b) S 34 12 12 0"), Some(34));
        assert_eq!(parent_in("12 (sh) S 34 12"), Some(34));
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn children_are_found_in_proc() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        assert!(children_of(std::process::id()).contains(&child.id()));
        // Tests run in separate threads.
        assert!(!children_of_main_thread().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_process_is_a_child_of_its_parent() {
        let parent = std::os::unix::process::parent_id();
        assert!(children_of(parent).contains(&std::process::id()));
    }
}
