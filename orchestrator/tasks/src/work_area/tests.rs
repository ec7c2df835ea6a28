use goondan_cli_agents::blocks::{Block, Progress, UserQuestion};
use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_cli_agents::{CliEvent, RunResult};
use goondan_durable::disk::{CallFault, Crash, NodeKind, SimulatedDisk};
use goondan_protocol::task::{PlanStep, PlanStepState};
use goondan_protocol::usage::{MicroUsd, Usage};
use goondan_trees::Excludes;
use goondan_trees::freeze::{EntryPolicy, Options, freeze};
use goondan_trees::limits::Limits;

use super::*;
use crate::fact::{Budget, Runtime, TaskId};
use crate::machine::TaskInput;
use crate::state::Status;

const ROOT: &str = "/p/task_20240215_abc123";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_707_991_200_000 + seconds * 1000)
}

/// The time of an input, by its number.
fn after(number: usize) -> Timestamp {
    at(i64::try_from(number).unwrap() + 1)
}

fn new_task() -> NewTask {
    NewTask {
        runtime: Runtime::Cli,
        task_id: TaskId::try_from("task_20240215_abc123".to_owned()).unwrap(),
        title: "AI Todo App 개발".to_owned(),
        kind: "create_app".to_owned(),
        description: "Build it.".to_owned(),
        total_phases: 4,
        budget: Budget::default(),
        agent: "coder".parse().unwrap(),
        tells_result: true,
        created_by: None,
        source: Default::default(),
        checks: Default::default(),
        fallbacks: Vec::new(),
        model: None,
    }
}

fn empty() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in ["/p", ROOT, "/guide"] {
        disk.create_dir(Path::new(dir)).unwrap();
        disk.sync_dir(Path::new(dir).parent().unwrap()).unwrap();
    }
    disk.plant(Path::new("/guide/planning.md"), b"Plan well.")
        .unwrap();
    disk
}

/// Copies a guide as trees are copied.
#[derive(Debug)]
struct GuideFolder(Box<dyn Folder>);

impl CopyGuide for GuideFolder {
    fn copy(
        &self,
        into: &dyn Folder,
        name: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let options = Options {
            excludes: Excludes::new::<&str>(&[])?,
            outside_links: EntryPolicy::LeaveOut,
            special: EntryPolicy::LeaveOut,
            limits: Limits::default(),
        };
        freeze(self.0.as_ref(), into, name, &options)?;
        Ok(())
    }
}

fn create(disk: &SimulatedDisk) -> Result<(WorkArea, Task), WorkAreaError> {
    let folder = disk.folder(Path::new(ROOT));
    let guide = Guide {
        path: Path::new("/guide"),
        copier: &GuideFolder(disk.folder(Path::new("/guide"))),
    };
    let (root, new) = (Path::new(ROOT), new_task());
    WorkArea::create(disk, folder.as_ref(), root, new, Some(guide), at(0))
}

fn output_event(event: CliEvent) -> TaskInput {
    TaskInput::Told { run: 1, event }
}

/// A life of a task up to its first question.
fn life() -> Vec<TaskInput> {
    let usage = Usage {
        input_tokens: 1200,
        output_tokens: 600,
        ..Usage::default()
    };
    let question: UserQuestion = serde_json::from_value(
        serde_json::json!({"category": "business", "question": "For whom?", "required": true}),
    )
    .unwrap();
    vec![
        TaskInput::Start,
        TaskInput::Spawned {
            run: 1,
            pid: 12345,
            start_time: 99,
        },
        output_event(CliEvent::Session {
            id: "s-1".to_owned(),
            model: Some("claude-sonnet-4-5".to_owned()),
        }),
        output_event(CliEvent::Usage(UsageReport {
            counter: Counter::Run,
            usage,
            cost: Some(MicroUsd(40_000)),
            session: None,
        })),
        output_event(CliEvent::Block(Block::UserQuestion(question))),
        output_event(CliEvent::Result(RunResult {
            is_ok: true,
            text: String::new(),
            denied: Vec::new(),
        })),
        TaskInput::Exited {
            run: 1,
            code: Some(0),
        },
        TaskInput::Answer {
            id: "q-0001".to_owned(),
            text: "For all.".to_owned(),
        },
    ]
}

