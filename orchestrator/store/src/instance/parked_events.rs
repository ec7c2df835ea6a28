//! Parking of an event whose turns repeatedly crash.
//!
//! The core counts the crashes ([`InstanceStore::note_attempts`]) and parks the event at a limit.
//! The turn's records are moved aside with it, so that the cause of the crash leaves the
//! conversation. A user then retries the event, with a new turn, or drops it. All operations are
//! idempotent.

use goondan_durable::{Finding, FindingKind};
use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::{InstanceStore, ParkedEvent};
use crate::error::StoreError;

impl InstanceStore {
    /// Stages the number of a waiting event's crashed turns, if it exceeds the known one. Returns
    /// the known number. The number is reset when the event ends or is retried.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is unknown or finished; [`StoreError::File`].
    pub fn note_attempts(
        &mut self,
        event_id: &EventId,
        attempts: u32,
        at: Timestamp,
    ) -> Result<u32, StoreError> {
        self.inbox.note_attempts(event_id, attempts, at)
    }

    /// Parks a waiting event. If its turn is open, the turn ends without changing the conversation,
    /// and its journal is kept in a separate file. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is unknown or finished, or its turn is committed;
    /// [`StoreError::File`].
    pub fn park(
        &mut self,
        event_id: &EventId,
        reason: &str,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if self.turn.commit.is_some() && self.open_event() == Some(event_id) {
            let event_id = event_id.clone();
            return Err(StoreError::WrongEvent { event_id });
        }
        self.inbox.park(event_id, reason, at)?;
        self.inbox.sync()?;
        if self.open_event() == Some(event_id) {
            self.set_turn_aside()?;
        }
        self.touch_parked(at)
    }

    /// Requeues a parked event at its old position. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is unknown or finished; [`StoreError::File`].
    pub fn retry(&mut self, event_id: &EventId, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.retry(event_id, at)?;
        self.inbox.sync()?;
        self.touch_parked(at)
    }

    /// Ends a parked event without an answer. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is unknown or waiting; [`StoreError::File`].
    pub fn drop_parked(&mut self, event_id: &EventId, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.drop_parked(event_id, at)?;
        self.inbox.sync()?;
        self.touch_parked(at)
    }

    /// Returns the parked events, oldest first.
    #[must_use]
    pub fn parked(&self) -> Vec<ParkedEvent> {
        self.inbox.parked().collect()
    }

    pub(super) fn open_event(&self) -> Option<&EventId> {
        let event = self.turn.open.as_ref()?.event.as_ref()?;
        Some(&event.event_id)
    }

    /// Moves the open turn's journal aside. Durable when it returns.
    pub(super) fn set_turn_aside(&mut self) -> Result<(), StoreError> {
        self.clear_journal()?;
        self.release_turn()?;
        let kept = self.turn.set_aside(self.disk.as_ref(), "parked")?;
        let problem = "the journal of a parked turn was moved aside".to_owned();
        let finding = Finding::new(self.turn.path(), FindingKind::SetAside, problem);
        self.findings.push(finding.kept(&kept));
        Ok(())
    }

    /// Writes the metadata immediately, because users find parked events there.
    fn touch_parked(&mut self, at: Timestamp) -> Result<(), StoreError> {
        self.metadata.parked_events = self.inbox.parked().count() as u64;
        self.touch(at);
        self.flush_metadata()
    }
}
