//! Messages of a conversation and the events that change it (`MSG-2`, `MSG-3`).
//!
//! These types define file formats as well as wire formats. Other implementations write them too,
//! so unknown fields are preserved.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::JsonObject;
use crate::ids::{ExtensionName, MessageId, StepId, ToolCallId, ToolName};
use crate::images::Image;
use crate::time::Timestamp;

/// Metadata key of a model's reply: the reason it ended, in the provider's words.
pub const STOP_REASON: &str = "stopReason";

/// Metadata key of a model's reply: the provider's id of the reply.
pub const RESPONSE_ID: &str = "responseId";

/// Metadata key of a model's reply: the provider's name of the model that answered.
pub const RESPONSE_MODEL: &str = "responseModel";

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// Instructions.
    System,
    /// The person or system that the agent serves.
    User,
    /// The model.
    Assistant,
    /// The result of tool calls.
    Tool,
}

/// One confirmed or pending message: a line of `base.jsonl` (`MSG-2`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Identifies the message within its conversation.
    pub id: MessageId,
    /// The part sent to a model.
    pub data: MessageData,
    /// Free-form metadata of extensions and tools.
    #[serde(default)]
    pub metadata: JsonObject,
    /// Time of its creation, preserved as written.
    pub created_at: String,
    /// Origin of the message.
    pub source: MessageSource,
    /// Fields of other versions and implementations, preserved.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// The part of a message that is sent to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageData {
    /// The author.
    pub role: MessageRole,
    /// The content.
    pub content: MessageContent,
    /// Fields of other versions and implementations, preserved.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Content of a message: a string, or a list of parts such as `{"type":"text"}`,
/// `{"type":"tool-call"}` and `{"type":"tool-result"}`. Parts of unknown types are preserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageContent(Value);

/// A tool call requested in an assistant's message.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Identifies the call; its result repeats the id.
    pub id: ToolCallId,
    /// The full tool name, as the model wrote it. The tool need not exist.
    pub tool_name: String,
    /// The arguments.
    pub input: Value,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The call it answers.
    pub tool_call_id: ToolCallId,
    /// The tool that was called, as the model wrote it.
    pub tool_name: String,
    /// The tool's output or error message.
    pub text: String,
    /// True if the call failed.
    pub is_error: bool,
    /// Images besides the text.
    pub images: Vec<Image>,
}

