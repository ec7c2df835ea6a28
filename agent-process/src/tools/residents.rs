//! The tool supervisors that outlive a call, so that they are not taken for what a call has left behind.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::Pid;

/// The process ids of tool supervisors that outlive a call. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Residents(Arc<Mutex<BTreeSet<i32>>>);

impl Residents {
    /// Counts a process among them for as long as the guard lives.
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

    /// Who is there.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.change(|pids| pids.iter().copied().map(Pid::from_raw).collect())
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
        // A set of numbers is whole whoever panicked while holding it.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A place among the residents.
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
