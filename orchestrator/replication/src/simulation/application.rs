//! Application of the owner: it accepts events, runs a tool for each, and answers them.

use std::collections::BTreeMap;

use crate::operation::{FileOperation, RelativePath};
use crate::tree::MemoryTree;

/// Step of an event, as recorded in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventStep {
    Accepted,
    Started,
    Ended,
    Unknown,
    Answered,
}

impl EventStep {
    fn letter(self) -> char {
        match self {
            Self::Accepted => 'A',
            Self::Started => 'S',
            Self::Ended => 'E',
            Self::Unknown => 'U',
            Self::Answered => 'N',
        }
    }

    fn of(letter: char) -> Self {
        let all = [
            Self::Accepted,
            Self::Started,
            Self::Ended,
            Self::Unknown,
            Self::Answered,
        ];
        all.into_iter()
            .find(|said| said.letter() == letter)
            .unwrap()
    }
}

pub(super) fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

pub(super) fn journal() -> RelativePath {
    path("inbox.jsonl")
}

/// All steps in the journal, by event and in order.
pub(super) fn read(tree: &MemoryTree) -> BTreeMap<u64, Vec<EventStep>> {
    let mut events: BTreeMap<u64, Vec<EventStep>> = BTreeMap::new();
    let text = tree.file(&journal()).unwrap_or_default();
    for line in String::from_utf8_lossy(text).lines() {
        let mut letters = line.chars();
        let said = EventStep::of(letters.next().unwrap());
        events
            .entry(letters.as_str().parse().unwrap())
            .or_default()
            .push(said);
    }
    events
}

pub(super) fn line(tree: &MemoryTree, event: u64, said: EventStep) -> Vec<FileOperation> {
    let len = tree.file(&journal()).map_or(0, <[u8]>::len);
    let text = format!("{}{event}\n", said.letter());
    FileOperation::appends(&journal(), len as u64, text.as_bytes())
}

/// Other changes of a store: files that are recreated, truncated, renamed and removed.
pub(super) fn chore(tree: &MemoryTree, rng: &mut fastrand::Rng) -> Vec<FileOperation> {
    let name = path(&format!("d{}/f{}", rng.u8(0..3), rng.u8(0..3)));
    let dir = name.parent().unwrap();
    let bytes: Vec<u8> = (0..rng.usize(1..30)).map(|_| rng.u8(..)).collect();
    let len = tree.file(&name).map(<[u8]>::len);
    let mut operations = vec![FileOperation::CreateDir { path: dir.clone() }];
    match (rng.u8(0..6), len) {
        (0, Some(len)) => operations.push(FileOperation::SetLen {
            path: name,
            len: rng.u64(0..=len as u64),
        }),
        (1, Some(_)) => operations.push(FileOperation::RemoveFile { path: name }),
        (2, _) => operations = vec![FileOperation::RemoveTree { path: dir }],
        (3, _) => {
            let fresh = path(&format!("{dir}/new"));
            operations.push(FileOperation::Create {
                path: fresh.clone(),
            });
            operations.extend(FileOperation::appends(&fresh, 0, &bytes));
            operations.push(FileOperation::Rename {
                from: fresh,
                to: name,
            });
        }
        (_, len) => operations.extend(FileOperation::appends(
            &name,
            len.unwrap_or(0) as u64,
            &bytes,
        )),
    }
    operations
}
