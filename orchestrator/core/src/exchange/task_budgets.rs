//! What tasks took, for the ledger and for the budgets that they share with others (`TASK-6`).

use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::Charge;
use goondan_tasks::state::Taken;

use super::TaskRef;

/// What a task took, and whom it counts against.
#[derive(Debug, Clone)]
pub(crate) struct TaskSpending {
    pub(crate) at: TaskRef,
    /// When it was made: with its id this names it for ever.
    pub(crate) created_at: Timestamp,
    pub(crate) agent: AgentName,
    /// The conversation whose agent had it made.
    pub(crate) created_by: Option<InstanceKey>,
    /// What its program calls its model.
    pub(crate) model: Option<String>,
    /// All of it, as far as it is durable.
    pub(crate) total: Taken,
    /// What the next call may take.
    pub(crate) largest: Charge,
}
