//! One export of a tool: its schema and the code that runs it.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::places::ToolRoots;
use crate::tool_call::ToolOutcome;

pub(crate) struct Export {
    /// The second half of its full name.
    pub(crate) name: Cow<'static, str>,
    /// Description for the model: its effect and when to use it.
    pub(crate) description: Cow<'static, str>,
    /// JSON Schema of its arguments.
    pub(crate) parameters: Value,
    /// True if it can safely run again when the outcome of the first run is unknown.
    pub(crate) is_idempotent: bool,
    /// The component that limits its output for the model.
    pub(crate) output: Output,
    /// Runs it. The arguments match the schema.
    pub(crate) run: ExportHandler,
}

/// Runs an export. Dropping the future ends the tool and every process it started.
pub(crate) type ExportHandler =
    Box<dyn Fn(Arc<ToolRoots>, ToolInvocation) -> BoxFuture<'static, ToolOutcome> + Send + Sync>;

/// The component that limits an export's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The tool itself, with its own limits.
    BoundedByTool,
    /// The toolbox: a long output goes to a file, and the model gets its head and tail.
    MayBeLong,
}

/// Runs blocking work of a tool off the loop that answers the orchestrator.
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
