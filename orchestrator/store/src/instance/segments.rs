//! A segmented log of runtime events: bounded, compressed, and never an input of state.
//!
//! Lines are appended to the current file (`runtime-events.jsonl`). A full file is renamed and
//! compressed: `runtime-events.000001048576.2026-11-22.jsonl.gz`. The number is the offset of the
//! segment's first byte in the whole log. Offsets stay valid when segments are dropped, and the
//! oldest segment's number is the number of dropped bytes. The date is the day on which the segment
//! was sealed. `zcat` prints the segment.
//!
//! A segment is synced before it is renamed, and renamed before it is compressed. Its plain file is
//! removed only after the compressed file is durable. [`SegmentedLog::open`] finishes these steps
//! after a crash.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use goondan_durable::disk::{Disk, EntryKind, read_all, read_full};
use goondan_durable::journal::Journal;
use goondan_durable::{FileError, Finding, FindingKind, IoContext as _, Severity, files};
use goondan_protocol::observe::ObservationBounds;
use goondan_protocol::time::{Day, Timestamp};

use crate::error::StoreError;
use crate::limits::{OBSERVATION_SEGMENT_BYTES, OBSERVATION_SEGMENT_READ_BYTES};

/// Suffix of the current file and of an uncompressed segment.
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = ".jsonl.gz";
const PLACE_DIGITS: usize = 15;
/// Bytes at the end of a compressed file with the length of its content.
const LENGTH_BYTES: u64 = 4;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// Maximum number of listings by a reader while a writer changes the segments.
const LOOKS_MAX: usize = 8;

/// A sealed part of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    /// Offset of its first byte in the log.
    start: u64,
    day: Day,
    is_compressed: bool,
}

impl Segment {
    fn from_name(log: &str, name: &str) -> Option<Self> {
        let rest = name.strip_prefix(stem(log))?.strip_prefix('.')?;
        let (rest, is_compressed) = match rest.strip_suffix(COMPRESSED) {
            Some(rest) => (rest, true),
            None => (rest.strip_suffix(PLAIN)?, false),
        };
        let (start, day) = rest.split_once('.')?;
        let is_place = start.len() == PLACE_DIGITS && start.bytes().all(|b| b.is_ascii_digit());
        Some(Self {
            start: start.parse().ok().filter(|_| is_place)?,
            day: day.parse().ok()?,
            is_compressed,
        })
    }

    fn path(&self, dir: &Path, log: &str) -> PathBuf {
        let ending = if self.is_compressed {
            COMPRESSED
        } else {
            PLAIN
        };
        let (stem, start, day) = (stem(log), self.start, self.day);
        dir.join(format!("{stem}.{start:0PLACE_DIGITS$}.{day}{ending}"))
    }

    fn compressed(&self) -> Self {
        Self {
            is_compressed: true,
            ..self.clone()
        }
    }

    /// Returns the offset after its last byte.
    fn end(&self, disk: &dyn Disk, dir: &Path, log: &str) -> Result<u64, StoreError> {
        let path = self.path(dir, log);
        let mut file = disk.open_read(&path).during("open", &path)?;
        let len = file.len().during("read the length of", &path)?;
        if !self.is_compressed {
            return Ok(self.start + len);
        }
        let mut length = [0; 4];
        let at = len.saturating_sub(LENGTH_BYTES);
        read_full(file.as_mut(), &mut length, at).during("read", &path)?;
        Ok(self.start + u64::from(u32::from_le_bytes(length)))
    }

    fn read(&self, disk: &dyn Disk, dir: &Path, log: &str) -> Result<Vec<u8>, FileError> {
        let path = self.path(dir, log);
        let mut file = disk.open_read(&path).during("open", &path)?;
        let max = OBSERVATION_SEGMENT_READ_BYTES;
        let bytes = read_all(file.as_mut(), max).during("read", &path)?;
        if !self.is_compressed {
            return Ok(bytes);
        }
        let mut content = Vec::new();
        let mut reader = GzDecoder::new(bytes.as_slice()).take(max as u64 + 1);
        let damaged = |problem: String| FileError::Damaged {
            path: path.clone(),
            line: 1,
            problem,
        };
        reader
            .read_to_end(&mut content)
            .map_err(|error| damaged(error.to_string()))?;
        if content.len() > max {
            return Err(damaged(format!("the segment has more than {max} bytes")));
        }
        Ok(content)
    }
}

fn stem(log: &str) -> &str {
    log.strip_suffix(PLAIN).unwrap_or(log)
}

/// True if the file name in `messages/` is a segment of `log`.
pub(super) fn is_segment(log: &str, name: &str) -> bool {
    Segment::from_name(log, name).is_some()
}

