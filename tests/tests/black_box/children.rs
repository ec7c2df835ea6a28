//! Misbehaving children: the daemon's other work continues, and the log explains the failure
//! (`IPC-4`, `LOG-3`, `SUP-6`).

use goondan_tests::binaries::example;
use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::misbehaviour::{self, FLOOD_LINES, HALF_LINE, Misbehaviour};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, http, wait_for, wait_until};
use serde_json::Value;

/// Maximum peak memory of the daemon, in KiB. Buffers for slow readers are bounded.
const DAEMON_MEMORY_MAX_KIB: u64 = 256 * 1024;

/// A daemon whose children misbehave on order, and an agent that must be unaffected.
struct ChildrenFixture {
    daemon: Daemon,
    bystander_pid: Value,
    home: Home,
    _bin_dir: tempfile::TempDir,
}

impl ChildrenFixture {
    fn new(goondan_yaml: &str) -> Self {
        let home = Home::new(goondan_yaml);
        let bin_dir = home.bin_dir_of_its_own();
        for name in [AGENT, CONNECTOR] {
            std::fs::hard_link(example(misbehaviour::EXAMPLE), bin_dir.path().join(name)).unwrap();
        }
        let daemon = Daemon::start_in(&home, bin_dir.path());
        home.gdn(&["run"]).exits(0);
        assert_eq!(home.ask("bystander", "echo here"), "here");
        let bystander_pid = home.ps_agent("bystander").unwrap()["pid"].clone();
        Self {
            daemon,
            bystander_pid,
            home,
            _bin_dir: bin_dir,
        }
    }

    fn order(&self, program: &str, misbehaviours: &[Misbehaviour]) {
        misbehaviour::order(self.home.path(), program, misbehaviours);
    }

    /// Checks that the bystander works, in its original process.
    #[track_caller]
    fn check_bystander(&self) {
        assert_eq!(self.home.ask("bystander", "echo still here"), "still here");
        let bystander = self.home.ps_agent("bystander").unwrap();
        assert_eq!(bystander["pid"], self.bystander_pid);
        assert_eq!(bystander["consecutiveCrashes"], 0);
    }

    /// Waits for a log message of the orchestrator about one conversation's process.
    #[track_caller]
    fn wait_for_word(&self, key: &str, text: &str) -> Value {
        self.daemon.log().wait_for(text, |line| {
            message(line) == text && line["instanceKey"] == key
        })
    }
}

