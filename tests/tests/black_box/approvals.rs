//! Tool calls that wait for approval (`STEER-3`): approved, denied, and preserved across kills.

use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, GDN, RunningProgram};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::screen::Screen;
use goondan_tests::{Daemon, Home, needs, wait_for, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, result_text, shape, text};

/// Maximum time from a decision to the kill of the daemon, in milliseconds.
const MOMENT_MS: u64 = 60;
/// Number of rounds; the long form is 200.
const ROUNDS_VAR: &str = "GOONDAN_TEST_APPROVAL_ROUNDS";
const ROUNDS: u64 = 6;

/// [`LAB`] with an agent whose commands need approval, except for two kinds. `run NAME` appends a
/// line to the note `NAME.runs`; `both NAME` runs that and a command that is approved by its
/// pattern; `free NAME` runs only the latter, `forbidden NAME` one that is never approved. Each is
/// answered with the last tool result.
pub(crate) fn project() -> String {
    let rules = r#"
      - when: {user: '^run (?P<name>\w+)$', step: 1}
        call:
          - {tool: bash__exec, args: {command: "echo run >> NOTES/${name}.runs; echo ran ${name}"}}
      - when: {user: '^both (?P<name>\w+)$', step: 1}
        call:
          - {tool: bash__exec, args: {command: "echo run >> NOTES/${name}.runs; echo ran ${name}"}}
          - {tool: bash__exec, args: {command: "echo free ${name}"}}
      - when: {user: '^free (?P<name>\w+)$', step: 1}
        call:
          - {tool: bash__exec, args: {command: "echo free ${name}"}}
      - when: {user: '^forbidden (?P<name>\w+)$', step: 1}
        call:
          - {tool: bash__exec, args: {command: "echo run >> NOTES/${name}.runs; echo forbidden"}}
      - when: {user: '^(run|both|free|forbidden) ', result: '(?P<told>(?s).*)'}
        say: "told: ${told}"
"#;
    let approve = r#"{ref: {kind: Tool, name: bash, package: "@goondan/base"}, approve: {rules: [
        {export: exec, when: {command: 'echo free \w+'}, approve: always},
        {when: {command: '(?s).*forbidden.*'}, approve: never}]}}"#;
    LAB.replacen("    rules:\n", &format!("    rules:{rules}"), 1)
        .replacen(
            r#"{kind: Tool, name: bash, package: "@goondan/base"}"#,
            approve,
            1,
        )
}

