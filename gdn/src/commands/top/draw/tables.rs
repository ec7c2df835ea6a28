//! Table views.

use goondan_protocol::control::ProcessInfo;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::RenderContext;
use super::texts;
use crate::commands::health;
use crate::commands::inbox::shown;
use crate::commands::ps::table::{detail, memory, state_words};
use crate::commands::top::app::App;
use crate::commands::top::rows;
use crate::commands::top::view::Scope;
use crate::output::style;
use crate::output::text;

/// Below this width, in columns, a table omits some columns.
const NARROW_COLUMNS: u16 = 100;
/// Maximum number of lines in the overview's list of open decisions.
const NEEDS_LINES_MAX: u16 = 6;

/// Overview: open decisions, working agents, and recent events.
pub(super) fn overview(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let needs = needs(app, ink, area.width);
    let lines = u16::try_from(needs.len()).unwrap_or(u16::MAX);
    let lines = lines.clamp(1, NEEDS_LINES_MAX).saturating_add(2);
    let areas = Layout::vertical([
        Constraint::Length(lines),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Fill(1),
    ]);
    let [first, second, title, third] = areas.areas(area);
    let mut shown = vec![texts::title(ink, "NEEDS A PERSON")];
    match needs.is_empty() {
        true => shown.push(Line::from(ink.span(style::FAINT, "nothing"))),
        false => shown.extend(needs),
    }
    frame.render_widget(Paragraph::new(shown), first);
    working(frame, second, app, ink);
    frame.render_widget(texts::title(ink, "JUST NOW"), title);
    texts::happened(frame, third, app, ink, 0);
}

