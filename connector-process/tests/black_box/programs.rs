//! Connectors that are programs of the project: the examples of the documentation, and misbehaving
//! programs.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use goondan_confinement::{Level, Right};
use goondan_protocol::ipc::{RefusalCode, ToOrchestrator};
use goondan_tests::{needs, wait_until};
use serde_json::{Value, json};

use crate::orchestrator::Orchestrator;

/// A project with one executable shell script.
fn script(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own");
    write(&path, &format!("#!/bin/sh\n{text}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn write(path: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/connectors")
}

fn start(dir: &tempfile::TempDir) -> Orchestrator {
    Orchestrator::start_program(dir.path(), "own", &json!({}))
}

/// Follows a file with an example, across a refusal and a restart.
fn follows_a_file(project: &Path, example: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("orders.log");
    write(&file, "first\n\nhalf");
    let config = json!({"file": file});
    let mut orchestrator = Orchestrator::start_program(project, example, &config);
    orchestrator.status_saying("following");
    let first = orchestrator.next_event();
    assert_eq!(first.event.input, "first");
    assert_eq!(first.event.name, "line");
    let id = first.event.id.clone().unwrap();
    assert_eq!(id.as_str(), format!("{}:0", file.display()));
    // A temporarily refused event is sent again as the same event.
    orchestrator.refuse(&first, RefusalCode::Unavailable);
    let again = orchestrator.next_event();
    assert_eq!(again.event, first.event);
    orchestrator.accept(&again, id.as_str(), false);
    write(&file, " a line\n");
    let second = orchestrator.next_event();
    assert_eq!(second.event.input, "half a line");
    let id = second.event.id.clone().unwrap();
    orchestrator.accept(&second, id.as_str(), false);
    orchestrator.shutdown();
    orchestrator.expect_graceful_end();
}

#[test]
fn the_python_example_hands_in_each_line() {
    if !needs::program("python3") {
        return;
    }
    follows_a_file(&examples(), "tail.py");
}

#[test]
fn the_typescript_example_hands_in_each_line() {
    if needs::typescript() {
        return follows_a_file(&examples(), "tail.ts");
    }
    // Checks the error message instead; the example without its types is checked below.
    let config = json!({"file": "/nonexistent"});
    let mut orchestrator = Orchestrator::start_program(&examples(), "tail.ts", &config);
    let status = orchestrator.status_saying("install bun, deno or node 22.6 or newer");
    assert!(!status.ready, "{}", status.detail);
}

/// Type annotations of the TypeScript example and their replacements, removed like every runtime
/// does before it runs the file.
const TYPES: [(&str, &str); 8] = [
    ("<string, (answer: Answer) => void>", ""),
    ("(message: object): void", "(message)"),
    ("(heard: Heard): void", "(heard)"),
    (
        "(event: { type: \"event\"; id: string; input: string }): Promise<void>",
        "(event)",
    ),
    ("<Answer>", ""),
    ("(path: string): Promise<void>", "(path)"),
    (" as const", ""),
    ("(line: string)", "(line)"),
];

#[test]
fn the_typescript_example_without_its_types_hands_in_each_line() {
    if !needs::javascript() {
        return;
    }
    let mut text = std::fs::read_to_string(examples().join("tail.ts")).unwrap();
    let types = text.find("type Answer =").unwrap()..text.find("const waiting").unwrap();
    text.replace_range(types, "");
    for (with, without) in TYPES {
        assert_eq!(text.matches(with).count(), 1, "{with}");
        text = text.replace(with, without);
    }
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("tail.mjs"), &text);
    follows_a_file(dir.path(), "tail.mjs");
}

#[test]
fn program_gets_settings_and_secrets_first_and_a_clean_env() {
    let dir = script(
        r#"read -r first
        case "$first" in *'"token":"hunter2"'*) seen=yes;; *) seen=no;; esac
        env >&2
        echo "{\"type\":\"event\",\"id\":\"1\",\"input\":\"secret seen: $seen in $PWD\"}"
        read -r answer
        echo "told $answer" >&2
        read -r rest"#,
    );
    write(&dir.path().join("note"), "");
    let mut orchestrator = start(&dir);
    let event = orchestrator.next_event();
    let place = dir.path().canonicalize().unwrap();
    assert_eq!(
        event.event.input,
        format!("secret seen: yes in {}", place.display())
    );
    orchestrator.accept(&event, "1", true);
    let told = orchestrator.log_line(r#"told {"type":"accepted","id":"1","duplicate":true}"#);
    assert_eq!(told["source"], "stderr");
    orchestrator.shutdown();
    assert_eq!(orchestrator.exit().code(), Some(0));
    let log = orchestrator.rest_of_log();
    assert!(
        !log.contains("GOONDAN_IPC_FD") && !log.contains("hunter2"),
        "{log}"
    );
}

