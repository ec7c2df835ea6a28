//! The processes that work for tasks: one for each run, a limited number at a time (`TASK-8`).

use std::collections::BTreeMap;

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::reply::PermissionDecision as Permission;
use goondan_cli_agents::stream::Stream;
use goondan_protocol::control::ControlError;
use goondan_protocol::ipc::{ToOrchestrator, ToTask};
use goondan_protocol::task::{
    CliAgentDefinition, TASK_OUTPUT_BYTES_MAX, TaskAssignment, TaskItemContent, TaskOutput,
    TaskPermission, TaskRunKind, TaskTold,
};
use goondan_tasks::limits::CHECK_OUTPUT_CHARS_MAX;
use goondan_tasks::machine::TaskInput;

use super::Tasks;
use super::conversation_runs::converses;
use super::entry::{PendingRun, StartOrder, TaskEntry};
use crate::LogEvent;
use crate::bus::queue::{Message, Notice};
use crate::exchange::tasks::{Clear, LogText, SecretsRead};
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::runs::RunEnd;
use crate::fleet::{Fleet, bundle_of};
use crate::limits::{ROOM_RETRY_MS, TASK_OUTPUT_WAITING_MAX, TASK_RUNS_AT_ONCE_MAX};

/// Items of a run. Text of a command beside the agent's program is output.
fn of_kind(entry: &TaskEntry, items: Vec<TaskItemContent>) -> Vec<TaskItemContent> {
    if entry.run_kind().is_agent() {
        return items;
    }
    let items = items.into_iter().map(|item| match item {
        TaskItemContent::Text { text } => TaskItemContent::Output { text },
        other => other,
    });
    items.collect()
}

/// Reason sent to a run's process to end its program.
const ENDED: &str = "the run has ended";

