//! A tool call as shared by turns, tools and extensions: plain data, and the rules of tools.

use goondan_protocol::images::Image;
use goondan_protocol::message::{ToolCall, ToolResult};

/// Maximum number of tool calls of one step; they run in parallel. A reply with more is a fault of
/// the model.
pub const MAX_CALLS_PER_STEP: usize = 64;

/// Error code of a call interrupted by the end of this process or of the process that performed it.
pub(crate) const INTERRUPTED_CODE: &str = "E_TOOL_INTERRUPTED";

/// Error result, for the model, of a call interrupted by a crash.
pub(crate) const INTERRUPTED: &str = "E_TOOL_INTERRUPTED: interrupted: the process ended while this call \
                                      ran; its outcome is unknown";

/// True if the call of a recorded result was interrupted.
pub(crate) fn was_interrupted(result: &ToolResult) -> bool {
    let rest = result.text.strip_prefix(INTERRUPTED_CODE);
    result.is_error && rest.is_some_and(|rest| rest.starts_with(':'))
}

/// Position of a tool call in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    /// The step, from 1.
    pub step: u32,
    /// Index of the call within the step, from 0.
    pub index: usize,
}

/// Result of a tool call, as shown to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// The tool's output, or the error.
    pub text: String,
    /// True if the call failed.
    pub is_error: bool,
    /// Images returned in addition to the text.
    pub images: Vec<Image>,
    /// True if the tool worked but the program it ran reported failure, such as a command with a
    /// non-zero exit code. The model evaluates the output; people are shown a failure.
    pub has_failed: bool,
    /// True if the call was interrupted and its outcome is unknown.
    pub is_unknown: bool,
    /// Access that the sandbox seems to have refused to the call's program.
    pub refusal: Option<String>,
}

impl ToolOutcome {
    /// Result of a successful call.
    pub fn ok(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: false,
            images: Vec::new(),
            has_failed: false,
            is_unknown: false,
            refusal: None,
        }
    }

    /// Result that a conversation has recorded. How people saw it is not recorded.
    pub fn recorded(result: ToolResult) -> Self {
        Self {
            is_error: result.is_error,
            images: result.images,
            ..Self::ok(result.text)
        }
    }

    /// Result of a call interrupted by a crash.
    pub fn interrupted() -> Self {
        Self {
            is_unknown: true,
            ..Self::error(INTERRUPTED)
        }
    }

    /// As [`Self::interrupted`], with the reason why only a person can find out.
    pub fn interrupted_because(why: Option<&str>) -> Self {
        let Some(why) = why else {
            return Self::interrupted();
        };
        Self {
            text: format!("{INTERRUPTED}: {why}"),
            ..Self::interrupted()
        }
    }

    /// Result of a failed call.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: true,
            images: Vec::new(),
            has_failed: false,
            is_unknown: false,
            refusal: None,
        }
    }
}

/// The engine's view of tools.
pub trait ToolRules {
    /// Checks a call before it is made: the tool is in the catalog and the arguments match its
    /// schema.
    ///
    /// # Errors
    ///
    /// The error result for the model.
    fn check(&self, call: &ToolCall) -> Result<(), CallRejection>;

    /// True if the tool can safely run again when the outcome of the first run is unknown.
    fn is_idempotent(&self, tool_name: &str) -> bool;

    /// True if the call may be made again because its connector finds out first whether an earlier
    /// attempt took effect.
    fn is_recoverable(&self, _tool_name: &str) -> bool {
        false
    }

    /// The reason why only a person can find out whether an interrupted call took effect, if the
    /// tool declares one.
    fn why_unknown(&self, _tool_name: &str) -> Option<&'static str> {
        None
    }

    /// True if a person must approve the call before it runs. The orchestrator then tracks whether
    /// it has begun (`STEER-3`).
    fn needs_person(&self, call: &ToolCall) -> bool;

    /// Longest error text about this tool shown to the model, in characters.
    fn error_limit_chars(&self, tool_name: &str) -> usize;
}

/// Reason to reject a call, as shown to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRejection {
    /// The tool does not exist; the text lists the existing ones.
    #[error("E_TOOL_NOT_IN_CATALOG: {0}")]
    NotInCatalog(String),
    /// The arguments are invalid; the text gives the location.
    #[error("E_TOOL_INVALID_ARGS: {0}")]
    InvalidArgs(String),
}
