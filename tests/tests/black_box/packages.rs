//! Packages: installed from an archive or a folder, used by agents, and refused if they do not
//! match the lockfile (`PKG-1` to `PKG-3`).

#![expect(
    clippy::disallowed_methods,
    reason = "archives, projects, and files that change without goondan"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::tree::snapshot;
use goondan_tests::{Daemon, Home};

/// An agent that answers with the output of a package's tool.
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
  tools: [TOOLS]
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: scripted}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: "say it", step: 1}
        call: [{tool: words__say, args: {}}]
      - {when: {result: "(?P<word>.*)"}, say: "${word}"}
"#;

/// Its tool, as the project refers to it.
const WORDS: &str = r#"{kind: Tool, name: words, package: "@acme/words"}"#;

/// A program that answers every call with the content of a file next to it.
const SAY: &str = "#!/bin/sh\nn=0\nword=$(cat \"$(dirname \"$0\")/word.txt\")\nwhile read -r line; do n=$((n + 1));
echo \"{\\\"type\\\":\\\"result\\\",\\\"id\\\":$n,\\\"output\\\":\\\"$word\\\"}\"; done\n";

fn home() -> Home {
    Home::new(&PROJECT.replace("TOOLS", ""))
}

/// Lets the agent use the tool.
fn refer(home: &Home) {
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.write(
        "project/goondan.yaml",
        &yaml.replace("tools: []", &format!("tools: [{WORDS}]")),
    );
}

fn package(home: &Home, folder: &str, version: &str, word: &str) {
    let yaml = format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: \"@acme/words\"}}\nspec: {{version: {version}}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: words}}\nspec:\n  entry: bin/say\n  exports:\n    \
         - {{name: say, description: Says a word., parameters: {{type: object}}}}\n"
    );
    home.write(&format!("{folder}/goondan.yaml"), &yaml);
    home.write(&format!("{folder}/bin/word.txt"), word);
    home.write_program(&format!("{folder}/bin/say"), SAY);
}

fn pack(home: &Home, folder: &str, archive: &str) {
    let packed = Command::new("tar")
        .args(["-czf", archive, folder])
        .current_dir(home.path())
        .status()
        .unwrap();
    assert!(packed.success());
}

/// Snapshot of the project, to detect changes.
fn project(home: &Home) -> impl PartialEq + std::fmt::Debug + use<> {
    snapshot(&home.project(), |_| true)
}

#[test]
fn pkg_1_package_is_stored_by_scope_and_version_and_tool_works() {
    let home = home();
    package(&home, "package", "1.0.0", "one");
    pack(&home, "package", "words.tgz");
    home.gdn(&["package", "add", "../words.tgz"])
        .exits(0)
        .prints(&["+ @acme/words 1.0.0"]);
    let stored = home.state_root().join("packages/@acme/words@1.0.0");
    assert_eq!(
        fs::read_to_string(stored.join("bin/word.txt")).unwrap(),
        "one"
    );
    let file = fs::metadata(stored.join("bin/word.txt")).unwrap();
    assert!(file.permissions().readonly());
    let lock = fs::read_to_string(home.project().join("goondan.lock")).unwrap();
    assert!(
        lock.contains("sha512-") && lock.contains("\"file:../words.tgz\""),
        "{lock}"
    );

    refer(&home);
    home.gdn(&["validate"]).exits(0);
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("main", "say it"), "one");

    // A different version replaces it, including what runs.
    package(&home, "package", "1.1.0", "two");
    pack(&home, "package", "words-1.1.0.tgz");
    home.gdn(&["package", "add", "../words-1.1.0.tgz"])
        .exits(0)
        .prints(&["~ @acme/words 1.0.0 → 1.1.0"]);
    home.gdn(&["reload"]).exits(0);
    assert_eq!(home.ask("main", "say it"), "two");
    let listed = home.gdn_json(&["package", "list"]);
    assert_eq!(listed["packages"][0]["version"], "1.1.0");
    assert_eq!(listed["packages"][0]["state"], "installed");

    home.gdn(&["package", "remove", "@acme/words"])
        .exits(0)
        .prints(&["- @acme/words 1.1.0"]);
    home.gdn(&["validate"])
        .exits(6)
        .tells(&["the project does not require the package `@acme/words`"]);
}

