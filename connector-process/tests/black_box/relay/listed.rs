//! Goal: a listed client can break its own link, and nothing else.
//!
//! Method: a client with a listed certificate speaks TLS correctly and then misbehaves. Each time
//! it is refused with a message, and the other machine of these tests is served afterwards.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::version::Version;
use goondan_tests::relay::FAR;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use serde_json::{Value, json};

use super::{far, near, webhook_address};
use crate::PATIENCE;
use crate::http::{Client, post};
use crate::orchestrator::Orchestrator;

/// `RELAY_HANDSHAKES_MAX`.
const HANDSHAKES_MAX: usize = 16;
/// `RELAY_UNANSWERED_MAX`.
const UNANSWERED_MAX: u64 = 1_024;

/// A client whose certificate is listed.
struct ListedClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl ListedClient {
    /// Connects and completes TLS.
    fn connect(relay: SocketAddr) -> Self {
        Self::over(&TLS13, relay).unwrap()
    }

    fn over(
        version: &'static SupportedProtocolVersion,
        relay: SocketAddr,
    ) -> std::io::Result<Self> {
        let certificate = CertificateDer::from_pem_slice(FAR.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(FAR.key.as_bytes()).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(ring)
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyRelay))
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
        let name = ServerName::IpAddress(relay.ip().into());
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(relay)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        let stream = StreamOwned::new(connection, stream);
        Ok(Self { stream })
    }

    /// Connects and receives the welcome.
    fn welcomed(relay: SocketAddr) -> Self {
        let mut listed = Self::connect(relay);
        listed.say(&hello(&Version::current()));
        let welcome = listed.next_frame().unwrap();
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        listed
    }

    /// Sends raw bytes. The relay may have disconnected.
    fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes));
        drop(self.stream.flush());
    }

    fn say(&mut self, message: &Value) {
        self.send(&framed(message));
    }

    /// The next frame; `None` if the relay has disconnected.
    fn next_frame(&mut self) -> Option<Value> {
        let mut header = [0; 4];
        if let Err(error) = self.stream.read_exact(&mut header) {
            assert!(crate::orchestrator::is_closed(&error), "{error}");
            return None;
        }
        let mut body = vec![0; usize::try_from(u32::from_be_bytes(header)).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        Some(serde_json::from_slice(&body).unwrap())
    }

    /// The relay must give a reason for the refusal and disconnect.
    fn expect_refusal(mut self) -> String {
        let refused = self.next_frame().expect("words before the end");
        assert_eq!(refused["type"], "shutdown", "{refused}");
        assert_eq!(self.next_frame(), None);
        refused["payload"]["reason"].as_str().unwrap().to_owned()
    }

    /// The relay must disconnect, regardless of earlier frames.
    fn expect_end(mut self) {
        while self.next_frame().is_some() {}
    }
}

/// Other tests check the relay's identity.
#[derive(Debug)]
struct AnyRelay;

impl ServerCertVerifier for AnyRelay {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let ring = rustls::crypto::ring::default_provider();
        ring.signature_verification_algorithms.supported_schemes()
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap();
    [&len.to_be_bytes()[..], body].concat()
}

fn framed(message: &Value) -> Vec<u8> {
    frame(message.to_string().as_bytes())
}

fn message(kind: &str, id: Option<u64>, payload: &Value) -> Value {
    let mut message =
        json!({"type": kind, "from": "child", "to": "orchestrator", "payload": payload});
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    message
}

fn hello(version: &Version) -> Value {
    let payload = json!({"version": version, "role": "connector", "pid": 1});
    message("hello", None, &payload)
}

fn status(detail: &str) -> Value {
    let payload = json!({"ready": true, "detail": detail});
    message("status", None, &payload)
}

fn event(id: u64, input: &str) -> Value {
    let payload = json!({"id": format!("e{id}"), "name": "request", "input": input});
    message("event", Some(id), &payload)
}

/// The reason in the relay's log for refusing this client.
fn refused_in_log(orchestrator: &Orchestrator) -> String {
    let line = orchestrator.log_line("a connection to the relay was refused");
    line["why"].as_str().unwrap().to_owned()
}

/// The reason in the relay's log for the end of a link.
fn ended_in_log(orchestrator: &Orchestrator) -> String {
    let line = orchestrator.log_line("the link to the other machine ended");
    assert_eq!(line["client"], "dmz");
    line["error"].as_str().unwrap().to_owned()
}

/// The other machine is admitted, and one of its events arrives.
fn expect_service(orchestrator: &mut Orchestrator, relay: SocketAddr) {
    let directory = tempfile::tempdir().unwrap();
    let far = far(directory.path(), relay, FAR);
    let webhook = webhook_address(orchestrator);
    let mut client = Client::sending(webhook, &post(&[], b"Still there?"));
    let pending = orchestrator.next_event();
    assert_eq!(pending.event.input, "Still there?");
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);
    assert!(far.stop().success());
    orchestrator.status_saying("no client is connected");
}

