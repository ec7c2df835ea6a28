//! The interface of an extension, and its outputs.

use std::fmt::Debug;

use goondan_protocol::base_package::BaseContract;
use goondan_protocol::conversation::MissingTarget;
use goondan_protocol::ids::{ExtensionName, MessageId};
use goondan_protocol::message::{MessageEvent, ToolCall};

use super::context::ExtensionContext;
use crate::tool_call::ToolOutcome;

/// The interface of an extension. Every method is optional.
pub(crate) trait Extension: Debug + Send {
    /// Sets the contract of `@goondan/base` that the agent has.
    fn set_contract(&mut self, _contract: BaseContract) {}

    /// Called when the turn begins, or begins again after a crash. Its input is part of the
    /// conversation.
    fn begin_turn(&mut self, _context: &mut ExtensionContext<'_>) {}

    /// Called before the model is asked.
    fn before_step(&mut self, _context: &mut ExtensionContext<'_>) {}

    /// Called before a tool runs.
    ///
    /// # Errors
    ///
    /// The error result for the model; the tool does not run.
    fn before_call(
        &mut self,
        _context: &mut ExtensionContext<'_>,
        _call: &ToolCall,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Called after a tool has run; its outcome is not recorded yet.
    fn after_call(
        &mut self,
        _context: &mut ExtensionContext<'_>,
        _call: &ToolCall,
        _outcome: &mut ToolOutcome,
    ) {
    }

    /// True if it requests summaries of old messages.
    fn is_summarizer(&self) -> bool {
        false
    }

    /// The summary to obtain before the turn's first step, if any.
    fn wants_summary(&mut self, _context: &mut ExtensionContext<'_>) -> Option<SummaryRequest> {
        None
    }

    /// Called with the summary, obtained now or before a crash, or with its failure.
    fn take_summary(&mut self, _context: &mut ExtensionContext<'_>, _summary: &Summary<'_>) {}

    /// Explains why the model is not offered this tool in the coming step; `None` if it is offered.
    fn why_not_offered(&self, _tool_name: &str) -> Option<String> {
        None
    }

    /// Called when the model has answered and the turn is about to end with this reply.
    fn end_turn(
        &mut self,
        _context: &mut ExtensionContext<'_>,
        _reply: &mut String,
    ) -> TurnEndDecision {
        TurnEndDecision::Accept
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SummaryRequest {
    /// Number of messages, counted from the oldest that can be summarized.
    pub(crate) count: usize,
    pub(crate) system: String,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) count: usize,
    /// The model's reply, which is part of the conversation until it is removed.
    pub(crate) reply_id: &'a MessageId,
    /// Id of the message that replaces the summarized ones.
    pub(crate) message_id: &'a MessageId,
    /// Text of the summary, or the error.
    pub(crate) text: Result<&'a str, &'a str>,
}

/// Decision about a turn that is about to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnEndDecision {
    Accept,
    /// The model is asked again.
    GoOn,
    Refuse {
        code: &'static str,
        /// The reason, for people.
        message: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExtensionOutput {
    /// An event to record; it is already applied to the conversation.
    Event(Box<MessageEvent>),
    /// An event whose target does not exist (`MSG-4`).
    Missing(MissingTarget),
    /// A log line from this extension.
    Line(ExtensionName, String),
}
