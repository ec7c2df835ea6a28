//! Outcomes of an event: acceptance, refusal, traces, signatures, limits.

use goondan_protocol::ipc::RefusalCode;
use goondan_protocol::trace::TraceContext;
use serde_json::json;

use crate::http::{Client, post, request};
use crate::orchestrator::Orchestrator;

/// Maximum number of concurrent requests, from `goondan_connector_process::limits`.
const IN_FLIGHT: usize = goondan_connector_process::limits::REQUESTS_IN_FLIGHT_MAX;

#[test]
fn a_request_is_answered_only_once_its_event_is_durable() {
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&json!({"path": "/hook"}), &json!({}));
    let body = br#"{"input":"What is new?","action":"asked"}"#;
    let headers = [
        ("x-goondan-instance-key", "telegram:1"),
        ("content-type", "application/json"),
    ];
    let mut client = Client::sending(address, &request("POST", "/hook?x=1", &headers, body));

    let pending = orchestrator.event();
    assert_eq!(pending.envelope.from.to_string(), "connector:hook");
    assert_eq!(pending.envelope.to.to_string(), "orchestrator");
    assert_eq!(pending.event.name, "request");
    assert_eq!(pending.event.input, "What is new?");
    assert_eq!(
        pending.event.instance_key.as_ref().unwrap().as_str(),
        "telegram:1"
    );
    assert_eq!(pending.event.properties["action"], "asked");
    assert_eq!(pending.event.properties["path"], "/hook");
    assert_eq!(pending.event.metadata["contentType"], "application/json");
    assert_eq!(pending.event.id, None);

    // The process has continued since it submitted the event: it answered a ping and another
    // complete request. The client of the event still waits.
    orchestrator.ping();
    let mut other = Client::sending(address, &post(&[], b"x"));
    assert_eq!(other.response().status, 404);
    client.expect_nothing_yet();

    orchestrator.accept(&pending, "evt-1", false);
    let response = client.response();
    assert_eq!(response.status, 202);
    let trace = pending.envelope.trace.unwrap();
    let expected = json!({"eventId": "evt-1", "duplicate": false, "traceId": trace.trace_id});
    assert_eq!(response.json(), expected);

    // The connection also serves the next request.
    client.send(&request(
        "POST",
        "/hook",
        &[("idempotency-key", "mine")],
        b"again",
    ));
    let pending = orchestrator.event();
    assert_eq!(pending.event.id.as_ref().unwrap().as_str(), "mine");
    orchestrator.accept(&pending, "mine", true);
    assert_eq!(client.response().json()["duplicate"], true);
}

#[test]
fn replies_out_of_order_reach_their_own_clients() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut first = Client::sending(address, &post(&[], b"first"));
    let first_pending = orchestrator.event();
    let mut second = Client::sending(address, &post(&[], b"second"));
    let second_pending = orchestrator.event();
    assert_eq!(second_pending.event.input, "second");

    orchestrator.accept(&second_pending, "2", false);
    assert_eq!(second.response().json()["eventId"], "2");
    first.expect_nothing_yet();
    orchestrator.accept(&first_pending, "1", false);
    assert_eq!(first.response().json()["eventId"], "1");
}

#[test]
fn each_refusal_has_its_status_and_retry_after() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut client = Client::connect(address);
    for (refusal, status, code, retry_after) in [
        (RefusalCode::Invalid, 400, "invalid", None),
        (RefusalCode::Overloaded, 429, "overloaded", Some("1")),
        (RefusalCode::Unavailable, 503, "unavailable", Some("5")),
        (RefusalCode::Damaged, 500, "damaged", None),
    ] {
        client.send(&post(&[], b"hi"));
        let pending = orchestrator.event();
        orchestrator.refuse(&pending, refusal);
        let response = client.response();
        assert_eq!(response.status, status);
        assert_eq!(response.error_code(), code);
        assert_eq!(response.header("retry-after"), retry_after);
    }
}

#[test]
fn conn_3_batch_is_accepted_in_order_and_repeated_after_an_error() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let event =
        |id: &str| json!({"specversion": "1.0", "id": id, "source": "/s", "type": "t", "data": id});
    let batch = json!([event("1"), event("2"), event("3")]).to_string();
    let headers = [("content-type", "application/cloudevents-batch+json")];
    let request = post(&headers, batch.as_bytes());
    let mut client = Client::sending(address, &request);
    let first = orchestrator.event();
    assert_eq!(first.event.id.as_ref().unwrap().as_str(), "/s#1");
    // The next one is submitted only once the first is durable.
    orchestrator.ping();
    orchestrator.accept(&first, "/s#1", false);
    let second = orchestrator.event();
    orchestrator.refuse(&second, RefusalCode::Overloaded);
    let response = client.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (429, "overloaded")
    );
    orchestrator.ping();

    client.send(&request);
    for (id, is_known) in [("1", true), ("2", false)] {
        let pending = orchestrator.event();
        assert_eq!(pending.event.input, id);
        orchestrator.accept(&pending, &format!("/s#{id}"), is_known);
    }
    let third = orchestrator.event();
    orchestrator.refuse(&third, RefusalCode::Unroutable);
    let response = client.response();
    assert_eq!(response.status, 202);
    let expected = json!([{"eventId": "/s#1", "duplicate": true},
        {"eventId": "/s#2", "duplicate": false},
        {"eventId": "/s#3", "ignored": "because of the test"}]);
    assert_eq!(response.json()["events"], expected);

    let invalid = json!([event("4"), {"id": "5"}]).to_string();
    client.send(&post(&headers, invalid.as_bytes()));
    let response = client.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (400, "bad_body")
    );
    orchestrator.ping();
}

