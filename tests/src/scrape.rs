//! A scrape of metrics, parsed strictly as OpenMetrics.

use std::collections::BTreeMap;

use goondan_protocol::metrics::{Metric, MetricKind};

use crate::home::Home;

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Sample {
    /// True if it has at least these labels.
    #[must_use]
    pub fn has(&self, labels: &[(&str, &str)]) -> bool {
        let value = |name: &str| self.labels.get(name).map(String::as_str);
        labels.iter().all(|(name, want)| value(name) == Some(want))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Scrape {
    /// The samples, as they come.
    pub samples: Vec<Sample>,
}

impl Scrape {
    /// Parses the output of `gdn daemon metrics`.
    #[must_use]
    #[track_caller]
    pub fn of(home: &Home) -> Self {
        Self::read(&home.gdn(&["metrics"]).exits(0).stdout)
    }

    /// Parses a text, which must be OpenMetrics and contain only metrics of the catalog.
    ///
    /// # Panics
    ///
    /// If it is invalid, with the line.
    #[must_use]
    #[track_caller]
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with("# EOF\n"), "no end: {text}");
        let mut samples = Vec::new();
        let mut family: Option<Metric> = None;
        for line in text.lines() {
            if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').unwrap();
                let known = Metric::ALL.iter().find(|metric| metric.info().name == name);
                let known = known.unwrap_or_else(|| panic!("not in the catalog: {line}"));
                assert_eq!(known.info().kind.as_str(), kind, "{line}");
                assert!(Some(*known) > family, "out of order, or twice: {line}");
                family = Some(*known);
            } else if !line.starts_with('#') {
                let family = family.unwrap_or_else(|| panic!("of no family: {line}"));
                let sample = sample(line);
                check(family, &sample);
                samples.push(sample);
            }
        }
        Self { samples }
    }

    pub fn named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.name == name)
    }

    /// Sum of all samples of a name with at least these labels; none if there is no such sample.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found: Vec<f64> = self
            .named(name)
            .filter(|sample| sample.has(labels))
            .map(|sample| sample.value)
            .collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

fn check(family: Metric, sample: &Sample) {
    let info = family.info();
    let names: Vec<String> = match info.kind {
        MetricKind::Histogram => ["bucket", "count", "sum"]
            .map(|end| format!("{}_{end}", info.name))
            .to_vec(),
        _ => vec![family.sample_name()],
    };
    assert!(names.contains(&sample.name), "{sample:?} in {family:?}");
    for label in sample.labels.keys() {
        let is_known = info.labels.iter().any(|known| known.as_str() == label);
        let is_bound = info.kind == MetricKind::Histogram && label == "le";
        assert!(is_known || is_bound, "{label} of {family:?}");
    }
}

fn sample(line: &str) -> Sample {
    let (before, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match before.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
        None => (before, ""),
    };
    Sample {
        name: name.to_owned(),
        labels: labels_of(labels),
        value: value
            .parse()
            .unwrap_or_else(|_| panic!("no number: {line}")),
    }
}

/// Parses `a="b",c="d"`, including escapes.
#[must_use]
pub fn labels_of(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let mut end = rest.len();
        while let Some((place, char)) = chars.next() {
            match char {
                '"' => {
                    end = place + 1;
                    break;
                }
                '\\' => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, other)) => other,
                    None => panic!("an escape at the end: {text}"),
                }),
                other => value.push(other),
            }
        }
        let name = name.trim_start_matches([',', ' ']).to_owned();
        assert!(labels.insert(name, value).is_none(), "twice: {text}");
        text = rest.get(end..).unwrap();
    }
    labels
}
