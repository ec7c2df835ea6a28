//! `claude --print --verbose --output-format stream-json`: one message per line.

use goondan_protocol::task::{PlanStepState, ToolState};
use goondan_protocol::usage::Usage;
use serde::Deserialize as _;
use serde_json::Value;

use super::limit_text::{reset_of, time_of};
use super::{Sink, text};
use crate::event::{CliEvent, Reset, RunResult, ToolActivity, ToolDetail};
use crate::failure::{is_permanent, is_session_lost};
use crate::permission::of_tool;
use crate::tool::text_of_content;
use crate::usage::{Counter, MessageKey, MessageLedger, SessionUsage, UsageReport, count, dollars};

/// Reads the messages of one run.
#[derive(Debug, Default)]
pub(super) struct Claude {
    session: String,
    ledger: MessageLedger,
    /// The figures of the session.
    whole: Option<SessionUsage>,
    reported: Option<(Usage, Option<SessionUsage>)>,
    /// The message whose parts arrive as `stream_event`s.
    streamed: MessageKey,
    /// End of the rate limit window, as last reported.
    window_ends: Option<Reset>,
}

fn usage_of(told: &Value) -> Usage {
    let mut usage = Usage {
        input_tokens: count(told, "input_tokens"),
        output_tokens: count(told, "output_tokens"),
        cache_read_tokens: count(told, "cache_read_input_tokens"),
        cache_write_tokens: count(told, "cache_creation_input_tokens"),
        reasoning_tokens: 0,
    };
    // `qwen` includes cached tokens in the input tokens; the total reveals it.
    let total = count(told, "total_tokens");
    if total > 0 && total < usage.total() {
        usage.input_tokens = usage.input_tokens.saturating_sub(usage.cache_read_tokens);
    }
    usage
}

/// Usage of all models from `modelUsage`, which includes subagents and all runs of the session.
fn usage_of_models(told: &Value) -> Option<Usage> {
    let models = told.as_object().filter(|models| !models.is_empty())?;
    let mut sum = Usage::default();
    for model in models.values() {
        sum.add(&Usage {
            input_tokens: count(model, "inputTokens"),
            output_tokens: count(model, "outputTokens"),
            cache_read_tokens: count(model, "cacheReadInputTokens"),
            cache_write_tokens: count(model, "cacheCreationInputTokens"),
            reasoning_tokens: 0,
        });
    }
    Some(sum)
}

impl Claude {
    /// Handles a message; returns false if it is invalid.
    pub(super) fn message(&mut self, message: &Value, sink: &mut Sink<'_>) -> bool {
        match text(message, "type") {
            "system" => self.system(message, sink),
            "assistant" => self.assistant(message, sink),
            "user" => tool_results(message, sink),
            "stream_event" => self.stream_event(message, sink),
            "result" => self.result(message, sink),
            "rate_limit_event" => self.rate_limit(message, sink),
            "control_request" => control_request(message, sink),
            "control_cancel_request" => {
                let id = text(message, "request_id").to_owned();
                sink.push(CliEvent::PermissionWithdrawn { id });
            }
            // Kinds without information about the work; each version adds more.
            "" => return false,
            _ => {}
        }
        true
    }

    fn system(&mut self, message: &Value, sink: &mut Sink<'_>) {
        match text(message, "subtype") {
            "init" => {
                let id = text(message, "session_id");
                let model = text(message, "model");
                if id != self.session {
                    id.clone_into(&mut self.session);
                    sink.push(CliEvent::Session {
                        id: id.to_owned(),
                        model: (!model.is_empty()).then(|| model.to_owned()),
                    });
                }
            }
            "api_retry" => {
                let status = count(message, "error_status");
                let (attempt, most) = (count(message, "attempt"), count(message, "max_retries"));
                // After the first attempt, the program may renew its login and succeed.
                if matches!(status, 401 | 403) && attempt > 1 {
                    let error = text(message, "error");
                    let why = format!(
                        "the provider answered {status} ({error}): check the key or the login"
                    );
                    sink.push(CliEvent::Permanent(why));
                    return;
                }
                let why = format!("the provider answered {status}; attempt {attempt} of {most}");
                sink.push(CliEvent::Retrying(why));
            }
            _ => {}
        }
    }

