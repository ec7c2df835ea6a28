//! Start and end of the process, both orderly and abnormal.

use std::process::Command;

use goondan_protocol::definition::ToolExport;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ipc::{Pong, ToOrchestrator};
use goondan_protocol::message::MessageEvent;
use goondan_protocol::observe::RuntimeEventKind;
use goondan_protocol::version::Version;
use goondan_tests::wait_for;

use crate::support::{
    BINARY, Orchestrator, StoredMessages, TestProject, ended, is_alive, kill, put, read_log, script,
};

/// A tool that never ends, with a stray that left its process group.
const ENDLESS: &str = r#"
rules:
  - when: {tool: bash__exec, error: true}
    say: "cut short: ${result}"
  - when: {user: endless|until told, tool: bash__exec}
    say: done
  - when: {user: endless}
    call:
      - tool: bash__exec
        args:
          command: |
            setsid bash -c 'echo $$ > stray; exec sleep 1000' &
            echo $$ > main
            sleep 1000
  - when: {user: until told}
    call:
      - {tool: bash__exec, args: {command: "echo $$ > main; until [ -e told ]; do sleep 0.02; done"}}
  - when: {tool: bash__exec}
    say: "${result}"
  - when: {user: environment}
    call:
      - {tool: bash__exec, args: {command: "env | grep ^GOONDAN_ | sort; readlink /proc/self/fd/* >&2; exit 0"}}
  - say: hello
"#;

/// A process with the endless tool running, and the tool's processes.
fn busy(site: &TestProject) -> (Orchestrator, [i32; 2]) {
    let mut agent =
        Orchestrator::start(&site.assignment(script(ENDLESS)), StoredMessages::default());
    agent.give("t1", 1, "endless");
    agent.serve_until_tool_called();
    let pids = ["main", "stray"].map(|name| site.pid_in(name));
    assert!(pids.into_iter().all(is_alive));
    (agent, pids)
}

fn all_gone(pids: [i32; 2]) {
    wait_for("every process of the tool is gone", || {
        (!pids.into_iter().any(is_alive)).then_some(())
    });
}

#[test]
fn agent_process_kills_its_tools_when_the_orchestrator_vanishes() {
    let site = TestProject::new();
    let (agent, pids) = busy(&site);
    let mut child = agent.vanish();
    assert_eq!(ended(&mut child).code(), Some(3));
    assert!(!pids.into_iter().any(is_alive), "it ended before its tools");
}

#[test]
fn killed_agent_process_leaves_no_tools_and_its_turn_resumes() {
    let site = TestProject::new();
    let (mut agent, pids) = busy(&site);
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    all_gone(pids);

    let assignment = site.assignment(script(ENDLESS));
    let mut next = Orchestrator::start(&assignment, agent.stored.clone());
    next.give("t1", 2, "endless");
    let TurnOutcome::Completed { reply } = next.finish_turn() else {
        panic!("the turn failed");
    };
    assert!(reply.contains("E_TOOL_INTERRUPTED"), "{reply}");
    assert_eq!(next.stored.base.len(), 4);
}

#[test]
fn msg_4_missing_message_target_is_reported_and_turn_continues() {
    let site = TestProject::new();
    let (mut agent, _) = busy(&site);
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    let mut stored = agent.stored.clone();
    for target in ["ghost", "t1:u"] {
        let target_id = target.parse().unwrap();
        stored.events.push(MessageEvent::Remove { target_id });
    }

    let mut next = Orchestrator::start(&site.assignment(script(ENDLESS)), stored);
    next.give("t1", 2, "endless");
    let outcome = next.finish_turn();
    assert!(
        matches!(outcome, TurnOutcome::Completed { .. }),
        "{outcome:?}"
    );
    assert_eq!(
        next.stored.base.len(),
        3,
        "the input was there and is removed"
    );
    let warnings = next.observed.iter();
    let warnings = warnings.filter(|event| event.kind == RuntimeEventKind::MessageWarning);
    assert_eq!(warnings.count(), 1);
    let log = next.log();
    let warned =
        |line: &&serde_json::Value| line["level"] == "warn" && line.to_string().contains("ghost");
    assert_eq!(log.iter().filter(warned).count(), 1, "{log:#?}");
}

