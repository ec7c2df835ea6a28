//! A conversation: an agent, its queued events, its turn, and the process that works for it.
//!
//! Its [`Stage`] decides its next step. The stage follows from four parts that change
//! independently, because a client can freeze or delete a conversation during a turn, and a failed
//! write can make the queue unknown at any time:
//!
//! * **suspension**: frozen, being deleted, or neither
//! * **turns** ([`Turns`]): none → beginning → open → ending → none, or → beginning behind a commit
//! * **queue** ([`QueueCopy`]): unread → reading → read; any failed write makes it unread
//! * **process** ([`Slot`], and `is_loaded`): down → spawning → ready → loaded → stopping
//!
//! The process has its own transitions, in [`Slot`]. The other parts change only by the methods
//! below. Each method is one transition, and its documentation names the stages from which it
//! starts. A method that is valid only in certain stages changes nothing in any other, and returns
//! [`WrongStage`].

use std::collections::{BTreeMap, BTreeSet};

use goondan_config::ProjectConfig;
use goondan_protocol::agents::{REPLY_KIND, TurnInput};
use goondan_protocol::control::SandboxRefusals;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, InstanceRef, RevisionId, TurnId};
use goondan_protocol::sandbox::SandboxPolicy;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use goondan_store::instance::{InstanceState, PendingReplyRecord};

use super::agent_replies::pending_replies::{PendingReply, ReplyWatch};
use super::approvals::pending::Approvals;
use super::changes::RunningAgent;
use super::inbox::Inbox;
use super::indeterminate_calls::BufferedReports;
use super::overlay::Overlay;
use super::self_restart::SelfRestarts;
use super::slot::{ProcessStage, Slot};
use super::start_faults::StartFaults;
use super::turn::{ActiveTurn, TurnContext};
use super::waiters::Waiters;
use crate::limits::CRASH_MEMORY_MS;
use crate::{ClockTime, ProcessId, RequestToken};

pub(crate) mod freeze;
pub(in crate::fleet) mod process_messages;
mod restarts;
mod stage;

use freeze::{Freeze, FreezeRefusal};
use stage::{QueueCopy, Turns};
pub(crate) use stage::{Stage, WrongStage};

/// A conversation that is or was active.
#[derive(Debug)]
pub(crate) struct Conversation {
    agent: AgentName,
    slot: Slot,
    /// True if the process has the whole conversation.
    is_loaded: bool,
    /// True if the process was stopped because the store failed, which counts against no event.
    is_failed_by_store: bool,
    /// Start configuration of the current or the last process.
    running: Option<RunningAgent>,
    queue: Inbox,
    copy: QueueCopy,
    turns: Turns,
    /// The operation that holds it and blocks new turns.
    freeze: Option<Freeze>,
    /// Recipients of the deletion's result; `None` unless it is being deleted.
    deletion: Option<Vec<DeleteReply>>,
    waiters: Waiters,
    /// The questions its running turn waits for, and their target instances. Kept while the turn is
    /// open without a process, because the next process asks again.
    asking: BTreeMap<EventId, InstanceKey>,
    /// Questions whose answers will arrive as events, by the ids of those events.
    awaiting: BTreeMap<EventId, PendingReply>,
    /// Approvals of its open turn. Kept while the turn has no process.
    approvals: Approvals,
    idle_since_ms: u64,
    /// Failed starts of its process with a permanent cause.
    start_faults: StartFaults,
    /// Restarts requested by its agent.
    restarts: SelfRestarts,
    /// Its own configuration, on top of the project's.
    overlay: Overlay,
    /// Messages of its process that wait until an interrupted call is in the audit log.
    held_back: Option<BufferedReports>,
    /// Accesses refused to its programs, with the policy that refused them.
    refusals: Option<(SandboxPolicy, SandboxRefusals)>,
    wrong: BTreeSet<WrongStage>,
}

/// End of a conversation's process.
pub(super) struct AgentExit {
    /// The turn that it worked on.
    pub(super) turn: Option<ActiveTurn>,
    /// Reason, if the exit counts against the turn and the configuration.
    pub(super) crash: Option<String>,
}

