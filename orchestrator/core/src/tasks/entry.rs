//! One task, and its pending writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use goondan_cli_agents::stream::Stream;
use goondan_protocol::control::{TaskHistoryLine, TaskInfo};
use goondan_protocol::ids::{AgentName, InstanceKey, WorkspaceId};
use goondan_protocol::task::{DeliveredBranch, TaskDelivery, TaskRunKind, TaskStatus};
use goondan_protocol::time::Timestamp;
use goondan_tasks::decisions::ChatDecision;
use goondan_tasks::display::happening;
use goondan_tasks::fact::{HistoryEntry, Notification, TaskEvent};
use goondan_tasks::limits::RECENT_FACTS;
use goondan_tasks::machine::{AgentProfile, InputRefusal, Task, TaskEffect, TaskInput};
use goondan_tasks::state::State;
use serde_json::Value;

use super::conversation_runs::ConversationTurnRun;
use crate::exchange::ChildRequest;
use crate::exchange::tasks::DiskMeasurement;
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::limits::TASK_RELOAD_MS;
use crate::{ClockTime, RequestToken};

/// Caller that waits for the result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TaskRequester {
    Client(RequestToken),
    /// A tool call of an agent.
    Agent(Requester),
    /// A person in a chat.
    Chat(ChatRequester),
}

/// A person's answer in a chat, and the connection that waits for its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatRequester {
    pub(super) press: ChildRequest,
    pub(super) decision: ChatDecision,
    /// Advice for an answer that the task refuses.
    pub(super) hint: Option<&'static str>,
}

impl From<RequestToken> for TaskRequester {
    fn from(token: RequestToken) -> Self {
        Self::Client(token)
    }
}

/// A pending request about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingTaskRequest {
    pub(super) asker: TaskRequester,
    /// Description for the audit log.
    pub(super) what: String,
    /// The answer; by default the resulting status of the task.
    pub(super) answer: Option<Value>,
}

impl PendingTaskRequest {
    pub(super) fn new(asker: impl Into<TaskRequester>, what: impl Into<String>) -> Self {
        Self {
            asker: asker.into(),
            what: what.into(),
            answer: None,
        }
    }
}

/// A restore that waits for the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RestoreOrder {
    pub(super) token: RequestToken,
    pub(super) checkpoint_id: Option<String>,
}

/// Facts from inputs, and their effects once they are durable.
#[derive(Debug, Default)]
pub(super) struct Batch {
    facts: Vec<HistoryEntry>,
    pub(super) effects: Vec<TaskEffect>,
    pub(super) decisions: Vec<PendingTaskRequest>,
}

/// Facts that have become durable.
#[derive(Debug)]
pub(super) struct DurableBatch {
    pub(super) batch: Batch,
    /// The new status and what the task waits for, if they changed.
    pub(super) changed: Option<(TaskStatus, Option<String>)>,
    /// True if tokens or money were spent.
    pub(super) has_spent: bool,
    /// True if open points, which chats show, may have changed.
    pub(super) has_points: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StartOrder {
    pub(super) run: u64,
    pub(super) session: Option<String>,
    pub(super) prompt: String,
    /// Environment variables with secrets, and the references to the secrets.
    pub(super) environment: Vec<(String, String)>,
    pub(super) kind: TaskRunKind,
}

/// A run that has no process yet.
#[derive(Debug)]
pub(super) struct PendingRun {
    pub(super) order: StartOrder,
    /// True if its program must be suspended immediately.
    pub(super) is_held: bool,
    /// True if its shared budgets allow it.
    pub(super) is_allowed: bool,
    /// True if its sandbox is ready, for a task with a source.
    pub(super) has_sandbox: bool,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "each task needs one, and almost all are open"
)]
enum Body {
    /// Its work area is being made.
    New(Task, HistoryEntry),
    /// It is as it is here, or will be when all is written.
    Open(Task),
    /// Its work area could not be read or written.
    Damaged {
        why: String,
        /// When it is read again, on the clock of `ClockTime::mono_ms`; none while a process still runs for it, or
        /// while it is being read.
        reload_at_ms: Option<u64>,
    },
    /// Its work area is being removed.
    Leaving(Task),
}

