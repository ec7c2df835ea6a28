//! An event and the turn that answered it, as folds and inboxes name them.

use std::borrow::Cow;

use goondan_protocol::ids::{EventId, TurnId};
use serde::{Deserialize, Serialize};

use super::turn::{CommitRecord, Ended, OpenTurn, TurnEvent};

/// An event, and the turn that answered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    pub event_id: EventId,
    /// Its place in the inbox; 0 if that is not known.
    pub inbox_seq: u64,
    pub turn_id: TurnId,
}

impl Answer {
    fn new(event: &TurnEvent, turn_id: &TurnId) -> Self {
        Self {
            event_id: event.event_id.clone(),
            inbox_seq: event.inbox_seq,
            turn_id: turn_id.clone(),
        }
    }

    /// The answers that a committed turn gives.
    pub(super) fn of_turn<'a>(
        turn_id: &TurnId,
        event: Option<&'a TurnEvent>,
        also: &'a [TurnEvent],
    ) -> Vec<Self> {
        let events = also.iter().chain(event);
        events.map(|event| Self::new(event, turn_id)).collect()
    }

    pub(super) fn of_commit(commit: &CommitRecord) -> Vec<Self> {
        Self::of_turn(&commit.turn_id, commit.event.as_ref(), &commit.also)
    }

    /// The answers of a turn that is over, as far as the journal still tells them.
    pub(super) fn of_ended(turn: &Ended) -> Vec<Self> {
        match &turn.commit {
            Some(commit) => Self::of_commit(commit),
            None => Self::of_turn(&turn.turn_id, turn.event.as_ref(), &[]),
        }
    }

    /// The answer that a message of a conversation speaks of whose checksums are lost: agents put the id
    /// of the event that a turn is about on the message they begin it with.
    pub(super) fn named_by(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            metadata: Metadata<'a>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata<'a> {
            #[serde(borrow)]
            event_id: Cow<'a, str>,
        }
        let message: Message<'_> = serde_json::from_slice(line).ok()?;
        Some(Self {
            event_id: message.metadata.event_id.parse().ok()?,
            inbox_seq: 0,
            turn_id: OpenTurn::foreign_id(),
        })
    }
}
