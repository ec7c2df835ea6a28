//! Progress of a turn: steps, tool calls and a spinner on stderr, and the reply on stdout as it arrives.

use std::cell::RefCell;
use std::time::Duration;

use goondan_protocol::call::{CallRetry, ModelPiece};
use goondan_protocol::control::TurnPiece;
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::{self, Palette};
use super::{Output, markdown, text};
use crate::context::Context;
use crate::schemas;

/// Interval of the spinner, in milliseconds.
const TICK_MS: u64 = 100;

/// Width assumed without a terminal; wide enough that no `detail` is truncated.
const DEFAULT_COLUMNS: usize = 400;

/// Display mode of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamMode {
    /// Not streamed; printed when complete.
    Off,
    Text,
    /// As text on stdout, after the agent's name.
    Named,
    /// As one JSON object for each part.
    Objects,
}

impl StreamMode {
    /// Default mode: streamed text on a terminal, the complete reply in a pipe.
    pub(crate) fn usual(output: Output) -> Self {
        if output.is_watched() {
            Self::Text
        } else {
            Self::Off
        }
    }
}

/// State of the displayed reply.
#[derive(Debug, Default)]
struct ReplyDisplay {
    spinner: Option<ProgressBar>,
    agent: Option<String>,
    /// Text of the current step.
    text: String,
    /// Its part on the terminal that no other output interrupts.
    unbroken: String,
    /// Size of the terminal when that part began.
    size: Option<(usize, usize)>,
    is_mid_line: bool,
}

#[derive(Debug)]
pub(crate) struct TurnView {
    output: Output,
    quiet: bool,
    /// Command that shows a question, without its id.
    show_question: String,
    /// Commands about a call that needs approval.
    decide: Decide,
    streaming: StreamMode,
    columns: usize,
    shown: RefCell<ReplyDisplay>,
}

/// Commands about a call that needs approval, without its id.
#[derive(Debug)]
struct Decide {
    show: String,
    approve: String,
    deny: String,
}

impl TurnView {
    /// Creates a view that waits for the turn to begin. With `quiet`, it shows only the reply, according to
    /// `streaming`.
    pub(crate) fn start(context: &Context, quiet: bool, streaming: StreamMode) -> Self {
        let output = context.output;
        let columns = columns_of_stderr();
        let view = Self {
            output,
            quiet,
            show_question: context.command("inbox question show"),
            decide: Decide {
                show: context.command("inbox approvals"),
                approve: context.command("inbox approve"),
                deny: context.command("inbox deny"),
            },
            streaming,
            columns,
            shown: RefCell::default(),
        };
        view.status("waiting for the agent");
        view
    }

    pub(crate) fn show(&self, event: &RuntimeEvent) {
        if event.kind == RuntimeEventKind::StepStarted {
            let mut shown = self.shown.borrow_mut();
            shown.agent = Some(event.agent_name.to_string());
            shown.text.clear();
        }
        if let Some(line) = line_of(event, self.columns, self.output.err) {
            self.line(&line);
        }
        if event.kind == RuntimeEventKind::QuestionAsked
            && let Some(id) = &event.question_id
        {
            self.line(&format!("    show it: {} {id}", self.show_question));
        }
        if event.kind == RuntimeEventKind::ApprovalAsked
            && let Some(id) = &event.approval_id
        {
            let Decide {
                show,
                approve,
                deny,
            } = &self.decide;
            self.line(&format!("    show it:  {show} {id}"));
            self.line(&format!("    approve:  {approve} {id}"));
            self.line(&format!("    deny:     {deny} {id} --reason '…'"));
        }
        if let Some(status) = status_of(event) {
            self.status(&status);
        }
    }

