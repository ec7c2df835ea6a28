//! `context-message`: one fixed message that the model sees in every turn.

use goondan_protocol::event::{AgentEvent, EventSource};
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
        let event = &context.turn.event;
        let text = self
            .text
            .replace("${agentName}", context.turn.agent_name.as_str())
            .replace("${instanceKey}", context.turn.instance_key.as_str())
            .replace("${date}", date)
            .replace("${source}", &source);
        let text = described(&text, "${call}", &call_of(event));
        // Last, because the event's properties may contain any text.
        described(&text, "${inbound}", &inbound_of(event, &source))
    }
}

/// Replaces a placeholder by a description. A line that only consists of the placeholder is removed if
/// there is nothing to describe.
fn described(text: &str, placeholder: &str, description: &str) -> String {
    let is_kept = |line: &&str| !description.is_empty() || line.trim() != placeholder;
    let lines: Vec<&str> = text.split('\n').filter(is_kept).collect();
    lines.join("\n").replace(placeholder, description)
}

/// The event of the turn.
fn inbound_of(event: &AgentEvent, source: &str) -> String {
    let AgentEvent {
        id,
        kind,
        created_at,
        properties,
        ..
    } = event;
    let about = format!("Event `{kind}` ({id}) from {source} at {created_at}.");
    if properties.is_empty() {
        return about;
    }
    let properties = Value::Object(properties.clone());
    format!("{about}\nIts properties: {properties}")
}

/// The agent that sent the event; empty if another source did.
fn call_of(event: &AgentEvent) -> String {
    let EventSource::Agent { name, instance_key } = &event.source else {
        return String::new();
    };
    let waits = match event.reply_to {
        Some(_) => " and waits for your reply",
        None => "",
    };
    format!("The agent `{name}` calls you from its conversation `{instance_key}`{waits}.")
}

impl Extension for ContextMessage {
    fn begin_turn(&mut self, context: &mut ExtensionContext<'_>) {
        let text = self.filled_in(context);
        let held = context.state().and_then(|state| {
            let id = state.get("messageId")?.as_str()?.to_owned();
            let text = state.get("text").and_then(Value::as_str)?.to_owned();
            Some((id, text))
        });
        let held = held.filter(|(id, _)| context.has(id));
        if text.trim().is_empty() {
            if let Some(target_id) = held.and_then(|(id, _)| MessageId::new(id).ok()) {
                context.emit(MessageEvent::Remove { target_id });
                context.set_state(json!({}));
            }
            return;
        }
        let old = match held {
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
