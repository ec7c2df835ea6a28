//! Errors of copying, reading or unpacking a tree.

use std::io;

use crate::path::{PathProblem, RelativePath};

/// Reason why a tree was rejected. No partial result remains.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("failed to {operation} `{path}` of the tree")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    /// A name is not portable. Exclude or rename the file.
    #[error(transparent)]
    Path(#[from] PathProblem),
    /// Two paths differ only in case. Rename one.
    #[error(
        "`{one}` and `{other}` differ only in case, which some file systems cannot store; rename one"
    )]
    Twins {
        one: RelativePath,
        other: RelativePath,
    },
    #[error("duplicate path `{path}`")]
    Duplicate { path: RelativePath },
    /// The parent of a path is not a directory.
    #[error("the parent of `{path}` is not a directory of the tree")]
    NotInDirectory { path: RelativePath },
    /// The tree exceeds a limit. Exclude something.
    #[error("the tree exceeds the limit of {limit} {what} at `{path}`; exclude something")]
    Limit {
        what: &'static str,
        limit: u64,
        /// The path at which the limit was exceeded.
        path: String,
    },
    /// A device, socket or pipe, or an archive entry other than a file, directory or link.
    #[error("`{path}` is neither file, directory nor link; exclude it")]
    Special { path: RelativePath },
    /// A link points out of the tree.
    #[error(
        "the link `{path}` leads out of the tree, to `{target}`; exclude it or make it relative"
    )]
    OutsideLink { path: RelativePath, target: String },
    /// A file was modified during the copy. Retry when its writer is idle.
    #[error("`{path}` changed while it was read; retry when its writer is idle")]
    Changing { path: RelativePath },
    /// The name of the new tree is taken.
    #[error("`{name}` already exists")]
    Taken { name: String },
    /// Content does not match its manifest.
    #[error("`{path}` does not match its manifest; the copy is damaged, create it again")]
    Damaged { path: RelativePath },
    /// An archive violates its format.
    #[error("failed to read the archive: {problem}")]
    Archive { problem: String },
    /// A record cannot be written as JSON, which is a bug in goondan.
    #[error("failed to serialize a record of a tree: {problem}")]
    Unwritable { problem: String },
}

impl TreeError {
    pub(crate) fn limit(what: &'static str, limit: u64, path: &RelativePath) -> Self {
        Self::Limit {
            what,
            limit,
            path: path.to_string(),
        }
    }
}

/// Adds path and operation to an I/O error.
pub(crate) trait IoContext<T> {
    fn during(self, operation: &'static str, path: impl ToString) -> Result<T, TreeError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: impl ToString) -> Result<T, TreeError> {
        self.map_err(|source| TreeError::Io {
            operation,
            path: path.to_string(),
            source,
        })
    }
}
