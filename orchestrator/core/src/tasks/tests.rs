//! Tests of tasks in the core: questions, durability, kills and restarts.

use goondan_cli_agents::blocks::{
    Block, DependencyKind, DependencyRequest, QuestionCategory, UserQuestion,
};
use goondan_cli_agents::{CliEvent, PermissionRequest, RunResult};
use goondan_protocol::control::ErrorCode;
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::task::{OutputStream, TaskNotStarted, TaskOutput, TaskTold};
use serde_json::{Value, json};

use super::world::{World, not_created, workspace};
use crate::exchange::tasks::{LogText, TaskResult, TaskWork};
use crate::limits::{
    RUN_END_GRACE_MS, RUN_END_MARGIN_MS, TASK_OUTPUT_WAITING_MAX, TASK_RELOAD_MS,
    TASK_RUNS_AT_ONCE_MAX,
};
use crate::{ClientOrigin, CoreInput, Peer};

pub(super) fn new(task: &str, is_started: bool) -> Value {
    json!({"taskId": task, "title": "Build it", "description": "Do so.", "start": is_started})
}

fn question() -> CliEvent {
    CliEvent::Block(Block::UserQuestion(UserQuestion {
        category: QuestionCategory::Choice,
        question: "Which?".to_owned(),
        options: vec!["a".to_owned(), "b".to_owned()],
        default: None,
        required: true,
    }))
}

fn needs_key() -> CliEvent {
    CliEvent::Block(Block::DependencyRequest(DependencyRequest {
        kind: DependencyKind::ApiKey,
        name: "API_KEY".to_owned(),
        description: String::new(),
        required: true,
        default: None,
    }))
}

fn result() -> CliEvent {
    CliEvent::Result(RunResult {
        is_ok: true,
        text: "done".to_owned(),
        denied: Vec::new(),
    })
}

fn session() -> CliEvent {
    CliEvent::Session {
        id: "s-1".to_owned(),
        model: None,
    }
}

#[test]
fn task_8_a_configuration_that_is_read_again_leaves_a_run_alone() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.open();
    world.settle();
    assert!(!world.children[&process].is_asked_to_end);
    assert!(!world.facts("t").contains(&"run_ended".to_owned()));
    world.tell(process, &[question()]);
    world.settle();
    assert_eq!(world.status("t"), "waiting_question");
}

