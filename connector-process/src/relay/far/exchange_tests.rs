//! Tests of the open requests between a connector and its relay.

use serde_json::{Value, json};

use super::*;

fn exchange() -> OpenExchanges {
    OpenExchanges::new("connector:hook".parse().unwrap())
}

fn moment() -> (Instant, Uuid) {
    (Instant::now(), Uuid::from_u128(7))
}

fn event(request: u64, id: Option<&str>) -> Vec<u8> {
    let mut payload = json!({"name": "request", "input": "hi"});
    if let Some(id) = id {
        payload["id"] = json!(id);
    }
    frame("event", &json!({"id": request}), &payload)
}

fn frame(kind: &str, head: &Value, payload: &Value) -> Vec<u8> {
    let mut envelope =
        json!({"type": kind, "from": "connector:hook", "to": "orchestrator", "payload": payload});
    for (name, value) in head.as_object().unwrap() {
        envelope[name] = value.clone();
    }
    envelope.to_string().into_bytes()
}

fn read(frame: &[u8]) -> Value {
    serde_json::from_slice(frame).unwrap()
}

fn numbers(frames: &[Bytes]) -> Vec<u64> {
    let numbers = frames.iter().filter_map(|it| read(it)["id"].as_u64());
    numbers.collect()
}

fn accepted(number: u64) -> Vec<u8> {
    let payload = json!({"eventId": "e", "duplicate": false});
    frame("event.accepted", &json!({"inReplyTo": number}), &payload)
}

#[tokio::test]
async fn msg_13_unanswered_event_is_resent_on_next_link_with_same_id() {
    let mut exchange = exchange();
    let first = exchange.of_connector(&event(40, None), moment()).unwrap();
    let second = exchange
        .of_connector(&event(41, Some("mine")), moment())
        .unwrap();
    let sent = [&first.to_relay[0], &second.to_relay[0]].map(|frame| read(frame));
    // An event without an id gets one, and keeps it when sent again.
    assert_eq!(sent[0]["payload"]["id"], Uuid::from_u128(7).to_string());
    assert_eq!(sent[1]["payload"]["id"], "mine");
    assert_eq!(exchange.lose_link().unwrap(), Vec::<Bytes>::new());
    let again: Vec<Value> = exchange
        .again()
        .unwrap()
        .iter()
        .map(|it| read(it))
        .collect();
    assert_eq!(again, sent);

    let answer = exchange
        .of_relay(&accepted(sent[0]["id"].as_u64().unwrap()))
        .unwrap();
    assert_eq!(read(&answer.to_connector[0])["inReplyTo"], 40);
    assert_eq!(exchange.again().unwrap().len(), 1);
    // A late answer of an earlier link is ignored.
    let late = exchange
        .of_relay(&accepted(sent[0]["id"].as_u64().unwrap()))
        .unwrap();
    assert!(late.to_connector.is_empty());
}

#[tokio::test]
async fn conn_1_relay_counts_what_its_connector_ignores() {
    let event = frame("event.ignored", &json!({}), &json!({"reason": "ping"}));
    let frames = exchange().of_connector(&event, moment()).unwrap();
    let passed_on = read(&frames.to_relay[0]);
    assert_eq!(passed_on["type"], "event.ignored");
    assert_eq!(passed_on["payload"], json!({"reason": "ping"}));
}

#[tokio::test(start_paused = true)]
async fn event_unanswered_in_time_is_refused_and_can_be_sent_again() {
    let mut exchange = exchange();
    exchange
        .of_connector(&event(1, Some("e")), moment())
        .unwrap();
    let wait = json!({"instanceKey": "hook:k", "eventId": "e"});
    let wait = frame("reply.await", &json!({"id": 2}), &wait);
    exchange.of_connector(&wait, moment()).unwrap();
    assert!(exchange.expire(Instant::now()).unwrap().is_empty());
    goondan_clock::sleep(Duration::from_millis(REPLY_TIMEOUT_MS)).await;
    let refused = exchange.expire(Instant::now()).unwrap();
    assert_eq!(refused.len(), 1);
    let refused = read(&refused[0]);
    assert_eq!(
        (&refused["inReplyTo"], &refused["payload"]["code"]),
        (&json!(1), &json!("unavailable"))
    );
    // A reply request stays open for the entire turn, unless it is withdrawn.
    let waits = numbers(&exchange.again().unwrap());
    assert_eq!(waits.len(), 1);
    let forget = frame("reply.forget", &json!({}), &json!({"requestIds": [2]}));
    let forgotten = exchange.of_connector(&forget, moment()).unwrap();
    assert_eq!(
        read(&forgotten.to_relay[0])["payload"]["requestIds"],
        json!(waits)
    );
    assert!(exchange.again().unwrap().is_empty() && exchange.open_bytes == 0);
}

