//! The inbox's records and the table built from them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use goondan_durable::sealed_log::Span;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::event_join::EventJoin;
use goondan_protocol::ids::{ConnectionName, EventId, InstanceKey, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{ParkedEvent, PendingReplyRecord};
use crate::limits::INBOX_REMEMBERED_EVENTS;

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub(super) enum QueueRecord {
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
    Attempted {
        seq: u64,
        event_id: EventId,
        attempts: u32,
        at: Timestamp,
    },
    Parked {
        seq: u64,
        event_id: EventId,
        reason: String,
        at: Timestamp,
    },
    Retried {
        seq: u64,
        event_id: EventId,
        at: Timestamp,
    },
    Dropped {
        seq: u64,
        event_id: EventId,
        at: Timestamp,
        /// `None` if a user dropped a parked event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<TurnOutcome>,
    },
    Paused {
        seq: u64,
        event_id: EventId,
        at: Timestamp,
    },
    Resumed {
        seq: u64,
        event_id: EventId,
        at: Timestamp,
    },
    Moved {
        seq: u64,
        event_id: EventId,
        /// The event that will follow it; `None` moves it to the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<EventId>,
        at: Timestamp,
    },
    /// The last part of a join gets the texts of the others, which are finished: one record, so that
    /// no part is lost or runs twice.
    Joined {
        seq: u64,
        event: Box<AgentEvent>,
        at: Timestamp,
    },
    /// A part of a join that is finished, in a rewritten file.
    Merged {
        seq: u64,
        event_id: EventId,
        /// The event with its text.
        into: EventId,
    },
    Awaiting {
        /// The last event accepted before.
        seq: u64,
        event_id: EventId,
        target: InstanceKey,
        reply: Box<AgentEvent>,
        at: Timestamp,
    },
    Forgone {
        /// The last event accepted before.
        seq: u64,
        event_id: EventId,
        at: Timestamp,
    },
}

/// Fields of a line that a scan needs; the rest is read on demand.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueRecordHead<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    seq: u64,
    event_id: Option<EventId>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    attempts: Option<u32>,
    reason: Option<String>,
    at: Option<Timestamp>,
    before: Option<EventId>,
    target: Option<InstanceKey>,
    #[serde(borrow)]
    reply: Option<&'a RawValue>,
}

#[derive(Debug)]
pub(super) struct UnfinishedEvent {
    pub event: AgentEvent,
    pub attempts: u32,
    pub parked: Option<(String, Timestamp)>,
    /// Time at which a user paused it.
    pub paused: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum EventDedupEntry {
    Pending {
        seq: u64,
    },
    /// Position of the record that ended it.
    Over {
        span: Span,
        seq: u64,
    },
}

/// State built from the records.
#[derive(Debug, Default)]
pub(in super::super) struct Table {
    pub last_seq: u64,
    pub(super) pending: BTreeMap<u64, UnfinishedEvent>,
    /// Sequence numbers of the pending events, in the order of their turns.
    order: VecDeque<u64>,
    pub(super) known: HashMap<EventId, EventDedupEntry>,
    /// Questions with pending answers, by the ids of the answer events.
    pub awaiting: BTreeMap<EventId, PendingReplyRecord>,
    /// Connections of the events, without events of agents.
    pub sources: BTreeSet<ConnectionName>,
}

/// The event of an `accepted` record; `None` for another record.
pub(super) fn accepted(line: &[u8]) -> Option<AgentEvent> {
    let head: QueueRecordHead<'_> = serde_json::from_slice(line).ok()?;
    let event = head.event.filter(|_| head.kind == "accepted")?;
    serde_json::from_str(event.get()).ok()
}

impl PendingReplyRecord {
    /// Returns the record of this question.
    pub(super) fn to_record(&self, seq: u64) -> QueueRecord {
        QueueRecord::Awaiting {
            seq,
            event_id: self.question.clone(),
            target: self.target.clone(),
            reply: Box::new(self.reply.clone()),
            at: self.reply.created_at,
        }
    }
}

impl UnfinishedEvent {
    pub(super) fn to_parked(&self) -> Option<ParkedEvent> {
        let (reason, at) = self.parked.clone()?;
        Some(ParkedEvent {
            event: self.event.clone(),
            attempts: self.attempts,
            reason,
            at,
        })
    }

