//! Goal: the connectors and the official packages of the services agree on each request.
//!
//! Method: with [`SDKS_VAR`] set, npm installs the packages into a temporary directory. They sign
//! requests and alter some, and their own verification decides about each one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;

use goondan_tests::needs;
use serde::Deserialize;
use serde_json::json;

use crate::http::{Client, request};
use crate::orchestrator::{Orchestrator, listening_address};

/// Variable that enables the test, which needs the npm registry. A number is the seed.
const SDKS_VAR: &str = "GOONDAN_TEST_WEBHOOK_SDKS";

/// The packages, each with the version that was tested last.
const PACKAGES: [&str; 6] = [
    "stripe@23",
    "twilio@6",
    "standardwebhooks@1",
    "svix@2",
    "@shopify/shopify-api@15",
    "discord-interactions@4",
];

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/webhook-sdks.cjs"
);

/// A line of the script: the settings of the connector, or a request to it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Request(SdkRequest),
    Webhook {
        kind: String,
        preset: String,
        secret: String,
        url: Option<String>,
    },
    Discord {
        kind: String,
        #[serde(rename = "publicKey")]
        public_key: String,
    },
}

#[derive(Deserialize)]
struct SdkRequest {
    kind: String,
    headers: BTreeMap<String, String>,
    body: String,
    path: String,
    /// The verdict of the official package.
    valid: bool,
}

/// Installs the packages, and runs the script with them.
fn lines(seed: &str) -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"]);
    let installed = npm.arg(dir.path()).args(PACKAGES).output().unwrap();
    let said = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "npm: {said}");
    let ran = Command::new("node")
        .args([SCRIPT, seed])
        .env("NODE_PATH", dir.path().join("node_modules"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "node: {printed}");
    let lines = String::from_utf8(ran.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// A connector of a service.
fn start(line: Line) -> (String, Orchestrator, SocketAddr) {
    match line {
        Line::Webhook {
            kind,
            preset,
            secret,
            url,
        } => {
            let mut signature = json!({"preset": preset});
            if let Some(url) = url {
                signature["url"] = json!(url);
            }
            let config = json!({"signature": signature});
            let (orchestrator, address) =
                Orchestrator::with_webhook(&config, &json!({"hmac": secret}));
            (kind, orchestrator, address)
        }
        Line::Discord { kind, public_key } => {
            let config = json!({"publicKey": public_key, "reply": "never"});
            let mut orchestrator = Orchestrator::start_as("discord", &config, &json!({}));
            orchestrator.give_state(None);
            let address = listening_address(&orchestrator.status());
            (kind, orchestrator, address)
        }
        Line::Request(request) => panic!("a request to no connector: {}", request.kind),
    }
}

#[test]
fn conn_3_official_packages_and_connectors_agree() {
    let Ok(seed) = std::env::var(SDKS_VAR) else {
        needs::note_left_out(&format!("{SDKS_VAR} is not set"));
        return;
    };
    if !needs::program("node") || !needs::program("npm") {
        return;
    }
    let mut running = None;
    let mut figures: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for line in lines(&seed) {
        let Line::Request(signed) = line else {
            running = Some(start(line));
            continue;
        };
        let (kind, orchestrator, address) = running.as_mut().unwrap();
        let kind = kind.as_str();
        assert_eq!(kind, signed.kind);
        let headers: Vec<(&str, &str)> = signed
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let bytes = request("POST", &signed.path, &headers, signed.body.as_bytes());
        let mut client = Client::sending(*address, &bytes);
        if signed.valid && kind != "discord" {
            let pending = orchestrator.event();
            assert!(pending.event.id.is_some() || kind == "twilio", "{kind}");
            orchestrator.accept(&pending, "e", false);
        }
        let status = client.response().status;
        let was_accepted = (200..300).contains(&status);
        let (path, body) = (&signed.path, &signed.body);
        assert_eq!(
            was_accepted, signed.valid,
            "{kind}: {status} {headers:?} {path} {body}"
        );
        assert!(was_accepted || status == 401, "{kind}: {status}");
        figures.entry(signed.kind).or_default()[usize::from(!was_accepted)] += 1;
    }
    for (kind, [accepted, refused]) in &figures {
        eprintln!("{kind}: {accepted} accepted, {refused} refused");
    }
    assert_eq!(figures.len(), PACKAGES.len());
    assert!(figures.values().flatten().all(|count| *count > 0));
}
