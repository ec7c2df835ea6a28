use goondan_cli_agents::blocks::{Block, DependencyKind};
use goondan_durable::disk::SimulatedDisk;

use super::*;
use crate::state::{PersonInputKind, State};
use crate::work_area::WorkArea;

const ROOT: &str = "/p";

/// Verbatim examples of the page that defines the layout.
const FILES: [(&str, &str); 4] = [
    (
        HISTORY,
        include_str!("../../tests/fixtures/plain/.metadata/history.jsonl"),
    ),
    (
        ".metadata/task.json",
        include_str!("../../tests/fixtures/plain/.metadata/task.json"),
    ),
    (
        ".metadata/agent-state.json",
        include_str!("../../tests/fixtures/plain/.metadata/agent-state.json"),
    ),
    (
        ".metadata/tokens.json",
        include_str!("../../tests/fixtures/plain/.metadata/tokens.json"),
    ),
];

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in ["", ".metadata", ".checkpoints", ".logs"] {
        disk.create_dir(&Path::new(ROOT).join(dir)).unwrap();
    }
    for (name, content) in FILES {
        disk.plant(&Path::new(ROOT).join(name), content.as_bytes())
            .unwrap();
    }
    disk
}

fn worker() -> PlainWorker {
    PlainWorker {
        agent: "coder".parse().unwrap(),
        runtime: Runtime::Cli,
        tells_result: true,
    }
}

fn read(disk: &SimulatedDisk) -> Option<PlainArea> {
    PlainArea::read(disk, Path::new(ROOT)).unwrap()
}

fn imported(disk: &SimulatedDisk) -> (State, Vec<String>) {
    let translated = read(disk).unwrap().translated(worker());
    translated.write(disk, Path::new(ROOT)).unwrap();
    let (_, task, findings) = WorkArea::load(disk, Path::new(ROOT)).unwrap();
    assert_eq!(findings, []);
    (task.state().clone(), translated.left_out)
}

fn view(disk: &SimulatedDisk, name: &str) -> Value {
    read_file(disk, &Path::new(ROOT).join(name))
        .unwrap()
        .unwrap()
}

#[test]
fn task_2_plain_format_is_imported_completely() {
    let disk = disk();
    let before: Vec<Value> = FILES[1..]
        .iter()
        .map(|(name, _)| view(&disk, name))
        .collect();
    let (state, left_out) = imported(&disk);
    assert_eq!(left_out, [""; 0]);
    let open: Vec<(&str, &PersonInputKind)> =
        state.open_asks().map(|(id, ask)| (id, &ask.what)).collect();
    let [("d-0001", PersonInputKind::Dependency(request, None))] = &open[..] else {
        panic!("{open:?}");
    };
    assert_eq!(request.name, "OPENAI_API_KEY");
    assert_eq!(request.kind, DependencyKind::ApiKey);
    assert!(request.required && state.run.is_none());
    assert_eq!(state.documents, ["docs/planning/01_idea.md"]);

    let [task, agent, tokens] = &before[..] else {
        panic!("three files");
    };
    let now = view(&disk, ".metadata/task.json");
    for field in [
        "id",
        "title",
        "type",
        "description",
        "createdAt",
        "startedAt",
        "updatedAt",
    ] {
        assert_eq!(now[field], task[field], "{field}");
    }
    assert_eq!(now["totalPhases"], 4);
    assert_eq!(now["status"], "waiting_dependency");
    assert_eq!(now["workingDir"], ROOT);
    let now = view(&disk, ".metadata/agent-state.json");
    for field in [
        "taskId",
        "currentPhase",
        "currentStep",
        "progress",
        "tokensUsed",
        "checkpointId",
    ] {
        assert_eq!(now[field], agent[field], "{field}");
    }
    for field in ["model", "startTime", "completedSteps", "pendingSteps"] {
        assert_eq!(now["metadata"][field], agent["metadata"][field], "{field}");
    }
    let now = view(&disk, ".metadata/tokens.json");
    let part = |of: &Value, field: &str| of[field].as_f64().unwrap();
    for field in ["input", "output", "cost"] {
        let same = |now: &Value, came: &Value| (part(now, field) - part(came, field)).abs() < 1e-9;
        assert!(same(&now["total"], &tokens["total"]), "{now}");
        for phase in ["1", "2"] {
            let (now, came) = (&now["byPhase"][phase], &tokens["byPhase"][phase]);
            assert!(same(now, came), "{now}");
        }
    }
    assert!(read(&disk).is_none(), "it is ours now");
    assert_eq!(
        disk.stat(&Path::new(ROOT).join(CAME)).unwrap().unwrap().len,
        FILES[0].1.len() as u64,
        "the history that came is kept"
    );
}

#[test]
fn task_7_plain_task_keeps_its_status_and_names_unknown_events() {
    for (status, expected) in [
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("paused", "paused"),
        ("waiting_review", "waiting_review"),
    ] {
        let disk = disk();
        let name = Path::new(ROOT).join(".metadata/task.json");
        let text = FILES[1].1.replace("in_progress", status);
        disk.plant(&name, text.as_bytes()).unwrap();
        let more = r#"{"timestamp":"2024-02-15T10:26:00.000Z","event":"guide_read","data":{}}"#;
        let history = format!("{}{more}\n", FILES[0].1);
        disk.plant(&Path::new(ROOT).join(HISTORY), history.as_bytes())
            .unwrap();
        let (state, left_out) = imported(&disk);
        assert_eq!(state.status().as_str(), expected);
        assert_eq!(left_out, ["2024-02-15T10:26:00.000Z guide_read"]);
    }
}

#[test]
fn proto_1_protocol_lines_of_the_plain_format_are_read() {
    let lines = include_str!("../../tests/fixtures/plain/.logs/protocols.jsonl");
    let blocks: Vec<Block> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(matches!(
        &blocks[..],
        [Block::DependencyRequest(_), Block::UserQuestion(_)]
    ));
}
