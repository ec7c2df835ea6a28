//! `task.*`: pieces of work for command-line agents, which people start, answer, approve and take back
//! (`TASK-7`, `PROTO-2` to `PROTO-4`, `CKPT-4`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, ApprovalId, ConnectionName, InstanceKey, WorkspaceId};
use crate::limits::{MAX_CHECKPOINTS_PAGE, MAX_TASKS_PAGE};
use crate::shell::shell_quoted;
use crate::task::{NotifyOn, PlanStep, TaskBudget, TaskId, TaskSource, TaskStatus};
use crate::time::Timestamp;
use crate::usage::{MicroUsd, Usage};

use super::paging::{page_of, try_page_of};
use super::{FileStatus, SandboxRef};

/// `task.new`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTask {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Its id; one is made of the title if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The agent, one of `runtime.kind: cli`; may be left out where there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// What people call it.
    pub title: String,
    /// What kind of task it is, such as `create_app`.
    #[serde(rename = "type", default = "custom")]
    pub kind: String,
    /// What is to be done: the first prompt.
    pub description: String,
    /// Phases that are reviewed one by one; 0 for a task without.
    #[serde(default)]
    pub total_phases: u32,
    /// What it may take.
    #[serde(default)]
    pub budget: TaskBudget,
    /// Where the files that it works on come from; what its agent's `runtime.source` says if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<TaskSource>,
    /// Whether it is started at once.
    #[serde(default)]
    pub start: bool,
}

/// The kind of a task that says none.
fn custom() -> String {
    "custom".to_owned()
}

/// `task.list`: one page of the tasks, by workspace and id (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTasks {
    /// Only those of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only those that wait for a person.
    #[serde(default)]
    pub needs_me: bool,
    /// Also those that have ended.
    #[serde(default)]
    pub all: bool,
    /// The task behind which the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskPlace>,
    /// Most tasks on the page, at most and if it is not said [`MAX_TASKS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Which task: the place of one in the list of all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskPlace {
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its id.
    pub task_id: TaskId,
}

/// Result of `task.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TasksPage {
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskPlace>,
}

impl ListTasks {
    /// Whether a task is not on a page before this one.
    #[must_use]
    pub fn is_behind(&self, workspace_id: &WorkspaceId, task_id: &TaskId) -> bool {
        let after = self.after.as_ref();
        after.is_none_or(|it| (&it.workspace_id, &it.task_id) < (workspace_id, task_id))
    }

    /// The page that begins with these tasks, which come by workspace and id and are all behind
    /// [`after`](Self::after).
    pub fn page_of(&self, tasks: impl Iterator<Item = TaskInfo>) -> TasksPage {
        let place_of = |last: &TaskInfo| TaskPlace {
            workspace_id: last.workspace_id.clone(),
            task_id: last.task_id.clone(),
        };
        let (tasks, next) = page_of(tasks, self.limit, MAX_TASKS_PAGE, place_of);
        TasksPage { tasks, next }
    }
}

requests_about! {
    {
        /// The task.
        pub task_id: TaskId
    }
    /// `task.show`.
    ShowTask {}
    /// `task.start`.
    StartTask {}
    /// `task.pause`.
    PauseTask {}
    /// `task.resume`.
    ResumeTask {}
    /// `task.cancel`.
    CancelTask {}
    /// `task.approve`.
    ApproveTask {
        /// The phase; the one under review if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<u32>,
        /// True if a proposal is left as it is, and not delivered.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        without_delivery: bool,
        /// True if the proposal is delivered though the project has moved on since the copy of it was made.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        allow_moved_base: bool,
    }
    /// `task.rework`.
    ReworkTask {
        /// The phase; the one under review if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<u32>,
        /// What is to be better.
        text: String,
    }
    /// `task.answer`.
    AnswerTask {
        /// The id of the question; the only one that waits if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The answer.
        text: String,
    }
    /// `task.budget`.
    SetTaskBudget {
        /// What it may take from now on.
        budget: TaskBudget,
    }
    /// `task.checkpoint`.
    CheckpointTask {
        /// A name, which keeps it from being removed for age.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    }
    /// `task.checkpoints`: one page of a task's checkpoints, the oldest first (`OBS-1`).
    ListCheckpoints {
        /// Where the page begins: what the page before said in `next`; none for the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// Most checkpoints on the page, at most and if it is not said [`MAX_CHECKPOINTS_PAGE`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }
    /// `task.restore`.
    RestoreTask {
        /// Which checkpoint; the newest if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint_id: Option<String>,
        /// Only tell what would change.
        #[serde(default)]
        dry_run: bool,
    }
    /// `task.drill`.
    DrillTask {}
    /// `task.logs`.
    ReadTaskLog {
        /// Which of its logs.
        log: TaskLog,
        /// From which byte on; from the end backwards if it is negative.
        #[serde(default)]
        offset: i64,
        /// Whether to return only when there is something, or nothing more will come.
        #[serde(default)]
        wait: bool,
    }
    /// `task.remove`.
    RemoveTask {
        /// Without a backup.
        #[serde(default)]
        no_backup: bool,
    }
}

/// `task.prune` (`TASK-10`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PruneTasks {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Those that ended longer ago, in milliseconds, instead of those that are due by the swarm's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// Without backups.
    #[serde(default)]
    pub no_backup: bool,
    /// Only tell which they are.
    #[serde(default)]
    pub dry_run: bool,
}

/// Result of `task.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TasksPruned {
    /// The tasks that are due, or were removed; those that ended first come first.
    pub tasks: Vec<PrunedTask>,
    /// Whether they were removed, but for those with a `problem`.
    pub removed: bool,
}

