//! Webhook events during kills: an event with a 202 response is answered exactly once, in order
//! (`MSG-13`, `IPC-3`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::wait::within;
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::Value;

use crate::conversation::{check, role, text};

const KEYS: usize = 20;
/// Events posted to each key, unless `GOONDAN_TEST_EVENTS_PER_KEY` is set.
const EVENTS_PER_KEY: usize = 10;
/// A question, a call, its result, an answer.
const MESSAGES_PER_EVENT: usize = 4;
/// Clients that post concurrently; each has its own keys.
const CLIENTS: usize = 4;
/// Number of accepted events between kills of the orchestrator.
const ACCEPTED_PER_DAEMON: usize = 45;
/// Interval at which the connector's address is checked.
const LOOK_EACH: Duration = Duration::from_millis(10);
/// Time between two kills of a child, in milliseconds: minimum, and maximum random addition.
const SHOT_PAUSE_MS: (u64, u64) = (20, 80);

/// Events that clients know to be accepted: for each key those with a 202 response, in order.
#[derive(Default)]
struct AcceptedEvents {
    by_key: Mutex<BTreeMap<String, Vec<String>>>,
    count: AtomicUsize,
}

/// Posts one event until it is accepted: again with the same id whenever the outcome is unknown.
fn post_until_accepted(address: &RwLock<SocketAddr>, key: &str, event_id: &str) {
    let headers = [
        ("x-goondan-instance-key", key),
        ("x-goondan-event-id", event_id),
    ];
    wait_until("the event is accepted", || {
        let address = *address.read().unwrap();
        match http::post(address, "/hook", &headers, &format!("work {event_id}")) {
            Ok(response) if response.status == 202 => {
                assert_eq!(response.json()["eventId"], event_id);
                true
            }
            Ok(response) => {
                assert!(matches!(response.status, 429 | 503), "{response:?}");
                false
            }
            // The server is down, or exited before it could respond.
            Err(_) => false,
        }
    });
}

fn events_per_key() -> usize {
    match std::env::var("GOONDAN_TEST_EVENTS_PER_KEY") {
        Ok(number) => number
            .parse()
            .expect("GOONDAN_TEST_EVENTS_PER_KEY is a number"),
        Err(_) => EVENTS_PER_KEY,
    }
}

