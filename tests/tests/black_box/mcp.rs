//! Tools of MCP servers: over stdio and HTTP, through the real processes.

use goondan_tests::home::AGENT;
use goondan_tests::log::message;
use goondan_tests::mcp::{self, HttpServer};
use goondan_tests::processes::Signal;
use goondan_tests::{Daemon, Home, processes, wait_until};
use serde_json::{Value, json};

use crate::conversation::{check, result_text, role};

pub(crate) const TOKEN: &str = "token-of-the-server-7315";

/// An agent that makes calls on order: `call NAME TEXT`.
pub(crate) fn project(connection: &str) -> String {
    let names = [
        "secret_read",
        "fail",
        "die",
        "learn",
        "learned",
        "picture",
        "link",
        "roots",
        "trace",
        "capabilities",
        "order",
        "confirm",
        "rounds",
        "nested",
        "password",
        "visit",
        "sneak",
        "list_resources",
        "list_prompts",
        "hang",
        "nonsense",
    ];
    let calls = names.map(|name| {
        format!("      - when: {{user: '^call {name}$', step: 1}}\n        call: [{{tool: kit__{name}, args: {{}}}}]\n")
    });
    let calls = calls.concat();
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '^call echo (?P<text>.*)$', step: 1}}
        call: [{{tool: kit__echo, args: {{text: "${{text}}"}}}}]
      - when: {{user: '^call linger (?P<path>.*)$', step: 1}}
        call: [{{tool: kit__linger, args: {{text: "${{path}}"}}}}]
      - when: {{user: '^read (?P<uri>.*)$', step: 1}}
        call: [{{tool: kit__read_resource, args: {{uri: "${{uri}}"}}}}]
      - when: {{user: '^greet (?P<whom>.*)$', step: 1}}
        call: [{{tool: kit__get_prompt, args: {{name: greet, arguments: {{whom: "${{whom}}"}}}}}}]
      - when: {{user: '^call wrong$', step: 1}}
        call: [{{tool: kit__echo, args: {{text: 5}}}}]
{calls}      - say: "so: ${{result}}"
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: kit}}
spec:
  builtin: mcp
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools: [Tool/kit]
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: server}}
spec:
  connectorRef: {{kind: Connector, name: mcp, package: "@goondan/base"}}
{connection}
"#
    )
}

fn over_stdio() -> Home {
    over_stdio_with("")
}

pub(crate) fn over_stdio_with(setting: &str) -> Home {
    let home = Home::without_project();
    let connection = format!(
        "  config:\n    command: ['{}']\n    env: {{HOME: {}, SERVER_TOKEN: {{valueFrom: {{env: SERVER_TOKEN}}}}}}\n    ",
        mcp::program().display(),
        // Lets the harness identify the server's processes.
        home.path().display()
    );
    home.write(
        "project/goondan.yaml",
        &project(&format!("{connection}{setting}")),
    );
    home.write("project/.env", &format!("SERVER_TOKEN={TOKEN}\n"));
    home
}

pub(crate) fn last_result(home: &Home, key: &str) -> String {
    let messages = home.history(key);
    check(&messages);
    let results = messages.iter().rev();
    let mut results = results.filter(|message| role(message) == "tool");
    result_text(results.next().unwrap()).to_owned()
}

pub(crate) fn detail(home: &Home) -> String {
    let ps = home.ps();
    let connector = ps.iter().find(|process| process["role"] == "connector");
    connector.map_or_else(String::new, |it| {
        it["detail"].as_str().unwrap_or_default().to_owned()
    })
}

#[test]
fn mcp_tools_are_called_checked_and_refused_like_any_other() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    assert_eq!(
        home.ask("a", "call echo hello there"),
        "so: echo: hello there"
    );
    assert_eq!(detail(&home), "MCP server double 1.2");
    home.ask("a", "call fail");
    assert_eq!(last_result(&home, "a"), "it cannot be done");
    home.ask("a", "call wrong");
    let refused = last_result(&home, "a");
    assert!(
        refused.contains("E_TOOL_INVALID_ARGS") && refused.contains("/text"),
        "{refused}"
    );
    home.ask("a", "call nonsense");
    let refused = last_result(&home, "a");
    assert!(
        refused.contains("E_TOOL_NOT_IN_CATALOG") && refused.contains("`kit__secret_read`"),
        "{refused}"
    );
    // The server's stderr is in the log.
    daemon
        .log()
        .wait_for("the server's words are logged", |line| {
            message(line) == "the double is here" && line["process"] == "connector"
        });
}

/// The parts of the last result, which is more than text.
fn last_parts(home: &Home, key: &str) -> Value {
    let messages = home.history(key);
    check(&messages);
    let mut results = messages.iter().rev();
    let result = results.find(|message| role(message) == "tool").unwrap();
    result["data"]["content"][0]["output"].clone()
}

