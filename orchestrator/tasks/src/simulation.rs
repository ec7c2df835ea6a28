//! Simulates whole lives of tasks: an agent that reports falsehoods, hangs, floods and exits at any
//! time, people who repeat every input, and a daemon that dies at any disk operation.
//!
//! Oracle: acknowledged facts are never lost or changed; an answer or message is accepted once and
//! delivered once; two runs never live concurrently, and none outlives its task; every task ends eventually.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use goondan_cli_agents::blocks::{
    AgentError, Block, CustomTaskComplete, DependencyKind, DependencyRequest, ErrorKind,
    PhaseComplete, QuestionCategory, UserQuestion,
};
use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_cli_agents::{CliEvent, InvalidBlock, PermissionRequest, Reset, RunResult};
use goondan_durable::disk::{Crash, Disk as _, SimulatedDisk, read_all};
use goondan_protocol::control::TaskProposal;
use goondan_protocol::ids::AgentName;
use goondan_protocol::task::{NotifyOn, PlanStep, PlanStepState, TaskChecks, TaskSource};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::Usage;

use crate::fact::{
    Budget, FallbackAgent, HistoryEntry, InputOutcome, NewTask, Notification, Provision,
    RunOutcome, Runtime, TaskEvent, TaskId,
};
use crate::machine::{AgentProfile, Delivery, Task, TaskEffect, TaskInput};
use crate::state::{Note, NotificationStage, PersonInputKind, State, Status};
use crate::work_area::WorkArea;

const ROOT: &str = "/p/task";
const PHASES: u32 = 2;

struct World {
    random: fastrand::Rng,
    disk: SimulatedDisk,
    area: WorkArea,
    task: Task,
    now: i64,
    /// Run whose process is alive, and true if it was asked to end.
    process: Option<(u64, bool)>,
    /// Acknowledged answers by their ids, and acknowledged facts.
    answers: BTreeMap<String, String>,
    facts: Vec<HistoryEntry>,
    runs: BTreeSet<u64>,
    sent: BTreeSet<String>,
    /// Phase whose proposal is being created.
    proposing: Option<u32>,
    crashes: u32,
    messages: u32,
}

