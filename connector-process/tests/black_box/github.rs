//! GitHub deliveries over HTTP: large bodies, signatures, and what is passed over. The long form
//! plays the official examples, signed by the official signer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_connectors::GITHUB_BODY_BYTES_MAX;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::{RefusalCode, ToOrchestrator};
use goondan_tests::needs;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::http::{Client, head, post};
use crate::orchestrator::{Orchestrator, PendingEvent, listening_address};

const SECRET: &str = "a-shared-secret";

/// Plays the official examples: `1` installs their npm packages in a temporary directory, a path
/// names a directory in which they are installed.
const EXAMPLES_VAR: &str = "GOONDAN_TEST_GITHUB_EXAMPLES";

/// The packages of the long form.
const PACKAGES: [&str; 2] = [
    "@octokit/webhooks-examples@7",
    "@octokit/webhooks-methods@6",
];

/// Prints each example as a line of JSON with its signature.
const PLAYER: &str = r#"
import { createRequire } from "node:module";
import { sign } from "@octokit/webhooks-methods";
const require = createRequire(process.cwd() + "/");
for (const { name, examples } of require("@octokit/webhooks-examples")) {
  for (const example of examples) {
    const body = JSON.stringify(example);
    console.log(JSON.stringify({ name, body, signature: await sign(process.argv[1], body) }));
  }
}
"#;

fn github(config: &Value) -> (Orchestrator, SocketAddr) {
    let secrets = json!({"webhookSecret": SECRET});
    let mut orchestrator = Orchestrator::start_as("github", config, &secrets);
    if config.get("repositories").is_some() {
        orchestrator.give_state(None);
    }
    let status = orchestrator.status();
    let address = listening_address(&status);
    (orchestrator, address)
}

fn signature(body: &[u8]) -> String {
    let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let mac = keyed.chain_update(body).finalize().into_bytes();
    format!("sha256={}", hex::encode(mac))
}

fn delivery(event: &str, id: &str, signature: &str, body: &[u8]) -> Vec<u8> {
    let headers = [
        ("x-github-event", event),
        ("x-github-delivery", id),
        ("x-hub-signature-256", signature),
        ("content-type", "application/json"),
    ];
    post(&headers, body)
}

/// A push whose body has at least this many bytes.
fn push(bytes_min: usize) -> Vec<u8> {
    let commit =
        json!({"id": "0123456789abcdef", "message": "Mend it", "added": vec!["a/file"; 400]});
    let count = bytes_min / commit.to_string().len() + 1;
    let push = json!({"ref": "refs/heads/main", "commits": vec![commit; count],
        "repository": {"full_name": "a/b"}, "sender": {"login": "ada"}});
    push.to_string().into_bytes()
}

#[test]
fn conn_1_body_of_25_mb_is_accepted_and_its_useful_part_kept() {
    let (mut orchestrator, address) = github(&json!({}));
    let body = push(GITHUB_BODY_BYTES_MAX - 64 * 1024);
    assert!(body.len() <= GITHUB_BODY_BYTES_MAX);
    let mut client = Client::sending(address, &delivery("push", "d1", &signature(&body), &body));
    let pending = orchestrator.event();
    assert!(
        pending.event.input.starts_with("ada pushed "),
        "{}",
        pending.event.input
    );
    assert!(
        pending
            .event
            .input
            .contains(" commits to branch main of a/b")
    );
    assert!(pending.event.input.len() < 4_096);
    let metadata = &pending.event.metadata;
    assert_eq!(metadata["payloadBytes"], json!(body.len()));
    assert_eq!(metadata["payload"]["sender"]["login"], "ada");
    assert!(Value::from(metadata.clone()).to_string().len() < 128 * 1024);
    orchestrator.accept(&pending, "d1", false);
    assert_eq!(client.response().status, 202);

    // The signature covers the part that is not kept.
    let mut forged = body.clone();
    let place = forged.len() / 2;
    forged[place] ^= 1;
    let mut client = Client::sending(address, &delivery("push", "d2", &signature(&body), &forged));
    assert_eq!(client.response().status, 401);
    let length = (GITHUB_BODY_BYTES_MAX + 1).to_string();
    let long = head("POST", "/", &[("content-length", &length)], &[]);
    let mut client = Client::sending(address, &long);
    let response = client.response();
    assert_eq!(
        (response.status, response.error_code().as_str()),
        (413, "too_large")
    );
    orchestrator.ping();
}

