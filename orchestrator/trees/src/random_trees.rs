//! Random trees with difficult names and contents, for tests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fastrand::Rng;
use goondan_durable::disk::{Folder, append_all};

use crate::excludes::Excludes;
use crate::freeze::{EntryPolicy, Options, scan};
use crate::limits::Limits;
use crate::manifest::{Digest, Manifest, ManifestBuilder, TreeEntry};
use crate::path::{Names, RelativePath};

/// A file or link of a random tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RandomNode {
    File { mode: u32, content: Vec<u8> },
    Link(Vec<u8>),
}

/// Files and links by path, with implicit parent directories.
pub(crate) type RandomNodes = BTreeMap<RelativePath, RandomNode>;

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"src",
    b"x.txt",
    b"with space",
    b" lead",
    b"trail ",
    b"tab\there",
    b"new\nline",
    b"quote\"d",
    b"back\\slash",
    b"caf\xe9",
    "caf\u{e9}".as_bytes(),
    "\u{d55c}\u{ae00}".as_bytes(),
    b"--- a",
    b"+++ b",
    b"\x01\x7f\x1b",
    b"-",
    b"~",
    b"dev",
    b"null",
    b"\xff\xfe",
    b"cr\r",
    b"=>",
];

const LINES: &[&[u8]] = &[
    b"one",
    b"two",
    b"three",
    b"",
    b"++ b/x.txt",
    b"-- a/x.txt",
    b"+++ b/etc",
    b"--- /dev/null",
    b"@@ -1,2 +1,2 @@",
    b"diff --git a/a b/b",
    b"\\ No newline at end of file",
    b"rename to /etc/passwd",
    b"GIT binary patch",
    b"literal 3",
    b"caf\xe9 latin",
    "\u{d55c}".as_bytes(),
    b"\ttab ",
    b" ",
    b"index 000..111",
    b"old mode 100644",
    b"crlf\r",
];

fn pick<'l>(random: &mut Rng, list: &[&'l [u8]]) -> &'l [u8] {
    list[random.usize(..list.len())]
}

fn text(random: &mut Rng, most: usize) -> Vec<u8> {
    let ending: &[u8] = if random.u8(..4) == 0 { b"\r\n" } else { b"\n" };
    let count = random.usize(..=most);
    let mut text = Vec::new();
    for _ in 0..count {
        text.extend_from_slice(pick(random, LINES));
        text.extend_from_slice(ending);
    }
    if random.u8(..3) == 0 {
        text.extend_from_slice(pick(random, LINES));
    }
    text
}

fn content(random: &mut Rng) -> Vec<u8> {
    match random.u8(..8) {
        0 => Vec::new(),
        1 => {
            let len = random.usize(1..300);
            std::iter::repeat_with(|| random.u8(..)).take(len).collect()
        }
        2 => text(random, 80),
        _ => text(random, 12),
    }
}

fn node(random: &mut Rng) -> RandomNode {
    if random.u8(..5) == 0 {
        let mut target = pick(random, NAMES).to_vec();
        if random.bool() {
            target = [b"../", target.as_slice(), b"/y"].concat();
        }
        return RandomNode::Link(target);
    }
    RandomNode::File {
        mode: if random.u8(..4) == 0 { 0o755 } else { 0o644 },
        content: content(random),
    }
}

fn path(random: &mut Rng) -> RelativePath {
    let depth = random.usize(1..4);
    let names: Vec<&[u8]> = (0..depth).map(|_| pick(random, NAMES)).collect();
    RelativePath::new(&names.join(&b"/"[..])).unwrap()
}

fn is_tree(nodes: &RandomNodes) -> bool {
    let mut builder = ManifestBuilder::new(Limits::default(), Names::Portable);
    let entry = TreeEntry::File {
        mode: 0,
        bytes: 0,
        sha256: Digest::of(b""),
    };
    nodes.keys().all(|path| {
        for parent in builder.missing_parents(path) {
            if builder
                .add(parent, TreeEntry::Directory { mode: 0o755 })
                .is_err()
            {
                return false;
            }
        }
        builder.add(path.clone(), entry.clone()).is_ok()
    })
}

