//! Goal: a package's module can access only what the package requests and a person has granted,
//! within the limits of its agent (`PKG-3`).
//!
//! Method: the tool of an installed package tries hosts, paths and secrets with the real programs;
//! the agent's own sandbox allows more than the package's grant, and a `bash` command succeeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use goondan_tests::tree::{FileEntry, snapshot};
use goondan_tests::{Home, needs};

/// Serves a file over HTTP, prints its port, and ends with the test.
const SERVER: &str = "import http.server\n\
    class Found(http.server.BaseHTTPRequestHandler):\n    \
        def do_GET(self):\n        \
            self.send_response(200); self.end_headers(); self.wfile.write(b'reached')\n    \
        def log_message(self, *_): pass\n\
    server = http.server.HTTPServer(('127.0.0.1', 0), Found)\n\
    print(server.server_port, flush=True)\n\
    server.serve_forever()\n";

/// A Python tool that runs the commands it receives in a shell.
const TOOL: &str = "import json, subprocess, sys\n\
    for line in sys.stdin:\n    \
        call = json.loads(line)\n    \
        if call.get('type') != 'call': continue\n    \
        ran = subprocess.run(['sh', '-c', call['input']['command']], capture_output=True, text=True)\n    \
        said = (ran.stdout + ran.stderr).strip()\n    \
        print(json.dumps({'type': 'result', 'id': call['id'], 'output': f'{ran.returncode} {said}'}), flush=True)\n";

const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: shop}
spec:
  version: 1.0.0
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: main}
spec:
  modelConfig: {modelRef: Model/scripted}
  tools: [{kind: Tool, name: bash, package: "@goondan/base"}]
  sandbox: {read: ["HOME/data"], network: {allow: ["127.0.0.1:ONE", "127.0.0.1:TWO"]}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: scripted}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: "^package (?P<command>.*)$", step: 1}
        call: [{tool: words__try, args: {command: "${command}"}}]
      - when: {user: "^own (?P<command>.*)$", step: 1}
        call: [{tool: bash__exec, args: {command: "${command}"}}]
      - {when: {result: "(?P<said>(?s:.*))"}, say: "${said}"}
"#;

/// True if the machine has the programs that these tests need.
fn can_run() -> bool {
    needs::program("python3") && needs::program("curl") && needs::sandbox("full")
}

struct Server {
    process: std::process::Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        use std::io::BufRead as _;
        let mut process = Command::new("python3")
            .args(["-c", SERVER])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        Self {
            process,
            port: line.trim().parse().unwrap(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Packs a version of the package, which requests `permissions`.
fn pack(home: &Home, version: &str, permissions: &str) {
    let yaml = format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: words}}\nspec: {{version: {version}{permissions}}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: words}}\nspec:\n  entry: try.py\n  exports:\n    \
         - {{name: try, description: Tries., parameters: {{type: object}}}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: shell}}\nspec: {{builtin: bash}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Connector\nmetadata: {{name: program}}\nspec: {{entry: try.py}}\n"
    );
    home.write("package/goondan.yaml", &yaml);
    home.write("package/try.py", TOOL);
    let packed = Command::new("tar")
        .args(["-czf", "words.tgz", "package"])
        .current_dir(home.path())
        .status()
        .unwrap();
    assert!(packed.success());
}

fn project(one: u16, two: u16) -> Home {
    let yaml = PROJECT
        .replace("ONE", &one.to_string())
        .replace("TWO", &two.to_string());
    let home = Home::new(&yaml);
    let own = yaml.replace("HOME", home.path().to_str().unwrap());
    home.write("project/goondan.yaml", &own);
    home.write("data/open/note", "the note");
    home.write("data/closed/note", "another note");
    home
}

fn change(home: &Home, from: &str, to: &str) {
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    assert!(yaml.contains(from), "{yaml}");
    home.write("project/goondan.yaml", &yaml.replace(from, to));
}

