//! Goal: no secret, token, verifier or identity is anywhere that it has no business, however it is written down
//! (`SEC-1`, `SEC-2`).
//!
//! Method: the real binaries live through logins, renewals, a rotation, failures and a program that writes its
//! secret in every form and in pieces. Then every file, line of the log, answer of a command and environment of a
//! process is searched for every form of every secret, by an encoder that the product does not share.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use goondan_tests::authorization_server::{AuthorizationServer, CLIENT_SECRET, Manner};
use goondan_tests::home::{GDN, Ran, Running};
use goondan_tests::provider::{Answer, Provider, openai_saying};
use goondan_tests::secret_forms::SecretForms;
use goondan_tests::{Daemon, Home, binaries, mcp, processes, wait_until};
use serde_json::json;

use super::oauth::{address_of, files, visit};
use super::secrets;

/// A secret that every form writes otherwise.
const NOISY: &str = "n0isy \"s\u{e9}cret\"/+?=7 never-shown";
/// A secret that one connector holds, and nobody is told.
const QUIET: &str = "quiet-s3cret-never-shown";

fn project(server: &AuthorizationServer, model: &Provider) -> String {
    let (issuer, endpoint, program) = (server.issuer(), model.endpoint(), mcp::program());
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: OAuthApp
metadata: {{name: idp}}
spec:
  issuer: {issuer}
  clientId: client-one
  clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/app, key: secret}}}}}}
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
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: hook}}
spec:
  connectorRef: {{kind: Connector, name: webhook, package: "@goondan/base"}}
  config: {{path: /hook}}
  secrets:
    hmac: {{valueFrom: {{secretRef: {{ref: Secret/quiet, key: hmac}}}}}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: noisy}}
spec:
  connectorRef: {{kind: Connector, name: mcp, package: "@goondan/base"}}
  config:
    command: [/bin/sh, noise.sh, '{}']
    env:
      SERVER_TOKEN: {{valueFrom: {{secretRef: {{ref: Secret/noisy, key: token}}}}}}
"#,
        program.display()
    )
}

/// A program that writes every form of its secret to stderr, whole and in two pieces, and then is an MCP server.
fn noise() -> String {
    let mut script = String::new();
    for (_, form) in &SecretForms::of(NOISY).forms {
        let (head, tail) = form.split_at(form.floor_char_boundary(form.len() / 2));
        let (head, tail) = (octal(head), octal(tail));
        writeln!(script, "printf 'whole: {head}{tail}.\\n' >&2").unwrap();
        writeln!(
            script,
            "printf 'pieces: {head}' >&2; sleep 0.02; printf '{tail}.\\n' >&2"
        )
        .unwrap();
    }
    // One that lies across the end of the longest line there is.
    let plain = octal(NOISY);
    script += "i=0; while [ $i -lt 20000 ]; do printf '0123456789' >&2; i=$((i+1)); done\n";
    writeln!(
        script,
        "i=0; while [ $i -lt 3000 ]; do printf '{plain}' >&2; i=$((i+1)); done"
    )
    .unwrap();
    script += "printf '\\nthe noise is over\\n' >&2\nexec \"$1\"\n";
    script
}

/// A text as a format of `printf`.
fn octal(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:03o}")).collect()
}

/// A provider that answers, or fails and tells everything it was told, in every form.
fn model() -> Provider {
    Provider::start(|received| {
        if !received.body.to_string().contains("Fail.") {
            return Answer::stream(&openai_saying(&["Hello."]));
        }
        let key = received.header("authorization").unwrap_or_default();
        let token = key.trim_start_matches("Bearer ");
        let forms = SecretForms::of(token).forms;
        let told: Vec<String> = forms.into_iter().map(|(_, form)| form).collect();
        let message = format!("the key {token} is not good: {}", told.join(", "));
        Answer::error(
            403,
            &json!({"error": {"message": message, "type": "denied"}}),
        )
    })
}

/// What commands told, by what was run.
type Told = BTreeMap<String, Vec<u8>>;

fn note(told: &mut Told, what: &str, ran: &Ran) {
    let text = format!("{}\n{}", ran.stdout, ran.stderr);
    let number = told.len();
    told.insert(format!("{what} ({number})"), text.into_bytes());
}

fn run(told: &mut Told, home: &Home, args: &[&str]) -> Ran {
    let ran = home.gdn(args);
    note(told, &args.join(" "), &ran);
    ran
}

fn log_in(told: &mut Told, home: &Home, server: &AuthorizationServer) {
    let login = home.start_gdn(&["oauth", "login", "idp"]);
    let back = server.consent(&address_of(&login));
    assert_eq!(visit(&back), 200);
    let ran = login.wait().exits(0);
    // The address that a person opens has the `state` in it, and must.
    let lines = ran
        .stdout
        .lines()
        .filter(|line| !line.starts_with("http://"));
    let stdout: Vec<&str> = lines.collect();
    told.insert(
        format!("oauth login ({})", told.len()),
        (stdout.join("\n") + &ran.stderr).into_bytes(),
    );
}

