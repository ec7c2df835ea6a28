//! A server of the Model Context Protocol: a program over stdio ([`program`]), or over HTTP
//! ([`HttpServer`]).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::binaries::example;
use crate::provider::{Provider, ProviderResponse, ReceivedRequest};
use crate::wait_until;

/// The program: an example of this package, `tests/examples/mcp_server.rs`.
#[must_use]
pub fn program() -> PathBuf {
    example("goondan-mcp-server")
}

/// Outcome of a message to the server.
#[derive(Debug, Clone, PartialEq)]
pub enum McpReaction {
    /// Messages for the client, the reply last.
    Say(Vec<Value>),
    /// The server exits with this code.
    Die(u8),
}

/// The id of the server's own question.
const ROOTS_QUESTION: &str = "roots?";

/// The server, independent of the transport.
#[derive(Debug)]
pub struct McpTestServer {
    /// Value of `SERVER_TOKEN`, which one of its tools returns.
    token: String,
    has_learned: bool,
    /// Ids of the calls that wait for the client's response, by the server's request; null without
    /// a call.
    asked: HashMap<String, Value>,
    /// Number of people it has asked.
    people: usize,
    /// True if it asks a person when it receives a list request.
    asks_when_listed: bool,
    client: Value,
    /// The ids of calls that are never answered.
    hanging: HashSet<String>,
    /// Lines for its stderr that were not taken yet.
    told: Vec<String>,
}

