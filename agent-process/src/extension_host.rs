//! The host of an agent's extensions that are modules of the project (`EXT-2`, `EXT-4`).
//!
//! All of an agent's modules share one host. It is started with the first turn, under a tool
//! supervisor, and lives as long as the agent process. [`ExtensionHost`] owns it and tracks the
//! running middlewares. A crash or hang of a module fails only the current turn, and the next turn
//! starts the host again. Decisions of the engine are sent to the host; messages of the host come
//! out as [`HostEvent`].

mod calls;
mod host_output;
mod invocation;
mod looked_at;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::{Instant, sleep_until};
use goondan_protocol::JsonObject;
use goondan_protocol::base_package::BaseContract;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::{AgentAssignment, CatalogEntry, ExtensionSource};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{AgentName, ExtensionName, ExtensionStates, InstanceKey, TurnId};
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::message::{Message, MessageEvent};
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::trace::TraceId;
use serde_json::Value;

use crate::middleware::{
    Enter, ExtensionFault, InvocationId, Middleware, MiddlewareEvent, MiddlewareTarget, NextResult,
};
use crate::tools::Toolbox;
use crate::tools::host::process::{Process, happening};
use crate::tools::host::{HostProgram, MAX_LINE_BYTES};
use crate::tools::pipe::Surroundings;
use calls::HostedCalls;
use invocation::{InvocationScope, MiddlewareInvocation, asks_from};
use looked_at::MAX_EVENT_BYTES;
pub(crate) use wire::MiddlewareAgentRequest;
use wire::{
    AgentRequestFailure, ExtensionHostRequest, ExtensionRegistration, HostAgentInfo, Limits,
};

/// The program that the runtime executes.
pub(crate) const SCRIPT: &str = concat!(
    include_str!("extension_host/host.mjs"),
    include_str!("tools/host/handlers.mjs")
);

/// Longest time for a runtime to start, before it loads a module. It does not count toward the
/// modules' time limits, because the first start after a boot reads the runtime from a busy disk.
const RUNTIME_START_MAX: Duration = Duration::from_secs(60);
/// Maximum number of message events that a middleware emits per report.
const MAX_EVENTS: usize = 1_000;
/// Longest report of a middleware, in bytes; the rest of the line is for the fields around it.
const MAX_SAID_BYTES: usize = MAX_LINE_BYTES - 64 * 1024;
/// Maximum number of messages per line to a host.
const MESSAGES_AT_ONCE: usize = 500;

/// An input of the engine, or a request of a module.
#[derive(Debug)]
pub(crate) enum HostEvent {
    Assembled(Vec<Middleware>),
    /// A middleware reported an event.
    MiddlewareActed {
        invocation: InvocationId,
        event: MiddlewareEvent,
        /// Id of the call whose result the middleware supplied.
        made_result_of: Option<String>,
    },
    /// The host is gone or unusable.
    Lost(ExtensionFault),
    /// A middleware asks other agents.
    Ask(MiddlewareRequest),
}

/// A question of a middleware to other agents.
#[derive(Debug)]
pub(crate) struct MiddlewareRequest {
    /// Identifies the question while the host lives.
    pub(crate) id: u64,
    /// The step; `None` if the middleware wraps the turn.
    pub(crate) step: Option<u32>,
    /// Position of the question in the step or the turn, identical after a crash.
    pub(crate) place: u32,
    pub(crate) asked: MiddlewareAgentRequest,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NewTurn<'a> {
    pub(crate) turn_id: &'a TurnId,
    pub(crate) trace_id: TraceId,
    pub(crate) event: &'a AgentEvent,
}

#[derive(Debug)]
struct ExtensionModule {
    name: ExtensionName,
    entry: PathBuf,
    path: PathBuf,
    config: JsonObject,
    timeout: Duration,
}

/// Startup progress of a host, with its deadline.
#[derive(Debug, Clone, Copy)]
enum HostStartup {
    Runtime {
        deadline: Instant,
    },
    /// The modules are being loaded and register.
    Modules {
        deadline: Instant,
    },
}

impl HostStartup {
    fn deadline(self) -> Instant {
        match self {
            Self::Runtime { deadline } | Self::Modules { deadline } => deadline,
        }
    }
}

