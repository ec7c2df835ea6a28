//! An event and the turn that answered it, as recorded by folds and inboxes.

use std::borrow::Cow;

use goondan_protocol::ids::{EventId, TurnId};
use serde::{Deserialize, Serialize};

use super::turn::{CommitRecord, EndedTurn, OpenTurn, TurnEvent};

/// An event, and the turn that answered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnswerRef {
    pub event_id: EventId,
    /// Its sequence number in the inbox; 0 if unknown.
    pub inbox_seq: u64,
    pub turn_id: TurnId,
}

impl AnswerRef {
    fn new(event: &TurnEvent, turn_id: &TurnId) -> Self {
        Self {
            event_id: event.event_id.clone(),
            inbox_seq: event.inbox_seq,
            turn_id: turn_id.clone(),
        }
    }

    /// Returns the answers of a committed turn.
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

    /// Returns the answers of an ended turn, as far as the journal has them.
    pub(super) fn of_ended(turn: &EndedTurn) -> Vec<Self> {
        match &turn.commit {
            Some(commit) => Self::of_commit(commit),
            None => Self::of_turn(&turn.turn_id, turn.event.as_ref(), &[]),
        }
    }

    /// Returns the answer named by a message, used when the checksums are lost: agents store the id of
    /// a turn's event in the metadata of the turn's first message.
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
