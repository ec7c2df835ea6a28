//! `messages/events.jsonl`: the journal of the turn in progress (`MSG-1`, `MSG-3`, `MSG-5`).
//!
//! The lines of a turn are, in order: `turn_begin` (once for each attempt), its message events
//! interleaved with approval records (see [`super::approvals`]), and `turn_commit`. Once the commit
//! record is durable, the turn is committed, and everything after it can be redone from this file
//! alone (see [`super::fold`]). A folded turn stays here until the base is durable too, and other
//! turns may follow it, so that several turns share the syncs of the base.
//!
//! Records of other implementations have no `turnId`, no `seq` and no `turn_begin`; they are read
//! as a turn without an input event. Our records are sealed (see [`goondan_durable::checksum`]):
//! each shows that it is whole and in its place.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use goondan_durable::disk::Disk;
use goondan_durable::sealed_log::{SealedLog, Span};
use goondan_durable::{FileError, Finding, IoContext as _, files};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, ExtensionStates, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::approvals::{Approval, ApprovalMark, Approvals};
use super::manifest_claims::TurnClaim;
use super::records::{RawEvent, RawTurnLine};
use crate::error::StoreError;
use crate::limits::{JOURNAL_FOLDED_BYTES, JOURNAL_FOLDED_TURNS};

mod journal_reader;

pub(super) use journal_reader::{EndedTurn, JournalTurns, check};

use journal_reader::{TurnFileContent, passed_over};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    pub turn_id: TurnId,
    /// The event it answers; `None` for a turn of another implementation.
    pub event: Option<TurnEvent>,
    pub attempt: u32,
    /// The number of its last recorded message event.
    pub last_seq: u64,
}

impl OpenTurn {
    /// Placeholder id for a turn of another implementation, which has none.
    pub(super) fn foreign_id() -> TurnId {
        TurnId::from(uuid::Uuid::nil())
    }

    /// True if another implementation wrote it.
    pub(super) fn is_foreign(&self) -> bool {
        self.turn_id == Self::foreign_id()
    }
}

/// The input event of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnEvent {
    pub event_id: EventId,
    /// Its sequence number in the inbox.
    pub inbox_seq: u64,
}

/// Method of folding a committed turn into the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "mode",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub(super) enum FoldMode {
    /// Truncate the base to `base_bytes` and its checksums to `sums_bytes`, then append the turn's
    /// messages, with the given length and checksum.
    Delta {
        base_bytes: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sums_bytes: Option<u64>,
        bytes: Option<u64>,
        crc32: Option<u32>,
    },
    /// Rename the prepared base into place, if it still exists.
    Rewrite {
        bytes: Option<u64>,
        crc32: Option<u32>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitRecord {
    pub turn_id: TurnId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<TurnEvent>,
    /// Other events that the turn consumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<TurnEvent>,
    pub last_seq: u64,
    pub at: Timestamp,
    pub outcome: TurnOutcome,
    pub fold: FoldMode,
    /// New states of the extensions that changed theirs.
    #[serde(default, skip_serializing_if = "ExtensionStates::is_empty")]
    pub states: ExtensionStates,
}

impl CommitRecord {
    /// True if the event ends with this turn.
    pub(super) fn ends(&self, event_id: &EventId) -> bool {
        let events = self.also.iter().chain(&self.event);
        events.into_iter().any(|event| event.event_id == *event_id)
    }
}

#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum Mark<'a> {
    TurnBegin {
        turn_id: &'a TurnId,
        attempt: u32,
        event: &'a TurnEvent,
        at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        config_digest: Option<&'a str>,
    },
    TurnCommit(&'a CommitRecord),
}

/// An approval record with its turn.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnApproval<'a> {
    turn_id: &'a TurnId,
    #[serde(flatten)]
    mark: &'a ApprovalMark,
}

/// The turn journal of one instance.
#[derive(Debug)]
pub(super) struct TurnLog {
    log: SealedLog,
    /// Turns that had ended when the file was opened.
    ended: Vec<EndedTurn>,
    /// Number of folded turns in the file.
    folded: usize,
    /// Positions of the open turn's message events, in order.
    events: Vec<Span>,
    pub(super) open: Option<OpenTurn>,
    /// Set once the commit record of the open turn is written.
    pub(super) commit: Option<CommitRecord>,
    pub(super) has_only_appends: bool,
    /// Approvals of the open turn.
    approvals: Approvals,
    /// Durable extent of the open turn.
    durable: Option<TurnClaim>,
}

