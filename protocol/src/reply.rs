//! Messages by which a connection gets the agent's answer to one of its events (`MSG-13`).
//!
//! The request names the event and the conversation from `event.accepted`. The outcome of an event
//! is stored on disk, so repeated requests return the same answer, even after restarts.

use serde::{Deserialize, Serialize};

use crate::event::TurnOutcome;
use crate::ids::{EventId, InstanceKey};

/// `reply.await`: a connection requests the reply to one of its events. The reply may take as long
/// as a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplyAwait {
    /// The conversation, as `event.accepted` names it.
    pub instance_key: InstanceKey,
    /// The event, as `event.accepted` names it.
    pub event_id: EventId,
}

/// `reply.forget`: the connection no longer waits for the replies to these requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplyForget {
    /// The ids of the `reply.await` requests.
    pub request_ids: Vec<u64>,
}

/// `reply`: the current state of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Reply {
    /// The turn is over. This is final.
    Over {
        /// Outcome of the turn.
        outcome: TurnOutcome,
    },
    /// The turn may still happen, but there is nothing to wait for now. The connection may request
    /// the reply later.
    Open {
        /// Why, for people to read.
        message: String,
    },
    /// The event does not exist, or no longer exists.
    Unknown {},
}
