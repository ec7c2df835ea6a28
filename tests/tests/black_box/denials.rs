//! Goal: a model is told in one sentence what its sandbox denied, by which rule, and what a person could write (`SEC-3`).
//!
//! Method: programs of a real daemon reach for things outside, at each level; what the model is told is read.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, needs};

const CONNECT: &str =
    r#"python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 2)'"#;

/// Reaches for each, and hears of it what it has to. `signal` and `socket` are what is said of those.
fn is_told(level: &str, signal: &str, socket: &str) {
    if !needs::program("python3") || !needs::sandbox(level) {
        return;
    }
    let project = Commands::new()
        .run("^(?P<command>.*)$", "${command}")
        .agent("prisoner", &[BASH], &format!("{{require: {level}}}"));
    let home = Home::new(&project.yaml());
    // The directory of temporary files is another one at the level `full`, so that nothing is said of it there.
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let secret = outside.path().join("secret");
    home.write("project/input", "");
    std::fs::copy(home.project().join("input"), &secret).unwrap();
    let door = outside.path().join("door");
    let _listener = UnixListener::bind(&door).unwrap();
    let mut victim = Command::new("sleep").arg("1000").spawn().unwrap();
    let daemon = Daemon::serving(&home);

    let shown = |path: &Path| path.display().to_string();
    let (secret, door) = (shown(&secret), shown(&door));
    let input = shown(&home.project().join("input"));
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect(\"{door}\")");
    let cases = [
        (
            format!("cat {secret}"),
            format!("`{secret}` is not in it"),
            "under `read` or `write`",
        ),
        (
            format!("echo x > {secret}"),
            format!("`{secret}` is not in it"),
            "under `read` or `write`",
        ),
        (
            format!("echo x > {input}"),
            format!("`{input}` may only be read"),
            "under `write`",
        ),
        (
            CONNECT.to_owned(),
            "network".to_owned(),
            "`network: {allow: […]}`",
        ),
        (
            format!("kill -9 {}", victim.id()),
            signal.to_owned(),
            "`require: off`",
        ),
        (
            format!("python3 -c '{connect}'"),
            socket.to_owned(),
            "`require: off`",
        ),
    ];
    for (command, what, remedy) in cases {
        let said = home.ask("main", &command);
        let told: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("[sandbox"))
            .collect();
        let [told] = told.as_slice() else {
            panic!("{level}, {command}: one sentence is told: {said}");
        };
        for part in [&format!("[sandbox `{level}`: "), &what, remedy] {
            assert!(told.contains(part), "{command}: {part}: {told}");
        }
    }
    assert_eq!(victim.try_wait().unwrap(), None);
    victim.kill().unwrap();
    victim.wait().unwrap();
    // What works is not explained.
    let said = home.ask("main", &format!("cat {input}"));
    assert!(!said.contains("[sandbox"), "{said}");
    daemon.stop();
}

#[test]
fn sec_3_a_model_is_told_what_was_denied_at_the_level_full() {
    is_told(
        "full",
        "only its own processes are there",
        "sockets of the machine",
    );
}

#[test]
fn sec_3_a_model_is_told_what_was_denied_at_the_level_landlock() {
    is_told("landlock", "get no signals", "no sockets can be made");
}
