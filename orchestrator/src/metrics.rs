//! Metric counters and their snapshot (`OBS-3`). No I/O.
//!
//! Samples from the core are summed by label as they arrive. A snapshot combines the sums with the
//! current gauges.
//!
//! # Invariants
//!
//! * A snapshot has at most [`METRIC_LINES_MAX`] lines. Series beyond the limit are combined under
//!   `other`.
//! * A series that was reported separately stays separate while the daemon runs, so a counter never
//!   moves between series.

use std::collections::{BTreeMap, HashMap, HashSet};

use goondan_core::ResourceUsage;
use goondan_protocol::metrics::{
    Histogram, Label, Labels, Metric, MetricFamily, MetricKind, MetricValue, MetricsSnapshot,
    Micros, Sample, Series,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::version::Version;

use crate::limits::{METRIC_LINES_EACH_MAX, METRIC_LINES_MAX, METRIC_LINES_OF_OTHERS};

type SeriesKey = (Metric, Labels);

/// Sums since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counted: HashMap<SeriesKey, MetricValue>,
    admitted: AdmittedSeries,
}

/// The series that are reported separately.
#[derive(Debug, Default)]
struct AdmittedSeries {
    series: HashSet<SeriesKey>,
    lines: usize,
    lines_of: HashMap<Metric, usize>,
}

impl AdmittedSeries {
    /// True if a series is reported separately. This is permanent.
    fn takes(&mut self, key: &SeriesKey) -> bool {
        if self.series.contains(key) {
            return true;
        }
        let lines = key.0.lines_per_series();
        let of_metric = self.lines_of.entry(key.0).or_default();
        let fits = self.lines + lines <= METRIC_LINES_MAX - METRIC_LINES_OF_OTHERS
            && *of_metric + lines <= METRIC_LINES_EACH_MAX;
        if fits {
            self.lines += lines;
            *of_metric += lines;
            self.series.insert(key.clone());
        }
        fits
    }
}

#[derive(Debug)]
pub(crate) struct ShellMetrics {
    pub(crate) at: Timestamp,
    /// Start time of the daemon.
    pub(crate) started_at: Timestamp,
    pub(crate) syncs: Histogram,
    pub(crate) dropped_log_lines: u64,
    /// Free space and size of the state root's file system, in bytes.
    pub(crate) disk: Option<(u64, u64)>,
    pub(crate) supply: ResourceUsage,
}

impl Metrics {
    pub(crate) fn count(&mut self, sample: Sample) {
        let Sample {
            metric,
            labels,
            value,
        } = sample;
        let info = metric.info();
        let known = self.counted.entry((metric, labels));
        let known = known.or_insert_with(|| nothing_of(info.kind));
        match known {
            MetricValue::Number(sum) => *sum = sum.plus(value),
            MetricValue::Histogram(histogram) => histogram.observe(info.bounds, value),
        }
    }

    /// Snapshot of all counters and gauges.
    pub(crate) fn snapshot(&mut self, samples: Vec<Sample>, own: ShellMetrics) -> MetricsSnapshot {
        let mut all: HashMap<SeriesKey, MetricValue> = self.counted.clone();
        let samples = samples.into_iter().chain(own_samples(&own));
        for sample in samples {
            let value = MetricValue::Number(sample.value);
            merge(&mut all, (sample.metric, sample.labels), value);
        }
        let syncs = MetricValue::Histogram(own.syncs);
        merge(&mut all, (Metric::StoreSync, Labels::none()), syncs);
        let mut known: Vec<(SeriesKey, MetricValue)> = all.into_iter().collect();
        known.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut told: HashMap<SeriesKey, MetricValue> = HashMap::new();
        let mut dropped: u64 = 0;
        for (key, value) in known {
            if self.admitted.takes(&key) {
                told.insert(key, value);
            } else {
                dropped += 1;
                merge(&mut told, (key.0, key.1.folded()), value);
            }
        }
        let dropped = MetricValue::Number(Micros::whole(dropped));
        told.insert((Metric::SeriesDropped, Labels::none()), dropped);
        MetricsSnapshot {
            at: own.at,
            started_at: own.started_at,
            families: families(told),
        }
    }
}