fn notification() -> Notification {
    Notification {
        on: NotifyOn::Review,
        connection: "ops".parse().unwrap(),
        service: "telegram".to_owned(),
        action: "send".to_owned(),
        args: serde_json::Value::Null,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new();
        for dir in ["/p", ROOT] {
            disk.create_dir(Path::new(dir)).unwrap();
            disk.sync_dir(Path::new(dir).parent().unwrap()).unwrap();
        }
        let new = NewTask {
            runtime: Runtime::Cli,
            task_id: TaskId::try_from("task".to_owned()).unwrap(),
            title: "t".to_owned(),
            kind: "k".to_owned(),
            description: "Do it.".to_owned(),
            total_phases: if seed.is_multiple_of(4) { 0 } else { PHASES },
            budget: Budget {
                tokens: Some(50_000),
                micro_usd: None,
                disk_bytes: None,
            },
            agent: "coder".parse().unwrap(),
            tells_result: !seed.is_multiple_of(3),
            created_by: None,
            source: if seed.is_multiple_of(2) && !seed.is_multiple_of(4) {
                TaskSource::Project
            } else {
                TaskSource::None
            },
            checks: TaskChecks {
                setup: seed % 8 == 2,
                verify: !seed.is_multiple_of(3) && seed % 8 >= 2,
            },
            fallbacks: if seed % 8 < 5 {
                let others = AGENTS.iter().skip(1).map(|name| FallbackAgent {
                    agent: name.parse().unwrap(),
                    tells_result: true,
                });
                others.collect()
            } else {
                Vec::new()
            },
            model: None,
        };
        let (root, now) = (Path::new(ROOT), Timestamp::from_unix_millis(0));
        let folder = disk.folder(root);
        let made = WorkArea::create(&disk, folder.as_ref(), root, new, None, now);
        let (area, mut task) = made.unwrap();
        task.set_agents(agents());
        let facts = history(&disk);
        Self {
            random: fastrand::Rng::with_seed(seed),
            disk,
            area,
            task,
            now: 0,
            process: None,
            answers: BTreeMap::new(),
            facts,
            runs: BTreeSet::new(),
            sent: BTreeSet::new(),
            proposing: None,
            crashes: 0,
            messages: 0,
        }
    }

    fn state(&self) -> &State {
        self.task.state()
    }

    fn feed(&mut self, input: TaskInput) {
        let said = match &input {
            TaskInput::Answer { id, text } => Some((id.clone(), text.clone())),
            _ => None,
        };
        let before = said.as_ref().map(|(id, _)| self.is_open(id));
        let handled = self
            .task
            .handle(input, Timestamp::from_unix_millis(self.now));
        let Ok(output) = handled else {
            assert!(said.is_some() || before.is_none());
            return;
        };
        if self
            .area
            .write(&self.disk, self.task.state(), &output.facts)
            .is_err()
        {
            self.restart();
            return;
        }
        self.facts.extend(output.facts);
        if let Some((id, text)) = said {
            assert_eq!(before, Some(true), "`{id}` was answered twice");
            assert_eq!(self.answers.insert(id, text), None);
        }
        for effect in output.effects {
            self.carry_out(&effect);
        }
    }

    fn is_open(&self, id: &str) -> bool {
        self.state().open_asks().any(|(open, _)| open == id)
    }

    fn carry_out(&mut self, effect: &TaskEffect) {
        match *effect {
            TaskEffect::StartRun {
                run,
                ref session,
                ref prompt,
                kind,
                ..
            } => {
                assert_eq!(self.process, None, "two runs at a time");
                let state = self.state();
                if let Some(before) = &state.hand_over
                    && state.has_begun
                    && kind.is_agent()
                {
                    let is_told = prompt.contains(&format!("Another agent, `{}`", before.from));
                    let is_new = session.is_none() && !state.is_session_lost;
                    assert_eq!(is_told, is_new, "{prompt}");
                }
                assert!(self.runs.insert(run), "run {run} is started twice");
                assert!(!self.state().status().is_final(), "a run after the end");
                self.process = Some((run, false));
            }
            TaskEffect::EndRun { run } => {
                assert_eq!(self.process.map(|(run, _)| run), Some(run));
                self.process = Some((run, true));
            }
            TaskEffect::AnswerPermission { run, .. }
            | TaskEffect::PauseRun { run }
            | TaskEffect::ContinueRun { run } => {
                assert_eq!(self.process.map(|(run, _)| run), Some(run));
            }
            TaskEffect::MakeProposal { phase, .. } => {
                assert_eq!(self.process, None, "its files may still change");
                assert_eq!(self.proposing.replace(phase), None, "it is made twice");
            }
            TaskEffect::MakeCheckpoint { .. }
            | TaskEffect::CheckHandoff { .. }
            | TaskEffect::FindDocuments { .. } => {}
            TaskEffect::Notify { ref id } => {
                let stage = self.state().notification(id).map(|told| &told.stage);
                assert_eq!(
                    stage,
                    Some(&NotificationStage::Requested),
                    "nothing was done yet"
                );
            }
            TaskEffect::SendNotification { ref id } => {
                assert!(self.sent.insert(id.clone()), "`{id}` is sent twice");
            }
        }
    }

    /// Creates the requested proposal.
    fn propose(&mut self) {
        if let Some(phase) = self.proposing.take() {
            let proposal = TaskProposal {
                digest: format!("d{}", self.random.u8(..)),
                files: Vec::new(),
                more_files: 1,
                is_delivered: false,
                branch: None,
                pull_request: None,
            };
            let results = [Ok(Some(proposal)), Ok(None), Err("no room".to_owned())];
            let result = results[self.random.usize(..3)].clone();
            self.feed(TaskInput::ProposalMade { phase, result });
        }
    }

    /// Approves a phase, usually once its proposal is in the project, sometimes before.
    fn approve(&mut self, phase: u32) {
        let proposal = self.state().to_deliver(phase);
        let digest = proposal.map(|proposal| proposal.digest.clone());
        let delivery = match digest.filter(|_| self.random.u8(..4) > 0) {
            Some(digest) => Delivery::Delivered {
                digest,
                branch: None,
                pull_request: None,
            },
            None if self.random.bool() => Delivery::Left,
            None => Delivery::None,
        };
        let was_delivered = matches!(delivery, Delivery::Delivered { .. });
        let is_wanted = self.state().to_deliver(phase).is_some();
        let is_left = delivery == Delivery::Left;
        self.feed(TaskInput::Approve { phase, delivery });
        let is_approved = self.state().review() != Some(phase);
        assert!(
            !is_wanted || !is_approved || was_delivered || is_left,
            "{phase}"
        );
    }

    /// Advances a notification by one step.
    fn tell_people(&mut self) {
        let open = self.state().open_notifications();
        let open: Vec<(String, NotificationStage)> =
            open.map(|(id, told)| (id, told.stage.clone())).collect();
        match open.first().cloned() {
            Some((id, NotificationStage::Requested)) => {
                self.feed(TaskInput::NotificationBegun { id });
            }
            Some((id, _)) => {
                let result = Ok(());
                self.feed(TaskInput::NotificationEnded { id, result });
            }
            None => self.feed(TaskInput::Notify(vec![notification()])),
        }
    }

    /// The daemon and its children have died, and a new one starts.
    fn restart(&mut self) {
        self.crashes += 1;
        let crash = match self.random.u8(..4) {
            0 => Crash::LoseUnsynced,
            1 => Crash::KeepUnsynced,
            2 => Crash::ProcessOnly,
            _ => Crash::Subset(self.random.u64(..)),
        };
        self.disk = self.disk.after_crash(crash);
        let (area, task, _) = WorkArea::load(&self.disk, Path::new(ROOT)).unwrap();
        (self.area, self.task) = (area, task);
        self.task.set_agents(agents());
        let found = history(&self.disk);
        assert!(found.starts_with(&self.facts), "acknowledged data is lost");
        self.facts = found;
        for (id, ask) in &self.state().asks {
            if let PersonInputKind::Question(_, _, Some(InputOutcome::Person(text))) = &ask.what {
                let known = self.answers.get(id);
                assert!(
                    known.is_none_or(|known| known == text),
                    "an answer has changed"
                );
            }
        }
        let asks = self.state().asks.clone();
        for (id, ask) in asks {
            if let PersonInputKind::Question(_, _, Some(InputOutcome::Person(text))) = ask.what {
                self.answers.insert(id, text);
            }
        }
        let lost = self.state().open_notifications();
        let lost = lost.filter(|(_, told)| told.stage == NotificationStage::Begun);
        let lost: Vec<String> = lost.map(|(id, _)| id).collect();
        self.sent.extend(lost.iter().cloned());
        self.process = None;
        self.proposing = None;
        for id in lost {
            let result = Err("nobody knows".to_owned());
            self.feed(TaskInput::NotificationEnded { id, result });
        }
        if let Some(run) = &self.state().run {
            let run = run.number;
            self.runs.insert(run);
            self.feed(TaskInput::Exited { run, code: None });
        } else {
            self.feed(TaskInput::Tick);
        }
    }

    fn exit(&mut self) {
        if let Some((run, _)) = self.process.take() {
            let code = [None, Some(0), Some(1)][self.random.usize(..3)];
            self.feed(TaskInput::Exited { run, code });
        }
    }

    fn any_ask(&mut self) -> Option<String> {
        let ids: Vec<String> = self.state().asks.keys().cloned().collect();
        let count = ids.len();
        (count > 0).then(|| ids[self.random.usize(..count)].clone())
    }

    fn agent_event(&mut self) -> CliEvent {
        let number = self.random.u32(..4);
        let phase = self.state().current_phase;
        match self.random.u8(..16) {
            0 => CliEvent::Session {
                id: format!("s{}", number % 2),
                model: None,
            },
            1 => {
                let usage = Usage {
                    input_tokens: self.random.u64(..3000),
                    ..Usage::default()
                };
                CliEvent::Usage(UsageReport {
                    counter: Counter::Run,
                    usage,
                    cost: None,
                    session: None,
                })
            }
            2 | 3 => CliEvent::Block(Block::UserQuestion(UserQuestion {
                category: QuestionCategory::Choice,
                question: format!("{number}?"),
                options: Vec::new(),
                default: None,
                required: self.random.bool(),
            })),
            4 => CliEvent::Block(Block::DependencyRequest(DependencyRequest {
                kind: DependencyKind::Service,
                name: format!("service{number}"),
                description: String::new(),
                required: self.random.bool(),
                default: None,
            })),
            5 => complete(phase),
            6 => complete(number),
            7 => CliEvent::Block(Block::Error(AgentError {
                kind: if self.random.u8(..10) == 0 {
                    ErrorKind::Fatal
                } else {
                    ErrorKind::Recoverable
                },
                message: "x".to_owned(),
                recovery: None,
            })),
            8 => CliEvent::Block(Block::CustomTaskComplete(CustomTaskComplete {
                documents: Vec::new(),
            })),
            9 | 10 => CliEvent::Result(RunResult {
                is_ok: self.random.bool(),
                text: "t".to_owned(),
                denied: Vec::new(),
            }),
            11 => CliEvent::RateLimit(Reset::After(Duration::from_secs(self.random.u64(..9999)))),
            12 => CliEvent::Permission(PermissionRequest {
                id: format!("p{number}"),
                tool: "Bash".to_owned(),
                input: serde_json::Value::Null,
                options: Vec::new(),
                ..PermissionRequest::default()
            }),
            13 => CliEvent::PermissionWithdrawn {
                id: format!("p{number}"),
            },
            14 => CliEvent::Refused(InvalidBlock {
                protocol: "ERROR".to_owned(),
                problem: "it is not closed".to_owned(),
            }),
            15 if number == 1 => CliEvent::Plan(vec![PlanStep {
                title: format!("step {phase}"),
                state: PlanStepState::InProgress,
            }]),
            15 if number == 0 => CliEvent::SessionRefused("not found".to_owned()),
            _ => CliEvent::Text("words".to_owned()),
        }
    }

    fn wild_step(&mut self) {
        if self.random.u8(..12) == 0 {
            self.disk
                .crash_at(self.disk.calls() + self.random.u64(1..12));
        }
        // A program whose limit is reached usually exits before anything else happens.
        let has_choice = !self.state().task.fallbacks.is_empty();
        if let Some((run, _)) = self.process.filter(|_| has_choice)
            && self.random.u8(..8) == 0
        {
            let reset = Reset::After(Duration::from_secs(self.random.u64(..9999)));
            let event = CliEvent::RateLimit(reset);
            self.feed(TaskInput::Told { run, event });
            return self.exit();
        }
        let phase = self.random.u32(..PHASES + 2);
        match self.random.u8(..21) {
            0..=9 => {
                let event = self.agent_event();
                // Occasionally from a run that is over.
                let run = self.process.map_or(self.random.u64(..5), |(run, _)| run);
                if self.process.is_some()
                    || self
                        .state()
                        .run
                        .as_ref()
                        .is_none_or(|now| now.number != run)
                {
                    self.feed(TaskInput::Told { run, event });
                }
            }
            10 | 11 => self.exit(),
            12 | 13 => {
                if let Some(id) = self.any_ask() {
                    let text = ["go on", "allow", "yes"][self.random.usize(..3)].to_owned();
                    self.feed(TaskInput::Answer {
                        id: id.clone(),
                        text: text.clone(),
                    });
                    self.feed(TaskInput::Answer { id, text });
                }
            }
            14 => {
                if let Some(id) = self.any_ask() {
                    let provision = Provision::Ready("it runs".to_owned());
                    self.feed(TaskInput::Provide { id, provision });
                }
            }
            15 => {
                self.propose();
                self.approve(phase);
            }
            16 => {
                let text = "better".to_owned();
                self.feed(TaskInput::Rework {
                    phase,
                    text,
                    comments: Vec::new(),
                });
            }
            17 => {
                let input = [TaskInput::Pause, TaskInput::Resume, TaskInput::Start]
                    [self.random.usize(..3)]
                .clone();
                self.feed(input);
            }
            18 if self.random.u8(..20) == 0 => self.feed(TaskInput::Cancel),
            18 => self.tell_people(),
            // A task that has ended is left alone, as a rule.
            19 if self
                .random
                .u8(..if self.state().ended.is_none() { 4 } else { 16 })
                == 0 =>
            {
                self.messages += 1;
                let text = format!("m{}", self.messages);
                let id = Some(text.clone());
                for _ in 0..2 {
                    let (id, text) = (id.clone(), text.clone());
                    self.feed(TaskInput::Say { id, text });
                }
            }
            19 => {}
            _ => {
                self.now += self.random.i64(0..2_000_000);
                if self.random.u8(..8) == 0 {
                    self.now -= 3_000_000;
                }
                self.feed(TaskInput::Tick);
            }
        }
        if self.process.is_some_and(|(_, is_ending)| is_ending) && self.random.bool() {
            self.exit();
        }
    }

    /// A step in which everyone cooperates: the agent does its phase, and people answer.
    fn kind_step(&mut self) {
        self.now = self.now.max(self.state().updated_at.as_unix_millis()) + 1_000_000_000;
        let budget = Budget::default();
        self.feed(TaskInput::SetBudget(budget));
        self.feed(TaskInput::Start);
        self.feed(TaskInput::Resume);
        let open: Vec<String> = self
            .state()
            .open_asks()
            .map(|(id, _)| id.to_owned())
            .collect();
        for id in open {
            for text in ["go on", "allow", "yes"] {
                if self.is_open(&id) {
                    self.feed(TaskInput::Answer {
                        id: id.clone(),
                        text: text.to_owned(),
                    });
                }
            }
            let provision = Provision::Ready("it runs".to_owned());
            self.feed(TaskInput::Provide { id, provision });
        }
        self.propose();
        for phase in 1..=PHASES {
            self.approve(phase);
        }
        self.feed(TaskInput::Tick);
        if let Some((run, is_ending)) = self.process {
            if !is_ending {
                let phase = self.state().current_phase;
                self.feed(TaskInput::Told {
                    run,
                    event: CliEvent::Text("I work".to_owned()),
                });
                if self.state().run.is_some() {
                    let done = if phase == 0 {
                        CliEvent::Block(Block::CustomTaskComplete(CustomTaskComplete {
                            documents: Vec::new(),
                        }))
                    } else {
                        complete(phase)
                    };
                    self.feed(TaskInput::Told { run, event: done });
                    let is_ok = true;
                    let (text, denied) = (String::new(), Vec::new());
                    let result = RunResult {
                        is_ok,
                        text,
                        denied,
                    };
                    self.feed(TaskInput::Told {
                        run,
                        event: CliEvent::Result(result),
                    });
                }
            }
            self.process = None;
            self.feed(TaskInput::Exited { run, code: Some(0) });
        }
    }

    fn messages(&self) -> Vec<String> {
        let facts = self.facts.iter();
        let messages = facts.filter_map(|entry| match &entry.fact {
            TaskEvent::MessageSent { text, .. } => Some(text.clone()),
            _ => None,
        });
        messages.collect()
    }

    /// Number of times that each answer, and each message, was delivered to an agent that accepted
    /// it.
    fn notification_counts(&self) -> BTreeMap<String, u32> {
        let mut told = BTreeMap::new();
        let mut state: Option<State> = None;
        for entry in &self.facts {
            if let TaskEvent::TaskCreated(task) = &entry.fact {
                state = Some(State::new(task.clone(), entry.timestamp));
                continue;
            }
            let state = state.as_mut().unwrap();
            let before = state.notes.clone();
            state.apply(entry);
            if matches!(entry.fact, TaskEvent::PromptTaken { .. }) {
                let taken = before.len() - state.notes.len();
                for note in &before[..taken] {
                    if let Note::Asked(id) | Note::Message(id) = note {
                        *told.entry(id.clone()).or_insert(0) += 1;
                    }
                }
            }
        }
        told
    }
}

