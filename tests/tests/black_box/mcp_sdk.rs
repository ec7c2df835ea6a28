//! Goal: goondan can log in to a third-party MCP server with a third-party login, and use it
//! (`SYS-4`).
//!
//! Method: the example server of the protocol's own JavaScript SDK, with its demo authorization
//! server, if [`needs::MCP_SDK_VAR`] contains the SDK's path.

use std::path::Path;
use std::process::Command;

use goondan_tests::server::{ServerProcess, free_ports};
use goondan_tests::{Daemon, Home, needs, wait_until};

use super::mcp::last_result;
use super::oauth::{address_of, are_nowhere, visit};

/// An agent that makes calls on order.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^greet (?P<name>.*) at length$', step: 1}
        call: [{tool: kit__multi-greet, args: {name: "${name}"}}]
      - when: {user: '^greet nobody$', step: 1}
        call: [{tool: kit__greet, args: {}}]
      - when: {user: '^greet (?P<name>.*)$', step: 1}
        call: [{tool: kit__greet, args: {name: "${name}"}}]
      - when: {user: '^files$', step: 1}
        call: [{tool: kit__list-files, args: {}}]
      - when: {user: '^read$', step: 1}
        call: [{tool: kit__read_resource, args: {uri: "https://example.com/greetings/default"}}]
      - when: {user: '^prompt$', step: 1}
        call: [{tool: kit__get_prompt, args: {name: greeting-template, arguments: {name: Ada}}}]
      - say: "so: ${result}"
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: kit}
spec: {builtin: mcp}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [Tool/kit]
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: server}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  config: {url: 'URL', auth: oauth}
"#;

/// The example server, and its authorization server.
struct Example {
    _server: ServerProcess,
    url: String,
}

impl Example {
    fn start(script: &Path, flags: &[&str]) -> Self {
        let [mcp, auth] = free_ports();
        let mut node = Command::new("node");
        node.arg(script).args(flags);
        node.env("MCP_PORT", mcp.to_string());
        node.env("MCP_AUTH_PORT", auth.to_string());
        Self {
            _server: ServerProcess::start(&mut node, "MCP Streamable HTTP Server listening"),
            url: format!("http://localhost:{mcp}/mcp"),
        }
    }
}

/// Consents, and returns the redirect address.
fn consent(address: &str) -> String {
    let browser = ["-s", "-o", "/dev/null", "-w", "%{redirect_url}", address];
    let went = Command::new("curl").args(browser).output().unwrap();
    String::from_utf8(went.stdout).unwrap()
}

#[test]
fn sys_4_mcp_sdk_example_server_login_and_tool_calls_work() {
    let Some(script) = needs::mcp_example("simpleStreamableHttp.js") else {
        return;
    };
    if !needs::program("node") || !needs::program("curl") {
        return;
    }
    for flags in [&["--oauth"][..], &["--oauth", "--oauth-strict"]] {
        let server = Example::start(&script, flags);
        let home = Home::new(&PROJECT.replace("URL", &server.url));
        let daemon = Daemon::serving(&home);
        let sending = home.start_gdn(&["send", "--instance", "a", "greet Ada"]);
        sending.wait_for_stderr("oauth login server");
        let login = home.start_gdn(&["oauth", "login", "server"]);
        let back = consent(&address_of(&login));
        assert_eq!(visit(&back), 200, "{back}");
        login.wait().exits(0);
        sending.wait().exits(0).prints(&["so: Hello, Ada!"]);
        // Other features: notifications during a call, links, a refusal, a resource, a prompt.
        assert_eq!(home.ask("b", "greet Bo at length"), "so: Good morning, Bo!");
        assert!(home.ask("b", "files").contains("file:///example/file1.txt"));
        home.ask("b", "greet nobody");
        assert!(last_result(&home, "b").contains("E_TOOL_INVALID_ARGS"));
        assert!(home.ask("b", "read").contains("Hello, world!"));
        assert!(home.ask("b", "prompt").contains("Please greet Ada"));
        // Its tokens expire, and it does not renew any.
        let shown = home.gdn_json(&["oauth", "show", "server"]);
        assert_eq!(shown["state"], "active", "{shown}");
        assert_eq!(shown["renewable"], false, "{shown}");
        // After a restart the same token is used without a new login.
        daemon.kill();
        let daemon = Daemon::start(&home);
        wait_until("the server is reached again", || {
            home.ask("c", "greet Cy") == "so: Hello, Cy!"
        });
        let (_, code) = back.split_once("code=").unwrap();
        let code = code.split('&').next().unwrap().to_owned();
        are_nowhere(&home, &[code], &daemon.log().lines());
    }
}
