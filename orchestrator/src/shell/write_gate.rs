//! A gate for all changes of the daemon's own files, so that a backup copies them in one state.
//! Files that it writes through a `Folder`, such as packages, sandboxes and checkpoints, do not pass
//! the gate.
//!
//! While a client holds the gate, writers wait before their next change. Every change between two
//! calls of the disk is a state that a crash could leave, so the copy is one that the store can
//! recover. The hold ends with its client's connection, or at its deadline.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for changes in progress.
const BEGIN_WITHIN: Duration = Duration::from_secs(2);

/// Reason why the gate cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HoldRefusal {
    #[error("another client holds the daemon's writes")]
    Taken,
    #[error("a write of the daemon did not end within {} s", BEGIN_WITHIN.as_secs())]
    Slow,
}

#[derive(Debug, Default)]
struct GateState {
    /// Number of changes in progress.
    writing: usize,
    /// Number and deadline of the current hold.
    hold: Option<(u64, Instant)>,
    /// Number of the latest hold.
    latest: u64,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(
        &self,
        state: MutexGuard<'g, GateState>,
        until: Instant,
    ) -> MutexGuard<'g, GateState> {
        let left = until.saturating_duration_since(Instant::now());
        let (state, _) = self
            .changed
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner);
        state
    }
}

/// Clones share the gate.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteGate(Arc<Gate>);

/// A change in progress.
#[derive(Debug)]
pub(super) struct WritePass<'g>(&'g Gate);

impl Drop for WritePass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.writing -= 1;
        // Only a client that begins to hold the gate waits for it.
        let is_awaited = state.writing == 0 && state.hold.is_some();
        drop(state);
        if is_awaited {
            self.0.changed.notify_all();
        }
    }
}

/// While it exists, no change begins before its deadline.
#[derive(Debug)]
pub(super) struct WriteHold {
    gate: WriteGate,
    number: u64,
}

impl WriteGate {
    /// Waits while a client holds the gate, then begins a change.
    pub(super) fn pass(&self) -> WritePass<'_> {
        let mut state = self.0.lock();
        while let Some((_, until)) = state.hold {
            if until <= Instant::now() {
                state.hold = None;
                break;
            }
            state = self.0.wait(state, until);
        }
        state.writing += 1;
        WritePass(&self.0)
    }

    /// Waits for the changes in progress and holds new ones. Blocks.
    ///
    /// # Errors
    ///
    /// [`HoldRefusal`].
    pub(super) fn hold(&self, max: Duration) -> Result<WriteHold, HoldRefusal> {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.hold.is_some_and(|(_, until)| until > now) {
            return Err(HoldRefusal::Taken);
        }
        state.latest += 1;
        let number = state.latest;
        let begin_until = now + BEGIN_WITHIN;
        state.hold = Some((number, begin_until + max));
        while state.writing > 0 {
            if begin_until <= Instant::now() {
                state.hold = None;
                drop(state);
                self.0.changed.notify_all();
                return Err(HoldRefusal::Slow);
            }
            state = self.0.wait(state, begin_until);
        }
        state.hold = Some((number, Instant::now() + max));
        drop(state);
        Ok(WriteHold {
            gate: self.clone(),
            number,
        })
    }
}

impl WriteHold {
    /// Ends the hold; false if its deadline had passed.
    pub(super) fn release(self) -> bool {
        let state = self.gate.0.lock();
        let is_held = |(number, until)| number == self.number && until > Instant::now();
        state.hold.is_some_and(is_held)
    }
}

impl Drop for WriteHold {
    fn drop(&mut self) {
        let mut state = self.gate.0.lock();
        if state.hold.is_some_and(|(number, _)| number == self.number) {
            state.hold = None;
        }
        drop(state);
        self.gate.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn writers_wait_for_the_end_of_a_hold() {
        let gate = WriteGate::default();
        let hold = gate.hold(Duration::from_secs(60)).unwrap();
        assert_eq!(
            gate.hold(Duration::from_secs(1)).unwrap_err(),
            HoldRefusal::Taken
        );
        let (began, begins) = mpsc::channel();
        let writer = thread::spawn({
            let gate = gate.clone();
            move || {
                let _pass = gate.pass();
                began.send(()).unwrap();
            }
        });
        assert!(begins.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(hold.release());
        begins.recv().unwrap();
        writer.join().unwrap();
    }

    #[test]
    fn hold_waits_for_changes_in_progress() {
        let gate = WriteGate::default();
        let pass = gate.pass();
        let holder = thread::spawn({
            let gate = gate.clone();
            move || gate.hold(Duration::from_secs(60)).map(WriteHold::release)
        });
        drop(pass);
        assert_eq!(holder.join().unwrap(), Ok(true));
        drop(gate.pass());
    }

    #[test]
    fn hold_ends_at_its_deadline_and_reports_it() {
        let gate = WriteGate::default();
        let hold = gate.hold(Duration::ZERO).unwrap();
        drop(gate.pass());
        assert!(!hold.release());
        // Another hold is not ended by an expired one.
        let expired = gate.hold(Duration::ZERO).unwrap();
        let other = gate.hold(Duration::from_secs(60)).unwrap();
        drop(expired);
        assert!(other.release());
    }
}
