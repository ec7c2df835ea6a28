//! Connectors other than the webhook, in the real daemon: failures are isolated, and nothing is
//! lost or duplicated by kills.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use goondan_protocol::time::Timestamp;
use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::scrape::Scrape;
use goondan_tests::{Daemon, Home, http, needs, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::conversation::{check, role, text};

fn lab(documents: &str) -> String {
    format!("{LAB}---\n{}", documents.trim_start())
}

/// Entry of a connection in `gdn ps`.
fn shown(home: &Home, connection: &str) -> Option<Value> {
    let mut processes = home.ps().into_iter();
    processes.find(|process| process["role"] == "connector" && process["name"] == connection)
}

fn wait_for_detail(home: &Home, connection: &str, said: &str) {
    wait_until(said, || {
        shown(home, connection)
            .is_some_and(|process| process["detail"].as_str().unwrap_or("").contains(said))
    });
}

/// User messages to an agent in a conversation.
fn asked(home: &Home, key: &str) -> Vec<String> {
    if home.ps_agent(key).is_none() {
        return Vec::new();
    }
    questions(&home.history(key))
}

fn questions(messages: &[Value]) -> Vec<String> {
    let asked = messages.iter().filter(|message| role(message) == "user");
    asked.map(text).collect()
}

#[test]
fn conn_1_ignored_events_are_acknowledged_counted_and_shown() {
    let home = Home::new(&lab(r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: hub}
spec:
  connectorRef: {kind: Connector, name: github, package: "@goondan/base"}
  config: {repositories: [ada/shelf]}
  secrets: {webhookSecret: {value: s}}
  ingress:
    rules:
      - match: {event: issues, properties: {action: labeled, label: Agent, repository: Ada/SHELF}}
"#));
    let daemon = Daemon::serving(&home);
    let ignored = |reason: &str| {
        let labels = [("connection", "hub"), ("reason", reason)];
        Scrape::of(&home).sum("goondan_events_ignored_total", &labels)
    };
    assert_eq!((ignored("noRule"), ignored("ping")), (Some(0.0), None));
    let deliver = |event: &str, id: &str, body: &Value| {
        let body = body.to_string();
        let keyed = Hmac::<Sha256>::new_from_slice(b"s").unwrap();
        let mac = keyed.chain_update(&body).finalize().into_bytes();
        let signature = format!("sha256={}", hex::encode(mac));
        let headers = [
            ("x-github-event", event),
            ("x-github-delivery", id),
            ("x-hub-signature-256", signature.as_str()),
        ];
        http::post(daemon.webhook("hub"), "/", &headers, &body).unwrap()
    };
    let labeled = |repository: &str, label: &str| {
        let id = if repository == "ada/other" { 8 } else { 7 };
        json!({"action": "labeled", "label": {"name": label}, "issue": {"number": 5, "title": "t"},
            "repository": {"id": id, "full_name": repository}, "sender": {"login": "ada"}})
    };
    let answers = [
        deliver("ping", "d1", &json!({"zen": "Calm."})),
        deliver("issues", "d2", &labeled("ada/shelf", "bug")),
        deliver("issues", "d3", &labeled("ada/shelf", "later")),
        deliver("issues", "d4", &labeled("ada/other", "agent")),
    ];
    assert!(
        answers.iter().all(|answer| answer.status == 200),
        "{answers:?}"
    );
    assert!(answers[1].body.contains("no ingress rule"), "{answers:?}");
    assert_eq!(
        deliver("issues", "d5", &labeled("ADA/Shelf", "agent")).status,
        202
    );
    wait_until("all are counted", || {
        (ignored("noRule"), ignored("ping"), ignored("otherPlace"))
            == (Some(2.0), Some(1.0), Some(1.0))
    });
    let shown = shown(&home, "hub").unwrap();
    assert_eq!(
        shown["ignored"],
        json!({"noRule": 2, "otherPlace": 1, "ping": 1})
    );
    let words = "ignored 4: 2 no rule, 1 other place, 1 ping";
    let ps = home.gdn(&["ps"]).exits(0);
    let ps: Vec<&str> = ps.stdout.split_whitespace().collect();
    assert!(ps.join(" ").contains(words), "{ps:?}");
    let key = "hub:github:ada/shelf#5";
    wait_until("the matching event is asked", || {
        asked(&home, key).len() == 1
    });
    let said = asked(&home, key).remove(0);
    assert!(
        said.contains("ada added label \"agent\" to issue #5 \"t\" in ADA/Shelf"),
        "{said}"
    );
    drop(daemon.stop());
}

#[test]
fn obs_6_failing_connector_is_shown_and_disturbs_no_agent() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let home = Home::new(&lab(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: taken}}
spec:
  connectorRef: {{kind: Connector, name: github, package: "@goondan/base"}}
  config: {{port: {port}}}
  secrets: {{webhookSecret: {{value: s}}}}
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {{name: broken}}
spec: {{entry: connectors/broken}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: broken}}
spec: {{connectorRef: Connector/broken}}
"#
    )));
    home.write_program(
        "project/connectors/broken",
        "#!/bin/sh\necho no luck >&2\nexit 1\n",
    );
    let daemon = Daemon::serving(&home);
    wait_for_detail(&home, "taken", "cannot listen on 127.0.0.1");
    wait_for_detail(&home, "broken", "exited with code 1");
    daemon.log().wait_for("the program's own words", |line| {
        line["message"] == "no luck" && line["connection"] == "broken"
    });
    // The problem is shown everywhere, and in the exit code.
    let taken_is = |state: &str| {
        let ran = home.gdn(&["ps"]);
        let mut rows = ran.stdout.lines();
        let is_so = rows.any(|row| row.contains(" taken ") && row.contains(state));
        is_so && ran.code == 16
    };
    assert!(taken_is("not ready"), "{:#?}", home.gdn(&["ps"]));
    let process = shown(&home, "taken").unwrap();
    assert_eq!(
        (&process["state"], &process["readiness"]),
        (&json!("idle"), &json!("notReady"))
    );
    let status = home.gdn(&["status"]).exits(16).prints(&["degraded"]);
    let status = status.tells(&["connector taken is not ready: cannot listen on 127.0.0.1"]);
    assert!(!status.stderr.contains("connector hook"), "{status:#?}");
    let status = home.gdn(&["status", "--json"]).exits(16);
    assert_eq!(status.error_json()["code"], "degraded");
    // It runs briefly after each restart.
    wait_until("the program is notified as well", || {
        let status = home.gdn(&["status", "--json"]).exits(16).json();
        let unhealthy = &status["workspaces"][0]["unhealthy"][0];
        unhealthy["name"] == "broken" && unhealthy["readiness"] == "notReady"
    });
    // The others still work.
    let hook = shown(&home, "hook").unwrap();
    assert_eq!(
        (&hook["state"], &hook["readiness"]),
        (&json!("idle"), &json!("ready"))
    );
    assert_eq!(home.ask("ann", "echo here"), "here");
    assert!(daemon.webhook("hook").port() > 0);
    // This one works once its port is free.
    drop(taken);
    wait_for_detail(&home, "taken", "listening on");
    // The other one is retried occasionally, and is not shown as failed for that moment.
    wait_until("it is shown as ready", || taken_is("ready"));
}

