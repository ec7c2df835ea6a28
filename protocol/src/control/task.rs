//! `task.*`: work for command-line agents, which users start, answer, approve and cancel (`TASK-7`,
//! `PROTO-2` to `PROTO-4`, `CKPT-4`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, ApprovalId, ConnectionName, EventId, InstanceKey, WorkspaceId};
use crate::limits::{MAX_CHECKPOINTS_PAGE, MAX_TASKS_PAGE};
use crate::shell::shell_quoted;
use crate::task::{NotifyOn, PlanStep, TaskBudget, TaskId, TaskItem, TaskSource, TaskStatus};
use crate::time::Timestamp;
use crate::usage::{MicroUsd, Usage};

use super::pages::{page_of, try_page_of};
use super::{FileStatus, SandboxRef};

/// `task.new`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTask {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Id of the task; derived from the title if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The agent, with `runtime.kind: cli`; optional if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Title for people.
    pub title: String,
    /// Kind of the task, such as `create_app`.
    #[serde(rename = "type", default = "custom")]
    pub kind: String,
    /// Description of the work: the first prompt.
    pub description: String,
    /// Number of phases that are reviewed one by one; 0 for a task without phases.
    #[serde(default)]
    pub total_phases: u32,
    /// Budget of the task.
    #[serde(default)]
    pub budget: TaskBudget,
    /// Source of the files; by default the agent's `runtime.source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<TaskSource>,
    /// Agents that continue while the first agent's usage limit is reached, in order; by default
    /// the agent's `runtime.fallbacks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<Vec<AgentName>>,
    /// True to start it immediately.
    #[serde(default)]
    pub start: bool,
}

/// Default kind of a task.
fn custom() -> String {
    "custom".to_owned()
}

/// `task.list`: one page of the tasks, by workspace and id (`OBS-1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTasks {
    /// Only tasks of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only tasks that wait for a person.
    #[serde(default)]
    pub needs_me: bool,
    /// True to include ended tasks.
    #[serde(default)]
    pub all: bool,
    /// The task after which the page begins: `next` of the previous page; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskPlace>,
    /// Maximum number of tasks on the page; defaults to and is capped at [`MAX_TASKS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Position of a task in the list of all.
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
    /// Start of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskPlace>,
}

impl ListTasks {
    /// True if a task follows the previous page.
    #[must_use]
    pub fn is_behind(&self, workspace_id: &WorkspaceId, task_id: &TaskId) -> bool {
        let after = self.after.as_ref();
        after.is_none_or(|it| (&it.workspace_id, &it.task_id) < (workspace_id, task_id))
    }