#[test]
fn task_7_a_task_asks_is_answered_and_is_completed() {
    let mut world = World::new();
    let made = world.get("task.new", &new("t", true)).unwrap();
    assert_eq!(
        (&made["status"], &made["agent"]),
        (&json!("running"), &json!("coder"))
    );
    let process = world.run("t");
    world.tell(process, &[session(), question(), result()]);
    world.exit(process, Some(0));
    world.settle();
    assert_eq!(world.status("t"), "waiting_question");
    let waiting = world.get("task.list", &json!({"needsMe": true})).unwrap()["tasks"].take();
    assert_eq!(waiting[0]["taskId"], "t");
    let refused = world.get("task.answer", &json!({"taskId": "t", "text": "c"}));
    assert_eq!(refused.unwrap_err().code, ErrorCode::TaskRefused);
    let answered = world.get("task.answer", &json!({"taskId": "t", "text": "b"}));
    assert_eq!(answered.unwrap()["status"], "running");
    let again = world.get(
        "task.answer",
        &json!({"taskId": "t", "id": "q-0001", "text": "a"}),
    );
    assert_eq!(again.unwrap_err().code, ErrorCode::TaskRefused);
    let process = world.run("t");
    let assignment = world.children[&process].assignment.as_ref().unwrap();
    assert_eq!(
        (assignment.run, assignment.session.as_deref()),
        (2, Some("s-1"))
    );
    assert!(
        assignment.prompt.contains("Which?"),
        "{}",
        assignment.prompt
    );
    world.tell(process, &[result()]);
    world.exit(process, Some(0));
    world.settle();
    assert_eq!(world.status("t"), "completed");
    assert!(
        world.get("task.list", &json!({})).unwrap()["tasks"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    world.get("task.remove", &json!({"taskId": "t"})).unwrap();
    let gone = world.get("task.show", &json!({"taskId": "t"})).unwrap_err();
    assert_eq!(gone.code, ErrorCode::TaskNotFound);
}

#[test]
fn task_7_nothing_is_done_or_acknowledged_before_it_is_durable() {
    let mut world = World::new();
    let token = world.ask("task.new", &new("t", true));
    assert!(world.answers.is_empty() && world.works.len() == 1);
    world.work();
    assert!(
        world.answers.is_empty(),
        "it was made, and its start is not written"
    );
    assert!(world.children.is_empty());
    world.work();
    assert_eq!(
        world.answers.remove(&token).unwrap().unwrap()["status"],
        "running"
    );
    let process = world.run("t");
    // Told while the disk is busy: one write after the other, in their order.
    world.tell(process, &[session()]);
    world.tell(process, &[question()]);
    let token = world.ask("task.cancel", &json!({"taskId": "t"}));
    let writes = |world: &World| {
        let is_write = |work: &&TaskWork| matches!(work, TaskWork::Write { .. });
        world.works.iter().filter(is_write).count()
    };
    assert_eq!(writes(&world), 1, "of one task one write is under way");
    assert!(!world.children[&process].is_asked_to_end);
    assert_eq!(world.status("t"), "cancelled");
    assert!(world.children[&process].is_asked_to_end);
    assert_eq!(
        world.answers.remove(&token).unwrap().unwrap()["status"],
        "cancelled"
    );
    let facts = world.facts("t");
    let place = |event: &str| facts.iter().position(|fact| fact == event).unwrap();
    assert!(place("session_opened") < place("question_asked"));
    assert!(place("question_asked") < place("task_cancelled"));
}

#[test]
fn task_1_failed_write_is_not_acknowledged_and_task_reloads() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.tell(process, &[session(), question()]);
    world.settle();
    world.is_disk_full = true;
    let token = world.ask("task.answer", &json!({"taskId": "t", "text": "a"}));
    world.settle();
    let error = world.answers.remove(&token).unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Storage);
    assert!(world.children.is_empty(), "its run has no listener");
    let listed = world.get("task.list", &json!({})).unwrap()["tasks"].take();
    assert!(listed[0]["damaged"].is_string(), "{listed}");
    world.pass(TASK_RELOAD_MS);
    world.settle();
    assert_eq!(world.status("t"), "waiting_question");
    world
        .get("task.answer", &json!({"taskId": "t", "text": "a"}))
        .unwrap();
    let answers = world.facts("t");
    assert_eq!(
        answers
            .iter()
            .filter(|fact| *fact == "question_answered")
            .count(),
        1
    );
}

#[test]
fn task_1_killed_daemon_resumes_every_task() {
    let mut world = World::new();
    world.get("task.new", &new("asks", true)).unwrap();
    let process = world.run("asks");
    world.tell(process, &[session(), question(), result()]);
    world.exit(process, Some(0));
    world.get("task.new", &new("works", true)).unwrap();
    let process = world.run("works");
    world.tell(process, &[session()]);
    world.settle();
    world.kill_daemon();
    // Requests before the tasks are loaded wait for that.
    let early = world.ask("task.answer", &json!({"taskId": "asks", "text": "a"}));
    assert!(!world.answers.contains_key(&early));
    world.settle();
    assert_eq!(
        world.answers.remove(&early).unwrap().unwrap()["status"],
        "running"
    );
    for task in ["asks", "works"] {
        let process = world.run(task);
        let assignment = world.children[&process].assignment.as_ref().unwrap();
        assert_eq!(
            (assignment.run, assignment.session.as_deref()),
            (2, Some("s-1"))
        );
        world.tell(process, &[result()]);
        world.exit(process, Some(0));
        world.settle();
        assert_eq!(world.status(task), "completed");
    }
}

