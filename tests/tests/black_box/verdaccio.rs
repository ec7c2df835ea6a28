//! A third-party registry: `verdaccio`, if installed (`PKG-1`).

use std::fs;
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::server::{ServerProcess, free_ports};
use goondan_tests::{CommandOutput, Home, needs};
use serde_json::Value;

const MAKER: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@acme/words"}
spec: {version: VERSION, access: public}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: words}
spec:
  entry: bin/say
  exports: [{name: say, description: Says a word., parameters: {type: object}}]
"#;

const USER: &str =
    "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: user}\nspec:\n  version: 1.0.0\n";

/// Only locally published packages; clients may publish once they have a name.
const CONFIG: &str = "storage: ./storage\n\
    auth: {htpasswd: {file: ./htpasswd}}\n\
    uplinks: {}\n\
    packages: {'**': {access: $all, publish: $authenticated}}\n\
    log: {type: stdout, format: json, level: http}\n";

struct Verdaccio {
    _server: ServerProcess,
    url: String,
}

impl Verdaccio {
    fn start(home: &Home) -> Self {
        home.write("registry/config.yaml", CONFIG);
        let dir = home.path().join("registry");
        let [port] = free_ports();
        let url = format!("http://127.0.0.1:{port}");
        let mut verdaccio = Command::new("verdaccio");
        verdaccio.args(["--config", "config.yaml", "--listen", &url]);
        verdaccio.current_dir(&dir).env("HOME", &dir);
        Self {
            _server: ServerProcess::start(&mut verdaccio, "http address"),
            url,
        }
    }

    /// Creates a user, and returns its token.
    fn token(&self) -> String {
        let answered = Command::new("curl")
            .args(["-sSf", "-X", "PUT", "-H", "content-type: application/json"])
            .args(["-d", r#"{"name":"ada","password":"a-long-password"}"#])
            .arg(format!("{}/-/user/org.couchdb.user:ada", self.url))
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&answered.stdout).unwrap();
        answer["token"].as_str().unwrap().to_owned()
    }
}

fn run(home: &Home, registry: &Verdaccio, token: Option<&str>, args: &[&str]) -> CommandOutput {
    let mut command = home.command(&bin(GDN), args);
    command.env("GOONDAN_REGISTRY", &registry.url);
    command.envs(token.map(|token| ("GOONDAN_REGISTRY_TOKEN", token)));
    RunningProgram::start(command).wait()
}

#[test]
fn pkg_1_third_party_registry_stores_and_returns_packages() {
    if !needs::optional_program("verdaccio") || !needs::program("curl") {
        return;
    }
    let maker = Home::new(&MAKER.replace("VERSION", "1.0.0"));
    let registry = Verdaccio::start(&maker);
    let token = registry.token();
    maker.write_program("project/bin/say", "#!/bin/sh\necho one\n");
    let publish = ["package", "publish", "--yes"];
    run(&maker, &registry, None, &publish).exits(10);
    run(&maker, &registry, Some(&token), &publish)
        .exits(0)
        .prints(&["+ @acme/words 1.0.0 at "]);
    run(&maker, &registry, Some(&token), &publish)
        .exits(10)
        .tells(&["has @acme/words 1.0.0 already"]);

    let user = Home::new(USER);
    run(&user, &registry, None, &["package", "add", "@acme/words"])
        .exits(5)
        .tells(&[": it was published"]);
    let add = ["package", "add", "@acme/words", "--min-release-age", "0"];
    run(&user, &registry, None, &add)
        .exits(0)
        .prints(&["+ @acme/words 1.0.0"]);
    let stored = user.state_root().join("packages/@acme/words@1.0.0/bin/say");
    assert_eq!(fs::read_to_string(stored).unwrap(), "#!/bin/sh\necho one\n");

    maker.write("project/goondan.yaml", &MAKER.replace("VERSION", "1.1.0"));
    run(&maker, &registry, Some(&token), &publish).exits(0);
    let update = ["package", "update", "--min-release-age", "0"];
    run(&user, &registry, None, &update)
        .exits(0)
        .prints(&["~ @acme/words 1.0.0 → 1.1.0"]);
}
