use goondan_cli_agents::RunResult;
use goondan_cli_agents::blocks::{
    AgentError, Block, DependencyKind, DependencyRequest, ErrorKind, PhaseComplete,
};
use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_cli_agents::{InvalidBlock, PermissionRequest, Reset};
use goondan_protocol::usage::{MicroUsd, Usage};

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::reply::PermissionDecision;

use super::*;
use crate::fact::{Budget, Provision};
use crate::fact::{Runtime, TaskId};
use crate::limits::{
    DESCRIPTION_BYTES_MAX, EXIT_GRACE_MS, OPEN_ASKS_MAX, OPTIONAL_WAIT_MS, PERMISSION_WAIT_MS,
    RATE_LIMIT_JITTER_MS,
};

mod agents;
mod hand_over;
mod messages;
mod nodes;
mod proposals;

/// Test driver for a task: feeds each input with an explicit time.
struct TaskDriver {
    task: Task,
    now: i64,
}

fn new_task(phases: u32) -> NewTask {
    NewTask {
        runtime: Runtime::Cli,
        task_id: TaskId::try_from("task_1".to_owned()).unwrap(),
        title: "A shop".to_owned(),
        kind: "create_app".to_owned(),
        description: "Build a shop.".to_owned(),
        total_phases: phases,
        budget: Budget::default(),
        agent: "coder".parse().unwrap(),
        tells_result: true,
        created_by: None,
        source: Default::default(),
        checks: Default::default(),
        fallbacks: Vec::new(),
        model: None,
    }
}

impl TaskDriver {
    fn idle(phases: u32) -> Self {
        let (task, _) = Task::create(new_task(phases), Timestamp::from_unix_millis(0)).unwrap();
        Self { task, now: 0 }
    }

    fn running(phases: u32) -> Self {
        let mut driven = Self::idle(phases);
        let effects = driven.does(TaskInput::Start);
        assert!(matches!(
            &effects[..],
            [TaskEffect::StartRun {
                run: 1,
                session: None,
                ..
            }]
        ));
        driven.tells(CliEvent::Session {
            id: "s".to_owned(),
            model: None,
        });
        driven
    }

    /// Configures its only agent.
    fn with_agent(&mut self, agent: AgentProfile) {
        let name = self.task.state().task.agent.clone();
        self.task.set_agents([(name, agent)].into());
    }

    fn tries(&mut self, input: TaskInput) -> Result<Vec<TaskEffect>, InputRefusal> {
        let before = self.task.clone();
        let done = self
            .task
            .handle(input, Timestamp::from_unix_millis(self.now));
        if done.is_err() {
            assert_eq!(self.task, before, "a refused input changes nothing");
        }
        done.map(|output| output.effects)
    }

    fn does(&mut self, input: TaskInput) -> Vec<TaskEffect> {
        self.tries(input).unwrap()
    }

    fn run(&self) -> u64 {
        self.task.state().run.as_ref().unwrap().number
    }

    fn tells(&mut self, event: CliEvent) -> Vec<TaskEffect> {
        let run = self.run();
        self.does(TaskInput::Told { run, event })
    }

    fn ends_well(&mut self) -> Vec<TaskEffect> {
        self.tells(result(true));
        self.exits(Some(0))
    }

    fn exits(&mut self, code: Option<i32>) -> Vec<TaskEffect> {
        let run = self.run();
        self.does(TaskInput::Exited { run, code })
    }

    fn waits(&mut self, millis: i64) -> Vec<TaskEffect> {
        self.now += millis;
        self.does(TaskInput::Tick)
    }

    fn status(&self) -> Status {
        self.task.state().status()
    }
}

fn result(is_ok: bool) -> CliEvent {
    CliEvent::Result(RunResult {
        is_ok,
        text: "words".to_owned(),
        denied: Vec::new(),
    })
}

fn question(text: &str, required: bool) -> CliEvent {
    CliEvent::Block(Block::UserQuestion(UserQuestion {
        category: QuestionCategory::Choice,
        question: text.to_owned(),
        options: vec!["a".to_owned(), "b".to_owned()],
        default: Some("b".to_owned()),
        required,
    }))
}

fn dependency(name: &str) -> CliEvent {
    CliEvent::Block(Block::DependencyRequest(DependencyRequest {
        kind: DependencyKind::ApiKey,
        name: name.to_owned(),
        description: String::new(),
        required: true,
        default: None,
    }))
}

fn complete(phase: u32) -> CliEvent {
    let documents = vec!["docs/a.md".to_owned()];
    CliEvent::Block(Block::PhaseComplete(PhaseComplete { phase, documents }))
}

