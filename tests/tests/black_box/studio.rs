//! Studio over HTTP (`OBS-5`): authorization, allowed requests, and the lifetime of its process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram, STUDIO};
use goondan_tests::http::HttpResponse;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::server::free_ports;
use goondan_tests::{Daemon, Home, tree, wait_for, wait_until};
use serde_json::{Value, json};

use crate::{approvals, bundles, proposals, task_sources, tasks};

/// Maximum time for a response before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Studio, as `gdn studio` starts it.
pub(crate) struct Studio {
    running: RunningProgram,
    addresses: usize,
}

impl Studio {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let args = [&["studio", "--json"], args].concat();
        Self::of(home.command(&bin(GDN), &args))
    }

    /// Studio by a command of `gdn`.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        Self {
            running: RunningProgram::start(command),
            addresses: 0,
        }
    }

    /// The next address, with an unused ticket.
    pub(crate) fn address(&mut self) -> String {
        if self.addresses > 0 {
            self.running.say("");
        }
        let at = self.addresses;
        self.addresses += 1;
        let line = wait_for("Studio says its address", || {
            let stdout = self.running.stdout();
            let whole = stdout.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().nth(at).map(str::to_owned)
        });
        let shown: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(shown["schema"], "gdn.studio/v1");
        shown["address"].as_str().unwrap().to_owned()
    }

    /// Studio, and a page that has logged in.
    fn with_page(home: &Home, args: &[&str]) -> (Self, StudioPage) {
        let mut studio = Self::start(home, args);
        let page = studio.page();
        (studio, page)
    }

    /// A page that has logged in.
    pub(crate) fn page(&mut self) -> StudioPage {
        let (mut page, ticket) = StudioPage::at(&self.address());
        let logged_in = page.post("/api/login", &json!({ "ticket": ticket })).json();
        page.token = Some(logged_in["token"].as_str().unwrap().to_owned());
        page
    }
}

/// Actions of a page in a browser.
pub(crate) struct StudioPage {
    address: SocketAddr,
    token: Option<String>,
}

impl StudioPage {
    /// A page that has not logged in, and the ticket.
    fn at(address: &str) -> (Self, String) {
        let (place, ticket) = address.split_once("/#t=").unwrap();
        let place = place.strip_prefix("http://").unwrap();
        let page = Self {
            address: place.parse().unwrap(),
            token: None,
        };
        (page, ticket.to_owned())
    }

