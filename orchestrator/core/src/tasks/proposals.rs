//! Sandboxes and proposals of tasks with a source (`REPO-1`, `REPO-3`).
//!
//! The sandbox of a task is its agent's sandbox in the run that has the task's id. It is prepared
//! before each run, which is idempotent, so that no state is needed. A complete phase becomes a
//! proposal after its run; a daemon that finds the proposal missing requests it again. An approval
//! of the last phase waits until the proposal is applied; applying it again has no effect.

use std::path::PathBuf;

use goondan_protocol::control::{
    ApplyProposal, ApproveTask, ControlError, CreateProposal, ErrorCode, PrepareSandbox,
    ProposalComment, ProposalDetail, RemoveSandbox, SandboxRef, TaskProposal, TaskProposalFile,
    TaskSandbox,
};
use goondan_protocol::ids::{AgentName, RunId, WorkerId, WorkspaceId};
use goondan_protocol::task::{SANDBOX_WORK, TaskDelivery, TaskId};
use goondan_store::file_names::sandbox_dir;
use goondan_tasks::machine::{Delivery, TaskInput};
use goondan_tasks::state::State;
use serde_json::Value;

use super::Tasks;
use super::entry::{PendingDelivery, PendingTaskRequest, TaskEntry, TaskRequester};
use super::runs::is_ending;
use crate::LogEvent;
use crate::bus::queue::Message;
use crate::exchange::tasks::{SandboxOperation, SandboxStep};
use crate::exchange::{
    ApplyByAgent, DeliverBranch, PrepareForTask, ProposalWork, ProposeForTask, ReviewingAgent,
    TakeComments, TaskRef,
};
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::fleet::{Fleet, Workspace};
use crate::limits::TASK_PROPOSAL_FILES_TOLD;

/// The sandbox of a task: that of its agent in the run with the task's id.
fn sandbox_ref(task: &TaskId, agent: &AgentName) -> Option<SandboxRef> {
    Some(SandboxRef {
        run_id: RunId::new(task.as_str()).ok()?,
        agent_id: WorkerId::new(agent.as_str()).ok()?,
    })
}

/// The sandbox of a task, if it has a source.
pub(super) fn sandbox_of(state: &State) -> Option<SandboxRef> {
    let task = &state.task;
    let has_source = !task.source.is_none();
    has_source.then(|| sandbox_ref(&task.task_id, &task.agent))?
}

/// Summary of a proposal for the task's history.
fn task_proposal(detail: ProposalDetail) -> TaskProposal {
    let more_files = detail.files.len().saturating_sub(TASK_PROPOSAL_FILES_TOLD);
    let files = detail.files.into_iter().map(|file| TaskProposalFile {
        path: file.change.path,
        status: file.change.status,
    });
    TaskProposal {
        digest: detail.info.digest,
        files: files.take(TASK_PROPOSAL_FILES_TOLD).collect(),
        more_files,
        is_delivered: false,
        branch: None,
        pull_request: None,
    }
}

/// An error in one line, with its suggestion.
pub(crate) fn in_words(error: &ControlError) -> String {
    match &error.suggestion {
        Some(suggestion) => format!("{}; {suggestion}", error.message),
        None => error.message.clone(),
    }
}

/// Patterns of files with secrets of a workspace's project.
pub(super) fn secret_patterns(fleet: &Fleet, id: &WorkspaceId) -> Vec<String> {
    let workspace = fleet.workspaces().get(id);
    workspace
        .map(Workspace::secret_patterns)
        .unwrap_or_default()
}

/// Requests an operation on the sandbox of a task.
pub(super) fn sandbox_work(
    fleet: &mut Fleet,
    at: &TaskRef,
    step: SandboxOperation,
    work: ProposalWork,
) {
    let at = at.clone();
    fleet.post(Message::Sandbox(SandboxStep { at, step }, Box::new(work)));
}

/// Removes the sandbox of a removed task, unless its proposal waits for a person.
pub(super) fn remove_sandbox(
    fleet: &mut Fleet,
    at: &TaskRef,
    (of, is_delivered): (SandboxRef, bool),
) {
    let work = ProposalWork::Remove(RemoveSandbox {
        workspace_id: at.workspace_id.clone(),
        at: of,
        // A proposal that became a branch still counts as pending, but is no longer needed.
        force: is_delivered,
    });
    sandbox_work(fleet, at, SandboxOperation::Remove, work);
}

impl Tasks {
    /// Directory in which the agent of a task works, for users.
    pub(super) fn sandbox_told(
        &self,
        fleet: &Fleet,
        at: &TaskRef,
        state: &State,
    ) -> Option<TaskSandbox> {
        let of = sandbox_of(state)?;
        let work_dir = self.copy_of_project(fleet, at)?;
        Some(TaskSandbox { at: of, work_dir })
    }

