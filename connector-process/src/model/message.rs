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

/// First characters of an image in Base64, with the media type that they prove.
const SIGNATURES: &[(&str, &str)] = &[
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
];

/// Media types of images that no model accepts. One such image makes a provider reject each later
/// request of the conversation.
const UNREADABLE: &[&str] = &[
    "image/svg",
    "image/bmp",
    "image/x-ms-bmp",
    "image/tiff",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "image/avif",
];

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
        "image" => {
            let media_type = field("mediaType");
            let picture = picture_of(field("image")?, media_type).map(MessagePart::Image);
            picture.or_else(|| text_of(unreadable(media_type.unwrap_or("unknown"))))
        }
        _ => None,
    }
}

/// Text in place of an image that no model accepts.
fn unreadable(media_type: &str) -> String {
    format!("[image of the type {media_type} left out: models do not accept it]")
}

/// Parses an image: a URL, a `data:` URL, or Base64 with its media type. `None` if no model accepts
/// it.
fn picture_of(image: &str, media_type: Option<&str>) -> Option<Picture> {
    if let Some(data) = image.strip_prefix("data:") {
        let (head, data) = data.split_once(',')?;
        return base64(data, head.strip_suffix(";base64")?);
    }
    if is_address(image) {
        return Some(Picture::At(image.to_owned()));
    }
    base64(image, media_type.unwrap_or(USUAL_MEDIA_TYPE))
}

/// An image in Base64, in the form that providers check: without line breaks, and with the media
/// type of its contents, because many tools name another one.
fn base64(data: &str, media_type: &str) -> Option<Picture> {
    let mut data = data.to_owned();
    data.retain(|c| !c.is_ascii_whitespace());
    let proven = SIGNATURES.iter().find(|(start, _)| data.starts_with(start));
    let media_type = proven.map_or(media_type, |(_, media_type)| media_type);
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let media_type = match media_type.to_ascii_lowercase() {
        short if short == "image/jpg" => "image/jpeg".to_owned(),
        media_type => media_type,
    };
    let is_unreadable = UNREADABLE.iter().any(|kind| media_type.starts_with(kind));
    (!data.is_empty() && !is_unreadable).then_some(Picture::Base64 { media_type, data })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_an_image_goes_out_with_the_type_of_its_contents() {
        let url = |image: &str, media_type: Option<&str>| {
            picture_of(image, media_type).map(|picture| picture.url())
        };
        let png = "iVBORw0KGgoAAAA=";
        for (image, media_type, expected) in [
            (
                png,
                Some("image/jpeg"),
                "data:image/png;base64,iVBORw0KGgoAAAA=",
            ),
            (
                "/9j/4AAQ",
                Some("image/png"),
                "data:image/jpeg;base64,/9j/4AAQ",
            ),
            (
                "/9j/4AAQ",
                Some("image/jpg"),
                "data:image/jpeg;base64,/9j/4AAQ",
            ),
            ("UklGRgAA", None, "data:image/webp;base64,UklGRgAA"),
            ("AAAA", Some("image/jpg"), "data:image/jpeg;base64,AAAA"),
            ("AAAA", Some("IMAGE/PNG; x=y"), "data:image/png;base64,AAAA"),
            (
                "iVBORw0K\nGgoAAAA=\n",
                None,
                "data:image/png;base64,iVBORw0KGgoAAAA=",
            ),
            (
                "data:image/png;base64,R0lGODlh",
                None,
                "data:image/gif;base64,R0lGODlh",
            ),
            ("https://a.example/b.svg", None, "https://a.example/b.svg"),
        ] {
            assert_eq!(url(image, media_type).as_deref(), Some(expected));
        }
        for (image, media_type) in [
            ("PHN2Zz4=", Some("image/svg+xml")),
            ("data:image/svg+xml;base64,PHN2Zz4=", None),
            ("Qk0AAA", Some("image/bmp")),
            ("", Some("image/png")),
            ("data:image/png,%89", None),
        ] {
            assert_eq!(url(image, media_type), None, "{image}");
        }
    }

    #[test]
    fn prov_1_an_image_that_no_model_accepts_is_named() {
        let part = serde_json::json!({"type": "image", "image": "PHN2Zz4=",
            "mediaType": "image/svg+xml"});
        let found = part.as_object().and_then(part_of);
        assert!(matches!(found, Some(MessagePart::Text(text)) if text.contains("image/svg+xml")));
    }
}
