//! Requests that an agent sends to the orchestrator and to other agents (`IPC-2`, `IPC-3`), and
//! their results.
//!
//! A request to another agent is an ordinary event. Its id is derived from the requester's turn and
//! the position of the tool call in it. A retry after a crash therefore produces the same id and
//! gets the stored answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;
use crate::approval::ApprovalDecision;
use crate::bundle::{BundleAsk, BundleAskResult};
use crate::control::{
    FileStatus, ProposalApplied, ProposalComment, ProposalDiff, ProposalReview, ProposalState,
    ScheduleInfo, TaskDetail, TaskInfo,
};
use crate::event::{AgentEvent, TurnOutcome};
use crate::ids::{
    AgentName, EventId, InstanceKey, InvalidId, ResourceName, RunId, ScheduleId, StepId,
    ToolCallId, TurnId, WorkerId,
};
use crate::schedule::{RequestedTime, ScheduleCatchUp};
use crate::task::TaskId;

/// Kind of an event that carries the answer to a request of its instance.
pub const REPLY_KIND: &str = "reply";
/// Kind of an event that requests an answer.
pub const REQUEST_KIND: &str = "request";
/// Metadata key that holds the id of the event being answered.
pub const IN_REPLY_TO: &str = "inReplyTo";

/// Metadata key that holds the [`RequestNote`] of a request.
pub const REQUEST_NOTE: &str = "request";

/// `agent.ask`: a tool call requests something that only the orchestrator can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentAsk {
    /// The running turn.
    pub turn_id: TurnId,
    /// The step of the call, counted from 1.
    pub step: u32,
    /// The position of the call within the step, counted from 0.
    pub call: u32,
    /// The request.
    pub question: AgentQuestion,
}

impl AgentAsk {
    /// Id of the event that the request becomes: `<turnId>.<step>:q<call>`.
    ///
    /// # Errors
    ///
    /// [`InvalidId`] if the resulting id is too long.
    pub fn event_id(&self) -> Result<EventId, InvalidId> {
        let step_id = StepId::of_turn(&self.turn_id, self.step);
        EventId::new(format!("{step_id}:q{}", self.call))
    }
}

/// Id of the event that carries the answer to a request.
///
/// # Errors
///
/// [`InvalidId`] if the resulting id is too long.
pub fn reply_id(question: &EventId) -> Result<EventId, InvalidId> {
    EventId::new(format!("{question}:a"))
}

/// Metadata of a request besides its input, for modules that inspect the event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestNote {
    /// Event type that the requester assigns to the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Free-form metadata from the requester.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

impl RequestNote {
    /// True if the note holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.event_type.is_none() && self.metadata.is_empty()
    }
}

