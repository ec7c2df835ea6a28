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
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The application and subject, for display.
        subject: String,
    },
}

/// Result of an operation.
#[derive(Debug)]
pub enum OAuthResult {
    /// The documents of an application.
    Read {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The application.
        app: ResourceName,
        /// The documents of all workspaces.
        documents: Documents,
    },
    /// Result of writing or removing a document.
    Kept {
        /// Ticket of the request.
        ticket: Ticket,
        /// The result.
        result: Result<(), String>,
    },
}
