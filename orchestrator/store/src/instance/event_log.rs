//! Paged reading of `runtime-events.jsonl` for display (`MSG-12`). Never an input of state.

use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::Disk;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::limits::HISTORY_PAGE_BYTES;
use goondan_protocol::observe::RuntimeEvent;

use super::segments::{PositionedPart, SegmentPart, SegmentReader};
use super::{MESSAGES, OBSERVED};
use crate::error::StoreError;
use crate::file_names::instance_dir_name;

/// A page of an instance's runtime events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedPage {
    /// The events, oldest first.
    pub events: Vec<RuntimeEvent>,
    /// Number of unreadable lines, which are skipped.
    pub unreadable: u64,
    /// Offset of the next page; `None` on the last page, and on pages that are read backwards.
    pub next: Option<u64>,
    /// End of the preceding page; `None` on the first page, and on pages that are read forwards.
    pub previous: Option<u64>,
}

/// Reads the page that begins at byte `offset`: whole lines, little more than
/// [`HISTORY_PAGE_BYTES`]. Excludes a last line that is still being written. Safe while a writer
/// thread appends.
///
/// # Errors
///
/// [`StoreError::NoInstance`]; [`StoreError::HistoryChanged`] if no line begins at `offset`;
/// [`StoreError::File`].
pub fn read_event_log(
    disk: &dyn Disk,
    instances: &Path,
    key: &InstanceKey,
    offset: u64,
) -> Result<ObservedPage, StoreError> {
    let Some(reading) = open(disk, instances, key)? else {
        return Ok(ObservedPage::default());
    };
    // Offset 0 means the oldest event still kept.
    let offset = if offset == 0 { reading.first() } else { offset };
    match reading.part_at(offset)? {
        Some(placed) => page_of(placed, offset),
        None => Ok(ObservedPage::default()),
    }
}

/// Reads the page that ends at byte `before`: whole lines, at most [`HISTORY_PAGE_BYTES`]. An
/// offset beyond the log selects the latest events, without a last line that is still being
/// written. Safe while a writer thread appends.
///
/// # Errors
///
/// [`StoreError::NoInstance`]; [`StoreError::HistoryChanged`] if no line ends at `before`;
/// [`StoreError::File`].
pub fn read_event_log_before(
    disk: &dyn Disk,
    instances: &Path,
    key: &InstanceKey,
    before: u64,
) -> Result<ObservedPage, StoreError> {
    let Some(reading) = open(disk, instances, key)? else {
        return Ok(ObservedPage::default());
    };
    let (first, end) = (reading.first(), reading.end()?);
    let is_latest = before > end;
    let before = before.min(end);
    if before <= first {
        return Ok(ObservedPage::default());
    }
    let Some(placed) = reading.part_at(before - 1)? else {
        return Ok(ObservedPage::default());
    };
    let (mut page, start) = page_before(placed, before, is_latest)?;
    page.previous = (start > first).then_some(start);
    Ok(page)
}

/// Opens the log of an instance; `None` if another implementation wrote the instance.
fn open<'d>(
    disk: &'d dyn Disk,
    instances: &Path,
    key: &InstanceKey,
) -> Result<Option<SegmentReader<'d>>, StoreError> {
    let dir = instances.join(instance_dir_name(key));
    if disk.stat(&dir).during("inspect", &dir)?.is_none() {
        return Err(StoreError::NoInstance { key: key.clone() });
    }
    let messages = dir.join(MESSAGES);
    if disk.stat(&messages).during("inspect", &messages)?.is_none() {
        return Ok(None);
    }
    SegmentReader::open(disk, &messages, OBSERVED).map(Some)
}

/// Returns the page of a part that ends at log offset `before`, and the log offset of its start.
fn page_before(
    placed: PositionedPart,
    before: u64,
    is_latest: bool,
) -> Result<(ObservedPage, u64), StoreError> {
    let PositionedPart {
        mut part, start, ..
    } = placed;
    let mut page = ObservedPage::default();
    if let SegmentPart::Whole(None) = part {
        page.unreadable = 1;
        return Ok((page, start));
    }
    let mut end = before - start;
    if part.read(end - 1, 1)? != b"\n" {
        if !is_latest {
            return Err(StoreError::HistoryChanged);
        }
        end = start_of_line(&mut part, end)?;
    }
    let from = end.saturating_sub(HISTORY_PAGE_BYTES as u64);
    let chunk = part.read(from, usize::try_from(end - from).unwrap_or(usize::MAX))?;
    let skipped = match chunk.iter().position(|byte| *byte == b'\n') {
        Some(at) if from > 0 => at + 1,
        _ => 0,
    };
    let lines = chunk.get(skipped..).unwrap_or_default();
    if lines.is_empty() && end > 0 {
        // No event is that long.
        page.unreadable = 1;
        return Ok((page, start + start_of_line(&mut part, end - 1)?));
    }
    page.add(lines);
    Ok((page, start + from + skipped as u64))
}

