//! `gdn event …`: queued, delayed and parked events.

mod inject;
mod queue_control;

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    CancelEvent, DropEvent, EventInfo, EventStanding, ListEvents, RetryEvent,
};
use goondan_protocol::event::EventSource;
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};
use goondan_protocol::shell::shell_quoted;
use serde_json::json;

use self::inject::EventInjectArgs;
use self::queue_control::{EventMoveArgs, EventPauseArgs, EventResumeArgs};
use super::confirm::confirm;
use super::schedule::ScheduleCommand;
use super::trace::TraceArgs;
use super::{names, schedule, trace};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, NameKind};
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// List and control the queued events of agents, and schedule new ones
#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// Send a message to an agent at a later time
    #[command(after_help = "\
Examples:
  gdn event inject --at 09:30 \"Summarize the open pull requests\"
  gdn event inject --at 2h --conversation customer-7 \"Ask whether it works now\"
  gdn event inject --cron '0 8 * * MON-FRI' --time-zone Europe/Berlin \"Write the report\"

It survives restarts; if nothing runs at that time, it follows when the daemon runs again.")]
    Inject(EventInjectArgs),
    /// List the events that are queued, in progress, paused or parked
    #[command(after_help = "\
Examples:
  gdn event list
  gdn event list --parked --json | jq -r '.events[].eventId'

An event is parked after three processes crashed in its turn; its conversation continues without it.")]
    List(EventListArgs),
    /// Retry a parked event; its turn starts over
    #[command(after_help = "\
Examples:
  gdn event retry 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6
  gdn event retry --all")]
    Retry(EventRetryArgs),
    /// Drop a queued, paused or parked event without a reply
    #[command(after_help = "\
Examples:
  gdn event drop 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6 --yes

To end an event whose turn has started, use `gdn conversation cancel`.")]
    Drop(EventDropArgs),
    /// Pause queued events until they are resumed; other events continue
    #[command(after_help = "\
Examples:
  gdn event pause 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6
  gdn event pause --all --conversation customer-7    all waiting events of a conversation")]
    Pause(EventPauseArgs),
    /// Resume paused events at their place in the queue
    #[command(after_help = "\
Examples:
  gdn event resume 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6
  gdn event resume --all")]
    Resume(EventResumeArgs),
    /// Move a queued event within its conversation
    #[command(after_help = "\
Examples:
  gdn event move 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6 --first
  gdn event move urgent --before 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6

No event can move before the one whose turn has started.")]
    Move(EventMoveArgs),
    Trace(TraceArgs),
    #[command(subcommand)]
    Schedule(ScheduleCommand),
}

