//! Programs of different versions: accessible files, and allowed requests between them (`REL-1`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::{ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home};
use serde_json::{Value, json};

use crate::control::{connect, greeting, receive, request, send};

const NEWER: &str = r#"{"wrote":1001,"readableFrom":1000,"goondan":"9.9.9"}"#;

/// Every file below a directory, with its content.
fn files(dir: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn format_file(home: &Home) -> std::path::PathBuf {
    home.state_root().join("system/format.json")
}

#[test]
fn rel_1_a_state_root_of_a_newer_format_is_not_touched() {
    let home = Home::new(LAB);
    home.gdn(&["run"]).exits(0);
    let status = home.gdn_json(&["status"]);
    let ours = &status["format"];
    assert_eq!(ours["goondan"], status["version"]["goondan"]);
    home.gdn(&["shutdown"]).exits(0);
    home.write("state/system/format.json", NEWER);
    let before = files(&home.state_root());
    let told = [
        "newer format",
        "goondan 9.9.9",
        "hint: install goondan 9.9.9 or newer (see `gdn --version`",
    ];
    for command in [
        &["run"][..],
        &["run", "--foreground"],
        &["logs"],
        &["validate"],
        &["package", "list"],
    ] {
        home.gdn(command).exits(4).tells(&told);
    }
    RunningProgram::start(home.command(&bin(ORCHESTRATOR), &[]))
        .wait()
        .exits(4)
        .tells(&told);
    let report = home.gdn(&["doctor", "--json"]).exits(16).json();
    let finding = |report: &Value| {
        let findings = report["findings"].as_array().unwrap().iter();
        let mut found = findings.filter(|finding| finding["check"] == "state format");
        found.next().unwrap().clone()
    };
    assert_eq!(finding(&report)["verdict"], "bad");
    assert!(
        finding(&report)["hint"]
            .as_str()
            .unwrap()
            .contains("install goondan 9.9.9")
    );
    assert_eq!(files(&home.state_root()), before);

    // Files of an older version are upgraded.
    home.write(
        "state/system/format.json",
        r#"{"wrote":0,"readableFrom":0,"goondan":"0.0.9"}"#,
    );
    home.gdn(&["run"]).exits(0);
    let text = fs::read(format_file(&home)).unwrap();
    assert_eq!(&serde_json::from_slice::<Value>(&text).unwrap(), ours);
    home.gdn(&["status"]).exits(0).prints(&["\nFormat "]);
    assert_eq!(
        finding(&home.gdn(&["doctor", "--json"]).json())["verdict"],
        "ok"
    );
}

#[test]
fn rel_1_unreadable_format_file_stops_start_and_hint_repairs_it() {
    let home = Home::new(LAB);
    home.write("state/system/format.json", "{\"wrote\":");
    let refused = home.gdn(&["run"]).exits(15);
    let output = refused.tells(&["the format of the state directory"]).stderr;
    let (_, command) = output.split_once("`rm ").unwrap();
    let path = command.split('`').next().unwrap().trim_matches('\'');
    assert_eq!(Path::new(path), format_file(&home));
    fs::remove_file(path).unwrap();
    home.gdn(&["run"]).exits(0);
}

#[test]
fn rel_1_client_of_any_version_can_get_status_and_shut_down() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    // A future version, and a client with an unreadable greeting.
    let unreadable = request("daemon.connect", &json!({"hello": "there"}));
    for greeting in [greeting("9.9.9", 1_000), unreadable] {
        let mut stream = connect(&home);
        send(&mut stream, &greeting);
        let error = &receive(&mut stream)["error"];
        assert_eq!(error["data"]["code"], "versionMismatch", "{error}");
        send(&mut stream, &request("daemon.status", &json!({})));
        let status = receive(&mut stream)["result"].clone();
        assert_eq!(status["pid"], daemon.pid(), "{status}");
        // The error is sent once; a second greeting closes the connection.
        send(&mut stream, &greeting);
        receive(&mut stream);
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    let mut stream = connect(&home);
    send(&mut stream, &greeting("9.9.9", 1_000));
    receive(&mut stream);
    send(&mut stream, &request("daemon.shutdown", &json!({})));
    assert!(receive(&mut stream)["result"].is_object());
    drop(daemon.wait());
}

/// A socket in a separate state root through which a client appears to the daemon as a different
/// version.
fn seem_another_version(home: &Home) -> std::path::PathBuf {
    let root = home.path().join("seeming");
    fs::create_dir_all(root.join("run")).unwrap();
    let listener = UnixListener::bind(root.join("run/orchestrator.sock")).unwrap();
    let real = home.state_root().join("run/orchestrator.sock");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut daemon) = (client.unwrap(), UnixStream::connect(&real).unwrap());
            let mut greeting = receive(&mut client);
            greeting["params"]["version"] = json!({"goondan": "9.9.9", "protocol": 1_000});
            send(&mut daemon, &serde_json::to_vec(&greeting).unwrap());
            let (mut back, mut from) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
            std::thread::spawn(move || {
                drop(std::io::copy(&mut from, &mut back));
                drop(back.shutdown(std::net::Shutdown::Both));
            });
            std::thread::spawn(move || std::io::copy(&mut client, &mut daemon));
        }
    });
    root
}

#[test]
fn rel_1_gdn_shows_and_stops_a_daemon_of_another_version() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let pid = daemon.pid();
    let root = seem_another_version(&home);
    let state_root = ["--state-root", root.to_str().unwrap()];
    let gdn = |args: &[&str]| home.gdn(&[&state_root[..], args].concat());
    let shown = gdn(&["status"])
        .exits(4)
        .prints(&["of another version", &pid.to_string()]);
    shown.tells(&[
        "cannot talk to the running daemon",
        "hint: stop the running daemon with `gdn daemon shutdown`",
    ]);
    let shown = gdn(&["--json", "status"]).exits(4).json();
    assert_eq!(
        (&shown["pid"], &shown["schema"]),
        (&json!(pid), &json!("gdn.status/v1"))
    );
    // All other commands fail.
    gdn(&["ps"])
        .exits(4)
        .tells(&["this daemon is goondan", "9.9.9"]);
    gdn(&["shutdown"]).exits(0).prints(&[&pid.to_string()]);
    drop(daemon.wait());
}
