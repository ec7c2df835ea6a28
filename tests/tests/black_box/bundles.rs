//! An agent that changes its own configuration: successfully, with an error, and beyond its
//! permissions. Uses the example `self-improving`, with kills of all processes and decisions of a
//! person.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use goondan_tests::provider::{
    Provider, ProviderResponse, ReceivedRequest, openai_calling, openai_saying,
};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

const PROSE: &str = "Hello.";
pub(crate) const VERSE: &str = "Hello, hello, / the winds do blow.";

/// The example, copied as by a person.
pub(crate) fn poet() -> Home {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/self-improving");
    let read = |path: &str| fs::read_to_string(example.join(path)).unwrap();
    let home = Home::new(&read("goondan.yaml"));
    home.write("project/prompts/poet.md", &read("prompts/poet.md"));
    home
}

pub(crate) fn status(home: &Home) -> Value {
    home.gdn_json(&["bundle", "status"])
}

pub(crate) fn bundle_dir(home: &Home) -> PathBuf {
    home.work_dir("main").with_file_name("swarm-bundle")
}

fn lines(path: &Path) -> Vec<Value> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Changeset log: phase, result, and the beginning of the reason.
fn log(home: &Home) -> Vec<(String, String)> {
    let word = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    lines(&bundle_dir(home).join("logs/changeset-status.jsonl"))
        .iter()
        .map(|line| (word(line, "phase"), word(line, "result")))
        .collect()
}

fn improve(home: &Home) {
    assert_eq!(home.ask("main", "hello"), PROSE);
    let reply = home.ask("main", "answer in verse");
    assert_eq!(reply, "So be it: from now on / each line a song.");
    assert_eq!(home.ask("main", "hello"), VERSE);
}

fn fails(home: &Home) {
    home.gdn(&["send", "hello"]).exits(7);
}

#[test]
fn bundle_7_bot_improves_its_prompt_and_a_bad_one_rolls_back() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    improve(&home);
    // Neither the project nor another conversation changed.
    let prompt = fs::read_to_string(home.project().join("prompts/poet.md")).unwrap();
    assert_eq!(prompt, "You are a poet. Answer in prose.\n");
    assert_eq!(home.ask("other", "hello"), PROSE);
    let before = status(&home);
    assert_eq!(before["active"], before["head"]);
    assert_eq!(before["files"][0]["path"], "prompts/poet.md");
    // Every step reports its configuration, and the process that was replaced has not ended the
    // turn.
    let events = home
        .work_dir("main")
        .with_file_name("messages/runtime-events.jsonl");
    let events = lines(&events);
    let of_kind = |kind: &str| events.iter().filter(|it| it["type"] == kind).count();
    assert_eq!((of_kind("turn.completed"), of_kind("turn.resumed")), (3, 1));
    assert_eq!(events.last().unwrap()["bundleRevision"], before["active"]);
    // It is on probation for three turns; the first was the one that created it.
    assert_eq!(home.ask("main", "hello"), VERSE);
    let promoted = status(&home);
    assert_eq!(promoted["promoted"], promoted["active"]);
    assert!(promoted["probation"].is_null(), "{promoted}");

    home.gdn(&["send", "answer with noise"]).exits(7);
    let bad = status(&home);
    assert_ne!(bad["active"], promoted["active"]);
    fails(&home);
    assert_eq!(home.ask("main", "hello"), VERSE);
    let after = status(&home);
    assert_eq!(after["active"], promoted["active"]);
    assert_eq!(after["quarantined"][0]["revision"], bad["active"]);
    // The same content is refused from now on.
    let again = home.ask("main", "answer with noise");
    assert!(
        again.contains("was rolled back before and is refused"),
        "{again}"
    );
    home.gdn(&["bundle", "log"])
        .exits(0)
        .prints(&["activate", "failed", "it failed 2 times"]);
    home.gdn(&["bundle", "blame"])
        .exits(0)
        .prints(&["prompts/poet.md", "as I was asked"]);
    // The file has the content of the changeset before the bad one.
    let blamed = &after["files"][0]["changesetId"];
    let changesets = after["changesets"].as_array().unwrap();
    let made = changesets.iter().find(|it| it["changesetId"] == *blamed);
    assert_eq!(made.unwrap()["revision"], after["active"], "{after:#}");
}

