//! Turns in progress finish before their dependencies stop (`SUP-6`): a daemon or workspace that
//! stops, and a connection that is removed from the configuration, accept no new work but still
//! serve the calls of those turns.

use goondan_tests::node::ClusterNode;
use goondan_tests::postgres::PostgresServer;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::telegram::{TOKEN, Telegram};
use goondan_tests::{Daemon, Home, wait_until};

use crate::conversation::{check, text};

/// The connection that a turn calls.
const CONNECTION: &str = "kind: Connection\nmetadata: {name: telegram}";

/// The lab, with an agent that sends a message, waits for a note, and sends two more.
fn project(telegram: &Telegram) -> String {
    format!(
        r#"{LAB}---
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: poster}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '^post$', step: 1}}
        call: [{{tool: telegram__send, args: {{text: one, chat: "1"}}}}]
      - when: {{user: '^post$', step: 2}}
        call: [{{tool: bash__exec, args: {{command: "touch NOTES/here; until [ -e NOTES/go ]; do sleep 0.02; done"}}}}]
      - when: {{user: '^post$', step: 3}}
        call: [{{tool: telegram__send, args: {{text: two, chat: "1"}}}}]
      - when: {{user: '^post$', step: 4, error: false}}
        call: [{{tool: telegram__send, args: {{text: three, chat: "1"}}}}]
      - when: {{user: '^post$', tool: telegram__send, error: false}}
        say: "all sent"
      - say: "not sent"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: poster}}
spec:
  modelConfig: {{modelRef: Model/poster}}
  tools:
    - {{kind: Tool, name: bash, package: "@goondan/base"}}
    - {{kind: Tool, name: telegram, package: "@goondan/base"}}
---
apiVersion: goondan.ai/v1
{CONNECTION}
spec:
  connectorRef: {{kind: Connector, name: telegram, package: "@goondan/base"}}
  config: {{endpoint: "{}", pollSeconds: 1, chats: [1]}}
  secrets: {{botToken: {{value: "{TOKEN}"}}}}
"#,
        telegram.endpoint()
    )
}

/// A daemon with a turn that has sent one of three messages.
fn in_a_turn(home: &Home, telegram: &Telegram) -> Daemon {
    let daemon = Daemon::serving(home);
    wait_until("the bot listens", || telegram.polls() > 0);
    home.gdn(&["send", "--no-wait", "--agent", "poster", "post"])
        .exits(0);
    wait_until("the turn is between two calls", || {
        home.notes().join("here").exists()
    });
    assert_eq!(sent(telegram), ["one"]);
    daemon
}

fn sent(telegram: &Telegram) -> Vec<String> {
    let deeds = telegram.deeds().into_iter();
    let sent = deeds.filter(|deed| deed.method == "sendMessage");
    sent.map(|deed| deed.params["text"].as_str().unwrap().to_owned())
        .collect()
}

fn answered(home: &Home) {
    let messages = home.history("poster:main");
    check(&messages);
    assert_eq!(text(messages.last().unwrap()), "all sent", "{messages:?}");
}

#[test]
fn sup_6_every_call_of_a_turn_is_made_once_when_a_daemon_stops() {
    let telegram = Telegram::start();
    let home = Home::new(&project(&telegram));
    let daemon = in_a_turn(&home, &telegram);
    let hook = daemon.webhook("hook");
    processes::signal(daemon.pid(), Signal::SIGTERM);
    wait_until("nothing new is taken from outside", || {
        std::net::TcpStream::connect(hook).is_err()
    });
    let polls = telegram.polls();
    telegram.write(1, "echo late");
    home.write("notes/go", "");
    drop(daemon.wait());
    assert_eq!(sent(&telegram), ["one", "two", "three"]);
    assert!(telegram.polls() <= polls + 1, "it polls on");

    let daemon = Daemon::start(&home);
    answered(&home);
    wait_until("what came meanwhile is answered", || {
        home.ps_agent("telegram:1").is_some() && home.history("telegram:1").len() == 2
    });
    wait_until("its reply is posted, and nothing is sent again", || {
        sent(&telegram) == ["one", "two", "three", "late"]
    });
    drop(daemon.stop());
}

#[test]
fn sup_6_workspace_stop_completes_every_call_of_a_turn_once() {
    let telegram = Telegram::start();
    let home = Home::new(&project(&telegram));
    let daemon = in_a_turn(&home, &telegram);
    let stopping = home.start_gdn(&["stop"]);
    let hook = daemon.webhook("hook");
    wait_until("nothing new is taken from outside", || {
        std::net::TcpStream::connect(hook).is_err()
    });
    home.write("notes/go", "");
    stopping.wait().exits(0);
    assert_eq!(sent(&telegram), ["one", "two", "three"]);
    home.gdn(&["run"]).exits(0);
    answered(&home);
}

