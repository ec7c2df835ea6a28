//! The external view: acknowledged events, waiting clients, running processes. It shares no code
//! with the core and fails if the core breaks a promise.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion, reply_id};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::call::{
    COMPLETE, CallId, CallOrder, CallOutcome, CallResult, RecordedResult,
};
use goondan_protocol::control::{
    ApprovalDecided, ApprovalInfo, ApprovalsPage, EventInfo, EventsPage, SendResult,
};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ApprovalId, EventId, InstanceKey, StepId};
use goondan_protocol::ipc::{ToAgent, ToConnector};
use goondan_protocol::message::{Message, MessageEvent};
use goondan_protocol::usage::ReplyCost;
use goondan_store::StoreError;
use goondan_store::ledger::LedgerContent;
use goondan_store::writer::Report;
use goondan_store::writer::operation::StoreCompletion;
use serde_json::Value;

use super::agent::{TRESPASS, messages_of, reply_to};
use super::config::{HELPER_AGENT, key_of};
use super::decisions::{Decider, Decisions};
use crate::fleet::turn::CANCELLED;
use crate::limits::CRASH_MEMORY_MS;
use crate::{ProcessId, RequestToken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SimulatedRequest {
    Send {
        event_id: EventId,
        waits: bool,
    },
    Delete(InstanceKey),
    /// A fresh restart also deletes, but reports the deleted conversations only at its end.
    FreshRestart,
    ListParked,
    Retry(EventId),
    Drop(EventId),
    Pause(EventId, InstanceKey),
    Move(EventId),
    /// Cancels an event, independent of its turn.
    Cancel(EventId),
    ListApprovals,
    Decide(ApprovalId, ApprovalDecision),
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResponseEffect {
    Nothing,
    /// The event may have been lost.
    PostAgain(EventId),
    Parked(Vec<EventInfo>),
    WaitingCalls(Vec<ApprovalInfo>),
}

/// Consecutive crashes in one slot, and the earliest time of the next start.
#[derive(Debug, Default, Clone, Copy)]
struct Crashes {
    in_a_row: u32,
    last_ms: u64,
    not_before_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// All submitted events, with their conversations.
    submitted: HashMap<EventId, InstanceKey>,
    /// Acknowledged events of each conversation, in the order of acknowledgement.
    acknowledged: BTreeMap<InstanceKey, Vec<EventId>>,
    /// Acknowledged, but possibly accepted before events that were acknowledged earlier.
    misplaced: HashSet<EventId>,
    /// Events that a user wanted to cancel.
    cancelled: HashSet<EventId>,
    /// Time at which a user was notified that an event was canceled.
    ended_ms: HashMap<EventId, u64>,
    /// Events that a user wanted to pause.
    pub(super) perhaps_paused: BTreeSet<(EventId, InstanceKey)>,
    /// Events whose conversation was deleted by a user.
    excused: HashSet<EventId>,
    open_requests: HashMap<RequestToken, SimulatedRequest>,
    /// Disconnected clients, which receive no response.
    gone: HashSet<RequestToken>,
    processes: HashMap<String, ProcessId>,
    crashes: HashMap<String, Crashes>,
    /// The model replies received by any agent, by step.
    replies: HashMap<StepId, Value>,
    /// The unique token count of each of them.
    seen_tokens: BTreeSet<u64>,
    /// The non-idempotent calls received by any connector.
    pokes: HashSet<CallId>,
    pub(super) answers: u64,
    /// Answers that must arrive as events, with their target conversations.
    owed: BTreeMap<EventId, InstanceKey>,
    /// Questions whose answers were requested as events.
    wanted_later: HashSet<EventId>,
    pub(super) decisions: Decisions,
    /// Number of answers to agents, by kind.
    pub(super) told: BTreeMap<String, u64>,
}

/// The conversation of `agent` when `requester` sends it a request.
fn key_between(requester: &InstanceKey, agent: &str) -> InstanceKey {
    let helper = format!("{HELPER_AGENT}:");
    let conversation = requester.as_str().strip_prefix(&helper);
    key_of(agent, conversation.unwrap_or(requester.as_str()))
}

impl Oracle {
    pub(super) fn submit(&mut self, event_id: &EventId, key: &InstanceKey) {
        self.submitted.insert(event_id.clone(), key.clone());
    }

    /// Records a request to another agent.
    pub(super) fn ask_agent(&mut self, ask: &AgentAsk, requester: &InstanceKey) {
        let (AgentQuestion::Request { agent, .. } | AgentQuestion::Send { agent, .. }) =
            &ask.question
        else {
            return;
        };
        let question = ask.event_id().unwrap();
        if let AgentQuestion::Request { wait: false, .. } = ask.question {
            self.wanted_later.insert(question.clone());
        }
        self.submit(&question, &key_between(requester, agent.as_str()));
        self.submit(&reply_id(&question).unwrap(), requester);
    }

    /// Counts an answer of a kind that must occur at least once.
    pub(super) fn count_told(&mut self, told: String) {
        *self.told.entry(told).or_default() += 1;
    }

    /// Records the outcome of a question to a user.
    pub(super) fn hear_of_question(&mut self, message: &ToConnector) {
        let text = match message {
            ToConnector::QuestionAnswered(answered) => answered.action.as_str(),
            _ => "refused",
        };
        *self.told.entry(format!("question: {text}")).or_default() += 1;
    }

    /// Records an answer to an agent's request.
    pub(super) fn answer_agent(&mut self, ask: Option<&AgentAsk>, answer: &AgentAnswer) {
        if let AgentAnswer::Approval {
            decision,
            has_begun,
            ..
        } = answer
        {
            let ask = ask.expect("not requested, or already answered");
            let told = self.decisions.tell(ask, *decision, *has_begun);
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
            other => panic!("{other:?} was not requested"),
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

    /// Expects an answer as an event.
    fn owe(&mut self, question: &EventId) {
        let reply = reply_id(question).unwrap();
        let requester = self.submitted[&reply].clone();
        self.owed.insert(reply, requester);
    }

    /// Acknowledged events, with their conversations.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (EventId, InstanceKey)> {
        let all = self.acknowledged.iter();
        all.flat_map(|(key, ids)| ids.iter().map(|id| (id.clone(), key.clone())))
    }

    /// Time at which a user was notified that this event was canceled.
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

    pub(super) fn ask(&mut self, token: RequestToken, asked: SimulatedRequest) {
        match &asked {
            SimulatedRequest::Delete(key) => self.excuse(key),
            SimulatedRequest::FreshRestart => self.excuse_all(),
            // If the daemon is killed, it is unknown if the request was applied.
            SimulatedRequest::Retry(event_id) => {
                self.misplaced.insert(event_id.clone());
            }
            SimulatedRequest::Pause(event_id, key) => {
                self.misplaced.insert(event_id.clone());
                self.perhaps_paused.insert((event_id.clone(), key.clone()));
            }
            SimulatedRequest::Move(event_id) => {
                self.misplaced.insert(event_id.clone());
            }
            SimulatedRequest::Drop(event_id) => self.excuse_event(event_id),
            SimulatedRequest::Cancel(event_id) => {
                self.cancelled.insert(event_id.clone());
                self.excuse_event(event_id);
            }
            SimulatedRequest::Decide(id, decision) => {
                self.decisions.want(id, *decision, Decider::Client);
            }
            SimulatedRequest::Send { .. }
            | SimulatedRequest::ListParked
            | SimulatedRequest::ListApprovals
            | SimulatedRequest::Other => {}
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

    /// Records a response to a client.
    pub(super) fn answer(
        &mut self,
        token: RequestToken,
        result: &Result<Value, goondan_protocol::control::ControlError>,
        now_ms: u64,
    ) -> ResponseEffect {
        self.answers += 1;
        if self.gone.remove(&token) {
            return ResponseEffect::Nothing;
        }
        let asked = self.open_requests.remove(&token);
        let asked = asked.expect("not requested, or already answered");
        match asked {
            SimulatedRequest::Send { event_id, waits } => match result {
                Ok(value) => {
                    let sent: SendResult = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(sent.event_id, event_id);
                    self.acknowledge(&event_id, sent.duplicate || waits);
                    match &sent.outcome {
                        Some(TurnOutcome::Failed { code, .. }) if code == CANCELLED => {
                            assert!(self.is_excused(&event_id), "{event_id} was not canceled");
                        }
                        Some(outcome) => assert_eq!(*outcome, reply_to(&event_id)),
                        None => assert!(!waits, "the outcome was waited for"),
                    }
                    ResponseEffect::Nothing
                }
                Err(_) => ResponseEffect::PostAgain(event_id),
            },
            // A recreated instance has no crashes.
            SimulatedRequest::Delete(key) => {
                self.excuse(&key);
                self.forgive(&format!("instanceKey {key:?}"));
                ResponseEffect::Nothing
            }
            SimulatedRequest::FreshRestart => {
                self.excuse_all();
                self.forgive_all();
                ResponseEffect::Nothing
            }
            SimulatedRequest::ListParked => match result {
                Ok(value) => {
                    let page: EventsPage = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(page.next, None, "there are not so many events");
                    ResponseEffect::Parked(page.events)
                }
                Err(_) => ResponseEffect::Nothing,
            },
            SimulatedRequest::ListApprovals => match result {
                Ok(value) => {
                    let page: ApprovalsPage = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(page.next, None, "there are not so many calls");
                    self.decisions.list(&page.approvals);
                    ResponseEffect::WaitingCalls(page.approvals)
                }
                Err(_) => ResponseEffect::Nothing,
            },
            SimulatedRequest::Decide(id, decision) => {
                if let Ok(value) = result {
                    let decided: ApprovalDecided = serde_json::from_value(value.clone()).unwrap();
                    if decided.needs_another {
                        self.decisions.count_first(&id, Decider::Client);
                        self.count_told("approval: 1 of 2".to_owned());
                    } else {
                        self.decisions.take(&id, decision);
                    }
                }
                ResponseEffect::Nothing
            }
            // It is queued in its old position, and later events may have been answered.
            SimulatedRequest::Retry(event_id) => {
                self.misplaced.insert(event_id);
                ResponseEffect::Nothing
            }
            SimulatedRequest::Drop(event_id) => {
                self.excuse_event(&event_id);
                ResponseEffect::Nothing
            }
            SimulatedRequest::Cancel(event_id) => {
                if result.is_ok() {
                    *self.told.entry("cancelled".to_owned()).or_default() += 1;
                    self.ended_ms.insert(event_id.clone(), now_ms);
                }
                self.excuse_event(&event_id);
                ResponseEffect::Nothing
            }
            SimulatedRequest::Pause(..) | SimulatedRequest::Move(_) => {
                if result.is_ok() {
                    let what = match asked {
                        SimulatedRequest::Move(_) => "moved",
                        _ => "paused",
                    };
                    *self.told.entry(what.to_owned()).or_default() += 1;
                }
                ResponseEffect::Nothing
            }
            SimulatedRequest::Other => ResponseEffect::Nothing,
        }
    }

    /// Records a message to an agent: a reply of a step never changes.
    pub(super) fn hear(&mut self, message: &ToAgent) {
        let seen_tokens = &mut self.seen_tokens;
        let mut see = |replies: &mut HashMap<StepId, Value>, message: &Message| {
            let usage = ReplyCost::of_metadata(&message.metadata).usage;
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
                // The results of other calls are not checked.
                if let Ok(recorded) = serde_json::from_str::<RecordedResult>(raw.get()) {
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

    /// Records a call received by a connector.
    pub(super) fn begin(&mut self, call: &CallOrder) {
        assert_ne!(call.method, TRESPASS, "made for who has no business there");
        let is_harmless = call.method == COMPLETE || self.pokes.insert(call.call_id);
        assert!(is_harmless, "a call that is not idempotent was made twice");
    }

    pub(super) fn progress(&self, token: RequestToken) {
        let is_known = self.open_requests.contains_key(&token) || self.gone.contains(&token);
        assert!(is_known, "progress without a request");
    }

    /// Disconnects clients, some of them because their daemon was killed. Returns the events they
    /// sent.
    pub(super) fn leave(&mut self, is_gone: impl Fn(RequestToken) -> bool) -> Vec<EventId> {
        // It is unknown if a deletion was applied.
        let deletions = self
            .open_requests
            .iter()
            .filter(|(token, _)| is_gone(**token));
        let deletions: Vec<SimulatedRequest> = deletions.map(|(_, asked)| asked.clone()).collect();
        for asked in deletions {
            match asked {
                SimulatedRequest::Delete(key) => self.excuse(&key),
                SimulatedRequest::FreshRestart => self.excuse_all(),
                _ => {}
            }
        }
        let mut sent = Vec::new();
        self.open_requests.retain(|token, asked| {
            let leaves = is_gone(*token);
            if let (true, SimulatedRequest::Send { event_id, .. }) = (leaves, asked) {
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

    /// The store is never asked to begin a turn for a paused event (`STEER-2`).
    pub(super) fn assert_none_begins_paused(completion: &StoreCompletion) {
        if let Report::BeginTurn(Err(error)) = &completion.report {
            let is_paused = matches!(error, StoreError::EventPaused { .. });
            assert!(!is_paused, "unexpected start of a turn: {error}");
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

    /// Records a process exit. `crashed` means that it was not requested.
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

    /// Resets the crash count after successful work or a restart requested by a user.
    pub(super) fn forgive(&mut self, owner: &str) {
        self.crashes.remove(owner);
    }

    pub(super) fn forgive_all(&mut self) {
        self.crashes.clear();
    }

    /// Drops all processes, because the daemon and its children were killed.
    pub(super) fn forget_processes(&mut self) {
        self.pokes.clear();
        self.processes.clear();
        self.crashes.clear();
    }

    pub(super) fn running(&self) -> usize {
        self.processes.len()
    }

    /// Compares the replies received by agents with the ledger: each is in it exactly once.
    pub(super) fn assert_counted(&self, ledger: &LedgerContent) {
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

    /// Compares the promises with the final state of the store: each acknowledged event answered
    /// once, in order, completely, in its own conversation (`MSG-8`, `MSG-13`).
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
                    // The part of the turn that was recorded when it was canceled.
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
