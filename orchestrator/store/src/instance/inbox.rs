//! `messages/inbox.jsonl`: the accepted events of an instance and their outcomes (`MSG-13`).
//!
//! `accepted` holds an event, `done` its turn's outcome. An event is durable here before it is
//! acknowledged; a turn is done here before its journal is cleared. The ids of the latest finished
//! events are kept with their outcomes, so that a repeated event id starts no second turn and the
//! repeated request gets the stored answer.
//!
//! An event with too many crashed turns is `parked`, so that it blocks no other event. `attempted`
//! counts the crashes, `retried` requeues a parked event from the start, `dropped` ends it.
//!
//! A user holds an event back with `paused` until `resumed`, and reorders it with `moved`: before
//! another event, or to the end.
//!
//! `joined` gives the last part of a join the texts of the others, and finishes them; see [`join`].
//!
//! `awaiting` records a question of this instance's agent to another agent, and the event that will
//! carry the answer, without its text. It is written before the question is sent, and ends when the
//! answer event is accepted; `forgone` ends it if the question was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use goondan_durable::checksum::{Seal, seal_of};
use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::manifest::{Claim, ClaimMatch};
use goondan_durable::sealed_log::{self, SealedLog, Span};
use goondan_durable::{FileError, Finding, FindingKind, Severity};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{ConnectionName, EventId, InstanceKey, TurnId};
use goondan_protocol::time::Timestamp;
use serde_json::value::RawValue;

use super::answer::AnswerRef;
use super::turn::TurnEvent;
use crate::error::StoreError;
use crate::limits::{
    INBOX_COMPACT_BYTES, INBOX_KEPT_EVENT_BYTES, INBOX_LISTED_EVENTS, INBOX_REMEMBERED_EVENTS,
};

mod join;
mod order;
mod records;

pub(super) use records::Table;

use records::{EventDedupEntry, QueueRecord, UnfinishedEvent};

/// Error code in the outcome of a parked event that a user dropped.
const DROPPED: &str = "E_EVENT_DROPPED";

/// State of an event id in the inbox.
#[derive(Debug, Clone, PartialEq)]
pub enum EventState {
    /// Never accepted, or forgotten.
    Unknown,
    /// Waiting for its turn, or in it.
    Waiting,
    /// Parked because its turns crashed.
    Parked(Box<ParkedEvent>),
    Done(TurnOutcome),
}

/// An event that is parked until a user decides about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ParkedEvent {
    pub event: AgentEvent,
    /// Number of its crashed turns.
    pub attempts: u32,
    pub reason: String,
    pub at: Timestamp,
}

/// A question to another instance with an answer that will arrive as an event.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingReplyRecord {
    /// The question's event id in the other instance.
    pub question: EventId,
    pub target: InstanceKey,
    /// The event that will carry the answer, without its text.
    pub reply: AgentEvent,
}

#[derive(Debug)]
pub(super) struct Inbox {
    log: SealedLog,
    table: Table,
    is_whole: bool,
    /// File length that triggers the next compaction.
    compact_at: u64,
}