/// An installation without the connector process: connections report it as missing, and everything
/// else works.
#[test]
fn sup_3_missing_connector_program_is_reported_and_agents_work() {
    let home = Home::new(LAB);
    let bin_dir = home.bin_dir_of_its_own();
    std::fs::hard_link(bin(AGENT), bin_dir.path().join(AGENT)).unwrap();
    let daemon = Daemon::start_in(&home, bin_dir.path());
    daemon
        .log()
        .wait_for("the missing program is reported at the start", |line| {
            line["level"] == "warn" && line["error"].to_string().contains(CONNECTOR)
        });
    home.gdn(&["run"]);
    assert_eq!(home.ask("ann", "echo here"), "here");
    home.gdn(&["status"]).exits(16).tells(&[
        "connector hook",
        "goondan-connector-process",
        "install all goondan binaries together",
    ]);
}

#[test]
fn msg_13_every_missed_occurrence_arrives_once_despite_kills() {
    let home = Home::new(&lab(r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: clock}
spec:
  connectorRef: {kind: Connector, name: cron, package: "@goondan/base"}
  config:
    schedules:
      - {name: often, cron: "*/10 * * * *", input: echo tick, instanceKey: ticks, catchUp: all, catchUpMax: 100}
"#));
    let daemon = Daemon::serving(&home);
    wait_for_detail(&home, "clock", "next: often at");
    drop(daemon.kill());
    // As if the daemon had been down for five hours.
    let path = home.workspace_dir().join("connectors/clock.json");
    let mut ledgers: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let settled: Timestamp = ledgers["often"]["settledUntil"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let earlier_ms = settled.as_unix_millis() - 5 * 3_600_000;
    ledgers["often"]["settledUntil"] = json!(Timestamp::from_unix_millis(earlier_ms));
    let place = path.strip_prefix(home.path()).unwrap();
    home.write(place.to_str().unwrap(), &ledgers.to_string());

    let came_about = || {
        let text = std::fs::read(&path).unwrap();
        let ledgers: Value = serde_json::from_slice(&text).unwrap();
        let list = ledgers["often"]["cameAbout"].as_array().unwrap().clone();
        list.iter()
            .map(|at| at.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // Killed mid-work, alternately the daemon and the connector.
    for round in 0..4 {
        let daemon = Daemon::start(&home);
        let target = 5 * (round + 1);
        wait_until("some more came about", || came_about().len() >= target);
        if round % 2 == 0 {
            for process in home.running(CONNECTOR) {
                processes::signal(process.pid, Signal::SIGKILL);
            }
        }
        drop(daemon.kill());
    }
    let daemon = Daemon::start(&home);
    wait_for_detail(&home, "clock", "next: often at");
    wait_until("all came about", || came_about().len() >= 30);
    wait_until("all are answered", || {
        home.history("ticks").len() == 2 * came_about().len()
    });
    let came_about = came_about();
    let mut once = came_about.clone();
    once.dedup();
    assert_eq!(once, came_about);
    assert!(came_about.len() <= 31, "{came_about:?}");
    let asked = asked(&home, "ticks");
    assert_eq!(asked, vec!["echo tick"; came_about.len()]);
    check(&home.history("ticks"));
    drop(daemon.stop());
}

#[test]
fn msg_13_project_program_delivers_each_line_once_over_kills() {
    if !needs::program("python3") {
        return;
    }
    let home = Home::new(&lab(r#"
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: tail}
spec:
  entry: connectors/tail.py
  events: [{name: line, properties: {offset: where it begins}}]
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: orders}
spec:
  connectorRef: Connector/tail
  config: {file: NOTES/orders.log}
  sandbox: {read: [NOTES]}
  ingress: {rules: [{match: {event: line}, route: {instanceKey: orders}}]}
"#));
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/examples/connectors/tail.py"
    );
    let example = std::fs::read_to_string(example).unwrap();
    home.write("project/connectors/tail.py", &example);
    let lines: Vec<String> = (0..20).map(|n| format!("echo {n}")).collect();
    home.write("notes/orders.log", &format!("{}\n", lines.join("\n")));
    let daemon = Daemon::serving(&home);
    wait_until("some lines are in", || asked(&home, "orders").len() >= 3);
    for process in home.running(CONNECTOR) {
        processes::signal(process.pid, Signal::SIGKILL);
    }
    wait_until("some more lines are in", || {
        asked(&home, "orders").len() >= 6
    });
    drop(daemon.kill());
    let daemon = Daemon::start(&home);
    wait_until("all lines are answered", || {
        home.history("orders").len() == 40
    });
    // All may have been answered before the kill; then no process runs for the conversation any
    // longer.
    let history = home.history("orders");
    assert_eq!(questions(&history), lines);
    check(&history);
    wait_for_detail(&home, "orders", "following");
    drop(daemon.stop());
}

#[test]
fn ipc_3_local_client_input_follows_its_connection_rules() {
    let home = Home::new(&lab(r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: local}
spec:
  connectorRef: {kind: Connector, name: cli, package: "@goondan/base"}
  ingress: {rules: [{match: {event: message}, route: {agentRef: Agent/helper}}]}
"#));
    let _daemon = Daemon::serving(&home);
    let sent = home.gdn_json(&["send", "--instance", "ann", "echo hi"]);
    assert_eq!(
        (&sent["agent"], &sent["instanceKey"]),
        (&json!("helper"), &json!("helper:ann"))
    );
    let sent = home.gdn_json(&["send", "--agent", "worker", "--instance", "ann", "echo hi"]);
    assert_eq!(
        (&sent["agent"], &sent["instanceKey"]),
        (&json!("worker"), &json!("ann"))
    );
    // No process runs for it.
    assert!(shown(&home, "local").is_none());
}

#[test]
fn connector_program_that_is_not_executable_is_reported() {
    let home = Home::new(&lab(r#"
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: own}
spec: {entry: connectors/own}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: own}
spec: {connectorRef: Connector/own}
"#));
    home.write("project/connectors/own", "#!/bin/sh\nexec sleep 4321\n");
    let file = home.project().join("connectors/own");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _daemon = Daemon::start(&home);
    home.gdn(&["run"])
        .exits(6)
        .tells(&["E_CONFIG_NO_RUNTIME", "make the file executable"]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.gdn(&["run"]).exits(0);
    wait_for_detail(&home, "own", "running `connectors/own`");
}

#[test]
fn sec_10_ps_names_what_the_sandbox_refused_to_a_connector_program() {
    let home = Home::new(&lab(r#"
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: own}
spec: {entry: connectors/own}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: own}
spec: {connectorRef: Connector/own}
"#));
    let program =
        "#!/bin/sh\necho 'Error: getaddrinfo EAI_AGAIN api.example.org' >&2\nexec sleep 4321\n";
    home.write_program("project/connectors/own", program);
    let _daemon = Daemon::start(&home);
    home.gdn(&["run"]).exits(0);
    wait_for_detail(&home, "own", "no network");
    wait_for_detail(&home, "own", "the connection's `sandbox`");
}
