//! Messages to an agent: lines of JSON, without the newline.

use serde_json::{Value, json};

use crate::event::PermissionRequest;
use crate::tools::{SERVER, ToolServer};
use goondan_protocol::task::AgentFormat as Format;

/// Id of the request that initializes an `acp` connection.
pub const ACP_INITIALIZE: i64 = 0;

/// Id of the request that creates or loads the session.
pub const ACP_SESSION: i64 = 1;

/// Id of the request that sends the prompt.
pub const ACP_PROMPT: i64 = 2;

/// Id of the request that sets the session's mode.
pub const ACP_MODE: i64 = 3;

/// Id of the request that sets the session's model.
pub const ACP_MODEL: i64 = 4;

/// Id of the first [probe](acp_probe); later probes count up.
pub const ACP_PROBE: i64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionDecision {
    Allow,
    /// Allowed, as is every action of its kind until the task ends.
    AllowForTask,
    /// Answers to the program's own questions.
    Answers(Vec<(String, String)>),
    /// Refused, with the reason. A timeout is also a refusal.
    Refuse(String),
}

/// Answer to a permission request; none if the program cannot be answered.
#[must_use]
pub fn permission(
    format: Format,
    request: &PermissionRequest,
    decision: &PermissionDecision,
) -> Option<String> {
    match format {
        Format::Plain
        | Format::Aider
        | Format::CodexJson
        | Format::GeminiStreamJson
        | Format::OpencodeJson => None,
        Format::ClaudeStreamJson => {
            let answer = match decision {
                PermissionDecision::Allow | PermissionDecision::AllowForTask => {
                    json!({"behavior": "allow", "updatedInput": request.input})
                }
                PermissionDecision::Answers(answers) => {
                    let answers = answers.iter();
                    let answers =
                        answers.map(|(question, answer)| (question.clone(), json!(answer)));
                    let answers: serde_json::Map<String, Value> = answers.collect();
                    let mut input = request.input.clone();
                    if let Some(input) = input.as_object_mut() {
                        input.insert("answers".to_owned(), answers.into());
                    }
                    json!({"behavior": "allow", "updatedInput": input})
                }
                PermissionDecision::Refuse(why) => json!({"behavior": "deny", "message": why}),
            };
            let response =
                json!({"subtype": "success", "request_id": request.id, "response": answer});
            Some(json!({"type": "control_response", "response": response}).to_string())
        }
        Format::Acp => {
            let allows = !matches!(decision, PermissionDecision::Refuse(_));
            let is_for_task = *decision == PermissionDecision::AllowForTask;
            let fitting = request
                .options
                .iter()
                .filter(|option| option.allows == allows);
            // The person's decision covers no more than this one request.
            let chosen = fitting.clone().find(|option| option.is_once != is_for_task);
            let chosen = chosen.or_else(|| {
                // The program will ask again, and the task answers on the person's behalf.
                let once = fitting.clone().find(|option| option.is_once);
                once.or_else(|| fitting.clone().next().filter(|_| !allows))
            });
            let outcome = match chosen {
                Some(option) => json!({"outcome": "selected", "optionId": option.id}),
                None => json!({"outcome": "cancelled"}),
            };
            Some(acp_response(&request.id, &json!({"outcome": outcome})))
        }
    }
}

/// Id of an agent's request in its original type: a number or a string.
fn acp_id(id: &str) -> Value {
    serde_json::from_str(id).unwrap_or(Value::Null)
}

fn acp_response(id: &str, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": acp_id(id), "result": result}).to_string()
}

/// Returns the error for a method that goondan does not offer.
pub(crate) fn acp_not_offered(id: &str, method: &str) -> String {
    let error = json!({"code": -32601, "message": format!("`{method}` is not offered")});
    json!({"jsonrpc": "2.0", "id": acp_id(id), "error": error}).to_string()
}

