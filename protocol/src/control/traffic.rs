//! `workspace.traffic`: numbers of events and calls between connections and agents.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, ConnectionName, WorkspaceId};
use crate::time::Timestamp;

/// `workspace.traffic`: the flows of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadTraffic {
    /// The workspace.
    pub workspace_id: WorkspaceId,
}

/// A sender or receiver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TrafficEnd {
    /// An agent.
    Agent {
        /// Its name.
        name: AgentName,
    },
    /// A connection. Clients such as `gdn` are the connection `cli`.
    Connection {
        /// Its name.
        name: ConnectionName,
    },
}

/// Everything that one sender sent to one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficFlow {
    /// The sender.
    pub from: TrafficEnd,
    /// The receiver.
    pub to: TrafficEnd,
    /// Number of durable events, or of successful calls if the receiver is a connection.
    pub count: u64,
    /// Time of the latest one.
    pub last_at: Timestamp,
}

/// Result of `workspace.traffic`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficReport {
    /// Time of the counts.
    pub at: Timestamp,
    /// Start of counting: the daemon's start, or a later opening of the workspace.
    pub since: Timestamp,
    /// The flows, ordered by sender and receiver.
    pub flows: Vec<TrafficFlow>,
    /// Number of events and calls between further senders and receivers, which are too many to be
    /// counted separately.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
