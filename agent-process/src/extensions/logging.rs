//! `logging`: a line in the agent's log for each turn, step and tool call.

use goondan_protocol::message::ToolCall;
use goondan_protocol::observe::detail_of;

use super::context::ExtensionContext;
use super::extension::{Extension, TurnEndDecision};
use crate::tool_call::ToolOutcome;

/// Logs events of the turn; includes texts only if configured.
#[derive(Debug)]
pub(super) struct TurnLogger {
    content: bool,
}

impl TurnLogger {
    pub(super) fn new(content: bool) -> Self {
        Self { content }
    }

    /// Appends `text` to `line`, truncated to fit, if texts are logged.
    fn with(&self, line: String, text: &str) -> String {
        if self.content {
            format!("{line}: {}", detail_of(text))
        } else {
            line
        }
    }
}

impl Extension for TurnLogger {
    fn begin_turn(&mut self, context: &mut ExtensionContext<'_>) {
        let messages = context.conversation.len();
        let line = format!("the turn begins with {messages} messages");
        let input = context.turn.event.input.as_deref().unwrap_or_default();
        context.log(self.with(line, input));
    }

    fn before_step(&mut self, context: &mut ExtensionContext<'_>) {
        let messages = context.conversation.len();
        context.log(format!("the model is asked with {messages} messages"));
    }

    fn before_call(
        &mut self,
        context: &mut ExtensionContext<'_>,
        call: &ToolCall,
    ) -> Result<(), String> {
        let line = format!("`{}` is called", call.tool_name);
        context.log(self.with(line, &call.input.to_string()));
        Ok(())
    }

    fn after_call(
        &mut self,
        context: &mut ExtensionContext<'_>,
        call: &ToolCall,
        outcome: &mut ToolOutcome,
    ) {
        let how = if outcome.is_error {
            "failed"
        } else {
            "returned"
        };
        let line = format!("`{}` {how}, {} bytes", call.tool_name, outcome.text.len());
        context.log(self.with(line, &outcome.text));
    }

    fn end_turn(
        &mut self,
        context: &mut ExtensionContext<'_>,
        reply: &mut String,
    ) -> TurnEndDecision {
        let line = format!("the turn ends with a reply of {} bytes", reply.len());
        context.log(self.with(line, reply));
        TurnEndDecision::Accept
    }
}
