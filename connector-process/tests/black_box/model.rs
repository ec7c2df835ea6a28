//! Goal: a model's connector speaks each provider's protocol, and every provider failure has its
//! own clear error.
//!
//! Method: the real binary between the test's orchestrator and a provider on the loopback that
//! sends the test's responses and stops at any point.

use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOrder, CallOutcome, Caller, ModelAnswer, ModelPiece,
};
use goondan_protocol::ipc::ToOrchestrator;
use goondan_protocol::message::MessageContent;
use goondan_protocol::trace::TraceContext;
use goondan_tests::processes;
use goondan_tests::provider::{
    self, OPENAI_DONE, Provider, ProviderResponse, ResponseEnd, anthropic_saying, openai_delta,
    openai_saying,
};
use serde_json::{Value, json};

use crate::orchestrator::Orchestrator;

pub(crate) const KEY: &str = "sk-very-secret";

/// A connector of the model at a provider.
pub(crate) struct Model {
    pub(crate) orchestrator: Orchestrator,
    next_call: u64,
}

/// A finished call: its pieces and its result.
pub(crate) struct FinishedCall {
    pieces: Vec<ModelPiece>,
    outcome: CallOutcome,
}

impl Model {
    pub(crate) fn at(provider: &Provider, kind: &str) -> Self {
        Self::with(&json!({
            "name": "m", "provider": kind, "model": "big-1", "apiKey": KEY,
            "endpoint": provider.endpoint(),
        }))
    }

    pub(crate) fn with(model: &Value) -> Self {
        let mut orchestrator = Orchestrator::start_as_model(model);
        assert!(orchestrator.status().ready);
        Self {
            orchestrator,
            next_call: 0,
        }
    }

    pub(crate) fn begin(&mut self, params: &Value) -> CallId {
        self.begin_in(None, params)
    }

    fn begin_in(&mut self, traceparent: Option<&str>, params: &Value) -> CallId {
        self.next_call += 1;
        let call_id = CallId(self.next_call);
        let order = CallOrder {
            call_id,
            caller: Caller {
                agent: "a".parse().unwrap(),
                instance_key: "k".parse().unwrap(),
            },
            event_id: None,
            method: "complete".to_owned(),
            params: serde_json::value::to_raw_value(params).unwrap(),
            deadline_ms: 60_000,
            again_since: None,
        };
        let trace = traceparent.map(|text| TraceContext::from_traceparent(text).unwrap());
        self.orchestrator.call_in(trace, order);
        call_id
    }

    pub(crate) fn ask(&mut self, params: &Value) -> FinishedCall {
        self.ask_in(None, params)
    }

