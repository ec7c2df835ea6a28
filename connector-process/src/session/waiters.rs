//! Those who wait for what the orchestrator replies to requests, by the ids of these.

use std::collections::HashMap;

use tokio::sync::oneshot;

/// Those who wait for a reply of one kind.
#[derive(Debug)]
pub(super) struct Waiters<T>(HashMap<u64, oneshot::Sender<T>>);

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Waiters<T> {
    /// One more. Those who no longer wait may have been taken out before, so that an orchestrator that never replies
    /// cannot make them grow.
    pub(super) fn add(&mut self, request_id: u64, waiter: oneshot::Sender<T>) {
        self.0.insert(request_id, waiter);
    }

    /// Passes a reply on to whoever waits for it. They may have gone meanwhile.
    pub(super) fn settle(&mut self, in_reply_to: Option<u64>, reply: T) {
        let waiter = in_reply_to.and_then(|request_id| self.0.remove(&request_id));
        if waiter.is_none_or(|waiter| waiter.send(reply).is_err()) {
            tracing::debug!(in_reply_to, "nobody waits for this reply any more");
        }
    }

    /// Takes out those who no longer wait, and tells which requests theirs were.
    pub(super) fn take_gone(&mut self) -> Vec<u64> {
        let gone = self.0.extract_if(|_, waiter| waiter.is_closed());
        gone.map(|(request_id, _)| request_id).collect()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
