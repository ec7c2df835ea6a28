//! Tracks the node on which a conversation ran, from its own messages (`REP-1`).
//!
//! In a workspace that several nodes share, a conversation can continue on another node, but the
//! files that its tools wrote stay behind. The first message of each turn therefore names the node,
//! and an agent that starts or resumes a turn on another node is notified.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::ids::MessageId;
use goondan_protocol::message::Message;
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

/// Metadata key of a message: the node on which its turn began or resumed.
const NODE: &str = "node";

/// The node that the latest message with a node names. Unreadable messages are skipped.
pub(crate) fn last_node(conversation: &Conversation) -> Option<String> {
    let mut messages = conversation.messages().rev();
    messages.find_map(|message| {
        let node = message
            .ok()?
            .metadata
            .get(NODE)
            .and_then(Value::as_str)?
            .to_owned();
        Some(node)
    })
}

/// Records in a message that its turn is on this node.
pub(crate) fn note(message: &mut Message, node: &str) {
    message.metadata.insert(NODE.to_owned(), json!(node));
}

/// The notice to an agent whose conversation moved from `before` to `node`.
pub(crate) fn moved(id: MessageId, now: Timestamp, before: &str, node: &str) -> Message {
    let text = format!(
        "This conversation was on node `{before}` and continues on node `{node}`. Files written \
         there may be missing or older here, and programs started there do not run here. Check \
         what exists here before you rely on it, and recreate what you need."
    );
    let mut message = Message::system(id, now, &text);
    note(&mut message, node);
    message
}

#[cfg(test)]
mod tests {
    use goondan_protocol::ids::{ExtensionStates, TurnId};
    use goondan_protocol::ipc::TurnStart;
    use goondan_protocol::message::{MessageEvent, MessageRole};
    use serde_json::json;

    use super::super::summary_tests::{NoTools, at};
    use super::super::{Engine, OpenTurn, TurnEngineEffect, TurnEngineInput, TurnLimits};
    use super::*;
    use crate::extensions::Extensions;
    use crate::model::ModelLocation;

    /// Returns the messages that a turn on a node records before its model is asked, for a
    /// conversation and its recorded events.
    fn recorded(node: Option<&str>, base: &Conversation, open: &[MessageEvent]) -> Vec<Message> {
        let turn: TurnId = format!("t{}", base.len()).parse().unwrap();
        let mut of_turn = OpenTurn::default();
        for event in open {
            of_turn.push(Some(turn.clone()), event.clone());
        }
        let (agent, key) = ("clerk".parse().unwrap(), "main".parse().unwrap());
        let extensions = Extensions::new(agent, key, &[], ExtensionStates::default()).unwrap();
        let limits = TurnLimits {
            step_count_max: 8,
            loop_breaker: goondan_protocol::definition::LoopBreaker::default(),
            model: ModelLocation::of_recorder(false),
        };
        let engine = Engine::new(NoTools, limits, extensions, base.clone(), of_turn);
        let mut engine = engine.on_node(node.map(str::to_owned));
        let event = json!({
            "id": "e", "type": "message", "createdAt": at(), "input": "What now?",
            "source": {"kind": "connector", "name": "cli"},
        });
        let start = TurnStart {
            turn_id: turn.clone(),
            attempt: 1,
            event: serde_json::from_value(event).unwrap(),
        };
        let mut effects = engine.start(&start, at()).unwrap();
        let mut messages = Vec::new();
        let mut seq = u64::try_from(open.len()).unwrap();
        loop {
            let mut is_asked = false;
            for effect in std::mem::take(&mut effects) {
                match effect {
                    TurnEngineEffect::Append { event, .. } => {
                        let MessageEvent::Append { message } = *event else {
                            panic!("{event:?}");
                        };
                        seq += 1;
                        messages.push(message);
                    }
                    TurnEngineEffect::AskModel { .. } => is_asked = true,
                    _ => {}
                }
            }
            if is_asked {
                return messages;
            }
            let turn_id = turn.clone();
            effects = engine
                .handle(TurnEngineInput::Durable { turn_id, seq }, at())
                .unwrap();
        }
    }

    fn roles(messages: &[Message]) -> Vec<MessageRole> {
        messages.iter().map(|message| message.data.role).collect()
    }

    #[test]
    fn rep_1_agent_is_notified_once_of_a_move_to_another_node() {
        let mut conversation = Conversation::default();
        for (node, expected) in [
            // The earlier node is unknown.
            (Some("a"), vec![MessageRole::User]),
            (Some("a"), vec![MessageRole::User]),
            (Some("b"), vec![MessageRole::User, MessageRole::System]),
            (Some("b"), vec![MessageRole::User]),
            // Nodes exist only with a replicated log.
            (None, vec![MessageRole::User]),
            (Some("a"), vec![MessageRole::User, MessageRole::System]),
        ] {
            let messages = recorded(node, &conversation, &[]);
            assert_eq!(roles(&messages), expected, "{node:?}");
            let text = messages.get(1).map(|it| it.data.content.to_text());
            if let (Some(text), Some(node)) = (text, node) {
                assert!(
                    text.contains(&format!("continues on node `{node}`")),
                    "{text}"
                );
            }
            for message in messages {
                conversation.push(message);
            }
        }
    }

    #[test]
    fn rep_1_agent_is_notified_in_a_turn_resumed_on_another_node() {
        let conversation = Conversation::default();
        let begun = recorded(Some("a"), &conversation, &[]);
        let open: Vec<_> = begun
            .into_iter()
            .map(|message| MessageEvent::Append { message })
            .collect();
        let told = recorded(Some("b"), &conversation, &open);
        assert_eq!(roles(&told), [MessageRole::System]);
        let open: Vec<_> = open
            .into_iter()
            .chain(
                told.into_iter()
                    .map(|message| MessageEvent::Append { message }),
            )
            .collect();
        assert!(recorded(Some("b"), &conversation, &open).is_empty());
    }
}
