//! Tasks that work on a copy of the project, and result in a proposal (`REPO-1`, `REPO-3`,
//! `BOX-3`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_tests::git_server::GitServer;
use goondan_tests::provider::{Gate, Provider, ProviderResponse};
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
    resume: [./agent.sh, "{session}"]
    format: claude-stream-json
    source: project
"#;

/// A coding agent: it edits, adds and deletes, and shortens a file on request. Its diary is in its
/// home.
pub(crate) const AGENT: &str = r#"#!/bin/sh
set -eu
session=${1:-s-1}
read -r told
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$session\",\"model\":\"m\"}"
echo "${1:-new} in $PWD" >> "$HOME/diary"
printf '%s\n' "$told" >> "$HOME/prompts"
case $told in
*Shorter*) echo 'fn b() {}' > src/b.rs ;;
*Nothing*) ;;
*) echo 'fn a() { 1 }' > src/a.rs
   printf 'fn b() {\n    // long\n}\n' > src/b.rs
   rm -f old.md ;;
esac
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"$session\",\"result\":\"I worked on the functions.\"}"
"#;

fn home(project: &str) -> Home {
    let home = Home::new(project);
    home.write_program("project/agent.sh", AGENT);
    write_files(&home);
    home
}

/// The files that [`AGENT`] changes, and one with a secret.
pub(crate) fn write_files(home: &Home) {
    for (path, text) in [
        ("src/a.rs", "fn a() {}\n"),
        ("old.md", "old\n"),
        (".env", "KEY=secret\n"),
    ] {
        home.write(&format!("project/{path}"), text);
    }
}

fn new_task(home: &Home, id: &str, description: &str) {
    let new = [
        "task",
        "new",
        "Fix it",
        "--id",
        id,
        "--description",
        description,
        "--start",
    ];
    home.gdn(&new).exits(0);
}

/// Waits until the task has this status. After a run that was lost with its daemon, there may be a
/// question about continuing.
pub(crate) fn settle(home: &Home, task: &str, status: &str) -> Value {
    let mut last = Value::Null;
    wait_until(&format!("the task is {status}"), || {
        let ran = home.gdn(&["task", "show", task, "--json"]);
        if ran.code != 0 {
            return false;
        }
        last = ran.json();
        let asks = last["asks"].as_array().unwrap();
        if let Some(ask) = asks.first() {
            let id = ask["id"].as_str().unwrap();
            home.gdn(&["task", "answer", task, "go on", "--id", id])
                .exits(0);
            return false;
        }
        last["info"]["status"] == status
    });
    last
}

fn read(home: &Home, path: &str) -> Option<String> {
    fs::read_to_string(home.project().join(path)).ok()
}

fn diary(home: &Home, task: &str) -> Vec<String> {
    let path = format!("tasks/{task}/.cache/home/diary");
    let text = fs::read_to_string(home.workspace_dir().join(path)).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

/// Texts of all prompts that the agent got, one after the other.
pub(crate) fn prompts(home: &Home, task: &str) -> String {
    let path = format!("tasks/{task}/.cache/home/prompts");
    let lines = fs::read_to_string(home.workspace_dir().join(path)).unwrap();
    let text = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap();
        let text = message["message"]["content"][0]["text"].as_str();
        text.unwrap().to_owned()
    };
    lines.lines().map(text).collect::<Vec<_>>().join("\n")
}

fn run_log(home: &Home, task: &str, kind: &str) -> usize {
    let log = home
        .workspace_dir()
        .join(format!("sandboxes/{task}/events.jsonl"));
    let log = fs::read_to_string(log).unwrap();
    log.matches(&format!("\"{kind}\"")).count()
}

/// The files of the proposal under review, as `status path`.
fn files(shown: &Value) -> Vec<String> {
    let files = shown["proposal"]["files"].as_array().unwrap().iter();
    let told = files.map(|file| format!("{} {}", file["status"], file["path"]));
    told.map(|text| text.replace('"', "")).collect()
}

