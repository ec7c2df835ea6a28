//! Restricts the calling thread and all that it starts.

use std::collections::BTreeSet;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, Right};
use crate::policy::{Level, SandboxPath};
use crate::system_calls;

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
    /// A path of the policy that is not there, or not to be looked at.
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
    /// The kernel refused the filter.
    #[error("the kernel refused the filter of system calls: {0}; it needs CONFIG_SECCOMP_FILTER")]
    Seccomp(#[from] seccompiler::Error),
}

/// Restricts the calling thread, and every thread and process that it starts, for good. To restrict a whole
/// process, call it before there is a second thread.
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
    restrict(plan)?;
    filter_system_calls()?;
    Ok(Report {
        level: plan.level,
        rights: Right::ALL.into(),
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
    let rules = grant(rules, &plan.read, AccessFs::from_read(ABI::V5))?;
    // Nobody is granted the making of devices.
    let rules = grant(
        rules,
        &plan.write,
        all & !(AccessFs::MakeChar | AccessFs::MakeBlock),
    )?;
    let status = rules.restrict_self()?;
    if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
        Ok(())
    } else {
        Err(EnforceError::Partial)
    }
}

fn grant(
    mut rules: RulesetCreated,
    paths: &[SandboxPath],
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, EnforceError> {
    for path in paths {
        let access = if path.as_path().is_dir() {
            access
        } else {
            access & AccessFs::from_file(ABI::V5)
        };
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path.as_path())?, access))?;
    }
    Ok(rules)
}

pub(crate) fn filter_system_calls() -> Result<(), EnforceError> {
    for filter in system_calls::filters()? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}
