//! Goal: approved proposals of many tasks on one project land in order, each proved by `verify` on
//! exactly the files that it lands on, or go back to their agents; also if the daemon is killed at
//! any time (`QUEUE-1`).
//!
//! Method: agents without models change files of their own, and lines that several of them change.
//! Some make a mistake that only `verify` finds. `verify` writes a digest of the files that it ran
//! on to the home of its task. A person adds each proposal to the queue, also those that come back.
//! At the end the landings are undone one by one: `verify` passed on each state of the project, and the
//! first state is the one before the tasks.
//!
//! `GOONDAN_TEST_QUEUE_TASKS=40` runs that many tasks, with a kill of the daemon for each, and prints
//! the throughput beside approving and testing one change after the other by hand.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use goondan_tests::git_server::GitServer;
use goondan_tests::provider::{Gate, Provider, ProviderResponse};
use goondan_tests::random::Random;
use goondan_tests::wait::within;
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@goondan/lab"}
spec: {version: 0.1.0}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: coder}
spec:
  runtime:
    kind: cli
    command: [./agent.sh]
    source: project
    verify: [./test.sh]
"#;

/// A coding agent. Its task has the form `NUMBER LINE KIND`: it adds a file of its own and changes
/// the line of a file that others change, too. A `bad` one makes a mistake in its first attempt.
const AGENT: &str = r#"#!/bin/sh
set -eu
prompt=$(cat)
task=$(printf '%s\n' "$prompt" | sed -n 's/.*TASK \([0-9]* [0-9]* [a-z]*\) END.*/\1/p' | head -n 1)
set -- $task
printf '%s\n' "$prompt" >> "$HOME/prompts"
mkdir -p own
echo "$3" > "own/$1.txt"
case $prompt in
*"not approved"*) echo good > "own/$1.txt" ;;
esac
sed -i "s/^line $2:.*/line $2: task $1/" shared.txt
"#;

/// Passes if no file has a mistake in the copy of the merge queue. Agents do not notice theirs.
const TEST: &str = r#"#!/bin/sh
set -eu
case $PWD in
*/merge-queue/attempt-*) ;;
*) exit 0 ;;
esac
if grep -l bad own/*.txt; then
    exit 1
fi
sleep "$(cat pause)"
attempt=${PWD%/work}
echo "${attempt##*/} $(sh digest.sh)" >> "$HOME/proofs"
"#;

/// Prints a digest of the files in the current directory.
const DIGEST: &str = "find . -type f -not -path './.git/*' -not -path './goondan.lock' | LC_ALL=C sort \
                      | xargs sha256sum | sha256sum | cut -d ' ' -f 1\n";

/// Lines of the file that all tasks change.
const LINES: u64 = 5;

/// Tasks, unless `GOONDAN_TEST_QUEUE_TASKS` is set.
const TASKS: u64 = 5;

/// Minimum number of tasks: one makes a mistake, and two change the same line.
const TASKS_MIN: u64 = 2;

/// Landings whose files goondan keeps.
const LANDINGS_KEPT: usize = 20;

/// Maximum time before a random kill of the daemon.
const KILL_WITHIN_MS: u64 = 1_500;

fn tasks() -> (u64, bool) {
    let given = std::env::var("GOONDAN_TEST_QUEUE_TASKS").ok();
    let is_long = given.is_some();
    let count = given.map_or(TASKS, |text| text.parse().unwrap());
    assert!(
        count >= TASKS_MIN,
        "GOONDAN_TEST_QUEUE_TASKS must be at least {TASKS_MIN}"
    );
    (count, is_long)
}

fn home(pause: &str) -> Home {
    home_with(PROJECT, pause)
}

fn home_with(project: &str, pause: &str) -> Home {
    let home = Home::new(project);
    for (path, text) in [("agent.sh", AGENT), ("test.sh", TEST)] {
        home.write_program(&format!("project/{path}"), text);
    }
    let lines: Vec<String> = (0..LINES)
        .map(|line| format!("line {line}: free\n\n\n"))
        .collect();
    home.write("project/shared.txt", &lines.concat());
    home.write("project/digest.sh", DIGEST);
    home.write("project/pause", pause);
    home
}