impl Conversation {
    /// A conversation without work or process.
    pub(super) fn new(agent: AgentName, now_ms: u64) -> Self {
        Self {
            agent,
            slot: Slot::default(),
            is_loaded: false,
            is_failed_by_store: false,
            running: None,
            queue: Inbox::default(),
            copy: QueueCopy::Read,
            turns: Turns::None,
            freeze: None,
            deletion: None,
            waiters: Waiters::default(),
            asking: BTreeMap::new(),
            awaiting: BTreeMap::new(),
            approvals: Approvals::default(),
            idle_since_ms: now_ms,
            start_faults: StartFaults::default(),
            restarts: SelfRestarts::default(),
            overlay: Overlay::default(),
            held_back: None,
            refusals: None,
            wrong: BTreeSet::new(),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        if self.freeze.is_some() {
            return Stage::Frozen;
        }
        if self.deletion.is_some() {
            return Stage::Deleting;
        }
        match (&self.turns, self.copy) {
            (Turns::Beginning(_), _) => Stage::BeginningTurn,
            (Turns::Open(_), _) => Stage::InTurn,
            (Turns::Ending { .. }, _) => Stage::EndingTurn,
            (Turns::None, QueueCopy::Unread) => Stage::Unread,
            (Turns::None, QueueCopy::Reading) => Stage::Reading,
            (Turns::None, QueueCopy::Read) if self.queue.has_nothing_ready() => Stage::Idle,
            (Turns::None, QueueCopy::Read) => match self.slot.up() {
                None => Stage::Waiting,
                Some(up) => match up.stage {
                    ProcessStage::Spawning => Stage::Starting,
                    ProcessStage::Ready if self.is_loaded => Stage::Ready(up.process),
                    ProcessStage::Ready => Stage::Loading,
                    ProcessStage::Draining { .. } | ProcessStage::Dying { .. } => Stage::Stopping,
                },
            },
        }
    }

    fn wrong(&self, event: &'static str) -> WrongStage {
        let stage = self.stage().name();
        WrongStage { event, stage }
    }

    /// Records an event in the wrong stage. True if it is the first of its kind.
    pub(super) fn is_new_mistake(&mut self, wrong: WrongStage) -> bool {
        self.wrong.insert(wrong)
    }

    /// Events that it got in the wrong stage.
    #[cfg(test)]
    pub(super) fn mistakes(&self) -> impl Iterator<Item = &WrongStage> {
        self.wrong.iter()
    }
}

/// The queue.
impl Conversation {
    pub(super) fn queue(&self) -> &Inbox {
        &self.queue
    }

    /// The queue's events. They change in any stage, because events arrive at any time.
    pub(super) fn queue_mut(&mut self) -> &mut Inbox {
        &mut self.queue
    }

    /// True if the queue in memory matches the queue on disk.
    pub(super) fn is_read(&self) -> bool {
        self.copy == QueueCopy::Read
    }

    /// Any stage: the queue in memory may be outdated and is read again before the next turn.
    pub(super) fn invalidate_queue(&mut self) {
        self.copy = QueueCopy::Unread;
    }

    /// Any stage → reading: the store is asked for the queue.
    pub(super) fn begin_reading(&mut self) {
        self.copy = QueueCopy::Reading;
    }

    /// True if the agent has requested a restart of its process, and the process still runs.
    pub(super) fn is_to_restart(&self) -> bool {
        self.restarts.due().is_some() && self.process().is_some()
    }

    /// The revision of its own configuration; `None` for the project's configuration.
    pub(crate) fn bundle_revision(&self) -> Option<&RevisionId> {
        self.overlay.standing.active.as_ref()
    }

    /// True if the outcome of each turn must be counted before the next turn begins.
    pub(super) fn counts_turns(&self) -> bool {
        self.overlay.standing.is_on_probation
    }

    /// True if the running process was started with another configuration.
    pub(super) fn is_outdated(&self, bundle: Option<&ProjectConfig>) -> bool {
        self.process().is_some()
            && (self.overlay.standing.is_pending
                || self
                    .running
                    .as_ref()
                    .zip(bundle)
                    .is_some_and(|(running, bundle)| running.is_outdated(bundle)))
    }

    /// Any stage but deleting: the store reports the approvals and the agent. False while it is
    /// being deleted, because a read can finish during that.
    pub(super) fn on_opened(&mut self, state: &InstanceState) -> bool {
        if self.deletion.is_some() {
            return false;
        }
        self.approvals.read(state);
        self.agent = state.agent.clone();
        true
    }

