//! What is known of a span from what happened in it: the one reading of runtime events that traces, lists of
//! turns and exporters share (`MSG-12`).

use serde::Serialize;

use super::{RuntimeEvent, RuntimeEventKind as Kind};
use crate::time::Timestamp;

/// What something that happened is to the span it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanPhase {
    /// It begins, or goes on in a new process.
    Begins,
    /// It ends, with an outcome.
    Ends(SpanOutcome),
    /// Neither: something within it is told of.
    Within,
}

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanOutcome {
    /// With what it was there for.
    Completed,
    /// With an error.
    Failed,
    /// Given up: its event waits for a person. Only a turn.
    Parked,
}

impl Kind {
    /// What it is to its span.
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

/// Whether a span has ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It has not ended, as far as is known.
    Open,
    /// With what it was there for.
    Completed,
    /// With an error.
    Failed,
    /// Given up: its event waits for a person.
    Parked,
}

impl From<SpanOutcome> for Standing {
    fn from(outcome: SpanOutcome) -> Self {
        match outcome {
            SpanOutcome::Completed => Self::Completed,
            SpanOutcome::Failed => Self::Failed,
            SpanOutcome::Parked => Self::Parked,
        }
    }
}

/// One span, as the events that were seen of it tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanRecord {
    /// When it began. Of a span whose beginning was not seen: as long before its end as it took.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Whether it has ended, and how.
    pub standing: Standing,
    /// How many processes worked on a turn.
    pub attempts: u32,
}

impl SpanRecord {
    /// What the first event that is known of a span, or of something in it, tells.
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
            standing: Standing::Open,
            attempts: 0,
        }
    }

    /// Adds what an event of the span tells, the one that began it too.
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
    fn a_turn_that_a_second_process_ended_is_one_span_of_two_attempts() {
        let events = [
            event("turn.started", 100, None),
            event("budget.warning", 150, None),
            event("turn.resumed", 200, None),
            event("turn.failed", 350, Some(150)),
        ];
        let open = record_of(&events[..3]);
        assert_eq!((open.standing, open.ended_at), (Standing::Open, None));
        let ended = record_of(&events);
        assert_eq!((ended.standing, ended.attempts), (Standing::Failed, 2));
        assert_eq!(ended.started_at, events[0].timestamp);
        assert_eq!(ended.ended_at, Some(events[3].timestamp));
    }

    #[test]
    fn a_span_whose_beginning_was_not_seen_began_as_long_before_its_end_as_it_took() {
        let record = record_of(&[event("tool.completed", 500, Some(300))]);
        assert_eq!(record.started_at, event("tool.called", 200, None).timestamp);
        let endless = record_of(&[event("tool.completed", 500, Some(u64::MAX))]);
        assert_eq!(endless.started_at.as_unix_millis(), 0);
    }
}
