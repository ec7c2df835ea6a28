//! The socket to the orchestrator, and its handshake (`IPC-1`).
//!
//! The socket is one end of a socket pair, inherited as stdin. Input is not trusted: frames are
//! bounded, and an invalid message ends this process, not the orchestrator.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_clock::timeout;
use goondan_protocol::JsonObject;
use goondan_protocol::definition::{ConnectorAssignment, ModelAssignment};
use goondan_protocol::envelope::{Address, Envelope, MessageError};
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::ipc::{
    Assignment, ChildRole, EnvelopeHeader, Hello, ToConnector, ToOrchestrator,
};
use goondan_protocol::limits::HANDSHAKE_TIMEOUT_MS;
use goondan_protocol::version::{Version, VersionMismatch};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, FramedWrite};

pub(crate) type OrchestratorFrames = FramedRead<OwnedReadHalf, FrameCodec>;
pub(crate) type OrchestratorSink = FramedWrite<OwnedWriteHalf, FrameCodec>;

/// Error that ends the communication with the orchestrator. This process cannot recover from any
/// such error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The inherited descriptor is not a socket.
    #[error("stdin is not one end of the orchestrator's socket pair")]
    NotASocket(#[source] std::io::Error),
    #[error("the orchestrator closed the socket")]
    Closed,
    /// The received bytes are not a frame, or the socket failed.
    #[error("failed to read the next frame from the orchestrator")]
    Read(#[source] FrameError),
    /// Writing to the socket failed.
    #[error("failed to write a frame to the orchestrator")]
    Write(#[source] FrameError),
    /// A frame does not contain a message for a child.
    #[error("a frame from the orchestrator is not a message that this process knows")]
    NotAMessage(#[source] MessageError),
    /// A message cannot be encoded as a frame.
    #[error("failed to write a message to the orchestrator as JSON")]
    CannotEncode(#[source] MessageError),
    /// A message arrived at a point where it is invalid.
    #[error("the orchestrator sent `{kind}`, which no connector expects {when}")]
    OutOfTurn {
        kind: &'static str,
        /// The current activity of this process.
        when: &'static str,
    },
    /// The orchestrator does not send an assignment.
    #[error("the orchestrator did not answer `hello` within {HANDSHAKE_TIMEOUT_MS} ms")]
    NoWelcome,
    /// The two binaries are from different builds.
    #[error("install goondan-orchestrator and goondan-connector-process of the same version")]
    OtherVersion(#[source] VersionMismatch),
    /// The orchestrator sent an agent's assignment.
    #[error("the orchestrator sent the assignment of an agent to a connector process")]
    NotAConnector,
    /// The orchestrator sends pings but does not read the answers.
    #[error("the orchestrator does not read: {waiting} frames wait for it")]
    NotRead { waiting: usize },
}

#[derive(Debug)]
pub(crate) enum ConnectorRole {
    Connection(ConnectorAssignment),
    Model(ModelAssignment),
}

impl ConnectorRole {
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Connection(assignment) => Address::Connector {
                name: assignment.connection.clone(),
            },
            Self::Model(assignment) => Address::Model {
                name: assignment.model.name.clone(),
            },
        }
    }
}

/// The socket, before the handshake.
#[derive(Debug)]
pub(crate) struct OrchestratorSocket {
    incoming: OrchestratorFrames,
    outgoing: OrchestratorSink,
}

impl OrchestratorSocket {
    /// Uses stdin as the socket. Requires a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`LinkError::NotASocket`] if stdin is something else.
    pub(crate) fn from_stdin() -> Result<Self, LinkError> {
        let open = || {
            let fd: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
            let socket = std::os::unix::net::UnixStream::from(fd);
            // Querying the peer fails unless it is a connected socket.
            socket.peer_addr()?;
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket)
        };
        open().map(Self::over).map_err(LinkError::NotASocket)
    }

    fn over(socket: UnixStream) -> Self {
        let (reader, writer) = socket.into_split();
        Self {
            incoming: FramedRead::new(reader, FrameCodec::new()),
            outgoing: FramedWrite::new(writer, FrameCodec::new()),
        }
    }

    /// Sends `hello` and waits for the `welcome` that assigns a role.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if no valid welcome arrives, or the version differs.
    pub(crate) async fn shake_hands(
        mut self,
        pid: u32,
    ) -> Result<(ConnectorRole, OrchestratorFrames, OrchestratorSink), LinkError> {
        let hello = ToOrchestrator::Hello(Hello {
            version: Version::current(),
            role: ChildRole::Connector,
            pid,
        });
        let frame = hello
            .to_frame(&EnvelopeHeader::new(Address::Child, Address::Orchestrator))
            .map_err(LinkError::CannotEncode)?;
        let exchange = async {
            self.outgoing
                .send(Bytes::from(frame))
                .await
                .map_err(LinkError::Write)?;
            next_frame(&mut self.incoming).await
        };
        let frame = timeout(Duration::from_millis(HANDSHAKE_TIMEOUT_MS), exchange)
            .await
            .map_err(|_elapsed| LinkError::NoWelcome)??;
        let assignment = assignment_of(&frame)?;
        Ok((assignment, self.incoming, self.outgoing))
    }
}

/// Reads the next frame. Cancel-safe: a partial frame stays in the buffer.
///
/// # Errors
///
/// [`LinkError::Closed`] at the end of the stream, [`LinkError::Read`] if reading fails.
pub(crate) async fn next_frame(incoming: &mut OrchestratorFrames) -> Result<Bytes, LinkError> {
    match incoming.next().await {
        Some(Ok(frame)) => Ok(frame),
        Some(Err(error)) => Err(LinkError::Read(error)),
        None => Err(LinkError::Closed),
    }
}

/// Parses the orchestrator's first frame.
fn assignment_of(frame: &[u8]) -> Result<ConnectorRole, LinkError> {
    let envelope = Envelope::from_frame(frame).map_err(LinkError::NotAMessage)?;
    // The version is checked first, because messages of another version may be unreadable.
    if let Some(version) = version_of(&envelope) {
        version.check().map_err(LinkError::OtherVersion)?;
    }
    match ToConnector::from_envelope(&envelope).map_err(LinkError::NotAMessage)? {
        ToConnector::Welcome(welcome) => match welcome.assignment {
            Assignment::Connector(assignment) => Ok(ConnectorRole::Connection(*assignment)),
            Assignment::Model(assignment) => Ok(ConnectorRole::Model(*assignment)),
            Assignment::Agent(_) | Assignment::Task(_) => Err(LinkError::NotAConnector),
        },
        other => Err(LinkError::OutOfTurn {
            kind: other.kind(),
            when: "as the first message",
        }),
    }
}

/// The version in an envelope's payload, if any.
fn version_of(envelope: &Envelope) -> Option<Version> {
    let mut payload: JsonObject = serde_json::from_str(envelope.payload.get()).ok()?;
    serde_json::from_value(payload.remove("version")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome(version: &str) -> String {
        format!(
            r#"{{"type":"welcome","from":"orchestrator","to":"child","payload":{{"version":{version},"assignment":{{"role":"connector","definition":{{"workspaceId":"w","connection":"hook","connector":"webhook"}}}}}}}}"#
        )
    }

    #[test]
    fn only_a_welcome_of_this_very_version_counts() {
        let ours = serde_json::to_string(&Version::current()).unwrap();
        let assignment = assignment_of(welcome(&ours).as_bytes()).unwrap();
        assert_eq!(assignment.address().to_string(), "connector:hook");

        let theirs = r#"{"protocol":3,"goondan":"0.0.0-other"}"#;
        let error = assignment_of(welcome(theirs).as_bytes()).unwrap_err();
        assert!(matches!(error, LinkError::OtherVersion(_)), "{error}");

        let unreadable = r#"{"type":"welcome","from":"orchestrator","to":"child","payload":{"version":{"protocol":3,"goondan":"9.0.0"},"job":1}}"#;
        let error = assignment_of(unreadable.as_bytes()).unwrap_err();
        assert!(matches!(error, LinkError::OtherVersion(_)), "{error}");

        let ping = r#"{"type":"ping","from":"orchestrator","to":"child","payload":{"nonce":1}}"#;
        let error = assignment_of(ping.as_bytes()).unwrap_err();
        assert!(
            matches!(error, LinkError::OutOfTurn { kind: "ping", .. }),
            "{error}"
        );
        assert!(matches!(
            assignment_of(b"{}"),
            Err(LinkError::NotAMessage(_))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn an_orchestrator_that_stays_silent_or_goes_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let error = OrchestratorSocket::over(ours)
            .shake_hands(1)
            .await
            .unwrap_err();
        assert!(matches!(error, LinkError::NoWelcome), "{error}");
        drop(theirs);

        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = OrchestratorSocket::over(ours)
            .shake_hands(1)
            .await
            .unwrap_err();
        assert!(
            matches!(error, LinkError::Closed | LinkError::Write(_)),
            "{error}"
        );
    }
}
