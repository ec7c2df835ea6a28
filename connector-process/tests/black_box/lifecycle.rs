//! From `hello` to the exit code.

use std::net::TcpListener;
use std::process::Command;

use goondan_protocol::ipc::{ChildRole, IPC_FD_VAR};
use goondan_protocol::version::GOONDAN_VERSION;
use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::http::{Client, post};
use crate::orchestrator::{BINARY, Orchestrator, listening_address};

#[test]
fn connector_introduces_itself_and_survives_signals() {
    let mut orchestrator = Orchestrator::start();
    let hello = orchestrator.hello();
    assert_eq!(hello.role, ChildRole::Connector);
    assert_eq!(i64::from(hello.pid), i64::from(orchestrator.pid().as_raw()));
    orchestrator.welcome("webhook", &json!({}), &json!({}));
    let address = listening_address(&orchestrator.status());
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        kill(orchestrator.pid(), signal).unwrap();
    }
    // Both signals are delivered before the process reads on.
    orchestrator.ping();
    let mut client = Client::sending(address, &post(&[], b"hi"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);
}

#[test]
fn another_version_is_refused_loudly() {
    let mut orchestrator = Orchestrator::start();
    orchestrator.hello();
    let body = br#"{"type":"welcome","from":"orchestrator","to":"child","payload":{"version":{"protocol":3,"goondan":"0.0.0-other"}}}"#;
    let len = u32::try_from(body.len()).unwrap();
    orchestrator.send_raw(&len.to_be_bytes());
    orchestrator.send_raw(body);
    assert_eq!(orchestrator.exit().code(), Some(1));
    let line = orchestrator.log_line("the connector process ends");
    let error = line["error"].as_str().unwrap();
    assert!(
        error.contains("0.0.0-other") && error.contains(GOONDAN_VERSION),
        "{error}"
    );
    assert_eq!(line["level"], "error");
}

#[test]
fn connector_exits_and_acknowledges_nothing_if_orphaned() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut client = Client::sending(address, &post(&[], b"hi"));
    orchestrator.event();
    orchestrator.hang_up();
    assert_eq!(orchestrator.exit().code(), Some(1));
    assert_eq!(client.expect_close(), b"", "the client was sent something");
}

#[test]
fn an_orchestrator_that_sends_garbage_is_as_good_as_gone() {
    for garbage in [
        &b"\xff\xff\xff\xff"[..],
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x01\xff",
    ] {
        let (mut orchestrator, _) = Orchestrator::with_webhook(&json!({}), &json!({}));
        orchestrator.send_raw(garbage);
        assert_eq!(orchestrator.exit().code(), Some(1));
        orchestrator.log_line("the connector process ends");
    }
}

#[test]
fn shutdown_finishes_open_requests_and_accepts_no_new_ones() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    // One connection between two requests, one whose next request has started to arrive, and one
    // that waits for its event.
    let mut idle = Client::sending(address, &post(&[], b""));
    assert_eq!(idle.response().status, 400);
    let (early, late) = (&post(&[], b"late")[..10], &post(&[], b"late")[10..]);
    let mut beginning = Client::sending(address, early);
    let mut waiting = Client::sending(address, &post(&[], b"in progress"));
    let pending = orchestrator.event();

    orchestrator.shutdown();
    assert_eq!(idle.expect_close(), b"");
    beginning.send(late);
    let response = beginning.response();
    assert_eq!(response.status, 503);
    assert_eq!(response.error_code(), "unavailable");
    beginning.expect_close();
    // It is still open and waits.
    orchestrator.ping();
    waiting.expect_nothing_yet();

    orchestrator.accept(&pending, "e", false);
    assert_eq!(waiting.response().status, 202);
    waiting.expect_close();
    orchestrator.expect_graceful_end();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn misconfigured_connection_reports_why_and_keeps_running() {
    for (connector, config, secrets, reason) in [
        (
            "telegraph",
            json!({}),
            json!({}),
            "has no connector `telegraph`",
        ),
        (
            "webhook",
            json!({"prot": 1}),
            json!({}),
            "unknown setting `prot`",
        ),
        (
            "webhook",
            json!({"signature": {}}),
            json!({}),
            "the secret `hmac` is missing",
        ),
    ] {
        let mut orchestrator = Orchestrator::start_as(connector, &config, &secrets);
        let status = orchestrator.status();
        assert!(!status.ready);
        assert!(status.detail.contains(reason), "{}", status.detail);
        orchestrator.ping();
        orchestrator.shutdown();
        orchestrator.expect_graceful_end();
    }
}

