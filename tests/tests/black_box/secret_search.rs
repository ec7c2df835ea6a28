//! Goal: no secret, token, verifier or identity is anywhere it does not belong, in any encoding
//! (`SEC-1`, `SEC-2`).
//!
//! Method: the real binaries run through logins, renewals, a rotation, failures and a program that
//! writes its secret in every form and in pieces. Then every file, log line, command output and
//! process environment is searched for every form of every secret, with an encoder that is
//! independent of the product.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use goondan_tests::authorization_server::{AuthorizationServer, CLIENT_SECRET, ResponseFault};
use goondan_tests::home::{CommandOutput, GDN, RunningProgram};
use goondan_tests::processes::{self, Process};
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::secret_forms::SecretForms;
use goondan_tests::{Daemon, Home, binaries, mcp, wait_until};
use serde_json::json;

use super::oauth::{address_of, visit};
use super::secrets;

/// A secret that is different in every encoding.
const NOISY: &str = "n0isy \"s\u{e9}cret\"/+?=7 never-shown";
/// Program in the project that receives the secret.
const PROGRAM: &str = "goondan-mcp-server";
/// A secret that one connector holds and never receives from others.
const QUIET: &str = "quiet-s3cret-never-shown";

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
    command: [/bin/sh, noise.sh, ./{PROGRAM}]
    env:
      SERVER_TOKEN: {{valueFrom: {{secretRef: {{ref: Secret/noisy, key: token}}}}}}
"#
    )
}

/// A program that writes every form of its secret to stderr, whole and in two pieces, and then is
/// an MCP server.
fn noise() -> String {
    let mut script = String::new();
    for (_, form) in &SecretForms::of(NOISY).forms {
        let (head, tail) = form.split_at(form.floor_char_boundary(form.len() / 2));
        let (head, tail) = (octal(head), octal(tail));
        writeln!(script, "printf 'whole: {head}{tail}.\\n' >&2").unwrap();
    }
    script += "\"$1\" --pieces pieces.txt || exit 1\n";
    // A secret that crosses the end of the longest line.
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

/// Every form of its secret in two pieces, in the input format of the program that writes them.
fn pieces() -> String {
    let mut lines = String::new();
    for (_, form) in &SecretForms::of(NOISY).forms {
        let (head, tail) = form.split_at(form.floor_char_boundary(form.len() / 2));
        assert!(!form.contains(['\t', '\n']) && !form.contains("\\n"));
        writeln!(lines, "pieces: {head}\t{tail}.\\n").unwrap();
    }
    lines
}

/// A text as a format of `printf`.
fn octal(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:03o}")).collect()
}

/// A provider that answers, or fails and repeats its request in every encoding.
fn model() -> Provider {
    Provider::start(|received| {
        if !received.body.to_string().contains("Fail.") {
            return ProviderResponse::stream(&openai_saying(&["Hello."]));
        }
        let key = received.header("authorization").unwrap_or_default();
        let token = key.trim_start_matches("Bearer ");
        let forms = SecretForms::of(token).forms;
        let told: Vec<String> = forms.into_iter().map(|(_, form)| form).collect();
        let message = format!("the key {token} is not good: {}", told.join(", "));
        ProviderResponse::error(
            403,
            &json!({"error": {"message": message, "type": "denied"}}),
        )
    })
}

/// Output of commands, by command.
type CommandOutputs = BTreeMap<String, Vec<u8>>;

fn note(told: &mut CommandOutputs, what: &str, ran: &CommandOutput) {
    let text = format!("{}\n{}", ran.stdout, ran.stderr);
    let number = told.len();
    told.insert(format!("{what} ({number})"), text.into_bytes());
}

fn run(told: &mut CommandOutputs, home: &Home, args: &[&str]) -> CommandOutput {
    let ran = home.gdn(args);
    note(told, &args.join(" "), &ran);
    ran
}

