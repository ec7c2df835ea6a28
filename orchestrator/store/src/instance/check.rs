//! Read-only check of every file of an instance.

use std::path::Path;

use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::files::TEMP_SUFFIX;
use goondan_durable::journal::Journal;
use goondan_durable::manifest::{self, Claim, ClaimMatch, ManifestContent, is_same};
use goondan_durable::register::Register;
use goondan_durable::{
    FileError, Finding, FindingKind, IoContext as _, Severity, VerificationResult, sealed_log,
};

use super::answers::MissingAnswers;
use super::base::{self, BASE, BASE_NEXT};
use super::base_checksums::{self, SUMS, SUMS_NEXT};
use super::dedup::{MANIFEST, is_told, shortened_turn};
use super::llm::LLM;
use super::manifest_claims::{KnownFiles, TurnClaim};
use super::rewind::REWIND;
use super::schedules::SCHEDULES;
use super::turn::JournalTurns;
use super::{EVENTS, EXTENSIONS, INBOX, MESSAGES, Metadata, OBSERVED, WORK, inbox, segments, turn};
use crate::error::StoreError;
use crate::file_names::{instance_dir_name, is_dir_of};

/// Advice for work that a crash interrupted.
const OPENING_FINISHES_IT: &str = "nothing to do: it is finished when the instance is opened";
/// Advice for lines without checksums.
const OPENING_MAKES_CHECKSUMS: &str =
    "nothing to do: checksums are made when the instance is opened";

/// Largest extension state that is checked, in bytes.
const STATE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Folder of the agent's own configuration, which is checked separately.
pub(super) const SWARM_BUNDLE: &str = "swarm-bundle";
/// Folder of the instance's joint checkpoints, which belong to another crate.
const CHECKPOINTS: &str = ".checkpoints";
/// Folders without records of the instance.
const FOLDERS: [&str; 5] = [MESSAGES, EXTENSIONS, WORK, SWARM_BUNDLE, CHECKPOINTS];
/// Name parts of files that were moved aside.
const ASIDE: [&str; 4] = [".torn-", ".damaged", ".replaced", ".parked"];

/// Checks every file of the instance in `dir`, except its bundle.
pub(super) fn check(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    check_metadata(disk, dir, out)?;
    out.findings.extend(Register::of(disk, dir).check()?);
    let messages = dir.join(MESSAGES);
    if disk.stat(&messages).during("inspect", &messages)?.is_none() {
        let problem = "the messages folder is missing";
        let finding = Finding::new(&messages, FindingKind::MissingFile, problem);
        out.findings.push(finding.severity(Severity::Info));
    } else {
        let manifest = dir.join(MANIFEST);
        if let Some(stat) = disk.stat(&manifest).during("inspect", &manifest)? {
            out.count(stat.len);
        }
        let content = ManifestContent::read(disk, &manifest)?;
        check_messages(disk, &messages, &content.state, out)?;
        for finding in content.unacknowledged {
            if !out.findings.iter().any(|known| is_same(known, &finding)) {
                out.findings.push(finding);
            }
        }
    }
    let extensions = dir.join(EXTENSIONS);
    if disk
        .stat(&extensions)
        .during("inspect", &extensions)?
        .is_some()
    {
        for entry in disk.list(&extensions).during("list", &extensions)? {
            let path = extensions.join(&entry.name);
            let name = entry.name.to_string_lossy();
            if name.ends_with(".json") && entry.kind == EntryKind::File {
                check_json(disk, &path, out)?;
            } else {
                out.findings.push(odd(&path, entry.kind, &name));
            }
        }
    }
    for entry in disk.list(dir).during("list", dir)? {
        let name = entry.name.to_string_lossy();
        let is_known = (entry.kind == EntryKind::Directory && FOLDERS.contains(&&*name))
            || (entry.kind == EntryKind::File && [Metadata::FILE, MANIFEST].contains(&&*name));
        if entry.kind == EntryKind::File && name == REWIND {
            let path = dir.join(&entry.name);
            let problem = "a rewind has begun and is not finished";
            let finding = Finding::new(&path, FindingKind::UnfinishedWork, problem);
            let finding = finding.severity(Severity::Info);
            out.findings.push(finding.advice(OPENING_FINISHES_IT));
        } else if entry.kind == EntryKind::File && name == SCHEDULES {
            check_json(disk, &dir.join(&entry.name), out)?;
        } else if !is_known {
            out.findings
                .push(odd(&dir.join(&entry.name), entry.kind, &name));
        }
    }
    Ok(())
}

