//! `permission.*`: rights that a person gives a workspace (`SEC-3`, `COMPAT-2`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::workspace::WorkspaceReload;
use super::workspace_permission::WorkspacePermission;
use crate::ids::WorkspaceId;
use crate::time::Timestamp;

/// A person's decision about a permission. It applies to the workspace of that directory and
/// package, and to the files, connections or commands that it covers. Others need a new decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionDecision {
    /// The permission.
    pub permission: WorkspacePermission,
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Its Project Root.
    pub project_root: PathBuf,
    /// Its package, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// True if it is allowed.
    pub allowed: bool,
    /// Files relative to the Project Root, names of connections, or commands of servers.
    pub covers: BTreeSet<String>,
    /// Time of the decision.
    pub decided_at: Timestamp,
}

/// `permission.list`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPermissions {}

/// Result of `permission.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionList {
    /// Reason why the decisions cannot be read, if so. Then nothing is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The decisions, sorted by workspace and permission.
    pub decisions: Vec<PermissionDecision>,
}

/// `permission.decide`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecidePermission {
    /// The permission.
    pub permission: WorkspacePermission,
    /// The Project Root of the workspace.
    pub project_root: PathBuf,
    /// True to allow it.
    pub allowed: bool,
    /// Files, connections or commands that the person has seen, at most
    /// [`crate::limits::MAX_PERMISSION_COVERS`] entries.
    pub covers: BTreeSet<String>,
}

/// Result of `permission.decide`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionDecided {
    /// The decision, which replaces an earlier one.
    pub decision: PermissionDecision,
    /// Result of reloading the workspace, if it runs.
    pub workspaces: Vec<WorkspaceReload>,
}
