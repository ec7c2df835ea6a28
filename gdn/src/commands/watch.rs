//! `gdn watch`: what happens in a workspace, as it happens: processes, events, turns, questions, and what
//! was configured anew (`OBS-1`).

use std::time::Duration;

use clap::Args;
use goondan_protocol::control::{
    Done, WatchCursor, WatchUpdate, WatchWorkspace, WorkspaceChange, WorkspaceSnapshot,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};
use serde_json::json;
use tokio::sync::Notify;

use crate::client::{CallError, Client, Notice, RequestTimeout};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style::{self, Palette};
use crate::output::text;
use crate::schemas;

/// Show what happens in a project, as it happens
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn watch
  gdn watch --instance main              one conversation
  gdn watch --json | jq 'select(.event.type == \"event.parked\")'

It goes on over a restart of the daemon, and ends when the project is stopped: `gdn stop`.")]
pub(crate) struct WatchArgs {
    /// Only what happens to this conversation
    #[arg(long, value_name = "KEY")]
    instance: Option<InstanceKey>,
}

/// How often it is looked whether a daemon runs again, in milliseconds.
const RECONNECT_MS: u64 = 500;

pub(crate) async fn run(args: WatchArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let mut workspace_id = workspace.workspace_id;
    let mut after = None;
    loop {
        if watch(&args, context, client, workspace_id, &mut after).await? {
            context.output.note("The project is stopped.");
            return Ok(());
        }
        context
            .output
            .note("The connection is lost; waiting for a daemon that runs the project.");
        (client, workspace_id) = reconnected(context).await;
    }
}

/// The next daemon that runs the project.
async fn reconnected(context: &Context) -> (Client, WorkspaceId) {
    loop {
        tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
        if let Ok((client, workspace)) = context.open().await {
            return (client, workspace.workspace_id);
        }
    }
}

