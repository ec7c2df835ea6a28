//! `gdn task list`: lists tasks, those that need a person first.

use clap::Args;
use goondan_protocol::control::{BLOCKED_BY_APPROVAL, BLOCKED_BY_QUEUE, ListTasks, TaskInfo};
use goondan_protocol::task::TaskStatus;
use goondan_protocol::time::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct TaskListArgs {
    /// Only tasks that wait for you
    #[arg(long)]
    needs_me: bool,
    /// Include finished tasks
    #[arg(long)]
    all: bool,
    /// Include every workspace
    #[arg(long)]
    all_workspaces: bool,
}

pub(super) async fn run(args: &TaskListArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace_id) = context.open_scope(args.all_workspaces).await?;
    let list = ListTasks {
        workspace_id,
        needs_me: args.needs_me,
        all: args.all,
        ..ListTasks::default()
    };
    let mut tasks = client.all(list).await?;
    // Tasks that have needed a person longest come first; the others follow, most recently updated first.
    tasks.sort_by_key(|info| {
        let updated = info.updated_at.map_or(0, Timestamp::as_unix_millis);
        match (info.needs_person(), info.status.is_final()) {
            (true, _) => (0, updated),
            (false, is_final) => (1 + u8::from(is_final), updated.saturating_neg()),
        }
    });
    let output = context.output;
    output.object(schemas::TASK_LIST, &json!({ "tasks": tasks }))?;
    if tasks.is_empty() {
        return output.data(match (args.needs_me, args.all) {
            (true, _) => "No tasks wait for you.",
            (false, false) => "No unfinished tasks.",
            (false, true) => "No tasks.",
        });
    }
    let table = table_of(&tasks, args.all_workspaces, text::now());
    output.data(table.render(output.canvas()))?;
    for info in &tasks {
        note_held(info, context);
        if let Some(warning) = &info.warning {
            let line = format!("{}: {}", info.task_id, text::one_line(warning));
            output.note(output.err.paint(style::WARN, &line));
        }
    }
    if tasks.iter().any(TaskInfo::needs_person) {
        let show = context.command("task show TASK");
        output.note(format!("Show a task and its decisions: {show}"));
    }
    Ok(())
}

/// Says why the merge queue holds the proposal of a task, if it does, and what ends the hold.
pub(in crate::commands) fn note_held(info: &TaskInfo, context: &Context) {
    if let Some(why) = &info.held {
        let id = &info.task_id;
        let release = format!("--workspace {} task queue release {id}", info.workspace_id);
        let release = context.daemon_command(&release);
        let line = format!(
            "{id}: held in the merge queue: {}; release it: {release}",
            text::one_line(why)
        );
        let output = context.output;
        output.note(output.err.paint(style::WARN, &line));
    }
}

/// True if its agent waits for the approval of a tool call.
fn is_approval(info: &TaskInfo) -> bool {
    info.blocked_by.as_deref() == Some(BLOCKED_BY_APPROVAL)
}

/// True if its proposal waits in the merge queue.
fn is_queued(info: &TaskInfo) -> bool {
    info.blocked_by.as_deref() == Some(BLOCKED_BY_QUEUE)
}

/// State of a task in one or two words.
pub(super) fn status_word(info: &TaskInfo) -> &'static str {
    if info.damaged.is_some() {
        return "damaged";
    }
    match info.status {
        TaskStatus::WaitingDependency => "needs something",
        TaskStatus::WaitingQuestion => "asks",
        TaskStatus::WaitingReview if is_queued(info) => "queued",
        TaskStatus::WaitingReview if info.held.is_some() => "held",
        TaskStatus::WaitingReview => "to review",
        TaskStatus::Paused
            if matches!(info.blocked_by.as_deref(), Some("budget" | "shared_budget")) =>
        {
            "over budget"
        }
        TaskStatus::Paused if info.blocked_by.as_deref() == Some("quota") => "over quota",
        TaskStatus::Running if is_approval(info) => "to approve",
        TaskStatus::Running if info.blocked_by.as_deref() == Some("rate_limit") => "rate limited",
        other => other.as_str(),
    }
}

