//! `proposal.*`: what a worker changed in its sandbox, handed in for a person to look at (`PROP-1`, `PROP-3`).
//!
//! Paths of files are relative to the Project Root, and quoted as git quotes them where they are no UTF-8 or
//! hold control characters.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::paging::try_page_of;
use super::sandbox::{NotGiven, ProposalBase, ProposalState, SandboxRef};
use crate::ids::{RunId, WorkerId, WorkspaceId};
use crate::limits::MAX_PROPOSALS_PAGE;
use crate::time::Timestamp;

/// `version` of [`ProposalRecord`].
pub const PROPOSAL_VERSION: &str = "1";

/// `proposal.create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateProposal {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The sandbox. A proposal in it that was not applied is replaced.
    #[serde(rename = "sandbox")]
    pub at: SandboxRef,
    /// Who hands it in and why, in a line or two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// What was done and why, as Markdown. Without it `summary.md` is taken that the worker wrote into
    /// `proposal/`, else one is made of the list of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What the tests said. Without it `test.log` is taken that the worker wrote into `proposal/`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_log: Option<String>,
}

/// `proposal.list`: one page of them, by run and worker (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProposals {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Only those of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SandboxRef>,
    /// Most proposals on the page, at most and if it is not said [`MAX_PROPOSALS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `proposal.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalsPage {
    /// The proposals, by run and worker.
    pub proposals: Vec<ProposalInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SandboxRef>,
}

impl ListProposals {
    /// Whether a sandbox is not on a page before this one.
    #[must_use]
    pub fn is_behind(&self, at: &SandboxRef) -> bool {
        self.after.as_ref().is_none_or(|after| after < at)
    }

    /// The page that begins with these proposals, which come by run and worker and are all
    /// [behind](Self::is_behind) the page before. Not more of them are taken than a page and one.
    ///
    /// # Errors
    ///
    /// The first of theirs.
    pub fn page_of<E>(
        &self,
        proposals: impl Iterator<Item = Result<ProposalInfo, E>>,
    ) -> Result<ProposalsPage, E> {
        let place_of = |last: &ProposalInfo| last.at.clone();
        let (proposals, next) = try_page_of(proposals, self.limit, MAX_PROPOSALS_PAGE, place_of)?;
        Ok(ProposalsPage { proposals, next })
    }
}

requests_about! {
    {
        /// The sandbox whose proposal it is.
        #[serde(rename = "sandbox")]
        pub at: SandboxRef
    }
    /// `proposal.show`.
    ShowProposal {}
    /// `proposal.diff`.
    DiffProposal {
        /// From which byte of the patch on.
        #[serde(default)]
        offset: u64,
    }
    /// `proposal.check`.
    CheckProposal {}
    /// `proposal.review`.
    ReviewProposal {}
    /// `proposal.apply`.
    ApplyProposal {
        /// The digest of the proposal that was looked at: another one is not applied in its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// Also if the git head is another one by now, or files that were given and not changed are. Files
        /// that the proposal changes must be as they were.
        #[serde(default)]
        allow_moved_base: bool,
    }
    /// `proposal.reject`.
    RejectProposal {
        /// Why, for whoever made it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }
    /// `proposal.revert`.
    RevertProposal {}
    /// `proposal.merge`.
    MergeProposal {
        /// The worker that the new proposal is one of, in the same run; without it `AGENT-merged`, or the
        /// first of `AGENT-merged-2`, … that has no sandbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        into: Option<WorkerId>,
    }
}

/// Where the parts of a proposal are, relative to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposalPaths {
    /// The baseline.
    pub input_dir: String,
    /// What the worker changed.
    pub work_dir: String,
    /// The patch.
    pub patch_file: String,
    /// What was done and why.
    pub summary_file: String,
    /// What the tests said, if they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_log_file: Option<String>,
}

/// What became of a file or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileStatus {
    /// It is new.
    Added,
    /// Its content, or whether it can be executed, is another one.
    Modified,
    /// It is gone.
    Deleted,
    /// A file became a link, or a link a file.
    TypeChanged,
}

impl FileStatus {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::TypeChanged => "typeChanged",
        }
    }
}

/// A file that a proposal changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposedChange {
    /// Its path.
    pub path: String,
    /// What becomes of it.
    pub status: FileStatus,
    /// The SHA-256 of its content before, if it was there; of a link, of where it points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<String>,
    /// The same of its content after, if it is there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<String>,
}

