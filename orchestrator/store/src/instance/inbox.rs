//! `messages/inbox.jsonl`: the events an instance accepted, and which of them are done (`MSG-13`).
//!
//! Two kinds of records: `accepted` holds an event, `done` says how its turn ended. An event is
//! durable here before its sender is told so; a turn is done here before its journal is cleared. The
//! ids of the latest finished events are remembered with their outcomes, so that the same event id
//! twice is one turn, and the repeated request gets the stored answer.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{EventId, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Finding;
use crate::disk::Disk;
use crate::durable;
use crate::error::StoreError;
use crate::jsonl::Journal;
use crate::limits::{INBOX_COMPACT_BYTES, INBOX_REMEMBERED_EVENTS};

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
enum Record {
    Accepted {
        seq: u64,
        event: Box<AgentEvent>,
    },
    Done {
        seq: u64,
        event_id: EventId,
        turn_id: TurnId,
        at: Timestamp,
        outcome: TurnOutcome,
    },
}

/// What a scan needs of a line; the rest is read when it is needed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    seq: u64,
    event_id: Option<EventId>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Copy)]
enum Known {
    Waiting {
        seq: u64,
    },
    /// Where its `done` record begins.
    Done {
        offset: u64,
        seq: u64,
    },
}

/// What the inbox knows of an event id.
#[derive(Debug, Clone, PartialEq)]
pub enum EventState {
    /// It was never accepted, or is forgotten.
    Unknown,
    /// It waits for its turn or is in it.
    Waiting,
    /// Its turn is over.
    Done(TurnOutcome),
}

