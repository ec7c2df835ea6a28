//! The subset of `PromQL` that the alert rules and the dashboard of `docs/operations` use,
//! evaluated over scrapes: selectors, ranges, `rate`, `increase`, `absent`, `histogram_quantile`,
//! sums and maxima by labels, arithmetic and comparisons between series with the same labels.
//!
//! Unlike Prometheus, it does not extrapolate to the borders of a range, so an increase is exactly
//! the difference of the counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::scrape::{Scrape, labels_of};

/// The labels of a series, without its name.
pub type Labels = BTreeMap<String, String>;

/// Scrapes, the oldest first.
#[derive(Debug, Default)]
pub struct Scrapes(Vec<(Instant, Scrape)>);

/// One series of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    pub labels: Labels,
    pub value: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    Number(f64),
    /// Series of a name, with labels that are equal to something or are not.
    Series {
        name: String,
        /// Label matchers: name, true for equality, and the value.
        matchers: Vec<(String, bool, String)>,
        range: Option<Duration>,
    },
    Call(String, Vec<Expression>),
    Aggregate(String, Vec<String>, Box<Expression>),
    Binary(String, Box<Expression>, Box<Expression>),
}

impl Scrapes {
    pub fn add(&mut self, scrape: Scrape) {
        self.0.push((Instant::now(), scrape));
    }

    /// Evaluates an expression now.
    ///
    /// # Panics
    ///
    /// If the expression is not supported.
    #[must_use]
    pub fn evaluate(&self, expression: &str) -> Vec<Element> {
        self.of(&Expression::read(expression))
    }

    fn of(&self, expression: &Expression) -> Vec<Element> {
        match expression {
            Expression::Number(value) => vec![Element {
                labels: Labels::new(),
                value: *value,
            }],
            Expression::Series {
                name,
                matchers,
                range: None,
            } => self.latest(name, matchers),
            Expression::Series { range: Some(_), .. } => panic!("a range stands alone"),
            Expression::Call(name, arguments) => self.call(name, arguments),
            Expression::Aggregate(how, by, inner) => aggregate(how, by, &self.of(inner)),
            Expression::Binary(operator, left, right) => {
                let is_number = |side: &Expression| matches!(side, Expression::Number(_));
                let scalar = (is_number(left), is_number(right));
                binary(operator, &self.of(left), &self.of(right), scalar)
            }
        }
    }

    fn latest(&self, name: &str, matchers: &[(String, bool, String)]) -> Vec<Element> {
        let Some((_, scrape)) = self.0.last() else {
            return Vec::new();
        };
        let named = scrape.named(name);
        let found = named.filter(|sample| matches(&sample.labels, matchers));
        found
            .map(|sample| Element {
                labels: sample.labels.clone(),
                value: sample.value,
            })
            .collect()
    }

    fn call(&self, name: &str, arguments: &[Expression]) -> Vec<Element> {
        match (name, arguments) {
            ("absent", [inner]) => match self.of(inner).is_empty() {
                true => self.of(&Expression::Number(1.0)),
                false => Vec::new(),
            },
            ("increase", [of]) => self.increase(of, false),
            ("rate", [of]) => self.increase(of, true),
            ("histogram_quantile", [Expression::Number(quantile), inner]) => {
                quantiles(*quantile, &self.of(inner))
            }
            _ => panic!(
                "`{name}` of {} arguments is not known here",
                arguments.len()
            ),
        }
    }

    /// Growth of counters within a range; a counter that falls was reset to 0.
    fn increase(&self, of: &Expression, per_second: bool) -> Vec<Element> {
        let Expression::Series {
            name,
            matchers,
            range: Some(range),
        } = of
        else {
            panic!("no range: {of:?}");
        };
        let Some((now, _)) = self.0.last() else {
            return Vec::new();
        };
        let mut seen: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
        for (at, scrape) in &self.0 {
            if now.duration_since(*at) > *range {
                continue;
            }
            for sample in scrape.named(name) {
                if matches(&sample.labels, matchers) {
                    seen.entry(sample.labels.clone())
                        .or_default()
                        .push(sample.value);
                }
            }
        }
        // A series with a single sample has no known increase.
        seen.retain(|_, values| values.len() > 1);
        let grown = seen.into_iter().map(|(labels, values)| {
            let steps = values.windows(2);
            let grown: f64 = steps
                .map(|step| match step[1] >= step[0] {
                    true => step[1] - step[0],
                    false => step[1],
                })
                .sum();
            let divisor = if per_second { range.as_secs_f64() } else { 1.0 };
            Element {
                labels,
                value: grown / divisor,
            }
        });
        grown.collect()
    }
}

