//! State of a span, derived from its runtime events. Traces, lists of turns and exporters share
//! this code (`MSG-12`).

use serde::Serialize;

use super::{RuntimeEvent, RuntimeEventKind as Kind};
use crate::time::Timestamp;

/// Role of an event within its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanPhase {
    /// The span starts, or resumes in a new process.
    Begins,
    /// The span ends with an outcome.
    Ends(SpanOutcome),
    /// The event happened within the span.
    Within,
}

/// Outcome of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanOutcome {
    /// Successful.
    Completed,
    /// Failed.
    Failed,
    /// Parked: the event waits for a person. Only turns can be parked.
    Parked,
}

impl Kind {
    /// The role of this event in its span.
    #[must_use]
    pub fn phase(self) -> SpanPhase {
        match self {
            Self::TurnStarted | Self::TurnResumed | Self::StepStarted | Self::ToolCalled => {
                SpanPhase::Begins
            }
            Self::TurnCompleted | Self::StepCompleted | Self::ToolCompleted => {
                SpanPhase::Ends(SpanOutcome::Completed)
            }
            Self::TurnFailed | Self::StepFailed | Self::ToolFailed => {
                SpanPhase::Ends(SpanOutcome::Failed)
            }
            Self::TurnParked => SpanPhase::Ends(SpanOutcome::Parked),
            Self::QuestionAsked
            | Self::QuestionClosed
            | Self::ApprovalAsked
            | Self::ApprovalClosed
            | Self::BudgetWarning
            | Self::MessageWarning => SpanPhase::Within,
        }
    }
}

/// State of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanState {
    /// Not ended, as far as known.
    Open,
    /// Successful.
    Completed,
    /// Failed.
    Failed,
    /// Parked: the event waits for a person.
    Parked,
}

impl From<SpanOutcome> for SpanState {
    fn from(outcome: SpanOutcome) -> Self {
        match outcome {
            SpanOutcome::Completed => Self::Completed,
            SpanOutcome::Failed => Self::Failed,
            SpanOutcome::Parked => Self::Parked,
        }
    }
}

/// A span, reconstructed from its known events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanRecord {
    /// Start time. If the start was not seen, it is computed from the end time and the duration.
    pub started_at: Timestamp,
    /// End time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Its state.
    pub standing: SpanState,
    /// Number of processes that worked on a turn.
    pub attempts: u32,
}

impl SpanRecord {
    /// Creates the record from the first known event of the span.
    #[must_use]
    pub fn begun_by(event: &RuntimeEvent) -> Self {
        let lasted_ms = match event.kind.phase() {
            SpanPhase::Ends(_) => event.duration_ms.unwrap_or(0),
            SpanPhase::Begins | SpanPhase::Within => 0,
        };
        let lasted_ms = i64::try_from(lasted_ms).unwrap_or(i64::MAX);
        let at_ms = event.timestamp.as_unix_millis();
        Self {
            started_at: Timestamp::from_unix_millis(at_ms.saturating_sub(lasted_ms).max(0)),
            ended_at: None,
            standing: SpanState::Open,
            attempts: 0,
        }
    }

    /// Applies an event of the span, including the first one.
    pub fn take(&mut self, event: &RuntimeEvent) {
        match event.kind.phase() {
            SpanPhase::Begins => {
                let is_turn = matches!(event.kind, Kind::TurnStarted | Kind::TurnResumed);
                self.attempts += u32::from(is_turn);
            }
            SpanPhase::Ends(outcome) => {
                self.standing = outcome.into();
                self.ended_at = Some(event.timestamp);
            }
            SpanPhase::Within => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, at_ms: u32, duration_ms: Option<u64>) -> RuntimeEvent {
        serde_json::from_value(json!({
            "type": kind, "timestamp": format!("2026-01-01T00:00:00.{at_ms:03}Z"),
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
            "agentName": "clerk", "instanceKey": "main", "turnId": "t", "durationMs": duration_ms,
        }))
        .unwrap()
    }

    fn record_of(events: &[RuntimeEvent]) -> SpanRecord {
        let mut record = SpanRecord::begun_by(&events[0]);
        for event in events {
            record.take(event);
        }
        record
    }

    #[test]
    fn turn_ended_by_a_second_process_is_one_span_of_two_attempts() {
        let events = [
            event("turn.started", 100, None),
            event("budget.warning", 150, None),
            event("turn.resumed", 200, None),
            event("turn.failed", 350, Some(150)),
        ];
        let open = record_of(&events[..3]);
        assert_eq!((open.standing, open.ended_at), (SpanState::Open, None));
        let ended = record_of(&events);
        assert_eq!((ended.standing, ended.attempts), (SpanState::Failed, 2));
        assert_eq!(ended.started_at, events[0].timestamp);
        assert_eq!(ended.ended_at, Some(events[3].timestamp));
    }

    #[test]
    fn span_without_observed_start_is_dated_by_its_duration() {
        let record = record_of(&[event("tool.completed", 500, Some(300))]);
        assert_eq!(record.started_at, event("tool.called", 200, None).timestamp);
        let endless = record_of(&[event("tool.completed", 500, Some(u64::MAX))]);
        assert_eq!(endless.started_at.as_unix_millis(), 0);
    }
}
