//! Resolves tools that are other agents.

use goondan_protocol::base_package::{AGENT_TOOL, BASE_PACKAGE};
use goondan_protocol::definition::{ToolDefinition, ToolSource};
use goondan_protocol::settings::{self, agent_tool};
use serde_json::Value;

use super::members::Membership;
use crate::approve::ConfiguredApprovals;
use crate::codes;
use crate::kind::ResourceKind;
use crate::kinds::agent::AgentSpec;
use crate::kinds::tool::check_schema;
use crate::kinds::{Resources, builtin_settings};
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport};

/// Sets the name and the description of the agent that a tool asks, and reports a tool that could
/// ask none.
pub(super) fn connect(
    tool: &mut ToolDefinition,
    reference: &Reference,
    (agent, membership): (&AgentSpec, &Membership),
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let ToolSource::Builtin { package, name } = &tool.source else {
        return;
    };
    let settings = settings::of_tool(AGENT_TOOL).filter(|_| name.as_str() == AGENT_TOOL);
    let Some(settings) = settings.filter(|_| package == BASE_PACKAGE) else {
        return;
    };
    let place = reference.place;
    let owner = format!("the tool `{AGENT_TOOL}`");
    builtin_settings::check_missing(settings, &tool.config, place, &owner, report);
    // Another type was reported where it is written.
    if let Some(schema) = tool.config.get(agent_tool::PARAMETERS)
        && schema.get("type").and_then(Value::as_str) == Some("object")
        && let Err(reason) = check_schema(schema)
    {
        let message = format!(
            "`{}` of the tool `{}` is not a valid JSON Schema for arguments: {reason}",
            agent_tool::PARAMETERS,
            tool.name
        );
        report.add(
            Problem::new(codes::INVALID_VALUE, place, message)
                .help("write `type: object`, and the arguments in `properties`"),
        );
    }
    let Some(written) = tool.config.get(agent_tool::AGENT).and_then(Value::as_str) else {
        return;
    };
    let asked = written.strip_prefix("Agent/").unwrap_or(written).to_owned();
    let target = Reference {
        kind: ResourceKind::AGENT,
        name: asked.clone(),
        builtin: false,
        package: None,
        place,
        config: None,
        approve: ConfiguredApprovals::new(),
    };
    let exists = match membership.excludes(agent.name.as_str()) {
        // The agent does not run.
        true => resources.names.check(&target, report),
        false => membership.check(&target, resources, report),
    };
    if exists.is_none() {
        return;
    }
    if asked == agent.name.as_str() {
        let message = format!(
            "the tool `{}` of Agent `{asked}` asks the agent itself",
            tool.name
        );
        report.add(
            Problem::new(codes::INVALID_VALUE, place, message)
                .help("an agent cannot wait for its own reply; name another agent"),
        );
        return;
    }
    let mut agents = resources.agents.iter();
    let found = agents.find(|agent| agent.value.name.as_str() == asked);
    let description = found.and_then(|agent| agent.value.description.clone());
    if let Some(description) = description
        && !description.trim().is_empty()
    {
        let own = tool.config.entry(agent_tool::DESCRIPTION.to_owned());
        let own = own.or_insert(Value::Null);
        if own.is_null() {
            *own = description.into();
        }
    }
    tool.config
        .insert(agent_tool::AGENT.to_owned(), asked.into());
}
