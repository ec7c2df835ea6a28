//! Streams of public bug reports, reduced to the quirk. The random combinations do not contain
//! them, because most end in an error.

use serde_json::{Value, json};

use super::super::anthropic::AnthropicReader;
use super::super::dialect::Dialect;
use super::super::google::GoogleReader;
use super::super::openai::OpenAiReader;
use super::{Reply, read};

fn read_stream(provider: &str, dialect: Box<dyn Dialect>, body: &str) -> Result<Reply, String> {
    let whole = read_in_parts(provider, dialect, body, body.len());
    if let Ok(reply) = &whole {
        let again: Box<dyn Dialect> = match provider {
            "anthropic" => Box::<AnthropicReader>::default(),
            "google" => Box::<GoogleReader>::default(),
            _ => Box::<OpenAiReader>::default(),
        };
        let found = read_in_parts(provider, again, body, 3);
        assert_eq!(found.as_ref(), Ok(reply), "{body}");
    }
    whole
}

fn read_in_parts(
    provider: &str,
    dialect: Box<dyn Dialect>,
    body: &str,
    part_bytes: usize,
) -> Result<Reply, String> {
    let parts: Vec<Vec<u8>> = body
        .as_bytes()
        .chunks(part_bytes)
        .map(<[u8]>::to_vec)
        .collect();
    read(provider, "text/event-stream", dialect, &parts)
}

fn openai(body: &str) -> Result<Reply, String> {
    read_stream("openai", Box::<OpenAiReader>::default(), body)
}

fn anthropic(body: &str) -> Result<Reply, String> {
    read_stream("anthropic", Box::<AnthropicReader>::default(), body)
}

fn google(body: &str) -> Result<Reply, String> {
    read_stream("google", Box::<GoogleReader>::default(), body)
}

fn events(events: &[Value]) -> String {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    events.collect()
}

fn chunk(delta: &Value, finish: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[test]
fn prov_1_events_without_empty_lines_between_them_are_read() {
    let hello = chunk(&json!({"content": "hello"}), &json!("null"));
    let end = chunk(&json!({}), &json!("stop"));
    for line_end in ["\n", "\r\n"] {
        let lines = [hello.to_string(), end.to_string(), "[DONE]".to_owned()];
        let lines = lines.map(|line| format!("data: {line}{line_end}"));
        assert_eq!(openai(&lines.concat()).unwrap().text, "hello");
    }
    // Two documents in one event, before an event of its own.
    let body = format!("data: {hello}\ndata: {hello}\n\ndata: {end}\n\n");
    assert_eq!(openai(&body).unwrap().text, "hellohello");
}

#[test]
fn prov_1_a_complete_message_in_a_stream_is_the_reply() {
    let whole = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "hello", "tool_calls": [
            {"id": "k", "type": "function", "function": {"name": "t", "arguments": "{\"n\":1}"}}]}}]});
    let reply = openai(&events(&[whole])).unwrap();
    assert_eq!(reply.text, "hello");
    assert_eq!(reply.calls, [("t".to_owned(), json!({"n": 1}))]);
    // A server that repeats the whole message in its last event said it already.
    let said = chunk(&json!({"content": "hello"}), &Value::Null);
    let again = json!({"choices": [{"delta": null, "finish_reason": "stop",
        "message": {"content": "hello"}}]});
    assert_eq!(openai(&events(&[said, again])).unwrap().text, "hello");
}

#[test]
fn prov_1_an_empty_thought_field_does_not_hide_the_other() {
    let thought = chunk(
        &json!({"reasoning_content": "", "reasoning": "hm"}),
        &Value::Null,
    );
    let said = chunk(&json!({"content": "hello"}), &json!("stop"));
    assert_eq!(openai(&events(&[thought, said])).unwrap().thought, "hm");
}

