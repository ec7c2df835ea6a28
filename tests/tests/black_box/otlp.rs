//! Goal: traces reach a collector as spans of the conventions, without message contents; and a
//! slow, failing or missing collector delays no turn.
//!
//! Method: the real binaries, and a local collector that keeps what it receives.

use std::sync::mpsc::channel;

use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

fn project(model: &Provider, collector: &Provider) -> String {
    let (model, collector) = (model.endpoint(), collector.endpoint());
    let collector = collector.trim_end_matches("/v1");
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {model}
  prices: [{{input: 10, output: 50, cacheRead: 1}}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: traces}}
spec:
  connectorRef: {{kind: Connector, name: otlp, package: "@goondan/base"}}
  config: {{endpoint: "{collector}", serviceName: shop}}
  secrets: {{authorization: {{value: "Bearer t0ken-t0ken"}}}}
"#
    )
}

fn is_ready(home: &Home) -> bool {
    let mut all = home.ps().into_iter();
    let traces = all.find(|process| process["name"] == "traces");
    traces.is_some_and(|traces| {
        traces["detail"]
            .as_str()
            .is_some_and(|d| d.starts_with("exports"))
    })
}

fn spans(collector: &Provider) -> Vec<Value> {
    let bodies = collector.received().into_iter().map(|request| request.body);
    bodies
        .flat_map(|body| {
            let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
            spans.as_array().unwrap().clone()
        })
        .collect()
}

fn attribute(span: &Value, name: &str) -> Value {
    let all = span["attributes"].as_array().unwrap().iter();
    let mut found = all.filter(|attribute| attribute["key"] == name);
    found
        .next()
        .map_or(Value::Null, |attribute| attribute["value"].clone())
}

#[test]
fn collector_gets_turn_and_step_spans_without_message_content() {
    let model = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let collector = Provider::start(|received| match received.number {
        // Rejected data is sent again.
        0 => ProviderResponse::error(503, &json!({})),
        _ => ProviderResponse::error(200, &json!({})),
    });
    let home = Home::new(&project(&model, &collector));
    let daemon = Daemon::serving(&home);
    wait_until("the exporter is ready", || is_ready(&home));
    let sent = home.gdn_json(&["send", "A secret question."]);
    wait_until("the spans are there", || {
        collector.received().len() > 1
            && spans(&collector)
                .iter()
                .any(|s| s["name"] == "invoke_agent worker")
    });
    let spans = spans(&collector);
    let span = |name: &str| {
        spans
            .iter()
            .rfind(|span| span["name"] == name)
            .unwrap()
            .clone()
    };
    let (turn, chat) = (span("invoke_agent worker"), span("chat big-1"));
    assert_eq!(turn["traceId"], sent["traceId"]);
    assert_eq!(chat["parentSpanId"], turn["spanId"]);
    let number = |n: u64| json!({"intValue": n.to_string()});
    assert_eq!(attribute(&chat, "gen_ai.usage.input_tokens"), number(9));
    assert_eq!(attribute(&chat, "gen_ai.usage.output_tokens"), number(4));
    assert_eq!(attribute(&chat, "goondan.cost.micro_usd"), number(263));
    assert_eq!(
        attribute(&chat, "gen_ai.provider.name"),
        json!({"stringValue": "openai"})
    );
    for (name, value) in [
        ("gen_ai.response.id", json!({"stringValue": "chatcmpl-1"})),
        (
            "gen_ai.response.model",
            json!({"stringValue": "big-1-0901"}),
        ),
        (
            "gen_ai.response.finish_reasons",
            json!({"arrayValue": {"values": [{"stringValue": "stop"}]}}),
        ),
        ("server.address", json!({"stringValue": "127.0.0.1"})),
    ] {
        assert_eq!(attribute(&chat, name), value, "{name}");
    }
    let asked = model.received().remove(0);
    let traceparent = asked.header("traceparent").unwrap();
    let (trace, span) = (
        chat["traceId"].as_str().unwrap(),
        chat["spanId"].as_str().unwrap(),
    );
    assert_eq!(traceparent, format!("00-{trace}-{span}-01"));
    assert_eq!(
        attribute(&turn, "gen_ai.conversation.id"),
        json!({"stringValue": "main"})
    );
    let request = collector.received().pop().unwrap();
    assert_eq!(request.path, "/v1/traces");
    assert_eq!(request.header("authorization"), Some("Bearer t0ken-t0ken"));
    let all = format!("{:?}", collector.received());
    assert!(
        !all.contains("secret question") && !all.contains("Done."),
        "{all}"
    );
    assert_eq!(daemon.log().saying("trace events not exported").len(), 0);
    daemon.stop().check(false);
}

#[test]
fn failing_collector_blocks_nothing_and_losses_are_reported() {
    let model = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let (go, wait) = channel::<()>();
    let collector = Provider::start(move |received| {
        if received.number == 0 {
            wait.recv().unwrap();
        }
        ProviderResponse::error(400, &json!({}))
    });
    let home = Home::new(&project(&model, &collector));
    let daemon = Daemon::serving(&home);
    wait_until("the exporter is ready", || is_ready(&home));
    // The collector has the first batch and does not respond.
    for _ in 0..3 {
        assert_eq!(home.ask("main", "Hi."), "Done.");
    }
    wait_until("the collector is asked", || {
        !collector.received().is_empty()
    });
    go.send(()).unwrap();
    let lost = daemon.log().wait_for("the loss is said", |line| {
        line["message"] == "trace events not exported"
    });
    assert!(
        lost["reason"].as_str().unwrap().contains("the collector"),
        "{lost}"
    );
    assert_eq!(home.ask("main", "Hi."), "Done.");
    daemon.stop().check(false);
}
