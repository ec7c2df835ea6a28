//! Events of recorded output of real programs.

#![expect(
    clippy::string_slice,
    reason = "the recordings are split at characters of ASCII"
)]

use goondan_cli_agents::blocks::Block;
use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_cli_agents::{CliEvent, Format, Parser, Setup, ToolState};
use goondan_protocol::usage::{MicroUsd, Usage};

fn recorded(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    std::fs::read_to_string(path.join(name)).unwrap()
}

fn events(name: &str, format: Format) -> Vec<CliEvent> {
    crate::read_as(format, &Setup::default(), &[recorded(name).as_bytes()])
}

fn last_usage(events: &[CliEvent]) -> Option<&UsageReport> {
    let mut reports = events.iter().rev().filter_map(|event| match event {
        CliEvent::Usage(report) => Some(report),
        _ => None,
    });
    reports.next()
}

fn permanent(events: &[CliEvent]) -> Vec<&str> {
    let found = events.iter().filter_map(|event| match event {
        CliEvent::Permanent(why) => Some(why.as_str()),
        _ => None,
    });
    found.collect()
}

fn usage(input: u64, output: u64, cached: u64, written: u64, reasoning: u64) -> Usage {
    Usage {
        input_tokens: input,
        output_tokens: output,
        cache_read_tokens: cached,
        cache_write_tokens: written,
        reasoning_tokens: reasoning,
    }
}

/// The model server reports 1,200 input tokens, 300 of them cached, and 55 output tokens for each
/// call; some programs make more calls than others. Anthropic's protocol reports the 300 in
/// addition to the 1,200, and 100 as written.
#[test]
fn agent_4_tokens_of_each_program_match_the_provider_count() {
    let calls = |calls: u64| usage(900 * calls, 55 * calls, 300 * calls, 0, 0);
    let runs = [
        (
            "claude-agent-acp-0.101.0.acp.jsonl",
            Format::Acp,
            usage(4800, 220, 1200, 400, 0),
        ),
        (
            "codex-acp-2.6.0.acp.jsonl",
            Format::Acp,
            usage(1800, 110, 600, 0, 20),
        ),
        // It does not report cached tokens.
        (
            "gemini-0.61.0.acp.jsonl",
            Format::Acp,
            usage(3600, 165, 0, 0, 0),
        ),
        ("qwen-0.24.4.acp.jsonl", Format::Acp, calls(2)),
        (
            "qwen-0.24.4.stream-json.jsonl",
            Format::ClaudeStreamJson,
            calls(3),
        ),
        // Four calls, with 40 tokens of thoughts.
        (
            "gemini-0.61.0.stream-json.jsonl",
            Format::GeminiStreamJson,
            usage(3600, 260, 1200, 0, 40),
        ),
        (
            "opencode-1.18.33.run-json.jsonl",
            Format::OpencodeJson,
            calls(4),
        ),
        (
            "aider-0.86.2.plain.txt",
            Format::Aider,
            usage(1200, 55, 0, 0, 0),
        ),
    ];
    for (name, format, expected) in runs {
        let events = events(name, format);
        let reports = events.iter().rev().filter_map(|event| match event {
            CliEvent::Usage(report) if report.counter == Counter::Run => Some(report.usage),
            _ => None,
        });
        assert_eq!(reports.take(1).collect::<Vec<_>>(), [expected], "{name}");
    }
    let opencode = events("opencode-1.18.33.run-json.jsonl", Format::OpencodeJson);
    assert_eq!(last_usage(&opencode).unwrap().cost, Some(MicroUsd(4040)));
}

