//! `messages/base.sums.jsonl`: checksums of `base.jsonl`.
//!
//! The base is plain data that other implementations read and write, so its checksums are in a
//! separate file. Each record covers a run of lines; each fold appends one run:
//!
//! `{"from":0,"first":1,"lines":[[231,2712847316],[198,null]],"n":1,"d":0,"crc32":"89abcdef"}`
//!
//! `from` is the run's byte offset, `first` the number of its first line, and each pair is a line's
//! length and CRC-32, including its newline; `null` marks a line that was found damaged. `answers`
//! lists the events answered with these lines (see [`super::answers`]). Appending a run keeps a
//! fold's cost independent of the history's length. Every rewrite keeps the existing checksums, so
//! that damage is never sealed as valid.

use goondan_durable::checksum::{RecordPosition, Seal, crc32, seal, seal_of};
use goondan_durable::journal::Journal;
use goondan_durable::limits::READ_CHUNK_BYTES;
use goondan_durable::{Finding, FindingKind, Severity, sealed_log};
use serde::{Deserialize, Serialize};

use super::answer::AnswerRef;
use super::checksum_diff::LineSum;
use crate::error::StoreError;
use crate::limits::{INBOX_REMEMBERED_EVENTS, SUMS_RECORD_ANSWERS, SUMS_RECORD_LINES};

/// The file's name.
pub(super) const SUMS: &str = "base.sums.jsonl";
/// The checksum file of a prepared base.
pub(super) const SUMS_NEXT: &str = "base.next.sums.jsonl";