    /// Sends a request within a trace.
    pub(crate) fn ask_in(&mut self, traceparent: Option<&str>, params: &Value) -> FinishedCall {
        let call_id = self.begin_in(traceparent, params);
        let mut pieces = Vec::new();
        loop {
            match self.orchestrator.receive().1 {
                ToOrchestrator::CallPiece(piece) => {
                    assert_eq!(piece.call_id, call_id);
                    pieces.push(serde_json::from_str(piece.piece.get()).unwrap());
                }
                ToOrchestrator::CallResult(result) => {
                    assert_eq!(result.call_id, call_id);
                    let outcome = result.outcome;
                    return FinishedCall { pieces, outcome };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Peak memory usage of the connector.
    pub(crate) fn peak_memory(&self) -> u64 {
        processes::peak_memory(u32::try_from(self.orchestrator.pid().as_raw()).unwrap())
    }

    pub(crate) fn hi(&mut self) -> FinishedCall {
        self.ask(&json!({"messages": [{"role": "user", "content": "Hi."}]}))
    }
}

impl FinishedCall {
    pub(crate) fn answer(&self) -> ModelAnswer {
        match &self.outcome {
            CallOutcome::Ok(raw) => serde_json::from_str(raw.get()).unwrap(),
            CallOutcome::Error(error) => panic!("{error:?}"),
        }
    }

    pub(crate) fn content(&self) -> MessageContent {
        let content: Value = serde_json::from_str(self.answer().content.get()).unwrap();
        MessageContent::from(content)
    }

    pub(crate) fn error(&self) -> &CallError {
        match &self.outcome {
            CallOutcome::Error(error) => error,
            CallOutcome::Ok(raw) => panic!("{}", raw.get()),
        }
    }

    pub(crate) fn streamed(&self) -> (String, String) {
        let (mut text, mut thought) = (String::new(), String::new());
        for piece in &self.pieces {
            match piece {
                ModelPiece::Text { text: more } => text.push_str(more),
                ModelPiece::Reasoning { text: more } => thought.push_str(more),
                ModelPiece::Again
                | ModelPiece::Instead { .. }
                | ModelPiece::Retry(_)
                | ModelPiece::Consent { .. } => {
                    panic!("nobody made it again")
                }
            }
        }
        (text, thought)
    }
}

/// A conversation with every kind of content that a provider must receive.
fn conversation() -> Value {
    json!({
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "image": "iVBORw0KGgo=", "mediaType": "image/png"},
            ]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool-call", "toolCallId": "c1", "toolName": "eye__look", "input": {"at": 1}},
            ]},
            {"role": "tool", "content": [
                {"type": "tool-result", "toolCallId": "c1", "toolName": "eye__look",
                 "output": {"type": "text", "value": "a cat"}},
            ]},
        ],
        "tools": [{"name": "eye__look", "description": "Looks.",
                   "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}}],
        "params": {"temperature": 0.25, "maxTokens": 77},
    })
}

#[test]
fn anthropic_streams_thoughts_text_and_parallel_calls() {
    let events = provider::anthropic(&[
        json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 11,
            "cache_creation_input_tokens": 2, "cache_read_input_tokens": 30, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "A cat, 고양이."}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Look: "}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "고양이 🐈"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block":
            {"type": "tool_use", "id": "t1", "name": "eye__look", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": "{\"at\""}}),
        json!({"type": "content_block_delta", "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": ": 2}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "content_block_start", "index": 3, "content_block":
            {"type": "tool_use", "id": "t2", "name": "eye__look", "input": {}}}),
        json!({"type": "content_block_stop", "index": 3}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}}),
        json!({"type": "message_stop"}),
    ]);
    // Parts of three bytes split characters and events at every position.
    let answer = ProviderResponse::stream(&events).in_parts_of(3);
    let provider = Provider::start(move |received| {
        if received.number == 0 {
            answer.clone()
        } else {
            ProviderResponse::stream(&anthropic_saying("A cat."))
        }
    });
    let mut model = Model::at(&provider, "anthropic");
    let made = model.ask(&conversation());
    let content = made.content();
    assert_eq!(content.to_text(), "Look: 고양이 🐈");
    let calls = content.tool_calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(
        (calls[0].id.as_str(), &calls[0].input),
        ("t1", &json!({"at": 2}))
    );
    assert_eq!((calls[1].id.as_str(), &calls[1].input), ("t2", &json!({})));
    let streamed = made.streamed();
    assert_eq!(streamed.0, "Look: 고양이 🐈");
    assert_eq!(streamed.1, "A cat, 고양이.");
    let metadata = made.answer().metadata;
    assert_eq!(
        metadata["usage"],
        json!({"inputTokens": 11, "outputTokens": 40, "cacheReadTokens": 30, "cacheWriteTokens": 2})
    );
    assert_eq!(metadata["stopReason"], "tool_use");
    assert_eq!(metadata["reasoning"]["text"], "A cat, 고양이.");

    let asked = &provider.received()[0];
    assert_eq!(asked.path, "/v1/messages");
    assert_eq!(asked.header("x-api-key"), Some(KEY));
    let body = &asked.body;
    assert_eq!(
        (&body["model"], &body["stream"]),
        (&json!("big-1"), &json!(true))
    );
    assert_eq!(
        (&body["max_tokens"], &body["temperature"]),
        (&json!(77), &json!(0.25))
    );
    assert!(body["system"].to_string().contains("Be brief."));
    assert_eq!(body["tools"][0]["name"], "eye__look");
    let messages = body["messages"].to_string();
    for told in ["iVBORw0KGgo=", "tool_use", "\"c1\"", "tool_result", "a cat"] {
        assert!(messages.contains(told), "{told} is missing in {messages}");
    }

    // The model's signed thoughts are sent back with the next request.
    let again = json!({"messages": [
        {"role": "user", "content": "What is this?"},
        {"role": "assistant", "content": content.as_json(), "reasoning": metadata["reasoning"]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "t1", "toolName": "eye__look",
             "output": {"type": "text", "value": "a cat"}},
            {"type": "tool-result", "toolCallId": "t2", "toolName": "eye__look",
             "output": {"type": "error-text", "value": "no light"}},
        ]},
    ]});
    assert_eq!(model.ask(&again).content().to_text(), "A cat.");
    let told = provider.received()[1].body["messages"].to_string();
    assert!(
        told.contains("c2ln") && told.contains("Error: no light"),
        "{told}"
    );
}

