//! What an extension can do, and what comes of asking it.

use std::fmt::Debug;

use goondan_protocol::conversation::MissingTarget;
use goondan_protocol::ids::{ExtensionName, MessageId};
use goondan_protocol::message::{MessageEvent, ToolCall};

use super::context::ExtensionContext;
use crate::tool_call::ToolOutcome;

/// What an extension can do. Everything is optional.
pub(crate) trait Extension: Debug + Send {
    /// The turn begins, or begins again after a crash. Its input is part of the conversation.
    fn begin_turn(&mut self, _context: &mut ExtensionContext<'_>) {}

    /// The model is about to be asked.
    fn before_step(&mut self, _context: &mut ExtensionContext<'_>) {}

    /// A tool is about to run.
    ///
    /// # Errors
    ///
    /// What the model is told instead: the tool does not run.
    fn before_call(
        &mut self,
        _context: &mut ExtensionContext<'_>,
        _call: &ToolCall,
    ) -> Result<(), String> {
        Ok(())
    }

    /// A tool has run; its outcome is not recorded yet.
    fn after_call(
        &mut self,
        _context: &mut ExtensionContext<'_>,
        _call: &ToolCall,
        _outcome: &mut ToolOutcome,
    ) {
    }

    /// Whether it has what is long past summarized.
    fn is_summarizer(&self) -> bool {
        false
    }

    /// What is to be summarized before the turn's first step, if anything is.
    fn wants_summary(&mut self, _context: &mut ExtensionContext<'_>) -> Option<SummaryWanted> {
        None
    }

    /// The summary came, now or before a crash, or it could not be had.
    fn take_summary(&mut self, _context: &mut ExtensionContext<'_>, _summary: &Summary<'_>) {}

    /// Why the model is not offered this tool in the coming step; none if it is.
    fn why_not_offered(&self, _tool_name: &str) -> Option<String> {
        None
    }

    /// The model has answered, and the turn is about to end with this reply.
    fn end_turn(&mut self, _context: &mut ExtensionContext<'_>, _reply: &mut String) -> Ending {
        Ending::Accept
    }
}

/// A summary that an extension wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SummaryWanted {
    /// Of how many messages: the oldest that may be summarized.
    pub(crate) count: usize,
    /// What the model is told to do.
    pub(crate) system: String,
    /// What it is to summarize.
    pub(crate) text: String,
}

/// A summary that came, or why none did.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    /// Of how many messages.
    pub(crate) count: usize,
    /// The model's reply, which is part of the conversation until it is taken out.
    pub(crate) reply_id: &'a MessageId,
    /// The id of the message that takes the place of what is summarized.
    pub(crate) message_id: &'a MessageId,
    /// What the model wrote.
    pub(crate) text: Result<&'a str, &'a str>,
}

/// What is to become of a turn that is about to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It ends.
    Accept,
    /// The model is asked once more.
    GoOn,
    /// It fails.
    Refuse {
        /// A stable code.
        code: &'static str,
        /// Why, for people to read.
        message: String,
    },
}

/// What came of asking extensions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExtensionOutput {
    /// An event, applied to the conversation already; it is to be recorded.
    Event(Box<MessageEvent>),
    /// An event whose target is not there (`MSG-4`).
    Missing(MissingTarget),
    /// A line for the log, from this extension.
    Line(ExtensionName, String),
}
