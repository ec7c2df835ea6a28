//! Common handling of all child processes: start, messages, exit.

use goondan_protocol::JsonObject;
use goondan_protocol::control::ProcessState;
use goondan_protocol::envelope::Address;
use goondan_protocol::ids::AgentName;
use goondan_protocol::ipc::{
    ChildRole, EnvelopeHeader, EventRefused, Hello, Ping, Shutdown, ToChild, ToConnector, Welcome,
};
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::task::is_of_task;
use goondan_protocol::trace::TraceId;
use goondan_protocol::version::Version;
use serde_json::json;

use super::slot::{Slot, SlotAction, SlotExit};
use super::{Fleet, ProcessOwner, Workspace};
use crate::bus::context::Cx;
use crate::exchange::{ChildRequest, TaskRef};
use crate::{CoreEffect, LogEvent, ProcessId, Spawn};

impl ProcessOwner {
    /// Fields added to each of its log lines.
    fn identity(&self, agent: Option<&AgentName>) -> JsonObject {
        let own = match self {
            Self::Agent(at) => vec![
                ("agentName".to_owned(), json!(agent)),
                ("instanceKey".to_owned(), json!(at.instance_key)),
            ],
            Self::Connector(_, name) => vec![("connection".to_owned(), json!(name))],
            Self::Model(_, name) => vec![("model".to_owned(), json!(name))],
            Self::Task(_, task) => vec![("taskId".to_owned(), json!(task))],
        };
        let workspace = ("workspaceId".to_owned(), json!(self.workspace_id()));
        std::iter::once(workspace).chain(own).collect()
    }

    fn address(&self, agent: Option<&AgentName>) -> Option<Address> {
        Some(match self {
            Self::Agent(at) => Address::Agent {
                name: agent?.clone(),
                instance_key: at.instance_key.clone(),
            },
            Self::Connector(_, name) => Address::Connector { name: name.clone() },
            Self::Model(_, name) => Address::Model { name: name.clone() },
            Self::Task(_, task) => Address::Task { id: task.clone() },
        })
    }

    /// A line of the log about its process.
    pub(super) fn log_line(&self, event: LogEvent) -> LogEvent {
        match self {
            Self::Agent(at) => event.with("role", "agent").of(at),
            Self::Connector(id, name) => event
                .with("role", "connector")
                .with("workspaceId", id.as_str())
                .with("connection", name.as_str()),
            Self::Model(id, name) => event
                .with("role", "model")
                .with("workspaceId", id.as_str())
                .with("model", name.as_str()),
            Self::Task(id, task) => event
                .with("role", "task")
                .with("workspaceId", id.as_str())
                .with("taskId", task.as_str()),
        }
    }
}

/// Orders to child processes. `agent` is the owner's agent, if it is a conversation.
impl Cx {
    /// Starts a process in its slot.
    pub(super) fn spawn(
        &mut self,
        slot: &mut Slot,
        owner: &ProcessOwner,
        agent: Option<&AgentName>,
        limits: ProcessLimits,
    ) -> ProcessId {
        let now = self.now();
        let process = self.processes_mut().add(owner.clone());
        slot.start(process, now);
        let trace_id = TraceId::from_uuid(self.uuid());
        self.emit(CoreEffect::Spawn(Spawn {
            process,
            role: owner.role(),
            identity: owner.identity(agent),
            works_for_task: matches!(owner, ProcessOwner::Agent(at) if is_of_task(&at.instance_key)),
            trace_id,
            limits,
        }));
        process
    }

    pub(super) fn send_process(
        &mut self,
        process: ProcessId,
        owner: &ProcessOwner,
        agent: Option<&AgentName>,
        message: ToChild,
    ) {
        if let Some(to) = owner.address(agent) {
            self.emit(CoreEffect::Send {
                process,
                head: EnvelopeHeader::new(Address::Orchestrator, to),
                message: Box::new(message),
            });
        }
    }

    /// Asks a process to finish its work and exit within the grace period.
    pub(super) fn drain(
        &mut self,
        slot: &mut Slot,
        owner: &ProcessOwner,
        agent: Option<&AgentName>,
        grace_period_ms: u64,
        reason: &str,
    ) {
        if slot.up().is_none() {
            return;
        }
        if let Some(process) = slot.drain(self.now(), grace_period_ms) {
            let shutdown = Shutdown {
                grace_period_ms,
                reason: reason.to_owned(),
            };
            let shutdown = ToChild::shutdown(owner.role(), shutdown);
            self.send_process(process, owner, agent, shutdown);
        } else if slot.shown(false) == ProcessState::Spawning {
            // The process has no work yet, so nothing is lost.
            self.kill(slot, true);
        }
    }

    /// Kills a process and its process group. With `is_wanted`, its exit is not a crash.
    pub(super) fn kill(&mut self, slot: &mut Slot, is_wanted: bool) {
        if let Some(process) = slot.kill(is_wanted) {
            self.emit(CoreEffect::Kill { process });
        }
    }

