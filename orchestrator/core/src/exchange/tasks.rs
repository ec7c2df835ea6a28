//! What is to be done about the work areas of tasks, and what came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use goondan_cli_agents::blocks::Block;
use goondan_protocol::control::{
    CheckpointInfo, ControlError, ListCheckpoints, TaskDrill, TaskHappening, TaskLog, TaskRemoved,
    TaskRestored,
};
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::task::{OutputStream, TaskId};
use goondan_protocol::time::Timestamp;
use goondan_tasks::fact::{Entry, NewTask};
use goondan_tasks::plain_area::PlainWorker;
use goondan_tasks::state::State;

use super::RequestToken;

/// A task, among those of all workspaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its id.
    pub task_id: TaskId,
}

impl TaskRef {
    /// The task of this id in this workspace.
    #[must_use]
    pub fn new(workspace_id: &WorkspaceId, task_id: &TaskId) -> Self {
        Self {
            workspace_id: workspace_id.clone(),
            task_id: task_id.clone(),
        }
    }
}

/// A text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Clear(pub String);

impl fmt::Debug for Clear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clear(…)")
    }
}

/// What goes to a log of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogText {
    /// What its program wrote.
    Output(OutputStream, String),
    /// A protocol block, and when it came.
    Block(Timestamp, Block),
}

/// What becomes of a request for a part of a log where the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// It is answered: more may come, and nobody waits for it.
    Answer,
    /// It waits for more.
    Wait,
    /// It is answered: nothing more will come.
    Over,
}

/// What is to be done about the work areas of tasks.
#[derive(Debug)]
pub enum TaskWork {
    /// Read all of a workspace.
    Load {
        /// The workspace.
        workspace_id: WorkspaceId,
    },
    /// Read one again, after it could not be written.
    Reload {
        /// The task.
        at: TaskRef,
    },
    /// Make one.
    Create {
        /// The task.
        at: TaskRef,
        /// What it is to be.
        new: Box<NewTask>,
        /// What its guide leads to.
        guide: Option<PathBuf>,
        /// When it is made.
        now: Timestamp,
    },
    /// Write what happened, and how the task stands with it. Of one task only one of these is under way.
    Write {
        /// The task.
        at: TaskRef,
        /// What happened.
        facts: Vec<Entry>,
        /// How it stands.
        state: Arc<State>,
    },
    /// Append to a log. Nothing is reported but how much less waits.
    Log {
        /// The task.
        at: TaskRef,
        /// To what.
        text: LogText,
    },
    /// Keep a value for a task, encrypted.
    KeepSecret {
        /// The task.
        at: TaskRef,
        /// The request that waits for it.
        token: RequestToken,
        /// The dependency it is for.
        id: String,
        /// The value.
        value: Clear,
        /// When it was provided.
        now: Timestamp,
    },
    /// Read what was kept, for a run.
    ReadSecrets {
        /// The task.
        at: TaskRef,
        /// The run.
        run: u64,
        /// The variables, with the dependencies whose values they are to hold.
        references: Vec<(String, String)>,
    },
    /// Read a part of a log, and answer with it.
    ReadLog {
        /// The request that waits for it.
        token: RequestToken,
        /// The task.
        at: TaskRef,
        /// Which log.
        log: TaskLog,
        /// From which byte on; from the end backwards if it is negative.
        offset: i64,
        /// What becomes of the request at the end of the log.
        at_end: AtEnd,
    },
    /// Nothing more comes into the logs of a task: answer all that wait for more.
    EndLogs {
        /// The task.
        at: TaskRef,
    },
    /// These wait for more of a log no longer.
    ForgetReaders {
        /// Their requests.
        tokens: Vec<RequestToken>,
    },
    /// Copy a work area from elsewhere.
    Import {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The request that waits for it.
        token: RequestToken,
        /// Where it is.
        path: PathBuf,
        /// What the guides of the agents for tasks lead to. A copy leaves out what leads out of it.
        guides: BTreeMap<AgentName, PathBuf>,
        /// Who works for a task of the plain format, which names no agent; or why it cannot be imported.
        worker: Result<PlainWorker, ControlError>,
    },
    /// Look for documents in a work area.
    FindDocuments {
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
        /// Their paths, as the task's agent wrote them.
        documents: Vec<String>,
    },
    /// Remove a work area.
    Remove {
        /// The task.
        at: TaskRef,
        /// Who wants it.
        reply: RemovalFor,
        /// Whether it is kept among the backups.
        with_backup: bool,
    },
    /// Try whether the newest checkpoint of a work area could be restored.
    Drill {
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
        /// The request that waits for it, if one does.
        token: Option<RequestToken>,
        /// When it is done.
        now: Timestamp,
    },
    /// Look whether what a HANDOFF names is there, and report what is not (`PROP-6`).
    CheckHandoff {
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
        /// The HANDOFF.
        text: String,
    },
    /// Tell what a work area takes of the disk.
    Measure {
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
    },
    /// Make a checkpoint of a work area, and remove those that are beyond what is kept.
    MakeCheckpoint {
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
        /// The request that waits for it, if one does.
        token: Option<RequestToken>,
        /// What it says of itself.
        about: CheckpointAbout,
        /// When it is made.
        now: Timestamp,
    },
    /// List the checkpoints of a work area, and answer with them.
    ListCheckpoints {
        /// The request that waits for it.
        token: RequestToken,
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
        /// Which page of them.
        list: ListCheckpoints,
    },
    /// Take a work area back to a checkpoint, or tell what that would change.
    Restore {
        /// The task.
        at: TaskRef,
        /// Its copy of the project, if it has a source: where its files are.
        copy: Option<PathBuf>,
        /// The request that waits for it.
        token: RequestToken,
        /// Which; the newest that can be if it is not said.
        checkpoint_id: Option<String>,
        /// Whether it is only told.
        is_rehearsal: bool,
        /// When it is done.
        now: Timestamp,
    },
    /// Let go of the work areas of a workspace.
    Close {
        /// The workspace.
        workspace_id: WorkspaceId,
    },
}

