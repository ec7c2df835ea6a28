//! Goal: a rehearsal reports what the engine itself would do, and a matching turn is reported as
//! unchanged.
//!
//! Method: a conversation of two turns as an agent records it, and tools that consist of a name
//! with one argument each.

use std::borrow::Cow;

use goondan_protocol::approval::Approve;
use goondan_protocol::definition::{AgentDefinition, CatalogEntry};
use goondan_protocol::ids::{InstanceKey, StepId};
use goondan_protocol::message::{Message, MessageContent, ToolCall, ToolResult};
use goondan_protocol::rehearsal::{FindingKind, RehearsalFinding, ReplayResult, RequestPart};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::{RehearsalSide, Tools, rehearse};
use crate::tool_call::{CallRejection, ToolRules};

/// Tools, each with its name, its required argument, and the approval of its calls.
#[derive(Clone)]
pub(crate) struct FixedTools(pub(crate) Vec<(&'static str, &'static str, Approve)>);

impl FixedTools {
    fn approve(&self, name: &str) -> Approve {
        let found = self.0.iter().find(|(known, _, _)| *known == name);
        found.map_or(Approve::Always, |found| found.2)
    }
}

impl ToolRules for FixedTools {
    fn check(&self, call: &ToolCall) -> Result<(), CallRejection> {
        let found = self.0.iter().find(|(name, _, _)| *name == call.tool_name);
        match found {
            None => Err(CallRejection::NotInCatalog(format!(
                "no `{}`",
                call.tool_name
            ))),
            Some((_, argument, _)) if call.input.get(argument).is_none() => Err(
                CallRejection::InvalidArgs(format!("at `/{argument}`: is missing")),
            ),
            Some(_) => Ok(()),
        }
    }

    fn is_idempotent(&self, _: &str) -> bool {
        false
    }

    fn needs_person(&self, call: &ToolCall) -> bool {
        self.approve(&call.tool_name).needs_person()
    }

    fn error_limit_chars(&self, _: &str) -> usize {
        1_000
    }
}

impl Tools for FixedTools {
    fn known(&self) -> Cow<'_, [CatalogEntry]> {
        let entries = self.0.iter().map(|(name, argument, _)| CatalogEntry {
            name: name.parse().unwrap(),
            description: String::new(),
            parameters: json!({"required": [argument]}),
        });
        Cow::Owned(entries.collect())
    }

    fn approval(&self, call: &ToolCall) -> Approve {
        self.approve(&call.tool_name)
    }

    fn unasked(&self) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) fn agent(prompt: &str, extensions: &Value) -> AgentDefinition {
    serde_json::from_value(json!({
        "name": "clerk",
        "systemPrompt": prompt,
        "model": {"name": "m", "model": "m", "provider": {"kind": "connector"}},
        "tools": [],
        "extensions": extensions,
        "maxStepsPerTurn": 8,
        "loopBreaker": {"sameCallsMax": 3, "noProgressStepsMax": 5},
        "sandbox": {"require": "off"},
    }))
    .unwrap()
}

pub(crate) fn at() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

pub(crate) fn user(turn: &str, text: &str) -> Message {
    Message::user(format!("{turn}:u").parse().unwrap(), at(), text)
}

pub(crate) fn reply(turn: &str, step: u32, text: &str, calls: &[ToolCall]) -> Message {
    let step_id = StepId::of_turn(&turn.parse().unwrap(), step);
    let id = format!("{step_id}:a").parse().unwrap();
    Message::assistant(id, at(), step_id, MessageContent::assistant(text, calls))
}

pub(crate) fn call(id: &str, tool: &str, input: Value) -> ToolCall {
    ToolCall {
        id: id.parse().unwrap(),
        tool_name: tool.to_owned(),
        input,
    }
}

pub(crate) fn result(turn: &str, step: u32, call: &ToolCall, text: &str) -> Message {
    let result = ToolResult {
        tool_call_id: call.id.clone(),
        tool_name: call.tool_name.clone(),
        text: text.to_owned(),
        is_error: false,
        images: Vec::new(),
    };
    let id = format!("{turn}.{step}:r0").parse().unwrap();
    Message::tool(id, at(), &result)
}

