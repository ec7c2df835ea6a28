//! `gdn top` in a real terminal (`OBS-4`).

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::screen::Screen;
use goondan_tests::{Daemon, Home, needs, wait_until};

use crate::tasks::new_shop;

/// Shell output before and after `gdn top`.
const MARK: &str = "this stays";

/// A shell in the project, in which `gdn top` runs.
fn top(home: &Home, args: &str) -> Screen {
    let gdn = bin(GDN);
    let screen = Screen::start(&home.command(&gdn, &[]), 80, 24);
    screen.types(&format!("echo {MARK}"));
    screen.press(&["Enter"]);
    screen.wait_for(&format!("\n{MARK}\n"));
    begin(home, &screen, args);
    screen.wait_for("1 Overview");
    screen
}

fn begin(home: &Home, screen: &Screen, args: &str) {
    let (gdn, home) = (bin(GDN), home.path());
    screen.types(&format!(
        "HOME='{}' '{}' top{args}",
        home.display(),
        gdn.display()
    ));
    screen.press(&["Enter"]);
}

/// The shell is restored, and echoes input.
fn check_given_back(screen: &Screen) {
    screen.wait_for_prompt();
    assert!(screen.shown().contains(&format!("\n{MARK}\n")));
    screen.types("echo ty''ped");
    screen.press(&["Enter"]);
    screen.wait_for("echo ty''ped\ntyped\n");
}

fn runs_of(home: &Home, name: &str) -> usize {
    let path = home.notes().join(format!("{name}.runs"));
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn obs_4_top_survives_a_daemon_kill_and_restores_the_terminal() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let screen = top(&home, "");
    screen.wait_for("@goondan/lab   0 turns");
    assert_eq!(home.ask("main", "echo one"), "one");
    screen.wait_for("turn completed, for event");
    screen.wait_for("1 conversation ");
    screen.press(&["2"]);
    screen.wait_for("main");
    screen.press(&["Enter"]);
    screen.wait_for("Conversation main");
    screen.wait_for("echo one");

    // An open page shows what arrived meanwhile, despite the death of the daemon.
    drop(daemon.kill());
    screen.wait_for("no daemon runs the project");
    let daemon = Daemon::start(&home);
    screen.wait_until_gone("no daemon runs the project");
    assert_eq!(home.ask("main", "echo 안녕 🦀"), "안녕 🦀");
    wait_until("the page says what was said", || {
        screen.shown().matches("안녕 🦀").count() == 2
    });
    let history = home.history("main");
    assert_eq!(history.len(), 4, "{history:#?}");

    for (columns, rows) in [(40, 10), (20, 3), (120, 40)] {
        screen.resize(columns, rows);
        wait_until("it fits the new size", || {
            let shown = screen.shown();
            let first = shown.lines().next().unwrap_or_default();
            shown.lines().count() == usize::from(rows) && first.starts_with("@goondan/lab")
        });
    }
    screen.press(&["q"]);
    check_given_back(&screen);
    daemon.stop();
}

#[test]
fn obs_4_top_cancels_after_confirmation_and_restores_terminal() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let screen = top(&home, "");
    let asking = home.start_gdn(&["send", "hold x"]);
    wait_until("the tool runs", || runs_of(&home, "x") == 1);
    screen.wait_for("1 turn ");
    screen.wait_for("main     ");
    screen.press(&["c"]);
    screen.wait_for("Cancel the turn of main? y/N");
    screen.press(&["y"]);
    asking.wait().exits(7).tells(&["canceled by a person"]);
    screen.wait_for("Canceled the turn of main.");

    for signal in [Signal::SIGHUP, Signal::SIGTERM] {
        let gdn = home.running("gdn");
        let [top] = gdn.as_slice() else {
            panic!("not one gdn runs: {gdn:?}");
        };
        processes::signal(top.pid, signal);
        check_given_back(&screen);
        begin(&home, &screen, " --view logs");
        screen.wait_for("6 Logs");
        screen.wait_for("turn committed");
    }
    screen.press(&["C-c"]);
    screen.wait_until_gone("6 Logs");
    daemon.stop();
}

