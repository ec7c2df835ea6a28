//! `gdn stop`.

use clap::Args;
use goondan_protocol::control::CloseWorkspace;
use serde_json::json;

use super::drain_progress::while_draining;
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

/// Stop this project's workspace; its conversations are kept
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn stop
  gdn stop --project ~/my-swarm

`gdn run` starts it again, and its conversations continue.")]
pub(crate) struct StopArgs {}

/// Stops the command's workspace and removes its registration.
pub(crate) async fn run(context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let close = CloseWorkspace {
        workspace_id: workspace_id.clone(),
    };
    let closing = client.change(close);
    while_draining(context, Some(workspace_id.clone()), closing).await?;
    let output = context.output;
    output.object(
        schemas::WORKSPACE_CLOSE,
        &json!({ "workspaceId": workspace_id }),
    )?;
    output.data(format!("Stopped workspace {workspace_id}"))?;
    output.note(format!(
        "Its conversations are kept. Start it again: {}",
        context.command("run")
    ));
    Ok(())
}
