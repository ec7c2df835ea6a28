//! Goal: a turn survives a crash at every instant.
//!
//! Method: a world without I/O executes the engine's effects one at a time, in an order that the
//! schedule chooses, and crashes after a given number of actions. The journal keeps every
//! acknowledged event; of the events that were sent but not acknowledged, a prefix of any length
//! survives, as on a real disk. After each crash a new engine resumes from the journal. Every
//! action checks the engine's promises; the end checks the whole history.

mod builtins;
mod modules;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::agents::{IN_REPLY_TO, REPLY_KIND};
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::LoopBreaker;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{EventId, ExtensionStates, MessageId, StepId, ToolCallId, TurnId};
use goondan_protocol::ipc::TurnStart;
use goondan_protocol::message::{
    Message, MessageContent, MessageEvent, MessageRole, MessageSource, ToolCall,
};
use goondan_protocol::time::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::effect::{TurnEngineEffect, TurnEngineInput};
use super::engine::Engine;
use super::limits::TurnLimits;
use super::recovered_turn::OpenTurn;
use crate::extensions::Extensions;
use crate::model::ModelLocation;
use crate::model::{ModelError, ModelReply};
use crate::tool_call::{CallKey, CallRejection, ToolOutcome, ToolRules};

/// More actions than any turn in these tests needs, crashes included.
const ACTIONS_MAX: usize = 10_000;

/// Tools named `bad` are refused, tools named `read` are idempotent, tools named `ask` need a
/// person. A call of a tool named `die` ends the process.
struct SimulatedToolRules;

impl ToolRules for SimulatedToolRules {
    fn check(&self, call: &ToolCall) -> Result<(), CallRejection> {
        if call.tool_name == "bad" {
            Err(CallRejection::NotInCatalog("`bad`".to_owned()))
        } else {
            Ok(())
        }
    }

    fn is_idempotent(&self, tool_name: &str) -> bool {
        tool_name == "read"
    }

    fn needs_person(&self, call: &ToolCall) -> bool {
        call.tool_name == "ask"
    }

    fn error_limit_chars(&self, _: &str) -> usize {
        1_000
    }
}