#[test]
fn prov_1_a_reply_that_its_server_gave_up_is_no_success() {
    let said = chunk(&json!({"content": "hel"}), &Value::Null);
    for (last, expected) in [
        (chunk(&json!({}), &json!("error")), "Interrupted"),
        (chunk(&json!({}), &json!("abort")), "Interrupted"),
        (
            chunk(&json!({}), &json!("insufficient_system_resource")),
            "Interrupted",
        ),
        (chunk(&json!({}), &json!("network_error")), "Interrupted"),
        (chunk(&json!({}), &json!("sensitive")), "Refused"),
        (
            chunk(&json!({}), &json!("content_filter: PROHIBITED_CONTENT")),
            "Refused",
        ),
        (
            chunk(
                &json!({}),
                &json!("function_call_filter: MALFORMED_FUNCTION_CALL"),
            ),
            "could not read",
        ),
        (
            json!({"choices": [{"delta": {}, "finish_reason": "error",
                "error": {"code": 502, "message": "upstream is gone"}}]}),
            "upstream is gone",
        ),
        (
            json!({"object": "error", "message": "engine died", "type": "InternalServerError",
                "param": null, "code": 500}),
            "engine died",
        ),
        (
            json!({"error": {"code": "429", "message": "slow down"}}),
            "RateLimited",
        ),
        (
            json!({"error": {"code": "tool_use_failed", "message": "Failed to call a function."}}),
            "could not read",
        ),
    ] {
        let found = openai(&events(&[said.clone(), last.clone()]));
        let error = found.expect_err("it is a failure");
        assert!(error.contains(expected), "{last}: {error}");
    }
}

#[test]
fn prov_1_interleaved_blocks_of_parallel_calls_are_separated() {
    let start = |index: u64, id: &str, name: &str| {
        json!({"type": "content_block_start", "index": index,
            "content_block": {"type": "tool_use", "id": id, "name": name, "input": {}}})
    };
    let more = |index: u64, text: &str| {
        json!({"type": "content_block_delta", "index": index,
            "delta": {"type": "input_json_delta", "partial_json": text}})
    };
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
    let mut all = vec![
        start(0, "a", "one"),
        start(1, "b", "two"),
        more(0, "{\"n\":"),
        more(1, "{\"m\":"),
        more(1, "2}"),
        more(0, "1}"),
        stop(1),
        stop(0),
        end,
    ];
    let expected = [
        ("one".to_owned(), json!({"n": 1})),
        ("two".to_owned(), json!({"m": 2})),
    ];
    // A gateway's end marker replaces the event of the protocol.
    let body = format!("{}data: [DONE]\n\n", events(&all));
    assert_eq!(anthropic(&body).unwrap().calls, expected);
    all.push(json!({"type": "message_stop"}));
    assert_eq!(anthropic(&events(&all)).unwrap().calls, expected);
    // Without the reason for its end, the reply is incomplete.
    let cut = format!("{}data: [DONE]\n\n", events(&all[..8]));
    assert!(anthropic(&cut).unwrap_err().contains("broke off"));
}

#[test]
fn prov_1_deltas_without_a_known_index_continue_the_latest_block() {
    let body = events(&[
        json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "tool_use", "id": "a", "name": "one", "input": {}}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": "{\"n\":"}}),
        json!({"type": "content_block_delta",
            "delta": {"type": "input_json_delta", "partial_json": "1}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        json!({"type": "message_stop"}),
    ]);
    let expected = [("one".to_owned(), json!({"n": 1}))];
    assert_eq!(anthropic(&body).unwrap().calls, expected);
}

#[test]
fn prov_1_default_values_in_a_google_stream_mean_nothing() {
    let part = |text: &str| json!({"text": text, "functionCall": null, "thought": null});
    let said = |text: &str, reason: &str| {
        json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [part(text)]},
            "finishReason": reason}]})
    };
    let unspecified = "FINISH_REASON_UNSPECIFIED";
    let body = events(&[said("hel", unspecified), said("lo", "STOP")]);
    let reply = google(&body).unwrap();
    assert_eq!((reply.text.as_str(), reply.calls.len()), ("hello", 0));
    // The connection was cut while the reply continued.
    let cut = events(&[said("hel", unspecified)]);
    assert!(google(&cut).unwrap_err().contains("broke off"));
}