fn check_metadata(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let path = dir.join(Metadata::FILE);
    match Metadata::read(disk, dir) {
        Ok(metadata) => {
            let stat = disk.stat(&path).during("inspect", &path)?;
            out.count(stat.map_or(0, |stat| stat.len));
            let expected = instance_dir_name(&metadata.instance_key);
            let is_its = |name| is_dir_of(name, &metadata.instance_key);
            if dir.file_name().is_some_and(|name| !is_its(name)) {
                let problem = format!(
                    "it names instance `{}`, whose folder is `{expected}`; this folder is left out",
                    metadata.instance_key
                );
                let finding = Finding::new(&path, FindingKind::WrongOwner, problem);
                out.findings
                    .push(finding.advice("rename the folder back, or remove it"));
            }
        }
        Err(FileError::Damaged { line, problem, .. }) => {
            let problem = format!("failed to open the conversation: {problem}");
            let mut finding = Finding::new(&path, FindingKind::UnreadableFile, problem);
            finding.line = Some(line);
            out.findings.push(finding);
        }
        Err(error) if error.is_shortage() => return Err(error.into()),
        Err(error) => out.findings.push(unreadable(&path, &error)),
    }
    Ok(())
}

fn unreadable(path: &Path, error: &FileError) -> Finding {
    let problem = match error {
        FileError::Io { source, .. } => format!("failed to read it: {source}"),
        other => other.to_string(),
    };
    Finding::new(path, FindingKind::UnreadableFile, problem)
}

/// Returns the finding for an unexpected file.
pub(crate) fn odd(path: &Path, kind: EntryKind, name: &str) -> Finding {
    if kind == EntryKind::Other {
        let problem = "a symbolic link or special file; it is never followed or read";
        return Finding::new(path, FindingKind::UnreadableFile, problem)
            .advice("remove it; no file here is a link");
    }
    let is_aside = ASIDE.iter().any(|mark| name.contains(mark));
    if name.ends_with(TEMP_SUFFIX) {
        let problem = "temporary file of an interrupted write";
        Finding::new(path, FindingKind::UnfinishedWork, problem)
            .advice("nothing to do: the next write replaces it")
    } else if is_aside {
        let problem = "data that was truncated, damaged or parked earlier";
        Finding::new(path, FindingKind::SetAside, problem)
    } else {
        Finding::new(path, FindingKind::UnknownFile, "unknown file")
    }
}

/// Checks a file with one JSON value.
pub(crate) fn check_json(
    disk: &dyn Disk,
    path: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let opened = disk.open_read(path).during("open", path);
    let bytes =
        opened.and_then(|mut file| read_all(file.as_mut(), STATE_BYTES_MAX).during("read", path));
    match bytes {
        // The file may be intact.
        Err(error) if error.is_shortage() => return Err(error.into()),
        Err(error) => out.findings.push(unreadable(path, &error)),
        Ok(bytes) => {
            out.count(bytes.len() as u64);
            if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
                let problem = format!("not JSON: {error}");
                let mut finding = Finding::new(path, FindingKind::UnreadableFile, problem);
                finding.line = u64::try_from(error.line()).ok();
                out.findings.push(finding);
            }
        }
    }
    Ok(())
}

/// Checks a log of JSON lines that is never read back.
pub(crate) fn check_log(
    disk: &dyn Disk,
    path: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let Some(mut journal) = open(disk, path, out)? else {
        return Ok(());
    };
    let (mut number, mut findings) = (0, Vec::new());
    let good = journal.scan(|offset, line| {
        number += 1;
        if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err() {
            let problem = format!("line {number} is not JSON");
            let finding = Finding::new(path, FindingKind::DamagedRecord, problem)
                .at(number, offset, offset + line.len() as u64)
                .severity(Severity::Warning)
                .advice("nothing to do: the log is never read back");
            findings.push(finding);
        }
    })?;
    out.findings.append(&mut findings);
    note_torn(&journal, number + 1, good, out);
    Ok(())
}

/// Checks the ledger of a workspace.
pub(crate) fn check_ledger(
    disk: &dyn Disk,
    path: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let advice = "the record is not counted; restore the file from a backup if it matters";
    match check_sealed(disk, path, advice, out)? {
        Some((mut journal, reading)) => {
            crate::ledger::check(&mut journal, &reading, &mut out.findings)
        }
        None => Ok(()),
    }
}

/// Advice for a history with losses.
pub(crate) const HISTORY_ADVICE: &str = "the task cannot be used; restore its work area from a \
    backup, or restore missing files from its checkpoints with `gdn daemon verify --repair`";

/// Checks the history of a task (`TASK-1`).
pub(crate) fn check_history(
    disk: &dyn Disk,
    path: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    check_sealed(disk, path, HISTORY_ADVICE, out).map(drop)
}

