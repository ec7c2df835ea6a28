//! What all child processes have in common: their start, their messages, their end.

use goondan_protocol::call::CallTarget;
use goondan_protocol::control::Readiness;
use goondan_protocol::envelope::Address;
use goondan_protocol::ipc::{ChildRole, Head, Hello, Ping, ToChild, ToOrchestrator, Welcome};
use goondan_protocol::trace::TraceContext;

use super::exchange::StateWork;
use super::slot::{Due, Ending, Slot, Stage};
use super::{Core, Effect, Fleet, LogEvent, Owner, ProcessId};

impl Fleet {
    pub(super) fn slot_mut(&mut self, owner: &Owner) -> Option<&mut Slot> {
        match owner {
            Owner::Agent(at) => self.instance_mut(at).map(|instance| &mut instance.slot),
            Owner::Connector(id, name) => self.connector_mut(id, name).map(|c| &mut c.slot),
            Owner::Model(id, name) => self.model_mut(id, name).map(|model| &mut model.slot),
        }
    }

    pub(super) fn log_of(owner: &Owner, event: LogEvent) -> LogEvent {
        match owner {
            Owner::Agent(at) => event.with("role", "agent").of(at),
            Owner::Connector(id, name) => event
                .with("role", "connector")
                .with("workspaceId", id.as_str())
                .with("connection", name.as_str()),
            Owner::Model(id, name) => event
                .with("role", "model")
                .with("workspaceId", id.as_str())
                .with("model", name.as_str()),
        }
    }

    pub(super) fn on_spawned(&mut self, process: ProcessId, pid: u32) {
        let Some(owner) = self.owners.get(&process).cloned() else {
            return;
        };
        if let Some(slot) = self.slot_mut(&owner) {
            slot.spawned(pid);
        }
        self.log(Self::log_of(
            &owner,
            LogEvent::info("process started").with("childPid", pid),
        ));
    }

    /// Notes that a process said something, and refuses it where it does not come when it may.
    fn note_heard(&mut self, owner: &Owner, is_hello: bool) -> Result<(), &'static str> {
        let now = self.now;
        let Some(slot) = self.slot_mut(owner) else {
            return Ok(());
        };
        slot.heard(now);
        match slot.up().map(|up| up.stage) {
            Some(Stage::Spawning) if !is_hello => Err("it spoke before it greeted"),
            Some(Stage::Ready | Stage::Draining { .. }) if is_hello => Err("it greeted twice"),
            Some(_) | None => Ok(()),
        }
    }

    fn on_hello(&mut self, process: ProcessId, owner: &Owner, hello: &Hello) {
        if let Err(mismatch) = hello.version.check() {
            return self.on_broken(process, &mismatch.to_string());
        }
        let expected = match owner {
            Owner::Agent(_) => ChildRole::Agent,
            Owner::Connector(..) | Owner::Model(..) => ChildRole::Connector,
        };
        if hello.role != expected {
            return self.on_broken(process, "it is of the wrong kind");
        }
        let (assignment, head) = match owner {
            Owner::Agent(at) => (self.agent_assignment(at), self.agent_head(at)),
            Owner::Connector(id, name) => {
                let to = Address::Connector { name: name.clone() };
                let head = Head::new(Address::Orchestrator, to);
                (self.connector_assignment(id, name), Some(head))
            }
            Owner::Model(id, name) => {
                let to = Address::Model { name: name.clone() };
                let head = Head::new(Address::Orchestrator, to);
                (self.model_assignment(id, name), Some(head))
            }
        };
        let (Some(assignment), Some(head)) = (assignment, head) else {
            return self.on_broken(process, "there is nothing for it to do");
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
        let message = Box::new(ToChild::welcome(owner.role(), welcome));
        self.push(Effect::Send {
            process,
            head,
            message,
        });
    }

    /// A process does not keep to the protocol: it ends, and nothing else notices (`IPC-4`).
    pub(super) fn on_broken(&mut self, process: ProcessId, problem: &str) {
        let Some(owner) = self.owners.get(&process).cloned() else {
            return;
        };
        let event = LogEvent::error("a process broke the protocol and is killed");
        self.log(Self::log_of(&owner, event).with("problem", problem));
        self.kill(process, false);
    }

    /// Kills a process and its group. `is_wanted`: its end is no crash.
    pub(super) fn kill(&mut self, process: ProcessId, is_wanted: bool) {
        let Some(owner) = self.owners.get(&process).cloned() else {
            return;
        };
        if let Some(process) = self.slot_mut(&owner).and_then(|slot| slot.kill(is_wanted)) {
            self.push(Effect::Kill { process });
        }
    }
}

