//! Events of the transcripts.

use std::time::Duration;

use goondan_cli_agents::blocks::{
    AgentError, Block, CustomTaskComplete, DependencyKind, ErrorKind, HandoffText, PhaseComplete,
    Problem, Progress, QuestionCategory,
};
use goondan_cli_agents::usage::{Counter, SessionUsage, UsageReport};
use goondan_cli_agents::{CliEvent, Format, Parser, Reset, Setup, ToolState, WallClock};
use goondan_protocol::task::{PLAN_STEP_CHARS_MAX, PLAN_STEPS_MAX, PlanStepState};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{MicroUsd, Usage};

use crate::{read, transcript};

fn events(name: &str, format: Format) -> Vec<CliEvent> {
    read(format, &[&transcript(name)])
}

fn blocks(events: &[CliEvent]) -> Vec<&Block> {
    let blocks = events.iter().filter_map(|event| match event {
        CliEvent::Block(block) => Some(block),
        _ => None,
    });
    blocks.collect()
}

fn last_usage(events: &[CliEvent]) -> &UsageReport {
    let mut reports = events.iter().rev().filter_map(|event| match event {
        CliEvent::Usage(report) => Some(report),
        _ => None,
    });
    reports.next().unwrap()
}

fn resets(events: &[CliEvent]) -> Vec<Reset> {
    let resets = events.iter().filter_map(|event| match event {
        CliEvent::RateLimit(reset) => Some(reset.clone()),
        _ => None,
    });
    resets.collect()
}

#[test]
fn proto_1_of_claude_only_the_assistants_own_text_counts() {
    let events = events("claude.jsonl", Format::ClaudeStreamJson);
    let [Block::UserQuestion(asked), Block::PhaseComplete(done)] = blocks(&events)[..] else {
        panic!("{:?}", blocks(&events));
    };
    assert_eq!(asked.category, QuestionCategory::Choice);
    assert_eq!(asked.question, "Which database? 데이터");
    assert_eq!(asked.options, ["PostgreSQL", "SQLite"]);
    assert_eq!(
        (asked.default.as_deref(), asked.required),
        (Some("SQLite"), false)
    );
    let documents = ["docs/planning/01_idea.md", "docs/planning/02_market.md"];
    assert_eq!(
        (done.phase, &done.documents[..]),
        (1, &documents.map(str::to_owned)[..])
    );
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, CliEvent::Refused(_) | CliEvent::Error(_)))
    );
    assert!(resets(&events).is_empty(), "the window is open");
    assert!(matches!(&events[0], CliEvent::Noise(line) if line == "[warn] telemetry is off"));
    let CliEvent::Permission(asked) = events
        .iter()
        .find(|event| matches!(event, CliEvent::Permission(_)))
        .unwrap()
    else {
        unreachable!();
    };
    assert_eq!((asked.id.as_str(), asked.tool.as_str()), ("perm-1", "Bash"));
    let Some(CliEvent::Result(result)) = events.last() else {
        panic!("no result at the end");
    };
    assert!(result.is_ok);
    assert_eq!(result.denied, ["Write"]);
}

#[test]
fn task_6_claude_usage_matches_the_provider() {
    let told = transcript("claude.jsonl");
    let all = Usage {
        input_tokens: 107,
        output_tokens: 420,
        cache_read_tokens: 38_715,
        cache_write_tokens: 8_695,
        reasoning_tokens: 0,
    };
    let expected = UsageReport {
        counter: Counter::Run,
        usage: all,
        cost: None,
        session: Some(SessionUsage {
            id: "5d0c1a9e-7a62-4c0a-9a53-0b7b7f0a1c11".to_owned(),
            usage: all,
            cost: Some(MicroUsd(61_235)),
        }),
    };
    assert_eq!(
        *last_usage(&read(Format::ClaudeStreamJson, &[&told])),
        expected
    );
    // A run that ended without a result has the same token counts from its messages.
    let text = String::from_utf8(told).unwrap();
    let (cut, _) = text.split_once("{\"type\":\"result\"").unwrap();
    let events = read(Format::ClaudeStreamJson, &[cut.as_bytes()]);
    assert_eq!(last_usage(&events).usage, all);
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, CliEvent::Result(_)))
    );
}

#[test]
fn a_rate_limit_of_claude_has_its_time() {
    let events = events("claude_limit.jsonl", Format::ClaudeStreamJson);
    let at = Reset::At(Timestamp::from_unix_millis(1_788_879_437_000));
    // The message says "resets 3am (Europe/Rome)".
    let clock = Reset::Clock(WallClock {
        hour: 3,
        minute: 0,
        date: None,
        zone: Some("Europe/Rome".to_owned()),
    });
    assert_eq!(resets(&events), [at, clock.clone(), clock]);
    assert!(blocks(&events).is_empty());
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, CliEvent::Text(_))),
        "the model said nothing"
    );
    assert!(matches!(events.last(), Some(CliEvent::Result(result)) if !result.is_ok));
}

