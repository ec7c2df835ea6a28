//! Goal: whatever an agent does to a path, a restore recovers the old state, or reports the
//! obstacle and changes nothing, and never blocks. Method: every file type replaces a file, a
//! directory and a link, and vice versa, on real files.

#![expect(clippy::disallowed_methods, reason = "creates files for tests")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use goondan_trees::{RealFolder, TreeError, remove_all};

use crate::world::{at, request};
use crate::{CheckpointError, CheckpointSelector, Store};

/// All pairs together take seconds; a restore that waits for the other end of a pipe never ends.
const ALL_PAIRS: Duration = Duration::from_mins(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathKind {
    Nothing,
    File,
    ClosedFile,
    HardLinks,
    Directory,
    ClosedDirectory,
    DeepDirectory,
    StrangeNames,
    DirectoryWithPipe,
    DirectoryWithSecret,
    Link,
    LinkToDirectory,
    LinkOutside,
    LinkToNothing,
    Pipe,
    Socket,
}

const KINDS: [PathKind; 16] = [
    PathKind::Nothing,
    PathKind::File,
    PathKind::ClosedFile,
    PathKind::HardLinks,
    PathKind::Directory,
    PathKind::ClosedDirectory,
    PathKind::DeepDirectory,
    PathKind::StrangeNames,
    PathKind::DirectoryWithPipe,
    PathKind::DirectoryWithSecret,
    PathKind::Link,
    PathKind::LinkToDirectory,
    PathKind::LinkOutside,
    PathKind::LinkToNothing,
    PathKind::Pipe,
    PathKind::Socket,
];

/// Depth of nested directories.
const DEPTH: usize = 20;

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

impl PathKind {
    fn make(self, it: &Path) {
        let closed = Permissions::from_mode(0o0);
        match self {
            Self::Nothing => {}
            Self::File => fs::write(it, "file").unwrap(),
            Self::ClosedFile => {
                fs::write(it, "closed").unwrap();
                fs::set_permissions(it, closed).unwrap();
            }
            Self::HardLinks => {
                fs::create_dir(it).unwrap();
                fs::write(it.join("one"), "both").unwrap();
                fs::hard_link(it.join("one"), it.join("two")).unwrap();
            }
            Self::Directory => {
                fs::create_dir_all(it.join("inner")).unwrap();
                fs::write(it.join("inner/file"), "inner").unwrap();
                fs::write(it.join("file"), "outer").unwrap();
            }
            Self::ClosedDirectory => {
                Self::Directory.make(it);
                fs::set_permissions(it.join("inner"), closed.clone()).unwrap();
                fs::set_permissions(it, closed).unwrap();
            }
            Self::DeepDirectory => {
                let deep: PathBuf = std::iter::repeat_n("d", DEPTH).collect();
                fs::create_dir_all(it.join(&deep)).unwrap();
                fs::write(it.join(deep).join("file"), "deep").unwrap();
            }
            Self::StrangeNames => {
                fs::create_dir(it).unwrap();
                let long = "n".repeat(255);
                let names: [&[u8]; 4] = [b"caf\xe9", b"new\nline", b"\x01\xff", long.as_bytes()];
                for name in names {
                    fs::write(it.join(OsStr::from_bytes(name)), name).unwrap();
                }
            }
            Self::DirectoryWithPipe => {
                Self::Directory.make(it);
                pipe(&it.join("inner/pipe"));
            }
            Self::DirectoryWithSecret => {
                Self::Directory.make(it);
                fs::write(it.join(".env"), "KEY=secret").unwrap();
            }
            Self::Link => symlink("beside/file", it).unwrap(),
            Self::LinkToDirectory => symlink("beside", it).unwrap(),
            Self::LinkOutside => symlink("/etc", it).unwrap(),
            Self::LinkToNothing => symlink("none", it).unwrap(),
            Self::Pipe => pipe(it),
            Self::Socket => drop(UnixListener::bind(it).unwrap()),
        }
    }

    /// True if a checkpoint stores it as a file or link.
    fn is_leaf(self) -> bool {
        matches!(
            self,
            Self::File
                | Self::ClosedFile
                | Self::Link
                | Self::LinkToDirectory
                | Self::LinkOutside
                | Self::LinkToNothing
        )
    }
}

/// Mode and content of every path except checkpoints; pipes, sockets and secrets only if requested.
fn tree(root: &Path, with_unheld: bool) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let is_unheld = kind.is_fifo() || kind.is_socket() || path.ends_with(".env");
            if path.ends_with(".checkpoints") || (is_unheld && !with_unheld) {
                continue;
            }
            let content = if kind.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else if kind.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if kind.is_dir() {
                directories.push(path.clone());
            }
            let mode = if kind.is_symlink() {
                0
            } else {
                meta.permissions().mode()
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (mode, content));
        }
    }
    found
}