#[test]
fn a_taken_port_is_reported_and_taken_once_it_is_free() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let mut orchestrator = Orchestrator::start_as("webhook", &json!({"port": port}), &json!({}));
    let status = orchestrator.status();
    assert!(!status.ready);
    let place = format!("cannot listen on 127.0.0.1:{port}");
    assert!(status.detail.contains(&place), "{}", status.detail);
    assert!(status.detail.contains("in use"), "{}", status.detail);
    orchestrator.ping();
    drop(holder);
    let address = listening_address(&orchestrator.status());
    assert_eq!(address.port(), port);
    orchestrator.shutdown();
    orchestrator.expect_graceful_end();
}

#[test]
fn a_stop_is_heard_while_the_port_is_taken() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let mut orchestrator = Orchestrator::start_as("webhook", &json!({"port": port}), &json!({}));
    assert!(!orchestrator.status().ready);
    orchestrator.shutdown();
    orchestrator.expect_graceful_end();
}

#[test]
fn events_beyond_the_socket_buffer_wait_and_all_arrive() {
    let config = json!({"maxBodyBytes": 1_000_000});
    let (mut orchestrator, address) = Orchestrator::with_webhook(&config, &json!({}));
    // Control characters grow sixfold in JSON: these are frames of six megabytes.
    let body = [&[b'x'][..], &[1; 999_999]].concat();
    let mut clients: Vec<_> = (0..12)
        .map(|_| Client::sending(address, &post(&[], &body)))
        .collect();
    let first = orchestrator.event();
    // The pong overtakes every waiting frame except those already in the socket.
    orchestrator.send_ping();
    let mut all = vec![first];
    while let Some(pending) = orchestrator.event_or_pong() {
        all.push(pending);
    }
    assert!(all.len() <= 3, "{} events came before the pong", all.len());
    while all.len() < clients.len() {
        all.push(orchestrator.event());
    }
    for pending in &all {
        assert_eq!(pending.event.input.len(), body.len());
        orchestrator.accept(pending, &pending.request.to_string(), false);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 202);
    }
}

#[test]
fn an_orchestrator_that_pings_and_never_reads_is_given_up() {
    let config = json!({"maxBodyBytes": 1_000_000});
    let (mut orchestrator, address) = Orchestrator::with_webhook(&config, &json!({}));
    // One event fills the socket; the answers to the pings then accumulate behind it.
    let _client = Client::sending(address, &post(&[], &[b'x'; 1_000_000]));
    orchestrator.expect_bytes();
    while orchestrator.try_send_ping().is_ok() {}
    assert_eq!(orchestrator.exit().code(), Some(1));
    let line = orchestrator.log_line("the connector process ends");
    assert!(
        line["error"].as_str().unwrap().contains("does not read"),
        "{line}"
    );
}

#[test]
fn by_hand_it_explains_itself() {
    let by_hand = Command::new(BINARY)
        .env_remove(IPC_FD_VAR)
        .output()
        .unwrap();
    assert_eq!(by_hand.status.code(), Some(2));
    let said = String::from_utf8(by_hand.stderr).unwrap();
    assert!(said.contains("started by goondan-orchestrator"), "{said}");
    assert!(by_hand.stdout.is_empty());

    let version = Command::new(BINARY).arg("--version").output().unwrap();
    assert!(version.status.success());
    let said = String::from_utf8(version.stdout).unwrap();
    assert_eq!(
        said,
        format!("goondan-connector-process {GOONDAN_VERSION}\n")
    );

    let no_socket = Command::new(BINARY)
        .env(IPC_FD_VAR, "0")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(no_socket.status.code(), Some(1));
    let printed = String::from_utf8(no_socket.stdout).unwrap();
    assert!(
        printed.contains("not one end of the orchestrator's socket pair"),
        "{printed}"
    );
}
