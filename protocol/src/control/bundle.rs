//! `bundle.*`: an agent's changes to the configuration of its own conversation (`BUNDLE-8`).

use serde::{Deserialize, Serialize};

use crate::bundle::{ChangesetInfo, ChangesetRecord, StatusRecord};
use crate::ids::{AgentName, ChangesetId, InstanceKey, RehearsalSubject, RevisionId, WorkspaceId};

/// `bundle.waiting`: one page of a workspace's changesets that wait for a person (`OBS-5`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWaitingChangesets {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation after which the page starts: `next` of the previous page; absent for the
    /// first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<InstanceKey>,
    /// Number of changesets after which the page ends, at the end of a conversation. Defaults to
    /// and is capped at [`MAX_CHANGESETS_PAGE`](crate::limits::MAX_CHANGESETS_PAGE).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `bundle.waiting`. All changesets of a conversation are on one page, so concurrent
/// decisions never cause changesets to be missed or repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingChangesetsPage {
    /// The changesets, grouped by conversation and in the order in which they were opened. May be
    /// empty even if another page follows.
    pub changesets: Vec<WaitingChangeset>,
    /// Conversations of this page whose changesets cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<InstanceKey>,
    /// The conversation after which the next page starts; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InstanceKey>,
}

/// A pending changeset and its conversation.
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
        /// Number of latest turns to replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<u32>,
    }

    /// `bundle.approve`.
    ApproveChangeset {
        /// The changeset.
        changeset_id: ChangesetId,
        /// A comment on the approval.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }

    /// `bundle.reject`.
    RejectChangeset {
        /// The changeset.
        changeset_id: ChangesetId,
        /// The reason, which the agent receives.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }

    /// `bundle.revert`.
    RevertBundle {
        /// The revision to revert to; defaults to the last promoted one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<RevisionId>,
        /// The reason, which the agent receives.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    }

    /// `bundle.pin`.
    PinBundle {
        /// True to pin the configuration, false to unpin it.
        pinned: bool,
    }
}

/// Result of `bundle.log`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleLogs {
    /// The last [`BUNDLE_RECORDS_MAX`](crate::bundle::BUNDLE_RECORDS_MAX) changesets, oldest first.
    pub changesets: Vec<ChangesetRecord>,
    /// Their status records, oldest first, with the same limit.
    pub statuses: Vec<StatusRecord>,
}

/// Result of `bundle.show`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownChangeset {
    /// The changeset.
    pub changeset: ChangesetInfo,
    /// Its changes, as a unified diff.
    pub diff: String,
}
