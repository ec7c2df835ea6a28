//! A stand-in for the providers of models that coding agents call.
//!
//! It serves Anthropic's Messages, `OpenAI`'s Responses and Chat Completions, and Gemini's
//! `generateContent`, streamed or not. The first part of a request's path is a scene, so that each
//! agent of a test has its own conversation and its own count of tokens; the test's script decides
//! each reply from the scene and the conversation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::provider::{
    Gate, Provider, ProviderResponse, ReceivedRequest, anthropic, google, openai,
};

/// Tokens that a prompt takes from the provider's cache.
const CACHED: u64 = 300;

/// Tokens that a prompt adds to the cache of Anthropic's API.
const WRITTEN: u64 = 100;

/// Tokens of each reply.
const OUTPUT: u64 = 55;

/// Tokens of a reply that are reasoning. The Messages API does not report them separately.
const REASONING: u64 = 10;

/// Characters of a streamed piece of text.
const PIECE_CHARS: usize = 40;

/// Text that accompanies each tool call.
pub const LOOKING: &str = "I look at the files first.";

/// Names of the tool that runs a command, in the programs that have one.
const SHELL_TOOLS: [&str; 7] = [
    "Bash",
    "bash",
    "run_shell_command",
    "exec_command",
    "shell_command",
    "shell",
    "local_shell",
];

/// Kind of a part of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    System,
    /// Text of the user, which includes goondan's prompts.
    User,
    Agent,
    /// Tool that the model called.
    Call,
    Result,
}

/// Conversation that a program sends with each request.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Its parts, oldest first.
    pub parts: Vec<(Part, String)>,
    /// Offered tools, with the schemas of their arguments.
    pub tools: BTreeMap<String, Value>,
    /// True if the program wants a JSON object instead of text.
    pub is_json_wanted: bool,
}

impl Conversation {
    fn add(&mut self, part: Part, text: impl Into<String>) {
        let text = text.into();
        let text = match part {
            Part::User => without_reminders(&text).to_owned(),
            _ => text,
        };
        if part != Part::User || !text.is_empty() {
            self.parts.push((part, text));
        }
    }

    fn of(&self, part: Part) -> impl DoubleEndedIterator<Item = &str> {
        let parts = self.parts.iter();
        parts.filter_map(move |(kind, text)| (*kind == part).then_some(text.as_str()))
    }

    #[must_use]
    pub fn user_text(&self) -> String {
        self.of(Part::User).collect::<Vec<_>>().join("\n")
    }

    /// True if a part of this kind contains the text.
    #[must_use]
    pub fn has(&self, part: Part, text: &str) -> bool {
        self.of(part).any(|found| found.contains(text))
    }

    /// Texts of the user since the model's last text or call.
    #[must_use]
    pub fn prompt(&self) -> String {
        let is_models = |(part, _): &(Part, String)| matches!(part, Part::Agent | Part::Call);
        let last_user = self.parts.iter().rposition(|(part, _)| *part == Part::User);
        let end = last_user.map_or(0, |at| at + 1);
        let start = self.parts[..end].iter().rposition(is_models);
        let prompt = self.parts[start.map_or(0, |at| at + 1)..end].iter();
        let texts = prompt.filter(|(part, _)| *part == Part::User);
        let texts: Vec<&str> = texts.map(|(_, text)| text.as_str()).collect();
        texts.join("\n")
    }

    /// Number of tool results since the last text of the user.
    #[must_use]
    pub fn results(&self) -> usize {
        let last_user = self.parts.iter().rposition(|(part, _)| *part == Part::User);
        let since = self.parts[last_user.unwrap_or(0)..].iter();
        since.filter(|(part, _)| *part == Part::Result).count()
    }

