//! One call of a step and how far it has come.

use goondan_protocol::ids::StepId;
use goondan_protocol::message::ToolCall;
use goondan_protocol::observe::{RuntimeEventKind as Kind, detail_of};
use goondan_protocol::usage::Spent;

use crate::middleware::InvocationId;
use crate::tool_call::ToolOutcome;
use crate::turn::effect::{Effect, Observation, Scope};

/// A call and how far it has come.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) call: ToolCall,
    pub(super) state: State,
    /// Middlewares of modules that wait for the call's result, the outermost first.
    pub(super) open: Vec<Open>,
    /// Whether its end has been told.
    pub(super) is_told: bool,
    /// Whether a person is asked before it is carried out: nobody waits for its result meanwhile.
    pub(super) needs_person: bool,
    /// Whether a process before this one may have begun it.
    pub(super) may_have_begun: bool,
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
        }
    }
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum State {
    ToRun,
    /// To be answered with this, unless the tool is not offered at all.
    Unfit(String),
    /// On its way inwards through the layers of extensions.
    Inwards(Inwards),
    /// A middleware of a module is at work.
    Invoking(Invoking),
    Running,
    /// On its way outwards.
    Outwards(Outwards),
    Finished(ToolOutcome),
    Recorded,
}

/// A middleware that was entered: its layer and the invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) at: usize,
    pub(super) invocation: InvocationId,
}

/// A call on its way inwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inwards {
    /// The layer to be entered.
    pub(super) at: usize,
    /// Whether a middleware changed the arguments.
    pub(super) is_changed: bool,
}

/// A call that a middleware works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Invoking {
    pub(super) place: usize,
    pub(super) open: Open,
    pub(super) direction: Direction,
}

/// Whether it has asked for what lies further in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    In { is_changed: bool },
    Out { has_run: bool },
}

/// A call on its way outwards.
#[derive(Debug)]
pub(super) struct Outwards {
    /// The layers from this one on have been left, or were never entered.
    pub(super) below: usize,
    pub(super) outcome: ToolOutcome,
    /// Whether the tool has run.
    pub(super) has_run: bool,
}

pub(super) fn scope_of(step_id: &StepId, call: &ToolCall) -> Scope {
    Scope::Call {
        step_id: step_id.clone(),
        call_id: call.id.clone(),
        tool_name: call.tool_name.clone(),
    }
}

pub(super) fn called(step_id: &StepId, call: &ToolCall) -> Effect {
    Effect::Observe(Observation {
        kind: Kind::ToolCalled,
        scope: scope_of(step_id, call),
        spent: Spent::default(),
        response: None,
        outcome_unknown: false,
        detail: Some(detail_of(&call.input.to_string())),
    })
}
