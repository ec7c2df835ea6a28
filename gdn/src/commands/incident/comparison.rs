//! Compares two playbacks of a turn: a pure function. A difference that continues in later steps
//! is reported once, at the step where it begins.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::ids::ToolName;
use goondan_protocol::replay::{PlayedCall, PlayedStep, PlayedTurn, ShortDigest};
use goondan_protocol::usage::MicroUsd;
use serde::Serialize;

/// Text for a side that has nothing to compare with.
const NOTHING: &str = "nothing";

/// A playback with the costs of its replies, by step.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaybackFacts<'a> {
    pub(super) played: &'a PlayedTurn,
    pub(super) costs: &'a BTreeMap<u32, MicroUsd>,
}

/// A difference between two playbacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Divergence {
    /// The step, from 1.
    pub(super) step: u32,
    pub(super) part: DivergentPart,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_name: Option<String>,
    pub(super) recorded: String,
    pub(super) now: String,
}

/// The part of a step that differs, in the order in which a step has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum DivergentPart {
    Agent,
    Prompt,
    Model,
    Tools,
    Message,
    Reply,
    Arguments,
    Call,
    Cost,
    End,
}

impl DivergentPart {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Prompt => "prompt",
            Self::Model => "model",
            Self::Tools => "tools",
            Self::Message => "message",
            Self::Reply => "reply",
            Self::Arguments => "arguments",
            Self::Call => "call",
            Self::Cost => "cost",
            Self::End => "end",
        }
    }
}

impl Divergence {
    fn new(
        step: u32,
        part: DivergentPart,
        recorded: impl Into<String>,
        now: impl Into<String>,
    ) -> Self {
        Self {
            step,
            part,
            tool_name: None,
            recorded: recorded.into(),
            now: now.into(),
        }
    }

    /// The only difference of a turn whose agent is gone.
    pub(super) fn without_agent(agent: &str) -> Self {
        let now = "it is not in the configuration";
        Self::new(1, DivergentPart::Agent, format!("agent `{agent}`"), now)
    }
}

/// All differences, in the order of the turn. `history` is the number of messages before the turn.
pub(super) fn compare(
    recorded: PlaybackFacts<'_>,
    now: PlaybackFacts<'_>,
    history: usize,
) -> Vec<Divergence> {
    let (was, is) = (recorded.played, now.played);
    let mut found = Vec::new();
    if was.prompt != is.prompt {
        found.push(changed(1, DivergentPart::Prompt, &was.prompt, &is.prompt));
    }
    if was.model != is.model {
        found.push(changed(1, DivergentPart::Model, &was.model, &is.model));
    }
    let mut walk = StepComparison {
        tools: (BTreeMap::new(), BTreeMap::new()),
        tool_changes: BTreeSet::new(),
        sizes: (history, history),
    };
    for step in &was.steps {
        let Some(other) = is.steps.iter().find(|it| it.step == step.step) else {
            break;
        };
        walk.step(step, other, &mut found);
        let (was, is) = (recorded.costs.get(&step.step), now.costs.get(&step.step));
        if was != is {
            let shown = |cost: Option<&MicroUsd>| {
                cost.map_or_else(|| "unknown".to_owned(), ToString::to_string)
            };
            found.push(Divergence::new(
                step.step,
                DivergentPart::Cost,
                shown(was),
                shown(is),
            ));
        }
    }
    if was.end != is.end || was.steps.len() != is.steps.len() {
        let last = is.steps.last().map_or(1, |step| step.step);
        let (was, is) = (was.end.to_string(), is.end.to_string());
        found.push(Divergence::new(last, DivergentPart::End, was, is));
    }
    found.sort_by_key(|it| (it.step, it.part));
    found
}

fn changed(step: u32, part: DivergentPart, was: &ShortDigest, is: &ShortDigest) -> Divergence {
    Divergence::new(step, part, was.to_string(), is.to_string())
}

type ToolPrints = BTreeMap<ToolName, ShortDigest>;

/// The common part of both sides so far.
struct StepComparison {
    tools: (ToolPrints, ToolPrints),
    /// Names of tools that differed in the step before.
    tool_changes: BTreeSet<ToolName>,
    /// Numbers of messages of the request before.
    sizes: (usize, usize),
}

impl StepComparison {
    fn step(&mut self, was: &PlayedStep, is: &PlayedStep, found: &mut Vec<Divergence>) {
        self.tools_of(was, is, found);
        self.messages_of(was, is, found);
        if let (Some(was_said), Some(is_said)) = (&was.reply, &is.reply)
            && was_said.fingerprint != is_said.fingerprint
        {
            let (was_said, is_said) = (was_said.detail.clone(), is_said.detail.clone());
            found.push(Divergence::new(
                was.step,
                DivergentPart::Reply,
                was_said,
                is_said,
            ));
        }
        calls_of(was, is, found);
    }

