//! `gdn --help`: commands grouped by task.

use clap::Command;
use clap::builder::styling::Style;
use terminal_size::{Width, terminal_size};

use crate::output::text::width;

/// Groups of commands with their summaries, in display order: those of the left column, then those of the right one.
/// The summaries are shorter than the ones in the commands' own help, so that the list fits a screen of 80×24.
pub(crate) const COLUMNS: [&[Group]; 2] = [
    &[
        (
            "Projects",
            &[
                ("init", "create one"),
                ("run", "start one, and the daemon"),
                ("stop", "stop one"),
                ("restart", "restart its processes"),
                ("validate", "check its configuration"),
                ("config", "show, reload, migrate it"),
                ("package", "packages of a project"),
                ("secret", "keys, tokens and logins"),
            ],
        ),
        (
            "Work",
            &[
                ("chat", "talk to an agent"),
                ("send", "send one message"),
                ("task", "tasks of coding agents"),
                ("inbox", "decide what needs you"),
                ("proposal", "review changed files"),
            ],
        ),
    ],
    &[
        (
            "Observe",
            &[
                ("ps", "processes"),
                ("top", "live full-screen view"),
                ("logs", "logs of all processes"),
                ("usage", "tokens, cost, budgets"),
                ("studio", "all of it in a browser"),
                ("incident", "replay what happened"),
            ],
        ),
        (
            "Manage",
            &[
                ("conversation", "show, rewind, export"),
                ("event", "queue, traces, schedules"),
                ("workspace", "projects that run"),
                ("daemon", "status, service, upgrade"),
                ("doctor", "find and fix problems"),
                ("demo", "try it; kill it"),
            ],
        ),
    ],
];

/// Title of a group, and its commands with their summaries.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

/// Maximum width of the text, in columns.
const COLUMNS_MAX: usize = 100;

/// Indentation of a command's name, in columns.
const INDENT: usize = 2;

/// Last lines of the help.
const END: [&str; 2] = [
    "`gdn` alone shows what runs, what needs you, and the next command.",
    "`gdn help run` explains one. Everywhere: --project DIR --workspace ID --json",
];

/// Shows the commands in their groups.
pub(crate) fn grouped(command: Command) -> Command {
    let columns = columns();
    let listed = list_in(
        columns,
        *command.get_styles().get_header(),
        *command.get_styles().get_literal(),
    );
    let end = END.map(|line| wrapped(line, columns).join("\n")).join("\n");
    command.help_template(format!(
        "{{about-with-newline}}\n{listed}\n\
         {{usage-heading}} {{usage}}\n{end}\n"
    ))
}

/// Width of the terminal, or the value of `COLUMNS` without one, because clap wraps by the same rules.
fn columns() -> usize {
    let terminal: Option<usize> = terminal_size().map(|(Width(columns), _)| columns.into());
    let named = || std::env::var("COLUMNS").ok()?.parse::<usize>().ok();
    terminal
        .or_else(named)
        .unwrap_or(COLUMNS_MAX)
        .min(COLUMNS_MAX)
}

/// Wraps the text after the options of every command to this terminal. Clap does not wrap it again, because it is
/// already broken into lines.
pub(crate) fn with_epilogues(command: Command) -> Command {
    with_epilogues_in(command, columns())
}

fn with_epilogues_in(command: Command, columns: usize) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(epilogue(&text, columns)),
        None => command,
    };
    command.mut_subcommands(|subcommand| with_epilogues_in(subcommand, columns))
}

/// Wraps paragraphs and the notes after example commands. Commands are not wrapped.
fn epilogue(text: &str, columns: usize) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut paragraph = String::new();
    for line in text.lines().chain([""]) {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if is_prose {
            paragraph.push_str(line);
            paragraph.push(' ');
            continue;
        }
        out.extend(wrapped(&std::mem::take(&mut paragraph), columns));
        out.extend(example(line, columns));
    }
    // Empty line that ends the last paragraph.
    out.pop();
    out.join("\n")
}

/// Minimum width of a note after a command, in columns; with less space it is placed below the command.
const NOTE_COLUMNS_MIN: usize = 24;

/// Indentation of a note below its command, in columns.
const NOTE_INDENT: usize = 6;

fn example(line: &str, columns: usize) -> Vec<String> {
    let command = line.trim_start();
    let indent = line.len() - command.len();
    let parts = command.split_once("  ");
    let Some((command, note)) = parts.filter(|_| width(line) > columns) else {
        return vec![line.to_owned()];
    };
    let note = note.trim_start();
    let column = width(line) - width(note);
    let command = format!("{:indent$}{command}", "");
    if columns < column + NOTE_COLUMNS_MIN {
        let room = columns.saturating_sub(NOTE_INDENT);
        let notes = wrapped(note, room);
        let notes = notes
            .iter()
            .map(|note| format!("{:NOTE_INDENT$}{note}", ""));
        return [command].into_iter().chain(notes).collect();
    }
    let notes = wrapped(note, columns - column);
    let mut left = Some(command);
    let lines = notes.iter().map(|note| {
        let left = left.take().unwrap_or_default();
        let gap = column - width(&left);
        format!("{left}{:gap$}{note}", "")
    });
    lines.collect()
}

