//! Taking an event out of the way whose turns crash whoever works on them.
//!
//! The core counts the crashes ([`InstanceStore::note_attempts`]), and after some of them parks the
//! event. What its turn had recorded is put aside with it, whole, so that whatever brought the agent
//! down is no longer part of the conversation. A person then retries the event, which begins its turn
//! from the start, or drops it. Each of these can be asked for again without effect.

use goondan_durable::{Finding, FindingKind};
use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::{InstanceStore, ParkedEvent};
use crate::error::StoreError;

impl InstanceStore {
    /// Stages how many turns of a waiting event crashed; a number not above the known one changes
    /// nothing. Returns the number known then. It is forgotten when the event is over or retried.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is not known or over; [`StoreError::File`].
    pub fn note_attempts(
        &mut self,
        event_id: &EventId,
        attempts: u32,
        at: Timestamp,
    ) -> Result<u32, StoreError> {
        self.inbox.note_attempts(event_id, attempts, at)
    }

    /// Takes a waiting event out of the way. If it is the open turn's, the turn is over without having
    /// changed the conversation, and its journal is kept beside the old. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is not known or over, or its turn is committed;
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

    /// Lets a parked event wait again, in its old place. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is not known or over; [`StoreError::File`].
    pub fn retry(&mut self, event_id: &EventId, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.retry(event_id, at)?;
        self.inbox.sync()?;
        self.touch_parked(at)
    }

    /// Ends a parked event without an answer. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is not known or waits; [`StoreError::File`].
    pub fn drop_parked(&mut self, event_id: &EventId, at: Timestamp) -> Result<(), StoreError> {
        self.inbox.drop_parked(event_id, at)?;
        self.inbox.sync()?;
        self.touch_parked(at)
    }

    /// Events that are parked, oldest first.
    #[must_use]
    pub fn parked(&self) -> Vec<ParkedEvent> {
        self.inbox.parked().collect()
    }

    pub(super) fn open_event(&self) -> Option<&EventId> {
        let event = self.turn.open.as_ref()?.event.as_ref()?;
        Some(&event.event_id)
    }

    /// Puts the open turn's journal aside. Durable when it returns.
    pub(super) fn set_turn_aside(&mut self) -> Result<(), StoreError> {
        self.clear_journal()?;
        self.release_turn()?;
        let kept = self.turn.set_aside(self.disk.as_ref(), "parked")?;
        let problem = "the journal of a turn that was parked is kept aside".to_owned();
        let finding = Finding::new(self.turn.path(), FindingKind::SetAside, problem);
        self.findings.push(finding.kept(&kept));
        Ok(())
    }

    /// People find parked events by the metadata, so it is written at once.
    fn touch_parked(&mut self, at: Timestamp) -> Result<(), StoreError> {
        self.metadata.parked_events = self.inbox.parked().count() as u64;
        self.touch(at);
        self.flush_metadata()
    }
}
