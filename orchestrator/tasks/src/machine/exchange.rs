//! Inputs and outputs of the state machine.

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::reply::PermissionDecision;
use goondan_protocol::control::{TaskDrill, TaskProposal};
use goondan_protocol::task::TaskRunKind;

use crate::fact::{Budget, HistoryEntry, Notification, Provision, ReworkComment};
use crate::limits::{DESCRIPTION_BYTES_MAX, PHASES_MAX, TEXT_CHARS_MAX, TITLE_CHARS_MAX};
use crate::state::Status;

/// Disk use and quota of a work area (`TASK-9`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Quota in bytes.
    pub quota_bytes: u64,
}

impl DiskUse {
    /// True if the use exceeds the quota.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.bytes > self.quota_bytes
    }
}

/// Delivery of a task's proposal before its last phase is approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing: there is no proposal, or it is not delivered yet.
    None,
    /// The proposal with this digest is in the project.
    Delivered {
        digest: String,
        /// Its branch, if the proposal is a branch.
        branch: Option<String>,
        /// URL of its pull request, if one was opened.
        pull_request: Option<String>,
    },
    /// Not delivered, by configuration or because a person chose so.
    Left,
}

/// Input of the state machine.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskInput {
    /// The task is on this node of a shared workspace.
    OnNode(String),
    Start,
    Pause,
    Resume,
    Cancel,
    Provide {
        /// The id of the dependency.
        id: String,
        provision: Provision,
    },
    /// A person answers a question.
    Answer {
        /// The id of the question.
        id: String,
        text: String,
    },
    /// A person approves a phase.
    Approve {
        phase: u32,
        delivery: Delivery,
    },
    /// The proposal of a phase was created, or could not be.
    ProposalMade {
        phase: u32,
        /// The proposal, none if nothing changed; or the reason why it could not be created.
        result: Result<Option<TaskProposal>, String>,
    },
    /// A person requests rework of a phase.
    Rework {
        phase: u32,
        text: String,
        /// Comments on its proposal.
        comments: Vec<ReworkComment>,
    },
    /// A person sends a message to the agent.
    Say {
        /// Id of the message: the same id again has no effect.
        id: Option<String>,
        text: String,
    },
    /// A person sets its budget.
    SetBudget(Budget),
    /// The disk use of the work area was measured.
    Measured(DiskUse),
    /// The shared budgets were checked.
    SharedBudgets {
        /// Description of the exhausted budget; none if all have capacity.
        shortage: Option<String>,
    },
    CheckpointMade {
        id: String,
    },
    /// A HANDOFF of its program names a nonexistent path.
    HandoffRefused {
        problem: String,
    },
    /// A restore drill of the newest checkpoint ended.
    Drilled(TaskDrill),
    /// The work area was rolled back to a checkpoint.
    Restored {
        id: String,
        /// Checkpoint of the files before the restore; none if nothing changed.
        pre_restore: Option<String>,
    },
    /// Documents that its agent reported were checked in its work area.
    DocumentsFound {
        missing: Vec<String>,
    },
    /// A run's process was started.
    Spawned {
        run: u64,
        pid: u32,
        /// Its start time, in the kernel's units.
        start_time: u64,
    },
    /// A run without a process has started.
    Begun {
        run: u64,
    },
    /// A call of a run was refused because it might have exceeded a budget.
    CallRefused {
        run: u64,
    },
    /// A run's process could not be started.
    NotSpawned {
        run: u64,
        error: String,
    },
    /// A run failed to start because provided secrets cannot be read. They are requested again.
    SecretsLost {
        run: u64,
        names: Vec<String>,
        error: String,
    },
    /// Event in a run's output.
    Told {
        run: u64,
        event: CliEvent,
    },
    /// Tail of a run's output that is not the agent's.
    Printed {
        run: u64,
        text: String,
    },
    /// A run shows a sign of life: bytes, processor time, or a child.
    Alive {
        run: u64,
    },
    /// A run's process and all its descendants have exited.
    Exited {
        run: u64,
        /// Its exit code, if it has one.
        code: Option<i32>,
    },
    /// Like `Exited`, because the daemon or workspace stops. The task resumes when it is opened
    /// again.
    Stopped {
        run: u64,
        /// Its exit code, if it has one.
        code: Option<i32>,
    },
    /// Connections must notify people.
    Notify(Vec<Notification>),
    /// A notification is about to be delivered by its connection.
    NotificationBegun {
        id: String,
    },
    /// A notification was delivered or failed.
    NotificationEnded {
        id: String,
        /// Success, or the reason of the failure.
        result: Result<(), String>,
    },
    Tick,
}

