//! Task usage, for the ledger and for shared budgets (`TASK-6`).

use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::Charge;
use goondan_tasks::state::TokenSpend;

use super::TaskRef;

/// Usage of a task, and the budget owners it counts against.
#[derive(Debug, Clone)]
pub(crate) struct TaskSpending {
    pub(crate) at: TaskRef,
    /// Creation time. Together with the id it identifies the task uniquely.
    pub(crate) created_at: Timestamp,
    pub(crate) agent: AgentName,
    /// The conversation whose agent created the task.
    pub(crate) created_by: Option<InstanceKey>,
    /// The program's name for its model.
    pub(crate) model: Option<String>,
    pub(crate) total: TokenSpend,
    /// Estimated maximum of the next call.
    pub(crate) largest: Charge,
}
