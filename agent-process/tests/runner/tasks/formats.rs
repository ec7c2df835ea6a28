//! Each format, with a program that writes it.

use goondan_cli_agents::blocks::Block;
use goondan_cli_agents::{CliEvent, Parser, Reset, Setup};
use goondan_protocol::ipc::ToTask;
use goondan_protocol::task::{AgentFormat, TaskAssignment, TaskPermission};
use serde_json::Value;

use super::fakes::{ACP, CLAUDE, CODEX, file};
use super::run::{Run, RunReports, assignment};
use crate::support::{TestProject, is_alive};

fn of_format(site: &TestProject, format: AgentFormat, script: &str) -> TaskAssignment {
    let mut it = assignment(site, script);
    it.agent.format = format;
    it.prompt = "Make it.\n=== PHASE 1 COMPLETE ===".to_owned();
    it
}

fn sessions(told: &RunReports) -> Vec<&str> {
    let ids = told.events.iter().filter_map(|event| match event {
        CliEvent::Session { id, .. } => Some(id.as_str()),
        _ => None,
    });
    ids.collect()
}

fn is_done(told: &RunReports) -> bool {
    told.events
        .iter()
        .any(|event| matches!(event, CliEvent::Result(result) if result.is_ok))
}

fn asks(told: &RunReports) -> bool {
    told.events
        .iter()
        .any(|event| matches!(event, CliEvent::Permission(_)))
}

fn decide(run: &mut Run, refusal: Option<&str>) {
    run.send(&ToTask::Permission(TaskPermission {
        request: if refusal.is_some() { "\"p-1\"" } else { "p-1" }.to_owned(),
        refusal: refusal.map(str::to_owned),
        is_for_task: false,
        answers: Vec::new(),
    }));
}

#[test]
fn task_8_claude_is_answered_when_it_asks_for_a_permission() {
    let site = TestProject::new();
    let mut run = Run::start(&of_format(&site, AgentFormat::ClaudeStreamJson, CLAUDE));
    run.until("the question for a permission", asks);
    decide(&mut run, None);
    let told = run.finish();
    assert_eq!(
        told.exited,
        Some(Some(0)),
        "its input was ended with its result"
    );
    assert!(is_done(&told));
    assert_eq!(sessions(&told), ["5d0c"]);
    let blocks = told
        .events
        .iter()
        .filter(|event| matches!(event, CliEvent::Block(Block::UserQuestion(_))));
    assert_eq!(blocks.count(), 1, "what a tool printed asks nobody");
    let prompt: Value = serde_json::from_str(&file(&site.work, "prompt")).unwrap();
    assert_eq!(
        prompt["message"]["content"][0]["text"],
        "Make it.\n=== PHASE 1 COMPLETE ==="
    );
    let answer: Value = serde_json::from_str(&file(&site.work, "answer")).unwrap();
    assert_eq!(answer["response"]["request_id"], "p-1");
    assert_eq!(answer["response"]["response"]["behavior"], "allow");
    assert_eq!(file(&site.work, "rest"), "");
}

#[test]
fn task_8_program_hanging_after_its_result_ends_on_request() {
    let site = TestProject::new();
    let mut it = of_format(&site, AgentFormat::ClaudeStreamJson, CLAUDE);
    it.agent
        .command
        .extend(["claude", "hang"].map(str::to_owned));
    let mut run = Run::start(&it);
    run.until("the question for a permission", asks);
    decide(&mut run, None);
    run.until("the result", is_done);
    let pid = i32::try_from(run.told.started.unwrap().pid).unwrap();
    run.ping(1);
    assert!(is_alive(pid), "whether it hangs is not decided here");
    run.shut_down(60_000);
    assert_eq!(run.finish().exited, Some(None));
}

/// `gemini` 0.61.0 stays for minutes.
#[test]
fn task_8_acp_program_that_stays_after_its_turn_is_ended() {
    let site = TestProject::new();
    let stays = format!("{ACP}\nexec sleep 1000");
    let mut run = Run::start(&of_format(&site, AgentFormat::Acp, &stays));
    run.until("the question for a permission", asks);
    decide(&mut run, Some("not now"));
    let told = run.finish();
    assert!(is_done(&told), "{told:?}");
    assert_eq!(told.exited, Some(None), "it was ended by a signal");
}

#[test]
fn task_8_codex_reads_its_prompt_to_the_end() {
    let site = TestProject::new();
    let finished = Run::start(&of_format(&site, AgentFormat::CodexJson, CODEX)).finish();
    assert!(is_done(&finished));
    assert_eq!(sessions(&finished), ["th-1"]);
    assert_eq!(finished.text(), "Progress: 50%\nBye.");
    assert_eq!(
        file(&site.work, "prompt"),
        "Make it.\n=== PHASE 1 COMPLETE ===\n"
    );
}