/// One kind of request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "op",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum AgentQuestion {
    /// Send a request to another agent and return its answer.
    Request {
        /// The agent.
        agent: AgentName,
        /// Its conversation; defaults to the one that belongs to the requester's conversation
        /// (`INST-3`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_key: Option<InstanceKey>,
        /// The text to send.
        input: String,
        /// True if the call waits for the answer. If false, the answer arrives as an event.
        wait: bool,
        /// Longest wait, in milliseconds. After that the answer arrives as an event.
        timeout_ms: u64,
        /// Metadata besides the input.
        #[serde(default, skip_serializing_if = "RequestNote::is_empty")]
        note: RequestNote,
    },
    /// Send a request to another agent without expecting an answer.
    Send {
        /// The agent.
        agent: AgentName,
        /// Its conversation; defaults as for [`AgentQuestion::Request`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_key: Option<InstanceKey>,
        /// The text to send.
        input: String,
        /// Metadata besides the input.
        #[serde(default, skip_serializing_if = "RequestNote::is_empty")]
        note: RequestNote,
    },
    /// Send a request to a new instance of the agent, without expecting an answer.
    Spawn {
        /// The agent.
        agent: AgentName,
        /// The key of the new instance; generated if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_key: Option<InstanceKey>,
        /// The first text to send.
        input: String,
    },
    /// List instances.
    List {
        /// Conversations to include.
        scope: ListScope,
    },
    /// List the agents of the project.
    Catalog {},
    /// Request a person's approval of a tool call before it is executed (`STEER-3`).
    #[serde(rename = "approval")]
    Approval {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool's full name.
        tool_name: String,
        /// Its arguments.
        input: Value,
        /// JSON Schema of the arguments, if it has at most
        /// [`MAX_APPROVAL_INPUT_BYTES`](crate::limits::MAX_APPROVAL_INPUT_BYTES).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
        /// True if a previous process may have begun the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_begun: bool,
        /// True if two different people must approve the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needs_two: bool,
    },
    /// Read an event of the requester's conversation, with its payload (`CONN-1`).
    #[serde(rename = "event.read")]
    ReadEvent {
        /// The event.
        event_id: EventId,
    },
    /// List the latest events of the requester's conversation.
    #[serde(rename = "event.list")]
    ListEvents {},
    /// Restart the requester's own process after its running turn.
    Restart {
        /// The reason, shown to people.
        reason: String,
    },
    /// Copy project files for an agent of the swarm, within the requester's conversation (`BOX-1`).
    #[serde(rename = "sandbox.prepare")]
    PrepareSandbox {
        /// The agent that gets the sandbox.
        agent: AgentName,
        /// The files and directories, relative to the Project Root.
        files: Vec<String>,
        /// Directories, besides those in `files`, in which the agent may create files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        may_create: Vec<String>,
    },
    /// Describe a sandbox of the requester's conversation.
    #[serde(rename = "sandbox.status")]
    ShowSandbox {
        /// The sandbox's agent; defaults to the requester.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
    },
    /// Submit the changes in the requester's own sandbox (`PROP-1`).
    #[serde(rename = "proposal.submit")]
    SubmitProposal {
        /// Description of the changes and their reasons, as Markdown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Test output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_log: Option<String>,
    },
    /// Create and start a task that belongs to the requester's conversation.
    #[serde(rename = "task.create")]
    CreateTask {
        /// Title shown to people.
        title: String,
        /// Description of the work.
        description: String,
        /// The agent that runs the task; may be absent if the project has only one agent for tasks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
        /// Number of phases that a person reviews one by one; 0 if the task has none.
        #[serde(default)]
        phases: u32,
        /// Token limit, input and output combined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<u64>,
    },
    /// Show a task of the requester's conversation, or list all its tasks.
    #[serde(rename = "task.status")]
    ShowTask {
        /// The task; lists all tasks if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
    },
    /// Wait until a task of the requester's conversation ends or needs a person.
    #[serde(rename = "task.wait")]
    AwaitTask {
        /// The task.
        task_id: TaskId,
        /// Longest wait, in milliseconds. After that the current state of the task is returned.
        timeout_ms: u64,
    },
    /// Create a schedule of the requester's conversation.
    #[serde(rename = "schedule.create")]
    CreateSchedule {
        /// Its times.
        time: RequestedTime,
        /// Text of its inputs.
        input: String,
        /// Handling of missed occurrences.
        #[serde(default, skip_serializing_if = "ScheduleCatchUp::is_default")]
        catch_up: ScheduleCatchUp,
    },
    /// List the schedules of the requester's conversation.
    #[serde(rename = "schedule.list")]
    ListSchedules {},
    /// Remove a schedule of the requester's conversation.
    #[serde(rename = "schedule.remove")]
    RemoveSchedule {
        /// The schedule.
        schedule_id: ScheduleId,
    },
    /// Inspect or change the configuration of the requester's own conversation (`BUNDLE-8`).
    #[serde(rename = "bundle")]
    Bundle {
        /// The operation.
        ask: BundleAsk,
    },
    /// Read a part of the patch of a proposal of the requester's conversation (`PROP-8`).
    #[serde(rename = "proposal.diff")]
    DiffProposal {
        /// The proposal.
        of: ProposalOwner,
        /// Byte offset in the patch at which the part starts.
        #[serde(default)]
        offset: u64,
    },
    /// Check if the requester can apply a proposal of its conversation, and record the review.
    #[serde(rename = "proposal.check")]
    CheckProposal {
        /// The proposal.
        of: ProposalOwner,
    },
    /// Apply a proposal of the requester's conversation, if the project's policy lets the requester
    /// change all of its paths.
    #[serde(rename = "proposal.apply")]
    ApplyProposal {
        /// The proposal.
        of: ProposalOwner,
        /// Digest of the proposal that the requester has read.
        digest: String,
    },
    /// Show a proposal of the requester's conversation.
    #[serde(rename = "proposal.status")]
    ShowProposal {
        /// The proposal's agent; defaults to the requester.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
    },
}

