//! The agent's own process is confined as well, as far as its tools can live with that (`SEC-3`).

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ipc::Confined;

use super::fault::ProcessError;
#[cfg(target_os = "linux")]
use crate::tools::allowed_to;

/// Restricts this process, which has one thread as yet, for good; tells what the kernel holds from now on.
///
/// # Errors
///
/// [`ProcessError::OwnSandbox`] if the kernel does not hold what it took.
#[cfg(target_os = "linux")]
pub(super) fn enter(assignment: &AgentAssignment) -> Result<Confined, ProcessError> {
    use goondan_confinement::{OwnPolicy, OwnSandbox};

    let sandbox = OwnSandbox::beside(assignment.agent.programs());
    let programs = allowed_to(assignment).policy;
    let own = OwnPolicy::of_agent(sandbox, &programs);
    let held = own
        .reaching(assignment.egress_socket.as_deref())
        .enforce()?;
    match &held.lacks {
        None => tracing::debug!(sandbox = %sandbox, "the agent's process is confined"),
        Some(lacks) => tracing::warn!(
            sandbox = %sandbox,
            lacks,
            "the agent's process is confined only in part; `gdn doctor` says what this machine lacks"
        ),
    }
    Ok(Confined {
        rights: held.rights,
        lacks: held.lacks,
    })
}

/// Only Linux has one for it.
#[cfg(not(target_os = "linux"))]
pub(super) fn enter(_: &AgentAssignment) -> Result<Confined, ProcessError> {
    Ok(Confined {
        rights: goondan_protocol::sandbox::Facts::new(),
        lacks: Some("the agent's own process is confined on Linux only".to_owned()),
    })
}
