//! The orchestrator's end of one run.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use goondan_cli_agents::CliEvent;
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ipc::{
    Assignment, EnvelopeHeader, IPC_FD_VAR, Ping, Shutdown, ToOrchestrator, ToTask, Welcome,
};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::SandboxPolicy;
use goondan_protocol::task::{
    AgentFormat, CliAgentDefinition, OutputStream, PromptChannel, SecretVariables, TaskAssignment,
    TaskContinue, TaskPause, TaskStarted,
};
use goondan_protocol::version::Version;
use goondan_tests::PATIENCE;
use serde_json::Value;

use crate::support::{BINARY, TestProject, read_log};

/// A run of a shell script, without a sandbox.
pub(super) fn assignment(site: &TestProject, script: &str) -> TaskAssignment {
    let words = ["sh", "-c", script].map(str::to_owned);
    TaskAssignment {
        workspace_id: "w".parse().unwrap(),
        task_id: "t-1".parse().unwrap(),
        run: 1,
        kind: Default::default(),
        agent: CliAgentDefinition {
            name: "coder".parse().unwrap(),
            description: None,
            command: words.to_vec(),
            resume: Vec::new(),
            format: AgentFormat::Plain,
            prompt: PromptChannel::Stdin,
            environment: Default::default(),
            tools: Default::default(),
            preamble: None,
            session_model: None,
            session_mode: None,
            secrets: SecretVariables::default(),
            guide: None,
            limits: ProcessLimits::default(),
            disk_bytes: None,
            source: Default::default(),
            repository: Default::default(),
            deliver: Default::default(),
            setup: Vec::new(),
            verify: Vec::new(),
            fallbacks: Vec::new(),
            account: Default::default(),
            sandbox: SandboxPolicy::off(),
        },
        work_area: site.work.clone(),
        sandbox: None,
        project_root: site.project.clone(),
        egress_socket: None,
        group: None,
        session: None,
        prompt: "Do it.".to_owned(),
        secrets: Default::default(),
    }
}

#[derive(Debug, Default)]
pub(super) struct RunReports {
    pub(super) events: Vec<CliEvent>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) stdout_bytes: usize,
    pub(super) started: Option<TaskStarted>,
    pub(super) not_started: Option<String>,
    pub(super) pongs: Vec<u64>,
    pub(super) signs_of_life: usize,
    /// The exit, and its code.
    pub(super) exited: Option<Option<i32>>,
}

impl RunReports {
    pub(super) fn text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            CliEvent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

pub(super) struct Run {
    pub(super) child: Child,
    pub(super) told: RunReports,
    /// Outputs longer than this are counted, not kept.
    pub(super) kept_bytes: usize,
    socket: UnixStream,
    received: BytesMut,
    log_path: PathBuf,
}

impl Run {
    pub(super) fn start(assignment: &TaskAssignment) -> Self {
        let (own, theirs) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let log_path = assignment.work_area.with_file_name("log.jsonl");
        let mut log = File::options();
        let log = log.create(true).append(true).open(&log_path).unwrap();
        let child = Command::new(BINARY)
            .env(IPC_FD_VAR, "0")
            .env("GOONDAN_SECRET", "do not pass on")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(log)
            .spawn()
            .unwrap();
        let mut run = Self {
            child,
            told: RunReports::default(),
            kept_bytes: 1 << 20,
            socket: own,
            received: BytesMut::new(),
            log_path,
        };
        let hello = run.serve_until("hello", |_, message| {
            matches!(message, ToOrchestrator::Hello(_)).then_some(())
        });
        hello.unwrap();
        run.send(&ToTask::Welcome(Box::new(Welcome {
            version: Version::current(),
            assignment: Assignment::Task(Box::new(assignment.clone())),
        })));
        run
    }

    pub(super) fn send(&mut self, message: &ToTask) {
        let head = EnvelopeHeader::new(Address::Orchestrator, Address::Child);
        let mut wire = BytesMut::new();
        let frame = message.to_frame(&head).unwrap();
        FrameCodec::new().encode(&frame, &mut wire).unwrap();
        match self.socket.write_all(&wire) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
    }

