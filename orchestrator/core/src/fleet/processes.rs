//! Common handling of all child processes: start, messages, exit.

use goondan_protocol::JsonObject;
use goondan_protocol::control::{ProcessState, Readiness};
use goondan_protocol::envelope::Address;
use goondan_protocol::ipc::{
    ChildRole, ConfinementReport, EnvelopeHeader, Hello, Ping, Shutdown, ToChild, Welcome,
};
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::observe::detail_of;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::task::is_of_task;
use goondan_protocol::trace::TraceId;
use serde_json::json;

use super::conversation::Conversation;
use super::slot::{ProcessStage, Slot, SlotAction, SlotExit};
use super::{Fleet, ProcessOwner};
use crate::{CoreEffect, LogEvent, ProcessId, Spawn};

impl Fleet {
    /// Starts a process in its slot.
    pub(super) fn spawn(&mut self, owner: &ProcessOwner, limits: ProcessLimits) -> ProcessId {
        self.next_process += 1;
        let (process, now) = (ProcessId(self.next_process), self.cx.now());
        if let Some(slot) = self.slot_mut(owner) {
            slot.start(process, now);
        }
        self.owners.insert(process, owner.clone());
        let (role, identity) = (owner.role(), self.identity_of(owner));
        let trace_id = TraceId::from_uuid(self.cx.uuid());
        self.cx.emit(CoreEffect::Spawn(Spawn {
            process,
            role,
            identity,
            works_for_task: matches!(owner, ProcessOwner::Agent(at) if is_of_task(&at.instance_key)),
            trace_id,
            limits,
        }));
        process
    }

    /// Fields added to each of its log lines.
    fn identity_of(&self, owner: &ProcessOwner) -> JsonObject {
        let own = match owner {
            ProcessOwner::Agent(at) => vec![
                ("agentName".to_owned(), json!(self.agent_name(at))),
                ("instanceKey".to_owned(), json!(at.instance_key)),
            ],
            ProcessOwner::Connector(_, name) => vec![("connection".to_owned(), json!(name))],
            ProcessOwner::Model(_, name) => vec![("model".to_owned(), json!(name))],
            ProcessOwner::Task(_, task) => vec![("taskId".to_owned(), json!(task))],
        };
        let workspace = ("workspaceId".to_owned(), json!(owner.workspace_id()));
        std::iter::once(workspace).chain(own).collect()
    }

    fn address_of(&self, owner: &ProcessOwner) -> Option<Address> {
        Some(match owner {
            ProcessOwner::Agent(at) => Address::Agent {
                name: self.agent_name(at)?.clone(),
                instance_key: at.instance_key.clone(),
            },
            ProcessOwner::Connector(_, name) => Address::Connector { name: name.clone() },
            ProcessOwner::Model(_, name) => Address::Model { name: name.clone() },
            ProcessOwner::Task(_, task) => Address::Task { id: task.clone() },
        })
    }

    pub(super) fn send(&mut self, owner: &ProcessOwner, process: ProcessId, message: ToChild) {
        if let Some(to) = self.address_of(owner) {
            self.cx.emit(CoreEffect::Send {
                process,
                head: EnvelopeHeader::new(Address::Orchestrator, to),
                message: Box::new(message),
            });
        }
    }

    /// Asks a process to finish its work and exit, within the given grace period or that of its
    /// workspace.
    pub(super) fn drain(
        &mut self,
        owner: &ProcessOwner,
        grace_period_ms: Option<u64>,
        reason: &str,
    ) {
        let grace_period_ms =
            grace_period_ms.unwrap_or_else(|| self.grace_period_ms(owner.workspace_id()));
        let now = self.cx.now();
        let Some(slot) = self.slot_mut(owner) else {
            return;
        };
        let Some(up) = slot.up() else { return };
        let running = up.process;
        if let Some(process) = slot.drain(now, grace_period_ms) {
            let shutdown = Shutdown {
                grace_period_ms,
                reason: reason.to_owned(),
            };
            self.send(owner, process, ToChild::shutdown(owner.role(), shutdown));
        } else if slot.shown(false) == ProcessState::Spawning {
            // The process has no work yet, so nothing is lost.
            self.kill(running, true);
        }
    }

