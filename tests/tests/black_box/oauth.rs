//! Goal: a project gets tokens of an authorization server by a person's login, renews them by itself, and no
//! token, code or verifier is anywhere in plain text (`SYS-2`, `SYS-4`, `SEC-1`).
//!
//! Method: the real binaries, an authorization server on the loopback that rotates refresh tokens, and a
//! provider of a model that takes only the token that is good.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use goondan_tests::authorization_server::{AuthorizationServer, CLIENT_SECRET, Manner};
use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, Running};
use goondan_tests::provider::{Answer, Provider, openai_saying};
use goondan_tests::{Daemon, Home, http, wait_until};
use serde_json::{Value, json};

/// One agent whose model wants a token of the server, beside a webhook signed with it.
fn project(server: &AuthorizationServer, model: &Provider) -> String {
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

fn model() -> Provider {
    Provider::start(|_| Answer::stream(&openai_saying(&["Hello."])))
}

fn home(server: &AuthorizationServer, model: &Provider) -> Home {
    let home = Home::new(&project(server, model));
    home.write(
        "project/.env.local",
        &format!("CLIENT_SECRET={CLIENT_SECRET}\n"),
    );
    home
}

/// What the model was asked with last.
fn key_of(model: &Provider) -> String {
    let received = model.received();
    let header = received.last().and_then(|it| it.header("authorization"));
    header.unwrap_or_default().replace("Bearer ", "")
}

/// The address that a login tells.
fn address_of(login: &Running) -> String {
    login.wait_for_stdout("http://");
    let stdout = login.stdout();
    let line = stdout.lines().find(|line| line.starts_with("http://"));
    line.unwrap().to_owned()
}

/// A browser goes where it was sent.
fn visit(address: &str) -> u16 {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let answer = http::get(host.parse().unwrap(), &format!("/{path}"));
    answer.unwrap().status
}

fn log_in(home: &Home, server: &AuthorizationServer) {
    let login = home.start_gdn(&["oauth", "login", "idp"]);
    let back = server.consent(&address_of(&login));
    assert_eq!(visit(&back), 200);
    login
        .wait()
        .exits(0)
        .prints(&["Logged in for OAuthApp/idp"]);
}

/// A login whose address is typed.
fn paste(home: &Home) -> Running {
    let mut command = home.command(&bin(GDN), &["oauth", "login", "idp", "--paste"]);
    command.stdin(Stdio::piped());
    Running::start(command)
}

fn grant(home: &Home) -> Value {
    home.gdn_json(&["oauth", "show", "idp"])
}

/// Every file below a directory, with what is in it.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
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

fn oauth_files(home: &Home, kind: &str) -> usize {
    files(&home.state_root().join("system/oauth").join(kind)).len()
}

/// No secret of the server is in any file or line of the log.
fn is_nowhere(home: &Home, server: &AuthorizationServer, log: &[Value]) {
    let files = files(home.path());
    assert!(!files.is_empty());
    for secret in server.secrets() {
        let holds = |bytes: &[u8]| {
            bytes
                .windows(secret.len())
                .any(|it| it == secret.as_bytes())
        };
        for (path, bytes) in &files {
            assert!(!holds(bytes), "{secret} is in {path}");
        }
        for line in log {
            assert!(!line.to_string().contains(&secret), "{secret} is in {line}");
        }
    }
}

#[test]
fn sys_4_a_login_gives_a_token_that_is_used_renewed_shown_and_revoked_and_is_nowhere_in_plain_text()
{
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    // Before, whatever needs the token waits and says for what.
    assert_eq!(grant(&home)["state"], "none");
    home.gdn(&["oauth", "list"])
        .exits(0)
        .prints(&["idp", "no login"])
        .tells(&["gdn", "oauth login idp"]);
    let waits = |line: &Value| {
        line["connection"] == "hook" && line.to_string().contains("gdn oauth login idp")
    };
    daemon.log().wait_for("the webhook waits", waits);
    home.gdn(&["oauth", "refresh", "idp"])
        .exits(5)
        .tells(&["nobody has logged in", "gdn oauth login idp"]);

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

    // Renewed, the model is asked with the new one.
    home.gdn(&["oauth", "refresh", "idp"])
        .exits(0)
        .prints(&["active"]);
    let renewed = server.access_token().unwrap();
    assert_ne!(renewed, token);
    wait_until("the model is asked with the new token", || {
        home.ask("main", "Again.") == "Hello." && key_of(&model) == renewed
    });
    assert_eq!(oauth_files(&home, "locks"), 0);

    // A daemon that was killed goes on with what is on disk.
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
fn sys_4_a_token_is_renewed_in_time_and_many_who_want_that_make_one_request() {
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
    let many: Vec<Running> = (0..8)
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
fn sys_4_a_lost_reply_asks_for_a_login_and_deletes_nothing_and_a_failure_does_not() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    // One that fails is sent again, and the token stays good.
    server.next(Manner::Fails);
    home.gdn(&["oauth", "refresh", "idp"]).exits(0);

    // The reply never arrives, and the daemon dies while it waits for it.
    server.next(Manner::LosesReply);
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
fn sys_4_a_turn_that_needs_consent_is_parked_over_a_restart_and_resumed_by_the_login() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = home(&server, &model);
    let daemon = Daemon::serving(&home);
    let sending = home.start_gdn(&["send", "Hi."]);
    sending.wait_for_stderr("gdn oauth login idp");
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
        .tells(&["log in for OAuthApp/idp"]);
    daemon.kill();
    drop(sending.wait());
    let daemon = Daemon::start(&home);
    wait_until("the turn waits again", waits);
    assert_eq!(model.received().len(), 0);

    log_in(&home, &server);
    daemon
        .log()
        .wait_for("it is told", |line| line["message"] == "auth.granted");
    wait_until("the turn goes on", || home.history("main").len() == 2);
    assert_eq!(home.history("main")[1]["data"]["content"], "Hello.");
    assert_eq!(Some(key_of(&model)), server.access_token());
    assert_eq!(model.received().len(), 1);
}
