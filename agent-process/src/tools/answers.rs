//! Formats the orchestrator's answers for models.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::agents::{
    AgentAnswer, AgentListItem, AgentProposal, AgentSandbox, InstanceListItem,
};
use goondan_protocol::control::{
    ProposalDiff, ProposalInfo, ProposalReview, ProposalState, ScheduleInfo, TaskDetail, TaskInfo,
};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::schedule::ScheduleTime;
use serde_json::json;

use super::bundle_answers;
use super::fault::ToolFault;
use crate::tool_call::ToolOutcome;

/// Maximum bytes of a patch in one answer to the model.
const PATCH_BYTES_TOLD: usize = 32 * 1024;

/// Maximum number of reasons in one answer to the model.
const REFUSALS_TOLD: usize = 100;

/// Maximum number of history lines of a task shown to the model.
const RECENT_TOLD: usize = 10;

/// Formats an answer for the model.
pub(super) fn to_tool_outcome(answer: AgentAnswer) -> Result<ToolOutcome, ToolFault> {
    Ok(match answer {
        AgentAnswer::Answered {
            outcome: TurnOutcome::Completed { reply },
            ..
        } => ToolOutcome::ok(reply),
        AgentAnswer::Answered {
            agent,
            outcome: TurnOutcome::Failed { code, message },
            ..
        } => ToolOutcome::error(format!(
            "E_AGENT_FAILED: agent `{agent}` could not answer: {code}: {message}"
        )),
        AgentAnswer::Accepted {
            agent,
            instance_key,
            event_id,
        } => {
            let fields = json!({"agent": agent, "instanceKey": instance_key, "eventId": event_id});
            ToolOutcome::ok(fields.to_string())
        }
        AgentAnswer::Pending {
            agent,
            event_id,
            reason,
            ..
        } => ToolOutcome::error(format!(
            "E_AGENT_PENDING: agent `{agent}` has not answered yet: {reason}. The request stays \
             open: its answer arrives as a message that names request `{event_id}`. Do not ask again"
        )),
        AgentAnswer::Instances { instances, more } => {
            let mut lines: Vec<String> = instances.iter().map(line_of_instance).collect();
            if more > 0 {
                lines.push(format!("and {more} more"));
            }
            ToolOutcome::ok(lines.join("\n"))
        }
        AgentAnswer::Catalog { agents } => {
            let lines: Vec<String> = agents.iter().map(line_of_agent).collect();
            ToolOutcome::ok(lines.join("\n"))
        }
        AgentAnswer::Restarting {} => ToolOutcome::ok(
            "the process restarts after this turn; the new one handles everything that follows",
        ),
        // Not requested by a tool: approval is decided before the tool runs.
        AgentAnswer::Approval { decision, .. } => ToolOutcome::ok(decision.as_str()),
        AgentAnswer::Sandbox { sandbox } => ToolOutcome::ok(text_of_sandbox(&sandbox)),
        AgentAnswer::Proposal { proposal } => ToolOutcome::ok(text_of_proposal(&proposal)),
        AgentAnswer::Diff { diff } => text_of_diff(&diff)?,
        AgentAnswer::Review { review } => ToolOutcome::ok(text_of_review(&review)),
        AgentAnswer::Applied { applied } => {
            let mut lines = vec![format!(
                "applied {} to the project:",
                applied.proposal.digest
            )];
            lines.extend(applied.files.iter().map(|file| format!("- {file}")));
            ToolOutcome::ok(lines.join("\n"))
        }
        AgentAnswer::Task { task } => ToolOutcome::ok(text_of_task(&task)),
        AgentAnswer::Tasks { tasks, .. } if tasks.is_empty() => {
            ToolOutcome::ok("this conversation has no tasks")
        }
        AgentAnswer::Tasks { tasks, more } => {
            let mut lines: Vec<String> = tasks.iter().map(line_of_task).collect();
            if more > 0 {
                lines.push(format!("and {more} more"));
            }
            ToolOutcome::ok(lines.join("\n"))
        }
        AgentAnswer::Events { events } if events.is_empty() => {
            ToolOutcome::ok("no events of this conversation are stored")
        }
        AgentAnswer::Events { events } => {
            let lines: Vec<String> = events.iter().map(line_of_event).collect();
            ToolOutcome::ok(lines.join("\n"))
        }
        AgentAnswer::Schedule { schedule } => ToolOutcome::ok(line_of_schedule(&schedule)),
        AgentAnswer::Schedules { schedules } if schedules.is_empty() => {
            ToolOutcome::ok("this conversation has no schedules")
        }
        AgentAnswer::Schedules { schedules } => {
            let lines: Vec<String> = schedules.iter().map(line_of_schedule).collect();
            ToolOutcome::ok(lines.join("\n"))
        }
        AgentAnswer::ScheduleEnded { schedule_id } => ToolOutcome::ok(format!(
            "schedule {schedule_id} no longer exists: it was removed, or has run for the last time"
        )),
        AgentAnswer::Bundle { told } => bundle_answers::outcome_of(&told),
        AgentAnswer::Refused { code, message } => ToolOutcome::error(format!("{code}: {message}")),
    })
}

