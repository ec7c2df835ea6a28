//! Goal: requests to Anthropic are valid and cost no more than necessary.
//!
//! Method: the real binary sends requests to a provider on the loopback, which records each one.

use goondan_tests::provider::{Provider, ProviderResponse, anthropic_saying, openai_saying};
use serde_json::{Value, json};

use crate::model::{KEY, Model};

fn provider() -> Provider {
    Provider::start(|_| ProviderResponse::stream(&anthropic_saying("Yes.")))
}

/// The request body for these messages.
fn asked(model: &Value, question: &Value) -> Value {
    let provider = provider();
    let mut whole = json!({"name": "m", "provider": "anthropic", "model": "claude-sonnet-4-5",
        "apiKey": KEY, "endpoint": provider.endpoint()});
    let fields = model.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    Model::with(&whole).ask(question).answer();
    provider.received()[0].body.clone()
}

fn call(id: &str) -> Value {
    json!({"type": "tool-call", "toolCallId": id, "toolName": "eye__look", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "content": [{"type": "tool-result", "toolCallId": id,
        "toolName": "eye__look", "output": {"type": "text", "value": id}}]})
}

/// A conversation in the middle of a turn, with a system note inside it.
fn conversation() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "One."}),
        json!({"role": "assistant", "content": "1."}),
        json!({"role": "user", "content": "Two."}),
        json!({"role": "assistant", "content": [call("a"), call("b")]}),
        json!({"role": "system", "content": "It is late."}),
        result("a"),
        result("b"),
    ]
}

fn tools() -> Value {
    json!([{"name": "eye__look", "description": "Looks.", "parameters": {"type": "object"}},
           {"name": "eye__blink", "description": "Blinks.", "parameters": {"type": "object"}}])
}

/// Locations of all cache marks.
fn marks(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("cache_control") {
                found.push(place.to_owned());
            }
            for (name, value) in fields {
                marks(value, &format!("{place}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                marks(item, &format!("{place}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn without_marks(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "cache_control");
            Value::Object(
                fields
                    .map(|(name, value)| (name.clone(), without_marks(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_marks).collect(),
        other => other.clone(),
    }
}

#[test]
fn parallel_call_results_form_one_message_and_come_first() {
    let body = asked(
        &json!({}),
        &json!({"system": "Be brief.", "messages": conversation()}),
    );
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let last = messages[4]["content"].as_array().unwrap();
    let kinds: Vec<_> = last
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
    assert_eq!(
        body["system"].as_array().unwrap().len(),
        1,
        "the note is no part of it"
    );
    assert!(last[2]["text"].as_str().unwrap().contains("It is late."));
}

#[test]
fn request_prefix_is_marked_for_cache_and_stable_across_steps() {
    let ask = |messages: &[Value]| {
        asked(
            &json!({}),
            &json!({"system": "Be brief.", "tools": tools(), "messages": messages}),
        )
    };
    let all = conversation();
    let (before, after) = (ask(&all[..3]), ask(&all));
    let mut found = Vec::new();
    marks(&before, "", &mut found);
    assert_eq!(
        found,
        [
            "/system/0",
            "/messages/0/content/0",
            "/messages/2/content/0"
        ]
    );
    let mut found = Vec::new();
    marks(&after, "", &mut found);
    assert_eq!(
        found,
        [
            "/system/0",
            "/messages/2/content/0",
            "/messages/4/content/2"
        ]
    );
    // The next request starts with the cached prefix.
    let (before, after) = (without_marks(&before), without_marks(&after));
    assert_eq!(before["tools"], after["tools"]);
    assert_eq!(before["system"], after["system"]);
    let (before, after) = (
        before["messages"].as_array().unwrap(),
        after["messages"].as_array().unwrap(),
    );
    assert_eq!(before.as_slice(), &after[..3]);
    // Without a system prompt the tools are marked.
    let body = asked(
        &json!({}),
        &json!({"tools": tools(), "messages": [{"role": "user", "content": "Hi."}]}),
    );
    let mut found = Vec::new();
    marks(&body, "", &mut found);
    assert_eq!(found, ["/tools/1", "/messages/0/content/0"]);
    let body = asked(
        &json!({"promptCaching": false}),
        &json!({"system": "Be brief.", "messages": all}),
    );
    let mut found = Vec::new();
    marks(&body, "", &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn thinking_model_gets_no_temperature_and_room_for_a_reply() {
    let hi = json!({"messages": [{"role": "user", "content": "Hi."}]});
    let body = asked(
        &json!({"params": {"reasoningEffort": "medium", "temperature": 0.5, "topP": 0.5}}),
        &hi,
    );
    assert_eq!(
        body["thinking"],
        json!({"type": "enabled", "budget_tokens": 8_000})
    );
    assert!(body["max_tokens"].as_u64().unwrap() > 8_000);
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None));
    let body = asked(
        &json!({"model": "claude-opus-4-6", "params": {"reasoningEffort": "max", "temperature": 1}}),
        &hi,
    );
    assert_eq!(body["thinking"]["type"], "adaptive");
    assert_eq!(body["output_config"], json!({"effort": "max"}));
    assert_eq!(body.get("temperature"), None);
    let body = asked(
        &json!({"params": {"reasoningEffort": "none", "temperature": 0.5}}),
        &hi,
    );
    assert_eq!(
        (body.get("thinking"), &body["temperature"]),
        (None, &json!(0.5))
    );
    // Parameters that were not validated before are not sent either.
    let provider = provider();
    let mut model = Model::at(&provider, "anthropic");
    let made = model.ask(&json!({"messages": [{"role": "user", "content": "Hi."}],
        "params": {"reasoningEffort": "low", "maxTokens": 1_024}}));
    assert!(
        made.error().message.contains("`maxTokens: 1024`"),
        "{:?}",
        made.error()
    );
    assert!(provider.received().is_empty());
}

#[test]
fn messages_invalid_for_anthropic_are_never_sent() {
    let body = asked(
        &json!({}),
        &json!({"messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "  "},
                {"type": "image", "image": "https://example.org/cat.png"}]},
            {"role": "assistant", "content": [
                {"type": "tool-call", "toolCallId": "a", "toolName": "eye__look", "input": "{\"at\": "}]},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a",
                "toolName": "eye__look", "output": {"type": "error-text", "value": "no JSON"}}]},
            {"role": "assistant", "content": "Well."},
        ]}),
    );
    let messages = &body["messages"];
    assert_eq!(messages[0]["content"].as_array().unwrap().len(), 1);
    assert_eq!(
        messages[0]["content"][0]["source"]["url"],
        "https://example.org/cat.png"
    );
    assert!(messages[1]["content"][0]["input"].is_object());
    assert_eq!(messages[2]["content"][0]["is_error"], true);
    assert_eq!(
        messages[4]["role"], "user",
        "no words are put into its mouth"
    );
}