#[test]
fn mcp_images_links_resources_and_prompts_reach_the_model() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    home.ask("a", "call picture");
    let expected = json!({"type": "content", "value": [
        {"type": "text", "text": "[image image/png, 3 bytes]"},
        {"type": "media", "data": "AAAA", "mediaType": "image/png"}]});
    assert_eq!(last_parts(&home, "a"), expected);
    home.ask("a", "call link");
    let told = last_result(&home, "a");
    for word in ["note:///one", "A note.", "`read_resource`"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    home.ask("a", "call list_resources");
    let told = last_result(&home, "a");
    assert!(
        told.contains("note:///one: one; text/plain; A note."),
        "{told}"
    );
    assert!(told.contains("note:///{name}"), "{told}");
    home.ask("a", "read note:///one");
    let read = last_parts(&home, "a");
    let text = read["value"][0]["text"].as_str().unwrap();
    assert!(text.contains("what the note says"), "{read}");
    assert_eq!(read["value"][1]["mediaType"], "image/gif");
    home.ask("a", "read note:///none");
    assert!(last_result(&home, "a").contains("rejected the request"));
    home.ask("a", "call list_prompts");
    let told = last_result(&home, "a");
    assert!(
        told.contains("greet: Greets.; arguments: whom (required)"),
        "{told}"
    );
    home.ask("a", "greet Ada");
    assert!(last_result(&home, "a").contains("Say hello to Ada."));
    // The server runs in the Project Root, and receives it as its root.
    home.ask("a", "call roots");
    let root = home.path().join("project").canonicalize().unwrap();
    let told = last_result(&home, "a");
    assert!(
        told.contains(&format!("file://{}\"", root.display())),
        "{told}"
    );
    daemon.stop();
}

#[test]
fn log_3_a_servers_call_belongs_to_the_trace_of_its_turn() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    home.ask("a", "call trace");
    let told = last_result(&home, "a");
    let begun = daemon.log().saying("turn committed and answered");
    let trace_id = begun[0]["traceId"].as_str().unwrap();
    assert!(told.contains(&format!("00-{trace_id}-")), "{told}");
    daemon.stop();
}

#[test]
fn sec_2_mcp_credentials_are_not_in_agent_process_or_log() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    home.ask("a", "call secret_read");
    let agent = home.running(AGENT).remove(0);
    let environment = std::fs::read(format!("/proc/{}/environ", agent.pid)).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(TOKEN));
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}

#[test]
fn a_list_that_changes_is_known_at_the_next_step() {
    let home = over_stdio();
    let _daemon = Daemon::serving(&home);
    home.ask("a", "call learned");
    assert!(last_result(&home, "a").contains("E_TOOL_NOT_IN_CATALOG"));
    home.ask("a", "call learn");
    home.ask("a", "call learned");
    assert_eq!(last_result(&home, "a"), "it is there");
}

#[test]
fn mcp_server_death_fails_its_call_and_the_server_restarts() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    home.ask("a", "call die");
    let said = last_result(&home, "a");
    assert!(
        said.contains("E_TOOL_INTERRUPTED") && said.contains("unknown"),
        "{said}"
    );
    daemon
        .log()
        .wait_for("the end of the server is reported", |line| {
            line.to_string().contains("exited with code 7")
        });
    // A call between two starts waits for the server.
    assert_eq!(home.ask("a", "call echo again"), "so: echo: again");
    wait_until("it is there again", || {
        detail(&home) == "MCP server double 1.2"
    });
    let servers = || {
        let all = processes::of_home(home.path());
        all.into_iter()
            .filter(|it| it.program() == "goondan-mcp-server")
            .count()
    };
    assert_eq!(servers(), 1);
    daemon.kill();
    wait_until("no server outlives the daemon", || servers() == 0);
}

#[test]
fn a_call_that_takes_too_long_is_given_up_at_the_server_too() {
    let home = over_stdio_with("timeoutSeconds: 1");
    let daemon = Daemon::serving(&home);
    home.ask("a", "call hang");
    let said = last_result(&home, "a");
    assert!(said.contains("did not answer within 1 s"), "{said}");
    daemon.log().wait_for("the server is notified", |line| {
        message(line) == "given up: hang"
    });
    assert_eq!(home.ask("a", "call echo again"), "so: echo: again");
}

#[test]
fn pending_call_is_answered_before_its_connection_restarts() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    let file = home.project().join("go");
    let asked = format!("call linger {}", file.display());
    let asking = home.start_gdn(&["send", "--instance", "a", &asked]);
    let is_called = || {
        let ps = home.ps();
        let connector = ps.iter().find(|it| it["role"] == "connector");
        connector.is_some_and(|it| it["state"] == "processing")
    };
    wait_until("the server is called", is_called);
    let yaml = std::fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.write(
        "project/goondan.yaml",
        &format!("{yaml}    timeoutSeconds: 77\n"),
    );
    // It waits for the connector.
    let reloading = home.start_gdn(&["reload"]);
    daemon.log().wait_for("its connector is to stop", |line| {
        message(line) == "asked to stop" && line["connection"] == "server"
    });
    home.write("project/go", "");
    asking.wait().exits(0).prints(&["so: it is there"]);
    assert_eq!(home.ask("a", "call echo again"), "so: echo: again");
    drop(reloading.wait());
    daemon.stop();
}

