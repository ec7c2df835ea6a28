//! `proposal.*`: changes that a worker made in its sandbox and submitted for review (`PROP-1`,
//! `PROP-3`).
//!
//! File paths are relative to the Project Root. They are quoted as git quotes them if they are not
//! UTF-8 or contain control characters.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::pages::try_page_of;
use super::sandbox::{ProposalBase, ProposalState, SandboxRef, UncopiedPath};
use crate::ids::{EventId, RunId, WorkerId, WorkspaceId};
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
    /// The sandbox. A previous proposal in it that was not applied is replaced.
    #[serde(rename = "sandbox")]
    pub at: SandboxRef,
    /// Author and reason, in a line or two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Description of the changes and their reasons, as Markdown. If absent, the worker's
    /// `summary.md` in `proposal/` is used, or else a summary is generated from the list of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Test output. If absent, the worker's `test.log` in `proposal/` is used, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_log: Option<String>,
}

/// `proposal.list`: one page of the proposals, sorted by run and worker (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProposals {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Return only proposals of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Start of the page: `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SandboxRef>,
    /// Page size; defaults to and is capped at [`MAX_PROPOSALS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `proposal.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalsPage {
    /// The proposals, sorted by run and worker.
    pub proposals: Vec<ProposalInfo>,
    /// Start of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SandboxRef>,
}

impl ListProposals {
    /// True if a sandbox is not on an earlier page.
    #[must_use]
    pub fn is_behind(&self, at: &SandboxRef) -> bool {
        self.after.as_ref().is_none_or(|after| after < at)
    }

    /// The page that starts with these proposals, which must be sorted by run and worker and all
    /// [follow](Self::is_behind) the previous page. At most one proposal more than fits on the page
    /// is consumed.
    ///
    /// # Errors
    ///
    /// The first error of the iterator.
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
        /// The sandbox of the proposal.
        #[serde(rename = "sandbox")]
        pub at: SandboxRef
    }
    /// `proposal.show`.
    ShowProposal {}
    /// `proposal.diff`.
    DiffProposal {
        /// Byte offset in the patch at which the part starts.
        #[serde(default)]
        offset: u64,
    }
    /// `proposal.check`.
    CheckProposal {}
    /// `proposal.review`.
    ReviewProposal {}
    /// `proposal.apply`.
    ApplyProposal {
        /// Digest of the reviewed proposal. A proposal with a different digest is not applied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// Apply even if the git head or files that the worker received but did not change differ
        /// by now. Files that the proposal changes must always be unmodified.
        #[serde(default)]
        allow_moved_base: bool,
    }
    /// `proposal.reject`.
    RejectProposal {
        /// The reason, for the proposal's author.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }
    /// `proposal.revert`.
    RevertProposal {}
    /// `proposal.comment`: a comment on a file of the proposal, or on one of its lines (`REPO-3`).
    CommentProposal {
        /// The file, which the proposal changes.
        path: String,
        /// The line, counted from 1; absent for the whole file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<u32>,
        /// True if the line is one of the file before the change. A deleted file has only these.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        old: bool,
        /// The comment.
        text: String,
        /// Digest of the reviewed proposal. A proposal with a different digest gets no comment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// Id of the comment. A comment with a known id is returned, and not added again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment_id: Option<EventId>,
    }
    /// `proposal.uncomment`: removes a comment that was not sent to the agent.
    UncommentProposal {
        /// Number of the comment.
        number: u32,
    }
    /// `proposal.merge`.
    MergeProposal {
        /// The worker of the new proposal, in the same run. If absent, `AGENT-merged` or the first
        /// of `AGENT-merged-2`, … that has no sandbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        into: Option<WorkerId>,
    }
}

/// Locations of a proposal's parts, relative to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposalPaths {
    /// The baseline.
    pub input_dir: String,
    /// The changed files.
    pub work_dir: String,
    /// The patch.
    pub patch_file: String,
    /// The summary.
    pub summary_file: String,
    /// The test output, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_log_file: Option<String>,
}

/// Change of a file or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileStatus {
    /// The file was added.
    Added,
    /// Its content or executable bit changed.
    Modified,
    /// The file was deleted.
    Deleted,
    /// A file became a link, or a link became a file.
    TypeChanged,
}

impl FileStatus {
    /// The serialized form.
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
    /// The kind of change.
    pub status: FileStatus,
    /// SHA-256 of its content before the change, if it existed; for a link, of its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<String>,
    /// SHA-256 of its content after the change, if it still exists; for a link, of its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<String>,
}

/// A directory that a proposal creates or removes. Patches cannot express this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DirectoryChange {
    /// Its path.
    pub path: String,
    /// True if it is created, false if it is removed.
    pub is_made: bool,
}

/// Change of a file's permission bits, in octal. A patch only expresses the executable bit.
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