/// A directory that a proposal makes or removes, which a patch does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DirectoryChange {
    /// Its path.
    pub path: String,
    /// Whether it is made, or else removed.
    pub is_made: bool,
}

/// Permission bits of a file that are to change, in octal. A patch tells whether it can be executed, and no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModeChange {
    /// The file.
    pub path: String,
    /// The bits before.
    pub old: String,
    /// The bits after.
    pub new: String,
}

/// Which proposal another one was merged from, on top of the project's files as they were then (`PROP-4`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergedFrom {
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
    /// The digest of its `proposal.json`.
    pub digest: String,
    /// The files that hold lines of both: of the proposal, and of who edited them in the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

/// `proposal.json` (`PROP-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposalRecord {
    /// [`PROPOSAL_VERSION`].
    pub version: String,
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
    /// When it was handed in.
    pub created_at: Timestamp,
    /// What it was made from.
    pub base: ProposalBase,
    /// Where its parts are.
    pub paths: ProposalPaths,
    /// The files and links that it changes, by path.
    pub changed_files: Vec<ProposedChange>,
    /// Directories that it makes or removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryChange>,
    /// Permission bits that it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<ModeChange>,
    /// The SHA-256 of `changes.patch`.
    pub patch_sha256: String,
    /// The digest of all files after the change, as [`ProposalBase::sha256`] is of those before.
    pub result_sha256: String,
    /// Which proposal it was merged from, if from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_from: Option<MergedFrom>,
    /// Who handed it in and why.
    pub notes: String,
}

/// A proposal in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalInfo {
    /// The sandbox it is in.
    #[serde(flatten)]
    pub at: SandboxRef,
    /// How it stands.
    pub state: ProposalState,
    /// When it was handed in.
    pub created_at: Timestamp,
    /// How many files and links it changes.
    pub changed_files: usize,
    /// The SHA-256 of its `proposal.json`, which stands for all of it.
    pub digest: String,
    /// Who handed it in and why.
    pub notes: String,
    /// The directory of its `proposal.json`.
    pub directory: PathBuf,
    /// Why it cannot be used, in a list, if it is damaged; nothing is known of its files and notes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ProposalInfo {
    /// The directory that the worker worked in, beside that of the proposal (`BOX-1`).
    #[must_use]
    pub fn work_dir(&self) -> PathBuf {
        self.directory.with_file_name("work")
    }
}

/// A file of a proposal, as a person is shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalFile {
    /// What becomes of it.
    #[serde(flatten)]
    pub change: ProposedChange,
    /// The deleted file with the same content, if it is new: it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Its bytes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_bytes: Option<u64>,
    /// Its bytes after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_bytes: Option<u64>,
}

/// Result of `proposal.create` and `proposal.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalDetail {
    /// The proposal.
    #[serde(flatten)]
    pub info: ProposalInfo,
    /// What it was made from.
    pub base: ProposalBase,
    /// Which proposal it was merged from, if from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_from: Option<MergedFrom>,
    /// The files and links that it changes, by path.
    pub files: Vec<ProposalFile>,
    /// Directories that it makes or removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryChange>,
    /// Permission bits that it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<ModeChange>,
    /// What was done and why, as Markdown.
    pub summary: String,
    /// What the tests said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_log: Option<String>,
    /// What the worker was never given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<NotGiven>,
    /// What is in the worker's directory and was left out of the proposal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<NotGiven>,
    /// Whether git agreed with the patch when the proposal was made.
    pub git: GitCheck,
    /// What happened to it, the oldest first.
    pub history: Vec<RunEvent>,
}

/// What git said of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GitCheck {
    /// It applies, and changes the same files.
    Agreed,
    /// Git is not installed; the patch is proved without it (`PROP-7`).
    NotInstalled,
}

/// Result of `proposal.diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalDiff {
    /// Bytes of the patch, in base64.
    pub data: String,
    /// Where the next part begins; none if there is no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Bytes of the whole patch.
    pub total: u64,
}

/// What a path holds: its kind, and the SHA-256 of its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum EntryStanding {
    /// Nothing.
    Missing,
    /// A file.
    File {
        /// The SHA-256 of its content.
        sha256: String,
        /// Its permission bits, in octal.
        mode: String,
    },
    /// A link.
    Link {
        /// The SHA-256 of where it points.
        sha256: String,
    },
    /// A directory.
    Directory,
    /// A device, a socket, a pipe, or something behind a link.
    Other,
}