#[test]
fn pkg_2_a_folder_is_used_as_it_is() {
    let home = home();
    package(&home, "ours", "0.1.0", "live");
    home.gdn(&["package", "add", "../ours"]).exits(0);
    assert!(!home.project().join("goondan.lock").exists());
    refer(&home);
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("main", "say it"), "live");
    home.write("ours/bin/word.txt", "edited");
    home.gdn(&["restart"]).exits(0);
    assert_eq!(home.ask("main", "say it"), "edited");
}

#[test]
fn pkg_3_content_that_differs_from_the_lockfile_is_never_run() {
    let home = home();
    package(&home, "package", "1.0.0", "one");
    pack(&home, "package", "words.tgz");
    home.gdn(&["package", "add", "../words.tgz"]).exits(0);
    refer(&home);
    let trees = home.state_root().join("packages/.trees");

    // A new machine, and the archive has changed meanwhile.
    fs::remove_dir_all(&trees).unwrap();
    package(&home, "package", "1.0.0", "evil");
    fs::rename(home.path().join("words.tgz"), home.path().join("good.tgz")).unwrap();
    pack(&home, "package", "words.tgz");
    home.gdn(&["validate"]).exits(6).tells(&[
        "package `@acme/words` 1.0.0 is not installed on this machine",
        "gdn package install",
    ]);
    let before = project(&home);
    home.gdn(&["package", "install"])
        .exits(10)
        .tells(&["does not match the lockfile: expected SHA-512"]);
    assert_eq!(project(&home), before);
    assert!(!trees.exists());

    // The correct archive again.
    fs::rename(home.path().join("good.tgz"), home.path().join("words.tgz")).unwrap();
    home.gdn(&["package", "install", "--frozen-lockfile"])
        .exits(0);
    home.gdn(&["validate"]).exits(0);

    // A person changes an installed file.
    let word = home
        .state_root()
        .join("packages/@acme/words@1.0.0/bin/word.txt");
    fs::remove_file(&word).unwrap();
    fs::write(&word, "evil").unwrap();
    home.gdn(&["validate"])
        .exits(6)
        .tells(&["does not match the lockfile:"]);
    let listed = home.gdn_json(&["package", "list"]);
    assert_eq!(listed["packages"][0]["state"], "changed");
    home.gdn(&["package", "install"]).exits(0);
    assert_eq!(fs::read_to_string(&word).unwrap(), "one");
    home.gdn(&["validate"]).exits(0);
}

#[test]
fn pkg_3_hostile_archives_change_nothing() {
    let home = home();
    home.gdn(&["shutdown"]);
    let _daemon = Daemon::start(&home);
    let before = project(&home);
    let refused = |made: &dyn Fn(&Path), says: &str| {
        let folder = home.path().join("package");
        drop(fs::remove_dir_all(&folder));
        package(&home, "package", "1.0.0", "one");
        made(&folder);
        pack(&home, "package", "words.tgz");
        home.gdn(&["package", "add", "../words.tgz"])
            .exits(10)
            .tells(&[says]);
        assert_eq!(project(&home), before);
        let trees = home.state_root().join("packages/.trees");
        assert_eq!(fs::read_dir(trees).unwrap().count(), 0, "{says}");
        assert!(!home.state_root().join("packages/@acme").exists());
    };
    refused(
        &|folder| std::os::unix::fs::symlink("/etc/passwd", folder.join("l")).unwrap(),
        "leads out of the tree",
    );
    refused(
        &|folder| std::os::unix::fs::symlink("../../x", folder.join("l")).unwrap(),
        "leads out of the tree",
    );
    refused(
        &|folder| fs::hard_link(folder.join("bin/word.txt"), folder.join("w")).unwrap(),
        "neither",
    );
    refused(
        &|folder| {
            let made = Command::new("mkfifo").arg(folder.join("p")).status();
            assert!(made.unwrap().success());
        },
        "neither",
    );
    refused(
        &|folder| fs::write(folder.join("goondan.yaml"), "kind: Agent\n").unwrap(),
        "is not a goondan package",
    );
    refused(
        &|folder| fs::remove_file(folder.join("goondan.yaml")).unwrap(),
        "has no goondan.yaml and no SKILL.md",
    );
    refused(
        &|folder| {
            let zeros = fs::File::create(folder.join("zeros")).unwrap();
            zeros.set_len(40 << 20).unwrap();
        },
        "much larger than an archive",
    );
    fs::write(home.path().join("words.tgz"), b"\x1f\x8b no archive").unwrap();
    home.gdn(&["package", "add", "../words.tgz"]).exits(10);
    assert_eq!(project(&home), before);
}