#[test]
fn openai_streams_interleaved_call_fragments() {
    let call = |index: u64, fields: Value| {
        let mut call = json!({"index": index});
        call.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        openai_delta(&json!({"tool_calls": [call]}))
    };
    let begun = |id: &str| json!({"id": id, "type": "function", "function": {"name": "eye__look", "arguments": ""}});
    let more = |text: &str| json!({"function": {"arguments": text}});
    let events = provider::openai(&[
        openai_delta(&json!({"role": "assistant", "content": "고양이"})),
        openai_delta(&json!({"reasoning_content": "hm"})),
        call(0, begun("a")),
        call(1, begun("b")),
        call(0, more("{\"at\":")),
        call(1, more("{\"at\":")),
        call(1, more("8}")),
        call(0, more("7}")),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 6,
               "completion_tokens_details": {"reasoning_tokens": 2},
            "prompt_tokens_details": {"cached_tokens": 15}}}),
    ]) + OPENAI_DONE;
    let answer = ProviderResponse::stream(&events).in_parts_of(5);
    let provider = Provider::start(move |_| answer.clone());
    let made = Model::at(&provider, "openai").ask(&conversation());
    let calls = made.content().tool_calls();
    assert_eq!(made.content().to_text(), "고양이");
    let inputs: Vec<_> = calls
        .iter()
        .map(|call| (call.id.as_str(), &call.input))
        .collect();
    assert_eq!(inputs, [("a", &json!({"at": 7})), ("b", &json!({"at": 8}))]);
    let metadata = made.answer().metadata;
    assert_eq!(
        metadata["usage"],
        json!({"inputTokens": 5, "outputTokens": 6, "cacheReadTokens": 15, "cacheWriteTokens": 0,
               "reasoningTokens": 2})
    );
    assert_eq!(metadata["reasoning"]["text"], "hm");
    let asked = &provider.received()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    let bearer = format!("Bearer {KEY}");
    assert_eq!(asked.header("authorization"), Some(bearer.as_str()));
    let messages = asked.body["messages"].to_string();
    for told in ["Be brief.", "iVBORw0KGgo=", "tool_calls", "\"c1\"", "a cat"] {
        assert!(messages.contains(told), "{told} is missing in {messages}");
    }
    assert_eq!(asked.body["stream_options"]["include_usage"], true);
}

