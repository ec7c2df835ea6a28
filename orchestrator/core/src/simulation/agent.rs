//! A simulated agent process: follows the protocol and checks that the core does.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion, RequestNote};
use goondan_protocol::call::{
    COMPLETE, CallId, CallOutcome, CallPlace, CallRecord, CallResult, CallTarget, OutgoingCall,
    RecordedResult,
};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{EventId, ExtensionStates, ResourceName, StepId, TurnId};
use goondan_protocol::ipc::{
    Assignment, ConversationLoad, Pong, ShutdownAck, ToAgent, ToOrchestrator, TurnAppend,
    TurnComplete, TurnStart,
};
use goondan_protocol::message::{Message, MessageContent, MessageEvent};
use goondan_protocol::question::QuestionAsk;
use goondan_protocol::time::Timestamp;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::config::{self, ENTRY_AGENT, HELPER_AGENT};
use super::decisions;

/// Next action of a simulated process.
#[derive(Debug)]
pub(super) enum Act {
    Say(ToOrchestrator),
    /// Send a message after a delay in milliseconds.
    SayLater(u64, ToOrchestrator),
    /// Send a request to another agent, with this id.
    Ask(AgentAsk, u64),
    /// Ask a user after a delay in milliseconds, on behalf of a call.
    AskPersonLater(u64, QuestionAsk),
    AskPerson(QuestionAsk),
    Exit,
}

/// Timeout of outgoing calls.
const DEADLINE_MS: u64 = 40_000;

/// Maximum number of unacknowledged events.
const IN_FLIGHT_MAX: u64 = 2;

/// The work of an event, as a function of its id alone: the number of messages its turn creates,
/// and true if the turn ends by removing the first one (which makes its fold a rewrite).
fn work_of(event_id: &EventId) -> (u64, bool) {
    let sum: u64 = event_id.as_str().bytes().map(u64::from).sum();
    (2 + sum % 3, sum.is_multiple_of(5))
}

/// True if a record of an event's turn is a model's reply.
fn is_reply(event_id: &EventId, seq: u64) -> bool {
    let sum: u64 = event_id.as_str().bytes().map(u64::from).sum();
    seq == 2 && sum.is_multiple_of(2)
}

/// A method that no connection must receive.
pub(super) const TRESPASS: &str = "trespass";

/// True if an event's turn calls a connection before it ends.
fn is_poking(event_id: &EventId) -> bool {
    sum_of(event_id).is_multiple_of(3)
}

/// True if the event's turn calls a connection that none of the agent's tools uses.
fn is_trespassing(event_id: &EventId) -> bool {
    sum_of(event_id).is_multiple_of(6)
}

fn sum_of(event_id: &EventId) -> u64 {
    event_id.as_str().bytes().map(u64::from).sum()
}

fn message_id(event_id: &EventId, n: u64) -> String {
    format!("{event_id}:{n}")
}

/// The messages that an event's turn adds to the conversation.
pub(super) fn messages_of(event_id: &EventId) -> Vec<String> {
    let (count, takes_out_first) = work_of(event_id);
    let from = u64::from(takes_out_first);
    (from..count).map(|n| message_id(event_id, n)).collect()
}

pub(super) fn reply_to(event_id: &EventId) -> TurnOutcome {
    let reply = format!("answer to {event_id}");
    TurnOutcome::Completed { reply }
}

/// The message by which a turn includes an answer.
pub(super) fn taken_in(reply: &EventId) -> String {
    format!("{reply}:in")
}

/// Maximum length of a chain of requests in this world.
const CHAIN_MAX: u32 = 4;

