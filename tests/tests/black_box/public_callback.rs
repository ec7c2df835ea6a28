//! Goal: a person who returns from an authorization server to a public address completes the login
//! that they started, and other requests to that address complete nothing (`SYS-4`).
//!
//! Method: the real binaries, a local authorization server, and the test as the reverse proxy: it
//! forwards the browser's redirect to the port of the webhook.

use goondan_tests::authorization_server::{AuthorizationServer, CLIENT_SECRET};
use goondan_tests::home::RunningProgram;
use goondan_tests::{Daemon, Home, http, wait_until};

use super::oauth::{address_of, are_nowhere};

const PUBLIC: &str = "https://bot.example.com/oauth/callback";

fn home(server: &AuthorizationServer) -> Home {
    let project = format!(
        r#"
apiVersion: goondan.ai/v1
kind: OAuthApp
metadata: {{name: idp}}
spec:
  issuer: {}
  clientId: client-one
  clientSecret: {{valueFrom: {{env: CLIENT_SECRET}}}}
  redirectUri: {PUBLIC}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec: {{provider: scripted, options: {{rules: [{{say: "so: ${{input}}"}}]}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/main}}}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: hook}}
spec:
  connectorRef: {{kind: Connector, name: webhook, package: "@goondan/base"}}
  config: {{path: /hook, oauthCallback: /oauth/callback}}
"#,
        server.issuer()
    );
    let home = Home::new(&project);
    home.write(
        "project/.env.local",
        &format!("CLIENT_SECRET={CLIENT_SECRET}\n"),
    );
    home
}

/// The proxy forwards a browser's request, and returns the status and the page.
fn comes_to(daemon: &Daemon, address: &str) -> (u16, String) {
    let target = address.strip_prefix("https://bot.example.com").unwrap();
    let answer = http::get(daemon.webhook("hook"), target).unwrap();
    (answer.status, answer.body)
}

fn begin(home: &Home) -> RunningProgram {
    home.start_gdn(&["oauth", "login", "idp"])
}

#[test]
fn sys_4_public_login_callback_ends_its_own_login_exactly_once() {
    let server = AuthorizationServer::start(3_600);
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    let login = begin(&home);
    let back = server.consent(&address_of(&login));
    assert!(back.starts_with(PUBLIC), "{back}");
    let (_, query) = back.split_once('?').unwrap();
    let code = query.split('&').next().unwrap();
    // Guesses, repetitions and other addresses complete nothing.
    for (hostile, status) in [
        ("/oauth/callback", 400),
        ("/oauth/callback?code=x&state=guessed", 400),
        (&*format!("/oauth/callback?{code}"), 400),
        (&*format!("/oauth/callback?{query}&{query}"), 400),
        (
            &*format!("/oauth/callback?{query}&x={}", "x".repeat(17_000)),
            400,
        ),
        (&*format!("/oauth?{query}"), 404),
        (&*format!("/hook?{query}"), 405),
    ] {
        let (said, page) = comes_to(&daemon, &format!("https://bot.example.com{hostile}"));
        assert_eq!(said, status, "{hostile}");
        assert!(!page.contains("guessed") && !page.contains(code), "{page}");
    }
    assert_eq!(server.requests("authorization_code"), 0);
    let (status, page) = comes_to(&daemon, &back);
    assert_eq!(status, 200, "{page}");
    login
        .wait()
        .exits(0)
        .prints(&["Logged in for OAuthApp/idp"]);
    // It was already used.
    assert_eq!(comes_to(&daemon, &back).0, 400);
    assert_eq!(server.requests("authorization_code"), 1);

    // A different issuer than the login's: the login ends, and the code is sent nowhere.
    let login = begin(&home);
    let back = server.consent(&address_of(&login));
    let (head, _) = back.split_once("&iss=").unwrap();
    let (status, _) = comes_to(&daemon, &format!("{head}&iss=https://evil.example"));
    assert_eq!(status, 400);
    login
        .wait()
        .exits(10)
        .tells(&["from another authorization server"]);
    assert_eq!(comes_to(&daemon, &back).0, 400);
    assert_eq!(server.requests("authorization_code"), 1);

    // The daemon dies and the waiting client exits: the login continues.
    let login = begin(&home);
    let back = server.consent(&address_of(&login));
    daemon.kill();
    drop(login.wait());
    let daemon = Daemon::start(&home);
    wait_until("the logins are read", || {
        let (status, page) = comes_to(&daemon, &back);
        assert!([200, 503].contains(&status), "{status}: {page}");
        status == 200
    });
    wait_until("the code is exchanged", || {
        server.requests("authorization_code") == 2
    });
    // The webhook still accepts events.
    let event = http::post(daemon.webhook("hook"), "/hook", &[], "hello").unwrap();
    assert_eq!(event.status, 202, "{}", event.body);
    are_nowhere(&home, &server.secrets(), &daemon.log().lines());
}
