//! Greeting between the sides of a relay, modeled on a child and its orchestrator (`IPC-1`).
//!
//! The far side sends `hello` with its version. The near side answers with `welcome`, which names
//! the expected workspace, connection and connector without settings or secrets, or with `shutdown`
//! and the reason for the rejection.

use goondan_protocol::JsonObject;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::ipc::{
    Assignment, ChildRole, EnvelopeHeader, Hello, Shutdown, ToConnector, ToOrchestrator, Welcome,
};
use goondan_protocol::version::{Version, VersionMismatch};

use super::wire::{Wire, WireError, next_frame, write_frame};

/// Reason for a failed greeting.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetingError {
    /// The link broke, or the peer violated the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The two sides are from different builds.
    #[error("both sides must have the same version")]
    OtherVersion(#[from] VersionMismatch),
    /// The near side rejects this far side at the moment.
    #[error("rejected by the relay: {0}")]
    Declined(String),
}

/// Reads the first frame of the far side.
///
/// # Errors
///
/// [`GreetingError`] unless it is the greeting of a connector of this version.
pub(super) async fn hear_hello(wire: &mut Wire) -> Result<(), GreetingError> {
    let frame = next_frame(&mut wire.incoming).await?;
    let envelope = Envelope::from_frame(&frame).map_err(WireError::NotAMessage)?;
    // The version is checked first, because messages of another version may be unreadable.
    check_version(&envelope)?;
    match ToOrchestrator::from_envelope(&envelope).map_err(WireError::NotAMessage)? {
        ToOrchestrator::Hello(hello) if hello.role == ChildRole::Connector => Ok(()),
        other => Err(first(other.kind()).into()),
    }
}

/// Sends the expected assignment to the far side.
///
/// # Errors
///
/// [`WireError`] if sending fails.
pub(super) async fn say_welcome(
    wire: &mut Wire,
    expected: &ConnectorAssignment,
) -> Result<(), WireError> {
    let welcome = ToConnector::Welcome(Box::new(Welcome {
        version: Version::current(),
        assignment: Assignment::Connector(Box::new(expected.clone())),
    }));
    tell(wire, &welcome).await
}

/// Rejects the far side with a reason.
///
/// # Errors
///
/// [`WireError`] if sending fails.
pub(super) async fn decline(wire: &mut Wire, reason: String) -> Result<(), WireError> {
    let grace_period_ms = 0;
    let shutdown = Shutdown {
        grace_period_ms,
        reason,
    };
    tell(wire, &ToConnector::Shutdown(shutdown)).await
}

async fn tell(wire: &mut Wire, message: &ToConnector) -> Result<(), WireError> {
    let head = EnvelopeHeader::new(Address::Orchestrator, Address::Child);
    write_frame(&mut wire.outgoing, message.to_frame(&head)?).await
}

/// Greets as the far side: sends `hello` and returns the assignment that the near side expects.
///
/// # Errors
///
/// [`GreetingError`] if the near side sends no welcome.
pub(super) async fn shake_hands(wire: &mut Wire) -> Result<ConnectorAssignment, GreetingError> {
    let hello = ToOrchestrator::Hello(Hello {
        version: Version::current(),
        role: ChildRole::Connector,
        pid: std::process::id(),
    });
    let head = EnvelopeHeader::new(Address::Child, Address::Orchestrator);
    let hello = hello.to_frame(&head).map_err(WireError::NotAMessage)?;
    write_frame(&mut wire.outgoing, hello).await?;
    let frame = next_frame(&mut wire.incoming).await?;
    let envelope = Envelope::from_frame(&frame).map_err(WireError::NotAMessage)?;
    check_version(&envelope)?;
    match ToConnector::from_envelope(&envelope).map_err(WireError::NotAMessage)? {
        ToConnector::Welcome(welcome) => match welcome.assignment {
            Assignment::Connector(expected) => Ok(*expected),
            _ => Err(first("welcome of another role").into()),
        },
        ToConnector::Shutdown(shutdown) => Err(GreetingError::Declined(shutdown.reason)),
        other => Err(first(other.kind()).into()),
    }
}

fn check_version(envelope: &Envelope) -> Result<(), VersionMismatch> {
    let payload: Option<JsonObject> = serde_json::from_str(envelope.payload.get()).ok();
    let version = payload.and_then(|mut payload| payload.remove("version"));
    let version = version.and_then(|version| serde_json::from_value::<Version>(version).ok());
    version.map_or(Ok(()), |version| version.check())
}

fn first(kind: &str) -> WireError {
    WireError::OutOfTurn {
        kind: kind.to_owned(),
        when: "as the first message",
    }
}