fn acp_request(id: i64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// Initializes an `acp` connection: version 1, with no client capabilities.
#[must_use]
pub fn acp_initialize() -> String {
    let capabilities =
        json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
    let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    acp_request(ACP_INITIALIZE, "initialize", &params)
}

/// Creates an `acp` session in a directory, or loads an existing one, with the server of goondan's
/// tools.
#[must_use]
pub fn acp_session(directory: &str, resumed: Option<&str>, server: Option<&ToolServer>) -> String {
    let servers = server.into_iter().map(|server| {
        json!({"name": SERVER, "command": server.program, "args": server.arguments, "env": []})
    });
    let servers: Vec<Value> = servers.collect();
    let mut params = json!({"cwd": directory, "mcpServers": servers});
    match (resumed, params.as_object_mut()) {
        (Some(id), Some(params)) => {
            params.insert("sessionId".to_owned(), id.into());
            acp_request(ACP_SESSION, "session/load", &json!(params))
        }
        _ => acp_request(ACP_SESSION, "session/new", &params),
    }
}

/// Sets the mode of an `acp` session.
#[must_use]
pub fn acp_mode(session: &str, mode: &str) -> String {
    let params = json!({"sessionId": session, "modeId": mode});
    acp_request(ACP_MODE, "session/set_mode", &params)
}

/// Sets the model of an `acp` session.
#[must_use]
pub fn acp_model(session: &str, model: &str) -> String {
    let params = json!({"sessionId": session, "modelId": model});
    acp_request(ACP_MODEL, "session/set_model", &params)
}

/// Calls an unsupported method of an `acp` agent. Some agents replay a loaded session after they
/// have answered `session/load`; because an agent writes in order, the answers to probes show when
/// the replay is complete.
#[must_use]
pub fn acp_probe(id: i64) -> String {
    acp_request(id, "_goondan/probe", &json!({}))
}

/// Sends the prompt to an `acp` agent.
#[must_use]
pub fn acp_prompt(session: &str, prompt: &str) -> String {
    let text = json!({"type": "text", "text": prompt});
    let params = json!({"sessionId": session, "prompt": [text]});
    acp_request(ACP_PROMPT, "session/prompt", &params)
}

/// Sends a prompt to `claude`, with `--input-format stream-json`.
#[must_use]
pub fn claude_prompt(prompt: &str) -> String {
    let content = json!([{"type": "text", "text": prompt}]);
    json!({"type": "user", "message": {"role": "user", "content": content}}).to_string()
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1;

    use super::*;
    use crate::event::PermissionOption;

    fn params<T: serde::de::DeserializeOwned>(line: &str) -> T {
        let message: Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(message["params"].clone()).unwrap()
    }

    #[test]
    fn acp_requests_match_the_schema() {
        let opened: v1::InitializeRequest = params(&acp_initialize());
        assert_eq!(
            opened.protocol_version,
            agent_client_protocol_schema::ProtocolVersion::V1
        );
        let server = ToolServer {
            program: "/bin/goondan".to_owned(),
            arguments: vec!["--tools".to_owned()],
        };
        let made: v1::NewSessionRequest = params(&acp_session("/w", None, None));
        assert_eq!(
            (made.cwd.to_str(), made.mcp_servers),
            (Some("/w"), Vec::new())
        );
        let loaded: v1::LoadSessionRequest = params(&acp_session("/w", Some("s1"), Some(&server)));
        assert_eq!(loaded.session_id.to_string(), "s1");
        let [v1::McpServer::Stdio(started)] = &loaded.mcp_servers[..] else {
            panic!("{:?}", loaded.mcp_servers);
        };
        assert_eq!(
            (started.name.as_str(), &started.args),
            (SERVER, &server.arguments)
        );
        let asked: v1::PromptRequest = params(&acp_prompt("s1", "Go on."));
        assert_eq!(asked.prompt.len(), 1);
    }

    #[test]
    fn a_permission_holds_for_this_once() {
        let option = |id: &str, allows, is_once| PermissionOption {
            id: id.to_owned(),
            name: id.to_owned(),
            allows,
            is_once,
        };
        let mut request = PermissionRequest {
            id: "7".to_owned(),
            tool: "rm".to_owned(),
            input: json!({"command": "rm x"}),
            options: vec![
                option("always", true, false),
                option("once", true, true),
                option("never", false, false),
            ],
            ..PermissionRequest::default()
        };
        let answer = |request: &PermissionRequest, decision: &PermissionDecision| -> Value {
            let line = permission(Format::Acp, request, decision).unwrap();
            serde_json::from_str(&line).unwrap()
        };
        let allowed = answer(&request, &PermissionDecision::Allow);
        assert_eq!(
            (&allowed["id"], &allowed["result"]["outcome"]["optionId"]),
            (&json!(7), &json!("once"))
        );
        let for_task = answer(&request, &PermissionDecision::AllowForTask);
        assert_eq!(for_task["result"]["outcome"]["optionId"], "always");
        let refused = answer(&request, &PermissionDecision::Refuse("no".to_owned()));
        assert_eq!(refused["result"]["outcome"]["optionId"], "never");
        request.options.truncate(1);
        let neither = answer(&request, &PermissionDecision::Allow);
        assert_eq!(neither["result"]["outcome"]["outcome"], "cancelled");
        let outcome: v1::RequestPermissionResponse =
            serde_json::from_value(neither["result"].clone()).unwrap();
        assert_eq!(outcome.outcome, v1::RequestPermissionOutcome::Cancelled);
    }
}
