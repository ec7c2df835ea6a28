//! The Agent Client Protocol, version 1: JSON-RPC, one message in each line.

use agent_client_protocol_schema::v1::{
    ContentBlock, NewSessionResponse, PermissionOptionKind, PlanEntryStatus, PromptResponse,
    RequestPermissionRequest, SessionNotification, SessionUpdate, StopReason, ToolCallStatus,
};
use goondan_protocol::task::{PlanStep, PlanStepState};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::limit_text::reset_of;
use super::{Sink, text};
use crate::event::{
    Event, PermissionOption, PermissionRequest, RunResult, ToolActivity, ToolState,
};
use crate::limits::TEXT_LINE_BYTES_MAX;
use crate::reply::{ACP_INITIALIZE, ACP_PROMPT, ACP_SESSION, acp_not_offered};
use crate::usage::{Counter, UsageReport, dollars};

/// Reads what an agent sends on one connection.
#[derive(Debug)]
pub(super) struct Acp {
    /// Whether a session is being loaded: what comes is what was said before.
    is_played_back: bool,
    /// The message whose pieces come.
    message: Option<String>,
    /// The latest request that it answered with a result.
    answered: Option<i64>,
    /// What it said since its last tool, as far as that is short.
    last_words: String,
}

fn read<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    serde_json::from_value(value?.clone()).ok()
}

impl Acp {
    pub(super) fn new(is_resumed: bool) -> Self {
        Self {
            is_played_back: is_resumed,
            message: None,
            answered: None,
            last_words: String::new(),
        }
    }

    pub(super) fn answered(&self) -> Option<i64> {
        self.answered
    }

    /// Takes a message; returns whether it is one.
    pub(super) fn message(&mut self, message: &Value, sink: &mut Sink<'_>) -> bool {
        let id = message.get("id").filter(|id| !id.is_null());
        let method = text(message, "method");
        match (method, id) {
            ("", None) => false,
            ("", Some(id)) => self.response(id.as_i64(), message, sink),
            ("session/update", _) => {
                // Updates of a kind that this version does not know are left out.
                if let Some(told) = read::<SessionNotification>(message.get("params")) {
                    self.update(told, sink);
                }
                true
            }
            ("session/request_permission", Some(id)) => {
                let asked = read::<RequestPermissionRequest>(message.get("params"));
                sink.push(match asked {
                    Some(asked) => permission(id, asked),
                    None => not_offered(id, method),
                });
                true
            }
            (method, Some(id)) => {
                sink.push(not_offered(id, method));
                true
            }
            (_, None) => true,
        }
    }

    fn response(&mut self, id: Option<i64>, message: &Value, sink: &mut Sink<'_>) -> bool {
        if let Some(error) = message.get("error") {
            self.failed(id, text(error, "message"), sink);
            return true;
        }
        let result = message.get("result");
        self.answered = id.or(self.answered);
        match id {
            Some(ACP_INITIALIZE) => {}
            Some(ACP_SESSION) => {
                self.is_played_back = false;
                // Loading a session answers with none: its id is known.
                if let Some(made) = read::<NewSessionResponse>(result) {
                    let id = made.session_id.to_string();
                    sink.push(Event::Session { id, model: None });
                }
            }
            Some(ACP_PROMPT) => match read::<PromptResponse>(result) {
                Some(ended) => self.ended(ended.stop_reason, sink),
                None => self.failed(id, "the prompt was answered with no stop reason", sink),
            },
            _ => return false,
        }
        true
    }

    fn ended(&mut self, reason: StopReason, sink: &mut Sink<'_>) {
        sink.end_text();
        let problem = match reason {
            StopReason::EndTurn => None,
            StopReason::MaxTokens => Some("it ran out of tokens"),
            StopReason::MaxTurnRequests => Some("it made as many requests as it may"),
            StopReason::Refusal => Some("it refused to go on"),
            StopReason::Cancelled => Some("it was cancelled"),
            _ => Some("it stopped for a reason that is not known"),
        };
        let words = std::mem::take(&mut self.last_words);
        sink.push(Event::Result(RunResult {
            is_ok: problem.is_none(),
            text: problem.map_or(words, str::to_owned),
            denied: Vec::new(),
        }));
    }