/// Agents of a task with several.
const AGENTS: [&str; 3] = ["coder", "codex", "gemini"];

fn agents() -> BTreeMap<AgentName, AgentProfile> {
    let names = AGENTS.iter().map(|name| name.parse().unwrap());
    names.map(|name| (name, AgentProfile::default())).collect()
}

/// Checks that each change of the agent follows a limit of the one before that is still reached,
/// and that the first run after it begins a session. Returns the number of changes.
fn check_changes(facts: &[HistoryEntry], seed: u64) -> usize {
    let mut changes = 0;
    let mut agent = AGENTS[0].to_owned();
    let mut limits: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut is_new = false;
    for entry in facts {
        match &entry.fact {
            TaskEvent::RunEnded {
                outcome: RunOutcome::RateLimited(until),
                ..
            } => {
                limits.insert(agent.clone(), *until);
            }
            TaskEvent::AgentChanged { from, to, until } => {
                assert_eq!(from.as_str(), agent, "seed {seed}");
                assert_eq!(limits.get(&agent), Some(until), "seed {seed}");
                assert_ne!(from, to, "seed {seed}");
                agent = to.as_str().to_owned();
                (is_new, changes) = (true, changes + 1);
            }
            TaskEvent::RunRequested {
                agent: Some(of),
                session,
                ..
            } => {
                assert_eq!(of.as_str(), agent, "seed {seed}");
                assert!(!is_new || session.is_none(), "seed {seed}: {session:?}");
                is_new = false;
            }
            _ => {}
        }
    }
    changes
}

