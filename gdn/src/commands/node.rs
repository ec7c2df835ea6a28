//! `gdn daemon node …`: nodes of the cluster and the workspaces they run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    DrainNode, LeaveNodes, ListNodes, MoveWorkspace, NodeInfo, NodesPage, ReplicatedWorkspace,
};
use goondan_protocol::ids::WorkspaceId;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::drain_progress::while_draining;
use super::{health, shutdown};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::table::{Cell, Column, Table};
use crate::output::{style, text};
use crate::schemas;

/// Maximum wait for another node to run a moved workspace, in milliseconds.
const MOVED_WITHIN_MS: u64 = 60_000;
/// Polling interval, in milliseconds.
const LOOK_MS: u64 = 100;

/// Show and control which node runs which workspace
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes and the owner of each workspace
    #[command(after_help = "\
Examples:
  gdn daemon node list
  gdn daemon node list --json | jq '.workspaces[] | select(.isStopped)'

Nodes share workspaces through logs in PostgreSQL (`replication` in config.json). One node runs a workspace;
its followers have copies of the files, and one of them takes over if that node fails.")]
    List,
    /// Move a workspace to another node
    #[command(after_help = "\
Examples:
  gdn daemon node move srv_shop__no-package
  gdn daemon node move srv_shop__no-package --to b

Turns in progress finish first, as with `gdn stop`. Run this on the node that runs the workspace.")]
    Move(MoveArgs),
    /// Move all workspaces to other nodes, and take none over
    #[command(after_help = "\
Examples:
  gdn daemon node drain     before this machine is shut down
  gdn daemon node drain --undo  let it take workspaces again

Until its daemon restarts, the node takes a workspace only if no other node does.")]
    Drain(DrainArgs),
    /// Remove this node from the cluster permanently, and stop the daemon
    #[command(after_help = "\
Examples:
  gdn daemon node drain && gdn daemon node leave  other nodes take over first
  gdn daemon node leave --keep        the last node continues alone

First remove `replication` from config.json. Workspaces of other nodes are set aside on this node, so that they do not
run twice.")]
    Leave(LeaveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// The workspace, as listed by `gdn daemon node list`
    #[arg(value_name = "WORKSPACE")]
    workspace: WorkspaceId,
    /// Node that will run it [default: one of its followers]
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Allow this node to take workspaces again
    #[arg(long)]
    undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LeaveArgs {
    /// Keep the workspaces that run here: their logs end, and other nodes can no longer take them over
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(command: &NodeCommand, context: &Context) -> Result<(), Failure> {
    match command {
        NodeCommand::List => list(context).await,
        NodeCommand::Move(args) => {
            let mut client = context.connect().await?;
            move_one(context, &mut client, &args.workspace, args.to.clone()).await
        }
        NodeCommand::Drain(args) => drain(context, args).await,
        NodeCommand::Leave(args) => leave(context, args).await,
    }
}

/// Moves a workspace and waits until another node runs it.
async fn move_one(
    context: &Context,
    client: &mut Client,
    workspace_id: &WorkspaceId,
    to: Option<String>,
) -> Result<(), Failure> {
    let since = Instant::now();
    let workspace_id = workspace_id.clone();
    let moving = MoveWorkspace {
        workspace_id: workspace_id.clone(),
        to,
    };
    let moving = client.change(moving);
    while_draining(context, Some(workspace_id.clone()), moving).await?;
    let until = Instant::now() + Duration::from_millis(MOVED_WITHIN_MS);
    let node = loop {
        let all = pages(client).await?;
        let own = all.node.as_deref();
        let mut workspaces = all.workspaces.into_iter();
        let found = workspaces.find(|it| it.workspace_id == workspace_id);
        if found.as_ref().is_some_and(|it| it.is_here) {
            return Err(Failure::new(
                Exit::Degraded,
                format!("no other node took over workspace {workspace_id}; it runs here again"),
                "for the reason, on the other node: `gdn daemon node list`, `gdn logs`",
            ));
        }
        // The log names the new owner from the seal record on. Heartbeats that show it is alive arrive a moment later.
        let owner = found.filter(|it| it.is_owner_heard);
        let owner = owner.and_then(|it| it.owner);
        if let Some(owner) = owner.filter(|owner| Some(owner.as_str()) != own) {
            break owner;
        }
        if Instant::now() >= until {
            return Err(Failure::new(
                Exit::TimedOut,
                format!(
                    "this node released workspace {workspace_id}, and no other node runs it yet"
                ),
                "list the nodes: `gdn daemon node list`",
            ));
        }
        sleep(Duration::from_millis(LOOK_MS)).await;
    };
    let output = context.output;
    let took_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    output.object(
        schemas::NODE_MOVE,
        &json!({ "workspaceId": workspace_id, "node": node, "durationMs": took_ms }),
    )?;
    output.data(format!("Workspace {workspace_id} runs on {node}"))
}

async fn drain(context: &Context, args: &DrainArgs) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let drains = !args.undo;
    client.change(DrainNode { drains }).await?;
    let output = context.output;
    let all = pages(&mut client).await?;
    if drains {
        for workspace in all.workspaces.iter().filter(|it| it.is_here) {
            move_one(context, &mut client, &workspace.workspace_id, None).await?;
        }
    }
    output.object(
        schemas::NODE_DRAIN,
        &json!({ "node": all.node, "isDraining": drains }),
    )?;
    let node = all.node.unwrap_or_default();
    if drains {
        output.data(format!(
            "Node {node} takes no workspace that another one can run"
        ))?;
        output.note("Until its daemon restarts, or: gdn daemon node drain --undo");
    } else {
        output.data(format!("Node {node} takes workspaces again"))?;
    }
    Ok(())
}

async fn leave(context: &Context, args: &LeaveArgs) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let all = pages(&mut client).await?;
    client.change(LeaveNodes { keep: args.keep }).await?;
    let output = context.output;
    output.note("Stopping, after the turns in progress …");
    shutdown::stop(client, None, context).await?;
    let dir = context.state_root.join("replication");
    if let Some(note) = first_note(&dir) {
        return Err(Failure::new(
            Exit::Degraded,
            format!(
                "this node has not left the group: `{}` still exists",
                note.display()
            ),
            "find the reason in the daemon's log; then restore `replication` in config.json, start the daemon, and try again",
        ));
    }
    let node = all.node.unwrap_or_default();
    output.object(
        schemas::NODE_LEAVE,
        &json!({ "node": node, "keeps": args.keep }),
    )?;
    output.data(format!("Node {node} has left the group"))?;
    output.note(format!(
        "Its files of workspaces that other nodes run were moved to {}",
        dir.join("before").display()
    ));
    Ok(())
}

