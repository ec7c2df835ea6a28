//! Goal: an MCP server that requires a login gets the token of a person who has logged in at its
//! authorization server, and no other server gets anything (`SYS-4`).
//!
//! Method: the real binaries, and a local MCP server and authorization server that behave like the
//! examples of the protocol's SDK, with all faults of a hostile server.

use goondan_tests::mcp_login::{LoginServerFault, McpWithLogin};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::json;

use super::mcp::{last_result, project};
use super::oauth::{address_of, are_nowhere, visit};

fn home(server: &McpWithLogin) -> Home {
    let connection = format!("  config: {{url: '{}', auth: oauth}}\n", server.url());
    Home::new(&project(&connection))
}

fn log_in(home: &Home, server: &McpWithLogin) {
    let login = home.start_gdn(&["oauth", "login", "server"]);
    let back = server.consent(&address_of(&login));
    assert_eq!(visit(&back), 200);
    login
        .wait()
        .exits(0)
        .prints(&["Logged in for OAuthApp/server"]);
}

#[test]
fn sys_4_mcp_call_that_needs_a_login_waits_for_it_and_resumes() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    let sending = home.start_gdn(&["send", "--instance", "a", "call echo hello"]);
    sending.wait_for_stderr("oauth login server");
    let waits = || {
        let agent = home.ps_agent("a");
        agent.is_some_and(|agent| agent["consents"] == json!(["OAuthApp/server"]))
    };
    wait_until("the turn waits for consent", waits);
    // It is on disk, like any turn in progress.
    daemon.kill();
    drop(sending.wait());
    let daemon = Daemon::start(&home);
    wait_until("the turn waits again", waits);

    log_in(&home, &server);
    wait_until("the turn goes on", || {
        let history = home.history("a");
        history
            .last()
            .is_some_and(|it| it["data"]["content"] == "so: echo: hello")
    });
    let (first, url) = (server.access_token(), server.url());
    assert_eq!(server.clients(), 1);

    // The registered application renews its token, for this server only.
    home.gdn(&["oauth", "refresh", "server"]).exits(0);
    assert_ne!(server.access_token(), first);
    wait_until("the server is called with the new token", || {
        home.ask("b", "call echo again") == "so: echo: again"
    });
    let asked = |kind: &str| (kind.to_owned(), url.clone());
    assert_eq!(
        server.asked(),
        [asked("authorization_code"), asked("refresh_token")]
    );

    // After a restart, too: the client registration is on disk, encrypted.
    daemon.kill();
    let daemon = Daemon::start(&home);
    home.gdn(&["oauth", "refresh", "server"]).exits(0);
    assert_eq!(server.asked().len(), 3);
    assert_eq!(server.clients(), 1);
    are_nowhere(&home, &server.secrets(), &daemon.log().lines());
}

#[test]
fn sys_4_hostile_mcp_or_authorization_server_gets_no_login() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let _daemon = Daemon::serving(&home);
    let refused = |lie: LoginServerFault, told: &[&str]| {
        server.lie(Some(lie));
        let mut told = told.to_vec();
        told.push("the authorization server's metadata is invalid");
        let login = home.gdn(&["oauth", "login", "server", "--paste"]);
        login.exits(10).tells(&told);
        assert_eq!(server.clients(), 0, "{lie:?}");
    };
    refused(
        LoginServerFault::OtherResource,
        &["https://bank.example/mcp", &server.url()],
    );
    refused(
        LoginServerFault::PlainPlace,
        &["http://mcp.example/said", "not use `https`"],
    );
    refused(LoginServerFault::Redirect, &["answered 302"]);
    refused(LoginServerFault::Huge, &["more than 262144 bytes"]);
    refused(
        LoginServerFault::CloudServer,
        &["169.254.169.254", "which no request may reach"],
    );
    refused(
        LoginServerFault::OtherIssuer,
        &["https://evil.example", &server.issuer()],
    );
    refused(LoginServerFault::NoS256, &["`S256`"]);
    refused(
        LoginServerFault::PlainEndpoint,
        &["http://evil.example/token", "not use `https`"],
    );
    refused(LoginServerFault::NoLogin, &["no login is required"]);
    assert_eq!(server.asked(), []);

    // A callback with a different issuer ends the login, and the code is sent nowhere.
    server.lie(Some(LoginServerFault::OtherCallback));
    let login = home.start_gdn(&["oauth", "login", "server"]);
    let back = server.consent(&address_of(&login));
    visit(&back);
    login
        .wait()
        .exits(10)
        .tells(&["from another authorization server"]);
    assert_eq!(server.asked(), []);

    // The server is queried again for each login.
    server.lie(None);
    log_in(&home, &server);
    assert_eq!(home.ask("a", "call echo well"), "so: echo: well");
    assert_eq!(last_result(&home, "a"), "echo: well");
}