/// Returns the offset at which the line that contains the byte before `end` begins.
fn start_of_line(part: &mut SegmentPart, mut end: u64) -> Result<u64, StoreError> {
    while end > 0 {
        let from = end.saturating_sub(HISTORY_PAGE_BYTES as u64);
        let chunk = part.read(from, usize::try_from(end - from).unwrap_or(usize::MAX))?;
        if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

impl ObservedPage {
    /// Adds whole lines.
    fn add(&mut self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n') {
            match RuntimeEvent::from_record(line) {
                Ok(event) => self.events.push(event),
                Err(_) if line.is_empty() => {}
                Err(_) => self.unreadable += 1,
            }
        }
    }
}

fn page_of(placed: PositionedPart, offset: u64) -> Result<ObservedPage, StoreError> {
    let PositionedPart {
        mut part,
        start,
        next,
    } = placed;
    let mut page = ObservedPage::default();
    if let SegmentPart::Whole(None) = part {
        page.unreadable = 1;
        page.next = next;
        return Ok(page);
    }
    let (offset, len) = (offset - start, part.len());
    let is_line_start = offset <= len && (offset == 0 || part.read(offset - 1, 1)? == b"\n");
    if !is_line_start {
        return Err(StoreError::HistoryChanged);
    }
    let chunk = part.read(offset, HISTORY_PAGE_BYTES)?;
    let Some(last) = chunk.iter().rposition(|byte| *byte == b'\n') else {
        if let Some(end) = end_of_line(&mut part, offset + chunk.len() as u64)? {
            // No event is that long.
            page.unreadable = 1;
            page.next = if end < len { Some(start + end) } else { next };
        } else {
            page.next = next;
        }
        return Ok(page);
    };
    let (lines, rest) = chunk.split_at(last + 1);
    page.add(lines);
    let end = offset + lines.len() as u64;
    let has_more = end + (rest.len() as u64) < len || rest.contains(&b'\n');
    page.next = if has_more { Some(start + end) } else { next };
    Ok(page)
}

/// Returns the offset after the line at `offset`; `None` if the line has no newline.
fn end_of_line(part: &mut SegmentPart, mut offset: u64) -> Result<Option<u64>, StoreError> {
    loop {
        let chunk = part.read(offset, HISTORY_PAGE_BYTES)?;
        if chunk.is_empty() {
            return Ok(None);
        }
        if let Some(at) = chunk.iter().position(|byte| *byte == b'\n') {
            return Ok(Some(offset + at as u64 + 1));
        }
        offset += chunk.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::SimulatedDisk;

    use super::*;

    fn line(turn: usize) -> String {
        let event = serde_json::json!({
            "type": "turn.started",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "00f067aa0ba902b7",
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": format!("t{turn}"),
        });
        format!("{event}\n")
    }

    fn key() -> InstanceKey {
        InstanceKey::new("main").unwrap()
    }

    fn disk_with(content: &[u8]) -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        for dir in ["/i", "/i/main", "/i/main/messages"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        let path = Path::new("/i/main/messages").join(OBSERVED);
        disk.plant(&path, content).unwrap();
        disk
    }

    fn read_all(disk: &SimulatedDisk) -> (Vec<String>, u64, usize) {
        let (mut turns, mut unreadable, mut pages) = (Vec::new(), 0, 0);
        let mut next = Some(0);
        while let Some(offset) = next {
            let page = read_event_log(disk, Path::new("/i"), &key(), offset).unwrap();
            turns.extend(page.events.iter().map(|event| event.turn_id.to_string()));
            unreadable += page.unreadable;
            pages += 1;
            assert!(page.next.is_none_or(|next| next > offset));
            next = page.next;
        }
        (turns, unreadable, pages)
    }

    fn read_back(disk: &SimulatedDisk) -> (Vec<String>, u64, usize) {
        let (mut turns, mut unreadable, mut pages) = (Vec::new(), 0, 0);
        let mut previous = Some(u64::MAX);
        while let Some(before) = previous {
            let page = read_event_log_before(disk, Path::new("/i"), &key(), before).unwrap();
            let names = page.events.iter().map(|event| event.turn_id.to_string());
            turns.splice(0..0, names);
            unreadable += page.unreadable;
            pages += 1;
            assert_eq!(page.next, None);
            assert!(page.previous.is_none_or(|previous| previous < before));
            previous = page.previous;
        }
        (turns, unreadable, pages)
    }

    #[test]
    fn msg_12_pages_from_the_end_hold_every_line_once() {
        let count = 2 * HISTORY_PAGE_BYTES / line(0).len() + 5;
        let text: String = (0..count).map(line).collect();
        let disk = disk_with(text.as_bytes());
        let (turns, unreadable, pages) = read_back(&disk);
        let expected: Vec<String> = (0..count).map(|turn| format!("t{turn}")).collect();
        assert_eq!(turns, expected);
        assert_eq!((unreadable, pages), (0, 3));
        let latest = read_event_log_before(&disk, Path::new("/i"), &key(), u64::MAX).unwrap();
        let last = latest.events.last().map(|event| event.turn_id.to_string());
        assert_eq!(last, expected.last().cloned());
    }

    #[test]
    fn msg_12_pages_from_the_end_read_segments_as_well() {
        let text: String = (0..40).map(line).collect();
        let (old, new) = text.split_at(text.len() / 2);
        let (old, new) = match new.split_once('\n') {
            Some((head, rest)) => (format!("{old}{head}\n"), rest.to_owned()),
            None => panic!("a line"),
        };
        let disk = disk_with(new.as_bytes());
        let name = "runtime-events.000000000000000.2026-11-22.jsonl";
        let path = Path::new("/i/main/messages").join(name);
        disk.plant(&path, old.as_bytes()).unwrap();
        let expected: Vec<String> = (0..40).map(|turn| format!("t{turn}")).collect();
        assert_eq!(read_back(&disk), (expected, 0, 2));
    }

    #[test]
    fn msg_12_pages_from_the_end_pass_over_damage() {
        let huge = "x".repeat(2 * HISTORY_PAGE_BYTES + 9);
        let text = [&line(1), "\0\n", "\n", &huge, "\n", &line(2), "{\"ty"].concat();
        let disk = disk_with(text.as_bytes());
        let (turns, unreadable, _) = read_back(&disk);
        assert_eq!(turns, ["t1", "t2"]);
        assert_eq!(unreadable, 2, "a line that is being written is not damage");
        let within = read_event_log_before(&disk, Path::new("/i"), &key(), 3);
        assert!(matches!(within, Err(StoreError::HistoryChanged)));
        let only_begun = disk_with(b"{\"ty");
        assert_eq!(read_back(&only_begun), (Vec::new(), 0, 1));
    }

    #[test]
    fn msg_12_pages_hold_every_line_once() {
        let count = 2 * HISTORY_PAGE_BYTES / line(0).len() + 5;
        let text: String = (0..count).map(line).collect();
        let (turns, unreadable, pages) = read_all(&disk_with(text.as_bytes()));
        let expected: Vec<String> = (0..count).map(|turn| format!("t{turn}")).collect();
        assert_eq!(turns, expected);
        assert_eq!((unreadable, pages), (0, 3));
    }

    #[test]
    fn msg_12_damage_is_passed_over_and_counted() {
        let huge = "x".repeat(2 * HISTORY_PAGE_BYTES + 9);
        let text = [&line(1), "\0\n", "\n", &huge, "\n", &line(2), "{\"ty"].concat();
        let (turns, unreadable, _) = read_all(&disk_with(text.as_bytes()));
        assert_eq!(turns, ["t1", "t2"]);
        assert_eq!(unreadable, 2, "a line that is being written is not damage");
    }

    #[test]
    fn msg_12_there_may_be_no_file_no_instance_and_no_line_there() {
        let disk = disk_with(line(1).as_bytes());
        let look = |offset| read_event_log(&disk, Path::new("/i"), &key(), offset);
        for offset in [3, 1_000_000] {
            let error = look(offset).unwrap_err();
            assert!(matches!(error, StoreError::HistoryChanged), "{error}");
        }
        assert_eq!(look(line(1).len() as u64).unwrap(), ObservedPage::default());
        let nobody = InstanceKey::new("nobody").unwrap();
        let error = read_event_log(&disk, Path::new("/i"), &nobody, 0).unwrap_err();
        assert!(matches!(error, StoreError::NoInstance { .. }), "{error}");
        disk.remove_file(&Path::new("/i/main/messages").join(OBSERVED))
            .unwrap();
        assert_eq!(look(0).unwrap(), ObservedPage::default());
    }
}
