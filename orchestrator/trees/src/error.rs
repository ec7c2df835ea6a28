//! Why a tree cannot be copied, read or unpacked.

use std::io;

use crate::path::{PathProblem, RelativePath};

/// Why a tree was refused. Nothing of it is left then.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The file system refused.
    #[error("cannot {operation} `{path}` of the tree")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: String,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
    /// A name is not safe everywhere. Leave it out, or rename it.
    #[error(transparent)]
    Path(#[from] PathProblem),
    /// Two paths are one where case does not count. Rename one of them.
    #[error(
        "`{one}` and `{other}` differ in case only, and some file systems hold one of them at most; rename one"
    )]
    Twins {
        /// The one that came first.
        one: RelativePath,
        /// The other.
        other: RelativePath,
    },
    /// A path comes twice.
    #[error("`{path}` comes twice")]
    Duplicate {
        /// The path.
        path: RelativePath,
    },
    /// A path stands in something that is no directory.
    #[error("`{path}` stands in something that is no directory of the tree")]
    NotInDirectory {
        /// The path.
        path: RelativePath,
    },
    /// Too much. Leave something out.
    #[error("the tree holds too much at `{path}`: at most {limit} {what}; leave something out")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How much there may be.
        limit: u64,
        /// Where it became too much.
        path: String,
    },
    /// A device, socket or pipe, or what an archive has besides files, directories and links.
    #[error("`{path}` is neither file, directory nor link; leave it out")]
    Special {
        /// The path.
        path: RelativePath,
    },
    /// A link leads out of the tree.
    #[error(
        "the link `{path}` leads out of the tree, to `{target}`; leave it out or make it relative"
    )]
    OutsideLink {
        /// The link.
        path: RelativePath,
        /// Where it points.
        target: String,
    },
    /// A file was written while it was copied. Try again when its writer rests.
    #[error("`{path}` was written while it was read; try again when its writer rests")]
    Changing {
        /// The file.
        path: RelativePath,
    },
    /// The name that the new tree is to have is taken.
    #[error("`{name}` is there already")]
    Taken {
        /// The name.
        name: String,
    },
    /// A content is not the one its manifest tells of.
    #[error("`{path}` does not hold what its manifest says; the copy is damaged, make it again")]
    Damaged {
        /// The path.
        path: RelativePath,
    },
    /// An archive is not as its format says.
    #[error("the archive cannot be read: {problem}")]
    Archive {
        /// What is wrong.
        problem: String,
    },
    /// A record cannot be written as JSON: a fault of goondan.
    #[error("a record of a tree could not be made: {problem}")]
    Unwritable {
        /// What is wrong.
        problem: String,
    },
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

/// Names the path and the operation in an I/O error.
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
