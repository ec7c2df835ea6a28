//! Checks the entries of an Agent's `notify`: the connection, its action, and the arguments.

use std::borrow::Cow;
use std::collections::BTreeMap;

use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::service::{ActionCall, ActionSpec, SERVICES, ServiceSpec};
use goondan_protocol::task::{Notice, Notify, NotifyOn, TaskId};
use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::{Value, json};

use super::members::Membership;
use crate::codes;
use crate::fields::one_of;
use crate::kinds::Resources;
use crate::kinds::connection::ConnectionSpec;
use crate::kinds::notify::NotifySpec;
use crate::node::entries_to_json;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::similar::nearest;
use crate::tool_connections::{check_secret, is_of};

/// Value of placeholders while arguments are checked.
const SAMPLE: &str = "1";

/// The valid entries of the swarm's agents.
pub(super) fn resolve(
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) -> BTreeMap<AgentName, Vec<Notify>> {
    let agents = resources.agents.iter().map(|agent| &agent.value);
    let agents = agents.map(|agent| (&agent.name, &agent.notify));
    let programs = resources.cli_agents.iter().map(|agent| &agent.value);
    let programs = programs.map(|agent| (&agent.name, &agent.notify));
    let with_entries = agents.chain(programs).filter(|(name, written)| {
        !written.is_empty() && membership.members.contains(name.as_str())
    });
    let resolved = with_entries
        .map(|(name, written)| (name.clone(), resolve_entries(written, resources, report)));
    resolved.collect()
}

fn resolve_entries(
    written: &[NotifySpec],
    resources: &Resources,
    report: &mut ProblemReport,
) -> Vec<Notify> {
    let entries = written.iter();
    let resolved = entries.filter_map(|entry| resolve_entry(entry, resources, report));
    resolved.collect()
}

fn resolve_entry(
    written: &NotifySpec,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<Notify> {
    resources.names.check(&written.connection, report)?;
    let mut connections = resources.connections.iter().map(|it| &it.value);
    // An unreadable connection was already reported.
    let connection = connections.find(|it| it.name.as_str() == written.connection.name)?;
    let service = service_of(connection, written, resources, report)?;
    let action = action_of(service, written, report)?;
    let who = format!("`{}` of `notify`", action.name);
    let place = written.connection.place;
    check_secret(&who, service, connection, (place, resources), report);
    let args = Value::Object(entries_to_json(&written.args));
    let is_right = check_arguments(action, &args, written, report)
        && check_plan(action, &args, connection, written, report);
    is_right.then(|| Notify {
        connection: connection.name.clone(),
        service: service.tool.to_owned(),
        action: action.name.to_owned(),
        args,
        on: written.on.clone(),
    })
}

/// The service of a connection, if it has any actions.
fn service_of(
    connection: &ConnectionSpec,
    written: &NotifySpec,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<&'static ServiceSpec> {
    let with_actions = || {
        SERVICES
            .iter()
            .filter(|service| !service.actions.is_empty())
    };
    let found = with_actions().find(|service| is_of(connection, service.connector, resources));
    // Its connector could not be read.
    if found.is_none() && connection.connector.is_some() {
        let connectors = one_of(with_actions().map(|service| service.connector));
        let message = format!(
            "Connection `{}` has no actions, so it cannot send notifications",
            connection.name
        );
        let problem = Problem::new(codes::INVALID_VALUE, written.connection.place, message);
        report.add(problem.help(format!("use a Connection of the connector {connectors}")));
    }
    found
}

fn action_of(
    service: &ServiceSpec,
    written: &NotifySpec,
    report: &mut ProblemReport,
) -> Option<&'static ActionSpec> {
    let wanted = &written.action;
    let actions = service.actions;
    let found = actions.iter().find(|action| action.name == wanted.value);
    if found.is_none() {
        let names = || actions.iter().map(|action| action.name);
        let message = format!(
            "the connector `{}` has no action `{}`; expected {}",
            service.connector,
            wanted.value,
            one_of(names())
        );
        let problem = Problem::new(codes::INVALID_VALUE, wanted.place, message);
        report.add(problem.did_you_mean(nearest(&wanted.value, names())));
    }
    found
}

