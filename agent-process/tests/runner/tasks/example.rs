//! The agent of `docs/examples/task`, phase by phase, with the configured confinement.

use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::blocks::{Block, DependencyKind};
use goondan_confinement::{Level, Right, SandboxPolicy, probe, probe_namespaces};
use goondan_protocol::task::TaskAssignment;

use super::run::{Run, RunReports, assignment};
use crate::support::{BINARY, TestProject};

fn example() -> PathBuf {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/task");
    example.canonicalize().unwrap()
}

/// Levels that this machine supports; prints the missing ones.
pub(super) fn levels() -> Vec<Level> {
    let mut held = probe();
    held.extend(probe_namespaces(|| Command::new(BINARY)));
    let mut levels = vec![Level::Off];
    for level in [Level::Landlock, Level::Full] {
        if Right::of(level).iter().all(|right| held.contains(right)) {
            levels.push(level);
        } else {
            eprintln!("skipped at the level `{level}`, which this kernel does not have");
        }
    }
    levels
}

fn run(site: &TestProject, level: Level, prompt: &str, key: Option<&str>) -> RunReports {
    let mut it: TaskAssignment = assignment(site, "");
    it.project_root = example();
    it.agent.command = vec![example().join("agent.sh").display().to_string()];
    it.agent.sandbox = SandboxPolicy {
        require: level,
        ..SandboxPolicy::default()
    };
    it.prompt = format!("Write all three.\n{prompt}");
    it.secrets
        .extend(key.map(|key| ("PRICE_API_KEY".to_owned(), key.to_owned())));
    let finished = Run::start(&it).finish();
    assert_eq!(finished.exited, Some(Some(0)), "{level}: {finished:?}");
    finished
}

fn only_block(told: RunReports) -> Block {
    let blocks: Vec<Block> = told
        .events
        .into_iter()
        .filter_map(|event| match event {
            CliEvent::Block(block) => Some(block),
            CliEvent::Refused(refused) => panic!("{refused:?}"),
            _ => None,
        })
        .collect();
    let [block] = <[Block; 1]>::try_from(blocks).unwrap();
    block
}

fn completes(told: RunReports, expected: u32, document: &str) {
    let Block::PhaseComplete(done) = only_block(told) else {
        panic!("phase {expected} is not complete");
    };
    assert_eq!(
        (done.phase, done.documents),
        (expected, vec![document.to_owned()])
    );
}

#[test]
fn proto_2_3_4_example_asks_and_gets_review_at_every_level() {
    for level in levels() {
        let site = TestProject::new();
        let read = |path: &str| std::fs::read_to_string(site.work.join(path)).unwrap();
        let Block::UserQuestion(question) =
            only_block(run(&site, level, "You are in phase 1 of 3.", None))
        else {
            panic!("it asks nothing");
        };
        assert_eq!(question.question, "Who reads it?");
        assert_eq!(question.options, ["engineers", "customers"]);
        let answered = "Answer q-0001 to \"Who reads it?\": engineers\nYou are in phase 1 of 3.";
        completes(
            run(&site, level, answered, None),
            1,
            "docs/planning/brief.md",
        );
        let again = "Phase 1 is not approved: name the shop\nYou are in phase 1 of 3.";
        completes(run(&site, level, again, None), 1, "docs/planning/brief.md");
        assert!(read("docs/planning/brief.md").contains("- name the shop"));
        let next = "Phase 1 is approved.\nYou are in phase 2 of 3.";
        let Block::DependencyRequest(needed) = only_block(run(&site, level, next, None)) else {
            panic!("it needs nothing");
        };
        assert_eq!(needed.kind, DependencyKind::ApiKey);
        assert_eq!(
            (needed.name.as_str(), needed.required),
            ("PRICE_API_KEY", true)
        );
        let provided =
            "Provided d-0001: `PRICE_API_KEY` is in your environment.\nYou are in phase 2 of 3.";
        completes(
            run(&site, level, provided, Some("k")),
            2,
            "docs/design/prices.md",
        );
        completes(
            run(&site, level, "You are in phase 3 of 3.", Some("k")),
            3,
            "docs/report.md",
        );
        let report = read("docs/report.md");
        assert!(
            report.contains("For engineers.") && report.contains("Tea"),
            "{report}"
        );
        assert!(
            !report.contains("name the shop"),
            "that was about another phase"
        );
        let error = only_block(run(&site, level, "What now?", None));
        assert!(matches!(error, Block::Error(_)), "{error:?}");
    }
}
