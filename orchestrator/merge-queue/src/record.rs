//! Durable records of a queue.

use goondan_protocol::task::TaskId;
use serde::{Deserialize, Serialize};

use crate::entry::{Outcome, Place, Proposal, Revision};

/// Something that happened, as `event` and `data`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "event",
    content = "data",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Record {
    /// A person approved the proposal for the queue.
    Entered {
        proposal: Proposal,
    },
    Held {
        task: TaskId,
        why: String,
    },
    Released {
        task: TaskId,
    },
    Moved {
        task: TaskId,
        to: Place,
    },
    Prioritized {
        task: TaskId,
        priority: i32,
    },
    /// An attempt to land these proposals together, in this order.
    AttemptBegun {
        attempt: u64,
        tasks: Vec<TaskId>,
    },
    /// Intent: from now on, the landing may have happened.
    LandingBegun {
        attempt: u64,
        base: Revision,
        result: Revision,
    },
    /// The landing did not happen, and the attempt is over.
    LandingAborted {
        attempt: u64,
    },
    /// The proposals of the attempt are on the target, or in a pull request.
    Landed {
        attempt: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pull_request: Option<String>,
    },
    /// The pull request of the attempt is merged or closed: later proofs do not add its change.
    PullRequestEnded {
        attempt: u64,
    },
    /// The proposal left the queue without landing.
    Left {
        task: TaskId,
        outcome: Outcome,
    },
    /// The task has recorded the outcome.
    Acknowledged {
        task: TaskId,
    },
}
