//! What can go wrong with a bundle.

use std::path::PathBuf;

use goondan_durable::FileError;
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{ChangesetId, InstanceKey, InvalidId, RehearsalSubject, RevisionId};
use goondan_protocol::shell::shell_quoted;
use goondan_trees::TreeError;

/// Why something is not done.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file of the bundle cannot be used.
    #[error("the files of the bundle cannot be used")]
    File(#[from] FileError),
    /// A part of a working copy could not be removed.
    #[error("`{}` cannot be removed", path.display())]
    NotRemoved {
        /// The part.
        path: PathBuf,
        /// Why.
        source: Box<TreeError>,
    },
    /// A file of the bundle does not hold what it must.
    #[error("`{}` is damaged: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The conversation is not there.
    #[error("there is no such conversation")]
    NoInstance,
    /// Nothing was proposed in the conversation yet.
    #[error("the conversation has no bundle: its agent has proposed nothing yet")]
    NoBundle,
    /// There is no such changeset.
    #[error("there is no changeset `{id}`")]
    NoChangeset {
        /// Its id.
        id: ChangesetId,
    },
    /// No changeset is open.
    #[error("no changeset is open; call `open` first")]
    NoneOpen,
    /// There is no such revision.
    #[error("there is no revision `{id}`")]
    NoRevision {
        /// Its id.
        id: RevisionId,
    },
    /// There is nothing of this name to be rehearsed.
    #[error("there is no changeset and no revision `{subject}`")]
    NoSubject {
        /// The name.
        subject: RehearsalSubject,
    },
    /// A changeset does not stand so that this could be done.
    #[error("changeset `{id}` is {state}; {needed}")]
    WrongState {
        /// Its id.
        id: ChangesetId,
        /// How it stands.
        state: &'static str,
        /// How it would have to.
        needed: &'static str,
    },
    /// What was asked for is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The configuration of the workspace lets agents change nothing.
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
    /// The error and what led to it, in one line.
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

    /// The error as a client is told of it.
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
            Self::NoInstance => "`gdn instance list` shows the conversations".to_owned(),
            // What lists the bundle cannot read it either.
            Self::Damaged { .. } => {
                "`gdn verify` shows what is damaged; `gdn verify --repair` sets it aside".to_owned()
            }
            Self::File(_) | Self::NotRemoved { .. } => {
                "`gdn doctor` checks the disk of the state root".to_owned()
            }
            // The conversation's configuration is the project's.
            Self::NoBundle => {
                "`gdn config show` shows the configuration that it runs with".to_owned()
            }
            Self::NotAllowed => "`gdn config show` shows the project's policy".to_owned(),
            Self::NoRevision { .. } => format!("`gdn bundle log {key}` shows the revisions"),
            Self::NoSubject { .. } => format!(
                "`gdn bundle status {key}` shows the changesets, `gdn bundle log {key}` the revisions"
            ),
            Self::WrongState { id, .. } => {
                format!("`gdn bundle show {id} --key {key}` shows it and the reason")
            }
            Self::NoChangeset { .. } | Self::NoneOpen | Self::Invalid(_) => {
                format!("`gdn bundle status {key}` shows what there is")
            }
        };
        ControlError::new(code, text).suggest(hint)
    }
}
