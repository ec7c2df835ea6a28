//! The text and the files of a message in the form of goondan 0.0.3 (`COMPAT-1`). Pure.

use goondan_protocol::JsonObject;
use serde_json::{Value, json};

use super::number;
use crate::payload::{older_properties, text};

/// The text or the caption, with a line for the photo and for the document. `None` if the message
/// has only other content.
pub(in super::super) fn older_text(message: &Value) -> Option<String> {
    let field = |name: &str| text(message, name).filter(|said| !said.is_empty());
    let said = field("/text").or_else(|| field("/caption"));
    let mut lines: Vec<String> = said.map(str::to_owned).into_iter().collect();
    let photo = photo(message).and_then(|photo| text(photo, "/file_id"));
    lines.extend(photo.map(|id| format!("[telegram_photo] file_id={id}")));
    if let Some(id) = text(message, "/document/file_id") {
        let marker = match image_document(message) {
            Some(_) => "telegram_image_document",
            None => "telegram_document",
        };
        lines.push(format!("[{marker}] file_id={id}"));
    }
    let whole = lines.join("\n").trim().to_owned();
    (!whole.is_empty()).then_some(whole)
}

/// Properties of the photo and of a document that is an image.
pub(in super::super) fn older_files(message: &Value) -> JsonObject {
    let (photo, document) = (photo(message), image_document(message));
    let of_photo = |name: &str| photo?.get(name);
    let of_document = |name: &str| document?.get(name);
    let yes = json!(true);
    older_properties([
        ("has_photo", photo.map(|_| &yes)),
        ("photo_file_id", of_photo("file_id")),
        ("photo_file_unique_id", of_photo("file_unique_id")),
        ("photo_width", of_photo("width")),
        ("photo_height", of_photo("height")),
        ("photo_file_size", of_photo("file_size")),
        ("has_image_document", document.map(|_| &yes)),
        ("image_document_file_id", of_document("file_id")),
        (
            "image_document_file_unique_id",
            of_document("file_unique_id"),
        ),
        ("image_document_file_name", of_document("file_name")),
        ("image_document_mime_type", of_document("mime_type")),
        ("image_document_file_size", of_document("file_size")),
    ])
}

/// The document, if it is an image with a file ID.
fn image_document(message: &Value) -> Option<&Value> {
    let document = message.get("document")?;
    let kind = text(document, "/mime_type")?.to_ascii_lowercase();
    let is_image = kind.starts_with("image/") && text(document, "/file_id").is_some();
    is_image.then_some(document)
}

/// The largest size of a photo.
fn photo(message: &Value) -> Option<&Value> {
    let sizes = message.get("photo").and_then(Value::as_array)?;
    let weight = |size: &&Value| {
        let side = |name: &str| number(size, name).unwrap_or_default();
        let area = || side("/width").saturating_mul(side("/height"));
        number(size, "/file_size").unwrap_or_else(area)
    };
    let sizes = sizes.iter().filter(|size| text(size, "/file_id").is_some());
    sizes.max_by_key(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_1_photos_and_images_are_properties() {
        let message = json!({
            "photo": [
                {"file_id": "small", "file_unique_id": "s", "width": 90, "height": 60, "file_size": 900},
                {"file_id": "large", "file_unique_id": "l", "width": 900, "height": 600},
            ],
            "document": {"file_id": "D1", "file_name": "a.png", "mime_type": "image/png", "file_size": 5},
        });
        let expected = json!({
            "has_photo": "true", "photo_file_id": "large", "photo_file_unique_id": "l",
            "photo_width": "900", "photo_height": "600", "has_image_document": "true",
            "image_document_file_id": "D1", "image_document_file_name": "a.png",
            "image_document_mime_type": "image/png", "image_document_file_size": "5",
        });
        assert_eq!(Value::Object(older_files(&message)), expected);
        let paper = json!({"document": {"file_id": "D2", "mime_type": "application/pdf"}});
        assert_eq!(older_files(&paper), JsonObject::new());
    }

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
