//! `bash`: `exec` and `script`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use goondan_clock::Instant;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ExportSpec, export, invalid, javascript, millis_since};
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
const DEFAULT_TIMEOUT_MS: f64 = 30_000.0;
/// Shell of a command: one that reads the profiles of the system and of the user.
const LOGIN_SHELL: &str = "/bin/sh";
/// Default shell of a script.
const DEFAULT_SHELL: &str = "/bin/bash";

pub(super) fn exports() -> Vec<Export> {
    let timeout = || json!({"type": "number"});
    let env = || json!({"type": "object"});
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
    /// A limit of 0 or less is the longest one.
    fn timeout_ms(&self) -> u64 {
        let written = self.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        if written <= 0.0 {
            return MAX_TIMEOUT_MS;
        }
        let millis = u64::try_from(javascript::integer(written)).unwrap_or(0);
        millis.clamp(1, MAX_TIMEOUT_MS)
    }

    /// A program in place of the shell, with the variables of `env`. They are set inside the
    /// sandbox, so that none reaches the program that creates it.
    fn program(&self, words: &[&str]) -> Result<String, ToolFault> {
        let mut command = "exec".to_owned();
        if !self.env.is_empty() {
            command.push_str(" env --");
        }
        for (name, value) in &self.env {
            let value = javascript::primitive_text(value).ok_or_else(|| {
                invalid(format!(
                    "`env.{name}` must be a text, a number or a truth value"
                ))
            })?;
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(invalid(format!("`env` cannot have the variable `{name}`")));
            }
            command.push_str(&format!(" {}", quoted(&format!("{name}={value}"))));
        }
        for word in words {
            command.push_str(&format!(" {}", quoted(word)));
        }
        Ok(command)
    }
}

fn not_started(what: &str, why: &str) -> ToolFault {
    ToolFault::new("E_TOOL_FAILED", format!("failed to start {what}: {why}"))
}

/// Checks that a shell exists: as a file, or in a directory of `PATH`.
fn check_shell(shell: &str, cwd: &Path) -> Result<(), ToolFault> {
    let exists = if shell.contains('/') {
        cwd.join(shell).is_file()
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(shell).is_file())
    };
    if exists {
        return Ok(());
    }
    Err(not_started(&format!("`{shell}`"), "no such program"))
}

/// Quotes a word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn exec(places: &ToolRoots, call: &ToolInvocation) -> Result<ShellCommand, ToolFault> {
    let args: Args = call.args()?;
    let directory = &places.surroundings.cwd;
    let cwd = match args.cwd.as_deref() {
        Some(cwd) if !cwd.is_empty() => javascript::resolved(directory, cwd),
        Some(_) | None => directory.to_string_lossy().into_owned(),
    };
    if !Path::new(&cwd).is_dir() {
        return Err(not_started(
            "the command",
            &format!("`{cwd}` is not a directory"),
        ));
    }
    let program = args.program(&[LOGIN_SHELL, "-lc", &args.command])?;
    Ok(ShellCommand {
        command: format!("cd -- {} || exit 1\n{program}", quoted(&cwd)),
        timeout_ms: args.timeout_ms(),
        told: json!({"command": args.command, "cwd": cwd}),
    })
}

fn script(places: &ToolRoots, call: &ToolInvocation) -> Result<ShellCommand, ToolFault> {
    let args: Args = call.args()?;
    let cwd = &places.surroundings.cwd;
    let path = javascript::resolved(cwd, &args.path);
    if !Path::new(&path).exists() {
        let message = format!("the script `{path}` does not exist");
        return Err(ToolFault::new("E_FILE_NOT_FOUND", message));
    }
    let shell = args.shell.as_deref().unwrap_or(DEFAULT_SHELL);
    check_shell(shell, cwd)?;
    let mut words = vec![shell, path.as_str()];
    words.extend(args.args.iter().map(String::as_str));
    Ok(ShellCommand {
        command: args.program(&words)?,
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
    let ToolOutcome {
        text: stderr,
        refusal,
        ..
    } = explained(stderr, &places.surroundings);
    let mut result = told;
    let more = json!({
        "durationMs": millis_since(begun),
        "stdout": capture.text_of(Stream::Stdout),
        "stderr": stderr,
        // As for a child of Node that a signal ended.
        "exitCode": code.filter(|_| !is_given_up).unwrap_or(-1),
        "signal": is_given_up.then_some("SIGTERM"),
        "timedOut": is_given_up,
    });
    if let (Some(result), Value::Object(more)) = (result.as_object_mut(), more) {
        result.extend(more);
    }
    Ok(ToolOutcome {
        has_failed,
        refusal,
        ..ToolOutcome::ok(result.to_string())
    })
}
