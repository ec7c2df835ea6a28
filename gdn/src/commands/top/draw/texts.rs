//! Text views.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::RenderContext;
use crate::commands::logs::render::{Details, render};
use crate::commands::top::app::{App, TextPage};
use crate::commands::top::board::BoardEvent;
use crate::commands::top::input::LogSource;
use crate::commands::usage;
use crate::output::style::{self, Palette};
use crate::output::table::Canvas;
use crate::output::text;

pub(super) fn title(ink: RenderContext<'_>, said: &str) -> Line<'static> {
    Line::from(ink.span(style::FAINT, said.to_owned()))
}

/// Returns the lines that fit, scrolled `up` lines from the end.
fn window<T>(lines: &[T], room: usize, up: usize) -> &[T] {
    let last = lines.len();
    let end = last.saturating_sub(up).max(room.min(last));
    lines.get(end.saturating_sub(room)..end).unwrap_or_default()
}

/// Past events, the latest last, scrolled `up` lines from the end.
pub(super) fn happened(
    frame: &mut Frame<'_>,
    area: Rect,
    app: &App,
    ink: RenderContext<'_>,
    up: usize,
) {
    let wanted = app.wanted();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let meant: Vec<&BoardEvent> = app
        .board
        .happened()
        .iter()
        .filter(|one| wanted.is_empty() || has(&one.subject) || has(&one.what))
        .collect();
    let line = |one: &&BoardEvent| {
        Line::from(vec![
            ink.span(style::FAINT, text::time_ms(one.at)),
            ink.span(style::TITLE, format!("  {}  ", one.subject)),
            ink.span(one.look, one.what.clone()),
        ])
    };
    let shown = window(&meant, area.height.into(), up).iter().map(line);
    let mut shown: Vec<Line<'_>> = shown.collect();
    if shown.is_empty() {
        shown.push(title(ink, "nothing yet"));
    }
    frame.render_widget(Paragraph::new(shown), area);
}

pub(super) fn events(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    happened(frame, area, app, ink, app.up());
}

pub(super) fn budgets(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let Some(report) = app.board.usage() else {
        frame.render_widget(title(ink, "not known yet"), area);
        return;
    };
    let canvas = Canvas {
        palette: Palette::new(false),
        columns: Some(area.width.into()),
    };
    let mut shown = usage::by_agent(report).render(canvas);
    if report.budgets.is_empty() {
        shown.push_str("\nno budgets\n");
    } else {
        shown.push('\n');
        shown.push_str(&usage::budgets(&report.budgets, false).render(canvas));
    }
    frame.render_widget(Paragraph::new(shown), area);
}

pub(super) fn logs(frame: &mut Frame<'_>, area: Rect, app: &App, ink: RenderContext<'_>) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let of = match &app.logs_of {
        LogSource::Conversation(key) => format!(
            "log of {}; Esc shows the project's",
            text::one_line(key.as_str())
        ),
        LogSource::Project => "log of the project".to_owned(),
    };
    frame.render_widget(title(ink, &of), head);
    let wanted = app.wanted();
    let meant: Vec<&String> = app
        .board
        .logs()
        .iter()
        .filter(|line| wanted.is_empty() || line.to_lowercase().contains(&wanted))
        .collect();
    let line = |line: &&String| {
        let look = match line {
            line if line.contains("\"level\":\"error\"") => style::BAD,
            line if line.contains("\"level\":\"warn\"") => style::WARN,
            _ => style::PLAIN,
        };
        Line::from(ink.span(look, render(line, Details::default(), Palette::new(false))))
    };
    let shown = window(&meant, body.height.into(), app.up())
        .iter()
        .map(line);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), body);
}

pub(super) fn page(frame: &mut Frame<'_>, area: Rect, page: &TextPage, ink: RenderContext<'_>) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(title(ink, &text::one_line(&page.about.title())), head);
    let Some(lines) = &page.lines else {
        frame.render_widget(title(ink, "…"), body);
        return;
    };
    let shown = window(lines, body.height.into(), page.up).iter();
    let shown = shown.map(|line| Line::from(ink.span(style::PLAIN, line.clone())));
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scroll_window_ends_at_offset_and_is_full_if_possible() {
        let lines: Vec<u32> = (0..10).collect();
        assert_eq!(window(&lines, 3, 0), [7, 8, 9]);
        assert_eq!(window(&lines, 3, 4), [3, 4, 5]);
        assert_eq!(window(&lines, 3, 99), [0, 1, 2]);
        assert_eq!(window(&lines, 30, 4), lines);
        assert!(window(&lines, 0, 0).is_empty());
        assert!(window::<u32>(&[], 3, 1).is_empty());
    }
}
