//! Messages between the orchestrator and its child processes (`IPC-2`).
//!
//! Each direction and kind of child has its own enum. A child's first message is [`Hello`], the
//! orchestrator's first is [`Welcome`]; both contain the sender's exact version. A child whose
//! connection closes exits immediately.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::agents::{AgentAnswer, AgentAsk, TurnInput};
use crate::call::{CallCancel, CallOrder, CallPiece, CallResult, OutgoingCall, TokenVerdict};
use crate::decision::{
    DecisionClosed, DecisionPress, DecisionShow, DecisionVerdict, DecisionsFollow,
};
use crate::definition::{AgentAssignment, ConnectorAssignment, ModelAssignment};
use crate::envelope::{Address, Envelope, MessageError};
use crate::event::{AgentEvent, ConnectorEvent, TurnOutcome};
use crate::ids::{EventId, ExtensionStates, InstanceKey, TurnId};
use crate::ignored_messages::{EventIgnored, IgnoreReason};
use crate::metrics::MetricsSnapshot;
use crate::observe::RuntimeEvent;
use crate::proxy::CA_FILE_VAR;
use crate::question::{QuestionAnswered, QuestionAsk, QuestionRefused, QuestionWithdraw};
use crate::records::Records;
use crate::reply::{Reply, ReplyAwait, ReplyForget};
use crate::sandbox::Facts;
use crate::secret::ALLOW_DEBUGGER_VAR;
use crate::task::{
    TaskAlive, TaskAssignment, TaskContinue, TaskExited, TaskNotStarted, TaskOutput, TaskPause,
    TaskPermission, TaskStarted, TaskTold,
};
use crate::trace::TraceContext;
use crate::version::Version;

/// Expected size of most frames; reserving it avoids reallocation while a frame is written.
const FRAME_BYTES_EXPECTED: usize = 1024;

/// Environment variable that holds the descriptor number of the child's end of the socket pair.
pub const IPC_FD_VAR: &str = "GOONDAN_IPC_FD";

/// Environment variable that sets the minimum log level of a process.
pub const LOG_LEVEL_VAR: &str = "GOONDAN_LOG";

/// Environment variables that a child inherits from its parent. All others are withheld because
/// they may hold secrets that only one connection may have.
pub const PASSED_TO_CHILDREN: [&str; 23] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "TERM",
    // Trusted certificates, if the operator configured them.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    CA_FILE_VAR,
    // Proxies, which can contain a password: programs get them only with network access.
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    LOG_LEVEL_VAR,
    ALLOW_DEBUGGER_VAR,
];

/// Argument of the agent binary that starts the modules of an agent's tools once (`BUNDLE-7`). Two
/// numbers follow, in milliseconds: the load timeout of each module, and the time it must keep
/// running.
pub const START_MODULES: &str = "--start-modules";

/// Argument of the agent binary that replays recorded turns with a different configuration
/// ([`crate::rehearsal`]).
pub const REHEARSE: &str = "--rehearse";

/// Argument of the agent binary that replays the turns of incidents ([`crate::replay`]).
pub const REPLAY: &str = "--replay";

