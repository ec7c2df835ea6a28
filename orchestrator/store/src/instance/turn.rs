//! `messages/events.jsonl`: the journal of the turn in progress (`MSG-1`, `MSG-3`, `MSG-5`).
//!
//! The lines of a turn are, in order: `turn_begin` (once for each attempt), its message events, between them
//! records of calls that need a person (see [`super::approvals`]), and `turn_commit`. Once the commit record is durable the turn is committed; all that follows from it
//! can be done again from this file alone (see [`super::fold`]). So a turn that is part of the base
//! stays here until the base is durable, too, and other turns may follow it meanwhile: several turns
//! then share the syncs of the base.
//!
//! Records of other implementations have no `turnId`, no `seq` and no `turn_begin`; they are read as
//! a turn without an input event. Ours are sealed (see [`goondan_durable::checksum`]): each says itself whether
//! it is whole and where it belongs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use goondan_durable::disk::Disk;
use goondan_durable::sealed::{SealedLog, Span};
use goondan_durable::{FileError, Finding, IoContext as _, files};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, ExtensionStates, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::approvals::{Approval, ApprovalMark, Approvals};
use super::claims::TurnClaim;
use super::raw::{Line, RawEvent};
use crate::error::StoreError;
use crate::limits::{JOURNAL_FOLDED_BYTES, JOURNAL_FOLDED_TURNS};

mod reading;

pub(super) use reading::{Ended, Journaled, check};

use reading::{Read, passed_over};

/// The turn in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// The event it answers; none for a turn another implementation left behind.
    pub event: Option<TurnEvent>,
    /// How many processes have worked on it.
    pub attempt: u32,
    /// The number of its last recorded message event.
    pub last_seq: u64,
}

impl OpenTurn {
    /// The id that stands for a turn of another implementation, which has none.
    pub(super) fn foreign_id() -> TurnId {
        TurnId::from(uuid::Uuid::nil())
    }

    /// Whether another implementation left it behind.
    pub(super) fn is_foreign(&self) -> bool {
        self.turn_id == Self::foreign_id()
    }
}

/// The input event of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnEvent {
    /// The event.
    pub event_id: EventId,
    /// Its place in the inbox.
    pub inbox_seq: u64,
}

/// How a committed turn becomes part of the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "mode",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub(super) enum FoldMode {
    /// Cut the base to `base_bytes` and its checksums to `sums_bytes`, and append the turn's messages: so
    /// many bytes, with this checksum.
    Delta {
        base_bytes: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sums_bytes: Option<u64>,
        bytes: Option<u64>,
        crc32: Option<u32>,
    },
    /// Put the prepared new base in place, if it is still there.
    Rewrite {
        bytes: Option<u64>,
        crc32: Option<u32>,
    },
}

/// The record that commits a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitRecord {
    pub turn_id: TurnId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<TurnEvent>,
    /// Other events that the turn took in on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<TurnEvent>,
    pub last_seq: u64,
    pub at: Timestamp,
    pub outcome: TurnOutcome,
    pub fold: FoldMode,
    /// What extensions remember from now on, of those that changed it.
    #[serde(default, skip_serializing_if = "ExtensionStates::is_empty")]
    pub states: ExtensionStates,
}

impl CommitRecord {
    /// Whether an event is over with this turn.
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

/// A record of a call that needs a person, and of which turn it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Noted<'a> {
    turn_id: &'a TurnId,
    #[serde(flatten)]
    mark: &'a ApprovalMark,
}

/// The turn journal of one instance.
#[derive(Debug)]
pub(super) struct TurnLog {
    log: SealedLog,
    /// Turns that were over when the file was opened.
    ended: Vec<Ended>,
    /// How many turns the file holds that are part of the base.
    folded: usize,
    /// Where the message events of the open turn lie, in order.
    events: Vec<Span>,
    pub(super) open: Option<OpenTurn>,
    /// Set once the commit record of the open turn is written.
    pub(super) commit: Option<CommitRecord>,
    pub(super) has_only_appends: bool,
    /// The calls of the open turn that a person was asked about.
    approvals: Approvals,
    /// How much of the open turn is surely on disk.
    durable: Option<TurnClaim>,
}

impl TurnLog {
    /// Opens the file, making it if it is missing. What does not continue the turn is reported and
    /// passed over; what was recorded behind it still counts.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let (mut log, reading) = SealedLog::open(disk, path)?;
        findings.extend(reading.findings);
        let mut read = Read::default();
        for span in reading.records {
            let bytes = log.record(span)?;
            if let Err(problem) = read.take_bytes(&bytes, span) {
                log.mark_damaged();
                findings.push(passed_over(path, span, &problem));
            }
        }
        let Read {
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

    /// The turns that were over when the file was opened; they are taken to be part of the base now.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        let ended = std::mem::take(&mut self.ended);
        self.folded += ended.len();
        ended
    }

