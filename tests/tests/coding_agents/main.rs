//! Real coding agents work on tasks, against a model server on loopback (`AGENT-1` to `AGENT-8`).
//!
//! `tests/coding-agents [PROGRAM ...]` installs the programs and runs this with
//! `GOONDAN_TEST_CODING_AGENTS`, a list of programs or `all`. It writes the results to
//! `measured.json` and the table of `docs/coding-agents.md`. `GOONDAN_TEST_CODING_AGENTS_SCENES`
//! limits a run to some scenes.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    reason = "results are written into the repository"
)]

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

/// Today, in UTC.
fn today() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = i64::try_from(now.unwrap().as_millis()).unwrap();
    Timestamp::from_unix_millis(millis).day().to_string()
}

#[test]
fn agent_1_real_programs_match_the_known_capabilities() {
    let Ok(names) = std::env::var(PROGRAMS_VAR) else {
        needs::note_left_out(&format!(
            "{PROGRAMS_VAR} is not set; run tests/coding-agents"
        ));
        return;
    };
    let programs: Vec<Program> = match names.as_str() {
        "all" => Program::ALL.to_vec(),
        names => {
            let of = |name| Program::of(name).unwrap_or_else(|| panic!("no program `{name}`"));
            names.split(',').map(of).collect()
        }
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
