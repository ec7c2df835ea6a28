//! Actions of agents on GitHub, through its REST API.

use std::sync::Arc;

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{GITHUB, GitHub as Action, PullRequest, ServiceSpec};
use goondan_protocol::time::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::pull_requests::{PullRequestQuery, pull_request};
use super::repositories::Repositories;
use crate::look_back::{Evidence, earliest_ms, key_of};
use crate::own_mark::marked;
use crate::payload::text;
use crate::server_time::time_of_answer;
use crate::service::{FailureContext, HttpAnswer, other_place};
use crate::service_api::ServiceApi;

const API_VERSION: &str = "2022-11-28";

/// Comments per page, the most that GitHub lists.
const COMMENTS_PER_PAGE: usize = 100;

/// Maximum number of pages read to find a comment.
const LOOK_BACK_PAGES_MAX: usize = 10;

/// GitHub's REST API with one token.
pub(super) struct Api {
    client: reqwest::Client,
    endpoint: String,
    token: String,
    /// The only repositories that can be written to; `None` for all.
    repositories: Option<Arc<Repositories>>,
}

#[derive(Debug, PartialEq)]
struct GitHubRequest {
    method: Method,
    path: String,
    body: Value,
}

impl ServiceApi for Api {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &GITHUB;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        let repository = repository_of(&action);
        let repositories = self.repositories.as_ref();
        if repositories.is_some_and(|repositories| !repositories.may_write(repository)) {
            return Err(other_place("repository", repository, "repositories"));
        }
        if let Action::OpenPullRequest { head, commit, .. } = &action {
            let wanted = PullRequestQuery {
                repository,
                head,
                commit,
            };
            let opened = self.open_pull_request(wanted, &action).await?;
            return serde_json::to_value(opened)
                .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()));
        }
        if let Action::FindPullRequest { head, commit, .. } = &action {
            let wanted = PullRequestQuery {
                repository,
                head,
                commit,
            };
            let request = to_request(&action)?;
            let listed = self.ask(request.method, &request.path, None, true).await;
            let status = wanted.status_among(&listed.map_err(for_pull_requests)?);
            return serde_json::to_value(status)
                .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()));
        }
        let request = to_request(&action)?;
        let body = Some(&request.body);
        let result = self
            .ask(request.method, &request.path, body, is_idempotent)
            .await?;
        Ok(match action {
            Action::Comment { .. } => comment_of(&result),
            Action::Edit { .. }
            | Action::React { .. }
            | Action::OpenPullRequest { .. }
            | Action::FindPullRequest { .. } => json!({}),
        })
    }

    async fn look_back(&self, action: &Action, since: Timestamp) -> Result<Evidence, CallError> {
        let Action::Comment {
            repository,
            number,
            mark,
            ..
        } = action
        else {
            return Ok(Evidence::Unclear("it is not a comment".to_owned()));
        };
        if mark.is_empty() {
            return Ok(Evidence::Unclear("the comment has no marker".to_owned()));
        }
        if !is_repository(repository) {
            return Err(no_repository(repository));
        }
        let since = Timestamp::from_unix_millis(earliest_ms(since));
        let marker = call_marker(mark);
        for page in 1..=LOOK_BACK_PAGES_MAX {
            let path = format!(
                "repos/{repository}/issues/{number}/comments?since={since}\
                 &per_page={COMMENTS_PER_PAGE}&page={page}"
            );
            let listed = self.ask(Method::GET, &path, None, true).await?;
            if let Some(found) = marked_comment(&listed, &marker) {
                return Ok(Evidence::Found(found));
            }
            if listed.as_array().map_or(0, Vec::len) < COMMENTS_PER_PAGE {
                return Ok(Evidence::Absent);
            }
        }
        let most = LOOK_BACK_PAGES_MAX * COMMENTS_PER_PAGE;
        let reason = format!("it has more than {most} comments since then");
        Ok(Evidence::Unclear(reason))
    }

    fn secret(&self) -> &str {
        &self.token
    }

    async fn check(&self) -> Result<Option<String>, CallError> {
        // Every kind of token may call this endpoint, and it is free.
        let asked = self.ask(Method::GET, "rate_limit", None, true).await;
        asked.map(|_limits| None)
    }
}

