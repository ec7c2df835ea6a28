//! Texts of people and programs that follow a sentence.

use serde_json::Value;

use super::values::one_line;
use super::{EventSentences, PhraseSource, fill};
use crate::limits::EVENT_TEXT_CHARS_MAX;
use crate::payload::{items, omitted, text};

/// Maximum number of commits of a push that are listed; the rest are only counted.
const COMMITS_LISTED_MAX: usize = 20;

/// Displayed characters of a commit's ID.
const COMMIT_ID_CHARS: usize = 7;

/// A filled sentence, the link, and the texts of the event.
pub(crate) fn described(
    sentence: &str,
    phrases: &impl PhraseSource,
    link: Option<&str>,
    entry: Option<&EventSentences>,
) -> String {
    let mut words = fill(sentence, phrases);
    if let Some(link) = link {
        words.push('\n');
        words.push_str(link);
    }
    let texts = entry.map_or(&[][..], |entry| entry.texts);
    for said in texts
        .iter()
        .filter_map(|at| payload_text(phrases.body(), at))
    {
        words.push_str("\n\n");
        words.push_str(&said);
    }
    words
}

/// A text of the payload; an object, such as the payload of a dispatch, as JSON.
fn payload_text(body: &Value, pointer: &str) -> Option<String> {
    let said = match body.pointer(pointer)? {
        Value::String(said) if said.trim().is_empty() => return None,
        Value::String(said) => shortened(said, EVENT_TEXT_CHARS_MAX),
        Value::Object(fields) if fields.is_empty() => return None,
        object @ Value::Object(_) => shortened(&object.to_string(), EVENT_TEXT_CHARS_MAX),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    Some(said)
}

/// The number of commits in the payload of a push.
pub(crate) fn commits_in(body: &Value) -> usize {
    items(body, "/commits").count() + omitted(body, "/commits")
}

/// The commits of a push, one per line. The push has `total` commits.
pub(crate) fn commits(body: &Value, total: usize) -> String {
    let mut words = String::new();
    let mut shown = 0;
    for commit in items(body, "/commits").take(COMMITS_LISTED_MAX) {
        let id: String = text(commit, "/id")
            .unwrap_or_default()
            .chars()
            .take(COMMIT_ID_CHARS)
            .collect();
        let message = text(commit, "/message").unwrap_or_default();
        let first_line = one_line(message.lines().next().unwrap_or_default());
        words.push_str(if shown == 0 { "\n\n" } else { "\n" });
        words.push_str(&format!("{id} {first_line}"));
        shown += 1;
    }
    let further = total.saturating_sub(shown);
    if further > 0 && shown > 0 {
        words.push_str(&format!("\nand {further} more"));
    }
    words
}

/// A text of at most `chars_max` characters; a longer one is cut and marked.
pub(crate) fn shortened(said: &str, chars_max: usize) -> String {
    match said.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{} […]", said.get(..end).unwrap_or(said)),
        None => said.to_owned(),
    }
}
