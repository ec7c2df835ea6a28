//! Tasks: work for command-line agents, with a separate directory (`TASK-1` to `TASK-10`).
//!
//! The daemon decides the next step of a task. A process of the agent binary runs the agent's
//! program, reads its output, and reports it in the messages below. Each run has its own process,
//! which ends with the run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{AgentName, WorkspaceId};
use crate::process_limits::ProcessLimits;
use crate::sandbox::SandboxPolicy;
use crate::usage::MicroUsd;

mod conversation;
mod notify;
mod plan;
mod source;
mod stream;

pub use conversation::{TASK_KEY_PREFIX, conversation_of, event_of, is_of_task};
pub use notify::{Notice, Notify, NotifyOn, TemplatePart, action_of, parts_of};
pub use plan::{PLAN_STEP_CHARS_MAX, PLAN_STEPS_MAX, PlanStep, PlanStepState};
pub use source::{
    DeliveredBranch, GitCredentials, RepositoryAccess, RepositorySource, SANDBOX_INPUT,
    SANDBOX_PROPOSAL, SANDBOX_WORK, TASK_BRANCHES, TaskChecks, TaskDelivery, TaskRunKind,
    TaskSource,
};
pub use stream::{ChangedFile, TaskItem, TaskItemContent, ToolState};

/// Maximum length of a task's id, in characters.
pub const TASK_ID_CHARS_MAX: usize = 64;

/// Maximum size of one [`TaskOutput`], in bytes.
pub const TASK_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// History of a task, below its work area: the source of truth (`TASK-1`).
pub const HISTORY: &str = ".metadata/history.jsonl";

/// Directories of a work area that only the daemon writes. With write access, an agent could
/// approve its own work.
pub const KEPT_DIRECTORIES: [&str; 3] = [".metadata", ".checkpoints", ".logs"];

/// Placeholder of the prompt in the arguments of an agent's program.
pub const PROMPT_PLACE: &str = "{prompt}";

/// Variable with the MCP servers of a task's program, in the JSON form of `--mcp-config`.
pub const MCP_CONFIG_VARIABLE: &str = "GOONDAN_MCP_CONFIG";

/// Placeholder of the session id in the arguments.
pub const SESSION_PLACE: &str = "{session}";

/// A task's id, which is also the name of its work area: letters, digits, `-` and `_`, not beginning with `_`
/// or `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(Arc<str>);

/// An invalid task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid task id: use at most {max} letters, digits, `-` and `_`, starting with a letter or digit",
    max = TASK_ID_CHARS_MAX
)]
pub struct InvalidTaskId(String);

impl TaskId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TaskId {
    type Error = InvalidTaskId;

    fn try_from(text: String) -> Result<Self, InvalidTaskId> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_valid = text.len() <= TASK_ID_CHARS_MAX
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(is_allowed);
        if is_valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidTaskId(
                text.chars().take(TASK_ID_CHARS_MAX).collect(),
            ))
        }
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.as_str().to_owned()
    }
}

impl AsRef<str> for TaskId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TaskId {
    type Err = InvalidTaskId;

    fn from_str(text: &str) -> Result<Self, InvalidTaskId> {
        Self::try_from(text.to_owned())
    }
}

/// Status of a task (`TASK-7`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Created and not started.
    Idle,
    /// The agent works, or waits for its start.
    Running,
    /// A person must provide a dependency.
    WaitingDependency,
    /// A person must answer.
    WaitingQuestion,
    /// A person must review a phase.
    WaitingReview,
    /// Paused by a person, or because a budget is exhausted.
    Paused,
    /// Ended successfully.
    Completed,
    /// Ended with a failure.
    Failed,
    /// Canceled by a person.
    Cancelled,
}

impl fmt::Display for TaskStatus {
    /// Writes the status in words: `waiting for an answer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "not started",
            Self::WaitingDependency => "waiting for a dependency",
            Self::WaitingQuestion => "waiting for an answer",
            Self::WaitingReview => "waiting for a review",
            other => other.as_str(),
        })
    }
}

impl TaskStatus {
    /// The status in files and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::WaitingDependency => "waiting_dependency",
            Self::WaitingQuestion => "waiting_question",
            Self::WaitingReview => "waiting_review",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True if the task waits for a person.
    #[must_use]
    pub fn needs_person(self) -> bool {
        matches!(
            self,
            Self::WaitingDependency | Self::WaitingQuestion | Self::WaitingReview
        )
    }

