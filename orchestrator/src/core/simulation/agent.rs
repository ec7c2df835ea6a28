//! A simulated agent process: it keeps to the protocol and checks that the core does too.

use goondan_protocol::call::{
    COMPLETE, CallId, CallOutcome, CallPlace, CallRecord, CallResult, CallTarget, OutgoingCall,
    Recorded,
};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, StepId, TurnId};
use goondan_protocol::ipc::{
    ConversationLoad, Pong, ShutdownAck, ToChild, ToOrchestrator, TurnAppend, TurnComplete,
    TurnStart,
};
use goondan_protocol::message::{Content, Message, MessageEvent};
use goondan_protocol::time::Timestamp;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::config;

/// What a simulated process does next.
#[derive(Debug)]
pub(super) enum Act {
    Say(ToOrchestrator),
    /// Say it after so many milliseconds.
    SayLater(u64, ToOrchestrator),
    Exit,
}

/// How long it waits for what is done outside.
const DEADLINE_MS: u64 = 40_000;

/// Events it sends before it waits for the first acknowledgement.
const IN_FLIGHT_MAX: u64 = 2;

/// The work an event takes, as a function of its id alone: how many messages its turn makes, and
/// whether the turn ends by taking out the first (which makes its fold a rewrite).
fn work_of(event_id: &EventId) -> (u64, bool) {
    let sum: u64 = event_id.as_str().bytes().map(u64::from).sum();
    (2 + sum % 3, sum.is_multiple_of(5))
}

/// Whether a record of an event's turn is a model's reply.
fn is_reply(event_id: &EventId, seq: u64) -> bool {
    let sum: u64 = event_id.as_str().bytes().map(u64::from).sum();
    seq == 2 && sum.is_multiple_of(2)
}

/// Whether an event's turn pokes a connection before it ends.
fn is_poking(event_id: &EventId) -> bool {
    let sum: u64 = event_id.as_str().bytes().map(u64::from).sum();
    sum.is_multiple_of(3)
}

fn message_id(event_id: &EventId, n: u64) -> String {
    format!("{event_id}:{n}")
}

/// The messages that a conversation gains by an event's turn.
pub(super) fn messages_of(event_id: &EventId) -> Vec<String> {
    let (count, takes_out_first) = work_of(event_id);
    let from = u64::from(takes_out_first);
    (from..count).map(|n| message_id(event_id, n)).collect()
}

/// What the turn of an event answers.
pub(super) fn reply_to(event_id: &EventId) -> TurnOutcome {
    let reply = format!("answer to {event_id}");
    TurnOutcome::Completed { reply }
}

#[derive(Debug)]
struct Turn {
    turn_id: TurnId,
    event_id: EventId,
    sent: u64,
    acknowledged: u64,
    is_completed: bool,
    has_poked: bool,
    /// What it waits for from outside.
    call: Option<CallId>,
}

impl Turn {
    /// Its journal's records: its messages, and perhaps one that takes the first out again.
    fn total(&self) -> u64 {
        let (count, takes_out_first) = work_of(&self.event_id);
        count + u64::from(takes_out_first)
    }

    fn step_id(&self) -> StepId {
        StepId::of_turn(&self.turn_id, 1)
    }

    fn place(&self) -> Option<CallPlace> {
        Some(CallPlace {
            turn_id: self.turn_id.clone(),
            step_id: Some(self.step_id()),
            tool_call_id: None,
        })
    }

    /// Asks a model for the next record.
    fn question(&self, call_id: CallId) -> Box<OutgoingCall> {
        let seq = self.sent + 1;
        let model = if self.event_id.as_str().len().is_multiple_of(2) {
            config::MODEL
        } else {
            config::OTHER_MODEL
        };
        Box::new(OutgoingCall {
            call_id,
            target: CallTarget::Model {
                name: model.parse().unwrap(),
            },
            method: COMPLETE.to_owned(),
            params: to_raw_value(&self.event_id).unwrap(),
            deadline_ms: DEADLINE_MS,
            pieces: seq.is_multiple_of(2),
            idempotent: true,
            place: self.place(),
            record: Some(CallRecord {
                seq,
                message_id: message_id(&self.event_id, seq - 1).parse().unwrap(),
            }),
        })
    }

