//! The tool `sandbox`: copies of project files, for agents to work on (`BOX-1`).
//!
//! The orchestrator creates them and checks permissions. This tool only sends the requests.

use goondan_protocol::agents::AgentQuestion;
use goondan_protocol::ids::AgentName;
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

pub(crate) fn exports() -> Vec<Export> {
    let paths = |what: &str| json!({"type": "array", "maxItems": 1000, "items": {"type": "string", "minLength": 1}, "description": what});
    vec![
        Export {
            // A repeated call fails because the sandbox exists; the model checks with `status`
            // instead.
            is_idempotent: false,
            ..export(
                "prepare",
                "Copies project files for another agent, which works on the copies and submits a proposal. Prepare the sandbox before you give the agent its task. Each agent has one sandbox in this conversation.",
                &json!({
                    "agent": {"type": "string", "minLength": 1, "description": "The agent, as `agents__catalog` names it"},
                    "files": {
                        "type": "array", "minItems": 1, "maxItems": 1000, "items": {"type": "string", "minLength": 1},
                        "description": "Files and directories, relative to the project; a directory includes all its contents",
                    },
                    "mayCreate": paths("Directories in which it may make new files, besides those in `files`; `.` for anywhere"),
                }),
                &["agent", "files"],
                prepare,
            )
        },
        export(
            "status",
            "Returns the location, files and proposal state of your sandbox. An agent that prepares sandboxes can query those of other agents.",
            &json!({
                "agent": {"type": "string", "minLength": 1, "description": "The agent whose sandbox to show; default: your own"},
            }),
            &[],
            |call| {
                Ok(AgentQuestion::ShowSandbox {
                    agent: agent_of(call)?,
                })
            },
        ),
    ]
}

fn prepare(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PrepareArgs {
        agent: String,
        files: Vec<String>,
        #[serde(default)]
        may_create: Vec<String>,
    }
    let args: PrepareArgs = call.args()?;
    Ok(AgentQuestion::PrepareSandbox {
        agent: name_of(&args.agent)?,
        files: args.files,
        may_create: args.may_create,
    })
}

/// The agent that a call names, if any.
pub(super) fn agent_of(call: &ToolInvocation) -> Result<Option<AgentName>, ToolFault> {
    #[derive(Deserialize)]
    struct AgentArgs {
        #[serde(default)]
        agent: Option<String>,
    }
    let AgentArgs { agent } = call.args()?;
    agent.as_deref().map(name_of).transpose()
}

pub(super) fn name_of(agent: &str) -> Result<AgentName, ToolFault> {
    let wrong = |error: goondan_protocol::ids::InvalidId| {
        ToolFault::new("E_AGENT_NOT_FOUND", error.to_string())
    };
    agent.parse().map_err(wrong)
}
