//! Goal: if the machine or the daemon stops at any point, an operation is complete or has no
//! effect, the run's log matches the files, and no user edit is lost. Method: every operation is
//! stopped, and disturbed by user edits, at every disk call.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use goondan_durable::disk::{Crash, Disk, DiskFile, Folder, NodeStat, append_all, read_all};
use goondan_protocol::control::{ProposalState, SandboxRef};
use goondan_protocol::time::Timestamp;
use goondan_trees::Manifest;

use crate::world::{PROJECT, SANDBOXES, SimulatedDiskFiles, World, apply, at};
use crate::{FileAccess, ProposalError, Sandboxes};

/// State after a stop and recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveredState {
    Old,
    New,
}

/// Stops the machine at every call of `work`, then once more during recovery.
fn stop_everywhere(base: &World, work: &dyn Fn(&World), judge: &dyn Fn(&World) -> RecoveredState) {
    let mut outcomes = [0, 0];
    for call in 1.. {
        let world = base.copy();
        world.disk().crash_at(world.disk().calls() + call);
        work(&world);
        let is_whole = !world.disk().is_down();
        let kinds = [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::ProcessOnly];
        let kinds = kinds
            .into_iter()
            .chain([Crash::Subset(call), Crash::Subset(call + 10_000)]);
        for crash in kinds {
            let disk = world.disk().after_crash(crash);
            disk.crash_at(1 + call * 7 % 60);
            let stopped = World(SimulatedDiskFiles(disk));
            drop(stopped.sandboxes().recover_all());
            let disk = stopped.disk().after_crash(Crash::Subset(call));
            let found = World(SimulatedDiskFiles(disk));
            let problems = found.sandboxes().recover_all();
            assert!(problems.is_empty(), "call {call}, {crash:?}: {problems:?}");
            let outcome = judge(&found);
            outcomes[usize::from(outcome == RecoveredState::New)] += 1;
            if is_whole {
                assert_eq!(outcome, RecoveredState::New, "acknowledged work is done");
            }
        }
        if is_whole {
            assert!(
                call > 30 && outcomes.iter().all(|count| *count > 2),
                "{call} {outcomes:?}"
            );
            return;
        }
    }
}

#[test]
fn box_1_preparation_stopped_at_any_call_makes_sandbox_or_none() {
    let base = World::new();
    stop_everywhere(&base, &|world| drop(world.prepared(&["src"])), &|world| {
        let listed = world.listed();
        if listed.is_empty() {
            world.prepared(&["src"]).unwrap();
            return RecoveredState::Old;
        }
        let detail = world.sandboxes().show_sandbox(&at()).unwrap();
        assert_eq!(detail.given.len(), 3);
        assert_eq!(world.tree("/state/sandboxes/r1/coder/work").len(), 5);
        world.work();
        world.created().unwrap();
        world.applied().unwrap();
        RecoveredState::New
    });
}

#[test]
fn prop_1_creation_stopped_at_any_call_makes_proposal_or_none() {
    stop_everywhere(
        &World::with_work(),
        &|world| drop(world.created()),
        &|world| match world.sandboxes().show(&at()) {
            Err(ProposalError::NoProposal { .. }) => {
                world.created().unwrap();
                RecoveredState::Old
            }
            other => {
                assert_eq!(other.unwrap().files.len(), 3);
                let review = world.sandboxes().check(&at()).unwrap();
                assert!(review.can_apply, "{:?}", review.refusals);
                world.applied().unwrap();
                RecoveredState::New
            }
        },
    );
}

