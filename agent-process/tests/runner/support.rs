//! A small orchestrator for one child, and helpers to inspect files and processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use bytes::BytesMut;
use goondan_protocol::JsonObject;
use goondan_protocol::definition::{
    AgentAssignment, AgentDefinition, LoopBreaker, ModelDefinition, ModelProvider, ToolDefinition,
    ToolSource,
};
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ids::TurnId;
use goondan_protocol::ipc::{
    Assignment, ConversationPage, EnvelopeHeader, IPC_FD_VAR, Ping, Shutdown, ToAgent,
    ToOrchestrator, TurnAppended, TurnCommitted, TurnStart, Welcome,
};
use goondan_protocol::message::{Message, MessageEvent};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::script::Script;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use goondan_protocol::version::Version;
use goondan_protocol::working_directory::CwdMode;
use goondan_tests::wait::POLL;
use goondan_tests::{PATIENCE, wait_for};
use serde_json::Value;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_goondan-agent-process");

/// A project and a work directory, deleted at the end of the test.
pub(crate) struct TestProject {
    pub(crate) project: PathBuf,
    pub(crate) work: PathBuf,
    directory: tempfile::TempDir,
}

impl TestProject {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let project = directory.path().join("project");
        let work = directory.path().join("work");
        std::fs::create_dir(&project).unwrap();
        std::fs::create_dir(&work).unwrap();
        Self {
            project,
            work,
            directory,
        }
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    pub(crate) fn assignment(&self, script: Script) -> AgentAssignment {
        AgentAssignment {
            workspace_id: "w".parse().unwrap(),
            instance_key: "key: 1".parse().unwrap(),
            agent: AgentDefinition {
                name: "clerk".parse().unwrap(),
                description: None,
                system_prompt: Some("Be brief.".to_owned()),
                model: ModelDefinition {
                    name: "clerk-model".parse().unwrap(),
                    model: "scripted".to_owned(),
                    provider: ModelProvider::Scripted { script },
                },
                tools: vec![tool("bash"), tool("file-system")],
                extensions: Vec::new(),
                max_steps_per_turn: 16,
                loop_breaker: LoopBreaker::default(),
                cwd_mode: CwdMode::default(),
                limits: ProcessLimits::default(),
                secret_files: Vec::new(),
                sandbox: goondan_protocol::sandbox::SandboxPolicy::off(),
                package_sandboxes: Vec::new(),
                extension_sandbox: None,
                skills: Vec::new(),
                contract: goondan_protocol::base_package::BaseContract::Own,
                swarm: None,
                project_work: None,
            },
            work_dir: self.work.clone(),
            project_root: self.project.clone(),
            egress_socket: None,
            package_sockets: BTreeMap::new(),
            sandbox: None,
            run: None,
            changesets: None,
            task: None,
            node: None,
        }
    }

    /// Waits until a command has written its process id to a file of the work directory.
    pub(crate) fn pid_in(&self, name: &str) -> i32 {
        let path = self.work.join(name);
        wait_for("a pid is written", || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.strip_suffix('\n')?.parse().ok()
        })
    }
}

pub(crate) fn script(yaml: &str) -> Script {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Writes a file that a test needs.
#[expect(
    clippy::disallowed_methods,
    reason = "a test file is not state of goondan"
)]
pub(crate) fn put(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    std::fs::write(path, content).unwrap();
}

/// A built-in tool with its default definition.
pub(crate) fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.parse().unwrap(),
        source: ToolSource::Builtin {
            package: "@goondan/base".to_owned(),
            name: name.parse().unwrap(),
        },
        exports: Vec::new(),
        config: JsonObject::new(),
        connections: Vec::new(),
        approve: Vec::new(),
        error_message_limit: 1_000,
    }
}

/// [`goondan_tests::wait_for`] for an async condition; other tasks of the test continue meanwhile.
pub(crate) async fn wait_for_async<T>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let waiting = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// True if a process exists and is not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let (_, rest) = stat.rsplit_once(')').unwrap();
        !rest.trim_start().starts_with('Z')
    })
}

