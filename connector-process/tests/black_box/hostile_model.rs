//! Goal: against any server in place of a model, the connector stays small and fast, and reports
//! the response it got.
//!
//! Method: the real binary sends requests to servers on the loopback that break every rule, one at
//! a time, and its memory is measured afterwards.

use goondan_protocol::call::CallErrorCode;
use goondan_tests::provider::{
    self, OPENAI_DONE, Provider, ProviderResponse, ResponseEnd, anthropic_saying, openai_delta,
    openai_saying,
};
use serde_json::{Value, json};

use crate::model::{KEY, Model};

/// Maximum memory of the connector in these tests, in bytes.
const MEMORY_MAX: u64 = 150 * 1024 * 1024;

fn calling(index: u64) -> Value {
    openai_delta(
        &json!({"tool_calls": [{"index": index, "id": format!("c{index}"),
        "type": "function", "function": {"name": "t", "arguments": "{}"}}]}),
    )
}

fn stopped(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

#[test]
fn sec_8_a_tool_calls_number_is_no_size() {
    let events = [
        calling(6_000_000),
        calling(4_000_000_000),
        stopped("tool_calls"),
    ];
    let events = provider::openai(&events) + OPENAI_DONE;
    let provider = Provider::start(move |_| ProviderResponse::stream(&events));
    let mut model = Model::at(&provider, "openai");
    let calls = model.hi().content().tool_calls();
    let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["c6000000", "c4000000000"]);
    let memory = model.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}

#[test]
fn sec_8_reply_stops_at_the_first_call_over_the_limit() {
    let events: Vec<Value> = (0..5_000).map(calling).collect();
    // It would continue forever if its output were read.
    let openai = ProviderResponse::stream(&provider::openai(&events)).ending(ResponseEnd::Silent);
    let begun = |index: u64| {
        json!({"type": "content_block_start", "index": index, "content_block":
            {"type": "tool_use", "id": format!("c{index}"), "name": "t", "input": {}}})
    };
    let events: Vec<Value> = (0..5_000).map(begun).collect();
    let anthropic =
        ProviderResponse::stream(&provider::anthropic(&events)).ending(ResponseEnd::Silent);
    let parts: Vec<Value> = (0..5_000)
        .map(|_| json!({"functionCall": {"name": "t", "args": {}}}))
        .collect();
    let events = [json!({"candidates": [{"content": {"parts": parts}}]})];
    let google = ProviderResponse::stream(&provider::google(&events)).ending(ResponseEnd::Silent);
    for (kind, answer) in [
        ("openai", openai),
        ("anthropic", anthropic),
        ("google", google),
    ] {
        let provider = Provider::start(move |_| answer.clone());
        let mut model = Model::at(&provider, kind);
        let made = model.hi();
        let error = made.error();
        assert_eq!(
            (error.code, error.retryable),
            (CallErrorCode::Internal, false)
        );
        assert!(
            error.message.contains("more than 64 tools"),
            "{kind}: {error:?}"
        );
    }
}

#[test]
fn sec_8_endless_stream_is_stopped_by_length_and_by_time() {
    // Any repetition: words, thoughts, arguments, one line, or nothing at all.
    let word = "x".repeat(60_000);
    let endless: &[(&str, Vec<u8>)] = &[
        (
            "words",
            provider::openai(&[openai_delta(&json!({"content": word}))]).into_bytes(),
        ),
        (
            "arguments",
            provider::openai(&[openai_delta(&json!({"tool_calls": [{"index": 0,
            "function": {"name": "t", "arguments": word}}]}))])
            .into_bytes(),
        ),
        (
            "refusals",
            provider::openai(&[openai_delta(&json!({"refusal": word}))]).into_bytes(),
        ),
        ("one line", word.clone().into_bytes()),
        ("one event", format!("data: {word}\n").into_bytes()),
    ];
    for (what, part) in endless {
        let part = part.clone();
        let provider = Provider::start(move |_| {
            ProviderResponse::stream("data: {\"choices\": []}\n\n").repeating(&part)
        });
        let mut model = Model::at(&provider, "openai");
        let made = model.hi();
        let error = made.error();
        assert_eq!(
            (error.code, error.retryable),
            (CallErrorCode::Internal, false),
            "{what}"
        );
        assert!(error.message.contains("bytes"), "{what}: {error:?}");
        let memory = model.peak_memory();
        assert!(memory < MEMORY_MAX, "{what}: {memory} bytes");
    }
    // Keep-alives are not a reply.
    for part in [
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        ": still here\n",
        "\n",
    ] {
        let provider = Provider::start(move |_| {
            ProviderResponse::stream("").repeating_slowly(part.as_bytes())
        });
        let mut model = Model::with(&json!({
            "name": "m", "provider": "anthropic", "model": "big-1", "endpoint": provider.endpoint(),
            "timeouts": {"connectMs": 10_000, "firstByteMs": 60_000, "stallMs": 60_000, "totalMs": 300},
        }));
        let made = model.hi();
        let error = made.error();
        assert_eq!(
            (error.code, error.retryable),
            (CallErrorCode::TimedOut, false),
            "{part:?}"
        );
        assert!(error.message.contains("300 ms"), "{error:?}");
        let suggestion = error.suggestion.as_deref().unwrap_or_default();
        assert!(suggestion.contains("timeouts.totalMs"), "{suggestion}");
        goondan_tests::wait_for("the server to be hung up on", || {
            (provider.given_up() == 1).then_some(())
        });
    }
}