#[derive(Debug, Args)]
pub(crate) struct EventListArgs {
    /// Only events of this conversation
    #[arg(long = "conversation", alias = "instance", value_name = "KEY")]
    instance: Option<InstanceKey>,
    /// Only parked events
    #[arg(long)]
    parked: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventRetryArgs {
    /// The event
    #[arg(value_name = "ID", required_unless_present = "all")]
    event: Option<EventId>,
    /// Every parked event of the project
    #[arg(long, conflicts_with = "event")]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventDropArgs {
    /// The event
    #[arg(value_name = "ID")]
    event: EventId,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(command: EventCommand, context: &Context) -> Result<(), Failure> {
    match command {
        EventCommand::Inject(args) => inject::run(args, context).await,
        EventCommand::Trace(args) => trace::run(args, context).await,
        EventCommand::Schedule(args) => schedule::run(args, context).await,
        EventCommand::List(args) => list(args, context).await,
        EventCommand::Retry(args) => retry(args, context).await,
        EventCommand::Drop(args) => give_up(args, context).await,
        EventCommand::Pause(args) => queue_control::pause(args, context).await,
        EventCommand::Resume(args) => queue_control::resume(args, context).await,
        EventCommand::Move(args) => queue_control::move_to(args, context).await,
    }
}

async fn list(args: EventListArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let (key, id) = (args.instance.as_ref(), &workspace.workspace_id);
    names::check_conversation(key, &mut client, id, context).await?;
    let list = ListEvents {
        workspace_id: workspace.workspace_id,
        instance_key: args.instance,
        parked: args.parked,
        after: None,
        limit: None,
    };
    let events = client.all(list).await?;
    let output = context.output;
    output.object(schemas::EVENT_LIST, &json!({ "events": events }))?;
    if events.is_empty() {
        let text = if args.parked {
            "No parked events."
        } else {
            "No waiting events."
        };
        return output.data(text);
    }
    output.data(table_of(&events).render(output.canvas()))?;
    // Parked events, and parts of joins.
    for event in &events {
        if let Some(reason) = &event.reason {
            output.note(format!("{}: {}", event.event_id, text::one_line(reason)));
        }
    }
    Ok(())
}

fn table_of(events: &[EventInfo]) -> Table {
    let titles = [
        Column::new("EVENT"),
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut().below(1, "agent"),
        Column::new("STATE"),
        Column::new("CRASHES").below(2, "crashes"),
        Column::new("SINCE").below(3, "since"),
        Column::new("FROM").cut().below(4, "from"),
        Column::new("INPUT").below(5, ""),
    ];
    let mut table = Table::new(titles);
    let now = text::now();
    for event in events {
        let look = match event.standing {
            EventStanding::Parked => style::BAD,
            EventStanding::Paused => style::WARN,
            EventStanding::Processing => style::GOOD,
            EventStanding::Waiting | EventStanding::Joining => style::FAINT,
        };
        table.row([
            Cell::from(&event.event_id),
            Cell::from(&event.instance_key),
            Cell::from(&event.agent_name),
            Cell::styled(event.standing.as_str(), look),
            event.crashes.to_string().into(),
            format!("{} ago", text::age(event.since, now)).into(),
            sender(&event.source).into(),
            text::one_line(&event.input).into(),
        ]);
    }
    table
}

/// Sender of an event: a connection, or an agent's conversation.
fn sender(source: &EventSource) -> String {
    match source {
        EventSource::Connector { name } => name.to_string(),
        EventSource::Agent { instance_key, .. } => format!("agent {instance_key}"),
    }
}

async fn retry(args: EventRetryArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let chosen = match args.event {
        Some(event) => vec![find(&mut client, &workspace_id, &event, context).await?],
        None => standing(&mut client, &workspace_id, EventStanding::Parked).await?,
    };
    for event in &chosen {
        let retry = RetryEvent {
            workspace_id: workspace_id.clone(),
            instance_key: event.instance_key.clone(),
            event_id: event.event_id.clone(),
        };
        client.change(retry).await?;
    }
    tell(&chosen, schemas::EVENT_RETRY, "is queued again", context)?;
    if chosen.is_empty() {
        context.output.data("No parked events.")?;
    }
    Ok(())
}

async fn give_up(args: EventDropArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let event = find(&mut client, &workspace_id, &args.event, context).await?;
    if event.standing == EventStanding::Processing {
        return Err(begun(&event, context));
    }
    if !args.yes {
        let question = format!("Drop event {} without an answer?", event.event_id);
        let command = format!("event drop {} --yes", event.event_id);
        confirm(context, &question, &command)?;
    }
    let (instance_key, event_id) = (event.instance_key, event.event_id);
    if event.standing == EventStanding::Parked {
        let drop = DropEvent {
            workspace_id,
            instance_key,
            event_id: event_id.clone(),
        };
        client.change(drop).await?;
    } else {
        let cancel = CancelEvent {
            workspace_id,
            instance_key,
            event_id: Some(event_id.clone()),
        };
        client.change(cancel).await?;
    }
    let output = context.output;
    output.object(schemas::EVENT_DROP, &json!({ "eventId": event_id }))?;
    output.data(format!("Dropped event {event_id}"))
}

/// Prints the outcome for events: one line each, or their ids.
fn tell(
    events: &[EventInfo],
    schema: &'static str,
    what: &str,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    let ids: Vec<&EventId> = events.iter().map(|event| &event.event_id).collect();
    output.object(schema, &json!({ "eventIds": ids }))?;
    for event in events {
        output.data(format!("Event {} {what}", event.event_id))?;
    }
    Ok(())
}

/// Pending events of a project.
async fn all(client: &mut Client, id: &WorkspaceId) -> Result<Vec<EventInfo>, Failure> {
    let list = ListEvents {
        workspace_id: id.clone(),
        instance_key: None,
        parked: false,
        after: None,
        limit: None,
    };
    Ok(client.all(list).await?)
}

/// Pending events in this state.
async fn standing(
    client: &mut Client,
    id: &WorkspaceId,
    standing: EventStanding,
) -> Result<Vec<EventInfo>, Failure> {
    let mut found = all(client, id).await?;
    found.retain(|event| event.standing == standing);
    Ok(found)
}

/// Finds the event with this id in any conversation.
async fn find(
    client: &mut Client,
    id: &WorkspaceId,
    wanted: &EventId,
    context: &Context,
) -> Result<EventInfo, Failure> {
    let mut found = all(client, id).await?.into_iter();
    let found = found.find(|event| event.event_id == *wanted);
    found.ok_or_else(|| {
        let hint = context.command("event list");
        Failure::new(
            Exit::NotFound,
            format!("no event `{wanted}` is waiting or parked"),
            format!("list the events: `{hint}`"),
        )
        .of_unknown(NameKind::Event)
    })
}

/// Failure for an event whose turn has begun.
fn begun(event: &EventInfo, context: &Context) -> Failure {
    let key = shell_quoted(event.instance_key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    let hint = context.command(&format!(
        "conversation cancel --conversation {key} {}",
        event.event_id
    ));
    Failure::new(
        Exit::Conflict,
        format!("the turn of event `{}` has started", event.event_id),
        format!("cancel it: `{hint}`"),
    )
}
