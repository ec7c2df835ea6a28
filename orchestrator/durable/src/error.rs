//! What can go wrong with a file, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on a file failed. Nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
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
    /// A record cannot be written as JSON, or a name it needs cannot be made: a fault of goondan.
    #[error("a record could not be made: {problem}")]
    Unwritable {
        /// What is wrong.
        problem: String,
    },
}

impl FileError {
    /// Whether descriptors or memory ran out: that says nothing of the file.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        use nix::errno::Errno;
        let code = match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Damaged { .. } | Self::Unwritable { .. } => None,
        };
        let shortages = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EAGAIN];
        code.is_some_and(|code| shortages.contains(&Errno::from_raw(code)))
    }

    /// Whether the file system, not the request, is at fault: handles are not to be trusted any more, and
    /// the same request may succeed later.
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
            Self::Damaged { .. } => true,
            Self::Unwritable { .. } => false,
        }
    }
}

/// Names the file and the operation in an I/O error.
pub trait IoContext<T> {
    /// Turns an [`io::Error`] into [`FileError::Io`].
    ///
    /// # Errors
    ///
    /// The error it was given, with its context.
    fn during(self, operation: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::Io {
            operation,
            path: path.to_owned(),
            source,
        })
    }
}