    fn headers(&self) -> Vec<(String, String)> {
        let host = self.address.to_string();
        let mut headers = vec![
            ("Origin".to_owned(), format!("http://{host}")),
            ("Host".to_owned(), host),
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Sec-Fetch-Site".to_owned(), "same-origin".to_owned()),
        ];
        if let Some(token) = &self.token {
            headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        headers
    }

    fn send(&self, head: &str, headers: &[(String, String)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("{head} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn request(&self, head: &str, headers: &[(String, String)], body: &str) -> HttpResponse {
        let mut answer = Vec::new();
        let mut stream = self.send(head, headers, body);
        stream.read_to_end(&mut answer).unwrap();
        HttpResponse::read(&answer)
    }

    fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.request(&format!("POST {path}"), &self.headers(), &body.to_string())
    }

    pub(crate) fn call(&self, method: &str, params: &Value) -> HttpResponse {
        self.post("/api/call", &json!({"method": method, "params": params}))
    }

    pub(crate) fn result(&self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let mut answer = answer.json();
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    /// Replaces one header with a foreign value; none removes it.
    fn with(&self, name: &str, value: Option<&str>) -> Vec<(String, String)> {
        let mut headers = self.headers();
        headers.retain(|(header, _)| header != name);
        headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        headers
    }
}

fn status() -> Value {
    json!({"method": "daemon.status", "params": {}})
}

#[test]
fn prop_5_a_page_that_shows_a_proposal_writes_nothing() {
    let home = proposals::home();
    let _daemon = Daemon::serving(&home);
    proposals::worked(&home);
    home.gdn(&["proposal", "create", "r1", "coder"]).exits(0);
    let log = home.workspace_dir().join("sandboxes/r1/events.jsonl");
    let lines = || std::fs::read_to_string(&log).unwrap().lines().count();
    let workspace = &home.gdn_json(&["status"])["workspaces"][0]["workspaceId"];
    let of = json!({"workspaceId": workspace, "sandbox": {"runId": "r1", "agentId": "coder"}});
    for args in [&[][..], &["--write"]] {
        let (_studio, page) = Studio::with_page(&home, args);
        let before = tree::snapshot(&home.workspace_dir(), |_| true);
        for method in ["proposal.list", "sandbox.list"] {
            page.result(method, &json!({"workspaceId": workspace}));
        }
        for method in [
            "proposal.show",
            "proposal.diff",
            "sandbox.show",
            "proposal.check",
        ] {
            page.result(method, &of);
        }
        let after = tree::snapshot(&home.workspace_dir(), |_| true);
        assert!(after == before, "{args:?}");
        // Methods that record a review are not available to pages.
        assert_ne!(page.call("proposal.review", &of).status, 200);
    }
    // A person's review at a terminal is recorded.
    let before = lines();
    home.gdn(&["proposal", "check", "r1", "coder"]).exits(0);
    assert_eq!(lines(), before + 1);
}

#[test]
fn obs_5_ticket_works_once_and_requests_need_a_token() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let mut studio = Studio::start(&home, &[]);
    let (mut page, ticket) = StudioPage::at(&studio.address());
    assert_eq!(page.post("/api/call", &status()).status, 401);
    let login = json!({ "ticket": ticket });
    let logged_in = page.post("/api/login", &login).json();
    assert_eq!(logged_in["write"], false);
    assert_eq!(page.post("/api/login", &login).status, 401, "it was used");
    let token = logged_in["token"].as_str().unwrap().to_owned();
    for wrong in [ticket.as_str(), "", "Bearer", &token.to_uppercase()] {
        page.token = Some(wrong.to_owned());
        assert_eq!(page.post("/api/call", &status()).status, 401, "{wrong:?}");
        assert_eq!(page.post("/api/stream", &status()).status, 401, "{wrong:?}");
    }
    page.token = Some(token);
    let told = page.result("daemon.status", &json!({}));
    assert_eq!(told["pid"], daemon.pid());
    // A stolen token is useless after the end of its session.
    assert_eq!(page.post("/api/logout", &json!({})).status, 200);
    assert_eq!(page.post("/api/call", &status()).status, 401);
    // A new address logs in another page.
    assert_eq!(
        studio.page().result("daemon.status", &json!({}))["pid"],
        daemon.pid()
    );
}

#[test]
fn obs_5_foreign_pages_get_no_access() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let (_studio, page) = Studio::with_page(&home, &[]);
    let ask = |headers: &[(String, String)]| {
        let answer = page.request("POST /api/call", headers, &status().to_string());
        assert!(answer.header("access-control-allow-origin").is_none());
        assert!(!answer.body.contains("workspaces"), "{}", answer.body);
        answer.status
    };
    let wrong: &[(&str, &[Option<&str>])] = &[
        (
            "Host",
            &[
                None,
                Some("attacker.example"),
                Some("127.0.0.1"),
                Some("127.0.0.1:1"),
            ],
        ),
        (
            "Origin",
            &[
                None,
                Some("null"),
                Some("http://attacker.example"),
                Some("http://127.0.0.1"),
            ],
        ),
        (
            "Sec-Fetch-Site",
            &[Some("cross-site"), Some("same-site"), Some("none")],
        ),
    ];
    for (name, values) in wrong {
        for value in *values {
            // The server itself refuses an HTTP/1.1 request without a host.
            assert!(
                [400, 403].contains(&ask(&page.with(name, *value))),
                "{name}: {value:?}"
            );
        }
    }
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        assert_eq!(ask(&page.with("Content-Type", kind)), 403, "{kind:?}");
    }
    // Preflight requests (CORS) are rejected.
    let asked_before = page.request("OPTIONS /api/call", &page.headers(), "");
    assert_eq!(asked_before.status, 405);
    assert!(asked_before.header("access-control-allow-origin").is_none());
    // The page's files are also served only for its own addresses.
    let rebound = page.request("GET /", &page.with("Host", Some("attacker.example")), "");
    assert_eq!(rebound.status, 403);
    assert_eq!(page.request("GET /", &page.headers(), "").status, 200);
}

