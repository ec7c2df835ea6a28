//! Restricts the calling thread and all that it starts.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};

use crate::capabilities;
use crate::layout::{DEVICES, Layout};
use crate::mounts::replace_root;
use crate::namespaces::{NamespaceError, raise_loopback};
use crate::plan::Plan;
use crate::system_calls;
use goondan_protocol::sandbox::Network;
use goondan_protocol::sandbox::{Level, Right, SandboxPath};

/// What only the sandbox has, at the level `full`.
const OWN: [&str; 4] = ["/tmp", "/run", "/dev/shm", "/dev/pts"];

/// What was achieved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The level.
    pub level: Level,
    /// What the kernel holds from now on.
    pub rights: BTreeSet<Right>,
}

/// Why a program was not confined, and so must not be started.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// A path of the policy that is not there, or that a confined program could have put there.
    #[error("the sandbox cannot grant a path: {0}; create it, or take it out of the policy")]
    Layout(#[source] std::io::Error),
    /// A path of the policy that cannot be looked at.
    #[error("the sandbox cannot grant a path: {0}; create it, or take it out of the policy")]
    Path(#[from] landlock::PathFdError),
    /// The kernel refused the rules for files and scopes.
    #[error("Landlock refused the sandbox's rules: {0}; look at `dmesg` for `landlock`")]
    Landlock(#[from] landlock::RulesetError),
    /// The kernel took the rules and does not hold all of them.
    #[error("Landlock enforces only a part of the sandbox's rules; use Linux 6.12 or later")]
    Partial,
    /// The filter cannot be made for this machine.
    #[error("the filter of system calls cannot be made for this kind of machine: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel does not let go of capabilities.
    #[error(
        "the capabilities of root cannot be given up: {0}; start the daemon as a user, not as root"
    )]
    Capabilities(#[source] std::io::Error),
    /// The kernel took the rules, and an act that they forbid was seen to succeed.
    #[error(
        "the kernel took the sandbox's rules and does not hold them: {0}; use Linux 6.12 or later"
    )]
    NotHeld(Right),
    /// A part of the level `full` that could not be made.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refused the filter.
    #[error("the kernel refused the filter of system calls: {0}; it needs CONFIG_SECCOMP_FILTER")]
    Seccomp(#[from] seccompiler::Error),
}

/// Restricts the calling thread, and every thread and process that it starts, for good. To restrict a whole
/// process, call it before there is a second thread.
///
/// At the level `full` the caller must be the first process of the PID namespace that
/// [`unshare_all`](crate::unshare_all) has made.
///
/// # Errors
///
/// [`EnforceError`] if anything of the plan cannot be enforced. A part of it may hold then: the caller ends.
pub fn enforce(plan: &Plan) -> Result<Report, EnforceError> {
    if plan.level == Level::Off {
        return Ok(Report {
            level: Level::Off,
            rights: BTreeSet::new(),
        });
    }
    let layout = Layout::of(plan).map_err(EnforceError::Layout)?;
    if plan.level == Level::Full {
        replace_root(&layout)?;
        if plan.network == Network::None {
            raise_loopback()?;
        }
    }
    capabilities::drop_all().map_err(|errno| EnforceError::Capabilities(errno.into()))?;
    restrict(plan)?;
    filter_system_calls(plan.level, plan.network)?;
    confirm(plan)?;
    Ok(Report {
        level: plan.level,
        rights: Right::of(plan.level).iter().copied().collect(),
    })
}

/// Rules for files and scopes; also sets `no_new_privs`.
fn restrict(plan: &Plan) -> Result<(), EnforceError> {
    let all = AccessFs::from_all(ABI::V5);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    // Nobody is granted the making of devices.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let rules = grant(
        rules,
        plan.read.iter().map(SandboxPath::as_path),
        AccessFs::from_read(ABI::V5),
    )?;
    let rules = grant(rules, plan.write.iter().map(SandboxPath::as_path), write)?;
    let rules = grant(rules, [Path::new("/proc")], AccessFs::from_read(ABI::V5))?;
    let rules = match plan.level {
        Level::Full => {
            let rules = grant(rules, [Path::new("/")], AccessFs::ReadDir.into())?;
            grant(rules, OWN.map(Path::new), write)?
        }
        Level::Landlock | Level::Off => rules,
    };
    let devices = DEVICES.iter().map(Path::new);
    let rules = grant(rules, devices.filter(|path| path.exists()), write)?;
    let status = rules.restrict_self()?;
    if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
        Ok(())
    } else {
        Err(EnforceError::Partial)
    }
}

fn grant<P: AsRef<Path>>(
    mut rules: RulesetCreated,
    paths: impl IntoIterator<Item = P>,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, EnforceError> {
    for path in paths {
        let path = path.as_ref();
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(ABI::V5)
        };
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    Ok(rules)
}

/// Tries what is refused from now on, as far as it can be tried without a helper.
fn confirm(plan: &Plan) -> Result<(), EnforceError> {
    if UnixDatagram::unbound().is_ok() {
        return Err(EnforceError::NotHeld(Right::SystemCalls));
    }
    let is_root_granted = plan
        .read
        .iter()
        .chain(&plan.write)
        .any(SandboxPath::is_root);
    let is_root_granted = is_root_granted || plan.level == Level::Full;
    if !is_root_granted && File::open("/").is_ok() {
        return Err(EnforceError::NotHeld(Right::Files));
    }
    // The first process of a PID namespace has no parent that could be named.
    if plan.level == Level::Landlock && kill(getppid(), None) != Err(Errno::EPERM) {
        return Err(EnforceError::NotHeld(Right::Signals));
    }
    Ok(())
}

pub(crate) fn filter_system_calls(level: Level, network: Network) -> Result<(), EnforceError> {
    for filter in system_calls::filters(level, network)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}
