//! Ends every process that descends from this one.
//!
//! A process group is not enough, because a command can leave it (`setsid`). This process therefore
//! makes itself the subreaper of its descendants: an orphan becomes its child however often it
//! forks, and "no children" means that no descendant is left.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Longest wait until killed processes are gone. Only a process stuck in the kernel takes longer.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two scans while some processes are still dying.
const PAUSE: Duration = Duration::from_millis(2);

/// Makes this process the parent of every orphan among its descendants.
pub(crate) fn adopt_orphans() -> nix::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Kills every descendant and waits until all are gone. No other code may wait for a child in the
/// meantime.
///
/// Returns false if some are left after the timeout.
pub(crate) fn end_all() -> bool {
    let started = Instant::now();
    loop {
        if !reap() {
            return true;
        }
        if started.elapsed() > END_TIMEOUT {
            return false;
        }
        for pid in descendants() {
            // It may have ended since it was listed.
            kill(pid, Signal::SIGKILL).ok();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reaps dead children. Returns false if this process has no children.
fn reap() -> bool {
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Err(Errno::ECHILD) => return false,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Kills every descendant except the `spared` children and their descendants, and waits until all
/// others are gone. No other code may wait for those in the meantime.
///
/// Returns false if some are left after the timeout.
pub(crate) fn end_all_but(spared: &[Pid]) -> bool {
    if spared.is_empty() {
        return end_all();
    }
    let started = Instant::now();
    loop {
        if children().is_some_and(|children| children.iter().all(|pid| spared.contains(pid))) {
            return true;
        }
        let left = all_beneath(Pid::this(), spared);
        if left.is_empty() {
            return true;
        }
        if started.elapsed() > END_TIMEOUT {
            return false;
        }
        for pid in left {
            kill(pid, Signal::SIGKILL).ok();
            // Only our own children can be reaped; orphans are re-parented to us first.
            waitpid(pid, Some(WaitPidFlag::WNOHANG)).ok();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reaps adopted orphans that have ended. `own` is the child that other code waits for.
pub(crate) fn reap_all_but(own: Option<Pid>) {
    for pid in children().unwrap_or_default() {
        if Some(pid) != own {
            waitpid(pid, Some(WaitPidFlag::WNOHANG)).ok();
        }
    }
}

fn descendants() -> Vec<Pid> {
    all_beneath(Pid::this(), &[])
}

/// Children of this process; `None` if the kernel does not list them.
#[cfg(target_os = "linux")]
fn children() -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let listed = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        let pids = listed.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| pid.parse().ok()).map(Pid::from_raw));
    }
    Some(found)
}

#[cfg(not(target_os = "linux"))]
fn children() -> Option<Vec<Pid>> {
    None
}

/// Descendants of a process except those in `spared` and their descendants; parents come before
/// their children.
pub(crate) fn all_beneath(ancestor: Pid, spared: &[Pid]) -> Vec<Pid> {
    let found = look_beneath(ancestor, spared);
    found.into_iter().map(|seen| seen.pid).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessSample {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// Its state from `/proc/<pid>/stat`.
    pub(crate) state: char,
    /// Processor time of the process and its ended children, in ticks of the kernel's clock.
    pub(crate) cpu_ticks: u64,
}

impl ProcessSample {
    /// True if it is stopped or has ended.
    pub(crate) fn is_still(&self) -> bool {
        matches!(self.state, 'T' | 't' | 'Z' | 'X')
    }

    /// True if it waits in the kernel, where only `SIGKILL` reaches it.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.state == 'D'
    }

    /// True if a signal has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == 'T'
    }
}

/// Snapshots of the descendants of a process except those in `spared` and their descendants;
/// parents come before their children.
#[cfg(target_os = "linux")]
pub(crate) fn look_beneath(ancestor: Pid, spared: &[Pid]) -> Vec<ProcessSample> {
    use std::collections::BTreeMap;

    let mut children = BTreeMap::<i32, Vec<ProcessSample>>::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // The file is missing if the process has ended since.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some(seen) = read_stat(Pid::from_raw(pid), &stat) {
            let parent = seen.parent.as_raw();
            children.entry(parent).or_default().push(seen);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![ancestor.as_raw()];
    while let Some(parent) = parents.pop() {
        let mut next = children.remove(&parent).unwrap_or_default();
        next.retain(|seen| !spared.contains(&seen.pid));
        found.extend(&next);
        parents.extend(next.iter().map(|seen| seen.pid.as_raw()));
    }
    found
}

/// On other systems, the process groups of the commands must suffice.
#[cfg(not(target_os = "linux"))]
pub(crate) fn look_beneath(_ancestor: Pid, _spared: &[Pid]) -> Vec<ProcessSample> {
    Vec::new()
}

/// Bytes that a process and its reaped children have written; `None` if it is gone or unreadable.
pub(crate) fn written_bytes_of(pid: Pid) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let written = io.lines().find_map(|line| line.strip_prefix("wchar:"))?;
    written.trim().parse().ok()
}

/// Start time of a process, in ticks of the kernel's clock since boot; `None` if it is gone.
pub(crate) fn start_time_of(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace();
    fields.nth(19)?.parse().ok()
}

/// Parses `/proc/<pid>/stat`. The fields follow the program's name, which is in parentheses and can
/// contain any character.
#[cfg(target_os = "linux")]
fn read_stat(pid: Pid, stat: &str) -> Option<ProcessSample> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().map(Pid::from_raw).ok()?;
    // User and kernel time of the process, then of the children it has waited for.
    let times = fields.skip(9).take(4);
    let cpu_ticks = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(ProcessSample {
        pid,
        parent,
        state,
        cpu_ticks,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_behind_any_program_name() {
        let read = |stat: &str| {
            let seen = read_stat(Pid::from_raw(7), stat)?;
            Some((seen.parent.as_raw(), seen.state, seen.cpu_ticks))
        };
        let rest = "7 7 0 -1 4194304 100 0 0 0 5 6 7 8 20";
        assert_eq!(read(&format!("7 (bash) S 3 {rest}")), Some((3, 'S', 26)));
        assert_eq!(
            read(&format!("7 (a) R 9 (b)) T 4 {rest}")),
            Some((4, 'T', 26))
        );
        assert_eq!(read("7 (bash"), None);
    }

    #[test]
    fn a_process_has_one_start_time() {
        let own = start_time_of(Pid::this());
        assert!(own.is_some_and(|ticks| ticks > 0));
        assert_eq!(own, start_time_of(Pid::this()));
    }
}
