//! The alert rules of `docs/operations/alerts.yml`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::promql::{Element, Labels};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRule {
    pub name: String,
    pub expression: String,
    /// Time that the condition must hold without interruption before the alert fires.
    pub hold: Duration,
}

/// Start time of each rule's current condition, by rule and labels.
#[derive(Debug, Default)]
pub struct ActiveConditions(BTreeMap<(String, Labels), Instant>);

impl ActiveConditions {
    /// Processes the current result of a rule's expression: conditions that have held for long
    /// enough fire.
    pub fn take(
        &mut self,
        rule: &AlertRule,
        found: Vec<Element>,
        hold: Duration,
        now: Instant,
    ) -> Vec<Element> {
        let holds = |labels: &Labels| found.iter().any(|element| element.labels == *labels);
        self.0
            .retain(|(name, labels), _| *name != rule.name || holds(labels));
        let mut fires = |element: &Element| {
            let key = (rule.name.clone(), element.labels.clone());
            let since = *self.0.entry(key).or_insert(now);
            now.duration_since(since) >= hold
        };
        found.into_iter().filter(|element| fires(element)).collect()
    }
}

/// Parses a duration of a rule: whole seconds or minutes.
fn hold_of(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.len() - 1);
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        other => panic!("`{other}` is not a unit of this file"),
    };
    Duration::from_secs(number.parse::<u64>().expect("a number") * unit_s)
}

/// The rules, in the order of the file. Each has its expression on one line.
#[must_use]
pub fn rules() -> Vec<AlertRule> {
    let text = include_str!("../../docs/operations/alerts.yml");
    let mut rules: Vec<AlertRule> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            rules.push(AlertRule {
                name: name.to_owned(),
                expression: String::new(),
                hold: Duration::ZERO,
            });
        } else if let (Some(expression), Some(rule)) =
            (line.strip_prefix("expr: "), rules.last_mut())
        {
            expression.clone_into(&mut rule.expression);
        } else if let (Some(hold), Some(rule)) = (line.strip_prefix("for: "), rules.last_mut()) {
            rule.hold = hold_of(hold);
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> AlertRule {
        let mut all = rules().into_iter();
        all.find(|rule| rule.name == "GoondanNotReady").unwrap()
    }

    fn element(connection: &str) -> Element {
        let labels = [("connection".to_owned(), connection.to_owned())];
        Element {
            labels: Labels::from(labels),
            value: 1.0,
        }
    }

    #[test]
    fn rule_fires_only_after_holding_without_interruption() {
        let (rule, start) = (rule(), Instant::now());
        assert_eq!(rule.hold, Duration::from_secs(60));
        let mut holding = ActiveConditions::default();
        let mut at = |seconds, found: Vec<Element>| {
            let now = start + Duration::from_secs(seconds);
            holding.take(&rule, found, rule.hold, now).len()
        };
        assert_eq!(at(0, vec![element("hook")]), 0);
        assert_eq!(at(59, vec![element("hook"), element("cron")]), 0);
        assert_eq!(at(60, vec![element("hook"), element("cron")]), 1);
        assert_eq!(at(61, vec![element("cron")]), 0);
        assert_eq!(at(120, vec![element("hook"), element("cron")]), 1);
        assert_eq!(at(121, vec![element("hook")]), 0);
    }
}
