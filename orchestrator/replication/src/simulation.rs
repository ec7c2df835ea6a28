//! Simulation of workspaces on three nodes, in memory, which checks all guarantees under faults.
//!
//! The log loses requests and answers and delivers them late. Nodes are disconnected, killed, and
//! paused, and then resume with outdated state. Disks are altered. The log's server is unavailable
//! for a while, or returns without its tail. A client sends events, and repeats them until they are
//! acknowledged, to any node that claims to own the workspace. An event is accepted, a tool runs
//! for it, and it is answered; each step is a line in a journal and a separate batch.
//!
//! After each run all faults end, and the oracle checks the result: every acknowledged event was
//! answered exactly once, each epoch had one owner, all nodes have the same digest, and no tool ran
//! twice without a line that reports the unknown outcome. If the log's server lost acknowledged
//! records permanently, a node has reported it.
//!
//! A simulation that finds nothing proves nothing. Bugs are therefore planted, and the simulation
//! must find each of them.
//!
//! `GOONDAN_SIMULATION_RUNS` sets the number of seeds, `GOONDAN_SIMULATION_SEED` a single seed.
//! Five million steps: `GOONDAN_SIMULATION_RUNS=1000 cargo test -p goondan-replication
//! rep_1_guarantees`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

mod application;
mod node;
mod oracle;
mod world;

use world::World;

/// Default number of seeds per test, unless `GOONDAN_SIMULATION_RUNS` is set.
const RUNS: u64 = 60;

/// Number of seeds within which a planted bug must be found.
const RUNS_TO_FIND: u64 = 2_000;

/// A bug planted in the code around the state machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// Acknowledges when the files are synced.
    AcknowledgesBeforeAppend,
    /// Ignores a record found at the position to write.
    IgnoresSeals,
    /// Appends a batch again after its answer was lost.
    TakesLostForFailed,
    /// A standby assumes ownership without asking the log.
    TakesOverWithoutSeal,
    /// Runs a tool again if its end is not recorded.
    ForgetsWhatWasUnderWay,
    /// A former owner continues with its files.
    KeepsFilesOfAnOwner,
    /// The log truncates up to a position without checking the record there.
    TrimsToAPosition,
}

#[derive(Debug, Clone, Copy)]
struct SimulationFaults {
    bug: Bug,
    /// True if the log's server may return without its tail.
    loses_tails: bool,
}

fn live(seed: u64, plan: SimulationFaults, is_traced: bool) -> World {
    let mut world = World::new(seed, plan, is_traced);
    world.run();
    world.heal();
    oracle::look(&world);
    world
}

fn simulate(seed: u64, plan: SimulationFaults) -> World {
    match catch_unwind(AssertUnwindSafe(|| live(seed, plan, false))) {
        Ok(world) => world,
        Err(failure) => {
            // Repeats the run with a trace.
            drop(catch_unwind(AssertUnwindSafe(|| live(seed, plan, true))));
            eprintln!(
                "seed {seed}, {plan:?}; again with\n  GOONDAN_SIMULATION_SEED={seed} cargo test -p \
                 goondan-replication rep_1_guarantees"
            );
            resume_unwind(failure);
        }
    }
}

fn is_found(seed: u64, plan: SimulationFaults) -> bool {
    catch_unwind(AssertUnwindSafe(|| live(seed, plan, false))).is_err()
}

#[test]
fn rep_1_guarantees_hold_under_loss_delays_and_pauses() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let only = number("GOONDAN_SIMULATION_SEED");
    let runs = number("GOONDAN_SIMULATION_RUNS").unwrap_or(RUNS);
    let seeds = only.map_or(0..runs, |seed| seed..seed + 1);
    let mut seen = world::EventCoverage::default();
    let mut steps = 0;
    for seed in seeds {
        let plan = SimulationFaults {
            bug: Bug::Nothing,
            loses_tails: seed % 4 == 3,
        };
        let world = simulate(seed, plan);
        steps += world.steps;
        seen.add(&world.seen);
    }
    eprintln!("{steps} steps: {seen:?}");
    if only.is_none() {
        seen.is_everything();
    }
}

/// Asserts that one of the seeds finds a bug.
fn finds(bug: Bug) {
    let plan = SimulationFaults {
        bug,
        loses_tails: bug == Bug::TrimsToAPosition,
    };
    let seeds = 0..RUNS_TO_FIND;
    let found = seeds.clone().find(|seed| is_found(*seed, plan));
    assert!(found.is_some(), "{bug:?} is not found in {seeds:?}");
}

#[test]
fn the_simulation_finds_an_acknowledgement_before_the_append() {
    finds(Bug::AcknowledgesBeforeAppend);
}

#[test]
fn the_simulation_finds_a_seal_that_is_ignored() {
    finds(Bug::IgnoresSeals);
}

#[test]
fn simulation_detects_a_lost_answer_treated_as_a_failure() {
    finds(Bug::TakesLostForFailed);
}

#[test]
fn the_simulation_finds_a_take_over_without_a_seal() {
    finds(Bug::TakesOverWithoutSeal);
}

#[test]
fn simulation_detects_a_tool_rerun_that_is_not_reported() {
    finds(Bug::ForgetsWhatWasUnderWay);
}

#[test]
fn the_simulation_finds_files_that_an_owner_was_ahead_with() {
    finds(Bug::KeepsFilesOfAnOwner);
}

#[test]
fn the_simulation_finds_a_log_that_begins_in_the_middle() {
    finds(Bug::TrimsToAPosition);
}
