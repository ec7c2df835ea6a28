//! What can go wrong in the store, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

use goondan_protocol::ids::{AgentName, EventId, InstanceKey, TurnId};

/// Why an operation of the store failed. Nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
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
    /// A file does not hold what its format says.
    #[error("`{}` is damaged at line {line}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A request names a turn that is not the one in progress.
    #[error("turn `{turn_id}` is not in progress")]
    WrongTurn {
        /// The turn it names.
        turn_id: TurnId,
    },
    /// A request names an event that does not wait.
    #[error("event `{event_id}` does not wait in the inbox")]
    WrongEvent {
        /// The event it names.
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
    /// A record is no valid message event.
    #[error("the message event is not valid: {problem}")]
    InvalidEvent {
        /// What is wrong with it.
        problem: String,
    },
    /// A record cannot be written as JSON, or a name it needs cannot be made: a fault of goondan.
    #[error("a record could not be made: {problem}")]
    Unwritable {
        /// What is wrong.
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
    /// Whether descriptors or memory ran out: that says nothing of the file.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        use nix::errno::Errno;
        let code = match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        };
        let shortages = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EAGAIN];
        code.is_some_and(|code| shortages.contains(&Errno::from_raw(code)))
    }

    /// Whether the file system, not the request, is at fault: the instance's handles are not to be
    /// trusted any more, and the same request may succeed later.
    #[must_use]
    pub fn is_io(&self) -> bool {
        matches!(self, Self::Io { .. })
    }

    /// Whether what is needed is lost or damaged: the same request fails until a person mends it. An
    /// error of the file system is one if what should be there is not, or is something else.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::IsADirectory
                    | io::ErrorKind::InvalidData
            ),
            Self::Damaged { .. } | Self::NoInstance { .. } | Self::WorkspaceTaken { .. } => true,
            _ => false,
        }
    }
}

/// Names the file and the operation in an I/O error.
pub trait IoContext<T> {
    /// Turns an [`io::Error`] into [`StoreError::Io`].
    ///
    /// # Errors
    ///
    /// The error it was given, with its context.
    fn during(self, operation: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io {
            operation,
            path: path.to_owned(),
            source,
        })
    }
}
