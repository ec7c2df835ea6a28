//! Errors of bundle operations.

use std::path::PathBuf;

use goondan_durable::FileError;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{ChangesetId, InstanceKey, InvalidId, RehearsalSubject, RevisionId};
use goondan_protocol::shell::shell_quoted;
use goondan_trees::TreeError;

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// An I/O error on a file of the bundle.
    #[error("failed to use the files of the bundle")]
    File(#[from] FileError),
    /// A part of a working copy cannot be removed.
    #[error("failed to remove `{}`", path.display())]
    NotRemoved {
        path: PathBuf,
        source: Box<TreeError>,
    },
    /// A file of the bundle is invalid.
    #[error("`{}` is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// The conversation does not exist.
    #[error("the conversation does not exist")]
    NoInstance,
    /// The conversation has no bundle, because nothing was proposed yet.
    #[error("the conversation has no bundle: its agent has proposed nothing yet")]
    NoBundle,
    /// The changeset does not exist.
    #[error("changeset `{id}` does not exist")]
    NoChangeset { id: ChangesetId },
    #[error("no changeset is open; call `open` first")]
    NoneOpen,
    /// The revision does not exist.
    #[error("revision `{id}` does not exist")]
    NoRevision { id: RevisionId },
    /// No changeset or revision has this name.
    #[error("changeset or revision `{subject}` does not exist")]
    NoSubject { subject: RehearsalSubject },
    /// The changeset is in a state that does not allow the operation.
    #[error("changeset `{id}` is {state}; {needed}")]
    WrongState {
        id: ChangesetId,
        state: &'static str,
        needed: &'static str,
    },
    #[error("{0}")]
    Invalid(String),
    /// The workspace's configuration allows no changes by agents.
    #[error(
        "agents of this swarm may not change their configuration: `policy.changesets` is not set"
    )]
    NotAllowed,
}

impl From<InvalidId> for BundleError {
    fn from(error: InvalidId) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl BundleError {
    /// Returns the error with its causes, in one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }

    /// Converts to the error sent to clients.
    #[must_use]
    pub fn to_control(&self, key: &InstanceKey) -> ControlError {
        let code = match self {
            Self::File(_) | Self::NotRemoved { .. } => ErrorCode::Storage,
            Self::Damaged { .. } => ErrorCode::Damaged,
            Self::NoInstance => ErrorCode::InstanceNotFound,
            Self::NoBundle
            | Self::NoChangeset { .. }
            | Self::NoneOpen
            | Self::NoRevision { .. }
            | Self::NoSubject { .. }
            | Self::WrongState { .. }
            | Self::Invalid(_)
            | Self::NotAllowed => ErrorCode::InvalidRequest,
        };
        let text = self.in_words();
        let key = shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
        let hint = match self {
            Self::NoInstance => "`gdn conversation list` shows the conversations".to_owned(),
            // Commands that list bundles cannot read the bundle, either.
            Self::Damaged { .. } => {
                "`gdn daemon verify` shows what is damaged; `gdn daemon verify --repair` sets it aside".to_owned()
            }
            Self::File(_) | Self::NotRemoved { .. } => {
                "`gdn doctor` checks the disk of the state root".to_owned()
            }
            // The conversation's configuration is the project's.
            Self::NoBundle => {
                "`gdn config show` shows the configuration that it runs with".to_owned()
            }
            Self::NotAllowed => "`gdn config show` shows the project's policy".to_owned(),
            Self::NoRevision { .. } => format!("`gdn conversation bundle log {key}` shows the revisions"),
            Self::NoSubject { .. } => format!(
                "`gdn conversation bundle status {key}` shows the changesets, `gdn conversation bundle log {key}` the revisions"
            ),
            Self::WrongState { id, .. } => {
                format!("`gdn conversation bundle show {id} --key {key}` shows it and the reason")
            }
            Self::NoChangeset { .. } | Self::NoneOpen | Self::Invalid(_) => {
                format!("`gdn conversation bundle status {key}` shows what there is")
            }
        };
        ControlError::new(code, text).suggest(hint)
    }
}
