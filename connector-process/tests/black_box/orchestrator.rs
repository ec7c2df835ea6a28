//! The orchestrator's side of the socket pair, blocking and simple.
//!
//! Frames are encoded and decoded by hand here, so that a bug in the shared codec cannot go
//! unnoticed.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use goondan_protocol::call::{CallCancel, CallId, CallOrder};
use goondan_protocol::definition::{ConnectorAssignment, ModelAssignment};
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::EventId;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::{
    Assignment, EnvelopeHeader, EventAccepted, EventRefused, Hello, IPC_FD_VAR, Ping, RefusalCode,
    Shutdown, State, StateKept, Status, ToConnector, ToOrchestrator, Welcome,
};
use goondan_protocol::reply::{Reply, ReplyAwait};
use goondan_protocol::trace::TraceContext;
use goondan_protocol::version::Version;
use goondan_tests::wait_for;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::http::Client;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_goondan-connector-process");

pub(crate) struct Orchestrator {
    child: Child,
    socket: UnixStream,
    log: Receiver<String>,
    /// The statuses read so far, for the panic of a test that waits in vain.
    statuses: Vec<String>,
}

/// An event that waits for its verdict.
pub(crate) struct PendingEvent {
    /// The id of the request.
    pub(crate) request: u64,
    /// The envelope it came in.
    pub(crate) envelope: Envelope,
    pub(crate) event: ConnectorEvent,
}

impl Orchestrator {
    /// Starts the binary, which sends `hello` next.
    pub(crate) fn start() -> Self {
        Self::start_in(&[])
    }

