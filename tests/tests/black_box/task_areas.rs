//! Contents and locations of task work areas (`TASK-1`, `TASK-2`, `PROTO-4`, `CKPT-4`).

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::tasks::{area, example, new_shop, wait_for};

/// Example task of the page that defines the layout.
const PLAIN: &str = "task_20240215_abc123";

fn shown(home: &Home, task: &str) -> Value {
    home.gdn_json(&["task", "show", task])
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn task_2_a_new_task_has_a_dated_id_and_all_its_logs() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    let new = ["task", "new", "Shop", "--description", "x"];
    let ids: Vec<String> = (0..2)
        .map(|_| {
            let made = home.gdn_json(&new);
            made["taskId"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_ne!(ids[0], ids[1]);
    for id in &ids {
        let parts: Vec<&str> = id.split('_').collect();
        let [word, day, random] = parts[..] else {
            panic!("{id}");
        };
        let is_day = day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit());
        assert!(word == "task" && is_day && random.len() == 6, "{id}");
        let logs = home.workspace_dir().join("tasks").join(id).join(".logs");
        for log in ["agent.log", "stdout.log", "stderr.log", "protocols.jsonl"] {
            assert!(logs.join(log).is_file(), "{log}");
        }
        for line in lines(&logs.join("agent.log")) {
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            assert_eq!(text("taskId"), *id);
            assert_eq!(
                (text("level"), text("message")),
                ("info".into(), "Task created: Shop".into())
            );
            assert!(text("timestamp").ends_with('Z'));
        }
        home.gdn(&["task", "logs", id])
            .exits(0)
            .prints(&[" info  Task created: Shop"]);
    }
}

/// Copies the examples verbatim.
fn copy_plain(to: &Path) {
    let from =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../orchestrator/tasks/tests/fixtures/plain");
    for file in [
        ".metadata/task.json",
        ".metadata/agent-state.json",
        ".metadata/history.jsonl",
        ".metadata/tokens.json",
        ".checkpoints/latest.json",
        ".checkpoints/checkpoint_002/metadata.json",
        ".logs/agent.log",
        ".logs/stdout.log",
        ".logs/stderr.log",
        ".logs/protocols.jsonl",
    ] {
        let path = to.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(from.join(file), path).unwrap();
    }
    fs::create_dir_all(to.join("docs/planning")).unwrap();
    fs::write(to.join("docs/planning/01_idea.md"), "An idea.\n").unwrap();
}

#[test]
fn task_2_the_examples_of_the_source_are_imported() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    let outside = home.path().join("projects").join(PLAIN);
    copy_plain(&outside);
    let path = outside.to_str().unwrap();
    home.gdn(&["task", "import", path]).exits(0);
    let task = shown(&home, PLAIN);
    assert_eq!(task["info"]["status"], "waiting_dependency", "{task}");
    assert_eq!(task["info"]["title"], "AI Todo App 개발");
    assert_eq!(task["info"]["tokens"], 12_500);
    assert_eq!(task["info"]["progress"], 35);
    assert_eq!(task["info"]["agent"], "writer");
    assert_eq!(task["asks"][0]["text"], "OPENAI_API_KEY");
    assert_eq!(task["step"], "Creating persona document");
    // Its logs and its checkpoint are read, too.
    home.gdn(&["task", "logs", PLAIN]).exits(0).prints(&[
        "info  Agent started",
        "warn  Dependency requested: OPENAI_API_KEY",
    ]);
    let listed = home.gdn_json(&["task", "checkpoints", PLAIN]);
    let checkpoint = &listed["checkpoints"][0];
    assert_eq!(checkpoint["checkpointId"], "checkpoint_002");
    assert_eq!(
        (&checkpoint["type"], &checkpoint["phase"]),
        (&"periodic".into(), &1.into())
    );
    assert!(
        checkpoint["damaged"]
            .as_str()
            .unwrap()
            .contains("snapshot.tar.gz")
    );
    // The example lacks the archive of its checkpoint, but nothing was lost here.
    home.gdn(&["verify"]).exits(0);
    let restore = ["task", "restore", PLAIN, "checkpoint_002", "--yes"];
    home.gdn(&restore)
        .exits(15)
        .tells(&["its archive is missing"]);
    // It continues: once its dependency is provided, its agent runs.
    home.write("key", "sk-never-to-be-seen-4711");
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let mut provide = home.command(&gdn, &["task", "provide", PLAIN]);
    provide.stdin(fs::File::open(home.path().join("key")).unwrap());
    assert!(provide.status().unwrap().success());
    wait_until("its agent asks", || {
        shown(&home, PLAIN)["info"]["status"] == "waiting_question"
    });
}

/// Packs a named checkpoint of the plain format, like `tar`.
fn pack_checkpoint(area: &Path) {
    let checkpoint = area.join(".checkpoints/checkpoint_002");
    let packed = std::process::Command::new("tar")
        .args(["--exclude=./.checkpoints", "--exclude=./.logs"])
        .arg("-czf")
        .arg(checkpoint.join("snapshot.tar.gz"))
        .args(["-C", area.to_str().unwrap(), "."])
        .status();
    assert!(packed.unwrap().success());
    let path = checkpoint.join("metadata.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut metadata: Value = serde_json::from_str(&text).unwrap();
    metadata["name"] = "first draft".into();
    metadata["checksum"] = "sha256:of another form".into();
    fs::write(&path, metadata.to_string()).unwrap();
}

#[test]
fn ckpt_4_plain_format_checkpoint_is_restored_by_name() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    let outside = home.path().join("projects").join(PLAIN);
    copy_plain(&outside);
    pack_checkpoint(&outside);
    home.gdn(&["task", "import", outside.to_str().unwrap()])
        .exits(0);
    home.gdn(&["verify"]).exits(0);
    let area = home.workspace_dir().join("tasks").join(PLAIN);
    let idea = area.join("docs/planning/01_idea.md");
    let later = area.join("docs/planning/02_market.md");
    fs::write(&idea, "Another one.\n").unwrap();
    fs::write(&later, "A market.\n").unwrap();
    home.gdn(&["task", "restore", PLAIN, "first draft", "--yes"])
        .exits(0);
    assert_eq!(fs::read_to_string(&idea).unwrap(), "An idea.\n");
    assert!(!later.exists());
    home.gdn(&["verify"]).exits(0);
}

/// An agent that reports two documents, but wrote one.
const BOASTER: &str = "#!/bin/sh
cat > /dev/null
mkdir -p docs/planning
echo idea > docs/planning/01_idea.md
cat <<'END'
=== PHASE 1 COMPLETE ===
Documents created:
- docs/planning/01_idea.md
- docs/planning/02_market.md
END
";

#[test]
fn proto_4_missing_documents_are_flagged_at_the_review() {
    let home = example();
    home.write_program("project/agent.sh", BOASTER);
    let daemon = Daemon::serving(&home);
    let new = [
        "task",
        "new",
        "Shop",
        "--id",
        "shop",
        "--description",
        "x",
        "--start",
    ];
    home.gdn(&[&new[..], &["--phases", "1"]].concat()).exits(0);
    wait_for(&home, "waiting_review");
    let missing = "docs/planning/02_market.md";
    wait_until("the documents are looked for", || {
        shown(&home, "shop")["missingDocuments"] == serde_json::json!([missing])
    });
    let task = shown(&home, "shop");
    assert_eq!(task["info"]["progress"], 100, "the phase is complete");
    let warning = task["info"]["warning"].as_str().unwrap();
    assert!(
        warning.contains("do not exist") && warning.contains(missing),
        "{warning}"
    );
    let page = home.gdn(&["task", "show", "shop"]).exits(0);
    let page = page.prints(&["02_market.md  does not exist"]);
    assert!(!page.stdout.contains("01_idea.md  does"), "{page:?}");
    let listed = home.gdn(&["task", "list"]).exits(0);
    assert!(listed.stderr.contains(missing), "{listed:?}");
    // A new daemon also knows it, and checks again.
    drop(daemon.stop());
    fs::write(area(&home).join(missing), "market").unwrap();
    let _daemon = Daemon::serving(&home);
    wait_until("they are all there", || {
        shown(&home, "shop").get("missingDocuments").is_none()
    });
    home.gdn(&["task", "approve", "shop"]).exits(0);
    wait_for(&home, "completed");
    assert_eq!(shown(&home, "shop")["info"]["progress"], 100);
}

#[test]
fn ckpt_4_a_checkpoint_is_restored_by_its_name() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    new_shop(&home, &[]);
    let file = area(&home).join("src/shop.py");
    for content in ["one", "two"] {
        fs::write(&file, content).unwrap();
        let make = ["task", "checkpoint", "shop", "--name", "before rework"];
        home.gdn(&make).exits(0);
    }
    fs::write(&file, "three").unwrap();
    let restored = home.gdn_json(&["task", "restore", "shop", "before rework", "--yes"]);
    assert_eq!(
        restored["checkpointId"], "checkpoint_002",
        "the newest of them"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "two");
    home.gdn(&["task", "restore", "shop", "before reword", "--yes"])
        .exits(5)
        .tells(&["`before reword`", "gdn task checkpoints shop"]);
    home.gdn(&["task", "checkpoint", "shop", "--name", "checkpoint_009"])
        .exits(2)
        .tells(&["cannot be a name"]);
}