impl MessageContent {
    /// A plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self(Value::String(text.into()))
    }

    /// A person's text with images; plain text if there are none.
    #[must_use]
    pub fn with_images(text: &str, images: &[Image]) -> Self {
        if images.is_empty() {
            return Self::text(text);
        }
        let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
        let images = images.iter().map(|image| {
            let mut part = json!({"type": "image", "image": image.image});
            if let (Some(kind), Some(part)) = (&image.media_type, part.as_object_mut()) {
                part.insert("mediaType".to_owned(), json!(kind));
            }
            part
        });
        Self(Value::Array(text.into_iter().chain(images).collect()))
    }

    /// An assistant's message: optional text and tool calls.
    #[must_use]
    pub fn assistant(text: &str, calls: &[ToolCall]) -> Self {
        if calls.is_empty() {
            return Self::text(text);
        }
        let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
        let calls = calls.iter().map(|call| {
            json!({
                "type": "tool-call",
                "toolCallId": call.id,
                "toolName": call.tool_name,
                "input": call.input,
            })
        });
        Self(Value::Array(text.into_iter().chain(calls).collect()))
    }

    /// The result of one tool call.
    #[must_use]
    pub fn tool_result(result: &ToolResult) -> Self {
        let output = if result.is_error {
            json!({"type": "error-text", "value": result.text})
        } else if result.images.is_empty() {
            json!({"type": "text", "value": result.text})
        } else {
            let text = std::iter::once(json!({"type": "text", "text": result.text}));
            let images = result.images.iter().map(|image| {
                json!({"type": "media", "data": image.image, "mediaType": image.media_type})
            });
            json!({"type": "content", "value": text.chain(images).collect::<Vec<_>>()})
        };
        Self(json!([{
            "type": "tool-result",
            "toolCallId": result.tool_call_id,
            "toolName": result.tool_name,
            "output": output,
        }]))
    }

    /// All text of the message: the string, or its text parts, joined.
    #[must_use]
    pub fn to_text(&self) -> String {
        match &self.0 {
            Value::String(text) => text.clone(),
            _ => self
                .parts("text")
                .filter_map(|part| part.get("text")?.as_str())
                .collect(),
        }
    }

    /// The images among the parts, in order. Damaged parts are skipped.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        let field = |part: &JsonObject, name: &str| Some(part.get(name)?.as_str()?.to_owned());
        self.parts("image")
            .filter_map(|part| {
                Some(Image {
                    image: field(part, "image")?,
                    media_type: field(part, "mediaType"),
                })
            })
            .collect()
    }

    /// The tool calls among the parts, in order. Damaged parts are skipped.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        self.parts("tool-call")
            .filter_map(|part| {
                Some(ToolCall {
                    id: ToolCallId::new(part.get("toolCallId")?.as_str()?).ok()?,
                    tool_name: part.get("toolName")?.as_str()?.to_owned(),
                    input: part.get("input").cloned().unwrap_or(Value::Null),
                })
            })
            .collect()
    }

    /// The tool results among the parts, in order. Damaged parts are skipped.
    #[must_use]
    pub fn tool_results(&self) -> Vec<ToolResult> {
        self.parts("tool-result")
            .filter_map(|part| {
                let output = part.get("output");
                let value = output.and_then(|output| output.get("value"));
                let kind = output
                    .and_then(|output| output.get("type"))
                    .and_then(Value::as_str);
                Some(ToolResult {
                    tool_call_id: ToolCallId::new(part.get("toolCallId")?.as_str()?).ok()?,
                    tool_name: part
                        .get("toolName")
                        .and_then(Value::as_str)
                        .unwrap_or("")
                        .to_owned(),
                    text: match value {
                        Some(Value::String(text)) => text.clone(),
                        Some(Value::Array(parts)) if kind == Some("content") => text_of(parts),
                        Some(other) => other.to_string(),
                        None => String::new(),
                    },
                    is_error: kind.is_some_and(|kind| kind.starts_with("error")),
                    images: match value {
                        Some(Value::Array(parts)) if kind == Some("content") => media_of(parts),
                        _ => Vec::new(),
                    },
                })
            })
            .collect()
    }

    /// The content as JSON.
    #[must_use]
    pub fn as_json(&self) -> &Value {
        &self.0
    }

    fn parts<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a JsonObject> {
        self.0
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .filter(move |part| part.get("type").and_then(Value::as_str) == Some(kind))
    }
}

/// The text among the parts of a tool's result.
fn text_of(parts: &[Value]) -> String {
    let texts = parts.iter();
    let texts = texts.filter_map(|part| part.get("text").and_then(Value::as_str));
    texts.collect::<Vec<_>>().join("\n")
}

/// The images among the parts of a tool's result.
fn media_of(parts: &[Value]) -> Vec<Image> {
    let field = |part: &Value, name: &str| Some(part.get(name)?.as_str()?.to_owned());
    let media = parts.iter().filter_map(|part| {
        let media_type = field(part, "mediaType");
        let is_image = media_type
            .as_deref()
            .is_none_or(|kind| kind.starts_with("image/"));
        let image = field(part, "data").filter(|_| is_image)?;
        Some(Image { image, media_type })
    });
    media.collect()
}

impl From<Value> for MessageContent {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

/// Origin of a message (`MSG-2`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum MessageSource {
    /// From the input event.
    User {
        /// Fields of other versions and implementations, preserved.
        #[serde(flatten)]
        extra: JsonObject,
    },
    /// From the model.
    Assistant {
        /// The step that produced it.
        step_id: StepId,
        /// Fields of other versions and implementations, preserved.
        #[serde(flatten)]
        extra: JsonObject,
    },
    /// From a tool.
    Tool {
        /// The call it answers.
        tool_call_id: ToolCallId,
        /// The tool.
        tool_name: String,
        /// Fields of other versions and implementations, preserved.
        #[serde(flatten)]
        extra: JsonObject,
    },
    /// From the system.
    System {
        /// Fields of other versions and implementations, preserved.
        #[serde(flatten)]
        extra: JsonObject,
    },
    /// From an extension.
    Extension {
        /// The extension.
        extension_name: ExtensionName,
        /// Fields of other versions and implementations, preserved.
        #[serde(flatten)]
        extra: JsonObject,
    },
}