impl TurnLog {
    /// Opens or creates the file. Records that do not continue the turn are reported and skipped;
    /// later records still count.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let (mut log, reading) = SealedLog::open(disk, path)?;
        findings.extend(reading.findings);
        let mut read = TurnFileContent::default();
        for span in reading.records {
            let bytes = log.record(span)?;
            if let Err(problem) = read.take_bytes(&bytes, span) {
                log.mark_damaged();
                findings.push(passed_over(path, span, &problem));
            }
        }
        let TurnFileContent {
            ended,
            events,
            open,
            has_others,
            approvals,
        } = read;
        Ok(Self {
            log,
            ended,
            folded: 0,
            events,
            open,
            commit: None,
            has_only_appends: !has_others,
            approvals,
            durable: None,
        })
    }

    /// Takes the turns that had ended when the file was opened. They count as folded from now on.
    pub(super) fn take_ended(&mut self) -> Vec<EndedTurn> {
        let ended = std::mem::take(&mut self.ended);
        self.folded += ended.len();
        ended
    }

    /// Returns the number of folded turns in the file.
    pub(super) fn folded(&self) -> usize {
        self.folded
    }

    /// True if enough turns are folded to sync the base.
    pub(super) fn is_long(&self) -> bool {
        self.folded >= JOURNAL_FOLDED_TURNS
            || (self.folded > 0 && self.log.len() >= JOURNAL_FOLDED_BYTES)
    }

    /// Counts the committed turn as folded.
    pub(super) fn retire(&mut self) {
        self.folded += 1;
        self.forget_turn();
    }

    /// Ends the open turn without a readable commit.
    pub(super) fn end_open(&mut self) -> Option<EndedTurn> {
        let open = self.open.take()?;
        let events = std::mem::take(&mut self.events);
        self.folded += 1;
        self.forget_turn();
        Some(EndedTurn {
            turn_id: open.turn_id,
            event: open.event,
            events,
            commit: None,
        })
    }

    fn forget_turn(&mut self) {
        self.events.clear();
        self.open = None;
        self.commit = None;
        self.durable = None;
        self.approvals = Approvals::default();
        self.has_only_appends = true;
    }

    /// Begins a turn, or another attempt at the open one. Durable only after [`Self::sync`].
    pub(super) fn begin(
        &mut self,
        turn_id: TurnId,
        event: TurnEvent,
        config_digest: Option<&str>,
        at: Timestamp,
    ) -> Result<OpenTurn, StoreError> {
        let (turn_id, attempt, last_seq) = match &self.open {
            Some(open) => (open.turn_id.clone(), open.attempt + 1, open.last_seq),
            None => (turn_id, 1, 0),
        };
        self.log.append(&Mark::TurnBegin {
            turn_id: &turn_id,
            attempt,
            event: &event,
            at,
            config_digest,
        })?;
        let open = OpenTurn {
            turn_id,
            event: Some(event),
            attempt,
            last_seq,
        };
        self.open = Some(open.clone());
        Ok(open)
    }

    fn open_turn(&mut self, turn_id: &TurnId) -> Result<&mut OpenTurn, StoreError> {
        let is_committed = self.commit.is_some();
        match &mut self.open {
            Some(open) if open.turn_id == *turn_id && !is_committed => Ok(open),
            _ => Err(StoreError::WrongTurn {
                turn_id: turn_id.clone(),
            }),
        }
    }

    /// Appends a message event of the open turn. Durable only after [`Self::sync`].
    pub(super) fn append(
        &mut self,
        turn_id: &TurnId,
        seq: u64,
        raw: &RawValue,
    ) -> Result<(), StoreError> {
        let expected = self.open_turn(turn_id)?.last_seq + 1;
        if seq != expected {
            return Err(StoreError::OutOfOrder { expected, got: seq });
        }
        let event = RawEvent::from_agent(raw)?;
        let span = self.log.append(&event.line(Some(turn_id), Some(seq)))?;
        self.events.push(span);
        self.open_turn(turn_id)?.last_seq = seq;
        self.has_only_appends &= matches!(event, RawEvent::Append { .. });
        Ok(())
    }

    /// Appends an approval record of the open turn. Durable only after [`Self::sync`].
    pub(super) fn note_approval(
        &mut self,
        turn_id: &TurnId,
        mark: ApprovalMark,
    ) -> Result<(), StoreError> {
        self.open_turn(turn_id)?;
        let wrong = |problem| StoreError::WrongApproval { problem };
        self.approvals.check(&mark).map_err(wrong)?;
        self.log.append(&TurnApproval {
            turn_id,
            mark: &mark,
        })?;
        self.approvals.take(mark).map_err(wrong)
    }

    /// Returns the approvals of the open turn; empty once it is committed.
    pub(super) fn approvals(&self) -> &[Approval] {
        match self.commit {
            Some(_) => &[],
            None => self.approvals.all(),
        }
    }

    /// Checks that the open turn can be committed with `last_seq` events.
    pub(super) fn check_complete(
        &mut self,
        turn_id: &TurnId,
        last_seq: u64,
    ) -> Result<(), StoreError> {
        let expected = self.open_turn(turn_id)?.last_seq;
        if last_seq == expected {
            Ok(())
        } else {
            Err(StoreError::OutOfOrder {
                expected,
                got: last_seq,
            })
        }
    }

    /// Appends the commit record. The turn is durable after [`Self::sync`].
    pub(super) fn commit(&mut self, record: CommitRecord) -> Result<(), StoreError> {
        self.log.append(&Mark::TurnCommit(&record))?;
        self.commit = Some(record);
        Ok(())
    }

    /// Returns the message events of the open turn, in order.
    pub(super) fn events(&mut self) -> Result<Vec<RawEvent>, StoreError> {
        self.events_from(0, u64::MAX).map(|(events, _)| events)
    }

    /// Returns the message events of the open turn from index `first` on, at least one if it exists
    /// and little more than `bytes_max`, and the next index, if there are more.
    pub(super) fn events_from(
        &mut self,
        first: u64,
        bytes_max: u64,
    ) -> Result<(Vec<RawEvent>, Option<u64>), StoreError> {
        let (mut events, mut bytes_read) = (Vec::new(), 0);
        for (index, span) in (0..)
            .zip(&self.events)
            .skip_while(|(index, _)| *index < first)
        {
            if bytes_read > 0 && span.len.saturating_add(bytes_read) > bytes_max {
                return Ok((events, Some(index)));
            }
            bytes_read += span.len;
            events.push(event_at(&mut self.log, *span)?);
        }
        Ok((events, None))
    }

    /// Returns the message events of an ended turn, in order.
    pub(super) fn events_of(&mut self, ended: &EndedTurn) -> Result<Vec<RawEvent>, StoreError> {
        let spans = ended.events.iter();
        let events: Result<_, _> = spans.map(|span| event_at(&mut self.log, *span)).collect();
        Ok(events?)
    }

    /// Removes folded turns from the file; their results must be durable. An open turn stays.
    /// Durable when it returns, because turns that reappear after a crash could not be
    /// distinguished from later ones.
    pub(super) fn shed(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        match &self.open {
            None => {
                self.log.clear(disk)?;
                self.log.sync()?;
            }
            Some(open) => {
                let turn_id = open.turn_id.clone();
                let events: HashSet<u64> = self.events.iter().map(|span| span.offset).collect();
                // An event of another implementation does not name its turn.
                let is_of_turn = |span: Span, record: &[u8]| {
                    let line: Result<RawTurnLine<'_>, _> = serde_json::from_slice(record);
                    events.contains(&span.offset)
                        || line.is_ok_and(|line| line.turn_id.as_ref() == Some(&turn_id))
                };
                self.log.retain(disk, is_of_turn)?;
                self.reopen(disk)?;
            }
        }
        self.folded = 0;
        Ok(())
    }

    /// Reads the durable file again; the open turn's event is already known.
    fn reopen(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let path = self.log.path().to_owned();
        let event = self.open.take().and_then(|open| open.event);
        *self = Self::open(disk, &path, &mut Vec::new())?;
        if let Some(open) = &mut self.open {
            open.event = open.event.take().or(event);
        }
        // The records that follow declare the earlier ones durable.
        self.sync()
    }

    /// Renames the whole file to a name that ends in `label`, and begins an empty one. Durable when
    /// it returns.
    pub(super) fn set_aside(
        &mut self,
        disk: &dyn Disk,
        label: &str,
    ) -> Result<PathBuf, StoreError> {
        self.sync()?;
        let path = self.log.path().to_owned();
        let (kept, _) = files::aside_name(disk, &path, label, None)?;
        files::install(disk, &path, &kept)?;
        *self = Self::open(disk, &path, &mut Vec::new())?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        disk.sync_dir(dir).during("sync", dir)?;
        Ok(kept)
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.log.sync()?;
        let open = self.open.as_ref().filter(|_| self.commit.is_none());
        self.durable = open.and_then(|open| {
            let event_id = open.event.as_ref()?.event_id.clone();
            (open.last_seq > 0).then(|| TurnClaim {
                turn_id: open.turn_id.clone(),
                event_id,
                events: open.last_seq,
            })
        });
        Ok(())
    }

    /// Returns the durable extent of the open turn.
    pub(super) fn claim(&self) -> Option<TurnClaim> {
        self.durable.clone()
    }

    /// Returns the number of a turn's message events in the file; `None` if the turn is not in it.
    /// An ended turn is complete.
    pub(super) fn events_of_turn(&self, turn_id: &TurnId) -> Option<u64> {
        if self.ended.iter().any(|ended| ended.turn_id == *turn_id) {
            return Some(u64::MAX);
        }
        let open = self.open.as_ref().filter(|open| open.turn_id == *turn_id);
        open.map(|open| open.last_seq)
    }

    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        Ok(self.log.write_out()?)
    }

    pub(super) fn path(&self) -> &Path {
        self.log.path()
    }

    /// Rewrites the file if any record is unreadable, and keeps a copy. Returns true if it did.
    /// Durable when it returns.
    pub(super) fn mend(&mut self, disk: &dyn Disk) -> Result<bool, StoreError> {
        let is_damaged = self.log.mend(disk)?.is_some();
        if is_damaged {
            self.reopen(disk)?;
        }
        Ok(is_damaged)
    }
}

fn event_at(log: &mut SealedLog, span: Span) -> Result<RawEvent, FileError> {
    let bytes = log.record(span)?;
    let event = serde_json::from_slice::<RawTurnLine<'_>>(&bytes)
        .map_err(|error| error.to_string())
        .and_then(|line| RawEvent::of_line(&line));
    event.map_err(|problem| FileError::Damaged {
        path: log.path().to_owned(),
        line: span.line,
        problem,
    })
}