impl Inbox {
    /// Opens or creates the file and reads it.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let (mut log, reading) = SealedLog::open(disk, path)?;
        let is_whole = reading.findings.is_empty();
        findings.extend(reading.findings);
        let mut table = Table::default();
        for span in reading.records {
            if let Err(problem) = table.take(span, &log.record(span)?) {
                log.mark_damaged();
                let problem = format!("line {}: {problem}; skipped", span.line);
                let finding = span.finding(path, FindingKind::UnknownRecord, problem);
                findings.push(finding.severity(Severity::Error));
            }
        }
        for span in reading.broken {
            if table.take_broken_end(span, &log.record(span)?) {
                let problem = format!(
                    "line {}: the record still says whose end it is, so the event counts as done; \
                     its answer cannot be trusted and is not given out",
                    span.line
                );
                findings.push(span.finding(path, FindingKind::DamagedRecord, problem));
            }
        }
        log.track()?;
        let compact_at = INBOX_COMPACT_BYTES.max(log.len());
        Ok(Self {
            log,
            table,
            is_whole,
            compact_at,
        })
    }

    /// Returns waiting events in the order of their turns.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &AgentEvent> {
        let pending = self.table.in_order();
        pending
            .filter(|(_, entry)| entry.parked.is_none())
            .map(|(_, entry)| &entry.event)
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting().count()
    }

    /// Returns parked events, oldest first.
    pub(super) fn parked(&self) -> impl Iterator<Item = ParkedEvent> {
        self.table
            .pending
            .values()
            .filter_map(UnfinishedEvent::to_parked)
    }

    /// Returns the number of crashed turns of waiting events, if not zero.
    pub(super) fn attempts(&self) -> BTreeMap<EventId, u32> {
        let pending = self.table.pending.values();
        pending
            .filter(|entry| entry.attempts > 0 && entry.parked.is_none())
            .map(|entry| (entry.event.id.clone(), entry.attempts))
            .collect()
    }

    /// Returns the connections of the events in the file.
    pub(super) fn sources(&self) -> &BTreeSet<ConnectionName> {
        &self.table.sources
    }

    /// Returns questions with pending answers.
    pub(super) fn awaiting(&self) -> impl Iterator<Item = &PendingReplyRecord> {
        self.table.awaiting.values()
    }

    /// Records a pending answer, unless it is recorded or has arrived. Returns true if it is still
    /// pending. Durable only after [`Self::sync`].
    pub(super) fn await_reply(
        &mut self,
        awaited: &PendingReplyRecord,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = &awaited.reply.id;
        if self.table.known.contains_key(id) {
            return Ok(false);
        }
        if !self.table.awaiting.contains_key(id) {
            let (event_id, target) = (awaited.question.clone(), awaited.target.clone());
            self.append(&QueueRecord::Awaiting {
                seq: self.table.last_seq,
                event_id,
                target,
                reply: Box::new(awaited.reply.clone()),
                at,
            })?;
        }
        Ok(true)
    }

    /// Records that a question will get no answer, if one is pending. Durable only after
    /// [`Self::sync`].
    pub(super) fn forgo(&mut self, question: &EventId, at: Timestamp) -> Result<(), StoreError> {
        if self.awaiting().all(|awaited| awaited.question != *question) {
            return Ok(());
        }
        let (seq, event_id) = (self.table.last_seq, question.clone());
        self.append(&QueueRecord::Forgone { seq, event_id, at })
    }

    fn pending_of(&self, event_id: &EventId) -> Option<(u64, &UnfinishedEvent)> {
        match self.table.known.get(event_id) {
            Some(EventDedupEntry::Pending { seq }) => Some((*seq, self.table.pending.get(seq)?)),
            Some(EventDedupEntry::Over { .. }) | None => None,
        }
    }

    /// Returns the number of the last accepted event.
    pub(super) fn last_seq(&self) -> u64 {
        self.table.last_seq
    }

    /// Returns the sequence number of a waiting event.
    pub(super) fn seq_of_waiting(&self, event_id: &EventId) -> Option<u64> {
        let (seq, entry) = self.pending_of(event_id)?;
        entry.parked.is_none().then_some(seq)
    }

    /// Returns the sequence number of a parked event.
    pub(super) fn seq_of_parked(&self, event_id: &EventId) -> Option<u64> {
        let (seq, entry) = self.pending_of(event_id)?;
        entry.parked.is_some().then_some(seq)
    }

    /// True if any event is not finished.
    pub(super) fn has_pending(&self) -> bool {
        !self.table.pending.is_empty()
    }

    /// True if every record was readable when the file was opened.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn path(&self) -> &Path {
        self.log.path()
    }

    /// Returns the table built from its records.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the finished events, by sequence number.
    pub(super) fn answers(&mut self) -> Result<Vec<AnswerRef>, StoreError> {
        let known = self.table.known.values();
        let spans: Vec<Span> = known
            .filter_map(|known| match known {
                EventDedupEntry::Over { span, .. } => Some(*span),
                EventDedupEntry::Pending { .. } => None,
            })
            .collect();
        let mut answers = Vec::new();
        for span in spans {
            if let Ok(QueueRecord::Done {
                seq,
                event_id,
                turn_id,
                ..
            }) = serde_json::from_slice(&self.log.record(span)?)
            {
                answers.push(AnswerRef {
                    event_id,
                    inbox_seq: seq,
                    turn_id,
                });
            }
        }
        answers.sort_by_key(|answer| answer.inbox_seq);
        let surplus = answers.len().saturating_sub(INBOX_REMEMBERED_EVENTS);
        Ok(answers.split_off(surplus))
    }

    /// Returns the event with the next turn, and its sequence number.
    pub(super) fn next_waiting(&self) -> Option<(u64, &EventId)> {
        let mut pending = self.table.in_order();
        let is_next = |entry: &UnfinishedEvent| {
            let is_held = entry.paused.is_some() || entry.event.waits_as().is_some();
            entry.parked.is_none() && !is_held
        };
        pending.find_map(|(seq, entry)| is_next(entry).then_some((seq, &entry.event.id)))
    }

    /// True if the event is known to be finished.
    pub(super) fn is_over(&self, event_id: &EventId, seq: u64) -> bool {
        matches!(self.table.known.get(event_id), Some(EventDedupEntry::Over { seq: over, .. }) if *over == seq)
    }

    pub(super) fn state_of(&mut self, event_id: &EventId) -> Result<EventState, StoreError> {
        match self.table.known.get(event_id) {
            None => Ok(EventState::Unknown),
            Some(EventDedupEntry::Pending { seq }) => {
                let parked = self
                    .table
                    .pending
                    .get(seq)
                    .and_then(UnfinishedEvent::to_parked);
                Ok(parked.map_or(EventState::Waiting, |parked| {
                    EventState::Parked(Box::new(parked))
                }))
            }
            Some(EventDedupEntry::Over { span, .. }) => {
                let span = *span;
                Ok(EventState::Done(self.outcome_at(span)?))
            }
        }
    }

    /// Returns a stored event, or without an id the latest ones, latest first.
    pub(super) fn events(
        &mut self,
        event_id: Option<&EventId>,
    ) -> Result<Vec<AgentEvent>, StoreError> {
        let count_max = event_id.map_or(INBOX_LISTED_EVENTS, |_| 1);
        let mut events = Vec::new();
        for span in self.log.spans()?.into_iter().rev() {
            if events.len() == count_max {
                break;
            }
            let Some(event) = records::accepted(&self.log.record(span)?) else {
                continue;
            };
            if event_id.is_none_or(|id| event.id == *id) {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Returns the records of finished events that compaction keeps, by sequence number: those of
    /// the latest, because agents read them ([`Self::events`]).
    fn kept_events(&mut self) -> Result<BTreeMap<u64, Vec<u8>>, StoreError> {
        let mut kept = BTreeMap::new();
        let mut bytes = 0;
        for span in self.log.spans()?.into_iter().rev() {
            let record = self.log.record(span)?;
            let Some(event) = records::accepted(&record) else {
                continue;
            };
            let Some(EventDedupEntry::Over { seq, .. }) = self.table.known.get(&event.id) else {
                continue;
            };
            bytes += span.len;
            if bytes > INBOX_KEPT_EVENT_BYTES {
                break;
            }
            kept.insert(*seq, record);
        }
        Ok(kept)
    }

    fn outcome_at(&mut self, span: Span) -> Result<TurnOutcome, FileError> {
        let bytes = self.log.record(span)?;
        let damaged = |problem: &str| FileError::Damaged {
            path: self.log.path().to_owned(),
            line: span.line,
            problem: problem.to_owned(),
        };
        if seal_of(&bytes) == Seal::Broken {
            return Err(damaged("its checksum does not fit; the answer is lost"));
        }
        match serde_json::from_slice(&bytes) {
            Ok(QueueRecord::Done { outcome, .. }) => Ok(outcome),
            Ok(QueueRecord::Joined { .. } | QueueRecord::Merged { .. }) => Ok(join::MERGED),
            Ok(QueueRecord::Dropped { outcome, .. }) => {
                Ok(outcome.unwrap_or_else(|| TurnOutcome::Failed {
                    code: DROPPED.to_owned(),
                    message: "the event was parked and then dropped by a user".to_owned(),
                }))
            }
            Ok(_) => Err(damaged("expected a `done` record")),
            Err(error) => Err(damaged(&error.to_string())),
        }
    }

    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        Ok(self.log.write_out()?)
    }

    fn append(&mut self, record: &QueueRecord) -> Result<(), StoreError> {
        let span = self.log.append(record)?;
        let bytes = serde_json::to_vec(record).map_err(|error| FileError::Unwritable {
            problem: error.to_string(),
        })?;
        let taken = self.table.take(span, &bytes);
        Ok(taken.map_err(|problem| FileError::Unwritable { problem })?)
    }

    /// Appends an event. Durable only after [`Self::sync`].
    pub(super) fn accept(&mut self, event: AgentEvent) -> Result<(), StoreError> {
        let seq = self.table.last_seq + 1;
        let event_id = event.id.clone();
        let event = Box::new(event);
        let record = QueueRecord::Accepted { seq, event };
        self.log.append(&record)?;
        if let QueueRecord::Accepted { event, .. } = record {
            self.table.add(seq, event_id, *event);
        }
        Ok(())
    }

    /// Records that a turn finished an event, unless that is known or the event was dropped for its
    /// age. Durable only after [`Self::sync`].
    pub(super) fn finish(
        &mut self,
        event: &TurnEvent,
        turn_id: &TurnId,
        at: Timestamp,
        outcome: &TurnOutcome,
    ) -> Result<(), StoreError> {
        let (seq, event_id) = (event.inbox_seq, event.event_id.clone());
        let waits = self.table.seq_of_pending(&event_id) == Some(seq);
        if !waits && !self.table.should_know(&event_id, seq) {
            return Ok(());
        }
        self.append(&QueueRecord::Done {
            seq,
            event_id,
            turn_id: turn_id.clone(),
            at,
            outcome: outcome.clone(),
        })
    }

    /// Records the number of an event's crashed turns, if it exceeds the known one. Returns the
    /// known number. Durable only after [`Self::sync`].
    pub(super) fn note_attempts(
        &mut self,
        event_id: &EventId,
        attempts: u32,
        at: Timestamp,
    ) -> Result<u32, StoreError> {
        let (seq, entry) = self.pending_of(event_id).ok_or_else(|| wrong(event_id))?;
        if entry.attempts >= attempts {
            return Ok(entry.attempts);
        }
        let event_id = event_id.clone();
        self.append(&QueueRecord::Attempted {
            seq,
            event_id,
            attempts,
            at,
        })?;
        Ok(attempts)
    }

    /// Parks an event, unless it is parked. Durable only after [`Self::sync`].
    pub(super) fn park(
        &mut self,
        event_id: &EventId,
        reason: &str,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (seq, entry) = self.pending_of(event_id).ok_or_else(|| wrong(event_id))?;
        if entry.parked.is_some() {
            return Ok(());
        }
        let (event_id, reason) = (event_id.clone(), reason.to_owned());
        self.append(&QueueRecord::Parked {
            seq,
            event_id,
            reason,
            at,
        })
    }

    /// Requeues a parked event, unless it is waiting. Durable only after [`Self::sync`].
    pub(super) fn retry(&mut self, event_id: &EventId, at: Timestamp) -> Result<(), StoreError> {
        let (seq, entry) = self.pending_of(event_id).ok_or_else(|| wrong(event_id))?;
        if entry.parked.is_none() {
            return Ok(());
        }
        let event_id = event_id.clone();
        self.append(&QueueRecord::Retried { seq, event_id, at })
    }

    /// Ends a parked event without an answer, unless it is finished. Durable only after
    /// [`Self::sync`].
    pub(super) fn drop_parked(
        &mut self,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if matches!(
            self.table.known.get(event_id),
            Some(EventDedupEntry::Over { .. })
        ) {
            return Ok(());
        }
        let seq = self
            .seq_of_parked(event_id)
            .ok_or_else(|| wrong(event_id))?;
        let event_id = event_id.clone();
        self.append(&QueueRecord::Dropped {
            seq,
            event_id,
            at,
            outcome: None,
        })
    }

    /// Ends a waiting event without a turn. Durable only after [`Self::sync`].
    pub(super) fn cancel(
        &mut self,
        event_id: &EventId,
        outcome: TurnOutcome,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (seq, _) = self.pending_of(event_id).ok_or_else(|| wrong(event_id))?;
        self.append(&QueueRecord::Dropped {
            seq,
            event_id: event_id.clone(),
            at,
            outcome: Some(outcome),
        })
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        Ok(self.log.sync()?)
    }

    /// True if compaction with [`Self::rewrite`] is due.
    pub(super) fn is_long(&self) -> bool {
        self.log.len() >= self.compact_at
    }

    /// True if it holds unreadable records.
    pub(super) fn is_damaged(&self) -> bool {
        self.log.is_damaged()
    }

    /// Returns the content known to be durable.
    pub(super) fn claim(&self) -> Option<Claim> {
        self.log.claim()
    }

    /// Compares the file with its claim.
    pub(super) fn standing(&mut self, claim: Claim) -> Result<ClaimMatch, StoreError> {
        Ok(self.log.standing(claim)?)
    }

    /// Rewrites the file without unreadable records, and without finished events except the latest. Only
    /// the very latest events keep their contents. Keeps a copy of a damaged file. Durable when it
    /// returns.
    pub(super) fn rewrite(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let known = self.table.known.iter();
        let mut over: Vec<(u64, &EventId, Span)> = known
            .filter_map(|(event_id, known)| match known {
                EventDedupEntry::Over { span, seq } => Some((*seq, event_id, *span)),
                EventDedupEntry::Pending { .. } => None,
            })
            .collect();
        over.sort_unstable_by_key(|(seq, ..)| *seq);
        let surplus = over.len().saturating_sub(INBOX_REMEMBERED_EVENTS);
        let over = over.split_off(surplus);
        let over: Vec<_> = over
            .into_iter()
            .map(|(seq, event_id, span)| (seq, event_id.clone(), span))
            .collect();
        let kept = self.kept_events()?;
        let mut records = Vec::new();
        for (seq, event_id, span) in over {
            let bytes = self.log.record(span)?;
            if let Some(merged) = join::merged_of(&bytes, seq, &event_id) {
                records.extend(kept.get(&seq).and_then(|event| sealed_log::unsealed(event)));
                records.push(raw_record(&merged)?);
                continue;
            }
            if seal_of(&bytes) != Seal::Broken {
                records.extend(kept.get(&seq).and_then(|event| sealed_log::unsealed(event)));
            }
            // Damaged records survive in the copy that `replace` keeps.
            records.extend(sealed_log::unsealed(&bytes));
        }
        for (seq, entry) in &self.table.pending {
            for record in entry.to_records(*seq) {
                records.push(raw_record(&record)?);
            }
        }
        for record in self.table.order_records() {
            records.push(raw_record(&record)?);
        }
        for awaited in self.awaiting() {
            records.push(raw_record(&awaited.to_record(self.table.last_seq))?);
        }
        self.log.replace(disk, &records)?;
        *self = Self::open(disk, self.log.path(), &mut Vec::new())?;
        // The records that follow declare the earlier ones durable.
        self.sync()?;
        self.compact_at = INBOX_COMPACT_BYTES.max(self.log.len() * 2);
        Ok(())
    }
}

fn raw_record(record: &QueueRecord) -> Result<Box<RawValue>, FileError> {
    serde_json::value::to_raw_value(record).map_err(|error| FileError::Unwritable {
        problem: error.to_string(),
    })
}

fn wrong(event_id: &EventId) -> StoreError {
    let event_id = event_id.clone();
    StoreError::WrongEvent { event_id }
}

/// Checks the records of an inbox file and returns their table. Changes nothing.
pub(super) fn check(
    journal: &mut Journal,
    reading: &sealed_log::SealedRead,
    findings: &mut Vec<Finding>,
) -> Result<Table, StoreError> {
    let mut table = Table::default();
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        if let Err(problem) = table.take(*span, &journal.read(span.offset, len)?) {
            let problem = format!("line {}: {problem}; skipped", span.line);
            findings.push(
                span.finding(journal.path(), FindingKind::UnknownRecord, problem)
                    .severity(Severity::Error),
            );
        }
    }
    for span in &reading.broken {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        // Its damage is already a finding.
        table.take_broken_end(*span, &journal.read(span.offset, len)?);
    }
    Ok(table)
}

