//! Readable text for facts, for `agent.log` and for people.

use goondan_cli_agents::blocks::ErrorKind;
use goondan_protocol::control::{TaskHappening, TaskVerdict};
use goondan_protocol::task::{PlanStepState, TaskItem, TaskItemContent};
use goondan_protocol::time::Timestamp;
use serde::Serialize;

use crate::fact::{Answer, Entry, Fact, Outcome, PauseReason, Provision, TaskId};

/// Maximum characters of a fact's detail.
const DETAIL_CHARS_MAX: usize = 200;

/// Maximum characters of a fact's detail in the stream.
const ITEM_DETAIL_CHARS_MAX: usize = 4000;

/// Readable form of a fact.
#[must_use]
pub fn happening(entry: &Entry) -> TaskHappening {
    let detail = detail(&entry.fact);
    let line: Vec<&str> = detail.split_whitespace().collect();
    TaskHappening {
        at: entry.timestamp,
        event: event_name(&entry.fact),
        detail: line.join(" ").chars().take(DETAIL_CHARS_MAX).collect(),
    }
}

/// Item of a fact in the task's stream; none if the agent's own items cover it (`AGENT-7`).
#[must_use]
pub fn stream_item(entry: &Entry) -> Option<TaskItem> {
    let content = match &entry.fact {
        Fact::PlanTold { .. }
        | Fact::PromptTaken { .. }
        | Fact::NotificationRequested { .. }
        | Fact::NotificationBegun { .. }
        | Fact::Notified { .. } => return None,
        Fact::DocumentsMissing { documents } if documents.is_empty() => return None,
        Fact::UsageRecorded { usage, cost, .. } => TaskItemContent::Usage {
            usage: *usage,
            cost: *cost,
        },
        fact => {
            let mut detail = detail(fact);
            if let Some((at, _)) = detail.char_indices().nth(ITEM_DETAIL_CHARS_MAX) {
                detail.truncate(at);
            }
            TaskItemContent::Event {
                event: event_name(fact),
                detail,
            }
        }
    };
    let run = match &entry.fact {
        Fact::RunRequested { run, .. }
        | Fact::AgentStarted { run, .. }
        | Fact::SessionOpened { run, .. }
        | Fact::SessionLost { run, .. }
        | Fact::RunEnded { run, .. }
        | Fact::WorkVerified { run, .. } => Some(*run),
        _ => None,
    };
    let at = entry.timestamp;
    Some(TaskItem { at, run, content })
}

/// The fact's `event` in the history.
fn event_name(fact: &Fact) -> String {
    let written = serde_json::to_value(fact).unwrap_or_default();
    let event = written.get("event").and_then(serde_json::Value::as_str);
    event.unwrap_or_default().to_owned()
}

/// A line of `agent.log` (`TASK-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// When it happened.
    pub timestamp: Timestamp,
    /// Importance to people.
    pub level: LogLevel,
    /// Description of the event.
    pub message: String,
    /// The task.
    pub task_id: TaskId,
}

/// Level of a line of `agent.log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// The work continues.
    Info,
    /// A person is needed, or something failed.
    Warn,
    /// The task has failed.
    Error,
}

impl LogLine {
    /// Returns the log line of a fact.
    #[must_use]
    pub fn new(task_id: TaskId, entry: &Entry) -> Self {
        let TaskHappening { at, event, detail } = happening(entry);
        let mut message = event.replace('_', " ");
        if let Some(first) = message.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(&detail);
        }
        Self {
            timestamp: at,
            level: level(&entry.fact),
            message,
            task_id,
        }
    }
}

fn level(fact: &Fact) -> LogLevel {
    match fact {
        Fact::TaskFailed { .. } => LogLevel::Error,
        Fact::ErrorReported { error } if error.kind == ErrorKind::Fatal => LogLevel::Error,
        Fact::RunEnded {
            outcome: Outcome::Done | Outcome::Ended,
            ..
        }
        | Fact::RestoreDrilled { problem: None, .. } => LogLevel::Info,
        Fact::DocumentsMissing { documents } if documents.is_empty() => LogLevel::Info,
        Fact::DependencyRequested { .. }
        | Fact::QuestionAsked { .. }
        | Fact::ErrorReported { .. }
        | Fact::ProtocolRefused { .. }
        | Fact::DocumentsMissing { .. }
        | Fact::SessionLost { .. }
        | Fact::AgentChanged { .. }
        | Fact::RunEnded { .. }
        | Fact::ProposalMade {
            problem: Some(_), ..
        }
        | Fact::WorkVerified {
            verdict: TaskVerdict { passed: false, .. },
            ..
        }
        | Fact::RestoreDrilled { .. }
        | Fact::BudgetWarned { .. }
        | Fact::NotificationFailed { .. } => LogLevel::Warn,
        Fact::TaskPaused { reason, .. } if *reason != PauseReason::Person => LogLevel::Warn,
        _ => LogLevel::Info,
    }
}

