//! Runtime events of a turn (`MSG-12`), with time and duration.
//!
//! They are written to `runtime-events.jsonl` and shown to clients that watch a turn. They never
//! influence message state.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{
    AgentName, ApprovalId, EventId, InstanceKey, QuestionId, RevisionId, StepId, ToolCallId, TurnId,
};
use crate::limits::{DEFAULT_OBSERVATION_BYTES, DEFAULT_OBSERVATION_DAYS};
use crate::message::{RESPONSE_ID, RESPONSE_MODEL, STOP_REASON};
use crate::sandbox::Level;
use crate::time::Timestamp;
use crate::trace::{SpanId, TraceContext, TraceId};
use crate::usage::{MicroUsd, Usage};

mod span;

pub use span::{SpanOutcome, SpanPhase, SpanRecord, SpanState};

/// Kind of a runtime event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuntimeEventKind {
    /// A turn began.
    #[serde(rename = "turn.started")]
    TurnStarted,
    /// A turn interrupted by a crash resumed in a new process.
    #[serde(rename = "turn.resumed")]
    TurnResumed,
    /// A turn completed with an answer.
    #[serde(rename = "turn.completed")]
    TurnCompleted,
    /// A turn failed.
    #[serde(rename = "turn.failed")]
    TurnFailed,
    /// A turn was parked because it crashed too many processes; its event waits for a person.
    #[serde(rename = "turn.parked")]
    TurnParked,
    /// A request to the model started.
    #[serde(rename = "step.started")]
    StepStarted,
    /// The model replied, and its tools ran.
    #[serde(rename = "step.completed")]
    StepCompleted,
    /// The request to the model failed.
    #[serde(rename = "step.failed")]
    StepFailed,
    /// A tool was called.
    #[serde(rename = "tool.called")]
    ToolCalled,
    /// A tool succeeded.
    #[serde(rename = "tool.completed")]
    ToolCompleted,
    /// A tool failed; the model received the error.
    #[serde(rename = "tool.failed")]
    ToolFailed,
    /// A tool call waits for a person to answer a question.
    #[serde(rename = "question.asked")]
    QuestionAsked,
    /// A question was answered, declined or withdrawn, or it expired.
    #[serde(rename = "question.closed")]
    QuestionClosed,
    /// A tool call waits for approval.
    #[serde(rename = "approval.asked")]
    ApprovalAsked,
    /// A person approved or denied a tool call.
    #[serde(rename = "approval.closed")]
    ApprovalClosed,
    /// A budget is nearly spent.
    #[serde(rename = "budget.warning")]
    BudgetWarning,
    /// A message event named a message that does not exist (`MSG-4`).
    #[serde(rename = "message.warning")]
    MessageWarning,
}

impl RuntimeEventKind {
    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TurnStarted => "turn.started",
            Self::TurnResumed => "turn.resumed",
            Self::TurnCompleted => "turn.completed",
            Self::TurnFailed => "turn.failed",
            Self::TurnParked => "turn.parked",
            Self::StepStarted => "step.started",
            Self::StepCompleted => "step.completed",
            Self::StepFailed => "step.failed",
            Self::ToolCalled => "tool.called",
            Self::ToolCompleted => "tool.completed",
            Self::ToolFailed => "tool.failed",
            Self::QuestionAsked => "question.asked",
            Self::QuestionClosed => "question.closed",
            Self::ApprovalAsked => "approval.asked",
            Self::ApprovalClosed => "approval.closed",
            Self::BudgetWarning => "budget.warning",
            Self::MessageWarning => "message.warning",
        }
    }
}

/// Provider's metadata of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelResponse {
    /// The provider's id of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The provider's name of the model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reason why the reply ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
}

impl ModelResponse {
    /// Reads it from the metadata of a reply; `None` if it has none.
    #[must_use]
    pub fn of_metadata(metadata: &JsonObject) -> Option<Self> {
        let read = |name: &str| metadata.get(name)?.as_str().map(str::to_owned);
        let response = Self {
            id: read(RESPONSE_ID),
            model: read(RESPONSE_MODEL),
            finish_reason: read(STOP_REASON),
        };
        (response != Self::default()).then_some(response)
    }

    /// Truncates the texts to [`MAX_DETAIL_CHARS`].
    #[must_use]
    pub fn shortened(self) -> Self {
        let short = |text: Option<String>| text.map(|text| detail_of(&text));
        Self {
            id: short(self.id),
            model: short(self.model),
            finish_reason: short(self.finish_reason),
        }
    }
}

