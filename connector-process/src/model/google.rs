//! Google's Gemini API.

use goondan_protocol::definition::HostedModel;
use goondan_protocol::message::{MessageRole, ToolCall};
use goondan_protocol::usage::Usage;
use serde_json::{Map, Value, json};

use super::dialect::{Dialect, ReplyFault, StreamProgress, error_at, text_at, tokens_at};
use super::draft::Draft;
use super::events::SseEvent;
use super::message::{ChatMessage, MessagePart, Picture};
use super::question::{ChatRequest, arguments, result_text};

/// Prefix of ids generated for calls that Google sent without one; it is not sent back to Google.
const OWN_ID: &str = "call_";

/// Finish reasons that mean a refusal.
const DECLINED: &[&str] = &[
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "LANGUAGE",
];

/// Finish reason of a reply that continues, where a server writes default values.
const UNSPECIFIED: &str = "FINISH_REASON_UNSPECIFIED";

/// Finish reasons that mean the provider dropped an unreadable call.
const LOST_CALL: &[&str] = &[
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
];

pub(super) fn request(model: &HostedModel, question: &ChatRequest) -> Value {
    let mut body = Map::new();
    if let Some(system) = &question.system {
        body.insert(
            "systemInstruction".to_owned(),
            json!({"parts": [{"text": system}]}),
        );
    }
    if !question.tools.is_empty() {
        let declared = question.tools.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description,
                "parametersJsonSchema": tool.parameters})
        });
        let declared: Vec<Value> = declared.collect();
        body.insert(
            "tools".to_owned(),
            json!([{"functionDeclarations": declared}]),
        );
    }
    body.insert("contents".to_owned(), Value::Array(contents(question)));
    body.insert(
        "generationConfig".to_owned(),
        Value::Object(generation(model, question)),
    );
    Value::Object(body)
}

fn generation(model: &HostedModel, question: &ChatRequest) -> Map<String, Value> {
    let params = &question.params;
    let mut config = Map::new();
    let mut thinking = Map::from_iter([("includeThoughts".to_owned(), json!(true))]);
    // A model without thinking rejects the whole request because of this field.
    let is_asked = params.reasoning_effort.is_some() || thinks(&model.model);
    if let Some(effort) = params.reasoning_effort.as_deref() {
        let is_new = ["gemini-3", "gemma-4"]
            .iter()
            .any(|name| model.model.contains(name));
        let (level, budget) = match effort {
            "none" => (None, Some(0)),
            "minimal" => (Some("MINIMAL"), Some(1_000)),
            "low" => (Some("LOW"), Some(1_000)),
            "medium" => (Some("MEDIUM"), Some(8_000)),
            _ => (Some("HIGH"), Some(24_000)),
        };
        if is_new {
            if let Some(level) = level {
                thinking.insert("thinkingLevel".to_owned(), json!(level));
            }
        } else if let Some(budget) = budget {
            thinking.insert("thinkingBudget".to_owned(), json!(budget));
        }
    }
    if is_asked {
        config.insert("thinkingConfig".to_owned(), Value::Object(thinking));
    }
    let fields = [
        ("temperature", params.temperature.map(|it| json!(it))),
        ("topP", params.top_p.map(|it| json!(it))),
        ("maxOutputTokens", params.max_tokens.map(|it| json!(it))),
        ("seed", params.seed.map(|it| json!(it))),
        (
            "stopSequences",
            (!params.stop.is_empty()).then(|| json!(params.stop)),
        ),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            config.insert(name.to_owned(), value);
        }
    }
    config
}

/// True if a model is known to support thinking: Gemini from 2.5 on, and the aliases of its newest
/// version. Image and audio variants do not.
fn thinks(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let Some(version) = name.strip_prefix("gemini-") else {
        return false;
    };
    if ["image", "tts", "live", "audio", "embedding"]
        .iter()
        .any(|kind| version.contains(kind))
    {
        return false;
    }
    let number = version.split('-').next().unwrap_or_default();
    let mut parts = number.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(2)), Some(Ok(minor))) => minor >= 5,
        (Some(Ok(major)), _) => major >= 3,
        _ => version.ends_with("-latest"),
    }
}