/// Detail of a fact; empty if its name suffices.
fn detail(fact: &Fact) -> String {
    // Long: one arm for each fact.
    match fact {
        Fact::TaskCreated(task) => task.title.clone(),
        Fact::NodeEntered { node } => node.clone(),
        Fact::RunRequested { run, kind, .. } if !kind.is_agent() => {
            format!("run {run}, {}", kind.as_str())
        }
        Fact::RunRequested {
            run,
            session,
            agent,
            ..
        } => {
            let agent = agent
                .as_ref()
                .map_or_else(String::new, |agent| format!(" of {agent}"));
            match session {
                Some(session) => format!("run {run}{agent}, resumes session {session}"),
                None => format!("run {run}{agent}"),
            }
        }
        Fact::AgentChanged { from, to, until } => {
            format!("{to} continues, because the usage limit of {from} is reached until {until}")
        }
        Fact::AgentStarted { run, pid, .. } => match pid {
            Some(pid) => format!("run {run}, process {pid}"),
            None => format!("run {run}"),
        },
        Fact::PlanTold { steps } => {
            let done = steps
                .iter()
                .filter(|step| step.state == PlanStepState::Completed);
            format!("{} of {} steps are done", done.count(), steps.len())
        }
        Fact::PromptTaken { run } => format!("run {run}"),
        Fact::SessionLost { problem, .. } => format!("its session is lost: {problem}"),
        Fact::SessionOpened { session, model, .. } => match model {
            Some(model) => format!("{session}, {model}"),
            None => session.clone(),
        },
        Fact::RunEnded { run, outcome, .. } => format!("run {run}: {}", outcome_words(outcome)),
        Fact::RetryPlanned { at, is_limited } if *is_limited => {
            format!("not before {at}: the usage limits of all agents are reached")
        }
        Fact::RetryPlanned { at, .. } => format!("not before {at}"),
        Fact::PhaseStarted { phase } if *phase == 0 => String::new(),
        Fact::PhaseStarted { phase }
        | Fact::PhaseCompleted { phase, .. }
        | Fact::ReviewRequested { phase }
        | Fact::ReviewWithdrawn { phase }
        | Fact::ReviewApproved { phase } => format!("phase {phase}"),
        Fact::WorkVerified { verdict, .. } if verdict.passed => "it passed".to_owned(),
        Fact::WorkVerified { verdict, .. } => format!("it failed: {}", verdict.why),
        Fact::ProposalMade {
            proposal: Some(proposal),
            ..
        } => match proposal.files.len().saturating_add(proposal.more_files) {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        },
        Fact::ProposalMade { problem, .. } => match problem {
            Some(problem) => format!("none: {problem}"),
            None => "none: no changes".to_owned(),
        },
        Fact::ProposalDelivered { digest, branch } => match branch {
            Some(branch) => format!("as the branch {branch}"),
            None => digest.clone(),
        },
        Fact::DocumentsMissing { documents } if documents.is_empty() => "all exist".to_owned(),
        Fact::WorkCompleted { documents } | Fact::DocumentsMissing { documents } => {
            documents.join(", ")
        }
        Fact::StepStarted { step } => step.clone(),
        Fact::ProgressMade { percent } => format!("{percent} %"),
        Fact::DocumentCreated { file } => file.clone(),
        Fact::CheckpointCreated { checkpoint_id }
        | Fact::CheckpointRestored { checkpoint_id, .. } => checkpoint_id.clone(),
        Fact::RestoreDrilled {
            checkpoint_id,
            problem,
            ..
        } => match problem {
            Some(problem) => format!("{checkpoint_id} cannot be restored: {problem}"),
            None => format!("{checkpoint_id} can be restored"),
        },
        Fact::DependencyRequested { id, request, .. } => format!("{id} {}", request.name),
        Fact::DependencyProvided { id, provision } => match provision {
            Provision::Secret(_) => format!("{id} as a secret"),
            Provision::Ready(text) => format!("{id} {text}"),
            Provision::TimedOut(_) => format!("{id} not in time"),
        },
        Fact::QuestionAsked { id, question, .. } => format!("{id} {}", question.question),
        Fact::QuestionAnswered { id, answer } => match answer {
            Answer::Person(text) => format!("{id} {text}"),
            Answer::TimedOut(_) => format!("{id} not in time"),
            Answer::Withdrawn => format!("{id} is withdrawn"),
        },
        Fact::ReviewReworked { phase, text } => format!("phase {phase}: {text}"),
        Fact::MessageSent { text, .. } => text.clone(),
        Fact::ErrorReported { error } => error.message.clone(),
        Fact::WorkHandedOff { text } => text.clone(),
        Fact::ProtocolRefused { protocol, problem } => format!("{protocol}: {problem}"),
        Fact::UsageRecorded { usage, cost, .. } => match cost {
            Some(cost) => format!("{} tokens, {cost}", usage.total()),
            None => format!("{} tokens", usage.total()),
        },
        Fact::BudgetWarned { percent } => format!("{percent} % are used"),
        Fact::NotificationRequested { id, notification } => {
            let (on, connection) = (notification.on.as_str(), &notification.connection);
            format!("{id} {on} by {connection} {}", notification.action)
        }
        Fact::NotificationBegun { id } | Fact::Notified { id } => id.clone(),
        Fact::NotificationFailed { id, why } => format!("{id}: {why}"),
        Fact::TaskPaused { why: Some(why), .. } => why.clone(),
        Fact::TaskPaused { reason, why: None } => match reason {
            PauseReason::Person => String::new(),
            PauseReason::Budget | PauseReason::SharedBudget => {
                "the next call might exceed the budget".to_owned()
            }
            PauseReason::Quota => "its work area exceeds its disk limit".to_owned(),
        },
        Fact::TaskFailed { reason } => reason.clone(),
        Fact::BudgetChanged { .. }
        | Fact::TaskResumed {}
        | Fact::TaskCompleted {}
        | Fact::TaskCancelled {} => String::new(),
    }
}