    /// The directory of a task's sandbox, if it has a source.
    pub(super) fn sandbox_directory(&self, fleet: &Fleet, at: &TaskRef) -> Option<PathBuf> {
        let entry = self.entry(at)?;
        let state = entry.state().or_else(|| entry.durable())?;
        let of = sandbox_of(state)?;
        let sandboxes = fleet.facts().layout.sandboxes(&at.workspace_id);
        Some(sandbox_dir(&sandboxes, &of.run_id, &of.agent_id))
    }

    /// Its copy of the project, in that.
    pub(super) fn copy_of_project(&self, fleet: &Fleet, at: &TaskRef) -> Option<PathBuf> {
        Some(self.sandbox_directory(fleet, at)?.join(SANDBOX_WORK))
    }

    /// Prepares the sandbox for a run; false if the run needs none, or it is ready.
    pub(super) fn prepare_sandbox(&mut self, fleet: &mut Fleet, at: &TaskRef) -> bool {
        let Some(entry) = self.entry(at) else {
            return false;
        };
        let pending = entry.pending.as_ref().filter(|it| !it.has_sandbox);
        let (Some(pending), Some(state)) = (pending, entry.state()) else {
            return false;
        };
        let Some(of) = sandbox_of(state) else {
            return false;
        };
        let (run, made_at) = (pending.order.run, state.created_at());
        let source = state.task.source.repository().cloned();
        let credentials = self.repository_access(fleet, at).credentials;
        let workspace_id = at.workspace_id.clone();
        let prepare = PrepareSandbox {
            workspace_id: workspace_id.clone(),
            at: of,
            files: Vec::new(),
            allow: Vec::new(),
            exclude: secret_patterns(fleet, &workspace_id),
            may_create: Vec::new(),
        };
        let work = ProposalWork::PrepareForTask(PrepareForTask {
            workspace_id,
            prepare,
            made_at,
            source,
            credentials,
        });
        self.preparing.insert(at.clone());
        sandbox_work(fleet, at, SandboxOperation::Prepare { run }, work);
        true
    }

    fn on_prepared(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        result: Result<Value, ControlError>,
    ) {
        // The run may no longer be queued, or another one may be.
        if self.entry(at).and_then(TaskEntry::queued_run) != Some(run) {
            return self.start_waiting(fleet);
        }
        self.preparing.remove(at);
        match result {
            Ok(_) => {
                let entry = self.entry_mut(at);
                if let Some(pending) = entry.and_then(|entry| entry.pending.as_mut()) {
                    pending.has_sandbox = true;
                }
                self.start_run(fleet, at);
            }
            Err(error) => {
                self.forget_start(at);
                let input = if is_ending(fleet, at) {
                    TaskInput::Stopped { run, code: None }
                } else {
                    let why = in_words(&error);
                    let error = format!("failed to create its copy of the project: {why}");
                    TaskInput::NotSpawned { run, error }
                };
                self.input(fleet, at, input, None);
            }
        }
        self.start_waiting(fleet);
    }

    /// Requests a proposal for a complete phase.
    pub(super) fn make_proposal(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        phase: u32,
        words: Option<String>,
        test_log: Option<String>,
    ) {
        // The next daemon, or the next opening of the workspace, finds it missing.
        if is_ending(fleet, at) {
            return;
        }
        let state = self.entry(at).and_then(TaskEntry::state);
        let Some(of) = state.and_then(sandbox_of) else {
            return;
        };
        let create = CreateProposal {
            workspace_id: at.workspace_id.clone(),
            notes: format!("phase {phase} of task `{}`", at.task_id),
            at: of,
            summary: None,
            test_log,
        };
        let work = ProposalWork::ProposeForTask(ProposeForTask {
            workspace_id: at.workspace_id.clone(),
            create,
            words,
        });
        sandbox_work(fleet, at, SandboxOperation::Propose { phase }, work);
    }

    fn on_proposed(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        phase: u32,
        result: Result<Value, ControlError>,
    ) {
        let result = match result {
            Err(_) if is_ending(fleet, at) => return,
            Err(error) => Err(in_words(&error)),
            Ok(detail) => serde_json::from_value::<Option<ProposalDetail>>(detail)
                .map(|detail| detail.map(task_proposal))
                .map_err(|error| error.to_string()),
        };
        self.input(fleet, at, TaskInput::ProposalMade { phase, result }, None);
    }