#[test]
fn bundle_7_a_pin_after_a_revert_keeps_where_it_went_back_to() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    improve(&home);
    home.gdn(&["bundle", "revert"]).exits(0);
    home.gdn(&["bundle", "pin"]).exits(0);
    assert_eq!(home.ask("main", "hello"), PROSE);
    let pinned = status(&home);
    assert_eq!(pinned["active"], pinned["base"]);
    assert_eq!(pinned["pinned"], true);
}

#[test]
fn bundle_7_tool_changes_need_approval_and_others_are_refused() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    let said = home.ask("main", "lift your limits");
    assert!(said.contains("E_CHANGESET_REJECTED"), "{said}");
    assert!(said.contains("agents never change this"), "{said}");
    let said = home.ask("main", "give yourself a shell");
    assert!(said.contains("waiting"), "{said}");
    let waiting = status(&home);
    assert_eq!(waiting["active"], waiting["base"]);
    let changeset = &waiting["changesets"][0];
    assert_eq!(changeset["state"], "waiting");
    let id = changeset["changesetId"].as_str().unwrap();
    home.gdn(&["bundle", "diff", id])
        .exits(0)
        .prints(&["+++ b/resources/shell.yaml", "+kind: Tool"]);
    home.gdn(&["bundle", "reject", id, "--reason", "no shells here"])
        .exits(0);
    home.gdn(&["bundle", "approve", id]).exits(2);
    let reply = home.ask("main", "give yourself a shell");
    assert!(reply.contains("waiting"), "{reply}");
    let id = status(&home)["changesets"][0]["changesetId"]
        .as_str()
        .unwrap()
        .to_owned();
    home.gdn(&["bundle", "approve", &id]).exits(0);
    assert_eq!(home.ask("main", "hello"), PROSE);
    let approved = status(&home);
    assert_ne!(approved["active"], approved["base"]);
    assert_eq!(approved["active"], approved["head"]);
}

#[test]
fn bundle_1_the_files_of_a_bundle_are_those_of_the_requirements() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    improve(&home);
    let dir = bundle_dir(&home);
    let status = status(&home);
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read("head.ref").trim(), status["head"]);
    assert_eq!(read("base.ref").trim(), status["base"]);
    let cursor: Value = serde_json::from_str(&read("cursor.yaml")).unwrap();
    assert_eq!(cursor["active"], status["active"]);
    assert_eq!(
        cursor["lastCommittedChangeset"],
        cursor["lastActivatedChangeset"]
    );
    let changesets = lines(&dir.join("logs/changesets.jsonl"));
    assert_eq!(changesets.len(), 1);
    let id = changesets[0]["changesetId"].as_str().unwrap();
    let ok = |phase: &str| (phase.to_owned(), "ok".to_owned());
    assert_eq!(log(&home), [ok("commit"), ok("activate")]);
    let staged = format!("changesets/{id}/workdir/prompts/poet.md");
    assert_eq!(read(&staged), "You are a poet. Answer in verse.\n");
    assert!(
        read(&format!("changesets/{id}/diff.patch")).contains("+You are a poet. Answer in verse.")
    );
    let active = status["active"].as_str().unwrap();
    let effective = read(&format!("effective/effective-{active}.yaml"));
    assert!(effective.contains("kind: Agent"), "{effective}");
    home.gdn(&["verify"]).exits(0);
}

#[test]
fn bundle_7_person_reverts_and_pins_and_the_project_prevails() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    improve(&home);
    home.gdn(&["bundle", "revert", "--reason", "prose, please"])
        .exits(0);
    assert_eq!(home.ask("main", "hello"), PROSE);
    let reverted = status(&home);
    assert_eq!(reverted["active"], reverted["base"]);
    home.gdn(&["bundle", "pin"]).exits(0);
    let said = home.ask("main", "answer in verse");
    assert!(said.contains("a user pinned the configuration"), "{said}");
    home.gdn(&["bundle", "pin", "--off"]).exits(0);
    let reply = home.ask("main", "answer in verse");
    assert_eq!(reply, "So be it: from now on / each line a song.");
    // Edits of the project are rebased below the bundle; where both changed a file, the person's
    // text wins.
    home.write(
        "project/prompts/poet.md",
        "You are a poet. Answer in haiku.\n",
    );
    home.gdn(&["reload"]).exits(0);
    assert_eq!(home.ask("main", "hello"), PROSE);
    let rebased = status(&home);
    assert_eq!(rebased["conflicts"][0], "prompts/poet.md");
    assert_eq!(rebased["active"], rebased["base"]);
}