    /// True if the status is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Budget of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskBudget {
    /// Maximum number of tokens, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<MicroUsd>,
    /// Disk quota of its work area, in bytes (`TASK-9`); by default its agent's `diskMiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// Format in which an agent's program writes its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentFormat {
    /// Plain text of any program. All output counts as the assistant's.
    Plain,
    /// `claude --print --verbose --output-format stream-json`.
    ClaudeStreamJson,
    /// `codex exec --json`.
    CodexJson,
    /// `gemini --output-format stream-json`.
    GeminiStreamJson,
    /// `opencode run --format json`.
    OpencodeJson,
    /// `aider --no-pretty`: text, with lines that report the usage.
    Aider,
    /// The Agent Client Protocol, version 1, over standard input and output.
    Acp,
}

impl AgentFormat {
    /// True if the output of a run ends with a result. Otherwise the exit code is the result.
    #[must_use]
    pub fn tells_result(self) -> bool {
        !matches!(self, Self::Plain | Self::Aider)
    }
}

/// Way in which a program receives its prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromptChannel {
    /// On its standard input, which is closed after the prompt. With `acp` and
    /// `claude-stream-json`, in the form of that protocol; the input then stays open for answers to
    /// requests for permission.
    #[default]
    Stdin,
    /// In place of `{prompt}` in its arguments.
    Argument,
}

/// Way in which a program receives goondan's tools, which an MCP server provides (`AGENT-2`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolsBy {
    /// The variable `GOONDAN_MCP_CONFIG` alone: the program uses the tools if it reads the variable.
    #[default]
    Variable,
    /// `--mcp-config`, and permission by `--allowedTools`.
    ClaudeArguments,
    /// `-c mcp_servers.goondan…`.
    CodexArguments,
    /// `--mcp-config`, with permission in it.
    QwenArguments,
    /// `OPENCODE_CONFIG_CONTENT`.
    OpencodeVariable,
    /// `mcpServers` of the session, of `acp`.
    AcpSession,
}

impl ToolsBy {
    /// True if the program offers the tools to its model on its own.
    #[must_use]
    pub fn is_certain(self) -> bool {
        self != Self::Variable
    }

    /// True if it is the default.
    #[must_use]
    pub fn is_variable(&self) -> bool {
        *self == Self::Variable
    }
}

/// An Agent of `runtime.kind: cli` with its references resolved: a program that works for tasks (`TASK-8`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CliAgentDefinition {
    /// Its name.
    pub name: AgentName,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The program and its arguments. `{prompt}` is replaced by the prompt, if that is an argument.
    pub command: Vec<String>,
    /// The command to resume a session; `{session}` is replaced by its id. Empty if the program
    /// cannot resume sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<String>,
    /// Output format.
    pub format: AgentFormat,
    /// Way in which it receives its prompt.
    #[serde(default)]
    pub prompt: PromptChannel,
    /// Way in which the program receives goondan's tools.
    #[serde(default, skip_serializing_if = "ToolsBy::is_variable")]
    pub tools: ToolsBy,
    /// Description of the protocol in its first prompt: absent for goondan's own text, empty for
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preamble: Option<String>,
    /// Requested model of a program of `acp`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_model: Option<String>,
    /// Requested mode of a program of `acp`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_mode: Option<String>,
    /// Variables of its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Secret environment variables of the program. They are sent only with its assignment.
    #[serde(skip)]
    pub secrets: SecretVariables,
    /// Absolute path to which each task's `guide` links; never writable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guide: Option<PathBuf>,
    /// Resource limits of a run, including all processes that it starts.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
    pub limits: ProcessLimits,
    /// Disk quota of a task's work area, in bytes (`TASK-9`); by default the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Source of its tasks' files; `gdn task new --source` overrides it.
    #[serde(default, skip_serializing_if = "TaskSource::is_none")]
    pub source: TaskSource,
    /// Rights at the repository that is the source.
    #[serde(default, skip_serializing_if = "RepositoryAccess::has_no_connection")]
    pub repository: RepositoryAccess,
    /// Delivery of a task's proposal to the project.
    #[serde(default, skip_serializing_if = "TaskDelivery::is_usual")]
    pub deliver: TaskDelivery,
    /// Agents that continue its tasks while its provider's usage limit is reached, in order
    /// (`AGENT-8`); `gdn task new --fallback` overrides it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<AgentName>,
    /// Account that its runs use.
    #[serde(default)]
    pub account: AgentAccount,
    /// The command that prepares a task's copy of the project; empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// The command that verifies the work of a task's agent; empty if none is configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<String>,
    /// Confinement of the program, and rights in addition to its work area.
    pub sandbox: SandboxPolicy,
}

/// Account of a program at its provider, whose usage limit all agents with this account share
/// (`AGENT-8`).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentAccount {
    /// The program's name.
    pub program: String,
    /// Its login directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<PathBuf>,
    /// Names of its secrets, never their values. Empty if it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl AgentAccount {
    /// True if it identifies an account. The account of a program without a configured login or
    /// secret is unknown, and counts as the agent's own.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.login.is_some() || !self.secrets.is_empty()
    }
}

