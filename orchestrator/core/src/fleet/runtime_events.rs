//! Validation of agents' reports about their turns (`SEC-7`).
//!
//! A report describes an event and its duration. The daemon, not the agent, sets the owner, the
//! time and the trace context.

use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{AgentName, InstanceRef};
use goondan_protocol::limits::MAX_NAME_BYTES;
use goondan_protocol::observe::{
    ModelResponse, RuntimeEvent, RuntimeEventKind as Kind, SpanPhase, detail_of, refusal_of,
};
use goondan_protocol::sandbox::Level;
use goondan_protocol::trace::{SpanId, TraceContext};

use super::Workspace;
use super::authority::is_step_of;
use super::quotas::ReportDecision;
use super::turn::ActiveTurn;
use crate::bus::context::Cx;
use crate::{ClockTime, LogEvent, ProcessId};

/// The part of a turn that an event concerns.
enum Scope {
    Turn,
    Step,
    Call,
}

fn scope_of(kind: Kind) -> Option<Scope> {
    match kind {
        Kind::TurnStarted
        | Kind::TurnResumed
        | Kind::TurnCompleted
        | Kind::TurnFailed
        | Kind::MessageWarning => Some(Scope::Turn),
        Kind::StepStarted | Kind::StepCompleted | Kind::StepFailed => Some(Scope::Step),
        Kind::ToolCalled | Kind::ToolCompleted | Kind::ToolFailed => Some(Scope::Call),
        // Emitted by the daemon only.
        Kind::TurnParked
        | Kind::BudgetWarning
        | Kind::QuestionAsked
        | Kind::QuestionClosed
        | Kind::ApprovalAsked
        | Kind::ApprovalClosed => None,
    }
}

/// The recorded form of a report: the event comes from the agent, all other fields from the daemon.
/// `programs` is the confinement level of the agent's programs.
///
/// # Errors
///
/// The problem, if a correct agent would not send the report.
pub(super) fn corrected(
    reported: RuntimeEvent,
    (at, agent): (&InstanceRef, &AgentName),
    programs: Option<Level>,
    turn: &ActiveTurn,
    now: ClockTime,
) -> Result<RuntimeEvent, &'static str> {
    if reported.turn_id != turn.turn_id {
        return Err("it reported on a turn that is not in progress");
    }
    let scope =
        scope_of(reported.kind).ok_or("it sent a report that only the orchestrator may send")?;
    let whole = turn.context.trace;
    let step = || {
        let step = reported.step_id.clone();
        step.filter(|step| is_step_of(&turn.turn_id, step))
            .ok_or("it reported on a step of another turn")
    };
    let (place, step_id, tool_call_id) = match scope {
        Scope::Turn => (whole, None, None),
        Scope::Step => {
            let step = step()?;
            (whole.child(SpanId::of_step(&step)), Some(step), None)
        }
        Scope::Call => {
            let step = step()?;
            let call = reported.tool_call_id.clone();
            let call = call.ok_or("it reported on a tool call without its id")?;
            let span = SpanId::of_call(&step, &call);
            let around: TraceContext = whole.child(SpanId::of_step(&step));
            (around.child(span), Some(step), Some(call))
        }
    };
    let is_start = matches!(reported.kind, Kind::TurnStarted | Kind::TurnResumed);
    let elapsed_ms = now.mono_ms.saturating_sub(turn.handed_over_ms);
    let is_counted = matches!(
        reported.kind,
        Kind::StepCompleted | Kind::TurnCompleted | Kind::TurnFailed
    );
    let ends = matches!(reported.kind.phase(), SpanPhase::Ends(_));
    let whose = (agent.clone(), at.instance_key.clone());
    let turn_id = turn.turn_id.clone();
    Ok(RuntimeEvent {
        event_id: matches!(scope, Scope::Turn).then(|| turn.context.event_id.clone()),
        tool_name: reported
            .tool_name
            .filter(|_| tool_call_id.is_some())
            .map(|name| name.chars().take(MAX_NAME_BYTES).collect()),
        step_id,
        tool_call_id,
        config_digest: turn.context.config_digest.clone().filter(|_| is_start),
        duration_ms: reported
            .duration_ms
            .filter(|_| ends)
            .map(|said| said.min(elapsed_ms)),
        usage: reported.usage.filter(|_| is_counted),
        cost_micro_usd: reported.cost_micro_usd.filter(|_| is_counted),
        response: reported
            .response
            .filter(|_| reported.kind == Kind::StepCompleted)
            .map(ModelResponse::shortened),
        sandbox: reported
            .sandbox
            .and(programs)
            .filter(|_| ends && matches!(scope, Scope::Call)),
        outcome_unknown: reported.outcome_unknown && reported.kind == Kind::ToolFailed,
        refusal: reported
            .refusal
            .filter(|_| ends && matches!(scope, Scope::Call))
            .map(|refusal| refusal_of(&refusal)),
        detail: reported.detail.as_deref().map(detail_of),
        ..RuntimeEvent::new(reported.kind, now.wall, place, whose, turn_id)
    })
}

impl Workspace {
    /// Handles an agent's report about its turn.
    pub(crate) fn on_observe(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        event: RuntimeEvent,
    ) {
        let now = cx.now();
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let Some(turn) = entry.turn() else {
            return self.on_broken(cx, process, "it reported on a turn that is not in progress");
        };
        if entry.open_turn().is_none() && entry.slot().is_dying() {
            // Reports about another process's steps are too late.
            return;
        }
        let programs = entry.definition().and_then(AgentDefinition::programs);
        let revision = entry.overlay().standing.active.clone();
        let event = match corrected(event, (at, entry.agent()), programs, turn, now) {
            Ok(event) => RuntimeEvent {
                bundle_revision: revision,
                ..event
            },
            Err(problem) => return self.on_broken(cx, process, problem),
        };
        if let Some(refusal) = &event.refusal {
            entry.note_refusal(refusal, now.wall);
        }
        let Some(turn) = entry.turn_mut() else {
            return;
        };
        let reported = turn.used.observe(now.mono_ms);
        let kind = event.kind;
        match reported {
            ReportDecision::Kept => {
                self.record_observation(cx, at, &event);
            }
            ReportDecision::Dropped { first: false } => {}
            ReportDecision::Dropped { first: true } => {
                let log = LogEvent::warn("turn sends too many reports; dropping some").of(at);
                self.log(cx, log.with("turnId", event.turn_id.as_str()));
            }
            ReportDecision::Flood => {
                return self.on_broken(cx, process, "it flooded the daemon with reports");
            }
        }
        // Independent of the report's kind, because a user must be notified of each unknown
        // outcome.
        if event.outcome_unknown {
            self.on_unknown_call(cx, at, process, event);
        }
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.on_step_over(cx, process, kind);
        }
    }
}
