//! Agent instances: mailboxes, turns and the processes that run them.

use std::collections::{HashMap, VecDeque};

use goondan_protocol::JsonObject;
use goondan_protocol::control::{ControlError, ErrorCode, Sent};
use goondan_protocol::definition::{AgentAssignment, AgentDefinition};
use goondan_protocol::envelope::Address;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{AgentName, EventId, InstanceRef, TurnId};
use goondan_protocol::ipc::{
    Assignment, ChildRole, ConversationPage, EventAccepted, Head, RefusalCode, Shutdown, ToChild,
    TurnAppend, TurnAppended, TurnCommitted, TurnComplete, TurnStart,
};
use goondan_protocol::limits::MAX_PENDING_EVENTS_PER_INSTANCE;
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use goondan_store::StoreError;
use goondan_store::instance::{EventState, work_dir};
use goondan_store::naming::instance_dir_name;
use goondan_store::writer::{Op, Report};
use serde_json::{Value, json};

use super::jobs::{AcceptReply, Purpose};
use super::slot::Slot;
use super::{Core, Effect, LogEvent, Owner, ProcessId, RequestToken, Spawn, Stopping};
use crate::limits::IDLE_STOP_MS;

/// A client that waits for an event's turn.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) token: RequestToken,
    pub(super) sent: Sent,
}

/// What a turn belongs to.
#[derive(Debug, Clone)]
pub(super) struct TurnContext {
    pub(super) event_id: EventId,
    pub(super) trace: TraceContext,
}

/// The turn in progress.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) turn_id: TurnId,
    pub(super) context: TurnContext,
}

/// How far a process is with being given its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// The store has said what the instance has to do.
    is_opened: bool,
    /// The process has the whole conversation.
    is_loaded: bool,
    /// The store was asked to begin a turn.
    is_beginning: bool,
}

/// One agent instance that has or had something to do.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) agent: AgentName,
    pub(super) slot: Slot,
    /// Durable events that are not done, oldest first; the turn in progress answers the first.
    pub(super) waiting: VecDeque<AgentEvent>,
    /// Events handed to the store and not reported yet.
    accepting: usize,
    pub(super) turn: Option<Turn>,
    progress: Progress,
    /// The definition its process works with.
    pub(super) definition: Option<AgentDefinition>,
    pub(super) waiters: HashMap<EventId, Vec<Waiter>>,
    idle_since_ms: u64,
    /// Who waits for it to be deleted; none while it is to stay.
    pub(super) deleting: Option<Vec<RequestToken>>,
}

impl Instance {
    fn new(agent: AgentName, now_ms: u64) -> Self {
        Self {
            agent,
            slot: Slot::default(),
            waiting: VecDeque::new(),
            accepting: 0,
            turn: None,
            progress: Progress::default(),
            definition: None,
            waiters: HashMap::new(),
            idle_since_ms: now_ms,
            deleting: None,
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.waiting.len() + self.accepting
    }

    fn is_forgettable(&self) -> bool {
        self.slot.up().is_none()
            && self.pending() == 0
            && self.waiters.is_empty()
            && self.deleting.is_none()
    }
}

fn agent_address(instance: &InstanceRef, agent: &AgentName) -> Address {
    Address::Agent {
        name: agent.clone(),
        instance_key: instance.instance_key.clone(),
    }
}

impl Core {
    /// The instance's entry, made if there is none. What has no entry has nothing to do: everything
    /// that had was opened with its workspace.
    pub(super) fn instance_entry(
        &mut self,
        at: &InstanceRef,
        agent: &AgentName,
    ) -> Option<&mut Instance> {
        let now_ms = self.now.mono_ms;
        let workspace = self.workspaces.get_mut(&at.workspace_id)?;
        let entry = workspace.instances.entry(at.instance_key.clone());
        Some(entry.or_insert_with(|| Instance::new(agent.clone(), now_ms)))
    }

