//! From the output of programs to the task restored from its work area.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use goondan_cli_agents::{Format, Parser, Setup};
use goondan_durable::disk::{Crash, Disk as _, SimulatedDisk};
use goondan_protocol::time::Timestamp;
use goondan_tasks::fact::{Budget, NewTask, Runtime, TaskId};
use goondan_tasks::machine::{Delivery, TaskEffect, TaskInput};
use goondan_tasks::state::{State, Status};
use goondan_tasks::work_area::WorkArea;

const ROOT: &str = "/p/task";

fn new_task(description: String, format: Format, total_phases: u32) -> NewTask {
    NewTask {
        runtime: Runtime::Cli,
        task_id: TaskId::try_from("task".to_owned()).unwrap(),
        title: "A shop".to_owned(),
        kind: "create_app".to_owned(),
        description,
        total_phases,
        budget: Budget::default(),
        agent: "coder".parse().unwrap(),
        tells_result: format.tells_result(),
        created_by: None,
        source: Default::default(),
        checks: Default::default(),
        fallbacks: Vec::new(),
        model: None,
    }
}

/// State after a run with this transcript, restored after a kill of the daemon.
fn after_run(name: &str, format: Format, phases: u32, exit: i32) -> (State, Vec<TaskEffect>) {
    let transcripts =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/cli-agents/tests/transcripts");
    let written = std::fs::read(transcripts.join(name)).unwrap();
    let prompt = std::fs::read_to_string(transcripts.join("prompt.txt")).unwrap();
    let disk = SimulatedDisk::new();
    let root = Path::new(ROOT);
    for dir in ["/p", ROOT] {
        disk.create_dir(Path::new(dir)).unwrap();
        disk.sync_dir(Path::new(dir).parent().unwrap()).unwrap();
    }
    let new = new_task(prompt.clone(), format, phases);
    let mut clock = 0;
    let mut now = || {
        clock += 1000;
        Timestamp::from_unix_millis(clock)
    };
    let folder = disk.folder(root);
    let made = WorkArea::create(&disk, folder.as_ref(), root, new, None, now());
    let (mut area, mut task) = made.unwrap();
    let mut parser = Parser::new(
        format,
        &Setup {
            prompt,
            is_resumed: false,
        },
    );
    let mut inputs = vec![TaskInput::Start];
    let mut events: Vec<_> = written
        .chunks(7)
        .flat_map(|piece| parser.push(piece))
        .collect();
    events.extend(parser.end());
    let run = 1;
    inputs.extend(
        events
            .into_iter()
            .map(|event| TaskInput::Told { run, event }),
    );
    inputs.push(TaskInput::Exited {
        run,
        code: Some(exit),
    });
    let mut effects = Vec::new();
    for input in inputs {
        let output = task.handle(input, now()).unwrap();
        area.write(&disk, task.state(), &output.facts).unwrap();
        effects.extend(output.effects);
    }
    let disk = disk.after_crash(Crash::LoseUnsynced);
    let (_, loaded, _) = WorkArea::load(&disk, root).unwrap();
    assert_eq!(loaded.state(), task.state());
    (loaded.state().clone(), effects)
}

#[test]
fn proto_3_proto_4_a_run_of_claude_asks_and_completes_a_phase() {
    let (state, effects) = after_run("claude.jsonl", Format::ClaudeStreamJson, 4, 0);
    assert_eq!(
        state.status(),
        Status::WaitingReview,
        "a completion is more urgent"
    );
    let ids: Vec<&str> = state.open_asks().map(|(id, _)| id).collect();
    assert_eq!(
        ids,
        ["q-0001"],
        "the permission is withdrawn: its run is over"
    );
    let taken = state.tokens.total();
    assert_eq!((taken.usage.output_tokens, taken.cost.0), (420, 61_235));
    assert!(state.run.is_none());
    let checkpoints = effects.iter().filter_map(|effect| match effect {
        TaskEffect::MakeCheckpoint { kind } => Some(*kind),
        _ => None,
    });
    assert_eq!(
        checkpoints.collect::<Vec<_>>(),
        ["user_question", "phase_completion"]
    );
}

