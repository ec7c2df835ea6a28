//! Service functions for `gdn daemon upgrade`: detects if a service runs the daemon, and restarts it (`REL-1`).

use std::path::PathBuf;

use super::manager::{ManagerName, ServiceKind, SystemPrograms};
use super::site::{ServiceControl, ServiceSite};
use crate::context::Context;
use crate::failure::Failure;
use crate::installation::Installation;
use crate::programs::ORCHESTRATOR;

/// Process that started a daemon and would restart it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Runner {
    /// No service manager, or none that responds.
    Nobody,
    /// The user's service, with the programs of the current version.
    Own,
    /// The user's service, with other programs.
    OwnElsewhere,
    Machine,
}

/// Detects what runs the daemon with this process id.
pub(in crate::commands) fn runner_of(
    pid: u32,
    installation: &Installation,
    context: &Context,
) -> Result<Runner, Failure> {
    let own = own_kind();
    let site = ServiceSite::find(own, None, context)?;
    let service = ServiceControl::new(&site, &SystemPrograms);
    // A manager that does not respond did not start the daemon.
    let is_its = |kind| {
        let state = service.state_of(kind);
        state.is_ok_and(|state| state.pid == Some(pid))
    };
    if is_its(own) {
        let program = installation.current_dir().join(ORCHESTRATOR);
        let text = site.there()?.unwrap_or_default();
        let is_current = site.names_program(&text, &program);
        return Ok(if is_current {
            Runner::Own
        } else {
            Runner::OwnElsewhere
        });
    }
    Ok(if own == ServiceKind::User && is_its(ServiceKind::System) {
        Runner::Machine
    } else {
        Runner::Nobody
    })
}

fn own_kind() -> ServiceKind {
    match ManagerName::of_this_system() {
        ManagerName::Systemd => ServiceKind::User,
        ManagerName::Launchd => ServiceKind::Agent,
    }
}

/// Service files of this user and of the system that differ from what this version would write, each with a command
/// that shows the difference. Only reads files.
pub(in crate::commands) fn service_differences(context: &Context) -> Vec<(PathBuf, String)> {
    let kinds = match own_kind() {
        ServiceKind::Agent => vec![ServiceKind::Agent],
        _ => vec![ServiceKind::User, ServiceKind::System],
    };
    let differing = |kind: ServiceKind| -> Option<(PathBuf, String)> {
        // Skip a file if its user cannot be determined.
        let site = ServiceSite::find(kind, None, context).ok()?;
        let there = site.there().ok()??;
        let usual = site.usual(Some(&there)).ok()?;
        let hint = format!(
            "{}; `{} --force` replaces it",
            site.differences(),
            kind.install_command()
        );
        (usual != there).then(|| (site.file.clone(), hint))
    };
    kinds.into_iter().filter_map(differing).collect()
}

/// Starts the user's installed service again.
pub(in crate::commands) fn start_own(context: &Context) -> Result<(), Failure> {
    let site = ServiceSite::find(own_kind(), None, context)?;
    ServiceControl::new(&site, &SystemPrograms).start_again()
}

/// Stops the user's service and leaves it installed.
pub(in crate::commands) fn stop_own(context: &Context) -> Result<(), Failure> {
    let site = ServiceSite::find(own_kind(), None, context)?;
    ServiceControl::new(&site, &SystemPrograms).pause()
}
