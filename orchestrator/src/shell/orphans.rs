//! Processes left by an earlier daemon of the same System Root (`SUP-7`).
//!
//! Children exit when their daemon does and take their tools with them; the daemon kills what they
//! leave. If all of them are killed at once, processes that left their process group survive.
//! Therefore all descendants of a daemon carry a mark, and the next daemon kills all processes with
//! its mark.
//!
//! The mark is the hard limit of the resident set (`RLIMIT_RSS`), which Linux has not enforced
//! since 2.4: a number too high to have an effect, derived from the directory of the System Root.
//! Each process inherits it, whatever it does to its environment, session, parents or descriptors,
//! and `/proc/<pid>/limits` shows it. Only a process that changes this limit (`ulimit -Hm`) or is
//! started by an external service (`systemd-run`, `at`, a container) does not carry it. An
//! unprivileged process can only lower a hard limit, and a lowered mark can be distinguished from
//! an original limit ([`Mark::on`]).

#[cfg(target_os = "linux")]
pub(super) use linux::{end_all, hard_limit_in, mark_descendants};

/// Mark of the descendants of one System Root's daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The hard limit that is the mark.
    limit: u64,
    /// The hard limit at the daemon's start.
    found: u64,
}

/// Result of checking a process for the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkCheck {
    /// The process was started below a daemon of the System Root.
    Yes,
    /// The limit is neither the mark nor a normal one, so it may be a lowered mark.
    Perhaps,
    /// The limit is the one from the daemon's start, or unlimited.
    Not,
}

