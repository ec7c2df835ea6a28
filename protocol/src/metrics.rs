//! Metrics of the daemon, as one snapshot that all exporters use (`OBS-3`).
//!
//! [`catalog`] lists every metric; [`open_metrics`] formats a snapshot as text.
//!
//! # Invariants
//!
//! * Labels never contain ids, conversation keys, or text written by a model or a sender. They only
//!   contain names of the configuration and values of closed sets.
//! * Numbers are exact: integers of millionths, never floating point.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::time::Timestamp;

/// Built-in connector that serves metrics.
pub const METRICS: &str = "metrics";

pub mod catalog;
pub mod open_metrics;

pub use catalog::{Metric, MetricInfo};

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricKind {
    /// Only increases. Restarts at 0 with the daemon unless it is stored on disk.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Distribution of observations: count per upper bound, total count and sum.
    Histogram,
    /// Constant while the daemon runs; the labels hold the information.
    Info,
}

impl MetricKind {
    /// The OpenMetrics name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A number in integer millionths.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    const ONE: u64 = 1_000_000;

    /// Converts a whole number, saturating.
    #[must_use]
    pub const fn whole(number: u64) -> Self {
        Self(number.saturating_mul(Self::ONE))
    }

    /// Converts a number of thousandths.
    #[must_use]
    pub const fn millis(number: u64) -> Self {
        Self(number.saturating_mul(1_000))
    }

    /// Saturating addition.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Micros {
    /// Formats as a decimal without trailing zeros: `0`, `12`, `0.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::ONE, self.0 % Self::ONE);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:06}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// Key of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// The workspace.
    Workspace,
    /// The agent, including the agent of a task.
    Agent,
    /// The Model, by its name in the configuration.
    Model,
    /// The connection.
    Connection,
    /// The outcome.
    Outcome,
    /// The reason.
    Reason,
    /// Scope of a budget: `workspace`, `agent` or `instance`.
    Scope,
    /// Period of a budget: `ever` or `day`.
    Period,
    /// Unit of a budget: `tokens` or `usd`.
    Unit,
    /// Type of tokens.
    TokenType,
    /// `input` or `output`, as in the semantic conventions for generative AI.
    GenAiTokenType,
    /// Error type of a failed request, as in the semantic conventions.
    ErrorType,
    /// The version of the daemon.
    Version,
    /// Version of the protocol between processes.
    Protocol,
}

impl Label {
    /// The label's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Connection => "connection",
            Self::Outcome => "outcome",
            Self::Reason => "reason",
            Self::Scope => "scope",
            Self::Period => "period",
            Self::Unit => "unit",
            Self::TokenType => "token_type",
            Self::GenAiTokenType => "gen_ai_token_type",
            Self::ErrorType => "error_type",
            Self::Version => "version",
            Self::Protocol => "protocol",
        }
    }

    /// True if the configuration determines how many values the label has.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(
            self,
            Self::Workspace | Self::Agent | Self::Model | Self::Connection
        )
    }
}

/// Label value that replaces the names beyond the limit.
pub const OTHER: &str = "other";

/// The labels of one series.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<Label, String>);

impl Labels {
    /// An empty set of labels.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a label.
    #[must_use]
    pub fn with(mut self, label: Label, value: impl Into<String>) -> Self {
        self.0.insert(label, value.into());
        self
    }

    /// All labels, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (Label, &str)> {
        self.0.iter().map(|(label, value)| (*label, value.as_str()))
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, label: Label) -> Option<&str> {
        self.0.get(&label).map(String::as_str)
    }

    /// Replaces every name from the configuration by [`OTHER`].
    #[must_use]
    pub fn folded(&self) -> Self {
        let labels = self.0.iter().map(|(label, value)| {
            let value = if label.is_open() { OTHER } else { value };
            (*label, value.to_owned())
        });
        Self(labels.collect())
    }
}

/// Distribution of observations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// Number of observations per bucket: up to and including each bound of the metric, and greater
    /// than the previous.
    pub buckets: Vec<u64>,
    /// Number of observations.
    pub count: u64,
    /// Sum of the observations.
    pub sum: Micros,
}

