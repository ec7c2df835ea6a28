//! The Responses API of `OpenAI`.
//!
//! The provider stores nothing (`store: false`): each request has the whole conversation, with the
//! model's encrypted reasoning, which only this model can use.

use goondan_protocol::definition::HostedModel;
use goondan_protocol::limits::MAX_ID_BYTES;
use goondan_protocol::message::MessageRole;
use goondan_protocol::usage::Usage;
use serde_json::{Map, Value, json};

use super::dialect::{Dialect, ReplyFault, StreamProgress, error_at, text_at, tokens_at};
use super::draft::{Draft, Excess};
use super::events::SseEvent;
use super::message::{ChatMessage, MessagePart, Picture};
use super::question::{ChatRequest, arguments, result_text, sends_reasoning};
use crate::limits::REPLY_ITEMS_MAX;

/// Models that are known to reason, by name prefix. Others reject the fields of reasoning.
const REASONING: &[&str] = &["gpt-5", "gpt-6", "o1", "o3", "o4", "codex", "gpt-oss"];

/// Types of the blocks that are stored with a reply: its encrypted reasoning, and in between the
/// positions of its text and its calls.
const REASONING_ITEM: &str = "reasoning";
const MESSAGE_ITEM: &str = "message";
const CALL_ITEM: &str = "function_call";

/// Separates two reasoning summaries, and two messages of one reply.
const PARAGRAPH: &str = "\n\n";

pub(super) fn request(model: &HostedModel, question: &ChatRequest) -> Value {
    let params = &question.params;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("model", json!(model.model));
    put("stream", json!(true));
    put("store", json!(false));
    if let Some(system) = &question.system {
        put("instructions", json!(system));
    }
    put("input", Value::Array(input(model, question)));
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|tool| {
            // Strict schemas must require every property, which those of tools do not.
            json!({"type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.parameters, "strict": false})
        });
        put("tools", tools.collect());
        put("tool_choice", json!("auto"));
    }
    let effort = params.reasoning_effort.as_deref();
    let thinks = effort.map_or_else(|| is_reasoning(&model.model), |effort| effort != "none");
    let mut reasoning = Map::new();
    if let Some(effort) = effort {
        reasoning.insert("effort".to_owned(), json!(effort));
    }
    if thinks {
        reasoning.insert("summary".to_owned(), json!("auto"));
        put("include", json!(["reasoning.encrypted_content"]));
    }
    if !reasoning.is_empty() {
        put("reasoning", Value::Object(reasoning));
    }
    if let Some(temperature) = params.temperature {
        put("temperature", json!(temperature));
    }
    if let Some(top_p) = params.top_p {
        put("top_p", json!(top_p));
    }
    if let Some(tokens) = params.max_tokens {
        put("max_output_tokens", json!(tokens));
    }
    Value::Object(fields)
}

fn is_reasoning(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    REASONING.iter().any(|known| name.starts_with(known))
}

/// The conversation as input items.
fn input(model: &HostedModel, question: &ChatRequest) -> Vec<Value> {
    let shows_thoughts = sends_reasoning(model);
    let steps = question.place_of_steps();
    let mut items = Vec::new();
    for (place, said) in question.messages.iter().enumerate() {
        match said.role {
            MessageRole::System => items.push(json!({"role": "system", "content": said.text()})),
            MessageRole::User => items.push(json!({"role": "user", "content": content(said)})),
            MessageRole::Assistant => {
                let with_thoughts = shows_thoughts && place >= steps;
                assistant(said, with_thoughts, &mut items);
            }
            MessageRole::Tool => {
                for result in &said.results {
                    let text = result_text(result);
                    let images = result.images.iter().filter_map(Picture::of);
                    let images: Vec<Value> = images.map(|picture| image(&picture)).collect();
                    let output = if images.is_empty() {
                        Value::String(text)
                    } else {
                        let text = json!({"type": "input_text", "text": text});
                        std::iter::once(text).chain(images).collect()
                    };
                    items.push(json!({"type": "function_call_output",
                        "call_id": result.tool_call_id, "output": output}));
                }
            }
        }
    }
    items
}

