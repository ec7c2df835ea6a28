//! `messages/base.jsonl`, the confirmed messages (`MSG-1`), and the checksum file beside it.
//!
//! # Invariants
//!
//! * Both files change only under a durable commit record with the new state of the base, except
//!   that lines without checksums get some.
//! * A line is returned only if its checksum matches. A damaged line is skipped, stays in the file,
//!   and is reported each time (`MSG-11`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use goondan_durable::disk::Disk;
use goondan_durable::journal::{Journal, TornTail};
use goondan_durable::limits::READ_CHUNK_BYTES;
use goondan_durable::manifest::{self, Claim, ClaimMatch, RunningChecksum};
use goondan_durable::{
    Finding, FindingKind, IoContext as _, Severity, checksum, files, sealed_log,
};
use goondan_protocol::ids::TurnId;

use super::answer::AnswerRef;
use super::base_checksums::{self, Coverage, SUMS, SUMS_NEXT};
use super::checksum_diff::{Alignment, LineSum, LineVerdict, align};
use super::inbox::Inbox;
use crate::error::StoreError;
use crate::limits::INBOX_REMEMBERED_EVENTS;

/// The file's name.
pub(super) const BASE: &str = "base.jsonl";
/// The prepared base of a rewrite.
pub(super) const BASE_NEXT: &str = "base.next.jsonl";

const _: () = assert!(BASE_NEXT.len() > BASE.len());

/// The confirmed messages of one instance.
#[derive(Debug)]
pub(super) struct Base {
    messages: PathBuf,
    lines: Journal,
    sums: Journal,
    /// Extent of the checksums; `None` if the end of their file is unreadable.
    coverage: Option<Coverage>,
    /// Answers to list when the checksums are rewritten.
    unnamed: Vec<AnswerRef>,
    /// Content known to be durable.
    durable: Option<Claim>,
    /// State of the lines while the conversation is read page by page.
    reader: Option<BaseReader>,
}

/// State of each line of the base.
#[derive(Debug)]
pub(super) struct Survey {
    /// Every line in file order with its original checksum; `None` if it is damaged.
    pub lines: Vec<LineSum>,
    bad: HashSet<u64>,
    pub findings: Vec<Finding>,
}

#[derive(Debug)]
struct BaseReader {
    lines: Vec<LineSum>,
    /// Findings about the checksums themselves; returned once.
    findings: Vec<Finding>,
    /// Index of the line that begins at byte `offset`.
    next: usize,
    offset: u64,
    /// Set when a damaged line is found.
    survey: Option<Survey>,
}

impl Base {
    /// Opens both files and creates missing ones. Checks nothing yet.
    pub(super) fn open(
        disk: &dyn Disk,
        messages: &Path,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let lines = Journal::open(disk, &messages.join(BASE))?;
        let mut sums = Journal::open(disk, &messages.join(SUMS))?;
        let mut coverage = base_checksums::coverage(&mut sums)?;
        if let Some((covered, end)) = coverage
            && end < sums.len()
        {
            // Settling the base recreates the lost record.
            match sums.mend_tail(disk, end)? {
                Some(torn) => {
                    let line = covered.records() + 1;
                    findings.push(sealed_log::torn(sums.path(), line, &torn));
                }
                None => coverage = base_checksums::coverage(&mut sums)?,
            }
        }
        let coverage = coverage.map(|(coverage, _)| coverage);
        let messages = messages.to_owned();
        Ok(Self {
            messages,
            lines,
            sums,
            coverage,
            unnamed: Vec::new(),
            durable: None,
            reader: None,
        })
    }

    /// Returns the events answered last, newest last.
    pub(super) fn answers(&mut self) -> Result<Vec<AnswerRef>, StoreError> {
        let mut answers = base_checksums::answers(&mut self.sums)?;
        answers.extend(self.unnamed.iter().cloned());
        Ok(answers)
    }

