//! Goal: all old or all new at any crash point, and no user data lost at any time of a write.
//! Method: one swap with every kind of change, with a crash or a concurrent edit at every call.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use goondan_durable::disk::{
    CallFault, Crash, Disk as _, DiskFile, Folder, NodeStat, SimulatedDisk, append_all,
};

use super::{Specials, SwapError, SwapRecovery, SwapSite, plan, recover, revert, swap};
use crate::RealFolder;
use crate::changes::changes;
use crate::freeze::{EntryPolicy, Options, TreeSnapshot, scan};
use crate::fresh::remove_all;
use crate::manifest::Manifest;
use crate::path::{Names, RelativePath};
use crate::random_trees::{RandomNode, RandomNodes, everything, mutated, nodes, read, write};

fn path(text: &str) -> RelativePath {
    RelativePath::new(text.as_bytes()).unwrap()
}

fn file(content: &str) -> RandomNode {
    let content = content.as_bytes().to_vec();
    RandomNode::File {
        mode: 0o644,
        content,
    }
}

fn tree(nodes: &[(&str, RandomNode)]) -> RandomNodes {
    nodes
        .iter()
        .map(|(name, node)| (path(name), node.clone()))
        .collect()
}

fn before() -> RandomNodes {
    tree(&[
        ("kept", file("kept")),
        ("edited", file("old text")),
        ("gone", file("goes")),
        ("dir/gone-too", file("goes too")),
        ("becomes-dir", file("a file")),
        ("becomes-file/x", file("x")),
        ("link", RandomNode::Link(b"kept".to_vec())),
        ("file-to-link", file("f")),
        ("dir-to-link/x", file("x")),
        ("link-to-dir", RandomNode::Link(b"dir".to_vec())),
    ])
}

fn after() -> RandomNodes {
    tree(&[
        ("kept", file("kept")),
        ("edited", file("new text")),
        ("added", file("added")),
        ("becomes-dir/y", file("y")),
        ("becomes-file", file("now a file")),
        ("deep/er/file", file("deep")),
        ("link", RandomNode::Link(b"edited".to_vec())),
        ("file-to-link", RandomNode::Link(b"added".to_vec())),
        ("dir-to-link", RandomNode::Link(b"deep".to_vec())),
        ("link-to-dir/gone-too", file("not in dir")),
    ])
}

/// Pipes in the way: of a file, of a directory, and in a directory replaced by a file.
const PIPES: [&str; 3] = ["added", "becomes-file/pipe", "deep"];

struct World {
    disk: SimulatedDisk,
    old: Manifest,
    new: Manifest,
}

const STAGING: &str = ".goondan-swap";

impl World {
    fn new(before: &RandomNodes, after: &RandomNodes) -> Self {
        let disk = SimulatedDisk::new();
        for name in ["/root", "/new", "/journal", "/back"] {
            disk.create_dir(Path::new(name)).unwrap();
        }
        disk.sync_dir(Path::new("/")).unwrap();
        let old = write(disk.folder(Path::new("/root")).as_ref(), before);
        let new = write(disk.folder(Path::new("/new")).as_ref(), after);
        Self { disk, old, new }
    }

    /// The same world, with pipes where files and directories will be.
    fn with_pipes() -> Self {
        let world = Self::new(&before(), &after());
        for path in PIPES {
            world
                .disk
                .plant_pipe(&Path::new("/root").join(path))
                .unwrap();
        }
        world
    }

    fn root(&self) -> Box<dyn Folder> {
        self.disk.folder(Path::new("/root"))
    }

    fn swap_in(&self, root: &dyn Folder) -> Result<Vec<super::DisplacedFile>, SwapError> {
        let journal = self.disk.folder(Path::new("/journal"));
        let new = self.disk.folder(Path::new("/new"));
        let place = SwapSite {
            journal: journal.as_ref(),
            root,
            names: Names::Portable,
            specials: Specials::Remove,
        };
        swap(place, new.as_ref(), &changes(&self.old, &self.new), STAGING)
    }

    fn swap(&self) -> Result<Vec<super::DisplacedFile>, SwapError> {
        self.swap_in(self.root().as_ref())
    }

