//! Tasks of command-line agents: the example `task`, with a stand-in for the agent, and the state
//! after the daemon is killed at each step (`TASK-1`, `TASK-7`, `PROTO-2` to `PROTO-4`, `CKPT-4`).

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;
use std::path::{Path, PathBuf};

use goondan_tests::processes::{self, Signal};
use goondan_tests::{Daemon, Home, tree, wait_until};
use serde_json::Value;

/// Secret that a person provides, which must not be shown.
const KEY: &str = "sk-never-to-be-seen-4711";

/// The example, copied as by a person.
pub(crate) fn example() -> Home {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/task");
    let read = |path: &str| fs::read_to_string(example.join(path)).unwrap();
    let home = Home::new(&read("goondan.yaml"));
    home.write_program("project/agent.sh", &read("agent.sh"));
    for entry in fs::read_dir(example.join("guide")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        home.write(
            &format!("project/guide/{name}"),
            &read(&format!("guide/{name}")),
        );
    }
    home
}

fn shown(home: &Home) -> Value {
    home.gdn_json(&["task", "show", "shop"])
}

pub(crate) fn wait_for(home: &Home, status: &str) {
    wait_until(&format!("the task is {status}"), || {
        shown(home)["info"]["status"] == status
    });
}

/// As above, while daemons are killed: a daemon that has just started may not have loaded the
/// project yet, and after a lost run there is a question about continuing.
fn settle(home: &Home, status: &str) {
    wait_until(&format!("the task is {status}"), || {
        let ran = home.gdn(&["task", "show", "shop", "--json"]);
        if ran.code != 0 {
            return false;
        }
        let shown = ran.json();
        let mut asks = shown["asks"].as_array().unwrap().iter();
        let lost = asks.find(|ask| ask["text"].as_str().unwrap().ends_with("Go on?"));
        if let Some(lost) = lost {
            let id = lost["id"].as_str().unwrap();
            home.gdn(&["task", "answer", "shop", "go on", "--id", id])
                .exits(0);
        }
        lost.is_none() && shown["info"]["status"] == status
    });
}

pub(crate) fn area(home: &Home) -> PathBuf {
    home.workspace_dir().join("tasks/shop")
}

