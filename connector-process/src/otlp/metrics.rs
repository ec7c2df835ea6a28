//! A snapshot of metrics in the JSON encoding of OTLP: 64-bit numbers as strings, cumulative sums.

use goondan_protocol::metrics::{
    Histogram, Label, Labels, Metric, MetricFamily, MetricKind, MetricValue, MetricsSnapshot,
    Micros,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::version::GOONDAN_VERSION;
use serde_json::{Value, json};

use super::wire::{Attribute, attributes};

/// OTLP's cumulative temporality: sums since the start, not since the previous export.
const CUMULATIVE: u8 = 2;

/// The body of a request with a snapshot.
pub(super) fn request(service: &str, snapshot: &MetricsSnapshot) -> String {
    let resource = [
        ("service.name", Attribute::from(service)),
        ("service.version", Attribute::from(GOONDAN_VERSION)),
    ];
    let families = snapshot.families.iter();
    let metrics: Vec<Value> = families.map(|family| metric(family, snapshot)).collect();
    let body = json!({
        "resourceMetrics": [{
            "resource": { "attributes": attributes(&resource) },
            "scopeMetrics": [{
                "scope": { "name": "goondan", "version": GOONDAN_VERSION },
                "metrics": metrics,
            }],
        }],
    });
    body.to_string()
}

/// The name and the unit in OTLP.
fn name_of(metric: Metric) -> (String, &'static str) {
    match metric {
        Metric::GenAiTokenUsage => ("gen_ai.client.token.usage".to_owned(), "{token}"),
        Metric::GenAiOperationDuration => ("gen_ai.client.operation.duration".to_owned(), "s"),
        metric => {
            let unit = match metric.info().unit {
                Some("seconds") => "s",
                Some(unit) => unit,
                None => "1",
            };
            (metric.sample_name(), unit)
        }
    }
}

fn metric(family: &MetricFamily, snapshot: &MetricsSnapshot) -> Value {
    let info = family.metric.info();
    let (name, unit) = name_of(family.metric);
    let points = family.series.iter();
    let points: Vec<Value> = points
        .map(|series| {
            let mut point = match &series.value {
                MetricValue::Number(number) => json!({ "asDouble": double(*number) }),
                MetricValue::Histogram(histogram) => spread(info.bounds, histogram),
            };
            if let Some(fields) = point.as_object_mut() {
                let labels = labels(family.metric, &series.labels);
                fields.insert("attributes".to_owned(), labels);
                fields.insert("timeUnixNano".to_owned(), nanoseconds(snapshot.at));
                // Persistent totals did not start with the daemon.
                if info.kind != MetricKind::Gauge && !family.metric.is_kept() {
                    let start = nanoseconds(snapshot.started_at);
                    fields.insert("startTimeUnixNano".to_owned(), start);
                }
            }
            point
        })
        .collect();
    let data = match info.kind {
        MetricKind::Counter => (
            "sum",
            json!({
                "dataPoints": points,
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
            }),
        ),
        MetricKind::Gauge | MetricKind::Info => ("gauge", json!({ "dataPoints": points })),
        MetricKind::Histogram => (
            "histogram",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }),
        ),
    };
    json!({ "name": name, "description": info.help, "unit": unit, data.0: data.1 })
}

fn spread(bounds: &[Micros], histogram: &Histogram) -> Value {
    let within: u64 = histogram.buckets.iter().sum();
    let beyond = histogram.count.saturating_sub(within);
    let counts = histogram.buckets.iter().chain([&beyond]);
    let counts: Vec<String> = counts.map(ToString::to_string).collect();
    let bounds: Vec<f64> = bounds.iter().copied().map(double).collect();
    json!({
        "count": histogram.count.to_string(),
        "sum": double(histogram.sum),
        "bucketCounts": counts,
        "explicitBounds": bounds,
    })
}

