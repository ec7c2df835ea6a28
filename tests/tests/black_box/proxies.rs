//! Proxies and certificate authorities of outgoing connections (`PROV-2`).
//!
//! Method: the real binaries; hosts below `example.test` exist only behind a proxy.

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::mcp;
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::proxy::{ForwardProxy, authority};
use goondan_tests::{CommandOutput, Daemon, Home, needs, wait_until};
use serde_json::Value;

fn model_server() -> Provider {
    Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Hello."])))
}

fn project(endpoint: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {{name: shelf}}
spec: {{version: 1.0.0, registries: [{{url: "https://registry.example.test"}}]}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: voice}}
spec: {{provider: openai, model: m, endpoint: "{endpoint}"}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/voice}}}}
{more}"#
    )
}

/// A daemon with these variables, and the home's project in it.
fn daemon(home: &Home, variables: &[(&str, String)]) -> Daemon {
    let mut command = home.command(&bin(ORCHESTRATOR), &[]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let daemon = Daemon::start_command(home, command);
    let ran = home.gdn(&["run"]);
    assert!(ran.code == 0 || ran.code == 16, "{ran:?}");
    daemon
}

fn gdn(home: &Home, variables: &[(&str, String)], args: &[&str]) -> CommandOutput {
    let mut command = home.command(&bin(GDN), args);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    RunningProgram::start(command).wait()
}

/// Findings of `gdn doctor --network` of this check, as text.
fn doctor(home: &Home, variables: &[(&str, String)], check: &str) -> String {
    let report = gdn(home, variables, &["doctor", "--network", "--json"]).json();
    let findings = report["findings"].as_array().unwrap().iter();
    let found = findings.filter(|finding| finding["check"] == check);
    found.map(Value::to_string).collect()
}

#[test]
fn prov_2_calls_go_through_a_proxy_with_a_password() {
    let provider = model_server();
    let hosts = [("models.example.test", provider.root())];
    let proxy = ForwardProxy::start(Some("ann:p@ss-word"), &hosts);
    let home = Home::new(&project("http://models.example.test/v1", ""));
    let right = [("HTTP_PROXY", proxy.url("ann:p%40ss-word"))];
    let serving = daemon(&home, &right);
    assert_eq!(home.ask("a", "Hi."), "Hello.");
    let asked = "POST http://models.example.test/v1/chat/completions";
    assert_eq!(proxy.seen(), [asked]);
    let settings = doctor(&home, &right, "proxy");
    assert!(
        settings.contains("HTTP_PROXY") && !settings.contains("ss-word"),
        "{settings}"
    );
    let reached = doctor(&home, &right, "model server");
    assert!(
        reached.contains("\"ok\"") && reached.contains("HTTP_PROXY"),
        "{reached}"
    );
    assert_eq!(doctor(&home, &right, "network of the daemon"), "");
    let differing = doctor(&home, &[], "network of the daemon");
    assert!(differing.contains("other settings"), "{differing}");
    let log = serving.stop();
    log.check(false);
    let written = home.log_files();
    assert!(!format!("{written:?}").contains("ss-word"), "{written:?}");

    // A wrong password is reported as such, by both schemes.
    for endpoint in [
        "http://models.example.test/v1",
        "https://models.example.test/v1",
    ] {
        home.write("project/goondan.yaml", &project(endpoint, ""));
        let url = proxy.url("ann:wrong-word");
        let wrong = [("http_proxy", url.clone()), ("https_proxy", url)];
        let serving = daemon(&home, &wrong);
        let failed = home.gdn(&["send", "--instance", "b", "Hi."]);
        let output = &failed.stderr;
        assert!(
            output.contains("rejects its user or password"),
            "{failed:?}"
        );
        assert!(
            output.contains("_proxy") && !output.contains("wrong-word"),
            "{failed:?}"
        );
        let refused = doctor(&home, &wrong, "model server");
        assert!(
            refused.contains("rejects its user or password"),
            "{refused}"
        );
        serving.stop().check(false);
    }
}

#[test]
fn prov_2_hosts_in_no_proxy_are_asked_directly() {
    let provider = model_server();
    let proxy = ForwardProxy::start(None, &[]);
    let home = Home::new(&project(&provider.endpoint(), ""));
    let variables = [
        ("HTTP_PROXY", proxy.url("")),
        ("NO_PROXY", "127.0.0.0/8".to_owned()),
    ];
    let serving = daemon(&home, &variables);
    assert_eq!(home.ask("a", "Hi."), "Hello.");
    assert!(proxy.seen().is_empty(), "{:?}", proxy.seen());
    serving.stop().check(false);
}

#[test]
fn prov_2_everything_trusts_the_authority_of_an_inspecting_proxy() {
    let provider = model_server();
    let tools = mcp::HttpServer::start("word");
    let nothing = Provider::start(|_| ProviderResponse::error(404, &serde_json::json!({})));
    let collector = Provider::start(|_| ProviderResponse::json(&serde_json::json!({})));
    let proxy = ForwardProxy::intercepting(&[
        ("models.example.test", provider.root()),
        ("tools.example.test", tools.url()),
        ("registry.example.test", nothing.root()),
        ("git.example.test", nothing.root()),
        ("traces.example.test", collector.root()),
    ]);
    let more = r#"---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: tools}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  config: {url: "https://tools.example.test/v1", headers: {x-team: blue}}
  secrets: {token: {value: word}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: traces}
spec:
  connectorRef: {kind: Connector, name: otlp, package: "@goondan/base"}
  config: {endpoint: "https://traces.example.test"}
"#;
    let home = Home::new(&project("https://models.example.test/v1", more));
    let untrusted = [("https_proxy", proxy.url(""))];
    let trusted = [
        ("https_proxy", proxy.url("")),
        ("GOONDAN_CA_FILE", authority().display().to_string()),
    ];
    let serving = daemon(&home, &untrusted);
    let failed = home.gdn(&["send", "Hi."]);
    for part in [
        "models.example.test",
        "intercepting test proxy",
        "GOONDAN_CA_FILE",
    ] {
        assert!(failed.stderr.contains(part), "{failed:?}");
    }
    let package = gdn(&home, &untrusted, &["package", "add", "words"]);
    for part in [
        "registry.example.test",
        "intercepting test proxy",
        "GOONDAN_CA_FILE",
    ] {
        assert!(package.stderr.contains(part), "{package:?}");
    }
    let refused = doctor(&home, &untrusted, "model server");
    assert!(
        refused.contains("\"bad\"") && refused.contains("GOONDAN_CA_FILE"),
        "{refused}"
    );
    serving.stop().check(false);

    let serving = daemon(&home, &trusted);
    assert_eq!(home.ask("a", "Hi."), "Hello.");
    let was_seen = |text: &str| proxy.seen().iter().any(|seen| seen == text);
    wait_until("spans are exported", || {
        was_seen("POST https://traces.example.test/v1/traces")
    });
    wait_until("the MCP server is used", || {
        home.ps()
            .iter()
            .any(|it| it.to_string().contains("MCP server double"))
    });
    for check in ["model server", "server", "registry", "certificates"] {
        let found = doctor(&home, &trusted, check);
        assert!(
            found.contains("\"ok\"") && !found.contains("\"bad\""),
            "{check}: {found}"
        );
    }
    let package = gdn(&home, &trusted, &["package", "add", "words"]);
    assert!(
        package.stderr.contains("no suitable version"),
        "{package:?}"
    );
    if needs::program("git") {
        let source = "git+https://git.example.test/words.git#main";
        let refused = gdn(&home, &untrusted, &["package", "add", source]);
        assert!(refused.stderr.contains("GOONDAN_CA_FILE"), "{refused:?}");
        let missing = gdn(&home, &trusted, &["package", "add", source]);
        assert!(!missing.stderr.contains("ertificate"), "{missing:?}");
        let asked = proxy.seen();
        let is_git = |seen: &String| seen.starts_with("GET https://git.example.test/words.git/");
        assert!(asked.iter().any(is_git), "{asked:?}");
    }
    serving.stop().check(false);
}