fn content(said: &ChatMessage) -> Value {
    if said.is_text() {
        return Value::String(said.text());
    }
    let parts = said.parts.iter().map(|part| match part {
        MessagePart::Text(text) => json!({"type": "input_text", "text": text}),
        MessagePart::Image(picture) => image(picture),
    });
    parts.collect()
}

fn image(picture: &Picture) -> Value {
    json!({"type": "input_image", "image_url": picture.url(), "detail": "auto"})
}

/// The items of a reply, in the order in which the model wrote them: encrypted reasoning belongs to
/// the item behind it.
fn assistant(said: &ChatMessage, with_thoughts: bool, items: &mut Vec<Value>) {
    let text = said.text();
    let mut text = (!text.is_empty()).then(|| json!({"role": "assistant", "content": text}));
    let mut calls = said.calls.iter().map(|call| {
        json!({"type": CALL_ITEM, "call_id": call.id, "name": call.tool_name,
            "arguments": arguments(call).to_string()})
    });
    let blocks = said.thoughts.iter().flat_map(|thoughts| &thoughts.blocks);
    for block in blocks {
        match text_at(block, "/type") {
            Some(REASONING_ITEM) => items.push(block.clone()),
            Some(MESSAGE_ITEM) => items.extend(text.take()),
            Some(CALL_ITEM) => items.extend(calls.next()),
            // Blocks of another protocol.
            Some(_) | None => {}
        }
    }
    let thoughts = said.thoughts.as_ref();
    if let Some(thoughts) = thoughts.filter(|it| with_thoughts && it.blocks.is_empty())
        && !thoughts.text.is_empty()
    {
        let content = json!([{"type": "reasoning_text", "text": thoughts.text}]);
        items.push(json!({"type": REASONING_ITEM, "summary": [], "content": content}));
    }
    items.extend(text);
    items.extend(calls);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// An item of a tool that the provider runs.
    Other,
}

impl ItemKind {
    fn of(item: &Value) -> Self {
        match text_at(item, "/type") {
            Some(MESSAGE_ITEM) => Self::Message,
            Some(REASONING_ITEM) => Self::Reasoning,
            Some(CALL_ITEM) => Self::Call,
            Some(_) | None => Self::Other,
        }
    }
}

/// An item of the reply's output.
#[derive(Debug)]
struct OutputItem {
    kind: ItemKind,
    /// Its number in the output, if the server sends one.
    index: Option<u64>,
    /// Its id; empty if the server sends none.
    id: String,
    /// Number of its call in the draft.
    call: Option<u64>,
    /// True once its text, summary or arguments arrived in pieces.
    has_pieces: bool,
    /// Latest part that has text: of the content, or of the summary.
    part: Option<u64>,
    is_done: bool,
}

/// An id, if it is short enough to be one; an empty text otherwise.
fn known_id(id: &str) -> &str {
    if id.len() > MAX_ID_BYTES { "" } else { id }
}

/// Place of an item among those of a reader.
type ItemPlace = usize;

/// Reads a reply. Contents arrive in pieces, and are repeated at the end of a part, of an item and
/// of the response. A repetition counts only if the contents did not arrive before.
///
/// Some servers send each event with another item id, and some omit the id or the index, so an
/// event belongs to the latest item of its kind with its id, else with its index, else without an
/// end.
#[derive(Debug, Default)]
pub(super) struct ResponsesReader {
    items: Vec<OutputItem>,
    calls_begun: u64,
    /// Item of the latest text.
    speaking: Option<ItemPlace>,
    /// Stored types of items that no reasoning follows so far.
    since_reasoning: Vec<&'static str>,
}