/// Lists the segments of a log, oldest first. Prefers the compressed file if both exist.
fn list(disk: &dyn Disk, dir: &Path, log: &str) -> Result<Vec<Segment>, StoreError> {
    let entries = disk.list(dir).during("list", dir)?;
    let files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    let mut segments: Vec<Segment> = files
        .filter_map(|entry| Segment::from_name(log, entry.name.to_str()?))
        .collect();
    segments.sort_by_key(|segment| (segment.start, !segment.is_compressed));
    segments.dedup_by_key(|segment| segment.start);
    Ok(segments)
}

/// A log open for appending.
#[derive(Debug)]
pub(super) struct SegmentedLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    name: &'static str,
    segment_bytes: u64,
    segments: Vec<Segment>,
    /// Log offset of the current file's first byte.
    start: u64,
    current: Journal,
}

impl SegmentedLog {
    /// Opens or creates the log `name` in `dir`, and recovers it from a crash.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &'static str,
    ) -> Result<Self, StoreError> {
        Self::open_with(disk, dir, name, OBSERVATION_SEGMENT_BYTES)
    }

    fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &'static str,
        segment_bytes: u64,
    ) -> Result<Self, StoreError> {
        let current = Journal::open(disk.as_ref(), &dir.join(name))?;
        let mut log = Self {
            dir: dir.to_owned(),
            name,
            segment_bytes,
            segments: Vec::new(),
            start: 0,
            current,
            disk,
        };
        let entries = log.disk.list(dir).during("list", dir)?;
        for entry in entries {
            let found = entry.name.to_str();
            if let Some(segment) = found.and_then(|found| Segment::from_name(name, found))
                && !segment.is_compressed
            {
                log.compress(&segment)?;
            }
        }
        log.segments = list(log.disk.as_ref(), dir, name)?;
        if let Some(last) = log.segments.last() {
            log.start = last.end(log.disk.as_ref(), dir, name)?;
        }
        Ok(log)
    }

    pub(super) fn current(&mut self) -> &mut Journal {
        &mut self.current
    }

    /// Appends whole lines. Not synced: they are never an input of state.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        Ok(self.current.append(lines)?)
    }

    /// Flushes appended lines to the current file, where readers can see them. Seals a full file,
    /// and drops the oldest segments beyond `bounds`.
    pub(super) fn write_out(
        &mut self,
        bounds: ObservationBounds,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.current.write_out()?;
        if self.current.len() < self.segment_bytes {
            return Ok(());
        }
        self.seal(at.day())?;
        self.drop_oldest(bounds, at)
    }

    /// Seals the current file as a segment, and begins a new one.
    fn seal(&mut self, day: Day) -> Result<(), StoreError> {
        self.current.sync()?;
        let segment = Segment {
            start: self.start,
            day,
            is_compressed: false,
        };
        let plain = segment.path(&self.dir, self.name);
        let path = self.dir.join(self.name);
        // Each rename is durable before the next, so that no line is lost between them.
        files::install(self.disk.as_ref(), &path, &plain)?;
        self.start += self.current.len();
        self.current = Journal::open(self.disk.as_ref(), &path)?;
        self.disk.sync_dir(&self.dir).during("sync", &self.dir)?;
        self.compress(&segment)?;
        self.segments.push(segment.compressed());
        Ok(())
    }

    /// Compresses a segment, or only removes its plain file if it is compressed already.
    fn compress(&self, segment: &Segment) -> Result<(), StoreError> {
        let disk = self.disk.as_ref();
        let plain = segment.path(&self.dir, self.name);
        let path = segment.compressed().path(&self.dir, self.name);
        if disk.stat(&path).during("inspect", &path)?.is_none() {
            let content = segment.read(disk, &self.dir, self.name)?;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&content).during("compress", &plain)?;
            let compressed = encoder.finish().during("compress", &plain)?;
            files::replace(disk, &path, &compressed)?;
        } else {
            // The name may come from a process that died before it was durable.
            disk.sync_dir(&self.dir).during("sync", &self.dir)?;
        }
        Ok(disk.remove_file(&plain).during("remove", &plain)?)
    }

    /// Drops the oldest segments beyond the bounds, but never the newest.
    fn drop_oldest(&mut self, bounds: ObservationBounds, at: Timestamp) -> Result<(), StoreError> {
        let age_ms = i64::from(bounds.days).saturating_mul(DAY_MS);
        let oldest_day =
            Timestamp::from_unix_millis(at.as_unix_millis().saturating_sub(age_ms)).day();
        let mut sizes = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let path = segment.path(&self.dir, self.name);
            let stat = self.disk.stat(&path).during("inspect", &path)?;
            sizes.push(stat.map_or(0, |stat| stat.len));
        }
        let mut kept_bytes: u64 = sizes.iter().sum();
        let mut dropped = 0;
        for (segment, size) in self.segments.iter().zip(&sizes) {
            let is_newest = dropped + 1 == self.segments.len();
            let is_within = kept_bytes <= bounds.bytes && segment.day >= oldest_day;
            if is_newest || is_within {
                break;
            }
            let path = segment.path(&self.dir, self.name);
            self.disk.remove_file(&path).during("remove", &path)?;
            kept_bytes -= size;
            dropped += 1;
        }
        self.segments.drain(..dropped);
        Ok(())
    }
}