pub(crate) fn runs_of(home: &Home, name: &str) -> usize {
    let path = home.notes().join(format!("{name}.runs"));
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

pub(crate) fn waiting(home: &Home) -> Vec<Value> {
    let listed = home.gdn_json(&["approvals"]);
    listed["approvals"].as_array().unwrap().clone()
}

/// The only pending call.
pub(crate) fn the_call(home: &Home) -> Value {
    wait_for("a call waits", || {
        let mut waiting = waiting(home);
        assert!(waiting.len() < 2, "{waiting:?}");
        waiting.pop()
    })
}

pub(crate) fn id_of(call: &Value) -> String {
    call["approvalId"].as_str().unwrap().to_owned()
}

/// Sends a text to a conversation, and returns the pending call.
pub(crate) fn sent(home: &Home, key: &str, text: &str) -> (RunningProgram, String) {
    let sending = home.start_gdn(&["send", "--instance", key, "--event-id", &event(text), text]);
    (sending, id_of(&the_call(home)))
}

pub(crate) fn event(text: &str) -> String {
    text.replace(' ', "-")
}

/// Last tool result of a conversation.
fn last_result(home: &Home, key: &str) -> String {
    let messages = home.history(key);
    check(&messages);
    let mut latest = messages.iter().rev();
    let result = latest.find(|it| it["data"]["role"] == "tool");
    result_text(result.unwrap()).to_owned()
}

#[test]
fn steer_3_call_waits_with_its_commands_and_runs_once_approved() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    sending.wait_for_stderr(&format!("approve {id}"));
    sending.wait_for_stderr(&format!("deny {id} --reason"));
    let call = the_call(&home);
    let expected = (&json!("a"), &json!("worker"), &json!("bash__exec"));
    assert_eq!(
        (&call["instanceKey"], &call["agentName"], &call["toolName"]),
        expected
    );
    let shown = home.gdn(&["approvals", &id]).exits(0);
    let shown = shown.prints(&["command:", "echo ran x"]);
    shown.tells(&[&format!("approve {id}"), &format!("deny {id}")]);
    let whole = home.gdn_json(&["approvals", &id]);
    let command = whole["input"]["command"].as_str().unwrap();
    assert!(command.ends_with("; echo ran x"), "{whole}");
    let status = home.gdn(&["status"]).exits(0);
    status.tells(&["1 tool call waits", &format!("approve {id}")]);
    assert_eq!(home.ps_agent("a").unwrap()["approvals"], json!([id]));
    home.gdn(&["ps"])
        .exits(0)
        .prints(&[&format!("gdn inbox approve {id}")]);
    // A second client that waits for the same answer is notified, too.
    let again = home.start_gdn(&["send", "--instance", "a", "--event-id", "run-x", "run x"]);
    again.wait_for_stderr(&format!("approve {id}"));
    assert_eq!(runs_of(&home, "x"), 0, "it ran before it was approved");

    let approved = home.gdn_json(&["approve", &id]);
    assert_eq!(
        (&approved["decision"], &approved["toolName"]),
        (&json!("approved"), &json!("bash__exec"))
    );
    sending.wait().exits(0).prints(&["ran x"]);
    again.wait().exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);
    assert!(waiting(&home).is_empty());
    home.gdn(&["deny", &id])
        .exits(5)
        .tells(&["gdn inbox approvals"]);
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(
        audit.contains("instance.callApproved") && audit.contains(&id),
        "{audit}"
    );
    assert!(audit.contains("clientPid"), "{audit}");
}

#[test]
fn steer_3_a_denied_call_does_not_run_and_the_model_reads_why() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let reason = "not on a Friday";
    let denied = home.gdn_json(&["deny", &id, "--reason", reason]);
    assert_eq!(denied["decision"], "denied");
    let sent = sending.wait().exits(0);
    for part in ["E_TOOL_DENIED", "a person denied it", reason] {
        assert!(sent.stdout.contains(part), "{sent:?}");
    }
    assert_eq!(shape(&home.history("a")), "uata");
    assert_eq!(runs_of(&home, "x"), 0);
    // The rules decide the other calls without asking a person.
    let free = home.ask("a", "free y");
    assert!(free.contains("free y"), "{free}");
    let forbidden = home.ask("a", "forbidden z");
    assert!(forbidden.contains("E_TOOL_DENIED"), "{forbidden}");
    assert_eq!(runs_of(&home, "z"), 0);
    assert!(waiting(&home).is_empty());
    // With a time limit, a call that waits already counts from its request.
    let (sending, id) = self::sent(&home, "a", "run late");
    let policy = "  policy:\n    approvals: {timeoutSeconds: 1}\n";
    let limited = project().replacen("  policy:\n", policy, 1);
    home.write("project/goondan.yaml", &home.filled_in(&limited));
    home.gdn(&["reload"]).exits(0);
    let sent = sending.wait().exits(0);
    for part in ["E_TOOL_DENIED", "no decision was made in time"] {
        assert!(sent.stdout.contains(part), "{sent:?}");
    }
    assert_eq!(runs_of(&home, "late"), 0);
    home.gdn(&["approve", &id]).exits(5);
    let audit = home.gdn_json(&["audit"]).to_string();
    assert_eq!(audit.matches(r#""by":"timeout""#).count(), 1, "{audit}");
}

#[test]
fn steer_3_pending_approvals_survive_daemon_kill_and_stop() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "both x");
    // The other call's result is recorded, so it survives the kill.
    wait_until("the other call is recorded", || {
        shape(&home.history("a")) == "uat"
    });
    drop(daemon.kill());
    drop(sending);
    let daemon = Daemon::serving(&home);
    assert_eq!(id_of(&the_call(&home)), id, "it is the same question");
    wait_until("a process waits again", || {
        home.ps_agent("a")
            .is_some_and(|it| it["turnId"].is_string())
    });
    // The grace period is a minute, but the shutdown does not wait for a person.
    drop(daemon.stop());
    assert!(home.running(AGENT).is_empty());
    let _daemon = Daemon::serving(&home);
    assert_eq!(id_of(&the_call(&home)), id, "it is the same question");
    assert_eq!(runs_of(&home, "x"), 0);
    home.gdn(&["approve", &id]).exits(0);
    let answer = home.gdn(&["send", "--instance", "a", "--event-id", "both-x", "both x"]);
    answer.exits(0);
    assert_eq!(runs_of(&home, "x"), 1);
    let messages = home.history("a");
    // Each call has its result, with the results of calls without approval first.
    assert_eq!(shape(&messages), "uatta");
    let told: Vec<String> = messages
        .iter()
        .filter(|it| it["data"]["role"] == "tool")
        .map(|it| result_text(it).to_owned())
        .collect();
    assert!(
        told[0].contains("free x") && told[1].contains("ran x"),
        "{told:?}"
    );
}