#[test]
fn misbehaving_program_is_ended_with_the_reason_and_restarted() {
    for (text, said) in [
        ("echo hello; sleep 100", "that is not JSON"),
        ("exit 7", "exited with code 7"),
        ("kill -9 $$", "was killed by signal 9"),
        (
            "echo '{\"type\":\"evnt\"}'; sleep 100",
            "neither `event` nor `status`",
        ),
        (
            "head -c 9000000 /dev/zero; sleep 100",
            "more than 8388608 bytes",
        ),
    ] {
        let dir = script(&format!("echo run >> runs\n{text}"));
        let mut orchestrator = start(&dir);
        let status = orchestrator.status_saying(said);
        assert!(
            !status.ready && status.detail.starts_with("`own` "),
            "{status:?}"
        );
        // After five more consecutive exits, the restart is delayed.
        let waiting = orchestrator.status_saying("again after 1 s");
        assert!(waiting.detail.contains(said), "{waiting:?}");
        let runs = std::fs::read_to_string(dir.path().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), 6);
    }
}

#[test]
fn sup_4_program_that_cannot_start_is_parked_with_the_reason() {
    let dir = script("exit 0");
    let path = dir.path().join("own");
    std::fs::remove_file(&path).unwrap();
    write(&path, "#!/nonexistent/interpreter\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable).unwrap();
    let mut orchestrator = start(&dir);
    let status = orchestrator.status_saying("parked, `own` cannot be started: No such file");
    assert!(!status.ready, "{}", status.detail);
    assert!(status.detail.contains("`gdn restart`"), "{}", status.detail);
    orchestrator.shutdown();
    orchestrator.expect_graceful_end();
    // A program that ends with the same code was started.
    let dir = script("exit 127");
    let mut orchestrator = start(&dir);
    orchestrator.status_saying("exited with code 127; starting it again after 1 s");
}

#[test]
fn sup_4_program_with_missing_file_is_parked_with_that_reason() {
    let dir = script("exit 0");
    std::fs::remove_file(dir.path().join("own")).unwrap();
    let status = start(&dir).status_saying("parked, `own` cannot be read: No such file");
    assert!(!status.ready, "{}", status.detail);
}

#[test]
fn invalid_event_is_rejected_and_the_program_continues() {
    let dir = script(
        r#"read -r first
        echo '{"type":"event","id":"bad","inptu":"x"}'
        read -r answer
        echo "$answer" >&2
        echo '{"type":"event","id":"good","input":"x","instanceKey":"k"}'
        read -r rest"#,
    );
    let mut orchestrator = start(&dir);
    let event = orchestrator.next_event();
    assert_eq!(event.event.id.unwrap().as_str(), "good");
    assert_eq!(event.event.instance_key.unwrap().as_str(), "k");
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A zombie counts as ended.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

const STUBBORN: &str = r#"trap '' TERM INT
    sleep 4321 &
    echo "{\"type\":\"status\",\"ready\":true,\"detail\":\"pids $$ $!\"}"
    while true; do sleep 4321; done"#;

fn pids(orchestrator: &mut Orchestrator) -> Vec<String> {
    let status = orchestrator.status_saying("pids");
    let words = status.detail.split(' ').skip(1);
    words.map(str::to_owned).collect()
}

#[test]
fn sup_7_program_always_ends_with_its_connector_process() {
    let dir = script(STUBBORN);
    let mut orchestrator = start(&dir);
    let pids = pids(&mut orchestrator);
    assert!(pids.iter().all(|pid| is_running(pid)));
    nix::sys::signal::kill(orchestrator.pid(), nix::sys::signal::Signal::SIGKILL).unwrap();
    // Its own children are killed by the orchestrator, which adopts them.
    wait_until("the program to end", || !is_running(&pids[0]));
    let group = nix::unistd::Pid::from_raw(pids[0].parse().unwrap());
    nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn sup_7_program_ignoring_stop_is_killed_with_its_children() {
    let dir = script(STUBBORN);
    let mut orchestrator = start(&dir);
    let pids = pids(&mut orchestrator);
    orchestrator.shutdown();
    orchestrator.expect_graceful_end();
    for pid in pids {
        wait_until("all to end", || !is_running(&pid));
    }
}

/// The confinement levels that this kernel supports; prints the unsupported ones.
fn levels() -> Vec<Level> {
    let agent = goondan_tests::binaries::bin("goondan-agent-process");
    let held = goondan_confinement::probe_all(&agent);
    let is_held = |level: &Level| {
        let is_held = Right::of(*level).iter().all(|right| held.contains(right));
        is_held || needs::left_out(&format!("this kernel does not hold the level `{level}`"))
    };
    [Level::Full, Level::Landlock]
        .into_iter()
        .filter(is_held)
        .collect()
}

/// Reports as an event which files and hosts it can access; leaves processes behind if its pid
/// belongs to a PID namespace.
const CURIOUS: &str = r#"can() { sh -c "$2" >/dev/null 2>&1 && out="$out $1"; }
    can project 'cat ./input'; can listed 'cat LISTED/input'; can outside 'cat OUTSIDE/secret'
    can change 'echo x >> ./input'; can daemon 'kill -0 VICTIM'; can network 'exec 3<>/dev/tcp/127.0.0.1/PORT'
    can listed-change 'echo x >> LISTED/input'; can parent 'cat /proc/VICTIM/environ'
    echo "{\"type\":\"event\",\"id\":\"1\",\"input\":\"$out\"}"
    if [ $$ -lt 10 ]; then setsid sleep 5518 & sleep 5518; fi"#;

#[test]
fn slow_daemon_receives_all_events_of_a_fast_program() {
    // More data than the socket and the queues hold, and once all of that is read, more than the
    // pipe holds.
    let dir = script(
        r#"text=$(head -c 65536 /dev/zero | tr '\0' x)
        for id in $(seq 60); do
            printf '{"type":"event","id":"%s","input":"%s"}\n' "$id" "$text"
        done
        printf '{"type":"status","ready":true,"detail":"all is said"}\n'
        head -c 1048576 /dev/zero | tr '\0' '\n'
        echo done >&2
        exec cat >/dev/null"#,
    );
    let mut orchestrator = start(&dir);
    orchestrator.log_line("done");
    let (mut heard, mut is_all_said) = (BTreeSet::new(), false);
    while heard.len() < 60 || !is_all_said {
        match orchestrator.receive().1 {
            ToOrchestrator::Status(status) => is_all_said |= status.detail == "all is said",
            ToOrchestrator::Event(event) => assert!(heard.insert(event.id), "an event came twice"),
            other => panic!("expected a status or an event, got {other:?}"),
        }
    }
}

#[test]
fn sec_3_program_is_confined_to_its_list_and_leaves_nothing() {
    let (listed, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    write(&listed.path().join("input"), "listed");
    write(&outside.path().join("secret"), "secret");
    let script_with = |shell: &str| {
        let text = CURIOUS.replace("LISTED", listed.path().to_str().unwrap());
        let text = text.replace("OUTSIDE", outside.path().to_str().unwrap());
        let text = text.replace("VICTIM", &std::process::id().to_string());
        let port = machine.local_addr().unwrap().port().to_string();
        let text = text.replace("PORT", &port).replace("sh -c", shell);
        let dir = script(&text);
        write(&dir.path().join("input"), "project");
        dir
    };
    let says = |sandbox: &Value| {
        // Only bash has a syntax for sockets.
        let dir = script_with("bash -c");
        let mut orchestrator = Orchestrator::start_confined(dir.path(), "own", &json!({}), sandbox);
        let said = orchestrator.next_event().event.input;
        nix::sys::signal::kill(orchestrator.pid(), nix::sys::signal::Signal::SIGKILL).unwrap();
        said
    };
    let all = " project listed outside change daemon network listed-change parent";
    let free = says(&json!({"require": "off"}));
    assert_eq!(free, all);
    for level in levels() {
        let read = [listed.path()];
        let said = says(&json!({"require": level, "read": read}));
        assert_eq!(said, " project listed", "{level}");
        let said = says(&json!({"require": level, "write": read, "network": "any"}));
        assert_eq!(said, " project listed network listed-change", "{level}");
        if level == Level::Full {
            wait_until("everything to end", || {
                goondan_tests::processes::with_args(&["sleep", "5518"]).is_empty()
            });
        }
    }
}