    fn assistant(&mut self, line: &Value, sink: &mut Sink<'_>) {
        let Some(message) = line.get("message") else {
            return;
        };
        let blocks = message.get("content").and_then(Value::as_array);
        let blocks = blocks.map(Vec::as_slice).unwrap_or_default();
        // The program reports provider errors in this form; the text is not the model's.
        if text(message, "model") == "<synthetic>" || !text(line, "error").is_empty() {
            let words = blocks.iter().map(|block| text(block, "text"));
            let words: Vec<&str> = words.filter(|words| !words.is_empty()).collect();
            self.provider_error(&words.join("\n"), text(line, "error") == "rate_limit", sink);
            return;
        }
        // A subagent's text is treated like tool output.
        let is_own = line.get("parent_tool_use_id").is_none_or(Value::is_null);
        for block in blocks {
            match text(block, "type") {
                "text" if is_own => {
                    sink.own_text(text(block, "text"));
                    sink.end_text();
                }
                "thinking" if is_own => {
                    sink.thought(text(block, "thinking"));
                    sink.thought("\n");
                }
                "tool_use" | "server_tool_use" => {
                    let name = text(block, "name");
                    let input = block.get("input").unwrap_or(&Value::Null);
                    sink.push(CliEvent::Tool(ToolActivity {
                        id: text(block, "id").to_owned(),
                        name: name.to_owned(),
                        state: ToolState::Started,
                        detail: ToolDetail::of_input(name, input),
                    }));
                    // A subagent's plan is not that of the task.
                    if is_own && text(block, "name") == "TodoWrite" {
                        sink.plan(block.pointer("/input/todos"), |todo| {
                            let state = PlanStepState::deserialize(todo.get("status")?).ok()?;
                            Some((text(todo, "content"), state))
                        });
                    }
                }
                _ => {}
            }
        }
        if let Some(usage) = message.get("usage") {
            let key = (text(message, "id").to_owned(), request_of(line));
            self.ledger.message(key, &usage_of(usage));
            self.report(sink);
        }
    }

    /// Handles parts of a message, with `--include-partial-messages`. The full text follows later,
    /// so only usage figures count here.
    fn stream_event(&mut self, line: &Value, sink: &mut Sink<'_>) {
        let Some(event) = line.get("event") else {
            return;
        };
        let told = match text(event, "type") {
            "message_start" => {
                let Some(message) = event.get("message") else {
                    return;
                };
                self.streamed = (text(message, "id").to_owned(), request_of(line));
                message.get("usage")
            }
            "message_delta" => event.get("usage"),
            _ => None,
        };
        if let Some(usage) = told {
            self.ledger.message(self.streamed.clone(), &usage_of(usage));
            self.report(sink);
        }
    }

    fn result(&mut self, message: &Value, sink: &mut Sink<'_>) {
        let errors = message.get("errors").and_then(Value::as_array);
        let errors = errors.into_iter().flatten().filter_map(Value::as_str);
        let errors: Vec<&str> = errors.collect();
        if let Some(lost) = errors.iter().find(|error| is_session_lost(error)) {
            sink.push(CliEvent::SessionRefused((*lost).to_owned()));
            return;
        }
        if let Some(usage) = message.get("usage") {
            self.ledger.whole(&usage_of(usage));
        }
        if let Some(usage) = message.get("modelUsage").and_then(usage_of_models) {
            let cost = message.get("total_cost_usd").and_then(Value::as_f64);
            self.whole = Some(SessionUsage {
                id: self.session.clone(),
                usage,
                cost: cost.and_then(dollars),
            });
        }
        self.report(sink);
        let errors = errors.join("\n");
        let words = match text(message, "result") {
            "" => &*errors,
            words => words,
        };
        let is_error = message.get("is_error").and_then(Value::as_bool) == Some(true);
        let is_ok = text(message, "subtype") == "success" && !is_error;
        if !is_ok {
            let is_limit = count(message, "api_error_status") == 429;
            if is_limit || reset_of(words).is_some() || is_permanent(words) {
                self.provider_error(words, is_limit, sink);
            }
        }
        let denials = message.get("permission_denials").and_then(Value::as_array);
        let denied = denials
            .into_iter()
            .flatten()
            .map(|denial| text(denial, "tool_name"));
        let words = if words.is_empty() {
            text(message, "subtype")
        } else {
            words
        };
        sink.push(CliEvent::Result(RunResult {
            is_ok,
            text: words.to_owned(),
            denied: denied.map(str::to_owned).collect(),
        }));
    }

