//! The socket to the orchestrator: handshake, frames in, frames out.

use std::os::fd::AsFd as _;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt as _};
use goondan_log::{BufferedStdout, error_chain};
use goondan_protocol::definition::AgentAssignment;
use goondan_protocol::envelope::{Address, Envelope, MessageError};
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::ipc::{
    Assignment, ChildRole, EnvelopeHeader, Hello, ToAgent, ToOrchestrator, ToTask,
};
use goondan_protocol::records::AnnouncementMismatch;
use goondan_protocol::task::TaskAssignment;
use goondan_protocol::trace::TraceContext;
use goondan_protocol::version::{Version, VersionMismatch};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, FramedWrite};

use crate::socket::{self, ReadEnd, WriteEnd};

/// Capacity of the queue of outgoing frames. A turn sends fewer frames than this per step and then
/// waits for the orchestrator's acknowledgment. If the queue is full anyway, the process stops
/// reading until the orchestrator reads, and the orchestrator's heartbeat ends a process that is
/// stuck.
const OUTGOING_FRAMES_MAX: usize = 512;

/// Capacity for a task, whose frames are large. Its program's output waits in the program's pipes
/// instead.
const OUTGOING_FRAMES_OF_TASK_MAX: usize = 8;

/// Error after which the link cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The process could not be set up.
    #[error("failed to set up the process")]
    Setup(#[source] std::io::Error),
    /// The orchestrator closed the link before it sent the assignment.
    #[error("the orchestrator closed the link before its welcome")]
    NoWelcome,
    /// The orchestrator has another version.
    #[error(
        "the binaries do not belong together; build or install all of goondan's binaries at once"
    )]
    Version(#[from] VersionMismatch),
    /// The first message is not a welcome for an agent or a task.
    #[error("expected `welcome` for an agent or a task, got {got}")]
    NotWelcomed {
        /// Type of the received message.
        got: String,
    },
    /// The stream of frames broke.
    #[error("the link to the orchestrator broke")]
    Frame(#[from] FrameError),
    /// A frame does not contain a message for an agent.
    #[error("the orchestrator sent a message that is not for an agent")]
    Message(#[from] MessageError),
    /// A message that announces records is followed by another frame.
    #[error("expected a frame of {expected} bytes of records, found another frame")]
    OtherFrame {
        /// Announced bytes of the frame.
        expected: usize,
    },
    /// A frame of records has other contents than announced.
    #[error("the orchestrator sent different records than announced")]
    Records(#[from] AnnouncementMismatch),
}

/// One message of the orchestrator, with the trace it belongs to.
#[derive(Debug)]
pub(crate) struct InboundMessage {
    pub(crate) message: ToAgent,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) in_reply_to: Option<u64>,
}

/// The link, after the handshake.
#[derive(Debug)]
pub(crate) struct OrchestratorLink {
    frames_in: FramedRead<ReadEnd, FrameCodec>,
    frames_out: mpsc::Sender<Bytes>,
    /// The writer task, separate from the loop so that reading continues while the orchestrator
    /// reads slowly.
    writer: JoinSet<Result<(), FrameError>>,
    own: Address,
}

#[derive(Debug)]
pub(crate) enum ProcessAssignment {
    Agent(Box<AgentAssignment>),
    /// One run of the program that works for a task.
    Task(Box<TaskAssignment>),
}

impl ProcessAssignment {
    fn address(&self) -> Address {
        match self {
            Self::Agent(assignment) => Address::Agent {
                name: assignment.agent.name.clone(),
                instance_key: assignment.instance_key.clone(),
            },
            Self::Task(assignment) => Address::Task {
                id: assignment.task_id.clone(),
            },
        }
    }

    fn outgoing_frames_max(&self) -> usize {
        match self {
            Self::Agent(_) => OUTGOING_FRAMES_MAX,
            Self::Task(_) => OUTGOING_FRAMES_OF_TASK_MAX,
        }
    }
}

/// Sends hello on standard input and waits for the welcome. Lines logged to `lines` are written
/// before later messages are sent.
///
/// # Errors
///
/// [`LinkError`] if the handshake fails.
pub(crate) async fn greet(
    lines: BufferedStdout,
) -> Result<(OrchestratorLink, ProcessAssignment), LinkError> {
    let (read, write) = own_end().map_err(LinkError::Setup)?;
    let mut frames_in = FramedRead::new(read, FrameCodec::new());
    let mut frames_out = FramedWrite::new(write, FrameCodec::new());
    let hello = ToOrchestrator::Hello(Hello {
        version: Version::current(),
        role: ChildRole::Agent,
        pid: std::process::id(),
    });
    let head = EnvelopeHeader::new(Address::Child, Address::Orchestrator);
    frames_out.send(Bytes::from(hello.to_frame(&head)?)).await?;

    let frame = frames_in.next().await.ok_or(LinkError::NoWelcome)??;
    let welcome = match ToAgent::from_envelope(&Envelope::from_frame(&frame)?)? {
        ToAgent::Welcome(welcome) => *welcome,
        other => {
            let got = format!("`{}`", other.kind());
            return Err(LinkError::NotWelcomed { got });
        }
    };
    welcome.version.check()?;
    let work = match welcome.assignment {
        Assignment::Agent(assignment) => ProcessAssignment::Agent(assignment),
        Assignment::Task(assignment) => ProcessAssignment::Task(assignment),
        Assignment::Connector(_) | Assignment::Model(_) => {
            let got = "a connector's".to_owned();
            return Err(LinkError::NotWelcomed { got });
        }
    };
    let (sender, queue) = mpsc::channel(work.outgoing_frames_max());
    let mut writer = JoinSet::new();
    writer.spawn(write_all(frames_out, queue, lines));
    let own = work.address();
    let link = OrchestratorLink {
        frames_in,
        frames_out: sender,
        writer,
        own,
    };
    Ok((link, work))
}

/// Sender of a task's messages, independent of receiving.
#[derive(Debug)]
pub(crate) struct MessageSender {
    frames_out: mpsc::Sender<Bytes>,
    own: Address,
}

impl MessageSender {
    /// Waits until a message can be sent without waiting; pending forever if the orchestrator is
    /// gone. Cancel-safe.
    pub(crate) async fn room(&self) -> mpsc::Permit<'_, Bytes> {
        match self.frames_out.reserve().await {
            Ok(permit) => permit,
            // The next receive reports the end.
            Err(_) => std::future::pending().await,
        }
    }

    /// Encodes a message as a frame.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the message cannot be written as JSON.
    pub(crate) fn frame(&self, message: &ToOrchestrator) -> Result<Bytes, LinkError> {
        let head = EnvelopeHeader::new(self.own.clone(), Address::Orchestrator);
        Ok(Bytes::from(message.to_frame(&head)?))
    }
}

fn own_end() -> std::io::Result<(ReadEnd, WriteEnd)> {
    let own_end = std::io::stdin().as_fd().try_clone_to_owned()?;
    socket::split(std::os::unix::net::UnixStream::from(own_end))
}

async fn write_all(
    mut frames_out: FramedWrite<WriteEnd, FrameCodec>,
    mut queue: mpsc::Receiver<Bytes>,
    lines: BufferedStdout,
) -> Result<(), FrameError> {
    while let Some(frame) = queue.recv().await {
        frames_out.feed(frame).await?;
        // Frames that the process sends without waiting are written with the same system call.
        tokio::task::yield_now().await;
        while let Ok(frame) = queue.try_recv() {
            frames_out.feed(frame).await?;
        }
        lines.flush();
        SinkExt::<Bytes>::flush(&mut frames_out).await?;
    }
    Ok(())
}

impl OrchestratorLink {
    /// Receives the next message; `None` if the orchestrator is gone. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the frame or its message is invalid.
    pub(crate) async fn receive(&mut self) -> Result<Option<InboundMessage>, LinkError> {
        let Some(frame) = self.receive_frame().await? else {
            return Ok(None);
        };
        let envelope = Envelope::from_frame(&frame)?;
        Ok(Some(InboundMessage {
            message: ToAgent::from_envelope(&envelope)?,
            trace: envelope.trace,
            in_reply_to: envelope.in_reply_to,
        }))
    }

    /// Receives the next message for the process of a task; `None` if the orchestrator is gone.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the frame or its message is invalid.
    pub(crate) async fn receive_for_task(&mut self) -> Result<Option<ToTask>, LinkError> {
        let Some(frame) = self.receive_frame().await? else {
            return Ok(None);
        };
        Ok(Some(ToTask::from_envelope(&Envelope::from_frame(&frame)?)?))
    }

    /// Creates a sender that works independently of receiving. It must be dropped before
    /// [`OrchestratorLink::close`], which waits for all senders.
    pub(crate) fn outlet(&self) -> MessageSender {
        MessageSender {
            frames_out: self.frames_out.clone(),
            own: self.own.clone(),
        }
    }

    async fn receive_frame(&mut self) -> Result<Option<Bytes>, LinkError> {
        match self.frames_in.next().await {
            None => Ok(None),
            // A killed orchestrator appears as a connection reset.
            Some(Err(FrameError::Io(error))) => {
                tracing::debug!(error = error_chain(&error), "the link was reset");
                Ok(None)
            }
            Some(frame) => Ok(Some(frame?)),
        }
    }

    /// Receives the frame of records that a message announced, directly into `place`, which has the
    /// exact length of the frame. Returns false if the orchestrator is gone. Not cancel-safe,
    /// because nothing else is awaited while a conversation is loaded.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if another frame arrives, or the stream ends within this one.
    pub(crate) async fn receive_into(&mut self, place: &mut [u8]) -> Result<bool, LinkError> {
        let header = FrameCodec::new().header(place.len())?;
        let mut waiting = std::mem::take(self.frames_in.read_buffer_mut());
        let arrived = self.read_frame(&header, &mut waiting, place).await;
        *self.frames_in.read_buffer_mut() = waiting;
        match arrived {
            Err(LinkError::Frame(FrameError::Io(error))) => {
                tracing::debug!(error = error_chain(&error), "the link was reset");
                Ok(false)
            }
            arrived => arrived,
        }
    }

    async fn read_frame(
        &mut self,
        header: &[u8],
        waiting: &mut BytesMut,
        place: &mut [u8],
    ) -> Result<bool, LinkError> {
        let socket = self.frames_in.get_mut();
        while waiting.len() < header.len() {
            if socket.read_buf(waiting).await.map_err(FrameError::Io)? > 0 {
                continue;
            }
            if waiting.is_empty() {
                return Ok(false);
            }
            let got = waiting.len();
            return Err(FrameError::Truncated { got }.into());
        }
        if waiting.split_to(header.len()) != header {
            return Err(LinkError::OtherFrame {
                expected: place.len(),
            });
        }
        let held = waiting.split_to(waiting.len().min(place.len()));
        let (head, mut rest) = place.split_at_mut(held.len());
        head.copy_from_slice(&held);
        let mut got = header.len() + held.len();
        while !rest.is_empty() {
            match socket.read(rest).await.map_err(FrameError::Io)? {
                0 => return Err(FrameError::Truncated { got }.into()),
                read => {
                    got += read;
                    rest = rest.get_mut(read..).unwrap_or_default();
                }
            }
        }
        Ok(true)
    }

    /// Sends a message. If the orchestrator is gone, the message is dropped and the next
    /// [`OrchestratorLink::receive`] reports it.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the message cannot be written as JSON.
    pub(crate) async fn send(
        &self,
        message: &ToOrchestrator,
        trace: Option<TraceContext>,
        request_id: Option<u64>,
    ) -> Result<(), LinkError> {
        let head = EnvelopeHeader {
            id: request_id,
            trace,
            ..EnvelopeHeader::new(self.own.clone(), Address::Orchestrator)
        };
        let frame = Bytes::from(message.to_frame(&head)?);
        drop(self.frames_out.send(frame).await);
        Ok(())
    }

    /// Writes all queued frames and closes the sending side.
    pub(crate) async fn close(mut self) {
        drop(self.frames_out);
        while let Some(written) = self.writer.join_next().await {
            if let Ok(Err(error)) = written {
                tracing::debug!(
                    error = error_chain(&error),
                    "the last frames were not written"
                );
            }
        }
    }
}
