//! The result of `gdn init` runs immediately, for every template (`ROOT-3`).

use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, Home, RunningProgram};
use goondan_tests::http;
use goondan_tests::provider::{
    Provider, ProviderResponse, anthropic, anthropic_saying, openai_saying,
};
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, wait_for, wait_until};
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
    home.write(
        "project/goondan.yaml",
        &with_endpoint(&made, &provider.endpoint()),
    );

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

/// A project of a template, with a fake of its provider.
fn with_endpoint(made: &str, endpoint: &str) -> String {
    let line = "    provider: anthropic\n";
    let there = made.replacen(line, &format!("{line}    endpoint: {endpoint}\n"), 1);
    assert_ne!(there, made);
    there
}

#[test]
fn root_3_the_assistant_works_on_a_script_and_on_a_local_model() {
    let home = Home::without_project();
    let script = [
        "init",
        "--template",
        "assistant",
        "--model",
        "scripted",
        "--no-git",
        "--run",
    ];
    home.gdn(&[&script[..], &["."]].concat()).exits(0);
    let answer = home.ask("main", "run echo it works");
    assert!(answer.contains("it works"), "{answer}");

    let ollama =
        Provider::start(|_| ProviderResponse::stream(&openai_saying(&["I am ", "local."])));
    let model = [
        "init",
        "--template",
        "assistant",
        "--model",
        "ollama/qwen3:8b",
        "--no-git",
        "--force",
    ];
    home.gdn(&[&model[..], &["."]].concat()).exits(0);
    let made = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let there = made.replace("http://127.0.0.1:11434/v1", &ollama.endpoint());
    assert_ne!(there, made);
    home.write("project/goondan.yaml", &there);
    home.gdn(&["restart"]).exits(0);
    assert_eq!(home.ask("local", "Who are you?"), "I am local.");
    assert_eq!(ollama.received()[0].body["model"], "qwen3:8b");
}

#[test]
fn root_3_two_agents_of_the_template_work_together() {
    let home = begin("two-agents");
    let answer = ask(&home, "writer", "The sky is blue.");
    assert!(
        answer.contains("No objection to: The sky is blue."),
        "{answer}"
    );
}

#[test]
fn root_3_the_webhook_service_answers_requests() {
    let home = begin("webhook");
    let address = wait_for("the webhook listens", || {
        let processes = home.ps();
        let hook = processes.iter().find(|process| process["name"] == "hook")?;
        let detail = hook["detail"].as_str()?;
        let (_, rest) = detail.split_once("listening on ")?;
        let address = rest.split([' ', ',', ';']).next()?;
        let address = address.trim_start_matches("http://");
        address.trim_end_matches('/').parse().ok()
    });
    let body = json!({"text": "my name is Ada", "user": "ada", "id": "1"}).to_string();
    let response = http::post(address, "/", &[], &body).unwrap();
    assert!(
        response.body.contains("Nice to meet you, Ada."),
        "{response:?}"
    );
}

#[test]
fn root_3_the_telegram_bot_answers_only_its_chats() {
    let telegram = Telegram::start();
    let home = Home::without_project();
    let arguments = [
        "init",
        "--template",
        "telegram",
        "--telegram-chat",
        "7",
        "--key",
        "store",
        "--no-git",
        ".",
    ];
    let mut command = home.command(&bin(GDN), &arguments);
    command.env("TELEGRAM_BOT_TOKEN", TOKEN);
    RunningProgram::start(command)
        .wait()
        .exits(0)
        .tells(&["Stored Secret/telegram", "  gdn run\n"]);
    let made = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    assert!(!made.contains(TOKEN), "{made}");
    let endpoint = format!("    config:\n      endpoint: {}\n", telegram.endpoint());
    let there = made.replacen("    config:\n", &endpoint, 1);
    assert_ne!(there, made);
    home.write("project/goondan.yaml", &there);
    home.gdn(&["run"]).exits(0);
    telegram.write(8, "my name is Eve");
    telegram.write(7, "my name is Ada");
    wait_until("the bot answers", || {
        telegram.written_to(7) == ["Nice to meet you, Ada."]
    });
    assert!(telegram.written_to(8).is_empty());
}

