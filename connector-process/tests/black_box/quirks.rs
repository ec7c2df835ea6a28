//! Goal: streams, errors and histories from real servers are parsed correctly, and requests are
//! accepted by servers that validate them (PROV-1).

use goondan_protocol::call::CallErrorCode;
use goondan_tests::provider::{self, OPENAI_DONE, Provider, ProviderResponse, openai_saying};
use serde_json::{Value, json};

use crate::model::Model;

fn openai(chunks: &[Value]) -> ProviderResponse {
    ProviderResponse::stream(&(provider::openai(chunks) + OPENAI_DONE))
}

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn stop(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn fragment(call: &Value) -> Value {
    delta(&json!({"tool_calls": [call]}))
}

/// A model at a provider that gives one answer to each request.
fn answering(kind: &str, name: &str, answer: ProviderResponse) -> (Provider, Model) {
    let provider = Provider::start(move |_| answer.clone());
    let model = Model::with(&json!({
        "name": "m", "provider": kind, "model": name, "endpoint": provider.endpoint(),
    }));
    (provider, model)
}

#[test]
fn prov_1_fragments_of_calls_join_however_they_are_marked() {
    let head_under_another_index = [
        fragment(
            &json!({"index": 0, "id": "k1", "function": {"name": "count", "arguments": r#"{"text":"pear"}"#}}),
        ),
        fragment(&json!({"index": 0, "id": "k2", "function": {"name": "case", "arguments": ""}})),
        fragment(&json!({"index": 1, "function": {"arguments": r#"{"text":"plum"}"#}})),
        stop("tool_calls"),
    ];
    let all_repeated = [
        fragment(&json!({"id": "k1", "function": {"name": "count", "arguments": "{\"te"}})),
        fragment(&json!({"id": "k1", "function": {"name": "count", "arguments": "xt\":"}})),
        fragment(&json!({"id": "k1", "function": {"name": "count", "arguments": "\"pear\"}"}})),
        stop("tool_calls"),
    ];
    let pear = ("count", json!({"text": "pear"}));
    let plum = ("case", json!({"text": "plum"}));
    for (chunks, expected) in [
        (
            head_under_another_index.as_slice(),
            vec![pear.clone(), plum],
        ),
        (all_repeated.as_slice(), vec![pear]),
    ] {
        let (_provider, mut model) = answering("openai", "m", openai(chunks).in_parts_of(7));
        let calls = model.hi().content().tool_calls();
        let found = calls
            .iter()
            .map(|call| (call.tool_name.as_str(), call.input.clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn prov_1_usage_is_counted_anywhere_and_keep_alives_ignored() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
    for last in [
        json!({"choices": null, "usage": usage}),
        json!({"usage": usage}),
        json!({"choices": [], "usage": usage}),
    ] {
        let said = provider::openai(&[delta(&json!({"content": "hello"})), stop("stop"), last]);
        let noise = ": OPENROUTER PROCESSING\n\ndata: \n\ndata: ping\n\nevent: ping\ndata: {}\n\n";
        let stream = format!("{noise}{said}{noise}{OPENAI_DONE}");
        let (_provider, mut model) = answering("openai", "m", ProviderResponse::stream(&stream));
        let made = model.hi();
        assert_eq!(made.content().to_text(), "hello");
        let usage = &made.answer().metadata["usage"];
        assert_eq!(
            (&usage["inputTokens"], &usage["outputTokens"]),
            (&json!(10), &json!(5))
        );
    }
}

#[test]
fn prov_1_empty_reply_is_not_a_success() {
    let google = |candidate: Value| {
        ProviderResponse::stream(&provider::google(&[json!({"candidates": [candidate],
            "usageMetadata": {"promptTokenCount": 5, "totalTokenCount": 5}})]))
    };
    let ended = |reason: &str| google(json!({"content": {}, "finishReason": reason}));
    let thought = json!({"content": {"parts": [{"text": "h", "thought": true}]},
        "finishReason": "MAX_TOKENS"});
    let said = json!({"content": {"parts": [{"text": "I will"}]},
        "finishReason": "MALFORMED_FUNCTION_CALL"});
    let reasoning = delta(&json!({"reasoning_content": "let me see"}));
    let anthropic = |reason: &str| {
        ProviderResponse::stream(&provider::anthropic(&[
            json!({"type": "message_start", "message": {"id": "m"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": reason}}),
            json!({"type": "message_stop"}),
        ]))
    };
    for (kind, answer, reason, retryable) in [
        (
            "google",
            ended("MALFORMED_FUNCTION_CALL"),
            "MALFORMED_FUNCTION_CALL",
            true,
        ),
        (
            "google",
            ended("UNEXPECTED_TOOL_CALL"),
            "UNEXPECTED_TOOL_CALL",
            true,
        ),
        ("google", google(said), "MALFORMED_FUNCTION_CALL", true),
        ("google", ended("OTHER"), "OTHER", true),
        ("google", google(thought), "MAX_TOKENS", false),
        (
            "openai",
            openai(&[reasoning.clone(), stop("length")]),
            "length",
            false,
        ),
        ("openai", openai(&[reasoning, stop("stop")]), "stop", true),
        ("anthropic", anthropic("max_tokens"), "max_tokens", false),
        ("anthropic", anthropic("end_turn"), "end_turn", true),
    ] {
        let (_provider, mut model) = answering(kind, "gemini-2.5-flash", answer);
        let made = model.hi();
        let error = made.error();
        assert!(error.message.contains(reason), "{error:?}");
        assert_eq!(error.retryable, retryable, "{error:?}");
    }
}

#[test]
fn prov_1_a_model_that_adds_nothing_to_results_of_tools_is_done() {
    let (_provider, mut model) = answering("openai", "m", openai(&[stop("stop")]));
    let made = model.ask(&json!({"messages": [
        {"role": "user", "content": "Turn the light on."},
        {"role": "assistant", "content": [
            {"type": "tool-call", "toolCallId": "a", "toolName": "light", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a", "toolName": "light",
            "output": {"type": "text", "value": "on"}}]},
    ]}));
    assert_eq!(made.content().to_text(), "");
}

#[test]
fn prov_1_histories_and_catalogs_have_forms_that_servers_accept() {
    let long = format!("box__{}", "n".repeat(90));
    let reply = provider::openai_calling("PLACE", &json!({"a": 1}));
    let provider = Provider::start(move |received| {
        let tools = received.body["tools"].as_array();
        let tools = tools.expect("the request offers tools");
        let name = tools[1].pointer("/function/name").and_then(Value::as_str);
        ProviderResponse::stream(&reply.replace("PLACE", name.expect("the tool has a name")))
    });
    let mut model = Model::at(&provider, "openai");
    let made = model.ask(&json!({
        "messages": [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [
                {"type": "tool-call", "toolCallId": "functions.x:0", "toolName": "", "input": {}}]},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "functions.x:0",
                "toolName": "", "output": {"type": "error-text", "value": "no such tool"}}]},
        ],
        "tools": [
            {"name": "bare", "description": "d", "parameters": {}},
            {"name": long, "description": "d", "parameters": {"anyOf": [
                {"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]}},
        ],
    }));
    // The model called the tool by the offered long name; the agent gets the name it knows.
    assert_eq!(made.content().tool_calls()[0].tool_name, long);
    let received = &provider.received()[0];
    let is_name = |name: &str| {
        (1..=64).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    for tool in received.body["tools"].as_array().unwrap() {
        assert!(
            is_name(tool["function"]["name"].as_str().unwrap()),
            "{tool}"
        );
        let parameters = &tool["function"]["parameters"];
        assert_eq!(parameters["type"], "object", "{tool}");
        assert_eq!(parameters.get("anyOf"), None, "{tool}");
    }
    let call = received.body.pointer("/messages/1/tool_calls/0").unwrap();
    assert!(
        is_name(call["function"]["name"].as_str().unwrap()),
        "{call}"
    );
    assert!(is_name(call["id"].as_str().unwrap()), "{call}");
    assert_eq!(received.body["messages"][2]["tool_call_id"], call["id"]);
}

#[test]
fn prov_1_an_option_of_null_leaves_its_field_out() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["ready"])));
    let mut model = Model::with(&json!({
        "name": "m", "provider": "openai", "model": "m", "endpoint": provider.endpoint(),
        "params": {"maxTokens": 50},
        "options": {"max_completion_tokens": 50, "max_tokens": null, "stream_options": null},
    }));
    model.hi();
    let body = &provider.received()[0].body;
    assert_eq!(body["max_completion_tokens"], 50);
    assert_eq!(body.get("max_tokens"), None);
    assert_eq!(body.get("stream_options"), None);
}

#[test]
fn prov_1_context_overflow_is_distinguished_from_rate_limit() {
    let too_long =
        json!({"error": {"message": "The input is too long for the model you asked for."}});
    let too_fast = json!({"error": {"message": "Request too large for model `m` on tokens per minute (TPM): \
        Limit 6000, Requested 9000", "code": "rate_limit_exceeded"}});
    for (status, body, code) in [
        (400, too_long, CallErrorCode::TooLarge),
        (413, too_fast, CallErrorCode::RateLimited),
    ] {
        let (_provider, mut model) =
            answering("openai", "m", ProviderResponse::error(status, &body));
        assert_eq!(model.hi().error().code, code);
    }
}
