//! `message-integrity`: keeps tool calls and their results in pairs.
//!
//! Providers reject a conversation with a call without a result or a result without a call. Turns
//! of goondan never leave one, but an import, another implementation or an extension may.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::ids::{MessageId, ToolCallId};
use goondan_protocol::message::{Message, MessageContent, MessageEvent, MessageRole};
use serde_json::json;

use super::context::ExtensionContext;
use super::extension::Extension;

/// Removes results without a call and calls without a result.
#[derive(Debug)]
pub(super) struct MessageIntegrity;

impl Extension for MessageIntegrity {
    fn before_step(&mut self, context: &mut ExtensionContext<'_>) {
        let mut open: BTreeMap<ToolCallId, MessageId> = BTreeMap::new();
        let mut orphans: Vec<MessageId> = Vec::new();
        for message in context.messages() {
            if message.data.role == MessageRole::Assistant {
                for call in message.data.content.tool_calls() {
                    open.insert(call.id, message.id.clone());
                }
            }
            let results = message.data.content.tool_results();
            let answered = results
                .iter()
                .filter(|result| open.remove(&result.tool_call_id).is_some());
            if !results.is_empty() && answered.count() == 0 {
                orphans.push(message.id.clone());
            }
        }
        let unanswered: BTreeSet<MessageId> = open.values().cloned().collect();
        let mended: Vec<(MessageId, Message)> = context
            .messages()
            .filter(|message| unanswered.contains(&message.id))
            .map(|message| (message.id.clone(), without(&message, &open)))
            .collect();
        if orphans.is_empty() && mended.is_empty() {
            return;
        }
        context.log(format!(
            "{} results without a call and {} messages with calls without a result were repaired",
            orphans.len(),
            mended.len()
        ));
        for target_id in orphans {
            context.emit(MessageEvent::Remove { target_id });
        }
        for (target_id, message) in mended {
            context.emit(MessageEvent::Replace { target_id, message });
        }
    }
}

/// The message without its unanswered calls; a note names them.
fn without(message: &Message, open: &BTreeMap<ToolCallId, MessageId>) -> Message {
    let content = &message.data.content;
    let mut text = content.to_text();
    let mut kept = Vec::new();
    for call in content.tool_calls() {
        if open.contains_key(&call.id) {
            let note = format!("[a call of `{}` has no result]", call.tool_name);
            text = if text.is_empty() {
                note
            } else {
                format!("{text}\n{note}")
            };
        } else {
            kept.push(call);
        }
    }
    let mut mended = message.clone();
    mended.data.content = MessageContent::assistant(&text, &kept);
    mended.metadata.insert("mended".to_owned(), json!(true));
    mended
}
