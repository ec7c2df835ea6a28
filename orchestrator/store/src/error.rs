//! Errors of the store.

use std::path::PathBuf;

use goondan_durable::FileError;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, TurnId};
use goondan_protocol::state_format::NewerFormat;

/// Reason why an operation of the store failed. Nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An I/O error or a damaged file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another orchestrator owns the System Root (`ROOT-11`).
    #[error(
        "the state directory `{}` is in use by another orchestrator (pid {})",
        path.display(),
        owner.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    RootInUse {
        path: PathBuf,
        /// The owner's process id, if its pid file is readable.
        owner: Option<u32>,
    },
    /// A newer goondan wrote the System Root in a format this version does not support (`REL-1`).
    #[error("the state directory `{}` has a newer format", path.display())]
    NewerFormat {
        path: PathBuf,
        /// The format found and the formats supported.
        #[source]
        source: NewerFormat,
    },
    /// The format file of the System Root is unreadable (`REL-1`).
    #[error("`{}` does not say the format of the state directory", path.display())]
    UnknownFormat {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The directory of work areas is not usable.
    #[error("cannot use the tasks directory `{}`: {problem}", path.display())]
    TasksRoot { path: PathBuf, problem: String },
    /// Project Root and the directory of work areas contain one another (`ROOT-1`).
    #[error(
        "the project `{}` and the tasks directory `{}` must not contain one another",
        project_root.display(),
        tasks_root.display()
    )]
    TasksRootOverlaps {
        project_root: PathBuf,
        /// The directory of work areas.
        tasks_root: PathBuf,
    },
    /// Project Root and System Root contain one another (`ROOT-1`).
    #[error(
        "the project `{}` and the state directory `{}` must not contain one another",
        project_root.display(),
        state_root.display()
    )]
    RootsOverlap {
        project_root: PathBuf,
        state_root: PathBuf,
    },
    /// The workspace's folder belongs to another project (`ROOT-10`).
    #[error(
        "the workspace folder `{}` belongs to project `{}`, package `{}`",
        path.display(),
        project_root.display(),
        package.as_deref().unwrap_or("(none)")
    )]
    WorkspaceTaken {
        path: PathBuf,
        /// The Project Root it belongs to.
        project_root: PathBuf,
        /// The package it belongs to.
        package: Option<String>,
    },
    /// The instance key belongs to another agent (`INST-3`).
    #[error("the instance key `{key}` belongs to agent `{owner}`")]
    KeyTaken {
        key: InstanceKey,
        /// The agent it belongs to.
        owner: AgentName,
    },
    /// The instance does not exist.
    #[error("instance `{key}` does not exist")]
    NoInstance { key: InstanceKey },
    /// A request names a turn that is not in progress.
    #[error("turn `{turn_id}` is not in progress")]
    WrongTurn { turn_id: TurnId },
    /// The operation runs only between turns, and a turn is open.
    #[error("turn `{turn_id}` is in progress")]
    InTurn {
        turn_id: TurnId,
        /// The event of the turn, if known.
        event_id: Option<EventId>,
    },
    /// A rewind has begun and must finish first.
    #[error("the conversation is being rewound to `{checkpoint_id}`")]
    Rewinding { checkpoint_id: String },
    /// A request names an event that is not waiting.
    #[error("event `{event_id}` is not waiting in the inbox")]
    WrongEvent { event_id: EventId },
    /// The event of the turn to begin is paused by a user.
    #[error("event `{event_id}` is paused")]
    EventPaused { event_id: EventId },
    /// A message event is out of order.
    #[error("expected message event {expected}, found {got}")]
    OutOfOrder { expected: u64, got: u64 },
    /// The transition is not valid for this tool call's approval.
    #[error("{problem}")]
    WrongApproval { problem: String },
    /// A record is not a valid message event.
    #[error("invalid message event: {problem}")]
    InvalidEvent {
        /// The parse or validation error.
        problem: String,
    },
    /// A record exceeds the size limit.
    #[error("record has {bytes} bytes; at most {max} are allowed")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A file is not an importable archive of a conversation. Nothing was created.
    #[error("failed to import `{}`: line {line}: {problem}", path.display())]
    BadArchive {
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        problem: String,
    },
    /// A conversation has more parts than an archive can hold.
    #[error("an archive can hold at most {max} of this kind")]
    TooMany { max: u64 },
    /// A page was requested at an offset where no record begins, because the history was rewritten.
    #[error("the history changed during reading; read it again from the start")]
    HistoryChanged,
}

impl StoreError {
    fn file(&self) -> Option<&FileError> {
        match self {
            Self::File(error) => Some(error),
            _ => None,
        }
    }

    /// True if descriptors or memory ran out. Such an error says nothing about the file.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        self.file().is_some_and(FileError::is_shortage)
    }

    /// True if the file system, not the request, is at fault. The instance's handles are then
    /// unusable, and the same request may succeed later.
    #[must_use]
    pub fn is_io(&self) -> bool {
        self.file().is_some_and(FileError::is_io)
    }

    /// True if required data is lost or damaged: the same request fails until a user repairs it.
    /// This includes I/O errors for a file that is missing or has the wrong type.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::File(error) => error.is_permanent(),
            Self::NoInstance { .. } | Self::WorkspaceTaken { .. } => true,
            _ => false,
        }
    }
}
