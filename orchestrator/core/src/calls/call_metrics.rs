//! Metrics of outgoing calls, usage and budgets (`OBS-3`).
//!
//! Usage metrics come from the sums of the ledger, so they match the disk after every crash.

use std::collections::BTreeMap;

use goondan_protocol::budget::{Amount, BudgetPeriod};
use goondan_protocol::call::{CallErrorCode, CallOutcome, CallTarget};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::metrics::{Label, Labels, Metric, Micros, Sample};
use goondan_protocol::usage::Charge;
use goondan_store::ledger::LedgerSum;

use super::accounts::BudgetOwner;
use super::{Calls, OpenCall};
use crate::fleet::Fleet;
use crate::fleet::fleet_metrics::{REQUEST_OUTCOMES, of_workspace};

/// The state of one budget, for a payer.
struct BudgetStatus<'p> {
    payer: &'p BudgetOwner,
    limit: Amount,
    spent: Amount,
}

/// Labels of the process that executes a call.
fn of_target(id: &WorkspaceId, target: &CallTarget) -> Labels {
    let labels = of_workspace(id);
    match target {
        CallTarget::Model { name } => labels.with(Label::Model, name.as_str()),
        CallTarget::Connection { name } => labels.with(Label::Connection, name.as_str()),
    }
}

/// Counts a call that was interrupted with an unknown effect.
pub(super) fn count_unknown(fleet: &mut Fleet, id: &WorkspaceId, target: &CallTarget) {
    let labels = of_target(id, target);
    fleet
        .cx()
        .count(Metric::CallsUnknown, labels, Micros::whole(1));
}

/// Counts a request to a model by its outcome.
pub(super) fn count_request(fleet: &mut Fleet, call: &OpenCall, outcome: &CallOutcome) {
    if !matches!(call.target, CallTarget::Model { .. }) {
        return;
    }
    let labels = of_target(&call.at.workspace_id, &call.target);
    let (told, labels) = match outcome {
        CallOutcome::Ok(_) => (REQUEST_OUTCOMES[0], labels),
        CallOutcome::Error(error) if error.code == CallErrorCode::Cancelled => return,
        CallOutcome::Error(error) => {
            let labels = labels.with(Label::ErrorType, error.code.as_str());
            (REQUEST_OUTCOMES[1], labels)
        }
    };
    let of_model = of_target(&call.at.workspace_id, &call.target);
    let of_model = of_model.with(Label::Outcome, told);
    fleet
        .cx()
        .count(Metric::ModelRequests, of_model, Micros::whole(1));
    let took_ms = fleet.now().mono_ms.saturating_sub(call.begun_ms);
    let took = Micros::millis(took_ms);
    fleet
        .cx()
        .count(Metric::GenAiOperationDuration, labels, took);
}

/// Counts a successful call to a connection as traffic of its agent.
pub(super) fn count_sent(fleet: &mut Fleet, call: &OpenCall, outcome: &CallOutcome) {
    let (CallTarget::Connection { name }, CallOutcome::Ok(_)) = (&call.target, outcome) else {
        return;
    };
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&call.at.workspace_id) {
        workspace.count_call(cx, &call.agent, name);
    }
}

/// Counts the usage of a reply once the ledger holds it.
pub(super) fn count_reply(fleet: &mut Fleet, id: &WorkspaceId, line: &LedgerSum) {
    let usage = &line.spending.usage;
    if line.spending.unmetered > 0 {
        return;
    }
    let labels = of_workspace(id)
        .with(Label::Agent, line.agent_name.as_str())
        .with(Label::Model, line.model.as_str());
    for (kind, tokens) in [("input", usage.read()), ("output", usage.output_tokens)] {
        let labels = labels.clone().with(Label::GenAiTokenType, kind);
        fleet
            .cx()
            .count(Metric::GenAiTokenUsage, labels, Micros::whole(tokens));
    }
}

impl Calls {
    /// Current samples of budgets and usage.
    pub(crate) fn samples(&self, fleet: &Fleet) -> Vec<Sample> {
        let mut samples = Vec::new();
        for id in self.accounts.keys() {
            self.sample_ledger(&mut samples, id);
            self.sample_budgets(&mut samples, fleet, id);
        }
        samples
    }

