//! The process loop: carries out what the engine decides.
//!
//! One `select!` over the socket and the running work turns everything that happens into an input of
//! the engine; its effects become frames, model calls and tool calls. Between two inputs nothing runs
//! here, so `ping` is answered while models and tools work.

mod modules;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use goondan_log::unix_millis_now;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::{AgentAssignment, CatalogEntry};
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ids::{ExtensionStates, MessageId, StepId, ToolCallId};
use goondan_protocol::ipc::{
    ConversationLoad, ConversationPage, Pong, ShutdownAck, ToChild, ToOrchestrator, TurnAppend,
    TurnComplete, TurnStart,
};
use goondan_protocol::message::{Message, ToolCall};
use goondan_protocol::records::Records;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use uuid::Uuid;

use crate::agent_client::{AgentClient, AgentRequests};
use crate::extension_host::{ExtensionHost, HostEvent};
use crate::extensions::{ExtensionError, Extensions};
use crate::history::History;
use crate::link::{Incoming, Link, LinkError};
use crate::middleware::Enter;
use crate::model::{self, Answer, Model, ModelError, ModelRequest};
use crate::outgoing::{Desk, Order, Outgoing};
use crate::recorder::Recorder;
use crate::tool_call::{CallKey, ToolOutcome};
use crate::tools::Origin;
use crate::tools::host::HostProgram;
use crate::tools::{CallSite, ToolFault, Toolbox, ToolboxError};
use crate::turn::{Effect, Engine, EngineFault, Input, OpenTurn, Scope, TurnLimits};

/// How the process came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The orchestrator asked for it.
    Shutdown,
    /// The orchestrator is gone.
    Orphaned,
}

