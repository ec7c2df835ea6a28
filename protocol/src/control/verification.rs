//! `instance.verify` and `root.verify`: integrity checks of files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceKey, WorkspaceId};

/// `instance.verify` (`MSG-11`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyInstances {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Check only this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// True to move damaged data aside. Nothing is ever deleted.
    #[serde(default)]
    pub repair: bool,
}

/// `root.verify` (`MSG-11`): checks files that do not belong to a workspace. It also checks that
/// each workspace folder identifies its workspace, including folders that are not listed because
/// they do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyRoot {
    /// True to acknowledge missing files, so that they are not reported again.
    #[serde(default)]
    pub repair: bool,
}

/// Result of `instance.verify` and of `root.verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Number of checked conversations.
    pub instances: u64,
    /// Number of checked sandboxes, each with its proposal.
    #[serde(default)]
    pub sandboxes: u64,
    /// Number of files read.
    pub files: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Problems; after a repair, the problems that existed before it.
    pub findings: Vec<FileFinding>,
    /// Original files that a repair preserved next to the rewritten ones.
    pub kept: Vec<PathBuf>,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingSeverity {
    /// Informational; nothing is lost.
    Info,
    /// Unexpected state, without known loss of acknowledged data.
    Warning,
    /// Written data cannot be read.
    Error,
}

impl FindingSeverity {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileFinding {
    /// The conversation; absent if the file belongs to the whole workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Its severity.
    pub severity: FindingSeverity,
    /// Kind of problem, such as `torn-tail` or `damaged-record`; `docs/storage.md` lists all kinds.
    pub kind: String,
    /// The file.
    pub path: PathBuf,
    /// First affected line, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Affected byte range: first byte, counted from 0, and the byte after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<[u64; 2]>,
    /// The problem and its meaning.
    pub problem: String,
    /// A suggested action.
    pub advice: String,
    /// Location of a copy of the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_in: Option<PathBuf>,
}