    /// True if the inbox certainly has every answer: it is unchanged, has no pending event, and
    /// contains the last answer listed.
    pub(super) fn answers_are_known_to(&mut self, inbox: &Inbox) -> Result<bool, StoreError> {
        if !inbox.is_whole() || inbox.has_pending() {
            return Ok(false);
        }
        let last = self.answers()?.pop();
        Ok(last.is_none_or(|last| inbox.is_over(&last.event_id, last.inbox_seq)))
    }

    /// True if the checksums list the turn as part of the base.
    pub(super) fn names_turn(&mut self, turn_id: &TurnId) -> Result<bool, StoreError> {
        let answers = self.answers()?;
        Ok(answers.iter().any(|answer| answer.turn_id == *turn_id))
    }

    /// True if the checksums list any answer.
    pub(super) fn names_answers(&mut self) -> Result<bool, StoreError> {
        Ok(!base_checksums::answers(&mut self.sums)?.is_empty())
    }

    /// Appends answers to the checksums. Durable when it returns.
    pub(super) fn name(&mut self, answers: &[AnswerRef]) -> Result<(), StoreError> {
        if let Some(mut coverage) = self.coverage {
            let sum = self.sum_to(coverage)?;
            self.append_sums((&[], answers, Some(sum)), &mut coverage)?;
        }
        self.sync()
    }

    pub(super) fn path(&self) -> &Path {
        self.lines.path()
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.lines.len()
    }

    /// Returns the number of its bytes with checksums, if known.
    pub(super) fn covered(&self) -> Option<u64> {
        self.coverage.map(|coverage| coverage.bytes)
    }

    pub(super) fn count(&self) -> u64 {
        self.coverage.map_or(0, |coverage| coverage.lines)
    }

