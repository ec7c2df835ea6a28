//! The Chat Completions API of `OpenAI`, and of the many servers with a nearly compatible API.

use goondan_protocol::definition::HostedModel;
use goondan_protocol::message::MessageRole;
use goondan_protocol::usage::Usage;
use serde_json::{Map, Value, json};

use super::dialect::{Dialect, ReplyFault, StreamProgress, is_text, text_at, tokens_at};
use super::draft::Draft;
use super::events::SseEvent;
use super::message::{ChatMessage, MessagePart, Picture};
use super::question::{ChatRequest, arguments, sends_reasoning, told};
use super::tool_calls::{CallJoiner, Fragment};

/// End marker of a stream.
const DONE: &str = "[DONE]";

/// Start of the finish reason of a reply that a filter removed. Gemini's compatible API appends the
/// reason.
const FILTERED: &str = "content_filter";

/// The same in Zhipu's API.
const FILTERED_BY_ZHIPU: &str = "sensitive";

/// Start of the finish reason of Gemini's compatible API for an unreadable tool call.
const LOST_CALL: &str = "function_call_filter";

/// Models that reject `max_tokens`, by name prefix.
const COMPLETION_TOKENS: &[&str] = &["gpt-5", "gpt-6", "o1", "o3", "o4"];

pub(super) fn request(model: &HostedModel, question: &ChatRequest) -> Value {
    let params = &question.params;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("model", json!(model.model));
    put("stream", json!(true));
    put("stream_options", json!({"include_usage": true}));
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            }})
        });
        put("tools", tools.collect());
    }
    put("messages", Value::Array(messages(model, question)));
    if let Some(effort) = &params.reasoning_effort {
        put("reasoning_effort", json!(effort));
    }
    if let Some(temperature) = params.temperature {
        put("temperature", json!(temperature));
    }
    if let Some(top_p) = params.top_p {
        put("top_p", json!(top_p));
    }
    if let Some(tokens) = params.max_tokens {
        let is_new = model.endpoint.is_none()
            || COMPLETION_TOKENS
                .iter()
                .any(|name| model.model.starts_with(name));
        let name = if is_new {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        put(name, json!(tokens));
    }
    if !params.stop.is_empty() {
        put("stop", json!(params.stop));
    }
    if let Some(seed) = params.seed {
        put("seed", json!(seed));
    }
    Value::Object(fields)
}

fn messages(model: &HostedModel, question: &ChatRequest) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(system) = &question.system {
        messages.push(json!({"role": "system", "content": system}));
    }
    let sends_thoughts = sends_reasoning(model);
    let steps = question.place_of_steps();
    // Images that tools returned: a result can only be text, and no message may separate results.
    let mut images: Vec<Value> = Vec::new();
    for (place, said) in question.messages.iter().enumerate() {
        if said.role != MessageRole::Tool {
            messages.extend(shown(&mut images));
        }
        match said.role {
            MessageRole::System => messages.push(json!({"role": "system", "content": said.text()})),
            MessageRole::User => messages.push(json!({"role": "user", "content": content(said)})),
            MessageRole::Assistant => {
                // Thoughts of earlier turns are obsolete, and some services reject them.
                let with_thoughts = sends_thoughts && place >= steps;
                messages.push(assistant(said, with_thoughts));
            }
            MessageRole::Tool => {
                for result in &said.results {
                    messages.push(json!({
                        "role": "tool", "tool_call_id": result.tool_call_id, "content": told(result),
                    }));
                    let pictures = result.images.iter().filter_map(Picture::of);
                    let pictures: Vec<Value> = pictures.map(|picture| image(&picture)).collect();
                    if !pictures.is_empty() {
                        let text = format!(
                            "Images returned by `{}` ({}):",
                            result.tool_name, result.tool_call_id
                        );
                        images.push(json!({"type": "text", "text": text}));
                        images.extend(pictures);
                    }
                }
            }
        }
    }
    messages.extend(shown(&mut images));
    messages
}

fn shown(images: &mut Vec<Value>) -> Option<Value> {
    let images = std::mem::take(images);
    (!images.is_empty()).then(|| json!({"role": "user", "content": images}))
}

