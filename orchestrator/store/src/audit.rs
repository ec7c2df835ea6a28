//! Reading the end of audit logs (`INST-6`, `SEC-5`), for people.
//!
//! Reading changes nothing. A line that cannot be read, whatever damaged it, is passed over and counted.

use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::limits::READ_CHUNK_BYTES;
use goondan_protocol::JsonObject;
use goondan_protocol::ids::WorkspaceId;

use crate::error::StoreError;
use crate::root::AUDIT_FILE;
use crate::root::Layout;

/// The end of one or more audit logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    /// The records with their workspaces, oldest first; those of the system have none.
    pub records: Vec<(Option<WorkspaceId>, JsonObject)>,
    /// Whether there are earlier ones.
    pub earlier: bool,
    /// Lines that cannot be read.
    pub unreadable: u64,
}

/// Whose logs are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logs {
    /// That of one workspace.
    Workspace(WorkspaceId),
    /// The system's own and those of all workspaces that there are folders of, open or not.
    All,
}

/// How much of the logs is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Records.
    pub records: usize,
    /// Bytes that these take.
    pub bytes: usize,
}

/// The latest records of one or more logs together, by their times.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn tail(disk: &dyn Disk, layout: &Layout, logs: &Logs, most: Most) -> Result<Tail, StoreError> {
    let mut all: Vec<(Option<WorkspaceId>, JsonObject, usize)> = Vec::new();
    let mut tail = Tail::default();
    for id in owners(disk, layout, logs)? {
        let dir = id
            .as_ref()
            .map_or_else(|| layout.system(), |id| layout.workspace(id));
        let one = tail_of(disk, &dir.join(AUDIT_FILE), most)?;
        tail.earlier |= one.earlier;
        tail.unreadable += one.unreadable;
        let records = one.records.into_iter();
        all.extend(records.map(|(record, bytes)| (id.clone(), record, bytes)));
    }
    // Times are written in one form, in UTC, so their order is that of their letters; and sorting
    // keeps the order of a workspace's own lines.
    all.sort_by(|a, b| time_of(&a.1).cmp(time_of(&b.1)));
    let mut bytes = 0;
    let kept = all
        .iter()
        .rev()
        .take(most.records)
        .take_while(|(_, _, length)| {
            bytes += length;
            bytes <= most.bytes
        })
        .count();
    let left_out = all.len() - kept;
    tail.earlier |= left_out > 0;
    tail.records = all
        .into_iter()
        .skip(left_out)
        .map(|(id, record, _)| (id, record))
        .collect();
    Ok(tail)
}

/// Whose the logs are; the system's own is nobody's.
fn owners(
    disk: &dyn Disk,
    layout: &Layout,
    logs: &Logs,
) -> Result<Vec<Option<WorkspaceId>>, StoreError> {
    if let Logs::Workspace(id) = logs {
        return Ok(vec![Some(id.clone())]);
    }
    let dir = layout.workspaces();
    let mut owners = vec![None];
    if disk.stat(&dir).during("look at", &dir)?.is_some() {
        let entries = disk.list(&dir).during("list", &dir)?.into_iter();
        let names = entries.filter_map(|entry| entry.name.into_string().ok());
        owners.extend(names.filter_map(|name| name.parse().ok()).map(Some));
    }
    Ok(owners)
}

fn time_of(record: &JsonObject) -> &str {
    let at = record.get("at").and_then(serde_json::Value::as_str);
    at.unwrap_or_default()
}

#[derive(Default)]
struct Lines {
    /// With their lengths in bytes, oldest first.
    records: Vec<(JsonObject, usize)>,
    earlier: bool,
    unreadable: u64,
}

fn tail_of(disk: &dyn Disk, path: &Path, most: Most) -> Result<Lines, StoreError> {
    let mut found = Lines::default();
    if disk.stat(path).during("look at", path)?.is_none() {
        return Ok(found);
    }
    let mut journal = Journal::open_read(disk, path)?;
    let (mut bytes, begins_whole) = end_of(&mut journal, most)?;
    if !begins_whole {
        let first_line = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..first_line.map_or(bytes.len(), |at| at + 1));
    }
    found.earlier = !begins_whole;
    let lines = bytes.split(|byte| *byte == b'\n');
    for line in lines.rev().filter(|line| !line.is_empty()) {
        if found.records.len() == most.records {
            found.earlier = true;
            break;
        }
        match serde_json::from_slice(line) {
            Ok(record) => found.records.push((record, line.len())),
            Err(_) => found.unreadable += 1,
        }
    }
    found.records.reverse();
    Ok(found)
}