    /// Any stage → read: the store reports the queue. Returns the awaited events that it does not
    /// hold, because their turns may have been committed unnoticed.
    pub(super) fn on_queue_read(&mut self, state: InstanceState) -> Vec<EventId> {
        let open = state.open_turn.as_ref();
        let open_event = open.and_then(|open| open.event.as_ref());
        let open_event = open_event.map(|event| &event.event_id);
        self.queue
            .load(state.waiting, state.paused, state.attempts, open_event);
        self.copy = QueueCopy::Read;
        self.expect_answers(state.awaiting);
        let awaited = self.waiters.events();
        let missing = awaited.filter(|id| self.queue.get(id).is_none());
        missing.cloned().collect()
    }

    /// Any stage → idle: the conversation does not exist on disk.
    pub(super) fn on_vanished(&mut self) {
        self.queue.clear();
        self.copy = QueueCopy::Read;
    }

    pub(crate) fn pending(&self) -> usize {
        self.queue.pending()
    }

    pub(super) fn paused(&self) -> usize {
        self.queue.paused()
    }

    /// True if the queue must be read before anything else, and reading is not delayed.
    pub(super) fn may_read(&self, now: ClockTime) -> bool {
        self.slot.may_start(now)
            || self.slot.ready().is_some()
            || self.why_none_starts(now).is_some()
    }

    /// Allows another attempt to start a process for the next event, because none may begin now.
    pub(super) fn note_nothing_waits(&mut self) {
        if self.copy != QueueCopy::Unread && self.queue.has_nothing_ready() {
            self.start_faults.on_nothing_waiting();
        }
    }
}

/// The process.
impl Conversation {
    pub(crate) fn agent(&self) -> &AgentName {
        &self.agent
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn slot_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }

    /// The agent's definition as its process was started.
    pub(super) fn definition(&self) -> Option<&AgentDefinition> {
        Some(&self.running.as_ref()?.definition)
    }

    /// Counts an access that the sandbox refused to its programs. Earlier ones are forgotten if its
    /// permissions have changed since then.
    pub(super) fn note_refusal(&mut self, refusal: &str, at: Timestamp) {
        let Some(policy) = self.definition().map(|agent| agent.sandbox.clone()) else {
            return;
        };
        let count = self.refusals().map_or(0, |refusals| refusals.count);
        let refusals = SandboxRefusals {
            count: count.saturating_add(1),
            last: refusal.to_owned(),
            at,
        };
        self.refusals = Some((policy, refusals));
    }

    /// Accesses that the sandbox refused to its programs with their current permissions.
    pub(super) fn refusals(&self) -> Option<&SandboxRefusals> {
        let (policy, refusals) = self.refusals.as_ref()?;
        let is_current = self
            .definition()
            .is_some_and(|agent| agent.sandbox == *policy);
        is_current.then_some(refusals)
    }

    /// Its process, if one runs or its exit is awaited.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        self.slot.up().map(|up| up.process)
    }

    /// Waiting, reading → starting: a process starts, and the queue is read again, because after a
    /// crash or a failed write the copy may be outdated.
    pub(super) fn begin_start(&mut self, running: RunningAgent) -> Result<(), WrongStage> {
        match self.stage() {
            Stage::Waiting | Stage::Reading => {
                self.is_loaded = false;
                self.running = Some(running);
                Ok(())
            }
            Stage::Frozen
            | Stage::Deleting
            | Stage::BeginningTurn
            | Stage::InTurn
            | Stage::EndingTurn
            | Stage::Unread
            | Stage::Idle
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping => Err(self.wrong("start")),
        }
    }

    /// Any stage: this process received a page of the conversation. False if it is gone.
    pub(super) fn on_page_sent(&mut self, process: ProcessId, is_last: bool) -> bool {
        let is_current = self.process() == Some(process);
        if is_current {
            self.is_loaded = is_last;
        }
        is_current
    }

    /// Any stage: this process is stopped because the store failed.
    pub(super) fn on_store_failed(&mut self, process: Option<ProcessId>) {
        if process.is_some() && process == self.process() {
            self.is_failed_by_store = true;
        }
    }

