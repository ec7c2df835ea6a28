//! Finds the messages in the output of a server (pure).
//!
//! Some programs write their log to stdout as JSON. The library would answer such a line with an
//! error, and some servers exit because of this. The library cannot read batches.

use std::borrow::Cow;

use goondan_protocol::JsonObject;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

/// The field by which JSON is recognized as a message.
#[derive(Deserialize)]
struct VersionField {
    jsonrpc: Option<IgnoredAny>,
}

/// An answer without a version. A record of a log has other fields, although it can have an `id` and
/// an `error`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnversionedAnswer {
    id: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<JsonObject>,
}

/// The messages of a line or a body: one, or those of a batch. `None` if it is other output.
pub(super) fn messages(line: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    if line.trim_ascii_start().starts_with(b"[") {
        let parts: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
        let parts = parts.into_iter();
        let parts = parts.filter_map(|part| message(part.get().as_bytes()));
        let parts: Vec<Cow<'_, [u8]>> = parts.collect();
        return (!parts.is_empty()).then_some(parts);
    }
    message(line).map(|text| vec![text])
}

/// The message in a text. An answer without a version gets one, because the library requires it.
fn message(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let found: VersionField = serde_json::from_slice(text).ok()?;
    if found.jsonrpc.is_some() {
        return Some(Cow::Borrowed(text));
    }
    let found: UnversionedAnswer = serde_json::from_slice(text).ok()?;
    let is_answer = found.id.is_some() && (found.result.is_some() || found.error.is_some());
    let mut fields: JsonObject = serde_json::from_slice(text).ok().filter(|_| is_answer)?;
    fields.insert("jsonrpc".to_owned(), json!("2.0"));
    serde_json::to_vec(&fields).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let found = messages(line.as_bytes()).unwrap_or_default().into_iter();
        found
            .map(|text| String::from_utf8(text.into_owned()).unwrap())
            .collect()
    }

    #[test]
    fn prov_1_logs_in_json_are_no_messages() {
        for line in [
            r#"{"level":"info","msg":"client initialized","time":"2026-01-01T00:00:00Z"}"#,
            r#"{"level":30,"id":7,"msg":"request"}"#,
            r#"{"error":"no such file"}"#,
            r#"{"level":"error","id":7,"error":{"code":1,"message":"no"}}"#,
            r#"{"id":7,"error":"no such file"}"#,
            r#"{"method":"GET","id":3,"url":"/health"}"#,
            "{}",
            "[]",
            "[1, 2]",
            "42",
            "null",
            "true",
            "\"text\"",
            "Server running on stdio",
            "[INFO] ready",
            "",
        ] {
            assert!(found(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn prov_1_messages_are_found_alone_and_in_a_batch() {
        let call = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        for line in [call, note] {
            assert_eq!(found(line), [line]);
        }
        let bare = r#"{"id":"1","error":{"code":1,"message":"no"}}"#;
        let completed = r#"{"id":"1","error":{"code":1,"message":"no"},"jsonrpc":"2.0"}"#;
        assert_eq!(found(bare), [completed]);
        assert_eq!(found(&format!("[{call}, {note}]")), [call, note]);
        assert_eq!(found(&format!(" [{call},42]")), [call]);
    }
}
