//! The handle of what replicates workspaces, for those who need nothing of how it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender, channel};
use std::time::Duration;

use goondan_durable::disk::Disk;
use goondan_protocol::control::{ControlError, ErrorCode, ListNodes};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::{Recording, ReplicatedDisk, Waits};
use serde::Serialize;
use serde_json::Value;

use super::messages::{Message, NotHere};
use crate::limits::{ACQUIRE_TIMEOUT_MS, REPLICATION_STOP_MS};

/// The handle of what replicates workspaces.
#[derive(Debug, Clone)]
pub(in crate::shell) struct Replication {
    pub(super) recording: Arc<Recording>,
    pub(super) machine: Sender<Message>,
    pub(super) pid: Arc<AtomicU32>,
}

impl Replication {
    /// A disk whose changes of workspaces go to their logs.
    pub(in crate::shell) fn disk(&self, disk: Arc<dyn Disk>, waits: Waits) -> Arc<dyn Disk> {
        Arc::new(ReplicatedDisk::new(disk, self.recording.clone(), waits))
    }

    /// The process of the program, while there is one.
    pub(in crate::shell) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
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
        let all = self.ask(Message::List)?;
        json(&list.page_of(all))
    }

    /// How the logs' server is set. Blocks for as long as it answers, some seconds at most.
    pub(in crate::shell) fn check(&self) -> Result<Value, ControlError> {
        json(&self.ask(Message::Check)?)
    }

    fn ask<A>(&self, message: impl FnOnce(Sender<A>) -> Message) -> Result<A, ControlError> {
        let (answer, answered) = channel();
        let ending = || ControlError::new(ErrorCode::Stopping, "the daemon is stopping");
        self.machine.send(message(answer)).map_err(|_| ending())?;
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

fn json(answer: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(answer)
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}
