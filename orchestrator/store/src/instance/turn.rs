//! `messages/events.jsonl`: the journal of the turn in progress (`MSG-1`, `MSG-3`, `MSG-5`).
//!
//! Its lines are, in order: `turn_begin` (once for each attempt), the turn's message events, and at
//! the very end `turn_commit`. Once the commit record is durable the turn is committed; all that
//! follows from it can be done again from this file alone (see [`super::fold`]).
//!
//! Records of other implementations have no `turnId`, no `seq` and no `turn_begin`; they are read as
//! a turn without an input event. Ours are sealed (see [`crate::checksum`]): each says itself whether
//! it is whole and where it belongs.

use std::path::{Path, PathBuf};

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, ExtensionStates, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::raw::{Line, RawEvent};
use crate::disk::Disk;
use crate::durable;
use crate::error::{IoContext as _, StoreError};
use crate::finding::{Finding, FindingKind, Severity};
use crate::jsonl::Journal;
use crate::sealed::{self, SealedLog, Span};

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
    /// Cut the base to `base_bytes` and append the turn's messages: so many bytes, with this checksum.
    Delta {
        base_bytes: u64,
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

/// The turn journal of one instance.
#[derive(Debug)]
pub(super) struct TurnLog {
    log: SealedLog,
    /// Where the message events lie, in order.
    events: Vec<Span>,
    pub(super) open: Option<OpenTurn>,
    /// Set once the commit record is written.
    pub(super) commit: Option<CommitRecord>,
    pub(super) has_only_appends: bool,
}

/// What reading the file has come to.
#[derive(Debug, Default)]
struct Read {
    events: Vec<Span>,
    open: Option<OpenTurn>,
    commit: Option<CommitRecord>,
    has_others: bool,
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
            events,
            open,
            commit,
            has_others,
        } = read;
        Ok(Self {
            log,
            events,
            open,
            commit,
            has_only_appends: !has_others,
        })
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

    /// The message events of the file, in order.
    pub(super) fn events(&mut self) -> Result<Vec<RawEvent>, StoreError> {
        self.events_from(0, u64::MAX).map(|(events, _)| events)
    }

    /// The message events from the one with index `first` on, at least one if there is one, and not
    /// much more than `bytes_max` of them; and the index of the next, if there is one.
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
            let bytes = self.log.record(*span)?;
            let event = serde_json::from_slice::<Line<'_>>(&bytes)
                .map_err(|error| error.to_string())
                .and_then(|line| RawEvent::of_line(&line));
            events.push(event.map_err(|problem| StoreError::Damaged {
                path: self.log.path().to_owned(),
                line: span.line,
                problem,
            })?);
        }
        Ok((events, None))
    }

    /// Clears the file. What it held must be durable elsewhere.
    pub(super) fn clear(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        self.log.clear(disk)?;
        self.events.clear();
        self.open = None;
        self.commit = None;
        self.has_only_appends = true;
        Ok(())
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
        let (kept, _) = durable::aside_name(disk, &path, label, None)?;
        durable::install(disk, &path, &kept)?;
        *self = Self::open(disk, &path, &mut Vec::new())?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        disk.sync_dir(dir).during("sync", dir)?;
        Ok(kept)
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.log.sync()
    }

    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        self.log.write_out()
    }

    pub(super) fn path(&self) -> &Path {
        self.log.path()
    }

    /// Writes the file anew if anything in it cannot be read; it is kept as it was beside itself.
    /// Returns whether it did. Durable when it returns.
    pub(super) fn mend(&mut self, disk: &dyn Disk) -> Result<bool, StoreError> {
        let is_damaged = self.log.mend(disk)?.is_some();
        if is_damaged {
            let path = self.log.path().to_owned();
            let event = self.open.take().and_then(|open| open.event);
            *self = Self::open(disk, &path, &mut Vec::new())?;
            if let Some(open) = &mut self.open {
                open.event = open.event.take().or(event);
            }
        }
        Ok(is_damaged)
    }
}

/// Looks at the records of a turn's journal; says whether a commit waits for its fold. Changes
/// nothing.
pub(super) fn check(
    journal: &mut Journal,
    reading: &sealed::Reading,
    findings: &mut Vec<Finding>,
) -> Result<bool, StoreError> {
    let mut read = Read::default();
    for span in &reading.records {
        let len = usize::try_from(span.len).unwrap_or(usize::MAX);
        let bytes = journal.read(span.offset, len)?;
        if let Err(problem) = read.take_bytes(&bytes, *span) {
            findings.push(passed_over(journal.path(), *span, &problem));
        }
    }
    Ok(read.commit.is_some())
}

fn passed_over(path: &Path, span: Span, problem: &str) -> Finding {
    let problem = format!("line {}: {problem}; it is passed over", span.line);
    let finding = span.finding(path, FindingKind::UnknownRecord, problem);
    finding.severity(Severity::Error)
}

impl Read {
    fn take_bytes(&mut self, bytes: &[u8], span: Span) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        self.take(&line, bytes, span)
    }

    /// Takes one record into account, or says why it does not continue the turn.
    fn take(&mut self, line: &Line<'_>, bytes: &[u8], span: Span) -> Result<(), String> {
        if self.commit.is_some() {
            return Err("a record after the turn's commit".to_owned());
        }
        match line.kind {
            "turn_begin" => self.take_begin(line),
            "turn_commit" => {
                let record: CommitRecord =
                    serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                if self
                    .open
                    .as_ref()
                    .is_some_and(|open| open.turn_id != record.turn_id)
                {
                    return Err("the commit of another turn".to_owned());
                }
                // Its records may be lost, but that it was committed is certain.
                self.open = Some(OpenTurn {
                    turn_id: record.turn_id.clone(),
                    event: record.event.clone(),
                    attempt: self.open.as_ref().map_or(1, |open| open.attempt),
                    last_seq: record.last_seq,
                });
                self.commit = Some(record);
                Ok(())
            }
            _ => self.take_event(line, span),
        }
    }

    fn take_begin(&mut self, line: &Line<'_>) -> Result<(), String> {
        let (Some(turn_id), Some(attempt), Some(event)) =
            (line.turn_id.clone(), line.attempt, line.event)
        else {
            return Err("an incomplete `turn_begin`".to_owned());
        };
        let event = serde_json::from_str(event.get()).map_err(|error| error.to_string())?;
        let last_seq = match &self.open {
            Some(open) if open.turn_id == turn_id => open.last_seq,
            Some(_) => return Err("the beginning of another turn".to_owned()),
            None => 0,
        };
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
        if line.turn_id.as_ref().is_some_and(|id| *id != open.turn_id) {
            return Err("an event of another turn".to_owned());
        }
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
    let turn_id = line
        .turn_id
        .clone()
        .unwrap_or_else(|| TurnId::from(uuid::Uuid::nil()));
    OpenTurn {
        turn_id,
        event: None,
        attempt: 0,
        last_seq: 0,
    }
}
