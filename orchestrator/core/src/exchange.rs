//! Ids shared by core and shell, and the data in inputs and effects.

use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::{ChangesetPolicy, Sources};
use goondan_durable::VerificationResult;
use goondan_merge_queue::{Landing, Record};
use goondan_protocol::bundle::BundleAsk;
use goondan_protocol::control::{
    AllowSecret, ApplyProposal, CheckProposal, CommentProposal, ControlError, CreateProposal,
    DecidePermission, DenySecret, DiffProposal, ListProposals, ListSandboxes, MergeProposal,
    PermissionDecided, PermissionList, PrepareSandbox, RejectProposal, RemoveSandbox, RemoveSecret,
    RevertProposal, ReviewProposal, RunEvent, SandboxRef, SecretChanged, SecretConsentChanged,
    SecretList, SecretsRotated, SetSecret, ShowProposal, ShowSandbox, UncommentProposal,
};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{
    AgentName, ChangesetId, InstanceKey, InstanceRef, RehearsalSubject, ResourceName, RevisionId,
    WorkspaceId,
};
use goondan_protocol::ipc::EnvelopeHeader;
use goondan_protocol::task::{GitCredentials, RepositorySource, TaskId};
use goondan_protocol::time::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) mod chat_proposals;
pub(crate) mod joint;
pub(crate) mod oauth;
pub(crate) mod oauth_calls;
pub(crate) mod schedules;
pub(crate) mod task_budgets;
pub(crate) mod task_calls;
pub(crate) mod tasks;

pub(crate) use tasks::{TaskRef, TaskResult, TaskWork};

/// The time at which something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockTime {
    /// Milliseconds on a clock that only moves forwards: for delays.
    pub mono_ms: u64,
    /// Calendar time, for records.
    pub wall: Timestamp,
}

/// Id of one child process of this run of the daemon; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// A message of a child process that can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildRequest {
    pub(crate) process: ProcessId,
    /// The message's id; `None` if the process does not match the answer with it.
    pub(crate) request_id: Option<u64>,
}

#[derive(Debug, Clone)]
pub enum MetricsReader {
    Client(RequestToken),
    /// A connection: of its own workspace and the daemon.
    Connection {
        process: ProcessId,
        head: EnvelopeHeader,
        workspace_id: WorkspaceId,
    },
}

/// Id of one request of one client connection; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestToken(pub u64);

/// The client that makes a request, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's process at the time of its connection.
    pub pid: Option<u32>,
    pub standing: ClientOrigin,
}

#[cfg(test)]
impl Peer {
    pub(crate) fn person() -> Self {
        Self {
            pid: None,
            standing: ClientOrigin::Person,
        }
    }
}

/// Origin of a client, as far as the shell can determine it (`SEC-4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOrigin {
    /// A person or their program, not a descendant of the daemon's children.
    Person,
    /// It was started by the daemon's own children: an agent's tool, or a connector's program.
    BelowDaemon,
    /// The origin could not be determined, for this reason. The client does not count as a person.
    Unknown(&'static str),
}

/// Operation on the persistent state of a connection.
#[derive(Debug, Clone)]
pub enum StateWork {
    Get,
    Set(Box<RawValue>),
}

/// Result of an operation on a connection's state.
#[derive(Debug, Clone)]
pub enum StateResult {
    Found(Option<Box<RawValue>>),
    Kept,
}

/// Operation on the secret store.
#[derive(Debug)]
pub enum SecretWork {
    List,
    Set(SetSecret),
    /// Remove a secret, or one entry.
    Remove(RemoveSecret),
    /// Let a workspace use a secret.
    Allow(AllowSecret),
    Deny(DenySecret),
    /// List the decisions about permissions of workspaces.
    ListPermissions,
    /// Store a person's decision about a permission of a workspace.
    Decide(DecidePermission),
    Rotate,
    /// Check that each document can be decrypted and matches the register.
    Verify {
        /// True to acknowledge lost data.
        repair: bool,
    },
}

