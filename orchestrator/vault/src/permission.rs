//! Decisions of people about permissions of workspaces (`SEC-3`).
//!
//! All decisions are in one file, `system/permissions.json`, which the orchestrator writes. Older
//! versions of goondan do not read it, and grant none of these permissions.

use goondan_protocol::control::PermissionDecision;
use serde::{Deserialize, Serialize};

use crate::consent::ProjectIdentity;
use crate::error::ConsentError;
use crate::limits::{CONSENTS_BYTES_MAX, PERMISSIONS_MAX};

/// Format version of the file.
const VERSION: u32 = 1;

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PermissionFile {
    version: u32,
    decisions: Vec<PermissionDecision>,
}

/// All decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionDecisions {
    all: Vec<PermissionDecision>,
}

impl PermissionDecisions {
    /// Parses the text of the file.
    ///
    /// # Errors
    ///
    /// [`ConsentError`]: then nothing is allowed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConsentError> {
        let file: PermissionFile = serde_json::from_slice(bytes)
            .map_err(|error| ConsentError::Malformed(error.to_string()))?;
        if file.version != VERSION {
            return Err(ConsentError::Version(file.version));
        }
        if file.decisions.len() > PERMISSIONS_MAX {
            return Err(ConsentError::TooMany);
        }
        Ok(Self {
            all: file.decisions,
        })
    }

    /// Content of the file.
    ///
    /// # Errors
    ///
    /// [`ConsentError`] if a path is not valid UTF-8, or the file would be too large to be read.
    pub fn to_text(&self) -> Result<String, ConsentError> {
        let file = PermissionFile {
            version: VERSION,
            decisions: self.all.clone(),
        };
        let text = serde_json::to_string_pretty(&file)
            .map_err(|error| ConsentError::Malformed(error.to_string()))?;
        if text.len() >= CONSENTS_BYTES_MAX {
            return Err(ConsentError::TooMany);
        }
        Ok(text + "\n")
    }

    /// Adds a decision, which replaces an earlier one about the same permission of the workspace.
    ///
    /// # Errors
    ///
    /// [`ConsentError::TooMany`].
    pub fn decide(&mut self, decision: PermissionDecision) -> Result<(), ConsentError> {
        let project = ProjectIdentity::new(&decision.project_root, decision.package.as_deref());
        let is_same =
            |it: &PermissionDecision| it.permission == decision.permission && is_of(it, &project);
        self.all.retain(|it| !is_same(it));
        if self.all.len() >= PERMISSIONS_MAX {
            return Err(ConsentError::TooMany);
        }
        self.all.push(decision);
        self.all
            .sort_by(|a, b| (&a.workspace_id, a.permission).cmp(&(&b.workspace_id, b.permission)));
        Ok(())
    }

    /// The decisions about a project.
    #[must_use]
    pub fn of_project(&self, project: &ProjectIdentity) -> Vec<PermissionDecision> {
        let own = self.all.iter().filter(|it| is_of(it, project));
        own.cloned().collect()
    }

    /// All decisions, sorted by workspace and permission.
    #[must_use]
    pub fn all(&self) -> &[PermissionDecision] {
        &self.all
    }
}

fn is_of(decision: &PermissionDecision, project: &ProjectIdentity) -> bool {
    decision.project_root == project.root && decision.package == project.package
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use goondan_protocol::control::WorkspacePermission;
    use serde_json::json;

    use super::*;

    fn decision(permission: &str, root: &str, allowed: bool) -> PermissionDecision {
        serde_json::from_value(json!({
            "permission": permission, "workspaceId": "w-1", "projectRoot": root,
            "package": "p", "allowed": allowed, "covers": ["goondan.yaml"],
            "decidedAt": "2026-11-22T21:00:00.000Z",
        }))
        .unwrap()
    }

    #[test]
    fn sec_3_a_permission_belongs_to_one_directory_and_one_package() {
        let mut all = PermissionDecisions::default();
        all.decide(decision("project", "/a", true)).unwrap();
        all.decide(decision("network", "/a", true)).unwrap();
        all.decide(decision("project", "/a", false)).unwrap();
        let of = |root: &str, package: Option<&str>| {
            all.of_project(&ProjectIdentity::new(Path::new(root), package))
        };
        let found: Vec<_> = of("/a", Some("p"))
            .iter()
            .map(|it| (it.permission, it.allowed))
            .collect();
        let expected = [
            (WorkspacePermission::Project, false),
            (WorkspacePermission::Network, true),
        ];
        assert_eq!(found, expected);
        for (root, package) in [("/b", Some("p")), ("/a/b", Some("p")), ("/a", None)] {
            assert!(of(root, package).is_empty(), "{root} {package:?}");
        }
        let text = all.to_text().unwrap();
        assert_eq!(PermissionDecisions::parse(text.as_bytes()).unwrap(), all);
    }

    #[test]
    fn sec_3_a_file_that_is_not_as_it_was_written_permits_nothing() {
        for bad in [
            "",
            "{",
            "[]",
            r#"{"version":2,"decisions":[]}"#,
            r#"{"version":1}"#,
        ] {
            assert!(PermissionDecisions::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let one = serde_json::to_value(decision("project", "/a", true)).unwrap();
        let many = json!({"version": 1, "decisions": vec![one; PERMISSIONS_MAX + 1]});
        let parsed = PermissionDecisions::parse(many.to_string().as_bytes());
        assert_eq!(parsed.unwrap_err(), ConsentError::TooMany);
    }
}