    /// Syncs data that a killed process may have left in the page cache only.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.lines.sync()?;
        self.sums.sync()?;
        self.durable = self.coverage.and_then(|coverage| {
            let is_whole = coverage.bytes == self.lines.len();
            let crc32 = coverage.sum.filter(|_| is_whole)?;
            Some(Claim {
                records: coverage.lines,
                bytes: coverage.bytes,
                crc32,
            })
        });
        Ok(())
    }

    /// Returns the content known to be durable.
    pub(super) fn claim(&self) -> Option<Claim> {
        self.durable
    }

    /// Drops the claim about the file before it is replaced.
    pub(super) fn release(&mut self) {
        self.durable = None;
    }

    /// Compares the file with its claim.
    pub(super) fn standing(&mut self, claim: Claim) -> Result<ClaimMatch, StoreError> {
        standing(&mut self.lines, Some(&mut self.sums), claim)
    }

    pub(super) fn read(&mut self, offset: u64, max: usize) -> Result<Vec<u8>, StoreError> {
        Ok(self.lines.read(offset, max)?)
    }

    /// Appends up to `max` bytes from `offset` to `text`.
    pub(super) fn read_into(
        &mut self,
        text: &mut Vec<u8>,
        offset: u64,
        max: usize,
    ) -> Result<(), StoreError> {
        Ok(self.lines.read_into(text, offset, max)?)
    }

    /// The line that begins at `offset`, with its newline.
    pub(super) fn line_at(&mut self, offset: u64) -> Result<Vec<u8>, StoreError> {
        let mut line = Vec::new();
        loop {
            let chunk = self
                .lines
                .read(offset + line.len() as u64, READ_CHUNK_BYTES)?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let is_last = chunk.is_empty() || end.is_some();
            line.extend(chunk.into_iter().take(end.map_or(usize::MAX, |at| at + 1)));
            if is_last {
                return Ok(line);
            }
        }
    }

    pub(super) fn journal(&mut self) -> &mut Journal {
        &mut self.lines
    }

    /// Ensures that every line has a matching checksum. Called when the instance is opened and no
    /// commit is pending; cheap if nothing changed.
    pub(super) fn settle(
        &mut self,
        disk: &dyn Disk,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        self.mend_end(disk, findings)?;
        let Some(mut coverage) = self.coverage else {
            return self.reconcile(disk, findings);
        };
        let len = self.lines.len();
        let ends_in_line = coverage.bytes > 0
            && (coverage.bytes > len || self.lines.read(coverage.bytes - 1, 1)? != b"\n");
        if ends_in_line {
            return self.reconcile(disk, findings);
        }
        if coverage.bytes < len {
            if coverage.bytes > 0 {
                findings.push(foreign(self.lines.path(), coverage, len));
            }
            if coverage.bytes > 0 {
                // The added lines may duplicate existing ones.
                return self.reconcile(disk, findings);
            }
            let (mut added, mut offset) = (Vec::new(), 0);
            let mut named = std::mem::take(&mut self.unnamed);
            let path = self.lines.path().to_owned();
            each_line(&mut self.lines, 0, |line, mut sum| {
                let to = offset + u64::from(sum.len);
                if !is_json(line) && !line.is_empty() {
                    sum.sum = None;
                    let line = added.len() as u64 + 1;
                    let problem = format!("line {line}: not JSON; skipped");
                    let kind = FindingKind::DamagedRecord;
                    findings.push(Finding::new(&path, kind, problem).at(line, offset, to));
                }
                offset = to;
                added.push(sum);
                named.extend(AnswerRef::named_by(line));
            })?;
            let surplus = named.len().saturating_sub(INBOX_REMEMBERED_EVENTS);
            named.drain(..surplus);
            let sum = RunningChecksum::of(&mut self.lines)?.claim().crc32;
            self.append_sums((&added, &named, Some(sum)), &mut coverage)?;
            self.sync()?;
        }
        Ok(())
    }

    /// This store's commits record the length of the base, so a base without a final newline was
    /// changed by another implementation or damaged.
    fn mend_end(&mut self, disk: &dyn Disk, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        let len = self.lines.len();
        if len == 0 || self.lines.read(len - 1, 1)? == b"\n" {
            return Ok(());
        }
        let mut count = 0;
        let good = self.lines.scan(|_, _| count += 1)?;
        if let Some(torn) = self.lines.mend_tail(disk, good)? {
            findings.push(sealed_log::torn(self.lines.path(), count + 1, &torn));
        }
        Ok(())
    }

    /// Handles checksums that do not match the lines: finds the undamaged lines, reports the
    /// others, keeps the old checksums, and writes new ones that mark the damage. Durable when it
    /// returns.
    fn reconcile(
        &mut self,
        disk: &dyn Disk,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        let survey = self.survey()?;
        let old = self.sums.read(0, usize::MAX)?;
        let kept = files::keep_aside(disk, self.sums.path(), "replaced", &old)?;
        let mut coverage = Coverage::default();
        let mut answers = base_checksums::answers(&mut self.sums)?;
        answers.append(&mut self.unnamed);
        let sum = RunningChecksum::of(&mut self.lines)?.claim().crc32;
        let content =
            base_checksums::records_of(&survey.lines, &answers, Some(sum), &mut coverage)?;
        files::replace(disk, self.sums.path(), &content)?;
        self.sums = Journal::open(disk, &self.messages.join(SUMS))?;
        self.coverage = Some(coverage);
        self.reader = None;
        let found = survey.findings.into_iter();
        findings.extend(found.map(|finding| finding.kept(&kept)));
        Ok(())
    }

    /// Returns the checksum of the covered part.
    fn sum_to(&mut self, coverage: Coverage) -> Result<u32, StoreError> {
        if let Some(sum) = coverage.sum.or((coverage.bytes == 0).then_some(0)) {
            return Ok(sum);
        }
        let mut running = RunningChecksum::default();
        running.read_to(&mut self.lines, coverage.bytes)?;
        Ok(running.claim().crc32)
    }

    fn append_sums(
        &mut self,
        (lines, answers, sum): (&[LineSum], &[AnswerRef], Option<u32>),
        coverage: &mut Coverage,
    ) -> Result<(), StoreError> {
        let records = base_checksums::records_of(lines, answers, sum, coverage)?;
        if !records.is_empty() {
            self.sums.append(&records)?;
        }
        self.coverage = Some(*coverage);
        self.reader = None;
        Ok(())
    }

    /// The length of the checksums in bytes.
    pub(super) fn sums_len(&self) -> u64 {
        self.sums.len()
    }

    /// Truncates both files to their lengths at a commit, in bytes; the length of the checksums is
    /// optional. Durable after [`Self::sync`].
    pub(super) fn cut_back(&mut self, len: u64, sums_len: Option<u64>) -> Result<(), StoreError> {
        let is_short = self.lines.len() < len;
        if self.lines.len() > len {
            self.lines.cut(len)?;
        }
        if let Some(sums_len) = sums_len.filter(|len| !is_short && self.sums.len() > *len) {
            // A crash may have left arbitrary bytes after that.
            self.sums.cut(sums_len)?;
            self.coverage = base_checksums::coverage(&mut self.sums)?.map(|(coverage, _)| coverage);
        }
        if is_short {
            // The file lost its end, and appends continue there; settling it reports the loss.
            self.coverage = None;
        }
        self.reader = None;
        Ok(())
    }

    /// Appends whole lines, their checksums, and the events they answer. They are in the files when
    /// it returns, and durable after [`Self::sync`].
    pub(super) fn append_delta(
        &mut self,
        delta: &[u8],
        answers: &[AnswerRef],
    ) -> Result<(), StoreError> {
        let from = self.lines.len();
        let coverage = self.coverage.filter(|coverage| coverage.bytes >= from);
        let sum = coverage.map(|coverage| self.sum_to(coverage)).transpose()?;
        if !delta.is_empty() {
            self.lines.append(delta)?;
        }
        self.reader = None;
        // A crash may have left checksums of lines that did not reach the disk; they
        // match the lines appended now.
        if let (Some(mut coverage), Some(sum)) = (coverage, sum) {
            let covered = usize::try_from(coverage.bytes - from).unwrap_or(usize::MAX);
            let added = delta.get(covered..).unwrap_or_default();
            let lines: Result<Vec<_>, _> = added
                .split_inclusive(|byte| *byte == b'\n')
                .map(base_checksums::sum_of)
                .collect();
            let mut hasher = Hasher::new_with_initial_len(sum, coverage.bytes);
            hasher.update(added);
            let sum = Some(hasher.finalize());
            self.append_sums((&lines?, answers, sum), &mut coverage)?;
        } else {
            self.unnamed.extend_from_slice(answers);
        }
        self.lines.write_out()?;
        Ok(self.sums.write_out()?)
    }

    /// Appends lines that another program had added, without checksums; settling adds them and
    /// reports it. A cut last line is moved aside.
    pub(super) fn append_foreign(
        &mut self,
        disk: &dyn Disk,
        bytes: &[u8],
        findings: &mut Vec<Finding>,
    ) -> Result<(), StoreError> {
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let (lines, torn) = bytes.split_at(whole);
        if !torn.is_empty() {
            let offset = self.lines.len() + lines.len() as u64;
            let label = format!("torn-{offset}");
            let kept_in = files::keep_aside(disk, self.lines.path(), &label, torn)?;
            let bytes = torn.len() as u64;
            let torn = TornTail {
                offset,
                bytes,
                kept_in,
            };
            findings.push(sealed_log::torn(self.lines.path(), self.count() + 1, &torn));
        }
        if !lines.is_empty() {
            self.lines.append(lines)?;
        }
        Ok(self.lines.write_out()?)
    }

    /// True if the base already holds `bytes` bytes with checksum `crc32` after `from`.
    pub(super) fn has_delta(
        &mut self,
        from: u64,
        bytes: u64,
        crc32: u32,
    ) -> Result<bool, StoreError> {
        if self.lines.len() < from + bytes {
            return Ok(false);
        }
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(checksum::crc32(&self.lines.read(from, len)?) == crc32)
    }

    /// Writes a new base and its checksums beside the old ones. Durable when it returns.
    pub(super) fn prepare(
        &mut self,
        disk: &dyn Disk,
        content: &[u8],
        lines: &[LineSum],
        answers: &[AnswerRef],
    ) -> Result<(), StoreError> {
        files::write_synced(disk, &self.messages.join(BASE_NEXT), content)?;
        let mut named = self.answers()?;
        named.extend_from_slice(answers);
        let surplus = named.len().saturating_sub(INBOX_REMEMBERED_EVENTS);
        let named = named.split_off(surplus);
        let sum = Some(checksum::crc32(content));
        let sums = base_checksums::records_of(lines, &named, sum, &mut Coverage::default())?;
        files::write_synced(disk, &self.messages.join(SUMS_NEXT), &sums)?;
        Ok(disk
            .sync_dir(&self.messages)
            .during("sync", &self.messages)?)
    }

    /// Renames the prepared base into place. A missing file was renamed before. Durable when it
    /// returns.
    pub(super) fn install(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        for (next, name) in [(BASE_NEXT, BASE), (SUMS_NEXT, SUMS)] {
            let next = self.messages.join(next);
            if disk.stat(&next).during("inspect", &next)?.is_some() {
                let path = self.messages.join(name);
                disk.rename(&next, &path)
                    .during("rename into place", &path)?;
            }
        }
        disk.sync_dir(&self.messages)
            .during("sync", &self.messages)?;
        *self = Self::open(disk, &self.messages, &mut Vec::new())?;
        Ok(())
    }

    /// Compares every line with its original checksum.
    pub(super) fn survey(&mut self) -> Result<Survey, StoreError> {
        survey(&mut self.lines, Some(&mut self.sums))
    }

    /// Rewrites the base without damaged lines, if there are any, and keeps copies of both files.
    /// Returns the paths of the copies. Durable when it returns.
    pub(super) fn mend(&mut self, disk: &dyn Disk) -> Result<Vec<PathBuf>, StoreError> {
        let survey = self.survey()?;
        if survey.findings.is_empty() {
            return Ok(Vec::new());
        }
        let mut kept = Vec::new();
        for journal in [&mut self.lines, &mut self.sums] {
            let content = journal.read(0, usize::MAX)?;
            kept.push(files::keep_aside(
                disk,
                journal.path(),
                "damaged",
                &content,
            )?);
        }
        let (mut content, mut lines) = (Vec::new(), Vec::new());
        let answers = self.answers()?;
        let mut sums = survey.lines.into_iter();
        self.lines.scan(|_, line| {
            if let Some(sum) = sums.next().filter(|sum| sum.sum.is_some()) {
                content.extend_from_slice(line);
                content.push(b'\n');
                lines.push(sum);
            }
        })?;
        // Between the two writes the checksums do not match; opening the instance would settle
        // that.
        files::replace(disk, &self.messages.join(BASE), &content)?;
        let sum = Some(checksum::crc32(&content));
        let sums = base_checksums::records_of(&lines, &answers, sum, &mut Coverage::default())?;
        files::replace(disk, &self.messages.join(SUMS), &sums)?;
        *self = Self::open(disk, &self.messages, &mut Vec::new())?;
        Ok(kept)
    }

    /// Begins or continues reading at byte `offset`.
    pub(super) fn seek(&mut self, offset: u64) -> Result<Vec<Finding>, StoreError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let (lines, findings) = base_checksums::load(&mut self.sums, &mut self.lines)?;
                self.reader.insert(BaseReader {
                    lines,
                    findings,
                    next: 0,
                    offset: 0,
                    survey: None,
                })
            }
        };
        if reader.offset != offset {
            (reader.next, reader.offset) = (0, 0);
            while reader.offset < offset
                && let Some(line) = reader.lines.get(reader.next)
            {
                reader.offset += u64::from(line.len);
                reader.next += 1;
            }
        }
        Ok(std::mem::take(&mut reader.findings))
    }

    /// Returns the checksum of the checksums of the lines up to byte `until`; `None` if no line
    /// ends there. Call it after [`Self::seek`].
    pub(super) fn revision(&self, until: u64) -> Option<u32> {
        let lines = self.reader.as_ref().map(|reader| &reader.lines);
        let (mut hasher, mut offset) = (Hasher::new(), 0);
        for line in lines.into_iter().flatten() {
            if offset >= until {
                break;
            }
            hasher.update(&line.len.to_be_bytes());
            hasher.update(&line.sum.unwrap_or(0).to_be_bytes());
            offset += u64::from(line.len);
        }
        (offset == until).then(|| hasher.finalize())
    }

    /// Returns the length of the line at `offset` at the start of `rest`, including its newline,
    /// and true if it is undamaged. Request lines in order, after [`Self::seek`].
    pub(super) fn next_line(
        &mut self,
        offset: u64,
        rest: &[u8],
    ) -> Result<(usize, bool), StoreError> {
        if let Some(reader) = self.reader.as_mut().filter(|reader| reader.survey.is_none())
            && reader.offset == offset
            && let Some(expected) = reader.lines.get(reader.next)
            && let Ok(len) = usize::try_from(expected.len)
            && let Some(line) = rest.get(..len)
            // The length is known, so the line's end is not searched for.
            && *expected == base_checksums::sum_of(line)?
        {
            reader.next += 1;
            reader.offset += u64::from(expected.len);
            return Ok((len, true));
        }
        let end = rest.iter().position(|byte| *byte == b'\n');
        let len = end.map_or(rest.len(), |at| at + 1);
        if self.reader.as_ref().is_some_and(|r| r.survey.is_none()) {
            let survey = self.survey()?;
            if let Some(reader) = &mut self.reader {
                reader.survey = Some(survey);
            }
        }
        let survey = self.reader.as_ref().and_then(|r| r.survey.as_ref());
        let is_good = survey.is_none_or(|survey| !survey.bad.contains(&offset));
        Ok((len, is_good))
    }

    /// Ends a page and returns the findings between `from` and `to`. Drops the reader after the
    /// last page.
    pub(super) fn end_page(&mut self, from: u64, to: u64) -> Vec<Finding> {
        let is_last = to >= self.lines.len();
        let Some(reader) = &mut self.reader else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        if let Some(survey) = &reader.survey {
            // A finding without a position concerns the whole file.
            let is_here = |finding: &&Finding| {
                let at = finding.bytes.map_or(0, |bytes| bytes.from);
                at >= from && (at < to || is_last)
            };
            findings.extend(survey.findings.iter().filter(is_here).cloned());
        }
        if is_last {
            self.reader = None;
        }
        findings
    }
}

