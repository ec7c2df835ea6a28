//! Questions of this instance's agent with answers that arrive as events, and other events that a
//! turn consumes.

use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::InstanceStore;
use super::inbox::PendingReplyRecord;
use super::turn::{CommitRecord, TurnEvent};
use crate::error::StoreError;

impl InstanceStore {
    /// Stages the record of a pending answer. Idempotent, also when the answer has arrived. Returns
    /// true if it is still pending.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`].
    pub fn await_reply(
        &mut self,
        awaited: &PendingReplyRecord,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.inbox.await_reply(awaited, at)
    }

    /// Stages the record that a question will get no answer. Idempotent.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`].
    pub fn forgo(&mut self, question: &EventId, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.forgo(question, at)
    }

    /// Returns the inbox positions of the given events, if they are waiting.
    pub(super) fn taken_in(&self, events: &[EventId]) -> Vec<TurnEvent> {
        let place = |event_id: &EventId| {
            let inbox_seq = self.inbox.seq_of_waiting(event_id)?;
            let event_id = event_id.clone();
            Some(TurnEvent {
                event_id,
                inbox_seq,
            })
        };
        events.iter().filter_map(place).collect()
    }

    /// Marks the events of a committed turn as done. Idempotent.
    pub(super) fn mark_events(&mut self, commit: &CommitRecord) -> Result<(), StoreError> {
        let (turn, outcome) = (&commit.turn_id, &commit.outcome);
        // The turn's own event comes last: once it is done, all are.
        for event in commit.also.iter().chain(&commit.event) {
            self.inbox.finish(event, turn, commit.at, outcome)?;
        }
        Ok(())
    }
}