    /// Any stage: the process has exited. `crash` is the reason of an unexpected exit.
    pub(super) fn on_exited(&mut self, now_ms: u64, crash: Option<&str>) -> AgentExit {
        let turn = self.turns.process_exited();
        self.approvals.forget_requesters();
        self.is_loaded = false;
        let not_started = self.start_faults.on_exited();
        let crash = crash.map(|how| not_started.unwrap_or_else(|| how.to_owned()));
        self.idle_since_ms = now_ms;
        let is_excused = std::mem::take(&mut self.is_failed_by_store);
        if let Some(reason) = self.restarts.done() {
            self.slot.detail = Some(format!("restarted itself: {reason}"));
        }
        AgentExit {
            turn,
            crash: crash.filter(|_| !is_excused),
        }
    }

    /// A person may have fixed the cause of failed starts.
    pub(super) fn forgive_crashes(&mut self) {
        self.slot.forgive();
        self.start_faults.clear();
    }

    /// A new configuration is active.
    pub(super) fn on_configuration(&mut self, bundle: &ProjectConfig) {
        if self.start_faults.clear() {
            self.slot.forgive();
        }
        if let Some(running) = &mut self.running {
            running.compare(bundle);
        }
    }

    /// Its process reports that it cannot start.
    pub(crate) fn report_start_fault(&mut self, reason: String) {
        self.start_faults.report(reason);
    }

    /// A person wants another attempt at an event.
    pub(super) fn forgive_event(&mut self, id: &EventId) {
        self.queue.forgive(id);
        self.start_faults.clear();
    }

    /// Start of the period without a turn.
    pub(super) fn idle_since_ms(&self) -> u64 {
        self.idle_since_ms
    }

    /// Reason no process will start for its next turn, if that is so.
    pub(super) fn why_none_starts(&self, now: ClockTime) -> Option<&str> {
        let is_down = self.slot.up().is_none();
        let why = self.start_faults.why_none_starts(self.slot.may_start(now));
        why.filter(|_| is_down)
    }

    /// True if its process runs and has no work.
    pub(super) fn is_at_rest(&self) -> bool {
        self.turn().is_none()
            && self.queue.has_nothing_ready()
            && self.awaiting.is_empty()
            && self.deletion.is_none()
            && self.freeze.is_none()
            && self.slot.ready().is_some()
    }

    /// True if no turn is in progress, ready or about to be requested.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.turn().is_none() && self.queue.has_nothing_ready() && !self.queue.is_accepting()
    }

    /// True if its process may be stopped to free resources.
    pub(super) fn may_leave(&self) -> bool {
        self.is_at_rest() && !self.queue.is_accepting()
    }

    /// True if it has no work and no state to keep. Crashes are kept for a while.
    pub(super) fn is_forgettable(&self, now_ms: u64) -> bool {
        let is_well =
            self.slot.crashes == 0 || now_ms.saturating_sub(self.idle_since_ms) >= CRASH_MEMORY_MS;
        is_well
            && !self.restarts.any_counts(now_ms)
            && self.slot.up().is_none()
            && self.pending() == 0
            && self.waiters.is_empty()
            && self.asking.is_empty()
            && self.approvals.is_empty()
            && self.awaiting.is_empty()
            && self.deletion.is_none()
            && self.freeze.is_none()
            && self.is_read()
    }
}

/// The turns.
impl Conversation {
    /// The turn that is not committed yet.
    pub(crate) fn turn(&self) -> Option<&ActiveTurn> {
        self.turns.turn()
    }

    /// The agent as its process was started, and the turn in progress.
    pub(crate) fn agent_in_turn(&self) -> Option<(&AgentDefinition, &ActiveTurn)> {
        Some((self.definition()?, self.turn()?))
    }

    /// The turn, to count its usage and inputs. Its stage changes only by the methods below.
    pub(super) fn turn_mut(&mut self) -> Option<&mut ActiveTurn> {
        self.turns.turn_mut()
    }

    /// The turn that its process works on.
    pub(super) fn open_turn(&self) -> Option<&ActiveTurn> {
        match &self.turns {
            Turns::Open(turn) => Some(turn),
            Turns::None | Turns::Beginning(_) | Turns::Ending { .. } => None,
        }
    }

    /// Contexts of the turns that are not committed or about to begin.
    pub(super) fn turn_contexts(&self) -> impl Iterator<Item = &TurnContext> {
        self.turns.contexts()
    }

