//! Answers of GitLab's API as agents get them: short, and without fields that only programs need.
//! Pure.

use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode};
use serde_json::{Value, json};

use crate::limits::{EVENT_TEXT_CHARS_MAX, GITLAB_DIFF_CHARS_MAX};
use crate::payload::{items, text};
use crate::sentence::texts::shortened;
use crate::server_time::time_of_answer;
use crate::service::{FailureContext, HttpAnswer};

const NEXT_PAGE: &str = "x-next-page";

/// An issue or a merge request.
pub(super) fn thing(found: &Value) -> Value {
    let plain = |pointer: &str| found.pointer(pointer).cloned().unwrap_or(Value::Null);
    let names = |list: &str, name: &str| -> Vec<Value> {
        items(found, list)
            .filter_map(|item| item.pointer(name).cloned())
            .collect()
    };
    let mut thing = json!({
        "reference": reference(found),
        "title": plain("/title"),
        "state": plain("/state"),
        "author": plain("/author/username"),
        "createdAt": plain("/created_at"),
        "labels": plain("/labels"),
        "assignees": names("/assignees", "/username"),
        "reviewers": names("/reviewers", "/username"),
        "milestone": plain("/milestone/title"),
        "source": plain("/source_branch"),
        "target": plain("/target_branch"),
        "draft": plain("/draft"),
        "mergeStatus": plain("/detailed_merge_status"),
        "pipeline": plain("/head_pipeline/status"),
        "commit": plain("/sha"),
        "url": plain("/web_url"),
        "description": shortened(text(found, "/description").unwrap_or_default(), EVENT_TEXT_CHARS_MAX),
    });
    if let Some(fields) = thing.as_object_mut() {
        fields.retain(|_, value| match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
        });
    }
    thing
}

/// `#7` or `!7`.
fn reference(found: &Value) -> Option<String> {
    let number = found.get("iid")?.as_u64()?;
    let is_merge_request = found.get("source_branch").is_some();
    let sign = if is_merge_request { '!' } else { '#' };
    Some(format!("{sign}{number}"))
}

/// The opened issue or merge request, with its page.
pub(super) fn opened(created: &Value) -> Result<Value, CallError> {
    let reference = reference(created);
    let url = text(created, "/web_url");
    let named = reference.zip(url);
    named
        .map(|(reference, url)| json!({"reference": reference, "url": url}))
        .ok_or_else(|| {
            let message = "GitLab's answer names no issue or merge request";
            CallError::new(CallErrorCode::Internal, message)
        })
}

/// A page of comments in the order in which they were written.
pub(super) fn comments(answered: &HttpAnswer) -> Value {
    let found = answered.json();
    let comments = items(&found, "").rev().map(|note| {
        json!({
            "comment": note.get("id"),
            "author": text(note, "/author/username"),
            "createdAt": text(note, "/created_at"),
            "isSystem": note.get("system"),
            "text": shortened(text(note, "/body").unwrap_or_default(), EVENT_TEXT_CHARS_MAX),
        })
    });
    let comments: Vec<Value> = comments.collect();
    json!({"comments": comments, "nextPage": next_page(answered)})
}

/// A page of changed files.
pub(super) fn diff(answered: &HttpAnswer) -> Value {
    let found = answered.json();
    let files = items(&found, "").map(|file| {
        let is = |name: &str| file.get(name) == Some(&Value::Bool(true));
        let change = match (is("new_file"), is("deleted_file"), is("renamed_file")) {
            (true, _, _) => "added",
            (_, true, _) => "deleted",
            (_, _, true) => "renamed",
            (false, false, false) => "changed",
        };
        let diff = text(file, "/diff").unwrap_or_default();
        let mut shown = JsonObject::new();
        shown.insert("path".to_owned(), json!(text(file, "/new_path")));
        shown.insert("change".to_owned(), json!(change));
        let diff = shortened(diff, GITLAB_DIFF_CHARS_MAX);
        shown.insert("diff".to_owned(), json!(diff));
        if change == "renamed" {
            shown.insert("formerPath".to_owned(), json!(text(file, "/old_path")));
        }
        // GitLab leaves out what is too large to show.
        if is("too_large") || is("collapsed") {
            shown.insert("isLeftOut".to_owned(), json!(true));
        }
        Value::Object(shown)
    });
    let files: Vec<Value> = files.collect();
    json!({"files": files, "nextPage": next_page(answered)})
}

fn next_page(answered: &HttpAnswer) -> Option<u64> {
    answered.headers.get(NEXT_PAGE)?.to_str().ok()?.parse().ok()
}

/// The answer, or the error that it reports.
pub(super) fn checked(
    answered: HttpAnswer,
    failed: FailureContext<'_>,
) -> Result<HttpAnswer, CallError> {
    if (200..300).contains(&answered.status) {
        return Ok(answered);
    }
    let now_s = time_of_answer(&answered.headers).as_second();
    Err(error(&answered, failed, u64::try_from(now_s).unwrap_or(0)))
}

