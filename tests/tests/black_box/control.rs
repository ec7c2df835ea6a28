//! One daemon per System Root, and its authorized clients (`ROOT-1`, `ROOT-11`, `CTL-1`, `SEC-4`).

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, PATIENCE};
use serde_json::{Value, json};

pub(crate) fn socket(home: &Home) -> std::path::PathBuf {
    home.state_root().join("run/orchestrator.sock")
}

pub(crate) fn connect(home: &Home) -> UnixStream {
    let stream = UnixStream::connect(socket(home)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn send(stream: &mut UnixStream, body: &[u8]) {
    let len = u32::try_from(body.len()).unwrap();
    stream.write_all(&len.to_be_bytes()).unwrap();
    stream.write_all(body).unwrap();
}

pub(crate) fn receive(stream: &mut UnixStream) -> Value {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(len)).unwrap()];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

pub(crate) fn greeting(goondan: &str, protocol: u32) -> Vec<u8> {
    let version = json!({"protocol": protocol, "goondan": goondan});
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "daemon.connect", "params": {"version": version},
    });
    serde_json::to_vec(&request).unwrap()
}

pub(crate) fn request(method: &str, params: &Value) -> Vec<u8> {
    let request = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
    serde_json::to_vec(&request).unwrap()
}

/// Version of the binaries under test, as they report it.
pub(crate) fn version(home: &Home) -> (String, u32) {
    let status = home.gdn_json(&["status"]);
    let version = &status["version"];
    let protocol = u32::try_from(version["protocol"].as_u64().unwrap()).unwrap();
    (version["goondan"].as_str().unwrap().to_owned(), protocol)
}

#[test]
fn root_11_a_second_daemon_ends_and_names_the_owner() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let owner = daemon.pid().to_string();
    let second = RunningProgram::start(home.command(&bin(ORCHESTRATOR), &[])).wait();
    let second = second
        .exits(3)
        .tells(&[&owner, "gdn daemon status", "gdn daemon shutdown"]);
    assert_eq!(
        second.stdout, "",
        "nothing that a log pipeline would trip over"
    );
    home.gdn(&["run", "--foreground"]).exits(3).tells(&[&owner]);
    // The first daemon is unchanged, and `gdn run` attaches to it.
    assert_eq!(home.ask("main", "echo hi"), "hi");
    let run = home.gdn_json(&["run"]);
    assert_eq!(
        (&run["daemon"]["pid"], &run["daemon"]["started"]),
        (&daemon.pid().into(), &false.into())
    );
    // Its pid stays in the file when it is killed, and does not block the next start.
    drop(daemon.kill());
    let _daemon = Daemon::start(&home);
    assert_eq!(home.ask("main", "echo hi"), "hi");
}

#[test]
fn root_1_the_two_roots_may_not_contain_each_other() {
    let home = Home::new(LAB);
    let inside = home.project().join("state");
    let state_root = ["--state-root", inside.to_str().unwrap()];
    let refused = home.gdn(&[&state_root, &["run"][..]].concat()).exits(10);
    refused.tells(&[inside.to_str().unwrap(), home.project().to_str().unwrap()]);

    let _daemon = Daemon::start(&home);
    home.write("state/project/goondan.yaml", &home.filled_in(LAB));
    let project = home.state_root().join("project");
    home.gdn(&["run", project.to_str().unwrap()]).exits(10);
    assert_eq!(
        home.gdn_json(&["workspace", "list"])["workspaces"],
        json!([])
    );
}

#[test]
fn ctl_1_a_client_of_another_version_is_refused_loudly() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    let (goondan, protocol) = version(&home);
    for greeting in [
        greeting("9.9.9", protocol),
        greeting(&goondan, protocol + 1),
    ] {
        let mut stream = connect(&home);
        send(&mut stream, &greeting);
        let error = &receive(&mut stream)["error"];
        assert_eq!(error["data"]["code"], "versionMismatch", "{error}");
        let text = error["message"].as_str().unwrap();
        assert!(text.contains(&goondan), "{text}");
        assert!(error["data"]["suggestion"].is_string(), "{error}");
        // Only its status and a shutdown can be requested on this connection.
        send(&mut stream, &request("daemon.processes", &json!({})));
        let error = &receive(&mut stream)["error"];
        assert_eq!(error["data"]["code"], "versionMismatch", "{error}");
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    }
    let mut stream = connect(&home);
    send(&mut stream, &greeting(&goondan, protocol));
    assert_eq!(
        receive(&mut stream)["result"]["version"]["goondan"],
        goondan.as_str()
    );
}