#[test]
fn task_1_work_areas_lie_in_the_tasks_root() {
    let home = example();
    let tasks = home.path().join("elsewhere/tasks");
    home.write(
        "state/config.json",
        &format!("{{\"tasksRoot\": \"{}\"}}", tasks.display()),
    );
    let daemon = Daemon::serving(&home);
    let new = [
        "task",
        "new",
        "Shop",
        "--id",
        "shop",
        "--description",
        "Build.",
        "--start",
    ];
    home.gdn(&[&new[..], &["--phases", "3"]].concat()).exits(0);
    // Its agent is confined to it, and asks.
    wait_for(&home, "waiting_question");
    let task = shown(&home, "shop");
    let id = task["info"]["workspaceId"].as_str().unwrap();
    let area = tasks.join(id).join("shop");
    assert_eq!(task["workArea"], area.to_str().unwrap());
    assert!(area.join(".metadata/history.jsonl").is_file());
    assert!(!home.workspace_dir().join("tasks").exists());
    home.gdn(&["verify"]).exits(0);
    drop(daemon.stop());
    let _daemon = Daemon::serving(&home);
    wait_for(&home, "waiting_question");
    home.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    home.gdn(&["task", "rm", "shop", "--yes"]).exits(0);
    let backup = tasks.join("_backups/shop");
    assert!(backup.join(".metadata/history.jsonl").is_file() && !area.exists());
    home.gdn(&["task", "import", backup.to_str().unwrap()])
        .exits(0);
    assert!(area.is_dir());
    // Verification data exists for the imported task, too.
    fs::write(area.join(".metadata/history.jsonl"), "{\"damaged\n").unwrap();
    home.gdn(&["verify"]).exits(15);
}

