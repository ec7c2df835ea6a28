//! Rights of child processes (`SEC-7`). Pure functions of the definition with which a process was
//! started, and of its current turn.
//!
//! Claims of a child about itself are not trusted: its identity follows from its socket, its rights
//! from the validated configuration, and its turn from what it was sent.

use goondan_protocol::agents::AgentQuestion;
use goondan_protocol::base_package::{AGENT_TOOL, AGENT_TOOL_EXPORT, BASE_PACKAGE, EVENT_TOOL};
use goondan_protocol::call::{COMPLETE, CallError, CallErrorCode, CallTarget, OutgoingCall};
use goondan_protocol::definition::{AgentDefinition, ExtensionSource, ToolDefinition, ToolSource};
use goondan_protocol::ids::{ExtensionStates, StepId, TurnId};
use goondan_protocol::settings::agent_tool;
use goondan_protocol::trace::TraceContext;

use super::turn::ActiveTurn;
use crate::refusals::AgentRequestError;

/// The built-in tool that permits requests to other agents.
const AGENTS_TOOL: &str = "agents";
/// The built-in tool that grants a restart of the agent's own process, and its one export.
const RESTART_TOOL: (&str, &str) = ("self-restart", "request");

/// The built-in tool with which an agent schedules its own inputs.
const SCHEDULE_TOOL: &str = "schedule";

/// The built-in tool with which a coordinator reviews and applies proposals.
const REVIEW_TOOL: &str = "proposal-review";

/// Tool export that makes an agent a coordinator.
const PREPARE: (&str, &str) = ("sandbox", "prepare");
/// Tool export that makes an agent a worker.
const SUBMIT: (&str, &str) = ("proposal", "submit");

/// True if an agent works in a sandbox when one is prepared for it.
pub(super) fn is_worker(agent: &AgentDefinition) -> bool {
    agent.has_export(SUBMIT.0, SUBMIT.1)
}

/// True if an agent prepares sandboxes for others, and may read their results.
pub(super) fn is_coordinator(agent: &AgentDefinition) -> bool {
    agent.has_export(PREPARE.0, PREPARE.1)
}

/// True if an agent changes its own configuration.
pub(super) fn is_author(agent: &AgentDefinition) -> bool {
    agent.has_export("swarm-bundle", "open")
}

/// The tool and its export that grant a question; none if every agent may ask it.
fn grant_of(question: &AgentQuestion) -> Option<(&'static str, &'static str)> {
    Some(match question {
        // To ask for less is everybody's right.
        AgentQuestion::Approval { .. } => return None,
        AgentQuestion::Request { .. } => (AGENTS_TOOL, "request"),
        AgentQuestion::Send { .. } => (AGENTS_TOOL, "send"),
        AgentQuestion::Spawn { .. } => (AGENTS_TOOL, "spawn"),
        AgentQuestion::List { .. } => (AGENTS_TOOL, "list"),
        AgentQuestion::Catalog {} => (AGENTS_TOOL, "catalog"),
        AgentQuestion::ReadEvent { .. } => (EVENT_TOOL, "read"),
        AgentQuestion::ListEvents {} => (EVENT_TOOL, "list"),
        AgentQuestion::Restart { .. } => RESTART_TOOL,
        AgentQuestion::PrepareSandbox { .. } => PREPARE,
        AgentQuestion::ShowSandbox { .. } => ("sandbox", "status"),
        AgentQuestion::SubmitProposal { .. } => SUBMIT,
        AgentQuestion::ShowProposal { .. } => ("proposal", "status"),
        AgentQuestion::DiffProposal { .. } => (REVIEW_TOOL, "diff"),
        AgentQuestion::CheckProposal { .. } => (REVIEW_TOOL, "check"),
        AgentQuestion::ApplyProposal { .. } => (REVIEW_TOOL, "apply"),
        AgentQuestion::CreateTask { .. } => ("tasks", "create"),
        AgentQuestion::ShowTask { .. } => ("tasks", "status"),
        AgentQuestion::AwaitTask { .. } => ("tasks", "wait"),
        AgentQuestion::CreateSchedule { time, .. } if time.is_once() => (SCHEDULE_TOOL, "once"),
        AgentQuestion::CreateSchedule { .. } => (SCHEDULE_TOOL, "cron"),
        AgentQuestion::ListSchedules {} => (SCHEDULE_TOOL, "list"),
        AgentQuestion::RemoveSchedule { .. } => (SCHEDULE_TOOL, "remove"),
        AgentQuestion::Bundle { ask } => ("swarm-bundle", ask.export()),
    })
}

/// Checks that an agent may make a request. The modules of its extensions may make it, too: they
/// are the project's own code, which the configuration names. They may contact other agents, but
/// not restart their own.
///
/// # Errors
///
/// `E_NOT_GRANTED`, with the tool that would grant it.
pub(super) fn may_ask(
    agent: &AgentDefinition,
    question: &AgentQuestion,
) -> Result<(), AgentRequestError> {
    let Some((tool, export)) = grant_of(question) else {
        return Ok(());
    };
    let by_tool = agent.has_export(tool, export);
    let is_module = |source: &ExtensionSource| matches!(source, ExtensionSource::Module { .. });
    // Modules of tools reach other agents under the older contract (`COMPAT-3`).
    let has_tool_module = !agent.contract.is_own()
        && agent
            .tools
            .iter()
            .any(|held| matches!(held.source, ToolSource::Module { .. }));
    let has_module = has_tool_module || agent.extensions.iter().any(|held| is_module(&held.source));
    if by_tool || (tool == AGENTS_TOOL && has_module) || has_tool_for(&agent.tools, question) {
        return may_ask_of(agent, question);
    }
    let message = format!(
        "agent `{}` does not have the required tool; add `{export}` of `{tool}` of \
         `{BASE_PACKAGE}` to its `tools` in goondan.yaml",
        agent.name
    );
    Err(AgentRequestError::new("E_NOT_GRANTED", message))
}

