//! What an agent asks of the others (`IPC-2`, `IPC-3`), and what it is told.
//!
//! A question to another agent is an event like any other. Its id is made of the requester's turn and the
//! place of the tool call in it, so that asking again after a crash is the same question, and gets the
//! answer that was stored.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;
use crate::approval::ApprovalDecision;
use crate::bundle::{BundleAsk, BundleTold};
use crate::control::{FileStatus, ProposalState, TaskDetail, TaskInfo};
use crate::event::{AgentEvent, TurnOutcome};
use crate::ids::{
    AgentName, EventId, InstanceKey, InvalidId, ResourceName, RunId, StepId, ToolCallId, TurnId,
    WorkerId,
};
use crate::task::TaskId;

/// The kind of an event that answers a question of its instance.
pub const REPLY_KIND: &str = "reply";
/// The kind of an event that asks for an answer.
pub const REQUEST_KIND: &str = "request";
/// The note of an event that names the event it answers.
pub const IN_REPLY_TO: &str = "inReplyTo";

/// The note of an event with what its request says beside the input: a [`RequestNote`].
pub const REQUEST_NOTE: &str = "request";

/// `agent.ask`: a tool call asks for something that only the orchestrator can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentAsk {
    /// The running turn.
    pub turn_id: TurnId,
    /// The step of the call, from 1.
    pub step: u32,
    /// The call's place within the step, from 0.
    pub call: u32,
    /// What is asked.
    pub question: Question,
}

impl AgentAsk {
    /// The id of the event that the question becomes: `<turnId>.<step>:q<call>`.
    ///
    /// # Errors
    ///
    /// [`InvalidId`] if the turn's id leaves no room for it.
    pub fn event_id(&self) -> Result<EventId, InvalidId> {
        let step_id = StepId::of_turn(&self.turn_id, self.step);
        EventId::new(format!("{step_id}:q{}", self.call))
    }
}

/// The id of the event that brings the answer to a question.
///
/// # Errors
///
/// [`InvalidId`] if the question's id leaves no room for it.
pub fn reply_id(question: &EventId) -> Result<EventId, InvalidId> {
    EventId::new(format!("{question}:a"))
}

/// What a request says beside its input, for modules that look at the event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestNote {
    /// What kind of event the requester takes it for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Whatever the requester wants to be known.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