#[test]
fn obs_5_page_works_behind_a_tls_proxy_below_a_path() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let [port] = free_ports();
    let public = "https://desk.example/studio/";
    let port_text = port.to_string();
    let mut studio = Studio::start(&home, &["--port", &port_text, "--url", public]);
    let address = studio.address();
    let ticket = address.strip_prefix(public).unwrap();
    let ticket = ticket.strip_prefix("#t=").unwrap();
    let mut page = StudioPage {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        token: None,
    };
    // Headers that a proxy passes, which can remove the path.
    let headers = |page: &StudioPage| {
        let mut headers = page.with("Host", Some("desk.example"));
        headers.retain(|(name, _)| name != "Origin");
        headers.push(("Origin".to_owned(), "https://desk.example".to_owned()));
        headers
    };
    let body = json!({ "ticket": ticket }).to_string();
    let logged_in = page.request("POST /studio/api/login", &headers(&page), &body);
    assert_eq!(logged_in.status, 200, "{}", logged_in.body);
    page.token = Some(logged_in.json()["token"].as_str().unwrap().to_owned());
    for path in ["/studio/api/call", "/api/call"] {
        let told = page.request(
            &format!("POST {path}"),
            &headers(&page),
            &status().to_string(),
        );
        assert_eq!(told.json()["result"]["pid"], daemon.pid(), "{path}");
    }
    for path in ["/studio/", "/studio/assets/studio.js", "/assets/rich.js"] {
        let file = page.request(&format!("GET {path}"), &headers(&page), "");
        assert_eq!(file.status, 200, "{path}");
    }
    let redirected = page.request("GET /studio", &headers(&page), "");
    assert_eq!(redirected.status, 308);
    assert_eq!(redirected.header("location"), Some("/studio/"));
    // A page of another origin, and the name of the proxy without TLS.
    for origin in ["http://desk.example", "https://attacker.example"] {
        let mut headers = headers(&page);
        headers.retain(|(name, _)| name != "Origin");
        headers.push(("Origin".to_owned(), origin.to_owned()));
        let refused = page.request("POST /studio/api/call", &headers, &status().to_string());
        assert_eq!(refused.status, 403, "{origin}");
    }
}

#[test]
fn obs_5_page_starts_with_the_project_of_the_command() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let mut studio = Studio::start(&home, &[]);
    let (page, ticket) = StudioPage::at(&studio.address());
    let logged_in = page.post("/api/login", &json!({ "ticket": ticket })).json();
    let shown = &home.gdn_json(&["status"])["workspaces"][0]["projectRoot"];
    assert_eq!(&logged_in["projectRoot"], shown);
    assert!(logged_in["workspaceId"].is_null(), "{logged_in}");
}

