//! Agent instances, and the processes that work for them.

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::egress::EgressCaller;
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef};
use goondan_protocol::ipc::Assignment;
use goondan_store::StoreError;
use goondan_store::file_names::instance_dir_name;
use goondan_store::instance::{InstanceState, work_dir};
use goondan_store::writer::operation::{LookUpEvent, Open};
use serde_json::json;

use super::Workspace;
use super::agent_replies::pending_replies::QuestionStatus;
use super::changes::RunningAgent;
use super::conversation::{AgentExit, Conversation, Stage};
use super::event_queue::LookingUp;
use super::sandboxes::AgentFiles;
use crate::bus::context::Cx;
use crate::bus::queue::{Message, Notice};
use crate::jobs::continuation;
use crate::refusals::{control_error, deleted_error};
use crate::{LogEvent, ProcessId};

/// Stop reason of a process that was outdated by an edit.
pub(crate) const CONFIGURATION_CHANGED: &str = "its configuration changed";
/// Stop reason of a process whose agent requested a restart.
const SELF_RESTART: &str = "its agent asked for a restart";

/// Name of an agent whose name could not be read yet.
const UNKNOWN_AGENT: &str = "unknown";

continuation! {
    /// An instance whose work is read.
    Opening {} after Open => &workspace.on_opened
}

/// Next step of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing, until a report of the store or the process, or the end of a back-off.
    None,
    /// Its process and queue are as they should be, and no event may begin a turn.
    Rest,
    /// The operation that holds it may continue.
    Continue,
    /// Its process must end, for this reason.
    Drain(&'static str),
    ReadQueue,
    Park,
    /// Its process must start, which depends on the other workspaces, too.
    Start,
    BeginTurn(ProcessId),
}

impl Conversation {
    /// Requests the pending work of the instance from the store.
    fn read_queue(&mut self, cx: &mut Cx, at: &InstanceRef) {
        self.begin_reading();
        let instance = at.clone();
        let open = Open {
            instance: at.clone(),
        };
        cx.store(open, Opening { instance });
    }
}

