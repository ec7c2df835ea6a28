//! Reads the end of audit logs (`INST-6`, `SEC-5`) for display.
//!
//! Reading changes nothing. Unreadable lines are skipped and counted.

use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::limits::READ_CHUNK_BYTES;
use goondan_protocol::JsonObject;
use goondan_protocol::control::AuditCursor;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::limits::{HISTORY_PAGE_BYTES, MAX_AUDIT_PAGE};

use crate::error::StoreError;
use crate::root::AUDIT_FILE;
use crate::root::Layout;

/// A page of one or more audit logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Records with their workspaces, oldest first. Records of the system log have no workspace.
    pub records: Vec<(Option<WorkspaceId>, JsonObject)>,
    /// End of the previous page, if there is one.
    pub previous: Option<AuditCursor>,
    pub unreadable: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logs {
    Workspace(WorkspaceId),
    /// The system's log and the logs of all workspaces with a folder, open or not.
    All,
}

/// Returns the records of one or more logs, merged by time, that end at `before` or at the end of
/// the logs. Returns at most `limit` records (default and maximum: [`MAX_AUDIT_PAGE`]) from at most
/// [`HISTORY_PAGE_BYTES`].
///
/// # Errors
///
/// [`StoreError::File`].
pub fn page(
    disk: &dyn Disk,
    layout: &Layout,
    logs: &Logs,
    before: Option<&AuditCursor>,
    limit: Option<usize>,
) -> Result<AuditPage, StoreError> {
    let limit = limit.unwrap_or(MAX_AUDIT_PAGE).clamp(1, MAX_AUDIT_PAGE);
    let mut tails = Vec::new();
    for owner in owners(disk, layout, logs)? {
        let end = before.map(|before| place_in(before, owner.as_ref()));
        let dir = owner
            .as_ref()
            .map_or_else(|| layout.system(), |id| layout.workspace(id));
        if let Some(tail) = Tail::read(disk, &dir.join(AUDIT_FILE), end, limit)? {
            tails.push((owner, tail));
        }
    }
    let mut page = AuditPage::default();
    let mut bytes = 0;
    while page.records.len() < limit {
        for (_, tail) in &mut tails {
            page.unreadable += tail.pass_over_unreadable();
        }
        // Unread records of this log may be newer than those of the other logs.
        if tails.iter().any(|(_, tail)| tail.is_read_up()) {
            break;
        }
        // Times have one format, in UTC, so they sort as strings. Of equal times, the later log's
        // record comes last. The lines of one log keep their order, even if their times do not.
        let latest = tails.iter_mut().filter(|(_, tail)| tail.time().is_some());
        let Some((owner, tail)) = latest.max_by(|a, b| a.1.time().cmp(&b.1.time())) else {
            break;
        };
        bytes += tail.last_bytes();
        if bytes > HISTORY_PAGE_BYTES && !page.records.is_empty() {
            break;
        }
        let record = tail.take();
        page.records
            .extend(record.map(|record| (owner.clone(), record)));
    }
    page.records.reverse();
    page.previous = cursor_at(&tails);
    Ok(page)
}

/// Number of bytes of a log before a page.
fn place_in(cursor: &AuditCursor, owner: Option<&WorkspaceId>) -> u64 {
    let place = match owner {
        None => cursor.system,
        Some(id) => cursor.workspaces.get(id).copied(),
    };
    place.unwrap_or(0)
}

fn cursor_at(tails: &[(Option<WorkspaceId>, Tail)]) -> Option<AuditCursor> {
    let mut cursor = AuditCursor::default();
    for (owner, tail) in tails.iter().filter(|(_, tail)| tail.left() > 0) {
        match owner {
            None => cursor.system = Some(tail.left()),
            Some(id) => {
                cursor.workspaces.insert(id.clone(), tail.left());
            }
        }
    }
    (cursor != AuditCursor::default()).then_some(cursor)
}

