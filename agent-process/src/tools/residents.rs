//! Registry of tool supervisors that outlive a call, so that they are not reaped as leftovers of a
//! call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::Pid;

/// Process ids of tool supervisors that outlive a call. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Residents(Arc<Mutex<BTreeSet<i32>>>);

impl Residents {
    /// Adds a process until the guard is dropped.
    pub(crate) fn admit(&self, pid: Option<u32>) -> Resident {
        let pid = pid.and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid {
            self.change(|pids| pids.insert(pid));
        }
        Resident {
            residents: self.clone(),
            pid,
        }
    }

    /// The current process ids.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.change(|pids| pids.iter().copied().map(Pid::from_raw).collect())
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
        // A set of numbers stays consistent even if a holder of the lock panicked.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Guard of a process in the set.
#[derive(Debug)]
pub(crate) struct Resident {
    residents: Residents,
    pid: Option<i32>,
}

impl Drop for Resident {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.residents.change(|pids| pids.remove(&pid));
        }
    }
}
