//! Tools implemented by modules of the project: their runtime and their exports.

use std::path::Path;
use std::sync::Arc;

use goondan_protocol::definition::ToolDefinition;
use goondan_protocol::process_limits::ProcessLimits;
use serde_json::json;

use super::export::{Export, Output};
use super::fault::ToolFault;
use super::host::{JAVASCRIPT_HOST, ModuleCall};
use super::invocation::ToolInvocation;
use super::pipe::explained;
use super::places::ToolRoots;
use crate::tool_call::ToolOutcome;

/// Exports of a module, as listed in its definition. `entry` is the module's path as written,
/// `path` its location.
pub(super) fn exports(
    definition: &ToolDefinition,
    entry: &Path,
    path: &Path,
    timeout_ms: u64,
    limits: ProcessLimits,
) -> Vec<Export> {
    let tool: Arc<str> = definition.name.as_str().into();
    let config = Arc::new(definition.config.clone());
    let entry: Arc<Path> = entry.into();
    let path: Arc<Path> = path.into();
    let listed = definition.exports.iter();
    listed
        .map(|export| {
            let name: Arc<str> = export.name.as_str().into();
            let (tool, config) = (Arc::clone(&tool), Arc::clone(&config));
            let (entry, path) = (Arc::clone(&entry), Arc::clone(&path));
            let any_object = || json!({"type": "object"});
            Export {
                name: export.name.clone().into(),
                description: export.description.clone().unwrap_or_default().into(),
                parameters: export.parameters.clone().unwrap_or_else(any_object),
                is_idempotent: export.idempotent.unwrap_or(false),
                output: Output::MayBeLong,
                run: Box::new(move |places, invocation| {
                    let call = ModuleCall {
                        tool: Arc::clone(&tool),
                        export: Arc::clone(&name),
                        module: Arc::clone(&path),
                        config: Arc::clone(&config),
                        timeout_ms,
                    };
                    let entry = Arc::clone(&entry);
                    Box::pin(async move {
                        let ran = run(&places, &entry, limits, call, invocation).await;
                        ran.unwrap_or_else(ToolOutcome::from)
                    })
                }),
            }
        })
        .collect()
}

async fn run(
    places: &ToolRoots,
    entry: &Path,
    limits: ProcessLimits,
    call: ModuleCall,
    invocation: ToolInvocation,
) -> Result<ToolOutcome, ToolFault> {
    let runtimes = &places.runtimes;
    let program = runtimes
        .host_of(JAVASCRIPT_HOST, entry, &call.module, limits)
        .await?;
    let surroundings = places.surroundings_of(&call.module);
    let called = places
        .hosts
        .call(surroundings, program, call, invocation)
        .await;
    let outcome = called.unwrap_or_else(ToolOutcome::from);
    Ok(explained(outcome, surroundings))
}
