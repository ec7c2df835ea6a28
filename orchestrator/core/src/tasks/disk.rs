//! Disk usage of tasks' work areas, and its consequences (`TASK-9`).
//!
//! A work area is measured with each of its checkpoints, periodically during a run, and on request
//! if the last measurement is old. Nothing is ever deleted: a run that exceeds its quota is paused
//! until a person decides.

use goondan_protocol::control::TaskDisk;
use goondan_tasks::machine::{DiskUse, TaskInput};

use super::Tasks;
use super::entry::{LastMeasurement, PendingTaskRequest, TaskEntry};
use super::runs::is_ending;
use crate::exchange::tasks::DiskMeasurement;
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::{Fleet, bundle_of};
use crate::limits::{TASK_DISK_BYTES_DEFAULT, TASK_DISK_EACH_MS, TASK_DISK_FRESH_MS};
use crate::{LogEvent, RequestToken};

/// Action that waits for a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum MeasurementFollowUp {
    /// A client is shown the task.
    Show(RequestToken),
    /// Resume the task for a user.
    Resume(RequestToken),
}

impl Tasks {
    /// Disk quota of a task's work area: from the task itself, or from its agent's configuration.
    pub(super) fn quota_of(&self, fleet: &Fleet, at: &TaskRef) -> u64 {
        let state = self.entry(at).and_then(TaskEntry::durable);
        let of_task = state.and_then(|state| state.task.budget.disk_bytes);
        let of_agent = || {
            let workspace = fleet.workspace(&at.workspace_id).ok()?;
            let agent = bundle_of(workspace).ok()?.cli_agent(&state?.task.agent)?;
            agent.disk_bytes
        };
        of_task.or_else(of_agent).unwrap_or(TASK_DISK_BYTES_DEFAULT)
    }

    /// The last measurement, for clients.
    pub(super) fn disk_of(&self, fleet: &Fleet, at: &TaskRef) -> Option<TaskDisk> {
        let look = self.entry(at)?.last_look?;
        let found = look.found?;
        Some(TaskDisk {
            bytes: found.bytes,
            quota_bytes: self.quota_of(fleet, at),
            free_bytes: found.free_bytes,
            measured_at: look.at,
        })
    }

    /// True if the last measurement is missing or too old to report.
    pub(super) fn is_look_old(&self, fleet: &Fleet, at: &TaskRef) -> bool {
        let look = self.entry(at).and_then(|entry| entry.last_look);
        let now_ms = fleet.now().mono_ms;
        look.is_none_or(|look| now_ms >= look.at_ms.saturating_add(TASK_DISK_FRESH_MS))
    }

    /// True if a work area exceeded its quota at the last measurement.
    pub(super) fn is_over_quota(&self, fleet: &Fleet, at: &TaskRef) -> bool {
        let disk = self.disk_of(fleet, at);
        disk.is_some_and(|disk| disk.bytes > disk.quota_bytes)
    }

    /// Measures a work area. At most one measurement of each is in progress.
    pub(super) fn look(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        then: Option<MeasurementFollowUp>,
    ) {
        let is_under_way = self.looks.contains_key(at);
        self.looks.entry(at.clone()).or_default().extend(then);
        if !is_under_way {
            let copy = self.copy_of_project(fleet, at);
            let at = at.clone();
            Self::work(fleet, TaskWork::Measure { at, copy });
        }
    }

    /// Handles the result of a measurement.
    pub(super) fn on_measured(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        result: Result<DiskMeasurement, String>,
    ) {
        if let Err(error) = &result {
            let event = LogEvent::warn("failed to measure the work area of a task");
            let event = event.with("workspaceId", at.workspace_id.as_str());
            let event = event.with("taskId", at.task_id.as_str());
            fleet.log(event.with("error", error.as_str()));
        }
        self.note_look(fleet, at, result.ok());
        for then in self.looks.remove(at).unwrap_or_default() {
            match then {
                MeasurementFollowUp::Show(token) => self.show_known(fleet, token, at),
                MeasurementFollowUp::Resume(token) if self.entry(at).is_none() => {
                    fleet.respond_error(token, super::not_found(at));
                }
                MeasurementFollowUp::Resume(token) => {
                    let decision = PendingTaskRequest::new(token, "resume");
                    self.input(fleet, at, TaskInput::Resume, Some(decision));
                }
            }
        }
    }

    /// Stores a measurement, and notifies the task's state machine.
    pub(super) fn note_look(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        found: Option<DiskMeasurement>,
    ) {
        let now = fleet.now();
        let quota_bytes = self.quota_of(fleet, at);
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        entry.last_look = Some(LastMeasurement {
            at_ms: now.mono_ms,
            at: now.wall,
            found,
        });
        let is_told = entry.state().is_some() && !is_ending(fleet, at);
        if let (Some(found), true) = (found, is_told) {
            let disk = DiskUse {
                bytes: found.bytes,
                quota_bytes,
            };
            self.input(fleet, at, TaskInput::Measured(disk), None);
        }
    }

    /// Looks at the work areas in which a program works.
    pub(super) fn look_at_running(&mut self, fleet: &mut Fleet) {
        let now_ms = fleet.now().mono_ms;
        let mut due = Vec::new();
        for (id, space) in &self.spaces {
            for (task, entry) in &space.entries {
                let next = |look: LastMeasurement| look.at_ms.saturating_add(TASK_DISK_EACH_MS);
                let is_due = entry.last_look.is_none_or(|look| now_ms >= next(look));
                let at = TaskRef::new(id, task);
                if is_due && self.run_of(fleet, &at).is_some() {
                    due.push(at);
                }
            }
        }
        for at in due {
            self.look(fleet, &at, None);
        }
    }
}
