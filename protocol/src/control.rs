//! The control API: JSON-RPC 2.0 in frames, between a client and the daemon (`CTL-1`).
//!
//! Each method is a type of its own that names its result ([`Method`]); a server reads any of them as
//! a [`Call`]. The first request on a connection must be [`Connect`], which checks the exact version.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::TurnOutcome;
use crate::ids::{AgentName, EventId, InstanceKey, TurnId, WorkspaceId};
use crate::ipc::ChildRole;
use crate::message::Message;
use crate::time::Timestamp;
use crate::trace::TraceId;
use crate::version::Version;

mod records;
mod wire;

pub use records::{
    DaemonStatus, InstanceDetail, InstanceSummary, ProcessInfo, ProcessState, WorkspaceInfo,
    WorkspaceProblem,
};
pub use wire::{
    ControlError, ErrorCode, Incoming, JsonRpc, Notification, Request, Response, RpcError,
};

/// A method of the control API.
pub trait Method: Serialize {
    /// Its name on the wire.
    const NAME: &'static str;
    /// What it returns.
    type Output: Serialize + DeserializeOwned;
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $wire:literal -> $output:ty;)*) => {
        /// Any request a client can make.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "method", content = "params")]
        pub enum Call {
            $($(#[$doc])* #[serde(rename = $wire)] $name($name),)*
        }

        impl Call {
            /// Every method's name.
            pub const NAMES: &'static [&'static str] = &[$($wire),*];
        }

        $(
            impl Method for $name {
                const NAME: &'static str = $wire;
                type Output = $output;
            }
        )*
    };
}

methods! {
    /// Opens the connection: exact version check.
    Connect = "daemon.connect" -> Connected;
    /// The daemon's state.
    Status = "daemon.status" -> DaemonStatus;
    /// Stops the daemon.
    Stop = "daemon.shutdown" -> Done;
    /// Every process and its state.
    ListProcesses = "daemon.processes" -> Vec<ProcessInfo>;
    /// Registers a project as a workspace and starts it; it stays registered across restarts.
    OpenWorkspace = "workspace.open" -> WorkspaceInfo;
    /// The registered workspaces.
    ListWorkspaces = "workspace.list" -> Vec<WorkspaceInfo>;
    /// Stops a workspace's processes and forgets the registration; its state stays.
    CloseWorkspace = "workspace.close" -> Done;
    /// Restarts processes of a workspace, after the turns in progress.
    Restart = "workspace.restart" -> Restarted;
    /// Hands an event to an agent; with `wait`, returns when its turn is committed.
    SendEvent = "event.send" -> Sent;
    /// The instances of a workspace.
    ListInstances = "instance.list" -> Vec<InstanceSummary>;
    /// One instance.
    ShowInstance = "instance.show" -> InstanceDetail;
    /// Messages of an instance's conversation.
    InstanceHistory = "instance.history" -> History;
    /// Stops an instance's process and removes its state.
    DeleteInstance = "instance.delete" -> Deleted;
    /// The daemon's log stream, as `logs.line` notifications under the request's id.
    FollowLogs = "logs.follow" -> Done;
}

/// Name of the notification that carries one log line: `params` is [`LogLine`].
pub const LOG_LINE: &str = "logs.line";
/// Name of the notification that carries one runtime event of a turn a client waits for: `params` is
/// [`TurnProgress`].
pub const TURN_PROGRESS: &str = "turn.progress";

/// Nothing more to say than that it is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// `daemon.connect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Connect {
    /// The client's exact version.
    pub version: Version,
}

/// Result of `daemon.connect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connected {
    /// The daemon's exact version.
    pub version: Version,
    /// The daemon's process id.
    pub pid: u32,
    /// The System Root it owns.
    pub state_root: PathBuf,
}

/// `daemon.status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {}

/// `daemon.shutdown`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stop {
    /// Overrides each swarm's grace period, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_ms: Option<u64>,
}

/// `daemon.processes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProcesses {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// `workspace.open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenWorkspace {
    /// The Project Root, absolute.
    pub project_root: PathBuf,
}

/// `workspace.list`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListWorkspaces {}

/// `workspace.close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloseWorkspace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
}

/// `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restart {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Only this agent's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Only this conversation's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Removes the conversations of what is restarted, so that they begin anew.
    #[serde(default)]
    pub fresh: bool,
}

/// Result of `workspace.restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarted {
    /// How many processes are being restarted.
    pub processes: usize,
    /// Conversations that were removed (`fresh`).
    pub removed: Vec<InstanceKey>,
}

/// `event.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The agent; the swarm's entry agent when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The conversation.
    pub conversation_key: InstanceKey,
    /// The text for the agent.
    pub input: String,
    /// The event's id; the same id twice is one turn. The daemon makes one when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// A trace to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Whether to return only when the turn is committed, with `turn.progress` until then.
    pub wait: bool,
}

/// Result of `event.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The event's id.
    pub event_id: EventId,
    /// The instance that got it.
    pub instance_key: InstanceKey,
    /// The agent that got it.
    pub agent: AgentName,
    /// The trace.
    pub trace_id: TraceId,
    /// Whether the event had been accepted before.
    pub duplicate: bool,
    /// How the turn ended, if the client waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
}

/// `instance.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInstances {
    /// Only this workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// `instance.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
}

/// `instance.history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceHistory {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Where the page begins: 0, then what the page before said in `next`.
    #[serde(default)]
    pub offset: u64,
}

/// Result of `instance.history`: one page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Confirmed messages.
    pub messages: Vec<Message>,
    /// Messages of the open turn, not confirmed yet; on the last page only.
    pub pending: Vec<Message>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `instance.delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteInstance {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
}

/// Result of `instance.delete`. What is not there is deleted with success (`INST-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// Whether there was anything to delete.
    pub existed: bool,
}

/// `logs.follow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowLogs {
    /// How many of the latest lines to begin with.
    pub tail: usize,
    /// Whether to go on with new lines. If not, the request ends after the tail.
    pub follow: bool,
    /// Only lines of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only lines of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Only lines of this trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
}

/// One line of the log stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The `logs.follow` request it answers.
    pub request_id: u64,
    /// The line: a JSON object.
    pub line: Box<RawValue>,
}

/// One runtime event of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnProgress {
    /// The `event.send` request it belongs to.
    pub request_id: u64,
    /// What happened.
    pub event: crate::observe::RuntimeEvent,
}