#[test]
fn garbage_instead_of_a_greeting_is_refused_in_words() {
    let (mut orchestrator, relay) = near();
    let agent = json!({"version": Version::current(), "role": "agent", "pid": 1});
    let garbage = [
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "at most 4096 are allowed",
        ),
        (frame(b"\x00\xff garbage"), "not a message"),
        (frame(b"{}"), "not a message"),
        (
            framed(&message("nonsense", None, &json!({}))),
            "not a message",
        ),
        (framed(&event(1, "hi")), "sent `event`"),
        (framed(&message("hello", None, &agent)), "sent `hello`"),
    ];
    for (bytes, expected) in garbage {
        let mut listed = ListedClient::connect(relay);
        listed.send(&bytes);
        let reason = listed.expect_refusal();
        assert!(reason.contains(expected), "{reason}");
        let why = refused_in_log(&orchestrator);
        assert_eq!(why, format!("`dmz`: {reason}"));
    }
    // More bytes than the relay reads from it, and an incomplete greeting.
    let mut listed = ListedClient::connect(relay);
    listed.send(&vec![0xff; 1024 * 1024]);
    assert!(refused_in_log(&orchestrator).contains("at most 4096 are allowed"));
    drop(listed);
    let mut listed = ListedClient::connect(relay);
    listed.send(&frame(b"{}")[..5]);
    listed.stream.conn.send_close_notify();
    listed.stream.flush().unwrap();
    assert!(refused_in_log(&orchestrator).contains("inside a frame"));
    // The orchestrator got no report about them.
    orchestrator.ping();
    expect_service(&mut orchestrator, relay);
}

#[test]
fn garbage_after_the_welcome_ends_the_link_and_no_more() {
    let (mut orchestrator, relay) = near();
    let garbage = [
        (vec![0xff; 1024 * 1024], "at most"),
        (frame(b"\x00\xff garbage"), "not a message"),
        (framed(&hello(&Version::current())), "sent `hello`"),
        // An agent's message, and a request that cannot be answered.
        (
            framed(&message("agent.ask", Some(1), &json!({}))),
            "not a message",
        ),
        (
            framed(&message("event", None, &event(1, "hi")["payload"])),
            "sent `event`, which is not allowed in a relay",
        ),
    ];
    for (bytes, expected) in garbage {
        let mut listed = ListedClient::welcomed(relay);
        listed.send(&bytes);
        listed.expect_end();
        let error = ended_in_log(&orchestrator);
        assert!(error.contains(expected), "{error}");
        orchestrator.status_saying("no client is connected");
    }
    orchestrator.ping();
    expect_service(&mut orchestrator, relay);
}

#[test]
fn another_version_is_refused_in_words() {
    let (mut orchestrator, relay) = near();
    let current = Version::current();
    let others = [
        Version {
            protocol: current.protocol + 1,
            ..current.clone()
        },
        Version {
            goondan: "0.0.0-other".to_owned(),
            ..current
        },
    ];
    for other in others {
        let mut listed = ListedClient::connect(relay);
        listed.say(&hello(&other));
        let reason = listed.expect_refusal();
        assert!(
            reason.contains("both sides must have the same version"),
            "{reason}"
        );
        assert!(reason.contains(&other.to_string()), "{reason}");
        assert_eq!(refused_in_log(&orchestrator), format!("`dmz`: {reason}"));
    }
    // A greeting with more fields than this version can read.
    let mut listed = ListedClient::connect(relay);
    let version = json!({"protocol": 1_000, "goondan": "9.0.0"});
    let later = json!({"version": version, "surplus": [1]});
    listed.say(&message("greeting", None, &later));
    let reason = listed.expect_refusal();
    assert!(
        reason.contains("both sides must have the same version"),
        "{reason}"
    );
    refused_in_log(&orchestrator);
    // An older TLS version.
    assert!(ListedClient::over(&TLS12, relay).is_err());
    assert!(refused_in_log(&orchestrator).contains("peer is incompatible"));
    orchestrator.ping();
    expect_service(&mut orchestrator, relay);
}

#[test]
fn silent_relay_client_blocks_no_other_and_is_disconnected() {
    let (mut orchestrator, relay) = near();
    let silent = ListedClient::connect(relay);
    expect_service(&mut orchestrator, relay);
    drop(silent);
    assert!(refused_in_log(&orchestrator).starts_with("`dmz`: "));
    // A new connection of the same client replaces the earlier one.
    let earlier = ListedClient::connect(relay);
    let later = ListedClient::connect(relay);
    let why = refused_in_log(&orchestrator);
    assert_eq!(why, "`dmz`: it connected again before it sent hello");
    earlier.expect_end();
    let why = refused_in_log(&orchestrator);
    assert_eq!(why, "it did not identify itself within 10000 ms");
    later.expect_end();
    orchestrator.ping();
    expect_service(&mut orchestrator, relay);
}

