//! Goal: the usage of model replies is recorded, shown and summed, whichever process is killed.
//!
//! Method: the real binaries, and a local provider whose replies use known numbers of tokens.

use goondan_tests::home::AGENT;
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{Provider, ProviderResponse, openai, openai_delta, openai_saying};
use goondan_tests::{Daemon, Home, wait_until};
use std::sync::mpsc::channel;

use serde_json::{Value, json};

/// Dollars per million tokens; a reply of [`openai_saying`] has 6 input, 3 cached and 4 output
/// tokens.
const PRICES: &str = "prices: [{input: 10, output: 50, cacheRead: 1}]";

/// Cost of such a reply, in millionths of a dollar.
const COST: u64 = 6 * 10 + 3 + 4 * 50;

/// One agent with the tool `bash`, and a model at `provider`.
fn project(provider: &Provider, prices: &str) -> String {
    let endpoint = provider.endpoint();
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {endpoint}
  {prices}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  tools:
    - {{kind: Tool, name: bash, package: "@goondan/base"}}
"#
    )
}

/// A reply that runs a command.
fn calling(command: &str) -> String {
    let arguments = json!({ "command": command }).to_string();
    let function = json!({"name": "bash__exec", "arguments": arguments});
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": function});
    openai(&[
        openai_delta(&json!({"role": "assistant", "tool_calls": [call]})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 2}}),
    ]) + "data: [DONE]\n\n"
}

fn spans(trace: &Value, kind: &str) -> Vec<Value> {
    let spans = trace["spans"].as_array().unwrap().iter();
    spans.filter(|span| span["kind"] == kind).cloned().collect()
}

#[test]
fn tokens_and_cost_are_in_the_record_the_events_and_the_trace() {
    let provider = Provider::start(|received| match received.number {
        0 => ProviderResponse::stream(&calling("echo hi")),
        _ => ProviderResponse::stream(&openai_saying(&["Done."])),
    });
    let home = Home::new(&project(&provider, PRICES));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "Hi."), "Done.");
    let messages = home.history("main");
    let costs: Vec<_> = messages
        .iter()
        .map(|m| &m["metadata"]["costMicroUsd"])
        .collect();
    let first = 100 * 10 + 2 * 50;
    assert_eq!(
        costs,
        [&Value::Null, &json!(first), &Value::Null, &json!(COST)]
    );
    let trace = home.gdn_json(&["trace"]);
    let steps = spans(&trace, "step");
    let known: Vec<_> = steps.iter().map(|step| &step["costMicroUsd"]).collect();
    assert_eq!(known, [&json!(first), &json!(COST)], "{trace}");
    assert_eq!(steps[1]["usage"]["cacheReadTokens"], 3);
    let turn = &spans(&trace, "turn")[0];
    assert_eq!(turn["costMicroUsd"], first + COST);
    assert_eq!(turn["usage"]["outputTokens"], 6);
    assert_eq!(trace["total"]["costMicroUsd"], first + COST);
    let shown = home.gdn(&["trace"]).exits(0).stdout;
    assert!(shown.contains(", 115 tokens, cost $0.001363"), "{shown}");
    assert!(shown.contains("$0.0011 "), "{shown}");
    daemon.stop().check(false);
}

#[test]
fn without_a_price_the_cost_is_unknown_and_not_nothing() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let home = Home::new(&project(&provider, ""));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "Hi."), "Done.");
    let message = &home.history("main")[1];
    assert_eq!(message["metadata"].get("costMicroUsd"), None);
    let shown = home.gdn(&["trace"]).exits(0).stdout;
    assert!(shown.contains(", 13 tokens, cost unknown"), "{shown}");
    daemon.stop().check(false);
}

fn total(home: &Home) -> Value {
    home.gdn_json(&["usage"])["total"].clone()
}

