//! Transfer of snapshots: uploads their parts, and downloads them into the files of a workspace.
//!
//! Each transfer can take long and runs in a separate thread. Requests to the log go through the
//! machine.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use goondan_durable::disk::Disk;
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::{Capture, Replica, RestoreError};
use goondan_replication::node::{CapturedSnapshot, FilesOutcome};
use goondan_replication::record::SnapshotReference;
use goondan_replication::wire::{LogAnswer, LogCommand, SnapshotPartRef};
use goondan_store::root::Layout;

use super::messages::{Message, ReplicationCommand};
use crate::limits::{SNAPSHOT_PART_PAUSE_MS, SNAPSHOT_PART_TIMEOUT_MS};

/// Directory in `replication/` for hard links to files being copied.
pub(super) const SNAPSHOTS: &str = "snapshots";

/// Directory for hard links to a workspace's files while they are copied. Each snapshot has its
/// own, because the previous one may not have been removed yet.
pub(super) fn captured(
    layout: &Layout,
    workspace: &WorkspaceId,
    reference: &SnapshotReference,
) -> PathBuf {
    let dir = layout.replication().join(SNAPSHOTS);
    dir.join(format!("{workspace}.{}", reference.as_str()))
}

/// The parts of one snapshot on the log's server.
pub(super) struct Parts {
    pub(super) machine: Sender<Message>,
    pub(super) workspace: WorkspaceId,
    pub(super) reference: SnapshotReference,
}

impl Parts {
    /// Uploads the captured files in a separate thread.
    ///
    /// # Errors
    ///
    /// The operating system's error if no thread can be started.
    pub(super) fn keep(self, capture: Capture) -> io::Result<()> {
        let builder = thread::Builder::new().name("snapshot".to_owned());
        builder.spawn(move || self.keep_all(&capture)).map(drop)
    }

    /// Replaces a workspace's files with those of the snapshot, in a separate thread.
    ///
    /// # Errors
    ///
    /// See [`keep`](Self::keep).
    pub(super) fn restore(
        self,
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        aside: PathBuf,
    ) -> io::Result<()> {
        let builder = thread::Builder::new().name("snapshot".to_owned());
        let run = move || self.restore_all(disk, dir, &aside);
        builder.spawn(run).map(drop)
    }

    fn keep_all(self, capture: &Capture) {
        let began = Instant::now();
        let (mut number, mut bytes) = (0_u32, 0);
        let given = capture.give(&mut |part| {
            bytes += part.len();
            self.keep_part(number, &part)?;
            number = number.saturating_add(1);
            Ok(())
        });
        match &given {
            Ok(_) => tracing::info!(
                workspace_id = %self.workspace,
                snapshot = self.reference.as_str(),
                parts = number,
                bytes,
                duration_ms = millis(began),
                "snapshot of the workspace stored"
            ),
            Err(error) => tracing::warn!(
                workspace_id = %self.workspace,
                snapshot = self.reference.as_str(),
                error = error as &dyn std::error::Error,
                "failed to store a snapshot of the workspace; its log is not truncated until one succeeds"
            ),
        }
        let captured = given.ok().map(|digest| CapturedSnapshot {
            digest,
            parts: number,
        });
        self.done(FilesOutcome::Captured(self.reference.clone(), captured));
    }

    fn restore_all(self, disk: Arc<dyn Disk>, dir: PathBuf, aside: &Path) {
        let mut replica = Replica::new(disk, dir);
        let cleared = replica.clear(aside).map_err(RestoreError::from);
        let restored = cleared.and_then(|()| replica.restore(&mut |number| self.read(number)));
        match &restored {
            Ok(()) => tracing::info!(
                workspace_id = %self.workspace,
                snapshot = self.reference.as_str(),
                "workspace files restored from a snapshot"
            ),
            Err(error) => tracing::error!(
                workspace_id = %self.workspace,
                snapshot = self.reference.as_str(),
                error = error as &dyn std::error::Error,
                "failed to restore workspace files from a snapshot; retrying"
            ),
        }
        self.done(FilesOutcome::Restored(restored.is_ok()));
    }

    fn done(&self, outcome: FilesOutcome) {
        let done = Message::FilesDone(self.workspace.clone(), outcome);
        // If the machine is gone, the result is not needed.
        self.machine.send(done).ok();
    }

    fn part(&self, number: u32) -> SnapshotPartRef {
        SnapshotPartRef {
            workspace: self.workspace.clone(),
            reference: self.reference.clone(),
            number,
        }
    }

    fn keep_part(&self, number: u32, bytes: &[u8]) -> io::Result<()> {
        let ask = || LogCommand::KeepPart(self.part(number), bytes.to_vec());
        self.ask(ask, |answer| {
            matches!(answer, LogAnswer::Noted).then_some(())
        })
    }

    fn read(&self, number: u32) -> io::Result<Option<Vec<u8>>> {
        let ask = || LogCommand::ReadPart(self.part(number));
        self.ask(ask, |answer| match answer {
            LogAnswer::Part(part) => Some(part),
            _ => None,
        })
    }

    /// Retries a request until it is answered, for a limited time.
    fn ask<T>(
        &self,
        ask: impl Fn() -> LogCommand,
        answered: impl Fn(LogAnswer) -> Option<T>,
    ) -> io::Result<T> {
        let began = Instant::now();
        loop {
            let (answer, told) = channel();
            let ask = ask();
            let ending = |_| io::Error::other("the daemon is stopping");
            let forward = Message::Asked(ReplicationCommand::Forward { ask, answer });
            self.machine.send(forward).map_err(|_| ending(()))?;
            let answer = told.recv().map_err(|_| ending(()))?;
            if let Some(answer) = answer.and_then(&answered) {
                return Ok(answer);
            }
            if millis(began) >= SNAPSHOT_PART_TIMEOUT_MS {
                return Err(io::Error::other("the log's server does not answer"));
            }
            thread::sleep(Duration::from_millis(SNAPSHOT_PART_PAUSE_MS));
        }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