/// The extensions of an agent that are modules, and their host.
#[derive(Debug)]
pub(crate) struct ExtensionHost {
    surroundings: Arc<Surroundings>,
    agent_name: AgentName,
    instance_key: InstanceKey,
    contract: BaseContract,
    system_prompt: Option<String>,
    modules: Vec<ExtensionModule>,
    process: Option<Process>,
    /// All middlewares; `None` until they are registered.
    middlewares: Option<Vec<Middleware>>,
    /// Startup progress, until the middlewares are registered.
    launching: Option<HostStartup>,
    /// Conversation before the turn, the first message to a new host.
    base: Option<Vec<Message>>,
    /// Number of the turn's events that were sent to the host.
    told_events: usize,
    invocations: BTreeMap<InvocationId, MiddlewareInvocation>,
    asks: BTreeMap<u64, InvocationId>,
    calls: HostedCalls,
    host_events: VecDeque<HostEvent>,
    span: tracing::Span,
}

impl ExtensionHost {
    /// Creates the host for the modules among an agent's extensions; `None` without modules.
    /// `conversation` precedes the first turn.
    pub(crate) fn of(
        assignment: &AgentAssignment,
        toolbox: &Toolbox,
        conversation: &Conversation,
    ) -> Option<Self> {
        let definitions = assignment.agent.extensions.iter();
        let modules: Vec<ExtensionModule> = definitions
            .filter_map(|definition| match &definition.source {
                ExtensionSource::Builtin { .. } => None,
                ExtensionSource::Module {
                    entry, timeout_ms, ..
                } => Some(ExtensionModule {
                    name: definition.name.clone(),
                    entry: entry.clone(),
                    path: assignment.project_root.join(entry),
                    config: definition.config.clone(),
                    timeout: Duration::from_millis(*timeout_ms),
                }),
            })
            .collect();
        (!modules.is_empty()).then(|| Self {
            surroundings: Arc::clone(toolbox.extension_surroundings()),
            agent_name: assignment.agent.name.clone(),
            instance_key: assignment.instance_key.clone(),
            contract: assignment.agent.contract,
            system_prompt: assignment.agent.system_prompt.clone(),
            modules,
            process: None,
            middlewares: None,
            launching: None,
            base: Some(readable(conversation)),
            told_events: 0,
            invocations: BTreeMap::new(),
            asks: BTreeMap::new(),
            calls: HostedCalls::of(toolbox.registered()),
            host_events: VecDeque::new(),
            span: tracing::Span::none(),
        })
    }

    /// The modules' paths as written, with their locations.
    pub(crate) fn entries(&self) -> Vec<(PathBuf, PathBuf)> {
        let modules = self.modules.iter();
        modules
            .map(|module| (module.entry.clone(), module.path.clone()))
            .collect()
    }

    /// Prepares for a turn; `conversation` precedes it.
    pub(crate) fn prepare(&mut self, conversation: &Conversation) {
        if self.process.as_mut().is_some_and(Process::has_ended) {
            self.process = None;
            self.middlewares = None;
        }
        if self.process.is_none() && self.base.is_none() {
            self.base = Some(readable(conversation));
        }
    }

    /// True if a host must be started.
    pub(crate) fn needs_host(&self) -> bool {
        self.process.is_none()
    }

    /// Starts the host, which loads the modules and lets them register.
    ///
    /// # Errors
    ///
    /// If the host could not be started.
    pub(crate) fn launch(
        &mut self,
        program: &HostProgram,
        states: &ExtensionStates,
    ) -> Result<(), ExtensionFault> {
        let started = Process::start(&self.surroundings, program);
        let mut process = started.map_err(|error| ExtensionFault {
            code: "E_EXT_LOAD".to_owned(),
            message: format!(
                "{}, which runs the agent's extensions, could not be started: {error}",
                program.name
            ),
        })?;
        for messages in self
            .base
            .take()
            .unwrap_or_default()
            .chunks(MESSAGES_AT_ONCE)
        {
            process.say(&ExtensionHostRequest::Messages { messages });
        }
        let extensions = self.modules.iter().map(|module| ExtensionRegistration {
            name: &module.name,
            module: &module.path,
            config: &module.config,
            state: states.get(&module.name),
        });
        process.say(&ExtensionHostRequest::Register {
            extensions: extensions.collect(),
            limits: Limits {
                event_bytes: MAX_EVENT_BYTES,
                events: MAX_EVENTS,
                state_bytes: MAX_EXTENSION_STATE_BYTES,
                line_bytes: MAX_SAID_BYTES,
            },
            contract: self.contract,
            about: HostAgentInfo {
                agent_name: &self.agent_name,
                bundle_root: &self.surroundings.project_root,
                system: self.system_prompt.as_deref(),
                swarm: self.surroundings.swarm.as_ref(),
            },
        });
        self.launching = Some(HostStartup::Runtime {
            deadline: Instant::now() + RUNTIME_START_MAX,
        });
        self.process = Some(process);
        tracing::debug!(host = program.name, "extension host started");
        Ok(())
    }

