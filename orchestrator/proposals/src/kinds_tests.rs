//! Goal: a proposal that passes the check can be applied and reverted; otherwise it fails with a
//! reason and changes nothing, whatever a worker or a user did to a path; and no operation blocks.
//! Method: every kind of change on either side, on real files.

#![expect(clippy::disallowed_methods, reason = "creates files for tests")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use goondan_protocol::control::{CreateProposal, RefusalKind};
use goondan_protocol::time::Timestamp;

use crate::world::{apply, at, create, prepare};
use crate::{NoGit, ProposalError, RealFiles, Sandboxes};

const ALL_PAIRS: Duration = Duration::from_mins(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathMutation {
    File,
    ClosedFile,
    HardLink,
    Directory,
    Link,
    LinkToDirectory,
    LinkToNothing,
    Pipe,
    Socket,
    Nothing,
}

type Edit = (&'static str, PathMutation);

const BY_WORKER: [Edit; 18] = [
    ("src/a.rs", PathMutation::File),
    ("src/a.rs", PathMutation::ClosedFile),
    ("src/a.rs", PathMutation::HardLink),
    ("src/a.rs", PathMutation::Directory),
    ("src/a.rs", PathMutation::Link),
    ("src/a.rs", PathMutation::LinkToNothing),
    ("src/a.rs", PathMutation::Pipe),
    ("src/a.rs", PathMutation::Socket),
    ("src/a.rs", PathMutation::Nothing),
    ("src", PathMutation::File),
    ("src", PathMutation::Link),
    ("src", PathMutation::LinkToDirectory),
    ("src", PathMutation::Pipe),
    ("src", PathMutation::Nothing),
    ("src/new.rs", PathMutation::File),
    ("src/new.rs", PathMutation::Directory),
    ("src/new/er", PathMutation::File),
    ("src/inner", PathMutation::File),
];

const BY_PERSON: [Edit; 15] = [
    ("unrelated", PathMutation::File),
    ("src/a.rs", PathMutation::File),
    ("src/a.rs", PathMutation::Link),
    ("src/a.rs", PathMutation::Directory),
    ("src/a.rs", PathMutation::Pipe),
    ("src/new.rs", PathMutation::Pipe),
    ("src/new.rs", PathMutation::Directory),
    ("src/new", PathMutation::Socket),
    ("src/inner/kept", PathMutation::File),
    ("src/inner/pipe", PathMutation::Pipe),
    ("src", PathMutation::File),
    ("src", PathMutation::LinkToDirectory),
    ("src", PathMutation::Pipe),
    ("src", PathMutation::Nothing),
    ("src/inner", PathMutation::LinkToDirectory),
];

impl PathMutation {
    fn make(self, root: &Path, path: &str) {
        let it = root.join(path);
        match fs::symlink_metadata(&it) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&it).unwrap(),
            Ok(_) => fs::remove_file(&it).unwrap(),
            Err(_) => {}
        }
        fs::create_dir_all(it.parent().unwrap()).unwrap();
        match self {
            Self::File => fs::write(&it, "another\n").unwrap(),
            Self::ClosedFile => {
                fs::write(&it, "closed\n").unwrap();
                fs::set_permissions(&it, Permissions::from_mode(0o0)).unwrap();
            }
            Self::HardLink => fs::hard_link(root.join("src/b.rs"), &it).unwrap(),
            Self::Directory => {
                fs::create_dir(&it).unwrap();
                fs::write(it.join("file"), "in it\n").unwrap();
            }
            Self::Link => symlink("b.rs", &it).unwrap(),
            Self::LinkToDirectory => symlink("lib", &it).unwrap(),
            Self::LinkToNothing => symlink("none", &it).unwrap(),
            Self::Pipe => assert!(Command::new("mkfifo").arg(&it).status().unwrap().success()),
            Self::Socket => drop(UnixListener::bind(&it).unwrap()),
            Self::Nothing => {}
        }
    }
}

/// Mode, kind and content of every path.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if meta.is_dir() {
                directories.push(path.clone());
            }
            let path = path.strip_prefix(root).unwrap().to_owned();
            found.insert(path, (meta.permissions().mode(), content));
        }
    }
    found
}

