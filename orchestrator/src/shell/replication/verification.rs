//! Verification of this node's copy of a workspace's files.

use goondan_core::finding_told;
use goondan_durable::Severity;
use goondan_durable::disk::Disk;
use goondan_protocol::control::{FileFinding, Verification};
use goondan_protocol::ids::WorkspaceId;
use goondan_store::file_names::instance_key_of;
use goondan_store::root::Layout;
use goondan_store::workspace::{WORKSPACE_FILE, list_instances};
use goondan_store::{StoreError, verify};

/// True if no file is damaged, according to the files' checksums.
pub(super) fn is_whole(disk: &dyn Disk, layout: &Layout, workspace: &WorkspaceId) -> bool {
    let record = layout.workspace(workspace).join(WORKSPACE_FILE);
    if matches!(disk.stat(&record), Ok(None)) {
        // The owner crashed before it wrote the record, so there are no other files.
        return true;
    }
    let found = verify::workspace(disk, layout, workspace);
    let damaged = found.map(|verified| {
        let mut findings = verified.findings.into_iter();
        findings.find(|finding| finding.severity == Severity::Error)
    });
    match damaged {
        Ok(None) => true,
        Ok(Some(finding)) => {
            tracing::error!(
                workspace_id = %workspace,
                path = %finding.path.display(),
                problem = %finding.problem,
                "damaged workspace file on this node"
            );
            false
        }
        Err(error) => {
            tracing::error!(
                workspace_id = %workspace,
                error = &error as &dyn std::error::Error,
                "failed to check workspace files on this node"
            );
            false
        }
    }
}

/// Returns the findings for display.
///
/// # Errors
///
/// The disk's error.
pub(super) fn look(
    disk: &dyn Disk,
    layout: &Layout,
    workspace: &WorkspaceId,
) -> Result<Verification, StoreError> {
    let found = verify::workspace(disk, layout, workspace)?;
    let instances = layout.instances(workspace);
    let (of_instances, _) = list_instances(disk, &instances)?;
    let findings = found.findings.into_iter().map(|finding| -> FileFinding {
        let mut within = finding.path.strip_prefix(&instances).into_iter().flatten();
        let folder = within.next().and_then(|name| name.to_str());
        finding_told(folder.and_then(instance_key_of), finding)
    });
    Ok(Verification {
        instances: of_instances.len() as u64,
        sandboxes: 0,
        files: found.files,
        bytes: found.bytes,
        findings: findings.collect(),
        kept: Vec::new(),
    })
}
