//! Health problems as reported by `gdn daemon status`, `gdn ps` and their exit codes (`OBS-6`).

use goondan_protocol::control::{
    DaemonStatus, ModelFailures, ProcessState, Readiness, ReplicationStall, UnhealthyProcess,
    WorkspaceInfo, WorkspacePermission,
};
use goondan_protocol::shell::shell_quoted;
use goondan_protocol::time::Timestamp;

use super::active_configuration::{self, ActiveConfig};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::Cell;
use crate::output::text;

/// Cell of a workspace in the column STATE.
pub(super) fn state_of(workspace: &WorkspaceInfo) -> Cell {
    match workspace.problem {
        Some(_) if workspace.last_known_good => Cell::styled("last known good", style::WARN),
        Some(_) => Cell::styled("problem", style::BAD),
        None if workspace.is_healthy() => Cell::styled("ok", style::GOOD),
        None => Cell::styled("degraded", style::BAD),
    }
}

/// Prints a workspace's problems to stderr, if any.
pub(super) fn report(workspace: &WorkspaceInfo, context: &Context) {
    let id = &workspace.workspace_id;
    if let Some(problem) = &workspace.problem {
        active_configuration::warn(id, problem, &ActiveConfig::of(workspace), context);
    }
    let output = context.output;
    for remark in remarks(workspace, context) {
        let warning = match remark.is_warning {
            true => output.err.paint(style::WARN, "warning:") + " ",
            false => String::new(),
        };
        output.note(format!("{warning}{id}{}", remark.text));
    }
}

/// Remark about a workspace that a user should see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthNote {
    /// True if something is wrong; false if something needs a decision.
    pub(super) is_warning: bool,
    /// Text that follows the workspace's name.
    pub(super) text: String,
}

/// Remarks about a workspace, except for configuration problems.
pub(super) fn remarks(workspace: &WorkspaceInfo, context: &Context) -> Vec<HealthNote> {
    let id = &workspace.workspace_id;
    let command = |words: &str| context.daemon_command(&format!("--workspace {id} {words}"));
    let mut remarks = Vec::new();
    let mut warn = |text| {
        remarks.push(HealthNote {
            is_warning: true,
            text,
        });
    };
    if let Some(silence) = &workspace.unacknowledged {
        warn(format!(": {}", unacknowledged(silence)));
    }
    for process in &workspace.unhealthy {
        warn(format!(": {}", text::printable(&unhealthy_text(process))));
    }
    let listed = workspace.unhealthy.len();
    let more = workspace.unhealthy_total.saturating_sub(listed);
    if more > 0 {
        warn(format!(": and {} more", text::count(more, "process")));
    }
    for (model, reason) in &workspace.suspended {
        warn(format!(": model {model}: {}", text::one_line(reason)));
    }
    for (model, failures) in &workspace.failing {
        let (lasting, show) = (
            failing(model.as_str(), failures),
            settings_of(workspace, context),
        );
        warn(format!(": {lasting}; source of the value: `{show}`"));
    }
    if workspace.parked_events > 0 {
        warn(format!(": {}", parked(workspace)));
    }
    for task in &workspace.failed_drills {
        let show = command(&format!("task show {task}"));
        warn(format!(
            ": the newest checkpoint of task {task} could not be restored in a drill: `{show}`"
        ));
    }
    let listed = workspace.failed_drills.len();
    let more = workspace.failed_drills_total.saturating_sub(listed);
    if more > 0 {
        let list = command("task list");
        warn(format!(
            ": and of {}: `{list}`",
            text::count(more, "more task")
        ));
    }
    for (key, problem) in &workspace.bundle_problems {
        let key = shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
        let show = command(&format!("conversation bundle status {key}"));
        let problem = text::one_line(problem);
        warn(format!(", conversation {key}: {problem}: `{show}`"));
    }
    let listed = workspace.bundle_problems.len();
    let more = workspace.bundle_problems_total.saturating_sub(listed);
    if more > 0 {
        warn(format!(", and {}", text::count(more, "more conversation")));
    }
    remarks.extend(waiting(workspace, command));
    remarks
}