#[test]
fn bundle_7_change_survives_other_file_edits_and_a_new_daemon() {
    let home = poet();
    let daemon = Daemon::serving(&home);
    improve(&home);
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.write(
        "project/goondan.yaml",
        &yaml.replace("say: \"Hello.\"", "say: \"Good day.\""),
    );
    home.gdn(&["reload"]).exits(0);
    assert_eq!(home.ask("main", "hello"), VERSE);
    assert_eq!(home.ask("other", "hello"), "Good day.");
    daemon.kill();
    let _daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "hello"), VERSE);
    let kept = status(&home);
    assert_ne!(kept["active"], kept["base"]);
    assert_eq!(kept["files"][0]["path"], "prompts/poet.md");
}

#[test]
fn bundle_3_file_tools_reach_only_the_working_copy() {
    let home = poet();
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let tools = "    - {kind: Tool, name: swarm-bundle, package: \"@goondan/base\"}\n";
    let file_tools = "    - {kind: Tool, name: file-system, package: \"@goondan/base\"}\n";
    let yaml = yaml
        .replace(tools, &format!("{tools}{file_tools}"))
        .replace(
            "    rules:\n",
            "    rules:
      - when: {user: '^open', step: 1}
        call: [{tool: swarm-bundle__open}]
      - when: {user: '^put (?P<path>\\S+)$', step: 1}
        call: [{tool: file-system__write, args: {path: \"${path}\", content: \"Answer in verse.\"}}]
      - when: {user: '^commit', step: 1}
        call: [{tool: swarm-bundle__commit, args: {message: by file}}]
      - when: {tool: swarm-bundle__open}
        say: \"${result}\"
      - when: {tool: file-system__write}
        say: \"${result}\"
",
        );
    home.write("project/goondan.yaml", &yaml);
    let _daemon = Daemon::serving(&home);
    let opened = home.ask("main", "open");
    let workdir = opened
        .lines()
        .find_map(|line| line.strip_prefix("working copy: "))
        .unwrap_or_else(|| panic!("{opened}"));
    let cursor = bundle_dir(&home).join("cursor.yaml");
    let refused = home.ask("main", &format!("put {}", cursor.display()));
    assert!(refused.contains("E_PATH_OUTSIDE"), "{refused}");
    home.ask("main", &format!("put {workdir}/prompts/poet.md"));
    let reply = home.ask("main", "commit");
    assert_eq!(reply, "So be it: from now on / each line a song.");
}

/// Kills the daemon as soon as `when` is true for the bundle; the next daemon completes the turn.
/// Nothing is proposed, committed or activated twice, and the agent works with its committed
/// change.
fn killed_when(when: fn(&Path) -> bool) {
    let home = poet();
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "hello"), PROSE);
    let asking = home.start_gdn(&["send", "answer in verse"]);
    let dir = bundle_dir(&home);
    wait_until("the moment of the kill", || when(&dir));
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    drop(asking.wait());
    assert_eq!(home.ask("main", "hello"), VERSE);
    let changesets = lines(&dir.join("logs/changesets.jsonl"));
    assert_eq!(changesets.len(), 1, "{changesets:?}");
    let ok = |phase: &str| (phase.to_owned(), "ok".to_owned());
    assert_eq!(log(&home), [ok("commit"), ok("activate")]);
    let status = status(&home);
    assert_eq!(status["active"], changesets[0]["revision"]);
    assert_eq!(status["changesets"].as_array().unwrap().len(), 1);
}

#[test]
fn bundle_7_daemon_killed_with_open_changeset_proposes_it_once() {
    killed_when(|dir| dir.join("cursor.yaml").exists());
}

#[test]
fn bundle_7_daemon_killed_after_a_commit_commits_it_once() {
    killed_when(|dir| dir.join("logs/changesets.jsonl").exists());
}

#[test]
fn bundle_7_daemon_killed_after_an_activation_keeps_it() {
    killed_when(|dir| {
        let status = fs::read_to_string(dir.join("logs/changeset-status.jsonl"));
        status.is_ok_and(|text| text.contains("\"activate\""))
    });
}

/// Path of the prompt with this text in a bundle's store. The configuration, which mentions the texts
/// of all prompts, is not one.
fn blob(home: &Home, text: &str) -> PathBuf {
    let blobs = fs::read_dir(bundle_dir(home).join("store/blobs")).unwrap();
    let mut paths = blobs.map(|entry| entry.unwrap().path());
    let says = |path: &PathBuf| {
        let stored = fs::read_to_string(path).unwrap();
        stored.contains(text) && !stored.contains("apiVersion:")
    };
    paths.find(says).expect(text)
}

fn says_why(home: &Home, why: &str) {
    let status = status(home);
    let problem = status["problem"].as_str().unwrap();
    assert!(problem.contains(why), "{problem}");
    let output = home.gdn(&["status"]);
    assert!(output.stderr.contains(why), "{output:#?}");
}

/// The example with a first change that has passed probation.
fn promoted(home: &Home) -> Value {
    improve(home);
    assert_eq!(home.ask("main", "hello"), VERSE);
    let promoted = status(home);
    assert_eq!(promoted["promoted"], promoted["active"]);
    promoted["promoted"].clone()
}

#[test]
fn bundle_7_damaged_active_falls_back_to_promoted_then_project() {
    let home = poet();
    let daemon = Daemon::serving(&home);
    let promoted = promoted(&home);
    home.gdn(&["send", "answer with noise"]).exits(7);
    assert_ne!(status(&home)["active"], promoted);
    daemon.kill();
    let mut blob_file = fs::File::options()
        .append(true)
        .open(blob(&home, "with noise"))
        .unwrap();
    blob_file.write_all(b"damaged").unwrap();
    let daemon = Daemon::start(&home);
    // Damage can be inspected before anything is started.
    let seen = status(&home);
    assert!(seen["problem"].as_str().unwrap().contains("is damaged"));
    assert_eq!(home.ask("main", "hello"), VERSE);
    assert_eq!(status(&home)["active"], promoted);
    says_why(&home, "is damaged");
    daemon.kill();
    fs::remove_file(blob(&home, "in verse")).unwrap();
    let _daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "hello"), PROSE);
    let last = status(&home);
    assert_eq!(last["active"], last["base"]);
    says_why(&home, "failed to use the files");
    // The same bundle can be created again despite the damaged file.
    assert_eq!(
        home.ask("main", "answer in verse"),
        "So be it: from now on / each line a song."
    );
    assert_eq!(home.ask("main", "hello"), VERSE);
}

