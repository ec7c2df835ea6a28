//! `messages/inbox.jsonl`: the events an instance accepted, and what became of them (`MSG-13`).
//!
//! `accepted` holds an event, `done` says how its turn ended. An event is durable here before its
//! sender is told so; a turn is done here before its journal is cleared. The ids of the latest
//! finished events are remembered with their outcomes, so that the same event id twice is one turn,
//! and the repeated request gets the stored answer.
//!
//! An event that crashed its turns too often is `parked`: it waits no longer and holds nobody up.
//! `attempted` counts the crashes, `retried` lets it wait again from the start, `dropped` ends it.
//!
//! A person has an event wait with `paused` until `resumed`, and gives it another place with `moved`: before
//! another event, or the last.
//!
//! `awaiting` is a question that this instance's agent asked another, and the event that is to bring
//! the answer, but for what it says. It is written before the question goes out, and is over when that
//! event is accepted; `forgone` ends it when the question was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use goondan_durable::checksum::{Seal, seal_of};
use goondan_durable::disk::Disk;
use goondan_durable::journal::Journal;
use goondan_durable::manifest::{Claim, Standing};
use goondan_durable::sealed::{self, SealedLog, Span};
use goondan_durable::{FileError, Finding, FindingKind, Severity};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{ConnectionName, EventId, InstanceKey, TurnId};
use goondan_protocol::time::Timestamp;
use serde_json::value::RawValue;

use super::answer::Answer;
use super::turn::TurnEvent;
use crate::error::StoreError;
use crate::limits::{INBOX_COMPACT_BYTES, INBOX_REMEMBERED_EVENTS};

mod arranging;
mod records;

pub(super) use records::Table;

use records::{Known, Pending, Record};

/// The code of a dropped event's outcome.
const DROPPED: &str = "E_EVENT_DROPPED";

/// What the inbox knows of an event id.
#[derive(Debug, Clone, PartialEq)]
pub enum EventState {
    /// It was never accepted, or is forgotten.
    Unknown,
    /// It waits for its turn or is in it.
    Waiting,
    /// It was taken out of the way, because its turns crashed.
    Parked(Box<ParkedEvent>),
    /// Its turn is over.
    Done(TurnOutcome),
}

/// An event that was taken out of the way until a person decides about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ParkedEvent {
    /// The event.
    pub event: AgentEvent,
    /// How many of its turns crashed.
    pub attempts: u32,
    /// Why it was parked.
    pub reason: String,
    /// When it was parked.
    pub at: Timestamp,
}

/// A question to another instance whose answer is to come as an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Awaited {
    /// The question: an event of the other instance.
    pub question: EventId,
    /// The other instance.
    pub target: InstanceKey,
    /// The event that will bring the answer, without what it says.
    pub reply: AgentEvent,
}

/// The inbox of one instance.
#[derive(Debug)]
pub(super) struct Inbox {
    log: SealedLog,
    table: Table,
    is_whole: bool,
    /// Length from which the next compaction is worth its cost.
    compact_at: u64,
}

impl Inbox {
    /// Opens and reads the file; makes it if it is missing.
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
                let problem = format!("line {}: {problem}; it is passed over", span.line);
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

