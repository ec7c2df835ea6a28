//! Content of an instance's manifest (`MSG-11`).

use std::collections::BTreeMap;

use goondan_durable::manifest::{Claim, State};
use goondan_protocol::ids::{EventId, TurnId};
use serde::{Deserialize, Serialize};

/// Durable extent of an open turn at the last sync of its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnClaim {
    pub turn_id: TurnId,
    pub event_id: EventId,
    /// Number of its message events.
    pub events: u64,
}

/// Claims about an instance's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KnownFiles {
    pub files: BTreeMap<String, Claim>,
    /// Claim about the open turn.
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
