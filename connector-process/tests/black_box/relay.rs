//! Both ends of a relay: the near one under the test's orchestrator, the far one with its own
//! webhook.

mod listed;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use goondan_protocol::call::{CallError, CallId, CallOrder, CallOutcome, Caller};
use goondan_protocol::ipc::{RefusalCode, Status, ToOrchestrator};
use goondan_tests::relay::{FAR, FarSide, Identity, NetworkLine, RELAY, STRANGER};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::http::{Client, post};
use crate::orchestrator::{BINARY, Orchestrator};

/// The near end, and its address.
fn near() -> (Orchestrator, SocketAddr) {
    let clients = json!([
        {"name": "dmz", "fingerprint": FAR.fingerprint()},
        {"name": "spare", "fingerprint": RELAY.fingerprint()},
    ]);
    let config =
        json!({"connector": "webhook", "certificate": RELAY.certificate, "clients": clients});
    let mut orchestrator = Orchestrator::start_as("relay", &config, &json!({"key": RELAY.key}));
    let status = orchestrator.status();
    assert!(!status.ready);
    let address = between(&status.detail, "listening on ", "; no client is connected");
    (orchestrator, address.parse().unwrap())
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let found = text
        .split_once(start)
        .and_then(|(_, rest)| rest.split_once(end));
    found.unwrap_or_else(|| panic!("{text}")).0
}

/// A far end with a webhook.
fn far(directory: &Path, relay: SocketAddr, identity: Identity) -> FarSide {
    let webhook = json!({"connector": "webhook", "config": {"port": 0}});
    FarSide::start(Path::new(BINARY), directory, (relay, identity), &webhook)
}

/// Waits until the connector on the other machine listens, and returns its address.
fn webhook_address(orchestrator: &mut Orchestrator) -> SocketAddr {
    let status: Status = orchestrator.status_saying("listening on http://");
    assert!(
        status.ready && status.detail.starts_with("`dmz` at 127.0.0.1: "),
        "{status:?}"
    );
    between(&status.detail, "http://", "/").parse().unwrap()
}

fn call(call_id: u64) -> CallOrder {
    CallOrder {
        call_id: CallId(call_id),
        caller: Caller {
            agent: "clerk".parse().unwrap(),
            instance_key: "k".parse().unwrap(),
        },
        event_id: None,
        method: "send".to_owned(),
        params: RawValue::from_string("{}".to_owned()).unwrap(),
        deadline_ms: 60_000,
        again_since: None,
    }
}

/// The error of the next call.
fn error_of_call(orchestrator: &mut Orchestrator) -> CallError {
    loop {
        match orchestrator.receive().1 {
            ToOrchestrator::Status(_) => {}
            ToOrchestrator::CallResult(result) => match result.outcome {
                CallOutcome::Error(error) => return error,
                CallOutcome::Ok(value) => panic!("{value}"),
            },
            other => panic!("expected the result of a call, got {other:?}"),
        }
    }
}

#[test]
fn rep_1_relayed_event_is_acknowledged_once_it_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let (mut orchestrator, relay) = near();
    let far = far(directory.path(), relay, FAR);
    let webhook = webhook_address(&mut orchestrator);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("traceparent", parent), ("x-goondan-event-id", "mine")];
    let mut client = Client::sending(webhook, &post(&headers, b"What is new?"));
    let pending = orchestrator.next_event();
    assert_eq!(pending.event.input, "What is new?");
    assert_eq!(pending.event.id.as_ref().unwrap().as_str(), "mine");
    let trace = pending.envelope.trace.unwrap();
    assert_eq!(
        trace.trace_id.to_string(),
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
    client.expect_nothing_yet();
    orchestrator.accept(&pending, "mine", false);
    let response = client.response();
    assert_eq!(
        (response.status, &response.json()["eventId"]),
        (202, &json!("mine"))
    );

    let mut client = Client::sending(webhook, &post(&[], b"again"));
    let pending = orchestrator.next_event();
    orchestrator.refuse(&pending, RefusalCode::Unroutable);
    assert_eq!(client.response().status, 200);

    // Only a webhook reports that it makes no calls.
    orchestrator.call(call(1));
    let error = error_of_call(&mut orchestrator);
    assert!(error.message.contains("makes no calls"), "{error}");
    assert!(far.stop().success());
    orchestrator.status_saying("no client is connected");
    orchestrator.shutdown();
    orchestrator.expect_graceful_end();
}

