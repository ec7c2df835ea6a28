//! The host of an agent's extensions that are modules of the project (`EXT-2`, `EXT-4`).
//!
//! An agent has one such process for all of them. It is started with the first turn, under a tool supervisor, and
//! lives as long as the agent process. [`ExtensionHost`] owns it and knows which middlewares are at work: whatever
//! a module does, a crash or a hang is the end of the turn and no more, and the next turn starts the host
//! anew. What the engine decides is said to the host; what the host says comes out as [`HostEvent`].

mod calls;
mod hearing;
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
    Enter, ExtensionFault, InvocationId, Middleware, MiddlewareEvent, Moment, NextResult,
};
use crate::tools::Toolbox;
use crate::tools::host::process::{Process, happening};
use crate::tools::host::{HostProgram, MAX_LINE_BYTES};
use crate::tools::pipe::Surroundings;
use calls::HostedCalls;
use invocation::{MiddlewareInvocation, MomentOf, asks_from};
use looked_at::MAX_EVENT_BYTES;
pub(crate) use wire::Asked;
use wire::{About, Limits, Refusal, ToHost, ToRegister};

/// What the runtime is given to run.
pub(crate) const SCRIPT: &str = concat!(
    include_str!("extension_host/host.mjs"),
    include_str!("tools/host/handlers.mjs")
);

/// Longest time a runtime takes to start, before it loads a module. It is no module's time: the first start after
/// a boot reads the runtime from the disk, beside everything else that starts then.
const RUNTIME_START_MAX: Duration = Duration::from_secs(60);
/// Most message events that a middleware emits before it is heard of again.
const MAX_EVENTS: usize = 1_000;
/// Longest line of a host that says what a middleware did, in bytes; the rest is for what stands around it.
const MAX_SAID_BYTES: usize = MAX_LINE_BYTES - 64 * 1024;
/// Messages that are told to a host at once.
const MESSAGES_AT_ONCE: usize = 500;

/// Something to be given to the engine, or to be done for a module.
#[derive(Debug)]
pub(crate) enum HostEvent {
    /// The modules are ready.
    Assembled(Vec<Middleware>),
    /// A middleware did something.
    MiddlewareActed {
        /// The invocation.
        invocation: InvocationId,
        /// What it did.
        event: MiddlewareEvent,
        /// The call whose result it has made itself.
        made_result_of: Option<String>,
    },
    /// The host is gone or of no use.
    Lost(ExtensionFault),
    /// A middleware asks for other agents.
    Ask(Ask),
}

/// A question of a middleware to other agents.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Identifies the question while the host lives.
    pub(crate) id: u64,
    /// The step, or none if the middleware stands around the turn.
    pub(crate) step: Option<u32>,
    /// The question's place in the step or the turn: the same again after a crash.
    pub(crate) place: u32,
    /// What is asked.
    pub(crate) asked: Asked,
}

/// A turn that begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun<'a> {
    pub(crate) turn_id: &'a TurnId,
    pub(crate) trace_id: TraceId,
    pub(crate) event: &'a AgentEvent,
}

#[derive(Debug)]
struct ModuleOf {
    name: ExtensionName,
    entry: PathBuf,
    path: PathBuf,
    config: JsonObject,
    timeout: Duration,
}

/// How far a host is that was started, and when it must be further.
#[derive(Debug, Clone, Copy)]
enum Launching {
    /// The runtime starts.
    Runtime { deadline: Instant },
    /// The modules are loaded and register.
    Modules { deadline: Instant },
}

impl Launching {
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
    modules: Vec<ModuleOf>,
    process: Option<Process>,
    /// All middlewares, once they are registered.
    middlewares: Option<Vec<Middleware>>,
    /// What the host does until they are.
    launching: Option<Launching>,
    /// What a host that is started is told first: the conversation before the turn.
    base: Option<Vec<Message>>,
    /// Events of the turn that the host knows.
    told_events: usize,
    invocations: BTreeMap<InvocationId, MiddlewareInvocation>,
    asks: BTreeMap<u64, InvocationId>,
    calls: HostedCalls,
    host_events: VecDeque<HostEvent>,
    span: tracing::Span,
}

