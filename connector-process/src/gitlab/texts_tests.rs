//! Inputs of recorded shapes: one small payload for each event and variant of the table, after the
//! documentation of GitLab, with its sentence.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::sentences::{TABLE, variant};
use super::*;
use crate::limits::EVENT_TEXT_CHARS_MAX;

/// Pairs of lines: a payload without the fields of [`base`], and its sentence.
const SHAPES: &str = include_str!("shapes.txt");

/// The fields of most payloads.
fn base() -> Value {
    json!({"project": {"path_with_namespace": "a/b", "web_url": "https://h/a/b"},
        "user": {"username": "ada"}})
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

fn shapes() -> impl Iterator<Item = (Value, &'static str)> {
    let lines: Vec<&str> = SHAPES.lines().collect();
    let pairs = lines.as_chunks::<2>().0.to_vec();
    pairs.into_iter().map(|[shape, sentence]| {
        let fields = serde_json::from_str(shape).unwrap_or_else(|error| panic!("{shape}: {error}"));
        (with(&fields), sentence.trim())
    })
}

fn event(body: &Value) -> &str {
    origin::event_name(body).unwrap()
}

#[test]
fn conn_1_each_gitlab_event_is_a_sentence_with_who_and_what() {
    let wrong: Vec<String> = shapes()
        .filter_map(|(body, expected)| {
            let words = of(event(&body), &body);
            let found = words.lines().next().unwrap_or_default();
            (found != expected).then(|| format!("{body}\n  {found}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn conn_1_each_gitlab_sentence_of_the_table_has_a_shape() {
    let shown: BTreeSet<(&str, &str)> = shapes()
        .filter_map(|(body, _)| {
            let entry = sentences::of_event(event(&body))?;
            let variant = variant(event(&body), &body).to_owned();
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
    for (_, sentence) in shapes() {
        assert!(
            !sentence.contains('?') && !sentence.contains("  "),
            "{sentence}"
        );
    }
}

#[test]
fn conn_1_gitlab_input_has_the_link_and_what_was_written() {
    let push = with(
        &json!({"object_kind": "push", "before": "01", "after": "02",
        "ref": "refs/heads/main", "total_commits_count": 23,
        "commits": [{"id": "da1560886d4f", "message": "Mend it\n\nAt last."}]}),
    );
    assert_eq!(
        of("push", &push),
        "ada pushed 23 commits to branch main of a/b\nhttps://h/a/b/-/compare/01...02\n\n\
         da15608 Mend it\nand 22 more"
    );
    let job = with(
        &json!({"object_kind": "build", "build_id": 9, "build_name": "lint",
        "build_stage": "test", "build_status": "failed", "build_failure_reason": "script_failure",
        "ref": "main", "sha": "2293ada6b4"}),
    );
    assert_eq!(
        of("job", &job),
        "job \"lint\" (stage test) failed (script failure) on branch main (commit 2293ada) in a/b, \
         started by ada\nhttps://h/a/b/-/jobs/9"
    );
    let long = "가".repeat(EVENT_TEXT_CHARS_MAX + 1);
    let issue = with(
        &json!({"object_kind": "issue", "object_attributes": {"iid": 1, "title": "T",
        "action": "open", "url": "https://h/i", "description": long}}),
    );
    let words = of("issue", &issue);
    assert!(words.starts_with("ada opened issue #1 \"T\" in a/b\nhttps://h/i\n\n가가"));
    assert!(words.ends_with("가 […]"), "{}", words.len());
    let release = with(
        &json!({"object_kind": "release", "action": "create", "tag": "v1.1",
        "name": "v1.1", "url": "https://h/r", "description": "Faster."}),
    );
    assert_eq!(
        of("release", &release),
        "release v1.1 was published in a/b\nhttps://h/r\n\nFaster."
    );
}
