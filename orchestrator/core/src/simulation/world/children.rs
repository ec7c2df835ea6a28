//! The children of the simulated world: start, messages, actions, exit.

use std::collections::{BTreeSet, HashMap};

use goondan_protocol::call::{
    COMPLETE, CallError, CallErrorCode, CallOrder, CallOutcome, CallPiece, CallResult, ModelAnswer,
};
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::ipc::{ChildRole, Hello, Pong, Status, ToChild, ToConnector, ToOrchestrator};
use goondan_protocol::question::QuestionAsk;
use goondan_protocol::usage::{USAGE, Usage};
use goondan_protocol::version::Version;
use serde_json::value::to_raw_value;

use super::{Child, ProcessRole, ScheduledEvent, World};
use crate::simulation::agent::Act;
use crate::simulation::chat::PendingPresses;
use crate::simulation::config::{OTHER_CONNECTION, REPLY_TOKENS_MAX};
use crate::simulation::replies::Requests;
use crate::{CoreInput, ProcessId, Spawn};

impl World {
    pub(super) fn spawn(&mut self, spawn: &Spawn) -> Vec<CoreInput> {
        let process = spawn.process;
        let (owner, role) = match spawn.role {
            ChildRole::Agent => ("instanceKey", ProcessRole::Agent(Box::default())),
            ChildRole::Connector => ("connection", ProcessRole::Connector),
            ChildRole::Model => ("model", ProcessRole::Model),
            ChildRole::Task => unreachable!("no task is made in this world"),
        };
        let name = match spawn.role {
            ChildRole::Agent => "agentName",
            ChildRole::Connector | ChildRole::Model | ChildRole::Task => owner,
        };
        let name = spawn.identity[name].as_str().unwrap().to_owned();
        let owner = format!("{owner} {}", spawn.identity[owner]);
        self.oracle.start(&owner, process, self.mono_ms);
        if self.chance(self.plan.crash / 10) {
            self.oracle.end(&owner, process, false, self.mono_ms);
            let how = "it could not be started: no descriptors".to_owned();
            return vec![CoreInput::NoRoom { process, how }];
        }
        if self.chance(self.plan.crash / 10) {
            self.unstarted.insert(process, (owner, false));
            self.failed_starts += 1;
            let how = "it could not be started".to_owned();
            return vec![CoreInput::Exited { process, how }];
        }
        let child = Child {
            owner,
            name: (spawn.role, name),
            started_with: self.applied.clone(),
            role,
            is_hung: false,
            was_asked: false,
            was_told: false,
            is_dying: false,
            is_greeted: false,
            last_heard_ms: self.mono_ms,
            last_said_ms: self.mono_ms,
            next_request: 0,
            posts: HashMap::new(),
            replies: Requests::default(),
            questions: BTreeSet::new(),
            pressed: PendingPresses::new(),
        };
        self.children.insert(process, child);
        self.next_pid += 1;
        let hello = Hello {
            version: Version::current(),
            role: match spawn.role {
                ChildRole::Agent | ChildRole::Task => ChildRole::Agent,
                ChildRole::Connector | ChildRole::Model => ChildRole::Connector,
            },
            pid: self.next_pid,
        };
        self.say(process, ToOrchestrator::Hello(hello), None);
        vec![CoreInput::Spawned {
            process,
            pid: self.next_pid,
        }]
    }

    /// The listening processes of a connection.
    pub(super) fn listening(&self, connection: &str) -> Vec<ProcessId> {
        let children = self.children.iter();
        let listening = children
            .filter(|(_, child)| child.is_greeted && !child.is_hung && !child.is_dying)
            .filter(|(_, child)| child.name == (ChildRole::Connector, connection.to_owned()));
        let mut listening: Vec<ProcessId> = listening.map(|(process, _)| *process).collect();
        listening.sort();
        listening
    }

    /// Sends a message of a child, which arrives after its earlier messages.
    pub(super) fn say(
        &mut self,
        process: ProcessId,
        message: ToOrchestrator,
        request_id: Option<u64>,
    ) {
        let delay_ms = if self.rng.u64(..50) == 0 { 3_000 } else { 20 };
        let delay_ms = self.rng.u64(0..delay_ms);
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        let due_ms = child.last_said_ms.max(self.mono_ms + delay_ms);
        child.last_said_ms = due_ms;
        let input = CoreInput::Message {
            process,
            message: Box::new(message),
            request_id,
            trace: None,
        };
        self.at(due_ms, ScheduledEvent::Input(input));
    }

