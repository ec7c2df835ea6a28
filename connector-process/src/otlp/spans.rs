//! Converts runtime events to spans, by the semantic conventions for generative AI (pure).
//!
//! A turn is an `invoke_agent` span, the model request of a step a `chat` span, a tool call an
//! `execute_tool` span. A `chat` span ends when the model has answered: with the first call of its
//! step.

use std::collections::{HashMap, VecDeque};

use goondan_protocol::export::{ExportedEvent, ExportedModel};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::observe::{
    RuntimeEvent, RuntimeEventKind as Event, SpanOutcome, SpanPhase, SpanRecord,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::SpanId;
use goondan_protocol::usage::Usage;

use super::wire::{Attribute, OtlpSpanKind, Span};
use crate::limits::EXPORT_OPEN_SPANS_MAX;

#[derive(Debug)]
struct OpenSpan {
    record: SpanRecord,
    /// Time of the first call of a step.
    answered_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Spans {
    open: HashMap<SpanId, OpenSpan>,
    /// In the order of their starts, including some that have ended.
    order: VecDeque<SpanId>,
}

impl Spans {
    /// Handles an event and returns the span that it ended, if any.
    pub(super) fn take(&mut self, id: &WorkspaceId, exported: &ExportedEvent) -> Option<Span> {
        match exported.event.kind.phase() {
            SpanPhase::Begins => {
                self.begin(&exported.event);
                None
            }
            SpanPhase::Ends(outcome) => Some(self.end(id, exported, outcome)),
            SpanPhase::Within => None,
        }
    }

    fn begin(&mut self, event: &RuntimeEvent) {
        if event.kind == Event::ToolCalled
            && let Some(step) = event.parent_span_id.and_then(|id| self.open.get_mut(&id))
        {
            step.answered_at.get_or_insert(event.timestamp);
        }
        if self.open.contains_key(&event.span_id) {
            return;
        }
        let open = OpenSpan {
            record: SpanRecord::begun_by(event),
            answered_at: None,
        };
        self.open.insert(event.span_id, open);
        self.order.push_back(event.span_id);
        // A span started by a process that is gone may never end.
        while self.order.len() > EXPORT_OPEN_SPANS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
    }

    fn end(&mut self, id: &WorkspaceId, exported: &ExportedEvent, outcome: SpanOutcome) -> Span {
        let event = &exported.event;
        let open = self
            .open
            .remove(&event.span_id)
            .unwrap_or_else(|| OpenSpan {
                record: SpanRecord::begun_by(event),
                answered_at: None,
            });
        let start_ms = millis(open.record.started_at);
        let ended_at = open.answered_at.unwrap_or(event.timestamp);
        let (name, kind, mut attributes) = described(exported);
        attributes.push(("goondan.workspace.id", Attribute::from(id.as_str())));
        attributes.push(("goondan.turn.id", Attribute::from(event.turn_id.as_str())));
        let failed = outcome != SpanOutcome::Completed;
        if failed {
            let code = event.detail.as_deref().unwrap_or("_OTHER");
            attributes.push(("error.type", Attribute::from(code)));
        }
        Span {
            trace_id: event.trace_id.to_string(),
            span_id: event.span_id.to_string(),
            parent_span_id: event.parent_span_id.map(|id| id.to_string()),
            name,
            kind,
            start_ms,
            end_ms: millis(ended_at).max(start_ms),
            attributes,
            failed,
        }
    }
}

fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_unix_millis()).unwrap_or(0)
}

/// The provider's name in the conventions.
fn provider(model: &ExportedModel) -> &str {
    match model.provider.as_str() {
        "google" => "gcp.gemini",
        "azure" => "azure.ai.openai",
        "vertex" => "gcp.vertex_ai",
        "bedrock" => "aws.bedrock",
        other => other,
    }
}

/// Attributes of a model; for a call, also its server's address.
fn of_model(model: &ExportedModel, is_call: bool) -> Vec<(&'static str, Attribute)> {
    let mut attributes = vec![
        ("gen_ai.provider.name", provider(model).into()),
        ("gen_ai.request.model", model.name.as_str().into()),
    ];
    if let Some(host) = model.server_address.as_deref().filter(|_| is_call) {
        attributes.push(("server.address", host.into()));
        if let Some(port) = model.server_port {
            attributes.push(("server.port", u64::from(port).into()));
        }
    }
    attributes
}

