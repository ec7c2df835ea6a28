//! What can go wrong in the store, and whose fault it is.

use std::path::PathBuf;

use goondan_durable::FileError;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, TurnId};
use goondan_protocol::state_format::NewerFormat;

/// Why an operation of the store failed. Nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused, or a file is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another orchestrator owns the System Root (`ROOT-11`).
    #[error(
        "the state directory `{}` is in use by another orchestrator (pid {})",
        path.display(),
        owner.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    RootInUse {
        /// The System Root.
        path: PathBuf,
        /// The owner's process id, if its pid file says.
        owner: Option<u32>,
    },
    /// A newer goondan wrote the System Root in a format that this one does not know (`REL-1`).
    #[error("the state directory `{}` is of a newer format", path.display())]
    NewerFormat {
        /// The System Root.
        path: PathBuf,
        /// Who wrote it, and which formats there are.
        #[source]
        source: NewerFormat,
    },
    /// The file that says the format of the System Root says none (`REL-1`).
    #[error("`{}` does not say the format of the state directory", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The directory of work areas cannot be used.
    #[error("the tasks' directory `{}` cannot be used: {problem}", path.display())]
    TasksRoot {
        /// The directory.
        path: PathBuf,
        /// Why not.
        problem: &'static str,
    },
    /// Project Root and System Root contain one another (`ROOT-1`).
    #[error(
        "the project `{}` and the state directory `{}` must not contain one another",
        project_root.display(),
        state_root.display()
    )]
    RootsOverlap {
        /// The Project Root.
        project_root: PathBuf,
        /// The System Root.
        state_root: PathBuf,
    },
    /// The workspace's folder stands for another project (`ROOT-10`).
    #[error(
        "the workspace folder `{}` belongs to project `{}`, package `{}`",
        path.display(),
        project_root.display(),
        package.as_deref().unwrap_or("(none)")
    )]
    WorkspaceTaken {
        /// The workspace's folder.
        path: PathBuf,
        /// The Project Root it belongs to.
        project_root: PathBuf,
        /// The package it belongs to.
        package: Option<String>,
    },
    /// The instance key belongs to another agent (`INST-3`).
    #[error("the instance key `{key}` belongs to agent `{owner}`")]
    KeyTaken {
        /// The key.
        key: InstanceKey,
        /// The agent it belongs to.
        owner: AgentName,
    },
    /// There is no such instance.
    #[error("there is no instance `{key}`")]
    NoInstance {
        /// The key.
        key: InstanceKey,
    },
    /// A request names a turn that is not the one in progress.
    #[error("turn `{turn_id}` is not in progress")]
    WrongTurn {
        /// The turn it names.
        turn_id: TurnId,
    },
    /// Something is to be done between turns, and one is open.
    #[error("turn `{turn_id}` is in progress")]
    InTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its event, unless that is not known.
        event_id: Option<EventId>,
    },
    /// A rewind has begun and is to be finished first.
    #[error("the conversation is being rewound to `{checkpoint_id}`")]
    Rewinding {
        /// Where it goes back to.
        checkpoint_id: String,
    },
    /// A request names an event that does not wait.
    #[error("event `{event_id}` does not wait in the inbox")]
    WrongEvent {
        /// The event it names.
        event_id: EventId,
    },
    /// A turn was to begin whose event a person has wait.
    #[error("event `{event_id}` is paused")]
    EventPaused {
        /// The event.
        event_id: EventId,
    },
    /// A message event came out of order.
    #[error("message event {got} came where {expected} was due")]
    OutOfOrder {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// That may not happen to a tool call that needs a person.
    #[error("{problem}")]
    WrongApproval {
        /// Why not.
        problem: String,
    },
    /// A record is no valid message event.
    #[error("the message event is not valid: {problem}")]
    InvalidEvent {
        /// What is wrong with it.
        problem: String,
    },
    /// A record is larger than a conversation may hold.
    #[error("a record of {bytes} bytes; at most {max} are allowed")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A file is no archive of a conversation that can be imported. Nothing was made of it.
    #[error("`{}` cannot be imported: line {line}: {problem}", path.display())]
    BadArchive {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A conversation has more parts than an archive may hold.
    #[error("an archive may hold at most {max} of these")]
    TooMany {
        /// The limit.
        max: u64,
    },
    /// A page was asked for at a place where no record begins: the history was rewritten meanwhile.
    #[error("the history changed while it was read; read it again from the start")]
    HistoryChanged,
}

impl StoreError {
    fn file(&self) -> Option<&FileError> {
        match self {
            Self::File(error) => Some(error),
            _ => None,
        }
    }

    /// Whether descriptors or memory ran out: that says nothing of the file.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        self.file().is_some_and(FileError::is_shortage)
    }

    /// Whether the file system, not the request, is at fault: the instance's handles are not to be
    /// trusted any more, and the same request may succeed later.
    #[must_use]
    pub fn is_io(&self) -> bool {
        self.file().is_some_and(FileError::is_io)
    }

    /// Whether what is needed is lost or damaged: the same request fails until a person mends it. An
    /// error of the file system is one if what should be there is not, or is something else.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::File(error) => error.is_permanent(),
            Self::NoInstance { .. } | Self::WorkspaceTaken { .. } => true,
            _ => false,
        }
    }
}
