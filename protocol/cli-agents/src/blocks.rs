//! Protocol blocks: how an agent speaks with goondan in its own text (`PROTO-1` to `PROTO-5`).
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
//! A tag stands alone in its line, at its start. A field is a known name, a colon and text; lines that begin
//! with no name of a field that is still missing belong to the field before.

use serde::{Deserialize, Serialize};

mod echo;
mod fences;
mod fields;
mod read;
mod scanner;

pub use scanner::{Found, Scanner};

/// A protocol block. Its serde form is that of `protocols.jsonl`: `{"protocol": …, "data": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "protocol",
    content = "data",
    rename_all = "SCREAMING_SNAKE_CASE"
)]
pub enum Block {
    /// Something is needed that the agent has not (`PROTO-2`).
    DependencyRequest(DependencyRequest),
    /// Something is to be decided by a person (`PROTO-3`).
    UserQuestion(UserQuestion),
    /// A phase is done (`PROTO-4`).
    PhaseComplete(PhaseComplete),
    /// A task without phases is done.
    CustomTaskComplete(CustomTaskComplete),
    /// Something went wrong (`PROTO-5`).
    Error(AgentError),
    /// Work is handed over (`PROP-6`): the message as it was written.
    Handoff(HandoffText),
}

/// What kind of thing is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// A key of a service. Secret.
    ApiKey,
    /// A variable of the environment. Secret, since nobody can tell.
    EnvVariable,
    /// A service that must run.
    Service,
    /// A file that must be there.
    File,
    /// A right that a person must grant.
    Permission,
    /// A package that must be installed.
    Package,
}

impl DependencyKind {
    /// Whether what is provided becomes a variable of the environment, by the dependency's name.
    #[must_use]
    pub fn is_environment(self) -> bool {
        matches!(self, Self::ApiKey | Self::EnvVariable)
    }
}

/// Something that the agent needs (`PROTO-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyRequest {
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: DependencyKind,
    /// Its name; of keys and variables a name of the environment.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether the work cannot go on without it.
    #[serde(default = "is_required")]
    pub required: bool,
    /// What stands in for it if nobody provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionCategory {
    /// What is to be built, and for whom.
    Business,
    /// What was meant.
    Clarification,
    /// One of several ways.
    Choice,
    /// Whether to go on.
    Confirmation,
}

/// A question to a person (`PROTO-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserQuestion {
    /// What it is about.
    pub category: QuestionCategory,
    /// The question.
    pub question: String,
    /// Answers to choose from; none if any text is an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The answer if nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether the work cannot go on without an answer.
    #[serde(default = "is_required")]
    pub required: bool,
}

/// Returns what holds where a block does not say whether the work can go on without it.
fn is_required() -> bool {
    true
}

/// A phase that is done (`PROTO-4`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseComplete {
    /// Which, from 1.
    pub phase: u32,
    /// What was written: paths in the work area, in the order they were listed.
    pub documents: Vec<String>,
}

/// A task without phases that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomTaskComplete {
    /// What was written: paths in the work area, in the order they were listed.
    pub documents: Vec<String>,
}

/// How bad an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The work can go on.
    Recoverable,
    /// The task has failed.
    Fatal,
}

/// An error that the agent tells (`PROTO-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentError {
    /// How bad it is.
    #[serde(rename = "type")]
    pub kind: ErrorKind,
    /// What went wrong.
    pub message: String,
    /// What is to be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<String>,
}

/// A message that hands work over, as it was written between its tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffText {
    /// Its lines.
    pub text: String,
}

/// How urgent a block is, the most urgent first (`PROTO-5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The task has failed.
    FatalError,
    /// A phase or the task is done.
    Completion,
    /// Something is needed.
    Dependency,
    /// Something is asked.
    Question,
    /// Nothing waits for it.
    Other,
}

impl Block {
    /// How urgent it is among those that come together.
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

/// A line that tells how far the work is. Nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// `Phase N: title`.
    Phase {
        /// Which, from 1.
        number: u32,
        /// What it is.
        title: String,
    },
    /// `Step N: title` or `Step N/M: title`.
    Step {
        /// Which, from 1.
        number: u32,
        /// Of how many, if that is told.
        total: Option<u32>,
        /// What it is.
        title: String,
    },
    /// `Progress: N%`.
    Percent(u8),
    /// `Document created: path`.
    Document(String),
}

/// A block that is none, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The block's tag, such as `USER_QUESTION`.
    pub protocol: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is not ended before the text, or before another block begins.
    #[error("it is not closed; end it with its closing tag on a line of its own")]
    Unterminated,
    /// It is too long.
    #[error("it is over {max} bytes long; shorten it", max = crate::limits::BLOCK_BYTES_MAX)]
    TooLong,
    /// A field is too long.
    #[error("`{field}` is over {max} characters long; shorten it", max = crate::limits::FIELD_CHARS_MAX)]
    FieldTooLong {
        /// The field.
        field: &'static str,
    },
    /// A field is missing or empty.
    #[error("`{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field says what it cannot say.
    #[error("`{field}` is `{value}`; it must be {allowed}")]
    BadValue {
        /// The field.
        field: &'static str,
        /// What it says, shortened.
        value: String,
        /// What it can say.
        allowed: &'static str,
    },
    /// More is listed than fits.
    #[error("`{field}` lists more than {max}")]
    TooMany {
        /// The field.
        field: &'static str,
        /// How many fit.
        max: usize,
    },
}
