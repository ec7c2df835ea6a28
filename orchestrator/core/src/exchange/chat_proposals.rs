//! Operations on proposals that chats wait for.

use goondan_protocol::ids::{DecisionId, WorkspaceId};

use super::ChildRequest;

/// Operation that the chats of a workspace wait for.
#[derive(Debug)]
pub(crate) enum ChatProposalStep {
    /// Read a page of the list.
    List(WorkspaceId),
    /// Read the files of a proposal.
    Files(WorkspaceId, DecisionId),
    /// Carry out a decision.
    Decide {
        workspace_id: WorkspaceId,
        decision_id: DecisionId,
        press: ChildRequest,
        /// The outcome, if it succeeds.
        how: String,
        /// The person.
        by: String,
    },
}