/// The requests of an event's turn to other agents, as a function of the event alone.
fn asks_of(turn_id: &TurnId, event: &AgentEvent) -> Vec<AgentAsk> {
    let hash = event.id.as_str().bytes().fold(7_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let depth = event.chain.as_ref().map_or(0, |chain| chain.depth);
    // The few events of a quiet world send no requests, because its tests count processes.
    let said = event.id.as_str();
    let own = said.strip_prefix(config::CONNECTION);
    let own = own.and_then(|own| own.strip_prefix(':'));
    let is_quiet = own.unwrap_or(said).len() == 2;
    let count = if depth >= CHAIN_MAX || is_quiet {
        0
    } else {
        [0, 1, 0, 2, 1][hash as usize % 5]
    };
    let ask = |call: u32| {
        let hash = hash / 5 / (call + 1);
        let agent = if hash.is_multiple_of(3) {
            ENTRY_AGENT
        } else {
            HELPER_AGENT
        };
        let (agent, instance_key) = (agent.parse().unwrap(), None);
        let input = "x".to_owned();
        let question = match hash / 3 % 8 {
            _ if hash / 24 % 8 == 5 => AgentQuestion::Restart { reason: input },
            0 => AgentQuestion::Send {
                agent,
                instance_key,
                input,
                note: RequestNote::default(),
            },
            how => AgentQuestion::Request {
                agent,
                instance_key,
                input,
                wait: how > 2,
                timeout_ms: if how == 3 { 40 } else { 500_000 },
                note: RequestNote::default(),
            },
        };
        AgentAsk {
            turn_id: turn_id.clone(),
            step: 1,
            call,
            question,
        }
    };
    (0..count).map(ask).collect()
}

#[derive(Debug)]
struct SimulatedTurn {
    pub(crate) turn_id: TurnId,
    model: ResourceName,
    event_id: EventId,
    sent: u64,
    acknowledged: u64,
    is_completed: bool,
    has_poked: bool,
    /// The outgoing call it waits for.
    call: Option<CallId>,
    /// Answers it has included, and answers it has received.
    taken: BTreeSet<EventId>,
    given: BTreeSet<EventId>,
    /// Requests not sent yet; `None` once they were sent.
    asks: Option<Vec<AgentAsk>>,
    /// Requests without an answer.
    asked: BTreeMap<u64, AgentAsk>,
    /// The approval request not sent yet.
    to_approve: Option<AgentAsk>,
}

impl SimulatedTurn {
    /// Number of journal records: its messages, and perhaps one that removes the first.
    fn total(&self) -> u64 {
        let (count, takes_out_first) = work_of(&self.event_id);
        count + u64::from(takes_out_first)
    }

    fn waits_for_person(&self) -> bool {
        let mut asked = self.asked.values();
        asked.any(|ask| matches!(ask.question, AgentQuestion::Approval { .. }))
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

    /// Requests the next record from a model.
    fn question(&self, call_id: CallId) -> Box<OutgoingCall> {
        let seq = self.sent + 1;
        Box::new(OutgoingCall {
            call_id,
            target: CallTarget::Model {
                name: self.model.clone(),
            },
            method: COMPLETE.to_owned(),
            params: to_raw_value(&self.event_id).unwrap(),
            deadline_ms: DEADLINE_MS,
            pieces: seq.is_multiple_of(2),
            idempotent: true,
            recoverable: false,
            again_since: None,
            only_if_ready: false,
            place: self.place(),
            record: Some(CallRecord {
                seq,
                message_id: message_id(&self.event_id, seq - 1).parse().unwrap(),
            }),
        })
    }

    /// Makes a call that is not idempotent.
    fn poke(&self, call_id: CallId) -> Box<OutgoingCall> {
        let (name, method) = if is_trespassing(&self.event_id) {
            (config::OTHER_CONNECTION, TRESPASS)
        } else {
            (config::CONNECTION, "poke")
        };
        Box::new(OutgoingCall {
            call_id,
            target: CallTarget::Connection {
                name: name.parse().unwrap(),
            },
            method: method.to_owned(),
            params: to_raw_value(&self.event_id).unwrap(),
            deadline_ms: DEADLINE_MS,
            pieces: false,
            idempotent: false,
            recoverable: false,
            again_since: None,
            only_if_ready: false,
            place: self.place(),
            record: None,
        })
    }

    fn appended(&self, id: &str) -> Box<RawValue> {
        let step = StepId::of_turn(&self.turn_id, 1);
        let at = Timestamp::from_unix_millis(0);
        let message = Message::assistant(id.parse().unwrap(), at, step, MessageContent::text("x"));
        to_raw_value(&MessageEvent::Append { message }).unwrap()
    }

    fn record(&self, seq: u64) -> Box<RawValue> {
        let (count, _) = work_of(&self.event_id);
        if seq <= count {
            return self.appended(&message_id(&self.event_id, seq - 1));
        }
        let target_id = message_id(&self.event_id, 0).parse().unwrap();
        to_raw_value(&MessageEvent::Remove { target_id }).unwrap()
    }
}

/// Checks that an answer is valid for its request.
fn check_answer(ask: &AgentAsk, answer: &AgentAnswer) {
    if let AgentQuestion::Approval { .. } = ask.question {
        assert!(decisions::is_decision(answer), "{ask:?} {answer:?}");
        return;
    }
    let question = ask.event_id().unwrap();
    let (is_request, waits) = match &ask.question {
        AgentQuestion::Request { wait, .. } => (true, *wait),
        _ => (false, false),
    };
    match answer {
        AgentAnswer::Answered {
            event_id, outcome, ..
        } => {
            assert!(waits && *event_id == question);
            if let TurnOutcome::Completed { .. } = outcome {
                assert_eq!(*outcome, reply_to(&question));
            }
        }
        AgentAnswer::Accepted { event_id, .. } => {
            assert!(!waits && *event_id == question, "{ask:?} {answer:?}");
        }
        AgentAnswer::Pending { event_id, .. } => {
            assert!(is_request && waits && *event_id == question);
        }
        AgentAnswer::Restarting {} => {
            assert!(
                matches!(ask.question, AgentQuestion::Restart { .. }),
                "{ask:?}"
            );
        }
        AgentAnswer::Refused { .. } => {}
        other => panic!("{other:?} does not answer {ask:?}"),
    }
}

#[derive(Deserialize)]
struct IdField {
    id: String,
}

/// A simulated agent process.
#[derive(Debug, Default)]
pub(super) struct Agent {
    model: Option<ResourceName>,
    confirmed: Vec<String>,
    /// The open turn that it loaded.
    recorded: Vec<MessageEvent>,
    is_loaded: bool,
    is_draining: bool,
    turn: Option<SimulatedTurn>,
    next_call: u64,
    next_request: u64,
}

impl Agent {
    /// The unanswered request with this id.
    pub(super) fn asked(&self, request: u64) -> Option<&AgentAsk> {
        self.turn.as_ref()?.asked.get(&request)
    }

    pub(super) fn on_message(&mut self, message: ToAgent, in_reply_to: Option<u64>) -> Vec<Act> {
        match message {
            ToAgent::Welcome(welcome) => {
                let Assignment::Agent(assignment) = welcome.assignment else {
                    panic!("expected the assignment of an agent");
                };
                self.model = Some(assignment.agent.model.name);
                vec![load(0)]
            }
            ToAgent::ConversationPage(page) => {
                let ids = page.messages.iter().map(|raw| {
                    let message: IdField = serde_json::from_slice(raw).unwrap();
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
            ToAgent::Event(start) => self.begin(*start),
            ToAgent::TurnAppended(appended) => {
                let turn = self.turn.as_mut().expect("an acknowledgement needs a turn");
                assert_eq!(appended.turn_id, turn.turn_id);
                assert!(appended.seq <= turn.sent, "acknowledged what was not sent");
                assert!(appended.seq > turn.acknowledged, "acknowledged twice");
                turn.acknowledged = appended.seq;
                self.go_on()
            }
            ToAgent::TurnCommitted(committed) => {
                let turn = self.turn.take().expect("a commit needs a turn");
                assert_eq!(committed.turn_id, turn.turn_id);
                assert!(turn.is_completed, "committed before it was complete");
                self.confirmed.extend(messages_of(&turn.event_id));
                self.confirmed.extend(turn.taken.iter().map(taken_in));
                self.end_if_draining()
            }
            ToAgent::Ping(ping) => {
                let nonce = ping.nonce;
                let mut acts = vec![Act::Say(ToOrchestrator::Pong(Pong { nonce }))];
                // Failed requests are sent again after their delay.
                acts.extend(self.go_on());
                acts
            }
            ToAgent::CallResult(result) => self.on_result(result),
            ToAgent::CallPiece(_) => Vec::new(),
            ToAgent::Shutdown(_) => {
                self.is_draining = true;
                self.end_if_draining()
            }
            ToAgent::TurnInput(input) => {
                let turn = self
                    .turn
                    .as_mut()
                    .filter(|turn| turn.turn_id == input.turn_id);
                let Some(turn) = turn.filter(|turn| !turn.is_completed) else {
                    return Vec::new();
                };
                let id = input.event.id;
                assert!(
                    !self.confirmed.contains(&taken_in(&id)),
                    "{id} was taken in before"
                );
                if !turn.taken.contains(&id) {
                    turn.given.insert(id);
                }
                self.go_on()
            }
            ToAgent::AgentAnswer(answer) => {
                let turn = self.turn.as_mut().expect("an answer needs a turn");
                let ask = in_reply_to.and_then(|request| turn.asked.remove(&request));
                check_answer(
                    &ask.expect("answered what was not asked, or twice"),
                    &answer,
                );
                self.go_on()
            }
        }
    }

    fn begin(&mut self, start: TurnStart) -> Vec<Act> {
        assert!(self.is_loaded, "a turn before the whole conversation");
        assert!(self.turn.is_none(), "two turns at once");
        if self.is_draining {
            // The turn crossed the stop request on the way; it stays in the inbox.
            return Vec::new();
        }
        let asks = asks_of(&start.turn_id, &start.event);
        let is_careful = start.event.input.as_deref() == Some(decisions::ASK_FIRST);
        let to_approve = is_careful.then(|| decisions::ask_of(&start.turn_id, &start.event.id));
        let event_id = start.event.id;
        let mut whole = messages_of(&event_id);
        whole.push(taken_in(&event_id));
        assert!(
            self.confirmed.iter().all(|id| !whole.contains(id)),
            "event {event_id} is answered already"
        );
        let recorded = std::mem::take(&mut self.recorded);
        let sent = u64::try_from(recorded.len()).unwrap();
        assert!(
            sent == 0 || start.attempt > 1,
            "records before the first attempt"
        );
        let mut turn = SimulatedTurn {
            turn_id: start.turn_id,
            model: self.model.clone().expect("a turn needs a welcome"),
            event_id,
            sent,
            acknowledged: sent,
            is_completed: false,
            has_poked: false,
            call: None,
            taken: BTreeSet::new(),
            given: BTreeSet::new(),
            asks: Some(asks),
            asked: BTreeMap::new(),
            to_approve,
        };
        for (seq, event) in (1..).zip(&recorded) {
            if seq > turn.total() {
                let MessageEvent::Append { message } = event else {
                    panic!("{event:?} takes nothing in");
                };
                let reply = message.id.as_str().strip_suffix(":in");
                turn.taken.insert(reply.unwrap().parse().unwrap());
                continue;
            }
            if is_reply(&turn.event_id, seq) {
                let MessageEvent::Append { message } = event else {
                    panic!("{event:?} instead of a reply");
                };
                assert_eq!(message.id.as_str(), message_id(&turn.event_id, seq - 1));
                assert_eq!(message.step_id(), Some(&turn.step_id()));
                continue;
            }
            // Messages contain their turn's id, which reveals records of another turn (`MSG-9`).
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
                let recorded: RecordedResult = serde_json::from_str(raw.get()).unwrap();
                let message: Message = serde_json::from_str(recorded.message.get()).unwrap();
                turn.sent += 1;
                turn.acknowledged += 1;
                assert_eq!(
                    message.id.as_str(),
                    message_id(&turn.event_id, turn.sent - 1)
                );
                self.go_on()
            }
            // Requested again with the next ping.
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
        if turn.sent < turn.total() || turn.is_completed {
            return acts;
        }
        while let Some(reply) = turn.given.pop_first() {
            turn.sent += 1;
            acts.push(Act::Say(ToOrchestrator::TurnAppend(TurnAppend {
                turn_id: turn.turn_id.clone(),
                seq: turn.sent,
                event: turn.appended(&taken_in(&reply)),
            })));
            turn.taken.insert(reply);
        }
        if turn.acknowledged < turn.sent {
            return acts;
        }
        if let Some(ask) = turn.to_approve.take() {
            self.next_request += 1;
            turn.asked.insert(self.next_request, ask.clone());
            acts.push(Act::Ask(ask, self.next_request));
        }
        if turn.waits_for_person() {
            acts.extend(self.end_if_draining());
            return acts;
        }
        if is_poking(&turn.event_id) && !turn.has_poked {
            if turn.call.is_none() {
                self.next_call += 1;
                let call_id = CallId(self.next_call);
                turn.call = Some(call_id);
                acts.push(Act::Say(ToOrchestrator::Call(turn.poke(call_id))));
            }
            return acts;
        }
        for ask in turn.asks.take().into_iter().flatten() {
            self.next_request += 1;
            turn.asked.insert(self.next_request, ask.clone());
            acts.push(Act::Ask(ask, self.next_request));
        }
        if turn.asked.is_empty() {
            turn.is_completed = true;
            acts.push(Act::Say(ToOrchestrator::TurnComplete(TurnComplete {
                turn_id: turn.turn_id.clone(),
                last_seq: turn.sent,
                outcome: reply_to(&turn.event_id),
                answered: turn.taken.iter().cloned().collect(),
                states: ExtensionStates::new(),
            })));
        }
        acts
    }

    fn end_if_draining(&self) -> Vec<Act> {
        // A user may take any time, and the next process asks again.
        let is_free = self
            .turn
            .as_ref()
            .is_none_or(SimulatedTurn::waits_for_person);
        if self.is_draining && is_free {
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
