//! The handle of what replicates workspaces, for those who need nothing of how it does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use goondan_durable::disk::Disk;
use goondan_protocol::control::{
    ControlError, Done, ErrorCode, ListNodes, Unacknowledged, VerifyReplica,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::{Recording, ReplicatedDisk, Waits};
use goondan_replication::names::NodeId;
use goondan_replication::node::Successors;
use serde::Serialize;
use serde_json::Value;

use super::messages::{Asked, Message, NotHere, Release};
use crate::limits::{ACQUIRE_TIMEOUT_MS, RELEASE_TRIES, REPLICATION_STOP_MS};

/// The handle of what replicates workspaces.
#[derive(Debug, Clone)]
pub(in crate::shell) struct Replication {
    pub(super) recording: Arc<Recording>,
    pub(super) machine: Sender<Message>,
    pub(super) pid: Arc<AtomicU32>,
    /// The workspaces of which nothing is acknowledged, as the thread that knows found last.
    pub(super) unacknowledged: Arc<Mutex<Arc<UnacknowledgedWorkspaces>>>,
}

/// Workspaces of which nothing is acknowledged.
pub(in crate::shell) type UnacknowledgedWorkspaces = BTreeMap<WorkspaceId, Unacknowledged>;

impl Replication {
    /// A disk whose changes of workspaces go to their logs.
    pub(in crate::shell) fn disk(&self, disk: Arc<dyn Disk>, waits: Waits) -> Arc<dyn Disk> {
        Arc::new(ReplicatedDisk::new(disk, self.recording.clone(), waits))
    }

    /// The process of the program, while there is one.
    pub(in crate::shell) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// The workspaces of which nothing is acknowledged now.
    pub(in crate::shell) fn unacknowledged(&self) -> Arc<UnacknowledgedWorkspaces> {
        let known = self.unacknowledged.lock();
        Arc::clone(&known.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until this node owns a workspace, so that its files may be changed. Blocks, for a while at most.
    ///
    /// # Errors
    ///
    /// [`NotHere`].
    pub(in crate::shell) fn acquire(&self, workspace: &WorkspaceId) -> Result<(), NotHere> {
        let (answer, answered) = channel();
        let undecided = |why| NotHere::Undecided { why };
        let acquire = Message::Acquire {
            workspace: workspace.clone(),
            answer,
        };
        let ending = undecided("the daemon ends");
        self.machine.send(acquire).map_err(|_| ending.clone())?;
        let timeout = Duration::from_millis(ACQUIRE_TIMEOUT_MS);
        match answered.recv_timeout(timeout) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(undecided(
                "the log's server does not answer, or the node that had it may still be there",
            )),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(ending),
        }
    }

    /// The nodes and workspaces, as this node knows them. Blocks for a moment.
    pub(in crate::shell) fn answer(&self, list: &ListNodes) -> Result<Value, ControlError> {
        let all = self.ask(Asked::List)?;
        json(&list.page_of(all))
    }

    /// How the logs' server is set. Blocks for as long as it answers, some seconds at most.
    pub(in crate::shell) fn check(&self) -> Result<Value, ControlError> {
        json(&self.ask(Asked::Check)?)
    }

    /// Whether the files are as they were written that this node has of a workspace which another one runs. Blocks until all
    /// of them are read.
    pub(in crate::shell) fn verify(&self, asked: &VerifyReplica) -> Result<Value, ControlError> {
        let workspace = asked.workspace_id.clone();
        let found = self.ask(|answer| Asked::Verify(workspace, answer))??;
        json(&found)
    }

    /// To which node a workspace of this one is to go: the one that is named, if it follows it, or the best of those that
    /// do. Blocks for a moment.
    pub(in crate::shell) fn successor(
        &self,
        workspace: &WorkspaceId,
        to: Option<&str>,
    ) -> Result<String, ControlError> {
        let found = self.ask(|answer| Asked::Successors(workspace.clone(), answer))?;
        let Some(successors) = found else {
            return Err(refused(format!(
                "this node does not run workspace `{workspace}`"
            )));
        };
        let Successors { near, far_behind } = successors;
        let behind = |records: u64| {
            format!(
                "is {records} records behind workspace `{workspace}`: it would not have all of it for a while"
            )
        };
        let Some(to) = to else {
            let Some(best) = near.first() else {
                let why = match far_behind.first_key_value() {
                    Some((node, records)) => format!("node `{node}` {}", behind(*records)),
                    None => {
                        format!("no other node follows workspace `{workspace}` and could run it")
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
            [] => "no other one was".to_owned(),
            some => format!("those that were: {}", some.join(", ")),
        };
        Err(refused(format!(
            "node `{to}` was not lately heard to follow workspace `{workspace}` and to be able to run it; {others}"
        )))
    }

    /// A workspace that was to be given up was not: it is run here again.
    pub(in crate::shell) fn keep(&self, workspace: &WorkspaceId) {
        // Without the thread the daemon ends.
        self.machine.send(Message::Keep(workspace.clone())).ok();
    }

    /// Gives up a workspace of which nothing runs any more. `disk` is that whose changes go to the log, `dir` the
    /// workspace's. Blocks, for a while at most.
    pub(in crate::shell) fn hand_over(
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
            .suggest("see where it is with `gdn node list`")
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
                .send(Message::Asked(Asked::Release(release)))
                .map_err(|_| ending(()))?;
            match answered.recv_timeout(Duration::from_millis(ACQUIRE_TIMEOUT_MS)) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(ending(())),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(unanswered(
                        "the log's server does not answer; it runs here again, unless the log has it as given up",
                    ));
                }
            }
        }
        Err(unanswered(
            "something still writes to it; it runs here again",
        ))
    }

    /// Has this node take no workspace that another can take, or some again.
    pub(in crate::shell) fn drain(&self, drains: bool) -> Result<Value, ControlError> {
        let ending = |_| ControlError::new(ErrorCode::Stopping, "the daemon is stopping");
        self.machine
            .send(Message::Asked(Asked::Drains(drains)))
            .map_err(ending)?;
        json(&Done {})
    }

    fn ask<A>(&self, asked: impl FnOnce(Sender<A>) -> Asked) -> Result<A, ControlError> {
        let (answer, answered) = channel();
        let ending = || ControlError::new(ErrorCode::Stopping, "the daemon is stopping");
        self.machine
            .send(Message::Asked(asked(answer)))
            .map_err(|_| ending())?;
        answered.recv().map_err(|_| ending())
    }

    /// The daemon is to end: it does not wait for a log that does not answer. May be said again and again.
    pub(in crate::shell) fn stopping(&self) {
        // Without the thread nobody waits any more.
        self.machine.send(Message::Stopping).ok();
    }

    /// Ends it, when nothing is written any more: notes which files are what their logs say, so that they need not be
    /// made anew. Blocks, for a while at most.
    pub(in crate::shell) fn stop(&self) {
        let (done, stopped) = channel();
        if self.machine.send(Message::Stop(done)).is_ok() {
            let timeout = Duration::from_millis(REPLICATION_STOP_MS);
            if stopped.recv_timeout(timeout).is_err() {
                tracing::warn!(
                    "the log did not take all that was written: files of workspaces are made anew at the next start"
                );
            }
        }
        self.recording.end("the daemon ends".to_owned());
    }
}

fn refused(why: String) -> ControlError {
    ControlError::new(ErrorCode::InvalidRequest, why)
        .suggest("see who follows what with `gdn node list`")
}

fn json(answer: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(answer)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}