    fn rate_limit(&mut self, message: &Value, sink: &mut Sink<'_>) {
        let Some(info) = message.get("rate_limit_info") else {
            return;
        };
        let resets = info.get("resetsAt").and_then(Value::as_i64);
        let resets = resets.map(|at| Reset::At(time_of(at)));
        // A rejected overage does not stop the run while the plan has capacity.
        let is_overage = info.get("isUsingOverage").and_then(Value::as_bool) == Some(true);
        let is_refused = text(info, "status") == "rejected"
            || (is_overage && text(info, "overageStatus") == "rejected");
        if resets.is_some() {
            self.window_ends.clone_from(&resets);
        }
        if is_refused {
            sink.push(CliEvent::RateLimit(resets.unwrap_or(Reset::Unknown)));
        }
    }

    /// Reports a provider error: a rate limit, or another reason.
    fn provider_error(&mut self, words: &str, is_limit: bool, sink: &mut Sink<'_>) {
        let reset = reset_of(words).or(is_limit.then_some(Reset::Unknown));
        sink.push(match (reset, &self.window_ends) {
            (Some(Reset::Unknown), Some(known)) => CliEvent::RateLimit(known.clone()),
            (Some(reset), _) => CliEvent::RateLimit(reset),
            (None, _) if is_permanent(words) => CliEvent::Permanent(words.to_owned()),
            (None, _) => CliEvent::Error(words.to_owned()),
        });
    }

    fn report(&mut self, sink: &mut Sink<'_>) {
        let told = (self.ledger.total(), self.whole.clone());
        if self.reported.as_ref() != Some(&told) {
            self.reported = Some(told.clone());
            let (usage, session) = told;
            sink.push(CliEvent::Usage(UsageReport {
                counter: Counter::Run,
                usage,
                cost: None,
                session,
            }));
        }
    }
}

/// Id of the request that a message answers, under either name; some versions omit it.
fn request_of(line: &Value) -> String {
    let ids = [text(line, "request_id"), text(line, "requestId")];
    ids.concat()
}

fn tool_results(line: &Value, sink: &mut Sink<'_>) {
    let content = line.pointer("/message/content").and_then(Value::as_array);
    for block in content.into_iter().flatten() {
        if text(block, "type") == "tool_result" {
            let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
            sink.push(CliEvent::Tool(ToolActivity {
                id: text(block, "tool_use_id").to_owned(),
                name: String::new(),
                state: if is_error {
                    ToolState::Failed
                } else {
                    ToolState::Completed
                },
                detail: ToolDetail::default().printed(&text_of_content(
                    block.get("content").unwrap_or(&Value::Null),
                )),
            }));
        }
    }
}

fn control_request(message: &Value, sink: &mut Sink<'_>) {
    let Some(request) = message.get("request") else {
        return;
    };
    if text(request, "subtype") == "can_use_tool" {
        let input = request.get("input").unwrap_or(&Value::Null);
        let (id, tool) = (text(message, "request_id"), text(request, "tool_name"));
        sink.push(CliEvent::Permission(of_tool(id, tool, input)));
    }
}