    fn tools_of(&mut self, was: &PlayedStep, is: &PlayedStep, found: &mut Vec<Divergence>) {
        if let Some(tools) = &was.tools {
            self.tools.0.clone_from(tools);
        }
        if let Some(tools) = &is.tools {
            self.tools.1.clone_from(tools);
        }
        let (before, after) = (&self.tools.0, &self.tools.1);
        let names: BTreeSet<&ToolName> = before.keys().chain(after.keys()).collect();
        let differing = names.into_iter();
        let differing = differing.filter(|name| before.get(*name) != after.get(*name));
        let differing: BTreeSet<ToolName> = differing.cloned().collect();
        if differing != self.tool_changes {
            let shown = |tools: &ToolPrints| {
                let names = differing.iter().filter(|name| tools.contains_key(*name));
                let names: Vec<String> = names
                    .map(|name| match (before.get(name), after.get(name)) {
                        (Some(_), Some(_)) => format!("{name} (other)"),
                        _ => name.to_string(),
                    })
                    .collect();
                match names.is_empty() {
                    true => NOTHING.to_owned(),
                    false => names.join(", "),
                }
            };
            let (was_had, is_has) = (shown(before), shown(after));
            if !differing.is_empty() {
                found.push(Divergence::new(
                    was.step,
                    DivergentPart::Tools,
                    was_had,
                    is_has,
                ));
            }
        }
        self.tool_changes = differing;
    }

    fn messages_of(&mut self, was: &PlayedStep, is: &PlayedStep, found: &mut Vec<Divergence>) {
        let dropped = (
            self.sizes.0.saturating_sub(was.kept),
            self.sizes.1.saturating_sub(is.kept),
        );
        self.sizes = (
            was.kept.saturating_add(was.messages.len()),
            is.kept.saturating_add(is.messages.len()),
        );
        if dropped.0 != dropped.1 {
            let shown = |count: usize| format!("{count} earlier messages removed or replaced");
            let (was_did, is_does) = (shown(dropped.0), shown(dropped.1));
            found.push(Divergence::new(
                was.step,
                DivergentPart::Message,
                was_did,
                is_does,
            ));
            return;
        }
        let longest = was.messages.len().max(is.messages.len());
        let differs = |at: &usize| {
            let print = |step: &PlayedStep| {
                let message = step.messages.get(*at);
                message.map(|message| message.fingerprint.clone())
            };
            print(was) != print(is)
        };
        if let Some(at) = (0..longest).find(differs) {
            let shown = |step: &PlayedStep| {
                let message = step.messages.get(at);
                message.map_or_else(|| NOTHING.to_owned(), |message| message.detail.clone())
            };
            found.push(Divergence::new(
                was.step,
                DivergentPart::Message,
                shown(was),
                shown(is),
            ));
        }
    }
}