    fn sample_ledger(&self, samples: &mut Vec<Sample>, id: &WorkspaceId) {
        let Some(accounts) = self.accounts.get(id) else {
            return;
        };
        for (agent, model, spending) in accounts.by_model() {
            let labels = of_workspace(id)
                .with(Label::Agent, agent.as_str())
                .with(Label::Model, model.as_str());
            let usage = &spending.usage;
            for (kind, tokens) in [
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cache_read", usage.cache_read_tokens),
                ("cache_write", usage.cache_write_tokens),
            ] {
                samples.push(Sample {
                    metric: Metric::Tokens,
                    labels: labels.clone().with(Label::TokenType, kind),
                    value: Micros::whole(tokens),
                });
            }
            for (metric, value) in [
                (Metric::Replies, Micros::whole(spending.replies)),
                (Metric::Cost, Micros(spending.cost_micro_usd.0)),
            ] {
                samples.push(Sample {
                    metric,
                    labels: labels.clone(),
                    value,
                });
            }
        }
    }

    fn sample_budgets(&self, samples: &mut Vec<Sample>, fleet: &Fleet, id: &WorkspaceId) {
        let Some(accounts) = self.accounts.get(id) else {
            return;
        };
        let mut everybody: Vec<BudgetOwner> = accounts.payers().cloned().collect();
        if !everybody.contains(&BudgetOwner::Workspace) {
            everybody.push(BudgetOwner::Workspace);
        }
        let mut nearest: BTreeMap<Labels, BudgetStatus<'_>> = BTreeMap::new();
        let mut each = |limit: Amount, period: BudgetPeriod, payer: usize, spent: Charge| {
            let Some(payer) = everybody.get(payer) else {
                return;
            };
            let labels = self.labels_of_budget(fleet, id, payer, limit, period);
            let spent = limit.of(&spent);
            let is_nearer = |known: &BudgetStatus<'_>| {
                spent.percent_of(limit) > known.spent.percent_of(known.limit)
            };
            if nearest.get(&labels).is_none_or(is_nearer) {
                let standing = BudgetStatus {
                    payer,
                    limit,
                    spent,
                };
                nearest.insert(labels, standing);
            }
        };
        for (place, payer) in everybody.iter().enumerate() {
            let payer = std::slice::from_ref(payer);
            self.each_limit(fleet, id, payer, |limit, period, _, spent| {
                each(limit, period, place, spent);
            });
        }
        for (labels, standing) in nearest {
            let reserved = standing.limit.of(&self.reserved(id, standing.payer));
            for (metric, amount) in [
                (Metric::BudgetLimit, standing.limit),
                (Metric::BudgetSpent, standing.spent),
                (Metric::BudgetReserved, reserved),
            ] {
                let value = match amount {
                    Amount::Tokens(tokens) => Micros::whole(tokens),
                    Amount::MicroUsd(amount) => Micros(amount.0),
                };
                let labels = labels.clone();
                samples.push(Sample {
                    metric,
                    labels,
                    value,
                });
            }
        }
    }

    fn labels_of_budget(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        payer: &BudgetOwner,
        limit: Amount,
        period: BudgetPeriod,
    ) -> Labels {
        let accounts = self.accounts.get(id);
        let (scope, agent) = match payer {
            BudgetOwner::Workspace => ("workspace", None),
            BudgetOwner::Agent(name) => ("agent", Some(name.clone())),
            BudgetOwner::Instance(key) => {
                let at = InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: key.clone(),
                };
                ("instance", self.agent_of(fleet, &at))
            }
            BudgetOwner::Task(_) => {
                let agent = accounts.and_then(|accounts| accounts.agent_of(payer));
                ("instance", agent.cloned())
            }
        };
        let labels = of_workspace(id)
            .with(Label::Scope, scope)
            .with(
                Label::Period,
                match period {
                    BudgetPeriod::Ever => "ever",
                    BudgetPeriod::Day => "day",
                },
            )
            .with(
                Label::Unit,
                match limit {
                    Amount::Tokens(_) => "tokens",
                    Amount::MicroUsd(_) => "usd",
                },
            );
        match agent {
            Some(agent) => labels.with(Label::Agent, agent.as_str()),
            None => labels,
        }
    }
}
