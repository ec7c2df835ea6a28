//! Real coding agents work on tasks, against a model server on loopback (`AGENT-1` to `AGENT-8`).
//!
//! `tests/coding-agents [PROGRAM ...]` installs the programs and runs this with
//! `GOONDAN_TEST_CODING_AGENTS`, a list of programs or `all`. It writes the results to
//! `measured.json` and the table of `docs/coding-agents.md`. `GOONDAN_TEST_CODING_AGENTS_SCENES`
//! limits a run to some scenes. With `GOONDAN_TEST_CODING_AGENTS_TASKS`, a number, the programs work
//! on that many tasks at once instead, and are killed at random.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    reason = "results are written into the repository"
)]

mod crowd;
mod programs;
mod scenes;
mod table;
mod trials;

use std::time::SystemTime;

use goondan_protocol::time::Timestamp;
use goondan_tests::needs;

use programs::Program;
use scenes::Scene;

const PROGRAMS_VAR: &str = "GOONDAN_TEST_CODING_AGENTS";

const SCENES_VAR: &str = "GOONDAN_TEST_CODING_AGENTS_SCENES";

const TASKS_VAR: &str = "GOONDAN_TEST_CODING_AGENTS_TASKS";

/// Today, in UTC.
fn today() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = i64::try_from(now.unwrap().as_millis()).unwrap();
    Timestamp::from_unix_millis(millis).day().to_string()
}

/// Programs that the run is about; none if it is not wanted.
fn wanted_programs() -> Option<Vec<Program>> {
    let Ok(names) = std::env::var(PROGRAMS_VAR) else {
        needs::note_left_out(&format!(
            "{PROGRAMS_VAR} is not set; run tests/coding-agents"
        ));
        return None;
    };
    if names == "all" {
        return Some(Program::ALL.to_vec());
    }
    let of = |name| Program::of(name).unwrap_or_else(|| panic!("no program `{name}`"));
    Some(names.split(',').map(of).collect())
}

#[test]
fn agent_1_real_programs_match_the_known_capabilities() {
    let Some(programs) = wanted_programs() else {
        return;
    };
    let scenes = std::env::var(SCENES_VAR).unwrap_or_default();
    let scenes: Vec<Scene> = scenes.split(',').filter_map(Scene::of).collect();
    let mut unexpected = Vec::new();
    for program in programs {
        let version = program.version();
        let results = trials::run(program, &scenes);
        for (capability, result) in &results {
            let known = table::known(program, *capability);
            if result.is_ok() != known.is_none() {
                unexpected.push(format!("{} {capability:?}: {result:?}", program.name()));
            }
        }
        table::record(program, &version, &today(), &results);
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

#[test]
fn repo_3_many_tasks_at_once_survive_random_kills() {
    let Ok(tasks) = std::env::var(TASKS_VAR) else {
        needs::note_left_out(&format!("{TASKS_VAR} is not set; run tests/coding-agents"));
        return;
    };
    if let Some(programs) = wanted_programs() {
        crowd::run(&programs, tasks.parse().unwrap());
    }
}
