//! Protocol blocks: an agent's messages to goondan in its own text (`PROTO-1` to `PROTO-5`).
//!
//! ```text
//! [USER_QUESTION]
//! category: choice
//! question: Which database?
//! options:
//! - PostgreSQL
//! - SQLite
//! default: SQLite
//! required: false
//! [/USER_QUESTION]
//! ```
//!
//! A tag is alone on its line, at the start. A field is a known name, a colon and text; lines that do not
//! begin with the name of a missing field belong to the previous field.

use serde::{Deserialize, Serialize};

mod echo;
mod fences;
mod fields;
mod read;
mod scanner;

pub(crate) use read::{document_of, is_environment_name};
pub use scanner::{ScanItem, Scanner};

/// A protocol block. Its serde form is the one of `protocols.jsonl`: `{"protocol": …, "data": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "protocol",
    content = "data",
    rename_all = "SCREAMING_SNAKE_CASE"
)]
pub enum Block {
    /// The agent needs something (`PROTO-2`).
    DependencyRequest(DependencyRequest),
    /// A person must decide something (`PROTO-3`).
    UserQuestion(UserQuestion),
    /// A phase is complete (`PROTO-4`).
    PhaseComplete(PhaseComplete),
    /// A task without phases is complete.
    CustomTaskComplete(CustomTaskComplete),
    /// Something went wrong (`PROTO-5`).
    Error(AgentError),
    /// Work is handed over (`PROP-6`): the message, verbatim.
    Handoff(HandoffText),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    ApiKey,
    /// An environment variable. Treated as secret, because its kind is unknown.
    EnvVariable,
    Service,
    File,
    /// A permission that a person must grant.
    Permission,
    Package,
}

impl DependencyKind {
    /// True if the provided value becomes an environment variable with the dependency's name.
    #[must_use]
    pub fn is_environment(self) -> bool {
        matches!(self, Self::ApiKey | Self::EnvVariable)
    }
}

/// Request for something that the agent needs (`PROTO-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyRequest {
    #[serde(rename = "type")]
    pub kind: DependencyKind,
    /// Its name; for keys and variables, the name of the environment variable.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True if the work cannot continue without it.
    #[serde(default = "is_required")]
    pub required: bool,
    /// Value used if none is provided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionCategory {
    /// Requirements of the product and its users.
    Business,
    Clarification,
    Choice,
    Confirmation,
}

/// A question to a person (`PROTO-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserQuestion {
    pub category: QuestionCategory,
    pub question: String,
    /// Answers to choose from; empty if any text is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Answer used if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// True if the work cannot continue without an answer.
    #[serde(default = "is_required")]
    pub required: bool,
}

/// Default of `required`.
fn is_required() -> bool {
    true
}

/// Completion of a phase (`PROTO-4`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseComplete {
    /// Phase number, from 1.
    pub phase: u32,
    /// Documents: paths in the work area, in the order they were listed.
    pub documents: Vec<String>,
}

/// Completion of a task without phases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomTaskComplete {
    /// Documents: paths in the work area, in the order they were listed.
    pub documents: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    Recoverable,
    Fatal,
}

/// An error that the agent reports (`PROTO-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentError {
    #[serde(rename = "type")]
    pub kind: ErrorKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<String>,
}

/// A handoff message, verbatim between its tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffText {
    pub text: String,
}

/// Priority of a block, the most urgent first (`PROTO-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    FatalError,
    /// Completion of a phase or the task.
    Completion,
    Dependency,
    Question,
    /// Not urgent.
    Other,
}

impl Block {
    /// Priority among blocks that arrive together.
    #[must_use]
    pub fn priority(&self) -> Priority {
        match self {
            Self::Error(error) if error.kind == ErrorKind::Fatal => Priority::FatalError,
            Self::PhaseComplete(_) | Self::CustomTaskComplete(_) => Priority::Completion,
            Self::DependencyRequest(_) => Priority::Dependency,
            Self::UserQuestion(_) => Priority::Question,
            Self::Error(_) | Self::Handoff(_) => Priority::Other,
        }
    }
}

/// A progress line. Informational only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// `Phase N: title`.
    Phase {
        /// Phase number, from 1.
        number: u32,
        title: String,
    },
    /// `Step N: title` or `Step N/M: title`.
    Step {
        /// Step number, from 1.
        number: u32,
        /// Total number of steps, if reported.
        total: Option<u32>,
        title: String,
    },
    /// `Progress: N%`.
    Percent(u8),
    /// `Document created: path`.
    Document(String),
}

/// An invalid block, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRefusal {
    /// The block's tag, such as `USER_QUESTION`.
    pub protocol: &'static str,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is not closed before the end of the text or the start of another block.
    #[error("it is not closed; end it with its closing tag on a separate line")]
    Unterminated,
    #[error("it is over {max} bytes long; shorten it", max = crate::limits::BLOCK_BYTES_MAX)]
    TooLong,
    #[error("`{field}` is over {max} characters long; shorten it", max = crate::limits::FIELD_CHARS_MAX)]
    FieldTooLong { field: &'static str },
    /// A field is missing or empty.
    #[error("`{field}` is missing")]
    Missing { field: &'static str },
    /// A field has an invalid value.
    #[error("`{field}` is `{value}`; it must be {allowed}")]
    BadValue {
        field: &'static str,
        /// Value found, shortened.
        value: String,
        allowed: &'static str,
    },
    /// A list has too many items.
    #[error("`{field}` lists more than {max}")]
    TooMany { field: &'static str, max: usize },
}
