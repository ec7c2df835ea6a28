//! `docs/operations/`: the daemon emits the metrics in rules and dashboard, and each rule is
//! explained.

use std::collections::BTreeSet;

use goondan_protocol::metrics::{Metric, MetricKind};
use goondan_tests::alerts::rules;
use goondan_tests::promql::Expression;
use serde_json::Value;

use crate::pages::{Page, repository};

/// Sample names with their allowed labels.
fn known(name: &str) -> Option<BTreeSet<&'static str>> {
    Metric::ALL.iter().find_map(|metric| {
        let info = metric.info();
        let ends: &[&str] = match info.kind {
            MetricKind::Histogram => &["_bucket", "_count", "_sum"],
            MetricKind::Counter | MetricKind::Gauge | MetricKind::Info => &[""],
        };
        let is_it = ends
            .iter()
            .any(|end| format!("{}{end}", metric.sample_name()) == name);
        let labels = info.labels.iter().map(|label| label.as_str());
        let bound = name.ends_with("_bucket").then_some("le");
        is_it.then(|| labels.chain(bound).collect())
    })
}

fn check(expression: &str) {
    Expression::read(expression).names(&mut |name, labels| {
        let known = known(name).unwrap_or_else(|| panic!("no metric `{name}`: {expression}"));
        for label in labels {
            assert!(
                known.contains(label.as_str()),
                "`{name}` has no `{label}`: {expression}"
            );
        }
    });
}

#[test]
fn obs_3_alert_rules_query_existing_metrics_and_are_explained() {
    let rules = rules();
    assert_eq!(rules.len(), 11);
    let page = std::fs::read_to_string(repository().join("docs/operations/alerts.md")).unwrap();
    let explained: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(explained, names);
    for rule in &rules {
        check(&rule.expression);
    }
}

#[test]
fn obs_3_dashboard_queries_only_and_all_existing_metrics() {
    let path = repository().join("docs/operations/dashboard.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            check(expression);
            Expression::read(expression).names(&mut |name, _| {
                asked.insert(name.to_owned());
            });
        }
    }
    let is_asked = |metric: &&Metric| {
        let name = metric.sample_name();
        asked.iter().any(|asked| asked.starts_with(&name))
    };
    let left_out: Vec<&Metric> = Metric::ALL
        .iter()
        .filter(|metric| !is_asked(metric))
        .collect();
    // Metrics that other panels already show.
    let known = [
        &Metric::WorkspaceProblem,
        &Metric::Replies,
        &Metric::GenAiTokenUsage,
    ];
    assert_eq!(left_out, known);
}

#[test]
fn operations_links_to_the_alerts_page() {
    let page = Page::read("docs/operations.md");
    assert!(
        page.section("## Monitoring")
            .prose()
            .contains("operations/alerts.md")
    );
}
