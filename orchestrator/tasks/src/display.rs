//! Readable text for facts, for `agent.log` and for people.

use goondan_cli_agents::blocks::ErrorKind;
use goondan_protocol::control::{TaskHistoryLine, TaskVerdict};
use goondan_protocol::task::{PlanStepState, TaskItem, TaskItemContent};
use goondan_protocol::time::Timestamp;
use serde::Serialize;

use crate::fact::{
    HistoryEntry, InputOutcome, PauseReason, Provision, RunOutcome, TaskEvent, TaskId,
};

/// Maximum characters of a fact's detail.
const DETAIL_CHARS_MAX: usize = 200;

/// Maximum characters of a fact's detail in the stream.
const ITEM_DETAIL_CHARS_MAX: usize = 4000;

/// Readable form of a fact.
#[must_use]
pub fn happening(entry: &HistoryEntry) -> TaskHistoryLine {
    let detail = detail(&entry.fact);
    let line: Vec<&str> = detail.split_whitespace().collect();
    TaskHistoryLine {
        at: entry.timestamp,
        event: event_name(&entry.fact),
        detail: line.join(" ").chars().take(DETAIL_CHARS_MAX).collect(),
    }
}

/// Item of a fact in the task's stream; none if the agent's own items cover it (`AGENT-7`).
#[must_use]
pub fn stream_item(entry: &HistoryEntry) -> Option<TaskItem> {
    let content = match &entry.fact {
        TaskEvent::PlanTold { .. }
        | TaskEvent::PromptTaken { .. }
        | TaskEvent::ResultReported { .. }
        | TaskEvent::NotificationRequested { .. }
        | TaskEvent::NotificationBegun { .. }
        | TaskEvent::Notified { .. } => return None,
        TaskEvent::DocumentsMissing { documents } if documents.is_empty() => return None,
        TaskEvent::UsageRecorded { usage, cost, .. } => TaskItemContent::Usage {
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
        TaskEvent::RunRequested { run, .. }
        | TaskEvent::AgentStarted { run, .. }
        | TaskEvent::SessionOpened { run, .. }
        | TaskEvent::SessionLost { run, .. }
        | TaskEvent::RunCutOff { run }
        | TaskEvent::RunEnded { run, .. }
        | TaskEvent::WorkVerified { run, .. } => Some(*run),
        _ => None,
    };
    let at = entry.timestamp;
    Some(TaskItem { at, run, content })
}

/// The fact's `event` in the history.
fn event_name(fact: &TaskEvent) -> String {
    let written = serde_json::to_value(fact).unwrap_or_default();
    let event = written.get("event").and_then(serde_json::Value::as_str);
    event.unwrap_or_default().to_owned()
}

/// A line of `agent.log` (`TASK-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    pub timestamp: Timestamp,
    pub level: LogLevel,
    pub message: String,
    pub task_id: TaskId,
}

/// Level of a line of `agent.log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Info,
    /// A person is needed, or something failed.
    Warn,
    Error,
}

