//! Gives the events of a turn a time, a span and a log line (`MSG-12`, `LOG-3`).

use std::collections::HashMap;
use std::time::Instant;

use goondan_protocol::ids::{AgentName, EventId, InstanceKey, StepId, TurnId};
use goondan_protocol::message::ToolCall;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind as Kind, SpanPhase};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{SpanId, TraceContext};

use crate::turn::{Observation, Scope};

/// The trace of the running turn.
#[derive(Debug)]
pub(crate) struct Recorder {
    turn_id: TurnId,
    event_id: EventId,
    trace: TraceContext,
    begun: HashMap<SpanId, Instant>,
}

impl Recorder {
    /// Creates a recorder of the turn that answers an event; `trace` is the turn's span.
    pub(crate) fn new(turn_id: TurnId, event_id: EventId, trace: TraceContext) -> Self {
        Self {
            turn_id,
            event_id,
            trace,
            begun: HashMap::new(),
        }
    }

    /// The turn's span.
    pub(crate) fn trace(&self) -> TraceContext {
        self.trace
    }

    /// Trace context of an event of this turn. The spans of steps and calls are derived from their
    /// ids, so a span that began before a crash ends as the same span after it.
    pub(crate) fn place_of(&self, scope: &Scope) -> TraceContext {
        let step = |step_id| self.trace.child(SpanId::of_step(step_id));
        match scope {
            Scope::Turn => self.trace,
            Scope::Step(step_id) => step(step_id),
            Scope::Call {
                step_id, call_id, ..
            } => step(step_id).child(SpanId::of_call(step_id, call_id)),
        }
    }

    /// The span for log lines of a tool call of this turn.
    pub(crate) fn log_span(&self, step_id: &StepId, call: &ToolCall) -> tracing::Span {
        let place = self.place_of(&Scope::Call {
            step_id: step_id.clone(),
            call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
        });
        tracing::info_span!(
            "call",
            trace_id = tracing::field::display(place.trace_id),
            span_id = tracing::field::display(place.span_id),
            parent_span_id = place.parent_span_id.map(tracing::field::display),
            turn_id = self.turn_id.as_str(),
            step_id = step_id.as_str(),
            tool_call_id = call.id.as_str(),
            tool_name = call.tool_name,
        )
    }

    /// The span for log lines of extensions.
    pub(crate) fn turn_span(&self) -> tracing::Span {
        let place = self.trace;
        tracing::info_span!(
            "turn",
            trace_id = tracing::field::display(place.trace_id),
            span_id = tracing::field::display(place.span_id),
            parent_span_id = place.parent_span_id.map(tracing::field::display),
            turn_id = self.turn_id.as_str(),
        )
    }

    /// Creates the event and logs it.
    pub(crate) fn record(
        &mut self,
        observation: Observation,
        agent_name: &AgentName,
        instance_key: &InstanceKey,
        timestamp: Timestamp,
        now: Instant,
    ) -> RuntimeEvent {
        let place = self.place_of(&observation.scope);
        let duration_ms = match observation.kind.phase() {
            SpanPhase::Begins => {
                self.begun.insert(place.span_id, now);
                None
            }
            SpanPhase::Ends(_) => self.begun.remove(&place.span_id).map(|begun| {
                let lasted = now.saturating_duration_since(begun);
                u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX)
            }),
            SpanPhase::Within => None,
        };
        let event_id = matches!(observation.scope, Scope::Turn).then(|| self.event_id.clone());
        let (step_id, tool_call_id, tool_name) = match observation.scope {
            Scope::Turn => (None, None, None),
            Scope::Step(step_id) => (Some(step_id), None, None),
            Scope::Call {
                step_id,
                call_id,
                tool_name,
            } => (Some(step_id), Some(call_id), Some(tool_name)),
        };
        let whose = (agent_name.clone(), instance_key.clone());
        let turn_id = self.turn_id.clone();
        let event = RuntimeEvent {
            event_id,
            step_id,
            tool_call_id,
            tool_name,
            duration_ms,
            usage: observation.spent.usage,
            cost_micro_usd: observation.spent.cost,
            response: observation.response,
            outcome_unknown: observation.outcome_unknown,
            refusal: observation.refusal,
            detail: observation.detail,
            ..RuntimeEvent::new(observation.kind, timestamp, place, whose, turn_id)
        };
        log(&event);
        event
    }
}