#[test]
fn log_3_unread_100_mb_flood_blocks_nothing_and_counts_losses() {
    let stage = ChildrenFixture::new(LAB);
    let (home, log) = (&stage.home, stage.daemon.log());
    let dropped = || {
        home.gdn_json(&["status"])["droppedLogLines"]
            .as_u64()
            .unwrap()
    };
    log.pause();
    stage.order(AGENT, &[Misbehaviour::Flood]);
    assert_eq!(home.ask("noisy", "echo amid the noise"), "amid the noise");
    // Work continues during the flood, and its lines block nothing, not even the noisy process.
    wait_until("lines are dropped", || dropped() > 0);
    for _ in 0..5 {
        stage.check_bystander();
        assert_eq!(home.ask("noisy", "echo more"), "more");
    }
    log.resume();
    let flood = u64::try_from(FLOOD_LINES).unwrap();
    let dropped = wait_for("every line is there or counted", || {
        let (seen, dropped) = (u64::try_from(log.flood_lines()).unwrap(), dropped());
        (seen + dropped >= flood).then_some(dropped)
    });
    let told = home.gdn(&["status"]).exits(16);
    told.tells(&["the log has gaps"]);
    log.wait_for("the drops are announced in the log", |line| {
        line["droppedInAll"]
            .as_u64()
            .is_some_and(|told| told >= dropped)
    });
    stage.check_bystander();
    let status = std::fs::read_to_string(format!("/proc/{}/status", stage.daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak_kib: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(
        peak_kib < DAEMON_MEMORY_MAX_KIB,
        "the daemon needed {peak_kib} KiB"
    );
}

#[test]
fn log_3_half_a_line_before_death_is_logged_and_event_answered() {
    let stage = ChildrenFixture::new(LAB);
    stage.order(AGENT, &[Misbehaviour::HalfLine]);
    assert_eq!(stage.home.ask("torn", "echo whole"), "whole");
    let half = stage.wait_for_word("torn", HALF_LINE);
    assert_eq!(
        (&half["cutShort"], &half["process"]),
        (&true.into(), &"agent".into())
    );
    assert_eq!(half["agentName"], "worker");
    assert_eq!(
        stage.wait_for_word("torn", "process crashed")["how"],
        "exit code 7"
    );
    stage.check_bystander();
}

#[test]
fn ipc_4_frames_that_are_none_end_that_process_and_nothing_else() {
    use Misbehaviour::{CutFrame, Garbage, OtherRole, OtherVersion, Oversized, WrongMessage};
    let stage = ChildrenFixture::new(LAB);
    let cases = [
        (Garbage, "not a valid envelope"),
        (Oversized, "a frame of 4294967295 bytes; at most 16777216"),
        (CutFrame, "ended inside a frame"),
        (
            WrongMessage,
            "it sent `status`, which its kind must not send",
        ),
        (OtherVersion, "9.9.9"),
        (OtherRole, "the wrong kind of process"),
    ];
    for (misbehaviour, problem) in cases {
        let key = misbehaviour.as_str();
        stage.order(AGENT, &[misbehaviour]);
        assert_eq!(stage.home.ask(key, "echo answered"), "answered");
        let broke = stage.wait_for_word(key, "process violated the protocol; killed");
        let text = broke["problem"].as_str().unwrap();
        assert!(text.contains(problem), "{text}");
        stage.wait_for_word(key, "process crashed");
        stage.check_bystander();
    }
}

#[test]
fn ipc_4_a_connector_that_breaks_the_protocol_is_replaced() {
    let stage = ChildrenFixture::new(LAB);
    stage.daemon.webhook("hook");
    stage.order(
        CONNECTOR,
        &[Misbehaviour::Garbage, Misbehaviour::WrongMessage],
    );
    let connector = stage.home.running(CONNECTOR).pop().unwrap();
    let seen = stage.daemon.log().lines().len();
    processes::signal(connector.pid, Signal::SIGKILL);
    let listening = stage
        .daemon
        .log()
        .wait_for_after(seen, "a real one listens", |line| {
            message(line) == "listening"
        });
    let broke = stage
        .daemon
        .log()
        .saying("process violated the protocol; killed");
    assert_eq!(broke.len(), 2, "{broke:#?}");
    assert!(broke.iter().all(|line| line["connection"] == "hook"));
    let address = listening["address"].as_str().unwrap().parse().unwrap();
    assert_eq!(
        http::post(address, "/hook", &[], "echo hi").unwrap().status,
        202
    );
    stage.check_bystander();
}

#[test]
fn sup_6_child_that_ignores_stop_is_killed_after_grace_period() {
    let quick = LAB.replace("gracePeriodSeconds: 60", "gracePeriodSeconds: 1");
    let stage = ChildrenFixture::new(&quick);
    let home = &stage.home;
    stage.order(AGENT, &[Misbehaviour::IgnoreStop]);
    home.gdn(&[
        "send",
        "--no-wait",
        "--instance",
        "stubborn",
        "echo at last",
    ])
    .exits(0);
    wait_until("it has greeted", || {
        home.ps_agent("stubborn")
            .is_some_and(|process| process["state"] == "idle")
    });
    let pid = home.ps_agent("stubborn").unwrap()["pid"].as_u64().unwrap();
    // It even ignores SIGTERM.
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGTERM);
    let restarted = home.gdn_json(&["restart", "--instance", "stubborn"]);
    assert_eq!(restarted["processes"], 1);
    let killed = stage.wait_for_word("stubborn", "process killed");
    assert_eq!(killed["reason"], "its grace period is over");
    wait_until("its successor answers", || {
        home.history("stubborn").len() == 2
    });
    // It was asked to end, so its end is not a crash.
    assert!(
        !stage.daemon.log().lines().iter().any(|line| {
            message(line) == "process crashed" && line["instanceKey"] == "stubborn"
        })
    );
    stage.check_bystander();

    // It cannot prevent the daemon from exiting either.
    stage.order(AGENT, &[Misbehaviour::IgnoreStop]);
    home.gdn(&["send", "--no-wait", "--instance", "another", "echo later"])
        .exits(0);
    wait_until("it has greeted", || {
        home.ps_agent("another")
            .is_some_and(|process| process["state"] == "idle")
    });
    let log = stage.daemon.stop();
    let told = log.saying("process killed");
    assert!(
        told.iter().any(|line| line["instanceKey"] == "another"),
        "{told:#?}"
    );
    // Its event was accepted, so it is answered.
    let _daemon = Daemon::start(home);
    wait_until("the event is answered", || {
        home.history("another").len() == 2
    });
}

#[test]
fn sup_9_a_child_that_never_greets_is_replaced() {
    let stage = ChildrenFixture::new(LAB);
    stage.order(AGENT, &[Misbehaviour::Silent]);
    assert_eq!(stage.home.ask("mute", "echo heard"), "heard");
    let killed = stage.wait_for_word("mute", "process killed");
    assert_eq!(killed["reason"], "it sent no greeting in time");
    stage.check_bystander();
}

#[test]
fn sup_4_crash_loop_backs_off_visibly_and_ends_with_a_turn() {
    let stage = ChildrenFixture::new(LAB);
    let home = &stage.home;
    stage.order(AGENT, &[Misbehaviour::Crash; 7]);
    let asking = home.start_gdn(&["send", "--instance", "looping", "echo at last"]);
    let backing_off = wait_for("the back-off is shown", || {
        home.ps_agent("looping")
            .filter(|process| process["state"] == "crashLoopBackOff")
    });
    assert!(backing_off["nextStartAt"].is_string(), "{backing_off}");
    assert!(backing_off["consecutiveCrashes"].as_u64().unwrap() >= 6);
    assert_eq!(backing_off["pendingEvents"], 1);
    stage.check_bystander();
    assert_eq!(asking.wait().exits(0).stdout, "at last\n");

    let mut crashes = stage.daemon.log().saying("process crashed");
    crashes.retain(|line| line["instanceKey"] == "looping");
    let told: Vec<(u64, u64)> = crashes
        .iter()
        .map(|line| {
            let number = |name: &str| line[name].as_u64().unwrap();
            (number("consecutiveCrashes"), number("nextStartInMs"))
        })
        .collect();
    let expected = [
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 0),
        (6, 1_000),
        (7, 2_000),
    ];
    assert_eq!(told, expected);
    assert_eq!(home.ps_agent("looping").unwrap()["consecutiveCrashes"], 0);
}
