//! Proposals in the queue.

use std::fmt;

use goondan_protocol::task::TaskId;
use serde::{Deserialize, Serialize};

/// State of a target: the commit of a branch, or the digest of a directory's files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Destination of a proposal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Target {
    /// The project's directory.
    #[default]
    Project,
    /// A branch of another repository, by its path or URL.
    Branch { repository: String, branch: String },
}

/// Approved proposal of a task. A task has at most one in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    pub task: TaskId,
    /// Digest of the proposal that was approved.
    pub digest: String,
    /// Proposals with a higher priority are tried first.
    #[serde(default)]
    pub priority: i32,
    /// Proposals of one attempt have the same target.
    #[serde(default)]
    pub target: Target,
}

/// Place in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    First,
    Last,
    Before(TaskId),
}

/// Result of a proposal's time in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    Landed {
        base: Revision,
        result: Revision,
    },
    /// It changes the same lines as the target.
    Conflict {
        base: Revision,
        text: String,
    },
    /// The proof failed, with the end of its output.
    Unproved {
        base: Revision,
        log: String,
    },
    /// A person removed it, or its task no longer proposes it.
    Dropped {
        why: String,
    },
}

/// A proposal in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub proposal: Proposal,
    /// Reason why it is held: a person's, or a failure that needs a person.
    pub held: Option<String>,
}

/// Progress of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Waiting,
    Held,
    Rebasing,
    Proving,
    Landing,
}
