//! Errors of file operations.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why an operation on a file failed. Nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("failed to {operation} `{}`", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file violates its format.
    #[error("`{}` is damaged at line {line}: {problem}", path.display())]
    Damaged {
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        problem: String,
    },
    /// A record cannot be written as JSON, or has no valid file name, which is a bug in goondan.
    #[error("failed to serialize a record: {problem}")]
    Unwritable { problem: String },
}

impl FileError {
    /// True if descriptors or memory ran out. Such an error says nothing about the file.
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

    /// True if the file system, not the request, is at fault. Handles are then unusable, and the
    /// same request may succeed later.
    #[must_use]
    pub fn is_io(&self) -> bool {
        matches!(self, Self::Io { .. })
    }

    /// True if required data is lost or damaged: the same request fails until a user repairs it.
    /// This includes I/O errors for a file that is missing or has the wrong type.
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

/// Adds file and operation to an I/O error.
pub trait IoContext<T> {
    /// Converts an [`io::Error`] to [`FileError::Io`].
    ///
    /// # Errors
    ///
    /// The given error, with its context.
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
