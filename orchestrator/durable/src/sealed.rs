//! Append-only files of sealed records, and how they are read when they are not as they were left.
//!
//! Reading takes everything that can be read, in the order of the records' own numbers, says exactly
//! what could not be read, and leaves it where it is. Only what a crash left over is cut off, and
//! kept beside the file: an end without its newline, and zeros in the place of bytes that never
//! reached the disk, with all that follows them. Zeros which a later record says were durable before
//! are no crash's doing and stay.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::checksum::{self, Place, Seal, crc32, seal, seal_of, sealed_prefixes};
use crate::disk::Disk;
use crate::error::FileError;
use crate::finding::{Finding, FindingKind, Severity};
use crate::journal::{Journal, TornTail};
use crate::manifest::{self, Claim, Running, Standing};

/// Where a record lies in its file, without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The byte it begins at.
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

    /// A finding about this record.
    pub fn finding(self, path: &Path, kind: FindingKind, problem: String) -> Finding {
        Finding::new(path, kind, problem).at(self.line, self.offset, self.end())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sealed(Place),
    /// Valid JSON without a seal: another implementation's.
    Plain,
    /// Neither. Bytes that never reached the disk read as zeros, which JSON never holds.
    Broken {
        has_zeros: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    span: Span,
    kind: Kind,
    sum: u32,
    /// The record's own number, or the one its place gives it.
    number: u64,
}

/// What reading found.
#[derive(Debug, Default)]
pub struct Reading {
    /// The records that can be read, in order.
    pub records: Vec<Span>,
    /// Those that are whole lines, but not as they were written.
    pub broken: Vec<Span>,
    /// What is wrong with the others.
    pub findings: Vec<Finding>,
    /// Where what a crash left over begins.
    pub cut: Option<u64>,
    last_number: u64,
}

/// An append-only file of sealed records.
#[derive(Debug)]
pub struct SealedLog {
    journal: Journal,
    last_number: u64,
    durable_number: u64,
    /// Whether it holds bytes that could not be read. They must be kept when it is cleared.
    is_damaged: bool,
    /// The length and checksum of the whole file, of one that a manifest speaks of.
    running: Option<Running>,
    /// What the file surely holds.
    durable: Option<Claim>,
}

/// Reads the file without changing it.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn read(journal: &mut Journal) -> Result<Reading, FileError> {
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
    let mut push = |from: usize, bytes: &[u8], kind: Kind| {
        let expected = pieces.last().map_or(1, |piece| piece.number + 1);
        let number = match kind {
            Kind::Sealed(place) => place.n,
            Kind::Plain | Kind::Broken { .. } => expected,
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
        Seal::Whole(place) => push(0, line, Kind::Sealed(place)),
        Seal::Absent if serde_json::from_slice::<&RawValue>(line).is_ok() => {
            push(0, line, Kind::Plain);
        }
        Seal::Absent | Seal::Broken => {
            let mut start = 0;
            for end in sealed_prefixes(line) {
                if let Some(record) = line.get(start..end)
                    && let Seal::Whole(place) = seal_of(record)
                {
                    push(start, record, Kind::Sealed(place));
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
                        push(start, zeros, Kind::Broken { has_zeros: true });
                    }
                    push(start + hole, behind, Kind::Sealed(place));
                }
                _ if rest.is_empty() && start > 0 => {}
                _ => {
                    let has_zeros = hole > 0;
                    push(start, rest, Kind::Broken { has_zeros });
                }
            }
        }
    }
}

