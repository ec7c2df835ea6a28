//! Tests of open points of tasks in chats: one decision, over kills of the daemon and failed
//! writes.

use goondan_cli_agents::blocks::{Block, QuestionCategory, UserQuestion};
use goondan_cli_agents::{CliEvent, RunResult};
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionPress, DecisionShow, DecisionVerdict, DecisionsFollow,
};
use goondan_protocol::ids::DecisionId;
use goondan_protocol::ipc::{ToConnector, ToOrchestrator};
use serde_json::json;

use super::world::World;
use crate::limits::DECISION_LOOK_MS;

/// Creates a task whose agent asks a question with these options, and ends its run.
fn ask(world: &mut World, options: &[&str]) {
    let new = json!({"taskId": "t", "title": "Build it", "description": "Do so.", "start": true});
    world.get("task.new", &new).unwrap();
    let process = world.run("t");
    let question = CliEvent::Block(Block::UserQuestion(UserQuestion {
        category: QuestionCategory::Choice,
        question: "Which?".to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        default: None,
        required: true,
    }));
    let result = CliEvent::Result(RunResult {
        is_ok: true,
        text: "done".to_owned(),
        denied: Vec::new(),
    });
    world.tell(process, &[question, result]);
    world.settle();
    world.exit(process, Some(0));
    world.settle();
    assert_eq!(world.status("t"), "waiting_question");
}

pub(super) fn follow(world: &mut World, known: &[DecisionId]) {
    world.connect(true);
    let follow = DecisionsFollow {
        known: known.to_vec(),
    };
    let process = world.connector.unwrap();
    world.say(process, ToOrchestrator::DecisionsFollow(follow));
    world.settle();
}

pub(super) fn press(world: &mut World, id: &DecisionId, user: &str, answer: DecisionAnswer) {
    let press = DecisionPress {
        decision_id: id.clone(),
        answer,
        user: user.to_owned(),
    };
    let process = world.connector.unwrap();
    world.say(process, ToOrchestrator::DecisionPress(press));
}

fn option(number: u8) -> DecisionAnswer {
    DecisionAnswer::Button(DecisionButton::Option(number))
}

pub(super) fn shown(world: &mut World) -> DecisionShow {
    let shown = world.chat.iter().find_map(|message| match message {
        ToConnector::DecisionShow(show) => Some((**show).clone()),
        _ => None,
    });
    world.chat.clear();
    shown.unwrap()
}

pub(super) fn is_shown(world: &World) -> bool {
    let mut messages = world.chat.iter();
    messages.any(|message| matches!(message, ToConnector::DecisionShow(_)))
}

pub(super) fn verdicts(world: &mut World) -> Vec<DecisionVerdict> {
    let verdicts = world.chat.iter().filter_map(|message| match message {
        ToConnector::DecisionVerdict(verdict) => Some(verdict.clone()),
        _ => None,
    });
    verdicts.collect()
}

pub(super) fn closed(world: &World) -> Vec<(DecisionId, String)> {
    let closed = world.chat.iter().filter_map(|message| match message {
        ToConnector::DecisionClosed(closed) => {
            Some((closed.decision_id.clone(), closed.how.clone()))
        }
        _ => None,
    });
    closed.collect()
}

#[test]
fn need_2_question_is_decided_once_in_a_chat_and_after_a_kill() {
    let mut world = World::asking();
    follow(&mut world, &[]);
    ask(&mut world, &["a", "b"]);
    let show = shown(&mut world);
    let labels: Vec<&str> = show
        .form
        .choices
        .iter()
        .map(|it| it.label.as_str())
        .collect();
    assert_eq!((labels, show.form.reply), (vec!["a", "b"], None));
    let id = show.decision_id;
    // An unauthorized user, and an option that does not exist.
    press(&mut world, &id, "6", option(0));
    press(&mut world, &id, "5", option(2));
    let refused = verdicts(&mut world);
    assert!(
        matches!(
            refused[..],
            [
                DecisionVerdict::NotAllowed { .. },
                DecisionVerdict::NotAllowed { .. }
            ]
        ),
        "{refused:?}"
    );
    world.chat.clear();

    press(&mut world, &id, "5", option(1));
    assert_eq!(verdicts(&mut world), [], "it is not durable yet");
    let how = "answered by telegram:5: b".to_owned();
    press(&mut world, &id, "7", option(0));
    let before = DecisionVerdict::DecidedBefore { how: how.clone() };
    assert_eq!(verdicts(&mut world), std::slice::from_ref(&before));
    world.settle();
    let decided = DecisionVerdict::Decided { how: how.clone() };
    assert_eq!(verdicts(&mut world), [before.clone(), decided]);
    assert_eq!(closed(&world), [(id.clone(), how.clone())]);
    let facts = world.facts("t");
    let answers = facts.iter().filter(|fact| *fact == "question_answered");
    assert_eq!(answers.count(), 1);

    // The connection still shows it, and a press arrives late.
    world.kill_daemon();
    world.settle();
    world.chat.clear();
    follow(&mut world, std::slice::from_ref(&id));
    assert_eq!(closed(&world), [(id.clone(), how)]);
    press(&mut world, &id, "7", option(0));
    assert_eq!(verdicts(&mut world), [before]);
}