impl Core {
    pub(super) fn on_message(
        &mut self,
        process: ProcessId,
        message: ToOrchestrator,
        request_id: Option<u64>,
        trace: Option<TraceContext>,
    ) {
        // Long: one arm for each message.
        // A process that is gone, or was given up, may have had more to say.
        let Some(owner) = self.fleet.owners.get(&process).cloned() else {
            return;
        };
        let is_hello = matches!(message, ToOrchestrator::Hello(_));
        if let Err(problem) = self.fleet.note_heard(&owner, is_hello) {
            return self.fleet.on_broken(process, problem);
        }
        match (message, &owner) {
            (ToOrchestrator::Hello(hello), _) => self.fleet.on_hello(process, &owner, &hello),
            (ToOrchestrator::Pong(_) | ToOrchestrator::ShutdownAck(_), _) => {}
            (ToOrchestrator::Status(status), Owner::Connector(id, name)) => {
                self.on_connector_status(id, name, status);
            }
            (ToOrchestrator::Event(event), Owner::Connector(id, name)) => {
                self.fleet
                    .on_connector_event(id, name, process, request_id, trace, *event);
            }
            (ToOrchestrator::StateGet(_), Owner::Connector(id, name)) => {
                self.fleet
                    .on_state_work(id, name, process, request_id, StateWork::Get);
            }
            (ToOrchestrator::StateSet(set), Owner::Connector(id, name)) => {
                let work = StateWork::Set(set.state);
                self.fleet
                    .on_state_work(id, name, process, request_id, work);
            }
            (ToOrchestrator::QuestionAsk(ask), Owner::Connector(id, name)) => {
                self.calls
                    .on_question_ask(&mut self.fleet, (id, name), process, request_id, *ask);
            }
            (ToOrchestrator::QuestionWithdraw(withdraw), Owner::Connector(..)) => {
                self.calls
                    .on_question_withdraw(&mut self.fleet, process, withdraw);
            }
            (ToOrchestrator::ConversationLoad(load), Owner::Agent(at)) => {
                self.fleet
                    .on_conversation_load(at, process, request_id, load.offset);
            }
            (ToOrchestrator::TurnAppend(append), Owner::Agent(at)) => {
                self.fleet.on_turn_append(at, process, append);
            }
            (ToOrchestrator::TurnComplete(complete), Owner::Agent(at)) => {
                self.fleet.on_turn_complete(at, process, complete);
            }
            (ToOrchestrator::AgentAsk(ask), Owner::Agent(at)) => {
                self.fleet
                    .on_agent_ask(at, process, request_id, trace, *ask);
            }
            (ToOrchestrator::Observe(event), Owner::Agent(at)) => {
                self.fleet.on_observe(at, process, *event);
            }
            (ToOrchestrator::Call(call), Owner::Agent(at)) => {
                self.calls
                    .on_call(&mut self.fleet, at, process, trace, *call);
            }
            (ToOrchestrator::CallCancel(cancel), Owner::Agent(_)) => {
                self.calls.on_call_cancel(&mut self.fleet, process, cancel);
            }
            (ToOrchestrator::Status(status), Owner::Model(id, name)) => {
                self.on_model_status(id, name, status);
            }
            (ToOrchestrator::CallPiece(piece), Owner::Connector(..) | Owner::Model(..)) => {
                self.calls.on_call_piece(&mut self.fleet, process, &piece);
            }
            (ToOrchestrator::CallResult(result), Owner::Connector(..) | Owner::Model(..)) => {
                if !self.fleet.is_collected(process, &result) {
                    self.calls.on_call_result(&mut self.fleet, process, result);
                }
            }
            (other, _) => {
                let problem = format!("it sent `{}`, which its kind does not send", other.kind());
                self.fleet.on_broken(process, &problem);
            }
        }
    }