    /// A person approves a phase: the proposal of the last one is delivered first.
    pub(super) fn approve(
        &mut self,
        fleet: &mut Fleet,
        asker: TaskRequester,
        at: &TaskRef,
        phase: u32,
        approval: &ApproveTask,
    ) {
        if let Some(error) = self.queued_error(at) {
            return Self::tell_error(fleet, &asker, error);
        }
        let what = what_by(&asker, format!("approve phase {phase}"));
        let decision = PendingTaskRequest::new(asker, what);
        let state = self.entry(at).and_then(TaskEntry::state);
        let proposal = state.and_then(|state| state.to_deliver(phase));
        let of = state.and_then(sandbox_of);
        let delivery = match self.delivery_of(fleet, at) {
            _ if approval.without_delivery => TaskDelivery::Proposal,
            delivery => delivery,
        };
        let is_left = delivery == TaskDelivery::Proposal;
        let (Some(digest), Some(of), false) = (proposal.map(|it| it.digest.clone()), of, is_left)
        else {
            // One that could not be made is not left by configuration: a person decides that.
            let is_left = approval.without_delivery || proposal.is_some();
            let delivery = match is_left {
                true => Delivery::Left,
                false => Delivery::None,
            };
            let input = TaskInput::Approve { phase, delivery };
            return self.input(fleet, at, input, Some(decision));
        };
        let apply = ApplyProposal {
            workspace_id: at.workspace_id.clone(),
            at: of,
            digest: Some(digest.clone()),
            allow_moved_base: approval.allow_moved_base,
        };
        let work = match delivery {
            TaskDelivery::Branch | TaskDelivery::PullRequest => {
                ProposalWork::DeliverBranch(DeliverBranch {
                    workspace_id: at.workspace_id.clone(),
                    apply,
                    credentials: self.repository_access(fleet, at).credentials,
                })
            }
            TaskDelivery::Apply | TaskDelivery::Proposal => ProposalWork::Deliver(apply),
        };
        let pending = PendingDelivery::new(decision, phase, digest, delivery);
        self.begin_delivery(fleet, at, pending, work);
    }

    /// A person requests rework of a phase: the open comments on its proposal are marked as sent
    /// first. The run number identifies the request, so that one that a crash interrupted loses no
    /// comments.
    pub(super) fn rework(
        &mut self,
        fleet: &mut Fleet,
        asker: TaskRequester,
        at: &TaskRef,
        phase: u32,
        text: String,
    ) {
        let what = what_by(&asker, format!("rework phase {phase}"));
        let decision = PendingTaskRequest::new(asker, what);
        let entry = self.entry(at).filter(|it| it.may_rework(phase, &text));
        let state = entry.and_then(TaskEntry::state);
        let Some((of, round)) = state.and_then(|state| Some((sandbox_of(state)?, state.runs())))
        else {
            let comments = Vec::new();
            let input = TaskInput::Rework {
                phase,
                text,
                comments,
            };
            return self.input(fleet, at, input, Some(decision));
        };
        if let Some(space) = self.spaces.get_mut(&at.workspace_id) {
            space.works += 1;
        }
        if let Some(entry) = self.entry_mut(at) {
            entry.reworking = Some(decision);
        }
        let work = ProposalWork::TakeComments(TakeComments {
            workspace_id: at.workspace_id.clone(),
            at: of,
            round,
        });
        sandbox_work(
            fleet,
            at,
            SandboxOperation::TakeComments { phase, text },
            work,
        );
    }

    fn on_comments(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        phase: u32,
        text: String,
        result: Result<Value, ControlError>,
    ) {
        self.work_done(&at.workspace_id);
        let decision = self.entry_mut(at).and_then(|entry| entry.reworking.take());
        let Some(decision) = decision else {
            return;
        };
        let comments = result.and_then(|comments| {
            serde_json::from_value::<Vec<ProposalComment>>(comments)
                .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
        });
        match comments {
            Ok(comments) => {
                let comments = comments.into_iter().map(Into::into).collect();
                let input = TaskInput::Rework {
                    phase,
                    text,
                    comments,
                };
                self.input(fleet, at, input, Some(decision));
            }
            Err(error) => Self::tell_error(fleet, &decision.asker, error),
        }
    }

    /// The sandbox of a task, if it works on a copy of the project.
    pub(super) fn sandbox_of_task(&self, at: &TaskRef) -> Option<SandboxRef> {
        self.entry(at)
            .and_then(TaskEntry::state)
            .and_then(sandbox_of)
    }

