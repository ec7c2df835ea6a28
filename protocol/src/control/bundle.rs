//! `bundle.*`: what an agent made of the configuration of its own conversation (`BUNDLE-8`).

use serde::{Deserialize, Serialize};

use crate::bundle::{ChangesetInfo, ChangesetRecord, StatusRecord};
use crate::ids::{ChangesetId, InstanceKey, RehearsalSubject, RevisionId, WorkspaceId};

requests_about! {
    {
        /// The conversation.
        pub instance_key: InstanceKey
    }

    /// `bundle.status`.
    ShowBundle {}

    /// `bundle.log`.
    ReadBundleLog {}

    /// `bundle.show`.
    ShowChangeset {
        /// The changeset.
        changeset_id: ChangesetId,
    }

    /// `bundle.rehearse`.
    RehearseBundle {
        /// The changeset or revision.
        subject: RehearsalSubject,
        /// How many of the latest turns are played.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<u32>,
    }

    /// `bundle.approve`.
    ApproveChangeset {
        /// The changeset.
        changeset_id: ChangesetId,
        /// What is said of it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }

    /// `bundle.reject`.
    RejectChangeset {
        /// The changeset.
        changeset_id: ChangesetId,
        /// Why; its agent is told.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }

    /// `bundle.revert`.
    RevertBundle {
        /// The revision; the last one that proved itself if none is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<RevisionId>,
        /// Why; its agent is told.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }

    /// `bundle.pin`.
    PinBundle {
        /// Whether it is kept from now on.
        pinned: bool,
    }
}

/// What `bundle.log` returns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleLogs {
    /// The changesets, the oldest first; the last [`BUNDLE_RECORDS_MAX`](crate::bundle::BUNDLE_RECORDS_MAX).
    pub changesets: Vec<ChangesetRecord>,
    /// What became of them, the oldest first; as many.
    pub statuses: Vec<StatusRecord>,
}

/// What `bundle.show` returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownChangeset {
    /// The changeset.
    pub changeset: ChangesetInfo,
    /// What it changes, as a unified diff.
    pub diff: String,
}
