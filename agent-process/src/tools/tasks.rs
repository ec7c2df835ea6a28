//! The tool `tasks`: work for command-line agents, each task in its own directory (`TASK-8`).
//!
//! The orchestrator creates and stores tasks; this tool only sends requests. A call repeated after
//! a crash refers to the same task. Answering questions, providing secrets and approving phases are
//! reserved for people and not available here.

use goondan_protocol::agents::AgentQuestion;
use goondan_protocol::ids::AgentName;
use goondan_protocol::limits::{DEFAULT_REQUEST_TIMEOUT_MS, MAX_REQUEST_TIMEOUT_MS};
use goondan_protocol::task::TaskId;
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

pub(crate) fn exports() -> Vec<Export> {
    let task = |what: &str| json!({"type": "string", "minLength": 1, "description": what});
    vec![
        export(
            "create",
            "Creates and starts a task for a command-line agent, in its own directory. Returns the task's id immediately; `status` and `wait` report its progress. A person answers its questions and approves its phases.",
            &json!({
                "title": {"type": "string", "minLength": 1, "description": "Title shown to people"},
                "description": {"type": "string", "minLength": 1, "description": "The work. The agent sees only this text of this conversation"},
                "agent": {"type": "string", "minLength": 1, "description": "The agent that does it; default: the only one for tasks"},
                "phases": {"type": "integer", "minimum": 0, "description": "Number of phases that a person reviews one by one; default 0, for none"},
                "maxTokens": {"type": "integer", "minimum": 1, "description": "Token limit, input and output together"},
            }),
            &["title", "description"],
            create,
        ),
        export(
            "status",
            "Returns the state of a task of this conversation and its open requests; without an id, lists all tasks.",
            &json!({"taskId": task("The task, as `create` named it")}),
            &[],
            |call| {
                let StatusArgs { task_id } = call.args()?;
                let task_id = task_id.as_deref().map(id_of).transpose()?;
                Ok(AgentQuestion::ShowTask { task_id })
            },
        ),
        export(
            "wait",
            "Waits until a task of this conversation has ended or needs a person, then returns its state. Also returns it after the timeout.",
            &json!({
                "taskId": task("The task, as `create` named it"),
                "timeoutMs": {
                    "type": "integer", "minimum": 1, "maximum": MAX_REQUEST_TIMEOUT_MS,
                    "description": format!("Milliseconds to wait; default {DEFAULT_REQUEST_TIMEOUT_MS}"),
                },
            }),
            &["taskId"],
            wait,
        ),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusArgs {
    #[serde(default)]
    task_id: Option<String>,
}

fn create(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreateArgs {
        title: String,
        description: String,
        #[serde(default)]
        agent: Option<String>,
        #[serde(default)]
        phases: u32,
        #[serde(default)]
        max_tokens: Option<u64>,
    }
    let args: CreateArgs = call.args()?;
    let agent = args.agent.as_deref().map(str::parse::<AgentName>);
    let agent = agent.transpose();
    Ok(AgentQuestion::CreateTask {
        title: args.title,
        description: args.description,
        agent: agent.map_err(|error| ToolFault::new("E_AGENT_NOT_FOUND", error.to_string()))?,
        phases: args.phases,
        max_tokens: args.max_tokens,
    })
}

fn wait(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WaitArgs {
        task_id: String,
        #[serde(default)]
        timeout_ms: Option<u64>,
    }
    let args: WaitArgs = call.args()?;
    Ok(AgentQuestion::AwaitTask {
        task_id: id_of(&args.task_id)?,
        timeout_ms: args.timeout_ms.unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS),
    })
}

fn id_of(text: &str) -> Result<TaskId, ToolFault> {
    let id = text.parse::<TaskId>();
    id.map_err(|error| ToolFault::new("E_NO_TASK", error.to_string()))
}
