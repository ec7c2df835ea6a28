//! Tasks: their next steps, and the order in which these become durable (`TASK-1`, `TASK-7`,
//! `TASK-8`).
//!
//! A task's own state machine decides its steps (`goondan_tasks`). This module connects it to the
//! rest:
//!
//! * `entry`: one task, and its pending writes. A consequence of a fact is executed or reported
//!   only after the fact is durable.
//! * `runs`: the processes that work for tasks, a limited number at a time.
//! * `conversations`: the same for agents of `runtime.kind: llm`, whose runs are turns.
//! * `proposals`: the sandboxes and proposals of tasks with a source.
//! * `queue`, `proofs`: the merge queue of the project.
//! * `checkpoints`: making and restoring checkpoints of tasks.
//! * `disk`: disk usage and quotas of work areas.
//! * `accounts`: usage limits of the accounts that the agents of tasks use.
//! * `budgets`: spending of tasks, and their shared budgets.
//! * `drills`: restore drills.
//! * `retention`: removal of tasks that ended long ago.
//! * `notifications`: notifications through connections about tasks that wait for a person.
//! * `requests`, `views`, `logs`: requests of clients. Only a person changes anything.
//! * `workers`: selection of the agent for a new task.
//! * `by_agents`: requests of agents: tasks of their own conversation, and their status.
//! * `lifecycle`: tasks of a workspace that is opened or closed, and of a daemon that stops.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use goondan_protocol::agents::AgentAsk;
use goondan_protocol::control::{Call, ControlError, ErrorCode};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::task::TaskId;
use goondan_tasks::fact::TaskEvent;
use goondan_tasks::machine::{InputRefusal, TaskEffect, TaskInput};
use goondan_tasks::state::State;

use crate::bus::queue::{Message, Notice};
use crate::exchange::{TaskRef, TaskResult, TaskWork};
use crate::fleet::Fleet;
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::{CoreEffect, RequestToken};

mod accounts;
mod budgets;
#[cfg(test)]
mod budgets_tests;
mod by_agents;
mod chat_decisions;
#[cfg(test)]
mod chat_decisions_tests;
#[cfg(test)]
mod chat_proposals_tests;
mod checkpoints;
mod conversation_runs;
mod conversations;
mod deliveries;
mod disk;
mod drills;
mod entry;
#[cfg(test)]
mod keeping_tests;
mod lifecycle;
mod logs;
mod notifications;
#[cfg(test)]
mod notifying_tests;
mod proofs;
pub(crate) mod proposals;
#[cfg(test)]
mod proposing_tests;
mod queue;
#[cfg(test)]
mod queueing_tests;
mod requests;
mod retention;
mod runs;
#[cfg(test)]
mod tests;
mod views;
mod workers;
#[cfg(test)]
mod world;

use entry::{Batch, DurableBatch, PendingTaskRequest, TaskEntry, TaskRequester};
use notifications::NotificationQueue;

/// The tasks of all open workspaces.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    spaces: BTreeMap<WorkspaceId, WorkspaceTasks>,
    /// Tasks with a queued run, in order.
    waiting: VecDeque<TaskRef>,
    /// Tasks that wait for the secrets of their run.
    reading: BTreeSet<TaskRef>,
    /// Tasks that wait for the sandbox of their run.
    preparing: BTreeSet<TaskRef>,
    /// Work areas that are being measured, and the actions that wait for the result.
    looks: BTreeMap<TaskRef, Vec<disk::MeasurementFollowUp>>,
    removals: retention::Removals,
    /// No drill is begun by policy before, on the clock of `Now::mono_ms`.
    drill_at_ms: u64,
    notifying: NotificationQueue,
    /// No run is started before this time, because resources were exhausted; on the clock of
    /// `Now::mono_ms`.
    start_at_ms: u64,
    waiters: Vec<by_agents::TaskWaiter>,
    /// Requests of clients that are there and waited, or wait, for more of a log.
    readers: HashSet<RequestToken>,
}

#[derive(Debug, Default)]
struct WorkspaceTasks {
    /// True if the tasks are loaded.
    is_loaded: bool,
    /// Requests that wait until they are.
    held: Vec<(RequestToken, Call)>,
    /// Requests of agents that wait until then.
    held_asks: Vec<(Requester, AgentAsk)>,
    entries: BTreeMap<TaskId, TaskEntry>,
    /// Requests about work areas that are being carried out.
    works: usize,
    /// State of the retention policy.
    seen: retention::RetentionState,
    queue: queue::Queue,
}

