//! Describes GitHub events for agents. Pure.

use serde_json::Value;

use crate::limits::GITHUB_TEXT_CHARS_MAX;
use crate::payload::text;

/// Maximum number of commits of a push that are listed; the rest are only counted.
const COMMITS_LISTED_MAX: usize = 20;

/// Displayed characters of a commit's id.
const COMMIT_ID_CHARS: usize = 7;

/// The input for the event `name` with this payload: the user, the action, the link and the text.
pub(crate) fn of(name: &str, body: &Value) -> String {
    let who = text(body, "/sender/login").unwrap_or("somebody");
    let action = text(body, "/action").map_or_else(|| "changed".to_owned(), past);
    let place = text(body, "/repository/full_name").unwrap_or("GitHub");
    let about = |kind: &str, object: &str| {
        let number = body.pointer(&format!("{object}/number"));
        let number = number.and_then(Value::as_u64);
        let number = number.map_or_else(String::new, |number| format!("#{number}"));
        let title = text(body, &format!("{object}/title")).unwrap_or_default();
        format!("{kind} {place}{number}: {title}")
    };
    let (headline, link, said) = match name {
        "issues" => (
            format!("{who} {action} {}", about("issue", "/issue")),
            "/issue/html_url",
            "/issue/body",
        ),
        "issue_comment" => {
            let is_pull = body.pointer("/issue/pull_request").is_some();
            let kind = if is_pull { "pull request" } else { "issue" };
            (
                format!("{who} {action} a comment on {}", about(kind, "/issue")),
                "/comment/html_url",
                "/comment/body",
            )
        }
        "pull_request" => (
            format!("{who} {action} {}", about("pull request", "/pull_request")),
            "/pull_request/html_url",
            "/pull_request/body",
        ),
        "pull_request_review" => {
            let state = text(body, "/review/state").unwrap_or("commented");
            (
                format!(
                    "{who} reviewed ({state}) {}",
                    about("pull request", "/pull_request")
                ),
                "/review/html_url",
                "/review/body",
            )
        }
        "pull_request_review_comment" => {
            let path = text(body, "/comment/path").unwrap_or("a file");
            (
                format!(
                    "{who} {action} a comment on `{path}` in {}",
                    about("pull request", "/pull_request")
                ),
                "/comment/html_url",
                "/comment/body",
            )
        }
        "discussion" | "discussion_comment" => (
            format!("{who} {action} {}", about("discussion", "/discussion")),
            "/discussion/html_url",
            if name == "discussion" {
                "/discussion/body"
            } else {
                "/comment/body"
            },
        ),
        "push" => return push(who, place, body),
        "release" => {
            let release = text(body, "/release/name").or_else(|| text(body, "/release/tag_name"));
            (
                format!(
                    "{who} {action} release {} of {place}",
                    release.unwrap_or_default()
                ),
                "/release/html_url",
                "/release/body",
            )
        }
        "workflow_run" => {
            let workflow = text(body, "/workflow_run/name").unwrap_or("a workflow");
            let conclusion = text(body, "/workflow_run/conclusion").unwrap_or("no conclusion yet");
            (
                format!("workflow `{workflow}` of {place} is {action}: {conclusion}"),
                "/workflow_run/html_url",
                "/workflow_run/display_title",
            )
        }
        other => (
            match text(body, "/action") {
                Some(action) => format!("{who} caused `{other}` ({action}) in {place}"),
                None => format!("{who} caused `{other}` in {place}"),
            },
            "/repository/html_url",
            "",
        ),
    };
    let mut words = headline.trim_end_matches([':', ' ']).to_owned();
    if let Some(link) = text(body, link) {
        words.push('\n');
        words.push_str(link);
    }
    let said = if said.is_empty() {
        None
    } else {
        text(body, said)
    };
    if let Some(said) = said.filter(|said| !said.trim().is_empty()) {
        words.push_str("\n\n");
        words.push_str(&shortened(said));
    }
    words
}

