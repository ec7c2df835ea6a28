//! The tool `self-restart`: an agent requests the restart of its own process.
//!
//! The orchestrator performs it after the running turn; this tool only sends the request. A request
//! repeated after a crash causes a single restart.

use goondan_protocol::agents::AgentQuestion;
use goondan_protocol::limits::MAX_RESTART_REASON_CHARS;
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

pub(crate) fn exports() -> Vec<Export> {
    vec![export(
        "request",
        "Restarts your own process after this turn. The new process handles everything that waits for you, with the configuration of that time. The conversation stays; shells and other processes of your tools end.",
        &json!({
            "reason": {
                "type": "string", "minLength": 1, "maxLength": MAX_RESTART_REASON_CHARS,
                "description": "Why, for the people who operate you",
            },
        }),
        &["reason"],
        request,
    )]
}

fn request(call: &ToolInvocation) -> Result<AgentQuestion, ToolFault> {
    #[derive(Deserialize)]
    struct RequestArgs {
        reason: String,
    }
    let RequestArgs { reason } = call.args()?;
    Ok(AgentQuestion::Restart { reason })
}