pub(crate) fn outcome_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Blocked(why) => format!("failed, retry would not help: {why}"),
        Outcome::Ended => "ended on purpose".to_owned(),
        Outcome::RateLimited(until) => format!("the provider is available again at {until}"),
        Outcome::Unknown => "its outcome is unknown".to_owned(),
        Outcome::NotStarted(why) => format!("not started: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_2_lines_of_the_log_have_the_form_of_the_clause() {
        let line = |event: serde_json::Value| {
            let at = "2024-02-15T10:15:00.000Z";
            let entry = serde_json::json!({"timestamp": at, "event": event["event"], "data": event["data"]});
            let entry: Entry = serde_json::from_value(entry).unwrap();
            let id = "task_20240215_abc123".parse().unwrap();
            serde_json::to_string(&LogLine::new(id, &entry)).unwrap()
        };
        let document = serde_json::json!(
            {"event": "document_created", "data": {"file": "docs/planning/01_idea.md"}}
        );
        assert_eq!(
            line(document),
            r#"{"timestamp":"2024-02-15T10:15:00.000Z","level":"info","message":"Document created: docs/planning/01_idea.md","taskId":"task_20240215_abc123"}"#
        );
        let levels = [
            (
                r#"{"event":"dependency_requested","data":{"id":"d-0001","type":"api_key","name":"K","until":null}}"#,
                "warn",
            ),
            (r#"{"event":"task_failed","data":{"reason":"no"}}"#, "error"),
            (
                r#"{"event":"error_reported","data":{"type":"fatal","message":"no"}}"#,
                "error",
            ),
            (
                r#"{"event":"run_ended","data":{"run":1,"outcome":"done"}}"#,
                "info",
            ),
            (
                r#"{"event":"run_ended","data":{"run":1,"outcome":"unknown"}}"#,
                "warn",
            ),
            (
                r#"{"event":"task_paused","data":{"reason":"person"}}"#,
                "info",
            ),
            (
                r#"{"event":"task_paused","data":{"reason":"budget"}}"#,
                "warn",
            ),
        ];
        for (event, level) in levels {
            let line = line(serde_json::from_str(event).unwrap());
            assert!(line.contains(&format!(r#""level":"{level}""#)), "{line}");
        }
    }
}