/// Reason why an input was not handled.
#[derive(Debug)]
pub(super) enum InputFailure {
    /// The task does not allow it.
    Refused(InputRefusal),
    /// Its work area cannot be used.
    Damaged(String),
    /// Something else is being done with it.
    Busy(&'static str),
}

/// Last measurement of a work area.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastMeasurement {
    /// Time, on the clock of `ClockTime::mono_ms`.
    pub(super) at_ms: u64,
    /// The same time as wall-clock time.
    pub(super) at: Timestamp,
    /// Disk usage; `None` if it could not be measured.
    pub(super) found: Option<DiskMeasurement>,
}

/// A delivery in progress, and the approval that waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingDelivery {
    pub(super) request: PendingTaskRequest,
    pub(super) phase: u32,
    pub(super) digest: String,
    pub(super) delivery: TaskDelivery,
    /// The branch, once it is there.
    pub(super) branch: Option<DeliveredBranch>,
    /// URL of the pull request, once it is open.
    pub(super) pull_request: Option<String>,
}

impl PendingDelivery {
    pub(super) fn new(
        request: PendingTaskRequest,
        phase: u32,
        digest: String,
        delivery: TaskDelivery,
    ) -> Self {
        Self {
            request,
            phase,
            digest,
            delivery,
            branch: None,
            pull_request: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct TaskEntry {
    body: Body,
    /// Durable state, as far as known.
    durable: Option<Arc<State>>,
    /// Latest history, as text.
    recent: VecDeque<TaskHistoryLine>,
    /// The write in progress, and the resulting state.
    writing: Option<(Batch, Arc<State>)>,
    next: Batch,
    /// Next time at which its state machine must be called.
    due: Option<Timestamp>,
    /// The run in progress, before it has a process.
    pub(super) pending: Option<PendingRun>,
    pub(super) conversing: Option<ConversationTurnRun>,
    /// Caller that waits for the creation, and true if the task is then started.
    pub(super) made_for: Option<(PendingTaskRequest, bool)>,
    /// Number of requested checkpoints that are not finished.
    pub(super) checkpoints: usize,
    /// When the next is made while a run is under way, on the clock of `ClockTime::mono_ms`.
    pub(super) checkpoint_at_ms: Option<u64>,
    /// No earlier drill by policy, on the clock of `ClockTime::mono_ms`.
    pub(super) drill_at_ms: u64,
    /// True if its files are being restored, or will be when its run is over.
    pub(super) is_restoring: bool,
    pub(super) restore: Option<RestoreOrder>,
    /// The approval that waits until its proposal is delivered.
    pub(super) delivering: Option<PendingDelivery>,
    /// The request for rework that waits for the comments on its proposal.
    pub(super) reworking: Option<PendingTaskRequest>,
    /// The exhausted budget that its state machine was notified of.
    pub(super) shortage: Option<String>,
    /// Last measurement of its work area.
    pub(super) last_look: Option<LastMeasurement>,
    /// The end of the output of a command that runs besides its agent's program.
    pub(super) printed: String,
    /// Bytes of output that are on their way to its log.
    pub(super) output_waiting: usize,
    /// Bytes of output that were dropped and not reported yet.
    pub(super) output_dropped: usize,
    /// The stream of the run in progress.
    pub(super) stream: Stream,
    /// Items that are on their way to its stream.
    pub(super) items_waiting: usize,
    /// Items that were dropped and not reported yet.
    pub(super) items_dropped: u64,
}

impl TaskEntry {
    fn with(body: Body, durable: Option<Arc<State>>) -> Self {
        Self {
            body,
            durable,
            recent: VecDeque::new(),
            writing: None,
            next: Batch::default(),
            due: None,
            pending: None,
            conversing: None,
            made_for: None,
            checkpoints: 0,
            checkpoint_at_ms: None,
            drill_at_ms: 0,
            is_restoring: false,
            restore: None,
            delivering: None,
            reworking: None,
            shortage: None,
            last_look: None,
            printed: String::new(),
            output_waiting: 0,
            output_dropped: 0,
            stream: Stream::default(),
            items_waiting: 0,
            items_dropped: 0,
        }
    }

    /// A task whose work area is being created.
    pub(super) fn new(
        task: Task,
        created: HistoryEntry,
        made_for: PendingTaskRequest,
        is_started: bool,
    ) -> Self {
        Self {
            made_for: Some((made_for, is_started)),
            ..Self::with(Body::New(task, created), None)
        }
    }

    /// A task that was read from its work area, or failed to be read.
    pub(super) fn found(
        result: Result<(State, Vec<TaskHistoryLine>), String>,
        now: ClockTime,
    ) -> Self {
        match result {
            Ok((state, recent)) => {
                let durable = Arc::new(state.clone());
                // Its state machine must be notified when this budget allows more.
                let shortage = state.shared_budget().map(ToOwned::to_owned);
                let body = Body::Open(Task::restored(state));
                Self {
                    recent: recent.into(),
                    shortage,
                    ..Self::with(body, Some(durable))
                }
            }
            Err(why) => {
                let reload_at_ms = Some(now.mono_ms.saturating_add(TASK_RELOAD_MS));
                Self::with(Body::Damaged { why, reload_at_ms }, None)
            }
        }
    }

    /// Its work area was created.
    pub(super) fn made(&mut self) {
        if let Body::New(task, created) = &self.body {
            let task = task.clone();
            self.durable = Some(Arc::new(task.state().clone()));
            self.recent.push_back(happening(created));
            self.body = Body::Open(task);
        }
    }

    /// Current state, including facts that are not durable yet.
    pub(super) fn state(&self) -> Option<&State> {
        match &self.body {
            Body::Open(task) => Some(task.state()),
            Body::New(..) | Body::Damaged { .. } | Body::Leaving(_) => None,
        }
    }

    /// Kind of the run in progress.
    pub(super) fn run_kind(&self) -> TaskRunKind {
        let run = self.state().and_then(|state| state.run.as_ref());
        run.map(|run| run.kind).unwrap_or_default()
    }

    /// True if rework of a phase can be requested with this text, or with comments and without one.
    pub(super) fn may_rework(&self, phase: u32, text: &str) -> bool {
        match &self.body {
            Body::Open(task) => !self.is_restoring && task.check_rework(phase, text).is_ok(),
            Body::New(..) | Body::Damaged { .. } | Body::Leaving(_) => false,
        }
    }

    /// The decision of a person that is being carried out.
    pub(super) fn decision_under_way(&self) -> Option<&'static str> {
        if self.delivering.is_some() {
            return Some("its proposal is being applied");
        }
        let is_reworking = self.reworking.is_some();
        is_reworking.then_some("the comments on its proposal are being sent")
    }

    /// Durable state, as far as known.
    pub(super) fn durable(&self) -> Option<&State> {
        self.durable.as_deref()
    }

    /// The conversation whose agent had it made, if one did.
    pub(super) fn created_by(&self) -> Option<&InstanceKey> {
        let state = match &self.body {
            Body::New(task, _) | Body::Open(task) | Body::Leaving(task) => Some(task.state()),
            Body::Damaged { .. } => self.durable(),
        };
        state?.task.created_by.as_ref()
    }

    pub(super) fn recent(&self) -> Vec<TaskHistoryLine> {
        self.recent.iter().cloned().collect()
    }

    /// Why its work area cannot be used, if it cannot.
    pub(super) fn damage(&self) -> Option<&str> {
        match &self.body {
            Body::Damaged { why, .. } => Some(why),
            Body::New(..) | Body::Open(_) | Body::Leaving(_) => None,
        }
    }

    /// Its entry in lists; `None` until its creation is durable.
    pub(super) fn info(&self, id: &WorkspaceId) -> Option<TaskInfo> {
        let state = self.durable.as_ref()?;
        Some(TaskInfo {
            damaged: self.damage().map(ToOwned::to_owned),
            ..state.info(id)
        })
    }

    /// True if there are pending writes.
    pub(super) fn is_busy(&self) -> bool {
        let is_written = self.writing.is_none() && self.next.is_empty();
        !is_written || matches!(self.body, Body::New(..))
    }

    /// Updates the configuration of its agents.
    pub(super) fn set_agents(&mut self, agents: BTreeMap<AgentName, AgentProfile>) {
        if let Body::Open(task) = &mut self.body {
            task.set_agents(agents);
        }
    }

    /// Sends an input to its state machine. `told` returns the connections to notify of a fact.
    pub(super) fn handle(
        &mut self,
        input: TaskInput,
        decision: Option<PendingTaskRequest>,
        now: Timestamp,
        told: impl Fn(&State, &TaskEvent) -> Vec<Notification>,
    ) -> Result<(), InputFailure> {
        if self.is_restoring && decision.as_ref().is_some_and(|made| made.answer.is_none()) {
            return Err(InputFailure::Busy("its files are being restored"));
        }
        let task = match &mut self.body {
            Body::Open(task) => task,
            Body::Damaged { why, .. } => return Err(InputFailure::Damaged(why.clone())),
            Body::New(..) => return Err(InputFailure::Busy("it is being created")),
            Body::Leaving(_) => return Err(InputFailure::Busy("it is being removed")),
        };
        let output = match decision.as_ref().map(|decision| &decision.asker) {
            Some(TaskRequester::Chat(chat)) => {
                task.handle_in_chat(input, chat.decision.clone(), now)
            }
            Some(TaskRequester::Client(_) | TaskRequester::Agent(_)) | None => {
                task.handle(input, now)
            }
        };
        let mut output = output.map_err(InputFailure::Refused)?;
        let facts = output.facts.iter();
        let told = facts.flat_map(|happened| told(task.state(), &happened.fact));
        let told: Vec<Notification> = told.collect();
        if !told.is_empty() {
            let notified = task.handle(TaskInput::Notify(told), now);
            let notified = notified.map_err(InputFailure::Refused)?;
            output.facts.extend(notified.facts);
            output.effects.extend(notified.effects);
        }
        self.due = task.next_tick(now);
        self.next.facts.extend(output.facts);
        self.next.effects.extend(output.effects);
        self.next.decisions.extend(decision);
        Ok(())
    }

    /// The next write; `None` while a write is in progress.
    pub(super) fn next_write(&mut self) -> Option<(Vec<HistoryEntry>, Arc<State>)> {
        let Body::Open(task) = &self.body else {
            return None;
        };
        if self.writing.is_some() || self.next.facts.is_empty() {
            return None;
        }
        let state = Arc::new(task.state().clone());
        let batch = std::mem::take(&mut self.next);
        let facts = batch.facts.clone();
        self.writing = Some((batch, state.clone()));
        Some((facts, state))
    }

    /// Effects that need no write, if no write precedes them.
    pub(super) fn take_unwritten(&mut self) -> Option<Batch> {
        let is_free = self.writing.is_none() && self.next.facts.is_empty();
        (is_free && !self.next.is_empty()).then(|| std::mem::take(&mut self.next))
    }

    /// The write in progress is durable.
    pub(super) fn written(&mut self) -> Option<DurableBatch> {
        let (batch, state) = self.writing.take()?;
        for fact in &batch.facts {
            if self.recent.len() >= RECENT_FACTS {
                self.recent.pop_front();
            }
            self.recent.push_back(happening(fact));
        }
        let stands = |state: &State| (state.status(), state.waits_for());
        let before = self.durable.as_deref().map(stands);
        let after = stands(&state);
        self.durable = Some(state);
        let changed = (before.as_ref() != Some(&after)).then_some(after);
        let mut facts = batch.facts.iter();
        let has_spent =
            facts.any(|happened| matches!(happened.fact, TaskEvent::UsageRecorded { .. }));
        let has_points = batch.facts.iter().any(HistoryEntry::is_about_point);
        Some(DurableBatch {
            batch,
            changed,
            has_spent,
            has_points,
        })
    }

    /// The write in progress failed. Returns the callers that wait for this write or the next one.
    /// The facts of both writes are discarded.
    pub(super) fn damaged(&mut self, why: String, reload_at_ms: Option<u64>) -> Vec<TaskRequester> {
        let writing = self.writing.take().map(|(batch, _)| batch);
        let next = std::mem::take(&mut self.next);
        let batches = writing.into_iter().chain([next]);
        let decisions = batches.flat_map(|batch| batch.decisions);
        let askers = decisions.map(|decision| decision.asker).collect();
        self.body = Body::Damaged { why, reload_at_ms };
        self.pending = None;
        self.due = None;
        askers
    }

    /// No process of the task runs any longer. A damaged task must be read again.
    pub(super) fn reload_at(&mut self, at_ms: u64) {
        if let Body::Damaged { reload_at_ms, .. } = &mut self.body {
            *reload_at_ms = Some(at_ms);
        }
    }

    /// Its damage may have been repaired: reads it again immediately, if that is pending.
    pub(super) fn hasten_reload(&mut self, now_ms: u64) {
        if let Body::Damaged {
            reload_at_ms: Some(at_ms),
            ..
        } = &mut self.body
        {
            *at_ms = now_ms;
        }
    }

    /// True if its work area could not be read, and the next attempt is later than now. A task whose
    /// write failed is read again immediately.
    pub(super) fn is_unreadable(&self, now_ms: u64) -> bool {
        match &self.body {
            Body::Damaged { reload_at_ms, .. } => reload_at_ms.is_some_and(|at_ms| at_ms > now_ms),
            Body::New(..) | Body::Open(_) | Body::Leaving(_) => false,
        }
    }

    /// True if it is damaged and must be read again now; the read counts as begun.
    pub(super) fn begin_reload(&mut self) -> bool {
        match &mut self.body {
            Body::Damaged { reload_at_ms, .. } => reload_at_ms.take().is_some(),
            Body::New(..) | Body::Open(_) | Body::Leaving(_) => false,
        }
    }

    /// It was read again.
    pub(super) fn reloaded(
        &mut self,
        result: Result<(State, Vec<TaskHistoryLine>), String>,
        now: ClockTime,
    ) {
        let durable = self.durable.take();
        let conversing = self.conversing.take();
        let delivering = self.delivering.take();
        let reworking = self.reworking.take();
        let Self {
            output_waiting,
            output_dropped,
            items_waiting,
            items_dropped,
            checkpoints,
            is_restoring,
            ..
        } = *self;
        *self = Self {
            output_waiting,
            output_dropped,
            items_waiting,
            items_dropped,
            checkpoints,
            is_restoring,
            conversing,
            delivering,
            reworking,
            ..Self::found(result, now)
        };
        if self.durable.is_none() {
            self.durable = durable;
        }
    }

    /// True if there is work to do at this time.
    pub(super) fn is_due(&self, now: ClockTime) -> bool {
        match &self.body {
            Body::Open(_) => !self.is_restoring && self.due.is_some_and(|due| now.wall >= due),
            Body::Damaged { reload_at_ms, .. } => {
                reload_at_ms.is_some_and(|at_ms| now.mono_ms >= at_ms)
            }
            Body::New(..) | Body::Leaving(_) => false,
        }
    }

    /// The number of the run that waits for its process.
    pub(super) fn queued_run(&self) -> Option<u64> {
        self.pending.as_ref().map(|pending| pending.order.run)
    }

    /// Number of a run that sends no signs of life.
    pub(super) fn unwatched_run(&self) -> Option<u64> {
        let conversing = self.conversing.as_ref();
        self.queued_run().or_else(|| Some(conversing?.run()))
    }

    /// Its work area is being removed: it no longer changes.
    pub(super) fn leave(&mut self) {
        if let Body::Open(task) = &self.body {
            self.body = Body::Leaving(task.clone());
        }
    }

    /// It was not removed.
    pub(super) fn stay(&mut self) {
        if let Body::Leaving(task) = &self.body {
            self.body = Body::Open(task.clone());
        }
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.effects.is_empty() && self.decisions.is_empty()
    }
}
