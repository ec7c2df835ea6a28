//! A coordinator that gives workers copies of files, workers that submit proposals, and a person
//! who applies them: the example `copy-desk`, and the limits of a worker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_protocol::handoff::Handoff;
use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::{Daemon, Home, needs};
use serde_json::Value;

/// The example, as a person copies it.
fn copy_desk() -> Home {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/copy-desk");
    let read = |path: &str| fs::read_to_string(example.join(path)).unwrap();
    let home = Home::new(&read("goondan.yaml"));
    for text in ["text/bees.txt", "text/rivers.txt"] {
        home.write(&format!("project/{text}"), &read(text));
    }
    home
}

fn read(home: &Home, path: &str) -> String {
    fs::read_to_string(home.project().join(path)).unwrap()
}

fn git(home: &Home, arguments: &[&str]) {
    let names = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
    let ran = Command::new("git")
        .args(names)
        .args(arguments)
        .current_dir(home.project())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// The run of the one conversation.
fn run_of(proposals: &Value) -> String {
    let first = &proposals["proposals"][0];
    first["runId"]
        .as_str()
        .unwrap_or_else(|| panic!("{proposals}"))
        .to_owned()
}

/// Both workers submit, and a person applies their proposals.
fn play(home: &Home) {
    assert_eq!(
        home.ask("main", "correct bees and rivers"),
        "Both are handed in. See `gdn proposal list`."
    );
    assert_eq!(read(home, "text/bees.txt"), "Teh hive wakes.\n");
    assert_eq!(read(home, "text/rivers.txt"), "All rivers reach teh sea.\n");
    let run = run_of(&home.gdn_json(&["proposal", "list"]));
    home.gdn(&["proposal", "show", &run, "anna"])
        .exits(0)
        .prints(&["Corrected the spelling: The hive wakes.", "text/bees.txt"]);
    for worker in ["anna", "ben"] {
        home.gdn(&["proposal", "apply", &run, worker, "--yes"])
            .exits(0);
    }
    assert_eq!(read(home, "text/bees.txt"), "The hive wakes.\n");
    assert_eq!(read(home, "text/rivers.txt"), "All rivers reach the sea.\n");
}

#[test]
fn prop_6_two_workers_submit_and_a_person_applies_without_git() {
    let home = copy_desk();
    let _daemon = Daemon::serving(&home);
    play(&home);
    // The proposal was applied: another change needs a person first.
    let again = home.ask("main", "correct bees and rivers");
    assert!(
        again.starts_with("That went wrong: E_SANDBOX_TAKEN"),
        "{again}"
    );
}

#[test]
fn prop_6_two_workers_submit_and_a_person_applies_in_git() {
    if !needs::program("git") {
        return;
    }
    let home = copy_desk();
    git(&home, &["init", "-q"]);
    git(&home, &["add", "."]);
    git(&home, &["commit", "-q", "-m", "all"]);
    let _daemon = Daemon::serving(&home);
    play(&home);
    let shown = Command::new("git")
        .args(["diff", "--name-only"])
        .current_dir(home.project())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&shown.stdout),
        "text/bees.txt\ntext/rivers.txt\n"
    );
}

