//! Goal: the endpoint and the collector receive the same as `gdn daemon metrics`, and no other workspace's
//! data (`OBS-3`).
//!
//! Method: the real binaries with two workspaces, an HTTP client, and a local collector.

use goondan_tests::projects::LAB;
use goondan_tests::provider::{Provider, ProviderResponse};
use goondan_tests::scrape::Scrape;
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::{Value, json};

fn connection(name: &str, connector: &str, config: &str) -> String {
    format!(
        "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}}}\nspec:\n  connectorRef: {{kind: \
         Connector, name: {connector}, package: \"@goondan/base\"}}\n  config: {config}\n"
    )
}

const COMPLETED: [(&str, &str); 2] = [("agent", "worker"), ("outcome", "completed")];

#[test]
fn obs_3_prometheus_endpoint_serves_only_its_own_workspace() {
    let endpoint = connection("metrics", "metrics", "{port: 0}");
    let home = Home::new(&format!("{LAB}{endpoint}"));
    let daemon = Daemon::serving(&home);
    let other = LAB.replace("name: worker", "name: stranger");
    let other = other.replace("Agent/worker", "Agent/stranger");
    home.write("other/goondan.yaml", &home.filled_in(&other));
    let other = home.path().join("other");
    home.gdn(&["--project", other.to_str().unwrap(), "run"])
        .exits(0);
    home.ask("main", "echo hi");
    let address = daemon.webhook("metrics");
    assert!(address.ip().is_loopback());
    let told = http::get(address, "/metrics").unwrap();
    assert_eq!(told.status, 200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(told.header("content-type"), Some(kind));
    let scrape = Scrape::read(&told.body);
    assert_eq!(scrape.sum("goondan_turns_total", &COMPLETED), Some(1.0));
    assert!(scrape.sum("goondan_store_sync_seconds_count", &[]) > Some(0.0));
    assert!(!told.body.contains("stranger"), "{}", told.body);
    let all = Scrape::of(&home);
    let stranger = all.sum("goondan_turns_total", &[("agent", "stranger")]);
    assert_eq!(
        stranger,
        Some(0.0),
        "gdn, which has control rights, is shown everything"
    );
    // The next response is at most a second old.
    home.ask("main", "echo hi");
    wait_until("the next turn is reported", || {
        let page = http::get(address, "/metrics").unwrap();
        Scrape::read(&page.body).sum("goondan_turns_total", &COMPLETED) == Some(2.0)
    });
    assert_eq!(http::get(address, "/").unwrap().status, 404);
    for name in [
        "goondan_disk_free_bytes",
        "goondan_open_files",
        "goondan_memory_used_bytes",
        "goondan_system_tasks_limit",
    ] {
        assert!(all.sum(name, &[]) > Some(0.0), "{name}");
    }
    let older = http::request(
        address,
        "GET",
        "/metrics",
        &[("accept", "text/plain;version=0.0.4")],
        "",
    );
    let older = older.unwrap();
    let kind = older.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(!older.body.contains("# EOF"), "{}", older.body);
    assert!(older.body.contains("# TYPE goondan_turns_total counter"));
    let head = http::request(address, "HEAD", "/metrics", &[], "").unwrap();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let posted = http::post(address, "/metrics", &[], "x").unwrap();
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET")));

    // A daemon with an invalid configuration is alive, and not ready.
    let status = |path: &str| http::get(address, path).unwrap().status;
    assert_eq!((status("/livez"), status("/readyz")), (200, 200));
    home.write("project/goondan.yaml", "kind: [");
    home.gdn(&["reload"]);
    wait_until("the workspace is not ready", || status("/readyz") == 503);
    assert_eq!(status("/livez"), 200);
    let told = http::get(address, "/readyz").unwrap();
    assert!(
        told.body.contains("configuration cannot run"),
        "{}",
        told.body
    );
    daemon.stop().check(false);
}

/// The points of a metric in the latest export.
fn points(collector: &Provider, name: &str) -> Vec<Value> {
    let received = collector.received();
    let mut received = received.iter().rev();
    let Some(latest) = received.find(|request| request.path.ends_with("/v1/metrics")) else {
        return Vec::new();
    };
    let metrics = &latest.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let mut metrics = metrics.as_array().unwrap().iter();
    let Some(metric) = metrics.find(|metric| metric["name"] == name) else {
        return Vec::new();
    };
    let kinds = ["sum", "gauge", "histogram"].into_iter();
    let points = kinds.filter_map(|kind| metric[kind]["dataPoints"].as_array());
    points.flatten().cloned().collect()
}

#[test]
fn obs_3_otlp_collector_gets_the_same_metrics_after_an_outage() {
    let mut refused = 0;
    let collector = Provider::start(move |_| {
        refused += 1;
        match refused {
            1 => ProviderResponse::error(400, &json!({})),
            _ => ProviderResponse::error(200, &json!({})),
        }
    });
    let endpoint = collector.endpoint();
    let endpoint = endpoint.trim_end_matches("/v1");
    let config = format!("{{endpoint: \"{endpoint}\", metricsSeconds: 1}}");
    let exporter = connection("collector", "otlp", &config);
    let home = Home::new(&format!("{LAB}{exporter}"));
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo hi");
    let label = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
    let completed = || {
        let points = points(&collector, "goondan_turns_total").into_iter();
        points.filter(|point| {
            let labels = point["attributes"].as_array().unwrap();
            labels.contains(&label("gen_ai.agent.name", "worker"))
                && labels.contains(&label("outcome", "completed"))
        })
    };
    wait_until("the turn is reported", || {
        completed().any(|point| point["asDouble"] == 1.0)
    });
    let took = points(&collector, "goondan_turn_duration_seconds");
    assert_eq!(took[0]["count"], "1", "{took:?}");
    let build = points(&collector, "goondan_build_info");
    assert_eq!(build[0]["asDouble"], 1.0);
    daemon.stop().check(false);
}