#[test]
fn agent_4_claude_usage_is_reported_as_cumulative_per_session() {
    let told = recorded("claude-2.1.332.phases-resumed-cumulative-usage.jsonl");
    let runs = runs_of(&told, r#""subtype": "init""#);
    assert_eq!(runs.len(), 6);
    for (number, run) in (1..).zip(&runs) {
        let events = crate::read(Format::ClaudeStreamJson, &[run.as_bytes()]);
        let report = last_usage(&events).unwrap();
        assert_eq!(report.counter, Counter::Run);
        assert_eq!(
            (report.usage, report.cost),
            (usage(3600, 165, 900, 300, 0), None)
        );
        let session = report.session.as_ref().unwrap();
        assert_eq!(session.usage.input_tokens, 3600 * number);
        assert_eq!(session.cost, Some(MicroUsd(19_380 * number)));
    }
}

/// Splits a recording into runs, each of which begins with a line that contains the mark.
fn runs_of<'t>(told: &'t str, mark: &str) -> Vec<&'t str> {
    let starts: Vec<usize> = told
        .match_indices(mark)
        .map(|(at, _)| told[..at].rfind('\n').map_or(0, |end| end + 1))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([told.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &told[*start..end])
        .collect()
}

#[test]
fn agent_3_lost_session_is_distinguished_from_a_failure() {
    let setup = Setup {
        prompt: String::new(),
        is_resumed: true,
    };
    let told = recorded("claude-2.1.332.session-lost.jsonl");
    let lost = told.lines().last().unwrap();
    let events = crate::read_as(Format::ClaudeStreamJson, &setup, &[lost.as_bytes()]);
    let [CliEvent::SessionRefused(why)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(
        why.starts_with("No conversation found with session ID: "),
        "{why}"
    );
    let mut parser = Parser::new(Format::CodexJson, &setup);
    let stderr = recorded("codex-0.171.0.session-lost.stderr.txt");
    let mut events = parser.push_stderr(stderr.as_bytes());
    events.extend(parser.end());
    let [CliEvent::SessionRefused(why), CliEvent::Stderr(tail)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(why.contains("no rollout found"), "{why}");
    assert!(tail.contains("WARNING: proceeding"), "{tail}");
}

#[test]
fn agent_3_acp_replay_after_the_response_is_ignored() {
    let setup = Setup {
        prompt: String::new(),
        is_resumed: true,
    };
    let told = recorded("gemini-0.61.0.acp.load-replay-after-response.jsonl");
    let (_, resumed) = told.split_once("\"id\": 2,").unwrap();
    let resumed = &resumed[resumed.find("No previous sessions").unwrap()..];
    let start = resumed.rfind(r#""protocolVersion""#).unwrap();
    let start = resumed[..start].rfind('\n').unwrap();
    let lines: Vec<&str> = resumed[start + 1..].lines().collect();
    let mut parser = Parser::new(Format::Acp, &setup);
    let mut events = Vec::new();
    // The history ends with the list of commands, for the second time.
    let is_end = |line: &&str| line.contains("available_commands_update");
    let history = lines.iter().position(is_end).unwrap() + 1;
    assert!(history > 8, "{history}");
    for (number, line) in lines.iter().enumerate() {
        if number == history {
            assert_eq!(events, [], "nothing of it counts");
            assert!(parser.played_back() > 8);
            parser.prompted();
        }
        events.extend(parser.push(format!("{line}\n").as_bytes()));
    }
    let blocks = events
        .iter()
        .filter(|event| matches!(event, CliEvent::Block(_)));
    assert_eq!(blocks.count(), 1, "{events:?}");
    let is_complete = |event: &CliEvent| matches!(event, CliEvent::Block(Block::PhaseComplete(done)) if done.phase == 1);
    assert!(events.iter().any(is_complete));
}

#[test]
fn agent_3_words_of_the_user_end_a_text_of_the_agent() {
    let chunk = |kind: &str, text: &str| {
        let update =
            serde_json::json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
        let params = serde_json::json!({"sessionId": "s", "update": update});
        format!(
            "{}\n",
            serde_json::json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
        )
    };
    let told = [
        chunk("agent_message_chunk", "[ERROR]\ntype: fatal\n"),
        chunk("user_message_chunk", "message: no\n[/ERROR]\n"),
        chunk("agent_message_chunk", "message: yes\n[/ERROR]\n"),
    ];
    let events = crate::read(Format::Acp, &[told.concat().as_bytes()]);
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, CliEvent::Block(_))),
        "{events:?}"
    );
}

