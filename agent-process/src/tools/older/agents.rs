//! `agents`: `request`, `send`, `spawn`, `list` and `catalog`; and `self-restart`.

use std::sync::{Arc, Mutex, PoisonError};

use goondan_protocol::JsonObject;
use goondan_protocol::agents::{AgentAnswer, AgentListItem, AgentQuestion, ListScope, RequestNote};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::limits::{
    DEFAULT_REQUEST_TIMEOUT_MS, MAX_INPUT_BYTES, MAX_INSTANCE_KEY_BYTES, MAX_REQUEST_TIMEOUT_MS,
    MAX_RESTART_REASON_CHARS,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ExportSpec, export, invalid, now, outcome};
use crate::tools::agents::answer_to;
use crate::tools::answers::to_tool_outcome;
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;

/// Maximum number of conversations that this process remembers as prepared for other agents; the
/// latest come last.
const SPAWNED_MAX: usize = 200;

/// Identity of the agent, as its tools report it.
struct AgentIdentity {
    agent: AgentName,
    swarm: Option<String>,
    /// Conversations it prepared, which are stored only here until their first event.
    spawned: Mutex<Vec<Value>>,
}

pub(super) fn exports(agent: &AgentDefinition) -> Vec<Export> {
    let own = Arc::new(AgentIdentity {
        agent: agent.name.clone(),
        swarm: agent.swarm.as_ref().map(|swarm| swarm.name.to_string()),
        spawned: Mutex::default(),
    });
    let target = || json!({"type": "string", "minLength": 1, "description": "The agent's name"});
    let input = || json!({"type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES});
    let key = || json!({"type": "string", "minLength": 1, "maxLength": MAX_INSTANCE_KEY_BYTES});
    let text = || json!({"type": "string"});
    let object = || json!({"type": "object"});
    let all = [
        (
            ExportSpec {
                name: "request",
                description: "Asks another agent and returns its answer. With `async: true` it returns at once and the answer comes as a message later.",
                properties: json!({
                    "target": target(), "input": input(), "instanceKey": key(), "eventType": text(),
                    "timeoutMs": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_REQUEST_TIMEOUT_MS},
                    "async": {"type": "boolean"}, "metadata": object(),
                }),
                required: &["target", "input"],
                is_idempotent: true,
            },
            AgentsExport::Request,
        ),
        (
            ExportSpec {
                name: "send",
                description: "Sends a task to another agent. No answer comes back.",
                properties: json!({
                    "target": target(), "input": input(), "instanceKey": key(), "eventType": text(),
                    "metadata": object(),
                }),
                required: &["target", "input"],
                is_idempotent: true,
            },
            AgentsExport::Send,
        ),
        (
            ExportSpec {
                name: "spawn",
                description: "Prepares a conversation with an agent of the swarm and returns its key.",
                properties: json!({"target": target(), "instanceKey": key(), "cwd": text()}),
                required: &["target"],
                is_idempotent: true,
            },
            AgentsExport::Spawn,
        ),
        (
            ExportSpec {
                name: "list",
                description: "Lists conversations of other agents.",
                properties: json!({"includeAll": {"type": "boolean"}}),
                required: &[],
                is_idempotent: true,
            },
            AgentsExport::List,
        ),
        (
            ExportSpec {
                name: "catalog",
                description: "Describes the agents of the swarm.",
                properties: json!({}),
                required: &[],
                is_idempotent: true,
            },
            AgentsExport::Catalog,
        ),
    ];
    let each = all.into_iter().map(|(told, asked)| {
        let own = Arc::clone(&own);
        export(
            told,
            Box::new(move |places, call| {
                let own = Arc::clone(&own);
                Box::pin(async move {
                    let key = &places.surroundings.instance_key;
                    outcome(answered(&own, key, asked, &call).await)
                })
            }),
        )
    });
    each.collect()
}

/// `self-restart`.
pub(super) fn restart() -> Vec<Export> {
    let told = ExportSpec {
        name: "request",
        description: "Restarts your own process after this turn.",
        properties: json!({"reason": {"type": "string", "maxLength": MAX_RESTART_REASON_CHARS}}),
        required: &[],
        is_idempotent: true,
    };
    vec![export(
        told,
        Box::new(|_, call| Box::pin(async move { outcome(restarted(&call).await) })),
    )]
}

async fn restarted(call: &ToolInvocation) -> Result<Value, ToolFault> {
    #[derive(Deserialize)]
    struct Args {
        #[serde(default)]
        reason: Option<String>,
    }
    let Args { reason } = call.args()?;
    let reason = reason.map(|reason| reason.trim().to_owned());
    let reason = reason.filter(|reason| !reason.is_empty());
    let reason = reason.unwrap_or_else(|| "tool:self-restart".to_owned());
    let question = AgentQuestion::Restart {
        reason: reason.clone(),
    };
    match answer_to(call, question).await? {
        AgentAnswer::Restarting {} => {
            Ok(json!({"ok": true, "restartRequested": true, "restartReason": reason}))
        }
        other => Err(refused(other)),
    }
}

#[derive(Clone, Copy)]
enum AgentsExport {
    Request,
    Send,
    Spawn,
    List,
    Catalog,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    target: String,
    #[serde(default)]
    input: String,
    #[serde(default)]
    instance_key: Option<InstanceKey>,
    #[serde(default)]
    timeout_ms: Option<f64>,
    #[serde(default, rename = "async")]
    is_async: bool,
    #[serde(default)]
    include_all: bool,
    #[serde(default)]
    event_type: Option<String>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

impl Args {
    fn note(&self) -> RequestNote {
        RequestNote {
            event_type: self.event_type.clone(),
            metadata: self.metadata.clone().unwrap_or_default(),
        }
    }

    fn target(&self) -> Result<AgentName, ToolFault> {
        self.target
            .parse()
            .map_err(|error: goondan_protocol::ids::InvalidId| {
                ToolFault::new("E_AGENT_NOT_FOUND", error.to_string())
            })
    }
}

async fn answered(
    own: &AgentIdentity,
    own_key: &InstanceKey,
    asked: AgentsExport,
    call: &ToolInvocation,
) -> Result<Value, ToolFault> {
    let args: Args = call.args()?;
    match asked {
        AgentsExport::Request => request(&args, call).await,
        AgentsExport::Send => send(&args, call).await,
        AgentsExport::Spawn => spawn(own, own_key, &args, call).await,
        AgentsExport::List => list(own, &args, call).await,
        AgentsExport::Catalog => Ok(catalog(own, &known(call).await?)),
    }
}

/// Converts any other answer of the orchestrator to an error.
fn refused(answer: AgentAnswer) -> ToolFault {
    let text = match to_tool_outcome(answer) {
        Ok(outcome) => outcome.text,
        Err(fault) => return fault,
    };
    // The text starts with its code.
    let code = [
        "E_AGENT_PENDING",
        "E_AGENT_FAILED",
        "E_CIRCULAR_REQUEST",
        "E_AGENT_NOT_FOUND",
    ];
    let known = code.iter().find(|code| text.starts_with(**code));
    match known {
        Some(code) => {
            let message = text.trim_start_matches(code).trim_start_matches(": ");
            ToolFault::new(code, message.to_owned())
        }
        None => ToolFault::new("E_REFUSED", text),
    }
}

async fn request(args: &Args, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let timeout = args.timeout_ms.map(|ms| format!("{:.0}", ms.max(1.0)));
    let question = AgentQuestion::Request {
        agent: args.target()?,
        instance_key: args.instance_key.clone(),
        input: args.input.clone(),
        wait: !args.is_async,
        timeout_ms: timeout
            .and_then(|ms| ms.parse().ok())
            .unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS),
        note: args.note(),
    };
    match answer_to(call, question).await? {
        AgentAnswer::Answered {
            event_id,
            outcome: TurnOutcome::Completed { reply },
            ..
        } => Ok(json!({
            "target": args.target, "eventId": event_id, "correlationId": event_id,
            "accepted": true, "async": false, "response": reply,
        })),
        AgentAnswer::Accepted { event_id, .. } => Ok(json!({
            "target": args.target, "eventId": event_id, "correlationId": event_id,
            "accepted": true, "async": true, "response": null,
        })),
        other => Err(refused(other)),
    }
}

async fn send(args: &Args, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let question = AgentQuestion::Send {
        agent: args.target()?,
        instance_key: args.instance_key.clone(),
        input: args.input.clone(),
        note: args.note(),
    };
    match answer_to(call, question).await? {
        AgentAnswer::Accepted { event_id, .. } => {
            Ok(json!({"target": args.target, "eventId": event_id, "accepted": true}))
        }
        other => Err(refused(other)),
    }
}

async fn known(call: &ToolInvocation) -> Result<Vec<AgentListItem>, ToolFault> {
    match answer_to(call, AgentQuestion::Catalog {}).await? {
        AgentAnswer::Catalog { agents } => Ok(agents),
        other => Err(refused(other)),
    }
}

/// Another process of the agent starts with the first event for the key.
async fn spawn(
    own: &AgentIdentity,
    own_key: &InstanceKey,
    args: &Args,
    call: &ToolInvocation,
) -> Result<Value, ToolFault> {
    let target = args.target()?;
    let agents = known(call).await?;
    if agents.iter().all(|agent| agent.name != target) {
        let names: Vec<String> = agents
            .iter()
            .map(|agent| format!("`{}`", agent.name))
            .collect();
        let message = format!(
            "agent `{target}` does not exist; available: {}",
            names.join(", ")
        );
        return Err(ToolFault::new("E_AGENT_NOT_FOUND", message));
    }
    let named = args.instance_key.as_ref().map(|key| key.as_str().trim());
    let key = match named.filter(|key| !key.is_empty()) {
        Some(key) => key.to_owned(),
        // A repeated call names the same conversation.
        None => format!("{target}:{}", call.call_id),
    };
    let key: InstanceKey = key
        .parse()
        .map_err(|error| invalid(format!("`instanceKey`: {error}")))?;
    let info = json!({
        "target": target, "instanceKey": key, "ownerAgent": own.agent, "ownerInstanceKey": own_key,
        "createdAt": now(), "cwd": null,
    });
    let mut spawned = own.spawned.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = spawned
        .iter()
        .all(|it| it.get("instanceKey") != info.get("instanceKey"));
    if is_new {
        spawned.push(info);
        let surplus = spawned.len().saturating_sub(SPAWNED_MAX);
        spawned.drain(..surplus);
    }
    Ok(json!({"target": target, "instanceKey": key, "spawned": is_new, "cwd": null}))
}

async fn list(own: &AgentIdentity, args: &Args, call: &ToolInvocation) -> Result<Value, ToolFault> {
    let spawned = own.spawned.lock();
    let mut agents = spawned.unwrap_or_else(PoisonError::into_inner).clone();
    if !args.include_all {
        return Ok(json!({"count": agents.len(), "agents": agents}));
    }
    let scope = ListScope::Workspace;
    let instances = match answer_to(call, AgentQuestion::List { scope }).await? {
        AgentAnswer::Instances { instances, .. } => instances,
        other => return Err(refused(other)),
    };
    for instance in instances.iter().filter(|it| it.status != "self") {
        let key = json!(instance.instance_key);
        if agents.iter().all(|it| it.get("instanceKey") != Some(&key)) {
            agents.push(json!({
                "target": instance.agent, "instanceKey": key, "ownerAgent": own.agent,
                "ownerInstanceKey": null, "createdAt": null, "cwd": null,
            }));
        }
    }
    Ok(json!({"count": agents.len(), "agents": agents}))
}

fn catalog(own: &AgentIdentity, agents: &[AgentListItem]) -> Value {
    let available: Vec<&AgentName> = agents.iter().map(|agent| &agent.name).collect();
    let callable: Vec<&AgentName> = available
        .iter()
        .copied()
        .filter(|name| **name != own.agent)
        .collect();
    let entry = agents
        .iter()
        .find(|agent| agent.is_entry)
        .map(|agent| &agent.name);
    json!({
        "swarmName": own.swarm, "entryAgent": entry, "selfAgent": own.agent,
        "availableCount": available.len(), "callableCount": callable.len(),
        "availableAgents": available, "callableAgents": callable,
    })
}