#[test]
fn a_call_that_is_idempotent_is_run_again_by_the_next_process() {
    let site = TestProject::new();
    let mut assignment = site.assignment(script(ENDLESS));
    assignment.agent.tools[0].exports = vec![ToolExport {
        name: "exec".to_owned(),
        description: None,
        parameters: None,
        idempotent: Some(true),
    }];
    let mut agent = Orchestrator::start(&assignment, StoredMessages::default());
    agent.give("t1", 1, "until told");
    agent.serve_until_tool_called();
    let first = site.pid_in("main");
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();

    put(site.work.join("told"), "");
    let mut next = Orchestrator::start(&assignment, agent.stored.clone());
    next.give("t1", 2, "until told");
    assert_eq!(next.finish_turn(), completed("done"));
    assert_ne!(site.pid_in("main"), first, "the command did not run again");
    assert_eq!(next.stored.base.len(), 4);
}

#[test]
fn an_enclosure_that_is_killed_leaves_its_command_to_the_agent() {
    let site = TestProject::new();
    let (mut agent, pids) = busy(&site);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    kill(rest.split_whitespace().nth(1).unwrap().parse().unwrap());
    assert_eq!(agent.finish_turn(), completed("done"));
    assert!(!pids.into_iter().any(is_alive), "a stray is left");
}

#[test]
fn invalid_frame_ends_the_process_and_its_tools() {
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x02{}", b"\0\0\0\x04oops"] {
        let site = TestProject::new();
        let (mut agent, pids) = busy(&site);
        agent.send_bytes(garbage);
        assert_eq!(ended(&mut agent.child).code(), Some(1));
        assert!(!pids.into_iter().any(is_alive));
        let log = agent.log();
        assert_eq!(log.last().unwrap()["level"], "error", "{log:?}");
    }
}

#[test]
fn a_ping_is_answered_while_a_tool_runs() {
    let site = TestProject::new();
    let (mut agent, _) = busy(&site);
    for nonce in [3, 4] {
        agent.ping(nonce);
        agent.serve_until(
            |message| matches!(message, ToOrchestrator::Pong(Pong { nonce: n }) if *n == nonce),
        );
    }
}

#[test]
fn a_shutdown_lets_the_turn_end_and_begins_no_other() {
    let site = TestProject::new();
    let mut agent =
        Orchestrator::start(&site.assignment(script(ENDLESS)), StoredMessages::default());
    agent.give("t1", 1, "until told");
    agent.serve_until_tool_called();
    site.pid_in("main");
    agent.shut_down();
    agent.give("t2", 1, "hi");
    agent.ping(1);
    agent.serve_until(|message| matches!(message, ToOrchestrator::Pong(_)));
    put(site.work.join("told"), "");
    assert_eq!(agent.finish_turn(), completed("done"));
    assert!(matches!(agent.next(), Some(ToOrchestrator::ShutdownAck(_))));
    assert!(
        agent.next().is_none(),
        "something was sent after the acknowledgement"
    );
    assert_eq!(ended(&mut agent.child).code(), Some(0));
    let log = agent.log();
    let last = log.last().unwrap();
    assert_eq!(
        last["message"], "agent process ended as requested",
        "{log:?}"
    );
}

#[test]
fn a_shutdown_before_the_conversation_is_loaded_is_heard() {
    let site = TestProject::new();
    let mut agent =
        Orchestrator::start(&site.assignment(script(ENDLESS)), StoredMessages::default());
    agent.shut_down();
    agent.serve_until(|message| matches!(message, ToOrchestrator::ShutdownAck(_)));
    assert_eq!(ended(&mut agent.child).code(), Some(0));
}

