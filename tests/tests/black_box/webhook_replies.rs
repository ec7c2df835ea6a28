//! An agent's answers to webhook events, for the poster: in the same request, or posted to a
//! configured address (`MSG-13`).

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use goondan_tests::home::AGENT;
use goondan_tests::http::{self, HttpResponse};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest};
use goondan_tests::{Daemon, Home, wait_until};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::conversation::{check, role};

/// The secret that replies are signed with.
const SECRET: &str = "correct-horse-battery-staple";

/// [`LAB`] with further configuration of its webhook.
fn lab(config: &str, secrets: &str) -> Home {
    let webhook = format!("    path: /hook\n    reply: {config}\n{secrets}");
    Home::new(&LAB.replacen("    path: /hook\n", &webhook, 1))
}

fn post(address: SocketAddr, id: &str, text: &str) -> io::Result<HttpResponse> {
    let headers = [
        ("x-goondan-instance-key", "ann"),
        ("x-goondan-event-id", id),
    ];
    http::post(address, "/hook", &headers, text)
}

/// Posts an event in a separate thread, which waits for the response.
fn posting(address: SocketAddr, id: &str, text: &str) -> JoinHandle<io::Result<HttpResponse>> {
    let (id, text) = (id.to_owned(), text.to_owned());
    thread::spawn(move || post(address, &id, &text))
}

/// Outcome of an event, requested until it is known.
fn asked_until_over(daemon: &Daemon, id: &str, text: &str) -> Value {
    let mut outcome = None;
    wait_until("the reply is there", || {
        let response = post(daemon.webhook("hook"), id, text);
        let replied = response.ok().filter(|response| response.status == 200);
        outcome = replied.map(|response| response.json()["outcome"].clone());
        outcome.is_some()
    });
    outcome.unwrap()
}

fn completed(reply: &str) -> Value {
    json!({"status": "completed", "reply": reply})
}

/// Number of questions in the conversation.
fn questions(home: &Home) -> usize {
    let messages = home.history("ann");
    check(&messages);
    messages.iter().filter(|it| role(it) == "user").count()
}

#[test]
fn msg_13_webhook_caller_gets_the_reply_or_notice_of_none() {
    let home = lab("{wait: {timeoutMs: 60000}}", "");
    let daemon = Daemon::serving(&home);
    let address = daemon.webhook("hook");
    for is_again in [false, true] {
        let response = post(address, "e1", "echo hello").unwrap();
        assert_eq!(response.status, 200, "{response:?}");
        let body = response.json();
        assert_eq!(body["outcome"], completed("hello"));
        assert_eq!(
            (&body["eventId"], &body["duplicate"]),
            (&json!("e1"), &json!(is_again))
        );
    }
    assert_eq!(questions(&home), 1);
    let failed = post(address, "e2", "fail").unwrap();
    assert_eq!(failed.status, 500, "{failed:?}");
    assert_eq!(failed.json()["error"]["code"], "failed");
    assert!(
        failed.json()["outcome"]["code"]
            .as_str()
            .unwrap()
            .starts_with("E_")
    );
    assert!(!failed.body.contains("overloaded"), "{failed:?}");
    // The agent dies while the caller waits, and the caller receives the result anyway.
    let caller = posting(address, "e3", "hold x");
    wait_until("the tool runs", || home.notes().join("x.runs").exists());
    for agent in home.running(AGENT) {
        processes::signal(agent.pid, Signal::SIGKILL);
    }
    home.write("notes/x.go", "");
    assert_eq!(
        caller.join().unwrap().unwrap().json()["outcome"],
        completed("done x")
    );
    // The sender of a canceled event is notified.
    let caller = posting(address, "e4", "hold y");
    wait_until("the tool runs", || home.notes().join("y.runs").exists());
    home.gdn(&["cancel", "--instance", "ann"]).exits(0);
    let cancelled = caller.join().unwrap().unwrap();
    assert_eq!(
        (cancelled.status, &cancelled.json()["error"]["code"]),
        (500, &json!("failed"))
    );
}

#[test]
fn msg_13_caller_retries_after_daemon_kill_and_turn_runs_once() {
    let home = lab("{wait: {timeoutMs: 60000}}", "");
    let daemon = Daemon::serving(&home);
    let caller = posting(daemon.webhook("hook"), "e1", "hold x");
    wait_until("the tool runs", || home.notes().join("x.runs").exists());
    daemon.kill();
    let lost = caller.join().unwrap();
    assert!(lost.is_err(), "{lost:?}");

    let daemon = Daemon::serving(&home);
    let callers = [(); 2].map(|()| posting(daemon.webhook("hook"), "e1", "hold x"));
    wait_until("both wait", || {
        let saying = daemon.log().saying("event accepted again");
        saying.len() == callers.len()
    });
    home.write("notes/x.go", "");
    for caller in callers {
        let response = caller.join().unwrap().unwrap();
        assert_eq!(response.status, 200, "{response:?}");
        let body = response.json();
        assert_eq!(
            (&body["outcome"], &body["duplicate"]),
            (&completed("done x"), &json!(true))
        );
    }
    daemon.kill();
    let daemon = Daemon::serving(&home);
    assert_eq!(
        asked_until_over(&daemon, "e1", "hold x"),
        completed("done x")
    );
    assert_eq!(questions(&home), 1);
}

