//! Joins of waiting events: the last part gets the texts of the others, which are finished.
//!
//! One record does both, so a crash leaves all parts waiting or none.

use goondan_durable::FileError;
use goondan_durable::checksum::{Seal, seal_of};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::event_join::EventJoin;
use goondan_protocol::ids::EventId;
use goondan_protocol::time::Timestamp;

use super::super::turn::TurnEvent;
use super::{EventDedupEntry, Inbox, QueueRecord, UnfinishedEvent, wrong};
use crate::error::StoreError;

/// Outcome of a part that is in another event: the reply belongs to that event.
pub(super) const MERGED: TurnOutcome = TurnOutcome::Completed {
    reply: String::new(),
};

/// Returns the record of a finished part for a rewritten file, if `line` finished a part.
pub(super) fn merged_of(line: &[u8], seq: u64, event_id: &EventId) -> Option<QueueRecord> {
    if seal_of(line) == Seal::Broken {
        return None;
    }
    let into = match serde_json::from_slice(line).ok()? {
        QueueRecord::Joined { event, .. } => event.id,
        merged @ QueueRecord::Merged { .. } => return Some(merged),
        _ => return None,
    };
    let event_id = event_id.clone();
    Some(QueueRecord::Merged {
        seq,
        event_id,
        into,
    })
}

impl Inbox {
    /// True if the event waits for the other parts of a join.
    pub(in super::super) fn is_part(&self, event_id: &EventId) -> bool {
        let found = self.pending_of(event_id);
        found.is_some_and(|(_, entry)| entry.event.waits_as().is_some())
    }

    /// Replaces the last part of a join by `event`, and finishes the other parts. Idempotent.
    /// Durable only after [`Self::sync`].
    pub(in super::super) fn join(
        &mut self,
        event: AgentEvent,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(EventJoin::Whole { parts, .. }) = &event.join else {
            return Err(wrong(&event.id));
        };
        let (seq, last) = self.waiting_of(&event.id)?;
        if last.event == event {
            return Ok(());
        }
        for id in parts.iter().chain([&event.id]) {
            let (_, entry) = self.waiting_of(id)?;
            if entry.event.waits_as().is_none() {
                return Err(wrong(id));
            }
        }
        let event = Box::new(event);
        let record = QueueRecord::Joined { seq, event, at };
        let span = self.log.append(&record)?;
        if let QueueRecord::Joined { event, .. } = record {
            let joined = self.table.join(seq, *event, span);
            joined.map_err(|problem| FileError::Unwritable { problem })?;
        }
        Ok(())
    }

    fn waiting_of(&self, event_id: &EventId) -> Result<(u64, &UnfinishedEvent), StoreError> {
        let found = self.pending_of(event_id);
        let found = found.filter(|(_, entry)| entry.parked.is_none());
        found.ok_or_else(|| wrong(event_id))
    }