    /// Returns the records that recreate this event.
    pub(super) fn to_records(&self, seq: u64) -> Vec<QueueRecord> {
        let event_id = self.event.id.clone();
        let mut records = vec![QueueRecord::Accepted {
            seq,
            event: Box::new(self.event.clone()),
        }];
        if self.attempts > 0 {
            records.push(QueueRecord::Attempted {
                seq,
                event_id: event_id.clone(),
                attempts: self.attempts,
                at: self.event.created_at,
            });
        }
        if let Some((reason, at)) = self.parked.clone() {
            records.push(QueueRecord::Parked {
                seq,
                event_id: event_id.clone(),
                reason,
                at,
            });
        }
        if let Some(at) = self.paused {
            records.push(QueueRecord::Paused { seq, event_id, at });
        }
        records
    }
}

impl Table {
    /// Returns the sequence number of an unfinished event.
    pub(in super::super) fn seq_of_pending(&self, event_id: &EventId) -> Option<u64> {
        match self.known.get(event_id) {
            Some(EventDedupEntry::Pending { seq }) => Some(*seq),
            Some(EventDedupEntry::Over { .. }) | None => None,
        }
    }

    /// Returns the unfinished events, in the order of their turns.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (u64, &UnfinishedEvent)> {
        let found = self.order.iter().map(|seq| (*seq, self.pending.get(seq)));
        found.filter_map(|(seq, entry)| Some((seq, entry?)))
    }

    /// Returns the records that restore the order of the unfinished events when written after them.
    pub(super) fn order_records(&self) -> Vec<QueueRecord> {
        if self.order.iter().is_sorted() {
            return Vec::new();
        }
        let moved = self.in_order().map(|(seq, entry)| QueueRecord::Moved {
            seq,
            event_id: entry.event.id.clone(),
            before: None,
            at: entry.event.created_at,
        });
        moved.collect()
    }

    /// Moves an event before another, or to the end.
    fn place(&mut self, seq: u64, before: Option<&EventId>) -> Result<(), String> {
        let place_of = |order: &VecDeque<u64>, seq: u64| order.iter().position(|own| *own == seq);
        let before = match before {
            None => None,
            Some(before) => {
                let found = self.seq_of_pending(before);
                let unknown = || format!("`moved` before `{before}`, which does not wait");
                Some(found.ok_or_else(unknown)?)
            }
        };
        if before == Some(seq) {
            return Ok(());
        }
        self.order.retain(|own| *own != seq);
        let place = before.and_then(|before| place_of(&self.order, before));
        self.order.insert(place.unwrap_or(self.order.len()), seq);
        Ok(())
    }

    /// True if an event is finished.
    pub(in super::super) fn is_over(&self, event_id: &EventId) -> bool {
        matches!(self.known.get(event_id), Some(EventDedupEntry::Over { .. }))
    }

    /// True if an event is parked.
    pub(in super::super) fn is_parked(&self, event_id: &EventId) -> bool {
        let entry = self
            .seq_of_pending(event_id)
            .map(|seq| self.pending.get(&seq));
        entry.flatten().is_some_and(|entry| entry.parked.is_some())
    }

    /// True if an event is known.
    pub(in super::super) fn knows(&self, event_id: &EventId) -> bool {
        self.known.contains_key(event_id)
    }

    /// True if a finished event is missing although it was not dropped for its age.
    pub(in super::super) fn should_know(&self, event_id: &EventId, seq: u64) -> bool {
        if self.known.contains_key(event_id) {
            return false;
        }
        let over = self.known.values().filter_map(|known| match known {
            EventDedupEntry::Over { seq, .. } => Some(*seq),
            EventDedupEntry::Pending { .. } => None,
        });
        let (count, oldest) = over.fold((0, u64::MAX), |(count, oldest), seq| {
            (count + 1, oldest.min(seq))
        });
        count < INBOX_REMEMBERED_EVENTS || seq > oldest
    }

    pub(super) fn add(&mut self, seq: u64, event_id: EventId, event: AgentEvent) {
        self.last_seq = self.last_seq.max(seq);
        self.awaiting.remove(&event_id);
        if let EventSource::Connector { name } = &event.source
            && !self.sources.contains(name)
        {
            self.sources.insert(name.clone());
        }
        self.known
            .insert(event_id, EventDedupEntry::Pending { seq });
        let entry = UnfinishedEvent {
            event,
            attempts: 0,
            parked: None,
            paused: None,
        };
        self.pending.insert(seq, entry);
        self.order.push_back(seq);
    }