impl Dialect for ResponsesReader {
    fn event(&mut self, event: &SseEvent, draft: &mut Draft) -> Result<StreamProgress, ReplyFault> {
        if event.data.trim().eq_ignore_ascii_case("[DONE]") {
            return Ok(StreamProgress::Unknown);
        }
        let said = super::dialect::json(event)?;
        let kind = text_at(&said, "/type").unwrap_or(&event.name).to_owned();
        if kind == "error" || error_at(&said).is_some() {
            return Err(ReplyFault::Said(error_of(&said)));
        }
        let Some(kind) = kind.strip_prefix("response.") else {
            return Ok(StreamProgress::Unknown);
        };
        match kind {
            "output_item.added" => {
                if let Some(item) = said.get("item") {
                    self.begin(item, &said, draft)?;
                }
            }
            "output_item.done" => {
                if let Some(item) = said.get("item") {
                    self.end_item(item, &said, draft)?;
                }
            }
            "output_text.delta" | "output_text.done" => {
                let place = self.find_or_begin(ItemKind::Message, &said, draft)?;
                self.say(place, Piece::of(&said, "text"), draft)?;
            }
            "refusal.delta" | "refusal.done" => {
                let place = self.find_or_begin(ItemKind::Message, &said, draft)?;
                self.refuse(place, Piece::of(&said, "refusal"), draft)?;
            }
            "reasoning_summary_text.delta"
            | "reasoning_summary_text.done"
            | "reasoning_text.delta"
            | "reasoning_text.done" => {
                let place = self.find_or_begin(ItemKind::Reasoning, &said, draft)?;
                self.think(place, Piece::of(&said, "text"), draft)?;
            }
            "function_call_arguments.delta" | "function_call_arguments.done" => {
                let place = self.find_or_begin(ItemKind::Call, &said, draft)?;
                self.add_arguments(place, Piece::of(&said, "arguments"), draft)?;
            }
            "completed" | "incomplete" | "failed" => {
                let response = said.get("response").unwrap_or(&Value::Null);
                self.end(response, kind, draft)?;
                return Ok(StreamProgress::Done);
            }
            // The beginning, parts of contents, and tools that the provider runs.
            _ => {
                let response = said.get("response").unwrap_or(&Value::Null);
                draft.identify(response.get("id"), response.get("model"));
            }
        }
        Ok(StreamProgress::More)
    }

    fn whole(&mut self, body: Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        if !body.get("output").is_some_and(Value::is_array) {
            return Err(ReplyFault::Strange);
        }
        let status = text_at(&body, "/status").unwrap_or("completed").to_owned();
        self.end(&body, &status, draft)
    }

    fn is_declined(&self, draft: &Draft) -> bool {
        draft.stop_reason() == Some("content_filter")
    }
}

impl OutputItem {
    /// True if a part comes after the latest one that has text.
    fn has_not_reached(&self, part: Option<u64>) -> bool {
        matches!((self.part, part), (Some(latest), Some(part)) if part > latest)
    }
}

/// Contents of an event: a piece, or all of a part at its end.
#[derive(Debug, Clone, Copy)]
struct Piece<'v> {
    value: Option<&'v Value>,
    /// Number of the part.
    part: Option<u64>,
    is_all: bool,
}

impl<'v> Piece<'v> {
    /// Reads an event: a delta, or all of the part in `field`.
    fn of(said: &'v Value, field: &str) -> Self {
        let part = ["summary_index", "content_index"].iter();
        let mut part = part.filter_map(|field| said.get(field)?.as_u64());
        let delta = said.get("delta");
        Self {
            value: delta.or_else(|| said.get(field)),
            part: part.next(),
            is_all: delta.is_none(),
        }
    }

    fn text(&self) -> &'v str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }
}

/// An error in the form of the other APIs.
fn error_of(said: &Value) -> Value {
    match error_at(said) {
        Some(error) => json!({"error": error}),
        None => json!({"error": {"code": said.get("code"), "message": said.get("message")}}),
    }
}

