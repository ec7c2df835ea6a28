//! `gdn event …`: what agents are still to do, and what was parked.

use clap::{Args, Subcommand};
use goondan_protocol::control::{DropEvent, EventInfo, EventStanding, ListEvents, RetryEvent};
use goondan_protocol::event::EventSource;
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};
use serde_json::json;

use super::confirm::confirm;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// List what waits for an agent, and decide about what was parked
#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// List the events that wait, are worked on or are parked
    #[command(after_help = "\
Examples:
  gdn event list
  gdn event list --parked --json | jq -r '.events[].eventId'

An event is parked when three processes crashed in its turn; its conversation goes on without it.")]
    List(EventListArgs),
    /// Let a parked event wait again; its turn begins from the start
    #[command(after_help = "\
Examples:
  gdn event retry 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6
  gdn event retry --all")]
    Retry(EventRetryArgs),
    /// Give a parked event up, unanswered
    #[command(after_help = "\
Examples:
  gdn event drop 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6 --yes")]
    Drop(EventDropArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EventListArgs {
    /// Only this conversation's
    #[arg(long, value_name = "KEY")]
    instance: Option<InstanceKey>,
    /// Only those that are parked
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
    /// Ask nothing
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(command: EventCommand, context: &Context) -> Result<(), Failure> {
    match command {
        EventCommand::List(args) => list(args, context).await,
        EventCommand::Retry(args) => retry(args, context).await,
        EventCommand::Drop(args) => drop_parked(args, context).await,
    }
}

async fn list(args: EventListArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let list = ListEvents {
        workspace_id: workspace.workspace_id,
        instance_key: args.instance,
        parked: args.parked,
    };
    let events = client.query(list).await?;
    let output = context.output;
    output.object(schemas::EVENT_LIST, &json!({ "events": events }))?;
    if events.is_empty() {
        let text = if args.parked {
            "No event is parked."
        } else {
            "No event waits."
        };
        return output.data(text);
    }
    output.data(table_of(&events).render(output.canvas()))?;
    for parked in events
        .iter()
        .filter(|event| event.standing == EventStanding::Parked)
    {
        let reason = parked.reason.as_deref().unwrap_or_default();
        output.note(format!("{}: {}", parked.event_id, text::one_line(reason)));
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
            EventStanding::Processing => style::GOOD,
            EventStanding::Waiting => style::FAINT,
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

/// Who sent an event: a connection, or an agent's conversation.
fn sender(source: &EventSource) -> String {
    match source {
        EventSource::Connector { name } => name.to_string(),
        EventSource::Agent { instance_key, .. } => format!("agent {instance_key}"),
    }
}

async fn retry(args: EventRetryArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let chosen = if args.all {
        parked(&mut client, &workspace_id).await?
    } else {
        vec![find(&mut client, &workspace_id, args.event, context).await?]
    };
    for event in &chosen {
        let retry = RetryEvent {
            workspace_id: workspace_id.clone(),
            instance_key: event.instance_key.clone(),
            event_id: event.event_id.clone(),
        };
        client.change(retry).await?;
    }
    let output = context.output;
    let ids: Vec<&EventId> = chosen.iter().map(|event| &event.event_id).collect();
    output.object(schemas::EVENT_RETRY, &json!({ "eventIds": ids }))?;
    for event in &chosen {
        output.data(format!("Event {} waits again", event.event_id))?;
    }
    if chosen.is_empty() {
        output.data("No event is parked.")?;
    }
    Ok(())
}

async fn drop_parked(args: EventDropArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let event = find(&mut client, &workspace_id, Some(args.event), context).await?;
    if !args.yes {
        let question = format!("Give up event {}, unanswered?", event.event_id);
        let command = format!("event drop {} --yes", event.event_id);
        confirm(context, &question, &command)?;
    }
    let drop = DropEvent {
        workspace_id,
        instance_key: event.instance_key,
        event_id: event.event_id.clone(),
    };
    client.change(drop).await?;
    let output = context.output;
    output.object(schemas::EVENT_DROP, &json!({ "eventId": event.event_id }))?;
    output.data(format!("Gave up event {}", event.event_id))
}

async fn parked(client: &mut Client, id: &WorkspaceId) -> Result<Vec<EventInfo>, Failure> {
    let list = ListEvents {
        workspace_id: id.clone(),
        instance_key: None,
        parked: true,
    };
    Ok(client.query(list).await?)
}

/// The parked event of that id, in whichever conversation it is.
async fn find(
    client: &mut Client,
    id: &WorkspaceId,
    wanted: Option<EventId>,
    context: &Context,
) -> Result<EventInfo, Failure> {
    let found = parked(client, id).await?;
    let is_wanted = |event: &EventInfo| Some(&event.event_id) == wanted.as_ref();
    found.into_iter().find(is_wanted).ok_or_else(|| {
        let name = wanted.map(|id| id.to_string()).unwrap_or_default();
        let hint = context.command("event list");
        Failure::new(
            Exit::NotFound,
            format!("no event `{name}` is parked"),
            format!("see what is: `{hint}`"),
        )
    })
}
