use proptest::prelude::*;

use super::*;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn made_of(operations: &[FileOperation]) -> MemoryTree {
    let mut tree = MemoryTree::default();
    for operation in operations {
        tree.apply(operation).unwrap();
    }
    tree
}

/// Typical changes of a store: journals grow and are truncated, files are replaced by renames,
/// directories come and go.
fn life_of_a_journal(pieces: &[Vec<u8>]) -> Vec<FileOperation> {
    let (journal, fresh, base) = (path("i/journal"), path("i/base.new"), path("i/base"));
    let mut operations = vec![FileOperation::CreateDir { path: path("i") }];
    let mut len = 0;
    for (round, piece) in pieces.iter().enumerate() {
        operations.extend(FileOperation::appends(&journal, len, piece));
        len += piece.len() as u64;
        if round % 3 == 2 && len > 0 {
            operations.push(FileOperation::Create {
                path: fresh.clone(),
            });
            operations.extend(FileOperation::appends(&fresh, 0, piece));
            operations.push(FileOperation::Rename {
                from: fresh.clone(),
                to: base.clone(),
            });
            operations.push(FileOperation::SetLen {
                path: journal.clone(),
                len: 0,
            });
            len = 0;
        }
    }
    operations
}

#[test]
fn directory_moves_with_its_content_and_replaces_its_target() {
    let tree = made_of(&[
        FileOperation::CreateDir { path: path("new") },
        FileOperation::Append {
            path: path("new/a"),
            offset: 0,
            bytes: b"1".to_vec(),
        },
        FileOperation::Rename {
            from: path("new"),
            to: path("old"),
        },
    ]);
    assert_eq!(tree.file(&path("old/a")), Some(b"1".as_slice()));
    assert_eq!(tree.file(&path("new/a")), None);
}

#[test]
fn mismatching_operation_is_reported_with_its_path() {
    let mut tree = made_of(&[FileOperation::CreateDir { path: path("d") }]);
    let append = |path, offset| FileOperation::Append {
        path,
        offset,
        bytes: vec![1],
    };
    let before = tree.clone();
    for (operation, why) in [
        (append(path("f"), 3), MismatchKind::Missing),
        (append(path("d"), 0), MismatchKind::OtherKind),
        (
            FileOperation::Create { path: path("d") },
            MismatchKind::OtherKind,
        ),
        (
            FileOperation::Rename {
                from: path("x"),
                to: path("y"),
            },
            MismatchKind::Missing,
        ),
    ] {
        assert_eq!(
            tree.apply(&operation).unwrap_err().why,
            why,
            "{operation:?}"
        );
    }
    assert_eq!(tree, before);
    tree.apply(&append(path("f"), 0)).unwrap();
    let far = FileOperation::SetLen {
        path: path("f"),
        len: u64::MAX,
    };
    assert_eq!(tree.apply(&far).unwrap_err().why, MismatchKind::Shorter);
    assert_eq!(
        tree.apply(&append(path("f"), 2)).unwrap_err().why,
        MismatchKind::Shorter
    );
}

#[test]
fn digests_distinguish_trees() {
    let file = |name: &str, bytes: &[u8]| FileOperation::Append {
        path: path(name),
        offset: 0,
        bytes: bytes.to_vec(),
    };
    let trees = [
        made_of(&[]),
        made_of(&[FileOperation::CreateDir { path: path("a") }]),
        made_of(&[FileOperation::Create { path: path("a") }]),
        made_of(&[file("a", b"x")]),
        made_of(&[file("a", b"y")]),
        made_of(&[file("b", b"x")]),
        made_of(&[file("a", b"x"), file("b", b"x")]),
    ];
    for (at, tree) in trees.iter().enumerate() {
        for other in trees.iter().skip(at + 1) {
            assert_ne!(tree.digest(), other.digest(), "{tree:?} {other:?}");
        }
    }
}

proptest! {
    /// A replay may start anywhere before the state of the files and produces the same result.
    #[test]
    fn replay_over_newer_files_changes_nothing(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..9), 1..12),
        at in any::<prop::sample::Index>(),
        ahead in any::<prop::sample::Index>(),
    ) {
        let operations = life_of_a_journal(&pieces);
        let whole = made_of(&operations);
        let ahead = ahead.index(operations.len() + 1);
        let at = at.index(ahead + 1);
        let mut tree = made_of(&operations[..ahead]);
        // A file that is truncated later may be too short for an earlier append; the mismatch is
        // reported.
        let fits = operations[at..].iter().try_for_each(|operation| tree.apply(operation));
        if fits.is_ok() {
            prop_assert_eq!(tree, whole);
        }
    }
}
