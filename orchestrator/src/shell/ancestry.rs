//! Distinguishes clients started by a user from descendants of the daemon's children (`SEC-4`).
//!
//! For a process and each of its ancestors, three facts are read from `/proc`:
//!
//! * **Ancestry.** The daemon is a child subreaper ([`super::orphans_of_agents`]), so an orphaned descendant
//!   is re-parented to the daemon. While the daemon runs, the parent chain of each descendant leads
//!   to it, whatever the process does to its session, limits or parents. Any other chain belongs to
//!   a user.
//! * **The mark** of [`super::orphans`], which also identifies descendants of an earlier daemon. An
//!   unprivileged process can only lower it, and a process with a lowered mark is not treated as a
//!   user's.
//! * **The cgroup** of a child, if the daemon has cgroups.
//!
//! The client is pinned by the pidfd of the socket's peer (`SO_PEERPIDFD`, Linux 6.5), so its pid
//! cannot be reused before it is read. The chain is read twice and must be identical, because an
//! unchanged parent was alive in between. If anything cannot be read, the result is unknown and the
//! client is not treated as a user.

#[cfg(not(target_os = "linux"))]
use goondan_core::ClientOrigin;

#[cfg(target_os = "linux")]
pub(super) use linux::standing;

use super::orphans::Mark;

/// Properties that identify descendants of the daemon's children.
#[derive(Debug, Clone, Default)]
pub(super) struct Descent {
    /// True if orphans are re-parented to the daemon, so that ancestry is complete.
    pub(super) adopts_orphans: bool,
    /// The mark; `None` if it could not be set.
    pub(super) mark: Option<Mark>,
    /// Path prefix of the children's cgroups in `/proc`; `None` without cgroups.
    pub(super) child_groups: Option<String>,
}

