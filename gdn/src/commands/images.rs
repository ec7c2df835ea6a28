//! Images attached to a message: local files or URLs.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::images::{self, Image, MAX_IMAGES_BYTES};

use crate::exit::Exit;
use crate::failure::Failure;

/// Magic bytes of each image type.
const KINDS: [(&[u8], &str); 4] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
];

/// Reads the images named on the command line.
pub(super) fn read(named: &[String]) -> Result<Vec<Image>, Failure> {
    let read = named.iter().map(|name| image_of(name));
    let found = read.collect::<Result<Vec<Image>, Failure>>()?;
    images::check(&found).map_err(|problem| {
        let hint = "pass fewer or smaller images, or their URLs";
        Failure::new(Exit::Usage, problem.to_string(), hint)
    })?;
    Ok(found)
}

fn image_of(name: &str) -> Result<Image, Failure> {
    if name.starts_with("https://") || name.starts_with("http://") {
        let (image, media_type) = (name.to_owned(), None);
        return Ok(Image { image, media_type });
    }
    let unusable = |problem: &str| {
        let hint = "pass a PNG, JPEG, GIF or WebP file, or the URL of an image";
        Failure::new(Exit::Usage, format!("`{name}` {problem}"), hint)
    };
    // Reads one byte more than the limit, to detect a file that is too long.
    let most = u64::try_from(MAX_IMAGES_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    std::fs::File::open(Path::new(name))
        .and_then(|file| file.take(most.saturating_add(1)).read_to_end(&mut bytes))
        .map_err(|error| unusable("cannot be read").caused_by(Some(&error)))?;
    let kind = KINDS.iter().find(|(head, _)| bytes.starts_with(head));
    let is_webp = bytes.get(8..12) == Some(b"WEBP");
    match kind {
        Some((_, kind)) if *kind != "image/webp" || is_webp => Ok(Image {
            image: STANDARD.encode(&bytes),
            media_type: Some((*kind).to_owned()),
        }),
        Some(_) | None => Err(unusable("is not an image in a supported format")),
    }
}