/// Why a proposal is refused, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalKind {
    /// A file of the proposal, or of the baseline, is not as it was handed in.
    Tampered,
    /// The path lies outside of what the worker may change.
    NotAllowed,
    /// The path is there, and the worker was never given it.
    NeverGiven,
    /// The file was changed since the sandbox was prepared.
    Changed,
    /// The file was deleted since.
    Deleted,
    /// Something was put there since.
    Created,
    /// A file that was given, and that the proposal does not change, is another one by now.
    BaseChanged,
    /// The git head is another one.
    HeadMoved,
    /// The daemon cannot write the directory.
    Unwritable,
    /// What the proposal makes of the path and what became of it in the project contradict each other.
    Conflict,
    /// Something is in the way that no proposal changes, such as a pipe, or the daemon may not write there.
    Blocked,
}

/// One reason why a proposal is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// In a word.
    pub kind: RefusalKind,
    /// Of which file, if of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// In words.
    pub reason: String,
    /// What the worker was given, of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<EntryStanding>,
    /// What the proposal makes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<EntryStanding>,
    /// What is in the Project Root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<EntryStanding>,
}

impl Refusal {
    /// Whether a person may apply it all the same ([`ApplyProposal::allow_moved_base`]).
    #[must_use]
    pub fn is_overridable(&self) -> bool {
        matches!(self.kind, RefusalKind::BaseChanged | RefusalKind::HeadMoved)
    }

    /// Whether it is that the project moved on, so that a new proposal may be merged from this one
    /// ([`MergeProposal`]).
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(
            self.kind,
            RefusalKind::Changed
                | RefusalKind::Deleted
                | RefusalKind::Created
                | RefusalKind::BaseChanged
                | RefusalKind::HeadMoved
        )
    }
}

/// How the Project Root stands against what a proposal was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BaseCheck {
    /// The git head that it was made from.
    pub given_head: Option<String>,
    /// The git head there is.
    pub found_head: Option<String>,
}

/// Result of `proposal.check` and `proposal.review`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalReview {
    /// The proposal.
    pub proposal: ProposalInfo,
    /// Whether it can be applied as it is.
    pub can_apply: bool,
    /// Why not; none if it can.
    pub refusals: Vec<Refusal>,
    /// How the base stands.
    pub base: BaseCheck,
}

/// Something a person wrote at the very moment of the change, and could not stay at its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptAside {
    /// Its path.
    pub path: String,
    /// Where it is now.
    pub at: PathBuf,
}

/// Result of `proposal.apply` and `proposal.revert`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalApplied {
    /// The proposal.
    pub proposal: ProposalInfo,
    /// The files that changed in the Project Root, by path.
    pub files: Vec<String>,
    /// What a person wrote meanwhile and was kept aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptAside>,
}

/// Result of `proposal.merge`: a new proposal, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalMerged {
    /// The new proposal; none if anything conflicts.
    pub proposal: Option<ProposalDetail>,
    /// What conflicts, by path; nothing was made then.
    pub conflicts: Vec<Refusal>,
}

/// What happens in a run, by its name in the run's log (`PROP-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEventKind {
    /// A sandbox was prepared.
    SandboxPrepared,
    /// A sandbox was removed.
    SandboxRemoved,
    /// A proposal was handed in.
    ProposalCreated,
    /// It was checked.
    ProposalReviewed,
    /// It was put in place.
    ProposalApplied,
    /// It was turned down.
    ProposalRejected,
    /// It was taken back.
    ProposalReverted,
}

impl RunEventKind {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SandboxPrepared => "sandbox_prepared",
            Self::SandboxRemoved => "sandbox_removed",
            Self::ProposalCreated => "proposal_created",
            Self::ProposalReviewed => "proposal_reviewed",
            Self::ProposalApplied => "proposal_applied",
            Self::ProposalRejected => "proposal_rejected",
            Self::ProposalReverted => "proposal_reverted",
        }
    }
}

/// One line of a run's log, `events.jsonl` (`PROP-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: RunEventKind,
    /// When.
    pub at: Timestamp,
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
    /// The digest of the proposal, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What else there is to say, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}