/// Remarks about items that need a decision by a person.
fn waiting(workspace: &WorkspaceInfo, command: impl Fn(&str) -> String) -> Vec<HealthNote> {
    let verb = |count| if count == 1 { "waits" } else { "wait" };
    let mut texts = Vec::new();
    if workspace.questions > 0 {
        let count = text::count(workspace.questions, "question");
        let (verb, list) = (verb(workspace.questions), command("inbox question list"));
        texts.push(format!(": {count} {verb} for an answer: `{list}`"));
    }
    for need in &workspace.consents {
        let list = command("secret oauth list");
        texts.push(format!(": {need} needs a login: `{list}`"));
    }
    for permission in &workspace.undecided_permissions {
        let allow = command(&format!("workspace permission allow {permission}"));
        let effect = match permission {
            WorkspacePermission::Project => {
                "agents do not work in the project directory, because no person has decided"
            }
            WorkspacePermission::Network => {
                "connector modules have no network, because no person has decided"
            }
            WorkspacePermission::Packages => {
                "servers are not downloaded, because no person has decided"
            }
        };
        texts.push(format!(": {effect}: `{allow}`, or `deny`"));
    }
    if workspace.paused_events > 0 {
        let verb = if workspace.paused_events == 1 {
            "is"
        } else {
            "are"
        };
        let (count, list) = (
            text::count(workspace.paused_events, "event"),
            command("event list"),
        );
        texts.push(format!(": {count} {verb} paused: `{list}`"));
    }
    if workspace.approvals > 0 {
        let count = text::count(workspace.approvals, "tool call");
        let (verb, list) = (verb(workspace.approvals), command("inbox approvals"));
        texts.push(format!(": {count} {verb} for your approval: `{list}`"));
    }
    if workspace.unknown_calls > 0 {
        let count = text::count(workspace.unknown_calls, "tool call");
        let list = command("inbox calls");
        texts.push(format!(": {count} with an unknown outcome: `{list}`"));
    }
    let remark = |text| HealthNote {
        is_warning: false,
        text,
    };
    texts.into_iter().map(remark).collect()
}

/// `nothing is acknowledged for 12 s: password authentication failed`.
pub(super) fn unacknowledged(silence: &ReplicationStall) -> String {
    let age = text::age(silence.since, text::now());
    let reason = text::one_line(&silence.reason);
    format!("nothing is acknowledged for {age}: {reason}")
}

/// `model voice: 12 calls in a row failed in 11 min: … answered 401; check the apiKey of …`.
pub(super) fn failing(model: &str, failures: &ModelFailures) -> String {
    let age = text::age(failures.since, text::now());
    let next = failures.suggestion.iter();
    let next: String = next.map(|next| format!("; {next}")).collect();
    let reason = format!("{}{next}", failures.reason);
    format!(
        "model {model}: {} calls in a row failed in {age}: {}",
        failures.calls,
        text::one_line(&reason)
    )
}

/// Command that shows where the settings of a workspace come from.
pub(super) fn settings_of(workspace: &WorkspaceInfo, context: &Context) -> String {
    let root = shell_quoted(&workspace.project_root.to_string_lossy());
    let root = root.unwrap_or_else(|| "DIR".to_owned());
    context.daemon_command(&format!("config show {root}"))
}

/// `2 events are parked: their turns crash whoever works on them`.
fn parked(workspace: &WorkspaceInfo) -> String {
    match workspace.parked_events {
        1 => "1 event is parked: its turn keeps crashing processes".to_owned(),
        more => format!("{more} events are parked: their turns keep crashing processes"),
    }
}

/// `connector hook is not ready: cannot listen on 127.0.0.1:8787: …`.
pub(super) fn unhealthy_text(process: &UnhealthyProcess) -> String {
    let mut told = format!("{} {}", process.role.as_str(), process.name);
    if let Some(key) = &process.instance_key {
        told.push_str(&format!(", conversation {key}"));
    }
    told.push_str(match (process.state, process.readiness) {
        (ProcessState::CrashLoopBackOff, _) => " keeps crashing",
        (_, Some(Readiness::NotReady)) => " is not ready",
        _ => " is unhealthy",
    });
    if let Some(detail) = &process.detail {
        told.push_str(&format!(": {detail}"));
    }
    told
}

/// Time for which dropped log lines count as a problem, in milliseconds.
const DROPPED_LATELY_MS: i64 = 10 * 60 * 1_000;