/// Reader of a log that may be written concurrently.
#[derive(Debug)]
pub(super) struct SegmentReader<'d> {
    disk: &'d dyn Disk,
    dir: PathBuf,
    log: &'static str,
    segments: Vec<Segment>,
    current: Option<Journal>,
}

/// A part of a log: a segment, or the current file.
#[derive(Debug)]
pub(super) enum SegmentPart {
    /// A segment's content; `None` if it is damaged.
    Whole(Option<Vec<u8>>),
    Current(Journal),
}

impl SegmentPart {
    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Whole(content) => content.as_ref().map_or(0, |content| content.len() as u64),
            Self::Current(journal) => journal.len(),
        }
    }

    /// Reads up to `max` bytes from `offset`.
    pub(super) fn read(&mut self, offset: u64, max: usize) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Whole(content) => {
                let content = content.as_deref().unwrap_or_default();
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = content.get(from..).unwrap_or_default();
                Ok(rest.get(..max).unwrap_or(rest).to_vec())
            }
            Self::Current(journal) => Ok(journal.read(offset, max)?),
        }
    }
}

/// A part with its position in the log.
#[derive(Debug)]
pub(super) struct PositionedPart {
    pub(super) part: SegmentPart,
    /// Log offset of its first byte.
    pub(super) start: u64,
    /// Log offset of the next part; `None` for the last.
    pub(super) next: Option<u64>,
}

impl<'d> SegmentReader<'d> {
    /// Opens the log `log` in `dir`.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]; [`StoreError::HistoryChanged`] if it keeps changing.
    pub(super) fn open(
        disk: &'d dyn Disk,
        dir: &Path,
        log: &'static str,
    ) -> Result<Self, StoreError> {
        let path = dir.join(log);
        for _ in 0..LOOKS_MAX {
            let segments = list(disk, dir, log)?;
            let current = match disk.stat(&path).during("inspect", &path)? {
                Some(_) => match Journal::open_read(disk, &path) {
                    Ok(journal) => Some(journal),
                    // The file was just sealed.
                    Err(error) if error.is_permanent() => continue,
                    Err(error) => return Err(error.into()),
                },
                None => None,
            };
            // The opened file follows these segments only if no segment was sealed in the meantime.
            if list(disk, dir, log)? == segments {
                return Ok(Self {
                    disk,
                    dir: dir.to_owned(),
                    log,
                    segments,
                    current,
                });
            }
        }
        Err(StoreError::HistoryChanged)
    }