#[test]
fn every_reply_is_counted_once_over_kills_and_after_deletion() {
    let (go, wait) = channel::<()>();
    let provider = Provider::start(move |received| {
        if received.number == 1 {
            wait.recv().unwrap();
        }
        ProviderResponse::stream(&openai_saying(&["Done."]))
    });
    let home = Home::new(&project(&provider, PRICES));
    let daemon = Daemon::serving(&home);
    home.ask("one", "Hi.");
    // The agent is killed while its reply is in flight: its successor gets the same reply.
    let asking = home.start_gdn(&["send", "--instance", "two", "Hi."]);
    wait_until("the provider is asked", || provider.received().len() == 2);
    let agents = home.running(AGENT);
    for agent in agents {
        processes::signal(agent.pid, Signal::SIGKILL);
    }
    daemon
        .log()
        .wait_for("the turn is handed over again", |line| {
            message(line) == "turn started again"
        });
    go.send(()).unwrap();
    asking.wait().exits(0);
    assert_eq!(total(&home)["replies"], 2);
    // The daemon is killed too; its successor reads the recorded state.
    daemon.kill();
    let daemon = Daemon::serving(&home);
    home.ask("one", "Again.");
    home.gdn(&["instance", "delete", "two", "--yes"]).exits(0);
    let total = total(&home);
    assert_eq!(total["replies"], 3, "{total}");
    assert_eq!(total["costMicroUsd"], 3 * COST);
    assert_eq!(provider.received().len(), 3);
    let shown = home.gdn(&["usage", "--by", "instance"]).exits(0).stdout;
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "CONVERSATION",
            "AGENT",
            "REPLIES",
            "IN",
            "CACHED",
            "OUT",
            "COST"
        ]
    );
    assert_eq!(rows[1], ["one", "worker", "2", "18", "6", "8", "$0.000526"]);
    assert_eq!(rows[2], ["two", "worker", "1", "9", "3", "4", "$0.000263"]);
    assert_eq!(rows[3][..2], ["total", "3"]);
    let since = home.gdn_json(&["usage", "--by", "day", "--since", "2d"]);
    assert_eq!(since["total"]["replies"], 3);
    let later = home.gdn_json(&["usage", "--since", "2999-01-01"]);
    assert_eq!(later["rows"], json!([]));
    home.gdn(&["verify"]).exits(0);
    daemon.stop().check(false);
}

