//! Reordering and pausing of waiting events by a user (`STEER-2`).

use std::collections::BTreeSet;

use goondan_protocol::control::EventPlace;
use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::InstanceStore;
use crate::error::StoreError;

/// A change to a waiting event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueOp {
    /// Hold its turn until it is resumed.
    Pause,
    /// Let its turn begin when it is due.
    Resume,
    /// Move its turn to another position.
    Move(EventPlace),
}

/// The waiting events after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOrder {
    /// Events in the order of their turns; the open turn's event is the first.
    pub order: Vec<EventId>,
    pub paused: BTreeSet<EventId>,
}

impl InstanceStore {
    /// Changes a waiting event. Idempotent. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event, or its new successor, is not waiting;
    /// [`StoreError::InTurn`] if its turn has begun; [`StoreError::File`].
    pub fn arrange(
        &mut self,
        event_id: &EventId,
        arrangement: &QueueOp,
        at: Timestamp,
    ) -> Result<QueueOrder, StoreError> {
        if let Some(open) = &self.turn.open
            && self.open_event() == Some(event_id)
        {
            return Err(StoreError::InTurn {
                turn_id: open.turn_id.clone(),
                event_id: Some(event_id.clone()),
            });
        }
        match arrangement {
            QueueOp::Pause => self.inbox.pause(event_id, at)?,
            QueueOp::Resume => self.inbox.resume(event_id, at)?,
            QueueOp::Move(place) => {
                let before = self.before(event_id, place);
                self.inbox.move_before(event_id, before.as_ref(), at)?;
            }
        }
        self.inbox.sync()?;
        let open = self.open_event();
        let ids = self.inbox.waiting().map(|event| event.id.clone());
        let (mut order, others): (Vec<EventId>, Vec<EventId>) =
            ids.partition(|id| Some(id) == open);
        order.extend(others);
        Ok(QueueOrder {
            order,
            paused: self.inbox.paused(),
        })
    }

    /// Returns the new successor of the moved event. No event moves before the open turn's.
    fn before(&self, event_id: &EventId, place: &EventPlace) -> Option<EventId> {
        let open = self.open_event();
        match place {
            EventPlace::Last => None,
            EventPlace::First => {
                let mut others = self.inbox.waiting().map(|event| &event.id);
                others
                    .find(|id| *id != event_id && Some(*id) != open)
                    .cloned()
            }
            EventPlace::Before(other) if Some(other) == open => {
                let next = self.inbox.after(other);
                match next.filter(|next| *next == event_id) {
                    Some(own) => self.inbox.after(own).cloned(),
                    None => next.cloned(),
                }
            }
            EventPlace::Before(other) => Some(other.clone()),
        }
    }
}