/// Items that need an action by the user. They wrap, so that no command is cut.
fn needs(app: &App, ink: RenderContext<'_>, columns: u16) -> Vec<Line<'static>> {
    let Some(facts) = app.board.facts() else {
        return Vec::new();
    };
    let Some(workspace) = facts.workspace() else {
        return Vec::new();
    };
    let problem = workspace.problem.as_ref().map(|problem| {
        let first = problem.message.lines().next().unwrap_or_default();
        let said = format!("configuration: {}", text::one_line(first));
        (style::BAD, said)
    });
    let remarks = health::remarks(workspace, ink.context);
    let remarks = remarks.into_iter().map(|remark| {
        let look = match remark.is_warning {
            true => style::BAD,
            false => style::WARN,
        };
        let said = remark.text.trim_start_matches([':', ',', ' ']);
        (look, text::one_line(said))
    });
    let all = problem.into_iter().chain(remarks);
    let lines = all.flat_map(|(look, said)| {
        let folded = text::folded(&said, columns.into()).into_iter();
        folded.map(move |line| Line::from(ink.span(look, line)))
    });
    lines.collect()
}

fn working(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let columns = [
        Column::new("CONVERSATION", Constraint::Fill(2)),
        Column::new("AGENT", Constraint::Fill(1)),
        Column::new("SINCE", Constraint::Length(8)),
        Column::new("WAITING", Constraint::Length(7)),
        Column::new("DETAIL", Constraint::Fill(3)),
    ];
    let row = |row: &rows::Row| {
        let Some(info) = process_of(app, row) else {
            return Vec::new();
        };
        let key = info.instance_key.as_ref();
        let since = key.and_then(|key| app.board.turn_since(key));
        let since = since.map_or_else(String::new, |at| text::age(at, ink.now));
        vec![
            cell(ink, style::TITLE, key.map_or("", |key| key.as_str())),
            cell(ink, style::PLAIN, &info.name),
            cell(ink, style::PLAIN, &since),
            cell(ink, style::PLAIN, &behind(info)),
            cell(ink, style::PLAIN, &detail(info, ink.now)),
        ]
    };
    let nothing = "no turn is in progress";
    rows(frame, area, (app, ink), &columns, nothing, row);
}

/// Number of events queued behind the turn.
fn behind(info: &ProcessInfo) -> String {
    match info.pending_events.saturating_sub(1) {
        0 => String::new(),
        more => more.to_string(),
    }
}

/// All conversations, most recently updated first.
pub(super) fn conversations(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let columns = [
        Column::new("CONVERSATION", Constraint::Fill(2)),
        Column::new("AGENT", Constraint::Fill(1)),
        Column::new("STATE", Constraint::Length(16)),
        Column::new("TURN", Constraint::Length(8)),
        Column::wide("PENDING", Constraint::Length(7)),
        Column::new("UPDATED", Constraint::Length(11)),
        Column::wide("DETAIL", Constraint::Fill(2)),
    ];
    let row = |row: &rows::Row| {
        let key = row.key.as_ref();
        let Some(one) = key.and_then(|key| app.board.conversation(key)) else {
            return Vec::new();
        };
        let process = app.board.process_of(&one.key);
        let (state, look) = process.map_or(("", style::FAINT), state_words);
        let since = app.board.turn_since(&one.key);
        let since = since.map_or_else(String::new, |at| text::age(at, ink.now));
        let pending = process.map_or(0, |info| info.pending_events);
        let pending = (pending > 0).then(|| pending.to_string());
        let detail = process.map_or_else(String::new, |info| detail(info, ink.now));
        let updated = format!("{} ago", text::age(one.updated_at, ink.now));
        vec![
            cell(ink, style::TITLE, one.key.as_str()),
            cell(ink, style::PLAIN, &one.agent),
            cell(ink, look, state),
            cell(ink, style::PLAIN, &since),
            cell(ink, style::PLAIN, &pending.unwrap_or_default()),
            cell(ink, style::FAINT, &updated),
            cell(ink, style::PLAIN, &detail),
        ]
    };
    let nothing = "no conversations";
    rows(frame, area, (app, ink), &columns, nothing, row);
}

/// Everything that needs a person, longest wait first.
pub(super) fn inbox(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let Some(inbox) = app.board.inbox() else {
        frame.render_widget(texts::title(ink, "…"), area);
        return;
    };
    let failures: Vec<Line<'_>> = inbox
        .failures
        .iter()
        .map(|failure| {
            let failure = format!("Incomplete list: {}", text::one_line(failure));
            Line::from(ink.span(style::BAD, failure))
        })
        .collect();
    let lines = u16::try_from(failures.len()).unwrap_or(u16::MAX);
    let areas = Layout::vertical([
        Constraint::Length(lines.min(NEEDS_LINES_MAX)),
        Constraint::Min(0),
    ]);
    let [first, second] = areas.areas(area);
    frame.render_widget(Paragraph::new(failures), first);
    let columns = [
        Column::new("KIND", Constraint::Length(20)),
        match app.scope {
            Scope::Project => Column::wide("CONVERSATION", Constraint::Fill(1)),
            Scope::All => Column::new("WORKSPACE", Constraint::Fill(1)),
        },
        Column::wide("FROM", Constraint::Fill(1)),
        Column::new("SINCE", Constraint::Length(7)),
        Column::new("DECISION", Constraint::Fill(4)),
    ];
    let row = |row: &rows::Row| {
        let Some(item) = &row.item else {
            return Vec::new();
        };
        let key = item.conversation.as_ref();
        let at = match app.scope {
            Scope::Project => key.map_or("", |key| key.as_str()),
            Scope::All => item.workspace_id.as_str(),
        };
        let since = item.since.map(|at| text::age(at, ink.now));
        vec![
            cell(ink, style::TITLE, shown::kind_words(item.kind)),
            cell(ink, style::PLAIN, at),
            cell(ink, style::PLAIN, item.from.as_deref().unwrap_or_default()),
            cell(ink, style::FAINT, &since.unwrap_or_default()),
            cell(ink, style::PLAIN, &item.subject),
        ]
    };
    let nothing = "nothing needs you";
    rows(frame, second, (app, ink), &columns, nothing, row);
}

pub(super) fn processes(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let of = match app.scope {
        Scope::Project => Column::new("CONVERSATION", Constraint::Fill(1)),
        Scope::All => Column::new("WORKSPACE", Constraint::Fill(1)),
    };
    let columns = [
        Column::new("KIND", Constraint::Length(9)),
        Column::new("NAME", Constraint::Fill(1)),
        of,
        Column::new("STATE", Constraint::Length(16)),
        Column::wide("PID", Constraint::Length(8)),
        Column::wide("UP", Constraint::Length(8)),
        Column::wide("MEMORY", Constraint::Length(10)),
        Column::new("DETAIL", Constraint::Fill(2)),
    ];
    let row = |row: &rows::Row| {
        let Some(info) = process_of(app, row) else {
            return Vec::new();
        };
        let (state, look) = state_words(info);
        let key = info.instance_key.as_ref().map_or("", |key| key.as_str());
        let of = match app.scope {
            Scope::Project => key.to_owned(),
            Scope::All if key.is_empty() => info.workspace_id.to_string(),
            Scope::All => format!("{}/{key}", info.workspace_id),
        };
        let pid = info.pid.map(|pid| pid.to_string());
        let up = info.started_at.map(|at| text::age(at, ink.now));
        vec![
            cell(ink, style::FAINT, info.role.as_str()),
            cell(ink, style::TITLE, &info.name),
            cell(ink, style::PLAIN, &of),
            cell(ink, look, state),
            cell(ink, style::PLAIN, &pid.unwrap_or_default()),
            cell(ink, style::PLAIN, &up.unwrap_or_default()),
            cell(ink, style::PLAIN, &memory(info).unwrap_or_default()),
            cell(ink, style::PLAIN, &detail(info, ink.now)),
        ]
    };
    let nothing = "no processes";
    rows(frame, area, (app, ink), &columns, nothing, row);
}

fn process_of<'a>(app: &'a App, row: &rows::Row) -> Option<&'a ProcessInfo> {
    app.board.facts()?.processes.get(row.process?)
}

