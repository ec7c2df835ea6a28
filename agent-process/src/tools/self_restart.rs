//! The tool `self-restart`: an agent requests the restart of its own process.
//!
//! The orchestrator performs it after the running turn; this tool only sends the request. A request
//! repeated after a crash causes a single restart.

use goondan_protocol::agents::Question;
use goondan_protocol::limits::MAX_RESTART_REASON_CHARS;
use serde::Deserialize;
use serde_json::json;

use super::agents::export;
use super::export::Export;
use super::fault::ToolFault;
use super::invocation::ToolInvocation;

/// The exports of the tool.
pub(crate) fn exports() -> Vec<Export> {
    vec![export(
        "request",
        "Has your own process restarted once this turn is over. What waits for you, and everything after it, is done by the new process, under the configuration as it is then. The conversation stays; shells and other processes of your tools end.",
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

fn request(call: &ToolInvocation) -> Result<Question, ToolFault> {
    #[derive(Deserialize)]
    struct RequestArgs {
        reason: String,
    }
    let RequestArgs { reason } = call.args()?;
    Ok(Question::Restart { reason })
}