    /// Hands an event to the store. `reply` is told when it is durable, or why it is not.
    pub(super) fn accept(
        &mut self,
        instance: InstanceRef,
        agent: &AgentName,
        event: AgentEvent,
        reply: AcceptReply,
    ) {
        let Some(entry) = self.instance_entry(&instance, agent) else {
            return;
        };
        if entry.deleting.is_some() {
            let message = format!("instance `{}` is being deleted", instance.instance_key);
            return self.refuse(reply, RefusalCode::Unavailable, message);
        }
        if entry.pending() >= MAX_PENDING_EVENTS_PER_INSTANCE {
            let message = format!(
                "instance `{}` has {MAX_PENDING_EVENTS_PER_INSTANCE} events waiting",
                instance.instance_key
            );
            return self.refuse(reply, RefusalCode::Overloaded, message);
        }
        entry.accepting += 1;
        let op = Op::Accept {
            instance: instance.clone(),
            agent: agent.clone(),
            event: Box::new(event.clone()),
        };
        self.store(
            op,
            Purpose::Accept {
                instance,
                event: Box::new(event),
                reply,
            },
        );
    }

    pub(super) fn refuse(&mut self, reply: AcceptReply, code: RefusalCode, message: String) {
        match reply {
            AcceptReply::Connector {
                process,
                request_id,
            } => {
                self.refuse_connector(process, request_id, code, message);
            }
            AcceptReply::Client { token, .. } => {
                let (code, suggestion) = match code {
                    RefusalCode::Invalid => (ErrorCode::InvalidRequest, None),
                    RefusalCode::Unroutable => (ErrorCode::AgentNotFound, None),
                    RefusalCode::Overloaded => (ErrorCode::Overloaded, Some("try again later")),
                    RefusalCode::Unavailable => (ErrorCode::Storage, Some("try again later")),
                };
                let error = ControlError::new(code, message);
                let error = match suggestion {
                    Some(suggestion) => error.suggest(suggestion),
                    None => error,
                };
                self.respond_error(token, error);
            }
        }
    }

    pub(super) fn on_accepted(
        &mut self,
        instance: &InstanceRef,
        event: AgentEvent,
        reply: AcceptReply,
        result: Result<Report, StoreError>,
    ) {
        let (before, created) = match result {
            Ok(Report::Accepted { before, created }) => (before, created),
            Ok(other) => return self.log_confusion(instance, &other),
            Err(error) => {
                self.settle_accept(instance);
                return self.refuse_for(instance, reply, &error);
            }
        };
        let trace = event.trace_id.zip(event.parent_span_id);
        let trace = trace.map(|(trace_id, span)| TraceContext::root(trace_id, span));
        let is_new = before == EventState::Unknown;
        let log = LogEvent::info(if is_new {
            "event accepted"
        } else {
            "event accepted again"
        });
        self.log(
            log.of(instance)
                .with("eventId", event.id.as_str())
                .in_trace(trace),
        );
        if created {
            let fields = json!({"agentName": self.agent_of(instance)});
            self.audit(instance, "created", fields);
        }
        let event_id = event.id.clone();
        if let Some(entry) = self.instance_mut(instance) {
            entry.accepting = entry.accepting.saturating_sub(1);
            if is_new {
                entry.waiting.push_back(event);
            }
        }
        match reply {
            AcceptReply::Connector {
                process,
                request_id,
            } => {
                self.connector_worked(process);
                let accepted = EventAccepted {
                    event_id,
                    duplicate: !is_new,
                };
                self.answer_connector(process, request_id, ToChild::EventAccepted(accepted));
            }
            AcceptReply::Client {
                token,
                mut sent,
                wait,
            } => {
                sent.duplicate = !is_new;
                match before {
                    EventState::Done(outcome) => {
                        sent.outcome = Some(outcome);
                        self.respond(token, &sent);
                    }
                    EventState::Unknown | EventState::Waiting if wait => {
                        if let Some(entry) = self.instance_mut(instance) {
                            let waiter = Waiter { token, sent };
                            entry.waiters.entry(event_id).or_default().push(waiter);
                        }
                    }
                    EventState::Unknown | EventState::Waiting => self.respond(token, &sent),
                }
            }
        }
        self.pump(instance);
    }

