//! Anthropic's Messages API.
//!
//! Stable prefixes of a request are marked for the provider's cache: tools and system prompt, and
//! the conversation up to its last two user-side messages. New messages only follow these marks, so
//! each request reads the cache that the previous one wrote.

use std::collections::BTreeMap;

use goondan_connectors::thinking::{ThinkingParams, anthropic_reply_tokens};
use goondan_protocol::definition::HostedModel;
use goondan_protocol::message::MessageRole;
use goondan_protocol::usage::Usage;
use serde_json::{Map, Value, json};

use super::dialect::{Dialect, ReplyFault, StreamProgress, error_at, is_text, text_at, tokens_at};
use super::draft::Draft;
use super::events::SseEvent;
use super::message::{ChatMessage, MessagePart, Picture};
use super::question::{ChatRequest, arguments, result_text};

/// Value of the header `anthropic-version`.
pub(super) const VERSION: &str = "2023-06-01";

/// Minimum `top_p` with thinking enabled.
const THINKING_TOP_P_MIN: f64 = 0.95;

/// Appended to a conversation whose last message is the model's, because not every model accepts a
/// prefilled answer.
const GO_ON: &str = "Go on.";

/// The body of a request.
///
/// # Errors
///
/// If the thinking budget leaves no tokens for a reply.
pub(super) fn request(model: &HostedModel, question: &ChatRequest) -> Result<Value, String> {
    let thinking = question.thinking(model);
    let params = &question.params;
    let reply_tokens = params.max_tokens;
    let reply_tokens = reply_tokens.unwrap_or_else(|| anthropic_reply_tokens(&model.model));
    if let Some(budget) = thinking
        .budget_tokens()
        .filter(|budget| *budget >= reply_tokens)
    {
        return Err(format!(
            "`maxTokens: {reply_tokens}` leaves no room for a reply beside the {budget} tokens of \
             thoughts that `reasoningEffort` means"
        ));
    }
    let mut body = json!({"model": model.model, "max_tokens": reply_tokens, "stream": true});
    let fields = body.as_object_mut().ok_or("the request has no body")?;
    let marked = model.prompt_caching;
    let mut tools: Vec<Value> = question.tools.iter().map(|tool| {
        json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
    }).collect();
    if let Some(system) = &question.system {
        let mut block = json!({"type": "text", "text": system});
        mark(&mut block, marked);
        fields.insert("system".to_owned(), json!([block]));
    } else if let Some(last) = tools.last_mut() {
        mark(last, marked);
    }
    if !tools.is_empty() {
        fields.insert("tools".to_owned(), Value::Array(tools));
    }
    let messages = messages(&question.messages, marked);
    fields.insert("messages".to_owned(), Value::Array(messages));
    say_thinking(fields, thinking);
    let free = !thinking.is_on();
    if let Some(temperature) = params.temperature.filter(|_| free) {
        fields.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(top_p) = params.top_p.filter(|p| free || *p >= THINKING_TOP_P_MIN) {
        fields.insert("top_p".to_owned(), json!(top_p));
    }
    if !params.stop.is_empty() {
        fields.insert("stop_sequences".to_owned(), json!(params.stop));
    }
    Ok(body)
}

fn say_thinking(fields: &mut Map<String, Value>, thinking: ThinkingParams) {
    let (said, effort) = match thinking {
        ThinkingParams::Unsaid => (None, None),
        ThinkingParams::Disabled => (Some(json!({"type": "disabled"})), None),
        ThinkingParams::Effort(effort) => (None, Some(effort)),
        ThinkingParams::Adaptive(effort) => {
            let said = json!({"type": "adaptive", "display": "summarized"});
            (Some(said), Some(effort))
        }
        ThinkingParams::Budget(tokens) => {
            let said = json!({"type": "enabled", "budget_tokens": tokens});
            (Some(said), None)
        }
    };
    if let Some(said) = said {
        fields.insert("thinking".to_owned(), said);
    }
    if let Some(effort) = effort {
        fields.insert("output_config".to_owned(), json!({"effort": effort}));
    }
}

/// Marks the end of a prefix for the provider's cache.
fn mark(block: &mut Value, is_wanted: bool) {
    if let Some(block) = block.as_object_mut().filter(|_| is_wanted) {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
}

/// Merges consecutive messages of one side: the results of parallel calls are one message.
fn messages(said: &[ChatMessage], marked: bool) -> Vec<Value> {
    let mut sides: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for said in said {
        let side = match said.role {
            MessageRole::Assistant => "assistant",
            MessageRole::System | MessageRole::User | MessageRole::Tool => "user",
        };
        let blocks = blocks_of(said);
        match sides.last_mut() {
            Some((last, held)) if *last == side => held.extend(blocks),
            Some(_) | None => sides.push((side, blocks)),
        }
    }
    if sides.last().is_none_or(|(side, _)| *side == "assistant") {
        sides.push(("user", vec![json!({"type": "text", "text": GO_ON})]));
    }
    for (_, blocks) in &mut sides {
        // Results must come first, or the request is rejected.
        blocks.sort_by_key(|block| !is_text(block, "/type", "tool_result"));
    }
    let users = sides.iter_mut().rev().filter(|(side, _)| *side == "user");
    for (_, blocks) in users.take(2) {
        if let Some(last) = blocks.last_mut() {
            mark(last, marked);
        }
    }
    let sides = sides.into_iter();
    sides
        .map(|(side, blocks)| json!({"role": side, "content": blocks}))
        .collect()
}

fn blocks_of(said: &ChatMessage) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    if let Some(thoughts) = &said.thoughts {
        // Another protocol stores other blocks, even of a model with the same name.
        let own = thoughts.blocks.iter().filter(|block| {
            is_text(block, "/type", "thinking") || is_text(block, "/type", "redacted_thinking")
        });
        blocks.extend(own.cloned());
    }
    for part in &said.parts {
        blocks.push(match part {
            MessagePart::Text(text) if said.role == MessageRole::System => {
                json!({"type": "text", "text": format!("<system>\n{text}\n</system>")})
            }
            MessagePart::Text(text) => json!({"type": "text", "text": text}),
            MessagePart::Image(picture) => image(picture),
        });
    }
    for call in &said.calls {
        blocks.push(json!({
            "type": "tool_use", "id": call.id, "name": call.tool_name, "input": arguments(call),
        }));
    }
    for result in &said.results {
        let mut block = json!({"type": "tool_result", "tool_use_id": result.tool_call_id});
        let images: Vec<Value> = result
            .images
            .iter()
            .filter_map(Picture::of)
            .map(|picture| image(&picture))
            .collect();
        let text = result_text(result);
        // The API rejects images in a result that is marked as an error. Its text reports the error as
        // well.
        let is_marked = result.is_error && images.is_empty();
        let content = if images.is_empty() {
            Value::String(text)
        } else {
            let text = (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}));
            Value::Array(text.into_iter().chain(images).collect())
        };
        if let Some(block) = block.as_object_mut() {
            block.insert("content".to_owned(), content);
            if is_marked {
                block.insert("is_error".to_owned(), Value::Bool(true));
            }
        }
        blocks.push(block);
    }
    blocks
}