/// Returns the finding for lines after the covered part.
pub(super) fn foreign(path: &Path, coverage: Coverage, len: u64) -> Finding {
    let problem = format!(
        "bytes {} to {len} were added by another program; they are part of the conversation",
        coverage.bytes
    );
    Finding::new(path, FindingKind::Unverified, problem)
        .at(coverage.lines + 1, coverage.bytes, len)
        .severity(Severity::Warning)
        .advice("read them; run `gdn daemon verify --repair` to acknowledge them, which keeps them")
}

/// Compares a base with its claim. Reads the lines only if the checksums are not sufficient.
pub(super) fn standing(
    lines: &mut Journal,
    sums: Option<&mut Journal>,
    claim: Claim,
) -> Result<ClaimMatch, StoreError> {
    if lines.len() >= claim.bytes
        && let Some(sums) = sums
        && base_checksums::sum_at(sums, claim.bytes)? == Some(claim.crc32)
    {
        return Ok(ClaimMatch::Whole);
    }
    Ok(manifest::standing(lines, claim)?)
}

/// Compares the lines of a base with their checksums, if it has any. Changes nothing.
pub(super) fn survey(
    lines: &mut Journal,
    sums: Option<&mut Journal>,
) -> Result<Survey, StoreError> {
    let (written, mut findings) = match sums {
        Some(sums) => base_checksums::load(sums, lines)?,
        None => (Vec::new(), Vec::new()),
    };
    let mut found = Vec::new();
    let mut are_json = Vec::new();
    each_line(lines, 0, |line, sum| {
        let is_as_written = written.get(found.len()) == Some(&sum);
        are_json.push(is_as_written || is_json(line));
        found.push(sum);
    })?;
    let alignment = align(&written, &found);
    Ok(judge(
        lines.path(),
        alignment,
        found,
        &are_json,
        &mut findings,
    ))
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

fn each_line(
    lines: &mut Journal,
    from: u64,
    mut take: impl FnMut(&[u8], LineSum),
) -> Result<(), StoreError> {
    let mut failed = None;
    let mut with_newline = Vec::new();
    lines.scan_from(from, |_, line| {
        with_newline.clear();
        with_newline.extend_from_slice(line);
        with_newline.push(b'\n');
        match base_checksums::sum_of(&with_newline) {
            Ok(sum) => take(line, sum),
            Err(error) => failed = Some(error),
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// Returns the problem with a record, if there is one.
fn wrong_with(verdict: LineVerdict, is_json: bool) -> Option<(FindingKind, &'static str)> {
    match verdict {
        LineVerdict::Uncovered if is_json => None,
        LineVerdict::Whole => None,
        LineVerdict::Moved => Some((
            FindingKind::MisplacedRecord,
            "the record is intact but out of place; it is read at its current position",
        )),
        LineVerdict::Repeated => Some((
            FindingKind::RepeatedRecord,
            "duplicate record; it counts once",
        )),
        LineVerdict::Unknown => Some((
            FindingKind::UnknownRecord,
            "no such record was written; skipped",
        )),
        LineVerdict::Damaged | LineVerdict::Uncovered => {
            Some((FindingKind::DamagedRecord, "the record is damaged; skipped"))
        }
        LineVerdict::KnownDamaged => Some((
            FindingKind::DamagedRecord,
            "the record was found damaged before; skipped",
        )),
    }
}

fn judge(
    path: &Path,
    alignment: Alignment,
    found: Vec<LineSum>,
    is_json: &[bool],
    findings: &mut Vec<Finding>,
) -> Survey {
    let mut bad = HashSet::new();
    let mut lines = Vec::with_capacity(found.len());
    let mut offsets = Vec::with_capacity(found.len() + 1);
    let mut offset = 0;
    for (at, sum) in found.into_iter().enumerate() {
        offsets.push(offset);
        let (number, to) = (at as u64 + 1, offset + u64::from(sum.len));
        let verdict = alignment
            .verdicts
            .get(at)
            .copied()
            .unwrap_or(LineVerdict::Uncovered);
        let wrong = wrong_with(verdict, is_json.get(at) == Some(&true));
        let is_good = matches!(wrong, None | Some((FindingKind::MisplacedRecord, _)));
        if !is_good {
            bad.insert(offset);
        }
        if let Some((kind, problem)) = wrong {
            let problem = format!("line {number}: {problem}");
            findings.push(Finding::new(path, kind, problem).at(number, offset, to));
        }
        lines.push(LineSum {
            len: sum.len,
            sum: sum.sum.filter(|_| is_good),
        });
        offset = to;
    }
    offsets.push(offset);
    for missing in alignment.missing {
        let at = offsets.get(missing.before).copied().unwrap_or(offset);
        let line = missing.before as u64 + 1;
        let (count, plural) = (missing.count, if missing.count == 1 { "" } else { "s" });
        let problem = format!("before line {line}: {count} record{plural} missing");
        let kind = FindingKind::MissingRecords;
        findings.push(Finding::new(path, kind, problem).at(line, at, at));
    }
    findings.sort_by_key(|finding| finding.bytes.map(|bytes| bytes.from));
    Survey {
        lines,
        bad,
        findings: std::mem::take(findings),
    }
}