fn new_task(home: &Home, number: u64, line: u64, kind: &str) -> String {
    let id = format!("t{number}");
    let text = format!("TASK {number} {line} {kind} END");
    let new = [
        "task",
        "new",
        "Change it",
        "--id",
        &id,
        "--description",
        &text,
        "--start",
    ];
    home.gdn(&new).exits(0);
    id
}

/// A digest of the files in a directory, as `verify` prints it.
fn digest(directory: &Path) -> String {
    let ran = Command::new("sh")
        .arg("digest.sh")
        .current_dir(directory)
        .output()
        .unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// The digests of the files on which `verify` passed, each with its attempt.
fn proofs(home: &Home, tasks: &[String]) -> BTreeSet<String> {
    let of_task = |task: &String| {
        let path = format!("tasks/{task}/.cache/home/proofs");
        fs::read_to_string(home.workspace_dir().join(path)).unwrap_or_default()
    };
    let all: Vec<String> = tasks.iter().map(of_task).collect();
    all.iter()
        .flat_map(|text| text.lines())
        .map(ToOwned::to_owned)
        .collect()
}

/// The records of the queue with this name, each as its data.
fn records(home: &Home, event: &str) -> Vec<Value> {
    let path = home
        .workspace_dir()
        .join("sandboxes/merge-queue/queue.jsonl");
    // The queue creates the file with its first record.
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_name = lines.filter(|record| record["event"] == event);
    of_name.map(|record| record["data"].clone()).collect()
}

/// Landings in order: attempt, base and result.
fn landings(home: &Home) -> Vec<(u64, String, String)> {
    let landed: BTreeSet<u64> = records(home, "landed")
        .iter()
        .map(|data| data["attempt"].as_u64().unwrap())
        .collect();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let begun = records(home, "landing_begun").into_iter().map(|data| {
        let attempt = data["attempt"].as_u64().unwrap();
        (attempt, text(&data["base"]), text(&data["result"]))
    });
    begun
        .filter(|(attempt, ..)| landed.contains(attempt))
        .collect()
}

/// A person who adds every proposal that waits for a review to the queue, and restarts tasks whose
/// run ended with the daemon. Returns true once all tasks are completed.
fn serve(home: &Home) -> bool {
    let ran = home.gdn(&["--json", "task", "list", "--all"]);
    if ran.code != 0 {
        return false;
    }
    let listed = ran.json();
    let tasks = listed["tasks"].as_array().unwrap();
    for task in tasks {
        let id = task["taskId"].as_str().unwrap();
        match task["status"].as_str().unwrap() {
            "waiting_review" if task["blockedBy"] != "merge_queue" => {
                home.gdn(&["task", "queue", "add", id]);
            }
            "waiting_question" => {
                home.gdn(&["task", "answer", id, "go on"]);
            }
            _ => {}
        }
    }
    !tasks.is_empty() && tasks.iter().all(|task| task["status"] == "completed")
}

/// Checks that `verify` passed on the files of each landing, on its very base, and that the landings
/// follow one another.
fn check_landings(home: &Home, tasks: &[String], before: &str) {
    let landings = landings(home);
    let proofs = proofs(home, tasks);
    let changed = landings.iter().filter(|(_, base, result)| base != result);
    let changed: Vec<_> = changed.collect();
    for pair in changed.windows(2) {
        assert_eq!(
            pair[0].2, pair[1].1,
            "the history is not linear: {landings:#?}"
        );
    }
    let scratch = tempfile::tempdir().unwrap();
    let undone = scratch.path().join("project");
    let copy = format!(
        "cp -a '{}' '{}'",
        home.project().display(),
        undone.display()
    );
    assert!(
        Command::new("sh")
            .args(["-c", &copy])
            .status()
            .unwrap()
            .success()
    );
    for (number, (attempt, ..)) in changed.into_iter().rev().enumerate() {
        let name = format!("attempt-{attempt}");
        let now = digest(&undone);
        let proof = format!("{name} {now}");
        assert!(
            proofs.contains(&proof),
            "`{proof}` is not among {proofs:#?}"
        );
        // The files of older landings are gone.
        if number >= LANDINGS_KEPT {
            return;
        }
        let diff = home
            .gdn(&["proposal", "diff", "merge-queue", &name])
            .exits(0)
            .stdout;
        let path = scratch.path().join("undone.patch");
        fs::write(&path, diff).unwrap();
        let mut git = Command::new("git");
        git.args(["apply", "-R"]).arg(&path).current_dir(&undone);
        assert!(
            git.status().unwrap().success(),
            "{name} does not apply to its base"
        );
    }
    assert_eq!(
        digest(&undone),
        before,
        "something else changed the project"
    );
}

/// Checks that every task is completed, and its change is in the project once.
fn check_tasks(home: &Home, tasks: &[String]) {
    for task in tasks {
        let number = task.trim_start_matches('t');
        let own = home.project().join(format!("own/{number}.txt"));
        assert_eq!(fs::read_to_string(own).unwrap(), "good\n", "{task}");
    }
    let view = home.gdn_json(&["task", "queue", "list"]);
    assert_eq!(view["entries"].as_array().unwrap().len(), 0, "{view}");
    let entered = records(home, "entered").len();
    let left = records(home, "left").len();
    assert_eq!(
        entered,
        left + tasks.len(),
        "each proposal landed or came back"
    );
}

#[test]
fn queue_1_changes_of_many_tasks_land_on_proved_bases_despite_kills() {
    if !needs::program("git") {
        return;
    }
    let mut random = Random::announced();
    let (count, is_long) = tasks();
    let home = home("0");
    let before = digest(&home.project());
    let mut daemon = Some(Daemon::serving(&home));
    let mut ids = Vec::new();
    for number in 0..count {
        // Every third change is a mistake at first, and lines are changed by several tasks.
        let kind = if number % 3 == 1 { "bad" } else { "good" };
        ids.push(new_task(&home, number, number % LINES.min(count - 1), kind));
    }
    let begun = Instant::now();
    let kills = if is_long { count } else { 6 };
    for _ in 0..kills {
        let limit = Duration::from_millis(random.below(KILL_WITHIN_MS));
        within(limit, || serve(&home).then_some(()));
        drop(daemon.take().unwrap().kill());
        daemon = Some(Daemon::start(&home));
    }
    let limit = Duration::from_secs(60 + 20 * count);
    let is_served = within(limit, || serve(&home).then_some(())).is_some();
    let shown = || home.gdn(&["task", "queue", "list"]).stdout;
    assert!(is_served, "not all tasks are completed: {}", shown());
    wait_until("the tasks' outcomes are recorded", || {
        records(&home, "acknowledged").len() == records(&home, "entered").len()
    });
    check_tasks(&home, &ids);
    check_landings(&home, &ids, &before);
    let back = records(&home, "left").len();
    let landings = landings(&home).len();
    eprintln!(
        "{count} tasks: {landings} landings, {back} proposals handed back, {kills} kills, {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    assert!(back > 0, "no proposal came back");
}

#[test]
fn queue_1_a_person_holds_reorders_and_drops_proposals() {
    let home = home("0");
    let _daemon = Daemon::serving(&home);
    let ids: Vec<String> = (0..3)
        .map(|number| new_task(&home, number, number, "good"))
        .collect();
    wait_until("all wait for a review", || {
        let listed = home.gdn_json(&["task", "list", "--needs-me"]);
        let tasks = listed["tasks"].as_array().unwrap();
        tasks
            .iter()
            .filter(|task| task["status"] == "waiting_review")
            .count()
            == ids.len()
    });
    // `verify` of the first one takes until the others have their places.
    home.write("project/pause", "1000");
    home.gdn(&["task", "queue", "add", "t0"]).exits(0);
    home.gdn(&["task", "queue", "add", "t0"])
        .tells(&["already has a proposal"]);
    home.gdn(&["task", "approve", "t0"])
        .tells(&["in the merge queue"]);
    home.gdn(&["task", "queue", "add", "t1", "--priority", "-1"])
        .exits(0);
    home.gdn(&["task", "queue", "add", "t2", "--priority", "-1"])
        .exits(0);
    home.gdn(&["task", "queue", "move", "t2", "--before", "t1"])
        .exits(0);
    let order = |view: &Value| -> Vec<String> {
        let entries = view["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| entry["taskId"].as_str().unwrap().to_owned())
            .collect()
    };
    let held = home.gdn_json(&["task", "queue", "hold", "t0", "not today"]);
    assert_eq!(order(&held), ["t0", "t2", "t1"]);
    assert_eq!(held["entries"][0]["held"], "not today");
    // The inbox, `gdn ps` and the tasks show the reason.
    let items = home.gdn_json(&["inbox"]);
    let items = items["items"].as_array().unwrap().iter();
    let item = items.clone().find(|item| item["id"] == "t0").unwrap();
    assert_eq!(
        item["subject"],
        "Change it: held in the merge queue: not today, phase 1 of 1"
    );
    let release = item["commands"][0].as_str().unwrap();
    assert!(release.ends_with("task queue release t0"), "{release}");
    let why = "t0: held in the merge queue: not today; release it: ";
    for list in [&["ps"][..], &["task", "list"]] {
        let told = home.gdn(list).stderr;
        assert!(told.contains(why), "{told}");
    }
    let shown = home.gdn(&["task", "show", "t0"]).exits(0);
    assert!(
        shown.stdout.contains("held in the merge queue: not today"),
        "{shown:?}"
    );
    let next = &shown.stderr;
    assert!(next.contains("task queue release t0"), "{shown:?}");
    home.write("project/pause", "0");
    home.gdn(&["task", "queue", "drop", "t2", "superseded"])
        .exits(0);
    wait_until("the last one has landed", || {
        let view = home.gdn_json(&["task", "queue", "list"]);
        order(&view) == ["t0"]
    });
    let done = home.project().join("own");
    assert!(done.join("1.txt").exists());
    assert!(!done.join("0.txt").exists() && !done.join("2.txt").exists());
    // A held proposal and a dropped one need a person.
    let listed = home.gdn_json(&["task", "list", "--needs-me"]);
    let listed: BTreeSet<&str> = listed["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["taskId"].as_str().unwrap())
        .collect();
    assert_eq!(listed, BTreeSet::from(["t0", "t2"]));
    home.gdn(&["task", "queue", "add", "t2"]).exits(0);
    home.gdn(&["task", "queue", "release", "t0"]).exits(0);
    wait_until("all have landed", || {
        (0..3).all(|number| done.join(format!("{number}.txt")).exists())
    });
}

/// Landings per minute of changes without conflicts, by the queue and by hand.
#[test]
fn queue_1_throughput_is_measured_beside_landing_by_hand() {
    let (count, is_long) = tasks();
    if !is_long {
        return;
    }
    let measure = |is_queued: bool| {
        let home = home("1");
        let _daemon = Daemon::serving(&home);
        let ids: Vec<String> = (0..count)
            .map(|number| new_task(&home, number, LINES, "good"))
            .collect();
        let limit = Duration::from_secs(30 + 5 * count);
        let wait_for_all = |status: &str| {
            let are_there = || {
                let listed = home.gdn_json(&["task", "list", "--all"]);
                let tasks = listed["tasks"].as_array().unwrap();
                let there = tasks.iter().filter(|task| task["status"] == status);
                (there.count() == ids.len()).then_some(())
            };
            assert!(within(limit, are_there).is_some(), "not all are {status}");
        };
        wait_for_all("waiting_review");
        let begun = Instant::now();
        for id in &ids {
            if is_queued {
                home.gdn(&["task", "queue", "add", id]).exits(0);
                continue;
            }
            home.gdn(&["task", "approve", id, "--allow-moved-base"])
                .exits(0);
            // By hand, the tests run after each change. They take as long as those of the queue.
            let mut tests = Command::new("sh");
            tests.args(["-c", "sleep \"$(cat pause)\" && sh digest.sh"]);
            assert!(
                tests
                    .current_dir(home.project())
                    .status()
                    .unwrap()
                    .success()
            );
        }
        wait_for_all("completed");
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        f64::from(u32::try_from(count).unwrap()) / minutes
    };
    let (queued, by_hand) = (measure(true), measure(false));
    eprintln!("{queued:.0} landings per minute in the queue, {by_hand:.0} by hand");
}

/// Lands tasks on `main` of a bare repository, which agents know by another address.
fn land_on_branch(home: &Home, shop: &Path) {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]);
        let ran = git.current_dir(shop).args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    let first = git(&["rev-parse", "main"]);
    let project = digest(&home.project());
    let mut daemon = Some(Daemon::serving(home));
    // The first two change the same line, and the third makes a mistake at first.
    let tasks = [(0, 0, "good"), (1, 0, "good"), (2, 2, "bad")];
    let ids: Vec<String> = tasks
        .iter()
        .map(|(number, line, kind)| new_task(home, *number, *line, kind))
        .collect();
    wait_until("a change has landed", || {
        serve(home);
        git(&["rev-parse", "main"]) != first
    });
    drop(daemon.take().unwrap().kill());
    let _daemon = Daemon::start(home);
    wait_until("all changes have landed", || serve(home));
    assert_eq!(git(&["rev-list", "--merges", "main"]), "");
    let landings = landings(home);
    let proofs = proofs(home, &ids);
    let begun = records(home, "attempt_begun");
    let mut before = first;
    for (attempt, base, result) in &landings {
        assert_eq!(*base, before, "the history is linear");
        // One commit for each proposal, with its task and its agent.
        let format = "--format=%an %s: %(trailers:key=Goondan-Task,valueonly,separator=)";
        let log = git(&["log", "--reverse", format, &format!("{base}..{result}")]);
        let of_attempt = begun.iter().find(|data| data["attempt"] == *attempt);
        let tasks = of_attempt.unwrap()["tasks"].as_array().unwrap().iter();
        let expected = tasks.map(|task| format!("coder Change it: {}", task.as_str().unwrap()));
        assert_eq!(log, expected.collect::<Vec<_>>().join("\n"));
        before.clone_from(result);
        let files = tempfile::tempdir().unwrap();
        let into = format!("--work-tree={}", files.path().display());
        git(&["--git-dir=.", &into, "checkout", "-f", result, "--", "."]);
        let proof = format!("attempt-{attempt} {}", digest(files.path()));
        assert!(
            proofs.contains(&proof),
            "`{proof}` is not among {proofs:#?}"
        );
    }
    assert_eq!(git(&["rev-parse", "main"]), before);
    for (number, ..) in tasks {
        assert_eq!(git(&["show", &format!("main:own/{number}.txt")]), "good");
        let shown = home.gdn_json(&["task", "show", &format!("t{number}")]);
        assert_eq!(shown["proposal"]["branch"], "main", "{shown}");
    }
    assert_eq!(digest(&home.project()), project, "the project was changed");
}

/// A bare repository with the files of a project.
fn bare_repository(home: &Home, shop: &Path) {
    let script = "git init -q -b main work && cd work \
                  && (cd ../project && cp shared.txt digest.sh pause test.sh ../work) && git add . \
                  && git -c user.name=Ada -c user.email=ada@example.org commit -qm First \
                  && git clone -q --bare . \"$0\" && git -C \"$0\" config http.receivepack true";
    let mut made = Command::new("sh");
    made.args(["-c", script]).arg(shop).current_dir(home.path());
    assert!(made.status().unwrap().success());
}

#[test]
fn queue_1_changes_land_on_a_branch_of_a_local_repository() {
    if !needs::program("git") {
        return;
    }
    let source = "source: {repository: ../shop.git, ref: main}";
    let home = home_with(&PROJECT.replace("source: project", source), "0");
    let shop = home.path().join("shop.git");
    bare_repository(&home, &shop);
    land_on_branch(&home, &shop);
}

const TOKEN: &str = "the-token-of-the-connection";

/// A bare repository behind a server, and a project whose tasks change it.
struct Service {
    home: Home,
    shop: PathBuf,
    _remotes: tempfile::TempDir,
    _server: GitServer,
}

impl Service {
    fn new(deliver: &str, github: &Provider) -> Self {
        let remotes = tempfile::tempdir().unwrap();
        let server = GitServer::start(remotes.path(), "x-access-token", TOKEN);
        let source = format!(
            "source: {{repository: \"{}\", ref: main, connection: Connection/github}}
    deliver: {deliver}",
            server.url("acme/shop.git")
        );
        let project = format!(
            "{}---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: github}}
spec:
  connectorRef: {{kind: Connector, name: github, package: \"@goondan/base\"}}
  config: {{endpoint: \"{}\", port: 0}}
  secrets: {{webhookSecret: {{value: a-secret}}, token: {{value: {TOKEN}}}}}\n",
            PROJECT.replace("source: project", &source),
            github.endpoint()
        );
        let home = home_with(&project, "0");
        fs::create_dir(remotes.path().join("acme")).unwrap();
        let shop = remotes.path().join("acme/shop.git");
        bare_repository(&home, &shop);
        Self {
            home,
            shop,
            _remotes: remotes,
            _server: server,
        }
    }
}

#[test]
fn queue_1_changes_are_pushed_to_a_branch() {
    if !needs::program("git") {
        return;
    }
    let github = Provider::start(|_| ProviderResponse::json(&json!({})));
    let service = Service::new("branch", &github);
    land_on_branch(&service.home, &service.shop);
}

/// Pull requests of a fake of GitHub.
type PullRequests = Arc<Mutex<Vec<Value>>>;

/// A fake of the GitHub API. The answers to new pull requests wait at the gate.
fn github_double(gate: Gate, pulls: PullRequests) -> Provider {
    Provider::start(move |request| {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return ProviderResponse::error(401, &json!({"message": "Bad credentials"}));
        }
        let mut pulls = pulls.lock().unwrap();
        let list = "/v1/repos/acme/shop/pulls?state=all&head=acme:";
        let head = request.path.strip_prefix(list);
        let head = head.and_then(|rest| rest.strip_suffix("&per_page=100"));
        match (request.method.as_str(), request.path.as_str(), head) {
            ("GET", "/v1/rate_limit", _) => ProviderResponse::json(&json!({})),
            ("GET", _, Some(head)) => {
                let of_branch = pulls.iter().filter(|it| it["head"]["ref"] == head);
                ProviderResponse::json(&json!(of_branch.collect::<Vec<_>>()))
            }
            ("POST", "/v1/repos/acme/shop/pulls", _) => {
                let number = pulls.len() + 1;
                let opened = json!({
                    "number": number, "state": "open",
                    "html_url": format!("https://github.com/acme/shop/pull/{number}"),
                    "head": {"ref": request.body["head"], "sha": "any"}, "asked": request.body,
                });
                pulls.push(opened.clone());
                ProviderResponse::error(201, &opened).behind(gate.clone())
            }
            _ => ProviderResponse::error(404, &json!({"message": "Not Found"})),
        }
    })
}

#[test]
fn queue_1_pull_requests_are_opened_once_despite_a_kill() {
    if !needs::program("git") {
        return;
    }
    let (gate, pulls) = (Gate::default(), PullRequests::default());
    let github = github_double(gate.clone(), pulls.clone());
    let service = Service::new("pull-request", &github);
    let (home, shop) = (&service.home, &service.shop);
    let git = |args: &[&str]| {
        let ran = Command::new("git").current_dir(shop).args(args).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    let first = git(&["rev-parse", "main"]);
    let daemon = Daemon::serving(home);
    let mut ids = vec![new_task(home, 0, 0, "good"), new_task(home, 1, 1, "good")];
    wait_until("the changes are in the queue", || {
        serve(home);
        records(home, "entered").len() == 2
    });
    // The daemon is killed when a pull request is open, before it can know.
    wait_until("a pull request is open", || {
        pulls.lock().unwrap().len() == 1
    });
    drop(daemon.kill());
    gate.open();
    let _daemon = Daemon::start(home);
    wait_until("both have pull requests", || serve(home));
    let opened = pulls.lock().unwrap().clone();
    assert_eq!(opened.len(), 2, "{opened:#?}");
    assert_eq!(git(&["rev-parse", "main"]), first, "nothing is merged");
    // Each is in front of the one before.
    let branch_of = |opened: &Value| opened["head"]["ref"].as_str().unwrap().to_owned();
    let (one, two) = (branch_of(&opened[0]), branch_of(&opened[1]));
    let commit_of = |branch: &str| git(&["rev-parse", branch]);
    assert_eq!(commit_of(&format!("{one}^")), first);
    assert_eq!(commit_of(&format!("{two}^")), commit_of(&one));
    // A person merges the first one. The next change is proved with the other one.
    git(&["update-ref", "refs/heads/main", &commit_of(&one)]);
    pulls.lock().unwrap()[0]["state"] = json!("closed");
    ids.push(new_task(home, 2, 2, "good"));
    wait_until("the third has a pull request", || serve(home));
    let opened = pulls.lock().unwrap().clone();
    assert_eq!(opened.len(), 3, "{opened:#?}");
    assert_eq!(opened[2]["asked"]["title"], "Change it");
    let text = opened[2]["asked"]["body"].as_str().unwrap();
    assert!(
        text.contains("https://github.com/acme/shop/pull/2"),
        "{text}"
    );
    assert!(
        !text.contains("https://github.com/acme/shop/pull/1"),
        "{text}"
    );
    assert_eq!(commit_of("goondan/t2^"), commit_of(&two));
    // `verify` passed on exactly the files of each.
    let proofs = proofs(home, &ids);
    for (attempt, base, result) in landings(home) {
        assert!(base == first || base == commit_of(&one), "{base}");
        let files = tempfile::tempdir().unwrap();
        let into = format!("--work-tree={}", files.path().display());
        git(&["--git-dir=.", &into, "checkout", "-f", &result, "--", "."]);
        let proof = format!("attempt-{attempt} {}", digest(files.path()));
        assert!(
            proofs.contains(&proof),
            "`{proof}` is not among {proofs:#?}"
        );
    }
    for id in &ids {
        let shown = home.gdn_json(&["task", "show", id]);
        assert_eq!(shown["proposal"]["branch"], format!("goondan/{id}"));
        let url = shown["proposal"]["pullRequest"].as_str().unwrap();
        assert!(
            url.starts_with("https://github.com/acme/shop/pull/"),
            "{shown}"
        );
    }
    let listed = home.gdn(&["task", "queue", "list"]).exits(0).stdout;
    let line = "t2: pull request: https://github.com/acme/shop/pull/3";
    assert!(listed.contains(line), "{listed}");
}

#[test]
fn queue_1_a_delivery_that_the_queue_does_not_know_is_refused() {
    let project = PROJECT.replace("source: project", "source: project\n    deliver: proposal");
    let home = home_with(&project, "0");
    let _daemon = Daemon::serving(&home);
    new_task(&home, 0, 0, "good");
    wait_until("it waits for a review", || {
        let shown = home.gdn_json(&["task", "show", "t0"]);
        shown["info"]["status"] == "waiting_review"
    });
    home.gdn(&["task", "queue", "add", "t0"])
        .tells(&["cannot enter the merge queue", "deliver: proposal"]);
}
