//! Processes that run agents' programs for tasks: one for each run, never restarted automatically
//! (`TASK-8`). The module `tasks` decides the task's next step.

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_protocol::egress::EgressCaller;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::ipc::{Assignment, Shutdown, ToChild, ToTask};
use goondan_protocol::task::{CliAgentDefinition, TaskAssignment, TaskContinue, TaskId, TaskPause};

use super::ProcessOwner;
use super::slot::Slot;
use crate::Facts;
use crate::bus::context::Cx;
use crate::exchange::TaskRef;
use crate::groups::program_group;
use crate::limits::{RUN_END_GRACE_MS, RUN_END_MARGIN_MS};

#[derive(Debug)]
pub(crate) struct TaskProcess {
    slot: Slot,
    assignment: TaskAssignment,
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

/// The runs of a workspace's tasks that have a process.
///
/// Lists a run from the start of its process until its exit is handled. The program of a run starts
/// only after its process receives the assignment, so a run that ends before that has not started.
#[derive(Debug, Default)]
pub(crate) struct TaskProcesses(BTreeMap<TaskId, TaskProcess>);

impl TaskProcesses {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&TaskId, &TaskProcess)> {
        self.0.iter()
    }

    pub(super) fn get(&self, task: &TaskId) -> Option<&TaskProcess> {
        self.0.get(task)
    }

    /// Number of runs with a process.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn slot_mut(&mut self, task: &TaskId) -> Option<&mut Slot> {
        self.0.get_mut(task).map(|run| &mut run.slot)
    }

    /// The number of a task's run.
    pub(crate) fn run_of(&self, task: &TaskId) -> Option<u64> {
        Some(self.0.get(task)?.assignment.run)
    }

    /// Starts a run. With `is_held`, its program is suspended immediately.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Cx,
        at: &TaskRef,
        assignment: TaskAssignment,
        is_held: bool,
    ) {
        let limits = assignment.agent.limits;
        let mut run = TaskProcess {
            slot: Slot::default(),
            assignment,
            is_held,
            is_told: false,
            end: None,
        };
        cx.spawn(&mut run.slot, &ProcessOwner::task(at), None, limits);
        self.0.insert(at.task_id.clone(), run);
    }

    pub(super) fn assignment(&mut self, facts: &Facts, task: &TaskId) -> Option<Assignment> {
        let run = self.0.get_mut(task)?;
        run.is_told = true;
        let process = run.slot.up().map(|up| up.process);
        let divided = facts.cgroup.as_ref();
        run.assignment.group = divided
            .zip(process)
            .map(|(divided, process)| program_group(divided, process));
        Some(Assignment::Task(Box::new(run.assignment.clone())))
    }

    /// Suspends a held run, now that its process has received the assignment.
    pub(super) fn on_told(&mut self, cx: &mut Cx, at: &TaskRef) {
        if self.0.get(&at.task_id).is_some_and(|run| run.is_held) {
            self.tell(cx, at, ToTask::Pause(TaskPause {}));
        }
    }

    /// Sends a message to a run's process, if it is ready.
    pub(crate) fn tell(&mut self, cx: &mut Cx, at: &TaskRef, message: ToTask) {
        let run = self.0.get(&at.task_id);
        if let Some(process) = run.and_then(|run| run.slot.ready()) {
            let owner = ProcessOwner::task(at);
            cx.send_process(process, &owner, None, ToChild::Task(message));
        }
    }

    /// Suspends or resumes a run's program.
    pub(crate) fn hold(&mut self, cx: &mut Cx, at: &TaskRef, is_held: bool) {
        if let Some(run) = self.0.get_mut(&at.task_id) {
            run.is_held = is_held;
            let message = if is_held {
                ToTask::Pause(TaskPause {})
            } else {
                ToTask::Continue(TaskContinue {})
            };
            self.tell(cx, at, message);
        }
    }

    /// Asks a run to end, and kills it after the grace period.
    pub(crate) fn end(&mut self, cx: &mut Cx, at: &TaskRef, reason: &str) {
        self.drain(cx, at, RUN_END_GRACE_MS, reason);
    }

    /// Asks all runs to end.
    pub(super) fn drain_all(
        &mut self,
        cx: &mut Cx,
        id: &WorkspaceId,
        grace: Option<u64>,
        reason: &str,
    ) {
        let tasks: Vec<TaskRef> = self.0.keys().map(|task| TaskRef::new(id, task)).collect();
        for at in tasks {
            self.drain(cx, &at, grace.unwrap_or(RUN_END_GRACE_MS), reason);
        }
    }

    fn drain(&mut self, cx: &mut Cx, at: &TaskRef, grace_period_ms: u64, reason: &str) {
        // The process waits for the program and then needs time to report.
        let killed_after_ms = grace_period_ms.saturating_add(RUN_END_MARGIN_MS);
        let Some(run) = self.0.get_mut(&at.task_id) else {
            return;
        };
        if let Some(process) = run.slot.drain(cx.now(), killed_after_ms) {
            let shutdown = Shutdown {
                grace_period_ms,
                reason: reason.to_owned(),
            };
            let owner = ProcessOwner::task(at);
            let shutdown = ToChild::shutdown(owner.role(), shutdown);
            cx.send_process(process, &owner, None, shutdown);
        } else if !run.is_told {
            cx.kill(&mut run.slot, true);
        }
    }

    /// Kills a run with all its processes.
    pub(crate) fn kill(&mut self, cx: &mut Cx, task: &TaskId) {
        if let Some(run) = self.0.get_mut(task) {
            cx.kill(&mut run.slot, true);
        }
    }

    /// Records the end of a run's program. The process must exit now.
    pub(crate) fn note_end(&mut self, cx: &Cx, task: &TaskId, end: RunEnd) {
        if let Some(run) = self.0.get_mut(task) {
            run.end.get_or_insert(end);
            run.slot.drain(cx.now(), RUN_END_MARGIN_MS);
        }
    }

    /// Handles the exit of a run's process. Returns the run's number and how it ended.
    pub(crate) fn take(&mut self, task: &TaskId, how: &str) -> Option<(u64, RunEnd)> {
        let run = self.0.remove(task)?;
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

impl TaskProcess {
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn agent(&self) -> &CliAgentDefinition {
        &self.assignment.agent
    }
}

impl Facts {
    /// Directory of a task's work area.
    pub(crate) fn work_area(&self, at: &TaskRef) -> PathBuf {
        let tasks = self.layout.tasks(&at.workspace_id);
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
}