#[test]
fn task_8_daemon_shutdown_ends_runs_without_asking_a_person() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.step(CoreInput::Stop {
        grace_period_ms: None,
    });
    assert!(world.children[&process].is_asked_to_end);
    let late = world.get("task.new", &new("late", false)).unwrap_err();
    assert_eq!(late.code, ErrorCode::Stopping);
    assert!(!world.has_exited);
    world.exit(process, None);
    assert!(!world.has_exited, "how its run ended is not durable yet");
    world.settle();
    assert!(world.has_exited);
    world.kill_daemon();
    world.run("t");
    assert_eq!(
        world.status("t"),
        "running",
        "it continues automatically, without a session too"
    );
}

#[test]
fn task_8_reopened_workspace_has_its_tasks() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    let token = world.ask("workspace.close", &json!({}));
    world.exit(process, None);
    world.settle();
    assert!(world.answers.remove(&token).unwrap().is_ok());
    world.open();
    world.run("t");
    assert_eq!(world.status("t"), "running");
}

#[test]
fn task_7_only_a_person_changes_a_task() {
    let mut world = World::new();
    world.get("task.new", &new("t", false)).unwrap();
    let below = Peer {
        pid: None,
        standing: ClientOrigin::BelowDaemon,
    };
    for (method, more) in [
        ("task.new", json!({"title": "x", "description": "y"})),
        ("task.import", json!({"path": "/x"})),
        ("task.start", json!({"taskId": "t"})),
        ("task.pause", json!({"taskId": "t"})),
        ("task.resume", json!({"taskId": "t"})),
        ("task.cancel", json!({"taskId": "t"})),
        ("task.provide", json!({"taskId": "t", "value": "x"})),
        ("task.answer", json!({"taskId": "t", "text": "x"})),
        ("task.approve", json!({"taskId": "t"})),
        ("task.rework", json!({"taskId": "t", "text": "x"})),
        ("task.send", json!({"taskId": "t", "text": "x"})),
        ("task.budget", json!({"taskId": "t", "budget": {}})),
        ("task.checkpoint", json!({"taskId": "t"})),
        ("task.restore", json!({"taskId": "t"})),
        ("task.remove", json!({"taskId": "t"})),
    ] {
        let token = world.ask_as(below, method, &more);
        world.settle();
        let error = world.answers.remove(&token).unwrap().unwrap_err();
        assert_eq!(error.code, ErrorCode::PersonNeeded, "{method}");
    }
    for method in ["task.list", "task.show"] {
        let params = match method {
            "task.list" => json!({}),
            _ => json!({"taskId": "t"}),
        };
        let token = world.ask_as(below, method, &params);
        world.settle();
        assert!(world.answers.remove(&token).unwrap().is_ok(), "{method}");
    }
}

#[test]
fn task_8_concurrent_runs_are_limited_and_others_queue_in_order() {
    let mut world = World::new();
    let name = |n: usize| format!("t{n:03}");
    for n in 0..TASK_RUNS_AT_ONCE_MAX + 3 {
        world.get("task.new", &new(&name(n), true)).unwrap();
    }
    assert_eq!(world.children.len(), TASK_RUNS_AT_ONCE_MAX);
    for process in world.children.keys().copied().collect::<Vec<_>>() {
        world.greet(process);
        world.started(process);
    }
    // A run that is queued for long does not count as stalled.
    for _ in 0..1_000 {
        world.pass(10_000);
        for process in world.children.keys().copied().collect::<Vec<_>>() {
            world.say(
                process,
                ToOrchestrator::TaskAlive(goondan_protocol::task::TaskAlive {}),
            );
        }
        world.settle();
    }
    let [first, second, third] = [0, 1, 2].map(|n| name(TASK_RUNS_AT_ONCE_MAX + n));
    world.get("task.pause", &json!({"taskId": first})).unwrap();
    world
        .get("task.cancel", &json!({"taskId": second}))
        .unwrap();
    assert_eq!(world.status(&second), "cancelled");
    let process = world.process_of(&name(4)).unwrap();
    world.tell(process, &[result()]);
    world.exit(process, Some(0));
    world.settle();
    assert!(world.process_of(&first).is_none(), "it is paused");
    assert!(world.process_of(&third).is_some());
    world.get("task.resume", &json!({"taskId": first})).unwrap();
    let process = world.process_of(&name(5)).unwrap();
    world.tell(process, &[result()]);
    world.exit(process, Some(0));
    world.settle();
    assert!(world.process_of(&first).is_some());
}