/// True for a refusal with reasons. A file system error does not count.
fn is_reasoned(error: &ProposalError) -> bool {
    match error {
        ProposalError::Refused { refusals, .. } => {
            !refusals.is_empty() && refusals.iter().all(|refusal| !refusal.reason.is_empty())
        }
        _ => false,
    }
}

struct World {
    temp: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        // In memory for speed, because durability is not tested here.
        let temp = tempfile::tempdir_in("/dev/shm").unwrap();
        let project = temp.path().join("project");
        fs::create_dir_all(project.join("src/inner")).unwrap();
        fs::create_dir_all(project.join("lib")).unwrap();
        fs::create_dir(temp.path().join("sandboxes")).unwrap();
        for file in ["src/a.rs", "src/b.rs", "src/inner/c.rs", "lib/d.rs"] {
            fs::write(project.join(file), format!("{file}\n")).unwrap();
        }
        Self { temp }
    }

    fn project(&self) -> PathBuf {
        self.temp.path().join("project")
    }

    fn work(&self) -> PathBuf {
        self.temp.path().join("sandboxes/r1/coder/work")
    }

    fn sandboxes(&self) -> Sandboxes<'_> {
        let now = Timestamp::from_unix_millis(1_700_000_000_000);
        let dir = self.temp.path().join("sandboxes");
        Sandboxes::new(&RealFiles, dir, self.project(), now)
    }
}

fn hand_in_and_apply((path, to): Edit, (other, made): Edit) {
    let case = format!("{path} to {to:?}, {other} to {made:?}");
    let world = World::new();
    world.sandboxes().prepare(&prepare(&["src"])).unwrap();
    to.make(&world.work(), path);
    let request: CreateProposal = create();
    if let Err(error) = world.sandboxes().create(&request, &NoGit) {
        panic!("{case}: {error}");
    }
    made.make(&world.project(), other);
    let before = tree(&world.project());
    let review = world.sandboxes().check(&at());
    let review = review.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(tree(&world.project()), before, "{case}");
    let applied = world.sandboxes().apply(&apply());
    assert_eq!(
        review.can_apply,
        applied.is_ok(),
        "{case}: {review:?} {applied:?}"
    );
    if let Err(error) = applied {
        assert!(is_reasoned(&error), "{case}: {error}");
        assert_eq!(tree(&world.project()), before, "{case}");
        let kinds: Vec<RefusalKind> = review.refusals.iter().map(|refusal| refusal.kind).collect();
        if made == PathMutation::Pipe && (path.starts_with(other) || other.starts_with(path)) {
            assert!(kinds.contains(&RefusalKind::Blocked), "{case}: {kinds:?}");
        }
    } else {
        let after = tree(&world.project());
        assert_ne!(after, before, "{case}");
        world
            .sandboxes()
            .revert(&at())
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(tree(&world.project()), before, "{case}");
    }
    let (_, problems) = world.sandboxes().verify().unwrap();
    assert!(
        problems.findings.is_empty(),
        "{case}: {:?}",
        problems.findings
    );
    let removed = world.sandboxes().remove(&at(), true);
    removed.unwrap_or_else(|error| panic!("{case}: {error}"));
}

#[test]
fn prop_3_checked_proposal_can_be_applied_over_any_file_kind() {
    let (done, waiting) = channel();
    std::thread::spawn(move || {
        for by_worker in BY_WORKER {
            for by_person in BY_PERSON {
                hand_in_and_apply(by_worker, by_person);
            }
        }
        done.send(()).unwrap();
    });
    assert!(
        waiting.recv_timeout(ALL_PAIRS).is_ok(),
        "it failed or waits"
    );
}

#[test]
fn prop_3_revert_over_changed_files_changes_nothing() {
    for (other, made) in BY_PERSON {
        let world = World::new();
        world.sandboxes().prepare(&prepare(&["src"])).unwrap();
        PathMutation::Link.make(&world.work(), "src");
        world.sandboxes().create(&create(), &NoGit).unwrap();
        world.sandboxes().apply(&apply()).unwrap();
        if other.starts_with("src/") {
            continue;
        }
        made.make(&world.project(), other);
        let before = tree(&world.project());
        match world.sandboxes().revert(&at()) {
            Ok(_) => assert_eq!(other, "unrelated"),
            Err(error) => {
                assert!(is_reasoned(&error), "{other} to {made:?}: {error}");
                assert_eq!(tree(&world.project()), before, "{other} to {made:?}");
            }
        }
    }
}
