//! The merge queue of a workspace's project (`QUEUE-1`).
//!
//! [`MergeQueue`] decides. This module makes its records durable before it carries out its actions,
//! runs the proofs, and connects the queue with the tasks: a landed proposal approves the last phase
//! of its task, a conflict or a failed proof sends the phase back to its agent.
//!
//! The records are read when a task waits for a review after the workspace was opened, or with the
//! first request. After a failure, they are read again, because only recorded changes count.
//!
//! * `changes`: changes by people, and the view for clients.
//! * `hand_back`: outcomes, for the tasks.
//! * `pull_requests`: requests to the service that hosts the repository.

use std::collections::BTreeSet;

use goondan_merge_queue::{
    Action, Event, Landing, LandingResult, MergeQueue, OpenPullRequest, Outcome, Output, Proof,
    Proposal, Rebase, Record, Target,
};
use goondan_protocol::control::{Call, ControlError, ErrorCode};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::task::TaskId;
use goondan_tasks::state::State;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::pull_requests::PullRequestLook;
use super::Tasks;
use super::entry::TaskEntry;
use super::proofs::{ProofRun, queue_ref};
use super::proposals::{in_words, sandbox_of, sandbox_work, secret_patterns};
use super::runs::is_ending;
use crate::exchange::tasks::{QueueDecision, QueueFollowUp, SandboxOperation};
use crate::exchange::{
    ProposalWork, QueueRepository, QueueStep, QueueWork, QueuedSandbox, TaskRef,
};
use crate::fleet::Fleet;
use crate::limits::QUEUE_RETRY_MS;
use crate::{LogEvent, RequestToken};

mod changes;
mod hand_back;
mod pull_requests;
mod standing;

pub(super) use standing::QueueStanding;

/// The queue of one workspace.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// None until its records are read.
    pub(super) machine: Option<MergeQueue>,
    is_loading: bool,
    /// Requests that wait until then.
    held: Vec<(RequestToken, Call)>,
    /// Proof in progress.
    pub(super) proof: Option<ProofRun>,
    /// Attempts whose files are removed once the process of their proof is gone.
    pub(super) discards: Vec<u64>,
    /// Questions about earlier pull requests that the service has not answered yet.
    looking: Option<PullRequestLook>,
    /// Landing whose pull request is being opened.
    opening: Option<Landing>,
    /// Landing whose outcome could not be found yet.
    unknown: Option<Landing>,
    /// Why, until it is found.
    trouble: Option<String>,
    /// Tasks that are being handed their proposals back.
    returning: BTreeSet<TaskId>,
    /// Next time at which a failed operation is repeated, on the clock of `ClockTime::mono_ms`.
    retry_at_ms: u64,
}

/// Why the queue holds the proposal of a task.
const UNREADABLE: &str = "its task cannot be read";

/// Digest of the proposal with which a task waits for the review of its last phase.
fn waiting_digest(state: &State) -> Option<&str> {
    let proposal = state.to_deliver(state.review()?)?;
    Some(proposal.digest.as_str())
}

/// True if the proposal of a task may be in the queue.
fn may_be_queued(state: &State) -> bool {
    state.task.checks.verify && waiting_digest(state).is_some()
}

fn read<T: DeserializeOwned>(result: Result<Value, ControlError>) -> Result<T, ControlError> {
    result.and_then(|value| {
        serde_json::from_value(value)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
    })
}

impl QueueStep {
    /// A task whose proposal it is about.
    fn task(&self) -> Option<&TaskId> {
        match self {
            Self::Rebase { proposals, .. } => proposals.first().map(|queued| &queued.task),
            Self::Land { landing, .. } | Self::Find { landing } => {
                landing.proposals.first().map(|proposal| &proposal.task)
            }
            Self::HandBack(queued) => Some(&queued.task),
            Self::Load | Self::Record(_) | Self::Discard { .. } | Self::NoteOpened { .. } => None,
        }
    }
}

/// The task whose place in the queue a record changes.
fn placed_by(record: &Record) -> Option<&TaskId> {
    match record {
        Record::Entered { proposal } => Some(&proposal.task),
        Record::Held { task, .. } | Record::Released { task } | Record::Left { task, .. } => {
            Some(task)
        }
        _ => None,
    }
}