#[test]
fn rep_1_idle_connections_keep_no_listed_client_out() {
    let (mut orchestrator, relay) = near();
    let idle: Vec<_> = (0..2 * HANDSHAKES_MAX)
        .map(|_| TcpStream::connect(relay).unwrap())
        .collect();
    // The oldest connections are evicted, but not the one that identifies itself.
    expect_service(&mut orchestrator, relay);
    let why = refused_in_log(&orchestrator);
    assert_eq!(why, "it was evicted before it identified itself");
    drop(idle);
}

#[test]
fn silent_relay_connection_gives_way_to_its_own_successor() {
    let (mut orchestrator, relay) = near();
    let silent = ListedClient::welcomed(relay);
    expect_service(&mut orchestrator, relay);
    silent.expect_end();
}

#[test]
fn rep_1_as_many_requests_as_may_be_open_are_all_answered() {
    let (mut orchestrator, relay) = near();
    let mut listed = ListedClient::welcomed(relay);
    for id in 1..=UNANSWERED_MAX {
        listed.say(&event(id, "hi"));
    }
    for _ in 1..=UNANSWERED_MAX {
        let pending = orchestrator.next_event();
        let id = pending.event.id.clone().unwrap();
        orchestrator.accept(&pending, id.as_str(), false);
    }
    for _ in 1..=UNANSWERED_MAX {
        let answer = listed.next_frame().unwrap();
        assert_eq!(answer["type"], "event.accepted", "{answer}");
        let request = answer["inReplyTo"].as_u64().unwrap();
        assert_eq!(answer["payload"]["eventId"], format!("e{request}"));
    }
    drop(listed);
    orchestrator.status_saying("no client is connected");
    expect_service(&mut orchestrator, relay);
}

#[test]
fn more_requests_than_may_be_open_end_the_link_and_no_more() {
    let (mut orchestrator, relay) = near();
    type Request = fn(u64) -> Value;
    let kinds: [Request; 4] = [
        |id| event(id, "hi"),
        |id| message("state.get", Some(id), &json!({})),
        |id| message("state.set", Some(id), &json!({"state": "x".repeat(1_000)})),
        |id| {
            let asked = json!({"instanceKey": "hook:k", "eventId": format!("e{id}")});
            message("reply.await", Some(id), &asked)
        },
    ];
    for request in kinds {
        let mut listed = ListedClient::welcomed(relay);
        for id in 1..=1_100 {
            listed.say(&request(id));
        }
        // The orchestrator neither answers nor reads.
        let error = ended_in_log(&orchestrator);
        assert!(error.contains("has too many open requests"), "{error}");
        listed.expect_end();
        let mut asked = 0;
        loop {
            match orchestrator.receive().1 {
                ToOrchestrator::Status(it) if it.detail.contains("no client is connected") => break,
                ToOrchestrator::Status(_) | ToOrchestrator::ReplyForget(_) => {}
                _ => asked += 1,
            }
        }
        assert!(asked <= UNANSWERED_MAX, "{asked}");
    }
    expect_service(&mut orchestrator, relay);
}

#[test]
fn rep_1_slow_daemon_receives_all_events_of_a_fast_machine() {
    let (mut orchestrator, relay) = near();
    let mut listed = ListedClient::welcomed(relay);
    let count = 100;
    // More data than the sockets and queues on the way to the orchestrator hold.
    let input = "x".repeat(64 * 1024);
    for id in 1..=count {
        listed.say(&event(id, &input));
    }
    for number in 0..1_000 {
        listed.say(&status(&format!("number {number}")));
    }
    // The relay itself answers this, after it has handled everything before it.
    let asked = json!({"callId": 1, "message": "?", "schema": {}, "timeoutMs": 1});
    listed.say(&message("question.ask", Some(count + 1), &asked));
    let answer = listed.next_frame().unwrap();
    assert_eq!(answer["type"], "question.refused", "{answer}");
    let (mut events, mut has_last) = (0, false);
    while events < count || !has_last {
        match orchestrator.receive() {
            (_, ToOrchestrator::Status(it)) => has_last |= it.detail.ends_with(": number 999"),
            (_, ToOrchestrator::Event(_)) => events += 1,
            (_, other) => panic!("expected a status or an event, got {other:?}"),
        }
    }
    drop(listed);
    orchestrator.status_saying("no client is connected");
    expect_service(&mut orchestrator, relay);
}

#[test]
fn larger_requests_than_may_be_kept_end_the_link_and_no_more() {
    let (mut orchestrator, relay) = near();
    let mut listed = ListedClient::welcomed(relay);
    let input = "x".repeat(15 * 1024 * 1024);
    for id in 1..=5 {
        listed.say(&event(id, &input));
    }
    let error = ended_in_log(&orchestrator);
    assert!(error.contains("has too many open requests"), "{error}");
    listed.expect_end();
    orchestrator.status_saying("no client is connected");
    expect_service(&mut orchestrator, relay);
}