#[test]
fn ctl_1_a_daemon_of_another_version_is_refused_loudly() {
    let home = Home::new(LAB);
    std::fs::create_dir_all(socket(&home).parent().unwrap()).unwrap();
    let answers = [
        // A daemon that rejects the version, and one that does not.
        json!({"error": {"code": -32000, "message": "this daemon is goondan 9.9.9",
               "data": {"code": "versionMismatch", "retryable": false}}}),
        json!({"result": {"version": {"protocol": 2, "goondan": "9.9.9"}, "pid": 1,
               "stateRoot": home.state_root()}}),
    ];
    for answer in answers {
        let listener = UnixListener::bind(socket(&home)).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut response = answer;
            response["jsonrpc"] = json!("2.0");
            response["id"] = receive(&mut stream)["id"].clone();
            send(&mut stream, &serde_json::to_vec(&response).unwrap());
        });
        let refused = home.gdn(&["status"]).exits(4).tells(&["9.9.9", "hint:"]);
        assert_eq!(refused.stdout, "");
        daemon.join().unwrap();
        std::fs::remove_file(socket(&home)).unwrap();
    }
}

#[test]
fn ctl_1_bad_clients_lose_their_connection_without_side_effects() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let (goondan, protocol) = version(&home);
    let greeting = greeting(&goondan, protocol);

    // Bytes that are not a frame, a frame of 4 GiB, a frame of garbage, half a frame.
    let raw: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 4],
        b"\0\0\0\x04{{{{",
        b"\0\0\0\x7f{",
    ];
    for bytes in raw {
        let mut stream = connect(&home);
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Regardless of the reply, the connection is closed then.
        drop(stream.read_to_end(&mut Vec::new()));
    }
    // A client that has not sent its version cannot make requests.
    let mut stream = connect(&home);
    send(&mut stream, &request("daemon.shutdown", &json!({})));
    assert!(receive(&mut stream)["error"].is_object());
    // An unknown method, and invalid parameters.
    for bad in [
        request("daemon.explode", &json!({})),
        request("daemon.shutdown", &json!({"gracePeriodMs": "soon"})),
        request("event.send", &json!({"workspaceId": "../../x"})),
    ] {
        let mut stream = connect(&home);
        send(&mut stream, &greeting);
        assert!(receive(&mut stream)["result"].is_object());
        send(&mut stream, &bad);
        let error = receive(&mut stream)["error"].clone();
        assert_eq!(error["data"]["code"], "invalidRequest", "{error}");
    }
    // Many silent connections do not block one that sends requests.
    let silent: Vec<UnixStream> = (0..32).map(|_| connect(&home)).collect();
    assert_eq!(home.ask("main", "echo hi"), "hi");
    drop(silent);
    assert_eq!(home.gdn_json(&["status"])["pid"], daemon.pid());
}

#[test]
fn ctl_1_silent_connections_block_no_one_and_lose_their_slots() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let greeting = {
        let (goondan, protocol) = version(&home);
        greeting(&goondan, protocol)
    };
    // As many of each kind as there are slots, and more.
    let mut mute: Vec<UnixStream> = (0..150).map(|_| connect(&home)).collect();
    assert_eq!(home.ask("main", "echo hi"), "hi");
    let mut idle: Vec<UnixStream> = Vec::new();
    for _ in 0..150 {
        let mut stream = connect(&home);
        send(&mut stream, &greeting);
        assert!(receive(&mut stream)["result"].is_object());
        idle.push(stream);
        mute.push(connect(&home));
    }
    assert_eq!(home.gdn_json(&["status"])["pid"], daemon.pid());
    // The last client to greet still has its slot; the first ones lost theirs.
    let status = json!({"jsonrpc": "2.0", "id": 2, "method": "daemon.status", "params": {}});
    let last = idle.last_mut().unwrap();
    send(last, &serde_json::to_vec(&status).unwrap());
    assert_eq!(receive(last)["result"]["pid"], daemon.pid());
    assert!(said_until_the_end(&mut idle[0]).contains("overloaded"));
    // A client that never greets is disconnected eventually.
    for stream in &mut mute {
        let said = said_until_the_end(stream);
        assert!(said.is_empty() || said.contains("overloaded"), "{said}");
    }
}

