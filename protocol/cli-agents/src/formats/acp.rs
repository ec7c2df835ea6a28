//! The Agent Client Protocol, version 1: JSON-RPC, one message per line.

use agent_client_protocol_schema::v1::{
    ContentBlock, NewSessionResponse, PermissionOptionKind, PlanEntryStatus, PromptResponse,
    RequestPermissionRequest, SessionNotification, SessionUpdate, StopReason, ToolCallContent,
    ToolCallStatus,
};
use goondan_protocol::task::{PlanStep, PlanStepState, ToolState};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::acp_tool::detail_of_call;
use super::acp_usage::PromptUsage;
use super::limit_text::reset_of;
use super::{Sink, text};
use crate::event::{
    CliEvent, Consent, PermissionOption, PermissionRequest, RunResult, ToolActivity, ToolDetail,
};
use crate::failure::is_permanent;
use crate::limits::TEXT_LINE_BYTES_MAX;
use crate::permission::{detail_of_input, diff, shortened};
use crate::reply::{
    ACP_INITIALIZE, ACP_MODE, ACP_MODEL, ACP_PROBE, ACP_PROMPT, ACP_SESSION, acp_not_offered,
};
use crate::usage::{Counter, UsageReport, dollars};

/// Parses an agent's output on one connection.
#[derive(Debug)]
pub(super) struct Acp {
    /// True from the start of a resumed session until the prompt is sent: the output is a replay.
    is_played_back: bool,
    is_resumed: bool,
    loads_sessions: bool,
    played_back: u64,
    usage: PromptUsage,
    /// Id of the current message.
    message: Option<String>,
    /// The latest request that it answered with a result.
    answered: Option<i64>,
    /// Text since its last tool call, if it is short.
    last_words: String,
}

fn read<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    serde_json::from_value(value?.clone()).ok()
}

impl Acp {
    pub(super) fn new(is_resumed: bool) -> Self {
        Self {
            is_played_back: is_resumed,
            is_resumed,
            loads_sessions: false,
            played_back: 0,
            usage: PromptUsage::default(),
            message: None,
            answered: None,
            last_words: String::new(),
        }
    }

    pub(super) fn answered(&self) -> Option<i64> {
        self.answered
    }

    pub(super) fn prompted(&mut self) {
        self.is_played_back = false;
    }

    pub(super) fn played_back(&self) -> u64 {
        self.played_back
    }