fn client(number: usize, address: &RwLock<SocketAddr>, accepted: &AcceptedEvents) {
    for turn in 0..events_per_key() {
        for key in (0..KEYS).filter(|key| key % CLIENTS == number) {
            let (key, event_id) = (format!("key-{key}"), format!("e{key}-{turn}"));
            post_until_accepted(address, &key, &event_id);
            let mut by_key = accepted.by_key.lock().unwrap();
            by_key.entry(key).or_default().push(event_id);
            accepted.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Kills agents, and occasionally the connector, until the end is signaled.
fn shoot(home: &Home, mut random: Random, is_over: &AtomicBool) -> usize {
    let mut shots = 0;
    while !is_over.load(Ordering::SeqCst) {
        let program = if random.below(8) == 0 {
            CONNECTOR
        } else {
            AGENT
        };
        if let Some(process) = random.choose(&home.running(program)) {
            processes::signal(process.pid, Signal::SIGKILL);
            shots += 1;
        }
        let pause = SHOT_PAUSE_MS.0 + random.below(SHOT_PAUSE_MS.1);
        let is_over = || is_over.load(Ordering::SeqCst).then_some(());
        within(Duration::from_millis(pause), is_over);
    }
    shots
}

/// Ends the kills, even when the test fails.
struct KillStopGuard<'a>(&'a AtomicBool);

impl Drop for KillStopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn msg_13_every_accepted_event_is_answered_once_over_any_kill() {
    let home = Home::new(LAB);
    let random = Random::announced();
    let mut fate = random.clone();
    let mut running = Some(Daemon::serving(&home));
    let address = RwLock::new(running.as_ref().unwrap().webhook("hook"));
    let (accepted, is_over) = (AcceptedEvents::default(), AtomicBool::new(false));
    let total = KEYS * events_per_key();
    let mut daemons = 1;

    let shots = std::thread::scope(|scope| {
        let over = KillStopGuard(&is_over);
        let (address, accepted) = (&address, &accepted);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(number, address, accepted)))
            .collect();
        let shooter = scope.spawn(|| shoot(&home, random, &is_over));
        let are_done = || {
            let mut clients = clients.iter();
            clients.all(ScopedJoinHandle::is_finished).then_some(())
        };
        while within(LOOK_EACH, are_done).is_none() {
            if accepted.count.load(Ordering::SeqCst) >= daemons * ACCEPTED_PER_DAEMON {
                drop(running.take().unwrap().kill());
                // Occasionally the next daemon is killed as well, during its recovery.
                while fate.below(3) == 0 {
                    drop(Daemon::start(&home).kill());
                }
                running = Some(Daemon::start(&home));
                daemons += 1;
            }
            // The connector may have been killed, and listens at another address.
            *address.write().unwrap() = running.as_ref().unwrap().webhook("hook");
        }
        drop(over);
        shooter.join().unwrap()
    });
    assert_eq!(accepted.count.load(Ordering::SeqCst), total);
    assert!(
        daemons > 3 && shots > 20,
        "{daemons} daemons, {shots} shots at children"
    );
    // Once more while events are queued: now no later event triggers their processing.
    drop(running.take().unwrap().kill());
    let _daemon = Daemon::start(&home);
    let by_key = accepted.by_key.into_inner().unwrap();
    // An event that was hit three times by chance is parked: then it is answered after later ones.
    let mut parked: BTreeSet<String> = BTreeSet::new();
    for (key, events) in &by_key {
        let messages = events.len() * MESSAGES_PER_EVENT;
        wait_until("everything is answered", || {
            let found = home.gdn_json(&["event", "retry", "--all"])["eventIds"].clone();
            let found: Vec<String> = serde_json::from_value(found).unwrap();
            let said = found.iter().filter_map(|id| id.strip_prefix("hook:"));
            parked.extend(said.map(str::to_owned));
            let shown = home.gdn_json(&["instance", "show", key]);
            shown["pendingEvents"] == 0 && shown["messages"] == messages
        });
    }

    let in_order = |events: &[String]| -> Vec<String> {
        let in_order = events.iter().filter(|id| !parked.contains(*id));
        in_order.cloned().collect()
    };
    for (key, events) in &by_key {
        let messages = home.history(key);
        check(&messages);
        let answered = exchanges(&messages);
        assert_eq!(
            answered.len(),
            events.len(),
            "conversation {key}: {messages:#?}"
        );
        assert_eq!(
            in_order(&answered),
            in_order(events),
            "conversation {key}: {messages:#?}"
        );
        assert_eq!(
            answered.iter().collect::<BTreeSet<_>>(),
            events.iter().collect::<BTreeSet<_>>(),
            "conversation {key}: {messages:#?}"
        );
    }
    let instances = home.gdn_json(&["instance", "list"]);
    assert_eq!(instances["instances"].as_array().unwrap().len(), KEYS);
}

/// The events of a conversation in order; checks that each is answered before the next.
fn exchanges(messages: &[Value]) -> Vec<String> {
    let mut events = Vec::new();
    let mut waiting: Option<String> = None;
    for message in messages {
        match role(message) {
            "user" => {
                let event_id = message["metadata"]["eventId"].as_str().unwrap();
                let event_id = event_id.strip_prefix("hook:").unwrap();
                assert_eq!(text(message), format!("work {event_id}"));
                assert_eq!(waiting, None, "two questions in a row");
                waiting = Some(event_id.to_owned());
            }
            "assistant" if !text(message).is_empty() => {
                let event_id = waiting.take().unwrap();
                assert_eq!(text(message), format!("worked {event_id}"));
                events.push(event_id);
            }
            _ => {}
        }
    }
    assert_eq!(waiting, None, "a question without an answer");
    events
}