fn matches(labels: &Labels, matchers: &[(String, bool, String)]) -> bool {
    matchers.iter().all(|(name, is_equal, value)| {
        let has = labels.get(name).map_or("", String::as_str);
        (has == value) == *is_equal
    })
}

fn aggregate(how: &str, by: &[String], elements: &[Element]) -> Vec<Element> {
    let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
    for element in elements {
        let labels = element.labels.iter().filter(|(name, _)| by.contains(name));
        let labels = labels.map(|(name, value)| (name.clone(), value.clone()));
        groups
            .entry(labels.collect())
            .or_default()
            .push(element.value);
    }
    let groups = groups.into_iter();
    let groups = groups.map(|(labels, values)| Element {
        labels,
        value: match how {
            "sum" => values.iter().sum(),
            "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => panic!("`{how}` is not known here"),
        },
    });
    groups.collect()
}

/// A binary operation; `scalar` marks the side that is a number.
fn binary(
    operator: &str,
    left: &[Element],
    right: &[Element],
    scalar: (bool, bool),
) -> Vec<Element> {
    let mut result = Vec::new();
    let (many, is_turned) = match scalar {
        (true, false) => (right, true),
        _ => (left, false),
    };
    for element in many {
        let other = match scalar {
            (true, _) => left.first(),
            (_, true) => right.first(),
            _ => right.iter().find(|other| other.labels == element.labels),
        };
        let Some(other) = other else { continue };
        let (a, b) = match is_turned {
            true => (other.value, element.value),
            false => (element.value, other.value),
        };
        let value = match operator {
            "+" => Some(a + b),
            "-" => Some(a - b),
            "*" => Some(a * b),
            "/" => Some(a / b),
            ">" => (a > b).then_some(element.value),
            "<" => (a < b).then_some(element.value),
            _ => panic!("`{operator}` is not known here"),
        };
        result.extend(value.map(|value| Element {
            labels: element.labels.clone(),
            value,
        }));
    }
    result
}

/// The upper bound of the bucket in which a share of the observations ends.
fn quantiles(quantile: f64, buckets: &[Element]) -> Vec<Element> {
    let mut groups: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for bucket in buckets {
        let mut labels = bucket.labels.clone();
        let Some(bound) = labels.remove("le") else {
            continue;
        };
        let bound = bound.replace("+Inf", "inf").parse().unwrap();
        groups
            .entry(labels)
            .or_default()
            .push((bound, bucket.value));
    }
    let groups = groups.into_iter().filter_map(|(labels, mut bounds)| {
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = bounds.last()?.1;
        let wanted = bounds.iter().find(|(_, count)| *count >= all * quantile)?;
        Some(Element {
            labels,
            value: wanted.0,
        })
    });
    groups.collect()
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Panics
    ///
    /// If the expression is not supported.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut reader = PromqlParser { rest: text };
        let expression = reader.comparison();
        assert_eq!(reader.rest.trim(), "", "what follows in `{text}`");
        expression
    }

    /// Calls `each` with the name and the label names of every selector and aggregation.
    pub fn names(&self, each: &mut dyn FnMut(&str, Vec<String>)) {
        match self {
            Self::Number(_) => {}
            Self::Series { name, matchers, .. } => {
                each(
                    name,
                    matchers.iter().map(|(label, ..)| label.clone()).collect(),
                );
            }
            Self::Call(_, arguments) => arguments.iter().for_each(|inner| inner.names(each)),
            Self::Aggregate(_, by, inner) => inner.names(&mut |name, mut labels| {
                labels.extend(by.iter().cloned());
                each(name, labels);
            }),
            Self::Binary(_, left, right) => {
                left.names(each);
                right.names(each);
            }
        }
    }
}

struct PromqlParser<'t> {
    rest: &'t str,
}

