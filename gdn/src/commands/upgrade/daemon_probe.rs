//! Detects the daemon that owns a state directory, of any version (`REL-1`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use goondan_protocol::control::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::decide::{CurrentLinkTarget, ObservedVersions, Runs};
use super::journal::{Journal, UpgradeStep};
use super::limits::SILENT_END_TIMEOUT_MS;
use crate::client::{CallError, Client, ConnectError, DaemonConnection};
use crate::commands::shutdown::is_alive;
use crate::failure::Failure;
use crate::installation::{Installation, VersionLink};
use crate::programs::ORCHESTRATOR;

/// Maximum wait for a daemon that is exiting, in milliseconds.
const GOING_MS: u64 = 5_000;

/// Polling interval during that wait, in milliseconds.
const ASK_MS: u64 = 50;

/// Daemon of a state directory.
#[derive(Debug)]
pub(super) enum Daemon {
    None,
    Answers(Box<ResponsiveDaemon>),
    /// A daemon that accepts connections and does not respond, with its process id if known.
    Silent(Option<u32>),
}

#[derive(Debug)]
pub(super) struct ResponsiveDaemon {
    pub(super) client: Client,
    /// Path of its program; none if it does not report it.
    pub(super) program: Option<PathBuf>,
}

impl ResponsiveDaemon {
    pub(super) fn pid(&self) -> u32 {
        self.client.daemon().pid
    }

    fn number(&self) -> &str {
        &self.client.daemon().version.goondan
    }
}

impl Daemon {
    /// Queries the daemon of a state directory.
    pub(super) async fn of(state_root: &Path) -> Result<Self, Failure> {
        let deadline = Instant::now() + Duration::from_millis(GOING_MS);
        loop {
            match Self::once(state_root).await {
                // A daemon that is about to listen, or no longer listens, still owns the state directory.
                Err(ConnectError::NotRunning { .. }) => {
                    let pid = pid_in_file(state_root).filter(|pid| is_alive(*pid));
                    return Ok(pid.map_or(Self::None, |pid| Self::Silent(Some(pid))));
                }
                Err(ConnectError::Handshake(error))
                    if error.is_lost() && Instant::now() < deadline => {}
                Err(
                    ConnectError::NoAnswer { .. }
                    | ConnectError::NotListening { .. }
                    | ConnectError::Handshake(_),
                ) => {
                    return Ok(Self::Silent(pid_in_file(state_root)));
                }
                Err(error) => return Err(error.into()),
                Ok(daemon) => return Ok(daemon),
            }
            tokio::time::sleep(Duration::from_millis(ASK_MS)).await;
        }
    }

    async fn once(state_root: &Path) -> Result<Self, ConnectError> {
        let (client, program) = match Client::reach(state_root).await? {
            DaemonConnection::Same(mut client) => {
                let status = client.query(Status {}).await;
                let status = status.map_err(|error: CallError| ConnectError::Handshake(error))?;
                (client, status.program)
            }
            DaemonConnection::Other(other) => {
                let program = other.status.get("program").and_then(|it| it.as_str());
                let program = program.map(PathBuf::from);
                (other.client, program)
            }
        };
        Ok(Self::Answers(Box::new(ResponsiveDaemon {
            client,
            program,
        })))
    }

    /// Returns which of the two versions the daemon has.
    fn runs(&self, journal: &Journal) -> Runs {
        let answering = match self {
            Self::None => return Runs::Nothing,
            Self::Silent(_) => return Runs::Silent,
            Self::Answers(answering) => answering,
        };
        let by_file = answering.program.as_deref().and_then(Installation::of);
        if let Some((_, name)) = by_file {
            return match name {
                name if name == journal.to => Runs::New,
                name if name == journal.from => Runs::Old,
                _ => Runs::Other,
            };
        }
        if answering.program.is_some() {
            return Runs::Other;
        }
        // The path of the program is unknown, so compare version numbers.
        let number = answering.number();
        let (is_from, is_to) = (
            number == journal.from.number(),
            number == journal.to.number(),
        );
        let is_started = matches!(
            journal.step,
            Some(UpgradeStep::Check | UpgradeStep::Finish | UpgradeStep::EndNew)
        );
        match (is_from, is_to) {
            (true, true) if is_started => Runs::New,
            (true, _) => Runs::Old,
            (false, true) => Runs::New,
            (false, false) => Runs::Other,
        }
    }
}

/// Observes the current state of an upgrade.
pub(super) async fn observe(
    installation: &Installation,
    journal: &Journal,
    is_checked: bool,
) -> Result<(ObservedVersions, Daemon), Failure> {
    let linked = installation.linked(VersionLink::Current)?;
    let leads = match linked {
        Some(name) if name == journal.to => CurrentLinkTarget::ToNew,
        Some(name) if name == journal.from => CurrentLinkTarget::ToOld,
        _ => CurrentLinkTarget::Elsewhere,
    };
    let daemon = Daemon::of(&journal.state_root).await?;
    let observed = ObservedVersions {
        leads,
        runs: daemon.runs(journal),
        is_checked,
    };
    Ok((observed, daemon))
}

/// Reads the daemon's process id file; none unless that process appears to be a daemon.
fn pid_in_file(state_root: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(state_root.join("run/orchestrator.pid")).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline"));
    let is_its = |command: Vec<u8>| {
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(ORCHESTRATOR) && command.contains(&*state_root.to_string_lossy())
    };
    // If the process cannot be identified, it is not treated as the daemon.
    command.is_ok_and(is_its).then_some(pid)
}

/// Stops an unresponsive daemon with SIGTERM, then SIGKILL.
pub(super) async fn end_silent(pid: u32) {
    let Ok(raw) = i32::try_from(pid) else {
        return;
    };
    let deadline = Instant::now() + Duration::from_millis(SILENT_END_TIMEOUT_MS);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // A process that has already exited is fine.
        let _gone = kill(Pid::from_raw(raw), signal);
        while is_alive(pid) && (signal == Signal::SIGKILL || Instant::now() < deadline) {
            tokio::time::sleep(Duration::from_millis(ASK_MS)).await;
        }
    }
}
