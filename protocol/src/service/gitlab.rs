//! GitLab: issues, merge requests and their comments, and the status of commits.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{ActionCall, ActionPlan, ActionSpec, PlanError, ServiceSpec};
use super::recovery::Recovery;

/// Longest comment or description, in characters. GitLab accepts a million; a person reads less.
const BODY_CHARS_MAX: usize = 65_000;

/// Longest title, in characters, as set by GitLab.
const TITLE_CHARS_MAX: usize = 255;

/// The `gitlab` tool.
pub const GITLAB: ServiceSpec = ServiceSpec {
    tool: "gitlab",
    connector: "gitlab",
    secret: Some("token"),
    actions: &[
        ActionSpec {
            name: "comment",
            description: "Comments on an issue or a merge request on GitLab, and returns the comment's id. If this turn is about a comment, it replies in the same thread.",
            arguments: || {
                json!({
                    "body": text_schema("The comment, in Markdown"),
                    "project": project_schema(), "reference": reference_schema(),
                    "discussion": {"type": "string", "description": "The id of a thread; empty for a comment outside of threads. If not given, the thread this turn is about"},
                })
            },
            required: &["body"],
            recovery: Recovery::Unknown(
                "GitLab takes no key for a comment, and its comments are not searched",
            ),
            plan: comment,
        },
        ActionSpec {
            name: "openIssue",
            description: "Opens an issue on GitLab, and returns its reference and link.",
            arguments: || {
                json!({
                    "title": title_schema(), "description": text_schema("The description, in Markdown"),
                    "labels": labels_schema("The labels"), "project": project_schema(),
                })
            },
            required: &["title"],
            recovery: Recovery::Unknown(
                "GitLab takes no key for an issue, and its issues are not searched",
            ),
            plan: open_issue,
        },
        ActionSpec {
            name: "edit",
            description: "Changes an issue or a merge request: its labels, title or description; closes or reopens it.",
            arguments: || {
                json!({
                    "addLabels": labels_schema("Labels to add"),
                    "removeLabels": labels_schema("Labels to remove"),
                    "state": {"enum": ["close", "reopen"]},
                    "title": title_schema(), "description": text_schema("The new description, in Markdown"),
                    "project": project_schema(), "reference": reference_schema(),
                })
            },
            required: &[],
            recovery: Recovery::Repeatable,
            plan: edit,
        },
        ActionSpec {
            name: "read",
            description: "Reads an issue or a merge request: its title, description, state, people, labels and branches.",
            arguments: || json!({"project": project_schema(), "reference": reference_schema()}),
            required: &[],
            recovery: Recovery::Repeatable,
            plan: read,
        },
        ActionSpec {
            name: "comments",
            description: "Reads the latest comments on an issue or a merge request, the oldest first. Older ones are on the next page.",
            arguments: || json!({"page": page_schema(), "project": project_schema(), "reference": reference_schema()}),
            required: &[],
            recovery: Recovery::Repeatable,
            plan: comments,
        },
        ActionSpec {
            name: "diff",
            description: "Reads the changed files of a merge request.",
            arguments: || json!({"page": page_schema(), "project": project_schema(), "reference": reference_schema()}),
            required: &[],
            recovery: Recovery::Repeatable,
            plan: diff,
        },
        ActionSpec {
            name: "setStatus",
            description: "Sets the status of a commit, which pipelines and merge requests show.",
            arguments: || {
                json!({
                    "state": {"enum": ["pending", "running", "success", "failed", "canceled", "skipped"]},
                    "name": {"type": "string", "minLength": 1, "maxLength": TITLE_CHARS_MAX, "description": "The name of the status; by default `goondan`"},
                    "description": {"type": "string", "maxLength": TITLE_CHARS_MAX, "description": "A short explanation"},
                    "url": {"type": "string", "maxLength": TITLE_CHARS_MAX, "description": "A page with details"},
                    "commit": {"type": "string", "pattern": "^[0-9a-fA-F]{7,64}$", "description": "The commit's id. If not given, the one this turn is about"},
                    "project": project_schema(),
                })
            },
            required: &["state"],
            recovery: Recovery::Repeatable,
            plan: set_status,
        },
        ActionSpec {
            name: "openMergeRequest",
            description: "Opens a merge request, or finds the open one between the same branches, and returns its reference and link.",
            arguments: || {
                json!({
                    "source": branch_schema("The branch to merge"),
                    "target": branch_schema("The branch to merge it into. If not given, the default branch of the project this turn is about"),
                    "title": title_schema(), "description": text_schema("The description, in Markdown"),
                    "project": project_schema(),
                })
            },
            required: &["source", "title"],
            recovery: Recovery::Repeatable,
            plan: open_merge_request,
        },
    ],
};

