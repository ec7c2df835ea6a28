//! `gdn node …`: the machines that workspaces are on.

use clap::Subcommand;
use goondan_protocol::control::{ListNodes, NodeInfo, NodesPage, ReplicatedWorkspace};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::table::{Cell, Column, Table};
use crate::schemas;

/// See which machine runs which workspace
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes, and who runs each workspace
    #[command(after_help = "\
Examples:
  gdn node list
  gdn node list --json | jq '.workspaces[] | select(.isStopped)'

Nodes share workspaces through logs in PostgreSQL, which config.json names: `replication`. One of them runs a
workspace; those that follow it have its files, and one of them takes it over when that one is gone.")]
    List,
}

pub(crate) async fn run(command: &NodeCommand, context: &Context) -> Result<(), Failure> {
    match command {
        NodeCommand::List => list(context).await,
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let mut asked = ListNodes::default();
    let mut all = client.query(asked.clone()).await?;
    while let Some(after) = all.next.take() {
        asked.after = Some(after);
        let NodesPage {
            workspaces, next, ..
        } = client.query(asked.clone()).await?;
        all.workspaces.extend(workspaces);
        all.next = next;
    }
    let output = context.output;
    output.object(
        schemas::NODE_LIST,
        &json!({
            "node": all.node,
            "isConnected": all.is_connected,
            "nodes": all.nodes,
            "workspaces": all.workspaces,
        }),
    )?;
    let Some(own) = &all.node else {
        output.data("The workspaces of this daemon are on this machine alone.")?;
        output.note(
            "To have them on others, too, name a PostgreSQL server in config.json: `replication`.",
        );
        return Ok(());
    };
    output.data(nodes(&all.nodes, own).render(output.canvas()))?;
    if !all.workspaces.is_empty() {
        output.data("")?;
        output.data(workspaces(&all.workspaces).render(output.canvas()))?;
    }
    if !all.is_connected {
        output.note(
            "warning: goondan-replica does not run: nothing is acknowledged. See why: `gdn logs`",
        );
    }
    for workspace in all.workspaces.iter().filter(|it| it.is_stopped) {
        output.note(format!(
            "warning: {}: a person has to decide what becomes of its files on {own}. See why: `gdn logs`",
            workspace.workspace_id
        ));
    }
    Ok(())
}

fn nodes(nodes: &[NodeInfo], own: &str) -> Table {
    let mut table = Table::new([
        Column::new("NODE").cut(),
        Column::new("RUNS"),
        Column::new("FOLLOWS"),
        Column::new(""),
    ]);
    for node in nodes {
        let here = if node.node == own { "this one" } else { "" };
        table.row([
            Cell::from(&node.node),
            node.owns.to_string().into(),
            node.follows.to_string().into(),
            here.into(),
        ]);
    }
    table
}

fn workspaces(workspaces: &[ReplicatedWorkspace]) -> Table {
    let mut table = Table::new([
        Column::new("WORKSPACE").cut(),
        Column::new("RUNS ON").cut(),
        Column::new("EPOCH"),
        Column::new("RECORDS"),
        Column::new("FOLLOWED BY").cut(),
    ]);
    for workspace in workspaces {
        let owner = workspace.owner.as_deref().unwrap_or("-");
        let followers = workspace.replicas.iter().filter(|it| it.node != owner);
        let followers: Vec<String> = followers
            .map(|it| match workspace.head.saturating_sub(it.position) {
                0 => it.node.clone(),
                lag => format!("{} ({lag} behind)", it.node),
            })
            .collect();
        table.row([
            Cell::from(&workspace.workspace_id),
            owner.into(),
            workspace.epoch.to_string().into(),
            workspace.head.to_string().into(),
            followers.join(", ").into(),
        ]);
    }
    table
}