#[tokio::test]
async fn relay_calls_have_own_numbers_and_end_with_link_or_connector() {
    let mut exchange = exchange();
    let call = |call_id: u64| {
        let payload = json!({"callId": call_id, "caller": {"agent": "a", "instanceKey": "k"},
            "method": "send", "params": {}, "deadlineMs": 1000});
        frame("call", &json!({}), &payload)
    };
    let result = |call_id: &Value| {
        let payload = json!({"callId": call_id, "outcome": {"ok": 1}});
        frame("call.result", &json!({}), &payload)
    };
    let told = exchange.of_relay(&call(5)).unwrap().to_connector;
    let old = read(&told[0])["payload"]["callId"].clone();
    let cancelled = exchange.lose_link().unwrap();
    assert_eq!(read(&cancelled[0])["payload"]["callId"], old);
    // A restarted relay counts from the start again, and the result of the earlier call arrives
    // late.
    let told = exchange.of_relay(&call(5)).unwrap().to_connector;
    let new = read(&told[0])["payload"]["callId"].clone();
    assert_ne!(old, new);
    assert!(
        exchange
            .of_connector(&result(&old), moment())
            .unwrap()
            .to_relay
            .is_empty()
    );
    let ended = exchange.of_connector(&result(&new), moment()).unwrap();
    assert_eq!(read(&ended.to_relay[0])["payload"]["callId"], 5);

    exchange.of_relay(&call(6)).unwrap();
    let told = exchange.lose_connector("was killed by signal 9").unwrap();
    let error = &read(&told[0])["payload"]["outcome"]["error"];
    assert_eq!(
        (&error["code"], &error["outcomeUnknown"]),
        (&json!("interrupted"), &json!(true))
    );
    assert_eq!(read(&told[1])["payload"]["ready"], false);
}

#[tokio::test]
async fn unanswered_relay_events_are_bounded() {
    let mut exchange = exchange();
    for request in 0..u64::try_from(RELAY_UNANSWERED_MAX).unwrap() {
        let frames = exchange
            .of_connector(&event(request, Some("e")), moment())
            .unwrap();
        assert_eq!(frames.to_relay.len(), 1);
    }
    let frames = exchange
        .of_connector(&event(9_999, Some("e")), moment())
        .unwrap();
    assert!(frames.to_relay.is_empty());
    assert_eq!(
        read(&frames.to_connector[0])["payload"]["code"],
        "unavailable"
    );
}

#[tokio::test]
async fn unexpected_frame_ends_the_relay_link_or_the_connector() {
    let mut exchange = exchange();
    for kind in ["turn.append", "call", "nonsense"] {
        let event = frame(kind, &json!({"id": 1}), &json!({}));
        assert!(exchange.of_connector(&event, moment()).is_err(), "{kind}");
    }
    for kind in ["welcome", "turn.committed", "nonsense"] {
        assert!(
            exchange
                .of_relay(&frame(kind, &json!({}), &json!({})))
                .is_err(),
            "{kind}"
        );
    }
    assert!(exchange.of_connector(b"garbage", moment()).is_err());
    // An event that cannot be answered is rejected.
    let event = frame("event", &json!({}), &json!({"name": "n", "input": "i"}));
    assert!(exchange.of_connector(&event, moment()).is_err());
    let asked = json!({"callId": 1, "message": "?", "schema": {}, "timeoutMs": 1});
    let asked = frame("question.ask", &json!({"id": 3}), &asked);
    let refused = exchange.of_connector(&asked, moment()).unwrap();
    assert_eq!(read(&refused.to_connector[0])["type"], "question.refused");
}
