//! The process of a relayed connector, started and addressed like one of the daemon.

use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use goondan_clock::timeout;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::ipc::{
    Assignment, EnvelopeHeader, IPC_FD_VAR, PASSED_TO_CHILDREN, Ping, Shutdown, ToConnector,
    ToOrchestrator, Welcome,
};
use goondan_protocol::limits::HANDSHAKE_TIMEOUT_MS;
use goondan_protocol::version::Version;
use goondan_protocol::working_directory::{ProcessPurpose, working_directory};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, FramedWrite};

use crate::child_guard::{Group, own_program};
use crate::limits::RELAY_STOP_TIMEOUT_MS;
use crate::relay::wire::{ActivityReader, LastHeard, Queue, WireError, next_frame, write_all};

/// A connector process that has received its assignment.
pub(super) struct Child {
    process: tokio::process::Child,
    /// Kills the connector and every process it started on drop.
    _group: Group,
    incoming: FramedRead<ActivityReader<OwnedReadHalf>, FrameCodec>,
    heard: LastHeard,
    queue: Queue,
    _writing: JoinSet<Result<(), WireError>>,
}

impl Child {
    /// Starts a connector process. It inherits the log output of this process.
    ///
    /// # Errors
    ///
    /// A description of the failure; the text follows "the connector".
    pub(super) async fn start(assignment: &ConnectorAssignment) -> Result<Self, String> {
        let cannot = |error: std::io::Error| format!("cannot be started: {error}");
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(cannot)?;
        let passed_on = PASSED_TO_CHILDREN
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let process = Command::new(own_program().map_err(cannot)?)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .env_clear()
            .envs(passed_on)
            .env(IPC_FD_VAR, "0")
            .current_dir(working_directory(ProcessPurpose::Own))
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        let group = Group::of(&process);
        ours.set_nonblocking(true).map_err(cannot)?;
        let (reader, writer) = UnixStream::from_std(ours).map_err(cannot)?.into_split();
        let (incoming, heard) = ActivityReader::frames(reader);
        let (queue, frames) = Queue::new();
        let outgoing = FramedWrite::new(writer, FrameCodec::new());
        let mut writing = JoinSet::new();
        writing.spawn(write_all(frames, outgoing));
        let mut child = Self {
            process,
            _group: group,
            incoming,
            heard,
            queue,
            _writing: writing,
        };
        let greeting = timeout(
            Duration::from_millis(HANDSHAKE_TIMEOUT_MS),
            child.greet(assignment),
        );
        match greeting.await {
            Ok(Ok(())) => Ok(child),
            Ok(Err(error)) => Err(format!(
                "does not greet: {}",
                goondan_log::error_chain(&error)
            )),
            Err(_elapsed) => Err(format!("did not greet within {HANDSHAKE_TIMEOUT_MS} ms")),
        }
    }

    async fn greet(&mut self, assignment: &ConnectorAssignment) -> Result<(), WireError> {
        let frame = next_frame(&mut self.incoming).await?;
        match ToOrchestrator::from_envelope(&Envelope::from_frame(&frame)?)? {
            // It runs the same binary, so its version is identical.
            ToOrchestrator::Hello(_) => {}
            other => {
                return Err(WireError::OutOfTurn {
                    kind: other.kind().to_owned(),
                    when: "as the first message",
                });
            }
        }
        let welcome = Welcome {
            version: Version::current(),
            assignment: Assignment::Connector(Box::new(assignment.clone())),
        };
        self.tell(&ToConnector::Welcome(Box::new(welcome)))
    }

    fn tell(&self, message: &ToConnector) -> Result<(), WireError> {
        let head = EnvelopeHeader::new(Address::Orchestrator, Address::Child);
        self.put(message.to_frame(&head)?)
    }

    /// Queues a frame.
    ///
    /// # Errors
    ///
    /// [`WireError::NotRead`] if the connector does not read.
    pub(super) fn put(&self, frame: impl Into<Bytes>) -> Result<(), WireError> {
        self.queue.put(frame)
    }

    /// Sends a ping.
    ///
    /// # Errors
    ///
    /// As [`Self::put`].
    pub(super) fn ping(&self) -> Result<(), WireError> {
        self.tell(&ToConnector::Ping(Ping { nonce: 0 }))
    }

    /// Requests a graceful shutdown.
    ///
    /// # Errors
    ///
    /// As [`Self::put`].
    pub(super) fn shut_down(&self) -> Result<(), WireError> {
        self.tell(&ToConnector::Shutdown(Shutdown {
            grace_period_ms: RELAY_STOP_TIMEOUT_MS,
            reason: "the relay is stopping".to_owned(),
        }))
    }

    /// Reads the next frame. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the connector is gone, silent, or does not read.
    pub(super) async fn next(&mut self) -> Result<Bytes, WireError> {
        tokio::select! {
            frame = next_frame(&mut self.incoming) => frame,
            () = self.heard.silence() => Err(WireError::Silent),
        }
    }

    /// Kills the connector if it is still running, and returns its exit status.
    pub(super) async fn end(mut self) -> std::io::Result<ExitStatus> {
        self.process.start_kill().ok();
        self.process.wait().await
    }
}
