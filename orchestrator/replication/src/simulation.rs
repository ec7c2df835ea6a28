//! Whole lives of workspaces on three nodes, in memory: what is promised holds whatever happens.
//!
//! A log loses questions and answers and delivers them late; nodes are cut off, killed, and stopped for a while, after
//! which they wake up with what they believed; disks are altered; the log's server is gone for a while, or comes back
//! without its tail. A client sends events and sends them again until they are acknowledged, to anybody who says that
//! the workspace is its own. An event is accepted, a tool is run for it, and it is answered: each is a line in a
//! journal, and a batch of its own.
//!
//! After each run everything heals, and the oracle looks: every acknowledged event is answered exactly once, each epoch
//! had one owner, all nodes have the same digest, and no tool ran twice without a line that says that the outcome is
//! unknown. Where the log's server lost acknowledged records for good, a node has said so.
//!
//! A simulation that finds nothing proves nothing. So bugs are planted, each of which it has to find.
//!
//! `GOONDAN_SIMULATION_RUNS` sets how many seeds are tried, `GOONDAN_SIMULATION_SEED` which one alone. Five million steps:
//! `GOONDAN_SIMULATION_RUNS=1000 cargo test -p goondan-replication every_promise`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

mod application;
mod node;
mod oracle;
mod world;

use world::World;

/// Seeds of one test, unless `GOONDAN_SIMULATION_RUNS` says otherwise.
const RUNS: u64 = 60;

/// Seeds in which a planted bug has to be found.
const RUNS_TO_FIND: u64 = 2_000;

/// A bug in the code around the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// None.
    Nothing,
    /// Acknowledged when the files are synced.
    AcknowledgesBeforeAppend,
    /// What stands where a record should is overlooked.
    IgnoresSeals,
    /// A batch whose answer is lost is appended once more.
    TakesLostForFailed,
    /// A standby takes itself for the owner without asking the log.
    TakesOverWithoutSeal,
    /// A tool whose end is not recorded is run again as if it had never begun.
    ForgetsWhatWasUnderWay,
    /// A node that was the owner goes on with the files it has.
    KeepsFilesOfAnOwner,
    /// The log forgets up to a position, whichever record stands there by then.
    TrimsToAPosition,
}

/// What can happen in a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    bug: Bug,
    /// Whether the log's server comes back without its tail.
    loses_tails: bool,
}

fn live(seed: u64, plan: Plan, is_traced: bool) -> World {
    let mut world = World::new(seed, plan, is_traced);
    world.run();
    world.heal();
    oracle::look(&world);
    world
}

fn simulate(seed: u64, plan: Plan) -> World {
    match catch_unwind(AssertUnwindSafe(|| live(seed, plan, false))) {
        Ok(world) => world,
        Err(failure) => {
            // The same run again, this time with a trace.
            drop(catch_unwind(AssertUnwindSafe(|| live(seed, plan, true))));
            eprintln!(
                "seed {seed}, {plan:?}; again with\n  GOONDAN_SIMULATION_SEED={seed} cargo test -p \
                 goondan-replication every_promise"
            );
            resume_unwind(failure);
        }
    }
}

fn is_found(seed: u64, plan: Plan) -> bool {
    catch_unwind(AssertUnwindSafe(|| live(seed, plan, false))).is_err()
}

#[test]
fn rep_1_every_promise_is_kept_whatever_is_lost_late_paused_or_believed() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let only = number("GOONDAN_SIMULATION_SEED");
    let runs = number("GOONDAN_SIMULATION_RUNS").unwrap_or(RUNS);
    let seeds = only.map_or(0..runs, |seed| seed..seed + 1);
    let mut seen = world::Seen::default();
    let mut steps = 0;
    for seed in seeds {
        let plan = Plan {
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

/// That a bug is found by some seed of a few.
fn finds(bug: Bug) {
    let plan = Plan {
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
fn the_simulation_finds_a_lost_answer_that_is_taken_for_a_failure() {
    finds(Bug::TakesLostForFailed);
}

#[test]
fn the_simulation_finds_a_take_over_without_a_seal() {
    finds(Bug::TakesOverWithoutSeal);
}

#[test]
fn the_simulation_finds_a_tool_that_is_run_again_without_saying_so() {
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
