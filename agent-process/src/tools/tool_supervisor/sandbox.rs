//! The sandbox of what a tool supervisor stands around (`SEC-3`, `SEC-6`).
//!
//! The supervisor restricts itself, and whatever it starts inherits that: so it holds from the first
//! instruction of the program. It cannot be taken back, and there is nothing between it and the kernel that a
//! program could talk to.

use std::ffi::OsString;

use goondan_confinement::{Level, SandboxPolicy};

/// The argument before a policy in JSON.
const SANDBOX: &str = "--sandbox";

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    /// The policy cannot be read.
    #[error(
        "the sandbox policy cannot be read: {0}; use the daemon and the agent process of one release"
    )]
    Policy(#[from] serde_json::Error),
    /// The kernel has no such sandbox.
    #[error(transparent)]
    Unmet(#[from] goondan_confinement::Unmet),
    /// What was open before cannot be listed.
    #[cfg(target_os = "linux")]
    #[error("the open files that were inherited cannot be listed: {0}; mount /proc")]
    Inherited(#[source] std::io::Error),
    /// The kernel refused a part of it.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Enforce(#[from] goondan_confinement::EnforceError),
}

/// The policy as arguments of the binary, before all others. None without a sandbox.
pub(in super::super) fn in_words(policy: &SandboxPolicy) -> Vec<OsString> {
    // A policy of paths that are text is always JSON; any other is refused by the supervisor.
    let json = || serde_json::to_string(policy).unwrap_or_default();
    match policy.require {
        Level::Off => Vec::new(),
        Level::Full | Level::Landlock => vec![SANDBOX.into(), json().into()],
    }
}

/// Takes the policy off the front of the arguments.
pub(super) fn out_of_words(words: &[OsString]) -> (Option<&OsString>, &[OsString]) {
    match words {
        [flag, policy, rest @ ..] if flag == SANDBOX => (Some(policy), rest),
        rest => (None, rest),
    }
}

/// Restricts this process, which has one thread as yet, for good. Without a policy nothing changes.
pub(super) fn enter(policy: Option<&OsString>) -> Result<(), SandboxError> {
    let Some(policy) = policy else {
        return Ok(());
    };
    enforce(serde_json::from_slice(policy.as_encoded_bytes())?)
}

#[cfg(target_os = "linux")]
fn enforce(policy: SandboxPolicy) -> Result<(), SandboxError> {
    use goondan_confinement::{Right, close_inherited_files, enforce, plan};

    close_inherited_files().map_err(SandboxError::Inherited)?;
    // What the kernel lacks shows when it is asked for it: there is no time to try it before each command.
    let plan = plan(policy, &Right::LANDLOCK.into())?;
    enforce(&plan)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn enforce(policy: SandboxPolicy) -> Result<(), SandboxError> {
    goondan_confinement::plan(policy, &goondan_confinement::Facts::new())?;
    Ok(())
}
