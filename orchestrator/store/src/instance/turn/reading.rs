//! What the lines of a turn journal come to.
//!
//! The file holds the turn in progress, and before it those turns that ended since the base was last
//! made durable. A turn begins only behind the durable commit of the one before; so one that is
//! followed by anything of another was committed, though its commit record may be unreadable now.

use std::collections::HashSet;

use goondan_durable::journal::Journal;
use goondan_durable::sealed::{self, Span};
use goondan_durable::{Finding, FindingKind, Severity};
use goondan_protocol::ids::TurnId;

use super::super::approvals::Approvals;
use super::super::raw::{Line, RawEvent};
use super::{CommitRecord, FoldMode, OpenTurn, TurnEvent};
use crate::error::StoreError;

/// What the types of records begin with that tell of calls that need a person.
const APPROVAL: &str = "approval_";

/// A turn that is over and still in the file.
#[derive(Debug)]
pub(in super::super) struct Ended {
    pub turn_id: TurnId,
    /// The event it answered; none for a turn another implementation left behind.
    pub event: Option<TurnEvent>,
    /// Where its message events lie, in order.
    pub events: Vec<Span>,
    /// What committed it; none if that cannot be read any more.
    pub commit: Option<CommitRecord>,
}

impl Ended {
    /// Whether a new base was prepared for it.
    pub(in super::super) fn is_rewrite(&self) -> bool {
        let fold = self.commit.as_ref().map(|commit| &commit.fold);
        matches!(fold, Some(FoldMode::Rewrite { .. }))
    }
}

/// What reading the file has come to.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub ended: Vec<Ended>,
    /// Where the message events of the open turn lie.
    pub events: Vec<Span>,
    pub open: Option<OpenTurn>,
    pub has_others: bool,
    /// The calls of the open turn that a person was asked about.
    pub approvals: Approvals,
}

/// The turns that a journal holds.
#[derive(Debug, Default)]
pub(in super::super) struct Journaled {
    /// Those that are over.
    pub ended: HashSet<TurnId>,
    /// The one that is not.
    pub open: Option<OpenTurn>,
}

/// Looks at the records of a turn journal; returns the turns in it. Changes nothing.
pub(in super::super) fn check(
    journal: &mut Journal,
    reading: &sealed::Reading,
    findings: &mut Vec<Finding>,
) -> Result<Journaled, StoreError> {
    let mut read = Read::default();
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        let bytes = journal.read(span.offset, len)?;
        if let Err(problem) = read.take_bytes(&bytes, *span) {
            findings.push(passed_over(journal.path(), *span, &problem));
        }
    }
    let ended = read.ended.into_iter().map(|turn| turn.turn_id);
    Ok(Journaled {
        ended: ended.collect(),
        open: read.open,
    })
}

pub(super) fn passed_over(path: &std::path::Path, span: Span, problem: &str) -> Finding {
    let problem = format!("line {}: {problem}; it is passed over", span.line);
    let finding = span.finding(path, FindingKind::UnknownRecord, problem);
    finding.severity(Severity::Error)
}

impl Read {
    pub(super) fn take_bytes(&mut self, bytes: &[u8], span: Span) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        self.take(&line, bytes, span)
    }

    /// Takes one record into account, or says why it belongs to no turn.
    fn take(&mut self, line: &Line<'_>, bytes: &[u8], span: Span) -> Result<(), String> {
        if let Some(turn_id) = &line.turn_id {
            if self.ended.iter().any(|ended| ended.turn_id == *turn_id) {
                return Err("a record after its turn's commit".to_owned());
            }
            self.make_way(turn_id)?;
        }
        match line.kind {
            "turn_begin" => self.take_begin(line),
            "turn_commit" => {
                let record: CommitRecord =
                    serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                // Its records may be lost, but that it was committed is certain.
                self.end(record.turn_id.clone(), record.event.clone(), Some(record));
                Ok(())
            }
            kind if kind.starts_with(APPROVAL) => {
                if self.open.is_none() {
                    return Err("a record of a turn that is not there".to_owned());
                }
                let mark = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                self.approvals.take(mark)
            }
            _ => self.take_event(line, span),
        }
    }

    /// Ends the open turn if it is not `turn_id`'s: nothing of another would follow it, were it not
    /// committed.
    fn make_way(&mut self, turn_id: &TurnId) -> Result<(), String> {
        match self.open.take() {
            Some(open) if open.turn_id == *turn_id => self.open = Some(open),
            // Nothing ever follows a turn that rewrote the base.
            Some(open) if self.has_others || open.is_foreign() => {
                self.open = Some(open);
                return Err("a record of another turn than the one that is open".to_owned());
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
        self.ended.push(Ended {
            turn_id,
            event,
            events,
            commit,
        });
    }

    fn take_begin(&mut self, line: &Line<'_>) -> Result<(), String> {
        let (Some(turn_id), Some(attempt), Some(event)) =
            (line.turn_id.clone(), line.attempt, line.event)
        else {
            return Err("an incomplete `turn_begin`".to_owned());
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

    fn take_event(&mut self, line: &Line<'_>, span: Span) -> Result<(), String> {
        let event = RawEvent::of_line(line)?;
        let open = self.open.get_or_insert_with(|| lost_turn(line));
        let seq = line.seq.unwrap_or(open.last_seq + 1);
        if seq <= open.last_seq {
            return Err("an event that was there before".to_owned());
        }
        open.last_seq = seq;
        self.has_others |= !matches!(event, RawEvent::Append { .. });
        self.events.push(span);
        Ok(())
    }
}

/// A turn whose beginning is not there: another implementation left it behind, or it is damaged.
fn lost_turn(line: &Line<'_>) -> OpenTurn {
    let turn_id = line.turn_id.clone().unwrap_or_else(OpenTurn::foreign_id);
    OpenTurn {
        turn_id,
        event: None,
        attempt: 0,
        last_seq: 0,
    }
}
