//! Proofs of the merge queue: the `setup` and `verify` commands of the agents whose proposals an
//! attempt has, in the files of the attempt (`QUEUE-1`).
//!
//! They run in a process like the runs of tasks, one after another, in the name of the queue. Their
//! home is the work area of the task whose agent has the command. A proof without a sign of life is
//! ended like a stalled run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use goondan_merge_queue::{MergeQueue, Proof};
use goondan_protocol::control::MERGE_QUEUE;
use goondan_protocol::ids::{RunId, WorkerId, WorkspaceId};
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::task::{TASK_OUTPUT_BYTES_MAX, TaskId, TaskRunKind};
use goondan_store::file_names::sandbox_dir;
use goondan_tasks::limits::{CHECK_OUTPUT_CHARS_MAX, STALL_MS};

use super::Tasks;
use super::entry::{StartOrder, TaskEntry};
use super::runs::{agent_of, assignment, end_run, is_ending, note_end};
use crate::exchange::TaskRef;
use crate::fleet::Fleet;
use crate::fleet::runs::RunEnd;

/// Reason sent to the process of a proof to end its program.
const ENDED: &str = "the proof is no longer needed";

/// Time without a sign of life before a proof counts as stalled, in milliseconds.
const PROOF_STALL_MS: u64 = STALL_MS.unsigned_abs();

#[derive(Debug)]
pub(super) struct ProofRun {
    attempt: u64,
    /// Commands that have not ended, each with the task whose agent has it.
    commands: VecDeque<(TaskId, TaskRunKind)>,
    is_running: bool,
    /// Last sign of life of the running command, on the clock of `ClockTime::mono_ms`.
    active_at_ms: u64,
    /// The end of their output.
    printed: String,
}

/// The queue of a workspace, as if it were one of its tasks.
pub(super) fn queue_ref(id: &WorkspaceId) -> Option<TaskRef> {
    let task: TaskId = MERGE_QUEUE.parse().ok()?;
    Some(TaskRef::new(id, &task))
}

/// The directory of an attempt.
fn directory_of(fleet: &Fleet, id: &WorkspaceId, attempt: u64) -> Option<PathBuf> {
    let run: RunId = MERGE_QUEUE.parse().ok()?;
    let worker: WorkerId = format!("attempt-{attempt}").parse().ok()?;
    let sandboxes = fleet.facts().layout.sandboxes(id);
    Some(sandbox_dir(&sandboxes, &run, &worker))
}

impl Tasks {
    /// Begins the proof of the attempt in progress.
    pub(super) fn prove(&mut self, fleet: &mut Fleet, id: &WorkspaceId, attempt: u64) {
        let queue = self.spaces.get(id).map(|space| &space.queue);
        let machine = queue.and_then(|queue| queue.machine.as_ref());
        let tried = machine.map(MergeQueue::tried).unwrap_or_default();
        let mut agents = BTreeSet::new();
        let mut commands = VecDeque::new();
        for proposal in tried {
            let at = TaskRef::new(id, &proposal.task);
            let Some(state) = self.entry(&at).and_then(TaskEntry::durable) else {
                continue;
            };
            if agents.insert(state.task.agent.clone()) {
                if state.task.checks.setup {
                    commands.push_back((proposal.task.clone(), TaskRunKind::Setup));
                }
                commands.push_back((proposal.task, TaskRunKind::Verify));
            }
        }
        if commands.is_empty() {
            let why = "its tasks cannot be read".to_owned();
            return self.on_proved(fleet, id, attempt, Proof::Lost(why));
        }
        if let Some(queue) = self.queue_mut(id) {
            queue.proof = Some(ProofRun {
                attempt,
                commands,
                is_running: false,
                active_at_ms: 0,
                printed: String::new(),
            });
        }
        self.run_proof(fleet, id);
    }

    /// Starts the next command of a proof, if there is a place for its process.
    pub(super) fn run_proof(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let Some(at) = queue_ref(id).filter(|at| !is_ending(fleet, at)) else {
            return;
        };
        // The process of an earlier command may still be there.
        let is_busy = fleet.run_of(id, &at.task_id).is_some() || !self.has_place_for_run(fleet);
        let now_ms = fleet.now().mono_ms;
        let queue = self.queue_mut(id);
        let Some(proof) = queue.and_then(|queue| queue.proof.as_mut()) else {
            return;
        };
        if proof.is_running || is_busy {
            return;
        }
        let Some((task, kind)) = proof.commands.front().cloned() else {
            return;
        };
        let attempt = proof.attempt;
        proof.is_running = true;
        proof.active_at_ms = now_ms;
        if let Err(why) = self.begin_command(fleet, &at, attempt, &task, kind) {
            if let Some(queue) = self.queue_mut(id) {
                queue.proof = None;
            }
            self.on_proved(fleet, id, attempt, Proof::Lost(why));
        }
    }

    fn begin_command(
        &self,
        fleet: &mut Fleet,
        at: &TaskRef,
        attempt: u64,
        task: &TaskId,
        kind: TaskRunKind,
    ) -> Result<(), String> {
        let id = &at.workspace_id;
        let of = TaskRef::new(id, task);
        let state = self.entry(&of).and_then(TaskEntry::durable);
        let name = &state.ok_or("its task cannot be read")?.task.agent;
        let agent = agent_of(fleet, &of, name)?;
        let agent = agent.for_run(kind).ok_or_else(|| {
            let setting = kind.as_str();
            format!("agent `{name}` no longer has `runtime.{setting}` in `goondan.yaml`")
        })?;
        let order = StartOrder {
            run: attempt,
            session: None,
            prompt: String::new(),
            environment: Vec::new(),
            kind,
        };
        let mut assignment = assignment(fleet, &of, agent, order, BTreeMap::new())?;
        assignment.sandbox = directory_of(fleet, id, attempt);
        let (runs, cx) = fleet.runs_and_cx(id).ok_or("the workspace is not open")?;
        runs.begin(cx, at, assignment, false);
        Ok(())
    }

