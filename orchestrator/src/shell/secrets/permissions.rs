//! Stores decisions of people about permissions of workspaces (`SEC-3`).
//!
//! As for consents, the file is replaced atomically, and a decision is recorded in the audit log
//! before it takes effect.

use goondan_config::is_within_project;
use goondan_protocol::control::{
    DecidePermission, PermissionDecided, PermissionDecision, PermissionList, WorkspacePermission,
};
use goondan_protocol::limits::{MAX_COMMAND_COVER_BYTES, MAX_NAME_BYTES, MAX_PERMISSION_COVERS};
use goondan_protocol::time::Timestamp;
use goondan_vault::{ConsentError, VaultError};
use serde_json::json;

use super::consents::{ConsentWorkspace, identify};
use super::{KeepError, SecretKeeper};

impl SecretKeeper {
    pub(super) fn permissions(&self) -> PermissionList {
        match self.vault.permissions(self.files.as_ref()) {
            Ok(found) => PermissionList {
                problem: None,
                decisions: found.all().to_vec(),
            },
            Err(error) => PermissionList {
                problem: Some(goondan_log::error_chain(&error)),
                decisions: Vec::new(),
            },
        }
    }

    /// Stores a decision. A damaged file is not overwritten.
    pub(super) fn decide(
        &self,
        decide: DecidePermission,
        at: Timestamp,
    ) -> Result<PermissionDecided, KeepError> {
        check(&decide)?;
        let ConsentWorkspace {
            id,
            project_root,
            package,
        } = self.workspace_of(&decide)?;
        let decision = PermissionDecision {
            permission: decide.permission,
            workspace_id: id,
            project_root,
            package,
            allowed: decide.allowed,
            covers: decide.covers,
            decided_at: at,
        };
        let path = self.vault.permissions_file();
        let bad = |source: ConsentError| {
            let path = path.clone();
            VaultError::Permissions { path, source }
        };
        let mut all = self.vault.permissions(self.files.as_ref())?;
        all.decide(decision.clone()).map_err(bad)?;
        let text = all.to_text().map_err(bad)?;
        let event = if decision.allowed {
            "permission.allowed"
        } else {
            "permission.denied"
        };
        let fields = json!({
            "event": event,
            "permission": decision.permission,
            "workspaceId": decision.workspace_id,
            "projectRoot": decision.project_root,
        });
        self.record(fields, at);
        self.write_in_system(&path, &text)?;
        Ok(PermissionDecided {
            decision,
            workspaces: Vec::new(),
        })
    }

    /// The workspace of a decision. A permission of a deleted project can be withdrawn.
    fn workspace_of(&self, decide: &DecidePermission) -> Result<ConsentWorkspace, KeepError> {
        let error = match identify(&decide.project_root) {
            Ok(workspace) => return Ok(workspace),
            Err(error) => error,
        };
        let all = self.vault.permissions(self.files.as_ref())?;
        let mut all = all.all().iter();
        let earlier = all.find(|it| {
            it.permission == decide.permission && it.project_root == decide.project_root
        });
        match earlier {
            Some(earlier) if !decide.allowed => Ok(ConsentWorkspace {
                id: earlier.workspace_id.clone(),
                project_root: earlier.project_root.clone(),
                package: earlier.package.clone(),
            }),
            Some(_) | None => Err(error),
        }
    }
}

/// Refuses permissions that no project can request. Protected paths must be below the Project Root.
fn check(decide: &DecidePermission) -> Result<(), KeepError> {
    let refused = |why: String| Err(KeepError::InvalidPermission(why));
    if decide.covers.len() > MAX_PERMISSION_COVERS {
        let count = decide.covers.len();
        return refused(format!(
            "it covers {count} entries; at most {MAX_PERMISSION_COVERS} are allowed"
        ));
    }
    let is_valid = |entry: &&String| match decide.permission {
        WorkspacePermission::Project => is_within_project(entry),
        WorkspacePermission::Network => !entry.is_empty() && entry.len() <= MAX_NAME_BYTES,
        WorkspacePermission::Packages => {
            !entry.is_empty() && entry.len() <= MAX_COMMAND_COVER_BYTES
        }
    };
    match decide.covers.iter().find(|entry| !is_valid(entry)) {
        Some(entry) => refused(format!("`{entry}` is not within the project")),
        None => Ok(()),
    }
}
