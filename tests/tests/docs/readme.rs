//! The README's commands, typed literally.

use std::collections::BTreeSet;
use std::process::Command;

use goondan_tests::binaries::bin_dir;
use goondan_tests::home::RunningProgram;
use goondan_tests::{CommandOutput, Home};

use crate::pages::{Page, repository};

/// Types lines into a shell with the binaries under test in its path, in this home. The first
/// failing line ends it.
#[track_caller]
fn type_in(home: &Home, script: &str, from: &std::path::Path) -> CommandOutput {
    let mut command: Command = home.command("bash".as_ref(), &["-euo", "pipefail", "-c", script]);
    let mut path = bin_dir().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command
        .env("PATH", path)
        .env_remove("GOONDAN_STATE_ROOT")
        .current_dir(from);
    RunningProgram::start(command).wait()
}

fn readme() -> Page {
    Page::read("README.md")
}

#[test]
fn the_first_two_commands_build_and_show_it_and_run_all_tests() {
    let commands = readme().fences("sh");
    let (build, demo) = commands[0].trim_end().split_once(" && ").unwrap();
    assert_eq!(build, "cargo build --locked --workspace");
    let demo = demo.strip_prefix("target/debug/gdn ").unwrap();
    let home = Home::without_project();
    type_in(&home, &format!("gdn {demo}"), &repository())
        .exits(0)
        .prints(&["25 copies of Dune were sold, and they earned 244.70 euros."]);
    assert_eq!(commands[1], "tests/run\n");
}

#[test]
fn the_tour_can_be_taken() {
    let home = Home::without_project();
    let script = readme().section("## A tour").fences("sh").concat();
    for command in [
        "init",
        "run",
        "send",
        "chat",
        "ps",
        "daemon status",
        "logs",
        "restart",
        "stop",
    ] {
        assert!(
            script.contains(&format!("gdn {command}")),
            "the tour leaves out {command}"
        );
    }
    type_in(&home, &script, home.path()).exits(0).prints(&[
        "Created project my-swarm",
        "assistant (entry)",
        "Nice to meet you, Ada.",
        "You are Ada; you told me so.",
        "Deleted conversation other",
        "Stopped the daemon",
    ]);
}

#[test]
fn killed_demo_resumes_as_in_the_readme() {
    let home = Home::without_project();
    let script = readme().section("## Kill it").fences("sh").concat();
    let ran = type_in(&home, &script, &repository()).exits(0);
    assert!(
        ran.stdout
            .matches("There are 30 orders on the books.")
            .count()
            >= 2,
        "{ran:#?}"
    );
    assert_eq!(
        ran.stdout.matches("\n  take stock slowly\n").count(),
        1,
        "{ran:#?}"
    );
}

#[test]
fn every_binary_is_installed() {
    let install = readme().section("## Install").fences("sh").concat();
    let words: BTreeSet<&str> = install.split([' ', ';', '\n', '"']).collect();
    for dir in [
        "gdn",
        "gdn/studio",
        "orchestrator",
        "agent-process",
        "connector-process",
    ] {
        assert!(words.contains(dir), "{dir} is not installed");
        assert!(repository().join(dir).join("src/main.rs").exists());
    }
}

#[test]
fn the_house_map_names_every_crate() {
    let map = readme().section("## How it is built");
    for (name, dir) in crate::sources::CRATES {
        assert!(
            map.text.contains(&format!("[`{dir}/`]")),
            "{name} is not on the map"
        );
    }
}