    /// True if a turn is not committed or about to begin.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.turns.contexts().next().is_some()
    }

    /// The other conversations that requested its turn in progress.
    pub(crate) fn asked_by(&self, own: &InstanceKey) -> Vec<InstanceKey> {
        let event_id = self.turn().map(|turn| &turn.context.event_id);
        let event = event_id.and_then(|id| self.queue.get(id));
        event.map_or_else(Vec::new, |event| event.asked_by(own))
    }

    /// The event of the next turn: the one after the turn in progress if that is being committed;
    /// `None` while a turn continues.
    pub(super) fn next_event(&self) -> Option<&AgentEvent> {
        match &self.turns {
            Turns::None | Turns::Beginning(_) => self.queue.ready().next(),
            Turns::Open(_) => None,
            Turns::Ending { turn, taken_in, .. } => {
                let is_over = |id: &EventId| *id == turn.context.event_id || taken_in.contains(id);
                self.queue.ready().find(|event| !is_over(&event.id))
            }
        }
    }

    /// The events of the turns in progress or about to begin. With two, the second begins after the
    /// first is committed.
    pub(super) fn worked_on(&self) -> impl Iterator<Item = &EventId> {
        let turn = self.open_turn().map(|turn| &turn.context);
        let contexts = turn.into_iter().chain(self.turns.beginning());
        contexts.map(|context| &context.event_id)
    }

    /// True if the next turn may begin behind the commit of the one that this process finished.
    pub(super) fn may_begin_behind(&self, process: ProcessId) -> bool {
        let is_free = match &self.turns {
            Turns::Ending { turn, next, .. } => turn.restart.is_none() && next.is_none(),
            Turns::None | Turns::Beginning(_) | Turns::Open(_) => false,
        };
        is_free && self.is_read() && self.is_loaded && self.slot.ready() == Some(process)
    }

    /// Ready → beginning turn; ending turn → ending turn, with the next turn behind it.
    pub(super) fn begin_turn(&mut self, context: TurnContext) -> Result<(), WrongStage> {
        match self.turns.begin(context) {
            true => Ok(()),
            false => Err(self.wrong("begin turn")),
        }
    }

    /// Beginning turn → ready: the turn does not begin, or no longer has a process.
    pub(super) fn on_turn_not_begun(&mut self) {
        self.turns.begin_failed();
    }

    /// Beginning turn → in turn.
    pub(super) fn on_turn_begun(&mut self, turn: ActiveTurn) -> Result<(), WrongStage> {
        if !self.turns.begun(turn) {
            return Err(self.wrong("turn begun"));
        }
        self.start_faults.clear();
        Ok(())
    }

    /// In turn → ending turn: its process completed the turn, with these further events.
    pub(super) fn complete_turn(&mut self, taken_in: Vec<EventId>) -> Result<(), WrongStage> {
        match self.turns.end(taken_in) {
            true => Ok(()),
            false => Err(self.wrong("complete turn")),
        }
    }

    /// In turn → ending turn, if this event's turn is open: later messages about it are ignored.
    /// Returns the turn's trace; `None` if the event is not being worked on.
    pub(super) fn end_work_on(&mut self, event_id: &EventId) -> Option<TraceContext> {
        let open = self.open_turn().map(|turn| &turn.context);
        if let Some(open) = open.filter(|open| open.event_id == *event_id) {
            let trace = open.trace;
            return self.turns.end(Vec::new()).then_some(trace);
        }
        let beginning = self.turns.beginning();
        let beginning = beginning.filter(|context| context.event_id == *event_id);
        beginning.map(|context| context.trace)
    }

    /// Ending turn → ready, or → beginning turn: the store has ended the turn of these events.
    /// Returns the turn, unless its process is gone. With `is_work_done`, earlier crashes no longer
    /// count.
    pub(super) fn on_turn_ended(
        &mut self,
        now_ms: u64,
        turn_id: &TurnId,
        is_of_turn: impl Fn(&EventId) -> bool,
        is_work_done: bool,
    ) -> Option<ActiveTurn> {
        self.queue.done(is_of_turn);
        if is_work_done {
            self.slot.crashes = 0;
        }
        self.idle_since_ms = now_ms;
        self.turns.ended(turn_id)
    }

    /// Takes the answers that arrived and were not passed to the turn in progress yet, with the
    /// process that works on it.
    fn take_new_answers(&mut self) -> Option<(ProcessId, Vec<TurnInput>)> {
        let (turn, up) = self.turns.turn_mut().zip(self.slot.up())?;
        let mut inputs = Vec::new();
        for event in self.queue.events() {
            let is_own = event.id == turn.context.event_id;
            if event.kind == REPLY_KIND && !is_own && turn.inputs.insert(event.id.clone()) {
                let (turn_id, event) = (turn.turn_id.clone(), event.clone());
                inputs.push(TurnInput { turn_id, event });
            }
        }
        Some((up.process, inputs))
    }
}