/// Origin of the process at the other end of a socket. Available only on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn standing(
    _socket: &impl std::os::fd::AsFd,
    _pid: Option<u32>,
    _descent: &Descent,
) -> ClientOrigin {
    ClientOrigin::Person
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

    use goondan_core::ClientOrigin;
    use nix::errno::Errno;
    use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};

    use super::Descent;
    use crate::shell::orphans::{MarkCheck, hard_limit_in};

    /// Maximum number of reads of a chain that keeps changing.
    const READS_MAX: usize = 8;
    /// Maximum number of ancestors. A longer chain has an unknown origin.
    const ANCESTORS_MAX: usize = 256;

    const ENDED: &str = "its process has ended";
    const HIDDEN: &str = "one of its ancestors is not visible in `/proc` (see `hidepid`)";

    /// Origin of the process at the other end of a socket.
    pub(in crate::shell) fn standing(
        socket: &impl AsFd,
        pid: Option<u32>,
        descent: &Descent,
    ) -> ClientOrigin {
        let Some(pid) = pid else {
            return ClientOrigin::Unknown("the kernel does not report its process");
        };
        // Processes of this pid namespace and its descendants have a pid here. A descendant of the
        // daemon cannot leave, because a process can only enter descendant namespaces.
        if pid == 0 {
            return ClientOrigin::Person;
        }
        let pin = match getsockopt(socket, PeerPidfd) {
            Ok(pin) => Some(pin),
            // Before Linux 6.5, only the pid is available. The check runs immediately after the
            // connection is accepted.
            Err(Errno::ENOPROTOOPT) => None,
            Err(_) => return ClientOrigin::Unknown(ENDED),
        };
        let own = std::process::id();
        judge(&Proc, pid, own, descent, || {
            pin.as_ref().is_none_or(|pin| is_pinned(pin, pid))
        })
    }

    /// True if the pidfd still refers to this pid. The pidfd of a reaped process has none.
    fn is_pinned(pin: &OwnedFd, pid: u32) -> bool {
        let path = format!("/proc/self/fdinfo/{}", pin.as_raw_fd());
        let info = fs::read_to_string(path).unwrap_or_default();
        let mut lines = info.lines();
        let number = lines.find_map(|line| line.strip_prefix("Pid:"));
        number.and_then(|number| number.trim().parse().ok()) == Some(pid)
    }

    /// Source of process information.
    pub(super) trait Processes {
        /// The parent of a process and its start time; `None` if the process is hidden or has
        /// ended.
        fn link(&self, pid: u32) -> Option<AncestryLink>;
        /// The text of `/proc/<pid>/limits`.
        fn limits(&self, pid: u32) -> Option<String>;
        /// The text of `/proc/<pid>/cgroup`.
        fn groups(&self, pid: u32) -> Option<String>;
    }

    struct Proc;

    impl Processes for Proc {
        fn link(&self, pid: u32) -> Option<AncestryLink> {
            link_in(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        }

        fn limits(&self, pid: u32) -> Option<String> {
            fs::read_to_string(format!("/proc/{pid}/limits")).ok()
        }

        fn groups(&self, pid: u32) -> Option<String> {
            fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()
        }
    }

    /// One process of a chain.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct AncestryLink {
        pub(super) pid: u32,
        pub(super) parent: u32,
        pub(super) started: u64,
    }

    /// Parses `/proc/<pid>/stat`; `None` if the process has ended. The command name precedes the
    /// numbers in parentheses and may contain any character.
    fn link_in(pid: u32, stat: &str) -> Option<AncestryLink> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?;
        let parent = words.next()?.parse().ok()?;
        // `starttime` is field 22; the parent is field 4.
        let started = words.nth(17)?.parse().ok()?;
        let is_alive = !matches!(state, "Z" | "X" | "x");
        is_alive.then_some(AncestryLink {
            pid,
            parent,
            started,
        })
    }

    /// The chain from a process up to the daemon or the topmost process.
    fn line(
        processes: &impl Processes,
        pid: u32,
        daemon: u32,
    ) -> Result<Vec<AncestryLink>, &'static str> {
        let mut line: Vec<AncestryLink> = Vec::new();
        let mut next = pid;
        // The parent is 0 for the topmost process and for a process outside this namespace.
        while next > 1 && next != daemon {
            if line.len() >= ANCESTORS_MAX {
                return Err("it has too many ancestors");
            }
            let link = processes.link(next);
            let link = link.ok_or(if line.is_empty() { ENDED } else { HIDDEN })?;
            next = link.parent;
            line.push(link);
        }
        Ok(line)
    }

    /// Origin of a process. `is_pinned` returns true if the pid was not reused.
    pub(super) fn judge(
        processes: &impl Processes,
        pid: u32,
        daemon: u32,
        descent: &Descent,
        is_pinned: impl Fn() -> bool,
    ) -> ClientOrigin {
        if pid == daemon {
            return ClientOrigin::BelowDaemon;
        }
        let mut why = "its ancestors change too fast";
        for _ in 0..READS_MAX {
            let first = match line(processes, pid, daemon) {
                Ok(first) => first,
                Err(ENDED) => return ClientOrigin::Unknown(ENDED),
                // An ancestor may have ended in the meantime.
                Err(problem) => {
                    why = problem;
                    continue;
                }
            };
            let found = first
                .iter()
                .map(|link| member(processes, link.pid, descent))
                .find(|found| *found != ClientOrigin::Person);
            if line(processes, pid, daemon).as_ref() != Ok(&first) {
                continue;
            }
            if !is_pinned() {
                return ClientOrigin::Unknown(ENDED);
            }
            let reaches_daemon = first.last().is_some_and(|top| top.parent == daemon);
            return match found {
                _ if reaches_daemon => ClientOrigin::BelowDaemon,
                Some(found) => found,
                None if !descent.adopts_orphans => {
                    ClientOrigin::Unknown("the daemon cannot adopt orphans here")
                }
                None => ClientOrigin::Person,
            };
        }
        ClientOrigin::Unknown(why)
    }

    /// Origin according to the mark and cgroup of one process.
    fn member(processes: &impl Processes, pid: u32, descent: &Descent) -> ClientOrigin {
        if let Some(mark) = descent.mark {
            let limits = processes.limits(pid);
            let hard = limits.and_then(|limits| hard_limit_in(&limits));
            match hard.map(|hard| mark.on(hard)) {
                Some(MarkCheck::Not) => {}
                Some(MarkCheck::Yes) => return ClientOrigin::BelowDaemon,
                Some(MarkCheck::Perhaps) => {
                    return ClientOrigin::Unknown(
                        "its hard limit of the resident set is lowered (`ulimit -Hm`)",
                    );
                }
                None => return ClientOrigin::Unknown(HIDDEN),
            }
        }
        let Some(children) = &descent.child_groups else {
            return ClientOrigin::Person;
        };
        let Some(groups) = processes.groups(pid) else {
            return ClientOrigin::Unknown(HIDDEN);
        };
        let mut groups = groups.lines().filter_map(|line| line.strip_prefix("0::"));
        if groups.any(|group| group.starts_with(children.as_str())) {
            return ClientOrigin::BelowDaemon;
        }
        ClientOrigin::Person
    }

    #[cfg(test)]
    mod tests {
        use std::cell::RefCell;
        use std::collections::BTreeMap;
        use std::os::unix::net::UnixStream;
        use std::path::Path;

        use super::*;
        use crate::shell::orphans::Mark;

        const DAEMON: u32 = 100;
        const UNLIMITED: &str = "Max resident set  unlimited  unlimited  bytes\n";

        /// Processes by pid: parent, limits, cgroup.
        #[derive(Default)]
        struct Fake {
            all: RefCell<BTreeMap<u32, (u32, String, String)>>,
            /// A change of a parent after this many more reads.
            change: RefCell<Option<(usize, u32, u32)>>,
        }

        impl Fake {
            fn with(self, pid: u32, parent: u32) -> Self {
                let facts = (parent, UNLIMITED.to_owned(), "0::/user.slice\n".to_owned());
                self.all.borrow_mut().insert(pid, facts);
                self
            }

            fn limited(self, pid: u32, hard: &str) -> Self {
                if let Some(facts) = self.all.borrow_mut().get_mut(&pid) {
                    facts.1 = format!("Max resident set  {hard}  {hard}  bytes\n");
                }
                self
            }

            fn grouped(self, pid: u32, group: &str) -> Self {
                if let Some(facts) = self.all.borrow_mut().get_mut(&pid) {
                    facts.2 = format!("0::{group}\n");
                }
                self
            }

            fn judge(&self, pid: u32) -> ClientOrigin {
                judge(self, pid, DAEMON, &descent(), || true)
            }
        }

        impl Processes for Fake {
            fn link(&self, pid: u32) -> Option<AncestryLink> {
                let mut change = self.change.borrow_mut();
                if let Some((reads, of, parent)) = change.as_mut() {
                    if *reads == 0 {
                        let mut all = self.all.borrow_mut();
                        all.entry(*of).and_modify(|facts| facts.0 = *parent);
                        *change = None;
                    } else {
                        *reads -= 1;
                    }
                }
                let parent = self.all.borrow().get(&pid)?.0;
                let started = u64::from(pid);
                Some(AncestryLink {
                    pid,
                    parent,
                    started,
                })
            }

            fn limits(&self, pid: u32) -> Option<String> {
                Some(self.all.borrow().get(&pid)?.1.clone())
            }

            fn groups(&self, pid: u32) -> Option<String> {
                Some(self.all.borrow().get(&pid)?.2.clone())
            }
        }

        fn descent() -> Descent {
            Descent {
                adopts_orphans: true,
                mark: Some(Mark::for_tests(7_000, u64::MAX)),
                child_groups: Some("/service/child-".to_owned()),
            }
        }

        /// A user's shell (10) with a client (11), and an agent (101) with its tool (102) and a
        /// client (103).
        fn machine() -> Fake {
            let fake = Fake::default().with(10, 1).with(11, 10);
            fake.with(DAEMON, 1)
                .with(101, DAEMON)
                .with(102, 101)
                .with(103, 102)
        }

        #[test]
        fn sec_4_process_ancestry_distinguishes_person_from_agent() {
            let fake = machine();
            assert_eq!(fake.judge(11), ClientOrigin::Person);
            assert_eq!(fake.judge(103), ClientOrigin::BelowDaemon);
            // An orphan is re-parented to the daemon.
            assert_eq!(fake.with(104, DAEMON).judge(104), ClientOrigin::BelowDaemon);
            // A shell injected from outside by a container runtime.
            let fake = machine().with(20, 0).with(21, 20);
            assert_eq!(fake.judge(21), ClientOrigin::Person);
            // A user who runs the daemon in the foreground of their own shell.
            let fake = machine().with(DAEMON, 11);
            assert_eq!(fake.judge(11), ClientOrigin::Person);
        }

        #[test]
        fn sec_4_a_mark_or_group_of_any_ancestor_counts() {
            let fake = machine().limited(10, "7000");
            assert_eq!(fake.judge(11), ClientOrigin::BelowDaemon);
            let fake = machine().grouped(10, "/service/child-3/program");
            assert_eq!(fake.judge(11), ClientOrigin::BelowDaemon);
            // A container runtime puts a user's shell into the daemon's own cgroup.
            let fake = machine().grouped(10, "/service/orchestrator");
            assert_eq!(fake.judge(11), ClientOrigin::Person);
            let fake = machine().limited(11, "6999");
            assert!(matches!(fake.judge(11), ClientOrigin::Unknown(why) if why.contains("ulimit")));
        }

        #[test]
        fn sec_4_unreadable_ancestry_is_not_a_person() {
            let fake = machine().with(31, 30);
            assert_eq!(fake.judge(31), ClientOrigin::Unknown(HIDDEN));
            assert_eq!(fake.judge(40), ClientOrigin::Unknown(ENDED));
            let ended = judge(&fake, 11, DAEMON, &descent(), || false);
            assert_eq!(ended, ClientOrigin::Unknown(ENDED));
            let alone = Descent {
                adopts_orphans: false,
                ..descent()
            };
            let alone = judge(&fake, 11, DAEMON, &alone, || true);
            assert!(matches!(alone, ClientOrigin::Unknown(_)));
            let mut deep = Fake::default();
            for pid in 1_000..3_000 {
                deep = deep.with(pid, pid - 1);
            }
            assert!(matches!(deep.judge(2_999), ClientOrigin::Unknown(_)));
        }

        #[test]
        fn sec_4_a_parents_number_reused_while_read_is_noticed() {
            // The parent 102 of 103 ends after it was read, and its pid is reused by a user's
            // program. By then the orphan is a child of the daemon.
            for reads in 0..4 {
                let fake = machine().with(102, 10);
                fake.change.replace(Some((reads, 103, DAEMON)));
                assert_eq!(fake.judge(103), ClientOrigin::BelowDaemon, "{reads}");
            }
        }

        #[test]
        fn sec_4_the_other_end_of_a_socket_is_pinned() {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let pin = match getsockopt(&ours, PeerPidfd) {
                // Before Linux 6.5.
                Err(Errno::ENOPROTOOPT) => return,
                pin => pin.unwrap(),
            };
            assert!(is_pinned(&pin, std::process::id()));
            assert!(!is_pinned(&pin, std::process::id() + 1));
            assert!(Path::new("/proc/self/fdinfo").exists());
        }

        #[test]
        fn sec_4_links_are_read_as_the_kernel_shows_them() {
            let stat = "12 (a) R 9 (b)) S 34 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2";
            let link = AncestryLink {
                pid: 12,
                parent: 34,
                started: 987,
            };
            assert_eq!(link_in(12, stat), Some(link));
            assert_eq!(link_in(12, &stat.replace(") S", ") Z")), None);
            assert_eq!(link_in(12, ""), None);
            assert!(Proc.link(std::process::id()).is_some());
        }
    }
}
