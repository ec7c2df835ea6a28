//! What clients are told of the nodes that workspaces are on (`REP-1`).

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::limits::MAX_NODES_PAGE;

use super::Unacknowledged;
use super::paging::page_of;

/// `node.list`: the nodes, and one page of the workspaces with who has them, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListNodes {
    /// Where the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WorkspaceId>,
    /// Most workspaces on the page, at most and if it is not said [`MAX_NODES_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `node.list`: how one node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesPage {
    /// What the daemon that answers is called; none if its workspaces are on this machine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether the program that speaks to the log's server runs.
    #[serde(default)]
    pub is_connected: bool,
    /// Why the log's server does not answer; none while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Whether the daemon that answers is to take no workspace over that another one can run.
    #[serde(default)]
    pub is_draining: bool,
    /// The nodes that were heard, this one among them.
    pub nodes: Vec<NodeInfo>,
    /// The workspaces that have a log.
    pub workspaces: Vec<ReplicatedWorkspace>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<WorkspaceId>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// Its name.
    pub node: String,
    /// How many workspaces it runs.
    pub owns: u64,
    /// How many it could take over.
    pub follows: u64,
}

/// A workspace that has a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedWorkspace {
    /// Which.
    pub workspace_id: WorkspaceId,
    /// The node that runs it, as far as its log was read; none before the first, and while it is given up and no other
    /// node has taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether that is the daemon that answers.
    pub is_here: bool,
    /// True if that node is the one that answers, or was heard lately. One that was not is gone, or cut off.
    #[serde(default)]
    pub is_owner_heard: bool,
    /// Why the daemon that answers could not run it, and so does not take it over, or hands it on if it has it; none if it
    /// could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// Whether a person has to decide what becomes of the files that the daemon that answers has.
    pub is_stopped: bool,
    /// Whether its disk has failed; it begins anew with the workspace some seconds later.
    #[serde(default)]
    pub is_failed: bool,
    /// The node that left the others and keeps the workspace: its log has ended, and no other node takes it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// How often it was taken over, the first time counted.
    pub epoch: u64,
    /// How far its log is written.
    pub head: u64,
    /// How far each node has followed it.
    pub replicas: Vec<ReplicaInfo>,
    /// Since when the daemon that answers, which runs it, can acknowledge nothing; none while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<Unacknowledged>,
}

/// How far a node has followed a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaInfo {
    /// The node.
    pub node: String,
    /// The last record that its files have.
    pub position: u64,
}

/// `node.move`: has another node run a workspace that this one owns. Its processes end as with `workspace.close`: turns
/// in progress finish, up to the grace period. Answered when this node has given it up; the other one has it some
/// moments later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveWorkspace {
    /// Which.
    pub workspace_id: WorkspaceId,
    /// To which node; one that is chosen by the workspace's name, of those that follow it, if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// `node.drain`: whether this node is to take no workspace over that another one can run. Until it starts again. What it
/// runs stays here until it is moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainNode {
    /// Whether it is.
    pub drains: bool,
}

/// `node.leave`: has this node leave the others for good when its daemon stops: the files of what other nodes run are put
/// away, and no log is followed any more. Refused while `config.json` names `replication`, and while this node runs a
/// workspace, unless it keeps what it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaveNodes {
    /// True if this node keeps the workspaces that it runs: their logs end, and no other node takes them over any more.
    /// Refused while another node follows one of them.
    #[serde(default)]
    pub keep: bool,
}

/// `node.verify` (`MSG-11`): checks the files that the daemon that answers has of a workspace which another node runs, and
/// has them made anew from the log if something that was written cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyReplica {
    /// Which.
    pub workspace_id: WorkspaceId,
}

/// `node.check`: looks at how the server is set that the logs stand in. Takes as long as that answers, some seconds at
/// most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckNodes {}

/// Result of `node.check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesCheck {
    /// What was found; nothing if the workspaces are on this machine alone.
    pub findings: Vec<ServerFinding>,
}

/// One thing about the server that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerFinding {
    /// What: the name of a setting, `version`, `role`, or `connection`.
    pub what: String,
    /// What it is.
    pub found: String,
    /// Whether that will do.
    pub verdict: ServerVerdict,
    /// What to do about it, and why; missing if it will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Whether something about the server will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerVerdict {
    /// It will.
    Good,
    /// It will, and less is kept when something fails.
    Weak,
    /// It will not.
    Bad,
}

impl ListNodes {
    /// The page of all there is that begins where this says.
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
