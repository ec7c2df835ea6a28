//! `docs/conformance.md` is generated from `clauses`; every test it names exists.
//!
//! To write the page again after an edit:
//! `GOONDAN_WRITE_PAGES=1 cargo test -p goondan-tests --test docs conformance`.
#![expect(
    clippy::disallowed_methods,
    reason = "a generated page need not be durable"
)]

mod clauses;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::pages::{Page, quoted, repository};
use crate::sources::all_tests;
use clauses::{ClauseStatus, GROUPS, OLDER, Row};

const PAGE: &str = "docs/conformance.md";

/// Environment variable that makes the test write the page instead of comparing it.
const WRITE: &str = "GOONDAN_WRITE_PAGES";

/// Longest line of a page.
const LINE_CHARS_MAX: usize = 120;

/// Stands for a space in code, where a line must not break.
const JOINT: char = '\u{1f}';

/// Text of the page before its lists.
const INTRODUCTION: &str = "\
# Conformance

The requirements by id: a short form of each clause and, in parentheses, the tests that prove it best. The level is
MUST, unless the clause begins with another one. Without a mark, the clause is met.

* **partly**: the tests prove a part; the missing part is named.
* **not yet**: nothing is promised; the existing part is named.

A name is the end of a test's full name. `cargo nextest run sec_6` runs the tests of `SEC-6`.

A test generates this page from `tests/tests/docs/conformance/clauses.rs`. After an edit of that file, run
`GOONDAN_WRITE_PAGES=1 cargo test -p goondan-tests --test docs conformance`.

";

/// The groups of the requirements with their numbers of clauses, so that none is dropped.
const COUNTS: [(&str, usize); 29] = [
    ("ROOT", 11),
    ("INST", 7),
    ("MSG", 13),
    ("EXT", 4),
    ("PKG", 3),
    ("SEC", 10),
    ("LOG", 4),
    ("SUP", 9),
    ("IPC", 4),
    ("CTL", 1),
    ("BUNDLE", 8),
    ("LLM", 2),
    ("SYS", 6),
    ("BOX", 4),
    ("PROP", 8),
    ("TASK", 10),
    ("PROTO", 5),
    ("CKPT", 6),
    ("AGENT", 8),
    ("REPO", 3),
    ("QUEUE", 1),
    ("NEED", 2),
    ("PROV", 2),
    ("CONN", 3),
    ("STEER", 5),
    ("OBS", 6),
    ("COMPAT", 4),
    ("REL", 2),
    ("REP", 2),
];

/// Every clause, in the order of the page.
fn clauses() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|group| group.clauses)
}

/// The clause, after its level if that is weaker than MUST.
fn clause(row: &Row) -> String {
    let (level, text) = (row.level, row.text);
    if ["MUST", "MUST NOT", "—"].contains(&level) {
        text.to_owned()
    } else {
        format!("**{level}**: {text}")
    }
}

/// The mark of a clause that is not met completely.
fn mark(met: ClauseStatus) -> Option<&'static str> {
    match met {
        ClauseStatus::Yes => None,
        ClauseStatus::Partly => Some("**partly**"),
        ClauseStatus::NotYet => Some("**not yet**"),
        ClauseStatus::OutOfScope => Some("**out of scope**"),
    }
}

/// The mark of a row, its tests, and the missing part or a restriction.
fn proof(row: &Row) -> String {
    let tests: Vec<String> = row.tests.iter().map(|test| format!("`{test}`")).collect();
    let tests = tests.join(", ");
    let note = match row.met {
        ClauseStatus::Partly => format!("missing: {}", row.note),
        ClauseStatus::Yes | ClauseStatus::NotYet | ClauseStatus::OutOfScope => row.note.to_owned(),
    };
    let parts = [tests, note];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    let parts = parts.join("; ");
    match mark(row.met) {
        None => parts,
        Some(mark) if parts.is_empty() => mark.to_owned(),
        Some(mark) => format!("{mark}: {parts}"),
    }
}