impl Tasks {
    /// Queues a run until there is capacity for it.
    pub(super) fn queue_run(&mut self, fleet: &mut Fleet, at: &TaskRef, order: StartOrder) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let run = order.run;
        entry.pending = Some(PendingRun {
            order,
            is_held: false,
            is_allowed: false,
            has_sandbox: false,
        });
        if is_ending(fleet, at) {
            self.forget_start(at);
            let input = TaskInput::Stopped { run, code: None };
            return self.input(fleet, at, input, None);
        }
        self.waiting.push_back(at.clone());
        fleet.post(Message::Notice(Notice::Budget(at.clone())));
    }

    /// Removes the run of a task from the queue.
    pub(super) fn forget_start(&mut self, at: &TaskRef) {
        self.waiting.retain(|waiting| waiting != at);
        self.reading.remove(at);
        self.preparing.remove(at);
        if let Some(entry) = self.entry_mut(at) {
            entry.pending = None;
        }
    }

    /// Starts the runs that wait, as long as there are places.
    pub(super) fn start_waiting(&mut self, fleet: &mut Fleet) {
        if fleet.is_stopping() || fleet.now().mono_ms < self.start_at_ms {
            return;
        }
        while self.has_place_for_run(fleet) {
            let may_start = |at: &TaskRef| {
                let pending = self.entry(at).and_then(|entry| entry.pending.as_ref());
                pending.is_none_or(|pending| !pending.is_held && pending.is_allowed)
            };
            let Some(index) = self.waiting.iter().position(may_start) else {
                return;
            };
            if let Some(at) = self.waiting.remove(index) {
                self.start_run(fleet, &at);
            }
        }
    }

    /// True if another run may be started.
    pub(super) fn has_place_for_run(&self, fleet: &Fleet) -> bool {
        let starting = self.reading.len() + self.preparing.len();
        under_way(fleet) + self.conversing() + starting < TASK_RUNS_AT_ONCE_MAX
            && fleet.has_place_for_process()
    }

    pub(super) fn start_run(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        if self.prepare_sandbox(fleet, at) {
            return;
        }
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let Some(pending) = &entry.pending else {
            return;
        };
        let references = pending.order.environment.clone();
        let run = pending.order.run;
        if references.is_empty() {
            return self.begin_run(fleet, at, BTreeMap::new());
        }
        self.reading.insert(at.clone());
        let at = at.clone();
        Self::work(
            fleet,
            TaskWork::ReadSecrets {
                at,
                run,
                references,
            },
        );
    }

    pub(super) fn on_secrets_read(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        result: SecretsRead,
    ) {
        if !self.reading.remove(at) {
            // The run is no longer queued.
            return;
        }
        let Some(result) = self.on_secrets_of_conversing(fleet, at, run, result) else {
            return;
        };
        let queued = self.entry(at).and_then(TaskEntry::queued_run);
        if queued == Some(run) {
            match result {
                Ok(secrets) => self.begin_run(fleet, at, secrets),
                Err(lost) => {
                    self.forget_start(at);
                    let error = format!(
                        "failed to read the value provided for {}: {}; provide it again with `gdn task provide`",
                        lost.names.join(", "),
                        lost.error
                    );
                    let names = lost.names;
                    let input = TaskInput::SecretsLost { run, names, error };
                    self.input(fleet, at, input, None);
                }
            }
        }
        self.start_waiting(fleet);
    }

    fn begin_run(&mut self, fleet: &mut Fleet, at: &TaskRef, secrets: BTreeMap<String, Clear>) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let Some(state) = entry.state() else {
            return;
        };
        let converses = converses(state);
        let kind = entry.pending.as_ref().map(|pending| pending.order.kind);
        // Its first agent's configuration has the commands that prepare and verify.
        let name = match kind {
            Some(TaskRunKind::Agent) => state.agent().clone(),
            _ => state.task.agent.clone(),
        };
        let tells_result = state.tells_result();
        let Some(PendingRun { order, is_held, .. }) = entry.pending.take() else {
            return;
        };
        if converses {
            return self.begin_conversing(fleet, at, order, secrets);
        }
        let run = order.run;
        let agent = agent_of(fleet, at, &name).and_then(|agent| {
            let kind = order.kind;
            // The result protocol was fixed when the task was created.
            if !kind.is_agent() || agent.format.tells_result() == tells_result {
                agent.for_run(kind).ok_or_else(|| {
                    let setting = kind.as_str();
                    format!("agent `{name}` no longer has `runtime.{setting}` in `goondan.yaml`")
                })
            } else {
                Err(format!(
                    "the `format` of agent `{name}` has changed since the task was created"
                ))
            }
        });
        match agent.and_then(|agent| assignment(fleet, at, agent, order, secrets)) {
            Ok(mut assignment) => {
                assignment.sandbox = self.sandbox_directory(fleet, at);
                if let Some((runs, cx)) = fleet.runs_and_cx(&at.workspace_id) {
                    runs.begin(cx, at, assignment, is_held);
                }
                let next = Self::next_checkpoint(fleet, &at.workspace_id);
                if let Some(entry) = self.entry_mut(at) {
                    entry.printed.clear();
                    entry.stream = Stream::default();
                    entry.checkpoint_at_ms = next;
                }
            }
            Err(error) => {
                self.input(fleet, at, TaskInput::NotSpawned { run, error }, None);
            }
        }
    }

    pub(super) fn end_run(&mut self, fleet: &mut Fleet, at: &TaskRef, run: u64) {
        if self.end_conversing(fleet, at, run, false) {
            return;
        }
        if fleet.run_of(&at.workspace_id, &at.task_id) == Some(run) {
            return end_run(fleet, at, ENDED);
        }
        // It has no process, or its process is gone.
        self.forget_start(at);
        self.input(fleet, at, TaskInput::Exited { run, code: None }, None);
    }

    /// Suspends or continues a run's program.
    pub(super) fn hold_run(&mut self, fleet: &mut Fleet, at: &TaskRef, run: u64, is_held: bool) {
        if let Some(entry) = self.entry_mut(at)
            && let Some(pending) = &mut entry.pending
            && pending.order.run == run
        {
            pending.is_held = is_held;
            self.start_waiting(fleet);
        } else if is_held && self.end_conversing(fleet, at, run, true) {
            // The task resumes with another turn.
        } else if fleet.run_of(&at.workspace_id, &at.task_id) == Some(run)
            && let Some((runs, cx)) = fleet.runs_and_cx(&at.workspace_id)
        {
            runs.hold(cx, at, is_held);
        }
    }

    pub(super) fn answer_permission(
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        request: String,
        decision: Permission,
    ) {
        if fleet.run_of(&at.workspace_id, &at.task_id) == Some(run) {
            let mut answer = TaskPermission {
                request,
                refusal: None,
                is_for_task: false,
                answers: Vec::new(),
            };
            match decision {
                Permission::Allow => {}
                Permission::AllowForTask => answer.is_for_task = true,
                Permission::Answers(answers) => answer.answers = answers,
                Permission::Refuse(why) => answer.refusal = Some(why),
            }
            if let Some((runs, cx)) = fleet.runs_and_cx(&at.workspace_id) {
                runs.tell(cx, at, ToTask::Permission(answer));
            }
        }
    }

    /// Handles a message of a run's process. An invalid message is an error that ends the process.
    pub(crate) fn on_message(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        message: ToOrchestrator,
    ) -> Result<(), String> {
        if Self::is_queue(at) {
            return self.on_proof_message(fleet, at, message);
        }
        let (id, task) = (&at.workspace_id, &at.task_id);
        let Some(run) = fleet.run_of(id, task) else {
            return Ok(());
        };
        match message {
            ToOrchestrator::TaskStarted(started) => {
                let input = TaskInput::Spawned {
                    run,
                    pid: started.pid,
                    start_time: started.start_time,
                };
                self.input(fleet, at, input, None);
            }
            ToOrchestrator::TaskNotStarted(not) => {
                note_end(fleet, at, RunEnd::NotStarted(not.error));
            }
            ToOrchestrator::TaskTold(told) => self.on_told(fleet, at, run, &told)?,
            ToOrchestrator::TaskOutput(output) => self.on_output(fleet, at, output)?,
            ToOrchestrator::TaskAlive(_) => {
                self.input(fleet, at, TaskInput::Alive { run }, None);
            }
            ToOrchestrator::TaskExited(exited) => {
                note_end(fleet, at, RunEnd::Exited(exited.code));
            }
            _ => {}
        }
        Ok(())
    }

    fn on_told(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        told: &TaskTold,
    ) -> Result<(), String> {
        let read = |text: &str| {
            serde_json::from_str::<CliEvent>(text)
                .map_err(|error| format!("it reported an invalid event: {error}"))
        };
        let events = told.events.iter().map(|raw| read(raw.get()));
        let events: Vec<CliEvent> = events.collect::<Result<_, _>>()?;
        let now = fleet.now().wall;
        for event in events {
            self.stream_event(fleet, at, run, &event);
            if let CliEvent::Block(block) | CliEvent::ToolMessage(block) = &event {
                let text = LogText::Block(now, block.clone());
                Self::log(fleet, at, text);
            }
            self.take_input(fleet, at, TaskInput::Told { run, event }, None);
        }
        self.flush(fleet, at);
        Ok(())
    }

    /// Adds an event of a run to the task's stream.
    pub(super) fn stream_event(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        event: &CliEvent,
    ) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let items = entry.stream.items(event);
        let items = of_kind(entry, items);
        self.add_to_stream(fleet, at, run, items);
    }

    pub(super) fn end_stream(&mut self, fleet: &mut Fleet, at: &TaskRef, run: u64) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let items = std::mem::take(&mut entry.stream).end();
        let items = of_kind(entry, items);
        self.add_to_stream(fleet, at, run, items);
    }

    fn on_output(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        output: TaskOutput,
    ) -> Result<(), String> {
        let TaskOutput { stream, mut text } = output;
        // A mask may be longer than the masked text.
        if text.len() > 2 * TASK_OUTPUT_BYTES_MAX {
            return Err("it sent too much output at once".to_owned());
        }
        let Some(entry) = self.entry_mut(at) else {
            return Ok(());
        };
        let kind = entry.run_kind();
        if entry.output_waiting >= TASK_OUTPUT_WAITING_MAX {
            entry.output_dropped = entry.output_dropped.saturating_add(text.len());
            return Ok(());
        }
        if !kind.is_agent() {
            entry.printed.push_str(&text);
            let chars = entry.printed.chars().count();
            if chars > 2 * CHECK_OUTPUT_CHARS_MAX {
                let beyond = chars - CHECK_OUTPUT_CHARS_MAX;
                entry.printed = entry.printed.chars().skip(beyond).collect();
            }
        }
        let dropped = std::mem::take(&mut entry.output_dropped);
        if dropped > 0 {
            text = format!("\n[{dropped} bytes were dropped: they came too fast]\n{text}");
        }
        entry.output_waiting += text.len();
        Self::log(fleet, at, LogText::Output(stream, text));
        Ok(())
    }

    pub(super) fn log(fleet: &mut Fleet, at: &TaskRef, text: LogText) {
        let at = at.clone();
        Self::work(fleet, TaskWork::Log { at, text });
    }

    /// Handles the exit of a run's process.
    pub(crate) fn on_run_gone(&mut self, fleet: &mut Fleet, at: &TaskRef, run: u64, end: RunEnd) {
        if Self::is_queue(at) {
            return self.on_proof_gone(fleet, at, run, end);
        }
        let now = fleet.now();
        if let Some(entry) = self.entry_mut(at)
            && entry.damage().is_some()
        {
            // The last write may be lost: the run is reported as lost when the task is read again.
            entry.reload_at(now.mono_ms);
        } else {
            // The files must be restored before anything else runs.
            let is_restoring = self.entry(at).is_some_and(|entry| entry.is_restoring);
            let is_ending = is_ending(fleet, at) || is_restoring;
            let input = match end {
                RunEnd::NotStarted(_) if is_ending => TaskInput::Stopped { run, code: None },
                RunEnd::Exited(code) if is_ending => TaskInput::Stopped { run, code },
                RunEnd::NotStarted(error) => TaskInput::NotSpawned { run, error },
                RunEnd::Exited(code) => TaskInput::Exited { run, code },
            };
            self.tell_printed(fleet, at, run);
            self.end_stream(fleet, at, run);
            self.input(fleet, at, input, None);
            self.begin_restore(fleet, at);
        }
        self.end_logs(fleet, at);
        self.start_waiting(fleet);
    }

    /// A command beside the agent's program has written all it will.
    fn tell_printed(&mut self, fleet: &mut Fleet, at: &TaskRef, run: u64) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let text = std::mem::take(&mut entry.printed);
        if !text.is_empty() {
            self.take_input(fleet, at, TaskInput::Printed { run, text }, None);
        }
    }

    /// Resources were exhausted when a run's process was started: the task retries.
    pub(crate) fn on_no_room(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        self.start_at_ms = fleet.now().mono_ms.saturating_add(ROOM_RETRY_MS);
        let why = "no resources for its process";
        let runs = fleet.runs_and_cx(&at.workspace_id);
        if let Some((run, end)) = runs.and_then(|(runs, _)| runs.take(&at.task_id, why)) {
            self.on_run_gone(fleet, at, run, end);
        }
    }

    /// A write failed: none of its facts is acknowledged, and the task continues from disk.
    pub(super) fn on_damaged(&mut self, fleet: &mut Fleet, at: &TaskRef, error: &ControlError) {
        let (id, task) = (&at.workspace_id, &at.task_id);
        let event = LogEvent::error("failed to write task events");
        let event = event.with("workspaceId", id.as_str());
        let event = event.with("taskId", task.as_str());
        fleet.log(event.with("error", error.message.as_str()));
        let running = self.run_of(fleet, at);
        let is_running = running.is_some();
        let now_ms = fleet.now().mono_ms;
        self.forget_start(at);
        if let Some(token) = self.give_up_restore(at) {
            fleet.respond_error(token, super::not_written(at, error));
        }
        if let Some(entry) = self.entry_mut(at) {
            let reload_at_ms = (!is_running).then_some(now_ms);
            let told = entry.damaged(error.message.clone(), reload_at_ms);
            for asker in told {
                Self::tell_error(fleet, &asker, super::not_written(at, error));
            }
        }
        if let Some(run) = running
            && self.end_conversing(fleet, at, run, false)
        {
            return;
        }
        if let Some((runs, cx)) = fleet.runs_and_cx(&at.workspace_id) {
            runs.kill(cx, &at.task_id);
        }
    }
}