impl Message {
    fn new(
        id: MessageId,
        at: Timestamp,
        role: MessageRole,
        content: MessageContent,
        source: MessageSource,
    ) -> Self {
        Self {
            id,
            data: MessageData {
                role,
                content,
                extra: JsonObject::new(),
            },
            metadata: JsonObject::new(),
            created_at: at.to_string(),
            source,
            extra: JsonObject::new(),
        }
    }

    /// Message with the text of an input event.
    #[must_use]
    pub fn user(id: MessageId, at: Timestamp, text: &str) -> Self {
        Self::user_with_images(id, at, text, &[])
    }

    /// Message with the text and images of an input event.
    #[must_use]
    pub fn user_with_images(id: MessageId, at: Timestamp, text: &str, images: &[Image]) -> Self {
        let source = MessageSource::User {
            extra: JsonObject::new(),
        };
        let content = MessageContent::with_images(text, images);
        Self::new(id, at, MessageRole::User, content, source)
    }

    /// Message with the model's reply in `step_id`.
    #[must_use]
    pub fn assistant(
        id: MessageId,
        at: Timestamp,
        step_id: StepId,
        content: MessageContent,
    ) -> Self {
        let source = MessageSource::Assistant {
            step_id,
            extra: JsonObject::new(),
        };
        Self::new(id, at, MessageRole::Assistant, content, source)
    }

    /// Message with the result of one tool call.
    #[must_use]
    pub fn tool(id: MessageId, at: Timestamp, result: &ToolResult) -> Self {
        let source = MessageSource::Tool {
            tool_call_id: result.tool_call_id.clone(),
            tool_name: result.tool_name.clone(),
            extra: JsonObject::new(),
        };
        Self::new(
            id,
            at,
            MessageRole::Tool,
            MessageContent::tool_result(result),
            source,
        )
    }

    /// Message from goondan itself.
    #[must_use]
    pub fn system(id: MessageId, at: Timestamp, text: &str) -> Self {
        let source = MessageSource::System {
            extra: JsonObject::new(),
        };
        Self::new(
            id,
            at,
            MessageRole::System,
            MessageContent::text(text),
            source,
        )
    }

    /// Message that an extension adds.
    #[must_use]
    pub fn extension(
        id: MessageId,
        at: Timestamp,
        extension_name: ExtensionName,
        role: MessageRole,
        text: &str,
    ) -> Self {
        let source = MessageSource::Extension {
            extension_name,
            extra: JsonObject::new(),
        };
        Self::new(id, at, role, MessageContent::text(text), source)
    }

    /// The step that produced this message, if a model did.
    #[must_use]
    pub fn step_id(&self) -> Option<&StepId> {
        match &self.source {
            MessageSource::Assistant { step_id, .. } => Some(step_id),
            MessageSource::User { .. }
            | MessageSource::Tool { .. }
            | MessageSource::System { .. }
            | MessageSource::Extension { .. } => None,
        }
    }
}

impl Message {
    /// Truncates its texts to at most `bytes_max` bytes. Returns true if a text was truncated.
    pub fn cut_texts(&mut self, bytes_max: usize) -> bool {
        let maps = [&mut self.metadata, &mut self.extra, &mut self.data.extra];
        let others = maps.into_iter().flat_map(JsonObject::values_mut);
        others
            .chain([&mut self.data.content.0])
            .fold(false, |was_cut, value| {
                cut_texts(value, bytes_max) | was_cut
            })
    }
}