/// Logs one line per event, those of every turn as details. Failure reasons are logged,
/// conversation text is not.
fn log(event: &RuntimeEvent) {
    let failed = matches!(
        event.kind,
        Kind::TurnFailed | Kind::StepFailed | Kind::ToolFailed | Kind::MessageWarning
    );
    let reason = event.detail.as_deref().filter(|_| failed);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                trace_id = %event.trace_id,
                span_id = %event.span_id,
                parent_span_id = event.parent_span_id.map(tracing::field::display),
                turn_id = event.turn_id.as_str(),
                step_id = event.step_id.as_ref().map(AsRef::<str>::as_ref),
                tool_call_id = event.tool_call_id.as_ref().map(AsRef::<str>::as_ref),
                tool_name = event.tool_name.as_deref(),
                duration_ms = event.duration_ms,
                reason,
                "{}", event.kind.as_str()
            )
        };
    }
    match event.kind {
        Kind::TurnFailed | Kind::MessageWarning => line!(warn),
        // Every turn has these. The daemon logs its end, and the history of turns has each step.
        Kind::TurnStarted | Kind::TurnCompleted | Kind::StepStarted | Kind::StepCompleted => {
            line!(debug);
        }
        // A failed step is retried or fails its turn, and a tool's failure is for the model.
        _ => line!(info),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use goondan_protocol::ids::ToolCallId;
    use goondan_protocol::trace::TraceId;
    use goondan_protocol::usage::ReplyCost;

    use super::*;

    #[test]
    fn spans_nest_and_a_span_ends_with_the_id_it_began_with() {
        let turn_id = TurnId::new("t").unwrap();
        let trace = TraceContext::root(TraceId::from_random([1; 16]), SpanId::from_random([2; 8]));
        let start = Instant::now();
        let step_id = StepId::of_turn(&turn_id, 1);
        let call = Scope::Call {
            step_id: step_id.clone(),
            call_id: ToolCallId::new("c").unwrap(),
            tool_name: "x__y".into(),
        };
        let event_id = EventId::new("e").unwrap();
        let mut recorder = Recorder::new(turn_id.clone(), event_id.clone(), trace);
        let record = |recorder: &mut Recorder, kind, scope: &Scope, at_ms| {
            let observation = Observation {
                kind,
                scope: scope.clone(),
                spent: ReplyCost::default(),
                response: None,
                outcome_unknown: false,
                refusal: None,
                detail: None,
            };
            recorder.record(
                observation,
                &AgentName::new("a").unwrap(),
                &InstanceKey::new("k").unwrap(),
                Timestamp::from_unix_millis(0),
                start + Duration::from_millis(at_ms),
            )
        };
        let turn = record(&mut recorder, Kind::TurnStarted, &Scope::Turn, 0);
        assert_eq!(turn.event_id.as_ref(), Some(&event_id));
        let step = record(&mut recorder, Kind::StepStarted, &Scope::Step(step_id), 0);
        let called = record(&mut recorder, Kind::ToolCalled, &call, 5);
        let ended = record(&mut recorder, Kind::ToolCompleted, &call, 12);
        assert_eq!(step.event_id, None);
        assert_eq!(step.parent_span_id, Some(trace.span_id));
        assert_eq!(called.parent_span_id, Some(step.span_id));
        assert_eq!(ended.span_id, called.span_id);
        assert_eq!(ended.duration_ms, Some(7));

        let mut resumed = Recorder::new(turn_id, event_id, trace);
        let ended = record(&mut resumed, Kind::ToolFailed, &call, 20);
        assert_eq!(ended.span_id, called.span_id);
        assert_eq!(ended.duration_ms, None);
    }
}
