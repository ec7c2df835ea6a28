//! A question and its answer.

use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, home, needs, wait_for, wait_until};

use crate::conversation::{check, result_text, role, shape, text};

/// The example of the README.
fn bookshop() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/bookshop");
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn the_example_is_played_from_start_to_end_by_one_command() {
    let home = Home::without_project();
    let question = "How many copies of Dune were sold, and what did they earn?";
    let ran = home.gdn(&["demo", &bookshop(), "--ask", question]).exits(0);
    assert_eq!(
        ran.stdout,
        "25 copies of Dune were sold, and they earned 244.70 euros.\n"
    );
    let steps = [
        "file-system__list",
        "bash__exec",
        "file-system__write",
        "file-system__read",
    ];
    let ran = ran
        .tells(&steps)
        .tells(&["gdn run", "gdn chat", "gdn init"]);
    assert!(ran.stderr.contains("10 messages"), "{ran:#?}");
}

/// A fresh clone has the programs that the README's first command builds, and no others.
#[test]
fn the_first_command_of_the_readme_builds_all_that_it_runs() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let command = readme
        .lines()
        .find(|line| line.starts_with("cargo build"))
        .unwrap();
    assert!(command.starts_with("cargo build --locked --workspace && target/debug/gdn demo "));
    let built = [home::GDN, home::ORCHESTRATOR, home::AGENT, home::CONNECTOR];
    let home = Home::without_project();
    let dir = home.bin_dir_of_its_own();
    for program in built {
        let link = dir.path().join(program);
        if !link.exists() {
            std::fs::hard_link(bin(program), link).unwrap();
        }
    }
    let question = "How many copies of Dune were sold, and what did they earn?";
    let args = ["demo", &bookshop(), "--ask", question];
    let mut command = home.command(&dir.path().join("gdn"), &args);
    command.env("PATH", "/usr/bin:/bin");
    let ran = home::RunningProgram::start(command).wait().exits(0);
    assert_eq!(
        ran.stdout,
        "25 copies of Dune were sold, and they earned 244.70 euros.\n"
    );
}

