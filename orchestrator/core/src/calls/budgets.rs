//! Budgets: admission control for calls to models.
//!
//! Before a call begins, its maximum cost is reserved. When the ledger records its reply, the
//! actual cost replaces the reservation. A call that exceeds a limit even without the other
//! reservations is rejected; a call that fits only if other calls cost less than reserved waits for
//! them.
//!
//! # Invariants
//!
//! * When a call begins, the sum of spending, reservations and the call's maximum does not exceed
//!   any limit.
//! * A reservation is a field of its call, so it ends with the call in every case.
//!
//! The cost of a call is unknown until it ends. The estimate is one token per
//! [`ESTIMATE_BYTES_PER_TOKEN`] bytes of the request, and `maxTokens` for the reply, or
//! [`ESTIMATE_REPLY_TOKENS`] if the reply is unlimited. A limit can be exceeded by the amount that
//! a call exceeds its estimate.

use goondan_config::ProjectConfig;
use goondan_protocol::budget::{Amount, Budget, BudgetPeriod, BudgetScope, BudgetState};
use goondan_protocol::call::{CallError, CallErrorCode, CallId, CallTarget};
use goondan_protocol::definition::{HostedModel, ModelParams};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, detail_of};
use goondan_protocol::trace::{SpanId, TraceContext};
use goondan_protocol::usage::{Charge, MicroUsd, Price, Usage};
use goondan_store::ledger::LedgerSum;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::accounts::{BudgetOwner, payers, payers_of_line};
use super::call_metrics::count_reply;
use super::task_calls::place_of;
use super::{Calls, OpenCall};
use crate::bus::queue::{Message, Notice};
use crate::exchange::TaskRef;
use crate::fleet::Fleet;
use crate::fleet::conversation::Conversation;
use crate::fleet::task_conversations::TaskConversation;
use crate::limits::{
    BUDGET_STATES_SHOWN, BUDGET_WARNING_PERCENT, ESTIMATE_BYTES_PER_TOKEN, ESTIMATE_REPLY_TOKENS,
};

/// Admission decision for a call.
#[derive(Debug)]
pub(super) enum Admission {
    /// The call may begin with this reservation.
    Fits(Option<Charge>),
    /// The call waits, because other calls may use the budget it needs.
    Wait,
    /// The call exceeds a limit.
    Refused(CallError),
}

/// Maximum cost of a call.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    tokens: u64,
    /// `None` if the model has no price.
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

/// The part of a model request that limits the reply's length.
#[derive(Deserialize)]
struct ReplyLimits {
    #[serde(default)]
    params: ModelParams,
}

fn estimate(question: &RawValue, model: Option<&HostedModel>, price: Option<&Price>) -> Estimate {
    let input_tokens = (question.get().len() as u64).div_ceil(ESTIMATE_BYTES_PER_TOKEN);
    // The provider rejects an invalid request.
    let asked = serde_json::from_str::<ReplyLimits>(question.get());
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

/// True if a budget applies to this payer.
fn is_about(
    budget: &Budget,
    payer: &BudgetOwner,
    agent_of: impl Fn(&BudgetOwner) -> Option<AgentName>,
) -> bool {
    match (budget.scope, payer) {
        (BudgetScope::Workspace, BudgetOwner::Workspace) => true,
        (BudgetScope::Agent, BudgetOwner::Agent(name)) => {
            budget.agent.as_ref().is_none_or(|only| only == name)
        }
        (BudgetScope::Instance, BudgetOwner::Instance(_)) => match &budget.agent {
            None => true,
            Some(only) => agent_of(payer).as_ref() == Some(only),
        },
        // The swarm's limit per conversation applies to user conversations. A task counts against
        // the conversation that created it.
        (BudgetScope::Instance, BudgetOwner::Task(_)) => {
            budget.agent.is_some() && agent_of(payer) == budget.agent
        }
        _ => false,
    }
}

/// Description of a budget for messages.
pub(super) fn name_of(limit: Amount, period: BudgetPeriod, payer: &BudgetOwner) -> String {
    let per = match period {
        BudgetPeriod::Ever => "",
        BudgetPeriod::Day => " a day",
    };
    let whose = match payer {
        BudgetOwner::Workspace => "the workspace".to_owned(),
        BudgetOwner::Agent(name) => format!("agent `{name}`"),
        BudgetOwner::Instance(key) => format!("conversation `{key}`"),
        BudgetOwner::Task(task) => format!("task `{}`", task.id),
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
    let turn = fleet.conversation(at).and_then(Conversation::turn).cloned();
    let trace = turn.as_ref().map(|turn| turn.context.trace);
    let event = LifecycleEvent::BudgetWarning {
        instance_key: at.instance_key.clone(),
        budget: warning.to_owned(),
    };
    fleet.announce(&at.workspace_id, event, trace);
    // Task usage belongs to no turn, and neither does usage reported after the turn ended.
    let Some((turn, agent_name)) =
        turn.zip(fleet.conversation(at).map(Conversation::agent).cloned())
    else {
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
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&at.workspace_id) {
        workspace.record_observation(cx, at, &event);
    }
}

/// The task that a conversation works on, if any.
pub(super) fn task_of<'f>(fleet: &'f Fleet, at: &InstanceRef) -> Option<&'f TaskConversation> {
    let workspace = fleet.workspaces().get(&at.workspace_id)?;
    workspace.task_of(&at.instance_key)
}

