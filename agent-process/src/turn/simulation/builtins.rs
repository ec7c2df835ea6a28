//! Goal: built-in extensions add no wait to a turn, and a crash repeats nothing they did.
//!
//! Method: the turns of the simulation run with extensions that write to the log and into the
//! conversation. The effects of one turn are compared in full, with their order.

use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};
use goondan_protocol::ids::ExtensionStates;
use goondan_protocol::message::{Message, MessageEvent, MessageSource};
use serde_json::{Value, json};

use super::{Act, World, at, plans};
use crate::extensions::Extensions;
use crate::tool_call::{CallKey, ToolOutcome};
use crate::turn::effect::{TurnEngineEffect, TurnEngineInput};

pub(super) fn definitions() -> [ExtensionDefinition; 2] {
    let definition = |builtin: &str, config: Value| ExtensionDefinition {
        name: builtin.parse().unwrap(),
        source: ExtensionSource::Builtin {
            package: "@goondan/base".to_owned(),
            name: builtin.parse().unwrap(),
        },
        config: config.as_object().unwrap().clone(),
    };
    [
        definition("logging", json!({})),
        definition("context-message", json!({"text": "Be brief."})),
    ]
}

pub(super) fn of(definitions: &[ExtensionDefinition]) -> Extensions {
    let (agent, key) = ("worker".parse().unwrap(), "main".parse().unwrap());
    Extensions::new(agent, key, definitions, ExtensionStates::new()).unwrap()
}

fn extensions() -> Extensions {
    of(&definitions())
}

/// Asserts that the message of the turn's context occurs once.
pub(super) fn check_context(world: &World) {
    let is_context = |message: &&Message| {
        let of_extension = matches!(
            &message.source,
            MessageSource::Extension { extension_name, .. } if extension_name.as_str() == "context-message"
        );
        of_extension && message.data.content.to_text() == "Be brief."
    };
    assert_eq!(world.messages().filter(is_context).count(), 1);
}

#[test]
fn ext_2_crash_at_any_action_repeats_no_built_in_extension_work() {
    for (plan, steps, expected) in plans() {
        for seed in 0..6 {
            let play = |crashes: &[usize]| {
                let mut world = World::new(&plan, steps, seed, crashes);
                world.extensions = extensions;
                world.play();
                world.check_pairs();
                check_context(&world);
                assert_eq!(world.outcome.as_ref(), Some(&expected));
                world.action_count
            };
            for crash_at in 1..=play(&[]) {
                play(&[crash_at]);
            }
        }
    }
}

fn named(effects: &[TurnEngineEffect]) -> Vec<String> {
    let name = |effect: &TurnEngineEffect| match effect {
        TurnEngineEffect::Append { event, .. } => format!("append {}", id_of(event)),
        TurnEngineEffect::Log { line, .. } => format!("log {line}"),
        TurnEngineEffect::RunTool { call, .. } => format!("run {}", call.id),
        TurnEngineEffect::AskModel { step, .. } => format!("ask {step}"),
        TurnEngineEffect::Observe(observation) => format!("tell {:?}", observation.kind),
        TurnEngineEffect::Complete { .. } => "complete".to_owned(),
        other => panic!("{other:?} is nothing for built-in extensions"),
    };
    effects.iter().map(name).collect()
}

fn id_of(event: &MessageEvent) -> &str {
    match event {
        MessageEvent::Append { message } => message.id.as_str(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ext_2_built_in_extensions_run_in_order_without_waiting() {
    let plan = [Act::Call(vec!["bad", "read", "run"]), Act::Say("done")];
    let mut world = World::new(&plan, 9, 0, &[]);
    assert!(
        !world.has_recorder,
        "the model is inside: it waits for nothing"
    );
    world.extensions = extensions;
    let mut life = world.born();
    let durable = |seq| TurnEngineInput::Durable {
        turn_id: world.turn_id.clone(),
        seq,
    };
    let finished = |index| TurnEngineInput::ToolFinished {
        key: CallKey { step: 1, index },
        outcome: ToolOutcome::ok("did"),
    };
    let mut seen = vec![named(life.effects.make_contiguous())];
    for input in [
        world.answer(1),
        durable(3),
        finished(2),
        finished(1),
        durable(6),
        world.answer(2),
    ] {
        seen.push(named(&life.engine.handle(input, at()).unwrap()));
    }
    let expected: [&[&str]; 7] = [
        &[
            "tell TurnStarted",
            "append t:u",
            "log the turn begins with 2 messages",
            "append t:x1b.1",
            "log the model is asked with 3 messages",
            "tell StepStarted",
            "ask 1",
        ],
        &["append t.1:a", "tell ToolCalled"],
        &[
            "log `read` is called",
            "log `run` is called",
            "tell ToolCalled",
            "run 1:1",
            "tell ToolCalled",
            "run 1:2",
            "tell ToolFailed",
            "append t.1:r0",
        ],
        &["log `run` returned, 3 bytes", "tell ToolCompleted"],
        &[
            "log `read` returned, 3 bytes",
            "tell ToolCompleted",
            "append t.1:r1",
            "append t.1:r2",
            "tell StepCompleted",
            "log the model is asked with 7 messages",
            "tell StepStarted",
            "ask 2",
        ],
        &[],
        &[
            "append t.2:a",
            "tell StepCompleted",
            "log the turn ends with a reply of 4 bytes",
            "tell TurnCompleted",
            "complete",
        ],
    ];
    assert_eq!(seen, expected);
}
