//! What happens in a run of an agent, as its output tells it.

use std::time::Duration;

use goondan_protocol::task::PlanStep;
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blocks::{Block, Progress};
use crate::usage::UsageReport;

/// Something that an agent's output tells. Its serde form is that of `task.told`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// The program has a session by which it can be resumed.
    Session {
        /// Its id.
        id: String,
        /// The model it works with, if that is told.
        model: Option<String>,
    },
    /// The program has a session that ends with this run: it cannot be resumed.
    PassingSession {
        /// Its id.
        id: String,
    },
    /// The session that was to be gone on with is refused or not known, and why. Without it there is no run: the next
    /// one has to begin a session of its own.
    SessionRefused(String),
    /// A failure that no retry can mend, such as a wrong key: a person must change something first.
    Permanent(String),
    /// The last lines of the program's standard error, told once, at its end.
    Stderr(String),
    /// The assistant's own text.
    Text(String),
    /// A protocol block in the assistant's own text.
    Block(Block),
    /// A block that is none, and why. The agent should be told.
    Refused(RefusedBlock),
    /// A line that tells how far the work is.
    Progress(Progress),
    /// The agent's own plan; each replaces the one before.
    Plan(Vec<PlanStep>),
    /// A tool began or ended.
    Tool(ToolActivity),
    /// What the run has taken so far; each report replaces the one before of the same counter.
    Usage(UsageReport),
    /// The agent waits for a permission.
    Permission(PermissionRequest),
    /// A permission is no longer waited for.
    PermissionWithdrawn {
        /// The id of the request.
        id: String,
    },
    /// The provider refuses to serve until some time. The session can go on then.
    RateLimit(Reset),
    /// The agent tries again by itself; nothing is to be done.
    Retrying(String),
    /// The run has come to its end. Nothing but the exit should follow.
    Result(RunResult),
    /// Something failed; the run may go on.
    Error(String),
    /// The agent asks for something that is not offered. This line is to be written to it.
    Unsupported {
        /// What it asked for.
        method: String,
        /// The answer, without its newline.
        reply: String,
    },
    /// A line that is not in the program's own form, shortened.
    Noise(String),
    /// Bytes of a line that was too long, and are not looked at.
    Skipped(u64),
}

/// A block that is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedBlock {
    /// The block's tag, such as `USER_QUESTION`.
    pub protocol: String,
    /// What is wrong with it, in words.
    pub problem: String,
}

/// When a rate limit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reset {
    /// At this time.
    At(Timestamp),
    /// So long after it was told.
    After(Duration),
    /// That was not told.
    Unknown,
}

/// What a tool does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolActivity {
    /// The id of the call, if it has one.
    pub id: String,
    /// The tool, or what it runs; empty if only its end is told.
    pub name: String,
    /// How it stands.
    pub state: ToolState,
}

/// How a call of a tool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolState {
    /// It began.
    Started,
    /// It ended well.
    Completed,
    /// It ended with an error.
    Failed,
}

/// A request for a permission.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    /// Its id, which the answer repeats.
    pub id: String,
    /// The tool that is to be run, or what it is to do.
    pub tool: String,
    /// What is allowed with it if it is allowed for the whole task: a tool, or a kind of tools. Empty: nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The command or the change, for people. Hostile text: shown, never executed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What it asks for.
    #[serde(default, skip_serializing_if = "Consent::is_tool")]
    pub consent: Consent,
    /// What it is to be run with. Hostile text: shown, never executed.
    pub input: Value,
    /// What can be answered; empty where the answer is yes or no.
    pub options: Vec<PermissionOption>,
}

/// What a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Consent {
    /// To run a tool.
    #[default]
    Tool,
    /// Answers: the program's own questions to the user.
    Choices(Vec<AskedChoice>),
    /// To begin with a plan.
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
pub struct AskedChoice {
    /// The question.
    pub question: String,
    /// What can be answered, each with what it means. Another answer is possible.
    pub options: Vec<(String, String)>,
}

/// What can be answered to a request for a permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    /// Its id.
    pub id: String,
    /// What people read.
    pub name: String,
    /// Whether it allows what was asked for.
    pub allows: bool,
    /// Whether it holds for this once only.
    pub is_once: bool,
}

/// How a run ended, as the program says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// Whether it says that all is well.
    pub is_ok: bool,
    /// What it says: its last words, or what is wrong.
    pub text: String,
    /// Tools that it was not allowed to run.
    pub denied: Vec<String>,
}