    /// The page that begins with these tasks, which must be sorted by workspace and id, and all
    /// follow [`after`](Self::after).
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
        /// The phase; by default the one under review.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<u32>,
        /// True to approve without delivering the proposal.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        without_delivery: bool,
        /// True to deliver the proposal even if the project has changed since it was copied.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        allow_moved_base: bool,
    }
    /// `task.rework`.
    ReworkTask {
        /// The phase; by default the one under review.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<u32>,
        /// The requested changes; may be empty if the proposal has open comments, which the agent
        /// receives as well.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    }
    /// `task.send`: a person's message to the agent of a task (`AGENT-7`).
    SendTask {
        /// The message.
        text: String,
        /// Id of the message. A message with a known id is acknowledged, and not delivered again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<EventId>,
    }
    /// `task.answer`.
    AnswerTask {
        /// Id of the question; optional if only one waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The answer.
        text: String,
    }
    /// `task.budget`.
    SetTaskBudget {
        /// The new budget.
        budget: TaskBudget,
    }
    /// `task.checkpoint`.
    CheckpointTask {
        /// Name of the checkpoint. Named checkpoints are never removed by age.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    }
    /// `task.checkpoints`: one page of a task's checkpoints, the oldest first (`OBS-1`).
    ListCheckpoints {
        /// Start of the page: `next` of the previous page; `None` for the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// Maximum number of checkpoints on the page; defaults to and is capped at
        /// [`MAX_CHECKPOINTS_PAGE`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }
    /// `task.restore`.
    RestoreTask {
        /// The checkpoint; by default the newest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint_id: Option<String>,
        /// Only report the changes.
        #[serde(default)]
        dry_run: bool,
    }
    /// `task.drill`.
    DrillTask {}
    /// `task.logs`.
    ReadTaskLog {
        /// The log.
        log: TaskLog,
        /// Offset of the first byte; negative offsets count from the end.
        #[serde(default)]
        offset: i64,
        /// True to return only when there is data, or the log has ended.
        #[serde(default)]
        wait: bool,
    }
    /// `task.watch`: a part of a task's stream.
    WatchTask {
        /// Start of the part: `next` of the previous part. Absent: the start of the latest run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
        /// True to return only when there is an item, or the stream has ended.
        #[serde(default)]
        wait: bool,
    }
    /// `task.remove`.
    RemoveTask {
        /// True to remove the task without a backup.
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
    /// Minimum time since the end of a task, in milliseconds; by default the policy of the Swarm
    /// decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// True to remove the tasks without backups.
    #[serde(default)]
    pub no_backup: bool,
    /// True to only list the tasks.
    #[serde(default)]
    pub dry_run: bool,
}

/// Result of `task.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TasksPruned {
    /// The removed or due tasks, in the order in which they ended.
    pub tasks: Vec<PrunedTask>,
    /// True if the tasks were removed, except those with a `problem`.
    pub removed: bool,
}

/// A task that ended long ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrunedTask {
    /// The task.
    pub task_id: TaskId,
    /// Title for people.
    pub title: String,
    /// Final status.
    pub status: TaskStatus,
    /// End time.
    pub ended_at: Timestamp,
    /// Time from which it may be removed.
    pub due_at: Timestamp,
    /// Path of its backup, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<PathBuf>,
    /// Reason why it was not removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Restore drill: a check that the newest checkpoint can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDrill {
    /// The checkpoint that was unpacked and compared.
    pub checkpoint_id: String,
    /// Time of the drill.
    pub at: Timestamp,
    /// Entries that were compared.
    pub entries: u64,
    /// Reason why the checkpoint cannot be restored, if so.
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
    /// Id or name of the dependency; optional if only one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Value of an environment variable, which is stored encrypted; for other dependencies, a note.
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
    /// Absolute path of a work area, which is copied. It contains everything that the task needs
    /// (`TASK-1`).
    pub path: PathBuf,
    /// The agent for a task of the plain format, which names no agent; optional if there is only
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

/// A log of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskLog {
    /// Events, as text.
    Agent,
    /// Output of its program.
    Stdout,
    /// Standard error of its program.
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
    /// The text. Invalid UTF-8 is replaced.
    pub text: String,
    /// Offset of the next part.
    pub next: u64,
    /// True if this is the current end of the log.
    pub is_end: bool,
    /// True if the log has ended permanently: the task has ended and has no process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
}

/// A part of a task's stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStreamPart {
    /// The items.
    pub items: Vec<TaskItem>,
    /// Position of the next part.
    pub next: u64,
    /// Size of the items before these that the daemon no longer has, in bytes.
    #[serde(default, skip_serializing_if = "is_zero_bytes")]
    pub skipped_bytes: u64,
    /// True if this is the current end of the stream.
    pub is_end: bool,
    /// True if the stream has ended: the task has ended and has no process. A message continues it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
}

/// A decision that a task waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskAsk {
    /// Id of the decision, which the answer must name.
    pub id: String,
    /// Kind of the decision.
    pub kind: TaskAskKind,
    /// The question, or the name of a dependency.
    pub text: String,
    /// Purpose of a dependency.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Allowed answers; empty if any text is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Default answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Time at which the default answer applies; absent if an answer is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl TaskAsk {
    /// Command to answer, without `gdn`. If the task waits for several things, the command includes
    /// the id.
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

/// Kind of a decision that a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskAskKind {
    /// A question of the agent, or of goondan: `task.answer`.
    Question,
    /// A permission for the agent's program: `task.answer` with `allow` or `refuse`.
    Permission,
    /// A secret, which becomes an environment variable: `task.provide`.
    Secret,
    /// Another requirement: `task.provide`.
    Dependency,
}

/// Value of [`TaskInfo::blocked_by`] for a task whose agent waits for the approval of a tool call.
pub const BLOCKED_BY_APPROVAL: &str = "approval";

/// Value of [`TaskInfo::blocked_by`] for a task whose proposal waits in the merge queue.
pub const BLOCKED_BY_QUEUE: &str = "merge_queue";

