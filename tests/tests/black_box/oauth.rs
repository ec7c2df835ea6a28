//! Goal: a project gets tokens from an authorization server through a person's login, renews them
//! automatically, and no token, code or verifier is stored or logged in plain text (`SYS-2`,
//! `SYS-4`, `SEC-1`).
//!
//! Method: the real binaries, a local authorization server that rotates refresh tokens, and a model
//! provider that accepts only the valid token.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use goondan_tests::authorization_server::{AuthorizationServer, CLIENT_SECRET, ResponseFault};
use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::{Value, json};

use super::secrets;

/// An agent whose model needs a token of the server, next to a webhook signed with it.
pub(super) fn project(server: &AuthorizationServer, model: &Provider) -> String {
    let (issuer, endpoint) = (server.issuer(), model.endpoint());
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: OAuthApp
metadata: {{name: idp}}
spec:
  issuer: {issuer}
  clientId: client-one
  clientSecret: {{valueFrom: {{env: CLIENT_SECRET}}}}
  scopes: [repo]
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {endpoint}
  apiKey: {{valueFrom: {{oauth: {{app: OAuthApp/idp}}}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  prompt: {{system: Be brief.}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: hook}}
spec:
  connectorRef: {{kind: Connector, name: webhook, package: "@goondan/base"}}
  config: {{path: /hook}}
  secrets:
    hmac: {{valueFrom: {{oauth: {{app: OAuthApp/idp}}}}}}
"#
    )
}

pub(super) fn model() -> Provider {
    Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Hello."])))
}

pub(super) fn home(server: &AuthorizationServer, model: &Provider) -> Home {
    let home = Home::new(&project(server, model));
    home.write(
        "project/.env.local",
        &format!("CLIENT_SECRET={CLIENT_SECRET}\n"),
    );
    home
}

/// Key in the last request to the model.
fn key_of(model: &Provider) -> String {
    let received = model.received();
    let header = received.last().and_then(|it| it.header("authorization"));
    header.unwrap_or_default().replace("Bearer ", "")
}

pub(super) fn address_of(login: &RunningProgram) -> String {
    login.wait_for_stdout("http://");
    let stdout = login.stdout();
    let line = stdout.lines().find(|line| line.starts_with("http://"));
    line.unwrap().to_owned()
}

/// Follows a redirect, as a browser does.
pub(super) fn visit(address: &str) -> u16 {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let answer = http::get(host.parse().unwrap(), &format!("/{path}"));
    answer.unwrap().status
}

pub(super) fn log_in(home: &Home, server: &AuthorizationServer) {
    let login = home.start_gdn(&["oauth", "login", "idp"]);
    let back = server.consent(&address_of(&login));
    assert_eq!(visit(&back), 200);
    login
        .wait()
        .exits(0)
        .prints(&["Logged in for OAuthApp/idp"]);
}

/// A login whose address is pasted.
pub(super) fn paste(home: &Home) -> RunningProgram {
    let mut command = home.command(&bin(GDN), &["oauth", "login", "idp", "--paste"]);
    command.stdin(Stdio::piped());
    RunningProgram::start(command)
}

fn grant(home: &Home) -> Value {
    home.gdn_json(&["oauth", "show", "idp"])
}

/// Every file below a directory, with its content.
pub(super) fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.map_while(Result::ok) {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() => {
                    found.push((
                        path.display().to_string(),
                        fs::read(&path).unwrap_or_default(),
                    ));
                }
                _ => {}
            }
        }
    }
    found
}

pub(super) fn oauth_files(home: &Home, kind: &str) -> usize {
    files(&home.state_root().join("system/oauth").join(kind)).len()
}

/// Checks that no secret of the server is in any file or log line.
fn is_nowhere(home: &Home, server: &AuthorizationServer, log: &[Value]) {
    are_nowhere(home, &server.secrets(), log);
}

/// Checks that none of these texts is in any file or log line.
pub(super) fn are_nowhere(home: &Home, secrets: &[String], log: &[Value]) {
    let files = files(home.path());
    assert!(!files.is_empty());
    for secret in secrets {
        let holds = |bytes: &[u8]| {
            bytes
                .windows(secret.len())
                .any(|it| it == secret.as_bytes())
        };
        for (path, bytes) in &files {
            assert!(!holds(bytes), "{secret} is in {path}");
        }
        for line in log {
            assert!(!line.to_string().contains(secret), "{secret} is in {line}");
        }
    }
}

