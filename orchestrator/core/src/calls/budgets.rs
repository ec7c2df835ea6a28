//! Budgets: which calls to models may be made.
//!
//! Before a call begins, what it may take at most is reserved; when its reply is put down in the ledger,
//! what it took counts instead. A call that would lead past a limit even if all others took nothing is
//! refused; one for which there is room only if others take less than is reserved for them waits for
//! them.
//!
//! # Invariants
//!
//! * When a call begins, what is spent, what is reserved and what the call may take at most do not pass
//!   any limit together.
//! * A reservation is a field of its call: it ends with the call, however that ends.
//!
//! What a call takes is not known before it is over. The question is taken to have a token for each
//! [`ESTIMATE_BYTES_PER_TOKEN`] bytes, the reply as many as `maxTokens` allows, or
//! [`ESTIMATE_REPLY_TOKENS`] where nobody limits it. By as much as a call takes more than that, a limit
//! may be passed.

use goondan_config::Bundle;
use goondan_protocol::budget::{Amount, Budget, BudgetPeriod, BudgetScope, BudgetState};
use goondan_protocol::call::{CallError, CallErrorCode, CallId, CallTarget};
use goondan_protocol::definition::{HostedModel, ModelParams};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_protocol::trace::{SpanId, TraceContext};
use goondan_protocol::usage::{Charge, MicroUsd, Price, Usage};
use goondan_store::ledger::Line;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::accounts::{Payer, payers, payers_of_line};
use super::for_tasks::place_of;
use super::metering::count_reply;
use super::{Calls, OpenCall};
use crate::exchange::TaskRef;
use crate::fleet::Fleet;
use crate::limits::{
    BUDGET_STATES_SHOWN, BUDGET_WARNING_PERCENT, ESTIMATE_BYTES_PER_TOKEN, ESTIMATE_REPLY_TOKENS,
};

/// Whether a call may begin.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It may, and this is reserved for it.
    Fits(Option<Charge>),
    /// Others may take what it needs; it waits for them.
    Wait,
    /// It may not.
    Refused(CallError),
}

/// What a call may take at most.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    tokens: u64,
    /// None if its model has no price.
    micro_usd: Option<MicroUsd>,
}

impl Estimate {
    fn of(self, limit: Amount) -> Option<u64> {
        match limit {
            Amount::Tokens(_) => Some(self.tokens),
            Amount::MicroUsd(_) => self.micro_usd.map(|amount| amount.0),
        }
    }
}

/// What of a question says how long its reply may be.
#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    params: ModelParams,
}

fn estimate(question: &RawValue, model: Option<&HostedModel>, price: Option<&Price>) -> Estimate {
    let input_tokens = (question.get().len() as u64).div_ceil(ESTIMATE_BYTES_PER_TOKEN);
    // A question that is none is refused by whoever is asked.
    let asked = serde_json::from_str::<Asked>(question.get());
    let wanted = asked.ok().and_then(|asked| asked.params.max_tokens);
    let wanted = wanted.or_else(|| model.and_then(|model| model.params.max_tokens));
    let output_tokens = wanted.map_or(ESTIMATE_REPLY_TOKENS, u64::from);
    let dearest = |price: &Price| Price {
        input: price.input.max(price.cache_read).max(price.cache_write),
        ..*price
    };
    let usage = Usage {
        input_tokens,
        output_tokens,
        ..Usage::default()
    };
    Estimate {
        tokens: usage.total(),
        micro_usd: price.map(|price| dearest(price).of(&usage)),
    }
}

/// The one whose account a budget is about, if a budget concerns it.
fn is_about(
    budget: &Budget,
    payer: &Payer,
    agent_of: impl Fn(&Payer) -> Option<AgentName>,
) -> bool {
    match (budget.scope, payer) {
        (BudgetScope::Workspace, Payer::Workspace) => true,
        (BudgetScope::Agent, Payer::Agent(name)) => {
            budget.agent.as_ref().is_none_or(|only| only == name)
        }
        (BudgetScope::Instance, Payer::Instance(_)) => match &budget.agent {
            None => true,
            Some(only) => agent_of(payer).as_ref() == Some(only),
        },
        // What a swarm allows each conversation is for those of people; a task's counts in that which had it made.
        (BudgetScope::Instance, Payer::Task(_)) => {
            budget.agent.is_some() && agent_of(payer) == budget.agent
        }
        _ => false,
    }
}

