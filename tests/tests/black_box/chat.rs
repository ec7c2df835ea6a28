//! `gdn chat` in a real terminal (`STEER-4`).

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::random::Random;
use goondan_tests::screen::Screen;
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::Value;

use crate::conversation::{check, text};

/// Number of kills under watching clients; the long form is 200.
const KILLS_VAR: &str = "GOONDAN_TEST_WATCHED_KILLS";
const KILLS: u64 = 5;
/// Maximum time from a message to the kill of the daemon, in milliseconds. A turn takes about as
/// long.
const MOMENT_MS: u64 = 250;

/// A shell in the project, in which a chat runs.
fn chat(home: &Home) -> Screen {
    let screen = Screen::start(&home.command(&bin(GDN), &[]), 80, 24);
    begin(home, &screen);
    screen
}

fn begin(home: &Home, screen: &Screen) {
    let (gdn, home) = (bin(GDN), home.path());
    screen.types(&format!(
        "clear; HOME='{}' '{}' chat",
        home.display(),
        gdn.display()
    ));
    screen.press(&["Enter"]);
    screen.wait_for("Ctrl-D ends.\nyou>");
}

/// The shell is restored, and echoes input.
fn check_given_back(screen: &Screen) {
    screen.wait_for_prompt();
    screen.types("clear; echo ty''ped");
    screen.press(&["Enter"]);
    screen.wait_until_gone("you>");
    screen.wait_for("typed\n$");
}

/// User messages in the conversation `main`.
fn asked(home: &Home) -> Vec<String> {
    let messages = home.history("main");
    check(&messages);
    let of_users = messages
        .iter()
        .filter(|message| message["data"]["role"] == "user");
    of_users.map(text).collect()
}

#[test]
fn steer_4_line_editing_history_continuation_and_paste_work() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let screen = chat(&home);
    // A wide character is deleted with one key, and the cursor is at its displayed position.
    screen.types("echo 안녕하세요 🦀x");
    screen.press(&["BSpace", "BSpace", "BSpace", "BSpace", "BSpace"]);
    screen.wait_for("you> echo 안녕하\n");
    screen.press(&["Home"]);
    screen.press(&["Right", "Right", "Right", "Right", "Right"]);
    screen.types("새 ");
    screen.wait_for("you> echo 새 안녕하\n");
    screen.press(&["Enter"]);
    screen.wait_for("worker> 새 안녕하\nyou>");

    screen.types("echo one");
    screen.press(&["M-Enter"]);
    screen.types("two");
    screen.press(&["Enter"]);
    // The editor enables bracketed paste only once the prompt is back.
    screen.wait_for("\ntwo\nyou>");
    screen.pastes("echo pasted\nin three\nlines");
    screen.wait_for("...> lines");
    screen.press(&["Enter"]);
    screen.wait_for("\nin three\nlines\nyou>");
    assert_eq!(
        asked(&home),
        [
            "echo 새 안녕하",
            "echo one\ntwo",
            "echo pasted\nin three\nlines"
        ]
    );
    screen.types("/quit");
    screen.press(&["Enter"]);
    check_given_back(&screen);

    // Another chat shares the input history.
    begin(&home, &screen);
    wait_until("the first line of that chat is found", || {
        screen.press(&["Up"]);
        screen.shown().contains("you> echo 새 안녕하\n")
    });
    screen.resize(40, 10);
    screen.press(&["Enter"]);
    screen.wait_for("worker> 새 안녕하\nyou>");
    screen.press(&["C-d"]);
    check_given_back(&screen);
    daemon.stop();
}

#[test]
fn steer_4_events_from_elsewhere_show_once_over_daemon_kills() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(LAB);
    let mut daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo before"), "before");
    let screen = chat(&home);
    screen.types("echo half");
    let mut expected = Vec::new();
    for round in 0..3 {
        let text = format!("from elsewhere {round}");
        assert_eq!(home.ask("main", &format!("echo {text}")), text);
        screen.wait_for("assistant  ");
        screen.wait_for(&format!("  {text}\n"));
        // Unsent input is kept.
        screen.wait_for("you> echo half");
        expected.push(text);
        drop(daemon.kill());
        daemon = Daemon::start(&home);
    }
    screen.types(" done");
    screen.press(&["Enter"]);
    screen.wait_for("worker> half done\nyou>");
    home.gdn(&["send", "fail"]).exits(7);
    screen.wait_for("turn failed");
    let shown = screen.shown();
    assert!(!shown.contains("  before\n"), "{shown}");
    for said in expected {
        assert_eq!(shown.matches(&format!("  {said}\n")).count(), 1, "{shown}");
    }
    assert_eq!(shown.matches("half done\n").count(), 2, "{shown}");
    screen.press(&["C-d"]);
    check_given_back(&screen);
    daemon.stop();
}

