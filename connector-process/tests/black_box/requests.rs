//! Requests without an event: malformed, oversized, misdirected, hostile.

use serde_json::json;

use crate::http::{Client, chunked, head, post, request};
use crate::orchestrator::Orchestrator;

#[test]
fn malformed_requests_are_400_and_never_reach_the_orchestrator() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut client = Client::connect(address);
    let long_key = "k".repeat(1025);
    for (headers, body, code) in [
        (&[][..], &b"\xc3\x28"[..], "bad_encoding"),
        (
            &[("content-type", "application/json")],
            b"{\"input\"",
            "bad_json",
        ),
        (&[], b"", "no_input"),
        (&[], b"  \n", "no_input"),
        (&[("x-goondan-instance-key", "")], b"hi", "bad_instance_key"),
        (
            &[("x-goondan-instance-key", &long_key)],
            b"hi",
            "bad_instance_key",
        ),
        (&[("idempotency-key", "")], b"hi", "bad_event_id"),
    ] {
        client.send(&post(headers, body));
        let response = client.response();
        assert_eq!(response.status, 400, "{code}");
        assert_eq!(response.error_code(), code);
        assert!(response.header("traceresponse").is_some());
    }
    // The pong is the very next frame: no event came before it.
    orchestrator.ping();
}

#[test]
fn only_post_on_the_exact_path_is_understood() {
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&json!({"path": "/hook"}), &json!({}));
    let mut client = Client::connect(address);
    for path in [
        "/",
        "/hook/",
        "/Hook",
        "/hook%2f",
        "/hook/../hook",
        "//hook",
    ] {
        client.send(&request("POST", path, &[], b"hi"));
        let response = client.response();
        assert_eq!(response.status, 404, "{path}");
        assert_eq!(response.error_code(), "not_found");
    }
    client.send(&request("GET", "/hook?challenge=abc", &[], b""));
    let check = client.response();
    assert_eq!((check.status, &*check.body), (200, &b"abc"[..]));
    assert_eq!(check.header("x-content-type-options"), Some("nosniff"));
    for method in ["PUT", "DELETE", "OPTIONS", "BREW"] {
        client.send(&request(method, "/hook", &[], b"hi"));
        let response = client.response();
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(response.error_code(), "method_not_allowed");
        assert_eq!(response.header("allow"), Some("POST"));
    }
    orchestrator.ping();
}

#[test]
fn a_body_of_the_limit_is_taken_in_one_piece_and_in_chunks() {
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&json!({"maxBodyBytes": 1000}), &json!({}));
    let body = vec![b'x'; 1000];
    let mut client = Client::sending(address, &post(&[], &body));
    let pending = orchestrator.event();
    assert_eq!(pending.event.input.len(), 1000);
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);

    client.send(&head("POST", "/", &[], &[("transfer-encoding", "chunked")]));
    client.send(&chunked(&body, 7));
    let pending = orchestrator.event();
    assert_eq!(pending.event.input.len(), 1000);
    orchestrator.accept(&pending, "e2", false);
    assert_eq!(client.response().status, 202);
}

#[test]
fn oversized_body_gets_413_however_it_is_sent() {
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&json!({"maxBodyBytes": 1000}), &json!({}));
    // Announced length: rejected by the head alone, before any byte of the body arrives.
    let announced = head("POST", "/", &[], &[("content-length", "1001")]);
    let mut client = Client::sending(address, &announced);
    let response = client.response();
    assert_eq!(response.status, 413);
    assert_eq!(response.error_code(), "too_large");

    // A client that asks for permission to send its body does not get it.
    let asking = head(
        "POST",
        "/",
        &[("expect", "100-continue")],
        &[("content-length", "1001")],
    );
    let mut client = Client::sending(address, &asking);
    assert_eq!(client.response().status, 413);

    // The refused body is read completely: the client sees the answer instead of a reset, and can
    // continue.
    let mut client = Client::connect(address);
    let body = vec![b'x'; 1_000_000];
    client.send(&post(&[], &body));
    assert_eq!(client.response().status, 413);
    client.send(&head("POST", "/", &[], &[("transfer-encoding", "chunked")]));
    client.send(&chunked(&body, 9_999));
    assert_eq!(client.response().status, 413);
    client.send(&post(&[], b"small"));
    let pending = orchestrator.event();
    assert_eq!(pending.event.input, "small");
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);

    // Chunks without an announced length are counted as they arrive: the answer is sent before the
    // end.
    let mut client = Client::connect(address);
    client.send(&head("POST", "/", &[], &[("transfer-encoding", "chunked")]));
    client.send(b"3e9\r\n");
    client.send(&[b'x'; 0x3e9]);
    assert_eq!(client.response().status, 413);
    orchestrator.ping();
}

#[test]
fn an_endless_body_is_cut_off() {
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&json!({"maxBodyBytes": 1000}), &json!({}));
    let mut client = Client::connect(address);
    client.send(&head(
        "POST",
        "/",
        &[],
        &[("content-length", "1000000000000")],
    ));
    assert_eq!(client.response().status, 413);
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..1000).find(|_| client.try_send(&piece).is_err());
    assert!(sent.is_some(), "a gigabyte was read and thrown away");
    orchestrator.ping();
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let huge_head = [b"POST / HTTP/1.1\r\nx: ".as_slice(), &[b'x'; 100_000]].concat();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        &huge_head,
    ] {
        let mut client = Client::connect(address);
        // The other side may close before everything is written.
        drop(client.try_send(garbage));
        let answer = client.expect_close();
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    // A chunk without a length aborts the body.
    let mut client = Client::connect(address);
    client.send(&head("POST", "/", &[], &[("transfer-encoding", "chunked")]));
    client.send(b"zz\r\n");
    assert_eq!(client.response().status, 400);

    orchestrator.ping();
    let mut client = Client::sending(address, &post(&[], b"hello"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);
}