    pub(super) fn pause(&mut self) {
        self.send(&ToTask::Pause(TaskPause {}));
    }

    pub(super) fn go_on(&mut self) {
        self.send(&ToTask::Continue(TaskContinue {}));
    }

    pub(super) fn shut_down(&mut self, grace_period_ms: u64) {
        self.send(&ToTask::Shutdown(Shutdown {
            grace_period_ms,
            reason: "test".to_owned(),
        }));
    }

    /// Pings and waits for the answer.
    pub(super) fn ping(&mut self, nonce: u64) {
        self.send(&ToTask::Ping(Ping { nonce }));
        self.until("a pong", |told| told.pongs.contains(&nonce));
    }

    /// Returns the next message, if one arrives soon; `Err` at the end of the link.
    fn next(&mut self) -> Result<Option<ToOrchestrator>, ()> {
        loop {
            if let Some(frame) = FrameCodec::new().decode(&mut self.received).unwrap() {
                let envelope = Envelope::from_frame(&frame).unwrap();
                return Ok(Some(ToOrchestrator::from_envelope(&envelope).unwrap()));
            }
            let mut chunk = vec![0; 64 << 10];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(()),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(()),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn serve_until<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&mut Self, &ToOrchestrator) -> Option<T>,
    ) -> Option<T> {
        let begun = Instant::now();
        loop {
            assert!(
                begun.elapsed() < PATIENCE,
                "waited in vain: {what}: {:?}",
                self.told
            );
            let message = match self.next() {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(()) => return None,
            };
            self.note(&message);
            if let Some(found) = wanted(self, &message) {
                return Some(found);
            }
        }
    }

    fn note(&mut self, message: &ToOrchestrator) {
        let told = &mut self.told;
        assert!(
            told.exited.is_none(),
            "something follows the exit: {message:?}"
        );
        match message {
            ToOrchestrator::Hello(_) | ToOrchestrator::Confined(_) => {}
            ToOrchestrator::Pong(pong) => told.pongs.push(pong.nonce),
            ToOrchestrator::TaskStarted(started) => told.started = Some(*started),
            ToOrchestrator::TaskNotStarted(it) => told.not_started = Some(it.error.clone()),
            ToOrchestrator::TaskAlive(_) => told.signs_of_life += 1,
            ToOrchestrator::TaskExited(exited) => told.exited = Some(exited.code),
            ToOrchestrator::TaskTold(it) => {
                if told.stdout_bytes <= self.kept_bytes {
                    let read = |raw: &serde_json::value::RawValue| {
                        serde_json::from_str::<CliEvent>(raw.get()).unwrap()
                    };
                    told.events.extend(it.events.iter().map(|raw| read(raw)));
                }
            }
            ToOrchestrator::TaskOutput(output) => match output.stream {
                OutputStream::Stdout => {
                    told.stdout_bytes += output.text.len();
                    if told.stdout_bytes <= self.kept_bytes {
                        told.stdout.push_str(&output.text);
                    }
                }
                OutputStream::Stderr => told.stderr.push_str(&output.text),
            },
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Serves until the reports satisfy a condition.
    pub(super) fn until(&mut self, what: &str, condition: impl Fn(&RunReports) -> bool) {
        if condition(&self.told) {
            return;
        }
        let met = self.serve_until(what, |run, _| condition(&run.told).then_some(()));
        assert!(
            met.is_some(),
            "the run ended before {what}: {:?}",
            self.told
        );
    }

    /// Serves until the process has exited, and returns its reports.
    pub(super) fn finish(mut self) -> RunReports {
        self.serve_until("the end of the link", |_, _| None::<()>);
        let status = crate::support::ended(&mut self.child);
        assert_eq!(status.code(), Some(0), "{:?} {:?}", self.told, self.log());
        self.told
    }

    /// Closes the link, as if the orchestrator had exited.
    pub(super) fn vanish(self) -> Child {
        self.child
    }

    /// The lines logged so far.
    pub(super) fn log(&self) -> Vec<Value> {
        read_log(&self.log_path)
    }
}