impl Queue {
    /// Takes the requests that wait until its records are read.
    pub(super) fn take_held(&mut self) -> Vec<(RequestToken, Call)> {
        std::mem::take(&mut self.held)
    }
}

impl Tasks {
    /// Requests an operation on the files of the queue. The workspace stays open until it ends.
    fn post(&mut self, fleet: &mut Fleet, id: &WorkspaceId, step: QueueStep, then: QueueFollowUp) {
        let repository = step
            .task()
            .and_then(|task| self.repository_of(fleet, id, task));
        let space = self.spaces.get_mut(id);
        let (Some(space), Some(at)) = (space, queue_ref(id)) else {
            return;
        };
        space.works += 1;
        let work = ProposalWork::Queue(QueueWork {
            workspace_id: id.clone(),
            exclude: secret_patterns(fleet, id),
            repository,
            step,
        });
        sandbox_work(fleet, &at, SandboxOperation::Queue(Box::new(then)), work);
    }

    /// The repository that the proposal of a task lands in, if it is another one than the project.
    fn repository_of(
        &self,
        fleet: &Fleet,
        id: &WorkspaceId,
        task: &TaskId,
    ) -> Option<QueueRepository> {
        let at = TaskRef::new(id, task);
        let state = self.entry(&at).and_then(TaskEntry::durable)?;
        Some(QueueRepository {
            source: state.task.source.repository()?.clone(),
            credentials: self.repository_access(fleet, &at).credentials,
        })
    }

    pub(super) fn queue_mut(&mut self, id: &WorkspaceId) -> Option<&mut Queue> {
        self.spaces.get_mut(id).map(|space| &mut space.queue)
    }

    /// Reads the queue after a workspace was opened, if it may have something to do.
    pub(super) fn take_up_queue(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let entries = self.spaces.get(id).into_iter();
        let mut states = entries
            .flat_map(|space| space.entries.values())
            .filter_map(TaskEntry::durable);
        if states.any(may_be_queued) {
            self.load_queue(fleet, id);
        }
    }

    /// Reads the queues again after a restored state root was resumed: until then, a queue that a
    /// client listed carried out nothing.
    pub(crate) fn resume_queues(&mut self, fleet: &mut Fleet) {
        let ids: Vec<WorkspaceId> = self.spaces.keys().cloned().collect();
        for id in ids {
            if let Some(queue) = self.queue_mut(&id) {
                queue.machine = None;
            }
            self.take_up_queue(fleet, &id);
        }
    }

    fn load_queue(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        if let Some(queue) = self.queue_mut(id)
            && queue.machine.is_none()
            && !queue.is_loading
        {
            queue.is_loading = true;
            self.post(fleet, id, QueueStep::Load, QueueFollowUp::Loaded);
        }
    }

    fn queue_event(&mut self, fleet: &mut Fleet, id: &WorkspaceId, event: Event) {
        let now = fleet.now().wall;
        let queue = self.queue_mut(id);
        let Some(machine) = queue.and_then(|queue| queue.machine.as_mut()) else {
            return;
        };
        // Only changes by people are refused.
        if let Ok(output) = machine.handle(event, now) {
            self.take_output(fleet, id, output, None);
        }
    }

    /// Makes records durable, then carries out the actions.
    fn take_output(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        output: Output,
        decision: Option<QueueDecision>,
    ) {
        let Output { records, actions } = output;
        if records.is_empty() {
            return self.on_recorded(fleet, id, Vec::new(), actions, decision);
        }
        let tasks = records.iter().filter_map(placed_by).cloned().collect();
        let then = QueueFollowUp::Recorded {
            tasks,
            actions,
            decision,
        };
        self.post(fleet, id, QueueStep::Record(records), then);
    }

    /// Notifies watching clients that a task now waits for the queue, or for a person.
    fn announce_queued(&self, fleet: &mut Fleet, at: &TaskRef) {
        let Ok(detail) = self.detail_of(fleet, at) else {
            return;
        };
        let event = LifecycleEvent::TaskChanged {
            task_id: at.task_id.clone(),
            status: detail.info.status,
            blocked_by: detail.info.blocked_by,
        };
        fleet.announce(&at.workspace_id, event, None);
    }

