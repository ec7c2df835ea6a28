//! `gdn event pause|resume|move`: control the order of queued events (`STEER-2`).

use clap::Args;
use goondan_protocol::control::{
    EmptyResult, EventInfo, EventPlace, EventStanding, Method, MoveEvent, PauseEvent, ResumeEvent,
};
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};
use serde_json::json;

use super::super::names;
use super::{begun, find, standing, tell};
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct EventPauseArgs {
    #[command(flatten)]
    which: EventSelection,
}

#[derive(Debug, Args)]
pub(crate) struct EventResumeArgs {
    #[command(flatten)]
    which: EventSelection,
}

#[derive(Debug, Args)]
struct EventSelection {
    /// The events
    #[arg(value_name = "ID", required_unless_present = "all")]
    events: Vec<EventId>,
    /// All events of the project in a suitable state
    #[arg(long, conflicts_with = "events")]
    all: bool,
    /// With --all: only events of this conversation
    #[arg(
        long = "conversation",
        alias = "instance",
        value_name = "KEY",
        requires = "all"
    )]
    instance: Option<InstanceKey>,
}

impl EventSelection {
    async fn find(
        &self,
        client: &mut Client,
        id: &WorkspaceId,
        all: EventStanding,
        context: &Context,
    ) -> Result<Vec<EventInfo>, Failure> {
        let mut chosen = Vec::new();
        if self.all {
            names::check_conversation(self.instance.as_ref(), client, id, context).await?;
            chosen = standing(client, id, all).await?;
            let wanted = self.instance.as_ref();
            chosen.retain(|event| wanted.is_none_or(|key| *key == event.instance_key));
        }
        for wanted in &self.events {
            chosen.push(find(client, id, wanted, context).await?);
        }
        Ok(chosen)
    }
}

#[derive(Debug, Args)]
pub(crate) struct EventMoveArgs {
    /// The event
    #[arg(value_name = "ID")]
    event: EventId,
    #[command(flatten)]
    to: QueuePositionArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct QueuePositionArgs {
    /// Before all other queued events
    #[arg(long)]
    first: bool,
    /// After all other queued events
    #[arg(long)]
    last: bool,
    /// Directly before this event
    #[arg(long, value_name = "OTHER")]
    before: Option<EventId>,
}

pub(super) async fn pause(args: EventPauseArgs, context: &Context) -> Result<(), Failure> {
    let change = BulkOperation {
        all: EventStanding::Waiting,
        schema: schemas::EVENT_PAUSE,
        done: "is paused",
        none: "No waiting events.",
    };
    let request = |workspace_id, event: &EventInfo| PauseEvent {
        workspace_id,
        instance_key: event.instance_key.clone(),
        event_id: event.event_id.clone(),
    };
    change.make(&args.which, request, context).await
}

pub(super) async fn resume(args: EventResumeArgs, context: &Context) -> Result<(), Failure> {
    let change = BulkOperation {
        all: EventStanding::Paused,
        schema: schemas::EVENT_RESUME,
        done: "is queued again",
        none: "No paused events.",
    };
    let request = |workspace_id, event: &EventInfo| ResumeEvent {
        workspace_id,
        instance_key: event.instance_key.clone(),
        event_id: event.event_id.clone(),
    };
    change.make(&args.which, request, context).await
}

/// Change applied to several events.
struct BulkOperation {
    /// State of the events that `--all` selects.
    all: EventStanding,
    schema: &'static str,
    /// Verb printed for each event.
    done: &'static str,
    /// Message if there is no such event.
    none: &'static str,
}

impl BulkOperation {
    async fn make<M: Method<Output = EmptyResult>>(
        self,
        which: &EventSelection,
        request: impl Fn(WorkspaceId, &EventInfo) -> M,
        context: &Context,
    ) -> Result<(), Failure> {
        let (mut client, workspace) = context.open().await?;
        let id = &workspace.workspace_id;
        let chosen = which.find(&mut client, id, self.all, context).await?;
        for event in &chosen {
            client.change(request(id.clone(), event)).await?;
        }
        tell(&chosen, self.schema, self.done, context)?;
        if chosen.is_empty() {
            context.output.data(self.none)?;
        }
        Ok(())
    }
}

pub(super) async fn move_to(args: EventMoveArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let id = &workspace.workspace_id;
    let event = find(&mut client, id, &args.event, context).await?;
    if event.standing == EventStanding::Processing {
        return Err(begun(&event, context));
    }
    let (place, said) = match args.to.before {
        Some(other) => {
            let text = format!("is directly before {other}");
            (EventPlace::Before(other), text)
        }
        None if args.to.first => (EventPlace::First, "is next".to_owned()),
        None => (EventPlace::Last, "is last".to_owned()),
    };
    let moved = MoveEvent {
        workspace_id: id.clone(),
        instance_key: event.instance_key,
        event_id: event.event_id.clone(),
        place,
    };
    client.change(moved).await?;
    let output = context.output;
    output.object(schemas::EVENT_MOVE, &json!({ "eventId": event.event_id }))?;
    output.data(format!("Event {} {said}", event.event_id))
}
