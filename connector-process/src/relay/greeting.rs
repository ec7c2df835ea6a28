//! How both sides of a relay greet: as a child and its orchestrator do (`IPC-1`).
//!
//! The far side says `hello` with its version. The near side answers with `welcome`, which names the workspace, the
//! connection and the connector that it expects there, and holds neither settings nor secrets; or with `shutdown`, which
//! says why it does not.

use goondan_protocol::JsonObject;
use goondan_protocol::definition::ConnectorAssignment;
use goondan_protocol::envelope::{Address, Envelope};
use goondan_protocol::ipc::{
    Assignment, ChildRole, Head, Hello, Shutdown, ToConnector, ToOrchestrator, Welcome,
};
use goondan_protocol::version::{Version, VersionMismatch};

use super::wire::{Wire, WireError, next_frame, write_frame};

/// Why two sides do not come together.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetingError {
    /// The link broke, or nobody on it speaks as it should.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The two are of different builds.
    #[error("both sides must be of one version")]
    OtherVersion(#[from] VersionMismatch),
    /// The near side does not want this far side now.
    #[error("the relay says: {0}")]
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
    // The version comes first: what another version says may not even be readable.
    check_version(&envelope)?;
    match ToOrchestrator::from_envelope(&envelope).map_err(WireError::NotAMessage)? {
        ToOrchestrator::Hello(hello) if hello.role == ChildRole::Connector => Ok(()),
        other => Err(first(other.kind()).into()),
    }
}

/// Tells the far side what it is expected to be.
///
/// # Errors
///
/// [`WireError`] if it cannot be told.
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

/// Tells the far side that it is not wanted, and why.
///
/// # Errors
///
/// [`WireError`] if it cannot be told.
pub(super) async fn decline(wire: &mut Wire, reason: String) -> Result<(), WireError> {
    let grace_period_ms = 0;
    let shutdown = Shutdown {
        grace_period_ms,
        reason,
    };
    tell(wire, &ToConnector::Shutdown(shutdown)).await
}

async fn tell(wire: &mut Wire, message: &ToConnector) -> Result<(), WireError> {
    let head = Head::new(Address::Orchestrator, Address::Child);
    write_frame(&mut wire.outgoing, message.to_frame(&head)?).await
}

/// The far side's own part: says `hello`, and gives what the near side expects here.
///
/// # Errors
///
/// [`GreetingError`] unless it is welcome.
pub(super) async fn shake_hands(wire: &mut Wire) -> Result<ConnectorAssignment, GreetingError> {
    let hello = ToOrchestrator::Hello(Hello {
        version: Version::current(),
        role: ChildRole::Connector,
        pid: std::process::id(),
    });
    let head = Head::new(Address::Child, Address::Orchestrator);
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
