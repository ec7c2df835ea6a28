//! Rendering of `gdn top`, from the state, the time and the terminal size.

mod tables;
mod texts;

use goondan_protocol::time::Timestamp;
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Tabs};

use super::app::{App, ConnectionState, Mode};
use super::input::{Act, PendingDecision, Size};
use super::view::View;
use crate::context::Context;
use crate::output::style;
use crate::output::text;

/// Width of the help, in columns.
const HELP_COLUMNS: u16 = 64;

/// Key bindings, as shown in the help.
const KEYS: [(&str, &str); 13] = [
    ("1 … 6, Tab, ← →", "change the view"),
    ("↑ ↓, j k, PgUp PgDn", "select a row, or scroll"),
    ("Home End, g G", "go to the start or the end"),
    ("Enter", "open the conversation"),
    ("t", "show the timing of its latest turn"),
    ("l", "show the log of the conversation"),
    ("c", "cancel its turn, after confirmation"),
    ("r", "restart its process, after confirmation"),
    ("a d", "approve or deny its pending tool call"),
    ("/", "filter by a text"),
    ("Esc", "go back; remove the filter"),
    ("?", "show this help"),
    ("q, Ctrl-C", "quit"),
];

/// Rendering parameters beside the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenderContext<'a> {
    pub(super) context: &'a Context,
    pub(super) now: Timestamp,
    /// True if colors are enabled.
    pub(super) has_colors: bool,
}

impl RenderContext<'_> {
    /// Converts a style of the other commands.
    pub(super) fn style(self, look: anstyle::Style) -> Style {
        let mut style = Style::new();
        let effects = look.get_effects();
        for (effect, modifier) in [
            (anstyle::Effects::BOLD, Modifier::BOLD),
            (anstyle::Effects::DIMMED, Modifier::DIM),
            (anstyle::Effects::UNDERLINE, Modifier::UNDERLINED),
        ] {
            if effects.contains(effect) {
                style = style.add_modifier(modifier);
            }
        }
        match look.get_fg_color() {
            Some(anstyle::Color::Ansi(color)) if self.has_colors => style.fg(color_of(color)),
            _ => style,
        }
    }

    pub(super) fn span<'t>(self, look: anstyle::Style, text: impl Into<String>) -> Span<'t> {
        Span::styled(text.into(), self.style(look))
    }
}