fn push(who: &str, place: &str, body: &Value) -> String {
    let commits = body.pointer("/commits").and_then(Value::as_array);
    let commits = commits.map_or(&[][..], Vec::as_slice);
    let branch = text(body, "/ref").unwrap_or("a branch");
    let plural = if commits.len() == 1 { "" } else { "s" };
    let mut words = format!(
        "{who} pushed {} commit{plural} to {branch} of {place}",
        commits.len()
    );
    if let Some(link) = text(body, "/compare") {
        words.push('\n');
        words.push_str(link);
    }
    if !commits.is_empty() {
        words.push('\n');
    }
    for commit in commits.iter().take(COMMITS_LISTED_MAX) {
        let id: String = text(commit, "/id")
            .unwrap_or_default()
            .chars()
            .take(COMMIT_ID_CHARS)
            .collect();
        let message = text(commit, "/message").unwrap_or_default();
        let first_line = message.lines().next().unwrap_or_default();
        words.push_str(&format!("\n{id} {}", shortened(first_line)));
    }
    if commits.len() > COMMITS_LISTED_MAX {
        let further = commits.len() - COMMITS_LISTED_MAX;
        words.push_str(&format!("\nand {further} more"));
    }
    words
}

/// GitHub names actions in the past tense, except for these.
fn past(action: &str) -> String {
    match action {
        "created" => "made".to_owned(),
        "synchronize" => "pushed to".to_owned(),
        "review_requested" => "asked for a review of".to_owned(),
        other => other.replace('_', " "),
    }
}

fn shortened(said: &str) -> String {
    let mut shown: String = said.chars().take(GITHUB_TEXT_CHARS_MAX).collect();
    if shown.len() < said.len() {
        shown.push_str(" […]");
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn common_events_are_put_into_words() {
        let base = json!({"repository": {"full_name": "a/b"}, "sender": {"login": "ann"}});
        let with = |more: Value| {
            let mut body = base.clone();
            let fields = body.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            body
        };
        for (name, more, said) in [
            (
                "issue_comment",
                json!({"action": "created", "issue": {"number": 1, "title": "T"}, "comment": {"body": "c"}}),
                "ann made a comment on issue a/b#1: T\n\nc",
            ),
            (
                "pull_request",
                json!({"action": "synchronize", "pull_request": {"number": 2, "title": "P", "body": null}}),
                "ann pushed to pull request a/b#2: P",
            ),
            (
                "pull_request_review",
                json!({"action": "submitted", "review": {"state": "approved", "body": "ok"},
                    "pull_request": {"number": 2, "title": "P"}}),
                "ann reviewed (approved) pull request a/b#2: P\n\nok",
            ),
            (
                "release",
                json!({"action": "published", "release": {"tag_name": "v1", "body": "New."}}),
                "ann published release v1 of a/b\n\nNew.",
            ),
            (
                "workflow_run",
                json!({"action": "completed", "workflow_run": {"name": "ci", "conclusion": "failure"}}),
                "workflow `ci` of a/b is completed: failure",
            ),
            (
                "star",
                json!({"action": "created"}),
                "ann caused `star` (created) in a/b",
            ),
            ("gollum", json!({}), "ann caused `gollum` in a/b"),
        ] {
            assert_eq!(of(name, &with(more)), said);
        }
    }

    #[test]
    fn long_github_text_is_truncated_with_a_mark() {
        let long = "가".repeat(GITHUB_TEXT_CHARS_MAX + 1);
        let words = of(
            "issues",
            &json!({"action": "opened", "issue": {"body": long}}),
        );
        assert!(words.ends_with("가 […]"), "{}", words.len());
        let commits: Vec<Value> = (0..25)
            .map(|n| json!({"id": "abc", "message": format!("m{n}")}))
            .collect();
        let words = of("push", &json!({"ref": "r", "commits": commits}));
        assert!(words.ends_with("abc m19\nand 5 more"), "{words}");
    }
}
