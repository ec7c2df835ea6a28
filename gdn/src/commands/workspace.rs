//! `gdn workspace …` and `gdn stop`.

use clap::Subcommand;
use goondan_protocol::control::{CloseWorkspace, ListWorkspaces};
use serde_json::json;

use super::draining::while_draining;
use super::{health, status};
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

#[derive(Debug, Subcommand)]
pub(crate) enum Workspace {
    /// List the registered workspaces
    #[command(after_help = "\
Examples:
  gdn workspace list
  gdn workspace list --json | jq -r '.workspaces[].workspaceId'")]
    List,
    /// Stop a workspace and forget its registration; its conversations stay
    #[command(after_help = "\
Examples:
  gdn workspace close                              this project's, like `gdn stop`
  gdn workspace close --workspace home_me_swarm__swarm   one whose project is gone")]
    Close,
}

pub(super) async fn run(command: &Workspace, context: &Context) -> Result<(), Failure> {
    match command {
        Workspace::List => list(context).await,
        Workspace::Close => close(context).await,
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let workspaces = client.query(ListWorkspaces {}).await?;
    let output = context.output;
    output.object(
        schemas::WORKSPACE_LIST,
        &json!({ "workspaces": workspaces }),
    )?;
    if workspaces.is_empty() {
        let hint = context.daemon_command("run");
        return output.data(format!("No workspaces. Start one in its directory: {hint}"));
    }
    output.data(status::workspaces(&workspaces).render(output.canvas()))?;
    for workspace in &workspaces {
        health::report(workspace, context);
    }
    Ok(())
}

/// Stops the workspace this command is about and forgets its registration.
pub(super) async fn close(context: &Context) -> Result<(), Failure> {
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
        "Its conversations stay. Start it again: {}",
        context.command("run")
    ));
    Ok(())
}
