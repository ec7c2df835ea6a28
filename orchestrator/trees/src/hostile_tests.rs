//! Goal: a forged or damaged patch is rejected as a whole. Method: a list of small modifications of
//! a valid patch, and a change of every single byte.

use std::path::Path;

use goondan_durable::disk::{Folder, SimulatedDisk};

use crate::RelativePath;
use crate::apply::{ApplyError, Tree, apply, prove};
use crate::diff::diff;
use crate::manifest::Manifest;
use crate::patch::Patch;
use crate::random_trees::{RandomNode, RandomNodes, write};

const ONE: &str = "5626abf0f72e58d7a153368ba57db4c673c0e171"; // one\n
const TWO: &str = "f719efd430d52bcfc8566a43b2eb655688d38871"; // two\n
const NONE: &str = "0000000000000000000000000000000000000000";

fn path(text: &str) -> RelativePath {
    RelativePath::new(text.as_bytes()).unwrap()
}

fn file(content: &[u8]) -> RandomNode {
    let content = content.to_vec();
    RandomNode::File {
        mode: 0o644,
        content,
    }
}

fn base() -> RandomNodes {
    RandomNodes::from([
        (path("f"), file(b"one\n")),
        (path("link"), RandomNode::Link(b"d".to_vec())),
        (path("d/x"), file(b"x")),
        (path("secret"), file(b"s\n")),
    ])
}

fn written(nodes: &RandomNodes) -> (Box<dyn Folder>, Manifest) {
    let folder = SimulatedDisk::new().folder(Path::new("/"));
    let manifest = write(folder.as_ref(), nodes);
    (folder, manifest)
}

/// True if the patch is accepted, for paths other than `secret`.
fn is_taken(text: &[u8]) -> bool {
    let (folder, manifest) = written(&base());
    let tree = Tree {
        manifest: &manifest,
        folder: folder.as_ref(),
    };
    let is_allowed = |touched: &RelativePath| *touched != path("secret");
    Patch::parse(text).is_ok_and(|patch| apply(&patch, tree, &is_allowed).is_ok())
}

fn edit(name: &str, old: &str, new: &str) -> String {
    format!(
        "diff --git a/{name} b/{name}\nindex {old}..{new} 100644\n--- a/{name}\n+++ b/{name}\n\
         @@ -1 +1 @@\n-one\n+two\n"
    )
}

fn new(name: &str) -> String {
    format!(
        "diff --git a/{name} b/{name}\nnew file mode 100644\nindex {NONE}..{TWO}\n--- /dev/null\n\
         +++ b/{name}\n@@ -0,0 +1 @@\n+two\n"
    )
}

#[test]
fn prop_4_hostile_patches_are_refused_whole() {
    let good = edit("f", ONE, TWO);
    assert!(is_taken(good.as_bytes()) && is_taken(new("n").as_bytes()) && is_taken(b""));
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    let hostile = [
        ("another path in the lines", with("+++ b/f", "+++ b/secret")),
        ("another path before", with("--- a/f", "--- a/secret")),
        (
            "two names",
            with("diff --git a/f b/f", "diff --git a/f b/secret"),
        ),
        (
            "a rename",
            with(
                "index",
                "similarity index 90%\nrename from f\nrename to secret\nindex",
            ),
        ),
        ("a copy", with("index", "copy from f\ncopy to g\nindex")),
        ("not on the list", edit("secret", ONE, TWO)),
        ("a wrong digest before", edit("f", TWO, ONE)),
        (
            "a wrong digest after",
            edit("f", ONE, &TWO.replace('f', "0")),
        ),
        ("a short digest", edit("f", "5626abf", "f719efd")),
        (
            "no digest",
            with(&format!("index {ONE}..{TWO} 100644\n"), ""),
        ),
        ("the mode of a directory", with("100644", "040000")),
        ("the mode of a submodule", with("100644", "160000")),
        ("another mode", with("100644", "100755")),
        ("too few lines", with("-1 +1", "-1,2 +1,2")),
        ("too many lines", with("-1 +1", "-1 +1,0")),
        ("another place", with("-1 +1", "-2 +2")),
        ("places apart", with("-1 +1", "-1 +2")),
        (
            "a number that is too large",
            with("-1 +1", "-99999999999999999999 +1"),
        ),
        ("another line", with("-one", "-One")),
        ("text after it", with("+two\n", "+two\nrm -rf /\n")),
        ("text before it", format!("From: somebody\n{good}")),
        ("cut off", good.trim_end().to_owned()),
        (
            "the same file twice",
            format!("{good}{}", edit("f", TWO, ONE)),
        ),
        ("made twice", format!("{}{}", new("n"), new("n"))),
        ("made where it is", new("f")),
        ("no context of hunks", with("@@ -1 +1 @@\n-one\n+two\n", "")),
        ("upwards", new("../n")),
        ("upwards inside", new("d/../../n")),
        ("absolute", new("/etc/n")),
        ("git", new(".git/hooks/pre-commit")),
        ("git in another case", new("d/.GIT/config")),
        ("git on Windows", new("git~1/config")),
        ("git as NTFS has it", new(".git::$INDEX_ALLOCATION/x")),
        ("git on HFS+", new("\u{200c}.git/config")),
        (
            "quoted upwards",
            new("n").replace("a/n b/n", "\"a/..\\057n\" \"b/..\\057n\""),
        ),
        ("a NUL", new("n").replace("b/n", "b/n\0")),
        ("through a link", new("link/y")),
        ("below a file", new("f/y")),
        ("a directory's place", new("d")),
        ("twins", new("F")),
        ("twin directories", new("D/y")),
        ("two twins", format!("{}{}", new("n"), new("N"))),
    ];
    for (what, text) in &hostile {
        assert!(!is_taken(text.as_bytes()), "{what} was taken:\n{text}");
        // A valid part before or after it makes no difference.
        let both = format!("{}{text}", new("other"));
        assert!(
            !is_taken(both.as_bytes()),
            "{what} was taken after a good one"
        );
    }
}

