//! Append-only files of sealed records, with tolerant reading.
//!
//! Reading returns every readable record in the order of the records' numbers, reports exactly the
//! unreadable bytes, and leaves them in place. It only truncates the remains of a crash and keeps a
//! copy: an end without newline, and zeros in place of bytes that never reached the disk, with
//! everything after them. Zeros that were durable according to a later record are damage and stay.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::checksum::{self, RecordPosition, Seal, crc32, seal, seal_of, sealed_prefixes};
use crate::disk::Disk;
use crate::error::FileError;
use crate::findings::{Finding, FindingKind, Severity};
use crate::journal::{Journal, TornTail};
use crate::manifest::{self, Claim, ClaimMatch, RunningChecksum};

/// Position of a record in its file, without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its line, from 1.
    pub line: u64,
}

impl Span {
    fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Creates a finding about this record.
    pub fn finding(self, path: &Path, kind: FindingKind, problem: String) -> Finding {
        Finding::new(path, kind, problem).at(self.line, self.offset, self.end())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    Sealed(RecordPosition),
    /// Valid JSON without a seal, from another implementation.
    Plain,
    /// Invalid. Bytes that never reached the disk read as zeros, which JSON never contains.
    Broken {
        has_zeros: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    span: Span,
    kind: LineState,
    sum: u32,
    /// The record's own number, or the number derived from its position.
    number: u64,
}

/// Result of reading a file.
#[derive(Debug, Default)]
pub struct SealedRead {
    /// Readable records, in order.
    pub records: Vec<Span>,
    /// Complete lines with invalid checksums.
    pub broken: Vec<Span>,
    /// Findings about the other bytes.
    pub findings: Vec<Finding>,
    /// Offset of the remains of a crash.
    pub cut: Option<u64>,
    last_number: u64,
}

/// An append-only file of sealed records.
#[derive(Debug)]
pub struct SealedLog {
    journal: Journal,
    last_number: u64,
    durable_number: u64,
    /// True if it has unreadable bytes, which must be kept when it is cleared.
    is_damaged: bool,
    /// Totals of the whole file, if a manifest tracks it.
    running: Option<RunningChecksum>,
    /// Content known to be durable.
    durable: Option<Claim>,
}

/// Reads the file without changing it.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn read(journal: &mut Journal) -> Result<SealedRead, FileError> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut line_number = 0;
    let good = journal.scan(|offset, line| {
        line_number += 1;
        take(&mut pieces, offset, line_number, line);
    })?;
    let mut reading = judge(journal.path(), &mut pieces);
    if reading.cut.is_none() && good < journal.len() {
        reading.cut = Some(good);
    }
    Ok(reading)
}

fn take(pieces: &mut Vec<Piece>, offset: u64, line_number: u64, line: &[u8]) {
    let mut push = |from: usize, bytes: &[u8], kind: LineState| {
        let expected = pieces.last().map_or(1, |piece| piece.number + 1);
        let number = match kind {
            LineState::Sealed(place) => place.n,
            LineState::Plain | LineState::Broken { .. } => expected,
        };
        let span = Span {
            offset: offset + from as u64,
            len: bytes.len() as u64,
            line: line_number,
        };
        pieces.push(Piece {
            span,
            kind,
            sum: crc32(bytes),
            number,
        });
    };
    match seal_of(line) {
        Seal::Whole(place) => push(0, line, LineState::Sealed(place)),
        Seal::Absent if serde_json::from_slice::<&RawValue>(line).is_ok() => {
            push(0, line, LineState::Plain);
        }
        Seal::Absent | Seal::Broken => {
            let mut start = 0;
            for end in sealed_prefixes(line) {
                if let Some(record) = line.get(start..end)
                    && let Seal::Whole(place) = seal_of(record)
                {
                    push(start, record, LineState::Sealed(place));
                }
                start = end + 1;
            }
            let rest = line.get(start..).unwrap_or_default();
            let hole = rest
                .iter()
                .rposition(|byte| *byte == 0)
                .map_or(0, |at| at + 1);
            let behind = rest.get(hole..).unwrap_or_default();
            match seal_of(behind) {
                Seal::Whole(place) if start + hole > 0 => {
                    if let Some(zeros) = rest.get(..hole).filter(|zeros| !zeros.is_empty()) {
                        push(start, zeros, LineState::Broken { has_zeros: true });
                    }
                    push(start + hole, behind, LineState::Sealed(place));
                }
                _ if rest.is_empty() && start > 0 => {}
                _ => {
                    let has_zeros = hole > 0;
                    push(start, rest, LineState::Broken { has_zeros });
                }
            }
        }
    }
}

fn judge(path: &Path, pieces: &mut Vec<Piece>) -> SealedRead {
    let mut reading = SealedRead::default();
    if let Some(at) = crash_hole(pieces) {
        reading.cut = pieces.get(at).map(|piece| piece.span.offset);
        pieces.truncate(at);
    }
    report_misplaced(path, pieces, &mut reading.findings);
    // A stable sort, so that records without a number keep their position.
    pieces.sort_by_key(|piece| piece.number);
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut last_sealed = 0;
    let mut unnumbered = 0;
    let mut repeated = 0;
    for piece in pieces.iter() {
        reading.last_number = reading.last_number.max(piece.number);
        let span = piece.span;
        match piece.kind {
            LineState::Sealed(place) if seen.get(&place.n) == Some(&piece.sum) => {
                let problem = format!(
                    "line {}: record {} is a duplicate; it counts once",
                    span.line, place.n
                );
                let kind = FindingKind::RepeatedRecord;
                reading.findings.push(span.finding(path, kind, problem));
                repeated += 1;
            }
            LineState::Sealed(place) => {
                let missing = place.n.saturating_sub(last_sealed + 1 + unnumbered);
                if missing > 0 && !seen.contains_key(&place.n) {
                    reading
                        .findings
                        .push(missing_before(path, span, place.n, missing));
                }
                seen.insert(place.n, piece.sum);
                (last_sealed, unnumbered) = (place.n, 0);
                reading.records.push(span);
            }
            LineState::Plain => {
                unnumbered += 1;
                reading.records.push(span);
            }
            LineState::Broken { .. } => {
                unnumbered += 1;
                let problem = format!(
                    "line {}: {} bytes are damaged; the record is skipped",
                    span.line, span.len
                );
                let kind = FindingKind::DamagedRecord;
                reading.broken.push(span);
                reading.findings.push(span.finding(path, kind, problem));
            }
        }
    }
    // A duplicate takes no number; otherwise the next record would look like it follows a missing
    // one.
    reading.last_number = reading.last_number.max(pieces.len() as u64 - repeated);
    reading
}

/// Returns the first remains of a crash: zeros that no later record declares durable.
fn crash_hole(pieces: &[Piece]) -> Option<usize> {
    pieces.iter().enumerate().position(|(at, piece)| {
        matches!(piece.kind, LineState::Broken { has_zeros: true })
            && !pieces.iter().skip(at + 1).any(|later| match later.kind {
                LineState::Sealed(place) => place.durable >= piece.number,
                LineState::Plain => true,
                LineState::Broken { .. } => false,
            })
    })
}

fn report_misplaced(path: &Path, pieces: &[Piece], findings: &mut Vec<Finding>) {
    let mut highest = 0;
    let mut seen = BTreeSet::new();
    for piece in pieces {
        let LineState::Sealed(place) = piece.kind else {
            continue;
        };
        if place.n < highest && seen.insert(place.n) {
            let problem = format!(
                "line {}: record {} follows record {highest}; it is read in its own order",
                piece.span.line, place.n
            );
            let kind = FindingKind::MisplacedRecord;
            findings.push(piece.span.finding(path, kind, problem));
        }
        seen.insert(place.n);
        highest = highest.max(place.n);
    }
}

fn missing_before(path: &Path, span: Span, n: u64, count: u64) -> Finding {
    let problem = format!(
        "before line {}: {count} record{} {} missing (up to record {})",
        span.line,
        if count == 1 { "" } else { "s" },
        if count == 1 { "is" } else { "are" },
        n - 1
    );
    Finding::new(path, FindingKind::MissingRecords, problem).at(span.line, span.offset, span.offset)
}

/// Returns the finding for a truncated tail.
pub fn torn(path: &Path, line: u64, torn: &TornTail) -> Finding {
    let TornTail {
        offset,
        bytes,
        kept_in,
    } = torn;
    let problem = format!(
        "{bytes} bytes from byte {offset} on were truncated; a copy is in `{}`",
        kept_in.display()
    );
    Finding::new(path, FindingKind::TornTail, problem)
        .at(line, *offset, offset + bytes)
        .kept(kept_in)
        .severity(Severity::Warning)
}

/// Returns a record as before sealing, byte for byte; `None` if its seal is invalid or it is not a
/// non-empty object.
pub fn unsealed(record: &[u8]) -> Option<Box<RawValue>> {
    let text = match seal_of(record) {
        Seal::Whole(_) => [checksum::unsealed(record)?, b"}"].concat(),
        Seal::Absent => record.trim_ascii().to_vec(),
        Seal::Broken => return None,
    };
    let fields = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let is_object = fields.is_some_and(|fields| !fields.starts_with(b"}"));
    let record = RawValue::from_string(String::from_utf8(text).ok()?).ok()?;
    is_object.then_some(record)
}

impl SealedLog {
    /// Opens or creates the file and truncates the remains of a crash.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<(Self, SealedRead), FileError> {
        let mut journal = Journal::open(disk, path)?;
        let mut reading = read(&mut journal)?;
        let is_damaged = !reading.findings.is_empty();
        if let Some(cut) = reading.cut {
            match journal.mend_tail(disk, cut)? {
                Some(tail) => {
                    let line = reading.records.len() as u64 + 1;
                    reading.findings.push(torn(path, line, &tail));
                }
                // The last record lacked only its newline and is now complete.
                None => return Self::open(disk, path),
            }
        }
        let log = Self {
            journal,
            last_number: reading.last_number,
            durable_number: 0,
            is_damaged,
            running: None,
            durable: None,
        };
        Ok((log, reading))
    }