#[test]
fn steer_4_ctrl_c_stops_cancels_exits_and_restores_the_terminal() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let screen = chat(&home);
    screen.types("hold x");
    screen.press(&["Enter"]);
    let runs = home.notes().join("x.runs");
    wait_until("the tool runs", || runs.exists());
    screen.press(&["C-c"]);
    screen.wait_for("stopped waiting");
    screen.wait_for("\nyou>");
    screen.press(&["C-c"]);
    screen.wait_for("Canceled the turn of main");
    screen.types("echo after");
    screen.press(&["Enter"]);
    screen.wait_for("worker> after\nyou>");
    screen.types("not said");
    screen.wait_for("you> not said");
    screen.press(&["C-c"]);
    screen.wait_for("Press Ctrl-C again");
    screen.press(&["C-c"]);
    check_given_back(&screen);
    assert_eq!(asked(&home), ["hold x", "echo after"]);

    for signal in [Signal::SIGHUP, Signal::SIGTERM] {
        begin(&home, &screen);
        let gdn = home.running("gdn");
        let [chat] = gdn.as_slice() else {
            panic!("not one gdn runs: {gdn:?}");
        };
        processes::signal(chat.pid, signal);
        check_given_back(&screen);
    }
    daemon.stop();
}

/// Events whose turns a watch reported as committed.
fn committed(watch: &RunningProgram) -> Vec<String> {
    let printed = watch.stdout();
    let told = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let commits = told.filter(|told| told["event"]["type"] == "turn.committed");
    commits
        .map(|told| told["event"]["eventId"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn obs_1_chat_top_and_watch_match_history_over_daemon_kills() {
    if !needs::program("tmux") {
        return;
    }
    let mut random = Random::announced();
    let kills = std::env::var(KILLS_VAR).map_or(KILLS, |text| text.parse().unwrap());
    let home = Home::new(LAB);
    let mut daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo before"), "before");
    let chat = chat(&home);
    let top = Screen::start(&home.command(&bin(GDN), &[]), 80, 24);
    let gdn = bin(GDN);
    let (at, gdn) = (home.path().display(), gdn.display());
    top.types(&format!("HOME='{at}' '{gdn}' top --view conversations"));
    top.press(&["Enter"]);
    top.wait_for("main ");
    top.press(&["Enter"]);
    top.wait_for("echo before");
    let watch = home.start_gdn(&["watch", "--json"]);
    watch.wait_for_stdout("snapshot");
    for round in 0..kills {
        let (id, said) = (format!("e{round}"), format!("echo word{round}."));
        let sending = home.start_gdn(&["send", "--event-id", &id, &said]);
        // The moment is random, so the test does not wait for any condition.
        random.let_pass(MOMENT_MS);
        drop(daemon.kill());
        daemon = Daemon::start(&home);
        drop(sending.wait());
        home.gdn(&["send", "--event-id", &id, &said])
            .exits(0)
            .prints(&[&format!("word{round}.")]);
    }
    let expected: Vec<String> = (0..kills)
        .map(|round| format!("echo word{round}."))
        .collect();
    assert_eq!(asked(&home)[1..], expected);
    let last = format!("  word{}.\n", kills - 1);
    wait_until("the chat shows the last of it", || {
        chat.shown_so_far().contains(&last)
    });
    top.wait_for(&last);
    let shown = chat.shown_so_far();
    let mut behind = 0;
    for round in 0..kills {
        for line in [
            format!("  echo word{round}.\n"),
            format!("  word{round}.\n"),
        ] {
            let found: Vec<usize> = shown.match_indices(&line).map(|(at, _)| at).collect();
            assert!(
                matches!(found.as_slice(), [at] if *at >= behind),
                "{line:?} at {found:?}: {shown}"
            );
            behind = found[0];
        }
    }
    assert!(!shown.contains("  before\n"), "{shown}");
    let mut asked = 0;
    wait_until("the watch follows the last daemon", || {
        asked += 1;
        let id = format!("later{asked}");
        home.gdn(&["send", "--event-id", &id, "echo later"])
            .exits(0);
        committed(&watch).contains(&id)
    });
    let told = committed(&watch);
    let mut once = told.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), told.len(), "told twice: {told:?}");
    chat.press(&["C-d"]);
    top.press(&["q"]);
    home.gdn(&["stop"]).exits(0);
    watch.wait().exits(0);
    wait_until("none of them is left", || home.running(GDN).is_empty());
    daemon.stop();
}