/// True if the inbox at `path` has a waiting event or a pending answer. Read-only.
pub(super) fn has_waiting(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    let mut journal = Journal::open_read(disk, path)?;
    let reading = sealed_log::read(&mut journal)?;
    let mut table = Table::default();
    let mut is_odd = !reading.findings.is_empty() || reading.cut.is_some();
    for span in reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        is_odd |= table.take(span, &journal.read(span.offset, len)?).is_err();
    }
    // Recovery must check a file with unexpected records.
    let is_waiting = table.pending.values().any(|entry| entry.parked.is_none());
    Ok(is_odd || is_waiting || !table.awaiting.is_empty())
}

/// Returns the parked events of the inbox at `path`, oldest first, or `None` if recovery must check
/// the file. Read-only.
pub(super) fn peek_parked(
    disk: &dyn Disk,
    path: &Path,
) -> Result<Option<Vec<ParkedEvent>>, StoreError> {
    let mut journal = Journal::open_read(disk, path)?;
    let reading = sealed_log::read(&mut journal)?;
    if !reading.findings.is_empty() || reading.cut.is_some() || !reading.broken.is_empty() {
        return Ok(None);
    }
    let mut table = Table::default();
    for span in reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        if table.take(span, &journal.read(span.offset, len)?).is_err() {
            return Ok(None);
        }
    }
    let parked = table
        .pending
        .values()
        .filter_map(UnfinishedEvent::to_parked);
    Ok(Some(parked.collect()))
}