/// Content lines that look like headings are content.
#[test]
fn prop_4_content_that_looks_like_a_patch_is_content() {
    let inner = new("secret");
    let after = RandomNodes::from([(path("f"), file(format!("one\n{inner}").as_bytes()))]);
    let before = RandomNodes::from([(path("f"), file(inner.as_bytes()))]);
    let ((a, a_manifest), (b, b_manifest)) = (written(&before), written(&after));
    let one = Tree {
        manifest: &a_manifest,
        folder: a.as_ref(),
    };
    let other = Tree {
        manifest: &b_manifest,
        folder: b.as_ref(),
    };
    let patch = Patch::parse(&diff(one, other).unwrap().patch).unwrap();
    let touched: Vec<&RelativePath> = patch
        .files()
        .iter()
        .map(crate::patch::FilePatch::path)
        .collect();
    assert_eq!(touched, [&path("f")]);
    prove(&patch, one, &b_manifest).unwrap();
    // The patch must not prove a different or damaged tree.
    assert!(matches!(
        prove(&patch, one, &a_manifest),
        Err(ApplyError::Misfit { .. })
    ));
    let damaged = Tree {
        manifest: &a_manifest,
        folder: b.as_ref(),
    };
    assert!(matches!(
        prove(&patch, damaged, &b_manifest),
        Err(ApplyError::Tree(_))
    ));
}

/// With any byte changed, the result is an error or that of the unmodified patch.
#[test]
fn prop_4_no_changed_byte_makes_another_tree() {
    let before = base();
    let mut after = base();
    after.insert(path("f"), file(b"one\nmore\n"));
    after.insert(path("bin"), file(&[0, 1, 2, 255, 0, 7]));
    after.insert(path("l2"), RandomNode::Link(b"f".to_vec()));
    after.remove(&path("d/x"));
    let ((a, a_manifest), (b, b_manifest)) = (written(&before), written(&after));
    let one = Tree {
        manifest: &a_manifest,
        folder: a.as_ref(),
    };
    let other = Tree {
        manifest: &b_manifest,
        folder: b.as_ref(),
    };
    let text = diff(one, other).unwrap().patch;
    let whole = apply(&Patch::parse(&text).unwrap(), one, &|_| true).unwrap();
    let contents = |applied: &crate::apply::PatchedFiles| -> Vec<_> {
        applied
            .values()
            .map(|leaf| leaf.as_ref().map(|leaf| leaf.content.clone()))
            .collect()
    };
    let (mut taken, mut refused) = (0, 0);
    for at in 0..text.len() {
        for flip in [0x01, 0x20, 0x80] {
            let mut changed = text.clone();
            changed[at] ^= flip;
            let came = Patch::parse(&changed)
                .ok()
                .and_then(|patch| apply(&patch, one, &|_| true).ok());
            match came {
                None => refused += 1,
                Some(came) => {
                    // Accepted changes: the unused reverse part of a binary, the case of a digit,
                    // and the mode or name of a new file. The comparison with the trees covers
                    // these.
                    assert_eq!(contents(&came).len(), contents(&whole).len());
                    let is_same = came.iter().all(|(path, leaf)| match leaf {
                        Some(leaf) => whole
                            .values()
                            .flatten()
                            .any(|known| known.content == leaf.content),
                        None => whole.get(path) == Some(&None),
                    });
                    assert!(is_same, "at {at}");
                    taken += 1;
                }
            }
        }
    }
    assert!(refused > 10 * taken, "{refused} refused, {taken} taken");
}
