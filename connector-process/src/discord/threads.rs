//! Threads that people open on messages of the application (`CONN-2`).
//!
//! Such a thread has the ID of its first message. The connector records the messages that it posts,
//! each with the channel whose conversation the thread continues, in the connection's state.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::gateway::Gateway;
use crate::limits::DISCORD_THREADS_MAX;

/// A message of the application, and the channel that it was posted to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PostedMessage(String, String);

/// The stored form, beside other fields of the connection's state.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredMessages {
    #[serde(default)]
    posted: VecDeque<PostedMessage>,
}

/// Messages on which threads can be opened; of more than [`DISCORD_THREADS_MAX`], the latest.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: Mutex<Known>,
    /// Held while the messages are written, so that an older list never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
    /// Set once the connector runs.
    gateway: OnceLock<Gateway>,
}

#[derive(Debug, Default)]
struct Known {
    /// The latest last.
    posted: VecDeque<PostedMessage>,
    /// True if it differs from what is stored.
    is_new: bool,
}

impl Known {
    fn channel_of(&self, thread: &str) -> Option<&str> {
        let mut posted = self.posted.iter();
        posted.find_map(|PostedMessage(message, channel)| {
            (message == thread).then_some(channel.as_str())
        })
    }

    fn add(&mut self, message: PostedMessage) {
        if self.posted.len() >= DISCORD_THREADS_MAX {
            self.posted.pop_front();
        }
        self.posted.push_back(message);
        self.is_new = true;
    }
}

impl Threads {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel whose conversation a channel or thread belongs to.
    pub(super) fn home_of(&self, channel: &str) -> String {
        let known = self.known();
        known.channel_of(channel).unwrap_or(channel).to_owned()
    }

    /// As [`Self::home_of`], for a thread with a new message, which counts as one of the latest.
    pub(super) fn enter(&self, thread: &str) -> String {
        let mut known = self.known();
        let found = known.posted.iter().position(|it| it.0 == thread);
        match found.and_then(|at| known.posted.remove(at)) {
            Some(message) => {
                let channel = message.1.clone();
                known.add(message);
                channel
            }
            None => thread.to_owned(),
        }
    }

    /// Records a message in a channel. Durable when it returns, if the state can be stored.
    pub(super) async fn record(&self, channel: &str, message: &str) {
        self.add(channel, message);
        self.keep().await;
    }

    fn add(&self, channel: &str, message: &str) {
        let mut known = self.known();
        // A thread has no further threads.
        if known.channel_of(channel).is_none() && known.channel_of(message).is_none() {
            known.add(PostedMessage(message.to_owned(), channel.to_owned()));
        }
    }

    /// Loads the messages that an earlier process stored, and stores them from now on.
    pub(super) async fn load(&self, gateway: &Gateway) {
        let StoredMessages { posted } = gateway.stored("threads of replies").await;
        self.known().posted = posted;
        // It is set once, before the connector serves requests.
        self.gateway.set(gateway.clone()).ok();
    }

    /// Stores the messages if they changed. Durable when it returns.
    pub(super) async fn keep(&self) {
        let Some(gateway) = self.gateway.get() else {
            return;
        };
        let _writing = self.writing.lock().await;
        let Some(posted) = self.changed() else {
            return;
        };
        let stored = StoredMessages { posted };
        if let Err(reason) = gateway.keep_fields(&stored).await {
            self.known().is_new = true;
            tracing::warn!(
                reason,
                "failed to store a message; retrying with the next one"
            );
        }
    }

    /// All messages to store, if they changed since the last call.
    fn changed(&self) -> Option<VecDeque<PostedMessage>> {
        let mut known = self.known();
        let is_new = std::mem::take(&mut known.is_new);
        is_new.then(|| known.posted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_threads_of_discord_are_bounded_and_have_a_stored_form() {
        let threads = Threads::default();
        assert_eq!(threads.changed(), None);
        threads.add("12", "50");
        threads.add("12", "50");
        // A message in the thread opens no other one.
        threads.add("50", "51");
        assert_eq!(
            (threads.home_of("50"), threads.home_of("51")),
            ("12".into(), "51".into())
        );
        let posted = threads.changed().unwrap();
        let stored = serde_json::to_string(&StoredMessages { posted }).unwrap();
        assert_eq!(stored, r#"{"posted":[["50","12"]]}"#);
        assert_eq!(threads.changed(), None);
        for number in 0..DISCORD_THREADS_MAX {
            // A thread that is used remains.
            assert_eq!(threads.enter("50"), "12");
            threads.add("9", &format!("m{number}"));
        }
        assert_eq!(threads.home_of("50"), "12");
        assert_eq!(threads.home_of("m0"), "m0");
        assert_eq!(threads.known().posted.len(), DISCORD_THREADS_MAX);
        assert_eq!(threads.enter("7"), "7");
    }
}