/// One event as JSON, because its texts may come from outside.
fn line_of_event(event: &AgentEvent) -> String {
    let fields = json!({
        "id": event.id, "event": event.kind, "createdAt": event.created_at,
        "source": event.source, "header": event.header, "input": event.input,
    });
    fields.to_string()
}

fn line_of_schedule(schedule: &ScheduleInfo) -> String {
    let mut fields = JsonObject::from_iter([
        ("scheduleId".to_owned(), json!(schedule.schedule_id)),
        ("next".to_owned(), json!(schedule.next)),
        ("input".to_owned(), json!(schedule.input)),
    ]);
    if let ScheduleTime::Cron { cron, time_zone } = &schedule.time {
        fields.insert("cron".to_owned(), json!(cron));
        fields.insert("timeZone".to_owned(), json!(time_zone));
    }
    if !schedule.catch_up.is_default() {
        fields.insert("catchUp".to_owned(), json!(schedule.catch_up));
    }
    json!(fields).to_string()
}

fn text_of_sandbox(sandbox: &AgentSandbox) -> String {
    let mut lines = vec![
        format!("sandbox of {} in run {}", sandbox.agent, sandbox.run_id),
        format!("work (write here): {}", sandbox.work_dir.display()),
        format!("input (read only): {}", sandbox.input_dir.display()),
        format!(
            "proposal (summary.md, test.log): {}",
            sandbox.proposal_dir.display()
        ),
    ];
    if !sandbox.may_create.is_empty() {
        lines.push(format!(
            "new files can be created in: {}",
            sandbox.may_create.join(", ")
        ));
    }
    let state = sandbox.proposal.map_or("none yet", ProposalState::as_str);
    lines.push(format!("proposal: {state}"));
    lines.push("files:".to_owned());
    lines.extend(sandbox.files.iter().map(|file| format!("- {file}")));
    if sandbox.more_files > 0 {
        lines.push(format!("- and {} more", sandbox.more_files));
    }
    lines.join("\n")
}

fn text_of_proposal(proposal: &AgentProposal) -> String {
    let (agent, state) = (&proposal.agent, proposal.state.as_str());
    let mut lines = vec![format!(
        "proposal of {agent} in run {}: {state}",
        proposal.run_id
    )];
    if !proposal.said.is_empty() {
        lines.push(format!("last: {}", proposal.said));
    }
    lines.push(format!("in: {}", proposal.proposal_dir.display()));
    let changed = proposal.changed.iter();
    lines.extend(changed.map(|file| format!("- {} ({})", file.path, file.status.as_str())));
    if proposal.more_changed > 0 {
        lines.push(format!("- and {} more", proposal.more_changed));
    }
    if !proposal.comments.is_empty() {
        lines.push("comments of a person:".to_owned());
    }
    for comment in &proposal.comments {
        lines.push(format!("- {}: {}", comment.place(), comment.text));
        lines.extend(
            comment
                .line_text
                .as_ref()
                .map(|line| format!("    > {line}")),
        );
    }
    lines.join("\n")
}

/// A part of a patch; whole lines, as far as there are some.
fn text_of_diff(diff: &ProposalDiff) -> Result<ToolOutcome, ToolFault> {
    let bytes = STANDARD
        .decode(&diff.data)
        .map_err(|error| ToolFault::new("E_FAILED", format!("the patch is damaged: {error}")))?;
    let mut part = bytes.get(..PATCH_BYTES_TOLD).unwrap_or(&bytes);
    if part.len() < bytes.len() || diff.next.is_some() {
        let end = part.iter().rposition(|byte| *byte == b'\n');
        part = end.and_then(|end| part.get(..=end)).unwrap_or(part);
    }
    let mut text = String::from_utf8_lossy(part).into_owned();
    // The part ends where the next one starts, or at the end of the patch.
    let start = diff
        .next
        .unwrap_or(diff.total)
        .saturating_sub(bytes.len() as u64);
    let next = start.saturating_add(part.len() as u64);
    let left = diff.total.saturating_sub(next);
    if left > 0 {
        text.push_str(&format!(
            "[{left} more bytes: continue with offset {next}]\n"
        ));
    }
    Ok(ToolOutcome::ok(text))
}

