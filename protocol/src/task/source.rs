//! Source of a task's files, and delivery of its result to the project (`REPO-1`, `REPO-3`).

use serde::{Deserialize, Serialize};

/// Directory of a sandbox in which a program works: its copy of the project.
pub const SANDBOX_WORK: &str = "work";

/// Directory of a sandbox with the files as they were given, read-only.
pub const SANDBOX_INPUT: &str = "input";

/// Directory of a sandbox in which a program leaves `summary.md` and `test.log`.
pub const SANDBOX_PROPOSAL: &str = "proposal";

/// Begins the names of the branches that tasks work on, and are delivered as; their ids follow.
pub const TASK_BRANCHES: &str = "goondan/";

/// Source of a task's files: `runtime.source` of its agent, or `gdn task new --source`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskSource {
    /// No source: the task works in its work area, and changes nothing in the project.
    #[default]
    None,
    /// The project: the task works in a sandbox with a full copy of it, and its result is a
    /// proposal.
    Project,
}

impl TaskSource {
    /// True if there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The source as it is written.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Project => "project",
        }
    }
}

/// Delivery of a task's proposal when its last phase is approved: `runtime.deliver`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskDelivery {
    /// The proposal is applied to the project's files, atomically.
    #[default]
    Apply,
    /// It stays a proposal, which a person applies with `gdn proposal apply`.
    Proposal,
    /// It becomes a commit on a branch of the project's repository, and no file of the project is touched.
    Branch,
}

impl TaskDelivery {
    /// True if it is the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Kind of a task's run (`REPO-2`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskRunKind {
    /// Its agent works.
    #[default]
    Agent,
    /// The command `runtime.setup` prepares the copy of the project, once, before its agent works.
    Setup,
    /// The command `runtime.verify` proves what is complete, before it is proposed.
    Verify,
}

impl TaskRunKind {
    /// True if its agent works.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        *self == Self::Agent
    }

    /// The kind as it is written, which is also the name of the setting with its command.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Setup => "setup",
            Self::Verify => "verify",
        }
    }
}

/// Commands that a task runs in its copy of the project, besides its agent's program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskChecks {
    /// `runtime.setup`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub setup: bool,
    /// `runtime.verify`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
}

impl TaskChecks {
    /// True if there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
