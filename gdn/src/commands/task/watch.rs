//! `gdn task watch`: the work of a task's agent as it happens, and the task's own events (`AGENT-7`).

use std::collections::BTreeSet;

use anstyle::Style;
use clap::Args;
use goondan_protocol::control::{ErrorCode, TaskDetail, WatchTask};
use goondan_protocol::task::{
    ChangedFile, PlanStep, PlanStepState, TaskItem, TaskItemContent, TaskStatus, ToolState,
};
use serde_json::json;

use super::TaskAtArgs;
use crate::client::{CallError, RequestTimeout};
use crate::commands::follow;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style::{self, Palette};
use crate::output::text;
use crate::schemas;

/// Maximum lines of a command's output that are shown; the last ones are shown.
const OUTPUT_LINES_SHOWN: usize = 10;

/// Maximum lines of a diff that are shown.
const DIFF_LINES_SHOWN: usize = 40;

/// Width of the column with the kind of an item.
const KIND_COLUMNS: usize = 8;

/// Events after which a person must act.
const WAITS: [&str; 3] = ["question_asked", "dependency_requested", "review_requested"];

#[derive(Debug, Args)]
pub(crate) struct TaskWatchArgs {
    #[command(flatten)]
    at: TaskAtArgs,
    /// Begin with everything that is kept, not with the latest run
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(args: TaskWatchArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, mut workspace) = context.open().await?;
    let mut after = args.all.then_some(0);
    let mut view = View::new(context.output.out);
    let mut has_read = false;
    loop {
        let watch = WatchTask {
            workspace_id: workspace.workspace_id.clone(),
            task_id: args.at.task.clone(),
            after,
            wait: true,
        };
        let part = match client
            .watch(watch, RequestTimeout::Endless, &mut |_| {})
            .await
        {
            Ok(part) => part,
            Err(CallError::Lost { .. }) => {
                context.output.note(follow::LOST);
                (client, workspace) = follow::reopened(context).await;
                continue;
            }
            Err(CallError::Refused(refused))
                if has_read && refused.code == ErrorCode::WorkspaceNotFound =>
            {
                context.output.note("The project is stopped.");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        // Older items than those that are kept were not asked for by position.
        let is_gap = part.skipped_bytes > 0 && has_read;
        has_read = true;
        if is_gap {
            let bytes = part.skipped_bytes;
            let gap = json!({"type": "gap", "bytes": bytes});
            context.output.object(schemas::TASK_WATCH, &gap)?;
            let size = text::bytes(bytes);
            let note = format!("[{size} of the stream are missing: they are no longer kept]");
            context.output.note(note);
        }
        for item in &part.items {
            show(item, &mut view, &args, context)?;
        }
        after = Some(part.next);
        if part.is_over {
            let workspace_id = workspace.workspace_id;
            let detail = super::read(&mut client, workspace_id, args.at.task).await?;
            return outcome(&detail, context);
        }
    }
}

fn show(
    item: &TaskItem,
    view: &mut View,
    args: &TaskWatchArgs,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::TASK_WATCH, item)?;
    let lines = view.lines(item);
    if !lines.is_empty() {
        output.data(lines)?;
    }
    if let TaskItemContent::Event { event, .. } = &item.content
        && WAITS.contains(&event.as_str())
    {
        let command = context.command(&format!("task show {}", args.at.task));
        output.note(format!("Waits for you: {command}"));
    }
    Ok(())
}

/// Fails if the task's files cannot be read, so that its logs do not grow.
pub(super) fn check_readable(detail: &TaskDetail, context: &Context) -> Result<(), Failure> {
    let Some(why) = &detail.info.damaged else {
        return Ok(());
    };
    let task = &detail.info.task_id;
    let message = format!("task {task} cannot be read: {}", text::one_line(why));
    let verify = context.command("daemon verify --repair");
    Err(Failure::new(
        Exit::Damaged,
        message,
        format!("repair its files: `{verify}`"),
    ))
}

/// The exit code says how the task ended.
fn outcome(detail: &TaskDetail, context: &Context) -> Result<(), Failure> {
    check_readable(detail, context)?;
    let task = &detail.info.task_id;
    let show = context.command(&format!("task show {task}"));
    match detail.info.status {
        TaskStatus::Failed => {
            let why = detail.failure.as_deref().unwrap_or("without a reason");
            let message = format!("task {task} failed: {}", text::one_line(why));
            let send = context.command(&format!("task send {task} TEXT"));
            let hint = format!("see why: `{show}`; `{send}` continues it");
            Err(Failure::new(Exit::TaskFailed, message, hint))
        }
        TaskStatus::Cancelled => {
            let message = format!("task {task} was canceled");
            let hint = format!("see how it was: `{show}`");
            Err(Failure::new(Exit::TaskCancelled, message, hint))
        }
        _ => Ok(()),
    }
}

/// Renders items as lines: time, kind, and content that is aligned below each other.
struct View {
    palette: Palette,
    /// Open commands that were shown at their start.
    begun: BTreeSet<String>,
}

impl View {
    fn new(palette: Palette) -> Self {
        Self {
            palette,
            begun: BTreeSet::new(),
        }
    }

