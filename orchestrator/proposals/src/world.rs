//! A project, a worker and a user on a simulated disk.

use std::io;
use std::path::Path;

use goondan_durable::disk::{Crash, Disk, Folder, SimulatedDisk, append_all, read_all};
use goondan_protocol::control::{
    ApplyProposal, CreateProposal, ListProposals, ListSandboxes, MergeProposal, PrepareSandbox,
    ProposalApplied, ProposalDetail, ProposalInfo, ProposalMerged, SandboxDetail, SandboxInfo,
    SandboxRef,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use goondan_trees::freeze::{EntryPolicy, Options, scan};
use goondan_trees::limits::Limits;
use goondan_trees::{Excludes, Manifest, remove_all};

use crate::{FileAccess, NoGit, ProposalError, Sandboxes};

pub(crate) const PROJECT: &str = "/project";
pub(crate) const SANDBOXES: &str = "/state/sandboxes";
pub(crate) const WORK: &str = "/state/sandboxes/r1/coder/work";
pub(crate) const PROPOSAL: &str = "/state/sandboxes/r1/coder/proposal";

#[derive(Debug, Clone)]
pub(crate) struct SimulatedDiskFiles(pub(crate) SimulatedDisk);

impl FileAccess for SimulatedDiskFiles {
    fn disk(&self) -> &dyn Disk {
        &self.0
    }

    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        Ok(self.0.folder(path))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct World(pub(crate) SimulatedDiskFiles);

pub(crate) fn at() -> SandboxRef {
    SandboxRef {
        run_id: "r1".parse().unwrap(),
        agent_id: "coder".parse().unwrap(),
    }
}

pub(crate) fn workspace() -> WorkspaceId {
    "w-1".parse().unwrap()
}

pub(crate) fn prepare(files: &[&str]) -> PrepareSandbox {
    PrepareSandbox {
        workspace_id: workspace(),
        at: at(),
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        allow: Vec::new(),
        exclude: Vec::new(),
        may_create: Vec::new(),
    }
}

pub(crate) fn create() -> CreateProposal {
    CreateProposal {
        workspace_id: workspace(),
        at: at(),
        notes: "by coder".to_owned(),
        summary: None,
        test_log: None,
    }
}

pub(crate) fn apply() -> ApplyProposal {
    ApplyProposal {
        workspace_id: workspace(),
        at: at(),
        digest: None,
        allow_moved_base: false,
    }
}

impl World {
    /// A small project without a repository.
    pub(crate) fn new() -> Self {
        let disk = SimulatedDisk::new();
        for name in ["/project", "/state", SANDBOXES] {
            disk.create_dir(Path::new(name)).unwrap();
            disk.sync_dir(Path::new(name).parent().unwrap()).unwrap();
        }
        let world = Self(SimulatedDiskFiles(disk));
        for (path, content) in [
            ("src/a.rs", "fn a() {}\n"),
            ("src/b.rs", "fn b() {}\n"),
            ("src/deep/c.rs", "c"),
            ("README.md", "read me\n"),
            (".env", "KEY=secret\n"),
            ("node_modules/x/index.js", "x"),
            ("dist/out.js", "out"),
        ] {
            world.write(PROJECT, path, content);
        }
        world
    }

    /// A project with a worker's sandbox that edits, adds and deletes files.
    pub(crate) fn with_work() -> Self {
        let world = Self::new();
        world.sandboxes().prepare(&prepare(&["src"])).unwrap();
        world.work();
        world
    }

    /// Makes the worker's changes.
    pub(crate) fn work(&self) {
        self.write(WORK, "src/a.rs", "fn a() { 1 }\n");
        self.write(WORK, "src/new.rs", "new\n");
        self.remove(WORK, "src/deep/c.rs");
    }

    /// A project with a submitted proposal.
    pub(crate) fn with_proposal() -> Self {
        let world = Self::with_work();
        world.sandboxes().create(&create(), &NoGit).unwrap();
        world
    }

    /// A separate copy of the disk.
    pub(crate) fn copy(&self) -> Self {
        Self(SimulatedDiskFiles(
            self.disk().after_crash(Crash::ProcessOnly),
        ))
    }

    pub(crate) fn disk(&self) -> &SimulatedDisk {
        &self.0.0
    }

    pub(crate) fn sandboxes(&self) -> Sandboxes<'_> {
        let now = Timestamp::from_unix_millis(1_700_000_000_000);
        Sandboxes::new(&self.0, SANDBOXES, PROJECT, now)
    }

    /// All sandboxes, read in pages of one.
    pub(crate) fn listed(&self) -> Vec<SandboxInfo> {
        let mut list = ListSandboxes {
            workspace_id: workspace(),
            run_id: None,
            after: None,
            limit: Some(1),
        };
        let mut listed = Vec::new();
        loop {
            let page = self.sandboxes().list(&list).unwrap();
            listed.extend(page.sandboxes);
            list.after = page.next;
            if list.after.is_none() {
                return listed;
            }
        }
    }

    /// All proposals, read in pages of two.
    pub(crate) fn handed_in(&self) -> Vec<ProposalInfo> {
        let mut list = ListProposals {
            workspace_id: workspace(),
            run_id: None,
            after: None,
            limit: Some(2),
        };
        let mut listed = Vec::new();
        loop {
            let page = self.sandboxes().list_proposals(&list).unwrap();
            listed.extend(page.proposals);
            list.after = page.next;
            if list.after.is_none() {
                return listed;
            }
        }
    }

    /// Writes a whole file durably, as a user.
    pub(crate) fn write(&self, root: &str, path: &str, content: &str) {
        let folder = self.disk().folder(Path::new(root));
        let path = Path::new(path);
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for dir in above {
            if folder.look(dir).unwrap().is_none() {
                folder.create_dir(dir, 0o755).unwrap();
                folder.sync_dir(dir.parent().unwrap()).unwrap();
            }
        }
        remove_all(folder.as_ref(), path).unwrap();
        let mut file = folder.create(path, 0o644).unwrap();
        append_all(file.as_mut(), content.as_bytes()).unwrap();
        file.sync().unwrap();
        folder.sync_dir(path.parent().unwrap()).unwrap();
    }

    pub(crate) fn remove(&self, root: &str, path: &str) {
        let folder = self.disk().folder(Path::new(root));
        folder.remove(Path::new(path)).unwrap();
        folder.sync_dir(Path::new(path).parent().unwrap()).unwrap();
    }

    pub(crate) fn read(&self, root: &str, path: &str) -> Option<String> {
        let folder = self.disk().folder(Path::new(root));
        let mut file = folder.read(Path::new(path)).ok()?;
        let bytes = read_all(file.as_mut(), 1 << 24).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    /// All entries of a directory.
    pub(crate) fn tree(&self, root: &str) -> Manifest {
        let folder = self.disk().folder(Path::new(root));
        let options = Options {
            excludes: Excludes::new::<&str>(&[]).unwrap(),
            outside_links: EntryPolicy::Keep,
            special: EntryPolicy::Refuse,
            limits: Limits::default(),
        };
        scan(folder.as_ref(), &options).unwrap().manifest
    }

    pub(crate) fn prepared(&self, files: &[&str]) -> Result<SandboxDetail, ProposalError> {
        self.sandboxes().prepare(&prepare(files))
    }

    pub(crate) fn created(&self) -> Result<ProposalDetail, ProposalError> {
        self.sandboxes().create(&create(), &NoGit)
    }

    pub(crate) fn merged(&self) -> Result<ProposalMerged, ProposalError> {
        let request = MergeProposal {
            workspace_id: workspace(),
            at: at(),
            into: None,
        };
        self.sandboxes().merge(&request, &NoGit)
    }

    /// A proposal that became stale by a user's edits and can be merged with them.
    pub(crate) fn with_stale_proposal() -> Self {
        let world = Self::new();
        world.write(PROJECT, "src/long.txt", "1\n2\n3\n4\n5\n");
        world.sandboxes().prepare(&prepare(&["src"])).unwrap();
        world.work();
        world.write(WORK, "src/long.txt", "one\n2\n3\n4\n5\n");
        world.created().unwrap();
        world.write(PROJECT, "src/long.txt", "1\n2\n3\n4\nfive\n");
        world.write(PROJECT, "src/b.rs", "a person's\n");
        world
    }

    pub(crate) fn applied(&self) -> Result<ProposalApplied, ProposalError> {
        self.sandboxes().apply(&apply())
    }
}

/// Path and kind of each refusal.
pub(crate) fn refusals<T: std::fmt::Debug>(
    result: Result<T, ProposalError>,
) -> Vec<(Option<String>, goondan_protocol::control::RefusalKind)> {
    match result.unwrap_err() {
        ProposalError::Refused { refusals, .. } => refusals
            .into_iter()
            .map(|refusal| (refusal.path, refusal.kind))
            .collect(),
        other => panic!("{other}"),
    }
}
