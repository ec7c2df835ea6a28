//! `sandbox.*`: copies of selected files, each for one worker of a run (`BOX-1`).
//!
//! File paths are relative to the Project Root. They are quoted as git quotes them if they are not
//! UTF-8 or contain control characters.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, WorkerId, WorkspaceId};
use crate::limits::MAX_SANDBOXES_PAGE;
use crate::time::Timestamp;

use super::pages::try_page_of;

/// Identifies a sandbox within its workspace: one worker in one run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxRef {
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
}

/// State of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProposalState {
    /// It waits for a person's decision.
    Open,
    /// Its files are in the Project Root.
    Applied,
    /// A person rejected it.
    Rejected,
    /// It was applied and then reverted.
    Reverted,
}

impl ProposalState {
    /// The serialized form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Applied => "applied",
            Self::Rejected => "rejected",
            Self::Reverted => "reverted",
        }
    }
}

/// State of the Project Root (`BOX-4`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposalBase {
    /// The commit of git's HEAD; absent without a repository or a commit.
    pub git_head: Option<String>,
    /// Digest of all copied files: names, kinds, modes and contents.
    pub sha256: String,
}

/// `sandbox.prepare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrepareSandbox {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The sandbox, which must be new.
    #[serde(rename = "sandbox")]
    pub at: SandboxRef,
    /// Files and directories to copy, directories recursively. Empty for the whole Project Root.
    #[serde(default)]
    pub files: Vec<String>,
    /// Files and directories to copy although they are usually refused (`BOX-2`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Patterns to exclude, as in `.gitignore`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Directories, besides those in `files`, in which the worker may create files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_create: Vec<String>,
}

/// `sandbox.list`: one page of the sandboxes, sorted by run and worker (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSandboxes {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Return only sandboxes of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SandboxRef>,
    /// Page size; defaults to and is capped at [`MAX_SANDBOXES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `sandbox.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxesPage {
    /// The sandboxes, sorted by run and worker.
    pub sandboxes: Vec<SandboxInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SandboxRef>,
}

impl ListSandboxes {
    /// True if a sandbox is not on an earlier page.
    #[must_use]
    pub fn is_behind(&self, at: &SandboxRef) -> bool {
        self.after.as_ref().is_none_or(|after| after < at)
    }

    /// The page that starts with these sandboxes, which must be sorted by run and worker and all
    /// [follow](Self::is_behind) the previous page. At most one sandbox more than fits on the page
    /// is consumed.
    ///
    /// # Errors
    ///
    /// The first error of the iterator.
    pub fn page_of<E>(
        &self,
        sandboxes: impl Iterator<Item = Result<SandboxInfo, E>>,
    ) -> Result<SandboxesPage, E> {
        let place_of = |last: &SandboxInfo| last.at.clone();
        let (sandboxes, next) = try_page_of(sandboxes, self.limit, MAX_SANDBOXES_PAGE, place_of)?;
        Ok(SandboxesPage { sandboxes, next })
    }
}

/// `sandbox.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowSandbox {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The sandbox.
    #[serde(rename = "sandbox")]
    pub at: SandboxRef,
}

/// `sandbox.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveSandbox {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The sandbox.
    #[serde(rename = "sandbox")]
    pub at: SandboxRef,
    /// True to remove it even if its proposal was neither applied nor rejected.
    #[serde(default)]
    pub force: bool,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxInfo {
    /// The sandbox.
    #[serde(flatten)]
    pub at: SandboxRef,
    /// Time of its preparation; `None` if neither its record nor the run's log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Number of copied files and links.
    pub files: usize,
    /// Their total size, in bytes.
    pub bytes: u64,
    /// State of its proposal, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalState>,
    /// Its directory.
    pub directory: PathBuf,
    /// Reason why it is unusable, if it is damaged. Only lists contain damaged sandboxes; their
    /// files are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Result of `sandbox.prepare` and `sandbox.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDetail {
    /// The sandbox.
    #[serde(flatten)]
    pub info: SandboxInfo,
    /// The baseline, which is never modified.
    pub input_dir: PathBuf,
    /// The worker's working directory.
    pub work_dir: PathBuf,
    /// Directory in which the worker may leave `summary.md` and `test.log`, and in which its
    /// proposal appears.
    pub proposal_dir: PathBuf,
    /// State of the Project Root when it was prepared (`BOX-4`).
    pub base: ProposalBase,
    /// The copied files and links, sorted by path.
    pub given: Vec<SandboxFile>,
    /// Directories in which the worker may create files; empty for none, `.` for the whole Project
    /// Root.
    pub may_create: Vec<String>,
    /// Neighbors of the copied files that were not copied, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<UncopiedPath>,
}

/// A file or link that was copied for a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxFile {
    /// Its path.
    pub path: String,
    /// SHA-256 of its content; for a link, of its target.
    pub sha256: String,
    /// Its permission bits, in octal; `link` for a link.
    pub mode: String,
}

/// A path that was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UncopiedPath {
    /// Its path. If it is a directory, none of its content was copied.
    pub path: String,
    /// The reason.
    pub reason: String,
}
