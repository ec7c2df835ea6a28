//! Tests of notifications about tasks: each is sent once, and tasks do not wait for them.

use goondan_cli_agents::blocks::{Block, QuestionCategory, UserQuestion};
use goondan_cli_agents::{CliEvent, RunResult};
use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome};
use goondan_protocol::task::{Notify, NotifyOn};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::world::World;
use crate::limits::{TASK_NOTIFICATION_WAIT_MS, TICK_MS};

fn notify(action: &str, args: Value, on: &[NotifyOn]) -> Notify {
    Notify {
        connection: "ops".parse().unwrap(),
        service: "telegram".to_owned(),
        action: action.to_owned(),
        args,
        on: on.to_vec(),
    }
}

/// A notification that must not be sent twice.
fn send() -> Notify {
    let args = json!({"chat": 1, "text": "${need} ${command}"});
    notify("send", args, &NotifyOn::WAITS)
}

/// A notification that may be sent twice.
fn edit() -> Notify {
    let args = json!({"chat": 1, "message": 2, "text": "${on}"});
    notify("edit", args, &[NotifyOn::Question])
}

/// Creates a task whose agent asks a question and ends its run.
fn ask(world: &mut World) {
    let new = json!({"taskId": "t", "title": "Build it", "description": "Do so.", "start": true});
    world.get("task.new", &new).unwrap();
    let process = world.run("t");
    let question = CliEvent::Block(Block::UserQuestion(UserQuestion {
        category: QuestionCategory::Choice,
        question: "Which?".to_owned(),
        options: vec!["a".to_owned(), "b".to_owned()],
        default: None,
        required: true,
    }));
    world.tell(process, &[question, result()]);
    world.settle();
    world.exit(process, Some(0));
    world.settle();
    assert_eq!(world.status("t"), "waiting_question");
}

fn result() -> CliEvent {
    CliEvent::Result(RunResult {
        is_ok: true,
        text: "done".to_owned(),
        denied: Vec::new(),
    })
}

fn done() -> CallOutcome {
    CallOutcome::Ok(to_raw_value(&json!({"message": 5})).unwrap())
}

fn count(world: &World, event: &str) -> usize {
    let facts = world.facts("t");
    facts.iter().filter(|fact| *fact == event).count()
}

fn shown(world: &mut World) -> Value {
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    shown["notifications"].clone()
}

#[test]
fn task_8_people_are_notified_once_and_the_task_does_not_wait() {
    let completed = notify(
        "send",
        json!({"chat": 1, "text": "${on}"}),
        &[NotifyOn::Completed],
    );
    let mut world = World::notifying(&[send(), completed]);
    world.connect(true);
    ask(&mut world);
    let [call] = world.calls.as_slice() else {
        panic!("{:?}", world.calls);
    };
    assert_eq!(
        (call.method.as_str(), call.caller.agent.as_str()),
        ("send", "coder")
    );
    let params: Value = serde_json::from_str(call.params.get()).unwrap();
    assert_eq!(
        params["text"],
        "Which?\n\n• a\n• b gdn task answer t --id q-0001 a --workspace w"
    );
    assert_eq!(count(&world, "notified"), 0);
    assert_eq!(shown(&mut world)[0]["state"], "waiting");
    // The task continues before the delivery is confirmed.
    world
        .get("task.answer", &json!({"taskId": "t", "text": "a"}))
        .unwrap();
    assert_eq!(world.status("t"), "running");
    world.called(done());
    assert_eq!(shown(&mut world)[0]["state"], "sent");
    for _ in 0..3 {
        world.pass(TICK_MS);
    }
    assert_eq!(world.calls.len(), 1, "it is sent once");
    let process = world.run("t");
    world.tell(process, &[result()]);
    world.exit(process, Some(0));
    world.settle();
    assert_eq!(world.status("t"), "completed");
    let params: Value = serde_json::from_str(world.calls[1].params.get()).unwrap();
    assert_eq!(params["text"], "completed");
    let facts = world.facts("t");
    let told = facts.iter().filter(|fact| fact.starts_with("notif"));
    let told: Vec<&String> = told.collect();
    assert_eq!(
        told,
        [
            "notification_requested",
            "notification_begun",
            "notified",
            "notification_requested",
            "notification_begun"
        ]
    );
}

