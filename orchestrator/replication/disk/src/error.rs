//! Why a change or a wait is refused.

use std::io;
use std::path::PathBuf;

use goondan_protocol::ids::WorkspaceId;

/// What stands in an [`io::Error`] of a replicated disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The workspace is not this node's ([`io::ErrorKind::PermissionDenied`]).
    #[error("the files of workspace `{workspace}` are not this node's to change: {why}")]
    NotOwned {
        /// Which.
        workspace: WorkspaceId,
        /// Why not.
        why: String,
    },
    /// The workspace was given up since ([`io::ErrorKind::PermissionDenied`]).
    #[error(
        "workspace `{workspace}` was given up since, whether it is this node's again or not: open what is to be changed \
         anew"
    )]
    GivenUpSince {
        /// Which.
        workspace: WorkspaceId,
    },
    /// Nobody will say whether the log has it ([`io::ErrorKind::ConnectionAborted`]).
    #[error("whether the log of workspace `{workspace}` has what was written is not known: {why}")]
    Ended {
        /// Which.
        workspace: WorkspaceId,
        /// Why not.
        why: String,
    },
    /// A change that no record can say ([`io::ErrorKind::Unsupported`]).
    #[error("`{}` cannot be changed so: {why}", path.display())]
    Unsupported {
        /// What it is about.
        path: PathBuf,
        /// What cannot be done.
        why: &'static str,
    },
}

impl Refused {
    /// Whether an error is one of these, and no disk's.
    #[must_use]
    pub fn is_in(error: &io::Error) -> bool {
        let inner = error.get_ref().map(|inner| inner.downcast_ref::<Self>());
        inner.flatten().is_some()
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::NotOwned { .. } | Refused::GivenUpSince { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Refused::Ended { .. } => io::ErrorKind::ConnectionAborted,
            Refused::Unsupported { .. } => io::ErrorKind::Unsupported,
        };
        Self::new(kind, refused)
    }
}