impl ExtensionHost {
    /// The modules among an agent's extensions; none if there are none. `conversation` is what stands
    /// before the turn that comes first.
    pub(crate) fn of(
        assignment: &AgentAssignment,
        toolbox: &Toolbox,
        conversation: &Conversation,
    ) -> Option<Self> {
        let definitions = assignment.agent.extensions.iter();
        let modules: Vec<ModuleOf> = definitions
            .filter_map(|definition| match &definition.source {
                ExtensionSource::Builtin { .. } => None,
                ExtensionSource::Module {
                    entry, timeout_ms, ..
                } => Some(ModuleOf {
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

    /// The modules' files, as they are written and where they are.
    pub(crate) fn entries(&self) -> Vec<(PathBuf, PathBuf)> {
        let modules = self.modules.iter();
        modules
            .map(|module| (module.entry.clone(), module.path.clone()))
            .collect()
    }

    /// A turn is about to begin; `conversation` is what stands before it.
    pub(crate) fn prepare(&mut self, conversation: &Conversation) {
        if self.process.as_mut().is_some_and(Process::has_ended) {
            self.process = None;
            self.middlewares = None;
        }
        if self.process.is_none() && self.base.is_none() {
            self.base = Some(readable(conversation));
        }
    }

    /// Whether a host has to be started.
    pub(crate) fn needs_host(&self) -> bool {
        self.process.is_none()
    }

    /// Starts the host and has the modules register.
    ///
    /// # Errors
    ///
    /// Why the host could not be started.
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
            process.say(&ToHost::Messages { messages });
        }
        let extensions = self.modules.iter().map(|module| ToRegister {
            name: &module.name,
            module: &module.path,
            config: &module.config,
            state: states.get(&module.name),
        });
        process.say(&ToHost::Register {
            extensions: extensions.collect(),
            limits: Limits {
                event_bytes: MAX_EVENT_BYTES,
                events: MAX_EVENTS,
                state_bytes: MAX_EXTENSION_STATE_BYTES,
                line_bytes: MAX_SAID_BYTES,
            },
            contract: self.contract,
            about: About {
                agent_name: &self.agent_name,
                bundle_root: &self.surroundings.project_root,
                system: self.system_prompt.as_deref(),
                swarm: self.surroundings.swarm.as_ref(),
            },
        });
        self.launching = Some(Launching::Runtime {
            deadline: Instant::now() + RUNTIME_START_MAX,
        });
        self.process = Some(process);
        tracing::debug!(host = program.name, "extension host started");
        Ok(())
    }

    /// The turn begins, with the host at hand; it is said when the modules are ready.
    pub(crate) fn begin(&mut self, begun: Begun<'_>, states: ExtensionStates, span: tracing::Span) {
        self.span = span;
        self.told_events = 0;
        self.invocations.clear();
        self.asks.clear();
        if let Some(process) = &mut self.process {
            process.say(&ToHost::Turn {
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

    /// Enters a middleware. `events` are those of the turn; `catalog` is what its step offers so far.
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
            Moment::Turn | Moment::Step { .. } => {
                let fresh = events.get(self.told_events..).unwrap_or_default();
                self.told_events = events.len();
                fresh
            }
            Moment::Call { .. } => &[],
        };
        let (step, call) = match &enter.moment {
            Moment::Turn => (None, None),
            Moment::Step { step } => (Some(*step), None),
            Moment::Call { step, call } => (Some(*step), Some(call)),
        };
        process.say(&ToHost::Enter {
            invocation: enter.invocation,
            extension: &enter.extension,
            number: enter.number,
            id_prefix: &enter.id_prefix,
            events: fresh,
            step,
            catalog: matches!(enter.moment, Moment::Step { .. }).then_some(catalog),
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
                Moment::Turn => MomentOf::Turn { outcome: None },
                Moment::Step { step } => MomentOf::Step {
                    step: *step,
                    offered: catalog.iter().map(|entry| entry.name.to_string()).collect(),
                },
                Moment::Call { call, .. } => MomentOf::Call {
                    call_id: call.id.to_string(),
                    result: None,
                },
            },
        };
        self.invocations.insert(enter.invocation, invocation);
    }

    /// Tells a middleware what came of its `next()`.
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
        process.say(&ToHost::Return {
            invocation: id,
            events: fresh,
            result: next_result.into(),
        });
        invocation.deadline = Some(Instant::now() + invocation.timeout);
        match (&mut invocation.moment, next_result) {
            (MomentOf::Turn { outcome }, NextResult::Turn(ended)) => *outcome = Some(ended.clone()),
            (MomentOf::Call { result, .. }, NextResult::Call(ended)) => {
                *result = Some(ended.clone());
            }
            _ => {}
        }
    }

    /// Tells modules what happened in the turn.
    pub(crate) fn tell_event(&mut self, event: &RuntimeEvent) {
        if let Some(process) = &mut self.process {
            process.say(&ToHost::Event { event });
        }
    }

    /// Tells a module what came of its question to other agents.
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
            Err((code, message)) => (None, Some(Refusal { code, message })),
        };
        if let Some(process) = &mut self.process {
            process.say(&ToHost::Answer { id, result, error });
        }
    }

    /// The next thing that is new. Cancel-safe.
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
                .chain(self.launching.map(Launching::deadline))
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

    /// The runtime is up: the modules' time begins.
    fn begin_registration(&mut self) {
        if let Some(Launching::Runtime { .. }) = self.launching {
            let timeout: Duration = self.modules.iter().map(|module| module.timeout).sum();
            self.launching = Some(Launching::Modules {
                deadline: Instant::now() + timeout,
            });
        }
    }

    /// Ends the host, if it is there.
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

    /// A middleware, or the registration, is over its time: the host is ended.
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
                "extension `{}` worked longer than {} ms and was ended; do less at once, or raise its \
                 `timeoutSeconds`",
                invocation.extension,
                invocation.timeout.as_millis()
            ),
            (None, Some(Launching::Modules { .. })) => {
                "the extensions did not register in time and were ended; do less in `register`, or \
                 raise their `timeoutSeconds`"
                    .to_owned()
            }
            (None, Some(Launching::Runtime { .. })) => format!(
                "the runtime of the agent's extensions did not start within {} s and was ended; the machine may be \
                 short of memory or processor time (`gdn status`)",
                RUNTIME_START_MAX.as_secs()
            ),
            (None, None) => return,
        };
        self.lose("E_EXT_TIMEOUT", why);
    }
}

/// The messages that can be read.
fn readable(conversation: &Conversation) -> Vec<Message> {
    let messages = conversation.messages().filter_map(Result::ok);
    messages.map(std::borrow::Cow::into_owned).collect()
}