fn counts() -> String {
    let mut counts: BTreeMap<ClauseStatus, usize> = BTreeMap::new();
    for row in clauses() {
        *counts.entry(row.met).or_default() += 1;
    }
    format!(
        "Of {} clauses {} are met, {} partly, {} not yet, {} is out of scope.",
        counts.values().sum::<usize>(),
        counts[&ClauseStatus::Yes],
        counts[&ClauseStatus::Partly],
        counts[&ClauseStatus::NotYet],
        counts[&ClauseStatus::OutOfScope]
    )
}

/// An item of a list, wrapped outside of code.
fn item(text: &str) -> String {
    let mut is_code = false;
    let joined = text.chars().map(|c| {
        is_code ^= c == '`';
        if is_code && c == ' ' { JOINT } else { c }
    });
    let joined: String = joined.collect();
    let (mut item, mut width) = (String::from("*"), 1);
    for word in joined.split(' ') {
        let length = word.chars().count();
        if width + 1 + length > LINE_CHARS_MAX {
            item.push_str("\n ");
            width = 1;
        }
        write!(item, " {word}").unwrap();
        width += 1 + length;
    }
    item.replace(JOINT, " ")
}

fn render() -> String {
    let mut page = format!("{INTRODUCTION}{}\n\n## Clauses\n", counts());
    for group in GROUPS {
        write!(page, "\n### {}\n\n", group.heading).unwrap();
        for row in group.clauses {
            let text = format!("{}: {} ({})", row.name, clause(row), proof(row));
            writeln!(page, "{}", item(&text)).unwrap();
        }
    }
    page.push_str("\n## Contract of goondan 0.0.3\n\n");
    page.push_str("Content made for goondan 0.0.3 relies on these parts.\n\n");
    for row in OLDER {
        let text = format!("{} ({})", row.name, proof(row));
        writeln!(page, "{}", item(&text)).unwrap();
    }
    page
}

#[test]
fn the_page_is_generated_from_the_clauses() {
    let rendered = render();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(repository().join(PAGE), &rendered).unwrap();
    }
    assert!(
        Page::read(PAGE).text == rendered,
        "{PAGE} is not up to date: run \
         `{WRITE}=1 cargo test -p goondan-tests --test docs conformance`"
    );
}

#[test]
fn every_requirement_has_its_row() {
    let ids: Vec<&str> = clauses().map(|row| row.name).collect();
    let expected: Vec<String> = COUNTS
        .iter()
        .flat_map(|(group, count)| (1..=*count).map(move |number| format!("{group}-{number}")))
        .collect();
    assert_eq!(ids, expected);
}

#[test]
fn every_row_names_tests_that_exist() {
    let tests = all_tests();
    for row in clauses().chain(OLDER) {
        let name = row.name;
        for named in row.tests {
            let end = format!("::{named}");
            let exists = tests
                .iter()
                .any(|test| test == named || test.ends_with(&end));
            assert!(exists, "{name}: there is no test {named}");
        }
        match row.met {
            ClauseStatus::Yes => assert!(!row.tests.is_empty(), "{name} is met, by which test?"),
            ClauseStatus::Partly => assert!(
                !row.tests.is_empty() && !row.note.is_empty(),
                "{name} is met partly: what is proved, what is missing?"
            ),
            ClauseStatus::NotYet => assert!(row.tests.is_empty() && !row.note.is_empty(), "{name}"),
            ClauseStatus::OutOfScope => assert_eq!(name, "SYS-6"),
        }
    }
}

#[test]
fn every_habit_of_authorization_servers_has_its_test() {
    let tests = all_tests();
    let page = Page::read("docs/oauth.md");
    let habits = page.section("## Habits of servers");
    let items: Vec<&str> = habits.text.split("\n* ").skip(1).collect();
    assert!(items.len() > 10, "{} items", items.len());
    for item in items {
        let mut named = quoted(item)
            .into_iter()
            .filter(|name| name.starts_with("goondan_"))
            .peekable();
        assert!(named.peek().is_some(), "{item}: by which test?");
        for name in named {
            assert!(tests.contains(name), "{item}: there is no test {name}");
        }
    }
}