    pub(super) fn on_exited(&mut self, process: ProcessId, how: &str) {
        let now = self.fleet.now;
        if let Some(Owner::Connector(id, name)) = self.fleet.owners.get(&process).cloned() {
            self.fleet.forgive_if_long_up(&id, &name);
        }
        let Some(owner) = self.fleet.owners.remove(&process) else {
            return;
        };
        self.fleet.start_next(process);
        let ending = self
            .fleet
            .slot_mut(&owner)
            .map(|slot| slot.exited(now, how.to_owned()));
        let mut is_crash = false;
        let event = match ending {
            Some(Ending::Stopped) | None => LogEvent::info("process ended"),
            Some(Ending::Crashed { delay_ms }) => {
                is_crash = true;
                let crashes = self.fleet.slot_mut(&owner).map_or(0, |slot| slot.crashes);
                LogEvent::warn("process crashed")
                    .with("consecutiveCrashes", crashes)
                    .with("nextStartInMs", delay_ms)
            }
        };
        self.fleet
            .log(Fleet::log_of(&owner, event).with("how", how));
        match &owner {
            Owner::Agent(at) => {
                self.calls.on_caller_gone(&mut self.fleet, process, at);
                self.on_agent_exited(at, is_crash.then_some(how));
                self.fleet.give_room(process);
            }
            Owner::Connector(id, name) => {
                self.fleet.on_collecting_gone(process, how);
                if let Some(connector) = self.fleet.connector_mut(id, name) {
                    connector.readiness = Readiness::Starting;
                }
                self.fleet.pump_connector(id, name);
                let target = CallTarget::Connection { name: name.clone() };
                self.calls
                    .on_provider_gone(&mut self.fleet, process, id, &target, how);
            }
            Owner::Model(id, name) => {
                if let Some(model) = self.fleet.model_mut(id, name) {
                    model.readiness = Readiness::Starting;
                }
                let target = CallTarget::Model { name: name.clone() };
                self.calls
                    .on_provider_gone(&mut self.fleet, process, id, &target, how);
                let is_called = self.calls.any_for(id, &target);
                self.fleet.pump_model(id, name, is_called);
            }
        }
    }

    /// What the passing of time asks for, for one process.
    pub(super) fn on_time(&mut self, owner: &Owner) {
        let now = self.fleet.now;
        match self.fleet.slot_mut(owner).map(|slot| slot.due(now)) {
            Some(Due::Ping(process)) => {
                let to = match owner {
                    Owner::Agent(at) => self.fleet.agent_head(at).map(|head| head.to),
                    Owner::Connector(_, name) => Some(Address::Connector { name: name.clone() }),
                    Owner::Model(_, name) => Some(Address::Model { name: name.clone() }),
                };
                if let Some(to) = to {
                    let head = Head::new(Address::Orchestrator, to);
                    let message =
                        Box::new(ToChild::ping(owner.role(), Ping { nonce: now.mono_ms }));
                    self.fleet.push(Effect::Send {
                        process,
                        head,
                        message,
                    });
                }
            }
            Some(Due::Kill(process, reason)) => {
                let event = LogEvent::warn("process is killed").with("reason", reason);
                self.fleet.log(Fleet::log_of(owner, event));
                self.fleet.kill(process, false);
            }
            Some(Due::Start | Due::Nothing) | None => {}
        }
        match owner {
            Owner::Agent(at) => self.fleet.on_agent_time(at),
            Owner::Connector(id, name) => {
                self.fleet.pump_connector(id, name);
                self.calls.serve(
                    &mut self.fleet,
                    id,
                    &CallTarget::Connection { name: name.clone() },
                );
            }
            Owner::Model(id, name) => self.model_time(id, name),
        }
    }
}
