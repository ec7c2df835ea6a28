//! Changes of the merge queue by people, and its view for clients.

use goondan_merge_queue::{Event, Outcome, Place, Proposal, Refusal, Stage, Target};
use goondan_protocol::control::{
    Call, ChangeQueue, ControlError, ErrorCode, QueueChange, QueueEntry, QueueOutcome,
    QueueOutcomeKind, QueuePlace, QueueStage, QueueView,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::{TaskDelivery, TaskId, TaskSource};

use super::standing::QueueStanding;
use super::{may_be_queued, waiting_digest};
use crate::RequestToken;
use crate::exchange::TaskRef;
use crate::exchange::tasks::QueueDecision;
use crate::fleet::Fleet;
use crate::limits::{QUEUE_REASON_CHARS_MAX, TASK_REQUESTS_MAX};
use crate::tasks::entry::TaskEntry;
use crate::tasks::{Tasks, busy, not_found, views};

fn refused(refusal: &Refusal) -> ControlError {
    let code = match refusal {
        Refusal::NotQueued(_) => ErrorCode::TaskNotFound,
        _ => ErrorCode::TaskRefused,
    };
    ControlError::new(code, refusal.to_string()).suggest("show the queue: `gdn task queue list`")
}

/// Destination of a task's proposal.
fn target_of(source: &TaskSource, delivery: TaskDelivery) -> Result<Target, &'static str> {
    match (source, delivery) {
        (TaskSource::Project, TaskDelivery::Apply) => Ok(Target::Project),
        (TaskSource::Repository(source), TaskDelivery::Branch) => {
            let branch = source.reference.clone();
            Ok(Target::Branch {
                repository: source.repository.clone(),
                branch: branch.ok_or("its `source` has no `ref` with the branch to land on")?,
            })
        }
        (TaskSource::Repository(source), TaskDelivery::PullRequest) => {
            let branch = source.reference.clone();
            Ok(Target::PullRequest {
                repository: source.repository.clone(),
                branch: branch.ok_or("its `source` has no `ref` with the branch to merge into")?,
            })
        }
        (TaskSource::Project, TaskDelivery::Branch) => {
            Err("the queue lands on the project's directory, but its agent has `deliver: branch`")
        }
        _ => Err("its agent has `deliver: proposal`, so that it stays a proposal"),
    }
}

impl Tasks {
    /// A client lists or changes the queue.
    pub(in crate::tasks) fn on_queue_request(
        &mut self,
        fleet: &mut Fleet,
        token: RequestToken,
        id: &WorkspaceId,
        call: Call,
    ) {
        let Some(queue) = self.queue_mut(id) else {
            return;
        };
        if queue.machine.is_none() {
            if queue.held.len() >= TASK_REQUESTS_MAX {
                let error = views::too_many(id, TASK_REQUESTS_MAX);
                return fleet.respond_error(token, error);
            }
            queue.held.push((token, call));
            return self.load_queue(fleet, id);
        }
        match call {
            Call::ChangeQueue(change) => self.change_queue(fleet, token, change),
            _ => fleet.respond(token, &self.queue_view(id)),
        }
    }