#[test]
fn task_8_paused_program_stops_and_one_that_hangs_is_killed() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    world.settle();
    let process = world.process_of("t").unwrap();
    world.get("task.pause", &json!({"taskId": "t"})).unwrap();
    world.greet(process);
    assert!(
        world.children[&process].is_held,
        "paused before it received its command"
    );
    world.get("task.resume", &json!({"taskId": "t"})).unwrap();
    assert!(!world.children[&process].is_held);
    world.get("task.cancel", &json!({"taskId": "t"})).unwrap();
    assert!(world.children[&process].is_asked_to_end);
    world.pass(RUN_END_GRACE_MS);
    assert!(world.children.contains_key(&process));
    world.pass(RUN_END_MARGIN_MS);
    assert!(world.children.is_empty());
    world.settle();
    assert_eq!(world.status("t"), "cancelled");
}

#[test]
fn task_8_a_permission_reaches_the_run_that_asked() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    let request = PermissionRequest {
        id: "p-1".to_owned(),
        tool: "bash".to_owned(),
        input: json!({"command": "ls"}),
        options: Vec::new(),
        ..PermissionRequest::default()
    };
    world.tell(process, &[CliEvent::Permission(request)]);
    assert_eq!(world.status("t"), "waiting_question");
    world
        .get("task.answer", &json!({"taskId": "t", "text": "allow"}))
        .unwrap();
    assert_eq!(
        world.children[&process].permissions,
        [("p-1".to_owned(), true)]
    );
}

#[test]
fn proto_2_secret_reaches_next_run_and_is_requested_if_lost() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.tell(process, &[session(), needs_key(), result()]);
    world.exit(process, Some(0));
    world.settle();
    assert_eq!(world.status("t"), "waiting_dependency");
    let provided = world.get(
        "task.provide",
        &json!({"taskId": "t", "value": "very secret"}),
    );
    assert_eq!(provided.unwrap()["status"], "running");
    let all = format!("{:?}", world.disk);
    assert!(!all.contains("very secret"));
    let process = world.run("t");
    let assignment = world.children[&process].assignment.as_ref().unwrap();
    assert_eq!(assignment.secrets["API_KEY"], "very secret");
    assert!(!format!("{assignment:?}").contains("very secret"));
    world.secrets.clear();
    world.vanish(process);
    world.settle();
    assert!(world.children.is_empty());
    assert_eq!(world.status("t"), "waiting_dependency");
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["asks"][0]["kind"], "secret");
    let text = format!("{:?}", world.disk);
    assert!(text.contains("gdn task provide"), "{text}");
    world
        .get("task.provide", &json!({"taskId": "t", "value": "another"}))
        .unwrap();
    world.settle();
    let process = world.run("t");
    let assignment = world.children[&process].assignment.as_ref().unwrap();
    assert_eq!(assignment.secrets["API_KEY"], "another");
}

#[test]
fn task_8_agent_missing_from_configuration_raises_a_question() {
    let mut world = World::new();
    world.get("task.new", &new("t", false)).unwrap();
    world.configure(false);
    let error = world.get("task.new", &new("other", false)).unwrap_err();
    assert_eq!(error.code, ErrorCode::AgentNotFound);
    world.get("task.start", &json!({"taskId": "t"})).unwrap();
    for _ in 0..6 {
        world.pass(1_000_000);
        world.settle();
    }
    assert_eq!(world.status("t"), "waiting_question");
    let text = format!("{:?}", world.disk);
    assert!(text.contains("no longer has an agent `coder`"), "{text}");
    world.configure(true);
    world
        .get("task.answer", &json!({"taskId": "t", "text": "go on"}))
        .unwrap();
    world.run("t");
    assert_eq!(world.status("t"), "running");
}