/// From a new task to a change of the project, optionally with a kill of the daemon after each
/// input of a person.
fn go_the_whole_way(kills: bool) {
    let home = home(PROJECT);
    let mut daemon = Some(Daemon::serving(&home));
    let mut kill = || {
        if kills {
            drop(daemon.take().unwrap().kill());
            daemon = Some(Daemon::start(&home));
        }
    };
    new_task(&home, "fix", "Fix the functions.");
    kill();
    let review = settle(&home, "fix", "waiting_review");
    kill();
    let changed = ["deleted old.md", "modified src/a.rs", "added src/b.rs"];
    assert_eq!(files(&review), changed);
    let work = PathBuf::from(review["sandbox"]["workDir"].as_str().unwrap());
    assert_eq!(work, home.workspace_dir().join("sandboxes/fix/coder/work"));
    assert!(!work.join(".env").exists(), "secrets are not given away");
    assert_eq!(read(&home, "src/a.rs").unwrap(), "fn a() {}\n");
    settle(&home, "fix", "waiting_review");
    let of = ["fix", "coder"];
    let comment = |more: &[&str]| home.gdn(&[&["proposal", "comment"], &of[..], more].concat());
    comment(&["src/b.rs:2", "One line is enough.", "--comment-id", "c1"]).exits(0);
    kill();
    settle(&home, "fix", "waiting_review");
    comment(&["src/b.rs:2", "One line is enough.", "--comment-id", "c1"]).exits(0);
    comment(&["old.md:1", "Why?\n[ERROR]", "--old"]).exits(0);
    comment(&["src/a.rs", "Not this."]).exits(0);
    home.gdn(&["proposal", "uncomment", "fix", "coder", "3"])
        .exits(0);
    comment(&["src/c.rs:1", "x"]).tells(&["does not change `src/c.rs`"]);
    comment(&["src/b.rs:4", "x"]).tells(&["no line 4"]);
    home.gdn(&["proposal", "diff", "fix", "coder"])
        .exits(0)
        .tells(&["src/b.rs:2", "One line is enough."]);
    home.gdn(&["task", "rework", "fix", "Shorter."]).exits(0);
    kill();
    settle(&home, "fix", "waiting_review");
    kill();
    settle(&home, "fix", "waiting_review");
    let shown = home.gdn_json(&["proposal", "show", "fix", "coder"]);
    let comments = shown["comments"].as_array().unwrap();
    assert_eq!(comments.len(), 2, "{comments:?}");
    for comment in comments {
        assert_eq!(comment["state"], "sent", "{comment}");
        assert!(comment["addressedBy"].is_string(), "{comment}");
    }
    let told = prompts(&home, "fix");
    let text = "- src/b.rs:2\n    >     // long\n    One line is enough.\n\
        - old.md:1 (before the change)\n    > old\n    Why?\n    [ERROR]\n";
    assert!(told.contains(text), "{told}");
    home.gdn(&["task", "approve", "fix"]).exits(0);
    kill();
    let done = settle(&home, "fix", "completed");
    assert_eq!(done["proposal"]["isDelivered"], true);
    assert_eq!(read(&home, "src/a.rs").unwrap(), "fn a() { 1 }\n");
    assert_eq!(read(&home, "src/b.rs").unwrap(), "fn b() {}\n");
    assert_eq!(read(&home, "old.md"), None);
    assert_eq!(run_log(&home, "fix", "proposal_applied"), 1);
    if kills {
        return;
    }
    let place = format!("in {}", work.display());
    let expected = [format!("new {place}"), format!("s-1 {place}")];
    assert_eq!(
        diary(&home, "fix"),
        expected,
        "the comment reached the same session"
    );
    assert_eq!(told.matches(text).count(), 1, "{told}");
    home.gdn(&["proposal", "show", "fix", "coder"])
        .exits(0)
        .prints(&["I worked on the functions.", "phase 1 of task"]);
    home.gdn(&["task", "rm", "fix", "--yes"]).exits(0);
    wait_until("its sandbox goes with it", || !work.exists());
}