#[test]
fn conn_1_delivery_without_effect_is_acknowledged_and_counted() {
    let (mut orchestrator, address) = github(&json!({"repositories": ["ada/shelf"]}));
    let mut client = Client::connect(address);
    let mut deliver = |event: &str, body: &Value| {
        let body = body.to_string().into_bytes();
        client.send(&delivery(event, "d1", &signature(&body), &body));
    };
    let issue = |repository: &str| {
        json!({"action": "opened", "issue": {"number": 5, "title": "t"},
            "repository": {"full_name": repository}, "sender": {"login": "ada"}})
    };
    deliver("ping", &json!({"zen": "Keep it logically awesome."}));
    assert_eq!(orchestrator.ignored(), IgnoreReason::Ping);
    deliver("issues", &issue("ada/other"));
    assert_eq!(orchestrator.ignored(), IgnoreReason::OtherPlace);
    // The orchestrator counts what no rule takes.
    deliver("issues", &issue("Ada/Shelf"));
    let pending = orchestrator.event();
    orchestrator.refuse(&pending, RefusalCode::Unroutable);
    for said in ["pong", "ignored", "ignored"] {
        let response = client.response();
        assert_eq!(response.status, 200);
        assert!(response.json()[said].is_string(), "{said}");
    }
    let line = orchestrator.log_line("request answered");
    assert_eq!(
        (&line["status"], &line["ignored"]),
        (&json!(200), &json!("ping"))
    );
    orchestrator.ping();
}

#[test]
fn conn_1_renamed_repository_is_stored_and_followed() {
    let (mut orchestrator, address) = github(&json!({"repositories": ["ada/shelf"]}));
    let renamed = json!({"action": "renamed", "changes": {"repository": {"name": {"from": "shelf"}}},
        "repository": {"id": 7, "full_name": "ada/books"}, "sender": {"login": "ada"}});
    let body = renamed.to_string().into_bytes();
    let bytes = delivery("repository", "d1", &signature(&body), &body);
    let mut client = Client::sending(address, &bytes);
    let mut state = None;
    let mut event = None;
    while state.is_none() || event.is_none() {
        let (envelope, message) = orchestrator.receive();
        match message {
            ToOrchestrator::StateSet(set) => {
                orchestrator.keep_state(envelope.id.unwrap());
                state = Some(set.state);
            }
            ToOrchestrator::Event(submitted) => {
                let pending = PendingEvent {
                    request: envelope.id.unwrap(),
                    envelope,
                    event: *submitted,
                };
                orchestrator.accept(&pending, "d1", false);
                event = Some(pending.event);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.response().status, 202);
    let said = event.unwrap().input;
    assert!(said.starts_with("ada renamed shelf to ada/books"), "{said}");
    let state: Value = serde_json::from_str(state.unwrap().get()).unwrap();
    let seen = &state["repositories"]["7"];
    assert_eq!(
        (&seen["listed"], &seen["name"]),
        (&json!("ada/shelf"), &json!("ada/books"))
    );
}

/// One official example.
struct Example {
    name: String,
    body: String,
    signature: String,
}

fn examples(place: &Path) -> Vec<Example> {
    let output = Command::new("node")
        .args(["--input-type=module", "--eval", PLAYER, SECRET])
        .current_dir(place)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let field = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    said.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            Example {
                name: field(&line, "name"),
                body: field(&line, "body"),
                signature: field(&line, "signature"),
            }
        })
        .collect()
}

