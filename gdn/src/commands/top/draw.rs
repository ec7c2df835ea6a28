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

use super::app::{App, ConnectionState, ItemEntry, Mode, TextPage};
use super::input::{PageSubject, Size};
use super::view::{Scope, View};
use crate::context::Context;
use crate::output::style;
use crate::output::text;

/// Width of the titles of all views, in columns.
const TABS_COLUMNS: u16 = 78;

/// Width of the help, in columns.
const HELP_COLUMNS: u16 = 64;

/// Key bindings, as shown in the help.
const KEYS: [(&str, &str); 14] = [
    ("1 … 7, Tab, ← →", "change the view"),
    ("↑ ↓, j k, PgUp PgDn", "select a row, or scroll"),
    ("Home End, g G", "go to the start or the end"),
    ("Enter", "open the conversation, or the item of the inbox"),
    ("t", "show the timing of its latest turn"),
    ("l", "show the log of the conversation"),
    ("c", "cancel its turn, after confirmation"),
    ("r", "restart its process, after confirmation"),
    ("a", "open its oldest item of the inbox, to decide it"),
    (
        "y n e a, s",
        "decide an open item as in `gdn inbox`; skip it",
    ),
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
        (None, View::Inbox) => tables::inbox(frame, body, app, ink),
    }
    match &app.mode {
        Mode::Help => help(frame, body, ink),
        Mode::Enter(entry) => entering(frame, body, entry, ink),
        Mode::Look | Mode::Filter | Mode::Confirm(_) => {}
    }
    frame.render_widget(foot_of(app, ink), foot);
}

/// Header: the project, its state, and the time.
fn head_of(app: &App, ink: RenderContext<'_>, area: Rect) -> Line<'static> {
    let clock = text::clock(ink.now);
    let clock = clock.split_once(' ').map_or("", |(_, time)| time);
    let facts = app.board.facts();
    let name = facts.and_then(|facts| match app.scope {
        Scope::All => Some(text::count(facts.workspaces.len(), "workspace")),
        Scope::Project => facts.workspace().map(|workspace| {
            let root = || workspace.project_root.display().to_string();
            workspace.package.clone().unwrap_or_else(root)
        }),
    });
    let name = name.unwrap_or_else(|| "goondan".to_owned());
    let mut spans = vec![ink.span(style::TITLE, text::one_line(&name))];
    match app.link {
        ConnectionState::Up => {}
        ConnectionState::Connecting => spans.push(ink.span(style::WARN, "   connecting …")),
        ConnectionState::Lost => {
            let lost = match app.scope {
                Scope::Project => "   no daemon runs the project; waiting",
                Scope::All => "   no daemon runs; waiting",
            };
            spans.push(ink.span(style::BAD, lost));
        }
    }
    if let Some(facts) = facts {
        let workspaces = facts.workspaces.iter();
        let agents = workspaces
            .clone()
            .map(|it| it.running_agents)
            .sum::<usize>();
        let waiting = workspaces.map(|it| it.pending_events).sum::<usize>();
        let mut counts = vec![
            text::count(app.board.working().count(), "turn"),
            text::count(agents, "agent"),
            format!("{waiting} waiting"),
        ];
        if app.scope == Scope::Project {
            let total = app.board.conversations_total();
            counts.push(text::count(total, "conversation"));
        }
        match app.board.inbox().map_or(0, |inbox| inbox.items.len()) {
            0 => {}
            1 => counts.push("1 needs you".to_owned()),
            more => counts.push(format!("{more} need you")),
        }
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
    let is_narrow = app.scope == Scope::Project && area.width < TABS_COLUMNS;
    let title = |view: &View| {
        let key = app.scope.place(*view) + 1;
        match is_narrow && *view != app.view {
            true => format!("{key}"),
            false => format!("{key} {}", view.title()),
        }
    };
    let views = app.scope.views().iter();
    Tabs::new(views.map(title).collect::<Vec<_>>())
        .select(app.scope.place(app.view))
        .padding("", "")
        .style(ink.style(style::FAINT))
        .highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .divider("  ")
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
            let question = format!("{} y/N", text::one_line(&act.question()));
            return Line::from(ink.span(style::marked(style::WARN), question));
        }
        Mode::Enter(_) => {
            let hint = "Enter continues, Esc cancels";
            return Line::from(ink.span(style::FAINT, hint));
        }
        Mode::Look | Mode::Help => {}
    }
    match &app.notice {
        Some(Ok(done)) => return Line::from(ink.span(style::GOOD, text::one_line(done))),
        Some(Err(why)) => return Line::from(ink.span(style::BAD, text::one_line(why))),
        None => {}
    }
    let mut spans = Vec::new();
    let item = app.page.as_ref().filter(|page| is_item(page));
    if let Some(page) = item.filter(|_| !app.is_read_only) {
        let offered = page.keys().iter();
        let offered: Vec<String> = offered
            .map(|(key, _, name)| format!("{key} {name}"))
            .collect();
        spans.push(ink.span(style::TITLE, offered.join("  ")));
        let rest = match offered.is_empty() {
            true => "s skip  Esc back  q quit",
            false => "  s skip  Esc back  q quit",
        };
        spans.push(ink.span(style::FAINT, rest));
        return Line::from(spans);
    }
    let mut keys = vec!["q quit", "? keys", "/ find"];
    let is_inbox = app.view == View::Inbox;
    let has_conversations = app.view.has_rows() && app.scope == Scope::Project;
    match (&app.page, is_inbox) {
        (Some(_), _) if item.is_some() => keys.push("Esc back"),
        (Some(_), _) => keys.extend(["Esc back", "t trace", "l log"]),
        (None, true) => keys.push("Enter show, then decide"),
        (None, false) if has_conversations => keys.extend(["Enter read", "t trace", "l log"]),
        (None, false) => {}
    }
    let is_of_conversation = has_conversations && !is_inbox || app.page.is_some();
    if is_of_conversation && !app.is_read_only {
        keys.extend(["c cancel", "r restart"]);
    }
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

fn is_item(page: &TextPage) -> bool {
    matches!(page.about, PageSubject::Item(_))
}

/// Shows the prompt of a decision below what is decided about. Lines wrap; the last ones are shown.
fn entering(frame: &mut Frame<'_>, body: Rect, at: &ItemEntry, ink: RenderContext<'_>) {
    let room = usize::from(body.width.saturating_sub(2)).max(1);
    let problem = at.problem.as_deref().map(text::one_line);
    let problem = problem.map(|it| (style::BAD, it));
    let note = at.entry.note().map(|it| (style::WARN, it));
    let written = text::one_line(&at.written);
    let prompt = (style::TITLE, format!("{}: {written}▏", at.entry.prompt()));
    let parts = note.into_iter().chain(problem).chain([prompt]);
    let lines: Vec<Line<'_>> = parts
        .flat_map(|(look, said)| {
            let folded = text::folded(&said, room).into_iter();
            folded.map(move |line| Line::from(ink.span(look, line)))
        })
        .collect();
    let rows = usize::from(body.height.saturating_sub(2));
    let shown = lines.len().min(rows);
    let lines: Vec<Line<'_>> = lines.into_iter().rev().take(shown).rev().collect();
    let height = u16::try_from(shown).unwrap_or(u16::MAX).saturating_add(2);
    let height = height.min(body.height);
    let area = Rect {
        y: body.y + body.height - height,
        height,
        ..body
    };
    let block = ratatui::widgets::Block::bordered();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
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
