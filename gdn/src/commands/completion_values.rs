//! Workspaces that a project has had, read from the state root. They need not be registered, and no daemon needs to
//! run.

use std::path::PathBuf;

use goondan_protocol::ids::WorkspaceId;
use serde::Deserialize;

use crate::context::Context;
use crate::failure::Failure;

/// A workspace that has run before.
#[derive(Debug)]
pub(super) struct KnownWorkspace {
    pub(super) id: WorkspaceId,
    pub(super) project_root: PathBuf,
}

/// Fields of `workspace.json` that are needed here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceFile {
    project_root: PathBuf,
}

/// Returns the workspace named by its id, or all workspaces of the project. Unreadable records are skipped.
pub(super) fn of(context: &Context) -> Result<Vec<KnownWorkspace>, Failure> {
    let named = context.workspace_id();
    let project = match &named {
        Some(_) => None,
        None => Some(context.project()?),
    };
    context.check_format()?;
    let Ok(entries) = std::fs::read_dir(context.state_root.join("workspaces")) else {
        return Ok(Vec::new());
    };
    let found = entries.flatten().filter_map(|entry| {
        let id = WorkspaceId::new(entry.file_name().to_str()?).ok()?;
        let text = std::fs::read(entry.path().join("workspace.json")).ok()?;
        let WorkspaceFile { project_root } = serde_json::from_slice(&text).ok()?;
        let is_meant = match (&named, &project) {
            (Some(named), _) => *named == id,
            (None, project) => project.as_ref() == Some(&project_root),
        };
        is_meant.then_some(KnownWorkspace { id, project_root })
    });
    Ok(found.collect())
}
