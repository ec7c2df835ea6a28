//! `gemini --output-format stream-json`: one event per line.

use goondan_protocol::task::ToolState;
use goondan_protocol::usage::Usage;
use serde_json::Value;

use super::limit_text::reset_of;
use super::{Sink, text};
use crate::event::{CliEvent, RunResult, ToolActivity, ToolDetail};
use crate::failure::is_permanent;
use crate::limits::TEXT_LINE_BYTES_MAX;
use crate::usage::{Counter, UsageReport, count};

/// Reads the events of one run.
#[derive(Debug, Default)]
pub(super) struct Gemini {
    /// Model text since its last tool call, if it is short.
    last_words: String,
}

impl Gemini {
    /// Handles an event; returns false if it is invalid.
    pub(super) fn message(&mut self, event: &Value, sink: &mut Sink<'_>) -> bool {
        match text(event, "type") {
            "init" => {
                let model = text(event, "model");
                sink.push(CliEvent::Session {
                    id: text(event, "session_id").to_owned(),
                    model: (!model.is_empty()).then(|| model.to_owned()),
                });
            }
            "message" if text(event, "role") == "assistant" => {
                let piece = text(event, "content");
                if self.last_words.len() + piece.len() <= TEXT_LINE_BYTES_MAX {
                    self.last_words.push_str(piece);
                }
                sink.own_text(piece);
            }
            "message" => self.begin_text(sink),
            "tool_use" => {
                self.begin_text(sink);
                tool(event, ToolState::Started, sink);
            }
            "tool_result" => {
                let is_ok = text(event, "status") == "success";
                let state = if is_ok {
                    ToolState::Completed
                } else {
                    ToolState::Failed
                };
                tool(event, state, sink);
            }
            "error" => error(text(event, "message"), sink),
            "result" => self.result(event, sink),
            "" => return false,
            _ => {}
        }
        true
    }

    fn begin_text(&mut self, sink: &mut Sink<'_>) {
        sink.end_text();
        self.last_words.clear();
    }

    fn result(&mut self, event: &Value, sink: &mut Sink<'_>) {
        sink.end_text();
        if let Some(stats) = event.get("stats") {
            let cached = count(stats, "cached");
            let usage = Usage {
                input_tokens: count(stats, "input_tokens").saturating_sub(cached),
                output_tokens: count(stats, "output_tokens"),
                cache_read_tokens: cached,
                cache_write_tokens: 0,
                reasoning_tokens: 0,
            };
            // Tokens that are neither input nor output are reasoning tokens.
            let thoughts = count(stats, "total_tokens").saturating_sub(usage.total());
            let usage = Usage {
                output_tokens: usage.output_tokens.saturating_add(thoughts),
                reasoning_tokens: thoughts,
                ..usage
            };
            sink.push(CliEvent::Usage(UsageReport {
                counter: Counter::Run,
                usage,
                cost: None,
                session: None,
            }));
        }
        let is_ok = text(event, "status") == "success";
        let words = event.pointer("/error/message").and_then(Value::as_str);
        let words = words.map_or_else(|| std::mem::take(&mut self.last_words), str::to_owned);
        if !is_ok {
            error(&words, sink);
        }
        sink.push(CliEvent::Result(RunResult {
            is_ok,
            text: words,
            denied: Vec::new(),
        }));
    }
}

fn error(words: &str, sink: &mut Sink<'_>) {
    sink.push(match reset_of(words) {
        Some(reset) => CliEvent::RateLimit(reset),
        None if is_permanent(words) => CliEvent::Permanent(words.to_owned()),
        None => CliEvent::Error(words.to_owned()),
    });
}

fn tool(event: &Value, state: ToolState, sink: &mut Sink<'_>) {
    let name = text(event, "tool_name");
    let error = event.pointer("/error/message").and_then(Value::as_str);
    let output = error.unwrap_or_else(|| text(event, "output"));
    let detail = match event.get("parameters") {
        Some(input) => ToolDetail::of_input(name, input),
        None => ToolDetail::named(name),
    };
    sink.push(CliEvent::Tool(ToolActivity {
        id: text(event, "tool_id").to_owned(),
        name: name.to_owned(),
        state,
        detail: detail.printed(output),
    }));
}