#[test]
fn proto_1_of_acp_a_text_ends_where_a_tool_is_reported() {
    let update = |update: serde_json::Value| {
        let params = serde_json::json!({"sessionId": "s", "update": update});
        let message =
            serde_json::json!({"jsonrpc": "2.0", "method": "session/update", "params": params});
        format!("{message}\n")
    };
    let text = |text: &str| {
        update(
            serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}),
        )
    };
    // Like `gemini`: no `tool_call`, and no message ids.
    let tool = serde_json::json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"});
    let told = [
        text("Working on it."),
        update(tool),
        text("[ERROR]\ntype: fatal\nmess"),
        text("age: no\n[/ERROR]\n"),
    ];
    let events = crate::read(Format::Acp, &[told.concat().as_bytes()]);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, CliEvent::Block(Block::Error(_)))),
        "{events:?}"
    );
}

#[test]
fn agent_6_failures_that_no_retry_mends_are_permanent() {
    let told = [
        (
            "opencode-1.18.33.run-json.error-401.jsonl",
            Format::OpencodeJson,
            "x-api-key",
        ),
        (
            "aider-0.86.2.wrong-key.txt",
            Format::Aider,
            "AuthenticationError",
        ),
        (
            "qwen-0.24.4.acp.wrong-key.jsonl",
            Format::Acp,
            "Incorrect API key",
        ),
        (
            "gemini-0.61.0.acp.wrong-key.jsonl",
            Format::Acp,
            "API key not valid",
        ),
        (
            "claude-2.1.332.api-retry-401.jsonl",
            Format::ClaudeStreamJson,
            "401",
        ),
        (
            "claude-2.1.332.not-logged-in.jsonl",
            Format::ClaudeStreamJson,
            "/login",
        ),
        (
            "codex-0.171.0.exec-json.host-refused.jsonl",
            Format::CodexJson,
            "sandbox.network.allow",
        ),
    ];
    for (name, format, words) in told {
        let events = events(name, format);
        let permanent = permanent(&events);
        assert!(
            permanent.iter().any(|why| why.contains(words)),
            "{name}: {permanent:?}"
        );
    }
    for (name, format) in [
        (
            "claude-2.1.332.api-retry-429.jsonl",
            Format::ClaudeStreamJson,
        ),
        (
            "claude-2.1.332.five-hour-limit.jsonl",
            Format::ClaudeStreamJson,
        ),
        ("codex-0.171.0.usage-limit.jsonl", Format::CodexJson),
    ] {
        let events = events(name, format);
        assert!(permanent(&events).is_empty(), "{name}");
        assert!(
            events
                .iter()
                .any(|event| matches!(event, CliEvent::RateLimit(_))),
            "{name}"
        );
    }
}

#[test]
fn agent_6_a_refused_session_has_the_reason_of_the_program() {
    let told = recorded("opencode-1.18.33.acp-failed-in-sandbox.jsonl");
    let events = crate::read(Format::Acp, &[told.as_bytes()]);
    let is_reason = |event: &CliEvent| matches!(event, CliEvent::Result(result) if !result.is_ok && result.text == "Internal error: OpenCode service failure: directory");
    assert!(events.iter().any(is_reason), "{events:?}");
}

#[test]
fn task_8_tools_and_texts_of_stream_json_programs_are_read() {
    for (name, format, tools) in [
        (
            "gemini-0.61.0.stream-json.jsonl",
            Format::GeminiStreamJson,
            2,
        ),
        ("opencode-1.18.33.run-json.jsonl", Format::OpencodeJson, 3),
    ] {
        let events = events(name, format);
        assert!(
            matches!(&events[0], CliEvent::Session { id, .. } if !id.is_empty()),
            "{name}"
        );
        let ended = events.iter().filter(
            |event| matches!(event, CliEvent::Tool(tool) if tool.state == ToolState::Completed),
        );
        assert_eq!(ended.count(), tools, "{name}");
        let is_end = |event: &CliEvent| matches!(event, CliEvent::Text(text) if text.starts_with("Finished."));
        assert!(events.iter().any(is_end), "{name}");
        let is_result = |event: &CliEvent| matches!(event, CliEvent::Result(result) if result.is_ok && result.text.starts_with("Finished."));
        assert!(events.iter().any(is_result), "{name}: {events:?}");
    }
}