fn put(nodes: &mut RandomNodes, path: RelativePath, node: RandomNode) {
    let before = nodes.clone();
    nodes.insert(path, node);
    if !is_tree(nodes) {
        *nodes = before;
    }
}

pub(crate) fn nodes(random: &mut Rng, most: usize) -> RandomNodes {
    let mut nodes = RandomNodes::new();
    for _ in 0..random.usize(..=most) {
        put(&mut nodes, path(random), node(random));
    }
    nodes
}

/// Randomly replaces, removes and adds lines.
fn edited(random: &mut Rng, content: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = content
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=lines.len());
        let line = [pick(random, LINES), b"\n"].concat();
        match random.u8(..4) {
            0 | 1 => lines.insert(at, line),
            2 if at < lines.len() => drop(lines.remove(at)),
            _ if at < lines.len() => lines[at] = line,
            _ => {}
        }
    }
    let mut content = lines.concat();
    if random.u8(..6) == 0 && content.ends_with(b"\n") {
        content.pop();
    }
    content
}

/// Returns a mostly equal tree.
pub(crate) fn mutated(random: &mut Rng, before: &RandomNodes) -> RandomNodes {
    let mut after = before.clone();
    for (path, old) in before {
        if !after.contains_key(path) {
            continue;
        }
        match (random.u8(..12), old) {
            (0 | 1, _) => drop(after.remove(path)),
            (2..=4, RandomNode::File { mode, content }) => {
                let (mode, content) = (*mode, edited(random, content));
                after.insert(path.clone(), RandomNode::File { mode, content });
            }
            (5, RandomNode::File { mode, content }) => {
                let (mode, content) = (*mode ^ 0o111, content.clone());
                after.insert(path.clone(), RandomNode::File { mode, content });
            }
            (6, _) => drop(after.insert(path.clone(), node(random))),
            (7, _) => {
                // A file becomes a directory.
                after.remove(path);
                if let Ok(inner) = path.join(pick(random, NAMES)) {
                    put(&mut after, inner, node(random));
                }
            }
            (8, _) => {
                // A directory becomes a file.
                if let Some(parent) = path.parent() {
                    let below = [parent.as_bytes(), b"/"].concat();
                    after.retain(|path, _| !path.as_bytes().starts_with(&below));
                    put(&mut after, parent, node(random));
                }
            }
            _ => {}
        }
    }
    for _ in 0..random.usize(..3) {
        put(&mut after, path(random), node(random));
    }
    after
}

/// Writes a tree into an empty folder.
pub(crate) fn write(folder: &dyn Folder, nodes: &RandomNodes) -> Manifest {
    for (path, node) in nodes {
        for parent in path.ancestors() {
            if folder.look(parent.as_path()).unwrap().is_none() {
                folder.create_dir(parent.as_path(), 0o755).unwrap();
            }
        }
        match node {
            RandomNode::Link(target) => {
                let target = Path::new(OsStr::from_bytes(target));
                folder.create_link(path.as_path(), target).unwrap();
            }
            RandomNode::File { mode, content } => {
                let mut file = folder.create(path.as_path(), *mode).unwrap();
                append_all(file.as_mut(), content).unwrap();
                file.sync().unwrap();
            }
        }
    }
    let manifest = read(folder);
    for (path, entry) in manifest.entries() {
        if entry.is_directory() {
            folder.sync_dir(path.as_path()).unwrap();
        }
    }
    folder.sync_dir(Path::new("")).unwrap();
    manifest
}

/// Default snapshot options of tests.
pub(crate) fn everything() -> Options {
    Options {
        excludes: Excludes::new(&[".git/"]).unwrap(),
        outside_links: EntryPolicy::Keep,
        special: EntryPolicy::Refuse,
        limits: Limits::default(),
    }
}

pub(crate) fn read(folder: &dyn Folder) -> Manifest {
    scan(folder, &everything()).unwrap().manifest
}
