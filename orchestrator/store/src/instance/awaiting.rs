//! Questions of this instance's agent to others, whose answers come as events, and events that a turn
//! takes in on the way.

use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::InstanceStore;
use super::inbox::Awaited;
use super::turn::{CommitRecord, TurnEvent};
use crate::error::StoreError;

impl InstanceStore {
    /// Stages that the answer to a question is to come. Again without effect, also when the answer is
    /// there. Returns whether it is still to come.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`].
    pub fn await_reply(&mut self, awaited: &Awaited, at: Timestamp) -> Result<bool, StoreError> {
        self.inbox.await_reply(awaited, at)
    }

    /// Stages that no answer to a question is to come. Again without effect.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`].
    pub fn forgo(&mut self, question: &EventId, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.forgo(question, at)
    }

    /// The places of those events that wait.
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

    /// Appends that the events of a committed turn are done. Can be done again.
    pub(super) fn mark_events(&mut self, commit: &CommitRecord) -> Result<(), StoreError> {
        let (turn, outcome) = (&commit.turn_id, &commit.outcome);
        // The turn's own event comes last: once it is over, all of them are.
        for event in commit.also.iter().chain(&commit.event) {
            self.inbox.finish(event, turn, commit.at, outcome)?;
        }
        Ok(())
    }
}
