//! Goal: modules around a turn keep their order across crashes.
//!
//! Method: two modules with middlewares of every type answer in the order that the schedule
//! chooses. Each emits a message before `next()` and one after it. The outer module also removes a
//! message from the conversation, and after each crash emits a message that it has not emitted
//! before. Every entry and exit is checked against the open invocations.

use std::collections::BTreeMap;

use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::message::{Message, MessageEvent, MessageRole};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Act, World, any_act, at, builtins};
use crate::extensions::Extensions;
use crate::middleware::{
    Enter, ExtensionFault, InvocationId, Middleware, MiddlewareEvent, MiddlewareReturn,
    MiddlewareScope, MiddlewareTarget, NextResult, Notes,
};
use crate::tool_call::ToolOutcome;
use crate::turn::effect::{TurnEngineEffect, TurnEngineInput};

const CRASHED: &str = "E_EXT_CRASHED";

/// Simulated modules around a turn.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Invocations that wait for the result of `next()`, by the turn, step or call they wrap.
    open: BTreeMap<String, Vec<InvocationId>>,
    invocations: BTreeMap<InvocationId, Enter>,
    /// Number of invocations entered before the host crashes.
    entered_until_lost: Option<usize>,
    /// The middleware that throws before `next()`.
    throws: Option<(&'static str, MiddlewareScope)>,
    lives: u32,
    /// Everything entered and left in the latest life, in order.
    trace: Vec<String>,
}

fn definition(name: &str) -> ExtensionDefinition {
    ExtensionDefinition {
        name: name.parse().unwrap(),
        source: ExtensionSource::Module {
            entry: format!("{name}.mjs").into(),
            digest: String::new(),
            timeout_ms: 1,
        },
        config: goondan_protocol::JsonObject::new(),
    }
}

/// `outer` comes second in the agent's list, but its priority is lower.
fn extensions() -> Extensions {
    builtins::of(&[definition("inner"), definition("outer")])
}

/// Modules with built-in extensions between them.
fn among_builtins() -> Extensions {
    let [log, context] = builtins::definitions();
    builtins::of(&[log, definition("inner"), definition("outer"), context])
}

fn scope_of(moment: &MiddlewareTarget) -> (MiddlewareScope, String) {
    match moment {
        MiddlewareTarget::Turn => (MiddlewareScope::Turn, "turn".to_owned()),
        MiddlewareTarget::Step { step, .. } => (MiddlewareScope::Step, format!("step {step}")),
        MiddlewareTarget::Call { call, .. } => {
            (MiddlewareScope::ToolCall, format!("call {}", call.id))
        }
    }
}

impl Modules {
    pub(super) fn are_born(&mut self) {
        self.open.clear();
        self.invocations.clear();
        self.trace.clear();
        self.lives += 1;
    }

    pub(super) fn answer(&mut self, effect: TurnEngineEffect) -> TurnEngineInput {
        match effect {
            TurnEngineEffect::Assemble => {
                let middleware =
                    |extension: &str, scope: MiddlewareScope, priority: i64| Middleware {
                        extension: extension.parse().unwrap(),
                        scope,
                        number: 0,
                        priority,
                    };
                let scopes = [
                    MiddlewareScope::Turn,
                    MiddlewareScope::Step,
                    MiddlewareScope::ToolCall,
                ];
                let both = scopes.into_iter().flat_map(|scope| {
                    [
                        middleware("inner", scope, 7),
                        middleware("outer", scope, -7),
                    ]
                });
                let middlewares = both.collect();
                TurnEngineInput::Assembled { middlewares }
            }
            TurnEngineEffect::Enter(enter) => self.enter(*enter),
            TurnEngineEffect::Return { invocation, result } => self.leave(invocation, result),
            other => panic!("{other:?} is nothing for modules"),
        }
    }

    fn enter(&mut self, enter: Enter) -> TurnEngineInput {
        if let Some(left) = &mut self.entered_until_lost {
            if *left == 0 {
                self.entered_until_lost = None;
                return TurnEngineInput::ExtensionsLost {
                    fault: ExtensionFault {
                        code: CRASHED.to_owned(),
                        message: "gone".to_owned(),
                    },
                };
            }
            *left -= 1;
        }
        let (scope, around) = scope_of(&enter.moment);
        self.trace.push(format!("{} > {around}", enter.extension));
        let invocation = enter.invocation;
        if self
            .throws
            .is_some_and(|(name, of)| enter.extension.as_str() == name && of == scope)
        {
            let event = MiddlewareEvent::Threw {
                notes: Notes::default(),
                code: None,
                message: "no".to_owned(),
            };
            return TurnEngineInput::MiddlewareActed { invocation, event };
        }
        let open = self.open.entry(around).or_default();
        let is_outer = enter.extension.as_str() == "outer";
        assert_eq!(open.is_empty(), is_outer, "entered out of order");
        open.push(invocation);
        let mut notes = notes_of(&enter, 1);
        if is_outer && scope == MiddlewareScope::Turn {
            let target_id = "earlier".parse().unwrap();
            notes.events.push(MessageEvent::Remove { target_id });
            if self.lives > 1 {
                notes
                    .events
                    .extend(notes_of(&enter, 100 + self.lives).events);
            }
        }
        self.invocations.insert(invocation, enter);
        let event = MiddlewareEvent::Next {
            notes,
            hidden: Vec::new(),
            args: None,
        };
        TurnEngineInput::MiddlewareActed { invocation, event }
    }