    fn revert(&self) -> Result<Vec<super::DisplacedFile>, SwapError> {
        let done = self.disk.folder(Path::new("/journal"));
        let journal = self.disk.folder(Path::new("/back"));
        let root = self.root();
        revert(
            done.as_ref(),
            SwapSite {
                journal: journal.as_ref(),
                root: root.as_ref(),
                names: Names::Portable,
                specials: Specials::Remove,
            },
            STAGING,
        )
    }
}

fn recovered(disk: &SimulatedDisk, journal: &str) -> SwapRecovery {
    let journal = disk.folder(Path::new(journal));
    let root = disk.folder(Path::new("/root"));
    recover(SwapSite {
        journal: journal.as_ref(),
        root: root.as_ref(),
        names: Names::Portable,
        specials: Specials::Remove,
    })
    .unwrap()
}

fn found(disk: &SimulatedDisk) -> Manifest {
    all(disk.folder(Path::new("/root")).as_ref()).manifest
}

/// Lists a tree, with its pipes as excluded.
fn all(root: &dyn Folder) -> TreeSnapshot {
    let options = Options {
        special: EntryPolicy::LeaveOut,
        ..everything()
    };
    scan(root, &options).unwrap()
}

fn pipes(disk: &SimulatedDisk) -> Vec<String> {
    let left_out = all(disk.folder(Path::new("/root")).as_ref()).left_out;
    left_out.into_iter().map(|left| left.path).collect()
}

/// Crashes in every call of `work`, and in some calls of the recovery.
fn crash_everywhere(
    make: &dyn Fn() -> World,
    journal: &str,
    (one, other): (&Manifest, &Manifest),
    work: &dyn Fn(&World),
) {
    let mut outcomes = [0, 0];
    let pipes_before = pipes(&make().disk);
    for call in 1.. {
        let world = make();
        world.disk.crash_at(world.disk.calls() + call);
        work(&world);
        let is_whole = !world.disk.is_down();
        let kinds = [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::ProcessOnly];
        for crash in kinds
            .into_iter()
            .chain((0..6).map(|seed| Crash::Subset(seed + 100 * call)))
        {
            let disk = world.disk.after_crash(crash);
            // The recovery crashes once, too.
            disk.crash_at(1 + call * 7 % 40);
            let place = disk.folder(Path::new(journal));
            let root = disk.folder(Path::new("/root"));
            drop(recover(SwapSite {
                journal: place.as_ref(),
                root: root.as_ref(),
                names: Names::Portable,
                specials: Specials::Remove,
            }));
            let disk = disk.after_crash(Crash::Subset(call));
            let came = recovered(&disk, journal);
            let tree = found(&disk);
            let expected: &[String] = match came {
                SwapRecovery::New { .. } => &[],
                SwapRecovery::Old { .. } | SwapRecovery::Nothing => &pipes_before,
            };
            assert_eq!(pipes(&disk), expected, "call {call}, {crash:?}");
            match came {
                SwapRecovery::New { kept } => {
                    assert!(kept.is_empty());
                    assert_eq!(&tree, other, "call {call}, {crash:?}");
                    outcomes[1] += 1;
                }
                SwapRecovery::Old { left, kept } => {
                    assert!(
                        left.is_empty() && kept.is_empty(),
                        "call {call}, {crash:?}: {left:?} {kept:?}"
                    );
                    assert_eq!(&tree, one, "call {call}, {crash:?}");
                    outcomes[0] += 1;
                }
                SwapRecovery::Nothing => assert_eq!(&tree, one, "call {call}, {crash:?}"),
            }
            let again = recovered(&disk, journal);
            assert!(!matches!(again, SwapRecovery::Old { .. }), "{again:?}");
        }
        if is_whole {
            let disk = world.disk.after_crash(Crash::ProcessOnly);
            assert_eq!(&found(&disk), other);
            assert!(pipes(&disk).is_empty());
            assert!(
                call > 60 && outcomes.iter().all(|count| *count > 10),
                "{call} {outcomes:?}"
            );
            return;
        }
    }
}

#[test]
fn prop_3_swap_stopped_at_any_call_is_all_old_or_all_new() {
    let world = World::new(&before(), &after());
    let make = || World::new(&before(), &after());
    crash_everywhere(&make, "/journal", (&world.old, &world.new), &|world| {
        drop(world.swap());
    });
}