#[test]
fn sys_4_login_token_is_used_renewed_revoked_and_encrypted() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    // Before the login, users of the token wait and report the reason.
    assert_eq!(grant(&home)["state"], "none");
    home.gdn(&["oauth", "list"])
        .exits(0)
        .prints(&["idp", "no login"])
        .tells(&["gdn", "oauth login idp"]);
    let waits = |line: &Value| {
        line["connection"] == "hook" && line.to_string().contains("gdn secret oauth login idp")
    };
    daemon.log().wait_for("the webhook waits", waits);
    home.gdn(&["oauth", "refresh", "idp"])
        .exits(5)
        .tells(&["no user has logged in", "oauth login idp"]);

    log_in(&home, &server);
    let token = server.access_token().unwrap();
    let shown = grant(&home);
    assert_eq!(shown["state"], "active");
    assert_eq!(shown["scope"], "repo");
    assert_eq!(
        (&shown["needed"], &shown["renewable"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    assert_eq!(key_of(&model), token);
    assert_eq!(
        (oauth_files(&home, "grants"), oauth_files(&home, "sessions")),
        (1, 0)
    );
    let _listening = daemon.webhook("hook");

    // After a renewal, the model receives the new token.
    home.gdn(&["oauth", "refresh", "idp"])
        .exits(0)
        .prints(&["active"]);
    let renewed = server.access_token().unwrap();
    assert_ne!(renewed, token);
    wait_until("the model is asked with the new token", || {
        home.ask("main", "Again.") == "Hello." && key_of(&model) == renewed
    });
    assert_eq!(oauth_files(&home, "locks"), 0);

    // A killed daemon resumes from the state on disk.
    daemon.kill();
    let daemon = Daemon::start(&home);
    wait_until("the model is asked with the same token", || {
        home.ask("main", "Still there?") == "Hello." && key_of(&model) == renewed
    });
    is_nowhere(&home, &server, &daemon.log().lines());

    home.gdn(&["oauth", "revoke", "idp", "--yes"])
        .exits(0)
        .prints(&["Revoked the tokens"]);
    assert_eq!(server.requests("revoke"), 1);
    assert_eq!(server.access_token(), None);
    assert_eq!(grant(&home)["state"], "none");
    assert_eq!(oauth_files(&home, "grants"), 0);
    is_nowhere(&home, &server, &daemon.log().lines());
    let audit = home.gdn(&["audit", "--all"]).exits(0);
    audit.prints(&["oauth.granted", "oauth.revoked"]);
}

#[test]
fn sys_4_token_is_renewed_in_time_and_by_one_request_for_many() {
    let (server, model) = (AuthorizationServer::start(2), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    wait_until("it is renewed by itself", || {
        server.requests("refresh_token") >= 2
    });
    daemon.stop();

    let server = AuthorizationServer::start(3_600);
    let home = self::home(&server, &model);
    let _daemon = Daemon::serving(&home);
    log_in(&home, &server);
    let before = server.requests("refresh_token");
    let many: Vec<RunningProgram> = (0..8)
        .map(|_| home.start_gdn(&["oauth", "refresh", "idp"]))
        .collect();
    for one in many {
        one.wait().exits(0);
    }
    let made = server.requests("refresh_token") - before;
    assert!((1..=8).contains(&made), "{made}");
    assert_eq!(grant(&home)["state"], "active");
}

#[test]
fn sys_4_a_pasted_address_ends_a_login_and_another_does_not() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let _daemon = Daemon::serving(&home);
    let mut login = paste(&home);
    let back = server.consent(&address_of(&login));
    let other = back.replace("state=", "state=x");
    login.say(&other);
    login
        .wait()
        .exits(10)
        .tells(&["its `state` is of another login"]);
    assert_eq!(server.requests("authorization_code"), 0);

    let mut login = paste(&home);
    let back = server.consent(&address_of(&login));
    login.say(&back);
    login.wait().exits(0);
    assert_eq!(grant(&home)["state"], "active");
}

#[test]
fn sys_4_a_code_typed_on_another_device_ends_a_login() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let _daemon = Daemon::serving(&home);
    let login = home.start_gdn(&["oauth", "login", "idp", "--device"]);
    login.wait_for_stderr("ABCD-EFGH");
    assert!(address_of(&login).ends_with("/activate"));
    let polled = "urn:ietf:params:oauth:grant-type:device_code";
    wait_until("the server is asked", || server.requests(polled) >= 1);
    server.allow_device();
    login.wait().exits(0);
    assert_eq!(grant(&home)["state"], "active");
}

#[test]
fn sys_4_lost_reply_needs_a_login_but_a_failed_request_does_not() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    // A failed request is sent again, and the token stays valid.
    server.next(ResponseFault::Fails);
    home.gdn(&["oauth", "refresh", "idp"]).exits(0);

    // The response never arrives, and the daemon dies while it waits.
    server.next(ResponseFault::LosesReply);
    let before = server.requests("refresh_token");
    let refresh = home.start_gdn(&["oauth", "refresh", "idp"]);
    wait_until("the server is asked", || {
        server.requests("refresh_token") > before
    });
    assert_eq!(oauth_files(&home, "locks"), 1);
    daemon.kill();
    drop(refresh.wait());
    let daemon = Daemon::start(&home);
    wait_until("a person has to log in", || {
        grant(&home)["state"] == "needsAuth"
    });
    assert_eq!(
        (oauth_files(&home, "grants"), oauth_files(&home, "locks")),
        (1, 0)
    );
    home.gdn(&["oauth", "show", "idp"])
        .exits(0)
        .tells(&["invalid_grant", "oauth login idp"]);
    is_nowhere(&home, &server, &daemon.log().lines());

    log_in(&home, &server);
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    assert_eq!(Some(key_of(&model)), server.access_token());
}

