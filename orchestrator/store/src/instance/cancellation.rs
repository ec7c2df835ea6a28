//! Cancellation of an event by a user (`STEER-1`, `STEER-2`).
//!
//! If its turn is open, the turn is committed with its current records: they stay in the
//! conversation, and every tool call without a result gets a cancellation result, so that each call
//! has exactly one. A waiting event ends without a turn.

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, MessageId, StepId, TurnId};
use goondan_protocol::message::{Message, MessageEvent, ToolCall, ToolResult};
use goondan_protocol::time::Timestamp;
use serde_json::value::to_raw_value;

use super::records::RawEvent;
use super::{InstanceStore, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelScope {
    /// The open turn, which is committed.
    Turn(TurnId),
    Event,
}

/// A tool call of the open turn without a result.
struct UnansweredCall {
    step_id: StepId,
    index: usize,
    call: ToolCall,
}

impl InstanceStore {
    /// Stages the end of an event. If its turn is open, the turn is committed after [`Self::sync`],
    /// and the caller must call [`Self::finish_turn`].
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongEvent`] if the event is neither waiting nor in a turn;
    /// [`StoreError::File`].
    pub fn cancel(
        &mut self,
        event_id: &EventId,
        outcome: TurnOutcome,
        reason: &str,
        at: Timestamp,
    ) -> Result<CancelScope, StoreError> {
        let wrong = || StoreError::WrongEvent {
            event_id: event_id.clone(),
        };
        let commit = self.turn.commit.as_ref();
        if commit.is_some_and(|commit| commit.ends(event_id)) {
            return Err(wrong());
        }
        let is_waiting = self.inbox.seq_of_waiting(event_id).is_some();
        if !is_waiting {
            return Err(wrong());
        }
        let open = self.turn.open.as_ref().filter(|_| commit.is_none());
        let open = open.filter(|open| {
            let event = open.event.as_ref();
            event.is_some_and(|event| event.event_id == *event_id)
        });
        let Some((turn_id, mut last_seq)) = open.map(|open| (open.turn_id.clone(), open.last_seq))
        else {
            self.inbox.cancel(event_id, outcome, at)?;
            self.touch(at);
            return Ok(CancelScope::Event);
        };
        for unanswered in self.unanswered_calls()? {
            last_seq += 1;
            let message = unanswered.answered(reason, at)?;
            let event = to_raw_value(&MessageEvent::Append { message });
            let event = event.map_err(|error| StoreError::InvalidEvent {
                problem: error.to_string(),
            })?;
            self.append_event(&turn_id, last_seq, &event)?;
        }
        self.complete_turn(&turn_id, last_seq, outcome, at)?;
        Ok(CancelScope::Turn(turn_id))
    }

    /// Returns the tool calls of the open turn without a result, in order.
    fn unanswered_calls(&mut self) -> Result<Vec<UnansweredCall>, StoreError> {
        let mut open: Vec<UnansweredCall> = Vec::new();
        for event in self.turn.events()? {
            let RawEvent::Append { message } = event else {
                continue;
            };
            // Messages were validated on arrival, so an unreadable one has no calls.
            let Ok(message) = serde_json::from_str::<Message>(message.get()) else {
                continue;
            };
            if let Some(step_id) = message.step_id() {
                let calls = message.data.content.tool_calls().into_iter();
                open.extend(calls.enumerate().map(|(index, call)| UnansweredCall {
                    step_id: step_id.clone(),
                    index,
                    call,
                }));
            }
            let results = message.data.content.tool_results();
            open.retain(|waiting| {
                let is_answered = |result: &ToolResult| result.tool_call_id == waiting.call.id;
                !results.iter().any(is_answered)
            });
        }
        Ok(open)
    }
}

impl UnansweredCall {
    /// Returns the cancellation result, under the id of the expected result.
    fn answered(self, reason: &str, at: Timestamp) -> Result<Message, StoreError> {
        let id = MessageId::new(format!("{}:r{}", self.step_id, self.index));
        let id = id.map_err(|error| StoreError::InvalidEvent {
            problem: error.to_string(),
        })?;
        let result = ToolResult {
            tool_call_id: self.call.id,
            tool_name: self.call.tool_name,
            text: format!("{reason}; the tool may have had effects before that"),
            is_error: true,
            images: Vec::new(),
        };
        Ok(Message::tool(id, at, &result))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use goondan_durable::disk::{Crash, SimulatedDisk};
    use goondan_protocol::message::MessageContent;
    use serde_json::json;

    use super::super::tests::{agent, at, dir, event, fresh, key, turn};
    use super::super::{EventState, sweep};
    use super::*;

    const REASON: &str = "canceled by a person";

    fn outcome() -> TurnOutcome {
        TurnOutcome::Failed {
            code: "E_CANCELLED".to_owned(),
            message: REASON.to_owned(),
        }
    }

    fn open(disk: &SimulatedDisk) -> InstanceStore {
        InstanceStore::open(Arc::new(disk.clone()), &dir()).unwrap()
    }

    /// A turn with two tool calls, the first finished, and a waiting event after it.
    fn in_the_middle() -> SimulatedDisk {
        let disk = fresh();
        let (files, root) = (Arc::new(disk.clone()), Path::new("/i"));
        let made = InstanceStore::create(files, root, &key(), &agent(), at(0), ".new");
        let mut store = made.unwrap();
        for id in ["e1", "e2"] {
            store.accept(event(id)).unwrap();
        }
        let first = "e1".parse().unwrap();
        store.begin_turn(turn("t1"), &first, at(1)).unwrap();
        let step_id = StepId::of_turn(&turn("t1"), 1);
        let call = |id: &str| ToolCall {
            id: id.parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({}),
        };
        let result = ToolResult {
            tool_call_id: "c0".parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            text: "done".to_owned(),
            is_error: false,
            images: Vec::new(),
        };
        let calls = MessageContent::assistant("", &[call("c0"), call("c1")]);
        let messages = [
            Message::user("m1".parse().unwrap(), at(1), "go"),
            Message::assistant("m2".parse().unwrap(), at(1), step_id.clone(), calls),
            Message::tool(format!("{step_id}:r0").parse().unwrap(), at(1), &result),
        ];
        for (seq, message) in (1..).zip(messages) {
            let raw = to_raw_value(&MessageEvent::Append { message }).unwrap();
            store.append_event(&turn("t1"), seq, &raw).unwrap();
        }
        store.sync().unwrap();
        disk
    }

    fn cancel(store: &mut InstanceStore, id: &str) -> Result<CancelScope, StoreError> {
        let cancelled = store.cancel(&id.parse().unwrap(), outcome(), REASON, at(2))?;
        store.sync()?;
        store.finish_turn()?;
        Ok(cancelled)
    }

    /// Returns the tool results of the conversation, by call.
    fn results(store: &mut InstanceStore) -> Vec<(String, bool)> {
        let page = store.page(0).unwrap();
        let messages = page.messages.iter();
        let messages = messages.map(|raw| serde_json::from_slice::<Message>(raw).unwrap());
        let results = messages.flat_map(|message| message.data.content.tool_results());
        let told = results.map(|result| (result.tool_call_id.to_string(), result.is_error));
        told.collect()
    }

    #[test]
    fn steer_1_every_call_of_a_canceled_turn_has_one_result() {
        let disk = in_the_middle();
        let mut store = open(&disk);
        let cancelled = cancel(&mut store, "e1").unwrap();
        assert_eq!(cancelled, CancelScope::Turn(turn("t1")));
        let expected = [("c0".to_owned(), false), ("c1".to_owned(), true)];
        assert_eq!(results(&mut store), expected);
        let over = store.event_state(&"e1".parse().unwrap()).unwrap();
        assert_eq!(over, EventState::Done(outcome()));
        assert!(matches!(
            cancel(&mut store, "e1"),
            Err(StoreError::WrongEvent { .. })
        ));
        let next = store.begin_turn(turn("t2"), &"e2".parse().unwrap(), at(3));
        assert_eq!(next.unwrap().turn_id, turn("t2"));
    }

    #[test]
    fn steer_2_an_event_that_waits_is_over_without_a_turn() {
        let disk = in_the_middle();
        let mut store = open(&disk);
        assert_eq!(cancel(&mut store, "e2").unwrap(), CancelScope::Event);
        assert_eq!(store.waiting_count(), 1);
        let open = store.state().open_turn.unwrap();
        assert_eq!((open.turn_id, open.last_seq), (turn("t1"), 3));
        assert!(store.parked().is_empty());
        drop(store);
        let mut store = open_again(&disk);
        assert_eq!(store.waiting_count(), 1);
        let over = store.event_state(&"e2".parse().unwrap()).unwrap();
        assert_eq!(over, EventState::Done(outcome()));
    }

    fn open_again(disk: &SimulatedDisk) -> InstanceStore {
        open(&disk.after_crash(Crash::LoseUnsynced))
    }

    #[test]
    fn steer_1_crash_at_any_call_cancels_all_or_nothing_repeatably() {
        let mut has_both = [false; 2];
        for crash in [Crash::LoseUnsynced, Crash::KeepUnsynced, Crash::Subset(7)] {
            for call in 1.. {
                let disk = in_the_middle();
                let mut store = open(&disk);
                disk.crash_at(disk.calls() + call);
                let done = cancel(&mut store, "e1").is_ok();
                drop(store);
                let disk = disk.after_crash(crash);
                sweep(&disk, Path::new("/i")).unwrap();
                let mut store = open(&disk);
                let state = store.event_state(&"e1".parse().unwrap()).unwrap();
                let is_over = state == EventState::Done(outcome());
                assert!(is_over || !done, "it was acknowledged");
                has_both[usize::from(is_over)] = true;
                if !is_over {
                    cancel(&mut store, "e1").unwrap();
                }
                let expected = [("c0".to_owned(), false), ("c1".to_owned(), true)];
                assert_eq!(results(&mut store), expected, "{crash:?} at {call}");
                if done {
                    break;
                }
            }
        }
        assert_eq!(has_both, [true; 2]);
    }
}