    fn on_recorded(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        tasks: Vec<TaskId>,
        actions: Vec<Action>,
        decision: Option<QueueDecision>,
    ) {
        for task in tasks {
            self.announce_queued(fleet, &TaskRef::new(id, &task));
        }
        if let Some(decision) = decision {
            let at = TaskRef::new(id, &decision.task_id);
            self.tell_decided(fleet, &at, decision.what);
            fleet.respond(decision.token, &self.queue_view(id));
        }
        for action in actions {
            self.carry_out_queue(fleet, id, action);
        }
    }

    fn carry_out_queue(&mut self, fleet: &mut Fleet, id: &WorkspaceId, action: Action) {
        // The next daemon, the next opening of the workspace, or `resume_queues` finds what is
        // missing.
        if fleet.cx().is_paused() || queue_ref(id).is_none_or(|at| is_ending(fleet, &at)) {
            return;
        }
        match action {
            Action::Look { attempt, opened } => {
                self.look_at_pull_requests(fleet, id, attempt, &opened);
            }
            Action::Rebase {
                attempt,
                earlier,
                proposals,
            } => {
                let found = self.sandboxes_of(id, &proposals);
                let is_missing = |it: &&Proposal| !found.iter().any(|other| other.task == it.task);
                // It would land as if its changes were part of the result.
                if let Some(missing) = proposals.iter().find(is_missing) {
                    let (task, why) = (missing.task.clone(), UNREADABLE.to_owned());
                    return self.queue_event(fleet, id, Event::Hold { task, why });
                }
                let earlier = match self.earlier_sandboxes(id, &earlier) {
                    Ok(earlier) => earlier,
                    Err(why) => {
                        let rebase = Rebase::Failed { why };
                        return self.queue_event(fleet, id, Event::Rebased { attempt, rebase });
                    }
                };
                let is_request = |it: &Proposal| matches!(it.target, Target::PullRequest { .. });
                let step = QueueStep::Rebase {
                    attempt,
                    earlier,
                    is_pull_request: proposals.iter().any(is_request),
                    proposals: found,
                };
                self.post(fleet, id, step, QueueFollowUp::Rebased { attempt });
            }
            Action::Prove { attempt } => self.prove(fleet, id, attempt),
            Action::Land(landing) => {
                let proposals = self.sandboxes_of(id, &landing.proposals);
                let then = QueueFollowUp::Landed(landing.clone());
                let step = QueueStep::Land { landing, proposals };
                self.post(fleet, id, step, then);
            }
            Action::Inspect(landing) => {
                let then = QueueFollowUp::Landed(landing.clone());
                self.post(fleet, id, QueueStep::Find { landing }, then);
            }
            Action::Discard { attempt } => self.discard(fleet, id, attempt),
            Action::Report { proposal, outcome } => self.report(fleet, id, proposal, outcome),
        }
    }

    /// Removes the files of an attempt, which no proof uses any longer.
    pub(super) fn discard_files(&mut self, fleet: &mut Fleet, id: &WorkspaceId, attempt: u64) {
        let then = QueueFollowUp::Discarded;
        self.post(fleet, id, QueueStep::Discard { attempt }, then);
    }

    /// Proposals with their sandboxes, without those of tasks that cannot be read.
    fn sandboxes_of(&self, id: &WorkspaceId, proposals: &[Proposal]) -> Vec<QueuedSandbox> {
        let found = proposals.iter().filter_map(|proposal| {
            let at = TaskRef::new(id, &proposal.task);
            let state = self.entry(&at).and_then(TaskEntry::durable)?;
            Some(QueuedSandbox {
                task: proposal.task.clone(),
                title: state.task.title.clone(),
                at: sandbox_of(state)?,
                digest: proposal.digest.clone(),
            })
        });
        found.collect()
    }

    /// Changes of open pull requests, each with its URL.
    fn earlier_sandboxes(
        &self,
        id: &WorkspaceId,
        opened: &[OpenPullRequest],
    ) -> Result<Vec<(QueuedSandbox, String)>, String> {
        let sandbox = |opened: &OpenPullRequest| {
            let found = self.sandboxes_of(id, std::slice::from_ref(&opened.proposal));
            let found = found.into_iter().next().ok_or_else(|| {
                format!(
                    "the task of pull request {} cannot be read, which is still open: merge or close it",
                    opened.url
                )
            })?;
            Ok((found, opened.url.clone()))
        };
        opened.iter().map(sandbox).collect()
    }

