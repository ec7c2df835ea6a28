//! Describes GitHub events for agents. Pure.

use serde_json::Value;

use super::phrases::Phrases;
use super::sentences::{self, OTHER};
use super::template::fill;
use super::values::{one_line, scalar};
use crate::limits::GITHUB_TEXT_CHARS_MAX;
use crate::payload::{items, omitted, text};

/// Maximum number of commits of a push that are listed; the rest are only counted.
const COMMITS_LISTED_MAX: usize = 20;

/// Displayed characters of a commit's id.
const COMMIT_ID_CHARS: usize = 7;

/// JSON Pointers of links, the most exact first.
const LINKS: &[&str] = &[
    "/comment/html_url",
    "/review/html_url",
    "/thread/comments/0/html_url",
    "/answer/html_url",
    "/release/html_url",
    "/alert/html_url",
    "/workflow_job/html_url",
    "/check_run/html_url",
    "/target_url",
    "/deployment_status/target_url",
    "/workflow_run/html_url",
    "/discussion/html_url",
    "/issue/html_url",
    "/blocked_issue/html_url",
    "/sub_issue/html_url",
    "/pull_request/html_url",
    "/compare",
    "/pages/0/html_url",
    "/milestone/html_url",
    "/project/html_url",
    "/package/html_url",
    "/registry_package/html_url",
    "/repository_advisory/html_url",
    "/security_advisory/references/0/url",
    "/forkee/html_url",
    "/repository_ruleset/_links/html/href",
    "/commit/html_url",
    "/team/html_url",
    "/installation/html_url",
    "/repository/html_url",
];

/// The input for the event `name` with this payload: a sentence with the people and things
/// concerned, the link, and the text.
pub(crate) fn of(name: &str, body: &Value) -> String {
    let phrases = Phrases::of(name, body);
    let listed = sentences::of_event(name);
    let sentence = listed.and_then(|entry| entry.of(sentences::variant(name, body)));
    let mut words = fill(sentence.unwrap_or(OTHER), &phrases);
    if let Some(link) = LINKS.iter().find_map(|pointer| scalar(body, pointer)) {
        words.push('\n');
        words.push_str(&link);
    }
    let texts = listed.map_or(&[][..], |entry| entry.texts);
    for said in texts.iter().filter_map(|pointer| said(body, pointer)) {
        words.push_str("\n\n");
        words.push_str(&said);
    }
    if name == "push" {
        words.push_str(&commits(body));
    }
    words
}

/// The sentence alone, for tests.
#[cfg(test)]
pub(super) fn sentence(name: &str, body: &Value) -> String {
    let words = of(name, body);
    words.lines().next().unwrap_or_default().to_owned()
}

/// A text of the payload; an object, such as the payload of a dispatch, as JSON.
fn said(body: &Value, pointer: &str) -> Option<String> {
    let said = match body.pointer(pointer)? {
        Value::String(said) if said.trim().is_empty() => return None,
        Value::String(said) => shortened(said),
        Value::Object(fields) if fields.is_empty() => return None,
        object @ Value::Object(_) => shortened(&object.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    Some(said)
}

/// The commits of a push, one per line.
fn commits(body: &Value) -> String {
    let count = items(body, "/commits").count();
    let mut words = String::new();
    for (index, commit) in items(body, "/commits").take(COMMITS_LISTED_MAX).enumerate() {
        let id: String = text(commit, "/id")
            .unwrap_or_default()
            .chars()
            .take(COMMIT_ID_CHARS)
            .collect();
        let message = text(commit, "/message").unwrap_or_default();
        let first_line = one_line(message.lines().next().unwrap_or_default());
        words.push_str(if index == 0 { "\n\n" } else { "\n" });
        words.push_str(&format!("{id} {first_line}"));
    }
    let further = count.saturating_sub(COMMITS_LISTED_MAX) + omitted(body, "/commits");
    if further > 0 {
        words.push_str(&format!("\nand {further} more"));
    }
    words
}

fn shortened(said: &str) -> String {
    match said.char_indices().nth(GITHUB_TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{} […]", said.get(..end).unwrap_or(said)),
        None => said.to_owned(),
    }
}

#[cfg(test)]
#[path = "texts_tests.rs"]
mod tests;