/// Snapshot of the project and the store, to detect changes.
fn all(home: &Home) -> [BTreeMap<PathBuf, FileEntry>; 2] {
    let keeps = |path: &std::path::Path| path.file_name().is_none_or(|it| it != ".trees");
    let packages = home.state_root().join("packages");
    let mut kept = snapshot(&packages, keeps);
    kept.extend(snapshot(&packages.join(".trees"), |_| true));
    [snapshot(&home.project(), |_| true), kept]
}

#[test]
fn pkg_3_package_tool_reaches_only_granted_resources() {
    if !can_run() {
        return;
    }
    let (one, two) = (Server::start(), Server::start());
    let home = project(one.port, two.port);
    let data = home.path().join("data");
    let asked = format!(
        ", permissions: {{hosts: [\"127.0.0.1:{}\"], read: [\"{}\"]}}",
        one.port,
        data.join("open").display()
    );
    pack(&home, "1.0.0", &asked);
    home.gdn(&["package", "add", "../words.tgz", "--grant"])
        .exits(0)
        .prints(&[
            "+ words 1.0.0",
            &format!("    + hosts: 127.0.0.1:{}", one.port),
            "    + read: ",
        ]);
    change(
        &home,
        "\"@goondan/base\"}]",
        "\"@goondan/base\"}, {kind: Tool, name: words, package: words}]",
    );
    home.gdn(&["validate"]).exits(0);
    home.gdn(&["run"]).exits(0);
    let say = |who: &str, command: &str| home.ask("main", &format!("{who} {command}"));

    let fetch = |server: &Server| format!("curl -sSf http://127.0.0.1:{}/", server.port);
    assert_eq!(say("package", &fetch(&one)), "0 reached");
    assert!(say("own", &fetch(&two)).contains("reached"));
    let refused = say("package", &fetch(&two));
    assert!(!refused.contains("reached"), "{refused}");

    let cat = |of: &str| format!("cat {}/{of}/note", data.display());
    assert_eq!(say("package", &cat("open")), "0 the note");
    assert!(say("own", &cat("closed")).contains("another note"));
    let refused = say("package", &cat("closed"));
    assert!(!refused.contains("another note"), "{refused}");
    home.gdn(&["package", "why", "words"])
        .exits(0)
        .prints(&["granted permissions:", "+ hosts: 127.0.0.1:"]);
}

#[test]
fn pkg_3_a_package_that_asks_for_nothing_reaches_nothing() {
    if !can_run() {
        return;
    }
    let server = Server::start();
    let home = project(server.port, server.port);
    pack(&home, "1.0.0", "");
    home.gdn(&["package", "add", "../words.tgz"]).exits(0);
    let lock = fs::read_to_string(home.project().join("goondan.lock")).unwrap();
    assert!(!lock.contains("granted"), "{lock}");
    change(
        &home,
        "\"@goondan/base\"}]",
        "\"@goondan/base\"}, {kind: Tool, name: words, package: words}]",
    );
    home.gdn(&["run"]).exits(0);
    let fetch = format!("curl -sSf http://127.0.0.1:{}/", server.port);
    let told = home.ask("main", &format!("own {fetch}"));
    assert!(told.contains("reached"), "{told}");
    for command in [
        fetch,
        format!("cat {}/data/open/note", home.path().display()),
    ] {
        let reply = home.ask("main", &format!("package {command}"));
        assert!(
            !reply.contains("reached") && !reply.contains("the note"),
            "{reply}"
        );
    }
}

