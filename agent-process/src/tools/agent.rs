//! The tool `agent`: another agent of the swarm as a tool with its own description and arguments.
//!
//! Like [`agents`](super::agents), a call is a question to the orchestrator. A call repeated after a
//! crash is the same question.

use goondan_protocol::agents::{AgentQuestion, RequestNote};
use goondan_protocol::base_package::AGENT_TOOL_EXPORT;
use goondan_protocol::definition::ToolDefinition;
use goondan_protocol::ids::AgentName;
use goondan_protocol::limits::{DEFAULT_REQUEST_TIMEOUT_MS, MAX_INPUT_BYTES};
use goondan_protocol::settings::agent_tool;
use serde_json::{Value, json};

use super::ToolboxError;
use super::agents::answer_to;
use super::answers::to_tool_outcome;
use super::export::{Export, Output};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use crate::tool_call::ToolOutcome;

/// The argument of a tool without its own schema.
const INPUT: &str = "input";

/// The one export of a tool with valid settings.
///
/// # Errors
///
/// [`ToolboxError::Settings`] if the name of the agent is invalid.
pub(super) fn exports(definition: &ToolDefinition) -> Result<Vec<Export>, ToolboxError> {
    let setting = |name: &str| definition.config.get(name).filter(|value| !value.is_null());
    let text = |name: &str| setting(name).and_then(Value::as_str);
    let name = text(agent_tool::AGENT).unwrap_or_default();
    let asked: AgentName = name.parse().map_err(|error| ToolboxError::Settings {
        tool: definition.name.clone(),
        builtin: definition.name.clone(),
        problems: format!("`{}`: {error}", agent_tool::AGENT),
    })?;
    let description = match text(agent_tool::DESCRIPTION) {
        Some(description) => description.to_owned(),
        None => format!("Asks the agent `{asked}` and returns its reply."),
    };
    let timeout_ms = setting(agent_tool::TIMEOUT_MS).and_then(Value::as_u64);
    let timeout_ms = timeout_ms.unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS);
    let own_schema = setting(agent_tool::PARAMETERS).cloned();
    let is_text = own_schema.is_none();
    Ok(vec![Export {
        name: AGENT_TOOL_EXPORT.into(),
        description: description.into(),
        parameters: own_schema.unwrap_or_else(text_schema),
        is_idempotent: true,
        output: Output::MayBeLong,
        run: Box::new(move |_, call| {
            let asked = asked.clone();
            Box::pin(async move {
                let answer = ask(&call, asked, is_text, timeout_ms).await;
                answer.unwrap_or_else(ToolOutcome::from)
            })
        }),
    }])
}

fn text_schema() -> Value {
    json!({
        "type": "object",
        "required": [INPUT],
        "additionalProperties": false,
        "properties": {
            INPUT: {
                "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
                "description": "The request. The agent sees only this text of this conversation",
            },
        },
    })
}

async fn ask(
    call: &ToolInvocation,
    agent: AgentName,
    is_text: bool,
    timeout_ms: u64,
) -> Result<ToolOutcome, ToolFault> {
    let input = match call.args.get(INPUT).and_then(Value::as_str) {
        Some(text) if is_text => text.to_owned(),
        _ => call.args.to_string(),
    };
    let question = AgentQuestion::Request {
        agent,
        instance_key: None,
        input,
        wait: true,
        timeout_ms,
        note: RequestNote::default(),
    };
    to_tool_outcome(answer_to(call, question).await?)
}