#[test]
fn obs_5_every_response_has_a_strict_security_policy() {
    let home = Home::new(LAB);
    let (_studio, page) = Studio::with_page(&home, &[]);
    for (head, expected) in [
        ("GET /", 200),
        ("GET /nothing", 404),
        ("POST /api/call", 400),
    ] {
        let answer = page.request(head, &page.headers(), "");
        assert_eq!(answer.status, expected, "{head}");
        let policy = answer.header("content-security-policy").unwrap();
        for word in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(word), "{head}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    }
    for path in [
        "/../Cargo.toml",
        "/assets/../../Cargo.toml",
        "/assets/%2e%2e/x",
        "//etc/passwd",
    ] {
        assert_eq!(
            page.request(&format!("GET {path}"), &page.headers(), "")
                .status,
            404,
            "{path}"
        );
    }
}

#[test]
fn obs_5_read_only_studio_changes_nothing_and_write_decides() {
    let home = Home::new(&approvals::project());
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "run a"]);
    wait_until("it waits", || !approvals::waiting(&home).is_empty());
    let approval = approvals::waiting(&home).remove(0);
    let decision = json!({
        "workspaceId": approval["workspaceId"], "approvalId": approval["approvalId"],
        "decision": "approved",
    });
    let (_reader, page) = Studio::with_page(&home, &[]);
    let refused = page.call("approval.decide", &decision);
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"]["code"], "readOnly");
    for method in [
        "daemon.shutdown",
        "secret.list",
        "instance.delete",
        "nothing",
    ] {
        assert_eq!(page.call(method, &json!({})).status, 403, "{method}");
    }
    assert_eq!(
        page.result("approval.list", &json!({}))["approvals"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(approvals::runs_of(&home, "a"), 0);
    let (_writer, page) = Studio::with_page(&home, &["--write"]);
    page.result("approval.decide", &decision);
    assert!(asking.wait().exits(0).stdout.contains("ran a"));
    assert_eq!(approvals::runs_of(&home, "a"), 1);
    // The result of a decision is reported in the daemon's words.
    let again = page.call("approval.decide", &decision);
    assert_eq!(again.status, 200);
    assert!(
        again.json()["error"]["message"].is_string(),
        "{}",
        again.body
    );
}

#[test]
fn obs_5_neither_waits_nor_idle_connections_keep_a_decision_out() {
    let home = Home::new(&approvals::project());
    let _daemon = Daemon::serving(&home);
    let (_studio, page) = Studio::with_page(&home, &["--write"]);
    let id = page.result("workspace.list", &json!({}))["workspaces"][0]["workspaceId"].take();
    let wait = json!({
        "workspaceId": id, "conversationKey": "main", "input": "run a", "wait": true,
    });
    // As many as the limit of waiting requests.
    let call = json!({"method": "event.send", "params": wait}).to_string();
    let waiting: Vec<TcpStream> = (0..8)
        .map(|_| page.send("POST /api/call", &page.headers(), &call))
        .collect();
    let events = json!({ "workspaceId": id });
    wait_until("all wait", || {
        page.result("event.list", &events)["events"]
            .as_array()
            .is_some_and(|events| events.len() == waiting.len())
    });
    let refused = page.call("event.send", &wait);
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "overloaded");

    let begun = Instant::now();
    let idle = (0..140).map(|_| TcpStream::connect(page.address).unwrap());
    let idle: Vec<TcpStream> = idle.collect();
    for _ in &waiting {
        let approval = wait_for("one waits for a person", || {
            let listed = page.result("approval.list", &json!({}));
            listed["approvals"].as_array()?.first().cloned()
        });
        let decision = json!({
            "workspaceId": id, "approvalId": approval["approvalId"], "decision": "denied",
        });
        page.result("approval.decide", &decision);
    }
    for mut stream in waiting {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(HttpResponse::read(&answer).status, 200);
    }
    // A silent connection may keep its slot for ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop(idle);
}