/// Effect to execute after the facts are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEffect {
    StartRun {
        run: u64,
        session: Option<String>,
        prompt: String,
        /// Variables that hold secrets, with their references.
        environment: Vec<(String, String)>,
        /// Kind of run: a command receives no prompt.
        kind: TaskRunKind,
    },
    /// End the run's process and all its descendants: ask, then kill after a grace period.
    /// Idempotent.
    EndRun { run: u64 },
    /// Stop the run's process group.
    PauseRun { run: u64 },
    /// Resume the run's process group.
    ContinueRun { run: u64 },
    /// Check documents in the work area: [`TaskInput::DocumentsFound`] returns those that do not exist.
    FindDocuments {
        /// Paths in the work area, as the agent wrote them.
        documents: Vec<String>,
    },
    /// Write the answer to a request for a permission.
    AnswerPermission {
        run: u64,
        /// The id of the request.
        request: String,
        decision: PermissionDecision,
    },
    /// Deliver a notification through a connection as soon as possible.
    Notify {
        /// The id of the notification.
        id: String,
    },
    SendNotification {
        /// The id of the notification.
        id: String,
    },
    /// Check that the paths in a HANDOFF exist (`PROP-6`).
    CheckHandoff { text: String },
    /// Create a proposal of the agent's changes: [`TaskInput::ProposalMade`] returns it.
    MakeProposal {
        /// The phase that is complete.
        phase: u32,
        /// Last message of its agent.
        words: Option<String>,
        /// Output of the verify command.
        test_log: Option<String>,
    },
    /// Make a checkpoint, for this reason.
    MakeCheckpoint {
        /// Its type (`CKPT-2`).
        kind: &'static str,
    },
}

/// Reason why a person's input was refused. Nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputRefusal {
    #[error("it is {0}, which is final")]
    Final(Status),
    #[error("it is {0}, which does not allow that")]
    WrongStatus(Status),
    #[error("`{0}` is not open; list open requests: `gdn task show`")]
    Unknown(String),
    #[error("`{0}` is already answered")]
    Closed(String),
    #[error("`{0}` is not a valid answer to this id")]
    WrongKind(String),
    #[error("`{answer}` is not one of the options: {options}")]
    NoOption { answer: String, options: String },
    #[error("phase {0} is not under review")]
    NotUnderReview(u32),
    #[error("the proposal of phase {0} is not yet applied to the project")]
    NotDelivered(u32),
    #[error(
        "failed to create a proposal for phase {0}; send it back with `gdn task rework TASK TEXT`, \
         or approve it without delivery: `gdn task approve TASK --without-delivery`"
    )]
    NoProposal(u32),
    #[error(
        "the task has ended, and its proposal is in the project; create a task for further changes"
    )]
    Delivered,
    #[error("the agent has not received your message yet; phase {0} is reviewed after that")]
    MessagePending(u32),
    #[error("the text is empty or longer than {TEXT_CHARS_MAX} characters")]
    BadText,
    #[error("the next call might exceed the budget ({percent} % used); raise it first")]
    OverBudget { percent: u64 },
    #[error("{0}; it resumes automatically when the budget allows it")]
    OverSharedBudget(String),
    #[error(
        "its work area uses {} bytes of disk, and its limit is {}; remove files from it, or raise \
         the limit with `gdn task budget TASK --max-disk-mib MIB`", .0.bytes, .0.quota_bytes
    )]
    OverQuota(DiskUse),
    #[error(
        "a task needs a title of at most {TITLE_CHARS_MAX} characters, a type no longer than that, a description of 1 to \
         {DESCRIPTION_BYTES_MAX} bytes, and at most {PHASES_MAX} phases"
    )]
    BadTask,
}

/// Result of an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// New facts. They must be durable before any effect is executed.
    pub facts: Vec<HistoryEntry>,
    /// Effects to execute then, in this order.
    pub effects: Vec<TaskEffect>,
}