/// A task that ended long ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrunedTask {
    /// The task.
    pub task_id: TaskId,
    /// What people call it.
    pub title: String,
    /// How it ended.
    pub status: TaskStatus,
    /// When.
    pub ended_at: Timestamp,
    /// Since when it may be removed.
    pub due_at: Timestamp,
    /// Where its backup is, if it was removed with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<PathBuf>,
    /// Why it was not removed, if it was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A restore drill: whether the newest checkpoint could be restored, tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDrill {
    /// The checkpoint that was unpacked and compared.
    pub checkpoint_id: String,
    /// When.
    pub at: Timestamp,
    /// Entries that were compared.
    pub entries: u64,
    /// Why it could not be restored, if it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `task.provide`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvideTask {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The task.
    pub task_id: TaskId,
    /// The id of the dependency, or its name; the only one that waits if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The value of a variable of the environment, which is kept encrypted; of anything else, a word on it.
    pub value: String,
}

impl std::fmt::Debug for ProvideTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProvideTask")
            .field("workspace_id", &self.workspace_id)
            .field("task_id", &self.task_id)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// `task.import`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportTask {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// A work area, absolute. It is copied; nothing but it is needed (`TASK-1`).
    pub path: PathBuf,
    /// The agent for a task of the plain format, which names none; the only one if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

/// A log of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskLog {
    /// What happened, in words.
    Agent,
    /// What its program wrote.
    Stdout,
    /// What it wrote to standard error.
    Stderr,
    /// The protocol blocks.
    Protocols,
    /// Every fact, as JSON lines.
    History,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskLogPart {
    /// Its text. What is no UTF-8 is replaced.
    pub text: String,
    /// Where the next part begins.
    pub next: u64,
    /// Whether the log ends here, for now.
    pub is_end: bool,
    /// Whether it ends here for good: the task has ended, and nothing of it runs any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
}

/// What a task waits for, of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskAsk {
    /// Its id: what the answer names.
    pub id: String,
    /// What kind of thing it is.
    pub kind: TaskAskKind,
    /// The question; of a dependency, its name.
    pub text: String,
    /// What a dependency is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Answers to choose from; none if any text is an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// What stands in for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// When it does; never, if an answer is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl TaskAsk {
    /// What a person types, without `gdn`. Which of several is meant is named where it must be.
    #[must_use]
    pub fn command(&self, task: &TaskId, is_one_of_several: bool) -> String {
        let id = &self.id;
        let named = if is_one_of_several {
            format!(" --id {id}")
        } else {
            String::new()
        };
        let chosen = self.default.as_deref();
        let chosen = chosen.or(self.options.first().map(String::as_str));
        let answer = chosen.and_then(shell_quoted);
        let answer = answer.unwrap_or_else(|| "ANSWER".to_owned());
        match self.kind {
            TaskAskKind::Question => format!("task answer {task}{named} {answer}"),
            TaskAskKind::Permission => format!("task answer {task}{named} allow"),
            TaskAskKind::Secret => format!("task provide {task} {id}"),
            TaskAskKind::Dependency => format!("task provide {task} {id} --say TEXT"),
        }
    }
}

