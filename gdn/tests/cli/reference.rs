//! Checks that `docs/cli.md` matches the program.

use std::collections::BTreeSet;

use clap::Command;
use gdn::exit::Exit;
use gdn::schemas;

use crate::home::Home;

const REFERENCE: &str = include_str!("../../../docs/cli.md");

/// All runnable commands with their full names, except clap's own `help`. A command with subcommands is runnable if it
/// does not require one.
fn leaves(command: &Command, name: &str) -> Vec<(String, Command)> {
    let mut found: Vec<_> = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
        .flat_map(|below| leaves(below, &format!("{name} {}", below.get_name())))
        .collect();
    if !command.is_subcommand_required_set() {
        found.push((name.to_owned(), command.clone()));
    }
    found
}

/// All commands; `gdn` alone is in the introduction.
fn commands() -> Vec<(String, Command)> {
    let mut found = leaves(&gdn::command(), "gdn");
    found.retain(|(name, _)| name != "gdn");
    found
}

/// Part of the reference that describes one command.
fn section(title: &str) -> &'static str {
    let heading = format!("\n### `{title}`\n");
    let (_, rest) = REFERENCE
        .split_once(&heading)
        .unwrap_or_else(|| panic!("no heading {heading:?} in docs/cli.md"));
    rest.split("\n### ")
        .next()
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap()
}

#[test]
fn every_command_is_described_and_no_other() {
    let described: BTreeSet<String> = REFERENCE
        .lines()
        .filter_map(|line| line.strip_prefix("### `gdn ")?.strip_suffix('`'))
        .map(|name| format!("gdn {name}"))
        .collect();
    let known: BTreeSet<String> = commands().into_iter().map(|(name, _)| name).collect();
    assert_eq!(described, known);
}

#[test]
fn every_argument_is_described() {
    for (name, command) in commands() {
        let section = section(&name);
        for argument in command.get_arguments() {
            let written = match argument.get_long() {
                Some("help" | "version") => continue,
                _ if argument.is_hide_set() => continue,
                Some(long) => format!("`--{long}"),
                None => format!("`{}`", argument.get_value_names().unwrap()[0]),
            };
            assert!(
                section.contains(&written),
                "`{name}`: no {written}` in docs/cli.md"
            );
        }
    }
    let (_, global) = REFERENCE.split_once("\n## Global options\n").unwrap();
    let global = global.split("\n## ").next().unwrap();
    for argument in gdn::command().get_arguments() {
        if let Some(long) = argument
            .get_long()
            .filter(|long| !["help", "version"].contains(long) && !argument.is_hide_set())
        {
            assert!(global.contains(&format!("`--{long}")), "no --{long}");
        }
    }
}

#[test]
fn summaries_are_imperative_and_every_command_has_examples() {
    for (name, command) in commands() {
        let about = command.get_about().unwrap().to_string();
        assert!(!about.ends_with('.'), "{name}: {about}");
        assert!(about.starts_with(char::is_uppercase), "{name}: {about}");
        let after = command.get_after_help().map(ToString::to_string);
        assert!(
            after.is_some_and(|help| help.starts_with("Examples:\n  ")),
            "{name} has no examples"
        );
    }
}

#[test]
fn the_table_of_exit_codes_is_the_programs() {
    let rows: Vec<(u8, &str)> = REFERENCE
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let code = cells.next()?.parse().ok()?;
            Some((code, cells.next()?.trim_matches('`')))
        })
        .collect();
    let known: Vec<(u8, &str)> = Exit::ALL.map(|exit| (exit.code(), exit.name())).to_vec();
    assert_eq!(rows, known);
    let codes: BTreeSet<u8> = known.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes.len(), known.len(), "two ends share a code");
}

#[test]
fn every_json_form_is_described() {
    for schema in schemas::ALL {
        assert!(REFERENCE.contains(&format!("`{schema}`")), "no {schema}");
    }
}

#[test]
fn clap_accepts_its_own_definition_and_completions_are_printed() {
    gdn::command().debug_assert();
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = home.gdn(&["completions", shell]).exits(0);
        assert!(ran.stdout.contains("conversation"), "{shell}");
    }
}

#[test]
fn colour_is_only_where_it_was_asked_for() {
    let home = Home::new();
    assert!(!home.gdn(&["ps"]).exits(3).stderr.contains('\u{1b}'));
    let ran = home.gdn(&["--color", "always", "ps"]).exits(3);
    assert!(ran.stderr.contains("\u{1b}["), "{ran:?}");
}

#[test]
fn ctl_1_help_is_wrapped_once_at_the_width_of_the_environment() {
    let home = Home::new();
    let shown = |columns: &str| {
        let mut command = home.command(&["chat", "--help"]);
        let output = command.env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let narrow = shown("80");
    let (_, end) = narrow.split_once("\nIn the chat: ").unwrap();
    let lines: Vec<&str> = end.trim_end().lines().collect();
    for pair in lines.windows(2) {
        let word = pair[1].split(' ').next().unwrap();
        let is_full = pair[0].len() + 1 + word.len() > 80;
        // The first line lacks its beginning.
        assert!(is_full || pair[0] == lines[0], "too early: {pair:?}");
    }
    assert!(
        shown("1000")
            .lines()
            .all(|line| line.chars().count() <= 100)
    );
}

#[test]
fn compat_4_the_table_of_former_spellings_is_the_programs() {
    let (_, table) = REFERENCE.split_once("\n## Former spellings\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| {
            let (old, new) = line.strip_prefix("| `gdn ")?.split_once("` | `gdn ")?;
            Some((old, new.strip_suffix("` |")?))
        })
        .collect();
    assert_eq!(rows, gdn::spellings::MOVED);
}
