//! A person permits agents of the older contract to work in the project directory (`COMPAT-2`, `SEC-3`).

use std::fs;
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::older_tools::{bundle, holds};

const QUESTION: &str = "Allow `project`? [y/N]";

/// A file of the configuration below a directory.
const CREW: &str = "\
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: extra}
spec: {modelConfig: {modelRef: Model/main}}
";

/// Tries to change the configuration, itself and by way of its directory.
const ATTACK: &str = "echo x > goondan.yaml; echo x > crew/agents.yaml; mv goondan.yaml gone.yaml; mv crew gone; \
    ln -f crew/agents.yaml linked.yaml; rm -rf crew; rm -f goondan.yaml; echo done";

/// Adds a file that the next load would read.
const SNEAK: &str = "mkdir sneaky && printf '%s\\n' 'apiVersion: goondan.ai/v1' 'kind: Model' 'metadata: {name: evil}' \
    'spec: {provider: scripted, options: {rules: [{say: evil}]}}' > sneaky/model.yaml; cat sneaky/model.yaml";

fn home() -> Home {
    let calls = [
        (
            "file-system__write",
            json!({"path": "$GOONDAN_PROJECT_ROOT/notes.txt", "content": "zero\n"}),
        ),
        (
            "file-system__write",
            json!({"path": "notes.txt", "content": "one\n"}),
        ),
        (
            "bash__exec",
            json!({"command": "pwd; cat notes.txt; echo two >> notes.txt"}),
        ),
        ("file-system__read", json!({"path": "notes.txt"})),
        (
            "file-system__write",
            json!({"path": "crew/agents.yaml", "content": "x"}),
        ),
        (
            "file-system__write",
            json!({"path": ".env.production", "content": "x"}),
        ),
        ("bash__exec", json!({"command": ATTACK})),
        ("bash__exec", json!({"command": SNEAK})),
    ];
    let home = Home::new(&bundle(&calls, ""));
    home.write("project/crew/agents.yaml", CREW);
    home
}

fn result(home: &Home, key: &str, call: usize) -> Value {
    let text = home.ask(key, &format!("call {call}"));
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("call {call}: no JSON: {text}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn compat_2_agents_work_in_the_project_once_a_person_allows_it() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    let project = home.project().canonicalize().unwrap();
    let refused = home.ask("main", "call 0");
    assert!(
        refused.contains("gdn workspace permission allow project"),
        "{refused}"
    );
    let before = result(&home, "main", 1);
    let work = home.work_dir("main").canonicalize().unwrap();
    let expected = json!({"path": work.join("notes.txt")});
    holds(&before, &expected, "before consent");
    let allow = "permission allow project";
    home.gdn(&["ps"]).exits(0).tells(&[allow]);

    let run = home.gdn(&["run", "--allow", "project"]).exits(0);
    run.tells(&["Allowed `project`"]);
    let ps = home.gdn(&["ps"]).exits(0);
    assert!(!ps.stderr.contains(allow), "{}", ps.stderr);
    let written = result(&home, "main", 1);
    let expected = json!({"path": project.join("notes.txt"), "written": true});
    holds(&written, &expected, "write");
    let command = result(&home, "main", 2);
    let stdout = format!("{}\none\n", project.display());
    holds(&command, &json!({"exitCode": 0, "stdout": stdout}), "bash");
    // Another conversation sees the same files.
    for key in ["main", "other"] {
        let content = result(&home, key, 3);
        holds(&content, &json!({"content": "one\ntwo\n"}), key);
    }
    assert_eq!(read(&project.join("notes.txt")), "one\ntwo\n");
}

#[test]
fn sec_3_agents_that_write_in_the_project_cannot_change_what_it_is() {
    let home = home();
    let _daemon = Daemon::serving(&home);
    let project = home.project().canonicalize().unwrap();
    home.gdn(&["run", "--allow", "project"]).exits(0);
    let configuration = read(&project.join("goondan.yaml"));
    for call in [4, 5] {
        let refused = home.ask("main", &format!("call {call}"));
        assert!(refused.contains("is protected"), "{refused}");
    }
    holds(
        &result(&home, "main", 6),
        &json!({"stdout": "done\n"}),
        "bash",
    );
    assert_eq!(read(&project.join("goondan.yaml")), configuration);
    assert_eq!(read(&project.join("crew/agents.yaml")), CREW);
    assert!(!project.join("gone").exists() && !project.join("linked.yaml").exists());

    // A file that an agent added is not loaded before a person has seen it.
    home.gdn(&["reload"]).exits(0);
    result(&home, "main", 7);
    home.gdn(&["reload"]).exits(6).tells(&["sneaky/model.yaml"]);
    home.gdn(&["run"]).exits(6).tells(&["sneaky/model.yaml"]);
    let content = result(&home, "main", 1);
    let expected = json!({"path": project.join("notes.txt")});
    holds(&content, &expected, "the previous configuration runs");
    home.gdn(&["permission", "allow", "project"]).exits(0);
    home.gdn(&["reload"]).exits(0);

    home.gdn(&["permission", "deny", "project"]).exits(0);
    let withdrawn = result(&home, "main", 1);
    let work = home.work_dir("main").canonicalize().unwrap();
    let expected = json!({"path": work.join("notes.txt")});
    holds(&withdrawn, &expected, "withdrawn");
    let listed = home.gdn_json(&["permission", "list"]);
    assert_eq!(listed["decisions"][0]["allowed"], false, "{listed}");
    let audit = home.gdn(&["audit", "--all"]).exits(0);
    audit.prints(&["permission.allowed", "permission.denied"]);
}

#[test]
fn sec_3_run_asks_for_a_permission_once_and_remembers_no() {
    let home = home();
    let daemon = Daemon::start(&home);
    let run = || Terminal::start(home.command(&bin(GDN), &["run"]), 200);
    let mut person = run();
    person.wait_for(QUESTION);
    person.say("n");
    let (code, shown) = person.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Denied `project`"), "{shown}");
    let (code, shown) = run().ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Allow `project`?"), "{shown}");
    home.gdn(&["permission", "allow", "project"]).exits(0);
    let listed = home.gdn_json(&["permission", "list"]);
    assert_eq!(listed["decisions"][0]["allowed"], true, "{listed}");
    drop(daemon.stop());
}
