//! A reply in progress (pure): its contents so far, with limits checked before anything is stored.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::JsonObject;
use goondan_protocol::call::{ModelAnswer, REASONING};
use goondan_protocol::definition::HostedModel;
use goondan_protocol::ids::{InvalidId, ToolCallId};
use goondan_protocol::limits::MAX_ID_BYTES;
use goondan_protocol::message::{self, MessageContent};
use goondan_protocol::usage::{USAGE, Usage};
use serde::de::IgnoredAny;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::argument_types::ArgumentTypes;
use super::normalize::ToolNames;
use super::text_calls;
use super::thought_tags::{TaggedPiece, ThoughtTags};
use super::thoughts::Thoughts;
use crate::limits::{NOTE_BYTES_MAX, REPLY_BYTES_MAX, REPLY_CALLS_MAX, REPLY_ITEMS_MAX};

/// A limit that the reply exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    /// The reply is too long.
    #[error("the reply has more than {REPLY_BYTES_MAX} bytes")]
    Bytes,
    /// It calls too many tools.
    #[error("the model called more than {REPLY_CALLS_MAX} tools in one reply")]
    Calls,
    /// It has too many output items.
    #[error("the reply has more than {REPLY_ITEMS_MAX} output items")]
    Items,
}

/// Kind of a piece of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    Text,
    Reasoning,
}

/// Arguments of a call, as received.
#[derive(Debug, Clone)]
enum Arguments {
    Text(String),
    Json(Value),
}

/// A tool call in progress.
#[derive(Debug, Clone)]
struct CallDraft {
    /// The provider's number of the call: a key, not a position.
    index: u64,
    id: String,
    name: String,
    arguments: Arguments,
    signature: Option<String>,
}

