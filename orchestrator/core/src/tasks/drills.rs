//! Restore drills: checks that a task's newest checkpoint can be restored, by policy or on request
//! (`CKPT-4`). The result is a fact of the task.

use goondan_protocol::control::{ControlError, TaskDrill, WorkspaceInfo};
use goondan_protocol::time::Timestamp;
use goondan_tasks::machine::TaskInput;
use goondan_tasks::state::State;

use super::Tasks;
use super::entry::{PendingTaskRequest, TaskEntry};
use super::retention::due_at;
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;
use crate::limits::{FAILED_DRILLS_SHOWN, TASK_DRILL_AGAIN_MS, TASK_DRILL_PAUSE_MS};
use crate::{LogEvent, RequestToken};

impl Tasks {
    /// Begins a drill that is due by policy. One at a time, and with a pause between them: they read and write as
    /// much as the work areas hold.
    pub(super) fn drill_by_policy(&mut self, fleet: &mut Fleet) {
        let now = fleet.now();
        if now.mono_ms < self.drill_at_ms {
            return;
        }
        let mut due: Option<(Timestamp, TaskRef)> = None;
        for (id, space) in &self.spaces {
            let workspace = fleet.workspace(id).ok();
            let workspace = workspace.filter(|workspace| workspace.closing.is_none());
            let Some(each_ms) = workspace.and_then(|workspace| workspace.task_policy().drill_ms)
            else {
                continue;
            };
            for (task, entry) in &space.entries {
                let may_be = entry.checkpoints == 0 && now.mono_ms >= entry.drill_at_ms;
                let last = drilled_at(entry).filter(|_| may_be);
                let next = last.and_then(|last| due_at(last, each_ms));
                if let Some(next) = next.filter(|next| *next <= now.wall)
                    && due.as_ref().is_none_or(|(first, _)| next < *first)
                {
                    due = Some((next, TaskRef::new(id, task)));
                }
            }
        }
        if let Some((_, at)) = due {
            self.drill_at_ms = now.mono_ms.saturating_add(TASK_DRILL_PAUSE_MS);
            self.drill(fleet, &at, None);
        }
    }

    /// Tries whether the newest checkpoint of a task could be restored.
    pub(super) fn drill(&mut self, fleet: &mut Fleet, at: &TaskRef, token: Option<RequestToken>) {
        let now = fleet.now();
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        // A failed drill is not retried immediately, so that other tasks get their turn.
        entry.drill_at_ms = now.mono_ms.saturating_add(TASK_DRILL_AGAIN_MS);
        let begun = if entry.state().is_none() {
            let why = entry.damage().unwrap_or("it is being created or removed");
            Err(super::damaged(at, why))
        } else {
            self.begin_checkpoint_work(at, token)
        };
        if let Err(error) = begun {
            if let Some(token) = token {
                fleet.respond_error(token, error);
            }
            return;
        }
        let copy = self.copy_of_project(fleet, at);
        let (at, now) = (at.clone(), now.wall);
        Self::work(
            fleet,
            TaskWork::Drill {
                at,
                copy,
                token,
                now,
            },
        );
    }

    /// Tells of each workspace which of its tasks have a checkpoint that could not be restored.
    pub(crate) fn tell_failed_drills(&self, infos: &mut [WorkspaceInfo]) {
        for info in infos {
            let entries = self.spaces.get(&info.workspace_id).into_iter();
            let entries = entries.flat_map(|space| &space.entries);
            let is_failed = |entry: &TaskEntry| entry.durable().is_some_and(State::is_drill_failed);
            let failed: Vec<_> = entries.filter(|(_, entry)| is_failed(entry)).collect();
            info.failed_drills_total = failed.len();
            let named = failed.into_iter().take(FAILED_DRILLS_SHOWN);
            info.failed_drills = named.map(|(id, _)| id.clone()).collect();
        }
    }

    pub(super) fn on_drilled(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        token: Option<RequestToken>,
        result: Result<TaskDrill, ControlError>,
    ) {
        self.end_checkpoint_work(at, token);
        let of = |event: LogEvent| {
            let event = event.with("workspaceId", at.workspace_id.as_str());
            event.with("taskId", at.task_id.as_str())
        };
        let drill = match (result, token) {
            (Ok(drill), _) => drill,
            (Err(error), Some(token)) => return fleet.respond_error(token, error),
            (Err(error), None) => {
                let event = of(LogEvent::warn("failed to run a task's restore drill"));
                return fleet.log(event.with("error", error.message));
            }
        };
        let event = match &drill.problem {
            Some(problem) => {
                let message =
                    "restore drill of a task failed: its newest checkpoint cannot be restored";
                LogEvent::error(message).with("error", problem.as_str())
            }
            None => LogEvent::info("restore drill of a task succeeded"),
        };
        fleet.log(of(event).with("checkpointId", drill.checkpoint_id.as_str()));
        let decision = token.map(|token| PendingTaskRequest {
            answer: Some(serde_json::to_value(&drill).unwrap_or_default()),
            ..PendingTaskRequest::new(token, format!("drill {}", drill.checkpoint_id))
        });
        self.input(fleet, at, TaskInput::Drilled(drill), decision);
    }
}

/// Start of a task's drill interval: its last drill, or its creation; `None` if there is nothing to
/// drill.
fn drilled_at(entry: &TaskEntry) -> Option<Timestamp> {
    let state = entry.state().filter(|state| !state.status().is_final())?;
    state.checkpoint()?;
    let drill = state.drill().map(|drill| drill.at);
    Some(drill.unwrap_or_else(|| state.created_at()))
}