impl Api {
    /// Creates a client for the API at `endpoint`. If `repositories` is given, only these
    /// repositories can be written to.
    pub(super) fn new(
        client: reqwest::Client,
        endpoint: &str,
        token: String,
        repositories: Option<Arc<Repositories>>,
    ) -> Self {
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            repositories,
        }
    }

    /// Opens a pull request, unless there is one; a repeated request finds the first one's result.
    async fn open_pull_request(
        &self,
        wanted: PullRequestQuery<'_>,
        action: &Action,
    ) -> Result<PullRequest, CallError> {
        let creation = to_request(action)?;
        let list = wanted.list_path()?;
        let listed = self.ask(Method::GET, &list, None, true).await;
        if let Some(found) = wanted.among(&listed.map_err(for_pull_requests)?) {
            return Ok(found);
        }
        let body = Some(&creation.body);
        let created = self.ask(creation.method, &creation.path, body, true).await;
        let opened = match created {
            Ok(created) => pull_request(&created),
            // An earlier request may have been carried out late.
            Err(error) if error.code == CallErrorCode::Invalid => {
                let listed = self.ask(Method::GET, &list, None, true).await?;
                Some(wanted.among(&listed).ok_or(error)?)
            }
            Err(error) => return Err(for_pull_requests(error)),
        };
        opened.ok_or_else(|| {
            let message = "GitHub's answer names no pull request";
            CallError::new(CallErrorCode::Internal, message)
        })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        is_repeatable: bool,
    ) -> Result<Value, CallError> {
        let failed = FailureContext {
            service: "GitHub",
            is_repeatable,
        };
        let mut request = self
            .client
            .request(method, format!("{}/{path}", self.endpoint))
            .bearer_auth(&self.token)
            .header("accept", "application/vnd.github+json")
            .header("x-github-api-version", API_VERSION);
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let answered = failed.answer_to(request).await?;
        let now_s = time_of_answer(&answered.headers).as_second();
        read(&answered, failed, u64::try_from(now_s).unwrap_or(0))
    }
}

/// Invisible marker by which a comment is found again.
fn call_marker(mark: &str) -> String {
    format!("<!-- goondan call {} -->", key_of(mark))
}

/// The comment with this marker, as the result of the action.
fn marked_comment(listed: &Value, marker: &str) -> Option<Value> {
    let mut comments = listed.as_array()?.iter();
    let is_marked = |comment: &&Value| text(comment, "/body").is_some_and(|it| it.contains(marker));
    comments.find(is_marked).map(comment_of)
}

/// The action's result for a comment that GitHub describes.
fn comment_of(comment: &Value) -> Value {
    let field = |name: &str| comment.get(name).cloned().unwrap_or(Value::Null);
    json!({"comment": field("id"), "url": field("html_url")})
}

fn no_repository(repository: &str) -> CallError {
    let message = format!("`{repository}` is not `owner/name`");
    CallError::new(CallErrorCode::Invalid, message)
}

fn repository_of(action: &Action) -> &str {
    match action {
        Action::Comment { repository, .. }
        | Action::Edit { repository, .. }
        | Action::React { repository, .. }
        | Action::OpenPullRequest { repository, .. }
        | Action::FindPullRequest { repository, .. } => repository,
    }
}

/// True if the text is `owner/name` and cannot change the path of a URL.
fn is_repository(text: &str) -> bool {
    let is_name = |part: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part.bytes().all(is_part) && !part.bytes().all(|byte| byte == b'.')
    };
    text.split_once('/')
        .is_some_and(|(owner, name)| is_name(owner) && is_name(name))
}

fn to_request(action: &Action) -> Result<GitHubRequest, CallError> {
    let repository = repository_of(action);
    let invalid = |message: String| CallError::new(CallErrorCode::Invalid, message);
    if !is_repository(repository) {
        return Err(no_repository(repository));
    }
    let issues = format!("repos/{repository}/issues");
    let (method, path, body) = match action {
        Action::Comment {
            number, body, mark, ..
        } => {
            let mut body = marked(body);
            if !mark.is_empty() {
                body.push('\n');
                body.push_str(&call_marker(mark));
            }
            (
                Method::POST,
                format!("{issues}/{number}/comments"),
                json!({ "body": body }),
            )
        }
        Action::Edit { comment, body, .. } => (
            Method::PATCH,
            format!("{issues}/comments/{comment}"),
            json!({"body": marked(body)}),
        ),
        Action::React {
            comment,
            number,
            content,
            ..
        } => {
            let path = match (comment, number) {
                (Some(comment), _) => format!("{issues}/comments/{comment}/reactions"),
                (None, Some(number)) => format!("{issues}/{number}/reactions"),
                (None, None) => {
                    return Err(invalid("name a comment or a number".to_owned()));
                }
            };
            (Method::POST, path, json!({"content": content}))
        }
        Action::OpenPullRequest {
            head,
            base,
            title,
            body,
            ..
        } => (
            Method::POST,
            format!("repos/{repository}/pulls"),
            json!({"title": title, "head": head, "base": base, "body": body}),
        ),
        Action::FindPullRequest { head, commit, .. } => {
            let wanted = PullRequestQuery {
                repository,
                head,
                commit,
            };
            (Method::GET, wanted.list_path()?, Value::Null)
        }
    };
    Ok(GitHubRequest { method, path, body })
}

/// The error of a request about pull requests.
fn for_pull_requests(error: CallError) -> CallError {
    match error.code {
        CallErrorCode::Refused | CallErrorCode::NotFound => error.suggest(
            "the token needs the permissions to write contents and pull requests of this repository",
        ),
        _ => error,
    }
}

