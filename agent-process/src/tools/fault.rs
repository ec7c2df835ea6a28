//! What goes wrong in a tool, as the model is told.

use crate::tool_call::{Misfit, ToolOutcome};

/// A tool that could not do its work, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct ToolFault {
    /// A stable code.
    pub(crate) code: &'static str,
    /// What failed, where, and what to do instead.
    pub(crate) message: String,
    /// Whether nobody knows if the call had its effect.
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

impl From<Misfit> for ToolFault {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::NotInCatalog(message) => Self::new("E_TOOL_NOT_IN_CATALOG", message),
            Misfit::InvalidArgs(message) => Self::new("E_TOOL_INVALID_ARGS", message),
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
