//! Restricts the calling thread and its descendants.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::kill;
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};

use crate::capabilities::{self, RetainedCapabilities};
use crate::error::EnforceError;
use crate::files::{LandlockRules, restrict_scopes};
use crate::layout::Layout;
use crate::mounts::{RootOwner, replace_root};
use crate::namespaces::raise_loopback;
use crate::plan::ConfinementPlan;
use crate::system_calls::{self, Caller};
use goondan_protocol::sandbox::{Level, Network, Right, SandboxPath};

/// Directory that cannot be created at the level `full`, because the root is read-only.
const REFUSED_IN_ROOT: &str = "/goondan";

/// Result of the restriction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnforcementReport {
    pub level: Level,
    /// Rights that the kernel enforces from now on.
    pub rights: BTreeSet<Right>,
}

/// Permanently restricts the calling thread and all threads and processes that it starts. To
/// restrict a whole process, call this before a second thread exists.
///
/// At the level `full` the caller must be the first process of the PID namespace created by
/// [`unshare_all`](crate::unshare_all).
///
/// # Errors
///
/// [`EnforceError`] if any part of the plan cannot be enforced. Some parts may already be in
/// effect, so the caller must exit.
pub fn enforce(plan: &ConfinementPlan) -> Result<EnforcementReport, EnforceError> {
    if plan.level == Level::Off {
        return Ok(EnforcementReport {
            level: Level::Off,
            rights: BTreeSet::new(),
        });
    }
    let layout = Layout::of(plan).map_err(EnforceError::Layout)?;
    if plan.level == Level::Full {
        replace_root(&layout, RootOwner::Sandbox(&plan.network))?;
        if plan.network != Network::Any {
            raise_loopback()?;
        }
    }
    capabilities::keep(RetainedCapabilities::Nothing)
        .map_err(|errno| EnforceError::Capabilities(errno.into()))?;
    match plan.level {
        // The new root confines the files. Additional Landlock rules for files would add nothing,
        // and would break renames: in combination with the scope layer of the parent process they
        // refuse every rename and link between two directories.
        Level::Full => restrict_scopes()?,
        Level::Landlock | Level::Seatbelt | Level::Off => restrict_files(plan)?,
    }
    system_calls::apply(Caller::Program(plan.level, plan.network.clone()))?;
    confirm(plan)?;
    Ok(EnforcementReport {
        level: plan.level,
        rights: Right::of(plan.level).iter().copied().collect(),
    })
}

fn restrict_files(plan: &ConfinementPlan) -> Result<(), EnforceError> {
    let mut files = LandlockRules::new()?;
    files.read(plan.read.iter().map(SandboxPath::as_path))?;
    files.write(plan.write.iter().map(SandboxPath::as_path))?;
    files.read([Path::new("/proc")])?;
    files.devices()?;
    files.restrict()
}

/// Tests that forbidden operations fail now, as far as this is possible without a helper process.
fn confirm(plan: &ConfinementPlan) -> Result<(), EnforceError> {
    // Every kernel permits this no-op unless it is filtered.
    if unshare(CloneFlags::empty()).is_ok() {
        return Err(EnforceError::NotHeld(Right::SystemCalls));
    }
    let is_root_granted = plan
        .read
        .iter()
        .chain(&plan.write)
        .any(SandboxPath::is_root);
    let is_held = match plan.level {
        Level::Full => fs::create_dir(REFUSED_IN_ROOT).is_err(),
        Level::Landlock | Level::Seatbelt | Level::Off => {
            is_root_granted || File::open("/").is_err()
        }
    };
    if !is_held {
        return Err(EnforceError::NotHeld(Right::Files));
    }
    // The first process of a PID namespace has no visible parent.
    if plan.level == Level::Landlock && kill(getppid(), None) != Err(Errno::EPERM) {
        return Err(EnforceError::NotHeld(Right::Signals));
    }
    Ok(())
}