#[test]
fn obs_5_changeset_pages_are_exact_despite_concurrent_decisions() {
    let home = bundles::poet();
    let _daemon = Daemon::serving(&home);
    home.ask("bob", "hello");
    for key in ["ann", "main", "zoe"] {
        let reply = home.ask(key, "give yourself a shell");
        assert!(reply.contains("waiting"), "{reply}");
    }
    let (_studio, page) = Studio::with_page(&home, &["--write"]);
    let id = page.result("workspace.list", &json!({}))["workspaces"][0]["workspaceId"].take();
    let keys = |told: &Value| {
        let changesets = told["changesets"].as_array().unwrap().iter();
        changesets
            .map(|one| one["instanceKey"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let first = json!({"workspaceId": id, "limit": 1});
    let told = page.result("bundle.waiting", &first);
    assert_eq!(keys(&told), ["ann"]);
    assert_eq!(told["next"], "ann");
    let waiting = &told["changesets"][0];
    assert_eq!(waiting["agentName"], "poet");
    assert_eq!(waiting["changeset"]["state"], "waiting");
    let changeset_id = &waiting["changeset"]["changesetId"];
    let of_ann = json!({"workspaceId": id, "instanceKey": "ann", "changesetId": changeset_id});
    page.result("bundle.reject", &of_ann);
    let behind = json!({"workspaceId": id, "after": "ann", "limit": 2});
    let told = page.result("bundle.waiting", &behind);
    assert_eq!(keys(&told), ["main", "zoe"]);
    assert!(told["next"].is_null(), "{told}");
    let cursor = bundles::bundle_dir(&home).join("cursor.yaml");
    home.write(cursor.to_str().unwrap(), "{");
    let told = page.result("bundle.waiting", &first);
    assert_eq!(told["unreadable"], json!(["main"]));
    assert_eq!(keys(&told), ["zoe"]);
}

#[test]
fn obs_5_export_needs_read_access_and_deletion_needs_write() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo hello");
    let (_studio, page) = Studio::with_page(&home, &[]);
    let id = page.result("workspace.list", &json!({}))["workspaces"][0]["workspaceId"].take();
    let of_main = json!({"workspaceId": id, "instanceKey": "main"});
    let mut export = json!({"workspaceId": id, "instanceKey": "main", "skipDamaged": false});
    let mut archive = String::new();
    loop {
        let mut part = page.result("instance.export", &export);
        archive.push_str(part["text"].as_str().unwrap());
        if part["next"].is_null() {
            break;
        }
        export["position"] = part["next"].take();
    }
    let file = home.path().join("main.jsonl");
    let file = file.to_str().unwrap();
    home.write(file, &archive);
    assert_eq!(page.call("instance.delete", &of_main).status, 403);
    let (_writer, writer) = Studio::with_page(&home, &["--write"]);
    let before = home.gdn_json(&["instance", "history", "main"]);
    assert_eq!(writer.result("instance.delete", &of_main)["existed"], true);
    let gone = writer.call("instance.show", &of_main).json();
    assert_eq!(gone["error"]["code"], "instanceNotFound", "{gone}");
    // The file exported there is a normal archive.
    home.gdn(&["instance", "import", file]).exits(0);
    let after = home.gdn_json(&["instance", "history", "main"]);
    assert_eq!(after["messages"], before["messages"]);
}

/// A stream that is read line by line.
struct StreamReader(BufReader<TcpStream>);

impl StreamReader {
    fn of(page: &StudioPage, method: &str, params: &Value) -> Self {
        Self::at(
            page,
            "/api/stream",
            &json!({"method": method, "params": params}),
        )
    }

    fn at(page: &StudioPage, path: &str, body: &Value) -> Self {
        let stream = page.send(&format!("POST {path}"), &page.headers(), &body.to_string());
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        Self(lines)
    }

    /// Returns the next line; none at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            // A truncated stream also ends.
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            // The lines in between contain the chunk sizes of the response.
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }

    /// Returns the next part of a task's stream; none at the end.
    fn next_part(&mut self) -> Option<Value> {
        loop {
            let mut line = self.next()?;
            // A silent stream reports that it is alive.
            if line["alive"].is_null() {
                assert_eq!(line["notice"], "task.part", "{line}");
                return Some(line["params"].take());
            }
        }
    }
}

/// The hits of a search, and the end of its last answer.
fn search(page: &StudioPage, mut request: Value) -> (Vec<Value>, Value) {
    let mut hits = Vec::new();
    loop {
        let mut lines = StreamReader::at(page, "/api/search", &request);
        let mut end = None;
        while let Some(mut line) = lines.next() {
            assert!(line["error"].is_null(), "{line}");
            if !line["hit"].is_null() {
                hits.push(line["hit"].take());
            } else if !line["end"].is_null() {
                end = Some(line["end"].take());
            }
        }
        let end = end.expect("an answer has an end");
        if end["next"].is_null() {
            return (hits, end);
        }
        request["after"] = end["next"].clone();
    }
}

#[test]
fn obs_5_daemon_counts_events_of_connections_and_agents() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let (_studio, page) = Studio::with_page(&home, &[]);
    let id = page.result("workspace.list", &json!({}))["workspaces"][0]["workspaceId"].take();
    let of = json!({ "workspaceId": id });
    let report = page.result("workspace.traffic", &of);
    assert_eq!(report["flows"], json!([]));
    for (event, text) in [("e1", "echo a"), ("e2", "echo b"), ("e2", "echo b")] {
        home.gdn(&["send", "--event-id", event, text]).exits(0);
    }
    let report = page.result("workspace.traffic", &of);
    let [flow] = report["flows"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    assert_eq!(flow["from"], json!({"kind": "connection", "name": "cli"}));
    assert_eq!(flow["to"], json!({"kind": "agent", "name": "worker"}));
    // A repeated delivery is not counted.
    assert_eq!(flow["count"], 2);
    let since = report["since"].as_str().unwrap();
    assert!(flow["lastAt"].as_str().unwrap() >= since, "{report}");
    let unknown = page.call("workspace.traffic", &json!({"workspaceId": "none"}));
    assert_eq!(unknown.json()["error"]["code"], "workspaceNotFound");
}

/// Kinds of hits with their ids, without lines of the logs.
fn places(hits: &[Value]) -> Vec<String> {
    let text = |hit: &Value, name: &str| hit[name].as_str().unwrap().to_owned();
    let shown = hits
        .iter()
        .filter(|hit| hit["kind"] != "log" && hit["kind"] != "audit");
    let mut places: Vec<_> = shown
        .map(|hit| format!("{} {}", text(hit, "kind"), text(hit, "id")))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[test]
fn obs_5_search_finds_text_of_all_workspaces_at_its_place() {
    let home = task_home();
    let _daemon = Daemon::serving(&home);
    start_shop(&home);
    let_shop_fail(&home);
    // A second workspace, with conversations and without a connection.
    let (lab, _) = LAB
        .split_once("---\napiVersion: goondan.ai/v1\nkind: Connection")
        .unwrap();
    home.write("lab/goondan.yaml", &home.filled_in(lab));
    let lab = home.path().join("lab").to_str().unwrap().to_owned();
    home.gdn(&["run", &lab]).exits(0);
    for (key, text) in [("main", "echo Zephyr-main"), ("older", "work 7")] {
        home.gdn(&["send", "--project", &lab, "--conversation", key, text])
            .exits(0);
    }
    let (_studio, page) = Studio::with_page(&home, &[]);

    let (hits, end) = search(&page, json!({"text": "zePHYR-main"}));
    assert_eq!(end["skipped"], 0);
    // The turn's events have the text, too.
    let found = places(&hits);
    assert!(found.contains(&"message main".to_owned()), "{found:?}");
    let message = hits.iter().find(|hit| hit["kind"] == "message").unwrap();
    assert_eq!(message["text"]["found"], "Zephyr-main");
    let id = message["workspaceId"].clone();
    let of = json!({"workspaceId": id, "instanceKey": "main", "limit": 50});
    let history = page.result("instance.page", &of);
    let ids = history["messages"].as_array().unwrap().iter();
    assert!(
        ids.map(|one| &one["id"])
            .any(|one| *one == message["place"])
    );

    // Work of a task, in the other workspace, and its description.
    let (hits, _) = search(&page, json!({"text": "1 test failed"}));
    let found = places(&hits);
    assert!(found.contains(&"work shop".to_owned()), "{found:?}");
    let (hits, _) = search(&page, json!({"text": "1 test failed", "workspaceId": id}));
    assert_eq!(places(&hits), [""; 0]);
    // Names, turns and logs.
    let (hits, _) = search(&page, json!({"text": "older", "workspaceId": id}));
    let found = places(&hits);
    assert!(
        found.contains(&"conversation older".to_owned()),
        "{found:?}"
    );
    let (hits, _) = search(&page, json!({"text": "bash__exec", "workspaceId": id}));
    let trace = hits.iter().find(|hit| hit["kind"] == "trace").unwrap();
    let of = json!({"workspaceId": id, "of": trace["id"]});
    let spans = page.result("trace.page", &of)["events"].take();
    let spans = spans.as_array().unwrap().iter();
    assert!(
        spans
            .map(|one| &one["spanId"])
            .any(|one| *one == trace["place"])
    );
    let (hits, _) = search(&page, json!({"text": "turn committed"}));
    assert!(hits.iter().any(|hit| hit["kind"] == "log"), "{hits:?}");
}

#[test]
fn obs_5_search_continues_ends_with_its_page_and_needs_a_login() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    for number in 0..3 {
        let key = format!("many-{number}");
        let text = format!("echo 4{number}060");
        home.gdn(&["send", "--conversation", &key, &text]).exits(0);
    }
    let (_studio, mut page) = Studio::with_page(&home, &[]);
    // A position within the list: the rest is found, and nothing else.
    let (all, _) = search(&page, json!({"text": "060"}));
    let messages = |hits: &[Value]| -> Vec<Value> {
        let hits = hits.iter().filter(|hit| hit["kind"] == "message");
        hits.map(|hit| hit["id"].clone()).collect()
    };
    let found = messages(&all);
    assert!(
        found.contains(&json!("many-0")) && found.contains(&json!("many-2")),
        "{found:?}"
    );
    let list = json!({"order": "changed", "limit": 1});
    let latest = page.result("instance.list", &list);
    let newest = &latest["instances"][0]["updatedAt"];
    let after = json!({"stage": "conversations", "after": latest["next"], "newest": newest});
    let (rest, _) = search(&page, json!({"text": "060", "after": after}));
    let skipped = latest["instances"][0]["instanceKey"].clone();
    let rest = messages(&rest);
    assert!(!rest.contains(&skipped) && !rest.is_empty(), "{rest:?}");

    for (request, code) in [
        (json!({"text": " "}), "invalidRequest"),
        (json!({"text": "x".repeat(257)}), "invalidRequest"),
        (
            json!({"text": "x", "after": {"stage": "secrets"}}),
            "invalidRequest",
        ),
    ] {
        let refused = page.post("/api/search", &request);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error"]["code"], code);
    }
    // Searches whose pages are closed do not keep others out.
    for _ in 0..8 {
        drop(StreamReader::at(
            &page,
            "/api/search",
            &json!({"text": "060"}),
        ));
    }
    assert_eq!(messages(&search(&page, json!({"text": "060"})).0), found);
    page.token = None;
    let refused = page.post("/api/search", &json!({"text": "060"}));
    assert_eq!(refused.status, 401, "{}", refused.body);
}

/// A program like `claude`. Its first run waits for the file `go`, works, and fails; later ones
/// answer the message in their prompt. For one about dollars, it requests permission, and repeats
/// the reason of a denial.
const CODER: &str = r#"#!/bin/sh
read -r prompt
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"test"}'
say() {
  printf '%s\n' "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}}"
}
heard() {
  say "I heard: Prices are in $1."
  echo '{"type":"result","subtype":"success","result":"done"}'
  exit 0
}
case $prompt in
*dollars*)
  echo '{"type":"control_request","request_id":"p-1","request":{"subtype":"can_use_tool","tool_name":"Edit","input":{"file_path":"price.txt","old_string":"euros","new_string":"dollars"}}}'
  read -r decision
  case $decision in *'not on a Friday'*) say 'Denied: not on a Friday.' ;; esac
  heard dollars
  ;;
