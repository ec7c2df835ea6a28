//! `sandbox.*`: copies of chosen files, each for one worker of a run (`BOX-1`).
//!
//! Paths of files are relative to the Project Root, and quoted as git quotes them where they are no UTF-8 or
//! hold control characters.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, WorkerId, WorkspaceId};
use crate::limits::MAX_SANDBOXES_PAGE;
use crate::time::Timestamp;

use super::paging::try_page_of;

/// Names one sandbox within its workspace: the work of one agent in one run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxRef {
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
}

/// How a proposal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProposalState {
    /// It waits for a person.
    Open,
    /// Its files are in the Project Root.
    Applied,
    /// A person turned it down.
    Rejected,
    /// It was applied and taken back.
    Reverted,
}

impl ProposalState {
    /// The word for it.
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

/// What the Project Root was (`BOX-4`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposalBase {
    /// The commit that git's HEAD named; none without a repository or a commit.
    pub git_head: Option<String>,
    /// One digest of all that was given: names, kinds, modes and contents.
    pub sha256: String,
}

/// `sandbox.prepare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrepareSandbox {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The sandbox; it must be new.
    #[serde(rename = "sandbox")]
    pub at: SandboxRef,
    /// The files and directories to copy; of a directory all it holds. None for the whole Project Root.
    #[serde(default)]
    pub files: Vec<String>,
    /// Files and directories that are copied though they are usually refused (`BOX-2`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Patterns, as in `.gitignore`, of what is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Directories, besides those in `files`, in which the worker may make new files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_create: Vec<String>,
}

/// `sandbox.list`: one page of them, by run and worker (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSandboxes {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Only those of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SandboxRef>,
    /// Most sandboxes on the page, at most and if it is not said [`MAX_SANDBOXES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `sandbox.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxesPage {
    /// The sandboxes, by run and worker.
    pub sandboxes: Vec<SandboxInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SandboxRef>,
}

impl ListSandboxes {
    /// Whether a sandbox is not on a page before this one.
    #[must_use]
    pub fn is_behind(&self, at: &SandboxRef) -> bool {
        self.after.as_ref().is_none_or(|after| after < at)
    }

    /// The page that begins with these sandboxes, which come by run and worker and are all
    /// [behind](Self::is_behind) the page before. Not more of them are taken than a page and one.
    ///
    /// # Errors
    ///
    /// The first of theirs.
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
    /// Also if its proposal was neither applied nor rejected.
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
    /// When it was prepared.
    pub created_at: Timestamp,
    /// How many files and links it was given.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How its proposal stands, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalState>,
    /// Where it is.
    pub directory: PathBuf,
    /// Why it cannot be used, in a list, if it is damaged; nothing is known of its files then.
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
    /// The baseline, which nobody changes.
    pub input_dir: PathBuf,
    /// Where the worker works.
    pub work_dir: PathBuf,
    /// Where the worker may leave `summary.md` and `test.log`, and where its proposal appears.
    pub proposal_dir: PathBuf,
    /// What the Project Root was when it was prepared (`BOX-4`).
    pub base: ProposalBase,
    /// The files and links that it was given, by path.
    pub given: Vec<SandboxFile>,
    /// Where the worker may make new files; empty names nothing, `.` the whole Project Root.
    pub may_create: Vec<String>,
    /// What it was not given, and why, of what stands beside what it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<NotGiven>,
}

/// A file or link that a worker was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxFile {
    /// Its path.
    pub path: String,
    /// The SHA-256 of its content; of a link, of where it points.
    pub sha256: String,
    /// Its permission bits, in octal; `link` of a link.
    pub mode: String,
}

/// Something that a worker was never given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NotGiven {
    /// Its path. Of a directory, nothing in it was given.
    pub path: String,
    /// Why.
    pub reason: String,
}