fn cut_texts(value: &mut Value, bytes_max: usize) -> bool {
    match value {
        Value::String(text) if text.len() > bytes_max => {
            text.truncate(text.floor_char_boundary(bytes_max));
            true
        }
        Value::Array(values) => values.iter_mut().fold(false, |was_cut, value| {
            cut_texts(value, bytes_max) | was_cut
        }),
        Value::Object(fields) => fields.values_mut().fold(false, |was_cut, value| {
            cut_texts(value, bytes_max) | was_cut
        }),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Joins the two halves of a full tool name: `bash` and `exec` make `bash__exec`.
///
/// # Errors
///
/// [`crate::ids::InvalidId`] if the result is not a valid tool name.
pub fn tool_full_name(tool: &str, export: &str) -> Result<ToolName, crate::ids::InvalidId> {
    ToolName::new(format!("{tool}__{export}"))
}

/// A change of a conversation (`MSG-3`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum MessageEvent {
    /// Appends a message.
    Append {
        /// The message.
        message: Message,
    },
    /// Replaces a message.
    Replace {
        /// The replaced message.
        target_id: MessageId,
        /// The new message.
        message: Message,
    },
    /// Removes a message.
    Remove {
        /// The removed message.
        target_id: MessageId,
    },
    /// Removes all messages.
    Truncate,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed documents' own examples, verbatim.
    const SEED_MESSAGES: [&str; 2] = [
        r#"{"id":"m1","data":{"role":"user","content":"Hello"},"metadata":{},"createdAt":"...","source":{"type":"user"}}"#,
        r#"{"id":"m2","data":{"role":"assistant","content":"Hi!"},"metadata":{},"createdAt":"...","source":{"type":"assistant","stepId":"s1"}}"#,
    ];
    const SEED_EVENTS: [&str; 4] = [
        r#"{"type":"append","message":{"id":"m3","data":{"role":"user","content":"Fix the bug"},"metadata":{},"createdAt":"...","source":{"type":"user"}}}"#,
        r#"{"type":"replace","targetId":"m1","message":{"id":"m1-v2","data":{"role":"user","content":"Updated"},"metadata":{},"createdAt":"...","source":{"type":"extension","extensionName":"compaction"}}}"#,
        r#"{"type":"remove","targetId":"m1"}"#,
        r#"{"type":"truncate"}"#,
    ];

    #[test]
    fn the_seed_formats_are_read_and_written_back_byte_for_byte() {
        for line in SEED_MESSAGES {
            let message: Message = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&message).unwrap(), line);
        }
        for line in SEED_EVENTS {
            let event: MessageEvent = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&event).unwrap(), line);
        }
    }

    #[test]
    fn unknown_fields_survive_a_round_trip() {
        let line = r#"{"id":"m","data":{"role":"assistant","content":[{"type":"reasoning","text":"x","sig":1}],"n":1},"metadata":{"a":[1]},"createdAt":"t","source":{"type":"tool","toolCallId":"c","toolName":"t","ms":4},"zz":{"y":null}}"#;
        let message: Message = serde_json::from_str(line).unwrap();
        let back: Value = serde_json::to_value(&message).unwrap();
        assert_eq!(back, serde_json::from_str::<Value>(line).unwrap());
    }

    #[test]
    fn obs_1_texts_are_cut_between_characters_wherever_they_are() {
        let line = json!({
            "id": "m",
            "data": {"role": "assistant", "content": [{"type": "text", "text": "가나다"}, {"input": {"a": ["longer", 7]}}]},
            "metadata": {"note": "a note"},
            "createdAt": "t",
            "source": {"type": "user"},
            "more": "short",
        });
        let whole: Message = serde_json::from_value(line.clone()).unwrap();
        let mut message = whole.clone();
        assert!(!message.cut_texts(9));
        assert_eq!(message, whole);
        assert!(message.cut_texts(5));
        let mut expected = line;
        expected["data"]["content"][0]["text"] = json!("가");
        expected["data"]["content"][1]["input"]["a"][0] = json!("longe");
        expected["metadata"]["note"] = json!("a not");
        assert_eq!(serde_json::to_value(&message).unwrap(), expected);
        assert!(!message.cut_texts(5));
    }

    #[test]
    fn calls_and_results_round_trip_unchanged() {
        let call = ToolCall {
            id: ToolCallId::new("c1").unwrap(),
            tool_name: "bash__exec".into(),
            input: json!({"command": "ls"}),
        };
        let content = MessageContent::assistant("Looking.", std::slice::from_ref(&call));
        assert_eq!(content.to_text(), "Looking.");
        assert_eq!(content.tool_calls(), std::slice::from_ref(&call));
        let result = ToolResult {
            tool_call_id: call.id,
            tool_name: call.tool_name,
            text: "no".into(),
            is_error: true,
            images: Vec::new(),
        };
        assert_eq!(
            MessageContent::tool_result(&result).tool_results(),
            [result]
        );
    }
}