fn content(said: &ChatMessage) -> Value {
    if said.is_text() {
        return Value::String(said.text());
    }
    let parts = said.parts.iter().map(|part| match part {
        MessagePart::Text(text) => json!({"type": "text", "text": text}),
        MessagePart::Image(picture) => image(picture),
    });
    parts.collect()
}

fn image(picture: &Picture) -> Value {
    json!({"type": "image_url", "image_url": {"url": picture.url()}})
}

fn assistant(said: &ChatMessage, with_thoughts: bool) -> Value {
    let mut message = json!({"role": "assistant", "content": said.text()});
    let Some(fields) = message.as_object_mut() else {
        return message;
    };
    if !said.calls.is_empty() {
        let calls = said.calls.iter().map(|call| {
            json!({"type": "function", "id": call.id, "function": {
                "name": call.tool_name, "arguments": arguments(call).to_string(),
            }})
        });
        fields.insert("tool_calls".to_owned(), calls.collect());
    }
    let thought = said.thoughts.as_ref().map(|thoughts| &thoughts.text);
    if let Some(thought) = thought.filter(|text| with_thoughts && !text.is_empty()) {
        fields.insert("reasoning_content".to_owned(), json!(thought));
    }
    message
}

#[derive(Debug, Default)]
pub(super) struct OpenAiReader {
    calls: CallJoiner,
}

impl Dialect for OpenAiReader {
    fn event(&mut self, event: &SseEvent, draft: &mut Draft) -> Result<StreamProgress, ReplyFault> {
        if event.data.trim().eq_ignore_ascii_case(DONE) {
            return Ok(StreamProgress::Done);
        }
        let said = super::dialect::json(event)?;
        if said.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ReplyFault::Said(said));
        }
        // vLLM and Mistral send the error itself as the event.
        if event.name == "error" || is_text(&said, "/object", "error") {
            return Err(ReplyFault::Said(json!({"error": said})));
        }
        // Routers report a failure within the choice.
        if let Some(error) = said.pointer("/choices/0/error").filter(|it| it.is_object()) {
            return Err(ReplyFault::Said(json!({"error": error})));
        }
        let choices = said.get("choices").and_then(Value::as_array);
        // Some servers send the usage in a separate chunk whose `choices` is null or absent.
        let has_counted = count(&said, draft);
        if choices.is_none() && !has_counted {
            return Ok(StreamProgress::Unknown);
        }
        draft.identify(said.get("id"), said.get("model"));
        if let Some(choice) = choices.and_then(|choices| choices.first()) {
            // Some servers answer a streamed request with one event that has the complete message.
            let has_delta = choice.get("delta").is_some_and(Value::is_object);
            let is_whole = !has_delta && draft.is_silent();
            self.take(choice, if is_whole { "message" } else { "delta" }, draft)?;
        }
        Ok(StreamProgress::More)
    }

    fn whole(&mut self, body: Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        let choice = body.pointer("/choices/0");
        let choice = choice.filter(|choice| choice.get("message").is_some());
        let choice = choice.ok_or(ReplyFault::Strange)?;
        draft.identify(body.get("id"), body.get("model"));
        self.take(choice, "message", draft)?;
        count(&body, draft);
        Ok(())
    }

    fn may_just_end(&self) -> bool {
        true
    }

    fn is_declined(&self, draft: &Draft) -> bool {
        let reason = draft.stop_reason().unwrap_or_default();
        reason.starts_with(FILTERED) || reason == FILTERED_BY_ZHIPU
    }

    fn lost_a_call(&self, draft: &Draft) -> bool {
        let reason = draft.stop_reason();
        reason.is_some_and(|reason| reason.starts_with(LOST_CALL))
    }
}