    /// An agent applies the proposal of a task that it created, which approves its last phase.
    pub(super) fn apply_for_agent(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        at: &TaskRef,
        digest: String,
        by: ReviewingAgent,
    ) -> Result<(), ControlError> {
        let refused = |why: &str| {
            let text = format!("task `{}`: {why}", at.task_id);
            Err(ControlError::new(ErrorCode::TaskRefused, text))
        };
        if let Some(error) = self.queued_error(at) {
            return Err(error);
        }
        let entry = self.entry(at);
        if let Some(under_way) = entry.and_then(TaskEntry::decision_under_way) {
            return Err(super::busy(at, under_way));
        }
        let Some(state) = entry.and_then(TaskEntry::state) else {
            return refused("its work area cannot be used now");
        };
        let proposal = state.proposal();
        // A repeated call, after a crash of the agent, finds it done.
        if proposal.is_some_and(|it| it.is_delivered && it.digest == digest) {
            self.tell_agent(fleet, requester, at);
            return Ok(());
        }
        let phase = state.review().unwrap_or_default();
        let waiting = state.to_deliver(phase);
        let of = sandbox_of(state).filter(|_| waiting.is_some());
        let Some(of) = of else {
            return refused("no proposal of its last phase waits for a review");
        };
        if self.delivery_of(fleet, at) != TaskDelivery::Apply {
            return refused("its agent has another `deliver` than `apply`; a person approves it");
        }
        let what = format!(
            "approve phase {phase}, by agent `{}` in `{}`",
            by.agent, by.instance_key
        );
        let asker = TaskRequester::Agent(requester.clone());
        let work = ProposalWork::ApplyByAgent(ApplyByAgent {
            workspace_id: at.workspace_id.clone(),
            apply: ApplyProposal {
                workspace_id: at.workspace_id.clone(),
                at: of,
                digest: Some(digest.clone()),
                allow_moved_base: false,
            },
            by,
        });
        let request = PendingTaskRequest::new(asker, what);
        let pending = PendingDelivery::new(request, phase, digest, TaskDelivery::Apply);
        self.begin_delivery(fleet, at, pending, work);
        Ok(())
    }

    /// Starts the delivery of a proposal, on which an approval waits.
    fn begin_delivery(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        pending: PendingDelivery,
        work: ProposalWork,
    ) {
        if let Some(space) = self.spaces.get_mut(&at.workspace_id) {
            space.works += 1;
        }
        if let Some(entry) = self.entry_mut(at) {
            entry.delivering = Some(pending);
        }
        sandbox_work(fleet, at, SandboxOperation::Deliver, work);
    }

    /// The sandbox of a task, and true if its proposal was delivered.
    pub(super) fn sandbox_to_remove(&self, at: &TaskRef) -> Option<(SandboxRef, bool)> {
        let state = self.entry(at).and_then(TaskEntry::durable)?;
        let is_delivered = state.proposal().is_some_and(|it| it.is_delivered);
        Some((sandbox_of(state)?, is_delivered))
    }

    /// Something was done about the sandbox of a task, or could not be.
    pub(crate) fn on_sandbox_done(
        &mut self,
        fleet: &mut Fleet,
        done: &SandboxStep,
        result: Result<Value, ControlError>,
    ) {
        let at = &done.at;
        match &done.step {
            SandboxOperation::Prepare { run } => self.on_prepared(fleet, at, *run, result),
            SandboxOperation::Propose { phase } => self.on_proposed(fleet, at, *phase, result),
            SandboxOperation::Deliver => self.on_delivered(fleet, at, result),
            SandboxOperation::NoteDelivery => self.on_delivery_noted(fleet, at, result),
            SandboxOperation::TakeComments { phase, text } => {
                self.on_comments(fleet, at, *phase, text.clone(), result);
            }
            SandboxOperation::Queue(then) => {
                let then = then.as_ref().clone();
                self.on_queue_step(fleet, &at.workspace_id, then, result);
            }
            SandboxOperation::Remove => match result {
                // A task that never ran has no sandbox.
                Err(error) if error.code != ErrorCode::SandboxNotFound => {
                    let event = LogEvent::warn("failed to remove the sandbox of a removed task");
                    let event = event.with("workspaceId", at.workspace_id.as_str());
                    let event = event.with("taskId", at.task_id.as_str());
                    fleet.log(event.with("error", error.message.as_str()));
                }
                _ => {}
            },
        }
    }
}

/// Description of a decision for the audit log, with the person if a chat reports one.
pub(super) fn what_by(asker: &TaskRequester, what: String) -> String {
    match asker {
        TaskRequester::Chat(chat) => format!("{what}, by {}", chat.decision.by),
        TaskRequester::Client(_) | TaskRequester::Agent(_) => what,
    }
}

/// Why a phase is not approved: its proposal is not delivered.
pub(super) fn not_delivered(at: &TaskRef, error: &ControlError) -> ControlError {
    let task = &at.task_id;
    let text = format!(
        "task `{task}` was not approved because its proposal could not be delivered: {}",
        error.message
    );
    let mut hint = String::new();
    if let Some(suggestion) = &error.suggestion {
        hint.push_str(suggestion);
        hint.push_str("; ");
    }
    hint.push_str(&format!(
        "deliver it despite other changes in the project: `gdn task approve {task} \
         --allow-moved-base`; approve it without delivery: `--without-delivery`; send it back to \
         its agent: `gdn task rework {task} TEXT`"
    ));
    ControlError::new(error.code, text).suggest(hint)
}
