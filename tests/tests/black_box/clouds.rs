//! Goal: an agent works with a model on a cloud platform, and with the Responses API, as
//! `docs/models.md` configures them (PROV-1).
//!
//! Method: the real binaries, and a local provider that speaks the platform's protocol.

use goondan_tests::provider::{
    Provider, ProviderResponse, anthropic_events, anthropic_saying, bedrock, google_saying,
    openai_saying, responses, responses_saying,
};
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::conversation::{check, shape, text};

/// A project whose model has these fields.
fn project(fields: &str) -> String {
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
{fields}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  tools:
    - {{kind: Tool, name: bash, package: "@goondan/base"}}
"#
    )
}

#[test]
fn prov_1_an_agent_works_with_each_cloud_platform() {
    let provider = Provider::start(|received| match received.path.as_str() {
        path if path.starts_with("/model/") => {
            ProviderResponse::aws_stream(&bedrock(&anthropic_events("Yes."))).in_parts_of(17)
        }
        path if path.contains("/publishers/anthropic/") => {
            ProviderResponse::stream(&anthropic_saying("Yes."))
        }
        path if path.contains("/publishers/google/") => {
            ProviderResponse::stream(&google_saying("Yes."))
        }
        path if path.contains("/responses") => ProviderResponse::stream(&responses_saying("Yes.")),
        _ => ProviderResponse::stream(&openai_saying(&["Yes."])),
    });
    let root = provider.root();
    let vertex = "vertex: {project: shop, location: us-east5}";
    let keys = "accessKeyId: {value: AKIDEXAMPLE}, secretAccessKey: {value: sk-never-shown}";
    for (number, (fields, path, header)) in [
        (
            format!(
                "  provider: openai\n  model: gpt-5\n  endpoint: {root}\n  apiKey: {{value: azure}}\n  \
                 azure: {{apiVersion: 2024-10-21}}"
            ),
            "/openai/deployments/gpt-5/chat/completions?api-version=2024-10-21",
            "api-key",
        ),
        (
            format!(
                "  provider: openai\n  api: responses\n  model: gpt-5\n  endpoint: {root}/openai/v1\n  \
                 apiKey: {{value: azure}}\n  azure: {{}}"
            ),
            "/openai/v1/responses",
            "api-key",
        ),
        (
            format!(
                "  provider: anthropic\n  model: claude-sonnet-4-5\n  endpoint: {root}/v1\n  \
                 apiKey: {{value: token}}\n  {vertex}"
            ),
            "/v1/projects/shop/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5:streamRawPredict",
            "authorization",
        ),
        (
            format!(
                "  provider: google\n  model: gemini-2.5-pro\n  endpoint: {root}/v1\n  \
                 apiKey: {{value: token}}\n  {vertex}"
            ),
            "/v1/projects/shop/locations/us-east5/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            "authorization",
        ),
        (
            format!(
                "  provider: anthropic\n  model: anthropic.claude-sonnet-4-5-v1:0\n  endpoint: {root}\n  \
                 bedrock: {{region: us-east-1, {keys}}}"
            ),
            "/model/anthropic.claude-sonnet-4-5-v1%3A0/invoke-with-response-stream",
            "x-amz-date",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let home = Home::new(&project(&fields));
        let daemon = Daemon::serving(&home);
        assert_eq!(home.ask("main", "Hi."), "Yes.", "{fields}");
        let received = &provider.received()[number];
        assert_eq!(received.path, path);
        assert!(received.header(header).is_some(), "{:?}", received.headers);
        let messages = home.history("main");
        check(&messages);
        assert!(messages[1]["metadata"]["usage"].is_object(), "{messages:?}");
        let log = format!("{:?}", daemon.log().lines());
        assert!(!log.contains("sk-never-shown"), "a secret is in the log");
        daemon.stop().check(false);
    }
}

#[test]
fn prov_1_encrypted_reasoning_survives_a_tool_call_and_restart() {
    let items = |items: &[Value]| {
        let mut events = Vec::new();
        for (index, item) in items.iter().enumerate() {
            events.push(
                json!({"type": "response.output_item.done", "output_index": index, "item": item}),
            );
        }
        events.push(json!({"type": "response.completed", "response": {"id": "r",
            "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 4}}}));
        ProviderResponse::stream(&responses(&events))
    };
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed",
        "summary": [{"type": "summary_text", "text": "A command."}]});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c1",
        "name": "bash__exec", "arguments": r#"{"command": "true"}"#});
    let first = [reasoning, call];
    let provider = Provider::start(move |received| match received.number {
        0 => items(&first),
        _ => ProviderResponse::stream(&responses_saying("Done.")),
    });
    let fields = format!(
        "  provider: openai\n  api: responses\n  model: gpt-5.1\n  endpoint: {}\n  params: \
         {{reasoningEffort: low}}",
        provider.endpoint()
    );
    let home = Home::new(&project(&fields));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "Hi."), "Done.");
    daemon.kill();
    let _daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "Again."), "Done.");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uataua");
    assert_eq!(text(&messages[3]), "Done.");
    let sealed = json!({"type": "reasoning", "encrypted_content": "sealed",
        "summary": [{"type": "summary_text", "text": "A command."}]});
    for received in &provider.received()[1..] {
        let input = received.body["input"].as_array().unwrap();
        let at = input.iter().position(|item| *item == sealed);
        let behind = &input[at.expect("the reasoning is sent back") + 1];
        assert_eq!(behind["call_id"], "c1");
    }
}