#[test]
fn rep_1_msg_13_event_open_at_disconnect_is_resent_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let (mut orchestrator, relay) = near();
    let line = NetworkLine::to(relay);
    let far = far(directory.path(), line.address(), FAR);
    let webhook = webhook_address(&mut orchestrator);
    // It has no id of its own.
    let mut client = Client::sending(webhook, &post(&[], b"hi"));
    let first = orchestrator.next_event();
    let id = first.event.id.clone().unwrap();
    line.cut();
    orchestrator.status_saying("no client is connected");
    // It is durable, but its waiting client cannot be notified.
    orchestrator.accept(&first, id.as_str(), false);
    // Calls of agents fail in the meantime and can be retried.
    orchestrator.call(call(1));
    assert!(error_of_call(&mut orchestrator).retryable);
    client.expect_nothing_yet();
    line.mend();
    let second = orchestrator.next_event();
    assert_eq!(second.event.id, Some(id.clone()));
    assert_eq!(second.envelope.trace, first.envelope.trace);
    orchestrator.accept(&second, id.as_str(), true);
    let response = client.response();
    assert_eq!(
        (response.status, &response.json()["eventId"]),
        (202, &json!(id))
    );
    drop(far);
}

#[test]
fn rep_1_sec_3_unlisted_relay_clients_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (mut orchestrator, relay) = near();
    let stranger = far(directory.path(), relay, STRANGER);
    let line = orchestrator.log_line("a connection to the relay was refused");
    let why = line["why"].as_str().unwrap();
    let expected = format!("fingerprint {}, is not listed", STRANGER.fingerprint());
    assert!(why.contains(&expected), "{why}");
    let line = stranger.log_line("cannot connect to the relay; trying again");
    assert!(
        line["reason"].as_str().unwrap().contains("fatal alert"),
        "{line}"
    );
    drop(stranger);
    // A client without TLS is not admitted either.
    let mut plain = TcpStream::connect(relay).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // A connection reset is also an acceptable end.
    drop(plain.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP"));
    // The orchestrator got no report about them, and a listed client is admitted.
    orchestrator.ping();
    let far = far(directory.path(), relay, FAR);
    webhook_address(&mut orchestrator);
    drop(far);
}

#[test]
fn a_relay_that_is_another_is_not_spoken_to() {
    let directory = tempfile::tempdir().unwrap();
    let (mut orchestrator, relay) = near();
    let webhook = json!({"connector": "webhook", "fingerprint": STRANGER.fingerprint()});
    let far = FarSide::start(Path::new(BINARY), directory.path(), (relay, FAR), &webhook);
    let line = far.log_line("cannot connect to the relay; trying again");
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.contains("is not listed"), "{reason}");
    orchestrator.ping();
}

#[test]
fn relay_admits_one_machine_at_a_time_with_expected_connector() {
    let directory = tempfile::tempdir().unwrap();
    let (mut orchestrator, relay) = near();
    let slack = json!({"connector": "slack", "secrets": {"signingSecret": {"file": "own.key"}}});
    let home = directory.path().join("slack");
    let other = FarSide::start(Path::new(BINARY), &home, (relay, FAR), &slack);
    let line = other.log_line("cannot connect to the relay; trying again");
    let reason = line["reason"].as_str().unwrap();
    assert!(
        reason.contains("this is `slack`") && reason.contains("expects webhook"),
        "{reason}"
    );
    drop(other);

    let first = far(&directory.path().join("first"), relay, FAR);
    webhook_address(&mut orchestrator);
    let second = far(&directory.path().join("second"), relay, RELAY);
    let line = second.log_line("cannot connect to the relay; trying again");
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.contains("`dmz` is connected"), "{reason}");
    // It takes over once the first one has disconnected.
    drop(first);
    let status = orchestrator.status_saying("listening on http://");
    assert!(status.detail.starts_with("`spare` at "), "{status:?}");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "files that the test prepares, and no durable state"
)]
fn invalid_relay_far_side_reports_the_reason_and_exits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.json");
    std::fs::write(&file, r#"{"relay": 1}"#).unwrap();
    let ran = std::process::Command::new(BINARY)
        .arg("relay-to")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2));
    let printed = String::from_utf8(ran.stderr).unwrap();
    assert!(
        printed.contains("relay.json` is invalid: invalid type"),
        "{printed}"
    );
    let misread: Result<Value, _> = serde_json::from_slice(&ran.stdout);
    assert!(misread.is_err(), "it logs nothing");
}
