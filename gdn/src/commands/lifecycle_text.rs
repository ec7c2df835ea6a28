//! Lifecycle events as text, for `gdn workspace watch` and `gdn top`.

use goondan_protocol::call::LookedBack;
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};

use crate::output::style;
use crate::output::text;

/// Subject of an event: a conversation, a connection, a model or the project.
pub(super) fn subject(event: &Event) -> String {
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

/// Text of an event, with the style for its severity.
pub(super) fn event_text(event: &Event) -> (anstyle::Style, String) {
    project_text(event)
        .or_else(|| process_text(event))
        .or_else(|| task_text(event))
        .unwrap_or_else(|| conversation_text(event))
}

fn project_text(event: &Event) -> Option<(anstyle::Style, String)> {
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

fn process_text(event: &Event) -> Option<(anstyle::Style, String)> {
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
                0 => "next start immediately".to_owned(),
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

fn task_text(event: &Event) -> Option<(anstyle::Style, String)> {
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
        return Some((style::PLAIN, format!("decision by a person: {decision}")));
    };
    let wait = match blocked_by.as_deref() {
        Some(_) if *status != S::Running => {
            format!("needs you: gdn task show {task_id}")
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

fn conversation_text(event: &Event) -> (anstyle::Style, String) {
    use style::{BAD, GOOD, PLAIN, WARN};
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
            let what = format!("waits for an answer: gdn inbox question show {question_id}");
            (WARN, what)
        }
        Event::QuestionClosed {
            question_id, how, ..
        } => (PLAIN, format!("question {question_id} closed: {how}")),
        Event::ApprovalAsked { .. } | Event::ApprovalClosed { .. } => approval_text(event),
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
        _ => input_text(event),
    }
}

/// Text for a change to a queued event.
fn input_text(event: &Event) -> (anstyle::Style, String) {
    use style::{BAD, FAINT, PLAIN};
    match event {
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
        Event::CallUnknown {
            instance_key,
            tool_call_id: call,
            tool_name,
            ..
        } => {
            let settle = format!("gdn inbox settle {instance_key} {call}");
            let what =
                format!("{tool_name} was interrupted, outcome unknown: check it, then {settle}");
            (style::WARN, what)
        }
        Event::CallClosed {
            tool_call_id,
            target,
            method,
            found,
            ..
        } => {
            let what = match found {
                LookedBack::Happened => "it had happened",
                LookedBack::NotHappened => "it had not happened and was made again",
                LookedBack::SameKey => "it was made again with the same key",
            };
            let what =
                format!("call {tool_call_id} (`{method}` of {target}) closed by look-back: {what}");
            (PLAIN, what)
        }
        Event::CallSettled { tool_call_id, .. } => {
            (PLAIN, format!("call {tool_call_id} settled by a person"))
        }
        Event::EventRetried { event_id, .. } => (PLAIN, format!("event {event_id} retried")),
        Event::EventDropped { event_id, .. } => (PLAIN, format!("event {event_id} dropped")),
        Event::EventCancelled { event_id, .. } => (PLAIN, format!("event {event_id} canceled")),
        Event::EventPaused { event_id, .. } => (PLAIN, format!("event {event_id} paused")),
        Event::EventResumed { event_id, .. } => (PLAIN, format!("event {event_id} resumed")),
        Event::EventMoved { event_id, .. } => (PLAIN, format!("event {event_id} moved")),
        Event::ScheduleChanged {
            schedule_id,
            change,
            ..
        } => (PLAIN, format!("schedule {schedule_id} {}", change.as_str())),
        // Unreachable, because client and daemon have the same version.
        other => (PLAIN, format!("{other:?}")),
    }
}

fn approval_text(event: &Event) -> (anstyle::Style, String) {
    use style::{PLAIN, WARN};
    match event {
        Event::ApprovalAsked {
            approval_id,
            tool_name,
            ..
        } => {
            let id = approval_id;
            let what = format!(
                "{tool_name} waits for approval: gdn inbox approve {id}, or gdn inbox deny {id}"
            );
            (WARN, what)
        }
        Event::ApprovalClosed {
            approval_id,
            tool_name,
            how,
            ..
        } => (PLAIN, format!("{tool_name}, {approval_id}: {how}")),
        // Unreachable: all variants about approvals are handled.
        other => (PLAIN, format!("{other:?}")),
    }
}
