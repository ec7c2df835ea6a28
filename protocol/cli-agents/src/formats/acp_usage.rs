//! Tokens of a prompt, as reported by `acp` agents.
//!
//! There are three ways, and an agent may use several. All count one prompt, which is one run:
//!
//! * `usage` of the response to `session/prompt`;
//! * `_meta.quota` of that response: the sum, and the same by model, which may include helper
//!   models;
//! * `_meta.usage` of an update: one call of the model. These are summed.

use goondan_protocol::usage::Usage;
use serde_json::Value;

use super::Sink;
use crate::event::CliEvent;
use crate::usage::{Counter, UsageReport, count, largest};

#[derive(Debug, Default)]
pub(super) struct PromptUsage {
    calls: Usage,
    whole: Usage,
}

impl PromptUsage {
    /// Records one call of the model; returns true if it used tokens.
    pub(super) fn call(&mut self, told: &Value) -> bool {
        let usage = usage_of(told);
        self.calls.add(&usage);
        usage != Usage::default()
    }

    /// Records the response to the prompt.
    pub(super) fn result(&mut self, result: &Value) {
        let usage = result.get("usage").map(usage_of).unwrap_or_default();
        let quota = result.pointer("/_meta/quota").unwrap_or(&Value::Null);
        let sum = quota.get("token_count").map(usage_of).unwrap_or_default();
        let mut by_model = Usage::default();
        let models = quota.get("model_usage").and_then(Value::as_array);
        for model in models.into_iter().flatten() {
            by_model.add(&model.get("token_count").map(usage_of).unwrap_or_default());
        }
        let whole = [usage, sum, by_model];
        self.whole = whole
            .iter()
            .fold(self.whole, |one, other| largest(&one, other));
    }

    pub(super) fn report(&self, sink: &mut Sink<'_>) {
        let usage = largest(&self.calls, &self.whole);
        if usage != Usage::default() {
            sink.push(CliEvent::Usage(UsageReport {
                counter: Counter::Run,
                usage,
                cost: None,
                session: None,
            }));
        }
    }
}

/// Reads usage under any of its known names.
fn usage_of(told: &Value) -> Usage {
    let first = |names: &[&str]| {
        let mut counts = names.iter().map(|name| count(told, name));
        counts.find(|count| *count > 0).unwrap_or_default()
    };
    let input = first(&["inputTokens", "input_tokens"]);
    let output = first(&["outputTokens", "output_tokens"]);
    let cached = first(&["cachedReadTokens", "cachedInputTokens"]);
    let written = first(&["cachedWriteTokens", "cacheWriteInputTokens"]);
    let reasoning = first(&["thoughtTokens", "reasoningOutputTokens"]);
    // Some programs include cached tokens in the input tokens. The total reveals it.
    let total = count(told, "totalTokens");
    let holds_cached = total > 0 && total < input + output + cached + written;
    Usage {
        input_tokens: if holds_cached {
            input.saturating_sub(cached).saturating_sub(written)
        } else {
            input
        },
        output_tokens: output,
        cache_read_tokens: cached,
        cache_write_tokens: written,
        reasoning_tokens: reasoning,
    }
}