/// Result of an operation on the secret store.
#[derive(Debug)]
pub enum SecretsResult {
    Listed(SecretList),
    Changed(SecretChanged),
    /// The new consent, durable.
    Allowed(SecretConsentChanged),
    /// The revoked consent, durable.
    Denied(SecretConsentChanged),
    Permissions(PermissionList),
    /// The decision, durable.
    Decided(PermissionDecided),
    /// Result of the re-encryption.
    Rotated(SecretsRotated),
    Verified(Box<VerificationResult>),
}

macro_rules! proposal_work {
    ($($(#[$doc:meta])* $name:ident($call:ident),)*) => {
        /// Operation on sandboxes and proposals.
        #[derive(Debug)]
        pub enum ProposalWork {
            $($(#[$doc])* $name($call),)*
        }

        impl ProposalWork {
            /// The workspace of the operation.
            pub fn workspace_id(&self) -> &WorkspaceId {
                match self {
                    $(Self::$name(call) => &call.workspace_id,)*
                }
            }
        }
    };
}

/// Check the sandboxes of a workspace, its tasks, and all checkpoints.
#[derive(Debug)]
pub struct VerifySandboxes {
    pub workspace_id: WorkspaceId,
    /// True to move damaged files aside, with the data that replaces them in checkpoints.
    pub repair: bool,
    /// Tasks whose histories are open for writing, so that nothing may replace them.
    pub open_tasks: Vec<TaskId>,
}

/// Prepare the sandbox of a task, unless it exists already.
#[derive(Debug)]
pub struct PrepareForTask {
    pub workspace_id: WorkspaceId,
    pub prepare: PrepareSandbox,
    /// Creation time of the task: a sandbox that is older belongs to an earlier task.
    pub made_at: Timestamp,
    /// The repository to clone, unless the source is the project.
    pub source: Option<RepositorySource>,
    pub credentials: Option<GitCredentials>,
}

/// Make the proposal of a task a branch of its source's repository.
#[derive(Debug)]
pub struct DeliverBranch {
    pub workspace_id: WorkspaceId,
    pub apply: ApplyProposal,
    /// Credentials for a repository with a URL.
    pub credentials: Option<GitCredentials>,
}

/// Record the pull request that a proposal was delivered as.
#[derive(Debug)]
pub struct NoteDelivery {
    pub workspace_id: WorkspaceId,
    pub at: SandboxRef,
    pub digest: String,
    pub delivered_as: String,
}

/// Create a proposal from the changes of a task's agent.
#[derive(Debug)]
pub struct ProposeForTask {
    pub workspace_id: WorkspaceId,
    pub create: CreateProposal,
    /// The agent's last message, used as the summary if the agent wrote none.
    pub words: Option<String>,
}

/// Take the open comments on the proposal of a task for a request for rework.
#[derive(Debug)]
pub struct TakeComments {
    pub workspace_id: WorkspaceId,
    pub at: SandboxRef,
    /// Identifies the request: a repetition returns the same comments.
    pub round: u64,
}

/// A coordinating agent that reviews or applies a proposal (`PROP-8`).
#[derive(Debug, Clone)]
pub struct ReviewingAgent {
    pub agent: AgentName,
    /// The agent's conversation.
    pub instance_key: InstanceKey,
    /// Patterns of the paths that the agent may change; empty if a person must apply the proposal.
    pub paths: Vec<String>,
    /// Sources of the project's configuration, which the agent must not change.
    pub sources: Arc<Sources>,
}

/// Check a proposal for an agent.
#[derive(Debug)]
pub struct ReviewByAgent {
    pub workspace_id: WorkspaceId,
    pub at: SandboxRef,
    pub by: ReviewingAgent,
}

/// Apply a proposal for an agent.
#[derive(Debug)]
pub struct ApplyByAgent {
    pub workspace_id: WorkspaceId,
    pub apply: ApplyProposal,
    pub by: ReviewingAgent,
}

/// An operation on the files of the merge queue of a workspace's project.
#[derive(Debug)]
pub struct QueueWork {
    pub workspace_id: WorkspaceId,
    /// Patterns of files with secrets of the project.
    pub exclude: Vec<String>,
    /// The repository in which the proposals of the step land, unless they land in the project.
    pub repository: Option<QueueRepository>,
    pub step: QueueStep,
}

/// A repository with a branch on which proposals land.
#[derive(Debug)]
pub struct QueueRepository {
    /// Address and branch of the repository.
    pub source: RepositorySource,
    pub credentials: Option<GitCredentials>,
}

/// Kind of an operation on the files of a merge queue.
#[derive(Debug)]
pub enum QueueStep {
    /// The answer has all records.
    Load,
    Record(Vec<Record>),
    /// The answer is a [`Rebase`](goondan_merge_queue::Rebase).
    Rebase {
        attempt: u64,
        /// Those of open pull requests, each with its URL, which the result includes.
        earlier: Vec<(QueuedSandbox, String)>,
        proposals: Vec<QueuedSandbox>,
        /// True if the result becomes a pull request.
        is_pull_request: bool,
    },
    /// The answer is a [`LandingResult`](goondan_merge_queue::LandingResult).
    Land {
        landing: Landing,
        proposals: Vec<QueuedSandbox>,
    },
    /// As for a landing.
    Find {
        landing: Landing,
    },
    /// Record the pull request of landed proposals, unless that was done.
    NoteOpened {
        proposals: Vec<QueuedSandbox>,
        url: String,
    },
    Discard {
        attempt: u64,
    },
    /// The answer has the files that have the project's version.
    HandBack(QueuedSandbox),
}

/// A proposal in a merge queue, and its sandbox.
#[derive(Debug)]
pub struct QueuedSandbox {
    pub task: TaskId,
    /// Title of the task.
    pub title: String,
    pub at: SandboxRef,
    pub digest: String,
}

proposal_work! {
    /// Copy files for a worker.
    Prepare(PrepareSandbox),
    /// Copy files for the agent of a task, unless that was done.
    PrepareForTask(PrepareForTask),
    /// Create a proposal from the changes of a task's agent, if there are any.
    ProposeForTask(ProposeForTask),
    /// Apply the proposal of a task, unless that was done.
    Deliver(ApplyProposal),
    /// Push a task's proposal to a branch of its source's repository, unless that was done; the
    /// answer is a `DeliveredBranch`.
    DeliverBranch(DeliverBranch),
    /// Record the pull request of a proposal, unless that was done.
    NoteDelivery(NoteDelivery),
    ListSandboxes(ListSandboxes),
    ShowSandbox(ShowSandbox),
    Remove(RemoveSandbox),
    /// Create a proposal from a worker's changes.
    Create(CreateProposal),
    List(ListProposals),
    Show(ShowProposal),
    /// Read a part of the patch.
    Diff(DiffProposal),
    /// Check whether the proposal can be applied.
    Check(CheckProposal),
    /// Check the proposal, and record the result.
    Review(ReviewProposal),
    Apply(ApplyProposal),
    /// Check the proposal for an agent, and record the result.
    ReviewByAgent(ReviewByAgent),
    /// Apply the proposal for an agent, unless that was done, if the agent may change all of its
    /// paths.
    ApplyByAgent(ApplyByAgent),
    Reject(RejectProposal),
    Revert(RevertProposal),
    /// Add a comment on a file or a line.
    Comment(CommentProposal),
    /// Remove a comment that was not sent.
    Uncomment(UncommentProposal),
    /// Mark the open comments as sent, unless that was done, and return them.
    TakeComments(TakeComments),
    /// Merge the proposal into a new one on top of the project's current files.
    Merge(MergeProposal),
    /// Operate on the files of the merge queue.
    Queue(QueueWork),
    /// Verify all files of sandboxes and proposals; the answer contains the number of sandboxes and
    /// a [`VerificationResult`](goondan_durable::VerificationResult).
    Verify(VerifySandboxes),
}

/// Result of an operation on sandboxes and proposals.
#[derive(Debug)]
pub struct ProposalsResult {
    /// The answer for the caller.
    pub answer: Result<Value, ControlError>,
    /// Durable events, even if the operation failed.
    pub happened: Vec<RunEvent>,
}

/// Usage and limit of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLevel {
    pub used: u64,
    pub limit: u64,
}

/// Resources that processes need. A resource without a value counts as sufficient.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// File descriptors of the daemon.
    pub descriptors: Option<ResourceLevel>,
    /// Processes and their threads, of the machine or the control group.
    pub tasks: Option<ResourceLevel>,
    /// Memory of the machine or the control group, in bytes.
    pub memory_bytes: Option<ResourceLevel>,
}

/// Operation on the bundle of a conversation.
#[derive(Debug)]
pub enum BundleAction {
    /// Return the definition with which the agent's process must start.
    Arm {
        /// True if the agent makes changesets, and needs a directory for them.
        is_author: bool,
    },
    /// Count the outcome of a turn or a process.
    Note(ConfigOutcome),
    /// Execute a request of the bundle's agent.
    Ask {
        ask: BundleAsk,
        /// The id of the tool call.
        call: ChangesetId,
    },
    /// Execute a request of a client.
    Serve(BundleCall),
}

/// Outcome of a turn or a process that the configuration may have caused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOutcome {
    Completed,
    /// A turn failed, or its process crashed, for this reason.
    Failed(String),
    /// A turn ended for another reason.
    Neutral,
}

/// A client's request about a bundle.
#[derive(Debug)]
pub enum BundleCall {
    Show,
    /// Return the outcome of each changeset.
    Log,
    Changeset(ChangesetId),
    /// Replay this number of the latest turns with a changeset or a revision.
    Rehearse(RehearsalSubject, u32),
    Approve(ChangesetId, String),
    Reject(ChangesetId, String),
    /// Roll back to a revision.
    Revert(Option<RevisionId>, String),
    /// Pin the active revision, or remove the pin.
    Pin(bool),
}

/// Operation on the bundle of a conversation. At most one operation per conversation is in
/// progress.
#[derive(Debug)]
pub struct BundleWork {
    pub instance: InstanceRef,
    /// The conversation's agent, if known.
    pub agent: Option<AgentName>,
    /// The Project Root of the workspace.
    pub project_root: PathBuf,
    /// Name of the workspace's package, if it has one.
    pub package: Option<String>,
    /// Environment files that the user named for the workspace.
    pub env_files: Vec<PathBuf>,
    /// The Swarm that the user named for the workspace.
    pub swarm: Option<ResourceName>,
    /// Sources of the running configuration; `None` if they differ from the current files.
    pub sources: Option<Arc<Sources>>,
    /// Rules for changes by agents; `None` if they are not allowed.
    pub policy: Option<ChangesetPolicy>,
    pub at: Timestamp,
    pub action: BundleAction,
}

/// Result of an operation on a bundle.
#[derive(Debug)]
pub struct BundleResult {
    pub instance: InstanceRef,
    /// The answer for the caller; for an agent a
    /// [`BundleAskResult`](goondan_protocol::bundle::BundleAskResult).
    pub answer: Result<Value, ControlError>,
    /// The definition with which the agent's process must start, if it was requested; `None` for
    /// the project's own.
    pub definition: Option<Box<AgentDefinition>>,
    /// Current status of the bundle, if known.
    pub standing: Option<BundleStanding>,
    pub happened: Vec<BundleChange>,
}

/// Status of a bundle, as far as the core needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleStanding {
    /// The active revision; `None` for the unchanged project.
    pub active: Option<RevisionId>,
    /// True if another revision becomes active at the next step.
    pub is_pending: bool,
    /// True if the active revision is on probation.
    pub is_on_probation: bool,
    /// Reason why another revision than the intended one is active.
    pub problem: Option<String>,
}

/// A change of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleChange {
    pub what: &'static str,
    /// The changeset that caused the change, if any.
    pub changeset_id: Option<ChangesetId>,
    /// The revision of the change.
    pub revision: Option<RevisionId>,
    pub detail: String,
}
