//! Which workspaces a project ever had, told by the state root itself: a daemon need not run for its log
//! to be read.

use std::path::PathBuf;

use goondan_protocol::ids::WorkspaceId;
use serde::Deserialize;

use crate::context::Context;
use crate::failure::Failure;

/// What of `workspace.json` is needed here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    project_root: PathBuf,
}

/// The workspace that is named by its id, or every one of the project. What cannot be read is none.
pub(super) fn of(context: &Context) -> Result<Vec<WorkspaceId>, Failure> {
    if let Some(id) = context.workspace_id() {
        return Ok(vec![id]);
    }
    let project = context.project()?;
    let Ok(entries) = std::fs::read_dir(context.state_root.join("workspaces")) else {
        return Ok(Vec::new());
    };
    let found = entries.flatten().filter_map(|entry| {
        let text = std::fs::read(entry.path().join("workspace.json")).ok()?;
        let record: Record = serde_json::from_slice(&text).ok()?;
        let id = WorkspaceId::new(entry.file_name().to_str()?).ok()?;
        (record.project_root == project).then_some(id)
    });
    Ok(found.collect())
}