impl Workspace {
    /// Handles the exit of an instance's process. True if the instance must be deleted now.
    pub(crate) fn on_agent_exited(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        crash: Option<&str>,
    ) -> bool {
        let now_ms = cx.now().mono_ms;
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return false;
        };
        let AgentExit { turn, crash } = entry.on_exited(now_ms, crash);
        if entry.is_deleting() {
            let is_frozen = entry.is_frozen();
            self.advance(cx, at);
            return !is_frozen;
        }
        if let Some(how) = &crash {
            entry.note_crash(cx, at, how);
        }
        if let Some((turn, how)) = turn.zip(crash) {
            entry.count_crash(cx, at, turn, &how);
        }
        if let Some(error) = self.why_nothing_begins(cx, &at.instance_key) {
            self.cancel_waiters(cx, at, &error, QuestionStatus::Stands);
        }
        self.advance(cx, at);
        self.forget_if_done(cx, &at.instance_key);
        false
    }

    /// The instance's entry, created if there is none. An instance without an entry has no work,
    /// because all instances with work were loaded with their workspace. An unknown agent is
    /// determined when the instance is opened.
    pub(crate) fn conversation_entry(
        &mut self,
        cx: &Cx,
        at: &InstanceRef,
        agent: Option<&AgentName>,
    ) -> Option<&mut Conversation> {
        let agent = agent.cloned().or_else(|| UNKNOWN_AGENT.parse().ok())?;
        let now_ms = cx.now().mono_ms;
        let entry = self.conversations.entry(at.instance_key.clone());
        Some(entry.or_insert_with(|| Conversation::new(agent, now_ms)))
    }

    /// Performs the next step of a conversation.
    pub(crate) fn advance(&mut self, cx: &mut Cx, at: &InstanceRef) {
        self.end_joins(cx, at);
        match self.next_step(cx, &at.instance_key) {
            Step::None => {}
            Step::Rest => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.note_nothing_waits();
                }
            }
            Step::Continue => cx.send(Message::Notice(Notice::Frozen(at.clone()))),
            Step::Drain(reason) => self.drain_agent(cx, at, reason),
            Step::ReadQueue => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.read_queue(cx, at);
                }
            }
            Step::Park => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.park_next(cx, at);
                }
            }
            Step::Start => cx.send(Message::Notice(Notice::Start(at.clone()))),
            Step::BeginTurn(process) => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.begin_next_turn(cx, at, process, self.bundle.as_ref());
                }
            }
        }
    }

    /// True if the next step of a conversation is the start of its process.
    pub(super) fn is_to_start(&self, cx: &Cx, at: &InstanceRef) -> bool {
        self.next_step(cx, &at.instance_key) == Step::Start
    }

    fn next_step(&self, cx: &Cx, key: &InstanceKey) -> Step {
        let Some(entry) = self.conversations.get(key) else {
            return Step::None;
        };
        let stage = entry.stage();
        match stage {
            Stage::Frozen => return Step::Continue,
            Stage::Deleting => return Step::None,
            _ if !self.may_begin(cx, key) => return Step::None,
            Stage::BeginningTurn | Stage::InTurn | Stage::EndingTurn => return Step::Rest,
            Stage::Unread
            | Stage::Reading
            | Stage::Idle
            | Stage::Waiting
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping => {}
        }
        // A turn in progress finishes on the configuration it began with.
        if entry.is_outdated(self.bundle.as_ref()) {
            return Step::Drain(CONFIGURATION_CHANGED);
        }
        if entry.is_to_restart() {
            return Step::Drain(SELF_RESTART);
        }
        let now = cx.now();
        let may_start = entry.slot().may_start(now);
        match stage {
            Stage::Unread if entry.may_read(now) => Step::ReadQueue,
            // It starts with the next event.
            Stage::Idle => Step::Rest,
            Stage::Reading if entry.queue().has_nothing_ready() => Step::Rest,
            Stage::Reading if may_start => Step::Start,
            Stage::Waiting if entry.why_none_starts(now).is_some() => Step::Park,
            Stage::Waiting
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping
                if entry.is_next_poisonous() =>
            {
                Step::Park
            }
            Stage::Waiting if may_start => Step::Start,
            Stage::Ready(process) if !cx.bundles().is_noting(&self.conversation_ref(key)) => {
                Step::BeginTurn(process)
            }
            // It continues when the store or the process reports, or after the back-off.
            Stage::Unread
            | Stage::Reading
            | Stage::Waiting
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping => Step::None,
            // These have no step between turns.
            Stage::Frozen
            | Stage::Deleting
            | Stage::BeginningTurn
            | Stage::InTurn
            | Stage::EndingTurn => Step::None,
        }
    }

    /// Begins the next turn with the commit of the one in progress, instead of when that is reported: the
    /// store does both at once, in their order.
    pub(super) fn begin_behind(&mut self, cx: &mut Cx, at: &InstanceRef, process: ProcessId) {
        let entry = self.conversations.get(&at.instance_key);
        let may_follow = entry.is_some_and(|entry| {
            entry.may_begin_behind(process)
                && !entry.is_to_restart()
                && !entry.counts_turns()
                && !entry.is_next_poisonous()
                && !entry.is_outdated(self.bundle.as_ref())
        });
        if may_follow
            && self.may_begin(cx, &at.instance_key)
            && let Some(entry) = self.conversations.get_mut(&at.instance_key)
        {
            entry.begin_next_turn(cx, at, process, self.bundle.as_ref());
        }
    }

    /// True if turns of an instance may begin.
    fn may_begin(&self, cx: &Cx, key: &InstanceKey) -> bool {
        let entry = self.conversations.get(key);
        !self.is_ending(cx)
            && !self.task_conversations.lacks(key)
            && entry.is_some_and(|entry| !entry.is_deleting() && !entry.is_frozen())
    }

    /// Reads the inbox again before the next turn: a failed write may have left something in it.
    pub(crate) fn invalidate_queue(&mut self, cx: &mut Cx, at: &InstanceRef) {
        self.parked.forget_known(&at.instance_key);
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.invalidate_queue();
            self.advance(cx, at);
        }
    }

    /// Loads an instance that may have pending work.
    pub(crate) fn take_up(&mut self, cx: &mut Cx, at: &InstanceRef, agent: Option<&AgentName>) {
        let is_known = self.conversations.contains_key(&at.instance_key);
        if !is_known && let Some(entry) = self.conversation_entry(cx, at, agent) {
            entry.invalidate_queue();
            self.advance(cx, at);
        }
    }

    /// The configuration for the next process of an instance; `None` if a part is not known yet. That part
    /// is requested.
    pub(super) fn configuration_to_start(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
    ) -> Option<RunningAgent> {
        let entry = self.conversations.get_mut(&at.instance_key)?;
        let bundle = self.bundle.as_ref();
        if !entry.is_armed(cx, at, bundle) {
            return None;
        }
        let running = bundle.and_then(|bundle| RunningAgent::of(entry.agent(), bundle));
        if running.is_none() {
            let detail = format!("agent `{}` is not in the configuration", entry.agent());
            if entry.slot().detail.as_ref() != Some(&detail) {
                entry.slot_mut().detail = Some(detail.clone());
                let event = LogEvent::error("failed to start conversation with waiting events");
                entry.log(cx, at, event.with("problem", detail));
            }
        }
        running
    }

    /// Starts the process of an instance, and returns it.
    pub(super) fn start_agent(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        running: RunningAgent,
    ) -> Option<ProcessId> {
        let has_bundles = self.has_bundles();
        let entry = self.conversations.get_mut(&at.instance_key)?;
        let running = match entry.overlay_mut().take().filter(|_| has_bundles) {
            Some(definition) => running.being(*definition),
            None => running,
        };
        let limits = running.definition.limits;
        if let Err(wrong) = entry.begin_start(running) {
            entry.log_mistake(cx, at, wrong);
            return None;
        }
        let process = entry.spawn(cx, at, limits);
        entry.read_queue(cx, at);
        Some(process)
    }

    pub(super) fn agent_assignment(&self, cx: &Cx, at: &InstanceRef) -> Option<Assignment> {
        let entry = self.conversations.get(&at.instance_key)?;
        let instances = cx.facts().layout.instances(&at.workspace_id);
        let caller = EgressCaller::Agent(entry.agent().clone());
        let agent = entry.definition()?;
        let of_modules = agent.module_sandboxes().filter_map(|it| {
            let caller = it.caller(entry.agent());
            let socket = cx
                .facts()
                .egress_socket(&at.workspace_id, &caller, &it.sandbox)?;
            Some((caller.to_string(), socket))
        });
        let package_sockets = of_modules.collect();
        let own_dir = || work_dir(&instances.join(instance_dir_name(&at.instance_key)));
        let task = self.assigned_task(cx.facts(), &at.instance_key);
        let (task, work_area) = task.unzip();
        let files = self.files_of(cx.facts(), at);
        let files = Some(files).filter(|_| task.is_none());
        Some(Assignment::Agent(Box::new(AgentAssignment {
            workspace_id: at.workspace_id.clone(),
            instance_key: at.instance_key.clone(),
            agent: agent.clone(),
            work_dir: work_area.unwrap_or_else(own_dir),
            project_root: self.record.project_root.clone(),
            egress_socket: cx
                .facts()
                .egress_socket(&at.workspace_id, &caller, &agent.sandbox),
            package_sockets,
            sandbox: files.and_then(AgentFiles::sandbox_dir),
            run: files.and_then(AgentFiles::run_dir),
            changesets: self.changesets_dir_of(cx.facts(), &at.instance_key),
            task,
            node: cx.facts().node.clone(),
        })))
    }

    fn on_opened(
        &mut self,
        cx: &mut Cx,
        opening: &Opening,
        result: Result<Box<InstanceState>, StoreError>,
    ) {
        let at = &opening.instance;
        let state = match result {
            Ok(state) => state,
            Err(error) => return self.on_open_failed(cx, at, &error),
        };
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        // The files are being removed.
        if !entry.on_opened(&state) {
            return;
        }
        let has_approvals = !entry.approvals().is_empty();
        if let Some(note) = state.rewind {
            // Nothing else is done before that is finished; then the queue is read again.
            entry.invalidate_queue();
            entry.hold_to_finish(cx, note);
            return self.advance(cx, at);
        }
        let open_turn = state.open_turn.as_ref().map(|open| open.turn_id.clone());
        for event_id in entry.on_queue_read(*state) {
            let look_up = LookUpEvent {
                instance: at.clone(),
                event_id: event_id.clone(),
            };
            let instance = at.clone();
            cx.store(look_up, LookingUp { instance, event_id });
        }
        entry.look_for_answers(cx, at, open_turn.as_ref());
        if has_approvals {
            self.show_in_chats(cx);
        }
        self.advance(cx, at);
        self.forget_if_done(cx, &at.instance_key);
    }

    /// The pending work of the instance is unknown; it is requested again after the back-off.
    pub(crate) fn on_open_failed(&mut self, cx: &mut Cx, at: &InstanceRef, error: &StoreError) {
        let now = cx.now();
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        entry.invalidate_queue();
        if entry.process().is_some() {
            return self.on_store_failure(cx, at, None, error);
        }
        if matches!(error, StoreError::NoInstance { .. }) {
            entry.on_vanished();
            let gone = deleted_error(&at.instance_key);
            self.cancel_waiters(cx, at, &gone, QuestionStatus::Lost);
            self.forget_questions_of(at);
            return self.forget_if_done(cx, &at.instance_key);
        }
        let text = goondan_log::error_chain(error);
        entry.slot_mut().failed(now, text.clone());
        let event = LogEvent::error("failed to read pending work of conversation");
        self.log(cx, event.of(at).with("error", text));
        if error.is_permanent() {
            self.cancel_waiters(cx, at, &control_error(error), QuestionStatus::Stands);
        }
    }

    /// An agent that has been idle for long is stopped; it starts again on demand (`SUP-3`).
    pub(crate) fn on_agent_time(&mut self, cx: &mut Cx, at: &InstanceRef) {
        let now = cx.now();
        let idle_ms = self.lifecycle().idle_ms;
        self.time_out_waiters(cx, at);
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let is_idle = entry.has_nothing_to_do();
        if is_idle
            && entry.slot().ready().is_some()
            && now.mono_ms.saturating_sub(entry.idle_since_ms()) >= idle_ms
        {
            self.drain_agent(cx, at, "it is idle");
        } else {
            self.advance(cx, at);
            self.forget_if_done(cx, &at.instance_key);
        }
    }

    /// Asks an agent's process to finish and end, within the grace period of its workspace.
    pub(super) fn drain_agent(&mut self, cx: &mut Cx, at: &InstanceRef, reason: &str) {
        let grace_ms = self.grace_period_ms(cx);
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.drain(cx, at, grace_ms, reason);
        }
    }

    /// Restarts an agent's process on request of a person.
    pub(crate) fn restart_agent(&mut self, cx: &mut Cx, at: &InstanceRef) {
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.forgive_crashes();
        }
        let agent = self.agent_name(&at.instance_key);
        cx.audit(at, agent, "restarted", json!({}));
        self.drain_agent(cx, at, "a restart was requested");
        self.advance(cx, at);
    }
}