    /// Events that wait, in the order of their turns.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &AgentEvent> {
        let pending = self.table.in_order();
        pending
            .filter(|(_, entry)| entry.parked.is_none())
            .map(|(_, entry)| &entry.event)
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting().count()
    }

    /// Events that are parked, oldest first.
    pub(super) fn parked(&self) -> impl Iterator<Item = ParkedEvent> {
        self.table.pending.values().filter_map(Pending::to_parked)
    }

    /// Crashes of the turns of events that wait, where there were any.
    pub(super) fn attempts(&self) -> BTreeMap<EventId, u32> {
        let pending = self.table.pending.values();
        pending
            .filter(|entry| entry.attempts > 0 && entry.parked.is_none())
            .map(|entry| (entry.event.id.clone(), entry.attempts))
            .collect()
    }

    /// By which connections the events of the file came.
    pub(super) fn sources(&self) -> &BTreeSet<ConnectionName> {
        &self.table.sources
    }

    /// Questions whose answers are to come.
    pub(super) fn awaiting(&self) -> impl Iterator<Item = &Awaited> {
        self.table.awaiting.values()
    }

    /// Appends that an answer is to come. Does nothing if that is known, or if the answer is there.
    /// Returns whether it is still to come. Not durable before [`Self::sync`].
    pub(super) fn await_reply(
        &mut self,
        awaited: &Awaited,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = &awaited.reply.id;
        if self.table.known.contains_key(id) {
            return Ok(false);
        }
        if !self.table.awaiting.contains_key(id) {
            let (event_id, target) = (awaited.question.clone(), awaited.target.clone());
            self.append(&Record::Awaiting {
                seq: self.table.last_seq,
                event_id,
                target,
                reply: Box::new(awaited.reply.clone()),
                at,
            })?;
        }
        Ok(true)
    }

    /// Appends that no answer is to come. Does nothing if none is. Not durable before
    /// [`Self::sync`].
    pub(super) fn forgo(&mut self, question: &EventId, at: Timestamp) -> Result<(), StoreError> {
        if self.awaiting().all(|awaited| awaited.question != *question) {
            return Ok(());
        }
        let (seq, event_id) = (self.table.last_seq, question.clone());
        self.append(&Record::Forgone { seq, event_id, at })
    }

    fn pending_of(&self, event_id: &EventId) -> Option<(u64, &Pending)> {
        match self.table.known.get(event_id) {
            Some(Known::Pending { seq }) => Some((*seq, self.table.pending.get(seq)?)),
            Some(Known::Over { .. }) | None => None,
        }
    }

    /// The number of the last event that was accepted.
    pub(super) fn last_seq(&self) -> u64 {
        self.table.last_seq
    }

    /// The sequence number of a waiting event.
    pub(super) fn seq_of_waiting(&self, event_id: &EventId) -> Option<u64> {
        let (seq, entry) = self.pending_of(event_id)?;
        entry.parked.is_none().then_some(seq)
    }

    /// The sequence number of a parked event.
    pub(super) fn seq_of_parked(&self, event_id: &EventId) -> Option<u64> {
        let (seq, entry) = self.pending_of(event_id)?;
        entry.parked.is_some().then_some(seq)
    }

    /// Whether any event is not over.
    pub(super) fn has_pending(&self) -> bool {
        !self.table.pending.is_empty()
    }

    /// Whether everything in the file could be read when it was opened.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn path(&self) -> &Path {
        self.log.path()
    }

    /// What its records come to.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// The events whose turns are over, by their numbers.
    pub(super) fn answers(&mut self) -> Result<Vec<Answer>, StoreError> {
        let known = self.table.known.values();
        let spans: Vec<Span> = known
            .filter_map(|known| match known {
                Known::Over { span, .. } => Some(*span),
                Known::Pending { .. } => None,
            })
            .collect();
        let mut answers = Vec::new();
        for span in spans {
            if let Ok(Record::Done {
                seq,
                event_id,
                turn_id,
                ..
            }) = serde_json::from_slice(&self.log.record(span)?)
            {
                answers.push(Answer {
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

    /// The event whose turn is next, with its sequence number.
    pub(super) fn next_waiting(&self) -> Option<(u64, &EventId)> {
        let mut pending = self.table.in_order();
        let is_next = |entry: &Pending| entry.parked.is_none() && entry.paused.is_none();
        pending.find_map(|(seq, entry)| is_next(entry).then_some((seq, &entry.event.id)))
    }

    /// Whether it is certain that an event is over.
    pub(super) fn is_over(&self, event_id: &EventId, seq: u64) -> bool {
        matches!(self.table.known.get(event_id), Some(Known::Over { seq: over, .. }) if *over == seq)
    }

    /// What is known of an event id.
    pub(super) fn state_of(&mut self, event_id: &EventId) -> Result<EventState, StoreError> {
        match self.table.known.get(event_id) {
            None => Ok(EventState::Unknown),
            Some(Known::Pending { seq }) => {
                let parked = self.table.pending.get(seq).and_then(Pending::to_parked);
                Ok(parked.map_or(EventState::Waiting, |parked| {
                    EventState::Parked(Box::new(parked))
                }))
            }
            Some(Known::Over { span, .. }) => {
                let span = *span;
                Ok(EventState::Done(self.outcome_at(span)?))
            }
        }
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
            Ok(Record::Done { outcome, .. }) => Ok(outcome),
            Ok(Record::Dropped { .. }) => Ok(TurnOutcome::Failed {
                code: DROPPED.to_owned(),
                message: "the event was parked, and then dropped by a person".to_owned(),
            }),
            Ok(_) => Err(damaged("expected a `done` record")),
            Err(error) => Err(damaged(&error.to_string())),
        }
    }

    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        Ok(self.log.write_out()?)
    }

    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let span = self.log.append(record)?;
        let bytes = serde_json::to_vec(record).map_err(|error| FileError::Unwritable {
            problem: error.to_string(),
        })?;
        let taken = self.table.take(span, &bytes);
        Ok(taken.map_err(|problem| FileError::Unwritable { problem })?)
    }

    /// Appends an event. Not durable before [`Self::sync`].
    pub(super) fn accept(&mut self, event: AgentEvent) -> Result<(), StoreError> {
        let seq = self.table.last_seq + 1;
        let event_id = event.id.clone();
        let event = Box::new(event);
        let record = Record::Accepted { seq, event };
        self.log.append(&record)?;
        if let Record::Accepted { event, .. } = record {
            self.table.add(seq, event_id, *event);
        }
        Ok(())
    }

    /// Appends that an event is over that a turn answered. Does nothing if that is known, or forgotten for
    /// its age. Not durable before [`Self::sync`].
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
        self.append(&Record::Done {
            seq,
            event_id,
            turn_id: turn_id.clone(),
            at,
            outcome: outcome.clone(),
        })
    }

    /// Appends how many turns of an event crashed. Does nothing if as many are known. Returns how
    /// many are. Not durable before [`Self::sync`].
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
        self.append(&Record::Attempted {
            seq,
            event_id,
            attempts,
            at,
        })?;
        Ok(attempts)
    }

    /// Appends that an event is parked. Does nothing if it is. Not durable before [`Self::sync`].
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
        self.append(&Record::Parked {
            seq,
            event_id,
            reason,
            at,
        })
    }

    /// Appends that a parked event waits again. Does nothing if it waits. Not durable before
    /// [`Self::sync`].
    pub(super) fn retry(&mut self, event_id: &EventId, at: Timestamp) -> Result<(), StoreError> {
        let (seq, entry) = self.pending_of(event_id).ok_or_else(|| wrong(event_id))?;
        if entry.parked.is_none() {
            return Ok(());
        }
        let event_id = event_id.clone();
        self.append(&Record::Retried { seq, event_id, at })
    }

    /// Appends that a parked event is over without an answer. Does nothing if it is over. Not durable
    /// before [`Self::sync`].
    pub(super) fn drop_parked(
        &mut self,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if matches!(self.table.known.get(event_id), Some(Known::Over { .. })) {
            return Ok(());
        }
        let seq = self
            .seq_of_parked(event_id)
            .ok_or_else(|| wrong(event_id))?;
        let event_id = event_id.clone();
        self.append(&Record::Dropped { seq, event_id, at })
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        Ok(self.log.sync()?)
    }

    /// Whether [`Self::rewrite`] is worth its cost.
    pub(super) fn is_long(&self) -> bool {
        self.log.len() >= self.compact_at
    }

    /// Whether it holds anything that cannot be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.log.is_damaged()
    }

    /// What the file surely holds.
    pub(super) fn claim(&self) -> Option<Claim> {
        self.log.claim()
    }

    /// How the file stands against what was claimed of it.
    pub(super) fn standing(&mut self, claim: Claim) -> Result<Standing, StoreError> {
        Ok(self.log.standing(claim)?)
    }

    /// Writes the file anew without finished events but the latest, and without what cannot be read; then
    /// it is kept as it was beside itself. Durable when it returns.
    pub(super) fn rewrite(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let known = self.table.known.values();
        let mut over: Vec<(u64, Span)> = known
            .filter_map(|known| match known {
                Known::Over { span, seq } => Some((*seq, *span)),
                Known::Pending { .. } => None,
            })
            .collect();
        over.sort_unstable_by_key(|(seq, _)| *seq);
        let surplus = over.len().saturating_sub(INBOX_REMEMBERED_EVENTS);
        let mut records = Vec::new();
        for (_, span) in over.split_off(surplus) {
            let bytes = self.log.record(span)?;
            // What is damaged is kept in the copy that replacing makes.
            records.extend(sealed::unsealed(&bytes));
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
        // What follows is to say that what is there was durable before.
        self.sync()?;
        self.compact_at = INBOX_COMPACT_BYTES.max(self.log.len() * 2);
        Ok(())
    }
}