#[test]
fn prov_1_lines_of_json_are_a_stream() {
    let hello = chunk(&json!({"content": "hel"}), &Value::Null);
    let end = chunk(&json!({"content": "lo"}), &json!("stop"));
    let native = |content: &str, done: bool| {
        json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": done,
            "message": {"role": "assistant", "content": content}})
    };
    let mut last = native("lo", true);
    last["done_reason"] = json!("stop");
    last["prompt_eval_count"] = json!(26);
    last["eval_count"] = json!(298);
    for lines in [[hello.clone(), end], [native("hel", false), last]] {
        let lines = lines.map(|line| format!("{line}\n")).concat();
        for body in [
            lines.clone(),
            format!("\u{feff}{lines}"),
            lines.trim_end().to_owned(),
        ] {
            assert_eq!(openai(&body).unwrap().text, "hello", "{body}");
        }
    }
    let error = format!("{hello}\n{{\"error\":\"the runner is gone\"}}\n");
    assert!(openai(&error).unwrap_err().contains("the runner is gone"));
}

#[test]
fn prov_1_a_reply_in_ollamas_own_protocol_is_read() {
    let call = json!({"function": {"name": "t", "arguments": {"n": 1}}});
    let body = json!({"model": "m", "done": true, "done_reason": "stop", "prompt_eval_count": 26,
        "eval_count": 298, "message": {"role": "assistant", "content": "", "thinking": "hm",
            "tool_calls": [call, call]}});
    let reply = openai(&body.to_string()).unwrap();
    let expected = ("t".to_owned(), json!({"n": 1}));
    assert_eq!(reply.calls, [expected.clone(), expected]);
    assert_eq!(reply.thought, "hm");
    assert_eq!(reply.usage, (26, 0, 298));
}

#[test]
fn prov_1_a_whole_reply_may_begin_with_a_byte_order_mark() {
    let body = json!({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]});
    let indented = serde_json::to_string_pretty(&body).unwrap();
    for body in [format!("\u{feff}{body}"), format!("\u{feff}\n{indented}\n")] {
        assert_eq!(openai(&body).unwrap().text, "hello", "{body}");
    }
}

#[test]
fn prov_1_an_error_without_a_field_name_within_a_stream_is_understood() {
    let said = chunk(&json!({"content": "hel"}), &Value::Null);
    let error = json!({"error": {"code": 429, "message": "slow down"}});
    let indented = serde_json::to_string_pretty(&error).unwrap();
    for error in [error.to_string(), indented] {
        let body = format!("data: {said}\n\n{error}\n");
        let found = openai(&body).unwrap_err();
        assert!(found.contains("RateLimited"), "{found}");
        let body = format!("{}{error}", events(&[json!({"type": "ping"})]));
        let found = anthropic(&body).unwrap_err();
        assert!(found.contains("slow down"), "{found}");
    }
}

#[test]
fn prov_1_an_error_in_plain_words_is_no_keep_alive() {
    let said = events(&[chunk(&json!({"content": "hel"}), &Value::Null)]);
    let body = format!("{said}event: error\ndata: Overloaded: try again\n\n");
    assert!(openai(&body).unwrap_err().contains("Overloaded: try again"));
    let body = events(&[json!({"choices": [], "x_groq": {"error": "over capacity"}})]);
    assert!(
        openai(&format!("{said}{body}"))
            .unwrap_err()
            .contains("over capacity")
    );
}

#[test]
fn prov_1_half_of_a_character_does_not_end_a_stream() {
    let body = r#"data: {"choices":[{"delta":{"content":"a\ud83e"},"finish_reason":"stop"}]}"#;
    assert_eq!(openai(&format!("{body}\n\n")).unwrap().text, "a\u{fffd}");
}