/// A reply with this token usage.
fn taking(tokens: u64) -> String {
    openai(&[
        openai_delta(&json!({"role": "assistant", "content": "Done."})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": tokens - 1, "completion_tokens": 1}}),
    ]) + "data: [DONE]\n\n"
}

#[test]
fn budget_warns_once_blocks_before_excess_and_survives_restart() {
    let provider = Provider::start(|_| ProviderResponse::stream(&taking(4_300)));
    let bounded = format!("params: {{maxTokens: 500}}\n  {PRICES}");
    let budgets = "  budgets: [{for: instance, tokens: 9000}, {for: agent, per: day, cost: 5}]\n";
    let home = Home::new(&(project(&provider, &bounded) + budgets));
    let daemon = Daemon::serving(&home);
    for _ in 0..2 {
        assert_eq!(home.ask("main", "Hi."), "Done.");
    }
    let refused = home.gdn(&["send", "--instance", "main", "Hi."]);
    let refused = refused.tells(&[
        "E_BUDGET",
        "the budget of 9000 tokens for conversation `main` does not allow this call: 8600 tokens spent",
        "start a new conversation",
    ]);
    assert_ne!(refused.code, 0);
    let warned = daemon.log().saying("budget nearly spent");
    assert_eq!(warned.len(), 1, "{warned:?}");
    let budget = warned[0]["budget"].as_str().unwrap();
    assert!(
        budget.ends_with("conversation `main` is spent to 95 %: 8600 tokens"),
        "{budget}"
    );
    // Usage is durable; another conversation has a separate budget.
    daemon.kill();
    let daemon = Daemon::serving(&home);
    home.gdn(&["send", "--instance", "main", "Hi."])
        .tells(&["E_BUDGET"]);
    assert_eq!(home.ask("other", "Hi."), "Done.");
    assert_eq!(provider.received().len(), 3);
    assert_eq!(daemon.log().saying("budget nearly spent").len(), 0);
    let usage = home.gdn_json(&["usage"]);
    let states = usage["budgets"].as_array().unwrap().iter();
    let states: Vec<_> = states
        .map(|state| {
            (
                &state["scope"],
                &state["instanceKey"],
                &state["limit"],
                &state["spent"],
            )
        })
        .collect();
    let tokens = |tokens: u64| json!({ "tokens": tokens });
    assert_eq!(
        states,
        [
            (
                &json!("instance"),
                &json!("main"),
                &tokens(9_000),
                &tokens(8_600)
            ),
            (
                &json!("instance"),
                &json!("other"),
                &tokens(9_000),
                &tokens(4_300)
            ),
            (
                &json!("agent"),
                &Value::Null,
                &json!({"microUsd": 5_000_000}),
                &json!({"microUsd": 3 * (4_299 * 10 + 50)})
            ),
        ]
    );
    let shown = home.gdn(&["usage"]).exits(0).stdout;
    assert!(shown.contains("conversation main"), "{shown}");
    daemon.stop().check(false);
}

#[test]
fn usage_of_a_declined_request_counts_too() {
    let declined = openai(&[
        openai_delta(&json!({"role": "assistant"})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 4_299, "completion_tokens": 1}}),
    ]) + "data: [DONE]\n\n";
    let provider = Provider::start(move |_| ProviderResponse::stream(&declined));
    let bounded = format!("params: {{maxTokens: 500}}\n  {PRICES}");
    let budgets = "  budgets: [{for: instance, tokens: 9000}]\n";
    let home = Home::new(&(project(&provider, &bounded) + budgets));
    let daemon = Daemon::serving(&home);
    for _ in 0..2 {
        home.gdn(&["send", "Hi."])
            .exits(7)
            .tells(&["E_MODEL_REFUSED"]);
    }
    wait_until("it is counted", || total(&home)["replies"] == 2);
    assert_eq!(total(&home)["costMicroUsd"], 2 * (4_299 * 10 + 50));
    home.gdn(&["send", "Hi."])
        .exits(7)
        .tells(&["E_BUDGET", "8600 tokens spent"]);
    assert_eq!(provider.received().len(), 2);
    daemon.kill();
    let daemon = Daemon::serving(&home);
    assert_eq!(total(&home)["replies"], 2);
    daemon.stop().check(false);
}

#[test]
fn delegated_work_counts_against_the_budget_of_the_requester() {
    let provider = Provider::start(|_| ProviderResponse::stream(&taking(900)));
    let boss = r#"---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: boss}
spec:
  provider: scripted
  options:
    rules:
      - when: {step: 1}
        call: [{tool: agents__request, args: {agent: worker, input: "Do it."}}]
      - say: "${result}"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: boss}
spec:
  modelConfig: {modelRef: Model/boss}
  tools: [{kind: Tool, name: agents, package: "@goondan/base"}]
  budgets: [{for: instance, tokens: 2000}]
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec: {entryAgent: Agent/boss}
"#;
    let home = Home::new(&(project(&provider, "params: {maxTokens: 100}") + boss));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "Go."), "Done.");
    assert_eq!(home.ask("main", "Go."), "Done.");
    let refused = home.ask("main", "Go.");
    assert!(
        refused.contains("2000 tokens for conversation `main`"),
        "{refused}"
    );
    // The worker itself has no budget, and the usage of other conversations does not count.
    assert_eq!(home.ask("another", "Go."), "Done.");
    let asked = ["send", "--agent", "worker", "--instance", "main", "Hi."];
    assert_eq!(home.gdn(&asked).exits(0).stdout, "Done.\n");
    assert_eq!(provider.received().len(), 4);
    daemon.stop().check(false);
}