    /// Begins the turn with the running host; [`HostEvent::Assembled`] follows once the modules are
    /// ready.
    pub(crate) fn begin(
        &mut self,
        begun: NewTurn<'_>,
        states: ExtensionStates,
        span: tracing::Span,
    ) {
        self.span = span;
        self.told_events = 0;
        self.invocations.clear();
        self.asks.clear();
        if let Some(process) = &mut self.process {
            process.say(&ExtensionHostRequest::Turn {
                turn_id: begun.turn_id,
                trace_id: begun.trace_id,
                agent_name: &self.agent_name,
                instance_key: &self.instance_key,
                event: begun.event,
                states,
            });
        }
        if let Some(middlewares) = &self.middlewares {
            self.host_events
                .push_back(HostEvent::Assembled(middlewares.clone()));
        }
    }

    /// Enters a middleware. `events` are the events of the turn; `catalog` holds the tools that its
    /// step offers so far.
    pub(crate) fn enter(
        &mut self,
        enter: &Enter,
        events: &[MessageEvent],
        catalog: &[CatalogEntry],
    ) {
        let Some(process) = &mut self.process else {
            return;
        };
        let fresh = match &enter.moment {
            MiddlewareTarget::Turn | MiddlewareTarget::Step { .. } => {
                let fresh = events.get(self.told_events..).unwrap_or_default();
                self.told_events = events.len();
                fresh
            }
            MiddlewareTarget::Call { .. } => &[],
        };
        let (step, call) = match &enter.moment {
            MiddlewareTarget::Turn => (None, None),
            MiddlewareTarget::Step { step } => (Some(*step), None),
            MiddlewareTarget::Call { step, call } => (Some(*step), Some(call)),
        };
        process.say(&ExtensionHostRequest::Enter {
            invocation: enter.invocation,
            extension: &enter.extension,
            number: enter.number,
            id_prefix: &enter.id_prefix,
            events: fresh,
            step,
            catalog: matches!(enter.moment, MiddlewareTarget::Step { .. }).then_some(catalog),
            tool_name: call.map(|call| call.tool_name.as_str()),
            tool_call_id: call.map(|call| call.id.as_str()),
            args: call.map(|call| &call.input),
        });
        let place = self.modules.iter().position(|m| m.name == enter.extension);
        let timeout = place.and_then(|place| Some(self.modules.get(place)?.timeout));
        let timeout = timeout.unwrap_or_default();
        let place = place
            .and_then(|place| u32::try_from(place).ok())
            .unwrap_or(0);
        let invocation = MiddlewareInvocation {
            extension: enter.extension.clone(),
            timeout,
            deadline: Some(Instant::now() + timeout),
            asking: 0,
            asks_from: asks_from(place, enter.number),
            moment: match &enter.moment {
                MiddlewareTarget::Turn => InvocationScope::Turn { outcome: None },
                MiddlewareTarget::Step { step } => InvocationScope::Step {
                    step: *step,
                    offered: catalog.iter().map(|entry| entry.name.to_string()).collect(),
                },
                MiddlewareTarget::Call { call, .. } => InvocationScope::Call {
                    call_id: call.id.to_string(),
                    result: None,
                },
            },
        };
        self.invocations.insert(enter.invocation, invocation);
    }

    /// Returns the result of `next()` to a middleware.
    pub(crate) fn tell(
        &mut self,
        id: InvocationId,
        next_result: &NextResult,
        events: &[MessageEvent],
    ) {
        let (Some(process), Some(invocation)) = (&mut self.process, self.invocations.get_mut(&id))
        else {
            return;
        };
        let fresh = match next_result {
            NextResult::Turn(_) | NextResult::Step { .. } => {
                let fresh = events.get(self.told_events..).unwrap_or_default();
                self.told_events = events.len();
                fresh
            }
            NextResult::Call(_) => &[],
        };
        process.say(&ExtensionHostRequest::Return {
            invocation: id,
            events: fresh,
            result: next_result.into(),
        });
        invocation.deadline = Some(Instant::now() + invocation.timeout);
        match (&mut invocation.moment, next_result) {
            (InvocationScope::Turn { outcome }, NextResult::Turn(ended)) => {
                *outcome = Some(ended.clone());
            }
            (InvocationScope::Call { result, .. }, NextResult::Call(ended)) => {
                *result = Some(ended.clone());
            }
            _ => {}
        }
    }

