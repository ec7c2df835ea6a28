//! Converts a conversation to a provider-neutral request.

use goondan_connectors::thinking::ThinkingParams;
use goondan_protocol::call::CompletionRequest;
use goondan_protocol::definition::{HostedModel, HostedProvider, ModelParams};
use goondan_protocol::message::{MessageRole, ToolCall, ToolResult};
use serde_json::{Value, json};

use super::message::{ChatMessage, said_of};
use super::normalize::{self, ToolNames};
use super::tool_schema;

#[derive(Debug)]
pub(super) struct ChatRequest {
    /// The system prompt and the system messages before the first other message.
    pub(super) system: Option<String>,
    pub(super) messages: Vec<ChatMessage>,
    pub(super) tools: Vec<OfferedTool>,
    pub(super) params: ModelParams,
    /// Mapping of tool names in the request.
    pub(super) names: ToolNames,
    /// True if the provider demanded the thoughts of all earlier messages.
    pub(super) shows_thoughts: bool,
    /// True if the provider demanded a signature of each step's first call.
    pub(super) signs_calls: bool,
}

/// Signature of a step's first call if another model made it.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// A tool in a form that all providers accept.
#[derive(Debug)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Value,
}

impl ChatRequest {
    pub(super) fn of(model: &HostedModel, completion: CompletionRequest) -> Self {
        let params = completion.params.or(&model.params);
        let mut system: Vec<String> = completion.system.into_iter().collect();
        let mut messages = Vec::new();
        let said = completion.messages.iter().filter_map(|m| said_of(model, m));
        for said in said {
            // Later system messages keep their place, because a changed system prompt invalidates
            // the cache of everything after it.
            if said.role == MessageRole::System && messages.is_empty() {
                system.push(said.text());
            } else {
                messages.push(said);
            }
        }
        let offered = completion.tools.iter().map(|tool| tool.name.as_str());
        let mut names = ToolNames::reserving(offered);
        let tools = completion.tools.into_iter().map(|tool| OfferedTool {
            name: names.rewrite(tool.name.as_str()),
            parameters: tool_schema::accepted(&tool.parameters),
            description: tool.description,
        });
        let tools = tools.collect();
        Self {
            system: (!system.is_empty()).then(|| system.join("\n\n")),
            messages: normalize::conversation(model, messages, &mut names),
            tools,
            params,
            names,
            shows_thoughts: false,
            signs_calls: model.model.contains("gemini-3"),
        }
    }

    /// The signature that Google demands of a message's call: the model's own, or for the first
    /// call a placeholder.
    pub(super) fn signature_of<'s>(&self, said: &'s ChatMessage, place: usize) -> Option<&'s str> {
        let own = said.thoughts.as_ref().and_then(|thoughts| {
            let signatures = thoughts
                .signatures
                .get(said.calls.get(place)?.id.as_str())?;
            signatures.first().map(String::as_str)
        });
        own.or((place == 0 && self.signs_calls).then_some(UNSIGNED))
    }

    /// True if the last messages are tool results, so that a model with nothing to add may end
    /// silently.
    pub(super) fn reports_results(&self) -> bool {
        let last = self.messages.last();
        last.is_some_and(|said| said.role == MessageRole::Tool)
    }

    /// Thinking parameters for an Anthropic model.
    pub(super) fn thinking(&self, model: &HostedModel) -> ThinkingParams {
        ThinkingParams::of_anthropic(&model.model, self.params.reasoning_effort.as_deref())
    }

    /// Index of the first message of the running turn's steps: after the last user message.
    pub(super) fn place_of_steps(&self) -> usize {
        let last = self
            .messages
            .iter()
            .rposition(|said| said.role == MessageRole::User);
        last.map_or(0, |place| place + 1)
    }
}

/// Text of a tool result for a model. Providers mark errors differently, so the text itself marks
/// them.
pub(super) fn result_text(result: &ToolResult) -> String {
    if result.is_error {
        format!("Error: {}", result.text)
    } else {
        result.text.clone()
    }
}

