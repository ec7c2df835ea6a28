//! MCP servers in practice: a malformed tool, schema or part of a result affects nothing else
//! (PROV-1).

use goondan_tests::{Daemon, Home, needs, wait_until};

use crate::mcp::{detail, last_result};

/// A server with valid tools and results, except for one.
const SERVER: &str = r##"
import json, sys
mode = sys.argv[1]
def tool(name, **more):
    return {"name": name, "description": "d", "inputSchema": {"type": "object"}, **more}
odd = {
    "schema-null": tool("odd", inputSchema=None),
    "schema-text": tool("odd", inputSchema="object"),
    "schema-absent": {"name": "odd", "description": "d"},
    "annotations-text": tool("odd", annotations="loud"),
    "hint-text": tool("odd", annotations={"readOnlyHint": "yes"}),
    "title-number": tool("odd", title=5),
    "nameless": {"description": "d", "inputSchema": {"type": "object"}},
    "dangling": tool("odd", inputSchema={"type": "object", "properties": {"f": {"$ref": "#/$defs/none"}}}),
    "pattern": tool("odd", inputSchema={"type": "object", "properties": {"f": {"pattern": "("}}}),
    "description-null": tool("odd", description=None),
    "output-null": tool("odd", outputSchema=None),
    "far": tool("odd", inputSchema={"type": "object", "properties": {"f": {"$ref": "http://127.0.0.1:9/s.json"}}}),
}
tools = [tool("fine"), odd[mode]]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "box", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": tools}
    elif asked["method"] == "tools/call":
        name = asked["params"]["name"]
        parts = [{"type": "text", "text": "ran " + name}, {"type": "hologram", "depth": 3}]
        result = {"content": parts}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"##;

fn home(mode: &str) -> Home {
    let home = Home::without_project();
    home.write("project/box.py", SERVER);
    home.write(
        "project/goondan.yaml",
        &format!(
            r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: main}}
spec:
  provider: scripted
  options:
    rules:
      - when: {{user: '^call fine$', step: 1}}
        call: [{{tool: box__fine, args: {{f: 1}}}}]
      - when: {{user: '^call odd$', step: 1}}
        call: [{{tool: box__odd, args: {{f: 1}}}}]
      - say: "so: ${{result}}"
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: box}}
spec: {{builtin: mcp}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/main}}, tools: [Tool/box]}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: box}}
spec:
  connectorRef: {{kind: Connector, name: mcp, package: "@goondan/base"}}
  config: {{command: [python3, box.py, {mode}], env: {{HOME: {}}}}}
"#,
            home.path().display()
        ),
    );
    home
}

#[test]
fn prov_1_a_malformed_mcp_tool_is_left_out_and_named() {
    if !needs::program("python3") {
        return;
    }
    for (mode, name) in [
        ("schema-null", "odd"),
        ("schema-text", "odd"),
        ("schema-absent", "odd"),
        ("annotations-text", "odd"),
        ("hint-text", "odd"),
        ("title-number", "odd"),
        ("nameless", "tool 1"),
    ] {
        let home = home(mode);
        let daemon = Daemon::serving(&home);
        home.ask("a", "call fine");
        let result = last_result(&home, "a");
        assert!(result.starts_with("ran fine"), "{mode}: {result}");
        assert!(result.contains("hologram"), "{mode}: {result}");
        wait_until("`gdn ps` names the tool", || {
            detail(&home).contains(&format!("left out: {name}"))
        });
        daemon.stop().check(false);
    }
}

#[test]
fn prov_1_a_schema_that_cannot_be_compiled_passes_arguments_on() {
    if !needs::program("python3") {
        return;
    }
    for mode in [
        "far",
        "dangling",
        "pattern",
        "description-null",
        "output-null",
    ] {
        let home = home(mode);
        let daemon = Daemon::serving(&home);
        home.ask("a", "call odd");
        let result = last_result(&home, "a");
        assert!(result.starts_with("ran odd"), "{mode}: {result}");
        daemon.stop().check(false);
    }
}