fn answer(id: &str, text: &str) -> TaskInput {
    TaskInput::Answer {
        id: id.to_owned(),
        text: text.to_owned(),
    }
}

fn approve(phase: u32) -> TaskInput {
    let delivery = Delivery::None;
    TaskInput::Approve { phase, delivery }
}

fn started(effects: &[TaskEffect]) -> &str {
    let [TaskEffect::StartRun { prompt, .. }] = effects else {
        panic!("no run was started: {effects:?}");
    };
    prompt
}

#[test]
fn task_7_a_task_goes_through_its_phases() {
    let mut task = TaskDriver::running(2);
    task.tells(complete(1));
    assert_eq!(task.status(), Status::WaitingReview);
    assert!(
        task.ends_well().is_empty(),
        "nothing runs before the review"
    );
    let wrong = task.tries(approve(2));
    assert_eq!(wrong, Err(InputRefusal::NotUnderReview(2)));
    let rework = TaskInput::Rework {
        comments: Vec::new(),
        phase: 1,
        text: "Shorter.".to_owned(),
    };
    let effects = task.does(rework);
    assert!(started(&effects).contains("Phase 1 is not approved: Shorter."));
    task.tells(complete(1));
    task.ends_well();
    let effects = task.does(approve(1));
    assert!(started(&effects).contains("Phase 1 is approved.\nYou are in phase 2 of 2."));
    task.tells(complete(2));
    task.ends_well();
    task.does(approve(2));
    assert_eq!(task.status(), Status::Completed);
    assert_eq!(
        task.tries(TaskInput::Cancel),
        Err(InputRefusal::Final(Status::Completed))
    );
}