    fn leave(&mut self, invocation: InvocationId, result: NextResult) -> TurnEngineInput {
        let enter = &self.invocations[&invocation];
        let (scope, around) = scope_of(&enter.moment);
        self.trace.push(format!("{} < {around}", enter.extension));
        let open = self.open.get_mut(&around).unwrap();
        assert_eq!(open.pop(), Some(invocation), "left out of order");
        if scope != MiddlewareScope::ToolCall {
            let calls = self
                .open
                .iter()
                .filter(|(name, _)| name.starts_with("call"));
            assert!(
                calls.clone().all(|(_, open)| open.is_empty()),
                "a call is open"
            );
        }
        let returned = match result {
            NextResult::Turn(outcome) => MiddlewareReturn::Turn(outcome),
            NextResult::Step { .. } => MiddlewareReturn::Step { goes_on: None },
            NextResult::Call(outcome) => {
                let text = format!("{} ({})", outcome.text, enter.extension);
                MiddlewareReturn::Call(ToolOutcome { text, ..outcome })
            }
        };
        let notes = notes_of(enter, 2);
        let event = MiddlewareEvent::Left { notes, returned };
        TurnEngineInput::MiddlewareActed { invocation, event }
    }

    fn all_left(&self) -> bool {
        self.open.values().all(Vec::is_empty)
    }
}

/// A message and a state, except around a call.
fn notes_of(enter: &Enter, n: u32) -> Notes {
    if enter.id_prefix.is_empty() {
        return Notes::default();
    }
    let id = format!("{}{n}", enter.id_prefix).parse().unwrap();
    let message = Message::extension(
        id,
        at(),
        enter.extension.clone(),
        MessageRole::System,
        "note",
    );
    Notes {
        events: vec![MessageEvent::Append { message }],
        state: Some(json!(enter.id_prefix)),
    }
}

fn world(plan: &[Act], seed: u64, crashes: &[usize]) -> World {
    let mut world = World::new(plan, 9, seed, crashes);
    world.extensions = extensions;
    world.modules = Some(Modules::default());
    world
}

fn outcome_of(world: &World) -> (&str, &str) {
    match world.outcome.as_ref().unwrap() {
        TurnOutcome::Completed { reply } => ("", reply),
        TurnOutcome::Failed { code, message } => (code, message),
    }
}

#[test]
fn ext_2_middlewares_form_a_stack_by_their_priorities() {
    let plan = [Act::Call(vec!["read"]), Act::Say("done")];
    let mut world = world(&plan, 3, &[]);
    world.play();
    let modules = world.modules.as_ref().unwrap();
    let expected = [
        "outer > turn",
        "inner > turn",
        "outer > step 1",
        "inner > step 1",
        "outer > call 1:0",
        "inner > call 1:0",
        "inner < call 1:0",
        "outer < call 1:0",
        "inner < step 1",
        "outer < step 1",
        "outer > step 2",
        "inner > step 2",
        "inner < step 2",
        "outer < step 2",
        "inner < turn",
        "outer < turn",
    ];
    assert_eq!(modules.trace, expected);
    assert_eq!(
        world.results(),
        [("did 1:0 (inner) (outer)".to_owned(), false)]
    );
}

#[test]
fn ext_2_crash_at_any_action_repeats_no_module_event() {
    let plan = [Act::Call(vec!["run", "read", "bad"]), Act::Say("done")];
    for seed in 0..12 {
        let mut whole = world(&plan, seed, &[]);
        whole.play();
        for crash_at in 1..=whole.action_count {
            let mut world = world(&plan, seed, &[crash_at]);
            world.play();
            check(&world);
            assert_eq!(outcome_of(&world), ("", "done"));
        }
    }
}

#[test]
fn ext_2_modules_and_built_ins_keep_separate_state_over_crashes() {
    let plan = [Act::Call(vec!["bad", "read", "run"]), Act::Say("done")];
    for seed in 0..6 {
        let mixed = |crashes: &[usize]| {
            let mut world = world(&plan, seed, crashes);
            world.extensions = among_builtins;
            world.play();
            check(&world);
            builtins::check_context(&world);
            assert_eq!(outcome_of(&world), ("", "done"));
            world.action_count
        };
        for crash_at in 1..=mixed(&[]) {
            mixed(&[crash_at]);
        }
    }
}