    pub(super) fn deliver(
        &mut self,
        process: ProcessId,
        message: ToChild,
        in_reply_to: Option<u64>,
    ) {
        let hangs = self.chance(self.plan.hang);
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        child.is_hung |= hangs;
        if child.is_hung || child.is_dying {
            return;
        }
        let acts = match (&mut child.role, message) {
            (ProcessRole::Agent(agent), ToChild::Agent(message)) => {
                self.oracle.hear(&message);
                agent.on_message(message, in_reply_to)
            }
            (ProcessRole::Connector | ProcessRole::Model, ToChild::Connector(message)) => {
                match message {
                    ToConnector::Call(call) => {
                        let is_healing = self.is_healing;
                        self.oracle.begin(&call);
                        made(&mut self.rng, is_healing, &call)
                    }
                    ToConnector::Welcome(_) => {
                        child.is_greeted = matches!(child.role, ProcessRole::Connector);
                        let (ready, detail) = (true, "listening".to_owned());
                        let is_showing = child.name.1 == OTHER_CONNECTION;
                        let status = Act::Say(ToOrchestrator::Status(Status {
                            ready,
                            detail,
                            token: None,
                        }));
                        let follow = ToOrchestrator::DecisionsFollow(self.chat.follow());
                        let follow = is_showing.then_some(Act::Say(follow));
                        follow.into_iter().chain([status]).collect()
                    }
                    ToConnector::Ping(ping) => {
                        let pong = Pong { nonce: ping.nonce };
                        vec![Act::Say(ToOrchestrator::Pong(pong))]
                    }
                    ToConnector::EventRefused(_) => {
                        let refused = in_reply_to.and_then(|request| child.posts.remove(&request));
                        if let Some(event_id) = refused {
                            self.post_again(&event_id);
                        }
                        Vec::new()
                    }
                    ToConnector::QuestionAnswered(_) | ToConnector::QuestionRefused(_) => {
                        let request = in_reply_to.expect("it is a reply");
                        let is_open = child.questions.remove(&request);
                        assert!(
                            is_open,
                            "question {request} was answered twice, or never asked"
                        );
                        self.oracle.hear_of_question(&message);
                        Vec::new()
                    }
                    ToConnector::Reply(reply) => {
                        let request = in_reply_to.expect("it is a reply");
                        self.hear_reply(process, request, &reply);
                        Vec::new()
                    }
                    ToConnector::Shutdown(_) => vec![Act::Exit],
                    message => {
                        self.hear_of_buttons(&message);
                        Vec::new()
                    }
                }
            }
            (_, message) => panic!("`{}` is not for it", message.kind()),
        };
        for act in acts {
            // Actions take time but happen in order.
            let child = self.children.get_mut(&process).unwrap();
            let due_ms = child.last_said_ms.max(self.mono_ms);
            self.at(due_ms, ScheduledEvent::Act(process, act));
        }
    }

    pub(super) fn act(&mut self, process: ProcessId, act: Act) {
        let crashes = self.chance(self.plan.crash);
        let garbage = self.chance(self.plan.garbage);
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        if child.is_hung || child.is_dying {
            return;
        }
        if crashes {
            child.is_dying = true;
            return self.soon(5, ScheduledEvent::Die(process, "signal 11"));
        }
        if garbage {
            let problem = "not JSON".to_owned();
            return self.input(CoreInput::Broken { process, problem });
        }
        match act {
            Act::Say(message) => self.say(process, message, None),
            Act::SayLater(after_ms, message) => {
                let act = Act::Say(message);
                self.at(self.mono_ms + after_ms, ScheduledEvent::Act(process, act));
            }
            Act::AskPersonLater(after_ms, ask) => {
                let act = Act::AskPerson(ask);
                self.at(self.mono_ms + after_ms, ScheduledEvent::Act(process, act));
            }
            Act::AskPerson(ask) => {
                child.next_request += 1;
                let request = child.next_request;
                child.questions.insert(request);
                let message = ToOrchestrator::QuestionAsk(Box::new(ask));
                self.say(process, message, Some(request));
            }
            Act::Ask(ask, request) => {
                let key = child.owner.strip_prefix("instanceKey ").unwrap();
                let key: InstanceKey = serde_json::from_str(key).unwrap();
                self.oracle.ask_agent(&ask, &key);
                let message = ToOrchestrator::AgentAsk(Box::new(ask));
                self.say(process, message, Some(request));
            }
            Act::Exit => {
                child.is_dying = true;
                let due_ms = child.last_said_ms;
                self.at(due_ms, ScheduledEvent::Die(process, "exit code 0"));
            }
        }
    }

