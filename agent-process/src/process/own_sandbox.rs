//! The agent's own process is confined as well, as far as its tools can live with that (`SEC-3`).

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::sandbox::Facts;

use super::fault::ProcessError;
#[cfg(target_os = "linux")]
use crate::tools::allowed_to;

/// Restricts this process, which has one thread as yet, for good; tells what the kernel holds from now on.
///
/// # Errors
///
/// [`ProcessError::OwnSandbox`] if the kernel does not hold what it took.
#[cfg(target_os = "linux")]
pub(super) fn enter(assignment: &AgentAssignment) -> Result<Facts, ProcessError> {
    use goondan_confinement::{OwnPolicy, OwnSandbox};

    let sandbox = OwnSandbox::beside(assignment.agent.programs());
    let programs = allowed_to(assignment).policy;
    let own = OwnPolicy::of_agent(sandbox, &programs);
    let held = own
        .reaching(assignment.egress_socket.as_deref())
        .enforce()?;
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
pub(super) fn enter(_: &AgentAssignment) -> Result<Facts, ProcessError> {
    Ok(Facts::new())
}