fn live(
    disk: &SimulatedDisk,
    area: &mut WorkArea,
    task: &mut Task,
) -> Result<(), (usize, WorkAreaError)> {
    for (number, input) in life().into_iter().enumerate() {
        let output = task.handle(input, after(number)).unwrap();
        area.write(disk, task.state(), &output.facts)
            .map_err(|error| (number, error))?;
    }
    Ok(())
}

fn text(disk: &SimulatedDisk, name: &str) -> String {
    let mut file = disk.open_read(&Path::new(ROOT).join(name)).unwrap();
    String::from_utf8(read_all(file.as_mut(), 1 << 20).unwrap()).unwrap()
}

#[test]
fn task_1_the_directory_alone_gives_the_task_back() {
    let disk = empty();
    let (mut area, mut task) = create(&disk).unwrap();
    live(&disk, &mut area, &mut task).unwrap();
    drop(area);
    let (_, loaded, findings) = WorkArea::load(&disk, Path::new(ROOT)).unwrap();
    assert_eq!(loaded.state(), task.state());
    assert!(findings.is_empty());
    assert_eq!(loaded.state().status(), Status::Running);
    // In another directory, and without the views.
    let moved = Path::new("/p/moved");
    disk.rename(Path::new(ROOT), moved).unwrap();
    for name in views::NAMES {
        disk.remove_file(&moved.join(name)).unwrap();
    }
    let (_, loaded, _) = WorkArea::load(&disk, moved).unwrap();
    assert_eq!(loaded.state(), task.state());
    let mut file = disk.open_read(&moved.join(".metadata/task.json")).unwrap();
    let view = String::from_utf8(read_all(file.as_mut(), 1 << 20).unwrap()).unwrap();
    assert!(view.contains("\"workingDir\": \"/p/moved\""), "{view}");
}

#[test]
fn task_2_the_work_area_has_its_parts() {
    let disk = empty();
    create(&disk).unwrap();
    for directory in DIRECTORIES.iter().chain([&INTEGRATION_TESTS]) {
        assert!(
            disk.stat(&Path::new(ROOT).join(directory))
                .unwrap()
                .is_some(),
            "{directory}"
        );
    }
    for log in LOG_FILES {
        assert_eq!(text(&disk, log.path()), "", "it exists from the start");
    }
    let folder = disk.folder(Path::new(ROOT));
    assert_eq!(folder.read_link(Path::new(GUIDE)).unwrap(), "/guide");
    assert!(matches!(create(&disk), Err(WorkAreaError::Taken(_))));
}

#[test]
fn task_3_task_4_task_6_files_match_the_requirement_examples() {
    let disk = empty();
    let (mut area, mut task) = create(&disk).unwrap();
    live(&disk, &mut area, &mut task).unwrap();
    let json =
        |name: &str| -> serde_json::Value { serde_json::from_str(&text(&disk, name)).unwrap() };
    let expected = serde_json::json!({
        "id": "task_20240215_abc123", "title": "AI Todo App 개발", "type": "create_app",
        "status": "running", "description": "Build it.",
        "createdAt": "2024-02-15T10:00:00.000Z", "startedAt": "2024-02-15T10:00:01.000Z",
        "updatedAt": "2024-02-15T10:00:08.000Z", "currentPhase": 1, "totalPhases": 4,
        "workingDir": ROOT,
    });
    assert_eq!(json(".metadata/task.json"), expected);
    let expected = serde_json::json!({
        "taskId": "task_20240215_abc123", "status": "running", "currentPhase": 1,
        "currentStep": null, "progress": 0, "tokensUsed": 1800,
        "lastUpdate": "2024-02-15T10:00:08.000Z", "blockedBy": null, "checkpointId": null,
        "metadata": {
            "model": "claude-sonnet-4-5", "startTime": "2024-02-15T10:00:01.000Z",
            "completedSteps": [], "pendingSteps": [],
        },
    });
    assert_eq!(json(".metadata/agent-state.json"), expected);
    let taken = serde_json::json!(
        {"input": 1200, "output": 600, "cost": 0.04, "cacheRead": 0, "cacheWrite": 0}
    );
    let mut entry = taken.clone();
    entry["timestamp"] = "2024-02-15T10:00:04.000Z".into();
    let expected = serde_json::json!({"total": taken, "byPhase": {"1": taken}, "history": [entry]});
    assert_eq!(json(".metadata/tokens.json"), expected);
}

