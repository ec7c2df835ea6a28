//! `SwarmBundle`: an agent's changes to the configuration of its own conversation, in types that
//! agents, clients and the store's files share (`BUNDLE-1`…`BUNDLE-8`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{ChangesetId, RevisionId};
use crate::time::Timestamp;

/// Largest number of log records returned at once.
pub const BUNDLE_RECORDS_MAX: usize = 500;

/// Largest file that an agent may write into a changeset, in bytes.
pub const CHANGESET_FILE_BYTES_MAX: usize = 256 * 1024;

/// An agent's request about its own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "do",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum BundleAsk {
    /// Open a changeset.
    Open {
        /// The revision to start from; defaults to the head.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<RevisionId>,
    },
    /// Write or remove a file of a changeset.
    Write {
        /// The changeset; defaults to the one opened last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
        /// The file, relative to the Project Root.
        path: String,
        /// Its new text; absent to remove the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
    /// Show the changes of a changeset.
    Diff {
        /// The changeset; defaults to the one opened last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
    },
    /// Check a changeset and make it the head.
    Commit {
        /// The changeset; defaults to the one opened last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
        /// Its purpose.
        message: String,
    },
    /// Show the state of the configuration.
    Status {},
    /// Revert to the last promoted revision.
    Revert {
        /// The reason.
        reason: String,
    },
}

impl BundleAsk {
    /// The export of the tool `swarm-bundle` that grants this request.
    #[must_use]
    pub fn export(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Write { .. } => "write",
            Self::Diff { .. } => "diff",
            Self::Commit { .. } => "commit",
            Self::Status {} => "status",
            Self::Revert { .. } => "revert",
        }
    }
}

/// Result of a [`BundleAsk`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleAskResult {
    /// The changeset of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset: Option<ChangesetInfo>,
    /// The directory of its working copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
    /// The files of the working copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Its changes, as a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// State of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BundleStatus>,
}

/// State of a changeset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangesetState {
    /// The agent is working on it; it has no effect yet.
    Open,
    /// It waits for a person's decision.
    Waiting,
    /// It became the head.
    Committed,
    /// It was rejected.
    Rejected,
}

impl ChangesetState {
    /// The serialized form of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Waiting => "waiting",
            Self::Committed => "committed",
            Self::Rejected => "rejected",
        }
    }
}

/// A changeset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesetInfo {
    /// Its id, which is the id of the tool call that opened it.
    pub changeset_id: ChangesetId,
    /// Its state.
    pub state: ChangesetState,
    /// The revision it is based on.
    pub base: RevisionId,
    /// The revision that its commit created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// Its purpose, as stated by the agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its changes, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
    /// Reason for the state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Time it was opened.
    pub opened_at: Timestamp,
}

/// A line of `changesets.jsonl` (`BUNDLE-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesetRecord {
    /// `swarmBundle.changeset`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Position among all records of the bundle, from 1.
    pub seq: u64,
    /// Time of the record.
    pub recorded_at: Timestamp,
    /// The changeset.
    pub changeset_id: ChangesetId,
    /// The revision it is based on.
    pub base_revision: RevisionId,
    /// The revision it creates, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// Its author: `agent` or `person`.
    pub by: String,
    /// Its purpose.
    pub message: String,
    /// Its changes, one line each.
    pub summary: Vec<String>,
}

/// Operation that a status record is about (`BUNDLE-7`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusPhase {
    /// Making a revision the head.
    Commit,
    /// Making a revision active.
    Activate,
}

/// Result of the operation (`BUNDLE-7`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusResult {
    /// It succeeded.
    Ok,
    /// The rules forbid it.
    Rejected,
    /// It was attempted and failed.
    Failed,
    /// It is deferred, or nothing needed to be done.
    Skipped,
}

/// A line of `changeset-status.jsonl` (`BUNDLE-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusRecord {
    /// `swarmBundle.changesetStatus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Position among all records of the bundle, from 1.
    pub seq: u64,
    /// Time of the record.
    pub recorded_at: Timestamp,
    /// The changeset; absent if the change had another cause, such as an edit of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<ChangesetId>,
    /// The revision it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// The operation.
    pub phase: StatusPhase,
    /// Its result.
    pub result: StatusResult,
    /// Details, for people to read.
    pub detail: String,
}

/// Probation of a revision: it must work before it is promoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CanaryState {
    /// Time of its activation.
    pub since: Timestamp,
    /// Number of turns completed with it.
    pub turns: u32,
    /// Number of failures.
    pub failures: u32,
    /// True if a process was started with it and has not yet succeeded or failed.
    #[serde(default)]
    pub is_started: bool,
    /// Reason for the last failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_failure: String,
}

/// Content that is refused from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantinedContent {
    /// Digest of its changes to the project.
    pub digest: String,
    /// The revision.
    pub revision: RevisionId,
    /// Time of the quarantine.
    pub at: Timestamp,
    /// The reason.
    pub reason: String,
}

/// A file that differs from the project's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleFile {
    /// The file.
    pub path: String,
    /// The changeset it comes from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<ChangesetId>,
}

/// State of a conversation's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleStatus {
    /// The last seen revision of the project.
    pub base: RevisionId,
    /// The revision that becomes active at the next step.
    pub head: RevisionId,
    /// The revision that the agent runs with.
    pub active: RevisionId,
    /// The last revision that passed its probation.
    pub promoted: RevisionId,
    /// True if a person pinned the configuration.
    pub pinned: bool,
    /// Probation of the active revision, if it has not passed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probation: Option<CanaryState>,
    /// The files in which the head differs from the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BundleFile>,
    /// Files that a person also changed; the person's version is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Reason why the active revision is not the intended one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Quarantined content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<QuarantinedContent>,
    /// The latest changesets, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changesets: Vec<ChangesetInfo>,
}