/// The messages. The results of parallel calls are one message, as Google requires.
fn contents(question: &ChatRequest) -> Vec<Value> {
    let mut contents: Vec<(MessageRole, Vec<Value>)> = Vec::new();
    for said in &question.messages {
        let parts = parts_of(question, said);
        match contents.last_mut() {
            Some((MessageRole::Tool, held)) if said.role == MessageRole::Tool => held.extend(parts),
            Some(_) | None => contents.push((said.role, parts)),
        }
    }
    let contents = contents.into_iter();
    contents
        .map(|(role, parts)| {
            let role = if role == MessageRole::Assistant {
                "model"
            } else {
                "user"
            };
            json!({"role": role, "parts": parts})
        })
        .collect()
}

fn parts_of(question: &ChatRequest, said: &ChatMessage) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for part in &said.parts {
        parts.push(match part {
            MessagePart::Text(text) if said.role == MessageRole::System => {
                json!({"text": format!("<system>\n{text}\n</system>")})
            }
            MessagePart::Text(text) => json!({"text": text}),
            MessagePart::Image(picture) => image(picture),
        });
    }
    for (place, call) in said.calls.iter().enumerate() {
        let signature = question.signature_of(said, place);
        let call = named(call, "args", arguments(call));
        parts.push(match signature {
            Some(signature) => json!({"functionCall": call, "thoughtSignature": signature}),
            None => json!({"functionCall": call}),
        });
    }
    for result in &said.results {
        let response = json!({"name": result.tool_name, "content": result_text(result)});
        let call = ToolCall {
            id: result.tool_call_id.clone(),
            tool_name: result.tool_name.clone(),
            input: Value::Null,
        };
        parts.push(json!({"functionResponse": named(&call, "response", response)}));
        let pictures = result.images.iter().filter_map(Picture::of);
        parts.extend(pictures.map(|picture| image(&picture)));
    }
    parts
}

/// A call or its result. The id is included only if it is Google's own.
fn named(call: &ToolCall, field: &str, value: Value) -> Value {
    let mut named = json!({"name": call.tool_name});
    if let Some(fields) = named.as_object_mut() {
        if !call.id.as_str().starts_with(OWN_ID) && !call.id.as_str().starts_with("call#") {
            fields.insert("id".to_owned(), json!(call.id));
        }
        fields.insert(field.to_owned(), value);
    }
    named
}

fn image(picture: &Picture) -> Value {
    match picture {
        Picture::At(url) => json!({"fileData": {"fileUri": url}}),
        Picture::Base64 { media_type, data } => {
            json!({"inlineData": {"mimeType": media_type, "data": data}})
        }
    }
}

/// The reader of one reply. The finish reason is the protocol's only end marker.
#[derive(Debug, Default)]
pub(super) struct GoogleReader {
    calls_begun: u64,
}

impl Dialect for GoogleReader {
    fn event(&mut self, event: &SseEvent, draft: &mut Draft) -> Result<StreamProgress, ReplyFault> {
        if event.data.trim().eq_ignore_ascii_case("[DONE]") {
            return Ok(StreamProgress::Unknown);
        }
        let said = super::dialect::json(event)?;
        self.take(&said, draft)
    }

    fn whole(&mut self, body: Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        let chunks = match body {
            Value::Array(chunks) => chunks,
            body => vec![body],
        };
        for chunk in &chunks {
            if self.take(chunk, draft)? == StreamProgress::Unknown {
                return Err(ReplyFault::Strange);
            }
        }
        Ok(())
    }

    fn may_just_end(&self) -> bool {
        true
    }

    fn is_declined(&self, draft: &Draft) -> bool {
        draft
            .stop_reason()
            .is_some_and(|reason| DECLINED.contains(&reason))
    }

