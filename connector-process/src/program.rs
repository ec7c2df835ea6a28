//! A connector that is a program of the project.
//!
//! It uses newline-delimited JSON: its settings arrive first on its stdin, its events go to its
//! stdout, the orchestrator's verdicts return on stdin, and its log goes to stderr.
//! `docs/connectors/program.md` is the reference.
//!
//! * `messages`: the messages in both directions. Pure.
//! * `command`: selects the program that runs the file.
//! * `launch`: the program to start, and its first input.
//! * `process`: one process from start to end.
//!
//! # Invariants
//!
//! * The program ends with this process, however this process ends (`SUP-7`): it has its own
//!   process group, which is killed, and the kernel kills it if this process cannot.
//! * A faulty program only causes its own end; people see the reason.

mod command;
mod launch;
mod messages;
mod process;

use std::time::{Duration, Instant};

use goondan_protocol::definition::ConnectorAssignment;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::launch::Launch;
use self::process::{ProgramEnd, ProgramProcess};
use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{
    PROGRAM_BACK_OFF_FIRST_MS, PROGRAM_BACK_OFF_MAX_MS, PROGRAM_IMMEDIATE_RESTARTS,
    PROGRAM_START_FAULTS_MAX,
};

#[derive(Debug)]
pub(crate) struct Program(Launch);

impl Program {
    /// The program of an assignment, if any.
    pub(crate) fn new(assignment: &ConnectorAssignment) -> Option<Self> {
        Launch::of(assignment).map(Self)
    }

    /// Runs the program until `stop`, and restarts it whenever it ends earlier (`SUP-4`).
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let mut crashes: u32 = 0;
        let mut faults: u32 = 0;
        while !stop.is_cancelled() {
            let since = Instant::now();
            let end = match ProgramProcess::start(&self.0).await {
                Ok(running) => running.run(&gateway, &stop).await,
                Err(end) => end,
            };
            let (reason, has_worked) = match end {
                ProgramEnd::Stopped => return,
                ProgramEnd::Failed { reason, has_worked } => {
                    faults = 0;
                    (reason, has_worked)
                }
                ProgramEnd::NotStarted { reason } => {
                    faults = faults.saturating_add(1);
                    (reason, false)
                }
            };
            if faults >= PROGRAM_START_FAULTS_MAX {
                let reason = format!("`{}` {reason}", self.0.entry.display());
                return gateway.park(&reason, &stop).await;
            }
            let was_well = since.elapsed() >= Duration::from_millis(PROGRAM_BACK_OFF_MAX_MS);
            crashes = if has_worked || was_well {
                1
            } else {
                crashes.saturating_add(1)
            };
            let pause = pause(crashes);
            tracing::error!(
                entry = %self.0.entry.display(),
                reason,
                crashes,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "the connector program ended"
            );
            let again = if pause.is_zero() {
                "starting it again".to_owned()
            } else {
                format!("starting it again after {} s", pause.as_secs())
            };
            let entry = self.0.entry.display();
            gateway
                .report(false, format!("`{entry}` {reason}; {again}"))
                .await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }
}

/// Pause after consecutive exits.
fn pause(crashes: u32) -> Duration {
    match crashes.saturating_sub(PROGRAM_IMMEDIATE_RESTARTS) {
        0 => Duration::ZERO,
        n => back_off(n, PROGRAM_BACK_OFF_FIRST_MS, PROGRAM_BACK_OFF_MAX_MS),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sup_4_five_restarts_at_once_then_ever_longer_pauses() {
        let pauses: Vec<u64> = (1..=8).map(|n| pause(n).as_secs()).collect();
        assert_eq!(pauses, [0, 0, 0, 0, 0, 1, 2, 4]);
        assert_eq!(pause(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn the_first_line_is_never_shown() {
        let assignment: ConnectorAssignment = serde_json::from_value(json!({
            "workspaceId": "w", "connection": "c", "connector": "own",
            "program": {"projectRoot": "/p", "entry": "c.py"},
            "config": {"a": 1}, "secrets": {"token": "hunter2"},
        }))
        .unwrap();
        let program = Program::new(&assignment).unwrap();
        assert!(program.0.start.0.contains("hunter2") && program.0.start.0.ends_with("}\n"));
        assert!(!format!("{program:?}").contains("hunter2"));
    }
}