/// Visits the records of a workspace's log with a line that contains one of the texts, oldest
/// first. Skips unreadable lines.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn each_with(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    texts: &[&str],
    mut show: impl FnMut(JsonObject),
) -> Result<(), StoreError> {
    let path = layout.workspace(id).join(AUDIT_FILE);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(());
    }
    let mut journal = Journal::open_read(disk, &path)?;
    let (mut from, mut rest) = (0, Vec::new());
    while from < journal.len() {
        let window = (journal.len() - from).min(HISTORY_PAGE_BYTES as u64);
        let bytes = journal.read(from, usize::try_from(window).unwrap_or(0))?;
        from += window;
        rest.extend(bytes);
        let whole = rest.iter().rposition(|byte| *byte == b'\n');
        let behind = match whole {
            Some(at) => rest.split_off(at + 1),
            // No record is that long, so the rest of the line is skipped.
            None if rest.len() > HISTORY_PAGE_BYTES => Vec::new(),
            None => std::mem::take(&mut rest),
        };
        for line in rest.split(|byte| *byte == b'\n') {
            let is_wanted = std::str::from_utf8(line)
                .is_ok_and(|line| texts.iter().any(|text| line.contains(text)));
            if is_wanted && let Ok(record) = serde_json::from_slice(line) {
                show(record);
            }
        }
        rest = behind;
    }
    Ok(())
}

/// Owners of the selected logs; `None` is the system log.
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
    if disk.stat(&dir).during("inspect", &dir)?.is_some() {
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

/// The unconsumed end of a log that was read.
struct Tail {
    lines: Vec<AuditLine>,
    /// Offset of the first line read.
    floor: u64,
    /// Offset of the records already consumed; used when no line is left.
    taken_from: u64,
}

struct AuditLine {
    offset: u64,
    bytes: usize,
    /// `None` if the line is unreadable.
    record: Option<JsonObject>,
}

impl Tail {
    /// Reads up to `limit` lines that end at `end`, or at the log's end. `None` if the log does not
    /// exist.
    fn read(
        disk: &dyn Disk,
        path: &Path,
        end: Option<u64>,
        limit: usize,
    ) -> Result<Option<Self>, StoreError> {
        if end == Some(0) || disk.stat(path).during("inspect", path)?.is_none() {
            return Ok(None);
        }
        let mut journal = Journal::open_read(disk, path)?;
        let end = end.unwrap_or(u64::MAX).min(journal.len());
        let (from, bytes) = end_of(&mut journal, end, limit)?;
        let mut offset = from;
        let mut lines: Vec<AuditLine> = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            lines.push(AuditLine {
                offset,
                bytes: line.len(),
                record: serde_json::from_slice(line).ok(),
            });
            offset += line.len() as u64;
        }
        // The first line may be cut. If it is the only one, it is unreadable.
        if from > 0 && lines.len() > 1 {
            lines.remove(0);
        }
        let floor = lines.first().map_or(0, |line| line.offset);
        lines.retain(|line| line.bytes > 1 || line.record.is_some());
        Ok(Some(Self {
            lines,
            floor,
            taken_from: end,
        }))
    }

    /// Number of bytes of the log before the consumed records.
    fn left(&self) -> u64 {
        if self.lines.is_empty() {
            self.floor
        } else {
            self.taken_from
        }
    }

    /// Drops unreadable lines at the end and returns their number.
    fn pass_over_unreadable(&mut self) -> u64 {
        let mut passed_over = 0;
        while let Some(line) = self.lines.pop_if(|line| line.record.is_none()) {
            self.taken_from = line.offset;
            passed_over += 1;
        }
        passed_over
    }

    /// True if all lines read are consumed and the log has earlier ones.
    fn is_read_up(&self) -> bool {
        self.lines.is_empty() && self.floor > 0
    }

    fn time(&self) -> Option<&str> {
        let record = self.lines.last()?.record.as_ref()?;
        Some(time_of(record))
    }

    fn last_bytes(&self) -> usize {
        self.lines.last().map_or(0, |line| line.bytes)
    }

    fn take(&mut self) -> Option<JsonObject> {
        let line = self.lines.pop()?;
        self.taken_from = line.offset;
        line.record
    }
}