impl ResponsesReader {
    fn begin(
        &mut self,
        item: &Value,
        said: &Value,
        draft: &mut Draft,
    ) -> Result<ItemPlace, ReplyFault> {
        if self.items.len() == REPLY_ITEMS_MAX {
            return Err(Excess::Items.into());
        }
        let kind = ItemKind::of(item);
        let id = text_at(item, "/id").or_else(|| text_at(said, "/item_id"));
        let id = id.unwrap_or_default();
        let call = if kind == ItemKind::Call {
            let text = |pointer: &str| text_at(item, pointer).unwrap_or_default();
            let call = self.calls_begun;
            self.calls_begun += 1;
            draft.begin_call(call, text("/call_id"), text("/name"))?;
            Some(call)
        } else {
            None
        };
        self.items.push(OutputItem {
            kind,
            index: said.get("output_index").and_then(Value::as_u64),
            id: known_id(id).to_owned(),
            call,
            has_pieces: false,
            part: None,
            is_done: false,
        });
        Ok(self.items.len() - 1)
    }

    /// The item of an event.
    fn find(&self, kind: ItemKind, id: &str, index: Option<u64>) -> Option<ItemPlace> {
        let latest = |is: &dyn Fn(&OutputItem) -> bool| {
            let mut items = self.items.iter();
            items.rposition(|item| item.kind == kind && is(item))
        };
        latest(&|item| !id.is_empty() && item.id == known_id(id))
            .or_else(|| latest(&|item| !item.is_done && index.is_some() && item.index == index))
            .or_else(|| latest(&|item| !item.is_done && (index.is_none() || item.index.is_none())))
    }

    fn find_or_begin(
        &mut self,
        kind: ItemKind,
        said: &Value,
        draft: &mut Draft,
    ) -> Result<ItemPlace, ReplyFault> {
        let id = text_at(said, "/item_id").unwrap_or_default();
        let index = said.get("output_index").and_then(Value::as_u64);
        if let Some(place) = self.find(kind, id, index) {
            return Ok(place);
        }
        let name = match kind {
            ItemKind::Message => MESSAGE_ITEM,
            ItemKind::Reasoning => REASONING_ITEM,
            ItemKind::Call => CALL_ITEM,
            ItemKind::Other => "",
        };
        self.begin(&json!({"type": name}), said, draft)
    }

    /// Marks a part of an item as having pieces. False if this is a repetition of contents that
    /// arrived in pieces.
    fn takes(&mut self, place: ItemPlace, piece: Piece<'_>) -> bool {
        let Some(item) = self.items.get_mut(place) else {
            return false;
        };
        if item.is_done || piece.is_all && item.has_pieces && !item.has_not_reached(piece.part) {
            return false;
        }
        item.has_pieces = true;
        item.part = piece.part.or(item.part);
        true
    }

    fn say(
        &mut self,
        place: ItemPlace,
        piece: Piece<'_>,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let text = piece.text();
        if text.is_empty() || !self.takes(place, piece) {
            return Ok(());
        }
        if self.speaking.replace(place).is_some_and(|it| it != place) {
            draft.say(PARAGRAPH)?;
        }
        Ok(draft.say(text)?)
    }

    fn refuse(
        &mut self,
        place: ItemPlace,
        piece: Piece<'_>,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let text = piece.text();
        // A refusal may follow text of the same item, whose repetitions must not hide it.
        if text.is_empty() || piece.is_all && draft.is_refusal() {
            return Ok(());
        }
        if let Some(item) = self.items.get_mut(place) {
            item.has_pieces = true;
        }
        Ok(draft.refuse(text)?)
    }

    fn think(
        &mut self,
        place: ItemPlace,
        piece: Piece<'_>,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let item = self.items.get(place);
        let is_new = item.is_some_and(|it| !it.has_pieces || it.has_not_reached(piece.part));
        let text = piece.text();
        if text.is_empty() || !self.takes(place, piece) {
            return Ok(());
        }
        if is_new && draft.has_thought() {
            draft.think(PARAGRAPH)?;
        }
        Ok(draft.think(text)?)
    }

