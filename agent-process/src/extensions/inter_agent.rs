//! `inter-agent-response-format`: informs an agent that another agent reads its answer.

use goondan_protocol::event::EventSource;
use goondan_protocol::message::MessageRole;

use super::context::ExtensionContext;
use super::extension::Extension;

/// Instructs an agent how to answer another agent.
#[derive(Debug)]
pub(super) struct InterAgentResponseFormat {
    instructions: Option<String>,
}

impl InterAgentResponseFormat {
    pub(super) fn new(instructions: Option<String>) -> Self {
        Self { instructions }
    }
}

impl Extension for InterAgentResponseFormat {
    fn begin_turn(&mut self, context: &mut ExtensionContext<'_>) {
        let event = &context.turn.event;
        let EventSource::Agent { name, .. } = &event.source else {
            return;
        };
        if event.reply_to.is_none() {
            return;
        }
        let text = match &self.instructions {
            Some(text) => text.replace("${source}", name.as_str()),
            None => format!(
                "Agent `{name}` asked this and gets your whole reply as the result of a tool call. Reply \
                 with the answer alone: no greeting, no question back. If you cannot answer, say so in \
                 the first sentence, and why."
            ),
        };
        context.append(MessageRole::System, &text);
    }
}
