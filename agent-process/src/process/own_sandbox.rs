//! Confines the agent's own process, as far as its tools permit (`SEC-3`), so that a fault in it
//! has few rights.

use std::path::Path;

use goondan_protocol::ipc::ConfinementReport;
use goondan_protocol::sandbox::{Level, SandboxPolicy};

use super::fault::ProcessError;

/// Permanently restricts this process, which must still be single-threaded, and returns what the
/// kernel enforces from now on. `level` is the confinement of the programs it starts, if any,
/// `programs` their policy, and `egress_socket` the socket through which they reach permitted
/// hosts.
///
/// # Errors
///
/// [`ProcessError::OwnSandbox`] if the kernel does not enforce the restrictions it accepted.
#[cfg(target_os = "linux")]
pub(crate) fn enter(
    level: Option<Level>,
    programs: &SandboxPolicy,
    egress_socket: Option<&Path>,
) -> Result<ConfinementReport, ProcessError> {
    use goondan_confinement::{OwnPolicy, OwnSandbox};

    let sandbox = OwnSandbox::beside(level);
    let own = OwnPolicy::of_agent(sandbox, programs);
    let held = own.reaching(egress_socket).enforce()?;
    match &held.lacks {
        None => tracing::debug!(sandbox = %sandbox, "the agent's process is confined"),
        Some(lacks) => tracing::warn!(
            sandbox = %sandbox,
            lacks,
            "the agent's process is only partially confined; run `gdn doctor` to see what this machine lacks"
        ),
    }
    Ok(ConfinementReport {
        rights: held.rights,
        lacks: held.lacks,
    })
}

/// Only Linux can confine it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn enter(
    _: Option<Level>,
    _: &SandboxPolicy,
    _: Option<&Path>,
) -> Result<ConfinementReport, ProcessError> {
    Ok(ConfinementReport {
        rights: goondan_protocol::sandbox::Facts::new(),
        lacks: Some("the agent's own process is confined on Linux only".to_owned()),
    })
}
