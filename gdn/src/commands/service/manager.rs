//! Commands for the service managers, and parsers for their output. All calls go through [`Programs`].

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

pub(super) const UNIT: &str = "goondan.service";

/// Label of the launchd agent.
const LABEL: &str = "ai.goondan.orchestrator";

/// Unit properties to query.
const PROPERTIES: &str = "--property=LoadState,ActiveState,UnitFileState,MainPID,FragmentPath";

/// A service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ManagerName {
    Systemd,
    Launchd,
}

impl ManagerName {
    pub(super) fn of_this_system() -> Self {
        if cfg!(target_os = "macos") {
            Self::Launchd
        } else {
            Self::Systemd
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceKind {
    /// Service of the user's systemd instance.
    User,
    /// Service of the system's systemd instance.
    System,
    /// Launchd agent of the user.
    Agent,
}

/// Exit status and output of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProgramOutput {
    pub(super) is_ok: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs the managers' programs.
pub(super) trait Programs {
    /// Runs one program and waits for it.
    fn run(&self, command: &[String]) -> io::Result<ProgramOutput>;
}

/// Runs the real programs.
pub(super) struct SystemPrograms;

impl Programs for SystemPrograms {
    fn run(&self, command: &[String]) -> io::Result<ProgramOutput> {
        let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let output = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .output()?;
        Ok(ProgramOutput {
            is_ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// State of the service as reported by the manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// True if the manager has loaded the service.
    pub(super) is_known: bool,
    /// Autostart state, in the manager's words.
    pub(super) enabled: String,
    /// Run state, in the manager's words.
    pub(super) active: String,
    pub(super) pid: Option<u32>,
    /// File that the service was loaded from.
    pub(super) file: Option<PathBuf>,
}

impl State {
    pub(super) fn is_active(&self) -> bool {
        self.active == "active" || self.active == "running"
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled == "enabled"
    }

    /// True if the manager no longer restarts it.
    pub(super) fn has_failed(&self) -> bool {
        self.active == "failed"
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

impl ServiceKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::System => "system",
            Self::Agent => "agent",
        }
    }

    pub(super) fn install_command(self) -> &'static str {
        match self {
            Self::System => "gdn daemon service install --system",
            Self::User | Self::Agent => "gdn daemon service install",
        }
    }

    fn systemctl(self, more: &[&str]) -> Vec<String> {
        let whose = if self == Self::System {
            "--system"
        } else {
            "--user"
        };
        words(&[&["systemctl", whose][..], more].concat())
    }

    /// Command that queries the state of the service.
    pub(super) fn query(self, uid: u32) -> Vec<String> {
        match self {
            Self::User | Self::System => self.systemctl(&["show", PROPERTIES, UNIT]),
            Self::Agent => words(&["launchctl", "print", &target(uid)]),
        }
    }

    /// Parses the output of [`Self::query`]; none if no manager responded.
    pub(super) fn read(self, said: &ProgramOutput) -> Option<State> {
        match self {
            Self::User | Self::System => {
                let value = |name: &str| {
                    let mut lines = said.stdout.lines();
                    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                };
                let load = value("LoadState").filter(|_| said.is_ok)?;
                let pid: Option<u32> = value("MainPID").and_then(|pid| pid.parse().ok());
                let file = value("FragmentPath").filter(|path| !path.is_empty());
                Some(State {
                    is_known: load != "not-found",
                    enabled: value("UnitFileState").unwrap_or_default().to_owned(),
                    active: value("ActiveState").unwrap_or_default().to_owned(),
                    pid: pid.filter(|pid| *pid != 0),
                    file: file.map(PathBuf::from),
                })
            }
            Self::Agent if !said.is_ok => Some(State::default()),
            Self::Agent => {
                let value = |name: &str| {
                    let mut lines = said.stdout.lines();
                    lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "))
                };
                Some(State {
                    is_known: true,
                    enabled: "enabled".to_owned(),
                    active: value("state").unwrap_or_default().to_owned(),
                    pid: value("pid").and_then(|pid| pid.parse().ok()),
                    file: value("path").map(PathBuf::from),
                })
            }
        }
    }

    /// Commands that enable the service and start it.
    pub(super) fn start(self, uid: u32, file: &Path, state: &State) -> Vec<Vec<String>> {
        match self {
            Self::User | Self::System => vec![
                self.systemctl(&["daemon-reload"]),
                self.systemctl(&["enable", "--now", UNIT]),
            ],
            // A loaded agent cannot be loaded again.
            Self::Agent if state.is_known => {
                vec![words(&["launchctl", "kickstart", &target(uid)])]
            }
            Self::Agent => {
                let file = file.to_string_lossy();
                vec![words(&["launchctl", "bootstrap", &domain(uid), &file])]
            }
        }
    }

    /// Command that stops and disables the service, before its file is removed.
    pub(super) fn stop(self, uid: u32) -> Vec<String> {
        match self {
            Self::User | Self::System => self.systemctl(&["disable", "--now", UNIT]),
            Self::Agent => words(&["launchctl", "bootout", &target(uid)]),
        }
    }

    /// Command that resets the failure count, so that the service can be started again.
    pub(super) fn forgive(self) -> Option<Vec<String>> {
        match self {
            Self::User | Self::System => Some(self.systemctl(&["reset-failed", UNIT])),
            Self::Agent => None,
        }
    }

    /// Command that starts the service without changing its autostart state.
    pub(super) fn start_again(self, uid: u32) -> Vec<String> {
        match self {
            Self::User | Self::System => self.systemctl(&["start", UNIT]),
            Self::Agent => words(&["launchctl", "kickstart", &target(uid)]),
        }
    }

    /// Command that stops the service without disabling it.
    pub(super) fn pause(self, uid: u32) -> Vec<String> {
        match self {
            Self::User | Self::System => self.systemctl(&["stop", UNIT]),
            Self::Agent => words(&["launchctl", "kill", "SIGTERM", &target(uid)]),
        }
    }

    /// Command to run after the file was removed.
    pub(super) fn forget(self) -> Option<Vec<String>> {
        match self {
            Self::User | Self::System => Some(self.systemctl(&["daemon-reload"])),
            Self::Agent => None,
        }
    }

    /// Command for the user to restart the daemon with a changed file.
    pub(super) fn restart(self, uid: u32, file: &Path) -> String {
        match self {
            Self::User => "systemctl --user restart goondan".to_owned(),
            Self::System => "systemctl restart goondan".to_owned(),
            Self::Agent => format!(
                "launchctl bootout {}; launchctl bootstrap {} '{}'",
                target(uid),
                domain(uid),
                file.display()
            ),
        }
    }

    /// Command that shows the log of the service.
    pub(super) fn log(self) -> &'static str {
        match self {
            Self::User => "journalctl --user -u goondan -n 50 --no-pager",
            Self::System => "journalctl -u goondan -n 50 --no-pager",
            Self::Agent => "gdn logs --all -n 50",
        }
    }
}

fn domain(uid: u32) -> String {
    format!("gui/{uid}")
}

fn target(uid: u32) -> String {
    format!("{}/{LABEL}", domain(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program_output(is_ok: bool, stdout: &str) -> ProgramOutput {
        ProgramOutput {
            is_ok,
            stdout: stdout.to_owned(),
            stderr: String::new(),
        }
    }

    #[test]
    fn rel_1_systemd_output_is_parsed() {
        let text = "MainPID=4711\nLoadState=loaded\nActiveState=active\nFragmentPath=/u/goondan.service\n\
                    UnitFileState=enabled\n";
        let state = ServiceKind::User.read(&program_output(true, text)).unwrap();
        let file = state.file.as_deref();
        assert_eq!(
            (state.pid, file),
            (Some(4711), Some(Path::new("/u/goondan.service")))
        );
        assert!(state.is_known && state.is_active() && state.is_enabled());
        let text =
            "MainPID=0\nLoadState=not-found\nActiveState=inactive\nFragmentPath=\nUnitFileState=\n";
        let state = ServiceKind::System
            .read(&program_output(true, text))
            .unwrap();
        assert_eq!(
            (state.is_known, state.pid, state.file.clone()),
            (false, None, None)
        );
        assert!(!state.is_active() && !state.is_enabled() && !state.has_failed());
        // No manager responds.
        assert_eq!(ServiceKind::User.read(&program_output(false, "")), None);
        assert_eq!(
            ServiceKind::User.read(&program_output(true, "nonsense")),
            None
        );
    }

    #[test]
    fn rel_1_launchd_output_is_parsed() {
        let text = "gui/501/ai.goondan.orchestrator = {\n\tactive count = 1\n\tpath = /L/a.plist\n\
                    \ttype = LaunchAgent\n\tstate = running\n\n\tpid = 4711\n}\n";
        let state = ServiceKind::Agent
            .read(&program_output(true, text))
            .unwrap();
        assert_eq!(
            (state.pid, state.file.as_deref()),
            (Some(4711), Some(Path::new("/L/a.plist")))
        );
        assert!(state.is_known && state.is_active() && state.is_enabled());
        assert_eq!(
            ServiceKind::Agent.read(&program_output(false, "")),
            Some(State::default())
        );
    }

    #[test]
    fn rel_1_each_service_manager_gets_its_own_commands() {
        let line = |command: Vec<String>| command.join(" ");
        let all = |commands: Vec<Vec<String>>| commands.into_iter().map(line).collect::<Vec<_>>();
        let (file, unknown) = (Path::new("/L/a.plist"), State::default());
        assert_eq!(
            all(ServiceKind::User.start(501, file, &unknown)),
            [
                "systemctl --user daemon-reload",
                "systemctl --user enable --now goondan.service"
            ]
        );
        assert_eq!(
            line(ServiceKind::System.stop(0)),
            "systemctl --system disable --now goondan.service"
        );
        assert_eq!(
            all(ServiceKind::Agent.start(501, file, &unknown)),
            ["launchctl bootstrap gui/501 /L/a.plist"]
        );
        assert_eq!(
            line(ServiceKind::Agent.stop(501)),
            "launchctl bootout gui/501/ai.goondan.orchestrator"
        );
    }
}