#[test]
fn pkg_3_update_needing_more_rights_changes_nothing_unapproved() {
    let home = project(1, 2);
    pack(
        &home,
        "1.0.0",
        ", permissions: {hosts: [a.example.org, b.example.org]}",
    );
    let before = snapshot(&home.project(), |_| true);
    home.gdn(&["package", "add", "../words.tgz"])
        .exits(2)
        .tells(&[
            "  words 1.0.0",
            "    + hosts: a.example.org, b.example.org",
            "confirmation required: Grant `words 1.0.0` hosts a.example.org, b.example.org?",
            "package add ../words.tgz --grant",
        ]);
    assert_eq!(snapshot(&home.project(), |_| true), before);
    assert!(!home.state_root().join("packages/words@1.0.0").exists());
    home.gdn(&["package", "add", "../words.tgz", "--grant"])
        .exits(0);
    let listed = home.gdn_json(&["package", "list"]);
    let hosts = &listed["packages"][0]["granted"]["hosts"];
    assert_eq!(hosts[1], "b.example.org");

    // More permissions of one kind, and fewer of another.
    pack(
        &home,
        "1.1.0",
        ", permissions: {hosts: [a.example.org], secrets: [token]}",
    );
    let before = all(&home);
    home.gdn(&["package", "update"]).exits(2).tells(&[
        "    + secrets: token",
        "    - hosts: b.example.org",
        "package update --grant",
    ]);
    assert_eq!(all(&home), before);
    home.gdn(&["package", "update", "--grant"])
        .exits(0)
        .prints(&[
            "~ words 1.0.0 → 1.1.0",
            "    + secrets: token",
            "    - hosts: b.example.org",
        ]);

    // Fewer permissions need no approval, and adding one again does.
    pack(&home, "1.2.0", "");
    home.gdn(&["package", "update"])
        .exits(0)
        .prints(&["    - hosts: a.example.org", "    - secrets: token"]);
    pack(&home, "1.3.0", ", permissions: {hosts: [a.example.org]}");
    home.gdn(&["package", "update"]).exits(2);
}

#[test]
fn pkg_3_ungranted_permission_fails_loading_the_project() {
    let home = project(1, 2);
    pack(&home, "1.0.0", ", permissions: {secrets: [token]}");
    home.gdn(&["package", "add", "../words.tgz", "--grant"])
        .exits(0);
    home.gdn(&["validate"]).exits(0);

    // A lockfile from before grants.
    let lock = fs::read_to_string(home.project().join("goondan.lock")).unwrap();
    let mut read: serde_json::Value = serde_json::from_str(&lock).unwrap();
    let package = read["packages"]["words"].as_object_mut().unwrap();
    assert!(package.remove("granted").is_some());
    home.write("project/goondan.lock", &read.to_string());
    home.gdn(&["validate"]).exits(6).tells(&[
        "E_CONFIG_NOT_GRANTED",
        "package `words` needs permissions that were not granted: secrets token",
        "gdn package install",
    ]);
    home.gdn(&["run"]).exits(6);
    home.gdn(&["package", "install", "--frozen-lockfile"])
        .exits(10)
        .tells(&[
            "`words 1.0.0` requests permissions that goondan.lock does not grant: secrets token",
        ]);
    home.gdn(&["package", "install", "--grant"]).exits(0);
    assert_eq!(
        fs::read_to_string(home.project().join("goondan.lock")).unwrap(),
        lock
    );

    // Resources that give the package a secret it does not request.
    let other = "\n---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {name: given}\nspec:\n  \
                 connectorRef: {kind: Connector, name: program, package: words}\n  \
                 secrets: {token: {value: a-token}, key: {value: a-key}}\n";
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    let yaml = yaml.replace(
        "\"@goondan/base\"}]",
        "\"@goondan/base\"}, {kind: Tool, name: shell, package: words}]",
    );
    home.write("project/goondan.yaml", &(yaml + other));
    let refused = home.gdn(&["validate"]).exits(6);
    assert!(
        !refused.stderr.contains("the secret `token`"),
        "{refused:?}"
    );
    refused.tells(&[
        "Tool `shell` of package `words` is the built-in tool `bash`, which the package's permissions do not include",
        "Connection `given` passes the secret `key` to package `words`, whose permissions do not include it",
    ]);
}
