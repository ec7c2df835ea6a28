//! A real homeserver: Synapse, with SQLite, until it is dropped.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::request;
use crate::needs;
use crate::processes::{self, Signal};
use crate::server::free_ports;
use crate::wait::within;

/// Time limit for its start, which takes a minute on a busy machine.
const START: Duration = Duration::from_secs(180);

/// Number of messages that tests sent.
static TRANSACTIONS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub struct Synapse {
    process: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

/// A person, or an account for a connection.
#[derive(Debug)]
pub struct MatrixUser {
    address: SocketAddr,
    pub id: String,
    pub token: String,
}

impl Synapse {
    /// Starts it; `None` if it is not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let python = needs::synapse()?;
        let dir = tempfile::tempdir().unwrap();
        let [port] = free_ports();
        let at = dir.path().display();
        let many = "{per_second: 1000, burst_count: 1000}";
        let config = format!(
            "server_name: example.test\n\
             listeners:\n  - {{port: {port}, type: http, bind_addresses: [127.0.0.1], \
             resources: [{{names: [client]}}]}}\n\
             database: {{name: sqlite3, args: {{database: {at}/homeserver.db}}}}\n\
             media_store_path: {at}/media\nsigning_key_path: {at}/signing.key\n\
             log_config: {at}/log.yaml\nmacaroon_secret_key: m\nform_secret: f\n\
             report_stats: false\ntrusted_key_servers: []\nenable_registration: true\n\
             enable_registration_without_verification: true\nrc_message: {many}\n\
             rc_registration: {many}\n\
             rc_invites: {{per_user: {many}, per_room: {many}, per_issuer: {many}}}\n"
        );
        std::fs::write(dir.path().join("homeserver.yaml"), config).unwrap();
        let log = "version: 1\nroot: {level: ERROR, handlers: []}\n";
        std::fs::write(dir.path().join("log.yaml"), log).unwrap();
        let command = |more: &[&str]| {
            let mut command = Command::new(&python);
            command.args(["-m", "synapse.app.homeserver", "-c", "homeserver.yaml"]);
            command.args(more).current_dir(dir.path());
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null());
            command
        };
        let keys = command(&["--generate-keys"]).status().unwrap();
        assert!(keys.success(), "Synapse makes no key: {keys}");
        let process = command(&[]).spawn().unwrap();
        let synapse = Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            _dir: dir,
        };
        let versions = || {
            let answered = request(synapse.address, "GET", "/_matrix/client/versions", &[], "");
            answered.ok().filter(|it| it.status == 200)
        };
        assert!(within(START, versions).is_some(), "Synapse does not start");
        Some(synapse)
    }

    /// Its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates an account.
    #[must_use]
    pub fn register(&self, name: &str) -> MatrixUser {
        let body = json!({"username": name, "password": "a password",
            "auth": {"type": "m.login.dummy"}});
        let path = "/_matrix/client/v3/register";
        let kind = [("content-type", "application/json")];
        let answered = request(self.address, "POST", path, &kind, &body.to_string()).unwrap();
        let account = answered.json();
        let field = |name: &str| account[name].as_str().unwrap().to_owned();
        MatrixUser {
            address: self.address,
            id: field("user_id"),
            token: field("access_token"),
        }
    }
}

impl Drop for Synapse {
    fn drop(&mut self) {
        processes::signal(self.process.id(), Signal::SIGKILL);
        self.process.wait().ok();
    }
}

impl MatrixUser {
    fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let path = format!("/_matrix/client/v3/{path}");
        let token = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let answered = request(self.address, method, &path, &headers, body).unwrap();
        assert_eq!(answered.status, 200, "{path}: {answered:?}");
        answered.json()
    }

    /// Posts JSON to a path of the client-server API.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", path, &body.to_string())
    }

    /// Sends a message. Returns its ID.
    ///
    /// # Panics
    ///
    /// If the homeserver refuses it.
    pub fn send(&self, room: &str, content: &Value) -> String {
        let transaction = TRANSACTIONS.fetch_add(1, Ordering::SeqCst);
        let path = format!("rooms/{room}/send/m.room.message/{transaction}");
        let sent = self.call("PUT", &path, &content.to_string());
        sent["event_id"].as_str().unwrap().to_owned()
    }

    /// The latest messages of a room, the oldest first.
    #[must_use]
    pub fn messages(&self, room: &str) -> Vec<Value> {
        let path = format!("rooms/{room}/messages?dir=b&limit=50");
        let page = self.call("GET", &path, "");
        let mut events = page["chunk"].as_array().cloned().unwrap_or_default();
        events.retain(|event| event["type"] == "m.room.message");
        events.reverse();
        events
    }
}
