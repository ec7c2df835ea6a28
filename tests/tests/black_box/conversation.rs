//! Invariants of a conversation, whichever process was killed meanwhile.

use std::collections::HashSet;

use serde_json::Value;

pub(crate) fn role(message: &Value) -> &str {
    message["data"]["role"].as_str().unwrap()
}

pub(crate) fn text(message: &Value) -> String {
    match &message["data"]["content"] {
        Value::String(text) => text.clone(),
        parts => {
            let parts = parts.as_array().unwrap().iter();
            parts.filter_map(|part| part["text"].as_str()).collect()
        }
    }
}

/// Ids of the calls in a message.
pub(crate) fn calls(message: &Value) -> Vec<&str> {
    ids(message, "tool-call")
}

/// Ids of the calls whose results a message contains.
pub(crate) fn results(message: &Value) -> Vec<&str> {
    ids(message, "tool-result")
}

/// The text of a tool's result.
pub(crate) fn result_text(message: &Value) -> &str {
    message["data"]["content"][0]["output"]["value"]
        .as_str()
        .unwrap()
}

fn ids<'a>(message: &'a Value, kind: &str) -> Vec<&'a str> {
    let parts = message["data"]["content"].as_array().into_iter().flatten();
    parts
        .filter(|part| part["type"] == kind)
        .map(|part| part["toolCallId"].as_str().unwrap())
        .collect()
}

/// Roles in order, shortened: `uata` is a question, a call, its result, and the answer.
pub(crate) fn shape(messages: &[Value]) -> String {
    messages
        .iter()
        .filter_map(|message| role(message).chars().next())
        .collect()
}

/// Checks the invariants of a conversation between turns: each message, step and event exists once,
/// and each call has exactly one result, directly after it (`MSG-8`, `MSG-13`).
#[track_caller]
pub(crate) fn check(messages: &[Value]) {
    let all =
        |of: fn(&Value) -> Option<&str>| -> Vec<&str> { messages.iter().filter_map(of).collect() };
    let message_ids = all(|message| message["id"].as_str());
    let step_ids = all(|message| message["source"]["stepId"].as_str());
    let event_ids = all(|message| message["metadata"]["eventId"].as_str());
    assert_eq!(message_ids.len(), messages.len());
    for ids in [message_ids, step_ids, event_ids] {
        let distinct: HashSet<&str> = ids.iter().copied().collect();
        assert_eq!(
            distinct.len(),
            ids.len(),
            "one is there twice: {messages:#?}"
        );
    }
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match role(message) {
            "tool" => {
                for id in results(message) {
                    assert!(!open.is_empty(), "a result of no call: {message}");
                    assert_eq!(open.remove(0), id, "not the result of the next call");
                }
            }
            _ => {
                assert!(open.is_empty(), "no result of {open:?}: {messages:#?}");
                open = calls(message);
            }
        }
    }
    assert!(open.is_empty(), "no result of {open:?}");
    let answered = messages
        .last()
        .is_none_or(|message| role(message) == "assistant");
    assert!(answered, "the last question has no answer: {messages:#?}");
}
