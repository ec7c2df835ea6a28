//! The arguments of `gdn event`.

use clap::{Args, Subcommand};
use goondan_protocol::ids::{EventId, InstanceKey};

#[derive(Debug, Subcommand)]
pub(crate) enum Event {
    /// List the events that wait, are worked on or are parked
    #[command(after_help = "\
Examples:
  gdn event list
  gdn event list --parked --json | jq -r '.events[].eventId'

An event is parked when three processes crashed in its turn; its conversation goes on without it.")]
    List(EventList),
    /// Let a parked event wait again; its turn begins from the start
    #[command(after_help = "\
Examples:
  gdn event retry 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6
  gdn event retry --all")]
    Retry(EventRetry),
    /// Give a parked event up, unanswered
    #[command(after_help = "\
Examples:
  gdn event drop 01a20056-d8ea-74ff-86b8-2a82fbfe8ae6 --yes")]
    Drop(EventDrop),
}

#[derive(Debug, Args)]
pub(crate) struct EventList {
    /// Only this conversation's
    #[arg(long, value_name = "KEY")]
    pub(crate) instance: Option<InstanceKey>,
    /// Only those that are parked
    #[arg(long)]
    pub(crate) parked: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventRetry {
    /// The event
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) event: Option<EventId>,
    /// Every parked event of the project
    #[arg(long, conflicts_with = "event")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventDrop {
    /// The event
    #[arg(value_name = "ID")]
    pub(crate) event: EventId,
    /// Ask nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
}
