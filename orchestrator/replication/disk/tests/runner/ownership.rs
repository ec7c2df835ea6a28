//! Ownership of files, and the ends of waits.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use goondan_durable::disk::{Crash, Disk, DiskEntry, DiskFile, SimulatedDisk, Stat};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::{
    BatchContent, ConfirmPoint, LogBatch, OpLog, ReplicatedDisk, ReplicatedDiskError,
};
use goondan_replication::owner::BatchId;

use crate::world::{WORKSPACES, bare, dir, replica, workspace};

/// A disk whose batches must be acknowledged by the test.
struct AcknowledgingNode {
    disk: SimulatedDisk,
    recording: Arc<OpLog>,
    replicated: Arc<ReplicatedDisk>,
    handed: Receiver<LogBatch>,
}

fn node(waits: ConfirmPoint) -> AcknowledgingNode {
    let disk = bare();
    let (sender, handed) = channel();
    let outlet = move |batch| sender.send(batch).unwrap();
    let recording = Arc::new(OpLog::new(WORKSPACES.into(), Box::new(outlet)));
    let inner: Arc<dyn Disk> = Arc::new(disk.clone());
    let replicated = Arc::new(ReplicatedDisk::new(inner, Arc::clone(&recording), waits));
    AcknowledgingNode {
        disk,
        recording,
        replicated,
        handed,
    }
}

impl AcknowledgingNode {
    fn owning(waits: ConfirmPoint) -> Self {
        let node = node(waits);
        node.recording.own(&workspace());
        node.replicated.create_dir(&dir()).unwrap();
        node
    }
}

/// Something that is done to a workspace.
type Act = fn(&ReplicatedDisk) -> io::Result<()>;

fn sync_a_file(disk: &ReplicatedDisk) -> io::Result<()> {
    let mut file = disk.create(&dir().join("a"))?;
    file.append(b"1")?;
    file.sync()
}

fn sync_a_directory(disk: &ReplicatedDisk) -> io::Result<()> {
    disk.create_dir(&dir().join("d"))?;
    disk.sync_dir(&dir())
}

fn confirm(disk: &ReplicatedDisk) -> io::Result<()> {
    disk.create_dir(&dir().join("d"))?;
    disk.sync_dir(&dir())?;
    disk.confirm(&dir().join("tasks/t"))
}

const WAITS: [(ConfirmPoint, Act); 3] = [
    (ConfirmPoint::AtEachSync, sync_a_file),
    (ConfirmPoint::AtEachSync, sync_a_directory),
    (ConfirmPoint::AtConfirm, confirm),
];

/// Starts a wait, runs `end` once the batch was handed over, and returns the result of the wait.
fn ended_by(
    waits: (ConfirmPoint, Act),
    end: impl FnOnce(&AcknowledgingNode, BatchId),
) -> io::Result<()> {
    let node = AcknowledgingNode::owning(waits.0);
    let disk = Arc::clone(&node.replicated);
    let waiting = std::thread::spawn(move || waits.1(&disk));
    let handed = node.handed.recv().unwrap();
    end(&node, handed.batch);
    waiting.join().unwrap()
}

#[test]
fn rep_1_a_wait_ends_when_the_log_has_it_and_not_before() {
    for waits in WAITS {
        let said = Arc::new(Mutex::new(Vec::new()));
        let node = AcknowledgingNode::owning(waits.0);
        let (disk, saying) = (Arc::clone(&node.replicated), Arc::clone(&said));
        let waiting = std::thread::spawn(move || {
            waits.1(&disk).unwrap();
            saying.lock().unwrap().push("returned");
        });
        let handed = node.handed.recv().unwrap();
        assert!(!node.recording.is_quiet(&workspace()));
        // An acknowledgment of other batches does not end the wait.
        node.recording.acknowledge(&workspace(), BatchId(0));
        let other = WorkspaceId::new("other").unwrap();
        node.recording.acknowledge(&other, handed.batch);
        said.lock().unwrap().push("acknowledged");
        node.recording.acknowledge(&workspace(), handed.batch);
        waiting.join().unwrap();
        assert_eq!(*said.lock().unwrap(), ["acknowledged", "returned"]);
        assert!(node.recording.is_quiet(&workspace()));
    }
}