#[test]
fn need_2_open_question_keeps_its_message_after_a_kill() {
    let mut world = World::asking();
    follow(&mut world, &[]);
    ask(&mut world, &[]);
    let show = shown(&mut world);
    assert_eq!(show.form.reply.as_deref(), Some("answer"));
    assert_eq!(show.form.choices, []);
    let id = show.decision_id;
    world.kill_daemon();
    world.settle();
    follow(&mut world, std::slice::from_ref(&id));
    assert!(world.chat.is_empty(), "{:?}", world.chat);
    let text = DecisionAnswer::Text(" blue ".to_owned());
    press(&mut world, &id, "5", text);
    world.settle();
    let how = "answered by telegram:5: blue".to_owned();
    assert_eq!(verdicts(&mut world), [DecisionVerdict::Decided { how }]);
    assert_eq!(world.status("t"), "running");
}

#[test]
fn need_2_answer_that_cannot_be_stored_changes_nothing() {
    let mut world = World::asking();
    follow(&mut world, &[]);
    ask(&mut world, &["a", "b"]);
    let id = shown(&mut world).decision_id;
    world.is_disk_full = true;
    press(&mut world, &id, "5", option(0));
    world.settle();
    let failed = verdicts(&mut world);
    assert!(
        matches!(failed[..], [DecisionVerdict::NotNow { .. }]),
        "{failed:?}"
    );
    assert!(!world.facts("t").contains(&"question_answered".to_owned()));
}

#[test]
fn need_2_question_answered_by_a_client_is_closed_in_the_chat() {
    let mut world = World::asking();
    follow(&mut world, &[]);
    ask(&mut world, &["a", "b"]);
    let id = shown(&mut world).decision_id;
    world
        .get("task.answer", &json!({"taskId": "t", "text": "a"}))
        .unwrap();
    let how = "answered by a person".to_owned();
    assert_eq!(closed(&world), [(id.clone(), how.clone())]);
    press(&mut world, &id, "5", option(1));
    assert_eq!(
        verdicts(&mut world),
        [DecisionVerdict::DecidedBefore { how }]
    );
}

#[test]
fn need_1_question_is_shown_in_another_chat_after_a_wait() {
    const WAIT_MS: u64 = 15 * 60_000;
    let settings = json!({"chat": -1, "users": [5], "afterMinutes": 15});
    let mut world = World::asking_by(settings);
    follow(&mut world, &[]);
    ask(&mut world, &["a", "b"]);
    // Only the calendar counts, because the daemon may have been down.
    world.wall_ahead_ms += WAIT_MS / 2;
    world.pass(DECISION_LOOK_MS);
    assert!(!is_shown(&world));
    world.wall_ahead_ms += WAIT_MS / 2;
    world.pass(DECISION_LOOK_MS);
    world.settle();
    let id = shown(&mut world).decision_id;
    world.pass(DECISION_LOOK_MS);
    assert!(!is_shown(&world), "it is shown once");
    press(&mut world, &id, "5", option(0));
    world.settle();
    assert_eq!(verdicts(&mut world).len(), 1);
}

#[test]
fn need_1_questions_are_not_decided_in_a_chat_for_reviews() {
    let mut world = World::asking_by(json!({"chat": -1, "users": [5]}));
    follow(&mut world, &[]);
    ask(&mut world, &["a", "b"]);
    let id = shown(&mut world).decision_id;
    let reviews = json!({"chat": -1, "users": [5], "kinds": ["review"]});
    let mut world = World::asking_by(reviews);
    follow(&mut world, &[]);
    ask(&mut world, &["a", "b"]);
    assert!(!is_shown(&world));
    press(&mut world, &id, "5", option(0));
    let refused = verdicts(&mut world);
    let [DecisionVerdict::NotAllowed { message }] = refused.as_slice() else {
        panic!("{refused:?}");
    };
    assert!(message.contains("approvals.kinds"), "{message}");
}