/// What a new checkpoint says of itself (`CKPT-2`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointAbout {
    /// Why it is made.
    pub kind: &'static str,
    /// A name that a person gives it.
    pub name: Option<String>,
    /// The phase the task is in.
    pub phase: u32,
    /// Percent of it.
    pub progress: u8,
    /// How the task stands.
    pub status: String,
    /// The step it is in.
    pub step: Option<String>,
    /// Tokens taken so far.
    pub tokens: u64,
    /// Whether a program may be writing meanwhile.
    pub is_live: bool,
    /// Bytes that the work area may have; of one with more none is made (`TASK-9`).
    pub quota_bytes: u64,
}

/// What a work area takes of the disk (`TASK-9`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of all its files.
    pub bytes: u64,
    /// What is free on its file system, if that tells.
    pub free_bytes: Option<u64>,
}

/// Who wants a task removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalFor {
    /// A client, this one alone.
    Request(RequestToken),
    /// A client, with others that ended long ago.
    Prune(RequestToken),
    /// The policy of its workspace.
    Policy,
}

/// A task as it was read.
#[derive(Debug)]
pub struct FoundTask {
    /// Its id.
    pub task_id: TaskId,
    /// How it stands, with the last lines of its history, or why it cannot be read.
    pub result: Result<(State, Vec<TaskHappening>), String>,
}

/// Why a task was not made, or was made in part.
#[derive(Debug)]
pub struct NotCreated {
    /// Why.
    pub error: ControlError,
    /// The task that is there all the same: one from before, or the one that was made in part.
    pub found: Option<FoundTask>,
}

/// Secrets that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostSecrets {
    /// The variables that hold them.
    pub names: Vec<String>,
    /// Why.
    pub error: String,
}

/// Variables with the secrets they hold, or those that cannot be read.
pub type SecretsRead = Result<BTreeMap<String, Clear>, LostSecrets>;

/// What came of it.
#[derive(Debug)]
pub enum TaskDone {
    /// These are the tasks of a workspace.
    Loaded {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The tasks, or why they cannot be listed.
        found: Result<Vec<FoundTask>, String>,
    },
    /// A task was read again.
    Reloaded {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The task.
        found: FoundTask,
    },
    /// A task was made, or not.
    Created {
        /// The task.
        at: TaskRef,
        /// Why not.
        result: Result<(), Box<NotCreated>>,
    },
    /// What happened is durable, or not.
    Written {
        /// The task.
        at: TaskRef,
        /// Why not.
        result: Result<(), ControlError>,
    },
    /// Something is in a log, or was given up.
    Logged {
        /// The task.
        at: TaskRef,
        /// How many bytes of output it was.
        bytes: usize,
    },
    /// A value is kept, or not.
    SecretKept {
        /// The task.
        at: TaskRef,
        /// The request that waits for it.
        token: RequestToken,
        /// The dependency it is for.
        id: String,
        /// Why not.
        result: Result<(), ControlError>,
    },
    /// What was kept for a run.
    SecretsRead {
        /// The task.
        at: TaskRef,
        /// The run.
        run: u64,
        /// What.
        result: SecretsRead,
    },
    /// A work area was copied from elsewhere, or not.
    Imported {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The request that waits for it.
        token: RequestToken,
        /// The task, or why not.
        result: Result<FoundTask, ControlError>,
    },
    /// Documents were looked for in a work area.
    DocumentsFound {
        /// The task.
        at: TaskRef,
        /// Those that do not exist.
        missing: Vec<String>,
    },
    /// A work area was looked at, or could not be.
    Measured {
        /// The task.
        at: TaskRef,
        /// What it takes, or why that cannot be told.
        result: Result<Measured, String>,
    },
    /// A checkpoint was made, or not.
    CheckpointMade {
        /// The task.
        at: TaskRef,
        /// The request that waits for it, if one does.
        token: Option<RequestToken>,
        /// The checkpoint, or why there is none.
        result: Result<CheckpointInfo, ControlError>,
        /// What the work area takes with it, if that was found out.
        disk: Option<Measured>,
    },
    /// A work area was taken back to a checkpoint, or not.
    Restored {
        /// The task.
        at: TaskRef,
        /// The request that waits for it.
        token: RequestToken,
        /// Whether it is only told what would change.
        is_rehearsal: bool,
        /// What changed, or why nothing did.
        result: Result<TaskRestored, ControlError>,
    },
    /// A work area was removed, or not.
    Removed {
        /// The task.
        at: TaskRef,
        /// Who wants it.
        reply: RemovalFor,
        /// Where its copy is, or why it was not.
        result: Result<TaskRemoved, ControlError>,
    },
    /// A HANDOFF names what is not there.
    HandoffRefused {
        /// The task.
        at: TaskRef,
        /// What.
        problem: String,
    },
    /// It was tried whether a checkpoint could be restored, or could not be tried.
    Drilled {
        /// The task.
        at: TaskRef,
        /// The request that waits for it, if one does.
        token: Option<RequestToken>,
        /// What came of it, or why nothing did.
        result: Result<TaskDrill, ControlError>,
    },
}
