//! Tool failures, as shown to the model.

use crate::tool_call::{CallRejection, ToolOutcome};

/// A tool failure, as shown to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct ToolFault {
    pub(crate) code: &'static str,
    /// The failure, its location, and the alternative.
    pub(crate) message: String,
    /// True if the outcome of the call is unknown.
    pub(crate) is_unknown: bool,
}

impl ToolFault {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            is_unknown: false,
        }
    }
}

impl From<CallRejection> for ToolFault {
    fn from(misfit: CallRejection) -> Self {
        match misfit {
            CallRejection::NotInCatalog(message) => Self::new("E_TOOL_NOT_IN_CATALOG", message),
            CallRejection::InvalidArgs(message) => Self::new("E_TOOL_INVALID_ARGS", message),
        }
    }
}

impl From<ToolFault> for ToolOutcome {
    fn from(fault: ToolFault) -> Self {
        Self {
            is_unknown: fault.is_unknown,
            ..Self::error(fault.to_string())
        }
    }
}
