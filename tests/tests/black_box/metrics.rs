//! Goal: metrics match what happened, for every reader, despite kills (`OBS-3`).
//!
//! Method: the real binaries and a local provider whose replies use known numbers of tokens; the
//! output is parsed strictly as OpenMetrics, and compared with `gdn usage`, which reads the ledger.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::scrape::Scrape;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

/// One agent, and a model at `provider` with prices and a budget.
fn project(provider: &Provider) -> String {
    let endpoint = provider.endpoint();
    format!(
        r"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {endpoint}
  prices: [{{input: 10, output: 50, cacheRead: 1}}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: office}}
spec:
  entryAgent: Agent/worker
  policy:
    budgets: [{{for: workspace, tokens: 1000000}}]
"
    )
}

#[test]
fn obs_3_turns_replies_and_budgets_are_counted_in_a_whole_file() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let before = Scrape::of(&home);
    let outcome = |outcome| [("agent", "worker"), ("outcome", outcome)];
    // Series exist before their first event, so that queries see them grow.
    for known in ["completed", "failed", "cancelled"] {
        assert_eq!(
            before.sum("goondan_turns_total", &outcome(known)),
            Some(0.0)
        );
    }
    let of_worker = [("agent", "worker")];
    assert_eq!(
        before.sum("goondan_child_crashes_total", &of_worker),
        Some(0.0)
    );
    home.ask("main", "Hi.");
    home.ask("other", "Hi.");
    let after = Scrape::of(&home);
    let sum = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels);
    assert_eq!(sum("goondan_turns_total", &outcome("completed")), Some(2.0));
    assert_eq!(
        sum("goondan_turn_duration_seconds_count", &of_worker),
        Some(2.0)
    );
    assert_eq!(sum("goondan_events_waiting", &of_worker), Some(0.0));
    assert_eq!(
        sum("goondan_event_oldest_age_seconds", &of_worker),
        Some(0.0)
    );
    assert_eq!(sum("goondan_processes", &of_worker), Some(2.0));
    let model = [("model", "hosted")];
    let asked = "gen_ai_client_operation_duration_seconds_count";
    assert_eq!(sum(asked, &model), Some(2.0));
    let output = [("model", "hosted"), ("gen_ai_token_type", "output")];
    assert_eq!(sum("gen_ai_client_token_usage_sum", &output), Some(8.0));
    let budget = [("scope", "workspace"), ("unit", "tokens")];
    assert_eq!(sum("goondan_budget_limit", &budget), Some(1_000_000.0));
    assert_eq!(sum("goondan_budget_spent", &budget), Some(26.0));
    assert_eq!(sum("goondan_budget_reserved", &budget), Some(0.0));
    assert!(sum("goondan_store_sync_seconds_count", &[]) > Some(0.0));
    // No ids: no label contains a conversation, event or turn.
    let labels = after
        .samples
        .iter()
        .flat_map(|sample| sample.labels.values());
    let mut labels = labels.filter(|value| ["main", "other"].contains(&value.as_str()));
    assert_eq!(labels.next(), None);

    let file = home.path().join("goondan.prom");
    let path = file.to_str().unwrap();
    home.gdn(&["metrics", "--output", path])
        .exits(0)
        .prints(&[]);
    let written = Scrape::read(&fs::read_to_string(&file).unwrap());
    assert_eq!(
        written.sum("goondan_turns_total", &outcome("completed")),
        Some(2.0)
    );
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "the collector is another user");
    let nowhere = home.path().join("none/goondan.prom");
    home.gdn(&["metrics", "--output", nowhere.to_str().unwrap()])
        .exits(1)
        .tells(&["cannot write", "--output FILE"]);
    let shown = home.gdn_json(&["metrics"]);
    let turns = shown["metrics"].as_array().unwrap().iter();
    let mut turns = turns.filter(|metric| metric["name"] == "goondan_turns_total");
    let series = turns.next().unwrap()["series"].as_array().unwrap().iter();
    let completed: Vec<&Value> = series
        .filter(|series| series["labels"]["outcome"] == "completed")
        .map(|series| &series["value"])
        .collect();
    assert_eq!(completed, [2]);
    daemon.stop().check(false);
}

/// Metrics about replies in the order of `gdn usage`: replies, all kinds of tokens, millionths of a
/// dollar.
fn counted(scrape: &Scrape) -> [f64; 6] {
    let sum = |name: &str, labels: &[(&str, &str)]| scrape.sum(name, labels).unwrap_or(0.0);
    let tokens = |kind| sum("goondan_tokens_total", &[("token_type", kind)]);
    let cost = sum("goondan_cost_usd_total", &[]) * 1e6;
    [
        sum("goondan_replies_total", &[]),
        tokens("input"),
        tokens("output"),
        tokens("cache_read"),
        tokens("cache_write"),
        cost.round(),
    ]
}

/// The same values from the ledger on disk.
fn ledger(home: &Home) -> [f64; 6] {
    let total = home.gdn_json(&["usage", "--all"])["total"].clone();
    let number = |value: &Value| value.as_f64().unwrap();
    let usage = &total["usage"];
    [
        number(&total["replies"]),
        number(&usage["inputTokens"]),
        number(&usage["outputTokens"]),
        number(&usage["cacheReadTokens"]),
        number(&usage["cacheWriteTokens"]),
        number(&total["costMicroUsd"]),
    ]
}

/// Number of kills of the daemon.
const KILLS: usize = 3;

#[test]
fn obs_3_tokens_and_cost_equal_the_ledger_after_daemon_kills() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let home = Home::new(&project(&provider));
    let mut daemon = Daemon::serving(&home);
    let mut last = [0.0; 6];
    for kill in 0..KILLS {
        home.ask("main", "Hi.");
        // Other turns are in progress when it is killed: some have sent requests, some have
        // replies, some are recorded.
        let asked = provider.received().len();
        let asking: Vec<_> = (0..6)
            .map(|number| {
                let key = format!("c{number}");
                home.start_gdn(&["send", "--instance", &key, "Hi."])
            })
            .collect();
        let until = asked + 1 + kill;
        wait_until("some of them are asked", || {
            provider.received().len() >= until
        });
        daemon.kill();
        daemon = Daemon::serving(&home);
        for asking in asking {
            drop(asking.wait());
        }
        // Pending work continues meanwhile: both are read until nothing happened in between.
        let mut now = [0.0; 6];
        wait_until("both say the same", || {
            now = counted(&Scrape::of(&home));
            now == ledger(&home)
        });
        assert!(
            now[0] > last[0] && now[5] > last[5],
            "{last:?}, then {now:?}"
        );
        assert!(now.iter().zip(last).all(|(now, last)| *now >= last));
        last = now;
    }
    wait_until("nothing waits any more", || {
        let scrape = Scrape::of(&home);
        scrape.sum("goondan_events_waiting", &[]) == Some(0.0)
    });
    assert_eq!(counted(&Scrape::of(&home)), ledger(&home));
    daemon.stop().check(false);
}

#[test]
fn obs_3_crashes_of_processes_are_counted_under_their_agent() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Done."])));
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    home.ask("main", "Hi.");
    for agent in home.running(goondan_tests::home::AGENT) {
        processes::signal(agent.pid, Signal::SIGKILL);
    }
    wait_until("the crash is counted", || {
        let crashes = Scrape::of(&home).sum("goondan_child_crashes_total", &[("agent", "worker")]);
        crashes == Some(1.0)
    });
    daemon.stop().check(false);
}
