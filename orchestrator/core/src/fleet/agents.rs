//! Agent instances, and the processes that work for them.

use std::collections::HashSet;

use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::egress::EgressCaller;
use goondan_protocol::ids::{AgentName, InstanceRef};
use goondan_protocol::ipc::{Assignment, ToAgent};
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::file_names::instance_dir_name;
use goondan_store::instance::{InstanceState, work_dir};
use goondan_store::writer::operation::{LookUpEvent, Open};
use serde_json::json;

use super::agent_replies::pending_replies::QuestionStatus;
use super::changes::RunningAgent;
use super::conversation::process_messages::store_failure;
use super::conversation::{AgentExit, Conversation, Stage};
use super::event_queue::LookingUp;
use super::sandboxes::AgentFiles;
use super::{Fleet, Workspace};
use crate::bus::queue::{Message, Notice};
use crate::jobs::continuation;
use crate::refusals::{control_error, deleted_error};
use crate::{LogEvent, ProcessId, RequestToken};

/// Stop reason of a process that was outdated by an edit.
pub(crate) const CONFIGURATION_CHANGED: &str = "its configuration changed";
/// Stop reason of a process whose agent requested a restart.
const SELF_RESTART: &str = "its agent asked for a restart";

/// Name of an agent whose name could not be read yet.
const UNKNOWN_AGENT: &str = "unknown";

continuation! {
    /// An instance whose work is read.
    Opening {} after Open => &core.fleet.on_opened
}

impl Fleet {
    pub(crate) fn in_turn(&self) -> HashSet<InstanceRef> {
        let mut found = HashSet::new();
        for (workspace_id, workspace) in &self.workspaces {
            for (key, instance) in &workspace.conversations {
                if instance.turn().is_some() {
                    let (workspace_id, instance_key) = (workspace_id.clone(), key.clone());
                    found.insert(InstanceRef {
                        workspace_id,
                        instance_key,
                    });
                }
            }
        }
        found
    }

    /// Removes waiters whose clients are gone.
    pub(crate) fn forget_waiters(&mut self, gone: &HashSet<RequestToken>) {
        for workspace in self.workspaces.values_mut() {
            for instance in workspace.conversations.values_mut() {
                instance.waiters_mut().forget_clients(gone);
            }
        }
    }

    /// Handles the exit of an instance's process. True if the instance must be deleted now.
    pub(crate) fn on_agent_exited(&mut self, at: &InstanceRef, crash: Option<&str>) -> bool {
        let now_ms = self.cx.now().mono_ms;
        let Some(entry) = self.conversation_mut(at) else {
            return false;
        };
        let AgentExit { turn, crash } = entry.on_exited(now_ms, crash);
        if entry.is_deleting() {
            let is_frozen = entry.is_frozen();
            self.advance(at);
            return !is_frozen;
        }
        if let Some(how) = &crash {
            self.note_crash(at, how);
        }
        if let Some((turn, how)) = turn.zip(crash)
            && let Some((entry, cx)) = self.conversation_and_cx(at)
        {
            entry.count_crash(cx, at, turn, &how);
        }
        if let Some(error) = self.why_nothing_begins(at) {
            self.cancel_waiters(at, &error, QuestionStatus::Stands);
        }
        self.advance(at);
        self.forget_if_done(at);
        false
    }

    /// The instance's entry, created if there is none. An instance without an entry has no work,
    /// because all instances with work were loaded with their workspace. An unknown agent is
    /// determined when the instance is opened.
    pub(crate) fn conversation_entry(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
    ) -> Option<&mut Conversation> {
        let agent = agent.cloned().or_else(|| UNKNOWN_AGENT.parse().ok())?;
        let now_ms = self.cx.now().mono_ms;
        let workspace = self.workspaces.get_mut(&at.workspace_id)?;
        let entry = workspace.conversations.entry(at.instance_key.clone());
        Some(entry.or_insert_with(|| Conversation::new(agent, now_ms)))
    }