impl AgentQuestion {
    /// The agent whose sandbox the request is about, if it names one.
    #[must_use]
    pub fn sandbox_of(&self) -> Option<&AgentName> {
        match self {
            Self::PrepareSandbox { agent, .. } => Some(agent),
            Self::ShowSandbox { agent } | Self::ShowProposal { agent } => agent.as_ref(),
            Self::DiffProposal { of, .. }
            | Self::CheckProposal { of }
            | Self::ApplyProposal { of, .. } => of.agent(),
            _ => None,
        }
    }

    /// True if the request is about schedules.
    #[must_use]
    pub fn is_of_schedules(&self) -> bool {
        matches!(
            self,
            Self::CreateSchedule { .. } | Self::ListSchedules {} | Self::RemoveSchedule { .. }
        )
    }

    /// True if the request is about tasks.
    #[must_use]
    pub fn is_of_tasks(&self) -> bool {
        match self {
            Self::CreateTask { .. } | Self::ShowTask { .. } | Self::AwaitTask { .. } => true,
            Self::DiffProposal { of, .. }
            | Self::CheckProposal { of }
            | Self::ApplyProposal { of, .. } => of.agent().is_none(),
            _ => false,
        }
    }
}

/// Author of a proposal, in the requester's conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProposalOwner {
    /// An agent that works in a sandbox.
    Agent(AgentName),
    /// A task that works on a copy of the project.
    Task(TaskId),
}

impl ProposalOwner {
    /// The agent, unless a task is the author.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Agent(agent) => Some(agent),
            Self::Task(_) => None,
        }
    }
}

/// Instances to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListScope {
    /// Instances of the requester's conversation.
    #[default]
    Conversation,
    /// Instances of the whole workspace.
    Workspace,
}

/// `agent.answer`: result of an [`AgentAsk`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "status",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum AgentAnswer {
    /// The other agent's turn is over.
    Answered {
        /// The agent.
        agent: AgentName,
        /// Its conversation.
        instance_key: InstanceKey,
        /// The event of the request.
        event_id: EventId,
        /// Outcome of the turn.
        outcome: TurnOutcome,
    },
    /// The event is durable. An answer, if one was requested, arrives as an event.
    Accepted {
        /// The agent.
        agent: AgentName,
        /// Its conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// The wait ended without an answer. The request remains open and its answer arrives as an
    /// event.
    Pending {
        /// The agent.
        agent: AgentName,
        /// Its conversation.
        instance_key: InstanceKey,
        /// The event of the request.
        event_id: EventId,
        /// The reason the wait ended.
        reason: String,
    },
    /// Matching instances.
    Instances {
        /// The instances, sorted by key.
        instances: Vec<InstanceListItem>,
        /// Number of instances left out.
        more: usize,
    },
    /// The agents of the project.
    Catalog {
        /// The agents, sorted by name.
        agents: Vec<AgentListItem>,
    },
    /// Stored events of the requester's conversation, latest first.
    Events {
        /// The events; in a list of several, without metadata and with the beginnings of their
        /// texts.
        events: Vec<AgentEvent>,
    },
    /// The process ends after the turn and a new process handles the next event.
    Restarting {},
    /// A person's decision about a call.
    Approval {
        /// The decision.
        decision: ApprovalDecision,
        /// The reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Arguments that a person set instead of the call's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// True if a previous process received the decision and may have begun the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_begun: bool,
        /// True if the configuration denied the call, because the time limit was over.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
    },
    /// A sandbox.
    Sandbox {
        /// State of the sandbox.
        sandbox: Box<AgentSandbox>,
    },
    /// A proposal.
    Proposal {
        /// State of the proposal.
        proposal: Box<AgentProposal>,
    },
    /// A part of a proposal's patch.
    Diff {
        /// The part.
        diff: Box<ProposalDiff>,
    },
    /// Result of a check of a proposal.
    Review {
        /// The result.
        review: Box<ProposalReview>,
    },
    /// A proposal that is applied.
    Applied {
        /// The result.
        applied: Box<ProposalApplied>,
    },
    /// A task.
    Task {
        /// Full state of the task.
        task: Box<TaskDetail>,
    },
    /// The tasks of the requester's conversation.
    Tasks {
        /// The tasks; those that need a person come first.
        tasks: Vec<TaskInfo>,
        /// Number of tasks left out.
        more: usize,
    },
    /// A schedule that exists.
    Schedule {
        /// The schedule.
        schedule: Box<ScheduleInfo>,
    },
    /// The schedules of the requester's conversation.
    Schedules {
        /// The schedules.
        schedules: Vec<ScheduleInfo>,
    },
    /// A schedule that no longer exists: it was removed, or has no occurrence left.
    #[serde(rename = "schedule.ended")]
    ScheduleEnded {
        /// The schedule.
        schedule_id: ScheduleId,
    },
    /// Result of a [`AgentQuestion::Bundle`] request.
    Bundle {
        /// The result.
        told: Box<BundleAskResult>,
    },
    /// The request cannot be carried out.
    Refused {
        /// A stable code, such as `E_CIRCULAR_REQUEST`.
        code: String,
        /// The reason, and an alternative if there is one.
        message: String,
    },
}

