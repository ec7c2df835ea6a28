//! Goal: a merge takes both sides completely, or reports why it cannot. Method: random texts
//! compared with `git merge-file`, random trees with general properties, and each kind of conflict.

use std::path::Path;
use std::process::Command;

use fastrand::Rng;
use goondan_durable::disk::{Folder, SimulatedDisk};

use super::lines::merge as merge_lines;
use super::{ConflictReason, Merge, MergeOutcome, merge};
use crate::apply::Tree;
use crate::manifest::Manifest;
use crate::path::RelativePath;
use crate::random_trees::{RandomNode, RandomNodes, mutated, nodes, read, write};

/// Number of merged texts and trees.
const ROUNDS: u64 = 400;

/// git checks one text out of this many.
const GIT_EVERY: u64 = 4;

struct MergeSide {
    folder: Box<dyn Folder>,
    manifest: Manifest,
}

impl MergeSide {
    fn new(nodes: &RandomNodes) -> Self {
        let folder = SimulatedDisk::new().folder(Path::new("/"));
        let manifest = write(folder.as_ref(), nodes);
        Self { folder, manifest }
    }

    fn tree(&self) -> Tree<'_> {
        Tree {
            manifest: &self.manifest,
            folder: self.folder.as_ref(),
        }
    }
}

fn path(text: &str) -> RelativePath {
    RelativePath::new(text.as_bytes()).unwrap()
}

fn file(mode: u32, content: &str) -> RandomNode {
    RandomNode::File {
        mode,
        content: content.as_bytes().to_vec(),
    }
}

fn tree(list: &[(&str, RandomNode)]) -> RandomNodes {
    let nodes = list.iter();
    nodes
        .map(|(name, node)| (path(name), node.clone()))
        .collect()
}

fn merged(
    base: &RandomNodes,
    ours: &RandomNodes,
    theirs: &RandomNodes,
) -> Result<RandomNodes, Vec<(String, String)>> {
    let (base, ours, theirs) = (
        MergeSide::new(base),
        MergeSide::new(ours),
        MergeSide::new(theirs),
    );
    match merge(base.tree(), ours.tree(), theirs.tree()).unwrap() {
        MergeOutcome::Conflicts(conflicts) => {
            assert!(!conflicts.is_empty());
            let told = conflicts.into_iter();
            Err(told
                .map(|conflict| (conflict.path.to_string(), conflict.reason.to_string()))
                .collect())
        }
        MergeOutcome::Merged(merge) => Ok(written(&merge, &ours, &theirs)),
    }
}

/// Writes a merged tree and reads it back.
fn written(merge: &Merge, ours: &MergeSide, theirs: &MergeSide) -> RandomNodes {
    let parent = SimulatedDisk::new().folder(Path::new("/"));
    merge
        .write(
            ours.folder.as_ref(),
            theirs.folder.as_ref(),
            parent.as_ref(),
            "merged",
        )
        .unwrap();
    let folder = parent.below(Path::new("merged")).unwrap();
    let manifest = read(folder.as_ref());
    assert_eq!(&manifest, merge.manifest());
    let tree = Tree {
        manifest: &manifest,
        folder: folder.as_ref(),
    };
    let leaf = |(path, entry): (&RelativePath, &crate::TreeEntry)| {
        let leaf = tree.leaf(path).unwrap()?;
        let node = match entry {
            crate::TreeEntry::File { mode, .. } => RandomNode::File {
                mode: *mode,
                content: leaf.content,
            },
            _ => RandomNode::Link(leaf.content),
        };
        Some((path.clone(), node))
    };
    manifest.entries().filter_map(leaf).collect()
}

/// A text of distinct lines, so that its comparison with an edit is unambiguous.
fn distinct_lines(random: &mut Rng) -> Vec<Vec<u8>> {
    let ending: &[u8] = if random.u8(..4) == 0 { b"\r\n" } else { b"\n" };
    let line = |number| [format!("line {number}").as_bytes(), ending].concat();
    let mut lines: Vec<Vec<u8>> = (0..random.usize(..14)).map(line).collect();
    if random.u8(..4) == 0
        && let Some(last) = lines.last_mut()
    {
        last.truncate(last.len() - ending.len());
    }
    lines
}

fn edit(random: &mut Rng, base: &[Vec<u8>]) -> Vec<u8> {
    let mut lines = base.to_vec();
    for _ in 0..random.usize(..3) {
        let at = random.usize(..=lines.len());
        // Both sides sometimes write the same.
        let new = format!("new {}\n", random.u8(..3)).into_bytes();
        let is_after_open_line = at > 0 && !lines[at - 1].ends_with(b"\n");
        match random.u8(..3) {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines[at] = new,
            _ if !is_after_open_line && !lines.contains(&new) => lines.insert(at, new),
            _ => {}
        }
    }
    if random.u8(..6) == 0
        && let Some(last) = lines.last_mut()
        && last.ends_with(b"\n")
    {
        last.pop();
    }
    lines.concat()
}