    fn change_queue(&mut self, fleet: &mut Fleet, token: RequestToken, change: ChangeQueue) {
        let at = TaskRef::new(&change.workspace_id, &change.task_id);
        if let QueueChange::Hold { why } | QueueChange::Drop { why } = &change.change
            && why.chars().nth(QUEUE_REASON_CHARS_MAX).is_some()
        {
            let text = format!("the reason has more than {QUEUE_REASON_CHARS_MAX} characters");
            let error = ControlError::new(ErrorCode::InvalidRequest, text);
            return fleet.respond_error(token, error.suggest("shorten it"));
        }
        let task = change.task_id;
        let (event, what) = match change.change {
            QueueChange::Enter { priority } => {
                let (digest, target) = match self.proposal_to_queue(fleet, &at) {
                    Ok(found) => found,
                    Err(error) => return fleet.respond_error(token, error),
                };
                let proposal = Proposal {
                    task,
                    digest,
                    priority,
                    target,
                };
                (Event::Enter(proposal), "add to the merge queue")
            }
            QueueChange::Hold { why } => (Event::Hold { task, why }, "hold in the merge queue"),
            QueueChange::Release {} => (Event::Release { task }, "release in the merge queue"),
            QueueChange::Move { to } => {
                let to = match to {
                    QueuePlace::First => Place::First,
                    QueuePlace::Last => Place::Last,
                    QueuePlace::Before(other) => Place::Before(other),
                };
                (Event::Move { task, to }, "move in the merge queue")
            }
            QueueChange::Prioritize { priority } => {
                let event = Event::Prioritize { task, priority };
                (event, "prioritize in the merge queue")
            }
            QueueChange::Drop { why } => (Event::Drop { task, why }, "drop from the merge queue"),
        };
        let now = fleet.now().wall;
        let Some(machine) = self
            .queue_mut(&at.workspace_id)
            .and_then(|queue| queue.machine.as_mut())
        else {
            return;
        };
        match machine.handle(event, now) {
            Ok(output) => {
                let decision = QueueDecision {
                    token,
                    task_id: at.task_id,
                    what,
                };
                self.take_output(fleet, &at.workspace_id, output, Some(decision));
            }
            Err(refusal) => fleet.respond_error(token, refused(&refusal)),
        }
    }

    /// Digest and target of the proposal with which a task can enter the queue.
    fn proposal_to_queue(
        &self,
        fleet: &Fleet,
        at: &TaskRef,
    ) -> Result<(String, Target), ControlError> {
        let task = &at.task_id;
        let entry = self.entry(at).ok_or_else(|| not_found(at))?;
        if let Some(under_way) = entry.decision_under_way() {
            return Err(busy(at, under_way));
        }
        let refused = |why: &str, hint: String| {
            let text = format!("task `{task}` cannot enter the merge queue: {why}");
            Err(ControlError::new(ErrorCode::TaskRefused, text).suggest(hint))
        };
        let show = format!("see its status: `gdn task show {task}`");
        let Some(state) = entry.state() else {
            return refused("its work area cannot be used now", show);
        };
        let Some(digest) = waiting_digest(state) else {
            return refused("no proposal of its last phase waits for a review", show);
        };
        let approve = format!("approve it without the queue: `gdn task approve {task}`");
        let target = match target_of(&state.task.source, self.delivery_of(fleet, at)) {
            Ok(target) => target,
            Err(why) => return refused(why, approve),
        };
        if let Target::PullRequest { .. } = target
            && let Err(why) = self.request_place(fleet, at)
        {
            return refused(&why, approve);
        }
        if !state.task.checks.verify {
            let why = "its agent has no `runtime.verify`, the command that proves each landing";
            return refused(why, approve);
        }
        Ok((digest.to_owned(), target))
    }

    /// Place of a task's proposal in the queue, as people see it with the task.
    pub(in crate::tasks) fn queue_standing(&self, at: &TaskRef) -> QueueStanding {
        let state = self.entry(at).and_then(TaskEntry::durable);
        // A workspace may have thousands of tasks, and its queue many entries.
        if !state.is_some_and(may_be_queued) {
            return QueueStanding::None;
        }
        let queue = self.spaces.get(&at.workspace_id).map(|space| &space.queue);
        let Some((queue, machine)) = queue.and_then(|it| Some((it, it.machine.as_ref()?))) else {
            return QueueStanding::None;
        };
        let mut entries = machine.entries();
        let Some((entry, stage)) = entries.find(|(it, _)| it.proposal.task == at.task_id) else {
            return QueueStanding::None;
        };
        match (&entry.held, &queue.trouble, stage) {
            (Some(why), ..) => QueueStanding::Held(why.clone()),
            (None, Some(why), Stage::Landing) => QueueStanding::Unknown(format!(
                "the merge queue could not find out if its proposal has landed, and tries again: {why}"
            )),
            _ => QueueStanding::Queued,
        }
    }

