//! A work area on a simulated disk, for tests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use goondan_durable::disk::{
    Crash, Disk as _, Folder, NodeKind, SimulatedDisk, append_all, read_all,
};
use goondan_protocol::time::Timestamp;
use goondan_trees::remove_all;

use crate::{
    AgentState, CheckpointError, CheckpointReceipt, CheckpointSelector, Consistency,
    MakeCheckpoint, RestoreResult, Store,
};

pub(crate) const ROOT: &str = "/task";

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_707_991_200_000 + seconds * 1000)
}

/// Kind, mode, and content or target of each path.
pub(crate) type WorldNodes = BTreeMap<String, (char, u32, Vec<u8>)>;

pub(crate) fn request(kind: &str) -> MakeCheckpoint<'_> {
    MakeCheckpoint {
        kind,
        phase: 1,
        progress: 35,
        agent_state: AgentState {
            status: "running".to_owned(),
            current_step: Some("Creating persona document".to_owned()),
        },
        tokens_used: 12500,
        consistency: Consistency::Stopped,
        name: None,
        pinned: None,
    }
}

/// A machine with a work area, and the number of its boots.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) disk: SimulatedDisk,
    boot: u64,
}

impl World {
    pub(crate) fn empty() -> Self {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new(ROOT)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        Self { disk, boot: 1 }
    }

    /// A work area with all special cases.
    pub(crate) fn new() -> Self {
        let world = Self::empty();
        for (path, content) in [
            ("docs/planning/01_idea.md", "an idea\n"),
            ("docs/planning/02_market.md", "a market\n"),
            ("src/main.rs", "fn main() {}\n"),
            ("src/empty", ""),
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/hooks/pre-commit", "#!/bin/sh\n"),
            ("README.md", "read me\n"),
            ("readme.md", "in another case\n"),
            (".metadata/history.jsonl", "one\n"),
            (".logs/agent.log", "log\n"),
            (".cache/prompt-cache/x", "cache\n"),
            (".env", "KEY=secret\n"),
        ] {
            world.write(path, content);
        }
        let folder = world.folder();
        for (path, target) in [
            ("guide", "/guides/create_app"),
            ("src/link", "main.rs"),
            ("src/up", "../../elsewhere"),
        ] {
            folder
                .create_link(Path::new(path), Path::new(target))
                .unwrap();
        }
        folder.create_dir(Path::new("tests"), 0o755).unwrap();
        let mut file = folder.create(Path::new("src/run"), 0o775).unwrap();
        append_all(file.as_mut(), b"#!/bin/sh\n").unwrap();
        file.sync().unwrap();
        folder.set_dir_mode(Path::new("docs"), 0o555).unwrap();
        for dir in ["", "src", "docs"] {
            folder.sync_dir(Path::new(dir)).unwrap();
        }
        world
    }

    pub(crate) fn folder(&self) -> Box<dyn Folder> {
        self.disk.folder(Path::new(ROOT))
    }

    pub(crate) fn copy(&self) -> Self {
        Self {
            disk: self.disk.after_crash(Crash::ProcessOnly),
            boot: self.boot,
        }
    }

    /// The machine after a crash.
    pub(crate) fn after(&self, crash: Crash) -> Self {
        let is_new_start = crash != Crash::ProcessOnly;
        Self {
            disk: self.disk.after_crash(crash),
            boot: self.boot + u64::from(is_new_start),
        }
    }

    pub(crate) fn open(&self) -> Result<Store, CheckpointError> {
        let boot = self.boot.to_string();
        Store::open(self.folder(), "task_20240215_abc123", boot).map(|(store, _)| store)
    }

    pub(crate) fn store(&self) -> Store {
        self.open().unwrap()
    }

    pub(crate) fn make(&self, kind: &str) -> Result<CheckpointReceipt, CheckpointError> {
        self.open()?.make(&request(kind), at(0))
    }

    pub(crate) fn restore(&self, id: &str) -> Result<RestoreResult, CheckpointError> {
        let which = if id == "latest" {
            CheckpointSelector::Latest
        } else {
            CheckpointSelector::Id(id.parse()?)
        };
        self.open()?.restore(which, false, at(1))
    }

    /// Writes a file durably.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let folder = self.folder();
        let path = Path::new(path);
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for dir in above.iter().skip(1) {
            if folder.look(dir).unwrap().is_none() {
                folder.create_dir(dir, 0o755).unwrap();
                folder.sync_dir(dir.parent().unwrap()).unwrap();
            }
        }
        remove_all(folder.as_ref(), path).unwrap();
        let mut file = folder.create(path, 0o644).unwrap();
        append_all(file.as_mut(), content.as_ref()).unwrap();
        file.sync().unwrap();
        folder.sync_dir(path.parent().unwrap()).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let (folder, path) = (self.folder(), Path::new(path));
        remove_all(folder.as_ref(), path).unwrap();
        folder.sync_dir(path.parent().unwrap()).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut file = self.folder().read(Path::new(path)).ok()?;
        Some(read_all(file.as_mut(), 1 << 28).unwrap())
    }

    /// Changes the bytes of a file in place.
    pub(crate) fn damage(&self, path: &str, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.read(path).unwrap();
        damage(&mut content);
        self.write(path, content);
    }

    /// All entries of the work area except `.checkpoints`.
    pub(crate) fn nodes(&self) -> WorldNodes {
        let folder = self.folder();
        let mut nodes = WorldNodes::new();
        let mut rest = vec![std::path::PathBuf::new()];
        while let Some(dir) = rest.pop() {
            for name in folder.names(&dir).unwrap() {
                let path = dir.join(name);
                if path == Path::new(".checkpoints") {
                    continue;
                }
                let stat = folder.look(&path).unwrap().unwrap();
                let node = match stat.kind {
                    NodeKind::Directory => {
                        rest.push(path.clone());
                        ('d', stat.mode, Vec::new())
                    }
                    NodeKind::Link => {
                        let target = folder.read_link(&path).unwrap();
                        ('l', 0, OsStr::as_bytes(&target).to_vec())
                    }
                    _ => {
                        let mut file = folder.read(&path).unwrap();
                        let content = read_all(file.as_mut(), 1 << 28).unwrap();
                        ('f', stat.mode, content)
                    }
                };
                nodes.insert(path.display().to_string(), node);
            }
        }
        nodes
    }

    /// All entries that a restore can change.
    pub(crate) fn restorable(&self) -> WorldNodes {
        let mut nodes = self.nodes();
        let is_other = |path: &str| {
            [".metadata", ".logs", ".cache"]
                .iter()
                .any(|dir| path.starts_with(dir))
                || path.ends_with(".env")
        };
        nodes.retain(|path, _| !is_other(path));
        nodes
    }
}