/// One line of `runtime-events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeEvent {
    /// The kind of event.
    #[serde(rename = "type")]
    pub kind: RuntimeEventKind,
    /// Time of the event.
    pub timestamp: Timestamp,
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the turn, step or tool call.
    pub span_id: SpanId,
    /// The parent span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// The agent.
    pub agent_name: AgentName,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The turn.
    pub turn_id: TurnId,
    /// The event that the turn answers, for events about a whole turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// The step, for events about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The tool call, for events about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// The tool's full name, as the model wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The question, for events about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<QuestionId>,
    /// The id of the approval, for events about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// SHA-256 of the turn's configuration, in hexadecimal, at the start of a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// The agent's active revision, if its conversation has its own configuration (`BUNDLE-7`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_revision: Option<RevisionId>,
    /// Duration in milliseconds, at the end of a span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Tokens of the step's reply or of all replies of the turn, at the end of either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Their cost; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<MicroUsd>,
    /// Provider's metadata of the step's reply, at the end of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ModelResponse>,
    /// Confinement level of the tool call's programs, at its end; absent if it started none
    /// (`SEC-3`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Level>,
    /// For a failed tool call: true if it was interrupted and its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
    /// Access that the sandbox seems to have refused to a tool call's program, at its end, with the
    /// setting that allows it (`SEC-10`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// A short text: the beginning of the input, arguments or result, or the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl RuntimeEvent {
    /// Creates an event with its position in a trace; all optional fields are empty.
    #[must_use]
    pub fn new(
        kind: RuntimeEventKind,
        timestamp: Timestamp,
        place: TraceContext,
        (agent_name, instance_key): (AgentName, InstanceKey),
        turn_id: TurnId,
    ) -> Self {
        Self {
            kind,
            timestamp,
            trace_id: place.trace_id,
            span_id: place.span_id,
            parent_span_id: place.parent_span_id,
            agent_name,
            instance_key,
            turn_id,
            event_id: None,
            step_id: None,
            tool_call_id: None,
            tool_name: None,
            question_id: None,
            approval_id: None,
            config_digest: None,
            bundle_revision: None,
            duration_ms: None,
            usage: None,
            cost_micro_usd: None,
            response: None,
            sandbox: None,
            outcome_unknown: false,
            refusal: None,
            detail: None,
        }
    }

    /// Serializes the event as a line of `runtime-events.jsonl`, including the newline. Ids are
    /// written in full, so that lines can be joined with messages and other logs.
    ///
    /// # Errors
    ///
    /// The error of `serde_json`; none is known.
    pub fn to_record(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Parses such a line. Earlier versions wrote ids of steps and tool calls without their prefix,
    /// the turn's id: `.1` for the step `t1.1`.
    ///
    /// # Errors
    ///
    /// The error of `serde_json`.
    pub fn from_record(line: &[u8]) -> serde_json::Result<Self> {
        let mut event: Self = serde_json::from_slice(line)?;
        let whole = |rest: &str| {
            rest.starts_with('.')
                .then(|| format!("{}{rest}", event.turn_id))
        };
        let step_id = event.step_id.as_ref().and_then(|id| whole(id.as_str()));
        let call_id = event.tool_call_id.as_ref();
        let call_id = call_id.and_then(|id| whole(id.as_str()));
        if let Some(Ok(step_id)) = step_id.map(StepId::new) {
            event.step_id = Some(step_id);
        }
        if let Some(Ok(call_id)) = call_id.map(ToolCallId::new) {
            event.tool_call_id = Some(call_id);
        }
        Ok(event)
    }
}

/// Retention of each of a conversation's two observation logs, besides the current file and the
/// newest segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservationBounds {
    /// Size limit of its compressed segments, in bytes.
    pub bytes: u64,
    /// Age limit of a segment since it was full, in days.
    pub days: u32,
}

impl Default for ObservationBounds {
    fn default() -> Self {
        Self {
            bytes: DEFAULT_OBSERVATION_BYTES,
            days: DEFAULT_OBSERVATION_DAYS,
        }
    }
}

/// Longest `detail`, in characters; longer texts are truncated.
pub const MAX_DETAIL_CHARS: usize = 200;

/// Longest `refusal`, in characters; longer texts are truncated. It names a path and a setting.
pub const MAX_REFUSAL_CHARS: usize = 600;

/// Shortens a text to a `detail`: one line of at most [`MAX_DETAIL_CHARS`] characters.
#[must_use]
pub fn detail_of(text: &str) -> String {
    shortened(text, MAX_DETAIL_CHARS)
}

/// Shortens a text to a `refusal`: one line of at most [`MAX_REFUSAL_CHARS`] characters.
#[must_use]
pub fn refusal_of(text: &str) -> String {
    shortened(text, MAX_REFUSAL_CHARS)
}

fn shortened(text: &str, max_chars: usize) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(max_chars)
        .collect();
    if text.chars().nth(max_chars).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_name_and_the_serialized_name_agree() {
        use RuntimeEventKind as K;
        for kind in [
            K::TurnStarted,
            K::TurnResumed,
            K::TurnCompleted,
            K::TurnFailed,
            K::TurnParked,
            K::StepStarted,
            K::StepCompleted,
            K::StepFailed,
            K::ToolCalled,
            K::ToolCompleted,
            K::ToolFailed,
            K::QuestionAsked,
            K::QuestionClosed,
            K::ApprovalAsked,
            K::ApprovalClosed,
            K::BudgetWarning,
            K::MessageWarning,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }

    #[test]
    fn msg_12_a_record_has_whole_ids_and_short_ones_are_read() {
        let event = serde_json::json!({
            "type": "tool.called", "timestamp": "2026-01-01T00:00:09.110Z",
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
            "agentName": "clerk", "instanceKey": "main", "turnId": "t2", "stepId": "t2.1",
            "toolCallId": "t2.1:c0", "toolName": "bash__exec",
        });
        let whole: RuntimeEvent = serde_json::from_value(event).unwrap();
        let line = whole.to_record().unwrap();
        let text = String::from_utf8(line.clone()).unwrap();
        let ids = r#""stepId":"t2.1","toolCallId":"t2.1:c0""#;
        assert!(text.ends_with("}\n") && text.contains(ids), "{text}");
        assert_eq!(RuntimeEvent::from_record(&line).unwrap(), whole);
        // In the form of an earlier version.
        let short = text.replace(ids, r#""stepId":".1","toolCallId":".1:c0""#);
        assert_ne!(short, text);
        assert_eq!(RuntimeEvent::from_record(short.as_bytes()).unwrap(), whole);
    }

    #[test]
    fn a_detail_is_one_short_line() {
        assert_eq!(detail_of("a\nb"), "a b");
        assert_eq!(
            detail_of(&"x".repeat(500)).chars().count(),
            MAX_DETAIL_CHARS + 1
        );
    }
}