#[test]
fn images_of_a_tool_reach_each_model_in_its_own_form() {
    let question = json!({"messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [call("a"), call("b")]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a", "toolName": "eye__look",
            "output": {"type": "content", "value": [{"type": "text", "text": "a cat"},
                {"type": "media", "data": "iVBORw0KGgo=", "mediaType": "image/png"}]}}]},
        result("b"),
    ]});
    let body = asked(&json!({}), &question);
    let content = &body["messages"][2]["content"][0]["content"];
    assert_eq!(content[0], json!({"type": "text", "text": "a cat"}));
    assert_eq!(
        content[1]["source"],
        json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="})
    );

    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Yes."])));
    Model::at(&provider, "openai").ask(&question).answer();
    let messages = provider.received()[0].body["messages"].clone();
    let roles: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user"]);
    assert_eq!(messages[2]["content"], "a cat");
    assert_eq!(
        messages[4]["content"][1]["image_url"]["url"],
        "data:image/png;base64,iVBORw0KGgo="
    );
}

#[test]
fn openai_reasoning_returns_only_if_enabled_and_in_its_turn() {
    let thought = json!({"text": "Hm.", "model": "big-1"});
    let question = json!({"messages": [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": "1.", "reasoning": thought},
        {"role": "user", "content": "Two."},
        {"role": "assistant", "content": [call("a")], "reasoning": thought},
        result("a"),
    ]});
    for (sends, expected) in [(None, [false, false]), (Some(true), [false, true])] {
        let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Yes."])));
        let mut model = json!({"name": "m", "provider": "openai", "model": "big-1",
            "endpoint": provider.endpoint()});
        if let Some(sends) = sends {
            model["sendReasoning"] = json!(sends);
        }
        Model::with(&model).ask(&question).answer();
        let messages = &provider.received()[0].body["messages"];
        let has = |place: usize| messages[place].get("reasoning_content").is_some();
        assert_eq!([has(1), has(3)], expected, "{sends:?}");
    }
}

#[test]
fn trace_of_a_call_is_passed_to_the_provider() {
    let provider = provider();
    let mut model = Model::at(&provider, "anthropic");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    model.ask_in(
        Some(trace),
        &json!({"messages": [{"role": "user", "content": "Hi."}]}),
    );
    model.hi();
    let received = provider.received();
    assert_eq!(received[0].header("traceparent"), Some(trace));
    assert_eq!(received[1].header("traceparent"), None);
}