/// The proposal that another one was merged from, with the project's files of that time (`PROP-4`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergeBase {
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
    /// The digest of its `proposal.json`.
    pub digest: String,
    /// Files that combine lines of the proposal with lines edited in the project.
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
    /// Time of submission.
    pub created_at: Timestamp,
    /// State of the project that it is based on.
    pub base: ProposalBase,
    /// Locations of its parts.
    pub paths: ProposalPaths,
    /// The files and links that it changes, sorted by path.
    pub changed_files: Vec<ProposedChange>,
    /// Directories that it creates or removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryChange>,
    /// Permission bits that it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<ModeChange>,
    /// The SHA-256 of `changes.patch`.
    pub patch_sha256: String,
    /// Digest of all files after the change, computed like [`ProposalBase::sha256`].
    pub result_sha256: String,
    /// The proposal it was merged from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_from: Option<MergeBase>,
    /// Author and reason.
    pub notes: String,
}

/// A proposal in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalInfo {
    /// The sandbox it is in.
    #[serde(flatten)]
    pub at: SandboxRef,
    /// Its state.
    pub state: ProposalState,
    /// Time of submission.
    pub created_at: Timestamp,
    /// Number of files and links it changes.
    pub changed_files: usize,
    /// SHA-256 of its `proposal.json`, which identifies the whole proposal.
    pub digest: String,
    /// Author and reason.
    pub notes: String,
    /// The directory of its `proposal.json`.
    pub directory: PathBuf,
    /// Reason why it is unusable, if it is damaged. Only lists contain damaged proposals; their
    /// files and notes are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ProposalInfo {
    /// The worker's directory, next to the proposal's (`BOX-1`).
    #[must_use]
    pub fn work_dir(&self) -> PathBuf {
        self.directory.with_file_name("work")
    }
}

/// A file of a proposal, with details for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalFile {
    /// The change.
    #[serde(flatten)]
    pub change: ProposedChange,
    /// For a new file: the deleted file with the same content, which was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Size before the change, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_bytes: Option<u64>,
    /// Size after the change, in bytes.
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
    /// State of the project that it is based on.
    pub base: ProposalBase,
    /// The proposal it was merged from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_from: Option<MergeBase>,
    /// The files and links that it changes, sorted by path.
    pub files: Vec<ProposalFile>,
    /// Directories that it creates or removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryChange>,
    /// Permission bits that it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<ModeChange>,
    /// Description of the changes and their reasons, as Markdown.
    pub summary: String,
    /// Test output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_log: Option<String>,
    /// Files that the worker never received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<UncopiedPath>,
    /// Files in the worker's directory that the proposal leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<UncopiedPath>,
    /// Result of git's check of the patch when the proposal was created.
    pub git: GitCheck,
    /// The repository that it changes, if it is another one than the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The branch or the URL of the pull request that it was delivered as, if as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_as: Option<String>,
    /// Its history, oldest event first.
    pub history: Vec<RunEvent>,
    /// Comments on the proposal and on earlier ones of the sandbox, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<ProposalComment>,
}

/// A person's comment on a file of a proposal, or on one of its lines (`REPO-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalComment {
    /// Its number, counted from 1 in the sandbox. Numbers are not used again.
    pub number: u32,
    /// Its id, if the client chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment_id: Option<EventId>,
    /// Time of the comment.
    pub at: Timestamp,
    /// Digest of the proposal that it is about.
    pub digest: String,
    /// The file.
    pub path: String,
    /// The line, counted from 1; absent for the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// True if the line is one of the file before the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old: bool,
    /// Text of the line, shortened if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_text: Option<String>,
    /// The comment.
    pub text: String,
    /// State of the comment.
    #[serde(default)]
    pub state: CommentState,
    /// Time at which it was sent to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Digest of the first proposal that was submitted after it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressed_by: Option<String>,
}

impl ProposalComment {
    /// The file and the line, as in `src/main.rs:12`.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.line, self.old) {
            (None, _) => self.path.clone(),
            (Some(line), false) => format!("{}:{line}", self.path),
            (Some(line), true) => format!("{}:{line} (before the change)", self.path),
        }
    }
}

/// State of a comment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CommentState {
    /// The agent has not received it.
    #[default]
    Open,
    /// The agent received it with a request for rework.
    Sent,
}

/// Change of the comments on a proposal, in the run's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "camelCase")]
pub enum CommentChange {
    /// A comment was added.
    Added {
        /// The comment.
        comment: Box<ProposalComment>,
    },
    /// A comment was removed.
    Removed {
        /// Its number.
        number: u32,
    },
    /// Comments were sent to the agent.
    Sent {
        /// Their numbers.
        numbers: Vec<u32>,
        /// Identifies the request for rework: sending again for the same request has no effect.
        round: u64,
    },
}

