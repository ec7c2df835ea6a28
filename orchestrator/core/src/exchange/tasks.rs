//! Operations on the work areas of tasks, and their results.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_cli_agents::blocks::Block;
use goondan_merge_queue::{Action, Landing, Outcome, Proposal};
use goondan_protocol::control::{
    CheckpointInfo, ControlError, ListCheckpoints, TaskDrill, TaskHistoryLine, TaskLog,
    TaskRemoved, TaskRestored,
};
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::task::{OutputStream, TaskId, TaskItem};
use goondan_protocol::time::Timestamp;
use goondan_tasks::fact::{HistoryEntry, NewTask};
use goondan_tasks::plain_area::PlainWorker;
use goondan_tasks::state::State;

use super::RequestToken;

/// Reference to a task, unique over all workspaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    pub workspace_id: WorkspaceId,
    pub task_id: TaskId,
}

impl TaskRef {
    #[must_use]
    pub fn new(workspace_id: &WorkspaceId, task_id: &TaskId) -> Self {
        Self {
            workspace_id: workspace_id.clone(),
            task_id: task_id.clone(),
        }
    }
}

/// A secret text, which is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Clear(pub String);

impl fmt::Debug for Clear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clear(…)")
    }
}

/// An entry for a log of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum LogText {
    Output(OutputStream, String),
    /// A protocol block, and its time.
    Block(Timestamp, Block),
    Items(Vec<TaskItem>),
}

/// Part of a task's logs that a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPosition {
    Log {
        log: TaskLog,
        /// Offset of the first byte; negative offsets count from the end.
        offset: i64,
    },
    Stream {
        /// Start of the part; absent: the start of the latest run.
        after: Option<u64>,
    },
}

/// Behavior of a request for a part of a log when the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfLogPolicy {
    /// Answer immediately; the log may grow later.
    Answer,
    Wait,
    /// Answer immediately; the log has ended.
    Over,
}

