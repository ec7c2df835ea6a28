//! Inputs of recorded shapes: one small payload for each event and variant of the table, after the
//! documentation of GitHub, with its sentence.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::sentences::{TABLE, variant};
use super::*;
use crate::limits::EVENT_TEXT_CHARS_MAX;

/// Pairs of lines: an event with the fields that its payload adds to or removes from [`base`], and
/// its sentence.
const SHAPES: &str = include_str!("shapes.txt");

/// The fields of most payloads.
fn base() -> Value {
    json!({"repository": {"full_name": "a/b", "html_url": "https://h/a/b"}, "sender": {"login": "ada"}})
}

fn with(fields: &Value) -> Value {
    let mut body = base();
    let all = body.as_object_mut().unwrap();
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            all.remove(name);
        } else {
            all.insert(name.clone(), value.clone());
        }
    }
    body
}

fn shapes() -> impl Iterator<Item = (&'static str, Value, &'static str)> {
    let lines: Vec<&str> = SHAPES.lines().collect();
    let pairs = lines.as_chunks::<2>().0.to_vec();
    pairs.into_iter().map(|[shape, sentence]| {
        let (event, fields) = shape.split_once(' ').unwrap();
        let fields =
            serde_json::from_str(fields).unwrap_or_else(|error| panic!("{shape}: {error}"));
        (event, with(&fields), sentence.trim())
    })
}

#[test]
fn conn_1_each_github_event_is_a_sentence_with_who_and_what() {
    let wrong: Vec<String> = shapes()
        .filter_map(|(event, body, expected)| {
            let found = sentence(event, &body);
            (found != expected).then(|| format!("{event} {body}\n  {found}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn conn_1_each_sentence_of_the_table_has_a_shape() {
    let shown: BTreeSet<(&str, &str)> = shapes()
        .filter_map(|(event, body, _)| {
            let entry = sentences::of_event(event)?;
            let variant = variant(event, &body).to_owned();
            let mut sentences = entry.sentences.iter();
            let found = sentences.find(|(of, _)| *of == variant);
            Some((entry.event, found.map_or("", |(of, _)| of)))
        })
        .collect();
    let all = TABLE.iter().flat_map(|entry| {
        let sentences = entry.sentences.iter();
        sentences.map(|(variant, _)| (entry.event, *variant))
    });
    let missing: Vec<_> = all.filter(|named| !shown.contains(named)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A value that is missing outside of brackets is a mistake of the table.
    for (_, _, sentence) in shapes() {
        assert!(
            !sentence.contains('?') && !sentence.contains("  "),
            "{sentence}"
        );
    }
}

#[test]
fn conn_1_input_has_the_link_and_what_was_written() {
    let check = with(&json!({"action": "completed", "check_run": {"name": "lint",
        "conclusion": "failure", "head_sha": "0123456789", "html_url": "https://h/c",
        "output": {"title": "2 problems", "summary": "See `a.rs`."}}}));
    assert_eq!(
        of("check_run", &check),
        "check \"lint\" failed on commit 0123456 in a/b\nhttps://h/c\n\n2 problems\n\nSee `a.rs`."
    );
    let dispatch = with(&json!({"action": "deploy", "client_payload": {"version": 3}}));
    assert_eq!(
        of("repository_dispatch", &dispatch),
        "ada sent the event \"deploy\" to a/b\nhttps://h/a/b\n\n{\"version\":3}"
    );
    let review = with(
        &json!({"action": "submitted", "review": {"state": "approved", "body": " "},
        "pull_request": {"number": 2, "title": "T\n x", "body": "Not repeated."}}),
    );
    assert_eq!(
        of("pull_request_review", &review),
        "ada approved pull request #2 \"T x\" in a/b\nhttps://h/a/b"
    );
}

#[test]
fn conn_1_long_github_text_is_truncated_with_a_mark() {
    let long = "가".repeat(EVENT_TEXT_CHARS_MAX + 1);
    let words = of(
        "issues",
        &json!({"action": "opened", "issue": {"body": long}}),
    );
    assert!(words.ends_with("가 […]"), "{}", words.len());
    let commits: Vec<Value> = (0..25)
        .map(|n| json!({"id": "abc", "message": format!("m{n}")}))
        .chain([json!({"omitted": 40})])
        .collect();
    let words = of("push", &json!({"ref": "refs/heads/r", "commits": commits}));
    assert!(words.starts_with("GitHub pushed 65 commits to branch r of GitHub"));
    assert!(words.ends_with("abc m19\nand 45 more"), "{words}");
}
