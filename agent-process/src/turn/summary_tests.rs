//! A turn with a summary of old messages, crashed at every possible point.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::{ExtensionDefinition, LoopBreaker};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ExtensionStates, StepId};
use goondan_protocol::ipc::TurnStart;
use goondan_protocol::message::{Message, MessageContent, MessageEvent, ToolCall, ToolResult};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::extensions::Extensions;
use crate::model::{ModelError, ModelLocation, ModelOutcome, ModelReply};
use crate::tool_call::{CallRejection, ToolRules};

pub(super) fn at() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

pub(super) struct NoTools;

impl ToolRules for NoTools {
    fn check(&self, _call: &ToolCall) -> Result<(), CallRejection> {
        Err(CallRejection::NotInCatalog("no tools exist".to_owned()))
    }

    fn is_idempotent(&self, _tool_name: &str) -> bool {
        false
    }

    fn needs_person(&self, _call: &ToolCall) -> bool {
        false
    }

    fn error_limit_chars(&self, _tool_name: &str) -> usize {
        100
    }
}

/// Conversation with `exchanges` questions, each answered after a tool call; the first message must
/// be kept.
fn past(exchanges: usize) -> Conversation {
    let mut kept = Message::extension(
        "kept".parse().unwrap(),
        at(),
        "context-message".parse().unwrap(),
        goondan_protocol::message::MessageRole::System,
        "Be kind.",
    );
    kept.metadata.insert("kept".to_owned(), json!(true));
    let mut messages = vec![kept];
    for n in 0..exchanges {
        let call = ToolCall {
            id: format!("c{n}").parse().unwrap(),
            tool_name: "bash__exec".to_owned(),
            input: json!({"command": format!("run {n}")}),
        };
        let result = ToolResult {
            tool_call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
            text: format!("ran {n}"),
            is_error: false,
            images: Vec::new(),
        };
        let step = |k: u32| StepId::of_turn(&format!("p{n}").parse().unwrap(), k);
        let id = |name: &str| format!("p{n}:{name}").parse().unwrap();
        messages.push(Message::user(id("u"), at(), &format!("question {n}")));
        let asks = MessageContent::assistant("", &[call]);
        messages.push(Message::assistant(id("a"), at(), step(1), asks));
        messages.push(Message::tool(id("r"), at(), &result));
        let says = MessageContent::text(format!("answer {n}"));
        messages.push(Message::assistant(id("z"), at(), step(2), says));
    }
    Conversation::from_base(messages)
}

struct World {
    base: Conversation,
    config: Value,
    journal: Vec<MessageEvent>,
    /// True if replies are recorded outside the process, before the engine receives them.
    has_recorder: bool,
    summary: Result<&'static str, &'static str>,
    /// Texts that the model was asked to summarize.
    asked: Vec<String>,
    outcome: Option<TurnOutcome>,
}

impl World {
    fn new(exchanges: usize, config: Value) -> Self {
        Self {
            base: past(exchanges),
            config,
            journal: Vec::new(),
            has_recorder: false,
            summary: Ok("All was run."),
            asked: Vec::new(),
            outcome: None,
        }
    }

    fn extensions(&self) -> Extensions {
        let definition: ExtensionDefinition = serde_json::from_value(json!({
            "name": "message-compaction", "config": self.config,
            "source": {"kind": "builtin", "package": "@goondan/base", "name": "message-compaction"},
        }))
        .unwrap();
        let (agent, key) = ("clerk".parse().unwrap(), "main".parse().unwrap());
        Extensions::new(agent, key, &[definition], ExtensionStates::default()).unwrap()
    }