/// Methods of a connection of the connector `gitlab`. A project is its path or its ID, a reference
/// `#7` for an issue or `!7` for a merge request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum GitLab {
    /// Comments on an issue or a merge request.
    Comment {
        /// Path or ID.
        project: String,
        /// Such as `#7`.
        reference: String,
        /// In Markdown.
        body: String,
        /// The thread; `None` for a comment outside of threads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        discussion: Option<String>,
    },
    /// Opens an issue.
    OpenIssue {
        /// Path or ID.
        project: String,
        /// On one line.
        title: String,
        /// In Markdown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Without commas.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
    },
    /// Changes the given fields of an issue or a merge request.
    Edit {
        /// Path or ID.
        project: String,
        /// Such as `#7`.
        reference: String,
        /// The new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The new description, in Markdown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Labels to add, without commas.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        add_labels: Vec<String>,
        /// Labels to remove, without commas.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remove_labels: Vec<String>,
        /// Closes or reopens it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<StateChange>,
    },
    /// Reads an issue or a merge request.
    Read {
        /// Path or ID.
        project: String,
        /// Such as `#7`.
        reference: String,
    },
    /// Reads a page of comments.
    Comments {
        /// Path or ID.
        project: String,
        /// Such as `#7`.
        reference: String,
        /// From 1, which has the newest comments.
        page: u64,
    },
    /// Reads a page of changed files.
    Diff {
        /// Path or ID.
        project: String,
        /// Such as `!7`.
        reference: String,
        /// From 1.
        page: u64,
    },
    /// Sets the status of a commit.
    SetStatus {
        /// Path or ID.
        project: String,
        /// The commit's ID.
        commit: String,
        /// One of GitLab's states.
        state: String,
        /// The name of the status; `None` for the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// A short explanation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// A page with details.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Opens a merge request, or finds the open one between these branches.
    OpenMergeRequest {
        /// Path or ID.
        project: String,
        /// The branch to merge.
        source: String,
        /// The branch to merge it into.
        target: String,
        /// On one line.
        title: String,
        /// In Markdown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
}

/// Change of the state of an issue or a merge request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateChange {
    /// Closes it.
    Close,
    /// Opens it again.
    Reopen,
}

impl StateChange {
    /// GitLab's name.
    #[must_use]
    pub fn event(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Reopen => "reopen",
        }
    }
}

fn project_schema() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "The path of a project, such as `group/name`, or its ID. If not given, the project this turn is about",
    })
}

fn reference_schema() -> Value {
    json!({
        "type": "string", "pattern": "^[#!][1-9][0-9]*$",
        "description": "`#7` for an issue, `!7` for a merge request. If not given, the one this turn is about",
    })
}

fn text_schema(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": BODY_CHARS_MAX, "description": description})
}

fn title_schema() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": TITLE_CHARS_MAX, "description": "The title"})
}

fn branch_schema(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": TITLE_CHARS_MAX, "description": description})
}

fn labels_schema(description: &str) -> Value {
    json!({
        "type": "array", "description": description,
        "items": {"type": "string", "minLength": 1, "pattern": "^[^,]+$"},
    })
}

fn page_schema() -> Value {
    json!({"type": "integer", "minimum": 1, "description": "The page, 1 if not given"})
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    project: Option<Value>,
    #[serde(default)]
    reference: Option<String>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    discussion: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    add_labels: Vec<String>,
    #[serde(default)]
    remove_labels: Vec<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    page: Option<u64>,
    #[serde(default)]
    commit: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    source: String,
    #[serde(default)]
    target: Option<String>,
}

/// The arguments of a call, and its project.
struct PlannedCall<'a> {
    call: &'a ActionCall<'a>,
    args: Args,
    project: String,
    /// True if the turn is about the project.
    is_home: bool,
}