/// Suspension.
impl Conversation {
    pub(super) fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.freeze.is_some()
    }

    /// Any stage but deleting and frozen → frozen. With `may_cancel`, a turn may be in progress.
    pub(super) fn begin_freeze(
        &mut self,
        freeze: Freeze,
        may_cancel: bool,
    ) -> Result<(), FreezeRefusal> {
        if self.deletion.is_some() {
            return Err(FreezeRefusal::Deleting);
        }
        if self.freeze.is_some() {
            return Err(FreezeRefusal::Frozen);
        }
        if !may_cancel && self.is_in_turn() {
            return Err(FreezeRefusal::InTurn);
        }
        self.freeze = Some(freeze);
        Ok(())
    }

    /// Any stage → frozen, to finish an operation that had begun. A frozen one stays as it is.
    pub(super) fn freeze_to_finish(&mut self, freeze: Freeze) {
        if self.freeze.is_none() {
            self.freeze = Some(freeze);
        }
    }

    /// Frozen → deleting, or → unread.
    pub(super) fn release(&mut self) {
        self.freeze = None;
        if self.deletion.is_none() {
            self.invalidate_queue();
        }
    }

    /// Any stage → deleting. False if it is being deleted already; the recipient is added.
    pub(super) fn begin_deletion(&mut self, reply: DeleteReply) -> bool {
        if let Some(replies) = &mut self.deletion {
            replies.push(reply);
            return false;
        }
        self.deletion = Some(vec![reply]);
        self.queue.clear();
        true
    }

    /// Deleting → unread: the remaining files are read again. Returns the recipients.
    pub(super) fn end_deletion(&mut self) -> Vec<DeleteReply> {
        let replies = self.deletion.take().unwrap_or_default();
        self.invalidate_queue();
        replies
    }
}

/// Other parts, each with a state of its own.
impl Conversation {
    pub(super) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    pub(super) fn waiters_mut(&mut self) -> &mut Waiters {
        &mut self.waiters
    }

    pub(super) fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    pub(super) fn approvals_mut(&mut self) -> &mut Approvals {
        &mut self.approvals
    }

    pub(super) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    pub(super) fn overlay_mut(&mut self) -> &mut Overlay {
        &mut self.overlay
    }

    /// Messages of this process that wait until an interrupted call is in the audit log.
    pub(super) fn held_back(&mut self, process: ProcessId) -> Option<&mut BufferedReports> {
        let held = self.held_back.as_mut();
        held.filter(|held| held.is_of(process))
    }

    /// Messages of this process wait for one more record of the audit log.
    pub(super) fn hold_back(&mut self, process: ProcessId) {
        match self.held_back(process) {
            Some(held) => held.wait_for_note(),
            // Messages of an earlier process no longer count.
            None => self.held_back = Some(BufferedReports::new(process)),
        }
    }

    /// A record of the audit log is written. Returns the messages of this process if they need not
    /// wait any longer.
    pub(super) fn on_noted(&mut self, process: ProcessId) -> Option<BufferedReports> {
        let is_over = self.held_back(process)?.on_noted();
        self.held_back.take_if(|_| is_over)
    }
}

/// Its questions to other conversations.
impl Conversation {
    /// A call of the turn waits for the answer to this question.
    pub(super) fn ask(&mut self, question: EventId, target: InstanceKey) {
        self.asking.insert(question, target);
    }

    /// The call no longer waits.
    pub(super) fn settle_question(&mut self, question: &EventId) {
        self.asking.remove(question);
    }

    /// No call waits any longer.
    pub(super) fn settle_questions(&mut self) {
        self.asking.clear();
    }

    /// The conversations that calls of the turn wait for.
    pub(super) fn asked(&self) -> impl Iterator<Item = &InstanceKey> {
        self.asking.values()
    }

    /// Number of questions whose answers will arrive as events.
    pub(super) fn open_questions(&self) -> usize {
        self.awaiting.len()
    }