pub(crate) fn kill(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[derive(Clone, Default)]
pub(crate) struct StoredMessages {
    pub(crate) base: Vec<Message>,
    pub(crate) events: Vec<MessageEvent>,
}

/// The orchestrator's end of one agent process.
pub(crate) struct Orchestrator {
    pub(crate) child: Child,
    pub(crate) stored: StoredMessages,
    pub(crate) observed: Vec<RuntimeEvent>,
    /// Distinguishes the child's end of the socket pair from any other descriptor.
    pub(crate) child_socket_inode: u64,
    socket: UnixStream,
    received: BytesMut,
    log_path: PathBuf,
    messages_per_page: usize,
}

impl Orchestrator {
    /// Starts a process and answers its hello.
    pub(crate) fn start(assignment: &AgentAssignment, stored: StoredMessages) -> Self {
        let mut orchestrator = Self::spawn(assignment, stored);
        let hello = orchestrator.next();
        assert!(
            matches!(hello, Some(ToOrchestrator::Hello(hello)) if hello.version == Version::current())
        );
        orchestrator.welcome(assignment, Version::current());
        orchestrator
    }

    pub(crate) fn spawn(assignment: &AgentAssignment, stored: StoredMessages) -> Self {
        let (own, theirs) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(PATIENCE)).unwrap();
        let child_socket_inode = nix::sys::stat::fstat(&theirs).unwrap().st_ino;
        let log_path = assignment.work_dir.with_file_name("log.jsonl");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .unwrap();
        let child = Command::new(BINARY)
            .env(IPC_FD_VAR, "0")
            .env("GOONDAN_SECRET", "do not pass on")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(log)
            .spawn()
            .unwrap();
        Self {
            child,
            stored,
            observed: Vec::new(),
            child_socket_inode,
            socket: own,
            received: BytesMut::new(),
            log_path,
            messages_per_page: 2,
        }
    }

    pub(crate) fn welcome(&mut self, assignment: &AgentAssignment, version: Version) {
        self.send(&ToAgent::Welcome(Box::new(Welcome {
            version,
            assignment: Assignment::Agent(Box::new(assignment.clone())),
        })));
    }

    pub(crate) fn send(&mut self, message: &ToAgent) {
        let child = Address::Child;
        let head = EnvelopeHeader::new(Address::Orchestrator, child).in_trace(trace());
        let mut wire = BytesMut::new();
        let body = message.to_frame(&head).unwrap();
        let records = message.records_frame().map(|array| &**array);
        for frame in std::iter::once(body.as_slice()).chain(records) {
            FrameCodec::new().encode(frame, &mut wire).unwrap();
        }
        self.send_bytes(&wire);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        match self.socket.write_all(bytes) {
            // The process may exit meanwhile; the next read detects it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
    }

    pub(crate) fn ping(&mut self, nonce: u64) {
        self.send(&ToAgent::Ping(Ping { nonce }));
    }

    pub(crate) fn shut_down(&mut self) {
        self.send(&ToAgent::Shutdown(Shutdown {
            grace_period_ms: 1_000,
            reason: "test".to_owned(),
        }));
    }

    /// Sends a turn. The event's id is derived from its input.
    pub(crate) fn give(&mut self, turn_id: &str, attempt: u32, input: &str) {
        self.send(&ToAgent::Event(Box::new(TurnStart {
            turn_id: turn_id.parse().unwrap(),
            attempt,
            event: AgentEvent {
                id: format!("event of {turn_id}").parse().unwrap(),
                kind: "message".to_owned(),
                created_at: Timestamp::from_unix_millis(0),
                trace_id: None,
                parent_span_id: None,
                input: Some(input.to_owned()),
                header: None,
                properties: JsonObject::new(),
                instance_key: None,
                source: EventSource::Connector {
                    name: "cli".parse().unwrap(),
                },
                auth: None,
                reply_to: None,
                chain: None,
                join: None,
                metadata: JsonObject::new(),
            },
        })));
    }

    /// Returns the next raw message; none at the end.
    pub(crate) fn next(&mut self) -> Option<ToOrchestrator> {
        loop {
            if let Some(frame) = FrameCodec::new().decode(&mut self.received).unwrap() {
                let envelope = Envelope::from_frame(&frame).unwrap();
                let message = ToOrchestrator::from_envelope(&envelope).unwrap();
                let of_turn = matches!(
                    message,
                    ToOrchestrator::TurnAppend(_)
                        | ToOrchestrator::TurnComplete(_)
                        | ToOrchestrator::Observe(_)
                );
                if of_turn {
                    assert_eq!(envelope.trace, Some(trace()));
                }
                return Some(message);
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("nothing came from the agent process: {error}"),
            }
        }
    }

    /// Answers messages until one matches, which is returned unanswered.
    pub(crate) fn serve_until(
        &mut self,
        wanted: impl Fn(&ToOrchestrator) -> bool,
    ) -> ToOrchestrator {
        loop {
            let message = self.next().expect("the agent process is gone");
            if let ToOrchestrator::Observe(event) = &message {
                self.observed.push((**event).clone());
            }
            if wanted(&message) {
                return message;
            }
            self.answer(message);
        }
    }

    fn answer(&mut self, message: ToOrchestrator) {
        match message {
            ToOrchestrator::ConversationLoad(load) => {
                let from = usize::try_from(load.offset).unwrap();
                let (base, all) = (self.stored.base.len(), self.stored.events.len());
                let to = base.min(from + self.messages_per_page);
                // Offsets past the last message address events.
                let from_event = from.saturating_sub(base);
                let to_event = match to {
                    to if to < base => 0,
                    _ => all.min(from_event + self.messages_per_page),
                };
                let next = match to {
                    to if to < base => Some(to),
                    _ => Some(base + to_event).filter(|_| to_event < all),
                };
                let from = from.min(base);
                let page = ConversationPage {
                    messages: raw(&self.stored.base[from..to])
                        .iter()
                        .map(|raw| raw.get())
                        .collect(),
                    events: raw(&self.stored.events[from_event..to_event]),
                    states: Default::default(),
                    next: next.map(|next| u64::try_from(next).unwrap()),
                };
                self.send(&ToAgent::ConversationPage(page));
            }
            ToOrchestrator::TurnAppend(append) => {
                let expected = u64::try_from(self.stored.events.len()).unwrap() + 1;
                assert_eq!(append.seq, expected, "a gap in the numbers");
                let event = serde_json::from_str(append.event.get()).unwrap();
                self.stored.events.push(event);
                self.send(&ToAgent::TurnAppended(TurnAppended {
                    turn_id: append.turn_id,
                    seq: append.seq,
                }));
            }
            ToOrchestrator::Confined(_) | ToOrchestrator::Observe(_) | ToOrchestrator::Pong(_) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Serves the running turn to its end and commits it.
    pub(crate) fn finish_turn(&mut self) -> TurnOutcome {
        let complete = self.serve_until(|m| matches!(m, ToOrchestrator::TurnComplete(_)));
        let ToOrchestrator::TurnComplete(complete) = complete else {
            unreachable!("it was just checked");
        };
        let recorded = u64::try_from(self.stored.events.len()).unwrap();
        assert_eq!(complete.last_seq, recorded);
        for event in self.stored.events.drain(..) {
            match event {
                MessageEvent::Append { message } => self.stored.base.push(message),
                MessageEvent::Remove { target_id } => {
                    self.stored.base.retain(|message| message.id != target_id);
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
        self.commit(complete.turn_id);
        complete.outcome
    }

    fn commit(&mut self, turn_id: TurnId) {
        self.send(&ToAgent::TurnCommitted(TurnCommitted { turn_id }));
    }

    /// Runs a whole turn, which must end with an answer.
    pub(crate) fn ask(&mut self, turn_id: &str, input: &str) -> String {
        self.give(turn_id, 1, input);
        match self.finish_turn() {
            TurnOutcome::Completed { reply } => reply,
            TurnOutcome::Failed { code, message } => panic!("{code}: {message}"),
        }
    }

    /// Serves until a tool has been called.
    pub(crate) fn serve_until_tool_called(&mut self) {
        self.serve_until(|message| {
            matches!(message, ToOrchestrator::Observe(event)
                if event.kind == RuntimeEventKind::ToolCalled)
        });
    }

    /// Closes the link, as if the orchestrator had exited.
    pub(crate) fn vanish(self) -> Child {
        self.child
    }

    pub(crate) fn kinds_observed(&self) -> Vec<&'static str> {
        self.observed
            .iter()
            .map(|event| event.kind.as_str())
            .collect()
    }

    /// The lines logged so far. Every one must be JSON.
    pub(crate) fn log(&self) -> Vec<Value> {
        read_log(&self.log_path)
    }
}

pub(crate) fn read_log(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    wait_for("the process ends", || child.try_wait().unwrap())
}

fn raw<T: serde::Serialize>(records: &[T]) -> Vec<Box<serde_json::value::RawValue>> {
    let to_raw = |record| serde_json::value::to_raw_value(record).unwrap();
    records.iter().map(to_raw).collect()
}

/// The trace of every turn.
pub(crate) fn trace() -> TraceContext {
    TraceContext::root(TraceId::from_random([7; 16]), SpanId::from_random([8; 8]))
}