#[test]
fn pkg_3_a_frozen_lockfile_is_not_changed() {
    let home = home();
    package(&home, "package", "1.0.0", "one");
    pack(&home, "package", "words.tgz");
    home.gdn(&["package", "add", "../words.tgz"]).exits(0);
    package(&home, "package", "2.0.0", "two");
    pack(&home, "package", "other.tgz");
    let yaml = fs::read_to_string(home.project().join("goondan.yaml")).unwrap();
    home.write(
        "project/goondan.yaml",
        &yaml.replace("words.tgz", "other.tgz"),
    );
    let before = project(&home);
    home.gdn(&["package", "install", "--frozen-lockfile"])
        .exits(10)
        .tells(&["goondan.lock does not match the requirements: it has `@acme/words` 1.0.0"]);
    assert_eq!(project(&home), before);
    home.gdn(&["package", "install"])
        .exits(0)
        .prints(&["~ @acme/words 1.0.0 → 2.0.0"]);
}

#[test]
fn pkg_1_prune_removes_unused_and_keeps_running_or_locked_ones() {
    let home = home();
    let stored = |version: &str| {
        let link = home
            .state_root()
            .join(format!("packages/@acme/words@{version}"));
        link.join("bin/word.txt").exists()
    };
    for (version, word) in [("1.0.0", "one"), ("1.1.0", "two"), ("1.2.0", "three")] {
        package(&home, "package", version, word);
        pack(&home, "package", "words.tgz");
        home.gdn(&["package", "add", "../words.tgz"]).exits(0);
        if version == "1.1.0" {
            refer(&home);
            home.gdn(&["run"]).exits(0);
            assert_eq!(home.ask("main", "say it"), "two");
        }
    }
    // Recent packages are kept.
    home.gdn(&["package", "prune"])
        .exits(0)
        .prints(&["0 packages removed, 3 kept"]);
    home.gdn(&["package", "prune", "--min-age", "0", "--dry-run"])
        .exits(0)
        .prints(&[
            "- @acme/words@1.0.0 (",
            "1 package would be removed, 2 kept",
        ]);
    assert!(stored("1.0.0"));
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let prune = ["package", "prune", "--min-age", "0"];
    let mut command = home.command(&bin(GDN), &prune);
    command.current_dir(&elsewhere);
    RunningProgram::start(command)
        .wait()
        .exits(0)
        .prints(&["1 package removed, 2 kept"]);
    // One version runs, the other is locked and does not run yet.
    assert!(!stored("1.0.0") && stored("1.1.0") && stored("1.2.0"));
    assert_eq!(home.ask("main", "say it"), "two");
    home.gdn(&["reload"]).exits(0);
    assert_eq!(home.ask("main", "say it"), "three");
    home.gdn(&["package", "prune", "--min-age", "0"])
        .exits(0)
        .prints(&["- @acme/words@1.1.0 (", "1 package removed, 1 kept"]);
    home.gdn(&["validate"]).exits(0);
    let trees = home.state_root().join("packages/.trees");
    assert_eq!(fs::read_dir(trees).unwrap().count(), 1);
}
