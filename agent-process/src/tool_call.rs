//! A tool call as turns, tools and extensions all know it: plain data, and the rules of tools.

use goondan_protocol::images::Image;
use goondan_protocol::message::{ToolCall, ToolResult};

/// Most tool calls of one step; they run in parallel. A reply with more is a fault of the model.
pub const MAX_CALLS_PER_STEP: usize = 64;

/// The code of a call that was cut short: by the end of this process, or of the one that worked for it.
pub(crate) const INTERRUPTED_CODE: &str = "E_TOOL_INTERRUPTED";

/// What the model is told of a call that a crash cut short.
pub(crate) const INTERRUPTED: &str = "E_TOOL_INTERRUPTED: interrupted: the process ended while this call \
                                      ran; its outcome is unknown";

/// Whether the call of a recorded result was cut short.
pub(crate) fn was_interrupted(result: &ToolResult) -> bool {
    let rest = result.text.strip_prefix(INTERRUPTED_CODE);
    result.is_error && rest.is_some_and(|rest| rest.starts_with(':'))
}

/// The place of a tool call in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    /// The step, from 1.
    pub step: u32,
    /// The call's place within the step, from 0.
    pub index: usize,
}

/// How a tool call ended, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// What the tool returned, or what went wrong.
    pub text: String,
    /// Whether it went wrong.
    pub is_error: bool,
    /// Images it returned beside the text.
    pub images: Vec<Image>,
    /// Whether the tool did its work and what it ran says that it failed: a command with another exit code
    /// than 0. Its output is for the model to judge; people are shown a failure.
    pub has_failed: bool,
    /// Whether nobody knows if the call had its effect: it was cut short.
    pub is_unknown: bool,
}

impl ToolOutcome {
    /// A tool that did its work.
    pub fn ok(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: false,
            images: Vec::new(),
            has_failed: false,
            is_unknown: false,
        }
    }

    /// A call that a crash cut short.
    pub fn interrupted() -> Self {
        Self {
            is_unknown: true,
            ..Self::error(INTERRUPTED)
        }
    }

    /// A tool that did not.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: true,
            images: Vec::new(),
            has_failed: false,
            is_unknown: false,
        }
    }
}

/// What the engine must know about tools.
pub trait ToolRules {
    /// Checks a call before it is made: the tool is in the catalog and the arguments fit its schema.
    ///
    /// # Errors
    ///
    /// What the model is told instead of a result.
    fn check(&self, call: &ToolCall) -> Result<(), Misfit>;

    /// Whether the tool may be run a second time when nobody knows if it ran before.
    fn is_idempotent(&self, tool_name: &str) -> bool;

    /// Whether a person is asked before the call is carried out. It is known elsewhere then whether it has
    /// begun (`STEER-3`).
    fn needs_person(&self, call: &ToolCall) -> bool;

    /// Longest error text the model is told about this tool, in characters.
    fn error_limit_chars(&self, tool_name: &str) -> usize;
}

/// Why a call is not made, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// There is no such tool; the text says which there are.
    #[error("E_TOOL_NOT_IN_CATALOG: {0}")]
    NotInCatalog(String),
    /// The arguments do not fit; the text says where.
    #[error("E_TOOL_INVALID_ARGS: {0}")]
    InvalidArgs(String),
}
