//! `bundle.*`: what an agent made of the configuration of its own conversation (`BUNDLE-8`).

use serde::{Deserialize, Serialize};

use crate::bundle::{ChangesetInfo, ChangesetRecord, StatusRecord};
use crate::ids::{AgentName, ChangesetId, InstanceKey, RehearsalSubject, RevisionId, WorkspaceId};

/// `bundle.waiting`: one page of the changesets of a workspace that wait for a person (`OBS-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWaitingChangesets {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation behind which the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<InstanceKey>,
    /// With how many changesets the page ends, as soon as their conversation has no more; at most and if it is not
    /// said [`MAX_CHANGESETS_PAGE`](crate::limits::MAX_CHANGESETS_PAGE).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `bundle.waiting`. Those of a conversation are all on one page: whatever is decided meanwhile, none is
/// missed or told twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingChangesetsPage {
    /// The changesets, by their conversations, in the order in which they were opened. There may be none though a
    /// page follows.
    pub changesets: Vec<WaitingChangeset>,
    /// Conversations of this page of which it cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<InstanceKey>,
    /// Behind which conversation the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InstanceKey>,
}

/// A changeset that waits, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingChangeset {
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The changeset.
    pub changeset: ChangesetInfo,
}

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
