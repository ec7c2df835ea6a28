//! The extension `tool-search`: a model is offered only the tools it searched for.

use std::collections::BTreeSet;

use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{
    OPENAI_DONE, Provider, ProviderResponse, ReceivedRequest, openai, openai_delta, openai_saying,
};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, result_text, shape};

/// An agent with several tools, of which two are offered.
fn project(provider: &Provider) -> String {
    let endpoint = provider.endpoint();
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {endpoint}
  apiKey: {{value: sk-x}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  tools:
    - {{kind: Tool, name: bash, package: "@goondan/base"}}
    - {{kind: Tool, name: file-system, package: "@goondan/base"}}
    - {{kind: Tool, name: text-transform, package: "@goondan/base"}}
    - {{kind: Tool, name: wait, package: "@goondan/base"}}
  extensions:
    - ref: {{kind: Extension, name: tool-search, package: "@goondan/base"}}
      config: {{maxResults: 2, alwaysOffered: [wait__for]}}
"#
    )
}

fn calling(tool: &str, args: &Value) -> ProviderResponse {
    let call = json!({"tool_calls": [{"index": 0, "id": format!("c-{tool}"), "type": "function",
        "function": {"name": tool, "arguments": args.to_string()}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    ProviderResponse::stream(&(openai(&[openai_delta(&call), end]) + OPENAI_DONE))
}

fn offered(received: &ReceivedRequest) -> BTreeSet<String> {
    let tools = received.body["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["function"]["name"].as_str());
    names.map(|name| name.unwrap().to_owned()).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn ext_2_tool_is_offered_once_found_also_in_another_process() {
    let provider = Provider::start(|received| match received.number {
        // Tools that are not offered cannot be called with any input.
        0 => calling("file-system__read", &json!({"pfad": "x.txt"})),
        1 => calling("tool-search__find", &json!({"query": "count characters"})),
        2 => calling("text-transform__count", &json!({"text": "abc"})),
        _ => ProviderResponse::stream(&openai_saying(&["Done."])),
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "How long is it?"), "Done.");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uatatata");
    assert_eq!(
        result_text(&messages[2]),
        "E_TOOL_NOT_IN_CATALOG: `file-system__read` is not among the tools you are offered; look for \
         it with `tool-search__find` first"
    );
    let found: Value = serde_json::from_str(result_text(&messages[4])).unwrap();
    assert_eq!(found["tools"][0]["name"], "text-transform__count");
    assert!(result_text(&messages[6]).contains("\"characters\":3"));

    let first = names(&["tool-search__find", "wait__for"]);
    let asked = provider.received();
    let seen: Vec<BTreeSet<String>> = asked.iter().map(offered).collect();
    assert_eq!(seen[..2], [first.clone(), first.clone()]);
    let found = found["tools"].as_array().unwrap().iter();
    let found = found.map(|tool| tool["name"].as_str().unwrap().to_owned());
    let widened: BTreeSet<String> = first.iter().cloned().chain(found).collect();
    assert!(widened.len() <= 4, "at most two were found: {widened:?}");
    assert_eq!(seen[2..], [widened.clone(), widened.clone()]);

    let running = home.running(AGENT);
    processes::signal(running[0].pid, Signal::SIGKILL);
    wait_until("it is gone", || home.running(AGENT).is_empty());
    assert_eq!(home.ask("main", "And now?"), "Done.");
    // Another conversation has not searched for tools.
    assert_eq!(home.ask("other", "And you?"), "Done.");
    let asked = provider.received();
    assert_eq!(offered(&asked[4]), widened);
    assert_eq!(offered(&asked[5]), first);
    drop(daemon.stop());

    let _daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "Still?"), "Done.");
    assert_eq!(offered(&provider.received()[6]), widened);
}

#[test]
fn tool_found_before_a_crash_in_the_turn_is_offered_after_it() {
    let provider = Provider::start(|received| match received.number {
        0 => calling("tool-search__find", &json!({"query": "bash__exec"})),
        1 => calling("bash__exec", &json!({"command": "sleep 600"})),
        _ => ProviderResponse::stream(&openai_saying(&["Done."])),
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "Go."]);
    // Called, not only requested: a command whose call may not have started is started again.
    wait_until("the command runs", || {
        daemon.log().saying("tool.called").len() == 2
    });
    let pid = home.running(AGENT)[0].pid;
    processes::signal(pid, Signal::SIGKILL);
    assert_eq!(asking.wait().exits(0).stdout, "Done.\n");
    let messages = home.history("main");
    check(&messages);
    let last = provider.received().len() - 1;
    assert!(offered(&provider.received()[last]).contains("bash__exec"));
    drop(daemon.stop());
}
