//! The program to start, and its first input.

use std::fmt;
use std::path::PathBuf;

use goondan_protocol::JsonObject;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::sandbox::SandboxPolicy;
use serde_json::json;

use super::messages;

/// A program to be started.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) project_root: PathBuf,
    /// Its path within the project.
    pub(super) entry: PathBuf,
    pub(super) sandbox: SandboxPolicy,
    /// Socket of the egress, if the program may only reach listed hosts.
    pub(super) egress: Option<PathBuf>,
    /// Its first input line. Contains secrets.
    pub(super) start: Secret,
}

/// A text that is never displayed.
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Launch {
    /// The program of an assignment, if any.
    pub(super) fn of(assignment: &ConnectorAssignment) -> Option<Self> {
        let program = assignment.program.as_ref()?;
        let start = json!({
            "type": "start",
            "protocol": messages::PROTOCOL,
            "workspaceId": assignment.workspace_id,
            "connection": assignment.connection,
            "connector": assignment.connector,
            "config": JsonObject::clone(&assignment.config),
            "secrets": assignment.secrets,
        });
        Some(Self {
            project_root: program.project_root.clone(),
            entry: program.entry.clone(),
            sandbox: assignment.sandbox.clone(),
            egress: assignment.egress_socket.clone(),
            start: Secret(format!("{start}\n")),
        })
    }
}