#[test]
fn call_of_a_killed_agent_is_canceled_at_server_and_not_resent() {
    let home = over_stdio();
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--instance", "a", "call hang"]);
    daemon
        .log()
        .wait_for("the server is asked", |line| message(line) == "it hangs");
    processes::signal(home.running(AGENT)[0].pid, Signal::SIGKILL);
    asking.wait().exits(0);
    let said = last_result(&home, "a");
    assert!(said.contains("E_TOOL_INTERRUPTED"), "{said}");
    daemon.log().wait_for("the server is notified", |line| {
        message(line) == "given up: hang"
    });
    assert_eq!(daemon.log().saying("it hangs").len(), 1);
}

#[test]
fn http_mcp_server_gets_its_token_and_a_wrong_one_is_reported() {
    let server = HttpServer::start(TOKEN);
    let connection = |token: &str| {
        format!(
            "  config: {{url: \"{}\", headers: {{X-Team: blue}}}}\n  secrets: {{token: {{value: {token}}}}}",
            server.url()
        )
    };
    let home = Home::new(&project(&connection("wrong")));
    let daemon = Daemon::serving(&home);
    wait_until("the reason is shown", || {
        detail(&home).contains("trying again")
    });
    let told = detail(&home);
    assert!(
        told.contains("failed to connect to") && !told.contains("rmcp"),
        "{told}"
    );
    home.ask("a", "call echo x");
    assert!(
        last_result(&home, "a").contains("E_UNAVAILABLE"),
        "{}",
        last_result(&home, "a")
    );

    home.write(
        "project/goondan.yaml",
        &home.filled_in(&project(&connection(TOKEN))),
    );
    home.gdn(&["reload"]).exits(0);
    wait_until("it is there", || detail(&home) == "MCP server double 1.2");
    assert_eq!(home.ask("a", "call echo x"), "so: echo: x");
    let log = daemon.stop();
    assert!(!format!("{:?}", log.lines()).contains(TOKEN));
}

#[test]
fn connection_needs_exactly_one_of_command_and_url() {
    for config in ["{}", "{command: [x], url: \"http://localhost/mcp\"}"] {
        let home = Home::new(&project(&format!("  config: {config}")));
        let told = home.gdn(&["validate"]).exits(6);
        told.tells(&["exactly one of `command` and `url`"]);
    }
}

#[test]
fn sup_4_mcp_server_without_program_is_parked_and_calls_fail() {
    let home = Home::new(&project("  config: {command: [./server]}"));
    // A program that is missing is a problem of the configuration, so its interpreter is.
    home.write_program("project/server", "#!/no/such/interpreter\n");
    let daemon = Daemon::serving(&home);
    wait_until("it is parked", || detail(&home).starts_with("parked"));
    let why = detail(&home);
    assert!(
        why.contains("`./server` cannot be started: No such file") && why.contains("gdn restart"),
        "{why}"
    );
    home.gdn(&["status"]).exits(16).tells(&["parked"]);
    home.gdn(&["doctor"])
        .exits(0)
        .prints(&["something needs attention"]);
    home.ask("a", "call echo x");
    let result = last_result(&home, "a");
    assert!(result.contains("parked"), "{result}");
    // A person's restart retries it.
    let server = home.project().join("server");
    std::fs::remove_file(&server).unwrap();
    std::os::unix::fs::symlink(mcp::program(), server).unwrap();
    home.gdn(&["restart"]).exits(0);
    wait_until("it is there", || detail(&home) == "MCP server double 1.2");
    drop(daemon);
}

#[test]
fn prov_1_mcp_server_that_must_be_downloaded_names_the_next_command() {
    let home = Home::new(&project("  config: {command: [./npx, -y, '@a/b']}"));
    home.write_program("project/npx", "#!/bin/sh\nsleep 60\n");
    let daemon = Daemon::serving(&home);
    wait_until("it is parked", || detail(&home).starts_with("parked"));
    let why = detail(&home);
    assert!(
        why.contains("gdn workspace permission allow packages --project")
            && why.contains("npm install @a/b"),
        "{why}"
    );
    // Installed in the project, it starts.
    std::fs::create_dir_all(home.project().join("node_modules/@a/b")).unwrap();
    let npx = home.project().join("npx");
    std::fs::remove_file(&npx).unwrap();
    std::os::unix::fs::symlink(mcp::program(), npx).unwrap();
    home.gdn(&["restart"]).exits(0);
    wait_until("it is there", || detail(&home) == "MCP server double 1.2");
    drop(daemon);
}

#[test]
fn prov_1_mcp_server_that_fails_is_quoted() {
    let home = Home::new(&project("  config: {command: [./server]}"));
    let script = "#!/bin/sh\necho starting >&2\necho 'Error: no such board' >&2\nexit 3\n";
    home.write_program("project/server", script);
    let daemon = Daemon::serving(&home);
    wait_until("it says why", || {
        detail(&home).contains("exited with code 3: Error: no such board")
    });
    drop(daemon);
}