#[test]
fn task_8_invalid_process_is_ended_and_failed_start_is_reported() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    let raw = serde_json::value::to_raw_value(&json!({"no": "event"})).unwrap();
    world.say(
        process,
        ToOrchestrator::TaskTold(TaskTold { events: vec![raw] }),
    );
    assert!(world.children.is_empty());
    world.settle();
    // Without a session, its progress is unknown.
    assert_eq!(world.status("t"), "waiting_question");
    world
        .get("task.answer", &json!({"taskId": "t", "text": "go on"}))
        .unwrap();
    let process = world.process_of("t").unwrap();
    world.greet(process);
    let error = "no such program".to_owned();
    world.say(
        process,
        ToOrchestrator::TaskNotStarted(TaskNotStarted { error }),
    );
    world.vanish(process);
    world.settle();
    let text = format!("{:?}", world.disk);
    assert!(text.contains("no such program"), "{text}");
    assert!(world.children.is_empty(), "it waits before it tries again");
}

#[test]
fn task_2_too_fast_output_is_dropped_and_the_drop_is_reported() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    let text = "x".repeat(60_000);
    let output = |text: &str| {
        ToOrchestrator::TaskOutput(TaskOutput {
            stream: OutputStream::Stdout,
            text: text.to_owned(),
        })
    };
    for _ in 0..100 {
        world.say(process, output(&text));
    }
    let waiting = |world: &World| -> usize {
        let logs = world.works.iter().map(|work| match work {
            TaskWork::Log {
                text: LogText::Output(_, text),
                ..
            } => text.len(),
            _ => 0,
        });
        logs.sum()
    };
    let bytes = waiting(&world);
    assert!(bytes < TASK_OUTPUT_WAITING_MAX + 70_000, "{bytes}");
    while let Some(TaskWork::Log { at, text }) = world.works.pop_front() {
        let LogText::Output(_, text) = text else {
            continue;
        };
        let done = TaskResult::Logged {
            at,
            bytes: text.len(),
            items: 0,
        };
        world.step(CoreInput::Tasks(Box::new(done)));
    }
    world.say(process, output("and on"));
    let last = format!("{:?}", world.works.back());
    assert!(last.contains("bytes were dropped"), "{last}");
}

#[test]
fn task_7_ids_have_the_day_and_are_not_taken_twice() {
    let mut world = World::new();
    let create = |title: &str| json!({"title": title, "description": "x"});
    let mut ids = std::collections::BTreeSet::new();
    for title in ["Fix: the login!", "Fix the login", "할 일"] {
        let made = world.get("task.new", &create(title)).unwrap();
        let id = made["taskId"].as_str().unwrap().to_owned();
        let day = made["createdAt"]
            .as_str()
            .unwrap()
            .split_at(10)
            .0
            .replace('-', "");
        let random = id.strip_prefix(&format!("task_{day}_")).unwrap();
        let is_random = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        assert!(random.len() == 6 && random.bytes().all(is_random), "{id}");
        assert!(ids.insert(id), "an id is made twice");
    }
    world.get("task.new", &new("task", false)).unwrap();
    let taken = world.get("task.new", &new("task", false)).unwrap_err();
    assert_eq!(taken.code, ErrorCode::TaskTaken);
    let bad = world.get("task.new", &create(" ")).unwrap_err();
    assert_eq!(bad.code, ErrorCode::TaskRefused);
    let hint = bad.suggestion.unwrap();
    assert!(
        hint.contains("gdn task new --help"),
        "there is none to be shown: {hint}"
    );
    let alive = world
        .get("task.remove", &json!({"taskId": "task"}))
        .unwrap_err();
    assert_eq!(alive.code, ErrorCode::TaskRefused);
}

#[test]
fn task_7_duplicate_id_is_reported_only_once_durable() {
    let mut world = World::new();
    let made = world.ask("task.new", &new("t", false));
    let again = world.ask("task.new", &new("t", false));
    let refused = world.answers.remove(&again).unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::Overloaded);
    assert!(refused.is_retryable());
    assert!(!world.answers.contains_key(&made));
    // The creation fails, so the task does not exist.
    let Some(TaskWork::Create { at, .. }) = world.works.pop_front() else {
        panic!("none is made");
    };
    let result = Err(not_created(None));
    world.step(CoreInput::Tasks(Box::new(TaskResult::Created {
        at,
        result,
    })));
    assert!(world.answers.remove(&made).unwrap().is_err());
    world.get("task.new", &new("t", false)).unwrap();
    let taken = world.get("task.new", &new("t", false)).unwrap_err();
    assert_eq!(taken.code, ErrorCode::TaskTaken);
}

