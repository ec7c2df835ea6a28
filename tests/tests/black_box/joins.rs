//! Events that reach an agent together (`ingress.joins`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::wait::within;
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, role, text};

/// [`LAB`] with a webhook whose requests of a commit reach the agent together. Sets of the join
/// `quick` end after three seconds.
fn project() -> String {
    let rules = r#"
    joins: [{name: release}, {name: quick, timeoutSeconds: 3}]
    rules:
      - match: {properties: {kind: build}}
        route: {instanceKeyProperty: commit, instanceKeyPrefix: ""}
        join: {name: release, part: build}
      - match: {properties: {kind: review}}
        route: {instanceKeyProperty: commit, instanceKeyPrefix: ""}
        join: {name: release, part: review}
      - match: {properties: {kind: fast}}
        route: {instanceKey: fast}
        join: {name: quick, part: fast, keyProperty: commit}
      - match: {properties: {kind: faster}}
        route: {instanceKey: fast}
        join: {name: quick, part: faster, keyProperty: commit}
"#;
    let open = "\n    rules:\n      - route: {instanceKeyPrefix: \"\"}\n";
    assert!(LAB.ends_with(open));
    LAB.replace(open, rules)
}

/// The body of a part of a commit, and its event id.
fn part(kind: &str, commit: &str) -> (String, String) {
    let input = format!("{kind} of {commit}");
    let body = json!({"input": input, "kind": kind, "commit": commit});
    (body.to_string(), format!("{kind}-{commit}"))
}

fn post(address: SocketAddr, kind: &str, commit: &str) -> Option<Value> {
    let (body, id) = part(kind, commit);
    let headers = [
        ("content-type", "application/json"),
        ("x-goondan-event-id", id.as_str()),
    ];
    let response = http::post(address, "/hook", &headers, &body).ok()?;
    match response.status {
        202 => Some(response.json()),
        status => {
            assert!(matches!(status, 429 | 503), "{response:?}");
            None
        }
    }
}

/// The texts of the user messages of a conversation.
fn inputs(home: &Home, key: &str) -> Vec<String> {
    let messages = home.history(key).into_iter();
    let users = messages.filter(|message| role(message) == "user");
    users.map(|message| text(&message)).collect()
}

fn listed(home: &Home) -> Vec<Value> {
    let page = home.gdn_json(&["event", "list"]);
    page["events"].as_array().unwrap().clone()
}

#[test]
fn msg_13_parts_reach_the_agent_once_over_any_kill() {
    const COMMITS: usize = 12;
    const ACCEPTED_PER_DAEMON: usize = 4;
    let home = Home::new(&project());
    let mut fate = Random::announced();
    let mut running = Some(Daemon::serving(&home));
    let address = RwLock::new(running.as_ref().unwrap().webhook("hook"));
    let accepted = AtomicUsize::new(0);
    let mut daemons = 1;
    std::thread::scope(|scope| {
        let (address, accepted) = (&address, &accepted);
        let senders: Vec<_> = ["build", "review"]
            .into_iter()
            .map(|kind| {
                scope.spawn(move || {
                    for n in 0..COMMITS {
                        // An answer is lost with a killed daemon, so the sender repeats the event.
                        wait_until("the part is accepted", || {
                            let address = *address.read().unwrap();
                            post(address, kind, &format!("c{n}")).is_some()
                        });
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let are_done = || {
            let mut senders = senders.iter();
            senders.all(ScopedJoinHandle::is_finished).then_some(())
        };
        while within(Duration::from_millis(10), are_done).is_none() {
            if accepted.load(Ordering::SeqCst) >= daemons * ACCEPTED_PER_DAEMON {
                if let Some(agent) = fate.choose(&home.running(AGENT)) {
                    processes::signal(agent.pid, Signal::SIGKILL);
                }
                drop(running.take().unwrap().kill());
                running = Some(Daemon::start(&home));
                daemons += 1;
            }
            *address.write().unwrap() = running.as_ref().unwrap().webhook("hook");
        }
    });
    assert!(daemons > 3, "{daemons} daemons");
    drop(running.take().unwrap().kill());
    let daemon = Daemon::start(&home);
    for n in 0..COMMITS {
        let commit = format!("c{n}");
        // An event that was hit three times by chance is parked.
        wait_until("the parts are answered", || {
            home.gdn_json(&["event", "retry", "--all"]);
            home.gdn_json(&["instance", "show", &commit])["pendingEvents"] == 0
        });
        let messages = home.history(&commit);
        check(&messages);
        let inputs = inputs(&home, &commit);
        assert_eq!(inputs.len(), 1, "{inputs:?}");
        assert!(
            inputs[0].contains("[Join release · complete]"),
            "{inputs:?}"
        );
        for kind in ["build", "review"] {
            let found = inputs[0].matches(&format!("{kind} of {commit}")).count();
            assert_eq!(found, 1, "{inputs:?}");
        }
    }
    // The senders repeat everything: each part is known, and nothing runs again.
    let address = daemon.webhook("hook");
    for n in 0..COMMITS {
        for kind in ["build", "review"] {
            let again = post(address, kind, &format!("c{n}")).unwrap();
            assert_eq!(again["duplicate"], true, "{again}");
        }
        assert_eq!(inputs(&home, &format!("c{n}")).len(), 1);
    }
    assert_eq!(listed(&home), Vec::<Value>::new());
}

#[test]
fn ipc_3_waiting_parts_are_listed_released_dropped_and_time_out() {
    let home = Home::new(&project());
    let daemon = Daemon::serving(&home);
    let address = daemon.webhook("hook");
    for commit in ["a", "b"] {
        post(address, "build", commit).unwrap();
    }
    let waits: BTreeMap<String, Value> = listed(&home)
        .into_iter()
        .map(|event| (event["eventId"].as_str().unwrap().to_owned(), event))
        .collect();
    assert_eq!(waits.len(), 2, "{waits:?}");
    let first = &waits["hook:build-a"];
    assert_eq!(first["standing"], "joining");
    let reason = first["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("join `release` waits for `review` until "),
        "{reason}"
    );
    home.gdn(&["event", "list"])
        .exits(0)
        .prints(&["joining", "hook:build-a"])
        .tells(&["waits for `review` until"]);
    home.gdn(&["event", "move", "hook:build-a", "--first"])
        .tells(&["waits for the other parts of a join", "gdn event resume"]);
    home.gdn(&["event", "resume", "hook:build-a"]).exits(0);
    home.gdn(&["event", "drop", "hook:build-b", "--yes"])
        .exits(0);
    wait_until("the released part is answered", || {
        inputs(&home, "a").len() == 1 && listed(&home).is_empty()
    });
    let released = &inputs(&home, "a")[0];
    assert!(
        released.contains("[Join release · released by a person, without review]"),
        "{released}"
    );
    assert_eq!(inputs(&home, "b"), Vec::<String>::new());

    // In one conversation, the key distinguishes the sets.
    for (kind, commit) in [("fast", "x"), ("fast", "y"), ("faster", "y")] {
        post(address, kind, commit).unwrap();
    }
    wait_until("both sets are answered", || {
        inputs(&home, "fast").len() == 2
    });
    let inputs = inputs(&home, "fast");
    assert!(
        inputs[0].contains("[Join quick of \"y\" · complete]"),
        "{inputs:?}"
    );
    let late = "[Join quick of \"x\" · timed out, without faster]";
    assert!(inputs[1].contains(late), "{inputs:?}");
}