/// Verdict on the daemon and everything it runs.
pub(super) fn verdict_of_all(status: &DaemonStatus, context: &Context) -> Result<(), Failure> {
    if status.restored.is_some() {
        return Err(Failure::new(
            Exit::Degraded,
            "no process starts, because the state root was restored from a backup",
            format!(
                "check the restored state, then run `{}`",
                context.daemon_command("daemon backup resume")
            ),
        ));
    }
    verdict(&status.workspaces, context)?;
    let age_ms = |at: Timestamp| text::now().as_unix_millis() - at.as_unix_millis();
    let is_late = |at: Timestamp| age_ms(at) <= DROPPED_LATELY_MS;
    if !status.log_lines_dropped_at.is_some_and(is_late) {
        return Ok(());
    }
    let dropped = text::count(status.dropped_log_lines, "log line");
    Err(Failure::new(
        Exit::Degraded,
        format!("the log has gaps: {dropped} dropped, most recently in the last 10 minutes"),
        "read the daemon's stdout faster, or log to files: `--log-dir`",
    ))
}

/// Fails if a workspace is unhealthy.
pub(super) fn verdict(workspaces: &[WorkspaceInfo], context: &Context) -> Result<(), Failure> {
    let unwell: Vec<&WorkspaceInfo> = workspaces.iter().filter(|w| !w.is_healthy()).collect();
    let Some(first) = unwell.first() else {
        return Ok(());
    };
    let message = match unwell.len() {
        1 => format!("workspace {} is degraded", first.workspace_id),
        more => format!("{more} workspaces are degraded"),
    };
    let mut hints = Vec::new();
    if unwell.iter().any(|w| w.problem.is_some()) {
        hints.push("check the configuration: `gdn validate`".to_owned());
    }
    if unwell.iter().any(|w| w.unacknowledged.is_some()) {
        let doctor = context.daemon_command("doctor");
        hints.push(format!("check the log server: `{doctor}`"));
    }
    if unwell.iter().any(|w| w.unhealthy_total > 0) {
        let (ps, logs) = (
            context.daemon_command("ps --all"),
            context.daemon_command("logs --all"),
        );
        hints.push(format!("check the processes: `{ps}`, `{logs}`"));
    }
    if let Some(of) = unwell.iter().find(|w| w.parked_events > 0) {
        let list = format!("--workspace {} event list --parked", of.workspace_id);
        let list = context.daemon_command(&list);
        hints.push(format!("list parked events with the reason: `{list}`"));
    }
    if unwell.iter().any(|w| !w.failing.is_empty()) {
        let logs = context.daemon_command("logs --all");
        hints.push(format!("check the credentials of the models: `{logs}`"));
    }
    let mut failure = Failure::new(Exit::Degraded, message, hints.join("; "));
    failure.causes = unwell
        .iter()
        .flat_map(|workspace| {
            let problem = workspace.problem.iter();
            let problem = problem.filter_map(|problem| problem.message.lines().next());
            let processes = workspace.unhealthy.iter().map(unhealthy_text);
            let parked = (workspace.parked_events > 0).then(|| parked(workspace));
            let silence = workspace.unacknowledged.as_ref().map(unacknowledged);
            let problem = problem.map(str::to_owned).chain(silence);
            let models = workspace.failing.iter();
            let models = models.map(|(model, failures)| failing(model.as_str(), failures));
            problem.chain(processes).chain(models).chain(parked)
        })
        .filter(|_| context.output.is_json())
        .collect();
    Err(failure)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn obs_6_unhealthy_process_is_named_with_its_reason() {
        let process = |more: serde_json::Value| {
            let mut process = json!({"role": "connector", "name": "hook", "state": "idle"});
            let fields = more.as_object().unwrap().clone();
            process.as_object_mut().unwrap().extend(fields);
            unhealthy_text(&serde_json::from_value(process).unwrap())
        };
        assert_eq!(
            process(json!({"readiness": "notReady", "detail": "cannot listen"})),
            "connector hook is not ready: cannot listen"
        );
        assert_eq!(
            process(json!({
                "role": "agent", "name": "clerk", "instanceKey": "main",
                "state": "crashLoopBackOff", "detail": "exit code 1",
            })),
            "agent clerk, conversation main keeps crashing: exit code 1"
        );
    }
}
