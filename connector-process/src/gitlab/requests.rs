//! Requests to GitLab's API for the actions of agents. Pure.

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::GitLab as Action;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::own_mark::marked;

/// Comments per page.
const COMMENTS_PER_PAGE: usize = 20;

/// Changed files per page.
const FILES_PER_PAGE: usize = 10;

/// Name of a status that the agent does not name.
const STATUS_NAME: &str = "goondan";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct GitLabRequest {
    pub(super) method: Method,
    /// Path and query, without the version of the API.
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

impl GitLabRequest {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
        }
    }

    fn with_body(method: Method, path: String, body: Value) -> Self {
        Self {
            method,
            path,
            body: Some(body),
        }
    }
}

fn invalid(message: String) -> CallError {
    CallError::new(CallErrorCode::Invalid, message)
}

/// The project of an action: its path, or its ID.
pub(super) fn project_of(action: &Action) -> &str {
    match action {
        Action::Comment { project, .. }
        | Action::OpenIssue { project, .. }
        | Action::Edit { project, .. }
        | Action::Read { project, .. }
        | Action::Comments { project, .. }
        | Action::Diff { project, .. }
        | Action::SetStatus { project, .. }
        | Action::OpenMergeRequest { project, .. } => project,
    }
}

/// The start of the paths of a project, if it cannot change the rest of a path.
fn project_path(project: &str) -> Result<String, CallError> {
    let is_part = |part: &str| {
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part.bytes().all(is_char) && !part.bytes().all(|byte| byte == b'.')
    };
    let is_id = !project.is_empty() && project.bytes().all(|byte| byte.is_ascii_digit());
    let is_path = project.contains('/') && project.split('/').all(is_part);
    if !is_id && !is_path {
        return Err(invalid(format!(
            "`{project}` is not the path of a project, such as `group/name`, or its ID"
        )));
    }
    Ok(format!("projects/{}", encoded(project)))
}

/// The path of an issue or merge request.
fn thing_path(project: &str, reference: &str) -> Result<String, CallError> {
    let wrong = || {
        invalid(format!(
            "`{reference}` is not `#7` for an issue or `!7` for a merge request"
        ))
    };
    let (kind, number) = match reference.strip_prefix('#') {
        Some(number) => ("issues", number),
        None => (
            "merge_requests",
            reference.strip_prefix('!').ok_or_else(wrong)?,
        ),
    };
    let number: u64 = number.parse().map_err(|_not_a_number| wrong())?;
    Ok(format!("{}/{kind}/{number}", project_path(project)?))
}

/// A text as one part of a path or a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The fields that are set.
fn fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let set = fields.into_iter();
    let set = set.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(set.collect::<Map<_, _>>())
}

/// Labels as GitLab expects them; `None` for no label.
fn joined(labels: &[String]) -> Option<Value> {
    (!labels.is_empty()).then(|| json!(labels.join(",")))
}

/// The list of open merge requests between two branches.
pub(super) fn open_merge_requests(
    project: &str,
    source: &str,
    target: &str,
) -> Result<GitLabRequest, CallError> {
    let project = project_path(project)?;
    let (source, target) = (encoded(source), encoded(target));
    Ok(GitLabRequest::get(format!(
        "{project}/merge_requests?state=opened&source_branch={source}&target_branch={target}"
    )))
}

/// The request of an action.
pub(super) fn to_request(action: &Action) -> Result<GitLabRequest, CallError> {
    Ok(match action {
        Action::Comment {
            project,
            reference,
            body,
            discussion,
        } => {
            let thing = thing_path(project, reference)?;
            let path = match discussion {
                None => format!("{thing}/notes"),
                Some(id) => format!("{thing}/discussions/{}/notes", discussion_id(id)?),
            };
            GitLabRequest::with_body(Method::POST, path, json!({"body": marked(body)}))
        }
        Action::OpenIssue {
            project,
            title,
            description,
            labels,
        } => {
            let description = marked(description.as_deref().unwrap_or_default());
            let body = fields([
                ("title", Some(json!(title))),
                ("description", Some(json!(description.trim_start()))),
                ("labels", joined(labels)),
            ]);
            GitLabRequest::with_body(
                Method::POST,
                format!("{}/issues", project_path(project)?),
                body,
            )
        }
        Action::Edit {
            project,
            reference,
            title,
            description,
            add_labels,
            remove_labels,
            state,
        } => {
            let body = fields([
                ("title", title.as_ref().map(|title| json!(title))),
                (
                    "description",
                    description.as_ref().map(|description| json!(description)),
                ),
                ("add_labels", joined(add_labels)),
                ("remove_labels", joined(remove_labels)),
                ("state_event", state.map(|state| json!(state.event()))),
            ]);
            if body.as_object().is_some_and(Map::is_empty) {
                return Err(invalid(
                    "nothing to change: pass at least one field".to_owned(),
                ));
            }
            GitLabRequest::with_body(Method::PUT, thing_path(project, reference)?, body)
        }
        Action::Read { project, reference } => GitLabRequest::get(thing_path(project, reference)?),
        Action::Comments {
            project,
            reference,
            page,
        } => {
            let thing = thing_path(project, reference)?;
            GitLabRequest::get(format!(
                "{thing}/notes?sort=desc&order_by=created_at&per_page={COMMENTS_PER_PAGE}&page={page}"
            ))
        }
        Action::Diff {
            project,
            reference,
            page,
        } => {
            if !reference.starts_with('!') {
                return Err(invalid(format!(
                    "`{reference}` is not a merge request, such as `!7`"
                )));
            }
            let thing = thing_path(project, reference)?;
            GitLabRequest::get(format!(
                "{thing}/diffs?per_page={FILES_PER_PAGE}&page={page}"
            ))
        }
        Action::SetStatus {
            project,
            commit,
            state,
            name,
            description,
            url,
        } => {
            let is_commit = (7..=64).contains(&commit.len())
                && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_commit {
                return Err(invalid(format!("`{commit}` is not the ID of a commit")));
            }
            let body = fields([
                ("state", Some(json!(state))),
                ("name", Some(json!(name.as_deref().unwrap_or(STATUS_NAME)))),
                (
                    "description",
                    description.as_ref().map(|description| json!(description)),
                ),
                ("target_url", url.as_ref().map(|url| json!(url))),
            ]);
            let path = format!("{}/statuses/{commit}", project_path(project)?);
            GitLabRequest::with_body(Method::POST, path, body)
        }
        Action::OpenMergeRequest {
            project,
            source,
            target,
            title,
            description,
        } => {
            let description = marked(description.as_deref().unwrap_or_default());
            let body = json!({"source_branch": source, "target_branch": target, "title": title,
                "description": description.trim_start()});
            let path = format!("{}/merge_requests", project_path(project)?);
            GitLabRequest::with_body(Method::POST, path, body)
        }
    })
}

