//! Checkpoints of tasks: the times at which they are created, and the conditions for restoring one
//! (`CKPT-1`, `CKPT-4`).

use goondan_protocol::control::{
    CheckpointInfo, ControlError, ErrorCode, RestoreTask, TaskRestored,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskStatus;
use goondan_tasks::machine::TaskInput;
use goondan_tasks::state::State;
use serde_json::Value;

use super::Tasks;
use super::entry::{PendingTaskRequest, RestoreOrder, TaskEntry};
use super::runs::end_run;
use crate::exchange::tasks::NewCheckpointMetadata;
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;
use crate::limits::TASK_CHECKPOINTS_WAITING_MAX;
use crate::{LogEvent, RequestToken};

/// Reason sent to a run's process before its files are restored.
const RESTORED: &str = "the task's files are restored";

fn word_of(status: TaskStatus) -> String {
    let word = serde_json::to_value(status).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

impl Tasks {
    /// Makes a checkpoint, for a client or automatically.
    pub(super) fn make_checkpoint(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        kind: &'static str,
        name: Option<String>,
        token: Option<RequestToken>,
    ) {
        let now = fleet.now().wall;
        let is_live = self.run_of(fleet, at).is_some();
        let quota_bytes = self.quota_of(fleet, at);
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let Some(state) = entry.state() else {
            let why = entry.damage().unwrap_or("it is being created or removed");
            let error = super::damaged(at, why);
            if let Some(token) = token {
                fleet.respond_error(token, error);
            }
            return;
        };
        let about = NewCheckpointMetadata {
            kind,
            name,
            phase: state.current_phase,
            progress: state.progress(),
            status: word_of(state.status()),
            step: state.step().map(ToOwned::to_owned),
            tokens: state.tokens.total().usage.total(),
            is_live,
            quota_bytes,
        };
        if let Err(error) = self.begin_checkpoint_work(at, token) {
            if let Some(token) = token {
                fleet.respond_error(token, error);
            }
            return;
        }
        let copy = self.copy_of_project(fleet, at);
        let at = at.clone();
        Self::work(
            fleet,
            TaskWork::MakeCheckpoint {
                at,
                copy,
                token,
                about,
                now,
            },
        );
    }

    /// Begins to make or drill a checkpoint of a task, for a client or automatically, unless too
    /// many are pending.
    pub(super) fn begin_checkpoint_work(
        &mut self,
        at: &TaskRef,
        token: Option<RequestToken>,
    ) -> Result<(), ControlError> {
        let entry = self.entry_mut(at).ok_or_else(|| super::not_found(at))?;
        if entry.checkpoints >= TASK_CHECKPOINTS_WAITING_MAX || entry.is_restoring {
            let why = "a checkpoint is being created or restored";
            return Err(super::busy(at, why));
        }
        entry.checkpoints += 1;
        if let (Some(_), Some(space)) = (token, self.spaces.get_mut(&at.workspace_id)) {
            space.works += 1;
        }
        Ok(())
    }

    /// A checkpoint or a drill has ended.
    pub(super) fn end_checkpoint_work(&mut self, at: &TaskRef, token: Option<RequestToken>) {
        if token.is_some() {
            self.work_done(&at.workspace_id);
        }
        if let Some(entry) = self.entry_mut(at) {
            entry.checkpoints = entry.checkpoints.saturating_sub(1);
        }
    }

    pub(super) fn on_checkpoint_made(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        token: Option<RequestToken>,
        result: Result<CheckpointInfo, ControlError>,
    ) {
        self.end_checkpoint_work(at, token);
        match (result, token) {
            (Ok(info), token) => {
                let id = info.checkpoint_id.clone();
                let decision = token.map(|token| PendingTaskRequest {
                    answer: Some(serde_json::to_value(&info).unwrap_or_default()),
                    ..PendingTaskRequest::new(token, format!("checkpoint {id}"))
                });
                self.input(fleet, at, TaskInput::CheckpointMade { id }, decision);
            }
            (Err(error), Some(token)) => fleet.respond_error(token, error),
            (Err(error), None) => {
                let event = LogEvent::warn("failed to create task checkpoint");
                let event = event.with("workspaceId", at.workspace_id.as_str());
                let event = event.with("taskId", at.task_id.as_str());
                fleet.log(event.with("error", error.message));
            }
        }
    }

    /// Time of the next checkpoint of a run; `None` if the policy disables periodic checkpoints.
    pub(super) fn next_checkpoint(fleet: &Fleet, id: &WorkspaceId) -> Option<u64> {
        let each_ms = fleet.workspace(id).ok()?.task_policy().checkpoint_ms?;
        Some(fleet.now().mono_ms.saturating_add(each_ms))
    }

    /// Makes checkpoints of tasks that have run for long since their last one.
    pub(super) fn make_periodic_checkpoints(&mut self, fleet: &mut Fleet) {
        let now_ms = fleet.now().mono_ms;
        let mut due = Vec::new();
        for (id, space) in &mut self.spaces {
            let next = Self::next_checkpoint(fleet, id);
            for (task, entry) in &mut space.entries {
                if entry.checkpoint_at_ms.is_none_or(|at_ms| now_ms < at_ms) {
                    continue;
                }
                let is_running = entry.conversing.is_some() || fleet.run_of(id, task).is_some();
                entry.checkpoint_at_ms = next.filter(|_| is_running);
                // While it is paused, nothing changes.
                let is_paused = entry.state().map(State::status) == Some(TaskStatus::Paused);
                if is_running && !is_paused {
                    due.push(TaskRef::new(id, task));
                }
            }
        }
        for at in due {
            self.make_checkpoint(fleet, &at, "periodic", None, None);
        }
    }

    /// Restores a work area once no run is in progress; or reports the changes that this would
    /// make.
    pub(super) fn restore(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        restore: RestoreTask,
    ) {
        let running = self.run_of(fleet, at);
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        if entry.is_restoring {
            return fleet.respond_error(token, super::busy(at, "its files are being restored"));
        }
        let Some(status) = entry.state().map(State::status) else {
            let why = entry.damage().unwrap_or("it is being created or removed");
            let error = super::damaged(at, why);
            return fleet.respond_error(token, error);
        };
        let checkpoint_id = restore.checkpoint_id;
        if restore.dry_run {
            return self.work_on_restore(fleet, token, at, checkpoint_id, true);
        }
        if status == TaskStatus::Running {
            let text = format!("task `{}` is running", at.task_id);
            let error = ControlError::new(ErrorCode::TaskRefused, text);
            let hint = format!("pause it first: `gdn task pause {}`", at.task_id);
            return fleet.respond_error(token, error.suggest(hint));
        }
        entry.is_restoring = true;
        entry.restore = Some(RestoreOrder {
            token,
            checkpoint_id,
        });
        if let Some(run) = running {
            if !self.end_conversing(fleet, at, run, false) {
                end_run(fleet, at, RESTORED);
            }
            return;
        }
        if let Some(run) = entry.queued_run() {
            self.forget_start(at);
            let input = TaskInput::Stopped { run, code: None };
            self.input(fleet, at, input, None);
        }
        self.begin_restore(fleet, at);
    }

    /// No run is in progress: a pending restore begins.
    pub(super) fn begin_restore(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        let order = self.entry_mut(at).and_then(|entry| entry.restore.take());
        if let Some(order) = order {
            self.work_on_restore(fleet, order.token, at, order.checkpoint_id, false);
        }
    }

    fn work_on_restore(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        at: &TaskRef,
        checkpoint_id: Option<String>,
        is_rehearsal: bool,
    ) {
        if let Some(space) = self.spaces.get_mut(&at.workspace_id) {
            space.works += 1;
        }
        let copy = self.copy_of_project(fleet, at);
        let (at, now) = (at.clone(), fleet.now().wall);
        Self::work(
            fleet,
            TaskWork::Restore {
                at,
                copy,
                token,
                checkpoint_id,
                is_rehearsal,
                now,
            },
        );
    }

    pub(super) fn on_restored(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        token: RequestToken,
        is_rehearsal: bool,
        result: Result<TaskRestored, ControlError>,
    ) {
        self.work_done(&at.workspace_id);
        if !is_rehearsal && let Some(entry) = self.entry_mut(at) {
            entry.is_restoring = false;
        }
        let restored = match result {
            Ok(restored) => restored,
            Err(error) => return fleet.respond_error(token, error),
        };
        let answer: Value = serde_json::to_value(&restored).unwrap_or_default();
        if is_rehearsal {
            return fleet.respond(token, &answer);
        }
        let id = restored.checkpoint_id;
        let decision = PendingTaskRequest {
            answer: Some(answer),
            ..PendingTaskRequest::new(token, format!("restore {id}"))
        };
        let pre_restore = restored.pre_restore;
        let input = TaskInput::Restored { id, pre_restore };
        self.input(fleet, at, input, Some(decision));
    }

    /// Cancels the pending restore of a task that is no longer usable.
    pub(super) fn give_up_restore(&mut self, at: &TaskRef) -> Option<RequestToken> {
        let entry: &mut TaskEntry = self.entry_mut(at)?;
        let order = entry.restore.take()?;
        entry.is_restoring = false;
        Some(order.token)
    }
}