/// `t1` is a plain answer; `t2` reads a file, writes another, and then answers.
pub(crate) fn recorded() -> Vec<Message> {
    let look = call("c1", "look", json!({"path": "a"}));
    let write = call("c2", "write", json!({"path": "b"}));
    vec![
        user("t1", "hello"),
        reply("t1", 1, "Hello.", &[]),
        user("t2", "copy a to b"),
        reply("t2", 1, "", std::slice::from_ref(&look)),
        result("t2", 1, &look, "text"),
        reply("t2", 2, "", std::slice::from_ref(&write)),
        result("t2", 2, &write, "done"),
        reply("t2", 3, "Copied.", &[]),
    ]
}

pub(crate) const LOOK: (&str, &str, Approve) = ("look", "path", Approve::Always);
pub(crate) const WRITE: (&str, &str, Approve) = ("write", "path", Approve::Always);

fn play(
    before: (&AgentDefinition, &[(&'static str, &'static str, Approve)]),
    after: (&AgentDefinition, &[(&'static str, &'static str, Approve)]),
    messages: &[Message],
) -> ReplayResult {
    let key: InstanceKey = "main".parse().unwrap();
    let before = RehearsalSide {
        agent: before.0,
        key: &key,
        tools: FixedTools(before.1.to_vec()),
    };
    let after = RehearsalSide {
        agent: after.0,
        key: &key,
        tools: FixedTools(after.1.to_vec()),
    };
    rehearse(&before, &after, messages, 10)
}

/// The findings of the last turn.
fn findings(played: &ReplayResult) -> Vec<(FindingKind, u32, bool)> {
    let told = |it: &RehearsalFinding| (it.what, it.step, it.breaks);
    played
        .turns
        .last()
        .unwrap()
        .findings
        .iter()
        .map(told)
        .collect()
}

#[test]
fn bundle_7_matching_turns_replay_as_recorded_with_any_prompt() {
    let (was, is) = (
        agent("Be long.", &json!([])),
        agent("Be short.", &json!([])),
    );
    let played = play((&was, &[LOOK, WRITE]), (&is, &[LOOK, WRITE]), &recorded());
    assert!(played.tools.is_none() && played.notes.is_empty());
    assert_eq!(played.turns.len(), 2);
    for turn in &played.turns {
        assert!(
            turn.findings.is_empty() && turn.stopped.is_none(),
            "{turn:?}"
        );
        assert!(
            turn.steps
                .iter()
                .all(|step| step.differs == [RequestPart::Prompt])
        );
    }
    assert_eq!(played.turns[1].steps.len(), 3);
    assert_eq!(played.turns[1].input, "copy a to b");
    let same = play((&was, &[LOOK, WRITE]), (&was, &[LOOK, WRITE]), &recorded());
    assert!(
        same.turns
            .iter()
            .flat_map(|turn| &turn.steps)
            .all(|step| step.differs.is_empty())
    );
}

#[test]
fn bundle_7_rehearsal_reports_refused_calls_and_continues_turn() {
    let agent = agent("p", &json!([]));
    let renamed = ("write", "target", Approve::Always);
    let played = play((&agent, &[LOOK, WRITE]), (&agent, &[renamed]), &recorded());
    assert_eq!(played.tools.removed.len(), 1);
    assert_eq!(played.tools.changed.len(), 1);
    let refused = FindingKind::CallRefused;
    assert_eq!(findings(&played), [(refused, 1, true), (refused, 2, true)]);
    let turn = &played.turns[1];
    assert!(
        turn.findings[0].detail.contains("E_TOOL_NOT_IN_CATALOG"),
        "{turn:?}"
    );
    assert!(
        turn.findings[1].detail.contains("at `/target`: is missing"),
        "{turn:?}"
    );
    // The model would see it in its next request.
    assert_eq!(turn.steps[0].differs, [RequestPart::Tools]);
    assert_eq!(
        turn.steps[1].differs,
        [RequestPart::Tools, RequestPart::Messages]
    );
    assert_eq!(turn.steps.len(), 3);
    assert!(played.turns[0].findings.is_empty());
}

