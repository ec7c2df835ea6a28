//! Carries out an upgrade: observes the state, chooses the next step, records it in the journal, and executes it
//! (`REL-1`).

use std::time::{Duration, Instant};

use super::daemon_probe::{Daemon, end_silent, observe};
use super::decide::next_step;
use super::journal::{Journal, PriorDaemonState, UpgradeDirection, UpgradeStep};
use super::limits::{
    HEALTH_LOOK_MS, HEALTH_SETTLE_MS, HEALTH_TIMEOUT_MS, UPGRADE_STEPS_MAX, VERSIONS_KEPT_MAX,
};
use super::probe::{self, DaemonProbe};
use super::staging::clear_away;
use super::{again, service, shutdown};
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::installation::{Installation, VersionLink, VersionName};
use crate::output::text;
use crate::programs::{GDN, ORCHESTRATOR};

#[derive(Debug)]
pub(super) enum UpgradeOutcome {
    /// The new version is current; lists the versions that were removed.
    Upgraded(Vec<VersionName>),
    /// The previous version is current, for this reason.
    TakenBack(String),
}

pub(super) struct UpgradeExecutor<'u> {
    pub(super) installation: &'u Installation,
    /// Context of the upgrade's state directory.
    pub(super) context: &'u Context,
    pub(super) journal: Journal,
    /// Grace period for turns in progress, in milliseconds; none for the default of each swarm.
    pub(super) grace_ms: Option<u64>,
}

