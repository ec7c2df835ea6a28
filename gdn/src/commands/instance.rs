//! `gdn conversation …`: conversations.

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    DeleteInstance, InstanceDetail, InstanceSummary, ListInstances, Prunable, PruneInstances,
    ShowInstance,
};
use goondan_protocol::ids::{AgentName, InstanceKey};
use serde::Serialize;
use serde_json::json;

use super::archive::{InstanceExportArgs, InstanceImportArgs};
use super::bundle::BundleCommand;
use super::cancel::CancelArgs;
use super::confirm::confirm;
use super::names;
use super::ps::table::state_words;
use super::restart::{self, RestartArgs};
use super::rewind::{InstanceCheckpointArgs, InstanceCheckpointsArgs, RewindArgs};
use super::{archive, bundle, cancel, rewind, transcript, turns};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text::{self, shell_quoted};
use crate::schemas;

/// List, show, prune and delete conversations
#[derive(Debug, Subcommand)]
pub(crate) enum InstanceCommand {
    /// List conversations
    #[command(after_help = "\
Examples:
  gdn conversation list
  gdn conversation list --agent clerk
  gdn conversation list --all --json")]
    List(InstanceListArgs),
    /// Show one conversation's state
    #[command(after_help = "\
Examples:
  gdn conversation show           the conversation `main`
  gdn conversation show order-17")]
    Show(InstanceShowArgs),
    /// Print one conversation's messages, or its turns
    #[command(after_help = "\
Examples:
  gdn conversation history        every message of `main`
  gdn conversation history order-17 --limit 10
  gdn conversation history --turns  outcome, duration and tools of each turn
  gdn conversation history --json | jq '.messages | length'")]
    History(InstanceHistoryArgs),
    /// Create a checkpoint of one conversation and its files, for `gdn conversation rewind`
    #[command(after_help = "\
Examples:
  gdn conversation checkpoint
  gdn conversation checkpoint ann --name before-refactoring  never removed by age

Checkpoints are created between turns: during a turn, the command is refused.")]
    Checkpoint(InstanceCheckpointArgs),
    /// List the checkpoints of one conversation
    #[command(after_help = "\
Examples:
  gdn conversation checkpoints
  gdn conversation checkpoints ann --json | jq '.checkpoints[-1].checkpointId'")]
    Checkpoints(InstanceCheckpointsArgs),
    Export(InstanceExportArgs),
    Import(InstanceImportArgs),
    /// Delete conversations that have not been used for a long time
    #[command(after_help = "\
Examples:
  gdn conversation prune --dry-run              conversations that the swarm's policy would delete
  gdn conversation prune --older-than 30d --dry-run
  gdn conversation prune --older-than 30d --yes  without confirmation, as in scripts

The policy is `policy.lifecycle` of the Swarm; the daemon applies it automatically.")]
    Prune(InstancePruneArgs),
    /// Delete one conversation: its messages, its extensions' state and its work directory
    #[command(after_help = "\
Examples:
  gdn conversation delete order-17
  gdn conversation delete order-17 --yes  without confirmation, as in scripts

Deleting a missing conversation succeeds.")]
    Delete(InstanceDeleteArgs),
    Rewind(RewindArgs),
    Cancel(CancelArgs),
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Restart one conversation's process after its turn in progress
    #[command(after_help = "\
Examples:
  gdn conversation restart order-17      the same as `gdn restart --conversation order-17`")]
    Restart(InstanceRestartArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InstanceListArgs {
    /// Include every workspace
    #[arg(long)]
    all: bool,
    /// Only conversations of this agent
    #[arg(long, short, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Only this many
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceShowArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceHistoryArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
    /// Only this many of the latest messages, or turns
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print turns with their outcomes, instead of messages
    #[arg(long)]
    turns: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstancePruneArgs {
    /// Conversations unchanged for this long, such as 30d, 12h or 90m, instead of by the swarm's policy
    #[arg(long, value_name = "AGE", value_parser = parse_age_ms)]
    older_than: Option<u64>,
    /// Only show the conversations
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceDeleteArgs {
    /// The conversation
    #[arg(value_name = "KEY")]
    key: InstanceKey,
    /// Do not ask for confirmation
    #[arg(long, short, alias = "force", short_alias = 'f')]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstanceRestartArgs {
    /// The conversation
    #[arg(value_name = "KEY")]
    key: InstanceKey,
    /// Delete its messages and files, too
    #[arg(long)]
    fresh: bool,
    /// With --fresh: do not ask for confirmation
    #[arg(long, short, requires = "fresh")]
    yes: bool,
}

/// Parses an age such as `30d` into milliseconds.
pub(super) fn parse_age_ms(text: &str) -> Result<u64, String> {
    let problem =
        || format!("invalid age `{text}`: expected a number and s, m, h, d or w, such as 30d");
    let unit = text.chars().next_back().ok_or_else(problem)?;
    let second_ms: u64 = 1_000;
    let unit_ms = match unit {
        's' => second_ms,
        'm' => 60 * second_ms,
        'h' => 3_600 * second_ms,
        'd' => 86_400 * second_ms,
        'w' => 7 * 86_400 * second_ms,
        _ => return Err(problem()),
    };
    let number: u64 = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok())
        .ok_or_else(problem)?;
    number.checked_mul(unit_ms).ok_or_else(problem)
}

pub(crate) async fn run(command: InstanceCommand, context: &Context) -> Result<(), Failure> {
    match command {
        InstanceCommand::List(args) => list(&args, context).await,
        InstanceCommand::Show(args) => show(args, context).await,
        InstanceCommand::History(args) => history(args, context).await,
        InstanceCommand::Checkpoint(args) => rewind::make(args, context).await,
        InstanceCommand::Checkpoints(args) => rewind::list(args, context).await,
        InstanceCommand::Export(args) => archive::export(args, context).await,
        InstanceCommand::Import(args) => archive::import(args, context).await,
        InstanceCommand::Prune(args) => prune(&args, context).await,
        InstanceCommand::Delete(args) => delete(args, context).await,
        InstanceCommand::Rewind(args) => rewind::run(args, context).await,
        InstanceCommand::Cancel(args) => cancel::run(args, context).await,
        InstanceCommand::Bundle(args) => bundle::run(args, context).await,
        InstanceCommand::Restart(args) => {
            restart::run(
                RestartArgs::of_instance(args.key, args.fresh, args.yes),
                context,
            )
            .await
        }
    }
}

/// Output of `gdn conversation list --json`. Borrowed, because the list can be very long.
#[derive(Serialize)]
struct InstanceListOutput<'a> {
    instances: &'a [InstanceSummary],
}

async fn list(args: &InstanceListArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = match (all, &args.agent) {
        (false, Some(_)) => {
            let (client, workspace) = context.open().await?;
            names::check_agent(args.agent.as_ref(), &workspace)?;
            (client, Some(workspace.workspace_id))
        }
        (all, _) => context.open_scope(all).await?,
    };
    let list = ListInstances {
        workspace_id,
        agent_name: args.agent.clone(),
        ..ListInstances::default()
    };
    let mut instances = client.all(list).await?;
    instances.truncate(args.limit.unwrap_or(usize::MAX));
    let output = context.output;
    let instances = &instances;
    output.object(schemas::INSTANCE_LIST, &InstanceListOutput { instances })?;
    if instances.is_empty() {
        let hint = context.command("send \"Hello\"");
        return output.data(format!(
            "No conversations. The first message starts one: {hint}"
        ));
    }
    output.data(list_table(instances, all).render(output.canvas()))
}

fn list_table(instances: &[InstanceSummary], all: bool) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut(),
        Column::new("STATUS"),
        Column::new("CREATED").below(2, "created"),
        Column::new("UPDATED").below(1, "updated"),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    let now = text::now();
    for instance in instances {
        let cells = [
            Cell::from(&instance.instance_key),
            Cell::from(&instance.agent_name),
            Cell::from(&instance.status),
            text::clock(instance.created_at).into(),
            format!("{} ago", text::age(instance.updated_at, now)).into(),
        ];
        let workspace = all.then(|| Cell::from(&instance.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

/// Shows the state of a conversation.
pub(super) async fn show_of(key: InstanceKey, context: &Context) -> Result<(), Failure> {
    show(InstanceShowArgs { key: Some(key) }, context).await
}

async fn show(args: InstanceShowArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let show = ShowInstance {
        instance_key: workspace.conversation(args.key),
        workspace_id: workspace.workspace_id,
    };
    let detail = client.query(show).await?;
    let output = context.output;
    output.object(schemas::INSTANCE_SHOW, &detail)?;
    output.data(detail_table(&detail).render(output.canvas()))
}

fn detail_table(detail: &InstanceDetail) -> Table {
    let summary = &detail.summary;
    let mut table = Table::of_fields();
    table.field("Conversation", &summary.instance_key);
    table.field("Agent", &summary.agent_name);
    table.field("Status", &summary.status);
    table.field("Created", text::clock(summary.created_at));
    table.field("Updated", text::clock(summary.updated_at));
    table.field(
        "Messages",
        format!("{} ({})", detail.messages, text::bytes(detail.base_bytes)),
    );
    table.field("Pending", text::count(detail.pending_events, "event"));
    if detail.schedules > 0 {
        table.field("Schedules", text::count(detail.schedules, "schedule"));
    }
    match &detail.process {
        None => table.field("Process", "none; the next message starts one"),
        Some(process) => {
            let pid = process
                .pid
                .map_or_else(String::new, |pid| format!(", pid {pid}"));
            let (state, look) = state_words(process);
            table.field("Process", Cell::styled(format!("{state}{pid}"), look));
            if let Some(detail) = &process.detail {
                table.field("", Cell::styled(detail, style::FAINT));
            }
        }
    }
    for (name, state) in &detail.extensions {
        table.field("Extension", format!("{name} {state}"));
    }
    for rewind in &detail.rewinds {
        table.field("Rewound", rewind::rewind_in_words(rewind));
    }
    table.field("Files", detail.directory.to_string_lossy());
    table.field("Works in", detail.work_dir.to_string_lossy());
    table
}

async fn history(args: InstanceHistoryArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let id = workspace.workspace_id;
    if args.turns {
        let turns = turns::read(&mut client, &id, &key, args.limit).await?;
        context.output.object(schemas::INSTANCE_TURNS, &turns)?;
        let rendered = turns.render(text::now(), context.output.canvas());
        context.output.data(rendered)?;
        turns.warn(context);
        return Ok(());
    }
    let transcript = transcript::read(&mut client, &id, &key, args.limit).await?;
    let output = context.output;
    output.object(schemas::INSTANCE_HISTORY, &transcript)?;
    output.data(transcript.render(output.out))
}

async fn prune(args: &InstancePruneArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let look = PruneInstances {
        workspace_id: workspace.workspace_id,
        older_than_ms: args.older_than,
        dry_run: true,
    };
    let mut pruned = client.query(look.clone()).await?;
    let output = context.output;
    if !args.dry_run && !pruned.instances.is_empty() {
        if !args.yes {
            output.data(prune_table(&pruned.instances).render(output.canvas()))?;
            let count = text::count(pruned.instances.len(), "conversation");
            let question = format!("Delete {count} with all messages?");
            confirm(context, &question, &prune_command(args))?;
        }
        let dry_run = false;
        pruned = client.change(PruneInstances { dry_run, ..look }).await?;
    }
    output.object(schemas::INSTANCE_PRUNE, &pruned)?;
    if pruned.instances.is_empty() {
        return output.data("No conversation is old enough.");
    }
    if args.dry_run || args.yes {
        output.data(prune_table(&pruned.instances).render(output.canvas()))?;
    }
    let count = text::count(pruned.instances.len(), "conversation");
    let what = if pruned.deleted {
        "Deleted"
    } else {
        "Would delete"
    };
    output.data(format!("{what} {count}."))
}

fn prune_command(args: &InstancePruneArgs) -> String {
    let age = args
        .older_than
        .map(|ms| format!(" --older-than {}s", ms / 1_000));
    format!("conversation prune{} --yes", age.unwrap_or_default())
}

fn prune_table(due: &[Prunable]) -> Table {
    let mut table = Table::new([
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut(),
        Column::new("UPDATED").below(1, "updated"),
        Column::new("DUE SINCE").below(2, "due since"),
    ]);
    for prunable in due {
        table.row([
            Cell::from(&prunable.instance_key),
            Cell::from(&prunable.agent_name),
            text::clock(prunable.updated_at).into(),
            text::clock(prunable.due_at).into(),
        ]);
    }
    table
}

async fn delete(args: InstanceDeleteArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = text::one_line(args.key.as_str());
    if !args.yes {
        let question = format!("Delete the conversation {key} with all its messages?");
        let argument = shell_quoted(args.key.as_str()).unwrap_or_else(|| "KEY".to_owned());
        let command = format!("conversation delete {argument} --yes");
        confirm(context, &question, &command)?;
    }
    let delete = DeleteInstance {
        workspace_id: workspace.workspace_id,
        instance_key: args.key.clone(),
    };
    let deleted = client.change(delete).await?;
    let output = context.output;
    output.object(
        schemas::INSTANCE_DELETE,
        &json!({ "instanceKey": args.key, "existed": deleted.existed }),
    )?;
    if deleted.existed {
        output.data(format!("Deleted conversation {key}"))
    } else {
        output.data(format!("Conversation {key} does not exist"))
    }
}