fn nothing_of(kind: MetricKind) -> MetricValue {
    match kind {
        MetricKind::Histogram => MetricValue::Histogram(Histogram::default()),
        MetricKind::Counter | MetricKind::Gauge | MetricKind::Info => {
            MetricValue::Number(Micros::default())
        }
    }
}

fn own_samples(own: &ShellMetrics) -> Vec<Sample> {
    let version = Version::current();
    let build = Labels::none()
        .with(Label::Version, version.goondan)
        .with(Label::Protocol, version.protocol.to_string());
    let started_ms = u64::try_from(own.started_at.as_unix_millis()).unwrap_or(0);
    let sample = |metric, labels, value| Sample {
        metric,
        labels,
        value,
    };
    let shares = [
        (
            Metric::OpenFiles,
            Metric::OpenFilesLimit,
            own.supply.descriptors,
        ),
        (
            Metric::MemoryUsed,
            Metric::MemoryLimit,
            own.supply.memory_bytes,
        ),
        (
            Metric::SystemTasks,
            Metric::SystemTasksLimit,
            own.supply.tasks,
        ),
    ];
    let gauge = |metric, value| sample(metric, Labels::none(), Micros::whole(value));
    let shares = shares.into_iter().flat_map(|(used, limit, share)| {
        let share = share.map(|share| [gauge(used, share.used), gauge(limit, share.limit)]);
        share.into_iter().flatten()
    });
    let disk = own
        .disk
        .map(|(free, size)| [gauge(Metric::DiskFree, free), gauge(Metric::DiskSize, size)]);
    let mut samples = vec![
        sample(Metric::Build, build, Micros::whole(1)),
        sample(
            Metric::StartTime,
            Labels::none(),
            Micros::millis(started_ms),
        ),
        sample(
            Metric::LogLinesDropped,
            Labels::none(),
            Micros::whole(own.dropped_log_lines),
        ),
    ];
    samples.extend(shares);
    samples.extend(disk.into_iter().flatten());
    samples
}

/// Combines values of one series. Of ages, the oldest is kept.
fn merge(all: &mut HashMap<SeriesKey, MetricValue>, key: SeriesKey, value: MetricValue) {
    let metric = key.0;
    match all.entry(key) {
        std::collections::hash_map::Entry::Vacant(place) => {
            place.insert(value);
        }
        std::collections::hash_map::Entry::Occupied(mut known) => match (known.get_mut(), value) {
            (MetricValue::Number(known), MetricValue::Number(value)) => {
                *known = match metric {
                    Metric::EventOldestAge | Metric::UnacknowledgedTime => value.max(*known),
                    _ => known.plus(value),
                };
            }
            (MetricValue::Histogram(known), MetricValue::Histogram(value)) => known.add(&value),
            // Each metric has one kind.
            (MetricValue::Number(_), MetricValue::Histogram(_))
            | (MetricValue::Histogram(_), MetricValue::Number(_)) => {}
        },
    }
}

fn families(told: HashMap<SeriesKey, MetricValue>) -> Vec<MetricFamily> {
    let mut of: BTreeMap<Metric, Vec<Series>> = BTreeMap::new();
    for ((metric, labels), value) in told {
        of.entry(metric).or_default().push(Series { labels, value });
    }
    let families = of.into_iter().map(|(metric, mut series)| {
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        MetricFamily { metric, series }
    });
    families.collect()
}

#[cfg(test)]
mod tests {
    use goondan_protocol::metrics::OTHER;
    use goondan_protocol::metrics::open_metrics;

    use super::*;

    fn own() -> ShellMetrics {
        ShellMetrics {
            at: Timestamp::from_unix_millis(0),
            started_at: Timestamp::from_unix_millis(1_500),
            syncs: Histogram::default(),
            disk: Some((1, 2)),
            supply: ResourceUsage::default(),
            dropped_log_lines: 7,
        }
    }

