//! Goal: nothing that ran in a sandbox is left over, whichever process is killed at any time (`SEC-3`,
//! `SUP-7`).
//!
//! Method: commands that leave their session, keep children and write files run at a level, as
//! single commands and in a session; a random process is killed after a random time. Afterwards the
//! machine has no additional mount or process, and the files outside of the work directory are
//! unchanged.
//!
//! `GOONDAN_TEST_KILL_ROUNDS=500` runs more rounds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use goondan_tests::home::GDN;
use goondan_tests::processes::Signal;
use goondan_tests::projects::{BASH, Commands};
use goondan_tests::random::Random;
use goondan_tests::{Daemon, Home, needs, processes, wait_until};
use serde_json::json;

/// Rounds at each level, unless `GOONDAN_TEST_KILL_ROUNDS` is set.
const ROUNDS: usize = 8;

/// Maximum time before a kill: a turn takes about half of it.
const KILL_WITHIN_MS: u64 = 160;

/// A stray child in a separate session that ignores signals, and files here and in the temporary
/// directory.
const COMMAND: &str = "(setsid sleep NUMBER & trap '' TERM HUP; sleep NUMBER) & touch $TMPDIR/trace $HOME/own; sleep 0.05";

/// State that must be the same before and after.
#[derive(Debug)]
struct MachineState {
    mounts: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
}

impl MachineState {
    fn of(home: &Home) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut files = BTreeSet::new();
        list(home.path(), &mut files);
        // The state of the daemon and the conversation is not part of the sandbox.
        files.retain(|path| !path.starts_with(home.state_root()));
        Self {
            mounts: mounts.lines().map(ToOwned::to_owned).collect(),
            files,
        }
    }
}

fn list(dir: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            list(&entry.path(), files);
        }
        files.insert(entry.path());
    }
}

/// Processes that a daemon has started, with their descendants.
fn below(home: &Home, daemon: &Daemon) -> Vec<u32> {
    let all = processes::of_home(home.path());
    all.iter()
        .filter(|process| process.program() != GDN && process.pid != daemon.pid())
        .map(|process| process.pid)
        .collect()
}

/// Kills the daemon in one of four rounds, else a random other process; returns true if it killed
/// the daemon.
fn kill_one(home: &Home, daemon: &Daemon, strays: &[u32], random: &mut Random) -> bool {
    let mut pids = below(home, daemon);
    pids.extend(strays);
    match random.choose(&pids) {
        Some(victim) if random.below(4) != 0 => {
            processes::signal(*victim, Signal::SIGKILL);
            false
        }
        _ => true,
    }
}

fn nothing_is_left(level: &str) {
    if !needs::sandbox(level) {
        return;
    }
    let rounds = std::env::var("GOONDAN_TEST_KILL_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    // A unique number distinguishes it from the processes of other tests.
    let number = (300_000 + std::process::id() + u32::from(level == "full")).to_string();
    let command = COMMAND.replace("NUMBER", &number);
    let calls = [
        ("bash__exec", json!({"command": command})),
        ("bash__exec", json!({"command": command, "session": "kept"})),
    ];
    let project = Commands::new().call_all("^work$", &calls).agent(
        "worker",
        &[BASH],
        &format!("{{require: {level}}}"),
    );
    let home = Home::new(&project.yaml());
    let strays = || processes::with_args(&["sleep", &number]);
    let mut random = Random::announced();
    let mut daemon = Daemon::serving(&home);
    home.ask("main", "work");
    let before = MachineState::of(&home);
    let mut daemons_killed = 0;
    for round in 0..rounds {
        let asking = home.start_gdn(&["send", "work"]);
        // Before that, only the daemon could be killed.
        wait_until("the agent's process is started", || {
            !below(&home, &daemon).is_empty()
        });
        random.let_pass(KILL_WITHIN_MS);
        if kill_one(&home, &daemon, &strays(), &mut random) {
            daemons_killed += 1;
            drop(daemon.kill());
            drop(asking.wait());
            wait_until("what ran in the sandbox is gone", || strays().is_empty());
            daemon = Daemon::start(&home);
        } else {
            let ran = asking.wait();
            assert!([0, 1].contains(&ran.code), "round {round}: {ran:#?}");
        }
        // The interrupted turn ends.
        home.ask("main", "done?");
        home.gdn(&["restart", "--agent", "worker"]).exits(0);
        wait_until("what ran in the sandbox is gone", || strays().is_empty());
        let after = MachineState::of(&home);
        assert_eq!(after.files, before.files, "round {round}");
        // Mounts that other processes of this machine remove meanwhile do not count.
        let left: Vec<_> = after.mounts.difference(&before.mounts).collect();
        assert!(left.is_empty(), "round {round}: {left:#?}");
    }
    println!("{level}: {rounds} rounds, the daemon killed in {daemons_killed}");
    drop(daemon.stop());
    assert_eq!(strays(), Vec::<u32>::new());
}

#[test]
fn sec_3_nothing_of_a_sandbox_is_left_at_the_level_full() {
    nothing_is_left("full");
}

#[test]
fn sec_3_nothing_of_a_sandbox_is_left_at_the_level_landlock() {
    nothing_is_left("landlock");
}
