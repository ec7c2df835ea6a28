//! Threads in which the app takes part: it was mentioned there, or they are below its answer to a
//! slash command.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::gateway::Gateway;
use crate::limits::{SLACK_ANSWERS_MAX, SLACK_THREADS_MAX};

/// The stored form, beside other fields of the connection's state.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredThreads {
    #[serde(default)]
    threads: Vec<String>,
    #[serde(default)]
    answers: Vec<String>,
}

/// Threads that began with a mention of the app, and the app's answers outside of threads; of more
/// than [`SLACK_THREADS_MAX`] and [`SLACK_ANSWERS_MAX`], the latest.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: Mutex<Known>,
    /// Held while the threads are written, so that an older list never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
    /// Set once the connector runs.
    gateway: OnceLock<Gateway>,
}

#[derive(Debug, Default)]
struct Known {
    /// Channel and first message of each, the latest last.
    threads: VecDeque<String>,
    /// Answers to slash commands, likewise. Their threads belong to the channel's conversation.
    answers: VecDeque<String>,
    /// True if they differ from what is stored.
    is_new: bool,
}

/// Adds a thread. Returns false if it is known.
fn add(threads: &mut VecDeque<String>, thread: String, max: usize) -> bool {
    if threads.contains(&thread) {
        return false;
    }
    if threads.len() >= max {
        threads.pop_front();
    }
    threads.push_back(thread);
    true
}

/// Adds threads that an earlier process stored, as older ones.
fn add_earlier(threads: &mut VecDeque<String>, stored: Vec<String>, max: usize) {
    let new: Vec<String> = threads.drain(..).collect();
    let earlier = stored.into_iter().filter(|thread| !new.contains(thread));
    *threads = earlier.chain(new.iter().cloned()).collect();
    let surplus = threads.len().saturating_sub(max);
    threads.drain(..surplus);
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

    /// True if the thread is below an answer to a slash command.
    pub(super) fn is_below_answer(&self, channel: &str, root: &str) -> bool {
        let thread = format!("{channel}:{root}");
        self.known().answers.contains(&thread)
    }

    pub(super) fn remember(&self, channel: &str, root: &str) {
        let mut known = self.known();
        let thread = format!("{channel}:{root}");
        let is_new = add(&mut known.threads, thread, SLACK_THREADS_MAX);
        known.is_new |= is_new;
    }

    /// Records an answer outside of a thread. Durable when it returns, if the state can be stored.
    pub(super) async fn record_answer(&self, channel: &str, ts: &str) {
        self.remember_answer(channel, ts);
        if let Some(gateway) = self.gateway.get() {
            self.keep(gateway).await;
        }
    }

    fn remember_answer(&self, channel: &str, ts: &str) {
        let mut known = self.known();
        let thread = format!("{channel}:{ts}");
        let is_new = add(&mut known.answers, thread, SLACK_ANSWERS_MAX);
        known.is_new |= is_new;
    }

    /// Loads the threads that an earlier process stored.
    pub(super) async fn load(&self, gateway: &Gateway) {
        let stored = gateway.stored("threads of the app").await;
        self.restore(stored);
        // It is set once, before the connector serves requests.
        self.gateway.set(gateway.clone()).ok();
    }

    /// Stores the threads if they changed. Durable when it returns.
    pub(super) async fn keep(&self, gateway: &Gateway) {
        let _writing = self.writing.lock().await;
        let Some(threads) = self.changed() else {
            return;
        };
        if let Err(reason) = gateway.keep_fields(&threads).await {
            self.not_stored();
            tracing::warn!(
                reason,
                "failed to store a thread; retrying with the next event"
            );
        }
    }

    /// Adds the threads that an earlier process stored.
    fn restore(&self, stored: StoredThreads) {
        let mut known = self.known();
        add_earlier(&mut known.threads, stored.threads, SLACK_THREADS_MAX);
        add_earlier(&mut known.answers, stored.answers, SLACK_ANSWERS_MAX);
    }

    /// All threads to store, if they changed since the last call.
    fn changed(&self) -> Option<StoredThreads> {
        let mut known = self.known();
        let is_new = std::mem::take(&mut known.is_new);
        is_new.then(|| StoredThreads {
            threads: known.threads.iter().cloned().collect(),
            answers: known.answers.iter().cloned().collect(),
        })
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
        threads.remember_answer("C1", "9.1");
        assert!(threads.has("C1", "1.5") && !threads.has("C2", "1.5"));
        assert!(threads.is_below_answer("C1", "9.1") && !threads.is_below_answer("C1", "1.5"));
        let stored = threads.changed().unwrap();
        let form = serde_json::to_string(&stored).unwrap();
        assert_eq!(form, r#"{"threads":["C1:1.5"],"answers":["C1:9.1"]}"#);
        assert_eq!(threads.changed(), None);
        threads.not_stored();
        assert!(threads.changed().is_some());
        let next = Threads::default();
        next.remember("C1", "2.5");
        next.restore(stored);
        assert!(next.has("C1", "1.5") && next.has("C1", "2.5"));
        assert!(next.is_below_answer("C1", "9.1"));
        for number in 0..SLACK_THREADS_MAX {
            next.remember("C9", &number.to_string());
        }
        assert!(!next.has("C1", "2.5") && next.has("C9", "0"));
        for number in 0..SLACK_ANSWERS_MAX {
            next.remember_answer("C9", &number.to_string());
        }
        assert!(!next.is_below_answer("C1", "9.1"));
        let stored = next.changed().unwrap();
        let counts = (stored.threads.len(), stored.answers.len());
        assert_eq!(counts, (SLACK_THREADS_MAX, SLACK_ANSWERS_MAX));
    }
}
