//! Formats a snapshot as text: as OpenMetrics 1.0, which Prometheus and the textfile collector of
//! `node_exporter` read, and in the older text format of Prometheus.

use super::{Label, Labels, Metric, MetricKind, MetricValue, MetricsSnapshot, Series};

/// Value of `Content-Type` for [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Approximate length of a line, in bytes.
const LINE_BYTES: usize = 160;

/// Value of `Content-Type` for [`prometheus_text`].
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The two formats. They differ in the headers of families and in the end of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    OpenMetrics,
    Prometheus,
}

/// Formats a snapshot as OpenMetrics 1.0.
#[must_use]
pub fn text(snapshot: &MetricsSnapshot) -> String {
    format_text(snapshot, Format::OpenMetrics) + "# EOF\n"
}

/// Formats a snapshot in the text format 0.0.4 of Prometheus.
#[must_use]
pub fn prometheus_text(snapshot: &MetricsSnapshot) -> String {
    format_text(snapshot, Format::Prometheus)
}

fn format_text(snapshot: &MetricsSnapshot, format: Format) -> String {
    let families = snapshot.families.iter();
    let lines: usize = families
        .map(|family| family.series.len() * family.metric.lines_per_series())
        .sum();
    let mut out = String::with_capacity(lines * LINE_BYTES);
    for family in &snapshot.families {
        head(&mut out, family.metric, format);
        for series in &family.series {
            samples(&mut out, family.metric, series);
        }
    }
    out
}

/// Suffix of the sample names of a family, except for histograms.
fn sample_suffix(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "_total",
        MetricKind::Info => "_info",
        MetricKind::Gauge | MetricKind::Histogram => "",
    }
}

fn head(out: &mut String, metric: Metric, format: Format) {
    let info = metric.info();
    if format == Format::Prometheus {
        // In this format a family has the name of its samples, and the type `info` does not exist.
        let name = format!("{}{}", info.name, sample_suffix(info.kind));
        let kind = match info.kind {
            MetricKind::Info => MetricKind::Gauge,
            kind => kind,
        };
        out.push_str(&format!("# HELP {name} {}\n", info.help));
        out.push_str(&format!("# TYPE {name} {}\n", kind.as_str()));
        return;
    }
    out.push_str(&format!("# TYPE {} {}\n", info.name, info.kind.as_str()));
    if let Some(unit) = info.unit {
        out.push_str(&format!("# UNIT {} {unit}\n", info.name));
    }
    out.push_str(&format!("# HELP {} {}\n", info.name, info.help));
}

fn samples(out: &mut String, metric: Metric, series: &Series) {
    let info = metric.info();
    match &series.value {
        MetricValue::Number(number) => {
            out.push_str(info.name);
            out.push_str(sample_suffix(info.kind));
            labels(out, &series.labels, None);
            out.push_str(&format!(" {number}\n"));
        }
        MetricValue::Histogram(histogram) => {
            let mut so_far: u64 = 0;
            for (bound, count) in info.bounds.iter().zip(&histogram.buckets) {
                so_far = so_far.saturating_add(*count);
                out.push_str(info.name);
                out.push_str("_bucket");
                labels(out, &series.labels, Some(&bound_text(&bound.to_string())));
                out.push_str(&format!(" {so_far}\n"));
            }
            out.push_str(info.name);
            out.push_str("_bucket");
            labels(out, &series.labels, Some("+Inf"));
            out.push_str(&format!(" {}\n", histogram.count));
            out.push_str(info.name);
            out.push_str("_count");
            labels(out, &series.labels, None);
            out.push_str(&format!(" {}\n", histogram.count));
            out.push_str(info.name);
            out.push_str("_sum");
            labels(out, &series.labels, None);
            out.push_str(&format!(" {}\n", histogram.sum));
        }
    }
}

/// Formats a bound as an OpenMetrics floating-point number: with a decimal point.
fn bound_text(number: &str) -> String {
    if number.contains('.') {
        number.to_owned()
    } else {
        format!("{number}.0")
    }
}

fn labels(out: &mut String, labels: &Labels, bound: Option<&str>) {
    let named = labels
        .iter()
        .map(|(label, value)| (Label::as_str(label), value));
    let bound = bound.map(|bound| ("le", bound));
    let mut is_first = true;
    for (name, value) in named.chain(bound) {
        out.push(if is_first { '{' } else { ',' });
        is_first = false;
        out.push_str(name);
        out.push_str("=\"");
        for char in value.chars() {
            match char {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                other => out.push(other),
            }
        }
        out.push('"');
    }
    if !is_first {
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Histogram, MetricFamily, Micros};
    use crate::time::Timestamp;

    #[test]
    fn obs_3_a_snapshot_is_written_as_open_metrics_has_it() {
        let mut sync = Histogram::default();
        for micros in [100, 900, 9_000_000] {
            sync.observe(Metric::StoreSync.info().bounds, Micros(micros));
        }
        let turns = Labels::none()
            .with(Label::Workspace, "srv_\"bot\"__no\\package")
            .with(Label::Outcome, "failed");
        let family = |metric, labels, value| MetricFamily {
            metric,
            series: vec![Series { labels, value }],
        };
        let snapshot = MetricsSnapshot {
            at: Timestamp::from_unix_millis(0),
            started_at: Timestamp::from_unix_millis(0),
            families: vec![
                family(Metric::Turns, turns, MetricValue::Number(Micros::whole(3))),
                family(
                    Metric::StoreSync,
                    Labels::none(),
                    MetricValue::Histogram(sync),
                ),
            ],
        };
        let expected = "\
# TYPE goondan_turns counter
# HELP goondan_turns Committed turns.
goondan_turns_total{workspace=\"srv_\\\"bot\\\"__no\\\\package\",outcome=\"failed\"} 3
# TYPE goondan_store_sync_seconds histogram
# UNIT goondan_store_sync_seconds seconds
# HELP goondan_store_sync_seconds Duration of syncs of files and directories.
goondan_store_sync_seconds_bucket{le=\"0.00025\"} 1
goondan_store_sync_seconds_bucket{le=\"0.001\"} 2
goondan_store_sync_seconds_bucket{le=\"0.004\"} 2
goondan_store_sync_seconds_bucket{le=\"0.016\"} 2
goondan_store_sync_seconds_bucket{le=\"0.064\"} 2
goondan_store_sync_seconds_bucket{le=\"0.256\"} 2
goondan_store_sync_seconds_bucket{le=\"1.0\"} 2
goondan_store_sync_seconds_bucket{le=\"4.0\"} 2
goondan_store_sync_seconds_bucket{le=\"+Inf\"} 3
goondan_store_sync_seconds_count 3
goondan_store_sync_seconds_sum 9.001
# EOF
";
        assert_eq!(text(&snapshot), expected);
    }
}
