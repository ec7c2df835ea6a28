//! What happens to what the daemon runs: said once, where it happens, and told from there to the log, to the
//! audit log and to the clients that watch (`OBS-1`, `INST-6`).
//!
//! What happens within turns is [`crate::observe::RuntimeEvent`]'s.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::ids::{
    AgentName, ApprovalId, ChangesetId, ConnectionName, EventId, InstanceKey, QuestionId,
    ResourceName, RevisionId, RunId, ToolCallId, TurnId, WorkerId,
};
use crate::task::{TaskId, TaskStatus};
use crate::time::Timestamp;

/// Whose process a process is, within its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "role",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Worker {
    /// A conversation's.
    Agent {
        /// The conversation.
        instance_key: InstanceKey,
    },
    /// A connection's.
    Connector {
        /// The connection.
        connection: ConnectionName,
    },
    /// A model's.
    Model {
        /// The model.
        model: ResourceName,
    },
    /// A run's of a task.
    Task {
        /// The task.
        task_id: TaskId,
    },
}

/// Something that happened to a workspace, its conversations or its processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum LifecycleEvent {
    /// A workspace runs.
    #[serde(rename = "workspace.opened")]
    WorkspaceOpened {
        /// Conversations with something to do from before.
        instances_with_work: usize,
    },
    /// All of a workspace has ended, and it is forgotten.
    #[serde(rename = "workspace.stopped")]
    WorkspaceStopped {
        /// Why the next daemon may open it all the same: its record could not be written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Another configuration runs.
    #[serde(rename = "configuration.changed")]
    ConfigurationChanged {
        /// Its digest.
        config_digest: String,
        /// What changed: a resource and how.
        changes: Vec<String>,
        /// How many processes restart.
        restarting: usize,
    },
    /// The configuration is valid again, and as it was.
    #[serde(rename = "configuration.restored")]
    ConfigurationRestored {
        /// Its digest.
        config_digest: String,
    },
    /// The project's own configuration cannot run; the last known good one does.
    #[serde(rename = "configuration.fellBack")]
    ConfigurationFellBack {
        /// The digest of what runs.
        config_digest: String,
        /// Since when it was known to be good.
        config_since: Timestamp,
        /// What is wrong with the project's own.
        error: String,
    },
    /// A process was started.
    #[serde(rename = "process.started")]
    ProcessStarted {
        /// Whose.
        #[serde(flatten)]
        worker: Worker,
        /// Its process id.
        child_pid: u32,
    },
    /// A process has ended as it was to.
    #[serde(rename = "process.ended")]
    ProcessEnded {
        /// Whose.
        #[serde(flatten)]
        worker: Worker,
        /// In which way.
        how: String,
    },
    /// A process has ended though nobody had asked it to.
    #[serde(rename = "process.crashed")]
    ProcessCrashed {
        /// Whose.
        #[serde(flatten)]
        worker: Worker,
        /// Crashes in a row.
        consecutive_crashes: u32,
        /// When the next may start, in milliseconds from now.
        next_start_in_ms: u64,
        /// In which way.
        how: String,
    },
    /// A process is killed: it did not do in time what it was to.
    #[serde(rename = "process.killed")]
    ProcessKilled {
        /// Whose.
        #[serde(flatten)]
        worker: Worker,
        /// What it did not do.
        reason: String,
    },
    /// A process broke the protocol, and is killed.
    #[serde(rename = "process.broke")]
    ProcessBroke {
        /// Whose.
        #[serde(flatten)]
        worker: Worker,
        /// In which way.
        problem: String,
    },
    /// A connection or a model says whether it can do its work.
    #[serde(rename = "process.readiness")]
    ReadinessChanged {
        /// Whose process.
        #[serde(flatten)]
        worker: Worker,
        /// Whether it can.
        ready: bool,
        /// What it says of it.
        detail: String,
    },
    /// A conversation began.
    #[serde(rename = "instance.created")]
    InstanceCreated {
        /// The conversation.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: Option<AgentName>,
    },
    /// A conversation was made from an archive.
    #[serde(rename = "instance.imported")]
    InstanceImported {
        /// The conversation.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: AgentName,
        /// How many messages it has.
        messages: u64,
    },
    /// The process of a conversation starts anew.
    #[serde(rename = "instance.restarted")]
    InstanceRestarted {
        /// The conversation.
        instance_key: InstanceKey,
        /// Who asked for it.
        by: String,
        /// Why.
        reason: String,
    },
    /// A joint checkpoint of a conversation was made, because a person wanted it.
    #[serde(rename = "instance.checkpointed")]
    InstanceCheckpointed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The checkpoint.
        checkpoint_id: String,
    },
    /// A conversation went back to a joint checkpoint, with its files.
    #[serde(rename = "instance.rewound")]
    InstanceRewound {
        /// The conversation.
        instance_key: InstanceKey,
        /// The checkpoint.
        checkpoint_id: String,
        /// The joint checkpoint of what there was before.
        pre_rewind: String,
        /// How many messages there were before.
        messages_before: u64,
        /// How many there are now.
        messages_after: u64,
    },
    /// A conversation was deleted.
    #[serde(rename = "instance.deleted")]
    InstanceDeleted {
        /// The conversation.
        instance_key: InstanceKey,
    },
    /// An event is durable.
    #[serde(rename = "event.accepted")]
    EventAccepted {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
        /// Whether it was durable before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// An event was not taken.
    #[serde(rename = "event.refused")]
    EventRefused {
        /// The conversation.
        instance_key: InstanceKey,
        /// Why.
        error: String,
    },
    /// An event is set aside: its turn crashes whoever works on it.
    #[serde(rename = "event.parked")]
    EventParked {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
        /// How the last process ended.
        reason: String,
    },
    /// A tool call was cut short, and nobody knows if it had its effect.
    #[serde(rename = "call.unknown")]
    CallUnknown {
        /// The conversation.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: AgentName,
        /// The turn.
        turn_id: TurnId,
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool's full name, as the model wrote it.
        tool_name: String,
        /// How it was cut short.
        detail: String,
    },
    /// A person has looked whether such a call had its effect.
    #[serde(rename = "call.settled")]
    CallSettled {
        /// The conversation.
        instance_key: InstanceKey,
        /// The call.
        tool_call_id: ToolCallId,
        /// What the person found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A person lets a parked event wait again.
    #[serde(rename = "event.retried")]
    EventRetried {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person ended a parked event without an answer.
    #[serde(rename = "event.dropped")]
    EventDropped {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person ended an event that waited, or its turn.
    #[serde(rename = "event.cancelled")]
    EventCancelled {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person has an event wait until it is resumed.
    #[serde(rename = "event.paused")]
    EventPaused {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person has a paused event have its turn when it is due.
    #[serde(rename = "event.resumed")]
    EventResumed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person has an event have its turn earlier or later.
    #[serde(rename = "event.moved")]
    EventMoved {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A turn was handed to its process.
    #[serde(rename = "turn.started")]
    TurnStarted {
        /// The conversation.
        instance_key: InstanceKey,
        /// The turn.
        turn_id: TurnId,
        /// The event it answers.
        event_id: EventId,
        /// Which process in a row works on it, from 1.
        attempt: u32,
    },
    /// A turn is durable, and whoever waits for it was answered.
    #[serde(rename = "turn.committed")]
    TurnCommitted {
        /// The conversation.
        instance_key: InstanceKey,
        /// The turn.
        turn_id: TurnId,
        /// The event it answers.
        event_id: EventId,
        /// `completed`, `failed` or `cancelled`.
        outcome: String,
    },
    /// A tool call waits for a person's answer.
    #[serde(rename = "question.asked")]
    QuestionAsked {
        /// The conversation.
        instance_key: InstanceKey,
        /// The question.
        question_id: QuestionId,
        /// Who asks it.
        connection: ConnectionName,
    },
    /// It waits no longer.
    #[serde(rename = "question.closed")]
    QuestionClosed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The question.
        question_id: QuestionId,
        /// Who asked it.
        connection: ConnectionName,
        /// In which way it was closed.
        how: String,
    },
    /// A tool call waits for a person to approve it.
    #[serde(rename = "approval.asked")]
    ApprovalAsked {
        /// The conversation.
        instance_key: InstanceKey,
        /// What it is approved by.
        approval_id: ApprovalId,
        /// The tool's full name.
        tool_name: String,
    },
    /// It waits no longer.
    #[serde(rename = "approval.closed")]
    ApprovalClosed {
        /// The conversation.
        instance_key: InstanceKey,
        /// What it was approved by.
        approval_id: ApprovalId,
        /// The tool's full name.
        tool_name: String,
        /// What came of it.
        how: String,
    },
    /// A worker handed in what it changed.
    #[serde(rename = "proposal.created")]
    ProposalCreated {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Which proposal of the worker's: the digest of its `proposal.json`.
        digest: String,
        /// What there is to say of it.
        detail: String,
    },
    /// A proposal was checked against the project.
    #[serde(rename = "proposal.reviewed")]
    ProposalReviewed {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Which proposal of the worker's: the digest of its `proposal.json`.
        digest: String,
        /// What there is to say of it.
        detail: String,
    },
    /// A proposal is in place.
    #[serde(rename = "proposal.applied")]
    ProposalApplied {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Which proposal of the worker's: the digest of its `proposal.json`.
        digest: String,
        /// What there is to say of it.
        detail: String,
    },
    /// A person turned a proposal down.
    #[serde(rename = "proposal.rejected")]
    ProposalRejected {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Which proposal of the worker's: the digest of its `proposal.json`.
        digest: String,
        /// What there is to say of it.
        detail: String,
    },
    /// A proposal that was in place was taken back.
    #[serde(rename = "proposal.reverted")]
    ProposalReverted {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Which proposal of the worker's: the digest of its `proposal.json`.
        digest: String,
        /// What there is to say of it.
        detail: String,
    },
    /// What an agent made of its own configuration stands in another way.
    #[serde(rename = "bundle.changed")]
    BundleChanged {
        /// The conversation.
        instance_key: InstanceKey,
        /// In which way: `committed`, `waits`, `rejected`, `activated`, `promoted`, `reverted`, `rebased`.
        what: String,
        /// The changeset, if one led to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
        /// The revision it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<RevisionId>,
        /// What there is to say of it.
        detail: String,
    },
    /// A budget is nearly spent.
    #[serde(rename = "budget.warning")]
    BudgetWarning {
        /// The conversation whose call came near to it.
        instance_key: InstanceKey,
        /// Which, and how much of it is spent.
        budget: String,
    },
    /// A task stands in another way.
    #[serde(rename = "task.changed")]
    TaskChanged {
        /// The task.
        task_id: TaskId,
        /// How.
        status: TaskStatus,
        /// What it waits for: `dependency`, `question`, `review`, `rate_limit`, `budget`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocked_by: Option<String>,
    },
    /// A person did something about a task.
    #[serde(rename = "task.decided")]
    TaskDecided {
        /// The task.
        task_id: TaskId,
        /// What: the method, and what of the task it was about.
        decision: String,
    },
}

impl LifecycleEvent {
    /// All that is said of it, without its type.
    #[must_use]
    pub fn fields(&self) -> JsonObject {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(mut fields)) => {
                fields.remove("type");
                fields
            }
            // An enum with named fields and texts for keys is always an object.
            Ok(_) | Err(_) => JsonObject::new(),
        }
    }

    /// The conversation that it is about, if it is about one.
    #[must_use]
    pub fn instance_key(&self) -> Option<&InstanceKey> {
        match self {
            Self::ProcessStarted { worker, .. }
            | Self::ProcessEnded { worker, .. }
            | Self::ProcessCrashed { worker, .. }
            | Self::ProcessKilled { worker, .. }
            | Self::ProcessBroke { worker, .. }
            | Self::ReadinessChanged { worker, .. } => match worker {
                Worker::Agent { instance_key } => Some(instance_key),
                Worker::Connector { .. } | Worker::Model { .. } | Worker::Task { .. } => None,
            },
            Self::InstanceCreated { instance_key, .. }
            | Self::InstanceImported { instance_key, .. }
            | Self::InstanceRestarted { instance_key, .. }
            | Self::InstanceDeleted { instance_key }
            | Self::InstanceCheckpointed { instance_key, .. }
            | Self::InstanceRewound { instance_key, .. }
            | Self::EventAccepted { instance_key, .. }
            | Self::EventRefused { instance_key, .. }
            | Self::EventParked { instance_key, .. }
            | Self::CallUnknown { instance_key, .. }
            | Self::CallSettled { instance_key, .. }
            | Self::EventRetried { instance_key, .. }
            | Self::EventDropped { instance_key, .. }
            | Self::EventCancelled { instance_key, .. }
            | Self::EventPaused { instance_key, .. }
            | Self::EventResumed { instance_key, .. }
            | Self::EventMoved { instance_key, .. }
            | Self::TurnStarted { instance_key, .. }
            | Self::TurnCommitted { instance_key, .. }
            | Self::ApprovalAsked { instance_key, .. }
            | Self::ApprovalClosed { instance_key, .. }
            | Self::QuestionAsked { instance_key, .. }
            | Self::QuestionClosed { instance_key, .. }
            | Self::BundleChanged { instance_key, .. }
            | Self::BudgetWarning { instance_key, .. } => Some(instance_key),
            Self::WorkspaceOpened { .. }
            | Self::WorkspaceStopped { .. }
            | Self::ConfigurationChanged { .. }
            | Self::ConfigurationRestored { .. }
            | Self::ConfigurationFellBack { .. }
            | Self::ProposalCreated { .. }
            | Self::ProposalReviewed { .. }
            | Self::ProposalApplied { .. }
            | Self::ProposalRejected { .. }
            | Self::ProposalReverted { .. }
            | Self::TaskChanged { .. }
            | Self::TaskDecided { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_flat_and_read_back() {
        let event = LifecycleEvent::ProcessCrashed {
            worker: Worker::Connector {
                connection: "inbox".parse().unwrap(),
            },
            consecutive_crashes: 6,
            next_start_in_ms: 1_000,
            how: "exit code 3".to_owned(),
        };
        let written = serde_json::to_value(&event).unwrap();
        let expected = serde_json::json!({
            "type": "process.crashed", "role": "connector", "connection": "inbox",
            "consecutiveCrashes": 6, "nextStartInMs": 1_000, "how": "exit code 3",
        });
        assert_eq!(written, expected);
        let read: LifecycleEvent = serde_json::from_value(written).unwrap();
        assert_eq!(read, event);
        assert!(!read.fields().contains_key("type"));
    }
}