#[test]
fn bundle_7_conflicting_project_edit_reverts_to_promoted_one() {
    let home = poet();
    let daemon = Daemon::serving(&home);
    let before = promoted(&home);
    home.ask("main", "give yourself a shell");
    let id = status(&home)["changesets"][0]["changesetId"].clone();
    home.gdn(&["bundle", "approve", id.as_str().unwrap()])
        .exits(0);
    assert_eq!(home.ask("main", "hello"), VERSE);
    assert_ne!(status(&home)["active"], before);
    daemon.kill();
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let tool = "---\napiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {name: shell}\nspec: {builtin: wait}\n";
    home.write("project/goondan.yaml", &format!("{yaml}{tool}"));
    let _daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "hello"), VERSE);
    let after = status(&home);
    assert_ne!(after["active"], after["base"]);
    assert_eq!(after["active"], after["promoted"]);
    says_why(&home, "does not load");
}

/// Modules in the project that no agent uses.
const MODULES: [(&str, &str); 8] = [
    ("throws.mjs", "throw new Error('no such luck');\n"),
    ("exits.mjs", "process.exit(3);\n"),
    ("loops.mjs", "for (;;);\n"),
    (
        "junk.mjs",
        "import fs from 'node:fs';\nfor (let i = 0; i < 9999; i++) fs.writeSync(1, 'junk {}\\n');\n",
    ),
    ("lacks.mjs", "export const handlers = { come: () => 1 };\n"),
    ("quits.py", "raise SystemExit('I quit')\n"),
    ("stays.py", "import sys\nfor line in sys.stdin: pass\n"),
    (
        "good.mjs",
        "import fs from 'node:fs';\nfs.writeFileSync(process.env.GOONDAN_WORK_DIR + '/here', 'x');\n\
         export const handlers = { go: () => 'it goes' };\n",
    ),
];

