//! Output that floods, contains falsehoods, or never ends.

use goondan_cli_agents::blocks::{Block, BlockRefusal, Problem, ScanItem, Scanner};
use goondan_cli_agents::limits::{
    BLOCK_BYTES_MAX, DOCUMENTS_MAX, FIELD_CHARS_MAX, JSON_LINE_BYTES_MAX, OPTIONS_MAX,
    TEXT_LINE_BYTES_MAX,
};
use goondan_cli_agents::{CliEvent, Format};

use crate::read;

fn found(text: &str) -> Vec<ScanItem> {
    let mut scanner = Scanner::new("");
    let mut found = scanner.push(text.as_bytes());
    found.extend(scanner.end());
    found
}

fn question(text: &str) -> String {
    format!("[USER_QUESTION]\nquestion: {text}\n[/USER_QUESTION]\n")
}

fn refused(problem: Problem) -> ScanItem {
    let protocol = "USER_QUESTION";
    ScanItem::Refused(BlockRefusal { protocol, problem })
}

#[test]
fn proto_1_a_field_has_ten_thousand_characters_and_not_one_more() {
    let [ScanItem::Block(Block::UserQuestion(asked))] =
        &found(&question(&"데".repeat(FIELD_CHARS_MAX)))[..]
    else {
        panic!("not one question");
    };
    assert_eq!(asked.question.chars().count(), FIELD_CHARS_MAX);
    let field = "question";
    let longer = found(&question(&"데".repeat(FIELD_CHARS_MAX + 1)));
    assert_eq!(longer, [refused(Problem::FieldTooLong { field })]);
}

#[test]
fn proto_1_a_block_has_a_hundred_kibibytes_and_not_one_more() {
    let bare = "[HANDOFF]\n\n[/HANDOFF]\n".len();
    let block = |text: usize| {
        let lines = "x".repeat(99) + "\n";
        let mut body = lines.repeat(text / 100);
        body.push_str(&"y".repeat(text % 100));
        format!("[HANDOFF]\n{body}\n[/HANDOFF]\n")
    };
    let fits = block(BLOCK_BYTES_MAX - bare);
    assert_eq!(fits.len(), BLOCK_BYTES_MAX);
    assert!(matches!(
        found(&fits)[..],
        [ScanItem::Block(Block::Handoff(_))]
    ));
    let over = found(&block(BLOCK_BYTES_MAX - bare + 1));
    let protocol = "HANDOFF";
    let problem = Problem::TooLong;
    assert_eq!(
        over,
        [ScanItem::Refused(BlockRefusal { protocol, problem })]
    );
    let one_line = found(&format!(
        "[HANDOFF]\n{}\n[/HANDOFF]\n",
        "z".repeat(TEXT_LINE_BYTES_MAX + 1)
    ));
    assert!(
        matches!(&one_line[..], [ScanItem::Refused(refusal)] if refusal.problem == Problem::TooLong)
    );
}

#[test]
fn proto_1_an_unclosed_block_swallows_no_other() {
    let flood = format!(
        "[USER_QUESTION]\nquestion: {}\n",
        "x\n".repeat(BLOCK_BYTES_MAX)
    );
    let text = format!(
        "[USER_QUESTION]\nquestion: open\n{flood}{}",
        question("asked")
    );
    let found = found(&text);
    assert_eq!(
        found[..2],
        [refused(Problem::Unterminated), refused(Problem::TooLong)]
    );
    assert!(
        matches!(&found[2..], [ScanItem::Block(Block::UserQuestion(asked))] if asked.question == "asked")
    );
    assert_eq!(
        self::found("[USER_QUESTION]\nquestion: x\n"),
        [refused(Problem::Unterminated)]
    );
    // A closing tag of another kind, or inside a fence, closes nothing.
    let text =
        "[USER_QUESTION]\nquestion: a\n[/ERROR]\n```\n[/USER_QUESTION]\n```\n[/USER_QUESTION]\n";
    let [ScanItem::Block(Block::UserQuestion(asked))] = &self::found(text)[..] else {
        panic!("not one question");
    };
    assert_eq!(asked.question, "a\n[/ERROR]\n```\n[/USER_QUESTION]\n```");
}

#[test]
fn proto_1_nested_fences_hide_their_content() {
    let inner = format!("```\n{}```\n", question("inner"));
    let nested = format!("`````md\n{inner}````\n{inner}`````\n{}", question("own"));
    assert!(
        matches!(&found(&nested)[..], [ScanItem::Block(Block::UserQuestion(asked))] if asked.question == "own")
    );
    // An unclosed fence ends with its text, not with the session.
    let mut scanner = Scanner::new("");
    assert!(
        scanner
            .push(format!("```\n{}", question("inner")).as_bytes())
            .is_empty()
    );
    assert!(scanner.end().is_empty());
    assert_eq!(scanner.push(question("next").as_bytes()).len(), 1);
}

#[test]
fn proto_3_proto_4_lists_are_bounded() {
    let options = "- x\n".repeat(OPTIONS_MAX + 1);
    let text = format!("[USER_QUESTION]\nquestion: a\noptions:\n{options}[/USER_QUESTION]\n");
    let (field, max) = ("options", OPTIONS_MAX);
    assert_eq!(found(&text), [refused(Problem::TooMany { field, max })]);
    let documents = "- docs/a.md\n".repeat(DOCUMENTS_MAX + 5);
    let found = found(&format!(
        "=== PHASE 1 COMPLETE ===\nDocuments created:\n{documents}"
    ));
    let [
        ScanItem::Refused(_),
        ScanItem::Block(Block::PhaseComplete(done)),
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!(done.documents.len(), DOCUMENTS_MAX);
}

#[test]
fn endless_lines_are_skipped_and_reported() {
    let flood = "x".repeat(JSON_LINE_BYTES_MAX + 7);
    let text = format!("{flood}\n{{\"type\":\"thread.started\",\"thread_id\":\"t\"}}\n");
    let events = read(Format::CodexJson, &[text.as_bytes()]);
    let bytes = flood.len() as u64;
    assert!(
        matches!(&events[..], [CliEvent::Skipped(skipped), CliEvent::Session { .. }] if *skipped == bytes)
    );
    let events = read(Format::Plain, &[&vec![b'y'; TEXT_LINE_BYTES_MAX + 3]]);
    assert!(
        matches!(&events[..], [CliEvent::Text(_), CliEvent::Skipped(3)]),
        "{}",
        events.len()
    );
    let deep = "[".repeat(100_000);
    let events = read(Format::Acp, &[format!("{{\"id\":{deep}\n").as_bytes()]);
    assert!(matches!(&events[..], [CliEvent::Noise(_)]));
}
