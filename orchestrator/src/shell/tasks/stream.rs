//! Files of a task's stream: items as JSON lines, in a current and an older file of bounded size
//! (`AGENT-7`).
//!
//! A position is the number of bytes before it in the whole stream. The first line of a file has the
//! position of the file, unless that is 0. Nothing is synced, so a crash can lose the end.

use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, read_all, read_full};
use goondan_durable::{FileError, IoContext as _};
use goondan_protocol::control::{ControlError, ErrorCode, TaskStreamPart};
use goondan_tasks::work_area::{Log, OLDER_STREAM, WorkArea, WorkAreaError};
use serde::{Deserialize, Serialize};

use crate::limits::{TASK_STREAM_BYTES_MAX, TASK_STREAM_PART_BYTES};

/// Bytes at the start of a file that contain its header.
const HEADER_BYTES: usize = 64;

/// Part of the line with which a run begins. In a text, its quotation marks would be escaped.
const RUN_BEGINS: &[u8] = br#""event":"run_requested""#;

/// First line of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    from: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    path: PathBuf,
    from: u64,
    len: u64,
}

impl Part {
    fn end(&self) -> u64 {
        self.from.saturating_add(self.len)
    }
}

/// Position and size of the current file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    from: u64,
    len: u64,
}

fn part_at(disk: &dyn Disk, path: PathBuf) -> io::Result<Option<Part>> {
    let stat = disk.stat(&path)?;
    let Some(len) = stat.map(|stat| stat.len).filter(|len| *len > 0) else {
        return Ok(None);
    };
    let mut first = [0; HEADER_BYTES];
    let read = read_full(disk.open_read(&path)?.as_mut(), &mut first, 0)?;
    let first = first.get(..read).unwrap_or_default();
    let line = first.split(|byte| *byte == b'\n').next();
    let header = line.and_then(|line| serde_json::from_slice::<Header>(line).ok());
    let from = header.map_or(0, |header| header.from);
    Ok(Some(Part { path, from, len }))
}

/// The files of a stream, the older one first.
fn parts(disk: &dyn Disk, work_area: &Path) -> io::Result<Vec<Part>> {
    let paths = [OLDER_STREAM, Log::Stream.path()].map(|path| work_area.join(path));
    let mut parts = Vec::new();
    for path in paths {
        parts.extend(part_at(disk, path)?);
    }
    Ok(parts)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Appends lines. A full file becomes the older one, which replaces the one before it.
pub(super) fn append(
    disk: &dyn Disk,
    area: &WorkArea,
    size: &mut Option<Size>,
    lines: &[u8],
) -> Result<(), WorkAreaError> {
    let path = area.log_path(Log::Stream);
    let known = match size.take() {
        Some(known) => known,
        None => found(disk, &path)?,
    };
    let end = known.from.saturating_add(known.len);
    let is_full = known.len > 0 && known.len.saturating_add(length(lines)) > TASK_STREAM_BYTES_MAX;
    if is_full {
        area.rotate_stream(disk)?;
    }
    let next = match is_full || (known.len == 0 && known.from > 0) {
        true => {
            let mut bytes = goondan_tasks::work_area::json_line(&Header { from: end })?;
            bytes.extend_from_slice(lines);
            area.log(disk, Log::Stream, &bytes)?;
            Size {
                from: end,
                len: length(&bytes),
            }
        }
        false => {
            area.log(disk, Log::Stream, lines)?;
            Size {
                len: known.len.saturating_add(length(lines)),
                ..known
            }
        }
    };
    *size = Some(next);
    Ok(())
}

/// Position and size of the current file, from the disk.
fn found(disk: &dyn Disk, path: &Path) -> Result<Size, FileError> {
    let part = part_at(disk, path.to_owned()).during("read", path)?;
    if let Some(Part { from, len, .. }) = part {
        return Ok(Size { from, len });
    }
    // A crash may have lost the file after the older one was replaced.
    let root = path.parent().and_then(Path::parent);
    let older = root.map(|root| root.join(OLDER_STREAM));
    let older = older.map_or(Ok(None), |older| part_at(disk, older));
    let older = older.during("read", path)?;
    let from = older.map_or(0, |older| older.end());
    Ok(Size { from, len: 0 })
}

/// Reads a part of a stream.
pub(super) fn read(
    disk: &dyn Disk,
    work_area: &Path,
    after: Option<u64>,
) -> Result<TaskStreamPart, ControlError> {
    let read = read_part(disk, work_area, after, TASK_STREAM_PART_BYTES);
    read.map_err(|error| {
        let path = work_area.join(Log::Stream.path());
        let text = format!("cannot read `{}`: {error}", path.display());
        ControlError::new(ErrorCode::Storage, text)
    })
}

fn read_part(
    disk: &dyn Disk,
    work_area: &Path,
    after: Option<u64>,
    bytes_max: usize,
) -> io::Result<TaskStreamPart> {
    let parts = parts(disk, work_area)?;
    let begin = parts.first().map_or(0, |part| part.from);
    let end = parts.last().map_or(0, Part::end);
    let start = match after {
        Some(after) => after,
        None => run_begin(disk, &parts)?.unwrap_or(begin),
    };
    let mut told = TaskStreamPart {
        skipped_bytes: begin.saturating_sub(start),
        next: start.clamp(begin, end),
        ..TaskStreamPart::default()
    };
    while told.items.is_empty() {
        let at = told.next;
        let Some(index) = parts
            .iter()
            .rposition(|part| part.from <= at && at < part.end())
        else {
            // The position is between two files, because the older one has lost its end.
            let next = parts.iter().find(|part| part.from > at);
            match next {
                Some(next) => told.next = next.from,
                None => break,
            }
            continue;
        };
        let Some(part) = parts.get(index) else { break };
        let mut bytes = vec![0; bytes_max];
        let mut file = disk.open_read(&part.path)?;
        let read = read_full(file.as_mut(), &mut bytes, at - part.from)?;
        bytes.truncate(read);
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => {
                bytes.truncate(last + 1);
                let lines = bytes.split(|byte| *byte == b'\n');
                let items = lines.filter_map(|line| serde_json::from_slice(line).ok());
                told.items.extend(items);
                told.next = at + length(&bytes);
            }
            // A line longer than a part.
            None if read == bytes_max => {
                told.skipped_bytes += length(&bytes);
                told.next = at + length(&bytes);
            }
            // A line without an end: the rest follows, unless a crash lost it.
            None => match parts.get(index + 1) {
                Some(next) => told.next = next.from,
                None => {
                    told.is_end = true;
                    return Ok(told);
                }
            },
        }
    }
    told.is_end = told.next >= end;
    Ok(told)
}

