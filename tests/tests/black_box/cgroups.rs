//! Control groups around children, where the machine lets the tests make some (`SUP-7`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, ORCHESTRATOR};
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};

use crate::tasks::{example, new_shop, state_of};

/// [`LAB`] with limits for its worker that only control groups enforce.
fn lab() -> String {
    let limits = "  runtime:\n    limits: {memoryMiB: 256, processes: 64}\n  tools:";
    LAB.replacen("  tools:", limits, 1)
}

/// Control group of a test, removed with it.
struct Group(PathBuf);

impl Group {
    /// None if this process may not create one.
    fn new() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let at = Path::new(mount.split(' ').nth(4)?);
        // Each test has its own group, because tests run concurrently.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("goondan-test-{}-{number}", std::process::id());
        let dir = at.join(own).join(name);
        fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        let is_one = group.0.join("cgroup.procs").is_file();
        is_one.then_some(group)
    }

    /// A command that moves itself into the group and executes the daemon.
    fn daemon(&self, home: &Home) -> Command {
        let script = r#"echo $$ > "$1/cgroup.procs" && exec "$2""#;
        let mut command = home.command(Path::new("sh"), &["-c", script, "sh"]);
        command.arg(&self.0).arg(bin(ORCHESTRATOR));
        command
    }

    fn children(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut dirs: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        dirs.retain(|dir| !dir.ends_with("orchestrator"));
        dirs
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group that cannot be removed is left behind.
        drop(fs::remove_dir(self.0.join("orchestrator")));
        drop(fs::remove_dir(&self.0));
    }
}

/// Path of a process's version 2 control group.
fn group_of(pid: u32) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
    path.unwrap().to_owned()
}

#[test]
fn sup_7_control_group_of_a_child_ends_with_all_its_processes() {
    let home = Home::new(&lab());
    let Some(group) = Group::new() else {
        println!("no control group can be made here: only what happens without is checked");
        return without_groups(&home);
    };
    let daemon = Daemon::start_command(&home, group.daemon(&home));
    home.gdn(&["run"]).exits(0);
    let status = home.gdn_json(&["status"]);
    assert_eq!(status["cgroup"], group.0.to_str().unwrap());
    home.gdn(&["status"]).exits(0).prints(&["Control group"]);
    assert!(group_of(daemon.pid()).ends_with("/orchestrator"));

    home.gdn(&["send", "--no-wait", "--instance", "k", "escape"])
        .exits(0);
    wait_until("the tool has escaped", || home.running("sleep").len() == 1);
    let agent = u32::try_from(home.ps_agent("k").unwrap()["pid"].as_u64().unwrap()).unwrap();
    assert!(
        home.running(AGENT)
            .iter()
            .any(|process| process.pid == agent)
    );
    let sleeper = home.running("sleep")[0].pid;
    assert!(group_of(agent).contains("/child-"), "{}", group_of(agent));
    assert_eq!(group_of(sleeper), group_of(agent));
    let name = group_of(agent).rsplit('/').next().unwrap().to_owned();
    let dir = group.0.join(name);
    check_controllers(&group, &dir);

    processes::signal(agent, Signal::SIGKILL);
    wait_until("the group is gone with all that was in it", || {
        !dir.exists()
    });
    assert!(!processes::is_alive(sleeper));
    home.gdn(&["instance", "delete", "--yes", "k"]).exits(0);
    drop(daemon.stop());
    assert_eq!(group.children(), Vec::<PathBuf>::new());
}

/// A program that tries to escape: from its session and its parents.
const RUNAWAY: &str = "#!/bin/sh\ncat > /dev/null\nsetsid sleep 4322 &\n\
                       (setsid sh -c 'sleep 4323 & exec sleep 4324' &)\nsleep 4321\n";

/// True if the kernel reports the whole group as frozen.
fn is_frozen(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap();
    events.lines().any(|line| line == "frozen 1")
}

#[test]
fn task_8_pause_freezes_a_program_while_its_process_listens() {
    let Some(group) = Group::new() else {
        println!(
            "no control group can be made here: freezing is not checked; pausing by signals is elsewhere"
        );
        return;
    };
    let home = example();
    home.write_program("project/agent.sh", RUNAWAY);
    let daemon = Daemon::start_command(&home, group.daemon(&home));
    home.gdn(&["run"]).exits(0);
    new_shop(&home, &["--start"]);
    wait_until("its program runs", || home.running("sleep").len() == 4);
    let sleepers: Vec<u32> = home.running("sleep").iter().map(|it| it.pid).collect();
    let path = group_of(sleepers[0]);
    assert!(path.ends_with("/program"), "{path}");
    assert!(sleepers.iter().all(|pid| group_of(*pid) == path));
    let child = group.children().pop().unwrap();
    let program = child.join("program");
    let outside = fs::read_to_string(child.join("cgroup.procs")).unwrap();
    assert_eq!(outside.lines().count(), 1, "its process stays outside");
    assert!(!is_frozen(&program));

    home.gdn(&["task", "pause", "shop"]).exits(0);
    wait_until("all of it is frozen", || is_frozen(&program));
    assert!(!is_frozen(&child));
    assert!(sleepers.iter().all(|pid| state_of(*pid) != 'T'));
    home.gdn(&["task", "resume", "shop"]).exits(0);
    wait_until("it goes on", || !is_frozen(&program));
    // A frozen task can still be canceled.
    home.gdn(&["task", "pause", "shop"]).exits(0);
    wait_until("all of it is frozen", || is_frozen(&program));
    home.gdn(&["task", "cancel", "shop", "--yes"]).exits(0);
    wait_until("nothing of it is left", || home.running("sleep").is_empty());
    wait_until("the group is gone", || !child.exists());

    // Also after the daemon dies.
    home.gdn(&[
        "task",
        "new",
        "Shop",
        "--id",
        "two",
        "--description",
        "x",
        "--start",
    ])
    .exits(0);
    wait_until("its program runs", || home.running("sleep").len() == 4);
    let program = group.children().pop().unwrap().join("program");
    home.gdn(&["task", "pause", "two"]).exits(0);
    wait_until("all of it is frozen", || is_frozen(&program));
    drop(daemon.kill());
    wait_until("nothing of it is left", || home.running("sleep").is_empty());
}

/// The limits that the kernel enforces depend on the available controllers.
fn check_controllers(group: &Group, dir: &Path) {
    let offered = fs::read_to_string(group.0.join("cgroup.controllers")).unwrap();
    for (controller, file, limit) in [
        ("memory", "memory.max", 256 << 20),
        ("pids", "pids.max", 64),
    ] {
        if offered
            .split_whitespace()
            .any(|offered| offered == controller)
        {
            let held = fs::read_to_string(dir.join(file)).unwrap();
            assert_eq!(held.trim(), limit.to_string(), "{file}");
        } else {
            println!("no controller `{controller}` here: its limit is not checked");
            assert!(!dir.join(file).exists());
        }
    }
}

fn without_groups(home: &Home) {
    let daemon = Daemon::serving(home);
    assert!(home.gdn_json(&["status"])["cgroup"].is_null());
    assert_eq!(home.ask("k", "echo one"), "one");
    for told in ["no control groups:", "`limits.processes` has no effect"] {
        daemon
            .log()
            .wait_for(told, |line| message(line).starts_with(told));
    }
}
