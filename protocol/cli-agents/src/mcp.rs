//! Server of the Model Context Protocol for goondan's [`tools`](crate::tools), over standard input
//! and output. Pure: a line in, an outcome out.
//!
//! Only tools are offered. The server keeps no state: programs of older protocol versions begin
//! with `initialize`, and later ones may call tools immediately.

use goondan_protocol::JsonObject;
use serde_json::{Value, json};

use crate::tools::{SERVER, Tool};

/// Supported protocol versions, the latest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Nothing,
    Reply(String),
    /// Run this call, and write its [`answer`].
    Call(Request),
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: Value,
    pub tool: Tool,
    /// Its arguments, not validated.
    pub arguments: JsonObject,
}

#[derive(Debug)]
pub struct Server {
    tools: Vec<Tool>,
    version: String,
}

impl Server {
    /// Creates a server of a goondan version that offers these tools.
    #[must_use]
    pub fn new(tools: Vec<Tool>, version: String) -> Self {
        Self { tools, version }
    }

    /// Handles a line of the program. `None` is a line that was too long.
    #[must_use]
    pub fn line(&self, line: Option<&[u8]>) -> Outcome {
        let Some(line) = line else {
            return failed(&Value::Null, INVALID_REQUEST, "the message is too long");
        };
        if line.trim_ascii().is_empty() {
            return Outcome::Nothing;
        }
        match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => self.message(&message),
            Ok(_) => failed(
                &Value::Null,
                INVALID_REQUEST,
                "expected one JSON-RPC message per line, as an object",
            ),
            Err(error) => failed(
                &Value::Null,
                PARSE_ERROR,
                &format!("the message is not valid JSON: {error}"),
            ),
        }
    }

    fn message(&self, message: &JsonObject) -> Outcome {
        let id = message.get("id");
        let method = message.get("method");
        if method.is_none() && (message.contains_key("result") || message.contains_key("error")) {
            // This server sends no requests.
            return Outcome::Nothing;
        }
        let shown = id.cloned().unwrap_or_default();
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return failed(&shown, INVALID_REQUEST, "`jsonrpc` must be \"2.0\"");
        }
        let Some(method) = method.and_then(Value::as_str) else {
            return failed(&shown, INVALID_REQUEST, "`method` must be a string");
        };
        let Some(id) = id else {
            // Notifications are never answered.
            return Outcome::Nothing;
        };
        if !(id.is_string() || id.is_i64() || id.is_u64()) {
            return failed(
                &Value::Null,
                INVALID_REQUEST,
                "`id` must be a string or an integer",
            );
        }
        let none = JsonObject::new();
        let params = match message.get("params") {
            None => &none,
            Some(Value::Object(params)) => params,
            Some(_) => return failed(id, INVALID_PARAMS, "`params` must be an object"),
        };
        self.request(id, method, params)
    }

    fn request(&self, id: &Value, method: &str, params: &JsonObject) -> Outcome {
        match method {
            "initialize" => self.initialize(id, params),
            "ping" => result(id, &json!({})),
            "tools/list" if params.contains_key("cursor") => failed(
                id,
                INVALID_PARAMS,
                "`cursor` is invalid: the list has one page",
            ),
            "tools/list" => {
                let tools: Vec<Value> = self.tools.iter().map(|tool| tool.entry()).collect();
                result(id, &json!({"tools": tools}))
            }
            "tools/call" => self.call(id, params),
            _ => failed(id, METHOD_NOT_FOUND, "the method is not supported"),
        }
    }

    fn initialize(&self, id: &Value, params: &JsonObject) -> Outcome {
        let Some(asked) = params.get("protocolVersion").and_then(Value::as_str) else {
            return failed(id, INVALID_PARAMS, "`protocolVersion` must be a string");
        };
        let [latest, ..] = VERSIONS;
        let version = VERSIONS.into_iter().find(|version| *version == asked);
        result(
            id,
            &json!({
                "protocolVersion": version.unwrap_or(latest),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": SERVER, "version": self.version},
                "instructions": "Tools to reach the people who gave you this task, and to hand in your work.",
            }),
        )
    }

    fn call(&self, id: &Value, params: &JsonObject) -> Outcome {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return failed(id, INVALID_PARAMS, "`name` must be a string");
        };
        let found = self.tools.iter().find(|tool| tool.name() == name);
        let Some(tool) = found else {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let message = format!("unknown tool; expected one of {}", names.join(", "));
            return failed(id, INVALID_PARAMS, &message);
        };
        let arguments = match params.get("arguments") {
            None | Some(Value::Null) => JsonObject::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(_) => return failed(id, INVALID_PARAMS, "`arguments` must be an object"),
        };
        Outcome::Call(Request {
            id: id.clone(),
            tool: *tool,
            arguments,
        })
    }
}

