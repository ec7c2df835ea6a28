//! The process loop: executes the engine's decisions.
//!
//! One `select!` over the socket and the running work turns every event into an input of the
//! engine; the resulting effects become frames, model calls and tool calls. The loop does nothing
//! between two inputs, so it answers `ping` while models and tools work.

mod agent;
mod conversation_load;
mod effects;
mod fault;
mod modules;
pub(crate) mod own_sandbox;
mod tool_approvals;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use goondan_log::error_chain;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::ipc::{
    AgentNotStarted, ConfinementReport, Pong, ShutdownAck, ToAgent, ToOrchestrator, TurnStart,
};
use goondan_protocol::sandbox::SandboxPath;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::agent_client::AgentClient;
use crate::extension_host::{ExtensionHost, HostEvent};
use crate::extensions::Extensions;
use crate::history::History;
use crate::link::{InboundMessage, OrchestratorLink};
use crate::model::{self, ModelLocation, ModelOutcome};
use crate::outgoing_calls::{OutboundCalls, OutboundFrame};
use crate::recorder::Recorder;
use crate::tools::{Origin, Toolbox, changesets_of, own_files, runs_of};
use crate::turn::{Engine, TurnEngineInput, TurnLimits};

use agent::{Agent, BackgroundResult, now};
use conversation_load::{LoadOutcome, load};

pub(crate) use fault::{ProcessError, ProcessExit};

/// Handles signals, so that the process keeps running when a terminal's Ctrl-C or a service manager
/// signals the whole group; the orchestrator decides when its children stop. Unlike an ignored
/// signal, a handler is not inherited by the commands that tools run. A file that exceeds a limit
/// of the system fails its write, instead of killing the process.
pub(crate) fn ignore_signals() -> Result<(), ProcessError> {
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::from_raw(nix::libc::SIGXFSZ),
    ] {
        drop(signal(kind).map_err(ProcessError::Setup)?);
    }
    Ok(())
}

/// Runs the agent until the orchestrator requests its end or is gone.
///
/// # Errors
///
/// [`ProcessError`] if it cannot continue; the orchestrator starts it again.
pub(crate) async fn run(
    mut link: OrchestratorLink,
    assignment: AgentAssignment,
    supervisor: PathBuf,
) -> Result<ProcessExit, ProcessError> {
    let (confined, toolbox) = match prepare(&assignment, supervisor) {
        Ok(prepared) => prepared,
        Err(fault) => return Err(report_not_started(link, fault).await),
    };
    link.send(&ToOrchestrator::Confined(confined), None, None)
        .await?;
    let (outgoing, call_receiver) = OutboundCalls::new();
    let model = model::of_definition(&assignment.agent.model, &outgoing);
    let (agent_client, agent_requests) = AgentClient::new();
    tracing::info!(
        model = assignment.agent.model.name.as_str(),
        "agent process started"
    );
    let loading_since = Instant::now();
    let loaded = match load(&mut link).await? {
        LoadOutcome::Loaded(loaded) => loaded,
        LoadOutcome::Ended(ended) => {
            link.close().await;
            return Ok(ended);
        }
    };
    let conversation = finish_loading(loaded.history, loading_since);
    let extensions = match Extensions::new(
        assignment.agent.name.clone(),
        assignment.instance_key.clone(),
        &assignment.agent.extensions,
        loaded.states,
    ) {
        Ok(extensions) => extensions.with_contract(assignment.agent.contract),
        Err(fault) => return Err(report_not_started(link, fault.into()).await),
    };
    let extension_host = ExtensionHost::of(&assignment, &toolbox, &conversation);
    let mut agent = Agent {
        engine: Engine::new(
            toolbox.clone(),
            limits_of(&assignment, model.place()),
            extensions,
            conversation,
            loaded.open,
        )
        .on_node(assignment.node.clone()),
        link,
        assignment,
        toolbox,
        model,
        outgoing,
        origin: None,
        call_receiver,
        agent_client,
        agent_requests,
        next_request: loaded.next_request,
        recorder: None,
        extension_host,
        asked_servers: None,
        reported_missing: Vec::new(),
        work: JoinSet::new(),
        is_draining: false,
    };
    if let Some((start, trace)) = loaded.first_turn {
        agent.start(&start, trace).await?;
    }
    let ended = agent.run().await?;
    if ended == ProcessExit::Shutdown {
        agent.link.close().await;
    }
    Ok(ended)
}