/// What a budget is, in words.
pub(super) fn name_of(limit: Amount, period: BudgetPeriod, payer: &Payer) -> String {
    let per = match period {
        BudgetPeriod::Ever => "",
        BudgetPeriod::Day => " a day",
    };
    let whose = match payer {
        Payer::Workspace => "the workspace".to_owned(),
        Payer::Agent(name) => format!("agent `{name}`"),
        Payer::Instance(key) => format!("conversation `{key}`"),
        Payer::Task(task) => format!("task `{}`", task.id),
    };
    format!("the budget of {limit}{per} for {whose}")
}

pub(super) fn within(id: &WorkspaceId, key: &InstanceKey) -> InstanceRef {
    InstanceRef {
        workspace_id: id.clone(),
        instance_key: key.clone(),
    }
}

fn warn_of_budget(fleet: &mut Fleet, at: &InstanceRef, step: Option<SpanId>, warning: &str) {
    let timestamp = fleet.now().wall;
    let turn = fleet.turn_of(at).cloned();
    let trace = turn.as_ref().map(|turn| turn.context.trace);
    let event = LifecycleEvent::BudgetWarning {
        instance_key: at.instance_key.clone(),
        budget: warning.to_owned(),
    };
    fleet.announce(&at.workspace_id, event, trace);
    // What a task took is in no turn; nor is what came after the end of one.
    let Some((turn, agent_name)) = turn.zip(fleet.agent_name(at).cloned()) else {
        return;
    };
    let trace = turn.context.trace;
    let place = TraceContext {
        span_id: step.unwrap_or(trace.span_id),
        parent_span_id: Some(trace.span_id),
        ..trace
    };
    let whose = (agent_name, at.instance_key.clone());
    let kind = RuntimeEventKind::BudgetWarning;
    let event = RuntimeEvent {
        detail: Some(detail_of(warning)),
        ..RuntimeEvent::new(kind, timestamp, place, whose, turn.turn_id)
    };
    fleet.record_observation(at, &event);
}

impl Calls {
    pub(super) fn agent_of(&self, fleet: &Fleet, at: &InstanceRef) -> Option<AgentName> {
        let accounts = self.accounts.get(&at.workspace_id)?;
        let spender = accounts.agent_of(&Payer::Instance(at.instance_key.clone()));
        spender.or_else(|| fleet.agent_name(at)).cloned()
    }

    /// Calls `each` with every limit of a workspace that concerns one of these payers, and what is spent
    /// of it.
    pub(super) fn each_limit(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        payers: &[Payer],
        mut each: impl FnMut(Amount, BudgetPeriod, &Payer, Charge),
    ) {
        let (Some(bundle), Some(accounts)) = (fleet.bundle(id), self.accounts.get(id)) else {
            return;
        };
        let agent_of = |payer: &Payer| match payer {
            Payer::Instance(key) => self.agent_of(fleet, &within(id, key)),
            payer => accounts.agent_of(payer).cloned(),
        };
        for budget in &bundle.budgets {
            for payer in payers {
                if is_about(budget, payer, agent_of) {
                    let spent = accounts.spent(payer, budget.period, fleet.now().wall.day());
                    for limit in budget.limits() {
                        each(limit, budget.period, payer, spent);
                    }
                }
            }
        }
    }

    /// The same with what a person allowed the task that a conversation works for. Of other tasks their own machine
    /// knows what they took.
    fn each_own_limit(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        payers: &[Payer],
        mut each: impl FnMut(Amount, BudgetPeriod, &Payer, Charge),
    ) {
        let accounts = self.accounts.get(id);
        for payer in payers {
            let (Payer::Task(task), Some(accounts)) = (payer, accounts) else {
                continue;
            };
            let budget = fleet.budget_of_task(id, task).unwrap_or_default();
            let tokens = budget.tokens.map(Amount::Tokens);
            let money = budget.micro_usd.map(Amount::MicroUsd);
            for limit in tokens.into_iter().chain(money) {
                each(limit, BudgetPeriod::Ever, payer, accounts.ever(payer));
            }
        }
    }

