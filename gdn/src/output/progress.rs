//! What a person sees while a turn runs: each step and tool call as it happens, and a spinner on a
//! terminal. All of it on stderr.

use std::time::Duration;

use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::{self, Palette};
use super::{Output, text};

/// How often the spinner moves, in milliseconds.
const TICK_MS: u64 = 100;

/// Columns assumed where no terminal tells them; wide enough that nothing of a `detail` is cut.
const DEFAULT_COLUMNS: usize = 400;

/// Shows one turn.
#[derive(Debug)]
pub(crate) struct TurnView {
    output: Output,
    quiet: bool,
    spinner: Option<ProgressBar>,
    columns: usize,
}

impl TurnView {
    /// A view that waits for the turn to begin. `quiet` shows nothing.
    pub(crate) fn start(output: Output, quiet: bool) -> Self {
        let spinner = (!quiet && output.is_interactive()).then(spinner);
        let columns = match terminal_size::terminal_size_of(std::io::stderr()) {
            Some((columns, _)) => usize::from(columns.0),
            None => DEFAULT_COLUMNS,
        };
        let view = Self {
            output,
            quiet,
            spinner,
            columns,
        };
        view.status("waiting for the agent");
        view
    }

    /// Shows what happened.
    pub(crate) fn show(&self, event: &RuntimeEvent) {
        if let Some(status) = status_of(event) {
            self.status(&status);
        }
        if let Some(line) = line_of(event, self.columns, self.output.err) {
            self.line(&line);
        }
    }

    /// Shows a line beside the turn's own.
    pub(crate) fn line(&self, line: &str) {
        if self.quiet {
            return;
        }
        match &self.spinner {
            Some(spinner) => spinner.suspend(|| self.output.note(line)),
            None => self.output.note(line),
        }
    }

    /// Says beside the spinner what is going on.
    pub(crate) fn status(&self, status: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(text::fit(
                &text::one_line(status),
                self.columns.saturating_sub(4),
            ));
        }
    }
}

impl Drop for TurnView {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

/// A spinner on stderr. Shown only where a terminal is.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(template) = ProgressStyle::with_template("{spinner} {msg}") {
        spinner.set_style(template);
    }
    spinner.enable_steady_tick(Duration::from_millis(TICK_MS));
    spinner
}

/// What goes on after the event, for the spinner.
fn status_of(event: &RuntimeEvent) -> Option<String> {
    use RuntimeEventKind as Kind;
    match event.kind {
        Kind::StepStarted | Kind::ToolCompleted | Kind::ToolFailed => Some("thinking".to_owned()),
        Kind::ToolCalled => event
            .tool_name
            .as_ref()
            .map(|tool| format!("running {tool}")),
        Kind::TurnStarted
        | Kind::TurnResumed
        | Kind::TurnCompleted
        | Kind::TurnFailed
        | Kind::TurnParked
        | Kind::StepCompleted
        | Kind::StepFailed
        | Kind::MessageWarning => None,
    }
}

/// The line that tells of the event, at most `columns` wide; none for what needs no line.
fn line_of(event: &RuntimeEvent, columns: usize, palette: Palette) -> Option<String> {
    use RuntimeEventKind as Kind;
    let (mark, style, subject) = match event.kind {
        Kind::StepStarted => {
            // Step ids end in the step's number (`StepId::of_turn`).
            let id = event.step_id.as_ref()?.as_str();
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
        let line = |kind, more| line_of(&event(kind, &more), 60, plain);
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