    /// Lines of an item; empty if there is nothing to show yet.
    fn lines(&mut self, item: &TaskItem) -> String {
        let (kind, tone, lines): (&str, Style, Vec<String>) = match &item.content {
            TaskItemContent::Text { text } => ("text", style::PLAIN, all_of(text)),
            TaskItemContent::Thinking { text } => ("thinking", style::FAINT, all_of(text)),
            TaskItemContent::Output { text } => ("output", style::FAINT, all_of(text)),
            TaskItemContent::Plan { steps } => {
                ("plan", style::PLAIN, steps.iter().map(step_line).collect())
            }
            TaskItemContent::Command {
                id,
                state: ToolState::Started,
                command,
                ..
            } => {
                if command.is_empty() || !self.begun.insert(id.clone()) {
                    return String::new();
                }
                ("command", style::TITLE, all_of(command))
            }
            TaskItemContent::Command {
                id,
                state,
                command,
                exit,
                output,
            } => {
                let mut before = String::new();
                if !self.begun.remove(id) {
                    before = self.rendered(item, "command", style::TITLE, &all_of(command));
                }
                let ended = match (exit, state) {
                    (Some(code), _) => format!("exit {code}"),
                    (None, ToolState::Failed) => "failed".to_owned(),
                    (None, _) => "done".to_owned(),
                };
                let tone = match state {
                    ToolState::Failed => style::BAD,
                    ToolState::Started | ToolState::Completed => style::FAINT,
                };
                let mut lines = vec![ended];
                lines.extend(last_of(output));
                return before + &self.rendered(item, "", tone, &lines);
            }
            TaskItemContent::FileChange {
                state: ToolState::Started,
                ..
            } => return String::new(),
            TaskItemContent::FileChange { state, files, .. } => {
                let tone = match state {
                    ToolState::Failed => style::BAD,
                    ToolState::Started | ToolState::Completed => style::PLAIN,
                };
                let mark = match state {
                    ToolState::Failed => "failed: ",
                    ToolState::Started | ToolState::Completed => "",
                };
                let lines = files.iter().flat_map(|file| change_lines(mark, file));
                let lines: Vec<String> = lines.collect();
                ("file", tone, lines)
            }
            TaskItemContent::Tool {
                name,
                state: ToolState::Started,
                input,
                ..
            } => {
                let call = format!("{name} {}", text::one_line(input));
                ("tool", style::PLAIN, vec![call.trim_end().to_owned()])
            }
            TaskItemContent::Tool {
                name,
                state: ToolState::Failed,
                output,
                ..
            } => {
                let mut lines = vec![format!("{name} failed")];
                lines.extend(last_of(output));
                ("tool", style::BAD, lines)
            }
            TaskItemContent::Tool { .. } => return String::new(),
            TaskItemContent::Usage { usage, cost } => {
                let tokens = text::count(usage.total(), "token");
                let cost = cost.map(|cost| format!(", {cost}")).unwrap_or_default();
                ("usage", style::FAINT, vec![format!("{tokens}{cost}")])
            }
            TaskItemContent::Result { is_ok: true, .. } => {
                ("result", style::GOOD, vec!["done".to_owned()])
            }
            TaskItemContent::Result { text, .. } => ("result", style::BAD, all_of(text)),
            TaskItemContent::Problem { text } => ("problem", style::BAD, all_of(text)),
            TaskItemContent::Event { event, detail } => {
                let event = event.replace('_', " ");
                let line = match detail.as_str() {
                    "" => event,
                    detail => format!("{event}: {detail}"),
                };
                ("task", style::TITLE, all_of(&line))
            }
            TaskItemContent::Gap { items } => {
                let items = text::count(*items, "item");
                let line = format!("{items} missing: they came too fast");
                ("gap", style::WARN, vec![line])
            }
        };
        self.rendered(item, kind, tone, &lines)
    }

