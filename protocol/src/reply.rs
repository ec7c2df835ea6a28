//! How a connection hears what an agent answered to one of its events (`MSG-13`).
//!
//! Who asks names the event and the conversation that `event.accepted` told it. What came of an event is on
//! disk, so the answer is the same whoever asks, however often, and whatever was restarted meanwhile.

use serde::{Deserialize, Serialize};

use crate::event::TurnOutcome;
use crate::ids::{EventId, InstanceKey};

/// `reply.await`: a connection asks for the reply to one of its own events. It may take as long as a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplyAwait {
    /// The conversation, as `event.accepted` names it.
    pub instance_key: InstanceKey,
    /// The event, as `event.accepted` names it.
    pub event_id: EventId,
}

/// `reply.forget`: nobody waits for the answers to these requests any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplyForget {
    /// The ids of requests `reply.await`.
    pub request_ids: Vec<u64>,
}

/// `reply`: what there is to say of the event now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Reply {
    /// Its turn is over. This stays so.
    Over {
        /// How it ended.
        outcome: TurnOutcome,
    },
    /// Its turn may still come, but nothing is to be waited for now. To ask again later is of use.
    Open {
        /// Why, for people to read.
        message: String,
    },
    /// There is no such event, or not any more.
    Unknown {},
}
