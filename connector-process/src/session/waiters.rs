//! Waiters for the orchestrator's replies, by request id.

use std::collections::HashMap;

use tokio::sync::oneshot;

/// Waiters for one kind of reply.
#[derive(Debug)]
pub(super) struct Waiters<T>(HashMap<u64, oneshot::Sender<T>>);

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Waiters<T> {
    /// Adds a waiter. Callers remove abandoned waiters first, so that an orchestrator that never
    /// replies cannot make the map grow.
    pub(super) fn add(&mut self, request_id: u64, waiter: oneshot::Sender<T>) {
        self.0.insert(request_id, waiter);
    }

    /// Delivers a reply to its waiter, if it still exists.
    pub(super) fn settle(&mut self, in_reply_to: Option<u64>, reply: T) {
        let waiter = in_reply_to.and_then(|request_id| self.0.remove(&request_id));
        if waiter.is_none_or(|waiter| waiter.send(reply).is_err()) {
            tracing::debug!(in_reply_to, "no waiter for this reply");
        }
    }

    /// Removes abandoned waiters and returns their request ids.
    pub(super) fn take_gone(&mut self) -> Vec<u64> {
        let gone = self.0.extract_if(|_, waiter| waiter.is_closed());
        gone.map(|(request_id, _)| request_id).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
