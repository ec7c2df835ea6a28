//! Goal: a model receives one sentence about what its sandbox denied, the rule, and a possible
//! configuration change (`SEC-3`).
//!
//! Method: programs of a real daemon access outside resources at each level; the test checks the
//! tool results.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use goondan_tests::projects::{BASH, Commands};
use goondan_tests::{Daemon, Home, needs};

const CONNECT: &str =
    r#"python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 2)'"#;

/// Accesses each resource, and checks the explanations. `signal` and `socket` are the expected
/// texts for those.
fn is_told(level: &str, signal: &str, socket: &str) {
    if !needs::program("python3") || !needs::sandbox(level) {
        return;
    }
    let project = Commands::new()
        .run("^(?P<command>.*)$", "${command}")
        .agent("prisoner", &[BASH], &format!("{{require: {level}}}"));
    let home = Home::new(&project.yaml());
    // At the level `full` the temporary directory is a different one, so that no explanation is
    // expected there.
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
    let cases_count = cases.len();
    for (command, what, remedy) in cases {
        let reply = home.ask("main", &command);
        let told: Vec<&str> = reply
            .lines()
            .filter(|line| line.starts_with("[sandbox"))
            .collect();
        let [told] = told.as_slice() else {
            panic!("{level}, {command}: one sentence is reported: {reply}");
        };
        for part in [&format!("[sandbox `{level}`: "), &what, remedy] {
            assert!(told.contains(part), "{command}: {part}: {told}");
        }
    }
    // People see what was refused, too.
    let refused = home.ps_agent("main").unwrap()["refused"].clone();
    assert_eq!(refused["count"], cases_count, "{refused}");
    let last = refused["last"].as_str().unwrap();
    assert!(last.contains(socket), "{last}");
    home.gdn(&["ps"])
        .exits(0)
        .prints(&["sandbox refused 6, last"]);
    assert_eq!(victim.try_wait().unwrap(), None);
    victim.kill().unwrap();
    victim.wait().unwrap();
    // Successful accesses are not explained.
    let answer = home.ask("main", &format!("cat {input}"));
    assert!(!answer.contains("[sandbox"), "{answer}");
    // With other permissions, the earlier refusals are of no use.
    let changed = format!("{{require: {level}, read: [/var/tmp]}}");
    let changed = project
        .yaml()
        .replace(&format!("{{require: {level}}}"), &changed);
    home.write("project/goondan.yaml", &home.filled_in(&changed));
    home.gdn(&["reload"]).exits(0);
    home.ask("main", &format!("cat {input}"));
    let agent = home.ps_agent("main").unwrap();
    assert_eq!(agent.get("refused"), None, "{agent}");
    daemon.stop();
}

#[test]
fn sec_3_model_gets_the_reason_of_a_denial_at_level_full() {
    is_told(
        "full",
        "only its own processes are there",
        "sockets of the machine",
    );
}

#[test]
fn sec_3_model_gets_the_reason_of_a_denial_at_level_landlock() {
    is_told("landlock", "cannot send signals", "no sockets can be made");
}
