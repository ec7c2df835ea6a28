//! Events of a task: the records of `history.jsonl` (`TASK-5`).

use goondan_cli_agents::blocks::{AgentError, DependencyRequest, UserQuestion};
use goondan_cli_agents::usage::SessionUsage;
use goondan_protocol::control::{ProposalComment, TaskProposal, TaskVerdict};
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey};
use goondan_protocol::task::{NotifyOn, PlanStep, TaskChecks, TaskRunKind, TaskSource};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{MicroUsd, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use goondan_protocol::task::{InvalidTaskId, TaskBudget as Budget, TaskId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewTask {
    pub task_id: TaskId,
    pub agent: AgentName,
    /// Kind of worker: a program or an in-process agent.
    #[serde(default, skip_serializing_if = "Runtime::is_program")]
    pub runtime: Runtime,
    pub title: String,
    /// Task type, such as `create_app`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Description of the work: the first prompt.
    pub description: String,
    /// Number of phases, each of which is reviewed; 0 for a task without phases.
    pub total_phases: u32,
    #[serde(default)]
    pub budget: Budget,
    /// True if the agent's output contains a result; if not, the exit code decides.
    pub tells_result: bool,
    /// Conversation whose agent created the task; none if a person created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<InstanceKey>,
    /// Source of the files that the task works on.
    #[serde(default, skip_serializing_if = "TaskSource::is_none")]
    pub source: TaskSource,
    /// Commands that the task runs in addition to the agent's program.
    #[serde(default, skip_serializing_if = "TaskChecks::is_none")]
    pub checks: TaskChecks,
    /// Agents that continue while the usage limit of those before them is reached (`AGENT-8`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<FallbackAgent>,
    /// Model of the agent that worked on an imported task. Only shown, until a session is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// An agent that continues a task of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FallbackAgent {
    pub agent: AgentName,
    /// True if its output contains a result; if not, the exit code decides.
    pub tells_result: bool,
}

/// Kind of worker of a task (`TASK-8`): the `runtime.kind` of its agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// A program, started for each run.
    #[default]
    Cli,
    /// A model with tools, in a conversation for each session.
    Llm,
}

impl Runtime {
    fn is_program(&self) -> bool {
        *self == Self::Cli
    }
}

/// Source of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The agent, by a protocol block.
    Agent,
    /// The agent's program, for a permission within a run.
    Permission {
        run: u64,
        /// The id of its request.
        request: String,
        /// Kind of tool that an approval for the whole task covers.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        kind: String,
    },
    /// goondan: the task cannot continue without a person's decision.
    Supervisor,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputOutcome {
    Person(String),
    /// The wait timed out; the default, if any, is used.
    TimedOut(Option<String>),
    Withdrawn,
}

/// Value provided for a dependency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provision {
    /// A secret, by its reference.
    Secret(String),
    /// The dependency is ready, with an explanation.
    Ready(String),
    /// The wait timed out; the default, if any, is used, or the dependency is skipped.
    TimedOut(Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    Done,
    /// With a failed result, or by exit code.
    Failed(String),
    /// It failed permanently: a person must change something first.
    Blocked(String),
    Ended,
    /// Rate-limited by the provider until then.
    RateLimited(Timestamp),
    /// Unknown: the run exited without a result, or was lost.
    Unknown,
    NotStarted(String),
}

/// Reason why a task is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    Person,
    /// The next call might exceed the task's own budget.
    Budget,
    /// The next call might exceed a shared budget. The task resumes automatically when that budget
    /// allows it.
    SharedBudget,
    /// Its work area exceeds its quota (`TASK-9`).
    Quota,
}

/// A comment on the proposal of a task, as its agent receives it (`REPO-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReworkComment {
    pub number: u32,
    /// The file and the line.
    pub place: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_text: Option<String>,
    pub text: String,
}

impl From<ProposalComment> for ReworkComment {
    fn from(comment: ProposalComment) -> Self {
        Self {
            number: comment.number,
            place: comment.place(),
            line_text: comment.line_text,
            text: comment.text,
        }
    }
}

/// The requested changes, with the comments. Comments are indented, because a tag of a block counts
/// only at the start of a line.
pub(crate) fn rework_text(text: &str, comments: &[ReworkComment]) -> String {
    if comments.is_empty() {
        return text.to_owned();
    }
    let mut whole = match text {
        "" => "a person commented on your changes.".to_owned(),
        text => text.to_owned(),
    };
    whole.push_str("\nComments on your changes:");
    for comment in comments {
        whole.push_str(&format!("\n- {}", comment.place));
        if let Some(line) = &comment.line_text {
            whole.push_str(&format!("\n    > {line}"));
        }
        for line in comment.text.lines() {
            whole.push_str(&format!("\n    {line}"));
        }
    }
    whole
}