    /// Why a task cannot be changed, if its proposal is landing, or has landed and its task does not know it yet.
    pub(in crate::tasks) fn landing_in_words(&self, at: &TaskRef) -> Option<&'static str> {
        let queue = &self.spaces.get(&at.workspace_id)?.queue;
        let state = self.entry(at).and_then(TaskEntry::durable)?;
        if queue.is_loading && may_be_queued(state) {
            return Some("the merge queue is being read");
        }
        let machine = queue.machine.as_ref()?;
        let mut entries = machine.entries();
        let is_landing = entries
            .any(|(entry, stage)| stage == Stage::Landing && entry.proposal.task == at.task_id);
        let mut unreported = machine.unreported();
        let has_landed = unreported.any(|(proposal, outcome)| {
            proposal.task == at.task_id && matches!(outcome, Outcome::Landed { .. })
        });
        (is_landing || has_landed).then_some("the merge queue is landing its proposal")
    }

    /// Why a proposal cannot be applied beside the queue, if it is in the queue.
    pub(in crate::tasks) fn queued_error(&self, at: &TaskRef) -> Option<ControlError> {
        let queue = &self.spaces.get(&at.workspace_id)?.queue;
        let Some(machine) = &queue.machine else {
            let is_unread = queue.is_loading || queue.retry_at_ms > 0;
            let state = self.entry(at).and_then(TaskEntry::state);
            let is_unknown = is_unread && state.is_some_and(may_be_queued);
            return is_unknown.then(|| busy(at, "the merge queue could not be read yet"));
        };
        let mut unreported = machine.unreported();
        if unreported.any(|(proposal, _)| proposal.task == at.task_id) {
            return Some(busy(
                at,
                "the merge queue reports the outcome of its proposal",
            ));
        }
        let mut entries = machine.entries();
        entries.find(|(entry, _)| entry.proposal.task == at.task_id)?;
        let task = &at.task_id;
        let text = format!("the proposal of task `{task}` is in the merge queue");
        let error = ControlError::new(ErrorCode::TaskRefused, text);
        Some(error.suggest(format!(
            "wait until it lands: `gdn task queue list`; or remove it from the queue first: `gdn task \
             queue drop {task}`"
        )))
    }

    /// The queue, for clients.
    pub(super) fn queue_view(&self, id: &WorkspaceId) -> QueueView {
        let queue = self.spaces.get(id).map(|space| &space.queue);
        let Some(machine) = queue.and_then(|queue| queue.machine.as_ref()) else {
            return QueueView::default();
        };
        let title = |task: &TaskId| {
            let state = self.entry(&TaskRef::new(id, task));
            let state = state.and_then(TaskEntry::durable);
            state.map(|state| state.task.title.clone())
        };
        let entries = machine.entries().map(|(entry, stage)| QueueEntry {
            task_id: entry.proposal.task.clone(),
            title: title(&entry.proposal.task),
            digest: entry.proposal.digest.clone(),
            priority: entry.proposal.priority,
            into: match &entry.proposal.target {
                Target::Project => None,
                Target::Branch { repository, branch }
                | Target::PullRequest { repository, branch } => {
                    Some(format!("{branch} of {repository}"))
                }
            },
            stage: match stage {
                Stage::Waiting => QueueStage::Waiting,
                Stage::Held => QueueStage::Held,
                Stage::Rebasing => QueueStage::Rebasing,
                Stage::Proving => QueueStage::Proving,
                Stage::Landing => QueueStage::Landing,
            },
            held: entry.held.clone(),
        });
        let outcomes = machine.outcomes().map(|(proposal, outcome)| {
            let (kind, detail) = match outcome {
                Outcome::Landed { pull_request, .. } => match pull_request {
                    Some(url) => (QueueOutcomeKind::Opened, Some(url)),
                    None => (QueueOutcomeKind::Landed, None),
                },
                Outcome::Conflict { text, .. } => (QueueOutcomeKind::Conflict, Some(text)),
                Outcome::Unproved { log, .. } => (QueueOutcomeKind::Unproved, Some(log)),
                Outcome::Dropped { why } => (QueueOutcomeKind::Dropped, Some(why)),
            };
            QueueOutcome {
                task_id: proposal.task.clone(),
                digest: proposal.digest.clone(),
                kind,
                detail: detail.cloned(),
            }
        });
        QueueView {
            entries: entries.collect(),
            outcomes: outcomes.collect(),
        }
    }
}
