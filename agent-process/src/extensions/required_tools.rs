//! `required-tools-guard`: no turn ends without calls of certain tools.

use std::collections::BTreeSet;

use goondan_protocol::ids::MessageId;
use goondan_protocol::message::{Message, MessageEvent, MessageRole, MessageSource};

use super::context::ExtensionContext;
use super::extension::{Extension, TurnEndDecision};

/// Error code of a turn that ended without a required call.
const REQUIRED_TOOLS: &str = "E_REQUIRED_TOOLS";

/// Reminds an agent of required tools, and fails its turn if the reminders have no effect.
#[derive(Debug)]
pub(super) struct RequiredTools {
    tools: Vec<String>,
    max_reminders: u32,
    /// True if a call of any one of the tools is enough.
    any_of: bool,
    /// Custom text of the reminder.
    message: Option<String>,
}

impl RequiredTools {
    pub(super) fn new(
        tools: Vec<String>,
        max_reminders: u32,
        any_of: bool,
        message: Option<String>,
    ) -> Self {
        Self {
            tools,
            max_reminders,
            any_of,
            message,
        }
    }
}

impl Extension for RequiredTools {
    fn end_turn(
        &mut self,
        context: &mut ExtensionContext<'_>,
        _reply: &mut String,
    ) -> TurnEndDecision {
        let mut called = BTreeSet::new();
        let mut reminders = Vec::new();
        for message in context
            .messages()
            .filter(|message| context.is_of_turn(message))
        {
            called.extend(calls_of(&message));
            if let MessageSource::Extension { extension_name, .. } = &message.source
                && extension_name == context.name
            {
                reminders.push(message.id.clone());
            }
        }
        let missing = self.tools.iter().filter(|tool| !called.contains(*tool));
        let missing: Vec<String> = missing.map(|tool| format!("`{tool}`")).collect();
        if missing.is_empty() || (self.any_of && missing.len() < self.tools.len()) {
            forget(context, reminders);
            return TurnEndDecision::Accept;
        }
        let missing = missing.join(if self.any_of { " or " } else { ", " });
        if reminders.len() >= usize::try_from(self.max_reminders).unwrap_or(usize::MAX) {
            let reminded = reminders.len();
            forget(context, reminders);
            return TurnEndDecision::Refuse {
                code: REQUIRED_TOOLS,
                message: self.message.clone().unwrap_or_else(|| {
                    format!(
                        "the turn would end without a call of {missing}, which the agent requires; it \
                         was reminded {reminded} times"
                    )
                }),
            };
        }
        let text = self.message.clone().unwrap_or_else(|| {
            format!(
                "You have not called {missing} in this turn. Call what is missing now, then answer."
            )
        });
        // A user message, because the last message is from the model and not every model can
        // continue its own message.
        context.append(MessageRole::User, &text);
        TurnEndDecision::GoOn
    }
}

/// Removes reminders, which are valid only for their turn.
fn forget(context: &mut ExtensionContext<'_>, reminders: Vec<MessageId>) {
    for target_id in reminders {
        context.emit(MessageEvent::Remove { target_id });
    }
}

fn calls_of(message: &Message) -> Vec<String> {
    let calls = message.data.content.tool_calls();
    calls.into_iter().map(|call| call.tool_name).collect()
}