/// Shows what one daemon tells. Whether the project was stopped; else the daemon is gone.
async fn watch(
    args: &WatchArgs,
    context: &Context,
    mut client: Client,
    workspace_id: WorkspaceId,
    after: &mut Option<WatchCursor>,
) -> Result<bool, Failure> {
    let request = WatchWorkspace {
        workspace_id,
        after: *after,
    };
    // Printing can fail, when the reader has gone; then nobody needs more.
    let stop = Notify::new();
    let mut failed = None;
    let mut show = |notice| {
        if let Notice::Change(change) = notice {
            *after = Some(change.cursor);
            if let Err(failure) = show(args, context, &change) {
                failed.get_or_insert(failure);
                stop.notify_one();
            }
        }
    };
    let ended = tokio::select! {
        ended = client.watch(request, RequestTimeout::Endless, &mut show) => ended,
        () = stop.notified() => Ok(Done {}),
    };
    if let Some(failure) = failed {
        return Err(failure);
    }
    match ended {
        Ok(Done {}) => Ok(true),
        Err(CallError::Lost { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn show(args: &WatchArgs, context: &Context, change: &WorkspaceChange) -> Result<(), Failure> {
    let output = context.output;
    let wanted = args.instance.as_ref();
    match &change.told {
        WatchUpdate::Snapshot(snapshot) => {
            output.note(summary(snapshot));
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

/// How everything is, in one line.
fn summary(snapshot: &WorkspaceSnapshot) -> String {
    let WorkspaceSnapshot {
        workspace,
        processes,
    } = snapshot;
    let up = processes.iter().filter(|info| info.pid.is_some());
    let (agents, others): (Vec<_>, Vec<_>) = up.partition(|info| info.role == ChildRole::Agent);
    let working = agents.iter().filter(|info| info.turn_id.is_some()).count();
    let counted = [
        text::count(working, "turn"),
        text::count(agents.len(), "agent process"),
        text::count(others.len(), "connector process"),
        text::count(workspace.pending_events, "waiting event"),
        text::count(workspace.parked_events, "parked event"),
        text::count(workspace.questions, "open question"),
        text::count(workspace.approvals, "waiting approval"),
    ];
    format!("Now: {}", counted.join(", "))
}

fn line(change: &WorkspaceChange, event: &Event, palette: Palette) -> String {
    let (weight, what) = told(event);
    let when = palette.paint(style::FAINT, &text::clock_ms(change.at));
    let subject = palette.paint(style::TITLE, &text::one_line(&subject(event)));
    let what = palette.paint(weight, &text::one_line(&what));
    format!("{when}  {subject}  {what}")
}

/// What an event is about: a conversation, a connection, a model or the project.
fn subject(event: &Event) -> String {
    if let Event::TaskChanged { task_id, .. } | Event::TaskDecided { task_id, .. } = event {
        return format!("task {task_id}");
    }
    let worker = match event {
        Event::ProcessStarted { worker, .. }
        | Event::ProcessEnded { worker, .. }
        | Event::ProcessCrashed { worker, .. }
        | Event::ProcessKilled { worker, .. }
        | Event::ProcessBroke { worker, .. }
        | Event::ReadinessChanged { worker, .. } => Some(worker),
        _ => None,
    };
    match (event.instance_key(), worker) {
        (Some(key), _) => key.to_string(),
        (None, Some(Worker::Connector { connection })) => format!("connection {connection}"),
        (None, Some(Worker::Model { model })) => format!("model {model}"),
        (None, Some(Worker::Task { task_id })) => format!("task {task_id}"),
        (None, Some(Worker::Agent { .. }) | None) => "project".to_owned(),
    }
}

/// An event in words, and how much it weighs.
fn told(event: &Event) -> (anstyle::Style, String) {
    told_of_project(event)
        .or_else(|| told_of_process(event))
        .or_else(|| told_of_task(event))
        .unwrap_or_else(|| told_of_conversation(event))
}

fn told_of_project(event: &Event) -> Option<(anstyle::Style, String)> {
    Some(match event {
        Event::WorkspaceOpened {
            instances_with_work,
        } => {
            let waiting = text::count(*instances_with_work, "conversation");
            (style::PLAIN, format!("opened, {waiting} with work"))
        }
        Event::WorkspaceStopped { error: None } => (style::PLAIN, "stopped".to_owned()),
        Event::WorkspaceStopped { error: Some(error) } => (style::BAD, format!("stopped: {error}")),
        Event::ConfigurationChanged {
            changes,
            restarting,
            ..
        } => {
            let (changes, restarts) = (changes.join(", "), text::count(*restarting, "restart"));
            let what = format!("configuration changed: {changes}; {restarts}");
            (style::PLAIN, what)
        }
        Event::ConfigurationRestored { .. } => {
            (style::GOOD, "configuration valid again".to_owned())
        }
        Event::ConfigurationFellBack { error, .. } => {
            let what = format!("the last known good configuration runs: {error}");
            (style::BAD, what)
        }
        _ => return None,
    })
}

fn told_of_process(event: &Event) -> Option<(anstyle::Style, String)> {
    Some(match event {
        Event::ProcessStarted { child_pid, .. } => {
            (style::FAINT, format!("process {child_pid} started"))
        }
        Event::ProcessEnded { how, .. } => (style::FAINT, format!("process ended: {how}")),
        Event::ProcessCrashed {
            consecutive_crashes,
            next_start_in_ms,
            how,
            ..
        } => {
            let next = match next_start_in_ms {
                0 => "next start at once".to_owned(),
                delay_ms => format!("next start in {}", text::duration(*delay_ms)),
            };
            let row = format!("crash {consecutive_crashes} in a row");
            (style::BAD, format!("process crashed: {how}; {row}, {next}"))
        }
        Event::ProcessKilled { reason, .. } => (style::WARN, format!("process killed: {reason}")),
        Event::ProcessBroke { problem, .. } => {
            let what = format!("process broke the protocol: {problem}");
            (style::BAD, what)
        }
        Event::ReadinessChanged { ready, detail, .. } => match ready {
            true => (style::GOOD, format!("ready: {detail}")),
            false => (style::WARN, format!("not ready: {detail}")),
        },
        _ => return None,
    })
}

fn told_of_task(event: &Event) -> Option<(anstyle::Style, String)> {
    use goondan_protocol::task::TaskStatus as S;
    let Event::TaskChanged {
        task_id,
        status,
        blocked_by,
    } = event
    else {
        let Event::TaskDecided { decision, .. } = event else {
            return None;
        };
        return Some((style::PLAIN, format!("a person decided: {decision}")));
    };
    let wait = match blocked_by.as_deref() {
        Some(_) if *status != S::Running => {
            format!("waits for you: gdn task show {task_id}")
        }
        Some(other) => format!("waits: {other}"),
        None => {
            let words = serde_json::to_value(status).unwrap_or_default();
            words.as_str().unwrap_or_default().replace('_', " ")
        }
    };
    let weight = match status {
        S::Completed => style::GOOD,
        S::Failed => style::BAD,
        S::WaitingDependency | S::WaitingQuestion | S::WaitingReview | S::Paused => style::WARN,
        S::Idle | S::Running | S::Cancelled => style::PLAIN,
    };
    Some((weight, wait))
}

fn told_of_conversation(event: &Event) -> (anstyle::Style, String) {
    use style::{BAD, FAINT, GOOD, PLAIN, WARN};
    match event {
        Event::InstanceCreated { agent_name, .. } => {
            let agent = agent_name
                .as_ref()
                .map(|agent| format!(", of agent {agent}"));
            (PLAIN, format!("created{}", agent.unwrap_or_default()))
        }
        Event::InstanceImported { messages, .. } => {
            let messages = text::count(*messages, "message");
            (PLAIN, format!("imported, with {messages}"))
        }
        Event::InstanceRestarted { by, reason, .. } => {
            (PLAIN, format!("restarted by its {by}: {reason}"))
        }
        Event::InstanceDeleted { .. } => (PLAIN, "deleted".to_owned()),
        Event::EventAccepted {
            event_id, again, ..
        } => match again {
            false => (PLAIN, format!("event {event_id} accepted")),
            true => (FAINT, format!("event {event_id} accepted before")),
        },
        Event::EventRefused { error, .. } => (BAD, format!("event refused: {error}")),
        Event::EventParked {
            event_id, reason, ..
        } => (BAD, format!("event {event_id} parked: {reason}")),
        Event::EventRetried { event_id, .. } => (PLAIN, format!("event {event_id} retried")),
        Event::EventDropped { event_id, .. } => (PLAIN, format!("event {event_id} dropped")),
        Event::EventCancelled { event_id, .. } => (PLAIN, format!("event {event_id} cancelled")),
        Event::TurnStarted {
            event_id, attempt, ..
        } => match attempt {
            1 => (PLAIN, format!("turn started, for event {event_id}")),
            _ => {
                let what = format!("turn started again, attempt {attempt}, for event {event_id}");
                (WARN, what)
            }
        },
        Event::TurnCommitted {
            event_id, outcome, ..
        } => {
            let weight = if outcome == "completed" { GOOD } else { BAD };
            (weight, format!("turn {outcome}, for event {event_id}"))
        }
        Event::QuestionAsked { question_id, .. } => {
            let what = format!("waits for an answer: gdn question show {question_id}");
            (WARN, what)
        }
        Event::QuestionClosed {
            question_id, how, ..
        } => (PLAIN, format!("question {question_id} closed: {how}")),
        Event::ApprovalAsked { .. } | Event::ApprovalClosed { .. } => told_of_approval(event),
        Event::BudgetWarning { budget, .. } => (WARN, format!("budget nearly spent: {budget}")),
        Event::BundleChanged {
            what,
            changeset_id,
            detail,
            ..
        } => {
            let id = changeset_id.as_ref().map_or("", |id| id.as_str());
            let said = format!("own configuration {what}: {id} {detail}");
            let needs_person = matches!(what.as_str(), "waits" | "reverted");
            (if needs_person { WARN } else { PLAIN }, said)
        }
        // Versions agree exactly, so there is nothing else.
        other => (PLAIN, format!("{other:?}")),
    }
}

fn told_of_approval(event: &Event) -> (anstyle::Style, String) {
    use style::{PLAIN, WARN};
    match event {
        Event::ApprovalAsked {
            approval_id,
            tool_name,
            ..
        } => {
            let id = approval_id;
            let what =
                format!("{tool_name} waits for approval: gdn approve {id}, or gdn deny {id}");
            (WARN, what)
        }
        Event::ApprovalClosed {
            approval_id,
            tool_name,
            how,
            ..
        } => (PLAIN, format!("{tool_name}, {approval_id}: {how}")),
        // There are no others.
        other => (PLAIN, format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(event: Event) -> WorkspaceChange {
        WorkspaceChange {
            request_id: 1,
            cursor: WatchCursor { epoch: 1, count: 1 },
            at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
            told: WatchUpdate::Event(event),
        }
    }

    #[test]
    fn an_event_is_one_line_that_says_when_whose_and_what() {
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
    fn what_is_about_no_conversation_names_its_connection_its_model_or_the_project() {
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
