//! Renders log lines for terminals.

use goondan_protocol::JsonObject;
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use crate::output::style::{self, Palette};
use crate::output::text;

/// Fields shown in front of the message, and not repeated after it.
const HEAD_FIELDS: [&str; 9] = [
    "timestamp",
    "level",
    "message",
    "process",
    "agentName",
    "instanceKey",
    "connection",
    "workspaceId",
    "pid",
];

/// Fields with ids, which are shown only on request. They identify a record for programs; a person reads the rest.
const ID_FIELDS: [&str; 10] = [
    "traceId",
    "spanId",
    "parentSpanId",
    "eventId",
    "turnId",
    "stepId",
    "toolCallId",
    "messageId",
    "requestId",
    "processId",
];

/// Optional parts of a line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Details {
    /// True to show ids.
    pub(crate) ids: bool,
    /// True to show the workspace.
    pub(crate) workspace: bool,
}

/// Renders a line: time, level, process, message, and the remaining fields.
pub(crate) fn render(line: &str, details: Details, palette: Palette) -> String {
    let Ok(fields) = serde_json::from_str::<JsonObject>(line) else {
        return text::one_line(line);
    };
    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let at = field("timestamp");
    let at = at
        .parse::<Timestamp>()
        .map_or_else(|_| text::one_line(at), text::clock_ms);
    let level = field("level").to_uppercase();
    let look = match level.as_str() {
        "ERROR" => style::BAD,
        "WARN" => style::WARN,
        "INFO" => style::GOOD,
        _ => style::FAINT,
    };
    let message_look = match level.as_str() {
        "ERROR" => style::BAD,
        "WARN" => style::WARN,
        "DEBUG" | "TRACE" => style::FAINT,
        _ => style::PLAIN,
    };
    let level = text::one_line(&level);
    let mut rest: Vec<String> = fields
        .iter()
        .filter(|(name, _)| !HEAD_FIELDS.contains(&name.as_str()))
        .filter(|(name, _)| details.ids || !ID_FIELDS.contains(&name.as_str()))
        .map(|(name, value)| text::one_line(&format!("{name}={}", plain(value))))
        .collect();
    rest.sort_unstable();
    let parts = [
        palette.paint(style::FAINT, &at),
        palette.paint(look, &format!("{level:5}")),
        palette.paint(style::TITLE, &who(&fields, details)),
        palette.paint(message_look, text::one_line(field("message")).as_str()),
        palette.paint(style::FAINT, &rest.join(" ")),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("  ")
}

/// The process: `orchestrator`, `agent clerk/main`, `connector hook`.
fn who(fields: &JsonObject, details: Details) -> String {
    let field = |name: &str| fields.get(name).and_then(Value::as_str);
    let workspace = field("workspaceId").filter(|_| details.workspace);
    let mut who = workspace.map_or_else(String::new, |id| format!("{id} "));
    who.push_str(field("process").unwrap_or("?"));
    if let Some(name) = field("agentName").or(field("connection")) {
        who.push_str(&format!(" {name}"));
    }
    if let Some(key) = field("instanceKey") {
        who.push_str(&format!("/{key}"));
    }
    text::one_line(&who)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains(char::is_whitespace) => {
            text.clone()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_shows_process_message_and_remaining_fields() {
        let line = r#"{"timestamp":"x","level":"warn","message":"tool failed","process":"agent","pid":7,"workspaceId":"w","agentName":"clerk","instanceKey":"main","traceId":"t1","toolName":"bash__exec","error":"no such file"}"#;
        let shown = |ids, workspace| {
            let details = Details { ids, workspace };
            render(line, details, Palette::new(false))
        };
        assert_eq!(
            shown(false, false),
            "x  WARN   agent clerk/main  tool failed  error=\"no such file\" toolName=bash__exec"
        );
        assert_eq!(
            shown(true, true),
            "x  WARN   w agent clerk/main  tool failed  error=\"no such file\" toolName=bash__exec traceId=t1"
        );
    }

    #[test]
    fn a_line_that_is_no_log_line_is_shown_as_it_is() {
        let plain = |line: &str| render(line, Details::default(), Palette::new(false));
        assert_eq!(plain("[1,\u{1b}]"), "[1,\\u{1b}]");
        let bare = plain(r#"{"message":"m"}"#);
        assert_eq!(bare.split_whitespace().collect::<Vec<_>>(), ["?", "m"]);
    }
}
