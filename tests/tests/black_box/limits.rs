//! Resource limits of processes, and their enforcement.

use goondan_tests::binaries::example;
use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::misbehaviour::{self, HOARD_BYTES, Misbehaviour};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// [`LAB`], with limits for its worker and its webhook, and a command that exceeds its memory
/// limit.
fn limited_lab(open_files: u32) -> String {
    let greedy = "      - when: {user: '^greedy$', step: 1}
        call:
          - tool: bash__exec
            args: {command: 'ulimit -n; head -c 300000000 /dev/zero | tail; echo code ${PIPESTATUS[1]}'}
      - when: {user: '^greedy$'}
        say: \"${result}\"
";
    let greedy = greedy.replace("${PIPESTATUS", "$${PIPESTATUS");
    let limits =
        format!("  runtime:\n    limits: {{memoryMiB: 64, openFiles: {open_files}}}\n  tools:");
    let lab = LAB.replacen("    rules:\n", &format!("    rules:\n{greedy}"), 1);
    lab.replacen("  tools:", &limits, 1).replacen(
        "  config:\n    path: /hook\n",
        "  config:\n    path: /hook\n  limits: {memoryMiB: 512, openFiles: 96}\n",
        1,
    )
}

/// Limits of a running process, as shown by `gdn ps` and as enforced by the system.
fn held(process: &Value) -> (&Value, Vec<(String, String)>) {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process["pid"])).unwrap();
    let of = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.unwrap().split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    };
    (
        &process["limits"],
        vec![of("Max data size"), of("Max open files")],
    )
}

fn both(limit: u64) -> (String, String) {
    (limit.to_string(), limit.to_string())
}

#[test]
fn a_process_has_its_limits_and_its_tools_have_them_too() {
    let home = Home::new(&limited_lab(128));
    let daemon = Daemon::serving(&home);
    daemon.webhook("hook");
    let reply = home.ask("main", "greedy");
    assert!(reply.contains("128\n"), "{reply}");
    assert!(reply.contains("memory exhausted"), "{reply}");
    assert!(reply.contains("code 1"), "{reply}");

    let agent = home.ps_agent("main").unwrap();
    assert_eq!(agent["consecutiveCrashes"], 0);
    let (shown, limits) = held(&agent);
    assert_eq!(*shown, json!({"memoryBytes": 64 * MIB, "openFiles": 128}));
    assert_eq!(limits, [both(64 * MIB), both(128)]);
    let processes = home.ps();
    let hook = processes.iter().find(|process| process["name"] == "hook");
    let (shown, limits) = held(hook.unwrap());
    assert_eq!(*shown, json!({"memoryBytes": 512 * MIB, "openFiles": 96}));
    assert_eq!(limits, [both(512 * MIB), both(96)]);
    home.gdn(&["ps"])
        .exits(0)
        .prints(&[" of 64.0 MiB", " of 512.0 MiB"]);

    // Other limits change only the configuration of that agent.
    home.write("project/goondan.yaml", &home.filled_in(&limited_lab(256)));
    home.gdn(&["reload"]).exits(0);
    assert!(home.ask("main", "greedy").contains("256\n"));
    let after = home.ps_agent("main").unwrap();
    assert_ne!(after["pid"], agent["pid"]);
    assert_eq!(held(&after).1, [both(64 * MIB), both(256)]);
    let same = home
        .ps()
        .into_iter()
        .find(|process| process["name"] == "hook");
    assert_eq!(same.unwrap()["pid"], hook.unwrap()["pid"]);
}

#[test]
fn sec_8_memory_is_limited_by_default() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    daemon.webhook("hook");
    assert_eq!(home.ask("main", "echo hi"), "hi");
    let agent = home.ps_agent("main").unwrap();
    assert_eq!(held(&agent).0["memoryBytes"], 4_096 * MIB);
    assert_eq!(held(&agent).1[0], both(4_096 * MIB));
    let processes = home.ps();
    let hook = processes.iter().find(|process| process["name"] == "hook");
    assert_eq!(held(hook.unwrap()).1[0], both(2_048 * MIB));
}

#[test]
fn process_out_of_memory_is_reported_and_counts_as_crashed() {
    let home = Home::new(&limited_lab(128));
    let bin_dir = home.bin_dir_of_its_own();
    for name in [AGENT, CONNECTOR] {
        std::fs::hard_link(example(misbehaviour::EXAMPLE), bin_dir.path().join(name)).unwrap();
    }
    let daemon = Daemon::start_in(&home, bin_dir.path());
    home.gdn(&["run"]).exits(0);
    misbehaviour::order(home.path(), AGENT, &[Misbehaviour::Hoard]);
    // The next process does not misbehave, and answers.
    assert_eq!(home.ask("main", "echo well"), "well");
    let crashed = daemon.log().wait_for("the crash is reported", |line| {
        message(line) == "process crashed" && line["instanceKey"] == "main"
    });
    assert_eq!(
        crashed["how"],
        "killed by SIGABRT, probably out of memory; the limit is 64 MiB"
    );
    assert_eq!(crashed["consecutiveCrashes"], 1);
    let wanted = HOARD_BYTES.to_string();
    wait_until("its last words are in the log", || {
        let lines = daemon.log().lines();
        lines.iter().any(|line| message(line).contains(&wanted))
    });
}