#[test]
fn sys_4_turn_parked_for_consent_survives_restart_and_resumes() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    let sending = home.start_gdn(&["send", "Hi."]);
    sending.wait_for_stderr("oauth login idp");
    let waits = || {
        let agent = home.ps_agent("main");
        agent.is_some_and(|agent| agent["consents"] == json!(["OAuthApp/idp"]))
    };
    wait_until("the turn waits for consent", waits);
    home.gdn(&["ps"])
        .exits(0)
        .prints(&["waits for consent: OAuthApp/idp"]);
    home.gdn(&["status"])
        .exits(0)
        .tells(&["OAuthApp/idp needs a login"]);
    daemon.kill();
    drop(sending.wait());
    let daemon = Daemon::start(&home);
    wait_until("the turn waits again", waits);
    assert_eq!(model.received().len(), 0);

    log_in(&home, &server);
    daemon
        .log()
        .wait_for("it is reported", |line| line["message"] == "auth.granted");
    wait_until("the turn goes on", || home.history("main").len() == 2);
    assert_eq!(home.history("main")[1]["data"]["content"], "Hello.");
    assert_eq!(Some(key_of(&model)), server.access_token());
    assert_eq!(model.received().len(), 1);
}

#[test]
fn sys_4_many_turns_with_one_expired_token_make_one_request() {
    const LIFE_S: u64 = 10;
    let (server, model) = (AuthorizationServer::start(LIFE_S), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    let begun = Instant::now();
    daemon.stop();
    assert_eq!(server.requests("refresh_token"), 0);
    let ended = server.access_token().unwrap();
    wait_until("the token has ended", || {
        begun.elapsed() > Duration::from_secs(LIFE_S)
    });
    server.set_life(3_600);

    let _daemon = Daemon::start(&home);
    let keys: Vec<String> = (0..8).map(|n| format!("one-of-{n}")).collect();
    let send = |key: &String| home.start_gdn(&["send", "--instance", key, "Hi."]);
    let many: Vec<RunningProgram> = keys.iter().map(send).collect();
    for one in many {
        one.wait().exits(0).prints(&["Hello."]);
    }
    // Requests after the renewal use the new token, so a single refresh must suffice.
    assert_eq!(server.requests("refresh_token"), 1);
    let renewed = format!("Bearer {}", server.access_token().unwrap());
    assert!(!renewed.contains(&ended));
    let received = model.received();
    assert_eq!(received.len(), keys.len());
    for request in received {
        assert_eq!(request.header("authorization"), Some(renewed.as_str()));
    }
}

fn identity(home: &Home) -> String {
    fs::read_to_string(home.state_root().join("system/identity.age")).unwrap()
}

/// Checks that all stored values are available, and used.
fn all_goes_on(home: &Home, server: &AuthorizationServer, model: &Provider) {
    let secrets = home.gdn_json(&["secret", "list"]);
    assert_eq!(secrets["secrets"].as_array().unwrap().len(), 1, "{secrets}");
    assert_eq!(secrets["secrets"][0].get("problem"), None, "{secrets}");
    assert_eq!(grant(home)["state"], "active");
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    assert_eq!(Some(key_of(model)), server.access_token());
}

#[test]
fn sys_3_rotation_on_a_running_daemon_survives_a_kill() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    secrets::set(&home, "github", "token", "open-sesame", &[]).exits(0);
    log_in(&home, &server);
    all_goes_on(&home, &server, &model);
    let first = identity(&home);
    let agent = || home.ps_agent("main").unwrap()["pid"].clone();
    let before = agent();
    let rotated = home.gdn_json(&["secret", "rotate", "--yes"]);
    assert_eq!(rotated["documents"], 2, "{rotated}");
    assert_eq!(rotated["formerKept"], false, "{rotated}");
    all_goes_on(&home, &server, &model);
    assert_eq!(agent(), before, "the agent was started anew");

    // The daemon is killed during the next rotation.
    let second = identity(&home);
    let rotating = home.start_gdn(&["secret", "rotate", "--yes"]);
    wait_until("another identity is there", || identity(&home) != second);
    daemon.kill();
    drop(rotating.wait());
    let daemon = Daemon::start(&home);
    wait_until("the project runs", || home.ask("main", "Hi.") == "Hello.");
    all_goes_on(&home, &server, &model);
    home.gdn(&["secret", "rotate", "--yes"]).exits(0);
    all_goes_on(&home, &server, &model);
    let last = identity(&home);
    assert_eq!(last.matches("AGE-SECRET-KEY-").count(), 1);
    assert!(last != first && last != second);
    home.gdn(&["oauth", "refresh", "idp"]).exits(0);
    daemon.stop();
}