fn calls_of(was: &PlayedStep, is: &PlayedStep, found: &mut Vec<Divergence>) {
    let step = was.step;
    let other_of = |call: &PlayedCall, step: &PlayedStep| {
        let mut calls = step.calls.iter();
        calls
            .find(|it| it.tool_call_id == call.tool_call_id)
            .cloned()
    };
    let shown = |call: &PlayedCall| format!("{} {}", call.tool_name, call.detail);
    for call in &was.calls {
        let tool_name = Some(call.tool_name.clone());
        let divergence = match other_of(call, is) {
            None => Divergence::new(step, DivergentPart::Call, shown(call), NOTHING),
            Some(other)
                if (&other.tool_name, &other.arguments) != (&call.tool_name, &call.arguments) =>
            {
                Divergence::new(step, DivergentPart::Arguments, shown(call), shown(&other))
            }
            Some(other) if other.fate != call.fate => {
                let (was, is) = (call.fate.to_string(), other.fate.to_string());
                Divergence::new(step, DivergentPart::Call, was, is)
            }
            Some(_) => continue,
        };
        found.push(Divergence {
            tool_name,
            ..divergence
        });
    }
    for call in is.calls.iter().filter(|call| other_of(call, was).is_none()) {
        found.push(Divergence {
            tool_name: Some(call.tool_name.clone()),
            ..Divergence::new(step, DivergentPart::Call, NOTHING, shown(call))
        });
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::replay::{CallFate, PlayedEnd, PlayedMessage, PlayedReply};
    use proptest::prelude::*;

    use super::*;

    fn print(text: &str) -> ShortDigest {
        ShortDigest::of(&[text])
    }

    fn message(id: &str, text: &str) -> PlayedMessage {
        PlayedMessage {
            id: id.parse().unwrap(),
            fingerprint: print(text),
            detail: text.to_owned(),
        }
    }

    fn call(id: &str, arguments: &str) -> PlayedCall {
        PlayedCall {
            tool_call_id: id.parse().unwrap(),
            tool_name: "write".to_owned(),
            arguments: print(arguments),
            detail: arguments.to_owned(),
            fate: CallFate::Runs,
        }
    }

    fn reply(text: &str) -> Option<PlayedReply> {
        Some(PlayedReply {
            fingerprint: print(text),
            detail: text.to_owned(),
        })
    }

    fn tools(tools: &[(&str, &str)]) -> ToolPrints {
        let tools = tools.iter();
        let tools = tools.map(|(name, text)| (name.parse().unwrap(), print(text)));
        tools.collect()
    }

    /// A turn of two steps after two messages: a question, a call with its result, and an answer.
    fn turn() -> (PlayedTurn, BTreeMap<u32, MicroUsd>) {
        let first = PlayedStep {
            step: 1,
            tools: Some(tools(&[("read", "r"), ("write", "w")])),
            kept: 2,
            messages: vec![message("t:u", "question")],
            reply: reply("calling"),
            calls: vec![call("c1", "{}")],
        };
        let second = PlayedStep {
            step: 2,
            tools: None,
            kept: 3,
            messages: vec![message("t.1:a", "calling"), message("t.1:r0", "result")],
            reply: reply("answer"),
            calls: Vec::new(),
        };
        let turn = PlayedTurn {
            prompt: print("prompt"),
            model: print("model"),
            steps: vec![first, second],
            end: PlayedEnd::Replied,
            unlike: Vec::new(),
            notes: Vec::new(),
        };
        let costs = BTreeMap::from([(1, MicroUsd(10)), (2, MicroUsd(20))]);
        (turn, costs)
    }

    fn found(is: &PlayedTurn, costs: &BTreeMap<u32, MicroUsd>) -> Vec<(u32, DivergentPart)> {
        let (was, before) = turn();
        let recorded = PlaybackFacts {
            played: &was,
            costs: &before,
        };
        let now = PlaybackFacts { played: is, costs };
        let found = compare(recorded, now, 2);
        found.iter().map(|it| (it.step, it.part)).collect()
    }

    /// A defect: its change, and the only difference that it must cause.
    type Defect = (
        fn(&mut PlayedTurn, &mut BTreeMap<u32, MicroUsd>),
        (u32, DivergentPart),
    );

    const DEFECTS: [Defect; 13] = [
        (
            |it, _| it.prompt = print("other"),
            (1, DivergentPart::Prompt),
        ),
        (|it, _| it.model = print("other"), (1, DivergentPart::Model)),
        (
            |it, _| it.steps[0].tools = Some(tools(&[("read", "r")])),
            (1, DivergentPart::Tools),
        ),
        (
            |it, _| it.steps[0].tools = Some(tools(&[("read", "r"), ("write", "x")])),
            (1, DivergentPart::Tools),
        ),
        (
            |it, _| it.steps[1].tools = Some(tools(&[("read", "r")])),
            (2, DivergentPart::Tools),
        ),
        (
            |it, _| it.steps[0].messages.push(message("t:x", "inserted")),
            (1, DivergentPart::Message),
        ),
        (
            |it, _| it.steps[1].messages[1].fingerprint = print("other"),
            (2, DivergentPart::Message),
        ),
        (|it, _| it.steps[0].kept = 1, (1, DivergentPart::Message)),
        (
            |it, _| it.steps[1].reply = reply("other"),
            (2, DivergentPart::Reply),
        ),
        (
            |it, _| it.steps[0].calls[0].arguments = print("[]"),
            (1, DivergentPart::Arguments),
        ),
        (
            |it, _| it.steps[0].calls[0].fate = CallFate::Asks,
            (1, DivergentPart::Call),
        ),
        (
            |_, costs| {
                costs.insert(2, MicroUsd(21));
            },
            (2, DivergentPart::Cost),
        ),
        (|it, _| it.end = PlayedEnd::GoesOn, (2, DivergentPart::End)),
    ];

    #[test]
    fn each_seeded_defect_is_found_where_it_is_and_nowhere_else() {
        let (same, costs) = turn();
        assert!(found(&same, &costs).is_empty());
        for (at, (seed, expected)) in DEFECTS.iter().enumerate() {
            let (mut is, mut costs) = turn();
            seed(&mut is, &mut costs);
            // The next request contains the one before.
            if let [first, second] = is.steps.as_mut_slice() {
                second.kept = first.kept + first.messages.len();
            }
            assert_eq!(found(&is, &costs), [*expected], "defect {at}");
        }
    }

    #[test]
    fn missing_and_additional_steps_and_calls_are_found() {
        let (mut is, costs) = turn();
        is.steps.pop();
        assert_eq!(found(&is, &costs), [(1, DivergentPart::End)]);
        let (mut is, costs) = turn();
        is.steps[0].calls.clear();
        is.steps[1].calls.push(call("c2", "{}"));
        assert_eq!(
            found(&is, &costs),
            [(1, DivergentPart::Call), (2, DivergentPart::Call)]
        );
    }

    proptest! {
        #[test]
        fn the_first_difference_is_the_earliest_defect(seeds in prop::collection::vec(0..DEFECTS.len(), 1..4)) {
            let (mut is, mut costs) = turn();
            for seed in &seeds {
                (DEFECTS[*seed].0)(&mut is, &mut costs);
            }
            if let [first, second] = is.steps.as_mut_slice() {
                second.kept = first.kept + first.messages.len();
            }
            let found = found(&is, &costs);
            let earliest = seeds.iter().map(|seed| DEFECTS[*seed].1).min();
            prop_assert_eq!(found.first().copied(), earliest);
        }
    }
}