/// State of a task, in color.
pub(super) fn status_of(info: &TaskInfo) -> Cell {
    let style = match info.status {
        _ if info.damaged.is_some() => style::BAD,
        TaskStatus::Running if is_approval(info) => style::WARN,
        TaskStatus::WaitingReview if is_queued(info) => style::GOOD,
        TaskStatus::Running | TaskStatus::Completed => style::GOOD,
        TaskStatus::Failed => style::BAD,
        TaskStatus::Idle | TaskStatus::Cancelled => style::FAINT,
        _ => style::WARN,
    };
    Cell::styled(status_word(info), style)
}

/// Progress of a task: `2/3 40 %`.
fn phase_of(info: &TaskInfo) -> String {
    match (info.total_phases, info.progress) {
        (0, 0) => String::new(),
        (0, percent) => format!("{percent} %"),
        (all, 0) => format!("{}/{all}", info.current_phase),
        (all, percent) => format!("{}/{all} {percent} %", info.current_phase),
    }
}

fn table_of(tasks: &[TaskInfo], is_of_all: bool, now: Timestamp) -> Table {
    let workspace = is_of_all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("TASK").cut(),
        Column::new("STATE"),
        Column::new("PHASE").below(3, "phase"),
        Column::new("AGENT").cut().below(2, "agent"),
        Column::new("TOKENS").below(4, "tokens"),
        Column::new("COST").below(5, "cost"),
        Column::new("MOVED").below(1, "moved"),
        Column::new("TITLE").below(6, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for info in tasks {
        let title = info.damaged.as_ref().unwrap_or(&info.title);
        // Only the id is known of a task that was never readable.
        let known = |text: String| {
            let is_known = info.updated_at.is_some();
            Cell::from(if is_known { text } else { "-".to_owned() })
        };
        let moved = info
            .updated_at
            .map_or_else(String::new, |at| format!("{} ago", text::age(at, now)));
        let cells = [
            Cell::from(&info.task_id),
            status_of(info),
            phase_of(info).into(),
            known(info.agent.to_string()),
            known(info.tokens.to_string()),
            known(info.cost.to_string()),
            known(moved),
            text::one_line(title).into(),
        ];
        let workspace = is_of_all.then(|| Cell::from(&info.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::output::table::at_three_widths;
    use goondan_protocol::usage::MicroUsd;

    pub(in super::super) fn info(id: &str, status: TaskStatus) -> TaskInfo {
        TaskInfo {
            workspace_id: "w".parse().unwrap(),
            task_id: id.parse().unwrap(),
            title: "Build a small web shop".to_owned(),
            kind: "create_app".to_owned(),
            agent: "claude".parse().unwrap(),
            status,
            blocked_by: None,
            held: None,
            current_phase: 2,
            total_phases: 3,
            progress: 40,
            tokens: 182_000,
            cost: MicroUsd(1_250_000),
            created_by: None,
            created_at: Some(Timestamp::from_unix_millis(0)),
            updated_at: Some(Timestamp::from_unix_millis(60_000)),
            warning: None,
            damaged: None,
        }
    }

    #[test]
    fn task_list_fits_the_terminal_and_shows_wait_reasons() {
        let mut held = info("held", TaskStatus::Paused);
        held.blocked_by = Some("budget".to_owned());
        let mut damaged = info("broken", TaskStatus::Idle);
        damaged.damaged = Some("history.jsonl: line 3 is damaged".to_owned());
        // A damaged task as listed by the daemon.
        damaged.title = String::new();
        damaged.updated_at = None;
        let mut queued = info("queued", TaskStatus::WaitingReview);
        queued.held = Some("`verify` could not be run".to_owned());
        let tasks = [
            info("shop", TaskStatus::WaitingQuestion),
            held,
            damaged,
            info("done", TaskStatus::Completed),
            queued,
        ];
        let now = Timestamp::from_unix_millis(120_000);
        let shown = at_three_widths(|canvas| table_of(&tasks, false, now).render(canvas));
        for said in [
            "asks",
            "over budget",
            "damaged",
            "completed",
            "held",
            "2/3 40 %",
        ] {
            assert!(shown.contains(said), "{said}:\n{shown}");
        }
        assert!(
            !shown.contains("2m ago"),
            "nothing is known of it:\n{shown}"
        );
        assert!(tasks[4].needs_person());
        assert!(tasks[1].needs_person() && tasks[2].needs_person() && !tasks[3].needs_person());
    }
}