/// What kind of thing a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskAskKind {
    /// A question of the agent, or of goondan: `task.answer`.
    Question,
    /// A permission for the agent's program: `task.answer` with `allow` or `refuse`.
    Permission,
    /// Something secret, which becomes a variable of the environment: `task.provide`.
    Secret,
    /// Something else that must be there: `task.provide`.
    Dependency,
}

/// What [`TaskInfo::blocked_by`] says of a task whose agent wants to make a call that a person must approve.
pub const BLOCKED_BY_APPROVAL: &str = "approval";

/// A line of the list of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The task.
    pub task_id: TaskId,
    /// What people call it.
    pub title: String,
    /// What kind of task it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The agent.
    pub agent: AgentName,
    /// How it stands.
    pub status: TaskStatus,
    /// What it waits for: `dependency`, `question`, `review`, `rate_limit` (`TASK-4`); `budget` or `quota` while that
    /// holds it, `approval` while a call of its agent's waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The phase it is in, from 1; 0 before the start and for a task without.
    pub current_phase: u32,
    /// Phases in all.
    pub total_phases: u32,
    /// Percent of the phase that the agent says are done.
    pub progress: u8,
    /// Tokens taken, in and out.
    pub tokens: u64,
    /// Money taken.
    pub cost: MicroUsd,
    /// The conversation whose agent made it; none of one that a person made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<InstanceKey>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When something last happened.
    pub updated_at: Timestamp,
    /// What a person should look at though it holds nothing up, such as a restore drill that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Why its work area cannot be read, if it cannot. Then the rest is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// All that is known of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDetail {
    /// What the list says of it.
    pub info: TaskInfo,
    /// What is to be done.
    pub description: String,
    /// Its work area.
    pub work_area: PathBuf,
    /// The sandbox that its agent works in, if it has a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<TaskSandbox>,
    /// The proposal of what was completed last; missing before that, and if nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<TaskProposal>,
    /// What a review of a task with a source is told beside the proposal: that nothing was changed, or why there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal_problem: Option<String>,
    /// What the command `runtime.verify` said of what was completed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<TaskVerdict>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it was completed, failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What waits for a person, the most urgent first.
    pub asks: Vec<TaskAsk>,
    /// Calls of its agent's that wait for a person's approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalId>,
    /// The phase under review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<u32>,
    /// Files that the agent wrote, as it says.
    pub documents: Vec<String>,
    /// Documents of what was completed last that do not exist in the work area.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_documents: Vec<String>,
    /// The step it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Its agent's plan, as the agent last told it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanStep>,
    /// The run that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<TaskRun>,
    /// Runs so far.
    pub runs: u64,
    /// How the last run ended that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<TaskLastRun>,
    /// When the next run may begin, if it waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The session of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model its program works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it may take.
    pub budget: TaskBudget,
    /// What it has taken.
    pub usage: Usage,
    /// What its work area takes; not told of one that cannot be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<TaskDisk>,
    /// The newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// The last restore drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<TaskDrill>,
    /// Whom connections told, or are to tell, of what: all that are not told yet, and the last that were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<TaskNotification>,
    /// The last lines of its history, in words, the newest last.
    pub recent: Vec<TaskHappening>,
}

/// The sandbox that a task's agent works in (`BOX-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSandbox {
    /// Which: as `gdn sandbox show` and `gdn proposal show` name it.
    pub at: SandboxRef,
    /// Its copy of the project. It is made when the first run begins.
    pub work_dir: PathBuf,
}