impl PromqlParser<'_> {
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(token);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    #[track_caller]
    fn expect(&mut self, token: &str) {
        assert!(self.takes(token), "no `{token}` before `{}`", self.rest);
    }

    fn chain(&mut self, operators: &[&str], next: fn(&mut Self) -> Expression) -> Expression {
        let mut left = next(self);
        while let Some(operator) = operators.iter().find(|operator| self.takes(operator)) {
            let right = next(self);
            left = Expression::Binary((*operator).to_owned(), left.into(), right.into());
        }
        left
    }

    fn comparison(&mut self) -> Expression {
        self.chain(&[">", "<"], |reader| {
            reader.chain(&["+", "-"], |reader| reader.chain(&["*", "/"], Self::atom))
        })
    }

    fn atom(&mut self) -> Expression {
        if self.takes("(") {
            let inner = self.comparison();
            self.expect(")");
            return inner;
        }
        let word = self.word();
        if let Ok(number) = word.parse() {
            return Expression::Number(number);
        }
        if ["sum", "max"].contains(&word.as_str()) {
            let mut by = Vec::new();
            if self.takes("by") {
                self.expect("(");
                while !self.takes(")") {
                    by.push(self.word());
                    self.takes(",");
                }
            }
            self.expect("(");
            let inner = self.comparison();
            self.expect(")");
            return Expression::Aggregate(word, by, inner.into());
        }
        if self.takes("(") {
            let mut arguments = vec![self.comparison()];
            while self.takes(",") {
                arguments.push(self.comparison());
            }
            self.expect(")");
            return Expression::Call(word, arguments);
        }
        self.selector(word)
    }

    fn selector(&mut self, name: String) -> Expression {
        let mut matchers = Vec::new();
        if self.takes("{") {
            let (inside, rest) = self.rest.split_once('}').unwrap();
            self.rest = rest;
            for part in inside.split(',').filter(|part| !part.trim().is_empty()) {
                let part = part.trim();
                let is_equal = !part.contains("!=");
                let labels = labels_of(&part.replace("!=", "="));
                matchers.extend(
                    labels
                        .into_iter()
                        .map(|(name, value)| (name, is_equal, value)),
                );
            }
        }
        let mut range = None;
        if self.takes("[") {
            let (inside, rest) = self.rest.split_once(']').unwrap();
            self.rest = rest;
            range = Some(duration(inside));
        }
        Expression::Series {
            name,
            matchers,
            range,
        }
    }

    fn word(&mut self) -> String {
        let rest = self.rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        assert!(!word.is_empty(), "no word before `{rest}`");
        self.rest = rest;
        word.to_owned()
    }
}

fn duration(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.len() - 1);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => panic!("no duration: {text}"),
    };
    Duration::from_secs(number.parse::<u64>().unwrap() * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrapes(turns: &[(&str, f64)]) -> Scrapes {
        let mut scrapes = Scrapes::default();
        for (outcome, value) in turns {
            let text = format!(
                "# TYPE goondan_turns counter\n\
                 goondan_turns_total{{workspace=\"w\",agent=\"a\",outcome=\"{outcome}\"}} {value}\n# EOF\n"
            );
            scrapes.add(Scrape::read(&text));
        }
        scrapes
    }

    fn value(scrapes: &Scrapes, expression: &str) -> Vec<f64> {
        let elements = scrapes.evaluate(expression);
        elements.into_iter().map(|element| element.value).collect()
    }

    #[test]
    fn increase_handles_counter_resets() {
        let known = scrapes(&[("failed", 3.0), ("failed", 5.0), ("failed", 1.0)]);
        assert_eq!(value(&known, "increase(goondan_turns_total[10m])"), [3.0]);
        assert_eq!(value(&known, "rate(goondan_turns_total[1m]) * 60"), [3.0]);
        let once = scrapes(&[("failed", 3.0)]);
        assert!(value(&once, "increase(goondan_turns_total[10m]) > 0").is_empty());
    }

    #[test]
    fn comparisons_keep_only_matching_series() {
        let known = scrapes(&[("failed", 3.0)]);
        let sum = "sum by (workspace, agent) (goondan_turns_total{outcome=\"failed\"})";
        assert_eq!(value(&known, &format!("{sum} > 2")), [3.0]);
        assert!(value(&known, &format!("{sum} / {sum} > 1")).is_empty());
        assert!(value(&known, "goondan_turns_total{outcome!=\"failed\"} > 0").is_empty());
        assert_eq!(value(&known, "absent(goondan_build_info)"), [1.0]);
        assert!(value(&known, "absent(goondan_turns_total)").is_empty());
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let text = "# TYPE goondan_store_sync_seconds histogram\n\
            goondan_store_sync_seconds_bucket{le=\"0.001\"} 90\n\
            goondan_store_sync_seconds_bucket{le=\"0.004\"} 99\n\
            goondan_store_sync_seconds_bucket{le=\"+Inf\"} 100\n# EOF\n";
        let mut known = Scrapes::default();
        known.add(Scrape::read(text));
        let quantile = "histogram_quantile(0.95, sum by (le) (goondan_store_sync_seconds_bucket))";
        assert_eq!(value(&known, quantile), [0.004]);
    }
}