    fn add_arguments(
        &mut self,
        place: ItemPlace,
        piece: Piece<'_>,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let Some(call) = self.items.get(place).and_then(|item| item.call) else {
            return Ok(());
        };
        match piece.value {
            Some(Value::String(text)) if !text.is_empty() && self.takes(place, piece) => {
                draft.add_arguments(call, text)?;
            }
            // Some servers send the object where the protocol has its text.
            Some(input @ Value::Object(_)) if self.takes(place, piece) => {
                draft.set_arguments(call, input.clone())?;
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Takes a complete item.
    fn end_item(
        &mut self,
        item: &Value,
        said: &Value,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let kind = ItemKind::of(item);
        let id = text_at(item, "/id").unwrap_or_default();
        let index = said.get("output_index").and_then(Value::as_u64);
        let place = match self.find(kind, id, index) {
            Some(place) => place,
            None => self.begin(item, said, draft)?,
        };
        self.take_item(place, item, draft)
    }

    fn take_item(
        &mut self,
        place: ItemPlace,
        item: &Value,
        draft: &mut Draft,
    ) -> Result<(), ReplyFault> {
        let Some(held) = self.items.get(place).filter(|held| !held.is_done) else {
            return Ok(());
        };
        let (kind, call, has_pieces) = (held.kind, held.call, held.has_pieces);
        let parts = |field: &str| {
            let parts = item.get(field).and_then(Value::as_array);
            parts.cloned().unwrap_or_default()
        };
        match kind {
            ItemKind::Message => {
                for part in parts("content") {
                    let piece = Piece {
                        value: part.get("text"),
                        part: None,
                        // Without pieces, each of several parts is taken.
                        is_all: has_pieces,
                    };
                    self.say(place, piece, draft)?;
                    if let Some(text) = part.get("refusal").and_then(Value::as_str)
                        && !draft.is_refusal()
                    {
                        draft.refuse(text)?;
                    }
                }
                self.since_reasoning.push(MESSAGE_ITEM);
            }
            ItemKind::Reasoning => {
                if !has_pieces {
                    let texts = parts("summary").into_iter().chain(parts("content"));
                    for (number, part) in (0_u64..).zip(texts) {
                        let piece = Piece {
                            value: part.get("text"),
                            part: Some(number),
                            is_all: false,
                        };
                        self.think(place, piece, draft)?;
                    }
                }
                self.keep_reasoning(item, draft)?;
            }
            ItemKind::Call => {
                if let Some(call) = call {
                    let text = |pointer: &str| text_at(item, pointer).unwrap_or_default();
                    draft.identify_call(call, text("/call_id"))?;
                    draft.name_call(call, text("/name"))?;
                }
                let piece = Piece {
                    value: item.get("arguments"),
                    part: None,
                    is_all: true,
                };
                self.add_arguments(place, piece, draft)?;
                self.since_reasoning.push(CALL_ITEM);
            }
            ItemKind::Other => {}
        }
        if let Some(item) = self.items.get_mut(place) {
            item.is_done = true;
        }
        Ok(())
    }

    /// Stores encrypted reasoning in the form to send back. Without its id: the provider would look
    /// for a stored item.
    fn keep_reasoning(&mut self, item: &Value, draft: &mut Draft) -> Result<(), ReplyFault> {
        let encrypted = text_at(item, "/encrypted_content").filter(|text| !text.is_empty());
        let Some(encrypted) = encrypted else {
            return Ok(());
        };
        for kind in std::mem::take(&mut self.since_reasoning) {
            draft.keep_block(json!({"type": kind}))?;
        }
        let summary = item.get("summary").filter(|summary| summary.is_array());
        draft.keep_block(
            json!({"type": REASONING_ITEM, "encrypted_content": encrypted,
            "summary": summary.cloned().unwrap_or_else(|| json!([]))}),
        )?;
        Ok(())
    }

    /// Takes the complete response. Its items count only if the stream did not have them.
    fn end(&mut self, response: &Value, status: &str, draft: &mut Draft) -> Result<(), ReplyFault> {
        draft.identify(response.get("id"), response.get("model"));
        count(response.get("usage"), draft);
        if status == "failed" {
            return Err(ReplyFault::Said(error_of(response)));
        }
        let output = response.get("output").and_then(Value::as_array);
        let streamed = self.items.len();
        for (index, item) in (0_u64..).zip(output.into_iter().flatten()) {
            let kind = ItemKind::of(item);
            let id = text_at(item, "/id").unwrap_or_default();
            match self.find(kind, id, Some(index)) {
                Some(place) => self.take_item(place, item, draft)?,
                None => {
                    let mut seen = self.items.iter().take(streamed);
                    if !seen.any(|seen| seen.kind == kind) {
                        let place = self.begin(item, &json!({"output_index": index}), draft)?;
                        self.take_item(place, item, draft)?;
                    }
                }
            }
        }
        let reason = text_at(response, "/incomplete_details/reason");
        draft.stop(reason.unwrap_or(status));
        Ok(())
    }
}

fn count(usage: Option<&Value>, draft: &mut Draft) {
    let Some(usage) = usage.filter(|usage| usage.is_object()) else {
        return;
    };
    let tokens = |pointer: &str| tokens_at(usage, pointer).unwrap_or(0);
    let cache_read_tokens = tokens("/input_tokens_details/cached_tokens");
    draft.take(Usage {
        // Cached tokens are included in the input tokens.
        input_tokens: tokens("/input_tokens").saturating_sub(cache_read_tokens),
        output_tokens: tokens("/output_tokens"),
        cache_read_tokens,
        cache_write_tokens: 0,
        reasoning_tokens: tokens("/output_tokens_details/reasoning_tokens"),
    });
}

#[cfg(test)]
mod tests {
    use super::super::draft::PieceKind;
    use super::*;

    fn feed(
        reader: &mut ResponsesReader,
        draft: &mut Draft,
        event: &Value,
    ) -> Result<StreamProgress, ReplyFault> {
        let event = SseEvent {
            name: String::new(),
            data: event.to_string(),
        };
        reader.event(&event, draft)
    }

    #[test]
    fn prov_1_the_items_of_a_response_are_bounded() {
        let (mut reader, mut draft) = (ResponsesReader::default(), Draft::default());
        let added = json!({"type": "response.output_item.added", "item": {"type": "search"}});
        for _ in 0..REPLY_ITEMS_MAX {
            feed(&mut reader, &mut draft, &added).unwrap();
        }
        let found = feed(&mut reader, &mut draft, &added);
        assert!(
            matches!(found, Err(ReplyFault::Excess(Excess::Items))),
            "{found:?}"
        );
    }

    #[test]
    fn prov_1_messages_and_summaries_are_paragraphs() {
        let (mut reader, mut draft) = (ResponsesReader::default(), Draft::default());
        let piece = |kind: &str, index: u64, part: u64, text: &str| {
            json!({"type": format!("response.{kind}.delta"), "output_index": index,
                "content_index": part, "delta": text})
        };
        for event in [
            piece("reasoning_text", 0, 0, "One "),
            piece("reasoning_text", 0, 0, "thought."),
            piece("reasoning_text", 0, 1, "Another."),
            piece("output_text", 1, 0, "First,"),
            piece("output_text", 1, 1, " and"),
            json!({"type": "response.output_item.done", "output_index": 1,
                "item": {"type": "message", "content": [{"text": "First,"}, {"text": " and"}]}}),
            piece("output_text", 2, 0, "second."),
        ] {
            feed(&mut reader, &mut draft, &event).unwrap();
        }
        let fresh = draft.take_fresh();
        let text = |wanted: PieceKind| -> String {
            let texts = fresh.iter().filter(|(kind, _)| *kind == wanted);
            texts.map(|(_, text)| text.as_str()).collect()
        };
        assert_eq!(text(PieceKind::Reasoning), "One thought.\n\nAnother.");
        assert_eq!(text(PieceKind::Text), "First, and\n\nsecond.");
    }
}
