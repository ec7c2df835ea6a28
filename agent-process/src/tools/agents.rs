//! The tool `agents`: work with the other agents of the swarm (`IPC-2`, `IPC-3`).
//!
//! Each call is a question to the orchestrator, which knows the other agents and stores the
//! questions. A call repeated after a crash is the same question, so every export can safely run
//! again.

use goondan_protocol::agents::{AgentAnswer, AgentAsk, ListScope, Question, RequestNote};
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::limits::{
    DEFAULT_REQUEST_TIMEOUT_MS, MAX_INPUT_BYTES, MAX_INSTANCE_KEY_BYTES, MAX_REQUEST_TIMEOUT_MS,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::told;
use super::export::{Export, Output};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use crate::tool_call::ToolOutcome;

/// Exports of the tool.
pub(crate) fn exports() -> Vec<Export> {
    let agent = json!({"type": "string", "minLength": 1, "description": "The agent, as `catalog` names it"});
    let key = |what: &str| json!({"type": "string", "minLength": 1, "maxLength": MAX_INSTANCE_KEY_BYTES, "description": what});
    let input = json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "The task. The agent sees only this text of this conversation",
    });
    let own = "The key of one of its conversations, as `list` or `spawn` names it; the one that belongs to this conversation if not given";
    vec![
        export(
            "request",
            "Sends a task to another agent and returns its answer. With `wait: false` it returns immediately and the answer arrives as a message later. After the timeout the answer also arrives as a message.",
            &json!({
                "agent": agent, "input": input, "instanceKey": key(own),
                "wait": {"type": "boolean", "description": "True (default) to wait for the answer"},
                "timeoutMs": {
                    "type": "integer", "minimum": 1, "maximum": MAX_REQUEST_TIMEOUT_MS,
                    "description": format!("Milliseconds to wait; default {DEFAULT_REQUEST_TIMEOUT_MS}"),
                },
            }),
            &["agent", "input"],
            request,
        ),
        export(
            "send",
            "Sends a task to another agent. No answer comes back.",
            &json!({"agent": agent, "input": input, "instanceKey": key(own)}),
            &["agent", "input"],
            send,
        ),
        export(
            "spawn",
            "Begins a new conversation with another agent and returns its key, by which `request` and `send` reach it. No answer to this first input comes back.",
            &json!({
                "agent": agent, "input": input,
                "instanceKey": key("The key of the new conversation; one is made if not given"),
            }),
            &["agent", "input"],
            spawn,
        ),
        export(
            "list",
            "Lists the conversations of the agents with their keys and activity.",
            &json!({
                "scope": {
                    "enum": ["conversation", "workspace"],
                    "description": "Only those that belong to this conversation, or all; `conversation` if not given",
                },
            }),
            &[],
            list,
        ),
        export(
            "catalog",
            "Lists the agents of the swarm with their purpose and tools.",
            &json!({}),
            &[],
            |_| Ok(Question::Catalog {}),
        ),
    ]
}

/// Creates an export that asks the orchestrator.
pub(super) fn export(
    name: &'static str,
    description: &'static str,
    properties: &Value,
    required: &[&str],
    question: fn(&ToolInvocation) -> Result<Question, ToolFault>,
) -> Export {
    Export {
        name: name.into(),
        description: description.into(),
        parameters: json!({
            "type": "object",
            "required": required,
            "additionalProperties": false,
            "properties": properties,
        }),
        is_idempotent: true,
        output: Output::MayBeLong,
        run: Box::new(move |_, call| {
            Box::pin(async move { ask(&call, question).await.unwrap_or_else(ToolOutcome::from) })
        }),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestArgs {
    agent: String,
    input: String,
    #[serde(default)]
    instance_key: Option<InstanceKey>,
    #[serde(default)]
    wait: Option<bool>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl RequestArgs {
    fn agent(&self) -> Result<AgentName, ToolFault> {
        let wrong = |error: goondan_protocol::ids::InvalidId| {
            ToolFault::new("E_AGENT_NOT_FOUND", error.to_string())
        };
        self.agent.parse().map_err(wrong)
    }
}

fn request(call: &ToolInvocation) -> Result<Question, ToolFault> {
    let args: RequestArgs = call.args()?;
    Ok(Question::Request {
        agent: args.agent()?,
        instance_key: args.instance_key,
        input: args.input,
        wait: args.wait.unwrap_or(true),
        timeout_ms: args.timeout_ms.unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS),
        note: RequestNote::default(),
    })
}

fn send(call: &ToolInvocation) -> Result<Question, ToolFault> {
    let args: RequestArgs = call.args()?;
    Ok(Question::Send {
        agent: args.agent()?,
        instance_key: args.instance_key,
        input: args.input,
        note: RequestNote::default(),
    })
}

fn spawn(call: &ToolInvocation) -> Result<Question, ToolFault> {
    let args: RequestArgs = call.args()?;
    Ok(Question::Spawn {
        agent: args.agent()?,
        instance_key: args.instance_key,
        input: args.input,
    })
}

fn list(call: &ToolInvocation) -> Result<Question, ToolFault> {
    #[derive(Deserialize)]
    struct ListArgs {
        #[serde(default)]
        scope: ListScope,
    }
    let args: ListArgs = call.args()?;
    Ok(Question::List { scope: args.scope })
}

async fn ask(
    call: &ToolInvocation,
    question: fn(&ToolInvocation) -> Result<Question, ToolFault>,
) -> Result<ToolOutcome, ToolFault> {
    told(answer_to(call, question(call)?).await?)
}

/// Asks the orchestrator.
pub(super) async fn answer_to(
    call: &ToolInvocation,
    question: Question,
) -> Result<AgentAnswer, ToolFault> {
    let alone = || {
        ToolFault::new(
            "E_UNAVAILABLE",
            "other agents are available only within a turn",
        )
    };
    let site = call.site.as_ref().ok_or_else(alone)?;
    let ask = AgentAsk {
        turn_id: site.turn_id.clone(),
        step: site.key.step,
        call: u32::try_from(site.key.index).unwrap_or(u32::MAX),
        question,
    };
    let ending = || ToolFault::new("E_UNAVAILABLE", "this process is ending");
    let answer = site.agent_client.ask(ask, site.trace).await;
    answer.ok_or_else(ending)
}