#[test]
fn task_4_plan_lists_finished_and_remaining_phases() {
    let disk = empty();
    let (mut area, mut task) = create(&disk).unwrap();
    live(&disk, &mut area, &mut task).unwrap();
    let mut tell = |event: CliEvent| {
        let event = TaskInput::Told { run: 2, event };
        let output = task.handle(event, after(20)).unwrap();
        area.write(&disk, task.state(), &output.facts).unwrap();
        let view: serde_json::Value =
            serde_json::from_str(&text(&disk, ".metadata/agent-state.json")).unwrap();
        (output.facts.len(), view)
    };
    let document = Progress::Document("docs/idea.md".to_owned());
    let (_, view) = tell(CliEvent::Progress(document));
    assert_eq!(view["metadata"]["completedSteps"][0], "docs/idea.md");
    let step = |title: &str, state| PlanStep {
        title: title.to_owned(),
        state,
    };
    let plan = vec![
        step("Read", PlanStepState::Completed),
        step("Write", PlanStepState::InProgress),
        step("Check", PlanStepState::Pending),
    ];
    let (_, view) = tell(CliEvent::Plan(plan.clone()));
    assert_eq!(view["currentStep"], "Write");
    let steps = &view["metadata"];
    assert_eq!(steps["completedSteps"], serde_json::json!(["Read"]));
    assert_eq!(steps["pendingSteps"], serde_json::json!(["Check"]));
    let (facts, _) = tell(CliEvent::Plan(plan));
    assert_eq!(facts, 0, "known content is not written again");
}

#[test]
fn task_5_the_history_has_every_event_in_order() {
    let disk = empty();
    let (mut area, mut task) = create(&disk).unwrap();
    live(&disk, &mut area, &mut task).unwrap();
    let history = text(&disk, HISTORY);
    let lines: Vec<serde_json::Value> = history
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: Vec<&str> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    let expected = [
        "task_created",
        "phase_started",
        "run_requested",
        "agent_started",
        "prompt_taken",
        "session_opened",
        "usage_recorded",
        "question_asked",
        "result_reported",
        "run_ended",
        "question_answered",
        "run_requested",
    ];
    assert_eq!(events, expected);
    assert!(
        lines
            .iter()
            .all(|line| line["timestamp"].is_string() && line["data"].is_object())
    );
    assert_eq!(lines[3]["data"]["pid"], 12345);
    area.log_block(
        &disk,
        &Block::CustomTaskComplete(goondan_cli_agents::blocks::CustomTaskComplete {
            documents: Vec::new(),
        }),
        at(9),
    )
    .unwrap();
    let line = text(&disk, ".logs/protocols.jsonl");
    assert_eq!(
        line,
        "{\"timestamp\":\"2024-02-15T10:00:09.000Z\",\"protocol\":\"CUSTOM_TASK_COMPLETE\",\"data\":{\"documents\":[]}}\n"
    );
}