fn judge(path: &Path, pieces: &mut Vec<Piece>) -> Reading {
    let mut reading = Reading::default();
    if let Some(at) = crash_hole(pieces) {
        reading.cut = pieces.get(at).map(|piece| piece.span.offset);
        pieces.truncate(at);
    }
    report_misplaced(path, pieces, &mut reading.findings);
    // Stable: what has no number of its own keeps its place.
    pieces.sort_by_key(|piece| piece.number);
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut last_sealed = 0;
    let mut unnumbered = 0;
    let mut repeated = 0;
    for piece in pieces.iter() {
        reading.last_number = reading.last_number.max(piece.number);
        let span = piece.span;
        match piece.kind {
            Kind::Sealed(place) if seen.get(&place.n) == Some(&piece.sum) => {
                let problem = format!(
                    "line {}: record {} stands there a second time; it counts once",
                    span.line, place.n
                );
                let kind = FindingKind::RepeatedRecord;
                reading.findings.push(span.finding(path, kind, problem));
                repeated += 1;
            }
            Kind::Sealed(place) => {
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
            Kind::Plain => {
                unnumbered += 1;
                reading.records.push(span);
            }
            Kind::Broken { .. } => {
                unnumbered += 1;
                let problem = format!(
                    "line {}: {} bytes are not as they were written; the record is passed over",
                    span.line, span.len
                );
                let kind = FindingKind::DamagedRecord;
                reading.broken.push(span);
                reading.findings.push(span.finding(path, kind, problem));
            }
        }
    }
    // A repetition takes no number: the next record would seem to follow one that is missing.
    reading.last_number = reading.last_number.max(pieces.len() as u64 - repeated);
    reading
}

/// The first piece that a crash left over: zeros that no later record knows to have been durable.
fn crash_hole(pieces: &[Piece]) -> Option<usize> {
    pieces.iter().enumerate().position(|(at, piece)| {
        matches!(piece.kind, Kind::Broken { has_zeros: true })
            && !pieces.iter().skip(at + 1).any(|later| match later.kind {
                Kind::Sealed(place) => place.durable >= piece.number,
                Kind::Plain => true,
                Kind::Broken { .. } => false,
            })
    })
}

fn report_misplaced(path: &Path, pieces: &[Piece], findings: &mut Vec<Finding>) {
    let mut highest = 0;
    let mut seen = BTreeSet::new();
    for piece in pieces {
        let Kind::Sealed(place) = piece.kind else {
            continue;
        };
        if place.n < highest && seen.insert(place.n) {
            let problem = format!(
                "line {}: record {} stands behind record {highest}; it is read in its own place",
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
        "before line {}: {count} record{} that {} written there {} missing (up to record {})",
        span.line,
        if count == 1 { "" } else { "s" },
        if count == 1 { "was" } else { "were" },
        if count == 1 { "is" } else { "are" },
        n - 1
    );
    Finding::new(path, FindingKind::MissingRecords, problem).at(span.line, span.offset, span.offset)
}

/// The finding for what was cut off.
pub fn torn(path: &Path, line: u64, torn: &TornTail) -> Finding {
    let TornTail {
        offset,
        bytes,
        kept_in,
    } = torn;
    let problem = format!(
        "{bytes} bytes from byte {offset} on were cut short; they are kept in `{}`",
        kept_in.display()
    );
    Finding::new(path, FindingKind::TornTail, problem)
        .at(line, *offset, offset + bytes)
        .kept(kept_in)
        .severity(Severity::Warning)
}

/// A record as it was before it was sealed, byte for byte; none if it is not as it was sealed, or no
/// object that holds anything.
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
    /// Opens the file, making it if it is missing, and cuts off what a crash left over.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<(Self, Reading), FileError> {
        let mut journal = Journal::open(disk, path)?;
        let mut reading = read(&mut journal)?;
        let is_damaged = !reading.findings.is_empty();
        if let Some(cut) = reading.cut {
            match journal.mend_tail(disk, cut)? {
                Some(tail) => {
                    let line = reading.records.len() as u64 + 1;
                    reading.findings.push(torn(path, line, &tail));
                }
                // The last record lacked only its newline; now it counts.
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

    /// Has what is claimed of the file kept up to date ([`Self::claim`]).
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn track(&mut self) -> Result<(), FileError> {
        self.running = Some(Running::of(&mut self.journal)?);
        Ok(())
    }

    /// What the file surely holds; none if it is not tracked, or nothing was synced yet.
    pub fn claim(&self) -> Option<Claim> {
        self.durable
    }

    /// How the file stands against what was claimed of it.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn standing(&mut self, claim: Claim) -> Result<Standing, FileError> {
        manifest::standing(&mut self.journal, claim)
    }

    /// Puts a new file with these records in the place of the old. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Unwritable`] if one cannot be written as JSON; [`FileError::Io`], the old file is still there then.
    pub fn replace(&mut self, disk: &dyn Disk, records: &[Box<RawValue>]) -> Result<(), FileError> {
        self.keep_damage(disk)?;
        let mut content = Vec::new();
        let mut number = 0;
        for record in records {
            number += 1;
            // The file appears whole or not at all: whoever reads one record has all before it.
            let place = Place {
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
            self.durable = self.running.as_ref().map(Running::claim);
        }
        Ok(())
    }

    /// Writes the file anew with what can be read of it, if anything cannot; it is kept as it was
    /// beside itself. Returns where. Durable when it returns.
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

    /// Writes the file anew with those of its records that `keep` is true for, each as it is but for its
    /// place. What could not be read is kept beside it first. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`FileError::Damaged`] if one that is kept is no object; [`FileError::Io`].
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
                    problem: "a record is no object".to_owned(),
                })?);
            }
        }
        self.replace(disk, &records)
    }

    /// Whether it holds bytes that could not be read.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    /// The file's length in bytes, everything appended included.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.journal.len()
    }

    /// Appends a record; says where it lies. Not durable before [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`FileError::Unwritable`] if it cannot be written as JSON; [`FileError::Io`].
    pub fn append(&mut self, record: &impl Serialize) -> Result<Span, FileError> {
        let place = Place {
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

    /// Puts everything appended so far into the file.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn write_out(&mut self) -> Result<(), FileError> {
        self.journal.write_out()
    }

    /// Makes everything appended so far durable; does nothing if there is nothing new.
    ///
    /// # Errors
    ///
    /// As [`Journal::sync`].
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.journal.sync()?;
        self.durable_number = self.last_number;
        self.durable = self.running.as_ref().map(Running::claim);
        Ok(())
    }

    /// The bytes of a record.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn record(&mut self, span: Span) -> Result<Vec<u8>, FileError> {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        self.journal.read(span.offset, len)
    }

    /// Notes that a record which could be read made no sense.
    pub fn mark_damaged(&mut self) {
        self.is_damaged = true;
    }

    /// Keeps a copy of a file that holds what could not be read, before it is cleared.
    fn keep_damage(&mut self, disk: &dyn Disk) -> Result<Option<PathBuf>, FileError> {
        if !self.is_damaged {
            return Ok(None);
        }
        let content = self.journal.read(0, usize::MAX)?;
        let kept = crate::files::keep_aside(disk, self.journal.path(), "damaged", &content)?;
        self.is_damaged = false;
        Ok(Some(kept))
    }

    /// Clears the file; what it held must be durable elsewhere. What could not be read is kept
    /// beside it first. Not durable before [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn clear(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        self.keep_damage(disk)?;
        self.journal.cut(0)?;
        self.running = self.running.take().map(|_| Running::default());
        (self.last_number, self.durable_number) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
#[path = "sealed_tests.rs"]
mod tests;
