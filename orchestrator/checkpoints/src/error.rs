//! Why something about checkpoints is not done.

use std::io;
use std::path::Path;

use goondan_trees::TreeError;
use goondan_trees::swap::SwapError;

use crate::id::{CheckpointId, IdError};

/// Why something was not done. The files of the work area are as they were then, but for
/// [`CheckpointError::Unfinished`]; checkpoints that were there before are whole.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// There is none yet.
    #[error("there is no checkpoint; make one first")]
    None,
    /// There is none with this id.
    #[error("there is no checkpoint `{id}`")]
    Unknown {
        /// Which.
        id: CheckpointId,
    },
    /// None has this name, which is no id either.
    #[error("there is no checkpoint `{name}`: no id and no name of one")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// It is not as it was made.
    #[error("`{id}` is damaged: {problem}; take an earlier one")]
    Damaged {
        /// Which.
        id: CheckpointId,
        /// In which way.
        problem: String,
    },
    /// None of them can be used.
    #[error("none of the {count} checkpoints can be restored; the newest, `{id}`: {problem}")]
    AllDamaged {
        /// How many were tried.
        count: usize,
        /// The newest.
        id: CheckpointId,
        /// What is wrong with it.
        problem: String,
    },
    /// A text is no id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// What was asked for cannot be done so.
    #[error("{problem}")]
    Invalid {
        /// What is wrong, and what to do.
        problem: String,
    },
    /// There are too many. Remove some.
    #[error("there are {limit} checkpoints already; remove some, or keep fewer")]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// The file system has too little room (`TASK-9`). Nothing was written.
    #[error(
        "a checkpoint may take {needed_bytes} bytes, of which {free_bytes} are free, and {kept_bytes} are to stay free; make room, or remove checkpoints"
    )]
    NoRoom {
        /// What it may take at most.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// What must stay free.
        kept_bytes: u64,
    },
    /// The tree cannot be read, or the archive cannot be unpacked.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The file system refused.
    #[error("cannot {operation} `{path}` of the work area")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: String,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
    /// A record cannot be written as JSON: a fault of goondan.
    #[error("a record of a checkpoint could not be made: {problem}")]
    Unwritable {
        /// What is wrong.
        problem: String,
    },
    /// Somebody wrote while the files were put in place; all of it was taken back.
    #[error("nothing was restored, since somebody writes in the work area; stop it first")]
    Busy(#[source] Box<SwapError>),
    /// Something that no checkpoint holds is where a file is to be put. Nothing was changed.
    #[error("nothing was restored")]
    Blocked(#[source] Box<SwapError>),
    /// The disk failed in the middle, and again while taking it back.
    #[error("the work area is between old and new; opening its checkpoints again finishes it")]
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

/// Names the path and the operation in an I/O error.
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