    /// A call that runs a command, or `None` if the program offers no tool for that. If it must be
    /// approved, the call asks to leave the program's own sandbox, where the tool can.
    #[must_use]
    pub fn shell_call(&self, command: &str, is_approved: bool) -> Option<Reply> {
        let mut names = SHELL_TOOLS.into_iter();
        let tool = names.find(|name| self.tools.contains_key(*name))?;
        let schema = &self.tools[tool];
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut args = serde_json::Map::new();
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (name, property) in properties {
            let is_required = required.contains(&json!(name));
            let value = match name.as_str() {
                "command" | "cmd" if property["type"] == "array" => {
                    json!(["bash", "-lc", command])
                }
                "command" | "cmd" | "script" => json!(command),
                "description" => json!("run a command"),
                "sandbox_permissions" if is_approved => json!("require_escalated"),
                "justification" if is_approved => json!("The command needs it."),
                _ if !is_required => continue,
                _ => match property["type"].as_str() {
                    Some("boolean") => json!(false),
                    Some("number" | "integer") => json!(1),
                    _ => json!("x"),
                },
            };
            args.insert(name.clone(), value);
        }
        Some(Reply::Call {
            tool: tool.to_owned(),
            args: Value::Object(args),
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Text that ends the turn.
    Say(String),
    /// Text and a tool call.
    Call {
        tool: String,
        args: Value,
    },
    Refuse,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub reply: Reply,
    /// True if the reply waits until the test opens the scene.
    pub is_held: bool,
}

/// Answered request.
#[derive(Debug, Clone)]
pub struct Call {
    pub conversation: Conversation,
    pub decision: Decision,
}

/// Tokens of all calls of a scene, as the provider bills them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub calls: u64,
    /// Tokens of prompts, cached ones included.
    pub input: u64,
    /// Tokens of replies, reasoning included.
    pub output: u64,
}

#[derive(Debug, Default)]
struct Scene {
    calls: Vec<Call>,
    tally: Tally,
    gate: Gate,
}

type Scenes = Arc<Mutex<BTreeMap<String, Scene>>>;

fn lock(scenes: &Scenes) -> MutexGuard<'_, BTreeMap<String, Scene>> {
    scenes.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct ModelServer {
    provider: Provider,
    scenes: Scenes,
}

impl ModelServer {
    /// Starts a server on loopback, with a script.
    #[must_use]
    pub fn start(script: impl Fn(&str, &Conversation) -> Decision + Send + 'static) -> Self {
        let scenes = Scenes::default();
        let noted = Arc::clone(&scenes);
        let provider = Provider::start(move |received| answer(received, &noted, &script));
        Self { provider, scenes }
    }

    /// Address of a scene, without a version of the API.
    #[must_use]
    pub fn url(&self, scene: &str) -> String {
        format!("{}/{scene}", self.provider.root())
    }

    /// Its host and port.
    #[must_use]
    pub fn authority(&self) -> String {
        let root = self.provider.root();
        root.trim_start_matches("http://").to_owned()
    }

    /// Requests for models that a scene has received.
    #[must_use]
    pub fn calls(&self, scene: &str) -> Vec<Call> {
        lock(&self.scenes)
            .get(scene)
            .map(|scene| scene.calls.clone())
            .unwrap_or_default()
    }

    #[must_use]
    pub fn tally(&self, scene: &str) -> Tally {
        lock(&self.scenes)
            .get(scene)
            .map(|scene| scene.tally)
            .unwrap_or_default()
    }

    /// True if a reply of the scene waits.
    #[must_use]
    pub fn is_holding(&self, scene: &str) -> bool {
        let scenes = lock(&self.scenes);
        let found = scenes.get(scene);
        found.is_some_and(|it| !it.gate.is_open() && it.calls.iter().any(|it| it.decision.is_held))
    }

    /// Sends the replies of a scene that wait, and lets no other wait.
    pub fn open(&self, scene: &str) {
        let mut scenes = lock(&self.scenes);
        scenes.entry(scene.to_owned()).or_default().gate.open();
    }
}

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Messages,
    Responses,
    Chat,
    Gemini,
}

fn answer(
    received: &ReceivedRequest,
    scenes: &Scenes,
    script: &impl Fn(&str, &Conversation) -> Decision,
) -> ProviderResponse {
    let path = received.path.split('?').next().unwrap_or_default();
    let scene = path.split('/').nth(1).unwrap_or_default();
    let api = match path {
        _ if received.method == "GET" && path.contains("/models") => {
            let model = json!({"id": "fake-model", "object": "model", "type": "model", "display_name": "Fake",
                               "created_at": "2026-01-01T00:00:00Z"});
            return ProviderResponse::json(
                &json!({"object": "list", "data": [model], "models": []}),
            );
        }
        _ if received.method != "POST" => return ProviderResponse::json(&json!({})),
        _ if path.ends_with("/count_tokens") => {
            return ProviderResponse::json(&json!({"input_tokens": 1_000}));
        }
        _ if path.contains(":countTokens") => {
            return ProviderResponse::json(&json!({"totalTokens": 1_000}));
        }
        _ if path.ends_with("/messages") => Api::Messages,
        _ if path.ends_with("/responses") => Api::Responses,
        _ if path.ends_with("/chat/completions") => Api::Chat,
        _ if path.contains("enerateContent") => Api::Gemini,
        _ => return ProviderResponse::json(&json!({})),
    };
    let body = &received.body;
    let conversation = match api {
        Api::Messages => messages_conversation(body),
        Api::Responses => responses_conversation(body),
        Api::Chat => chat_conversation(body),
        Api::Gemini => gemini_conversation(body),
    };
    let decision = script(scene, &conversation);
    let is_streamed = body["stream"] == true || path.contains(":stream");
    let mut scenes = lock(scenes);
    let scene = scenes.entry(scene.to_owned()).or_default();
    let call = Call {
        conversation,
        decision: decision.clone(),
    };
    scene.calls.push(call);
    let number = scene.calls.len() as u64;
    if decision.reply == Reply::Refuse {
        return refusal(api);
    }
    // Different in each call, so that a call that is counted twice or not at all is noticed.
    let input = 1_200 + 7 * (number % 50);
    scene.tally.calls += 1;
    scene.tally.input += input;
    scene.tally.output += OUTPUT;
    let id = format!("{number:08}");
    let reply = &decision.reply;
    let answer = match api {
        Api::Messages => messages_answer(&id, body, reply, input, is_streamed),
        Api::Responses => responses_answer(&id, body, reply, input, is_streamed),
        Api::Chat => chat_answer(&id, body, reply, input, is_streamed),
        Api::Gemini => gemini_answer(&id, reply, input, is_streamed),
    };
    if decision.is_held {
        answer.behind(scene.gate.clone())
    } else {
        answer
    }
}

/// Refusal of a key, as each provider words it.
fn refusal(api: Api) -> ProviderResponse {
    match api {
        Api::Messages => ProviderResponse::error(
            401,
            &json!({"type": "error", "request_id": "req_1",
                    "error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
        ),
        Api::Responses | Api::Chat => ProviderResponse::error(
            401,
            &json!({"error": {"message": "Incorrect API key provided: sk-test.", "type": "invalid_request_error",
                              "param": null, "code": "invalid_api_key"}}),
        ),
        Api::Gemini => ProviderResponse::error(
            400,
            &json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
                              "message": "API key not valid. Please pass a valid API key."}}),
        ),
    }
}

