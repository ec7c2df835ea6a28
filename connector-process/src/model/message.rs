//! One message of a conversation in a provider-neutral form.

use goondan_protocol::JsonObject;
use goondan_protocol::call::CompletionMessage;
use goondan_protocol::definition::HostedModel;
use goondan_protocol::images::Image;
use goondan_protocol::message::{MessageRole, ToolCall, ToolResult};
use serde_json::Value;

use super::thoughts::Thoughts;

/// Default media type of a Base64 image.
const USUAL_MEDIA_TYPE: &str = "image/png";

#[derive(Debug)]
pub(super) struct ChatMessage {
    pub(super) role: MessageRole,
    /// Texts and images, in order.
    pub(super) parts: Vec<MessagePart>,
    pub(super) calls: Vec<ToolCall>,
    pub(super) results: Vec<ToolResult>,
    pub(super) thoughts: Option<Thoughts>,
}

#[derive(Debug)]
pub(super) enum MessagePart {
    Text(String),
    Image(Picture),
}

/// An image, in the two forms that providers distinguish.
#[derive(Debug)]
pub(super) enum Picture {
    At(String),
    Base64 { media_type: String, data: String },
}

impl ChatMessage {
    pub(super) fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            MessagePart::Text(text) => Some(text.as_str()),
            MessagePart::Image(_) => None,
        });
        texts.collect()
    }

    /// True if it contains only text.
    pub(super) fn is_text(&self) -> bool {
        self.parts
            .iter()
            .all(|part| matches!(part, MessagePart::Text(_)))
    }
}

/// Converts a message; `None` if it is empty, because providers reject empty messages.
pub(super) fn said_of(model: &HostedModel, message: &CompletionMessage) -> Option<ChatMessage> {
    let content = &message.content;
    let mut parts: Vec<MessagePart> = Vec::new();
    match content.as_json() {
        Value::Array(items) => {
            let items = items.iter().filter_map(Value::as_object);
            parts.extend(items.filter_map(part_of));
        }
        _ => parts.extend(text_of(content.to_text())),
    }
    let thoughts = message.reasoning.as_ref();
    let said = ChatMessage {
        role: message.role,
        parts,
        calls: content.tool_calls(),
        results: content.tool_results(),
        thoughts: thoughts.and_then(|kept| Thoughts::read(kept, model)),
    };
    let is_empty = said.parts.is_empty() && said.calls.is_empty() && said.results.is_empty();
    (!is_empty).then_some(said)
}

fn text_of(text: String) -> Option<MessagePart> {
    (!text.trim().is_empty()).then_some(MessagePart::Text(text))
}

/// Converts a part that is text or an image. Calls and results are converted separately.
fn part_of(part: &JsonObject) -> Option<MessagePart> {
    let field = |name: &str| part.get(name).and_then(Value::as_str);
    match field("type")? {
        "text" => text_of(field("text")?.to_owned()),
        "image" => picture_of(field("image")?, field("mediaType")).map(MessagePart::Image),
        _ => None,
    }
}

/// Parses an image: a URL, a `data:` URL, or Base64 with its media type.
fn picture_of(image: &str, media_type: Option<&str>) -> Option<Picture> {
    if let Some(data) = image.strip_prefix("data:") {
        let (head, data) = data.split_once(',')?;
        return Some(Picture::Base64 {
            media_type: head.strip_suffix(";base64")?.to_owned(),
            data: data.to_owned(),
        });
    }
    Some(if is_address(image) {
        Picture::At(image.to_owned())
    } else {
        Picture::Base64 {
            media_type: media_type.unwrap_or(USUAL_MEDIA_TYPE).to_owned(),
            data: image.to_owned(),
        }
    })
}

fn is_address(image: &str) -> bool {
    image.starts_with("https://") || image.starts_with("http://")
}

impl Picture {
    /// Converts an image of a tool's result.
    pub(super) fn of(image: &Image) -> Option<Self> {
        picture_of(&image.image, image.media_type.as_deref())
    }

    /// The image's URL, or a `data:` URL with its contents.
    pub(super) fn url(&self) -> String {
        match self {
            Self::At(url) => url.clone(),
            Self::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
        }
    }
}