/// The proposal of a task: what its agent changed of the project (`REPO-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskProposal {
    /// What it is known by; another one has another.
    pub digest: String,
    /// The files that it changes: the first of them.
    pub files: Vec<TaskProposalFile>,
    /// How many it changes beyond those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_files: usize,
    /// True if it was delivered when its phase was approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_delivered: bool,
    /// The branch of the project's repository that it was delivered as, if as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// What came of the command `runtime.verify` (`REPO-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskVerdict {
    /// True if it ended well.
    pub passed: bool,
    /// How it ended, if it did not end well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The end of what it wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// A file that the proposal of a task changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskProposalFile {
    /// Its path in the project.
    pub path: String,
    /// What was done to it.
    pub status: FileStatus,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What the work area of a task takes (`TASK-9`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDisk {
    /// Bytes of its files, checkpoints and logs among them.
    pub bytes: u64,
    /// What it may take. Beyond it no checkpoint is made, and its agent is paused.
    pub quota_bytes: u64,
    /// What is free on its file system; missing if that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// When that was looked at.
    pub measured_at: Timestamp,
}

/// Something that a connection tells people of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskNotification {
    /// Its id, such as `n-0001`.
    pub id: String,
    /// What it is about.
    pub on: NotifyOn,
    /// By which connection.
    pub connection: ConnectionName,
    /// What that does.
    pub action: String,
    /// When it came to be.
    pub at: Timestamp,
    /// What became of it.
    pub state: TaskNotificationState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What became of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskNotificationState {
    /// It is on its way.
    Waiting,
    /// It arrived.
    Sent,
    /// It did not, or nobody knows.
    Failed,
}

/// The run that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRun {
    /// Its number, from 1.
    pub number: u64,
    /// The process id of its program, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A line of a task's history, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskHappening {
    /// When.
    pub at: Timestamp,
    /// What: the fact's `event`, such as `question_asked`.
    pub event: String,
    /// What it is about, in a few words; empty if the event says all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A checkpoint (`CKPT-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointInfo {
    /// Its id, such as `checkpoint_001`.
    pub checkpoint_id: String,
    /// Why it was made, such as `phase_completion`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A name that a person gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The phase it was made in.
    pub phase: u32,
    /// When.
    pub created_at: Timestamp,
    /// Bytes of its snapshot.
    pub snapshot_size: u64,
    /// Files in it; told of one that was just made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Why it cannot be restored, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Result of `task.checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointsPage {
    /// The checkpoints, the oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListCheckpoints {
    /// The page that begins with these checkpoints, which come in their order and are all behind `after`.
    /// Not more of them are taken than a page and one.
    ///
    /// # Errors
    ///
    /// The first of theirs.
    pub fn page_of<E>(
        &self,
        checkpoints: impl Iterator<Item = Result<CheckpointInfo, E>>,
    ) -> Result<CheckpointsPage, E> {
        let place_of = |last: &CheckpointInfo| last.checkpoint_id.clone();
        let page = try_page_of(checkpoints, self.limit, MAX_CHECKPOINTS_PAGE, place_of);
        page.map(|(checkpoints, next)| CheckpointsPage { checkpoints, next })
    }
}

/// What a restore changed, or would change. Paths are relative to the work area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRestored {
    /// The checkpoint that was used.
    pub checkpoint_id: String,
    /// Newer ones that are damaged, and why.
    pub skipped: Vec<CheckpointInfo>,
    /// What was put back.
    pub added: Vec<String>,
    /// What is as it was.
    pub changed: Vec<String>,
    /// What was made later, and is in the checkpoint made before the restore.
    pub removed: Vec<String>,
    /// The checkpoint made before the restore; none if it was a rehearsal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_restore: Option<String>,
}

/// A task that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRemoved {
    /// Where its backup is, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn info(workspace: &str, task: &str) -> TaskInfo {
        let info = json!({
            "workspaceId": workspace, "taskId": task, "title": task, "type": "custom", "agent": "coder",
            "status": "running", "currentPhase": 0, "totalPhases": 0, "progress": 0, "tokens": 0, "cost": 0,
            "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
        });
        serde_json::from_value(info).unwrap()
    }

    #[test]
    fn obs_1_the_pages_of_tasks_miss_and_repeat_none() {
        for limit in [1, 2, 3, 4, MAX_TASKS_PAGE + 1] {
            let mut list = ListTasks {
                limit: Some(limit),
                ..ListTasks::default()
            };
            // Between pages one is removed, and one more is made before what was seen.
            let mut there = vec![
                info("v", "b"),
                info("v", "c"),
                info("w", "a"),
                info("w", "d"),
            ];
            let mut seen: Vec<String> = Vec::new();
            loop {
                let on_it = there.iter();
                let behind = on_it.filter(|info| list.is_behind(&info.workspace_id, &info.task_id));
                let page = list.page_of(behind.cloned());
                assert!(page.tasks.len() <= limit);
                seen.extend(page.tasks.iter().map(|info| info.title.clone()));
                list.after = page.next;
                if list.after.is_none() {
                    break;
                }
                there.retain(|info| info.title != "b");
                there.insert(0, info("a", "e"));
            }
            assert_eq!(seen, ["b", "c", "a", "d"], "{limit}");
        }
    }
}
