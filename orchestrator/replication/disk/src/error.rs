//! Reasons for refusing a change or a wait.

use std::io;
use std::path::PathBuf;

use goondan_protocol::ids::WorkspaceId;

/// Error of a replicated disk, contained in an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplicatedDiskError {
    /// The node does not own the workspace ([`io::ErrorKind::PermissionDenied`]).
    #[error("this node must not change the files of workspace `{workspace}`: {why}")]
    NotOwned { workspace: WorkspaceId, why: String },
    /// The workspace was released meanwhile ([`io::ErrorKind::PermissionDenied`]).
    #[error(
        "workspace `{workspace}` was released in the meantime: open its files again before you \
         change them"
    )]
    GivenUpSince { workspace: WorkspaceId },
    /// It will never be known if the log contains the change
    /// ([`io::ErrorKind::ConnectionAborted`]).
    #[error("it is unknown whether the log of workspace `{workspace}` contains the write: {why}")]
    Ended { workspace: WorkspaceId, why: String },
    /// A change that no record can represent ([`io::ErrorKind::Unsupported`]).
    #[error("this change of `{}` is not allowed: {why}", path.display())]
    Unsupported { path: PathBuf, why: &'static str },
}

impl ReplicatedDiskError {
    /// True if an error is one of these rather than an error of the disk.
    #[must_use]
    pub fn is_in(error: &io::Error) -> bool {
        let inner = error.get_ref().map(|inner| inner.downcast_ref::<Self>());
        inner.flatten().is_some()
    }
}

impl From<ReplicatedDiskError> for io::Error {
    fn from(refused: ReplicatedDiskError) -> Self {
        let kind = match refused {
            ReplicatedDiskError::NotOwned { .. } | ReplicatedDiskError::GivenUpSince { .. } => {
                io::ErrorKind::PermissionDenied
            }
            ReplicatedDiskError::Ended { .. } => io::ErrorKind::ConnectionAborted,
            ReplicatedDiskError::Unsupported { .. } => io::ErrorKind::Unsupported,
        };
        Self::new(kind, refused)
    }
}