#[test]
fn proto_2_codex_counts_only_messages_and_usage_per_thread() {
    let events = events("codex.jsonl", Format::CodexJson);
    let [Block::DependencyRequest(needed)] = blocks(&events)[..] else {
        panic!("{:?}", blocks(&events));
    };
    assert_eq!(
        (needed.kind, needed.name.as_str()),
        (DependencyKind::ApiKey, "OPENAI_API_KEY")
    );
    assert!(needed.required);
    let usage = last_usage(&events);
    assert_eq!(
        usage.counter,
        Counter::Session("0199a213-81c0-7800-8aa1-bbab2a035a53".to_owned())
    );
    assert_eq!(
        (usage.usage.input_tokens, usage.usage.cache_read_tokens),
        (315, 24_448)
    );
    assert_eq!(usage.usage.output_tokens, 122);
    let tools = events.iter().filter_map(|event| match event {
        CliEvent::Tool(tool) => Some((tool.id.as_str(), tool.state)),
        _ => None,
    });
    let expected = [
        ("item_1", ToolState::Started),
        ("item_1", ToolState::Failed),
        ("item_2", ToolState::Completed),
    ];
    assert_eq!(tools.collect::<Vec<_>>(), expected);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, CliEvent::Retrying(_)))
    );
    assert!(matches!(events.last(), Some(CliEvent::Result(result)) if result.is_ok));
}

#[test]
fn codex_rate_limit_is_reported_once() {
    let events = events("codex_limit.jsonl", Format::CodexJson);
    assert_eq!(resets(&events), [Reset::After(Duration::from_secs(5400))]);
    assert!(matches!(events.last(), Some(CliEvent::Result(result)) if !result.is_ok));
}

#[test]
fn proto_3_only_agent_messages_of_acp_are_scanned() {
    let events = events("acp.jsonl", Format::Acp);
    let [Block::UserQuestion(asked)] = blocks(&events)[..] else {
        panic!("{:?}", blocks(&events));
    };
    assert_eq!(asked.options, ["yes", "no"]);
    assert_eq!(last_usage(&events).cost, Some(MicroUsd(45_000)));
    let counter = Counter::Session("sess_abc".to_owned());
    assert_eq!(last_usage(&events).counter, counter);
    let CliEvent::Permission(asked) = events
        .iter()
        .find(|event| matches!(event, CliEvent::Permission(_)))
        .unwrap()
    else {
        unreachable!();
    };
    assert_eq!((asked.id.as_str(), asked.options.len()), ("\"p-1\"", 2));
    assert!(events.iter().any(
        |event| matches!(event, CliEvent::Unsupported { method, reply } if method == "fs/read_text_file" && reply.contains("\"id\":5"))
    ));
    assert!(
        matches!(events.last(), Some(CliEvent::Result(result)) if result.is_ok && result.text == "All is well.")
    );
}

#[test]
fn acp_replay_of_an_earlier_session_counts_as_history() {
    let message = String::from_utf8(transcript("acp.jsonl")).unwrap();
    let mut lines: Vec<&str> = message.lines().collect();
    let answer = lines.remove(1);
    lines.insert(lines.len() - 2, answer);
    let setup = Setup {
        prompt: String::new(),
        is_resumed: true,
    };
    let mut parser = Parser::new(Format::Acp, &setup);
    let (history, rest) = lines.split_at(lines.len() - 2);
    let events = parser.push((history.join("\n") + "\n").as_bytes());
    assert!(blocks(&events).is_empty(), "{events:?}");
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, CliEvent::Text(_) | CliEvent::Usage(_)))
    );
    parser.prompted();
    let events = parser.push((rest.join("\n") + "\n").as_bytes());
    assert!(blocks(&events).is_empty(), "{events:?}");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, CliEvent::Text(text) if text == "All is well."))
    );
    // The following output belongs to the same session, and is counted with it.
    let usage = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_abc","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":0.05,"currency":"USD"}}}}"#;
    let answer = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}\n";
    let mut parser = Parser::new(Format::Acp, &setup);
    assert_eq!(parser.push(answer.as_bytes()), []);
    parser.prompted();
    let events = parser.push(format!("{usage}\n").as_bytes());
    let counter = Counter::Session("sess_abc".to_owned());
    assert_eq!(last_usage(&events).counter, counter);
}

