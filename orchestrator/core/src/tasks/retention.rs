//! Removes tasks that ended long ago, by policy or at a user's request (`TASK-10`).
//!
//! A task expires when the policy's retention time after its end has passed. The policy removes it
//! only if it was expired in two consecutive checks, so a temporary clock jump between them removes
//! nothing; its work area is moved to the backups. Tasks are removed one at a time.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::control::{
    ControlError, ErrorCode, PruneTasks, PrunedTask, TaskRemoved, TasksPruned,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;
use goondan_tasks::state::State;

use super::Tasks;
use super::entry::TaskEntry;
use super::runs::is_ending;
use crate::exchange::tasks::RemovalCaller;
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;
use crate::limits::RETENTION_INTERVAL_MS;
use crate::{LogEvent, RequestToken};

#[derive(Debug, Default)]
pub(super) struct RetentionState {
    next_look_ms: u64,
    /// Expired at the last check.
    due: BTreeSet<TaskId>,
}

/// Queue of removals, executed one at a time.
#[derive(Debug, Default)]
pub(super) struct Removals {
    waiting: VecDeque<Removal>,
    is_under_way: bool,
    prunes: Vec<Prune>,
}

#[derive(Debug)]
struct Removal {
    at: TaskRef,
    reply: RemovalCaller,
    with_backup: bool,
}

/// A client's request.
#[derive(Debug)]
struct Prune {
    token: RequestToken,
    left: usize,
    done: Vec<PrunedTask>,
}

/// `since` plus `after_ms`; `None` if it overflows.
pub(super) fn due_at(since: Timestamp, after_ms: u64) -> Option<Timestamp> {
    let after_ms = i64::try_from(after_ms).ok()?;
    let due_ms = since.as_unix_millis().checked_add(after_ms)?;
    Some(Timestamp::from_unix_millis(due_ms))
}

impl Tasks {
    /// Tasks of a workspace that ended more than `keep_ms` ago, oldest first.
    fn due_of(&self, fleet: &Fleet, id: &WorkspaceId, keep_ms: u64) -> Vec<PrunedTask> {
        let now = fleet.now().wall;
        let entries = self.spaces.get(id).into_iter();
        let entries = entries.flat_map(|space| &space.entries);
        let due = entries.filter_map(|(task, entry)| {
            let info = entry.info(id)?;
            let ended_at = entry.state()?.ended_at()?;
            let due_at = due_at(ended_at, keep_ms)?;
            (due_at <= now).then(|| PrunedTask {
                task_id: task.clone(),
                title: info.title,
                status: info.status,
                ended_at,
                due_at,
                backup: None,
                problem: None,
            })
        });
        let mut due: Vec<PrunedTask> = due.collect();
        due.sort_by_key(|task| task.ended_at);
        due
    }

    /// Periodically checks for tasks that the workspaces' policies expire.
    pub(super) fn look_for_old(&mut self, fleet: &mut Fleet) {
        let now_ms = fleet.now().mono_ms;
        let mut looked = Vec::new();
        for (id, space) in &mut self.spaces {
            let workspace = fleet.workspace(id).ok();
            let workspace = workspace.filter(|workspace| workspace.closing.is_none());
            let keep_ms = workspace.and_then(|workspace| workspace.task_policy().keep_ms);
            if let Some(keep_ms) = keep_ms
                && space.is_loaded
                && space.seen.next_look_ms <= now_ms
            {
                space.seen.next_look_ms = now_ms.saturating_add(RETENTION_INTERVAL_MS);
                looked.push((id.clone(), keep_ms));
            }
        }
        for (id, keep_ms) in looked {
            let due = self.due_of(fleet, &id, keep_ms);
            self.on_due_tasks(fleet, &id, due);
        }
        self.remove_next(fleet);
    }

    fn on_due_tasks(&mut self, fleet: &mut Fleet, id: &WorkspaceId, due: Vec<PrunedTask>) {
        let Some(space) = self.spaces.get_mut(id) else {
            return;
        };
        let seen = due.iter().map(|task| task.task_id.clone()).collect();
        let before = std::mem::replace(&mut space.seen.due, seen);
        for task in due {
            let (message, is_removed) = if before.contains(&task.task_id) {
                ("removing old ended task", true)
            } else {
                ("ended task will be removed soon", false)
            };
            let event = LogEvent::info(message).with("workspaceId", id.as_str());
            let event = event.with("taskId", task.task_id.as_str());
            fleet.log(event.with("endedAt", task.ended_at.to_string()));
            if is_removed {
                self.removals.waiting.push_back(Removal {
                    at: TaskRef::new(id, &task.task_id),
                    reply: RemovalCaller::Policy,
                    with_backup: true,
                });
            }
        }
    }