fn paste(home: &Home, address: &str) -> Ran {
    let args = ["oauth", "login", "idp", "--paste"];
    let mut command = home.command(&binaries::bin(GDN), &args);
    command.stdin(std::process::Stdio::piped());
    let mut login = Running::start(command);
    drop(address_of(&login));
    login.say(address);
    login.wait()
}

/// Lives through all that handles secrets.
fn live(told: &mut Told, home: &Home, server: &AuthorizationServer) {
    run(told, home, &["run"]).exits(0);
    log_in(told, home, server);
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    run(told, home, &["send", "--instance", "bad", "Fail."]).exits(7);
    run(told, home, &["oauth", "refresh", "idp"]).exits(0);
    server.next(Manner::Fails);
    run(told, home, &["oauth", "refresh", "idp"]);
    // A callback of another login is refused, with whatever it holds.
    let stray =
        "http://127.0.0.1:1/callback?code=code-stray-never-shown&state=state-stray-never-shown";
    let ran = paste(home, stray).exits(10);
    told.insert(
        "a stray callback".to_owned(),
        ran.stderr.clone().into_bytes(),
    );
    run(told, home, &["secret", "rotate", "--yes"]).exits(0);
    log_in(told, home, server);
    assert_eq!(home.ask("main", "Hi again."), "Hello.");
}

#[test]
fn sec_2_no_secret_is_anywhere_in_any_form_whatever_happens() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = Home::new(&project(&server, &model));
    home.write("project/noise.sh", &noise());
    let daemon = Daemon::start(&home);
    for (name, key, value) in [
        ("app", "secret", CLIENT_SECRET),
        ("quiet", "hmac", QUIET),
        ("noisy", "token", NOISY),
    ] {
        let dir = home.project();
        let options = ["--for", dir.to_str().unwrap()];
        secrets::set(&home, name, key, value, &options).exits(0);
    }
    let mut told = Told::new();
    let identity = || fs::read_to_string(home.state_root().join("system/identity.age")).unwrap();
    let mut identities = vec![identity()];
    live(&mut told, &home, &server);
    identities.push(identity());
    let log = daemon.log();
    log.wait_for("the noise is over", |line| {
        line["message"] == "the noise is over"
    });
    // What was written is there, without what is secret.
    assert!(
        log.lines()
            .iter()
            .filter(|line| line["message"] == "whole: [masked].")
            .count()
            > 5
    );
    for args in [
        &["status", "--json"][..],
        &["ps", "--json"],
        &["logs", "--json"],
        &["config", "show"],
        &["oauth", "show", "idp", "--json"],
        &["oauth", "list"],
        &["secret", "list", "--json"],
        &["audit", "--all"],
        &["validate"],
        &["verify"],
    ] {
        run(&mut told, &home, args);
    }

    let mut all: Vec<String> = server.secrets();
    let keys = identities.iter().flat_map(|text| text.lines());
    let keys = keys.filter(|line| line.starts_with("AGE-SECRET-KEY-"));
    all.extend(keys.map(str::to_owned));
    all.extend([CLIENT_SECRET, QUIET, NOISY].map(str::to_owned));
    all.extend(["code-stray-never-shown", "state-stray-never-shown"].map(str::to_owned));
    let all: Vec<SecretForms> = all.iter().map(|secret| SecretForms::of(secret)).collect();
    assert!(all.len() > 12, "{}", all.len());
    let is_nowhere = |place: &str, bytes: &[u8]| {
        for secret in &all {
            let found = secret.found_in(bytes);
            assert_eq!(found, None, "`{}` is in {place}", secret.secret);
        }
    };
    for (what, text) in &told {
        is_nowhere(&format!("what `gdn {what}` told"), text);
    }
    for line in log.lines() {
        is_nowhere("the log", line.to_string().as_bytes());
    }
    // Nor in any environment but that of the program that its secret was given to by it.
    let mut environments = 0;
    for process in processes::of_home(home.path()) {
        let environment = processes::environment(process.pid);
        let given = SecretForms::of(NOISY);
        for secret in all.iter().filter(|it| it.secret != given.secret) {
            let found = secret.found_in(environment.as_bytes());
            assert_eq!(found, None, "`{}` is in that of {process:?}", secret.secret);
        }
        environments += 1;
    }
    assert!(environments >= 4, "{environments}");
    daemon.stop();
    let mut searched = 0;
    for (path, bytes) in files(home.path()) {
        let is_own = path.starts_with(home.project().to_str().unwrap());
        if !is_own && !path.ends_with("system/identity.age") {
            is_nowhere(&path, &bytes);
            searched += 1;
        }
    }
    assert!(searched > 10, "{searched}");
    wait_until("nothing runs any more", || {
        processes::of_home(home.path()).is_empty()
    });
}