/// The binary itself is started with `GOONDAN_IPC_FD` and `GOONDAN_SECRET`, and with a socket.
#[test]
fn a_command_inherits_neither_variables_nor_descriptors() {
    let site = TestProject::new();
    let mut agent =
        Orchestrator::start(&site.assignment(script(ENDLESS)), StoredMessages::default());
    let expected = format!(
        "exit code: 0\nstdout:\nGOONDAN_INSTANCE_KEY=key: 1\nGOONDAN_PROJECT_ROOT={}\n\
         GOONDAN_WORK_DIR={}\nstderr:\n",
        site.project.display(),
        site.work.display()
    );
    let answer = agent.ask("t1", "environment");
    let Some(descriptors) = answer.strip_prefix(&expected) else {
        panic!("{answer:?} does not begin with {expected:?}");
    };
    assert!(descriptors.contains("/dev/null"), "{descriptors}");
    let link = format!("socket:[{}]", agent.child_socket_inode);
    assert!(!descriptors.contains(&link), "{descriptors}");
}

#[test]
fn a_terminals_signals_do_not_reach_it() {
    let site = TestProject::new();
    let (mut agent, pids) = busy(&site);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(agent.child.id()).unwrap());
    for signal in [nix::sys::signal::SIGINT, nix::sys::signal::SIGTERM] {
        nix::sys::signal::kill(pid, signal).unwrap();
    }
    agent.ping(1);
    agent.serve_until(|message| matches!(message, ToOrchestrator::Pong(_)));
    assert!(pids.into_iter().all(is_alive));
}

#[test]
fn another_version_is_refused_loudly() {
    let site = TestProject::new();
    let assignment = site.assignment(script(ENDLESS));
    let mut agent = Orchestrator::spawn(&assignment, StoredMessages::default());
    let theirs = Version {
        goondan: "0.0.0-other".to_owned(),
        ..Version::current()
    };
    agent.welcome(&assignment, theirs);
    assert_eq!(ended(&mut agent.child).code(), Some(1));
    let error = agent.log().pop().unwrap()["error"].to_string();
    assert!(error.contains("0.0.0-other"), "{error}");
    assert!(error.contains(&Version::current().to_string()), "{error}");
}

#[test]
fn missing_work_directory_is_reported() {
    let site = TestProject::new();
    let assignment = site.assignment(script(ENDLESS));
    let mut agent = Orchestrator::spawn(&assignment, StoredMessages::default());
    std::fs::remove_dir(&site.work).unwrap();
    agent.welcome(&assignment, Version::current());
    assert_eq!(ended(&mut agent.child).code(), Some(1));
    let log = read_log(&site.work.with_file_name("log.jsonl"));
    let error = log.last().unwrap()["error"].to_string();
    assert!(
        error.contains("failed to open the work directory"),
        "{error}"
    );
}

#[test]
fn direct_start_prints_an_explanation() {
    let run = |args: &[&str]| {
        let output = Command::new(BINARY).args(args).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = run(&[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("started by goondan-orchestrator"), "{text}");
    let (code, text) = run(&["--version"]);
    assert_eq!(code, Some(0));
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
    assert_eq!(run(&["--help"]).0, Some(0));
    assert_eq!(run(&["--nonsense"]).0, Some(2));
}

fn completed(reply: &str) -> TurnOutcome {
    TurnOutcome::Completed {
        reply: reply.to_owned(),
    }
}

#[test]
fn a_turn_that_goes_in_circles_fails_and_names_the_tool() {
    let site = TestProject::new();
    let mut assignment = site.assignment(script(
        "rules: [{call: [{tool: bash__exec, args: {command: 'true'}}]}]",
    ));
    assignment.agent.loop_breaker.same_calls_max = 3;
    let mut agent = Orchestrator::start(&assignment, StoredMessages::default());
    agent.give("t1", 1, "go round");
    let outcome = agent.finish_turn();
    let TurnOutcome::Failed { code, message } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(code, "E_LOOP");
    assert!(
        message.starts_with(
            "the last 3 steps made the same calls with the same results (`bash__exec`);"
        ),
        "{message}"
    );
}