fn complete(phase: u32) -> CliEvent {
    let documents = Vec::new();
    CliEvent::Block(Block::PhaseComplete(PhaseComplete { phase, documents }))
}

fn history(disk: &SimulatedDisk) -> Vec<HistoryEntry> {
    let path = Path::new(ROOT).join(".metadata/history.jsonl");
    let mut file = disk.open_read(&path).unwrap();
    let bytes = read_all(file.as_mut(), 1 << 24).unwrap();
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn task_7_whole_lives_lose_nothing_and_do_nothing_twice() {
    let seeds = match std::env::var("GOONDAN_TEST_TASK_LIVES") {
        Ok(seeds) => seeds.parse().unwrap(),
        Err(_) => 300,
    };
    let (mut ends, mut crashes, mut answers) = (BTreeSet::new(), 0, 0);
    let (mut tellings, mut sayings, mut changes) = (0, 0, 0);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.wild_step();
        }
        if world.disk.is_down() {
            world.restart();
        }
        world.disk.crash_at(u64::MAX);
        for _ in 0..100 {
            if world.state().status().is_final() && world.process.is_none() {
                break;
            }
            world.kind_step();
        }
        let state = world.state();
        assert!(
            state.status().is_final(),
            "seed {seed}: it never ends: {state:#?}"
        );
        assert!(state.run.is_none(), "seed {seed}: a run outlives its task");
        let told = world.notification_counts();
        assert!(
            told.values().all(|times| *times == 1),
            "seed {seed}: {told:?}"
        );
        let messages = world.messages();
        let distinct: BTreeSet<&String> = messages.iter().collect();
        assert_eq!(distinct.len(), messages.len(), "seed {seed}: {messages:?}");
        if state.status() == Status::Completed {
            let lost = messages.iter().find(|text| !told.contains_key(*text));
            assert_eq!(lost, None, "seed {seed}: {told:?}");
        }
        sayings += messages.len();
        changes += check_changes(&world.facts, seed);
        let (_, again, _) = WorkArea::load(&world.disk, Path::new(ROOT)).unwrap();
        assert_eq!(again.state(), state, "seed {seed}");
        ends.insert(state.status());
        crashes += world.crashes;
        answers += world.answers.len();
        tellings += told.len();
    }
    let all = [Status::Completed, Status::Failed, Status::Cancelled];
    assert_eq!(ends, all.into(), "not every end was met");
    assert!(
        crashes > 100 && answers > 200 && tellings > 300 && sayings > 200 && changes > 50,
        "{crashes} crashes, {answers} answers, {tellings} tellings, {sayings} messages, {changes} changes of the agent"
    );
}