/// A line of the list of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The task.
    pub task_id: TaskId,
    /// Title for people.
    pub title: String,
    /// Kind of the task.
    #[serde(rename = "type")]
    pub kind: String,
    /// The agent.
    pub agent: AgentName,
    /// Status of the task.
    pub status: TaskStatus,
    /// Reason for waiting: `dependency`, `question`, `review`, `rate_limit` (`TASK-4`); `budget` or
    /// `quota` while it is exhausted; `approval` while a tool call of its agent waits for approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The phase it is in, from 1; 0 before the start and for a task without.
    pub current_phase: u32,
    /// Phases in all.
    pub total_phases: u32,
    /// Progress of the phase in percent, as reported by the agent.
    pub progress: u8,
    /// Tokens taken, in and out.
    pub tokens: u64,
    /// Money taken.
    pub cost: MicroUsd,
    /// The conversation whose agent created it; `None` for a task created by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<InstanceKey>,
    /// Creation time; `None` if its work area was never readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Time of the last event; `None` if its work area was never readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// A warning for the user that does not block the task, such as a failed restore drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Reason why the work area cannot be read, if so. Then the other fields are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

impl TaskInfo {
    /// True if the task needs a person: for an answer, a review, more budget, disk space, or a repair.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        let blocked_by = self.blocked_by.as_deref();
        let is_blocked = matches!(
            blocked_by,
            Some("budget" | "shared_budget" | "quota" | BLOCKED_BY_APPROVAL)
        );
        let is_queued = blocked_by == Some(BLOCKED_BY_QUEUE);
        self.damaged.is_some() || is_blocked || (self.status.needs_person() && !is_queued)
    }
}

/// Details of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDetail {
    /// Its entry in lists.
    pub info: TaskInfo,
    /// Description of the work.
    pub description: String,
    /// Its work area.
    pub work_area: PathBuf,
    /// Source of its files.
    #[serde(default, skip_serializing_if = "TaskSource::is_none")]
    pub source: TaskSource,
    /// The sandbox that its agent works in, if it has a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<TaskSandbox>,
    /// Proposal of the latest completed phase; absent before that, and if nothing has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<TaskProposal>,
    /// For a review of a task with a source: a note that nothing has changed, or the reason why
    /// there is no proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal_problem: Option<String>,
    /// Result of the command `runtime.verify` for the latest completed phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<TaskVerdict>,
    /// Start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End time: of the completion, the failure or the cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Messages that its agent has not received yet, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// Decisions that it waits for, most urgent first.
    pub asks: Vec<TaskAsk>,
    /// Calls of the agent that wait for a person's approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalId>,
    /// The phase under review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<u32>,
    /// Files that the agent reports to have written.
    pub documents: Vec<String>,
    /// Documents of the latest completed phase that do not exist in the work area.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_documents: Vec<String>,
    /// The current step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Its agent's plan, as last reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanStep>,
    /// The run in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<TaskRun>,
    /// Runs so far.
    pub runs: u64,
    /// Result of the last ended run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<TaskLastRun>,
    /// Earliest start of the next run, if it is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Its agents in order of preference, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<TaskAgent>,
    /// The session of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its budget.
    pub budget: TaskBudget,
    /// Its usage.
    pub usage: Usage,
    /// Its disk usage; absent if the work area cannot be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<TaskDisk>,
    /// The newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// The last restore drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<TaskDrill>,
    /// Notifications through connections: all pending ones, and the latest finished ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<TaskNotification>,
    /// The last lines of the history, the newest last.
    pub recent: Vec<TaskHistoryLine>,
}

/// One of several agents of a task (`AGENT-8`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskAgent {
    /// Its name.
    pub name: AgentName,
    /// True if the task's runs use it now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_current: bool,
    /// Reset time of the last usage limit that it reached in this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<Timestamp>,
}

/// Result of a run, with the last message of its program (`AGENT-6`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskLastRun {
    /// Its number.
    pub number: u64,
    /// True if the run succeeded.
    pub is_ok: bool,
    /// The outcome, as text.
    pub outcome: String,
    /// Last message of the agent, shortened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// The last lines of the program's standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// The sandbox that a task's agent works in (`BOX-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSandbox {
    /// Its address, for `gdn proposal sandbox show` and `gdn proposal show`.
    pub at: SandboxRef,
    /// The task's copy of the project, which is created when the first run begins.
    pub work_dir: PathBuf,
}