impl UpgradeExecutor<'_> {
    /// Runs all steps to the end.
    pub(super) async fn run(&mut self) -> Result<UpgradeOutcome, Failure> {
        let mut is_checked = false;
        for _ in 0..UPGRADE_STEPS_MAX {
            let (observed, daemon) = observe(self.installation, &self.journal, is_checked).await?;
            let step = next_step(&self.journal, observed);
            self.journal.step = Some(step);
            self.journal.write(self.installation)?;
            self.tell(step);
            match step {
                UpgradeStep::Drain => self.drain(daemon).await?,
                UpgradeStep::Swap => {
                    let (installation, to) = (self.installation, &self.journal.to);
                    installation.point(VersionLink::Current, to)?;
                }
                UpgradeStep::Start => {
                    let to = self.journal.to.clone();
                    if let Err(failure) = self.start(&to).await {
                        self.turn_back(failure.to_string())?;
                    }
                }
                UpgradeStep::Check => match self.check().await {
                    Ok(()) => is_checked = true,
                    Err(why) => self.turn_back(why)?,
                },
                UpgradeStep::Finish => return self.finish(),
                UpgradeStep::EndNew => self.end(daemon).await?,
                UpgradeStep::SwapBack => self.swap_back()?,
                UpgradeStep::StartOld => {
                    let from = self.journal.from.clone();
                    self.start(&from)
                        .await
                        .map_err(|failure| self.stuck(failure))?;
                }
                UpgradeStep::FinishBack => {
                    Journal::remove(self.installation)?;
                    return Ok(UpgradeOutcome::TakenBack(self.why()));
                }
            }
        }
        Err(Failure::new(
            Exit::Conflict,
            "the upgrade cannot finish: another program keeps starting daemons",
            format!(
                "stop that program, then: `{}`",
                again(self.installation, "--resume")
            ),
        ))
    }

    fn tell(&self, step: UpgradeStep) {
        let Journal { from, to, .. } = &self.journal;
        self.context.output.note(match step {
            UpgradeStep::Drain => "Stopping the daemon, after the turns in progress …".to_owned(),
            UpgradeStep::Swap => format!("{to} becomes the current version"),
            UpgradeStep::Start => format!("Starting the daemon of {to} …"),
            UpgradeStep::Check => "Checking that it works …".to_owned(),
            UpgradeStep::EndNew => format!("Stopping the daemon of {to} …"),
            UpgradeStep::SwapBack => format!("{from} becomes the current version again"),
            UpgradeStep::StartOld => format!("Starting the daemon of {from} …"),
            UpgradeStep::Finish | UpgradeStep::FinishBack => return,
        });
    }

    async fn drain(&self, daemon: Daemon) -> Result<(), Failure> {
        match daemon {
            Daemon::None => Ok(()),
            Daemon::Answers(it) => shutdown::stop(it.client, self.grace_ms, self.context).await,
            Daemon::Silent(pid) => {
                let is_gone = match pid {
                    Some(pid) => shutdown::is_gone_in_time(pid, self.grace_ms).await,
                    None => false,
                };
                if is_gone {
                    return Ok(());
                }
                Err(self.stuck(Failure::new(
                    Exit::TimedOut,
                    "the daemon does not respond, and does not end",
                    "",
                )))
            }
        }
    }

    /// Stops the new version's daemon, even if it does not respond.
    async fn end(&self, daemon: Daemon) -> Result<(), Failure> {
        self.hold_service();
        match daemon {
            Daemon::None => {}
            Daemon::Answers(it) => shutdown::stop(it.client, self.grace_ms, self.context).await?,
            Daemon::Silent(Some(pid)) => end_silent(pid).await,
            Daemon::Silent(None) => {
                let failure = Failure::new(Exit::TimedOut, "a daemon does not respond", "");
                return Err(self.stuck(failure));
            }
        }
        Ok(())
    }

    /// Stops the service, so that its manager does not restart a failing daemon repeatedly.
    fn hold_service(&self) {
        if self.journal.ran == PriorDaemonState::AsService
            && let Err(failure) = service::stop_own(self.context)
        {
            // The next observation shows if a daemon still runs.
            self.context.output.note(format!("{failure}"));
        }
    }

    async fn start(&self, version: &VersionName) -> Result<(), Failure> {
        if self.journal.ran == PriorDaemonState::AsService {
            return service::start_own(self.context);
        }
        let program = self.installation.program(version, ORCHESTRATOR);
        Ok(daemon::start_program(&program, &self.journal.state_root).await?)
    }

    /// Waits until the new daemon is at least as healthy as the previous one and stays so for a while; returns the
    /// reason if it does not.
    async fn check(&self) -> Result<(), String> {
        let gdn = self.installation.program(&self.journal.to, GDN);
        let deadline = Instant::now() + Duration::from_millis(HEALTH_TIMEOUT_MS);
        let mut well_since: Option<(u32, Instant)> = None;
        loop {
            let looked = probe::look(&gdn, &self.journal.state_root);
            let problem = match looked {
                Ok(None) if self.journal.ran == PriorDaemonState::InBackground => {
                    return Err("its daemon ended".to_owned());
                }
                Ok(None) => Some("no daemon runs".to_owned()),
                Ok(Some(look)) => {
                    let mut crashing = look.crashing.difference(&self.journal.ill_before);
                    if let Some(workspace) = crashing.next() {
                        let workspace = text::printable(workspace);
                        return Err(format!("a process of workspace {workspace} keeps crashing"));
                    }
                    let problem = self.problem_of(&look);
                    well_since = match (well_since, &problem) {
                        (_, Some(_)) => None,
                        (Some((pid, since)), None) if pid == look.pid => Some((pid, since)),
                        (_, None) => Some((look.pid, Instant::now())),
                    };
                    problem
                }
                Err(error) => Some(error.to_string()),
            };
            let settled = Duration::from_millis(HEALTH_SETTLE_MS);
            if well_since.is_some_and(|(_, since)| since.elapsed() >= settled) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let problem = problem.unwrap_or_else(|| "it does not stay healthy".to_owned());
                return Err(format!("after {} s, {problem}", HEALTH_TIMEOUT_MS / 1000));
            }
            tokio::time::sleep(Duration::from_millis(HEALTH_LOOK_MS)).await;
        }
    }

    fn problem_of(&self, look: &DaemonProbe) -> Option<String> {
        let to = &self.journal.to;
        let name = look.program.as_deref().and_then(Installation::of);
        if look.number != to.number() || name.is_some_and(|(_, name)| name != *to) {
            let number = text::printable(&look.number);
            return Some(format!(
                "a daemon of another build runs, of version {number}"
            ));
        }
        let newly_ill = look.ill.difference(&self.journal.ill_before).next()?;
        let workspace = text::printable(newly_ill);
        Some(format!("workspace {workspace} is degraded"))
    }

    fn turn_back(&mut self, why: String) -> Result<(), Failure> {
        self.context
            .output
            .note(format!("{} does not work: {why}", self.journal.to));
        self.journal.way = UpgradeDirection::Back { why };
        Ok(self.journal.write(self.installation)?)
    }

    fn why(&self) -> String {
        match &self.journal.way {
            UpgradeDirection::Back { why } => why.clone(),
            UpgradeDirection::Forward => String::new(),
        }
    }

    /// Switches back to the previous version, if it can still read the state directory.
    fn swap_back(&self) -> Result<(), Failure> {
        self.hold_service();
        let (installation, from) = (self.installation, &self.journal.from);
        let gdn = installation.program(from, GDN);
        let Err(error) = probe::reads(&gdn, &self.journal.state_root) else {
            return Ok(installation.point(VersionLink::Current, from)?);
        };
        installation.point(VersionLink::Previous, from)?;
        Journal::remove(installation)?;
        let message = format!(
            "{} does not work ({}), and {from} cannot take over: {error}",
            self.journal.to,
            self.why()
        );
        let hint = format!(
            "for the reason: `{}`; or restore the state directory from a backup, then `{}`",
            self.context.daemon_command("run --foreground"),
            again(installation, "--rollback")
        );
        Err(Failure::new(Exit::StartFailed, message, hint))
    }

    /// Failure that the user must fix before the upgrade can be resumed.
    fn stuck(&self, failure: Failure) -> Failure {
        let resume = again(self.installation, "--resume");
        let doctor = self.context.daemon_command("doctor");
        failure.with_hint(format!(
            "check with `{doctor}`, fix the problem, then: `{resume}`"
        ))
    }

    fn finish(&self) -> Result<UpgradeOutcome, Failure> {
        let (installation, journal) = (self.installation, &self.journal);
        installation.point(VersionLink::Previous, &journal.from)?;
        Journal::remove(installation)?;
        Ok(UpgradeOutcome::Upgraded(prune(installation)?))
    }
}

/// Removes all versions except the current and the previous one, and returns their names.
pub(super) fn prune(installation: &Installation) -> Result<Vec<VersionName>, Failure> {
    let mut kept = Vec::new();
    for link in [VersionLink::Current, VersionLink::Previous] {
        kept.extend(installation.linked(link)?);
    }
    kept.truncate(VERSIONS_KEPT_MAX);
    let mut gone = installation.installed()?;
    gone.retain(|version| !kept.contains(version));
    for version in &gone {
        std::fs::remove_dir_all(installation.dir_of(version))?;
    }
    clear_away(installation);
    Ok(gone)
}