/// Everything that the daemon sends until it closes a connection.
fn said_until_the_end(stream: &mut UnixStream) -> String {
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn ctl_1_connections_at_descriptor_limit_do_no_harm() {
    let home = Home::new(LAB);
    let mut command = home.command(Path::new("sh"), &[]);
    let program = bin(ORCHESTRATOR);
    let script = r#"ulimit -n 64; exec "$0""#;
    command.args(["-c", script]).arg(program);
    let daemon = Daemon::start_command(&home, command);
    home.gdn(&["run"]).exits(0);
    let mute: Vec<UnixStream> = (0..60).map(|_| connect(&home)).collect();
    for n in 0..10 {
        let text = format!("echo {n}");
        assert_eq!(home.ask(&format!("k{n}"), &text), n.to_string());
    }
    // They are kept open until each has lost its slot.
    for mut stream in mute {
        let said = said_until_the_end(&mut stream);
        assert!(said.is_empty() || said.contains("overloaded"), "{said}");
    }
    let lines = daemon.log().lines();
    let warnings = lines.iter().filter(|line| line["level"] == "warn").count();
    assert!(warnings < 20, "{warnings} warnings");
}

#[test]
fn sec_4_only_the_owner_may_look_in() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo hi"), "hi");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let state = home.state_root();
    for dir in ["", "run", "workspaces", "system", "packages"] {
        assert_eq!(mode(&state.join(dir)), 0o700, "{dir}");
    }
    for file in [
        "run/orchestrator.sock",
        "run/orchestrator.pid",
        "config.json",
    ] {
        assert_eq!(mode(&state.join(file)), 0o600, "{file}");
    }
    let instance = home.workspace_dir().join("instances/main");
    assert_eq!(mode(&instance), 0o700);
    for file in [
        "metadata.json",
        "messages/base.jsonl",
        "messages/inbox.jsonl",
    ] {
        assert_eq!(mode(&instance.join(file)) & 0o077, 0, "{file}");
    }
}

#[test]
fn gdn_without_a_daemon_reports_the_missing_daemon() {
    let home = Home::new(LAB);
    for args in [
        &["status"][..],
        &["ps"],
        &["send", "hi"],
        &["chat"],
        &["logs"],
        &["instance", "list"],
        &["instance", "history"],
        &["restart"],
        &["workspace", "list"],
    ] {
        let refused = home.gdn(args).exits(3).tells(&["no daemon runs", "gdn"]);
        assert_eq!(refused.stdout, "", "{args:?}");
        let json = home
            .gdn(&[args, &["--json"]].concat())
            .exits(3)
            .error_json();
        assert_eq!(
            (&json["code"], &json["exitCode"]),
            (&"daemonNotRunning".into(), &3.into())
        );
    }
    // A shutdown without a daemon is not a failure.
    home.gdn(&["shutdown"])
        .exits(0)
        .prints(&["No daemon runs."]);
    assert!(
        !home.state_root().exists(),
        "looking for a daemon leaves nothing behind"
    );
    // Neither a project nor a directory for the state.
    let nowhere = Home::without_project();
    nowhere.gdn(&["run"]).exits(5).tells(&["goondan.yaml"]);
    // A client without the daemon's binary.
    let dir = home.bin_dir_of_its_own();
    std::fs::remove_file(dir.path().join(ORCHESTRATOR)).unwrap();
    let lab = home.project();
    let mut command = nowhere.command(&dir.path().join(GDN), &["run", lab.to_str().unwrap()]);
    command.env("PATH", "/nonexistent");
    let missing = RunningProgram::start(command).wait().exits(13);
    missing.tells(&[ORCHESTRATOR]);
}

#[test]
fn root_7_option_overrides_environment_which_overrides_home() {
    let home = Home::without_project();
    let program = bin(ORCHESTRATOR);
    let by_option = home.path().join("by-option");
    let options = ["--state-root", by_option.to_str().unwrap()];
    for (args, has_variable, expected) in [
        (&options[..], true, by_option.clone()),
        (&[][..], true, home.state_root()),
        (&[][..], false, home.path().join(".goondan")),
    ] {
        let mut command = home.command(&program, args);
        if !has_variable {
            command.env_remove("GOONDAN_STATE_ROOT");
        }
        assert!(!expected.exists());
        let daemon = Daemon::start_command(&home, command);
        let started = &daemon.log().saying("orchestrator started")[0];
        assert_eq!(started["stateRoot"], expected.to_str().unwrap());
        assert!(expected.join("workspaces").is_dir());
        drop(daemon.stop());
    }
}