    /// Does something outside that must not be done twice.
    fn poke(&self, call_id: CallId) -> Box<OutgoingCall> {
        Box::new(OutgoingCall {
            call_id,
            target: CallTarget::Connection {
                name: config::CONNECTION.parse().unwrap(),
            },
            method: "poke".to_owned(),
            params: to_raw_value(&self.event_id).unwrap(),
            deadline_ms: DEADLINE_MS,
            pieces: false,
            idempotent: false,
            place: self.place(),
            record: None,
        })
    }

    fn record(&self, seq: u64) -> Box<RawValue> {
        let (count, _) = work_of(&self.event_id);
        let event = if seq <= count {
            let id = message_id(&self.event_id, seq - 1).parse().unwrap();
            let step = StepId::of_turn(&self.turn_id, 1);
            let at = Timestamp::from_unix_millis(0);
            let message = Message::assistant(id, at, step, Content::text("x"));
            MessageEvent::Append { message }
        } else {
            let target_id = message_id(&self.event_id, 0).parse().unwrap();
            MessageEvent::Remove { target_id }
        };
        to_raw_value(&event).unwrap()
    }
}

#[derive(Deserialize)]
struct Identified {
    id: String,
}

/// A simulated agent process.
#[derive(Debug, Default)]
pub(super) struct Agent {
    confirmed: Vec<String>,
    /// The open turn it found.
    recorded: Vec<MessageEvent>,
    is_loaded: bool,
    is_draining: bool,
    turn: Option<Turn>,
    next_call: u64,
}

impl Agent {
    pub(super) fn on_message(&mut self, message: ToChild) -> Vec<Act> {
        match message {
            ToChild::Welcome(_) => vec![load(0)],
            ToChild::ConversationPage(page) => {
                let ids = page.messages.iter().map(|raw| {
                    let message: Identified = serde_json::from_slice(raw).unwrap();
                    message.id
                });
                self.confirmed.extend(ids);
                let events = page.events.iter();
                let events = events.map(|raw| serde_json::from_str(raw.get()).unwrap());
                self.recorded.extend(events);
                match page.next {
                    Some(offset) => vec![load(offset)],
                    None => {
                        self.is_loaded = true;
                        Vec::new()
                    }
                }
            }
            ToChild::Event(start) => self.begin(*start),
            ToChild::TurnAppended(appended) => {
                let turn = self.turn.as_mut().expect("an acknowledgement needs a turn");
                assert_eq!(appended.turn_id, turn.turn_id);
                assert!(appended.seq <= turn.sent, "acknowledged what was not sent");
                assert!(appended.seq > turn.acknowledged, "acknowledged twice");
                turn.acknowledged = appended.seq;
                self.go_on()
            }
            ToChild::TurnCommitted(committed) => {
                let turn = self.turn.take().expect("a commit needs a turn");
                assert_eq!(committed.turn_id, turn.turn_id);
                assert!(turn.is_completed, "committed before it was complete");
                self.confirmed.extend(messages_of(&turn.event_id));
                self.end_if_draining()
            }
            ToChild::Ping(ping) => {
                let nonce = ping.nonce;
                let mut acts = vec![Act::Say(ToOrchestrator::Pong(Pong { nonce }))];
                // What failed is asked for again in its own time.
                acts.extend(self.go_on());
                acts
            }
            ToChild::CallResult(result) => self.on_result(result),
            ToChild::CallPiece(_) => Vec::new(),
            ToChild::Call(_) | ToChild::CallCancel(_) => panic!("an agent makes no calls"),
            ToChild::Shutdown(_) => {
                self.is_draining = true;
                self.end_if_draining()
            }
            ToChild::EventAccepted(_)
            | ToChild::EventRefused(_)
            | ToChild::State(_)
            | ToChild::StateKept(_)
            | ToChild::StateRefused(_) => {
                panic!("an agent is told of no ingress events")
            }
        }
    }

