//! Goal: written handoffs are parsed back; variants that models write are parsed; excessive or
//! escaping values are refused.

use proptest::prelude::*;

use super::*;

const GOLDEN: &str = "\
HANDOFF
Context: The parser reads dates of two forms.
  The second one is old:

    Goal: 2026-02-19
Goal: Read the third form, too.
DoD: All tests pass.
SandboxWorkDir: /var/lib/goondan/sandboxes/run-1/coder/work
ProposalJson: /var/lib/goondan/sandboxes/run-1/coder/proposal/proposal.json
ChangedFiles:
- src/date.rs
- \"src/caf\\351.rs\"
Tests:
- cargo test: 12 passed
Next:
- review and apply, or request changes";

fn golden() -> Handoff {
    let path = |text| HandoffPath::new(text).unwrap();
    let line = |text| List::new(vec![TextLine::new(text).unwrap()]).unwrap();
    let text = "The parser reads dates of two forms.\nThe second one is old:\n\n  Goal: 2026-02-19";
    let changed = ["src/date.rs", "\"src/caf\\351.rs\""];
    Handoff {
        context: Paragraph::new(text).unwrap(),
        goal: Paragraph::new("Read the third form, too.").unwrap(),
        dod: Paragraph::new("All tests pass.").unwrap(),
        sandbox_work_dir: path("/var/lib/goondan/sandboxes/run-1/coder/work"),
        proposal_json: path("/var/lib/goondan/sandboxes/run-1/coder/proposal/proposal.json"),
        changed_files: List::new(changed.map(|path| ChangedFile::new(path).unwrap()).to_vec())
            .unwrap(),
        tests: line("cargo test: 12 passed"),
        next: line("review and apply, or request changes"),
    }
}

#[test]
fn prop_6_a_handoff_is_written_in_one_form_and_read_back() {
    assert_eq!(golden().to_string(), GOLDEN);
    assert_eq!(GOLDEN.parse(), Ok(golden()));
    let in_a_message = format!("Done.\n\n{GOLDEN}\n\nTell me if anything is unclear.\n");
    assert_eq!(in_a_message.parse(), Ok(golden()));
}

#[test]
fn prop_6_handoff_variants_written_by_models_are_parsed() {
    let plain = "\
HANDOFF
Goal: fix it
SandboxWorkDir: sandboxes/r/a/work
ProposalJson: sandboxes/r/a/proposal/proposal.json
ChangedFiles:
- src/a.ts
- b.ts
Next:
- apply";
    let expected: Handoff = plain.parse().unwrap();
    let variants = [
        // A code fence and trailing text.
        format!("Here it is:\n```text\n{plain}\n```\nThat is all.\n- really"),
        // Markdown.
        "## Handoff\n\n**Goal:** fix it\n**SandboxWorkDir:** `sandboxes/r/a/work`\n**Proposal JSON**: \
         `sandboxes/r/a/proposal/proposal.json`\n**Changed files:**\n* `src/a.ts` (modified)\n* `b.ts`\n\n\
         **Next:**\n1. apply\n"
            .to_owned(),
        // Only list items.
        "*** HANDOFF ***\r\n- goal: fix it\r\n- sandbox_work_dir: sandboxes/r/a/work\r\n- proposal_json: \
         sandboxes/r/a/proposal/proposal.json\r\n- changed_files:\r\n  - src/a.ts\r\n  - b.ts\r\n- next:\r\n  - \
         apply\r\n"
            .to_owned(),
        // Headings, a different order, lists on one line.
        "# HANDOFF:\n### Next\napply\n### Goal\nfix it\n### Changed Files\nsrc/a.ts\nb.ts\n### Sandbox Work Dir\n\
         sandboxes/r/a/work\n### ProposalJson\n- sandboxes/r/a/proposal/proposal.json\n"
            .to_owned(),
        "HANDOFF\nCONTEXT:\nGOAL: fix it\nSANDBOXWORKDIR: sandboxes/r/a/work\nPROPOSALJSON: \
         sandboxes/r/a/proposal/proposal.json\nCHANGEDFILES: src/a.ts, b.ts\nNEXT: apply"
            .to_owned(),
        // The keyword alone does not start a handoff.
        format!("Handoff\n\nI am to write one:\n\n{plain}"),
    ];
    for text in variants {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
    }
}

