//! `gdn event inject`: a message for an agent that becomes due later.

use clap::Args;
use goondan_protocol::control::CreateSchedule;
use goondan_protocol::ids::EventId;
use goondan_protocol::schedule::{DEFAULT_TIME_ZONE, RequestedTime, ScheduleCatchUp};
use goondan_protocol::time::Timestamp;

use super::super::ask::RecipientArgs;
use super::super::later;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct EventInjectArgs {
    /// The message
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    times: TimeArgs,
    /// IANA time zone of the cron expression [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    time_zone: Option<String>,
    #[command(flatten)]
    to: RecipientArgs,
    /// Names the request; the same id twice is one message [default: a new one]
    #[arg(long, value_name = "ID")]
    event_id: Option<EventId>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct TimeArgs {
    /// Once: a time of day, a date and time, an instant, or a delay
    #[arg(long, value_name = "TIME", value_parser = later::parse)]
    at: Option<Timestamp>,
    /// Whenever this cron expression matches
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
}

pub(super) async fn run(args: EventInjectArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let time = match (args.times.at, args.times.cron) {
        (Some(at), _) => RequestedTime::At { at },
        (None, cron) => RequestedTime::Cron {
            cron: cron.unwrap_or_default(),
            time_zone: args
                .time_zone
                .unwrap_or_else(|| DEFAULT_TIME_ZONE.to_owned()),
        },
    };
    let create = CreateSchedule {
        conversation_key: workspace.conversation(args.to.instance),
        workspace_id: workspace.workspace_id,
        agent: args.to.agent,
        time,
        catch_up: ScheduleCatchUp::default(),
        input: args.text,
        event_id: Some(args.event_id.unwrap_or_else(|| uuid::Uuid::now_v7().into())),
    };
    let kept = client.change(create).await?;
    let output = context.output;
    output.object(schemas::EVENT_INJECT, &kept)?;
    let Some(schedule) = kept.schedule else {
        return output.data("This message was accepted before, and has been sent.");
    };
    let next = schedule
        .next
        .map_or_else(String::new, |next| format!(", for {}", text::clock(next)));
    output.data(format!(
        "Accepted for {}, conversation {}, as schedule {}{next}",
        schedule.agent_name, schedule.instance_key, schedule.schedule_id
    ))?;
    let id = &schedule.schedule_id;
    let other = context.command(&format!("event schedule move {id} --at TIME"));
    let none = context.command(&format!("event schedule remove {id}"));
    output.note(format!("Change it: `{other}`, or `{none}`"));
    Ok(())
}
