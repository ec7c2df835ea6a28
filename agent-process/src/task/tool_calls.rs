//! Calls of goondan's tools, between their server and the process of the run. Pure.
//!
//! Both sides validate a call: the server, so that its agent can correct it, and the process,
//! because any program in the sandbox can write to the pipe.

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::tools::{Call, Tool};
use goondan_protocol::JsonObject;
use serde::{Deserialize, Serialize};

/// Maximum characters of the reason of a refusal, so that its JSON form fits an answer.
const REASON_CHARS_MAX: usize = 500;

/// A call, on one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    tool: String,
    arguments: JsonObject,
}

/// The line for a call.
///
/// # Errors
///
/// The call cannot be encoded.
pub(super) fn request(tool: Tool, arguments: JsonObject) -> serde_json::Result<String> {
    let tool = tool.name().to_owned();
    serde_json::to_string(&Request { tool, arguments })
}

/// Handles a call: its events, and the line that answers it.
pub(super) fn receive(line: &str) -> (Vec<CliEvent>, String) {
    let (events, answer) = match read(line) {
        Ok((tool, events)) => (events, Ok(tool.acknowledgement())),
        Err(why) => (Vec::new(), Err(why)),
    };
    let answer = answer.map_err(|why| why.chars().take(REASON_CHARS_MAX).collect::<String>());
    // Texts can always be JSON.
    let answer = serde_json::to_string(&answer).unwrap_or_default();
    (events, answer)
}

fn read(line: &str) -> Result<(Tool, Vec<CliEvent>), String> {
    let request: Request = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let tool =
        Tool::find(&request.tool).ok_or_else(|| format!("unknown tool `{}`", request.tool))?;
    match tool.read(&request.arguments)? {
        Call::Events(events) => Ok((tool, events.into_iter().map(CliEvent::from).collect())),
        Call::Summary(_) => Err("write the summary into its file".to_owned()),
    }
}

/// The answer in a line; `None` if the line is invalid.
pub(super) fn answer(line: &str) -> Option<Result<String, String>> {
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use goondan_cli_agents::blocks::{Block, PhaseComplete};
    use serde_json::json;

    use super::*;
    use crate::tools::tool_supervisor::task::calls::ANSWER_BYTES_MAX;

    #[test]
    fn agent_2_a_call_becomes_an_event_and_is_answered() {
        let arguments = json!({"phase": 1}).as_object().cloned().unwrap();
        let line = request(Tool::CompletePhase, arguments).unwrap();
        let (events, answered) = receive(&line);
        let block = Block::PhaseComplete(PhaseComplete {
            phase: 1,
            documents: Vec::new(),
        });
        assert_eq!(events, [CliEvent::ToolMessage(block)]);
        assert!(
            answer(&answered)
                .unwrap()
                .unwrap()
                .contains("End your turn")
        );
        for hostile in [
            "",
            "[]",
            "{\"tool\":\"finish\"}",
            "{\"tool\":\"rm\",\"arguments\":{}}",
            "{\"tool\":\"finish\",\"arguments\":{},\"run\":7}",
            "{\"tool\":\"complete_phase\",\"arguments\":{\"phase\":0}}",
            "{\"tool\":\"submit_proposal\",\"arguments\":{\"summary\":\"x\"}}",
        ] {
            let (events, answered) = receive(hostile);
            assert_eq!(events, [], "{hostile}");
            assert!(answer(&answered).unwrap().is_err(), "{hostile}");
        }
        let long = "\u{1}".repeat(10_000);
        let (_, answered) = receive(&json!({"tool": long, "arguments": {}}).to_string());
        assert!(answered.len() < ANSWER_BYTES_MAX);
    }
}
