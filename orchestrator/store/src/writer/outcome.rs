//! Converts errors of operations for the core, and logs findings of recoveries.

use std::io;

use goondan_durable::manifest::is_same;
use goondan_durable::{FileError, Finding};
use goondan_protocol::ids::InstanceRef;

use crate::error::StoreError;
use crate::instance::InstanceStore;

pub(super) fn report_findings(instance: &InstanceRef, store: &InstanceStore) {
    let state = store.state();
    let is_new = |finding: &&Finding| !state.findings.iter().any(|new| is_same(new, finding));
    for finding in state.unacknowledged.iter().filter(is_new) {
        tracing::warn!(
            workspace_id = %instance.workspace_id,
            instance_key = %instance.instance_key,
            path = %finding.path.display(),
            problem = finding.problem,
            "found earlier and not acknowledged; see `gdn daemon verify`"
        );
    }
    for finding in &state.findings {
        tracing::warn!(
            workspace_id = %instance.workspace_id,
            instance_key = %instance.instance_key,
            path = %finding.path.display(),
            problem = finding.problem,
            "found and set aside while opening an instance"
        );
    }
}

/// Copies an error for another operation that failed with it.
pub(super) fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::File(FileError::Io {
            operation,
            path,
            source,
        }) => StoreError::File(FileError::Io {
            operation,
            path: path.clone(),
            source: match source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(source.kind(), source.to_string()),
            },
        }),
        other => StoreError::InvalidEvent {
            problem: other.to_string(),
        },
    }
}
