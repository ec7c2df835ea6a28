//! `docs/operations.md`: the daemon's options, its children's environment, and the log.

use std::collections::BTreeSet;

use goondan_protocol::ipc::PASSED_TO_CHILDREN;
use goondan_tests::Home;
use goondan_tests::binaries::bin;
use goondan_tests::home::{ORCHESTRATOR, RunningProgram};
use goondan_tests::log::check_line;

use crate::pages::{Page, quoted};

fn page() -> Page {
    Page::read("docs/operations.md")
}

#[test]
fn every_option_of_the_daemon_is_described_and_no_other() {
    let home = Home::without_project();
    let help = RunningProgram::start(home.command(&bin(ORCHESTRATOR), &["--help"]))
        .wait()
        .exits(0);
    let known: BTreeSet<&str> = help
        .stdout
        .lines()
        .filter_map(|line| line.split_once("--"))
        .filter(|(before, _)| before.trim_end_matches([' ', ',']).len() <= 4)
        .filter_map(|(_, option)| option.split([' ', '\n']).next())
        .filter(|option| !["help", "version"].contains(option))
        .collect();
    assert!(known.contains("state-root"), "{}", help.stdout);
    let page = page().section("## Running the daemon");
    let lines = page.text.lines();
    let described: BTreeSet<&str> = lines
        .filter_map(|line| line.strip_prefix("* `--")?.split([' ', '`']).next())
        .collect();
    assert_eq!(described, known);
}

#[test]
fn the_variables_that_children_get_are_named() {
    let page = page().section("## Running the daemon");
    let (_, sentence) = page.text.split_once("children get ").unwrap();
    let sentence = sentence.split(", and nothing else").next().unwrap();
    let named: BTreeSet<&str> = quoted(sentence).into_iter().collect();
    assert_eq!(named, BTreeSet::from(PASSED_TO_CHILDREN));
}

#[test]
fn the_log_line_it_shows_is_one() {
    let shown = page().section("## The log").fences("json").concat();
    let line = check_line(shown.trim_end()).unwrap();
    let fields = page().section("## The log").rows();
    let described: BTreeSet<&str> = fields.iter().flat_map(|row| quoted(&row[0])).collect();
    for field in line.as_object().unwrap().keys() {
        assert!(
            described.contains(field.as_str()) || field == "durationMs",
            "{field} is not described"
        );
    }
}
