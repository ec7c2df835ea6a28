//! The tool `proposal-review`: a coordinating agent reads the patch of a worker's proposal, checks
//! it, and applies it where the project's policy allows that (`PROP-8`).

use goondan_protocol::agents::{AgentQuestion, ProposalOwner};
use serde::Deserialize;
use serde_json::{Value, json};

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::sandbox::name_of;

pub(crate) fn exports() -> Vec<Export> {
    let of = |more: Value| {
        let mut properties = json!({
            "agent": {"type": "string", "minLength": 1, "description": "The agent whose proposal it is, as `agents__catalog` names it"},
            "taskId": {"type": "string", "minLength": 1, "description": "The task whose proposal it is, instead of `agent`"},
        });
        if let (Some(properties), Value::Object(more)) = (properties.as_object_mut(), more) {
            properties.extend(more);
        }
        properties
    };
    vec![
        export(
            "diff",
            "Returns a part of the patch of another agent's proposal, as git prints it.",
            &of(json!({
                "offset": {"type": "integer", "minimum": 0, "description": "Byte at which the part starts; default 0"},
            })),
            &[],
            |call| {
                #[derive(Deserialize)]
                struct DiffArgs {
                    #[serde(default)]
                    offset: u64,
                }
                let DiffArgs { offset } = call.args()?;
                let of = owner(call)?;
                Ok(AgentQuestion::DiffProposal { of, offset })
            },
        ),
        export(
            "check",
            "Checks another agent's proposal, and returns its digest and every reason why you cannot apply it. A proposal that you cannot apply needs a person.",
            &of(json!({})),
            &[],
            |call| Ok(AgentQuestion::CheckProposal { of: owner(call)? }),
        ),
        export(
            "apply",
            "Applies another agent's proposal to the project as a whole, after you have read and checked it. Refused, with every reason, if it changes a path that you must not change, or if the project has changed. Applying the proposal of a task approves its last phase.",
            &of(json!({
                "digest": {"type": "string", "minLength": 1, "description": "The digest that `check` returned. A newer proposal is not applied"},
            })),
            &["digest"],
            |call| {
                #[derive(Deserialize)]
                struct ApplyArgs {
                    digest: String,
                }
                let ApplyArgs { digest } = call.args()?;
                let of = owner(call)?;
                Ok(AgentQuestion::ApplyProposal { of, digest })
            },
        ),
    ]
}

/// The author of the proposal that a call names: an agent or a task.
fn owner(call: &ToolInvocation) -> Result<ProposalOwner, ToolFault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OwnerArgs {
        #[serde(default)]
        agent: Option<String>,
        #[serde(default)]
        task_id: Option<String>,
    }
    let OwnerArgs { agent, task_id } = call.args()?;
    match (agent, task_id) {
        (Some(agent), None) => Ok(ProposalOwner::Agent(name_of(&agent)?)),
        (None, Some(task)) => {
            let task = task.parse();
            let wrong = |error: goondan_protocol::task::InvalidTaskId| {
                ToolFault::new("E_NO_TASK", error.to_string())
            };
            Ok(ProposalOwner::Task(task.map_err(wrong)?))
        }
        _ => Err(ToolFault::new(
            "E_TOOL_INVALID_ARGS",
            "pass either `agent` or `taskId`",
        )),
    }
}
