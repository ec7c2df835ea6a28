//! Describes GitHub events for agents. Pure.

use serde_json::Value;

use super::phrases::Phrases;
use super::sentences::{self, OTHER};
use crate::sentence::texts::{commits, commits_in, described};
use crate::sentence::values::scalar;

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
    let link = LINKS.iter().find_map(|pointer| scalar(body, pointer));
    let sentence = sentence.unwrap_or(OTHER);
    let mut words = described(sentence, &phrases, link.as_deref(), listed);
    if name == "push" {
        words.push_str(&commits(body, commits_in(body)));
    }
    words
}

/// The sentence alone, for tests.
#[cfg(test)]
pub(super) fn sentence(name: &str, body: &Value) -> String {
    let words = of(name, body);
    words.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "texts_tests.rs"]
mod tests;