/// Line that answers a call. An error is one that the agent can correct.
#[must_use]
pub fn answer(id: &Value, answered: &Result<String, String>) -> String {
    let (Ok(text) | Err(text)) = answered;
    let content = json!([{"type": "text", "text": text}]);
    let result = json!({"content": content, "isError": answered.is_err()});
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn result(id: &Value, result: &Value) -> Outcome {
    Outcome::Reply(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn failed(id: &Value, code: i64, message: &str) -> Outcome {
    let error = json!({"code": code, "message": message});
    Outcome::Reply(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server::new(Tool::ALL.to_vec(), "1.0.0".to_owned())
    }

    fn reply(line: &str) -> Value {
        match server().line(Some(line.as_bytes())) {
            Outcome::Reply(reply) => {
                assert!(!reply.contains('\n'));
                serde_json::from_str(&reply).unwrap()
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    fn request(method: &str, params: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
    }

    #[test]
    fn agent_2_the_protocol_version_is_negotiated() {
        for (asked, given) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-06-18", "2025-06-18"),
            ("2026-07-28", VERSIONS[0]),
            ("x", VERSIONS[0]),
        ] {
            let told = reply(&request("initialize", &json!({"protocolVersion": asked})));
            assert_eq!(told["id"], 7);
            assert_eq!(told["result"]["protocolVersion"], given);
            assert_eq!(told["result"]["serverInfo"]["name"], SERVER);
            assert_eq!(told["result"]["capabilities"], json!({"tools": {}}));
        }
    }

    #[test]
    fn agent_2_tools_are_listed_and_called() {
        let told = reply(&request(
            "tools/list",
            &json!({"_meta": {"progressToken": 0}}),
        ));
        let tools = told["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), Tool::ALL.len());
        for (tool, entry) in Tool::ALL.into_iter().zip(tools) {
            assert_eq!(entry["name"], tool.name());
            assert_eq!(entry["inputSchema"]["type"], "object");
        }
        assert_eq!(reply(&request("ping", &json!({})))["result"], json!({}));
        let call = json!({"name": "complete_phase", "arguments": {"phase": 1}});
        let called = server().line(Some(request("tools/call", &call).as_bytes()));
        let Outcome::Call(called) = called else {
            panic!("{called:?}");
        };
        assert_eq!(
            (called.id.clone(), called.tool),
            (json!(7), Tool::CompletePhase)
        );
        let told: Value = serde_json::from_str(&answer(&called.id, &Err("no".to_owned()))).unwrap();
        assert_eq!(told["result"]["isError"], true);
        assert_eq!(told["result"]["content"][0]["text"], "no");
        let few = Server::new(vec![Tool::Finish], String::new());
        let call = json!({"name": "ask_person"});
        let told = few.line(Some(request("tools/call", &call).as_bytes()));
        let Outcome::Reply(told) = told else {
            panic!("{told:?}");
        };
        assert!(told.contains("expected one of finish"), "{told}");
    }

    #[test]
    fn agent_2_a_hostile_message_is_refused_with_the_reason() {
        let deep = "[".repeat(100_000);
        for (line, code) in [
            ("{", PARSE_ERROR),
            ("\u{0}", PARSE_ERROR),
            (deep.as_str(), PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            ("7", INVALID_REQUEST),
            ("{}", INVALID_REQUEST),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"finish","arguments":[]}}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
                METHOD_NOT_FOUND,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#,
                METHOD_NOT_FOUND,
            ),
        ] {
            assert_eq!(reply(line)["error"]["code"], code, "{line:.80}");
        }
        assert!(matches!(server().line(None), Outcome::Reply(_)));
        for line in [
            "",
            "  ",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"finish"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            assert_eq!(
                server().line(Some(line.as_bytes())),
                Outcome::Nothing,
                "{line}"
            );
        }
    }
}
