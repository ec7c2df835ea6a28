//! Budgets shared by tasks: reports task usage to the budgets, and lets a run start and continue
//! only while they have room (`TASK-6`).

use std::collections::BTreeSet;

use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskStatus;
use goondan_tasks::machine::TaskInput;
use goondan_tasks::state::State;

use super::Tasks;
use super::entry::TaskEntry;
use crate::exchange::TaskRef;
use crate::exchange::task_budgets::TaskSpending;
use crate::fleet::Fleet;

/// Pending reports and queries.
#[derive(Debug, Default)]
pub(super) struct PendingBudgetWork {
    /// Tasks whose durable usage has grown since the last report.
    untold: BTreeSet<TaskRef>,
    /// Tasks whose run waits for a budget decision.
    unjudged: BTreeSet<TaskRef>,
    /// Tasks that must receive their recorded total from the ledger.
    unreckoned: BTreeSet<TaskRef>,
}

impl PendingBudgetWork {
    pub(super) fn note_spent(&mut self, at: &TaskRef) {
        self.untold.insert(at.clone());
    }

    /// Schedules sending a task its recorded total.
    pub(super) fn reckon(&mut self, at: &TaskRef) {
        self.unreckoned.insert(at.clone());
    }

    pub(super) fn take_unreckoned(&mut self) -> BTreeSet<TaskRef> {
        std::mem::take(&mut self.unreckoned)
    }

    pub(super) fn ask_for(&mut self, at: &TaskRef) {
        self.unjudged.insert(at.clone());
    }
}

impl Tasks {
    /// Takes the task usage that has not been reported.
    pub(crate) fn take_spending(&mut self) -> Vec<TaskSpending> {
        let untold = std::mem::take(&mut self.accounting.untold);
        let spending = untold.iter().filter_map(|at| self.spending_of(at));
        let charged = spending.map(|mut spending| {
            let state = self.entry(&spending.at).and_then(TaskEntry::durable);
            if let Some((agent, model)) = state.map(State::charged) {
                spending.agent = agent.clone();
                spending.model = model.map(ToOwned::to_owned);
            }
            spending
        });
        charged.collect()
    }

    /// Takes the tasks whose run waits for a budget decision.
    pub(crate) fn take_unjudged(&mut self) -> Vec<TaskSpending> {
        let unjudged = std::mem::take(&mut self.accounting.unjudged);
        let spending = unjudged.iter().filter_map(|at| self.spending_of(at));
        spending.collect()
    }

    /// The tasks of a workspace that are running, or are held by its budgets.
    pub(crate) fn bound_by_budgets(&self, id: &WorkspaceId) -> Vec<TaskSpending> {
        let entries = self.spaces.get(id).into_iter().flat_map(|s| &s.entries);
        let bound = entries.filter(|(_, entry)| entry.state().is_some_and(is_bound));
        let bound = bound.map(|(task, _)| TaskRef::new(id, task));
        bound.filter_map(|at| self.spending_of(&at)).collect()
    }

    fn spending_of(&self, at: &TaskRef) -> Option<TaskSpending> {
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
