//! What a child may ask for (`SEC-7`). Pure functions of the definition its process was started with and
//! of the turn it was handed.
//!
//! Nothing here believes what a child says of itself: whose process it is follows from its socket, what
//! it may do from the checked configuration, and what turn it works on from what it was handed.

use goondan_protocol::agents::Question;
use goondan_protocol::base_package::BASE_PACKAGE;
use goondan_protocol::call::{COMPLETE, CallError, CallErrorCode, CallTarget, OutgoingCall};
use goondan_protocol::definition::{AgentDefinition, ExtensionSource, ToolSource};
use goondan_protocol::ids::{ExtensionStates, StepId, TurnId};
use goondan_protocol::trace::TraceContext;

use super::turn::Turn;
use crate::refusals::Refused;

/// The built-in tool that grants what concerns other agents.
const AGENTS_TOOL: &str = "agents";
/// The built-in tool that grants a restart of the agent's own process, and its one export.
const RESTART_TOOL: (&str, &str) = ("self-restart", "request");

/// What makes an agent one that gives others their files.
const PREPARE: (&str, &str) = ("sandbox", "prepare");
/// What makes an agent one that works in a sandbox.
const SUBMIT: (&str, &str) = ("proposal", "submit");

/// Whether an agent works in a sandbox if one is prepared for it.
pub(super) fn is_worker(agent: &AgentDefinition) -> bool {
    agent.has_export(SUBMIT.0, SUBMIT.1)
}

/// Whether an agent gives others their files, and may read what they make of them.
pub(super) fn is_coordinator(agent: &AgentDefinition) -> bool {
    agent.has_export(PREPARE.0, PREPARE.1)
}

/// Whether an agent changes its own configuration.
pub(super) fn is_author(agent: &AgentDefinition) -> bool {
    agent.has_export("swarm-bundle", "open")
}

/// The tool and its export that grant a question; none if every agent may ask it.
fn grant_of(question: &Question) -> Option<(&'static str, &'static str)> {
    Some(match question {
        // To ask for less is everybody's right.
        Question::Approval { .. } => return None,
        Question::Request { .. } => (AGENTS_TOOL, "request"),
        Question::Send { .. } => (AGENTS_TOOL, "send"),
        Question::Spawn { .. } => (AGENTS_TOOL, "spawn"),
        Question::List { .. } => (AGENTS_TOOL, "list"),
        Question::Catalog {} => (AGENTS_TOOL, "catalog"),
        Question::Restart { .. } => RESTART_TOOL,
        Question::PrepareSandbox { .. } => PREPARE,
        Question::ShowSandbox { .. } => ("sandbox", "status"),
        Question::SubmitProposal { .. } => SUBMIT,
        Question::ShowProposal { .. } => ("proposal", "status"),
        Question::CreateTask { .. } => ("tasks", "create"),
        Question::ShowTask { .. } => ("tasks", "status"),
        Question::AwaitTask { .. } => ("tasks", "wait"),
        Question::Bundle { ask } => ("swarm-bundle", ask.export()),
    })
}

/// Whether an agent may ask that. The modules of its extensions may, too: the project's own code, which
/// the configuration names, is given the way to other agents, though not to a restart.
///
/// # Errors
///
/// `E_NOT_GRANTED`, with the tool that would grant it.
pub(super) fn may_ask(agent: &AgentDefinition, question: &Question) -> Result<(), Refused> {
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
    if by_tool || (tool == AGENTS_TOOL && has_module) {
        return may_ask_of(agent, question);
    }
    let message = format!(
        "agent `{}` does not have the tool that allows this; add `{export}` of `{tool}` of \
         `{BASE_PACKAGE}` to its `tools` in goondan.yaml",
        agent.name
    );
    Err(Refused::new("E_NOT_GRANTED", message))
}

/// Whether an agent may ask about the sandbox that a question is about: its own, or another agent's if it is
/// one that prepares them. Nobody may ask to have a proposal applied: there is no such question.
fn may_ask_of(agent: &AgentDefinition, question: &Question) -> Result<(), Refused> {
    match question.sandbox_of() {
        Some(other) if *other != agent.name && !is_coordinator(agent) => {
            let message = format!(
                "agent `{}` is told of its own sandbox only; add `prepare` of `sandbox` of \
                 `{BASE_PACKAGE}` to its `tools` in goondan.yaml if it is to coordinate others",
                agent.name
            );
            Err(Refused::new("E_NOT_GRANTED", message))
        }
        _ => Ok(()),
    }
}

/// Whether a step's id is one of a turn: of a step, or of a summary before one.
pub(super) fn is_step_of(turn_id: &TurnId, step_id: &StepId) -> bool {
    let rest = step_id.as_str().strip_prefix(turn_id.as_str());
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix('.')) else {
        return false;
    };
    let number = rest.strip_prefix('s').unwrap_or(rest);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether an agent may have a call made: by its own model, for the reply of a step, which is recorded
/// and metered; by the connections that its tools work by; and only in the turn that is in progress.
///
/// # Errors
///
/// `refused`, with what the agent may do.
pub(crate) fn may_call(
    agent: &AgentDefinition,
    turn: &Turn,
    asked: &OutgoingCall,
) -> Result<(), CallError> {
    let refused = |message: String| Err(CallError::new(CallErrorCode::Refused, message));
    let is_in_turn = asked.place.as_ref().is_some_and(|place| {
        let mut step = place.step_id.iter();
        place.turn_id == turn.turn_id && step.all(|step| is_step_of(&turn.turn_id, step))
    });
    if !is_in_turn {
        return refused("a call is made for a step of the turn in progress only".to_owned());
    }
    match &asked.target {
        CallTarget::Connection { name } if agent.works_by(name) => Ok(()),
        CallTarget::Connection { .. } => {
            refused(format!("no tool of the agent works by {}", asked.target))
        }
        CallTarget::Model { name } if agent.model.names().all(|own| own != name) => {
            refused(format!(
                "the agent's model is `{}`; it may not ask {}",
                agent.model.name, asked.target
            ))
        }
        CallTarget::Model { .. } if asked.record.is_none() || asked.method != COMPLETE => {
            refused("a model is asked for the reply of a step only, which is recorded".to_owned())
        }
        CallTarget::Model { .. } => Ok(()),
    }
}

/// Whether all of these states are of extensions that the agent has.
pub(super) fn may_remember(agent: &AgentDefinition, states: &ExtensionStates) -> bool {
    states
        .keys()
        .all(|name| agent.extensions.iter().any(|held| held.name == *name))
}

/// Where in the turn's own trace something belongs: the span is what the child says, the trace is not.
pub(crate) fn trace_within(turn: &Turn, said: Option<TraceContext>) -> TraceContext {
    let own = turn.context.trace;
    match said {
        Some(said) => TraceContext {
            trace_id: own.trace_id,
            ..said
        },
        None => own,
    }
}
