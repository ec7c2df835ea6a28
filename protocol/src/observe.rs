//! Observability events of a turn (`MSG-12`): what happened, when, and how long it took.
//!
//! They are written to `runtime-events.jsonl` and shown to whoever watches a turn. They are never an
//! input of message state.

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

pub use span::{SpanOutcome, SpanPhase, SpanRecord, Standing};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuntimeEventKind {
    /// A turn began.
    #[serde(rename = "turn.started")]
    TurnStarted,
    /// A turn that a crash had cut short goes on in a new process.
    #[serde(rename = "turn.resumed")]
    TurnResumed,
    /// A turn ended with an answer.
    #[serde(rename = "turn.completed")]
    TurnCompleted,
    /// A turn ended without one.
    #[serde(rename = "turn.failed")]
    TurnFailed,
    /// A turn that crashed too many processes was given up; its event waits for a person.
    #[serde(rename = "turn.parked")]
    TurnParked,
    /// The model was asked.
    #[serde(rename = "step.started")]
    StepStarted,
    /// The model answered, and its tools ran.
    #[serde(rename = "step.completed")]
    StepCompleted,
    /// The model could not answer.
    #[serde(rename = "step.failed")]
    StepFailed,
    /// A tool was called.
    #[serde(rename = "tool.called")]
    ToolCalled,
    /// A tool ended well.
    #[serde(rename = "tool.completed")]
    ToolCompleted,
    /// A tool ended in an error, which the model was told.
    #[serde(rename = "tool.failed")]
    ToolFailed,
    /// A tool call waits for a person's answer to a question.
    #[serde(rename = "question.asked")]
    QuestionAsked,
    /// It waits no longer: the question was answered, declined or withdrawn, or its time was up.
    #[serde(rename = "question.closed")]
    QuestionClosed,
    /// A tool call waits for a person to approve it.
    #[serde(rename = "approval.asked")]
    ApprovalAsked,
    /// It waits no longer: a person approved or denied it.
    #[serde(rename = "approval.closed")]
    ApprovalClosed,
    /// A budget is nearly spent.
    #[serde(rename = "budget.warning")]
    BudgetWarning,
    /// A message event named a message that is not there (`MSG-4`).
    #[serde(rename = "message.warning")]
    MessageWarning,
}

impl RuntimeEventKind {
    /// The event's name as it is written.
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

/// What a provider says of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelResponse {
    /// Its id of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name of the model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why the reply ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
}

impl ModelResponse {
    /// Reads it from the metadata of a reply; none if nothing is said.
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

    /// The same in texts of at most [`MAX_DETAIL_CHARS`].
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
    /// What happened.
    #[serde(rename = "type")]
    pub kind: RuntimeEventKind,
    /// When.
    pub timestamp: Timestamp,
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the turn, step or tool call.
    pub span_id: SpanId,
    /// The span around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// The agent.
    pub agent_name: AgentName,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The turn.
    pub turn_id: TurnId,
    /// The event that the turn answers, if it is about a turn as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// The step, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The tool call, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// The tool's full name, as the model wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The question to a person, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<QuestionId>,
    /// What a tool call is approved by, if it is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The SHA-256 of the configuration the turn runs under, as hex digits, for the start of a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// The revision that the agent works with, if its conversation has a configuration of its own (`BUNDLE-7`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_revision: Option<RevisionId>,
    /// How long it took, for the end of a span, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The tokens of the step's reply, or of all replies of the turn, for the end of either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What they cost; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<MicroUsd>,
    /// What the provider says of the step's reply, for the end of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ModelResponse>,
    /// How strictly the programs of a tool call were confined, for its end; absent if it started none (`SEC-3`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Level>,
    /// Of a tool call that failed: whether nobody knows if it had its effect, since it was cut short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
    /// A short text: the head of the input, of the arguments, of the result, or what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl RuntimeEvent {
    /// Something that happened in a turn, at its place in a trace, of which nothing else is known yet.
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
            detail: None,
        }
    }

    /// Returns its line in `runtime-events.jsonl`, with the newline. All ids are whole, so that lines join with the
    /// messages and with other logs.
    ///
    /// # Errors
    ///
    /// As `serde_json` says; none is known.
    pub fn to_record(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads such a line. Earlier versions wrote ids of steps and tool calls without the turn's id that they
    /// begin with: `.1` for the step `t1.1`.
    ///
    /// # Errors
    ///
    /// As `serde_json` says.
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

/// How much of each of a conversation's two logs of what was observed is kept, besides the current file
/// and the newest segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservationBounds {
    /// Bytes of its compressed segments.
    pub bytes: u64,
    /// Days since a segment was full.
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

/// Longest `detail`, in characters; longer texts are cut.
pub const MAX_DETAIL_CHARS: usize = 200;

/// Cuts a text to a `detail`: one line, at most [`MAX_DETAIL_CHARS`] characters.
#[must_use]
pub fn detail_of(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_DETAIL_CHARS)
        .collect();
    if text.chars().nth(MAX_DETAIL_CHARS).is_some() {
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
        // As an earlier version wrote it.
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