#[test]
fn google_is_asked_and_answers_and_its_silence_is_no_end() {
    let part = |parts: Value, finish: Option<&str>| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if let Some(reason) = finish {
            candidate["finishReason"] = json!(reason);
        }
        json!({"candidates": [candidate],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3, "totalTokenCount": 15}})
    };
    let call = |at: u64| json!({"functionCall": {"name": "eye__look", "args": {"at": at}}});
    let events = [
        part(json!([{"text": "고양"}]), None),
        part(json!([{"text": "이"}]), None),
        part(json!([call(1), call(2)]), Some("STOP")),
    ];
    let refused = provider::google(&[part(json!([]), Some("SAFETY"))]);
    let whole = ProviderResponse::stream(&provider::google(&events)).in_parts_of(4);
    let cut = ProviderResponse::stream(&provider::google(&events[..2])).ending(ResponseEnd::Closed);
    let provider = Provider::start(move |received| match received.number {
        0 => whole.clone(),
        1 => cut.clone(),
        _ => ProviderResponse::stream(&refused),
    });
    let mut model = Model::at(&provider, "google");
    let made = model.ask(&conversation());
    assert_eq!(made.content().to_text(), "고양이");
    let calls = made.content().tool_calls();
    assert_eq!(
        (&calls[0].input, &calls[1].input),
        (&json!({"at": 1}), &json!({"at": 2}))
    );
    assert_ne!(calls[0].id, calls[1].id);
    assert_eq!(made.answer().metadata["usage"]["inputTokens"], 12);
    let asked = &provider.received()[0];
    assert_eq!(asked.path, "/v1/models/big-1:streamGenerateContent?alt=sse");
    assert_eq!(asked.header("x-goog-api-key"), Some(KEY));

    let made = model.hi();
    assert_eq!(made.error().code, CallErrorCode::Interrupted);

    // Tokens that a provider reports for a failed reply were used anyway.
    let made = model.hi();
    assert_eq!(made.error().code, CallErrorCode::Refused);
    let taken = made.error().usage.as_deref().copied().unwrap();
    assert_eq!((taken.input_tokens, taken.output_tokens), (12, 3));
}

#[test]
fn a_stream_that_is_cut_is_no_reply() {
    let openai = openai_saying(&["Hel", "lo."]);
    let (half, _) = openai.split_once("lo.").unwrap();
    let anthropic = anthropic_saying("Hello.");
    let (before_end, _) = anthropic.split_once("event: message_delta").unwrap();
    for (kind, events) in [("openai", half), ("anthropic", before_end)] {
        for ending in [ResponseEnd::Closed, ResponseEnd::Whole] {
            let answer = ProviderResponse::stream(events).ending(ending);
            let provider = Provider::start(move |_| answer.clone());
            let made = Model::at(&provider, kind).hi();
            let error = made.error();
            assert_eq!(error.code, CallErrorCode::Interrupted, "{kind}: {error:?}");
            assert!(error.message.contains("broke off"), "{error:?}");
        }
    }
}

#[test]
fn error_inside_a_stream_ends_it_with_the_provider_message() {
    let events = provider::anthropic(&[
        json!({"type": "message_start", "message": {"id": "m"}}),
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ]);
    let provider = Provider::start(move |_| ProviderResponse::stream(&events));
    let made = Model::at(&provider, "anthropic").hi();
    let error = made.error();
    assert_eq!(
        (error.code, error.retryable),
        (CallErrorCode::Overloaded, true)
    );
    assert!(error.message.contains("Overloaded"), "{error:?}");

    let events = provider::openai(&[
        json!({"error": {"message": "the GPU fell off", "type": "server_error"}}),
    ]);
    let provider = Provider::start(move |_| ProviderResponse::stream(&events));
    let made = Model::at(&provider, "openai").hi();
    assert!(
        made.error().message.contains("the GPU fell off"),
        "{:?}",
        made.error()
    );
}

