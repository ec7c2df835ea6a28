//! Budgets in the simulated world, where no call uses more than its reservation: no limit is
//! exceeded, nearly all of a limit can be used, and reservations are released after every crash.

use super::config::{Edit, REPLY_TOKENS_MAX};
use super::world::{FaultRates, World};
use super::{heal, run_for, runs_or, work};
use crate::Accounts;
use crate::calls::accounts::BudgetOwner;
use goondan_protocol::budget::BudgetPeriod;
use goondan_protocol::time::Timestamp;

/// Token limit of all replies in the world together.
const LIMIT: u64 = 12 * REPLY_TOKENS_MAX as u64;

fn live_within(world: &mut World, limit: u64) {
    world.edit = Edit::Budgeted(limit);
    for _ in 0..world.plan.work {
        work(world);
        let pause_ms = world.rng.u64(0..400);
        run_for(world, pause_ms);
        let accounts = Accounts::of(&world.ledger().lines);
        let day = Timestamp::from_unix_millis(0).day();
        for payer in accounts.payers() {
            let spent = accounts.spent(payer, BudgetPeriod::Ever, day).tokens;
            let most = if *payer == BudgetOwner::Workspace {
                limit
            } else {
                limit / 2
            };
            assert!(spent <= most, "{payer:?} spent {spent} of {most}");
        }
    }
}

fn spent_by_all(world: &World) -> u64 {
    let lines = world.ledger().lines;
    lines.iter().map(|line| line.charge().tokens).sum()
}

#[test]
fn no_budget_is_exceeded_and_reservations_are_freed_after_kills() {
    let mut used_up = 0;
    let runs = runs_or(24);
    for seed in 0..runs {
        let plan = FaultRates {
            crash: 20,
            hang: 2,
            garbage: 2,
            disk: 20,
            kill: 20,
            person: 0,
            work: 120,
        };
        let mut world = World::new(seed, plan, false);
        live_within(&mut world, LIMIT);
        used_up += u64::from(spent_by_all(&world) + u64::from(REPLY_TOKENS_MAX) > LIMIT / 2);
        // With a larger budget all work continues, so no reservation was leaked.
        heal(&mut world, Edit::Budgeted(LIMIT * 1_000));
        run_for(&mut world, 60_000);
        assert!(world.core.calls.is_empty(), "seed {seed}: a call is left");
        let known = world.core.calls.accounts().next().unwrap();
        let ledger = Accounts::of(&world.ledger().lines);
        assert!(
            *known == ledger,
            "seed {seed}: the sums are not those of the ledger"
        );
    }
    assert!(
        used_up > runs / 2,
        "the budgets were hardly used: {used_up}"
    );
}
