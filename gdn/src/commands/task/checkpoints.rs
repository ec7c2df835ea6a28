//! `gdn task checkpoint`, `checkpoints` and `restore`.

use clap::Args;
use goondan_protocol::control::{
    CheckpointInfo, CheckpointTask, DrillTask, ListCheckpoints, RestoreTask, TaskRestored,
};
use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::TaskAtArgs;
use crate::commands::checkpoints::{self, CheckpointRow, push_files, push_skipped};
use crate::commands::confirm::confirm;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style::Palette;
use crate::output::table::Table;
use crate::output::text;
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct TaskCheckpointArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Name, which exempts it from removal by age
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskRestoreArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Checkpoint, by id or name [default: the newest intact one not created by a restore]
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: Option<String>,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn make(args: TaskCheckpointArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let checkpoint = CheckpointTask {
        workspace_id: workspace.workspace_id,
        task_id: args.at.task,
        name: args.name,
    };
    let made = client.change(checkpoint).await?;
    let output = context.output;
    output.object(schemas::TASK_CHECKPOINT, &made)?;
    let files = made.files.map(|files| text::count(files, "file"));
    let files = files.map_or_else(String::new, |files| format!("{files}, "));
    let size = text::bytes(made.snapshot_size);
    output.data(format!("{}: {files}{size}", made.checkpoint_id))
}

pub(super) async fn list(args: TaskAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let list = ListCheckpoints {
        workspace_id: workspace.workspace_id,
        task_id: args.task,
        after: None,
        limit: None,
    };
    let checkpoints = client.all(list).await?;
    let output = context.output;
    output.object(
        schemas::TASK_CHECKPOINTS,
        &json!({ "checkpoints": checkpoints }),
    )?;
    if checkpoints.is_empty() {
        return output.data("No checkpoints yet.");
    }
    output.data(table_of(&checkpoints, text::now()).render(output.canvas()))
}

fn table_of(checkpoints: &[CheckpointInfo], now: Timestamp) -> Table {
    let listed = checkpoints.iter().map(|one| CheckpointRow {
        id: &one.checkpoint_id,
        why: why_of(&one.kind),
        amount: one.phase.to_string(),
        size_bytes: one.snapshot_size,
        made_at: one.created_at,
        name: one.name.as_deref(),
        damaged: one.damaged.as_deref(),
    });
    checkpoints::table_of(("PHASE", "phase"), listed.collect(), now)
}

/// Reason for a checkpoint, as text.
fn why_of(kind: &str) -> String {
    match kind {
        "pre_restore" => "before a restore".to_owned(),
        kind => kind.replace('_', " "),
    }
}

pub(super) async fn restore(args: TaskRestoreArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let task = args.at.task;
    let restore = |dry_run, checkpoint_id| RestoreTask {
        workspace_id: workspace.workspace_id.clone(),
        task_id: task.clone(),
        checkpoint_id,
        dry_run,
    };
    let output = context.output;
    let mut wanted = args.checkpoint;
    if !args.yes || args.dry_run {
        let would = client.change(restore(true, wanted.clone())).await?;
        if args.dry_run {
            output.object(schemas::TASK_RESTORE, &would)?;
            return output.data(changes_of(&would, output.out));
        }
        output.note(changes_of(&would, output.err));
        let id = &would.checkpoint_id;
        let question = format!("Roll the work area of {task} back to {id}?");
        let command = format!("task restore {task} {id} --yes");
        confirm(context, &question, &command)?;
        // Restore exactly the checkpoint that was shown.
        wanted = Some(would.checkpoint_id);
    }
    let restored = client.change(restore(false, wanted)).await?;
    output.object(schemas::TASK_RESTORE, &restored)?;
    output.data(changes_of(&restored, output.out))?;
    if let Some(kept) = &restored.pre_restore {
        let back = context.command(&format!("task restore {task} {kept}"));
        output.note(format!("To undo this: {back}"));
    }
    Ok(())
}

pub(super) async fn drill(args: TaskAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let task = args.task;
    let drill = DrillTask {
        workspace_id: workspace.workspace_id,
        task_id: task.clone(),
    };
    let drill = client.change(drill).await?;
    let output = context.output;
    output.object(schemas::TASK_DRILL, &drill)?;
    let id = &drill.checkpoint_id;
    let Some(problem) = &drill.problem else {
        let entries = text::count(drill.entries, "path");
        return output.data(format!("{id} can be restored: {entries} compared"));
    };
    output.data(format!("{id} cannot be restored"))?;
    let message = format!("{id} cannot be restored: {}", text::one_line(problem));
    let make = context.command(&format!("task checkpoint {task}"));
    let hint = format!("create another: `{make}`; a restore falls back to an earlier one");
    Err(Failure::new(Exit::Damaged, message, hint))
}

/// Changes made by a restore, or by its dry run.
fn changes_of(restored: &TaskRestored, palette: Palette) -> String {
    let mut out = format!("{}\n", restored.checkpoint_id);
    for skipped in &restored.skipped {
        let damaged = skipped.damaged.as_deref();
        push_skipped(&mut out, &skipped.checkpoint_id, damaged, palette);
    }
    let files = (&*restored.added, &*restored.changed, &*restored.removed);
    push_files(&mut out, files, palette);
    if restored.added.is_empty() && restored.changed.is_empty() && restored.removed.is_empty() {
        out.push_str("  no differences\n");
    }
    out
}