#[test]
fn task_8_next_daemon_sends_only_notifications_not_yet_begun() {
    let mut world = World::notifying(&[send()]);
    ask(&mut world);
    world.pass(TICK_MS);
    assert_eq!(
        count(&world, "notification_begun"),
        0,
        "no server listens yet"
    );
    world.kill_daemon();
    world.settle();
    assert!(world.calls.is_empty());
    world.connect(true);
    assert_eq!(world.calls.len(), 1);
    assert_eq!(count(&world, "notification_begun"), 1);
    world.kill_daemon();
    world.settle();
    world.connect(true);
    assert_eq!(world.calls.len(), 1, "it may have arrived");
    let told = shown(&mut world);
    assert_eq!(told[0]["state"], "failed");
    assert!(
        told[0]["why"].as_str().unwrap().contains("daemon"),
        "{told}"
    );
    assert!(
        world
            .logged
            .contains(&"task notification failed".to_owned())
    );
    world.kill_daemon();
    world.settle();
    world.connect(true);
    assert_eq!(
        (world.calls.len(), count(&world, "notification_failed")),
        (1, 1)
    );
    assert_eq!(world.status("t"), "waiting_question");
}

#[test]
fn task_8_idempotent_notification_is_resent_after_daemon_death() {
    let mut world = World::notifying(&[edit()]);
    world.connect(true);
    ask(&mut world);
    assert_eq!(world.calls.len(), 1);
    world.kill_daemon();
    world.settle();
    world.connect(true);
    assert_eq!(world.calls.len(), 2);
    world.called(done());
    assert_eq!(count(&world, "notified"), 1);
    world.kill_daemon();
    world.settle();
    world.connect(true);
    assert_eq!(world.calls.len(), 2);
}

#[test]
fn task_8_failed_notification_is_reported_and_blocks_nothing() {
    let mut world = World::notifying(&[send()]);
    world.connect(true);
    ask(&mut world);
    let error = CallError::new(CallErrorCode::NotFound, "there is no such chat");
    world.called(CallOutcome::Error(error));
    let told = shown(&mut world);
    assert_eq!(
        (&told[0]["state"], &told[0]["why"]),
        (&json!("failed"), &json!("there is no such chat"))
    );
    world
        .get("task.answer", &json!({"taskId": "t", "text": "a"}))
        .unwrap();
    assert_eq!(world.status("t"), "running");
    let mut silent = World::notifying(&[send()]);
    silent.connect(false);
    ask(&mut silent);
    silent.pass(TASK_NOTIFICATION_WAIT_MS - 1);
    assert_eq!(count(&silent, "notification_failed"), 0);
    silent.pass(TICK_MS);
    silent.settle();
    assert_eq!(count(&silent, "notification_failed"), 1);
    assert!(silent.calls.is_empty());
}

#[test]
fn task_8_unreadable_configuration_fails_no_notification() {
    let mut world = World::notifying(&[send()]);
    ask(&mut world);
    world.is_unconfigured = true;
    world.kill_daemon();
    world.settle();
    world.pass(TICK_MS);
    world.settle();
    assert_eq!(count(&world, "notification_failed"), 0);
    world.is_unconfigured = false;
    world.open();
    world.connect(true);
    assert_eq!(world.calls.len(), 1);
}

#[test]
fn task_8_task_whose_removal_failed_still_sends_notifications() {
    let cancelled = notify(
        "send",
        json!({"chat": 1, "text": "${on}"}),
        &[NotifyOn::Cancelled],
    );
    let mut world = World::notifying(&[cancelled]);
    ask(&mut world);
    world.get("task.cancel", &json!({"taskId": "t"})).unwrap();
    world.ask("task.remove", &json!({"taskId": "t"}));
    world.pass(TICK_MS);
    world.is_disk_full = true;
    world.settle();
    world.connect(true);
    assert_eq!(world.calls.len(), 1);
}