/// The example with agents that follow orders literally.
fn obedient() -> Home {
    let home = copy_desk();
    let told = "    rules:
      - when: {user: '^bash (?P<command>.+)$', step: 1}
        call: [{tool: bash__exec, args: {command: \"${command}\"}}]
      - when: {user: '^read (?P<path>.+)$', step: 1}
        call: [{tool: file-system__read, args: {path: \"${path}\"}}]
      - when: {user: '^write (?P<path>.+)$', step: 1}
        call: [{tool: file-system__write, args: {path: \"${path}\", content: x}}]
      - when: {user: '^status (?P<agent>\\w+)$', step: 1}
        call: [{tool: place__status, args: {agent: \"${agent}\"}}]
      - when: {user: '^where$', step: 1}
        call: [{tool: place__status}]
      - when: {user: '^submit$', step: 1}
        call: [{tool: proposal__submit, args: {goal: x}}]
      - when: {user: '^prepare$', step: 1}
        call: [{tool: sandbox__prepare, args: {agent: anna, files: [text/bees.txt]}}]
      - when: {user: '^prepare secrets$', step: 1}
        call: [{tool: sandbox__prepare, args: {agent: ben, files: [.env]}}]
      - when: {user: '^anna (?P<told>.+)$', step: 1}
        call: [{tool: agents__request, args: {agent: anna, input: \"${told}\"}}]
      - when: {step: 2}
        say: \"${result}\"
";
    let text = read(&home, "goondan.yaml").replace("    rules:\n", told);
    home.write("project/goondan.yaml", &text);
    home.write("project/.env", "KEY=1\n");
    home
}

/// The example with a coordinator that has file tools and programs, at a level of confinement.
fn reading(level: &str) -> Home {
    let home = obedient();
    let tools = "    - {kind: Tool, name: bash, package: \"@goondan/base\"}
    - {kind: Tool, name: file-system, package: \"@goondan/base\"}
    - {kind: Tool, name: review}\n";
    let text = read(&home, "goondan.yaml")
        .replacen("    - {kind: Tool, name: review}\n", tools, 1)
        .replacen(
            "  name: chief\nspec:\n",
            &format!("  name: chief\nspec:\n  sandbox: {{require: {level}}}\n"),
            1,
        );
    home.write("project/goondan.yaml", &text);
    home
}

/// A coordinator reads its worker's files, in the turn and process that prepared the sandbox,
/// through programs as well as through its file tools. It cannot write to them, and sees no other
/// conversation's sandbox.
fn is_read_at(level: &str) {
    if !needs::sandbox(level) {
        return;
    }
    let home = reading(level);
    let _daemon = Daemon::serving(&home);
    home.ask("other", "prepare");
    home.ask("main", "bash true");
    home.ask("main", "prepare");
    home.ask("main", "anna bash echo The hive sleeps. > text/bees.txt");
    let handoff: Handoff = home.ask("main", "anna submit").parse().unwrap();
    let text = format!("{}/text/bees.txt", &*handoff.sandbox_work_dir);
    for path in [&*text, &*handoff.proposal_json] {
        let whole = fs::read_to_string(path).unwrap();
        for how in ["read", "bash cat"] {
            let reply = home.ask("main", &format!("{how} {path}"));
            let first = whole.lines().next().unwrap();
            assert!(reply.contains(first), "{level}: {how} {path}: {reply}");
        }
    }
    let told = home.ask("main", &format!("write {text}"));
    assert!(told.contains("E_PATH_READ_ONLY"), "{level}: {told}");
    let told = home.ask("main", &format!("bash echo x > {text}"));
    assert!(told.contains("exit code: 1"), "{level}: {told}");
    assert_eq!(fs::read_to_string(&text).unwrap(), "The hive sleeps.\n");

    let all = home.gdn_json(&["sandbox", "list"]);
    let mut all = all["sandboxes"].as_array().unwrap().iter();
    let other = all.find(|it| it["runId"].as_str().unwrap().starts_with("other-"));
    let other = other.unwrap()["directory"].as_str().unwrap();
    for how in ["read", "bash cat"] {
        let answer = home.ask("main", &format!("{how} {other}/work/text/bees.txt"));
        assert!(!answer.contains("Teh hive"), "{level}: {how}: {answer}");
    }
}

#[test]
fn prop_8_a_coordinator_reads_its_workers_files_at_full() {
    is_read_at("full");
}

#[test]
fn prop_8_a_coordinator_reads_its_workers_files_at_landlock() {
    is_read_at("landlock");
}

#[test]
fn box_3_a_worker_works_in_its_sandbox_and_writes_nowhere_else() {
    let home = obedient();
    let _daemon = Daemon::serving(&home);
    let tell = |text: &str| home.ask("main", &format!("anna {text}"));
    // Its process started before there was a sandbox, and is replaced.
    let before = tell("bash pwd");
    assert!(before.contains("/instances/"), "{before}");
    let prepared = home.ask("main", "prepare");
    assert!(prepared.contains("- text/bees.txt"), "{prepared}");
    let inside = tell("bash pwd; ls text; cat ../input/text/bees.txt");
    assert!(
        inside.contains("/anna/work\nbees.txt\nTeh hive wakes."),
        "{inside}"
    );
    let work = inside.lines().find(|line| line.ends_with("/anna/work"));
    let work = Path::new(work.unwrap()).to_owned();
    let root = home.project().display().to_string();
    // In its sandbox a program may write next to its directories; nothing of that is on disk.
    let kept = |place: &str| fs::read_to_string(work.join(place)).ok();
    for place in [
        "../input/text/bees.txt",
        "../sandbox.json",
        "../kept/x",
        &format!("{root}/text/bees.txt"),
    ] {
        let before = kept(place);
        tell(&format!("bash chmod -R u+w ../input; echo x >> {place}"));
        assert_eq!(kept(place), before, "{place}");
    }
    for place in ["text/new.txt", "../proposal/summary.md"] {
        let written = tell(&format!("bash echo x >> {place} && echo wrote it"));
        assert!(written.contains("wrote it"), "{place}: {written}");
        assert!(
            kept(place).is_some_and(|text| text.contains("x\n")),
            "{place}"
        );
    }
    assert_eq!(read(&home, "text/bees.txt"), "Teh hive wakes.\n");
    let where_it_is = tell("where");
    assert!(where_it_is.contains("sandbox of anna"), "{where_it_is}");
}

#[test]
fn sec_7_worker_sees_only_its_sandbox_and_gets_no_secrets() {
    let home = obedient();
    let _daemon = Daemon::serving(&home);
    assert!(home.ask("main", "anna where").starts_with("E_NO_SANDBOX"));
    home.ask("main", "prepare");
    let other = home.ask("main", "anna status ben");
    assert!(other.starts_with("E_NOT_GRANTED"), "{other}");
    let prepare = home.ask("main", "anna prepare");
    assert!(prepare.contains("E_TOOL_NOT_IN_CATALOG"), "{prepare}");
    let secrets = home.ask("main", "prepare secrets");
    assert!(secrets.starts_with("E_INVALID_REQUEST"), "{secrets}");
    let nothing = home.ask("main", "anna submit");
    assert!(nothing.contains("has changed nothing"), "{nothing}");
}

/// Paths in a HANDOFF, all of which exist.
fn paths_in(handoff: &Handoff) -> Vec<PathBuf> {
    let work = PathBuf::from(&*handoff.sandbox_work_dir);
    let changed: Vec<PathBuf> = handoff
        .changed_files
        .iter()
        .map(|file| work.join(&**file))
        .collect();
    assert!(!changed.is_empty(), "{handoff}");
    [PathBuf::from(&*handoff.proposal_json), work]
        .into_iter()
        .chain(changed)
        .collect()
}

#[test]
fn prop_6_every_path_in_a_handoff_exists() {
    let home = obedient();
    let _daemon = Daemon::serving(&home);
    home.ask("main", "prepare");
    home.ask("main", "anna bash echo The hive sleeps. > text/bees.txt");
    let submitted = home.ask("main", "anna submit");
    let handoff: Handoff = submitted
        .parse()
        .unwrap_or_else(|error| panic!("{error}: {submitted}"));
    for path in paths_in(&handoff) {
        let shown = path.display();
        fs::File::open(&path).unwrap_or_else(|error| panic!("{shown}: {error}\n{handoff}"));
        // The worker sees the same paths for files that it may read.
        let reply = home.ask("main", &format!("anna bash ls -d {shown} && echo found it"));
        assert!(reply.contains("found it"), "{shown}: {reply}");
    }
    let record = fs::read_to_string(&*handoff.proposal_json).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["changedFiles"][0]["path"], "text/bees.txt");
    let shown = home.gdn_json(&["proposal", "list"]);
    let directory = Path::new(&*handoff.proposal_json).parent().unwrap();
    assert_eq!(
        shown["proposals"][0]["directory"],
        directory.to_str().unwrap()
    );
}

/// The example, with a worker whose commands are not confined, and its proposal.
fn unconfined() -> (Home, Daemon) {
    let home = obedient();
    let text = read(&home, "goondan.yaml")
        .replacen(
            "  name: anna\nspec:\n",
            "  name: anna\nspec:\n  sandbox: {require: off}\n",
            1,
        )
        .replace(
            "      - when: {user: '^submit$', step: 1}\n",
            "      - when: {user: '^apply$', step: 1}
        call: [{tool: proposal__apply, args: {agent: anna}}]
      - when: {user: '^merge$', step: 1}
        call: [{tool: proposal__merge, args: {agent: anna}}]
      - when: {user: '^submit$', step: 1}\n",
        );
    home.write("project/goondan.yaml", &text);
    let daemon = Daemon::serving(&home);
    home.ask("main", "prepare");
    home.ask("main", "anna bash echo The hive sleeps. > text/bees.txt");
    let handed_in = home.ask("main", "anna submit");
    assert!(handed_in.contains("HANDOFF"), "{handed_in}");
    (home, daemon)
}

#[test]
fn prop_3_only_people_apply_reject_revert_or_merge_proposals() {
    let (home, _daemon) = unconfined();
    let run = run_of(&home.gdn_json(&["proposal", "list"]));
    let gdn = format!(
        "{} --state-root {} --project {}",
        bin(GDN).display(),
        home.state_root().display(),
        home.project().display()
    );
    let refused = |command: &str| {
        for how in [command.to_owned(), format!("setsid sh -c '{command}'")] {
            let reply = home.ask("main", &format!("anna bash {how} 2>&1; echo ended with $?"));
            assert!(
                reply.contains("requires a person") && reply.contains("ended with 17"),
                "{how}: {reply}"
            );
        }
    };
    let state = || {
        let shown = home.gdn_json(&["proposal", "show", &run, "anna"]);
        shown["state"].as_str().unwrap().to_owned()
    };
    for command in [
        format!("{gdn} proposal apply {run} anna --yes"),
        format!("{gdn} proposal apply {run} anna --yes --allow-moved-base"),
        format!("{gdn} proposal reject {run} anna"),
        format!("{gdn} proposal merge {run} anna"),
        format!("{gdn} proposal comment {run} anna text/bees.txt:1 fine"),
        format!("{gdn} sandbox remove {run} anna --force"),
        format!("{gdn} sandbox prepare --run x --agent x --allow .env .env"),
    ] {
        refused(&command);
    }
    assert_eq!(state(), "open");
    assert_eq!(read(&home, "text/bees.txt"), "Teh hive wakes.\n");
    // There is no tool for it either.
    for tool in ["apply", "merge"] {
        let answer = home.ask("main", &format!("anna {tool}"));
        assert!(answer.contains("E_TOOL_NOT_IN_CATALOG"), "{tool}: {answer}");
    }
    // Reading is allowed.
    let told = home.ask("main", &format!("anna bash {gdn} proposal list"));
    assert!(told.contains("anna"), "{told}");
    home.gdn(&["proposal", "apply", &run, "anna", "--yes"])
        .exits(0);
    assert_eq!(read(&home, "text/bees.txt"), "The hive sleeps.\n");
    refused(&format!("{gdn} proposal revert {run} anna --yes"));
    assert_eq!(state(), "applied");
    assert_eq!(read(&home, "text/bees.txt"), "The hive sleeps.\n");
    home.gdn(&["proposal", "revert", &run, "anna", "--yes"])
        .exits(0);
    assert_eq!(read(&home, "text/bees.txt"), "Teh hive wakes.\n");
}

/// The example with a coordinator that reviews proposals, a worker that tries to, and this policy.
fn reviewing(policy: &str) -> Home {
    let home = obedient();
    let tool = "    - {kind: Tool, name: proposal-review, package: \"@goondan/base\"}\n";
    let rules = "      - when: {user: '^diff$', step: 1}
        call: [{tool: proposal-review__diff, args: {agent: anna}}]
      - when: {user: '^check$', step: 1}
        call: [{tool: proposal-review__check, args: {agent: anna}}]
      - when: {user: '^apply (?P<digest>\\w+)$', step: 1}
        call: [{tool: proposal-review__apply, args: {agent: anna, digest: \"${digest}\"}}]
      - when: {user: '^submit$', step: 1}\n";
    let text = read(&home, "goondan.yaml")
        .replacen(
            "    - {kind: Tool, name: review}\n",
            &format!("    - {{kind: Tool, name: review}}\n{tool}"),
            1,
        )
        .replacen(
            "    - {kind: Tool, name: place}\n",
            &format!("    - {{kind: Tool, name: place}}\n{tool}"),
            1,
        )
        .replace("      - when: {user: '^submit$', step: 1}\n", rules)
        .replacen(
            "  entryAgent: Agent/chief\n",
            &format!("  entryAgent: Agent/chief\n{policy}"),
            1,
        );
    home.write("project/goondan.yaml", &text);
    home
}

fn digest_in(told: &str) -> String {
    let mut lines = told.lines();
    let digest = lines.find_map(|line| line.strip_prefix("digest: "));
    digest.unwrap_or_else(|| panic!("{told}")).to_owned()
}

#[test]
fn prop_8_a_coordinator_applies_what_the_policy_allows() {
    let home = reviewing("");
    let mut daemon = Daemon::serving(&home);
    let ask = |text: &str| home.ask("main", text);
    ask("prepare");
    ask("anna bash echo The hive sleeps. > text/bees.txt");
    ask("anna submit");
    let patch = ask("diff");
    assert!(patch.contains("+The hive sleeps."), "{patch}");
    // By default, only a person applies it.
    let told = ask("check");
    assert!(told.contains("does not name agent `chief`"), "{told}");
    let digest = digest_in(&told);
    let told = ask(&format!("apply {digest}"));
    assert!(told.starts_with("E_PROPOSAL_REFUSED"), "{told}");
    let set = |policy: &str| {
        let text = read(&home, "goondan.yaml");
        let entry = "  entryAgent: Agent/chief\n";
        let (before, rest) = text.split_once(entry).unwrap();
        let (_, after) = rest.split_once("---\n").unwrap();
        home.write(
            "project/goondan.yaml",
            &format!("{before}{entry}{policy}---\n{after}"),
        );
        home.gdn(&["reload"]).exits(0);
    };
    let rule = |agent: &str, paths: &str| {
        format!(
            "  policy: {{proposals: {{apply: [{{agent: Agent/{agent}, paths: [{paths}]}}]}}}}\n"
        )
    };
    set(&rule("chief", "docs/**"));
    let told = ask(&format!("apply {digest}"));
    assert!(
        told.contains("text/bees.txt: `policy.proposals.apply` does not let agent `chief`"),
        "{told}"
    );
    // No agent applies its own proposal.
    set(&rule("anna", "'**'"));
    let told = ask(&format!("anna apply {digest}"));
    assert!(told.contains("its own proposal"), "{told}");
    set(&rule("chief", "text/**"));
    let told = ask("apply 00");
    assert!(told.contains("a newer proposal was submitted"), "{told}");
    assert_eq!(read(&home, "text/bees.txt"), "Teh hive wakes.\n");
    let told = ask("check");
    assert!(told.contains("you can apply it"), "{told}");
    drop(daemon.kill());
    daemon = Daemon::start(&home);
    let reply = ask(&format!("apply {digest}"));
    assert!(reply.starts_with("applied"), "{reply}");
    assert_eq!(read(&home, "text/bees.txt"), "The hive sleeps.\n");
    home.write("project/text/bees.txt", "A person's.\n");
    let again = ask(&format!("apply {digest}"));
    assert!(again.starts_with("applied"), "{again}");
    assert_eq!(read(&home, "text/bees.txt"), "A person's.\n");
    let run = run_of(&home.gdn_json(&["proposal", "list"]));
    home.gdn(&["proposal", "show", &run, "anna"])
        .exits(0)
        .prints(&["applied  1 file; by agent `chief` in `main`"]);
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(audit.contains("by agent `chief` in `main`"), "{audit}");
    drop(daemon);
}

/// A coordinator that creates a task, and a program that works on it.
const LEAD: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@goondan/lab"}
spec: {version: 0.1.0}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: lead}
spec:
  modelConfig: {modelRef: Model/lead}
  tools:
    - {kind: Tool, name: tasks, package: "@goondan/base"}
    - {kind: Tool, name: proposal-review, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: coder}
spec:
  runtime: {kind: cli, command: [./agent.sh], format: plain, source: project}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: site}
spec:
  entryAgent: Agent/lead
  policy: {proposals: {apply: [{agent: Agent/lead, paths: ["docs/**"]}]}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: lead}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^make (?P<told>.+)$', step: 1}
        call: [{tool: tasks__create, args: {title: Write, description: "${told}", agent: coder}}]
      - when: {user: '^wait (?P<task>\S+)$', step: 1}
        call: [{tool: tasks__wait, args: {taskId: "${task}"}}]
      - when: {user: '^check (?P<task>\S+)$', step: 1}
        call: [{tool: proposal-review__check, args: {taskId: "${task}"}}]
      - when: {user: '^apply (?P<task>\S+) (?P<digest>\w+)$', step: 1}
        call: [{tool: proposal-review__apply, args: {taskId: "${task}", digest: "${digest}"}}]
      - say: "${result}"
"#;

#[test]
fn prop_8_a_coordinator_applies_the_proposal_of_its_task() {
    let home = Home::new(LEAD);
    let agent = "#!/bin/sh\nread -r path\nmkdir -p docs\necho new > \"$path\"\n";
    home.write_program("project/agent.sh", agent);
    let _daemon = Daemon::serving(&home);
    let ask = |text: &str| home.ask("main", text);
    let propose = |path: &str| {
        let made = ask(&format!("make {path}"));
        let task = made.split(':').next().unwrap().to_owned();
        let told = ask(&format!("wait {task}"));
        assert!(told.contains("waits for a person's review"), "{told}");
        let reply = ask(&format!("check {task}"));
        (task, digest_in(&reply), reply)
    };
    let (task, digest, told) = propose("docs/guide.md");
    assert!(told.contains("you can apply it"), "{told}");
    // Only the conversation that created the task sees it.
    let other = home.ask("other", &format!("apply {task} {digest}"));
    assert!(other.starts_with("E_NO_TASK"), "{other}");
    let told = ask(&format!("apply {task} {digest}"));
    assert!(told.contains("completed"), "{told}");
    assert_eq!(read(&home, "docs/guide.md"), "new\n");
    let again = ask(&format!("apply {task} {digest}"));
    assert!(again.contains("completed"), "{again}");
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(
        audit.contains("approve phase 1, by agent `lead` in `main`"),
        "{audit}"
    );

    let (task, digest, told) = propose("goondan.yaml");
    assert!(told.contains("the project's configuration"), "{told}");
    let answer = ask(&format!("apply {task} {digest}"));
    assert!(
        answer.starts_with("E_PROPOSAL_REFUSED") && answer.contains("goondan.yaml"),
        "{answer}"
    );
    let shown = home.gdn_json(&["task", "show", &task]);
    assert_eq!(shown["info"]["status"], "waiting_review");
    assert_eq!(read(&home, "goondan.yaml"), LEAD);
}
