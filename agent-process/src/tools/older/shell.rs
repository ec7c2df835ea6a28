//! `bash`: `exec` and `script`.

use std::collections::BTreeMap;
use std::sync::Arc;

use goondan_clock::Instant;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ExportSpec, export, invalid, millis_since};
use crate::tool_call::ToolOutcome;
use crate::tools::bash::{self, CommandResult};
use crate::tools::capture::Stream;
use crate::tools::export::{Export, ExportHandler};
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;
use crate::tools::pipe::explained;
use crate::tools::places::ToolRoots;
use crate::tools::session::MAX_TIMEOUT_MS;

/// Default time limit of a command, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Default shell of a script.
const DEFAULT_SHELL: &str = "/bin/bash";

pub(super) fn exports() -> Vec<Export> {
    let timeout = || json!({"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_MS});
    let env = || json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}});
    vec![
        export(
            ExportSpec {
                name: "exec",
                description: "Runs a shell command in the work directory.",
                properties: json!({
                    "command": {"type": "string", "minLength": 1}, "cwd": {"type": "string"},
                    "timeoutMs": timeout(), "env": env(),
                }),
                required: &["command"],
                is_idempotent: false,
            },
            run(exec),
        ),
        export(
            ExportSpec {
                name: "script",
                description: "Runs a script file with arguments.",
                properties: json!({
                    "path": {"type": "string", "minLength": 1},
                    "args": {"type": "array", "items": {"type": "string"}},
                    "shell": {"type": "string", "minLength": 1}, "timeoutMs": timeout(), "env": env(),
                }),
                required: &["path"],
                is_idempotent: false,
            },
            run(script),
        ),
    ]
}

/// A bash command and the fields of its result.
struct ShellCommand {
    command: String,
    timeout_ms: u64,
    told: Value,
}

type ShellCommandBuilder = fn(&ToolRoots, &ToolInvocation) -> Result<ShellCommand, ToolFault>;

fn run(plan: ShellCommandBuilder) -> ExportHandler {
    Box::new(move |places, call| {
        Box::pin(async move {
            done(&places, &call, plan)
                .await
                .unwrap_or_else(ToolOutcome::from)
        })
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    command: String,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    path: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    shell: Option<String>,
    #[serde(default)]
    timeout_ms: Option<f64>,
    #[serde(default)]
    env: BTreeMap<String, Value>,
}

impl Args {
    fn timeout_ms(&self) -> u64 {
        let written = self.timeout_ms.map(|ms| format!("{:.0}", ms.max(1.0)));
        let written = written.and_then(|ms| ms.parse().ok());
        written.unwrap_or(DEFAULT_TIMEOUT_MS)
    }

    /// The shell inside the sandbox sets the variables, so that none reaches the program that
    /// creates the sandbox.
    fn exports(&self) -> Result<String, ToolFault> {
        let mut text = String::new();
        for (name, value) in &self.env {
            let is_name = !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name {
                return Err(invalid(format!("`env` has no variable `{name}`")));
            }
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            text.push_str(&format!("export {name}={}\n", quoted(&value)));
        }
        Ok(text)
    }
}

/// Quotes a word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn exec(places: &ToolRoots, call: &ToolInvocation) -> Result<ShellCommand, ToolFault> {
    let args: Args = call.args()?;
    let directory = &places.surroundings.cwd;
    let cwd = args
        .cwd
        .as_deref()
        .map_or_else(|| directory.clone(), |cwd| directory.join(cwd));
    let cwd = cwd.components().collect::<std::path::PathBuf>();
    let mut command = args.exports()?;
    if args.cwd.is_some() {
        command.push_str(&format!(
            "cd -- {} || exit 1\n",
            quoted(&cwd.to_string_lossy())
        ));
    }
    command.push_str(&args.command);
    Ok(ShellCommand {
        command,
        timeout_ms: args.timeout_ms(),
        told: json!({"command": args.command, "cwd": cwd}),
    })
}

fn script(places: &ToolRoots, call: &ToolInvocation) -> Result<ShellCommand, ToolFault> {
    let args: Args = call.args()?;
    let path = places.surroundings.cwd.join(&args.path);
    let shell = args
        .shell
        .clone()
        .unwrap_or_else(|| DEFAULT_SHELL.to_owned());
    let mut command = args.exports()?;
    command.push_str(&format!(
        "exec {} {}",
        quoted(&shell),
        quoted(&path.to_string_lossy())
    ));
    for word in &args.args {
        command.push_str(&format!(" {}", quoted(word)));
    }
    Ok(ShellCommand {
        command,
        timeout_ms: args.timeout_ms(),
        told: json!({"path": path, "shell": shell, "args": args.args}),
    })
}

async fn done(
    places: &Arc<ToolRoots>,
    call: &ToolInvocation,
    plan: ShellCommandBuilder,
) -> Result<ToolOutcome, ToolFault> {
    let ShellCommand {
        command,
        timeout_ms,
        told,
    } = plan(places, call)?;
    let begun = Instant::now();
    let CommandResult {
        is_given_up,
        status,
        capture,
    } = bash::run(places, &call.call_id, &command, timeout_ms).await?;
    let code = status.and_then(|status| status.code());
    let has_failed = is_given_up || code != Some(0);
    // Denials of the sandbox are explained in the program's standard error.
    let stderr = ToolOutcome {
        has_failed,
        ..ToolOutcome::ok(capture.text_of(Stream::Stderr))
    };
    let stderr = explained(stderr, &places.surroundings).text;
    let mut result = told;
    let more = json!({
        "durationMs": millis_since(begun),
        "stdout": capture.text_of(Stream::Stdout),
        "stderr": stderr,
        "exitCode": code.filter(|_| !is_given_up),
        "signal": is_given_up.then_some("SIGKILL"),
        "timedOut": is_given_up,
    });
    if let (Some(result), Value::Object(more)) = (result.as_object_mut(), more) {
        result.extend(more);
    }
    Ok(ToolOutcome {
        has_failed,
        ..ToolOutcome::ok(result.to_string())
    })
}
