//! Agent instances, and the processes that work for them.

use std::collections::HashSet;

use goondan_protocol::JsonObject;
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::egress::EgressCaller;
use goondan_protocol::envelope::Address;
use goondan_protocol::ids::{AgentName, EventId, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{Assignment, EnvelopeHeader, ToAgent};
use goondan_protocol::limits::DEFAULT_GRACE_PERIOD_MS;
use goondan_protocol::observe::detail_of;
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::file_names::instance_dir_name;
use goondan_store::instance::{InstanceState, work_dir};
use goondan_store::writer::operation::{Audit, Close, LookUpEvent, Open};
use serde_json::{Value, json};

use super::agent_replies::pending_replies::QuestionStatus;
use super::changes::RunningAgent;
use super::event_queue::LookingUp;
use super::instance::{Instance, Progress};
use super::{DaemonShutdown, Fleet, ProcessOwner};
use crate::jobs::{LogAuditFailure, LogFailure, continuation};
use crate::refusals::{control_error, deleted_error};
use crate::{CoreEffect, LogEvent, ProcessId, RequestToken};

/// Stop reason of a process that was outdated by an edit.
pub(crate) const CONFIGURATION_CHANGED: &str = "its configuration changed";
/// Stop reason of a process whose agent requested a restart.
const SELF_RESTART: &str = "its agent asked for a restart";

/// Name of an agent whose name could not be read yet.
const UNKNOWN_AGENT: &str = "unknown";

fn agent_address(instance: &InstanceRef, agent: &AgentName) -> Address {
    Address::Agent {
        name: agent.clone(),
        instance_key: instance.instance_key.clone(),
    }
}

continuation! {
    /// An instance whose work is read.
    Opening {} after Open => &core.fleet.on_opened
}

impl Fleet {
    /// True if an instance is in a turn or begins one.
    pub(crate) fn is_in_turn(&self, at: &InstanceRef) -> bool {
        let workspace = self.workspaces.get(&at.workspace_id);
        let entry = workspace.and_then(|workspace| workspace.instances.get(&at.instance_key));
        entry.is_some_and(|entry| entry.turn.is_some() || entry.progress.beginning.is_some())
    }

    /// Ends the process of an instance that is not in a turn: it holds the conversation as it was.
    pub(crate) fn end_idle_process(&mut self, at: &InstanceRef) {
        let up = self.instance_mut(at).and_then(|entry| entry.slot.up());
        if let Some(process) = up.map(|up| up.process) {
            self.kill(process, true);
        }
    }

    pub(crate) fn in_turn(&self) -> HashSet<InstanceRef> {
        let mut found = HashSet::new();
        for (workspace_id, workspace) in &self.workspaces {
            for (key, instance) in &workspace.instances {
                if instance.turn.is_some() {
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
            for instance in workspace.instances.values_mut() {
                instance.waiters.forget_clients(gone);
            }
        }
    }

    /// Handles the exit of an instance's process. True if the instance must be deleted now.
    pub(crate) fn on_agent_exited(&mut self, at: &InstanceRef, crash: Option<&str>) -> bool {
        let now_ms = self.now.mono_ms;
        let Some(entry) = self.instance_mut(at) else {
            return false;
        };
        let turn = entry.turn.take();
        entry.approvals.forget_requesters();
        entry.progress = Progress::default();
        let not_started = entry.start_faults.on_exited();
        let crash = crash.map(|how| not_started.as_deref().unwrap_or(how));
        entry.idle_since_ms = now_ms;
        let is_excused = std::mem::take(&mut entry.is_failed_by_store);
        let crash = crash.filter(|_| !is_excused);
        if let Some(reason) = entry.restarts.done() {
            entry.slot.detail = Some(format!("restarted itself: {reason}"));
        }
        if entry.deleting.is_some() {
            let is_held = entry.hold.is_some();
            self.pump(at);
            return !is_held;
        }
        if let Some(how) = crash {
            self.note_crash(at, how);
        }
        if let Some((turn, how)) = turn.zip(crash) {
            self.count_crash(at, turn, how);
        }
        if let Some(error) = self.why_nothing_begins(at) {
            self.cancel_waiters(at, &error, QuestionStatus::Stands);
        }
        self.pump(at);
        self.forget_if_done(at);
        false
    }

    /// Handles an agent process that reports that it cannot start, and exits.
    pub(crate) fn on_agent_not_started(&mut self, at: &InstanceRef, reason: &str) {
        if let Some(entry) = self.instance_mut(at) {
            entry.start_faults.report(detail_of(reason));
        }
    }

    /// The instance's entry, created if there is none. An instance without an entry has no work,
    /// because all instances with work were loaded with their workspace. An unknown agent is
    /// determined when the instance is opened.
    pub(crate) fn instance_entry(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
    ) -> Option<&mut Instance> {
        let agent = agent.cloned().or_else(|| UNKNOWN_AGENT.parse().ok())?;
        let now_ms = self.now.mono_ms;
        let workspace = self.workspaces.get_mut(&at.workspace_id)?;
        let entry = workspace.instances.entry(at.instance_key.clone());
        Some(entry.or_insert_with(|| Instance::new(agent, now_ms)))
    }

    /// Performs the next steps of an instance.
    pub(crate) fn pump(&mut self, at: &InstanceRef) {
        if self.is_held(at) {
            self.holds_due.insert(at.clone());
            return;
        }
        if !self.may_begin(at) {
            return;
        }
        let now = self.now;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let is_between_turns = entry.turn.is_none() && entry.progress.beginning.is_none();
        if is_between_turns && self.is_agent_outdated(at) {
            // A turn in progress finishes on the configuration it began with.
            return self.drain_agent(at, None, CONFIGURATION_CHANGED);
        }
        if is_between_turns && self.is_to_restart(at) {
            return self.drain_agent(at, None, SELF_RESTART);
        }
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let may_start = entry.slot.may_start(now);
        let ready = entry.slot.ready();
        let none_starts = entry.why_none_starts(now).is_some();
        if entry.inbox.is_unread() {
            if is_between_turns && (may_start || ready.is_some() || none_starts) {
                self.read_inbox(at);
            }
        } else if entry.inbox.has_nothing_ready() {
            // It starts with the next event.
            entry.start_faults.on_nothing_waiting();
        } else if is_between_turns
            && entry.inbox.is_read()
            && (none_starts || self.is_next_poisonous(at))
        {
            self.park_next(at);
        } else if may_start {
            self.start_agent(at);
        } else if let Some(process) = ready
            && is_between_turns
            && self.is_ready_for_turns(at)
            && !self.is_noting(at)
        {
            self.begin_turn(at, process);
        }
    }

    /// Begins the next turn with the commit of the one in progress, instead of when that is reported: the
    /// store does both at once, in their order.
    pub(super) fn begin_behind(&mut self, at: &InstanceRef, process: ProcessId) {
        let may_begin = self.may_begin(at)
            && self.is_ready_for_turns(at)
            && !self.is_agent_outdated(at)
            && !self.is_to_restart(at)
            && !self.counts_turns(at)
            && !self.is_next_poisonous(at);
        let Some(entry) = self.instance_mut(at).filter(|_| may_begin) else {
            return;
        };
        let turn = entry.turn.as_ref();
        let is_to_end = turn.is_some_and(|turn| turn.restart.is_some());
        let is_beginning = entry.progress.beginning.is_some();
        if !is_to_end && !is_beginning && entry.slot.ready() == Some(process) {
            self.begin_turn(at, process);
        }
    }

    /// True if turns of an instance may begin.
    fn may_begin(&self, at: &InstanceRef) -> bool {
        let workspace = self.workspaces.get(&at.workspace_id);
        let workspace = workspace.filter(|workspace| workspace.closing.is_none());
        let workspace = workspace.filter(|workspace| !workspace.lacks_task(&at.instance_key));
        let entry = workspace.and_then(|workspace| workspace.instances.get(&at.instance_key));
        !self.is_stopping()
            && entry.is_some_and(|entry| entry.deleting.is_none() && entry.hold.is_none())
    }

    /// True if the running process was started with another configuration.
    pub(crate) fn is_agent_outdated(&self, at: &InstanceRef) -> bool {
        let workspace = self.workspaces.get(&at.workspace_id);
        workspace.is_some_and(|workspace| {
            let entry = workspace.instances.get(&at.instance_key);
            let running = entry.filter(|entry| entry.slot.up().is_some());
            if running.is_some_and(|entry| entry.overlay.standing.is_pending) {
                return true;
            }
            match (
                running.and_then(|entry| entry.running.as_ref()),
                &workspace.bundle,
            ) {
                (Some(running), Some(bundle)) => running.is_outdated(bundle),
                _ => false,
            }
        })
    }

    /// True if the agent has requested a restart of its process, and the process still runs.
    fn is_to_restart(&mut self, at: &InstanceRef) -> bool {
        let entry = self.instance_mut(at);
        entry.is_some_and(|entry| entry.restarts.due().is_some() && entry.slot.up().is_some())
    }

    /// True if any agent of a workspace still runs with another configuration.
    pub(super) fn is_any_agent_outdated(&self, id: &WorkspaceId) -> bool {
        let agents = self.owners.values();
        agents
            .filter_map(|owner| match owner {
                ProcessOwner::Agent(at) if at.workspace_id == *id => Some(at),
                _ => None,
            })
            .any(|at| self.is_agent_outdated(at))
    }

    /// True if any turn in progress in a workspace began with another configuration.
    pub(super) fn is_any_turn_of_before(&self, id: &WorkspaceId) -> bool {
        let Some(workspace) = self.workspaces.get(id) else {
            return false;
        };
        let digest = workspace.bundle.as_ref().map(|bundle| &bundle.digest);
        let mut running = workspace.instances.values();
        running.any(|entry| {
            let turn = entry.turn.as_ref().map(|turn| &turn.context);
            let mut turns = turn.into_iter().chain(&entry.progress.beginning);
            entry.slot.up().is_some() && turns.any(|turn| turn.config_digest.as_ref() != digest)
        })
    }

    fn is_ready_for_turns(&mut self, at: &InstanceRef) -> bool {
        let entry = self.instance_mut(at);
        entry.is_some_and(|entry| entry.inbox.is_read() && entry.progress.is_loaded)
    }

    /// Asks the store what the instance has to do.
    fn read_inbox(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.instance_mut(at) {
            entry.inbox.begin_reading();
            let instance = at.clone();
            let open = Open {
                instance: at.clone(),
            };
            self.store(open, Opening { instance });
        }
    }

    /// Reads the inbox again before the next turn: a failed write may have left something in it.
    pub(crate) fn invalidate_inbox(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.instance_mut(at) {
            entry.inbox.invalidate();
            self.pump(at);
        }
    }

    /// Loads an instance that may have pending work.
    pub(crate) fn take_up(&mut self, at: &InstanceRef, agent: Option<&AgentName>) {
        let is_known = self.instance_mut(at).is_some();
        if !is_known && let Some(entry) = self.instance_entry(at, agent) {
            entry.inbox.invalidate();
            self.pump(at);
        }
    }

    fn start_agent(&mut self, at: &InstanceRef) {
        if !self.is_armed(at) {
            return;
        }
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let Some(entry) = workspace.instances.get_mut(&at.instance_key) else {
            return;
        };
        let running = workspace
            .bundle
            .as_ref()
            .and_then(|bundle| RunningAgent::of(&entry.agent, bundle));
        let Some(running) = running else {
            let detail = format!("agent `{}` is not in the configuration", entry.agent);
            if entry.slot.detail.as_ref() != Some(&detail) {
                entry.slot.detail = Some(detail.clone());
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
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        entry.progress = Progress::default();
        let limits = running.definition.limits;
        entry.running = Some(running);
        let process = self.spawn(&ProcessOwner::Agent(at.clone()), limits);
        self.start_begun(process);
        // After a crash or a failed write the inbox on disk is read again, because the memory may
        // be outdated.
        self.read_inbox(at);
    }

    pub(super) fn agent_assignment(&self, at: &InstanceRef) -> Option<Assignment> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let entry = workspace.instances.get(&at.instance_key)?;
        let instances = self.facts.layout.instances(&at.workspace_id);
        let caller = EgressCaller::Agent(entry.agent.clone());
        let agent = &entry.running.as_ref()?.definition;
        let of_modules = agent.module_sandboxes().filter_map(|it| {
            let caller = it.caller(&entry.agent);
            let socket = self.egress_socket(&at.workspace_id, &caller, &it.sandbox)?;
            Some((caller.to_string(), socket))
        });
        let package_sockets = of_modules.collect();
        let own_dir = || work_dir(&instances.join(instance_dir_name(&at.instance_key)));
        let (task, work_area) = self.assigned_task(at).unzip();
        Some(Assignment::Agent(Box::new(AgentAssignment {
            workspace_id: at.workspace_id.clone(),
            instance_key: at.instance_key.clone(),
            agent: agent.clone(),
            work_dir: work_area.unwrap_or_else(own_dir),
            project_root: workspace.record.project_root.clone(),
            egress_socket: self.egress_socket(&at.workspace_id, &caller, &agent.sandbox),
            package_sockets,
            sandbox: task.is_none().then(|| self.sandbox_dir_of(at)).flatten(),
            run: task.is_none().then(|| self.run_dir_of(at)).flatten(),
            changesets: self.changesets_dir_of(at),
            task,
            node: self.facts.node.clone(),
        })))
    }

    /// Name of this node in the cluster; `None` without other nodes.
    pub(crate) fn node(&self) -> Option<&str> {
        self.facts.node.as_deref()
    }

    pub(crate) fn agent_head(&self, at: &InstanceRef) -> Option<EnvelopeHeader> {
        let entry = self
            .workspaces
            .get(&at.workspace_id)?
            .instances
            .get(&at.instance_key)?;
        Some(EnvelopeHeader::new(
            Address::Orchestrator,
            agent_address(at, &entry.agent),
        ))
    }

    pub(crate) fn send_agent(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        reply_to: Option<u64>,
        trace: Option<TraceContext>,
        message: ToAgent,
    ) {
        if self.owners.get(&process) != Some(&ProcessOwner::Agent(at.clone())) {
            return;
        }
        if let Some(head) = self.agent_head(at) {
            let head = EnvelopeHeader {
                trace,
                ..head.answering(reply_to)
            };
            self.push(CoreEffect::Send {
                process,
                head,
                message: Box::new(message.into()),
            });
        }
    }

    fn on_opened(&mut self, opening: &Opening, result: Result<Box<InstanceState>, StoreError>) {
        let at = &opening.instance;
        let state = match result {
            Ok(state) => state,
            Err(error) => return self.on_open_failed(at, &error),
        };
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        if entry.deleting.is_some() {
            return;
        }
        entry.approvals.read(&state);
        let has_approvals = !entry.approvals.is_empty();
        entry.agent = state.agent;
        if let Some(note) = state.rewind {
            // Nothing else is done before that is finished; then the inbox is read again.
            entry.inbox.invalidate();
            self.hold_to_finish(at, note);
            return self.pump(at);
        }
        let open_event = state
            .open_turn
            .as_ref()
            .and_then(|open| open.event.as_ref());
        let open_event = open_event.map(|event| &event.event_id);
        let (waiting, paused) = (state.waiting, state.paused);
        entry
            .inbox
            .read(waiting, paused, state.attempts, open_event);
        let open_turn = state.open_turn.as_ref().map(|open| open.turn_id.clone());
        entry.expect_answers(state.awaiting);
        // A turn may have been committed without this process of ours having seen it.
        let awaited = entry.waiters.events();
        let missing = awaited.filter(|id| entry.inbox.get(id).is_none());
        let missing: Vec<EventId> = missing.cloned().collect();
        for event_id in missing {
            let look_up = LookUpEvent {
                instance: at.clone(),
                event_id: event_id.clone(),
            };
            let instance = at.clone();
            self.store(look_up, LookingUp { instance, event_id });
        }
        self.look_for_answers(at, open_turn.as_ref());
        if has_approvals {
            self.show_in_chats(&at.workspace_id);
        }
        self.pump(at);
        self.forget_if_done(at);
    }

    /// It is not known what the instance has to do: it is asked again after the back-off.
    pub(crate) fn on_open_failed(&mut self, at: &InstanceRef, error: &StoreError) {
        let now = self.now;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        entry.inbox.invalidate();
        if entry.slot.up().is_some() {
            return self.on_store_failure(at, None, error);
        }
        if matches!(error, StoreError::NoInstance { .. }) {
            entry.inbox.vanish();
            self.cancel_waiters(at, &deleted_error(&at.instance_key), QuestionStatus::Lost);
            self.forget_questions_of(at);
            return self.forget_if_done(at);
        }
        let text = goondan_log::error_chain(error);
        entry.slot.failed(now, text.clone());
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
        let event = LogEvent::error("store failed to serve agent; ending its process");
        self.log(event.of(at).with("error", goondan_log::error_chain(error)));
        let up = |this: &mut Self| Some(this.instance_mut(at)?.slot.up()?.process);
        let process = process.or_else(|| up(self));
        if process.is_some()
            && process == up(self)
            && let Some(entry) = self.instance_mut(at)
        {
            entry.is_failed_by_store = true;
        }
        if let Some(process) = process {
            self.kill(process, false);
        }
    }

    /// An agent that has had nothing to do for long is stopped; it starts again on demand (`SUP-3`).
    pub(crate) fn on_agent_time(&mut self, at: &InstanceRef) {
        let now = self.now;
        let idle_ms = self.idle_ms(&at.workspace_id);
        self.time_out_waiters(at);
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let is_idle = entry.has_nothing_to_do();
        if is_idle
            && entry.slot.ready().is_some()
            && now.mono_ms.saturating_sub(entry.idle_since_ms) >= idle_ms
        {
            self.drain_agent(at, None, "it is idle");
        } else {
            self.pump(at);
            self.forget_if_done(at);
        }
    }

    /// Asks an agent's process to finish and end.
    pub(super) fn drain_agent(&mut self, at: &InstanceRef, grace: Option<u64>, reason: &str) {
        self.drain(&ProcessOwner::Agent(at.clone()), grace, reason);
    }

    pub(super) fn grace_period_ms(&self, id: &WorkspaceId) -> u64 {
        let chosen = self.stopping.and_then(
            |DaemonShutdown {
                 grace_period_ms, ..
             }| grace_period_ms,
        );
        let bundle = self
            .workspaces
            .get(id)
            .and_then(|workspace| workspace.bundle.as_ref());
        chosen.unwrap_or_else(|| bundle.map_or(DEFAULT_GRACE_PERIOD_MS, |b| b.grace_period_ms))
    }

    /// Removes an idle instance without a process.
    pub(crate) fn forget_if_done(&mut self, at: &InstanceRef) {
        let now_ms = self.now.mono_ms;
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let is_done = workspace
            .instances
            .get(&at.instance_key)
            .is_some_and(|entry| entry.is_forgettable(now_ms));
        if is_done && !self.jobs.any(|instance| instance == at) {
            workspace.instances.remove(&at.instance_key);
            let instance = at.clone();
            self.store(Close { instance }, LogFailure(at.clone()));
        }
    }

    /// Puts down in the audit log what was done to a conversation.
    pub(crate) fn audit(&mut self, at: &InstanceRef, what: &str, details: Value) {
        let audit = self.audit_record(at, what, details);
        self.store(audit, LogAuditFailure);
    }

    /// Audit record of a change to an instance; the change is already logged.
    pub(crate) fn audit_record(&mut self, at: &InstanceRef, what: &str, details: Value) -> Audit {
        let mut record = JsonObject::from_iter([
            ("at".to_owned(), json!(self.now.wall)),
            ("event".to_owned(), json!(format!("instance.{what}"))),
            ("instanceKey".to_owned(), json!(at.instance_key)),
        ]);
        if let Value::Object(details) = details {
            record.extend(details);
        }
        let fields = record.clone();
        self.log(LogEvent::info("audit").of(at).all(fields));
        Audit {
            workspace_id: at.workspace_id.clone(),
            record,
        }
    }

    /// Puts down in the audit log what was done to a workspace.
    pub(crate) fn audit_workspace(&mut self, id: &WorkspaceId, what: &str, details: Value) {
        let mut record = JsonObject::from_iter([
            ("at".to_owned(), json!(self.now.wall)),
            ("event".to_owned(), json!(format!("workspace.{what}"))),
        ]);
        if let Value::Object(details) = details {
            record.extend(details);
        }
        let fields = record.clone();
        let event = LogEvent::info("audit").with("workspaceId", id.as_str());
        self.log(event.all(fields));
        let audit = Audit {
            workspace_id: id.clone(),
            record,
        };
        self.store(audit, LogAuditFailure);
    }
}
