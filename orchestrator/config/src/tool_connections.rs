//! Assigns connections to an agent's tools that need one.

use goondan_connectors::{is_relay, working_as};
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::definition::{ToolDefinition, ToolSource};
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::{ServiceSpec, service_of};
use goondan_protocol::settings::CONNECTION;

use crate::codes;
use crate::fields::one_of;
use crate::kinds::Resources;
use crate::kinds::connection::ConnectionSpec;
use crate::kinds::connector::Program;
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::similar::nearest;

/// Sets the connections of a tool: the one in its setting `connection`, or else all of its
/// connector. Reports a tool without any usable connection.
pub(crate) fn connect(
    tool: &mut ToolDefinition,
    reference: &Reference,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let ToolSource::Builtin { package, name } = &tool.source else {
        return;
    };
    let Some(service) = service_of(name.as_str()).filter(|_| package == BASE_PACKAGE) else {
        return;
    };
    let all: Vec<&ConnectionSpec> = resources
        .connections
        .iter()
        .map(|connection| &connection.value)
        .filter(|connection| is_of(connection, service.connector, resources))
        .collect();
    let setting = tool.config.remove(CONNECTION);
    let chosen = match setting.filter(|setting| !setting.is_null()) {
        None => all,
        // Already reported where it is written.
        Some(setting) if !setting.is_string() => return,
        Some(setting) => match all.iter().find(|it| it.name.as_str() == named(&setting)) {
            Some(connection) => vec![*connection],
            None => {
                if !report.is_partial() {
                    report.add(not_there(tool, service, &setting, &all, reference));
                }
                return;
            }
        },
    };
    // An unreadable resource may be the connection.
    if chosen.is_empty() && !report.is_partial() {
        report.add(none_at_all(tool, service, reference));
    }
    for connection in &chosen {
        let who = format!("the tool `{}`", tool.name);
        check_secret(
            &who,
            service,
            connection,
            (reference.place, resources),
            report,
        );
    }
    // Others wait for variables that are not set, which was reported.
    let started = chosen
        .iter()
        .filter(|it| resources.contract.is_own() || it.written.is_whole);
    let names = started.map(|connection| connection.name.clone());
    tool.connections = names.collect::<Vec<ConnectionName>>();
    tool.connections.sort();
}

/// True if a connection uses the built-in connector, directly or through a relay.
pub(crate) fn is_of(connection: &ConnectionSpec, connector: &str, resources: &Resources) -> bool {
    let own = builtin_of(connection, resources);
    own.and_then(|own| working_as(own, &connection.config)) == Some(connector)
}

/// The built-in connector of a connection, if it has one.
fn builtin_of<'a>(connection: &'a ConnectionSpec, resources: &'a Resources) -> Option<&'a str> {
    let reference = connection.connector.as_ref()?;
    if reference.builtin {
        return Some(&reference.name);
    }
    match &resources.connectors.get(reference.key().as_ref())?.program {
        Program::Builtin(name) => Some(name.as_str()),
        Program::Entry(..) => None,
    }
}

/// The connection in a setting, as `name` or `Connection/name`.
fn named(setting: &serde_json::Value) -> &str {
    let name = setting.as_str().unwrap_or_default();
    name.strip_prefix("Connection/").unwrap_or(name)
}

fn not_there(
    tool: &ToolDefinition,
    service: &ServiceSpec,
    setting: &serde_json::Value,
    all: &[&ConnectionSpec],
    reference: &Reference,
) -> Problem {
    let there_is = if all.is_empty() {
        "the project has none".to_owned()
    } else {
        format!("expected {}", one_of(all.iter().map(|it| &it.name)))
    };
    let message = format!(
        "the tool `{}` uses Connection `{}`, which is not a Connection of the connector `{}`; {there_is}",
        tool.name,
        named(setting),
        service.connector
    );
    let meant = nearest(named(setting), all.iter().map(|it| it.name.as_str()));
    Problem::new(codes::UNKNOWN_REFERENCE, reference.place, message).did_you_mean(meant)
}

fn none_at_all(tool: &ToolDefinition, service: &ServiceSpec, reference: &Reference) -> Problem {
    let ServiceSpec { connector, .. } = service;
    let message = format!(
        "the tool `{}` needs a Connection of the connector `{connector}`, but the project has none",
        tool.name
    );
    Problem::new(codes::UNKNOWN_REFERENCE, reference.place, message).help(format!(
        "add a document of kind `Connection` with `connectorRef: {{kind: Connector, name: {connector}, \
         package: \"{BASE_PACKAGE}\"}}`"
    ))
}

/// Reports that `who` cannot use a connection because a secret is missing.
pub(crate) fn check_secret(
    who: &str,
    service: &ServiceSpec,
    connection: &ConnectionSpec,
    (place, resources): (SourceLocation, &Resources),
    report: &mut ProblemReport,
) {
    let Some(secret) = service.secret else {
        return;
    };
    if builtin_of(connection, resources).is_some_and(is_relay) {
        // The secret is on the other machine.
        return;
    }
    // Secrets that the connector always requires are reported with the connector.
    let described = goondan_connectors::find(service.connector);
    let is_required = described.is_some_and(|described| {
        let secrets = described.secrets.iter();
        secrets
            .filter(|it| it.name == secret)
            .any(|it| it.is_required)
    });
    let is_there = connection.secrets.contains_key(secret);
    if is_there || is_required || !connection.written.is_whole {
        return;
    }
    let message = format!(
        "{who} requires the secret `{secret}` of Connection `{}`",
        connection.name
    );
    report.add(
        Problem::new(codes::MISSING_FIELD, place, message)
            .help(format!("add `{secret}` to the `secrets` of the Connection")),
    );
}