    fn rendered(&self, item: &TaskItem, kind: &str, tone: Style, lines: &[String]) -> String {
        let clock = text::clock(item.at);
        let time = clock.split_once(' ').map_or(&*clock, |(_, time)| time);
        let indent = " ".repeat(time.len() + KIND_COLUMNS + 4);
        let mut shown = String::new();
        for (index, line) in lines.iter().enumerate() {
            if index == 0 {
                let time = self.palette.paint(style::FAINT, time);
                shown.push_str(&format!("{time}  {kind:<KIND_COLUMNS$}  "));
            } else {
                shown.push_str(&indent);
            }
            let tone = match line.as_bytes() {
                _ if kind != "file" => tone,
                [b'+', ..] => style::GOOD,
                [b'-', ..] => style::BAD,
                _ => tone,
            };
            shown.push_str(&self.palette.paint(tone, line));
            shown.truncate(shown.trim_end_matches(' ').len());
            shown.push('\n');
        }
        shown
    }
}

fn change_lines(mark: &str, file: &ChangedFile) -> Vec<String> {
    let mut lines = vec![format!("{mark}{}", text::one_line(&file.path))];
    // The first lines repeat the path.
    let diff = file.diff.lines();
    let diff = diff.filter(|line| !line.starts_with("--- ") && !line.starts_with("+++ "));
    let diff: Vec<&str> = diff.collect();
    let more = diff.len().saturating_sub(DIFF_LINES_SHOWN);
    let shown = diff.iter().take(DIFF_LINES_SHOWN);
    lines.extend(shown.map(|line| (*line).to_owned()));
    if more > 0 {
        lines.push(format!("[{} more]", text::count(more, "line")));
    }
    lines
}

fn all_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The last lines of an output, with a note about the omitted ones.
fn last_of(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    let beyond = lines.len().saturating_sub(OUTPUT_LINES_SHOWN);
    let note = (beyond > 0).then(|| format!("[{} before]", text::count(beyond, "line")));
    let shown = lines.into_iter().skip(beyond).map(str::to_owned);
    note.into_iter().chain(shown).collect()
}

fn step_line(step: &PlanStep) -> String {
    let mark = match step.state {
        PlanStepState::Pending => "[ ]",
        PlanStepState::InProgress => "[>]",
        PlanStepState::Completed => "[x]",
    };
    format!("{mark} {}", text::one_line(&step.title))
}

#[cfg(test)]
mod tests {
    use goondan_protocol::time::Timestamp;

    use super::*;

    #[test]
    fn agent_7_items_are_aligned_and_a_command_is_shown_once() {
        let mut view = View::new(Palette::new(false));
        let item = |content| TaskItem {
            at: Timestamp::from_unix_millis(0),
            run: Some(1),
            content,
        };
        let command = |state, output: &str| TaskItemContent::Command {
            id: "c".to_owned(),
            state,
            command: "npm test".to_owned(),
            exit: (state != ToolState::Started).then_some(1),
            output: output.to_owned(),
        };
        let mut shown = |content| {
            let lines = view.lines(&item(content));
            let lines = lines.lines().map(|line| {
                // Without the time, which depends on the time zone.
                let (_, rest) = line.split_at(8);
                rest.to_owned()
            });
            lines.collect::<Vec<String>>()
        };
        let text = "I begin.\nNow.".to_owned();
        let lines = shown(TaskItemContent::Text { text });
        assert_eq!(lines, ["  text      I begin.", "            Now."]);
        let lines = shown(command(ToolState::Started, ""));
        assert_eq!(lines, ["  command   npm test"]);
        let output: String = (0..12).map(|line| format!("{line}\n")).collect();
        let lines = shown(command(ToolState::Failed, &output));
        assert_eq!(lines[0], "            exit 1");
        assert_eq!(lines[1], "            [2 lines before]");
        assert_eq!(lines.len(), 12);
        // Without a start, the command comes with its end.
        let lines = shown(command(ToolState::Completed, "ok"));
        assert_eq!(
            lines,
            [
                "  command   npm test",
                "            exit 1",
                "            ok"
            ]
        );
        let diff = "--- a\n+++ a\n@@ line 1 @@\n-old\n+new\n".to_owned();
        let change = |state| TaskItemContent::FileChange {
            id: "f".to_owned(),
            state,
            files: vec![ChangedFile {
                path: "a".to_owned(),
                diff: diff.clone(),
            }],
        };
        assert!(shown(change(ToolState::Started)).is_empty());
        let lines = shown(change(ToolState::Completed));
        assert_eq!(
            lines,
            [
                "  file      a",
                "            @@ line 1 @@",
                "            -old",
                "            +new"
            ]
        );
    }
}
