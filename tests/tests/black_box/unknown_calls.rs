//! Interrupted tool calls: people are notified, whichever process is killed, until one has reviewed the call
//! (`OBS-5`).

use std::collections::BTreeSet;

use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::{LAB, lab_at};
use goondan_tests::random::Random;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, result_text};

/// Maximum time until the daemon is killed while an interrupted call is being recorded, in
/// milliseconds.
const MOMENT_MS: u64 = 400;
/// Number of conversations that lose their calls; the long form is 60.
const ROUNDS_VAR: &str = "GOONDAN_TEST_UNKNOWN_CALL_ROUNDS";
const ROUNDS: u64 = 3;
/// Number of kills of the daemon under each of them.
const KILLS: u64 = 3;

fn listed(home: &Home) -> Vec<Value> {
    let listed = home.gdn_json(&["calls"]);
    listed["calls"].as_array().unwrap().clone()
}

fn killed_while_a_tool_runs(home: &Home, key: &str) {
    let hold = format!("hold {key}");
    let asking = home.start_gdn(&["send", "--instance", key, &hold]);
    wait_until("the tool runs", || {
        home.note(&format!("{key}.runs")) == "run\n"
    });
    let agent = home.ps_agent(key).unwrap()["pid"].as_u64().unwrap();
    processes::signal(u32::try_from(agent).unwrap(), Signal::SIGKILL);
    home.write(&format!("notes/{key}.go"), "");
    asking.wait().exits(0).prints(&[&format!("done {key}")]);
}

#[test]
fn obs_5_interrupted_call_is_listed_until_a_person_reviews_it() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.gdn(&["calls"])
        .exits(0)
        .prints(&["every tool call is known"]);
    killed_while_a_tool_runs(&home, "x");
    let all = listed(&home);
    let [call] = &all[..] else {
        panic!("{all:?}");
    };
    let about = (&call["instanceKey"], &call["agentName"], &call["toolName"]);
    assert_eq!(about, (&json!("x"), &json!("worker"), &json!("bash__exec")));
    let detail = call["detail"].as_str().unwrap();
    assert!(detail.starts_with("E_TOOL_INTERRUPTED"), "{detail}");
    let id = call["toolCallId"].as_str().unwrap();
    let shown = home.gdn(&["calls"]).exits(0);
    shown
        .prints(&[id, "bash__exec"])
        .tells(&[&format!("settle x {id}")]);

    drop(daemon.kill());
    let daemon = Daemon::serving(&home);
    assert_eq!(
        listed(&home),
        all,
        "another list after the daemon was killed"
    );
    let status = home.gdn(&["status"]).exits(0);
    status.tells(&["1 tool call with an unknown outcome", "calls"]);
    let none = home.gdn(&["settle", "x", "made-up"]).exits(5);
    none.tells(&["gdn inbox calls"]);
    let settled = home.gdn(&["settle", "x", id, "--note", "the file is there"]);
    settled.exits(0).prints(&[&format!("Settled {id}")]);
    assert!(listed(&home).is_empty());
    home.gdn(&["settle", "x", id]).exits(5);
    let audit = home.gdn_json(&["audit"]).to_string();
    for part in [
        "instance.callUnknown",
        "instance.callSettled",
        "the file is there",
        "clientPid",
    ] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
    drop(daemon.kill());
    let _daemon = Daemon::serving(&home);
    assert!(listed(&home).is_empty(), "it is on the list again");

    // Deleting its conversation removes the record to review.
    killed_while_a_tool_runs(&home, "y");
    assert_eq!(listed(&home).len(), 1);
    home.gdn(&["instance", "delete", "y", "--yes"]).exits(0);
    assert!(listed(&home).is_empty());
}

#[test]
fn obs_5_an_agent_does_not_settle_its_own_calls() {
    // A confined process cannot connect to the daemon.
    let lab = lab_at("off");
    let home = Home::new(&lab);
    let _daemon = Daemon::serving(&home);
    killed_while_a_tool_runs(&home, "x");
    let all = listed(&home);
    let gdn = format!(
        "{} --state-root {} --project {}",
        bin(GDN).display(),
        home.state_root().display(),
        home.project().display()
    );
    let call = all[0]["toolCallId"].as_str().unwrap();
    let command = format!("{gdn} settle x {call} 2>&1; echo ended with $?");
    let rules = format!(
        "    rules:\n      - when: {{user: '^sneak$', step: 1}}\n        call: [{{tool: bash__exec, \
         args: {{command: {}}}}}]\n      - when: {{user: '^sneak$', result: '(?P<told>(?s).*)'}}\n        \
         say: \"${{told}}\"\n",
        json!(command)
    );
    let yaml = home.filled_in(&lab).replacen("    rules:\n", &rules, 1);
    home.write("project/goondan.yaml", &yaml);
    home.gdn(&["reload"]).exits(0);
    let reply = home.ask("b", "sneak");
    assert!(
        reply.contains("requires a person") && reply.contains("ended with 17"),
        "{reply}"
    );
    assert_eq!(listed(&home), all);
}

/// Calls of a conversation whose results report an interruption.
fn cut_short(home: &Home, key: &str) -> BTreeSet<String> {
    let messages = home.history(key);
    check(&messages);
    let results = messages.iter().filter(|it| it["data"]["role"] == "tool");
    let cut_short = results.filter(|it| result_text(it).contains("E_TOOL_INTERRUPTED"));
    cut_short
        .map(|it| {
            it["data"]["content"][0]["toolCallId"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[test]
fn obs_5_every_interrupted_result_is_listed_for_review() {
    let rounds = std::env::var(ROUNDS_VAR).map_or(ROUNDS, |text| text.parse().unwrap());
    let home = Home::new(LAB);
    let mut random = Random::announced();
    let mut daemon = Daemon::serving(&home);
    for round in 0..rounds {
        let key = format!("k{round}");
        let (runs, hold) = (format!("{key}.runs"), format!("hold {key}"));
        let sent = ["send", "--no-wait", "--instance", &key, &hold];
        home.gdn(&sent).exits(0);
        wait_until("the tool runs", || home.note(&runs) == "run\n");
        for _ in 0..KILLS {
            drop(daemon.kill());
            daemon = Daemon::serving(&home);
            // The moment is random, so the test does not wait for any condition.
            random.let_pass(MOMENT_MS);
        }
        home.write(&format!("notes/{key}.go"), "");
        let done = format!("done {key}");
        wait_until("the turn is over", || {
            home.history(&key)
                .iter()
                .any(|it| it.to_string().contains(&done))
        });
        let all = listed(&home);
        let of_key = all
            .iter()
            .filter(|call| call["instanceKey"] == key.as_str());
        let shown: BTreeSet<_> = of_key
            .map(|call| call["toolCallId"].as_str().unwrap().to_owned())
            .collect();
        let there = cut_short(&home, &key);
        assert!(!there.is_empty(), "no call was cut short");
        assert_eq!(shown, there, "in round {round}: {all:#?}");
    }
}