    /// Handles the passage of time for one process.
    pub(crate) fn on_time(&mut self, owner: &ProcessOwner) {
        let now = self.cx.now();
        match self.slot_mut(owner).map(|slot| slot.due(now)) {
            Some(SlotAction::Ping(process)) => {
                let ping = ToChild::ping(owner.role(), Ping { nonce: now.mono_ms });
                self.send(owner, process, ping);
            }
            Some(SlotAction::Kill(process, reason)) => {
                let killed = Event::ProcessKilled {
                    worker: owner.worker(),
                    reason: reason.to_owned(),
                };
                self.announce(owner.workspace_id(), killed, None);
                self.kill(process, false);
            }
            Some(SlotAction::Start | SlotAction::Nothing) | None => {}
        }
        match owner {
            ProcessOwner::Agent(at) => self.on_agent_time(at),
            ProcessOwner::Connector(id, name) => self.pump_connector(id, name),
            ProcessOwner::Model(..) | ProcessOwner::Task(..) => {}
        }
    }

    /// Handles the exit of a process. Returns its owner and true if it crashed; `None` if the
    /// process is unknown.
    pub(crate) fn on_exited(
        &mut self,
        process: ProcessId,
        how: &str,
    ) -> Option<(ProcessOwner, bool)> {
        let now = self.cx.now();
        if let Some(ProcessOwner::Connector(id, name)) = self.owners.get(&process).cloned() {
            self.forgive_if_long_up(&id, &name);
        }
        let owner = self.owners.remove(&process)?;
        self.start_next(process);
        let ending = self
            .slot_mut(&owner)
            .map(|slot| slot.exited(now, how.to_owned()));
        let mut is_crash = false;
        let (worker, how_told) = (owner.worker(), how.to_owned());
        let event = match ending {
            Some(SlotExit::Stopped) | None => Event::ProcessEnded {
                worker,
                how: how_told,
            },
            Some(SlotExit::Crashed { delay_ms }) => {
                is_crash = true;
                self.count_child_crash(&owner);
                Event::ProcessCrashed {
                    worker,
                    consecutive_crashes: self.slot_mut(&owner).map_or(0, |slot| slot.crashes),
                    next_start_in_ms: delay_ms,
                    how: how_told,
                }
            }
        };
        self.announce(owner.workspace_id(), event, None);
        match &owner {
            ProcessOwner::Agent(_) | ProcessOwner::Task(..) => {
                self.on_worker_gone(owner.workspace_id());
            }
            ProcessOwner::Connector(id, name) => {
                self.on_collecting_gone(process, how);
                self.forget_replies_of(id, name, process);
                self.forget_shown_by(id, name);
                if let Some(connector) = self.connector_mut(id, name) {
                    connector.readiness = Readiness::Starting;
                }
                self.pump_connector(id, name);
            }
            ProcessOwner::Model(id, name) => {
                if let Some(model) = self.model_mut(id, name) {
                    model.readiness = Readiness::Starting;
                }
            }
        }
        Some((owner, is_crash))
    }

    pub(super) fn slot_mut(&mut self, owner: &ProcessOwner) -> Option<&mut Slot> {
        match owner {
            ProcessOwner::Agent(at) => self.conversation_mut(at).map(Conversation::slot_mut),
            ProcessOwner::Connector(id, name) => self.connector_mut(id, name).map(|c| &mut c.slot),
            ProcessOwner::Model(id, name) => self.model_mut(id, name).map(|model| &mut model.slot),
            ProcessOwner::Task(id, task) => self.run_slot(id, task),
        }
    }

    pub(crate) fn log_of(owner: &ProcessOwner, event: LogEvent) -> LogEvent {
        match owner {
            ProcessOwner::Agent(at) => event.with("role", "agent").of(at),
            ProcessOwner::Connector(id, name) => event
                .with("role", "connector")
                .with("workspaceId", id.as_str())
                .with("connection", name.as_str()),
            ProcessOwner::Model(id, name) => event
                .with("role", "model")
                .with("workspaceId", id.as_str())
                .with("model", name.as_str()),
            ProcessOwner::Task(id, task) => event
                .with("role", "task")
                .with("workspaceId", id.as_str())
                .with("taskId", task.as_str()),
        }
    }