impl<'a> PlannedCall<'a> {
    fn of(call: &'a ActionCall<'a>) -> Result<Self, PlanError> {
        let args: Args = call.args()?;
        let (project, is_home) = call.place("project", args.project.as_ref(), "project")?;
        Ok(Self {
            call,
            args,
            project,
            is_home,
        })
    }

    /// A text among the facts about this project.
    fn fact(&self, name: &str) -> Option<String> {
        let fact = self.call.fact(name).filter(|_| self.is_home)?.as_str()?;
        Some(fact.to_owned())
    }

    /// An argument, or else the fact of this name.
    fn argument(
        &self,
        given: Option<&String>,
        (argument, fact): (&str, &str),
    ) -> Result<String, PlanError> {
        let found = given.cloned().or_else(|| self.fact(fact));
        found.ok_or_else(|| {
            PlanError::Invalid(format!(
                "say which `{argument}`: this turn is about none of that project"
            ))
        })
    }

    fn reference(&self) -> Result<String, PlanError> {
        let names = ("reference", "reference");
        self.argument(self.args.reference.as_ref(), names)
    }
}

fn comment(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    let reference = planned.reference()?;
    // A thread belongs to the issue or merge request that the turn is about.
    let is_here = planned.fact("reference").as_ref() == Some(&reference);
    let discussion = match &planned.args.discussion {
        Some(id) => Some(id.clone()).filter(|id| !id.is_empty()),
        None => planned.fact("discussion").filter(|_| is_here),
    };
    ActionPlan::result(&GitLab::Comment {
        project: planned.project,
        reference,
        body: planned.args.body,
        discussion,
    })
}

fn open_issue(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let PlannedCall { args, project, .. } = PlannedCall::of(call)?;
    ActionPlan::result(&GitLab::OpenIssue {
        project,
        title: args.title.unwrap_or_default(),
        description: args.description,
        labels: args.labels,
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    let reference = planned.reference()?;
    let PlannedCall { args, project, .. } = planned;
    let state = args.state.as_deref().map(|state| match state {
        "reopen" => StateChange::Reopen,
        _ => StateChange::Close,
    });
    let is_changed = args.title.is_some()
        || args.description.is_some()
        || state.is_some()
        || !args.add_labels.is_empty()
        || !args.remove_labels.is_empty();
    if !is_changed {
        return Err(PlanError::Invalid(
            "say what to change: pass `addLabels`, `removeLabels`, `state`, `title` or `description`"
                .to_owned(),
        ));
    }
    let action = GitLab::Edit {
        project,
        reference,
        title: args.title,
        description: args.description,
        add_labels: args.add_labels,
        remove_labels: args.remove_labels,
        state,
    };
    ActionPlan::done(&action, "edited")
}

fn read(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    ActionPlan::result(&GitLab::Read {
        reference: planned.reference()?,
        project: planned.project,
    })
}

fn comments(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    ActionPlan::result(&GitLab::Comments {
        reference: planned.reference()?,
        page: planned.args.page.unwrap_or(1),
        project: planned.project,
    })
}

fn diff(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    let reference = planned.reference()?;
    if !reference.starts_with('!') {
        return Err(PlanError::Invalid(format!(
            "`{reference}` is an issue; only a merge request, such as `!7`, has a diff"
        )));
    }
    ActionPlan::result(&GitLab::Diff {
        reference,
        page: planned.args.page.unwrap_or(1),
        project: planned.project,
    })
}

fn set_status(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    let commit = planned.argument(planned.args.commit.as_ref(), ("commit", "commit"))?;
    let PlannedCall { args, project, .. } = planned;
    let action = GitLab::SetStatus {
        project,
        commit,
        state: args.state.unwrap_or_default(),
        name: args.name,
        description: args.description,
        url: args.url,
    };
    ActionPlan::done(&action, "done")
}

fn open_merge_request(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let planned = PlannedCall::of(call)?;
    let target = planned.argument(planned.args.target.as_ref(), ("target", "defaultBranch"))?;
    let PlannedCall { args, project, .. } = planned;
    ActionPlan::result(&GitLab::OpenMergeRequest {
        project,
        source: args.source,
        target,
        title: args.title.unwrap_or_default(),
        description: args.description,
    })
}
