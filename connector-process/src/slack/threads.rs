//! Threads in which the app takes part, because it was mentioned there.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use goondan_clock::sleep;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS, SLACK_THREADS_MAX};

/// The stored form, beside other fields of the connection's state.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredThreads {
    #[serde(default)]
    threads: Vec<String>,
}

/// Threads that began with a mention of the app; of more than [`SLACK_THREADS_MAX`], the latest.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: Mutex<Known>,
    /// Held while the threads are written, so that an older list never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// Channel and first message of each, the latest last.
    threads: VecDeque<String>,
    /// True if it differs from what is stored.
    is_new: bool,
}

impl Threads {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the app takes part in the thread.
    pub(super) fn has(&self, channel: &str, root: &str) -> bool {
        let thread = format!("{channel}:{root}");
        self.known().threads.contains(&thread)
    }

    pub(super) fn remember(&self, channel: &str, root: &str) {
        let thread = format!("{channel}:{root}");
        let mut known = self.known();
        if known.threads.contains(&thread) {
            return;
        }
        if known.threads.len() >= SLACK_THREADS_MAX {
            known.threads.pop_front();
        }
        known.threads.push_back(thread);
        known.is_new = true;
    }

    /// Loads the threads that an earlier process stored.
    pub(super) async fn load(&self, gateway: &Gateway) {
        let mut failures = 0;
        let state = loop {
            match gateway.state().await {
                Ok(state) => break state,
                Err(reason) => tracing::warn!(reason, "failed to read the threads; retrying"),
            }
            failures += 1;
            let pause = back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS);
            sleep(pause).await;
        };
        let stored = state.map(|state| serde_json::from_str::<StoredThreads>(state.get()));
        match stored {
            None => {}
            Some(Ok(stored)) => self.restore(stored.threads),
            Some(Err(error)) => tracing::error!(
                %error,
                "failed to parse the threads; their replies without a mention are `message` events"
            ),
        }
    }

    /// Stores the threads if they changed. Durable when it returns.
    pub(super) async fn keep(&self, gateway: &Gateway) {
        let _writing = self.writing.lock().await;
        let Some(threads) = self.changed() else {
            return;
        };
        let kept = match to_raw_value(&StoredThreads { threads }) {
            Ok(stored) => gateway.keep_fields(&stored).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = kept {
            self.not_stored();
            tracing::warn!(
                reason,
                "failed to store a thread; retrying with the next event"
            );
        }
    }

    /// Adds the threads that an earlier process stored.
    fn restore(&self, stored: Vec<String>) {
        let mut known = self.known();
        let new: Vec<String> = known.threads.drain(..).collect();
        let earlier = stored.into_iter().filter(|thread| !new.contains(thread));
        known.threads = earlier.chain(new.iter().cloned()).collect();
        let surplus = known.threads.len().saturating_sub(SLACK_THREADS_MAX);
        known.threads.drain(..surplus);
    }

    /// All threads to store, if they changed since the last call.
    fn changed(&self) -> Option<Vec<String>> {
        let mut known = self.known();
        let is_new = std::mem::take(&mut known.is_new);
        is_new.then(|| known.threads.iter().cloned().collect())
    }

    /// Marks the threads as not stored after all.
    fn not_stored(&self) {
        self.known().is_new = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_threads_are_bounded_and_survive_a_restart() {
        let threads = Threads::default();
        assert_eq!(threads.changed(), None);
        threads.remember("C1", "1.5");
        threads.remember("C1", "1.5");
        assert!(threads.has("C1", "1.5") && !threads.has("C2", "1.5"));
        let stored = threads.changed().unwrap();
        assert_eq!(
            (stored.as_slice(), threads.changed()),
            (&["C1:1.5".to_owned()][..], None)
        );
        threads.not_stored();
        assert!(threads.changed().is_some());
        let next = Threads::default();
        next.remember("C1", "2.5");
        next.restore(stored);
        assert!(next.has("C1", "1.5") && next.has("C1", "2.5"));
        for number in 0..SLACK_THREADS_MAX {
            next.remember("C9", &number.to_string());
        }
        assert!(!next.has("C1", "2.5") && next.has("C9", "0"));
        assert_eq!(next.changed().unwrap().len(), SLACK_THREADS_MAX);
    }
}
