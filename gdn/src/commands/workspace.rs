//! `gdn workspace …`.

use clap::Subcommand;
use goondan_protocol::control::ListWorkspaces;
use serde_json::json;

use super::forget::ForgetArgs;
use super::permission::PermissionCommand;
use super::watch::WatchArgs;
use super::{forget, health, permission, status, stop, watch};
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

/// List, watch, close and forget workspaces
#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// List the registered workspaces
    #[command(after_help = "\
Examples:
  gdn workspace list
  gdn workspace list --json | jq -r '.workspaces[].workspaceId'")]
    List,
    /// Stop a workspace and remove its registration; its conversations are kept
    #[command(after_help = "\
Examples:
  gdn workspace close                              this project's, like `gdn stop`
  gdn workspace close --workspace home_me_swarm__swarm   one whose project was deleted")]
    Close,
    Forget(ForgetArgs),
    Watch(WatchArgs),
    #[command(subcommand)]
    Permission(PermissionCommand),
}

pub(crate) async fn run(command: WorkspaceCommand, context: &Context) -> Result<(), Failure> {
    match command {
        WorkspaceCommand::List => list(context).await,
        WorkspaceCommand::Close => stop::run(context).await,
        WorkspaceCommand::Forget(args) => forget::run(&args, context).await,
        WorkspaceCommand::Watch(args) => watch::run(args, context).await,
        WorkspaceCommand::Permission(args) => permission::run(args, context).await,
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let workspaces = client.all(ListWorkspaces::default()).await?;
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