    /// Shows a part of a reply.
    pub(crate) fn piece(&self, piece: &TurnPiece) {
        if self.streaming == StreamMode::Objects {
            drop(self.output.object(schemas::SEND_PIECE, piece));
            return;
        }
        // Only pieces of model calls are displayed.
        match serde_json::from_str(piece.piece.get()) {
            Ok(ModelPiece::Text { text }) => self.text(&text),
            Ok(ModelPiece::Again) => {
                self.shown.borrow_mut().text.clear();
                self.line("  ↻ calling the model again");
            }
            Ok(ModelPiece::Instead { target }) => {
                self.shown.borrow_mut().text.clear();
                let message = text::one_line(&format!("calling {target} instead"));
                self.line(&format!("  ↻ {message}"));
                self.status(&message);
            }
            Ok(ModelPiece::Retry(retry)) => {
                let told = retry_text(&retry);
                self.line(&text::fit(&format!("  ↻ {told}"), self.columns));
                self.status(&told);
            }
            Ok(ModelPiece::Consent { need, command }) => {
                let told = format!("waits for a login to {need}: {command}");
                self.line(&format!("  ⏸ {}", text::one_line(&told)));
                self.status(&told);
            }
            Ok(ModelPiece::Reasoning { .. }) | Err(_) => {}
        }
    }

    fn text(&self, text: &str) {
        if self.streaming == StreamMode::Off {
            return;
        }
        let mut shown = self.shown.borrow_mut();
        // A spinner would overwrite the text.
        if let Some(spinner) = shown.spinner.take() {
            spinner.finish_and_clear();
        }
        if !shown.is_mid_line {
            self.name(&shown);
        }
        if !shown.is_mid_line {
            shown.unbroken.clear();
            shown.size = size_of_stdout();
        }
        self.output.reply_piece(text);
        shown.text.push_str(text);
        shown.unbroken.push_str(text);
        shown.is_mid_line = true;
    }

    /// Ends the turn; true if the whole reply has been streamed.
    pub(crate) fn end(&self, reply: &str) -> bool {
        self.break_line();
        let mut shown = self.shown.borrow_mut();
        if let Some(spinner) = shown.spinner.take() {
            spinner.finish_and_clear();
        }
        !reply.is_empty() && shown.text == reply
    }

    /// Ends the current line and text, because unrelated output follows.
    fn break_line(&self) {
        let mut shown = self.shown.borrow_mut();
        if !std::mem::take(&mut shown.is_mid_line) {
            return;
        }
        if let Some((rows, rendered)) = self.rendered(&shown) {
            self.output.take_back(rows);
            self.name(&shown);
            drop(self.output.piece(&rendered));
        } else if !shown.text.ends_with('\n') {
            self.output.reply_piece("\n");
        }
    }

    fn name(&self, shown: &ReplyDisplay) {
        if self.streaming == StreamMode::Named
            && let Some(agent) = &shown.agent
        {
            self.output.name(agent);
        }
    }

    /// Renders the text as Markdown, and returns how many rows above the cursor it began. None if rendering changes
    /// nothing or the text cannot be replaced.
    fn rendered(&self, shown: &ReplyDisplay) -> Option<(usize, String)> {
        let (columns, rows) = shown.size.filter(|size| size_of_stdout() == Some(*size))?;
        if !self.output.is_watched() || !self.output.out.is_on() || shown.unbroken.contains('\t') {
            return None;
        }
        let said = text::printable(&shown.unbroken);
        let rendered = markdown::render(&said, self.output.out);
        if rendered.trim_end() == said.trim_end() {
            return None;
        }
        let agent = shown.agent.as_deref().unwrap_or_default();
        let name = match self.streaming {
            StreamMode::Named => format!("{agent}> "),
            _ => String::new(),
        };
        let above = text::rows_of(&format!("{name}{said}"), columns).saturating_sub(1);
        // Text that has scrolled off the screen cannot be erased.
        (above < rows.saturating_sub(1)).then_some((above, rendered))
    }

    /// Prints a line in addition to the turn's own.
    pub(crate) fn line(&self, line: &str) {
        self.break_line();
        if self.quiet {
            return;
        }
        match &self.shown.borrow().spinner {
            Some(spinner) => spinner.suspend(|| self.output.note(line)),
            None => self.output.note(line),
        }
    }

    /// Sets the text of the spinner.
    pub(crate) fn status(&self, status: &str) {
        if self.quiet || !self.output.is_interactive() {
            return;
        }
        let mut shown = self.shown.borrow_mut();
        if shown.is_mid_line {
            return;
        }
        shown
            .spinner
            .get_or_insert_with(spinner)
            .set_message(text::fit(
                &text::one_line(status),
                self.columns.saturating_sub(4),
            ));
    }
}