#[test]
fn msg_13_caller_that_times_out_gets_the_event_id_and_can_retry() {
    let home = lab("{wait: {timeoutMs: 50}}", "");
    let daemon = Daemon::serving(&home);
    let headers = [("x-goondan-instance-key", "ann")];
    let response = http::post(daemon.webhook("hook"), "/hook", &headers, "hold x").unwrap();
    assert_eq!(response.status, 202, "{response:?}");
    let body = response.json();
    assert_eq!(body.get("outcome"), None);
    home.write("notes/x.go", "");
    // The server's id, since the request had none.
    let id = body["eventId"].as_str().unwrap();
    assert_eq!(asked_until_over(&daemon, id, "hold x"), completed("done x"));
    assert_eq!(questions(&home), 1);
}

/// Receiver of replies, which accepts them only once it is allowed to.
struct Receiver {
    provider: Provider,
    is_well: Arc<AtomicBool>,
}

impl Receiver {
    fn start() -> Self {
        let is_well = Arc::new(AtomicBool::new(false));
        let takes = Arc::clone(&is_well);
        let provider = Provider::start(move |_| {
            let status = if takes.load(Ordering::SeqCst) {
                200
            } else {
                503
            };
            ProviderResponse::error(status, &json!({}))
        });
        Self { provider, is_well }
    }

    fn config(&self) -> String {
        let endpoint = self.provider.endpoint();
        format!("{{callback: {{url: \"{endpoint}/replies\", allowPrivate: true}}}}")
    }

    fn posts(&self) -> Vec<ReceivedRequest> {
        self.provider.received()
    }
}

fn kept(home: &Home) -> String {
    let path = home.workspace_dir().join("connectors/hook.json");
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn msg_13_signed_reply_callback_is_retried_until_accepted() {
    let receiver = Receiver::start();
    let secrets = format!("  secrets: {{callbackHmac: {{value: {SECRET}}}}}\n");
    let home = lab(&receiver.config(), &secrets);
    let daemon = Daemon::serving(&home);
    let response = post(daemon.webhook("hook"), "e1", "hold x").unwrap();
    assert_eq!(response.status, 202, "{response:?}");
    // Killed before there is a reply …
    wait_until("the tool runs", || home.notes().join("x.runs").exists());
    daemon.kill();
    assert!(kept(&home).contains("e1"), "{}", kept(&home));
    assert!(receiver.posts().is_empty());
    home.write("notes/x.go", "");
    // … and before the reply is accepted.
    let daemon = Daemon::serving(&home);
    daemon
        .log()
        .wait_for("the reply is posted and not taken", |line| {
            line["message"] == "reply not accepted; retrying" && line["eventId"] == "e1"
        });
    let log = daemon.kill();
    let before = receiver.posts().len();
    receiver.is_well.store(true, Ordering::SeqCst);
    let daemon = Daemon::serving(&home);
    wait_until("nothing is promised any more", || {
        kept(&home).contains(r#""callbacks":[]"#)
    });
    let posts = receiver.posts();
    assert_eq!(posts.len(), before + 1, "{posts:?}");
    let post = posts.last().unwrap();
    assert_eq!(
        (post.method.as_str(), post.path.as_str()),
        ("POST", "/v1/replies")
    );
    let expected = json!({
        "eventId": "e1", "traceId": response.json()["traceId"], "outcome": completed("done x"),
    });
    assert_eq!(post.body, expected);
    assert_eq!(post.header("x-goondan-event-id"), Some("e1"));
    let mut keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    keyed.update(post.body.to_string().as_bytes());
    let signature = format!("sha256={}", hex::encode(keyed.finalize().into_bytes()));
    assert_eq!(post.header("x-hub-signature-256"), Some(signature.as_str()));
    assert_eq!(questions(&home), 1);
    // The address may be a secret, so it must not be logged.
    let lines = [log.lines(), daemon.stop().lines()].concat();
    let told = lines.iter().map(Value::to_string);
    assert!(!told.into_iter().any(|line| line.contains("/v1/replies")));
}

#[test]
fn sec_2_replies_go_only_to_the_configured_address() {
    let other = Receiver::start();
    let elsewhere = format!("{}/replies", other.provider.endpoint());
    let receiver = Provider::start(move |_| {
        ProviderResponse::error(307, &json!({})).with_header("location", &elsewhere)
    });
    let callback = format!("url: \"{}/replies\"", receiver.endpoint());
    let home = lab(
        &format!("{{callback: {{{callback}, allowPrivate: true}}}}"),
        "",
    );
    let daemon = Daemon::serving(&home);
    post(daemon.webhook("hook"), "e1", "echo hi").unwrap();
    daemon.log().wait_for("it is not taken", |line| {
        let reason = line["reason"].as_str().unwrap_or_default();
        reason.contains("follows no redirect")
    });
    assert!(other.posts().is_empty());
    drop(daemon);

    // An address of this machine is rejected unless explicitly allowed.
    let home = lab(&format!("{{callback: {{{callback}}}}}"), "");
    let _daemon = Daemon::serving(&home);
    wait_until("the failure is reported", || {
        let hook = home.ps().into_iter().find(|it| it["name"] == "hook");
        let detail = hook.map_or(String::new(), |it| it["detail"].to_string());
        detail.contains("allowPrivate: true")
    });
}
