//! `gdn task queue …`: the merge queue, in which approved proposals wait to land.

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    ChangeQueue, ListQueue, QueueChange, QueueEntry, QueueOutcome, QueueOutcomeKind, QueuePlace,
    QueueStage, QueueView,
};
use goondan_protocol::task::TaskId;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Outcomes that are shown, the newest.
const OUTCOMES_SHOWN: usize = 10;

/// Land approved proposals of many tasks in order, each proved first
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the proposals in the queue, and the latest outcomes
    #[command(after_help = "\
Examples:
  gdn task queue list
  gdn task queue list --json | jq -r '.entries[] | select(.held) | .taskId'")]
    List,
    /// Approve the proposal of a task for the queue
    #[command(after_help = "\
Examples:
  gdn task queue add shop
  gdn task queue add hotfix --priority 10      before all with a lower priority

The queue merges the proposal with the current files of the project, or of the branch that `source` of its agent names,
and runs `verify` there. If that passes and the files are still the same, the proposal lands and the task is completed.
Otherwise the task goes back to its agent, with the conflicts or the output of `verify`, on the current files.
With `deliver: pull-request`, it lands as a pull request, which you or the service merge later.")]
    Add(QueueAddArgs),
    /// Keep a proposal in the queue without landing it
    #[command(after_help = "\
Examples:
  gdn task queue hold shop
  gdn task queue hold shop 'until the release is out'")]
    Hold(QueueReasonArgs),
    /// End a hold
    #[command(after_help = "\
Examples:
  gdn task queue release shop")]
    Release(QueueTaskArgs),
    /// Move a proposal in the queue, or change its priority
    #[command(after_help = "\
Examples:
  gdn task queue move shop --first
  gdn task queue move shop --before parser
  gdn task queue move shop --priority 5")]
    Move(QueueMoveArgs),
    /// Remove a proposal from the queue; its task waits for a review again
    #[command(after_help = "\
Examples:
  gdn task queue drop shop
  gdn task queue drop shop 'superseded by parser'")]
    Drop(QueueReasonArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QueueTaskArgs {
    /// The task
    #[arg(value_name = "TASK")]
    task: TaskId,
}

#[derive(Debug, Args)]
pub(crate) struct QueueAddArgs {
    #[command(flatten)]
    at: QueueTaskArgs,
    /// Its priority; proposals with a higher one are tried first
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    priority: i32,
}

#[derive(Debug, Args)]
pub(crate) struct QueueReasonArgs {
    #[command(flatten)]
    at: QueueTaskArgs,
    /// The reason, which the list shows
    #[arg(
        value_name = "REASON",
        default_value = "by a person",
        hide_default_value = true
    )]
    why: String,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").required(true))]
pub(crate) struct QueueMoveArgs {
    #[command(flatten)]
    at: QueueTaskArgs,
    /// Before all others
    #[arg(long, group = "place")]
    first: bool,
    /// Behind all others
    #[arg(long, group = "place")]
    last: bool,
    /// Before the proposal of this task
    #[arg(long, value_name = "TASK", group = "place")]
    before: Option<TaskId>,
    /// Behind the others with this priority
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        group = "place"
    )]
    priority: Option<i32>,
}

impl QueueMoveArgs {
    fn change(&self) -> QueueChange {
        let to = match (&self.before, self.priority) {
            (_, Some(priority)) => return QueueChange::Prioritize { priority },
            (Some(before), None) => QueuePlace::Before(before.clone()),
            (None, None) if self.first => QueuePlace::First,
            (None, None) => QueuePlace::Last,
        };
        QueueChange::Move { to }
    }
}

pub(super) async fn run(command: QueueCommand, context: &Context) -> Result<(), Failure> {
    let (task_id, change) = match command {
        QueueCommand::List => {
            let (mut client, workspace) = context.open().await?;
            let workspace_id = workspace.workspace_id;
            let view = client.query(ListQueue { workspace_id }).await?;
            return print_view(&view, context);
        }
        QueueCommand::Add(QueueAddArgs { at, priority }) => {
            (at.task, QueueChange::Enter { priority })
        }
        QueueCommand::Hold(QueueReasonArgs { at, why }) => (at.task, QueueChange::Hold { why }),
        QueueCommand::Release(at) => (at.task, QueueChange::Release {}),
        QueueCommand::Move(args) => {
            let change = args.change();
            (args.at.task, change)
        }
        QueueCommand::Drop(QueueReasonArgs { at, why }) => (at.task, QueueChange::Drop { why }),
    };
    let (mut client, workspace) = context.open().await?;
    let change = ChangeQueue {
        workspace_id: workspace.workspace_id,
        task_id,
        change,
    };
    let view = client.change(change).await?;
    print_view(&view, context)
}

fn print_view(view: &QueueView, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::TASK_QUEUE, view)?;
    if view.entries.is_empty() {
        output.data("The merge queue is empty.")?;
    } else {
        output.data(table_of(&view.entries).render(output.canvas()))?;
    }
    let beyond = view.outcomes.len().saturating_sub(OUTCOMES_SHOWN);
    for outcome in view.outcomes.iter().skip(beyond) {
        output.data(line_of(outcome))?;
    }
    Ok(())
}

fn table_of(entries: &[QueueEntry]) -> Table {
    let titles = [
        Column::new("TASK").cut(),
        Column::new("STAGE"),
        Column::new("PRIORITY").below(2, "priority"),
        Column::new("TITLE").below(1, ""),
    ];
    let mut table = Table::new(titles);
    for entry in entries {
        let style = match entry.stage {
            QueueStage::Waiting => style::FAINT,
            QueueStage::Held => style::WARN,
            QueueStage::Rebasing | QueueStage::Proving | QueueStage::Landing => style::GOOD,
        };
        let stage = match &entry.held {
            Some(why) => format!("held: {}", text::one_line(why)),
            None => entry.stage.as_str().to_owned(),
        };
        table.row([
            Cell::from(entry.task_id.to_string()),
            Cell::styled(stage, style),
            Cell::from(entry.priority.to_string()),
            Cell::from(title_of(entry)),
        ]);
    }
    table
}

fn title_of(entry: &QueueEntry) -> String {
    let title = text::one_line(entry.title.as_deref().unwrap_or_default());
    match &entry.into {
        Some(into) => format!("{title} (into {})", text::one_line(into)),
        None => title,
    }
}

fn line_of(outcome: &QueueOutcome) -> String {
    let task = &outcome.task_id;
    let kind = outcome.kind.as_str();
    let detail = outcome.detail.as_deref().unwrap_or_default();
    // The end of a log says most.
    let detail = match outcome.kind {
        QueueOutcomeKind::Unproved => detail.lines().last().unwrap_or_default(),
        _ => detail.lines().next().unwrap_or_default(),
    };
    match detail.is_empty() {
        true => format!("{task}: {kind}"),
        false => format!("{task}: {kind}: {}", text::one_line(detail)),
    }
}