/// Smallest width with two columns of groups.
const TWO_COLUMNS_MIN: usize = 80;

fn list_in(columns: usize, header: Style, literal: Style) -> String {
    if columns < TWO_COLUMNS_MIN {
        return names_in(columns, header);
    }
    let [left, right] = COLUMNS.map(|groups| lines_of(groups, header, literal));
    let widest = left.iter().map(|(_, width)| *width).max();
    let column = widest.unwrap_or_default() + INDENT;
    let rows = left.len().max(right.len());
    let mut out = String::new();
    for row in 0..rows {
        let (text, width) = left.get(row).cloned().unwrap_or_default();
        let right = right.get(row).map_or("", |(text, _)| text.as_str());
        let line = format!("{text}{:1$}{right}", "", column - width);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Lines of a column, each with its width without styles.
fn lines_of(groups: &[Group], header: Style, literal: Style) -> Vec<(String, usize)> {
    let names = groups.iter().flat_map(|(_, commands)| commands.iter());
    let widest = names.map(|(name, _)| width(name)).max().unwrap_or_default();
    let mut lines: Vec<(String, usize)> = Vec::new();
    for (title, commands) in groups {
        if !lines.is_empty() {
            lines.push((String::new(), 0));
        }
        lines.push((format!("{header}{title}:{header:#}"), width(title) + 1));
        for (name, about) in *commands {
            let gap = widest - width(name) + INDENT;
            let text = format!("{:INDENT$}{literal}{name}{literal:#}{:gap$}{about}", "", "");
            lines.push((text, INDENT + widest + INDENT + width(about)));
        }
    }
    lines
}

/// The groups of a narrow terminal: only names.
fn names_in(columns: usize, header: Style) -> String {
    let mut out = String::new();
    for (title, commands) in COLUMNS.iter().flat_map(|groups| groups.iter()) {
        out.push_str(&format!("{header}{title}:{header:#}\n"));
        let names: Vec<&str> = commands.iter().map(|(name, _)| *name).collect();
        for line in wrapped(&names.join(", "), columns.saturating_sub(INDENT)) {
            out.push_str(&format!("{:INDENT$}{line}\n", ""));
        }
    }
    out
}

/// Wraps text to `columns`, unless a single word is longer.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ctl_1_every_shown_command_is_in_exactly_one_group() {
        let groups = COLUMNS.iter().flat_map(|groups| groups.iter());
        let grouped: Vec<&str> = groups
            .flat_map(|(_, commands)| commands.iter().map(|(name, _)| *name))
            .collect();
        let once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(grouped.len(), once.len(), "a command stands in two groups");
        let command = crate::command();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let shown = shown.map(Command::get_name);
        let shown: BTreeSet<&str> = shown.filter(|name| *name != "help").collect();
        assert_eq!(once, shown);
        assert!(shown.len() <= 25, "{} commands", shown.len());
    }

    #[test]
    fn ctl_1_help_is_wrapped_once_at_any_width() {
        fn epilogues(command: &Command, out: &mut Vec<(String, String)>) {
            let text = command.get_after_help().map(ToString::to_string);
            out.extend(text.map(|text| (command.get_name().to_owned(), text)));
            for subcommand in command.get_subcommands() {
                epilogues(subcommand, out);
            }
        }
        for columns in [50, 80, 100] {
            let mut found = Vec::new();
            epilogues(&with_epilogues_in(crate::command(), columns), &mut found);
            assert!(found.len() > 50);
            for (name, text) in found {
                for pair in text.lines().collect::<Vec<_>>().windows(2) {
                    let [line, next] = pair else { continue };
                    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                    if is_prose(line) && is_prose(next) {
                        assert!(width(line) <= columns, "{name} at {columns}: {line}");
                        let word = next.split_whitespace().next().unwrap_or_default();
                        let is_full = width(line) + 1 + width(word) > columns;
                        assert!(is_full, "{name} at {columns}, too early:\n{line}\n{next}");
                    }
                }
            }
        }
        let text = "Examples:\n  gdn run   the project here, with the daemon in the background\n\nOne\ntwo.";
        assert_eq!(
            epilogue(text, 40),
            "Examples:\n  gdn run   the project here, with the\n            daemon in the background\n\nOne two."
        );
        assert_eq!(
            epilogue(text, 30),
            "Examples:\n  gdn run\n      the project here, with\n      the daemon in the\n      background\n\nOne two."
        );
    }

    #[test]
    fn ctl_1_the_help_fits_its_terminal() {
        for (columns, rows) in [(60, 20), (80, 24), (100, 40)] {
            let listed = list_in(columns, Style::new(), Style::new());
            let widest = listed.lines().map(width).max();
            assert!(widest <= Some(columns), "at {columns}:\n{listed}");
            // About, usage, and the end, with an empty line before each of the first two.
            let end: usize = END.iter().map(|line| wrapped(line, columns).len()).sum();
            let total = listed.lines().count() + 2 + 2 + end;
            assert!(total < rows, "at {columns}×{rows}: {total} lines\n{listed}");
        }
    }
}