fn discussion_id(id: &str) -> Result<&str, CallError> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id
        .then_some(id)
        .ok_or_else(|| invalid(format!("`{id}` is not the ID of a thread")))
}

#[cfg(test)]
mod tests {
    use goondan_protocol::service::StateChange;

    use super::*;
    use crate::own_mark::OWN_MARK;

    fn comment(project: &str, reference: &str, discussion: Option<&str>) -> Action {
        Action::Comment {
            project: project.to_owned(),
            reference: reference.to_owned(),
            body: "Done.".to_owned(),
            discussion: discussion.map(str::to_owned),
        }
    }

    #[test]
    fn comment_of_an_agent_bears_the_mark_and_leads_nowhere_else() {
        let request = to_request(&comment("acme/tools/shop", "!7", None)).unwrap();
        assert_eq!(
            request.path,
            "projects/acme%2Ftools%2Fshop/merge_requests/7/notes"
        );
        let body = request.body.unwrap();
        assert_eq!(body, json!({"body": format!("Done.\n\n{OWN_MARK}")}));
        let reply = to_request(&comment("15", "#7", Some("6a9c1750"))).unwrap();
        assert_eq!(
            reply.path,
            "projects/15/issues/7/discussions/6a9c1750/notes"
        );
        for other in [
            "a", "a/../b", "../b", "a/..", "a/b?x", "/b", "a/", "a//b", "",
        ] {
            assert!(to_request(&comment(other, "#7", None)).is_err(), "{other}");
        }
        for other in ["7", "#", "#-7", "!7/x", "&7", ""] {
            assert!(to_request(&comment("a/b", other, None)).is_err(), "{other}");
        }
        for other in ["", "../x", "a/b"] {
            assert!(
                to_request(&comment("a/b", "#7", Some(other))).is_err(),
                "{other}"
            );
        }
    }

    #[test]
    fn edit_sends_only_what_changes() {
        let edit = |state, add: &[&str]| Action::Edit {
            project: "a/b".to_owned(),
            reference: "#7".to_owned(),
            title: None,
            description: None,
            add_labels: add.iter().map(|label| (*label).to_owned()).collect(),
            remove_labels: Vec::new(),
            state,
        };
        let request = to_request(&edit(
            Some(StateChange::Close),
            &["bug", "good first issue"],
        ));
        let request = request.unwrap();
        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::PUT, "projects/a%2Fb/issues/7")
        );
        let expected = json!({"add_labels": "bug,good first issue", "state_event": "close"});
        assert_eq!(request.body.unwrap(), expected);
        assert!(to_request(&edit(None, &[])).is_err());
    }

    #[test]
    fn branches_are_encoded_and_commits_checked() {
        let list = open_merge_requests("a/b", "fix/x&y", "main").unwrap();
        assert_eq!(
            list.path,
            "projects/a%2Fb/merge_requests?state=opened&source_branch=fix%2Fx%26y&target_branch=main"
        );
        let status = |commit: &str| {
            to_request(&Action::SetStatus {
                project: "a/b".to_owned(),
                commit: commit.to_owned(),
                state: "success".to_owned(),
                name: None,
                description: None,
                url: None,
            })
        };
        let request = status("da1560886d4f").unwrap();
        assert_eq!(request.path, "projects/a%2Fb/statuses/da1560886d4f");
        let expected = json!({"state": "success", "name": "goondan"});
        assert_eq!(request.body.unwrap(), expected);
        assert!(status("main").is_err() && status("../../x").is_err());
        let diff = Action::Diff {
            project: "a/b".to_owned(),
            reference: "#7".to_owned(),
            page: 1,
        };
        assert!(to_request(&diff).is_err());
    }
}
