//! The tool `tasks`: work for command-line agents, each task in its own directory (`TASK-8`).
//!
//! The orchestrator creates and stores tasks; this tool only sends requests. A call repeated after
//! a crash refers to the same task. Answering questions, providing secrets and approving phases are
//! reserved for people and not available here.

use goondan_protocol::agents::Question;
use goondan_protocol::ids::AgentName;
use goondan_protocol::limits::{DEFAULT_REQUEST_TIMEOUT_MS, MAX_REQUEST_TIMEOUT_MS};
use goondan_protocol::task::TaskId;
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

/// The exports of the tool.
pub(crate) fn exports() -> Vec<Export> {
    let task = |what: &str| json!({"type": "string", "minLength": 1, "description": what});
    vec![
        export(
            "create",
            "Gives a command-line agent a piece of work with a directory of its own, and starts it. Returns the task's id at once; `status` and `wait` tell what becomes of it. A person answers its questions and approves its phases.",
            &json!({
                "title": {"type": "string", "minLength": 1, "description": "What people call it"},
                "description": {"type": "string", "minLength": 1, "description": "What is to be done. The agent sees nothing of this conversation but this text"},
                "agent": {"type": "string", "minLength": 1, "description": "The agent that does it; the only one for tasks if not given"},
                "phases": {"type": "integer", "minimum": 0, "description": "Phases that a person reviews one by one; 0, for none, if not given"},
                "maxTokens": {"type": "integer", "minimum": 1, "description": "The most tokens it may take, in and out"},
            }),
            &["title", "description"],
            create,
        ),
        export(
            "status",
            "Tells how a task of this conversation stands and what it waits for; without an id, lists all of them.",
            &json!({"taskId": task("The task, as `create` named it")}),
            &[],
            |call| {
                let StatusArgs { task_id } = call.args()?;
                let task_id = task_id.as_deref().map(id_of).transpose()?;
                Ok(Question::ShowTask { task_id })
            },
        ),
        export(
            "wait",
            "Waits until a task of this conversation has ended or needs a person, then tells how it stands. After the time-out it tells that, too.",
            &json!({
                "taskId": task("The task, as `create` named it"),
                "timeoutMs": {
                    "type": "integer", "minimum": 1, "maximum": MAX_REQUEST_TIMEOUT_MS,
                    "description": format!("How many milliseconds to wait; {DEFAULT_REQUEST_TIMEOUT_MS} if not given"),
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

fn create(call: &ToolInvocation) -> Result<Question, ToolFault> {
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
    Ok(Question::CreateTask {
        title: args.title,
        description: args.description,
        agent: agent.map_err(|error| ToolFault::new("E_AGENT_NOT_FOUND", error.to_string()))?,
        phases: args.phases,
        max_tokens: args.max_tokens,
    })
}

fn wait(call: &ToolInvocation) -> Result<Question, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WaitArgs {
        task_id: String,
        #[serde(default)]
        timeout_ms: Option<u64>,
    }
    let args: WaitArgs = call.args()?;
    Ok(Question::AwaitTask {
        task_id: id_of(&args.task_id)?,
        timeout_ms: args.timeout_ms.unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS),
    })
}

fn id_of(text: &str) -> Result<TaskId, ToolFault> {
    let id = text.parse::<TaskId>();
    id.map_err(|error| ToolFault::new("E_NO_TASK", error.to_string()))
}
