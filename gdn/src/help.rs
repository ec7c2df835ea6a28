//! `gdn --help`: the commands in groups, by what a person wants to do.

use clap::Command;
use terminal_size::{Width, terminal_size};

use crate::output::text::width;

/// The groups, and the commands of each in the order in which they are met.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Begin",
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
        "Talk to agents, and give them work",
        &["chat", "send", "cancel", "task", "question"],
    ),
    (
        "Decide about what they do and change",
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
        "See what happens",
        &[
            "top", "ps", "status", "watch", "logs", "trace", "usage", "metrics", "audit", "node",
            "studio",
        ],
    ),
    (
        "Look after conversations",
        &["instance", "rewind", "event", "verify"],
    ),
    (
        "Configure",
        &[
            "validate", "migrate", "config", "schema", "package", "reload", "secret", "oauth",
        ],
    ),
    (
        "Stop and tidy up",
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

/// Columns that the text takes at most.
const COLUMNS_MAX: usize = 100;

/// Columns before the name of a command.
const INDENT: usize = 2;

/// Shows the commands in their groups.
pub(crate) fn grouped(command: Command) -> Command {
    let columns = terminal_size().map_or(COLUMNS_MAX, |(Width(columns), _)| columns.into());
    let listed = list_of(&command, columns.min(COLUMNS_MAX));
    let header = *command.get_styles().get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
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

/// The text in lines of at most so many columns, as far as its words allow.
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
    fn every_command_stands_in_one_group() {
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
    fn the_list_fits_its_terminal() {
        for columns in [50, 80, 100] {
            let listed = list_of(&crate::command(), columns);
            let plain = anstream::adapter::strip_str(&listed).to_string();
            let widest = plain.lines().map(width).max();
            assert!(widest <= Some(columns), "at {columns}:\n{plain}");
        }
    }
}
