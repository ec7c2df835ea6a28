use super::*;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn create(at: &str) -> FileOperation {
    FileOperation::Create { path: path(at) }
}

fn append(at: &str, offset: u64) -> FileOperation {
    FileOperation::Append {
        path: path(at),
        offset,
        bytes: b"x".to_vec(),
    }
}

fn cut(at: &str) -> FileOperation {
    FileOperation::SetLen {
        path: path(at),
        len: 0,
    }
}

fn rename(from: &str, to: &str) -> FileOperation {
    FileOperation::Rename {
        from: path(from),
        to: path(to),
    }
}

fn directory(at: &str) -> FileOperation {
    FileOperation::CreateDir { path: path(at) }
}

fn remove(at: &str) -> FileOperation {
    FileOperation::RemoveTree { path: path(at) }
}

/// Number of these changes that one window admits.
fn admitted(operations: &[FileOperation]) -> usize {
    let mut window = Window::default();
    let taken = operations.iter().take_while(|operation| {
        let is_admitted = window.admits(operation);
        window.add(operation);
        is_admitted
    });
    taken.count()
}

#[test]
fn operations_that_cannot_be_redone_exactly_wait_for_a_note() {
    for spoilt in [
        vec![rename("x.tmp", "x"), create("x.tmp")],
        vec![create("b"), rename("a", "b")],
        vec![remove("b"), rename("a", "b")],
        vec![append("a", 5), rename("a", "b")],
        vec![append("d/a", 0), remove("d")],
        vec![rename("a", "b"), remove("b")],
        vec![create("a"), remove("a"), directory("a")],
        vec![remove("d"), directory("d"), rename("a", "d/a")],
        vec![remove("d/a"), rename("d", "e")],
    ] {
        assert_eq!(admitted(&spoilt), spoilt.len() - 1, "{spoilt:?}");
    }
}

#[test]
fn atomically_made_files_can_be_replayed_any_number_of_times() {
    for kept in [
        // A file is replaced twice.
        vec![
            create("x.tmp"),
            append("x.tmp", 0),
            rename("x.tmp", "x"),
            create("x.tmp"),
            append("x.tmp", 0),
            append("x.tmp", 1),
            rename("x.tmp", "x"),
        ],
        // An instance is created and used.
        vec![
            directory(".new"),
            directory(".new/messages"),
            create(".new/messages/inbox"),
            rename(".new", "a"),
            append("a/messages/inbox", 0),
            append("a/messages/inbox", 1),
            cut("a/messages/inbox"),
            remove("a"),
        ],
        // The truncation is below the initial length; repeated appends are owed until the next
        // truncation.
        vec![append("a", 5), cut("a"), append("a", 0)],
        vec![rename("a", "b"), append("b", 9), cut("b")],
        // Journals grow and are truncated before that.
        vec![
            cut("a"),
            append("a", 0),
            append("a", 1),
            append("b", 7),
            append("b", 8),
        ],
    ] {
        assert_eq!(admitted(&kept), kept.len(), "{kept:?}");
    }
}
