//! What comes in, and what goes out.

use goondan_cli_agents::Event;
use goondan_cli_agents::reply::Decision;
use goondan_protocol::control::{TaskDrill, TaskProposal};
use goondan_protocol::task::TaskRunKind;

use crate::fact::{Budget, Entry, Notification, Provision};
use crate::limits::{DESCRIPTION_BYTES_MAX, PHASES_MAX, TEXT_CHARS_MAX, TITLE_CHARS_MAX};
use crate::state::Status;

/// What a work area takes, and may take (`TASK-9`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes that they may have.
    pub quota_bytes: u64,
}

impl DiskUse {
    /// Whether it takes more than it may.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.bytes > self.quota_bytes
    }
}

/// What was done with the proposal of a task before its last phase is approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing: there is none, or it is not delivered yet.
    None,
    /// The one with this digest is in the project.
    Delivered {
        /// The digest.
        digest: String,
        /// The branch that it is, if it is one.
        branch: Option<String>,
    },
    /// It is left as it is, by the configuration or because a person wants it so.
    Left,
}

/// What comes in.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// It is on this node, of a workspace that several have.
    OnNode(String),
    /// A person starts it.
    Start,
    /// A person pauses it.
    Pause,
    /// A person lets it go on.
    Resume,
    /// A person ends it.
    Cancel,
    /// Something that was asked for is there.
    Provide {
        /// The id of the dependency.
        id: String,
        /// What is there.
        provision: Provision,
    },
    /// A person answers a question.
    Answer {
        /// The id of the question.
        id: String,
        /// The answer.
        text: String,
    },
    /// A person approves a phase.
    Approve {
        /// Which.
        phase: u32,
        /// What was done with its proposal.
        delivery: Delivery,
    },
    /// The proposal of a phase was made.
    ProposalMade {
        /// The phase.
        phase: u32,
        /// The proposal, none if nothing was changed; or why it could not be made.
        result: Result<Option<TaskProposal>, String>,
    },
    /// A person wants a phase done better.
    Rework {
        /// Which.
        phase: u32,
        /// What is to be better.
        text: String,
    },
    /// A person sets what it may take.
    SetBudget(Budget),
    /// What its work area takes was looked at.
    Measured(DiskUse),
    /// The budgets that it shares with others were looked at.
    SharedBudgets {
        /// Which of them lets it take no more, in words; none if all do.
        shortage: Option<String>,
    },
    /// A checkpoint was made.
    CheckpointMade {
        /// Its id.
        id: String,
    },
    /// A HANDOFF of its program names what is not there.
    HandoffRefused {
        /// What.
        problem: String,
    },
    /// It was tried whether the newest checkpoint could be restored.
    Drilled(TaskDrill),
    /// The work area was taken back to a checkpoint.
    Restored {
        /// Its id.
        id: String,
        /// The checkpoint of what was there before; none if nothing changed.
        pre_restore: Option<String>,
    },
    /// Documents that its agent lists as created were looked for in its work area.
    DocumentsFound {
        /// Those that do not exist.
        missing: Vec<String>,
    },
    /// A run's process is there.
    Spawned {
        /// The run.
        run: u64,
        /// Its process id.
        pid: u32,
        /// When it started, as the kernel counts.
        start_time: u64,
    },
    /// A run that has no process of its own has begun.
    Begun {
        /// The run.
        run: u64,
    },
    /// A call of a run was refused, since it might have passed a budget.
    CallRefused {
        /// The run.
        run: u64,
    },
    /// A run's process could not be started.
    NotSpawned {
        /// The run.
        run: u64,
        /// Why.
        error: String,
    },
    /// A run could not be started: secrets that were provided cannot be read. They are asked for again.
    SecretsLost {
        /// The run.
        run: u64,
        /// The variables that hold them.
        names: Vec<String>,
        /// Why.
        error: String,
    },
    /// Something that a run's output tells.
    Told {
        /// The run.
        run: u64,
        /// What.
        event: Event,
    },
    /// The end of what a run has written that is none of the agent's.
    Printed {
        /// The run.
        run: u64,
        /// What.
        text: String,
    },
    /// A run shows a sign of life: bytes, processor time, or a child.
    Alive {
        /// The run.
        run: u64,
    },
    /// A run's process is gone, with all that belongs to it.
    Exited {
        /// The run.
        run: u64,
        /// Its exit code, if it has one.
        code: Option<i32>,
    },
    /// The same, since the daemon or the workspace ends. The task goes on when it is open again.
    Stopped {
        /// The run.
        run: u64,
        /// Its exit code, if it has one.
        code: Option<i32>,
    },
    /// Connections are to tell people something.
    Notify(Vec<Notification>),
    /// A notification is about to be handed to its connection.
    NotificationBegun {
        /// Its id.
        id: String,
    },
    /// What became of a notification.
    NotificationEnded {
        /// Its id.
        id: String,
        /// That it arrived, or why it did not.
        result: Result<(), String>,
    },
    /// Time has passed.
    Tick,
}

