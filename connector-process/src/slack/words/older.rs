//! The text of a message as goondan 0.0.3 handed it in (`COMPAT-1`). Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::list;
use crate::payload::text;

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
    let files = list(message, "files").iter().filter_map(|file| {
        let kind = if is_image(file) { "image" } else { "file" };
        Reference::of(file, kind, kind)
    });
    let attachments = list(message, "attachments").iter().filter_map(|it| {
        let shows_image = ["/image_url", "/thumb_url"]
            .into_iter()
            .any(|name| filled(it, name).is_some());
        match shows_image {
            true => Reference::of(it, "image", "image"),
            false => Reference::of(it, "file", "attachment"),
        }
    });
    let images = list(message, "blocks").iter().filter_map(|block| {
        let is_image = text(block, "/type") == Some("image");
        let block = Some(block).filter(|_| is_image)?;
        match filled(block, "/image_url") {
            Some(url) => Some(Reference {
                url,
                ..Reference::of(block, "image", "image")?
            }),
            None => Reference::of(block.get("slack_file")?, "image", "image"),
        }
    });
    let mut seen = BTreeSet::new();
    let mut lines: Vec<String> = filled(message, "/text")
        .map(str::to_owned)
        .into_iter()
        .collect();
    for reference in files.chain(attachments).chain(images) {
        let Reference { kind, name, url } = reference;
        if seen.insert((kind, url)) {
            lines.push(format!("[{kind}:{name}] {url}"));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
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
    use serde_json::json;

    use super::*;

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