#[test]
fn task_7_answer_is_accepted_once_and_delivered_once() {
    let mut task = TaskDriver::running(1);
    task.tells(question("Which?", true));
    task.tells(question("Which?", true));
    task.tells(dependency("API_KEY"));
    assert_eq!(task.status(), Status::WaitingDependency);
    assert_eq!(
        task.task.state().open_asks().count(),
        2,
        "the same is not asked twice"
    );
    task.ends_well();
    assert!(matches!(
        task.tries(answer("q-0001", "c")),
        Err(InputRefusal::NoOption { .. })
    ));
    assert!(matches!(
        task.tries(answer("d-0002", "a")),
        Err(InputRefusal::WrongKind(_))
    ));
    assert!(matches!(
        task.tries(answer("q-9", "a")),
        Err(InputRefusal::Unknown(_))
    ));
    task.does(answer("q-0001", "a"));
    assert!(matches!(
        task.tries(answer("q-0001", "b")),
        Err(InputRefusal::Closed(_))
    ));
    let provide = |provision| TaskInput::Provide {
        id: "d-0002".to_owned(),
        provision,
    };
    let written = provide(Provision::Ready("sk-secret".to_owned()));
    assert!(matches!(
        task.tries(written),
        Err(InputRefusal::WrongKind(_))
    ));
    let effects = task.does(provide(Provision::Secret("vault:1".to_owned())));
    let [
        TaskEffect::StartRun {
            prompt,
            environment,
            session,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert!(prompt.contains("Answer q-0001 to \"Which?\": a"));
    assert_eq!(*environment, [("API_KEY".to_owned(), "vault:1".to_owned())]);
    assert_eq!(session.as_deref(), Some("s"));
    // The run dies before it shows progress: its successor receives the note again, and later runs
    // do not.
    let run = task.run();
    task.does(TaskInput::NotSpawned {
        run,
        error: "no memory".to_owned(),
    });
    let effects = task.waits(RETRY_MS);
    assert!(started(&effects).contains("Answer q-0001"));
    task.tells(CliEvent::Text("I go on".to_owned()));
    let effects = task.exits(None);
    assert!(!started(&effects).contains("Answer q-0001"));
}

#[test]
fn task_7_pause_and_cancel_work_from_every_live_state() {
    type Arrive = fn(&mut TaskDriver);
    let arrive: [(Status, Arrive); 4] = [
        (Status::Running, |_| {}),
        (Status::WaitingQuestion, |task| {
            drop(task.tells(question("?", true)));
        }),
        (Status::WaitingDependency, |task| {
            drop(task.tells(dependency("K")));
        }),
        (Status::WaitingReview, |task| drop(task.tells(complete(1)))),
    ];
    for (status, arrive) in arrive {
        for ended in [false, true] {
            let mut task = TaskDriver::running(1);
            arrive(&mut task);
            if ended && status != Status::Running {
                task.ends_well();
            }
            assert_eq!(task.status(), status);
            let effects = task.does(TaskInput::Pause);
            let pauses = effects.contains(&TaskEffect::PauseRun { run: 1 });
            assert_eq!(pauses, task.task.state().run.is_some());
            assert_eq!(task.status(), Status::Paused);
            let mut cancelled = TaskDriver {
                task: task.task.clone(),
                now: task.now,
            };
            let effects = task.does(TaskInput::Resume);
            assert_eq!(
                effects.contains(&TaskEffect::ContinueRun { run: 1 }),
                pauses
            );
            assert_eq!(task.status(), status);
            let effects = cancelled.does(TaskInput::Cancel);
            assert_eq!(effects.contains(&TaskEffect::EndRun { run: 1 }), pauses);
            assert_eq!(cancelled.status(), Status::Cancelled);
            let shown = cancelled.task.state();
            let shown = shown.detail(&"w".parse().unwrap(), "/w".as_ref(), Vec::new());
            assert!(shown.asks.is_empty() && shown.review.is_none());
            if pauses {
                assert!(cancelled.exits(None).is_empty());
            }
            assert!(
                cancelled.waits(1 << 40).is_empty(),
                "a canceled task runs nothing"
            );
        }
    }
    let mut idle = TaskDriver::idle(1);
    assert_eq!(
        idle.tries(TaskInput::Pause),
        Err(InputRefusal::WrongStatus(Status::Idle))
    );
    idle.does(TaskInput::Cancel);
    assert_eq!(
        idle.tries(TaskInput::Start),
        Err(InputRefusal::Final(Status::Cancelled))
    );
}

#[test]
fn task_8_long_paused_task_is_resumed_by_its_session() {
    let mut task = TaskDriver::running(1);
    task.does(TaskInput::Pause);
    assert!(
        task.waits(LONG_PAUSE_MS).is_empty(),
        "a pause does not count as a stall"
    );
    let effects = task.does(TaskInput::Resume);
    assert_eq!(
        effects,
        [
            TaskEffect::ContinueRun { run: 1 },
            TaskEffect::EndRun { run: 1 }
        ]
    );
    let effects = task.exits(None);
    assert!(matches!(
        &effects[..],
        [TaskEffect::StartRun {
            session: Some(_),
            ..
        }]
    ));
}

#[test]
fn ckpt_6_restore_starts_a_new_session_with_the_task_status() {
    let mut task = TaskDriver::running(1);
    task.tells(question("Which?", true));
    task.ends_well();
    task.does(answer("q-0001", "a"));
    // The session has received it.
    task.tells(CliEvent::Text("I go on".to_owned()));
    task.does(TaskInput::Pause);
    task.exits(None);
    task.does(TaskInput::Restored {
        id: "checkpoint_001".to_owned(),
        pre_restore: Some("checkpoint_002".to_owned()),
    });
    let effects = task.does(TaskInput::Resume);
    let prompt = started(&effects);
    assert!(
        matches!(&effects[..], [TaskEffect::StartRun { session: None, .. }]),
        "its session refers to removed content: {effects:?}"
    );
    for told in [
        "Build a shop.",
        "Answer q-0001 to \"Which?\": a",
        "restored to checkpoint_001",
    ] {
        assert!(prompt.contains(told), "{prompt}");
    }
    assert!(!prompt.contains("interrupted"), "{prompt}");
}

#[test]
fn task_8_done_is_a_result_and_then_the_exit() {
    let mut task = TaskDriver::running(0);
    task.tells(result(true));
    assert!(task.waits(EXIT_GRACE_MS - 1).is_empty());
    assert_eq!(task.waits(1), [TaskEffect::EndRun { run: 1 }]);
    task.exits(None);
    assert_eq!(task.status(), Status::Completed, "it counts as done");
    // No result: its session is resumed once, then a person is asked.
    let mut task = TaskDriver::running(0);
    let effects = task.exits(Some(0));
    assert!(started(&effects).contains("without a result"));
    task.exits(Some(0));
    assert_eq!(task.status(), Status::WaitingQuestion);
    let effects = task.does(answer("q-0001", "go on"));
    started(&effects);
    task.exits(Some(0));
    task.exits(Some(0));
    task.does(answer("q-0002", "fail"));
    assert_eq!(task.status(), Status::Failed);
}

#[test]
fn prov_1_work_after_a_result_continues_and_a_cut_is_recorded() {
    let mut task = TaskDriver::running(0);
    task.tells(result(false));
    for _ in 0..10 {
        assert!(task.waits(EXIT_GRACE_MS - 1).is_empty());
        task.does(TaskInput::Alive { run: 1 });
    }
    // The latest result counts.
    task.tells(result(true));
    assert!(task.waits(EXIT_GRACE_MS - 1).is_empty());
    task.now += 1;
    let at = Timestamp::from_unix_millis(task.now);
    let cut = task.task.handle(TaskInput::Tick, at).unwrap();
    assert_eq!(cut.effects, [TaskEffect::EndRun { run: 1 }]);
    assert_eq!(cut.facts[0].fact, TaskEvent::RunCutOff { run: 1 });
    task.exits(None);
    assert_eq!(task.status(), Status::Completed);
    // Signs of life do not keep a program forever.
    let mut task = TaskDriver::running(0);
    task.tells(result(true));
    let looks = (1..).find(|_| {
        task.does(TaskInput::Alive { run: 1 });
        !task.waits(EXIT_GRACE_MS - 1).is_empty()
    });
    assert_eq!(looks, Some(WORK_AFTER_RESULT_MS / EXIT_GRACE_MS + 1));
}

#[test]
fn prov_1_a_reported_result_outlives_the_daemon() {
    for (is_ok, expected) in [
        (true, RunOutcome::Done),
        (false, RunOutcome::Failed("words".to_owned())),
    ] {
        let mut task = TaskDriver::running(0);
        task.tells(result(is_ok));
        task.task = Task::restored(task.task.state().clone());
        let lost = TaskInput::Exited { run: 1, code: None };
        let output = task.task.handle(lost, Timestamp::from_unix_millis(0));
        let outcome = output
            .unwrap()
            .facts
            .into_iter()
            .find_map(|entry| match entry.fact {
                TaskEvent::RunEnded { outcome, .. } => Some(outcome),
                _ => None,
            });
        assert_eq!(outcome, Some(expected));
    }
}

#[test]
fn prov_1_a_session_with_too_much_input_is_not_resumed() {
    let mut task = TaskDriver::running(1);
    let session_after_rework = |task: &mut TaskDriver| {
        task.tells(complete(1));
        task.ends_well();
        let effects = task.does(TaskInput::Rework {
            phase: 1,
            text: "again".to_owned(),
            comments: Vec::new(),
        });
        match effects.last() {
            Some(TaskEffect::StartRun { session, .. }) => session.clone(),
            other => panic!("{other:?}"),
        }
    };
    task.tells(CliEvent::Usage(UsageReport {
        counter: Counter::Run,
        usage: Usage {
            input_tokens: SESSION_INPUT_TOKENS_MAX,
            ..Usage::default()
        },
        cost: None,
        session: None,
    }));
    assert_eq!(session_after_rework(&mut task), None);
    task.tells(CliEvent::Session {
        id: "s2".to_owned(),
        model: None,
    });
    assert_eq!(session_after_rework(&mut task).as_deref(), Some("s2"));
}

#[test]
fn task_8_a_stall_is_no_sign_of_life_at_all() {
    let mut task = TaskDriver::running(1);
    for _ in 0..5 {
        assert!(task.waits(STALL_MS - 1).is_empty());
        task.does(TaskInput::Alive { run: 1 });
    }
    let request = PermissionRequest {
        id: "p".to_owned(),
        tool: "Bash".to_owned(),
        input: serde_json::json!({"command": "make"}),
        options: Vec::new(),
        ..PermissionRequest::default()
    };
    task.tells(CliEvent::Permission(request));
    assert_eq!(task.status(), Status::WaitingQuestion);
    let refused = task.waits(PERMISSION_WAIT_MS);
    assert!(matches!(
        &refused[..],
        [TaskEffect::AnswerPermission {
            decision: PermissionDecision::Refuse(_),
            ..
        }]
    ));
    assert_eq!(task.waits(STALL_MS), [TaskEffect::EndRun { run: 1 }]);
    assert!(task.waits(STALL_MS).is_empty(), "once");
    let effects = task.exits(None);
    assert!(started(&effects).contains("without a result"));
}

#[test]
fn proto_3_permission_answer_goes_to_the_run_that_waits_for_it() {
    let mut task = TaskDriver::running(1);
    let ask = |id: &str| {
        CliEvent::Permission(PermissionRequest {
            id: id.to_owned(),
            tool: "Bash".to_owned(),
            input: serde_json::Value::Null,
            options: Vec::new(),
            ..PermissionRequest::default()
        })
    };
    task.tells(ask("p1"));
    let effects = task.does(answer("q-0001", "allow"));
    let decision = PermissionDecision::Allow;
    let request = "p1".to_owned();
    assert_eq!(
        effects,
        [TaskEffect::AnswerPermission {
            run: 1,
            request,
            decision
        }]
    );
    task.tells(ask("p2"));
    task.exits(None);
    assert!(matches!(
        task.tries(answer("q-0002", "allow")),
        Err(InputRefusal::Closed(_))
    ));
}

#[test]
fn proto_3_permission_over_the_question_limit_is_refused() {
    let mut task = TaskDriver::running(1);
    let ask = |number: usize| {
        CliEvent::Permission(PermissionRequest {
            id: format!("p{number}"),
            tool: "Bash".to_owned(),
            input: serde_json::Value::Null,
            options: Vec::new(),
            ..PermissionRequest::default()
        })
    };
    for number in 0..OPEN_ASKS_MAX {
        assert_eq!(task.tells(ask(number)), [], "a person is asked");
    }
    let effects = task.tells(ask(OPEN_ASKS_MAX));
    let [
        TaskEffect::AnswerPermission {
            request, decision, ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*request, format!("p{OPEN_ASKS_MAX}"));
    assert!(
        matches!(decision, PermissionDecision::Refuse(_)),
        "{decision:?}"
    );
}

#[test]
fn proto_5_recovery_is_retried_limited_times_before_a_question() {
    let mut task = TaskDriver::running(1);
    let error = |recovery: Option<&str>| {
        CliEvent::Block(Block::Error(AgentError {
            kind: ErrorKind::Recoverable,
            message: "no disk".to_owned(),
            recovery: recovery.map(str::to_owned),
        }))
    };
    task.tells(error(Some("Use the other one.")));
    let effects = task.ends_well();
    let told = "Your error \"no disk\": recover from it: Use the other one.\n";
    assert!(started(&effects).contains(told), "{effects:?}");
    task.tells(CliEvent::Text("I do".to_owned()));
    for wait in [RETRY_MS, RETRY_MS * 4] {
        task.tells(error(None));
        assert!(task.ends_well().is_empty());
        assert!(task.waits(wait - 1).is_empty());
        let effects = task.waits(1);
        assert!(started(&effects).contains("try again"), "{effects:?}");
    }
    task.tells(error(None));
    assert!(task.ends_well().is_empty());
    assert_eq!(task.status(), Status::WaitingQuestion, "it goes in circles");
    started(&task.does(answer("q-0001", "go on")));
    // An error that the same run recovered from is not reported again.
    task.tells(error(Some("Use the other one.")));
    task.tells(complete(1));
    task.ends_well();
    let rework = TaskInput::Rework {
        comments: Vec::new(),
        phase: 1,
        text: "Shorter.".to_owned(),
    };
    let effects = task.does(rework);
    assert!(!started(&effects).contains("Your error"), "{effects:?}");
}

#[test]
fn proto_5_refused_blocks_delay_runs_then_a_person_is_asked() {
    let refused = || {
        CliEvent::Refused(InvalidBlock {
            protocol: "ERROR".to_owned(),
            problem: "`type` is missing".to_owned(),
        })
    };
    let mut task = TaskDriver::running(1);
    task.tells(refused());
    let effects = task.ends_well();
    assert!(started(&effects).contains("`type` is missing"));
    for wait in [RETRY_MS, RETRY_MS * 4] {
        task.tells(refused());
        assert!(task.ends_well().is_empty());
        assert!(task.waits(wait - 1).is_empty());
        started(&task.waits(1));
    }
    task.tells(refused());
    task.ends_well();
    assert_eq!(task.status(), Status::WaitingQuestion);
    started(&task.does(answer("q-0001", "go on")));
    // Completed work counts, regardless of earlier refusals.
    task.tells(refused());
    task.tells(complete(1));
    task.ends_well();
    assert_eq!(task.task.state().fruitless, 0);
}

#[test]
fn task_8_lost_sessions_and_rate_limits_have_an_end() {
    // Each second run loses the session that the previous run started.
    let mut task = TaskDriver::running(1);
    for number in 1..=RETRIES_MAX + 1 {
        let problem = "unreadable".to_owned();
        let protocol = "PHASE_COMPLETE".to_owned();
        task.tells(CliEvent::Refused(InvalidBlock { protocol, problem }));
        task.ends_well();
        task.waits(RETRY_MS * 64);
        if number > RETRIES_MAX / 2 + 1 {
            break;
        }
        task.tells(CliEvent::SessionRefused("not found".to_owned()));
        task.exits(None);
        task.waits(RETRY_MS * 64);
        if task.status() == Status::WaitingQuestion {
            break;
        }
        let id = format!("s{number}");
        task.tells(CliEvent::Session { id, model: None });
    }
    assert_eq!(task.status(), Status::WaitingQuestion);

    let mut task = TaskDriver::running(1);
    for _ in 0..RATE_LIMITED_RUNS_MAX {
        task.tells(CliEvent::RateLimit(Reset::At(Timestamp::from_unix_millis(
            0,
        ))));
        task.exits(Some(1));
        started(&task.waits(RATE_LIMIT_JITTER_MS * 2));
    }
    task.tells(CliEvent::RateLimit(Reset::Unknown));
    task.exits(Some(1));
    assert_eq!(task.status(), Status::WaitingQuestion);
}

#[test]
fn task_8_session_after_a_lost_one_gets_the_task_status() {
    let mut task = TaskDriver::running(2);
    task.tells(question("Which?", true));
    task.ends_well();
    let effects = task.does(answer("q-0001", "a"));
    assert!(
        !started(&effects).contains("Build a shop."),
        "the session knows"
    );
    task.tells(complete(1));
    task.ends_well();
    let effects = task.does(approve(1));
    assert!(started(&effects).contains("Phase 1 is approved."));
    let run = task.run();
    let refused = || CliEvent::SessionRefused("not found".to_owned());
    assert_eq!(task.tells(refused()), [TaskEffect::EndRun { run }]);
    assert_eq!(task.tells(refused()), [], "once");
    let effects = task.exits(None);
    let [
        TaskEffect::StartRun {
            session: None,
            prompt,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    for said in [
        "Build a shop.",
        "in a session that no longer exists",
        "Answer q-0001 to \"Which?\": a",
        "Phases approved so far: 1.",
        "- docs/a.md",
        "Phase 1 is approved.",
        "You are in phase 2 of 2.",
    ] {
        assert!(prompt.contains(said), "{said}: {prompt}");
    }
    assert_eq!(task.tells(refused()), [], "it has none to be refused");
    task.tells(CliEvent::Session {
        id: "s2".to_owned(),
        model: None,
    });
    assert!(!task.task.state().is_session_lost);
}

#[test]
fn proto_2_proto_3_optional_question_has_a_bounded_wait() {
    let mut task = TaskDriver::running(1);
    task.tells(question("Colour?", false));
    task.ends_well();
    assert!(task.waits(OPTIONAL_WAIT_MS - 1).is_empty());
    let effects = task.waits(1);
    assert!(started(&effects).contains("Answer q-0001 to \"Colour?\": b"));
}

#[test]
fn task_7_a_rate_limit_is_a_timer_with_the_same_session() {
    let mut task = TaskDriver::running(1);
    let reset = Reset::At(Timestamp::from_unix_millis(3_600_000));
    task.tells(CliEvent::RateLimit(reset));
    task.tells(result(false));
    let effects = task.exits(Some(1));
    assert_eq!(effects, [TaskEffect::MakeCheckpoint { kind: "rate_limit" }]);
    assert_eq!(task.status(), Status::Running);
    assert!(task.task.state().is_rate_limited);
    assert!(task.waits(3_600_000 - 1).is_empty());
    let effects = task.waits(RATE_LIMIT_JITTER_MS + 1);
    assert!(matches!(
        &effects[..],
        [TaskEffect::StartRun {
            session: Some(_),
            ..
        }]
    ));
    // A reset time in the far future or past is clamped.
    for lie in [i64::MAX, i64::MIN] {
        let reset = Reset::At(Timestamp::from_unix_millis(lie));
        task.tells(CliEvent::RateLimit(reset));
        task.exits(Some(1));
        assert!(task.waits(0).is_empty());
        let effects = task.waits(crate::limits::RATE_LIMIT_MAX_MS + RATE_LIMIT_JITTER_MS);
        started(&effects);
    }
}

#[test]
fn task_6_a_budget_warns_and_stops_before_it_is_passed() {
    let mut task = TaskDriver::running(1);
    let most = |tokens| {
        TaskInput::SetBudget(Budget {
            tokens: Some(tokens),
            micro_usd: None,
            disk_bytes: None,
        })
    };
    task.does(most(1000));
    let taken = |task: &mut TaskDriver, tokens| {
        let usage = Usage {
            input_tokens: tokens,
            ..Usage::default()
        };
        let (counter, cost) = (Counter::Run, Some(MicroUsd(5)));
        task.tells(CliEvent::Usage(UsageReport {
            counter,
            usage,
            cost,
            session: None,
        }))
    };
    let has_warned = |task: &TaskDriver| task.task.state().budget_warned;
    assert!(taken(&mut task, 80).is_empty() && !has_warned(&task));
    for tokens in (160..=880).step_by(80) {
        assert!(
            taken(&mut task, tokens).is_empty() && !has_warned(&task),
            "{tokens}"
        );
        taken(&mut task, tokens - 3);
    }
    assert!(taken(&mut task, 910).is_empty() && has_warned(&task));
    // The next call may be as large as the largest so far: 80, which exceeds the rest.
    assert_eq!(taken(&mut task, 940), [TaskEffect::EndRun { run: 1 }]);
    assert_eq!(task.status(), Status::Paused);
    assert_eq!(task.task.state().tokens.total().usage.input_tokens, 940);
    task.exits(None);
    assert!(matches!(
        task.tries(TaskInput::Resume),
        Err(InputRefusal::OverBudget { percent: 94 })
    ));
    task.does(most(5000));
    let effects = task.does(TaskInput::Resume);
    started(&effects);
}

#[test]
fn task_9_run_over_its_quota_is_held_and_resumes_with_room() {
    let mut task = TaskDriver::running(1);
    let takes = |bytes| {
        let quota_bytes = 100;
        TaskInput::Measured(DiskUse { bytes, quota_bytes })
    };
    assert!(task.does(takes(100)).is_empty());
    assert_eq!(task.does(takes(101)), [TaskEffect::PauseRun { run: 1 }]);
    assert_eq!(task.status(), Status::Paused);
    let state = task.task.state();
    assert!(state.needs_person() && state.waits_for().as_deref() == Some("quota"));
    assert!(task.does(takes(102)).is_empty(), "it is held already");
    let refused = task.tries(TaskInput::Resume);
    assert!(matches!(refused, Err(InputRefusal::OverQuota(disk)) if disk.bytes == 102));
    task.does(takes(99));
    assert_eq!(
        task.does(TaskInput::Resume),
        [TaskEffect::ContinueRun { run: 1 }]
    );
    // The next run does not start in a work area over its quota, and a finished task is not paused.
    task.does(takes(1));
    task.tells(question("Which?", true));
    task.exits(None);
    task.does(takes(200));
    assert_eq!(task.status(), Status::WaitingQuestion);
    let id = "q-0001".to_owned();
    let text = "a".to_owned();
    assert!(task.does(TaskInput::Answer { id, text }).is_empty());
    assert_eq!(task.status(), Status::Paused);
    task.does(TaskInput::Cancel);
    assert!(task.does(takes(300)).is_empty());
    assert_eq!(task.status(), Status::Cancelled);
}

#[test]
fn proto_5_errors_and_lies() {
    let mut task = TaskDriver::running(2);
    task.tells(complete(2));
    let lie = CliEvent::Block(Block::CustomTaskComplete(
        goondan_cli_agents::blocks::CustomTaskComplete {
            documents: Vec::new(),
        },
    ));
    task.tells(lie);
    assert_eq!(task.status(), Status::Running);
    let effects = task.ends_well();
    assert!(started(&effects).contains("PHASE_COMPLETE was refused"));
    let error = |kind| {
        let (message, recovery) = ("lost".to_owned(), None);
        CliEvent::Block(Block::Error(AgentError {
            kind,
            message,
            recovery,
        }))
    };
    task.tells(error(ErrorKind::Recoverable));
    assert_eq!(task.status(), Status::Running);
    let effects = task.tells(error(ErrorKind::Fatal));
    assert_eq!(
        effects,
        [
            TaskEffect::MakeCheckpoint { kind: "error" },
            TaskEffect::EndRun { run: 2 }
        ]
    );
    assert_eq!(task.status(), Status::Failed);
    assert_eq!(task.task.state().failure.as_deref(), Some("lost"));
    task.tells(question("late?", true));
    assert_eq!(task.task.state().open_asks().count(), 0);
    // The number of questions is limited.
    let mut task = TaskDriver::running(1);
    for number in 0..100 {
        task.tells(question(&number.to_string(), true));
    }
    assert_eq!(task.task.state().open_asks().count(), OPEN_ASKS_MAX);
}

#[test]
fn a_run_that_floods_is_ended_and_has_failed() {
    let mut task = TaskDriver::running(1);
    let progress =
        |percent| CliEvent::Progress(goondan_cli_agents::blocks::Progress::Percent(percent));
    let mut ended = 0;
    for number in 0..crate::limits::RUN_FACTS_MAX * 2 {
        let effects = task.tells(progress(if number % 2 == 0 { 1 } else { 2 }));
        ended += effects.len();
    }
    assert_eq!(ended, 1, "it is ended once");
    task.exits(None);
    assert_eq!(task.task.state().failures, 1);
}

#[test]
fn task_8_silent_program_is_not_restarted_forever() {
    for phases in [0, 1] {
        let mut task = TaskDriver::idle(phases);
        task.task.state.task.tells_result = false;
        task.does(TaskInput::Start);
        assert!(task.exits(Some(0)).is_empty());
        let expected = [Status::Completed, Status::WaitingQuestion];
        assert_eq!(task.status(), expected[usize::try_from(phases).unwrap()]);
    }
    // A person resumes it, and is asked again.
    let mut task = TaskDriver::idle(1);
    task.task.state.task.tells_result = false;
    task.does(TaskInput::Start);
    for number in 1..4 {
        task.exits(Some(0));
        let effects = task.does(answer(&format!("q-{number:04}"), "go on"));
        started(&effects);
    }
    // A failing run waits longer each time, and then a person is asked.
    for wait in [RETRY_MS, RETRY_MS * 4, RETRY_MS * 16] {
        task.exits(Some(1));
        assert!(task.waits(wait - 1).is_empty());
        started(&task.waits(1));
    }
    task.exits(Some(1));
    assert_eq!(task.status(), Status::WaitingQuestion);
}

#[test]
fn task_7_oversized_or_empty_task_is_rejected() {
    let made = |change: fn(&mut NewTask)| {
        let mut task = new_task(1);
        change(&mut task);
        Task::create(task, Timestamp::from_unix_millis(0)).map(drop)
    };
    assert_eq!(made(|_| {}), Ok(()));
    let most = |task: &mut NewTask| task.description = "x".repeat(DESCRIPTION_BYTES_MAX);
    assert_eq!(made(most), Ok(()));
    let changes: [fn(&mut NewTask); 5] = [
        |task| task.description = "x".repeat(DESCRIPTION_BYTES_MAX + 1),
        |task| task.description = " \n".to_owned(),
        |task| task.title = "x".repeat(TITLE_CHARS_MAX + 1),
        |task| task.kind = "x".repeat(TITLE_CHARS_MAX + 1),
        |task| task.total_phases = PHASES_MAX + 1,
    ];
    for change in changes {
        assert_eq!(made(change), Err(InputRefusal::BadTask));
    }
}

#[test]
fn need_2_chat_decision_is_recorded_with_its_person() {
    use crate::decisions::{ChatDecision, OpenPointKind};

    let mut task = TaskDriver::running(1);
    task.tells(question("Which?", true));
    task.tells(dependency("API_KEY"));
    let points = task.task.state().open_points();
    let [point] = points.as_slice() else {
        panic!("a secret is not for a chat: {points:?}");
    };
    assert_eq!(point.key, "q-0001");
    let now = Timestamp::from_unix_millis(task.now);
    let decide = |task: &mut Task, text: &str| {
        let decision = ChatDecision::answered("q-0001", "telegram:5".to_owned(), text);
        task.handle_in_chat(answer("q-0001", text), decision, now)
    };
    let before = task.task.clone();
    decide(&mut task.task, "c").unwrap_err();
    assert_eq!(task.task, before, "a refused input changes nothing");
    let output = decide(&mut task.task, "a").unwrap();
    let facts: Vec<&TaskEvent> = output.facts.iter().map(|entry| &entry.fact).collect();
    assert!(
        matches!(
            facts[..],
            [
                TaskEvent::QuestionAnswered { .. },
                ..,
                TaskEvent::DecisionMade { .. }
            ]
        ),
        "{facts:?}"
    );
    let outcome = |task: &Task| task.state().outcome_of("q-0001");
    let how = Some("answered by telegram:5: a".to_owned());
    assert_eq!(outcome(&task.task), how);
    decide(&mut task.task, "b").unwrap_err();
    assert_eq!(outcome(&task.task), how);

    // Each review of a phase is another point.
    let mut task = TaskDriver::running(1);
    let mut keys = Vec::new();
    for _ in 0..2 {
        task.tells(complete(1));
        task.ends_well();
        let points = task.task.state().open_points();
        assert!(matches!(
            points[0].what,
            OpenPointKind::Review { phase: 1, .. }
        ));
        keys.push(points[0].key.clone());
        task.does(TaskInput::Rework {
            comments: Vec::new(),
            phase: 1,
            text: "Shorter.".to_owned(),
        });
    }
    assert_ne!(keys[0], keys[1]);
}
