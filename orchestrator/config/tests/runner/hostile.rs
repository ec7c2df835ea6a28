//! Malicious files are refused at a bounded cost and never cause a panic.

use std::fmt::Write as _;

use goondan_config::limits::MAX_DIAGNOSTICS;
use proptest::prelude::*;

use crate::support::{Project, SMALLEST};

#[track_caller]
fn assert_over_limits(text: &str) {
    let problems = Project::new(text).refused();
    assert_eq!(problems.as_slice()[0].code, "E_CONFIG_SYNTAX", "{problems}");
    assert!(problems.to_string().len() < 2_000, "{problems}");
}

#[test]
fn aliases_that_multiply_values_are_stopped() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let item = format!("*a{}", level - 1);
        let items = vec![item; 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{items}]").unwrap();
    }
    assert_over_limits(&text);
}

#[test]
fn aliases_that_multiply_text_are_stopped() {
    let text = format!(
        "big: &big {}\nall: [{}]\n",
        "x".repeat(1 << 20),
        vec!["*big"; 90].join(", ")
    );
    assert_over_limits(&text);
}

#[test]
fn merges_within_merges_copy_nothing() {
    let fields: String = (0..40_000).map(|n| format!("k{n}: 1, ")).collect();
    let nested = (0..40).fold(format!("{{{fields}}}"), |inner, _| {
        format!("{{<<: {inner}}}")
    });
    let problems = Project::new(&format!("{SMALLEST}---\n{nested}\n")).refused();
    let last = problems.as_slice().last().unwrap();
    assert_eq!(last.code, "E_CONFIG_TOO_MANY_PROBLEMS", "{problems}");
    let mut chain = "a0: &a0 {x: 1}\n".to_owned();
    for level in 1..30 {
        let before = level - 1;
        writeln!(
            chain,
            "a{level}: &a{level} {{<<: [*a{before}, *a{before}]}}"
        )
        .unwrap();
    }
    assert_over_limits(&chain);
}

#[test]
fn deep_nesting_is_stopped() {
    assert_over_limits(&"[".repeat(100_000));
    assert_over_limits(&format!("{}x{}", "[".repeat(200), "]".repeat(200)));
    let mut block = String::new();
    for depth in 0..500 {
        writeln!(block, "{}a:", " ".repeat(depth)).unwrap();
    }
    assert_over_limits(&block);
}

#[test]
fn an_alias_of_itself_is_refused() {
    assert_over_limits("a: &a [*a]");
}

#[test]
fn a_flood_of_problems_is_cut_and_counted() {
    let mut text = SMALLEST.to_owned();
    for number in 0..1_000 {
        writeln!(text, "wrong{number}: 1").unwrap();
    }
    let problems = Project::new(&text).refused();
    let (last, shown) = problems.as_slice().split_last().unwrap();
    assert_eq!(shown.len(), MAX_DIAGNOSTICS);
    assert_eq!(last.code, "E_CONFIG_TOO_MANY_PROBLEMS");
    assert_eq!(last.message, "900 further problems are not shown");
}

#[test]
fn a_very_long_line_is_not_shown_whole() {
    let long = "x".repeat(1 << 20);
    let problems = Project::new(&format!("{SMALLEST}? {long}")).refused();
    assert!(problems.to_string().len() < 2_000);
    let problems = Project::new(&format!("{SMALLEST}nonsense: {long}\n")).refused();
    let line = problems.as_slice()[0].source_line.as_ref().unwrap();
    assert!(line.ends_with('…') && line.chars().count() < 250, "{line}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Damage to a valid project is harmless or reported at a place in the file.
    #[test]
    fn damaged_projects_never_panic(
        cut in 0_usize..600,
        removed in 0_usize..40,
        inserted in "[ -~\n\t가]{0,20}",
    ) {
        let start = cut.min(GOOD.len());
        let kept: String = GOOD.chars().take(start).collect();
        let rest: String = GOOD.chars().skip(start + removed).collect();
        let damaged = format!("{kept}{inserted}{rest}");
        let project = Project::new(&damaged).file("p.md", "x");
        if let Err(problems) = project.try_load() {
            prop_assert!(!problems.as_slice().is_empty());
            for problem in problems.as_slice() {
                prop_assert!(problem.line >= 1 && problem.column >= 1 && problem.span_len >= 1);
                prop_assert!(problem.line <= damaged.lines().count() + 1, "{}", problem);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Arbitrary bytes never cause a panic in loading, fixing or showing.
    #[test]
    fn no_bytes_make_it_panic(
        yaml in proptest::collection::vec(any::<u8>(), 0..300),
        text in "[a-z:{}\\[\\], \n'\"&*!#|>$=-]{0,200}",
        variables in proptest::collection::vec(any::<u8>(), 0..100),
        equals in "([A-Z]{0,2}[= '\"\\\\#\n]){0,20}",
    ) {
        let script = SMALLEST.replace("rules: [{say: Hello}]", "script: s.yaml");
        for project in [
            Project::empty().file("goondan.yaml", &yaml),
            Project::new(&text),
            Project::new(&format!("{SMALLEST}---\n{text}")),
            Project::new(SMALLEST).file(".env", &variables).file(".env.local", &equals),
            Project::new(&script).file("s.yaml", &text),
        ] {
            let checked = goondan_config::check(&project.root(), &project);
            let shown: String = checked.warnings.iter().map(ToString::to_string).collect();
            prop_assert!(shown.len() < 100_000);
            for file in goondan_config::autofix(&project.root(), &project).unwrap() {
                prop_assert_ne!(file.before, file.after);
            }
            let settings = goondan_config::effective(&project.root(), &project);
            prop_assert_eq!(settings.is_ok(), checked.bundle.is_ok());
        }
    }
}

const GOOD: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata:
  name: "@goondan/sample"
spec:
  version: 1.0.0
---
apiVersion: goondan.ai/v1
kind: Model
metadata:
  name: main
spec:
  provider: scripted
  options:
    rules:
      - when: {user: 'a(?P<x>.)'}
        say: ${x}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata:
  name: helper
spec:
  modelConfig:
    modelRef: Model/main
  prompt:
    systemRef: p.md
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
"#;

#[test]
fn the_project_that_is_damaged_is_good() {
    Project::new(GOOD).file("p.md", "x").load();
}
