//! Resolves an agent with its model, tools and extensions.

use std::collections::BTreeSet;

use goondan_protocol::base_package::tool_exports;
use goondan_protocol::definition::{
    AgentDefinition, ExtensionDefinition, ExtensionSource, Fallback, HostedModel, ModelParams,
    ModelProvider, ToolDefinition, ToolSource,
};
use goondan_protocol::settings::TOOL_SEARCH_FIND;

use super::members::Membership;
use super::{agent_tools, permissions};
use crate::codes;
use crate::fields::one_of;
use crate::kinds::agent::AgentSpec;
use crate::kinds::{Resources, extension, thinking, tool};
use crate::place::SourceLocation;
use crate::reference::Reference;
use crate::report::{Problem, ProblemReport};
use crate::similar::nearest;
use crate::tool_connections;

/// Built-in extension that implements `requiredTools`.
const REQUIRED_TOOLS_GUARD: &str = "required-tools-guard";
/// Name of that extension instance. It cannot collide with a resource, because it is not a valid
/// resource name.
const REQUIRED_TOOLS: &str = "$requiredTools";

pub(super) fn resolve_agent(
    agent: &AgentSpec,
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<AgentDefinition> {
    let policy = &membership.policy;
    let mut model = agent.model.as_ref().and_then(|reference| {
        resources.names.check(reference, report)?;
        resources.models.get(&reference.name).cloned()
    });
    match model.as_mut().map(|model| &mut model.provider) {
        Some(ModelProvider::Connector { params, fallbacks }) => {
            params.clone_from(&agent.params);
            *fallbacks = resolve_fallbacks(agent, resources, report);
        }
        Some(ModelProvider::Scripted { .. }) => refuse_fallbacks(agent, report),
        None => {}
    }
    let hosted = model.as_ref().and_then(|it| resources.hosted.get(&it.name));
    if let (Some(place), Some(hosted)) = (agent.params_place, hosted) {
        let sent = agent.params.clone().or(&hosted.model.params);
        thinking::check(&hosted.model, &sent, place, report);
    }
    let extensions = resolve_extensions(agent, resources, report);
    if let (Some(place), Some(ModelProvider::Scripted { .. })) = (
        agent.params_place,
        model.as_ref().map(|model| &model.provider),
    ) {
        report.add(
            Problem::warning(
                codes::NO_EFFECT,
                place,
                "`params` has no effect: the scripted model has no parameters",
            )
            .help("remove it, or use another model"),
        );
    }
    let tools = resolve_tools(agent, membership, resources, report);
    Some(AgentDefinition {
        name: agent.name.clone(),
        description: agent.description.clone(),
        system_prompt: agent.system_prompt.clone(),
        model: model?,
        tools,
        extensions,
        max_steps_per_turn: policy.max_steps_per_turn,
        loop_breaker: policy.loop_breaker,
        cwd_mode: agent.runtime.cwd_mode,
        limits: agent.runtime.limits,
        secret_files: resources.env_files.clone(),
        sandbox: agent.sandbox.within(&policy.sandbox),
        package_sandboxes: Vec::new(),
        extension_sandbox: None,
        skills: Vec::new(),
        contract: resources.contract,
        swarm: None,
        project_work: None,
    })
}

fn resolve_fallbacks(
    agent: &AgentSpec,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Vec<Fallback> {
    let first = agent
        .model
        .as_ref()
        .map(|reference| reference.name.as_str());
    let mut seen: BTreeSet<&str> = first.into_iter().collect();
    let mut found = Vec::new();
    for fallback in &agent.fallbacks {
        let reference = &fallback.model;
        if resources.names.check(reference, report).is_none() {
            continue;
        }
        if !seen.insert(reference.name.as_str()) {
            let message = format!(
                "Agent `{}` lists Model `{}` twice",
                agent.name, reference.name
            );
            let problem = Problem::new(codes::DUPLICATE_REFERENCE, reference.place, message);
            report.add(problem.help("list each model once"));
            continue;
        }
        let Some(model) = resources.models.get(&reference.name) else {
            continue;
        };
        let Some(hosted) = resources.hosted.get(&model.name) else {
            let message = "the scripted model cannot be a fallback: it always answers and runs in \
                the agent's own process";
            let problem = Problem::new(codes::INVALID_VALUE, reference.place, message);
            report.add(problem.help("write a Model of a provider"));
            continue;
        };
        if let Some(place) = fallback.params_place {
            let sent = fallback.params.clone().or(&hosted.model.params);
            thinking::check(&hosted.model, &sent, place, report);
        }
        let own = fallback.params.clone().or(&hosted.model.params);
        found.push(Fallback {
            name: model.name.clone(),
            params: inherited(own, &agent.params, &hosted.model),
            on: fallback.on.clone(),
        });
    }
    found
}

/// Parameters of a fallback: those that neither it nor its Model sets are those of the agent's first
/// model. A limit of the reply and an effort that do not fit together are not mixed.
fn inherited(own: ModelParams, first: &ModelParams, model: &HostedModel) -> ModelParams {
    let all = own.clone().or(first);
    if thinking::leaves_room(model, &all) || !thinking::leaves_room(model, &own) {
        return all;
    }
    let first = ModelParams {
        max_tokens: None,
        reasoning_effort: None,
        ..first.clone()
    };
    own.or(&first)
}

/// Refuses fallbacks of the scripted model, which never fails in a way that a fallback could
/// handle.
fn refuse_fallbacks(agent: &AgentSpec, report: &mut ProblemReport) {
    if let Some(first) = agent.fallbacks.first() {
        let message = "`fallbacks` has no effect: the scripted model always answers";
        let problem = Problem::warning(codes::NO_EFFECT, first.model.place, message);
        report.add(problem.help("remove it, or use another model"));
    }
}

fn resolve_tools(
    agent: &AgentSpec,
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Vec<ToolDefinition> {
    let mut seen = BTreeSet::new();
    let mut tools = Vec::with_capacity(agent.tools.len());
    for reference in &agent.tools {
        if !seen.insert(reference.name.as_str()) {
            report.add(
                Problem::new(
                    codes::DUPLICATE_REFERENCE,
                    reference.place,
                    format!(
                        "Agent `{}` has two tools named `{}`",
                        agent.name, reference.name
                    ),
                )
                .help("remove one of the two or give it another name in a Tool document"),
            );
        }
        let mut tool = resolve_tool(reference, resources, report);
        if let Some(tool) = &mut tool {
            agent_tools::connect(tool, reference, (agent, membership), resources, report);
        }
        tools.extend(tool);
    }
    tools
}

fn resolve_extensions(
    agent: &AgentSpec,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Vec<ExtensionDefinition> {
    let mut seen = BTreeSet::new();
    let mut extensions = Vec::new();
    for reference in &agent.extensions {
        if !seen.insert(reference.name.as_str()) {
            report.add(
                Problem::new(
                    codes::DUPLICATE_REFERENCE,
                    reference.place,
                    format!(
                        "Agent `{}` has two extensions named `{}`, which would share one state",
                        agent.name, reference.name
                    ),
                )
                .help("remove one of the two or give it another name in an Extension document"),
            );
        }
        if resources.names.check(reference, report).is_none() {
            continue;
        }
        let found = if reference.builtin {
            extension::builtin(&reference.name)
        } else {
            resources.extensions.get(reference.key().as_ref()).cloned()
        };
        let found = found.and_then(|it| extension::with_settings(it, reference, report));
        if let Some(definition) = &found {
            check_named_tools(definition, reference, agent, resources, report);
        }
        extensions.extend(found);
    }
    check_required_tools(agent, resources, report);
    extensions.extend(required_tools_guard(agent));
    extensions
}

/// Checks that tools named in an extension's settings belong to the agent. The tool that
/// `tool-search` adds must have a unique name.
fn check_named_tools(
    definition: &ExtensionDefinition,
    reference: &Reference,
    agent: &AgentSpec,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let ExtensionSource::Builtin { name, .. } = &definition.source else {
        return;
    };
    let extension = name.as_str();
    let search_tool = definition.config.get("toolName");
    let search_tool = search_tool.and_then(serde_json::Value::as_str);
    let (search, _) = search_tool
        .unwrap_or(TOOL_SEARCH_FIND)
        .split_once("__")
        .unwrap_or_default();
    if extension == "tool-search"
        && let Some(taken) = agent.tools.iter().find(|held| held.name == search)
    {
        let message = format!(
            "the extension `{extension}` adds a tool `{search}`, but Agent `{}` already has a tool \
             with that name",
            agent.name
        );
        report.add(
            Problem::new(codes::DUPLICATE_REFERENCE, taken.place, message)
                .help("give the Tool another name"),
        );
    }
    for setting in settings_of_tools(extension) {
        let names = definition.config.get(*setting);
        let names = names.and_then(serde_json::Value::as_array).into_iter();
        let names = names.flatten().filter_map(serde_json::Value::as_str);
        let names: Vec<&str> = names.collect();
        let can_end = extension == REQUIRED_TOOLS_GUARD && can_end(agent, &names, resources);
        for name in names {
            let Some(tool) = missing_tool(agent, name) else {
                continue;
            };
            let message = format!(
                "`{setting}` of the extension `{}` lists `{name}`, but Agent `{}` has no tool \
                 `{tool}`",
                definition.name, agent.name
            );
            report_missing_tool(reference.place, message, can_end, report);
        }
    }
}

/// Settings of a built-in extension that contain tool names.
fn settings_of_tools(extension: &str) -> &'static [&'static str] {
    match extension {
        REQUIRED_TOOLS_GUARD => &["tools"],
        "tool-search" => &["alwaysOffered"],
        _ => &[],
    }
}

/// Refuses required tools that the agent does not have, because they could never be called.
fn check_required_tools(agent: &AgentSpec, resources: &Resources, report: &mut ProblemReport) {
    let names = agent.required_tools.iter().map(|it| it.value.as_str());
    let can_end = can_end(agent, &names.collect::<Vec<&str>>(), resources);
    for required in &agent.required_tools {
        let Some(tool) = missing_tool(agent, &required.value) else {
            continue;
        };
        let message = format!(
            "Agent `{}` requires a call of `{}`, but has no tool `{tool}`",
            agent.name, required.value
        );
        report_missing_tool(required.place, message, can_end, report);
    }
}

/// The tool of a name such as `tool__export`, if the agent does not list it.
fn missing_tool<'n>(agent: &AgentSpec, name: &'n str) -> Option<&'n str> {
    let (tool, _) = name.split_once("__").unwrap_or_default();
    let has_it = agent.tools.iter().any(|held| held.name == tool);
    (!has_it).then_some(tool)
}

/// True if a turn can end although the agent lacks some required tools. In the older contract, one
/// of the tools is enough, and modules can register it.
fn can_end(agent: &AgentSpec, required: &[&str], resources: &Resources) -> bool {
    !resources.contract.is_own()
        && (required.iter().any(|it| missing_tool(agent, it).is_none())
            || agent.extensions.iter().any(|extension| !extension.builtin))
}

fn report_missing_tool(
    place: SourceLocation,
    message: String,
    can_end: bool,
    report: &mut ProblemReport,
) {
    if report.is_partial() {
        return;
    }
    let problem = match can_end {
        true => Problem::note(codes::OLDER_FORM, place, message),
        false => Problem::new(codes::UNKNOWN_REFERENCE, place, message),
    };
    report.add(problem.help("write the full name, `tool__export`, of one of the agent's `tools`"));
}

/// Converts `requiredTools` to the extension `required-tools-guard`, in the innermost position. One of the tools is
/// enough, as in goondan 0.0.3.
fn required_tools_guard(agent: &AgentSpec) -> Option<ExtensionDefinition> {
    if agent.required_tools.is_empty() {
        return None;
    }
    let mut guard = extension::builtin(REQUIRED_TOOLS_GUARD)?;
    guard.name = REQUIRED_TOOLS.parse().ok()?;
    let tools = agent.required_tools.iter().map(|tool| tool.value.as_str());
    guard.config.insert("tools".to_owned(), tools.collect());
    guard.config.insert("anyOf".to_owned(), true.into());
    Some(guard)
}

fn resolve_tool(
    reference: &Reference,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<ToolDefinition> {
    resources.names.check(reference, report)?;
    let mut tool = if reference.builtin {
        tool::builtin(&reference.name)
    } else {
        resources.tools.get(reference.key().as_ref()).cloned()
    }?;
    permissions::check_tool(&tool, reference, resources, report);
    tool_connections::connect(&mut tool, reference, resources, report);
    check_approved_exports(&tool, reference, report);
    tool.approve = reference
        .approve
        .iter()
        .map(|(rule, _)| rule.clone())
        .collect();
    Some(tool)
}

/// Names of a tool's exports; empty if they are not known here.
pub(super) fn known_exports(tool: &ToolDefinition) -> Vec<&str> {
    match &tool.source {
        _ if !tool.exports.is_empty() => tool.exports.iter().map(|it| it.name.as_str()).collect(),
        ToolSource::Builtin { name, .. } => tool_exports(name.as_str()),
        ToolSource::Module { .. } => Vec::new(),
    }
}

/// Reports rules about missing exports, which could never match. The exports of a server are not
/// known here.
fn check_approved_exports(
    tool: &ToolDefinition,
    reference: &Reference,
    report: &mut ProblemReport,
) {
    let known = known_exports(tool);
    if known.is_empty() {
        return;
    }
    for (rule, place) in &reference.approve {
        let unknown = rule
            .export
            .as_deref()
            .filter(|export| !known.contains(export));
        let Some((unknown, place)) = unknown.zip(*place) else {
            continue;
        };
        let message = format!(
            "`approve` lists `{unknown}`, but the tool `{}` has {}",
            tool.name,
            one_of(&known)
        );
        report.add(
            Problem::new(codes::UNKNOWN_REFERENCE, place, message)
                .did_you_mean(nearest(unknown, known.iter().copied())),
        );
    }
}
