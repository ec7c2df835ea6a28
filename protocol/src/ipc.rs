//! The messages between the orchestrator and its children (`IPC-2`).
//!
//! One enum for each direction and kind of child. A child's first message is [`Hello`], the orchestrator's first is
//! [`Welcome`]; both name their exact version. Whoever sees the other end closed is alone: a child
//! exits at once.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::agents::{AgentAnswer, AgentAsk, TurnInput};
use crate::approval::{
    ApprovalClosed, ApprovalPress, ApprovalShow, ApprovalVerdict, ApprovalsFollow,
};
use crate::call::{CallCancel, CallOrder, CallPiece, CallResult, OutgoingCall, TokenVerdict};
use crate::definition::{AgentAssignment, ConnectorAssignment, ModelAssignment};
use crate::envelope::{Address, Envelope, MessageError};
use crate::event::{AgentEvent, ConnectorEvent, TurnOutcome};
use crate::ids::{EventId, ExtensionStates, InstanceKey, TurnId};
use crate::metrics::MetricsSnapshot;
use crate::observe::RuntimeEvent;
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

/// Room for most messages, so that a frame's body need not be moved while it is written.
const FRAME_BYTES_EXPECTED: usize = 1024;

/// The environment variable that names the descriptor of the child's end of the socket pair.
pub const IPC_FD_VAR: &str = "GOONDAN_IPC_FD";

/// The environment variable that sets the least level that a process logs.
pub const LOG_LEVEL_VAR: &str = "GOONDAN_LOG";

/// What a child gets of the environment of whoever starts it. Everything else stays there: it may hold secrets that only
/// some connection is to have.
pub const PASSED_TO_CHILDREN: [&str; 14] = [
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
    // Which certificates are trusted, where an operator says so.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    LOG_LEVEL_VAR,
    ALLOW_DEBUGGER_VAR,
];

/// What the binary of agents is called with to start the modules of an agent's tools once (`BUNDLE-7`). Two numbers
/// follow: how long each may take to load, and how long it has to stay, in milliseconds.
pub const START_MODULES: &str = "--start-modules";

