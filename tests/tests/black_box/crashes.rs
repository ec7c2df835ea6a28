//! Processes that are killed with `SIGKILL` in the middle of a turn.

use goondan_tests::home::{AGENT, CONNECTOR, ORCHESTRATOR};
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::{LAB, lab_at};
use goondan_tests::{Daemon, Home, wait_until};

use crate::conversation::{check, result_text, shape, text};

#[test]
fn msg_8_agent_killed_in_a_turn_loses_and_repeats_nothing() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving_with_details(&home);
    assert_eq!(home.ask("main", "echo before"), "before");
    let asking = home.start_gdn(&["send", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    let agent = home.ps_agent("main").unwrap()["pid"].as_u64().unwrap();
    let commands_of_the_tool = || {
        let mut found = processes::of_home(home.path());
        found.retain(|process| process.args.iter().any(|arg| arg.contains("x.runs")));
        found
    };
    assert!(!commands_of_the_tool().is_empty());

    processes::signal(u32::try_from(agent).unwrap(), Signal::SIGKILL);
    wait_until("the model decides to call the tool again", || {
        home.note("x.runs") == "run\nagain\n"
    });
    // The interrupted command does not run in parallel with the new one.
    let programs: Vec<_> = commands_of_the_tool();
    assert!(
        programs
            .iter()
            .all(|process| process.args.iter().any(|arg| arg.contains("again"))),
        "{programs:#?}"
    );
    home.write("notes/x.go", "");
    assert_eq!(asking.wait().exits(0).stdout, "done x\n");

    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uauatata");
    let said: Vec<String> = [3, 5, 7].map(|at| text(&messages[at])).into();
    assert_eq!(said, ["first", "again", "done x"]);
    assert!(result_text(&messages[4]).contains("E_TOOL_INTERRUPTED"));
    assert!(result_text(&messages[6]).contains("released x"));
    // Each step's model call was made once: the first reply was on disk when the agent died.
    let steps = daemon.log().saying("step.started");
    assert_eq!(steps.len(), 4, "{steps:#?}");

    let crashed = daemon.log().wait_for("the crash is reported", |line| {
        message(line) == "process crashed" && line["instanceKey"] == "main"
    });
    assert_eq!(crashed["how"], "killed by SIGKILL");
    assert_eq!(crashed["consecutiveCrashes"], 1);
    assert_eq!(home.ps_agent("main").unwrap()["consecutiveCrashes"], 0);
}

#[test]
fn sup_7_no_child_outlives_a_killed_daemon_and_its_turn_resumes() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--event-id", "e1", "hold x"]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    assert_eq!(home.running(CONNECTOR).len(), 1);
    assert!(!home.running(AGENT).is_empty());
    assert!(!home.running("sleep").is_empty() || !home.running("bash").is_empty());

    // Checks that the agent, the connector and the tool's command are gone.
    drop(daemon.kill());
    let lost = asking.wait().exits(9);
    lost.tells(&["--event-id"]);

    // The model's message is on disk. A new request would be answered differently now.
    home.write(
        "project/goondan.yaml",
        &home.filled_in(LAB).replace("say: first", "say: other"),
    );
    let daemon = Daemon::start(&home);
    wait_until("the turn goes on by itself", || {
        home.note("x.runs") == "run\nagain\n"
    });
    home.write("notes/x.go", "");
    let sent = home.gdn_json(&["send", "--event-id", "e1", "hold x"]);
    assert_eq!(sent["duplicate"], true);
    assert_eq!(sent["outcome"]["reply"], "done x");

    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uatata");
    let said: Vec<String> = [1, 3, 5].map(|at| text(&messages[at])).into();
    assert_eq!(said, ["first", "again", "done x"]);
    daemon
        .log()
        .wait_for("the turn is handed over again", |line| {
            message(line) == "turn started again" && line["attempt"] == 2
        });
}