    pub(super) fn is_awaiting(&self, reply_id: &EventId) -> bool {
        self.awaiting.contains_key(reply_id)
    }

    pub(super) fn pending_replies(&self) -> impl Iterator<Item = &PendingReply> {
        self.awaiting.values()
    }

    pub(super) fn pending_replies_mut(&mut self) -> impl Iterator<Item = &mut PendingReply> {
        self.awaiting.values_mut()
    }

    pub(super) fn pending_reply_mut(&mut self, reply_id: &EventId) -> Option<&mut PendingReply> {
        self.awaiting.get_mut(reply_id)
    }

    pub(super) fn pending_reply_to(&mut self, question: &EventId) -> Option<&mut PendingReply> {
        let mut all = self.awaiting.values_mut();
        all.find(|held| held.awaited.question == *question)
    }

    /// Loads the expected answers from the store.
    fn expect_answers(&mut self, found: Vec<PendingReplyRecord>) {
        let mut before = std::mem::take(&mut self.awaiting);
        for awaited in found {
            let id = awaited.reply.id.clone();
            let watch = before
                .remove(&id)
                .map_or(ReplyWatch::Nobody, |held| held.watch);
            self.awaiting.insert(id, PendingReply { awaited, watch });
        }
    }

    /// The answer to this question will arrive as an event.
    pub(super) fn expect_answer(
        &mut self,
        question: &EventId,
        target: &InstanceRef,
        reply: &AgentEvent,
    ) {
        let awaited = PendingReplyRecord {
            question: question.clone(),
            target: target.instance_key.clone(),
            reply: reply.clone(),
        };
        let watch = ReplyWatch::Somebody;
        let id = reply.id.clone();
        self.awaiting.insert(id, PendingReply { awaited, watch });
    }

    /// The answer has arrived as this event.
    pub(super) fn on_answer_arrived(&mut self, reply_id: &EventId) {
        self.awaiting.remove(reply_id);
    }

    /// No answer to this question will arrive as an event.
    pub(super) fn forgo_answer(&mut self, question: &EventId) {
        self.awaiting
            .retain(|_, held| held.awaited.question != *question);
    }

    /// Drops all questions.
    pub(super) fn forget_questions(&mut self) {
        self.asking.clear();
        self.awaiting.clear();
    }
}

/// Recipient of a deletion's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteReply {
    Client(RequestToken),
    /// A request that deletes several instances.
    Sweep(RequestToken),
    /// None, because the policy deletes it.
    Policy,
}

#[cfg(test)]
mod tests {
    use goondan_protocol::JsonObject;
    use goondan_protocol::event::EventSource;
    use goondan_protocol::time::Timestamp;
    use goondan_protocol::trace::{SpanId, TraceId};
    use uuid::Uuid;

    use super::super::quotas::TurnUse;
    use super::*;

    fn now() -> ClockTime {
        ClockTime {
            mono_ms: 0,
            wall: Timestamp::from_unix_millis(0),
        }
    }

    fn event(id: &str) -> AgentEvent {
        AgentEvent {
            id: id.parse().unwrap(),
            kind: "message".to_owned(),
            created_at: now().wall,
            trace_id: None,
            parent_span_id: None,
            input: None,
            header: None,
            properties: JsonObject::new(),
            instance_key: None,
            source: EventSource::Connector {
                name: "hook".parse().unwrap(),
            },
            auth: None,
            reply_to: None,
            chain: None,
            join: None,
            metadata: JsonObject::new(),
        }
    }

    fn context(id: &str) -> TurnContext {
        let trace_id = TraceId::from_uuid(Uuid::from_u128(1));
        TurnContext {
            event_id: id.parse().unwrap(),
            trace: TraceContext::root(trace_id, SpanId::from_uuid(Uuid::from_u128(2))),
            config_digest: None,
        }
    }

    fn turn(id: &str) -> ActiveTurn {
        ActiveTurn {
            turn_id: TurnId::from(Uuid::from_u128(3)),
            context: context(id),
            used: TurnUse::new(0),
            handed_over_ms: 0,
            inputs: BTreeSet::new(),
            restart: None,
        }
    }