#[test]
fn log_3_one_trace_links_webhook_tool_call_and_reply() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving_with_details(&home);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [
        ("traceparent", traceparent.as_str()),
        ("x-goondan-instance-key", "k"),
    ];
    let address = daemon.webhook("hook");
    let accepted = http::post(address, "/hook", &headers, "work 7").unwrap();
    assert_eq!(
        (accepted.status, accepted.json()["traceId"].as_str()),
        (202, Some(trace))
    );
    assert!(accepted.header("traceresponse").unwrap().contains(trace));
    // Another event, in another trace.
    assert_eq!(
        http::post(address, "/hook", &headers[1..], "work 8")
            .unwrap()
            .status,
        202
    );
    wait_until("both are answered", || home.history("k").len() == 8);
    wait_until("the log tells it", || {
        daemon.log().saying("turn committed and answered").len() == 2
    });

    let followed = home
        .gdn(&["logs", "--json", "--lines", "1000", "--trace", trace])
        .exits(0);
    let lines: Vec<Value> = followed
        .stdout
        .lines()
        .map(|line| goondan_tests::log::check_line(line).unwrap())
        .collect();
    assert!(lines.iter().all(|line| line["traceId"] == trace));
    let steps: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            (
                line["process"].as_str().unwrap(),
                line["message"].as_str().unwrap(),
            )
        })
        // A new process may load its conversation before or after it gets the turn's trace.
        .filter(|(_, message)| !["request answered", "conversation loaded"].contains(message))
        .collect();
    // Lines of the agent's log can arrive after those that its messages to the daemon cause.
    let steps_of = |process: &str| -> Vec<&str> {
        let own = steps.iter().filter(|(of, _)| *of == process);
        own.map(|(_, message)| *message).collect()
    };
    assert_eq!(
        steps_of("orchestrator"),
        [
            "event accepted",
            "turn started",
            "turn committed and answered",
        ]
    );
    assert_eq!(
        steps_of("agent"),
        [
            "turn.started",
            "step.started",
            "tool.called",
            "tool.completed",
            "step.completed",
            "step.started",
            "step.completed",
            "turn.completed",
        ]
    );
    assert_eq!(steps.len(), 11, "{steps:?}");
    // The connector logs the request after its client has the response.
    let answered = daemon.log().wait_for("the request is logged", |line| {
        line["traceId"] == trace && line["message"] == "request answered"
    });
    assert_eq!(
        (&answered["process"], &answered["connection"]),
        (&"connector".into(), &"hook".into())
    );

    // The daemon's stdout, filtered by the trace, shows the same.
    let lines_of_trace = daemon.log().lines();
    let told: Vec<_> = lines_of_trace
        .iter()
        .filter(|line| line["traceId"] == trace)
        .map(message)
        .collect();
    for text in [
        "request answered",
        "tool.called",
        "turn committed and answered",
    ] {
        assert!(told.contains(&text), "{told:#?}");
    }

    // The spans are nested: the caller's, the turn's, the step's, the call's.
    let line = |text: &str| lines.iter().find(|line| line["message"] == text).unwrap();
    let (turn, step, call) = (
        line("turn.started"),
        line("step.started"),
        line("tool.called"),
    );
    assert_eq!(step["parentSpanId"], turn["spanId"]);
    assert_eq!(call["parentSpanId"], step["spanId"]);
    assert_eq!(call["toolName"], "bash__exec");

    // Runtime events are stored next to the conversation, in the same trace (MSG-12).
    let path = home
        .workspace_dir()
        .join("instances/k/messages/runtime-events.jsonl");
    let events = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        events.lines().filter(|line| line.contains(trace)).count(),
        8
    );
}