fn color_of(color: anstyle::AnsiColor) -> ratatui::style::Color {
    use anstyle::AnsiColor;
    use ratatui::style::Color;
    match color {
        AnsiColor::Red => Color::Red,
        AnsiColor::Green => Color::Green,
        AnsiColor::Yellow => Color::Yellow,
        AnsiColor::Cyan => Color::Cyan,
        _ => Color::Reset,
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, app: &App, ink: RenderContext<'_>) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, tabs, body, foot] = areas.areas(frame.area());
    frame.render_widget(head_of(app, ink, head), head);
    frame.render_widget(tabs_of(app, ink, tabs), tabs);
    match (&app.page, app.view) {
        (Some(page), _) => texts::page(frame, body, page, ink),
        (None, View::Overview) => tables::overview(frame, body, app, ink),
        (None, View::Conversations) => tables::conversations(frame, body, app, ink),
        (None, View::Processes) => tables::processes(frame, body, app, ink),
        (None, View::Events) => texts::events(frame, body, app, ink),
        (None, View::Budgets) => texts::budgets(frame, body, app, ink),
        (None, View::Logs) => texts::logs(frame, body, app, ink),
    }
    match &app.mode {
        Mode::Help => help(frame, body, ink),
        Mode::Confirm(Act::Decide(pending)) | Mode::Edit { pending, .. } => {
            pending_call(frame, body, pending, ink);
        }
        Mode::Look | Mode::Filter | Mode::Confirm(_) => {}
    }
    frame.render_widget(foot_of(app, ink), foot);
}

/// Header: the project, its state, and the time.
fn head_of(app: &App, ink: RenderContext<'_>, area: Rect) -> Line<'static> {
    let clock = text::clock(ink.now);
    let clock = clock.split_once(' ').map_or("", |(_, time)| time);
    let facts = app.board.facts();
    let name = facts.map(|facts| {
        let workspace = &facts.workspace;
        let root = || workspace.project_root.display().to_string();
        workspace.package.clone().unwrap_or_else(root)
    });
    let name = name.unwrap_or_else(|| "goondan".to_owned());
    let mut spans = vec![ink.span(style::TITLE, text::one_line(&name))];
    match app.link {
        ConnectionState::Up => {}
        ConnectionState::Connecting => spans.push(ink.span(style::WARN, "   connecting …")),
        ConnectionState::Lost => {
            spans.push(ink.span(style::BAD, "   no daemon runs the project; waiting"));
        }
    }
    if let Some(facts) = facts {
        let workspace = &facts.workspace;
        let counts = [
            text::count(app.board.working().count(), "turn"),
            text::count(workspace.running_agents, "agent"),
            format!("{} waiting", workspace.pending_events),
            text::count(app.board.conversations_total(), "conversation"),
        ];
        spans.push(ink.span(style::PLAIN, format!("   {}", counts.join(" · "))));
    }
    if let Some(usage) = app.board.usage().filter(|usage| usage.total.replies > 0) {
        let tokens = text::count(usage.total.usage.total(), "token");
        let taken = format!(" · {tokens} · {}", text::cost(&usage.total));
        spans.push(ink.span(style::FAINT, taken));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(area.width);
    if let Some(gap) = room.checked_sub(taken + clock.len() + 1) {
        spans.push(Span::raw(" ".repeat(gap + 1)));
        spans.push(ink.span(style::FAINT, clock));
    }
    Line::from(spans)
}

fn tabs_of(app: &App, ink: RenderContext<'_>, area: Rect) -> Tabs<'static> {
    let is_narrow = usize::from(area.width) < 72;
    let title = |view: &View| {
        let key = view.place() + 1;
        match is_narrow && *view != app.view {
            true => format!("{key}"),
            false => format!("{key} {}", view.title()),
        }
    };
    Tabs::new(View::ALL.iter().map(title).collect::<Vec<_>>())
        .select(app.view.place())
        .style(ink.style(style::FAINT))
        .highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .divider(" ")
}

fn foot_of(app: &App, ink: RenderContext<'_>) -> Line<'static> {
    match &app.mode {
        Mode::Filter => {
            let written = text::one_line(&app.filter);
            return Line::from(vec![
                ink.span(style::TITLE, format!("/{written}▏")),
                ink.span(style::FAINT, "  Enter applies it, Esc cancels"),
            ]);
        }
        Mode::Confirm(act) => {
            let question = format!("{} {}", text::one_line(&act.question()), act.answers());
            return Line::from(ink.span(style::marked(style::WARN), question));
        }
        Mode::Edit {
            written, problem, ..
        } => {
            let hint = match problem {
                Some(problem) => ink.span(style::BAD, format!("  {}", text::one_line(problem))),
                None => ink.span(
                    style::FAINT,
                    "  NAME=VALUE, Enter sets it, Esc goes back".to_owned(),
                ),
            };
            let written = text::one_line(written);
            return Line::from(vec![
                ink.span(style::TITLE, format!("Change {written}▏")),
                hint,
            ]);
        }
        Mode::Look | Mode::Help => {}
    }
    match &app.notice {
        Some(Ok(done)) => return Line::from(ink.span(style::GOOD, text::one_line(done))),
        Some(Err(why)) => return Line::from(ink.span(style::BAD, text::one_line(why))),
        None => {}
    }
    let mut keys = vec!["q quit", "? keys", "/ find"];
    match (&app.page, app.view.has_rows()) {
        (Some(_), _) => keys.extend(["Esc back", "t trace", "l log"]),
        (None, true) => keys.extend(["Enter read", "t trace", "l log"]),
        (None, false) => {}
    }
    if (app.page.is_some() || app.view.has_rows()) && !app.is_read_only {
        keys.extend(["c cancel", "r restart"]);
    }
    let mut spans = Vec::new();
    if !app.filter.is_empty() {
        let filter = format!("only with “{}”  ", text::one_line(&app.filter));
        spans.push(ink.span(style::WARN, filter));
    }
    spans.push(ink.span(style::FAINT, keys.join("  ")));
    Line::from(spans)
}

fn help(frame: &mut Frame<'_>, body: Rect, ink: RenderContext<'_>) {
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![
                ink.span(style::TITLE, format!(" {keys:<22}")),
                ink.span(style::PLAIN, (*what).to_owned()),
            ])
        })
        .collect();
    let columns = HELP_COLUMNS.min(body.width);
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let rows = rows.saturating_add(2).min(body.height);
    let area = Rect {
        x: body.x + (body.width - columns) / 2,
        y: body.y + (body.height - rows) / 2,
        width: columns,
        height: rows,
    };
    let block = ratatui::widgets::Block::bordered().title(" Keys; any key goes back ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Shows the whole call that is decided about. Lines wrap; those that do not fit are counted.
fn pending_call(
    frame: &mut Frame<'_>,
    body: Rect,
    pending: &PendingDecision,
    ink: RenderContext<'_>,
) {
    let room = usize::from(body.width.saturating_sub(2)).max(1);
    let rows = usize::from(body.height.saturating_sub(2)).max(1);
    let call = pending.call();
    let mut lines: Vec<String> = call
        .lines()
        .flat_map(|line| text::folded(line, room))
        .collect();
    if lines.len() > rows {
        let shown = rows.saturating_sub(1);
        let more = text::count(lines.len() - shown, "more line");
        lines.truncate(shown);
        lines.push(format!(
            "… {more}: `gdn inbox show {}`",
            pending.approval_id
        ));
    }
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let area = Rect {
        height: height.saturating_add(2).min(body.height),
        ..body
    };
    let lines = lines
        .into_iter()
        .map(|line| Line::from(ink.span(style::PLAIN, line)));
    let block = ratatui::widgets::Block::bordered().title(" Waits for approval ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

/// Renders the screen as text, without colors and trailing spaces.
pub(super) fn as_text(app: &App, ink: RenderContext<'_>, size: Size) -> String {
    let backend = TestBackend::new(size.columns, size.rows);
    let Ok(mut terminal) = ratatui::Terminal::new(backend);
    let Ok(_) = terminal.draw(|frame| draw(frame, app, ink));
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for row in buffer.content.chunks(usize::from(size.columns.max(1))) {
        let mut line = String::new();
        let mut covered = 0;
        for cell in row {
            // Skip the cells that a wide character covers.
            if covered > 0 {
                covered -= 1;
                continue;
            }
            line.push_str(cell.symbol());
            covered = text::width(cell.symbol()).saturating_sub(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