/// The text of a message's content: a text, or a list of parts with texts.
/// Text of a user without the reminders and the environment that programs put before it, in the
/// same message or in one of their own.
fn without_reminders(text: &str) -> &str {
    const TAGS: [&str; 3] = ["system-reminder", "environment_context", "session_context"];
    let mut rest = text.trim_start();
    loop {
        let mut after = TAGS.iter().filter_map(|tag| {
            rest.strip_prefix('<')?.strip_prefix(tag)?;
            let end = format!("</{tag}>");
            let after = rest.split_once(&end).map(|(_, after)| after);
            Some(after.unwrap_or_default().trim_start())
        });
        match after.next() {
            Some(after) => rest = after,
            None => return rest,
        }
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Pieces of a text, as a stream has them.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let pieces = chars.chunks(PIECE_CHARS);
    pieces.map(|piece| piece.iter().collect()).collect()
}

fn part_of_role(role: &Value) -> Part {
    match role.as_str() {
        Some("user") => Part::User,
        Some("assistant" | "model") => Part::Agent,
        _ => Part::System,
    }
}

fn messages_conversation(body: &Value) -> Conversation {
    let mut it = Conversation::default();
    it.add(Part::System, text_of(&body["system"]));
    for message in array(&body["messages"]) {
        let part = part_of_role(&message["role"]);
        if let Some(text) = message["content"].as_str() {
            it.add(part, text);
        }
        for block in array(&message["content"]) {
            match block["type"].as_str() {
                Some("text") => it.add(part, text_of(&json!([block]))),
                Some("tool_use") => it.add(Part::Call, block["name"].as_str().unwrap_or_default()),
                Some("tool_result") => it.add(Part::Result, block["content"].to_string()),
                _ => {}
            }
        }
    }
    for tool in array(&body["tools"]) {
        if let Some(name) = tool["name"].as_str() {
            it.tools
                .insert(name.to_owned(), tool["input_schema"].clone());
        }
    }
    it
}

fn messages_answer(
    id: &str,
    body: &Value,
    reply: &Reply,
    input: u64,
    is_streamed: bool,
) -> ProviderResponse {
    let mut content = vec![json!({"type": "text", "text": words(reply)})];
    let mut stop = "end_turn";
    if let Reply::Call { tool, args } = reply {
        content.push(
            json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": tool, "input": args}),
        );
        stop = "tool_use";
    }
    let usage = |output: u64| {
        json!({"input_tokens": input - CACHED - WRITTEN, "cache_read_input_tokens": CACHED,
               "cache_creation_input_tokens": WRITTEN, "output_tokens": output})
    };
    let message = |content: &[Value], stop: Option<&str>, output: u64| {
        json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": body["model"],
               "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage(output)})
    };
    if !is_streamed {
        return ProviderResponse::json(&message(&content, Some(stop), OUTPUT));
    }
    let mut events = vec![json!({"type": "message_start", "message": message(&[], None, 1)})];
    for (index, block) in content.iter().enumerate() {
        let (empty, deltas) = match block["text"].as_str() {
            Some(text) => {
                let deltas = pieces(text).into_iter();
                let deltas = deltas.map(|text| json!({"type": "text_delta", "text": text}));
                (json!({"type": "text", "text": ""}), deltas.collect())
            }
            None => {
                let mut empty = block.clone();
                empty["input"] = json!({});
                let args = block["input"].to_string();
                (
                    empty,
                    vec![json!({"type": "input_json_delta", "partial_json": args})],
                )
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        let deltas: Vec<Value> = deltas;
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
               "usage": {"output_tokens": OUTPUT}}),
    );
    events.push(json!({"type": "message_stop"}));
    ProviderResponse::stream(&anthropic(&events))
}

fn words(reply: &Reply) -> &str {
    match reply {
        Reply::Say(text) => text,
        Reply::Call { .. } => LOOKING,
        Reply::Refuse => "",
    }
}

fn responses_conversation(body: &Value) -> Conversation {
    let mut it = Conversation::default();
    it.add(Part::System, text_of(&body["instructions"]));
    if let Some(text) = body["input"].as_str() {
        it.add(Part::User, text);
    }
    for item in array(&body["input"]) {
        let kind = item["type"].as_str().unwrap_or("message");
        if kind == "message" {
            it.add(part_of_role(&item["role"]), text_of(&item["content"]));
        } else if kind.ends_with("_output") {
            it.add(Part::Result, item["output"].to_string());
        } else if kind.contains("call") {
            it.add(Part::Call, item["name"].as_str().unwrap_or_default());
        }
    }
    for tool in array(&body["tools"]) {
        if let (Some("function"), Some(name)) = (tool["type"].as_str(), tool["name"].as_str()) {
            it.tools.insert(name.to_owned(), tool["parameters"].clone());
        }
    }
    it
}

fn responses_answer(
    id: &str,
    body: &Value,
    reply: &Reply,
    input: u64,
    is_streamed: bool,
) -> ProviderResponse {
    let text = words(reply);
    let mut output = vec![
        json!({"type": "message", "id": format!("msg_{id}"), "role": "assistant",
        "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}),
    ];
    if let Reply::Call { tool, args } = reply {
        output.push(json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"),
            "name": tool, "arguments": args.to_string(), "status": "completed"}));
    }
    let usage = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": REASONING},
        "total_tokens": input + OUTPUT});
    let whole = json!({"id": format!("resp_{id}"), "object": "response", "status": "completed",
        "model": body["model"], "output": output, "usage": usage});
    if !is_streamed {
        return ProviderResponse::json(&whole);
    }
    let begun = json!({"id": format!("resp_{id}"), "object": "response", "status": "in_progress",
        "model": body["model"], "output": []});
    let mut events = vec![json!({"type": "response.created", "response": begun})];
    for (index, item) in output.iter().enumerate() {
        let mut empty = item.clone();
        if item["type"] == "message" {
            empty["content"] = json!([]);
        }
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": empty}),
        );
        if item["type"] == "message" {
            for delta in pieces(text) {
                events.push(
                    json!({"type": "response.output_text.delta", "item_id": item["id"],
                    "output_index": index, "content_index": 0, "delta": delta}),
                );
            }
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(json!({"type": "response.completed", "response": whole}));
    // Events of this protocol have the form of Anthropic's.
    ProviderResponse::stream(&anthropic(&events))
}

