//! Decides what to do about a service, based on its current state. No I/O.

use std::path::{Path, PathBuf};

use super::manager::{ServiceKind, State};
use crate::exit::Exit;
use crate::failure::Failure;

/// State of a service before it is installed or removed.
#[derive(Debug)]
pub(super) struct ServiceState<'a> {
    pub(super) kind: ServiceKind,
    /// True if the command runs as root.
    pub(super) is_root: bool,
    /// Path of the service's file.
    pub(super) file: &'a Path,
    /// Current content of the file.
    pub(super) there: Option<&'a str>,
    /// State reported by the manager.
    pub(super) state: &'a State,
}

/// Further conditions for an installation.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    /// Content that the file must have.
    pub(super) wanted: &'a str,
    /// Content that this version would write without changing the user's choices.
    pub(super) usual: &'a str,
    /// File of a service of the other kind.
    pub(super) other: Option<&'a Path>,
    /// Process id of the daemon that owns the state root.
    pub(super) daemon: Option<u32>,
    /// True if a modified file may be replaced.
    pub(super) is_forced: bool,
    /// The `gdn daemon shutdown` command for that daemon.
    pub(super) shutdown: &'a str,
}

/// Actions to install a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InstallPlan {
    /// True if the file must be written; false if it is up to date.
    pub(super) writes: bool,
    /// True if a daemon runs with the previous file.
    pub(super) needs_restart: bool,
}

/// Actions to remove a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemovalPlan {
    /// True if the manager must stop it.
    pub(super) stops: bool,
    /// True if a file must be deleted.
    pub(super) deletes: bool,
}

/// Reason why the command is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServiceRefusal {
    #[error("a system service needs root")]
    NeedsRoot { command: &'static str },
    #[error("the service is already installed by {}", path.display())]
    Elsewhere { path: PathBuf, kind: ServiceKind },
    #[error("{} differs from the file that this version would write", path.display())]
    Differs { path: PathBuf, kind: ServiceKind },
    #[error("a daemon outside the service runs on this state root, pid {pid}")]
    DaemonOutside { pid: u32, shutdown: String },
}

impl From<ServiceRefusal> for Failure {
    fn from(refusal: ServiceRefusal) -> Self {
        let exit = match &refusal {
            ServiceRefusal::NeedsRoot { .. } => Exit::Usage,
            _ => Exit::Conflict,
        };
        let hint = match &refusal {
            ServiceRefusal::NeedsRoot { command } => {
                format!("`sudo gdn daemon service {command} --system`, or a user service without `--system`")
            }
            ServiceRefusal::Elsewhere { kind, path } => match kind {
                ServiceKind::User => "remove it first: `systemctl --user disable --now goondan`, then delete its file".into(),
                ServiceKind::System => "remove it first: `sudo gdn daemon service remove --system`".into(),
                ServiceKind::Agent => format!("remove it first: `launchctl bootout gui/$(id -u) '{}'`", path.display()),
            },
            ServiceRefusal::Differs { path, kind } => {
                let command = kind.install_command();
                format!(
                    "show the differences: `{command} --print | diff '{}' -`; to replace it and discard its edits: `{command} --force`",
                    path.display()
                )
            }
            ServiceRefusal::DaemonOutside { shutdown, .. } => format!("stop it, and try again: `{shutdown}`"),
        };
        Self::of(exit, &refusal, hint)
    }
}

/// Returns the actions to install the service, or why it cannot be installed.
pub(super) fn install(
    found: &ServiceState<'_>,
    around: &Surroundings<'_>,
) -> Result<InstallPlan, ServiceRefusal> {
    check_rights(found, "install")?;
    check_place(found)?;
    if let Some(path) = around.other {
        let kind = match found.kind {
            ServiceKind::System => ServiceKind::User,
            ServiceKind::User | ServiceKind::Agent => ServiceKind::System,
        };
        let path = path.to_owned();
        return Err(ServiceRefusal::Elsewhere { path, kind });
    }
    let is_same = found.there == Some(around.wanted);
    let is_ours = is_same || found.there == Some(around.usual);
    if found.there.is_some() && !is_ours && !around.is_forced {
        let path = found.file.to_owned();
        let kind = found.kind;
        return Err(ServiceRefusal::Differs { path, kind });
    }
    if let Some(pid) = around.daemon.filter(|pid| found.state.pid != Some(*pid)) {
        let shutdown = around.shutdown.to_owned();
        return Err(ServiceRefusal::DaemonOutside { pid, shutdown });
    }
    Ok(InstallPlan {
        writes: !is_same,
        needs_restart: !is_same && found.state.is_active(),
    })
}

/// Returns the actions to remove the service, or why it cannot be removed.
pub(super) fn remove(found: &ServiceState<'_>) -> Result<RemovalPlan, ServiceRefusal> {
    check_rights(found, "remove")?;
    check_place(found)?;
    Ok(RemovalPlan {
        stops: found.state.is_known,
        deletes: found.there.is_some(),
    })
}

