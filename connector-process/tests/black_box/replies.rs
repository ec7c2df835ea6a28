//! A client posts an event to a webhook and waits for the agent's reply.

use std::net::SocketAddr;

use goondan_connector_process::limits::REPLY_WAITERS_MAX;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::reply::Reply;
use serde_json::{Value, json};

use crate::http::{Client, post};
use crate::orchestrator::Orchestrator;

/// Longer than any test.
const LONG: u64 = 600_000;

fn webhook(timeout_ms: u64) -> (Orchestrator, SocketAddr) {
    let config = json!({"reply": {"wait": {"timeoutMs": timeout_ms}}});
    Orchestrator::with_webhook(&config, &json!({}))
}

/// Posts an event that is accepted and waits for its reply: the client, and the reply request.
fn waiting(orchestrator: &mut Orchestrator, address: SocketAddr, id: &str) -> (Client, u64) {
    let client = Client::sending(address, &post(&[("x-goondan-event-id", id)], b"hi"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, id, false);
    let (request, asked) = orchestrator.reply_await();
    assert_eq!(asked.event_id.as_str(), id);
    assert_eq!(asked.instance_key.as_str(), "hook:k");
    (client, request)
}

fn over(reply: &str) -> Reply {
    let reply = reply.to_owned();
    Reply::Over {
        outcome: TurnOutcome::Completed { reply },
    }
}

#[test]
fn msg_13_a_caller_hears_the_reply_once_its_turn_is_over() {
    let (mut orchestrator, address) = webhook(LONG);
    let (mut client, request) = waiting(&mut orchestrator, address, "e1");
    orchestrator.ping();
    client.expect_nothing_yet();
    orchestrator.reply(request, over("hello"));
    let response = client.response();
    assert_eq!(response.status, 200);
    let body = response.json();
    let expected = json!({"status": "completed", "reply": "hello"});
    assert_eq!(
        (&body["eventId"], &body["duplicate"], &body["outcome"]),
        (&json!("e1"), &json!(false), &expected)
    );
    // Without a turn for now, the event is accepted anyway.
    for reply in [
        Reply::Open {
            message: "parked: /home/ada".to_owned(),
        },
        Reply::Unknown {},
    ] {
        let (mut client, request) = waiting(&mut orchestrator, address, "e2");
        orchestrator.reply(request, reply);
        let response = client.response();
        assert_eq!(response.status, 202);
        assert_eq!(response.json()["eventId"], "e2");
        assert_eq!(response.json().get("outcome"), None::<&Value>);
    }
}

#[test]
fn msg_13_caller_that_times_out_or_leaves_is_no_longer_awaited() {
    let (mut orchestrator, address) = webhook(20);
    let (mut client, request) = waiting(&mut orchestrator, address, "e1");
    let response = client.response();
    assert_eq!(
        (response.status, &response.json()["eventId"]),
        (202, &json!("e1"))
    );
    assert_eq!(orchestrator.reply_forget(), [request]);
    // A late reply is ignored.
    orchestrator.reply(request, over("late"));
    orchestrator.ping();

    let (mut orchestrator, address) = webhook(LONG);
    let (client, request) = waiting(&mut orchestrator, address, "e2");
    drop(client);
    assert_eq!(orchestrator.reply_forget(), [request]);

    // A stopping connector does not wait for an agent either.
    let (mut client, _) = waiting(&mut orchestrator, address, "e3");
    orchestrator.shutdown();
    assert_eq!(client.response().status, 202);
    while !matches!(orchestrator.receive().1, ToOrchestrator::ShutdownAck(_)) {}
}

#[test]
fn sec_8_reply_waiters_are_bounded_and_delay_no_requests() {
    let (mut orchestrator, address) = webhook(LONG);
    let mut clients: Vec<(Client, u64)> = (0..REPLY_WAITERS_MAX)
        .map(|n| waiting(&mut orchestrator, address, &format!("e{n}")))
        .collect();
    let mut further = Client::sending(address, &post(&[], b"hi"));
    let pending = orchestrator.event();
    orchestrator.accept(&pending, "further", false);
    assert_eq!(further.response().status, 202);
    orchestrator.ping();
    // A slot is free again once a client has its reply.
    let (mut first, request) = clients.remove(0);
    orchestrator.reply(request, over("hello"));
    assert_eq!(first.response().status, 200);
    let (mut next, request) = waiting(&mut orchestrator, address, "next");
    orchestrator.reply(request, over("hello"));
    assert_eq!(next.response().status, 200);
}