    pub(super) fn die(&mut self, process: ProcessId, how: &'static str) {
        let Some(child) = self.children.remove(&process) else {
            return;
        };
        self.oracle
            .end(&child.owner, process, !child.was_asked, self.mono_ms);
        for event_id in child.posts.values() {
            self.post_again(event_id);
        }
        for event_id in child.replies.events() {
            self.replies.lose(event_id);
        }
        self.crashed = (!child.was_asked).then_some(process);
        self.killed = (child.was_asked && !child.was_told).then_some(process);
        let how = how.to_owned();
        self.input(CoreInput::Exited { process, how });
    }
}

/// Outcome of a call in a simulated connector: success, an error, or no call at all, always within
/// the time limit.
fn made(rng: &mut fastrand::Rng, is_healing: bool, call: &CallOrder) -> Vec<Act> {
    let call_id = call.call_id;
    let is_model = call.method == COMPLETE;
    // A unique number that identifies the reply.
    let usage = Usage {
        output_tokens: rng.u64(..u64::from(REPLY_TOKENS_MAX)),
        ..Usage::default()
    };
    // A failed call may have been charged anyway.
    let taken = (is_model && rng.bool()).then_some(usage);
    let error = |code| CallOutcome::Error(CallError::new(code, "no").having_taken(taken));
    let later = |code, ms| {
        let failed = CallError::new(code, "no").having_taken(taken);
        CallOutcome::Error(failed.later(ms))
    };
    let outcome = match if is_healing { 9 } else { rng.u64(0..12) } {
        0 if is_model => later(CallErrorCode::RateLimited, Some(rng.u64(0..3_000))),
        1 if is_model => {
            let failed = CallError::new(CallErrorCode::Overloaded, "no").having_taken(taken);
            CallOutcome::Error(match rng.bool() {
                true => failed.later(None).of_endpoint(),
                false => failed.later(None),
            })
        }
        2 => error(CallErrorCode::Unauthorized),
        3 => return Vec::new(),
        _ if is_model => {
            let content = to_raw_value(&format!("reply {}", rng.u64(..))).unwrap();
            let mut metadata = goondan_protocol::JsonObject::new();
            metadata.insert(USAGE.to_owned(), serde_json::json!(usage));
            CallOutcome::Ok(to_raw_value(&ModelAnswer { content, metadata }).unwrap())
        }
        _ => CallOutcome::Ok(to_raw_value("poked").unwrap()),
    };
    let mut acts = Vec::new();
    let mut after_ms = 0;
    for _ in 0..rng.u64(0..3) {
        after_ms += rng.u64(0..500);
        let piece = to_raw_value("p").unwrap();
        let piece = ToOrchestrator::CallPiece(CallPiece { call_id, piece });
        acts.push(Act::SayLater(after_ms, piece));
    }
    // The call may ask a user, and may end without waiting for the answer.
    for _ in 0..(if is_model || is_healing {
        0
    } else {
        rng.u64(0..3)
    }) {
        let ask = QuestionAsk {
            call_id,
            message: "Which?".to_owned(),
            schema: serde_json::json!({"type": *rng.choice(&["object", "array"]).unwrap()}),
            timeout_ms: rng.u64(0..2_000),
        };
        acts.push(Act::AskPersonLater(after_ms, ask));
        after_ms += rng.u64(0..1_500);
    }
    after_ms += rng.u64(0..500);
    let result = ToOrchestrator::CallResult(CallResult {
        call_id,
        outcome,
        looked_back: None,
    });
    acts.push(Act::SayLater(after_ms, result));
    acts
}
