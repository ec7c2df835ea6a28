//! `gdn --help`: commands grouped by task.

use clap::Command;
use terminal_size::{Width, terminal_size};

use crate::output::text::width;

/// Groups, with the commands of each in display order.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Get started",
        &[
            "init",
            "run",
            "demo",
            "doctor",
            "service",
            "completions",
            "man",
        ],
    ),
    (
        "Talk to agents",
        &["chat", "send", "cancel", "task", "question"],
    ),
    (
        "Review and approve",
        &[
            "approvals",
            "approve",
            "deny",
            "calls",
            "settle",
            "sandbox",
            "proposal",
            "bundle",
        ],
    ),
    (
        "Observe",
        &[
            "top", "ps", "status", "watch", "logs", "trace", "usage", "metrics", "audit", "node",
            "studio",
        ],
    ),
    (
        "Manage conversations",
        &["instance", "rewind", "event", "schedule", "verify"],
    ),
    (
        "Configure",
        &[
            "validate",
            "migrate",
            "config",
            "schema",
            "types",
            "package",
            "reload",
            "secret",
            "permission",
            "oauth",
        ],
    ),
    (
        "Stop and maintain",
        &[
            "restart",
            "stop",
            "workspace",
            "forget",
            "shutdown",
            "upgrade",
        ],
    ),
];

/// Maximum width of the text, in columns.
const COLUMNS_MAX: usize = 100;

/// Indentation of a command's name, in columns.
const INDENT: usize = 2;

/// Shows the commands in their groups.
pub(crate) fn grouped(command: Command) -> Command {
    let listed = list_of(&command, columns());
    let header = *command.get_styles().get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
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

fn list_of(command: &Command, columns: usize) -> String {
    let (header, literal) = {
        let styles = command.get_styles();
        (*styles.get_header(), *styles.get_literal())
    };
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let widest = names.map(|name| width(name)).max().unwrap_or_default();
    let column = INDENT + widest + INDENT;
    let mut out = String::new();
    for (title, names) in GROUPS {
        out.push_str(&format!("{header}{title}:{header:#}\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let room = columns.saturating_sub(column);
            let about = wrapped(&about, room).join(&format!("\n{:column$}", ""));
            out.push_str(&format!(
                "{:INDENT$}{literal}{name}{literal:#}{:2$}{about}\n",
                "",
                "",
                column - INDENT - width(name)
            ));
        }
        out.push('\n');
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
    fn every_command_is_in_exactly_one_group() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.to_vec())
            .collect();
        let once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(grouped.len(), once.len(), "a command stands in two groups");
        let command = crate::command();
        let known = command.get_subcommands().map(Command::get_name);
        let known: BTreeSet<&str> = known.filter(|name| *name != "help").collect();
        assert_eq!(once, known);
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
    fn the_list_fits_its_terminal() {
        for columns in [50, 80, 100] {
            let listed = list_of(&crate::command(), columns);
            let plain = anstream::adapter::strip_str(&listed).to_string();
            let widest = plain.lines().map(width).max();
            assert!(widest <= Some(columns), "at {columns}:\n{plain}");
        }
    }
}