/// Attributes of a call's usage. Cache fields are omitted if the cache was not used.
fn of_usage(usage: &Usage) -> Vec<(&'static str, Attribute)> {
    let mut attributes: Vec<(&'static str, Attribute)> = vec![
        ("gen_ai.usage.input_tokens", usage.read().into()),
        ("gen_ai.usage.output_tokens", usage.output_tokens.into()),
    ];
    let of_cache = [
        (
            "gen_ai.usage.cache_read.input_tokens",
            usage.cache_read_tokens,
        ),
        (
            "gen_ai.usage.cache_creation.input_tokens",
            usage.cache_write_tokens,
        ),
    ];
    let of_cache = of_cache.into_iter().filter(|(_, tokens)| *tokens > 0);
    attributes.extend(of_cache.map(|(name, tokens)| (name, tokens.into())));
    attributes
}

/// A span's name, kind and attributes.
fn described(exported: &ExportedEvent) -> (String, OtlpSpanKind, Vec<(&'static str, Attribute)>) {
    let event = &exported.event;
    let agent = event.agent_name.as_str();
    let mut attributes: Vec<(&'static str, Attribute)> = vec![
        ("gen_ai.agent.name", agent.into()),
        ("gen_ai.conversation.id", event.instance_key.as_str().into()),
    ];
    let (name, kind, operation) = match (&event.tool_call_id, &event.step_id) {
        (Some(call_id), _) => {
            let tool = event.tool_name.as_deref().unwrap_or_default();
            attributes.push(("gen_ai.tool.name", tool.into()));
            attributes.push(("gen_ai.tool.call.id", call_id.as_str().into()));
            attributes.push(("gen_ai.tool.type", "function".into()));
            if let Some(level) = event.sandbox {
                attributes.push(("goondan.sandbox.level", level.to_string().as_str().into()));
            }
            (
                format!("execute_tool {tool}"),
                OtlpSpanKind::Internal,
                "execute_tool",
            )
        }
        (None, Some(_)) => {
            let model = exported.model.as_ref().map_or("", |model| &*model.name);
            (format!("chat {model}"), OtlpSpanKind::Client, "chat")
        }
        (None, None) => (
            format!("invoke_agent {agent}"),
            OtlpSpanKind::Internal,
            "invoke_agent",
        ),
    };
    let is_chat = kind == OtlpSpanKind::Client;
    attributes.push(("gen_ai.operation.name", operation.into()));
    if let Some(model) = exported
        .model
        .as_ref()
        .filter(|_| event.tool_call_id.is_none())
    {
        attributes.extend(of_model(model, is_chat));
    }
    if let Some(response) = &event.response {
        let said = [
            ("gen_ai.response.id", &response.id),
            ("gen_ai.response.model", &response.model),
        ];
        for (name, value) in said {
            if let Some(value) = value {
                attributes.push((name, value.as_str().into()));
            }
        }
        if let Some(reason) = &response.finish_reason {
            let reasons = Attribute::texts(&[reason.as_str()]);
            attributes.push(("gen_ai.response.finish_reasons", reasons));
        }
    }
    if let Some(usage) = &event.usage {
        attributes.extend(of_usage(usage));
    }
    if let Some(cost) = event.cost_micro_usd {
        attributes.push(("goondan.cost.micro_usd", cost.0.into()));
    }
    (name, kind, attributes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::otlp::wire;

    fn event(kind: &str, at_ms: u32, span: u64, parent: u64, more: &Value) -> ExportedEvent {
        let mut event = json!({
            "type": kind,
            "timestamp": format!("2026-01-01T00:00:00.{at_ms:03}Z"),
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": format!("{span:016x}"),
            "parentSpanId": format!("{parent:016x}"),
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": "t",
        });
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "event": event, "model": {"name": "big-1", "provider": "google",
                "serverAddress": "example.org", "serverPort": 443},
        }))
        .unwrap()
    }

    fn spans_of(events: &[ExportedEvent]) -> Vec<Span> {
        let mut spans = Spans::default();
        let id = "w".parse().unwrap();
        events
            .iter()
            .filter_map(|event| spans.take(&id, event))
            .collect()
    }

    fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Attribute> {
        let mut found = span.attributes.iter();
        found
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    #[test]
    fn a_turn_is_an_agent_a_step_a_chat_and_a_call_a_tool() {
        let step = json!({"stepId": "t.1"});
        let call = json!({"stepId": "t.1", "toolCallId": "c", "toolName": "bash__exec"});
        let ended = json!({"stepId": "t.1", "costMicroUsd": 600,
            "response": {"id": "r-1", "model": "big-1-0901", "finishReason": "stop"}, "usage": {
            "inputTokens": 100, "cacheReadTokens": 20, "outputTokens": 7}});
        let failed = json!({"stepId": "t.1", "toolCallId": "c", "toolName": "bash__exec"});
        let spans = spans_of(&[
            event("turn.started", 0, 1, 9, &json!({})),
            event("step.started", 10, 2, 1, &step),
            event("tool.called", 300, 3, 2, &call),
            event("tool.failed", 500, 3, 2, &failed),
            event("step.completed", 510, 2, 1, &ended),
            event("budget.warning", 515, 2, 1, &step),
            event("turn.failed", 520, 1, 9, &json!({"detail": "E_LOOP"})),
        ]);
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "execute_tool bash__exec",
                "chat big-1",
                "invoke_agent clerk"
            ]
        );
        let [tool, chat, turn] = spans.as_slice() else {
            panic!("{spans:?}")
        };
        assert_eq!(attribute(tool, "error.type"), Some(&"_OTHER".into()));
        assert_eq!(chat.kind, OtlpSpanKind::Client);
        assert_eq!(
            chat.end_ms - chat.start_ms,
            290,
            "the tool is not the model's time"
        );
        assert_eq!(
            attribute(chat, "gen_ai.usage.input_tokens"),
            Some(&120.into())
        );
        assert_eq!(
            attribute(chat, "gen_ai.provider.name"),
            Some(&"gcp.gemini".into())
        );
        assert_eq!(attribute(chat, "goondan.cost.micro_usd"), Some(&600.into()));
        assert_eq!(attribute(chat, "gen_ai.response.id"), Some(&"r-1".into()));
        assert_eq!(
            attribute(chat, "gen_ai.response.model"),
            Some(&"big-1-0901".into())
        );
        assert_eq!(
            attribute(chat, "gen_ai.response.finish_reasons"),
            Some(&Attribute::texts(&["stop"]))
        );
        assert_eq!(
            attribute(chat, "server.address"),
            Some(&"example.org".into())
        );
        assert_eq!(attribute(chat, "server.port"), Some(&443.into()));
        assert_eq!(attribute(turn, "server.address"), None);
        let reasons = serde_json::to_value(Attribute::texts(&["stop"])).unwrap();
        assert_eq!(
            reasons,
            json!({"arrayValue": {"values": [{"stringValue": "stop"}]}})
        );
        assert_eq!(attribute(turn, "error.type"), Some(&"E_LOOP".into()));
        assert_eq!(
            attribute(turn, "gen_ai.conversation.id"),
            Some(&"main".into())
        );
        assert!(turn.failed && !chat.failed);
        let body: Value = serde_json::from_str(&wire::request("shop", &spans)).unwrap();
        let written = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][2];
        assert_eq!(written["parentSpanId"], "0000000000000009");
        assert_eq!(written["startTimeUnixNano"], "1767225600000000000");
        assert_eq!(written["status"]["code"], 2);
        let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(
            *service,
            json!({"key": "service.name", "value": {"stringValue": "shop"}})
        );
    }

    #[test]
    fn span_without_known_start_is_dated_by_its_duration() {
        let spans = spans_of(&[event(
            "turn.completed",
            520,
            1,
            9,
            &json!({"durationMs": 500}),
        )]);
        assert_eq!(spans[0].end_ms - spans[0].start_ms, 500);
    }

    #[test]
    fn spans_that_never_end_are_dropped_beyond_the_limit() {
        let mut spans = Spans::default();
        let id = "w".parse().unwrap();
        for span in 1..=EXPORT_OPEN_SPANS_MAX as u64 + 10 {
            spans.take(&id, &event("turn.started", 0, span, 9, &json!({})));
        }
        assert_eq!(spans.open.len(), EXPORT_OPEN_SPANS_MAX);
        assert_eq!(spans.order.len(), EXPORT_OPEN_SPANS_MAX);
    }
}