#[test]
fn task_1_the_environment_names_the_tasks_root() {
    let home = example();
    let configured = home.path().join("configured");
    home.write(
        "state/config.json",
        &format!("{{\"tasksRoot\": \"{}\"}}", configured.display()),
    );
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let run_with = |tasks: &Path| {
        let mut run = home.command(&gdn, &["run"]);
        let output = run.env("GOONDAN_TASKS_ROOT", tasks).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), printed)
    };
    let tasks = home.path().join("named");
    fs::create_dir(&tasks).unwrap();
    let set_mode = |mode| fs::set_permissions(&tasks, fs::Permissions::from_mode(mode));
    set_mode(0o777).unwrap();
    let (code, told) = run_with(&tasks);
    assert_eq!(code, Some(13), "{told}");
    for part in [
        "can be written by other users",
        "`tasksRoot` in config.json",
    ] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    set_mode(0o700).unwrap();
    let (code, told) = run_with(&tasks);
    assert_eq!(code, Some(0), "{told}");
    new_shop(&home, &[]);
    let task = shown(&home, "shop");
    let id = task["info"]["workspaceId"].as_str().unwrap();
    let area = tasks.join(id).join("shop");
    assert!(area.join(".metadata/history.jsonl").is_file());
    assert!(!configured.exists());
    home.gdn(&["shutdown"]).exits(0);
    // The hint for a directory that contains the project names the right setting.
    let (code, told) = run_with(&home.project());
    assert_ne!(code, Some(0), "{told}");
    assert!(told.contains("the tasks directory `"), "{told}");
    assert!(
        told.contains("`tasksRoot`") && !told.contains("--state-root"),
        "{told}"
    );
    home.gdn(&["shutdown"]).exits(0);
}

#[test]
fn msg_11_times_of_what_was_never_readable_are_left_out() {
    let home = example();
    let daemon = Daemon::serving(&home);
    new_shop(&home, &[]);
    home.gdn(&["task", "checkpoint", "shop"]).exits(0);
    let metadata = area(&home).join(".checkpoints/checkpoint_001/metadata.json");
    fs::remove_file(metadata).unwrap();
    let listed = home.gdn_json(&["task", "checkpoints", "shop"]);
    let checkpoint = &listed["checkpoints"][0];
    assert!(checkpoint["damaged"].is_string(), "{checkpoint}");
    assert_eq!(checkpoint.get("createdAt"), None);

    drop(daemon.stop());
    fs::write(area(&home).join(".metadata/history.jsonl"), "{\"damaged\n").unwrap();
    let _daemon = Daemon::serving(&home);
    let listed = home.gdn_json(&["task", "list", "--all"]);
    let task = &listed["tasks"][0];
    assert!(task["damaged"].is_string(), "{task}");
    assert_eq!((task.get("createdAt"), task.get("updatedAt")), (None, None));
    let page = home.gdn(&["task", "list", "--all"]).exits(0).stdout;
    assert!(!page.contains("ago"), "{page}");
}
