//! What a manifest says of an instance (`MSG-11`).

use std::collections::BTreeMap;

use goondan_durable::manifest::{Claim, State};
use goondan_protocol::ids::{EventId, TurnId};
use serde::{Deserialize, Serialize};

/// How much of an open turn was on record when its journal was last made durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnClaim {
    /// The turn.
    pub turn_id: TurnId,
    /// The event it answers.
    pub event_id: EventId,
    /// Its message events.
    pub events: u64,
}

/// What is known of an instance's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KnownFiles {
    /// Of each, by its name.
    pub files: BTreeMap<String, Claim>,
    /// Of the turn that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnClaim>,
}

impl State for KnownFiles {
    fn files(&self) -> &BTreeMap<String, Claim> {
        &self.files
    }

    fn files_mut(&mut self) -> &mut BTreeMap<String, Claim> {
        &mut self.files
    }
}