/// Invariants at the end of every turn whose modules stayed until its end.
fn check(world: &World) {
    world.check_pairs();
    assert!(world.modules.as_ref().unwrap().all_left());
    let removed = |event: &&MessageEvent| matches!(event, MessageEvent::Remove { .. });
    assert_eq!(world.journal.iter().filter(removed).count(), 1);
    let of_turn = |message: &&Message| {
        let id = message.id.as_str();
        id.ends_with("m0b.1") || id.ends_with("m0b.2")
    };
    assert_eq!(world.messages().filter(of_turn).count(), 4, "two of each");
}

#[test]
fn host_crash_fails_the_turn_and_every_call_has_a_result() {
    let plan = [Act::Call(vec!["run", "read", "bad"]), Act::Say("done")];
    for seed in 0..12 {
        for entered in 0..10 {
            let mut world = world(&plan, seed, &[]);
            world.modules.as_mut().unwrap().entered_until_lost = Some(entered);
            world.play();
            world.check_pairs();
            assert_eq!(outcome_of(&world), (CRASHED, "gone"), "after {entered}");
        }
    }
}

#[test]
fn error_thrown_by_a_middleware_fails_its_turn_or_call() {
    let plan = [Act::Call(vec!["run"]), Act::Say("done")];
    for (scope, name, outcome) in [
        (
            MiddlewareScope::Turn,
            "inner",
            ("E_EXT_FAILED", "extension `inner` failed: no"),
        ),
        (
            MiddlewareScope::Step,
            "outer",
            ("E_EXT_FAILED", "extension `outer` failed: no"),
        ),
        (MiddlewareScope::ToolCall, "inner", ("", "done")),
    ] {
        let mut world = world(&plan, 1, &[]);
        world.modules.as_mut().unwrap().throws = Some((name, scope));
        world.play();
        world.check_pairs();
        assert_eq!(outcome_of(&world), outcome);
        assert!(world.modules.as_ref().unwrap().all_left());
        if scope == MiddlewareScope::ToolCall {
            let refused = "E_EXT_FAILED: extension `inner`: no (outer)".to_owned();
            assert_eq!(world.results(), [(refused, true)]);
            assert!(world.begun_runs.is_empty(), "the tool did not run");
        }
    }
}

#[test]
fn ext_2_state_set_in_a_failed_turn_is_discarded() {
    let states = |plan: &[Act]| {
        let mut world = world(plan, 1, &[]);
        world.play();
        world.states
    };
    let kept = states(&[Act::Say("done")]);
    let outer = "outer".parse().unwrap();
    assert_eq!(kept.get(&outer), Some(&Value::from("t:x1m0b.")));
    assert!(states(&[Act::Fail("broken")]).is_empty());
}

#[test]
fn ext_4_extensions_remember_at_most_so_much_together() {
    let mut extensions = extensions();
    let mut remember = |place: usize, bytes: usize| {
        let notes = Notes {
            events: Vec::new(),
            state: Some(Value::from("x".repeat(bytes))),
        };
        extensions.take_notes(place, notes)
    };
    let half = MAX_EXTENSION_STATE_BYTES / 2;
    assert_eq!(remember(0, half), Ok(Vec::new()));
    let refused = remember(1, half).unwrap_err();
    assert!(refused.contains("are allowed in total"), "{refused}");
    assert_eq!(remember(1, half - 10), Ok(Vec::new()));
    assert_eq!(
        remember(0, half - 10),
        Ok(Vec::new()),
        "in place of another"
    );
}

#[test]
fn modules_that_are_unknown_register_nothing() {
    let mut extensions = extensions();
    extensions.assemble(&[Middleware {
        extension: "stranger".parse().unwrap(),
        scope: MiddlewareScope::Turn,
        number: 0,
        priority: 0,
    }]);
    assert_eq!(extensions.depth(MiddlewareScope::Turn), 0);
}

proptest! {
    /// Any turn, any schedule, any number of crashes.
    #[test]
    fn ext_2_modules_survive_many_crashes(
        mut plan in prop::collection::vec(any_act(), 0..4),
        seed in any::<u64>(),
        crashes in prop::collection::vec(1usize..40, 0..8),
    ) {
        plan.push(Act::Say("done"));
        let mut world = world(&plan, seed, &crashes);
        world.play();
        check(&world);
        prop_assert_eq!(outcome_of(&world), ("", "done"));
    }

    /// Also crashes the host.
    #[test]
    fn every_call_has_a_result_despite_host_crashes(
        mut plan in prop::collection::vec(any_act(), 0..4),
        seed in any::<u64>(),
        crashes in prop::collection::vec(1usize..40, 0..8),
        entered in 0usize..30,
    ) {
        plan.push(Act::Say("done"));
        let mut world = world(&plan, seed, &crashes);
        world.modules.as_mut().unwrap().entered_until_lost = Some(entered);
        world.play();
        world.check_pairs();
    }
}