    fn lost_a_call(&self, draft: &Draft) -> bool {
        draft
            .stop_reason()
            .is_some_and(|reason| LOST_CALL.contains(&reason))
    }
}

impl GoogleReader {
    fn take(&mut self, said: &Value, draft: &mut Draft) -> Result<StreamProgress, ReplyFault> {
        if error_at(said).is_some() {
            return Err(ReplyFault::Said(said.clone()));
        }
        let is_known = ["candidates", "promptFeedback", "usageMetadata"]
            .iter()
            .any(|field| said.get(field).is_some());
        if !is_known {
            return Ok(StreamProgress::Unknown);
        }
        draft.identify(said.get("responseId"), said.get("modelVersion"));
        count(said.get("usageMetadata"), draft);
        let parts = said.pointer("/candidates/0/content/parts");
        for part in parts.and_then(Value::as_array).into_iter().flatten() {
            self.take_part(part, draft)?;
        }
        let reason = text_at(said, "/candidates/0/finishReason");
        if let Some(reason) = reason.filter(|reason| *reason != UNSPECIFIED) {
            draft.stop(reason);
            if let Some(why) = text_at(said, "/candidates/0/finishMessage")
                && DECLINED.contains(&reason)
            {
                draft.refuse(why)?;
            }
        }
        if let Some(reason) = text_at(said, "/promptFeedback/blockReason") {
            draft.stop("SAFETY");
            let why = text_at(said, "/promptFeedback/blockReasonMessage").unwrap_or(reason);
            draft.refuse(why)?;
        }
        Ok(StreamProgress::More)
    }

    fn take_part(&mut self, part: &Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        if let Some(call) = part.get("functionCall").filter(|call| call.is_object()) {
            let index = self.calls_begun;
            self.calls_begun += 1;
            let text = |pointer: &str| text_at(call, pointer).unwrap_or_default();
            draft.begin_call(index, text("/id"), text("/name"))?;
            draft.set_arguments(index, call.get("args").cloned().unwrap_or(Value::Null))?;
            if let Some(signature) = text_at(part, "/thoughtSignature") {
                draft.sign_call(index, signature)?;
            }
        } else if let Some(text) = text_at(part, "/text") {
            if part.get("thought") == Some(&Value::Bool(true)) {
                draft.think(text)?;
            } else {
                draft.say(text)?;
            }
        }
        Ok(())
    }
}

/// Google counts thoughts separately from words, and includes cached tokens in the prompt count.
fn count(usage: Option<&Value>, draft: &mut Draft) {
    let Some(usage) = usage else { return };
    // Some chunks have an empty usage.
    if tokens_at(usage, "/promptTokenCount").is_none()
        && tokens_at(usage, "/candidatesTokenCount").is_none()
    {
        return;
    }
    let tokens = |pointer: &str| tokens_at(usage, pointer).unwrap_or(0);
    let cache_read_tokens = tokens("/cachedContentTokenCount");
    let read = tokens("/promptTokenCount").saturating_add(tokens("/toolUsePromptTokenCount"));
    let reasoning_tokens = tokens("/thoughtsTokenCount");
    draft.take(Usage {
        input_tokens: read.saturating_sub(cache_read_tokens),
        output_tokens: tokens("/candidatesTokenCount").saturating_add(reasoning_tokens),
        cache_read_tokens,
        cache_write_tokens: 0,
        reasoning_tokens,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_thoughts_are_asked_only_of_models_that_have_them() {
        for (name, expected) in [
            ("gemini-2.0-flash", false),
            ("models/gemini-2.0-flash-lite", false),
            ("gemini-1.5-pro", false),
            ("gemma-3-27b-it", false),
            ("gemini-2.5-flash-image", false),
            ("learnlm-2.0", false),
            ("gemini-2.5-flash", true),
            ("gemini-3-pro-preview", true),
            ("gemini-3.1-pro", true),
            ("gemini-flash-latest", true),
        ] {
            assert_eq!(thinks(name), expected, "{name}");
        }
    }
}
