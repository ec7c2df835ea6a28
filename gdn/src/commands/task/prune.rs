//! `gdn task prune`: deletes tasks that ended long ago (`TASK-10`).

use clap::Args;
use goondan_protocol::control::{PruneTasks, PrunedTask};

use crate::commands::confirm::confirm;
use crate::commands::instance::parse_age_ms;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct TaskPruneArgs {
    /// Tasks that ended this long ago, such as 30d, 12h or 90m, instead of by the swarm's policy
    #[arg(long, value_name = "AGE", value_parser = parse_age_ms)]
    older_than: Option<u64>,
    /// Do not create backups
    #[arg(long)]
    no_backup: bool,
    /// Only show the tasks
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn run(args: TaskPruneArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let look = PruneTasks {
        workspace_id: workspace.workspace_id,
        older_than_ms: args.older_than,
        no_backup: args.no_backup,
        dry_run: true,
    };
    let mut pruned = client.query(look.clone()).await?;
    let output = context.output;
    if !args.dry_run && !pruned.tasks.is_empty() {
        if !args.yes {
            output.note(table_of(&pruned.tasks).render(output.canvas()));
            let count = text::count(pruned.tasks.len(), "task");
            let how = if args.no_backup {
                " without backups"
            } else {
                ""
            };
            let question = format!("Remove {count} with their work areas{how}?");
            confirm(context, &question, &command_of(&args))?;
        }
        let dry_run = false;
        pruned = client.change(PruneTasks { dry_run, ..look }).await?;
    }
    output.object(schemas::TASK_PRUNE, &pruned)?;
    if pruned.tasks.is_empty() {
        return output.data("No task ended long enough ago.");
    }
    output.data(table_of(&pruned.tasks).render(output.canvas()))?;
    let failed = pruned.tasks.iter().filter(|task| task.problem.is_some());
    let failed = failed.count();
    let count = text::count(pruned.tasks.len() - failed, "task");
    let what = if pruned.removed {
        "Removed"
    } else {
        "Would remove"
    };
    output.data(format!("{what} {count}."))?;
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{} could not be removed", text::count(failed, "task"));
    let hint = "fix the problems above, and run the command again";
    Err(Failure::new(Exit::Degraded, message, hint))
}

fn command_of(args: &TaskPruneArgs) -> String {
    let age = args
        .older_than
        .map(|ms| format!(" --older-than {}s", ms / 1_000));
    let no_backup = if args.no_backup { " --no-backup" } else { "" };
    format!("task prune{}{no_backup} --yes", age.unwrap_or_default())
}

fn table_of(tasks: &[PrunedTask]) -> Table {
    let mut table = Table::new([
        Column::new("TASK").cut(),
        Column::new("STATE"),
        Column::new("ENDED").below(1, "ended"),
        Column::new("DUE SINCE").below(2, "due since"),
        Column::new("BACKUP").below(3, ""),
    ]);
    for task in tasks {
        let last = match (&task.problem, &task.backup) {
            (Some(problem), _) => Cell::styled(text::one_line(problem), style::BAD),
            (None, Some(backup)) => text::one_line(&backup.to_string_lossy()).into(),
            (None, None) => String::new().into(),
        };
        table.row([
            Cell::from(&task.task_id),
            task.status.as_str().to_owned().into(),
            text::clock(task.ended_at).into(),
            text::clock(task.due_at).into(),
            last,
        ]);
    }
    table
}
