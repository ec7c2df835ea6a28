//! The log of a run, `events.jsonl` (`PROP-5`), and the state of proposals derived from it.

use std::path::Path;

use goondan_durable::disk::Disk;
use goondan_durable::register::Register;
use goondan_durable::sealed_log::{SealedLog, unsealed};
use goondan_durable::{FileError, IoContext as _};
use goondan_protocol::control::{ProposalState, RunEvent, RunEventKind};
use goondan_protocol::ids::WorkerId;

use crate::place::EVENTS;

/// Reads all events of a run, oldest first. Unreadable lines are skipped; the next append preserves
/// them beside the log.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<RunEvent>, FileError> {
    if disk.stat(path).during("inspect", path)?.is_none() {
        return Ok(Vec::new());
    }
    let (mut log, reading) = SealedLog::open(disk, path)?;
    let mut events = Vec::with_capacity(reading.records.len());
    for span in reading.records {
        let record = unsealed(&log.record(span)?);
        events.extend(record.and_then(|record| serde_json::from_str(record.get()).ok()));
    }
    Ok(events)
}

/// Appends an event. Durable on return.
pub(crate) fn append(disk: &dyn Disk, path: &Path, event: &RunEvent) -> Result<(), FileError> {
    let is_new = disk.stat(path).during("inspect", path)?.is_none();
    let register = path.parent().map(|run| Register::of(disk, run));
    let (mut log, _) = SealedLog::open(disk, path)?;
    if log.is_damaged()
        && let Some(register) = &register
    {
        register.rewrite(EVENTS)?;
    }
    log.mend(disk)?;
    log.append(event)?;
    log.sync()?;
    if is_new && let Some(dir) = path.parent() {
        disk.sync_dir(dir).during("sync", dir)?;
    }
    if let Some(register) = register {
        register.note(&[EVENTS]);
    }
    Ok(())
}

/// State of a sandbox's newest proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProposalStatus {
    pub(crate) state: ProposalState,
    pub(crate) digest: String,
    pub(crate) history: Vec<RunEvent>,
}

/// The state of a sandbox's newest proposal, from the run's log; `None` if none was created since
/// the sandbox was prepared.
pub(crate) fn standing(events: &[RunEvent], agent: &WorkerId) -> Option<ProposalStatus> {
    let mut standing = None::<ProposalStatus>;
    for event in events.iter().filter(|event| event.agent_id == *agent) {
        match event.kind {
            RunEventKind::SandboxPrepared | RunEventKind::SandboxRemoved => standing = None,
            RunEventKind::ProposalCreated => {
                standing = Some(ProposalStatus {
                    state: ProposalState::Open,
                    digest: event.digest.clone().unwrap_or_default(),
                    history: vec![event.clone()],
                });
            }
            // Comments are shown on their own.
            RunEventKind::ProposalCommented => {}
            kind => {
                let Some(standing) = &mut standing else {
                    continue;
                };
                standing.state = match kind {
                    RunEventKind::ProposalApplied => ProposalState::Applied,
                    RunEventKind::ProposalRejected => ProposalState::Rejected,
                    RunEventKind::ProposalReverted => ProposalState::Reverted,
                    _ => standing.state,
                };
                standing.history.push(event.clone());
            }
        }
    }
    standing
}
