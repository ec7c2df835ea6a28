//! The result of `gdn init` runs immediately, for every template (`ROOT-3`).

use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, Home, RunningProgram};
use goondan_tests::provider::{Provider, ProviderResponse, anthropic, anthropic_saying};
use serde_json::json;

/// Creates a project from a template and starts it.
fn begin(template: &str) -> Home {
    let home = Home::without_project();
    home.gdn(&["init", "--template", template, "--no-git", "."])
        .exits(0);
    home.gdn(&["run"]).exits(0);
    home
}

/// Asks an agent and returns its answer.
#[track_caller]
fn ask(home: &Home, agent: &str, text: &str) -> String {
    home.gdn(&["send", "--agent", agent, text]).exits(0).stdout
}

#[test]
fn root_3_the_default_project_runs_a_tool_and_remembers() {
    let home = begin("default");
    let answer = home.ask("main", "run echo it works");
    assert!(answer.contains("it works"), "{answer}");
    home.ask("main", "my name is Ada");
    assert!(home.ask("main", "who am I?").contains("You are Ada"));
    let answer = home.ask("other", "my name is 에이다.");
    assert!(answer.contains("Nice to meet you, 에이다."), "{answer}");
    assert!(home.ask("other", "who am I?").contains("You are 에이다;"));
}

#[test]
fn root_3_agents_of_the_multi_agent_template_each_do_their_part() {
    let home = begin("multi-agent");
    let asked = ask(&home, "desk", "which files are there?");
    assert!(asked.contains("goondan.yaml"), "{asked}");
    let asked = ask(&home, "desk", "run echo asked for by the desk");
    assert!(asked.contains("asked for by the desk"), "{asked}");
    let listed = ask(&home, "librarian", "list files");
    assert!(listed.contains("goondan.yaml"), "{listed}");
    let read = ask(&home, "librarian", "read prompts/desk.md");
    assert!(read.contains("You are the front desk"), "{read}");
    assert!(ask(&home, "operator", "run echo it works").contains("it works"));
}

#[test]
fn root_3_the_tools_of_the_package_project_can_be_tried() {
    let home = begin("package");
    assert!(home.ask("main", "try look").contains("goondan.yaml"));
    assert!(home.ask("main", "try shell").contains("It works."));
}

#[test]
fn root_3_the_minimal_project_answers() {
    let home = begin("minimal");
    assert_eq!(home.ask("main", "my name is Ada"), "Hello, Ada.");
}

/// The template with a real model, with a fake of its provider: the key, a tool, and the answer.
#[test]
fn root_3_real_model_template_uses_its_key_and_calls_a_tool() {
    let provider = Provider::start(|received| {
        ProviderResponse::stream(&match received.number {
            0 => calling("bash__exec", r#"{"command": "echo the date is known"}"#),
            _ => anthropic_saying("It is known."),
        })
    });
    let home = Home::without_project();
    home.gdn(&["init", "--template", "assistant", "--no-git", "."])
        .exits(0)
        .tells(&["gdn secret set anthropic apiKey --for ."]);
    let made = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let endpoint = format!(
        "  provider: anthropic\n  endpoint: {}\n",
        provider.endpoint()
    );
    let there = made.replacen("  provider: anthropic\n", &endpoint, 1);
    assert_ne!(there, made);
    home.write("project/goondan.yaml", &there);

    let set = ["secret", "set", "anthropic", "apiKey", "--for", "."];
    let mut command = home.command(&bin(GDN), &set);
    command.stdin(Stdio::piped());
    let mut setting = RunningProgram::start(command);
    setting.say("sk-ant-the-key");
    setting.wait().exits(0);
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("main", "What is the date?"), "It is known.");

    let [first, second] = &provider.received()[..] else {
        panic!("{:?}", provider.received());
    };
    assert_eq!(first.header("x-api-key"), Some("sk-ant-the-key"));
    assert!(first.body["model"].as_str().unwrap().starts_with("claude-"));
    let asked = second.body["messages"].to_string();
    assert!(asked.contains("the date is known"), "{asked}");
    home.gdn(&["shutdown"]).exits(0);
}

/// A reply of Anthropic's that calls a tool.
fn calling(tool: &str, input: &str) -> String {
    anthropic(&[
        json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0,
               "content_block": {"type": "tool_use", "id": "call-1", "name": tool, "input": {}}}),
        json!({"type": "content_block_delta", "index": 0,
               "delta": {"type": "input_json_delta", "partial_json": input}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ])
}