#[test]
fn tools_of_the_projects_own_are_called_in_a_demo() {
    if !needs::javascript() || !needs::program("python3") {
        return;
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/tools");
    let tools = tools.canonicalize().unwrap();
    let home = Home::without_project();
    let ask = |question: &str| {
        let ran = home.gdn(&["demo", tools.to_str().unwrap(), "--ask", question]);
        ran.exits(0).stdout
    };
    assert_eq!(
        ask("What do 3 copies at 12.50 cost?"),
        "They cost 37.50 euros.\n"
    );
    assert_eq!(
        ask("Count the words of: to be or not to be"),
        "The most frequent: [{\"word\":\"to\",\"count\":2},{\"word\":\"be\",\"count\":2}]\n"
    );
}

#[test]
fn coding_agent_reads_an_issue_through_mcp_and_fixes_a_file() {
    if !needs::program("python3") || !needs::typescript() {
        return;
    }
    let coder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/coder");
    let coder = coder.canonicalize().unwrap();
    let home = Home::without_project();
    let ran = home.gdn(&["demo", coder.to_str().unwrap(), "--ask", "Fix issue 1"]);
    let ran = ran.exits(0);
    assert_eq!(
        ran.stdout,
        "Fixed: greet.py in my work directory passes its check. #1 has 1 comment(s).\n"
    );
    let steps = [
        "4: def greeting(name):",
        "issues__get",
        "outline__of",
        "file-system__edit",
        "issues__comment",
    ];
    ran.tells(&steps);
}

#[test]
fn question_is_answered_in_steps_with_real_tools_and_files() {
    let home = Home::without_project();
    let _daemon = Daemon::start(&home);
    let project = ["--project", &bookshop()];
    let gdn = |args: &[&str]| home.gdn(&[&project, args].concat()).exits(0);
    home.gdn(&["run", &bookshop()]).exits(0);
    let question = "How many copies of Dune were sold, and what did they earn?";
    let sent = gdn(&["send", question, "--json"]).json();
    let answer = "25 copies of Dune were sold, and they earned 244.70 euros.";
    assert_eq!(sent["outcome"]["status"], "completed");
    assert_eq!(sent["outcome"]["reply"], answer);
    assert_eq!(sent["agent"], "clerk");

    let history = gdn(&["instance", "history", "--json"]).json();
    let messages = history["messages"].as_array().unwrap();
    check(messages);
    assert_eq!(shape(messages), "uatatatata");
    assert_eq!(text(&messages[0]), question);
    assert_eq!(text(messages.last().unwrap()), answer);
    assert_eq!(history["pending"], serde_json::json!([]));

    let shown = gdn(&["instance", "show", "--json"]).json();
    let work_dir = Path::new(shown["workDir"].as_str().unwrap());
    let report = std::fs::read_to_string(work_dir.join("reports/Dune.md")).unwrap();
    assert!(
        report.contains("- copies: 25\n- earned: 244.70"),
        "{report}"
    );
}

#[test]
fn chat_answers_each_line_and_remembers_over_daemon_restarts() {
    let home = Home::without_project();
    let daemon = Daemon::start(&home);
    home.gdn(&["run", &bookshop()]).exits(0);
    let program = bin(home::GDN);
    let chat = || {
        let mut command = home.command(&program, &["chat", "--project", &bookshop()]);
        command.stdin(std::process::Stdio::piped());
        home::RunningProgram::start(command)
    };
    let mut first = chat();
    first.say("remember my name is Ada");
    first.wait_for_stdout("I shall remember you, Ada.\n");
    // The same chat continues with the next daemon.
    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    first.say("what is my name");
    first.wait_for_stdout("Your name is Ada.\n");
    let ran = first.wait().exits(0);
    assert_eq!(
        ran.stdout,
        "I shall remember you, Ada.\nYour name is Ada.\n"
    );

    drop(daemon.stop());
    let _daemon = Daemon::start(&home);
    let mut second = chat();
    second.say("what is my name");
    assert_eq!(second.wait().exits(0).stdout, "Your name is Ada.\n");
}

#[test]
fn msg_13_an_event_sent_twice_is_one_turn_and_one_answer() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let send = |text: &str| home.gdn_json(&["send", "--event-id", "once", text]);
    let first = send("echo one");
    let second = send("echo one");
    assert_eq!(
        (&first["duplicate"], &second["duplicate"]),
        (&false.into(), &true.into())
    );
    assert_eq!(first["outcome"], second["outcome"]);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "ua");
}

#[test]
fn an_event_that_is_not_waited_for_is_answered_all_the_same() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    for text in ["hold a", "echo b", "echo c"] {
        let sent = home.gdn_json(&["send", "--no-wait", text]);
        assert!(sent.get("outcome").is_none(), "{sent}");
    }
    wait_until("the tool runs", || home.note("a.runs") == "run\n");
    // The others wait for their turn.
    let process = home.ps_agent("main").unwrap();
    assert_eq!(process["state"], "processing");
    assert_eq!(process["pendingEvents"], 3);
    home.write("notes/a.go", "");
    let messages = wait_for("all are answered", || {
        let messages = home.history("main");
        (messages.len() == 8).then_some(messages)
    });
    check(&messages);
    let said = messages
        .iter()
        .filter(|message| role(message) != "tool")
        .map(text);
    let expected = ["hold a", "first", "done a", "echo b", "b", "echo c", "c"];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    assert!(result_text(&messages[2]).contains("released a"));
}

#[test]
fn inst_3_agents_keep_their_own_conversations() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let sent = home.gdn_json(&["send", "--instance", "k", "echo to worker"]);
    assert_eq!(
        (&sent["agent"], &sent["instanceKey"]),
        (&"worker".into(), &"k".into())
    );
    let sent = home.gdn_json(&[
        "send",
        "--agent",
        "helper",
        "--instance",
        "k",
        "echo to helper",
    ]);
    assert_eq!(
        (&sent["agent"], &sent["instanceKey"]),
        (&"helper".into(), &"helper:k".into())
    );
    assert_eq!(home.history("k").len(), 2);
    assert_eq!(home.history("helper:k").len(), 2);
    // The worker cannot continue the helper's conversation.
    let taken = home
        .gdn(&["send", "--instance", "helper:k", "echo mine", "--json"])
        .exits(10);
    assert_eq!(taken.error_json()["code"], "conflict");
    let unknown = home.gdn(&["send", "--agent", "nobody", "hi"]).exits(5);
    unknown.tells(&["nobody"]);
}
