//! Keys that narrow a followed log on a terminal (`OBS-2`).

use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::projects::LAB;
use goondan_tests::screen::Screen;
use goondan_tests::{Daemon, Home, needs, wait_until};

#[test]
fn obs_2_keys_narrow_a_followed_log_and_the_terminal_is_restored() {
    if !needs::program("tmux") {
        return;
    }
    let home = Home::new(LAB);
    let _daemon = Daemon::serving(&home);
    assert_eq!(home.ask("main", "echo hi"), "hi");
    let screen = Screen::start(&home.command(&bin(GDN), &[]), 400, 120);
    let (at, gdn) = (home.path().display(), bin(GDN));
    screen.types(&format!("HOME='{at}' '{}' logs -f", gdn.display()));
    screen.press(&["Enter"]);
    screen.wait_for("turn committed");

    screen.types("/TURN COM");
    screen.wait_for("\n/TURN COM\n");
    // Lines do not tear apart what is typed.
    assert_eq!(home.ask("held", "echo hi"), "hi");
    screen.types("MITTED");
    screen.wait_for("\n/TURN COMMITTED\n");
    screen.press(&["Enter"]);
    let title = "Lines with “turn committed”; Esc shows all:\n";
    screen.wait_for(title);
    assert_eq!(home.ask("later", "echo hi"), "hi");
    wait_until("each turn is listed", || {
        let shown = screen.shown();
        let (_, narrowed) = shown.split_once(title).unwrap();
        ["/main", "/held", "/later"]
            .iter()
            .all(|key| narrowed.contains(key))
    });
    let shown = screen.shown();
    let (_, narrowed) = shown.split_once(title).unwrap();
    let mut lines = narrowed.lines().filter(|line| !line.is_empty());
    assert!(lines.all(|line| line.contains("turn committed")), "{shown}");

    screen.press(&["Escape"]);
    screen.wait_for("All lines:\n");
    screen.types("1");
    screen.wait_for("Lines of level error; Esc shows all:\n");
    screen.press(&["C-c"]);
    screen.wait_for_prompt();
    screen.types("echo code=$?; stty -a");
    screen.press(&["Enter"]);
    screen.wait_for("code=130\n");
    screen.wait_for(" icanon ");
    screen.wait_for(" echo ");

    // A pipe gets only lines.
    let piped = home.start_gdn(&["logs", "-f"]);
    piped.wait_for_stdout("turn committed");
    assert_eq!(piped.stderr(), "");
    assert!(!piped.stdout().contains('\u{1b}'));
}