/// The end of a file that holds as many whole lines as are wanted, and whether it is the whole file.
fn end_of(journal: &mut Journal, most: Most) -> Result<(Vec<u8>, bool), StoreError> {
    let mut window = READ_CHUNK_BYTES;
    loop {
        let from = journal
            .len()
            .saturating_sub(u64::try_from(window).unwrap_or(u64::MAX));
        let bytes = journal.read(from, window)?;
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        // One line more than is wanted, since the first may be cut.
        if from == 0 || lines > most.records || window > most.bytes {
            return Ok((bytes, from == 0));
        }
        window = window.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use goondan_durable::disk::SimulatedDisk;

    use super::*;
    use crate::workspace;

    const ALL: Most = Most {
        records: 1_000,
        bytes: 1 << 20,
    };

    fn workspace_with(disk: &SimulatedDisk, project: &str, content: &[u8]) -> WorkspaceId {
        let layout = Layout::new("/s");
        let record = workspace::open(disk, &layout, Path::new(project), None).unwrap();
        let path = layout.workspace(&record.workspace_id).join(AUDIT_FILE);
        disk.plant(&path, content).unwrap();
        record.workspace_id
    }

    fn disk() -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        for dir in ["/s", "/s/workspaces"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        disk
    }

    fn line(second: u32) -> String {
        format!("{{\"at\":\"2026-01-01T00:00:{second:02}.000Z\",\"event\":\"x\"}}\n")
    }

    fn seconds(tail: &Tail) -> Vec<String> {
        let times = tail.records.iter();
        times
            .map(|(_, r)| time_of(r).get(17..19).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn inst_6_the_latest_records_come_newest_last() {
        let disk = disk();
        let text: String = (0..9).map(line).collect();
        let id = workspace_with(&disk, "/p", text.as_bytes());
        let layout = Layout::new("/s");
        let all = tail(&disk, &layout, &Logs::Workspace(id.clone()), ALL).unwrap();
        assert_eq!((all.records.len(), all.earlier), (9, false));
        let three = Most { records: 3, ..ALL };
        let few = tail(&disk, &layout, &Logs::Workspace(id.clone()), three).unwrap();
        assert_eq!(seconds(&few), ["06", "07", "08"]);
        assert!(few.earlier);
        let small = Most {
            bytes: 2 * line(0).len(),
            ..ALL
        };
        let few = tail(&disk, &layout, &Logs::Workspace(id), small).unwrap();
        assert_eq!(seconds(&few), ["07", "08"]);
        assert!(few.earlier);
    }

    #[test]
    fn inst_6_several_workspaces_are_told_as_one_story() {
        let disk = disk();
        let a = workspace_with(&disk, "/a", [line(1), line(4)].concat().as_bytes());
        let b = workspace_with(&disk, "/b", [line(2), line(3)].concat().as_bytes());
        let found = tail(&disk, &Layout::new("/s"), &Logs::All, ALL).unwrap();
        let ids: Vec<_> = found
            .records
            .iter()
            .map(|(id, _)| id.clone().unwrap())
            .collect();
        assert_eq!(ids, [a.clone(), b.clone(), b, a]);
    }

    #[test]
    fn inst_6_what_cannot_be_read_is_passed_over_and_counted() {
        let disk = disk();
        let text = [&line(1), "\0\0\n", "[]\n", "\n", &line(2), "{\"at\":"].concat();
        let id = workspace_with(&disk, "/p", text.as_bytes());
        let found = tail(&disk, &Layout::new("/s"), &Logs::Workspace(id), ALL).unwrap();
        assert_eq!(seconds(&found), ["01", "02"]);
        assert_eq!((found.unreadable, found.earlier), (3, false));
    }

    #[test]
    fn inst_6_a_log_longer_than_a_window_is_read_from_its_end() {
        let disk = disk();
        let line_bytes = line(0).len();
        let count = 3 * READ_CHUNK_BYTES / line_bytes;
        let text: String = (0..60).cycle().take(count).map(line).collect();
        let id = workspace_with(&disk, "/p", text.as_bytes());
        let wanted = READ_CHUNK_BYTES / line_bytes + 10;
        let most = Most {
            records: wanted,
            ..ALL
        };
        let found = tail_of(
            &disk,
            &Layout::new("/s").workspace(&id).join(AUDIT_FILE),
            most,
        )
        .unwrap();
        assert_eq!((found.records.len(), found.unreadable), (wanted, 0));
        assert!(found.earlier);
    }

    #[test]
    fn a_workspace_without_a_log_has_no_records() {
        let disk = disk();
        let layout = Layout::new("/s");
        let record = workspace::open(&disk, &layout, Path::new("/p"), None).unwrap();
        let found = tail(&disk, &layout, &Logs::Workspace(record.workspace_id), ALL).unwrap();
        assert_eq!(found, Tail::default());
    }
}