fn open(root: &Path) -> Store {
    let folder = RealFolder::open(root).unwrap();
    Store::open(Box::new(folder), "task", "boot").unwrap().0
}

fn change(root: &Path, to: PathKind) {
    remove_all(&RealFolder::open(root).unwrap(), Path::new("it")).unwrap();
    to.make(&root.join("it"));
}

/// Makes a checkpoint of one kind, replaces it with another, restores it, and undoes the restore.
fn there_and_back(old: PathKind, new: PathKind) {
    let case = format!("{old:?}, then {new:?}");
    // In memory for speed, because durability is not tested here.
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = temp.path();
    fs::create_dir(root.join("beside")).unwrap();
    fs::write(root.join("beside/file"), "beside").unwrap();
    change(root, old);
    let made = open(root).make(&request("periodic"), at(0)).unwrap();
    let before = tree(root, false);
    change(root, new);
    let (meanwhile, all) = (tree(root, false), tree(root, true));
    let is_rehearsed = open(root)
        .restore(CheckpointSelector::Latest, true, at(1))
        .is_ok();
    assert_eq!(tree(root, true), all, "{case}");
    let restored = open(root).restore(CheckpointSelector::Latest, false, at(1));
    assert_eq!(is_rehearsed, restored.is_ok(), "{case}: {restored:?}");
    if new == PathKind::DirectoryWithSecret && old.is_leaf() {
        let error = restored.unwrap_err();
        assert!(
            matches!(error, CheckpointError::Blocked(_)),
            "{case}: {error}"
        );
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "`it/.env` is in the way; move it away", "{case}");
        assert_eq!(tree(root, true), all, "{case}");
        return;
    }
    let restored = restored.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(restored.used, made.checkpoint_id, "{case}");
    assert!(restored.kept.is_empty(), "{case}: {restored:?}");
    // A directory stays if it contains files that are in no checkpoint.
    let stays = matches!(
        new,
        PathKind::DirectoryWithPipe | PathKind::DirectoryWithSecret
    );
    if !stays {
        assert_eq!(tree(root, false), before, "{case}");
    }
    assert!(restored.differs.is_empty(), "{case}: {restored:?}");
    if let Some(pre_restore) = restored.pre_restore
        && old != PathKind::DirectoryWithSecret
    {
        let back = open(root).restore(CheckpointSelector::Id(pre_restore), false, at(2));
        back.unwrap_or_else(|error| panic!("{case}, back: {error}"));
        assert_eq!(tree(root, false), meanwhile, "{case}, back");
    }
}

#[test]
fn ckpt_4_every_kind_of_file_is_restored_over_any_other() {
    let (done, waiting) = channel();
    std::thread::spawn(move || {
        // A file, a directory and a link, each before and after every other kind.
        for one in [
            PathKind::File,
            PathKind::Directory,
            PathKind::LinkToDirectory,
        ] {
            for other in KINDS {
                there_and_back(one, other);
                if other != one {
                    there_and_back(other, one);
                }
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
fn ckpt_3_a_tree_too_deep_or_large_is_refused_by_name() {
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let deep: PathBuf = std::iter::repeat_n("d", 200).collect();
    fs::create_dir_all(temp.path().join(deep)).unwrap();
    let refused = open(temp.path()).make(&request("periodic"), at(0));
    let error = refused.unwrap_err();
    let CheckpointError::Tree(TreeError::Path(problem)) = &error else {
        panic!("{error}");
    };
    assert_eq!(problem.problem(), "the path is too deep");
}