fn error(answered: &HttpAnswer, failed: FailureContext<'_>, now_s: u64) -> CallError {
    let header = |name: &str| answered.headers.get(name)?.to_str().ok();
    let next_s = header("ratelimit-reset").and_then(|reset| reset.parse::<u64>().ok());
    let until_next_ms = next_s.map(|next_s| next_s.saturating_sub(now_s).saturating_mul(1_000));
    let retry_after_ms = answered.retry_after_ms().or(until_next_ms);
    let said = error_text(&answered.json());
    let error = failed.by_status(answered.status, &said, retry_after_ms);
    match error.code {
        CallErrorCode::Unauthorized => {
            error.suggest("put a valid token into the secret `token` of the Connection")
        }
        CallErrorCode::Refused => error.suggest(
            "the token needs the scope `api`, and its account a role in the project that permits this",
        ),
        CallErrorCode::NotFound => {
            error.suggest("the object does not exist, or the token has no access")
        }
        _ => error,
    }
}

/// The message of an error: a text, or one for each wrong field.
fn error_text(body: &Value) -> String {
    let message = ["/message", "/error_description", "/error"]
        .iter()
        .find_map(|pointer| body.pointer(pointer));
    match message {
        None | Some(Value::Null) => "nothing further".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(fields) => fields.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &Value) -> HttpAnswer {
        let pairs = headers.iter();
        HttpAnswer {
            status,
            headers: pairs
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect::<HeaderMap>(),
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn gitlab_errors_say_when_to_try_again_and_why() {
        let failed = FailureContext {
            service: "GitLab",
            is_repeatable: false,
        };
        let error = |status, headers: &[(&'static str, &str)], body: Value| {
            error(&answer(status, headers, &body), failed, 1_000)
        };
        let limited = error(429, &[("ratelimit-reset", "1030")], json!({}));
        assert_eq!(
            (limited.code, limited.retry_after_ms),
            (CallErrorCode::RateLimited, Some(30_000))
        );
        let headers = [("retry-after", "7"), ("ratelimit-reset", "1030")];
        let limited = error(429, &headers, json!({"message": "Retry later"}));
        assert_eq!(limited.retry_after_ms, Some(7_000));
        let scope = json!({"error": "insufficient_scope", "error_description": "It needs more."});
        let denied = error(403, &[], scope);
        assert_eq!(denied.code, CallErrorCode::Refused);
        assert!(denied.message.contains("It needs more."), "{denied}");
        let wrong = error(400, &[], json!({"message": {"title": ["can't be blank"]}}));
        assert_eq!(wrong.code, CallErrorCode::Invalid);
        assert!(
            wrong.message.contains(r#"{"title":["can't be blank"]}"#),
            "{wrong}"
        );
        assert_eq!(error(500, &[], json!({})).code, CallErrorCode::Interrupted);
    }

    #[test]
    fn pages_keep_the_order_and_name_the_next_one() {
        let note = |id: u64| {
            json!({"id": id, "body": format!("n{id}"), "system": false,
            "author": {"username": "ada"}, "created_at": "2026-01-01T00:00:00Z"})
        };
        let newest_first = json!([note(2), note(1)]);
        let page = comments(&answer(200, &[("x-next-page", "2")], &newest_first));
        assert_eq!(page["comments"][0]["text"], "n1");
        assert_eq!(page["comments"][1]["comment"], 2);
        assert_eq!(page["nextPage"], 2);
        let long = "x".repeat(GITLAB_DIFF_CHARS_MAX + 1);
        let files = json!([{"new_path": "b", "old_path": "a", "renamed_file": true, "diff": long}]);
        let page = diff(&answer(200, &[("x-next-page", "")], &files));
        let file = &page["files"][0];
        assert_eq!(
            (&file["formerPath"], &file["change"]),
            (&json!("a"), &json!("renamed"))
        );
        assert!(file["diff"].as_str().unwrap().ends_with("x […]"));
        assert_eq!(page["nextPage"], Value::Null);
    }

    #[test]
    fn thing_has_no_empty_fields() {
        let found = json!({"iid": 7, "title": "It breaks", "state": "opened", "labels": [],
            "author": {"username": "ada"}, "description": null, "assignees": [{"username": "bob"}],
            "milestone": null, "web_url": "https://h/a/b/-/issues/7"});
        let expected = json!({"reference": "#7", "title": "It breaks", "state": "opened",
            "author": "ada", "assignees": ["bob"], "url": "https://h/a/b/-/issues/7"});
        assert_eq!(thing(&found), expected);
        let opened = opened(&json!({"iid": 3, "source_branch": "x", "web_url": "https://h"}));
        assert_eq!(
            opened.unwrap(),
            json!({"reference": "!3", "url": "https://h"})
        );
    }
}
