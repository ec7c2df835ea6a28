//! Events of an agent's run, parsed from its output.

use std::time::Duration;

use goondan_protocol::task::{ChangedFile, PlanStep, ToolState};
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blocks::{Block, Progress};
use crate::usage::UsageReport;

/// Event in an agent's output. The serde form is the one of `task.told`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CliEvent {
    /// The program has a session that can be resumed.
    Session {
        id: String,
        /// Model in use, if reported.
        model: Option<String>,
    },
    /// The program has a session that ends with this run: it cannot be resumed.
    PassingSession {
        id: String,
    },
    /// The session to resume was rejected or does not exist, with the reason. The run cannot
    /// continue: the next one must start a new session.
    SessionRefused(String),
    /// A permanent failure, such as an invalid key: a person must change something first.
    Permanent(String),
    /// Last lines of the program's standard error, reported once at its end.
    Stderr(String),
    Text(String),
    /// A text ended without a newline; another may follow.
    TextEnd,
    /// Thoughts of the model, as far as the program shows them. Shown only.
    Thinking(String),
    /// A protocol block in the assistant's own text.
    Block(Block),
    /// The same, by a call of one of goondan's [tools](crate::tools).
    ToolMessage(Block),
    /// An invalid block, with the reason. The agent should be notified.
    Refused(InvalidBlock),
    Progress(Progress),
    /// The agent's own plan; each replaces the previous one.
    Plan(Vec<PlanStep>),
    /// A tool began or ended.
    Tool(ToolActivity),
    /// A file was changed, by a program that reports no tool calls. Shown only.
    FileChanged(ChangedFile),
    /// Usage of the run so far; each report replaces the previous one of the same counter.
    Usage(UsageReport),
    /// The agent waits for a permission.
    Permission(PermissionRequest),
    /// A permission request was withdrawn.
    PermissionWithdrawn {
        /// The id of the request.
        id: String,
    },
    /// The provider rejects requests for some time. The session can resume afterwards.
    RateLimit(Reset),
    /// The agent retries automatically; no action is needed.
    Retrying(String),
    /// The run is complete. Only the exit should follow.
    Result(RunResult),
    /// Something failed; the run may continue.
    Error(String),
    /// The agent requests something unsupported. This line must be written to it.
    Unsupported {
        method: String,
        /// The answer, without its newline.
        reply: String,
    },
    /// A line in a different format than the program's, shortened.
    Noise(String),
    /// Bytes of a line that was too long and was skipped.
    Skipped(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InvalidBlock {
    /// The block's tag, such as `USER_QUESTION`.
    pub protocol: String,
    pub problem: String,
}

/// End of a rate limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reset {
    At(Timestamp),
    /// After a delay from the time of the report.
    After(Duration),
    /// At the next such time.
    Clock(WallClock),
    /// Not reported.
    Unknown,
}

/// A time of day, as a program shows it to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WallClock {
    pub hour: i8,
    pub minute: i8,
    /// Month and day, if it names them.
    pub date: Option<(i8, i8)>,
    /// Name of the time zone; without one, the zone of this machine.
    pub zone: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolActivity {
    /// The id of the call, if it has one.
    pub id: String,
    /// Tool name or command; empty if only its end is reported.
    pub name: String,
    pub state: ToolState,
    /// Details of the call. Hostile text: shown, never executed.
    #[serde(default, skip_serializing_if = "ToolDetail::is_empty")]
    pub detail: ToolDetail,
}

/// Details of a tool call, bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolDetail {
    pub kind: ToolKind,
    /// Name of the tool, also at its end.
    pub name: String,
    /// Its command, or its arguments.
    pub input: String,
    pub files: Vec<ChangedFile>,
    pub output: String,
    /// Exit code of a command, if reported.
    pub exit: Option<i64>,
}

impl ToolDetail {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolKind {
    Command,
    FileChange,
    #[default]
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    /// Its id, which the answer repeats.
    pub id: String,
    /// Tool to run, or a description of its action.
    pub tool: String,
    /// Tool or kind of tools that an approval for the whole task covers. Empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The command or the change, for people. Hostile text: shown, never executed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    #[serde(default, skip_serializing_if = "Consent::is_tool")]
    pub consent: Consent,
    /// Tool input. Hostile text: shown, never executed.
    pub input: Value,
    /// Possible answers; empty for yes or no.
    pub options: Vec<PermissionOption>,
}

/// Kind of consent that a request needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Consent {
    #[default]
    Tool,
    /// Answers: the program's own questions to the user.
    Choices(Vec<ChoicePrompt>),
    Plan(String),
}

impl Consent {
    fn is_tool(&self) -> bool {
        *self == Self::Tool
    }
}

/// A question of a program to its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChoicePrompt {
    pub question: String,
    /// Possible answers, each with its meaning. Free text is also allowed.
    pub options: Vec<(String, String)>,
}

/// Possible answer to a permission request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    /// True if it allows the request.
    pub allows: bool,
    /// True if it applies only once.
    pub is_once: bool,
}

/// Result of a run, as the program reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// True if it reports success.
    pub is_ok: bool,
    /// Final message, or the error.
    pub text: String,
    /// Tools that it was not allowed to run.
    pub denied: Vec<String>,
}