    /// Everybody whom the reply to a call counts against; nobody, if it is no model's.
    pub(super) fn payers_of(
        &self,
        fleet: &Fleet,
        at: &InstanceRef,
        target: &CallTarget,
    ) -> Vec<Payer> {
        let (CallTarget::Model { .. }, Some(agent)) = (target, fleet.agent_name(at)) else {
            return Vec::new();
        };
        let asked_by = fleet.asked_by(at);
        let agent_of = |key| self.agent_of(fleet, &within(&at.workspace_id, key));
        let agents: Vec<AgentName> = asked_by.iter().filter_map(agent_of).collect();
        let own = match fleet.task_of(at) {
            Some(conversation) => Payer::Task(conversation.ledger_task()),
            None => Payer::Instance(at.instance_key.clone()),
        };
        payers((agent, &agents), (own, &asked_by)).collect()
    }

    /// A reply's line is durable in the ledger: it counts, and who comes near a limit is warned.
    pub(super) fn charge(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        line: &Line,
        step: Option<SpanId>,
    ) {
        let wall = fleet.now().wall;
        let Some(accounts) = self.accounts.get_mut(&at.workspace_id) else {
            return;
        };
        accounts.take(line);
        count_reply(fleet, &at.workspace_id, line);
        if step.is_some() {
            accounts.take_for_task(line);
        }
        self.charged.insert(at.workspace_id.clone());
        let own: Vec<Payer> = payers_of_line(line).collect();
        let charge = line.charge();
        let mut warnings: Vec<String> = Vec::new();
        self.each_limit(
            fleet,
            &at.workspace_id,
            &own,
            |limit, period, payer, spent| {
                if period == BudgetPeriod::Day && line.day != wall.day() {
                    return;
                }
                let is_near = |number: u64| {
                    u128::from(number) * 100 >= u128::from(limit.number()) * BUDGET_WARNING_PERCENT
                };
                let now = limit.of(&spent);
                let before = now.number().saturating_sub(limit.of(&charge).number());
                // Said by the reply that leads past the mark, and so once.
                if is_near(now.number()) && !is_near(before) {
                    let named = name_of(limit, period, payer);
                    let percent = now.percent_of(limit);
                    warnings.push(format!("{named} is spent to {percent} %: {now}"));
                }
            },
        );
        for warning in warnings {
            warn_of_budget(fleet, at, step, &warning);
        }
    }

    /// What is reserved in an account for calls that are being made, and what others took that is about
    /// to count.
    pub(super) fn reserved(&self, id: &WorkspaceId, payer: &Payer) -> Charge {
        let calls = self.open.values();
        let reserved = calls
            .filter(|call| call.at.workspace_id == *id && call.payers.contains(payer))
            .filter_map(|call| call.reserved);
        let charges = self.charges.of(id, payer);
        reserved
            .chain(charges)
            .fold(Charge::default(), Charge::plus)
    }

    /// Whether a call may begin now.
    pub(super) fn budget_verdict(&self, fleet: &Fleet, id: CallId) -> Verdict {
        let Some(call) = self.open.get(&id) else {
            return Verdict::Fits(None);
        };
        match fleet.bundle(&call.at.workspace_id) {
            Some(bundle)
                if !call.payers.is_empty()
                    && (!bundle.budgets.is_empty() || fleet.task_of(&call.at).is_some()) =>
            {
                self.verdict_in(fleet, bundle, call)
            }
            _ => Verdict::Fits(None),
        }
    }

