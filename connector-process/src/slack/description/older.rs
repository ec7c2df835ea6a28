//! The text and the files of a message in the form of goondan 0.0.3 (`COMPAT-1`). Pure.

use std::collections::BTreeSet;

use goondan_protocol::JsonObject;
use serde_json::{Value, json};

use super::list;
use crate::payload::{older_properties, text};

/// Kind of a file that is an image.
const IMAGE: &str = "image";
/// Kind of another file.
const FILE: &str = "file";

/// File types of images.
const IMAGE_TYPES: [&str; 12] = [
    "png", "jpg", "jpeg", "gif", "webp", "bmp", "svg", "tif", "tiff", "heic", "heif", "avif",
];

/// Fields that can hold the address of a file or an attachment, the preferred one first.
const ADDRESSES: [&str; 8] = [
    "/url_private_download",
    "/url_private",
    "/permalink_public",
    "/permalink",
    "/image_url",
    "/thumb_url",
    "/from_url",
    "/original_url",
];

/// The text as Slack has it, with a line for each file. `None` if the message has neither.
pub(in super::super) fn older_text(message: &Value) -> Option<String> {
    let said = filled(message, "/text").map(str::to_owned);
    let files = references(message).into_iter();
    let files = files.map(|Reference { kind, name, url }| format!("[{kind}:{name}] {url}"));
    let lines: Vec<String> = said.into_iter().chain(files).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Properties of the files, and the subtype of the message.
pub(in super::super) fn older_files(message: &Value) -> JsonObject {
    let references = references(message);
    let first = |kind: &str| references.iter().find(|it| it.kind == kind);
    let count = (!references.is_empty()).then(|| json!(references.len()));
    let image = first(IMAGE).map(|image| json!(image.url));
    let file = first(FILE).map(|file| (json!(file.url), json!(file.name)));
    older_properties([
        ("subtype", message.get("subtype")),
        ("attachment_count", count.as_ref()),
        ("image_url", image.as_ref()),
        ("file_url", file.as_ref().map(|(url, _)| url)),
        ("file_name", file.as_ref().map(|(_, name)| name)),
    ])
}

/// The files of a message, each once.
fn references(message: &Value) -> Vec<Reference<'_>> {
    let files = list(message, "files").iter().filter_map(|file| {
        let kind = if is_image(file) { IMAGE } else { FILE };
        Reference::of(file, kind, kind)
    });
    let attachments = list(message, "attachments").iter().filter_map(|it| {
        let shows_image = ["/image_url", "/thumb_url"]
            .into_iter()
            .any(|name| filled(it, name).is_some());
        match shows_image {
            true => Reference::of(it, IMAGE, IMAGE),
            false => Reference::of(it, FILE, "attachment"),
        }
    });
    let images = list(message, "blocks").iter().filter_map(|block| {
        let is_image = text(block, "/type") == Some("image");
        let block = Some(block).filter(|_| is_image)?;
        match filled(block, "/image_url") {
            Some(url) => Some(Reference {
                url,
                ..Reference::of(block, IMAGE, IMAGE)?
            }),
            None => Reference::of(block.get("slack_file")?, IMAGE, IMAGE),
        }
    });
    let mut seen = BTreeSet::new();
    let all = files.chain(attachments).chain(images);
    all.filter(|it| seen.insert((it.kind, it.url))).collect()
}

/// A file of a message.
struct Reference<'m> {
    kind: &'static str,
    name: &'m str,
    url: &'m str,
}

impl<'m> Reference<'m> {
    /// `None` if the file has no address. `unnamed` replaces its name if it has none.
    fn of(file: &'m Value, kind: &'static str, unnamed: &'static str) -> Option<Self> {
        let url = ADDRESSES.into_iter().find_map(|name| filled(file, name))?;
        let mut names = ["/title", "/name", "/alt_text", "/id"].into_iter();
        let name = names.find_map(|name| filled(file, name));
        Some(Self {
            kind,
            name: name.unwrap_or(unnamed),
            url,
        })
    }
}

fn filled<'m>(value: &'m Value, pointer: &str) -> Option<&'m str> {
    text(value, pointer).filter(|found| !found.is_empty())
}

fn is_image(file: &Value) -> bool {
    let lower = |name: &str| filled(file, name).map(str::to_ascii_lowercase);
    lower("/mimetype").is_some_and(|kind| kind.starts_with("image/"))
        || lower("/filetype").is_some_and(|kind| IMAGE_TYPES.contains(&kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_1_files_are_counted_and_named_in_properties() {
        let picture = json!({"name": "a.png", "filetype": "png", "url_private": "https://x.org/a"});
        let paper = json!({"title": "Paper", "url_private": "https://x.org/b"});
        let message = json!({"subtype": "file_share", "files": [picture, paper, paper]});
        let expected = json!({
            "subtype": "file_share", "attachment_count": "2", "image_url": "https://x.org/a",
            "file_url": "https://x.org/b", "file_name": "Paper",
        });
        assert_eq!(Value::Object(older_files(&message)), expected);
        assert_eq!(older_files(&json!({"text": "hi"})), JsonObject::new());
    }

    #[test]
    fn compat_1_files_have_lines_with_their_addresses() {
        let picture = json!({"id": "F1", "name": "a.png", "mimetype": "image/png",
            "url_private": "https://files.slack.com/a", "url_private_download": "https://files.slack.com/a/get"});
        let paper = json!({"id": "F2", "title": "Paper", "filetype": "pdf", "permalink": "https://a.slack.com/F2"});
        let preview = json!({"from_url": "https://x.org", "image_url": "https://x.org/i.png"});
        let block =
            json!({"type": "image", "image_url": "https://x.org/b.gif", "alt_text": "a cat"});
        for (message, expected) in [
            (json!({"text": "<@U9> a &amp; b"}), Some("<@U9> a &amp; b")),
            (
                json!({"text": "see", "files": [picture, paper, picture]}),
                Some(
                    "see\n[image:a.png] https://files.slack.com/a/get\n[file:Paper] https://a.slack.com/F2",
                ),
            ),
            (
                json!({"text": "", "attachments": [preview], "blocks": [block, {"type": "section"}]}),
                Some("[image:image] https://x.org/i.png\n[image:a cat] https://x.org/b.gif"),
            ),
            (json!({"text": "", "files": [{"id": "F3"}]}), None),
        ] {
            assert_eq!(older_text(&message).as_deref(), expected, "{message}");
        }
    }
}