/// What the binary of agents is called with to play recorded turns with another configuration
/// ([`crate::rehearsal`]).
pub const REHEARSE: &str = "--rehearse";

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

            /// The message's type, as the envelope names it.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind,)* }
            }

            /// Reads the payload of an envelope.
            ///
            /// # Errors
            ///
            /// [`MessageError`] if the type is unknown in this direction or the payload does not
            /// fit it.
            pub fn from_envelope(envelope: &Envelope) -> Result<Self, MessageError> {
                let raw = envelope.payload.get();
                match envelope.kind.as_str() {
                    $($kind => serde_json::from_str(raw).map(Self::$variant),)*
                    other => return Err(MessageError::UnknownKind { kind: other.to_owned() }),
                }
                .map_err(|source| MessageError::BadPayload { kind: envelope.kind.clone(), source })
            }

            /// Puts the message in an envelope and writes it as a frame's body.
            ///
            /// # Errors
            ///
            /// [`MessageError::BadPayload`] if the payload cannot be written as JSON.
            pub fn to_frame(&self, head: &Head) -> Result<Vec<u8>, MessageError> {
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

/// The addressing of a message to be sent.
#[derive(Debug, Clone)]
pub struct Head {
    /// Set on a request: its reply names it.
    pub id: Option<u64>,
    /// Set on a reply: the request it answers.
    pub in_reply_to: Option<u64>,
    /// Who sends it.
    pub from: Address,
    /// Who gets it.
    pub to: Address,
    /// Where in a trace it belongs.
    pub trace: Option<TraceContext>,
}

impl Head {
    /// A message that is neither request nor reply, in no trace.
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
        let message = Outgoing {
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

    /// The same, in a trace.
    #[must_use]
    pub fn in_trace(self, trace: TraceContext) -> Self {
        Self {
            trace: Some(trace),
            ..self
        }
    }

    /// The same, as a request.
    #[must_use]
    pub fn asking(self, id: u64) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }

    /// The same, as the reply to a request.
    #[must_use]
    pub fn answering(self, request: Option<u64>) -> Self {
        Self {
            in_reply_to: request,
            ..self
        }
    }
}

/// What is read as an [`Envelope`], written with its payload in one go.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outgoing<'m, P> {
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
    /// What a child says to the orchestrator.
    ToOrchestrator {
        /// The first message: who it is.
        Hello(Hello) = "hello",
        /// The answer to `ping`: the process is not hung.
        Pong(Pong) = "pong",
        /// What the kernel holds the process to from now on.
        Confined(Confined) = "confined",
        /// What a connector is doing, for people to read.
        Status(Status) = "status",
        /// `shutdown` was heard and what was in progress is done; the process exits now.
        ShutdownAck(ShutdownAck) = "shutdown_ack",
        /// A connector hands in an event and waits for `event.accepted` or `event.refused`.
        Event(Box<ConnectorEvent>) = "event",
        /// A connector asks what its connection last kept.
        StateGet(StateGet) = "state.get",
        /// A connector asks that something is kept for its connection.
        StateSet(StateSet) = "state.set",
        /// A connector asks what the agent answered to one of its events; `reply` is the reply.
        ReplyAwait(ReplyAwait) = "reply.await",
        /// A connector does not wait for some of these any more.
        ReplyForget(ReplyForget) = "reply.forget",
        /// A connection that may ask people shows what waits for them from now on.
        ApprovalsFollow(ApprovalsFollow) = "approvals.follow",
        /// Somebody pressed a button to approve or deny a tool call; `approval.verdict` is the reply.
        ApprovalPress(ApprovalPress) = "approval.press",
        /// A connector asks what the daemon counts.
        MetricsGet(MetricsGet) = "metrics.get",
        /// An agent's process cannot start its work, for a reason that another start would meet, too. It ends.
        AgentNotStarted(AgentNotStarted) = "agent.not_started",
        /// An agent asks for the next page of its conversation.
        ConversationLoad(ConversationLoad) = "conversation.load",
        /// A message event of the running turn, to be made durable.
        TurnAppend(TurnAppend) = "turn.append",
        /// The turn is over; commit it.
        TurnComplete(TurnComplete) = "turn.complete",
        /// A tool call asks for something that concerns other agents; `agent.answer` is the reply.
        AgentAsk(Box<AgentAsk>) = "agent.ask",
        /// A connector asks a person something, for a call that it makes; `question.answered` or
        /// `question.refused` is the reply.
        QuestionAsk(Box<QuestionAsk>) = "question.ask",
        /// A connector's question is not to be answered any more.
        QuestionWithdraw(QuestionWithdraw) = "question.withdraw",
        /// Something worth recording happened in the turn.
        Observe(Box<RuntimeEvent>) = "observe",
        /// An agent wants a model or a connection to do something outside.
        Call(Box<OutgoingCall>) = "call",
        /// A part of what comes of a call, from the connector that makes it.
        CallPiece(CallPiece) = "call.piece",
        /// What came of a call, from the connector that made it.
        CallResult(CallResult) = "call.result",
        /// An agent does not wait for a call any more.
        CallCancel(CallCancel) = "call.cancel",
        /// The program of a task runs.
        TaskStarted(TaskStarted) = "task.started",
        /// The program of a task could not be started.
        TaskNotStarted(TaskNotStarted) = "task.not_started",
        /// What the output of a task's program tells.
        TaskTold(TaskTold) = "task.told",
        /// What a task's program wrote, for its log.
        TaskOutput(TaskOutput) = "task.output",
        /// A task's program shows a sign of life.
        TaskAlive(TaskAlive) = "task.alive",
        /// A task's program is gone.
        TaskExited(TaskExited) = "task.exited",
    }
}

messages! {
    /// What the orchestrator says to the process that runs an agent's program for a task.
    ToTask {
        /// The answer to `hello`: what is to be run.
        Welcome(Box<Welcome>) = "welcome",
        /// Are you there?
        Ping(Ping) = "ping",
        /// End the program: ask, and kill after the grace period; then `task.exited`, and exit.
        Shutdown(Shutdown) = "shutdown",
        /// Stop the program with all that belongs to it.
        Pause(TaskPause) = "task.pause",
        /// Let it go on.
        Continue(TaskContinue) = "task.continue",
        /// The answer to a request for a permission.
        Permission(TaskPermission) = "task.permission",
    }
}

messages! {
    /// What the orchestrator says to an agent.
    ToAgent {
        /// The answer to `hello`: the agent's assignment.
        Welcome(Box<Welcome>) = "welcome",
        /// Are you there?
        Ping(Ping) = "ping",
        /// Finish what is in progress, begin nothing new, answer `shutdown_ack`, exit.
        Shutdown(Shutdown) = "shutdown",
        /// The next turn.
        Event(Box<TurnStart>) = "event",
        /// A page of the conversation.
        ConversationPage(ConversationPage) = "conversation.page",
        /// Message events are durable, up to and with a sequence number.
        TurnAppended(TurnAppended) = "turn.appended",
        /// The turn is committed.
        TurnCommitted(TurnCommitted) = "turn.committed",
        /// A part of what comes of a call.
        CallPiece(CallPiece) = "call.piece",
        /// What came of a call.
        CallResult(CallResult) = "call.result",
        /// What came of `agent.ask`.
        AgentAnswer(Box<AgentAnswer>) = "agent.answer",
        /// An answer to a question of the agent, for the next step of the running turn.
        TurnInput(Box<TurnInput>) = "turn.input",
    }
}