    /// Lists or removes expired tasks at a user's request.
    pub(super) fn prune(&mut self, fleet: &mut Fleet, token: RequestToken, request: &PruneTasks) {
        let id = &request.workspace_id;
        let workspace = match fleet.workspace(id) {
            Ok(workspace) => workspace,
            Err(error) => return fleet.respond_error(token, error),
        };
        let keep_ms = request
            .older_than_ms
            .or_else(|| workspace.task_policy().keep_ms);
        let Some(keep_ms) = keep_ms else {
            let message = "the policy of this workspace keeps tasks forever";
            let error = ControlError::new(ErrorCode::InvalidRequest, message).suggest(
                "pass an age with `--older-than`, or set `policy.tasks.keepDays` of the Swarm",
            );
            return fleet.respond_error(token, error);
        };
        let tasks = self.due_of(fleet, id, keep_ms);
        if request.dry_run || tasks.is_empty() {
            let removed = !request.dry_run;
            return fleet.respond(token, &TasksPruned { tasks, removed });
        }
        if let Some(space) = self.spaces.get_mut(id) {
            space.works += 1;
        }
        let removals = tasks.iter().map(|task| Removal {
            at: TaskRef::new(id, &task.task_id),
            reply: RemovalCaller::Prune(token),
            with_backup: !request.no_backup,
        });
        self.removals.waiting.extend(removals);
        self.removals.prunes.push(Prune {
            token,
            left: tasks.len(),
            done: tasks,
        });
        self.remove_next(fleet);
    }

    /// True if the policy still expires the task. The clock may have been corrected, or the policy
    /// changed, while other tasks were removed.
    fn is_due_by_policy(&self, fleet: &Fleet, at: &TaskRef) -> bool {
        let workspace = fleet.workspace(&at.workspace_id).ok();
        let keep_ms = workspace.and_then(|workspace| workspace.task_policy().keep_ms);
        let ended_at = self
            .entry(at)
            .and_then(TaskEntry::state)
            .and_then(State::ended_at);
        let due_at = keep_ms
            .zip(ended_at)
            .and_then(|(keep_ms, at)| due_at(at, keep_ms));
        due_at.is_some_and(|due_at| due_at <= fleet.now().wall)
    }

    /// Starts the next removal if none is in progress. A task that cannot be removed now stays.
    fn remove_next(&mut self, fleet: &mut Fleet) {
        while !self.removals.is_under_way
            && let Some(removal) = self.removals.waiting.pop_front()
        {
            let Removal {
                at,
                reply,
                with_backup,
            } = removal;
            if matches!(reply, RemovalCaller::Policy) && !self.is_due_by_policy(fleet, &at) {
                continue;
            }
            match self.may_remove(fleet, &at) {
                Ok(()) => {
                    self.removals.is_under_way = true;
                    self.begin_removal(fleet, &at, reply, with_backup);
                }
                Err(error) => self.note_removal(fleet, &at, reply, Err(error)),
            }
        }
    }

    /// Handles the result of one removal.
    pub(super) fn on_one_of_many_removed(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        reply: RemovalCaller,
        result: Result<TaskRemoved, ControlError>,
    ) {
        self.removals.is_under_way = false;
        self.note_removal(fleet, at, reply, result);
        self.remove_next(fleet);
    }

    fn note_removal(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        reply: RemovalCaller,
        result: Result<TaskRemoved, ControlError>,
    ) {
        let RemovalCaller::Prune(token) = reply else {
            if let Err(error) = result {
                let event = LogEvent::warn("failed to remove old ended task");
                let event = event.with("workspaceId", at.workspace_id.as_str());
                let event = event.with("taskId", at.task_id.as_str());
                fleet.log(event.with("error", error.message));
            }
            return;
        };
        let mut prunes = self.removals.prunes.iter_mut();
        let Some(prune) = prunes.find(|prune| prune.token == token) else {
            return;
        };
        prune.left = prune.left.saturating_sub(1);
        let mut done = prune.done.iter_mut();
        if let Some(task) = done.find(|task| task.task_id == at.task_id) {
            match result {
                Ok(removed) => task.backup = removed.backup,
                Err(error) => task.problem = Some(error.message),
            }
        }
        if prune.left > 0 {
            return;
        }
        let place = self
            .removals
            .prunes
            .iter()
            .position(|prune| prune.token == token);
        if let Some(place) = place {
            let tasks = self.removals.prunes.swap_remove(place).done;
            let removed = true;
            self.work_done(&at.workspace_id);
            fleet.respond(token, &TasksPruned { tasks, removed });
        }
    }

    /// Checks that a task has ended and no operation on it is in progress.
    pub(super) fn may_remove(&self, fleet: &Fleet, at: &TaskRef) -> Result<(), ControlError> {
        if is_ending(fleet, at) {
            return Err(super::busy(at, "its workspace is being stopped"));
        }
        let is_running = self.run_of(fleet, at).is_some();
        let entry = self.entry(at).ok_or_else(|| super::not_found(at))?;
        let is_over = entry
            .state()
            .is_none_or(|state| state.status().is_final() && state.run.is_none());
        if entry.checkpoints > 0 || entry.is_restoring {
            return Err(super::busy(at, "a checkpoint is being created or restored"));
        }
        if is_running || !is_over || entry.is_busy() {
            let text = format!("task `{}` has not ended", at.task_id);
            let error = ControlError::new(ErrorCode::TaskRefused, text);
            let hint = format!("cancel it: `gdn task cancel {}`", at.task_id);
            return Err(error.suggest(hint));
        }
        Ok(())
    }

    /// Starts the removal of a task that passed the checks.
    pub(super) fn begin_removal(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        reply: RemovalCaller,
        with_backup: bool,
    ) {
        if let Some(entry) = self.entry_mut(at) {
            TaskEntry::leave(entry);
        }
        if let Some(space) = self.spaces.get_mut(&at.workspace_id) {
            space.works += 1;
        }
        Self::work(
            fleet,
            TaskWork::Remove {
                at: at.clone(),
                reply,
                with_backup,
            },
        );
    }
}
