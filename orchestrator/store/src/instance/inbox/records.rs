//! The inbox's records, and what they come to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use goondan_durable::sealed::Span;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{ConnectionName, EventId, InstanceKey, TurnId};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Awaited, ParkedEvent};
use crate::limits::INBOX_REMEMBERED_EVENTS;

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Record {
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
    },
    Awaiting {
        /// The last event that was accepted before.
        seq: u64,
        event_id: EventId,
        target: InstanceKey,
        reply: Box<AgentEvent>,
        at: Timestamp,
    },
    Forgone {
        /// The last event that was accepted before.
        seq: u64,
        event_id: EventId,
        at: Timestamp,
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
    attempts: Option<u32>,
    reason: Option<String>,
    at: Option<Timestamp>,
    target: Option<InstanceKey>,
    #[serde(borrow)]
    reply: Option<&'a RawValue>,
}

/// An event that is not over.
#[derive(Debug)]
pub(super) struct Pending {
    pub event: AgentEvent,
    pub attempts: u32,
    pub parked: Option<(String, Timestamp)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    Pending {
        seq: u64,
    },
    /// Where the record that ended it lies.
    Over {
        span: Span,
        seq: u64,
    },
}

/// What the records come to.
#[derive(Debug, Default)]
pub(in super::super) struct Table {
    pub last_seq: u64,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) known: HashMap<EventId, Known>,
    /// Questions whose answers are to come, by the ids of the events that will bring them.
    pub awaiting: BTreeMap<EventId, Awaited>,
    /// The connections by which events came, those of agents left out.
    pub sources: BTreeSet<ConnectionName>,
}

impl Awaited {
    /// The record that comes to this.
    pub(super) fn to_record(&self, seq: u64) -> Record {
        Record::Awaiting {
            seq,
            event_id: self.question.clone(),
            target: self.target.clone(),
            reply: Box::new(self.reply.clone()),
            at: self.reply.created_at,
        }
    }
}

impl Pending {
    pub(super) fn to_parked(&self) -> Option<ParkedEvent> {
        let (reason, at) = self.parked.clone()?;
        Some(ParkedEvent {
            event: self.event.clone(),
            attempts: self.attempts,
            reason,
            at,
        })
    }

    /// The records that come to this.
    pub(super) fn to_records(&self, seq: u64) -> Vec<Record> {
        let event_id = self.event.id.clone();
        let mut records = vec![Record::Accepted {
            seq,
            event: Box::new(self.event.clone()),
        }];
        if self.attempts > 0 {
            records.push(Record::Attempted {
                seq,
                event_id: event_id.clone(),
                attempts: self.attempts,
                at: self.event.created_at,
            });
        }
        if let Some((reason, at)) = self.parked.clone() {
            records.push(Record::Parked {
                seq,
                event_id,
                reason,
                at,
            });
        }
        records
    }
}

impl Table {
    /// The sequence number of an event that is not over.
    pub(in super::super) fn seq_of_pending(&self, event_id: &EventId) -> Option<u64> {
        match self.known.get(event_id) {
            Some(Known::Pending { seq }) => Some(*seq),
            Some(Known::Over { .. }) | None => None,
        }
    }

    /// Whether an event is over.
    pub(in super::super) fn is_over(&self, event_id: &EventId) -> bool {
        matches!(self.known.get(event_id), Some(Known::Over { .. }))
    }

    /// Whether an event is parked.
    pub(in super::super) fn is_parked(&self, event_id: &EventId) -> bool {
        let entry = self
            .seq_of_pending(event_id)
            .map(|seq| self.pending.get(&seq));
        entry.flatten().is_some_and(|entry| entry.parked.is_some())
    }

    /// Whether anything is known of an event.
    pub(in super::super) fn knows(&self, event_id: &EventId) -> bool {
        self.known.contains_key(event_id)
    }

    /// Whether a finished event is not known that was not dropped from the file for its age either.
    pub(in super::super) fn should_know(&self, event_id: &EventId, seq: u64) -> bool {
        if self.known.contains_key(event_id) {
            return false;
        }
        let over = self.known.values().filter_map(|known| match known {
            Known::Over { seq, .. } => Some(*seq),
            Known::Pending { .. } => None,
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
        self.known.insert(event_id, Known::Pending { seq });
        let (attempts, parked) = (0, None);
        self.pending.insert(
            seq,
            Pending {
                event,
                attempts,
                parked,
            },
        );
    }

    fn end(&mut self, seq: u64, event_id: EventId, span: Span) {
        self.last_seq = self.last_seq.max(seq);
        self.pending.remove(&seq);
        self.known.insert(event_id, Known::Over { span, seq });
    }

    /// Takes one record into account, or says why it cannot be.
    pub(super) fn take(&mut self, span: Span, line: &[u8]) -> Result<(), String> {
        let head: Head<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let seq = head.seq;
        match (head.kind, head.event, head.event_id) {
            ("accepted", Some(event), _) => {
                let event: AgentEvent =
                    serde_json::from_str(event.get()).map_err(|error| error.to_string())?;
                if self.known.contains_key(&event.id) {
                    return Err("an event that was accepted before".to_owned());
                }
                self.add(seq, event.id.clone(), event);
            }
            ("done" | "dropped", _, Some(event_id)) => self.end(seq, event_id, span),
            ("awaiting", _, Some(question)) => {
                let (Some(target), Some(reply)) = (head.target, head.reply) else {
                    return Err("an incomplete `awaiting`".to_owned());
                };
                let reply: AgentEvent =
                    serde_json::from_str(reply.get()).map_err(|error| error.to_string())?;
                let awaited = Awaited {
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
            (kind, _, Some(_)) => {
                let at = head.at.unwrap_or(Timestamp::from_unix_millis(0));
                let Some(entry) = self.pending.get_mut(&seq) else {
                    return Err(format!("`{kind}` of an event that does not wait"));
                };
                match kind {
                    "attempted" => entry.attempts = head.attempts.unwrap_or(0),
                    "parked" => entry.parked = Some((head.reason.unwrap_or_default(), at)),
                    "retried" => (entry.parked, entry.attempts) = (None, 0),
                    _ => return Err(format!("a record of the unknown kind `{kind}`")),
                }
            }
            (kind, ..) => return Err(format!("an unknown or incomplete record `{kind}`")),
        }
        Ok(())
    }

    /// A damaged record that still names an event which waits, twice over, and says that it is over:
    /// to run its turn again would be worse than to believe it.
    pub(super) fn take_broken_end(&mut self, span: Span, line: &[u8]) -> bool {
        let Ok(head) = serde_json::from_slice::<Head<'_>>(line) else {
            return false;
        };
        let (Some(event_id), Some(entry)) = (head.event_id, self.pending.get(&head.seq)) else {
            return false;
        };
        let is_end = matches!(head.kind, "done" | "dropped") && entry.event.id == event_id;
        if is_end {
            self.end(head.seq, event_id, span);
        }
        is_end
    }
}
