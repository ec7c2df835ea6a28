//! What the outside knows: which events were acknowledged, who waits for an answer, which processes
//! there are. It shares no code with the core, and says so when the core breaks a promise.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use goondan_protocol::agents::{AgentAnswer, AgentAsk, Question, reply_id};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::call::{COMPLETE, CallId, CallOrder, CallOutcome, CallResult, Recorded};
use goondan_protocol::control::{ApprovalInfo, ApprovalsPage, EventInfo, EventsPage, Sent};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ApprovalId, EventId, InstanceKey, StepId};
use goondan_protocol::ipc::{ToAgent, ToConnector};
use goondan_protocol::message::{Message, MessageEvent};
use goondan_protocol::usage::Spent;
use goondan_store::StoreError;
use goondan_store::ledger::Ledgered;
use goondan_store::writer::Report;
use goondan_store::writer::operation::Completion;
use serde_json::Value;

use super::agent::{TRESPASS, messages_of, reply_to};
use super::config::{HELPER_AGENT, key_of};
use super::decisions::Decisions;
use crate::fleet::turn::CANCELLED;
use crate::limits::CRASH_MEMORY_MS;
use crate::{ProcessId, RequestToken};

/// What a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Send {
        event_id: EventId,
        waits: bool,
    },
    Delete(InstanceKey),
    /// A fresh restart deletes too, but says which only at its end.
    FreshRestart,
    /// Which events are parked.
    ListParked,
    /// A person lets a parked event wait again.
    Retry(EventId),
    /// A person gives a parked event up.
    Drop(EventId),
    /// A person has an event wait.
    Pause(EventId, InstanceKey),
    /// A person has an event have its turn earlier or later.
    Move(EventId),
    /// A person ends an event, whatever becomes of its turn.
    Cancel(EventId),
    /// Which calls wait for a person.
    ListApprovals,
    /// A person decides about a call.
    Decide(ApprovalId, ApprovalDecision),
    Other,
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answered {
    Nothing,
    /// Whether this event is safe is not known.
    PostAgain(EventId),
    /// These events are parked.
    Parked(Vec<EventInfo>),
    /// These calls wait for a person.
    WaitingCalls(Vec<ApprovalInfo>),
}

/// The crashes of one place in a row, and when the next process may start at the earliest.
#[derive(Debug, Default, Clone, Copy)]
struct Crashes {
    in_a_row: u32,
    last_ms: u64,
    not_before_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// Every event that was ever submitted, with its conversation.
    submitted: HashMap<EventId, InstanceKey>,
    /// Acknowledged events of each conversation, in the order of their acknowledgement.
    acknowledged: BTreeMap<InstanceKey, Vec<EventId>>,
    /// Acknowledged, but perhaps accepted earlier than others that were acknowledged before.
    misplaced: HashSet<EventId>,
    /// Events that a person wanted to end.
    cancelled: HashSet<EventId>,
    /// When a person was told that an event was cancelled.
    ended_ms: HashMap<EventId, u64>,
    /// Events that a person ever wanted to wait.
    pub(super) perhaps_paused: BTreeSet<(EventId, InstanceKey)>,
    /// Events whose conversation a person had deleted.
    excused: HashSet<EventId>,
    open_requests: HashMap<RequestToken, Asked>,
    /// Clients that went away: an answer to them goes nowhere.
    gone: HashSet<RequestToken>,
    processes: HashMap<String, ProcessId>,
    crashes: HashMap<String, Crashes>,
    /// The replies of models that any agent has seen, by their step.
    replies: HashMap<StepId, Value>,
    /// The tokens of each of them, which no other reply has.
    seen_tokens: BTreeSet<u64>,
    /// The calls that any connector was given and that must not be made twice.
    pokes: HashSet<CallId>,
    pub(super) answers: u64,
    /// Answers that are to come as events, with the conversations they are to come to.
    owed: BTreeMap<EventId, InstanceKey>,
    /// Questions whose answers are wanted as events.
    wanted_later: HashSet<EventId>,
    /// What people decided about calls.
    pub(super) decisions: Decisions,
    /// How often agents were told what.
    pub(super) told: BTreeMap<String, u64>,
}

/// Whose conversation it is when an agent of it asks another.
fn key_between(requester: &InstanceKey, agent: &str) -> InstanceKey {
    let helper = format!("{HELPER_AGENT}:");
    let conversation = requester.as_str().strip_prefix(&helper);
    key_of(agent, conversation.unwrap_or(requester.as_str()))
}