#[test]
fn repo_3_a_task_changes_the_project_by_a_reviewed_proposal() {
    go_the_whole_way(false);
}

#[test]
fn repo_3_a_daemon_killed_at_each_step_applies_a_proposal_once() {
    go_the_whole_way(true);
}

/// A coding agent that commits, and leaves code in its repository that a trusting git would
/// execute.
const COMMITTER: &str = r#"#!/bin/sh
set -eu
session=${1:-s-1}
read -r told
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$session\",\"model\":\"m\"}"
{ git log --format=%s; git branch --show-current; git status --short; } >> "$HOME/diary"
plant() {
  mkdir -p .git/hooks .git/info
  for place in .git/hooks/post-index-change .git/hooks/reference-transaction; do
    printf '#!/bin/sh\ntouch "%s"\n' "$PWD/ran" > "$place"
    chmod +x "$place"
  done
  git config filter.f.clean "touch $PWD/ran; cat"
  echo '*.rs filter=f' > .git/info/attributes
  printf '[core]\n\tfsmonitor = touch %s\n' "$PWD/ran" >> .git/config
}
case $told in
*'a bug is left'*)
  echo 'fn a() { 1 }' > src/a.rs
  git commit -qam "Mended"
  plant ;;
*)
  echo 'fn a() { bug }' > src/a.rs
  git commit -qam "Work" ;;
esac
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"$session\",\"result\":\"Mended\"}"
"#;

/// Verify command: it builds, tests, and cannot change the proposal.
const VERIFY: &str = r#"#!/bin/sh
mkdir -p target && echo built > target/app
test -f target/set-up || exit 9
(echo forged > ../proposal/test.log) 2> /dev/null && echo forged
echo '=== PHASE 1 COMPLETE ==='
if grep -q bug src/a.rs; then echo 'a bug is left'; exit 3; fi
echo 'all is well'
"#;

fn git(home: &Home, args: &[&str]) -> String {
    git_in(&home.project(), args)
}