    /// Starts the binary with these variables in addition to the test's own.
    pub(crate) fn start_in(variables: &[(&str, &Path)]) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let mut child = Command::new(BINARY)
            .env(IPC_FD_VAR, "0")
            .env("GOONDAN_LOG", "debug")
            // Tests must not depend on this machine's trust store.
            .env_remove("SSL_CERT_DIR")
            .envs(variables.iter().copied())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            socket,
            log,
            statuses: Vec::new(),
        }
    }

    /// Starts the binary as the connector of this name.
    pub(crate) fn start_as(connector: &str, config: &Value, secrets: &Value) -> Self {
        let mut orchestrator = Self::start();
        let hello = orchestrator.hello();
        assert_eq!(hello.version, Version::current());
        orchestrator.welcome(connector, config, secrets);
        orchestrator
    }

    /// Starts the binary as a program of the project.
    pub(crate) fn start_program(project: &Path, entry: &str, config: &Value) -> Self {
        Self::start_confined(project, entry, config, &json!({"require": "off"}))
    }

    /// Starts the binary as a program of the project, in a sandbox.
    pub(crate) fn start_confined(
        project: &Path,
        entry: &str,
        config: &Value,
        sandbox: &Value,
    ) -> Self {
        let mut orchestrator = Self::start();
        orchestrator.hello();
        orchestrator.welcome_as(&json!({
            "workspaceId": "w", "connection": "own", "connector": "own",
            "program": {"projectRoot": project, "entry": entry},
            "config": config, "secrets": {"token": "hunter2"}, "sandbox": sandbox,
        }));
        orchestrator
    }

    /// Starts a webhook and waits until it listens.
    pub(crate) fn with_webhook(config: &Value, secrets: &Value) -> (Self, SocketAddr) {
        let mut orchestrator = Self::start_as("webhook", config, secrets);
        let status = orchestrator.status();
        let address = listening_address(&status);
        (orchestrator, address)
    }

    /// Sends raw bytes.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    fn send(&mut self, message: &ToConnector, in_reply_to: Option<u64>) {
        self.try_send(message, in_reply_to).unwrap();
    }

    fn try_send(&mut self, message: &ToConnector, in_reply_to: Option<u64>) -> std::io::Result<()> {
        let head =
            EnvelopeHeader::new(Address::Orchestrator, Address::Child).answering(in_reply_to);
        self.try_send_with(&head, message)
    }

    fn try_send_with(
        &mut self,
        head: &EnvelopeHeader,
        message: &ToConnector,
    ) -> std::io::Result<()> {
        let body = message.to_frame(head).unwrap();
        let len = u32::try_from(body.len()).unwrap();
        let frame = [&len.to_be_bytes()[..], &body].concat();
        self.socket.write_all(&frame)
    }

    /// The next message from the child, ignoring reports about its confinement.
    pub(crate) fn receive(&mut self) -> (Envelope, ToOrchestrator) {
        loop {
            let received = self.receive_any();
            if !matches!(received.1, ToOrchestrator::Confined(_)) {
                return received;
            }
        }
    }

    fn receive_any(&mut self) -> (Envelope, ToOrchestrator) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut header = [0; 4];
        let read = self.socket.read_exact(&mut header);
        read.unwrap_or_else(|error| panic!("no message: {error}; statuses: {:#?}", self.statuses));
        let mut body = vec![0; usize::try_from(u32::from_be_bytes(header)).unwrap()];
        self.socket.read_exact(&mut body).unwrap();
        let envelope = Envelope::from_frame(&body).unwrap();
        let message = ToOrchestrator::from_envelope(&envelope).unwrap();
        (envelope, message)
    }

    pub(crate) fn hello(&mut self) -> Hello {
        match self.receive().1 {
            ToOrchestrator::Hello(hello) => hello,
            other => panic!("expected hello, got {other:?}"),
        }
    }

    pub(crate) fn welcome(&mut self, connector: &str, config: &Value, secrets: &Value) {
        self.welcome_as(&json!({
            "workspaceId": "w", "connection": "hook", "connector": connector,
            "config": config, "secrets": secrets,
        }));
    }

    fn welcome_as(&mut self, definition: &Value) {
        let assignment: ConnectorAssignment = serde_json::from_value(definition.clone()).unwrap();
        let welcome = Welcome {
            version: Version::current(),
            assignment: Assignment::Connector(Box::new(assignment)),
        };
        self.send(&ToConnector::Welcome(Box::new(welcome)), None);
    }

    /// Starts the binary as the connector of a model.
    pub(crate) fn start_as_model(model: &Value) -> Self {
        let mut orchestrator = Self::start();
        assert_eq!(orchestrator.hello().version, Version::current());
        orchestrator.welcome_model(model);
        orchestrator
    }

    /// Assigns this model to a process that has sent hello.
    pub(crate) fn welcome_model(&mut self, model: &Value) {
        let definition = json!({"workspaceId": "w", "model": model});
        let assignment: ModelAssignment = serde_json::from_value(definition).unwrap();
        let welcome = Welcome {
            version: Version::current(),
            assignment: Assignment::Model(Box::new(assignment)),
        };
        self.send(&ToConnector::Welcome(Box::new(welcome)), None);
    }

    pub(crate) fn call(&mut self, call: CallOrder) {
        self.call_in(None, call);
    }

    /// Starts a call that belongs to a trace.
    pub(crate) fn call_in(&mut self, trace: Option<TraceContext>, call: CallOrder) {
        let head = EnvelopeHeader::new(Address::Orchestrator, Address::Child);
        let head = EnvelopeHeader { trace, ..head };
        self.try_send_with(&head, &ToConnector::Call(Box::new(call)))
            .unwrap();
    }

    pub(crate) fn cancel(&mut self, call_id: CallId) {
        self.send(&ToConnector::CallCancel(CallCancel { call_id }), None);
    }

    pub(crate) fn status(&mut self) -> Status {
        match self.receive().1 {
            ToOrchestrator::Status(status) => status,
            other => panic!("expected a status, got {other:?}"),
        }
    }

    /// The next status that contains this text; ignores other messages and accepts events.
    pub(crate) fn status_saying(&mut self, said: &str) -> Status {
        loop {
            match self.receive() {
                (_, ToOrchestrator::Status(status)) if status.detail.contains(said) => {
                    return status;
                }
                (_, ToOrchestrator::Status(status)) => self.statuses.push(status.detail),
                (envelope, ToOrchestrator::Event(event)) => {
                    let request = envelope.id.unwrap();
                    let id = event.id.clone().unwrap();
                    let pending = PendingEvent {
                        request,
                        envelope,
                        event: *event,
                    };
                    self.accept(&pending, id.as_str(), false);
                }
                (_, other) => panic!("expected a status or an event, got {other:?}"),
            }
        }
    }

    /// The next event, ignoring statuses.
    pub(crate) fn next_event(&mut self) -> PendingEvent {
        loop {
            let (envelope, message) = self.receive();
            match message {
                ToOrchestrator::Event(event) => {
                    return PendingEvent {
                        request: envelope.id.expect("an event is a request"),
                        envelope,
                        event: *event,
                    };
                }
                ToOrchestrator::Status(_) => {}
                other => panic!("expected an event, got {other:?}"),
            }
        }
    }

    /// The next message, which must count something that was passed over.
    pub(crate) fn ignored(&mut self) -> IgnoreReason {
        match self.receive().1 {
            ToOrchestrator::EventIgnored(ignored) => ignored.reason,
            other => panic!("expected an ignored event, got {other:?}"),
        }
    }

    /// Answers the next message, which must request the stored state.
    pub(crate) fn give_state(&mut self, state: Option<Box<RawValue>>) {
        let (envelope, message) = self.receive();
        assert!(
            matches!(message, ToOrchestrator::StateGet(_)),
            "{message:?}"
        );
        self.send(&ToConnector::State(State { state }), envelope.id);
    }

    /// Confirms that a state is stored.
    pub(crate) fn keep_state(&mut self, request: u64) {
        self.send(&ToConnector::StateKept(StateKept {}), Some(request));
    }

    /// The next message, which must be an event.
    pub(crate) fn event(&mut self) -> PendingEvent {
        self.event_or_pong().expect("an event and no pong")
    }

    /// Confirms that an event is durable.
    pub(crate) fn accept(&mut self, pending: &PendingEvent, event_id: &str, duplicate: bool) {
        let accepted = EventAccepted {
            event_id: EventId::new(event_id).unwrap(),
            duplicate,
            instance_key: Some("hook:k".parse().unwrap()),
        };
        self.send(&ToConnector::EventAccepted(accepted), Some(pending.request));
    }

    /// The next message, which must request a reply: the request id and its parameters.
    pub(crate) fn reply_await(&mut self) -> (u64, ReplyAwait) {
        let (envelope, message) = self.receive();
        match message {
            ToOrchestrator::ReplyAwait(asked) => (envelope.id.expect("it is a request"), asked),
            other => panic!("expected a request for a reply, got {other:?}"),
        }
    }

    /// The next message, which must withdraw reply requests.
    pub(crate) fn reply_forget(&mut self) -> Vec<u64> {
        match self.receive().1 {
            ToOrchestrator::ReplyForget(forget) => forget.request_ids,
            other => panic!("expected to be told of replies to forget, got {other:?}"),
        }
    }

    /// Sends a reply about an event.
    pub(crate) fn reply(&mut self, request: u64, reply: Reply) {
        self.send(&ToConnector::Reply(Box::new(reply)), Some(request));
    }

    pub(crate) fn refuse(&mut self, pending: &PendingEvent, code: RefusalCode) {
        let refused = EventRefused::new(code, "because of the test");
        self.send(&ToConnector::EventRefused(refused), Some(pending.request));
    }

    pub(crate) fn send_ping(&mut self) {
        self.try_send_ping().unwrap();
    }

    pub(crate) fn try_send_ping(&mut self) -> std::io::Result<()> {
        self.try_send(&ToConnector::Ping(Ping { nonce: 4711 }), None)
    }

    /// A round trip over the socket. The answer must be the next message, which proves that the
    /// child sent nothing else.
    pub(crate) fn ping(&mut self) {
        self.send_ping();
        let other = self.event_or_pong().map(|pending| pending.event);
        assert_eq!(other, None, "this came before the pong");
    }

    /// The next message: an event, or `None` if it is a pong.
    pub(crate) fn event_or_pong(&mut self) -> Option<PendingEvent> {
        let (envelope, message) = self.receive();
        match message {
            ToOrchestrator::Event(event) => Some(PendingEvent {
                request: envelope.id.expect("an event is a request"),
                envelope,
                event: *event,
            }),
            ToOrchestrator::Pong(pong) => {
                assert_eq!(pong.nonce, 4711);
                None
            }
            other => panic!("expected an event or a pong, got {other:?}"),
        }
    }

    /// Waits until the child has started to write, and leaves the rest unread.
    pub(crate) fn expect_bytes(&mut self) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        self.socket.read_exact(&mut [0; 1]).unwrap();
    }

    pub(crate) fn shutdown(&mut self) {
        let shutdown = Shutdown {
            grace_period_ms: 60_000,
            reason: "the test is over".into(),
        };
        self.send(&ToConnector::Shutdown(shutdown), None);
    }

    /// The next message must be `shutdown_ack`, followed by a successful exit.
    pub(crate) fn expect_graceful_end(mut self) {
        match self.receive().1 {
            ToOrchestrator::ShutdownAck(_) => {}
            other => panic!("expected shutdown_ack, got {other:?}"),
        }
        assert_eq!(self.exit().code(), Some(0));
    }

    /// Closes the socket, as a killed orchestrator does.
    pub(crate) fn hang_up(&self) {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Waits for the process to end.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        wait_for("the process to end", || self.child.try_wait().unwrap())
    }

    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// The next log line with that message.
    pub(crate) fn log_line(&self, message: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            match self
                .log
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    let line: Value = serde_json::from_str(&line).expect("a log line is JSON");
                    if line["message"] == message {
                        return line;
                    }
                }
                Err(error) => panic!("no log line `{message}`: {error}"),
            }
        }
    }

    /// The rest of the ended process's log.
    pub(crate) fn rest_of_log(&mut self) -> String {
        self.exit();
        let mut lines = Vec::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines.join("\n"),
                Err(RecvTimeoutError::Timeout) => panic!("stdout stays open after the end"),
            }
        }
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The address in `listening on http://ADDRESS/path`.
pub(crate) fn listening_address(status: &Status) -> SocketAddr {
    assert!(status.ready, "{}", status.detail);
    let url = status.detail.strip_prefix("listening on http://").unwrap();
    let (address, _path) = url.split_once('/').unwrap();
    let address = address.parse().unwrap();
    // Fails if the status was sent too early.
    drop(Client::connect(address));
    address
}

/// True if an error means that the other side closed or reset the connection.
pub(crate) fn is_closed(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
