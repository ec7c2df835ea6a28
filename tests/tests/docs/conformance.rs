//! `docs/conformance.md`: every requirement is listed, and every test it names exists.

use std::collections::BTreeMap;

use crate::pages::{Page, quoted};
use crate::sources::all_tests;

/// The groups of requirements, and how many each has.
const GROUPS: [(&str, usize); 29] = [
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

/// The requirements: rows with five cells.
fn rows() -> Vec<Vec<String>> {
    let rows = Page::read("docs/conformance.md").rows().into_iter();
    rows.filter(|row| row.len() == 5).collect()
}

#[test]
fn every_test_of_the_older_contract_exists() {
    let tests = all_tests();
    let rows = Page::read("docs/conformance.md").rows();
    let rows: Vec<_> = rows.iter().filter(|row| row.len() == 3).collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let named: Vec<&str> = quoted(&row[2])
            .into_iter()
            .filter(|name| name.contains("::"))
            .collect();
        for name in &named {
            assert!(tests.contains(*name), "{}: there is no test {name}", row[0]);
        }
        match row[1].as_str() {
            "yes" => assert!(!named.is_empty(), "{}: by which test?", row[0]),
            "partly" | "not yet" => assert!(!row[2].is_empty(), "{}: what is missing?", row[0]),
            other => panic!("{}: `{other}` is no answer", row[0]),
        }
    }
}

#[test]
fn every_habit_of_authorization_servers_has_its_test() {
    let tests = all_tests();
    let page = Page::read("docs/oauth.md");
    let (_, habits) = page.text.split_once("\n## Habits of servers\n").unwrap();
    let habits = Page {
        path: page.path.clone(),
        text: habits.split("\n## ").next().unwrap().to_owned(),
    };
    let rows = habits.rows();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows.iter().filter(|row| !row[0].starts_with("A server")) {
        let named = quoted(&row[2]);
        assert!(!named.is_empty(), "{}: by which test?", row[0]);
        for name in named {
            assert!(tests.contains(name), "{}: there is no test {name}", row[0]);
        }
    }
}

#[test]
fn every_requirement_has_its_row() {
    let ids: Vec<String> = rows().into_iter().map(|row| row[0].clone()).collect();
    let expected: Vec<String> = GROUPS
        .iter()
        .flat_map(|(group, count)| (1..=*count).map(move |number| format!("{group}-{number}")))
        .collect();
    assert_eq!(ids, expected);
}

#[test]
fn every_test_that_is_named_exists() {
    let tests = all_tests();
    for row in rows() {
        let (id, met, proof) = (&row[0], row[3].as_str(), row[4].as_str());
        let named: Vec<&str> = quoted(proof)
            .into_iter()
            .filter(|name| name.contains("::"))
            .collect();
        for name in &named {
            assert!(tests.contains(*name), "{id}: there is no test {name}");
        }
        match met {
            "yes" => assert!(!named.is_empty(), "{id} is met, by which test?"),
            "partly" => {
                let says = proof.starts_with("partly: ") && proof.contains("; missing: ");
                assert!(
                    says && !named.is_empty(),
                    "{id} is met partly: what is proved, what is missing?"
                );
            }
            "not yet" => assert!(
                proof.starts_with("not yet") && named.is_empty(),
                "{id}: {proof}"
            ),
            "out of scope" => assert_eq!(id, "SYS-6"),
            other => panic!("{id}: `{other}` is no answer"),
        }
    }
}

#[test]
fn the_counts_are_right() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows() {
        *counts.entry(row[3].clone()).or_default() += 1;
    }
    let sentence = format!(
        "Of {} clauses {} are met, {} partly, {} not yet, {} is out of scope.",
        counts.values().sum::<usize>(),
        counts["yes"],
        counts["partly"],
        counts["not yet"],
        counts["out of scope"]
    );
    let page = Page::read("docs/conformance.md");
    assert!(
        page.text.contains(&sentence),
        "docs/conformance.md does not say: {sentence}"
    );
}
