//! A person decides which of the events that wait has its turn when (`STEER-2`).

use std::collections::BTreeSet;

use goondan_protocol::control::EventPlace;
use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::InstanceStore;
use crate::error::StoreError;

/// What a person wants of an event that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrangement {
    /// That its turn does not begin until it is resumed.
    Pause,
    /// That its turn begins when it is due.
    Resume,
    /// That its turn is due at another time.
    Move(EventPlace),
}

/// The events that wait, once one of them is arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arranged {
    /// In the order of their turns; that of the open turn is the first.
    pub order: Vec<EventId>,
    /// Those of them that wait until they are resumed.
    pub paused: BTreeSet<EventId>,
}

impl InstanceStore {
    /// Arranges an event that waits; again without effect. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event, or the one it is to be before, does not wait;
    /// [`StoreError::InTurn`] if its turn has begun; [`StoreError::File`].
    pub fn arrange(
        &mut self,
        event_id: &EventId,
        arrangement: &Arrangement,
        at: Timestamp,
    ) -> Result<Arranged, StoreError> {
        if let Some(open) = &self.turn.open
            && self.open_event() == Some(event_id)
        {
            return Err(StoreError::InTurn {
                turn_id: open.turn_id.clone(),
                event_id: Some(event_id.clone()),
            });
        }
        match arrangement {
            Arrangement::Pause => self.inbox.pause(event_id, at)?,
            Arrangement::Resume => self.inbox.resume(event_id, at)?,
            Arrangement::Move(place) => {
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
        Ok(Arranged {
            order,
            paused: self.inbox.paused(),
        })
    }

    /// The event that is to be behind the moved one: none comes before the one whose turn is open.
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