#[test]
fn sys_4_server_without_registration_accepts_a_manual_client_id() {
    let server = McpWithLogin::start();
    server.lie(Some(LoginServerFault::NoRegistration));
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    let login = home.gdn(&["oauth", "login", "server", "--paste"]);
    login
        .exits(10)
        .tells(&["registers no applications", "`clientId`"]);
    daemon.stop();

    // The OAuthApp with the connection's name is used.
    let redirect = "http://127.0.0.1/callback";
    let connection = format!("  config: {{url: '{}', auth: oauth}}\n", server.url());
    let app = format!(
        "---\napiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {{name: server}}\nspec: {{resource: '{}', \
         clientId: by-hand, redirectUri: '{redirect}'}}\n",
        server.url()
    );
    home.write("project/goondan.yaml", &(project(&connection) + &app));
    server.register("by-hand", redirect);
    let _daemon = Daemon::serving(&home);
    let mut command = home.command(
        &goondan_tests::binaries::bin(goondan_tests::home::GDN),
        &["oauth", "login", "server", "--paste"],
    );
    command.stdin(std::process::Stdio::piped());
    let mut login = goondan_tests::home::RunningProgram::start(command);
    let back = server.consent(&address_of(&login));
    login.say(&back);
    login.wait().exits(0);
    assert_eq!(home.ask("a", "call echo by hand"), "so: echo: by hand");
    home.gdn(&["oauth", "refresh", "server"]).exits(0);
}

#[test]
fn sys_4_tokens_go_only_to_their_issuer_despite_mcp_changes() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    // It names a different server while a person consents.
    let login = home.start_gdn(&["oauth", "login", "server"]);
    let back = server.consent(&address_of(&login));
    server.lie(Some(LoginServerFault::CloudServer));
    assert_eq!(visit(&back), 200);
    let text = format!("Authorization server: {}", server.issuer());
    login.wait().exits(0).tells(&[&text]);
    // After a restart, too. No connection uses the token after it is revoked.
    daemon.kill();
    let _daemon = Daemon::serving(&home);
    home.gdn(&["oauth", "refresh", "server"]).exits(0);
    let revoke = home.gdn(&["oauth", "revoke", "server", "--yes"]);
    revoke.exits(0).prints(&["Revoked the tokens"]);
    let kinds: Vec<String> = server.asked().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["authorization_code", "refresh_token", "revoke"]);
    assert_eq!(server.access_token(), None);
}

#[test]
fn sys_4_busy_server_is_retried_and_registration_is_sent_once() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    let fails = |lie: LoginServerFault, code: i32, told: &[&str]| {
        server.lie(Some(lie));
        let before = server.registrations();
        let login = home.gdn(&["oauth", "login", "server", "--paste"]);
        login.exits(code).tells(told);
        assert_eq!(server.registrations(), before + 1, "{lie:?}");
    };
    fails(LoginServerFault::BrokenRegistration, 8, &["answered 500"]);
    fails(
        LoginServerFault::HugeRegistration,
        8,
        &["more than 262144 bytes"],
    );
    fails(
        LoginServerFault::OtherRedirect,
        10,
        &["different redirect addresses"],
    );

    // The outcome of the registration is unknown: the daemon dies, and the next login registers
    // again.
    server.lie(Some(LoginServerFault::SilentRegistration));
    let before = (server.registrations(), server.clients());
    let login = home.start_gdn(&["oauth", "login", "server"]);
    wait_until("the server is asked to register", || {
        server.registrations() > before.0
    });
    daemon.kill();
    drop(login.wait());
    let _daemon = Daemon::start(&home);
    server.lie(None);
    log_in(&home, &server);
    assert_eq!(server.clients(), before.1 + 2);

    for lie in [
        LoginServerFault::Busy,
        LoginServerFault::BusyRegistration,
        LoginServerFault::Endless,
    ] {
        server.lie(Some(lie));
        let clients = server.clients();
        log_in(&home, &server);
        assert_eq!(server.clients(), clients + 1, "{lie:?}");
    }
    server.lie(None);
    assert_eq!(home.ask("a", "call echo well"), "so: echo: well");
}

#[test]
fn sys_4_concurrent_logins_register_apart_and_the_last_one_wins() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let _daemon = Daemon::serving(&home);
    let logins = [0, 1].map(|_| home.start_gdn(&["oauth", "login", "server"]));
    let backs = logins
        .each_ref()
        .map(|login| server.consent(&address_of(login)));
    assert_eq!(server.clients(), 2);
    for (login, back) in logins.into_iter().zip(backs) {
        assert_eq!(visit(&back), 200);
        login.wait().exits(0);
    }
    assert_eq!(home.ask("a", "call echo well"), "so: echo: well");
    home.gdn(&["oauth", "refresh", "server"]).exits(0);
}

