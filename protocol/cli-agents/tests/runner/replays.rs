//! Replays every recording in the format of its program: the parsed events stay the same.

use std::collections::BTreeMap;
use std::path::Path;

use goondan_cli_agents::{CliEvent, Format, Parser, Setup, ToolState};

/// Number of events of the kinds that a task acts on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    sessions: usize,
    blocks: usize,
    tools: usize,
    failed_tools: usize,
    permissions: usize,
    results: usize,
    failures: usize,
}

fn counts(events: &[CliEvent]) -> Counts {
    let mut counts = Counts::default();
    for event in events {
        let count = match event {
            CliEvent::Session { .. } | CliEvent::PassingSession { .. } => &mut counts.sessions,
            CliEvent::Block(_) => &mut counts.blocks,
            CliEvent::Tool(tool) if tool.state == ToolState::Completed => &mut counts.tools,
            CliEvent::Tool(tool) if tool.state == ToolState::Failed => &mut counts.failed_tools,
            CliEvent::Permission(_) => &mut counts.permissions,
            CliEvent::Result(result) if result.is_ok => &mut counts.results,
            CliEvent::Result(_) | CliEvent::Permanent(_) | CliEvent::SessionRefused(_) => {
                &mut counts.failures
            }
            _ => continue,
        };
        *count += 1;
    }
    counts
}

/// Recordings by their names, each with its format and its counts.
const EXPECTED: &str = include_str!("../recorded/expected.txt");

fn format_of(name: &str) -> Format {
    let formats = [
        ("plain", Format::Plain),
        ("claude-stream-json", Format::ClaudeStreamJson),
        ("codex-json", Format::CodexJson),
        ("gemini-stream-json", Format::GeminiStreamJson),
        ("opencode-json", Format::OpencodeJson),
        ("aider", Format::Aider),
        ("acp", Format::Acp),
    ];
    let found = formats.into_iter().find(|(known, _)| *known == name);
    assert!(found.is_some(), "no format is named {name}");
    found.unwrap().1
}

fn replay(name: &str, format: Format) -> Counts {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let bytes = std::fs::read(path.join(name)).unwrap();
    let mut parser = Parser::new(format, &Setup::default());
    let mut events = if name.ends_with(".stderr.txt") {
        parser.push_stderr(&bytes)
    } else {
        parser.push(&bytes)
    };
    events.extend(parser.end());
    counts(&events)
}

#[test]
fn agent_1_each_recording_of_a_program_reads_as_before() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let names = std::fs::read_dir(place).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_recording = |name: &String| !["README.md", "expected.txt"].contains(&name.as_str());
    let mut found: Vec<String> = names.filter(is_recording).collect();
    found.sort();
    let expected: BTreeMap<&str, (&str, &str)> = EXPECTED
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().unwrap();
            (word(), (word(), word()))
        })
        .collect();
    let mut read = String::new();
    for name in &found {
        let format = expected
            .get(name.as_str())
            .map_or("acp", |(format, _)| format);
        let it = replay(name, format_of(format));
        read += &format!(
            "{name} {format} sessions {} blocks {} tools {} failed tools {} permissions {} results {} failures {}\n",
            it.sessions,
            it.blocks,
            it.tools,
            it.failed_tools,
            it.permissions,
            it.results,
            it.failures
        );
    }
    assert_eq!(EXPECTED, read, "\n{read}");
}

#[test]
fn agent_1_each_program_has_a_recording() {
    for program in [
        "claude-2",
        "codex-0",
        "gemini-",
        "opencode-",
        "qwen-",
        "aider-",
        "claude-agent-acp-",
        "codex-acp-",
    ] {
        assert!(
            EXPECTED.lines().any(|line| line.starts_with(program)),
            "{program}"
        );
    }
}