impl McpTestServer {
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self {
            token: token.to_owned(),
            has_learned: false,
            asked: HashMap::new(),
            people: 0,
            asks_when_listed: false,
            client: Value::Null,
            hanging: HashSet::new(),
            told: vec!["the double is here".to_owned()],
        }
    }

    /// Takes its new stderr lines.
    pub fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    pub fn take(&mut self, message: &Value) -> McpReaction {
        let (id, params) = (&message["id"], &message["params"]);
        if message["method"] == "notifications/cancelled" {
            if self.hanging.remove(&params["requestId"].to_string()) {
                self.told.push("given up: hang".to_owned());
            }
            return McpReaction::Say(Vec::new());
        }
        if id.is_null() {
            return McpReaction::Say(Vec::new());
        }
        if let Some(call) = id.as_str().and_then(|id| self.asked.remove(id)) {
            return self.hear(id, &call, message);
        }
        let result = |result: Value| {
            McpReaction::Say(vec![json!({"jsonrpc": "2.0", "id": id, "result": result})])
        };
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                self.client = params["capabilities"].clone();
                result(json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "double", "version": "1.2"},
                }))
            }
            "tools/list" if std::mem::take(&mut self.asks_when_listed) => {
                let asking = self.ask_person(&Value::Null, &order());
                let listed = json!({"jsonrpc": "2.0", "id": id, "result": {"tools": self.tools()}});
                McpReaction::Say(vec![asking, listed])
            }
            "tools/list" => result(json!({"tools": self.tools()})),
            "tools/call" => self.call(id, params),
            "resources/list" => result(json!({"resources": [
                {"uri": "note:///one", "name": "one", "mimeType": "text/plain", "description": "A note."}]})),
            "resources/templates/list" => result(json!({"resourceTemplates": [
                {"uriTemplate": "note:///{name}", "name": "any"}]})),
            "resources/read" if params["uri"] == "note:///one" => result(json!({"contents": [
                {"uri": "note:///one", "text": "what the note says"},
                {"uri": "note:///two", "blob": "AAAA", "mimeType": "image/gif"}]})),
            "prompts/list" => result(
                json!({"prompts": [{"name": "greet", "description": "Greets.",
                "arguments": [{"name": "whom", "required": true}]}]}),
            ),
            "prompts/get" => {
                let whom = params["arguments"]["whom"].as_str().unwrap_or_default();
                let text = format!("Say hello to {whom}.");
                result(
                    json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}),
                )
            }
            "ping" => result(json!({})),
            other => McpReaction::Say(vec![refusal(id, -32601, &format!("no method {other}"))]),
        }
    }

    /// Handles the response to its own request.
    fn hear(&mut self, id: &Value, call: &Value, message: &Value) -> McpReaction {
        let text = if *id == json!(ROOTS_QUESTION) {
            message["result"]["roots"].to_string()
        } else if message["error"].is_null() {
            message["result"].to_string()
        } else {
            format!("refused: {}", message["error"]["message"])
        };
        self.told.push(format!("heard: {text}"));
        if call.is_null() {
            return McpReaction::Say(Vec::new());
        }
        let result = json!({"content": [{"type": "text", "text": text}]});
        McpReaction::Say(vec![
            json!({"jsonrpc": "2.0", "id": call, "result": result}),
        ])
    }

    /// Asks a person during a call.
    fn ask_person(&mut self, call: &Value, params: &Value) -> Value {
        self.people += 1;
        let id = format!("person {}?", self.people);
        self.asked.insert(id.clone(), call.clone());
        json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
    }

    fn tools(&self) -> Vec<Value> {
        let plain = |name: &str, description: &str| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        let of_text = |name: &str, description: &str| {
            json!({"name": name, "description": description, "inputSchema": {
                "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}},
            }})
        };
        let mut tools = vec![
            of_text("echo", "Says it again."),
            of_text("linger", "Answers when there is a file of that path."),
            plain("secret/read", "Tells its token."),
            plain("fail", "Fails."),
            plain("die", "Ends the server."),
            plain("learn", "Adds a tool."),
            plain("hang", "Never answers."),
            plain("picture", "Gives a picture."),
            plain("link", "Tells where something is."),
            plain("roots", "Tells the client's roots."),
            plain("trace", "Tells the trace of its call."),
            plain("capabilities", "Tells what the client can do."),
            plain("order", "Asks a person what to order."),
            plain("confirm", "Asks a person for a yes."),
            plain(
                "rounds",
                "Asks a person by its result, and is called again.",
            ),
            plain(
                "nested",
                "Asks a person for a login, in a form within a form.",
            ),
            plain("password", "Asks a person for a password."),
            plain("visit", "Asks a person to visit a page."),
            plain("sneak", "Asks a person when nothing is called."),
        ];
        if self.has_learned {
            tools.push(plain("learned", "New."));
        }
        tools
    }

    fn call(&mut self, id: &Value, params: &Value) -> McpReaction {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let mut first = Vec::new();
        let result = match params["name"].as_str().unwrap_or_default() {
            "echo" => {
                let said = params["arguments"]["text"].as_str().unwrap_or_default();
                text(&format!("echo: {said}"))
            }
            "linger" => {
                let path = params["arguments"]["text"].as_str().unwrap_or_default();
                wait_until("it may answer", || Path::new(path).exists());
                text("it is there")
            }
            "secret/read" => text(&format!("the token is {}", self.token)),
            "fail" => {
                let mut failed = text("it cannot be done");
                failed["isError"] = json!(true);
                failed
            }
            "die" => return McpReaction::Die(7),
            "roots" => {
                self.asked.insert(ROOTS_QUESTION.to_owned(), id.clone());
                let method = "roots/list";
                return McpReaction::Say(vec![
                    json!({"jsonrpc": "2.0", "id": ROOTS_QUESTION, "method": method}),
                ]);
            }
            "trace" => {
                let trace = params["_meta"]["traceparent"].as_str();
                text(trace.unwrap_or("none"))
            }
            "capabilities" => text(&self.client.to_string()),
            "order" => {
                let mut asking = order();
                asking["message"] = json!(format!("{ORDER}\u{1b}[2J {}", self.token));
                return McpReaction::Say(vec![self.ask_person(id, &asking)]);
            }
            "confirm" => {
                let asking = json!({"message": "Shall it be sent?", "mode": "form",
                    "requestedSchema": {"type": "object", "properties": {}}});
                return McpReaction::Say(vec![self.ask_person(id, &asking)]);
            }
            "rounds" if !params["inputResponses"].is_null() => {
                text(&json!([params["requestState"], params["inputResponses"]]).to_string())
            }
            "rounds" => {
                let method = "elicitation/create";
                json!({"resultType": "input_required", "requestState": "round 2", "inputRequests": {
                    "what": {"method": method, "params": order()},
                    "where": {"method": "roots/list"},
                }})
            }
            "nested" => {
                let login =
                    json!({"type": "object", "properties": {"password": {"type": "string"}}});
                return McpReaction::Say(vec![self.ask_person(id, &form_of("login", &login))]);
            }
            "password" => {
                let password = json!({"type": "string", "format": "password"});
                return McpReaction::Say(vec![
                    self.ask_person(id, &form_of("password", &password)),
                ]);
            }
            "visit" => {
                let asking = json!({"message": "Log in there.", "mode": "url",
                    "url": "https://example.org/", "elicitationId": "1"});
                return McpReaction::Say(vec![self.ask_person(id, &asking)]);
            }
            "sneak" => {
                self.asks_when_listed = true;
                let method = "notifications/tools/list_changed";
                first.push(json!({"jsonrpc": "2.0", "method": method}));
                text("it will")
            }
            "link" => json!({"content": [{"type": "resource_link", "uri": "note:///one",
                "name": "one", "description": "A note."}]}),
            "hang" => {
                self.hanging.insert(id.to_string());
                self.told.push("it hangs".to_owned());
                return McpReaction::Say(Vec::new());
            }
            "learn" => {
                self.has_learned = true;
                let method = "notifications/tools/list_changed";
                first.push(json!({"jsonrpc": "2.0", "method": method}));
                text("learned")
            }
            "learned" if self.has_learned => text("it is there"),
            "picture" => {
                json!({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]})
            }
            other => {
                let refused = refusal(id, -32602, &format!("no tool {other}"));
                return McpReaction::Say(vec![refused]);
            }
        };
        first.push(json!({"jsonrpc": "2.0", "id": id, "result": result}));
        McpReaction::Say(first)
    }
}

