//! Counts task usage in the ledger and budgets of the workspace, like model replies (`TASK-6`).
//!
//! A task reports its total usage, as far as its own history holds it durably; the amount beyond
//! the ledger's total is recorded. A crash therefore neither counts usage twice nor loses it. A
//! program's usage is known only afterwards, so a limit can be exceeded by the amount that the next
//! call exceeds the largest call so far.

use goondan_protocol::budget::BudgetPeriod;
use goondan_protocol::ids::{AgentName, ResourceName, WorkspaceId};
use goondan_protocol::usage::Charge;
use goondan_store::ledger::{LedgerEntry, LedgerTask, ReplyPurpose};
use goondan_tasks::state::TokenSpend;

use super::Calls;
use super::accounts::{BudgetOwner, payers};
use super::budgets::{hint_of, name_of};
use super::task_calls::place_of;
use crate::exchange::task_budgets::TaskSpending;
use crate::fleet::Fleet;

impl TaskSpending {
    fn ledger_task(&self) -> LedgerTask {
        LedgerTask {
            id: self.at.task_id.clone(),
            created_at: self.created_at,
        }
    }

    /// The model's name as the program reports it, if valid; otherwise the agent's name.
    fn model_name(&self) -> Option<ResourceName> {
        let told = self.model.as_deref().map(ResourceName::new);
        let told = told.and_then(Result::ok);
        told.or_else(|| ResourceName::new(self.agent.as_str()).ok())
    }
}

impl Calls {
    /// Records the part of a task's total usage that the ledger lacks.
    pub(crate) fn on_task_spending(&mut self, fleet: &mut Fleet, spending: &TaskSpending) {
        let id = &spending.at.workspace_id;
        let asked_by_agents = self.creators(fleet, spending);
        let task = spending.ledger_task();
        let Some(accounts) = self.accounts.get_mut(id) else {
            return;
        };
        let (Ok(at), Some(model)) = (place_of(&spending.at), spending.model_name()) else {
            return;
        };
        let Some(taken) = accounts.owed(&task, &spending.total) else {
            return;
        };
        // A program that never reported costs has an unknown cost, not zero cost.
        let tells_cost = spending.total.cost.0 > 0;
        let entry = LedgerEntry {
            id: fleet.cx().uuid(),
            at: fleet.now().wall,
            agent_name: spending.agent.clone(),
            instance_key: at.instance_key.clone(),
            asked_by: spending.created_by.iter().cloned().collect(),
            asked_by_agents,
            purpose: ReplyPurpose::Task { task },
            model,
            usage: Some(taken.usage),
            cost_micro_usd: tells_cost.then_some(taken.cost),
            assumed: Charge::default(),
        };
        self.put_down(fleet, at, Box::new(entry));
    }

    /// Total usage of a task in the ledger.
    pub(crate) fn taken_by(&self, id: &WorkspaceId, task: &LedgerTask) -> TokenSpend {
        let accounts = self.accounts.get(id);
        accounts.map_or_else(TokenSpend::default, |accounts| accounts.taken_by(task))
    }

    /// The agent that created a task, if it is another agent.
    fn creators(&self, fleet: &Fleet, spending: &TaskSpending) -> Vec<AgentName> {
        let id = &spending.at.workspace_id;
        let creator = spending.created_by.as_ref();
        let creator =
            creator.and_then(|key| self.agent_of(fleet, &super::budgets::within(id, key)));
        let creator = creator.filter(|creator| *creator != spending.agent);
        creator.into_iter().collect()
    }

    /// Describes the budget that a task has exhausted; `None` if every budget has room.
    pub(crate) fn shortage_of(&self, fleet: &Fleet, spending: &TaskSpending) -> Option<String> {
        let id = &spending.at.workspace_id;
        if fleet
            .bundle(id)
            .is_none_or(|bundle| bundle.budgets.is_empty())
        {
            return None;
        }
        let creators = self.creators(fleet, spending);
        let own = BudgetOwner::Task(spending.ledger_task());
        let created_by: Vec<_> = spending.created_by.iter().cloned().collect();
        let payers: Vec<BudgetOwner> =
            payers((&spending.agent, &creators), (own, &created_by)).collect();
        let mut short = None;
        self.each_limit(fleet, id, &payers, |limit, period, payer, spent| {
            let pending = self.charges.of(id, payer);
            let spent = pending.fold(spent, Charge::plus);
            let of = |charge: &Charge| limit.of(charge).number();
            let next = of(&spent).saturating_add(of(&spending.largest));
            if of(&spent) >= limit.number() || next > limit.number() {
                short.get_or_insert_with(|| {
                    exceeded_text(
                        &name_of(limit, period, payer),
                        period,
                        payer,
                        limit.of(&spent),
                    )
                });
            }
        });
        short
    }

    pub(crate) fn budgeted(&self, fleet: &Fleet) -> Vec<WorkspaceId> {
        let ids = self.accounts.keys();
        let budgeted = ids.filter(|id| {
            let bundle = fleet.bundle(id);
            bundle.is_some_and(|bundle| !bundle.budgets.is_empty())
        });
        budgeted.cloned().collect()
    }
}

fn exceeded_text(
    named: &str,
    period: BudgetPeriod,
    payer: &BudgetOwner,
    spent: goondan_protocol::budget::Amount,
) -> String {
    let hint = hint_of(period, payer);
    format!("the next call might exceed {named}: {spent} spent; {hint}")
}