#[test]
fn rep_1_a_change_that_no_sync_follows_is_handed_over() {
    for waits in [ConfirmPoint::AtEachSync, ConfirmPoint::AtConfirm] {
        let node = AcknowledgingNode::owning(waits);
        let mut file = node.replicated.create(&dir().join("a")).unwrap();
        file.append(b"1").unwrap();
        drop(file);
        assert!(node.handed.try_recv().is_err());
        node.recording.hand_over_rest();
        let handed = node.handed.recv().unwrap();
        assert!(!handed.is_awaited);
        node.recording.hand_over_rest();
        assert!(node.handed.try_recv().is_err(), "handed over twice");
        node.recording.acknowledge(&workspace(), handed.batch);
        assert!(node.recording.is_quiet(&workspace()));
    }
}

#[test]
fn unsynced_operations_are_handed_over_without_waiting() {
    let node = AcknowledgingNode::owning(ConfirmPoint::AtConfirm);
    let disk = &node.replicated;
    let mut file = disk.create(&dir().join("a")).unwrap();
    file.append(b"1").unwrap();
    disk.confirm(&dir()).unwrap();
    let handed = node.handed.recv().unwrap();
    assert!(!handed.is_awaited);
    // A later sync waits and expedites the batches that were handed over.
    file.sync().unwrap();
    let hurried = node.handed.recv().unwrap();
    assert!(hurried.is_awaited);
    assert_eq!(hurried.content, BatchContent::Operations(Vec::new()));
    let (disk, said) = (Arc::clone(disk), Arc::new(Mutex::new(Vec::new())));
    let saying = Arc::clone(&said);
    let waiting = std::thread::spawn(move || {
        disk.confirm(&dir()).unwrap();
        saying.lock().unwrap().push("returned");
    });
    node.recording.acknowledge(&workspace(), handed.batch);
    said.lock().unwrap().push("acknowledged");
    node.recording.acknowledge(&workspace(), hurried.batch);
    waiting.join().unwrap();
    assert_eq!(*said.lock().unwrap(), ["acknowledged", "returned"]);
    // Nothing is left to expedite.
    file.sync().unwrap();
    assert!(node.handed.try_recv().is_err());
}

#[test]
fn wait_ends_with_the_reason_when_ownership_is_lost() {
    for waits in WAITS {
        let disowned = ended_by(waits, |node, _| {
            node.recording
                .disown(&workspace(), "node b has it".to_owned());
        });
        let error = disowned.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("node b has it"), "{error}");
        assert!(ReplicatedDiskError::is_in(&error));
    }
}

