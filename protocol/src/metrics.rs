//! Metrics: what the daemon counts, as one snapshot from which every outlet writes (`OBS-3`).
//!
//! [`catalog`] lists every metric there is, [`open_metrics`] writes a snapshot as text.
//!
//! # Invariants
//!
//! * No label holds an id, a key of a conversation or anything a model or a sender wrote: only names of the
//!   configuration and words of closed sets.
//! * Numbers are exact: whole millionths, never floating point.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::time::Timestamp;

/// The built-in connector that answers with metrics.
pub const METRICS: &str = "metrics";

pub mod catalog;
pub mod open_metrics;

pub use catalog::{Metric, MetricInfo};

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricKind {
    /// It only grows, and begins at 0 again when the daemon starts, unless it is kept on disk.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many observations were at most so large, how many there were, and their sum.
    Histogram,
    /// What does not change while the daemon runs; its labels say it.
    Info,
}

impl MetricKind {
    /// The word as OpenMetrics writes it.
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

/// A number in whole millionths.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    const ONE: u64 = 1_000_000;

    /// A whole number; the largest there is, if it is larger.
    #[must_use]
    pub const fn whole(number: u64) -> Self {
        Self(number.saturating_mul(Self::ONE))
    }

    /// So many thousandths.
    #[must_use]
    pub const fn millis(number: u64) -> Self {
        Self(number.saturating_mul(1_000))
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Micros {
    /// As a decimal without needless zeros: `0`, `12`, `0.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::ONE, self.0 % Self::ONE);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:06}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// What a label says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// The workspace.
    Workspace,
    /// The agent, also that of a task.
    Agent,
    /// The Model, by its name in the configuration.
    Model,
    /// The connection.
    Connection,
    /// What came of it.
    Outcome,
    /// Of a budget: `workspace`, `agent` or `instance`.
    Scope,
    /// Of a budget: `ever` or `day`.
    Period,
    /// Of a budget: `tokens` or `usd`.
    Unit,
    /// Of tokens: which.
    TokenType,
    /// `input` or `output`, by the semantic conventions for generative AI.
    GenAiTokenType,
    /// Why a request failed, by the semantic conventions.
    ErrorType,
    /// The version of the daemon.
    Version,
    /// Version of the protocol between the processes.
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

    /// Whether a configuration decides how many values it has.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(
            self,
            Self::Workspace | Self::Agent | Self::Model | Self::Connection
        )
    }
}

/// What stands in the place of the names that are too many.
pub const OTHER: &str = "other";

/// The labels of one series.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<Label, String>);

impl Labels {
    /// Without any.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, label: Label, value: impl Into<String>) -> Self {
        self.0.insert(label, value.into());
        self
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (Label, &str)> {
        self.0.iter().map(|(label, value)| (*label, value.as_str()))
    }

    /// The value of one.
    #[must_use]
    pub fn get(&self, label: Label) -> Option<&str> {
        self.0.get(&label).map(String::as_str)
    }

    /// The same with [`OTHER`] in the place of every name that a configuration decides.
    #[must_use]
    pub fn folded(&self) -> Self {
        let labels = self.0.iter().map(|(label, value)| {
            let value = if label.is_open() { OTHER } else { value };
            (*label, value.to_owned())
        });
        Self(labels.collect())
    }
}

/// How observations are spread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// How many were at most as large as each of the metric's bounds and larger than the one before.
    pub buckets: Vec<u64>,
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub sum: Micros,
}

impl Histogram {
    /// Takes in one observation. `bounds` are the metric's.
    pub fn observe(&mut self, bounds: &[Micros], value: Micros) {
        self.buckets.resize(bounds.len(), 0);
        let place = bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket = bucket.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.plus(value);
    }

    /// Adds the observations of another with the same bounds.
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

/// What a series says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricValue {
    /// A number.
    Number(Micros),
    /// How observations are spread.
    Histogram(Histogram),
}

/// One series: a metric with these labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// What it says.
    pub value: MetricValue,
}

/// A metric and all its series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricFamily {
    /// Which metric.
    pub metric: Metric,
    /// Its series, by labels. At least one.
    pub series: Vec<Series>,
}

/// All that is counted, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsSnapshot {
    /// The moment.
    pub at: Timestamp,
    /// When the daemon started, and with it what is not kept on disk.
    pub started_at: Timestamp,
    /// The metrics of which there is anything to tell, in the order of [`Metric::ALL`].
    pub families: Vec<MetricFamily>,
}

impl MetricsSnapshot {
    /// What concerns one workspace and the daemon itself; of others what is told together.
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

/// A number that is told of a metric, or added to what is counted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Which metric.
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
    fn an_observation_stands_in_the_first_bucket_that_takes_it() {
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
    fn obs_3_a_connection_is_told_of_its_own_workspace_and_the_daemon() {
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