    /// Starts to track the durable content ([`Self::claim`]).
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn track(&mut self) -> Result<(), FileError> {
        self.running = Some(RunningChecksum::of(&mut self.journal)?);
        Ok(())
    }

    /// Returns the content known to be durable; `None` if it is not tracked, or not synced yet.
    pub fn claim(&self) -> Option<Claim> {
        self.durable
    }

    /// Compares the file with its claim.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn standing(&mut self, claim: Claim) -> Result<ClaimMatch, FileError> {
        manifest::standing(&mut self.journal, claim)
    }

    /// Replaces the file by one with these records. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Unwritable`] if a record cannot be written as JSON; [`FileError::Io`]. The old
    /// file is unchanged then.
    pub fn replace(&mut self, disk: &dyn Disk, records: &[Box<RawValue>]) -> Result<(), FileError> {
        self.keep_damage(disk)?;
        let mut content = Vec::new();
        let mut number = 0;
        for record in records {
            number += 1;
            // The replacement is atomic, so each record can declare all earlier ones durable.
            let place = RecordPosition {
                n: number,
                durable: number - 1,
            };
            content.extend(seal(record, place)?);
        }
        let path = self.journal.path().to_owned();
        crate::files::replace(disk, &path, &content)?;
        self.journal = Journal::open(disk, &path)?;
        (self.last_number, self.durable_number) = (number, number);
        self.is_damaged = false;
        if self.running.is_some() {
            self.track()?;
            self.durable = self.running.as_ref().map(RunningChecksum::claim);
        }
        Ok(())
    }

    /// Rewrites a damaged file with its readable records, and keeps a copy. Returns the path of the
    /// copy. Durable when it returns.
    ///
    /// # Errors
    ///
    /// As [`Self::retain`].
    pub fn mend(&mut self, disk: &dyn Disk) -> Result<Option<PathBuf>, FileError> {
        if !self.is_damaged {
            return Ok(None);
        }
        let kept = self.keep_damage(disk)?;
        self.retain(disk, |_, _| true)?;
        Ok(kept)
    }

    /// Rewrites the file with the records for which `keep` is true, with new positions only. Keeps
    /// a copy of a damaged file first. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Damaged`] if a retained record is not an object; [`FileError::Io`].
    pub fn retain(
        &mut self,
        disk: &dyn Disk,
        keep: impl Fn(Span, &[u8]) -> bool,
    ) -> Result<(), FileError> {
        let mut records = Vec::new();
        for span in read(&mut self.journal)?.records {
            let bytes = self.record(span)?;
            if keep(span, &bytes) {
                records.push(unsealed(&bytes).ok_or_else(|| FileError::Damaged {
                    path: self.path().to_owned(),
                    line: span.line,
                    problem: "a record is not an object".to_owned(),
                })?);
            }
        }
        self.replace(disk, &records)
    }

    /// True if it has unreadable bytes.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    /// Returns the length in bytes, including unwritten appends.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.journal.len()
    }

    /// Appends a record; returns its position. Durable only after [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`FileError::Unwritable`] if it cannot be written as JSON; [`FileError::Io`].
    pub fn append(&mut self, record: &impl Serialize) -> Result<Span, FileError> {
        let place = RecordPosition {
            n: self.last_number + 1,
            durable: self.durable_number,
        };
        let line = seal(record, place)?;
        let span = Span {
            offset: self.journal.len(),
            len: line.len() as u64 - 1,
            line: place.n,
        };
        self.journal.append(&line)?;
        if let Some(running) = &mut self.running {
            running.add(&line);
        }
        self.last_number = place.n;
        Ok(span)
    }

    /// Writes all appended records to the file.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn write_out(&mut self) -> Result<(), FileError> {
        self.journal.write_out()
    }

    /// Syncs all appended records. Does nothing without changes.
    ///
    /// # Errors
    ///
    /// As [`Journal::sync`].
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.journal.sync()?;
        self.durable_number = self.last_number;
        self.durable = self.running.as_ref().map(RunningChecksum::claim);
        Ok(())
    }

    /// Returns the bytes of a record.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn record(&mut self, span: Span) -> Result<Vec<u8>, FileError> {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        self.journal.read(span.offset, len)
    }

    /// Returns the positions of all readable records, in order.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn spans(&mut self) -> Result<Vec<Span>, FileError> {
        Ok(read(&mut self.journal)?.records)
    }

    /// Marks the file as damaged because a readable record was invalid.
    pub fn mark_damaged(&mut self) {
        self.is_damaged = true;
    }

    /// Keeps a copy of a damaged file before it is cleared.
    fn keep_damage(&mut self, disk: &dyn Disk) -> Result<Option<PathBuf>, FileError> {
        if !self.is_damaged {
            return Ok(None);
        }
        let content = self.journal.read(0, usize::MAX)?;
        let kept = crate::files::keep_aside(disk, self.journal.path(), "damaged", &content)?;
        self.is_damaged = false;
        Ok(Some(kept))
    }

    /// Clears the file; its content must be durable elsewhere. Keeps a copy of a damaged file
    /// first. Durable only after [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn clear(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        self.keep_damage(disk)?;
        self.journal.cut(0)?;
        self.running = self.running.take().map(|_| RunningChecksum::default());
        (self.last_number, self.durable_number) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
#[path = "sealed_tests.rs"]
mod tests;
