//! Tours of three newcomers: an operator, a developer, and an approver.
//!
//! Each runs on terminals of every size in [`SIZES`]; only the one of [`RECORDED`] is recorded.

use std::path::Path;

use goondan_tests::cast::Cast;
use goondan_tests::{Daemon, Home, needs};

use crate::recordings::{example, kill_all, send};

/// Columns and rows of the terminals.
const SIZES: [(u16, u16); 3] = [(60, 20), RECORDED, (120, 40)];
const RECORDED: (u16, u16) = (80, 24);

/// The project of the how-to guide about approvals, in which most commands wait for a person.
fn careful() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/approve-calls.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, project) = page.split_once("# file: goondan.yaml\n").unwrap();
    project.split("```").next().unwrap().to_owned()
}

/// Types a command, waits for a text in its output and for the prompt, and keeps the screen.
fn run(cast: &mut Cast, command: &str, until: &str, lasts_ms: u64) {
    cast.screen().types("clear");
    cast.screen().wait_for("clear");
    cast.screen().press(&["Enter"]);
    cast.screen().wait_until_gone("clear");
    cast.screen().wait_for_prompt();
    cast.type_in(command);
    cast.screen().wait_for(until);
    cast.screen().wait_for_prompt();
    cast.keep(lasts_ms);
}

/// Runs a tour at every size, and writes the recording.
fn tour(
    about: (&'static str, &'static str),
    of: impl Fn(&Home, &mut Cast),
    home: impl Fn() -> Home,
) {
    if !needs::program("tmux") {
        return;
    }
    for size in SIZES {
        let home = home();
        let mut cast = Cast::begin(&home, about, size);
        of(&home, &mut cast);
        if size == RECORDED {
            cast.finish();
        }
        kill_all(&home);
    }
}

#[test]
fn an_operator_finds_out_how_the_agents_are() {
    let title = "An operator: the state of the agents, their work, their logs, and the disk";
    let look_around = |home: &Home, cast: &mut Cast| {
        let daemon = Daemon::serving(home);
        send(home, "ada", "order-1", "report on bees");
        run(cast, "gdn", "Next: ", 3_000);
        run(cast, "gdn ps", "editor", 3_000);
        run(cast, "gdn event trace", "agents__request", 4_000);
        run(cast, "gdn logs -n 5", "turn", 3_500);
        run(cast, "gdn daemon status --disk", "are free", 4_000);
        daemon.stop();
    };
    tour(("operator", title), look_around, || example("newsroom"));
}

#[test]
fn a_developer_starts_a_project_and_follows_a_message() {
    let title = "A developer: a project of three agents, an answer, and its trace";
    let begin = |_: &Home, cast: &mut Cast| {
        cast.type_in("gdn init --template multi-agent team");
        cast.screen().wait_for("Run it now?");
        cast.keep(1_500);
        cast.screen().types("y");
        cast.screen().press(&["Enter"]);
        cast.screen().wait_for("Created project");
        cast.screen().wait_for_prompt();
        cast.keep(3_000);
        run(cast, "cd team && gdn validate", "valid", 2_500);
        run(
            cast,
            "gdn send 'which files are there?'",
            "goondan.yaml",
            3_000,
        );
        run(cast, "gdn event trace", "agents__request", 4_000);
    };
    tour(("developer", title), begin, Home::without_project);
}

#[test]
fn an_approver_decides_in_the_inbox() {
    let title = "An approver: two commands wait, one is approved and one denied with a reason";
    let decide = |home: &Home, cast: &mut Cast| {
        let daemon = Daemon::serving(home);
        for (event, text) in [("order-1", "run echo hello"), ("order-2", "run rm -r data")] {
            home.gdn(&[
                "send",
                "--no-wait",
                "--event-id",
                event,
                "--conversation",
                event,
                text,
            ])
            .exits(0);
        }
        run(cast, "gdn", "gdn inbox", 2_500);
        cast.type_in("gdn inbox");
        cast.screen().wait_for("2 to decide");
        cast.keep(3_000);
        cast.press("y", "1 to decide", 2_500);
        cast.press("n", "Reason (optional):", 1_500);
        cast.type_in("the data is still needed");
        cast.screen().wait_for("2 decided. Nothing else needs you.");
        cast.keep(3_000);
        daemon.stop();
    };
    tour(("approver", title), decide, || Home::new(&careful()));
}