#[test]
fn prov_1_an_empty_error_field_is_no_error() {
    for error in [json!(null), json!(""), json!({}), json!(false)] {
        let mut end = chunk(&json!({"content": "hello"}), &json!("stop"));
        end["error"] = error;
        assert_eq!(openai(&events(&[end])).unwrap().text, "hello");
    }
}

#[test]
fn prov_1_text_and_calls_in_two_choices_are_one_reply() {
    let call = json!({"id": "k", "function": {"name": "t", "arguments": "{\"n\":1}"}});
    let text = json!({"finish_reason": "tool_calls", "message": {"content": "hello"}});
    let calls = json!({"finish_reason": "tool_calls",
        "message": {"content": null, "tool_calls": [call]}});
    let body = json!({"choices": [text, calls]});
    for body in [body.to_string(), events(std::slice::from_ref(&body))] {
        let reply = openai(&body).unwrap();
        assert_eq!(reply.text, "hello", "{body}");
        assert_eq!(reply.calls, [("t".to_owned(), json!({"n": 1}))], "{body}");
    }
    // Another index belongs to another reply, which was not requested.
    let other = json!({"choices": [
        {"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"},
        {"index": 1, "delta": {"content": "hi"}, "finish_reason": "stop"}]});
    assert_eq!(openai(&events(&[other])).unwrap().text, "hello");
}

#[test]
fn prov_1_usage_is_counted_under_all_names_and_never_lowered() {
    let said = chunk(&json!({"content": "hello"}), &json!("stop"));
    for usage in [
        json!({"input_tokens": 10, "output_tokens": 5}),
        json!({"prompt_tokens": "10", "completion_tokens": 5.0}),
    ] {
        let mut said = said.clone();
        said["usage"] = usage;
        let empty = json!({"choices": [], "usage": {}});
        assert_eq!(openai(&events(&[said, empty])).unwrap().usage, (10, 0, 5));
    }
    let parts = json!({"candidates": [{"content": {"parts": [{"text": "hello"}]},
        "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}});
    let empty = json!({"candidates": [], "usageMetadata": {}});
    assert_eq!(google(&events(&[parts, empty])).unwrap().usage, (10, 0, 5));
    for (first, last) in [(10, 0), (0, 10)] {
        let body = events(&[
            json!({"type": "message_start", "message": {"usage":
                {"input_tokens": first, "output_tokens": 1}}}),
            json!({"type": "content_block_delta", "delta": {"text": "hello"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": last, "output_tokens": 5}}),
            json!({"type": "message_stop"}),
        ]);
        assert_eq!(anthropic(&body).unwrap().usage, (10, 0, 5));
    }
}

#[test]
fn prov_1_anthropics_finish_reason_ends_a_stream_without_an_end_event() {
    let all = [
        json!({"type": "content_block_start", "index": 0, "content_block":
            {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "tool_use", "id": "a", "name": "t", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": "{\"n\":1}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
    ];
    let reply = anthropic(&events(&all)).unwrap();
    assert_eq!(reply.calls, [("t".to_owned(), json!({"n": 1}))]);
    assert_eq!(reply.thought, "hm");
    let cut = anthropic(&events(&all[..4])).unwrap_err();
    assert!(cut.contains("broke off"), "{cut}");
}

#[test]
fn prov_1_an_error_without_a_type_ends_anthropics_stream() {
    for (event, expected) in [
        (
            json!({"error": {"message": "the GPU fell off"}}),
            "the GPU fell off",
        ),
        (json!({"error": "the GPU fell off"}), "the GPU fell off"),
        (
            json!({"type": "error", "error": {"type": "invalid_request_error",
                "message": "text content blocks must be non-empty"}}),
            "Invalid",
        ),
        (
            json!({"type": "error", "error": {"type": "request_too_large", "message": "x"}}),
            "TooLarge",
        ),
    ] {
        let found = anthropic(&events(std::slice::from_ref(&event))).unwrap_err();
        assert!(found.contains(expected), "{event}: {found}");
    }
}
