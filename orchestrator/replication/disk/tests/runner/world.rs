//! A node's disk with one workspace, and its recorded changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use goondan_durable::disk::{Disk, SimulatedDisk, read_all};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::{
    BatchContent, ConfirmPoint, LogBatch, OpLog, Replica, ReplicatedDisk,
};
use goondan_replication::operation::{FileOperation, RelativePath};
use goondan_replication::tree::MemoryTree;

pub(crate) const WORKSPACES: &str = "/r/workspaces";

/// The store's id for the workspace of the project `/p`.
pub(crate) fn workspace() -> WorkspaceId {
    WorkspaceId::new("p__no-package").unwrap()
}

pub(crate) fn dir() -> PathBuf {
    Path::new(WORKSPACES).join(workspace().as_str())
}

pub(crate) fn relative(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

/// A disk with only the directory of workspaces.
pub(crate) fn bare() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in ["/r", WORKSPACES] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    for dir in ["/", "/r"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    disk
}

/// The owner's side. Submitted batches are in the log immediately.
pub(crate) struct Owner {
    pub(crate) disk: SimulatedDisk,
    pub(crate) recording: Arc<OpLog>,
    pub(crate) replicated: Arc<ReplicatedDisk>,
    batches: Arc<Mutex<Vec<LogBatch>>>,
}

impl Owner {
    pub(crate) fn new(waits: ConfirmPoint) -> Self {
        let disk = bare();
        let batches = Arc::new(Mutex::new(Vec::new()));
        let itself: Arc<OnceLock<Weak<OpLog>>> = Arc::default();
        let (log, answering) = (Arc::clone(&batches), Arc::clone(&itself));
        let outlet = move |handed: LogBatch| {
            let (workspace, batch) = (handed.workspace.clone(), handed.batch);
            log.lock().unwrap().push(handed);
            let recording = answering.get().and_then(Weak::upgrade);
            recording.unwrap().acknowledge(&workspace, batch);
        };
        let recording = Arc::new(OpLog::new(WORKSPACES.into(), Box::new(outlet)));
        itself.set(Arc::downgrade(&recording)).unwrap();
        recording.own(&workspace());
        let inner: Arc<dyn Disk> = Arc::new(disk.clone());
        let replicated = ReplicatedDisk::new(inner, Arc::clone(&recording), waits);
        replicated.create_dir(&dir()).unwrap();
        disk.sync_dir(Path::new(WORKSPACES)).unwrap();
        Self {
            disk,
            recording,
            replicated: Arc::new(replicated),
            batches,
        }
    }

    pub(crate) fn batches(&self) -> Vec<Vec<FileOperation>> {
        let batches = self.batches.lock().unwrap();
        let numbers: Vec<u64> = batches.iter().map(|handed| handed.batch.0).collect();
        let expected: Vec<u64> = (1..=batches.len() as u64).collect();
        assert_eq!(numbers, expected, "batches are not numbered one by one");
        let batches = batches.iter();
        batches
            .map(|handed| operations_of(&handed.content))
            .collect()
    }

    pub(crate) fn contents(&self) -> Vec<BatchContent> {
        let batches = self.batches.lock().unwrap();
        batches.iter().map(|it| it.content.clone()).collect()
    }

    /// Operations submitted before the snapshot.
    pub(crate) fn operations_before_snapshot(&self) -> Vec<FileOperation> {
        let contents = self.contents();
        let is_snapshot = |content: &BatchContent| matches!(content, BatchContent::Snapshot(_));
        let at = contents.iter().position(is_snapshot).unwrap();
        contents[..at].iter().flat_map(operations_of).collect()
    }

    /// All recorded operations, after they were submitted.
    pub(crate) fn operations(&self) -> Vec<FileOperation> {
        self.replicated.confirm(&dir()).unwrap();
        assert!(self.recording.is_quiet(&workspace()));
        self.batches().concat()
    }

    /// Replays all operations on a standby and an in-memory tree, and compares both with the
    /// owner's files.
    pub(crate) fn is_replayed(&self, context: &str) {
        let operations = self.operations();
        let memory = memory(&operations);
        let standby = bare();
        let mut replica = replica(&standby);
        replica.apply(&operations).unwrap().unwrap();
        let found = crate::world::replica(&self.disk).digest().unwrap();
        assert_eq!(memory.digest(), found, "{context}: {operations:#?}");
        assert_eq!(replica.digest().unwrap(), found, "{context}");
    }
}

fn operations_of(content: &BatchContent) -> Vec<FileOperation> {
    match content {
        BatchContent::Operations(operations) => operations.clone(),
        BatchContent::Snapshot(_) => Vec::new(),
    }
}

pub(crate) fn memory(operations: &[FileOperation]) -> MemoryTree {
    let mut memory = MemoryTree::default();
    for operation in operations {
        memory.apply(operation).unwrap();
    }
    memory
}

pub(crate) fn replica(disk: &SimulatedDisk) -> Replica {
    Replica::new(Arc::new(disk.clone()), dir())
}

/// Content of a file of the workspace; `None` if it is missing.
pub(crate) fn content(disk: &dyn Disk, path: &Path) -> Option<Vec<u8>> {
    let mut file = disk.open_read(path).ok()?;
    Some(read_all(file.as_mut(), 1 << 30).unwrap())
}