#[test]
fn steer_3_answer_survives_a_kill_and_call_starts_at_most_once() {
    let mut random = Random::announced();
    let rounds = std::env::var(ROUNDS_VAR).map_or(ROUNDS, |text| text.parse().unwrap());
    let home = Home::new(&project());
    let mut daemon = Daemon::serving(&home);
    for round in 0..rounds {
        let (key, text) = (format!("k{round}"), format!("run r{round}"));
        let (sending, id) = sent(&home, &key, &text);
        let approves = round % 2 == 0;
        let command = if approves { "approve" } else { "deny" };
        home.gdn(&[command, &id]).exits(0);
        // The moment is random, so the test does not wait for any condition.
        random.let_pass(MOMENT_MS);
        drop(daemon.kill());
        drop(sending);
        daemon = Daemon::serving(&home);
        let again = [
            "send",
            "--instance",
            &key,
            "--event-id",
            &event(&text),
            &text,
        ];
        home.gdn(&again).exits(0);
        assert!(waiting(&home).is_empty(), "it was asked about again");
        let told = last_result(&home, &key);
        let runs = runs_of(&home, &format!("r{round}"));
        if approves {
            let is_cut_short = told.contains("E_TOOL_INTERRUPTED");
            assert!(
                told.contains(&format!("ran r{round}")) || is_cut_short,
                "{told}"
            );
            assert!(runs == 1 || (is_cut_short && runs == 0), "{runs}: {told}");
        } else {
            assert!(told.contains("E_TOOL_DENIED"), "{told}");
            assert_eq!(runs, 0);
        }
    }
}

#[test]
fn steer_3_agent_killed_during_a_wait_asks_for_the_same_call() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let kill = || {
        let agent = home.running(AGENT).remove(0);
        processes::signal(agent.pid, Signal::SIGKILL);
        wait_until("another process works on the turn", || {
            let pid = home.ps_agent("a").unwrap_or_default();
            let is_other = pid["pid"]
                .as_u64()
                .is_some_and(|it| it != u64::from(agent.pid));
            is_other && pid["turnId"].is_string()
        });
    };
    kill();
    assert_eq!(id_of(&the_call(&home)), id, "it is the same question");
    home.gdn(&["approve", &id]).exits(0);
    sending.wait().exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);

    let (sending, id) = sent(&home, "a", "run y");
    kill();
    home.gdn(&["deny", &id]).exits(0);
    sending.wait().exits(0).prints(&["E_TOOL_DENIED"]);
    assert_eq!(runs_of(&home, "y"), 0);
}