impl Oracle {
    pub(super) fn submit(&mut self, event_id: &EventId, key: &InstanceKey) {
        self.submitted.insert(event_id.clone(), key.clone());
    }

    /// An agent asks another.
    pub(super) fn ask_agent(&mut self, ask: &AgentAsk, requester: &InstanceKey) {
        let (Question::Request { agent, .. } | Question::Send { agent, .. }) = &ask.question else {
            return;
        };
        let question = ask.event_id().unwrap();
        if let Question::Request { wait: false, .. } = ask.question {
            self.wanted_later.insert(question.clone());
        }
        self.submit(&question, &key_between(requester, agent.as_str()));
        self.submit(&reply_id(&question).unwrap(), requester);
    }

    /// Somebody is told something of which there is to be one at least.
    pub(super) fn count_told(&mut self, told: String) {
        *self.told.entry(told).or_default() += 1;
    }

    /// A connector is told what came of a question to a person.
    pub(super) fn hear_of_question(&mut self, message: &ToConnector) {
        let told = match message {
            ToConnector::QuestionAnswered(answered) => answered.action.as_str(),
            _ => "refused",
        };
        *self.told.entry(format!("question: {told}")).or_default() += 1;
    }

    /// An agent is told what came of what it asked.
    pub(super) fn answer_agent(&mut self, ask: Option<&AgentAsk>, answer: &AgentAnswer) {
        if let AgentAnswer::Approval {
            decision,
            has_begun,
            ..
        } = answer
        {
            let turn_id = &ask.expect("nobody asked, or was answered already").turn_id;
            let told = self.decisions.tell(turn_id, *decision, *has_begun);
            *self.told.entry(told.to_owned()).or_default() += 1;
            return;
        }
        let (told, question) = match answer {
            AgentAnswer::Answered {
                event_id, outcome, ..
            } => match outcome {
                TurnOutcome::Completed { .. } => ("answered".to_owned(), Some(event_id)),
                TurnOutcome::Failed { code, .. } => (code.clone(), None),
            },
            AgentAnswer::Accepted { event_id, .. } => ("accepted".to_owned(), Some(event_id)),
            AgentAnswer::Pending { event_id, .. } => ("pending".to_owned(), Some(event_id)),
            AgentAnswer::Restarting {} => ("restarting".to_owned(), None),
            AgentAnswer::Refused { code, .. } => (code.clone(), None),
            other => panic!("nobody asked for {other:?}"),
        };
        *self.told.entry(told).or_default() += 1;
        if let Some(question) = question {
            self.acknowledge(question, true);
        }
        match answer {
            AgentAnswer::Pending { event_id, .. } => self.owe(event_id),
            AgentAnswer::Accepted { event_id, .. } if self.wanted_later.contains(event_id) => {
                self.owe(event_id);
            }
            _ => {}
        }
    }

    /// An answer is to come as an event.
    fn owe(&mut self, question: &EventId) {
        let reply = reply_id(question).unwrap();
        let requester = self.submitted[&reply].clone();
        self.owed.insert(reply, requester);
    }