    pub(crate) fn on_spawned(&mut self, process: ProcessId, pid: u32) {
        let Some(owner) = self.owners.get(&process).cloned() else {
            return;
        };
        if let Some(slot) = self.slot_mut(&owner) {
            slot.spawned(pid);
        }
        let started = Event::ProcessStarted {
            worker: owner.worker(),
            child_pid: pid,
        };
        self.announce(owner.workspace_id(), started, None);
    }

    /// Records that a process sent a message. Rejects a message that is not allowed at this point
    /// of the protocol.
    pub(crate) fn note_heard(
        &mut self,
        owner: &ProcessOwner,
        is_hello: bool,
    ) -> Result<(), &'static str> {
        let now = self.cx.now();
        let Some(slot) = self.slot_mut(owner) else {
            return Ok(());
        };
        slot.heard(now);
        match slot.up().map(|up| up.stage) {
            Some(ProcessStage::Spawning) if !is_hello => {
                Err("it sent a message before the greeting")
            }
            Some(ProcessStage::Ready | ProcessStage::Draining { .. }) if is_hello => {
                Err("it sent a second greeting")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Records the confinement reported by a process. Informational only.
    pub(crate) fn on_confined(&mut self, owner: &ProcessOwner, confined: ConfinementReport) {
        if let Some(slot) = self.slot_mut(owner) {
            slot.confined(ConfinementReport {
                lacks: confined.lacks.as_deref().map(detail_of),
                ..confined
            });
        }
    }

    pub(crate) fn on_hello(&mut self, process: ProcessId, owner: &ProcessOwner, hello: &Hello) {
        if let Err(mismatch) = hello.version.check() {
            return self.on_broken(process, &mismatch.to_string());
        }
        let expected = match owner {
            ProcessOwner::Agent(_) | ProcessOwner::Task(..) => ChildRole::Agent,
            ProcessOwner::Connector(..) | ProcessOwner::Model(..) => ChildRole::Connector,
        };
        if hello.role != expected {
            return self.on_broken(process, "it is the wrong kind of process");
        }
        let assignment = match owner {
            ProcessOwner::Agent(at) => self.agent_assignment(at),
            ProcessOwner::Connector(id, name) => self.connector_assignment(id, name),
            ProcessOwner::Model(id, name) => self.model_assignment(id, name),
            ProcessOwner::Task(id, task) => self.run_assignment(id, task),
        };
        let Some(assignment) = assignment else {
            return self.on_broken(process, "it has no work");
        };
        if let Some(slot) = self.slot_mut(owner) {
            slot.greeted();
            slot.detail = None;
        }
        self.start_next(process);
        let welcome = Welcome {
            version: self.version(),
            assignment,
        };
        self.send(owner, process, ToChild::welcome(owner.role(), welcome));
        match owner {
            ProcessOwner::Task(id, task) => self.on_run_told(id, task),
            // Its purpose may have ended, or may now be calls only.
            ProcessOwner::Connector(id, name) => self.pump_connector(id, name),
            ProcessOwner::Agent(_) | ProcessOwner::Model(..) => {}
        }
    }

    /// Stops a process that violates the protocol, without affecting others (`IPC-4`).
    pub(crate) fn on_broken(&mut self, process: ProcessId, problem: &str) {
        let Some(owner) = self.owners.get(&process).cloned() else {
            return;
        };
        let broke = Event::ProcessBroke {
            worker: owner.worker(),
            problem: problem.to_owned(),
        };
        self.announce(owner.workspace_id(), broke, None);
        self.kill(process, false);
    }

    /// Kills a process and its process group. With `is_wanted`, its exit is not a crash.
    pub(crate) fn kill(&mut self, process: ProcessId, is_wanted: bool) {
        let Some(owner) = self.owners.get(&process).cloned() else {
            return;
        };
        if let Some(process) = self.slot_mut(&owner).and_then(|slot| slot.kill(is_wanted)) {
            self.cx.emit(CoreEffect::Kill { process });
        }
    }
}