#[test]
fn steer_3_of_clients_that_answer_at_once_one_decides() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    for round in 0..4 {
        let name = format!("r{round}");
        let (sending, id) = sent(&home, "a", &format!("run {name}"));
        let answering: Vec<RunningProgram> = ["approve", "deny", "approve", "deny"]
            .into_iter()
            .map(|command| home.start_gdn(&["--json", command, &id]))
            .collect();
        let mut decided = Vec::new();
        for answering in answering {
            let ran = answering.wait();
            match ran.code {
                0 => decided.push(ran.json()["decision"].clone()),
                // Already decided, or even complete by then.
                5 | 10 => {}
                _ => panic!("{ran:?}"),
            }
        }
        let told = sending.wait().exits(0).stdout;
        assert_eq!(decided.len(), 1, "{decided:?}");
        let is_approved = decided[0] == "approved";
        assert_eq!(runs_of(&home, &name), usize::from(is_approved));
        assert_eq!(told.contains("E_TOOL_DENIED"), !is_approved, "{told}");
    }
}

#[test]
fn steer_3_canceled_turn_withdraws_its_pending_approvals() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    home.gdn(&["cancel", "--instance", "a"]).exits(0);
    sending.wait().exits(7);
    assert!(waiting(&home).is_empty());
    home.gdn(&["approve", &id])
        .exits(5)
        .tells(&["its turn has ended", "gdn inbox approvals"]);
    daemon.log().wait_for("it is reported", |line| {
        line["approvalId"] == json!(id) && line["how"] == "withdrawn: the turn is cancelled"
    });
    assert_eq!(home.ask("a", "echo after"), "after");
    assert_eq!(runs_of(&home, "x"), 0);
    check(&home.history("a"));
}

#[test]
fn steer_3_chat_shows_pending_approval_and_resumes_afterwards() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let mut chat = home.command(&bin(GDN), &["chat", "--instance", "a"]);
    chat.stdin(Stdio::piped());
    let mut chat = RunningProgram::start(chat);
    chat.say("run x");
    let id = id_of(&the_call(&home));
    chat.wait_for_stderr(&format!("approve {id}"));
    // A new chat is notified about it.
    let mut other = home.command(&bin(GDN), &["chat", "--instance", "a"]);
    other.stdin(Stdio::piped());
    let other = RunningProgram::start(other);
    other.wait_for_stderr(&format!("deny {id}"));
    home.gdn(&["approve", &id]).exits(0);
    chat.wait_for_stdout("ran x");
    other.wait().exits(0);
    chat.say("echo bye");
    chat.wait().exits(0).prints(&["bye"]);
    assert_eq!(text(home.history("a").last().unwrap()), "bye");
}

#[test]
fn sec_6_only_people_approve_calls_not_programs_of_an_agent() {
    // A confined process cannot connect to the daemon.
    let yaml = project().replace(
        "sandbox: {write: [NOTES]}",
        "sandbox: {require: off, write: [NOTES]}",
    );
    let home = Home::new(&yaml);
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let gdn = format!(
        "{} --state-root {} --project {}",
        bin(GDN).display(),
        home.state_root().display(),
        home.project().display()
    );
    let command = format!("echo free; {gdn} approve {id} 2>&1; echo ended with $?");
    let yaml = home.filled_in(&yaml);
    let yaml = yaml.replace(r"'echo free \w+'", "'echo free.*'").replacen(
        "    rules:\n",
        &format!(
            "    rules:\n      - when: {{user: '^sneak$', step: 1}}\n        call: [{{tool: bash__exec, \
             args: {{command: {}}}}}]\n      - when: {{user: '^sneak$', result: '(?P<told>(?s).*)'}}\n        \
             say: \"${{told}}\"\n",
            json!(command)
        ),
        1,
    );
    home.write("project/goondan.yaml", &yaml);
    home.gdn(&["reload"]).exits(0);
    let told = home.ask("b", "sneak");
    assert!(
        told.contains("requires a person") && told.contains("ended with 17"),
        "{told}"
    );
    assert_eq!(runs_of(&home, "x"), 0);
    home.gdn(&["deny", &id]).exits(0);
    sending.wait().exits(0);
}

