//! Goal: the patch of two trees turns one into the other, byte for byte, and git agrees. Method:
//! random pairs of trees; our implementation for each, git for some.

use std::path::Path;
use std::process::Command;

use fastrand::Rng;
use goondan_durable::disk::{Folder, SimulatedDisk};

use crate::RealFolder;
use crate::apply::{Tree, apply, patch_part, prove};
use crate::diff::diff;
use crate::freeze::freeze;
use crate::manifest::Manifest;
use crate::patch::{FileMode, Patch};
use crate::random_trees::{RandomNode, RandomNodes, everything, mutated, nodes, read, write};

/// Number of pairs, unless `GOONDAN_TEST_TREE_PAIRS` is set.
const PAIRS: u64 = 300;

/// git checks one pair out of this many.
const GIT_EVERY: u64 = 15;

/// Pairs checked by git in a long run.
const GIT_PAIRS: u64 = 300;

fn pairs() -> u64 {
    std::env::var("GOONDAN_TEST_TREE_PAIRS").map_or(PAIRS, |pairs| pairs.parse().unwrap())
}

fn written(nodes: &RandomNodes) -> (Box<dyn Folder>, Manifest) {
    let folder = SimulatedDisk::new().folder(Path::new("/"));
    let manifest = write(folder.as_ref(), nodes);
    (folder, manifest)
}

/// Returns the tree after the patch.
fn result(before: &RandomNodes, applied: &crate::apply::PatchedFiles) -> RandomNodes {
    let mut result = before.clone();
    for (path, leaf) in applied {
        result.remove(path);
        if let Some(leaf) = leaf {
            let content = leaf.content.clone();
            let node = match leaf.mode {
                FileMode::Link => RandomNode::Link(content),
                FileMode::Executable => RandomNode::File {
                    mode: 0o755,
                    content,
                },
                FileMode::Regular => RandomNode::File {
                    mode: 0o644,
                    content,
                },
            };
            result.insert(path.clone(), node);
        }
    }
    result
}

fn git(directory: &Path, ceiling: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", ceiling)
        .output()
        .unwrap()
}

fn accepted(seed: u64, what: &str, output: &std::process::Output) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "seed {seed}: git {what}: {printed}"
    );
}

/// True if a self-referencing link becomes a directory, which git does not support.
fn is_beyond_git(project: &Path, after: &Manifest) -> bool {
    let leads_to_itself = |(path, _): (&crate::RelativePath, &_)| {
        let found = std::fs::symlink_metadata(project.join(path.as_path()));
        found.is_err_and(|error| error.raw_os_error() == Some(40))
    };
    after.entries().any(leads_to_itself)
}

/// Applies the patch with git: in a repository's root, in a project below one, and outside any.
fn ask_git(seed: u64, before: &dyn Folder, after: &Manifest, patch: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().canonicalize().unwrap();
    let file = top.join("changes.patch");
    #[expect(clippy::disallowed_methods, reason = "git reads the file")]
    std::fs::write(&file, patch).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let parent = RealFolder::open(&top).unwrap();
    for place in ["plain", "repository", "outer"] {
        let project = if place == "outer" {
            parent.create_dir(Path::new("outer"), 0o755).unwrap();
            accepted(seed, "init", &git(&top.join(place), &top, &["init", "-q"]));
            freeze(
                before,
                parent.below(Path::new("outer")).unwrap().as_ref(),
                "p",
                &everything(),
            )
            .unwrap();
            top.join("outer/p")
        } else {
            freeze(before, &parent, place, &everything()).unwrap();
            top.join(place)
        };
        if place == "repository" {
            accepted(seed, "init", &git(&project, &top, &["init", "-q"]));
        }
        if patch.is_empty() || is_beyond_git(&project, after) {
            continue;
        }
        let ceiling = project.parent().unwrap();
        let check = git(&project, ceiling, &["apply", "--check", &file]);
        accepted(seed, place, &check);
        accepted(seed, place, &git(&project, ceiling, &["apply", &file]));
        let made = read(&RealFolder::open(&project).unwrap());
        let leaves = |manifest: &Manifest| -> Vec<_> {
            let leaf = |(path, entry): (&crate::RelativePath, &_)| {
                Some((path.clone(), patch_part(entry)?))
            };
            manifest.entries().filter_map(leaf).collect()
        };
        assert_eq!(
            leaves(&made),
            leaves(after),
            "seed {seed}: git made another tree in {place}"
        );
    }
}

fn pair(seed: u64, is_git_asked: bool) {
    let mut random = Rng::with_seed(seed);
    let before = nodes(&mut random, 10);
    let after = if random.u8(..6) == 0 {
        nodes(&mut random, 10)
    } else {
        mutated(&mut random, &before)
    };
    compared(seed, &before, &after, is_git_asked);
}

/// Compares two trees, and applies the patch to the first.
fn compared(seed: u64, before: &RandomNodes, after: &RandomNodes, is_git_asked: bool) {
    let (a, a_manifest) = written(before);
    let (b, b_manifest) = written(after);
    let (one, other) = (
        Tree {
            manifest: &a_manifest,
            folder: a.as_ref(),
        },
        Tree {
            manifest: &b_manifest,
            folder: b.as_ref(),
        },
    );
    let difference = diff(one, other).unwrap();
    let patch = Patch::parse(&difference.patch).unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(&difference.patch);
        panic!(
            "seed {seed}: {error}: {:?}\n{text}",
            std::error::Error::source(&error)
        )
    });
    let applied = apply(&patch, one, &|_| true).unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(&difference.patch);
        panic!("seed {seed}: {error}\n{text}")
    });
    assert!(
        result(before, &applied) == *after,
        "seed {seed}: another tree came out"
    );
    prove(&patch, one, &b_manifest).unwrap();
    let touched: Vec<_> = applied.keys().cloned().collect();
    let changed: Vec<_> = difference
        .changed
        .iter()
        .map(|(path, _)| path.clone())
        .collect();
    assert_eq!(touched, changed, "seed {seed}");
    assert_eq!(before == after, difference.patch.is_empty(), "seed {seed}");
    if is_git_asked {
        ask_git(seed, a.as_ref(), &b_manifest, &difference.patch);
    }
}