    /// Handles a message; returns false if it is invalid.
    pub(super) fn message(&mut self, message: &Value, sink: &mut Sink<'_>) -> bool {
        let id = message.get("id").filter(|id| !id.is_null());
        let method = text(message, "method");
        match (method, id) {
            ("", None) => false,
            ("", Some(id)) => self.response(id.as_i64(), message, sink),
            ("session/update", _) => {
                // Updates of an unknown kind are skipped.
                let params = message.get("params");
                if let Some(told) = read::<SessionNotification>(params) {
                    let raw = params.and_then(|params| params.get("update"));
                    self.update(told, raw.unwrap_or(&Value::Null), sink);
                }
                if !self.is_played_back
                    && let Some(call) =
                        params.and_then(|params| params.pointer("/update/_meta/usage"))
                    && self.usage.call(call)
                {
                    self.usage.report(sink);
                }
                true
            }
            ("session/request_permission", Some(id)) => {
                self.other_than_text(sink);
                let asked = read::<RequestPermissionRequest>(message.get("params"));
                sink.push(match asked {
                    Some(asked) => CliEvent::Permission(permission(id, asked)),
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
        if id.is_some_and(|id| id >= ACP_PROBE) {
            // An error response to a probe also proves that the program is alive.
            self.answered = id;
            return true;
        }
        if let Some(error) = message.get("error") {
            self.failed(id, &error_words(error), sink);
            return true;
        }
        let result = message.get("result");
        self.answered = id.or(self.answered);
        match id {
            Some(ACP_INITIALIZE) => {
                let loads = result.and_then(|told| told.pointer("/agentCapabilities/loadSession"));
                self.loads_sessions = loads.and_then(Value::as_bool) == Some(true);
            }
            Some(ACP_MODE | ACP_MODEL) => {}
            Some(ACP_SESSION) => {
                // The response to loading a session has no id, because the id is known.
                if let Some(made) = read::<NewSessionResponse>(result) {
                    let id = made.session_id.to_string();
                    sink.push(if self.loads_sessions {
                        CliEvent::Session { id, model: None }
                    } else {
                        CliEvent::PassingSession { id }
                    });
                }
            }
            Some(ACP_PROMPT) => match read::<PromptResponse>(result) {
                Some(ended) => {
                    self.usage.result(result.unwrap_or(&Value::Null));
                    self.usage.report(sink);
                    self.ended(ended.stop_reason, sink);
                }
                None => self.failed(id, "the answer to the prompt has no stop reason", sink),
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
            StopReason::MaxTurnRequests => Some("it reached its limit of requests"),
            StopReason::Refusal => Some("it refused to continue"),
            StopReason::Cancelled => Some("it was canceled"),
            _ => Some("it stopped for an unknown reason"),
        };
        let words = std::mem::take(&mut self.last_words);
        sink.push(CliEvent::Result(RunResult {
            is_ok: problem.is_none(),
            text: problem.map_or(words, str::to_owned),
            denied: Vec::new(),
        }));
    }

    /// A request of goondan failed; without it the run cannot continue.
    fn failed(&mut self, id: Option<i64>, words: &str, sink: &mut Sink<'_>) {
        sink.end_text();
        let reset = reset_of(words);
        let setting = match id {
            Some(ACP_MODE) => Some("mode"),
            Some(ACP_MODEL) => Some("model"),
            _ => None,
        };
        let words = &*setting.map_or_else(
            || words.to_owned(),
            |setting| format!("the agent refuses the configured `{setting}`: {words}"),
        );
        let is_permanent = setting.is_some() || is_permanent(words);
        if id == Some(ACP_SESSION) && self.is_resumed && reset.is_none() && !is_permanent {
            return sink.push(CliEvent::SessionRefused(words.to_owned()));
        }
        sink.push(match reset {
            Some(reset) => CliEvent::RateLimit(reset),
            None if is_permanent => CliEvent::Permanent(words.to_owned()),
            None => CliEvent::Error(words.to_owned()),
        });
        if matches!(
            id,
            Some(ACP_INITIALIZE | ACP_SESSION | ACP_MODE | ACP_MODEL | ACP_PROMPT)
        ) {
            sink.push(CliEvent::Result(RunResult {
                is_ok: false,
                text: words.to_owned(),
                denied: Vec::new(),
            }));
        }
    }

    fn update(&mut self, told: SessionNotification, raw: &Value, sink: &mut Sink<'_>) {
        if self.is_played_back {
            self.played_back += 1;
            return;
        }
        match told.update {
            // The speaker changed: a new text begins.
            SessionUpdate::UserMessageChunk(_) => self.begin_text(None, sink),
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
            SessionUpdate::AgentThoughtChunk(chunk) => {
                if let ContentBlock::Text(piece) = chunk.content {
                    sink.thought(&piece.text);
                }
            }
            SessionUpdate::ToolCall(call) => {
                self.begin_text(None, sink);
                sink.push(CliEvent::Tool(ToolActivity {
                    id: call.tool_call_id.to_string(),
                    name: call.name.unwrap_or(call.title),
                    state: ToolState::Started,
                    detail: detail_of_call(raw, false),
                }));
            }
            SessionUpdate::ToolCallUpdate(call) => {
                self.other_than_text(sink);
                let state = match call.fields.status {
                    Some(ToolCallStatus::Completed) => ToolState::Completed,
                    Some(ToolCallStatus::Failed) => ToolState::Failed,
                    _ => {
                        let id = call.tool_call_id.to_string();
                        // Some agents report the input only now.
                        if sink.shown.calls.learn(&id, detail_of_call(raw, false)) {
                            let name = call.fields.title.unwrap_or_default();
                            let state = ToolState::Started;
                            let detail = ToolDetail::default();
                            sink.push(CliEvent::Tool(ToolActivity {
                                id,
                                name,
                                state,
                                detail,
                            }));
                        }
                        return;
                    }
                };
                sink.push(CliEvent::Tool(ToolActivity {
                    id: call.tool_call_id.to_string(),
                    name: call.fields.title.unwrap_or_default(),
                    state,
                    detail: detail_of_call(raw, true),
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
                sink.push(CliEvent::Plan(PlanStep::bounded(steps)));
            }
            SessionUpdate::UsageUpdate(usage) => {
                // The figure is the context size, not usage: only the cost counts.
                let cost = usage.cost.filter(|cost| cost.currency == "USD");
                let Some(cost) = cost.and_then(|cost| dollars(cost.amount)) else {
                    return;
                };
                sink.push(CliEvent::Usage(UsageReport {
                    // No other message reports the id of a loaded session.
                    counter: Counter::Session(told.session_id.to_string()),
                    usage: goondan_protocol::usage::Usage::default(),
                    cost: Some(cost),
                    session: None,
                }));
            }
            _ => {}
        }
    }

    /// Ends the text at a non-text update. Without message ids, nothing else separates texts: some
    /// agents do not report the start of a tool call, and their next text would continue on the
    /// same line.
    fn other_than_text(&mut self, sink: &mut Sink<'_>) {
        if self.message.is_none() {
            self.begin_text(None, sink);
        }
    }

    fn begin_text(&mut self, message: Option<String>, sink: &mut Sink<'_>) {
        sink.end_text();
        self.message = message;
        self.last_words.clear();
    }
}

/// Message of an error, with details from its data, where some agents put the reason.
fn error_words(error: &Value) -> String {
    let words = text(error, "message");
    let data = error.get("data").unwrap_or(&Value::Null);
    let more = ["details", "message", "service"].map(|name| text(data, name));
    let more = more.into_iter().find(|more| !more.is_empty());
    let more = more.or_else(|| data.as_str());
    match more {
        Some(more) if !words.contains(more) => format!("{words}: {more}"),
        _ => words.to_owned(),
    }
}

fn not_offered(id: &Value, method: &str) -> CliEvent {
    CliEvent::Unsupported {
        method: method.to_owned(),
        reply: acp_not_offered(&id.to_string(), method),
    }
}

fn permission(id: &Value, asked: RequestPermissionRequest) -> PermissionRequest {
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
    let changes = call
        .content
        .iter()
        .flatten()
        .filter_map(|content| match content {
            ToolCallContent::Diff(change) => {
                let old = change.old_text.as_deref().unwrap_or_default();
                Some(diff(&change.path.to_string_lossy(), old, &change.new_text))
            }
            ToolCallContent::Content(content) => match &content.content {
                ContentBlock::Text(words) => Some(format!("{}\n", words.text)),
                _ => None,
            },
            _ => None,
        });
    let changes: String = changes.collect();
    let input = call.raw_input.unwrap_or_default();
    let own = detail_of_input(&input);
    // The tool's description does not replace the command it would run.
    let detail = match (own.as_str(), changes.as_str()) {
        ("", changes) => changes.to_owned(),
        (own, "") => own.to_owned(),
        (own, changes) if changes.contains("\n+++ ") || own.contains("\n+++ ") => {
            if changes.contains("\n+++ ") {
                changes.to_owned()
            } else {
                own.to_owned()
            }
        }
        (own, changes) => format!("{own}\n{changes}"),
    };
    let kind = call.kind.and_then(|kind| serde_json::to_value(kind).ok());
    let kind = kind.and_then(|kind| kind.as_str().map(str::to_owned));
    PermissionRequest {
        id: id.to_string(),
        tool: call.title.or(call.name).unwrap_or_default(),
        kind: kind.unwrap_or_default(),
        detail: shortened(detail),
        consent: Consent::Tool,
        input,
        options: options.collect(),
    }
}
