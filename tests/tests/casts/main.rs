//! Recordings for the documentation: `gdn top`, `gdn chat`, `gdn demo kill`, and [tours](tours) of
//! newcomers, on a real terminal.
//!
//! Recreate them with `GOONDAN_TEST_CASTS=docs/images cargo test --workspace --test casts`.

#[cfg(test)]
mod tours;

#[cfg(test)]
mod recordings {
    use std::path::Path;

    use goondan_tests::cast::Cast;
    use goondan_tests::home::ORCHESTRATOR;
    use goondan_tests::processes::{self, Signal};
    use goondan_tests::tree::copy_folder;
    use goondan_tests::{Daemon, Home, needs, wait_until};

    /// A home whose project is a copy of an example.
    pub(crate) fn example(name: &str) -> Home {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
        let home = Home::without_project();
        copy_folder(&examples.join(name), &home.project());
        home
    }

    pub(crate) fn send(home: &Home, key: &str, event: &str, text: &str) {
        let to = ["send", "--instance", key, "--event-id", event, text];
        home.gdn(&to).exits(0);
    }

    #[test]
    fn top_is_recorded() {
        if !needs::program("tmux") {
            return;
        }
        let home = example("newsroom");
        let daemon = Daemon::serving(&home);
        let title = "gdn top: three agents at work, one of their conversations, and its trace";
        let mut cast = Cast::begin(&home, ("top", title), (100, 24));
        cast.type_in("gdn top");
        cast.screen().wait_for("1 Overview");
        cast.keep(1_500);
        for (key, topic, conversations) in [("ada", "bees", 3), ("grace", "rivers", 6)] {
            send(
                &home,
                key,
                &format!("order-{key}"),
                &format!("report on {topic}"),
            );
            cast.screen()
                .wait_for(&format!("{conversations} conversations"));
            cast.screen()
                .wait_for(&format!("completed, for event order-{key}"));
            cast.keep(1_800);
        }
        cast.press("2", "CONVERSATION ", 2_000);
        cast.press("Enter", "What we know about", 3_000);
        cast.press("t", "agents__request", 3_500);
        cast.press("3", "KIND ", 2_500);
        cast.screen().press(&["q"]);
        cast.screen().wait_for_prompt();
        cast.finish();
        daemon.stop();
    }

    #[test]
    fn a_chat_is_recorded_in_which_the_daemon_is_killed() {
        if !needs::program("tmux") {
            return;
        }
        let home = example("bookshop");
        let daemon = Daemon::serving(&home);
        let title = "gdn chat: a question, a kill of the daemon, and what the agent remembers";
        let mut cast = Cast::begin(&home, ("chat", title), (92, 24));
        cast.type_in("gdn chat");
        cast.screen().wait_for("\nyou>");
        cast.keep(1_000);
        cast.type_in("remember my name is Ada");
        cast.screen().wait_for("I shall remember you, Ada.\nyou>");
        cast.keep(1_500);
        cast.type_in("How many copies of Dune were sold, and what did they earn?");
        cast.screen().wait_for("244.70 euros.\nyou>");
        cast.keep(3_000);
        drop(daemon.kill());
        let daemon = Daemon::start(&home);
        cast.type_in("what is my name");
        cast.screen().wait_for("Your name is Ada.\nyou>");
        cast.keep(3_000);
        cast.screen().press(&["C-d"]);
        cast.screen().wait_for_prompt();
        cast.finish();
        daemon.stop();
    }

    #[test]
    fn a_demo_in_which_everything_is_killed_is_recorded() {
        if !needs::program("tmux") {
            return;
        }
        let home = Home::without_project();
        let title =
            "gdn demo kill: everything is killed at random, and nothing is lost or done twice";
        let mut cast = Cast::begin(&home, ("demo-kill", title), (112, 13));
        cast.type_in("gdn demo kill --for 5s --seed 5");
        cast.follow("was answered exactly once.", 150);
        cast.screen().wait_for_prompt();
        cast.keep(5_000);
        cast.finish();
        wait_until("every process has ended", || {
            home.running(ORCHESTRATOR).is_empty()
        });
        kill_all(&home);
    }

    /// Kills the processes that were started from this home.
    pub(crate) fn kill_all(home: &Home) {
        for left in processes::of_home(home.path()) {
            processes::signal(left.pid, Signal::SIGKILL);
        }
    }
}
