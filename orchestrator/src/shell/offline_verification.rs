//! Verification of a state root that no daemon owns, for `gdn daemon verify --offline`. Changes
//! nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use goondan_core::finding_told;
use goondan_durable::VerificationResult;
use goondan_log::unix_millis_now;
use goondan_protocol::control;
use goondan_protocol::time::Timestamp;
use goondan_store::root::SystemRoot;
use goondan_store::{verify, workspace};
use goondan_trees::GuardedDisk;

use super::verification::{Verification, VerifyError};

/// Verifies all files except sandboxes and encrypted documents, which need their workspaces and the
/// identity.
pub(super) fn run(
    root: &SystemRoot,
    disk: &GuardedDisk,
) -> Result<control::Verification, VerifyError> {
    let layout = root.layout();
    let mut out = control::Verification::default();
    let mut seen = BTreeSet::new();
    add(&mut out, &mut seen, verify::root(disk, layout)?);
    let (records, _) = workspace::list(disk, layout)?;
    for record in records {
        let workspace_id = &record.workspace_id;
        let (instances, _) = workspace::list_instances(disk, &layout.instances(workspace_id))?;
        out.instances += u64::try_from(instances.len()).unwrap_or(u64::MAX);
        let verification = Verification {
            disk,
            layout,
            workspace_id,
            repair: false,
            open_tasks: &[],
            now: Timestamp::from_unix_millis(unix_millis_now()),
        };
        add(&mut out, &mut seen, verification.run()?);
    }
    Ok(out)
}

/// Adds findings, each once.
fn add(
    out: &mut control::Verification,
    seen: &mut BTreeSet<(PathBuf, String)>,
    found: VerificationResult,
) {
    out.files += found.files;
    out.bytes += found.bytes;
    for finding in found.findings {
        if seen.insert((finding.path.clone(), finding.problem.clone())) {
            out.findings.push(finding_told(None, finding));
        }
    }
}