    /// An operation on the files of the queue has ended.
    pub(super) fn on_queue_step(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        then: QueueFollowUp,
        result: Result<Value, ControlError>,
    ) {
        self.work_done(id);
        match then {
            QueueFollowUp::Loaded => self.on_queue_loaded(fleet, id, read(result)),
            QueueFollowUp::Recorded {
                tasks,
                actions,
                decision,
            } => match result {
                Ok(_) => self.on_recorded(fleet, id, tasks, actions, decision),
                Err(error) => self.on_not_recorded(fleet, id, &error, decision),
            },
            QueueFollowUp::Rebased { attempt } => {
                let rebase = read(result).unwrap_or_else(|error| Rebase::Failed {
                    why: in_words(&error),
                });
                self.queue_event(fleet, id, Event::Rebased { attempt, rebase });
            }
            QueueFollowUp::Landed(landing) => match read::<LandingResult>(result) {
                Ok(LandingResult::Pushed { summary }) => {
                    self.open_queued(fleet, id, landing, &summary);
                }
                Ok(result) => self.on_landed(fleet, id, landing, result),
                Err(error) => self.on_landing_unknown(fleet, id, landing, &error),
            },
            QueueFollowUp::Opened { landing, url } => match result {
                Ok(_) => self.on_landed(fleet, id, landing, LandingResult::Opened { url }),
                Err(error) => self.on_landing_unknown(fleet, id, landing, &error),
            },
            QueueFollowUp::Discarded => {
                if let Err(error) = result {
                    let what = "failed to remove the files of a landing attempt";
                    Self::log_problem(fleet, id, what, &error);
                }
            }
            QueueFollowUp::HandedBack { proposal, outcome } => {
                let rebased = read::<Vec<String>>(result).map_err(|error| in_words(&error));
                self.on_handed_back(fleet, id, &proposal, &outcome, &rebased);
            }
        }
    }

    fn on_landed(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        landing: Landing,
        result: LandingResult,
    ) {
        if let Some(queue) = self.queue_mut(id) {
            queue.trouble = None;
        }
        let Landing {
            attempt, proposals, ..
        } = landing;
        let landing = result;
        self.queue_event(fleet, id, Event::Landed { attempt, landing });
        // A proposal that was withdrawn in the meantime was kept for its landing.
        for proposal in proposals {
            self.note_change_to_queue(fleet, &TaskRef::new(id, &proposal.task));
        }
    }

    /// It is not known if a landing happened: the queue looks again later.
    fn on_landing_unknown(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        landing: Landing,
        error: &ControlError,
    ) {
        Self::log_problem(fleet, id, "failed to land proposals", error);
        let retry_at_ms = fleet.now().mono_ms.saturating_add(QUEUE_RETRY_MS);
        let why = in_words(error);
        let mut is_news = false;
        let tasks: Vec<TaskId> = landing.proposals.iter().map(|it| it.task.clone()).collect();
        if let Some(queue) = self.queue_mut(id) {
            is_news = queue.trouble.as_ref() != Some(&why);
            queue.trouble = Some(why);
            queue.unknown = Some(landing);
            queue.retry_at_ms = retry_at_ms;
        }
        for task in tasks.iter().filter(|_| is_news) {
            self.announce_queued(fleet, &TaskRef::new(id, task));
        }
    }

    fn on_queue_loaded(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        records: Result<Vec<Record>, ControlError>,
    ) {
        let now = fleet.now();
        let Some(queue) = self.queue_mut(id) else {
            return;
        };
        queue.is_loading = false;
        queue.retry_at_ms = now.mono_ms.saturating_add(QUEUE_RETRY_MS);
        let held = std::mem::take(&mut queue.held);
        let records = match records {
            Ok(records) => records,
            Err(error) => {
                for (token, _) in held {
                    fleet.respond_error(token, error.clone());
                }
                return Self::log_problem(fleet, id, "failed to read the merge queue", &error);
            }
        };
        let mut machine = MergeQueue::restored(&records);
        let output = machine.resume(now.wall);
        let queued = machine.entries().map(|(entry, _)| &entry.proposal);
        let reported = machine.unreported().map(|(proposal, _)| proposal);
        let known: BTreeSet<TaskId> = queued.chain(reported).map(|it| it.task.clone()).collect();
        queue.machine = Some(machine);
        self.take_output(fleet, id, output, None);
        // A crash may have hidden a decision about a task from the queue.
        for task in known {
            self.note_change_to_queue(fleet, &TaskRef::new(id, &task));
        }
        for (token, call) in held {
            self.on_queue_request(fleet, token, id, call);
        }
    }