#[test]
fn each_provider_error_has_its_code_and_a_hint() {
    let said = |text: &str| json!({"error": {"message": text, "type": "x"}});
    let quoting = format!("Incorrect API key provided: {KEY}");
    let cases = [
        (
            401,
            said(&quoting),
            CallErrorCode::Unauthorized,
            false,
            "apiKey",
        ),
        (
            404,
            said("model: big-1"),
            CallErrorCode::NotFound,
            false,
            "`model`",
        ),
        (
            400,
            said("prompt is too long: 9 tokens > 8 maximum"),
            CallErrorCode::TooLarge,
            false,
            "new conversation",
        ),
        (
            400,
            json!({"error": {"message": "too long", "code": "context_length_exceeded"}}),
            CallErrorCode::TooLarge,
            false,
            "new conversation",
        ),
        (
            400,
            said("temperature: too hot"),
            CallErrorCode::Invalid,
            false,
            "`params`",
        ),
        (
            429,
            said("slow down"),
            CallErrorCode::RateLimited,
            true,
            "later",
        ),
        (
            429,
            json!({"error": {"message": "pay", "code": "insufficient_quota"}}),
            CallErrorCode::Refused,
            false,
            "balance",
        ),
        (
            529,
            said("Overloaded"),
            CallErrorCode::Overloaded,
            true,
            "later",
        ),
        (500, said("oops"), CallErrorCode::Overloaded, true, "later"),
    ];
    for kind in ["anthropic", "openai", "google"] {
        let answers = cases.clone();
        let provider = Provider::start(move |received| {
            let (status, body, ..) = &answers[received.number];
            ProviderResponse::error(*status, body).with_header("retry-after", "3")
        });
        let mut model = Model::at(&provider, kind);
        for (status, body, code, retryable, advice) in &cases {
            let made = model.hi();
            let error = made.error();
            assert_eq!(
                (error.code, error.retryable),
                (*code, *retryable),
                "{kind} {status} {body}: {error:?}"
            );
            assert!(error.message.contains(&status.to_string()), "{error:?}");
            let suggestion = error.suggestion.as_deref().unwrap_or_default();
            assert!(suggestion.contains(advice), "{kind} {status}: {suggestion}");
            assert_eq!(
                error.retry_after_ms,
                retryable.then_some(3_000),
                "{kind} {status}"
            );
            assert!(!error.message.contains(KEY), "the key is shown: {error:?}");
        }
        model.orchestrator.shutdown();
        let log = model.orchestrator.rest_of_log();
        assert!(!log.contains(KEY), "the key is in the log: {log}");
    }
}

/// A reply that starts and then stays open forever without another word.
fn half_a_reply() -> ProviderResponse {
    let begun = provider::openai(&[openai_delta(&json!({"content": "Hel"}))]);
    ProviderResponse::stream(&begun).ending(ResponseEnd::Silent)
}

#[test]
fn a_provider_that_is_slow_or_not_there_is_given_up() {
    let stalled = half_a_reply();
    let provider = Provider::start(move |_| stalled.clone());
    let mut model = Model::with(&json!({
        "name": "m", "provider": "openai", "model": "big-1", "endpoint": provider.endpoint(),
        "timeouts": {"connectMs": 10_000, "firstByteMs": 60_000, "stallMs": 50},
    }));
    let made = model.hi();
    assert_eq!(made.error().code, CallErrorCode::TimedOut);
    assert!(made.error().message.contains("50 ms"), "{:?}", made.error());

    let gone = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let mut model = Model::with(&json!({
        "name": "m", "provider": "openai", "model": "big-1", "endpoint": format!("http://{gone}/v1"),
    }));
    let made = model.hi();
    let error = made.error();
    assert_eq!(
        (error.code, error.retryable),
        (CallErrorCode::Unavailable, true),
        "{error:?}"
    );
}

#[test]
fn a_call_that_is_given_up_is_given_up_at_the_provider_too() {
    let silent = half_a_reply();
    let provider = Provider::start(move |_| silent.clone());
    let mut model = Model::at(&provider, "openai");
    let call_id = model.begin(&json!({"messages": [{"role": "user", "content": "Hi."}]}));
    goondan_tests::wait_for("the provider to be asked", || {
        (!provider.received().is_empty()).then_some(())
    });
    model.orchestrator.cancel(call_id);
    goondan_tests::wait_for("the provider to be hung up on", || {
        (provider.given_up() == 1).then_some(())
    });
    model.orchestrator.shutdown();
    model.orchestrator.expect_graceful_end();
}

#[test]
fn a_call_under_way_is_finished_before_the_process_ends() {
    let (go, wait) = std::sync::mpsc::channel();
    let provider = Provider::start(move |_| {
        wait.recv().unwrap();
        ProviderResponse::stream(&openai_saying(&["Hello."]))
    });
    let mut model = Model::at(&provider, "openai");
    model.begin(&json!({"messages": [{"role": "user", "content": "Hi."}]}));
    goondan_tests::wait_for("the provider to be asked", || {
        (!provider.received().is_empty()).then_some(())
    });
    model.orchestrator.shutdown();
    go.send(()).unwrap();
    loop {
        match model.orchestrator.receive().1 {
            ToOrchestrator::CallPiece(_) => {}
            ToOrchestrator::CallResult(result) => {
                assert!(matches!(result.outcome, CallOutcome::Ok(_)));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    model.orchestrator.expect_graceful_end();
}