/// True if the daemon or the workspace is closing, so that the task waits until it is opened again.
pub(super) fn is_ending(fleet: &Fleet, at: &TaskRef) -> bool {
    let workspace = fleet.workspace(&at.workspace_id);
    fleet.is_stopping() || workspace.map_or(true, |workspace| workspace.closing.is_some())
}

/// The agent that works for a task, as the configuration has it now.
pub(super) fn agent_of(
    fleet: &Fleet,
    at: &TaskRef,
    name: &goondan_protocol::ids::AgentName,
) -> Result<CliAgentDefinition, String> {
    let workspace = fleet
        .workspace(&at.workspace_id)
        .map_err(|error| error.message)?;
    let bundle = bundle_of(workspace).map_err(|error| error.message)?;
    let agent = bundle.cli_agent(name).cloned();
    agent.ok_or_else(|| {
        format!("`goondan.yaml` no longer has an agent `{name}` with `runtime.kind: cli`")
    })
}

pub(super) fn assignment(
    fleet: &Fleet,
    at: &TaskRef,
    agent: CliAgentDefinition,
    order: StartOrder,
    secrets: BTreeMap<String, Clear>,
) -> Result<TaskAssignment, String> {
    let workspace = fleet
        .workspace(&at.workspace_id)
        .map_err(|error| error.message)?;
    // Values provided for the task take precedence.
    let mut variables = agent.secrets.0.clone();
    let provided = secrets.into_iter();
    variables.extend(provided.map(|(name, Clear(value))| (name, value)));
    Ok(TaskAssignment {
        workspace_id: at.workspace_id.clone(),
        task_id: at.task_id.clone(),
        run: order.run,
        kind: order.kind,
        work_area: fleet.facts().work_area(at),
        // The caller sets it.
        sandbox: None,
        project_root: workspace.record.project_root.clone(),
        egress_socket: fleet.facts().egress_socket_of(at, &agent),
        agent,
        // It is determined when the process is started.
        group: None,
        session: order.session,
        prompt: order.prompt,
        secrets: variables,
    })
}

/// Number of runs with a process.
fn under_way(fleet: &Fleet) -> usize {
    let workspaces = fleet.workspaces().values();
    workspaces.map(|workspace| workspace.runs.count()).sum()
}

/// Asks a run's program to end.
pub(super) fn end_run(fleet: &mut Fleet, at: &TaskRef, reason: &str) {
    if let Some((runs, cx)) = fleet.runs_and_cx(&at.workspace_id) {
        runs.end(cx, at, reason);
    }
}

/// Records how a run's program ended.
pub(super) fn note_end(fleet: &mut Fleet, at: &TaskRef, end: RunEnd) {
    if let Some((runs, cx)) = fleet.runs_and_cx(&at.workspace_id) {
        runs.note_end(cx, &at.task_id, end);
    }
}