/// True if one of the tools is the other agent, which it can then ask for replies in its part of
/// the conversation.
fn has_tool_for(tools: &[ToolDefinition], question: &AgentQuestion) -> bool {
    let AgentQuestion::Request {
        agent: asked,
        instance_key: None,
        ..
    } = question
    else {
        return false;
    };
    let asks_it = |held: &ToolDefinition| {
        held.grants(AGENT_TOOL, AGENT_TOOL_EXPORT)
            && held
                .config
                .get(agent_tool::AGENT)
                .is_some_and(|name| name.as_str() == Some(asked.as_str()))
    };
    tools.iter().any(asks_it)
}

/// Checks that an agent may access a sandbox: its own, or any if the agent is a coordinator. The
/// paths of a proposal that it applies are checked against the project's policy when it is applied.
fn may_ask_of(agent: &AgentDefinition, question: &AgentQuestion) -> Result<(), AgentRequestError> {
    match question.sandbox_of() {
        Some(other) if *other != agent.name && !is_coordinator(agent) => {
            let message = format!(
                "agent `{}` may access only its own sandbox; to let it coordinate other agents, \
                 add `prepare` of `sandbox` of `{BASE_PACKAGE}` to its `tools` in goondan.yaml",
                agent.name
            );
            Err(AgentRequestError::new("E_NOT_GRANTED", message))
        }
        _ => Ok(()),
    }
}

/// True if a step id belongs to a turn: to a step, or to a summary before one.
pub(super) fn is_step_of(turn_id: &TurnId, step_id: &StepId) -> bool {
    let rest = step_id.as_str().strip_prefix(turn_id.as_str());
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix('.')) else {
        return false;
    };
    let number = rest.strip_prefix('s').unwrap_or(rest);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks that an agent may request a call: to its own model for the reply of a step, which is
/// recorded and metered, or to the connections of its tools; and only in its current turn.
///
/// # Errors
///
/// `refused`, with the allowed calls.
pub(crate) fn may_call(
    agent: &AgentDefinition,
    turn: &ActiveTurn,
    asked: &OutgoingCall,
) -> Result<(), CallError> {
    let refused = |message: String| Err(CallError::new(CallErrorCode::Refused, message));
    let is_in_turn = asked.place.as_ref().is_some_and(|place| {
        let mut step = place.step_id.iter();
        place.turn_id == turn.turn_id && step.all(|step| is_step_of(&turn.turn_id, step))
    });
    if !is_in_turn {
        return refused("a call must belong to a step of the turn in progress".to_owned());
    }
    match &asked.target {
        CallTarget::Connection { name } if agent.works_by(name) => Ok(()),
        CallTarget::Connection { .. } => {
            refused(format!("no tool of the agent uses {}", asked.target))
        }
        CallTarget::Model { name } if agent.model.names().all(|own| own != name) => {
            refused(format!(
                "the agent's model is `{}`; it must not call {}",
                agent.model.name, asked.target
            ))
        }
        CallTarget::Model { .. } if asked.record.is_none() || asked.method != COMPLETE => {
            refused("a model call must be for the recorded reply of a step".to_owned())
        }
        CallTarget::Model { .. } => Ok(()),
    }
}

/// True if all of these states belong to extensions of the agent.
pub(super) fn may_remember(agent: &AgentDefinition, states: &ExtensionStates) -> bool {
    states
        .keys()
        .all(|name| agent.extensions.iter().any(|held| held.name == *name))
}

/// Trace context within the turn's own trace: the child chooses the span, but not the trace.
pub(crate) fn trace_within(turn: &ActiveTurn, said: Option<TraceContext>) -> TraceContext {
    let own = turn.context.trace;
    match said {
        Some(said) => TraceContext {
            trace_id: own.trace_id,
            ..said
        },
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sec_7_an_agent_as_a_tool_grants_requests_to_this_agent_only() {
        let tool = json!({
            "name": "desk", "config": {"agent": "lawyer"}, "errorMessageLimit": 1,
            "source": {"kind": "builtin", "package": BASE_PACKAGE, "name": AGENT_TOOL},
        });
        let tools = [serde_json::from_value(tool).unwrap()];
        let request = |agent: &str| json!({"op": "request", "agent": agent, "input": "x", "wait": true, "timeoutMs": 1});
        let mut elsewhere = request("lawyer");
        elsewhere["instanceKey"] = json!("other");
        let send = json!({"op": "send", "agent": "lawyer", "input": "x"});
        for (question, is_granted) in [
            (request("lawyer"), true),
            (request("clerk"), false),
            (elsewhere, false),
            (send, false),
            (json!({"op": "catalog"}), false),
        ] {
            let read: AgentQuestion = serde_json::from_value(question.clone()).unwrap();
            assert_eq!(has_tool_for(&tools, &read), is_granted, "{question}");
        }
    }
}