#[test]
fn task_1_a_crash_at_every_call_leaves_the_task_before_or_after() {
    // The states after each input.
    let disk = empty();
    let (_, mut task) = create(&disk).unwrap();
    let mut states = vec![task.state().clone()];
    for (number, input) in life().into_iter().enumerate() {
        task.handle(input, after(number)).unwrap();
        states.push(task.state().clone());
    }
    let mut crashes = 1;
    loop {
        let disk = empty();
        disk.crash_at(disk.calls() + crashes);
        let created = create(&disk);
        let is_created = created.is_ok();
        let lived = created
            .ok()
            .map(|(mut area, mut task)| live(&disk, &mut area, &mut task));
        let is_whole = matches!(lived, Some(Ok(())));
        for crash in [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::ProcessOnly,
            Crash::Subset(crashes),
        ] {
            let disk = disk.after_crash(crash);
            let is_unfinished = WorkArea::is_unfinished(&disk, Path::new(ROOT)).unwrap();
            let loaded = match WorkArea::load(&disk, Path::new(ROOT)) {
                Err(WorkAreaError::NoTask(_)) => {
                    assert!(!is_created, "the task is gone: call {crashes}, {crash:?}");
                    assert!(is_unfinished, "it is none: call {crashes}, {crash:?}");
                    create(&disk).unwrap();
                    continue;
                }
                loaded => loaded.unwrap().1,
            };
            assert!(!is_unfinished, "there is one: call {crashes}, {crash:?}");
            let known = match &lived {
                None => 0,
                Some(Ok(())) => states.len() - 1,
                Some(Err((number, _))) => *number,
            };
            let updated = loaded.state().updated_at;
            let is_between =
                |pair: &[State]| pair[0].updated_at <= updated && updated <= pair[1].updated_at;
            let fits = *loaded.state() == states[known]
                || states.get(known..known + 2).is_some_and(is_between);
            assert!(fits, "call {crashes}, {crash:?}: {:?}", loaded.state());
            let view = text(&disk, ".metadata/task.json");
            assert!(
                view.contains(&format!("\"updatedAt\": \"{updated}\"")),
                "the view is behind"
            );
        }
        if is_whole {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 50, "only {crashes} crashes");
}

#[test]
fn task_1_a_history_that_was_edited_is_refused() {
    let disk = empty();
    let (mut area, mut task) = create(&disk).unwrap();
    live(&disk, &mut area, &mut task).unwrap();
    let whole = text(&disk, HISTORY);
    for (from, to) in [("For whom?", "For them?"), ("12345", "12346")] {
        let edited = whole.replacen(from, to, 1);
        disk.plant(&Path::new(ROOT).join(HISTORY), edited.as_bytes())
            .unwrap();
        let error = WorkArea::load(&disk, Path::new(ROOT)).unwrap_err();
        assert!(matches!(error, WorkAreaError::Damaged { .. }), "{error}");
    }
    let without: String = whole
        .lines()
        .filter(|line| !line.contains("run_ended"))
        .map(|line| format!("{line}\n"))
        .collect();
    disk.plant(&Path::new(ROOT).join(HISTORY), without.as_bytes())
        .unwrap();
    assert!(matches!(
        WorkArea::load(&disk, Path::new(ROOT)),
        Err(WorkAreaError::Damaged { .. })
    ));
    disk.plant(&Path::new(ROOT).join(HISTORY), b"").unwrap();
    assert!(matches!(
        WorkArea::load(&disk, Path::new(ROOT)),
        Err(WorkAreaError::NoTask(_))
    ));
}

#[test]
fn task_2_the_guide_is_copied_where_no_link_can_be_made() {
    let guide = Path::new(GUIDE);
    let mut copies = 0;
    for call in 1..200 {
        let disk = empty();
        let eperm = 1;
        disk.fail_at(disk.calls() + call, CallFault::Errno(eperm), false);
        if create(&disk).is_err() {
            // A different call failed: the rest is created now, unless only a view was missing.
            let again = create(&disk);
            assert!(matches!(again, Ok(_) | Err(WorkAreaError::Taken(_))));
        }
        // The checks below must not run into an injected fault.
        let disk = disk.after_crash(Crash::ProcessOnly);
        let folder = disk.folder(Path::new(ROOT));
        if folder.look(guide).unwrap().unwrap().kind == NodeKind::Directory {
            copies += 1;
            assert_eq!(text(&disk, "guide/planning.md"), "Plan well.");
        }
        assert!(WorkArea::load(&disk, Path::new(ROOT)).is_ok());
    }
    assert_eq!(
        copies, 1,
        "only a link that cannot be made is a reason to copy"
    );
}

#[test]
fn task_1_a_link_in_place_of_a_directory_is_not_followed() {
    use goondan_durable::disk::RealDisk;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("t");
    let elsewhere = dir.path().join("elsewhere");
    for made in [&root, &elsewhere] {
        std::fs::create_dir(made).unwrap();
    }
    let folder = goondan_trees::RealFolder::open(&root).unwrap();
    let created = WorkArea::create(&RealDisk, &folder, &root, new_task(), None, at(0));
    let (area, _) = created.unwrap();
    area.log(&RealDisk, Log::Stdout, b"here").unwrap();
    for name in [".logs", ".metadata", ".checkpoints"] {
        let (path, aside) = (root.join(name), dir.path().join("aside"));
        RealDisk.rename(&path, &aside).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        if name == ".logs" {
            area.log(&RealDisk, Log::Stdout, b"there").unwrap_err();
        }
        let refused = WorkArea::load(&RealDisk, &root).unwrap_err().to_string();
        assert!(refused.contains("it is not a directory"), "{refused}");
        std::fs::remove_file(&path).unwrap();
        RealDisk.rename(&aside, &path).unwrap();
    }
    assert!(
        std::fs::read_dir(&elsewhere).unwrap().next().is_none(),
        "something was written elsewhere"
    );
    WorkArea::load(&RealDisk, &root).unwrap();
}