/// The proposal of a task: its agent's changes to the project (`REPO-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskProposal {
    /// Its digest, which identifies it.
    pub digest: String,
    /// The first of its changed files.
    pub files: Vec<TaskProposalFile>,
    /// Number of further changed files.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_files: usize,
    /// True if it was delivered when its phase was approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_delivered: bool,
    /// The branch of the source's repository to which the proposal was delivered, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// URL of the pull request that was opened for the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<String>,
}

/// Result of the command `runtime.verify` (`REPO-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskVerdict {
    /// True if the command succeeded.
    pub passed: bool,
    /// Reason of the failure, if it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// End of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// A file that the proposal of a task changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskProposalFile {
    /// Its path in the project.
    pub path: String,
    /// Kind of the change.
    pub status: FileStatus,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_zero_bytes(bytes: &u64) -> bool {
    *bytes == 0
}

/// Disk usage of a task's work area (`TASK-9`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDisk {
    /// Size of its files in bytes, including checkpoints and logs.
    pub bytes: u64,
    /// Disk quota. Beyond it, no checkpoint is created, and the agent is paused.
    pub quota_bytes: u64,
    /// Free bytes on its file system; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Time of the measurement.
    pub measured_at: Timestamp,
}

/// A notification about a task through a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskNotification {
    /// Its id, such as `n-0001`.
    pub id: String,
    /// Subject of the notification.
    pub on: NotifyOn,
    /// Connection that sends the notification.
    pub connection: ConnectionName,
    /// The connection's action.
    pub action: String,
    /// Creation time.
    pub at: Timestamp,
    /// State of the notification.
    pub state: TaskNotificationState,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// State of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskNotificationState {
    /// Not sent yet.
    Waiting,
    /// Delivered.
    Sent,
    /// Failed, or with an unknown outcome.
    Failed,
}

/// The run in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRun {
    /// Its number, from 1.
    pub number: u64,
    /// The process id of its program, once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A line of a task's history, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskHistoryLine {
    /// Time of the event.
    pub at: Timestamp,
    /// The fact's `event`, such as `question_asked`.
    pub event: String,
    /// Short details; empty if the event is self-explanatory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A checkpoint (`CKPT-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointInfo {
    /// Its id, such as `checkpoint_001`.
    pub checkpoint_id: String,
    /// Reason for the checkpoint, such as `phase_completion`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A name that a person gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Phase of the task at the checkpoint.
    pub phase: u32,
    /// Creation time; `None` if its metadata is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Bytes of its snapshot.
    pub snapshot_size: u64,
    /// Number of its files; only for a new checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Reason why it cannot be restored, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Result of `task.checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointsPage {
    /// The checkpoints, the oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// Start of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListCheckpoints {
    /// Builds the page that starts with these checkpoints, which must be sorted and come after
    /// `after`. Takes at most one more than fit on the page.
    ///
    /// # Errors
    ///
    /// The first error of the iterator.
    pub fn page_of<E>(
        &self,
        checkpoints: impl Iterator<Item = Result<CheckpointInfo, E>>,
    ) -> Result<CheckpointsPage, E> {
        let place_of = |last: &CheckpointInfo| last.checkpoint_id.clone();
        let page = try_page_of(checkpoints, self.limit, MAX_CHECKPOINTS_PAGE, place_of);
        page.map(|(checkpoints, next)| CheckpointsPage { checkpoints, next })
    }
}

/// Result of a restore or of a dry run. Paths are relative to the work area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRestored {
    /// The checkpoint that was used.
    pub checkpoint_id: String,
    /// Newer checkpoints that are damaged, with the reasons.
    pub skipped: Vec<CheckpointInfo>,
    /// Restored files that did not exist.
    pub added: Vec<String>,
    /// Files that were changed back.
    pub changed: Vec<String>,
    /// Removed files, which are in the checkpoint made before the restore.
    pub removed: Vec<String>,
    /// The checkpoint made before the restore; `None` for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_restore: Option<String>,
}

/// A task that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRemoved {
    /// Path of its backup, if there is one.
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
            // Between two pages, one is removed, and another is added before the next page.
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