/// Checks a file of sealed records and returns its content, if readable.
fn check_sealed(
    disk: &dyn Disk,
    path: &Path,
    advice: &str,
    out: &mut VerificationResult,
) -> Result<Option<(Journal, sealed_log::SealedRead)>, StoreError> {
    let Some(mut journal) = open(disk, path, out)? else {
        return Ok(None);
    };
    let reading = sealed_log::read(&mut journal)?;
    if let Some(cut) = reading.cut {
        note_torn(&journal, reading.records.len() as u64 + 1, cut, out);
    }
    let findings = reading.findings.iter().cloned();
    out.findings
        .extend(findings.map(|finding| finding.advice(advice)));
    Ok(Some((journal, reading)))
}

/// Opens a file for reading; on failure adds a finding and returns `None`.
fn open(
    disk: &dyn Disk,
    path: &Path,
    out: &mut VerificationResult,
) -> Result<Option<Journal>, StoreError> {
    let Some(stat) = disk.stat(path).during("inspect", path)? else {
        return Ok(None);
    };
    if stat.kind != EntryKind::File {
        out.findings.push(odd(path, EntryKind::Other, ""));
        return Ok(None);
    }
    match Journal::open_read(disk, path) {
        Ok(journal) => {
            out.count(journal.len());
            Ok(Some(journal))
        }
        Err(error) if error.is_shortage() => Err(error.into()),
        Err(error) => {
            out.findings.push(unreadable(path, &error));
            Ok(None)
        }
    }
}

fn note_torn(journal: &Journal, line: u64, good: u64, out: &mut VerificationResult) {
    if good < journal.len() {
        let bytes = journal.len() - good;
        let problem = format!(
            "{bytes} bytes from byte {good} on are incomplete; opening moves them to a copy"
        );
        let finding = Finding::new(journal.path(), FindingKind::TornTail, problem);
        out.findings.push(finding.at(line, good, journal.len()));
    }
}

fn check_messages(
    disk: &dyn Disk,
    messages: &Path,
    claimed: &KnownFiles,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let mut journaled = JournalTurns::default();
    let mut known = None;
    for name in [INBOX, EVENTS] {
        let path = messages.join(name);
        let claim = claimed.files.get(name).copied();
        let Some(mut journal) = open(disk, &path, out)? else {
            let standing = claim.map(|claim| (manifest::standing_of_missing(claim), claim));
            let finding = standing.and_then(|(standing, claim)| standing.finding(&path, claim));
            out.findings.extend(finding);
            continue;
        };
        let reading = sealed_log::read(&mut journal)?;
        if let Some(claim) = claim {
            let standing = manifest::standing(&mut journal, claim)?;
            let is_told = standing == ClaimMatch::Replaced && is_told(&reading.findings, &path);
            if !is_told {
                out.findings.extend(standing.finding(&path, claim));
            }
        }
        if let Some(cut) = reading.cut {
            note_torn(&journal, reading.records.len() as u64 + 1, cut, out);
        }
        out.findings.extend(reading.findings.iter().cloned());
        if name == INBOX {
            known = Some(inbox::check(&mut journal, &reading, &mut out.findings)?);
        } else {
            journaled = turn::check(&mut journal, &reading, &mut out.findings)?;
        }
    }
    if !journaled.ended.is_empty() {
        let problem = "a committed turn is not yet part of the base";
        let finding = Finding::new(&messages.join(EVENTS), FindingKind::UnfinishedWork, problem);
        out.findings.push(finding.advice(OPENING_FINISHES_IT));
    }
    check_base(
        disk,
        messages,
        &journaled,
        claimed.files.get(BASE).copied(),
        out,
    )?;
    let known = known.unwrap_or_default();
    check_answers(disk, messages, &known, &journaled, out)?;
    if let Some(claim) = &claimed.turn {
        check_turn(disk, messages, claim, (&known, &journaled), out)?;
    }
    for name in [OBSERVED, LLM] {
        check_log(disk, &messages.join(name), out)?;
        segments::check(disk, messages, name, &mut out.findings)?;
    }
    check_names(disk, messages, out)
}