impl Histogram {
    /// Adds an observation. `bounds` are the metric's.
    pub fn observe(&mut self, bounds: &[Micros], value: Micros) {
        self.buckets.resize(bounds.len(), 0);
        let place = bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket = bucket.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.plus(value);
    }

    /// Adds the observations of another histogram with the same bounds.
    pub fn add(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*more);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.plus(other.sum);
    }
}

/// Value of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricValue {
    /// A number.
    Number(Micros),
    /// A distribution.
    Histogram(Histogram),
}

/// One series: a metric with these labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: MetricValue,
}

/// A metric and all its series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricFamily {
    /// The metric.
    pub metric: Metric,
    /// Its series, sorted by labels; at least one.
    pub series: Vec<Series>,
}

/// All metrics at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsSnapshot {
    /// The moment.
    pub at: Timestamp,
    /// Start time of the daemon, and of metrics that are not stored on disk.
    pub started_at: Timestamp,
    /// The metrics with a value, in the order of [`Metric::ALL`].
    pub families: Vec<MetricFamily>,
}

impl MetricsSnapshot {
    /// Keeps the metrics of one workspace, of the daemon itself, and those combined under [`OTHER`].
    #[must_use]
    pub fn of_workspace(mut self, id: &WorkspaceId) -> Self {
        for family in &mut self.families {
            family.series.retain(|series| {
                let workspace = series.labels.get(Label::Workspace);
                workspace.is_none_or(|of| of == id.as_str() || of == OTHER)
            });
        }
        self.families.retain(|family| !family.series.is_empty());
        self
    }
}

/// A number to set as the value of a metric or to add to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The metric.
    pub metric: Metric,
    /// Its labels.
    pub labels: Labels,
    /// The number.
    pub value: Micros,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_exactly() {
        for (micros, shown) in [
            (Micros(0), "0"),
            (Micros::whole(12), "12"),
            (Micros::millis(250), "0.25"),
            (Micros(1), "0.000001"),
            (Micros(1_500_000), "1.5"),
            (Micros::whole(u64::MAX), "18446744073709.551615"),
        ] {
            assert_eq!(micros.to_string(), shown);
        }
    }

    #[test]
    fn observation_counts_in_the_first_bucket_that_includes_it() {
        let bounds = [1, 10, 100].map(Micros::whole);
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 100, 101] {
            histogram.observe(&bounds, Micros::whole(value));
        }
        let mut both = histogram.clone();
        both.add(&histogram);
        assert_eq!(histogram.buckets, [2, 1, 1]);
        assert_eq!((histogram.count, histogram.sum), (5, Micros::whole(204)));
        assert_eq!(both.buckets, [4, 2, 2]);
        assert_eq!((both.count, both.sum), (10, Micros::whole(408)));
    }

    #[test]
    fn obs_3_metrics_client_sees_its_own_workspace_and_the_daemon() {
        let series = |workspace: &str| Series {
            labels: match workspace {
                "" => Labels::none(),
                name => Labels::none().with(Label::Workspace, name),
            },
            value: MetricValue::Number(Micros::default()),
        };
        let of = |names: &[&str]| MetricFamily {
            metric: Metric::Turns,
            series: names.iter().map(|name| series(name)).collect(),
        };
        let snapshot = MetricsSnapshot {
            at: Timestamp::from_unix_millis(0),
            started_at: Timestamp::from_unix_millis(0),
            families: vec![of(&["", "mine", OTHER, "theirs"]), of(&["theirs"])],
        };
        let told = snapshot.of_workspace(&"mine".parse().unwrap());
        assert_eq!(told.families, [of(&["", "mine", OTHER])]);
    }

    #[test]
    fn only_names_of_a_configuration_are_folded() {
        let labels = Labels::none()
            .with(Label::Agent, "clerk")
            .with(Label::Outcome, "failed");
        let folded = labels.folded();
        assert_eq!(folded.get(Label::Agent), Some(OTHER));
        assert_eq!(folded.get(Label::Outcome), Some("failed"));
    }
}
