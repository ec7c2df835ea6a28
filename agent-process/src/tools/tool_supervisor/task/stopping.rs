//! Stopping a whole tree of processes, and letting it go on (`TASK-8`).
//!
//! Each process is asked first (`SIGTSTP`), so that it can put a terminal or a lock in order. The kernel drops that
//! signal in an orphaned process group, and a program may ignore it: what runs all the same after
//! [`ASKED_TO_STOP`] is stopped (`SIGSTOP`).
//!
//! A shell may start a program by `vfork`, and waits in the kernel then until the child has become that program. A child
//! that is stopped before it has holds its parent there, out of reach of every signal: it goes on for that long.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::super::super::orphan_reaper::{Seen, all_beneath, look_beneath};

/// How long processes have to stop when they are asked to.
const ASKED_TO_STOP: Duration = Duration::from_millis(200);
/// How long they have once they are stopped. Only one that is stuck in the kernel takes longer.
const MADE_TO_STOP: Duration = Duration::from_secs(2);
/// Time between two looks at them.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Stops everything that descends from this process, and tells how many could not be stopped.
///
/// A process may be forked behind the back of a look, so that two looks in a row must find the same processes, all of
/// them still.
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
            // It may have ended by itself since it was seen.
            if !is_asked {
                kill(pid, Signal::SIGSTOP).ok();
            } else if asked.insert(pid) {
                kill(pid, Signal::SIGTSTP).ok();
            }
        }
        sleep(LOOK_PAUSE).await;
    }
}

/// The stopped children of processes that wait in the kernel, maybe for them.
fn holding_their_parents(seen: &[Seen]) -> Vec<Pid> {
    let waiting = seen.iter().filter(|process| process.is_in_kernel());
    let waiting: BTreeSet<Pid> = waiting.map(|process| process.pid).collect();
    let stopped = seen.iter().filter(|process| process.is_stopped());
    let holding = stopped.filter(|process| waiting.contains(&process.parent));
    holding.map(|process| process.pid).collect()
}

/// Lets everything go on, children before their parents: a shell must not find its child stopped.
pub(super) fn continue_tree() {
    for pid in all_beneath(Pid::this(), &[]).into_iter().rev() {
        kill(pid, Signal::SIGCONT).ok();
    }
}

/// Sends a signal to everything, parents before their children.
pub(super) fn signal_tree(signal: Signal) {
    for pid in all_beneath(Pid::this(), &[]) {
        kill(pid, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, parent: i32, state: char) -> Seen {
        Seen {
            pid: Pid::from_raw(pid),
            parent: Pid::from_raw(parent),
            state,
            cpu_ticks: 0,
        }
    }

    #[test]
    fn task_8_a_child_that_was_stopped_before_it_became_its_program_is_let_go_on() {
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
