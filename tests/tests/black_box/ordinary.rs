//! Goal: at each confinement level ordinary work succeeds, except for what the level is documented
//! to deny; a denial is explained in one sentence with the setting that allows it (`SEC-10`).
//!
//! Method: an agent of a real daemon runs `work.py`, one task in each message of one conversation.
//! It uses the machine's own programs and no network.

#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, needs};
use serde_json::{Value, json};

const WORK: &str = include_str!("ordinary/work.py");

/// A conversation whose key needs every kind of escape in its directory name, in which programs
/// work.
const CONVERSATION: &str = "telegram:7 %41/Ada \u{fc}";

const README: &str = include_str!("../../../README.md");

/// Programs, and the packages that contain them. If the README's command for all tests does not
/// install a package, the tasks of its program are skipped if it is missing, even in CI.
const PACKAGES: [(&str, &str); 5] = [
    ("go", "golang-go"),
    ("uv", "uv"),
    ("pnpm", "pnpm"),
    ("pytest", "python3-pytest"),
    ("the module pip", "python3-pip"),
];

fn is_optional(program: &str) -> bool {
    let install = README
        .lines()
        .find(|line| line.starts_with("apt-get update"));
    let is_installed = |package: &str| {
        let mut words = install.unwrap().split_whitespace();
        words.any(|word| word == package)
    };
    PACKAGES
        .iter()
        .any(|(name, package)| *name == program && !is_installed(package))
}

/// Directories with programs that are not in `PATH`: PostgreSQL, and a Rust toolchain if the
/// programs in `PATH` only forward to it.
fn programs() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let postgres = versions.map(|version| version.unwrap().path().join("bin"));
    postgres
        .chain(toolchain().map(|it| it.join("bin")))
        .collect()
}

/// Directory of this machine's compiler.
fn toolchain() -> Option<PathBuf> {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).output();
    let printed = String::from_utf8(asked.ok()?.stdout).unwrap();
    Some(PathBuf::from(printed.trim())).filter(|path| path.is_dir())
}

/// Directory in which pnpm 12.21 and newer locks its store, independent of `TMPDIR`. At the level
/// `landlock` a person must list it under `write`, as docs/security.md says.
fn pnpm_locks() -> PathBuf {
    use std::os::unix::fs::DirBuilderExt as _;
    let user = nix::unistd::geteuid();
    let dir = PathBuf::from(format!("/tmp/pnpm-store-operation-locks-{user}"));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&dir).unwrap();
    dir
}

/// Completes all tasks at a level.
fn is_done_at(level: &str) {
    is_done_with(level, "", |_| true);
}

/// Completes the chosen tasks at a level, with another setting of the sandbox.
fn is_done_with(level: &str, setting: &str, is_chosen: impl Fn(&Value) -> bool) {
    if !needs::program("python3") || !needs::sandbox(level) {
        return;
    }
    let home = Home::without_project();
    let read: Vec<String> = toolchain()
        .map(|it| it.display().to_string())
        .into_iter()
        .collect();
    let write = if level == "landlock" {
        json!([pnpm_locks()])
    } else {
        json!([])
    };
    let paths = format!("read: {}, write: {write}", json!(read));
    let sandbox = format!("{{require: {level}, {paths}{setting}}}");
    let command = "python3 PROJECT/work.py PROJECT/plan.json \"${name}\"";
    let command = command.replace("PROJECT", home.project().to_str().unwrap());
    let call = json!({"command": command, "timeoutMs": 600_000});
    let project = Commands::new()
        .call("^(?P<name>.*)$", "bash__exec", call)
        .agent("worker", &[BASH], &sandbox);
    home.write("project/goondan.yaml", &project.yaml());
    home.write("project/work.py", WORK);
    // One is invisible in a sandbox, the other is in a readable directory.
    let sockets = ["service.sock", "project/service.sock"].map(|name| home.path().join(name));
    let _listeners = sockets
        .each_ref()
        .map(|path| UnixListener::bind(path).unwrap());
    let plan = json!({"programs": programs(), "sockets": sockets});
    home.write("project/plan.json", &plan.to_string());
    let daemon = Daemon::serving(&home);

    let mut wrong = Vec::new();
    for piece in pieces().iter().filter(|piece| is_chosen(piece)) {
        let name = piece["name"].as_str().unwrap();
        let is_possible = match level {
            "off" => true,
            level => piece[level].as_bool().unwrap(),
        };
        let reply = home.ask(CONVERSATION, name);
        if let Some((_, lacks)) = reply.split_once("left out: there is no ") {
            let lacks = lacks.trim();
            let why = format!("{name}: there is no {lacks}");
            match is_optional(lacks) {
                true => needs::note_left_out(&why),
                false => needs::left_out(&why),
            };
        } else if is_possible {
            if !is_done(&reply) {
                wrong.push(format!("{name}: {reply}"));
            }
        } else {
            wrong.extend(misses(level, piece, &reply));
        }
    }
    assert!(wrong.is_empty(), "{level}: {}", wrong.join("\n\n"));
    daemon.stop();
}

/// True if a command succeeded, and its last output is `done`.
fn is_done(said: &str) -> bool {
    let said = said.trim();
    said == "done" || said.starts_with("exit code: 0\n") && said.ends_with("\ndone")
}

/// Problem in the explanation of a denied task: one sentence must name the setting that allows it.
fn misses(level: &str, piece: &Value, said: &str) -> Option<String> {
    let setting = match piece["full"].as_bool().unwrap() {
        true => "`require: full`",
        false => "`require: off`",
    };
    let told = said
        .lines()
        .find(|line| line.starts_with(&format!("[sandbox `{level}`: ")));
    let is_told = told.is_some_and(|told| told.contains(setting));
    (!is_told).then(|| format!("{} is not refused with {setting}: {said}", piece["name"]))
}

fn pieces() -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let (script, plan) = (dir.path().join("work.py"), dir.path().join("plan.json"));
    fs::write(&script, WORK).unwrap();
    fs::write(&plan, json!({"programs": []}).to_string()).unwrap();
    let listed = Command::new("python3")
        .args([&script, &plan])
        .arg("--list")
        .output()
        .unwrap();
    serde_json::from_slice(&listed.stdout).unwrap()
}

#[test]
fn sec_10_programs_that_the_readme_installs_are_required() {
    let optional = PACKAGES.iter().map(|(name, _)| *name);
    let optional: Vec<&str> = optional.filter(|name| is_optional(name)).collect();
    assert_eq!(optional, ["go", "uv"]);
    assert!(!is_optional("git"));
}

#[test]
fn sec_10_ordinary_work_is_done_at_the_level_full() {
    is_done_at("full");
}

/// Work with files does not depend on the network.
#[test]
fn sec_10_sockets_and_terminals_work_with_any_network() {
    is_done_with("full", ", network: any", |piece| piece["landlock"] == false);
}

#[test]
fn sec_10_ordinary_work_is_done_at_the_level_landlock() {
    is_done_at("landlock");
}

#[test]
fn sec_10_ordinary_work_is_done_without_a_sandbox() {
    is_done_at("off");
}