fn log_in(told: &mut CommandOutputs, home: &Home, server: &AuthorizationServer) {
    let login = home.start_gdn(&["oauth", "login", "idp"]);
    let back = server.consent(&address_of(&login));
    assert_eq!(visit(&back), 200);
    let ran = login.wait().exits(0);
    // The login address contains the `state`, which is necessary.
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

fn paste(home: &Home, address: &str) -> CommandOutput {
    let args = ["oauth", "login", "idp", "--paste"];
    let mut command = home.command(&binaries::bin(GDN), &args);
    command.stdin(std::process::Stdio::piped());
    let mut login = RunningProgram::start(command);
    drop(address_of(&login));
    login.say(address);
    login.wait()
}

/// Runs through all operations with secrets.
fn live(told: &mut CommandOutputs, home: &Home, server: &AuthorizationServer) {
    run(told, home, &["run"]).exits(0);
    log_in(told, home, server);
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    run(told, home, &["send", "--instance", "bad", "Fail."]).exits(7);
    run(told, home, &["oauth", "refresh", "idp"]).exits(0);
    server.next(ResponseFault::Fails);
    run(told, home, &["oauth", "refresh", "idp"]);
    // A callback of another login is refused, including its contents.
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
fn sec_2_no_secret_is_stored_anywhere_in_any_encoding() {
    let (server, model) = (AuthorizationServer::start(3_600), model());
    let home = Home::new(&project(&server, &model));
    home.write("project/noise.sh", &noise());
    home.write("project/pieces.txt", &pieces());
    // Its sandbox allows no other directory that could contain the program.
    fs::copy(mcp::program(), home.project().join(PROGRAM)).unwrap();
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
    let mut told = CommandOutputs::new();
    let identity = || fs::read_to_string(home.state_root().join("system/identity.age")).unwrap();
    let mut identities = vec![identity()];
    live(&mut told, &home, &server);
    identities.push(identity());
    let log = daemon.log();
    log.wait_for("the noise is over", |line| {
        line["message"] == "the noise is over"
    });
    // The output is there without the secrets: each form, whole and in pieces.
    let forms = SecretForms::of(NOISY).forms.len();
    for kind in ["whole", "pieces"] {
        let masked = format!("{kind}: [masked].");
        let lines = log.lines();
        let found = lines
            .iter()
            .filter(|line| line["message"] == masked.as_str());
        assert_eq!(found.count(), forms, "{kind}");
    }
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
    let mut places = SearchedPlaces::default();
    for (what, text) in &told {
        places.add(format!("what `gdn {what}` told"), text.clone());
    }
    for line in log.lines() {
        places.add("the log".to_owned(), line.to_string().into_bytes());
        // The message may itself contain JSON, which is escaped once more.
        let message = line["message"].as_str().unwrap_or_default();
        places.add(
            "a message of the log".to_owned(),
            message.as_bytes().to_vec(),
        );
    }
    let is_given = || {
        let mut all = all_processes(&home).into_iter();
        all.any(|process| processes::environment(process.pid).contains(NOISY))
    };
    wait_until("the program runs with its secret", is_given);
    let environments = environments(&home, &mut places);
    assert!(environments >= 4, "{environments}");
    daemon.stop();
    wait_until("nothing runs any more", || {
        processes::of_home(home.path()).is_empty()
    });
    let before = places.0.len();
    add_files(&home, &mut places);
    assert!(places.0.len() > before + 10);
    assert_eq!(places.found(&all), Vec::<String>::new());

    // The search finds every planted form.
    let planted = SecretForms::of(NOISY);
    for (number, (_, written)) in planted.forms.iter().enumerate() {
        home.write(&format!("state/planted-{number}"), &format!("x{written}x"));
    }
    let mut places = SearchedPlaces::default();
    add_files(&home, &mut places);
    let found = places.found(std::slice::from_ref(&planted));
    assert_eq!(found.len(), planted.forms.len(), "{found:?}");
}

/// Places to search, with their contents.
#[derive(Default)]
struct SearchedPlaces(Vec<(String, Vec<u8>)>);

impl SearchedPlaces {
    fn add(&mut self, place: String, bytes: Vec<u8>) {
        self.0.push((place, bytes));
    }

    /// Secrets found, with their places.
    fn found(&self, secrets: &[SecretForms]) -> Vec<String> {
        let mut found = Vec::new();
        for (place, bytes) in &self.0 {
            for secret in secrets {
                if let Some(form) = secret.found_in(bytes) {
                    found.push(format!("`{}` ({form}) is in {place}", secret.secret));
                }
            }
        }
        found
    }
}

/// Collects the environment of each process, except the value given to the intended program: it
/// must be there, or the check would prove nothing. Returns the number of processes.
fn environments(home: &Home, places: &mut SearchedPlaces) -> usize {
    let given = format!("SERVER_TOKEN={NOISY}");
    let (mut seen, mut given_to) = (0, 0);
    for process in all_processes(home) {
        let environment = processes::environment(process.pid);
        // The process may have just exited.
        if environment.is_empty() {
            continue;
        }
        seen += 1;
        let mut variables: Vec<&str> = environment.lines().collect();
        let is_told = |arg: &String| arg.ends_with(PROGRAM);
        if process.args.iter().any(is_told) {
            let before = variables.len();
            variables.retain(|variable| *variable != given);
            given_to += before - variables.len();
        }
        let place = format!("the environment of {process:?}");
        places.add(place, variables.join("\n").into_bytes());
    }
    assert!(given_to > 0, "no environment holds what it was given");
    seen
}

/// Processes of this home, and their descendants: confined processes have a different `HOME`.
fn all_processes(home: &Home) -> Vec<Process> {
    let mut all = processes::of_home(home.path());
    let mut others = processes::all();
    loop {
        let is_below = |process: &Process| {
            let parent = processes::parent(process.pid);
            let is_known = all.iter().any(|known| known.pid == process.pid);
            !is_known && all.iter().any(|known| Some(known.pid) == parent)
        };
        let (below, rest): (Vec<Process>, Vec<Process>) = others.into_iter().partition(is_below);
        if below.is_empty() {
            return all;
        }
        all.extend(below);
        others = rest;
    }
}

/// Every file except those of the project and the identity.
fn add_files(home: &Home, places: &mut SearchedPlaces) {
    for path in paths(home.path()) {
        let is_own = path.starts_with(home.project());
        if !is_own && !path.ends_with("system/identity.age") {
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            places.add(path.display().to_string(), bytes);
        }
    }
}

/// Files below a directory. An unreadable directory is a failure.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{dir:?}: {error}")) {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(paths(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}
