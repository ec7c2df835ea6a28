//! GitHub: comments on issues and pull requests.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{ActionCall, ActionPlan, ActionSpec, PlanError, ServiceSpec};
use super::recovery::Recovery;

/// Longest comment on GitHub, in characters, minus the marker that goondan appends.
const BODY_CHARS_MAX: usize = 65_000;

/// The `github` tool.
pub const GITHUB: ServiceSpec = ServiceSpec {
    tool: "github",
    connector: "github",
    secret: Some("token"),
    actions: &[
        ActionSpec {
            name: "comment",
            description: "Comments on an issue or a pull request on GitHub, and returns the comment's id and link.",
            arguments: || {
                json!({
                    "body": body_schema(), "repository": repository_schema(), "number": number_schema(),
                })
            },
            required: &["body"],
            recovery: Recovery::LookBack("the comments of the issue, by an invisible marker"),
            plan: comment,
        },
        ActionSpec {
            name: "edit",
            description: "Gives a comment another text.",
            arguments: || {
                json!({
                    "comment": {"type": "integer", "minimum": 1, "description": "The comment's id, as `comment` returned it"},
                    "body": body_schema(), "repository": repository_schema(),
                })
            },
            required: &["comment", "body"],
            recovery: Recovery::Repeatable,
            plan: edit,
        },
        ActionSpec {
            name: "react",
            description: "Puts a reaction under a comment, an issue or a pull request.",
            arguments: || {
                json!({
                    "content": {"enum": ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]},
                    "comment": {"type": "integer", "minimum": 1, "description": "The comment's id. If neither this nor `number` is given, the comment this turn is about, or else its issue"},
                    "repository": repository_schema(), "number": number_schema(),
                })
            },
            required: &["content"],
            recovery: Recovery::Repeatable,
            plan: react,
        },
    ],
};

/// Methods of a connection of the connector `github`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum GitHub {
    /// Creates a comment on an issue or a pull request.
    Comment {
        /// `owner/name`.
        repository: String,
        /// Its number.
        number: u64,
        /// The comment, in Markdown.
        body: String,
        /// Identifies the comment if the action is repeated; empty for none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        mark: String,
    },
    /// Edits a comment.
    Edit {
        /// `owner/name`.
        repository: String,
        /// The comment's id.
        comment: u64,
        /// Its new text.
        body: String,
    },
    /// Adds a reaction to a comment, or else to an issue or a pull request.
    React {
        /// `owner/name`.
        repository: String,
        /// The comment's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<u64>,
        /// The number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        /// One of GitHub's reactions.
        content: String,
    },
    /// Opens a pull request, or returns the existing one of that branch and commit. Requested by
    /// the daemon for a task; agents have no action for it (`REPO-3`).
    OpenPullRequest {
        /// `owner/name`.
        repository: String,
        /// The branch to merge.
        head: String,
        /// Its commit.
        commit: String,
        /// The branch to merge it into.
        base: String,
        /// The title.
        title: String,
        /// The description, in Markdown.
        body: String,
    },
    /// Reads if the pull request of a branch is open. Requested by the daemon for its merge queue;
    /// agents have no action for it (`QUEUE-1`).
    FindPullRequest {
        /// `owner/name`.
        repository: String,
        /// The branch to merge.
        head: String,
        /// Its commit.
        commit: String,
    },
}

/// Result of [`GitHub::FindPullRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestStatus {
    /// False if it was merged or closed, or cannot be found.
    pub is_open: bool,
}

/// Result of [`GitHub::OpenPullRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Its page.
    pub url: String,
}

fn repository_schema() -> Value {
    json!({
        "type": "string", "pattern": "^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$",
        "description": "`owner/name`. If not given, the repository this turn is about",
    })
}

fn number_schema() -> Value {
    json!({
        "type": "integer", "minimum": 1,
        "description": "The number of an issue or a pull request. If not given, the one this turn is about",
    })
}

fn body_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": BODY_CHARS_MAX,
        "description": "The comment, in Markdown",
    })
}

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    repository: Option<Value>,
    #[serde(default)]
    number: Option<u64>,
    #[serde(default)]
    comment: Option<u64>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    content: String,
}

/// The arguments, the repository, and true if the turn is about it.
fn read(call: &ActionCall<'_>) -> Result<(Args, String, bool), PlanError> {
    let args: Args = call.args()?;
    let (repository, is_home) = call.place("repository", args.repository.as_ref(), "repository")?;
    Ok((args, repository, is_home))
}

fn missing(argument: &str) -> PlanError {
    PlanError::Invalid(format!(
        "say which `{argument}`: this turn is about none of that repository"
    ))
}

fn comment(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, repository, is_home) = read(call)?;
    let said = || call.fact("number").filter(|_| is_home)?.as_u64();
    ActionPlan::result(&GitHub::Comment {
        repository,
        number: args.number.or_else(said).ok_or_else(|| missing("number"))?,
        body: args.body,
        mark: format!("{}/0", call.call_id),
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, repository, _) = read(call)?;
    let action = GitHub::Edit {
        repository,
        comment: args.comment.unwrap_or_default(),
        body: args.body,
    };
    ActionPlan::done(&action, "edited")
}

fn react(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, repository, is_home) = read(call)?;
    let is_unsaid = args.comment.is_none() && args.number.is_none();
    let said = |name| call.fact(name).filter(|_| is_home && is_unsaid)?.as_u64();
    let comment = args.comment.or_else(|| said("commentId"));
    let number = args.number.or_else(|| said("number"));
    if comment.is_none() && number.is_none() {
        return Err(missing("number"));
    }
    let action = GitHub::React {
        repository,
        comment,
        number,
        content: args.content,
    };
    ActionPlan::done(&action, "done")
}
