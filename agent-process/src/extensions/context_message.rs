//! `context-message`: one message of its own that the model sees in every turn.

use goondan_protocol::event::EventSource;
use goondan_protocol::ids::MessageId;
use goondan_protocol::message::{Message, MessageEvent, Role};
use serde_json::{Value, json};

use super::{Extension, KEPT, Scene};

/// Keeps exactly one message with the given text in the conversation.
#[derive(Debug)]
pub(super) struct ContextMessage {
    text: String,
}

impl ContextMessage {
    pub(super) fn new(text: String) -> Self {
        Self { text }
    }

    fn filled_in(&self, scene: &Scene<'_>) -> String {
        let source = match &scene.turn.event.source {
            EventSource::Agent { name, .. } => format!("agent `{name}`"),
            EventSource::Connector { name } => format!("connection `{name}`"),
        };
        let now = scene.now.to_string();
        let date = now.split('T').next().unwrap_or_default();
        self.text
            .replace("${agentName}", scene.turn.agent_name.as_str())
            .replace("${instanceKey}", scene.turn.instance_key.as_str())
            .replace("${date}", date)
            .replace("${source}", &source)
    }
}

impl Extension for ContextMessage {
    fn begin_turn(&mut self, scene: &mut Scene<'_>) {
        let text = self.filled_in(scene);
        let held = scene.state().and_then(|state| {
            let id = state.get("messageId")?.as_str()?.to_owned();
            let text = state.get("text").and_then(Value::as_str)?.to_owned();
            Some((id, text))
        });
        let old = match held.filter(|(id, _)| scene.has(id)) {
            Some((_, held)) if held == text => return,
            Some((old, _)) => MessageId::new(old).ok(),
            None => None,
        };
        if let Some(id) = put(scene, old, &text) {
            scene.set_state(json!({"messageId": id, "text": text}));
        }
    }
}

/// Puts the message in the place of the old one, or at the end.
fn put(scene: &mut Scene<'_>, old: Option<MessageId>, text: &str) -> Option<MessageId> {
    let id = scene.next_id()?;
    if scene.has(id.as_str()) {
        return Some(id);
    }
    let name = scene.name.clone();
    let mut message = Message::extension(id.clone(), scene.now, name, Role::System, text);
    message.metadata.insert(KEPT.to_owned(), Value::Bool(true));
    scene.emit(match old {
        Some(target_id) => MessageEvent::Replace { target_id, message },
        None => MessageEvent::Append { message },
    });
    Some(id)
}
