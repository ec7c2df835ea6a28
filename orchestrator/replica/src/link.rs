//! The socket to the daemon, and its handshake.
//!
//! The socket is one end of a socket pair, inherited as stdin. Its input is not trusted: frames are
//! bounded, and an invalid message ends the process.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_clock::timeout;
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::limits::HANDSHAKE_TIMEOUT_MS;
use goondan_protocol::version::Version;
use goondan_replication::wire::{Hello, Welcome, WireFault};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, FramedWrite};

pub(crate) type DaemonFrames = FramedRead<OwnedReadHalf, FrameCodec>;
pub(crate) type DaemonSink = FramedWrite<OwnedWriteHalf, FrameCodec>;

/// Fatal error of the connection to the daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// Stdin is not a socket.
    #[error("stdin is not one end of the orchestrator's socket pair")]
    NotASocket(#[source] std::io::Error),
    /// Invalid frame, or a socket error.
    #[error("failed to read the next frame from the orchestrator")]
    Read(#[source] FrameError),
    /// The socket cannot be written.
    #[error("failed to write a frame to the orchestrator")]
    Write(#[source] FrameError),
    /// The frame is not a valid message.
    #[error("a frame from the orchestrator is not a message that this process knows")]
    NotAMessage(#[source] WireFault),
    /// A message cannot be serialized.
    #[error("failed to write a message to the orchestrator")]
    CannotEncode(#[source] WireFault),
    /// The daemon did not send the server's URL.
    #[error("the orchestrator did not answer the greeting within {HANDSHAKE_TIMEOUT_MS} ms")]
    NoWelcome,
}

/// The socket, before the handshake.
#[derive(Debug)]
pub(crate) struct DaemonSocket {
    incoming: DaemonFrames,
    outgoing: DaemonSink,
}

impl DaemonSocket {
    /// Uses stdin as the socket. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`LinkError::NotASocket`] if stdin is something else.
    pub(crate) fn from_stdin() -> Result<Self, LinkError> {
        let open = || {
            let fd: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
            let socket = std::os::unix::net::UnixStream::from(fd);
            // Fails for anything that is not a connected socket.
            socket.peer_addr()?;
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket)
        };
        let socket = open().map_err(LinkError::NotASocket)?;
        let (reader, writer) = socket.into_split();
        Ok(Self {
            incoming: FramedRead::new(reader, FrameCodec::new()),
            outgoing: FramedWrite::new(writer, FrameCodec::new()),
        })
    }

    /// Sends this program's version and waits for the welcome; `None` if the daemon closed the
    /// socket.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if no valid welcome arrives, or it has another version.
    pub(crate) async fn greet(
        mut self,
    ) -> Result<Option<(Welcome, DaemonFrames, DaemonSink)>, LinkError> {
        let hello = Hello {
            version: Version::current(),
        };
        let frame = hello.to_frame().map_err(LinkError::CannotEncode)?;
        let exchange = async {
            let frame = Bytes::from(frame);
            self.outgoing.send(frame).await.map_err(LinkError::Write)?;
            self.incoming
                .next()
                .await
                .transpose()
                .map_err(LinkError::Read)
        };
        let frame = timeout(Duration::from_millis(HANDSHAKE_TIMEOUT_MS), exchange)
            .await
            .map_err(|_elapsed| LinkError::NoWelcome)??;
        let Some(frame) = frame else {
            return Ok(None);
        };
        let welcome = Welcome::from_frame(&frame).map_err(LinkError::NotAMessage)?;
        Ok(Some((welcome, self.incoming, self.outgoing)))
    }
}