#[test]
fn prop_2_patch_of_two_trees_recreates_the_other_like_git() {
    // Long runs test our implementation, because git starts several processes for each pair.
    let every = GIT_EVERY.max(pairs() / GIT_PAIRS);
    for seed in 0..pairs() {
        pair(seed, seed % every == 0);
    }
}

/// Size of the files of the test below.
const LARGE_BYTES: usize = 100 * 1024 * 1024;

/// Files of 100 MB, changed, new and deleted: incompressible binary, and text too long for a line
/// diff. Takes four minutes of CPU and 1 GB of memory, so it runs only if
/// `GOONDAN_TEST_LARGE_FILES` is set.
#[test]
fn prop_2_patches_of_large_files_recreate_the_tree_like_git() {
    if std::env::var_os("GOONDAN_TEST_LARGE_FILES").is_none() {
        return;
    }
    let mut random = Rng::with_seed(1);
    let mut noise = vec![0; LARGE_BYTES];
    random.fill(&mut noise);
    let text = b"a line among many others of the same length\n".repeat(LARGE_BYTES / 44);
    let file = |content: Vec<u8>| RandomNode::File {
        mode: 0o644,
        content,
    };
    let path = |name: &str| crate::RelativePath::new(name.as_bytes()).unwrap();
    let nodes = |of: Vec<(&str, Vec<u8>)>| -> RandomNodes {
        let nodes = of.into_iter().map(|(name, text)| (path(name), file(text)));
        nodes.collect()
    };
    let (mut other_noise, mut other_text) = (noise.clone(), text.clone());
    other_noise[LARGE_BYTES / 2..][..1_000_000].reverse();
    other_text.splice(44_000_000..44_000_000, *b"one line more\n");
    // One pair for each file, because one patch for all files would be too long.
    for (before, after) in [
        (vec![("noise", noise.clone())], vec![("noise", other_noise)]),
        (vec![("text", text.clone())], vec![("text", other_text)]),
        (vec![], vec![("new", noise.clone())]),
        (vec![("gone", noise)], vec![]),
    ] {
        compared(0, &nodes(before), &nodes(after), true);
    }
}

#[test]
fn unpatchable_file_is_rejected_before_it_is_read() {
    let folder = SimulatedDisk::new().folder(Path::new("/"));
    let nothing = Manifest::default();
    let mut builder =
        crate::ManifestBuilder::new(crate::limits::Limits::default(), crate::Names::Portable);
    let entry = |bytes| crate::TreeEntry::File {
        mode: 0o644,
        bytes,
        sha256: crate::Digest::of(b""),
    };
    let path = crate::RelativePath::new(b"large").unwrap();
    let bytes = crate::limits::PATCH_FILE_BYTES_MAX as u64 + 1;
    builder.add(path, entry(bytes)).unwrap();
    let large = builder.finish();
    // The folder is empty, so that a read would fail differently.
    let tree = |manifest| Tree {
        manifest,
        folder: folder.as_ref(),
    };
    for (before, after) in [(&nothing, &large), (&large, &nothing)] {
        let refused = diff(tree(before), tree(after)).unwrap_err();
        assert!(
            matches!(refused, crate::TreeError::Limit { .. }),
            "{refused}"
        );
    }
    assert!(diff(tree(&large), tree(&large)).unwrap().patch.is_empty());
}

/// Patches written by git for the same trees are parsed and applied, including deltas.
#[test]
fn prop_2_patches_that_git_wrote_are_read() {
    for seed in 0..pairs().min(1000) / 10 {
        let mut random = Rng::with_seed(1_000_000 + seed);
        let mut before = nodes(&mut random, 8);
        let mut after = mutated(&mut random, &before);
        // Large and slightly different: a delta.
        let mut large: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(4000)
            .collect();
        let path = crate::RelativePath::new(b"large.bin").unwrap();
        before.insert(
            path.clone(),
            RandomNode::File {
                mode: 0o644,
                content: large.clone(),
            },
        );
        large.splice(1000..1010, *b"\0changed");
        after.insert(
            path,
            RandomNode::File {
                mode: 0o644,
                content: large,
            },
        );
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let parent = RealFolder::open(&top).unwrap();
        let (a, manifest) = written(&before);
        let (b, _) = written(&after);
        freeze(a.as_ref(), &parent, "a", &everything()).unwrap();
        freeze(b.as_ref(), &parent, "b", &everything()).unwrap();
        let arguments = [
            "diff",
            "--no-index",
            "--binary",
            "--full-index",
            "--no-renames",
            "--no-prefix",
            "--no-ext-diff",
            "--no-textconv",
            "a",
            "b",
        ];
        let said = git(&top, &top, &arguments).stdout;
        let patch = Patch::parse(&said).unwrap_or_else(|error| {
            panic!("seed {seed}: {error}\n{}", String::from_utf8_lossy(&said))
        });
        let tree = Tree {
            manifest: &manifest,
            folder: a.as_ref(),
        };
        let applied = apply(&patch, tree, &|_| true).unwrap();
        assert!(result(&before, &applied) == after, "seed {seed}");
    }
}