impl RequestNote {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.event_type.is_none() && self.metadata.is_empty()
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "op",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Question {
    /// Give another agent something to do and bring back its answer.
    Request {
        /// The agent.
        agent: AgentName,
        /// Its conversation; the one that belongs to the requester's if none is given (`INST-3`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_key: Option<InstanceKey>,
        /// The text for it.
        input: String,
        /// Whether the call waits for the answer. Otherwise it comes as an event.
        wait: bool,
        /// How long it waits, in milliseconds. After that the answer comes as an event.
        timeout_ms: u64,
        /// What is said beside the input.
        #[serde(default, skip_serializing_if = "RequestNote::is_empty")]
        note: RequestNote,
    },
    /// Give another agent something to do and want no answer.
    Send {
        /// The agent.
        agent: AgentName,
        /// Its conversation, as above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_key: Option<InstanceKey>,
        /// The text for it.
        input: String,
        /// What is said beside the input.
        #[serde(default, skip_serializing_if = "RequestNote::is_empty")]
        note: RequestNote,
    },
    /// The same for a new instance of the agent.
    Spawn {
        /// The agent.
        agent: AgentName,
        /// The key of the new instance; one is made if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_key: Option<InstanceKey>,
        /// The first text for it.
        input: String,
    },
    /// Which instances there are.
    List {
        /// Of which conversations.
        scope: ListScope,
    },
    /// Which agents there are.
    Catalog {},
    /// Have a person approve a call before it is carried out (`STEER-3`).
    #[serde(rename = "approval")]
    Approval {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool's full name.
        tool_name: String,
        /// Its arguments.
        input: Value,
        /// Whether a process before this one may have begun the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_begun: bool,
    },
    /// Restart the requester's own process after its running turn.
    Restart {
        /// Why, for people.
        reason: String,
    },
    /// Copy files of the project for an agent of the swarm, in the requester's conversation (`BOX-1`).
    #[serde(rename = "sandbox.prepare")]
    PrepareSandbox {
        /// For whom.
        agent: AgentName,
        /// The files and directories, relative to the Project Root.
        files: Vec<String>,
        /// Directories, besides those in `files`, in which it may make new files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        may_create: Vec<String>,
    },
    /// Tell of a sandbox of the requester's conversation.
    #[serde(rename = "sandbox.status")]
    ShowSandbox {
        /// Whose; the requester's own if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
    },
    /// Hand in what was changed in the requester's own sandbox (`PROP-1`).
    #[serde(rename = "proposal.submit")]
    SubmitProposal {
        /// What was done and why, as Markdown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// What the tests said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_log: Option<String>,
    },
    /// Make a task and start it. It belongs to the requester's conversation.
    #[serde(rename = "task.create")]
    CreateTask {
        /// What people call it.
        title: String,
        /// What is to be done.
        description: String,
        /// The agent that does it; the only one for tasks if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
        /// Phases that a person reviews one by one; 0 for a task without.
        #[serde(default)]
        phases: u32,
        /// Most tokens it may take, in and out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<u64>,
    },
    /// Tell how a task of the requester's conversation stands, or which there are.
    #[serde(rename = "task.status")]
    ShowTask {
        /// Which; all of them if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
    },
    /// Wait until a task of the requester's conversation has ended, or needs a person.
    #[serde(rename = "task.wait")]
    AwaitTask {
        /// Which.
        task_id: TaskId,
        /// How long, in milliseconds. Then it is told how the task stands.
        timeout_ms: u64,
    },
    /// Ask about the configuration of the requester's own conversation, or change it (`BUNDLE-8`).
    #[serde(rename = "bundle")]
    Bundle {
        /// What.
        ask: BundleAsk,
    },
    /// Tell how a proposal of the requester's conversation stands.
    #[serde(rename = "proposal.status")]
    ShowProposal {
        /// Whose; the requester's own if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentName>,
    },
}

impl Question {
    /// The agent whose sandbox a question is about, where it names one.
    #[must_use]
    pub fn sandbox_of(&self) -> Option<&AgentName> {
        match self {
            Self::PrepareSandbox { agent, .. } => Some(agent),
            Self::ShowSandbox { agent } | Self::ShowProposal { agent } => agent.as_ref(),
            _ => None,
        }
    }

    /// Whether it is about tasks.
    #[must_use]
    pub fn is_of_tasks(&self) -> bool {
        matches!(
            self,
            Self::CreateTask { .. } | Self::ShowTask { .. } | Self::AwaitTask { .. }
        )
    }
}

/// Which instances are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListScope {
    /// Those of the requester's conversation.
    #[default]
    Conversation,
    /// Those of the whole workspace.
    Workspace,
}

