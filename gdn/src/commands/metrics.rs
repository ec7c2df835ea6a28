//! `gdn daemon metrics`: all metrics of the daemon, for monitoring systems (`OBS-3`).

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use goondan_protocol::control::ReadMetrics;
use goondan_protocol::metrics::{
    Label, MetricFamily, MetricValue, MetricsSnapshot, Micros, Series, open_metrics,
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::schemas;

/// Mode of the written file: the collector runs as another user.
const FILE_MODE: u32 = 0o644;

/// Show the daemon's metrics in OpenMetrics format
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn daemon metrics
  gdn daemon metrics --json | jq '.metrics[] | select(.name == \"goondan_turns_total\")'
  gdn daemon metrics --output /var/lib/node_exporter/goondan.prom

The connector `metrics` serves them to Prometheus; the connector `otlp` pushes them to a collector.")]
pub(crate) struct MetricsArgs {
    /// Write to this file atomically, for the Prometheus textfile collector
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) async fn run(args: &MetricsArgs, context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let snapshot = client.query(ReadMetrics {}).await?;
    let output = context.output;
    if let Some(path) = &args.output {
        write(path, &open_metrics::text(&snapshot))?;
        return output.object(schemas::METRICS, &shown(&snapshot));
    }
    if output.is_json() {
        return output.object(schemas::METRICS, &shown(&snapshot));
    }
    output.piece(&open_metrics::text(&snapshot))
}

/// Writes a world-readable file atomically.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| {
        Failure::new(
            Exit::Internal,
            format!("cannot write {}", path.display()),
            "choose a writable directory with enough disk space: `--output FILE`",
        )
        .caused_by(Some(error))
    };
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let written = NamedTempFile::new_in(directory).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        let mode = std::fs::Permissions::from_mode(FILE_MODE);
        file.as_file().set_permissions(mode)?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map(drop).map_err(|error| failed(&error))
}

fn shown(snapshot: &MetricsSnapshot) -> Value {
    let families: Vec<Value> = snapshot.families.iter().map(family).collect();
    json!({
        "at": snapshot.at,
        "startedAt": snapshot.started_at,
        "metrics": families,
    })
}

fn family(family: &MetricFamily) -> Value {
    let info = family.metric.info();
    let series = family.series.iter();
    let series: Vec<Value> = series.map(|series| shown_series(family, series)).collect();
    json!({
        "name": family.metric.sample_name(),
        "kind": info.kind,
        "unit": info.unit,
        "help": info.help,
        "series": series,
    })
}

fn shown_series(family: &MetricFamily, series: &Series) -> Value {
    let labels = series.labels.iter();
    let labels: serde_json::Map<String, Value> = labels
        .map(|(label, value)| (Label::as_str(label).to_owned(), json!(value)))
        .collect();
    match &series.value {
        MetricValue::Number(value) => json!({"labels": labels, "value": number(*value)}),
        MetricValue::Histogram(histogram) => {
            let mut so_far: u64 = 0;
            let bounds = family.metric.info().bounds.iter();
            let buckets: Vec<Value> = bounds
                .zip(&histogram.buckets)
                .map(|(bound, count)| {
                    so_far = so_far.saturating_add(*count);
                    json!({"le": number(*bound), "count": so_far})
                })
                .collect();
            json!({
                "labels": labels,
                "count": histogram.count,
                "sum": number(histogram.sum),
                "buckets": buckets,
            })
        }
    }
}

/// Converts a number to JSON; integers have no decimal point.
fn number(value: Micros) -> Value {
    let text = value.to_string();
    let whole = text.parse::<u64>().map(Value::from);
    whole.unwrap_or_else(|_| text.parse::<f64>().map_or(Value::Null, Value::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_json() {
        assert_eq!(number(Micros::whole(3)), json!(3));
        assert_eq!(number(Micros(12_345_678)), json!(12.345_678));
    }
}
