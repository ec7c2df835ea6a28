//! The agent's own process is confined as well, as far as its tools can live with that (`SEC-3`).

use std::path::Path;

use goondan_protocol::sandbox::{Facts, Level, SandboxPolicy};

use super::fault::ProcessError;

/// Restricts this process, which has one thread as yet, for good; tells what the kernel holds from now on. `level` is
/// how the programs it starts are confined, if it starts any, `programs` what those may touch, and `egress_socket`
/// where their way to the hosts begins that they may reach.
///
/// # Errors
///
/// [`ProcessError::OwnSandbox`] if the kernel does not hold what it took.
#[cfg(target_os = "linux")]
pub(crate) fn enter(
    level: Option<Level>,
    programs: &SandboxPolicy,
    egress_socket: Option<&Path>,
) -> Result<Facts, ProcessError> {
    use goondan_confinement::{OwnPolicy, OwnSandbox};

    let sandbox = OwnSandbox::beside(level);
    let own = OwnPolicy::of_agent(sandbox, programs);
    let held = own.reaching(egress_socket).enforce()?;
    if sandbox.rights().iter().all(|right| held.contains(right)) {
        tracing::debug!(sandbox = %sandbox, "the agent's process is confined");
    } else {
        tracing::warn!(
            sandbox = %sandbox,
            "this kernel confines only the system calls of the agent's process; `gdn doctor` says what it lacks"
        );
    }
    Ok(held)
}

/// There is no sandbox for this system yet.
#[cfg(not(target_os = "linux"))]
pub(crate) fn enter(
    _: Option<Level>,
    _: &SandboxPolicy,
    _: Option<&Path>,
) -> Result<Facts, ProcessError> {
    Ok(Facts::new())
}