    fn agent_of(&self, at: &InstanceRef) -> Option<String> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        Some(workspace.instances.get(&at.instance_key)?.agent.to_string())
    }

    fn settle_accept(&mut self, instance: &InstanceRef) {
        if let Some(entry) = self.instance_mut(instance) {
            entry.accepting = entry.accepting.saturating_sub(1);
        }
        self.forget_if_done(instance);
    }

    fn refuse_for(&mut self, instance: &InstanceRef, reply: AcceptReply, error: &StoreError) {
        let text = goondan_log::error_chain(error);
        let log = LogEvent::warn("event refused")
            .of(instance)
            .with("error", text.clone());
        self.log(log);
        match (error, reply) {
            (StoreError::KeyTaken { .. }, AcceptReply::Client { token, .. }) => {
                let error = ControlError::new(ErrorCode::InstanceKeyTaken, text)
                    .suggest("choose another `--instance` key, or name that agent with `--agent`");
                self.respond_error(token, error);
            }
            (StoreError::KeyTaken { .. }, reply) => {
                self.refuse(reply, RefusalCode::Unroutable, text)
            }
            (_, reply) => self.refuse(reply, RefusalCode::Unavailable, text),
        }
    }

    /// Does whatever is next for an instance.
    pub(super) fn pump(&mut self, at: &InstanceRef) {
        let may_begin = !self.is_stopping()
            && self
                .workspaces
                .get(&at.workspace_id)
                .is_some_and(|w| w.closing.is_none());
        let now = self.now;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        if entry.deleting.is_some() || !may_begin || entry.waiting.is_empty() {
            return;
        }
        if entry.slot.may_start(now) {
            self.start_agent(at);
        } else if let Some(process) = entry.slot.ready()
            && entry.turn.is_none()
            && entry.progress
                == (Progress {
                    is_opened: true,
                    is_loaded: true,
                    is_beginning: false,
                })
        {
            self.begin_turn(at, process);
        }
    }

    fn start_agent(&mut self, at: &InstanceRef) {
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let Some(entry) = workspace.instances.get_mut(&at.instance_key) else {
            return;
        };
        let definition = workspace
            .bundle
            .as_ref()
            .and_then(|b| b.agents.get(&entry.agent));
        let Some(definition) = definition.cloned() else {
            let detail = format!("agent `{}` is not in the configuration", entry.agent);
            if entry.slot.detail.as_ref() != Some(&detail) {
                entry.slot.detail = Some(detail.clone());
                let event = LogEvent::error("an instance with events waiting cannot be started");
                self.log(event.of(at).with("problem", detail));
            }
            return;
        };
        let identity = JsonObject::from_iter([
            ("workspaceId".to_owned(), json!(at.workspace_id)),
            ("agentName".to_owned(), json!(entry.agent)),
            ("instanceKey".to_owned(), json!(at.instance_key)),
        ]);
        self.next_process += 1;
        let process = ProcessId(self.next_process);
        entry.slot.start(process, self.now);
        entry.progress = Progress::default();
        entry.definition = Some(definition);
        self.owners.insert(process, Owner::Agent(at.clone()));
        let trace_id = TraceId::from_uuid(self.uuid());
        let role = ChildRole::Agent;
        self.push(Effect::Spawn(Spawn {
            process,
            role,
            identity,
            trace_id,
        }));
        // What a process that crashed or a failed write left behind is read anew, not remembered.
        self.store(
            Op::Open(at.clone()),
            Purpose::Open {
                instance: at.clone(),
            },
        );
    }

