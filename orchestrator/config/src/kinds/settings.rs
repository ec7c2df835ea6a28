//! Checks a Connection's settings and secrets against its built-in connector.

use goondan_connectors::{Connector, Problem as Wrong, ProblemKind, ProblemLocation};

use super::connection::ConnectionSpec;
use crate::codes;
use crate::report::{Problem, ProblemReport};
use crate::similar::nearest;

/// Reports everything that the connector would refuse.
pub(crate) fn check(
    connection: &ConnectionSpec,
    connector: &Connector,
    report: &mut ProblemReport,
) {
    if !connection.written.is_whole {
        return;
    }
    let wrong = goondan_connectors::check(connector, &connection.config, &connection.secrets);
    for wrong in wrong {
        let problem = to_problem(&wrong, connection, connector, report);
        report.add(problem);
    }
}

fn to_problem(
    wrong: &Wrong,
    connection: &ConnectionSpec,
    connector: &Connector,
    report: &mut ProblemReport,
) -> Problem {
    let written = &connection.written;
    let name = wrong.place.label();
    let (section, (key, value)) = match &wrong.place {
        ProblemLocation::Setting(_) => {
            let places = written.settings.get(&name).copied();
            ("config", places.unwrap_or((written.spec, written.spec)))
        }
        ProblemLocation::Secret(_) => {
            let place = written.secrets.get(&name).copied();
            let place = place.unwrap_or(written.spec);
            ("secrets", (place, place))
        }
        ProblemLocation::Secrets => ("secrets", (written.spec, written.spec)),
    };
    let section = written.label.field(section);
    let label = if name.is_empty() {
        section.clone()
    } else {
        section.field(&name)
    };
    match &wrong.kind {
        ProblemKind::Unknown { known } => {
            let last = name.rsplit('.').next().unwrap_or_default();
            let is_secret = connector.secrets.iter().any(|secret| secret.name == last);
            let problem = Problem::new(
                codes::UNKNOWN_FIELD,
                key,
                format!(
                    "unknown field {label}; the connector `{}` takes {}",
                    connector.name,
                    listed(known)
                ),
            );
            if is_secret && matches!(wrong.place, ProblemLocation::Setting(_)) {
                // The secret itself may be on this line.
                report.hide_line(key.file, key.line);
                report.hide_line(value.file, value.line);
                problem.help(format!("it is a secret; write it into `secrets.{last}`"))
            } else {
                problem.rename(last, nearest(last, known.iter().copied()))
            }
        }
        ProblemKind::Missing { name } => {
            Problem::new(codes::MISSING_FIELD, key, format!("{label} needs `{name}`"))
        }
        ProblemKind::Wrong {
            expected,
            found,
            words,
        } => {
            let problem = Problem::new(
                codes::INVALID_VALUE,
                value,
                format!("{label} must be {expected}, found {found}"),
            );
            let meant = nearest(found.trim_matches('"'), words.iter().copied());
            problem.rename(found.trim_matches('"'), meant)
        }
        ProblemKind::OneOf {
            names: [one, other],
        } => Problem::new(
            codes::MISSING_FIELD,
            key,
            format!("{label}: exactly one of `{one}` and `{other}` must be set"),
        ),
        ProblemKind::Twice { name } => Problem::new(
            codes::DUPLICATE_REFERENCE,
            key,
            format!("{label}: the name `{name}` is used twice"),
        )
        .help("use unique names"),
        ProblemKind::NeedsSecret { secret } => Problem::new(
            codes::MISSING_FIELD,
            key,
            format!("{label} requires the secret `{secret}`"),
        )
        .help(format!(
            "add `secrets: {{{secret}: {{valueFrom: {{env: NAME}}}}}}`"
        )),
        ProblemKind::Empty => Problem::new(
            codes::INVALID_VALUE,
            key,
            format!("{label} must not be empty"),
        ),
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