    /// Performs the next step of a conversation.
    pub(crate) fn advance(&mut self, at: &InstanceRef) {
        let Some(stage) = self.conversation(at).map(Conversation::stage) else {
            return;
        };
        match stage {
            Stage::Frozen => self.post(Message::Notice(Notice::Frozen(at.clone()))),
            Stage::Deleting => {}
            Stage::BeginningTurn | Stage::InTurn | Stage::EndingTurn => {
                if self.may_begin(at)
                    && let Some(entry) = self.conversation_mut(at)
                {
                    entry.note_nothing_waits();
                }
            }
            Stage::Unread
            | Stage::Reading
            | Stage::Idle
            | Stage::Waiting
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping => {
                if self.may_begin(at) {
                    self.advance_between_turns(at, stage);
                }
            }
        }
    }

    fn park_next(&mut self, at: &InstanceRef) {
        if let Some((entry, cx)) = self.conversation_and_cx(at) {
            entry.park_next(cx, at);
        }
    }

    /// Performs the next step of a conversation without a turn.
    fn advance_between_turns(&mut self, at: &InstanceRef, stage: Stage) {
        // A turn in progress finishes on the configuration it began with.
        if self.is_agent_outdated(at) {
            return self.drain_agent(at, CONFIGURATION_CHANGED);
        }
        let now = self.cx.now();
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        if entry.is_to_restart() {
            return self.drain_agent(at, SELF_RESTART);
        }
        let may_start = entry.slot().may_start(now);
        match stage {
            Stage::Unread if entry.may_read(now) => self.read_queue(at),
            // It starts with the next event.
            Stage::Idle => entry.note_nothing_waits(),
            Stage::Reading if entry.queue().has_nothing_ready() => entry.note_nothing_waits(),
            Stage::Reading if may_start => self.start_agent(at),
            Stage::Waiting if entry.why_none_starts(now).is_some() => self.park_next(at),
            Stage::Waiting
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping
                if entry.is_next_poisonous() =>
            {
                self.park_next(at);
            }
            Stage::Waiting if may_start => self.start_agent(at),
            Stage::Ready(process) if !self.is_noting(at) => self.begin_turn(at, process),
            // It goes on when the store or the process reports, or after the back-off.
            Stage::Unread
            | Stage::Reading
            | Stage::Waiting
            | Stage::Starting
            | Stage::Loading
            | Stage::Ready(_)
            | Stage::Stopping => {}
            // These have no step between turns.
            Stage::Frozen
            | Stage::Deleting
            | Stage::BeginningTurn
            | Stage::InTurn
            | Stage::EndingTurn => {}
        }
    }

    /// Begins the next turn with the commit of the one in progress, instead of when that is reported: the
    /// store does both at once, in their order.
    pub(super) fn begin_behind(&mut self, at: &InstanceRef, process: ProcessId) {
        let entry = self.conversation(at);
        let may_follow = entry.is_some_and(|entry| {
            entry.may_begin_behind(process)
                && !entry.is_to_restart()
                && !entry.counts_turns()
                && !entry.is_next_poisonous()
        });
        if may_follow && self.may_begin(at) && !self.is_agent_outdated(at) {
            self.begin_turn(at, process);
        }
    }

    /// True if turns of an instance may begin.
    fn may_begin(&self, at: &InstanceRef) -> bool {
        let workspace = self.workspaces.get(&at.workspace_id);
        let workspace = workspace.filter(|workspace| workspace.closing.is_none());
        let workspace =
            workspace.filter(|workspace| !workspace.task_conversations.lacks(&at.instance_key));
        let entry = workspace.and_then(|workspace| workspace.conversations.get(&at.instance_key));
        !self.is_stopping() && entry.is_some_and(|entry| !entry.is_deleting() && !entry.is_frozen())
    }

    /// True if the running process was started with another configuration.
    pub(crate) fn is_agent_outdated(&self, at: &InstanceRef) -> bool {
        let workspace = self.workspaces.get(&at.workspace_id);
        workspace.is_some_and(|workspace| workspace.is_agent_outdated(&at.instance_key))
    }

    /// Asks the store what the instance has to do.
    fn read_queue(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.conversation_mut(at) {
            entry.begin_reading();
            let instance = at.clone();
            let open = Open {
                instance: at.clone(),
            };
            self.cx.store(open, Opening { instance });
        }
    }

