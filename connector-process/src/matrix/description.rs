//! Describes a message in words (`CONN-1`). Pure.
//!
//! The text of a person stays as it is. Everything else of a message becomes a line in brackets.

use serde_json::{Value, json};

use crate::payload::{one_line, shortened, text};

/// Types of events that begin a poll, the later one first.
pub(super) const POLLS: [&str; 2] = ["m.poll.start", "org.matrix.msc3381.poll.start"];

/// Type of the events of stickers.
pub(super) const STICKER: &str = "m.sticker";

/// Words for the content of a message.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MessageText {
    /// The text that a person wrote.
    pub(super) written: Option<String>,
    /// Lines about everything else.
    pub(super) lines: Vec<String>,
    /// Files of the message, for its metadata.
    pub(super) files: Vec<Value>,
}

impl MessageText {
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_none() && self.lines.is_empty()
    }

    /// The content in one line, for a quotation.
    pub(super) fn quoted(&self) -> Option<String> {
        let written = self.written.as_deref().map(shortened);
        let line = || {
            let line = self.lines.first()?;
            let bare = line.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            Some(bare.unwrap_or(line).to_owned())
        };
        written.or_else(line)
    }
}

/// Describes the content of an event of this type; empty if it has no known content.
pub(super) fn describe(kind: &str, content: &Value) -> MessageText {
    if POLLS.contains(&kind) {
        return poll(content);
    }
    let message_kind = match kind {
        STICKER => STICKER,
        _ => text(content, "/msgtype").unwrap_or_default(),
    };
    let body = text(content, "/body").unwrap_or_default();
    let line = |line: String| MessageText {
        lines: vec![line],
        ..MessageText::default()
    };
    match message_kind {
        "m.image" | "m.file" | "m.audio" | "m.video" => file(message_kind, content),
        STICKER => line(format!("[Sticker: {}]", one_line(body))),
        "m.location" => {
            let place = text(content, "/geo_uri").unwrap_or_default();
            let place = one_line(place.strip_prefix("geo:").unwrap_or(place));
            match one_line(body).as_str() {
                "" => line(format!("[Location: {place}]")),
                about => line(format!("[Location: {place}, {about}]")),
            }
        }
        "m.emote" if !body.trim().is_empty() => line(format!("[Emote: {}]", one_line(body))),
        // Other types have a body for clients that do not know them.
        _ => {
            let body = without_fallback(content, body);
            MessageText {
                written: (!body.trim().is_empty()).then(|| body.to_owned()),
                ..MessageText::default()
            }
        }
    }
}

/// The text of an answer without the quotation that older clients put before it.
pub(super) fn without_fallback<'b>(content: &Value, body: &'b str) -> &'b str {
    let is_answer = content
        .pointer("/m.relates_to/m.in_reply_to")
        .is_some_and(Value::is_object);
    if !is_answer || !body.starts_with("> ") {
        return body;
    }
    let mut rest = body;
    while rest.starts_with('>') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.strip_prefix('\n').unwrap_or(rest)
}

fn file(kind: &str, content: &Value) -> MessageText {
    let body = text(content, "/body").unwrap_or_default();
    // With a separate name, the body is a text of the sender.
    let name = text(content, "/filename").unwrap_or(body);
    let caption = (name != body && !body.trim().is_empty()).then(|| body.to_owned());
    let is_voice = content.get("org.matrix.msc3245.voice").is_some();
    let what = match kind {
        "m.image" => "Image",
        "m.audio" if is_voice => "Voice message",
        "m.audio" => "Audio",
        "m.video" => "Video",
        _ => "File",
    };
    let mime_type = text(content, "/info/mimetype").map(one_line);
    let bytes = content.pointer("/info/size").and_then(Value::as_u64);
    let name = one_line(name);
    let mut parts = vec![name.clone()];
    parts.retain(|name| !name.is_empty());
    parts.extend(mime_type.clone());
    parts.extend(bytes.map(|bytes| format!("{bytes} bytes")));
    let Some(uri) = text(content, "/url").map(one_line) else {
        return MessageText {
            written: caption,
            lines: vec![format!("[{what}: {}, not readable]", parts.join(", "))],
            files: Vec::new(),
        };
    };
    parts.push(format!("file ID {uri}"));
    let mut described = json!({"kind": kind.trim_start_matches("m."), "fileId": uri});
    if let Some(fields) = described.as_object_mut() {
        for (field, value) in [
            ("name", (!name.is_empty()).then(|| json!(name))),
            ("mimeType", mime_type.map(Value::from)),
            ("bytes", bytes.map(Value::from)),
        ] {
            fields.extend(value.map(|value| (field.to_owned(), value)));
        }
    }
    MessageText {
        written: caption,
        lines: vec![format!("[{what}: {}]", parts.join(", "))],
        files: vec![described],
    }
}

