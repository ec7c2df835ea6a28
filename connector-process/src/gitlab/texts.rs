//! Describes GitLab events for agents. Pure.

use serde_json::Value;

use super::phrases::{Phrases, total_commits};
use super::{origin, sentences};
use crate::payload::text;
use crate::sentence::texts::{commits, described};
use crate::sentence::values::{ref_name, scalar};

/// JSON Pointers of links, the most exact first.
const LINKS: [&str; 3] = [
    "/object_attributes/url",
    "/object_attributes/awarded_on_url",
    "/deployable_url",
];

/// The input for an event with this payload: a sentence with the people and things concerned, the
/// link, and the text.
pub(super) fn of(event: &str, body: &Value) -> String {
    let phrases = Phrases::of(event, body);
    let listed = sentences::of_event(event);
    let sentence = listed.and_then(|entry| entry.of(sentences::variant(event, body)));
    let link = link(event, body);
    let mut words = described(
        sentence.unwrap_or_default(),
        &phrases,
        link.as_deref(),
        listed,
    );
    if event == "push" {
        words.push_str(&commits(body, total_commits(body)));
    }
    words
}

/// The page about an event.
fn link(event: &str, body: &Value) -> Option<String> {
    if let Some(link) = LINKS.iter().find_map(|pointer| scalar(body, pointer)) {
        return Some(link);
    }
    let project = scalar(body, "/project/web_url");
    let page = match event {
        "release" => return scalar(body, "/url").or(project),
        "job" => scalar(body, "/build_id").map(|id| format!("jobs/{id}")),
        "milestone" => {
            scalar(body, "/object_attributes/iid").map(|number| format!("milestones/{number}"))
        }
        "push" if !origin::is_created(body) && !origin::is_deleted(body) => {
            let [before, after] = ["/before", "/after"].map(|pointer| text(body, pointer));
            before
                .zip(after)
                .map(|(before, after)| format!("compare/{before}...{after}"))
        }
        "push" if !origin::is_deleted(body) => {
            text(body, "/ref").map(|name| format!("tree/{}", ref_name(name)))
        }
        "tag_push" if !origin::is_deleted(body) => {
            text(body, "/ref").map(|name| format!("tags/{}", ref_name(name)))
        }
        _ => None,
    };
    match (project, page) {
        (Some(project), Some(page)) => Some(format!("{project}/-/{page}")),
        (project, _) => project,
    }
}

#[cfg(test)]
#[path = "texts_tests.rs"]
mod tests;