/// Confines this process and opens the directories of its tools.
fn prepare(
    assignment: &AgentAssignment,
    supervisor: PathBuf,
) -> Result<(ConfinementReport, Toolbox), ProcessError> {
    // Confinement comes first, because an open descriptor would bypass it.
    let confined = confine(assignment)?;
    Ok((confined, Toolbox::new(assignment, supervisor)?))
}

/// Reports to the orchestrator why this process ends, so that no caller waits for it forever.
/// Returns the fault, or the error of the report.
async fn report_not_started(link: OrchestratorLink, fault: ProcessError) -> ProcessError {
    let error = error_chain(&fault);
    let not_started = ToOrchestrator::AgentNotStarted(AgentNotStarted { error });
    match link.send(&not_started, None, None).await {
        Ok(()) => {
            link.close().await;
            fault
        }
        Err(error) => error.into(),
    }
}

fn limits_of(assignment: &AgentAssignment, model: ModelLocation) -> TurnLimits {
    TurnLimits {
        step_count_max: assignment.agent.max_steps_per_turn,
        loop_breaker: assignment.agent.loop_breaker,
        model,
    }
}

/// Confines this process as far as its tools allow, and returns what the kernel enforces from now
/// on.
pub(crate) fn confine(assignment: &AgentAssignment) -> Result<ConfinementReport, ProcessError> {
    let mut policy = own_files(assignment);
    // Only for its own file tools; the programs it starts have their own policy.
    let changesets = changesets_of(assignment).map(Path::to_owned);
    policy
        .write
        .extend(changesets.and_then(|dir| SandboxPath::try_from(dir).ok()));
    // The programs it starts, and its file tools, are held to those of its own conversation.
    let runs = runs_of(assignment).map(Path::to_owned);
    policy
        .read
        .extend(runs.and_then(|dir| SandboxPath::try_from(dir).ok()));
    own_sandbox::enter(
        assignment.agent.programs(),
        &policy,
        // All sockets are in one directory.
        assignment.egress_socket.as_deref().or_else(|| {
            assignment
                .package_sockets
                .values()
                .next()
                .map(PathBuf::as_path)
        }),
    )
}

fn finish_loading(history: History, loading_since: Instant) -> Conversation {
    let conversation = history.finish();
    tracing::debug!(
        messages = conversation.len(),
        elapsed_us = u64::try_from(loading_since.elapsed().as_micros()).unwrap_or(u64::MAX),
        "conversation loaded"
    );
    conversation
}

impl Agent {
    async fn run(&mut self) -> Result<ProcessExit, ProcessError> {
        loop {
            let may_leave = self.engine.turn_id().is_none() || self.only_waits_for_people();
            if self.is_draining && may_leave {
                let ack = ToOrchestrator::ShutdownAck(ShutdownAck {});
                self.link.send(&ack, None, None).await?;
                return Ok(ProcessExit::Shutdown);
            }
            tokio::select! {
                incoming = self.link.receive() => match incoming? {
                    Some(incoming) => self.receive(incoming).await?,
                    None => return Ok(ProcessExit::Orphaned),
                },
                Some(done) = self.work.join_next() => {
                    let input = match done.map_err(ProcessError::Work)? {
                        BackgroundResult::Model { step, answer: Ok(ModelOutcome::Reply(reply)) } => {
                            TurnEngineInput::ModelReplied { step, reply }
                        }
                        BackgroundResult::Model { step, answer: Ok(ModelOutcome::Recorded(message)) } => {
                            TurnEngineInput::ModelRecorded { step, message }
                        }
                        BackgroundResult::Model { step, answer: Err(error) } => {
                            TurnEngineInput::ModelFailed { step, error }
                        }
                        BackgroundResult::Summary { came } => TurnEngineInput::Summarized { came },
                        BackgroundResult::Tool { key, outcome } => TurnEngineInput::ToolFinished { key, outcome },
                        BackgroundResult::Offered { step, seq, message_id } => {
                            self.report_missing_tools().await?;
                            self.ask_model(step, seq, &message_id);
                            continue;
                        }
                        BackgroundResult::OfferedTo { enter } => {
                            self.report_missing_tools().await?;
                            self.enter_now(&enter);
                            continue;
                        }
                        BackgroundResult::HostOfModules { program } => {
                            self.launch_host(program).await?;
                            continue;
                        }
                        BackgroundResult::Answered { id, answer } => {
                            self.answer_module(id, answer);
                            continue;
                        }
                    };
                    if self.work.is_empty() && !self.toolbox.reap_orphans() {
                        tracing::error!("failed to end some tool processes");
                    }
                    self.handle(input).await?;
                }
                host_event = next_of(&mut self.extension_host) => self.take_host_event(host_event).await?,
                Some(order) = self.call_receiver.next() => self.send_outbound(order).await?,
                Some((ask, trace)) = self.agent_requests.next(self.next_request) => {
                    let ask = ToOrchestrator::AgentAsk(Box::new(ask));
                    self.link.send(&ask, trace, Some(self.next_request)).await?;
                    self.next_request += 1;
                }
            }
        }
    }