#[test]
fn task_8_session_is_resumed_by_its_id() {
    let site = TestProject::new();
    let mut it = of_format(&site, AgentFormat::CodexJson, "exit 9");
    let mut resume = assignment(&site, r#"echo "$2" > resumed; cat > prompt"#)
        .agent
        .command;
    resume.extend(["sh", "resume", "{session}"].map(str::to_owned));
    it.agent.resume = resume;
    it.session = Some("th-1".to_owned());
    let finished = Run::start(&it).finish();
    assert_eq!(finished.exited, Some(Some(0)));
    assert_eq!(file(&site.work, "resumed"), "th-1\n");
}

#[test]
fn task_8_acp_is_spoken_in_its_order_and_offers_nothing() {
    for session in [None, Some("s-0")] {
        let site = TestProject::new();
        let mut it = of_format(&site, AgentFormat::Acp, ACP);
        it.agent.resume = it.agent.command.clone();
        it.session = session.map(str::to_owned);
        let mut run = Run::start(&it);
        run.until("the question for a permission", asks);
        decide(&mut run, Some("not now"));
        let told = run.finish();
        assert!(is_done(&told), "{told:?}");
        assert_eq!(told.exited, Some(Some(0)));
        assert_eq!(
            told.text(),
            "Then not.",
            "what is played back is not its own text"
        );
        let asked = file(&site.work, "asked");
        let asked: Vec<Value> = asked
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let methods: Vec<&str> = asked
            .iter()
            .filter_map(|line| line["method"].as_str())
            .collect();
        let made = if session.is_some() {
            "session/load"
        } else {
            "session/new"
        };
        let is_probe = |method: &&str| *method == "_goondan/probe";
        assert_eq!(methods.iter().any(is_probe), session.is_some());
        let methods: Vec<&str> = methods
            .into_iter()
            .filter(|method| !is_probe(method))
            .collect();
        assert_eq!(methods, ["initialize", made, "session/prompt"]);
        let prompt = asked
            .iter()
            .find(|line| line["method"] == "session/prompt")
            .unwrap();
        let prompt = &prompt["params"];
        assert_eq!(prompt["sessionId"], session.unwrap_or("s-1"));
        let refused = asked.iter().find(|line| line["id"] == 5).unwrap();
        assert_eq!(refused["error"]["code"], -32601);
    }
}

#[test]
fn agent_3_an_agent_that_ignores_probes_gets_its_prompt() {
    let site = TestProject::new();
    let mut it = of_format(&site, AgentFormat::Acp, &ACP.replace("_goondan/probe", "-"));
    it.agent.resume = it.agent.command.clone();
    it.session = Some("s-0".to_owned());
    let mut run = Run::start(&it);
    run.until("the question for a permission", asks);
    decide(&mut run, Some("not now"));
    let told = run.finish();
    assert!(is_done(&told), "{told:?}");
    assert_eq!(told.text(), "Then not.");
}

/// Parses a transcript as a whole, with consecutive texts merged.
/// Events, with each time of day that the agent process has converted to a time as it was reported.
fn without_clocks(mut events: Vec<CliEvent>, reported: &[CliEvent]) -> Vec<CliEvent> {
    for (event, reported) in events.iter_mut().zip(reported) {
        if let (CliEvent::RateLimit(Reset::At(_)), CliEvent::RateLimit(Reset::Clock(_))) =
            (&event, reported)
        {
            *event = reported.clone();
        }
    }
    events
}

fn read_at_once(format: AgentFormat, transcript: &[u8], prompt: &str) -> Vec<CliEvent> {
    let mut parser = Parser::new(
        format,
        &Setup {
            prompt: prompt.to_owned(),
            is_resumed: false,
        },
    );
    let mut events = parser.push(transcript);
    events.extend(parser.end());
    joined(events)
}

fn joined(events: Vec<CliEvent>) -> Vec<CliEvent> {
    let mut joined: Vec<CliEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(CliEvent::Text(before)), CliEvent::Text(text)) => before.push_str(&text),
            (_, event) => joined.push(event),
        }
    }
    joined
}

#[test]
fn proto_1_recorded_transcripts_are_forwarded_as_parsed() {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../protocol/cli-agents/tests/transcripts"
    );
    let prompt = std::fs::read_to_string(format!("{directory}/prompt.txt")).unwrap();
    for (format, name) in [
        (AgentFormat::Plain, "plain.txt"),
        (AgentFormat::ClaudeStreamJson, "claude.jsonl"),
        (AgentFormat::ClaudeStreamJson, "claude_limit.jsonl"),
        (AgentFormat::CodexJson, "codex.jsonl"),
        (AgentFormat::CodexJson, "codex_limit.jsonl"),
        (AgentFormat::Acp, "acp.jsonl"),
    ] {
        let path = format!("{directory}/{name}");
        let transcript = std::fs::read(&path).unwrap();
        let site = TestProject::new();
        // In chunks that split characters and lines.
        let script = format!("dd if='{path}' bs=7 2>/dev/null");
        let mut it = of_format(&site, format, &script);
        it.prompt = prompt.clone();
        let finished = Run::start(&it).finish();
        let expected = read_at_once(format, &transcript, &prompt);
        assert_eq!(
            without_clocks(joined(finished.events), &expected),
            expected,
            "{name}"
        );
        assert_eq!(
            finished.stdout,
            String::from_utf8_lossy(&transcript),
            "{name}"
        );
    }
}

#[test]
fn proto_1_echoed_prompt_yields_no_blocks() {
    let site = TestProject::new();
    let mut it = of_format(
        &site,
        AgentFormat::Plain,
        "cat; echo; echo '=== PHASE 2 COMPLETE ==='",
    );
    it.prompt =
        "One.\n[USER_QUESTION]\nquestion: of the prompt\n[/USER_QUESTION]\nTwo.\n".to_owned();
    let finished = Run::start(&it).finish();
    let blocks: Vec<_> = finished
        .events
        .iter()
        .filter_map(|event| match event {
            CliEvent::Block(block) => Some(block),
            _ => None,
        })
        .collect();
    assert!(
        matches!(blocks[..], [Block::PhaseComplete(_)]),
        "{blocks:?}"
    );
}