    /// Records could not be written: the queue continues from those that are durable.
    fn on_not_recorded(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        error: &ControlError,
        decision: Option<QueueDecision>,
    ) {
        Self::log_problem(fleet, id, "failed to write the merge queue", error);
        if let Some(decision) = decision {
            fleet.respond_error(decision.token, error.clone());
        }
        self.end_proof(fleet, id);
        let retry_at_ms = fleet.now().mono_ms.saturating_add(QUEUE_RETRY_MS);
        if let Some(queue) = self.queue_mut(id) {
            queue.machine = None;
            queue.looking = None;
            queue.opening = None;
            queue.unknown = None;
            queue.trouble = None;
            queue.retry_at_ms = retry_at_ms;
        }
    }

    fn log_problem(fleet: &mut Fleet, id: &WorkspaceId, what: &'static str, error: &ControlError) {
        let event = LogEvent::error(what).with("workspaceId", id.as_str());
        fleet.log(event.with("error", error.message.as_str()));
    }

    /// Handles the passing of time.
    pub(super) fn serve_queues(&mut self, fleet: &mut Fleet) {
        let now = fleet.now();
        let ids: Vec<WorkspaceId> = self.spaces.keys().cloned().collect();
        for id in ids {
            if queue_ref(&id).is_none_or(|at| is_ending(fleet, &at)) {
                continue;
            }
            let Some(queue) = self.queue_mut(&id) else {
                continue;
            };
            let due = queue.machine.as_ref().and_then(MergeQueue::next_tick);
            // Zero until it is read for the first time.
            let is_retried = queue.retry_at_ms > 0 && now.mono_ms >= queue.retry_at_ms;
            if due.is_some_and(|due| now.wall >= due) {
                self.queue_event(fleet, &id, Event::Tick);
            }
            if is_retried {
                self.retry_queue(fleet, &id);
            }
            self.end_stalled_proof(fleet, &id);
            self.run_proof(fleet, &id);
        }
    }

    fn retry_queue(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let retry_at_ms = fleet.now().mono_ms.saturating_add(QUEUE_RETRY_MS);
        let Some(queue) = self.queue_mut(id) else {
            return;
        };
        queue.retry_at_ms = retry_at_ms;
        let unknown = queue.unknown.take();
        let unreported: Vec<(Proposal, Outcome)> = match &queue.machine {
            Some(machine) => machine
                .unreported()
                .map(|(proposal, outcome)| (proposal.clone(), outcome.clone()))
                .collect(),
            None => Vec::new(),
        };
        if queue.machine.is_none() {
            return self.load_queue(fleet, id);
        }
        if let Some(landing) = unknown {
            self.carry_out_queue(fleet, id, Action::Inspect(landing));
        }
        for (proposal, outcome) in unreported {
            self.carry_out_queue(fleet, id, Action::Report { proposal, outcome });
        }
    }

    /// Passes the result of a proof on. After a passed proof, the proposals begin to land, and no
    /// decision about their tasks is accepted: those that are not durable yet come first.
    pub(super) fn on_proved(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        attempt: u64,
        proof: Proof,
    ) {
        let proof = match proof {
            Proof::Passed => self.changing_task(id).map_or(Proof::Passed, |task| {
                Proof::Lost(format!("task `{task}` is changing"))
            }),
            other => other,
        };
        self.queue_event(fleet, id, Event::Proved { attempt, proof });
    }

    /// A task of the attempt in progress whose proposal a pending decision may withdraw.
    fn changing_task(&self, id: &WorkspaceId) -> Option<TaskId> {
        let machine = self.spaces.get(id)?.queue.machine.as_ref()?;
        let mut tried = machine.tried().into_iter();
        let is_changing = |proposal: &Proposal| {
            let entry = self.entry(&TaskRef::new(id, &proposal.task));
            entry.is_none_or(|entry| {
                let is_busy = entry.decision_under_way().is_some() || entry.is_restoring;
                let waiting = entry.state().and_then(waiting_digest);
                is_busy || waiting != Some(proposal.digest.as_str())
            })
        };
        let changing = tried.find(is_changing)?;
        Some(changing.task)
    }
}