/// The inbox of one instance.
#[derive(Debug)]
pub(super) struct Inbox {
    journal: Journal,
    next_seq: u64,
    waiting: BTreeMap<u64, AgentEvent>,
    known: HashMap<EventId, Known>,
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
        let mut journal = Journal::open(disk, path)?;
        let mut waiting = BTreeMap::new();
        let mut known = HashMap::new();
        let mut next_seq = 1;
        let mut number = 0;
        let good = journal.scan(|offset, line| {
            number += 1;
            let result = read_line(offset, line, &mut waiting, &mut known);
            match result {
                Ok(seq) => next_seq = next_seq.max(seq + 1),
                Err(error) => findings.push(Finding::damaged(path, number, &error)),
            }
        })?;
        if let Some(torn) = journal.mend_tail(disk, good)? {
            findings.push(Finding::torn(path, &torn));
        } else if good < journal.len() {
            // The last line had no newline but was whole: read it again with its newline.
            return Self::open(disk, path, findings);
        }
        let compact_at = INBOX_COMPACT_BYTES.max(journal.len());
        Ok(Self {
            journal,
            next_seq,
            waiting,
            known,
            compact_at,
        })
    }

    /// Events that wait, oldest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &AgentEvent> {
        self.waiting.values()
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// The sequence number of a waiting event.
    pub(super) fn seq_of_waiting(&self, event_id: &EventId) -> Option<u64> {
        match self.known.get(event_id) {
            Some(Known::Waiting { seq }) => Some(*seq),
            Some(Known::Done { .. }) | None => None,
        }
    }

    /// Whether the event of this sequence number is over.
    pub(super) fn is_done(&self, seq: u64) -> bool {
        seq < self.next_seq && !self.waiting.contains_key(&seq)
    }

    /// What is known of an event id.
    pub(super) fn state_of(&mut self, event_id: &EventId) -> Result<EventState, StoreError> {
        match self.known.get(event_id) {
            None => Ok(EventState::Unknown),
            Some(Known::Waiting { .. }) => Ok(EventState::Waiting),
            Some(Known::Done { offset, .. }) => {
                let outcome = self.read_outcome(*offset)?;
                Ok(EventState::Done(outcome))
            }
        }
    }

    fn read_outcome(&mut self, offset: u64) -> Result<TurnOutcome, StoreError> {
        let (line, _) = super::read_line_at(&mut self.journal, offset)?;
        let path = self.journal.path();
        let damaged = |problem: String| StoreError::Damaged {
            path: path.to_owned(),
            line: 0,
            problem,
        };
        match serde_json::from_slice(&line) {
            Ok(Record::Done { outcome, .. }) => Ok(outcome),
            Ok(Record::Accepted { .. }) => Err(damaged("expected a `done` record".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Appends an event. Not durable before [`Self::sync`].
    pub(super) fn accept(&mut self, event: AgentEvent) -> Result<(), StoreError> {
        let seq = self.next_seq;
        let event_id = event.id.clone();
        let record = Record::Accepted {
            seq,
            event: Box::new(event),
        };
        self.journal.append(&line_of(&record)?)?;
        self.next_seq += 1;
        self.known.insert(event_id, Known::Waiting { seq });
        if let Record::Accepted { event, .. } = record {
            self.waiting.insert(seq, *event);
        }
        Ok(())
    }

    /// Appends that an event is over. Not durable before [`Self::sync`].
    pub(super) fn finish(
        &mut self,
        seq: u64,
        turn_id: &TurnId,
        at: Timestamp,
        outcome: &TurnOutcome,
    ) -> Result<(), StoreError> {
        let Some(event) = self.waiting.get(&seq) else {
            return Ok(());
        };
        let (event_id, turn_id, outcome) = (event.id.clone(), turn_id.clone(), outcome.clone());
        let offset = self.journal.len();
        let record = Record::Done {
            seq,
            event_id: event_id.clone(),
            turn_id,
            at,
            outcome,
        };
        self.journal.append(&line_of(&record)?)?;
        self.waiting.remove(&seq);
        self.known.insert(event_id, Known::Done { offset, seq });
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.journal.sync()
    }

    /// Drops finished events but the latest from the file when it has grown large. Durable when it
    /// returns.
    pub(super) fn compact(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        if self.journal.len() < self.compact_at {
            return Ok(());
        }
        let mut done: Vec<(u64, u64)> = self
            .known
            .values()
            .filter_map(|known| match known {
                Known::Done { offset, seq } => Some((*seq, *offset)),
                Known::Waiting { .. } => None,
            })
            .collect();
        done.sort_unstable();
        let surplus = done.len().saturating_sub(INBOX_REMEMBERED_EVENTS);
        let mut content = Vec::new();
        for (_, offset) in done.split_off(surplus) {
            let (line, _) = super::read_line_at(&mut self.journal, offset)?;
            content.extend_from_slice(&line);
            content.push(b'\n');
        }
        for (seq, event) in &self.waiting {
            content.extend(line_of(&Record::Accepted {
                seq: *seq,
                event: Box::new(event.clone()),
            })?);
        }
        let path = self.journal.path().to_owned();
        durable::replace(disk, &path, &content)?;
        let mut findings = Vec::new();
        *self = Self::open(disk, &path, &mut findings)?;
        self.compact_at = INBOX_COMPACT_BYTES.max(self.journal.len() * 2);
        Ok(())
    }
}

/// Whether any event waits in the inbox at `path`. Only reads.
pub(super) fn has_waiting(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    let mut journal = Journal::open(disk, path)?;
    let mut waiting = std::collections::HashSet::new();
    let good = journal.scan(|_, line| {
        if let Ok(head) = serde_json::from_slice::<Head<'_>>(line) {
            if head.kind == "done" {
                waiting.remove(&head.seq);
            } else {
                waiting.insert(head.seq);
            }
        }
    })?;
    // A torn end is for recovery to look at.
    Ok(!waiting.is_empty() || good < journal.len())
}

fn line_of(record: &Record) -> Result<Vec<u8>, StoreError> {
    super::json_line(record)
}

fn read_line(
    offset: u64,
    line: &[u8],
    waiting: &mut BTreeMap<u64, AgentEvent>,
    known: &mut HashMap<EventId, Known>,
) -> Result<u64, String> {
    let head: Head<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let seq = head.seq;
    match (head.kind, head.event, head.event_id) {
        ("accepted", Some(event), _) => {
            let event: AgentEvent =
                serde_json::from_str(event.get()).map_err(|error| error.to_string())?;
            known.insert(event.id.clone(), Known::Waiting { seq });
            waiting.insert(seq, event);
        }
        ("done", _, Some(event_id)) => {
            waiting.remove(&seq);
            known.insert(event_id, Known::Done { offset, seq });
        }
        (kind, ..) => return Err(format!("unknown or incomplete record `{kind}`")),
    }
    Ok(seq)
}
