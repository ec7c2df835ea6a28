//! `docs/crash-matrix.md`: every crash point names its tests, which exist, and every action at a
//! service has its declared recovery.

use std::collections::BTreeSet;

use goondan_protocol::service::{Recovery, SERVICES};

use crate::pages::{Page, quoted};
use crate::sources::all_tests;

#[test]
fn every_crash_point_is_covered_by_tests_that_exist() {
    let tests = all_tests();
    let page = Page::read("docs/crash-matrix.md");
    let points: Vec<&str> = page.text.split("\n* ").skip(1).collect();
    assert!(points.len() > 20, "{} crash points", points.len());
    for point in points {
        let point = point.split("\n\n").next().unwrap();
        let named = quoted(point).into_iter();
        let named: Vec<&str> = named.filter(|name| name.contains("::")).collect();
        assert!(!named.is_empty(), "{point}: by which test?");
        for name in named {
            assert!(tests.contains(name), "{point}: there is no test {name}");
        }
    }
}

/// Handling of an interrupted action, as the page names it; none for repeatable actions.
fn handling(recovery: Recovery) -> Option<&'static str> {
    match recovery {
        Recovery::Repeatable => None,
        Recovery::LookBack(_) => Some("looked for"),
        Recovery::Key { .. } => Some("sent again"),
        Recovery::Unknown(_) => Some("for a person"),
    }
}

#[test]
fn every_action_outside_is_listed_with_its_recovery() {
    let page = Page::read("docs/crash-matrix.md");
    let rows = page.section("## An action outside").rows();
    let mut listed = BTreeSet::new();
    for row in &rows {
        let named = quoted(&row[0]).into_iter();
        listed.extend(
            named
                .filter(|name| name.contains("__"))
                .map(|name| (name.to_owned(), row[1].clone())),
        );
    }
    let mut declared = BTreeSet::new();
    for service in SERVICES {
        for action in service.actions {
            if let Some(handling) = handling(action.recovery) {
                let name = format!("{}__{}", service.tool, action.name);
                declared.insert((name, handling.to_owned()));
            }
        }
    }
    // The settings of the Connection decide about these.
    for handling in ["sent again", "for a person"] {
        declared.insert(("http-fetch__request".to_owned(), handling.to_owned()));
    }
    assert_eq!(listed, declared);
}