    /// Sends an outgoing call of a model or a tool.
    async fn send_outbound(&mut self, order: OutboundFrame) -> Result<(), ProcessError> {
        match order {
            OutboundFrame::Call { call, trace } => {
                let call = ToOrchestrator::Call(call);
                self.link.send(&call, trace, None).await?;
            }
            OutboundFrame::Cancel(cancel) => {
                let cancel = ToOrchestrator::CallCancel(cancel);
                self.link.send(&cancel, None, None).await?;
            }
        }
        Ok(())
    }

    async fn receive(&mut self, incoming: InboundMessage) -> Result<(), ProcessError> {
        match incoming.message {
            ToAgent::Ping(ping) => {
                let pong = ToOrchestrator::Pong(Pong { nonce: ping.nonce });
                self.link.send(&pong, None, None).await?;
            }
            ToAgent::Shutdown(shutdown) => {
                tracing::info!(reason = shutdown.reason, "shutdown requested");
                self.is_draining = true;
            }
            // A turn that crossed the shutdown in flight is not begun; it stays in the inbox.
            ToAgent::Event(_) if self.is_draining => {}
            ToAgent::Event(start) => self.start(&start, incoming.trace).await?,
            ToAgent::TurnAppended(appended) => {
                let (turn_id, seq) = (appended.turn_id, appended.seq);
                self.handle(TurnEngineInput::Durable { turn_id, seq })
                    .await?;
            }
            ToAgent::TurnCommitted(committed) => {
                let turn_id = committed.turn_id;
                self.handle(TurnEngineInput::Committed { turn_id }).await?;
                self.recorder = None;
            }
            ToAgent::CallResult(result) => self.call_receiver.settle(result),
            ToAgent::AgentAnswer(answer) => {
                self.agent_requests.settle(incoming.in_reply_to, *answer);
            }
            // An answer that crossed the end of its turn in flight waits for another turn.
            ToAgent::TurnInput(input) if self.engine.turn_id() == Some(&input.turn_id) => {
                let event = Box::new(input.event);
                self.handle(TurnEngineInput::Answer { event }).await?;
            }
            ToAgent::TurnInput(_) => {}
            other
            @ (ToAgent::Welcome(_) | ToAgent::ConversationPage(_) | ToAgent::CallPiece(_)) => {
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
        self.reported_missing.clear();
        let effects = self.engine.start(start, now())?;
        self.origin = Some(Arc::new(Origin::of(&start.event)));
        self.recorder = Some(Recorder::new(
            start.turn_id.clone(),
            start.event.id.clone(),
            trace,
        ));
        self.carry_out(effects).await
    }
}

/// Waits for the next event of the extension host; pending forever without one. Cancel-safe.
async fn next_of(extension_host: &mut Option<ExtensionHost>) -> HostEvent {
    match extension_host {
        Some(host) => host.next().await,
        None => std::future::pending().await,
    }
}
