//! Converts a server's results for a model: text, images, and links to the rest.

use goondan_protocol::images::{Image, MAX_IMAGES, MAX_IMAGES_BYTES};
use goondan_protocol::service::McpResult;
use serde_json::{Value, json};

/// Name of our tool that reads a resource.
pub(super) const READ_RESOURCE: &str = "read_resource";

/// Fields of a result that the protocol defines. All others are contents if it has no other
/// content.
const DEFINED: &[&str] = &[
    "content",
    "structuredContent",
    "isError",
    "_meta",
    "resultType",
];

/// Converts the result of a tool.
pub(super) fn of_call(result: &Value) -> McpResult {
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    // A field of the protocol's first version, in which some servers put the whole result.
    if let Some(inner) = result.get("toolResult").filter(|inner| !inner.is_null()) {
        let mut found = match inner.get("content") {
            Some(_) => of_call(inner),
            None => of_call(&json!({"content": inner})),
        };
        found.is_error |= is_error;
        return found;
    }
    let mut builder = ResultBuilder::default();
    match result.get("content") {
        Some(Value::Array(parts)) => parts.iter().for_each(|part| builder.take(part)),
        Some(Value::Null) | None => {}
        Some(part) => builder.take(part),
    }
    if builder.is_nothing()
        && let Some(structured) = result.get("structuredContent")
    {
        builder.say(structured.to_string());
    }
    // Some servers return the fields of their own result.
    if builder.is_nothing()
        && let Some(fields) = result.as_object()
    {
        let mut fields = fields.clone();
        fields.retain(|name, _| !DEFINED.contains(&name.as_str()));
        if !fields.is_empty() {
            builder.say(Value::Object(fields).to_string());
        }
    }
    McpResult {
        is_error,
        ..builder.into_result()
    }
}

/// Converts the contents of a resource.
pub(super) fn of_resource(result: &Value) -> McpResult {
    let contents = result.get("contents").and_then(Value::as_array);
    let mut builder = ResultBuilder::default();
    for resource in contents.into_iter().flatten() {
        builder.take_resource(resource);
    }
    builder.into_result()
}

pub(super) fn of_prompt(result: &Value) -> McpResult {
    let mut builder = ResultBuilder::default();
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(about) = text(result, "description") {
        builder.say(about);
    }
    let messages = result.get("messages").and_then(Value::as_array);
    for message in messages.into_iter().flatten() {
        let role = text(message, "role").unwrap_or_default();
        builder.say(format!("{role}:"));
        match message.get("content") {
            Some(Value::Array(parts)) => parts.iter().for_each(|part| builder.take(part)),
            Some(part) => builder.take(part),
            None => {}
        }
    }
    builder.into_result()
}

/// Collects text parts and images.
#[derive(Debug, Default)]
struct ResultBuilder {
    parts: Vec<String>,
    images: Vec<Image>,
    image_bytes: usize,
}

impl ResultBuilder {
    fn is_nothing(&self) -> bool {
        self.parts.is_empty() && self.images.is_empty()
    }

    fn say(&mut self, text: String) {
        self.parts.push(text);
    }

    fn into_result(self) -> McpResult {
        McpResult {
            text: self.parts.join("\n\n"),
            images: self.images,
            is_error: false,
        }
    }

    /// Adds one part. A part that is neither text nor an image is named, so that the model knows it
    /// exists.
    fn take(&mut self, part: &Value) {
        let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
        if let Value::String(said) = part {
            return self.say(said.clone());
        }
        match text("/type").unwrap_or("part") {
            "text" => match part.get("text") {
                Some(Value::String(said)) => self.say(said.clone()),
                Some(Value::Null) | None => self.say(String::new()),
                Some(other) => self.say(other.to_string()),
            },
            // Data of the tool instead of a part.
            _ if part.get("type").is_none() => self.say(part.to_string()),
            "resource" => {
                if let Some(resource) = part.get("resource") {
                    self.take_resource(resource);
                }
            }
            "resource_link" => self.say(link(part)),
            // A default for servers that omit the type; the request to the model has the type that
            // the data prove.
            "image" => {
                let media_type = text("/mimeType").unwrap_or("image/png");
                self.take_data("image", Some(media_type), text("/data"));
            }
            kind => self.take_data(kind, text("/mimeType"), text("/data")),
        }
    }

    fn take_resource(&mut self, resource: &Value) {
        let text = |name: &str| resource.get(name).and_then(Value::as_str);
        match text("text") {
            Some(said) => self.say(said.to_owned()),
            None => {
                let uri = text("uri").unwrap_or_default();
                self.take_data(&format!("resource {uri}"), text("mimeType"), text("blob"));
            }
        }
    }

