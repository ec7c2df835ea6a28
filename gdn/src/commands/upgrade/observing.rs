//! Which daemon owns a state directory, whatever its version (`REL-1`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use goondan_protocol::control::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::decide::{Leads, Observed, Runs};
use super::journal::{Journal, Step};
use super::limits::SILENT_END_TIMEOUT_MS;
use crate::client::{CallError, Client, ConnectError, Reached};
use crate::commands::shutdown::is_alive;
use crate::failure::Failure;
use crate::installation::{Installation, Link};
use crate::programs::ORCHESTRATOR;

/// How long a daemon that is just going is waited for, in milliseconds.
const GOING_MS: u64 = 5_000;

/// How often it is asked again meanwhile, in milliseconds.
const ASK_MS: u64 = 50;

/// The daemon of a state directory.
#[derive(Debug)]
pub(super) enum Daemon {
    None,
    /// One that answers.
    Answers(Box<Answering>),
    /// One that takes connections and does not answer, with its process if that is known.
    Silent(Option<u32>),
}

/// A daemon that answers.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) client: Client,
    /// The file of its program; none if it does not say.
    pub(super) program: Option<PathBuf>,
}

impl Answering {
    pub(super) fn pid(&self) -> u32 {
        self.client.daemon().pid
    }

    fn number(&self) -> &str {
        &self.client.daemon().version.goondan
    }
}

impl Daemon {
    /// Asks the daemon of a state directory who it is.
    pub(super) async fn of(state_root: &Path) -> Result<Self, Failure> {
        let deadline = Instant::now() + Duration::from_millis(GOING_MS);
        loop {
            match Self::once(state_root).await {
                // One that is about to listen, or does no more, owns the state directory all the same.
                Err(ConnectError::NotRunning { .. }) => {
                    let pid = pid_in_file(state_root).filter(|pid| is_alive(*pid));
                    return Ok(pid.map_or(Self::None, |pid| Self::Silent(Some(pid))));
                }
                Err(ConnectError::Handshake(error))
                    if error.is_lost() && Instant::now() < deadline => {}
                Err(
                    ConnectError::NoAnswer
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
            Reached::Same(mut client) => {
                let status = client.query(Status {}).await;
                let status = status.map_err(|error: CallError| ConnectError::Handshake(error))?;
                (client, status.program)
            }
            Reached::Other(other) => {
                let program = other.status.get("program").and_then(|it| it.as_str());
                let program = program.map(PathBuf::from);
                (other.client, program)
            }
        };
        Ok(Self::Answers(Box::new(Answering { client, program })))
    }

    /// Which of the two versions it is of.
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
        // The system does not tell which file a process runs.
        let number = answering.number();
        let (is_from, is_to) = (
            number == journal.from.number(),
            number == journal.to.number(),
        );
        let is_started = matches!(
            journal.step,
            Some(Step::Check | Step::Finish | Step::EndNew)
        );
        match (is_from, is_to) {
            (true, true) if is_started => Runs::New,
            (true, _) => Runs::Old,
            (false, true) => Runs::New,
            (false, false) => Runs::Other,
        }
    }
}

/// What is there of an upgrade.
pub(super) async fn observe(
    installation: &Installation,
    journal: &Journal,
    is_checked: bool,
) -> Result<(Observed, Daemon), Failure> {
    let linked = installation.linked(Link::Current)?;
    let leads = match linked {
        Some(name) if name == journal.to => Leads::ToNew,
        Some(name) if name == journal.from => Leads::ToOld,
        _ => Leads::Elsewhere,
    };
    let daemon = Daemon::of(&journal.state_root).await?;
    let observed = Observed {
        leads,
        runs: daemon.runs(journal),
        is_checked,
    };
    Ok((observed, daemon))
}

/// What the file of the daemon's process id says, if that process is a daemon as far as the system tells.
fn pid_in_file(state_root: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(state_root.join("run/orchestrator.pid")).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline"));
    let is_its = |command: Vec<u8>| {
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(ORCHESTRATOR) && command.contains(&*state_root.to_string_lossy())
    };
    // Where nothing tells what a process is, none is taken for it.
    command.is_ok_and(is_its).then_some(pid)
}

/// Ends a daemon that does not answer: it is told to, and killed if it does not.
pub(super) async fn end_silent(pid: u32) {
    let Ok(raw) = i32::try_from(pid) else {
        return;
    };
    let deadline = Instant::now() + Duration::from_millis(SILENT_END_TIMEOUT_MS);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // One that is gone already is what is wanted.
        let _gone = kill(Pid::from_raw(raw), signal);
        while is_alive(pid) && (signal == Signal::SIGKILL || Instant::now() < deadline) {
            tokio::time::sleep(Duration::from_millis(ASK_MS)).await;
        }
    }
}