*euros*) heard euros ;;
esac
say 'I begin.'
while [ ! -e go ]; do sleep 0.05; done
cat <<'LINES'
{"type":"assistant","message":{"id":"m-1","usage":{"input_tokens":10,"output_tokens":5},"content":[{"type":"thinking","thinking":"Which test?"},{"type":"tool_use","id":"t-1","name":"TodoWrite","input":{"todos":[{"content":"Mend it","status":"in_progress"}]}},{"type":"tool_use","id":"t-2","name":"Bash","input":{"command":"npm test"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t-2","is_error":true,"content":"Exit code 1\n1 test failed"}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t-3","name":"Edit","input":{"file_path":"a.js","old_string":"old","new_string":"new"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t-3","content":"ok"}]}}
{"type":"assistant","message":{"content":[{"type":"text","text":"<img src=x onerror=alert(1)> \u001b[2J x\u202egnp.exe"}]}}
LINES
echo 'warning: old' >&2
echo '{"type":"result","subtype":"error_during_execution","is_error":true,"result":"Incorrect API key provided: sk-1"}'
exit 1
"#;

/// A home with [`CODER`], whose task `shop` is started with [`start_shop`], and with an agent that
/// changes a copy of the project.
pub(crate) fn task_home() -> Home {
    let home = Home::new(
        "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: coder}\nspec: {runtime: {kind: cli, command: \
         [./agent.sh], format: claude-stream-json}, sandbox: {require: landlock}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {name: editor}\nspec: {runtime: {kind: cli, command: \
         [./editor.sh], resume: [./editor.sh, \"{session}\"], format: claude-stream-json, source: project}}\n",
    );
    home.write_program("project/agent.sh", CODER);
    home.write_program("project/editor.sh", task_sources::AGENT);
    task_sources::write_files(&home);
    home
}

/// Starts the task, whose agent then waits.
pub(crate) fn start_shop(home: &Home) {
    tasks::new_shop(home, &["--agent", "coder", "--start"]);
}

/// Lets the agent of the task work, until its run has failed.
pub(crate) fn let_shop_fail(home: &Home) {
    let go = tasks::area(home).join("go");
    home.write(go.to_str().unwrap(), "");
    tasks::wait_for(home, "waiting_question");
}

#[test]
fn agent_7_studio_streams_a_task_and_sends_only_with_write() {
    let home = task_home();
    let _daemon = Daemon::serving(&home);
    start_shop(&home);
    let (_studio, page) = Studio::with_page(&home, &[]);
    let id = page.result("workspace.list", &json!({}))["workspaces"][0]["workspaceId"].take();
    let of_shop = json!({"workspaceId": id, "taskId": "shop"});
    let mut lines = StreamReader::of(&page, "task.watch", &of_shop);
    let (mut items, mut next) = (Vec::new(), Value::Null);
    // Reads parts until one has such an item, and returns the position behind it.
    let mut read = |is_enough: &dyn Fn(&Value) -> bool| loop {
        let part = lines.next_part().unwrap();
        assert_eq!(part["after"], next, "{part}");
        next = part["next"].clone();
        let of_part = part["items"].as_array().unwrap();
        items.extend(of_part.clone());
        if of_part.iter().any(is_enough) {
            return next.clone();
        }
    };
    read(&|item| item["text"] == "I begin.");
    let_shop_fail(&home);
    let failed = read(&|item| item["type"] == "result");
    // Calls are answered soon, so none waits for a part.
    assert_eq!(page.call("task.watch", &of_shop).status, 403);
    let message = json!({
        "workspaceId": id, "taskId": "shop", "text": "Prices are in euros.", "messageId": "m-1",
    });
    let refused = page.call("task.send", &message);
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"]["code"], "readOnly");
    let (_writer, writer) = Studio::with_page(&home, &["--write"]);
    for _ in 0..2 {
        writer.result("task.send", &message);
    }
    let heard = |item: &Value| item["text"] == "I heard: Prices are in euros.";
    read(&heard);
    tasks::wait_for(&home, "completed");
    let mut last = Value::Null;
    while let Some(part) = lines.next_part() {
        last = part;
    }
    assert_eq!(last["isOver"], true, "{last}");
    // A stream that continues at a position has the rest, each item once.
    let after = json!({"workspaceId": id, "taskId": "shop", "after": failed});
    let mut rest = StreamReader::of(&page, "task.watch", &after);
    let part = rest.next_part().unwrap();
    let again = part["items"].as_array().unwrap().iter();
    let again = again.filter(|item| heard(item) || item["event"] == "message_sent");
    assert_eq!(again.count(), 2, "{part}");
    assert!(rest.next_part().is_none());
    let wrong = json!({"method": "task.watch", "params": {"workspaceId": id}});
    let wrong = page.post("/api/stream", &wrong);
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"]["code"], "invalidRequest");
    assert!(items.iter().any(|item| item["exit"] == 1), "{items:?}");
}

#[test]
fn obs_5_stream_resumes_at_its_cursor_after_a_daemon_kill() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let (_studio, page) = Studio::with_page(&home, &[]);
    let id = page.result("workspace.list", &json!({}))["workspaces"][0]["workspaceId"].take();
    let mut lines = StreamReader::of(&page, "workspace.watch", &json!({ "workspaceId": id }));
    let snapshot = lines.next().unwrap();
    assert!(snapshot["params"]["snapshot"].is_object(), "{snapshot}");
    assert!(snapshot["params"]["requestId"].is_null(), "{snapshot}");
    assert_eq!(home.ask("main", "echo one"), "one");
    let first = lines.next().unwrap();
    assert_eq!(first["notice"], "workspace.change");
    let cursor = first["params"]["cursor"].clone();
    let _log = daemon.kill();
    let mut last = Value::Null;
    while let Some(line) = lines.next() {
        last = line;
    }
    assert_eq!(last["error"]["code"], "lost", "{last}");
    assert_eq!(page.call("daemon.status", &json!({})).status, 503);
    let _daemon = Daemon::serving(&home);
    let behind = json!({"workspaceId": id, "after": cursor});
    let mut lines = StreamReader::of(&page, "workspace.watch", &behind);
    let next = lines.next().unwrap();
    // A new subscription of the workspace begins with a snapshot.
    assert!(next["params"]["snapshot"].is_object(), "{next}");
}

#[test]
fn obs_5_studio_ends_with_its_parent() {
    let home = Home::new(LAB);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut studio = Studio::start(&home, &[]);
        drop(studio.address());
        assert_eq!(processes::running(home.path(), STUDIO).len(), 1);
        processes::signal(studio.running.pid(), signal);
        wait_until("Studio is gone", || {
            processes::running(home.path(), STUDIO).is_empty()
        });
    }
}