    /// Returns the finished parts whose texts are in the input of a waiting event.
    pub(in super::super) fn parts_of(&self, event_id: &EventId) -> Vec<TurnEvent> {
        let found = self.pending_of(event_id);
        let join = found.and_then(|(_, entry)| entry.event.join.as_ref());
        let Some(EventJoin::Whole { parts, .. }) = join else {
            return Vec::new();
        };
        let known = parts.iter().filter_map(|id| {
            let Some(EventDedupEntry::Over { seq, .. }) = self.table.known.get(id) else {
                return None;
            };
            Some(TurnEvent {
                event_id: id.clone(),
                inbox_seq: *seq,
            })
        });
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use goondan_durable::disk::{Crash, Disk, SimulatedDisk};
    use goondan_protocol::event_join::{JoinPart, JoinTimeout};
    use goondan_protocol::message::{Message, MessageEvent};
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::instance::tests::{agent, at, dir, event, fresh, key, turn};
    use crate::instance::{EventState, InstanceStore, sweep};

    fn id(text: &str) -> EventId {
        text.parse().unwrap()
    }

    fn part(name: &str) -> AgentEvent {
        let part = JoinPart {
            name: "release".to_owned(),
            part: name.to_owned(),
            key: None,
            all: vec!["a".to_owned(), "b".to_owned()],
            until: at(1_000),
            on_timeout: JoinTimeout::Deliver,
        };
        AgentEvent {
            join: Some(EventJoin::Part(Box::new(part))),
            ..event(name)
        }
    }

    /// The part `b` with the text of `a`.
    fn whole() -> AgentEvent {
        AgentEvent {
            input: Some("a and b".to_owned()),
            join: Some(EventJoin::Whole {
                name: "release".to_owned(),
                parts: vec![id("a")],
            }),
            ..part("b")
        }
    }

    /// An instance with both parts, and another event between them.
    fn with_parts() -> SimulatedDisk {
        let disk = fresh();
        let files: Arc<dyn Disk> = Arc::new(disk.clone());
        let root = std::path::Path::new("/i");
        let mut store =
            InstanceStore::create(files, root, &key(), &agent(), at(0), ".new").unwrap();
        for event in [part("a"), event("other"), part("b")] {
            store.accept(event).unwrap();
        }
        store.sync().unwrap();
        disk
    }

    fn open(disk: &SimulatedDisk) -> InstanceStore {
        InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap()
    }

    fn join(store: &mut InstanceStore) -> Result<(), StoreError> {
        store.join_events(whole(), at(5))?;
        store.sync()
    }

    fn waiting(store: &InstanceStore) -> Vec<String> {
        let waiting = store.state().waiting.into_iter();
        waiting.map(|event| event.id.to_string()).collect()
    }

    fn answer(store: &mut InstanceStore) {
        store.begin_turn(turn("t1"), &id("b"), at(6)).unwrap();
        let message = Message::user("m1".parse().unwrap(), at(6), "a and b");
        let message = to_raw_value(&MessageEvent::Append { message }).unwrap();
        store.append_event(&turn("t1"), 1, &message).unwrap();
        let outcome = TurnOutcome::Completed {
            reply: "both".to_owned(),
        };
        store.complete_turn(&turn("t1"), 1, outcome, at(7)).unwrap();
        store.sync().unwrap();
        store.finish_turn().unwrap();
    }

    #[test]
    fn msg_13_a_join_stopped_at_any_call_is_made_or_not() {
        let mut was_made = [false; 2];
        for crash in [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::Subset(7)] {
            for call in 1.. {
                let disk = with_parts();
                let mut store = open(&disk);
                disk.crash_at(disk.calls() + call);
                let done = join(&mut store).is_ok();
                drop(store);
                let disk = disk.after_crash(crash);
                sweep(&disk, std::path::Path::new("/i")).unwrap();
                let mut store = open(&disk);
                let is_made = waiting(&store) == ["other", "b"];
                assert!(is_made || !done, "it was reported: {crash:?} at {call}");
                was_made[usize::from(is_made)] = true;
                if !is_made {
                    assert_eq!(waiting(&store), ["a", "other", "b"]);
                    let early = store.begin_turn(turn("t0"), &id("b"), at(4));
                    assert!(matches!(early, Err(StoreError::WrongEvent { .. })));
                }
                join(&mut store).unwrap();
                join(&mut store).unwrap();
                assert_eq!(waiting(&store), ["other", "b"]);
                assert_eq!(store.state().waiting[1], whole());
                let merged = store.accept(part("a")).unwrap();
                assert_eq!(merged, EventState::Done(MERGED));
                assert_eq!(store.accept(part("b")).unwrap(), EventState::Waiting);
                if done {
                    break;
                }
            }
        }
        assert_eq!(was_made, [true; 2]);
    }

    #[test]
    fn msg_13_a_join_survives_the_compaction_of_its_inbox() {
        let disk = with_parts();
        let mut store = open(&disk);
        join(&mut store).unwrap();
        for _ in 0..2 {
            store.rewrite_inbox().unwrap();
            assert_eq!(waiting(&store), ["other", "b"]);
            assert_eq!(store.state().waiting[1], whole());
            let merged = store.event_state(&id("a")).unwrap();
            assert_eq!(merged, EventState::Done(MERGED));
            // Its agent can read the part.
            assert_eq!(store.events(Some(&id("a"))).unwrap(), [part("a")]);
        }
        answer(&mut store);
        store.rewrite_inbox().unwrap();
        drop(store);
        let mut store = open(&disk);
        assert_eq!(waiting(&store), ["other"]);
        for known in ["a", "b"] {
            let state = store.event_state(&id(known)).unwrap();
            assert!(matches!(state, EventState::Done(_)), "{state:?}");
        }
        assert!(store.state().findings.is_empty(), "{:?}", store.state());
    }

    #[test]
    fn msg_13_answered_parts_never_wait_again_in_a_cut_inbox() {
        let whole_disk = with_parts();
        let mut store = open(&whole_disk);
        join(&mut store).unwrap();
        answer(&mut store);
        let path = store.inbox.path().to_owned();
        drop(store);
        let total = whole_disk.open(&path).unwrap().len().unwrap();
        for len in 0..total {
            let disk = whole_disk.after_crash(Crash::KeepUnsynced);
            let mut file = disk.open(&path).unwrap();
            file.set_len(len).unwrap();
            file.sync().unwrap();
            let store = open(&disk);
            let waits = waiting(&store);
            assert!(waits.is_empty() || waits == ["other"], "{len}: {waits:?}");
        }
    }

    #[test]
    fn a_join_with_a_dropped_or_parked_part_changes_nothing() {
        for is_dropped in [true, false] {
            let disk = with_parts();
            let mut store = open(&disk);
            store.park(&id("a"), "for a test", at(3)).unwrap();
            if is_dropped {
                store.drop_parked(&id("a"), at(3)).unwrap();
            }
            let wrong = join(&mut store);
            assert!(
                matches!(wrong, Err(StoreError::WrongEvent { event_id }) if event_id == id("a"))
            );
            assert_eq!(store.state().waiting[1], part("b"));
        }
    }
}