fn check_rights(found: &ServiceState<'_>, command: &'static str) -> Result<(), ServiceRefusal> {
    match found.kind {
        ServiceKind::System if !found.is_root => Err(ServiceRefusal::NeedsRoot { command }),
        ServiceKind::System | ServiceKind::User | ServiceKind::Agent => Ok(()),
    }
}

/// A service with its file in another place was installed by something else, such as a package.
fn check_place(found: &ServiceState<'_>) -> Result<(), ServiceRefusal> {
    match &found.state.file {
        Some(path) if path != found.file => Err(ServiceRefusal::Elsewhere {
            path: path.clone(),
            kind: found.kind,
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "/h/goondan.service";

    fn state(pid: Option<u32>, file: Option<&str>) -> State {
        State {
            is_known: file.is_some(),
            active: if pid.is_some() { "active" } else { "inactive" }.to_owned(),
            pid,
            file: file.map(PathBuf::from),
            ..State::default()
        }
    }

    fn found<'a>(kind: ServiceKind, there: Option<&'a str>, state: &'a State) -> ServiceState<'a> {
        ServiceState {
            kind,
            is_root: false,
            file: Path::new(FILE),
            there,
            state,
        }
    }

    fn around(daemon: Option<u32>) -> Surroundings<'static> {
        Surroundings {
            wanted: "new",
            usual: "new",
            other: None,
            daemon,
            is_forced: false,
            shutdown: "gdn daemon shutdown",
        }
    }

    #[test]
    fn rel_1_a_new_service_is_written_and_one_that_is_there_is_left() {
        let none = State::default();
        let done = install(&found(ServiceKind::User, None, &none), &around(None)).unwrap();
        assert_eq!((done.writes, done.needs_restart), (true, false));
        let runs = state(Some(7), Some(FILE));
        let done = install(
            &found(ServiceKind::User, Some("new"), &runs),
            &around(Some(7)),
        )
        .unwrap();
        assert_eq!((done.writes, done.needs_restart), (false, false));
    }

    #[test]
    fn rel_1_modified_service_file_is_replaced_only_with_force() {
        let runs = state(Some(7), Some(FILE));
        let changed = found(ServiceKind::User, Some("old"), &runs);
        let refused = install(&changed, &around(Some(7))).unwrap_err();
        assert!(matches!(refused, ServiceRefusal::Differs { .. }));
        let forced = Surroundings {
            is_forced: true,
            ..around(Some(7))
        };
        let done = install(&changed, &forced).unwrap();
        assert_eq!((done.writes, done.needs_restart), (true, true));
    }

    #[test]
    fn rel_1_service_file_of_this_version_is_updated_as_requested() {
        let runs = state(Some(7), Some(FILE));
        let ours = found(ServiceKind::User, Some("narrow"), &runs);
        let widened = Surroundings {
            usual: "narrow",
            ..around(Some(7))
        };
        let done = install(&ours, &widened).unwrap();
        assert_eq!((done.writes, done.needs_restart), (true, true));
    }

    #[test]
    fn rel_1_a_second_service_and_a_daemon_outside_are_refused() {
        let none = State::default();
        let outside =
            install(&found(ServiceKind::Agent, None, &none), &around(Some(9))).unwrap_err();
        let failure = Failure::from(outside);
        assert!(
            failure.hint.contains("`gdn daemon shutdown`"),
            "{failure:?}"
        );
        let other = Surroundings {
            other: Some(Path::new("/etc/systemd/system/goondan.service")),
            ..around(None)
        };
        let second = install(&found(ServiceKind::User, None, &none), &other).unwrap_err();
        let failure = Failure::from(second);
        assert!(failure.hint.contains("remove --system"), "{failure:?}");
        let packaged = state(None, Some("/usr/lib/systemd/user/goondan.service"));
        let of_package = found(ServiceKind::User, None, &packaged);
        assert!(install(&of_package, &around(None)).is_err());
        assert!(remove(&of_package).is_err());
    }

    #[test]
    fn rel_1_system_service_needs_root_and_removal_is_idempotent() {
        let none = State::default();
        let system = found(ServiceKind::System, None, &none);
        let needs = ServiceRefusal::NeedsRoot { command: "install" };
        assert_eq!(install(&system, &around(None)), Err(needs));
        assert!(remove(&system).is_err());
        let nothing = remove(&found(ServiceKind::User, None, &none)).unwrap();
        assert_eq!((nothing.stops, nothing.deletes), (false, false));
        // The file exists, but the manager has not loaded it.
        let half = remove(&found(ServiceKind::User, Some("x"), &none)).unwrap();
        assert_eq!((half.stops, half.deletes), (false, true));
    }
}