#[test]
fn task_7_partially_created_task_exists_and_can_be_started() {
    let mut world = World::new();
    world.is_full_behind_history = true;
    let refused = world.get("task.new", &new("t", true)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Storage);
    let hint = refused.suggestion.unwrap();
    assert!(hint.contains("gdn task start t"), "{hint}");
    let taken = world.get("task.new", &new("t", true)).unwrap_err();
    assert_eq!(taken.code, ErrorCode::TaskTaken);
    assert_eq!(world.status("t"), "idle");
    world.get("task.start", &json!({"taskId": "t"})).unwrap();
    world.run("t");
}

#[test]
fn ckpt_4_restore_waits_for_the_run_to_end_and_notifies_agent() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.tell(process, &[session()]);
    let made = world
        .get("task.checkpoint", &json!({"taskId": "t", "name": "mine"}))
        .unwrap();
    assert_eq!(made["name"], "mine");
    let restore = json!({"taskId": "t"});
    let refused = world.get("task.restore", &restore).unwrap_err();
    assert_eq!(refused.code, ErrorCode::TaskRefused);
    let rehearsal = json!({"taskId": "t", "dryRun": true});
    let told = world.get("task.restore", &rehearsal).unwrap();
    assert!(told["preRestore"].is_null());
    world.get("task.pause", &json!({"taskId": "t"})).unwrap();
    let token = world.ask("task.restore", &restore);
    assert!(
        world.children[&process].is_asked_to_end,
        "its run is ended first"
    );
    let busy = world
        .get("task.resume", &json!({"taskId": "t"}))
        .unwrap_err();
    assert_eq!(busy.code, ErrorCode::TaskRefused);
    world.exit(process, None);
    world.settle();
    let restored = world.answers.remove(&token).unwrap().unwrap();
    assert_eq!(restored["preRestore"], "checkpoint_009");
    assert_eq!(world.status("t"), "paused");
    world.get("task.resume", &json!({"taskId": "t"})).unwrap();
    let process = world.run("t");
    let assignment = world.children[&process].assignment.as_ref().unwrap();
    assert!(assignment.prompt.contains("restored to checkpoint_001"));
}

#[test]
fn ckpt_1_running_task_gets_periodic_checkpoints() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    for _ in 0..200 {
        world.pass(10_000);
        let alive = goondan_protocol::task::TaskAlive {};
        world.say(process, ToOrchestrator::TaskAlive(alive));
        world.settle();
    }
    assert_eq!(world.checkpoints, 3, "one each ten minutes, of 2,000 s");
}

#[test]
fn task_1_import_wins_its_id_over_a_task_being_created() {
    let mut world = World::new();
    world.get("task.new", &new("t", false)).unwrap();
    let import = world.ask("task.import", &json!({"path": "/elsewhere"}));
    let Some(TaskWork::Import { guides, .. }) = world.works.pop_front() else {
        panic!("no import");
    };
    let guide = std::path::PathBuf::from("/guide");
    assert_eq!(guides, [("coder".parse().unwrap(), guide)].into());
    // The copy exists before the core is notified, and another task requests its id.
    let mut copied = world.read(&"t".to_owned().try_into().unwrap());
    copied.task_id = "u".to_owned().try_into().unwrap();
    let made = world.ask("task.new", &new("u", false));
    let create = world.works.pop_front();
    assert!(
        matches!(create, Some(TaskWork::Create { .. })),
        "{create:?}"
    );
    world.step(CoreInput::Tasks(Box::new(TaskResult::Imported {
        workspace_id: workspace(),
        token: import,
        result: Ok(copied),
    })));
    assert!(world.answers.remove(&import).unwrap().is_ok());
    let refused = world.answers.remove(&made).unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::TaskTaken);
}
