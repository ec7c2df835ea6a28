//! The service as `gdn upgrade` sees it: whether it runs the daemon, and how that is started again (`REL-1`).

use std::path::PathBuf;

use super::manager::{Kind, ManagerName, OfThisMachine};
use super::site::{Service, Site};
use crate::context::Context;
use crate::failure::Failure;
use crate::installation::Installation;
use crate::programs::ORCHESTRATOR;

/// Who started a daemon, and would start it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Runner {
    /// No service manager that could be asked.
    Nobody,
    /// The user's service, by the programs of the current version.
    Own,
    /// The user's service, by other programs.
    OwnElsewhere,
    /// The service of the machine.
    Machine,
}

/// Finds out who runs the daemon with this process id.
pub(in crate::commands) fn runner_of(
    pid: u32,
    installation: &Installation,
    context: &Context,
) -> Result<Runner, Failure> {
    let own = own_kind();
    let site = Site::find(own, None, context)?;
    let service = Service::new(&site, &OfThisMachine);
    // Where no manager answers, none has started it.
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
    Ok(if own == Kind::User && is_its(Kind::System) {
        Runner::Machine
    } else {
        Runner::Nobody
    })
}

fn own_kind() -> Kind {
    match ManagerName::of_this_system() {
        ManagerName::Systemd => Kind::User,
        ManagerName::Launchd => Kind::Agent,
    }
}

/// The files of services of this user and of the machine that differ from what this version would write, and how to see
/// the difference. Only files are read.
pub(in crate::commands) fn service_differences(context: &Context) -> Vec<(PathBuf, String)> {
    let kinds = match own_kind() {
        Kind::Agent => vec![Kind::Agent],
        _ => vec![Kind::User, Kind::System],
    };
    let differing = |kind: Kind| -> Option<(PathBuf, String)> {
        // Where it is not known for whom a file is, nothing can be said of it.
        let site = Site::find(kind, None, context).ok()?;
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

/// Starts the user's service again, which stays installed.
pub(in crate::commands) fn start_own(context: &Context) -> Result<(), Failure> {
    let site = Site::find(own_kind(), None, context)?;
    Service::new(&site, &OfThisMachine).start_again()
}

/// Stops the user's service, which stays installed.
pub(in crate::commands) fn stop_own(context: &Context) -> Result<(), Failure> {
    let site = Site::find(own_kind(), None, context)?;
    Service::new(&site, &OfThisMachine).pause()
}
