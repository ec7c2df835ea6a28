//! What a tool can do: one export, its schema and the way to run it.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::places::Places;
use crate::tool_call::ToolOutcome;

/// One thing a tool can do.
pub(crate) struct Export {
    /// The second half of its full name.
    pub(crate) name: Cow<'static, str>,
    /// What it does and when to use it, for the model.
    pub(crate) description: Cow<'static, str>,
    /// JSON Schema of its arguments.
    pub(crate) parameters: Value,
    /// Whether it may be run a second time when nobody knows if it ran before.
    pub(crate) is_idempotent: bool,
    /// Who sees to it that its output is not too long for the model.
    pub(crate) output: Output,
    /// Runs it with arguments that fit the schema.
    pub(crate) run: Run,
}

/// Runs an export. Dropping the future ends the tool and every process it started.
pub(crate) type Run =
    Box<dyn Fn(Arc<Places>, ToolInvocation) -> BoxFuture<'static, ToolOutcome> + Send + Sync>;

/// Who bounds what an export returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The tool itself, by limits that suit it.
    BoundedByTool,
    /// The toolbox: what is too long goes to a file, its ends to the model.
    MayBeLong,
}

/// Work of a tool that blocks, beside the loop that answers the orchestrator.
pub(crate) async fn blocking(
    work: impl FnOnce() -> Result<String, ToolFault> + Send + 'static,
) -> ToolOutcome {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(text)) => ToolOutcome::ok(text),
        Ok(Err(fault)) => fault.into(),
        Err(error) => {
            ToolFault::new("E_TOOL_FAILED", format!("the tool itself failed: {error}")).into()
        }
    }
}
