//! Confines the connector's own process, as far as its programs allow (`SEC-3`).

use goondan_protocol::ipc::ConfinementReport;

use crate::link::ConnectorRole;

/// Permanently restricts this process, which must still be single-threaded, and returns what the
/// kernel enforces from now on.
///
/// # Errors
///
/// If the kernel does not enforce the restrictions it accepted.
#[cfg(target_os = "linux")]
pub(crate) fn enter(
    role: &ConnectorRole,
) -> Result<ConfinementReport, goondan_confinement::EnforceError> {
    use goondan_confinement::{OwnPolicy, OwnSandbox};

    let (programs, policy) = match role {
        ConnectorRole::Connection(assignment) => (assignment.programs(), policy_of(assignment)),
        // It only talks to a server over the network and starts no programs.
        ConnectorRole::Model(_) => (None, goondan_confinement::SandboxPolicy::default()),
    };
    let sandbox = OwnSandbox::beside(programs);
    let egress_socket = match role {
        ConnectorRole::Connection(assignment) => assignment.egress_socket.as_deref(),
        ConnectorRole::Model(_) => None,
    };
    let own = OwnPolicy::of_connector(sandbox, &policy);
    let held = own.reaching(egress_socket).enforce()?;
    match &held.lacks {
        None => tracing::debug!(sandbox = %sandbox, "the connector's process is confined"),
        Some(lacks) => tracing::warn!(
            sandbox = %sandbox,
            lacks,
            "the connector's process is only partially confined; run `gdn doctor` to see what this machine lacks"
        ),
    }
    Ok(ConfinementReport {
        rights: held.rights,
        lacks: held.lacks,
    })
}

/// Policy of a connection's programs, including their own files; `None` without programs.
#[cfg(target_os = "linux")]
fn policy_of(
    assignment: &goondan_protocol::definition::ConnectorAssignment,
) -> goondan_confinement::SandboxPolicy {
    use crate::{child_guard, package_cache};

    let of_program = assignment
        .program
        .as_ref()
        .map(|it| it.project_root.as_path());
    let project_root = of_program.or(assignment.project_root.as_deref());
    let (Some(_), Some(project_root)) = (assignment.programs(), project_root) else {
        return goondan_confinement::SandboxPolicy::default();
    };
    let mut allowed = child_guard::allowed(project_root, &assignment.sandbox, None);
    let named = assignment
        .config
        .get("command")
        .and_then(|it| it.get(0)?.as_str());
    let path = allowed.path();
    let named = named.and_then(|word| child_guard::file_of(word.as_ref(), project_root, &path));
    allowed.policy.read.extend(named);
    if let Some(cache) = &assignment.package_cache {
        package_cache::grant(&mut allowed, cache);
    }
    allowed.policy
}

/// Only Linux can confine it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn enter(_: &ConnectorRole) -> Result<ConfinementReport, std::convert::Infallible> {
    Ok(ConfinementReport {
        rights: goondan_protocol::sandbox::Facts::new(),
        lacks: Some("the connector's own process is confined on Linux only".to_owned()),
    })
}