    fn begin(&mut self, start: TurnStart) -> Vec<Act> {
        assert!(self.is_loaded, "a turn before the whole conversation");
        assert!(self.turn.is_none(), "two turns at once");
        if self.is_draining {
            // The turn crossed the request to stop; it stays in the inbox.
            return Vec::new();
        }
        let event_id = start.event.id;
        let prefix = format!("{event_id}:");
        assert!(
            self.confirmed.iter().all(|id| !id.starts_with(&prefix)),
            "event {event_id} is answered already"
        );
        let recorded = std::mem::take(&mut self.recorded);
        let sent = u64::try_from(recorded.len()).unwrap();
        assert!(
            sent == 0 || start.attempt > 1,
            "records before the first attempt"
        );
        let turn = Turn {
            turn_id: start.turn_id,
            event_id,
            sent,
            acknowledged: sent,
            is_completed: false,
            has_poked: false,
            call: None,
        };
        for (seq, event) in (1..).zip(&recorded) {
            if is_reply(&turn.event_id, seq) {
                let MessageEvent::Append { message } = event else {
                    panic!("{event:?} instead of a reply");
                };
                assert_eq!(message.id.as_str(), message_id(&turn.event_id, seq - 1));
                assert_eq!(message.step_id(), Some(&turn.step_id()));
                continue;
            }
            // Its messages name their turn, so a record of another turn would show (`MSG-9`).
            let sent: MessageEvent = serde_json::from_str(turn.record(seq).get()).unwrap();
            assert_eq!(*event, sent, "not what record {seq} of the turn was");
        }
        self.turn = Some(turn);
        self.go_on()
    }

    fn on_result(&mut self, result: CallResult) -> Vec<Act> {
        let turn = self.turn.as_mut().expect("a result needs a turn");
        assert_eq!(turn.call.take(), Some(result.call_id), "answered twice");
        let is_asking = turn.sent < turn.total();
        match result.outcome {
            CallOutcome::Ok(raw) if is_asking => {
                let recorded: Recorded = serde_json::from_str(raw.get()).unwrap();
                let message: Message = serde_json::from_str(recorded.message.get()).unwrap();
                turn.sent += 1;
                turn.acknowledged += 1;
                assert_eq!(
                    message.id.as_str(),
                    message_id(&turn.event_id, turn.sent - 1)
                );
                self.go_on()
            }
            // Asked again with the next ping.
            CallOutcome::Error(_) if is_asking => Vec::new(),
            CallOutcome::Ok(_) | CallOutcome::Error(_) => {
                turn.has_poked = true;
                self.go_on()
            }
        }
    }

    fn go_on(&mut self) -> Vec<Act> {
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        let mut acts = Vec::new();
        while turn.sent < turn.total() && turn.sent - turn.acknowledged < IN_FLIGHT_MAX {
            if is_reply(&turn.event_id, turn.sent + 1) {
                if turn.acknowledged == turn.sent && turn.call.is_none() {
                    self.next_call += 1;
                    let call_id = CallId(self.next_call);
                    turn.call = Some(call_id);
                    acts.push(Act::Say(ToOrchestrator::Call(turn.question(call_id))));
                }
                return acts;
            }
            turn.sent += 1;
            acts.push(Act::Say(ToOrchestrator::TurnAppend(TurnAppend {
                turn_id: turn.turn_id.clone(),
                seq: turn.sent,
                event: turn.record(turn.sent),
            })));
        }
        if turn.acknowledged == turn.total() && is_poking(&turn.event_id) && !turn.has_poked {
            if turn.call.is_none() {
                self.next_call += 1;
                let call_id = CallId(self.next_call);
                turn.call = Some(call_id);
                acts.push(Act::Say(ToOrchestrator::Call(turn.poke(call_id))));
            }
            return acts;
        }
        if turn.acknowledged == turn.total() && !turn.is_completed {
            turn.is_completed = true;
            acts.push(Act::Say(ToOrchestrator::TurnComplete(TurnComplete {
                turn_id: turn.turn_id.clone(),
                last_seq: turn.sent,
                outcome: reply_to(&turn.event_id),
            })));
        }
        acts
    }

    fn end_if_draining(&self) -> Vec<Act> {
        if self.is_draining && self.turn.is_none() {
            let acknowledged = ToOrchestrator::ShutdownAck(ShutdownAck {});
            return vec![Act::Say(acknowledged), Act::Exit];
        }
        Vec::new()
    }
}

fn load(offset: u64) -> Act {
    Act::Say(ToOrchestrator::ConversationLoad(ConversationLoad {
        offset,
    }))
}