#[test]
fn ckpt_4_pipes_make_way_whole_or_not_whenever_it_stops() {
    let world = World::with_pipes();
    assert_eq!(pipes(&world.disk), PIPES);
    crash_everywhere(
        &World::with_pipes,
        "/journal",
        (&world.old, &world.new),
        &|world| {
            drop(world.swap());
        },
    );
}

#[test]
fn prop_3_swap_revert_stopped_at_any_call_is_all_new_or_all_old() {
    let world = World::new(&before(), &after());
    let make = || {
        let world = World::new(&before(), &after());
        assert_eq!(world.swap().unwrap(), []);
        world
    };
    crash_everywhere(&make, "/back", (&world.new, &world.old), &|world| {
        drop(world.revert());
    });
}

#[test]
fn prop_3_random_trees_swap_and_revert_with_stops_anywhere() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let before = nodes(&mut random, 8);
        let after = mutated(&mut random, &before);
        let world = World::new(&before, &after);
        let start = world.disk.calls();
        assert_eq!(world.swap().unwrap(), [], "seed {seed}");
        assert_eq!(found(&world.disk), world.new, "seed {seed}");
        let calls = world.disk.calls() - start;
        assert_eq!(world.revert().unwrap(), [], "seed {seed}");
        assert_eq!(found(&world.disk), world.old, "seed {seed}");
        let world = World::new(&before, &after);
        world
            .disk
            .crash_at(world.disk.calls() + random.u64(1..=calls));
        drop(world.swap());
        let disk = world.disk.after_crash(Crash::Subset(seed));
        let came = recovered(&disk, "/journal");
        let tree = found(&disk);
        let expected = if matches!(came, SwapRecovery::New { .. }) {
            &world.new
        } else {
            &world.old
        };
        let differ: Vec<_> = changes(expected, &tree);
        assert_eq!(&tree, expected, "seed {seed}: {came:?} {differ:?}");
    }
}

#[test]
fn prop_3_an_error_at_any_call_is_taken_back_or_recovered() {
    for call in 1.. {
        let world = World::new(&before(), &after());
        let start = world.disk.calls();
        world
            .disk
            .fail_at(start + call, CallFault::Errno(nix_eio()), false);
        let outcome = world.swap();
        let is_over = world.disk.calls() < start + call;
        world.disk.fail_at(0, CallFault::ShortWrite(1), false);
        match outcome {
            Ok(_) => assert_eq!(found(&world.disk), world.new, "call {call}"),
            Err(SwapError::Unfinished(_)) => {
                let expected = match recovered(&world.disk, "/journal") {
                    SwapRecovery::New { .. } => &world.new,
                    _ => &world.old,
                };
                assert_eq!(&found(&world.disk), expected, "call {call}");
            }
            Err(_) => {
                recovered(&world.disk, "/journal");
                assert_eq!(found(&world.disk), world.old, "call {call}");
            }
        }
        if is_over {
            assert!(call > 60);
            return;
        }
    }
}

fn nix_eio() -> i32 {
    5
}

/// A folder in which a user edits a file before the call with this number.
#[derive(Debug)]
struct MidSwapEditFolder<'w> {
    inner: Box<dyn Folder>,
    calls: AtomicU64,
    at: u64,
    person: Box<dyn Folder>,
    edit: &'w Edit,
}

#[derive(Debug)]
struct Edit {
    path: &'static str,
    how: EditMethod,
    is_made: AtomicBool,
}

