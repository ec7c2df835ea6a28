//! The Chat Completions API of `OpenAI`, and of the many servers with a nearly compatible API.

use goondan_protocol::definition::HostedModel;
use goondan_protocol::message::MessageRole;
use goondan_protocol::usage::Usage;
use serde_json::{Map, Value, json};

use super::dialect::{Dialect, ReplyFault, StreamProgress, error_at, is_text, text_at, tokens_at};
use super::draft::{Draft, Excess};
use super::events::SseEvent;
use super::message::{ChatMessage, MessagePart, Picture};
use super::question::{ChatRequest, arguments, result_text, sends_reasoning};
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

/// Fields of a thought, in a message or a delta.
const THOUGHTS: &[&str] = &[
    "/reasoning_content",
    "/reasoning",
    "/reasoning_text",
    "/thinking",
];

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
                let with_thoughts = with_thoughts || question.shows_thoughts;
                messages.push(assistant(question, said, with_thoughts));
                // Servers that require thoughts require this field without thoughts as well.
                if let Some(message) = messages.last_mut().and_then(Value::as_object_mut)
                    && question.shows_thoughts
                    && !said.calls.is_empty()
                {
                    message
                        .entry("reasoning_content")
                        .or_insert_with(|| json!(""));
                }
            }
            MessageRole::Tool => {
                for result in &said.results {
                    messages.push(json!({
                        "role": "tool", "tool_call_id": result.tool_call_id, "content": result_text(result),
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

fn assistant(question: &ChatRequest, said: &ChatMessage, with_thoughts: bool) -> Value {
    let mut message = json!({"role": "assistant", "content": said.text()});
    let Some(fields) = message.as_object_mut() else {
        return message;
    };
    if !said.calls.is_empty() {
        let calls = said.calls.iter().enumerate().map(|(place, call)| {
            let function =
                json!({"name": call.tool_name, "arguments": arguments(call).to_string()});
            match question.signature_of(said, place) {
                // Google's compatible API demands the signature of its models.
                Some(signature) => json!({"type": "function", "id": call.id, "function": function,
                    "extra_content": {"google": {"thought_signature": signature}}}),
                None => json!({"type": "function", "id": call.id, "function": function}),
            }
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
    /// True for a service that never writes thoughts or calls into the text.
    has_plain_text: bool,
}

impl OpenAiReader {
    /// Creates the reader of a model's reply.
    pub(super) fn new(model: &HostedModel) -> Self {
        Self {
            calls: CallJoiner::default(),
            has_plain_text: model.endpoint.is_none(),
        }
    }
}

impl Dialect for OpenAiReader {
    fn event(&mut self, event: &SseEvent, draft: &mut Draft) -> Result<StreamProgress, ReplyFault> {
        if event.data.trim().eq_ignore_ascii_case(DONE) {
            return Ok(StreamProgress::Done);
        }
        let said = super::dialect::json(event)?;
        if error_at(&said).is_some() {
            return Err(ReplyFault::Said(said));
        }
        if is_of_ollama(&said) {
            return self.take_of_ollama(&said, draft);
        }
        // vLLM and Mistral send the error itself as the event.
        if event.name == "error" || is_text(&said, "/object", "error") {
            return Err(ReplyFault::Said(json!({"error": said})));
        }
        // Routers report a failure within the choice.
        if let Some(error) = said.pointer("/choices/0/error").filter(|it| it.is_object()) {
            return Err(ReplyFault::Said(json!({"error": error})));
        }
        // Groq reports why it ended a stream early.
        if let Some(error) = text_at(&said, "/x_groq/error").filter(|error| !error.is_empty()) {
            return Err(ReplyFault::Said(json!({"error": error})));
        }
        let choices = said.get("choices").and_then(Value::as_array);
        // Some servers send the usage in a separate chunk whose `choices` is null or absent.
        let has_counted = count(&said, draft);
        if choices.is_none() && !has_counted {
            return Ok(StreamProgress::Unknown);
        }
        draft.identify(said.get("id"), said.get("model"));
        let is_first = draft.is_silent();
        for choice in parts_of_choice(choices) {
            // Some servers answer a streamed request with one event that has the complete message.
            let has_delta = choice.get("delta").is_some_and(Value::is_object);
            let is_whole = !has_delta && is_first;
            self.take(choice, if is_whole { "message" } else { "delta" }, draft)?;
        }
        Ok(StreamProgress::More)
    }

    fn whole(&mut self, body: Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        if is_of_ollama(&body) {
            return self.take_of_ollama(&body, draft).map(|_progress| ());
        }
        let choices = body.get("choices").and_then(Value::as_array);
        let has_message = |choice: &Value| choice.get("message").is_some();
        if !choices.is_some_and(|choices| choices.first().is_some_and(has_message)) {
            return Err(ReplyFault::Strange);
        }
        draft.identify(body.get("id"), body.get("model"));
        for choice in parts_of_choice(choices) {
            self.take(choice, "message", draft)?;
        }
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

/// The elements of `choices` that belong to the reply. Only one is requested, but some gateways
/// split its text and its calls into two of the same index.
fn parts_of_choice(choices: Option<&Vec<Value>>) -> impl Iterator<Item = &Value> {
    let index_of = |choice: &Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0);
    let choices = choices.map(Vec::as_slice).unwrap_or_default();
    let first = choices.first().map(index_of);
    choices
        .iter()
        .filter(move |choice| Some(index_of(choice)) == first)
}

/// True if an event or a body follows Ollama's own protocol, which proxies pass on.
fn is_of_ollama(said: &Value) -> bool {
    said.get("done").is_some_and(Value::is_boolean)
        && said.get("message").is_some_and(Value::is_object)
}

/// Records the usage from any of the places where servers report it. Returns false if the chunk has
/// none.
fn count(said: &Value, draft: &mut Draft) -> bool {
    let places = ["/usage", "/x_groq/usage", "/choices/0/usage"];
    let mut usages = places.iter().filter_map(|place| said.pointer(place));
    let Some(usage) = usages.find_map(usage_in) else {
        return false;
    };
    draft.take(usage);
    true
}

/// A usage, with the field names of any protocol. `None` if it has no counts.
fn usage_in(usage: &Value) -> Option<Usage> {
    let tokens = |pointers: &[&str]| {
        let mut found = pointers
            .iter()
            .filter_map(|pointer| tokens_at(usage, pointer));
        found.next()
    };
    let read = tokens(&["/prompt_tokens", "/input_tokens"]);
    let written = tokens(&["/completion_tokens", "/output_tokens"]);
    if read.is_none() && written.is_none() {
        return None;
    }
    let cache_read = tokens(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
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
    let thought = tokens(&[
        "/completion_tokens_details/reasoning_tokens",
        "/output_tokens_details/reasoning_tokens",
    ]);
    Some(Usage {
        input_tokens: input,
        output_tokens: written.unwrap_or(0),
        cache_read_tokens: cache_read,
        cache_write_tokens: cache_write,
        reasoning_tokens: thought.unwrap_or(0),
    })
}

impl OpenAiReader {
    /// Reads an event or a whole reply of Ollama's own protocol.
    fn take_of_ollama(
        &mut self,
        said: &Value,
        draft: &mut Draft,
    ) -> Result<StreamProgress, ReplyFault> {
        draft.identify(None, said.get("model"));
        self.take(said, "message", draft)?;
        if said.get("done") != Some(&Value::Bool(true)) {
            return Ok(StreamProgress::More);
        }
        draft.stop(text_at(said, "/done_reason").unwrap_or("stop"));
        if let (Some(read), Some(written)) = (
            tokens_at(said, "/prompt_eval_count"),
            tokens_at(said, "/eval_count"),
        ) {
            draft.take(Usage {
                input_tokens: read,
                output_tokens: written,
                ..Usage::default()
            });
        }
        Ok(StreamProgress::Done)
    }

    /// Reads one choice: a delta in a stream, or a complete one.
    fn take(&mut self, choice: &Value, under: &str, draft: &mut Draft) -> Result<(), ReplyFault> {
        let none = json!({});
        let said = choice.get(under).unwrap_or(&none);
        let mut thoughts = THOUGHTS.iter().filter_map(|place| text_at(said, place));
        let thought = thoughts.find(|text| !text.is_empty());
        draft.think(thought.unwrap_or_default())?;
        match said.get("content") {
            Some(Value::String(text)) => self.say(text, draft)?,
            Some(Value::Array(parts)) => {
                for part in parts {
                    self.take_part(part, draft)?;
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

    fn say(&self, text: &str, draft: &mut Draft) -> Result<(), Excess> {
        match self.has_plain_text {
            true => draft.say(text),
            false => draft.say_raw(text),
        }
    }

    /// Reads a content part of a list.
    fn take_part(&self, part: &Value, draft: &mut Draft) -> Result<(), Excess> {
        if let Some(text) = text_at(part, "/text") {
            self.say(text, draft)?;
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
}

#[cfg(test)]
mod tests {
    use goondan_protocol::call::CompletionRequest;

    use super::*;

    #[test]
    fn prov_1_signatures_of_calls_go_back_to_googles_compatible_api() {
        let call =
            |id: &str| json!({"type": "tool-call", "toolCallId": id, "toolName": "t", "input": {}});
        let result = |id: &str| {
            json!({"type": "tool-result", "toolCallId": id, "toolName": "t",
                "output": {"type": "text", "value": "done"}})
        };
        let signature = |name: &str, stored: Value| -> Vec<Value> {
            let model: HostedModel = serde_json::from_value(
                json!({"name": "m", "provider": "openai", "model": name, "endpoint": "http://a"}),
            )
            .unwrap();
            let completion = json!({"messages": [
                {"role": "user", "content": "Hi."},
                {"role": "assistant", "content": [call("a"), call("b")], "reasoning": stored},
                {"role": "tool", "content": [result("a"), result("b")]}]});
            let completion = serde_json::from_value(completion).unwrap();
            let body = request(&model, &ChatRequest::of(&model, completion));
            let calls = body["messages"][1]["tool_calls"].as_array().unwrap();
            calls
                .iter()
                .map(|call| call["extra_content"]["google"]["thought_signature"].clone())
                .collect()
        };
        let own = json!({"model": "gemini-3-pro", "signatures": {"a": ["c2ln"]}});
        let placeholder = json!("skip_thought_signature_validator");
        assert_eq!(
            signature("gemini-3-pro", own.clone()),
            [json!("c2ln"), Value::Null]
        );
        assert_eq!(
            signature("gemini-3-flash", own.clone()),
            [placeholder, Value::Null]
        );
        assert_eq!(signature("gpt-5", own), [Value::Null, Value::Null]);
    }

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
