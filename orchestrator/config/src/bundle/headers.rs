//! The header of a connection's events: its own, or the default of its connector.

use std::collections::BTreeSet;

use goondan_connectors::{Inbound, inbound, working_as};
use goondan_protocol::event_header::{CONNECTION, EVENT, HeaderTemplate};

use crate::codes;
use crate::fields::{LocatedValue, one_of};
use crate::kinds::Resources;
use crate::kinds::connection::{ConnectionSpec, HEADER, HeaderSpec, PAYLOAD};
use crate::kinds::connector::{Events, Program};
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::similar::nearest;

/// The header of a connection whose connector is `program` and emits `events`.
pub(super) fn resolve(
    connection: &ConnectionSpec,
    program: &Program,
    events: &Events,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<HeaderTemplate> {
    // `None` for a program, here or behind a relay.
    let work = match program {
        Program::Builtin(name) => working_as(name.as_str(), &connection.config),
        Program::Entry(..) => None,
    };
    let described = work.and_then(goondan_connectors::find);
    let inbound = work.and_then(inbound);
    let is_silent = described.is_none_or(|it| it.events.is_empty()) && inbound.is_none();
    if let Some(work) = work.filter(|_| is_silent) {
        warn_unused(connection, work, report);
        return None;
    }
    match &connection.header {
        Some(LocatedValue {
            value: HeaderSpec::None,
            ..
        }) => None,
        Some(LocatedValue {
            value: HeaderSpec::Template(template),
            place,
        }) => {
            let known = placeholders(events, described, inbound);
            check(connection, template, *place, known, report);
            Some(template.clone())
        }
        // Projects in the older format run as they did (`COMPAT-1`).
        None if !resources.contract.is_own() => None,
        // A test of the connectors parses every default.
        None => HeaderTemplate::parse(inbound?.header?).ok(),
    }
}

/// Names that the header can use; `None` if the connector does not declare its properties.
fn placeholders<'a>(
    events: &'a Events,
    described: Option<&'static goondan_connectors::Connector>,
    inbound: Option<&'static Inbound>,
) -> Option<BTreeSet<&'a str>> {
    let mut known = BTreeSet::from([EVENT, CONNECTION]);
    match (described, inbound) {
        (Some(described), Some(inbound)) => known.extend(inbound.placeholders(described)?),
        (Some(_), None) => {}
        (None, _) if events.is_empty() => return None,
        (None, _) => {}
    }
    for properties in events.values() {
        known.extend(properties.as_ref()?.iter().map(String::as_str));
    }
    Some(known)
}

/// Reports placeholders that no event of the connection has.
fn check(
    connection: &ConnectionSpec,
    template: &HeaderTemplate,
    place: SourceLocation,
    known: Option<BTreeSet<&str>>,
    report: &mut ProblemReport,
) {
    let Some(known) = known else {
        return;
    };
    let names = template.names().into_iter();
    for name in names.filter(|name| !known.contains(name)) {
        let label = connection.written.label.field(HEADER);
        let message = format!(
            "{label} has the placeholder `{{{name}}}`, which is not a property of its events; \
             expected {}",
            one_of(&known)
        );
        report.add(
            Problem::new(codes::UNKNOWN_REFERENCE, place, message)
                .did_you_mean(nearest(name, known.iter().copied())),
        );
    }
}

/// Warns about settings of a connector without events.
fn warn_unused(connection: &ConnectionSpec, connector: &str, report: &mut ProblemReport) {
    let header = connection.header.as_ref().map(|header| header.place);
    for (name, place) in [(HEADER, header), (PAYLOAD, connection.payload_place)] {
        if let Some(place) = place {
            let label = connection.written.label.field(name);
            let message = format!(
                "{label} has no effect: the connector `{connector}` delivers no messages from outside"
            );
            report.add(Problem::warning(codes::NO_EFFECT, place, message).help("remove it"));
        }
    }
}