fn cell(ink: RenderContext<'_>, look: anstyle::Style, said: &str) -> Cell<'static> {
    Cell::from(ink.span(look, text::one_line(said)))
}

struct Column {
    title: &'static str,
    width: Constraint,
    /// True if it is omitted on a narrow terminal.
    is_wide: bool,
}

impl Column {
    fn new(title: &'static str, width: Constraint) -> Self {
        let is_wide = false;
        Self {
            title,
            width,
            is_wide,
        }
    }

    fn wide(title: &'static str, width: Constraint) -> Self {
        let is_wide = true;
        Self {
            is_wide,
            ..Self::new(title, width)
        }
    }
}

/// Draws only the rows around the selected one, because the list can be very long.
fn rows(
    frame: &mut Frame<'_>,
    area: Rect,
    (app, ink): (&App, RenderContext<'_>),
    columns: &[Column],
    nothing: &'static str,
    row: impl Fn(&rows::Row) -> Vec<Cell<'static>>,
) {
    let is_narrow = area.width < NARROW_COLUMNS;
    let is_shown: Vec<bool> = columns
        .iter()
        .map(|one| !(is_narrow && one.is_wide))
        .collect();
    let narrowed = |cells: Vec<Cell<'static>>| {
        let cells = cells.into_iter().zip(&is_shown);
        Row::new(cells.filter_map(|(cell, is_shown)| is_shown.then_some(cell)))
    };
    let all = app.rows();
    let chosen = app.chosen_place().unwrap_or_default();
    let room = usize::from(area.height.saturating_sub(1));
    let first = chosen.saturating_sub(room / 2);
    let first = first.min(all.len().saturating_sub(room));
    let shown = all.iter().enumerate().skip(first).take(room);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let lines: Vec<Row<'_>> = match all.is_empty() {
        true => vec![Row::new([cell(ink, style::FAINT, nothing)])],
        false => shown
            .map(|(place, one)| match place == chosen {
                true => narrowed(row(one)).style(reversed),
                false => narrowed(row(one)),
            })
            .collect(),
    };
    let titles = columns.iter().map(|one| cell(ink, style::FAINT, one.title));
    let widths = columns.iter().zip(&is_shown);
    let widths = widths.filter_map(|(one, is_shown)| is_shown.then_some(one.width));
    let table = Table::new(lines, widths)
        .header(narrowed(titles.collect()))
        .column_spacing(1);
    frame.render_widget(table, area);
}