fn not_found(at: &TaskRef) -> ControlError {
    let (id, task) = (&at.workspace_id, &at.task_id);
    let text = format!("task `{task}` does not exist in workspace `{id}`");
    ControlError::new(ErrorCode::TaskNotFound, text)
        .suggest("list all tasks: `gdn task list --all`")
}

fn refused(at: &TaskRef, refused: &InputRefusal) -> ControlError {
    let text = format!("task `{}`: {refused}", at.task_id);
    let code = match refused {
        InputRefusal::Unknown(_) => ErrorCode::TaskNotFound,
        _ => ErrorCode::TaskRefused,
    };
    let error = ControlError::new(code, text);
    match refused {
        // The task does not exist, so it cannot be shown.
        InputRefusal::BadTask => error.suggest("see the options: `gdn task new --help`"),
        _ => error.suggest(format!("see its status: `gdn task show {}`", at.task_id)),
    }
}

impl Tasks {
    fn entry_mut(&mut self, at: &TaskRef) -> Option<&mut TaskEntry> {
        self.spaces
            .get_mut(&at.workspace_id)?
            .entries
            .get_mut(&at.task_id)
    }

    fn entry(&self, at: &TaskRef) -> Option<&TaskEntry> {
        self.spaces.get(&at.workspace_id)?.entries.get(&at.task_id)
    }

    /// True if a workspace has tasks with pending writes.
    pub(crate) fn is_busy(&self, id: &WorkspaceId) -> bool {
        self.spaces.get(id).is_some_and(|space| {
            let is_opening = !space.is_loaded;
            is_opening || space.works > 0 || space.entries.values().any(TaskEntry::is_busy)
        })
    }

    fn work(fleet: &mut Fleet, work: TaskWork) {
        fleet.cx().emit(CoreEffect::Tasks(Box::new(work)));
    }

    /// Sends an input to a task's state machine, for `decision` if a client waits for the result.
    /// The consequences are executed after the facts are durable.
    fn input(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        input: TaskInput,
        decision: Option<PendingTaskRequest>,
    ) {
        self.take_input(fleet, at, input, decision);
        self.flush(fleet, at);
    }

    fn take_input(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        input: TaskInput,
        decision: Option<PendingTaskRequest>,
    ) {
        let now = fleet.now().wall;
        // A report of a run in progress does not start a run.
        let is_told = matches!(input, TaskInput::Told { .. } | TaskInput::Alive { .. });
        let agents = if is_told {
            None
        } else {
            self.profiles_of(fleet, at)
        };
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        if let Some(agents) = agents {
            entry.set_agents(agents);
        }
        let asker = decision.as_ref().map(|decision| decision.asker.clone());
        let told = |state: &State, fact: &TaskEvent| notifications::wanted(fleet, at, state, fact);
        let error = match entry.handle(input, decision, now, told) {
            Ok(()) => return,
            Err(entry::InputFailure::Refused(why)) => refused(at, &why),
            Err(entry::InputFailure::Damaged(why)) => damaged(at, &why),
            Err(entry::InputFailure::Busy(why)) => busy(at, why),
        };
        if let Some(asker) = asker {
            Self::tell_error(fleet, &asker, error);
        }
    }

    /// Writes pending facts, unless a write is in progress; executes effects that need no write.
    fn flush(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        while let Some(entry) = self.entry_mut(at) {
            if let Some((facts, state)) = entry.next_write() {
                let at = at.clone();
                return Self::work(fleet, TaskWork::Write { at, facts, state });
            }
            let Some(batch) = entry.take_unwritten() else {
                return;
            };
            self.carry_out(fleet, at, batch);
        }
    }

    pub(crate) fn is_known(&self, at: &TaskRef) -> bool {
        self.entry(at).is_some()
    }