/// `agent.answer`.
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
        /// The question.
        event_id: EventId,
        /// How the turn ended.
        outcome: TurnOutcome,
    },
    /// The event is durable. An answer, if one was asked for, comes as an event.
    Accepted {
        /// The agent.
        agent: AgentName,
        /// Its conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// There is no answer yet, though the call was to wait for it. The question stands, and its answer
    /// comes as an event.
    Pending {
        /// The agent.
        agent: AgentName,
        /// Its conversation.
        instance_key: InstanceKey,
        /// The question.
        event_id: EventId,
        /// Why the call waits no longer.
        reason: String,
    },
    /// The instances there are.
    Instances {
        /// They, by key.
        instances: Vec<KnownInstance>,
        /// How many more there are.
        more: usize,
    },
    /// The agents there are.
    Catalog {
        /// They, by name.
        agents: Vec<KnownAgent>,
    },
    /// The process ends after the turn, and another one does what comes next.
    Restarting {},
    /// What a person decided about a call.
    Approval {
        /// What was decided.
        decision: ApprovalDecision,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Whether a process before this one was told, and may have begun the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_begun: bool,
    },
    /// A sandbox.
    Sandbox {
        /// What there is of it.
        sandbox: Box<AgentSandbox>,
    },
    /// A proposal.
    Proposal {
        /// What there is of it.
        proposal: Box<AgentProposal>,
    },
    /// A task.
    Task {
        /// All that is known of it.
        task: Box<TaskDetail>,
    },
    /// The tasks of the requester's conversation.
    Tasks {
        /// They, those that need a person first.
        tasks: Vec<TaskInfo>,
        /// How many more there are.
        more: usize,
    },
    /// What came of it for the requester's own configuration.
    Bundle {
        /// What there is to tell.
        told: Box<BundleTold>,
    },
    /// It cannot be done.
    Refused {
        /// A stable code, such as `E_CIRCULAR_REQUEST`.
        code: String,
        /// Why, and what to do instead.
        message: String,
    },
}

/// One instance, as another agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownInstance {
    /// Its key.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent: AgentName,
    /// `idle`, `processing`, or `self`.
    pub status: String,
    /// Events that wait in it, the one in its turn included.
    pub pending_events: usize,
}

/// One agent, as another agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownAgent {
    /// Its name.
    pub name: AgentName,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The tools it has.
    pub tools: Vec<ResourceName>,
    /// Whether conversations begin with it.
    pub is_entry: bool,
}

/// A sandbox, as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSandbox {
    /// The run.
    pub run_id: RunId,
    /// Whose it is.
    pub agent: WorkerId,
    /// The baseline, which nobody changes.
    pub input_dir: PathBuf,
    /// Where it works.
    pub work_dir: PathBuf,
    /// Where it may leave `summary.md` and `test.log`.
    pub proposal_dir: PathBuf,
    /// Files that it was given, by path; at most [`AGENT_FILES_MAX`].
    pub files: Vec<String>,
    /// How many more there are.
    pub more_files: usize,
    /// Where it may make new files; `.` is the whole Project Root.
    pub may_create: Vec<String>,
    /// How its proposal stands, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalState>,
}

/// A proposal, as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentProposal {
    /// The run.
    pub run_id: RunId,
    /// Who made it.
    pub agent: WorkerId,
    /// How it stands.
    pub state: ProposalState,
    /// Its digest.
    pub digest: String,
    /// The directory that the worker worked in.
    pub work_dir: PathBuf,
    /// The directory of `proposal.json` and what belongs to it.
    pub proposal_dir: PathBuf,
    /// What it changes, each with what becomes of it; at most [`AGENT_FILES_MAX`].
    pub changed: Vec<ProposedFile>,
    /// How many more there are.
    pub more_changed: usize,
    /// What was said when it was last decided about, if anything was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// A file that a proposal changes, as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposedFile {
    /// Its path.
    pub path: String,
    /// What becomes of it.
    pub status: FileStatus,
}

/// Files that an agent is told of at most: more belong into a directory that it reads.
pub const AGENT_FILES_MAX: usize = 200;

/// `turn.input`: an answer to a question of the agent, for its next step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnInput {
    /// The running turn.
    pub turn_id: TurnId,
    /// The answer: an event of the kind [`REPLY_KIND`].
    pub event: AgentEvent,
}

/// Tasks that an agent is told of at once at most.
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
            question: Question::Catalog {},
        };
        let question = ask(2, 1).event_id().unwrap();
        assert_eq!(question.as_str(), "t.2:q1");
        assert_eq!(reply_id(&question).unwrap().as_str(), "t.2:q1:a");
        assert_ne!(ask(1, 2).event_id(), ask(2, 1).event_id());
    }
}