/// The arguments of a call as an object, which providers require. A model that wrote invalid JSON
/// is shown its text.
pub(super) fn arguments(call: &ToolCall) -> Value {
    match &call.input {
        input @ Value::Object(_) => input.clone(),
        Value::Null => json!({}),
        other => json!({"invalidArguments": other}),
    }
}

/// True if thoughts are sent back as `reasoning_content`. Some services require them during tool
/// calls, some reject the field, and most ignore it.
pub(super) fn sends_reasoning(model: &HostedModel) -> bool {
    const ASKING: &[&str] = &["deepseek.com", "moonshot.ai", "moonshot.cn"];
    let host = || {
        let endpoint = model.endpoint.as_deref()?;
        let url = reqwest::Url::parse(endpoint).ok()?;
        url.host_str().map(str::to_owned)
    };
    let is_asked_for = || {
        let is_of = |host: &str, domain: &&str| {
            host.strip_suffix(*domain)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        host().is_some_and(|host| ASKING.iter().any(|domain| is_of(&host, domain)))
    };
    model.provider == HostedProvider::OpenAi && model.send_reasoning.unwrap_or_else(is_asked_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(endpoint: &str) -> HostedModel {
        serde_json::from_value(json!({"name": "m", "provider": "openai", "model": "big-1",
            "endpoint": endpoint}))
        .unwrap()
    }

    #[test]
    fn thoughts_go_back_only_to_servers_that_take_them() {
        for (endpoint, is_sent) in [
            ("https://api.deepseek.com/v1", true),
            ("https://api.moonshot.ai/v1", true),
            ("https://api.openai.com/v1", false),
            ("https://api.mistral.ai/v1", false),
            ("https://notdeepseek.com/v1", false),
            ("http://127.0.0.1:8080/v1", false),
        ] {
            assert_eq!(sends_reasoning(&model(endpoint)), is_sent, "{endpoint}");
        }
        let mut told = model("http://127.0.0.1:8080/v1");
        told.send_reasoning = Some(true);
        assert!(sends_reasoning(&told));
    }

    #[test]
    fn steer_3_results_are_sent_in_call_order() {
        let call =
            |id: &str| json!({"type": "tool-call", "toolCallId": id, "toolName": "t", "input": {}});
        let result = |id: &str| {
            let output = json!({"type": "text", "value": id});
            json!({"role": "tool", "content": [
                {"type": "tool-result", "toolCallId": id, "toolName": "t", "output": output}]})
        };
        let completion = json!({"messages": [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [call("a"), call("b"), call("c")]},
            result("b"), result("c"), result("a"),
            {"role": "assistant", "content": [call("d"), call("e")]},
            result("e"), result("d"),
        ]});
        let completion = serde_json::from_value(completion).unwrap();
        let question = ChatRequest::of(&model("http://localhost"), completion);
        let results = question.messages.iter().flat_map(|said| &said.results);
        let ids: Vec<&str> = results.map(|result| result.tool_call_id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn only_system_text_before_the_first_message_joins_the_prompt() {
        let completion: CompletionRequest =
            serde_json::from_value(json!({"system": "Be brief.", "messages": [
                {"role": "system", "content": "It is Monday."},
                {"role": "user", "content": "Hi."},
                {"role": "system", "content": "Call a tool."},
                {"role": "assistant", "content": "  "},
            ]}))
            .unwrap();
        let question = ChatRequest::of(&model("http://localhost"), completion);
        assert_eq!(
            question.system.as_deref(),
            Some("Be brief.\n\nIt is Monday.")
        );
        let roles: Vec<_> = question.messages.iter().map(|said| said.role).collect();
        assert_eq!(roles, [MessageRole::User, MessageRole::System]);
        assert_eq!(question.place_of_steps(), 1);
    }
}