    /// Ends a proof that shows no sign of life.
    pub(super) fn end_stalled_proof(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let now_ms = fleet.now().mono_ms;
        let proof = self.queue_mut(id).and_then(|queue| queue.proof.as_ref());
        let stalled = proof.filter(|proof| {
            proof.is_running && now_ms.saturating_sub(proof.active_at_ms) >= PROOF_STALL_MS
        });
        let Some(attempt) = stalled.map(|proof| proof.attempt) else {
            return;
        };
        self.end_proof(fleet, id);
        let why = "`verify` showed no sign of life".to_owned();
        self.on_proved(fleet, id, attempt, Proof::Lost(why));
    }

    /// Ends the proof in progress, if any.
    pub(super) fn end_proof(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let proof = self.queue_mut(id).and_then(|queue| queue.proof.take());
        if let (Some(proof), Some(at)) = (proof, queue_ref(id))
            && proof.is_running
        {
            end_run(fleet, &at, ENDED);
        }
    }

    /// Ends the proof of an attempt, and removes the attempt's files when nothing uses them.
    pub(super) fn discard(&mut self, fleet: &mut Fleet, id: &WorkspaceId, attempt: u64) {
        let Some(at) = queue_ref(id) else {
            return;
        };
        let proof = self.queue_mut(id).and_then(|queue| queue.proof.as_ref());
        if proof.is_some_and(|proof| proof.attempt == attempt) {
            self.end_proof(fleet, id);
        }
        if fleet.run_of(id, &at.task_id) != Some(attempt) {
            return self.discard_files(fleet, id, attempt);
        }
        if let Some(queue) = self.queue_mut(id) {
            queue.discards.push(attempt);
        }
    }

    /// True if it is the queue, and not a task.
    pub(super) fn is_queue(at: &TaskRef) -> bool {
        at.task_id.as_str() == MERGE_QUEUE
    }

    /// Handles a message of a proof's process. An invalid message is an error that ends the process.
    pub(super) fn on_proof_message(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        message: ToOrchestrator,
    ) -> Result<(), String> {
        let id = &at.workspace_id;
        let now_ms = fleet.now().mono_ms;
        if let Some(proof) = self.queue_mut(id).and_then(|queue| queue.proof.as_mut()) {
            proof.active_at_ms = now_ms;
        }
        match message {
            ToOrchestrator::TaskOutput(output) => {
                // A mask may be longer than the masked text.
                if output.text.len() > 2 * TASK_OUTPUT_BYTES_MAX {
                    return Err("it sent too much output at once".to_owned());
                }
                if let Some(proof) = self.queue_mut(id).and_then(|queue| queue.proof.as_mut()) {
                    proof.printed.push_str(&output.text);
                    let chars = proof.printed.chars().count();
                    if chars > 2 * CHECK_OUTPUT_CHARS_MAX {
                        let beyond = chars - CHECK_OUTPUT_CHARS_MAX;
                        proof.printed = proof.printed.chars().skip(beyond).collect();
                    }
                }
            }
            ToOrchestrator::TaskNotStarted(not) => {
                note_end(fleet, at, RunEnd::NotStarted(not.error));
            }
            ToOrchestrator::TaskExited(exited) => {
                note_end(fleet, at, RunEnd::Exited(exited.code));
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the exit of a proof's process.
    pub(super) fn on_proof_gone(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        attempt: u64,
        end: RunEnd,
    ) {
        let id = &at.workspace_id;
        let is_ending = is_ending(fleet, at);
        let Some(queue) = self.queue_mut(id) else {
            return;
        };
        let discards = std::mem::take(&mut queue.discards);
        let proof = queue
            .proof
            .as_mut()
            .filter(|proof| proof.attempt == attempt && proof.is_running);
        let mut proved = None;
        if let Some(proof) = proof {
            proof.is_running = false;
            let printed = proof.printed.trim_end();
            let command = proof.commands.pop_front();
            let name = command.map_or("verify", |(_, kind)| kind.as_str());
            proved = match end {
                RunEnd::Exited(Some(0)) if proof.commands.is_empty() => Some(Proof::Passed),
                RunEnd::Exited(Some(0)) => None,
                RunEnd::Exited(Some(code)) => Some(Proof::Failed {
                    log: format!("{printed}\n[`{name}` exited with {code}]"),
                }),
                RunEnd::Exited(None) => {
                    Some(Proof::Lost(format!("the outcome of `{name}` is unknown")))
                }
                RunEnd::NotStarted(why) => Some(Proof::Lost(why)),
            };
        }
        if is_ending {
            return;
        }
        for attempt in discards {
            self.discard_files(fleet, id, attempt);
        }
        if let Some(proof) = proved {
            if let Some(queue) = self.queue_mut(id) {
                queue.proof = None;
            }
            self.on_proved(fleet, id, attempt, proof);
        }
        self.run_proof(fleet, id);
        self.start_waiting(fleet);
    }
}