/// A terminal in the project, in which a command of `gdn` was entered.
fn typed(home: &Home, command: &str) -> Screen {
    let screen = Screen::start(&home.command(&bin(GDN), &[]), 100, 40);
    let (gdn, dir) = (bin(GDN), home.path());
    screen.types(&format!(
        "clear; HOME='{}' '{}' {command}",
        dir.display(),
        gdn.display()
    ));
    screen.press(&["Enter"]);
    screen
}

#[test]
fn need_1_a_key_in_the_inbox_decides_a_call_that_it_shows() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let listed = home.gdn_json(&["inbox"]);
    let mut items = listed["items"].as_array().unwrap().iter();
    let item = items.find(|item| item["id"] == json!(id)).unwrap();
    let command = item["details"]["input"]["command"].as_str().unwrap();
    assert!(command.ends_with("; echo ran x"), "{listed}");
    home.gdn(&["inbox", "show", &id])
        .exits(0)
        .prints(&["echo ran x", "Without a decision: the call waits"]);
    let screen = typed(&home, "inbox");
    screen.wait_for("echo ran x");
    screen.wait_for("y approve, n deny, e edit, a always, s skip, q quit:");
    assert_eq!(runs_of(&home, "x"), 0, "it ran before it was approved");
    screen.press(&["y"]);
    screen.wait_for(&format!("Approved {id}."));
    sending.wait().exits(0).prints(&["ran x"]);
    assert_eq!(runs_of(&home, "x"), 1);
    home.gdn(&["approve", &id]).exits(5);
}

#[test]
fn need_1_a_call_is_approved_in_the_chat_that_waits_for_it() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let screen = typed(&home, "chat");
    screen.wait_for("Ctrl-D ends.\nyou>");
    screen.types("run x");
    screen.press(&["Enter"]);
    screen.wait_for("approve:");
    screen.press(&["C-c"]);
    screen.wait_for("stopped waiting");
    screen.wait_for("\nyou>");
    screen.types("y");
    screen.press(&["Enter"]);
    screen.wait_for("Approved: bash__exec");
    screen.wait_for("told: exit code: 0");
    assert_eq!(runs_of(&home, "x"), 1);
}

/// Approves the call that waits with these options, and returns the result of the turn.
fn approved_with(home: &Home, key: &str, text: &str, options: &[&str]) -> String {
    let (sending, id) = sent(home, key, text);
    let mut approve = vec!["inbox", "approve", id.as_str()];
    approve.extend(options);
    home.gdn(&approve).exits(0);
    sending.wait().exits(0).stdout
}

#[test]
fn need_1_call_runs_with_the_arguments_that_a_person_set() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let (sending, id) = sent(&home, "a", "run x");
    let whole = home.gdn_json(&["inbox", "approvals", &id]);
    assert_eq!(whole["schema"]["type"], "object", "{whole}");
    // Arguments that do not fit the tool, or that a rule forbids, change nothing.
    for (set, problem) in [
        ("timeoutMs=soon", "takes JSON of the type"),
        ("surplus=1", "surplus"),
    ] {
        home.gdn(&["inbox", "approve", &id, "--set", set])
            .exits(2)
            .tells(&[problem, "the call still waits"]);
    }
    assert_eq!(id_of(&the_call(&home)), id);
    let notes = home.notes().display().to_string();
    let set = format!("command=echo run >> {notes}/y.runs; echo ran y");
    let approved = home.gdn_json(&["inbox", "approve", &id, "--set", &set]);
    assert_eq!(approved["isChanged"], true, "{approved}");
    let told = sending.wait().exits(0).stdout;
    for part in ["A person changed the arguments", "notes/y.runs", "ran y"] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    assert_eq!((runs_of(&home, "x"), runs_of(&home, "y")), (0, 1));
    let audit = home.gdn_json(&["audit"]).to_string();
    assert!(audit.contains("notes/y.runs"), "{audit}");
    check(&home.history("a"));

    let told = approved_with(&home, "a", "run z", &["--set", "command=echo forbidden"]);
    assert!(told.contains("E_TOOL_DENIED"), "{told}");
    assert_eq!(runs_of(&home, "z"), 0);
}

