//! `codex exec --json`: one event per line.

use goondan_protocol::task::{PlanStepState, ToolState};
use goondan_protocol::usage::Usage;
use serde_json::Value;

use super::limit_text::reset_of;
use super::{Sink, text};
use crate::event::{CliEvent, RunResult, ToolActivity, ToolDetail};
use crate::failure::{is_permanent, is_refused_host};
use crate::tool::text_of_content;
use crate::usage::{Counter, UsageReport, count, largest};

/// Reads the events of one run.
#[derive(Debug, Default)]
pub(super) struct Codex {
    thread: String,
    /// Usage of the thread, including earlier runs: the program reports cumulative figures.
    usage: Usage,
    last_words: String,
    last_error: String,
}

impl Codex {
    /// Handles an event; returns false if it is invalid.
    pub(super) fn message(&mut self, event: &Value, sink: &mut Sink<'_>) -> bool {
        let item = event.get("item").unwrap_or(&Value::Null);
        match text(event, "type") {
            "thread.started" => {
                text(event, "thread_id").clone_into(&mut self.thread);
                let id = self.thread.clone();
                sink.push(CliEvent::Session { id, model: None });
            }
            "item.started" | "item.updated" | "item.completed"
                if text(item, "type") == "todo_list" =>
            {
                plan(item, sink);
            }
            "item.started" => tool(item, ToolState::Started, sink),
            "item.completed" => self.item_completed(item, sink),
            "turn.completed" => {
                self.usage(event, sink);
                sink.push(CliEvent::Result(RunResult {
                    is_ok: true,
                    text: std::mem::take(&mut self.last_words),
                    denied: Vec::new(),
                }));
            }
            "turn.failed" => {
                self.usage(event, sink);
                let words = event.pointer("/error/message").and_then(Value::as_str);
                let words = words.unwrap_or("the turn failed");
                self.error(words, sink);
                sink.push(CliEvent::Result(RunResult {
                    is_ok: false,
                    text: words.to_owned(),
                    denied: Vec::new(),
                }));
            }
            "error" => self.error(text(event, "message"), sink),
            "" => return false,
            _ => {}
        }
        true
    }

    fn item_completed(&mut self, item: &Value, sink: &mut Sink<'_>) {
        match text(item, "type") {
            "agent_message" => {
                text(item, "text").clone_into(&mut self.last_words);
                sink.own_text(text(item, "text"));
                sink.end_text();
            }
            "error" => self.error(text(item, "message"), sink),
            "reasoning" => {
                sink.thought(text(item, "text"));
                sink.thought("\n");
            }
            _ => {
                let exit_code = item.get("exit_code").and_then(Value::as_i64);
                let is_failed = matches!(text(item, "status"), "failed" | "declined")
                    || exit_code.is_some_and(|code| code != 0);
                let state = if is_failed {
                    ToolState::Failed
                } else {
                    ToolState::Completed
                };
                tool(item, state, sink);
            }
        }
    }

    fn usage(&mut self, event: &Value, sink: &mut Sink<'_>) {
        let Some(told) = event.get("usage").filter(|told| told.is_object()) else {
            return;
        };
        let cached = count(told, "cached_input_tokens");
        let now = Usage {
            // Cached tokens are reported as part of the input tokens.
            input_tokens: count(told, "input_tokens").saturating_sub(cached),
            output_tokens: count(told, "output_tokens"),
            cache_read_tokens: cached,
            cache_write_tokens: 0,
            reasoning_tokens: count(told, "reasoning_output_tokens"),
        };
        self.usage = largest(&self.usage, &now);
        let counter = match self.thread.as_str() {
            "" => Counter::Run,
            thread => Counter::Session(thread.to_owned()),
        };
        let (usage, cost) = (self.usage, None);
        sink.push(CliEvent::Usage(UsageReport {
            counter,
            usage,
            cost,
            session: None,
        }));
    }

    /// Handles an error, which is reported as an event and again as the reason of the failed turn.
    fn error(&mut self, words: &str, sink: &mut Sink<'_>) {
        if words == self.last_error {
            return;
        }
        words.clone_into(&mut self.last_error);
        sink.push(if let Some(reset) = reset_of(words) {
            CliEvent::RateLimit(reset)
        } else if is_refused_host(words) {
            CliEvent::Permanent(format!(
                "the sandbox refused a host; list it under `sandbox.network.allow`: {words}"
            ))
        } else if is_permanent(words) {
            CliEvent::Permanent(words.to_owned())
        } else if words.starts_with("Reconnecting...") {
            CliEvent::Retrying(words.to_owned())
        } else {
            CliEvent::Error(words.to_owned())
        });
    }
}

/// Reports tool activity, if the item is a tool.
fn tool(item: &Value, state: ToolState, sink: &mut Sink<'_>) {
    let name = match text(item, "type") {
        "command_execution" => text(item, "command").to_owned(),
        "mcp_tool_call" => format!("{}.{}", text(item, "server"), text(item, "tool")),
        "file_change" | "web_search" | "collab_tool_call" => text(item, "type").to_owned(),
        _ => return,
    };
    let detail = detail(&name, item);
    let id = text(item, "id").to_owned();
    sink.push(CliEvent::Tool(ToolActivity {
        id,
        name,
        state,
        detail,
    }));
}

fn detail(name: &str, item: &Value) -> ToolDetail {
    let detail = ToolDetail::named(name);
    match text(item, "type") {
        "command_execution" => detail
            .command(text(item, "command"))
            .printed(text(item, "aggregated_output"))
            .exited(item.get("exit_code").and_then(Value::as_i64)),
        // The program reports no content.
        "file_change" => {
            let changes = item.get("changes").and_then(Value::as_array);
            let changes = changes.into_iter().flatten();
            let changes = changes.map(|change| (text(change, "path").to_owned(), String::new()));
            detail.changes(changes)
        }
        "mcp_tool_call" => {
            let error = item.pointer("/error/message").and_then(Value::as_str);
            let content = item.pointer("/result/content").map(text_of_content);
            let output = error.map(str::to_owned).or(content);
            let arguments = item.get("arguments").filter(|it| !it.is_null());
            let arguments = arguments.map(Value::to_string).unwrap_or_default();
            detail
                .arguments(&arguments)
                .printed(&output.unwrap_or_default())
        }
        "web_search" => detail.arguments(text(item, "query")),
        _ => detail,
    }
}

/// Reports its plan. The step in progress is not reported.
fn plan(item: &Value, sink: &mut Sink<'_>) {
    sink.plan(item.get("items"), |step| {
        let state = match step.get("completed").and_then(Value::as_bool) {
            Some(true) => PlanStepState::Completed,
            _ => PlanStepState::Pending,
        };
        Some((text(step, "text"), state))
    });
}