fn git_in(directory: &Path, args: &[&str]) -> String {
    let ran = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{args:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn repo_1_repository_task_is_verified_and_delivered_as_a_branch() {
    if !needs::program("git") {
        return;
    }
    let runtime = "source: project
    deliver: branch
    setup: [sh, -c, 'mkdir -p target && echo yes > target/set-up']
    verify: [./verify.sh]";
    let home = home(&PROJECT.replace("source: project", runtime));
    home.write_program("project/agent.sh", COMMITTER);
    home.write_program("project/verify.sh", VERIFY);
    home.write("project/.gitignore", "/target/\n.env\n");
    home.write("project/target/old", "built before\n");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &["commit", "-qm", "First"],
    ] {
        git(&home, args);
    }
    let base = git(&home, &["rev-parse", "HEAD"]);
    home.write("project/old.md", "not committed\n");
    let mut daemon = Daemon::serving(&home);
    new_task(&home, "fix", "Fix the functions.");
    let review = settle(&home, "fix", "waiting_review");
    let work = PathBuf::from(review["sandbox"]["workDir"].as_str().unwrap());
    assert_eq!(
        files(&review),
        ["modified src/a.rs"],
        "nothing that is built"
    );
    assert_eq!(review["verified"]["why"], "it exited with 3");
    assert_eq!(
        review["info"]["warning"],
        "phase 1: `verify` failed: it exited with 3"
    );
    home.gdn(&["task", "show", "fix"]).exits(0).prints(&[
        "modified  src/a.rs",
        "`verify` failed",
        "a bug is left",
    ]);
    let place = "tasks/fix/.cache/home/diary";
    let diary = fs::read_to_string(home.workspace_dir().join(place)).unwrap();
    assert_eq!(
        diary, "First\ngoondan/fix\n M old.md\n",
        "what was not committed shows"
    );
    // The agent receives the failure. Code that it wrote into its repository runs only in its own
    // sandbox.
    home.gdn(&["task", "rework", "fix", "Mend it."]).exits(0);
    drop(daemon.kill());
    daemon = Daemon::start(&home);
    let review = settle(&home, "fix", "waiting_review");
    assert_eq!(review["verified"]["passed"], true);
    let log = "=== PHASE 1 COMPLETE ===\nall is well\n[`verify` passed]\n";
    let shown = home.gdn_json(&["proposal", "show", "fix", "coder"]);
    assert_eq!(shown["testLog"], log);
    home.gdn(&["task", "approve", "fix"]).exits(0);
    let done = settle(&home, "fix", "completed");
    assert_eq!(done["proposal"]["branch"], "goondan/fix");
    assert_eq!(
        git(&home, &["show", "goondan/fix:src/a.rs"]),
        "fn a() { 1 }"
    );
    assert_eq!(git(&home, &["rev-parse", "goondan/fix^"]), base);
    assert_eq!(
        git(&home, &["show", "-s", "--format=%an %s", "goondan/fix"]),
        "coder Mended"
    );
    // Neither a file of the project nor its git index changed.
    assert_eq!(read(&home, "src/a.rs").unwrap(), "fn a() {}\n");
    assert_eq!(git(&home, &["status", "--short"]), "M old.md");
    assert!(
        !work.join("ran").exists(),
        "a setting of the agent's was run"
    );
    drop(daemon);
}

/// Creates a repository beside the project, with a submodule, a tracked file that is ignored, and
/// code that a trusting git would execute. Returns it and its commit.
fn hostile_repository(home: &Home) -> (PathBuf, String) {
    let other = home.path().join("other");
    for (path, text) in [
        ("other/src/a.rs", "fn a() {}\n"),
        ("other/build.log", "tracked\n"),
        ("other/.gitignore", "*.log\n"),
        ("other/.gitattributes", "*.rs filter=f\n"),
        (
            "other/.gitmodules",
            "[submodule \"m\"]\n\tpath = m\n\turl = ext::touch ran\n",
        ),
    ] {
        home.write(path, text);
    }
    git_in(&other, &["init", "-q", "-b", "main"]);
    git_in(&other, &["add", "-A", "-f"]);
    let module = "160000,1111111111111111111111111111111111111111,m";
    git_in(&other, &["update-index", "--add", "--cacheinfo", module]);
    git_in(&other, &["commit", "-qm", "First"]);
    let ran = home.path().join("ran");
    for hook in ["post-index-change", "reference-transaction", "pre-push"] {
        home.write_program(
            &format!("other/.git/hooks/{hook}"),
            &format!("#!/bin/sh\ntouch {}\n", ran.display()),
        );
    }
    let touch = format!("touch {}; cat", ran.display());
    for name in ["filter.f.smudge", "filter.f.clean", "core.fsmonitor"] {
        git_in(&other, &["config", name, &touch]);
    }
    let commit = git_in(&other, &["-c", "core.fsmonitor=false", "rev-parse", "HEAD"]);
    (other, commit)
}

#[test]
fn repo_1_task_changes_another_repository_by_a_branch() {
    if !needs::program("git") {
        return;
    }
    let source = "source: {repository: ../other, ref: main}";
    let home = home(&PROJECT.replace("source: project", source));
    home.write_program("project/agent.sh", COMMITTER);
    let (other, base) = hostile_repository(&home);
    let daemon = Daemon::serving(&home);
    new_task(&home, "fix", "Fix the functions.");
    let review = settle(&home, "fix", "waiting_review");
    assert_eq!(files(&review), ["modified src/a.rs"]);
    let work = PathBuf::from(review["sandbox"]["workDir"].as_str().unwrap());
    assert!(work.join("build.log").exists(), "tracked, but ignored");
    assert!(!work.join("agent.sh").exists(), "a file of the project");
    let place = "tasks/fix/.cache/home/diary";
    let diary = fs::read_to_string(home.workspace_dir().join(place)).unwrap();
    assert_eq!(diary, "First\ngoondan/fix\n");
    home.gdn(&["task", "show", "fix"])
        .exits(0)
        .prints(&["other at main"]);
    let refused = home.gdn(&["proposal", "apply", "fix", "coder", "--yes"]);
    assert!(refused.stderr.contains("not the project"), "{refused:?}");
    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    settle(&home, "fix", "waiting_review");
    home.gdn(&["task", "approve", "fix"]).exits(0);
    let done = settle(&home, "fix", "completed");
    assert_eq!(done["proposal"]["branch"], "goondan/fix");
    let shown = home.gdn_json(&["proposal", "show", "fix", "coder"]);
    assert_eq!(shown["deliveredAs"], "goondan/fix");
    let show = |name: &str| git_in(&other, &["-c", "core.fsmonitor=false", "show", "-s", name]);
    assert!(show("goondan/fix").contains("Mended"));
    let parent = ["-c", "core.fsmonitor=false", "rev-parse", "goondan/fix^"];
    assert_eq!(git_in(&other, &parent), base);
    let in_other = fs::read_to_string(other.join("src/a.rs")).unwrap();
    assert_eq!(in_other, "fn a() {}\n", "no file of its own is touched");
    assert_eq!(read(&home, "src/a.rs").unwrap(), "fn a() {}\n");
    let ran = home.path().join("ran");
    assert!(!ran.exists(), "a setting of the repository was run");
    // Addresses that git could take for an option or a program are refused.
    for (source, reference) in [
        ("--source=--upload-pack=touch ran", None),
        ("--source=ext::touch% ran", None),
        ("--source=git@example.org:a/b", None),
        ("--source=https://user:token@example.org/a", None),
        ("--source=../other", Some("--ref=--output=ran")),
        ("--source=project", Some("--ref=main")),
    ] {
        let new = ["task", "new", "X", "--description", "x", source];
        let args: Vec<&str> = new.into_iter().chain(reference).collect();
        home.gdn(&args).exits(2);
    }
    let new = ["task", "new", "X", "--description", "x", "--id", "lost"];
    let other = other.display().to_string();
    let of = ["--source", other.as_str(), "--ref", "nowhere", "--start"];
    home.gdn(&[&new[..], &of[..]].concat()).exits(0);
    wait_until("the missing branch is reported", || {
        let shown = home.gdn(&["task", "show", "lost", "--json"]).stdout;
        shown.contains("failed to clone") && shown.contains("nowhere")
    });
    drop(daemon);
}

const TOKEN: &str = "the-token-of-the-connection";

/// Pull requests of a fake of GitHub.
type PullRequests = std::sync::Arc<std::sync::Mutex<Vec<Value>>>;

/// A fake of the GitHub API; the answer to the first new pull request waits at the gate.
fn github_double(gate: Gate, pulls: PullRequests) -> Provider {
    Provider::start(move |request| {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return ProviderResponse::error(401, &json!({"message": "Bad credentials"}));
        }
        let mut pulls = pulls.lock().unwrap();
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v1/rate_limit") => ProviderResponse::json(&json!({})),
            ("GET", "/v1/repos/acme/shop/pulls?state=all&head=acme:goondan/fix&per_page=100") => {
                ProviderResponse::json(&json!(*pulls))
            }
            ("POST", "/v1/repos/acme/shop/pulls") => {
                let opened = json!({
                    "number": 7, "state": "open", "html_url": "https://github.com/acme/shop/pull/7",
                    "head": {"ref": request.body["head"], "sha": "any"}, "asked": request.body,
                });
                pulls.push(opened.clone());
                ProviderResponse::error(201, &opened).behind(gate.clone())
            }
            _ => ProviderResponse::error(404, &json!({"message": "Not Found"})),
        }
    })
}