#[test]
fn obs_4_one_picture_of_top_is_text_or_json_for_a_script() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    home.gdn(&["top"])
        .exits(2)
        .tells(&["needs a terminal", "top --once"]);
    home.gdn(&["top", "--once"])
        .exits(0)
        .prints(&["@goondan/lab   0 turns", "NEEDS A PERSON\nnothing\n"]);
    home.gdn(&["top", "--once", "--view", "conversations"])
        .exits(0)
        .prints(&["\nmain"]);
    let output = home.gdn_json(&["top"]);
    assert_eq!(output["schema"], "gdn.top/v1");
    assert_eq!(output["conversations"][0]["instanceKey"], "main");
    assert_eq!(output["conversationsTotal"], 1);
    daemon.stop();
}

/// Closes the terminal of a program as soon as it shows a text, and prints its exit status.
const HANG_UP: &str = r#"
import fcntl, os, pty, signal, struct, subprocess, sys, termios
signal.alarm(60)
way, text, program = sys.argv[1], sys.argv[2].encode(), sys.argv[3:]
def take_terminal():
    if way == "hang-up":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
child = subprocess.Popen(
    program, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    preexec_fn=take_terminal,
)
os.close(theirs)
shown = b""
while text not in shown:
    part = os.read(ours, 4096)
    shown += part
    if b"\x1b[6n" in part:
        os.write(ours, b"\x1b[1;1R")
os.close(ours)
print(child.wait(timeout=30))
"#;

/// Ends a command by closing its terminal, with or without the signal that a shell's terminal
/// sends. A panic would exit with code 101 and an invisible message.
fn close_terminal(home: &Home, way: &str, text: &str, arguments: &[&str]) -> i32 {
    let gdn = bin(GDN);
    let gdn = gdn.to_str().unwrap();
    let all = [&["-c", HANG_UP, way, text, gdn], arguments].concat();
    let mut command = home.command(Path::new("python3"), &all);
    command.env("TERM", "xterm-256color");
    let output = command.output().unwrap();
    let code = String::from_utf8_lossy(&output.stdout);
    let code = code.trim().parse();
    code.unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
}

/// Long-running commands, each with a text that it shows at its start.
const FOLLOWING: [(&str, &[&str]); 7] = [
    ("Overview", &["top"]),
    ("you>", &["chat"]),
    ("Now:", &["watch"]),
    ("turn", &["logs", "--follow"]),
    ("turn", &["logs", "--follow", "--all"]),
    ("worker", &["ps", "--watch"]),
    ("Task created", &["task", "logs", "shop", "--follow"]),
];

#[test]
fn obs_4_every_following_command_ends_quietly_with_its_terminal() {
    if !needs::program("python3") {
        return;
    }
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    new_shop(&home, &["--agent", "worker"]);
    for (text, arguments) in FOLLOWING {
        // Those that control the terminal exit normally or as interrupted, the others by SIGHUP.
        let code = close_terminal(&home, "hang-up", text, arguments);
        assert!(
            [0, 130, -1].contains(&code),
            "{arguments:?} ended with {code}"
        );
        let code = close_terminal(&home, "no signal", text, arguments);
        assert!([0, 130].contains(&code), "{arguments:?} ended with {code}");
    }
}

#[test]
fn obs_4_every_following_command_ends_quietly_with_its_pipe() {
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    home.ask("main", "echo one");
    new_shop(&home, &["--agent", "worker"]);
    for (text, arguments) in FOLLOWING {
        if ["top", "chat"].contains(&arguments[0]) {
            // Without a terminal they print one snapshot, and process stdin.
            continue;
        }
        // Its first line is a note on stderr, but data with `--json`.
        let (text, arguments) = match arguments[0] {
            "watch" => ("snapshot", &["--json", "watch"][..]),
            _ => (text, arguments),
        };
        let mut command = home.command(&bin(GDN), arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut shown = BufReader::new(running.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(shown.read_line(&mut line).unwrap() > 0, "{arguments:?}");
        }
        // Nothing more happens: it notices anyway.
        drop(shown);
        let ended = running.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("error"), "{arguments:?}: {stderr}");
    }
}