impl LogLine {
    /// Returns the log line of a fact.
    #[must_use]
    pub fn new(task_id: TaskId, entry: &HistoryEntry) -> Self {
        let TaskHistoryLine { at, event, detail } = happening(entry);
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

fn level(fact: &TaskEvent) -> LogLevel {
    match fact {
        TaskEvent::TaskFailed { .. } => LogLevel::Error,
        TaskEvent::ErrorReported { error } if error.kind == ErrorKind::Fatal => LogLevel::Error,
        TaskEvent::RunEnded {
            outcome: RunOutcome::Done | RunOutcome::Ended,
            ..
        }
        | TaskEvent::RestoreDrilled { problem: None, .. } => LogLevel::Info,
        TaskEvent::DocumentsMissing { documents } if documents.is_empty() => LogLevel::Info,
        TaskEvent::DependencyRequested { .. }
        | TaskEvent::QuestionAsked { .. }
        | TaskEvent::ErrorReported { .. }
        | TaskEvent::ProtocolRefused { .. }
        | TaskEvent::DocumentsMissing { .. }
        | TaskEvent::SessionLost { .. }
        | TaskEvent::AgentChanged { .. }
        | TaskEvent::RunEnded { .. }
        | TaskEvent::ProposalMade {
            problem: Some(_), ..
        }
        | TaskEvent::WorkVerified {
            verdict: TaskVerdict { passed: false, .. },
            ..
        }
        | TaskEvent::RestoreDrilled { .. }
        | TaskEvent::BudgetWarned { .. }
        | TaskEvent::NotificationFailed { .. } => LogLevel::Warn,
        TaskEvent::TaskPaused { reason, .. } if *reason != PauseReason::Person => LogLevel::Warn,
        _ => LogLevel::Info,
    }
}

/// Detail of a fact; empty if its name suffices.
fn detail(fact: &TaskEvent) -> String {
    match fact {
        TaskEvent::TaskCreated(task) => task.title.clone(),
        TaskEvent::NodeEntered { node } => node.clone(),
        TaskEvent::RunRequested { run, kind, .. } if !kind.is_agent() => {
            format!("run {run}, {}", kind.as_str())
        }
        TaskEvent::RunRequested {
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
        TaskEvent::AgentChanged { from, to, until } => {
            format!("{to} continues, because the usage limit of {from} is reached until {until}")
        }
        TaskEvent::AgentStarted { run, pid, .. } => match pid {
            Some(pid) => format!("run {run}, process {pid}"),
            None => format!("run {run}"),
        },
        TaskEvent::PlanTold { steps } => {
            let done = steps
                .iter()
                .filter(|step| step.state == PlanStepState::Completed);
            format!("{} of {} steps are done", done.count(), steps.len())
        }
        TaskEvent::PromptTaken { run } => format!("run {run}"),
        TaskEvent::ResultReported { run, error } => match error {
            Some(error) => format!("run {run}: {error}"),
            None => format!("run {run}"),
        },
        TaskEvent::RunCutOff { run } => {
            format!("run {run}: its program still ran after its result, and was ended")
        }
        TaskEvent::SessionLost { problem, .. } => format!("its session is lost: {problem}"),
        TaskEvent::SessionOpened { session, model, .. } => match model {
            Some(model) => format!("{session}, {model}"),
            None => session.clone(),
        },
        TaskEvent::RunEnded { run, outcome, .. } => {
            format!("run {run}: {}", outcome_words(outcome))
        }
        TaskEvent::RetryPlanned { at, is_limited } if *is_limited => {
            format!("not before {at}: the usage limits of all agents are reached")
        }
        TaskEvent::RetryPlanned { at, .. } => format!("not before {at}"),
        TaskEvent::PhaseStarted { phase } if *phase == 0 => String::new(),
        TaskEvent::PhaseStarted { phase }
        | TaskEvent::PhaseCompleted { phase, .. }
        | TaskEvent::ReviewRequested { phase }
        | TaskEvent::ReviewWithdrawn { phase }
        | TaskEvent::ReviewApproved { phase } => format!("phase {phase}"),
        TaskEvent::WorkVerified { verdict, .. } if verdict.passed => "it passed".to_owned(),
        TaskEvent::WorkVerified { verdict, .. } => format!("it failed: {}", verdict.why),
        TaskEvent::ProposalMade {
            proposal: Some(proposal),
            ..
        } => match proposal.files.len().saturating_add(proposal.more_files) {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        },
        TaskEvent::ProposalMade { problem, .. } => match problem {
            Some(problem) => format!("none: {problem}"),
            None => "none: no changes".to_owned(),
        },
        TaskEvent::ProposalDelivered {
            digest,
            branch,
            pull_request,
        } => match (branch, pull_request) {
            (_, Some(url)) => format!("as the pull request {url}"),
            (Some(branch), None) => format!("as the branch {branch}"),
            (None, None) => digest.clone(),
        },
        TaskEvent::DocumentsMissing { documents } if documents.is_empty() => "all exist".to_owned(),
        TaskEvent::WorkCompleted { documents } | TaskEvent::DocumentsMissing { documents } => {
            documents.join(", ")
        }
        TaskEvent::StepStarted { step } => step.clone(),
        TaskEvent::ProgressMade { percent } => format!("{percent} %"),
        TaskEvent::DocumentCreated { file } => file.clone(),
        TaskEvent::CheckpointCreated { checkpoint_id }
        | TaskEvent::CheckpointRestored { checkpoint_id, .. } => checkpoint_id.clone(),
        TaskEvent::RestoreDrilled {
            checkpoint_id,
            problem,
            ..
        } => match problem {
            Some(problem) => format!("{checkpoint_id} cannot be restored: {problem}"),
            None => format!("{checkpoint_id} can be restored"),
        },
        TaskEvent::DependencyRequested { id, request, .. } => format!("{id} {}", request.name),
        TaskEvent::DependencyProvided { id, provision } => match provision {
            Provision::Secret(_) => format!("{id} as a secret"),
            Provision::Ready(text) => format!("{id} {text}"),
            Provision::TimedOut(_) => format!("{id} not in time"),
        },
        TaskEvent::QuestionAsked { id, question, .. } => format!("{id} {}", question.question),
        TaskEvent::QuestionAnswered { id, answer } => match answer {
            InputOutcome::Person(text) => format!("{id} {text}"),
            InputOutcome::TimedOut(_) => format!("{id} not in time"),
            InputOutcome::Withdrawn => format!("{id} is withdrawn"),
        },
        TaskEvent::ReviewReworked {
            phase,
            text,
            comments,
        } => match comments.len() {
            0 => format!("phase {phase}: {text}"),
            1 => format!("phase {phase}: {text} (1 comment)"),
            count => format!("phase {phase}: {text} ({count} comments)"),
        },
        TaskEvent::DecisionMade { about, how, .. } => format!("{about} {how}"),
        TaskEvent::MessageSent { text, .. } => text.clone(),
        TaskEvent::ErrorReported { error } => error.message.clone(),
        TaskEvent::WorkHandedOff { text } => text.clone(),
        TaskEvent::ProtocolRefused { protocol, problem } => format!("{protocol}: {problem}"),
        TaskEvent::UsageRecorded { usage, cost, .. } => match cost {
            Some(cost) => format!("{} tokens, {cost}", usage.total()),
            None => format!("{} tokens", usage.total()),
        },
        TaskEvent::BudgetWarned { percent } => format!("{percent} % are used"),
        TaskEvent::NotificationRequested { id, notification } => {
            let (on, connection) = (notification.on.as_str(), &notification.connection);
            format!("{id} {on} by {connection} {}", notification.action)
        }
        TaskEvent::NotificationBegun { id } | TaskEvent::Notified { id } => id.clone(),
        TaskEvent::NotificationFailed { id, why } => format!("{id}: {why}"),
        TaskEvent::TaskPaused { why: Some(why), .. } => why.clone(),
        TaskEvent::TaskPaused { reason, why: None } => match reason {
            PauseReason::Person => String::new(),
            PauseReason::Budget | PauseReason::SharedBudget => {
                "the next call might exceed the budget".to_owned()
            }
            PauseReason::Quota => "its work area exceeds its disk limit".to_owned(),
        },
        TaskEvent::TaskFailed { reason } => reason.clone(),
        TaskEvent::BudgetChanged { .. }
        | TaskEvent::TaskResumed {}
        | TaskEvent::TaskCompleted {}
        | TaskEvent::TaskCancelled {} => String::new(),
    }
}

pub(crate) fn outcome_words(outcome: &RunOutcome) -> String {
    match outcome {
        RunOutcome::Done => "done".to_owned(),
        RunOutcome::Failed(why) => format!("failed: {why}"),
        RunOutcome::Blocked(why) => format!("failed, retry would not help: {why}"),
        RunOutcome::Ended => "ended on purpose".to_owned(),
        RunOutcome::RateLimited(until) => format!("the provider is available again at {until}"),
        RunOutcome::Unknown => "its outcome is unknown".to_owned(),
        RunOutcome::NotStarted(why) => format!("not started: {why}"),
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
            let entry: HistoryEntry = serde_json::from_value(entry).unwrap();
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