/// The poet in a separate file, so that it can add a module of the project.
pub(crate) fn poet_with_modules() -> Home {
    let home = poet();
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let (head, rest) = yaml
        .split_once("---\napiVersion: goondan.ai/v1\nkind: Agent")
        .unwrap();
    let (agent, rest) = rest.split_once("---\n").unwrap();
    let agent = format!("apiVersion: goondan.ai/v1\nkind: Agent{agent}");
    home.write("project/resources/poet.yaml", &agent);
    let grown = format!("{agent}    - {{ref: Tool/${{name}}}}\n");
    let rules = format!(
        "    rules:
      - when: {{user: '^take ', step: 1}}
        call: [{{tool: swarm-bundle__open}}]
      - when: {{tool: swarm-bundle__open, error: false, user: '^take (?P<name>\\S+)$'}}
        call: [{{tool: swarm-bundle__write, args: {{path: resources/poet.yaml, content: {grown:?}}}}}]
      - when: {{user: '^go$', step: 1}}
        call: [{{tool: good__go}}]
      - when: {{tool: good__go}}
        say: \"${{result}}\"
      - when: {{user: '^what do you know', system: '(?s)(?P<told>approved by a person, but is rejected.*)'}}
        say: \"${{told}}\"
"
    );
    let mut project = format!("{head}---\n{rest}").replace("    rules:\n", &rules);
    for (module, text) in MODULES {
        home.write(&format!("project/tools/{module}"), text);
        let name = module.split_once('.').unwrap().0;
        project.push_str(&format!(
            "---\napiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: {name}}}\nspec:\n  \
             entry: tools/{module}\n  exports: [{{name: go, description: Goes., parameters: {{type: object}}}}]\n"
        ));
    }
    home.write("project/goondan.yaml", &project);
    home
}

/// The agent proposes this module as a tool, and a person approves it.
fn take(home: &Home, module: &str) -> Value {
    let reply = home.ask("main", &format!("take {module}"));
    assert!(reply.contains("waiting"), "{reply}");
    let id = status(home)["changesets"][0]["changesetId"].clone();
    home.gdn_json(&["bundle", "approve", id.as_str().unwrap()])
}

#[test]
fn bundle_7_module_failing_to_start_is_rejected_with_its_error() {
    if !goondan_tests::needs::program("node") || !goondan_tests::needs::program("python3") {
        return;
    }
    let home = poet_with_modules();
    let _daemon = Daemon::serving(&home);
    for (module, why) in [
        ("throws", "no such luck"),
        ("exits", "exit code 3"),
        ("loops", "was not loaded within 15000 ms"),
        ("junk", "the module exports no `handlers`"),
        ("lacks", "`handlers` has no function `go`; it has come"),
        ("quits", "I quit"),
    ] {
        let decided = take(&home, module);
        let detail = decided["detail"].as_str().unwrap();
        assert_eq!(decided["state"], "rejected", "{module}: {decided}");
        assert!(
            detail.starts_with(&format!("gate: tool `{module}`")),
            "{module}: {detail}"
        );
        assert!(detail.contains(why), "{module}: {detail}");
    }
    let status = status(&home);
    assert_eq!(status["active"], status["base"]);
    let reply = home.ask("main", "what do you know");
    assert!(reply.contains("I quit"), "{reply}");
    // Everything is reported once.
    let audit = home.gdn_json(&["audit"]).to_string();
    assert_eq!(audit.matches("no such luck").count(), 1, "{audit}");
    assert_eq!(take(&home, "good")["state"], "committed");
    // Files from its trial are deleted, and never appeared in the conversation's directory.
    assert!(!bundle_dir(&home).join("gate").exists());
    assert!(!home.work_dir("main").join("here").exists());
    assert_eq!(home.ask("main", "go"), "it goes");
    assert!(home.work_dir("main").join("here").exists());
    assert_eq!(take(&home, "stays")["state"], "committed");
}

