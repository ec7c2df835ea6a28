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

/// Text of the page before its tables.
const INTRODUCTION: &str = "\
# Conformance

The requirements by id: their level, a short form of the clause, the result, and the tests that prove it best.

* **yes**: the tests prove the clause.
* **partly**: the tests prove a part; the row names the missing part.

Code and tests cite a clause by its id. `cargo nextest run sec_6` runs the tests of `SEC-6`. A name is the end of a
test's full name.

A test generates this page from `tests/tests/docs/conformance/clauses.rs` and checks that every test exists. After an
edit of that file, run `GOONDAN_WRITE_PAGES=1 cargo test -p goondan-tests --test docs conformance`.

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

fn met(met: ClauseStatus) -> &'static str {
    match met {
        ClauseStatus::Yes => "yes",
        ClauseStatus::Partly => "partly",
        ClauseStatus::OutOfScope => "out of scope",
    }
}

/// The last cell of a row: its tests, and the missing part or a restriction.
fn proof(row: &Row) -> String {
    let tests: Vec<String> = row.tests.iter().map(|test| format!("`{test}`")).collect();
    let tests = tests.join(", ");
    let note = match row.met {
        ClauseStatus::Partly => format!("missing: {}", row.note),
        ClauseStatus::Yes | ClauseStatus::OutOfScope => row.note.to_owned(),
    };
    match (tests.is_empty(), note.is_empty()) {
        (true, true) => "none".to_owned(),
        (true, false) => note,
        (false, true) => tests,
        (false, false) => format!("{tests}; {note}"),
    }
}

fn counts() -> String {
    let mut counts: BTreeMap<ClauseStatus, usize> = BTreeMap::new();
    for row in clauses() {
        *counts.entry(row.met).or_default() += 1;
    }
    format!(
        "Of {} clauses {} are met, {} partly, {} is out of scope.",
        counts.values().sum::<usize>(),
        counts[&ClauseStatus::Yes],
        counts[&ClauseStatus::Partly],
        counts[&ClauseStatus::OutOfScope]
    )
}

fn render() -> String {
    let mut page = format!("{INTRODUCTION}{}\n", counts());
    page.push_str("\n## Clauses\n\n");
    for group in GROUPS {
        writeln!(page, "* {}", group.heading).unwrap();
    }
    page.push_str("\n| id | level | clause | met | tests |\n| --- | --- | --- | --- | --- |\n");
    for row in clauses() {
        let (met, proof) = (met(row.met), proof(row));
        let (id, level, text) = (row.name, row.level, row.text);
        writeln!(page, "| {id} | {level} | {text} | {met} | {proof} |").unwrap();
    }
    page.push_str("\n## Contract of goondan 0.0.3\n\n");
    page.push_str("Content made for goondan 0.0.3 relies on these parts.\n\n");
    page.push_str("| part | met | tests |\n| --- | --- | --- |\n");
    for row in OLDER {
        let (part, met, proof) = (row.name, met(row.met), proof(row));
        writeln!(page, "| {part} | {met} | {proof} |").unwrap();
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