    /// Answers a message of a connector's or a model's process, unless it has exited.
    pub(crate) fn answer_connector(&mut self, request: ChildRequest, message: ToConnector) {
        self.send_connector(request.process, request.request_id, message);
    }

    /// Sends a message to a connector's or a model's process, unless it has exited.
    pub(super) fn tell_connector(&mut self, process: ProcessId, message: ToConnector) {
        self.send_connector(process, None, message);
    }

    fn send_connector(&mut self, process: ProcessId, answers: Option<u64>, message: ToConnector) {
        let to = match self.processes().owner_of(process) {
            Some(ProcessOwner::Connector(_, name)) => Address::Connector { name: name.clone() },
            Some(ProcessOwner::Model(_, name)) => Address::Model { name: name.clone() },
            Some(ProcessOwner::Agent(_) | ProcessOwner::Task(..)) | None => return,
        };
        let head = EnvelopeHeader::new(Address::Orchestrator, to).answering(answers);
        self.emit(CoreEffect::Send {
            process,
            head,
            message: Box::new(message.into()),
        });
    }

    /// Refuses an event of a connector's process.
    pub(super) fn refuse_connector(&mut self, request: ChildRequest, refused: EventRefused) {
        self.answer_connector(request, ToConnector::EventRefused(refused));
    }
}

/// Its processes.
impl Workspace {
    /// Handles the passage of time for one process.
    pub(crate) fn on_time(&mut self, cx: &mut Cx, owner: &ProcessOwner) {
        let now = cx.now();
        match self.slot_mut(owner).map(|slot| slot.due(now)) {
            Some(SlotAction::Ping(process)) => {
                let ping = ToChild::ping(owner.role(), Ping { nonce: now.mono_ms });
                self.send_process(cx, owner, process, ping);
            }
            Some(SlotAction::Kill(process, reason)) => {
                let killed = Event::ProcessKilled {
                    worker: owner.worker(),
                    reason: reason.to_owned(),
                };
                self.announce(cx, killed, None);
                self.kill(cx, process, false);
            }
            Some(SlotAction::Start | SlotAction::Nothing) | None => {}
        }
        match owner {
            ProcessOwner::Agent(at) => self.on_agent_time(cx, at),
            ProcessOwner::Connector(_, name) => self.advance_connector(cx, name),
            ProcessOwner::Model(..) | ProcessOwner::Task(..) => {}
        }
    }

    /// Handles the exit of a process. True if it crashed.
    pub(super) fn on_exited(
        &mut self,
        cx: &mut Cx,
        owner: &ProcessOwner,
        process: ProcessId,
        how: &str,
    ) -> bool {
        let now = cx.now();
        if let ProcessOwner::Connector(_, name) = owner
            && let Some(connector) = self.connectors.get_mut(name)
        {
            connector.forgive_if_long_up(now);
        }
        let slot = self.slot_mut(owner);
        let ending = slot.map(|slot| (slot.exited(now, how.to_owned()), slot.crashes));
        let (worker, how_told) = (owner.worker(), how.to_owned());
        let crash = match ending {
            Some((SlotExit::Crashed { delay_ms }, crashes)) => Some((delay_ms, crashes)),
            Some((SlotExit::Stopped, _)) | None => None,
        };
        let event = match crash {
            None => Event::ProcessEnded {
                worker,
                how: how_told,
            },
            Some((delay_ms, crashes)) => {
                self.count_child_crash(cx, owner);
                Event::ProcessCrashed {
                    worker,
                    consecutive_crashes: crashes,
                    next_start_in_ms: delay_ms,
                    how: how_told,
                }
            }
        };
        self.announce(cx, event, None);
        match owner {
            ProcessOwner::Agent(_) | ProcessOwner::Task(..) => self.on_worker_gone(cx),
            ProcessOwner::Connector(_, name) => self.on_connector_exited(cx, name, process, how),
            ProcessOwner::Model(_, name) => {
                if let Some(model) = self.models.get_mut(name) {
                    model.on_exited();
                }
            }
        }
        crash.is_some()
    }

    fn send_process(
        &self,
        cx: &mut Cx,
        owner: &ProcessOwner,
        process: ProcessId,
        message: ToChild,
    ) {
        let agent = match owner {
            ProcessOwner::Agent(at) => self.agent_name(&at.instance_key),
            ProcessOwner::Connector(..) | ProcessOwner::Model(..) | ProcessOwner::Task(..) => None,
        };
        cx.send_process(process, owner, agent, message);
    }

    fn on_spawned(&mut self, cx: &mut Cx, process: ProcessId, pid: u32) {
        let Some(owner) = cx.processes().owner_of(process).cloned() else {
            return;
        };
        if let Some(slot) = self.slot_mut(&owner) {
            slot.spawned(pid);
        }
        let started = Event::ProcessStarted {
            worker: owner.worker(),
            child_pid: pid,
        };
        self.announce(cx, started, None);
    }

