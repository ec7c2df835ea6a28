//! `gdn event schedule …`: inputs of conversations that become due later.

use clap::{Args, Subcommand};
use goondan_protocol::control::{ListSchedules, MoveSchedule, RemoveSchedule, ScheduleInfo};
use goondan_protocol::ids::{InstanceKey, ScheduleId};
use goondan_protocol::schedule::ScheduleTime;
use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::{later, names};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// List and change the messages that agents get later
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List the schedules of conversations
    #[command(after_help = "\
Examples:
  gdn event schedule list                      this project's
  gdn event schedule list --conversation main
  gdn event schedule list --json | jq -r '.schedules[].scheduleId'

An agent with the tool `schedule` can send itself messages at later times; a person sends them with
`gdn event inject`. They survive restarts; missed ones are caught up.")]
    List(ScheduleListArgs),
    /// Move a message to another time
    #[command(after_help = "\
Examples:
  gdn event schedule move s-00f067aa0ba902b7 --at 18:00
  gdn event schedule move s-00f067aa0ba902b7 --at 2026-12-24T09:00")]
    Move(ScheduleMoveArgs),
    /// Remove a schedule; it sends nothing more
    #[command(after_help = "\
Examples:
  gdn event schedule remove s-00f067aa0ba902b7

The agent is not notified. To end a message that was sent already, use `gdn event drop` or
`gdn conversation cancel`.")]
    Remove(ScheduleRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleListArgs {
    /// Only schedules of this conversation
    #[arg(
        long = "conversation",
        alias = "instance",
        value_name = "KEY",
        conflicts_with = "all"
    )]
    instance: Option<InstanceKey>,
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleMoveArgs {
    /// The schedule, which sends a single message
    #[arg(value_name = "ID")]
    schedule: ScheduleId,
    /// The new time: a time of day, a date and time, an instant, or a delay
    #[arg(long, value_name = "TIME", value_parser = later::parse)]
    at: Timestamp,
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleRemoveArgs {
    /// The schedule
    #[arg(value_name = "ID")]
    schedule: ScheduleId,
}

pub(crate) async fn run(command: ScheduleCommand, context: &Context) -> Result<(), Failure> {
    match command {
        ScheduleCommand::List(args) => list(args, context).await,
        ScheduleCommand::Move(args) => move_to(args, context).await,
        ScheduleCommand::Remove(args) => remove(args, context).await,
    }
}

async fn list(args: ScheduleListArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    if let Some(id) = &workspace_id {
        names::check_conversation(args.instance.as_ref(), &mut client, id, context).await?;
    }
    let list = ListSchedules {
        workspace_id,
        instance_key: args.instance,
        ..ListSchedules::default()
    };
    let mut schedules = client.all(list).await?;
    schedules.sort_by_key(|it| (it.next.is_none(), it.next, it.place()));
    let output = context.output;
    output.object(schemas::SCHEDULE_LIST, &json!({ "schedules": schedules }))?;
    if schedules.is_empty() {
        return output.data("No schedules.");
    }
    output.data(table_of(&schedules, all, text::now()).render(output.canvas()))?;
    for schedule in &schedules {
        if let Some(problem) = &schedule.problem {
            output.note(format!(
                "{}: {}; its messages wait",
                schedule.schedule_id,
                text::one_line(problem)
            ));
        }
    }
    let hint = context.command("event schedule remove ID");
    output.note(format!("Remove one: {hint}"));
    Ok(())
}

fn table_of(schedules: &[ScheduleInfo], all: bool, now: Timestamp) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("SCHEDULE"),
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut().below(1, "agent"),
        Column::new("NEXT").below(4, "next"),
        Column::new("TIMES").cut().below(2, "times"),
        Column::new("CREATED").below(3, "created"),
        Column::new("INPUT").below(5, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for schedule in schedules {
        let next = schedule.next.map_or_else(|| "none".to_owned(), text::clock);
        let look = match &schedule.problem {
            Some(_) => style::WARN,
            None => style::GOOD,
        };
        let cells = [
            Cell::from(&schedule.schedule_id),
            Cell::from(&schedule.instance_key),
            Cell::from(&schedule.agent_name),
            Cell::styled(next, look),
            text::one_line(&times(&schedule.time)).into(),
            format!("{} ago", text::age(schedule.created_at, now)).into(),
            text::one_line(&schedule.input).into(),
        ];
        let workspace = all.then(|| Cell::from(&schedule.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

/// Times of a schedule.
fn times(time: &ScheduleTime) -> String {
    match time {
        ScheduleTime::Once { .. } => "once".to_owned(),
        ScheduleTime::Cron { cron, time_zone } => format!("{cron} {time_zone}"),
    }
}

async fn move_to(args: ScheduleMoveArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let moved = MoveSchedule {
        workspace_id: workspace.workspace_id,
        schedule_id: args.schedule.clone(),
        at: args.at,
    };
    let kept = client.change(moved).await?;
    let output = context.output;
    output.object(schemas::SCHEDULE_MOVE, &kept)?;
    output.data(format!(
        "Moved {} to {}",
        args.schedule,
        text::clock(args.at)
    ))
}

async fn remove(args: ScheduleRemoveArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let remove = RemoveSchedule {
        workspace_id: workspace.workspace_id,
        schedule_id: args.schedule,
    };
    let removed = client.change(remove).await?;
    let output = context.output;
    output.object(schemas::SCHEDULE_REMOVE, &removed)?;
    let schedule = &removed.schedule;
    output.data(format!(
        "Removed {} of conversation {}: {}",
        schedule.schedule_id,
        schedule.instance_key,
        text::one_line(&schedule.input)
    ))
}
