//! Goal: the Responses API is spoken as `OpenAI` specifies it: reasoning goes back encrypted and in
//! its place, and each way in which a response ends has its own result (PROV-1).
//!
//! Method: the real binary, and a provider on the loopback that records each request.

use goondan_protocol::call::CallErrorCode;
use goondan_tests::provider::{Provider, ProviderResponse, responses, responses_saying};
use serde_json::{Value, json};

use crate::model::{KEY, Model};

fn model_at(provider: &Provider, name: &str) -> Model {
    Model::with(
        &json!({"name": "m", "provider": "openai", "api": "responses", "model": name,
        "apiKey": KEY, "endpoint": provider.endpoint()}),
    )
}

fn answering(answer: ProviderResponse) -> (Provider, Model) {
    let provider = Provider::start(move |_| answer.clone());
    let model = model_at(&provider, "gpt-5.1");
    (provider, model)
}

/// A response that the model reasoned about twice: before its text, and between its two calls.
fn reasoned() -> String {
    let reasoning = |id: &str, text: &str| {
        json!({"type": "reasoning", "id": id, "status": "completed",
            "encrypted_content": format!("sealed {text}"),
            "summary": [{"type": "summary_text", "text": text}]})
    };
    let call = |id: &str, arguments: &str| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id,
            "name": "eye__look", "arguments": arguments, "status": "completed"})
    };
    let text = json!({"type": "message", "id": "msg_1", "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}]});
    let items = [
        reasoning("rs_1", "Where?"),
        text,
        call("c1", r#"{"at": 1}"#),
        reasoning("rs_2", "And there?"),
        call("c2", r#"{"at": 2}"#),
    ];
    let mut events = vec![json!({"type": "response.created", "sequence_number": 0,
        "response": {"id": "resp_1", "model": "gpt-5.1-2025-11-13", "status": "in_progress"}})];
    for (index, item) in items.iter().enumerate() {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        let pieces: &[(&str, &str)] = match item["type"].as_str() {
            Some("message") => {
                begun["content"] = json!([]);
                &[("output_text", "I "), ("output_text", "look.")]
            }
            Some("function_call") if index == 2 => {
                begun["arguments"] = json!("");
                &[
                    ("function_call_arguments", r#"{"at""#),
                    ("function_call_arguments", ": 1}"),
                ]
            }
            _ => &[],
        };
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
        );
        for (kind, piece) in pieces {
            events.push(
                json!({"type": format!("response.{kind}.delta"), "output_index": index,
                "item_id": item["id"], "delta": piece}),
            );
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(
        json!({"type": "response.completed", "response": {"id": "resp_1",
        "status": "completed", "output": items, "usage": {"input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 25}, "total_tokens": 140}}}),
    );
    responses(&events)
}

#[test]
fn prov_1_reasoning_of_the_responses_api_goes_back_in_its_place() {
    let (provider, mut model) = {
        let provider = Provider::start(|received| match received.number {
            0 => ProviderResponse::stream(&reasoned()).in_parts_of(11),
            _ => ProviderResponse::stream(&responses_saying("A cat.")),
        });
        let model = model_at(&provider, "gpt-5.1");
        (provider, model)
    };
    let tools = json!([{"name": "eye__look", "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}}]);
    let image = json!({"type": "image", "image": "iVBORw0KGgo=", "mediaType": "image/png"});
    let user =
        json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]});
    let asked = json!({"system": "Be brief.", "messages": [user], "tools": tools,
        "params": {"reasoningEffort": "low", "maxTokens": 900, "stop": ["x"], "seed": 1}});
    let first = model.ask(&asked);
    assert_eq!(
        first.streamed(),
        ("I look.".to_owned(), "Where?\n\nAnd there?".to_owned())
    );
    let calls = first.content().tool_calls();
    let inputs: Vec<_> = calls.iter().map(|call| call.input.clone()).collect();
    assert_eq!(inputs, [json!({"at": 1}), json!({"at": 2})]);
    let answer = first.answer();
    assert_eq!(
        answer.metadata["usage"],
        json!({"inputTokens": 40, "cacheReadTokens": 60, "cacheWriteTokens": 0,
            "outputTokens": 40, "reasoningTokens": 25})
    );
    assert_eq!(answer.metadata["stopReason"], "completed");
    assert_eq!(answer.metadata["responseModel"], "gpt-5.1-2025-11-13");

    let result = |id: &str| {
        json!({"role": "tool", "content": [{"type": "tool-result", "toolCallId": id,
            "toolName": "eye__look", "output": {"type": "text", "value": id}}]})
    };
    let content: Value = serde_json::from_str(answer.content.get()).unwrap();
    let reply = json!({"role": "assistant", "content": content,
        "reasoning": answer.metadata["reasoning"]});
    let messages = [user, reply, result("c1"), result("c2")];
    let second = model.ask(&json!({"messages": messages, "tools": tools}));
    assert_eq!(second.content().to_text(), "A cat.");

    let received = provider.received();
    assert_eq!(received[0].path, "/v1/responses");
    assert_eq!(
        received[0].header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    let picture = json!({"type": "input_image", "detail": "auto",
        "image_url": "data:image/png;base64,iVBORw0KGgo="});
    let question = json!({"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, picture]});
    assert_eq!(
        received[0].body,
        json!({"model": "gpt-5.1", "stream": true, "store": false, "instructions": "Be brief.",
            "input": [question], "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 900,
            "tools": [{"type": "function", "name": "eye__look", "description": "Looks.",
                "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
                "strict": false}],
            "tool_choice": "auto"})
    );
    let reasoning = |text: &str| {
        json!({"type": "reasoning", "encrypted_content": format!("sealed {text}"),
            "summary": [{"type": "summary_text", "text": text}]})
    };
    let call = |id: &str, at: u64| {
        json!({"type": "function_call", "call_id": id, "name": "eye__look",
            "arguments": json!({"at": at}).to_string()})
    };
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": id});
    assert_eq!(
        received[1].body["input"],
        json!([
            question,
            reasoning("Where?"),
            {"role": "assistant", "content": "I look."},
            call("c1", 1),
            reasoning("And there?"),
            call("c2", 2),
            output("c1"),
            output("c2"),
        ])
    );
}

#[test]
fn prov_1_each_end_of_a_response_has_its_own_result() {
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "m",
        "content_index": 0, "delta": "I will"});
    let ended = |status: &str, fields: &Value| {
        let mut response = json!({"id": "r", "status": status, "output": [],
            "usage": {"input_tokens": 5, "output_tokens": 2}});
        let fields = fields.as_object().unwrap().clone();
        response.as_object_mut().unwrap().extend(fields);
        json!({"type": format!("response.{status}"), "response": response})
    };
    let incomplete = |reason: &str| {
        ended(
            "incomplete",
            &json!({"incomplete_details": {"reason": reason}}),
        )
    };
    let failed = |code: &str| ended("failed", &json!({"error": {"code": code, "message": "so"}}));
    let refusal = json!({"type": "response.refusal.delta", "output_index": 0, "item_id": "m",
        "content_index": 0, "delta": "I will not."});
    let error = json!({"type": "error", "code": "server_error", "message": "so", "param": null});
    let too_long = json!({"type": "error",
        "error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}});
    for (events, code, retryable) in [
        (
            vec![incomplete("max_output_tokens")],
            CallErrorCode::Refused,
            false,
        ),
        (
            vec![text.clone(), incomplete("content_filter")],
            CallErrorCode::Refused,
            false,
        ),
        (
            vec![refusal, ended("completed", &json!({}))],
            CallErrorCode::Refused,
            false,
        ),
        (
            vec![ended("completed", &json!({}))],
            CallErrorCode::Overloaded,
            true,
        ),
        (
            vec![text.clone(), failed("server_error")],
            CallErrorCode::Overloaded,
            true,
        ),
        (
            vec![failed("rate_limit_exceeded")],
            CallErrorCode::RateLimited,
            true,
        ),
        (
            vec![failed("invalid_prompt")],
            CallErrorCode::Refused,
            false,
        ),
        (vec![failed("invalid_image")], CallErrorCode::Invalid, false),
        (vec![text.clone(), error], CallErrorCode::Overloaded, true),
        (vec![too_long], CallErrorCode::TooLarge, false),
        (vec![text.clone()], CallErrorCode::Interrupted, true),
    ] {
        let (_provider, mut model) = answering(ProviderResponse::stream(&responses(&events)));
        let made = model.hi();
        let error = made.error();
        assert_eq!(
            (error.code, error.retryable),
            (code, retryable),
            "{events:?}: {error:?}"
        );
    }
    // Text that reached the maximum length is a reply.
    let events = [text, incomplete("max_output_tokens")];
    let (_provider, mut model) = answering(ProviderResponse::stream(&responses(&events)));
    let made = model.hi();
    assert_eq!(made.content().to_text(), "I will");
    assert_eq!(made.answer().metadata["stopReason"], "max_output_tokens");
}

#[test]
fn prov_1_an_unverified_organization_gets_replies_without_summaries() {
    let provider = Provider::start(|received| {
        if received.body.pointer("/reasoning/summary").is_some() {
            return ProviderResponse::error(
                400,
                &json!({"error": {"message": "Your organization must be verified to generate \
                    reasoning summaries.", "param": "reasoning.summary",
                    "code": "unsupported_value"}}),
            );
        }
        ProviderResponse::stream(&responses_saying("Yes."))
    });
    let mut model = model_at(&provider, "gpt-5.1");
    assert_eq!(model.hi().content().to_text(), "Yes.");
    assert_eq!(model.hi().content().to_text(), "Yes.");
    assert_eq!(provider.received().len(), 3);
    // A model that does not reason is not asked for reasoning.
    let mut plain = model_at(&provider, "gpt-4.1");
    plain.hi().answer();
    let body = provider.received()[3].body.clone();
    assert_eq!((body.get("reasoning"), body.get("include")), (None, None));
}

#[test]
fn prov_1_images_of_a_tool_are_part_of_its_result() {
    let (provider, mut model) = answering(ProviderResponse::stream(&responses_saying("A cat.")));
    let call =
        json!({"type": "tool-call", "toolCallId": "a", "toolName": "eye__look", "input": {}});
    let output = json!({"type": "content", "value": [{"type": "text", "text": "a cat"},
        {"type": "media", "data": "iVBORw0KGgo=", "mediaType": "image/png"}]});
    model
        .ask(&json!({"messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [call]},
            {"role": "system", "content": "It is late."},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a",
                "toolName": "eye__look", "output": output}]},
        ]}))
        .answer();
    let input = provider.received()[0].body["input"].clone();
    let kinds: Vec<_> = input
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.get("type").or(item.get("role")).unwrap().clone())
        .collect();
    assert_eq!(
        kinds,
        ["user", "function_call", "function_call_output", "system"]
    );
    assert_eq!(
        input[2]["output"],
        json!([{"type": "input_text", "text": "a cat"}, {"type": "input_image", "detail": "auto",
            "image_url": "data:image/png;base64,iVBORw0KGgo="}])
    );
}
