//! Goal: a replay is the same for the same configuration, and a change appears in exactly the part
//! that it affects.
//!
//! Method: the conversation and the tools of the tests of rehearsals.

use std::collections::BTreeMap;

use goondan_protocol::approval::Approve;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::InstanceKey;
use goondan_protocol::message::Message;
use goondan_protocol::replay::{CallFate, PlayedEnd, PlayedTurn};
use serde_json::{Value, json};

use super::player::{Player, ReplaySide};
use super::prints::PathNames;
use crate::model::scripted::ScriptedModel;
use crate::rehearsal::RehearsalSide;
use crate::rehearsal::recorded_turns::RecordedTurn;
use crate::rehearsal::tests::{FixedTools, LOOK, WRITE, agent, recorded, reply, user};

type Tool = (&'static str, &'static str, Approve);

/// The turn of a conversation that begins at `first`.
fn play_at(
    (agent, tools): (&AgentDefinition, &[Tool]),
    script: Option<&Value>,
    messages: &[Message],
    (turn, first): (&str, usize),
    failures: &[(u32, &str)],
) -> PlayedTurn {
    let key: InstanceKey = "main".parse().unwrap();
    let side = RehearsalSide {
        agent,
        key: &key,
        tools: FixedTools(tools.to_vec()),
    };
    let model = script.map(|rules| {
        let script = serde_json::from_value(json!({"rules": rules})).unwrap();
        ScriptedModel::new(&script)
    });
    let side = ReplaySide::new(side, model, &PathNames::default());
    let count = messages.len() - first;
    let turn = RecordedTurn::at(messages, turn.parse().unwrap(), (first, count)).unwrap();
    let failures: BTreeMap<u32, String> = failures
        .iter()
        .map(|(step, error)| (*step, (*error).to_owned()))
        .collect();
    Player::new(&side, &turn, &failures).play()
}

/// The second turn of the recorded conversation.
fn play(agent: &AgentDefinition, tools: &[Tool], script: Option<&Value>) -> PlayedTurn {
    play_at((agent, tools), script, &recorded(), ("t2", 2), &[])
}

fn plain() -> AgentDefinition {
    agent("p", &json!([]))
}

#[test]
fn the_same_configuration_replays_to_the_same_result() {
    let played = play(&plain(), &[LOOK, WRITE], None);
    assert_eq!(played.end, PlayedEnd::Replied);
    assert!(played.unlike.is_empty() && played.notes.is_empty());
    assert_eq!(played.steps.len(), 3);
    // The first request adds the question to the two messages before the turn; each later one the
    // reply before it and its result.
    let requests = played.steps.iter();
    let requests: Vec<(usize, usize)> = requests
        .map(|step| (step.kept, step.messages.len()))
        .collect();
    assert_eq!(requests, [(2, 1), (3, 2), (5, 2)]);
    assert!(played.steps[0].tools.is_some() && played.steps[1].tools.is_none());
    assert_eq!(played.steps[1].calls[0].tool_name, "write");
    assert_eq!(played.steps[1].calls[0].fate, CallFate::Runs);
    assert_eq!(play(&plain(), &[LOOK, WRITE], None), played);
}

#[test]
fn a_changed_prompt_or_model_changes_nothing_else() {
    let was = play(&plain(), &[LOOK, WRITE], None);
    let prompt = play(&agent("q", &json!([])), &[LOOK, WRITE], None);
    assert_ne!(prompt.prompt, was.prompt);
    assert_eq!((&prompt.model, &prompt.steps), (&was.model, &was.steps));
    let mut other = plain();
    other.model.model = "n".to_owned();
    let model = play(&other, &[LOOK, WRITE], None);
    assert_ne!(model.model, was.model);
    assert_eq!((&model.prompt, &model.steps), (&was.prompt, &was.steps));
}

#[test]
fn a_refused_call_is_noted_with_its_reason() {
    let was = play(&plain(), &[LOOK, WRITE], None);
    let played = play(&plain(), &[LOOK], None);
    let CallFate::Refused { why } = &played.steps[1].calls[0].fate else {
        panic!("{played:?}");
    };
    assert!(why.contains("E_TOOL_NOT_IN_CATALOG"), "{why}");
    assert_ne!(played.steps[0].tools, was.steps[0].tools);
    assert_eq!(played.steps[1].messages, was.steps[1].messages);
    // The model gets the error in its next request.
    assert_ne!(played.steps[2].messages, was.steps[2].messages);
    assert_eq!(
        played.unlike,
        ["message `t2.2:r0` differs from the recorded one"]
    );
    let asked = ("write", "path", Approve::Ask);
    let played = play(&plain(), &[LOOK, asked], None);
    assert_eq!(played.steps[1].calls[0].fate, CallFate::Asks);
}

