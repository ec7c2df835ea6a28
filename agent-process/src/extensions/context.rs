//! An extension's view of a turn, and its operations on it.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, ExtensionName, InstanceKey, MessageId, TurnId};
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::message::{Message, MessageEvent, MessageRole};
use goondan_protocol::time::Timestamp;
use serde_json::Value;

/// Metadata key of a message that its extension wants to keep in place.
pub(super) const KEPT: &str = "kept";

/// The turn that extensions wrap.
#[derive(Debug, Clone)]
pub(crate) struct TurnFacts {
    pub(crate) agent_name: AgentName,
    pub(crate) instance_key: InstanceKey,
    pub(crate) turn_id: TurnId,
    pub(crate) event: AgentEvent,
}

/// An extension's view of a turn, and its operations on it.
pub(crate) struct ExtensionContext<'a> {
    pub(crate) turn: &'a TurnFacts,
    pub(crate) now: Timestamp,
    /// The current messages, including those of the running turn.
    pub(crate) conversation: &'a Conversation,
    pub(super) name: &'a ExtensionName,
    pub(super) state: &'a mut Option<Value>,
    pub(super) place: &'a str,
    pub(super) appended: usize,
    pub(super) events: Vec<MessageEvent>,
    pub(super) lines: Vec<String>,
}

impl ExtensionContext<'_> {
    /// The stored state of the extension (`EXT-2`).
    pub(crate) fn state(&self) -> Option<&Value> {
        self.state.as_ref()
    }

    /// Stores a state as of the end of the turn. A value that is too large is rejected with a log
    /// line.
    pub(crate) fn set_state(&mut self, value: Value) {
        let bytes = value.to_string().len();
        if bytes < MAX_EXTENSION_STATE_BYTES {
            *self.state = Some(value);
        } else {
            self.log(format!(
                "state of {bytes} bytes was not stored; at most {MAX_EXTENSION_STATE_BYTES} are \
                 allowed"
            ));
        }
    }

    /// Changes the conversation once this extension has returned.
    pub(crate) fn emit(&mut self, event: MessageEvent) {
        self.events.push(event);
    }

    /// Id of the next message appended here; identical after a crash.
    pub(crate) fn next_id(&mut self) -> Option<MessageId> {
        self.appended += 1;
        MessageId::new(format!(
            "{}:{}.{}",
            self.turn.turn_id, self.place, self.appended
        ))
        .ok()
    }

    pub(crate) fn append(&mut self, role: MessageRole, text: &str) -> Option<MessageId> {
        let id = self.next_id()?;
        let message = Message::extension(id.clone(), self.now, self.name.clone(), role, text);
        self.emit(MessageEvent::Append { message });
        Some(id)
    }

    /// True if a message with this id exists.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.messages().any(|message| message.id.as_str() == id)
    }

    /// The readable messages, oldest first.
    pub(crate) fn messages(&self) -> impl Iterator<Item = std::borrow::Cow<'_, Message>> {
        self.conversation.messages().filter_map(Result::ok)
    }

    /// True if a message was created in the running turn.
    pub(crate) fn is_of_turn(&self, message: &Message) -> bool {
        let rest = message.id.as_str().strip_prefix(self.turn.turn_id.as_str());
        rest.is_some_and(|rest| rest.starts_with([':', '.']))
    }

    /// Writes a line to the agent's log.
    pub(crate) fn log(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }
}