fn sample_of(args: &Value) -> Option<Value> {
    let workspace_id: WorkspaceId = SAMPLE.parse().ok()?;
    let task_id: TaskId = SAMPLE.parse().ok()?;
    let notice = Notice {
        workspace_id: &workspace_id,
        task_id: &task_id,
        title: SAMPLE,
        on: NotifyOn::Question,
        need: SAMPLE,
        command: SAMPLE,
    };
    Some(notice.fill(args))
}

/// Checks the arguments against the action's declaration; returns false if there is a problem.
fn check_arguments(
    action: &ActionSpec,
    args: &Value,
    written: &NotifySpec,
    report: &mut ProblemReport,
) -> bool {
    let properties = (action.arguments)();
    let schema = json!({
        "type": "object",
        "required": action.required,
        "additionalProperties": false,
        "properties": properties,
    });
    let (Ok(schema), Some(sample)) = (jsonschema::draft202012::new(&schema), sample_of(args))
    else {
        return false;
    };
    let names: Vec<&str> = properties
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys().map(String::as_str))
        .collect();
    let mut is_right = true;
    for error in schema.iter_errors(&sample) {
        is_right = false;
        for problem in problems_of(&error, action, &names, written) {
            report.add(problem);
        }
    }
    is_right
}

fn problems_of(
    error: &ValidationError<'_>,
    action: &ActionSpec,
    names: &[&str],
    written: &NotifySpec,
) -> Vec<Problem> {
    let label = &written.args_label;
    let invalid = |place, message| Problem::new(codes::INVALID_VALUE, place, message);
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let missing = property.as_str().unwrap_or_default();
            let message = format!("`{}` needs the argument `{missing}`", action.name);
            let problem = Problem::new(codes::MISSING_FIELD, written.args_place, message);
            vec![problem.help(format!("add `{missing}` to `args`"))]
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let unknown = unexpected.iter().map(|name| {
                let message = format!(
                    "`{}` has no argument `{name}`; expected {}",
                    action.name,
                    one_of(names)
                );
                let place = place_of(written, name).unwrap_or(written.args_place);
                invalid(place, message).did_you_mean(nearest(name, names.iter().copied()))
            });
            unknown.collect()
        }
        _ => {
            let path = error.instance_path().as_str();
            let name = path.trim_start_matches('/').split('/').next();
            let name = name.unwrap_or_default();
            let place = place_of(written, name).unwrap_or(written.args_place);
            let said = error.masked_with("the value");
            vec![invalid(place, format!("{}: {said}", label.field(name)))]
        }
    }
}

fn place_of(written: &NotifySpec, name: &str) -> Option<SourceLocation> {
    let mut entries = written.args.iter();
    entries.find(|it| it.key == name).map(|it| it.node.place)
}

/// Checks that the action can be planned from the arguments alone, because a notification has no
/// event.
fn check_plan(
    action: &ActionSpec,
    args: &Value,
    connection: &ConnectionSpec,
    written: &NotifySpec,
    report: &mut ProblemReport,
) -> bool {
    let Some(sample) = sample_of(args) else {
        return false;
    };
    let planned = (action.plan)(&ActionCall {
        connection: &connection.name,
        call_id: SAMPLE,
        args: &sample,
        facts: None,
        file: None,
    });
    let Err(error) = planned else {
        return true;
    };
    // The rest of the message is about turns, which do not apply to tasks.
    let said = error.to_string();
    let said: Cow<'_, str> = match said.split_once(": ") {
        Some((said, _)) => said.into(),
        None => said.into(),
    };
    let message = format!("cannot build `{}` from these `args`: {said}", action.name);
    let problem = Problem::new(codes::INVALID_VALUE, written.args_place, message);
    report.add(problem.help(
        "write every argument it needs into `args`; a notification has no message to take it from",
    ));
    false
}