    /// A process works on the turn and dies after `acts_max` actions unless it is done earlier.
    /// Returns the number of actions.
    fn live(&mut self, acts_max: usize) -> usize {
        let mut open = OpenTurn::default();
        let turn_id: goondan_protocol::ids::TurnId = "t".parse().unwrap();
        for event in &self.journal {
            open.push(Some(turn_id.clone()), event.clone());
        }
        let limits = TurnLimits {
            step_count_max: 8,
            loop_breaker: LoopBreaker::default(),
            model: ModelLocation::of_recorder(self.has_recorder),
        };
        let (base, extensions) = (self.base.clone(), self.extensions());
        let mut engine = Engine::new(NoTools, limits, extensions, base, open);
        let start = TurnStart {
            turn_id: turn_id.clone(),
            attempt: 1,
            event: serde_json::from_value(json!({
                "id": "e", "type": "message", "createdAt": at(), "input": "What now?",
                "source": {"kind": "connector", "name": "cli"},
            }))
            .unwrap(),
        };
        let mut effects = VecDeque::from(engine.start(&start, at()).unwrap());
        let (mut unsynced, mut answers) = (Vec::new(), VecDeque::new());
        for act in 0..acts_max {
            if let Some(effect) = effects.pop_front() {
                answers.extend(self.carry_out(effect, &mut unsynced));
            } else if !unsynced.is_empty() {
                self.journal.append(&mut unsynced);
                answers.push_back(TurnEngineInput::Durable {
                    turn_id: turn_id.clone(),
                    seq: u64::try_from(self.journal.len()).unwrap(),
                });
            } else if let Some(input) = answers.pop_front() {
                effects.extend(engine.handle(input, at()).unwrap());
            } else {
                assert!(self.outcome.is_some(), "the turn waits for nothing");
                return act;
            }
        }
        acts_max
    }

    fn carry_out(
        &mut self,
        effect: TurnEngineEffect,
        unsynced: &mut Vec<MessageEvent>,
    ) -> Option<TurnEngineInput> {
        match effect {
            TurnEngineEffect::Append { event, .. } => unsynced.push(*event),
            TurnEngineEffect::AskSummary {
                step_id,
                seq,
                message_id,
                text,
                ..
            } => {
                let before = self.journal.len() + unsynced.len();
                assert_eq!(usize::try_from(seq).unwrap(), before + 1);
                assert!(unsynced.is_empty() || !self.has_recorder);
                assert_eq!(
                    self.summaries(),
                    0,
                    "a recorded summary was asked for again"
                );
                self.asked.push(text);
                let reply = match self.summary {
                    Ok(text) => ModelReply {
                        text: text.to_owned(),
                        calls: Vec::new(),
                    },
                    Err(reason) => {
                        let came = Err(ModelError::new(reason));
                        return Some(TurnEngineInput::Summarized { came });
                    }
                };
                let answer = if self.has_recorder {
                    let content = MessageContent::text(reply.text);
                    let message = Message::assistant(message_id, at(), step_id, content);
                    let recorded = message.clone();
                    self.journal
                        .push(MessageEvent::Append { message: recorded });
                    ModelOutcome::Recorded(Box::new(message))
                } else {
                    ModelOutcome::Reply(reply)
                };
                return Some(TurnEngineInput::Summarized { came: Ok(answer) });
            }
            TurnEngineEffect::AskModel { step, .. } => {
                let reply = ModelReply {
                    text: "Now this.".to_owned(),
                    calls: Vec::new(),
                };
                return Some(TurnEngineInput::ModelReplied { step, reply });
            }
            TurnEngineEffect::Complete { outcome, .. } => {
                // The commit makes the events it covers durable.
                self.journal.append(unsynced);
                self.outcome = Some(outcome);
            }
            TurnEngineEffect::Observe(_) | TurnEngineEffect::Log { .. } => {}
            other => panic!("nothing asks for {other:?}"),
        }
        None
    }

    /// Number of times that a summary was recorded.
    fn summaries(&self) -> usize {
        let appended = self.journal.iter().filter(|event| {
            matches!(event, MessageEvent::Append { message }
                if message.step_id().is_some_and(StepId::is_summary))
        });
        appended.count()
    }

    fn messages(&self) -> Vec<Message> {
        let mut conversation = self.base.clone();
        for event in &self.journal {
            conversation.apply(event.clone()).unwrap();
        }
        conversation.to_messages().unwrap()
    }