    /// One of goondan's requests failed; without it there is no run.
    fn failed(&mut self, id: Option<i64>, words: &str, sink: &mut Sink<'_>) {
        sink.end_text();
        let reset = reset_of(words);
        // What is played back ends with the answer: until then a session is being loaded.
        if id == Some(ACP_SESSION) && self.is_played_back && reset.is_none() {
            return sink.push(Event::SessionRefused(words.to_owned()));
        }
        sink.push(match reset {
            Some(reset) => Event::RateLimit(reset),
            None => Event::Error(words.to_owned()),
        });
        if matches!(id, Some(ACP_INITIALIZE | ACP_SESSION | ACP_PROMPT)) {
            sink.push(Event::Result(RunResult {
                is_ok: false,
                text: words.to_owned(),
                denied: Vec::new(),
            }));
        }
    }

    fn update(&mut self, told: SessionNotification, sink: &mut Sink<'_>) {
        if self.is_played_back {
            return;
        }
        match told.update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                let message = chunk.message_id.map(|id| id.to_string());
                if message != self.message {
                    self.begin_text(message, sink);
                }
                if let ContentBlock::Text(piece) = chunk.content {
                    if self.last_words.len() + piece.text.len() <= TEXT_LINE_BYTES_MAX {
                        self.last_words.push_str(&piece.text);
                    }
                    sink.own_text(&piece.text);
                }
            }
            SessionUpdate::ToolCall(call) => {
                self.begin_text(None, sink);
                sink.push(Event::Tool(ToolActivity {
                    id: call.tool_call_id.to_string(),
                    name: call.name.unwrap_or(call.title),
                    state: ToolState::Started,
                }));
            }
            SessionUpdate::ToolCallUpdate(call) => {
                let state = match call.fields.status {
                    Some(ToolCallStatus::Completed) => ToolState::Completed,
                    Some(ToolCallStatus::Failed) => ToolState::Failed,
                    _ => return,
                };
                sink.push(Event::Tool(ToolActivity {
                    id: call.tool_call_id.to_string(),
                    name: call.fields.title.unwrap_or_default(),
                    state,
                }));
            }
            SessionUpdate::Plan(plan) => {
                let steps = plan.entries.into_iter().map(|entry| PlanStep {
                    title: entry.content,
                    state: match entry.status {
                        PlanEntryStatus::Completed => PlanStepState::Completed,
                        PlanEntryStatus::InProgress => PlanStepState::InProgress,
                        _ => PlanStepState::Pending,
                    },
                });
                sink.push(Event::Plan(PlanStep::bounded(steps)));
            }
            SessionUpdate::UsageUpdate(usage) => {
                // Tokens in context are no tokens taken: money alone counts.
                let cost = usage.cost.filter(|cost| cost.currency == "USD");
                let Some(cost) = cost.and_then(|cost| dollars(cost.amount)) else {
                    return;
                };
                sink.push(Event::Usage(UsageReport {
                    // Of a session that was loaded nothing else tells the id.
                    counter: Counter::Session(told.session_id.to_string()),
                    usage: goondan_protocol::usage::Usage::default(),
                    cost: Some(cost),
                }));
            }
            _ => {}
        }
    }

    /// What comes next is another text.
    fn begin_text(&mut self, message: Option<String>, sink: &mut Sink<'_>) {
        sink.end_text();
        self.message = message;
        self.last_words.clear();
    }
}

fn not_offered(id: &Value, method: &str) -> Event {
    Event::Unsupported {
        method: method.to_owned(),
        reply: acp_not_offered(&id.to_string(), method),
    }
}

fn permission(id: &Value, asked: RequestPermissionRequest) -> Event {
    let options = asked.options.into_iter().map(|option| {
        use PermissionOptionKind as Kind;
        PermissionOption {
            id: option.option_id.to_string(),
            name: option.name,
            allows: matches!(option.kind, Kind::AllowOnce | Kind::AllowAlways),
            is_once: matches!(option.kind, Kind::AllowOnce | Kind::RejectOnce),
        }
    });
    let call = asked.tool_call.fields;
    Event::Permission(PermissionRequest {
        id: id.to_string(),
        tool: call.title.or(call.name).unwrap_or_default(),
        input: call.raw_input.unwrap_or_default(),
        options: options.collect(),
    })
}