impl ToAgent {
    /// The frame that follows the message's own, if one does: records, as one JSON array.
    #[must_use]
    pub fn records_frame(&self) -> Option<&Bytes> {
        match self {
            Self::ConversationPage(page) => page.messages.frame(),
            _ => None,
        }
    }
}

messages! {
    /// What the orchestrator says to the process of a connection or a model.
    ToConnector {
        /// The answer to `hello`: the process's assignment.
        Welcome(Box<Welcome>) = "welcome",
        /// Are you there?
        Ping(Ping) = "ping",
        /// Take nothing new from outside. Calls are made until `shutdown`.
        Quiesce(Quiesce) = "quiesce",
        /// Finish what is in progress, begin nothing new, answer `shutdown_ack`, exit.
        Shutdown(Shutdown) = "shutdown",
        /// An event is durable.
        EventAccepted(EventAccepted) = "event.accepted",
        /// An event was refused.
        EventRefused(EventRefused) = "event.refused",
        /// What the connection last kept.
        State(State) = "state",
        /// What the connection asked to be kept is durable.
        StateKept(StateKept) = "state.kept",
        /// The connection's state could not be read or kept.
        StateRefused(StateRefused) = "state.refused",
        /// What the agent answered to an event of the connection.
        Reply(Box<Reply>) = "reply",
        /// A tool call waits for a person.
        ApprovalShow(Box<ApprovalShow>) = "approval.show",
        /// A tool call that was shown waits no more.
        ApprovalClosed(ApprovalClosed) = "approval.closed",
        /// What came of a button that was pressed.
        ApprovalVerdict(ApprovalVerdict) = "approval.verdict",
        /// What the daemon counts.
        Metrics(Box<MetricsSnapshot>) = "metrics",
        /// A call to be made.
        Call(Box<CallOrder>) = "call",
        /// Nobody waits for this call any more.
        CallCancel(CallCancel) = "call.cancel",
        /// What came of a question to a person.
        QuestionAnswered(Box<QuestionAnswered>) = "question.answered",
        /// A question that nobody will be asked.
        QuestionRefused(QuestionRefused) = "question.refused",
    }
}

/// What the orchestrator says to a child, whatever it is.
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
    /// What every child is told, in the form that a child of this role takes.
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

    /// As [`Self::welcome`], for a shutdown.
    #[must_use]
    pub fn shutdown(role: ChildRole, shutdown: Shutdown) -> Self {
        match role {
            ChildRole::Agent => ToAgent::Shutdown(shutdown).into(),
            ChildRole::Connector | ChildRole::Model => ToConnector::Shutdown(shutdown).into(),
            ChildRole::Task => ToTask::Shutdown(shutdown).into(),
        }
    }

    /// As [`Self::welcome`], for a ping.
    #[must_use]
    pub fn ping(role: ChildRole, ping: Ping) -> Self {
        match role {
            ChildRole::Agent => ToAgent::Ping(ping).into(),
            ChildRole::Connector | ChildRole::Model => ToConnector::Ping(ping).into(),
            ChildRole::Task => ToTask::Ping(ping).into(),
        }
    }

    /// The message's type, as the envelope names it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Agent(message) => message.kind(),
            Self::Connector(message) => message.kind(),
            Self::Task(message) => message.kind(),
        }
    }

    /// Whether the child is to end.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        matches!(
            self,
            Self::Agent(ToAgent::Shutdown(_))
                | Self::Connector(ToConnector::Shutdown(_))
                | Self::Task(ToTask::Shutdown(_))
        )
    }

    /// Puts the message in an envelope and writes it as a frame's body.
    ///
    /// # Errors
    ///
    /// [`MessageError::BadPayload`] if the payload cannot be written as JSON.
    pub fn to_frame(&self, head: &Head) -> Result<Vec<u8>, MessageError> {
        match self {
            Self::Agent(message) => message.to_frame(head),
            Self::Connector(message) => message.to_frame(head),
            Self::Task(message) => message.to_frame(head),
        }
    }

    /// The frame that follows the message's own, if one does: records, as one JSON array.
    #[must_use]
    pub fn records_frame(&self) -> Option<&Bytes> {
        match self {
            Self::Agent(message) => message.records_frame(),
            Self::Connector(_) | Self::Task(_) => None,
        }
    }
}

