//! `gdn conversation bundle rehearse`: a person sees the effects of a change before it is active, and a
//! rehearsal changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use goondan_tests::{Daemon, Home};
use serde_json::Value;

use super::bundles::{bundle_dir, poet, poet_with_modules, status};

/// All files of a conversation.
fn everything(dir: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            into.insert(path.clone(), Vec::new());
            everything(&path, into);
        } else {
            // A temporary file may be gone by now.
            let content = fs::read(&path).ok();
            into.extend(content.map(|content| (path, content)));
        }
    }
}

fn on_disk(home: &Home) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    everything(bundle_dir(home).parent().unwrap(), &mut found);
    // It is written after the event, at most once a second.
    found.retain(|path, _| !path.ends_with("metadata.json"));
    found
}

fn newest(home: &Home) -> String {
    let status = status(home);
    let id = &status["changesets"][0]["changesetId"];
    id.as_str().unwrap().to_owned()
}

fn turns(rehearsal: &Value) -> &Vec<Value> {
    rehearsal["turns"].as_array().unwrap()
}

#[test]
fn bundle_7_rehearsal_shows_the_requests_and_changes_nothing() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    home.ask("main", "hello");
    home.ask("main", "give yourself a shell");
    let id = newest(&home);
    home.gdn(&["bundle", "show", &id])
        .exits(0)
        .tells(&[&format!("gdn conversation bundle rehearse {id}")]);
    // It has not affected any message yet.
    let before = on_disk(&home);
    let fits = home.gdn_json(&["bundle", "rehearse", &id]);
    assert_eq!(fits["breaks"], false, "{fits}");
    assert_eq!(fits["changesetId"].as_str(), Some(&*id));
    let inputs: Vec<&str> = turns(&fits)
        .iter()
        .map(|turn| turn["input"].as_str().unwrap())
        .collect();
    assert_eq!(inputs, ["hello", "give yourself a shell"]);
    assert_eq!(turns(&fits)[1]["steps"].as_array().unwrap().len(), 4);
    home.gdn(&["bundle", "rehearse", &id, "--turns", "1"])
        .exits(0)
        .prints(&["in neither prompt, model nor tools", "as recorded"]);
    assert!(
        on_disk(&home) == before,
        "a rehearsal has changed something"
    );
    home.gdn(&["bundle", "reject", &id]).exits(0);
    // A change of the prompt is reported with its effect, and with every step that would receive
    // it.
    home.ask("main", "answer in verse");
    home.ask("main", "hello");
    let base = status(&home)["base"].as_str().unwrap().to_owned();
    let back = home.gdn_json(&["bundle", "rehearse", &base, "--turns", "2"]);
    assert_eq!(back["revision"].as_str(), Some(&*base));
    assert_eq!(turns(&back).len(), 2);
    let steps = turns(&back)
        .iter()
        .flat_map(|it| it["steps"].as_array().unwrap());
    let mut differs = steps.map(|step| step["differs"].clone());
    assert!(
        differs.all(|it| it == serde_json::json!(["prompt"])),
        "{back}"
    );
    home.gdn(&["bundle", "rehearse", &base]).exits(0).prints(&[
        "-You are a poet. Answer in verse.",
        "+You are a poet. Answer in prose.",
    ]);
}

#[test]
fn bundle_7_rehearsal_of_removed_tools_names_every_broken_call() {
    let home = poet_with_modules();
    let agent = fs::read_to_string(home.project().join("resources/poet.yaml")).unwrap();
    let (bare, _) = agent.split_once("  tools:").unwrap();
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let rules = format!(
        "    rules:
      - when: {{user: '^drop', step: 1}}
        call: [{{tool: swarm-bundle__open}}]
      - when: {{tool: swarm-bundle__open, error: false, user: '^drop'}}
        call: [{{tool: swarm-bundle__write, args: {{path: resources/poet.yaml, content: {bare:?}}}}}]
"
    );
    home.write(
        "project/goondan.yaml",
        &yaml.replacen("    rules:\n", &rules, 1),
    );
    let _daemon = Daemon::serving(&home);
    home.ask("main", "hello");
    let reply = home.ask("main", "drop your tools");
    assert!(reply.contains("waiting"), "{reply}");
    let id = newest(&home);
    let gone = home.gdn(&["bundle", "rehearse", &id]).exits(16);
    gone.prints(&[
        "Removed tools",
        "swarm-bundle__commit",
        "call refused",
        "E_TOOL_NOT_IN_CATALOG",
    ])
    .tells(&[
        "1 recorded turn would break",
        &format!("gdn conversation bundle reject {id}"),
    ]);
    let told = home.gdn(&["bundle", "rehearse", &id, "--json"]).exits(16);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["breaks"], true);
    assert!(turns(&told)[0]["findings"].is_null(), "{told}");
    let findings = turns(&told)[1]["findings"].as_array().unwrap();
    let tools: Vec<&str> = findings
        .iter()
        .map(|it| it["toolName"].as_str().unwrap())
        .collect();
    assert_eq!(
        tools,
        [
            "swarm-bundle__open",
            "swarm-bundle__write",
            "swarm-bundle__commit"
        ]
    );
    // A person may approve it anyway.
    home.gdn(&["bundle", "approve", &id]).exits(0);
}

#[test]
fn bundle_7_rehearsal_starts_new_modules_and_shows_their_errors() {
    if !goondan_tests::needs::program("node") || !goondan_tests::needs::program("python3") {
        return;
    }
    let home = poet_with_modules();
    let _daemon = Daemon::serving(&home);
    for (module, code, why) in [("quits", 16, "I quit"), ("good", 0, "good__go")] {
        home.ask("main", &format!("take {module}"));
        let id = newest(&home);
        let output = home.gdn(&["bundle", "rehearse", &id]).exits(code);
        output.prints(&[why]);
        assert_eq!(newest(&home), id);
        assert_eq!(status(&home)["changesets"][0]["state"], "waiting");
        home.gdn(&["bundle", "reject", &id]).exits(0);
    }
    assert!(!bundle_dir(&home).join("gate").exists());
}

#[test]
fn bundle_7_impossible_rehearsal_is_explained_with_a_hint() {
    let home = poet();
    let _daemon = Daemon::serving(&home);
    home.ask("main", "hello");
    home.gdn(&["bundle", "rehearse", "c1"])
        .exits(2)
        .tells(&["has no bundle"]);
    home.ask("main", "give yourself a shell");
    home.gdn(&["bundle", "rehearse", "c1"]).exits(2).tells(&[
        "changeset or revision `c1` does not exist",
        "gdn conversation bundle status main",
    ]);
    let id = newest(&home);
    for turns in ["0", "101"] {
        home.gdn(&["bundle", "rehearse", &id, "--turns", turns])
            .exits(2);
    }
}