#[test]
fn bundle_7_calls_refused_before_as_well_are_no_findings() {
    let agent = agent("p", &json!([]));
    let played = play((&agent, &[LOOK]), (&agent, &[LOOK]), &recorded());
    assert!(findings(&played).is_empty());
    let played = play((&agent, &[LOOK]), (&agent, &[LOOK, WRITE]), &recorded());
    assert_eq!(findings(&played), [(FindingKind::CallTaken, 2, false)]);
}

#[test]
fn bundle_7_rehearsal_reports_approvals_and_breaks_on_refusal() {
    let agent = agent("p", &json!([]));
    let asked = ("write", "path", Approve::Ask);
    let never = ("write", "path", Approve::Never);
    let play = |is| play((&agent, &[LOOK, WRITE]), (&agent, &[LOOK, is]), &recorded());
    assert_eq!(findings(&play(asked)), [(FindingKind::Approval, 2, false)]);
    assert_eq!(
        findings(&play(never)),
        [(FindingKind::CallRefused, 2, true)]
    );
}

#[test]
fn bundle_7_rehearsal_reports_failing_turns_and_runs_extensions() {
    let plain = agent("p", &json!([]));
    let mut short = plain.clone();
    short.max_steps_per_turn = 2;
    let both: &[_] = &[LOOK, WRITE];
    let played = play((&plain, both), (&short, both), &recorded());
    assert_eq!(findings(&played), [(FindingKind::TurnFails, 2, true)]);
    assert!(findings(&play((&short, both), (&short, both), &recorded())).is_empty());
    let extension = |name: &str, config: Value| {
        let source = json!({"kind": "builtin", "package": "@goondan/base", "name": name});
        agent(
            "p",
            &json!([{"name": "x", "source": source, "config": config}]),
        )
    };
    let guarded = extension("required-tools-guard", json!({"tools": ["report"]}));
    let played = play((&plain, both), (&guarded, both), &recorded());
    assert_eq!(findings(&played), [(FindingKind::TurnEnds, 4, false)]);
    let windowed = extension("message-window", json!({"maxMessages": 4}));
    let mut longer = vec![user("t0", "hi"), reply("t0", 1, "Hi.", &[])];
    longer.extend(recorded());
    let played = play((&plain, both), (&windowed, both), &longer);
    assert!(findings(&played).is_empty());
    // Four messages precede its turn, and its own message is one too many.
    assert!(played.turns[1].steps[0].differs.is_empty());
    assert_eq!(played.turns[2].steps[0].differs, [RequestPart::Messages]);
}

#[test]
fn bundle_7_incomplete_recording_is_replayed_up_to_the_gap() {
    let agent = agent("p", &json!([]));
    let both: &[_] = &[LOOK, WRITE];
    let whole = recorded();
    for (kept, why) in [
        (3, "no reply is recorded for step 1"),
        (4, "no result of `look` is recorded in step 1"),
        (5, "no reply is recorded for step 2"),
    ] {
        let played = play((&agent, both), (&agent, both), &whole[..kept]);
        let turn = played.turns.last().unwrap();
        assert_eq!(turn.stopped.as_deref(), Some(why));
        assert!(turn.findings.is_empty());
    }
    assert!(play((&agent, both), (&agent, both), &[]).turns.is_empty());
}

#[test]
fn bundle_7_rehearsal_delivers_answers_at_their_recorded_step() {
    let agent = agent("p", &json!([]));
    let look = call("c1", "look", json!({"path": "a"}));
    let answer = |id: &str| Message::user(id.parse().unwrap(), at(), "[agent `b` answers]");
    let messages = vec![
        user("t1", "hello"),
        answer("t1:i0"),
        reply("t1", 1, "", std::slice::from_ref(&look)),
        result("t1", 1, &look, "text"),
        answer("t1:i1"),
        reply("t1", 2, "Done.", &[]),
    ];
    let key = "main".parse().unwrap();
    let side = RehearsalSide {
        agent: &agent,
        key: &key,
        tools: FixedTools(vec![LOOK]),
    };
    let turns = super::recorded_turns::latest_turns(&messages, 1);
    let part = super::playback::play(&side, &turns[0]);
    assert_eq!(part.end, super::playback::PlaybackEnd::Replied(2));
    let counts: Vec<usize> = part.requests.iter().map(|it| it.messages.len()).collect();
    assert_eq!(counts, [2, 5]);
}
