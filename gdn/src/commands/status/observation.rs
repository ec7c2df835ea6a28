//! Size of the conversations' observation logs (`MSG-12`, `LLM-1`), and how much was dropped. Computed from file names
//! and lengths; no file is opened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// Maximum number of conversations scanned.
const CONVERSATIONS_MAX: usize = 20_000;

/// File name prefixes of a conversation's two logs.
const LOGS: [&str; 2] = ["runtime-events.", "llm."];

/// Totals of the observation logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observation {
    /// Bytes on disk.
    pub(super) bytes: u64,
    /// Uncompressed size of the dropped data, in bytes.
    pub(super) dropped_bytes: u64,
    /// True if there are more conversations than were scanned.
    pub(super) is_partial: bool,
}

/// Scans the conversations of a state directory. Unreadable files are skipped, because they may have just been
/// deleted.
pub(super) fn survey(state_root: &Path) -> Observation {
    let mut found = Observation::default();
    let conversations = entries(&state_root.join("workspaces"))
        .flat_map(|workspace| entries(&workspace.path().join("instances")));
    for (number, conversation) in conversations.enumerate() {
        if number == CONVERSATIONS_MAX {
            found.is_partial = true;
            break;
        }
        add(&conversation.path().join("messages"), &mut found);
    }
    found
}

fn entries(dir: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten()
}

fn add(messages: &Path, found: &mut Observation) {
    let mut oldest: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in entries(messages) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Some(log) = LOGS.into_iter().find(|log| name.starts_with(log)) else {
            continue;
        };
        found.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        if let Some(start) = start_of_segment(&name, log) {
            let oldest = oldest.entry(log).or_insert(start);
            *oldest = start.min(*oldest);
        }
    }
    found.dropped_bytes += oldest.values().sum::<u64>();
}

/// Offset of a segment's first byte in its log: `<log>.<place>.<day>.jsonl.gz`.
fn start_of_segment(name: &str, log: &str) -> Option<u64> {
    let (start, rest) = name.strip_prefix(log)?.split_once('.')?;
    let is_segment = rest.ends_with(".jsonl.gz") || rest.ends_with(".jsonl");
    start.parse().ok().filter(|_| is_segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_sizes_and_dropped_lines_are_summed_up() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("a", "runtime-events.jsonl", 5),
            ("a", "runtime-events.000000000000300.2026-11-21.jsonl.gz", 7),
            ("a", "runtime-events.000000000000200.2026-11-20.jsonl.gz", 6),
            ("a", "llm.000000000000010.2026-11-20.jsonl", 4),
            ("a", "base.jsonl", 1_000),
            ("b", "llm.jsonl", 3),
        ];
        for (conversation, name, len) in files {
            let dir = root.path().join("workspaces/w/instances");
            let dir = dir.join(conversation).join("messages");
            fs::create_dir_all(&dir).unwrap();
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create_new(true).open(dir.join(name));
            file.unwrap().set_len(len).unwrap();
        }
        let expected = Observation {
            bytes: 25,
            dropped_bytes: 210,
            is_partial: false,
        };
        assert_eq!(survey(root.path()), expected);
        assert_eq!(survey(&root.path().join("none")), Observation::default());
    }
}