fn git_merge_file(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("base", base), ("ours", ours), ("theirs", theirs)] {
        #[expect(clippy::disallowed_methods, reason = "git reads the file")]
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let output = Command::new("git")
        .args(["merge-file", "--stdout", "ours", "base", "theirs"])
        .current_dir(directory.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", directory.path())
        .output()
        .unwrap();
    output.status.success().then_some(output.stdout)
}

#[test]
fn prop_4_texts_are_merged_as_git_merge_file_does() {
    let is_git_there = Command::new("git").arg("--version").output().is_ok();
    let (mut clean, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let lines = distinct_lines(&mut random);
        let base = lines.concat();
        let (ours, theirs) = (edit(&mut random, &lines), edit(&mut random, &lines));
        let made = merge_lines(&base, &ours, &theirs).ok();
        assert_eq!(
            made,
            merge_lines(&base, &theirs, &ours).ok(),
            "seed {seed}: the sides are not alike"
        );
        assert_eq!(merge_lines(&base, &base, &theirs).unwrap(), theirs);
        assert_eq!(merge_lines(&base, &theirs, &theirs).unwrap(), theirs);
        match &made {
            Some(_) => clean += 1,
            None => refused += 1,
        }
        if is_git_there && seed % GIT_EVERY == 0 {
            let shown = String::from_utf8_lossy(&base).into_owned();
            let said = git_merge_file(&base, &ours, &theirs);
            assert_eq!(made, said, "seed {seed}: git says otherwise of\n{shown}");
        }
    }
    assert!(
        clean > 50 && refused > 50,
        "{clean} clean, {refused} refused"
    );
}

/// Texts with repeated lines have several valid merges; some properties hold for each.
#[test]
fn prop_4_a_merge_of_repeated_lines_loses_none() {
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let word = |random: &mut Rng| vec![b'a' + random.u8(..3), b'\n'];
        let base: Vec<Vec<u8>> = (0..random.usize(..12)).map(|_| word(&mut random)).collect();
        let mut ours = base.clone();
        let mut theirs = base.clone();
        ours.insert(random.usize(..=ours.len()), b"ours\n".to_vec());
        theirs.insert(random.usize(..=theirs.len()), b"theirs\n".to_vec());
        let (base, ours, theirs) = (base.concat(), ours.concat(), theirs.concat());
        let Ok(made) = merge_lines(&base, &ours, &theirs) else {
            continue;
        };
        let without = |unwanted: &[u8]| -> Vec<u8> {
            let lines = made.split_inclusive(|byte| *byte == b'\n');
            lines
                .filter(|line| *line != unwanted)
                .flatten()
                .copied()
                .collect()
        };
        assert_eq!(without(b"theirs\n"), ours, "seed {seed}");
        assert_eq!(without(b"ours\n"), theirs, "seed {seed}");
    }
}

#[test]
fn prop_4_merged_trees_hold_both_sides() {
    let (mut clean, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let mut random = Rng::with_seed(seed);
        let base = nodes(&mut random, 6);
        let ours = mutated(&mut random, &base);
        let theirs = mutated(&mut random, &base);
        assert_eq!(
            merged(&base, &base, &theirs).unwrap(),
            theirs,
            "seed {seed}"
        );
        assert_eq!(merged(&base, &ours, &base).unwrap(), ours, "seed {seed}");
        assert_eq!(merged(&base, &ours, &ours).unwrap(), ours, "seed {seed}");
        let made = merged(&base, &ours, &theirs);
        let mirrored = merged(&base, &theirs, &ours);
        assert_eq!(made.is_ok(), mirrored.is_ok(), "seed {seed}");
        let Ok(made) = made else {
            refused += 1;
            continue;
        };
        clean += 1;
        assert_eq!(made, mirrored.unwrap(), "seed {seed}");
        for path in base.keys().chain(ours.keys()).chain(theirs.keys()) {
            let (was, our, their) = (base.get(path), ours.get(path), theirs.get(path));
            let expected = if their == was { our } else { their };
            if our == was || their == was || our == their {
                assert_eq!(made.get(path), expected, "seed {seed}: {path}");
            }
        }
    }
    assert!(
        clean > 50 && refused > 50,
        "{clean} clean, {refused} refused"
    );
}

