//! What is done about the documents of OAuth, and what came of it.

use goondan_oauth::{DocumentWork, Documents, Ticket};
use goondan_protocol::ids::{ResourceName, WorkspaceId};

/// Something to be done about the documents of OAuth. It is done in the order in which it is asked for.
#[derive(Debug)]
pub enum OAuthWork {
    /// What the machine of tokens wants.
    Documents(DocumentWork),
    /// Write down what happened (`SEC-5`).
    Audit {
        /// What: `oauth.granted` and the like.
        event: &'static str,
        /// The workspace.
        workspace_id: WorkspaceId,
        /// Of which application and whom, for people.
        subject: String,
    },
}

/// What came of it.
#[derive(Debug)]
pub enum OAuthDone {
    /// What there is of an application.
    Read {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The application.
        app: ResourceName,
        /// Its documents, of all workspaces.
        documents: Documents,
    },
    /// A document is durable as was asked for, or gone; or why not.
    Kept {
        /// Names what was asked for.
        ticket: Ticket,
        /// How that ended.
        result: Result<(), String>,
    },
}