    /// Reads the inbox again before the next turn: a failed write may have left something in it.
    pub(crate) fn invalidate_queue(&mut self, at: &InstanceRef) {
        if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
            workspace.parked.forget_known(&at.instance_key);
        }
        if let Some(entry) = self.conversation_mut(at) {
            entry.invalidate_queue();
            self.advance(at);
        }
    }

    /// Loads an instance that may have pending work.
    pub(crate) fn take_up(&mut self, at: &InstanceRef, agent: Option<&AgentName>) {
        let is_known = self.conversation(at).is_some();
        if !is_known && let Some(entry) = self.conversation_entry(at, agent) {
            entry.invalidate_queue();
            self.advance(at);
        }
    }

    fn start_agent(&mut self, at: &InstanceRef) {
        if !self.is_armed(at) {
            return;
        }
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let Some(entry) = workspace.conversations.get_mut(&at.instance_key) else {
            return;
        };
        let running = workspace
            .bundle
            .as_ref()
            .and_then(|bundle| RunningAgent::of(entry.agent(), bundle));
        let Some(running) = running else {
            let detail = format!("agent `{}` is not in the configuration", entry.agent());
            if entry.slot().detail.as_ref() != Some(&detail) {
                entry.slot_mut().detail = Some(detail.clone());
                let event = LogEvent::error("failed to start conversation with waiting events");
                self.log(event.of(at).with("problem", detail));
            }
            return;
        };
        if !self.may_start(at) {
            return;
        }
        let running = match self.take_definition(at) {
            Some(definition) => running.being(*definition),
            None => running,
        };
        let limits = running.definition.limits;
        let Some((entry, cx)) = self.conversation_and_cx(at) else {
            return;
        };
        if let Err(wrong) = entry.begin_start(running) {
            return entry.log_mistake(cx, at, wrong);
        }
        let process = entry.spawn(cx, at, limits);
        self.starts.begin(process);
        self.read_queue(at);
    }

    pub(super) fn agent_assignment(&self, at: &InstanceRef) -> Option<Assignment> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let entry = workspace.conversations.get(&at.instance_key)?;
        let instances = self.cx.facts().layout.instances(&at.workspace_id);
        let caller = EgressCaller::Agent(entry.agent().clone());
        let agent = entry.definition()?;
        let of_modules = agent.module_sandboxes().filter_map(|it| {
            let caller = it.caller(entry.agent());
            let socket = self
                .cx
                .facts()
                .egress_socket(&at.workspace_id, &caller, &it.sandbox)?;
            Some((caller.to_string(), socket))
        });
        let package_sockets = of_modules.collect();
        let own_dir = || work_dir(&instances.join(instance_dir_name(&at.instance_key)));
        let task = workspace.assigned_task(self.cx.facts(), &at.instance_key);
        let (task, work_area) = task.unzip();
        let files = self.files_of(at).ok().filter(|_| task.is_none());
        Some(Assignment::Agent(Box::new(AgentAssignment {
            workspace_id: at.workspace_id.clone(),
            instance_key: at.instance_key.clone(),
            agent: agent.clone(),
            work_dir: work_area.unwrap_or_else(own_dir),
            project_root: workspace.record.project_root.clone(),
            egress_socket: self
                .cx
                .facts()
                .egress_socket(&at.workspace_id, &caller, &agent.sandbox),
            package_sockets,
            sandbox: files.and_then(AgentFiles::sandbox_dir),
            run: files.and_then(AgentFiles::run_dir),
            changesets: self.changesets_dir_of(at),
            task,
            node: self.cx.facts().node.clone(),
        })))
    }

    pub(crate) fn send_agent(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        reply_to: Option<u64>,
        trace: Option<TraceContext>,
        message: ToAgent,
    ) {
        if let Some((entry, cx)) = self.conversation_and_cx(at) {
            entry.send(cx, at, (process, reply_to), trace, message);
        }
    }

    fn on_opened(&mut self, opening: &Opening, result: Result<Box<InstanceState>, StoreError>) {
        let at = &opening.instance;
        let state = match result {
            Ok(state) => state,
            Err(error) => return self.on_open_failed(at, &error),
        };
        let Some(entry) = self.conversation_mut(at) else {
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
            self.hold_to_finish(at, note);
            return self.advance(at);
        }
        let open_turn = state.open_turn.as_ref().map(|open| open.turn_id.clone());
        for event_id in entry.on_queue_read(*state) {
            let look_up = LookUpEvent {
                instance: at.clone(),
                event_id: event_id.clone(),
            };
            let instance = at.clone();
            self.cx.store(look_up, LookingUp { instance, event_id });
        }
        self.look_for_answers(at, open_turn.as_ref());
        if has_approvals && let Some((workspace, cx)) = self.workspace_and_cx(&at.workspace_id) {
            workspace.show_in_chats(cx);
        }
        self.advance(at);
        self.forget_if_done(at);
    }

    /// It is not known what the instance has to do: it is asked again after the back-off.
    pub(crate) fn on_open_failed(&mut self, at: &InstanceRef, error: &StoreError) {
        let now = self.cx.now();
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        entry.invalidate_queue();
        if entry.process().is_some() {
            return self.on_store_failure(at, None, error);
        }
        if matches!(error, StoreError::NoInstance { .. }) {
            entry.on_vanished();
            self.cancel_waiters(at, &deleted_error(&at.instance_key), QuestionStatus::Lost);
            self.forget_questions_of(at);
            return self.forget_if_done(at);
        }
        let text = goondan_log::error_chain(error);
        entry.slot_mut().failed(now, text.clone());
        let event = LogEvent::error("failed to read pending work of conversation");
        self.log(event.of(at).with("error", text));
        if error.is_permanent() {
            self.cancel_waiters(at, &control_error(error), QuestionStatus::Stands);
        }
    }

    /// Handles a failure of the store. The process ends; the next one continues from durable data,
    /// with a back-off between attempts. The failure counts against no event.
    pub(crate) fn on_store_failure(
        &mut self,
        at: &InstanceRef,
        process: Option<ProcessId>,
        error: &StoreError,
    ) {
        match self.workspaces.get_mut(&at.workspace_id) {
            Some(workspace) => workspace.on_store_failure(&mut self.cx, at, process, error),
            None => self.log(store_failure(error).of(at)),
        }
    }

    /// An agent that has had nothing to do for long is stopped; it starts again on demand (`SUP-3`).
    pub(crate) fn on_agent_time(&mut self, at: &InstanceRef) {
        let now = self.cx.now();
        let workspace = self.workspaces.get(&at.workspace_id);
        let idle_ms = workspace
            .map(Workspace::lifecycle)
            .unwrap_or_default()
            .idle_ms;
        self.time_out_waiters(at);
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        let is_idle = entry.has_nothing_to_do();
        if is_idle
            && entry.slot().ready().is_some()
            && now.mono_ms.saturating_sub(entry.idle_since_ms()) >= idle_ms
        {
            self.drain_agent(at, "it is idle");
        } else {
            self.advance(at);
            self.forget_if_done(at);
        }
    }

    /// Asks an agent's process to finish and end, within the grace period of its workspace.
    pub(super) fn drain_agent(&mut self, at: &InstanceRef, reason: &str) {
        if let Some((workspace, cx)) = self.workspace_and_cx(&at.workspace_id) {
            let grace_ms = workspace.grace_period_ms(cx);
            if let Some(entry) = workspace.conversations.get_mut(&at.instance_key) {
                entry.drain(cx, at, grace_ms, reason);
            }
        }
    }

    /// Restarts an agent's process on request of a person.
    pub(crate) fn restart_agent(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.conversation_mut(at) {
            entry.forgive_crashes();
        }
        self.audit(at, "restarted", json!({}));
        self.drain_agent(at, "a restart was requested");
        self.advance(at);
    }

    /// Removes an idle instance without a process.
    pub(crate) fn forget_if_done(&mut self, at: &InstanceRef) {
        if let Some((workspace, cx)) = self.workspace_and_cx(&at.workspace_id) {
            workspace.forget_if_done(cx, &at.instance_key);
        }
    }
}
