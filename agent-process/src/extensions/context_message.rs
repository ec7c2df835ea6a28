//! `context-message`: one fixed message that the model sees in every turn.

use goondan_protocol::event::EventSource;
use goondan_protocol::ids::MessageId;
use goondan_protocol::message::{Message, MessageEvent, MessageRole};
use serde_json::{Value, json};

use super::context::{ExtensionContext, KEPT};
use super::extension::Extension;

/// Keeps exactly one message with the given text in the conversation.
#[derive(Debug)]
pub(super) struct ContextMessage {
    text: String,
}

impl ContextMessage {
    pub(super) fn new(text: String) -> Self {
        Self { text }
    }

    fn filled_in(&self, context: &ExtensionContext<'_>) -> String {
        let source = match &context.turn.event.source {
            EventSource::Agent { name, .. } => format!("agent `{name}`"),
            EventSource::Connector { name } => format!("connection `{name}`"),
        };
        let now = context.now.to_string();
        let date = now.split('T').next().unwrap_or_default();
        self.text
            .replace("${agentName}", context.turn.agent_name.as_str())
            .replace("${instanceKey}", context.turn.instance_key.as_str())
            .replace("${date}", date)
            .replace("${source}", &source)
    }
}

impl Extension for ContextMessage {
    fn begin_turn(&mut self, context: &mut ExtensionContext<'_>) {
        let text = self.filled_in(context);
        let held = context.state().and_then(|state| {
            let id = state.get("messageId")?.as_str()?.to_owned();
            let text = state.get("text").and_then(Value::as_str)?.to_owned();
            Some((id, text))
        });
        let old = match held.filter(|(id, _)| context.has(id)) {
            Some((_, held)) if held == text => return,
            Some((old, _)) => MessageId::new(old).ok(),
            None => None,
        };
        if let Some(id) = put(context, old, &text) {
            context.set_state(json!({"messageId": id, "text": text}));
        }
    }
}

/// Replaces the old message, or appends the message.
fn put(
    context: &mut ExtensionContext<'_>,
    old: Option<MessageId>,
    text: &str,
) -> Option<MessageId> {
    let id = context.next_id()?;
    if context.has(id.as_str()) {
        return Some(id);
    }
    let name = context.name.clone();
    let mut message = Message::extension(id.clone(), context.now, name, MessageRole::System, text);
    message.metadata.insert(KEPT.to_owned(), Value::Bool(true));
    context.emit(match old {
        Some(target_id) => MessageEvent::Replace { target_id, message },
        None => MessageEvent::Append { message },
    });
    Some(id)
}