    fn turn(agent: &str) -> Sample {
        Sample {
            metric: Metric::Turns,
            labels: Labels::none()
                .with(Label::Workspace, "w")
                .with(Label::Agent, agent)
                .with(Label::Outcome, "completed"),
            value: Micros::whole(1),
        }
    }

    fn lines(snapshot: &MetricsSnapshot) -> Vec<String> {
        let text = open_metrics::text(snapshot);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    fn value_of(snapshot: &MetricsSnapshot, start: &str) -> String {
        let lines = lines(snapshot);
        let line = lines.iter().find(|line| line.starts_with(start));
        line.and_then(|line| line.rsplit_once(' '))
            .unwrap()
            .1
            .to_owned()
    }

    #[test]
    fn obs_3_counted_and_sampled_metrics_share_one_series() {
        let mut metrics = Metrics::default();
        metrics.count(turn("clerk"));
        metrics.count(turn("clerk"));
        let nothing_yet = Sample {
            value: Micros::default(),
            ..turn("buyer")
        };
        let known = Sample {
            value: Micros::default(),
            ..turn("clerk")
        };
        let snapshot = metrics.snapshot(vec![known, nothing_yet], own());
        let of = |agent: &str| {
            let start = format!("goondan_turns_total{{workspace=\"w\",agent=\"{agent}\"");
            value_of(&snapshot, &start)
        };
        assert_eq!((of("clerk"), of("buyer")), ("2".to_owned(), "0".to_owned()));
        assert_eq!(value_of(&snapshot, "goondan_start_time_seconds"), "1.5");
        assert_eq!(value_of(&snapshot, "goondan_log_lines_dropped_total"), "7");
        assert_eq!(value_of(&snapshot, "goondan_series_dropped"), "0");
    }

    #[test]
    fn obs_3_metric_lines_never_exceed_the_limit_and_lose_no_count() {
        let mut metrics = Metrics::default();
        metrics.count(turn("first"));
        let first = metrics.snapshot(Vec::new(), own());
        assert_eq!(value_of(&first, "goondan_series_dropped"), "0");
        let mut samples = Vec::new();
        for number in 0..3_000 {
            let agent = format!("a{number}");
            metrics.count(turn(&agent));
            for metric in Metric::ALL {
                let info = metric.info();
                let mut labels = Labels::none();
                for label in info.labels {
                    labels = labels.with(*label, if label.is_open() { &agent } else { "x" });
                }
                let value = Micros::whole(1);
                match info.kind {
                    MetricKind::Histogram => metrics.count(Sample {
                        metric: *metric,
                        labels,
                        value,
                    }),
                    _ => samples.push(Sample {
                        metric: *metric,
                        labels,
                        value,
                    }),
                }
            }
        }
        let snapshot = metrics.snapshot(samples, own());
        let told = lines(&snapshot);
        assert!(told.len() <= METRIC_LINES_MAX, "{}", told.len());
        let of_first = "goondan_turns_total{workspace=\"w\",agent=\"first\"";
        assert_eq!(value_of(&snapshot, of_first), "1", "it was there before");
        let turns = told.iter().filter(|line| {
            line.starts_with("goondan_turns_total") && line.contains("\"completed\"")
        });
        let sum: u64 = turns
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum, 3_001);
        assert!(told.iter().any(|line| line.contains(OTHER)));
        assert_ne!(value_of(&snapshot, "goondan_series_dropped"), "0");
    }

    #[test]
    fn aggregated_age_metric_is_the_oldest_age() {
        let mut metrics = Metrics::default();
        let age = |agent: usize| Sample {
            metric: Metric::EventOldestAge,
            labels: Labels::none().with(Label::Agent, format!("a{agent:04}")),
            value: Micros::whole(u64::try_from(agent).unwrap()),
        };
        let snapshot = metrics.snapshot((0..1_000).map(age).collect(), own());
        let other = "goondan_event_oldest_age_seconds{agent=\"other\"}";
        assert_eq!(value_of(&snapshot, other), "999");
    }
}
