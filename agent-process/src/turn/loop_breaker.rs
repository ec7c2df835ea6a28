//! Detects a turn that goes in circles.
//!
//! A [`LoopDetector`] sees every message of the turn when it is recorded, and sees the recorded messages
//! again when a turn is resumed. Its verdict depends only on the records, so a crash changes
//! nothing.
//!
//! An interrupted call is not the model's fault, and the model may well repeat it, so a step with
//! an interrupted call never counts toward a circle. The maximum number of steps bounds such steps.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use goondan_protocol::definition::LoopBreaker;
use goondan_protocol::ids::ToolCallId;
use goondan_protocol::message::{Message, ToolResult};
use serde_json::Value;

use crate::tool_call::was_interrupted;

/// The steps of one turn, as input of loop detection.
#[derive(Debug)]
pub(crate) struct LoopDetector {
    limits: LoopBreaker,
    /// Calls of the current step without a result, each with the hash of the call.
    open: Vec<(ToolCallId, u64)>,
    step: StepSignature,
    last: StepSignature,
    /// Number of consecutive steps identical to the last one.
    same_count: u32,
    /// Hashes of every successful call together with its result.
    seen: HashSet<u64>,
    /// Number of consecutive steps without a new call and result.
    idle_count: u32,
}

/// Calls and results of one step.
#[derive(Debug, Default, Clone)]
struct StepSignature {
    calls: Vec<u64>,
    tool_name: String,
    has_progress: bool,
    /// True if one of its calls was interrupted.
    is_interrupted: bool,
}

impl LoopDetector {
    /// Creates a watch over a turn without records.
    pub(crate) fn new(limits: LoopBreaker) -> Self {
        Self {
            limits,
            open: Vec::new(),
            step: StepSignature::default(),
            last: StepSignature::default(),
            same_count: 0,
            seen: HashSet::new(),
            idle_count: 0,
        }
    }

    /// Adds the next message of the turn.
    pub(crate) fn take(&mut self, message: &Message) {
        let content = &message.data.content;
        if message.step_id().is_some() {
            let calls = content.tool_calls();
            self.step = StepSignature::default();
            self.open = calls
                .into_iter()
                .map(|call| {
                    let hash = hash_of(|hasher| {
                        call.tool_name.hash(hasher);
                        hash_value(&call.input, hasher);
                    });
                    (call.id, hash)
                })
                .collect();
            return;
        }
        for result in content.tool_results() {
            self.take_result(result);
        }
    }

    fn take_result(&mut self, result: ToolResult) {
        let called = self
            .open
            .iter()
            .position(|(id, _)| *id == result.tool_call_id);
        let Some(called) = called else { return };
        let (_, call) = self.open.remove(called);
        let hash = hash_of(|hasher| (call, &result.text, result.is_error).hash(hasher));
        self.step.calls.push(hash);
        self.step.has_progress |= !result.is_error && self.seen.insert(hash);
        self.step.is_interrupted |= was_interrupted(&result);
        self.step.tool_name = result.tool_name;
        if self.open.is_empty() {
            self.end_step();
        }
    }

    fn end_step(&mut self) {
        let step = std::mem::take(&mut self.step);
        self.same_count = if step.is_interrupted {
            0
        } else if step.calls == self.last.calls {
            self.same_count.saturating_add(1)
        } else {
            1
        };
        if step.has_progress {
            self.idle_count = 0;
        } else if !step.is_interrupted {
            self.idle_count = self.idle_count.saturating_add(1);
        }
        self.last = step;
    }

    /// The reason to end the turn, if it goes in circles.
    pub(crate) fn verdict(&self) -> Option<String> {
        let tool = &self.last.tool_name;
        let advice = "fix the prompt or the tool, or raise";
        let place = "in the swarm's policy";
        if self.same_count >= self.limits.same_calls_max {
            return Some(format!(
                "the last {} steps made the same calls with the same results (`{tool}`); {advice} \
                 `loopBreaker.sameCallsMax` {place}",
                self.same_count
            ));
        }
        (self.idle_count >= self.limits.no_progress_steps_max).then(|| {
            format!(
                "the last {} steps made no progress: each call failed or repeated an earlier \
                 result (last `{tool}`); {advice} `loopBreaker.noProgressStepsMax` {place}",
                self.idle_count
            )
        })
    }
}

fn hash_of(hash: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash(&mut hasher);
    hasher.finish()
}