    /// Handles the first message of a process: it gets its assignment. An error breaks it.
    fn on_hello(
        &mut self,
        cx: &mut Cx,
        process: ProcessId,
        owner: &ProcessOwner,
        hello: &Hello,
    ) -> Result<(), String> {
        hello
            .version
            .check()
            .map_err(|mismatch| mismatch.to_string())?;
        let expected = match owner {
            ProcessOwner::Agent(_) | ProcessOwner::Task(..) => ChildRole::Agent,
            ProcessOwner::Connector(..) | ProcessOwner::Model(..) => ChildRole::Connector,
        };
        if hello.role != expected {
            return Err("it is the wrong kind of process".to_owned());
        }
        let assignment = match owner {
            ProcessOwner::Agent(at) => self.agent_assignment(cx, at),
            ProcessOwner::Connector(..) | ProcessOwner::Model(..) | ProcessOwner::Task(..) => {
                self.assignment(cx.facts(), owner)
            }
        };
        let assignment = assignment.ok_or("it has no work")?;
        if let Some(slot) = self.slot_mut(owner) {
            slot.greeted();
            slot.detail = None;
        }
        let welcome = Welcome {
            version: Version::current(),
            assignment,
        };
        self.send_process(cx, owner, process, ToChild::welcome(owner.role(), welcome));
        match owner {
            ProcessOwner::Task(id, task) => self.runs.on_told(cx, &TaskRef::new(id, task)),
            // Its purpose may have ended, or may now be calls only.
            ProcessOwner::Connector(_, name) => self.advance_connector(cx, name),
            ProcessOwner::Agent(_) | ProcessOwner::Model(..) => {}
        }
        Ok(())
    }

    /// Stops a process that violates the protocol, without affecting others (`IPC-4`).
    pub(crate) fn on_broken(&mut self, cx: &mut Cx, process: ProcessId, problem: &str) {
        let Some(owner) = cx.processes().owner_of(process).cloned() else {
            return;
        };
        let broke = Event::ProcessBroke {
            worker: owner.worker(),
            problem: problem.to_owned(),
        };
        self.announce(cx, broke, None);
        self.kill(cx, process, false);
    }

    /// Kills a process and its process group. With `is_wanted`, its exit is not a crash.
    pub(super) fn kill(&mut self, cx: &mut Cx, process: ProcessId, is_wanted: bool) {
        if let Some(owner) = cx.processes().owner_of(process).cloned()
            && let Some(slot) = self.slot_mut(&owner)
        {
            cx.kill(slot, is_wanted);
        }
    }

    /// Resets the crash count after a successful call or an accepted event.
    pub(crate) fn provider_worked(&mut self, cx: &Cx, process: ProcessId) {
        match cx.processes().owner_of(process) {
            Some(ProcessOwner::Connector(_, name)) => {
                if let Some(connector) = self.connectors.get_mut(name) {
                    connector.worked();
                }
            }
            Some(ProcessOwner::Model(_, name)) => self.models.worked(name),
            Some(ProcessOwner::Agent(_) | ProcessOwner::Task(..)) | None => {}
        }
    }
}

impl Fleet {
    /// The workspace of a process, unless the process is gone.
    pub(crate) fn workspace_of(&mut self, process: ProcessId) -> Option<(&mut Workspace, &mut Cx)> {
        let owner = self.cx.processes().owner_of(process)?;
        let workspace = self.workspaces.get_mut(owner.workspace_id())?;
        Some((workspace, &mut self.cx))
    }

    /// Handles the exit of a process. Returns its owner and true if it crashed; `None` if the
    /// process is unknown.
    pub(crate) fn on_exited(
        &mut self,
        process: ProcessId,
        how: &str,
    ) -> Option<(ProcessOwner, bool)> {
        let owner = self.cx.processes_mut().remove(process)?;
        self.starts().start_next(process);
        let workspace = self.workspace_and_cx(owner.workspace_id());
        let is_crash = workspace.is_some_and(|(it, cx)| it.on_exited(cx, &owner, process, how));
        Some((owner, is_crash))
    }

    pub(crate) fn on_spawned(&mut self, process: ProcessId, pid: u32) {
        if let Some((workspace, cx)) = self.workspace_of(process) {
            workspace.on_spawned(cx, process, pid);
        }
    }

    pub(crate) fn on_hello(&mut self, process: ProcessId, owner: &ProcessOwner, hello: &Hello) {
        let Some((workspace, cx)) = self.workspace_of(process) else {
            return;
        };
        match workspace.on_hello(cx, process, owner, hello) {
            Ok(()) => self.starts().start_next(process),
            Err(problem) => workspace.on_broken(cx, process, &problem),
        }
    }

    /// Stops a process that violates the protocol, without affecting others (`IPC-4`).
    pub(crate) fn on_broken(&mut self, process: ProcessId, problem: &str) {
        if let Some((workspace, cx)) = self.workspace_of(process) {
            workspace.on_broken(cx, process, problem);
        }
    }
}