fn image(picture: &Picture) -> Value {
    let source = match picture {
        Picture::At(url) => json!({"type": "url", "url": url}),
        Picture::Base64 { media_type, data } => {
            json!({"type": "base64", "media_type": media_type, "data": data})
        }
    };
    json!({"type": "image", "source": source})
}

#[derive(Debug, Default)]
pub(super) struct AnthropicReader {
    /// The open thinking blocks and calls, by index. Gateways interleave the blocks of parallel
    /// calls.
    blocks: BTreeMap<u64, Block>,
    /// Index of the latest block: that of events without one.
    latest: u64,
    usage: Map<String, Value>,
    calls_begun: u64,
}

#[derive(Debug)]
enum Block {
    Thoughts { text: String, signature: String },
    Call(u64),
}

impl Dialect for AnthropicReader {
    fn event(&mut self, event: &SseEvent, draft: &mut Draft) -> Result<StreamProgress, ReplyFault> {
        // Gateways end each stream as OpenAI does.
        if event.data.trim().eq_ignore_ascii_case("[DONE]") {
            let is_whole = draft.stop_reason().is_some();
            self.end_all(draft)?;
            return Ok(match is_whole {
                true => StreamProgress::Done,
                false => StreamProgress::Unknown,
            });
        }
        let said = super::dialect::json(event)?;
        let index = said.get("index").and_then(Value::as_u64);
        let kind = text_at(&said, "/type").unwrap_or(&event.name).to_owned();
        match kind.as_str() {
            "message_start" => {
                draft.identify(said.pointer("/message/id"), said.pointer("/message/model"));
                self.count(said.pointer("/message/usage"), draft);
            }
            "content_block_start" => self.begin(index, said.get("content_block"), draft)?,
            "content_block_delta" => self.go_on(index, said.get("delta"), draft)?,
            "content_block_stop" => self.end(index.unwrap_or(self.latest), draft)?,
            "message_delta" => {
                self.count(said.get("usage"), draft);
                Self::stop(said.get("delta"), draft)?;
            }
            "message_stop" => {
                self.end_all(draft)?;
                return Ok(StreamProgress::Done);
            }
            "ping" => {}
            "error" => return Err(ReplyFault::Said(said)),
            // Gateways leave out the type.
            _ if error_at(&said).is_some() => return Err(ReplyFault::Said(said)),
            _ => return Ok(StreamProgress::Unknown),
        }
        Ok(StreamProgress::More)
    }

    fn whole(&mut self, body: Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        let Some(content) = body.get("content").and_then(Value::as_array) else {
            return Err(ReplyFault::Strange);
        };
        draft.identify(body.get("id"), body.get("model"));
        self.count(body.get("usage"), draft);
        for block in content {
            self.begin(None, Some(block), draft)?;
        }
        self.end_all(draft)?;
        Self::stop(Some(&body), draft)
    }

    /// Gateways leave out `message_stop`. The finish reason follows all contents.
    fn may_just_end(&self) -> bool {
        true
    }