impl Edit {
    fn new(path: &'static str, how: EditMethod) -> Self {
        Self {
            path,
            how,
            is_made: AtomicBool::new(false),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditMethod {
    /// As most editors do: a new file replaces the old one.
    Replace,
    /// The same file gets new content.
    Write,
}

const WORDS: &[u8] = b"what a person wrote";

impl Edit {
    fn make(&self, folder: &dyn Folder) {
        let path = Path::new(self.path);
        if folder
            .look(path)
            .unwrap()
            .is_some_and(|stat| stat.kind == goondan_durable::disk::NodeKind::Directory)
        {
            return;
        }
        let save = |name: &Path| {
            if let Ok(mut file) = folder.create(name, 0o644) {
                append_all(file.as_mut(), WORDS).unwrap();
                self.is_made.store(true, Ordering::Relaxed);
            }
        };
        match self.how {
            EditMethod::Replace => {
                drop(folder.remove(path));
                save(path);
            }
            EditMethod::Write => match folder.read(path) {
                Ok(mut file) => {
                    file.set_len(0).unwrap();
                    append_all(file.as_mut(), WORDS).unwrap();
                    self.is_made.store(true, Ordering::Relaxed);
                }
                Err(_) => save(path),
            },
        }
    }
}

impl MidSwapEditFolder<'_> {
    fn step(&self) -> &dyn Folder {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            self.edit.make(self.person.as_ref());
        }
        self.inner.as_ref()
    }
}

impl Folder for MidSwapEditFolder<'_> {
    fn look(&self, path: &Path) -> io::Result<Option<NodeStat>> {
        self.step().look(path)
    }
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.step().names(path)
    }
    fn read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.step().read(path)
    }
    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        self.step().read_link(path)
    }
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.step().create(path, mode)
    }
    fn create_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.step().create_link(path, target)
    }
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.step().create_dir(path, mode)
    }
    fn set_dir_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.step().set_dir_mode(path, mode)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step().rename_new(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.step().exchange(one, other)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step().remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step().remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step().sync_dir(path)
    }
    fn below(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        self.step().below(path)
    }
}

/// Returns the paths below the root with the user's content.
fn places(root: &dyn Folder) -> Vec<PathBuf> {
    let words = crate::Digest::of(WORDS);
    let is_words = |entry: &crate::TreeEntry| matches!(entry, crate::TreeEntry::File { sha256, .. } if *sha256 == words);
    let manifest = read(root);
    let found = manifest.entries().filter(|(_, entry)| is_words(entry));
    found.map(|(path, _)| path.as_path().to_owned()).collect()
}

/// A user edits a path before every single call of the swap, by replacing and in place.
#[test]
fn prop_4_user_edits_during_a_swap_are_never_lost() {
    let paths = [
        "edited",
        "gone",
        "dir/gone-too",
        "added",
        "link",
        "becomes-file",
        "becomes-dir",
        "deep",
    ];
    let (mut refused, mut done) = (0, 0);
    for edit_path in paths {
        for how in [EditMethod::Replace, EditMethod::Write] {
            for at in 1.. {
                let world = World::new(&before(), &after());
                let edit = Edit::new(edit_path, how);
                let root = MidSwapEditFolder {
                    inner: world.root(),
                    calls: AtomicU64::new(0),
                    at,
                    person: world.root(),
                    edit: &edit,
                };
                let outcome = world.swap_in(&root);
                let calls = root.calls.load(Ordering::Relaxed);
                let kept = match &outcome {
                    Ok(kept) | Err(SwapError::Stale { kept, .. }) => kept.clone(),
                    Err(_) => Vec::new(),
                };
                if calls < at {
                    assert!(at > 40, "{at}");
                    break;
                }
                if outcome.is_ok() {
                    done += 1;
                } else {
                    refused += 1;
                }
                let told = places(world.root().as_ref());
                let is_told = |place: &PathBuf| {
                    place == Path::new(edit_path) || kept.iter().any(|kept| &kept.at == place)
                };
                assert!(
                    told.iter().all(is_told),
                    "{edit_path} {how:?} {at}: {told:?} {outcome:?}"
                );
                // A user cannot write a file where a directory is, or where its parent is missing.
                let is_made = edit.is_made.load(Ordering::Relaxed);
                assert_eq!(
                    is_made,
                    !told.is_empty(),
                    "{edit_path} {how:?} {at}: {outcome:?}"
                );
                recovered(&world.disk, "/journal");
                assert_eq!(
                    places(world.root().as_ref()),
                    told,
                    "{edit_path} {how:?} {at}"
                );
            }
        }
    }
    assert!(refused > 100 && done > 20, "{refused} {done}");
}