/// Operation on the work areas of tasks.
#[derive(Debug)]
pub enum TaskWork {
    /// Read all tasks of a workspace.
    Load { workspace_id: WorkspaceId },
    /// Read a task again after a failed write.
    Reload { at: TaskRef },
    Create {
        at: TaskRef,
        new: Box<NewTask>,
        guide: Option<PathBuf>,
        now: Timestamp,
    },
    /// Write facts and the resulting state. At most one write per task is in progress.
    Write {
        at: TaskRef,
        facts: Vec<HistoryEntry>,
        state: Arc<State>,
    },
    /// Append to a log. Only the number of written bytes is reported.
    Log { at: TaskRef, text: LogText },
    /// Store a value for a task, encrypted.
    KeepSecret {
        at: TaskRef,
        /// The waiting request.
        token: RequestToken,
        /// The dependency that the value is for.
        id: String,
        value: Clear,
        now: Timestamp,
    },
    /// Read the stored secrets for a run.
    ReadSecrets {
        at: TaskRef,
        run: u64,
        /// Names of variables, and the dependencies whose values they get.
        references: Vec<(String, String)>,
    },
    /// Read a part of a log, and respond with it.
    ReadLog {
        /// The waiting request.
        token: RequestToken,
        at: TaskRef,
        position: LogPosition,
        /// Behavior at the end of the log.
        at_end: EndOfLogPolicy,
    },
    /// The logs of a task are complete: answer all readers that wait for more.
    EndLogs { at: TaskRef },
    /// These readers no longer wait.
    ForgetReaders { tokens: Vec<RequestToken> },
    /// Import a work area from another directory.
    Import {
        workspace_id: WorkspaceId,
        /// The waiting request.
        token: RequestToken,
        /// Path of the work area.
        path: PathBuf,
        /// Paths of the guides of the agents for tasks. Links that lead out of the copy are
        /// omitted.
        guides: BTreeMap<AgentName, PathBuf>,
        /// Agent for a task of the plain format, which names no agent, or the reason why the task
        /// cannot be imported.
        worker: Result<PlainWorker, ControlError>,
    },
    /// Search for documents in a work area.
    FindDocuments {
        at: TaskRef,
        /// The task's copy of the project, which contains the documents if the task has a source.
        copy: Option<PathBuf>,
        /// Paths of the documents, as the task's agent wrote them.
        documents: Vec<String>,
    },
    Remove {
        at: TaskRef,
        /// The caller that removes the task.
        reply: RemovalCaller,
        /// True to move a copy to the backups.
        with_backup: bool,
    },
    /// Check that the newest checkpoint of a work area can be restored.
    Drill {
        at: TaskRef,
        /// The task's copy of the project, if the task has a source.
        copy: Option<PathBuf>,
        /// The waiting request, if any.
        token: Option<RequestToken>,
        now: Timestamp,
    },
    /// Check that the files that a HANDOFF names exist, and report those that do not (`PROP-6`).
    CheckHandoff {
        at: TaskRef,
        /// The task's copy of the project, if the task has a source.
        copy: Option<PathBuf>,
        text: String,
    },
    /// Measure the disk usage of a work area.
    Measure {
        at: TaskRef,
        /// The task's copy of the project, if the task has a source.
        copy: Option<PathBuf>,
    },
    /// Create a checkpoint of a work area, and remove checkpoints beyond the retention limit.
    MakeCheckpoint {
        at: TaskRef,
        /// The task's copy of the project, if the task has a source.
        copy: Option<PathBuf>,
        /// The waiting request, if any.
        token: Option<RequestToken>,
        about: NewCheckpointMetadata,
        now: Timestamp,
    },
    /// List the checkpoints of a work area, and respond with them.
    ListCheckpoints {
        /// The waiting request.
        token: RequestToken,
        at: TaskRef,
        /// The task's copy of the project, if the task has a source.
        copy: Option<PathBuf>,
        list: ListCheckpoints,
    },
    /// Restore a work area to a checkpoint, or report the changes that a restore would make.
    Restore {
        at: TaskRef,
        /// The task's copy of the project, if the task has a source.
        copy: Option<PathBuf>,
        /// The waiting request.
        token: RequestToken,
        /// The checkpoint; by default the newest usable one.
        checkpoint_id: Option<String>,
        /// True for a dry run.
        is_rehearsal: bool,
        now: Timestamp,
    },
    /// Release the work areas of a workspace.
    Close { workspace_id: WorkspaceId },
}

/// Metadata of a new checkpoint (`CKPT-2`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCheckpointMetadata {
    pub kind: &'static str,
    /// A name that a person gives it.
    pub name: Option<String>,
    pub phase: u32,
    pub progress: u8,
    pub status: String,
    pub step: Option<String>,
    pub tokens: u64,
    /// True if a program may write during the checkpoint.
    pub is_live: bool,
    /// Disk quota of the work area, in bytes; beyond it no checkpoint is made (`TASK-9`).
    pub quota_bytes: u64,
}

/// Disk usage of a work area (`TASK-9`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskMeasurement {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Free bytes on its file system, if known.
    pub free_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalCaller {
    /// A client that removes this task.
    Request(RequestToken),
    /// A client that removes all tasks that ended long ago.
    Prune(RequestToken),
    /// The retention policy of the workspace.
    Policy,
}

/// A task as it was read.
#[derive(Debug)]
pub struct LoadedTask {
    pub task_id: TaskId,
    /// Its state and the last entries of its history, or the reason why it cannot be read.
    pub result: Result<(State, Vec<TaskHistoryLine>), String>,
}

/// Reason why a task was not created, or only in part.
#[derive(Debug)]
pub struct TaskCreationFailure {
    pub error: ControlError,
    /// A task that exists despite the failure: an earlier one, or a partially created one.
    pub found: Option<LoadedTask>,
}

/// Secrets that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableSecrets {
    /// The variables that would contain the secrets.
    pub names: Vec<String>,
    pub error: String,
}

/// Values of secrets by variable, or the secrets that cannot be read.
pub type SecretsRead = Result<BTreeMap<String, Clear>, UnreadableSecrets>;