#[test]
fn prop_4_merge_stopped_at_any_call_makes_new_proposal_or_none() {
    let base = World::with_stale_proposal();
    let old = base.tree(PROJECT);
    let merged = SandboxRef {
        agent_id: "coder-merged".parse().unwrap(),
        ..at()
    };
    stop_everywhere(&base, &|world| drop(world.merged()), &|world| {
        assert_eq!(world.tree(PROJECT), old);
        let state = world.sandboxes().show(&at()).unwrap().info.state;
        assert_eq!(state, ProposalState::Open, "the old one stays");
        let listed = world.listed();
        let proposals = world.handed_in();
        assert_eq!(
            listed.len(),
            proposals.len(),
            "no sandbox is without its proposal"
        );
        let outcome = if listed.len() == 1 {
            world.merged().unwrap().proposal.unwrap();
            RecoveredState::Old
        } else {
            RecoveredState::New
        };
        let detail = world.sandboxes().show(&merged).unwrap();
        assert_eq!(detail.files.len(), 4);
        let mut request = apply();
        request.at = merged.clone();
        world.sandboxes().apply(&request).unwrap();
        let long = world.read(PROJECT, "src/long.txt").unwrap();
        assert_eq!(long, "one\n2\n3\n4\nfive\n");
        outcome
    });
}

/// Checks that the log matches the files.
fn judge(world: &World, old: &Manifest, new: &Manifest, after: ProposalState) -> RecoveredState {
    let state = world.sandboxes().show(&at()).unwrap().info.state;
    let tree = world.tree(PROJECT);
    if state == after {
        assert_eq!(tree, *new);
        RecoveredState::New
    } else {
        assert_eq!(tree, *old);
        RecoveredState::Old
    }
}

#[test]
fn prop_3_apply_stopped_at_any_call_is_all_old_or_all_new() {
    let base = World::with_proposal();
    let old = base.tree(PROJECT);
    let done = base.copy();
    done.applied().unwrap();
    let new = done.tree(PROJECT);
    stop_everywhere(&base, &|world| drop(world.applied()), &|world| {
        let outcome = judge(world, &old, &new, ProposalState::Applied);
        if outcome == RecoveredState::Old {
            world.applied().unwrap();
            assert_eq!(world.tree(PROJECT), new);
        }
        outcome
    });
}

#[test]
fn prop_3_revert_stopped_at_any_call_is_all_new_or_all_old() {
    let base = World::with_proposal();
    let old = base.tree(PROJECT);
    base.applied().unwrap();
    let new = base.tree(PROJECT);
    stop_everywhere(
        &base,
        &|world| drop(world.sandboxes().revert(&at())),
        &|world| {
            let outcome = judge(world, &new, &old, ProposalState::Reverted);
            if outcome == RecoveredState::Old {
                world.sandboxes().revert(&at()).unwrap();
                assert_eq!(world.tree(PROJECT), old);
            }
            outcome
        },
    );
}

const WORDS: &str = "what a person wrote";

/// Files in which a user edits one file before a given call on the project.
#[derive(Debug)]
struct ConcurrentEditFiles {
    files: SimulatedDiskFiles,
    calls: std::sync::Arc<AtomicU64>,
    edit: std::sync::Arc<Edit>,
}

#[derive(Debug)]
struct Edit {
    at: u64,
    path: &'static str,
    /// Previous content of the path, after the edit.
    made: Mutex<Option<Option<Vec<u8>>>>,
}

impl Edit {
    fn make(&self, project: &dyn Folder) {
        let path = Path::new(self.path);
        let before = project
            .read(path)
            .ok()
            .map(|mut file| read_all(file.as_mut(), 1 << 20).unwrap());
        let new = Path::new(".person");
        let mut file = project.create(new, 0o644).unwrap();
        append_all(file.as_mut(), WORDS.as_bytes()).unwrap();
        if project.rename_new(new, path).is_err() {
            project.exchange(new, path).unwrap();
            project.remove(new).unwrap();
        }
        *self.made.lock().unwrap() = Some(before);
    }
}

