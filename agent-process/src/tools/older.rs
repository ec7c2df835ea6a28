//! The tools of `@goondan/base` as of 0.0.3: the same names, arguments and JSON results
//! (`COMPAT-2`). Newer exports are offered in addition.
//!
//! * `json`, `text`: pure functions on documents and texts; `javascript`: numbers, texts and paths as
//!   in the language in which the tools were written.
//! * `shell`, `files`: commands and files of the work directory.
//! * `agents`: other agents, and the agent's own restart.
//! * `http`, `telegram`, `slack`: requests and chats, through connections; `services` holds their
//!   shared code, `download` their file transfers.
//!
//! A result is one JSON object, which the model reads unchanged.

mod agents;
mod download;
mod files;
mod http;
mod javascript;
mod json;
mod services;
mod shell;
mod slack;
mod telegram;
mod text;

use std::time::Duration;

use goondan_clock::Instant;
use goondan_log::unix_millis_now;
use goondan_protocol::definition::{AgentDefinition, ToolDefinition};
use goondan_protocol::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::export::{Export, ExportHandler, Output, blocking};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use crate::tool_call::ToolOutcome;

/// Longest wait of one call, in seconds.
const WAIT_SECONDS_MAX: f64 = 300.0;

/// The old exports of a built-in tool, followed by today's exports with other names.
pub(super) fn exports(
    builtin: &str,
    today: Vec<Export>,
    definition: &ToolDefinition,
    agent: &AgentDefinition,
) -> Vec<Export> {
    let mut exports = match builtin {
        "agents" => agents::exports(agent),
        "bash" => shell::exports(),
        "file-system" => files::exports(),
        "http-fetch" => http::exports(&definition.connections),
        "json-query" => json::exports(),
        "self-restart" => agents::restart(),
        "slack" => slack::exports(&definition.connections),
        "telegram" => telegram::exports(&definition.connections),
        "text-transform" => text::exports(),
        "wait" => vec![wait()],
        _ => Vec::new(),
    };
    for export in today {
        if exports.iter().all(|older| older.name != export.name) {
            exports.push(export);
        }
    }
    exports
}

/// Description of an export and its arguments by name.
struct ExportSpec {
    name: &'static str,
    description: &'static str,
    properties: Value,
    required: &'static [&'static str],
    is_idempotent: bool,
}

/// Unknown arguments are ignored, as in 0.0.3.
fn export(told: ExportSpec, run: ExportHandler) -> Export {
    let ExportSpec {
        name,
        description,
        properties,
        required,
        is_idempotent,
    } = told;
    Export {
        name: name.into(),
        description: description.into(),
        parameters: json!({
            "type": "object", "properties": properties, "required": required,
        }),
        is_idempotent,
        output: Output::MayBeLong,
        run,
    }
}

/// Creates an export that only computes. The text of its result is JSON.
fn pure<R: ToString + 'static>(
    told: ExportSpec,
    work: fn(&ToolInvocation) -> Result<R, ToolFault>,
) -> Export {
    let run: ExportHandler = Box::new(move |_, call| {
        Box::pin(blocking(move || {
            work(&call).map(|result| result.to_string())
        }))
    });
    export(told, run)
}

/// Converts a result to a tool outcome.
fn outcome(result: Result<Value, ToolFault>) -> ToolOutcome {
    result.map_or_else(ToolOutcome::from, |result| {
        ToolOutcome::ok(result.to_string())
    })
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(unix_millis_now())
}

/// Milliseconds since `begun`.
fn millis_since(begun: Instant) -> u64 {
    u64::try_from((Instant::now() - begun).as_millis()).unwrap_or(u64::MAX)
}

fn invalid(message: impl Into<String>) -> ToolFault {
    ToolFault::new("E_TOOL_INVALID_ARGS", message)
}

/// Refuses the path of a file that ends with a slash. `read` and `write` of 0.0.3 failed, because the
/// system takes such a path for a directory.
fn check_file_path(path: &str) -> Result<(), ToolFault> {
    if path.ends_with('/') {
        return Err(invalid(format!("`{path}` names a directory, not a file")));
    }
    Ok(())
}

fn wait() -> Export {
    let told = ExportSpec {
        name: "seconds",
        description: "Waits for a number of seconds.",
        properties: json!({"seconds": {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX}}),
        required: &["seconds"],
        is_idempotent: true,
    };
    export(
        told,
        Box::new(|_, call| {
            Box::pin(async move {
                #[derive(Deserialize)]
                struct Args {
                    seconds: f64,
                }
                match call.args::<Args>() {
                    Ok(Args { seconds }) => {
                        let millis = javascript::integer((seconds * 1_000.0).round());
                        let millis = u64::try_from(millis).unwrap_or(0);
                        tokio::time::sleep(Duration::from_millis(millis)).await;
                        let waited = javascript::number(seconds);
                        let waited = json!({"waitedSeconds": waited, "waitedMs": millis});
                        ToolOutcome::ok(waited.to_string())
                    }
                    Err(fault) => fault.into(),
                }
            })
        }),
    )
}