    /// Something was written, or not.
    fn on_written(&mut self, fleet: &mut Fleet, at: &TaskRef, result: Result<(), ControlError>) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        match result {
            Ok(()) => {
                let Some(written) = entry.written() else {
                    return;
                };
                let DurableBatch {
                    batch,
                    changed,
                    has_spent,
                    has_points,
                } = written;
                if has_points {
                    fleet.post(Message::Notice(Notice::Decisions(at.workspace_id.clone())));
                }
                if has_spent {
                    fleet.post(Message::Notice(Notice::Spent(at.clone())));
                }
                if let Some((status, blocked_by)) = changed {
                    let task_id = at.task_id.clone();
                    let event = LifecycleEvent::TaskChanged {
                        task_id,
                        status,
                        blocked_by,
                    };
                    fleet.announce(&at.workspace_id, event, None);
                }
                self.carry_out(fleet, at, batch);
                self.flush(fleet, at);
                self.note_change_to_queue(fleet, at);
                self.end_logs(fleet, at);
                self.answer_waiters(fleet);
            }
            Err(error) => self.on_damaged(fleet, at, &error),
        }
    }

    /// Executes the consequences of durable facts: first the effects, then the answers.
    fn carry_out(&mut self, fleet: &mut Fleet, at: &TaskRef, batch: Batch) {
        for effect in batch.effects {
            self.carry_out_effect(fleet, at, effect);
        }
        for decision in batch.decisions {
            let event = LifecycleEvent::TaskDecided {
                task_id: at.task_id.clone(),
                decision: decision.what,
            };
            fleet.announce(&at.workspace_id, event, None);
            match (decision.answer, decision.asker) {
                (Some(answer), TaskRequester::Client(token)) => fleet.respond(token, &answer),
                (_, asker) => self.tell_info(fleet, &asker, at),
            }
        }
    }

    fn carry_out_effect(&mut self, fleet: &mut Fleet, at: &TaskRef, effect: TaskEffect) {
        match effect {
            TaskEffect::StartRun {
                run,
                session,
                prompt,
                environment,
                kind,
            } => {
                let order = entry::StartOrder {
                    run,
                    session,
                    prompt,
                    environment,
                    kind,
                };
                self.queue_run(fleet, at, order);
            }
            TaskEffect::EndRun { run } => self.end_run(fleet, at, run),
            TaskEffect::PauseRun { run } => self.hold_run(fleet, at, run, true),
            TaskEffect::ContinueRun { run } => self.hold_run(fleet, at, run, false),
            TaskEffect::AnswerPermission {
                run,
                request,
                decision,
            } => Self::answer_permission(fleet, at, run, request, decision),
            TaskEffect::CheckHandoff { text } => {
                let copy = self.copy_of_project(fleet, at);
                let at = at.clone();
                Self::work(fleet, TaskWork::CheckHandoff { at, copy, text });
            }
            TaskEffect::MakeProposal {
                phase,
                words,
                test_log,
            } => self.make_proposal(fleet, at, phase, words, test_log),
            TaskEffect::MakeCheckpoint { kind } => {
                self.make_checkpoint(fleet, at, kind, None, None);
            }
            TaskEffect::FindDocuments { documents } => {
                let copy = self.copy_of_project(fleet, at);
                let at = at.clone();
                Self::work(
                    fleet,
                    TaskWork::FindDocuments {
                        at,
                        copy,
                        documents,
                    },
                );
            }
            TaskEffect::Notify { id } => self.notify(fleet, at, id),
            TaskEffect::SendNotification { id } => self.send_notification(fleet, at, id),
        }
    }

    pub(crate) fn on_done(&mut self, fleet: &mut Fleet, done: TaskResult) {
        match done {
            TaskResult::Loaded {
                workspace_id,
                found,
            } => self.on_loaded(fleet, &workspace_id, found),
            TaskResult::Reloaded {
                workspace_id,
                found,
            } => self.on_reloaded(fleet, &workspace_id, found),
            TaskResult::Created { at, result } => self.on_created(fleet, &at, result),
            TaskResult::Written { at, result } => self.on_written(fleet, &at, result),
            TaskResult::Logged { at, bytes, items } => {
                if let Some(entry) = self.entry_mut(&at) {
                    entry.output_waiting = entry.output_waiting.saturating_sub(bytes);
                    entry.items_waiting = entry.items_waiting.saturating_sub(items);
                }
            }
            TaskResult::SecretKept {
                at,
                token,
                id,
                result,
            } => self.on_secret_kept(fleet, &at, token, id, result),
            TaskResult::SecretsRead { at, run, result } => {
                self.on_secrets_read(fleet, &at, run, result);
            }
            TaskResult::Imported {
                workspace_id,
                token,
                result,
            } => self.on_imported(fleet, &workspace_id, token, result),
            TaskResult::DocumentsFound { at, missing } => {
                self.input(fleet, &at, TaskInput::DocumentsFound { missing }, None);
            }
            TaskResult::Measured { at, result } => self.on_measured(fleet, &at, result),
            TaskResult::CheckpointMade {
                at,
                token,
                result,
                disk,
            } => {
                self.on_checkpoint_made(fleet, &at, token, result);
                if disk.is_some() {
                    self.note_look(fleet, &at, disk);
                }
            }
            TaskResult::Restored {
                at,
                token,
                is_rehearsal,
                result,
            } => self.on_restored(fleet, &at, token, is_rehearsal, result),
            TaskResult::HandoffRefused { at, problem } => {
                self.input(fleet, &at, TaskInput::HandoffRefused { problem }, None);
            }
            TaskResult::Drilled { at, token, result } => self.on_drilled(fleet, &at, token, result),
            TaskResult::Removed { at, reply, result } => self.on_removed(fleet, &at, reply, result),
        }
    }

    /// Handles the passing of time.
    pub(crate) fn on_time(&mut self, fleet: &mut Fleet) {
        if fleet.is_stopping() {
            return;
        }
        let now = fleet.now();
        let mut due = Vec::new();
        for (id, space) in &mut self.spaces {
            let is_open = fleet.workspace(id).is_ok_and(|w| w.closing.is_none());
            if !is_open || !space.is_loaded {
                continue;
            }
            for (task, entry) in &mut space.entries {
                if entry.is_due(now) {
                    due.push(TaskRef::new(id, task));
                }
            }
        }
        for at in due {
            self.on_due(fleet, &at);
        }
        self.answer_waiters(fleet);
        // In a restored state root, the steps below wait until a person resumes it.
        if fleet.cx().is_paused() {
            return;
        }
        self.serve_notifications(fleet);
        self.make_periodic_checkpoints(fleet);
        self.look_at_running(fleet);
        self.drill_by_policy(fleet);
        self.look_for_old(fleet);
        self.serve_queues(fleet);
        self.start_waiting(fleet);
    }

    /// Tasks of a workspace whose histories are open for writing.
    pub(crate) fn open_tasks(&self, id: &WorkspaceId) -> Vec<TaskId> {
        let entries = self.spaces.get(id).into_iter();
        let entries = entries.flat_map(|space| &space.entries);
        let open = entries.filter(|(_, entry)| entry.damage().is_none());
        open.map(|(task_id, _)| task_id.clone()).collect()
    }

    /// Damage in a workspace may have been repaired.
    pub(crate) fn on_repaired(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let now_ms = fleet.now().mono_ms;
        if let Some(space) = self.spaces.get_mut(id) {
            let entries = space.entries.values_mut();
            entries.for_each(|entry| entry.hasten_reload(now_ms));
        }
        self.on_time(fleet);
    }

    fn on_due(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        if entry.begin_reload() {
            return Self::work(fleet, TaskWork::Reload { at: at.clone() });
        }
        // A queued run sends no sign of life and must not count as stalled; a turn is monitored
        // elsewhere.
        if let Some(run) = entry.unwatched_run() {
            self.take_input(fleet, at, TaskInput::Alive { run }, None);
        }
        self.input(fleet, at, TaskInput::Tick, None);
    }
}

/// Error for a task that is temporarily busy.
fn busy(at: &TaskRef, why: &str) -> ControlError {
    let text = format!("task `{}` is not available now: {why}", at.task_id);
    ControlError::new(ErrorCode::TaskRefused, text).suggest("try again in a moment")
}

/// Error for a failed write about a task: a full disk, for example, is not damage.
fn not_written(at: &TaskRef, error: &ControlError) -> ControlError {
    if error.code == ErrorCode::Damaged {
        return damaged(at, &error.message);
    }
    let text = format!(
        "failed to write task `{}`; nothing was changed: {}",
        at.task_id, error.message
    );
    ControlError::new(error.code, text).suggest(
        "fix the cause, such as a full disk, and try again; nothing that was acknowledged is lost",
    )
}

/// Error for a task that cannot be used because of damage.
fn damaged(at: &TaskRef, why: &str) -> ControlError {
    let text = format!(
        "failed to use the work area of task `{}`: {why}",
        at.task_id
    );
    ControlError::new(ErrorCode::Damaged, text).suggest(
        "fix the cause; the task is loaded again automatically, and nothing that was acknowledged is lost",
    )
}