#[test]
fn bundle_5_verify_finds_altered_files_and_repair_moves_them() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    improve(&home);
    home.gdn(&["verify"]).exits(0);
    let verse = blob(&home, "in verse");
    let mut altered = fs::File::options().append(true).open(&verse).unwrap();
    altered.write_all(b"And obey.").unwrap();
    let name = verse.file_name().unwrap().to_str().unwrap();
    let found = home.gdn(&["--json", "verify"]).exits(15);
    assert!(found.stdout.contains("replaced-file"), "{found:#?}");
    assert!(found.stdout.contains(name), "{found:#?}");
    home.gdn(&["verify", "--repair"]).exits(0);
    assert!(!verse.exists());
    home.gdn(&["verify"]).exits(0);
    // The next process uses the project's configuration.
    assert_eq!(home.ask("main", "hello"), PROSE);
    says_why(&home, "does not exist");
}

#[test]
fn bundle_7_revert_takes_effect_in_the_next_step_of_the_turn() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    improve(&home);
    let verse = status(&home)["active"].clone();
    home.ask("main", "undo");
    let after = status(&home);
    assert_eq!(after["active"], after["base"]);
    let events = home
        .work_dir("main")
        .with_file_name("messages/runtime-events.jsonl");
    let events = lines(&events);
    let steps = events
        .iter()
        .rev()
        .filter(|it| it["type"] == "step.started");
    let on: Vec<&Value> = steps.take(2).map(|it| &it["bundleRevision"]).collect();
    assert_eq!(on, [&after["base"], &verse]);
}

/// Reply of the provider's model: it rewrites its prompt on request, and otherwise answers with a
/// word.
fn rewriting(received: &ReceivedRequest) -> ProviderResponse {
    let messages = received.body["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    let said = |content: &Value| content.to_string();
    let answer = match last["role"].as_str() {
        Some("user") if said(&last["content"]).contains("rewrite") => {
            openai_calling("swarm-bundle__open", &json!({}))
        }
        Some("tool") => match last["tool_call_id"].as_str() {
            Some("call-swarm-bundle__open") => {
                let args =
                    json!({"path": "prompts/poet.md", "content": "You are a poet of few words.\n"});
                openai_calling("swarm-bundle__write", &args)
            }
            Some("call-swarm-bundle__write") => {
                openai_calling("swarm-bundle__commit", &json!({"message": "shorter"}))
            }
            _ => openai_saying(&["Done."]),
        },
        _ => openai_saying(&["Hello."]),
    };
    ProviderResponse::stream(&answer)
}

#[test]
fn bundle_7_reply_cost_is_recorded_with_its_revision() {
    let provider = Provider::start(rewriting);
    let home = poet();
    let project = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let (agents, _) = project
        .split_once("---\napiVersion: goondan.ai/v1\nkind: Model")
        .unwrap();
    let hosted = format!(
        "---\napiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: poet}}\nspec: {{provider: openai, model: big-1, \
         endpoint: \"{}\"}}\n",
        provider.endpoint()
    );
    home.write("project/goondan.yaml", &format!("{agents}{hosted}"));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "rewrite yourself"), "Done.");
    assert_eq!(home.ask("main", "hello"), "Hello.");
    let active = status(&home)["active"].as_str().unwrap().to_owned();
    let replies = || {
        let usage = home.gdn_json(&["usage", "--by", "revision"]);
        let rows = usage["rows"].as_array().unwrap().iter();
        let rows = rows.map(|row| {
            (
                row["key"].as_str().unwrap().to_owned(),
                row["spending"]["replies"].clone(),
            )
        });
        rows.collect::<std::collections::BTreeMap<_, _>>()
    };
    // Three steps up to the commit; then the last step of that turn, and the turn after it.
    let made = replies();
    assert_eq!(made.get(&active), Some(&json!(2)), "{made:?}");
    let all: u64 = made.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(all, 5, "{made:?}");
    assert!(made.contains_key("project"), "{made:?}");
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    assert_eq!(replies(), made, "it is durable");
}