    fn end(&mut self, seq: u64, event_id: EventId, span: Span) {
        self.last_seq = self.last_seq.max(seq);
        self.pending.remove(&seq);
        if let Some(place) = self.order.iter().position(|own| *own == seq) {
            self.order.remove(place);
        }
        self.known
            .insert(event_id, EventDedupEntry::Over { span, seq });
    }

    /// Replaces a part of a join by the input of all parts, and finishes the other parts.
    pub(super) fn join(&mut self, seq: u64, event: AgentEvent, span: Span) -> Result<(), String> {
        let Some(EventJoin::Whole { parts, .. }) = &event.join else {
            return Err("`joined` without parts".to_owned());
        };
        let parts = parts.clone();
        let entry = self.pending.get_mut(&seq);
        let entry = entry.filter(|entry| entry.event.id == event.id);
        let entry = entry.ok_or("`joined` of an event that is not waiting")?;
        entry.event = event;
        for part in parts {
            if let Some(seq) = self.seq_of_pending(&part) {
                self.end(seq, part, span);
            }
        }
        Ok(())
    }

    /// Applies one record, or returns the reason why it is invalid.
    pub(super) fn take(&mut self, span: Span, line: &[u8]) -> Result<(), String> {
        let head: QueueRecordHead<'_> =
            serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let seq = head.seq;
        match (head.kind, head.event, head.event_id) {
            ("accepted", Some(event), _) => {
                let event: AgentEvent =
                    serde_json::from_str(event.get()).map_err(|error| error.to_string())?;
                if self.known.contains_key(&event.id) {
                    return Err("duplicate `accepted` of an event".to_owned());
                }
                self.add(seq, event.id.clone(), event);
            }
            ("joined", Some(event), _) => {
                let event: AgentEvent =
                    serde_json::from_str(event.get()).map_err(|error| error.to_string())?;
                self.join(seq, event, span)?;
            }
            ("done" | "dropped" | "merged", _, Some(event_id)) => self.end(seq, event_id, span),
            ("awaiting", _, Some(question)) => {
                let (Some(target), Some(reply)) = (head.target, head.reply) else {
                    return Err("incomplete `awaiting` record".to_owned());
                };
                let reply: AgentEvent =
                    serde_json::from_str(reply.get()).map_err(|error| error.to_string())?;
                let awaited = PendingReplyRecord {
                    question,
                    target,
                    reply,
                };
                self.awaiting.insert(awaited.reply.id.clone(), awaited);
            }
            ("forgone", _, Some(question)) => {
                self.awaiting
                    .retain(|_, awaited| awaited.question != question);
            }
            ("moved", _, Some(_)) if self.pending.contains_key(&seq) => {
                self.place(seq, head.before.as_ref())?;
            }
            (kind, _, Some(_)) => {
                let at = head.at.unwrap_or(Timestamp::from_unix_millis(0));
                let Some(entry) = self.pending.get_mut(&seq) else {
                    return Err(format!("`{kind}` of an event that is not waiting"));
                };
                match kind {
                    "attempted" => entry.attempts = head.attempts.unwrap_or(0),
                    "parked" => entry.parked = Some((head.reason.unwrap_or_default(), at)),
                    "retried" => (entry.parked, entry.attempts) = (None, 0),
                    "paused" => entry.paused = Some(at),
                    "resumed" => entry.paused = None,
                    _ => return Err(format!("unknown record kind `{kind}`")),
                }
            }
            (kind, ..) => return Err(format!("unknown or incomplete record `{kind}`")),
        }
        Ok(())
    }

    /// Accepts the end of a waiting event from a damaged record that names the event twice, because
    /// running its turn again would be worse.
    pub(super) fn take_broken_end(&mut self, span: Span, line: &[u8]) -> bool {
        let Ok(head) = serde_json::from_slice::<QueueRecordHead<'_>>(line) else {
            return false;
        };
        let (Some(event_id), Some(entry)) = (head.event_id, self.pending.get(&head.seq)) else {
            return false;
        };
        let is_end =
            matches!(head.kind, "done" | "dropped" | "merged") && entry.event.id == event_id;
        if is_end {
            self.end(head.seq, event_id, span);
        }
        is_end
    }
}