/// Result of an operation on the work areas of tasks.
#[derive(Debug)]
pub enum TaskResult {
    /// The tasks of a workspace were read.
    Loaded {
        workspace_id: WorkspaceId,
        /// The tasks, or the reason why they cannot be listed.
        found: Result<Vec<LoadedTask>, String>,
    },
    /// A task was read again.
    Reloaded {
        workspace_id: WorkspaceId,
        found: LoadedTask,
    },
    /// A task was created, or the creation failed.
    Created {
        at: TaskRef,
        result: Result<(), Box<TaskCreationFailure>>,
    },
    /// Facts are durable, or the write failed.
    Written {
        at: TaskRef,
        result: Result<(), ControlError>,
    },
    /// A write to a log has finished or failed.
    Logged {
        at: TaskRef,
        /// Number of bytes of output.
        bytes: usize,
        /// Number of items of the stream.
        items: usize,
    },
    /// A value was stored, or the operation failed.
    SecretKept {
        at: TaskRef,
        /// The waiting request.
        token: RequestToken,
        /// The dependency that the value is for.
        id: String,
        result: Result<(), ControlError>,
    },
    /// The stored values for a run.
    SecretsRead {
        at: TaskRef,
        run: u64,
        result: SecretsRead,
    },
    /// A work area was imported, or the import failed.
    Imported {
        workspace_id: WorkspaceId,
        /// The waiting request.
        token: RequestToken,
        /// The task, or the reason of the failure.
        result: Result<LoadedTask, ControlError>,
    },
    /// Result of a search for documents in a work area.
    DocumentsFound {
        at: TaskRef,
        /// Documents that do not exist.
        missing: Vec<String>,
    },
    /// A work area was measured, or the measurement failed.
    Measured {
        at: TaskRef,
        /// Disk usage, or the reason why it is unknown.
        result: Result<DiskMeasurement, String>,
    },
    /// A checkpoint was created, or the creation failed.
    CheckpointMade {
        at: TaskRef,
        /// The waiting request, if any.
        token: Option<RequestToken>,
        /// The checkpoint, or the reason of the failure.
        result: Result<CheckpointInfo, ControlError>,
        /// Disk usage of the work area with the checkpoint, if known.
        disk: Option<DiskMeasurement>,
    },
    /// A work area was restored to a checkpoint, or the restore failed.
    Restored {
        at: TaskRef,
        /// The waiting request.
        token: RequestToken,
        /// True for a dry run.
        is_rehearsal: bool,
        /// The changes, or the reason why there are none.
        result: Result<TaskRestored, ControlError>,
    },
    /// A work area was removed, or the removal failed.
    Removed {
        at: TaskRef,
        /// The caller that removes the task.
        reply: RemovalCaller,
        /// Path of the backup, or the reason of the failure.
        result: Result<TaskRemoved, ControlError>,
    },
    /// A HANDOFF names documents that do not exist.
    HandoffRefused { at: TaskRef, problem: String },
    /// A restore drill has ended.
    Drilled {
        at: TaskRef,
        /// The waiting request, if any.
        token: Option<RequestToken>,
        /// Result of the drill, or the reason why there is none.
        result: Result<TaskDrill, ControlError>,
    },
}

/// Purpose of an operation on a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SandboxOperation {
    Prepare {
        run: u64,
    },
    Propose {
        phase: u32,
    },
    Deliver,
    NoteDelivery,
    TakeComments {
        phase: u32,
        text: String,
    },
    Remove,
    /// An operation of the merge queue.
    Queue(Box<QueueFollowUp>),
}

/// Continuation of an operation on the files of a merge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueueFollowUp {
    Loaded,
    Recorded {
        /// Tasks whose place in the queue changed.
        tasks: Vec<TaskId>,
        actions: Vec<Action>,
        decision: Option<QueueDecision>,
    },
    Rebased {
        attempt: u64,
    },
    Landed(Landing),
    Discarded,
    HandedBack {
        proposal: Proposal,
        outcome: Outcome,
    },
}

/// A person's change of a merge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueDecision {
    pub(crate) token: RequestToken,
    pub(crate) task_id: TaskId,
    /// Description for the audit log.
    pub(crate) what: &'static str,
}

/// An operation on the sandbox of a task, with its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxStep {
    pub(crate) at: TaskRef,
    pub(crate) step: SandboxOperation,
}
