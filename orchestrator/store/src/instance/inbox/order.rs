//! Changes by a user to the order of waiting events (`STEER-2`).

use std::collections::BTreeSet;

use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::{Inbox, QueueRecord, wrong};
use crate::error::StoreError;

impl Inbox {
    pub(in super::super) fn paused(&self) -> BTreeSet<EventId> {
        let pending = self.table.in_order();
        let paused = pending.filter(|(_, entry)| entry.paused.is_some());
        paused.map(|(_, entry)| entry.event.id.clone()).collect()
    }

    /// True if the event is paused.
    pub(in super::super) fn is_paused(&self, event_id: &EventId) -> bool {
        let found = self.pending_of(event_id);
        found.is_some_and(|(_, entry)| entry.paused.is_some())
    }

    /// Pauses a waiting event, unless it is paused. Durable only after [`Self::sync`].
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
        self.append(&QueueRecord::Paused { seq, event_id, at })
    }

    /// Resumes a paused event, unless it is not paused. Durable only after [`Self::sync`].
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
        self.append(&QueueRecord::Resumed { seq, event_id, at })
    }

    /// Moves an event before another, or to the end, unless it is there. Durable only after
    /// [`Self::sync`].
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
        self.append(&QueueRecord::Moved {
            seq,
            event_id,
            before,
            at,
        })
    }

    /// Returns the waiting event after another one in the order of turns.
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