impl Calls {
    pub(super) fn agent_of(&self, fleet: &Fleet, at: &InstanceRef) -> Option<AgentName> {
        let accounts = self.accounts.get(&at.workspace_id)?;
        let spender = accounts.agent_of(&BudgetOwner::Instance(at.instance_key.clone()));
        let own = || fleet.conversation(at).map(Conversation::agent);
        spender.or_else(own).cloned()
    }

    /// Calls `each` with every limit of a workspace that applies to one of these payers, and the
    /// amount spent.
    pub(super) fn each_limit(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        payers: &[BudgetOwner],
        mut each: impl FnMut(Amount, BudgetPeriod, &BudgetOwner, Charge),
    ) {
        let (Some(bundle), Some(accounts)) = (fleet.bundle(id), self.accounts.get(id)) else {
            return;
        };
        let agent_of = |payer: &BudgetOwner| match payer {
            BudgetOwner::Instance(key) => self.agent_of(fleet, &within(id, key)),
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

    /// Calls `each` with the limits that a user set for the tasks among `payers`, and the amount
    /// spent.
    fn each_own_limit(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        payers: &[BudgetOwner],
        mut each: impl FnMut(Amount, BudgetPeriod, &BudgetOwner, Charge),
    ) {
        let accounts = self.accounts.get(id);
        for payer in payers {
            let (BudgetOwner::Task(task), Some(accounts)) = (payer, accounts) else {
                continue;
            };
            let workspace = fleet.workspaces().get(id);
            let budget = workspace.and_then(|it| it.task_conversations.budget_of(task));
            let budget = budget.unwrap_or_default();
            let tokens = budget.tokens.map(Amount::Tokens);
            let money = budget.micro_usd.map(Amount::MicroUsd);
            for limit in tokens.into_iter().chain(money) {
                each(limit, BudgetPeriod::Ever, payer, accounts.ever(payer));
            }
        }
    }

    /// The payers that the reply to a call counts against; empty if the target is not a model.
    pub(super) fn payers_of(
        &self,
        fleet: &Fleet,
        at: &InstanceRef,
        target: &CallTarget,
    ) -> Vec<BudgetOwner> {
        let (CallTarget::Model { .. }, Some(entry)) = (target, fleet.conversation(at)) else {
            return Vec::new();
        };
        let agent = entry.agent();
        let asked_by = entry.asked_by(&at.instance_key);
        let agent_of = |key| self.agent_of(fleet, &within(&at.workspace_id, key));
        let agents: Vec<AgentName> = asked_by.iter().filter_map(agent_of).collect();
        let own = match task_of(fleet, at) {
            Some(conversation) => BudgetOwner::Task(conversation.ledger_task()),
            None => BudgetOwner::Instance(at.instance_key.clone()),
        };
        payers((agent, &agents), (own, &asked_by)).collect()
    }

    /// Counts a durable ledger line and warns about limits that are nearly reached.
    pub(super) fn charge(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        line: &LedgerSum,
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
        fleet.post(Message::Notice(Notice::Charged(at.workspace_id.clone())));
        let own: Vec<BudgetOwner> = payers_of_line(line).collect();
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
                // Emitted by the reply that crosses the threshold, and therefore once.
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

    /// Reservations of running calls in an account, plus usage that is not durable yet.
    pub(super) fn reserved(&self, id: &WorkspaceId, payer: &BudgetOwner) -> Charge {
        let calls = self.open.values();
        let reserved = calls
            .filter(|call| call.at.workspace_id == *id && call.payers.contains(payer))
            .filter_map(|call| call.reserved);
        let charges = self.charges.of(id, payer);
        reserved
            .chain(charges)
            .fold(Charge::default(), Charge::plus)
    }

    /// Decides if a call may begin now.
    pub(super) fn budget_verdict(&self, fleet: &Fleet, id: CallId) -> Admission {
        let Some(call) = self.open.get(&id) else {
            return Admission::Fits(None);
        };
        match fleet.bundle(&call.at.workspace_id) {
            Some(bundle)
                if !call.payers.is_empty()
                    && (!bundle.budgets.is_empty() || task_of(fleet, &call.at).is_some()) =>
            {
                self.verdict_in(fleet, bundle, call)
            }
            _ => Admission::Fits(None),
        }
    }

    fn verdict_in(&self, fleet: &Fleet, bundle: &ProjectConfig, call: &OpenCall) -> Admission {
        let CallTarget::Model { name } = &call.target else {
            return Admission::Fits(None);
        };
        let price = bundle.prices.get(name);
        let price = price.and_then(|prices| prices.at(fleet.now().wall));
        let estimate = estimate(&call.params, bundle.models.get(name), price);
        let (mut refused, mut waits) = (None, false);
        let id = &call.at.workspace_id;
        let mut judge = |limit: Amount, period, payer: &BudgetOwner, spent: Charge| {
            let named = || name_of(limit, period, payer);
            let Some(wanted) = estimate.of(limit) else {
                let why = format!(
                    "cannot enforce {}: model `{name}` has no current price",
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
                    "{} does not allow this call: {} spent, and the call may cost up to {wanted}",
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
                Admission::Refused(error.suggest(hint))
            }
            None if waits => Admission::Wait,
            None => Admission::Fits(Some(Charge {
                tokens: estimate.tokens,
                micro_usd: estimate.micro_usd.unwrap_or_default(),
            })),
        }
    }

    /// The budgets of a workspace. For agents and conversations, only those closest to their
    /// limits.
    pub(crate) fn budget_states(&self, fleet: &Fleet, id: &WorkspaceId) -> Vec<BudgetState> {
        let Some(accounts) = self.accounts.get(id) else {
            return Vec::new();
        };
        let mut everybody: Vec<BudgetOwner> = accounts.payers().cloned().collect();
        if !everybody.contains(&BudgetOwner::Workspace) {
            everybody.push(BudgetOwner::Workspace);
        }
        let mut states: Vec<BudgetState> = Vec::new();
        self.each_limit(fleet, id, &everybody, |limit, period, payer, spent| {
            let (scope, agent_name, instance_key) = match payer {
                BudgetOwner::Workspace => (BudgetScope::Workspace, None, None),
                BudgetOwner::Agent(name) => (BudgetScope::Agent, Some(name.clone()), None),
                BudgetOwner::Instance(key) => {
                    let agent = self.agent_of(fleet, &within(id, key));
                    (BudgetScope::Instance, agent, Some(key.clone()))
                }
                BudgetOwner::Task(task) => {
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
                (BudgetScope::Instance, _, Some(key)) => BudgetOwner::Instance(key.clone()),
                (BudgetScope::Agent, Some(name), _) => BudgetOwner::Agent(name.clone()),
                _ => BudgetOwner::Workspace,
            };
            state.reserved = state.limit.of(&self.reserved(id, &payer));
        }
        states
    }
}

const NO_PRICE: &str = "add `prices` that apply today to the Model, or set the budget in `tokens`";

pub(super) fn hint_of(period: BudgetPeriod, payer: &BudgetOwner) -> &'static str {
    match (period, payer) {
        (BudgetPeriod::Day, _) => "raise it under `budgets`, or wait for the next day (UTC)",
        (BudgetPeriod::Ever, BudgetOwner::Instance(_)) => {
            "raise it under `budgets`, or start a new conversation"
        }
        (BudgetPeriod::Ever, BudgetOwner::Task(_)) => {
            "raise it with `gdn task budget`, or under `budgets` if it is the agent's budget"
        }
        (BudgetPeriod::Ever, _) => {
            "raise it under `budgets`; run `gdn usage` to see what was spent"
        }
    }
}
