//! From a stream to one answer, and the pieces ahead of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use genai::chat::{
    ChatStream, ChatStreamEvent, ContentPart, MessageContent, StopReason, StreamEnd, ToolCall,
};
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode, ModelAnswer, ModelPiece, REASONING};
use goondan_protocol::definition::{HostedModel, HostedProvider};
use goondan_protocol::ids::ToolCallId;
use goondan_protocol::limits::MAX_ID_BYTES;
use goondan_protocol::message::{self, Content};
use goondan_protocol::usage::{USAGE, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::failure;
use crate::calls::Pieces;
use crate::limits::{PIECE_BYTES_MAX, PIECE_INTERVAL_MS, REPLY_BYTES_MAX, REPLY_CALLS_MAX};

/// Reads a stream to its end.
pub(super) async fn of(
    model: &HostedModel,
    mut stream: ChatStream,
    pieces: Pieces,
) -> Result<ModelAnswer, CallError> {
    let mut ahead = Ahead::new(pieces);
    let mut bytes: usize = 0;
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = sleep_until(ahead.due), if ahead.is_waiting() => {
                ahead.flush().await;
                continue;
            }
        };
        let (kind, text) = match event {
            Some(Ok(ChatStreamEvent::Chunk(chunk))) => (Kind::Text, chunk.content),
            Some(Ok(ChatStreamEvent::ReasoningChunk(chunk))) => (Kind::Reasoning, chunk.content),
            Some(Ok(ChatStreamEvent::End(end))) => {
                ahead.flush().await;
                // Google's protocol has no mark of the end but the reason for it, and the library
                // makes an end of any silence.
                let usage = end.captured_usage.as_ref().map(usage_of);
                if model.provider == HostedProvider::Google && end.captured_stop_reason.is_none() {
                    return Err(failure::broken_off(model).having_taken(usage));
                }
                return answer_of(model, end).map_err(|error| error.having_taken(usage));
            }
            Some(Ok(
                ChatStreamEvent::Start
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::ToolCallChunk(_)
                | ChatStreamEvent::Heartbeat,
            )) => continue,
            Some(Err(error)) => return Err(failure::of(model, &error)),
            None => return Err(failure::broken_off(model)),
        };
        bytes = bytes.saturating_add(text.len());
        if bytes > REPLY_BYTES_MAX {
            let message = format!("the reply has more than {REPLY_BYTES_MAX} bytes");
            return Err(CallError::new(CallErrorCode::TooLarge, message));
        }
        ahead.add(kind, &text).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

/// What is sent ahead: gathered, so that a fast model does not make a frame of each word.
struct Ahead {
    pieces: Pieces,
    kind: Kind,
    text: String,
    /// When what is gathered is sent at the latest.
    due: Instant,
}

impl Ahead {
    fn new(pieces: Pieces) -> Self {
        Self {
            pieces,
            kind: Kind::Text,
            text: String::new(),
            due: Instant::now(),
        }
    }

    fn is_waiting(&self) -> bool {
        !self.text.is_empty()
    }

    async fn add(&mut self, kind: Kind, text: &str) {
        if kind != self.kind {
            self.flush().await;
            self.kind = kind;
        }
        if self.text.is_empty() {
            // The first words go at once; what comes right behind them is gathered.
            let since = Instant::now().saturating_duration_since(self.due);
            let interval = Duration::from_millis(PIECE_INTERVAL_MS);
            self.due = Instant::now() + interval.saturating_sub(since);
        }
        self.text.push_str(text);
        if self.text.len() >= PIECE_BYTES_MAX || self.due <= Instant::now() {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.text);
        self.due = Instant::now();
        let piece = match self.kind {
            Kind::Text => ModelPiece::Text { text },
            Kind::Reasoning => ModelPiece::Reasoning { text },
        };
        if let Ok(piece) = to_raw_value(&piece) {
            self.pieces.send(piece).await;
        }
    }
}

fn answer_of(model: &HostedModel, end: StreamEnd) -> Result<ModelAnswer, CallError> {
    let internal = |message: String| CallError::new(CallErrorCode::Internal, message);
    let parts = end.captured_content.map(MessageContent::into_parts);
    let mut text = String::new();
    let mut calls: Vec<ToolCall> = Vec::new();
    let mut thoughts = Thoughts::of(model);
    for part in parts.into_iter().flatten() {
        match part {
            ContentPart::Text(said) => text.push_str(&said),
            ContentPart::ToolCall(call) => calls.push(call),
            thought => thoughts.parts.push(thought),
        }
    }
    thoughts.text = end.captured_reasoning_content.unwrap_or_default();
    if calls.len() > REPLY_CALLS_MAX {
        return Err(internal(format!(
            "the model called {} tools in one reply; at most {REPLY_CALLS_MAX} are allowed",
            calls.len()
        )));
    }
    if let Some(StopReason::ContentFilter(reason)) = &end.captured_stop_reason
        && text.is_empty()
        && calls.is_empty()
    {
        let message = format!("`{}` declined to answer: {reason}", model.model);
        return Err(CallError::new(CallErrorCode::Refused, message));
    }
    let calls = named_apart(calls, &mut thoughts)
        .map_err(|error| internal(format!("a tool call cannot be named: {error}")))?;
    let content = to_raw_value(&Content::assistant(&text, &calls))
        .map_err(|error| internal(error.to_string()))?;
    let mut metadata = JsonObject::new();
    metadata.insert("model".to_owned(), json!(model.model));
    if let Some(reason) = end.captured_stop_reason {
        metadata.insert("stopReason".to_owned(), json!(reason_of(&reason)));
    }
    if let Some(usage) = &end.captured_usage {
        metadata.insert(USAGE.to_owned(), json!(usage_of(usage)));
    }
    if !thoughts.is_empty() {
        metadata.insert(REASONING.to_owned(), json!(thoughts));
    }
    Ok(ModelAnswer { content, metadata })
}

fn reason_of(reason: &StopReason) -> &str {
    match reason {
        StopReason::Completed(text)
        | StopReason::MaxTokens(text)
        | StopReason::ToolCall(text)
        | StopReason::ContentFilter(text)
        | StopReason::StopSequence(text)
        | StopReason::Other(text) => text,
    }
}

/// The library counts cached tokens among those that went in, for every provider.
fn usage_of(usage: &genai::chat::Usage) -> Usage {
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or(0)).unwrap_or(0);
    let details = usage.prompt_tokens_details.as_ref();
    let cache_read_tokens = count(details.and_then(|details| details.cached_tokens));
    let cache_write_tokens = count(details.and_then(|details| details.cache_creation_tokens));
    Usage {
        input_tokens: count(usage.prompt_tokens)
            .saturating_sub(cache_read_tokens)
            .saturating_sub(cache_write_tokens),
        output_tokens: count(usage.completion_tokens),
        cache_read_tokens,
        cache_write_tokens,
        reasoning_tokens: {
            let details = usage.completion_tokens_details.as_ref();
            count(details.and_then(|details| details.reasoning_tokens))
        },
    }
}