#[test]
fn sup_1_one_agent_killed_does_not_disturb_another() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let (a, b) = (
        home.start_gdn(&["send", "--instance", "a", "hold a"]),
        home.start_gdn(&["send", "--instance", "b", "hold b"]),
    );
    wait_until("both tools run", || {
        home.note("a.runs") == "run\n" && home.note("b.runs") == "run\n"
    });
    let pid = |key: &str| home.ps_agent(key).unwrap()["pid"].clone();
    let (pid_a, pid_b) = (pid("a"), pid("b"));
    processes::signal(
        u32::try_from(pid_a.as_u64().unwrap()).unwrap(),
        Signal::SIGKILL,
    );
    wait_until("a's turn goes on", || home.note("a.runs") == "run\nagain\n");
    assert_ne!(pid("a"), pid_a);
    assert_eq!(pid("b"), pid_b);
    home.write("notes/a.go", "");
    home.write("notes/b.go", "");
    assert_eq!(a.wait().exits(0).stdout, "done a\n");
    assert_eq!(b.wait().exits(0).stdout, "done b\n");
    assert_eq!(home.note("b.runs"), "run\n");
}

#[test]
fn sup_7_process_outside_its_group_ends_with_its_agent() {
    // At the level `full` the kernel ends all processes in the sandbox.
    let home = Home::new(&lab_at("landlock"));
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "escape"]);
    let escaped = || {
        let mut found = home.running("sleep");
        found.retain(|process| process.args.last().is_some_and(|arg| arg == "4321"));
        found
    };
    wait_until("the tool runs", || !escaped().is_empty());
    // The agent and its command's supervisor get no chance to clean up.
    let mut agents = processes::of_home(home.path());
    agents.retain(|process| {
        let is_enclosure = process.args.iter().any(|arg| arg == "--enclose");
        process.program() == AGENT || is_enclosure
    });
    assert_eq!(agents.len(), 2, "{agents:#?}");
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for process in &agents {
            processes::signal(process.pid, signal);
        }
    }
    wait_until("the daemon ends it", || escaped().is_empty());
    assert_eq!(asking.wait().exits(0).stdout, "I do not understand.\n");
}

#[test]
fn sup_7_orphans_of_daemon_agent_and_helper_end_at_next_start() {
    // A command that leaves its session and its environment, identified by a unique number.
    let numbers = [100_000, 200_000].map(|offset| (offset + std::process::id()).to_string());
    let [home, other] = numbers.each_ref().map(|number| {
        let command = format!("setsid env -i sleep {number} & wait");
        // At the level `full` the kernel ends all processes in the sandbox.
        Home::new(&lab_at("landlock").replace("setsid sleep 4321 & wait", &command))
    });
    let escaped = |number: &str| processes::with_args(&["sleep", number]).pop();
    let (daemon, _other_daemon) = (Daemon::serving(&home), Daemon::serving(&other));
    let [ours, theirs] = [&home, &other].map(|home| home.start_gdn(&["send", "escape"]));
    wait_until("both tools run", || {
        numbers.iter().all(|number| escaped(number).is_some())
    });
    let [own, foreign] = numbers.each_ref().map(|number| escaped(number).unwrap());
    let mut all = processes::of_home(home.path());
    all.retain(|process| {
        let is_helper = process.args.iter().any(|arg| arg == "--enclose");
        [AGENT, CONNECTOR, ORCHESTRATOR].contains(&process.program()) || is_helper
    });
    assert_eq!(all.len(), 4, "{all:#?}");
    // None of them gets a chance to react.
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for process in &all {
            processes::signal(process.pid, signal);
        }
    }
    daemon.is_gone();
    ours.wait().exits(9);
    assert!(processes::is_alive(own), "nobody was left to end it");

    let daemon = Daemon::start(&home);
    wait_until("the next daemon ends it", || !processes::is_alive(own));
    let told = daemon.log().wait_for("it says so", |line| {
        message(line) == "ended processes left over from an earlier daemon"
    });
    assert!(told["count"].as_u64() >= Some(1), "{told}");
    // It does not touch processes of a daemon with another System Root.
    assert!(processes::is_alive(foreign));
    processes::signal(foreign, Signal::SIGKILL);
    theirs.wait().exits(0);
}
