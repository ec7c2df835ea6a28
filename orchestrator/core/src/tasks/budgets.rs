//! Budgets shared by tasks: reports task usage to the budgets, and lets a run start and continue
//! only while they have room (`TASK-6`).

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskStatus;
use goondan_tasks::machine::TaskInput;
use goondan_tasks::state::State;

use super::Tasks;
use super::entry::TaskEntry;
use crate::exchange::TaskRef;
use crate::exchange::task_budgets::TaskSpending;
use crate::fleet::Fleet;

impl Tasks {
    /// Durable usage of a task, with the agent and model that it is charged to.
    pub(crate) fn charged_spending_of(&self, at: &TaskRef) -> Option<TaskSpending> {
        let mut spending = self.spending_of(at)?;
        let state = self.entry(at).and_then(TaskEntry::durable);
        if let Some((agent, model)) = state.map(State::charged) {
            spending.agent = agent.clone();
            spending.model = model.map(ToOwned::to_owned);
        }
        Some(spending)
    }

    /// The tasks of a workspace that are running, or are held by its budgets.
    pub(crate) fn bound_by_budgets(&self, id: &WorkspaceId) -> Vec<TaskSpending> {
        let entries = self.spaces.get(id).into_iter().flat_map(|s| &s.entries);
        let bound = entries.filter(|(_, entry)| entry.state().is_some_and(is_bound));
        let bound = bound.map(|(task, _)| TaskRef::new(id, task));
        bound.filter_map(|at| self.spending_of(&at)).collect()
    }

    /// Durable usage of a task.
    pub(crate) fn spending_of(&self, at: &TaskRef) -> Option<TaskSpending> {
        let state = self.entry(at).and_then(TaskEntry::durable)?;
        Some(TaskSpending {
            at: at.clone(),
            created_at: state.created_at(),
            agent: state.agent().clone(),
            created_by: state.task.created_by.clone(),
            model: state.model.clone(),
            total: state.tokens.total(),
            largest: state.tokens.largest(),
        })
    }

    /// Handles a budget decision: the exhausted budget, if any.
    pub(crate) fn on_budgets(&mut self, fleet: &mut Fleet, at: &TaskRef, shortage: Option<String>) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let is_allowed = shortage.is_none();
        if let Some(pending) = &mut entry.pending {
            pending.is_allowed = is_allowed;
        }
        if entry.shortage != shortage {
            entry.shortage.clone_from(&shortage);
            self.input(fleet, at, TaskInput::SharedBudgets { shortage }, None);
        }
        if is_allowed {
            self.start_waiting(fleet);
        }
    }
}

/// True if the task is running or held by a budget.
fn is_bound(state: &State) -> bool {
    let is_held = state.status() == TaskStatus::Paused && state.waits_for().is_some();
    state.run.is_some() || is_held
}
