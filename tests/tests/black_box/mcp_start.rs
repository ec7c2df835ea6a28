//! A slow start of an MCP server delays no step, and the server's tools appear when it is ready
//! (`PROV-1`).

use goondan_tests::provider::{
    Provider, ProviderResponse, ReceivedRequest, openai_calling, openai_saying,
};
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::json;

use crate::conversation::{check, result_text, shape};

/// A server that answers nothing until the project has the file `go`.
const SERVER: &str = r#"
import json, os, sys, time
while not os.path.exists("go"):
    time.sleep(0.05)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "box", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "fine", "description": "d", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "ran " + asked["params"]["name"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

const WAIT: &str = "box__wait_until_ready";

/// An agent whose only tools are those of the server.
fn home(provider: &Provider) -> Home {
    let home = Home::without_project();
    home.write("project/box.py", SERVER);
    home.write(
        "project/goondan.yaml",
        &format!(
            r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec: {{provider: openai, model: big-1, endpoint: "{}", apiKey: {{value: sk-x}}}}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: box}}
spec: {{builtin: mcp}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/hosted}}, tools: [Tool/box]}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: box}}
spec:
  connectorRef: {{kind: Connector, name: mcp, package: "@goondan/base"}}
  config: {{command: [python3, box.py], env: {{HOME: {}}}}}
"#,
            provider.endpoint(),
            home.path().display()
        ),
    );
    home
}

fn saying(word: &str) -> ProviderResponse {
    ProviderResponse::stream(&openai_saying(&[word]))
}

fn calling(tool: &str) -> ProviderResponse {
    ProviderResponse::stream(&openai_calling(tool, &json!({})))
}

fn offered(received: &ReceivedRequest) -> Vec<String> {
    let tools = received.body["tools"].as_array().into_iter().flatten();
    let names = tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// True if `gdn ps` shows the connection with this readiness.
fn is_server(home: &Home, readiness: &str) -> bool {
    let ran = home.gdn(&["--json", "ps"]);
    // Before the workspace is open, the command fails.
    ran.code == 0
        && ran.json()["processes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| {
                it["role"] == "connector" && it["name"] == "box" && it["readiness"] == readiness
            })
}

#[test]
fn prov_1_a_starting_mcp_server_delays_no_step() {
    if !needs::program("python3") {
        return;
    }
    let provider = Provider::start(|received| match received.number {
        0 => saying("Hello."),
        1 => calling("box__fine"),
        _ => saying("Done."),
    });
    let home = home(&provider);
    let daemon = Daemon::start(&home);
    let starting = home.start_gdn(&["run"]);
    wait_until("the server starts", || is_server(&home, "starting"));

    let ran = home.gdn(&["send", "--instance", "a", "Hi."]).exits(0);
    assert_eq!(ran.stdout, "Hello.\n");
    ran.tells(&["warning  the tools of connection `box`"]);
    assert!(is_server(&home, "starting"), "the turn did not wait for it");
    let trace = home.gdn_json(&["trace"]);
    let warning = trace["spans"][0]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("connection `box` is starting"), "{trace}");
    // The model gets the reason, and a tool that waits.
    let asked = provider.received().remove(0);
    assert_eq!(offered(&asked), [WAIT]);
    let prompt = asked.body["messages"][0].to_string();
    for words in ["connection `box` is starting", WAIT] {
        assert!(prompt.contains(words), "{words}: {prompt}");
    }

    home.write("project/go", "");
    wait_until("the server is ready", || is_server(&home, "ready"));
    let ran = home.gdn(&["send", "--instance", "a", "Go."]).exits(0);
    assert_eq!(ran.stdout, "Done.\n");
    assert!(!ran.stderr.contains("warning"), "{ran:?}");
    assert_eq!(offered(&provider.received()[1]), ["box__fine"]);
    let messages = home.history("a");
    check(&messages);
    assert_eq!(shape(&messages), "uauata");
    assert_eq!(result_text(&messages[4]), "ran fine");
    drop(starting.wait());
    daemon.stop().check(false);
}

#[test]
fn prov_1_a_turn_that_needs_a_starting_mcp_server_waits_for_it() {
    if !needs::program("python3") {
        return;
    }
    let provider = Provider::start(|received| match received.number {
        0 => calling(WAIT),
        1 => calling("box__fine"),
        _ => saying("Done."),
    });
    let home = home(&provider);
    let daemon = Daemon::start(&home);
    let starting = home.start_gdn(&["run"]);
    wait_until("the server starts", || is_server(&home, "starting"));
    let sending = home.start_gdn(&["send", "--instance", "a", "Do it."]);
    wait_until("`gdn ps` shows what the agent waits for", || {
        let agent = home.ps_agent("a");
        agent.is_some_and(|agent| agent["detail"] == "waits for connection `box` to be ready")
    });
    home.write("project/go", "");
    assert_eq!(sending.wait().exits(0).stdout, "Done.\n");
    let messages = home.history("a");
    check(&messages);
    assert_eq!(shape(&messages), "uatata");
    assert_eq!(
        result_text(&messages[2]),
        "connection `box` is ready; its tools: `box__fine`"
    );
    assert_eq!(result_text(&messages[4]), "ran fine");
    assert_eq!(offered(&provider.received()[1]), ["box__fine"]);
    drop(starting.wait());
    daemon.stop().check(false);
}
