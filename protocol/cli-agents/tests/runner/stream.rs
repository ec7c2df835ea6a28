//! Items of the streams of recorded programs: the same work looks the same.

use goondan_cli_agents::stream::Stream;
use goondan_cli_agents::{Format, Setup};
use goondan_protocol::task::{ChangedFile, TaskItemContent as Item, ToolState};

const COMMAND: &str = "pwd; ls -a; id -u; echo KEY=${PRICE_API_KEY:-unset}; wc -c hello.txt";

fn items(name: &str, format: Format) -> Vec<Item> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let bytes = std::fs::read(path.join(name)).unwrap();
    let events = crate::read_as(format, &Setup::default(), &[&bytes]);
    let mut stream = Stream::default();
    let mut items: Vec<Item> = events
        .iter()
        .flat_map(|event| stream.items(event))
        .collect();
    items.extend(stream.end());
    items
}

/// Ended commands: the command, its exit code, and the start of its output.
fn commands(items: &[Item]) -> Vec<(&str, Option<i64>, &str)> {
    let commands = items.iter().filter_map(|item| match item {
        Item::Command {
            state,
            command,
            exit,
            output,
            ..
        } if *state != ToolState::Started => {
            let first = output.lines().next().unwrap_or_default();
            Some((command.as_str(), *exit, first))
        }
        _ => None,
    });
    commands.collect()
}

fn changes(items: &[Item]) -> Vec<&ChangedFile> {
    let changes = items.iter().filter_map(|item| match item {
        Item::FileChange { state, files, .. } if *state != ToolState::Started => Some(files),
        _ => None,
    });
    changes.flatten().collect()
}

fn texts(items: &[Item]) -> Vec<&str> {
    let texts = items.iter().filter_map(|item| match item {
        Item::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn agent_7_commands_and_changes_of_each_program_look_alike() {
    let claude = Format::ClaudeStreamJson;
    let shell = format!("/bin/bash -lc '{COMMAND}'");
    let dir = "/home/user/dir";
    let task = "/home/user/tasks/task";
    for (name, format, command, changed) in [
        (
            "claude-2.1.332.phases-resumed-cumulative-usage.jsonl",
            claude,
            Some((COMMAND, None, task)),
            "hello from anthropic",
        ),
        (
            "qwen-0.24.4.stream-json.jsonl",
            claude,
            Some((COMMAND, None, dir)),
            "hello from chat",
        ),
        (
            "codex-0.171.0.exec-json.by-hand.jsonl",
            Format::CodexJson,
            Some((&*shell, Some(1), dir)),
            "",
        ),
        (
            "gemini-0.61.0.stream-json.jsonl",
            Format::GeminiStreamJson,
            Some((COMMAND, None, dir)),
            "hello from gemini",
        ),
        (
            "opencode-1.18.33.run-json.jsonl",
            Format::OpencodeJson,
            Some((COMMAND, Some(0), dir)),
            "hello from chat",
        ),
        (
            "claude-agent-acp-0.101.0.acp.jsonl",
            Format::Acp,
            None,
            "hello from anthropic",
        ),
        (
            "gemini-0.61.0.acp.jsonl",
            Format::Acp,
            Some((COMMAND, None, "")),
            "hello from gemini",
        ),
        (
            "opencode-1.18.33.acp.jsonl",
            Format::Acp,
            Some((COMMAND, Some(0), task)),
            "hello from chat",
        ),
    ] {
        let items = items(&format!("recorded/{name}"), format);
        let commands = commands(&items);
        if let Some(command) = command {
            assert_eq!(commands.first(), Some(&command), "{name}: {items:#?}");
        } else {
            assert!(!commands.is_empty(), "{name}: {items:#?}");
        }
        let changes = changes(&items);
        if changed.is_empty() {
            assert!(changes.is_empty(), "{name}");
        } else {
            let diff = format!("\n+{changed}\n");
            assert!(
                changes[0].path.ends_with("hello.txt") && changes[0].diff.contains(&diff),
                "{name}: {items:#?}"
            );
        }
        let ends = ["CUSTOM_TASK_COMPLETE", "PHASE", "All done."];
        let is_end = |text: &&str| ends.iter().any(|end| text.contains(end));
        assert!(
            texts(&items).iter().any(is_end),
            "{name}: {:?}",
            texts(&items)
        );
        let results = items
            .iter()
            .filter(|item| matches!(item, Item::Result { .. }));
        assert!(results.count() > 0, "{name}: {items:#?}");
    }
    // This recording ends with a request to run a command, after a change.
    let qwen = items("recorded/qwen-0.24.4.acp.jsonl", Format::Acp);
    assert!(changes(&qwen)[0].diff.contains("\n+hello from chat\n"));
    let aider = items(
        "recorded/aider-0.86.2.plain-applied-edit.txt",
        Format::Aider,
    );
    assert_eq!(changes(&aider)[0].path, "hello.txt");
}

#[test]
fn agent_7_thoughts_plans_and_failures_are_items() {
    let claude = items("transcripts/claude.jsonl", Format::ClaudeStreamJson);
    let is_thought =
        |item: &Item| matches!(item, Item::Thinking { text } if text.contains("only a thought"));
    assert!(claude.iter().any(is_thought), "{claude:#?}");
    let plan = claude.iter().find_map(|item| match item {
        Item::Plan { steps } => Some(steps.len()),
        _ => None,
    });
    assert_eq!(plan, Some(3));
    let codex = items("transcripts/codex.jsonl", Format::CodexJson);
    let is_path = |file: &&ChangedFile| file.path == "docs/a.md" && file.diff.is_empty();
    assert!(changes(&codex).iter().any(is_path), "{codex:#?}");
    assert_eq!(commands(&codex)[0].1, Some(2));
    let limit = items("transcripts/codex_limit.jsonl", Format::CodexJson);
    let is_limit = |item: &Item| matches!(item, Item::Problem { text } if text.contains("limit"));
    assert!(limit.iter().any(is_limit), "{limit:#?}");
    let wrong = items("recorded/gemini-0.61.0.acp.wrong-key.jsonl", Format::Acp);
    assert!(
        wrong.iter().any(|item| matches!(
            item,
            Item::Problem { .. } | Item::Result { is_ok: false, .. }
        )),
        "{wrong:#?}"
    );
}
