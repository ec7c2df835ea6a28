//! Stops a whole process tree and continues it (`TASK-8`).
//!
//! Each process first gets `SIGTSTP`, so that it can restore a terminal or release a lock. The
//! kernel drops that signal in an orphaned process group, and a program can ignore it, so processes
//! that still run after [`ASKED_TO_STOP`] get `SIGSTOP`.
//!
//! A shell may start a program with `vfork` and then waits in the kernel until the child has called
//! `exec`. A child stopped before that blocks its parent in the kernel, where no signal reaches it,
//! so such a child is continued for the moment.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::super::super::orphan_reaper::{ProcessSample, all_beneath, look_beneath};

/// Time for processes to stop after `SIGTSTP`.
const ASKED_TO_STOP: Duration = Duration::from_millis(200);
/// Time for processes to stop after `SIGSTOP`. Only one that is stuck in the kernel takes longer.
const MADE_TO_STOP: Duration = Duration::from_secs(2);
/// Time between two scans.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Stops every descendant of this process and returns the number that could not be stopped.
///
/// A scan can miss a process that is being forked, so two consecutive scans must find the same
/// processes, each stopped.
pub(super) async fn stop_tree() -> usize {
    let begun = Instant::now();
    let mut asked = BTreeSet::new();
    let mut last: Option<Vec<Pid>> = None;
    loop {
        let seen = look_beneath(Pid::this(), &[]);
        let all: Vec<Pid> = seen.iter().map(|process| process.pid).collect();
        let running = seen.iter().filter(|process| !process.is_still());
        let running: Vec<Pid> = running.map(|process| process.pid).collect();
        if running.is_empty() {
            if last.as_ref() == Some(&all) {
                return 0;
            }
            last = Some(all);
            continue;
        }
        last = None;
        if begun.elapsed() > ASKED_TO_STOP + MADE_TO_STOP {
            return running.len();
        }
        for pid in holding_their_parents(&seen) {
            asked.remove(&pid);
            kill(pid, Signal::SIGCONT).ok();
        }
        let is_asked = begun.elapsed() <= ASKED_TO_STOP;
        for pid in running {
            // It may have ended since it was listed.
            if !is_asked {
                kill(pid, Signal::SIGSTOP).ok();
            } else if asked.insert(pid) {
                kill(pid, Signal::SIGTSTP).ok();
            }
        }
        sleep(LOOK_PAUSE).await;
    }
}

/// Stopped children of processes that wait in the kernel, possibly for them.
fn holding_their_parents(seen: &[ProcessSample]) -> Vec<Pid> {
    let waiting = seen.iter().filter(|process| process.is_in_kernel());
    let waiting: BTreeSet<Pid> = waiting.map(|process| process.pid).collect();
    let stopped = seen.iter().filter(|process| process.is_stopped());
    let holding = stopped.filter(|process| waiting.contains(&process.parent));
    holding.map(|process| process.pid).collect()
}

/// Continues every process, children before their parents, because a shell must not find its child
/// stopped.
pub(super) fn continue_tree() {
    for pid in all_beneath(Pid::this(), &[]).into_iter().rev() {
        kill(pid, Signal::SIGCONT).ok();
    }
}

/// Sends a signal to every process, parents before their children.
pub(super) fn signal_tree(signal: Signal) {
    for pid in all_beneath(Pid::this(), &[]) {
        kill(pid, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, parent: i32, state: char) -> ProcessSample {
        ProcessSample {
            pid: Pid::from_raw(pid),
            parent: Pid::from_raw(parent),
            state,
            cpu_ticks: 0,
        }
    }

    #[test]
    fn task_8_child_stopped_before_exec_is_continued() {
        let found = [
            seen(2, 1, 'D'),
            seen(3, 2, 'T'),
            seen(4, 2, 'Z'),
            seen(5, 1, 'T'),
            seen(6, 5, 'T'),
        ];
        assert_eq!(holding_their_parents(&found), [Pid::from_raw(3)]);
    }
}
