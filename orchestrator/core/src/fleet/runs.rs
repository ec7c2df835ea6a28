//! Processes that run agents' programs for tasks: one for each run, never restarted automatically
//! (`TASK-8`). The task's next step is decided elsewhere.

use std::path::PathBuf;

use goondan_protocol::egress::EgressCaller;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::ipc::{Assignment, Shutdown, ToChild, ToTask};
use goondan_protocol::task::{CliAgentDefinition, TaskAssignment, TaskContinue, TaskId, TaskPause};

use super::slot::Slot;
use super::{Fleet, ProcessOwner};
use crate::exchange::TaskRef;
use crate::groups::program_group;
use crate::limits::{CHILD_PROCESSES_MAX, RUN_END_GRACE_MS, RUN_END_MARGIN_MS};

#[derive(Debug)]
pub(crate) struct TaskProcess {
    pub(super) slot: Slot,
    pub(super) assignment: TaskAssignment,
    /// True if the program is suspended.
    is_held: bool,
    /// True if its process has received the assignment. Before that, no program was started.
    is_told: bool,
    end: Option<RunEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The program could not be started.
    NotStarted(String),
    /// The program exited, with its exit code if known.
    Exited(Option<i32>),
}

impl ProcessOwner {
    pub(crate) fn task(at: &TaskRef) -> Self {
        Self::Task(at.workspace_id.clone(), at.task_id.clone())
    }
}

impl Fleet {
    fn run_mut(&mut self, id: &WorkspaceId, task: &TaskId) -> Option<&mut TaskProcess> {
        self.workspaces.get_mut(id)?.runs.get_mut(task)
    }

    pub(super) fn run_slot(&mut self, id: &WorkspaceId, task: &TaskId) -> Option<&mut Slot> {
        self.run_mut(id, task).map(|run| &mut run.slot)
    }

    /// True if another process may be started for a run.
    pub(crate) fn has_place_for_run(&self) -> bool {
        self.owners.len() < CHILD_PROCESSES_MAX
    }

    /// Number of runs with a process.
    pub(crate) fn runs_under_way(&self) -> usize {
        self.workspaces.values().map(|w| w.runs.len()).sum()
    }

    /// Directory of a task's work area.
    pub(crate) fn work_area(&self, at: &TaskRef) -> PathBuf {
        let tasks = self.facts.layout.tasks(&at.workspace_id);
        tasks.join(at.task_id.as_str())
    }

    /// The egress socket of an agent's program for a task; `None` if no allow list applies.
    pub(crate) fn egress_socket_of(
        &self,
        at: &TaskRef,
        agent: &CliAgentDefinition,
    ) -> Option<PathBuf> {
        let caller = EgressCaller::Agent(agent.name.clone());
        self.egress_socket(&at.workspace_id, &caller, &agent.sandbox)
    }

    /// Starts a run. With `is_held`, its program is suspended immediately.
    pub(crate) fn begin_run(&mut self, at: &TaskRef, assignment: TaskAssignment, is_held: bool) {
        let limits = assignment.agent.limits;
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let run = TaskProcess {
            slot: Slot::default(),
            assignment,
            is_held,
            is_told: false,
            end: None,
        };
        workspace.runs.insert(at.task_id.clone(), run);
        self.spawn(&ProcessOwner::task(at), limits);
    }

    pub(super) fn run_assignment(&mut self, id: &WorkspaceId, task: &TaskId) -> Option<Assignment> {
        let divided = self.facts.cgroup.clone();
        let run = self.run_mut(id, task)?;
        run.is_told = true;
        let process = run.slot.up().map(|up| up.process);
        run.assignment.group = divided
            .zip(process)
            .map(|(divided, process)| program_group(&divided, process));
        Some(Assignment::Task(Box::new(run.assignment.clone())))
    }

    /// Suspends a held run, now that its process has received the assignment.
    pub(super) fn on_run_told(&mut self, id: &WorkspaceId, task: &TaskId) {
        if self.run_mut(id, task).is_some_and(|run| run.is_held) {
            self.tell_run(id, task, ToTask::Pause(TaskPause {}));
        }
    }