/// A program that looks like Claude Code, and changes a file.
const FAKE_CLAUDE: &str = r#"#!/bin/sh
read -r told
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
echo 'echo "Hello, $1!"' > greet.sh
printf '%s\n' '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"Greets by name."}'
"#;

#[test]
fn root_3_the_coding_agent_found_in_path_works_on_a_task() {
    let home = Home::without_project();
    home.write("project/greet.sh", "echo Hello\n");
    home.write_program("bin/claude", FAKE_CLAUDE);
    std::fs::create_dir(home.path().join(".claude")).unwrap();
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{inherited}", home.path().join("bin").display());
    let gdn = |words: &[&str]| {
        let mut command = home.command(&bin(GDN), words);
        command.env("PATH", &path);
        RunningProgram::start(command).wait()
    };
    gdn(&["init", "--template", "coding-task", "--no-git", "."])
        .exits(0)
        .tells(&["gdn task new"]);
    let made = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    assert!(
        made.contains("preset: claude\n      login: ~/.claude\n"),
        "{made}"
    );
    gdn(&["run"]).exits(0);
    let new = ["task", "new", "Greet by name", "--id", "greet", "--start"];
    gdn(&[&new[..], &["--description", "greet.sh takes a name."]].concat()).exits(0);
    wait_until("the change waits for a review", || {
        home.gdn_json(&["task", "show", "greet"])["info"]["status"] == "waiting_review"
    });
    assert_eq!(
        std::fs::read_to_string(home.project().join("greet.sh")).unwrap(),
        "echo Hello\n"
    );
    gdn(&["task", "approve", "greet"]).exits(0);
    wait_until("the task is completed", || {
        home.gdn_json(&["task", "show", "greet"])["info"]["status"] == "completed"
    });
    assert_eq!(
        std::fs::read_to_string(home.project().join("greet.sh")).unwrap(),
        "echo \"Hello, $1!\"\n"
    );
}

#[test]
fn root_3_a_person_is_asked_on_a_terminal_and_the_key_is_stored() {
    let provider = Provider::start(|_| ProviderResponse::stream(&anthropic_saying("Hello.")));
    let home = Home::without_project();
    let daemon = Daemon::start(&home);
    let mut command = home.command(&bin(GDN), &["init", ".", "--no-git"]);
    command.env("ANTHROPIC_API_KEY", "sk-ant-of-the-environment");
    let mut person = Terminal::start(command, 120);
    person.wait_for("What do you want to build?");
    person.wait_for("Number [1]: ");
    person.say("assistant");
    person.wait_for("found ANTHROPIC_API_KEY");
    person.say("");
    person.wait_for("ANTHROPIC_API_KEY is set. Use it for the API key of Anthropic?");
    person.say("1");
    person.wait_for("Run it now? [Y/n] ");
    person.say("n");
    let (code, shown) = person.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Stored Secret/anthropic"), "{shown}");
    assert!(!shown.contains("sk-ant-of"), "{shown}");
    assert!(shown.contains("Next:\n  gdn run\n  gdn chat\n"), "{shown}");

    let made = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    assert!(!made.contains("sk-ant-of"), "{made}");
    home.write(
        "project/goondan.yaml",
        &with_endpoint(&made, &provider.endpoint()),
    );
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("main", "Hi"), "Hello.");
    assert_eq!(
        provider.received()[0].header("x-api-key"),
        Some("sk-ant-of-the-environment")
    );
    drop(daemon);
}

#[test]
fn root_3_a_canceled_dialog_creates_nothing() {
    let home = Home::without_project();
    let command = home.command(&bin(GDN), &["init", "bot"]);
    let mut person = Terminal::start(command, 120);
    person.wait_for("Number [1]: ");
    // Ctrl-D.
    person.press(&[4]);
    let (code, shown) = person.ends();
    assert_eq!(code, Some(12), "{shown}");
    assert!(shown.contains("nothing was created"), "{shown}");
    assert!(!home.project().join("bot").exists());
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
