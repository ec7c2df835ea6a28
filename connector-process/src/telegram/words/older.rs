//! The text of a message as goondan 0.0.3 handed it in (`COMPAT-1`). Pure.

use serde_json::Value;

use super::number;
use crate::payload::text;

/// The text or the caption, with a line for the photo and for the document. `None` if the message
/// has only other content.
pub(in super::super) fn older_text(message: &Value) -> Option<String> {
    let field = |name: &str| text(message, name).filter(|said| !said.is_empty());
    let said = field("/text").or_else(|| field("/caption"));
    let mut lines: Vec<String> = said.map(str::to_owned).into_iter().collect();
    lines.extend(photo(message).map(|id| format!("[telegram_photo] file_id={id}")));
    if let Some(id) = text(message, "/document/file_id") {
        let kind = text(message, "/document/mime_type").unwrap_or_default();
        let marker = match kind.to_ascii_lowercase().starts_with("image/") {
            true => "telegram_image_document",
            false => "telegram_document",
        };
        lines.push(format!("[{marker}] file_id={id}"));
    }
    let whole = lines.join("\n").trim().to_owned();
    (!whole.is_empty()).then_some(whole)
}

/// The file ID of the largest size of a photo.
fn photo(message: &Value) -> Option<&str> {
    let sizes = message.get("photo").and_then(Value::as_array)?;
    let weight = |size: &&Value| {
        let side = |name: &str| number(size, name).unwrap_or_default();
        let area = || side("/width").saturating_mul(side("/height"));
        number(size, "/file_size").unwrap_or_else(area)
    };
    let sizes = sizes.iter().filter(|size| text(size, "/file_id").is_some());
    text(sizes.max_by_key(weight)?, "/file_id")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compat_1_files_have_markers_with_their_ids() {
        let sizes = json!([
            {"file_id": "small", "width": 90, "height": 60, "file_size": 900},
            {"file_id": "large", "width": 900, "height": 600, "file_size": 90_000},
        ]);
        let image = json!({"file_id": "D1", "mime_type": "image/png", "file_name": "a.png"});
        for (message, expected) in [
            (json!({"text": "hi"}), Some("hi")),
            (
                json!({"photo": sizes}),
                Some("[telegram_photo] file_id=large"),
            ),
            (
                json!({"photo": sizes, "caption": "see"}),
                Some("see\n[telegram_photo] file_id=large"),
            ),
            (
                json!({"document": image, "caption": "see"}),
                Some("see\n[telegram_image_document] file_id=D1"),
            ),
            (
                json!({"document": {"file_id": "D2", "mime_type": "application/pdf"}}),
                Some("[telegram_document] file_id=D2"),
            ),
            (json!({"text": "  "}), None),
            (json!({"voice": {"file_id": "V1"}}), None),
            (json!({"photo": []}), None),
        ] {
            assert_eq!(older_text(&message).as_deref(), expected, "{message}");
        }
    }
}