fn raw_record(record: &Record) -> Result<Box<RawValue>, FileError> {
    serde_json::value::to_raw_value(record).map_err(|error| FileError::Unwritable {
        problem: error.to_string(),
    })
}

fn wrong(event_id: &EventId) -> StoreError {
    let event_id = event_id.clone();
    StoreError::WrongEvent { event_id }
}

/// Looks at the records of an inbox file; returns what they come to. Changes nothing.
pub(super) fn check(
    journal: &mut Journal,
    reading: &sealed::Reading,
    findings: &mut Vec<Finding>,
) -> Result<Table, StoreError> {
    let mut table = Table::default();
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        if let Err(problem) = table.take(*span, &journal.read(span.offset, len)?) {
            let problem = format!("line {}: {problem}; it is passed over", span.line);
            findings.push(
                span.finding(journal.path(), FindingKind::UnknownRecord, problem)
                    .severity(Severity::Error),
            );
        }
    }
    for span in &reading.broken {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        // Its damage is a finding already.
        table.take_broken_end(*span, &journal.read(span.offset, len)?);
    }
    Ok(table)
}

/// Whether any event waits in the inbox at `path`, or any answer is to come. Only reads.
pub(super) fn has_waiting(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    let mut journal = Journal::open_read(disk, path)?;
    let reading = sealed::read(&mut journal)?;
    let mut table = Table::default();
    let mut is_odd = !reading.findings.is_empty() || reading.cut.is_some();
    for span in reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        is_odd |= table.take(span, &journal.read(span.offset, len)?).is_err();
    }
    // What is not as it should be is for recovery to look at.
    let is_waiting = table.pending.values().any(|entry| entry.parked.is_none());
    Ok(is_odd || is_waiting || !table.awaiting.is_empty())
}