macro_rules! messages {
    (
        $(#[$enum_doc:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident($payload:ty) = $kind:literal,)* }
    ) => {
        $(#[$enum_doc])*
        #[derive(Debug, Clone)]
        pub enum $name {
            $($(#[$doc])* $variant($payload),)*
        }

        impl $name {
            /// Every message type of this direction.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// The message's type, as written in the envelope.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind,)* }
            }

            /// Parses the payload of an envelope.
            ///
            /// # Errors
            ///
            /// [`MessageError`] if the type is unknown in this direction or the payload does not
            /// match it.
            pub fn from_envelope(envelope: &Envelope) -> Result<Self, MessageError> {
                let raw = envelope.payload.get();
                match envelope.kind.as_str() {
                    $($kind => serde_json::from_str(raw).map(Self::$variant),)*
                    other => return Err(MessageError::UnknownKind { kind: other.to_owned() }),
                }
                .map_err(|source| MessageError::BadPayload { kind: envelope.kind.clone(), source })
            }

            /// Wraps the message in an envelope and serializes it as the body of a frame.
            ///
            /// # Errors
            ///
            /// [`MessageError::BadPayload`] if the payload cannot be serialized as JSON.
            pub fn to_frame(&self, head: &EnvelopeHeader) -> Result<Vec<u8>, MessageError> {
                let bad = |source| MessageError::BadPayload { kind: self.kind().to_owned(), source };
                let mut frame = Vec::with_capacity(FRAME_BYTES_EXPECTED);
                match self {
                    $(Self::$variant(payload) => head.write(self.kind(), payload, &mut frame),)*
                }
                .map_err(bad)?;
                Ok(frame)
            }
        }
    };
}

/// Addressing of an outgoing message.
#[derive(Debug, Clone)]
pub struct EnvelopeHeader {
    /// Id of a request, which its reply repeats.
    pub id: Option<u64>,
    /// Id of the request that this message replies to.
    pub in_reply_to: Option<u64>,
    /// The sender.
    pub from: Address,
    /// The recipient.
    pub to: Address,
    /// The trace and span the message belongs to.
    pub trace: Option<TraceContext>,
}

impl EnvelopeHeader {
    /// Head of a message that is neither a request nor a reply and has no trace.
    #[must_use]
    pub fn new(from: Address, to: Address) -> Self {
        Self {
            id: None,
            in_reply_to: None,
            from,
            to,
            trace: None,
        }
    }

    fn write(
        &self,
        kind: &str,
        payload: &impl Serialize,
        frame: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        let message = OutboundEnvelope {
            kind,
            id: self.id,
            in_reply_to: self.in_reply_to,
            from: &self.from,
            to: &self.to,
            trace: self.trace,
            payload,
        };
        serde_json::to_writer(frame, &message)
    }

    /// Adds a trace context.
    #[must_use]
    pub fn in_trace(self, trace: TraceContext) -> Self {
        Self {
            trace: Some(trace),
            ..self
        }
    }

    /// Marks the message as a request.
    #[must_use]
    pub fn asking(self, id: u64) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }

    /// Marks the message as the reply to a request.
    #[must_use]
    pub fn answering(self, request: Option<u64>) -> Self {
        Self {
            in_reply_to: request,
            ..self
        }
    }
}

/// Serializes directly, with its payload, to the format that [`Envelope`] parses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutboundEnvelope<'m, P> {
    #[serde(rename = "type")]
    kind: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_reply_to: Option<u64>,
    from: &'m Address,
    to: &'m Address,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceContext>,
    payload: &'m P,
}

messages! {
    /// Messages from a child to the orchestrator.
    ToOrchestrator {
        /// The first message: identifies the child.
        Hello(Hello) = "hello",
        /// Reply to `ping`, which shows that the process is not hung.
        Pong(Pong) = "pong",
        /// Confinement of the process, as enforced by the kernel from now on.
        Confined(ConfinementReport) = "confined",
        /// Status of a connector, for people to read.
        Status(Status) = "status",
        /// `shutdown` was received and work in progress is done; the process exits now.
        ShutdownAck(ShutdownAck) = "shutdown_ack",
        /// A connector submits an event; `event.accepted` or `event.refused` is the reply.
        Event(Box<ConnectorEvent>) = "event",
        /// A connector received something from its service and passed it over.
        EventIgnored(EventIgnored) = "event.ignored",
        /// A connector requests its stored state.
        StateGet(StateGet) = "state.get",
        /// A connector requests that its state be stored.
        StateSet(StateSet) = "state.set",
        /// A connector requests the agent's answer to one of its events; `reply` is the reply.
        ReplyAwait(ReplyAwait) = "reply.await",
        /// A connector no longer waits for some replies.
        ReplyForget(ReplyForget) = "reply.forget",
        /// A connection that may ask people subscribes to pending decisions.
        DecisionsFollow(DecisionsFollow) = "decisions.follow",
        /// A person decided with a button or a reply; `decision.verdict` is the reply.
        DecisionPress(DecisionPress) = "decision.press",
        /// A connector requests the daemon's metrics.
        MetricsGet(MetricsGet) = "metrics.get",
        /// An agent process cannot start its work, and a restart would fail for the same reason.
        /// The process exits.
        AgentNotStarted(AgentNotStarted) = "agent.not_started",
        /// An agent requests the next page of its conversation.
        ConversationLoad(ConversationLoad) = "conversation.load",
        /// A message event of the running turn, to be stored durably.
        TurnAppend(TurnAppend) = "turn.append",
        /// The turn is over; commit it.
        TurnComplete(TurnComplete) = "turn.complete",
        /// A tool call requests something from the orchestrator; `agent.answer` is the reply.
        AgentAsk(Box<AgentAsk>) = "agent.ask",
        /// A connector asks a person a question on behalf of a call; `question.answered` or
        /// `question.refused` is the reply.
        QuestionAsk(Box<QuestionAsk>) = "question.ask",
        /// A connector withdraws its question.
        QuestionWithdraw(QuestionWithdraw) = "question.withdraw",
        /// A runtime event of the turn, to be recorded.
        Observe(Box<RuntimeEvent>) = "observe",
        /// An agent requests an outgoing call to a model or a connection.
        Call(Box<OutgoingCall>) = "call",
        /// A piece of a call's result, from the connector that makes the call.
        CallPiece(CallPiece) = "call.piece",
        /// Final result of a call, from the connector that made it.
        CallResult(CallResult) = "call.result",
        /// An agent no longer waits for a call.
        CallCancel(CallCancel) = "call.cancel",
        /// The program of a task started.
        TaskStarted(TaskStarted) = "task.started",
        /// The program of a task could not be started.
        TaskNotStarted(TaskNotStarted) = "task.not_started",
        /// An event read from the output of a task's program.
        TaskTold(TaskTold) = "task.told",
        /// Output of a task's program, for its log.
        TaskOutput(TaskOutput) = "task.output",
        /// A task's program was active.
        TaskAlive(TaskAlive) = "task.alive",
        /// A task's program exited.
        TaskExited(TaskExited) = "task.exited",
    }
}

messages! {
    /// Messages from the orchestrator to the process that runs an agent's program for a task.
    ToTask {
        /// Reply to `hello`: the task to run.
        Welcome(Box<Welcome>) = "welcome",
        /// Liveness check.
        Ping(Ping) = "ping",
        /// End the program: request its exit, kill it after the grace period, send `task.exited`,
        /// then exit.
        Shutdown(Shutdown) = "shutdown",
        /// Stop the program and its child processes.
        Pause(TaskPause) = "task.pause",
        /// Resume the stopped program.
        Continue(TaskContinue) = "task.continue",
        /// Reply to a permission request.
        Permission(TaskPermission) = "task.permission",
    }
}

messages! {
    /// Messages from the orchestrator to an agent.
    ToAgent {
        /// Reply to `hello`: the agent's assignment.
        Welcome(Box<Welcome>) = "welcome",
        /// Liveness check.
        Ping(Ping) = "ping",
        /// Finish work in progress, start nothing new, reply `shutdown_ack`, then exit.
        Shutdown(Shutdown) = "shutdown",
        /// The next turn.
        Event(Box<TurnStart>) = "event",
        /// A page of the conversation.
        ConversationPage(ConversationPage) = "conversation.page",
        /// Message events up to and including a sequence number are durable.
        TurnAppended(TurnAppended) = "turn.appended",
        /// The turn is committed.
        TurnCommitted(TurnCommitted) = "turn.committed",
        /// A piece of a call's result.
        CallPiece(CallPiece) = "call.piece",
        /// Final result of a call.
        CallResult(CallResult) = "call.result",
        /// Result of `agent.ask`.
        AgentAnswer(Box<AgentAnswer>) = "agent.answer",
        /// An answer to one of the agent's requests, for the next step of the running turn.
        TurnInput(Box<TurnInput>) = "turn.input",
    }
}

impl ToAgent {
    /// Records that follow the message in a frame of their own, as one JSON array.
    #[must_use]
    pub fn records_frame(&self) -> Option<&Bytes> {
        match self {
            Self::ConversationPage(page) => page.messages.frame(),
            _ => None,
        }
    }
}

messages! {
    /// Messages from the orchestrator to the process of a connection or a model.
    ToConnector {
        /// Reply to `hello`: the process's assignment.
        Welcome(Box<Welcome>) = "welcome",
        /// Liveness check.
        Ping(Ping) = "ping",
        /// Accept nothing new from outside. Calls continue until `shutdown`.
        Quiesce(Quiesce) = "quiesce",
        /// Finish work in progress, start nothing new, reply `shutdown_ack`, then exit.
        Shutdown(Shutdown) = "shutdown",
        /// An event is durable.
        EventAccepted(EventAccepted) = "event.accepted",
        /// An event was refused.
        EventRefused(EventRefused) = "event.refused",
        /// The connection's stored state.
        State(State) = "state",
        /// The connection's new state is durable.
        StateKept(StateKept) = "state.kept",
        /// The connection's state could not be read or stored.
        StateRefused(StateRefused) = "state.refused",
        /// The agent's answer to an event of the connection.
        Reply(Box<Reply>) = "reply",
        /// A decision waits for a person.
        DecisionShow(Box<DecisionShow>) = "decision.show",
        /// A displayed decision is no longer pending.
        DecisionClosed(DecisionClosed) = "decision.closed",
        /// Result of a button press or a reply.
        DecisionVerdict(DecisionVerdict) = "decision.verdict",
        /// The daemon's metrics.
        Metrics(Box<MetricsSnapshot>) = "metrics",
        /// A call to make.
        Call(Box<CallOrder>) = "call",
        /// No caller waits for this call any longer.
        CallCancel(CallCancel) = "call.cancel",
        /// Outcome of a question to a person.
        QuestionAnswered(Box<QuestionAnswered>) = "question.answered",
        /// A question was refused and will not be asked.
        QuestionRefused(QuestionRefused) = "question.refused",
    }
}

/// A message from the orchestrator to a child of any kind.
#[derive(Debug, Clone)]
pub enum ToChild {
    /// To an agent.
    Agent(ToAgent),
    /// To the process of a connection or a model.
    Connector(ToConnector),
    /// To the process that runs an agent's program for a task.
    Task(ToTask),
}

impl From<ToTask> for ToChild {
    fn from(message: ToTask) -> Self {
        Self::Task(message)
    }
}

impl From<ToAgent> for ToChild {
    fn from(message: ToAgent) -> Self {
        Self::Agent(message)
    }
}

impl From<ToConnector> for ToChild {
    fn from(message: ToConnector) -> Self {
        Self::Connector(message)
    }
}

impl ToChild {
    /// Builds the `welcome` variant for a child of this role.
    #[must_use]
    pub fn welcome(role: ChildRole, welcome: Welcome) -> Self {
        match role {
            ChildRole::Agent => ToAgent::Welcome(Box::new(welcome)).into(),
            ChildRole::Connector | ChildRole::Model => {
                ToConnector::Welcome(Box::new(welcome)).into()
            }
            ChildRole::Task => ToTask::Welcome(Box::new(welcome)).into(),
        }
    }

    /// Builds the `shutdown` variant for a child of this role.
    #[must_use]
    pub fn shutdown(role: ChildRole, shutdown: Shutdown) -> Self {
        match role {
            ChildRole::Agent => ToAgent::Shutdown(shutdown).into(),
            ChildRole::Connector | ChildRole::Model => ToConnector::Shutdown(shutdown).into(),
            ChildRole::Task => ToTask::Shutdown(shutdown).into(),
        }
    }

    /// Builds the `ping` variant for a child of this role.
    #[must_use]
    pub fn ping(role: ChildRole, ping: Ping) -> Self {
        match role {
            ChildRole::Agent => ToAgent::Ping(ping).into(),
            ChildRole::Connector | ChildRole::Model => ToConnector::Ping(ping).into(),
            ChildRole::Task => ToTask::Ping(ping).into(),
        }
    }

    /// The message's type, as written in the envelope.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Agent(message) => message.kind(),
            Self::Connector(message) => message.kind(),
            Self::Task(message) => message.kind(),
        }
    }

    /// True if the message requests the child's exit.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        matches!(
            self,
            Self::Agent(ToAgent::Shutdown(_))
                | Self::Connector(ToConnector::Shutdown(_))
                | Self::Task(ToTask::Shutdown(_))
        )
    }

    /// Wraps the message in an envelope and serializes it as the body of a frame.
    ///
    /// # Errors
    ///
    /// [`MessageError::BadPayload`] if the payload cannot be serialized as JSON.
    pub fn to_frame(&self, head: &EnvelopeHeader) -> Result<Vec<u8>, MessageError> {
        match self {
            Self::Agent(message) => message.to_frame(head),
            Self::Connector(message) => message.to_frame(head),
            Self::Task(message) => message.to_frame(head),
        }
    }

    /// Records that follow the message in a frame of their own, as one JSON array.
    #[must_use]
    pub fn records_frame(&self) -> Option<&Bytes> {
        match self {
            Self::Agent(message) => message.records_frame(),
            Self::Connector(_) | Self::Task(_) => None,
        }
    }
}

