//! `opencode run --format json`: one event per line.

use std::collections::BTreeSet;

use goondan_protocol::task::{PlanStepState, ToolState};
use goondan_protocol::usage::{MicroUsd, Usage};
use serde::Deserialize as _;
use serde_json::Value;

use super::limit_text::reset_of;
use super::{Sink, text};
use crate::event::{CliEvent, Reset, RunResult, ToolActivity, ToolDetail};
use crate::failure::is_permanent;
use crate::limits::USAGE_MESSAGES_MAX;
use crate::usage::{Counter, UsageReport, count, dollars};

/// Reads the events of one run.
#[derive(Debug, Default)]
pub(super) struct Opencode {
    session: String,
    usage: Usage,
    cost: MicroUsd,
    /// Steps whose usage was counted.
    counted: BTreeSet<String>,
    last_words: String,
}

impl Opencode {
    /// Handles an event; returns false if it is invalid.
    pub(super) fn message(&mut self, event: &Value, sink: &mut Sink<'_>) -> bool {
        let session = text(event, "sessionID");
        if !session.is_empty() && session != self.session {
            session.clone_into(&mut self.session);
            let id = session.to_owned();
            sink.push(CliEvent::Session { id, model: None });
        }
        let part = event.get("part").unwrap_or(&Value::Null);
        match text(event, "type") {
            "text" => {
                text(part, "text").clone_into(&mut self.last_words);
                sink.own_text(text(part, "text"));
                sink.end_text();
            }
            "reasoning" => {
                sink.thought(text(part, "text"));
                sink.thought("\n");
            }
            "tool_use" => tool(part, sink),
            "step_finish" => self.step_finished(part, sink),
            "error" => {
                let error = event.get("error").unwrap_or(&Value::Null);
                let words = error.pointer("/data/message").and_then(Value::as_str);
                let words = words.unwrap_or_else(|| text(error, "name")).to_owned();
                let status = error.pointer("/data/statusCode").and_then(Value::as_u64);
                let is_limit = status == Some(429);
                sink.push(
                    match reset_of(&words).or(is_limit.then_some(Reset::Unknown)) {
                        Some(reset) => CliEvent::RateLimit(reset),
                        None if matches!(status, Some(401 | 403)) || is_permanent(&words) => {
                            CliEvent::Permanent(words.clone())
                        }
                        None => CliEvent::Error(words.clone()),
                    },
                );
                sink.push(CliEvent::Result(RunResult {
                    is_ok: false,
                    text: words,
                    denied: Vec::new(),
                }));
            }
            "" => return false,
            _ => {}
        }
        true
    }

    fn step_finished(&mut self, part: &Value, sink: &mut Sink<'_>) {
        let is_news = self.counted.len() < USAGE_MESSAGES_MAX
            && self.counted.insert(text(part, "id").to_owned());
        if let Some(tokens) = part.get("tokens").filter(|_| is_news) {
            let cache = tokens.get("cache").unwrap_or(&Value::Null);
            let reasoning = count(tokens, "reasoning");
            self.usage.add(&Usage {
                input_tokens: count(tokens, "input"),
                // Reasoning tokens are reported separately from the output.
                output_tokens: count(tokens, "output").saturating_add(reasoning),
                cache_read_tokens: count(cache, "read"),
                cache_write_tokens: count(cache, "write"),
                reasoning_tokens: reasoning,
            });
            let cost = part.get("cost").and_then(Value::as_f64);
            self.cost = self.cost.plus(cost.and_then(dollars).unwrap_or_default());
            sink.push(CliEvent::Usage(UsageReport {
                counter: Counter::Run,
                usage: self.usage,
                cost: (self.cost.0 > 0).then_some(self.cost),
                session: None,
            }));
        }
        // The last step is the one without a tool call.
        if text(part, "reason") == "stop" {
            sink.push(CliEvent::Result(RunResult {
                is_ok: true,
                text: std::mem::take(&mut self.last_words),
                denied: Vec::new(),
            }));
        }
    }
}

/// Handles a tool call, which is reported when it has ended.
fn tool(part: &Value, sink: &mut Sink<'_>) {
    let told = part.get("state").unwrap_or(&Value::Null);
    let name = text(part, "tool");
    if name == "todowrite" {
        sink.plan(told.pointer("/input/todos"), |todo| {
            let state = PlanStepState::deserialize(todo.get("status")?).ok()?;
            Some((text(todo, "content"), state))
        });
    }
    let exit = told.pointer("/metadata/exit").and_then(Value::as_i64);
    let state = match text(told, "status") {
        "completed" if exit.is_none_or(|code| code == 0) => ToolState::Completed,
        "completed" | "error" => ToolState::Failed,
        _ => ToolState::Started,
    };
    let input = told.get("input").unwrap_or(&Value::Null);
    let error = text(told, "error");
    let output = if error.is_empty() {
        text(told, "output")
    } else {
        error
    };
    let detail = ToolDetail::of_input(name, input);
    sink.push(CliEvent::Tool(ToolActivity {
        id: text(part, "callID").to_owned(),
        name: name.to_owned(),
        state,
        detail: detail.printed(output).exited(exit),
    }));
}