#[derive(Debug, Serialize, Deserialize)]
struct LineRun {
    from: u64,
    first: u64,
    lines: Vec<(u32, Option<u32>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<AnswerRef>,
    /// CRC-32 of the whole base up to the last of the lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum: Option<u32>,
}

impl LineRun {
    fn to(&self) -> u64 {
        self.from + self.lines.iter().map(|line| u64::from(line.0)).sum::<u64>()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Coverage {
    /// Covered bytes of the base.
    pub bytes: u64,
    /// Covered lines of the base.
    pub lines: u64,
    /// Number of records of this file.
    records: u64,
    /// Checksum of the covered bytes, if recorded.
    pub sum: Option<u32>,
}

impl Coverage {
    /// Returns the number of records of the checksum file.
    pub(super) fn records(self) -> u64 {
        self.records
    }
}

/// Returns the checksum of a line, including its newline.
pub(super) fn sum_of(line: &[u8]) -> Result<LineSum, StoreError> {
    let len = u32::try_from(line.len()).map_err(|_| StoreError::TooLarge {
        bytes: line.len(),
        max: usize::try_from(u32::MAX).unwrap_or(usize::MAX),
    })?;
    Ok(LineSum {
        len,
        sum: Some(crc32(line)),
    })
}

/// Returns records that cover `lines`, which follow `coverage`, and list `answers`. `sum` is the
/// checksum of the whole base after that.
pub(super) fn records_of(
    lines: &[LineSum],
    answers: &[AnswerRef],
    sum: Option<u32>,
    coverage: &mut Coverage,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    // A crash that loses covered data loses everything after it: see `super::redo`.
    let durable = coverage.records;
    let mut chunks = lines.chunks(SUMS_RECORD_LINES).peekable();
    let mut answers = answers.chunks(SUMS_RECORD_ANSWERS);
    coverage.sum = sum;
    loop {
        let chunk = chunks.next().unwrap_or_default();
        // Answers are read from the file's end.
        let is_last = chunks.peek().is_none();
        let named = if is_last { answers.next() } else { None };
        if chunk.is_empty() && named.is_none() {
            return Ok(bytes);
        }
        let run = LineRun {
            from: coverage.bytes,
            first: coverage.lines + 1,
            lines: chunk.iter().map(|line| (line.len, line.sum)).collect(),
            answers: named.unwrap_or_default().to_vec(),
            sum: sum.filter(|_| is_last),
        };
        coverage.records += 1;
        let place = RecordPosition {
            n: coverage.records,
            durable,
        };
        bytes.extend(seal(&run, place)?);
        coverage.bytes = run.to();
        coverage.lines += chunk.len() as u64;
    }
}

/// Returns the events answered last, newest last: at most [`INBOX_REMEMBERED_EVENTS`], from the
/// last [`READ_CHUNK_BYTES`] of the file.
pub(super) fn answers(sums: &mut Journal) -> Result<Vec<AnswerRef>, StoreError> {
    let from = sums.len().saturating_sub(READ_CHUNK_BYTES as u64);
    let tail = sums.read(from, READ_CHUNK_BYTES)?;
    let mut found = Vec::new();
    for line in tail.split(|byte| *byte == b'\n').rev() {
        if let (Seal::Whole(_), Ok(run)) = (seal_of(line), serde_json::from_slice::<LineRun>(line))
        {
            found.extend(run.answers.into_iter().rev());
        }
        if found.len() >= INBOX_REMEMBERED_EVENTS {
            break;
        }
    }
    found.truncate(INBOX_REMEMBERED_EVENTS);
    found.reverse();
    Ok(found)
}

/// Returns the coverage according to the last record, and the record's end offset; `None` if the
/// end of the file is damaged.
pub(super) fn coverage(sums: &mut Journal) -> Result<Option<(Coverage, u64)>, StoreError> {
    let from = sums.len().saturating_sub(READ_CHUNK_BYTES as u64);
    let tail = sums.read(from, READ_CHUNK_BYTES)?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
        return Ok((from == 0).then_some((Coverage::default(), 0)));
    };
    let whole = tail.get(..end).unwrap_or_default();
    let start = whole
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let line = whole.get(start..).unwrap_or_default();
    let (Seal::Whole(place), Ok(run)) = (seal_of(line), serde_json::from_slice::<LineRun>(line))
    else {
        return Ok(None);
    };
    let coverage = Coverage {
        bytes: run.to(),
        lines: run.first - 1 + run.lines.len() as u64,
        records: place.n,
        sum: run.sum,
    };
    Ok(Some((coverage, from + end as u64 + 1)))
}

/// Returns the checksum of the base up to byte `to`, if a record in the last [`READ_CHUNK_BYTES`]
/// has it.
pub(super) fn sum_at(sums: &mut Journal, to: u64) -> Result<Option<u32>, StoreError> {
    let from = sums.len().saturating_sub(READ_CHUNK_BYTES as u64);
    let tail = sums.read(from, READ_CHUNK_BYTES)?;
    for line in tail.split(|byte| *byte == b'\n').rev() {
        if let (Seal::Whole(_), Ok(run)) = (seal_of(line), serde_json::from_slice::<LineRun>(line))
            && run.to() <= to
        {
            return Ok(run.sum.filter(|_| run.to() == to));
        }
    }
    Ok(None)
}

/// Returns the checksums of all lines. Where the checksum file is damaged, the current lines of
/// `base` are used, and a finding reports that they cannot be verified.
pub(super) fn load(
    sums: &mut Journal,
    base: &mut Journal,
) -> Result<(Vec<LineSum>, Vec<Finding>), StoreError> {
    let reading = sealed_log::read(sums)?;
    let mut findings = reading.findings;
    for finding in &mut findings {
        // The messages themselves are not affected.
        finding.severity = Severity::Warning;
    }
    let (mut lines, mut position) = (Vec::new(), 0);
    for span in reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        let bytes = sums.read(span.offset, len)?;
        let run: LineRun = match serde_json::from_slice(&bytes) {
            Ok(run) => run,
            Err(error) => {
                let problem = format!("line {}: no checksums: {error}", span.line);
                let kind = FindingKind::UnknownRecord;
                findings.push(span.finding(sums.path(), kind, problem));
                continue;
            }
        };
        if run.from > position {
            stand_in(base, position, run.from, &mut lines, &mut findings)?;
        } else if run.from < position {
            continue;
        }
        position = run.to();
        lines.extend(run.lines.into_iter().map(|(len, sum)| LineSum { len, sum }));
    }
    Ok((lines, findings))
}

fn stand_in(
    base: &mut Journal,
    from: u64,
    to: u64,
    lines: &mut Vec<LineSum>,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    let problem =
        format!("bytes {from} to {to} cannot be checked: their checksums are damaged or missing");
    let finding = Finding::new(base.path(), FindingKind::Unverified, problem)
        .at(lines.len() as u64 + 1, from, to)
        .severity(Severity::Warning)
        .advice(
            "read the messages there with care; `gdn daemon verify --repair` makes new checksums",
        );
    findings.push(finding);
    let len = usize::try_from(to - from).unwrap_or(usize::MAX);
    for line in base.read(from, len)?.split_inclusive(|byte| *byte == b'\n') {
        lines.push(sum_of(line)?);
    }
    Ok(())
}