/// Kind of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildRole {
    /// An AgentProcess.
    Agent,
    /// A ConnectorProcess for a connection.
    Connector,
    /// A ConnectorProcess for a model. Its `hello` has the connector role; the welcome then assigns
    /// it the model.
    Model,
    /// An AgentProcess that runs an agent's program for a task. Its `hello` has the agent role; the
    /// welcome then assigns it the task.
    Task,
}

impl ChildRole {
    /// The serialized form of the role.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Connector => "connector",
            Self::Model => "model",
            Self::Task => "task",
        }
    }
}

/// `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The child's exact version.
    pub version: Version,
    /// Its role.
    pub role: ChildRole,
    /// Its process id.
    pub pid: u32,
}

/// `welcome`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The orchestrator's exact version.
    pub version: Version,
    /// The child's assignment.
    pub assignment: Assignment,
}

/// Work assigned to a child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", content = "definition", rename_all = "lowercase")]
pub enum Assignment {
    /// Run this agent.
    Agent(Box<AgentAssignment>),
    /// Run this connector.
    Connector(Box<ConnectorAssignment>),
    /// Run the connector of this model.
    Model(Box<ModelAssignment>),
    /// Run this agent's program for this task.
    Task(Box<TaskAssignment>),
}

/// `ping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ping {
    /// Value that `pong` must return.
    pub nonce: u64,
}