    /// Events that were acknowledged, with their conversations.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (EventId, InstanceKey)> {
        let all = self.acknowledged.iter();
        all.flat_map(|(key, ids)| ids.iter().map(|id| (id.clone(), key.clone())))
    }

    /// When a person was told that this event was cancelled.
    pub(super) fn ended_ms(&self, event_id: &EventId) -> Option<u64> {
        self.ended_ms.get(event_id).copied()
    }

    pub(super) fn is_excused(&self, event_id: &EventId) -> bool {
        self.excused.contains(event_id)
    }

    pub(super) fn acknowledge(&mut self, event_id: &EventId, is_duplicate: bool) {
        if self.cancelled.contains(event_id) {
            return;
        }
        let key = self.submitted[event_id].clone();
        let of_key = self.acknowledged.entry(key).or_default();
        if of_key.contains(event_id) {
            return;
        }
        of_key.push(event_id.clone());
        if is_duplicate {
            self.misplaced.insert(event_id.clone());
        }
    }

    pub(super) fn ask(&mut self, token: RequestToken, asked: Asked) {
        match &asked {
            Asked::Delete(key) => self.excuse(key),
            Asked::FreshRestart => self.excuse_all(),
            // Whether it is carried out is not known if the daemon is killed.
            Asked::Retry(event_id) => {
                self.misplaced.insert(event_id.clone());
            }
            Asked::Pause(event_id, key) => {
                self.misplaced.insert(event_id.clone());
                self.perhaps_paused.insert((event_id.clone(), key.clone()));
            }
            Asked::Move(event_id) => {
                self.misplaced.insert(event_id.clone());
            }
            Asked::Drop(event_id) => self.excuse_event(event_id),
            Asked::Cancel(event_id) => {
                self.cancelled.insert(event_id.clone());
                self.excuse_event(event_id);
            }
            Asked::Decide(id, decision) => self.decisions.want(id, *decision),
            Asked::Send { .. } | Asked::ListParked | Asked::ListApprovals | Asked::Other => {}
        }
        self.open_requests.insert(token, asked);
    }

    fn excuse(&mut self, key: &InstanceKey) {
        self.owed.retain(|_, requester| requester != key);
        let gone = self.acknowledged.remove(key).unwrap_or_default();
        self.excused.extend(gone);
    }

    fn excuse_event(&mut self, event_id: &EventId) {
        for of_key in self.acknowledged.values_mut() {
            of_key.retain(|id| id != event_id);
        }
        self.owed.remove(event_id);
        self.excused.insert(event_id.clone());
    }

    fn excuse_all(&mut self) {
        let keys: BTreeSet<InstanceKey> = self.submitted.values().cloned().collect();
        for key in keys {
            self.excuse(&key);
        }
    }

    /// A client is answered.
    pub(super) fn answer(
        &mut self,
        token: RequestToken,
        result: &Result<Value, goondan_protocol::control::ControlError>,
        now_ms: u64,
    ) -> Answered {
        self.answers += 1;
        if self.gone.remove(&token) {
            return Answered::Nothing;
        }
        let asked = self.open_requests.remove(&token);
        let asked = asked.expect("nobody asked, or was answered already");
        match asked {
            Asked::Send { event_id, waits } => match result {
                Ok(value) => {
                    let sent: Sent = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(sent.event_id, event_id);
                    self.acknowledge(&event_id, sent.duplicate || waits);
                    match &sent.outcome {
                        Some(TurnOutcome::Failed { code, .. }) if code == CANCELLED => {
                            assert!(self.is_excused(&event_id), "nobody cancelled {event_id}");
                        }
                        Some(outcome) => assert_eq!(*outcome, reply_to(&event_id)),
                        None => assert!(!waits, "the outcome was waited for"),
                    }
                    Answered::Nothing
                }
                Err(_) => Answered::PostAgain(event_id),
            },
            // What is made anew has never crashed.
            Asked::Delete(key) => {
                self.excuse(&key);
                self.forgive(&format!("instanceKey {key:?}"));
                Answered::Nothing
            }
            Asked::FreshRestart => {
                self.excuse_all();
                self.forgive_all();
                Answered::Nothing
            }
            Asked::ListParked => match result {
                Ok(value) => {
                    let page: EventsPage = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(page.next, None, "there are not so many events");
                    Answered::Parked(page.events)
                }
                Err(_) => Answered::Nothing,
            },
            Asked::ListApprovals => match result {
                Ok(value) => {
                    let page: ApprovalsPage = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(page.next, None, "there are not so many calls");
                    self.decisions.list(&page.approvals);
                    Answered::WaitingCalls(page.approvals)
                }
                Err(_) => Answered::Nothing,
            },
            Asked::Decide(id, decision) => {
                if result.is_ok() {
                    self.decisions.take(&id, decision);
                }
                Answered::Nothing
            }
            // It waits in its old place, behind which others may have been answered.
            Asked::Retry(event_id) => {
                self.misplaced.insert(event_id);
                Answered::Nothing
            }
            Asked::Drop(event_id) => {
                self.excuse_event(&event_id);
                Answered::Nothing
            }
            Asked::Cancel(event_id) => {
                if result.is_ok() {
                    *self.told.entry("cancelled".to_owned()).or_default() += 1;
                    self.ended_ms.insert(event_id.clone(), now_ms);
                }
                self.excuse_event(&event_id);
                Answered::Nothing
            }
            Asked::Pause(..) | Asked::Move(_) => {
                if result.is_ok() {
                    let what = match asked {
                        Asked::Move(_) => "moved",
                        _ => "paused",
                    };
                    *self.told.entry(what.to_owned()).or_default() += 1;
                }
                Answered::Nothing
            }
            Asked::Other => Answered::Nothing,
        }
    }

    /// An agent hears something: a reply that was seen once is never another.
    pub(super) fn hear(&mut self, message: &ToAgent) {
        let seen_tokens = &mut self.seen_tokens;
        let mut see = |replies: &mut HashMap<StepId, Value>, message: &Message| {
            let usage = Spent::of_metadata(&message.metadata).usage;
            seen_tokens.extend(usage.map(|usage| usage.output_tokens));
            if let Some(step_id) = message.step_id() {
                let said = message.data.content.as_json().clone();
                let before = replies.insert(step_id.clone(), said.clone());
                assert!(before.is_none_or(|before| before == said), "another reply");
            }
        };
        match message {
            ToAgent::CallResult(CallResult {
                outcome: CallOutcome::Ok(raw),
                ..
            }) => {
                // What was poked has nothing to be seen.
                if let Ok(recorded) = serde_json::from_str::<Recorded>(raw.get()) {
                    let message = serde_json::from_str(recorded.message.get()).unwrap();
                    see(&mut self.replies, &message);
                }
            }
            ToAgent::ConversationPage(page) => {
                for text in page.messages.iter() {
                    let message: Message = serde_json::from_slice(text).unwrap();
                    if message.data.content.to_text().starts_with("reply") {
                        see(&mut self.replies, &message);
                    }
                }
                for raw in &page.events {
                    let event = serde_json::from_str(raw.get()).unwrap();
                    if let MessageEvent::Append { message } = event
                        && message.data.content.to_text().starts_with("reply")
                    {
                        see(&mut self.replies, &message);
                    }
                }
            }
            _ => {}
        }
    }

    /// A connector is given a call.
    pub(super) fn begin(&mut self, call: &CallOrder) {
        assert_ne!(call.method, TRESPASS, "made for who has no business there");
        let is_harmless = call.method == COMPLETE || self.pokes.insert(call.call_id);
        assert!(is_harmless, "a call that is not idempotent was made twice");
    }

    pub(super) fn progress(&self, token: RequestToken) {
        let is_known = self.open_requests.contains_key(&token) || self.gone.contains(&token);
        assert!(is_known, "progress for nobody");
    }

    /// Clients that go away; some for a daemon that was killed. Returns the events they sent.
    pub(super) fn leave(&mut self, is_gone: impl Fn(RequestToken) -> bool) -> Vec<EventId> {
        // Whether a deletion was carried out is not known.
        let deletions = self
            .open_requests
            .iter()
            .filter(|(token, _)| is_gone(**token));
        let deletions: Vec<Asked> = deletions.map(|(_, asked)| asked.clone()).collect();
        for asked in deletions {
            match asked {
                Asked::Delete(key) => self.excuse(&key),
                Asked::FreshRestart => self.excuse_all(),
                _ => {}
            }
        }
        let mut sent = Vec::new();
        self.open_requests.retain(|token, asked| {
            let leaves = is_gone(*token);
            if let (true, Asked::Send { event_id, .. }) = (leaves, asked) {
                sent.push(event_id.clone());
            }
            if leaves {
                self.gone.insert(*token);
            }
            !leaves
        });
        sent
    }

    pub(super) fn open_requests(&self) -> Vec<RequestToken> {
        self.open_requests.keys().copied().collect()
    }

    /// The store begins no turn of an event that a person has wait, and is not even asked to (`STEER-2`).
    pub(super) fn assert_none_begins_paused(completion: &Completion) {
        if let Report::BeginTurn(Err(error)) = &completion.report {
            let is_paused = matches!(error, StoreError::EventPaused { .. });
            assert!(!is_paused, "a turn was to begin: {error}");
        }
    }

    pub(super) fn assert_all_answered(&self) {
        assert!(
            self.open_requests.is_empty(),
            "never answered: {:?}",
            self.open_requests
        );
    }

    pub(super) fn start(&mut self, owner: &str, process: ProcessId, now_ms: u64) {
        let before = self.processes.insert(owner.to_owned(), process);
        assert_eq!(before, None, "two processes for {owner} (SUP-1)");
        let crashes = self.crashes.get(owner).copied().unwrap_or_default();
        assert!(
            now_ms >= crashes.not_before_ms,
            "{owner} crashed {} times in a row and was started {} ms early (SUP-4)",
            crashes.in_a_row,
            crashes.not_before_ms - now_ms
        );
    }

    /// A process ended. `crashed`: nobody had asked it to.
    pub(super) fn end(&mut self, owner: &str, process: ProcessId, crashed: bool, now_ms: u64) {
        assert_eq!(self.processes.remove(owner), Some(process));
        if crashed {
            let crashes = self.crashes.entry(owner.to_owned()).or_default();
            if now_ms - crashes.last_ms >= CRASH_MEMORY_MS {
                crashes.in_a_row = 0;
            }
            crashes.last_ms = now_ms;
            crashes.in_a_row += 1;
            let delay_ms = match crashes.in_a_row {
                0..=5 => 0,
                n => (1_000 << (n - 6).min(20)).min(300_000),
            };
            crashes.not_before_ms = now_ms + delay_ms;
        }
    }

    /// A process did its work, or a person asked for a restart.
    pub(super) fn forgive(&mut self, owner: &str) {
        self.crashes.remove(owner);
    }

    pub(super) fn forgive_all(&mut self) {
        self.crashes.clear();
    }

    /// The daemon was killed, and its children with it.
    pub(super) fn forget_processes(&mut self) {
        self.pokes.clear();
        self.processes.clear();
        self.crashes.clear();
    }

    pub(super) fn running(&self) -> usize {
        self.processes.len()
    }

    /// Compares what agents have seen with the ledger: each reply is in it, and none is in it twice.
    pub(super) fn assert_counted(&self, ledger: &Ledgered) {
        assert_eq!(ledger.unreadable, 0);
        let lines = ledger.lines.iter().map(|line| line.spending);
        let mut counted = BTreeSet::new();
        for spending in lines {
            assert_eq!(
                spending.replies, 1,
                "the ledger of one run is not summed up"
            );
            let is_new = counted.insert(spending.usage.output_tokens);
            assert!(is_new, "a reply was counted twice");
        }
        let mut missing = self.seen_tokens.difference(&counted);
        assert_eq!(
            missing.next(),
            None,
            "a reply that was seen was not counted"
        );
    }

    /// Compares what was promised with what the store holds at the end: each acknowledged event
    /// answered once, in order, whole, in its own conversation (`MSG-8`, `MSG-13`).
    pub(super) fn assert_kept(&self, conversations: &BTreeMap<InstanceKey, Vec<String>>) {
        for (key, messages) in conversations {
            let mut answered: Vec<EventId> = Vec::new();
            let (taken_in, own): (Vec<String>, Vec<String>) = {
                let all = messages.iter().cloned();
                all.partition(|id| id.ends_with(":in"))
            };
            let mut rest = own.as_slice();
            while let Some(first) = rest.first() {
                let event_id: EventId = first.rsplit_once(':').unwrap().0.parse().unwrap();
                let mut whole = messages_of(&event_id);
                if self.cancelled.contains(&event_id) {
                    // What its turn had recorded when it was ended.
                    let of_event =
                        |id: &&String| id.rsplit_once(':').unwrap().0 == event_id.as_str();
                    whole = rest.iter().take_while(of_event).cloned().collect();
                }
                assert!(
                    !whole.is_empty() && rest.starts_with(&whole),
                    "event {event_id} has {rest:?} in {key}, not {whole:?}"
                );
                assert_eq!(self.submitted.get(&event_id), Some(key), "a stray event");
                assert!(!answered.contains(&event_id), "{event_id} answered twice");
                rest = &rest[whole.len()..];
                answered.push(event_id);
            }
            for message in taken_in {
                let reply: EventId = message.rsplit_once(':').unwrap().0.parse().unwrap();
                assert_eq!(self.submitted.get(&reply), Some(key), "a stray answer");
                assert!(!answered.contains(&reply), "{reply} came twice");
                answered.push(reply);
            }
            for reply in self.owed.iter().filter(|(_, requester)| *requester == key) {
                assert!(answered.contains(reply.0), "answer {} never came", reply.0);
            }
            let promised = self.acknowledged.get(key).cloned().unwrap_or_default();
            let in_order: Vec<&EventId> = promised
                .iter()
                .filter(|id| !self.misplaced.contains(id))
                .collect();
            let found: Vec<&EventId> = answered.iter().filter(|id| in_order.contains(id)).collect();
            assert_eq!(found, in_order, "events of {key} lost or out of order");
        }
        for (key, promised) in &self.acknowledged {
            let found = conversations.get(key).cloned().unwrap_or_default();
            for event_id in promised {
                for message in messages_of(event_id) {
                    assert!(found.contains(&message), "{message} of {key} is lost");
                }
            }
        }
    }
}