/// Returns a window with at least `limit` whole lines that end at `end`, and its offset.
fn end_of(journal: &mut Journal, end: u64, limit: usize) -> Result<(u64, Vec<u8>), StoreError> {
    let mut window = READ_CHUNK_BYTES;
    loop {
        let from = end.saturating_sub(u64::try_from(window).unwrap_or(u64::MAX));
        let bytes = journal.read(from, usize::try_from(end - from).unwrap_or(usize::MAX))?;
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        // One more line than requested, because the first may be cut.
        if from == 0 || lines > limit || window > HISTORY_PAGE_BYTES {
            return Ok((from, bytes));
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

    fn seconds(page: &AuditPage) -> Vec<String> {
        let times = page.records.iter();
        times
            .map(|(_, r)| time_of(r).get(17..19).unwrap().to_owned())
            .collect()
    }

    /// Returns the newest records with the default limit.
    fn latest(disk: &SimulatedDisk, logs: &Logs) -> AuditPage {
        page(disk, &Layout::new("/s"), logs, None, None).unwrap()
    }

    /// Returns all records in pages of `limit`, oldest first, and the number of unreadable lines.
    fn in_pages(disk: &SimulatedDisk, logs: &Logs, limit: usize) -> (Vec<String>, u64) {
        let layout = Layout::new("/s");
        let (mut seconds_seen, mut unreadable, mut before) = (Vec::new(), 0, None);
        loop {
            let page = page(disk, &layout, logs, before.as_ref(), Some(limit)).unwrap();
            assert!(page.records.len() <= limit.max(1));
            seconds_seen.splice(0..0, seconds(&page));
            unreadable += page.unreadable;
            if page.previous.is_none() {
                return (seconds_seen, unreadable);
            }
            assert_ne!(page.previous, before);
            before = page.previous;
        }
    }

    #[test]
    fn inst_6_latest_audit_records_are_listed_newest_last() {
        let disk = disk();
        let text: String = (0..9).map(line).collect();
        let id = workspace_with(&disk, "/p", text.as_bytes());
        let logs = Logs::Workspace(id.clone());
        let all = latest(&disk, &logs);
        assert_eq!((all.records.len(), &all.previous), (9, &None));
        let few = page(&disk, &Layout::new("/s"), &logs, None, Some(3)).unwrap();
        assert_eq!(seconds(&few), ["06", "07", "08"]);
        let before = few.previous.unwrap();
        assert_eq!(before.workspaces[&id], 6 * line(0).len() as u64);
        // Records written in the meantime are on no earlier page.
        let grown: String = (0..12).map(line).collect();
        disk.plant(
            &Layout::new("/s").workspace(&id).join(AUDIT_FILE),
            grown.as_bytes(),
        )
        .unwrap();
        let few = page(&disk, &Layout::new("/s"), &logs, Some(&before), Some(4)).unwrap();
        assert_eq!(seconds(&few), ["02", "03", "04", "05"]);
    }

    #[test]
    fn obs_1_audit_of_several_workspaces_is_merged_in_any_page_size() {
        let disk = disk();
        let a = workspace_with(&disk, "/a", [line(1), line(4)].concat().as_bytes());
        // The clock was set back in between, and two records have the same time.
        let second = [line(2), line(3), line(9), line(5), line(4)].concat();
        let b = workspace_with(&disk, "/b", second.as_bytes());
        let found = latest(&disk, &Logs::All);
        let ids: Vec<_> = found.records.iter().map(|(id, _)| id.clone()).collect();
        let expected = [&a, &b, &b, &a, &b, &b, &b];
        assert_eq!(ids, expected.map(|id| Some(id.clone())));
        for limit in 0..9 {
            let (seen, unreadable) = in_pages(&disk, &Logs::All, limit);
            assert_eq!(seen, seconds(&found), "{limit}");
            assert_eq!(unreadable, 0);
        }
    }

    #[test]
    fn inst_6_unreadable_audit_records_are_skipped_and_counted() {
        let disk = disk();
        let text = [
            "\n",
            "[]\n",
            &line(1),
            "\0\0\n",
            "[]\n",
            "\n",
            &line(2),
            "{\"at\":",
        ];
        let id = workspace_with(&disk, "/p", text.concat().as_bytes());
        let logs = Logs::Workspace(id);
        let found = latest(&disk, &logs);
        assert_eq!(seconds(&found), ["01", "02"]);
        assert_eq!((found.unreadable, found.previous), (4, None));
        for limit in 1..4 {
            let expected = ["01", "02"].map(str::to_owned);
            assert_eq!(in_pages(&disk, &logs, limit), (expected.to_vec(), 4));
        }
    }

    #[test]
    fn inst_6_a_log_longer_than_a_window_is_read_from_its_end() {
        let disk = disk();
        let count = 3 * READ_CHUNK_BYTES / line(0).len();
        let text: String = (0..60).cycle().take(count).map(line).collect();
        let id = workspace_with(&disk, "/p", text.as_bytes());
        let (seen, unreadable) = in_pages(&disk, &Logs::Workspace(id), MAX_AUDIT_PAGE);
        assert_eq!((seen.len(), unreadable), (count, 0));
    }

    #[test]
    fn obs_1_a_log_without_lines_is_passed_over_in_parts() {
        let disk = disk();
        let text = [vec![b'\n'], vec![b'x'; 2 * HISTORY_PAGE_BYTES]].concat();
        let id = workspace_with(&disk, "/p", &text);
        let (seen, unreadable) = in_pages(&disk, &Logs::Workspace(id), 1);
        assert!(seen.is_empty() && unreadable > 0);
    }

    #[test]
    fn obs_1_a_page_ends_before_so_many_bytes() {
        let disk = disk();
        let long = format!(
            "{{\"at\":\"2026-01-01T00:00:01.000Z\",\"text\":\"{}\"}}\n",
            "x".repeat(HISTORY_PAGE_BYTES * 2 / 3)
        );
        let id = workspace_with(&disk, "/p", long.repeat(3).as_bytes());
        let found = latest(&disk, &Logs::Workspace(id.clone()));
        assert_eq!(found.records.len(), 1);
        let (seen, unreadable) = in_pages(&disk, &Logs::Workspace(id), 9);
        assert_eq!((seen.len(), unreadable), (3, 0));
    }

    #[test]
    fn records_with_a_text_are_shown_whole_however_long_the_log_is() {
        let disk = disk();
        let padding = "x".repeat(HISTORY_PAGE_BYTES / 3);
        let wanted = |n: usize| format!("{{\"event\":\"y\",\"n\":{n},\"p\":\"{padding}\"}}\n");
        let text: String = (0..9).map(|n| line(1) + &wanted(n)).collect();
        let endless = "\"y\"".repeat(HISTORY_PAGE_BYTES);
        let all = format!("{endless}\n{text}{{\"event\":\"y\",");
        let id = workspace_with(&disk, "/p", all.as_bytes());
        let mut seen = Vec::new();
        each_with(&disk, &Layout::new("/s"), &id, &["\"y\"", "zz"], |record| {
            seen.push(record["n"].as_u64().unwrap());
        })
        .unwrap();
        assert_eq!(seen, Vec::from_iter(0..9));
        each_with(&disk, &Layout::new("/s"), &id, &["zz"], |_| panic!("none")).unwrap();
    }

    #[test]
    fn a_workspace_without_a_log_has_no_records() {
        let disk = disk();
        let layout = Layout::new("/s");
        let record = workspace::open(&disk, &layout, Path::new("/p"), None).unwrap();
        let found = latest(&disk, &Logs::Workspace(record.workspace_id));
        assert_eq!(found, AuditPage::default());
    }
}