/// `pong`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    /// The nonce of the `ping`.
    pub nonce: u64,
}

/// `confined`: confinement that a process applied to itself after it received its assignment
/// (`SEC-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfinementReport {
    /// The rights that the kernel enforces.
    pub rights: Facts,
    /// Reason why the confinement is weaker than intended for this kind of process; absent if it is
    /// complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// `status`: a connector's state, for people to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// True if it can do its work.
    pub ready: bool,
    /// Its activity, such as `listening on 127.0.0.1:8080`, or the reason it cannot work.
    pub detail: String,
    /// The remote server's verdict on the token it uses, if the token is the reason it cannot work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenVerdict>,
}

/// `quiesce`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesce {}

/// `shutdown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shutdown {
    /// Grace period before the orchestrator kills the process, in milliseconds.
    pub grace_period_ms: u64,
    /// The reason, for the log: `restart`, `configuration changed`, `daemon shutdown` and so on.
    pub reason: String,
}

/// `shutdown_ack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownAck {}

/// `event`, to an agent: run this turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStart {
    /// The turn. A resumed turn keeps its id.
    pub turn_id: TurnId,
    /// Attempt number, counted from 1.
    pub attempt: u32,
    /// The event to answer.
    pub event: AgentEvent,
}

/// `event.accepted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventAccepted {
    /// The event's id.
    pub event_id: EventId,
    /// True if the event was already accepted; it then has no further effect.
    pub duplicate: bool,
    /// The conversation it belongs to; absent if it belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
}

