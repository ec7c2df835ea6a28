//! Capabilities of the daemon's processes in their environment. A service manager or container can
//! remove capabilities that a user's shell has.

use std::path::Path;

use goondan_confinement::{open_beneath, probe_all};
use goondan_durable::disk::Folder as _;
use goondan_protocol::control::{ControlError, DaemonCheck, ErrorCode};
use goondan_protocol::proxy::NetworkSettings;
use goondan_store::workspace;
use goondan_trees::RealFolder;
use serde_json::Value;

use super::workspace_load::Projects;

/// The response to `daemon.check`. Blocks.
pub(super) fn answer(projects: &Projects) -> Result<Value, ControlError> {
    let internal = |problem: String| ControlError::new(ErrorCode::Internal, problem);
    let listed = workspace::list(projects.disk.as_ref(), &projects.layout);
    let (records, _) = listed.map_err(|error| internal(goondan_log::error_chain(&error)))?;
    let registered = records.into_iter().filter(|record| record.registered);
    let read_only = registered
        .map(|record| record.project_root)
        .filter(|root| !is_writable(root));
    let check = DaemonCheck {
        rights: probe_all(projects.agent_process()),
        no_open_beneath: open_beneath().err().map(|error| error.to_string()),
        read_only_projects: read_only.collect(),
        network: NetworkSettings::of(|name| std::env::var(name).ok()),
    };
    serde_json::to_value(check).map_err(|error| internal(error.to_string()))
}

/// True if a proposal can be applied in a project. A missing project is reported when it is opened.
fn is_writable(root: &Path) -> bool {
    let folder = match RealFolder::open(root) {
        Ok(folder) => folder,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    folder.check_writable(Path::new("")).is_ok()
}

/// Logs missing capabilities at the daemon's start.
pub(super) fn log_what_is_missing() {
    if let Err(error) = open_beneath() {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the kernel refuses `openat2`: file tools, sandboxes, proposals and the level `full` do not work; remove \
             `RestrictSUIDSGID=` from the unit, or the container's filter"
        );
    }
}
