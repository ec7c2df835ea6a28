//! Which of the events that wait has its turn when, by a person (`STEER-2`).

use std::collections::BTreeSet;

use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::{Inbox, Record, wrong};
use crate::error::StoreError;

impl Inbox {
    /// The events that a person has wait.
    pub(in super::super) fn paused(&self) -> BTreeSet<EventId> {
        let pending = self.table.in_order();
        let paused = pending.filter(|(_, entry)| entry.paused.is_some());
        paused.map(|(_, entry)| entry.event.id.clone()).collect()
    }

    /// Whether a person has an event wait.
    pub(in super::super) fn is_paused(&self, event_id: &EventId) -> bool {
        let found = self.pending_of(event_id);
        found.is_some_and(|(_, entry)| entry.paused.is_some())
    }

    /// Appends that an event waits until it is resumed. Does nothing if it does. Not durable before
    /// [`Self::sync`].
    pub(in super::super) fn pause(
        &mut self,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (seq, is_paused) = self.find_waiting(event_id)?;
        if is_paused {
            return Ok(());
        }
        let event_id = event_id.clone();
        self.append(&Record::Paused { seq, event_id, at })
    }

    /// Appends that an event waits for its turn again. Does nothing if it does. Not durable before
    /// [`Self::sync`].
    pub(in super::super) fn resume(
        &mut self,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (seq, is_paused) = self.find_waiting(event_id)?;
        if !is_paused {
            return Ok(());
        }
        let event_id = event_id.clone();
        self.append(&Record::Resumed { seq, event_id, at })
    }

    /// Appends that an event has its turn before that of another, or as the last. Does nothing if it has. Not
    /// durable before [`Self::sync`].
    pub(in super::super) fn move_before(
        &mut self,
        event_id: &EventId,
        before: Option<&EventId>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (seq, _) = self.find_waiting(event_id)?;
        if let Some(before) = before {
            self.find_waiting(before)?;
        }
        if before == Some(event_id) || self.after(event_id) == before {
            return Ok(());
        }
        let (event_id, before) = (event_id.clone(), before.cloned());
        self.append(&Record::Moved {
            seq,
            event_id,
            before,
            at,
        })
    }

    /// The event whose turn is behind that of another, of those that wait.
    pub(in super::super) fn after(&self, event_id: &EventId) -> Option<&EventId> {
        let mut waiting = self.waiting().map(|event| &event.id);
        waiting.find(|id| *id == event_id);
        waiting.next()
    }

    fn find_waiting(&self, event_id: &EventId) -> Result<(u64, bool), StoreError> {
        let found = self.pending_of(event_id);
        let found = found.filter(|(_, entry)| entry.parked.is_none());
        let (seq, entry) = found.ok_or_else(|| wrong(event_id))?;
        Ok((seq, entry.paused.is_some()))
    }
}
