//! Lifecycle events of the workspaces, conversations and processes that the daemon runs. Each event
//! is emitted once and forwarded to the log, the audit log and watching clients (`OBS-1`,
//! `INST-6`).
//!
//! Events within turns are [`crate::observe::RuntimeEvent`]s.

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::call::LookedBack;
use crate::ids::{
    AgentName, ApprovalId, ChangesetId, ConnectionName, EventId, InstanceKey, QuestionId,
    ResourceName, RevisionId, RunId, ScheduleId, ToolCallId, TurnId, WorkerId,
};
use crate::schedule::ScheduleChange;
use crate::task::{TaskId, TaskStatus};
use crate::time::Timestamp;

/// Owner of a child process within its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "role",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Worker {
    /// A conversation.
    Agent {
        /// The conversation.
        instance_key: InstanceKey,
    },
    /// A connection.
    Connector {
        /// The connection.
        connection: ConnectionName,
    },
    /// A model.
    Model {
        /// The model.
        model: ResourceName,
    },
    /// A run of a task.
    Task {
        /// The task.
        task_id: TaskId,
    },
}

/// Lifecycle event of a workspace, its conversations or its processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum LifecycleEvent {
    /// A workspace was opened.
    #[serde(rename = "workspace.opened")]
    WorkspaceOpened {
        /// Number of conversations with unfinished work.
        instances_with_work: usize,
    },
    /// A workspace was stopped and removed from memory.
    #[serde(rename = "workspace.stopped")]
    WorkspaceStopped {
        /// Error that prevented writing the record of the stop. The next daemon may then open the
        /// workspace again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A new configuration is active.
    #[serde(rename = "configuration.changed")]
    ConfigurationChanged {
        /// Its digest.
        config_digest: String,
        /// The changes: each names a resource and its change.
        changes: Vec<String>,
        /// Number of processes that restart.
        restarting: usize,
    },
    /// The configuration is valid again and equals the active one.
    #[serde(rename = "configuration.restored")]
    ConfigurationRestored {
        /// Its digest.
        config_digest: String,
    },
    /// The project's configuration cannot run; the last known good configuration is active.
    #[serde(rename = "configuration.fellBack")]
    ConfigurationFellBack {
        /// Digest of the active configuration.
        config_digest: String,
        /// Time at which the active configuration was last known to be good.
        config_since: Timestamp,
        /// Error in the project's configuration.
        error: String,
    },
    /// A process was started.
    #[serde(rename = "process.started")]
    ProcessStarted {
        /// The owner of the process.
        #[serde(flatten)]
        worker: Worker,
        /// Its process id.
        child_pid: u32,
    },
    /// A process ended as requested.
    #[serde(rename = "process.ended")]
    ProcessEnded {
        /// The owner of the process.
        #[serde(flatten)]
        worker: Worker,
        /// Exit status, as text.
        how: String,
    },
    /// A process ended unexpectedly.
    #[serde(rename = "process.crashed")]
    ProcessCrashed {
        /// The owner of the process.
        #[serde(flatten)]
        worker: Worker,
        /// Number of consecutive crashes.
        consecutive_crashes: u32,
        /// Delay until the next start, in milliseconds.
        next_start_in_ms: u64,
        /// Exit status, as text.
        how: String,
    },
    /// A process is killed because it missed a deadline.
    #[serde(rename = "process.killed")]
    ProcessKilled {
        /// The owner of the process.
        #[serde(flatten)]
        worker: Worker,
        /// The missed deadline.
        reason: String,
    },
    /// A process violated the protocol and is killed.
    #[serde(rename = "process.broke")]
    ProcessBroke {
        /// The owner of the process.
        #[serde(flatten)]
        worker: Worker,
        /// The violation.
        problem: String,
    },
    /// A connection or a model reported a change of its readiness.
    #[serde(rename = "process.readiness")]
    ReadinessChanged {
        /// The owner of the process.
        #[serde(flatten)]
        worker: Worker,
        /// True if it can do its work.
        ready: bool,
        /// Details from the process.
        detail: String,
    },
    /// A conversation was created.
    #[serde(rename = "instance.created")]
    InstanceCreated {
        /// The conversation.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: Option<AgentName>,
    },
    /// A conversation was imported from an archive.
    #[serde(rename = "instance.imported")]
    InstanceImported {
        /// The conversation.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: AgentName,
        /// Number of messages.
        messages: u64,
    },
    /// The process of a conversation restarts.
    #[serde(rename = "instance.restarted")]
    InstanceRestarted {
        /// The conversation.
        instance_key: InstanceKey,
        /// The requester of the restart.
        by: String,
        /// Why.
        reason: String,
    },
    /// A joint checkpoint of a conversation was created on request.
    #[serde(rename = "instance.checkpointed")]
    InstanceCheckpointed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The checkpoint.
        checkpoint_id: String,
    },
    /// A conversation and its files were rolled back to a joint checkpoint.
    #[serde(rename = "instance.rewound")]
    InstanceRewound {
        /// The conversation.
        instance_key: InstanceKey,
        /// The checkpoint.
        checkpoint_id: String,
        /// Joint checkpoint of the state before the rewind.
        pre_rewind: String,
        /// Number of messages before.
        messages_before: u64,
        /// Number of messages after.
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
        /// True if the event was already durable.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// An event was refused.
    #[serde(rename = "event.refused")]
    EventRefused {
        /// The conversation.
        instance_key: InstanceKey,
        /// Why.
        error: String,
    },
    /// An event was parked because its turn crashes every process that works on it.
    #[serde(rename = "event.parked")]
    EventParked {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
        /// Exit status of the last process.
        reason: String,
    },
    /// A tool call was interrupted and its outcome is unknown.
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
        /// The cause of the interruption.
        detail: String,
    },
    /// The connector found out about a call that was interrupted, so no person needs to.
    #[serde(rename = "call.closed")]
    CallClosed {
        /// The conversation.
        instance_key: InstanceKey,
        /// Its agent.
        agent_name: AgentName,
        /// The call.
        tool_call_id: ToolCallId,
        /// The connection, such as ``connection `chat` ``.
        target: String,
        /// The action.
        method: String,
        /// The finding.
        found: LookedBack,
    },
    /// A person resolved a call with an unknown outcome.
    #[serde(rename = "call.settled")]
    CallSettled {
        /// The conversation.
        instance_key: InstanceKey,
        /// The call.
        tool_call_id: ToolCallId,
        /// The person's finding, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A person returned a parked event to the queue.
    #[serde(rename = "event.retried")]
    EventRetried {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person dropped a parked event without an answer.
    #[serde(rename = "event.dropped")]
    EventDropped {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person canceled a pending event or its turn.
    #[serde(rename = "event.cancelled")]
    EventCancelled {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person paused an event.
    #[serde(rename = "event.paused")]
    EventPaused {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person resumed a paused event, which returns to its place in the queue.
    #[serde(rename = "event.resumed")]
    EventResumed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// A person moved an event forward or backward in the queue.
    #[serde(rename = "event.moved")]
    EventMoved {
        /// The conversation.
        instance_key: InstanceKey,
        /// The event.
        event_id: EventId,
    },
    /// An input that becomes due later was created, moved or removed, or has been sent.
    #[serde(rename = "schedule.changed")]
    ScheduleChanged {
        /// The conversation.
        instance_key: InstanceKey,
        /// The schedule.
        schedule_id: ScheduleId,
        /// The change.
        change: ScheduleChange,
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
        /// Attempt number of the turn, counted from 1.
        attempt: u32,
    },
    /// A turn is durable and its waiting clients were answered.
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
        /// The connection that asks it.
        connection: ConnectionName,
    },
    /// A question no longer waits for an answer.
    #[serde(rename = "question.closed")]
    QuestionClosed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The question.
        question_id: QuestionId,
        /// The connection that asked it.
        connection: ConnectionName,
        /// The way in which it was closed.
        how: String,
    },
    /// A tool call waits for a person to approve it.
    #[serde(rename = "approval.asked")]
    ApprovalAsked {
        /// The conversation.
        instance_key: InstanceKey,
        /// The id to approve it with.
        approval_id: ApprovalId,
        /// The tool's full name.
        tool_name: String,
    },
    /// A tool call no longer waits for approval.
    #[serde(rename = "approval.closed")]
    ApprovalClosed {
        /// The conversation.
        instance_key: InstanceKey,
        /// The id it was approved with.
        approval_id: ApprovalId,
        /// The tool's full name.
        tool_name: String,
        /// The outcome.
        how: String,
    },
    /// A worker submitted a proposal.
    #[serde(rename = "proposal.created")]
    ProposalCreated {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Digest of the worker's `proposal.json`, which identifies the proposal.
        digest: String,
        /// Details.
        detail: String,
    },
    /// A proposal was checked against the project.
    #[serde(rename = "proposal.reviewed")]
    ProposalReviewed {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Digest of the worker's `proposal.json`, which identifies the proposal.
        digest: String,
        /// Details.
        detail: String,
    },
    /// A proposal was applied.
    #[serde(rename = "proposal.applied")]
    ProposalApplied {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Digest of the worker's `proposal.json`, which identifies the proposal.
        digest: String,
        /// Details.
        detail: String,
    },
    /// A person rejected a proposal.
    #[serde(rename = "proposal.rejected")]
    ProposalRejected {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Digest of the worker's `proposal.json`, which identifies the proposal.
        digest: String,
        /// Details.
        detail: String,
    },
    /// An applied proposal was reverted.
    #[serde(rename = "proposal.reverted")]
    ProposalReverted {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Digest of the worker's `proposal.json`, which identifies the proposal.
        digest: String,
        /// Details.
        detail: String,
    },
    /// The comments on a proposal changed.
    #[serde(rename = "proposal.commented")]
    ProposalCommented {
        /// The run.
        run_id: RunId,
        /// The worker.
        agent_id: WorkerId,
        /// Digest of the worker's `proposal.json`, which identifies the proposal.
        digest: String,
        /// Details.
        detail: String,
    },
    /// The state of an agent's own configuration changed.
    #[serde(rename = "bundle.changed")]
    BundleChanged {
        /// The conversation.
        instance_key: InstanceKey,
        /// The change: `committed`, `waits`, `rejected`, `activated`, `promoted`, `reverted` or
        /// `rebased`.
        what: String,
        /// The changeset, if one led to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changeset_id: Option<ChangesetId>,
        /// The revision it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<RevisionId>,
        /// Details.
        detail: String,
    },
    /// A budget is nearly spent.
    #[serde(rename = "budget.warning")]
    BudgetWarning {
        /// The conversation whose call came near the limit.
        instance_key: InstanceKey,
        /// The budget and its usage.
        budget: String,
    },
    /// The state of a task changed.
    #[serde(rename = "task.changed")]
    TaskChanged {
        /// The task.
        task_id: TaskId,
        /// The new status.
        status: TaskStatus,
        /// The reason it is blocked: `dependency`, `question`, `review`, `rate_limit` or `budget`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocked_by: Option<String>,
    },
    /// A person made a decision about a task.
    #[serde(rename = "task.decided")]
    TaskDecided {
        /// The task.
        task_id: TaskId,
        /// The method and the part of the task it applies to.
        decision: String,
    },
}

impl LifecycleEvent {
    /// All fields of the event except its type.
    #[must_use]
    pub fn fields(&self) -> JsonObject {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(mut fields)) => {
                fields.remove("type");
                fields
            }
            // An enum with named fields and string keys always serializes to an object.
            Ok(_) | Err(_) => JsonObject::new(),
        }
    }

    /// The conversation the event is about, if any.
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
            | Self::CallClosed { instance_key, .. }
            | Self::CallSettled { instance_key, .. }
            | Self::EventRetried { instance_key, .. }
            | Self::EventDropped { instance_key, .. }
            | Self::EventCancelled { instance_key, .. }
            | Self::EventPaused { instance_key, .. }
            | Self::EventResumed { instance_key, .. }
            | Self::EventMoved { instance_key, .. }
            | Self::ScheduleChanged { instance_key, .. }
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
            | Self::ProposalCommented { .. }
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