/// Result of git's check of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GitCheck {
    /// The patch applies in git and changes the same files.
    Agreed,
    /// Git is not installed; the patch is verified without it (`PROP-7`).
    NotInstalled,
}

/// Result of `proposal.diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalDiff {
    /// Bytes of the patch, encoded as base64.
    pub data: String,
    /// Offset of the next part; absent if this is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Size of the whole patch, in bytes.
    pub total: u64,
}

/// Content of a path: its kind and digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum EntryStanding {
    /// The path does not exist.
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
        /// SHA-256 of its target.
        sha256: String,
    },
    /// A directory.
    Directory,
    /// A device, a socket, a pipe, or a path behind a link.
    Other,
}

/// Reason for refusing a proposal, as a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalKind {
    /// A file of the proposal or of the baseline changed after submission.
    Tampered,
    /// The worker is not allowed to change the path.
    NotAllowed,
    /// The path exists, but the worker never received it.
    NeverGiven,
    /// The file changed after the sandbox was prepared.
    Changed,
    /// The file was deleted after the sandbox was prepared.
    Deleted,
    /// A file was created at the path after the sandbox was prepared.
    Created,
    /// A file that the worker received but did not change differs by now.
    BaseChanged,
    /// The git head changed.
    HeadMoved,
    /// The daemon cannot write to the directory.
    Unwritable,
    /// The proposal's change conflicts with a change in the project.
    Conflict,
    /// The path is blocked by something that proposals never change, such as a pipe, or the daemon
    /// may not write there.
    Blocked,
}

/// One reason for refusing a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalRefusal {
    /// The reason, as a code.
    pub kind: RefusalKind,
    /// The file, if the reason is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The reason, for people to read.
    pub reason: String,
    /// Content that the worker received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<EntryStanding>,
    /// Content that the proposal results in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<EntryStanding>,
    /// Content in the Project Root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<EntryStanding>,
}

impl ProposalRefusal {
    /// True if a person may apply the proposal anyway ([`ApplyProposal::allow_moved_base`]).
    #[must_use]
    pub fn is_overridable(&self) -> bool {
        matches!(self.kind, RefusalKind::BaseChanged | RefusalKind::HeadMoved)
    }

    /// True if the project changed meanwhile, so that a merge may produce a new proposal
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

/// Comparison of the Project Root with a proposal's base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BaseCheck {
    /// The git head it is based on.
    pub given_head: Option<String>,
    /// The current git head.
    pub found_head: Option<String>,
}

/// Result of `proposal.check` and `proposal.review`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalReview {
    /// The proposal.
    pub proposal: ProposalInfo,
    /// True if it can be applied without changes.
    pub can_apply: bool,
    /// Reasons why it cannot be applied; empty if it can.
    pub refusals: Vec<ProposalRefusal>,
    /// State of the base.
    pub base: BaseCheck,
}

/// A person's file that was written while the proposal was being applied and had to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisplacedUserFile {
    /// Its original path.
    pub path: String,
    /// Its current location.
    pub at: PathBuf,
}

/// Result of `proposal.apply` and `proposal.revert`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalApplied {
    /// The proposal.
    pub proposal: ProposalInfo,
    /// The files that changed in the Project Root, sorted by path.
    pub files: Vec<String>,
    /// Files of a person that were moved aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<DisplacedUserFile>,
}

/// Result of `proposal.merge`: a new proposal or the conflicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposalMerged {
    /// The new proposal; absent if there are conflicts.
    pub proposal: Option<ProposalDetail>,
    /// The conflicts, sorted by path; if there are any, no proposal was created.
    pub conflicts: Vec<ProposalRefusal>,
}

/// Event in a run, by its name in the run's log (`PROP-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEventKind {
    /// A sandbox was prepared.
    SandboxPrepared,
    /// A sandbox was removed.
    SandboxRemoved,
    /// A proposal was submitted.
    ProposalCreated,
    /// A proposal was checked.
    ProposalReviewed,
    /// A proposal was applied.
    ProposalApplied,
    /// A proposal was rejected.
    ProposalRejected,
    /// A proposal was reverted.
    ProposalReverted,
    /// The comments on a proposal changed.
    ProposalCommented,
    /// A proposal was delivered as a branch or a pull request.
    ProposalDelivered,
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
            Self::ProposalCommented => "proposal_commented",
            Self::ProposalDelivered => "proposal_delivered",
        }
    }
}

/// One line of a run's log, `events.jsonl` (`PROP-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// The kind of event.
    #[serde(rename = "type")]
    pub kind: RunEventKind,
    /// Time of the event.
    pub at: Timestamp,
    /// The run.
    pub run_id: RunId,
    /// The worker.
    pub agent_id: WorkerId,
    /// The digest of the proposal, for events of proposals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Details, for people to read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The change of its comments, for `proposal_commented`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comments: Option<CommentChange>,
}
