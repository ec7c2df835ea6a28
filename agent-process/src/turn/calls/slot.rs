//! One call of a step and its progress.

use goondan_protocol::ids::StepId;
use goondan_protocol::message::ToolCall;
use goondan_protocol::observe::{RuntimeEventKind as Kind, detail_of};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::ReplyCost;

use crate::middleware::InvocationId;
use crate::tool_call::ToolOutcome;
use crate::turn::effect::{Observation, Scope, TurnEngineEffect};

/// A call and its progress.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) call: ToolCall,
    pub(super) state: State,
    /// Middlewares of modules that wait for the call's result, the outermost first.
    pub(super) open: Vec<EnteredLayer>,
    /// True if its end has been reported.
    pub(super) is_told: bool,
    /// True if a person must approve the call before it runs; other results do not wait for it.
    pub(super) needs_person: bool,
    /// True if an earlier process may have begun the call.
    pub(super) may_have_begun: bool,
    /// Time of the reply that made the call, if an earlier process recorded it.
    pub(super) asked_at: Option<Timestamp>,
}

impl Slot {
    pub(super) fn new(call: ToolCall, state: State) -> Self {
        Self {
            call,
            state,
            open: Vec::new(),
            is_told: false,
            needs_person: false,
            may_have_begun: false,
            asked_at: None,
        }
    }
}

#[derive(Debug)]
pub(super) enum State {
    ToRun,
    /// Ends with this error unless the tool is not offered at all.
    Unfit(String),
    /// Passing inwards through the layers of extensions.
    Inwards(InboundCall),
    /// A middleware of a module is running.
    Invoking(ToolMiddlewareRun),
    Running,
    /// Passing outwards through the layers.
    Outwards(OutboundResult),
    Finished(ToolOutcome),
    Recorded,
}

/// A middleware that was entered: its layer and the invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnteredLayer {
    pub(super) at: usize,
    pub(super) invocation: InvocationId,
}

/// A call that passes inwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct InboundCall {
    /// The next layer to enter.
    pub(super) at: usize,
    /// True if a middleware changed the arguments.
    pub(super) is_changed: bool,
}

/// A call whose middleware is running.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolMiddlewareRun {
    pub(super) place: usize,
    pub(super) open: EnteredLayer,
    pub(super) direction: Direction,
}

/// Direction of the call: whether the middleware has called `next()`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    In { is_changed: bool },
    Out { has_run: bool },
}

/// A call that passes outwards.
#[derive(Debug)]
pub(super) struct OutboundResult {
    /// Layers from this one on have been left, or were never entered.
    pub(super) below: usize,
    pub(super) outcome: ToolOutcome,
    /// True if the tool has run.
    pub(super) has_run: bool,
}

pub(super) fn scope_of(step_id: &StepId, call: &ToolCall) -> Scope {
    Scope::Call {
        step_id: step_id.clone(),
        call_id: call.id.clone(),
        tool_name: call.tool_name.clone(),
    }
}

pub(super) fn called(step_id: &StepId, call: &ToolCall) -> TurnEngineEffect {
    TurnEngineEffect::Observe(Observation {
        kind: Kind::ToolCalled,
        scope: scope_of(step_id, call),
        spent: ReplyCost::default(),
        response: None,
        outcome_unknown: false,
        refusal: None,
        detail: Some(detail_of(&call.input.to_string())),
    })
}