fn chat_conversation(body: &Value) -> Conversation {
    let mut it = Conversation::default();
    for message in array(&body["messages"]) {
        let text = text_of(&message["content"]);
        match message["role"].as_str() {
            Some("tool") => it.add(Part::Result, text),
            _ if text.is_empty() => {}
            _ => it.add(part_of_role(&message["role"]), text),
        }
        for call in array(&message["tool_calls"]) {
            let name = call["function"]["name"].as_str();
            it.add(Part::Call, name.unwrap_or_default());
        }
    }
    for tool in array(&body["tools"]) {
        let tool = &tool["function"];
        if let Some(name) = tool["name"].as_str() {
            it.tools.insert(name.to_owned(), tool["parameters"].clone());
        }
    }
    it
}

fn chat_answer(
    id: &str,
    body: &Value,
    reply: &Reply,
    input: u64,
    is_streamed: bool,
) -> ProviderResponse {
    let usage = json!({"prompt_tokens": input, "completion_tokens": OUTPUT, "total_tokens": input + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens_details": {"reasoning_tokens": REASONING}});
    let call = match reply {
        Reply::Call { tool, args } => Some(
            json!([{"index": 0, "id": format!("call_{id}"), "type": "function",
            "function": {"name": tool, "arguments": args.to_string()}}]),
        ),
        _ => None,
    };
    let finish = if call.is_some() { "tool_calls" } else { "stop" };
    let envelope = |object: &str, choices: Value| {
        json!({"id": format!("chatcmpl-{id}"), "object": object, "created": 1, "model": body["model"],
               "choices": choices})
    };
    if !is_streamed {
        let mut message = json!({"role": "assistant", "content": words(reply)});
        if let Some(call) = call {
            message["tool_calls"] = call;
        }
        let choice = json!([{"index": 0, "message": message, "finish_reason": finish}]);
        let mut whole = envelope("chat.completion", choice);
        whole["usage"] = usage;
        return ProviderResponse::json(&whole);
    }
    let delta = |delta: Value, finish: Option<&str>| {
        let choice = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        envelope("chat.completion.chunk", choice)
    };
    let mut chunks = vec![delta(json!({"role": "assistant", "content": ""}), None)];
    for piece in pieces(words(reply)) {
        chunks.push(delta(json!({"content": piece}), None));
    }
    if let Some(call) = call {
        chunks.push(delta(json!({"tool_calls": call}), None));
    }
    chunks.push(delta(json!({}), Some(finish)));
    let mut last = envelope("chat.completion.chunk", json!([]));
    last["usage"] = usage;
    chunks.push(last);
    ProviderResponse::stream(&(openai(&chunks) + crate::provider::OPENAI_DONE))
}

fn gemini_conversation(body: &Value) -> Conversation {
    let mut it = Conversation::default();
    it.add(Part::System, text_of(&body["systemInstruction"]["parts"]));
    for message in array(&body["contents"]) {
        let role = part_of_role(&message["role"]);
        for part in array(&message["parts"]) {
            if let (Some(text), true) = (part["text"].as_str(), part["thought"] != true) {
                it.add(role, text);
            } else if let Some(name) = part["functionCall"]["name"].as_str() {
                it.add(Part::Call, name);
            } else if part["functionResponse"].is_object() {
                it.add(
                    Part::Result,
                    part["functionResponse"]["response"].to_string(),
                );
            }
        }
    }
    for tools in array(&body["tools"]) {
        for tool in array(&tools["functionDeclarations"]) {
            let schema = match &tool["parametersJsonSchema"] {
                Value::Null => &tool["parameters"],
                schema => schema,
            };
            if let Some(name) = tool["name"].as_str() {
                it.tools.insert(name.to_owned(), schema.clone());
            }
        }
    }
    let config = &body["generationConfig"];
    it.is_json_wanted = config["responseMimeType"] == "application/json"
        || config["responseJsonSchema"].is_object();
    it
}

fn gemini_answer(id: &str, reply: &Reply, input: u64, is_streamed: bool) -> ProviderResponse {
    let usage = json!({"promptTokenCount": input, "cachedContentTokenCount": CACHED,
        "candidatesTokenCount": OUTPUT - REASONING, "thoughtsTokenCount": REASONING,
        "totalTokenCount": input + OUTPUT});
    let mut parts: Vec<Value> = pieces(words(reply))
        .into_iter()
        .map(|text| json!({"text": text}))
        .collect();
    if let Reply::Call { tool, args } = reply {
        let call = json!({"name": tool, "args": args, "id": format!("fc{id}")});
        parts.push(json!({"functionCall": call, "thoughtSignature": "c2ln"}));
    }
    let chunk = |parts: &[Value], is_last: bool| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if is_last {
            candidate["finishReason"] = json!("STOP");
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake", "responseId": id})
    };
    if !is_streamed {
        return ProviderResponse::json(&chunk(&parts, true));
    }
    let last = parts.len() - 1;
    let chunks = parts.iter().enumerate();
    let chunks: Vec<Value> = chunks
        .map(|(at, part)| chunk(std::slice::from_ref(part), at == last))
        .collect();
    ProviderResponse::stream(&google(&chunks))
}
