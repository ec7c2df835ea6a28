//! Handle of replication for the rest of the shell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use goondan_durable::disk::Disk;
use goondan_protocol::control::{
    ControlError, EmptyResult, ErrorCode, LeaveNodes, ListNodes, NodesPage, ReplicatedWorkspace,
    ReplicationStall, VerifyReplica,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::{ConfirmPoint, OpLog, ReplicatedDisk};
use goondan_replication::names::NodeId;
use goondan_replication::node::Successors;
use goondan_store::root::{self, Layout};
use serde::Serialize;
use serde_json::Value;

use super::messages::{LeaveCluster, Message, NotOwner, Release, ReplicationCommand};
use crate::limits::{ACQUIRE_TIMEOUT_MS, RELEASE_PAUSE_MS, RELEASE_TRIES, REPLICATION_STOP_MS};

#[derive(Debug, Clone)]
pub(in crate::shell) struct Replication {
    pub(super) recording: Arc<OpLog>,
    pub(super) machine: Sender<Message>,
    pub(super) pid: Arc<AtomicU32>,
    /// Workspaces without acknowledgments, as last published by the machine's thread.
    pub(super) unacknowledged: Arc<Mutex<Arc<UnacknowledgedWorkspaces>>>,
    /// Parameters for leaving the cluster at the daemon's stop, if requested.
    pub(super) leaving: Arc<Mutex<Option<LeaveNodes>>>,
}

/// Workspaces without acknowledgments.
pub(in crate::shell) type UnacknowledgedWorkspaces = BTreeMap<WorkspaceId, ReplicationStall>;

impl Replication {
    /// A disk whose changes of workspaces go to their logs.
    pub(in crate::shell) fn disk(&self, disk: Arc<dyn Disk>, waits: ConfirmPoint) -> Arc<dyn Disk> {
        Arc::new(ReplicatedDisk::new(disk, self.recording.clone(), waits))
    }

    /// Process id, while the process runs.
    pub(in crate::shell) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Current workspaces without acknowledgments.
    pub(in crate::shell) fn unacknowledged(&self) -> Arc<UnacknowledgedWorkspaces> {
        let known = self.unacknowledged.lock();
        Arc::clone(&known.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until this node owns a workspace, so that its files may be changed. Blocks, for a while at most.
    ///
    /// # Errors
    ///
    /// [`NotOwner`].
    pub(in crate::shell) fn acquire(&self, workspace: &WorkspaceId) -> Result<(), NotOwner> {
        let (answer, answered) = channel();
        let undecided = |why| NotOwner::Undecided { why };
        let acquire = Message::Acquire {
            workspace: workspace.clone(),
            answer,
        };
        let ending = undecided("the daemon is stopping");
        self.machine.send(acquire).map_err(|_| ending.clone())?;
        let timeout = Duration::from_millis(ACQUIRE_TIMEOUT_MS);
        match answered.recv_timeout(timeout) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(undecided(
                "the log's server does not answer, or the previous node may still be running",
            )),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(ending),
        }
    }

    /// The nodes and workspaces, as this node knows them. Blocks for a moment.
    pub(in crate::shell) fn answer(&self, list: &ListNodes) -> Result<Value, ControlError> {
        let all = self.ask(ReplicationCommand::List)?;
        json(&list.page_of(all))
    }

    /// Checks the settings of the log's server. Blocks for the duration of its answer, at most some
    /// seconds.
    pub(in crate::shell) fn check(&self) -> Result<Value, ControlError> {
        json(&self.ask(ReplicationCommand::Check)?)
    }

    /// Verifies the files of a workspace that another node runs. Blocks until all of them are read.
    pub(in crate::shell) fn verify(&self, asked: &VerifyReplica) -> Result<Value, ControlError> {
        let workspace = asked.workspace_id.clone();
        let found = self.ask(|answer| ReplicationCommand::Verify(workspace, answer))??;
        json(&found)
    }

    /// Selects the node to which a workspace is moved: the named one, if it follows the workspace,
    /// or the best follower. Blocks briefly.
    pub(in crate::shell) fn successor(
        &self,
        workspace: &WorkspaceId,
        to: Option<&str>,
    ) -> Result<String, ControlError> {
        let found = self.ask(|answer| ReplicationCommand::Successors(workspace.clone(), answer))?;
        let Some(successors) = found else {
            return Err(refused(format!(
                "this node does not run workspace `{workspace}`"
            )));
        };
        let Successors { near, far_behind } = successors;
        let behind = |records: u64| {
            format!(
                "is {records} records behind workspace `{workspace}` and needs time to catch up"
            )
        };
        let Some(to) = to else {
            let Some(best) = near.first() else {
                let why = match far_behind.first_key_value() {
                    Some((node, records)) => format!("node `{node}` {}", behind(*records)),
                    None => {
                        format!("no other node follows workspace `{workspace}` and can run it")
                    }
                };
                return Err(refused(why));
            };
            return Ok(best.as_str().to_owned());
        };
        if near.iter().any(|node| node.as_str() == to) {
            return Ok(to.to_owned());
        }
        if let Some((_, records)) = far_behind.iter().find(|(node, _)| node.as_str() == to) {
            return Err(refused(format!("node `{to}` {}", behind(*records))));
        }
        let others: Vec<_> = near.iter().map(NodeId::as_str).collect();
        let others = match others.as_slice() {
            [] => "no other node has".to_owned(),
            some => format!("nodes that have: {}", some.join(", ")),
        };
        Err(refused(format!(
            "node `{to}` has not recently reported that it follows workspace `{workspace}` and can run it; {others}"
        )))
    }

    /// Cancels the release of a workspace: it runs here again.
    pub(in crate::shell) fn keep(&self, workspace: &WorkspaceId) {
        // Without the thread the daemon ends.
        self.machine.send(Message::Keep(workspace.clone())).ok();
    }

    /// Releases a workspace that no longer runs. `disk` is the disk whose changes go to the log,
    /// `dir` the workspace's directory. Blocks, for a limited time.
    pub(in crate::shell) fn hand_over(
        &self,
        disk: &dyn Disk,
        (workspace, dir): (&WorkspaceId, &Path),
        to: &str,
    ) -> Result<(), ControlError> {
        // Turns may have taken long to finish, so the node may be down by now.
        self.successor(workspace, Some(to)).map_err(|error| {
            let message = format!("{}; it runs here again", error.message);
            ControlError { message, ..error }
        })?;
        self.give_up(disk, (workspace, dir), to)
    }

    /// Gives a workspace up, or to this node itself: its log ends then. As [`hand_over`](Self::hand_over).
    fn give_up(
        &self,
        disk: &dyn Disk,
        (workspace, dir): (&WorkspaceId, &Path),
        to: &str,
    ) -> Result<(), ControlError> {
        let unanswered = |why: &str| {
            ControlError::new(
                ErrorCode::Storage,
                format!("workspace `{workspace}`: {why}"),
            )
            .suggest("find its node: `gdn daemon node list`")
        };
        let to = NodeId::new(to).map_err(|error| refused(error.to_string()))?;
        for _ in 0..RELEASE_TRIES {
            disk.confirm(dir)
                .map_err(|error| unanswered(&error.to_string()))?;
            let (answer, answered) = channel();
            let release = Release {
                workspace: workspace.clone(),
                to: to.clone(),
                answer,
            };
            let ending = |_| ControlError::new(ErrorCode::Stopping, "the daemon is stopping");
            self.machine
                .send(Message::Asked(ReplicationCommand::Release(release)))
                .map_err(|_| ending(()))?;
            match answered.recv_timeout(Duration::from_millis(ACQUIRE_TIMEOUT_MS)) {
                Ok(true) => return Ok(()),
                Ok(false) => std::thread::sleep(Duration::from_millis(RELEASE_PAUSE_MS)),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(ending(())),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(unanswered(
                        "the log's server does not answer; it runs here again unless the log records its release",
                    ));
                }
            }
        }
        Err(unanswered(
            "a process still writes to it; it runs here again",
        ))
    }

    /// Has this node take no workspace that another can take, or some again.
    pub(in crate::shell) fn drain(&self, drains: bool) -> Result<Value, ControlError> {
        let ending = |_| ControlError::new(ErrorCode::Stopping, "the daemon is stopping");
        self.machine
            .send(Message::Asked(ReplicationCommand::Drains(drains)))
            .map_err(ending)?;
        json(&EmptyResult {})
    }

    /// Makes this node leave the cluster permanently when its daemon stops. Blocks briefly.
    ///
    /// # Errors
    ///
    /// The conditions that must be met before.
    pub(in crate::shell) fn leave(
        &self,
        asked: &LeaveNodes,
        layout: &Layout,
    ) -> Result<Value, ControlError> {
        let config = layout.config_file();
        let config = config.display();
        let named = root::replication_config(layout);
        let named = named.map_err(|error| refused(goondan_log::error_chain(&error)))?;
        if named.is_some() {
            return Err(refused(format!(
                "`replication` is still in `{config}`, so the node would join the others again at its next start"
            ))
            .suggest(format!(
                "remove `replication` from `{config}`, then run `gdn daemon node leave` again; this daemon no longer needs it"
            )));
        }
        let page: NodesPage = self.ask(ReplicationCommand::List)?;
        let owned = page.workspaces.iter().filter(|it| it.is_here);
        for ReplicatedWorkspace { workspace_id, .. } in owned {
            if !asked.keep {
                return Err(refused(format!("this node runs workspace `{workspace_id}`")).suggest(
                    "move its workspaces to other nodes with `gdn daemon node drain`; if this is the last \
                     node: `gdn daemon node leave --keep`",
                ));
            }
            let id = workspace_id.clone();
            let followers = self.ask(|answer| ReplicationCommand::Followers(id, answer))?;
            if let Some(node) = followers.first() {
                return Err(refused(format!(
                    "node `{node}` follows workspace `{workspace_id}` and would run it too"
                ))
                .suggest(format!(
                    "run `gdn daemon node leave` on `{node}` first, or move the workspace there with `gdn daemon node drain`"
                )));
            }
        }
        *self.leaving.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked.clone());
        json(&EmptyResult {})
    }

    /// Leaves the cluster after the last write: ends the logs of owned workspaces, and moves away
    /// the files of others. Blocks, for a limited time.
    fn leave_now(
        &self,
        asked: &LeaveNodes,
        disk: &dyn Disk,
        layout: &Layout,
    ) -> Result<(), ControlError> {
        let page: NodesPage = self.ask(ReplicationCommand::List)?;
        let own = page.node.unwrap_or_default();
        let mut keeps = BTreeSet::new();
        for workspace in page.workspaces {
            let ReplicatedWorkspace { workspace_id, .. } = &workspace;
            if workspace.is_here && !asked.keep {
                let why =
                    format!("this node has taken over workspace `{workspace_id}` in the meantime");
                return Err(refused(why));
            }
            if workspace.is_here {
                let dir = layout.workspace(workspace_id);
                self.give_up(disk, (workspace_id, &dir), &own)?;
            }
            // Or it was ended before, and the daemon then killed.
            if workspace.is_here || workspace.ended_by.as_ref() == Some(&own) {
                keeps.insert(workspace.workspace_id);
            }
        }
        let leave = |answer| ReplicationCommand::Leave(LeaveCluster { keeps, answer });
        if self.ask(leave)? {
            return Ok(());
        }
        let why = "failed to set all files of other nodes' workspaces aside";
        Err(ControlError::new(ErrorCode::Storage, why))
    }

    fn ask<A>(
        &self,
        asked: impl FnOnce(Sender<A>) -> ReplicationCommand,
    ) -> Result<A, ControlError> {
        let (answer, answered) = channel();
        let ending = || ControlError::new(ErrorCode::Stopping, "the daemon is stopping");
        self.machine
            .send(Message::Asked(asked(answer)))
            .map_err(|_| ending())?;
        answered.recv().map_err(|_| ending())
    }

    /// Signals that the daemon is stopping and does not wait for a log that does not answer.
    /// Idempotent.
    pub(in crate::shell) fn stopping(&self) {
        // Without the thread there are no waiters.
        self.machine.send(Message::Stopping).ok();
    }

    /// Stops replication after the last write: notes which files match their logs, so that they
    /// need not be rebuilt. `disk` is the disk whose changes go to the logs. Blocks, for a limited
    /// time.
    pub(in crate::shell) fn stop(&self, disk: &dyn Disk, layout: &Layout) {
        let leaving = self.leaving.lock();
        let leaving = leaving.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(asked) = leaving {
            match self.leave_now(&asked, disk, layout) {
                Ok(()) => tracing::info!("this node has left the other nodes"),
                Err(error) => tracing::error!(
                    error = error.message,
                    "this node has not left the other nodes: restore `replication` in config.json and start it again"
                ),
            }
        }
        let (done, stopped) = channel();
        if self.machine.send(Message::Stop(done)).is_ok() {
            let timeout = Duration::from_millis(REPLICATION_STOP_MS);
            if stopped.recv_timeout(timeout).is_err() {
                tracing::warn!(
                    "the log did not accept all changes; workspace files are rebuilt at the next start"
                );
            }
        }
        self.recording.end("the daemon is stopping".to_owned());
    }
}

fn refused(why: String) -> ControlError {
    ControlError::new(ErrorCode::InvalidRequest, why)
        .suggest("list the nodes: `gdn daemon node list`")
}

fn json(answer: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(answer)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}