/// Notification that a connection must deliver to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    pub on: NotifyOn,
    pub connection: ConnectionName,
    /// The tool of its service.
    pub service: String,
    pub action: String,
    pub args: Value,
}

/// Something that happened, as `event` and `data`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "event",
    content = "data",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum TaskEvent {
    TaskCreated(NewTask),
    /// The task is now on this node of a shared workspace.
    NodeEntered {
        node: String,
    },
    /// A run was requested. Its process may never have started.
    RunRequested {
        run: u64,
        session: Option<String>,
        /// Number of notes in its prompt.
        carried: usize,
        #[serde(default, skip_serializing_if = "TaskRunKind::is_agent")]
        kind: TaskRunKind,
        /// Its agent, for a task with several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
    },
    /// Another agent continues the task, because the usage limit of the current one is reached
    /// until then. Its first prompt describes the work so far.
    AgentChanged {
        from: AgentName,
        to: AgentName,
        until: Timestamp,
    },
    /// The agent has started the run, in a separate process if it is a program.
    AgentStarted {
        run: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_time: Option<u64>,
    },
    /// The agent has shown progress on its prompt.
    PromptTaken {
        run: u64,
    },
    /// The agent has a session.
    SessionOpened {
        run: u64,
        session: String,
        model: Option<String>,
    },
    /// The agent's program no longer has its session: the next run starts a new one.
    SessionLost {
        run: u64,
        problem: String,
    },
    /// The agent reported the result of its run. Its program may still run.
    ResultReported {
        run: u64,
        /// Reason of a failure; absent for a success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The program still ran after its result, and was ended.
    RunCutOff {
        run: u64,
    },
    /// The run's process has exited.
    RunEnded {
        run: u64,
        outcome: RunOutcome,
        /// Last message of the agent.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        last_words: String,
        /// The last lines of its standard error.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        stderr: String,
        /// Files that it changed, as its program reports them; for a task with several agents.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<String>,
    },
    /// The next run is scheduled.
    RetryPlanned {
        at: Timestamp,
        /// True if the usage limits of all its agents are reached until then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_limited: bool,
    },
    PhaseStarted {
        phase: u32,
    },
    PhaseCompleted {
        phase: u32,
        documents: Vec<String>,
    },
    /// The agent reports a task without phases as done.
    WorkCompleted {
        documents: Vec<String>,
    },
    StepStarted {
        step: String,
    },
    /// The agent's own plan, which replaces the previous one.
    PlanTold {
        steps: Vec<PlanStep>,
    },
    ProgressMade {
        percent: u8,
    },
    DocumentCreated {
        file: String,
    },
    /// Documents that the agent reported but that do not exist in the work area.
    DocumentsMissing {
        documents: Vec<String>,
    },
    CheckpointCreated {
        checkpoint_id: String,
    },
    /// The work area was rolled back to an earlier checkpoint.
    CheckpointRestored {
        checkpoint_id: String,
        /// Checkpoint of the files before the restore.
        pre_restore: Option<String>,
    },
    /// The newest checkpoint was tested by a restore drill.
    RestoreDrilled {
        checkpoint_id: String,
        entries: u64,
        problem: Option<String>,
    },
    DependencyRequested {
        id: String,
        #[serde(flatten)]
        request: DependencyRequest,
        until: Option<Timestamp>,
    },
    DependencyProvided {
        id: String,
        provision: Provision,
    },
    QuestionAsked {
        id: String,
        origin: Origin,
        #[serde(flatten)]
        question: UserQuestion,
        until: Option<Timestamp>,
    },
    QuestionAnswered {
        id: String,
        answer: InputOutcome,
    },
    /// The verification of a completed phase finished.
    WorkVerified {
        run: u64,
        verdict: TaskVerdict,
    },
    /// The proposal of a completed phase was created; none if nothing changed, or with the problem.
    ProposalMade {
        phase: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposal: Option<TaskProposal>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// The proposal is in the project.
    ProposalDelivered {
        digest: String,
        /// Its branch, if the proposal is a branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
        /// URL of its pull request, if one was opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pull_request: Option<String>,
    },
    ReviewRequested {
        phase: u32,
    },
    ReviewApproved {
        phase: u32,
    },
    ReviewReworked {
        phase: u32,
        text: String,
        /// Comments on the proposal, which its agent receives as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        comments: Vec<ReworkComment>,
    },
    /// A person decided the open point `about` in a chat, with the fact before this one.
    DecisionMade {
        about: String,
        /// The person, by connector and the service's user id.
        by: String,
        /// The outcome, for people to read.
        how: String,
    },
    /// A person's message to the agent. If the task had ended, it continues.
    MessageSent {
        /// Id of the message; a message with a known id is not accepted again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        text: String,
    },
    /// The agent receives a message before this phase is reviewed.
    ReviewWithdrawn {
        phase: u32,
    },
    ErrorReported {
        #[serde(flatten)]
        error: AgentError,
    },
    WorkHandedOff {
        text: String,
    },
    /// The agent wrote an invalid block, or one that is not allowed now.
    ProtocolRefused {
        protocol: String,
        problem: String,
    },
    /// Current value of a usage counter.
    UsageRecorded {
        counter: String,
        usage: Usage,
        cost: Option<MicroUsd>,
        /// Phase that is charged, if different from the current one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<u32>,
        /// Session totals as the program reports them: the next run counts from there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionUsage>,
    },
    BudgetWarned {
        percent: u64,
    },
    BudgetChanged {
        budget: Budget,
    },
    /// A connection must notify people.
    NotificationRequested {
        id: String,
        notification: Notification,
    },
    /// From now on, its delivery may have happened.
    NotificationBegun {
        id: String,
    },
    Notified {
        id: String,
    },
    NotificationFailed {
        id: String,
        why: String,
    },
    TaskPaused {
        reason: PauseReason,
        /// Explanation in addition to the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    TaskResumed {},
    TaskCompleted {},
    TaskFailed {
        reason: String,
    },
    TaskCancelled {},
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub timestamp: Timestamp,
    #[serde(flatten)]
    pub fact: TaskEvent,
}

impl HistoryEntry {
    /// Parses a record of the history, in the current form or an earlier one.
    ///
    /// # Errors
    ///
    /// The error of `serde_json` for the record.
    pub fn from_record(record: &[u8]) -> serde_json::Result<Self> {
        match serde_json::from_slice(record) {
            Ok(entry) => Ok(entry),
            Err(error) => match nested::flattened(record) {
                Some(line) => serde_json::from_value(line),
                None => Err(error),
            },
        }
    }
}

/// Facts as earlier versions wrote them: an agent's request was nested in `data`.
mod nested {
    use serde_json::Value;

    /// Returns the record with the members of that object in `data`; none if there is no such
    /// object.
    pub(super) fn flattened(record: &[u8]) -> Option<Value> {
        let mut line: Value = serde_json::from_slice(record).ok()?;
        let member = match line.get("event")?.as_str()? {
            "dependency_requested" => "request",
            "question_asked" => "question",
            "error_reported" => "error",
            _ => return None,
        };
        let data = line.get_mut("data")?.as_object_mut()?;
        match data.remove(member)? {
            Value::Object(members) => data.extend(members),
            _ => return None,
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_5_facts_of_earlier_versions_are_read() {
        let pairs = [
            (
                r#"{"event":"dependency_requested","data":{"id":"d-0001","request":{"type":"api_key","name":"KEY","required":true},"until":null}}"#,
                r#"{"event":"dependency_requested","data":{"id":"d-0001","type":"api_key","name":"KEY","required":true,"until":null}}"#,
            ),
            (
                r#"{"event":"question_asked","data":{"id":"q-0001","origin":{"permission":{"run":3,"request":"r"}},"question":{"category":"choice","question":"Which?","options":["a"],"required":false},"until":null}}"#,
                r#"{"event":"question_asked","data":{"id":"q-0001","origin":{"permission":{"run":3,"request":"r"}},"category":"choice","question":"Which?","options":["a"],"required":false,"until":null}}"#,
            ),
            (
                r#"{"event":"error_reported","data":{"error":{"type":"fatal","message":"no","recovery":"none"}}}"#,
                r#"{"event":"error_reported","data":{"type":"fatal","message":"no","recovery":"none"}}"#,
            ),
        ];
        for (earlier, now) in pairs {
            let stamped =
                |line: &str| line.replacen('{', r#"{"timestamp":"2024-02-15T10:25:00.000Z","#, 1);
            let read = HistoryEntry::from_record(stamped(earlier).as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), stamped(now));
            assert_eq!(
                HistoryEntry::from_record(stamped(now).as_bytes()).unwrap(),
                read
            );
        }
        let unknown = br#"{"timestamp":"2024-02-15T10:25:00.000Z","event":"unheard","data":{}}"#;
        HistoryEntry::from_record(unknown).unwrap_err();
    }
}
