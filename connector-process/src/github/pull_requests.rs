//! Pull requests of tasks (`REPO-3`). Pure.

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{PullRequest, PullRequestStatus};
use serde_json::Value;

use crate::payload::text;

/// A pull request to find, or to open if there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct PullRequestQuery<'a> {
    /// `owner/name`, valid in a path.
    pub(super) repository: &'a str,
    pub(super) head: &'a str,
    pub(super) commit: &'a str,
}

impl PullRequestQuery<'_> {
    /// Path of the list of pull requests for its branch.
    pub(super) fn list_path(&self) -> Result<String, CallError> {
        let invalid = |message: String| CallError::new(CallErrorCode::Invalid, message);
        let Self {
            repository, head, ..
        } = self;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if head.is_empty() || !head.bytes().all(is_plain) {
            return Err(invalid(format!("`{head}` is not a branch of goondan's")));
        }
        let owner = repository.split('/').next().unwrap_or_default();
        Ok(format!(
            "repos/{repository}/pulls?state=all&head={owner}:{head}&per_page=100"
        ))
    }

    /// If the pull request of the branch is open.
    pub(super) fn status_among(&self, listed: &Value) -> PullRequestStatus {
        let all = listed.as_array().into_iter().flatten();
        let mut of_branch = all.filter(|it| text(it, "/head/ref") == Some(self.head));
        PullRequestStatus {
            is_open: of_branch.any(|it| text(it, "/state") == Some("open")),
        }
    }

    /// The open pull request of the branch; else one that has this commit, which may be merged
    /// already.
    pub(super) fn among(&self, listed: &Value) -> Option<PullRequest> {
        let of_branch = || {
            let all = listed.as_array().into_iter().flatten();
            all.filter(|it| text(it, "/head/ref") == Some(self.head))
        };
        let open = of_branch().find(|it| text(it, "/state") == Some("open"));
        let found =
            open.or_else(|| of_branch().find(|it| text(it, "/head/sha") == Some(self.commit)));
        found.and_then(pull_request)
    }
}

/// The pull request in an answer.
pub(super) fn pull_request(body: &Value) -> Option<PullRequest> {
    Some(PullRequest {
        number: body.get("number")?.as_u64()?,
        url: text(body, "/html_url")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repo_3_open_pull_request_of_the_branch_is_found() {
        let wanted = PullRequestQuery {
            repository: "acme/shop",
            head: "goondan/fix",
            commit: "c1",
        };
        let path = wanted.list_path().unwrap();
        assert_eq!(
            path,
            "repos/acme/shop/pulls?state=all&head=acme:goondan/fix&per_page=100"
        );
        let listed = |number: u64, branch: &str, state: &str, commit: &str| {
            json!({"number": number, "state": state, "html_url": format!("https://h/{number}"),
                "head": {"ref": branch, "sha": commit}})
        };
        let number = |all: &[Value]| wanted.among(&json!(all)).map(|it| it.number);
        let other = listed(1, "goondan/other", "open", "c1");
        let stale = listed(2, "goondan/fix", "closed", "c0");
        let merged = listed(3, "goondan/fix", "closed", "c1");
        let open = listed(4, "goondan/fix", "open", "c0");
        assert_eq!(number(&[other.clone(), stale.clone()]), None);
        assert_eq!(number(&[stale.clone(), merged.clone()]), Some(3));
        let is_open = |all: &[Value]| wanted.status_among(&json!(all)).is_open;
        assert!(!is_open(&[other.clone(), stale.clone(), merged.clone()]));
        assert!(is_open(&[merged.clone(), open.clone()]));
        assert_eq!(number(&[other, stale, merged, open]), Some(4));
        for head in ["x&y", "x#y", ""] {
            assert!(
                PullRequestQuery { head, ..wanted }.list_path().is_err(),
                "{head}"
            );
        }
    }
}
