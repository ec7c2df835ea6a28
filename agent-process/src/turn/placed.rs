//! On which node of a workspace a conversation was, as its own messages tell (`REP-1`).
//!
//! Of a workspace that several nodes have, its conversations go on at another node, and the files that their tools
//! wrote do not. So each message by which a turn begins names the node, and an agent that begins or goes on elsewhere
//! is told.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::ids::MessageId;
use goondan_protocol::message::Message;
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

/// The note of a message that names the node on which its turn began, or went on.
const NODE: &str = "node";

/// The node that the latest message names; none if none does. What cannot be read names none.
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

/// Notes in a message that its turn is on this node.
pub(crate) fn note(message: &mut Message, node: &str) {
    message.metadata.insert(NODE.to_owned(), json!(node));
}

/// What an agent is told that goes on at `node`, and was at `before`.
pub(crate) fn moved(id: MessageId, now: Timestamp, before: &str, node: &str) -> Message {
    let text = format!(
        "[goondan: this conversation was on node `{before}` and goes on at node `{node}`. Files that were written \
         there may be missing here or older, and programs that were started there do not run here. Look at what is \
         there before you rely on it, and make again what you need.]"
    );
    let mut message = Message::user_with_images(id, now, &text, &[]);
    note(&mut message, node);
    message
}