/// The same on the real file system, with another thread.
#[test]
fn prop_4_another_thread_edits_while_real_files_are_swapped() {
    for round in 0..30 {
        let directory = tempfile::tempdir().unwrap();
        let top = RealFolder::open(directory.path()).unwrap();
        let below = |name: &str| {
            top.create_dir(Path::new(name), 0o755).unwrap();
            top.below(Path::new(name)).unwrap()
        };
        let (root, new, journal) = (below("root"), below("new"), below("journal"));
        let old_tree = write(root.as_ref(), &before());
        let new_tree = write(new.as_ref(), &after());
        let person = top.below(Path::new("root")).unwrap();
        let edit = Edit::new("edited", EditMethod::Replace);
        let barrier = std::sync::Barrier::new(2);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..round * 200 {
                    std::hint::spin_loop();
                }
                edit.make(person.as_ref());
            });
            barrier.wait();
            let place = SwapSite {
                journal: journal.as_ref(),
                root: root.as_ref(),
                names: Names::Portable,
                specials: Specials::Remove,
            };
            swap(place, new.as_ref(), &changes(&old_tree, &new_tree), STAGING)
        });
        let found = places(root.as_ref());
        assert!(!found.is_empty(), "round {round}: lost; {outcome:?}");
        remove_all(&top, Path::new("root")).unwrap();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwapPathKind {
    Nothing,
    File,
    Directory,
    Link,
    LinkToDirectory,
    LinkToNothing,
    Pipe,
    Socket,
    DirectoryWithPipe,
}

const KINDS: [SwapPathKind; 9] = [
    SwapPathKind::Nothing,
    SwapPathKind::File,
    SwapPathKind::Directory,
    SwapPathKind::Link,
    SwapPathKind::LinkToDirectory,
    SwapPathKind::LinkToNothing,
    SwapPathKind::Pipe,
    SwapPathKind::Socket,
    SwapPathKind::DirectoryWithPipe,
];

impl SwapPathKind {
    /// Creates a tree with this kind at `it` in a new directory; returns the part that a tree can
    /// hold.
    fn make(self, root: &Path) -> (RealFolder, Manifest) {
        std::fs::create_dir_all(root.join("beside")).unwrap();
        std::fs::write(root.join("beside/file"), "b").unwrap();
        let it = root.join("it");
        let link = |target: &str| std::os::unix::fs::symlink(target, &it).unwrap();
        let pipe = |path: &Path| {
            use rustix::fs::{CWD, Mode, mkfifoat};
            mkfifoat(CWD, path, Mode::RUSR).unwrap();
        };
        match self {
            Self::Nothing => {}
            Self::File => std::fs::write(&it, "f").unwrap(),
            Self::Link => link("beside/file"),
            Self::LinkToDirectory => link("beside"),
            Self::LinkToNothing => link("none"),
            Self::Pipe => pipe(&it),
            Self::Socket => drop(std::os::unix::net::UnixListener::bind(&it).unwrap()),
            Self::Directory | Self::DirectoryWithPipe => {
                std::fs::create_dir_all(it.join("inner")).unwrap();
                std::fs::write(it.join("inner/file"), "i").unwrap();
                std::fs::write(it.join("file"), "i").unwrap();
                if self == Self::DirectoryWithPipe {
                    pipe(&it.join("inner/pipe"));
                }
            }
        }
        let folder = RealFolder::open(root).unwrap();
        let manifest = all(&folder).manifest;
        (folder, manifest)
    }

    /// True if it is, or contains, an obstacle for `new`.
    fn blocks(self, new: Self) -> bool {
        let comes = !matches!(new, Self::Nothing | Self::Pipe | Self::Socket);
        let is_directory = matches!(new, Self::Directory | Self::DirectoryWithPipe);
        match self {
            Self::Pipe | Self::Socket => comes,
            Self::DirectoryWithPipe => comes && !is_directory,
            _ => false,
        }
    }
}