#[cfg(target_os = "linux")]
impl Mark {
    /// Checks the hard limit of a process for the mark.
    pub(super) fn on(self, hard: u64) -> MarkCheck {
        if hard == self.limit {
            MarkCheck::Yes
        } else if hard == self.found || hard == nix::sys::resource::RLIM_INFINITY {
            MarkCheck::Not
        } else {
            MarkCheck::Perhaps
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(limit: u64, found: u64) -> Self {
        Self { limit, found }
    }
}

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn mark_descendants(_root: &std::path::Path) -> std::io::Result<Mark> {
    Ok(Mark { limit: 0, found: 0 })
}

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn end_all(_mark: Mark) -> usize {
    0
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::fs;
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::time::UNIX_EPOCH;

    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    use super::{Mark, MarkCheck};
    use crate::shell::orphans_of_agents::parent_of;

    /// Minimum value of a mark; no machine has this much memory.
    const MARK_MIN: u64 = 1 << 62;

    /// Maximum number of rounds of [`end_all`], because processes being killed can start others.
    const ROUNDS_MAX: usize = 16;

    /// Marks this process, and thereby all descendants that it starts from now on.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read, or if this process cannot set its limit because it is
    /// below a daemon of another System Root.
    pub(in crate::shell) fn mark_descendants(root: &Path) -> io::Result<Mark> {
        let limit = mark_of(&fs::metadata(root)?);
        let (soft, found) = getrlimit(Resource::RLIMIT_RSS)?;
        if found != limit {
            setrlimit(Resource::RLIMIT_RSS, soft.min(limit), limit)?;
        }
        Ok(Mark { limit, found })
    }

    /// Identifies the directory independently of its path, because other containers can have
    /// directories with the same path.
    fn mark_of(root: &fs::Metadata) -> u64 {
        let made = root.created().ok();
        let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made = made.map_or(0, |made| made.as_nanos());
        let text = format!("{} {} {made}", root.dev(), root.ino());
        // FNV-1a: stable across builds. Collision resistance is not needed.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        MARK_MIN | (hash & (MARK_MIN - 1))
    }

    /// Kills every process with this mark, except this process and its ancestors. Returns the
    /// number of killed processes. Must be called by the owner of the System Root before it starts
    /// any process, because all processes with the mark then belong to a dead daemon.
    pub(in crate::shell) fn end_all(mark: Mark) -> usize {
        let own = own_line();
        let mut ended = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let mut found_any = false;
            for pid in all_processes().filter(|pid| !own.contains(pid)) {
                if has_mark(pid, mark) && kill(pid, mark) {
                    found_any = true;
                    ended.insert(pid);
                }
            }
            if !found_any {
                break;
            }
        }
        ended.len()
    }

    /// This process and its ancestors.
    fn own_line() -> HashSet<u32> {
        let mut line = HashSet::new();
        let mut next = Some(std::process::id());
        while let Some(pid) = next.filter(|pid| *pid > 0) {
            if !line.insert(pid) {
                break;
            }
            next = parent_of(pid);
        }
        line
    }

    fn all_processes() -> impl Iterator<Item = u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    /// True if a process carries the mark: it or its ancestor was started by a daemon of the System
    /// Root. False for an exited process.
    fn has_mark(pid: u32, mark: Mark) -> bool {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"));
        let hard = limits.ok().and_then(|limits| hard_limit_in(&limits));
        hard.is_some_and(|hard| mark.on(hard) == MarkCheck::Yes)
    }

    /// Parses the hard limit of the resident set in `/proc/<pid>/limits`; `None` if it is missing,
    /// as for an exited process.
    pub(in crate::shell) fn hard_limit_in(limits: &str) -> Option<u64> {
        let mut lines = limits.lines();
        let line = lines.find_map(|line| line.strip_prefix("Max resident set"))?;
        match line.split_whitespace().nth(1)? {
            "unlimited" => Some(RLIM_INFINITY),
            number => number.parse().ok(),
        }
    }

    /// Kills a process if it still carries the mark, because its pid may have been reused. False if
    /// nothing is left to kill.
    fn kill(pid: u32, mark: Mark) -> bool {
        let pid_of = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(process) = pid_of.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return false;
        };
        // An exited process that was not reaped has no limits.
        has_mark(pid, mark) && pidfd_send_signal(&process, Signal::KILL).is_ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn sup_7_a_mark_is_the_directorys_own_and_no_limit_that_holds() {
            let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let of = |dir: &Path| mark_of(&fs::metadata(dir).unwrap());
            assert_eq!(of(one.path()), of(one.path()));
            assert_ne!(of(one.path()), of(other.path()));
            let mark = of(one.path());
            assert!((MARK_MIN..MARK_MIN << 1).contains(&mark), "{mark}");
        }

        #[test]
        fn sup_7_limits_are_read_as_the_kernel_shows_them() {
            let shown = "Limit                     Soft Limit           Hard Limit           Units     \n\
                         Max resident set          1024                 4611686018427387905  bytes     \n\
                         Max processes             94890                94890                processes \n";
            assert_eq!(hard_limit_in(shown), Some(MARK_MIN + 1));
            let unlimited =
                "Max resident set          unlimited            unlimited            bytes \n";
            assert_eq!(hard_limit_in(unlimited), Some(RLIM_INFINITY));
            assert_eq!(hard_limit_in(""), None);
        }

        #[test]
        fn sec_4_lowered_mark_is_distinguished_from_none() {
            let mark = Mark::for_tests(MARK_MIN + 9, RLIM_INFINITY);
            assert_eq!(mark.on(MARK_MIN + 9), MarkCheck::Yes);
            assert_eq!(mark.on(RLIM_INFINITY), MarkCheck::Not);
            assert_eq!(mark.on(1_000_000 << 10), MarkCheck::Perhaps);
            let below_another = Mark::for_tests(MARK_MIN + 9, MARK_MIN + 20);
            assert_eq!(below_another.on(MARK_MIN + 20), MarkCheck::Not);
        }

        #[test]
        fn sup_7_this_process_and_those_above_it_are_never_ended() {
            let line = own_line();
            assert!(line.contains(&std::process::id()));
            assert!(line.contains(&std::os::unix::process::parent_id()));
        }
    }
}