/// Secret variables, whose `Debug` output contains only the names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretVariables(pub BTreeMap<String, String>);

impl fmt::Debug for SecretVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Everything one run of a task's agent needs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskAssignment {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The task.
    pub task_id: TaskId,
    /// The run.
    pub run: u64,
    /// Kind of the run. For other kinds than the agent's run, `agent` contains the command of the
    /// kind instead of the agent's program.
    #[serde(default, skip_serializing_if = "TaskRunKind::is_agent")]
    pub kind: TaskRunKind,
    /// The agent.
    pub agent: CliAgentDefinition,
    /// The work area: the working directory of the program, and its only writable directory, unless
    /// there is a sandbox.
    pub work_area: PathBuf,
    /// The sandbox with the task's copy of the project, if the task has a source. The program then
    /// works in its `work`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<PathBuf>,
    /// The project of the task.
    pub project_root: PathBuf,
    /// Proxy socket, if the program may reach only some hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_socket: Option<PathBuf>,
    /// Control group of its program, if available: the process moves the program there, and pauses
    /// it by freezing the group (`TASK-8`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PathBuf>,
    /// The session to resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The prompt.
    pub prompt: String,
    /// Secrets that users provided, as variables of its environment. Never logged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

impl CliAgentDefinition {
    /// Commands that its tasks run besides its program, if they work on a copy of the project.
    #[must_use]
    pub fn checks(&self) -> TaskChecks {
        TaskChecks {
            setup: !self.setup.is_empty(),
            verify: !self.verify.is_empty(),
        }
    }

    /// The definition with the command for a run of another kind; `None` if it has no such command.
    #[must_use]
    pub fn for_run(self, kind: TaskRunKind) -> Option<Self> {
        let command = match kind {
            TaskRunKind::Agent => return Some(self),
            TaskRunKind::Setup => self.setup.clone(),
            TaskRunKind::Verify => self.verify.clone(),
        };
        let is_there = !command.is_empty();
        is_there.then_some(Self {
            command,
            resume: Vec::new(),
            format: AgentFormat::Plain,
            prompt: PromptChannel::Stdin,
            tools: ToolsBy::Variable,
            ..self
        })
    }
}

impl TaskAssignment {
    /// The copy of the project that its program works in, if its task has a source.
    #[must_use]
    pub fn copy_of_project(&self) -> Option<PathBuf> {
        Some(self.sandbox.as_ref()?.join(SANDBOX_WORK))
    }
}

impl fmt::Debug for TaskAssignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskAssignment")
            .field("workspace_id", &self.workspace_id)
            .field("task_id", &self.task_id)
            .field("run", &self.run)
            .field("agent", &self.agent.name)
            .field("work_area", &self.work_area)
            .field("secrets", &self.secrets.keys())
            .finish_non_exhaustive()
    }
}

/// The task that the agent of a conversation works for (`TASK-8`).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignedTask {
    /// The task.
    pub task_id: TaskId,
    /// Secrets that users provided, as environment variables of its tools. Never logged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

impl fmt::Debug for AssignedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssignedTask")
            .field("task_id", &self.task_id)
            .field("secrets", &self.secrets.keys())
            .finish()
    }
}

/// `task.started`: the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStarted {
    /// Its process id.
    pub pid: u32,
    /// Start time, in the kernel's unit.
    pub start_time: u64,
}

/// `task.not_started`: the program could not be started. The process ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskNotStarted {
    /// Reason, for people.
    pub error: String,
}

/// `task.told`: events in the program's output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskTold {
    /// Events of `goondan-cli-agents`, raw, in order.
    pub events: Vec<Box<RawValue>>,
}

/// Output stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// `task.output`: output of the program, for its log. Invalid UTF-8 is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskOutput {
    /// The stream.
    pub stream: OutputStream,
    /// The text, at most [`TASK_OUTPUT_BYTES_MAX`] bytes.
    pub text: String,
}

/// `task.alive`: the program shows a sign of life other than output: processor time, or a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAlive {}

/// `task.exited`: the program and all of its processes have ended, and all output was reported. The
/// process then exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskExited {
    /// Its exit code, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

/// `task.pause`: stops the program and all of its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPause {}

/// `task.continue`: continue a suspended program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskContinue {}

/// `task.permission`: the answer to a request of the program for a permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPermission {
    /// The id of the request.
    pub request: String,
    /// Reason of the refusal; `None` if this attempt is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// True if the permission is valid until the end of the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_for_task: bool,
    /// Answers to the program's own questions, by the question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(String, String)>,
}