/// A poll, with names of the specification or of the proposal that clients used before.
fn poll(content: &Value) -> MessageText {
    let poll = POLLS.iter().find_map(|name| content.get(*name));
    let poll = poll.or_else(|| content.get("m.poll"));
    let text_of_part = |part: &Value| {
        let plain = text(part, "/org.matrix.msc1767.text").or_else(|| text(part, "/m.text/0/body"));
        plain.map(one_line)
    };
    let question = poll.and_then(|poll| text_of_part(poll.get("question")?));
    let Some(question) = question else {
        return MessageText::default();
    };
    let answers = poll
        .and_then(|poll| poll.get("answers"))
        .and_then(Value::as_array);
    let answers = answers.into_iter().flatten().filter_map(text_of_part);
    let answers: Vec<String> = answers.collect();
    MessageText {
        lines: vec![format!(
            "[Poll: {question} Answers: {}]",
            answers.join("; ")
        )],
        ..MessageText::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_text(kind: &str, content: &Value) -> String {
        let spoken = describe(kind, content);
        let lines = spoken.written.into_iter().chain(spoken.lines);
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Contents that Synapse 1.163.2 delivered.
    #[test]
    fn conn_1_contents_of_matrix_are_in_words() {
        for (kind, content, expected) in [
            (
                "m.room.message",
                json!({"body": "> <@ada:x> Goon Bot: where\n> is it\n\nand when?", "msgtype": "m.text",
                    "m.relates_to": {"m.in_reply_to": {"event_id": "$b"}}}),
                "and when?",
            ),
            (
                "m.room.message",
                json!({"body": "> a quotation\n\nby hand", "msgtype": "m.text"}),
                "> a quotation\n\nby hand",
            ),
            (
                "m.room.message",
                json!({"body": "see this", "filename": "a.txt", "msgtype": "m.file",
                    "info": {"mimetype": "text/plain", "size": 5},
                    "url": "mxc://example.test/icvvFDtbyaCJSARjDtmEsjLc"}),
                "see this\n[File: a.txt, text/plain, 5 bytes, file ID \
                 mxc://example.test/icvvFDtbyaCJSARjDtmEsjLc]",
            ),
            (
                "m.room.message",
                json!({"body": "photo.jpg", "msgtype": "m.image", "url": "mxc://x/1"}),
                "[Image: photo.jpg, file ID mxc://x/1]",
            ),
            (
                "m.room.message",
                json!({"body": "Voice message", "msgtype": "m.audio", "file": {"url": "mxc://x/1"},
                    "org.matrix.msc3245.voice": {}}),
                "[Voice message: Voice message, not readable]",
            ),
            (
                "m.room.message",
                json!({"body": "Here", "geo_uri": "geo:51.5,-0.1", "msgtype": "m.location"}),
                "[Location: 51.5,-0.1, Here]",
            ),
            (
                "m.room.message",
                json!({"body": "waves", "msgtype": "m.emote"}),
                "[Emote: waves]",
            ),
            (
                "m.room.message",
                json!({"body": "Please verify me", "msgtype": "m.key.verification.request"}),
                "Please verify me",
            ),
            (
                "m.sticker",
                json!({"body": "Smile", "info": {}, "url": "mxc://x/1"}),
                "[Sticker: Smile]",
            ),
            (
                "org.matrix.msc3381.poll.start",
                json!({"org.matrix.msc1767.text": "Tea?\n1. Yes\n2. No",
                    "org.matrix.msc3381.poll.start": {"kind": "org.matrix.msc3381.poll.disclosed",
                        "max_selections": 1, "question": {"org.matrix.msc1767.text": "Tea?"},
                        "answers": [{"id": "a", "org.matrix.msc1767.text": "Yes"},
                            {"id": "b", "org.matrix.msc1767.text": "No"}]}}),
                "[Poll: Tea? Answers: Yes; No]",
            ),
            (
                "m.poll.start",
                json!({"m.poll": {"question": {"m.text": [{"body": "Tea?"}]},
                    "answers": [{"m.id": "a", "m.text": [{"body": "Yes"}]}]}}),
                "[Poll: Tea? Answers: Yes]",
            ),
            ("m.room.message", json!({}), ""),
        ] {
            assert_eq!(message_text(kind, &content), expected);
        }
        let file = json!({"body": "see", "filename": "a.txt", "msgtype": "m.file",
            "info": {"mimetype": "text/plain", "size": 5}, "url": "mxc://x/1"});
        let expected = json!({"kind": "file", "fileId": "mxc://x/1", "name": "a.txt",
            "mimeType": "text/plain", "bytes": 5});
        assert_eq!(describe("m.room.message", &file).files, [expected]);
        let quoted = describe("m.sticker", &json!({"body": "Smile"})).quoted();
        assert_eq!(quoted.as_deref(), Some("Sticker: Smile"));
    }
}