impl FileAccess for ConcurrentEditFiles {
    fn disk(&self) -> &dyn Disk {
        self.files.disk()
    }

    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        let inner = self.files.folder(path)?;
        if path != Path::new(PROJECT) {
            return Ok(inner);
        }
        Ok(Box::new(ConcurrentEditFolder {
            inner,
            person: self.files.folder(path)?,
            calls: self.calls.clone(),
            edit: self.edit.clone(),
        }))
    }
}

#[derive(Debug)]
struct ConcurrentEditFolder {
    inner: Box<dyn Folder>,
    person: Box<dyn Folder>,
    calls: std::sync::Arc<AtomicU64>,
    edit: std::sync::Arc<Edit>,
}

impl ConcurrentEditFolder {
    fn call(&self) -> &dyn Folder {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.edit.at {
            self.edit.make(self.person.as_ref());
        }
        self.inner.as_ref()
    }
}

impl Folder for ConcurrentEditFolder {
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>> {
        self.call().look(path)
    }
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.call().names(path)
    }
    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call().read(path)
    }
    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        self.call().read_link(path)
    }
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.call().create(path, mode)
    }
    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.call().create_link(path, target)
    }
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call().create_dir(path, mode)
    }
    fn set_dir_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.call().set_dir_mode(path, mode)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call().rename_new(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.call().exchange(one, other)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call().remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call().remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call().sync_dir(path)
    }
    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        self.call().below(path)
    }
}

/// Edits a file as a user at every point of `work`, and checks that the edit is kept.
fn meddle_everywhere(base: &World, path: &'static str, work: &dyn Fn(&mut Sandboxes<'_>) -> bool) {
    let (mut refused, mut done) = (0, 0);
    for call in 1.. {
        let world = base.copy();
        let edit = std::sync::Arc::new(Edit {
            at: call,
            path,
            made: Mutex::new(None),
        });
        let files = ConcurrentEditFiles {
            files: world.0.clone(),
            calls: std::sync::Arc::default(),
            edit: edit.clone(),
        };
        let now = Timestamp::from_unix_millis(1_700_000_000_001);
        let is_done = work(&mut Sandboxes::new(&files, SANDBOXES, PROJECT, now));
        if edit.made.lock().unwrap().is_none() {
            assert!(
                refused > 10 && done > 0,
                "{path}: {refused} refused, {done} done"
            );
            return;
        }
        // The edit is at its path, or moved aside and reported.
        let is_there = world.read(PROJECT, path).as_deref() == Some(WORDS);
        let history = world.sandboxes().show(&at()).unwrap().history;
        let is_told = history.iter().any(|event| {
            event.detail.contains("a person's changes")
                && event.detail.contains("/project/.goondan-swap/")
        });
        assert!(is_there || is_told, "call {call} on {path}: {history:?}");
        let state = world.sandboxes().show(&at()).unwrap().info.state;
        let is_new = world
            .read(PROJECT, "src/b.rs")
            .is_some_and(|text| text.contains("by coder"));
        assert_eq!(
            state == ProposalState::Applied,
            is_new,
            "call {call} on {path}"
        );
        if is_done {
            done += 1;
        } else {
            refused += 1;
        }
    }
}

#[test]
fn prop_3_concurrent_user_writes_survive_apply_at_any_moment() {
    let base = World::with_work();
    base.write(crate::world::WORK, "src/b.rs", "by coder\n");
    base.created().unwrap();
    for path in ["src/a.rs", "src/new.rs", "src/deep/c.rs"] {
        meddle_everywhere(&base, path, &|sandboxes| sandboxes.apply(&apply()).is_ok());
    }
}

#[test]
fn prop_3_concurrent_user_writes_survive_revert_at_any_moment() {
    let base = World::with_work();
    base.write(crate::world::WORK, "src/b.rs", "by coder\n");
    base.created().unwrap();
    base.applied().unwrap();
    for path in ["src/a.rs", "src/new.rs", "src/deep/c.rs"] {
        meddle_everywhere(&base, path, &|sandboxes| sandboxes.revert(&at()).is_ok());
    }
}
