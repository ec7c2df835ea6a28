//! Moving conversations to another machine with `gdn conversation export` and `import`.

use std::fs;

use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::Value;

use crate::conversation::{check, shape, text};

fn base(home: &Home, dir: &str) -> String {
    let path = home.workspace_dir().join("instances").join(dir);
    fs::read_to_string(path.join("messages/base.jsonl")).unwrap()
}

fn keys(home: &Home) -> Vec<String> {
    let listed = home.gdn_json(&["instance", "list"]);
    let instances = listed["instances"].as_array().unwrap().iter();
    let keys = instances.map(|found| found["instanceKey"].as_str().unwrap().to_owned());
    keys.collect()
}

fn audited(home: &Home, event: &str) -> bool {
    let audit = home.gdn_json(&["audit"]);
    let mut records = audit["records"].as_array().unwrap().iter();
    records.any(|found| found["record"]["event"] == event)
}

#[test]
fn exported_conversation_continues_elsewhere_identically() {
    let (here, there) = (Home::new(LAB), Home::new(LAB));
    let _here = Daemon::serving(&here);
    let _there = Daemon::serving(&there);
    here.ask("main", "echo one \u{e9}\"\u{1f980}");
    here.ask("main", "work 7");
    let confirmed = here.history("main");

    // During a turn, only confirmed messages are exported, and this is reported.
    let asking = here.start_gdn(&["send", "hold x"]);
    wait_until("the tool runs", || here.note("x.runs") == "run\n");
    let file = here.path().join("main.jsonl");
    let file = file.to_str().unwrap();
    let exported = here
        .gdn(&["instance", "export", "main", "-o", file])
        .exits(0);
    exported
        .prints(&["Exported main: 6 messages"])
        .tells(&["1 event waited or was in progress"]);
    here.gdn(&["instance", "export", "main", "-o", file])
        .exits(10)
        .tells(&["--force"]);
    let told = here.gdn_json(&["instance", "export", "main", "-o", file, "--force"]);
    assert_eq!(
        (&told["messages"], &told["pendingEvents"]),
        (&6.into(), &1.into())
    );
    let piped = here.gdn(&["instance", "export", "main"]).exits(0).stdout;
    let archive = fs::read_to_string(file).unwrap();
    let body = |text: &str| {
        text.lines()
            .skip(1)
            .take(6)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(body(&piped), body(&archive));
    here.gdn(&["--json", "instance", "export", "main"]).exits(2);
    here.gdn(&["instance", "export", "nobody"]).exits(5);

    let made = there.gdn_json(&["instance", "import", file]);
    assert_eq!(
        (&made["instanceKey"], &made["agentName"]),
        (&"main".into(), &"worker".into())
    );
    assert_eq!(keys(&there), ["main"]);
    assert_eq!(there.history("main"), confirmed);
    let lines = base(&there, "main");
    assert!(base(&here, "main").starts_with(&lines), "not byte for byte");
    assert_eq!(there.ask("main", "echo after"), "after");
    let messages = there.history("main");
    check(&messages);
    assert_eq!(shape(&messages), format!("{}ua", shape(&confirmed)));
    assert_eq!(text(messages.last().unwrap()), "after");
    assert!(base(&there, "main").starts_with(&lines));

    // A second copy, under a different key and agent; the files are intact.
    let args = [
        "instance",
        "import",
        file,
        "--instance",
        "../x",
        "--agent",
        "helper",
    ];
    there
        .gdn(&args)
        .exits(0)
        .prints(&["Imported ../x of agent helper: 6 messages"]);
    assert_eq!(there.history("../x"), confirmed);
    let verified = there.gdn_json(&["verify"]);
    let findings = verified["findings"].as_array().unwrap();
    assert!(
        findings.iter().all(|found| found["severity"] == "info"),
        "{findings:#?}"
    );
    wait_until("it is in the audit logs", || {
        audited(&here, "instance.exported") && audited(&there, "instance.imported")
    });

    here.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");
}

#[test]
fn invalid_import_is_rejected_and_changes_nothing() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    let file = home.path().join("main.jsonl");
    let file = file.to_str().unwrap();
    home.gdn(&["instance", "export", "-o", file]).exits(0);
    let archive = fs::read_to_string(file).unwrap();
    let import = |text: &str, more: &[&str]| {
        home.write("other.jsonl", text);
        let path = home.path().join("other.jsonl");
        let args = [&["instance", "import", path.to_str().unwrap()], more].concat();
        home.gdn(&args)
    };
    let new: [&str; 2] = ["--instance", "copy"];
    import(&archive, &[])
        .exits(10)
        .tells(&["--conversation KEY"]);
    let unknown = [&new[..], &["--agent", "nobody"]].concat();
    import(&archive, &unknown)
        .exits(5)
        .tells(&["helper, worker"]);
    let cut = archive.strip_suffix("}}\n").unwrap();
    import(cut, &new)
        .exits(15)
        .tells(&["is truncated", "nothing was changed"]);
    let changed = archive.replace("hello", "hallo");
    import(&changed, &new)
        .exits(15)
        .tells(&["line 4", "damaged"]);
    import("not an archive", &new).exits(15);
    home.gdn(&["instance", "import", "/nowhere"]).exits(5);
    assert_eq!(keys(&home), ["main"]);
    let instances = fs::read_dir(home.workspace_dir().join("instances")).unwrap();
    assert_eq!(instances.count(), 1, "something is left over");
    import(&archive, &new).exits(0);
    assert_eq!(home.history("copy"), home.history("main"));
}

#[test]
fn a_damaged_conversation_is_exported_only_without_its_damage() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    home.ask("main", "echo two");
    let messages = home.workspace_dir().join("instances/main/messages");
    // Otherwise the conversation would be repaired from the journal.
    let journal = messages.join("events.jsonl");
    wait_until("the journal is cleared", || {
        fs::metadata(&journal).unwrap().len() == 0
    });
    daemon.kill();
    let path = messages.join("base.jsonl");
    let damaged = base(&home, "main").replacen("echo one", "echo onf", 1);
    let relative = path.strip_prefix(home.path()).unwrap().to_str().unwrap();
    home.write(relative, &damaged);
    let _daemon = Daemon::start(&home);
    let file = home.path().join("main.jsonl");
    let file = file.to_str().unwrap();
    let refused = home.gdn(&["instance", "export", "-o", file]).exits(15);
    refused.tells(&["line 1", "gdn daemon verify", "--skip-damaged"]);
    assert!(!home.path().join("main.jsonl").exists());
    let output = home.gdn_json(&["instance", "export", "-o", file, "--skip-damaged"]);
    assert_eq!(
        (&output["messages"], &output["damaged"]),
        (&3.into(), &1.into())
    );
    home.gdn(&["instance", "import", file, "--instance", "copy"])
        .exits(0);
    let ids = |messages: Vec<Value>| messages.iter().map(|m| m["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(home.history("copy")), ids(home.history("main")));
}
