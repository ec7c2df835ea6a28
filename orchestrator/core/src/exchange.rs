//! What core and shell name things by, and what inputs and effects carry.

use std::path::PathBuf;
use std::sync::Arc;

use goondan_config::{ChangesetPolicy, Sources};
use goondan_durable::Verified;
use goondan_protocol::bundle::BundleAsk;
use goondan_protocol::control::{
    AllowSecret, ApplyProposal, CheckProposal, ControlError, CreateProposal, DenySecret,
    DiffProposal, ListProposals, ListSandboxes, MergeProposal, PrepareSandbox, RejectProposal,
    RemoveSandbox, RemoveSecret, RevertProposal, ReviewProposal, RunEvent, SecretChanged,
    SecretConsentChanged, SecretList, SecretsRotated, SetSecret, ShowProposal, ShowSandbox,
};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{
    AgentName, ChangesetId, InstanceRef, RehearsalSubject, RevisionId, WorkspaceId,
};
use goondan_protocol::ipc::Head;
use goondan_protocol::time::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) mod joint;
pub(crate) mod oauth;
pub(crate) mod oauth_calls;
pub(crate) mod task_budgets;
pub(crate) mod task_calls;
pub(crate) mod tasks;

pub(crate) use tasks::{TaskDone, TaskRef, TaskWork};

/// The time at which something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that only moves forwards: for delays.
    pub mono_ms: u64,
    /// The calendar's time: for records.
    pub wall: Timestamp,
}

/// Names one child process of this run of the daemon; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// Who is told what is counted.
#[derive(Debug, Clone)]
pub enum MetricsReader {
    /// A client: all of it.
    Client(RequestToken),
    /// A connection: of its own workspace and the daemon.
    Connection {
        /// Its process.
        process: ProcessId,
        /// What goes with the answer.
        head: Head,
        /// Its workspace.
        workspace_id: WorkspaceId,
    },
}

/// Names one request of one client connection; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestToken(pub u64);

/// The client that makes a request, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process, as it was when it connected.
    pub pid: Option<u32>,
    /// Who stands behind it.
    pub standing: Standing,
}

#[cfg(test)]
impl Peer {
    /// A client of a person.
    pub(crate) fn person() -> Self {
        Self {
            pid: None,
            standing: Standing::Person,
        }
    }
}

/// Who stands behind a client, as far as the shell can tell (`SEC-4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A person, or a program of theirs: nothing that the daemon's own children started is.
    Person,
    /// It was started by the daemon's own children: an agent's tool, or a connector's program.
    BelowDaemon,
    /// It could not be determined, for this reason. It is treated as no person.
    Unknown(&'static str),
}