/// Returns a file with the position of a followed log, if there is one.
fn first_note(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.find(|path| path.is_file())
}

/// Fetches all pages of the list.
pub(super) async fn pages(client: &mut Client) -> Result<NodesPage, Failure> {
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
    Ok(all)
}

/// Fails if a workspace's owner is not reachable as far as this node can tell; none if all are. A follower has no
/// other way to report this.
pub(super) async fn verdict_of_unheard(
    client: &mut Client,
    context: &Context,
) -> Result<(), Failure> {
    let all = pages(client).await?;
    let mut unheard = all.workspaces.iter().filter_map(|workspace| {
        let owner = workspace.owner.as_deref()?;
        (!workspace.is_owner_heard).then_some((&workspace.workspace_id, owner))
    });
    let Some((id, owner)) = unheard.next() else {
        return Ok(());
    };
    let (list, doctor) = (
        context.daemon_command("daemon node list"),
        context.daemon_command("doctor"),
    );
    Err(Failure::new(
        Exit::Degraded,
        format!(
            "node {owner}, which has workspace {id}, does not respond, and no other node has taken over"
        ),
        format!(
            "list the possible nodes: `{list}`; check that the log server confirms records: `{doctor}`"
        ),
    ))
}

async fn list(context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let all = pages(&mut client).await?;
    let output = context.output;
    output.object(
        schemas::NODE_LIST,
        &json!({
            "node": all.node,
            "isConnected": all.is_connected,
            "trouble": all.trouble,
            "isDraining": all.is_draining,
            "nodes": all.nodes,
            "workspaces": all.workspaces,
        }),
    )?;
    let Some(own) = &all.node else {
        output.data("The workspaces of this daemon are on this machine only.")?;
        output.note("To replicate them, set `replication` in config.json to a PostgreSQL server.");
        return Ok(());
    };
    output.data(nodes(&all.nodes, own).render(output.canvas()))?;
    if !all.workspaces.is_empty() {
        output.data("")?;
        output.data(workspaces(&all.workspaces).render(output.canvas()))?;
    }
    if let Some(trouble) = &all.trouble {
        let trouble = text::one_line(trouble);
        output.note(format!(
            "warning: the log server does not respond to {}: {trouble}",
            all.node.as_deref().unwrap_or("this node")
        ));
    }
    for workspace in &all.workspaces {
        if let Some(silence) = &workspace.unacknowledged {
            let told = health::unacknowledged(silence);
            output.note(format!("warning: {}: {told}", workspace.workspace_id));
        }
    }
    if all.is_draining {
        output.note(format!(
            "{own} takes no workspace that another node can run, until `gdn daemon node drain --undo`"
        ));
    }
    for workspace in &all.workspaces {
        if let Some(why) = &workspace.unfit {
            let (id, why) = (&workspace.workspace_id, text::one_line(why));
            output.note(if workspace.is_here {
                format!(
                    "warning: {id}: {own} has it and cannot run it; another node takes over as soon as it follows it and can run it: {why}"
                )
            } else {
                format!("warning: {id}: {own} cannot run it, and does not take over: {why}")
            });
        }
    }
    for workspace in &all.workspaces {
        if let Some(node) = &workspace.ended_by {
            output.note(format!(
                "warning: {}: node {node} left the group and keeps it; its log has ended, and no other node takes over",
                workspace.workspace_id
            ));
        }
    }
    for workspace in all.workspaces.iter().filter(|it| it.is_failed) {
        output.note(format!(
            "warning: {}: the disk of {own} failed, and its files differ from the log; they are restored from the log in a few seconds. For the reason: `gdn logs`",
            workspace.workspace_id
        ));
    }
    for workspace in all.workspaces.iter().filter(|it| it.is_stopped) {
        output.note(format!(
            "warning: {}: a person must decide about its files on {own}. For the reason: `gdn logs`",
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
        let runs_on = match &workspace.owner {
            None if workspace.ended_by.is_some() => {
                let node = workspace.ended_by.as_deref().unwrap_or_default();
                Cell::styled(format!("{node} (left)"), style::WARN)
            }
            Some(owner) if workspace.is_owner_heard => Cell::from(owner),
            Some(owner) => Cell::styled(format!("{owner} (not responding)"), style::WARN),
            None => Cell::from("-"),
        };
        let followers = workspace.replicas.iter().filter(|it| it.node != owner);
        let followers: Vec<String> = followers
            .map(|it| match workspace.head.saturating_sub(it.position) {
                0 => it.node.clone(),
                lag => format!("{} ({lag} behind)", it.node),
            })
            .collect();
        table.row([
            Cell::from(&workspace.workspace_id),
            runs_on,
            workspace.epoch.to_string().into(),
            workspace.head.to_string().into(),
            followers.join(", ").into(),
        ]);
    }
    table
}
