//! `gdn instance …`: conversations.

use goondan_protocol::control::{
    DeleteInstance, InstanceDetail, InstanceSummary, ListInstances, Prunable, PruneInstances,
    ShowInstance,
};
use serde::Serialize;
use serde_json::json;

use super::confirm::confirm;
use super::ps::table::state_words;
use super::{archive, transcript, turns};
use crate::cli::{
    Instance, InstanceDelete, InstanceHistory, InstanceList, InstancePrune, InstanceShow,
};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text::{self, shell_quoted};
use crate::schemas;

pub(super) async fn run(command: Instance, context: &Context) -> Result<(), Failure> {
    match command {
        Instance::List(args) => list(&args, context).await,
        Instance::Show(args) => show(args, context).await,
        Instance::History(args) => history(args, context).await,
        Instance::Export(args) => archive::export(args, context).await,
        Instance::Import(args) => archive::import(args, context).await,
        Instance::Prune(args) => prune(&args, context).await,
        Instance::Delete(args) => delete(args, context).await,
    }
}

/// What `gdn instance list --json` prints: borrowed, since there may be very many.
#[derive(Serialize)]
struct Listed<'a> {
    instances: &'a [InstanceSummary],
}

async fn list(args: &InstanceList, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace_id) = context.open_scope(args.all).await?;
    let instances = client.query(ListInstances { workspace_id }).await?;
    let output = context.output;
    let instances = &instances;
    output.object(schemas::INSTANCE_LIST, &Listed { instances })?;
    if instances.is_empty() {
        let hint = context.command("send \"Hello\"");
        return output.data(format!(
            "No conversations. The first message begins one: {hint}"
        ));
    }
    output.data(list_table(instances, args.all).render(output.canvas()))
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

async fn show(args: InstanceShow, context: &Context) -> Result<(), Failure> {
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
    table.field("Files", detail.directory.to_string_lossy());
    table.field("Works in", detail.work_dir.to_string_lossy());
    table
}

async fn history(args: InstanceHistory, context: &Context) -> Result<(), Failure> {
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

async fn prune(args: &InstancePrune, context: &Context) -> Result<(), Failure> {
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

fn prune_command(args: &InstancePrune) -> String {
    let age = args
        .older_than
        .map(|ms| format!(" --older-than {}s", ms / 1_000));
    format!("instance prune{} --yes", age.unwrap_or_default())
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

async fn delete(args: InstanceDelete, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = text::one_line(args.key.as_str());
    if !args.yes {
        let question = format!("Delete the conversation {key} with all its messages?");
        let argument = shell_quoted(args.key.as_str()).unwrap_or_else(|| "KEY".to_owned());
        let command = format!("instance delete {argument} --yes");
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
        output.data(format!("There was no conversation {key}"))
    }
}