fn text_of_review(review: &ProposalReview) -> String {
    let ProposalInfo {
        at,
        digest,
        changed_files,
        ..
    } = &review.proposal;
    let mut lines = vec![
        format!("proposal of {} in run {}", at.agent_id, at.run_id),
        format!("digest: {digest}"),
        format!("changed files: {changed_files}"),
    ];
    if review.can_apply {
        lines.push("you can apply it".to_owned());
        return lines.join("\n");
    }
    lines.push("you cannot apply it:".to_owned());
    let reasons = review.refusals.iter().take(REFUSALS_TOLD);
    lines.extend(reasons.map(|refusal| match &refusal.path {
        Some(path) => format!("- {path}: {}", refusal.reason),
        None => format!("- {}", refusal.reason),
    }));
    let more = review.refusals.len().saturating_sub(REFUSALS_TOLD);
    if more > 0 {
        lines.push(format!("- and {more} more reasons"));
    }
    lines.join("\n")
}

fn line_of_instance(instance: &InstanceListItem) -> String {
    let InstanceListItem {
        instance_key,
        agent,
        status,
        pending_events,
    } = instance;
    let mut line = format!("{instance_key}: agent {agent}, {status}");
    if *pending_events > 0 {
        line.push_str(&format!(", {pending_events} waiting"));
    }
    line
}

fn line_of_agent(agent: &AgentListItem) -> String {
    let mut line = agent.name.to_string();
    if agent.is_entry {
        line.push_str(" (conversations begin with it)");
    }
    if let Some(description) = &agent.description {
        line.push_str(": ");
        line.push_str(description.trim());
    }
    if !agent.tools.is_empty() {
        let tools: Vec<&str> = agent.tools.iter().map(AsRef::as_ref).collect();
        line.push_str(&format!(" [tools: {}]", tools.join(", ")));
    }
    line
}

/// Formats a task for the model.
fn text_of_task(task: &TaskDetail) -> String {
    let info = &task.info;
    let mut lines = vec![line_of_task(info)];
    if let Some(failure) = &task.failure {
        lines.push(format!("failed: {failure}"));
    }
    if let Some(damaged) = &info.damaged {
        lines.push(format!("failed to use its work area: {damaged}"));
    }
    for ask in &task.asks {
        let what = &ask.text;
        lines.push(format!("a person is asked ({}): {what}", ask.id));
    }
    if let Some(phase) = task.review {
        lines.push(format!("phase {phase} waits for a person's review"));
    }
    lines.push(format!("work area: {}", task.work_area.display()));
    if !task.documents.is_empty() {
        lines.push("documents:".to_owned());
        lines.extend(task.documents.iter().map(|file| format!("- {file}")));
    }
    let untold = task.recent.len().saturating_sub(RECENT_TOLD);
    lines.push("latest events:".to_owned());
    lines.extend(task.recent.iter().skip(untold).map(|happened| {
        let event = happened.event.replace('_', " ");
        match happened.detail.as_str() {
            "" => format!("- {} {event}", happened.at),
            detail => format!("- {} {event}: {detail}", happened.at),
        }
    }));
    lines.join("\n")
}

/// Formats a task as one line.
fn line_of_task(info: &TaskInfo) -> String {
    let mut line = format!(
        "{}: {} ({}), {}",
        info.task_id,
        info.title,
        info.agent,
        info.status.as_str()
    );
    if info.total_phases > 0 {
        let (phase, of) = (info.current_phase, info.total_phases);
        line.push_str(&format!(", phase {phase} of {of}"));
    }
    if info.tokens > 0 {
        line.push_str(&format!(", {} tokens", info.tokens));
    }
    line
}

#[cfg(test)]
mod tests {
    use goondan_protocol::agents::AgentAnswer;

    use super::to_tool_outcome;

    #[test]
    fn task_8_model_reads_task_status_and_open_questions() {
        let answer: AgentAnswer = serde_json::from_value(serde_json::json!({
            "status": "task",
            "task": {
                "info": {
                    "workspaceId": "w", "taskId": "menu-1f", "title": "Menu", "type": "delegated", "agent": "coder",
                    "status": "waiting_question", "blockedBy": "question", "currentPhase": 1, "totalPhases": 2,
                    "progress": 40, "tokens": 1200, "cost": 0, "createdBy": "main",
                    "createdAt": "2026-11-24T10:00:00.000Z", "updatedAt": "2026-11-24T10:00:00.000Z",
                },
                "description": "Write it.", "workArea": "/t/menu-1f", "runs": 1, "budget": {},
                "usage": {"inputTokens": 1000, "outputTokens": 200},
                "asks": [{"id": "q1", "kind": "question", "text": "Which soup?"}],
                "documents": ["docs/menu.md"],
                "recent": [{"at": "2026-11-24T10:00:00.000Z", "event": "question_asked", "detail": "q1 Which soup?"}],
            },
        }))
        .unwrap();
        let text = to_tool_outcome(answer).ok().unwrap().text;
        assert_eq!(
            text,
            "menu-1f: Menu (coder), waiting_question, phase 1 of 2, 1200 tokens\n\
             a person is asked (q1): Which soup?\n\
             work area: /t/menu-1f\n\
             documents:\n\
             - docs/menu.md\n\
             latest events:\n\
             - 2026-11-24T10:00:00.000Z question asked: q1 Which soup?"
        );
    }
}
