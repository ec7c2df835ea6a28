//! Operations on OAuth documents, and their results.

use goondan_oauth::{DocumentWork, Documents, Ticket};
use goondan_protocol::ids::{ResourceName, WorkspaceId};

/// An operation on OAuth documents. Operations are executed in order.
#[derive(Debug)]
pub enum OAuthWork {
    /// An operation requested by the token state machine.
    Documents(DocumentWork),
    /// Write an audit record (`SEC-5`).
    Audit {
        /// The event name, such as `oauth.granted`.
        event: &'static str,
        workspace_id: WorkspaceId,
        /// The application and subject, for display.
        subject: String,
    },
}

#[derive(Debug)]
pub enum OAuthResult {
    /// The documents of an application.
    Read {
        workspace_id: WorkspaceId,
        app: ResourceName,
        /// The documents of all workspaces.
        documents: Documents,
    },
    /// Result of writing or removing a document.
    Kept {
        ticket: Ticket,
        result: Result<(), String>,
    },
}