/// Why an event was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalCode {
    /// The event is invalid: too large or malformed. Retrying cannot succeed.
    Invalid,
    /// No ingress rule matches it, or it names an invalid agent or key.
    Unroutable,
    /// The instance has too many pending events.
    Overloaded,
    /// The daemon is stopping, or the store cannot write. The client may retry later.
    Unavailable,
    /// Files of the conversation or its workspace are missing or damaged. Retrying cannot succeed
    /// until an operator repairs them; the daemon's log names them.
    Damaged,
}

/// `event.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRefused {
    /// The reason, as a code.
    pub code: RefusalCode,
    /// The cause, for people to read.
    pub message: String,
    /// The reason under which the event was counted as passed over, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoreReason>,
}

impl EventRefused {
    /// A refusal that is not counted.
    #[must_use]
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            ignored: None,
        }
    }
}

/// `metrics.get`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsGet {}

/// `state.get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateGet {}

/// `state.set`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateSet {
    /// The new state, which replaces the old one: any JSON of at most
    /// [`crate::limits::MAX_CONNECTION_STATE_BYTES`].
    pub state: Box<RawValue>,
}

/// `state`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The stored state; absent if none was ever stored.
    pub state: Option<Box<RawValue>>,
}

/// `state.kept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKept {}

