//! `gdn workspace watch`: live events of a workspace: processes, events, turns, questions and configuration changes (`OBS-1`).

use clap::Args;
use goondan_protocol::control::{
    EmptyResult, WatchCursor, WatchUpdate, WatchWorkspace, WorkspaceChange, WorkspaceInfo,
    WorkspaceSnapshot,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use serde_json::json;
use tokio::sync::Notify;

use super::follow;
use super::lifecycle_text::{event_text, subject};
use super::names;
use crate::client::{CallError, Client, Notice, RequestTimeout};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style::{self, Palette};
use crate::output::text;
use crate::schemas;

/// Show live events of a project
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn workspace watch
  gdn workspace watch --conversation main    one conversation
  gdn workspace watch --json | jq 'select(.event.type == \"event.parked\")'

Continues across restarts of the daemon, and ends when the project is stopped (`gdn stop`).")]
pub(crate) struct WatchArgs {
    /// Only events of this conversation
    #[arg(long = "conversation", alias = "instance", value_name = "KEY")]
    instance: Option<InstanceKey>,
}

pub(crate) async fn run(args: WatchArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let mut workspace_id = workspace.workspace_id;
    let key = args.instance.as_ref();
    let known = names::check_conversation(key, &mut client, &workspace_id, context).await;
    if let Err(unknown) = known {
        // The conversation may begin while the command watches.
        let note = format!(
            "{}; waiting for it. Hint: {}",
            unknown.message, unknown.hint
        );
        context.output.note(note);
    }
    let mut after = None;
    loop {
        if watch(&args, context, client, workspace_id, &mut after).await? {
            context.output.note("The project is stopped.");
            return Ok(());
        }
        context.output.note(follow::LOST);
        let (next, workspace) = follow::reopened(context).await;
        (client, workspace_id) = (next, workspace.workspace_id);
    }
}

/// Shows the updates of one daemon. True if the project was stopped; false if the daemon is gone.
async fn watch(
    args: &WatchArgs,
    context: &Context,
    mut client: Client,
    workspace_id: WorkspaceId,
    after: &mut Option<WatchCursor>,
) -> Result<bool, Failure> {
    let request = WatchWorkspace {
        workspace_id: Some(workspace_id),
        after: *after,
    };
    // Printing fails if the reader of stdout is gone; then no more updates are needed.
    let stop = Notify::new();
    let mut failed = None;
    let mut up = ProcessCounts::default();
    let mut show = |notice| {
        if let Notice::Change(change) = notice {
            if !change.told.has_more() {
                *after = Some(change.cursor);
            }
            if let Err(failure) = show(args, context, &change, &mut up) {
                failed.get_or_insert(failure);
                stop.notify_one();
            }
        }
    };
    let ended = tokio::select! {
        ended = client.watch(request, RequestTimeout::Endless, &mut show) => ended,
        () = stop.notified() => Ok(EmptyResult {}),
    };
    if let Some(failure) = failed {
        return Err(failure);
    }
    match ended {
        Ok(EmptyResult {}) => Ok(true),
        Err(CallError::Lost { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Running processes, counted from the parts of the snapshot received so far.
#[derive(Debug, Default)]
struct ProcessCounts {
    working: usize,
    agents: usize,
    others: usize,
}

impl ProcessCounts {
    fn count(&mut self, snapshot: &WorkspaceSnapshot) {
        let processes = snapshot.processes.iter();
        let up = processes.filter(|info| info.pid.is_some());
        let (agents, others): (Vec<_>, Vec<_>) = up.partition(|info| info.role == ChildRole::Agent);
        self.working += agents.iter().filter(|info| info.turn_id.is_some()).count();
        self.agents += agents.len();
        self.others += others.len();
    }
}

fn show(
    args: &WatchArgs,
    context: &Context,
    change: &WorkspaceChange,
    up: &mut ProcessCounts,
) -> Result<(), Failure> {
    let output = context.output;
    let wanted = args.instance.as_ref();
    match &change.told {
        WatchUpdate::Snapshot(snapshot) => {
            up.count(snapshot);
            if !snapshot.more {
                output.note(summary(&std::mem::take(up), &snapshot.workspace));
            }
            let told = json!({
                "cursor": change.cursor, "at": change.at, "snapshot": snapshot,
            });
            output.object(schemas::WATCH, &told)
        }
        WatchUpdate::Event(event) => {
            if wanted.is_some() && event.instance_key() != wanted {
                return Ok(());
            }
            output.data(line(change, event, output.out))?;
            let told = json!({ "cursor": change.cursor, "at": change.at, "event": event });
            output.object(schemas::WATCH, &told)
        }
    }
}

/// Summarizes the state in one line.
fn summary(up: &ProcessCounts, workspace: &WorkspaceInfo) -> String {
    let counted = [
        text::count(up.working, "turn"),
        text::count(up.agents, "agent process"),
        text::count(up.others, "connector process"),
        text::count(workspace.pending_events, "waiting event"),
        text::count(workspace.parked_events, "parked event"),
        text::count(workspace.questions, "open question"),
        text::count(workspace.approvals, "waiting approval"),
    ];
    format!("Now: {}", counted.join(", "))
}

fn line(change: &WorkspaceChange, event: &Event, palette: Palette) -> String {
    let (weight, what) = event_text(event);
    let when = palette.paint(style::FAINT, &text::clock_ms(change.at));
    let subject = palette.paint(style::TITLE, &text::one_line(&subject(event)));
    let what = palette.paint(weight, &text::one_line(&what));
    format!("{when}  {subject}  {what}")
}

#[cfg(test)]
mod tests {
    use goondan_protocol::lifecycle::Worker;

    use super::*;

    fn change(event: Event) -> WorkspaceChange {
        WorkspaceChange {
            request_id: 1,
            workspace_id: "w".parse().unwrap(),
            cursor: WatchCursor { epoch: 1, count: 1 },
            at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
            told: WatchUpdate::Event(event),
        }
    }

    #[test]
    fn event_is_one_line_with_time_conversation_and_content() {
        let crashed = Event::ProcessCrashed {
            worker: Worker::Agent {
                instance_key: "main\u{1b}[2J".parse().unwrap(),
            },
            consecutive_crashes: 6,
            next_start_in_ms: 1_000,
            how: "signal 9\nsecond".to_owned(),
        };
        let line = line(&change(crashed.clone()), &crashed, Palette::new(false));
        let clock = text::clock_ms("2026-01-01T00:00:00.000Z".parse().unwrap());
        let expected = format!(
            "{clock}  main\\u{{1b}}[2J  process crashed: signal 9\\nsecond; crash 6 in a row, next \
             start in 1.0s"
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn watch_line_without_conversation_names_connection_or_model() {
        let ready = |worker| Event::ReadinessChanged {
            worker,
            ready: true,
            detail: "listening".to_owned(),
        };
        let connector = Worker::Connector {
            connection: "inbox".parse().unwrap(),
        };
        let model = Worker::Model {
            model: "big".parse().unwrap(),
        };
        assert_eq!(subject(&ready(connector)), "connection inbox");
        assert_eq!(subject(&ready(model)), "model big");
        let stopped = Event::WorkspaceStopped { error: None };
        assert_eq!(subject(&stopped), "project");
    }
}
