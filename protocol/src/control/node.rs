//! Nodes of replicated workspaces, for clients (`REP-1`).

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::limits::MAX_NODES_PAGE;

use super::ReplicationStall;
use super::pages::page_of;

/// `node.list`: the nodes, and one page of the workspaces with their owners, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListNodes {
    /// Start of the page: `next` of the previous page; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WorkspaceId>,
    /// Maximum number of workspaces on the page; defaults to and is capped at [`MAX_NODES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `node.list`, from the view of the answering node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesPage {
    /// Name of the answering node; `None` if its workspaces are only on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// True if the process that connects to the log's server runs.
    #[serde(default)]
    pub is_connected: bool,
    /// Reason why the log's server does not answer; `None` while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// True if the answering node is draining.
    #[serde(default)]
    pub is_draining: bool,
    /// Nodes with recent heartbeats, including this one.
    pub nodes: Vec<NodeInfo>,
    /// The workspaces that have a log.
    pub workspaces: Vec<ReplicatedWorkspace>,
    /// Start of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<WorkspaceId>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// Its name.
    pub node: String,
    /// Number of workspaces that it runs.
    pub owns: u64,
    /// Number of workspaces that it could take over.
    pub follows: u64,
}

/// A workspace that has a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedWorkspace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The node that runs the workspace, according to the log as read so far; `None` before the
    /// first owner, and after a release until another node takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// True if the owner is the answering node.
    pub is_here: bool,
    /// True if the owner is the answering node, or has sent a recent heartbeat. Otherwise, the
    /// owner is down or disconnected.
    #[serde(default)]
    pub is_owner_heard: bool,
    /// Reason why the answering daemon could not run the workspace, and so does not take it over,
    /// or passes it on; `None` if it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// True if a person must decide about the answering node's files.
    pub is_stopped: bool,
    /// True if the answering node's disk has failed; the node retries some seconds later.
    #[serde(default)]
    pub is_failed: bool,
    /// The node that left the cluster and keeps the workspace: its log has ended, and no other node
    /// can take it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Number of takeovers, including the first.
    pub epoch: u64,
    /// Last position of the log.
    pub head: u64,
    /// Position that each node has applied.
    pub replicas: Vec<ReplicaInfo>,
    /// Start of the period in which the answering node, as the owner, cannot acknowledge events;
    /// `None` while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<ReplicationStall>,
}

/// Position that a node has applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaInfo {
    /// The node.
    pub node: String,
    /// Position of the last record that the node's files contain.
    pub position: u64,
}

/// `node.move`: moves a workspace of this node to another node. Its processes end as with
/// `workspace.close`: turns in progress finish, up to the grace period. Answered when this node has
/// released the workspace; the other node takes it over some moments later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveWorkspace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The target node; by default one of its followers, chosen by the workspace's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// `node.drain`: starts or ends draining. A draining node takes over no workspace that another node
/// can run. Ends with a restart. Workspaces of the node stay until they are moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainNode {
    /// True to drain.
    pub drains: bool,
}

/// `node.leave`: makes this node leave the cluster permanently when its daemon stops. Files of
/// workspaces that other nodes run are moved away, and no log is followed any longer. Refused while
/// `config.json` contains `replication`, and while this node runs a workspace, unless it keeps its
/// workspaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaveNodes {
    /// True to keep the workspaces that this node runs: their logs end, and no other node can take
    /// them over. Refused while another node follows one of them.
    #[serde(default)]
    pub keep: bool,
}

/// `node.verify` (`MSG-11`): verifies the answering node's files of a workspace that another node
/// runs, and rebuilds unreadable ones from the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyReplica {
    /// The workspace.
    pub workspace_id: WorkspaceId,
}

/// `node.check`: checks the settings of the log's server. Takes as long as the server's answer, at
/// most some seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckNodes {}

/// Result of `node.check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesCheck {
    /// The findings; empty if the workspaces are only on this machine.
    pub findings: Vec<ServerFinding>,
}

/// A finding about the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerFinding {
    /// The checked item: the name of a setting, `version`, `role`, or `connection`.
    pub what: String,
    /// Current value.
    pub found: String,
    /// Verdict on the value.
    pub verdict: ServerVerdict,
    /// Suggested fix and reason; absent if the value is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Verdict on a setting of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerVerdict {
    /// The setting works.
    Good,
    /// Acceptable, but with weaker guarantees after failures.
    Weak,
    /// The setting does not work.
    Bad,
}

impl ListNodes {
    /// The page of `all` that this request selects.
    #[must_use]
    pub fn page_of(&self, all: NodesPage) -> NodesPage {
        let NodesPage { workspaces, .. } = all;
        let behind = workspaces.into_iter().filter(|it| {
            self.after
                .as_ref()
                .is_none_or(|after| it.workspace_id > *after)
        });
        let (workspaces, next) = page_of(behind, self.limit, MAX_NODES_PAGE, |it| {
            it.workspace_id.clone()
        });
        NodesPage {
            workspaces,
            next,
            ..all
        }
    }
}