/// Reports unexpected files.
fn check_names(
    disk: &dyn Disk,
    messages: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    const KNOWN: [&str; 6] = [INBOX, EVENTS, BASE, SUMS, OBSERVED, LLM];
    for entry in disk.list(messages).during("list", messages)? {
        let name = entry.name.to_string_lossy();
        let path = messages.join(&entry.name);
        if name == BASE_NEXT || name == SUMS_NEXT {
            let problem = "a new base that was being prepared when the machine stopped";
            let finding = Finding::new(&path, FindingKind::UnfinishedWork, problem);
            out.findings.push(finding.advice(OPENING_FINISHES_IT));
        } else if entry.kind == EntryKind::File
            && (segments::is_segment(OBSERVED, &name) || segments::is_segment(LLM, &name))
        {
            let stat = disk.stat(&path).during("inspect", &path)?;
            out.count(stat.map_or(0, |stat| stat.len));
        } else if entry.kind != EntryKind::File || !KNOWN.contains(&&*name) {
            out.findings.push(odd(&path, entry.kind, &name));
        }
    }
    Ok(())
}

/// Compares the answers listed by the conversation with the inbox. Recovery adds answers of turns
/// that are still in the journal.
fn check_answers(
    disk: &dyn Disk,
    messages: &Path,
    known: &inbox::Table,
    journaled: &JournalTurns,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let event = journaled.open.as_ref().and_then(|open| open.event.as_ref());
    if let Some(event) = event
        && !known.knows(&event.event_id)
    {
        let problem = format!(
            "event `{}`, whose turn is open, is missing; the turn's records become part of the \
             conversation when the instance is opened, and its answer is not delivered",
            event.event_id
        );
        let kind = FindingKind::MissingRecords;
        out.findings
            .push(Finding::new(&messages.join(INBOX), kind, problem));
    }
    let path = messages.join(SUMS);
    if disk.stat(&path).during("inspect", &path)?.is_some() {
        let mut answers = base_checksums::answers(&mut Journal::open_read(disk, &path)?)?;
        answers.retain(|answer| !journaled.ended.contains(&answer.turn_id));
        let unknown = MissingAnswers::find(answers, known);
        out.findings.extend(unknown.findings(&messages.join(INBOX)));
    }
    Ok(())
}

/// Compares the journal with the recorded claim about its turn.
fn check_turn(
    disk: &dyn Disk,
    messages: &Path,
    claim: &TurnClaim,
    (known, journaled): (&inbox::Table, &JournalTurns),
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let path = messages.join(EVENTS);
    let open = journaled.open.as_ref();
    let open = open.filter(|open| open.turn_id == claim.turn_id);
    let sums = messages.join(SUMS);
    let is_past = journaled.ended.contains(&claim.turn_id)
        || known.is_parked(&claim.event_id)
        || known.is_over(&claim.event_id)
        || (disk.stat(&sums).during("inspect", &sums)?.is_some()
            && base_checksums::answers(&mut Journal::open_read(disk, &sums)?)?
                .iter()
                .any(|answer| answer.turn_id == claim.turn_id));
    let is_short = match open {
        Some(open) => open.last_seq < claim.events,
        None => !is_past,
    };
    if is_short && !is_told(&out.findings, &path) {
        let events = open.map_or(0, |open| open.last_seq);
        out.findings.push(shortened_turn(&path, claim, events));
    }
    Ok(())
}

fn check_base(
    disk: &dyn Disk,
    messages: &Path,
    journaled: &JournalTurns,
    claim: Option<Claim>,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let path = messages.join(BASE);
    let is_committed = !journaled.ended.is_empty();
    let Some(mut lines) = open(disk, &path, out)? else {
        let standing = claim.map(|claim| (manifest::standing_of_missing(claim), claim));
        let finding = standing.and_then(|(standing, claim)| standing.finding(&path, claim));
        out.findings.extend(finding);
        return Ok(());
    };
    let mut sums = open(disk, &messages.join(SUMS), out)?;
    if sums.is_none() && lines.len() > 0 {
        let problem = "it has no checksums yet, so only its syntax can be checked";
        let finding = Finding::new(lines.path(), FindingKind::Unverified, problem);
        out.findings.push(finding.advice(OPENING_MAKES_CHECKSUMS));
    }
    let survey = base::survey(&mut lines, sums.as_mut())?;
    if let Some(claim) = claim
        && !is_committed
        && !is_told(&survey.findings, &path)
    {
        let standing = base::standing(&mut lines, sums.as_mut(), claim)?;
        out.findings.extend(standing.finding(&path, claim));
    }
    if let Some(sums) = &mut sums
        && !is_committed
        && let Some((covered, _)) = base_checksums::coverage(sums)?
        && covered.bytes > 0
        && covered.bytes < lines.len()
    {
        out.findings
            .push(base::foreign(&path, covered, lines.len()));
    }
    out.findings.extend(survey.findings);
    let good = survey.lines.iter().map(|line| u64::from(line.len)).sum();
    if !is_committed {
        note_torn(&lines, survey.lines.len() as u64 + 1, good, out);
    }
    Ok(())
}