/// What kind of child a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildRole {
    /// An AgentProcess.
    Agent,
    /// A ConnectorProcess that stands for a connection.
    Connector,
    /// A ConnectorProcess that stands for a model. It greets as a connector: what it is to be it
    /// learns from its welcome.
    Model,
    /// An AgentProcess that runs an agent's program for a task. It greets as an agent: what it is to be it
    /// learns from its welcome.
    Task,
}

impl ChildRole {
    /// The role as it is written.
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
    /// What it is.
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
    /// What the child is to do.
    pub assignment: Assignment,
}

/// What a child is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", content = "definition", rename_all = "lowercase")]
pub enum Assignment {
    /// Be this agent.
    Agent(Box<AgentAssignment>),
    /// Be this connector.
    Connector(Box<ConnectorAssignment>),
    /// Be the connector of this model.
    Model(Box<ModelAssignment>),
    /// Run this agent's program for this task.
    Task(Box<TaskAssignment>),
}

/// `ping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ping {
    /// To be returned in `pong`.
    pub nonce: u64,
}

/// `pong`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    /// The nonce of the `ping`.
    pub nonce: u64,
}

/// `confined`: what a process has confined itself to, once it knew what it is (`SEC-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Confined {
    /// What the kernel holds of it.
    pub rights: Facts,
    /// Why it is not all that a process of its kind holds itself to; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// `status`: a connector's state, for people to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whether it does its work.
    pub ready: bool,
    /// What it does, such as `listening on 127.0.0.1:8080`, or why it cannot.
    pub detail: String,
    /// What the other side says of the token that it comes with, if it does no work for that.
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
    /// How long the orchestrator waits before it kills, in milliseconds.
    pub grace_period_ms: u64,
    /// Why, for the log: `restart`, `configuration changed`, `daemon shutdown` …
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
    /// Which try this is, from 1.
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
    /// Whether it had been accepted before; then nothing more happens.
    pub duplicate: bool,
    /// The conversation it belongs to; absent if it belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
}

/// Why an event was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalCode {
    /// The event itself is at fault: too large, or not well formed. Sending it again is no use.
    Invalid,
    /// No ingress rule takes it, or it names an agent or key that cannot be.
    Unroutable,
    /// The instance has too many events waiting.
    Overloaded,
    /// The daemon is stopping, or the store cannot write. Send it again later.
    Unavailable,
    /// Files of the conversation or its workspace are lost or damaged. Sending it again is no use until
    /// a person has mended them; the daemon's log names them.
    Damaged,
}

/// `event.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRefused {
    /// Why.
    pub code: RefusalCode,
    /// What failed, for people to read.
    pub message: String,
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
    /// What is to be kept, in place of what was: any JSON, of at most
    /// [`crate::limits::MAX_CONNECTION_STATE_BYTES`].
    pub state: Box<RawValue>,
}

/// `state`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// What was last kept; none if nothing ever was.
    pub state: Option<Box<RawValue>>,
}

/// `state.kept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKept {}

/// `state.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateRefused {
    /// What failed, for people to read.
    pub message: String,
}

/// `agent.not_started`: the agent's process cannot start its work, and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNotStarted {
    /// Why, for people to read.
    pub error: String,
}

/// `conversation.load`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationLoad {
    /// Where the page begins: 0, then what the page before said in `next`.
    pub offset: u64,
}

/// `conversation.page`: confirmed messages, and behind the last of them the open turn's events.
///
/// If there are messages, the next frame holds them: one JSON array and no envelope.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationPage {
    /// Confirmed messages ([`crate::message::Message`]), raw. Here stand their lengths in bytes.
    #[serde(rename = "messageBytes")]
    pub messages: Records,
    /// Events of the open turn ([`crate::message::MessageEvent`]), raw; behind the last message only,
    /// on further pages if they are many.
    pub events: Vec<Box<RawValue>>,
    /// What the agent's extensions remember, on the first page only (`EXT-2`).
    #[serde(default, skip_serializing_if = "ExtensionStates::is_empty")]
    pub states: ExtensionStates,
    /// Where the next page begins; none on the last page.
    pub next: Option<u64>,
}

/// `turn.append`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnAppend {
    /// The running turn.
    pub turn_id: TurnId,
    /// The event's number within its turn, from 1, without gaps.
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
    /// Every event up to and with this number is durable.
    pub seq: u64,
}

/// `turn.complete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnComplete {
    /// The running turn.
    pub turn_id: TurnId,
    /// The number of its last event; 0 if it has none. The orchestrator checks that it has them all.
    pub last_seq: u64,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// Other events it took in on the way, by `turn.input`: they are over with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<EventId>,
    /// What extensions remember from now on, of those that changed it (`EXT-2`).
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