impl Drop for TurnView {
    fn drop(&mut self) {
        self.break_line();
        if let Some(spinner) = self.shown.borrow_mut().spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

/// Reports on stderr what a command waits for: as a spinner on a terminal, otherwise as a line for each change.
#[derive(Debug)]
pub(crate) struct WaitIndicator {
    output: Output,
    spinner: Option<ProgressBar>,
}

impl WaitIndicator {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            spinner: None,
        }
    }

    /// Shows the current reason for the wait.
    pub(crate) fn show(&mut self, text: &str, is_new: bool) {
        if self.output.is_interactive() {
            let spinner = self.spinner.get_or_insert_with(spinner);
            let room = columns_of_stderr().saturating_sub(4);
            spinner.set_message(text::fit(&text::one_line(text), room));
        } else if is_new {
            self.output.note(text);
        }
    }
}

impl Drop for WaitIndicator {
    fn drop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

fn columns_of_stderr() -> usize {
    match terminal_size::terminal_size_of(std::io::stderr()) {
        Some((columns, _)) => usize::from(columns.0),
        None => DEFAULT_COLUMNS,
    }
}

/// Columns and rows of the terminal at stdout.
fn size_of_stdout() -> Option<(usize, usize)> {
    let (columns, rows) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some((columns.0.into(), rows.0.into()))
}

/// A spinner on stderr, visible only on a terminal.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(template) = ProgressStyle::with_template("{spinner} {msg}") {
        spinner.set_style(template);
    }
    spinner.enable_steady_tick(Duration::from_millis(TICK_MS));
    spinner
}

/// `attempt 2 of 5 in 4.0s: model main: rateLimited: …`.
fn retry_text(retry: &CallRetry) -> String {
    let CallRetry {
        target,
        attempt,
        attempts_max,
        delay_ms,
        code,
        reason,
    } = retry;
    let when = match delay_ms {
        0 => "now".to_owned(),
        delay_ms => format!("in {}", text::duration(*delay_ms)),
    };
    let code = code.as_str();
    let told =
        format!("attempt {attempt} of {attempts_max} {when}: {target} failed ({code}): {reason}");
    text::one_line(&told)
}

/// Spinner text after the event.
fn status_of(event: &RuntimeEvent) -> Option<String> {
    use RuntimeEventKind as Kind;
    match event.kind {
        Kind::StepStarted => Some("thinking".to_owned()),
        // The next step follows immediately, unless other tools still run.
        Kind::ToolCompleted | Kind::ToolFailed => Some("waiting for tools".to_owned()),
        Kind::ToolCalled => event
            .tool_name
            .as_ref()
            .map(|tool| format!("running {tool}")),
        Kind::QuestionAsked => {
            let id = event.question_id.as_ref();
            id.map(|id| format!("waits for an answer: gdn inbox question answer {id}"))
        }
        Kind::ApprovalAsked => {
            let id = event.approval_id.as_ref();
            id.map(|id| {
                format!("waits for your approval: gdn inbox approve {id}, or gdn inbox deny {id}")
            })
        }
        Kind::QuestionClosed | Kind::ApprovalClosed => Some("waiting for tools".to_owned()),
        Kind::TurnStarted
        | Kind::TurnResumed
        | Kind::TurnCompleted
        | Kind::TurnFailed
        | Kind::TurnParked
        | Kind::StepCompleted
        | Kind::StepFailed
        | Kind::BudgetWarning
        | Kind::MessageWarning => None,
    }
}