/// The directory with the packages; `None` in the short form.
fn packages(temporary: &Path) -> Option<PathBuf> {
    let value = std::env::var_os(EXAMPLES_VAR)?;
    let installed = PathBuf::from(&value);
    if installed.join("node_modules").is_dir() {
        return Some(installed);
    }
    let install = Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ])
        .arg(temporary)
        .args(PACKAGES)
        .status();
    assert!(
        install.unwrap().success(),
        "npm failed to install {PACKAGES:?}"
    );
    Some(temporary.to_owned())
}

/// Outcomes of the examples of one event.
#[derive(Default)]
struct Figures {
    accepted: usize,
    ignored: BTreeMap<&'static str, usize>,
}

#[test]
fn conn_1_official_examples_become_words_or_are_counted() {
    let temporary = tempfile::tempdir().unwrap();
    let Some(place) = packages(temporary.path()) else {
        needs::note_left_out(&format!("{EXAMPLES_VAR} is not set"));
        return;
    };
    let examples = examples(&place);
    let (mut orchestrator, address) = github(&json!({}));
    let mut client = Client::connect(address);
    let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
    let mut inputs = Vec::new();
    for (index, example) in examples.iter().enumerate() {
        let id = format!("d{index}");
        let body = example.body.as_bytes();
        client.send(&delivery(&example.name, &id, &example.signature, body));
        let figures = figures.entry(example.name.clone()).or_default();
        let (envelope, message) = orchestrator.receive();
        match message {
            ToOrchestrator::EventIgnored(ignored) => {
                *figures.ignored.entry(ignored.reason.as_str()).or_default() += 1;
                assert_eq!(client.response().status, 200);
            }
            ToOrchestrator::Event(event) => {
                let pending = PendingEvent {
                    request: envelope.id.unwrap(),
                    envelope,
                    event: *event,
                };
                orchestrator.accept(&pending, &id, false);
                assert_eq!(client.response().status, 202);
                figures.accepted += 1;
                inputs.push((example, pending.event.input));
            }
            other => panic!("{other:?}"),
        }
    }
    for (name, figures) in &figures {
        println!(
            "{name}: {} accepted, ignored {:?}",
            figures.accepted, figures.ignored
        );
    }
    let accepted: usize = figures.values().map(|it| it.accepted).sum();
    println!("{} examples, {accepted} accepted", examples.len());
    for (example, input) in &inputs {
        let sentence = input.lines().next().unwrap();
        println!("{}\t{sentence}", example.name);
        check(example, sentence);
    }
    assert!(examples.len() >= 329, "{}", examples.len());
    let pings = figures["ping"].ignored["ping"];
    assert_eq!(accepted + pings, examples.len());
}

/// Checks that a sentence names the place, and lacks no value.
fn check(example: &Example, sentence: &str) {
    let body: Value = serde_json::from_str(&example.body).unwrap();
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let places = [
        "/repository/full_name",
        "/organization/login",
        "/installation/account/login",
        "/sponsorship/sponsorable/login",
        "/marketplace_purchase/account/login",
    ];
    if let Some(place) = places.iter().find_map(|pointer| text(pointer)) {
        assert!(sentence.contains(place), "{}: {sentence}", example.name);
    }
    let title = ["/issue/title", "/pull_request/title", "/discussion/title"];
    if let Some(title) = title.iter().find_map(|pointer| text(pointer)) {
        let title: Vec<&str> = title.split_whitespace().collect();
        assert!(
            sentence.contains(&title.join(" ")),
            "{}: {sentence}",
            example.name
        );
    }
    assert!(
        !sentence.contains(" ? ") && !sentence.contains("\"\""),
        "{sentence}"
    );
    assert!(!sentence.contains("caused the event"), "{sentence}");
}