/// Something to be done about what a connection remembers.
#[derive(Debug, Clone)]
pub enum StateWork {
    /// Read it.
    Get,
    /// Keep this in its place.
    Set(Box<RawValue>),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum StateDone {
    /// This was kept.
    Found(Option<Box<RawValue>>),
    /// It is kept now.
    Kept,
}

/// What is to be done with the secret store.
#[derive(Debug)]
pub enum SecretWork {
    /// Tell what there is.
    List,
    /// Keep a value.
    Set(SetSecret),
    /// Forget a secret, or an entry of it.
    Remove(RemoveSecret),
    /// Let a workspace use a secret.
    Allow(AllowSecret),
    /// Let it no longer.
    Deny(DenySecret),
    /// Encrypt everything anew.
    Rotate,
    /// Check that each document opens and is what it should be.
    Verify {
        /// A person knows of what is lost.
        repair: bool,
    },
}

/// What came of it.
#[derive(Debug)]
pub enum SecretsDone {
    /// What there is.
    Listed(SecretList),
    /// What changed, durably.
    Changed(SecretChanged),
    /// Who may use a secret from now on, durably.
    Allowed(SecretConsentChanged),
    /// Who may no longer, durably.
    Denied(SecretConsentChanged),
    /// Everything is encrypted anew, or what is not.
    Rotated(SecretsRotated),
    /// What is not as it should be.
    Verified(Box<Verified>),
}

macro_rules! proposal_work {
    ($($(#[$doc:meta])* $name:ident($call:ident),)*) => {
        /// What is to be done about sandboxes and proposals.
        #[derive(Debug)]
        pub enum ProposalWork {
            $($(#[$doc])* $name($call),)*
        }

        impl ProposalWork {
            /// The workspace that it is about.
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
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Set damage aside, with what checkpoints have in its place.
    pub repair: bool,
}

/// Prepare the sandbox of a task, unless there is one that was made for it.
#[derive(Debug)]
pub struct PrepareForTask {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What is to be prepared.
    pub prepare: PrepareSandbox,
    /// When the task was made: a sandbox from before belongs to an earlier task.
    pub made_at: Timestamp,
}

/// Make a proposal of what the agent of a task changed.
#[derive(Debug)]
pub struct ProposeForTask {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// What is to be made.
    pub create: CreateProposal,
    /// What its agent said last: the summary, if it wrote none.
    pub words: Option<String>,
}

proposal_work! {
    /// Copy files for a worker.
    Prepare(PrepareSandbox),
    /// Copy them for the agent of a task, unless that was done.
    PrepareForTask(PrepareForTask),
    /// Make a proposal of what the agent of a task changed; nothing if it changed nothing.
    ProposeForTask(ProposeForTask),
    /// Apply the proposal of a task, unless that was done.
    Deliver(ApplyProposal),
    /// Make it a branch of the project's repository, unless that was done; the answer is the branch.
    DeliverBranch(ApplyProposal),
    /// Tell which sandboxes there are.
    ListSandboxes(ListSandboxes),
    /// Tell of one.
    ShowSandbox(ShowSandbox),
    /// Remove one.
    Remove(RemoveSandbox),
    /// Make a proposal of what a worker changed.
    Create(CreateProposal),
    /// Tell which proposals there are.
    List(ListProposals),
    /// Tell of one.
    Show(ShowProposal),
    /// Read a part of its patch.
    Diff(DiffProposal),
    /// Look whether it can be applied.
    Check(CheckProposal),
    /// Look, and record what was found.
    Review(ReviewProposal),
    /// Apply it.
    Apply(ApplyProposal),
    /// Turn it down.
    Reject(RejectProposal),
    /// Take it back.
    Revert(RevertProposal),
    /// Make a new one of it, on top of the project's files as they are.
    Merge(MergeProposal),
    /// Check that all of it is as it was written; the answer is how many sandboxes there are, and a
    /// [`Verified`](goondan_durable::Verified).
    Verify(VerifySandboxes),
}

/// What came of it.
#[derive(Debug)]
pub struct ProposalsDone {
    /// The answer for whoever asked.
    pub answer: Result<Value, ControlError>,
    /// What happened, durably, whatever the answer is.
    pub happened: Vec<RunEvent>,
}

/// How much of something is in use, and how much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How many of them are in use.
    pub used: u64,
    /// How many there may be.
    pub limit: u64,
}

/// What there is of what processes need. What the system does not tell is not short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Supply {
    /// File descriptors of the daemon.
    pub descriptors: Option<Share>,
    /// Processes and their threads, of the machine or the control group.
    pub tasks: Option<Share>,
    /// Memory of the machine or the control group, in bytes.
    pub memory_bytes: Option<Share>,
}

/// What is to be done about the bundle of a conversation.
#[derive(Debug)]
pub enum BundleAction {
    /// Tell what its agent's process is to be started with.
    Arm {
        /// Whether its agent makes changesets, and needs a place for them.
        is_author: bool,
    },
    /// Count what became of a turn, or of a process.
    Note(Outcome),
    /// Do what its agent asks.
    Ask {
        /// What.
        ask: BundleAsk,
        /// The id of the tool call.
        call: ChangesetId,
    },
    /// Do what a client asks.
    Serve(BundleCall),
}

/// What became of a turn, or of a process, as far as its configuration may be the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A turn was completed.
    Completed,
    /// A turn failed, or its process crashed: why.
    Failed(String),
    /// A turn ended for another reason.
    Neutral,
}

/// What a client asks about a bundle.
#[derive(Debug)]
pub enum BundleCall {
    /// How it stands.
    Show,
    /// What became of each changeset.
    Log,
    /// One changeset.
    Changeset(ChangesetId),
    /// Play so many of the latest turns with one, or with a revision.
    Rehearse(RehearsalSubject, u32),
    /// Approve one.
    Approve(ChangesetId, String),
    /// Turn one down.
    Reject(ChangesetId, String),
    /// Go back to a revision.
    Revert(Option<RevisionId>, String),
    /// Keep what is active, or no longer.
    Pin(bool),
}

/// Work on the bundle of a conversation. Of one conversation one piece is under way at a time.
#[derive(Debug)]
pub struct BundleWork {
    /// The conversation.
    pub instance: InstanceRef,
    /// Its agent, if that is known.
    pub agent: Option<AgentName>,
    /// The Project Root of the workspace.
    pub project_root: PathBuf,
    /// What the workspace's package is called, if it is.
    pub package: Option<String>,
    /// Environment files that were named for it.
    pub env_files: Vec<PathBuf>,
    /// What the configuration that runs was read from; none if that is not what is there.
    pub sources: Option<Arc<Sources>>,
    /// What agents may change; none for nothing.
    pub policy: Option<ChangesetPolicy>,
    /// The time, for what is recorded.
    pub at: Timestamp,
    /// What is to be done.
    pub action: BundleAction,
}

/// What came of it.
#[derive(Debug)]
pub struct BundleDone {
    /// The conversation.
    pub instance: InstanceRef,
    /// The answer for whoever asked; for an agent a [`BundleTold`](goondan_protocol::bundle::BundleTold).
    pub answer: Result<Value, ControlError>,
    /// What its agent's process is to be started with, if that was asked; none for what the project says.
    pub definition: Option<Box<AgentDefinition>>,
    /// How the bundle stands now, if that is known.
    pub standing: Option<BundleStanding>,
    /// What happened, durably.
    pub happened: Vec<BundleHappened>,
}

/// How a bundle stands, as far as the core decides by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleStanding {
    /// What the agent works with; none for the project as it is.
    pub active: Option<RevisionId>,
    /// Whether another revision becomes active with the next step.
    pub is_pending: bool,
    /// Whether the active revision has to prove itself.
    pub is_on_probation: bool,
    /// Why the active revision is not the one that was meant to be.
    pub problem: Option<String>,
}

/// Something that happened to a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleHappened {
    /// In one word.
    pub what: &'static str,
    /// The changeset, if one led to it.
    pub changeset_id: Option<ChangesetId>,
    /// The revision it is about.
    pub revision: Option<RevisionId>,
    /// In words.
    pub detail: String,
}
