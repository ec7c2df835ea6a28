//! Errors of checkpoint operations.

use std::io;
use std::path::Path;

use goondan_trees::TreeError;
use goondan_trees::swap::SwapError;

use crate::id::{CheckpointId, IdError};

/// Error of a checkpoint operation. The files of the work area are unchanged, except with
/// [`CheckpointError::Unfinished`]; existing checkpoints are intact.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("no checkpoint exists; create one first")]
    None,
    #[error("checkpoint `{id}` does not exist")]
    Unknown { id: CheckpointId },
    /// The text is neither an id nor a name of a checkpoint.
    #[error("checkpoint `{name}` does not exist, neither as an id nor as a name")]
    UnknownName { name: String },
    #[error("`{id}` is damaged: {problem}; use an earlier one")]
    Damaged { id: CheckpointId, problem: String },
    #[error("none of the {count} checkpoints can be restored; the newest, `{id}`: {problem}")]
    AllDamaged {
        count: usize,
        /// The newest checkpoint.
        id: CheckpointId,
        problem: String,
    },
    /// The text is not a valid id.
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("{problem}")]
    Invalid {
        /// The problem and its fix.
        problem: String,
    },
    /// The limit of checkpoints is reached.
    #[error("{limit} checkpoints exist already; remove some, or keep fewer")]
    TooMany { limit: usize },
    /// The file system has too little free space (`TASK-9`). Nothing was written.
    #[error(
        "a checkpoint may need {needed_bytes} bytes, but only {free_bytes} are free and \
         {kept_bytes} must stay free; free disk space, or remove checkpoints"
    )]
    NoRoom {
        /// Maximum size of the checkpoint.
        needed_bytes: u64,
        /// Free bytes.
        free_bytes: u64,
        /// Bytes that must stay free.
        kept_bytes: u64,
    },
    /// The tree cannot be read, or the archive cannot be unpacked.
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("failed to {operation} `{path}` of the work area")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    /// A record cannot be serialized, which is a bug in goondan.
    #[error("failed to create a record of a checkpoint: {problem}")]
    Unwritable { problem: String },
    /// Files were written concurrently during the restore, which was rolled back.
    #[error("nothing was restored because a process writes in the work area; stop it first")]
    Busy(#[source] Box<SwapError>),
    /// A file that is in no checkpoint blocks a path. Nothing was changed.
    #[error("nothing was restored")]
    Blocked(#[source] Box<SwapError>),
    /// The disk failed during the restore and again during the rollback.
    #[error(
        "the work area is only partly restored; opening its checkpoints again finishes the restore"
    )]
    Unfinished(#[source] Box<SwapError>),
}

impl CheckpointError {
    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid {
            problem: problem.into(),
        }
    }
}

impl From<SwapError> for CheckpointError {
    fn from(error: SwapError) -> Self {
        match error {
            SwapError::Tree(error) => Self::Tree(error),
            SwapError::Unfinished(_) => Self::Unfinished(Box::new(error)),
            SwapError::Blocked { .. } => Self::Blocked(Box::new(error)),
            SwapError::Stale { .. } | SwapError::Impossible { .. } | SwapError::Used => {
                Self::Busy(Box::new(error))
            }
        }
    }
}

/// Adds the path and the operation to an I/O error.
pub(crate) trait IoContext<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, CheckpointError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, CheckpointError> {
        self.map_err(|source| CheckpointError::Io {
            operation,
            path: path.display().to_string(),
            source,
        })
    }
}