#[test]
fn ckpt_4_every_kind_of_file_takes_the_place_of_every_other() {
    for old in KINDS {
        for new in KINDS {
            let both = [Specials::Remove, Specials::Refuse];
            for specials in both.into_iter().take(1 + usize::from(old.blocks(new))) {
                let temp = tempfile::tempdir().unwrap();
                let at = |name: &str| temp.path().join(name);
                let (root, before) = old.make(&at("root"));
                let (source, after) = new.make(&at("new"));
                for name in ["journal", "back"] {
                    std::fs::create_dir(at(name)).unwrap();
                }
                let journal = RealFolder::open(&at("journal")).unwrap();
                let back = RealFolder::open(&at("back")).unwrap();
                let place = |journal| SwapSite {
                    journal,
                    root: &root,
                    names: Names::Portable,
                    specials,
                };
                let changes = changes(&before, &after);
                let planned = plan(place(&journal), &changes, STAGING);
                let swapped = swap(place(&journal), &source, &changes, STAGING);
                let case = format!("{old:?} to {new:?}, {specials:?}: {swapped:?}");
                assert_eq!(planned.is_ok(), swapped.is_ok(), "{case}");
                if specials == Specials::Refuse && old.blocks(new) {
                    assert!(matches!(swapped, Err(SwapError::Blocked { .. })), "{case}");
                    assert_eq!(all(&root).manifest, before, "{case}");
                    continue;
                }
                assert!(matches!(&swapped, Ok(kept) if kept.is_empty()), "{case}");
                // A directory with unrelated entries stays.
                let stays = old == SwapPathKind::DirectoryWithPipe && !old.blocks(new);
                if !stays {
                    assert_eq!(all(&root).manifest, after, "{case}");
                }
                assert!(root.look(Path::new(STAGING)).unwrap().is_none());
                revert(&journal, place(&back), STAGING).unwrap();
                assert_eq!(all(&root).manifest, before, "{case}");
            }
        }
    }
}

#[test]
fn prop_4_stale_base_or_impossible_change_is_refused_entirely() {
    let world = World::new(&before(), &after());
    Edit::new("edited", EditMethod::Write).make(world.root().as_ref());
    let start = found(&world.disk);
    let Err(SwapError::Stale { stale, .. }) = world.swap() else {
        panic!("a stale base was taken");
    };
    assert_eq!(stale.len(), 1);
    assert_eq!(stale[0].path, path("edited"));
    assert_ne!(stale[0].expected, stale[0].found);
    assert_eq!(found(&world.disk), start);
    assert_eq!(recovered(&world.disk, "/journal"), SwapRecovery::Nothing);

    let world = World::new(&before(), &after());
    let mut twice = changes(&world.old, &world.new);
    twice.push(twice[0].clone());
    let (journal, new, root) = (
        world.disk.folder(Path::new("/journal")),
        world.disk.folder(Path::new("/new")),
        world.root(),
    );
    let place = SwapSite {
        journal: journal.as_ref(),
        root: root.as_ref(),
        names: Names::Portable,
        specials: Specials::Remove,
    };
    let refused = swap(place, new.as_ref(), &twice, STAGING).unwrap_err();
    assert!(matches!(refused, SwapError::Impossible { .. }), "{refused}");
    // New files that differ from the changes.
    Edit::new("added", EditMethod::Write).make(new.as_ref());
    let refused = swap(
        place,
        new.as_ref(),
        &changes(&world.old, &world.new),
        STAGING,
    )
    .unwrap_err();
    assert!(matches!(refused, SwapError::Tree(_)), "{refused}");
    assert_eq!(found(&world.disk), world.old);
}

/// `.git` is changed only if local names are allowed.
#[test]
fn prop_4_git_is_changed_only_where_local_names_are_allowed() {
    let disk = SimulatedDisk::new();
    for dir in ["/journal", "/root", "/root/.git", "/new"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    let path = RelativePath::allowed(b".git/hook", Names::Local).unwrap();
    let folder = disk.folder(Path::new("/new"));
    folder.create_dir(Path::new(".git"), 0o755).unwrap();
    folder.create(path.as_path(), 0o644).unwrap();
    let change = crate::PathChange {
        path: path.clone(),
        old: None,
        new: crate::observe(folder.as_ref(), path.as_path()).unwrap(),
    };
    let (journal, root) = (
        disk.folder(Path::new("/journal")),
        disk.folder(Path::new("/root")),
    );
    let place = |names| SwapSite {
        journal: journal.as_ref(),
        root: root.as_ref(),
        names,
        specials: Specials::Remove,
    };
    let changes = [change];
    let attempt = |names| swap(place(names), folder.as_ref(), &changes, ".swap");
    let refused = attempt(Names::Portable).unwrap_err();
    assert!(refused.to_string().contains("nothing was changed"));
    assert!(root.look(path.as_path()).unwrap().is_none());
    attempt(Names::Local).unwrap();
    assert!(root.look(path.as_path()).unwrap().is_some());
    // Recovery rejects a journal that names `.git` where that is not allowed.
    assert!(recover(place(Names::Portable)).is_err());
    assert_eq!(
        recover(place(Names::Local)).unwrap(),
        SwapRecovery::New { kept: Vec::new() }
    );
}
