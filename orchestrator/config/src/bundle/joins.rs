//! Resolves the joins of a connection.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::ids::ResourceName;

use crate::codes;
use crate::fields::LocatedValue;
use crate::kinds::connection::{ConnectionSpec, RuleSpec};
use crate::kinds::joins::{JoinSpec, PartSpec};
use crate::limits::MAX_JOIN_PARTS;
use crate::report::{Problem, ProblemReport};
use crate::similar::nearest;
use crate::{IngressJoin, KeyRule};

/// The joins of a connection, by name.
pub(super) struct Joins<'c>(BTreeMap<&'c ResourceName, ResolvedJoin<'c>>);

struct ResolvedJoin<'c> {
    spec: &'c JoinSpec,
    parts: BTreeSet<&'c str>,
    /// The first rule that names the join.
    first: Option<&'c RuleSpec>,
}

impl<'c> Joins<'c> {
    /// Checks the joins of a connection and the rules that name them.
    pub(super) fn of(connection: &'c ConnectionSpec, report: &mut ProblemReport) -> Self {
        let mut joins = BTreeMap::new();
        for spec in &connection.joins {
            let join = ResolvedJoin {
                spec,
                parts: BTreeSet::new(),
                first: None,
            };
            let LocatedValue { value: name, place } = &spec.name;
            if joins.insert(name, join).is_some() {
                let message = format!("the join `{name}` is listed twice");
                let problem = Problem::new(codes::DUPLICATE_REFERENCE, *place, message);
                report.add(problem.help("choose another name, or remove one"));
            }
        }
        for rule in &connection.rules {
            if let Some(part) = &rule.join {
                add_part(&mut joins, rule, part, report);
            }
        }
        for (name, join) in &joins {
            let place = join.spec.name.place;
            let count = join.parts.len();
            if count < 2 {
                let message = format!(
                    "the join `{name}` has {count} of at least 2 parts, so it has nothing to wait for"
                );
                let problem = Problem::new(codes::INVALID_VALUE, place, message);
                report.add(problem.help(format!(
                    "name it in at least two rules: `join: {{name: {name}, part: …}}`"
                )));
            } else if count > MAX_JOIN_PARTS {
                let message = format!(
                    "the join `{name}` has {count} parts; at most {MAX_JOIN_PARTS} are allowed"
                );
                report.add(Problem::new(codes::INVALID_VALUE, place, message));
            }
        }
        Self(joins)
    }

    /// The join of a rule, with all its parts.
    pub(super) fn resolve(&self, rule: &RuleSpec) -> Option<IngressJoin> {
        let part = rule.join.as_ref()?;
        let join = self.0.get(&part.join.value)?;
        Some(IngressJoin {
            name: part.join.value.to_string(),
            part: part.part.to_string(),
            key_property: part.key_property.clone(),
            all: join.parts.iter().map(|part| (*part).to_owned()).collect(),
            timeout_ms: join.spec.timeout_ms,
            on_timeout: join.spec.on_timeout,
        })
    }
}

fn add_part<'c>(
    joins: &mut BTreeMap<&'c ResourceName, ResolvedJoin<'c>>,
    rule: &'c RuleSpec,
    part: &'c PartSpec,
    report: &mut ProblemReport,
) {
    let LocatedValue { value: name, place } = &part.join;
    let Some(join) = joins.get_mut(name) else {
        let message = format!("the join `{name}` is not in `ingress.joins` of this Connection");
        let names = joins.keys().map(|name| name.as_str());
        let problem = Problem::new(codes::UNKNOWN_REFERENCE, *place, message)
            .help(format!("add `joins: [{{name: {name}}}]` beside `rules`"))
            .rename(name.as_str(), nearest(name.as_str(), names));
        return report.add(problem);
    };
    join.parts.insert(part.part.as_str());
    let first = *join.first.get_or_insert(rule);
    let agent = |rule: &RuleSpec| rule.agent.as_ref().map(|agent| agent.name.clone());
    if agent(first) != agent(rule) || !is_same_place(&first.key, &rule.key) {
        let message = format!(
            "the parts of the join `{name}` have different routes, so they never meet in one \
             conversation"
        );
        report.add(
            Problem::new(codes::CONFLICTING_FIELDS, *place, message)
                .help("give its rules the same `agentRef`, `instanceKey` and `instanceKeyPrefix`"),
        );
    }
    let is_keyed = |rule: &RuleSpec| {
        let part = rule.join.as_ref();
        part.is_some_and(|part| part.key_property.is_some())
    };
    if is_keyed(first) != is_keyed(rule) {
        let message = format!(
            "some parts of the join `{name}` have a `keyProperty` and others do not, so they never \
             belong together"
        );
        report.add(
            Problem::new(codes::CONFLICTING_FIELDS, *place, message)
                .help("give each of its rules a `keyProperty`, or none"),
        );
    }
}

/// True if events of both rules can be in the same conversation.
fn is_same_place(first: &KeyRule, other: &KeyRule) -> bool {
    match (first, other) {
        (KeyRule::Fixed(first), KeyRule::Fixed(other)) => first == other,
        (KeyRule::Fixed(_), _) | (_, KeyRule::Fixed(_)) => false,
        (
            KeyRule::FromEvent { prefix: first } | KeyRule::Property { prefix: first, .. },
            KeyRule::FromEvent { prefix: other } | KeyRule::Property { prefix: other, .. },
        ) => first == other,
    }
}