    pub(crate) fn run_of(&self, id: &WorkspaceId, task: &TaskId) -> Option<u64> {
        let run = self.workspaces.get(id)?.runs.get(task)?;
        Some(run.assignment.run)
    }

    /// Sends a message to a run's process, if it is ready.
    pub(crate) fn tell_run(&mut self, id: &WorkspaceId, task: &TaskId, message: ToTask) {
        let ready = self.run_slot(id, task).and_then(|slot| slot.ready());
        if let Some(process) = ready {
            let owner = ProcessOwner::Task(id.clone(), task.clone());
            self.send(&owner, process, ToChild::Task(message));
        }
    }

    /// Suspends or resumes a run's program.
    pub(crate) fn hold_run(&mut self, at: &TaskRef, is_held: bool) {
        let (id, task) = (&at.workspace_id, &at.task_id);
        if let Some(run) = self.run_mut(id, task) {
            run.is_held = is_held;
            let message = if is_held {
                ToTask::Pause(TaskPause {})
            } else {
                ToTask::Continue(TaskContinue {})
            };
            self.tell_run(id, task, message);
        }
    }

    /// Asks a run to end, and kills it after the grace period.
    pub(crate) fn end_run(&mut self, at: &TaskRef, reason: &str) {
        self.drain_run(&at.workspace_id, &at.task_id, RUN_END_GRACE_MS, reason);
    }

    /// Asks the runs of a workspace to end.
    pub(super) fn drain_runs(&mut self, id: &WorkspaceId, grace: Option<u64>, reason: &str) {
        let workspace = self.workspaces.get(id).into_iter();
        let tasks: Vec<TaskId> = workspace.flat_map(|w| w.runs.keys().cloned()).collect();
        let grace_period_ms = grace.unwrap_or(RUN_END_GRACE_MS);
        for task in tasks {
            self.drain_run(id, &task, grace_period_ms, reason);
        }
    }

    fn drain_run(&mut self, id: &WorkspaceId, task: &TaskId, grace_period_ms: u64, reason: &str) {
        let now = self.cx.now();
        // The process waits for the program and then needs time to report.
        let killed_after_ms = grace_period_ms.saturating_add(RUN_END_MARGIN_MS);
        let Some(slot) = self.run_slot(id, task) else {
            return;
        };
        let running = slot.up().map(|up| up.process);
        if let Some(process) = slot.drain(now, killed_after_ms) {
            let shutdown = Shutdown {
                grace_period_ms,
                reason: reason.to_owned(),
            };
            let owner = ProcessOwner::Task(id.clone(), task.clone());
            self.send(&owner, process, ToChild::shutdown(owner.role(), shutdown));
        } else if let Some(process) = running
            && !self.run_mut(id, task).is_some_and(|run| run.is_told)
        {
            self.kill(process, true);
        }
    }

    /// Kills a run with all its processes.
    pub(crate) fn kill_run(&mut self, at: &TaskRef) {
        let slot = self.run_slot(&at.workspace_id, &at.task_id);
        if let Some(process) = slot.and_then(|slot| slot.up().map(|up| up.process)) {
            self.kill(process, true);
        }
    }

    /// Records the end of a run's program. The process must exit now.
    pub(crate) fn note_run_end(&mut self, id: &WorkspaceId, task: &TaskId, end: RunEnd) {
        let now = self.cx.now();
        if let Some(run) = self.run_mut(id, task) {
            run.end.get_or_insert(end);
            run.slot.drain(now, RUN_END_MARGIN_MS);
        }
    }

    /// Handles the exit of a run's process. Returns the run's number and how it ended.
    pub(crate) fn take_run(
        &mut self,
        id: &WorkspaceId,
        task: &TaskId,
        how: &str,
    ) -> Option<(u64, RunEnd)> {
        let run = self.workspaces.get_mut(id)?.runs.remove(task)?;
        let end = run.end.unwrap_or_else(|| {
            if run.is_told {
                RunEnd::Exited(None)
            } else {
                RunEnd::NotStarted(format!("failed to start its process: {how}"))
            }
        });
        Some((run.assignment.run, end))
    }
}