#[test]
fn need_1_standing_approval_covers_the_same_call_until_it_is_revoked() {
    let home = Home::new(&project());
    let mut daemon = Daemon::serving(&home);
    let told = approved_with(&home, "a", "run x", &["--always"]);
    assert!(told.contains("ran x"), "{told}");
    let standing = home.gdn_json(&["inbox", "standing"]);
    let one = &standing["standing"][0];
    let id = one["approvalId"].as_str().unwrap().to_owned();
    let (key, tool) = (&one["instanceKey"], &one["toolName"]);
    assert_eq!((key, tool), (&json!("a"), &json!("bash__exec")));
    home.gdn(&["inbox", "standing"])
        .exits(0)
        .prints(&[&id, "echo ran x"]);
    // Neither a restart nor a kill ends it.
    for round in 2..4 {
        drop(daemon.kill());
        daemon = Daemon::serving(&home);
        let event = format!("again-{round}");
        let again = ["send", "--instance", "a", "--event-id", &event, "run x"];
        home.gdn(&again).exits(0).prints(&["ran x"]);
        assert_eq!(runs_of(&home, "x"), round);
    }
    let audit = home.gdn_json(&["audit"]).to_string();
    let by = format!("standing:{id}");
    assert_eq!(audit.matches(&by).count(), 2, "{audit}");
    // Other calls and other conversations still need a person.
    for (key, text) in [("a", "run y"), ("b", "run x")] {
        let (sending, waits) = sent(&home, key, text);
        home.gdn(&["deny", &waits]).exits(0);
        sending.wait().exits(0);
    }
    home.gdn(&["inbox", "revoke", &id]).exits(0).prints(&[&id]);
    home.gdn(&["inbox", "revoke", &id]).exits(5);
    drop(daemon.kill());
    let _daemon = Daemon::serving(&home);
    let event = ["send", "--instance", "a", "--event-id", "last", "run x"];
    let sending = home.start_gdn(&event);
    let waits = id_of(&the_call(&home));
    home.gdn(&["deny", &waits]).exits(0);
    sending.wait().exits(0);
    assert_eq!(runs_of(&home, "x"), 3);
}

#[test]
fn need_1_standing_approval_of_a_workspace_outlives_conversations() {
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    approved_with(&home, "a", "run x", &["--always"]);
    approved_with(&home, "a", "run y", &["--always=workspace"]);
    home.gdn(&["conversation", "delete", "a", "--yes"]).exits(0);
    let standing = home.gdn_json(&["inbox", "standing"]);
    let standing = standing["standing"].as_array().unwrap();
    assert_eq!(standing.len(), 1, "{standing:?}");
    assert!(standing[0].get("instanceKey").is_none(), "{standing:?}");
    let told = home.ask("b", "run y");
    assert!(told.contains("ran y"), "{told}");
    let (sending, id) = sent(&home, "a", "run x");
    home.gdn(&["deny", &id]).exits(0);
    sending.wait().exits(0);
}

