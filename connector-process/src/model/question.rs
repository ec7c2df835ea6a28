//! From a conversation to what a provider is asked.

use std::time::Duration;

use genai::chat::{
    Binary, ChatMessage, ChatOptions, ChatRequest, ChatRole, ContentPart, MessageContent,
    ReasoningEffort, Tool, ToolCall, ToolResponse,
};
use goondan_protocol::JsonObject;
use goondan_protocol::call::{Completion, CompletionMessage};
use goondan_protocol::definition::{HostedModel, ModelParams};
use goondan_protocol::message::Role;
use serde_json::Value;

use super::reply::Thoughts;

/// What a model is asked, and how.
pub(super) fn of(model: &HostedModel, completion: Completion) -> (ChatRequest, ChatOptions) {
    let params = completion.params.or(&model.params);
    let mut request = ChatRequest::from_messages(
        completion
            .messages
            .iter()
            .filter_map(|message| message_of(model, message))
            .collect(),
    );
    request.system = completion.system;
    if !completion.tools.is_empty() {
        request = request.with_tools(completion.tools.into_iter().map(|tool| {
            Tool::new(tool.name.as_str())
                .with_description(tool.description)
                .with_schema(tool.parameters)
        }));
    }
    (request, options_of(model, params))
}

fn options_of(model: &HostedModel, params: ModelParams) -> ChatOptions {
    let timeouts = &model.timeouts;
    let effort = params.reasoning_effort.as_deref().and_then(effort_of);
    ChatOptions {
        temperature: params.temperature,
        top_p: params.top_p,
        max_tokens: params.max_tokens,
        stop_sequences: params.stop,
        seed: params.seed,
        reasoning_effort: effort,
        capture_usage: Some(true),
        capture_content: Some(true),
        capture_reasoning_content: Some(true),
        capture_tool_calls: Some(true),
        stream_header_timeout: Some(Duration::from_millis(timeouts.first_byte_ms)),
        stream_read_timeout: Some(Duration::from_millis(timeouts.stall_ms)),
        extra_body: (!model.options.is_empty()).then(|| Value::Object(model.options.clone())),
        ..ChatOptions::default()
    }
}

fn effort_of(word: &str) -> Option<ReasoningEffort> {
    match word {
        "none" => Some(ReasoningEffort::Zero),
        word => ReasoningEffort::from_keyword(word),
    }
}

/// One message; none if it says nothing: providers refuse empty ones.
fn message_of(model: &HostedModel, message: &CompletionMessage) -> Option<ChatMessage> {
    let role = match message.role {
        Role::System => ChatRole::System,
        Role::User => ChatRole::User,
        Role::Assistant => ChatRole::Assistant,
        Role::Tool => ChatRole::Tool,
    };
    let mut parts: Vec<ContentPart> = Vec::new();
    let mut thoughts = message
        .reasoning
        .as_ref()
        .and_then(|reasoning| Thoughts::read(reasoning, model));
    if let Some(thoughts) = &mut thoughts {
        parts.append(&mut thoughts.parts);
    }
    match message.content.as_json() {
        Value::Array(items) => {
            for item in items.iter().filter_map(Value::as_object) {
                parts.extend(part_of(item));
            }
        }
        _ => parts.extend(text_of(message.content.to_text())),
    }
    for call in message.content.tool_calls() {
        let call_id = call.id.to_string();
        let signatures = thoughts
            .as_mut()
            .and_then(|t| t.signatures.remove(&call_id));
        parts.push(ContentPart::ToolCall(ToolCall {
            call_id,
            fn_name: call.tool_name,
            fn_arguments: call.input,
            thought_signatures: signatures,
        }));
    }
    for result in message.content.tool_results() {
        // No provider knows of errors in the same way; the text says it to all of them.
        let text = if result.is_error {
            format!("Error: {}", result.text)
        } else {
            result.text
        };
        let response = ToolResponse::new(result.tool_call_id.to_string(), text);
        parts.push(ContentPart::ToolResponse(
            response.with_fn_name(result.tool_name),
        ));
    }
    (!parts.is_empty()).then(|| ChatMessage::new(role, MessageContent::from_parts(parts)))
}

fn text_of(text: String) -> Option<ContentPart> {
    (!text.is_empty()).then_some(ContentPart::Text(text))
}

/// A part that is text or an image. Calls and results are read apart.
fn part_of(part: &JsonObject) -> Option<ContentPart> {
    let field = |name: &str| part.get(name).and_then(Value::as_str);
    match field("type")? {
        "text" => text_of(field("text")?.to_owned()),
        "image" => image_of(field("image")?, field("mediaType")),
        _ => None,
    }
}

/// An image: the address of one, a `data:` URL, or Base64 with its media type.
fn image_of(image: &str, media_type: Option<&str>) -> Option<ContentPart> {
    const USUAL: &str = "image/png";
    if let Some(data) = image.strip_prefix("data:") {
        let (head, content) = data.split_once(',')?;
        let media_type = head.strip_suffix(";base64")?;
        let binary = Binary::from_base64(media_type, content.to_owned(), None);
        return Some(ContentPart::Binary(binary));
    }
    let media_type = media_type.unwrap_or(USUAL);
    let is_address = image.starts_with("https://") || image.starts_with("http://");
    Some(ContentPart::Binary(if is_address {
        Binary::from_url(media_type, image.to_owned(), None)
    } else {
        Binary::from_base64(media_type, image.to_owned(), None)
    }))
}
