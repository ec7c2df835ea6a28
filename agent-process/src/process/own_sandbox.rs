//! The agent's own process is confined as well, as far as its tools can live with that (`SEC-3`).

use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::sandbox::{Facts, SandboxPolicy};

use super::fault::ProcessError;

/// Restricts this process, which has one thread as yet, for good; tells what the kernel holds from now on. `programs` is what those that it starts may touch.
///
/// # Errors
///
/// [`ProcessError::OwnSandbox`] if the kernel does not hold what it took.
#[cfg(target_os = "linux")]
pub(super) fn enter(
    agent: &AgentDefinition,
    programs: &SandboxPolicy,
) -> Result<Facts, ProcessError> {
    use goondan_confinement::{OwnPolicy, OwnSandbox};

    let sandbox = OwnSandbox::beside(agent.programs());
    let held = OwnPolicy::of_agent(sandbox, programs).enforce()?;
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
pub(super) fn enter(_: &AgentDefinition, _: &SandboxPolicy) -> Result<Facts, ProcessError> {
    Ok(Facts::new())
}