#[test]
fn proto_5_text_of_any_program_is_read_by_its_lines() {
    let events = events("plain.txt", Format::Plain);
    let expected = [
        Block::Error(AgentError {
            kind: ErrorKind::Recoverable,
            message: "no network\n  tried twice".to_owned(),
            recovery: Some("retry".to_owned()),
        }),
        Block::Handoff(HandoffText {
            text: "Context: half done\nNext: the rest".to_owned(),
        }),
        Block::CustomTaskComplete(CustomTaskComplete {
            documents: Vec::new(),
        }),
        Block::PhaseComplete(PhaseComplete {
            phase: 2,
            documents: vec!["src/main.rs".to_owned()],
        }),
    ];
    assert_eq!(blocks(&events), expected.iter().collect::<Vec<_>>());
    let progress = events.iter().filter_map(|event| match event {
        CliEvent::Progress(progress) => Some(progress.clone()),
        _ => None,
    });
    let expected = [
        Progress::Step {
            number: 2,
            total: Some(4),
            title: "Writing".to_owned(),
        },
        Progress::Percent(35),
        Progress::Document("docs/planning/03_persona.md".to_owned()),
    ];
    assert_eq!(progress.collect::<Vec<_>>(), expected);
    let refused = events.iter().filter_map(|event| match event {
        CliEvent::Refused(refusal) => Some((refusal.protocol.as_str(), refusal.problem.clone())),
        _ => None,
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(
        refused[0],
        ("USER_QUESTION", Problem::Unterminated.to_string())
    );
    assert_eq!(refused[1].0, "DEPENDENCY_REQUEST");
    assert!(refused[1].1.contains("`type`"), "{refused:?}");
    assert_eq!(refused[2].0, "PHASE_COMPLETE");
    assert!(refused[2].1.contains("../../etc/passwd"), "{refused:?}");
    assert_eq!(refused.len(), 3);
}

#[test]
fn proto_1_a_block_is_one_line_of_the_protocols_file() {
    let events = events("plain.txt", Format::Plain);
    let line = serde_json::to_string(blocks(&events)[0]).unwrap();
    let expected = r#"{"protocol":"ERROR","data":{"type":"recoverable","message":"no network\n  tried twice","recovery":"retry"}}"#;
    assert_eq!(line, expected);
    assert_eq!(
        serde_json::from_str::<Block>(&line).unwrap(),
        *blocks(&events)[0]
    );
    let mut order: Vec<&Block> = blocks(&events);
    order.sort_by_key(|block| block.priority());
    assert!(
        matches!(order[0], Block::CustomTaskComplete(_)),
        "completion comes first"
    );
}

fn plans(events: &[CliEvent]) -> Vec<Vec<(&str, PlanStepState)>> {
    let plans = events.iter().filter_map(|event| match event {
        CliEvent::Plan(steps) => Some(steps),
        _ => None,
    });
    plans
        .map(|steps| {
            let steps = steps.iter().map(|step| (step.title.as_str(), step.state));
            steps.collect()
        })
        .collect()
}

#[test]
fn task_4_the_plan_of_an_agent_is_read_in_each_form() {
    use PlanStepState::{Completed, InProgress, Pending};
    let claude = events("claude.jsonl", Format::ClaudeStreamJson);
    let expected = [
        ("Read the notes", Completed),
        ("Choose a database", InProgress),
        ("Write the plan", Pending),
    ];
    assert_eq!(plans(&claude), [expected.to_vec()], "no plan of a subagent");
    let codex = events("codex.jsonl", Format::CodexJson);
    let step = |state| vec![("Read the code", state), ("Write the page", Pending)];
    assert_eq!(plans(&codex), [step(Pending), step(Completed)]);
    let acp = events("acp.jsonl", Format::Acp);
    let expected = [("Run tests", InProgress), ("Fix what fails", Pending)];
    assert_eq!(plans(&acp), [expected.to_vec()]);
}

#[test]
fn task_4_a_plan_is_bounded() {
    let item = serde_json::json!({"text": "long ".repeat(PLAN_STEP_CHARS_MAX), "completed": false});
    let items = vec![item; PLAN_STEPS_MAX * 2];
    let line = serde_json::json!(
        {"type": "item.started", "item": {"id": "i", "type": "todo_list", "items": items}}
    );
    let events = read(Format::CodexJson, &[format!("{line}\n").as_bytes()]);
    let [plan] = &plans(&events)[..] else {
        panic!("{events:?}");
    };
    assert_eq!(plan.len(), PLAN_STEPS_MAX);
    let is_bounded = |(title, _): &(&str, _)| title.chars().count() == PLAN_STEP_CHARS_MAX;
    assert!(plan.iter().all(is_bounded));
}