    /// Sends a runtime event of the turn to the modules.
    pub(crate) fn tell_event(&mut self, event: &RuntimeEvent) {
        if let Some(process) = &mut self.process {
            process.say(&ExtensionHostRequest::Event { event });
        }
    }

    /// Sends the answer to a question to its module.
    pub(crate) fn answer(&mut self, id: u64, answer: Result<Value, (String, String)>) {
        let invocation = self.asks.remove(&id);
        if let Some(invocation) =
            invocation.and_then(|invocation| self.invocations.get_mut(&invocation))
        {
            invocation.asking = invocation.asking.saturating_sub(1);
            if invocation.asking == 0 && invocation.deadline.is_none() {
                invocation.deadline = Some(Instant::now() + invocation.timeout);
            }
        }
        let (result, error) = match answer {
            Ok(result) => (Some(result), None),
            Err((code, message)) => (None, Some(AgentRequestFailure { code, message })),
        };
        if let Some(process) = &mut self.process {
            process.say(&ExtensionHostRequest::Answer { id, result, error });
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn next(&mut self) -> HostEvent {
        loop {
            if let Some(event) = self.host_events.pop_front() {
                return event;
            }
            let deadlines = self
                .invocations
                .values()
                .filter_map(|invocation| invocation.deadline);
            let deadline = deadlines
                .chain(self.launching.map(HostStartup::deadline))
                .chain(self.calls.next_deadline())
                .min();
            let has_deadline = deadline.is_some();
            let (called, given_up) = self.calls.news();
            tokio::select! {
                Some(call) = called => self.begin_call(call),
                () = given_up => self.cancel_calls(),
                happened = happening(&mut self.process) => self.take(happened),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if has_deadline => {
                    self.look_at_the_clock();
                }
            }
        }
    }

    /// The runtime is up: the modules' time limit starts.
    fn begin_registration(&mut self) {
        if let Some(HostStartup::Runtime { .. }) = self.launching {
            let timeout: Duration = self.modules.iter().map(|module| module.timeout).sum();
            self.launching = Some(HostStartup::Modules {
                deadline: Instant::now() + timeout,
            });
        }
    }

    /// Drops the host, if it runs.
    fn lose(&mut self, code: &str, why: String) {
        self.span
            .in_scope(|| tracing::warn!(code, why, "the agent's extensions are lost"));
        self.process = None;
        self.middlewares = None;
        self.launching = None;
        self.invocations.clear();
        self.asks.clear();
        self.calls.lose();
        self.host_events.clear();
        self.host_events.push_back(HostEvent::Lost(ExtensionFault {
            code: code.to_owned(),
            message: why,
        }));
    }

    /// Loses the host if a middleware or the registration has exceeded its time limit.
    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        self.end_late_calls(now);
        let late = self
            .invocations
            .values()
            .find(|invocation| invocation.deadline.is_some_and(|deadline| deadline <= now));
        let launching = self
            .launching
            .filter(|launching| launching.deadline() <= now);
        let why = match (late, launching) {
            (Some(invocation), _) => format!(
                "extension `{}` ran longer than {} ms and was killed; do less at once, or raise its \
                 `timeoutSeconds`",
                invocation.extension,
                invocation.timeout.as_millis()
            ),
            (None, Some(HostStartup::Modules { .. })) => {
                "the extensions did not register in time and were ended; do less in `register`, or \
                 raise their `timeoutSeconds`"
                    .to_owned()
            }
            (None, Some(HostStartup::Runtime { .. })) => format!(
                "the runtime of the agent's extensions did not start within {} s and was ended; the machine may be \
                 short of memory or processor time (`gdn daemon status`)",
                RUNTIME_START_MAX.as_secs()
            ),
            (None, None) => return,
        };
        self.lose("E_EXT_TIMEOUT", why);
    }
}

fn readable(conversation: &Conversation) -> Vec<Message> {
    let messages = conversation.messages().filter_map(Result::ok);
    messages.map(std::borrow::Cow::into_owned).collect()
}