    fn verdict_in(&self, fleet: &Fleet, bundle: &Bundle, call: &OpenCall) -> Verdict {
        let CallTarget::Model { name } = &call.target else {
            return Verdict::Fits(None);
        };
        let price = bundle.prices.get(name);
        let price = price.and_then(|prices| prices.at(fleet.now().wall));
        let estimate = estimate(&call.params, bundle.models.get(name), price);
        let (mut refused, mut waits) = (None, false);
        let id = &call.at.workspace_id;
        let mut judge = |limit: Amount, period, payer: &Payer, spent: Charge| {
            let named = || name_of(limit, period, payer);
            let Some(wanted) = estimate.of(limit) else {
                let why = format!(
                    "{} cannot be kept: model `{name}` has no price now",
                    named()
                );
                refused.get_or_insert((why, NO_PRICE));
                return;
            };
            let of = |charge: &Charge| limit.of(charge).number();
            let needed = of(&spent).saturating_add(wanted);
            let reserved = of(&self.reserved(id, payer));
            if needed > limit.number() {
                let wanted = match limit {
                    Amount::Tokens(_) => Amount::Tokens(wanted),
                    Amount::MicroUsd(_) => Amount::MicroUsd(MicroUsd(wanted)),
                };
                let why = format!(
                    "{} does not allow this call: {} spent, and it may take up to {wanted}",
                    named(),
                    limit.of(&spent),
                );
                refused.get_or_insert((why, hint_of(period, payer)));
            } else if needed.saturating_add(reserved) > limit.number() {
                waits = true;
            }
        };
        self.each_limit(fleet, id, &call.payers, &mut judge);
        self.each_own_limit(fleet, id, &call.payers, &mut judge);
        match refused {
            Some((why, hint)) => {
                let error = CallError::new(CallErrorCode::OverBudget, why);
                Verdict::Refused(error.suggest(hint))
            }
            None if waits => Verdict::Wait,
            None => Verdict::Fits(Some(Charge {
                tokens: estimate.tokens,
                micro_usd: estimate.micro_usd.unwrap_or_default(),
            })),
        }
    }

    /// How the budgets of a workspace stand: of agents and conversations those nearest to their limits.
    pub(crate) fn budget_states(&self, fleet: &Fleet, id: &WorkspaceId) -> Vec<BudgetState> {
        let Some(accounts) = self.accounts.get(id) else {
            return Vec::new();
        };
        let mut everybody: Vec<Payer> = accounts.payers().cloned().collect();
        if !everybody.contains(&Payer::Workspace) {
            everybody.push(Payer::Workspace);
        }
        let mut states: Vec<BudgetState> = Vec::new();
        self.each_limit(fleet, id, &everybody, |limit, period, payer, spent| {
            let (scope, agent_name, instance_key) = match payer {
                Payer::Workspace => (BudgetScope::Workspace, None, None),
                Payer::Agent(name) => (BudgetScope::Agent, Some(name.clone()), None),
                Payer::Instance(key) => {
                    let agent = self.agent_of(fleet, &within(id, key));
                    (BudgetScope::Instance, agent, Some(key.clone()))
                }
                Payer::Task(task) => {
                    let place = place_of(&TaskRef::new(id, &task.id));
                    let agent = accounts.agent_of(payer).cloned();
                    (
                        BudgetScope::Instance,
                        agent,
                        place.ok().map(|at| at.instance_key),
                    )
                }
            };
            states.push(BudgetState {
                workspace_id: id.clone(),
                scope,
                agent_name,
                instance_key,
                period,
                limit,
                spent: limit.of(&spent),
                reserved: limit.of(&Charge::default()),
            });
        });
        states.sort_by_key(|state| {
            let is_whole = state.scope == BudgetScope::Workspace;
            std::cmp::Reverse((is_whole, state.spent.percent_of(state.limit)))
        });
        states.truncate(BUDGET_STATES_SHOWN);
        for state in &mut states {
            let payer = match (&state.scope, &state.agent_name, &state.instance_key) {
                (BudgetScope::Instance, _, Some(key)) => Payer::Instance(key.clone()),
                (BudgetScope::Agent, Some(name), _) => Payer::Agent(name.clone()),
                _ => Payer::Workspace,
            };
            state.reserved = state.limit.of(&self.reserved(id, &payer));
        }
        states
    }
}

const NO_PRICE: &str = "give the Model `prices` that hold today, or set the budget in `tokens`";

pub(super) fn hint_of(period: BudgetPeriod, payer: &Payer) -> &'static str {
    match (period, payer) {
        (BudgetPeriod::Day, _) => "raise it under `budgets`, or wait for the next day (UTC)",
        (BudgetPeriod::Ever, Payer::Instance(_)) => {
            "raise it under `budgets`, or begin a new conversation"
        }
        (BudgetPeriod::Ever, Payer::Task(_)) => {
            "raise it by `gdn task budget`, or under `budgets` if it is that of its agent"
        }
        (BudgetPeriod::Ever, _) => "raise it under `budgets`; `gdn usage` shows what was spent",
    }
}