/// `state.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateRefused {
    /// The cause, for people to read.
    pub message: String,
}

/// `agent.not_started`: the agent process cannot start its work and exits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNotStarted {
    /// The cause, for people to read.
    pub error: String,
}

/// `conversation.load`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationLoad {
    /// Start of the page: 0, then `next` of the previous page.
    pub offset: u64,
}

/// `conversation.page`: confirmed messages, followed by the open turn's events after the last
/// message.
///
/// If the page has messages, the next frame contains them as one JSON array without an envelope.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationPage {
    /// Confirmed messages ([`crate::message::Message`]), raw. This field holds their lengths in
    /// bytes.
    #[serde(rename = "messageBytes")]
    pub messages: Records,
    /// Events of the open turn ([`crate::message::MessageEvent`]), raw. They follow the last
    /// message, on further pages if necessary.
    pub events: Vec<Box<RawValue>>,
    /// State of the agent's extensions, on the first page only (`EXT-2`).
    #[serde(default, skip_serializing_if = "ExtensionStates::is_empty")]
    pub states: ExtensionStates,
    /// Start of the next page; absent on the last page.
    pub next: Option<u64>,
}

/// `turn.append`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnAppend {
    /// The running turn.
    pub turn_id: TurnId,
    /// The event's sequence number within its turn, from 1 without gaps.
    pub seq: u64,
    /// The event ([`crate::message::MessageEvent`]), raw.
    pub event: Box<RawValue>,
}

/// `turn.appended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnAppended {
    /// The running turn.
    pub turn_id: TurnId,
    /// Every event up to and including this sequence number is durable.
    pub seq: u64,
}

/// `turn.complete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnComplete {
    /// The running turn.
    pub turn_id: TurnId,
    /// The sequence number of its last event; 0 if it has none. The orchestrator verifies that it
    /// received all.
    pub last_seq: u64,
    /// Outcome of the turn.
    pub outcome: TurnOutcome,
    /// Other events that arrived during the turn by `turn.input`; they end with the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<EventId>,
    /// New state of the extensions that changed theirs (`EXT-2`).
    #[serde(default, skip_serializing_if = "ExtensionStates::is_empty")]
    pub states: ExtensionStates,
}

/// `turn.committed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnCommitted {
    /// The turn that is now part of the base.
    pub turn_id: TurnId,
}

#[cfg(test)]
#[path = "ipc_golden.rs"]
mod golden;
