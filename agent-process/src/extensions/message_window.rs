//! `message-window`: removes the oldest messages when the conversation grows too long.

use goondan_protocol::message::{MessageEvent, MessageSource};

use serde_json::Value;

use super::context::{ExtensionContext, KEPT};
use super::extension::Extension;

/// Maximum number of messages that one turn removes. A history that is much too long is shortened
/// over several turns. Each removal is a separate event, so a crash between two removals does no
/// harm.
const REMOVED_PER_TURN_MAX: usize = 1_000;

/// Keeps a conversation short. It cuts where an exchange begins, so that no tool call loses its
/// result, and down to three quarters, so that it does not cut at every turn.
#[derive(Debug)]
pub(super) struct MessageWindow {
    max_messages: usize,
}

impl MessageWindow {
    pub(super) fn new(max_messages: usize) -> Self {
        Self { max_messages }
    }
}

impl Extension for MessageWindow {
    fn begin_turn(&mut self, context: &mut ExtensionContext<'_>) {
        let count = context.conversation.len();
        if count <= self.max_messages {
            return;
        }
        let to_remove = count - self.max_messages * 3 / 4;
        let to_remove = to_remove.min(REMOVED_PER_TURN_MAX);
        let mut oldest = Vec::new();
        let mut cut = 0;
        for message in context.messages() {
            if matches!(message.source, MessageSource::User { .. }) {
                cut = oldest.len();
            }
            if cut >= to_remove || context.is_of_turn(&message) {
                break;
            }
            // Messages that an extension marked as kept stay.
            if message.metadata.get(KEPT) != Some(&Value::Bool(true)) {
                oldest.push(message.id.clone());
            }
        }
        if cut == 0 {
            return;
        }
        context.log(format!(
            "removed {cut} of {count} messages from the conversation"
        ));
        for target_id in oldest.into_iter().take(cut) {
            context.emit(MessageEvent::Remove { target_id });
        }
    }
}