#[test]
fn an_answer_that_is_a_whole_reply_is_one_in_each_protocol() {
    let openai = json!({"id": "r-1", "model": "big-1-0901", "object": "chat.completion", "choices": [
        {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant",
         "reasoning_content": "Hm.", "content": "Look.", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{\"n\":1}"}}]}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4}});
    let anthropic = json!({"id": "r-1", "model": "big-1-0901", "type": "message", "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "c", "name": "t", "input": {"n": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 9, "output_tokens": 4}});
    let chunk = json!({"responseId": "r-1", "modelVersion": "big-1-0901", "candidates": [{"content":
        {"parts": [{"text": "Hm.", "thought": true}, {"text": "Look."},
            {"functionCall": {"id": "c", "name": "t", "args": {"n": 1}}}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4}});
    for (kind, body) in [
        ("openai", openai),
        ("anthropic", anthropic),
        ("google", json!([chunk])),
        ("google", chunk),
    ] {
        let provider = Provider::start(move |_| ProviderResponse::json(&body));
        let made = Model::at(&provider, kind).hi();
        let content = made.content();
        assert_eq!(content.to_text(), "Look.", "{kind}");
        assert_eq!(content.tool_calls()[0].input, json!({"n": 1}), "{kind}");
        assert_eq!(
            made.streamed(),
            ("Look.".to_owned(), "Hm.".to_owned()),
            "{kind}"
        );
        let metadata = made.answer().metadata;
        assert_eq!(metadata["usage"]["inputTokens"], 9, "{kind}");
        assert_eq!(metadata["usage"]["outputTokens"], 4, "{kind}");
        assert_eq!(metadata["responseId"], "r-1", "{kind}");
        assert_eq!(metadata["responseModel"], "big-1-0901", "{kind}");
    }
}

#[test]
fn error_in_place_of_reply_is_quoted_and_retried_if_transient() {
    let said = |kind: &str| json!({"error": {"message": "the GPU fell off", "type": kind}});
    for (body, code, retryable) in [
        (said("invalid_request_error"), CallErrorCode::Invalid, false),
        (said("overloaded_error"), CallErrorCode::Overloaded, true),
        (
            said("rate_limit_exceeded"),
            CallErrorCode::RateLimited,
            true,
        ),
        (
            said("authentication_error"),
            CallErrorCode::Unauthorized,
            false,
        ),
        (
            json!({"error": {"message": "the GPU fell off", "code": 429}}),
            CallErrorCode::RateLimited,
            true,
        ),
        (
            json!([{"error": {"message": "the GPU fell off", "code": 403}}]),
            CallErrorCode::Unauthorized,
            false,
        ),
        (
            json!({"error": format!("the GPU fell off for {KEY}")}),
            CallErrorCode::Invalid,
            false,
        ),
    ] {
        for kind in ["openai", "anthropic", "google"] {
            let body = body.clone();
            let answer = body.clone();
            let provider = Provider::start(move |_| ProviderResponse::json(&answer));
            let made = Model::at(&provider, kind).hi();
            let error = made.error();
            assert_eq!(
                (error.code, error.retryable),
                (code, retryable),
                "{kind} {body}: {error:?}"
            );
            assert!(
                error.message.contains("the GPU fell off"),
                "{kind} {body}: {error:?}"
            );
            assert!(!error.message.contains(KEY), "{error:?}");
        }
    }
}

#[test]
fn response_that_is_not_a_reply_is_described_and_not_retried() {
    let of_type = |kind: &str, body: &str| {
        let mut answer = ProviderResponse::stream(body);
        answer.headers = vec![("content-type", kind.to_owned())];
        answer
    };
    let html = "<!doctype html><title>Sign in</title>";
    for (answer, told) in [
        (
            of_type("text/html; charset=utf-8", html),
            ["text/html", "Sign in"],
        ),
        (
            of_type("text/event-stream", html),
            ["text/event-stream", "Sign in"],
        ),
        (
            of_type("text/plain", "hello there"),
            ["text/plain", "hello there"],
        ),
        (
            of_type("application/json", "{\"models\": []}"),
            ["application/json", "models"],
        ),
        (
            of_type("application/json", "{\"choices\": nonsense"),
            ["application/json", "nonsense"],
        ),
        (
            of_type("text/event-stream", ""),
            ["text/event-stream", "it is empty"],
        ),
        (
            of_type("text/event-stream", "data: hello\n\n"),
            ["text/event-stream", "hello"],
        ),
        (
            of_type("text/event-stream", "data: {\"type\": \"other\"}\n\n"),
            ["text/event-stream", "other"],
        ),
    ] {
        let shown = format!("{answer:?}");
        for kind in ["openai", "anthropic", "google"] {
            let answer = answer.clone();
            let provider = Provider::start(move |_| answer.clone());
            let made = Model::at(&provider, kind).hi();
            let error = made.error();
            assert_eq!(
                (error.code, error.retryable),
                (CallErrorCode::Internal, false),
                "{kind}: {shown}: {error:?}"
            );
            for word in told {
                assert!(error.message.contains(word), "{kind}: {word}: {error:?}");
            }
            let suggestion = error.suggestion.as_deref().unwrap_or_default();
            assert!(
                suggestion.contains("`endpoint`") && suggestion.contains("`provider`"),
                "{suggestion}"
            );
        }
    }
    // Replies in the other provider's protocol.
    for (kind, events) in [
        ("anthropic", openai_saying(&["Hi."])),
        ("google", anthropic_saying("Hi.")),
    ] {
        let provider = Provider::start(move |_| ProviderResponse::stream(&events));
        let made = Model::at(&provider, kind).hi();
        assert_eq!(
            made.error().code,
            CallErrorCode::Internal,
            "{kind}: {:?}",
            made.error()
        );
    }
}

#[test]
fn reply_with_finish_reason_is_complete_without_the_done_marker() {
    let events = openai_saying(&["Hello."]).replace(OPENAI_DONE, "");
    let provider = Provider::start(move |_| ProviderResponse::stream(&events));
    let made = Model::at(&provider, "openai").hi();
    assert_eq!(made.content().to_text(), "Hello.");
}

#[test]
fn model_refusal_is_an_error_with_its_text() {
    let stopped_by = |reason: &str, delta: Value| {
        let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}});
        provider::openai(&[openai_delta(&delta), stop, usage]) + OPENAI_DONE
    };
    let anthropic = anthropic_saying("I will not.").replace("end_turn", "refusal");
    let google = |chunk: Value| provider::google(&[chunk]);
    let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 4});
    for (kind, events, told) in [
        (
            "openai",
            stopped_by("stop", json!({"refusal": "I will not."})),
            "I will not.",
        ),
        (
            "openai",
            stopped_by("content_filter", json!({"content": "I wi"})),
            "content_filter",
        ),
        ("anthropic", anthropic, "I will not."),
        (
            "google",
            google(
                json!({"candidates": [{"content": {"parts": [{"text": "I wi"}]},
            "finishReason": "PROHIBITED_CONTENT"}], "usageMetadata": usage}),
            ),
            "PROHIBITED_CONTENT",
        ),
        (
            "google",
            google(json!({"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": usage})),
            "OTHER",
        ),
    ] {
        let provider = Provider::start(move |_| ProviderResponse::stream(&events));
        let made = Model::at(&provider, kind).hi();
        let error = made.error();
        assert_eq!(
            (error.code, error.retryable),
            (CallErrorCode::Refused, false),
            "{kind}: {error:?}"
        );
        assert!(error.message.contains(told), "{kind}: {error:?}");
        assert!(
            error
                .usage
                .as_ref()
                .is_some_and(|usage| usage.output_tokens > 0),
            "{kind}: {error:?}"
        );
    }
    let whole = json!({"choices": [{"finish_reason": "stop", "message": {"content": null,
        "refusal": "I will not."}}]});
    let provider = Provider::start(move |_| ProviderResponse::json(&whole));
    let made = Model::at(&provider, "openai").hi();
    assert!(
        made.error().message.contains("I will not."),
        "{:?}",
        made.error()
    );
}

#[test]
fn an_error_of_any_length_is_read_as_far_as_it_is_quoted() {
    let provider = Provider::start(move |_| {
        let mut answer = ProviderResponse::error(500, &json!({}));
        answer.chunks = Vec::new();
        answer.repeating(&[b'x'; 60_000])
    });
    let mut model = Model::at(&provider, "openai");
    let made = model.hi();
    assert_eq!(made.error().code, CallErrorCode::Overloaded);
    assert!(made.error().message.len() < 2_000);
    let memory = model.peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}
