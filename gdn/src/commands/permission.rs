//! `gdn workspace permission …`: permissions of a workspace, which only a person gives (`SEC-3`).

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    DecidePermission, ListPermissions, PermissionDecided, WorkspacePermission,
};

use super::attach::attach_or_start;
use super::permission_requests::{decision_text, requests, unusable};
use super::reload;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::project::ProjectChoice;
use crate::schemas;

/// Manage what a project may do beyond its configuration
#[derive(Debug, Subcommand)]
pub(crate) enum PermissionCommand {
    /// Allow a project a permission
    #[command(after_help = "\
Examples:
  gdn workspace permission allow project            its agents write in this directory
  gdn workspace permission allow network --project ~/bots/pr  connector modules of another project use the network
  gdn workspace permission allow packages           its MCP servers are downloaded")]
    Allow(PermissionArgs),
    /// Withdraw a permission, or decide not to give it
    #[command(after_help = "\
Examples:
  gdn workspace permission deny project             `gdn run` does not ask for it")]
    Deny(PermissionArgs),
    /// List the decisions about permissions of projects
    #[command(after_help = "\
Examples:
  gdn workspace permission list
  gdn workspace permission list --json | jq '.decisions[] | select(.allowed)'")]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct PermissionArgs {
    /// `project`: its agents work in the project directory; `network`: its connector modules use the network;
    /// `packages`: its MCP servers of `npx`, `uvx` and the like are downloaded
    #[arg(value_name = "PERMISSION")]
    permission: WorkspacePermission,
}

pub(crate) async fn run(command: PermissionCommand, context: &Context) -> Result<(), Failure> {
    match command {
        PermissionCommand::Allow(args) => decide(args.permission, true, context).await,
        PermissionCommand::Deny(args) => decide(args.permission, false, context).await,
        PermissionCommand::List => list(context).await,
    }
}

async fn decide(
    permission: WorkspacePermission,
    allowed: bool,
    context: &Context,
) -> Result<(), Failure> {
    let decided = carry_out(permission, allowed, context).await?;
    let output = context.output;
    let schema = match allowed {
        true => schemas::PERMISSION_ALLOW,
        false => schemas::PERMISSION_DENY,
    };
    output.object(schema, &decided)?;
    output.data(decided_text(&decided))?;
    for workspace in &decided.workspaces {
        reload::warn(workspace, context);
    }
    Ok(())
}

/// Decides about a permission without printing the result.
pub(super) async fn carry_out(
    permission: WorkspacePermission,
    allowed: bool,
    context: &Context,
) -> Result<PermissionDecided, Failure> {
    let (mut client, project_root, choice) = if context.is_by_id() {
        let (client, workspace) = context.open().await?;
        let choice = ProjectChoice::of_workspace(&workspace);
        (client, workspace.project_root, choice)
    } else {
        let project_root = context.project()?;
        (
            attach_or_start(context, false).await?.0,
            project_root,
            ProjectChoice::default(),
        )
    };
    let requests = requests(&project_root, &choice, context);
    let requested = requests.iter().find(|it| it.permission == permission);
    let covers = match (requested, allowed) {
        (Some(request), _) => request.covers.clone(),
        (None, false) => BTreeSet::new(),
        (None, true) => return Err(unusable(permission, &project_root, context)),
    };
    let decide = DecidePermission {
        permission,
        project_root,
        allowed,
        covers,
    };
    Ok(client.change(decide).await?)
}

/// The decision, and its effect on each workspace.
pub(super) fn decided_text(decided: &PermissionDecided) -> String {
    let reloaded = decided.workspaces.iter().map(reload::reload_text);
    let lines = std::iter::once(decision_text(&decided.decision)).chain(reloaded);
    lines.collect::<Vec<_>>().join("\n")
}

async fn list(context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let list = client.query(ListPermissions {}).await?;
    let output = context.output;
    output.object(schemas::PERMISSION_LIST, &list)?;
    if list.decisions.is_empty() {
        output.data("No decisions. `gdn run` asks if a project can use a permission.")?;
    } else {
        let mut table = Table::new([
            Column::new("PERMISSION"),
            Column::new("DECISION"),
            Column::new("PROJECT").cut(),
            Column::new("SINCE").below(1, "since"),
        ]);
        for decision in &list.decisions {
            let root = decision.project_root.to_string_lossy();
            let word = if decision.allowed {
                "allowed"
            } else {
                "denied"
            };
            table.row([
                Cell::from(decision.permission.as_str()),
                word.into(),
                text::one_line(&root).into(),
                text::clock(decision.decided_at).into(),
            ]);
        }
        output.data(table.render(output.canvas()))?;
    }
    if let Some(problem) = &list.problem {
        let warning = output.err.paint(style::WARN, "warning:");
        output.note(format!("{warning} {}", text::printable(problem)));
    }
    Ok(())
}