/// Why the process cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// The process could not be set up.
    #[error("the process could not be set up")]
    Setup(#[source] std::io::Error),
    /// The link failed.
    #[error("the link to the orchestrator failed")]
    Link(#[from] LinkError),
    /// The agent's tools cannot be set up.
    #[error("the agent's tools cannot be set up")]
    Toolbox(#[from] ToolboxError),
    /// The engine refused what came.
    #[error("the orchestrator broke the protocol of turns")]
    Engine(#[from] EngineFault),
    /// A message came that has no meaning now.
    #[error("`{kind}` came while {doing}")]
    Unexpected {
        /// The message's type.
        kind: &'static str,
        /// What the process was doing.
        doing: &'static str,
    },
    /// There is no memory for the conversation.
    #[error("there is no memory for the conversation")]
    Memory(#[source] std::io::Error),
    /// A recorded event of the open turn cannot be read.
    #[error("record {place} of the open turn is no message event")]
    BadRecord {
        /// Its place in the turn, from 1.
        place: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A message event cannot be written.
    #[error("a message event cannot be written as JSON")]
    Unwritable(#[source] serde_json::Error),
    /// The agent's extensions cannot be set up.
    #[error("the agent's extensions cannot be set up")]
    Extension(#[from] ExtensionError),
    /// A model or tool panicked.
    #[error("a model or a tool of this process failed")]
    Work(#[source] JoinError),
}

/// Keeps the process running when a terminal's Ctrl-C or a service manager signals the whole group:
/// the orchestrator decides when its children stop. A handler, unlike ignoring, is not inherited by
/// the commands that tools run.
pub(crate) fn ignore_signals() -> Result<(), ProcessError> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        drop(signal(kind).map_err(ProcessError::Setup)?);
    }
    Ok(())
}

/// Runs the agent until it is asked to end or the orchestrator is gone.
///
/// # Errors
///
/// [`ProcessError`] if it cannot go on; the orchestrator starts it anew.
pub(crate) async fn run(
    mut link: Link,
    assignment: AgentAssignment,
    supervisor: PathBuf,
) -> Result<Ended, ProcessError> {
    let toolbox = Toolbox::new(&assignment, supervisor)?;
    let (outgoing, desk) = Outgoing::new();
    let model = model::of_definition(&assignment.agent.model, &outgoing);
    let (agent_client, agent_requests) = AgentClient::new();
    tracing::info!(
        model = assignment.agent.model.name.as_str(),
        "agent process started"
    );
    let loading_since = Instant::now();
    let loaded = match load(&mut link).await? {
        Loading::Loaded(loaded) => loaded,
        Loading::Ended(ended) => {
            link.close().await;
            return Ok(ended);
        }
    };
    let conversation = loaded.history.finish();
    tracing::debug!(
        messages = conversation.len(),
        elapsed_us = u64::try_from(loading_since.elapsed().as_micros()).unwrap_or(u64::MAX),
        "conversation loaded"
    );
    let extensions = Extensions::new(
        assignment.agent.name.clone(),
        assignment.instance_key.clone(),
        &assignment.agent.extensions,
        loaded.states,
    )?;
    let extension_host = ExtensionHost::of(&assignment, toolbox.surroundings(), &conversation);
    let mut agent = Agent {
        engine: Engine::new(
            toolbox.clone(),
            TurnLimits {
                step_count_max: assignment.agent.max_steps_per_turn,
                loop_breaker: assignment.agent.loop_breaker,
                model: model.place(),
            },
            extensions,
            conversation,
            loaded.open,
        ),
        link,
        assignment,
        toolbox,
        model,
        outgoing,
        origin: None,
        desk,
        agent_client,
        agent_requests,
        next_request: loaded.next_request,
        recorder: None,
        extension_host,
        asked_servers: None,
        work: JoinSet::new(),
        is_draining: false,
    };
    if let Some((start, trace)) = loaded.first_turn {
        agent.start(&start, trace).await?;
    }
    let ended = agent.run().await?;
    if ended == Ended::Shutdown {
        agent.link.close().await;
    }
    Ok(ended)
}

/// A loaded conversation.
#[derive(Default)]
struct Loaded {
    history: History,
    open: OpenTurn,
    states: ExtensionStates,
    /// A turn that was given before the conversation was loaded.
    first_turn: Option<(Box<TurnStart>, Option<TraceContext>)>,
    /// The number of the next request; those before it asked for the conversation.
    next_request: u64,
}

enum Loading {
    Loaded(Box<Loaded>),
    Ended(Ended),
}

/// Asks for the conversation, page by page.
async fn load(link: &mut Link) -> Result<Loading, ProcessError> {
    let doing = "the conversation was loaded";
    let mut loaded = Box::<Loaded>::default();
    let mut request_id = 1;
    let mut page_count = 0;
    let load = ToOrchestrator::ConversationLoad(ConversationLoad { offset: 0 });
    link.send(&load, None, Some(request_id)).await?;
    loop {
        let Some(Incoming { message, trace, .. }) = link.receive().await? else {
            return Ok(Loading::Ended(Ended::Orphaned));
        };
        match message {
            ToChild::ConversationPage(mut page) => {
                page_count += 1;
                if let Some(offset) = page.next {
                    // The next page is made ready while this one is received.
                    request_id += 1;
                    let load = ToOrchestrator::ConversationLoad(ConversationLoad { offset });
                    link.send(&load, None, Some(request_id)).await?;
                }
                let is_last = page.next.is_none();
                let is_all = is_last && page_count == 1;
                if !receive_messages(link, &page.messages, &mut loaded.history, is_all).await? {
                    return Ok(Loading::Ended(Ended::Orphaned));
                }
                loaded.states.append(&mut page.states);
                take_events(&page, &mut loaded.open)?;
                if is_last {
                    loaded.next_request = request_id + 1;
                    return Ok(Loading::Loaded(loaded));
                }
            }
            ToChild::Ping(ping) => {
                let pong = ToOrchestrator::Pong(Pong { nonce: ping.nonce });
                link.send(&pong, None, None).await?;
            }
            ToChild::Shutdown(shutdown) => {
                tracing::info!(reason = shutdown.reason, "shutdown was asked for");
                let ack = ToOrchestrator::ShutdownAck(ShutdownAck {});
                link.send(&ack, None, None).await?;
                return Ok(Loading::Ended(Ended::Shutdown));
            }
            ToChild::Event(start) if loaded.first_turn.is_none() => {
                loaded.first_turn = Some((start, trace));
            }
            other => {
                let kind = other.kind();
                return Err(ProcessError::Unexpected { kind, doing });
            }
        }
    }
}

/// Receives the messages that a page announced; false when the orchestrator is gone.
async fn receive_messages(
    link: &mut Link,
    announced: &Records,
    history: &mut History,
    is_all: bool,
) -> Result<bool, ProcessError> {
    if announced.is_empty() {
        return Ok(true);
    }
    let bytes = announced.frame_bytes();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    FrameCodec::new().header(bytes).map_err(LinkError::from)?;
    let room = history.room(bytes, is_all).map_err(ProcessError::Memory)?;
    if !link.receive_into(room).await? {
        return Ok(false);
    }
    history.take(announced).map_err(LinkError::from)?;
    Ok(true)
}

fn take_events(page: &ConversationPage, open: &mut OpenTurn) -> Result<(), ProcessError> {
    for (record, place) in page.events.iter().zip(1..) {
        open.push_record(record.get())
            .map_err(|source| ProcessError::BadRecord { place, source })?;
    }
    Ok(())
}

/// What a task of the process brings back.
enum Done {
    Model {
        step: u32,
        answer: Result<Answer, ModelError>,
    },
    Summary {
        came: Result<Answer, ModelError>,
    },
    Tool {
        key: CallKey,
        outcome: ToolOutcome,
    },
    /// What MCP servers offer is known; the model can be asked.
    Offered {
        step: u32,
        seq: u64,
        message_id: MessageId,
    },
    /// The same, for a middleware that is to be entered.
    OfferedTo {
        enter: Box<Enter>,
    },
    /// What runs the modules of extensions.
    HostOfModules {
        program: Result<Option<HostProgram>, ToolFault>,
    },
    /// What came of a module's question to other agents.
    Answered {
        id: u64,
        answer: modules::Answered,
    },
}

struct Agent {
    engine: Engine<Toolbox>,
    link: Link,
    assignment: AgentAssignment,
    toolbox: Toolbox,
    model: Box<dyn Model>,
    outgoing: Outgoing,
    /// Where the event of the turn came from.
    origin: Option<Arc<Origin>>,
    /// What models and tools want done outside.
    desk: Desk,
    agent_client: AgentClient,
    agent_requests: AgentRequests,
    next_request: u64,
    recorder: Option<Recorder>,
    /// The extensions that are modules, if there are any.
    extension_host: Option<ExtensionHost>,
    /// The step of the turn for which MCP servers were asked what they offer.
    asked_servers: Option<u32>,
    /// Model and tool calls. Dropping a task ends the processes of its tool.
    work: JoinSet<Done>,
    is_draining: bool,
}

impl Agent {
    async fn run(&mut self) -> Result<Ended, ProcessError> {
        loop {
            if self.is_draining && self.engine.turn_id().is_none() {
                let ack = ToOrchestrator::ShutdownAck(ShutdownAck {});
                self.link.send(&ack, None, None).await?;
                return Ok(Ended::Shutdown);
            }
            tokio::select! {
                incoming = self.link.receive() => match incoming? {
                    Some(incoming) => self.receive(incoming).await?,
                    None => return Ok(Ended::Orphaned),
                },
                Some(done) = self.work.join_next() => {
                    let input = match done.map_err(ProcessError::Work)? {
                        Done::Model { step, answer: Ok(Answer::Reply(reply)) } => {
                            Input::ModelReplied { step, reply }
                        }
                        Done::Model { step, answer: Ok(Answer::Recorded(message)) } => {
                            Input::ModelRecorded { step, message }
                        }
                        Done::Model { step, answer: Err(error) } => {
                            Input::ModelFailed { step, error }
                        }
                        Done::Summary { came } => Input::Summarized { came },
                        Done::Tool { key, outcome } => Input::ToolFinished { key, outcome },
                        Done::Offered { step, seq, message_id } => {
                            self.ask_model(step, seq, &message_id);
                            continue;
                        }
                        Done::OfferedTo { enter } => {
                            self.enter_now(&enter);
                            continue;
                        }
                        Done::HostOfModules { program } => {
                            self.launch_host(program).await?;
                            continue;
                        }
                        Done::Answered { id, answer } => {
                            self.answer_module(id, answer);
                            continue;
                        }
                    };
                    if self.work.is_empty() && !self.toolbox.reap_orphans() {
                        tracing::error!("some processes of tools could not be ended");
                    }
                    self.handle(input).await?;
                }
                host_event = next_of(&mut self.extension_host) => self.take_host_event(host_event).await?,
                Some(order) = self.desk.next() => self.carry_out_order(order).await?,
                Some((ask, trace)) = self.agent_requests.next(self.next_request) => {
                    let ask = ToOrchestrator::AgentAsk(Box::new(ask));
                    self.link.send(&ask, trace, Some(self.next_request)).await?;
                    self.next_request += 1;
                }
            }
        }
    }

    /// Sends what a model or a tool wants done outside.
    async fn carry_out_order(&mut self, order: Order) -> Result<(), ProcessError> {
        match order {
            Order::Call { call, trace } => {
                let call = ToOrchestrator::Call(call);
                self.link.send(&call, trace, None).await?;
            }
            Order::Cancel(cancel) => {
                let cancel = ToOrchestrator::CallCancel(cancel);
                self.link.send(&cancel, None, None).await?;
            }
        }
        Ok(())
    }

    async fn receive(&mut self, incoming: Incoming) -> Result<(), ProcessError> {
        match incoming.message {
            ToChild::Ping(ping) => {
                let pong = ToOrchestrator::Pong(Pong { nonce: ping.nonce });
                self.link.send(&pong, None, None).await?;
            }
            ToChild::Shutdown(shutdown) => {
                tracing::info!(reason = shutdown.reason, "shutdown was asked for");
                self.is_draining = true;
            }
            // A turn that crossed the shutdown on its way is not begun; it stays in the inbox.
            ToChild::Event(_) if self.is_draining => {}
            ToChild::Event(start) => self.start(&start, incoming.trace).await?,
            ToChild::TurnAppended(appended) => {
                let (turn_id, seq) = (appended.turn_id, appended.seq);
                self.handle(Input::Durable { turn_id, seq }).await?;
            }
            ToChild::TurnCommitted(committed) => {
                let turn_id = committed.turn_id;
                self.handle(Input::Committed { turn_id }).await?;
                self.recorder = None;
            }
            ToChild::CallResult(result) => self.desk.settle(result),
            ToChild::AgentAnswer(answer) => {
                self.agent_requests.settle(incoming.in_reply_to, *answer);
            }
            // An answer that crossed the end of its turn waits for another.
            ToChild::TurnInput(input) if self.engine.turn_id() == Some(&input.turn_id) => {
                let event = Box::new(input.event);
                self.handle(Input::Answer { event }).await?;
            }
            ToChild::TurnInput(_) => {}
            other @ (ToChild::Call(_)
            | ToChild::CallPiece(_)
            | ToChild::CallCancel(_)
            | ToChild::QuestionAnswered(_)
            | ToChild::QuestionRefused(_)
            | ToChild::State(_)
            | ToChild::StateKept(_)
            | ToChild::StateRefused(_)
            | ToChild::Welcome(_)
            | ToChild::EventAccepted(_)
            | ToChild::EventRefused(_)
            | ToChild::ConversationPage(_)) => {
                let (kind, doing) = (other.kind(), "the agent was ready for turns");
                return Err(ProcessError::Unexpected { kind, doing });
            }
        }
        Ok(())
    }

    async fn start(
        &mut self,
        start: &TurnStart,
        trace: Option<TraceContext>,
    ) -> Result<(), ProcessError> {
        let trace = trace.unwrap_or_else(|| {
            let trace_id = start.event.trace_id;
            TraceContext {
                trace_id: trace_id.unwrap_or_else(|| TraceId::from_uuid(Uuid::now_v7())),
                span_id: SpanId::from_uuid(Uuid::now_v7()),
                parent_span_id: start.event.parent_span_id,
            }
        });
        self.prepare_modules();
        self.asked_servers = None;
        let effects = self.engine.start(start, now())?;
        self.origin = Some(Arc::new(Origin::of(&start.event)));
        self.recorder = Some(Recorder::new(
            start.turn_id.clone(),
            start.event.id.clone(),
            trace,
        ));
        self.carry_out(effects).await
    }

    async fn handle(&mut self, input: Input) -> Result<(), ProcessError> {
        let effects = self.engine.handle(input, now())?;
        self.carry_out(effects).await
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) -> Result<(), ProcessError> {
        let trace = self.recorder.as_ref().map(Recorder::trace);
        for effect in effects {
            match effect {
                Effect::Append {
                    turn_id,
                    seq,
                    event,
                } => {
                    let event = serde_json::value::to_raw_value(&event)
                        .map_err(ProcessError::Unwritable)?;
                    let append = ToOrchestrator::TurnAppend(TurnAppend {
                        turn_id,
                        seq,
                        event,
                    });
                    self.link.send(&append, trace, None).await?;
                }
                Effect::AskModel {
                    step,
                    seq,
                    message_id,
                } => {
                    let has_asked = self.asked_servers == Some(step);
                    if has_asked || self.toolbox.servers().is_empty() {
                        self.ask_model(step, seq, &message_id);
                    } else {
                        self.ask_servers(step, seq, message_id);
                    }
                }
                Effect::Assemble => self.assemble(),
                Effect::Enter(enter) => self.enter(enter),
                Effect::Return { invocation, result } => self.return_to(invocation, &result),
                Effect::AskSummary {
                    step_id,
                    seq,
                    message_id,
                    system,
                    text,
                } => self.ask_summary(&step_id, seq, &message_id, &system, &text),
                Effect::RunTool { key, call } => {
                    let span = self.log_span(key, &call);
                    let site = self.site_of(key, &call.id, &call.tool_name);
                    let running = span.in_scope(|| self.toolbox.run_at(&call, site));
                    self.work.spawn(async move {
                        let outcome = running.await;
                        Done::Tool { key, outcome }
                    });
                }
                Effect::Log { extension, line } => {
                    tracing::info!(extension = extension.as_str(), "{line}");
                }
                Effect::Observe(observation) => {
                    let assignment = &self.assignment;
                    if let Some(recorder) = &mut self.recorder {
                        let event = recorder.record(
                            observation,
                            &assignment.agent.name,
                            &assignment.instance_key,
                            now(),
                            Instant::now(),
                        );
                        if let Some(host) = &mut self.extension_host {
                            host.tell_event(&event);
                        }
                        let observe = ToOrchestrator::Observe(Box::new(event));
                        self.link.send(&observe, trace, None).await?;
                    }
                }
                Effect::Complete {
                    turn_id,
                    last_seq,
                    outcome,
                    answered,
                } => {
                    let complete = ToOrchestrator::TurnComplete(TurnComplete {
                        turn_id,
                        last_seq,
                        outcome,
                        answered,
                        states: self.engine.changed_states(),
                    });
                    self.link.send(&complete, trace, None).await?;
                }
            }
        }
        Ok(())
    }

    /// What a call is logged under.
    fn log_span(&self, key: CallKey, call: &ToolCall) -> tracing::Span {
        match (&self.recorder, self.engine.turn_id()) {
            (Some(recorder), Some(turn_id)) => {
                recorder.log_span(&StepId::of_turn(turn_id, key.step), call)
            }
            (None, _) | (_, None) => tracing::Span::none(),
        }
    }

    fn site_of(&self, key: CallKey, call_id: &ToolCallId, tool_name: &str) -> Option<CallSite> {
        let turn_id = self.engine.turn_id()?.clone();
        let scope = Scope::Call {
            step_id: StepId::of_turn(&turn_id, key.step),
            call_id: call_id.clone(),
            tool_name: tool_name.to_owned(),
        };
        let recorder = self.recorder.as_ref();
        Some(CallSite {
            turn_id,
            key,
            trace: recorder.map(|recorder| recorder.place_of(&scope)),
            agent_client: self.agent_client.clone(),
            outgoing: self.outgoing.clone(),
            origin: self.origin.clone(),
        })
    }

    /// Asks MCP servers what they offer; then comes the model. One that does not answer offers what it
    /// offered before.
    fn ask_servers(&mut self, step: u32, seq: u64, message_id: MessageId) {
        let Some(asking) = self.asking_servers(step) else {
            return;
        };
        self.work.spawn(async move {
            asking.await;
            Done::Offered {
                step,
                seq,
                message_id,
            }
        });
    }

    fn asking_servers(&self, step: u32) -> Option<BoxFuture<'static, ()>> {
        let place = self.place_of_step(step)?;
        let scope = Scope::Step(place.step_id.clone()?);
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let servers = Arc::clone(self.toolbox.servers());
        let outgoing = self.outgoing.clone();
        Some(Box::pin(async move {
            let asked = servers.iter().map(|server| async {
                let refreshed = server.refresh(&outgoing, place.clone(), trace).await;
                if let Err(fault) = refreshed {
                    tracing::warn!(
                        connection = server.connection(),
                        reason = %fault,
                        "an MCP server does not say what it offers"
                    );
                }
            });
            futures_util::future::join_all(asked).await;
        }))
    }

    /// What the model is offered in the coming step.
    fn offered(&self) -> Cow<'_, [CatalogEntry]> {
        let mut catalog = self.toolbox.catalog();
        let is_left_out = |entry: &CatalogEntry| !self.engine.offers(entry.name.as_str());
        if catalog.iter().any(is_left_out) {
            catalog.to_mut().retain(|entry| !is_left_out(entry));
        }
        catalog
    }

    /// Has the model summarize a text, which it is given as a conversation of one message.
    fn ask_summary(
        &mut self,
        step_id: &StepId,
        seq: u64,
        message_id: &MessageId,
        system: &str,
        text: &str,
    ) {
        let Some(turn_id) = self.engine.turn_id() else {
            return;
        };
        let question = Message::user(message_id.clone(), now(), text);
        let scope = Scope::Step(step_id.clone());
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let answer = self.model.ask(ModelRequest {
            system: Some(system),
            messages: &Conversation::from_base(vec![question]),
            catalog: &[],
            turn_id,
            step_id,
            seq,
            message_id,
            trace,
            step: 0,
        });
        self.work.spawn(async move {
            let came = answer.await;
            Done::Summary { came }
        });
    }

    fn ask_model(&mut self, step: u32, seq: u64, message_id: &MessageId) {
        let Some(turn_id) = self.engine.turn_id() else {
            return;
        };
        let step_id = StepId::of_turn(turn_id, step);
        let scope = Scope::Step(step_id.clone());
        let trace = self.recorder.as_ref().map(|r| r.place_of(&scope));
        let catalog = self.offered();
        let answer = self.model.ask(ModelRequest {
            system: self.assignment.agent.system_prompt.as_deref(),
            messages: self.engine.conversation(),
            catalog: &catalog,
            turn_id,
            step_id: &step_id,
            seq,
            message_id,
            trace,
            step,
        });
        self.work.spawn(async move {
            let answer = answer.await;
            Done::Model { step, answer }
        });
    }
}

/// What is new of the modules; never if there are none. Cancel-safe.
async fn next_of(extension_host: &mut Option<ExtensionHost>) -> HostEvent {
    match extension_host {
        Some(host) => host.next().await,
        None => std::future::pending().await,
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(unix_millis_now())
}