/// What is to be done, after the facts are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the agent's program.
    StartRun {
        /// The run.
        run: u64,
        /// The session to go on with.
        session: Option<String>,
        /// What it is told.
        prompt: String,
        /// Variables that hold secrets, with the references of these.
        environment: Vec<(String, String)>,
        /// What it does: a command in place of the agent's program is told nothing.
        kind: TaskRunKind,
    },
    /// End the run's process with all that belongs to it: ask, and kill after a grace. Asked again, nothing
    /// more.
    EndRun {
        /// The run.
        run: u64,
    },
    /// Stop the run's process group.
    PauseRun {
        /// The run.
        run: u64,
    },
    /// Let the run's process group go on.
    ContinueRun {
        /// The run.
        run: u64,
    },
    /// Look for documents in the work area: [`Input::DocumentsFound`] returns those that do not exist.
    FindDocuments {
        /// Paths in the work area, as the agent wrote them.
        documents: Vec<String>,
    },
    /// Write the answer to a request for a permission.
    AnswerPermission {
        /// The run.
        run: u64,
        /// The id of the request.
        request: String,
        /// The answer.
        decision: Decision,
    },
    /// Have a connection tell people something, when it can.
    Notify {
        /// The id of the notification.
        id: String,
    },
    /// Have it done now.
    SendNotification {
        /// The id of the notification.
        id: String,
    },
    /// Look whether what a HANDOFF names is there (`PROP-6`).
    CheckHandoff {
        /// The HANDOFF.
        text: String,
    },
    /// Make a proposal of what its agent changed: [`Input::ProposalMade`] returns it.
    MakeProposal {
        /// The phase that is complete.
        phase: u32,
        /// Its agent's last words.
        words: Option<String>,
        /// What the command that proves it wrote.
        test_log: Option<String>,
    },
    /// Make a checkpoint, for this reason.
    MakeCheckpoint {
        /// Its type (`CKPT-2`).
        kind: &'static str,
    },
}

/// Why an input of a person changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Refused {
    #[error("it is {0}, and that cannot be changed any more")]
    Final(Status),
    #[error("it is {0}, which does not allow that")]
    WrongStatus(Status),
    #[error("nothing waits by the id `{0}`; `gdn task show` lists what does")]
    Unknown(String),
    #[error("`{0}` has its answer already")]
    Closed(String),
    #[error("`{0}` is not what that id asks for")]
    WrongKind(String),
    #[error("`{answer}` is none of the options: {options}")]
    NoOption { answer: String, options: String },
    #[error("phase {0} is not under review")]
    NotUnderReview(u32),
    #[error("the proposal of phase {0} is not in the project yet")]
    NotDelivered(u32),
    #[error(
        "no proposal could be made of phase {0}; have it done better, or approve it as it is with \
         `gdn task approve TASK --without-delivery`"
    )]
    NoProposal(u32),
    #[error("the text is empty or over {TEXT_CHARS_MAX} characters long")]
    BadText,
    #[error("the next call might pass the budget, of which {percent} % are taken; raise it first")]
    OverBudget { percent: u64 },
    #[error("{0}; it goes on by itself when the budget allows it")]
    OverSharedBudget(String),
    #[error(
        "its work area takes {} bytes of the disk, and may take {}; remove files from it, or let it take more with \
         `gdn task budget TASK --max-disk-mib MIB`", .0.bytes, .0.quota_bytes
    )]
    OverQuota(DiskUse),
    #[error(
        "a task needs a title of at most {TITLE_CHARS_MAX} characters, a type no longer than that, a description of 1 to \
         {DESCRIPTION_BYTES_MAX} bytes, and at most {PHASES_MAX} phases"
    )]
    BadTask,
}

/// What came of an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// What happened. It must be durable before anything else is done.
    pub facts: Vec<Entry>,
    /// What is to be done then, in this order.
    pub effects: Vec<Effect>,
}
