//! Images of an event: in its metadata until they become part of the turn's first message.
//!
//! An image is a part of a [`crate::message::MessageContent`]: a URL or Base64 data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;

/// Metadata key of an event that holds its images.
pub const IMAGES: &str = "images";

/// Largest number of images per event.
pub const MAX_IMAGES: usize = 16;

/// Largest total size of an event's images in serialized form, in bytes.
pub const MAX_IMAGES_BYTES: usize = 4 * 1024 * 1024;

const _: () =
    assert!(MAX_IMAGES_BYTES + crate::limits::MAX_INPUT_BYTES < crate::limits::MAX_MESSAGE_BYTES);

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Its URL (`https://…`, `http://…`), or the image in Base64.
    pub image: String,
    /// Its media type, such as `image/png`; required for Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// Reason why images are invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidImages {
    /// Not a list of images.
    #[error("expected a list of images with `image` and `mediaType`: {0}")]
    Form(#[from] serde_json::Error),
    /// Too many.
    #[error("{0} images; at most {MAX_IMAGES} are allowed per event")]
    TooMany(usize),
    /// Too long.
    #[error("the images have {0} bytes; at most {MAX_IMAGES_BYTES} are allowed per event")]
    TooLong(usize),
    /// An image is neither a URL nor Base64 with a media type.
    #[error("image {0} is neither an `http` URL nor Base64 with a `mediaType` such as `image/png`")]
    NoImage(usize),
}

impl Image {
    fn is_one(&self) -> bool {
        let is_address = ["https://", "http://"]
            .iter()
            .any(|scheme| self.image.starts_with(scheme));
        let media_type = self.media_type.as_deref();
        if is_address {
            return media_type.is_none_or(|kind| kind.starts_with("image/"));
        }
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        media_type.is_some_and(|kind| kind.starts_with("image/"))
            && !self.image.is_empty()
            && self.image.bytes().all(is_base64)
    }
}

/// Validates the images of an event.
///
/// # Errors
///
/// [`InvalidImages`] if there are too many, or one is invalid.
pub fn check(images: &[Image]) -> Result<(), InvalidImages> {
    if images.len() > MAX_IMAGES {
        return Err(InvalidImages::TooMany(images.len()));
    }
    let bytes = images.iter().map(|image| image.image.len()).sum();
    if bytes > MAX_IMAGES_BYTES {
        return Err(InvalidImages::TooLong(bytes));
    }
    match images.iter().position(|image| !image.is_one()) {
        Some(place) => Err(InvalidImages::NoImage(place + 1)),
        None => Ok(()),
    }
}

/// Parses and validates the images in an event's metadata.
///
/// # Errors
///
/// [`InvalidImages`] as for [`check`], or if the metadata cannot be parsed.
pub fn of_metadata(metadata: &JsonObject) -> Result<Vec<Image>, InvalidImages> {
    let images: Vec<Image> = match metadata.get(IMAGES) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(written) => serde_json::from_value(written.clone())?,
    };
    check(&images)?;
    Ok(images)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(images: &Value) -> Result<Vec<Image>, String> {
        let metadata = json!({ IMAGES: images });
        of_metadata(metadata.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_and_base64_are_images_and_nothing_else_is() {
        let good = json!([
            {"image": "https://a.example/x.png"},
            {"image": "iVBORw0KGgo=", "mediaType": "image/png"},
        ]);
        assert_eq!(of(&good).unwrap().len(), 2);
        assert_eq!(of_metadata(&JsonObject::new()).unwrap(), []);
        for bad in [
            json!({"image": "iVBO"}),
            json!({"image": "file:///etc/passwd", "mediaType": "image/png"}),
            json!({"image": "", "mediaType": "image/png"}),
            json!({"image": "iVBO", "mediaType": "text/plain"}),
        ] {
            let error = of(&json!([bad])).unwrap_err();
            assert!(error.starts_with("image 1 is neither"), "{error}");
        }
        assert!(of(&json!("x")).unwrap_err().contains("expected a list"));
        let one = json!({"image": "https://a.example"});
        let many = vec![one; MAX_IMAGES + 1];
        assert!(of(&json!(many)).unwrap_err().contains("17 images"));
        let long = "A".repeat(MAX_IMAGES_BYTES + 1);
        let long = json!([{"image": long, "mediaType": "image/png"}]);
        assert!(of(&long).unwrap_err().contains("4194305 bytes"));
    }
}