#[test]
fn prop_6_missing_duplicate_or_escaping_handoff_fields_fail() {
    let of = |text: &str| text.parse::<Handoff>().unwrap_err().to_string();
    assert_eq!(of("done"), "the line `HANDOFF` is missing; begin with it");
    let missing = of("HANDOFF\nGoal: x\nSandboxWorkDir: a/work");
    assert!(
        missing.starts_with("the field `ProposalJson` is missing"),
        "{missing}"
    );
    assert!(of(&format!("{GOLDEN}\nGoal: again")).contains("`Goal` is set twice"));
    for (from, to) in [
        ("- src/date.rs", "- ../date.rs"),
        ("- src/date.rs", "- /etc/passwd"),
        ("- src/date.rs", "- src//date.rs"),
        ("- src/date.rs", "- \"../date.rs\""),
        ("- src/date.rs", "- src/\u{1b}[2Jdate.rs"),
        ("goondan/sandboxes", "goondan/../sandboxes"),
        ("proposal.json", "other.json"),
        ("All tests pass.", "All \u{7}tests pass."),
    ] {
        let text = GOLDEN.replace(from, to);
        let refused = of(&text);
        assert!(refused.contains("is invalid"), "{to}: {refused}");
    }
    let long = GOLDEN.replace(
        "All tests pass.",
        &"x".repeat(HANDOFF_PARAGRAPH_BYTES_MAX + 1),
    );
    assert!(of(&long).contains("more than 16384 bytes"));
    let many = "- x\n".repeat(HANDOFF_LIST_MAX + 1);
    assert!(
        of(&GOLDEN.replace("- review", &format!("{many}- review")))
            .contains("more than 1000 lines")
    );
    assert!(of(&"x".repeat(HANDOFF_TEXT_BYTES_MAX + 1)).contains("give the handoff alone"));
}

#[test]
fn prop_6_paths_that_look_like_list_items_or_code_are_read_back() {
    for dir in [
        "* a", "- a", "+ a", "• a", "1. a", "12) a", "`a`", "``a", "* `a`",
    ] {
        let path = |rest: &str| HandoffPath::new(&format!("{dir}/{rest}")).unwrap();
        let handoff = Handoff {
            sandbox_work_dir: path("work"),
            proposal_json: path("proposal/proposal.json"),
            changed_files: List::new(vec![ChangedFile::new(&format!("{dir}/x")).unwrap()]).unwrap(),
            ..golden()
        };
        let text = handoff.to_string();
        assert_eq!(text.parse(), Ok(handoff), "{text}");
    }
}

fn paragraph() -> impl Strategy<Value = Paragraph> {
    let line = prop_oneof![
        "[ -~é]{0,20}",
        Just("HANDOFF".to_owned()),
        Just("Goal: x".to_owned()),
        Just("```".to_owned()),
        Just("- Next: y".to_owned()),
        Just("  - z".to_owned()),
        Just(String::new())
    ];
    proptest::collection::vec(line, 0..5)
        .prop_map(|lines| Paragraph::new(&lines.join("\n")).unwrap())
}

fn lines() -> impl Strategy<Value = List<TextLine>> {
    let line = prop_oneof![
        "[!-~][ -~é]{0,20}",
        Just("Tests: run again".to_owned()),
        Just("- x".to_owned()),
        Just("HANDOFF".to_owned()),
        Just("`a` b".to_owned()),
        Just("1. x".to_owned()),
        Just("a, b".to_owned())
    ];
    proptest::collection::vec(line, 0..4).prop_map(|lines| {
        List::new(
            lines
                .iter()
                .map(|line| TextLine::new(line).unwrap())
                .collect(),
        )
        .unwrap()
    })
}

fn name() -> impl Strategy<Value = String> {
    "[!-~é]([ -~é]{0,6}[!-~é])?".prop_map(|name| name.replace(['/', '.'], "x"))
}

fn changed() -> impl Strategy<Value = List<ChangedFile>> {
    let path = proptest::collection::vec(name(), 1..3).prop_map(|names| names.join("/"));
    let quoted = path.prop_filter("it would be quoted", |path| !path.contains('"'));
    proptest::collection::vec(quoted, 0..4).prop_map(|paths| {
        List::new(
            paths
                .iter()
                .map(|path| ChangedFile::new(path).unwrap())
                .collect(),
        )
        .unwrap()
    })
}

proptest! {
    #[test]
    fn prop_6_every_handoff_is_read_back(
        (context, goal, dod) in (paragraph(), paragraph(), paragraph()),
        (dir, changed_files) in (name(), changed()),
        (tests, next) in (lines(), lines()),
        is_absolute in any::<bool>(),
    ) {
        let root = if is_absolute { "/" } else { "" };
        let path = |rest: &str| HandoffPath::new(&format!("{root}{dir}/{rest}")).unwrap();
        let handoff = Handoff {
            context, goal, dod, changed_files, tests, next,
            sandbox_work_dir: path("work"),
            proposal_json: path("proposal/proposal.json"),
        };
        let text = handoff.to_string();
        prop_assert_eq!(text.parse::<Handoff>(), Ok(handoff.clone()), "{}", text);
        let fenced = format!("so:\n```\n{text}\n```\nbye\n");
        prop_assert_eq!(fenced.parse::<Handoff>(), Ok(handoff), "{}", fenced);
    }

    #[test]
    fn prop_6_no_text_makes_the_reader_fail(text in "(HANDOFF|Goal:|ProposalJson:|- |[ \n`*#é:a/.]){0,60}") {
        drop(text.parse::<Handoff>());
    }
}