/// Goal: a kill between a decision and the execution of its call loses neither the changed arguments
/// nor a standing approval.
/// Method: the daemon is killed at a random time after the decision.
#[test]
fn need_1_changed_and_standing_decisions_survive_a_kill() {
    let mut random = Random::announced();
    let rounds = std::env::var(ROUNDS_VAR).map_or(ROUNDS, |text| text.parse().unwrap());
    let home = Home::new(&project());
    let notes = home.notes().display().to_string();
    let mut daemon = Daemon::serving(&home);
    for round in 0..rounds {
        let (key, text) = (format!("k{round}"), format!("run r{round}"));
        let (sending, id) = sent(&home, &key, &text);
        let changes = round % 2 == 0;
        let changed = format!("command=echo run >> {notes}/c{round}.runs; echo ran changed{round}");
        let options = match changes {
            true => vec!["--set", changed.as_str()],
            false => vec!["--always"],
        };
        let mut approve = vec!["inbox", "approve", id.as_str()];
        approve.extend(options);
        // The answer may be lost with the daemon.
        let approving = home.start_gdn(&approve);
        random.let_pass(MOMENT_MS);
        drop(daemon.kill());
        let is_decided = approving.wait().code == 0;
        drop(sending);
        daemon = Daemon::serving(&home);
        let event = event(&text);
        let again = ["send", "--instance", &key, "--event-id", &event, &text];
        let sending = home.start_gdn(&again);
        // Without an answer, the call can still wait.
        wait_until("the call is decided or waits", || {
            let waits = !waiting(&home).is_empty();
            assert!(!waits || !is_decided, "a durable decision was lost");
            waits || shape(&home.history(&key)).ends_with("ta")
        });
        if let Some(call) = waiting(&home).first() {
            assert_eq!(id_of(call), id);
            home.gdn(&approve).exits(0);
        }
        sending.wait().exits(0);
        let told = last_result(&home, &key);
        let runs = |name: &str| runs_of(&home, &format!("{name}{round}"));
        let is_cut_short = told.contains("E_TOOL_INTERRUPTED");
        if changes {
            let has_run = told.contains(&format!("ran changed{round}"));
            assert!(has_run || is_cut_short, "{told}");
            assert_eq!(runs("r"), 0, "the original call ran");
            assert!(runs("c") == 1 || (is_cut_short && runs("c") == 0), "{told}");
        } else {
            assert!(
                told.contains(&format!("ran r{round}")) || is_cut_short,
                "{told}"
            );
            assert!(runs("r") == 1 || (is_cut_short && runs("r") == 0), "{told}");
            let standing = home.gdn_json(&["inbox", "standing"]).to_string();
            assert!(standing.contains(&id), "{standing}");
        }
    }
}

#[test]
fn need_1_chat_approves_always_after_it_showed_the_call() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(&project());
    let _daemon = Daemon::serving(&home);
    let screen = typed(&home, "chat");
    screen.wait_for("Ctrl-D ends.\nyou>");
    let says = |text: &str| {
        screen.types(text);
        screen.press(&["Enter"]);
    };
    says("run x");
    screen.wait_for("approve:");
    screen.press(&["C-c"]);
    screen.wait_for("stopped waiting");
    screen.wait_for("\nyou>");
    says("always");
    screen.wait_for("y approves it.");
    let shown = screen.shown().replace('\n', " ");
    assert!(shown.contains("with exactly these arguments."), "{shown}");
    assert_eq!(runs_of(&home, "x"), 0);
    says("y");
    screen.wait_for("Approved from now on: bash__exec");
    screen.wait_for("told: exit code: 0");
    assert_eq!(runs_of(&home, "x"), 1);
    let told = home.gdn(&["send", "--event-id", "again", "run x"]).exits(0);
    assert!(told.stdout.contains("ran x"), "{told:?}");

    says("run y");
    screen.wait_for("approve:");
    screen.press(&["C-c"]);
    screen.wait_for("stopped waiting; the agent continues");
    wait_until("the prompt is back", || {
        screen.shown().trim_end().ends_with("you>")
    });
    let notes = home.notes().display().to_string();
    says(&format!("/edit command=echo run >> {notes}/z.runs"));
    screen.wait_for("Approved with changed arguments: bash__exec");
    wait_until("the changed call has run", || runs_of(&home, "z") == 1);
    assert_eq!(runs_of(&home, "y"), 0);
}
