//! Reading a workspace from disk: its configuration, its record, its instances with work.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use goondan_config::{Bundle, Diagnostics, ProcessEnvironment};
use goondan_protocol::control::{ControlError, ErrorCode, InstanceSummary};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_store::disk::Disk;
use goondan_store::index::InstanceIndex;
use goondan_store::instance::Metadata;
use goondan_store::root::Layout;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::{StoreError, workspace};

use crate::core::LoadedWorkspace;

/// Which of a workspace's instances are wanted beside those with something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instances {
    /// None.
    WithWork,
    /// Every one, since they may be begun anew.
    All,
}

/// Reads the workspace of a project, registering it. Blocks.
pub(super) fn load(
    disk: &dyn Disk,
    layout: &Layout,
    project_root: &Path,
    wanted: Instances,
    known: &Known,
) -> Result<LoadedWorkspace, ControlError> {
    let canonical = std::fs::canonicalize(project_root).map_err(|error| {
        let text = format!(
            "cannot open the project `{}`: {error}",
            project_root.display()
        );
        ControlError::new(ErrorCode::InvalidConfiguration, text)
            .suggest("name an existing project; `gdn init` makes a new one")
    })?;
    let package = goondan_config::package_name(&canonical).map_err(|e| invalid(&e, &canonical))?;
    let bundle = goondan_config::load(&canonical, &ProcessEnvironment)
        .map_err(|error| invalid(&error, &canonical));
    let record = match &bundle {
        // What cannot run is not registered, but what is registered stays so.
        Err(error) => {
            let id = goondan_store::naming::workspace_id(&canonical, package.as_deref())
                .map_err(|problem| ControlError::new(ErrorCode::Internal, problem.to_string()))?;
            match workspace::read(disk, &layout.workspace(&id)) {
                Ok(Some(record)) if record.registered => record,
                Ok(_) => return Err(error.clone()),
                Err(error) => return Err(storage(&error)),
            }
        }
        Ok(_) => known
            .open(disk, layout, &canonical, package.as_deref())
            .map_err(|error| storage(&error))?,
    };
    read_instances(disk, layout, record, bundle, wanted, known)
}

/// Reads which instances a workspace has, and which of them have something to do.
fn read_instances(
    disk: &dyn Disk,
    layout: &Layout,
    record: WorkspaceRecord,
    bundle: Result<Bundle, ControlError>,
    wanted: Instances,
    known: &Known,
) -> Result<LoadedWorkspace, ControlError> {
    let instances = layout.instances(&record.workspace_id);
    let listed = workspace::list_instances(disk, &instances);
    let (found, mut unusable) = listed.map_err(|error| storage(&error))?;
    known.index.take_up(&record.workspace_id, &found);
    let with_work = workspace::with_work_among(disk, &instances, &found, &mut unusable);
    known.warned.report(&unusable);
    let to_begin_anew = match wanted {
        Instances::WithWork => Vec::new(),
        Instances::All => found,
    };
    Ok(LoadedWorkspace {
        record,
        bundle,
        with_work,
        to_begin_anew,
    })
}

/// Reads a workspace that was registered when the daemon last ran. One whose project cannot be read
/// any more is still there, with the reason. Blocks.
pub(super) fn load_registered(
    disk: &dyn Disk,
    layout: &Layout,
    record: WorkspaceRecord,
    known: &Known,
) -> Result<LoadedWorkspace, ControlError> {
    let found = load(
        disk,
        layout,
        &record.project_root,
        Instances::WithWork,
        known,
    );
    match found {
        // The package was renamed: that is another workspace, to be opened by a person.
        Ok(found) if found.record.workspace_id != record.workspace_id => {
            let text = format!(
                "the project `{}` is now workspace `{}`: its package was renamed",
                record.project_root.display(),
                found.record.workspace_id
            );
            let error = ControlError::new(ErrorCode::WorkspaceConflict, text);
            read_instances(disk, layout, record, Err(error), Instances::WithWork, known)
        }
        Ok(found) => Ok(found),
        Err(error) => read_instances(disk, layout, record, Err(error), Instances::WithWork, known),
    }
}

fn invalid(diagnostics: &Diagnostics, project_root: &Path) -> ControlError {
    ControlError::new(ErrorCode::InvalidConfiguration, diagnostics.to_string()).suggest(format!(
        "mend it; `gdn validate {}` checks it again",
        project_root.display()
    ))
}

fn storage(error: &StoreError) -> ControlError {
    crate::core::control_error(error)
}

/// What is known of instances, whoever looked.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) index: InstanceIndex,
    pub(super) warned: Warned,
    opened: Arc<Mutex<BTreeSet<WorkspaceId>>>,
}

impl Known {
    /// Opens a workspace, and registers one that this daemon has opened before.
    fn open(
        &self,
        disk: &dyn Disk,
        layout: &Layout,
        project_root: &Path,
        package: Option<&str>,
    ) -> Result<WorkspaceRecord, StoreError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let id = goondan_store::naming::workspace_id(project_root, package);
        if id.is_ok_and(|id| opened.contains(&id)) {
            return workspace::register(disk, layout, project_root, package);
        }
        let record = workspace::open(disk, layout, project_root, package)?;
        opened.insert(record.workspace_id.clone());
        Ok(record)
    }
}

/// What was said to be unusable, so that it is said once (`INST-4`).
#[derive(Debug, Clone, Default)]
pub(super) struct Warned(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Warned {
    /// Says which directories cannot be used, of those of which it was not said before.
    pub(super) fn report(&self, unusable: &[workspace::Unusable]) {
        for found in unusable {
            if self.is_new(&found.path) {
                tracing::warn!(
                    path = %found.path.display(),
                    error = &found.error as &dyn std::error::Error,
                    "a directory of the state cannot be used and is left alone"
                );
            }
        }
    }

    fn is_new(&self, path: &Path) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warned.insert(path.to_owned())
    }
}

/// Every instance of a workspace that is open.
pub(super) fn list_instances(
    known: &Known,
    workspace_id: &WorkspaceId,
    is_processing: impl Fn(&InstanceRef) -> bool,
) -> Vec<InstanceSummary> {
    let found = known.index.list(workspace_id).unwrap_or_default();
    let summary = |metadata: Metadata| {
        let at = InstanceRef {
            workspace_id: workspace_id.clone(),
            instance_key: metadata.instance_key,
        };
        let status = if is_processing(&at) {
            "processing"
        } else {
            metadata.status.as_str()
        };
        InstanceSummary {
            status: status.to_owned(),
            workspace_id: at.workspace_id,
            instance_key: at.instance_key,
            agent_name: metadata.agent_name,
            created_at: metadata.created_at,
            updated_at: metadata.updated_at,
        }
    };
    found.into_iter().map(summary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inst_4_what_cannot_be_used_is_said_once_whoever_looks() {
        let warned = Warned::default();
        let path = Path::new("/root/workspaces/w/instances/x");
        assert!(warned.is_new(path));
        assert!(!warned.clone().is_new(path));
        assert!(warned.is_new(&path.with_file_name("y")));
    }
}