    fn ids(&self) -> Vec<String> {
        let messages = self.messages();
        messages
            .iter()
            .map(|message| message.id.to_string())
            .collect()
    }

    fn run(&mut self) {
        self.live(usize::MAX);
    }
}

fn keeping_one() -> Value {
    json!({"maxMessages": 12, "keepMessages": 4})
}

/// Remaining messages of five exchanges; the last exchange is kept.
const COMPACTED: [&str; 8] = [
    "kept", "t.s16:m", "p4:u", "p4:a", "p4:r", "p4:z", "t:u", "t.1:a",
];

#[test]
fn msg_3_summary_replaces_whole_exchanges_but_no_kept_messages() {
    let mut world = World::new(5, keeping_one());
    world.run();
    assert_eq!(world.ids(), COMPACTED);
    let summary = &world.messages()[1];
    assert_eq!(
        summary.data.content.to_text(),
        "Summary of the conversation so far:\n\nAll was run."
    );
    assert_eq!(summary.metadata["summarizedMessages"], 16);
    let [asked] = &world.asked[..] else {
        panic!("asked {} times", world.asked.len())
    };
    assert!(asked.starts_with("user: question 0\n\nassistant: \n[calls bash__exec: "));
    assert!(asked.contains("[bash__exec returned: ran 3]"), "{asked}");
    assert!(
        !asked.contains("question 4") && !asked.contains("Be kind"),
        "{asked}"
    );
    let outcome = TurnOutcome::Completed {
        reply: "Now this.".to_owned(),
    };
    assert_eq!(world.outcome, Some(outcome));
}

#[test]
fn short_or_unreducible_conversation_is_not_summarized() {
    for (exchanges, config) in [
        (2, json!({"maxMessages": 12})),
        (5, json!({"maxMessages": 12, "keepMessages": 17})),
        (5, json!({"maxCharacters": 1_000, "keepMessages": 4})),
        (5, json!({"maxTokens": 1_000, "keepMessages": 4})),
    ] {
        let mut world = World::new(exchanges, config);
        let before = world.ids().len();
        world.run();
        assert!(world.asked.is_empty());
        assert_eq!(world.ids().len(), before + 2);
    }
    let mut world = World::new(40, json!({"maxCharacters": 1_000, "keepMessages": 4}));
    world.run();
    assert_eq!(world.ids().len(), COMPACTED.len());
}

#[test]
fn failed_summary_keeps_the_conversation_and_is_not_retried() {
    for summary in [Err("overloaded"), Ok("  ")] {
        let mut world = World::new(5, keeping_one());
        world.summary = summary;
        let before = world.ids();
        world.run();
        assert_eq!(world.asked.len(), 1);
        let after = world.ids();
        assert_eq!(after[..before.len()], before);
        assert_eq!(after[before.len()..], ["t:u", "t.1:a"]);
        assert!(matches!(world.outcome, Some(TurnOutcome::Completed { .. })));
    }
}

#[test]
fn msg_8_a_crash_at_every_act_repeats_nothing_that_was_recorded() {
    for has_recorder in [false, true] {
        let world = || World {
            has_recorder,
            ..World::new(5, keeping_one())
        };
        let acts = world().live(usize::MAX);
        assert!(acts > 30, "only {acts} acts");
        for first in 0..acts {
            for second in [0, 1, 3, 7, acts / 2, acts] {
                let mut world = world();
                world.live(first);
                if world.outcome.is_none() {
                    world.live(second);
                }
                if world.outcome.is_none() {
                    world.run();
                }
                assert_eq!(world.ids(), COMPACTED, "crashed after {first} and {second}");
                assert_eq!(world.summaries(), 1);
                let again: BTreeSet<&String> = world.asked.iter().collect();
                assert_eq!(again.len(), 1, "asked about the same each time");
                assert!(!has_recorder || world.asked.len() == 1);
            }
        }
    }
}