#[test]
fn a_script_is_played_and_the_turn_continues_as_recorded() {
    let rules = |last: &str| {
        json!([
            {"when": {"step": 1}, "call": [{"tool": "look", "args": {"path": "a"}}]},
            {"when": {"step": 2}, "call": [{"tool": "write", "args": {"path": "b"}}]},
            {"say": last},
        ])
    };
    // The script names its calls itself, so the recorded conversation is made to fit.
    let named = serde_json::to_string(&recorded()).unwrap();
    let named = named
        .replace("\"c1\"", "\"t2.1:c0\"")
        .replace("\"c2\"", "\"t2.2:c0\"");
    let messages: Vec<Message> = serde_json::from_str(&named).unwrap();
    let play = |last: &str| {
        let tools: &[Tool] = &[LOOK, WRITE];
        play_at(
            (&plain(), tools),
            Some(&rules(last)),
            &messages,
            ("t2", 2),
            &[],
        )
    };
    let was = play("Copied.");
    assert!(was.unlike.is_empty(), "{:?}", was.unlike);
    let is = play("Done.");
    assert_eq!(is.unlike.len(), 1);
    assert_eq!(is.steps[..2], was.steps[..2]);
    assert_ne!(is.steps[2].reply, was.steps[2].reply);
    assert_eq!(is.steps[2].messages, was.steps[2].messages);
    assert_eq!(is.end, was.end);
}

#[test]
fn a_recorded_failure_of_the_model_fails_the_turn() {
    let messages = [user("t1", "hello")];
    let tools: &[Tool] = &[];
    let played = play_at(
        (&plain(), tools),
        None,
        &messages,
        ("t1", 0),
        &[(1, "overloaded")],
    );
    let why = "E_MODEL: overloaded".to_owned();
    assert_eq!(played.end, PlayedEnd::Failed { why });
    let reply = played.steps[0].reply.as_ref().unwrap();
    assert_eq!(reply.detail, "fails: overloaded");
    let played = play_at((&plain(), tools), None, &messages, ("t1", 0), &[]);
    let why = "no reply is recorded for step 1".to_owned();
    assert_eq!(played.end, PlayedEnd::Incomplete { why });
}

#[test]
fn the_clock_is_the_recorded_one() {
    let source = json!({"kind": "builtin", "package": "@goondan/base", "name": "context-message"});
    let config = json!({"text": "Today is ${date}."});
    let dated = agent(
        "p",
        &json!([{"name": "today", "source": source, "config": config}]),
    );
    let mut messages = recorded();
    messages[2].created_at = "2026-03-04T05:06:07.000Z".to_owned();
    let tools: &[Tool] = &[LOOK, WRITE];
    let played = play_at((&dated, tools), None, &messages, ("t2", 2), &[]);
    let told = played.steps[0].messages.iter();
    let told: Vec<&str> = told.map(|message| message.detail.as_str()).collect();
    assert!(told.contains(&"Today is 2026-03-04."), "{told:?}");
    assert_eq!(played.unlike.len(), 1, "{:?}", played.unlike);
}

#[test]
fn removed_messages_are_missing_in_the_request() {
    let source = json!({"kind": "builtin", "package": "@goondan/base", "name": "message-window"});
    let config = json!({"maxMessages": 4});
    let short = agent(
        "p",
        &json!([{"name": "window", "source": source, "config": config}]),
    );
    let mut longer = vec![user("t0", "hi"), reply("t0", 1, "Hi.", &[])];
    longer.extend(recorded());
    let tools: &[Tool] = &[LOOK, WRITE];
    let play = |agent| play_at((agent, tools), None, &longer, ("t2", 4), &[]);
    let plain = plain();
    let (was, is) = (play(&plain), play(&short));
    assert_eq!((was.steps[0].kept, was.steps[0].messages.len()), (4, 1));
    // Four messages precede the turn, and its own message is one too many.
    assert_eq!(is.steps[0].kept, 0);
    assert!(is.steps[0].messages.len() < 5);
    assert_eq!(is.steps[1].messages.len(), 2);
    assert_eq!(play(&short), is);
}
