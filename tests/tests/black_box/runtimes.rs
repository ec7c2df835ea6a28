//! A project whose modules no program on this machine can run is reported before its first turn.

use std::process::Command;

use goondan_tests::Home;
use goondan_tests::binaries::bin;
use goondan_tests::home::{CommandOutput, GDN, RunningProgram};

const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: modules}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: "done"}]}}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: slug}
spec:
  entry: tools/slug.ts
  exports: [{name: of, description: A slug., parameters: {type: object}}]
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: count}
spec:
  entry: tools/count.py
  exports: [{name: of, description: A number., parameters: {type: object}}]
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: plain}
spec:
  entry: tools/plain
  exports: [{name: of, description: Itself., parameters: {type: object}}]
---
apiVersion: goondan.ai/v1
kind: Extension
metadata: {name: lab}
spec: {entry: extensions/lab.mts}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: issues}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  config: {command: [no-such-server, --stdio]}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [{ref: Tool/slug}, {ref: Tool/count}, {ref: Tool/plain}]
  extensions: [{ref: Extension/lab}]
"#;

/// A project with all its files, on a machine whose `PATH` contains only a node of this version.
fn home(node: &str) -> Home {
    let home = Home::new(PROJECT);
    for file in [
        "tools/slug.ts",
        "tools/count.py",
        "tools/plain",
        "extensions/lab.mts",
    ] {
        home.write(&format!("project/{file}"), "");
    }
    install(&home, "node", &format!("echo {node}"));
    home
}

fn install(home: &Home, program: &str, does: &str) {
    home.write_program(&format!("bin/{program}"), &format!("#!/bin/sh\n{does}\n"));
}

/// Runs `gdn` and its children with only the home's own programs in `PATH`.
fn gdn(home: &Home, args: &[&str]) -> CommandOutput {
    let mut command: Command = home.command(&bin(GDN), args);
    command.env("PATH", home.path().join("bin"));
    RunningProgram::start(command).wait()
}

#[test]
fn file_without_runtime_fails_validate_and_run_with_a_remedy() {
    let home = home("v20.11.0");
    let said = [
        "E_CONFIG_NO_RUNTIME",
        "`tools/slug.ts` is TypeScript, which the node 20.11 in PATH is too old for",
        "help: install bun, deno or node 22.6 or newer",
        "--> goondan.yaml:15:10",
        "15 |   entry: tools/slug.ts",
        "`tools/count.py` is Python, and nothing that runs it is in PATH",
        "help: install python3",
        "`tools/plain` cannot be executed",
        "help: make the file executable (chmod +x)",
        "`extensions/lab.mts` is TypeScript",
        "no program `no-such-server` in PATH",
    ];
    gdn(&home, &["validate"]).exits(6).tells(&said);
    gdn(&home, &["run"]).exits(6).tells(&said);
    // A machine that only validates it needs none of this.
    let ran = gdn(&home, &["validate", "--other-machine"]).exits(0);
    ran.prints(&["valid"]);

    // With all programs installed, the project is valid and runs.
    install(&home, "node", "echo v22.6.0");
    install(&home, "python3", "exit 1");
    install(&home, "no-such-server", "exit 1");
    home.write_program("project/tools/plain", "#!/bin/sh\n");
    gdn(&home, &["validate"]).exits(0);
    // The server does not speak MCP.
    gdn(&home, &["run"]).exits(16);
    gdn(&home, &["shutdown"]).exits(0);
}