/// Hashes JSON independently of field order.
fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(bool) => bool.hash(hasher),
        Value::Number(number) => number.hash(hasher),
        Value::String(text) => text.hash(hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            for item in items {
                hash_value(item, hasher);
            }
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            fields.len().hash(hasher);
            for (name, value) in fields {
                name.hash(hasher);
                hash_value(value, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::{StepId, TurnId};
    use goondan_protocol::message::{MessageContent, ToolCall};
    use goondan_protocol::time::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::tool_call::INTERRUPTED;

    const LIMITS: LoopBreaker = LoopBreaker {
        same_calls_max: 3,
        no_progress_steps_max: 4,
    };

    /// Plays steps of calls, each with its arguments and its result. A result that begins with `!`
    /// is an error or an interrupted call.
    fn watch(steps: &[&[(Value, &str)]]) -> LoopDetector {
        let mut watch = LoopDetector::new(LIMITS);
        let turn_id = TurnId::new("t").unwrap();
        let at = Timestamp::from_unix_millis(0);
        for (number, step) in (1..).zip(steps) {
            let call = |(index, (input, _)): (usize, &(Value, &str))| ToolCall {
                id: format!("c{number}.{index}").parse().unwrap(),
                tool_name: "a__b".to_owned(),
                input: input.clone(),
            };
            let calls: Vec<_> = step.iter().enumerate().map(call).collect();
            let step_id = StepId::of_turn(&turn_id, number);
            let content = MessageContent::assistant("", &calls);
            let id = format!("m{number}").parse().unwrap();
            watch.take(&Message::assistant(id, at, step_id, content));
            for (call, (_, text)) in calls.iter().zip(*step) {
                let result = ToolResult {
                    tool_call_id: call.id.clone(),
                    tool_name: call.tool_name.clone(),
                    text: (*text).to_owned(),
                    is_error: text.starts_with('!') || *text == INTERRUPTED,
                    images: Vec::new(),
                };
                let id = format!("r{}", call.id).parse().unwrap();
                watch.take(&Message::tool(id, at, &result));
            }
        }
        watch
    }

    #[test]
    fn the_same_calls_with_the_same_results_in_a_row_are_a_circle() {
        let one = [(json!({"a": 1, "b": [2]}), "x")];
        let turned = [(json!({"b": [2], "a": 1}), "x")];
        assert_eq!(watch(&[&one, &one]).verdict(), None);
        let verdict = watch(&[&one, &turned, &one]).verdict().unwrap();
        assert!(
            verdict.starts_with(
                "the last 3 steps made the same calls with the same results (`a__b`);"
            ),
            "{verdict}"
        );
        for other in [
            [(json!({"a": 1, "b": [3]}), "x")],
            [(json!({"a": "1", "b": [2]}), "x")],
            [(json!({"a": 1, "b": [2]}), "y")],
        ] {
            assert_eq!(watch(&[&one, &one, &other]).verdict(), None);
            assert_eq!(watch(&[&one, &other, &one, &one]).verdict(), None);
        }
        let both = [one[0].clone(), one[0].clone(), one[0].clone()];
        assert_eq!(watch(&[&both]).verdict(), None, "one step is not a circle");
    }

    #[test]
    fn steps_without_progress_are_a_loop_even_when_alternating() {
        let (a, b) = ([(json!(1), "x")], [(json!(2), "y")]);
        let bad = |text: &'static str| [(json!(3), text)];
        assert_eq!(watch(&[&a, &b, &a, &b, &a]).verdict(), None);
        let verdict = watch(&[&a, &b, &a, &b, &a, &b]).verdict().unwrap();
        assert!(
            verdict.starts_with("the last 4 steps made no progress: "),
            "{verdict}"
        );
        let failing = [bad("!1"), bad("!2"), bad("!3"), bad("!4")];
        let failing: Vec<&[_]> = failing.iter().map(<[_; 1]>::as_slice).collect();
        assert!(watch(&failing).verdict().is_some());
        let news = [(json!(1), "z")];
        assert_eq!(watch(&[&a, &b, &a, &b, &news, &a, &b]).verdict(), None);
    }

    #[test]
    fn repeating_an_interrupted_call_is_not_a_loop() {
        let cut = [(json!(1), INTERRUPTED)];
        assert_eq!(watch(&[cut.as_slice(); 9]).verdict(), None);
        let beside = [(json!(2), "y"), (json!(1), INTERRUPTED)];
        assert_eq!(watch(&[beside.as_slice(); 9]).verdict(), None);
        // The steps that were not interrupted still form a circle.
        let (a, bad) = ([(json!(1), "x")], [(json!(1), "!1")]);
        let circle: [&[_]; 5] = [&cut, &cut, &bad, &bad, &bad];
        let verdict = watch(&circle).verdict().unwrap();
        assert!(verdict.starts_with("the last 3 steps made"), "{verdict}");
        let apart: [&[_]; 6] = [&a, &a, &cut, &a, &a, &cut];
        assert_eq!(watch(&apart).verdict(), None);
        let apart: [&[_]; 8] = [&a, &a, &cut, &a, &a, &cut, &cut, &a];
        let verdict = watch(&apart).verdict().unwrap();
        assert!(
            verdict.starts_with("the last 4 steps made no progress"),
            "{verdict}"
        );
        // A result that only mentions the code is not an interrupted call.
        let told = [(json!(1), "!E_TOOL_FAILED: not E_TOOL_INTERRUPTED: no")];
        assert!(watch(&[told.as_slice(); 3]).verdict().is_some());
    }
}