/// A coding agent that records all it can read of its environment and its repository.
const CURIOUS: &str = r#"#!/bin/sh
set -eu
read -r told
{ env; cat .git/config; git remote -v; git log --format=%s; cat ../origin.git/config; } >> "$HOME/diary" 2>&1 || true
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
echo 'fn a() { 1 }' > src/a.rs
printf '%s\n' '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"Check the name\n\nNobody did."}'
"#;

#[test]
fn repo_3_pull_request_is_opened_once_despite_a_kill() {
    if !needs::program("git") {
        return;
    }
    let (gate, pulls) = (Gate::default(), PullRequests::default());
    let github = github_double(gate.clone(), pulls.clone());
    let remotes = tempfile::tempdir().unwrap();
    let server = GitServer::start(remotes.path(), "x-access-token", TOKEN);
    let runtime = format!(
        "source: {{repository: \"{}\", connection: Connection/github}}
    deliver: pull-request
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: github}}
spec:
  connectorRef: {{kind: Connector, name: github, package: \"@goondan/base\"}}
  config: {{endpoint: \"{}\", port: 0}}
  secrets: {{webhookSecret: {{value: a-secret}}, token: {{value: {TOKEN}}}}}",
        server.url("acme/shop.git"),
        github.endpoint()
    );
    let home = home(&PROJECT.replace("source: project", &runtime));
    home.write_program("project/agent.sh", CURIOUS);
    let (other, base) = hostile_repository(&home);
    let shop = remotes.path().join("acme/shop.git");
    let (from, to) = (other.to_str().unwrap(), shop.to_str().unwrap());
    git_in(remotes.path(), &["clone", "-q", "--bare", "--", from, to]);
    git_in(&shop, &["config", "http.receivepack", "true"]);
    let daemon = Daemon::serving(&home);
    new_task(&home, "fix", "Fix the functions.");
    settle(&home, "fix", "waiting_review");
    let place = "tasks/fix/.cache/home/diary";
    let diary = fs::read_to_string(home.workspace_dir().join(place)).unwrap();
    assert!(diary.contains("First"), "{diary}");
    assert!(!diary.contains(TOKEN), "{diary}");
    // The daemon is killed when the pull request is open, before it can know.
    let approve = home.start_gdn(&["task", "approve", "fix"]);
    wait_until("the pull request is open", || {
        pulls.lock().unwrap().len() == 1
    });
    drop(daemon.kill());
    gate.open();
    approve.wait();
    let daemon = Daemon::start(&home);
    settle(&home, "fix", "waiting_review");
    home.gdn(&["task", "approve", "fix"]).exits(0);
    let done = settle(&home, "fix", "completed");
    let url = "https://github.com/acme/shop/pull/7";
    assert_eq!(done["proposal"]["branch"], "goondan/fix");
    assert_eq!(done["proposal"]["pullRequest"], url);
    home.gdn(&["task", "show", "fix"]).exits(0).prints(&[url]);
    home.gdn(&["proposal", "show", "fix", "coder"])
        .exits(0)
        .prints(&[url]);
    let shown = home.gdn_json(&["proposal", "show", "fix", "coder"]);
    assert_eq!(shown["deliveredAs"], url);
    let opened = pulls.lock().unwrap().clone();
    assert_eq!(opened.len(), 1, "{opened:?}");
    let asked = json!({"title": "Check the name", "body": "Nobody did.", "head": "goondan/fix", "base": "main"});
    assert_eq!(opened[0]["asked"], asked);
    assert_eq!(git_in(&shop, &["rev-parse", "goondan/fix^"]), base);
    assert_eq!(
        git_in(&shop, &["show", "goondan/fix:src/a.rs"]),
        "fn a() { 1 }"
    );
    assert!(!home.path().join("ran").exists());
    drop(daemon);
}