/// Position of the latest run.
fn run_begin(disk: &dyn Disk, parts: &[Part]) -> io::Result<Option<u64>> {
    for part in parts.iter().rev() {
        let most = usize::try_from(part.len).unwrap_or(usize::MAX);
        let bytes = read_all(
            disk.open_read(&part.path)?.as_mut(),
            most.saturating_add(1 << 20),
        )?;
        let found = bytes
            .windows(RUN_BEGINS.len())
            .rposition(|window| window == RUN_BEGINS);
        if let Some(at) = found {
            let before = bytes.get(..at).unwrap_or_default();
            let line = before.iter().rposition(|byte| *byte == b'\n');
            let line = line.map_or(0, |newline| newline + 1);
            return Ok(Some(
                part.from + length(before.get(..line).unwrap_or_default()),
            ));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::{SimulatedDisk, append_all};
    use goondan_protocol::task::{TaskItem, TaskItemContent};
    use goondan_protocol::time::Timestamp;

    use super::*;

    const ROOT: &str = "/t";

    fn line(content: TaskItemContent) -> Vec<u8> {
        let at = Timestamp::from_unix_millis(0);
        let item = TaskItem {
            at,
            run: Some(1),
            content,
        };
        let mut line = serde_json::to_vec(&item).unwrap();
        line.push(b'\n');
        line
    }

    fn text_line(text: &str) -> Vec<u8> {
        line(TaskItemContent::Text {
            text: text.to_owned(),
        })
    }

    fn begun() -> Vec<u8> {
        line(TaskItemContent::Event {
            event: "run_requested".to_owned(),
            detail: String::new(),
        })
    }

    fn write(disk: &SimulatedDisk, path: &str, bytes: &[u8]) {
        let mut file = disk.create(&Path::new(ROOT).join(path)).unwrap();
        append_all(file.as_mut(), bytes).unwrap();
    }

    fn texts(part: &TaskStreamPart) -> Vec<&str> {
        let texts = part.items.iter().map(|item| match &item.content {
            TaskItemContent::Text { text } => text.as_str(),
            _ => "begun",
        });
        texts.collect()
    }

    #[test]
    fn agent_7_slow_watcher_gets_the_number_of_missed_items() {
        let disk = SimulatedDisk::new();
        for dir in [ROOT, "/t/.logs"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        let read = |after, most| read_part(&disk, Path::new(ROOT), after, most).unwrap();
        let none = read(None, 1000);
        assert!(none.items.is_empty() && none.is_end && none.next == 0);
        // The first file was dropped; a second and a third are left.
        let header = |from: u64| format!("{{\"from\":{from}}}\n").into_bytes();
        let older = [header(1000), text_line("one"), begun(), text_line("two")].concat();
        let tail = br#"{"at":"#;
        let now = [
            header(1000 + length(&older)),
            // As text in an item, the mark does not begin a run.
            text_line(r#""event":"run_requested""#),
            text_line("three"),
        ]
        .concat();
        write(&disk, OLDER_STREAM, &older);
        write(&disk, Log::Stream.path(), &[&now[..], tail].concat());
        let part = read(None, 100_000);
        assert_eq!(texts(&part), ["begun", "two"]);
        assert!(!part.is_end && part.skipped_bytes == 0);
        let part = read(Some(part.next), 100_000);
        assert_eq!(texts(&part)[1], "three");
        let end = read(Some(part.next), 100_000);
        assert!(end.items.is_empty() && end.is_end && end.next == part.next);
        // A watcher that stopped within the first file.
        let part = read(Some(400), 100_000);
        assert_eq!((part.skipped_bytes, texts(&part)[0]), (600, "one"));
        // A line that is too long for an answer is skipped, and so is its end.
        let most = text_line("three").len() - 1;
        let (mut after, mut heard, mut skipped) = (1000 + length(&older), Vec::new(), 0);
        loop {
            let part = read(Some(after), most);
            skipped += part.skipped_bytes;
            heard.extend(texts(&part).iter().map(|text| (*text).to_owned()));
            if part.is_end {
                break;
            }
            after = part.next;
        }
        assert!(heard.is_empty() && skipped > 0, "{heard:?}");
        // A position that a crash has lost.
        assert!(read(Some(1 << 40), 1000).is_end);
    }
}