fn read(answered: &HttpAnswer, failed: FailureContext<'_>, now_s: u64) -> Result<Value, CallError> {
    if (200..300).contains(&answered.status) {
        return Ok(answered.json());
    }
    let body = answered.json();
    let said = text(&body, "/message").unwrap_or("nothing further");
    let header = |name: &str| answered.headers.get(name)?.to_str().ok();
    // An exhausted rate limit is reported as 403 or 429, and may name the time of the next request.
    let is_spent = header("x-ratelimit-remaining") == Some("0");
    let next_s = header("x-ratelimit-reset").and_then(|reset| reset.parse::<u64>().ok());
    let until_next_ms = next_s.map(|next_s| next_s.saturating_sub(now_s).saturating_mul(1_000));
    let retry_after_ms = answered
        .retry_after_ms()
        .or(until_next_ms.filter(|_| is_spent));
    let status = match answered.status {
        403 if is_spent || answered.retry_after_ms().is_some() => 429,
        status => status,
    };
    let error = failed.by_status(status, said, retry_after_ms);
    Err(match error.code {
        CallErrorCode::Unauthorized => {
            error.suggest("put a valid token into the secret `token` of the Connection")
        }
        CallErrorCode::Refused => error.suggest(
            "the token needs the permission to write issues and pull requests of this repository",
        ),
        CallErrorCode::NotFound => {
            error.suggest("the object does not exist, or the token has no access")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;
    use crate::own_mark::OWN_MARK;

    fn comment(repository: &str) -> Action {
        Action::Comment {
            repository: repository.to_owned(),
            number: 7,
            body: "Done.".to_owned(),
            mark: String::new(),
        }
    }

    #[test]
    fn msg_13_a_comment_is_found_again_by_its_marker() {
        let sent = Action::Comment {
            repository: "a/b".to_owned(),
            number: 7,
            body: "Done.".to_owned(),
            mark: "t.1:c0/0".to_owned(),
        };
        let request = to_request(&sent).unwrap();
        let body = &request.body["body"];
        let marker = call_marker("t.1:c0/0");
        assert_eq!(*body, json!(format!("Done.\n\n{OWN_MARK}\n{marker}")));
        let listed = json!([
            {"id": 1, "body": "Done."},
            {"id": 2, "body": body, "html_url": "https://github.com/x"},
        ]);
        let expected = json!({"comment": 2, "url": "https://github.com/x"});
        assert_eq!(marked_comment(&listed, &marker), Some(expected));
        assert_eq!(marked_comment(&listed, &call_marker("t.1:c1/0")), None);
        assert_eq!(marked_comment(&json!({}), &marker), None);
    }

    #[test]
    fn a_comment_bears_the_mark_and_leads_nowhere_else() {
        let request = to_request(&comment("a/b.c")).unwrap();
        assert_eq!(request.path, "repos/a/b.c/issues/7/comments");
        let body = request.body["body"].as_str().unwrap();
        assert_eq!(body, format!("Done.\n\n{OWN_MARK}"));
        assert_eq!(marked(body), body);
        for other in ["a", "a/b/c", "../b", "a/..", "a/b?x", "/b", "a/"] {
            assert!(to_request(&comment(other)).is_err(), "{other}");
        }
    }

    #[test]
    fn a_reaction_goes_to_the_comment_or_else_the_issue() {
        let react = |comment, number| {
            to_request(&Action::React {
                repository: "a/b".to_owned(),
                comment,
                number,
                content: "eyes".to_owned(),
            })
        };
        let path = |comment, number| react(comment, number).unwrap().path;
        assert_eq!(
            path(Some(5), Some(7)),
            "repos/a/b/issues/comments/5/reactions"
        );
        assert_eq!(path(None, Some(7)), "repos/a/b/issues/7/reactions");
        assert!(react(None, None).is_err());
    }

    #[test]
    fn github_rate_limit_is_distinguished_from_missing_permission() {
        let answer = |status, headers: &[(&'static str, &str)]| {
            let pairs = headers.iter();
            let answered = HttpAnswer {
                status,
                headers: pairs
                    .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                    .collect::<HeaderMap>(),
                body: br#"{"message": "Because."}"#.to_vec(),
            };
            let failed = FailureContext {
                service: "GitHub",
                is_repeatable: false,
            };
            read(&answered, failed, 1_000).unwrap_err()
        };
        let denied = answer(403, &[]);
        assert_eq!(
            (denied.code, denied.retryable),
            (CallErrorCode::Refused, false)
        );
        let spent = answer(
            403,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1030"),
            ],
        );
        assert_eq!(spent.code, CallErrorCode::RateLimited);
        assert_eq!(spent.retry_after_ms, Some(30_000));
        let secondary = answer(403, &[("retry-after", "60")]);
        assert_eq!(secondary.retry_after_ms, Some(60_000));
        assert_eq!(answer(401, &[]).code, CallErrorCode::Unauthorized);
        assert_eq!(answer(500, &[]).code, CallErrorCode::Interrupted);
    }
}