#[test]
fn sys_4_token_declined_by_mcp_is_renewed_and_the_call_repeated() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    assert_eq!(home.ask("a", "call echo first"), "so: echo: first");

    // Many conversations are rejected with the same token.
    server.take_back();
    let sendings: Vec<_> = (0..8)
        .map(|n| {
            let key = format!("k{n}");
            home.start_gdn(&["send", "--instance", &key, "call echo together"])
        })
        .collect();
    for sending in sendings {
        sending.wait().exits(0).prints(&["so: echo: together"]);
    }
    let renewals = || {
        let asked = server.asked();
        asked
            .iter()
            .filter(|(kind, _)| kind == "refresh_token")
            .count()
    };
    assert_eq!(renewals(), 1);
    assert!(server.declined() > 0);

    // A token that was accepted and is rejected later is also renewed, even directly after a start
    // of the daemon.
    daemon.kill();
    server.take_back();
    let daemon = Daemon::start(&home);
    assert_eq!(home.ask("a", "call echo later"), "so: echo: later");
    assert_eq!(renewals(), 2);
    assert!(
        daemon
            .log()
            .lines()
            .iter()
            .any(|line| line["message"] == "token rejected by server; renewing it")
    );
    are_nowhere(&home, &server.secrets(), &daemon.log().lines());
}

#[test]
fn sys_4_token_declined_after_renewal_parks_turn_until_login() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    assert_eq!(home.ask("a", "call echo first"), "so: echo: first");

    server.lie(Some(LoginServerFault::TakesNone));
    let sending = home.start_gdn(&["send", "--instance", "a", "call echo hello"]);
    sending.wait_for_stderr("oauth login server");
    let waits = || {
        let agent = home.ps_agent("a");
        agent.is_some_and(|agent| agent["consents"] == json!(["OAuthApp/server"]))
    };
    wait_until("the turn waits for consent", waits);
    let kinds: Vec<String> = server.asked().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        ["authorization_code", "refresh_token"],
        "it is renewed once"
    );
    home.gdn(&["oauth", "show", "server"])
        .exits(0)
        .prints(&["needs login"])
        .tells(&["a server rejects the token"]);

    server.lie(None);
    log_in(&home, &server);
    sending.wait().exits(0).prints(&["so: echo: hello"]);
    are_nowhere(&home, &server.secrets(), &daemon.log().lines());
}

#[test]
fn sys_4_insufficient_token_parks_the_call_until_consent() {
    let server = McpWithLogin::start();
    let home = home(&server);
    let daemon = Daemon::serving(&home);
    log_in(&home, &server);
    server.needs_scope("write");
    let sending = home.start_gdn(&["send", "--instance", "a", "call echo hello"]);
    sending.wait_for_stderr("oauth login server");
    wait_until("the turn waits for consent", || {
        let agent = home.ps_agent("a");
        agent.is_some_and(|agent| agent["consents"] == json!(["OAuthApp/server"]))
    });
    let shown = home.gdn(&["oauth", "show", "server"]);
    shown.exits(0).prints(&["active", "tools write"]);
    // A person is asked only at a login, with its purpose.
    assert_eq!(server.asked().len(), 1);
    let login = home.start_gdn(&["oauth", "login", "server"]);
    let back = server.consent(&address_of(&login));
    assert_eq!(visit(&back), 200);
    let login = login.wait().exits(0);
    login.tells(&["tools offline_access write"]);
    sending.wait().exits(0).prints(&["so: echo: hello"]);
    are_nowhere(&home, &server.secrets(), &daemon.log().lines());
}

#[test]
fn sys_4_scopes_not_allowed_for_an_application_are_not_asked() {
    let server = McpWithLogin::start();
    let connection = format!("  config: {{url: '{}', auth: oauth}}\n", server.url());
    let app = |wider: &str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {{name: server}}\nspec: {{resource: '{}', \
             scopes: [tools, offline_access]{wider}}}\n",
            server.url()
        )
    };
    let home = Home::new(&(project(&connection) + &app("")));
    let _daemon = Daemon::serving(&home);
    log_in(&home, &server);
    server.needs_scope("write");
    home.ask("a", "call echo hello");
    let said = last_result(&home, "a");
    assert!(said.contains("may not be asked for `write`"), "{said}");
    assert_eq!(server.asked().len(), 1);
}