/// Line for the event, at most `columns` wide; none for events without a line.
fn line_of(event: &RuntimeEvent, columns: usize, palette: Palette) -> Option<String> {
    use RuntimeEventKind as Kind;
    let (mark, style, subject) = match event.kind {
        Kind::StepStarted => {
            // Step ids end in the step's number (`StepId::of_turn`).
            let step_id = event.step_id.as_ref()?;
            if step_id.is_summary() {
                let line = "summarizing old messages";
                return Some(palette.paint(style::FAINT, &text::fit(line, columns)));
            }
            let id = step_id.as_str();
            let number = id.rsplit_once('.').map_or(id, |(_, number)| number);
            let line = text::one_line(&format!("step {number}"));
            return Some(palette.paint(style::FAINT, &text::fit(&line, columns)));
        }
        Kind::ToolCalled => ("→", style::HINT, event.tool_name.clone()),
        Kind::ToolCompleted => ("✓", style::GOOD, event.tool_name.clone()),
        Kind::ToolFailed => ("✗", style::BAD, event.tool_name.clone()),
        Kind::TurnResumed => (
            "↻",
            style::WARN,
            Some("resumed in a new process".to_owned()),
        ),
        Kind::TurnParked => ("✗", style::BAD, Some("parked".to_owned())),
        Kind::StepFailed => (
            "✗",
            style::BAD,
            Some("the model could not answer".to_owned()),
        ),
        Kind::QuestionAsked => {
            let id = event.question_id.as_ref()?;
            let what = format!("waits for an answer: gdn inbox question answer {id}");
            ("?", style::WARN, Some(what))
        }
        Kind::QuestionClosed => {
            let id = event.question_id.as_ref()?;
            ("?", style::FAINT, Some(format!("question {id}")))
        }
        Kind::ApprovalAsked => {
            let id = event.approval_id.as_ref()?;
            let tool = event.tool_name.as_deref().unwrap_or("a tool");
            let what = format!("{tool} waits for your approval, {id}:");
            ("?", style::WARN, Some(what))
        }
        Kind::ApprovalClosed => {
            let id = event.approval_id.as_ref()?;
            ("?", style::FAINT, Some(format!("approval {id}")))
        }
        Kind::BudgetWarning => ("!", style::WARN, Some("budget".to_owned())),
        Kind::MessageWarning => ("!", style::WARN, Some("warning".to_owned())),
        Kind::TurnStarted | Kind::TurnCompleted | Kind::TurnFailed | Kind::StepCompleted => {
            return None;
        }
    };
    let took = event.duration_ms.map(text::duration);
    let rest: Vec<String> = [subject, took, event.detail.clone()]
        .into_iter()
        .flatten()
        .map(|part| text::one_line(&part))
        .collect();
    let rest = text::fit(&rest.join("  "), columns.saturating_sub(4));
    Some(format!("  {} {rest}", palette.paint(style, mark)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, more: &serde_json::Value) -> RuntimeEvent {
        let mut event = json!({
            "type": kind,
            "timestamp": "2026-11-21T21:06:00.000Z",
            "traceId": "01".repeat(16),
            "spanId": "02".repeat(8),
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": "t",
        });
        let fields = more.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn steps_and_tools_each_have_a_line() {
        let plain = Palette::new(false);
        let line = |kind, more| line_of(&event(kind, &more), 70, plain);
        assert_eq!(
            line("step.started", json!({"stepId": "t.3"})).as_deref(),
            Some("step 3")
        );
        assert_eq!(
            line(
                "tool.called",
                json!({"toolName": "bash__exec", "detail": "ls"})
            )
            .as_deref(),
            Some("  → bash__exec  ls")
        );
        let failed = json!({"toolName": "bash__exec", "durationMs": 1200, "detail": "exit code 1"});
        assert_eq!(
            line("tool.failed", failed).as_deref(),
            Some("  ✗ bash__exec  1.2s  exit code 1")
        );
        assert_eq!(line("turn.completed", json!({})), None);
        let asked = json!({"questionId": "q-1", "detail": "Which?"});
        assert_eq!(
            line("question.asked", asked).as_deref(),
            Some("  ? waits for an answer: gdn inbox question answer q-1  Which?")
        );
    }

    #[test]
    fn a_line_never_wraps_and_never_steers_the_terminal() {
        let detail = format!("\u{1b}[2J{}", "x".repeat(100));
        let called = event(
            "tool.called",
            &json!({"toolName": "bash__exec", "detail": detail}),
        );
        let line = line_of(&called, 40, Palette::new(false)).unwrap();
        assert_eq!(text::width(&line), 40);
        assert!(!line.contains('\u{1b}'));
    }
}