    /// A conversation with two events and a process that has it all.
    fn ready(process: ProcessId) -> Conversation {
        let mut it = Conversation::new("clerk".parse().unwrap(), 0);
        assert_eq!(it.stage(), Stage::Idle);
        for id in ["a", "b"] {
            it.queue_mut().begin_accept(now().wall);
            it.queue_mut().end_accept(Some(event(id)));
        }
        assert_eq!(it.stage(), Stage::Waiting);
        it.slot_mut().start(process, now());
        assert_eq!(it.stage(), Stage::Starting);
        it.slot_mut().greeted();
        assert_eq!(it.stage(), Stage::Loading);
        assert!(it.on_page_sent(process, true));
        it
    }

    #[test]
    fn a_conversation_goes_from_event_to_commit() {
        let process = ProcessId(1);
        let mut it = ready(process);
        assert_eq!(it.stage(), Stage::Ready(process));
        it.begin_turn(context("a")).unwrap();
        assert_eq!(it.stage(), Stage::BeginningTurn);
        it.on_turn_begun(turn("a")).unwrap();
        assert_eq!(it.stage(), Stage::InTurn);
        assert!(!it.may_begin_behind(process));
        it.complete_turn(Vec::new()).unwrap();
        assert_eq!(it.stage(), Stage::EndingTurn);
        assert!(it.may_begin_behind(process));
        assert_eq!(it.next_event().unwrap().id.as_str(), "b");
        it.begin_turn(context("b")).unwrap();
        assert_eq!(it.stage(), Stage::EndingTurn);
        let ended = it.on_turn_ended(5, &turn("a").turn_id, |id| id.as_str() == "a", true);
        assert!(ended.is_some());
        assert_eq!(it.stage(), Stage::BeginningTurn);
        it.on_turn_begun(turn("b")).unwrap();
        assert!(it.on_exited(9, Some("signal 9")).turn.is_some());
        assert_eq!(
            it.stage(),
            Stage::Loading,
            "its slot gets the exit separately"
        );
    }

    #[test]
    fn a_failed_write_makes_the_queue_unknown_and_a_turn_goes_on() {
        let mut it = ready(ProcessId(1));
        it.begin_turn(context("a")).unwrap();
        it.on_turn_begun(turn("a")).unwrap();
        it.invalidate_queue();
        assert_eq!(it.stage(), Stage::InTurn);
        it.complete_turn(Vec::new()).unwrap();
        it.on_turn_ended(5, &turn("a").turn_id, |_| false, true);
        assert_eq!(it.stage(), Stage::Unread);
        it.begin_reading();
        assert_eq!(it.stage(), Stage::Reading);
        it.on_vanished();
        assert_eq!(it.stage(), Stage::Idle);
    }

    #[test]
    fn freezing_and_deletion_hide_the_turn_until_it_is_over() {
        let freeze = || Freeze {
            id: crate::FreezeId(1),
            order: freeze::Order::Checkpoint {
                token: RequestToken(1),
                name: None,
            },
            step: freeze::FreezeStep::Waiting,
        };
        let mut it = ready(ProcessId(1));
        it.begin_turn(context("a")).unwrap();
        let refusal = it.begin_freeze(freeze(), false).unwrap_err();
        assert_eq!(refusal, FreezeRefusal::InTurn);
        it.begin_freeze(freeze(), true).unwrap();
        assert_eq!(it.stage(), Stage::Frozen);
        assert!(it.is_in_turn());
        assert!(it.begin_deletion(DeleteReply::Policy));
        assert!(!it.begin_deletion(DeleteReply::Client(RequestToken(2))));
        it.release();
        assert_eq!(it.stage(), Stage::Deleting);
        let refusal = it.begin_freeze(freeze(), true).unwrap_err();
        assert_eq!(refusal, FreezeRefusal::Deleting);
        it.on_turn_not_begun();
        assert_eq!(it.end_deletion().len(), 2);
        assert_eq!(it.stage(), Stage::Unread);
    }

    #[test]
    fn event_in_the_wrong_stage_changes_nothing_and_is_logged_once() {
        let mut it = ready(ProcessId(1));
        it.begin_turn(context("a")).unwrap();
        let wrong = it.begin_turn(context("b")).unwrap_err();
        assert_eq!((wrong.event, wrong.stage), ("begin turn", "beginning turn"));
        assert!(it.complete_turn(Vec::new()).is_err());
        assert_eq!(it.stage(), Stage::BeginningTurn);
        assert!(it.is_new_mistake(wrong) && !it.is_new_mistake(wrong));
        assert_eq!(it.mistakes().count(), 1);
    }
}