/// One instance, as another agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceListItem {
    /// Its key.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent: AgentName,
    /// `idle`, `processing`, or `self`.
    pub status: String,
    /// Pending events, including the one of the current turn.
    pub pending_events: usize,
}

/// One agent, as another agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentListItem {
    /// Its name.
    pub name: AgentName,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The tools it has.
    pub tools: Vec<ResourceName>,
    /// True if conversations start with this agent.
    pub is_entry: bool,
}

/// A sandbox, as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSandbox {
    /// The run.
    pub run_id: RunId,
    /// The worker that owns the sandbox.
    pub agent: WorkerId,
    /// The baseline, which is never modified.
    pub input_dir: PathBuf,
    /// The worker's working directory.
    pub work_dir: PathBuf,
    /// Directory in which the worker may leave `summary.md` and `test.log`.
    pub proposal_dir: PathBuf,
    /// Files copied into the sandbox, sorted by path; at most [`AGENT_FILES_MAX`].
    pub files: Vec<String>,
    /// Number of files left out.
    pub more_files: usize,
    /// Directories in which the worker may create files; `.` is the whole Project Root.
    pub may_create: Vec<String>,
    /// State of its proposal, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalState>,
}

/// A proposal, as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentProposal {
    /// The run.
    pub run_id: RunId,
    /// The worker that made the proposal.
    pub agent: WorkerId,
    /// State of the proposal.
    pub state: ProposalState,
    /// Its digest.
    pub digest: String,
    /// The working directory of the worker.
    pub work_dir: PathBuf,
    /// The directory of `proposal.json` and its related files.
    pub proposal_dir: PathBuf,
    /// Changed files with their status; at most [`AGENT_FILES_MAX`].
    pub changed: Vec<ProposedFile>,
    /// Number of changed files left out.
    pub more_changed: usize,
    /// Comment of the last decision, if one was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// Comments that were not sent to a task's agent, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<ProposalComment>,
}

/// A file that a proposal changes, as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposedFile {
    /// Its path.
    pub path: String,
    /// The change to the file.
    pub status: FileStatus,
}

/// Largest number of files listed in one answer. An agent that needs more reads the directory.
pub const AGENT_FILES_MAX: usize = 200;

/// `turn.input`: an answer to one of the agent's requests, for its next step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnInput {
    /// The running turn.
    pub turn_id: TurnId,
    /// The answer: an event of the kind [`REPLY_KIND`].
    pub event: AgentEvent,
}

/// Largest number of tasks listed in one answer.
pub const AGENT_TASKS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_call_of_the_same_turn_is_the_same_question() {
        let ask = |step, call| AgentAsk {
            turn_id: "t".parse().unwrap(),
            step,
            call,
            question: AgentQuestion::Catalog {},
        };
        let question = ask(2, 1).event_id().unwrap();
        assert_eq!(question.as_str(), "t.2:q1");
        assert_eq!(reply_id(&question).unwrap().as_str(), "t.2:q1:a");
        assert_ne!(ask(1, 2).event_id(), ask(2, 1).event_id());
    }
}