#[test]
fn sup_6_connector_that_dies_while_a_daemon_stops_is_restarted() {
    let telegram = Telegram::start();
    let home = Home::new(&project(&telegram));
    let daemon = in_a_turn(&home, &telegram);
    let pid = connector(&home).unwrap();
    processes::signal(daemon.pid(), Signal::SIGTERM);
    daemon.log().wait_for("it stops", |line| {
        line["message"] == "the daemon is stopping"
    });
    processes::signal(pid, Signal::SIGKILL);
    wait_until("another one runs", || {
        connector(&home).is_some_and(|other| other != pid)
    });
    home.write("notes/go", "");
    drop(daemon.wait());
    assert_eq!(sent(&telegram), ["one", "two", "three"]);
}

#[test]
fn sup_6_calls_to_a_removed_connection_work_until_the_turn_ends() {
    let telegram = Telegram::start();
    let project = project(&telegram);
    let home = Home::new(&project);
    let _daemon = in_a_turn(&home, &telegram);
    let (before, _) = project
        .split_once(&format!("---\napiVersion: goondan.ai/v1\n{CONNECTION}"))
        .unwrap();
    let without = before.replace(
        "    - {kind: Tool, name: telegram, package: \"@goondan/base\"}\n",
        "",
    );
    home.write("project/goondan.yaml", &home.filled_in(&without));
    home.gdn(&["reload"]).exits(0);
    let pid = connector(&home);
    assert!(pid.is_some(), "it runs on for the turn");
    home.write("notes/go", "");
    wait_until("the turn is over, and the connection is gone", || {
        connector(&home).is_none()
    });
    assert_eq!(sent(&telegram), ["one", "two", "three"]);
    answered(&home);
}

/// Two nodes with a shared project; the first is in a turn between two calls.
fn moved_in_a_turn(args: impl Fn(&str) -> Vec<String>) {
    let Some(server) = PostgresServer::running(&[]) else {
        return;
    };
    let telegram = Telegram::start();
    let a = ClusterNode::with(Home::new(&project(&telegram)), "a", &server.url());
    let b = a.beside(&server, "b");
    let daemon_b = Daemon::start(&b.home);
    let daemon_a = in_a_turn(&a.home, &telegram);
    a.waits_until_followed_by("b");
    let args = args(a.workspace().unwrap()["workspaceId"].as_str().unwrap());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let moving = a.home.start_gdn(&args);
    let hook = daemon_a.webhook("hook");
    wait_until("nothing new is taken from outside", || {
        std::net::TcpStream::connect(hook).is_err()
    });
    assert!(
        a.workspace().unwrap()["isHere"] == true,
        "the turn is waited for"
    );
    a.home.write("notes/go", "");
    moving.wait().exits(0);
    assert_eq!(sent(&telegram), ["one", "two", "three"]);
    b.waits_until_it_runs();
    let messages = b.history("poster:main").as_array().unwrap().clone();
    check(&messages);
    assert_eq!(text(messages.last().unwrap()), "all sent", "{messages:?}");
    // Its connection continues there: each incoming message is answered once.
    telegram.write(1, "echo late");
    wait_until("what comes later is answered there", || {
        let ran = b.gdn(&["--json", "instance", "history", "--", "telegram:1"]);
        ran.code == 0 && ran.json()["messages"].as_array().unwrap().len() == 2
    });
    wait_until("its reply is posted, and nothing is sent again", || {
        sent(&telegram) == ["one", "two", "three", "late"]
    });
    assert!(!a.runs());
    drop(daemon_b.stop());
    drop(daemon_a.stop());
}

#[test]
fn sup_6_workspace_move_completes_every_call_of_a_turn_once() {
    moved_in_a_turn(|workspace| {
        ["node", "move", workspace, "--to", "b"]
            .map(str::to_owned)
            .into()
    });
}

#[test]
fn sup_6_every_call_of_a_turn_is_made_once_when_a_node_drains() {
    moved_in_a_turn(|_| ["node", "drain"].map(str::to_owned).into());
}

/// The process of the connection, while it runs.
fn connector(home: &Home) -> Option<u32> {
    let mut processes = home.ps().into_iter();
    let found = processes.find(|it| it["role"] == "connector" && it["name"] == "telegram")?;
    let pid = found["pid"].as_u64()?;
    u32::try_from(pid).ok()
}