/// Records the usage from any of the places where servers report it. Returns false if the chunk has
/// none.
fn count(said: &Value, draft: &mut Draft) -> bool {
    let places = ["/usage", "/x_groq/usage", "/choices/0/usage"];
    let mut usages = places.iter().filter_map(|place| said.pointer(place));
    let Some(usage) = usages.find(|usage| usage.is_object()) else {
        return false;
    };
    let tokens = |pointers: &[&str]| {
        let mut found = pointers
            .iter()
            .filter_map(|pointer| tokens_at(usage, pointer));
        found.next()
    };
    let (read, written) = (tokens(&["/prompt_tokens"]), tokens(&["/completion_tokens"]));
    if read.is_none() && written.is_none() {
        return false;
    }
    let cache_read = tokens(&[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
    ]);
    let cache_write = tokens(&[
        "/prompt_tokens_details/cache_write_tokens",
        "/prompt_tokens_details/cache_creation_tokens",
    ]);
    let (cache_read, cache_write) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
    // Cached tokens are included in the input tokens.
    let input = read
        .unwrap_or(0)
        .saturating_sub(cache_read)
        .saturating_sub(cache_write);
    draft.take(Usage {
        input_tokens: input,
        output_tokens: written.unwrap_or(0),
        cache_read_tokens: cache_read,
        cache_write_tokens: cache_write,
        reasoning_tokens: tokens(&["/completion_tokens_details/reasoning_tokens"]).unwrap_or(0),
    });
    true
}

impl OpenAiReader {
    /// Reads one choice: a delta in a stream, or a complete one.
    fn take(&mut self, choice: &Value, under: &str, draft: &mut Draft) -> Result<(), ReplyFault> {
        let none = json!({});
        let said = choice.get(under).unwrap_or(&none);
        let thoughts = ["/reasoning_content", "/reasoning"].map(|place| text_at(said, place));
        let mut thoughts = thoughts.into_iter().flatten();
        let thought = thoughts.find(|text| !text.is_empty());
        draft.think(thought.unwrap_or_default())?;
        match said.get("content") {
            Some(Value::String(text)) => draft.say(text)?,
            Some(Value::Array(parts)) => {
                for part in parts {
                    take_part(part, draft)?;
                }
            }
            _ => {}
        }
        if let Some(refusal) = text_at(said, "/refusal") {
            draft.refuse(refusal)?;
        }
        let calls = said.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            self.calls.add(Fragment::read(call), draft)?;
        }
        if let Some(call) = said.get("function_call").filter(|call| call.is_object()) {
            self.calls.add(Fragment::read_function_call(call), draft)?;
        }
        let reason = text_at(choice, "/finish_reason");
        // Some servers write the text `null` while the reply continues.
        if let Some(reason) = reason.filter(|reason| !matches!(*reason, "" | "null")) {
            draft.stop(reason);
        }
        Ok(())
    }
}

/// Reads a content part of a list.
fn take_part(part: &Value, draft: &mut Draft) -> Result<(), ReplyFault> {
    if let Some(text) = text_at(part, "/text") {
        draft.say(text)?;
    }
    if let Some(text) = text_at(part, "/refusal") {
        draft.refuse(text)?;
    }
    match part.get("thinking") {
        Some(Value::String(text)) => draft.think(text)?,
        Some(Value::Array(parts)) => {
            for text in parts.iter().filter_map(|part| text_at(part, "/text")) {
                draft.think(text)?;
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use goondan_protocol::call::CompletionRequest;

    use super::*;

    #[test]
    fn openais_own_models_take_completion_tokens() {
        let completion = || -> CompletionRequest {
            serde_json::from_value(json!({"messages": [{"role": "user", "content": "Hi."}],
                "params": {"maxTokens": 5}}))
            .unwrap()
        };
        for (endpoint, name, field) in [
            (None, "gpt-4o", "max_completion_tokens"),
            (
                Some("http://localhost"),
                "gpt-5-mini",
                "max_completion_tokens",
            ),
            (Some("http://localhost"), "qwen3", "max_tokens"),
        ] {
            let model: HostedModel = serde_json::from_value(json!({"name": "m",
                "provider": "openai", "model": name, "endpoint": endpoint}))
            .unwrap();
            let body = request(&model, &ChatRequest::of(&model, completion()));
            assert_eq!(body[field], 5, "{name}");
        }
    }
}
