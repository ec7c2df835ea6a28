//! `instance.verify` and `root.verify`: whether files are as they were written.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceKey, WorkspaceId};

/// `instance.verify` (`MSG-11`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyInstances {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Only this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Whether damage is set aside. Nothing is ever deleted.
    #[serde(default)]
    pub repair: bool,
}

/// `root.verify` (`MSG-11`): what belongs to no workspace, and whether each folder of a workspace says
/// whose it is, also where it is in no list for want of that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyRoot {
    /// Whether a person says that they know of what is missing: it is not reported again.
    #[serde(default)]
    pub repair: bool,
}

/// Result of `instance.verify` and of `root.verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Conversations that were checked.
    pub instances: u64,
    /// Sandboxes that were checked, each with its proposal.
    #[serde(default)]
    pub sandboxes: u64,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is not as it should be; after a repair, what was not.
    pub findings: Vec<Finding>,
    /// Files that a repair kept as they were, beside those it wrote anew.
    pub kept: Vec<PathBuf>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingSeverity {
    /// Good to know; nothing is lost.
    Info,
    /// Something is not as it was left; nothing that was acknowledged is known to be lost.
    Warning,
    /// Something that was written cannot be read.
    Error,
}

impl FindingSeverity {
    /// The severity as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was found wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The conversation; none if the file belongs to the workspace as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// How bad it is.
    pub severity: FindingSeverity,
    /// What kind of thing it is, such as `torn-tail` or `damaged-record`; `docs/storage.md` lists
    /// them.
    pub kind: String,
    /// The file.
    pub path: PathBuf,
    /// The line it begins in, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The bytes it is about: the first, from 0, and the one behind the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<[u64; 2]>,
    /// What was found and what it means.
    pub problem: String,
    /// What to do about it.
    pub advice: String,
    /// Where a copy of the bytes is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_in: Option<PathBuf>,
}