/// Beginning of the question of the tool `order`.
pub const ORDER: &str = "Which size shall it be?";

/// The question of the tool `order`, with a form of every kind of field.
fn order() -> Value {
    json!({"message": ORDER, "requestedSchema": {
        "type": "object",
        "properties": {
            "size": {"type": "string", "title": "Size", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
            "weight": {"type": "number"},
            "gift": {"type": "boolean", "description": "Wrap it"},
            "mail": {"type": "string", "format": "email"},
        },
        "required": ["size", "count"],
    }})
}

/// A question with a form of one field.
fn form_of(name: &str, field: &Value) -> Value {
    json!({"message": "Who are you?", "requestedSchema": {
        "type": "object", "properties": {name: field}, "required": [name]}})
}

fn refusal(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// The server over HTTP, stopped at the end of the test.
pub struct HttpServer {
    http: Provider,
}

impl HttpServer {
    /// A server that accepts this bearer token, of the team `blue`.
    #[must_use]
    pub fn start(token: &str) -> Self {
        let authorization = format!("Bearer {token}");
        let mut server = McpTestServer::new(token);
        let http = Provider::start(move |received| answer(&mut server, received, &authorization));
        Self { http }
    }

    #[must_use]
    pub fn url(&self) -> String {
        self.http.endpoint()
    }
}

fn answer(
    server: &mut McpTestServer,
    received: &ReceivedRequest,
    authorization: &str,
) -> ProviderResponse {
    let empty = |status: u16| ProviderResponse {
        status,
        headers: Vec::new(),
        chunks: Vec::new(),
        ..ProviderResponse::json(&Value::Null)
    };
    if received.method != "POST" {
        return empty(405);
    }
    if received.header("authorization") != Some(authorization) {
        return empty(401);
    }
    if received.header("x-team") != Some("blue") {
        return empty(400);
    }
    match server.take(&received.body) {
        // Over HTTP only replies are sent.
        McpReaction::Say(messages) => messages
            .last()
            .map_or_else(|| empty(202), ProviderResponse::json),
        McpReaction::Die(_) => empty(500),
    }
}