/// The calls, each under an id of its own: not every provider gives one, and not every server keeps
/// them apart.
fn named_apart(
    calls: Vec<ToolCall>,
    thoughts: &mut Thoughts,
) -> Result<Vec<message::ToolCall>, goondan_protocol::ids::InvalidId> {
    let mut taken = BTreeSet::new();
    let mut named = Vec::with_capacity(calls.len());
    for call in calls {
        let is_usable = !call.call_id.is_empty()
            && call.call_id.len() <= MAX_ID_BYTES
            && !call.call_id.chars().any(char::is_control)
            && !taken.contains(&call.call_id);
        let call_id = if is_usable {
            call.call_id
        } else {
            format!("call_{}", uuid::Uuid::now_v7().simple())
        };
        taken.insert(call_id.clone());
        if let Some(signatures) = call.thought_signatures.filter(|s| !s.is_empty()) {
            thoughts.signatures.insert(call_id.clone(), signatures);
        }
        // A call without arguments may come as no text at all.
        let input = match call.fn_arguments {
            Value::String(text) if text.trim().is_empty() => json!({}),
            Value::Null => json!({}),
            input => input,
        };
        named.push(message::ToolCall {
            id: ToolCallId::new(call_id)?,
            tool_name: call.fn_name,
            input,
        });
    }
    Ok(named)
}

/// What a model thought: for people its text, for the same model what it wants to see again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thoughts {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    /// Whose thoughts these are: another model cannot use their signatures.
    model: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<ContentPart>,
    /// Signatures of tool calls, by the call's id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) signatures: BTreeMap<String, Vec<String>>,
}

impl Thoughts {
    fn of(model: &HostedModel) -> Self {
        Self {
            text: String::new(),
            model: model.model.clone(),
            parts: Vec::new(),
            signatures: BTreeMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.parts.is_empty() && self.signatures.is_empty()
    }

    /// Reads what was kept with a message, if this very model can use it again.
    pub(super) fn read(kept: &Value, model: &HostedModel) -> Option<Self> {
        let mut thoughts: Self = serde_json::from_value(kept.clone()).ok()?;
        if thoughts.model != model.model {
            return None;
        }
        if thoughts.parts.is_empty() && !thoughts.text.is_empty() {
            let text = std::mem::take(&mut thoughts.text);
            thoughts.parts.push(ContentPart::ReasoningContent(text));
        }
        Some(thoughts)
    }
}