/// A reply in progress.
#[derive(Debug, Default)]
pub(super) struct Draft {
    text: String,
    refusal: String,
    thought: String,
    tags: ThoughtTags,
    /// True if the text can contain parts of the model's template.
    is_raw: bool,
    /// Start and opening tag of a thought after text, until it ends.
    open_thought: Option<(usize, &'static str)>,
    blocks: Vec<Value>,
    calls: Vec<CallDraft>,
    bytes: usize,
    usage: Option<Usage>,
    stop_reason: Option<String>,
    response_id: Option<String>,
    response_model: Option<String>,
    /// Pieces since they were last taken.
    fresh: Vec<(PieceKind, String)>,
}

impl Draft {
    fn grow(&mut self, bytes: usize) -> Result<(), Excess> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > REPLY_BYTES_MAX {
            return Err(Excess::Bytes);
        }
        Ok(())
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), Excess> {
        if !text.is_empty() {
            self.grow(text.len())?;
            self.text.push_str(text);
            self.fresh.push((PieceKind::Text, text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn think(&mut self, text: &str) -> Result<(), Excess> {
        if !text.is_empty() {
            self.grow(text.len())?;
            self.thought.push_str(text);
            self.fresh.push((PieceKind::Reasoning, text.to_owned()));
        }
        Ok(())
    }

    /// Adds text of a server that may not parse its model's template: it can contain thoughts in
    /// tags, and calls.
    pub(super) fn say_raw(&mut self, text: &str) -> Result<(), Excess> {
        self.is_raw = true;
        let pieces = self.tags.feed(text, self.has_thought());
        self.take_tagged(pieces)
    }

    /// Completes the text after its last piece.
    pub(super) fn end_text(&mut self) -> Result<(), Excess> {
        let pieces = self.tags.end();
        self.take_tagged(pieces)?;
        // A tag without an end was a part of the answer.
        if let Some((start, tag)) = self.open_thought.take() {
            let text = self.thought.split_off(start);
            self.thought.truncate(self.thought.trim_end().len());
            self.say(tag)?;
            self.say(&text)?;
        }
        Ok(())
    }

    fn take_tagged(&mut self, pieces: Vec<TaggedPiece>) -> Result<(), Excess> {
        for piece in pieces {
            match piece {
                TaggedPiece::Text(text) => self.say(&text)?,
                TaggedPiece::Thought(text) => self.think(&text)?,
                TaggedPiece::ThoughtBegins(after_text) => {
                    if !self.thought.is_empty() {
                        self.think("\n")?;
                    }
                    self.open_thought = after_text.map(|tag| (self.thought.len(), tag));
                }
                TaggedPiece::ThoughtEnds => {
                    self.open_thought = None;
                    self.thought.truncate(self.thought.trim_end().len());
                }
                TaggedPiece::TextWasThought => {
                    let text = std::mem::take(&mut self.text);
                    self.thought.push_str(text.trim());
                }
            }
        }
        Ok(())
    }

    /// Converts calls of the request's tools within raw text.
    pub(super) fn take_text_calls(&mut self, names: &ToolNames) -> Result<(), Excess> {
        if !self.is_raw || !self.calls.is_empty() {
            return Ok(());
        }
        let found = text_calls::split(&self.text, |name| names.offers(name));
        let Some((before, calls)) = found else {
            return Ok(());
        };
        self.text = before.to_owned();
        for (index, (name, arguments)) in (0..).zip(calls) {
            self.begin_call(index, "", &name)?;
            self.set_arguments(index, arguments)?;
        }
        Ok(())
    }

    /// True if the reply has reasoning text.
    pub(super) fn has_thought(&self) -> bool {
        !self.thought.is_empty()
    }

    /// Adds text of a refusal.
    pub(super) fn refuse(&mut self, text: &str) -> Result<(), Excess> {
        self.grow(text.len())?;
        self.refusal.push_str(text);
        Ok(())
    }

    /// Stores a thinking block in the form that the provider expects in later requests.
    pub(super) fn keep_block(&mut self, block: Value) -> Result<(), Excess> {
        self.grow(block.to_string().len())?;
        self.blocks.push(block);
        Ok(())
    }

    /// Starts a call under the provider's number.
    pub(super) fn begin_call(&mut self, index: u64, id: &str, name: &str) -> Result<(), Excess> {
        if self.calls.len() == REPLY_CALLS_MAX {
            return Err(Excess::Calls);
        }
        self.grow(id.len().saturating_add(name.len()))?;
        self.calls.push(CallDraft {
            index,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: Arguments::Text(String::new()),
            signature: None,
        });
        Ok(())
    }

    /// Id of the latest call under this number, if any.
    pub(super) fn call_id(&self, index: u64) -> Option<&str> {
        let mut latest = self.calls.iter().rev();
        let call = latest.find(|call| call.index == index)?;
        Some(&call.id)
    }

    /// Name of the latest call under this number.
    pub(super) fn call_name(&self, index: u64) -> Option<&str> {
        let mut latest = self.calls.iter().rev();
        let call = latest.find(|call| call.index == index)?;
        Some(&call.name)
    }

    /// Number of the latest call with this id.
    pub(super) fn call_with_id(&self, id: &str) -> Option<u64> {
        let mut latest = self.calls.iter().rev();
        latest.find(|call| call.id == id).map(|call| call.index)
    }

    /// True if the arguments of the call are complete, so that more text would corrupt them.
    pub(super) fn has_complete_arguments(&self, index: u64) -> bool {
        let mut latest = self.calls.iter().rev();
        let call = latest.find(|call| call.index == index);
        match call.map(|call| &call.arguments) {
            Some(Arguments::Json(_)) => true,
            Some(Arguments::Text(text)) => {
                text.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(text).is_ok()
            }
            None => false,
        }
    }

    /// The arguments of the call, if they are a complete object.
    pub(super) fn complete_arguments(&self, index: u64) -> Option<Value> {
        let mut latest = self.calls.iter().rev();
        let arguments = match &latest.find(|call| call.index == index)?.arguments {
            Arguments::Json(input) => input.clone(),
            Arguments::Text(text) if text.trim_end().ends_with('}') => {
                serde_json::from_str(text).ok()?
            }
            Arguments::Text(_) => return None,
        };
        arguments.is_object().then_some(arguments)
    }

    /// Removes the arguments of the call so far.
    pub(super) fn clear_arguments(&mut self, index: u64) {
        if let Some(call) = self.call_mut(index) {
            call.arguments = Arguments::Text(String::new());
        }
    }

    pub(super) fn latest_index(&self) -> Option<u64> {
        self.calls.last().map(|call| call.index)
    }

    /// True if the reply has neither words nor calls.
    pub(super) fn is_silent(&self) -> bool {
        self.calls.is_empty() && self.text.trim().is_empty()
    }

    fn call_mut(&mut self, index: u64) -> Option<&mut CallDraft> {
        let mut latest = self.calls.iter_mut().rev();
        latest.find(|call| call.index == index)
    }

    /// Sets the name of a call that started without one.
    pub(super) fn name_call(&mut self, index: u64, name: &str) -> Result<(), Excess> {
        self.grow(name.len())?;
        if let Some(call) = self.call_mut(index)
            && call.name.is_empty()
        {
            name.clone_into(&mut call.name);
        }
        Ok(())
    }

    /// Sets the id of a call that started without one.
    pub(super) fn identify_call(&mut self, index: u64, id: &str) -> Result<(), Excess> {
        self.grow(id.len())?;
        if let Some(call) = self.call_mut(index)
            && call.id.is_empty()
        {
            id.clone_into(&mut call.id);
        }
        Ok(())
    }

    /// Adds a fragment of a call's arguments.
    pub(super) fn add_arguments(&mut self, index: u64, text: &str) -> Result<(), Excess> {
        self.grow(text.len())?;
        if let Some(CallDraft { arguments, .. }) = self.call_mut(index) {
            match arguments {
                Arguments::Text(held) => held.push_str(text),
                Arguments::Json(_) if text.trim().is_empty() => {}
                Arguments::Json(_) => *arguments = Arguments::Text(text.to_owned()),
            }
        }
        Ok(())
    }

    /// Sets a call's complete arguments.
    pub(super) fn set_arguments(&mut self, index: u64, input: Value) -> Result<(), Excess> {
        self.grow(input.to_string().len())?;
        if let Some(call) = self.call_mut(index) {
            call.arguments = Arguments::Json(input);
        }
        Ok(())
    }

    /// Sets the provider's signature of a call.
    pub(super) fn sign_call(&mut self, index: u64, signature: &str) -> Result<(), Excess> {
        self.grow(signature.len())?;
        if let Some(call) = self.call_mut(index) {
            call.signature = Some(signature.to_owned());
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, reason: &str) {
        self.stop_reason = Some(shortened(reason));
    }

    /// The finish reason, if known.
    pub(super) fn stop_reason(&self) -> Option<&str> {
        self.stop_reason.as_deref()
    }

    pub(super) fn take(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// The usage, if known.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Sets the provider's id of the reply and its name of the model.
    pub(super) fn identify(&mut self, id: Option<&Value>, model: Option<&Value>) {
        let read = |value: Option<&Value>| {
            let text = value
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty());
            text.map(shortened)
        };
        if let Some(id) = read(id) {
            self.response_id.get_or_insert(id);
        }
        if let Some(model) = read(model) {
            self.response_model.get_or_insert(model);
        }
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    #[cfg(test)]
    pub(super) fn thought(&self) -> &str {
        &self.thought
    }

    /// Takes the pieces since the previous call.
    pub(super) fn take_fresh(&mut self) -> Vec<(PieceKind, String)> {
        std::mem::take(&mut self.fresh)
    }

    /// Text of the model's refusal, or its other text without one.
    pub(super) fn declined_with(&self) -> &str {
        if self.refusal.is_empty() {
            &self.text
        } else {
            &self.refusal
        }
    }

    /// True if the reply contains refusal text.
    pub(super) fn is_refusal(&self) -> bool {
        !self.refusal.is_empty()
    }

    /// The reply to store.
    ///
    /// # Errors
    ///
    /// If a call's id is invalid, or the reply cannot be serialized.
    pub(super) fn finish(
        self,
        model: &HostedModel,
        names: &ToolNames,
        types: &ArgumentTypes,
    ) -> Result<ModelAnswer, ReplyStorageError> {
        let mut thoughts = Thoughts::new(model, self.thought, self.blocks);
        let mut calls = named_apart(self.calls, &mut thoughts.signatures)?;
        for call in &mut calls {
            call.tool_name = names.original(&call.tool_name).to_owned();
            call.input = types.fit(&call.tool_name, call.input.take());
        }
        let content = to_raw_value(&MessageContent::assistant(&self.text, &calls))?;
        let mut metadata = JsonObject::new();
        metadata.insert("model".to_owned(), json!(model.model));
        let notes = [
            (message::STOP_REASON, self.stop_reason),
            (message::RESPONSE_ID, self.response_id),
            (message::RESPONSE_MODEL, self.response_model),
        ];
        for (name, note) in notes {
            if let Some(note) = note {
                metadata.insert(name.to_owned(), Value::String(note));
            }
        }
        if let Some(usage) = self.usage {
            metadata.insert(USAGE.to_owned(), json!(usage));
        }
        if !thoughts.is_empty() {
            metadata.insert(REASONING.to_owned(), json!(thoughts));
        }
        Ok(ModelAnswer { content, metadata })
    }
}

/// Reason why a reply cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplyStorageError {
    /// The name or id of a call is invalid in a message.
    #[error("invalid name or id of a tool call")]
    Name(#[from] InvalidId),
    #[error("failed to serialize it")]
    Write(#[from] serde_json::Error),
}

fn shortened(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(NOTE_BYTES_MAX).collect()
}

/// Gives each call a unique id, because some providers send none and some servers send duplicates.
fn named_apart(
    calls: Vec<CallDraft>,
    signatures: &mut BTreeMap<String, Vec<String>>,
) -> Result<Vec<message::ToolCall>, InvalidId> {
    let mut taken = BTreeSet::new();
    let mut named = Vec::with_capacity(calls.len());
    for call in calls {
        let is_usable = !call.id.is_empty()
            && call.id.len() <= MAX_ID_BYTES
            && !call.id.chars().any(char::is_control)
            && !taken.contains(&call.id);
        let id = if is_usable {
            call.id
        } else {
            format!("call_{}", uuid::Uuid::now_v7().simple())
        };
        taken.insert(id.clone());
        if let Some(signature) = call.signature {
            signatures.insert(id.clone(), vec![signature]);
        }
        named.push(message::ToolCall {
            id: ToolCallId::new(id)?,
            tool_name: call.name,
            input: input_of(call.arguments),
        });
    }
    Ok(named)
}

/// Invalid JSON is kept as text; the tool reports the error.
fn input_of(arguments: Arguments) -> Value {
    match arguments {
        Arguments::Json(Value::Null) => json!({}),
        // Some servers send the object as a text where the protocol has an object.
        Arguments::Json(Value::String(text)) => input_of(Arguments::Text(text)),
        Arguments::Json(input) => input,
        // The arguments of a call without arguments may be an empty text.
        Arguments::Text(text) if text.trim().is_empty() => json!({}),
        Arguments::Text(text) => match read_arguments(&text) {
            Some(Value::Null) => json!({}),
            // Some servers encode the text twice.
            Some(Value::String(inner)) => input_of(Arguments::Text(inner)),
            Some(input) => input,
            None => Value::String(text),
        },
    }
}

/// Parses arguments. Line breaks in strings, placeholders before the arguments, and repetitions of
/// them are allowed, because models and servers write them.
fn read_arguments(text: &str) -> Option<Value> {
    if let Ok(input) = serde_json::from_str(text) {
        return Some(input);
    }
    if let Ok(input) = serde_json::from_str(&with_escaped_controls(text)) {
        return Some(input);
    }
    let inputs = serde_json::Deserializer::from_str(text).into_iter::<JsonObject>();
    let mut inputs: Vec<JsonObject> = inputs.collect::<Result<_, _>>().ok()?;
    inputs.retain(|input| !input.is_empty());
    inputs.dedup();
    match inputs.pop() {
        Some(input) if inputs.is_empty() => Some(Value::Object(input)),
        Some(_) | None => None,
    }
}

/// Escapes control characters within the strings of JSON. One after a backslash stays, and the text
/// invalid, because the meaning of both is unclear.
fn with_escaped_controls(text: &str) -> String {
    let (mut escaped, mut in_string, mut after_backslash) = (String::new(), false, false);
    for c in text.chars() {
        if in_string && c.is_control() && !after_backslash {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
        if c == '"' && !after_backslash {
            in_string = !in_string;
        }
        after_backslash = c == '\\' && !after_backslash;
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calls_number_is_a_name_and_takes_no_room() {
        let mut draft = Draft::default();
        draft.begin_call(u64::MAX, "a", "t").unwrap();
        draft.begin_call(4_000_000_000, "b", "t").unwrap();
        draft.add_arguments(u64::MAX, "{\"n\":").unwrap();
        draft.add_arguments(u64::MAX, "1}").unwrap();
        assert_eq!(draft.calls.len(), 2);
        assert_eq!(draft.call_id(4_000_000_000), Some("b"));
        let mut signatures = BTreeMap::new();
        let calls = named_apart(draft.calls, &mut signatures).unwrap();
        assert_eq!(calls[0].input, json!({"n": 1}));
        assert_eq!(calls[1].input, json!({}));
    }

    #[test]
    fn a_reply_is_bounded_in_bytes_and_in_calls_before_it_is_kept() {
        let mut draft = Draft::default();
        for index in 0..REPLY_CALLS_MAX as u64 {
            draft.begin_call(index, "", "t").unwrap();
        }
        assert_eq!(draft.begin_call(99, "", "t"), Err(Excess::Calls));
        let part = "x".repeat(1024 * 1024);
        let mut draft = Draft::default();
        draft.begin_call(0, "", "").unwrap();
        for _ in 0..REPLY_BYTES_MAX / part.len() / 2 {
            draft.say(&part).unwrap();
            draft.add_arguments(0, &part).unwrap();
        }
        assert_eq!(draft.think("x"), Err(Excess::Bytes));
    }

    #[test]
    fn calls_without_usable_ids_get_ids_of_their_own() {
        let mut draft = Draft::default();
        for (index, id) in ["same", "same", "", "a\nb"].into_iter().enumerate() {
            draft.begin_call(index as u64, id, "t").unwrap();
        }
        let calls = named_apart(draft.calls, &mut BTreeMap::new()).unwrap();
        let ids: BTreeSet<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids.len(), 4);
        assert!(ids.contains("same"));
    }

    #[test]
    fn prov_1_only_raw_text_can_contain_calls() {
        let names = ToolNames::reserving(["read"]);
        let text = r#"<tool_call>{"name": "read", "arguments": {}}</tool_call>"#;
        let mut draft = Draft::default();
        draft.say(text).unwrap();
        draft.take_text_calls(&names).unwrap();
        assert_eq!((draft.text(), draft.calls.len()), (text, 0));
        let mut draft = Draft::default();
        draft.say_raw(text).unwrap();
        draft.end_text().unwrap();
        draft.take_text_calls(&names).unwrap();
        assert_eq!((draft.text(), draft.calls.len()), ("", 1));
    }
}