    /// Returns the offset of the oldest kept byte, which is the number of dropped bytes.
    pub(super) fn first(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.start)
    }

    /// Returns the offset after the last byte.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub(super) fn end(&self) -> Result<u64, StoreError> {
        let start = match self.segments.last() {
            Some(last) => last.end(self.disk, &self.dir, self.log)?,
            None => 0,
        };
        Ok(start + self.current.as_ref().map_or(0, Journal::len))
    }

    /// Returns the part that contains or begins at log offset `at`.
    ///
    /// # Errors
    ///
    /// [`StoreError::HistoryChanged`] if the offset was dropped;
    /// [`FileError::Io`].
    pub(super) fn part_at(mut self, at: u64) -> Result<Option<PositionedPart>, StoreError> {
        if at < self.first() {
            return Err(StoreError::HistoryChanged);
        }
        for (index, segment) in self.segments.iter().enumerate() {
            let end = match self.segments.get(index + 1) {
                Some(next) => next.start,
                None => segment.end(self.disk, &self.dir, self.log)?,
            };
            if at >= end {
                continue;
            }
            let content = match segment.read(self.disk, &self.dir, self.log) {
                Ok(content) => Some(content),
                Err(FileError::Damaged { .. }) => None,
                Err(error) if error.is_permanent() => return Err(StoreError::HistoryChanged),
                Err(error) => return Err(error.into()),
            };
            let is_last = index + 1 == self.segments.len();
            let has_more = !is_last || self.current.as_ref().is_some_and(|it| it.len() > 0);
            return Ok(Some(PositionedPart {
                part: SegmentPart::Whole(content),
                start: segment.start,
                next: has_more.then_some(end),
            }));
        }
        let start = match self.segments.last() {
            Some(last) => last.end(self.disk, &self.dir, self.log)?,
            None => 0,
        };
        Ok(self.current.take().map(|journal| PositionedPart {
            part: SegmentPart::Current(journal),
            start,
            next: None,
        }))
    }

    /// Returns the last `max_bytes` of the log, and true if there is or was more before them. Skips
    /// damaged segments.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub(super) fn tail(mut self, max_bytes: usize) -> Result<(Vec<u8>, bool), StoreError> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut room = max_bytes;
        let mut is_partial = self.first() > 0;
        if let Some(journal) = &mut self.current {
            let len = usize::try_from(journal.len()).unwrap_or(usize::MAX);
            let skipped = len.saturating_sub(room);
            is_partial |= skipped > 0;
            parts.push(journal.read(skipped as u64, len - skipped)?);
            room -= len - skipped;
        }
        for segment in self.segments.iter().rev() {
            if room == 0 {
                is_partial = true;
                break;
            }
            match segment.read(self.disk, &self.dir, self.log) {
                Ok(content) => {
                    let skipped = content.len().saturating_sub(room);
                    is_partial |= skipped > 0;
                    room -= content.len() - skipped;
                    parts.push(content.get(skipped..).unwrap_or_default().to_vec());
                }
                Err(error) if error.is_permanent() => is_partial = true,
                Err(error) => return Err(error.into()),
            }
        }
        parts.reverse();
        Ok((parts.concat(), is_partial))
    }
}

/// Checks every line of a log's segments, and that no segment is missing between two others.
/// Segments before the oldest were dropped by policy.
pub(super) fn check(
    disk: &dyn Disk,
    dir: &Path,
    log: &str,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    const ADVICE: &str = "nothing to do: the log is never an input of state";
    let mut end_of_last = None;
    for segment in list(disk, dir, log)? {
        let path = segment.path(dir, log);
        if let Some(end) = end_of_last.filter(|end| *end < segment.start) {
            let bytes = segment.start - end;
            let problem = format!("{bytes} bytes of the log before this segment are missing");
            let finding = Finding::new(&path, FindingKind::MissingRecords, problem);
            findings.push(finding.severity(Severity::Warning).advice(ADVICE));
        }
        end_of_last = None;
        let finding = match segment.read(disk, dir, log) {
            Ok(content) => {
                end_of_last = Some(segment.start.saturating_add(content.len() as u64));
                unreadable_lines(&path, &content)
            }
            Err(FileError::Damaged { path, problem, .. }) => {
                let problem = format!("failed to read the segment: {problem}");
                Some(Finding::new(&path, FindingKind::UnreadableFile, problem))
            }
            Err(error) => return Err(error.into()),
        };
        let finding = finding.map(|it| it.severity(Severity::Warning).advice(ADVICE));
        findings.extend(finding);
    }
    Ok(())
}

/// Returns one finding for all lines of a segment that are not JSON, because a segment may hold
/// many.
fn unreadable_lines(path: &Path, content: &[u8]) -> Option<Finding> {
    let lines = content.split_inclusive(|byte| *byte == b'\n');
    let is_bad = |line: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err();
    let mut bad = lines.zip(1..).filter(|(line, _)| is_bad(line));
    let (_, first) = bad.next()?;
    let more = bad.count();
    let problem = match more {
        0 => format!("line {first} of its content is not JSON"),
        _ => format!("line {first} of its content and {more} more are not JSON"),
    };
    let mut finding = Finding::new(path, FindingKind::DamagedRecord, problem);
    finding.line = Some(first);
    Some(finding)
}

/// Returns the first result of `find` on the lines of a log: the current file first, then the
/// segments, newest first. Skips missing or damaged segments.
///
/// # Errors
///
/// [`FileError::Io`] if an existing file is unreadable.
pub(super) fn find_in_lines<T>(
    disk: &dyn Disk,
    dir: &Path,
    log: &str,
    find: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let path = dir.join(log);
    if disk.stat(&path).during("inspect", &path)?.is_some() {
        let mut found = None;
        Journal::open_read(disk, &path)?.scan(|_, line| {
            if found.is_none() {
                found = find(line);
            }
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    for segment in list(disk, dir, log)?.iter().rev() {
        let content = match segment.read(disk, dir, log) {
            Ok(content) => content,
            Err(FileError::Damaged { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let found = content.split(|byte| *byte == b'\n').find_map(&find);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