#[test]
fn conn_1_event_without_a_rule_is_acknowledged_unless_its_sender_waits() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut client = Client::sending(address, &post(&[], b"hi"));
    let pending = orchestrator.event();
    orchestrator.refuse(&pending, RefusalCode::Unroutable);
    let response = client.response();
    assert_eq!(response.status, 200);
    assert_eq!(response.json(), json!({"ignored": "because of the test"}));

    let config = json!({"reply": {"wait": {}}});
    let (mut orchestrator, address) = Orchestrator::with_webhook(&config, &json!({}));
    let mut client = Client::sending(address, &post(&[], b"hi"));
    let pending = orchestrator.event();
    orchestrator.refuse(&pending, RefusalCode::Unroutable);
    let response = client.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (422, "unroutable")
    );
}

#[test]
fn trace_continues_from_caller_to_frame_answer_and_log() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut client = Client::sending(address, &post(&[("traceparent", parent)], b"hi"));
    let pending = orchestrator.event();
    let caller = TraceContext::from_traceparent(parent).unwrap();
    let trace = pending.envelope.trace.unwrap();
    assert_eq!(trace.trace_id, caller.trace_id);
    assert_eq!(trace.parent_span_id, Some(caller.span_id));
    orchestrator.accept(&pending, "e", false);
    let response = client.response();
    assert_eq!(
        response.header("traceresponse"),
        Some(trace.to_traceparent().as_str())
    );
    assert_eq!(response.json()["traceId"], json!(caller.trace_id));

    let line = orchestrator.log_line("request answered");
    assert_eq!(line["traceId"], json!(caller.trace_id));
    assert_eq!(line["connection"], "hook");
    assert_eq!(line["workspaceId"], "w");
    assert_eq!(line["process"], "connector");
    assert_eq!(
        (&line["method"], &line["path"]),
        (&json!("POST"), &json!("/"))
    );
    assert_eq!((&line["status"], &line["bytes"]), (&json!(202), &json!(2)));
    assert_eq!(line["eventId"], "e");
    assert!(line["durationMs"].is_u64());

    // An invalid trace starts a new one.
    client.send(&post(&[("traceparent", "00-zz-zz-01")], b"hi"));
    let pending = orchestrator.event();
    let trace = pending.envelope.trace.unwrap();
    assert_ne!(trace.trace_id, caller.trace_id);
    assert_eq!(trace.parent_span_id, None);
    orchestrator.accept(&pending, "e2", false);
    assert_eq!(client.response().json()["traceId"], json!(trace.trace_id));
}

#[test]
fn with_a_secret_every_request_must_be_signed() {
    let secret = "a-secret-nobody-guesses";
    let (mut orchestrator, address) =
        Orchestrator::with_webhook(&json!({}), &json!({"hmac": secret}));
    let body = br#"{"input":"sentence-in-the-body"}"#;
    let signature = signature(secret, body);

    let mut client = Client::connect(address);
    let other = "sha256=00";
    for headers in [
        &[][..],
        &[("x-hub-signature-256", other)],
        &[(
            "x-hub-signature-256",
            signature.trim_start_matches("sha256="),
        )],
    ] {
        client.send(&post(headers, body));
        let response = client.response();
        assert_eq!(response.status, 401);
        assert_eq!(response.error_code(), "not_signed");
        assert!(response.header("www-authenticate").is_some());
    }
    // A signature of another body, and a body that would be refused anyway: both 401.
    client.send(&post(&[("x-hub-signature-256", &signature)], b""));
    assert_eq!(client.response().status, 401);
    orchestrator.ping();

    client.send(&post(&[("x-hub-signature-256", &signature)], body));
    let pending = orchestrator.event();
    assert_eq!(pending.event.input, "sentence-in-the-body");
    orchestrator.accept(&pending, "e", false);
    assert_eq!(client.response().status, 202);

    orchestrator.shutdown();
    let log = orchestrator.rest_of_log();
    assert!(log.contains("request answered"), "{log}");
    for secret in [secret, "sentence-in-the-body", &signature] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}

/// A signature computed independently by this test.
fn signature(secret: &str, body: &[u8]) -> String {
    use hmac::Mac as _;
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

#[test]
fn request_over_the_limit_is_asked_to_retry_later() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let mut waiting: Vec<_> = (0..IN_FLIGHT)
        .map(|n| {
            let client = Client::sending(address, &post(&[], format!("{n}").as_bytes()));
            (client, orchestrator.event())
        })
        .collect();

    let mut surplus = Client::sending(address, &post(&[], b"one more"));
    let response = surplus.response();
    assert_eq!(response.status, 429);
    assert_eq!(response.error_code(), "overloaded");
    assert_eq!(response.header("retry-after"), Some("1"));

    for (client, pending) in &mut waiting {
        orchestrator.accept(pending, &pending.event.input, false);
        assert_eq!(
            client.response().json()["eventId"],
            json!(pending.event.input)
        );
    }
    surplus.send(&post(&[], b"now"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "now", false);
    assert_eq!(surplus.response().status, 202);
}

#[test]
fn disconnecting_client_disturbs_nothing() {
    let (mut orchestrator, address) = Orchestrator::with_webhook(&json!({}), &json!({}));
    let client = Client::sending(address, &post(&[], b"goodbye"));
    let pending = orchestrator.event();
    drop(client);
    let line = orchestrator.log_line("client disconnected before its answer");
    assert_eq!(
        line["traceId"],
        json!(pending.envelope.trace.unwrap().trace_id)
    );
    orchestrator.accept(&pending, "e", false);
    orchestrator.ping();
    let mut other = Client::sending(address, &post(&[], b"hello"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "e2", false);
    assert_eq!(other.response().status, 202);
}
