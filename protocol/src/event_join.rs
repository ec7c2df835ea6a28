//! Joins: events that reach an agent together, as one input (`IPC-3`).
//!
//! Each event of a join is a *part*. A part is durable in the inbox of its conversation before it is
//! acknowledged, and holds the terms of its join, so that a later configuration does not change
//! them. Parts with the same join and key are a *set*. If the set ends, its last part becomes the
//! input with the texts of all parts, and the other parts are finished.

use serde::{Deserialize, Serialize};

use crate::ids::EventId;
use crate::time::Timestamp;

/// Role of an event in a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "role",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum EventJoin {
    /// It waits for the other parts.
    Part(Box<JoinPart>),
    /// Its input has the texts of all parts.
    Whole {
        /// The join's name.
        name: String,
        /// The other parts, in the order of their arrival. They are finished.
        parts: Vec<EventId>,
    },
}

/// A part of a join, with the terms under which it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinPart {
    /// The join's name.
    pub name: String,
    /// Name of the part.
    pub part: String,
    /// Value that the parts of a set have in common; `None` if all parts in the conversation belong
    /// together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Names of all parts.
    pub all: Vec<String>,
    /// Time at which a set that begins with this part ends, even if parts are missing.
    pub until: Timestamp,
    /// Fate of a set with missing parts at that time.
    pub on_timeout: JoinTimeout,
}

/// Fate of a set whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinTimeout {
    /// The agent gets the parts that arrived.
    Deliver,
    /// The parts end without a turn.
    Drop,
}

impl JoinTimeout {
    /// As it is written in a configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Drop => "drop",
        }
    }
}

impl EventJoin {
    /// The part that waits, unless it is the whole.
    #[must_use]
    pub fn as_part(&self) -> Option<&JoinPart> {
        match self {
            Self::Part(part) => Some(part),
            Self::Whole { .. } => None,
        }
    }
}