/// The model's behavior in each step: the tools it calls, or an answer.
#[derive(Debug, Clone)]
enum Act {
    Call(Vec<&'static str>),
    Say(&'static str),
    Fail(&'static str),
}

/// A small generator: the same seed gives the same schedule.
#[derive(Debug, Clone)]
struct Schedule(u64);

impl Schedule {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

fn extensions() -> Extensions {
    let (agent, key) = ("worker".parse().unwrap(), "main".parse().unwrap());
    Extensions::new(agent, key, &[], ExtensionStates::new()).unwrap()
}

struct World {
    plan: Vec<Act>,
    step_count_max: u32,
    schedule: Schedule,
    /// Actions until each upcoming crash.
    crashes: VecDeque<usize>,
    turn_id: TurnId,
    /// True if the model's replies are recorded before the engine receives them.
    has_recorder: bool,
    base: Vec<Message>,
    journal: Vec<MessageEvent>,
    /// Number of times that each step was answered and each call was begun or finished.
    begun_runs: BTreeMap<(u32, usize), usize>,
    attempt: u32,
    outcome: Option<TurnOutcome>,
    action_count: usize,
    /// Answers that wait in the inbox.
    answers: Vec<AgentEvent>,
    answered: Vec<EventId>,
    /// Extension states for the commit.
    states: ExtensionStates,
    /// Creates the extensions around the turn.
    extensions: fn() -> Extensions,
    /// The modules around the turn, if there are any.
    modules: Option<modules::Modules>,
}

/// The state of one life of the process.
struct ProcessIncarnation {
    engine: Engine<SimulatedToolRules>,
    /// Events sent in this life and not yet on the disk.
    unsynced: Vec<MessageEvent>,
    /// Number of the last acknowledged event.
    acknowledged_seq: u64,
    /// Effects to execute, in order.
    effects: VecDeque<TurnEngineEffect>,
    /// In-flight answers, in any order.
    answers: Vec<TurnEngineInput>,
    /// True if a call ended the process.
    is_over: bool,
}

impl World {
    fn new(plan: &[Act], step_count_max: u32, seed: u64, crashes: &[usize]) -> Self {
        let earlier = "earlier".parse().unwrap();
        Self {
            plan: plan.to_vec(),
            step_count_max,
            schedule: Schedule(seed),
            crashes: crashes.iter().copied().collect(),
            turn_id: TurnId::new("t").unwrap(),
            has_recorder: !seed.is_multiple_of(2),
            base: vec![Message::user(earlier, at(), "earlier")],
            journal: Vec::new(),
            begun_runs: BTreeMap::new(),
            attempt: 0,
            outcome: None,
            action_count: 0,
            answers: Vec::new(),
            answered: Vec::new(),
            states: ExtensionStates::new(),
            extensions,
            modules: None,
        }
    }

    /// Plays the turn to its commit, through all crashes.
    fn play(&mut self) {
        while self.outcome.is_none() {
            self.attempt += 1;
            let mut life = self.born();
            let mut left = self.crashes.pop_front().unwrap_or(usize::MAX);
            while self.outcome.is_none() && left > 0 && !life.is_over {
                self.act(&mut life);
                left -= 1;
                self.action_count += 1;
                assert!(self.action_count < ACTIONS_MAX, "the turn does not end");
            }
            // A prefix of the unacknowledged events may have reached the disk.
            let survivors = self.schedule.below(life.unsynced.len() + 1);
            if self.outcome.is_none() {
                self.journal.extend(life.unsynced.drain(..survivors));
            }
            self.check_history();
        }
    }

    fn born(&mut self) -> ProcessIncarnation {
        if let Some(modules) = &mut self.modules {
            modules.are_born();
        }
        let mut open = OpenTurn::default();
        for event in &self.journal {
            open.push(Some(self.turn_id.clone()), event.clone());
        }
        let base = Conversation::from_base(self.base.clone());
        let limits = limits(self.step_count_max, self.has_recorder);
        let mut engine = Engine::new(SimulatedToolRules, limits, (self.extensions)(), base, open);
        let start = TurnStart {
            turn_id: self.turn_id.clone(),
            attempt: self.attempt,
            event: event(),
        };
        let effects = engine.start(&start, at()).unwrap();
        // Answers arrive at any time, and all arrive again after a crash.
        let given = self.answers.iter().map(|event| TurnEngineInput::Answer {
            event: Box::new(event.clone()),
        });
        ProcessIncarnation {
            engine,
            unsynced: Vec::new(),
            acknowledged_seq: u64::try_from(self.journal.len()).unwrap(),
            effects: effects.into(),
            answers: given.collect(),
            is_over: false,
        }
    }

    /// Performs one action: executes the next effect, syncs the disk, or delivers an answer.
    fn act(&mut self, life: &mut ProcessIncarnation) {
        let can_sync = !life.unsynced.is_empty();
        let choices =
            usize::from(!life.effects.is_empty()) + usize::from(can_sync) + life.answers.len();
        assert!(choices > 0, "the turn waits for nothing");
        let mut choice = self.schedule.below(choices);
        if !life.effects.is_empty() {
            if choice == 0 {
                let effect = life.effects.pop_front().unwrap();
                self.carry_out(life, effect);
                return;
            }
            choice -= 1;
        }
        if can_sync {
            if choice == 0 {
                self.journal.append(&mut life.unsynced);
                life.answers.push(TurnEngineInput::Durable {
                    turn_id: self.turn_id.clone(),
                    seq: u64::try_from(self.journal.len()).unwrap(),
                });
                return;
            }
            choice -= 1;
        }
        let input = life.answers.remove(choice);
        match &input {
            TurnEngineInput::Durable { seq, .. } => {
                life.acknowledged_seq = life.acknowledged_seq.max(*seq);
            }
            TurnEngineInput::ModelRecorded { .. } => life.acknowledged_seq = self.sent_seq(life),
            _ => {}
        }
        life.effects
            .extend(life.engine.handle(input, at()).unwrap());
    }

    fn sent_seq(&self, life: &ProcessIncarnation) -> u64 {
        u64::try_from(self.journal.len() + life.unsynced.len()).unwrap()
    }

    fn carry_out(&mut self, life: &mut ProcessIncarnation, effect: TurnEngineEffect) {
        match effect {
            TurnEngineEffect::Append { seq, event, .. } => {
                assert_eq!(seq, self.sent_seq(life) + 1, "a gap in the numbers");
                life.unsynced.push(*event);
            }
            TurnEngineEffect::AskModel {
                step,
                seq,
                message_id,
            } => {
                assert_eq!(seq, self.sent_seq(life) + 1, "a gap in the numbers");
                let is_settled = life.acknowledged_seq == self.sent_seq(life);
                assert!(is_settled || !self.has_recorder, "asked too early");
                let step_id = StepId::of_turn(&self.turn_id, step);
                let asked_before = self.messages().any(|m| m.step_id() == Some(&step_id));
                assert!(!asked_before, "a recorded reply was asked for again");
                let answer = self.answer(step);
                life.answers.push(if self.has_recorder {
                    self.record(answer, step_id, message_id)
                } else {
                    answer
                });
            }
            TurnEngineEffect::RunTool {
                key,
                call,
                may_have_begun,
                ..
            } => {
                assert_eq!(
                    life.acknowledged_seq,
                    u64::try_from(self.journal.len()).unwrap(),
                    "a tool ran too early"
                );
                let is_known = |m: &Message| m.data.content.tool_calls().contains(&call);
                assert!(self.messages().any(is_known), "an unrecorded call ran");
                let place = (key.step, key.index);
                if call.tool_name == "ask" && self.begun_runs.contains_key(&place) {
                    // An earlier process was notified of the approval.
                    assert!(may_have_begun, "it is not said that it may have begun");
                    let outcome = ToolOutcome::interrupted();
                    life.answers
                        .push(TurnEngineInput::ToolFinished { key, outcome });
                    return;
                }
                *self.begun_runs.entry(place).or_default() += 1;
                if call.tool_name != "read" {
                    let runs = self.begun_runs[&(key.step, key.index)];
                    assert_eq!(runs, 1, "a tool that is not idempotent ran twice");
                }
                life.is_over |= call.tool_name == "die";
                let outcome = ToolOutcome::ok(format!("did {}", call.id));
                life.answers
                    .push(TurnEngineInput::ToolFinished { key, outcome });
            }
            TurnEngineEffect::AskSummary { .. } => {
                panic!("no extension in this world requests a summary")
            }
            TurnEngineEffect::Observe(_) | TurnEngineEffect::Log { .. } => {}
            effect @ (TurnEngineEffect::Assemble
            | TurnEngineEffect::Enter(_)
            | TurnEngineEffect::Return { .. }) => {
                assert_eq!(
                    life.acknowledged_seq,
                    self.sent_seq(life),
                    "a module is asked too early"
                );
                let modules = self.modules.as_mut().unwrap();
                life.answers.push(modules.answer(effect));
            }
            TurnEngineEffect::Complete {
                last_seq,
                outcome,
                answered,
                ..
            } => {
                // The commit is recorded after the events it covers; one sync makes both durable,
                // and the events are acknowledged before the commit.
                self.journal.append(&mut life.unsynced);
                let durable = u64::try_from(self.journal.len()).unwrap();
                assert_eq!(last_seq, durable, "an event would be lost");
                let turn_id = self.turn_id.clone();
                let seq = durable;
                life.answers.push(TurnEngineInput::Durable { turn_id, seq });
                for answer in std::mem::take(&mut life.answers) {
                    if matches!(answer, TurnEngineInput::Durable { .. }) {
                        assert_eq!(life.engine.handle(answer, at()).unwrap(), []);
                    } else {
                        life.answers.push(answer);
                    }
                }
                assert_eq!(
                    life.engine.conversation().to_messages().unwrap(),
                    self.history(),
                    "memory differs from disk"
                );
                self.outcome = Some(outcome);
                self.states = life.engine.changed_states();
                self.answered = answered;
                let turn_id = self.turn_id.clone();
                let rest = life
                    .engine
                    .handle(TurnEngineInput::Committed { turn_id }, at())
                    .unwrap();
                assert_eq!(rest, []);
                assert_eq!(life.engine.turn_id(), None);
            }
        }
    }

    /// A model whose replies the orchestrator records: a recorded reply is durable before the
    /// engine receives it, and stays durable if the engine never does.
    fn record(
        &mut self,
        answer: TurnEngineInput,
        step_id: StepId,
        message_id: MessageId,
    ) -> TurnEngineInput {
        let TurnEngineInput::ModelReplied { step, reply } = answer else {
            return answer;
        };
        let content = MessageContent::assistant(&reply.text, &reply.calls);
        let message = Message::assistant(message_id, at(), step_id, content);
        let append = MessageEvent::Append {
            message: message.clone(),
        };
        self.journal.push(append);
        let message = Box::new(message);
        TurnEngineInput::ModelRecorded { step, message }
    }

    fn answer(&self, step: u32) -> TurnEngineInput {
        let act = &self.plan[usize::try_from(step).unwrap() - 1];
        match act {
            Act::Fail(message) => TurnEngineInput::ModelFailed {
                step,
                error: ModelError::new(*message),
            },
            Act::Say(text) => TurnEngineInput::ModelReplied {
                step,
                reply: ModelReply {
                    text: (*text).to_owned(),
                    calls: Vec::new(),
                },
            },
            Act::Call(tools) => {
                let calls = tools.iter().enumerate().map(|(index, tool)| ToolCall {
                    id: ToolCallId::new(format!("{step}:{index}")).unwrap(),
                    tool_name: (*tool).to_owned(),
                    input: json!({}),
                });
                TurnEngineInput::ModelReplied {
                    step,
                    reply: ModelReply {
                        text: String::new(),
                        calls: calls.collect(),
                    },
                }
            }
        }
    }

    fn messages(&self) -> impl Iterator<Item = &Message> {
        self.journal.iter().filter_map(|event| match event {
            MessageEvent::Append { message } => Some(message),
            _ => None,
        })
    }

    fn history(&self) -> Vec<Message> {
        let mut history = Conversation::from_base(self.base.clone());
        for event in &self.journal {
            history.apply(event.clone()).unwrap();
        }
        history.to_messages().unwrap()
    }

    /// Invariants that hold at every instant, crashes included.
    fn check_history(&self) {
        let history = self.history();
        let ids: BTreeSet<_> = history.iter().map(|m| m.id.as_str()).collect();
        assert_eq!(ids.len(), history.len(), "a message is there twice");
    }

    /// Invariants at the end: one user message, and after each call its one result, in order except
    /// for calls that wait for a person.
    fn check_pairs(&self) {
        let users = self.messages().filter(|m| m.data.role == MessageRole::User);
        assert_eq!(users.count(), 1 + self.answered.len());
        let by = |message: &Message| message.metadata.get("eventId").cloned();
        let came: Vec<_> = self.messages().filter_map(by).collect();
        for event_id in &self.answered {
            let times = came.iter().filter(|id| **id == json!(event_id)).count();
            assert_eq!(times, 1, "{event_id} is over, and there {times} times");
        }
        let mut awaited: Vec<ToolCall> = Vec::new();
        for message in self.messages() {
            let is_user = message.data.role == MessageRole::User;
            let is_of_extension = matches!(message.source, MessageSource::Extension { .. });
            let is_between = (is_user || is_of_extension) && !awaited.is_empty();
            assert!(!is_between, "between call and result");
            for result in message.data.content.tool_results() {
                let id = result.tool_call_id;
                let place = awaited.iter().position(|call| call.id == id);
                let place = place.expect("a result of no call");
                let mut before = awaited[..place].iter();
                assert!(before.all(|call| call.tool_name == "ask"), "out of order");
                awaited.remove(place);
            }
            let calls = message.data.content.tool_calls();
            assert!(
                calls.is_empty() || awaited.is_empty(),
                "a result is missing"
            );
            awaited.extend(calls);
        }
        assert!(awaited.is_empty(), "a result is missing at the end");
    }

    fn results(&self) -> Vec<(String, bool)> {
        self.messages()
            .flat_map(|m| m.data.content.tool_results())
            .map(|result| (result.text, result.is_error))
            .collect()
    }
}

impl ModelLocation {
    /// The orchestrator records the replies of a model outside the process.
    pub(super) fn of_recorder(has_recorder: bool) -> Self {
        if has_recorder {
            Self::Outside
        } else {
            Self::Inside
        }
    }
}

fn limits(step_count_max: u32, has_recorder: bool) -> TurnLimits {
    TurnLimits {
        step_count_max,
        loop_breaker: LoopBreaker::default(),
        model: ModelLocation::of_recorder(has_recorder),
    }
}

fn at() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

fn event() -> AgentEvent {
    AgentEvent {
        id: EventId::new("e").unwrap(),
        kind: "message".to_owned(),
        created_at: at(),
        trace_id: None,
        parent_span_id: None,
        input: Some("question".to_owned()),
        header: None,
        properties: goondan_protocol::JsonObject::new(),
        instance_key: None,
        source: EventSource::Connector {
            name: "cli".parse().unwrap(),
        },
        auth: None,
        reply_to: None,
        chain: None,
        join: None,
        metadata: goondan_protocol::JsonObject::new(),
    }
}

/// Plans that reach every path of a turn, with the outcome each must have.
fn plans() -> Vec<(Vec<Act>, u32, TurnOutcome)> {
    let completed = |reply: &str| TurnOutcome::Completed {
        reply: reply.to_owned(),
    };
    let failed = |code: &str, message: &str| TurnOutcome::Failed {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    let too_many = "the turn needs more than 2 steps; raise `maxStepsPerTurn` in the swarm's \
                    policy, or ask for less at a time";
    let same_calls = "the last 8 steps made the same calls with the same results (`bad`); fix the \
                      prompt or the tool, or raise `loopBreaker.sameCallsMax` in the swarm's policy";
    vec![
        (vec![Act::Say("hi")], 2, completed("hi")),
        (vec![Act::Fail("no rule")], 2, failed("E_MODEL", "no rule")),
        (
            vec![
                Act::Call(vec!["run"]),
                Act::Call(vec!["read", "bad", "run"]),
                Act::Call(vec!["ask", "run", "ask"]),
                Act::Say("done"),
            ],
            4,
            completed("done"),
        ),
        (
            vec![Act::Call(vec!["run"]), Act::Call(vec!["bad"])],
            2,
            failed("E_MAX_STEPS", too_many),
        ),
        (
            vec![Act::Call(vec!["bad"]); 8],
            9,
            failed("E_LOOP", same_calls),
        ),
        (
            vec![Act::Call(vec!["run", "read"]), Act::Fail("broken")],
            3,
            failed("E_MODEL", "broken"),
        ),
    ]
}

#[test]
fn a_crash_at_every_single_action_changes_nothing_but_time() {
    for (plan, steps, expected) in plans() {
        for seed in 0..20 {
            let mut whole = World::new(&plan, steps, seed, &[]);
            whole.play();
            assert_eq!(whole.outcome.as_ref(), Some(&expected));
            for crash_at in 1..=whole.action_count {
                let mut world = World::new(&plan, steps, seed, &[crash_at]);
                world.play();
                assert_eq!(
                    world.outcome.as_ref(),
                    Some(&expected),
                    "{plan:?}, seed {seed}, crash after action {crash_at}"
                );
                world.check_pairs();
            }
        }
    }
}

#[test]
fn without_crash_each_call_runs_once_and_its_result_is_recorded() {
    let plan = [Act::Call(vec!["read", "bad", "run"]), Act::Say("done")];
    let mut world = World::new(&plan, 9, 3, &[]);
    world.play();
    let expected = [
        ("did 1:0".to_owned(), false),
        ("E_TOOL_NOT_IN_CATALOG: `bad`".to_owned(), true),
        ("did 1:2".to_owned(), false),
    ];
    assert_eq!(world.results(), expected);
    let runs: Vec<_> = world.begun_runs.into_iter().collect();
    assert_eq!(runs, [((1, 0), 1), ((1, 2), 1)]);
}

#[test]
fn cut_off_call_is_reported_interrupted_unless_idempotent() {
    let plan = [Act::Call(vec!["run", "read"]), Act::Say("done")];
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        for crash_at in 1..40 {
            let mut world = World::new(&plan, 9, seed, &[crash_at]);
            world.play();
            let results = world.results();
            assert_eq!(results[1], ("did 1:1".to_owned(), false));
            seen.insert(results[0].clone());
        }
    }
    let interrupted = "E_TOOL_INTERRUPTED: interrupted: the process ended while this call ran; its \
                       outcome is unknown";
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [
            (interrupted.to_owned(), true),
            ("did 1:0".to_owned(), false),
        ]
    );
}

#[test]
fn call_during_repeated_process_crashes_is_not_a_loop() {
    let LoopBreaker {
        same_calls_max,
        no_progress_steps_max,
    } = LoopBreaker::default();
    let act = Act::Call(vec!["die"]);
    let step_count = same_calls_max.max(no_progress_steps_max) + 1;
    let mut plan = vec![act; usize::try_from(step_count).unwrap()];
    plan.push(Act::Say("done"));
    for seed in 0..40 {
        let mut world = World::new(&plan, step_count + 1, seed, &[]);
        world.play();
        world.check_pairs();
        let reply = "done".to_owned();
        assert_eq!(world.outcome, Some(TurnOutcome::Completed { reply }));
        assert_eq!(world.attempt, step_count + 1, "it ended not in each call");
    }
}

#[test]
fn steer_3_pending_approval_survives_crash_and_call_starts_once() {
    let plan = [Act::Call(vec!["ask", "run"]), Act::Say("done")];
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        for crash_at in 1..40 {
            let mut world = World::new(&plan, 9, seed, &[crash_at]);
            world.play();
            world.check_pairs();
            let results = world.messages().flat_map(|m| m.data.content.tool_results());
            let mut of_asked = results.filter(|result| result.tool_call_id.as_str() == "1:0");
            seen.insert(of_asked.next().unwrap().is_error);
            assert!(world.begun_runs[&(1, 0)] == 1, "it began not once");
        }
    }
    assert_eq!(seen.len(), 2, "both ends were seen: done, and cut short");
}

#[test]
fn a_broken_protocol_is_refused() {
    let mut world = World::new(&[Act::Say("hi")], 9, 0, &[]);
    let turn_id = world.turn_id.clone();
    let start = |id: &str| TurnStart {
        turn_id: TurnId::new(id).unwrap(),
        attempt: 1,
        event: event(),
    };
    let mut engine = world.born().engine;
    assert!(engine.start(&start("t2"), at()).is_err(), "a second turn");
    let early = TurnEngineInput::Durable { turn_id, seq: 2 };
    assert!(engine.handle(early, at()).is_err(), "durable before sent");

    let mut open = OpenTurn::default();
    open.push(Some("other".parse().unwrap()), MessageEvent::Truncate);
    let mut engine = Engine::new(
        SimulatedToolRules,
        limits(9, true),
        extensions(),
        Conversation::default(),
        open,
    );
    let error = engine.start(&start("t"), at()).unwrap_err();
    assert!(error.to_string().contains("`other`"), "{error}");

    let mut idle = Engine::new(
        SimulatedToolRules,
        limits(9, true),
        extensions(),
        Conversation::default(),
        OpenTurn::default(),
    );
    let key = CallKey { step: 1, index: 0 };
    let outcome = ToolOutcome::ok("");
    let stray = TurnEngineInput::ToolFinished { key, outcome };
    assert!(idle.handle(stray, at()).is_err(), "a result without a turn");
}

fn answer(n: usize) -> AgentEvent {
    let mut answer = AgentEvent {
        id: format!("t.1:q{n}:a").parse().unwrap(),
        kind: REPLY_KIND.to_owned(),
        ..event()
    };
    let question = json!(format!("t.1:q{n}"));
    answer.metadata.insert(IN_REPLY_TO.to_owned(), question);
    answer
}

#[test]
fn ipc_2_answer_joins_the_next_step_and_expires_with_the_turn() {
    let plan = [Act::Call(vec!["read"]), Act::Say("done")];
    let mut taken_in = 0;
    for seed in 0..40 {
        let mut world = World::new(&plan, 9, seed, &[]);
        world.answers = vec![answer(0)];
        world.play();
        world.check_pairs();
        taken_in += world.answered.len();
    }
    assert!(taken_in > 20, "it was taken in {taken_in} of 40 times");
}

fn any_act() -> impl Strategy<Value = Act> {
    prop::collection::vec(
        prop::sample::select(vec!["run", "read", "bad", "ask"]),
        1..5,
    )
    .prop_map(Act::Call)
}

proptest! {
    /// Answers that arrive at any time are taken in at most once, never between a call and its
    /// result. All other answers stay in the inbox.
    #[test]
    fn ipc_2_answers_are_taken_at_most_once_despite_crashes(
        mut plan in prop::collection::vec(any_act(), 0..4),
        seed in any::<u64>(),
        crashes in prop::collection::vec(1usize..30, 0..8),
        count in 1usize..4,
    ) {
        plan.push(Act::Say("done"));
        let mut world = World::new(&plan, 9, seed, &crashes);
        world.answers = (0..count).map(answer).collect();
        world.play();
        world.check_pairs();
    }

    /// Any turn, any schedule, any number of crashes.
    #[test]
    fn many_crashes_change_nothing_but_time(
        mut plan in prop::collection::vec(any_act(), 0..4),
        seed in any::<u64>(),
        crashes in prop::collection::vec(1usize..30, 0..8),
    ) {
        plan.push(Act::Say("done"));
        let mut world = World::new(&plan, 9, seed, &crashes);
        world.play();
        prop_assert_eq!(
            world.outcome.clone(),
            Some(TurnOutcome::Completed { reply: "done".to_owned() })
        );
        world.check_pairs();
    }
}