fn history(home: &Home) -> Vec<Value> {
    let text = fs::read_to_string(area(home).join(".metadata/history.jsonl")).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn count(history: &[Value], event: &str) -> usize {
    let of_kind = history.iter().filter(|line| line["event"] == event);
    of_kind.count()
}

pub(crate) fn new_task(home: &Home) {
    let new = [
        "task",
        "new",
        "Shop",
        "--id",
        "shop",
        "--description",
        "Build a shop.",
        "--phases",
        "3",
        "--start",
    ];
    home.gdn(&new).exits(0).prints(&["shop"]);
}

/// Creates the task `shop` with these arguments.
pub(crate) fn new_shop(home: &Home, arguments: &[&str]) {
    let new = ["task", "new", "Shop", "--id", "shop", "--description", "x"];
    home.gdn(&[&new[..], arguments].concat()).exits(0);
}

/// Provides the key as a person does: on stdin.
fn provide(home: &Home) {
    home.write("key", KEY);
    let gdn = goondan_tests::binaries::bin(goondan_tests::home::GDN);
    let mut command = home.command(&gdn, &["task", "provide", "shop"]);
    command.stdin(fs::File::open(home.path().join("key")).unwrap());
    let output = command.output().unwrap();
    fs::remove_file(home.path().join("key")).unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A person's action in each step, with the task's status before and after it.
pub(crate) type PersonStep = (&'static str, fn(&Home), &'static str);

pub(crate) const STEPS: [PersonStep; 6] = [
    (
        "waiting_question",
        |home| drop(home.gdn(&["task", "answer", "shop", "engineers"]).exits(0)),
        "waiting_review",
    ),
    (
        "waiting_review",
        |home| drop(home.gdn(&["task", "rework", "shop", "Say why."]).exits(0)),
        "waiting_review",
    ),
    (
        "waiting_review",
        |home| drop(home.gdn(&["task", "approve", "shop"]).exits(0)),
        "waiting_dependency",
    ),
    ("waiting_dependency", provide, "waiting_review"),
    (
        "waiting_review",
        |home| drop(home.gdn(&["task", "approve", "shop"]).exits(0)),
        "waiting_review",
    ),
    (
        "waiting_review",
        |home| drop(home.gdn(&["task", "approve", "shop"]).exits(0)),
        "completed",
    ),
];

/// Checks that everything was done once, and that the work exists.
fn check_done(home: &Home) {
    let history = history(home);
    for (event, times) in [
        ("task_created", 1),
        ("dependency_requested", 1),
        ("dependency_provided", 1),
        ("review_reworked", 1),
        ("review_approved", 3),
        ("task_completed", 1),
    ] {
        assert_eq!(count(&history, event), times, "{event}: {history:#?}");
    }
    let is_of_agent = |line: &&Value| {
        line["event"] == "question_asked" && line["data"]["question"] == "Who reads it?"
    };
    let asked = history.iter().filter(is_of_agent);
    assert_eq!(asked.count(), 1, "{history:#?}");
    let brief = fs::read_to_string(area(home).join("docs/planning/brief.md")).unwrap();
    assert!(
        brief.starts_with("For engineers.") && brief.contains("- Say why."),
        "{brief}"
    );
    let report = fs::read_to_string(area(home).join("docs/report.md")).unwrap();
    assert!(report.contains("Tea: 3.20 a box."), "{report}");
    let listed = home.gdn_json(&["task", "list", "--needs-me"]);
    assert_eq!(listed["tasks"], Value::Array(Vec::new()));
}

/// Every file below a directory that contains a text.
fn holding(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(holding(&entry.path(), text));
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap();
            if bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
            {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn task_7_three_phases_a_question_a_dependency_and_reviews() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    for (before, act, _) in STEPS {
        wait_for(&home, before);
        let needs_me = home.gdn(&["task", "list", "--needs-me"]).exits(0);
        assert!(needs_me.stdout.contains("shop"), "{needs_me:?}");
        act(&home);
    }
    wait_for(&home, "completed");
    check_done(&home);
    assert_eq!(holding(&home.state_root(), KEY), Vec::<PathBuf>::new());
    // An answer counts once, and finished work is not changed.
    home.gdn(&["task", "answer", "shop", "customers"]).exits(5);
    home.gdn(&["task", "cancel", "shop", "--yes"]).exits(10);
    check_protocols(&home);
    let removed = home.gdn_json(&["task", "rm", "shop", "--yes"]);
    let backup = Path::new(removed["backup"].as_str().unwrap());
    assert!(backup.join(".metadata/history.jsonl").exists(), "{removed}");
    assert!(!area(&home).exists());
}

/// Checks that each block is one line, with its content (`PROTO-1`).
fn check_protocols(home: &Home) {
    let text = fs::read_to_string(area(home).join(".logs/protocols.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let of = |protocol: &str| {
        lines
            .iter()
            .filter(|line| line["protocol"] == protocol)
            .count()
    };
    assert_eq!(of("USER_QUESTION"), 1, "{lines:#?}");
    assert_eq!(of("DEPENDENCY_REQUEST"), 1, "{lines:#?}");
    assert_eq!(of("PHASE_COMPLETE"), 4, "{lines:#?}");
    for line in &lines {
        assert!(
            line["timestamp"].is_string() && line["data"].is_object(),
            "{line}"
        );
    }
}

#[test]
fn task_1_daemon_killed_after_every_step_resumes_from_work_area() {
    let home = example();
    let mut daemon = Daemon::serving(&home);
    new_task(&home);
    for (before, act, after) in STEPS {
        drop(daemon.kill());
        daemon = Daemon::start(&home);
        settle(&home, before);
        act(&home);
        // An acknowledged input is not requested again, whenever the daemon dies.
        drop(daemon.kill());
        daemon = Daemon::start(&home);
        settle(&home, after);
    }
    check_done(&home);
    wait_until("no agent is left", || agents(&home).is_empty());
}

#[test]
fn sys_3_task_secrets_are_rotated_with_others_and_still_work() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    for (before, act, _) in &STEPS[..4] {
        wait_for(&home, before);
        act(&home);
    }
    wait_for(&home, "waiting_review");
    let identity = || {
        let path = home.state_root().join("system/identity.age");
        fs::read_to_string(path).unwrap()
    };
    let kept = area(&home).join(".metadata/secrets.yaml");
    let of_whom = || {
        let text = fs::read_to_string(&kept).unwrap();
        let words = text.split_whitespace();
        let whom: Vec<String> = words
            .filter(|word| word.starts_with("age1"))
            .map(str::to_owned)
            .collect();
        assert!(!whom.is_empty(), "{text}");
        whom
    };
    let (former, former_whom) = (identity(), of_whom());
    let rotated = home.gdn_json(&["secret", "rotate", "--yes"]);
    assert_eq!(rotated["documents"], 1, "{rotated}");
    assert_ne!(identity(), former);
    let is_former = |whom: &String| former_whom.contains(whom);
    assert!(!of_whom().iter().any(is_former), "the former one opens it");
    assert_eq!(holding(&home.state_root(), KEY), Vec::<PathBuf>::new());

    // The agent's next run has it, and requests nothing.
    home.gdn(&["task", "rework", "shop", "In euros."]).exits(0);
    wait_until("the prices are written anew", || {
        let prices = fs::read_to_string(area(&home).join("docs/design/prices.md"));
        prices.is_ok_and(|prices| prices.contains("- In euros."))
    });
    wait_for(&home, "waiting_review");
    assert_eq!(count(&history(&home), "dependency_requested"), 1);

    // With the former identity, it cannot be decrypted.
    let current = identity();
    home.write("state/system/identity.age", &former);
    let found = home.gdn(&["verify", "--all", "--json"]).exits(15);
    assert!(found.stdout.contains("secrets.yaml"), "{found:?}");
    home.write("state/system/identity.age", &current);
    assert_eq!(holding(&home.state_root(), KEY), Vec::<PathBuf>::new());
}

#[test]
fn task_1_copied_work_area_continues_in_another_system_root() {
    let home = example();
    let daemon = Daemon::serving(&home);
    new_task(&home);
    wait_for(&home, "waiting_question");
    home.gdn(&["task", "answer", "shop", "engineers"]).exits(0);
    wait_for(&home, "waiting_review");
    drop(daemon.stop());
    let other = example();
    let _daemon = Daemon::serving(&other);
    let from = area(&home);
    other
        .gdn(&["task", "import", from.to_str().unwrap()])
        .exits(0);
    wait_for(&other, "waiting_review");
    other.gdn(&["task", "approve", "shop"]).exits(0);
    wait_for(&other, "waiting_dependency");
    let brief = fs::read_to_string(area(&other).join("docs/planning/brief.md")).unwrap();
    assert!(brief.starts_with("For engineers."), "{brief}");
    // A link that leads out of the work area is recreated for the guide of the local agent.
    let style = fs::read_to_string(area(&other).join("guide/style.md")).unwrap();
    assert!(!style.is_empty());
    let guide = fs::read_link(area(&other).join("guide")).unwrap();
    assert_eq!(
        guide.canonicalize().unwrap(),
        other.project().join("guide").canonicalize().unwrap()
    );
    let none = other.gdn(&["task", "import", other.project().to_str().unwrap()]);
    let text = format!("`{}` contains no task", other.project().display());
    assert!(none.stderr.contains(&text), "{none:?}");
    let twice = other.gdn(&["task", "import", from.to_str().unwrap()]);
    assert_eq!(twice.code, 10, "{twice:?}");
}

#[test]
fn ckpt_4_a_restore_takes_the_work_back_and_can_be_taken_back() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    new_task(&home);
    wait_for(&home, "waiting_question");
    home.gdn(&["task", "checkpoint", "shop", "--name", "early"])
        .exits(0);
    home.gdn(&["task", "answer", "shop", "engineers"]).exits(0);
    wait_for(&home, "waiting_review");
    let brief = area(&home).join("docs/planning/brief.md");
    let text = fs::read_to_string(&brief).unwrap();
    let listed = home.gdn_json(&["task", "checkpoints", "shop"]);
    let listed = listed["checkpoints"].as_array().unwrap();
    let early = listed.iter().find(|it| it["name"] == "early").unwrap();
    let early = early["checkpointId"].as_str().unwrap();

    let would = home.gdn_json(&["task", "restore", "shop", early, "--dry-run"]);
    assert!(brief.exists(), "a rehearsal changes nothing");
    let restored = home.gdn_json(&["task", "restore", "shop", early, "--yes"]);
    assert_eq!(would["removed"], restored["removed"]);
    assert!(!brief.exists(), "{restored}");
    let kept = restored["preRestore"].as_str().unwrap();
    home.gdn(&["task", "restore", "shop", kept, "--yes"])
        .exits(0);
    assert_eq!(fs::read_to_string(&brief).unwrap(), text);
}

#[test]
fn task_8_paused_task_stops_and_canceled_one_leaves_no_process() {
    let home = example();
    home.write_program(
        "project/agent.sh",
        "#!/bin/sh\ncat > /dev/null\nsetsid sleep 4322 &\nsleep 4321\n",
    );
    let _daemon = Daemon::serving(&home);
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
    home.gdn(&new).exits(0);
    wait_until("its program runs", || !home.running("sleep").is_empty());
    home.gdn(&["task", "pause", "shop"]).exits(0);
    wait_for(&home, "paused");
    wait_until("all of it stands still", || {
        let running = home.running("sleep");
        running.iter().all(|it| state_of(it.pid) == 'T') && !running.is_empty()
    });
    home.gdn(&["task", "resume", "shop"]).exits(0);
    wait_until("it goes on", || {
        home.running("sleep")
            .iter()
            .all(|it| state_of(it.pid) != 'T')
    });
    home.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    wait_until("nothing of it is left", || home.running("sleep").is_empty());
}

#[test]
fn task_1_a_new_task_never_takes_over_a_folder_with_files() {
    let home = example();
    let daemon = Daemon::serving(&home);
    let old = area(&home).join("docs/old.md");
    fs::create_dir_all(old.parent().unwrap()).unwrap();
    fs::write(&old, "by another user").unwrap();
    let new = ["task", "new", "Shop", "--description", "x", "--id", "shop"];
    for _ in 0..2 {
        home.gdn(&new)
            .exits(10)
            .tells(&["docs/old.md", "move the files away"]);
    }
    fs::remove_dir_all(area(&home)).unwrap();
    home.gdn(&new).exits(0);
    wait_for(&home, "idle");

    // A task's files without its history still belong to that task.
    fs::write(area(&home).join("src/shop.rs"), "fn shop() {}").unwrap();
    drop(daemon.stop());
    fs::remove_dir_all(area(&home).join(".metadata")).unwrap();
    let _daemon = Daemon::serving(&home);
    assert_ne!(home.gdn(&new).code, 0);
    let report = home.gdn(&["verify", "--json"]).exits(15).json();
    assert!(report.to_string().contains("history.jsonl"), "{report:#}");
    assert!(!area(&home).join(".metadata/task.json").exists());
}

#[test]
fn task_9_task_over_quota_is_held_with_its_files_until_room() {
    let home = example();
    home.write_program(
        "project/agent.sh",
        "#!/bin/sh\ncat > /dev/null\nhead -c 3000000 /dev/zero > large\nsleep 4321\n",
    );
    let _daemon = Daemon::serving(&home);
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
    home.gdn(&[&new[..], &["--max-disk-mib", "2"]].concat())
        .exits(0);
    let large = area(&home).join("large");
    // It may be paused from then on, before its program continues.
    wait_until("it takes too much", || {
        fs::metadata(&large).is_ok_and(|file| file.len() == 3_000_000)
    });
    let refused = home.gdn(&["task", "checkpoint", "shop"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    for said in ["the limit is 2 MiB", "--max-disk-mib"] {
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    wait_for(&home, "paused");
    let stands = shown(&home);
    assert_eq!(stands["info"]["blockedBy"], "quota");
    assert!(stands["disk"]["bytes"].as_u64().unwrap() > 3_000_000);
    assert!(stands["disk"]["freeBytes"].is_u64(), "{stands}");
    home.gdn(&["task", "list", "--needs-me"])
        .exits(0)
        .prints(&["over quota"]);
    home.gdn(&["task", "show", "shop"])
        .exits(0)
        .prints(&["of 2.0 MiB"]);
    let refused = home.gdn(&["task", "resume", "shop"]);
    assert!(refused.stderr.contains("remove files"), "{refused:?}");
    // Only a person deletes files.
    assert_eq!(fs::metadata(&large).unwrap().len(), 3_000_000);
    fs::remove_file(&large).unwrap();
    home.gdn(&["task", "resume", "shop"]).exits(0);
    wait_for(&home, "running");
    home.gdn(&["task", "checkpoint", "shop"]).exits(0);
}

#[test]
fn task_10_old_ended_tasks_are_removed_with_importable_backup() {
    let home = example();
    let _daemon = Daemon::serving(&home);
    let new = ["task", "new", "Shop", "--id", "shop", "--description", "x"];
    home.gdn(&new).exits(0);
    home.gdn(&["task", "checkpoint", "shop"]).exits(0);
    let drilled = home.gdn_json(&["task", "drill", "shop"]);
    assert_eq!(drilled["checkpointId"], "checkpoint_001");
    assert!(drilled.get("problem").is_none(), "{drilled}");
    let snapshot = area(&home).join(".checkpoints/checkpoint_001/snapshot.tar.gz");
    home.write(snapshot.to_str().unwrap(), "no archive");
    let failed = home.gdn(&["task", "drill", "shop"]).exits(15);
    assert!(failed.stderr.contains("cannot be restored"), "{failed:?}");
    let listed = home.gdn(&["task", "list"]).exits(0);
    assert!(listed.stderr.contains("the restore drill of"), "{listed:?}");
    assert!(shown(&home)["drill"]["problem"].is_string());

    home.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    home.write(area(&home).join("src/made.txt").to_str().unwrap(), "work");
    let made = Path::new("src/made.txt");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    fs::set_permissions(area(&home).join(made), mode).unwrap();
    std::os::unix::fs::symlink("made.txt", area(&home).join("src/link")).unwrap();
    // Other files can be recreated, or are written by the removal itself.
    let apart = [".cache", ".metadata", ".logs"].map(|name| area(&home).join(name));
    let before = tree::snapshot(&area(&home), |path| !apart.iter().any(|it| it == path));
    let history = fs::read_to_string(area(&home).join(".metadata/history.jsonl")).unwrap();
    let kept = home.workspace_dir().join("tasks/_kept");
    fs::create_dir(&kept).unwrap();
    home.gdn(&["task", "prune", "--yes"])
        .exits(0)
        .prints(&["No task ended"]);
    let older = ["task", "prune", "--older-than", "0s"];
    let would = home.gdn_json(&[&older[..], &["--dry-run"]].concat());
    assert_eq!(would["removed"], false);
    assert!(area(&home).exists(), "a rehearsal changes nothing");
    let pruned = home.gdn_json(&[&older[..], &["--yes"]].concat());
    let backup = Path::new(pruned["tasks"][0]["backup"].as_str().unwrap());
    assert!(!area(&home).exists() && kept.is_dir());
    // Every file, link and mode of the work area is in the backup.
    let saved = tree::snapshot(backup, |_| true);
    for (path, entry) in &before {
        let found = saved.get(path);
        let is_saved = found.is_some_and(|found| found.is_alike(entry));
        assert!(is_saved, "{}: {found:?}, not {entry:?}", path.display());
    }
    assert!(before.len() > 5, "{before:?}");
    let kept_history = fs::read_to_string(backup.join(".metadata/history.jsonl")).unwrap();
    assert!(kept_history.starts_with(&history), "{kept_history}");
    home.gdn(&["task", "import", backup.to_str().unwrap()])
        .exits(0);
    assert_eq!(shown(&home)["info"]["status"], "cancelled");
    let text = fs::read_to_string(area(&home).join(made)).unwrap();
    assert_eq!(text, "work");
}

/// The processes of this test that run the agent's program.
fn agents(home: &Home) -> Vec<u32> {
    let running = processes::of_home(home.path()).into_iter();
    let agents = running.filter(|process| process.args.iter().any(|arg| arg.ends_with("agent.sh")));
    agents.map(|process| process.pid).collect()
}

/// State of a process, as reported by the kernel; `X` if it has exited.
pub(crate) fn state_of(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    after.chars().next().unwrap_or('X')
}

#[test]
fn task_7_killed_agent_asks_a_person_or_resumes_and_runs_once() {
    let home = example();
    home.write_program(
        "project/agent.sh",
        "#!/bin/sh\ncat > /dev/null\necho run >> runs.txt\n[ $(wc -l < runs.txt) -gt 1 ] || sleep 4321\n\
         echo '=== CUSTOM TASK COMPLETE ==='\n",
    );
    let _daemon = Daemon::serving(&home);
    home.gdn(&[
        "task",
        "new",
        "Shop",
        "--id",
        "shop",
        "--description",
        "x",
        "--start",
    ])
    .exits(0);
    let runs =
        || fs::read_to_string(area(&home).join("runs.txt")).map_or(0, |text| text.lines().count());
    wait_until("its program runs", || runs() == 1);
    for pid in agents(&home) {
        processes::signal(pid, Signal::SIGKILL);
    }
    wait_until("a person is asked, or it is done", || {
        let status = shown(&home)["info"]["status"].clone();
        status == "waiting_question" || status == "completed"
    });
    if shown(&home)["info"]["status"] == "waiting_question" {
        home.gdn(&["task", "answer", "shop", "go on"]).exits(0);
    }
    wait_for(&home, "completed");
    assert_eq!(runs(), 2);
}