    /// How many turns the file holds that are part of the base.
    pub(super) fn folded(&self) -> usize {
        self.folded
    }

    /// Whether those have become so many that the base should be made durable.
    pub(super) fn is_long(&self) -> bool {
        self.folded >= JOURNAL_FOLDED_TURNS
            || (self.folded > 0 && self.log.len() >= JOURNAL_FOLDED_BYTES)
    }

    /// Notes that the committed turn is part of the base.
    pub(super) fn retire(&mut self) {
        self.folded += 1;
        self.forget_turn();
    }

    /// The open turn as one that is over, though its commit cannot be read.
    pub(super) fn end_open(&mut self) -> Option<Ended> {
        let open = self.open.take()?;
        let events = std::mem::take(&mut self.events);
        self.folded += 1;
        self.forget_turn();
        Some(Ended {
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

    /// Begins a turn, or another attempt at the open one. Not durable before [`Self::sync`].
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

    /// Appends a message event of the open turn. Not durable before [`Self::sync`].
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

    /// Appends a record of a call of the open turn that needs a person. Not durable before [`Self::sync`].
    pub(super) fn note_approval(
        &mut self,
        turn_id: &TurnId,
        mark: ApprovalMark,
    ) -> Result<(), StoreError> {
        self.open_turn(turn_id)?;
        let wrong = |problem| StoreError::WrongApproval { problem };
        self.approvals.check(&mark).map_err(wrong)?;
        self.log.append(&Noted {
            turn_id,
            mark: &mark,
        })?;
        self.approvals.take(mark).map_err(wrong)
    }

    /// The calls of the open turn that a person was asked about; none once it is committed.
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

    /// Appends the commit record. Durable, and with it the turn, after [`Self::sync`].
    pub(super) fn commit(&mut self, record: CommitRecord) -> Result<(), StoreError> {
        self.log.append(&Mark::TurnCommit(&record))?;
        self.commit = Some(record);
        Ok(())
    }

    /// The message events of the open turn, in order.
    pub(super) fn events(&mut self) -> Result<Vec<RawEvent>, StoreError> {
        self.events_from(0, u64::MAX).map(|(events, _)| events)
    }

    /// The message events of the open turn from the one with index `first` on, at least one if there is
    /// one, and not much more than `bytes_max` of them; and the index of the next, if there is one.
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

    /// The message events of a turn that is over, in order.
    pub(super) fn events_of(&mut self, ended: &Ended) -> Result<Vec<RawEvent>, StoreError> {
        let spans = ended.events.iter();
        let events: Result<_, _> = spans.map(|span| event_at(&mut self.log, *span)).collect();
        Ok(events?)
    }

    /// Takes the turns out of the file that are part of the base; all that they came to must be durable.
    /// An open turn stays. Durable when it returns: what came back after a crash could not be told from
    /// what follows it.
    pub(super) fn shed(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        match &self.open {
            None => {
                self.log.clear(disk)?;
                self.log.sync()?;
            }
            Some(open) => {
                let turn_id = open.turn_id.clone();
                let events: HashSet<u64> = self.events.iter().map(|span| span.offset).collect();
                // An event of another implementation does not say whose it is.
                let is_of_turn = |span: Span, record: &[u8]| {
                    let line: Result<Line<'_>, _> = serde_json::from_slice(record);
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

    /// Reads the file anew, which is durable; whose event the open turn answers is known already.
    fn reopen(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let path = self.log.path().to_owned();
        let event = self.open.take().and_then(|open| open.event);
        *self = Self::open(disk, &path, &mut Vec::new())?;
        if let Some(open) = &mut self.open {
            open.event = open.event.take().or(event);
        }
        // What follows is to say that what is there was durable before.
        self.sync()
    }

    /// Puts the whole file aside under a name that ends in `label`, and begins an empty one. Durable
    /// when it returns.
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

    /// How much of the open turn is surely on disk.
    pub(super) fn claim(&self) -> Option<TurnClaim> {
        self.durable.clone()
    }

    /// How many message events of a turn the file holds; none if it does not hold the turn. One that is
    /// over is whole.
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

    /// Writes the file anew if anything in it cannot be read; it is kept as it was beside itself.
    /// Returns whether it did. Durable when it returns.
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
    let event = serde_json::from_slice::<Line<'_>>(&bytes)
        .map_err(|error| error.to_string())
        .and_then(|line| RawEvent::of_line(&line));
    event.map_err(|problem| FileError::Damaged {
        path: log.path().to_owned(),
        line: span.line,
        problem,
    })
}
