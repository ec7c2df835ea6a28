//! The capabilities, and the table of `docs/coding-agents.md`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::programs::Program;
use crate::scenes::Scene;

/// Results of the capabilities: `Err` has the reason.
pub(crate) type Results = BTreeMap<Capability, Result<(), String>>;

/// Capability of a program that works for tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Capability {
    Start,
    Phases,
    Question,
    Secret,
    Rework,
    Approve,
    KillProgram,
    KillDaemon,
    Pause,
    Cancel,
    Limit,
    WrongKey,
    LostSession,
    Allow,
    Deny,
    Usage,
    Proposal,
    Live,
    /// Parts of `Start`.
    Off,
    Landlock,
    Full,
}

impl Capability {
    pub(crate) const ROWS: [Self; 18] = [
        Self::Start,
        Self::Phases,
        Self::Question,
        Self::Secret,
        Self::Rework,
        Self::Approve,
        Self::KillProgram,
        Self::KillDaemon,
        Self::Pause,
        Self::Cancel,
        Self::Limit,
        Self::WrongKey,
        Self::LostSession,
        Self::Allow,
        Self::Deny,
        Self::Usage,
        Self::Proposal,
        Self::Live,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Start | Self::Off | Self::Landlock | Self::Full => "Starts at each level",
            Self::Phases => "Phases",
            Self::Question => "Answer in the same session",
            Self::Secret => "Secret in the environment",
            Self::Rework => "Rework",
            Self::Approve => "Approve",
            Self::KillProgram => "`kill -9` of the program",
            Self::KillDaemon => "`kill -9` of the daemon",
            Self::Pause => "Pause",
            Self::Cancel => "Cancel",
            Self::Limit => "Token budget",
            Self::WrongKey => "Wrong key",
            Self::LostSession => "Lost session",
            Self::Allow => "Permission allowed",
            Self::Deny => "Permission refused",
            Self::Usage => "Exact usage",
            Self::Proposal => "Proposal",
            Self::Live => "Live output",
        }
    }
}

impl Scene {
    /// The capability that fails if the scene cannot be played.
    pub(crate) fn capability(self) -> Capability {
        match self {
            Self::Off => Capability::Off,
            Self::Landlock => Capability::Landlock,
            Self::Full => Capability::Full,
            Self::Phases => Capability::Phases,
            Self::KillProgram => Capability::KillProgram,
            Self::KillDaemon => Capability::KillDaemon,
            Self::Pause => Capability::Pause,
            Self::Cancel => Capability::Cancel,
            Self::Limit => Capability::Limit,
            Self::WrongKey => Capability::WrongKey,
            Self::LostSession => Capability::LostSession,
            Self::Allow => Capability::Allow,
            Self::Deny => Capability::Deny,
            Self::Proposal => Capability::Proposal,
            Self::Live => Capability::Live,
        }
    }
}

/// Limitations of programs, with the program's own words.
const KNOWN: [(Program, Capability, &str); 7] = [
    (Program::Codex, Capability::Allow, NEVER_ASKS_CODEX),
    (Program::Codex, Capability::Deny, NEVER_ASKS_CODEX),
    (Program::Aider, Capability::Allow, NEVER_ASKS_AIDER),
    (Program::Aider, Capability::Deny, NEVER_ASKS_AIDER),
    (
        Program::Gemini,
        Capability::Usage,
        "its `_meta.quota.token_count` leaves out thoughts, and the requests that choose a model",
    ),
    (
        Program::ClaudeAgentAcp,
        Capability::Usage,
        "it \"asks a small model for a title\", and its `usage` leaves these requests out",
    ),
    (
        Program::Aider,
        Capability::Usage,
        "it rounds its counts: \"Tokens: 1.2k sent, 55 received.\"",
    ),
];

const NEVER_ASKS_CODEX: &str = "`codex exec` never asks: it prints \"approval: never\"";

const NEVER_ASKS_AIDER: &str =
    "it asks on the terminal only; `--yes-always` means \"Always say yes to every confirmation\"";