#[test]
fn prop_4_modes_and_lines_of_both_sides_are_merged() {
    let base = tree(&[("a", file(0o644, "1\n2\n3\n4\n5")), ("b", file(0o644, "b"))]);
    let ours = tree(&[
        ("a", file(0o644, "one\n2\n3\n4\n5")),
        ("b", file(0o755, "b")),
    ]);
    let theirs = tree(&[
        ("a", file(0o755, "1\n2\n3\n4\n5\n6")),
        ("b", file(0o644, "B")),
    ]);
    let expected = tree(&[
        ("a", file(0o755, "one\n2\n3\n4\n5\n6")),
        ("b", file(0o755, "B")),
    ]);
    assert_eq!(merged(&base, &ours, &theirs).unwrap(), expected);
}

#[test]
fn prop_4_removed_directory_stays_for_files_of_the_other_side() {
    let base = tree(&[("d/old", file(0o644, "old"))]);
    let theirs = tree(&[("d/old", file(0o644, "old")), ("d/new", file(0o644, "new"))]);
    let expected = tree(&[("d/new", file(0o644, "new"))]);
    assert_eq!(
        merged(&base, &RandomNodes::new(), &theirs).unwrap(),
        expected
    );
    assert_eq!(
        merged(&base, &theirs, &RandomNodes::new()).unwrap(),
        expected
    );
}

#[test]
fn prop_4_each_conflict_is_reported_with_path_and_reason() {
    let link = |to: &str| RandomNode::Link(to.as_bytes().to_vec());
    let cases = [
        (
            Some(file(0o644, "1\n2\n")),
            Some(file(0o644, "x\n2\n")),
            Some(file(0o644, "y\n2\n")),
            "both sides edited the same place: line 1",
        ),
        (
            Some(file(0o644, "1\n")),
            Some(file(0o644, "1\na\n")),
            Some(file(0o644, "1\nb\n")),
            "both sides edited the same place: line 2",
        ),
        (
            Some(file(0o644, "1\0")),
            Some(file(0o644, "2\0")),
            Some(file(0o644, "3\0")),
            "both sides changed it, and its lines cannot be compared",
        ),
        (
            None,
            Some(file(0o644, "a")),
            Some(file(0o644, "b")),
            "both sides added it, with different content",
        ),
        (
            Some(file(0o644, "1")),
            None,
            Some(file(0o644, "2")),
            "it was deleted on our side and changed on the other",
        ),
        (
            Some(file(0o644, "1")),
            Some(file(0o644, "2")),
            None,
            "it was changed on our side and deleted on the other",
        ),
        (
            Some(link("1")),
            Some(link("2")),
            Some(link("3")),
            "both sides changed where the link leads",
        ),
        (
            Some(file(0o644, "1")),
            Some(file(0o644, "2")),
            Some(link("1")),
            "it became a different kind of file on each side",
        ),
        (
            Some(file(0o644, "1")),
            Some(file(0o755, "1")),
            Some(file(0o600, "1")),
            "both sides changed its permission bits",
        ),
    ];
    for (base, ours, theirs, expected) in cases {
        let of = |node: Option<RandomNode>| -> RandomNodes {
            let untouched = (path("other"), file(0o644, "other"));
            let node = node.map(|node| (path("dir/it"), node));
            node.into_iter().chain([untouched]).collect()
        };
        let error = merged(&of(base), &of(ours), &of(theirs)).unwrap_err();
        assert_eq!(error, [("dir/it".to_owned(), expected.to_owned())]);
    }
}

#[test]
fn prop_4_merge_result_that_is_not_a_valid_tree_is_a_conflict() {
    let told = |ours: &str, theirs: &str| {
        let side = |name: &str| tree(&[(name, file(0o644, name))]);
        merged(&RandomNodes::new(), &side(ours), &side(theirs)).unwrap_err()
    };
    let case = ConflictReason::Twins { other: path("A") }.to_string();
    assert_eq!(told("A", "a"), [("a".to_owned(), case)]);
    // Their side replaced by a file a directory to which our side added something.
    let was = tree(&[("d/old", file(0o644, "old"))]);
    let ours = tree(&[("d/old", file(0o644, "old")), ("d/new", file(0o644, "new"))]);
    let theirs = tree(&[("d", file(0o644, "file"))]);
    let below = ConflictReason::InTheWay { of: path("d") }.to_string();
    let expected = [("d/new".to_owned(), below)];
    assert_eq!(merged(&was, &ours, &theirs).unwrap_err(), expected);
    // Both sides replaced a missing path differently.
    let ours = tree(&[("d/new", file(0o644, "new"))]);
    let kinds = ConflictReason::Kinds.to_string();
    let expected = [("d".to_owned(), kinds)];
    assert_eq!(
        merged(&RandomNodes::new(), &ours, &theirs).unwrap_err(),
        expected
    );
}
