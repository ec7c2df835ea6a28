//! Environment for running `gdn`: a project, a state root, and clean environment variables.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use goondan_protocol::control::{Call, WorkspaceInfo};
use serde_json::{Value, json};

use crate::daemon::{Act, Daemon, answer};

/// Id of the only workspace.
pub(crate) const WORKSPACE: &str = "w1";

/// A project directory and a state root.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(home.project()).unwrap();
        fs::write(
            home.project().join("goondan.yaml"),
            "# for the client, a project\n",
        )
        .unwrap();
        home
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path().join("project")
    }

    pub(crate) fn state_root(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The workspace as returned by `workspace.list`.
    pub(crate) fn workspace(&self) -> Value {
        json!({
            "workspaceId": WORKSPACE,
            "projectRoot": self.project(),
            "package": "shop",
            "entryAgent": "clerk",
            "agents": ["buyer", "clerk"],
            "connections": ["hook"],
            "runningAgents": 1,
            "pendingEvents": 0,
        })
    }

    /// Starts a daemon with this project's workspace; `handler` replies to all other requests.
    pub(crate) fn daemon(
        &self,
        mut handler: impl FnMut(&Call) -> Vec<Act> + Send + 'static,
    ) -> Daemon {
        let workspace = self.workspace();
        Daemon::start(&self.state_root(), move |call| {
            let acts = handler(call);
            match call {
                Call::ListWorkspaces(list) if acts.is_empty() => {
                    let own: WorkspaceInfo = serde_json::from_value(workspace.clone()).unwrap();
                    let is_asked_for = list.is_asked_for(&own.workspace_id, &own.project_root);
                    let page = list.page_of(is_asked_for.then_some(own).into_iter());
                    answer(serde_json::to_value(page).unwrap())
                }
                _ => acts,
            }
        })
    }

    /// `gdn` in the project, with no environment variables except `PATH`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_gdn")), args)
    }

    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("TZ", "UTC")
            .env("GOONDAN_STATE_ROOT", self.state_root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn gdn(&self, args: &[&str]) -> GdnOutput {
        GdnOutput::of(self.command(args).output().unwrap())
    }

    pub(crate) fn gdn_with_stdin(&self, args: &[&str], stdin: &str) -> GdnOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).unwrap();
        drop(pipe);
        GdnOutput::of(child.wait_with_output().unwrap())
    }
}

/// Result of a run of `gdn`.
#[derive(Debug)]
pub(crate) struct GdnOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl GdnOutput {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Checks the exit code; prints the whole result if it differs.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Checks that stderr contains each of the texts.
    #[track_caller]
    pub(crate) fn tells(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "no {text:?} in {self:#?}");
        }
        self
    }

    /// stdout as one JSON object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// stderr as the JSON object of an error.
    #[track_caller]
    pub(crate) fn error_json(&self) -> Value {
        serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A runtime event of a turn.
pub(crate) fn progress(kind: &str, more: &Value) -> Act {
    let mut event = json!({
        "type": kind,
        "timestamp": "2026-11-21T21:06:00.000Z",
        "traceId": "01".repeat(16),
        "spanId": "02".repeat(8),
        "agentName": "clerk",
        "instanceKey": "main",
        "turnId": "t",
    });
    let fields = more.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(fields);
    Act::Progress(event)
}

/// Response of `event.send` for an event to `clerk`.
pub(crate) fn sent(call: &Call, outcome: &Value) -> Value {
    let Call::SendEvent(send) = call else {
        panic!("expected event.send, not {call:?}")
    };
    let mut sent = json!({
        "eventId": send.event_id,
        "instanceKey": send.conversation_key,
        "agent": "clerk",
        "traceId": "01".repeat(16),
        "duplicate": false,
    });
    if !outcome.is_null() {
        sent.as_object_mut()
            .unwrap()
            .insert("outcome".into(), outcome.clone());
    }
    sent
}

/// A turn that completed with `reply`.
pub(crate) fn completed(reply: &str) -> Value {
    json!({ "status": "completed", "reply": reply })
}