    fn close(&mut self, draft: &mut Draft) -> Result<(), ReplyFault> {
        self.end_all(draft)
    }

    fn is_declined(&self, draft: &Draft) -> bool {
        draft.stop_reason() == Some("refusal")
    }
}

impl AnthropicReader {
    /// Token counts arrive in several events; each field has its latest value. Those of the input
    /// only grow: gateways send zeros in the first event or in the last.
    fn count(&mut self, usage: Option<&Value>, draft: &mut Draft) {
        let Some(Value::Object(usage)) = usage else {
            return;
        };
        for (name, value) in usage {
            let field = |value: &Value| tokens_at(value, "");
            let is_of_input = !name.starts_with("output");
            let is_less = is_of_input && self.usage.get(name).map(field) > Some(field(value));
            if !value.is_null() && !is_less {
                self.usage.insert(name.clone(), value.clone());
            }
        }
        let usage = Value::Object(self.usage.clone());
        let tokens = |pointer: &str| tokens_at(&usage, pointer).unwrap_or(0);
        if tokens_at(&usage, "/input_tokens").is_none()
            && tokens_at(&usage, "/output_tokens").is_none()
        {
            return;
        }
        draft.take(Usage {
            input_tokens: tokens("/input_tokens"),
            output_tokens: tokens("/output_tokens"),
            cache_read_tokens: tokens("/cache_read_input_tokens"),
            cache_write_tokens: tokens("/cache_creation_input_tokens"),
            reasoning_tokens: tokens("/output_tokens_details/thinking_tokens"),
        });
    }

    fn begin(
        &mut self,
        index: Option<u64>,
        block: Option<&Value>,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let Some(block) = block else { return Ok(()) };
        let text = |pointer: &str| text_at(block, pointer).unwrap_or_default();
        match index {
            Some(index) => self.end(index, draft)?,
            None => self.end_all(draft)?,
        }
        self.latest = index.unwrap_or(self.latest);
        match text("/type") {
            "text" => draft.say(text("/text"))?,
            "thinking" => {
                draft.think(text("/thinking"))?;
                let thoughts = Block::Thoughts {
                    text: text("/thinking").to_owned(),
                    signature: text("/signature").to_owned(),
                };
                self.blocks.insert(self.latest, thoughts);
            }
            "redacted_thinking" => draft.keep_block(block.clone())?,
            "tool_use" => {
                let call = self.calls_begun;
                self.calls_begun += 1;
                draft.begin_call(call, text("/id"), text("/name"))?;
                if let Some(input) = block.get("input").filter(|input| **input != json!({})) {
                    draft.set_arguments(call, input.clone())?;
                }
                self.blocks.insert(self.latest, Block::Call(call));
            }
            _ => {}
        }
        Ok(())
    }

    fn go_on(
        &mut self,
        index: Option<u64>,
        delta: Option<&Value>,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let Some(delta) = delta else { return Ok(()) };
        if let Some(text) = text_at(delta, "/text") {
            draft.say(text)?;
        }
        if let Some(more) = text_at(delta, "/refusal") {
            draft.refuse(more)?;
        }
        let index = index.filter(|index| self.blocks.contains_key(index));
        match self.blocks.get_mut(&index.unwrap_or(self.latest)) {
            Some(Block::Call(call)) => {
                if let Some(text) = text_at(delta, "/partial_json") {
                    draft.add_arguments(*call, text)?;
                }
            }
            Some(Block::Thoughts { text, signature }) => {
                if let Some(more) = text_at(delta, "/thinking") {
                    draft.think(more)?;
                    text.push_str(more);
                }
                if let Some(more) = text_at(delta, "/signature") {
                    // The signature is stored with the block, but its size counts immediately.
                    if signature.len() + more.len() > crate::limits::REPLY_BYTES_MAX {
                        return Err(super::draft::Excess::Bytes.into());
                    }
                    signature.push_str(more);
                }
            }
            // A gateway left out the start of the block.
            None => draft.think(text_at(delta, "/thinking").unwrap_or_default())?,
        }
        Ok(())
    }

    /// Ends all blocks, in their order.
    fn end_all(&mut self, draft: &mut Draft) -> Result<(), ReplyFault> {
        let open: Vec<u64> = self.blocks.keys().copied().collect();
        open.into_iter()
            .try_for_each(|index| self.end(index, draft))
    }

    /// Thinking blocks are sent back to the model only if it signed them.
    fn end(&mut self, index: u64, draft: &mut Draft) -> Result<(), ReplyFault> {
        if let Some(Block::Thoughts { text, signature }) = self.blocks.remove(&index)
            && !signature.is_empty()
        {
            draft.keep_block(
                json!({"type": "thinking", "thinking": text, "signature": signature}),
            )?;
        }
        Ok(())
    }

    fn stop(delta: Option<&Value>, draft: &mut Draft) -> Result<(), ReplyFault> {
        let Some(delta) = delta else { return Ok(()) };
        if let Some(reason) = text_at(delta, "/stop_reason") {
            draft.stop(reason);
        }
        if let Some(why) = text_at(delta, "/stop_details/explanation") {
            draft.refuse(why)?;
        }
        Ok(())
    }
}