/// The reason why a program is known to lack a capability.
pub(crate) fn known(program: Program, capability: Capability) -> Option<&'static str> {
    let mut known = KNOWN.iter();
    let found = known.find(|(of, what, _)| (*of, *what) == (program, capability));
    found.map(|(_, _, why)| *why)
}

const BEGIN: &str = "<!-- The table is written by tests/coding-agents. -->\n";

const END: &str = "<!-- End of the table. -->\n";

fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// File with the results of all programs.
fn measured_file() -> PathBuf {
    place("tests/coding_agents/measured.json")
}

fn page_file() -> PathBuf {
    place("../docs/coding-agents.md")
}

fn measured() -> Value {
    let text = fs::read_to_string(measured_file()).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Records the results of a program, in addition to earlier ones of the same version, and writes the
/// table of the page.
pub(crate) fn record(program: Program, version: &str, day: &str, results: &Results) {
    // Programs may be measured by several processes at a time.
    let lock = File::open(measured_file()).unwrap();
    lock.lock().unwrap();
    let mut all = measured();
    let cells = results.iter().map(|(capability, result)| {
        let reason = match result {
            Ok(()) => Value::Null,
            Err(why) => {
                let known = known(program, *capability).map(ToOwned::to_owned);
                json!(known.unwrap_or_else(|| why.chars().take(200).collect()))
            }
        };
        (format!("{capability:?}"), reason)
    });
    let entry = &mut all[program.name()];
    if entry["version"] != version {
        *entry = json!({"version": version, "cells": {}});
    }
    entry["day"] = json!(day);
    for (name, reason) in cells {
        entry["cells"][name] = reason;
    }
    fs::write(measured_file(), format!("{all:#}\n")).unwrap();
    let page = fs::read_to_string(page_file()).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let page = format!("{before}{BEGIN}{}{END}{after}", table(&all));
    fs::write(page_file(), page).unwrap();
}

fn table(measured: &Value) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut text = "\n| Capability |".to_owned();
    for program in Program::ALL {
        text += &format!(" `{}` |", program.name());
    }
    text += &format!(
        "\n| --- |{}\n| Version |",
        " --- |".repeat(Program::ALL.len())
    );
    let mut days = Vec::new();
    for program in Program::ALL {
        let of = &measured[program.name()];
        text += &format!(" {} |", of["version"].as_str().unwrap_or("not measured"));
        days.extend(of["day"].as_str());
    }
    text.push('\n');
    let mut yes = 0;
    for capability in Capability::ROWS {
        text += &format!("| {} |", capability.title());
        for program in Program::ALL {
            let cells = measured[program.name()]["cells"].as_object();
            let cell = match cells.and_then(|cells| cells.get(&format!("{capability:?}"))) {
                None => String::new(),
                Some(Value::Null) => {
                    yes += 1;
                    "yes".to_owned()
                }
                Some(why) => {
                    let why = why.as_str().unwrap_or_default();
                    let note = format!("`{}`: {why}", program.name());
                    let number = *numbers.entry(note.clone()).or_insert_with(|| {
                        notes.push(note);
                        notes.len()
                    });
                    format!("no ({number})")
                }
            };
            text += &format!(" {cell} |");
        }
        text.push('\n');
    }
    let cells = Capability::ROWS.len() * Program::ALL.len();
    days.sort_unstable();
    let day = days.last().copied().unwrap_or("never");
    text += &format!("\n{yes} of {cells} are `yes`. Last measured on {day}.\n\n");
    for (number, note) in (1..).zip(&notes) {
        for (at, line) in wrapped(&format!("{number}. {note}."))
            .into_iter()
            .enumerate()
        {
            text += &format!("{}{line}\n", if at == 0 { "" } else { "   " });
        }
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    text
}

/// A paragraph in lines of the documentation's width.
fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 115;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[test]
fn agent_1_documented_table_matches_the_measurements() {
    let page = fs::read_to_string(page_file()).unwrap();
    let (_, rest) = page.split_once(BEGIN).unwrap();
    let (shown, _) = rest.split_once(END).unwrap();
    assert_eq!(shown, table(&measured()));
}
