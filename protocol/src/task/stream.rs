//! Stream of a task: the work of its agent and the task's own events, in one form for all programs
//! (`AGENT-7`). No I/O.

use serde::{Deserialize, Serialize};

use super::PlanStep;
use crate::time::Timestamp;
use crate::usage::{MicroUsd, Usage};

/// An item of the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskItem {
    /// Time of the item.
    pub at: Timestamp,
    /// Its run; absent for an event of the task outside of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// Its content.
    #[serde(flatten)]
    pub content: TaskItemContent,
}

/// Content of an item. All texts are bounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TaskItemContent {
    /// Text of the agent: whole lines, without the last newline.
    Text {
        /// The lines.
        text: String,
    },
    /// Thoughts of the agent's model, as far as the program shows them.
    Thinking {
        /// The lines.
        text: String,
    },
    /// Other output of a program, such as that of `setup` and `verify`.
    Output {
        /// The lines.
        text: String,
    },
    /// The agent's plan, which replaces the previous one.
    Plan {
        /// Its steps.
        steps: Vec<PlanStep>,
    },
    /// A command of the agent. An item is sent when it starts, if the program reports that, and
    /// when it ends.
    Command {
        /// Id of the call.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        /// State of the call.
        state: ToolState,
        /// The command with its arguments.
        command: String,
        /// Its exit code, if the program reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i64>,
        /// End of its output.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
    },
    /// A change of files.
    FileChange {
        /// Id of the call.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        /// State of the call.
        state: ToolState,
        /// The files.
        files: Vec<ChangedFile>,
    },
    /// Any other tool call.
    Tool {
        /// Id of the call.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        /// Name of the tool.
        name: String,
        /// State of the call.
        state: ToolState,
        /// Its arguments.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        input: String,
        /// End of its output.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
    },
    /// Usage of the run so far.
    Usage {
        /// Tokens.
        usage: Usage,
        /// Cost, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<MicroUsd>,
    },
    /// Result of the run, as the program reports it.
    Result {
        /// True if the program reports success.
        is_ok: bool,
        /// Final message, or the error.
        text: String,
        /// Tools that were not allowed to run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        denied: Vec<String>,
    },
    /// An error or a delay; the run may continue.
    Problem {
        /// Description.
        text: String,
    },
    /// An event of the task itself, such as a question, an answer or the end of a phase.
    Event {
        /// Name of the event in the task's history, such as `question_asked`.
        event: String,
        /// Details; empty if the name suffices.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
    },
    /// Items that were dropped because the program reports faster than the daemon writes.
    Gap {
        /// Their number.
        items: u64,
    },
}

/// A file that the agent changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangedFile {
    /// Its path, as the program reports it.
    pub path: String,
    /// The change, shortened; empty if the program reports only the path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}

/// State of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolState {
    /// It has started.
    Started,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
}
