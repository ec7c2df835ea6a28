//! The tool `bash`: shell commands in the work directory.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use goondan_clock::{Instant, sleep_until};
use serde::Deserialize;
use serde_json::json;

use super::capture::{Capture, Stream};
use super::export::{Export, Output};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::pipe::{DRAIN_TIMEOUT, Pipe, SUPERVISOR_GRACE, explained, not_confined, supervisor_in};
use super::places::ToolRoots;
use super::session::MAX_TIMEOUT_MS;
use super::tool_supervisor;
use crate::tool_call::ToolOutcome;

/// Longest command, in characters. At four bytes each it still fits one argument of a Linux
/// process.
const MAX_COMMAND_CHARS: usize = 30_000;
/// Default time limit of a command, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

pub(crate) fn exports() -> Vec<Export> {
    vec![Export {
        name: "exec".into(),
        description: "Runs a bash command in the work directory and returns its exit code, stdout and stderr. $GOONDAN_PROJECT_ROOT is the project. Background processes end with the command, unless it runs in a `session`.".into(),
        parameters: json!({
            "type": "object",
            "required": ["command"],
            "additionalProperties": false,
            "properties": {
                "command": {"type": "string", "minLength": 1, "maxLength": MAX_COMMAND_CHARS},
                "timeoutMs": {
                    "type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS,
                    "description": format!("Time limit in milliseconds; default {DEFAULT_TIMEOUT_MS}"),
                },
                "session": {
                    "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$",
                    "description": "A shell of this name, which keeps its directory, variables, functions and background jobs for later calls; started on first use",
                },
            },
        }),
        is_idempotent: false,
        output: Output::BoundedByTool,
        run: Box::new(|places, call| -> BoxFuture<'static, ToolOutcome> {
            Box::pin(async move { exec(&places, &call).await.unwrap_or_else(ToolOutcome::from) })
        }),
    }]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecArgs {
    command: String,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    session: Option<String>,
}

async fn exec(places: &Arc<ToolRoots>, call: &ToolInvocation) -> Result<ToolOutcome, ToolFault> {
    let args: ExecArgs = call.args()?;
    let timeout_ms = args.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    if let Some(session) = &args.session {
        let outcome = places
            .sessions
            .exec(
                &places.work,
                &places.surroundings,
                session,
                call,
                args.command,
                timeout_ms,
            )
            .await?;
        return Ok(explained(outcome, &places.surroundings));
    }
    let ended = run(places, &call.call_id, &args.command, timeout_ms).await?;
    let timed_out_after_ms = ended.is_given_up.then_some(timeout_ms);
    let text = result_text(
        timed_out_after_ms,
        ended.status.and_then(|status| status.code()),
        &ended.capture,
    );
    let outcome = ToolOutcome {
        text,
        is_error: ended.is_given_up,
        images: Vec::new(),
        has_failed: ended.status.is_some_and(|status| !status.success()),
        is_unknown: false,
        refusal: None,
    };
    Ok(explained(outcome, &places.surroundings))
}

/// A command that ended, together with every process it started.
pub(super) struct CommandResult {
    /// True if it exceeded its time limit and was killed.
    pub(super) is_given_up: bool,
    pub(super) status: Option<ExitStatus>,
    pub(super) capture: Capture,
}

/// Runs a command with `bash -c` for at most `timeout_ms`. Dropping the future ends it and every
/// process it started.
///
/// # Errors
///
/// [`ToolFault`] if the command could not be started or confined.
pub(super) async fn run(
    places: &Arc<ToolRoots>,
    call_id: &str,
    command: &str,
    timeout_ms: u64,
) -> Result<CommandResult, ToolFault> {
    let mut supervisor = supervisor_in(&places.surroundings)
        .arg(tool_supervisor::COMMAND)
        .arg(command)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| failed("the command could not be started", &error))?;
    // Closing this pipe ends the command and every process it started; dropping this future closes
    // it.
    let mut control = supervisor.stdin.take();
    let mut stdout = Pipe::new(supervisor.stdout.take());
    let mut stderr = Pipe::new(supervisor.stderr.take());
    let mut capture = Capture::new(call_id);
    let mut status = None;
    let mut is_given_up = false;
    let mut deadline = Instant::now() + Duration::from_millis(timeout_ms);

    while status.is_none() || stdout.is_open() || stderr.is_open() {
        tokio::select! {
            chunk = stdout.read(), if stdout.is_open() => {
                capture.push(&places.work, Stream::Stdout, &chunk);
            }
            chunk = stderr.read(), if stderr.is_open() => {
                capture.push(&places.work, Stream::Stderr, &chunk);
            }
            ended = supervisor.wait(), if status.is_none() => {
                status = Some(ended.map_err(|error| failed("the command was lost", &error))?);
                deadline = Instant::now() + DRAIN_TIMEOUT;
            }
            () = sleep_until(deadline) => {
                if status.is_some() {
                    break;
                } else if is_given_up {
                    supervisor
                        .start_kill()
                        .map_err(|error| failed("the command could not be ended", &error))?;
                    deadline = Instant::now() + DRAIN_TIMEOUT;
                } else {
                    is_given_up = true;
                    drop(control.take());
                    deadline = Instant::now() + SUPERVISOR_GRACE;
                }
            }
        }
    }
    if let Some(fault) = not_confined(status.and_then(|status| status.code()), &capture) {
        return Err(fault);
    }
    Ok(CommandResult {
        is_given_up,
        status,
        capture,
    })
}

fn failed(what: &str, error: &std::io::Error) -> ToolFault {
    ToolFault::new("E_TOOL_FAILED", format!("{what}: {error}"))
}

/// Formats an ended command for the model.
fn result_text(timed_out_after_ms: Option<u64>, code: Option<i32>, capture: &Capture) -> String {
    let mut text = String::new();
    if let Some(timeout_ms) = timed_out_after_ms {
        text.push_str(&format!(
            "E_TOOL_TIMEOUT: the command ran longer than {timeout_ms} ms and was ended with all it \
             started; do less at once or give a larger `timeoutMs` (at most {MAX_TIMEOUT_MS})\n"
        ));
    } else {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        text.push_str(&format!("exit code: {code}\n"));
    }
    capture.show(&mut text);
    text
}