    pub(super) fn agent_assignment(&self, at: &InstanceRef) -> Option<Assignment> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        let entry = workspace.instances.get(&at.instance_key)?;
        let instances = self.facts.layout.instances(&at.workspace_id);
        Some(Assignment::Agent(Box::new(AgentAssignment {
            workspace_id: at.workspace_id.clone(),
            instance_key: at.instance_key.clone(),
            agent: entry.definition.clone()?,
            work_dir: work_dir(&instances.join(instance_dir_name(&at.instance_key))),
            project_root: workspace.record.project_root.clone(),
        })))
    }

    pub(super) fn agent_head(&self, at: &InstanceRef) -> Option<Head> {
        let entry = self
            .workspaces
            .get(&at.workspace_id)?
            .instances
            .get(&at.instance_key)?;
        Some(Head::new(
            Address::Orchestrator,
            agent_address(at, &entry.agent),
        ))
    }

    fn send_agent(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        reply_to: Option<u64>,
        trace: Option<TraceContext>,
        message: ToChild,
    ) {
        if self.owners.get(&process) != Some(&Owner::Agent(at.clone())) {
            return;
        }
        if let Some(head) = self.agent_head(at) {
            let head = Head {
                trace,
                ..head.answering(reply_to)
            };
            self.push(Effect::Send {
                process,
                head,
                message: Box::new(message),
            });
        }
    }

    pub(super) fn on_opened(&mut self, at: &InstanceRef, result: Result<Report, StoreError>) {
        let state = match result {
            Ok(Report::Opened(state)) => state,
            Ok(other) => return self.log_confusion(at, &other),
            Err(error) => return self.on_store_failure(at, None, &error),
        };
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        entry.agent = state.agent;
        entry.waiting = state.waiting.into();
        if let Some(event) = state.open_turn.and_then(|open| open.event)
            && let Some(place) = entry.waiting.iter().position(|e| e.id == event.event_id)
            && place > 0
            && let Some(open) = entry.waiting.remove(place)
        {
            entry.waiting.push_front(open);
        }
        entry.progress.is_opened = true;
        // A turn may have been committed without this process of ours having seen it.
        let missing: Vec<EventId> = entry
            .waiters
            .keys()
            .filter(|id| entry.waiting.iter().all(|event| event.id != **id))
            .cloned()
            .collect();
        for event_id in missing {
            let op = Op::LookUpEvent {
                instance: at.clone(),
                event_id: event_id.clone(),
            };
            self.store(
                op,
                Purpose::LookUp {
                    instance: at.clone(),
                    event_id,
                },
            );
        }
        self.pump(at);
    }

    pub(super) fn on_looked_up(
        &mut self,
        at: &InstanceRef,
        event_id: &EventId,
        result: Result<Report, StoreError>,
    ) {
        match result {
            Ok(Report::EventState(EventState::Done(outcome))) => {
                self.answer_waiters(at, event_id, &outcome);
            }
            Ok(Report::EventState(EventState::Waiting)) => {}
            Ok(_) | Err(_) => {
                let error = ControlError::new(
                    ErrorCode::Cancelled,
                    format!("the outcome of event `{event_id}` is not known any more"),
                );
                for waiter in self.take_waiters(at, event_id) {
                    self.respond_error(waiter.token, error.clone());
                }
            }
        }
        self.forget_if_done(at);
    }

    fn take_waiters(&mut self, at: &InstanceRef, event_id: &EventId) -> Vec<Waiter> {
        self.instance_mut(at)
            .and_then(|e| e.waiters.remove(event_id))
            .unwrap_or_default()
    }

    fn answer_waiters(&mut self, at: &InstanceRef, event_id: &EventId, outcome: &TurnOutcome) {
        for waiter in self.take_waiters(at, event_id) {
            let sent = Sent {
                outcome: Some(outcome.clone()),
                ..waiter.sent
            };
            self.respond(waiter.token, &sent);
        }
    }

    /// An agent asks for its conversation.
    pub(super) fn on_conversation_load(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        request_id: Option<u64>,
        offset: u64,
    ) {
        let instance = at.clone();
        let op = Op::ReadPage {
            instance: instance.clone(),
            offset,
        };
        self.store(
            op,
            Purpose::PageForAgent {
                instance,
                process,
                request_id,
            },
        );
    }

    pub(super) fn on_page_for_agent(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        request_id: Option<u64>,
        result: Result<Report, StoreError>,
    ) {
        let page = match result {
            Ok(Report::Page(page)) => *page,
            Ok(other) => return self.log_confusion(at, &other),
            Err(error) => return self.on_store_failure(at, Some(process), &error),
        };
        for finding in &page.damage {
            let event = LogEvent::error("a damaged record of a conversation was passed over");
            let path = finding.path.display().to_string();
            self.log(
                event
                    .of(at)
                    .with("path", path)
                    .with("problem", finding.problem.clone()),
            );
        }
        let is_last = page.next.is_none();
        let (messages, events, next) = (page.messages, page.events, page.next);
        let page = ConversationPage {
            messages,
            events,
            next,
        };
        self.send_agent(
            at,
            process,
            request_id,
            None,
            ToChild::ConversationPage(page),
        );
        if let Some(entry) = self.instance_mut(at)
            && entry.slot.up().is_some_and(|up| up.process == process)
        {
            entry.progress.is_loaded = is_last;
            self.pump(at);
        }
    }

    fn begin_turn(&mut self, at: &InstanceRef, process: ProcessId) {
        let turn_id = TurnId::from(self.uuid());
        let span_id = SpanId::from_uuid(self.uuid());
        let new_trace = TraceId::from_uuid(self.uuid());
        let wall = self.now.wall;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let Some(event) = entry.waiting.front() else {
            return;
        };
        let trace = TraceContext {
            trace_id: event.trace_id.unwrap_or(new_trace),
            span_id,
            parent_span_id: event.parent_span_id,
        };
        let event_id = event.id.clone();
        entry.progress.is_beginning = true;
        let (instance, context) = (
            at.clone(),
            TurnContext {
                event_id: event_id.clone(),
                trace,
            },
        );
        let op = Op::BeginTurn {
            instance: instance.clone(),
            turn_id,
            event_id,
            at: wall,
        };
        self.store(
            op,
            Purpose::Begin {
                instance,
                process,
                context,
            },
        );
    }

    pub(super) fn on_began(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        context: TurnContext,
        result: Result<Report, StoreError>,
    ) {
        if let Some(entry) = self.instance_mut(at) {
            entry.progress.is_beginning = false;
        }
        let open = match result {
            Ok(Report::Began(open)) => open,
            Ok(other) => return self.log_confusion(at, &other),
            Err(error) => return self.on_store_failure(at, Some(process), &error),
        };
        let trace = context.trace;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let Some(event) = entry
            .waiting
            .front()
            .filter(|event| event.id == context.event_id)
        else {
            return;
        };
        if entry.slot.ready() != Some(process) {
            return;
        }
        let start = TurnStart {
            turn_id: open.turn_id.clone(),
            attempt: open.attempt,
            event: event.clone(),
        };
        let event_id = context.event_id.clone();
        entry.turn = Some(Turn {
            turn_id: open.turn_id.clone(),
            context,
        });
        self.push(Effect::SetTrace {
            process,
            trace: Some(trace),
        });
        let event = LogEvent::info(if open.attempt == 1 {
            "turn handed over"
        } else {
            "turn handed over again"
        });
        self.log(
            event
                .of(at)
                .with("turnId", open.turn_id.as_str())
                .with("eventId", event_id.as_str())
                .with("attempt", open.attempt)
                .in_trace(Some(trace)),
        );
        self.send_agent(
            at,
            process,
            None,
            Some(trace),
            ToChild::Event(Box::new(start)),
        );
    }

    /// The turn in progress, if `turn_id` names it.
    fn current_turn(&mut self, at: &InstanceRef, turn_id: &TurnId) -> Option<Turn> {
        let turn = self.instance_mut(at)?.turn.clone()?;
        (turn.turn_id == *turn_id).then_some(turn)
    }

    pub(super) fn on_turn_append(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        append: TurnAppend,
    ) {
        if self.current_turn(at, &append.turn_id).is_none() {
            return self.on_broken(process, "it appended to a turn that is not in progress");
        }
        let TurnAppend {
            turn_id,
            seq,
            event,
        } = append;
        let op = Op::AppendEvent {
            instance: at.clone(),
            turn_id,
            seq,
            event,
        };
        self.store(
            op,
            Purpose::Append {
                instance: at.clone(),
                process,
            },
        );
    }

    pub(super) fn on_appended(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        result: Result<Report, StoreError>,
    ) {
        match result {
            Ok(Report::Appended { turn_id, seq }) => {
                let appended = TurnAppended { turn_id, seq };
                self.send_agent(at, process, None, None, ToChild::TurnAppended(appended));
            }
            Ok(other) => self.log_confusion(at, &other),
            Err(error) => self.on_store_failure(at, Some(process), &error),
        }
    }

    pub(super) fn on_turn_complete(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        complete: TurnComplete,
    ) {
        let Some(turn) = self.current_turn(at, &complete.turn_id) else {
            return self.on_broken(process, "it completed a turn that is not in progress");
        };
        let TurnComplete {
            turn_id,
            last_seq,
            outcome,
        } = complete;
        let op = Op::CompleteTurn {
            instance: at.clone(),
            turn_id: turn_id.clone(),
            last_seq,
            outcome: outcome.clone(),
            at: self.now.wall,
        };
        let event_id = turn.context.event_id;
        let purpose = Purpose::Complete {
            instance: at.clone(),
            process,
            turn_id,
            event_id,
            outcome,
        };
        self.store(op, purpose);
    }

    pub(super) fn on_committed(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        turn_id: &TurnId,
        event_id: &EventId,
        outcome: &TurnOutcome,
        result: Result<Report, StoreError>,
    ) {
        match result {
            Ok(Report::Committed { .. }) => {}
            Ok(other) => return self.log_confusion(at, &other),
            Err(error) => return self.on_store_failure(at, Some(process), &error),
        }
        let now_ms = self.now.mono_ms;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        entry.waiting.retain(|event| event.id != *event_id);
        entry.slot.crashes = 0;
        entry.idle_since_ms = now_ms;
        let trace = entry
            .turn
            .take_if(|turn| turn.turn_id == *turn_id)
            .map(|t| t.context.trace);
        let status = match outcome {
            TurnOutcome::Completed { .. } => "completed",
            TurnOutcome::Failed { .. } => "failed",
        };
        let event = LogEvent::info("turn committed and answered").of(at);
        self.log(
            event
                .with("turnId", turn_id.as_str())
                .with("eventId", event_id.as_str())
                .with("outcome", status)
                .in_trace(trace),
        );
        let committed = TurnCommitted {
            turn_id: turn_id.clone(),
        };
        self.send_agent(at, process, None, trace, ToChild::TurnCommitted(committed));
        self.push(Effect::SetTrace {
            process,
            trace: None,
        });
        self.answer_waiters(at, event_id, outcome);
        self.pump(at);
    }

    /// Something happened in a turn.
    pub(super) fn on_observe(&mut self, at: &InstanceRef, event: RuntimeEvent) {
        if let Ok(mut line) = serde_json::to_vec(&event) {
            line.push(b'\n');
            let op = Op::Observe {
                instance: at.clone(),
                line,
            };
            self.store(
                op,
                Purpose::Observe {
                    instance: at.clone(),
                },
            );
        }
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let Some(turn) = entry
            .turn
            .as_ref()
            .filter(|turn| turn.turn_id == event.turn_id)
        else {
            return;
        };
        let waiters = entry.waiters.get(&turn.context.event_id);
        let tokens: Vec<RequestToken> = waiters.into_iter().flatten().map(|w| w.token).collect();
        for token in tokens {
            self.push(Effect::Progress {
                token,
                event: Box::new(event.clone()),
            });
        }
    }

    /// The store could not do what an agent needs. Its process ends; the next one finds what is
    /// durable, and the back-off keeps the tries apart.
    fn on_store_failure(
        &mut self,
        at: &InstanceRef,
        process: Option<ProcessId>,
        error: &StoreError,
    ) {
        let event = LogEvent::error("the store could not serve an agent; its process is ended");
        self.log(event.of(at).with("error", goondan_log::error_chain(error)));
        let process = process.or_else(|| {
            self.instance_mut(at)
                .and_then(|e| e.slot.up().map(|up| up.process))
        });
        if let Some(process) = process {
            self.kill(process, false);
        }
    }

    /// The process of an instance is gone.
    pub(super) fn on_agent_exited(&mut self, at: &InstanceRef) {
        let now_ms = self.now.mono_ms;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        entry.turn = None;
        entry.progress = Progress::default();
        entry.idle_since_ms = now_ms;
        if entry.deleting.is_some() {
            self.store(
                Op::Delete(at.clone()),
                Purpose::Delete {
                    instance: at.clone(),
                },
            );
            return;
        }
        self.pump(at);
        self.forget_if_done(at);
    }

    /// An agent that has had nothing to do for long is stopped; it starts again on demand (`SUP-3`).
    pub(super) fn on_agent_time(&mut self, at: &InstanceRef) {
        let now = self.now;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let is_idle = entry.pending() == 0 && entry.turn.is_none();
        if is_idle
            && entry.slot.ready().is_some()
            && now.mono_ms.saturating_sub(entry.idle_since_ms) >= IDLE_STOP_MS
        {
            self.drain_agent(at, None, "it has nothing to do");
        } else {
            self.pump(at);
            self.forget_if_done(at);
        }
    }

    /// Asks an agent's process to finish and end.
    pub(super) fn drain_agent(&mut self, at: &InstanceRef, grace: Option<u64>, reason: &str) {
        let grace_period_ms = grace.unwrap_or_else(|| self.grace_period_ms(&at.workspace_id));
        let now = self.now;
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let Some(up) = entry.slot.up() else { return };
        let running = up.process;
        match entry.slot.drain(now, grace_period_ms) {
            Some(process) => {
                let shutdown = Shutdown {
                    grace_period_ms,
                    reason: reason.to_owned(),
                };
                self.send_agent(at, process, None, None, ToChild::Shutdown(shutdown));
            }
            None if entry.slot.shown(false)
                == goondan_protocol::control::ProcessState::Spawning =>
            {
                // It has no work yet, so nothing is lost.
                self.kill(running, true);
            }
            None => {}
        }
    }

    pub(super) fn grace_period_ms(&self, id: &goondan_protocol::ids::WorkspaceId) -> u64 {
        let chosen = self.stopping.and_then(
            |Stopping {
                 grace_period_ms, ..
             }| grace_period_ms,
        );
        let bundle = self
            .workspaces
            .get(id)
            .and_then(|workspace| workspace.bundle.as_ref());
        chosen.unwrap_or_else(|| {
            bundle.map_or(goondan_protocol::limits::DEFAULT_GRACE_PERIOD_MS, |b| {
                b.grace_period_ms
            })
        })
    }

    /// Forgets an instance that has nothing to do and no process.
    pub(super) fn forget_if_done(&mut self, at: &InstanceRef) {
        let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) else {
            return;
        };
        let is_done = workspace
            .instances
            .get(&at.instance_key)
            .is_some_and(Instance::is_forgettable);
        if is_done && !self.jobs.any(|instance| instance == at) {
            workspace.instances.remove(&at.instance_key);
            self.store(
                Op::Close(at.clone()),
                Purpose::Close {
                    instance: at.clone(),
                },
            );
        }
    }

    /// Answers every waiting client of an instance with an error.
    pub(super) fn cancel_waiters(&mut self, at: &InstanceRef, error: &ControlError) {
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let waiters: Vec<Waiter> = std::mem::take(&mut entry.waiters)
            .into_values()
            .flatten()
            .collect();
        for waiter in waiters {
            self.respond_error(waiter.token, error.clone());
        }
    }

    pub(super) fn audit(&mut self, at: &InstanceRef, what: &str, details: Value) {
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
        let op = Op::Audit {
            workspace_id: at.workspace_id.clone(),
            record,
        };
        self.store(op, Purpose::Audit);
    }

    pub(super) fn log_confusion(&mut self, at: &InstanceRef, report: &Report) {
        let event = LogEvent::error("the store reported something else than it was asked for");
        self.log(event.of(at).with("report", format!("{report:?}")));
    }
}
