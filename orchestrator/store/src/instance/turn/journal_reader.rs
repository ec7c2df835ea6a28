//! Parsing of a turn journal.
//!
//! The file holds the turn in progress, preceded by turns that ended since the last sync of the
//! base. A turn begins only after the durable commit of the previous one. So a turn that is
//! followed by a record of another was committed, even if its commit record is unreadable now.

use std::collections::HashSet;

use goondan_durable::journal::Journal;
use goondan_durable::sealed_log::{self, Span};
use goondan_durable::{Finding, FindingKind, Severity};
use goondan_protocol::ids::TurnId;

use super::super::approvals::Approvals;
use super::super::records::{RawEvent, RawTurnLine};
use super::{CommitRecord, FoldMode, OpenTurn, TurnEvent};
use crate::error::StoreError;

/// Type prefix of approval records.
const APPROVAL: &str = "approval_";

/// An ended turn that is still in the file.
#[derive(Debug)]
pub(in super::super) struct EndedTurn {
    pub turn_id: TurnId,
    /// The event it answered; `None` for a turn of another implementation.
    pub event: Option<TurnEvent>,
    /// Positions of its message events, in order.
    pub events: Vec<Span>,
    /// Its commit record; `None` if unreadable.
    pub commit: Option<CommitRecord>,
}

impl EndedTurn {
    /// True if a new base was prepared for it.
    pub(in super::super) fn is_rewrite(&self) -> bool {
        let fold = self.commit.as_ref().map(|commit| &commit.fold);
        matches!(fold, Some(FoldMode::Rewrite { .. }))
    }
}

#[derive(Debug, Default)]
pub(super) struct TurnFileContent {
    pub ended: Vec<EndedTurn>,
    /// Positions of the open turn's message events.
    pub events: Vec<Span>,
    pub open: Option<OpenTurn>,
    pub has_others: bool,
    /// Approvals of the open turn.
    pub approvals: Approvals,
}

#[derive(Debug, Default)]
pub(in super::super) struct JournalTurns {
    pub ended: HashSet<TurnId>,
    pub open: Option<OpenTurn>,
}

/// Checks the records of a turn journal and returns its turns. Changes nothing.
pub(in super::super) fn check(
    journal: &mut Journal,
    reading: &sealed_log::SealedRead,
    findings: &mut Vec<Finding>,
) -> Result<JournalTurns, StoreError> {
    let mut read = TurnFileContent::default();
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        let bytes = journal.read(span.offset, len)?;
        if let Err(problem) = read.take_bytes(&bytes, *span) {
            findings.push(passed_over(journal.path(), *span, &problem));
        }
    }
    let ended = read.ended.into_iter().map(|turn| turn.turn_id);
    Ok(JournalTurns {
        ended: ended.collect(),
        open: read.open,
    })
}

pub(super) fn passed_over(path: &std::path::Path, span: Span, problem: &str) -> Finding {
    let problem = format!("line {}: {problem}; skipped", span.line);
    let finding = span.finding(path, FindingKind::UnknownRecord, problem);
    finding.severity(Severity::Error)
}

impl TurnFileContent {
    pub(super) fn take_bytes(&mut self, bytes: &[u8], span: Span) -> Result<(), String> {
        let line: RawTurnLine<'_> =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        self.take(&line, bytes, span)
    }

    /// Applies one record, or returns the reason why it belongs to no turn.
    fn take(&mut self, line: &RawTurnLine<'_>, bytes: &[u8], span: Span) -> Result<(), String> {
        if let Some(turn_id) = &line.turn_id {
            if self.ended.iter().any(|ended| ended.turn_id == *turn_id) {
                return Err("record after its turn's commit".to_owned());
            }
            self.make_way(turn_id)?;
        }
        match line.kind {
            "turn_begin" => self.take_begin(line),
            "turn_commit" => {
                let record: CommitRecord =
                    serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                // Its records may be lost, but it was certainly committed.
                self.end(record.turn_id.clone(), record.event.clone(), Some(record));
                Ok(())
            }
            kind if kind.starts_with(APPROVAL) => {
                if self.open.is_none() {
                    return Err("record of a turn that is not in the journal".to_owned());
                }
                let mark = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                self.approvals.take(mark)
            }
            _ => self.take_event(line, span),
        }
    }

    /// Ends the open turn if it is not `turn_id`, because another turn's record follows only a
    /// committed turn.
    fn make_way(&mut self, turn_id: &TurnId) -> Result<(), String> {
        match self.open.take() {
            Some(open) if open.turn_id == *turn_id => self.open = Some(open),
            // A turn that rewrote the base is never followed by another.
            Some(open) if self.has_others || open.is_foreign() => {
                self.open = Some(open);
                return Err("record of a turn that is not open".to_owned());
            }
            Some(open) => self.end(open.turn_id, open.event, None),
            None => {}
        }
        Ok(())
    }

    fn end(&mut self, turn_id: TurnId, event: Option<TurnEvent>, commit: Option<CommitRecord>) {
        let events = std::mem::take(&mut self.events);
        (self.open, self.has_others) = (None, false);
        self.approvals = Approvals::default();
        self.ended.push(EndedTurn {
            turn_id,
            event,
            events,
            commit,
        });
    }

    fn take_begin(&mut self, line: &RawTurnLine<'_>) -> Result<(), String> {
        let (Some(turn_id), Some(attempt), Some(event)) =
            (line.turn_id.clone(), line.attempt, line.event)
        else {
            return Err("incomplete `turn_begin`".to_owned());
        };
        let event = serde_json::from_str(event.get()).map_err(|error| error.to_string())?;
        let last_seq = self.open.take().map_or(0, |open| open.last_seq);
        self.open = Some(OpenTurn {
            turn_id,
            event: Some(event),
            attempt,
            last_seq,
        });
        Ok(())
    }

    fn take_event(&mut self, line: &RawTurnLine<'_>, span: Span) -> Result<(), String> {
        let event = RawEvent::of_line(line)?;
        let open = self.open.get_or_insert_with(|| lost_turn(line));
        let seq = line.seq.unwrap_or(open.last_seq + 1);
        if seq <= open.last_seq {
            return Err("duplicate event".to_owned());
        }
        open.last_seq = seq;
        self.has_others |= !matches!(event, RawEvent::Append { .. });
        self.events.push(span);
        Ok(())
    }
}

/// Creates a turn for records without `turn_begin`: written by another implementation, or damaged.
fn lost_turn(line: &RawTurnLine<'_>) -> OpenTurn {
    let turn_id = line.turn_id.clone().unwrap_or_else(OpenTurn::foreign_id);
    OpenTurn {
        turn_id,
        event: None,
        attempt: 0,
        last_seq: 0,
    }
}
