//! Publishing packages: packed, published, audited (`PKG-1`, `PKG-3`).

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::registry::{Registry, RegistryFault};
use goondan_tests::{CommandOutput, Home};
use serde_json::json;

/// A package that is its maintainers' project.
const PACKAGE: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@acme/words"}
spec:
  version: 1.0.0
  access: public
  registries:
    - url: "REGISTRY"
  dependencies:
    - {name: letters, version: "^2"}
---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: words}
spec:
  entry: bin/say
  exports:
    - {name: say, description: Says a word., parameters: {type: object}}
"#;

const USER: &str = "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {name: user}\nspec:\n  version: 1.0.0\n  \
                    registries:\n    - url: \"REGISTRY\"\n";

fn maker(registry: &Registry) -> Home {
    let home = Home::new(&PACKAGE.replace("REGISTRY", &registry.url()));
    home.write_program("project/bin/say", "#!/bin/sh\n");
    home.write("project/.gitignore", "*.log\n/.env\n");
    home.write("project/.env", "KEY=never-given-away\n");
    home.write("project/a.log", "noise");
    home.write(
        "project/goondan.lock",
        r#"{"lockfileVersion": 1, "packages": {}}"#,
    );
    home
}

fn with_token(home: &Home, registry: &Registry, args: &[&str]) -> CommandOutput {
    let mut command = home.command(&bin(GDN), args);
    command
        .env("GOONDAN_REGISTRY", registry.url())
        .env("GOONDAN_REGISTRY_TOKEN", "npm_publisher");
    RunningProgram::start(command).wait()
}

#[test]
fn pkg_1_package_is_packed_published_and_used_by_a_project() {
    let registry = Registry::start();
    let home = maker(&registry);
    let listed = home.gdn(&["package", "pack", "--dry-run"]).exits(0);
    listed.prints(&[
        "bin/say",
        "goondan.yaml",
        "package.json",
        "@acme/words 1.0.0: 3 files",
    ]);
    let file = home.project().join("acme-words-1.0.0.tgz");
    assert!(!file.exists());
    let packed = home.gdn_json(&["package", "pack"]);
    let first = fs::read(&file).unwrap();
    home.write_program("project/bin/say", "#!/bin/sh\n");
    assert_eq!(
        home.gdn_json(&["package", "pack"])["integrity"],
        packed["integrity"]
    );
    assert_eq!(fs::read(&file).unwrap(), first);

    // Without a confirmation or a token, nothing is sent.
    home.gdn(&["package", "publish", "--yes"])
        .exits(10)
        .tells(&["no token for", "gdn secret set registry 127.0.0.1-"]);
    with_token(&home, &registry, &["package", "publish"])
        .exits(2)
        .tells(&["This cannot be undone."]);
    with_token(&home, &registry, &["package", "publish", "--dry-run"]).exits(0);
    assert!(registry.received().is_empty());

    let args = ["package", "publish", "--yes", "--tag", "next"];
    with_token(&home, &registry, &args)
        .exits(0)
        .prints(&["+ @acme/words 1.0.0 at http://127.0.0.1"]);
    let put = registry.put().remove(0);
    assert_eq!(registry.asked(), ["/v1/@acme%2fwords"]);
    assert_eq!(put["dist-tags"], json!({"next": "1.0.0"}));
    assert_eq!(put["access"], "public");
    let said = &put["versions"]["1.0.0"];
    assert_eq!(said["dependencies"], json!({"letters": "^2"}));
    assert_eq!(said["dist"]["integrity"], packed["integrity"]);
    let sent = &put["_attachments"]["@acme/words-1.0.0.tgz"];
    let sent = STANDARD.decode(sent["data"].as_str().unwrap()).unwrap();
    assert_eq!(sent, first);

    // Another project installs the archive and its dependencies.
    registry.publish("letters", "2.1.0", &[], "letters");
    let user = Home::new(&USER.replace("REGISTRY", &registry.url()));
    fs::copy(&file, user.path().join("words.tgz")).unwrap();
    user.gdn(&["package", "add", "../words.tgz"])
        .exits(0)
        .prints(&["+ @acme/words 1.0.0", "+ letters 2.1.0"]);
}

#[test]
fn sec_2_packages_with_secrets_are_not_published() {
    let registry = Registry::start();
    let home = maker(&registry);
    let mut command = home.command(&bin(GDN), &["secret", "set", "service", "token"]);
    command.stdin(std::process::Stdio::piped());
    let mut setting = RunningProgram::start(command);
    setting.say("a-value-of-the-store");
    setting.wait().exits(0);
    home.gdn(&["package", "pack", "--dry-run"]).exits(0);

    let refused = |file: &str, text: &str, why: &str| {
        home.write(&format!("project/{file}"), text);
        for args in [["package", "pack"], ["package", "publish"]] {
            with_token(&home, &registry, &args)
                .exits(10)
                .tells(&[file, why]);
        }
        fs::remove_file(home.project().join(file)).unwrap();
    };
    refused("deploy/.env.local", "A=b", "usually contain secrets");
    refused("tls/server.key", "k", "usually contain secrets");
    refused(
        "docs/notes.md",
        "it is a-value-of-the-store.",
        "a value from the secret store",
    );
    std::os::unix::fs::symlink("/etc/passwd", home.project().join("users")).unwrap();
    home.gdn(&["package", "pack"])
        .exits(10)
        .tells(&["neither a file nor a directory"]);
    assert!(registry.received().is_empty());
    assert!(!home.project().join("acme-words-1.0.0.tgz").exists());
}

#[test]
fn pkg_3_audit_lists_known_advisories_for_versions_in_use() {
    let registry = Registry::start();
    registry.publish("letters", "2.1.0", &[], "letters");
    registry.advise(json!({}));
    let home = Home::new(&USER.replace("REGISTRY", &registry.url()));
    home.gdn(&["package", "add", "letters"]).exits(0);
    home.gdn(&["package", "audit"])
        .exits(0)
        .prints(&["1 package: no known advisories"]);
    let asked = registry.received().pop().unwrap();
    assert_eq!(asked.body, json!({"letters": ["2.1.0"]}));

    registry.advise(json!({"letters": [
        {"id": 1, "title": "reads \u{1b}[31mtoo much", "severity": "high", "url": "https://h/1",
         "vulnerable_versions": "<2.2.0"},
        {"id": 2, "title": "is long ago", "severity": "low", "url": "https://h/2", "vulnerable_versions": "<2"},
    ]}));
    let ran = home
        .gdn(&["package", "audit"])
        .exits(16)
        .prints(&["letters", "high", "too much"]);
    assert!(!ran.stdout.contains("long ago") && !ran.stdout.contains('\u{1b}'));
    let json = home.gdn(&["--json", "package", "audit"]);
    let output = serde_json::from_str::<serde_json::Value>(json.stdout.lines().next().unwrap());
    assert_eq!(
        output.unwrap()["advisories"][0]["vulnerableVersions"],
        "<2.2.0"
    );
    registry.lie(RegistryFault::Fails);
    home.gdn(&["package", "audit"])
        .exits(8)
        .tells(&["answered 500"]);
}
