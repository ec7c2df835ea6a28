//! Fields of `multipart/form-data`.

use std::convert::Infallible;

use axum::body::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream;
use serde_json::{Map, Value, json};

use crate::listener::MalformedRequest;

/// Texts by field name; of duplicate fields, the last one counts. A file is its name, content type
/// and size.
///
/// # Errors
///
/// [`MalformedRequest::NotMultipart`] if the body is invalid.
pub(super) fn fields(content_type: &str, body: &[u8]) -> Result<Value, MalformedRequest> {
    let reading = read(content_type, Bytes::copy_from_slice(body));
    // The whole body is in memory, so the future never waits.
    let read = reading.now_or_never();
    let fields = read.unwrap_or_else(|| Err("the body is incomplete".to_owned()));
    fields.map_err(|reason| MalformedRequest::NotMultipart { reason })
}

async fn read(content_type: &str, body: Bytes) -> Result<Value, String> {
    let describe = |error: multer::Error| error.to_string();
    let boundary = multer::parse_boundary(content_type).map_err(describe)?;
    let body = stream::iter([Ok::<Bytes, Infallible>(body)]);
    let mut parts = multer::Multipart::new(body, boundary);
    let mut fields = Map::new();
    while let Some(part) = parts.next_field().await.map_err(describe)? {
        let name = part.name().unwrap_or_default().to_owned();
        let file = part.file_name().map(str::to_owned);
        let value = match file {
            Some(file) => {
                let content_type = part.content_type().map(ToString::to_string);
                let bytes = part.bytes().await.map_err(describe)?.len();
                json!({"fileName": file, "contentType": content_type, "bytes": bytes})
            }
            None => Value::String(part.text().await.map_err(describe)?),
        };
        fields.insert(name, value);
    }
    Ok(Value::Object(fields))
}