#[test]
fn wait_fails_when_the_workspace_returns() {
    // With a later confirmation the workspace may have been taken again before the caller asks.
    let at_once = WAITS
        .into_iter()
        .filter(|(waits, _)| *waits == ConfirmPoint::AtEachSync);
    for waits in at_once {
        let given_up = ended_by(waits, |node, batch| {
            node.recording
                .disown(&workspace(), "node b has it".to_owned());
            node.recording.own(&workspace());
            node.recording.acknowledge(&workspace(), batch);
        });
        assert_eq!(
            given_up.unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}

#[test]
fn a_wait_ends_with_the_daemon_and_so_does_each_one_after() {
    for waits in WAITS {
        let ended = ended_by(waits, |node, _| node.recording.end("it stops".to_owned()));
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert!(error.to_string().contains("it stops"), "{error}");
    }
    let node = node(ConfirmPoint::AtEachSync);
    node.recording.end("it stops".to_owned());
    node.recording.own(&workspace());
    node.replicated.create_dir(&dir()).unwrap();
    let error = sync_a_file(&node.replicated).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
}

#[test]
fn syncs_wait_for_nothing_where_confirming_does() {
    let node = AcknowledgingNode::owning(ConfirmPoint::AtConfirm);
    sync_a_file(&node.replicated).unwrap();
    sync_a_directory(&node.replicated).unwrap();
    let batches: Vec<u64> = node
        .handed
        .try_iter()
        .map(|handed| handed.batch.0)
        .collect();
    assert_eq!(batches, [1, 2]);
    node.recording.acknowledge(&workspace(), BatchId(2));
    node.replicated.confirm(&dir()).unwrap();
    assert_eq!(node.handed.try_iter().count(), 0);
}

fn at(path: &str) -> PathBuf {
    dir().join(path)
}

/// Every kind of change, each tried on a workspace that has files.
const CHANGES: [(&str, Act); 9] = [
    ("open", |disk| disk.open(&at("new")).map(drop)),
    ("create", |disk| disk.create(&at("a")).map(drop)),
    ("append", |disk| disk.open(&at("a"))?.append(b"x").map(drop)),
    ("cut", |disk| disk.open(&at("a"))?.set_len(0)),
    ("rename", |disk| disk.rename(&at("a"), &at("b"))),
    ("move out", |disk| disk.rename(&at("a"), Path::new("/r/a"))),
    ("remove", |disk| disk.remove_file(&at("a"))),
    ("make a directory", |disk| disk.create_dir(&at("e"))),
    ("remove a directory", |disk| disk.remove_tree(&at("d"))),
];

#[test]
fn rep_1_files_not_owned_by_this_node_cannot_be_changed() {
    for is_given_up in [false, true] {
        let node = node(ConfirmPoint::AtEachSync);
        let inner: &dyn Disk = &node.disk;
        inner.create_dir(&dir()).unwrap();
        inner.create_dir(&dir().join("d")).unwrap();
        node.disk.plant(&dir().join("a"), b"1").unwrap();
        if is_given_up {
            node.recording.own(&workspace());
            node.recording
                .disown(&workspace(), "node b has it".to_owned());
        }
        let before = replica(&node.disk).digest().unwrap();
        for (name, change) in CHANGES {
            let error = change(node.replicated.as_ref()).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::PermissionDenied,
                "{name}: {error}"
            );
            assert!(ReplicatedDiskError::is_in(&error), "{name}");
            assert_eq!(replica(&node.disk).digest().unwrap(), before, "{name}");
        }
        // Reads are allowed and do not wait.
        let mut buf = [0; 1];
        let mut file = node.replicated.open(&dir().join("a")).unwrap();
        assert_eq!((file.read_at(&mut buf, 0).unwrap(), buf), (1, *b"1"));
        node.replicated.confirm(&dir()).unwrap();
        assert!(node.recording.is_quiet(&workspace()));
        assert_eq!(node.handed.try_iter().count(), 0);
        // Paths that are not replicated are unrestricted.
        let instance = dir().join("instances/i");
        for above in [dir().join("instances"), instance.clone()] {
            node.disk.create_dir(&above).unwrap();
        }
        node.replicated.create_dir(&instance.join("work")).unwrap();
        node.replicated
            .create(&instance.join("work/t"))
            .unwrap()
            .append(b"x")
            .unwrap();
        node.replicated.create(Path::new("/r/x")).unwrap();
    }
}

#[test]
fn handle_opened_before_disowning_never_writes_again() {
    let node = AcknowledgingNode::owning(ConfirmPoint::AtConfirm);
    let mut file = node.replicated.create(&dir().join("a")).unwrap();
    node.recording
        .disown(&workspace(), "node b has it".to_owned());
    assert!(file.append(b"1").is_err() && file.sync().is_err());
    // It was changed: that never gets to the log.
    assert!(node.replicated.confirm(&dir()).is_err());
    node.recording.own(&workspace());
    for error in [
        file.append(b"1").unwrap_err(),
        file.set_len(0).unwrap_err(),
        file.sync().unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
    assert_eq!(file.len().unwrap(), 0);
    node.replicated
        .open(&dir().join("a"))
        .unwrap()
        .append(b"2")
        .unwrap();
    node.replicated.sync_dir(&dir()).unwrap();
    // Earlier operations were dropped.
    let handed: Vec<LogBatch> = node.handed.try_iter().collect();
    assert_eq!(handed.len(), 1);
    assert!(matches!(&handed[0].content, BatchContent::Operations(made) if made.len() == 1));
}

/// A disk on which appends to one file wait until they are let go.
#[derive(Debug)]
struct GatedDisk {
    disk: SimulatedDisk,
    began: Sender<()>,
    go_on: Arc<Mutex<Receiver<()>>>,
}

#[derive(Debug)]
struct SlowFile {
    file: Box<dyn DiskFile>,
    began: Sender<()>,
    go_on: Arc<Mutex<Receiver<()>>>,
}

impl Disk for GatedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        if !path.ends_with("slow") {
            return Ok(file);
        }
        Ok(Box::new(SlowFile {
            file,
            began: self.began.clone(),
            go_on: Arc::clone(&self.go_on),
        }))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_read(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        self.disk.stat(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskEntry>> {
        self.disk.list(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.began.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        self.disk.remove_tree(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
}

impl DiskFile for SlowFile {
    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.began.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        self.file.append(buf)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn inode(&self) -> io::Result<u64> {
        self.file.inode()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// A node with a slow disk: the node, a signal when a slow call begins, and a sender to let it
/// continue.
fn slow_node() -> (AcknowledgingNode, Receiver<()>, Sender<()>) {
    let mut node = node(ConfirmPoint::AtConfirm);
    let (began, begins) = channel();
    let (goes_on, go_on) = channel();
    let slow: Arc<dyn Disk> = Arc::new(GatedDisk {
        disk: node.disk.clone(),
        began,
        go_on: Arc::new(Mutex::new(go_on)),
    });
    let recording = Arc::clone(&node.recording);
    node.replicated = Arc::new(ReplicatedDisk::new(
        slow,
        recording,
        ConfirmPoint::AtConfirm,
    ));
    node.recording.own(&workspace());
    node.replicated.create_dir(&dir()).unwrap();
    (node, begins, goes_on)
}

#[test]
fn a_workspace_does_not_hold_up_another() {
    let (node, begins, goes_on) = slow_node();
    let other = WorkspaceId::new("other").unwrap();
    node.recording.own(&other);
    let mut file = node.replicated.create(&dir().join("slow")).unwrap();
    let appending = std::thread::spawn(move || file.append(b"1").unwrap());
    begins.recv().unwrap();
    let other_dir = Path::new(WORKSPACES).join("other");
    node.replicated.create_dir(&other_dir).unwrap();
    node.replicated
        .create(&other_dir.join("a"))
        .unwrap()
        .append(b"2")
        .unwrap();
    node.recording.acknowledge(&workspace(), BatchId(1));
    goes_on.send(()).unwrap();
    assert_eq!(appending.join().unwrap(), 1);
}

#[test]
fn removal_blocks_no_writer_and_ends_before_the_release() {
    let (node, begins, goes_on) = slow_node();
    let trash = dir().join("trash");
    node.replicated.create_dir(&trash).unwrap();
    let disk = Arc::clone(&node.replicated);
    let removing = std::thread::spawn(move || disk.remove_tree(&trash).unwrap());
    begins.recv().unwrap();
    node.replicated
        .create(&dir().join("a"))
        .unwrap()
        .append(b"1")
        .unwrap();
    assert!(!node.recording.is_quiet(&workspace()));
    let recording = Arc::clone(&node.recording);
    let giving_up = std::thread::spawn(move || {
        recording.disown(&workspace(), "node b has it".to_owned());
    });
    goes_on.send(()).unwrap();
    giving_up.join().unwrap();
    let kept = node.disk.after_crash(Crash::ProcessOnly);
    assert!(kept.stat(&dir().join("trash")).unwrap().is_none());
    removing.join().unwrap();
}