#[test]
fn task_7_a_rate_limit_of_each_program_is_waited_for() {
    for (name, format) in [
        ("claude_limit.jsonl", Format::ClaudeStreamJson),
        ("codex_limit.jsonl", Format::CodexJson),
    ] {
        let (state, effects) = after_run(name, format, 1, 1);
        assert_eq!(state.status(), Status::Running, "{name}");
        assert!(state.run.is_none(), "{name}");
        assert!(
            effects.contains(&TaskEffect::MakeCheckpoint { kind: "rate_limit" }),
            "{name}"
        );
    }
}

#[test]
fn proto_2_a_run_of_codex_waits_for_its_key() {
    let (state, _) = after_run("codex.jsonl", Format::CodexJson, 1, 0);
    assert_eq!(state.status(), Status::WaitingDependency);
    assert!(state.environment().is_empty());
}

#[test]
fn proto_3_a_run_of_an_agent_of_acp_waits_for_its_answer() {
    let (state, _) = after_run("acp.jsonl", Format::Acp, 1, 0);
    assert_eq!(state.status(), Status::WaitingQuestion);
    assert_eq!(state.open_asks().count(), 1);
}

#[test]
fn proto_5_a_run_of_any_program_ends_by_its_exit_code() {
    let (state, _) = after_run("plain.txt", Format::Plain, 0, 0);
    assert_eq!(state.status(), Status::Completed);
    let (state, effects) = after_run("plain.txt", Format::Plain, 2, 0);
    assert_eq!(state.status(), Status::Running);
    let Some(TaskEffect::StartRun { run: 2, prompt, .. }) = effects.last() else {
        panic!("{effects:?}");
    };
    assert!(
        prompt.contains("Your block PHASE_COMPLETE was refused: phase 2 is not the current"),
        "{prompt}"
    );
    assert!(
        prompt.contains("Your block CUSTOM_TASK_COMPLETE was refused"),
        "{prompt}"
    );
}

/// Runs of one recorded session of the real program, which reports cumulative figures.
#[test]
fn agent_4_a_recorded_session_of_claude_is_counted_once() {
    let recorded =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/cli-agents/tests/recorded");
    let name = "claude-2.1.332.phases-resumed-cumulative-usage.jsonl";
    let written = std::fs::read_to_string(recorded.join(name)).unwrap();
    let mut runs: Vec<String> = Vec::new();
    for line in written.lines() {
        if line.contains("\"subtype\": \"init\"") {
            runs.push(String::new());
        }
        runs.last_mut().unwrap().push_str(&format!("{line}\n"));
    }
    let new = new_task("Build it.".to_owned(), Format::ClaudeStreamJson, 3);
    let (mut task, _) =
        goondan_tasks::machine::Task::create(new, Timestamp::from_unix_millis(0)).unwrap();
    let mut clock = 0;
    let mut handle = |input| {
        clock += 1000;
        task.handle(input, Timestamp::from_unix_millis(clock))
            .unwrap();
        task.state().clone()
    };
    handle(TaskInput::Start);
    let mut state = None;
    for (run, written) in (1..).zip(&runs) {
        let mut parser = Parser::new(Format::ClaudeStreamJson, &Setup::default());
        let mut events = parser.push(written.as_bytes());
        events.extend(parser.end());
        for event in events {
            handle(TaskInput::Told { run, event });
        }
        let after = handle(TaskInput::Exited { run, code: Some(0) });
        let asks: Vec<String> = after.open_asks().map(|(id, _)| id.to_owned()).collect();
        for id in asks {
            let input = if id.starts_with('q') {
                let text = "engineers".to_owned();
                TaskInput::Answer { id, text }
            } else {
                let provision = goondan_tasks::fact::Provision::Secret("vault:1".to_owned());
                TaskInput::Provide { id, provision }
            };
            handle(input);
        }
        state = Some(match (after.review(), run) {
            (Some(phase), 2) => {
                let text = "Shorter.".to_owned();
                handle(TaskInput::Rework {
                    phase,
                    text,
                    comments: Vec::new(),
                })
            }
            (Some(phase), _) => handle(TaskInput::Approve {
                phase,
                delivery: Delivery::None,
            }),
            (None, _) => after,
        });
    }
    let total = state.unwrap().tokens.total();
    assert_eq!(
        (total.usage.input_tokens, total.usage.output_tokens),
        (21_600, 990)
    );
    assert_eq!(total.cost.0, 116_280);
}
