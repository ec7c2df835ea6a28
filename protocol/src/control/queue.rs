//! `queue.*`: the merge queue of a workspace's project (`QUEUE-1`).

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::task::TaskId;

/// Run that holds the attempts of the merge queue. No task has this id.
pub const MERGE_QUEUE: &str = "merge-queue";

/// `queue.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListQueue {
    /// The workspace.
    pub workspace_id: WorkspaceId,
}

/// `queue.change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeQueue {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The task whose proposal enters the queue, or is in it.
    pub task_id: TaskId,
    /// Change of its place in the queue.
    pub change: QueueChange,
}

/// A change of the merge queue by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum QueueChange {
    /// Approves the proposal with which the task waits for a review, for the queue.
    Enter {
        /// Proposals with a higher priority are tried first.
        #[serde(default)]
        priority: i32,
    },
    /// Keeps it in the queue without landing it.
    Hold {
        /// The reason.
        why: String,
    },
    /// Ends a hold.
    Release {},
    /// Moves it.
    Move {
        /// Its new place.
        to: QueuePlace,
    },
    /// Sets its priority, and moves it behind those with the same priority.
    Prioritize {
        /// The priority.
        priority: i32,
    },
    /// Removes it. Its task waits for a review again.
    Drop {
        /// The reason.
        why: String,
    },
}

/// Place in the merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuePlace {
    /// Before all others.
    First,
    /// Behind all others.
    Last,
    /// Before the proposal of this task.
    Before(TaskId),
}

/// The merge queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueView {
    /// Proposals in the order in which they are tried.
    pub entries: Vec<QueueEntry>,
    /// The latest outcomes, the oldest first.
    pub outcomes: Vec<QueueOutcome>,
}

/// A proposal in the merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueEntry {
    /// Its task.
    pub task_id: TaskId,
    /// Title of the task, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Digest of the proposal.
    pub digest: String,
    /// Its priority.
    pub priority: i32,
    /// Branch of a repository that it lands on, or that its pull request is for; without, the
    /// project's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Its progress.
    pub stage: QueueStage,
    /// Reason why it is held, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// Progress of a proposal in the merge queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueStage {
    /// It waits for those before it.
    Waiting,
    /// A person holds it, or it needs one.
    Held,
    /// It is merged with the project's current files.
    Rebasing,
    /// `verify` runs on the result.
    Proving,
    /// It is being applied, or its pull request is being opened.
    Landing,
}

impl QueueStage {
    /// The stage in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Rebasing => "rebasing",
            Self::Proving => "proving",
            Self::Landing => "landing",
        }
    }
}

/// Outcome of a proposal that was in the merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueOutcome {
    /// Its task.
    pub task_id: TaskId,
    /// Digest of the proposal.
    pub digest: String,
    /// The outcome.
    pub kind: QueueOutcomeKind,
    /// The URL of the pull request, the conflicts, the end of the proof's output, or the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Kind of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueOutcomeKind {
    /// It is in the project or on the branch.
    Landed,
    /// A pull request has it.
    Opened,
    /// It conflicted with the project: its agent continues.
    Conflict,
    /// `verify` failed: its agent continues.
    Unproved,
    /// It was removed.
    Dropped,
}

impl QueueOutcomeKind {
    /// The outcome in one or two words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Landed => "landed",
            Self::Opened => "pull request",
            Self::Conflict => "conflict",
            Self::Unproved => "verify failed",
            Self::Dropped => "dropped",
        }
    }
}