/// The labels as attributes; those of the semantic conventions under their standard names.
fn labels(metric: Metric, labels: &Labels) -> Value {
    let is_gen_ai = matches!(
        metric,
        Metric::GenAiTokenUsage | Metric::GenAiOperationDuration
    );
    let named = labels.iter().map(|(label, value)| {
        let name = match label {
            Label::Workspace => "goondan.workspace.id",
            Label::Agent => "gen_ai.agent.name",
            Label::Model => "gen_ai.request.model",
            Label::GenAiTokenType => "gen_ai.token.type",
            Label::ErrorType => "error.type",
            label => label.as_str(),
        };
        (name, Attribute::from(value))
    });
    let operation = is_gen_ai.then(|| ("gen_ai.operation.name", Attribute::from("chat")));
    let pairs: Vec<(&'static str, Attribute)> = named.chain(operation).collect();
    attributes(&pairs)
}

/// The nearest number in JSON.
fn double(number: Micros) -> f64 {
    number.to_string().parse().unwrap_or(f64::MAX)
}

fn nanoseconds(at: Timestamp) -> Value {
    let ms = u64::try_from(at.as_unix_millis()).unwrap_or(0);
    json!((u128::from(ms) * 1_000_000).to_string())
}

#[cfg(test)]
mod tests {
    use goondan_protocol::metrics::Series;

    use super::*;

    #[test]
    fn obs_3_a_snapshot_is_written_as_otlp_has_it() {
        let mut took = Histogram::default();
        let bounds = Metric::GenAiOperationDuration.info().bounds;
        for ms in [5, 700, 90_000] {
            took.observe(bounds, Micros::millis(ms));
        }
        let labels = Labels::none().with(Label::Model, "hosted");
        let family = |metric, value| MetricFamily {
            metric,
            series: vec![Series {
                labels: labels.clone(),
                value,
            }],
        };
        let number = |number| MetricValue::Number(Micros::millis(number));
        let snapshot = MetricsSnapshot {
            at: Timestamp::from_unix_millis(2_000),
            started_at: Timestamp::from_unix_millis(1_000),
            families: vec![
                family(Metric::Processes, number(3_000)),
                family(Metric::CallsUnknown, number(1_000)),
                family(Metric::Cost, number(250)),
                family(Metric::GenAiOperationDuration, MetricValue::Histogram(took)),
            ],
        };
        let body: Value = serde_json::from_str(&request("shop", &snapshot)).unwrap();
        let resource = &body["resourceMetrics"][0];
        let service = json!({"key": "service.name", "value": {"stringValue": "shop"}});
        assert_eq!(resource["resource"]["attributes"][0], service);
        let metrics = &resource["scopeMetrics"][0]["metrics"];
        let model = json!({"key": "gen_ai.request.model", "value": {"stringValue": "hosted"}});
        let point = json!({
            "attributes": [model],
            "asDouble": 3.0,
            "timeUnixNano": "2000000000",
        });
        assert_eq!(metrics[0]["gauge"]["dataPoints"][0], point);
        let unknown = &metrics[1]["sum"];
        assert_eq!(unknown["isMonotonic"], true);
        assert_eq!(unknown["dataPoints"][0]["startTimeUnixNano"], "1000000000");
        let cost = &metrics[2];
        assert_eq!(
            (&cost["name"], &cost["unit"]),
            (&json!("goondan_cost_usd_total"), &json!("usd"))
        );
        assert_eq!(cost["sum"]["dataPoints"][0].get("startTimeUnixNano"), None);
        let took = &metrics[3];
        assert_eq!(took["name"], "gen_ai.client.operation.duration");
        let point = &took["histogram"]["dataPoints"][0];
        let counts = point["bucketCounts"].as_array().unwrap();
        assert_eq!(counts.len(), bounds.len() + 1);
        assert_eq!(
            (&counts[0], &counts[7], counts.last().unwrap()),
            (&json!("1"), &json!("1"), &json!("1"))
        );
        assert_eq!(
            (&point["count"], &point["sum"]),
            (&json!("3"), &json!(90.705))
        );
    }
}
