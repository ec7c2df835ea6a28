//! `gdn conversation cancel`: cancels a turn in progress.

use clap::Args;
use goondan_protocol::control::{CancelEvent, EventInfo, EventStanding, ListEvents};
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};

use super::names;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, NameKind};
use crate::output::text;
use crate::schemas;

/// Cancel a turn in progress or a queued event; the conversation is kept
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn conversation cancel                             the only turn that is in progress
  gdn conversation cancel --conversation ann  the turn in this conversation
  gdn conversation cancel 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6  the turn of this event, or the event if it waits

Stops the agent's tools and drops model calls. Completed work of the turn stays in the conversation;
a tool call without a result gets the result that it was canceled.")]
pub(crate) struct CancelArgs {
    /// The event [default: the event of the turn in progress]
    #[arg(value_name = "EVENT")]
    event: Option<EventId>,
    /// The conversation; optional if only one turn is in progress
    #[arg(long = "conversation", alias = "instance", value_name = "KEY")]
    instance: Option<InstanceKey>,
}

pub(crate) async fn run(args: CancelArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let found = find(&mut client, &workspace.workspace_id, &args, context).await?;
    cancel(&mut client, workspace.workspace_id, found, context).await
}

/// Cancels one event in any state and prints the outcome.
pub(super) async fn cancel_event(
    client: &mut Client,
    workspace_id: WorkspaceId,
    event: EventId,
    context: &Context,
) -> Result<(), Failure> {
    let args = CancelArgs {
        event: Some(event),
        instance: None,
    };
    let found = find(client, &workspace_id, &args, context).await?;
    cancel(client, workspace_id, found, context).await
}

async fn cancel(
    client: &mut Client,
    workspace_id: WorkspaceId,
    found: EventInfo,
    context: &Context,
) -> Result<(), Failure> {
    let cancel = CancelEvent {
        workspace_id,
        instance_key: found.instance_key.clone(),
        event_id: Some(found.event_id),
    };
    let cancelled = client.change(cancel).await?;
    let output = context.output;
    output.object(schemas::CANCEL, &cancelled)?;
    let key = text::one_line(found.instance_key.as_str());
    match &cancelled.turn_id {
        Some(_) => output.data(format!("Canceled the turn of {key}")),
        None => output.data(format!(
            "Canceled event {}, which waited in {key}",
            cancelled.event_id
        )),
    }
}

/// Resolves the event to cancel.
async fn find(
    client: &mut Client,
    workspace_id: &WorkspaceId,
    args: &CancelArgs,
    context: &Context,
) -> Result<EventInfo, Failure> {
    names::check_conversation(args.instance.as_ref(), client, workspace_id, context).await?;
    let list = ListEvents {
        workspace_id: workspace_id.clone(),
        instance_key: args.instance.clone(),
        parked: false,
        after: None,
        limit: None,
    };
    let events = client.all(list).await?.into_iter();
    let mut found: Vec<EventInfo> = events
        .filter(|event| match &args.event {
            Some(id) => event.event_id == *id && event.standing != EventStanding::Parked,
            None => event.standing == EventStanding::Processing,
        })
        .collect();
    let list = context.command("event list");
    match (found.len(), &args.event) {
        (0, None) => Err(Failure::new(
            Exit::NotFound,
            "no turn is in progress",
            format!("list waiting events: `{list}`"),
        )),
        (0, Some(id)) => Err(Failure::new(
            Exit::NotFound,
            format!("no event `{id}` is waiting or in progress"),
            format!("list the events: `{list}`"),
        )
        .of_unknown(NameKind::Event)),
        (1, _) => Ok(found.remove(0)),
        (several, _) => Err(Failure::new(
            Exit::Usage,
            format!("{several} turns are in progress"),
            format!("select one with `--conversation KEY`; list them: `{list}`"),
        )),
    }
}
