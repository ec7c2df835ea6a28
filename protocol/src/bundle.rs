//! `SwarmBundle`: what an agent makes of the configuration of its own conversation, as agents, clients and the
//! files of the store speak of it (`BUNDLE-1`…`BUNDLE-8`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{ChangesetId, RevisionId};
use crate::time::Timestamp;

/// Records of a log that are told of at once at most.
pub const BUNDLE_RECORDS_MAX: usize = 500;

/// Bytes of one file that an agent may write into a changeset.
pub const CHANGESET_FILE_BYTES_MAX: usize = 256 * 1024;

/// What an agent asks about its own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "do",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum BundleAsk {
    /// Begin a changeset.
    Open {
        /// On top of this revision; the head if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<RevisionId>,
    },
    /// Write a file of a changeset, or remove it.
    Write {
        /// Which; the one that was opened last if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
        /// The file, relative to the Project Root.
        path: String,
        /// Its new text; none to remove it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
    /// Tell what a changeset changes.
    Diff {
        /// Which, as above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
    },
    /// Have a changeset checked and made the head.
    Commit {
        /// Which, as above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
        /// What it is for.
        message: String,
    },
    /// Tell how the configuration stands.
    Status {},
    /// Go back to the last revision that proved itself.
    Revert {
        /// Why.
        reason: String,
    },
}

impl BundleAsk {
    /// The export of the tool `swarm-bundle` that grants it.
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

/// What an agent is told of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleTold {
    /// The changeset that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset: Option<ChangesetInfo>,
    /// Where its working copy is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
    /// The files of the working copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// What it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// How the configuration stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BundleStatus>,
}

/// How a changeset stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangesetState {
    /// Its agent works on it; it has no effect.
    Open,
    /// It waits for a person.
    Waiting,
    /// It became the head.
    Committed,
    /// It was turned down.
    Rejected,
}

impl ChangesetState {
    /// The word for it.
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
    /// Its id: that of the tool call that opened it.
    pub changeset_id: ChangesetId,
    /// How it stands.
    pub state: ChangesetState,
    /// The revision it was made on.
    pub base: RevisionId,
    /// The revision it makes, once it was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// What its agent says it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What it changes, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
    /// Why it stands so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// When it was begun.
    pub opened_at: Timestamp,
}

/// A line of `changesets.jsonl` (`BUNDLE-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesetRecord {
    /// `swarmBundle.changeset`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its place among all records of the bundle, from 1.
    pub seq: u64,
    /// When.
    pub recorded_at: Timestamp,
    /// The changeset.
    pub changeset_id: ChangesetId,
    /// The revision it was made on.
    pub base_revision: RevisionId,
    /// The revision it makes; none if it makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// Who made it: `agent` or `person`.
    pub by: String,
    /// What it is for.
    pub message: String,
    /// What it changes, one line each.
    pub summary: Vec<String>,
}

/// What was tried (`BUNDLE-7`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusPhase {
    /// To make a revision the head.
    Commit,
    /// To make it the active one.
    Activate,
}

/// What came of it (`BUNDLE-7`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusResult {
    /// It is.
    Ok,
    /// The rules do not allow it.
    Rejected,
    /// It was tried, and did not hold.
    Failed,
    /// It waits, or there is nothing to do.
    Skipped,
}

/// A line of `changeset-status.jsonl` (`BUNDLE-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusRecord {
    /// `swarmBundle.changesetStatus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its place among all records of the bundle, from 1.
    pub seq: u64,
    /// When.
    pub recorded_at: Timestamp,
    /// The changeset; none for what no changeset led to, as an edit of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<ChangesetId>,
    /// The revision it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionId>,
    /// What was tried.
    pub phase: StatusPhase,
    /// What came of it.
    pub result: StatusResult,
    /// In words.
    pub detail: String,
}

/// A revision that has to prove itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probation {
    /// Since when it is active.
    pub since: Timestamp,
    /// Turns that were completed with it.
    pub turns: u32,
    /// What counts against it.
    pub failures: u32,
    /// A process was started with it of which nothing is known yet.
    #[serde(default)]
    pub is_started: bool,
    /// Why the last failure was one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_failure: String,
}

/// Content that is refused from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quarantined {
    /// The digest of what it changed of the project.
    pub digest: String,
    /// The revision.
    pub revision: RevisionId,
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

/// A file that is not the project's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleFile {
    /// The file.
    pub path: String,
    /// The changeset that it comes from, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<ChangesetId>,
}

/// How the configuration of a conversation stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleStatus {
    /// The project as it was last seen.
    pub base: RevisionId,
    /// What becomes active with the next step.
    pub head: RevisionId,
    /// What the agent works with.
    pub active: RevisionId,
    /// The last revision that proved itself.
    pub promoted: RevisionId,
    /// Whether a person keeps it as it is.
    pub pinned: bool,
    /// How the active revision proves itself, if it still has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probation: Option<Probation>,
    /// The files in which the head differs from the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BundleFile>,
    /// Files that a person changed, too: theirs hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Why the active revision is not the one that was meant to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Content that is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<Quarantined>,
    /// The last changesets, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changesets: Vec<ChangesetInfo>,
}
