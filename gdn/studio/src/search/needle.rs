//! Finds a text in others, ignoring case, and cuts out its surroundings.

use serde::Serialize;
use serde_json::Value;

use crate::limits::EXCERPT_CHARS;

/// Fields that are not text for people.
const SKIPPED: [&str; 6] = ["type", "at", "state", "createdAt", "timestamp", "mediaType"];

/// Fields of an object with a `mediaType` that have its encoded content.
const ENCODED: [&str; 2] = ["image", "data"];

/// The searched text.
#[derive(Debug, Clone)]
pub(super) struct Needle(String);

/// A found place, with the text around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Excerpt {
    pub(super) before: String,
    pub(super) found: String,
    pub(super) after: String,
}

/// Converts each character to lower case separately, so that the result of a part of a text is a part
/// of the text's result. [`str::to_lowercase`] depends on the neighbors of a sigma.
fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

impl Needle {
    pub(super) fn new(text: &str) -> Self {
        Self(folded(text))
    }

    /// Start and end of the first occurrence, in bytes of the text.
    fn place_in(&self, text: &str) -> Option<(usize, usize)> {
        let length = self.0.len();
        if text.is_ascii() {
            let mut windows = text.as_bytes().windows(length.max(1));
            let at = windows.position(|part| part.eq_ignore_ascii_case(self.0.as_bytes()))?;
            return Some((at, at + length));
        }
        let from = folded(text).find(&self.0)?;
        let until = from + length;
        // Lower case can have another length, so the place is counted again in the text itself.
        let (mut passed, mut start, mut end) = (0, None, text.len());
        for (at, char) in text.char_indices() {
            if passed >= until {
                end = at;
                break;
            }
            let next = passed + char.to_lowercase().map(char::len_utf8).sum::<usize>();
            if start.is_none() && next > from {
                start = Some(at);
            }
            passed = next;
        }
        Some((start?, end))
    }

    /// The first occurrence in a text.
    pub(super) fn find(&self, text: &str) -> Option<Excerpt> {
        let (start, end) = self.place_in(text)?;
        let (before, rest) = text.split_at_checked(start)?;
        let (found, after) = rest.split_at_checked(end - start)?;
        let first = before.char_indices().rev().take(EXCERPT_CHARS).last();
        let first = first.map_or(before.len(), |(at, _)| at);
        Some(Excerpt {
            before: before.get(first..)?.to_owned(),
            found: found.to_owned(),
            after: after.chars().take(EXCERPT_CHARS).collect(),
        })
    }

    /// The first occurrence in the texts of a JSON value.
    pub(super) fn find_in(&self, value: &Value) -> Option<Excerpt> {
        match value {
            Value::String(text) => self.find(text),
            Value::Number(number) => self.find(&number.to_string()),
            Value::Array(items) => items.iter().find_map(|item| self.find_in(item)),
            Value::Object(fields) => {
                let is_media = fields.contains_key("mediaType");
                let mut fields = fields.iter().filter(|(name, _)| {
                    let name = name.as_str();
                    let is_encoded = is_media && ENCODED.contains(&name);
                    !is_encoded && !SKIPPED.contains(&name)
                });
                fields.find_map(|(_, field)| self.find_in(field))
            }
            Value::Null | Value::Bool(_) => None,
        }
    }

    /// The first occurrence in these fields of an object.
    pub(super) fn find_in_fields(&self, item: &Value, fields: &[&str]) -> Option<Excerpt> {
        let mut fields = fields.iter().filter_map(|name| item.get(*name));
        fields.find_map(|field| self.find_in(field))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(needle: &str, text: &str) -> Option<(String, String, String)> {
        let excerpt = Needle::new(needle).find(text)?;
        Some((excerpt.before, excerpt.found, excerpt.after))
    }

    fn split(parts: [&str; 3]) -> Option<(String, String, String)> {
        let [before, found, after] = parts.map(str::to_owned);
        Some((before, found, after))
    }

    #[test]
    fn obs_5_search_ignores_case_and_keeps_the_original_text() {
        assert_eq!(found("DUNE", "sold Dune!"), split(["sold ", "Dune", "!"]));
        assert_eq!(found("größe", "Die GRÖSSE"), None);
        assert_eq!(found("größe", "Die GRÖßE?"), split(["Die ", "GRÖßE", "?"]));
        assert_eq!(found("책", "팔린 책 47권"), split(["팔린 ", "책", " 47권"]));
        assert_eq!(found("nothing", "sold Dune"), None);
        assert_eq!(found("longer than the text", "text"), None);
    }

    #[test]
    fn obs_5_search_finds_text_whose_lower_case_is_longer() {
        // The lower case of this letter has two characters and one more byte.
        assert_eq!(found("b", "İİaB"), split(["İİa", "B", ""]));
        assert_eq!(found("i", "İx"), split(["", "İ", "x"]));
        assert_eq!(found("ΣΑΣ", "ο ΣΑΣ ς"), split(["ο ", "ΣΑΣ", " ς"]));
    }

    #[test]
    fn obs_5_excerpt_of_a_long_text_is_short() {
        let text = format!("{}Dune{}", "é".repeat(5_000), "x".repeat(5_000));
        let (before, dune, after) = found("dune", &text).unwrap();
        assert_eq!(before, "é".repeat(EXCERPT_CHARS));
        assert_eq!((dune.as_str(), after.len()), ("Dune", EXCERPT_CHARS));
    }

    #[test]
    fn obs_5_search_skips_encoded_images_and_technical_fields() {
        let needle = Needle::new("text");
        let image = json!([{"type": "text", "image": "dGV4textA", "mediaType": "image/text"}]);
        assert_eq!(needle.find_in(&image), None);
        let result = json!({"output": {"type": "json", "value": {"data": ["a", "some text"]}}});
        assert!(needle.find_in(&result).is_some());
        assert!(needle.find_in_fields(&result, &["input"]).is_none());
    }
}