    /// Adds binary data. An image reaches the model if it fits the limits.
    fn take_data(&mut self, what: &str, media_type: Option<&str>, data: Option<&str>) {
        let (kind, data) = (media_type.unwrap_or_default(), data.unwrap_or_default());
        let bytes = data.len() / 4 * 3;
        let has_room = self.images.len() < MAX_IMAGES
            && self.image_bytes.saturating_add(data.len()) <= MAX_IMAGES_BYTES;
        let mut shown = format!("[{what} {kind}, {bytes} bytes");
        if kind.starts_with("image/") && !data.is_empty() {
            if has_room {
                self.image_bytes += data.len();
                self.images.push(Image {
                    image: data.to_owned(),
                    media_type: Some(kind.to_owned()),
                });
            } else {
                shown.push_str(", omitted: too many or too large images");
            }
        }
        shown.push(']');
        self.say(shown);
    }
}

/// Formats a link to content that the server did not include.
fn link(part: &Value) -> String {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    let uri = text("uri").unwrap_or_default();
    let facts = [
        text("title").or_else(|| text("name")),
        text("mimeType"),
        text("description"),
    ];
    let facts: Vec<&str> = facts.into_iter().flatten().collect();
    let facts = match facts.join("; ") {
        facts if facts.is_empty() => facts,
        facts => format!(" ({facts})"),
    };
    format!("[resource {uri}{facts}; `{READ_RESOURCE}` reads it]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mcp_content_types_reach_the_model_as_content_or_name() {
        let result = of_call(&json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAAAAAA"}},
            {"type": "resource", "resource": {"uri": "file:///d", "blob": "BBBB", "mimeType": "image/gif"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "mimeType": "text/plain"},
        ], "isError": true}));
        assert!(result.is_error);
        let expected = "one\n\n[image image/png, 3 bytes]\n\n[audio audio/wav, 3 bytes]\n\ninside\n\n\
                        [resource file:///b , 6 bytes]\n\n[resource file:///d image/gif, 3 bytes]\n\n\
                        [resource file:///c (c; text/plain); `read_resource` reads it]";
        assert_eq!(result.text, expected);
        let kinds: Vec<_> = result
            .images
            .iter()
            .map(|image| image.media_type.as_deref().unwrap())
            .collect();
        assert_eq!(kinds, ["image/png", "image/gif"]);
        let structured = of_call(&json!({"content": [], "structuredContent": {"n": 1}}));
        assert_eq!(structured.text, r#"{"n":1}"#);
    }

    #[test]
    fn prov_1_results_in_other_forms_reach_the_model() {
        for (result, expected) in [
            (json!({"content": "one"}), "one"),
            (json!({"content": {"type": "text", "text": "one"}}), "one"),
            (json!({"content": ["one", "two"]}), "one\n\ntwo"),
            (json!({"content": {"n": 1}}), r#"{"n":1}"#),
            (
                json!({"content": [{"type": "text", "text": {"n": 1}}]}),
                r#"{"n":1}"#,
            ),
            (
                json!({"success": true, "configs": [], "_meta": {}, "isError": false}),
                r#"{"success":true,"configs":[]}"#,
            ),
            (json!({"content": [], "structuredContent": [1]}), "[1]"),
            (
                json!({"toolResult": {"content": [{"type": "text", "text": "one"}]}}),
                "one",
            ),
            (json!({"toolResult": {"n": 1}}), r#"{"n":1}"#),
            (json!({"toolResult": null, "content": "one"}), "one"),
            (json!({"content": []}), ""),
            (json!({"content": null}), ""),
            (json!({}), ""),
        ] {
            assert_eq!(of_call(&result).text, expected, "{result}");
        }
        let failed = json!({"toolResult": {"content": "no"}, "isError": true});
        assert!(of_call(&failed).is_error);
        for part in [
            json!({"type": "blob", "data": "AAAA", "mimeType": "image/png"}),
            json!({"type": "image", "data": "AAAA"}),
        ] {
            assert_eq!(of_call(&json!({"content": [part]})).images.len(), 1);
        }
    }

    #[test]
    fn images_for_which_there_is_no_room_are_named_only() {
        let large =
            json!({"type": "image", "data": "A".repeat(MAX_IMAGES_BYTES), "mimeType": "image/png"});
        let small = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let result = of_call(&json!({"content": [large, small]}));
        assert_eq!(result.images.len(), 1);
        assert!(result.text.contains("omitted"), "{}", result.text);
        let many = vec![small; MAX_IMAGES + 1];
        assert_eq!(of_call(&json!({"content": many})).images.len(), MAX_IMAGES);
    }

    #[test]
    fn mcp_prompt_shows_the_role_of_each_message() {
        let result = of_prompt(&json!({"description": "Greets.", "messages": [
            {"role": "user", "content": {"type": "text", "text": "Say hello."}}]}));
        assert_eq!(result.text, "Greets.\n\nuser:\n\nSay hello.");
    }
}
