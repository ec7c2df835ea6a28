//! Routes messages of child processes and results of the store to the state machines that they
//! concern.

use goondan_protocol::call::CallTarget;
use goondan_protocol::envelope::Address;
use goondan_protocol::ids::{ConnectionName, ResourceName, WorkspaceId};
use goondan_protocol::ipc::{EnvelopeHeader, Status, ToOrchestrator};
use goondan_protocol::oauth::CALLBACK_EVENT;
use goondan_protocol::observe::detail_of;
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::instance::{CancelScope, OpenTurn};

use crate::exchange::{ChildRequest, MetricsReader, StateWork, TaskRef};
use crate::fleet::ProcessOwner;
use crate::fleet::agent_requests::ForwardedRequest;
use crate::fleet::cancellation::Cancelling;
use crate::fleet::parked_events::Parking;
use crate::fleet::turns::{Beginning, Completing};
use crate::requests::proposals::ProposalRequester;
use crate::{Core, ProcessId};

impl Core {
    pub(crate) fn on_message(
        &mut self,
        process: ProcessId,
        message: ToOrchestrator,
        request_id: Option<u64>,
        trace: Option<TraceContext>,
    ) {
        // One arm for each message.
        // The last messages of a process that has exited or was killed are dropped.
        let Some(owner) = self.fleet.owner_of(process).cloned() else {
            return;
        };
        let request = ChildRequest {
            process,
            request_id,
        };
        let is_hello = matches!(message, ToOrchestrator::Hello(_));
        if let Some((workspace, cx)) = self.fleet.workspace_of(process)
            && let Some(slot) = workspace.slot_mut(&owner)
            && let Err(problem) = slot.heard(cx.now(), is_hello)
        {
            return workspace.on_broken(cx, process, problem);
        }
        match (message, &owner) {
            (ToOrchestrator::Hello(hello), _) => self.fleet.on_hello(process, &owner, &hello),
            (ToOrchestrator::Pong(_) | ToOrchestrator::ShutdownAck(_), _) => {}
            (ToOrchestrator::Confined(confined), _) => {
                let workspace = self.fleet.workspace_of(process);
                if let Some(slot) = workspace.and_then(|(it, _)| it.slot_mut(&owner)) {
                    slot.confined(confined);
                }
            }
            (ToOrchestrator::Status(mut status), ProcessOwner::Connector(id, name)) => {
                let token = status.token.take();
                status.token = token
                    .filter(|said| self.calls.is_declined_start(&mut self.fleet, process, said));
                self.on_connector_status(id, name, status);
            }
            (ToOrchestrator::Event(event), ProcessOwner::Connector(id, name))
                if event.name == CALLBACK_EVENT
                    && let Some(path) = self.callback_path(id, name) =>
            {
                let came = self
                    .oauth
                    .on_callback(&mut self.fleet, id, &path, &event.input);
                self.fleet.cx().answer_callback(request, came);
            }
            (ToOrchestrator::Event(event), ProcessOwner::Connector(id, name)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                    workspace.on_connector_event(cx, name, request, trace, *event);
                }
            }
            (ToOrchestrator::EventIgnored(ignored), ProcessOwner::Connector(id, name)) => {
                if let Some((connector, cx)) = self.fleet.connector_and_cx(id, name) {
                    connector.on_event_ignored(cx, ignored.reason);
                }
            }
            (ToOrchestrator::StateGet(_), ProcessOwner::Connector(id, name)) => {
                if let Some((connector, cx)) = self.fleet.connector_and_cx(id, name) {
                    connector.on_state_work(cx, request, StateWork::Get);
                }
            }
            (ToOrchestrator::StateSet(set), ProcessOwner::Connector(id, name)) => {
                let work = StateWork::Set(set.state);
                if let Some((connector, cx)) = self.fleet.connector_and_cx(id, name) {
                    connector.on_state_work(cx, request, work);
                }
            }
            (ToOrchestrator::ReplyAwait(asked), ProcessOwner::Connector(id, name)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                    workspace.on_reply_await(cx, name, request, &asked);
                }
            }
            (ToOrchestrator::ReplyForget(forget), ProcessOwner::Connector(id, name)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                    workspace.on_reply_forget(cx, name, process, &forget);
                }
            }
            (ToOrchestrator::DecisionsFollow(follow), ProcessOwner::Connector(id, name)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                    workspace.on_decisions_follow(cx, name, process, follow);
                }
            }
            (ToOrchestrator::DecisionPress(press), ProcessOwner::Connector(id, name)) => {
                self.on_decision_press((id, name), request, &press);
            }
            (ToOrchestrator::MetricsGet(_), ProcessOwner::Connector(id, name))
                if self
                    .fleet
                    .connector_and_cx(id, name)
                    .is_some_and(|(connector, _)| connector.may_read_metrics()) =>
            {
                let to = Address::Connector { name: name.clone() };
                let head = EnvelopeHeader::new(Address::Orchestrator, to).answering(request_id);
                self.tell_metrics(MetricsReader::Connection {
                    process,
                    head,
                    workspace_id: id.clone(),
                });
            }
            (ToOrchestrator::QuestionAsk(ask), ProcessOwner::Connector(id, name)) => {
                self.calls
                    .on_question_ask(&mut self.fleet, (id, name), request, *ask);
            }
            (ToOrchestrator::QuestionWithdraw(withdraw), ProcessOwner::Connector(..)) => {
                self.calls
                    .on_question_withdraw(&mut self.fleet, process, withdraw);
            }
            (ToOrchestrator::ConversationLoad(load), ProcessOwner::Agent(at)) => {
                if let Some((entry, cx)) = self.fleet.conversation_and_cx(at) {
                    entry.load_page(cx, at, (process, request_id), load.offset);
                }
            }
            (ToOrchestrator::TurnAppend(append), ProcessOwner::Agent(at)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id) {
                    workspace.on_turn_append(cx, at, process, append);
                }
            }
            (ToOrchestrator::TurnComplete(complete), ProcessOwner::Agent(at)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id) {
                    workspace.on_complete(cx, at, process, complete);
                }
            }
            (ToOrchestrator::AgentAsk(ask), ProcessOwner::Agent(at)) => {
                let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
                let forwarded = workspace.and_then(|(workspace, cx)| {
                    workspace.on_agent_ask(cx, at, request, trace, *ask)
                });
                match forwarded {
                    Some((requester, ForwardedRequest::Files(work))) => {
                        self.use_proposals(ProposalRequester::Agent(requester), work);
                    }
                    Some((requester, ForwardedRequest::Tasks(ask))) => {
                        self.tasks.on_agent_ask(&mut self.fleet, requester, ask);
                    }
                    Some((requester, ForwardedRequest::Schedules(creator, ask))) => {
                        let fleet = &mut self.fleet;
                        self.schedules
                            .on_agent_ask(fleet, &requester, *creator, ask);
                    }
                    None => {}
                }
            }
            (ToOrchestrator::AgentNotStarted(not), ProcessOwner::Agent(at)) => {
                if let Some((entry, _)) = self.fleet.conversation_and_cx(at) {
                    entry.report_start_fault(detail_of(&not.error));
                }
            }
            (ToOrchestrator::Observe(event), ProcessOwner::Agent(at)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id) {
                    workspace.on_observe(cx, at, process, *event);
                }
            }
            (ToOrchestrator::Call(call), ProcessOwner::Agent(at)) => {
                self.calls
                    .on_call(&mut self.fleet, at, process, trace, *call);
            }
            (ToOrchestrator::CallCancel(cancel), ProcessOwner::Agent(_)) => {
                self.calls.on_call_cancel(&mut self.fleet, process, cancel);
            }
            (ToOrchestrator::Status(status), ProcessOwner::Model(id, name)) => {
                self.on_model_status(id, name, status);
            }
            (
                ToOrchestrator::CallPiece(piece),
                ProcessOwner::Connector(..) | ProcessOwner::Model(..),
            ) => {
                self.calls.on_call_piece(&mut self.fleet, process, &piece);
            }
            (
                ToOrchestrator::CallResult(result),
                ProcessOwner::Connector(..) | ProcessOwner::Model(..),
            ) => {
                let is_export = match &owner {
                    ProcessOwner::Connector(id, name) => self
                        .fleet
                        .connector_and_cx(id, name)
                        .is_some_and(|(it, cx)| it.on_exported(cx, process, &result)),
                    _ => false,
                };
                if !is_export {
                    self.calls.on_call_result(&mut self.fleet, process, result);
                }
            }
            (
                message @ (ToOrchestrator::TaskStarted(_)
                | ToOrchestrator::TaskNotStarted(_)
                | ToOrchestrator::TaskTold(_)
                | ToOrchestrator::TaskOutput(_)
                | ToOrchestrator::TaskAlive(_)
                | ToOrchestrator::TaskExited(_)),
                ProcessOwner::Task(id, task),
            ) => {
                let at = TaskRef::new(id, task);
                if let Err(problem) = self.tasks.on_message(&mut self.fleet, &at, message) {
                    self.fleet.on_broken(process, &problem);
                }
            }
            (other, _) => {
                let problem = format!("it sent `{}`, which its kind must not send", other.kind());
                self.fleet.on_broken(process, &problem);
            }
        }
    }

    fn callback_path(&self, id: &WorkspaceId, name: &ConnectionName) -> Option<String> {
        self.fleet.workspaces().get(id)?.callback_path(name)
    }

    /// Time passes for budgets of a day, and their limits may have been changed.
    pub(crate) fn look_at_budgets(&mut self) {
        for id in self.calls.budgeted(&self.fleet) {
            let bound = self.tasks.bound_by_budgets(&id);
            self.hold_to_budgets(bound);
        }
    }

    /// Handles the exit of a process.
    pub(crate) fn on_exited(&mut self, process: ProcessId, how: &str) {
        let Some((owner, is_crash)) = self.fleet.on_exited(process, how) else {
            return;
        };
        let fleet = &mut self.fleet;
        match &owner {
            ProcessOwner::Agent(at) => {
                self.calls.on_caller_gone(fleet, process, at);
                let how = is_crash.then_some(how);
                let workspace = fleet.workspace_and_cx(&at.workspace_id);
                if workspace.is_some_and(|(it, cx)| it.on_agent_exited(cx, at, how)) {
                    self.calls.give_up_calls_of(fleet, at, None);
                    self.remove_from_store(at);
                }
                self.fleet.starts().give_room(process);
            }
            ProcessOwner::Connector(id, name) => {
                let target = CallTarget::Connection { name: name.clone() };
                self.calls
                    .on_provider_gone(fleet, process, id, &target, how);
            }
            ProcessOwner::Model(id, name) => {
                let target = CallTarget::Model { name: name.clone() };
                self.calls
                    .on_provider_gone(fleet, process, id, &target, how);
                let is_called = self.calls.any_for(id, &target);
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                    workspace.advance_model(cx, name, is_called);
                }
            }
            ProcessOwner::Task(id, task) => {
                let runs = fleet.runs_and_cx(id);
                if let Some((run, end)) = runs.and_then(|(runs, _)| runs.take(task, how)) {
                    self.tasks
                        .on_run_gone(fleet, &TaskRef::new(id, task), run, end);
                }
            }
        }
    }

    /// A process could not be started for want of room.
    pub(crate) fn on_no_room(&mut self, process: ProcessId, how: &str) {
        if let Some(ProcessOwner::Task(id, task)) = self.fleet.starts().on_no_room(process, how) {
            self.tasks
                .on_no_room(&mut self.fleet, &TaskRef::new(&id, &task));
        }
    }

    fn on_connector_status(&mut self, id: &WorkspaceId, name: &ConnectionName, status: Status) {
        if let Some((connector, cx)) = self.fleet.connector_and_cx(id, name) {
            connector.on_status(cx, status);
        }
        let target = CallTarget::Connection { name: name.clone() };
        self.calls.serve(&mut self.fleet, id, &target);
        if let Some((connector, cx)) = self.fleet.connector_and_cx(id, name) {
            connector.export_next(cx);
        }
    }

    fn on_model_status(&mut self, id: &WorkspaceId, name: &ResourceName, status: Status) {
        if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
            workspace.on_model_status(cx, name, status);
        }
        let target = CallTarget::Model { name: name.clone() };
        self.calls.serve(&mut self.fleet, id, &target);
    }

    /// Handles the passing of time for one process.
    pub(crate) fn on_time(&mut self, owner: &ProcessOwner) {
        if let Some((workspace, cx)) = self.fleet.workspace_and_cx(owner.workspace_id()) {
            workspace.on_time(cx, owner);
        }
        match owner {
            ProcessOwner::Agent(_) | ProcessOwner::Task(..) => {}
            ProcessOwner::Connector(id, name) => {
                let target = CallTarget::Connection { name: name.clone() };
                self.calls.serve(&mut self.fleet, id, &target);
            }
            ProcessOwner::Model(id, name) => self.on_model_time(id, name),
        }
    }

    /// Handles the passing of time for a model's process, which also depends on pending calls.
    pub(crate) fn on_model_time(&mut self, id: &WorkspaceId, name: &ResourceName) {
        let target = CallTarget::Model { name: name.clone() };
        let is_called = self.calls.any_for(id, &target);
        if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
            workspace.on_model_time(cx, name, is_called);
        }
    }

    /// A turn has begun: requests of earlier turns are dropped.
    pub(crate) fn on_began(&mut self, beginning: Beginning, result: Result<OpenTurn, StoreError>) {
        let at = beginning.instance.clone();
        let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
        let begun = workspace.and_then(|(it, cx)| it.on_began(cx, beginning, result));
        if let Some(turn_id) = begun {
            self.calls
                .give_up_calls_of(&mut self.fleet, &at, Some(&turn_id));
        }
    }

    /// A turn has ended: its pending requests are dropped, and the next turn may begin.
    pub(crate) fn on_committed(&mut self, completing: &Completing, result: Result<(), StoreError>) {
        let at = &completing.instance;
        let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
        let began_under = workspace.and_then(|(it, cx)| it.on_committed(cx, completing, result));
        let Some(began_under) = began_under else {
            return;
        };
        self.calls.give_up_calls_of(&mut self.fleet, at, None);
        let workspace = self.fleet.workspaces().get(&at.workspace_id);
        let outdated = workspace.map(|it| it.outdated_models(began_under.as_ref()));
        let outdated = outdated.unwrap_or_default();
        for name in outdated {
            self.on_model_time(&at.workspace_id, &name);
        }
        if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&at.workspace_id) {
            workspace.advance(cx, at);
        }
        self.fleet.starts().offer_place();
    }

    /// A person has canceled an event: the rest is as for any turn.
    pub(crate) fn on_cancelled(
        &mut self,
        cancelling: &Cancelling,
        result: Result<CancelScope, StoreError>,
    ) {
        let id = &cancelling.instance.workspace_id;
        let workspace = self.fleet.workspace_and_cx(id);
        let turn_id = workspace.and_then(|(it, cx)| it.on_cancelled(cx, cancelling, result));
        if let Some(turn_id) = turn_id {
            self.on_committed(&cancelling.completing(turn_id), Ok(()));
        }
    }

    /// An event was parked: pending requests of its turn are dropped.
    pub(crate) fn on_parked(&mut self, parking: &Parking, result: Result<(), StoreError>) {
        let workspace = self.fleet.workspace_and_cx(&parking.instance.workspace_id);
        if workspace.is_some_and(|(it, cx)| it.on_parked(cx, parking, result)) {
            self.calls
                .give_up_calls_of(&mut self.fleet, &parking.instance, None);
        }
    }
}
