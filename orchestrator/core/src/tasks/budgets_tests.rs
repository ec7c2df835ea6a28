//! Tests that tasks count toward the budgets that they share, and wait while a shared budget is
//! exhausted.

use goondan_cli_agents::CliEvent;
use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_protocol::budget::{Budget, BudgetPeriod, BudgetScope};
use goondan_protocol::control::ErrorCode;
use goondan_protocol::usage::Usage;
use serde_json::json;

use super::tests::new;
use super::world::{DAY_MS, World};
use crate::limits::TICK_MS;

fn budget(scope: BudgetScope, agent: Option<&str>, period: BudgetPeriod, tokens: u64) -> Budget {
    Budget {
        scope,
        agent: agent.map(|name| name.parse().unwrap()),
        period,
        tokens: Some(tokens),
        micro_usd: None,
    }
}

/// Total usage of a run.
fn taken(tokens: u64) -> CliEvent {
    CliEvent::Usage(UsageReport {
        counter: Counter::Run,
        usage: Usage {
            input_tokens: tokens,
            ..Usage::default()
        },
        cost: None,
        session: None,
    })
}

fn reported_budgets(world: &World) -> Vec<u64> {
    let entries = world.ledger.iter();
    let usage = entries.map(|entry| entry.usage.unwrap().input_tokens);
    usage.collect()
}

#[test]
fn task_6_workspace_budget_holds_tasks_until_the_next_day() {
    let all = budget(BudgetScope::Workspace, None, BudgetPeriod::Day, 100);
    let mut world = World::budgeted(vec![all]);
    world.get("task.new", &new("a", true)).unwrap();
    world.get("task.new", &new("b", true)).unwrap();
    let (a, b) = (world.run("a"), world.run("b"));
    world.tell(a, &[taken(30)]);
    world.settle();
    assert!(!world.children[&a].is_asked_to_end, "70 are left for 30");
    world.tell(b, &[taken(45)]);
    world.settle();
    assert_eq!(reported_budgets(&world), [30, 45]);
    // Another call of either might pass the budget.
    assert!(world.children[&a].is_asked_to_end && world.children[&b].is_asked_to_end);
    world.exit(a, None);
    world.exit(b, None);
    world.settle();
    let waiting = world.get("task.list", &json!({"needsMe": true})).unwrap()["tasks"].take();
    assert_eq!(
        (&waiting[0]["blockedBy"], &waiting[1]["blockedBy"]),
        (&json!("shared_budget"), &json!("shared_budget"))
    );
    let warning = waiting[0]["warning"].as_str().unwrap();
    assert!(
        warning.contains("100 tokens a day for the workspace"),
        "{warning}"
    );
    let refused = world
        .get("task.resume", &json!({"taskId": "a"}))
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::TaskRefused);
    assert!(refused.message.contains("75 tokens spent"), "{refused:?}");

    // A task without spending may start while budget is left.
    world.get("task.new", &new("c", true)).unwrap();
    let c = world.run("c");
    world.tell(c, &[taken(25)]);
    world.settle();
    assert!(world.children[&c].is_asked_to_end, "it is the last part");
    world.get("task.new", &new("d", true)).unwrap();
    world.settle();
    assert_eq!(world.process_of("d"), None, "nothing is left");
    assert_eq!(world.status("d"), "paused");

    world.pass(DAY_MS);
    world.settle();
    assert!(world.process_of("a").is_some() && world.process_of("d").is_some());
    assert_eq!(world.status("a"), "running");
    assert_eq!(reported_budgets(&world), [30, 45, 25]);
}

#[test]
fn task_6_task_usage_is_booked_once_over_any_kill() {
    let mut world = World::budgeted(Vec::new());
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.is_ledger_stuck = true;
    let session = CliEvent::Session {
        id: "s-1".to_owned(),
        model: Some("big".to_owned()),
    };
    world.tell(process, &[session, taken(10)]);
    world.settle();
    world.tell(process, &[taken(25)]);
    world.settle();
    assert_eq!(reported_budgets(&world), [] as [u64; 0]);
    world.is_ledger_stuck = false;
    world.kill_daemon();
    world.settle();
    assert_eq!(
        reported_budgets(&world),
        [25],
        "the task knows what it took"
    );
    assert_eq!(world.ledger[0].model.as_str(), "big");
    let process = world.run("t");
    world.tell(process, &[taken(7)]);
    world.settle();
    assert_eq!(reported_budgets(&world), [25, 7]);
    world.kill_daemon();
    world.settle();
    assert_eq!(reported_budgets(&world), [25, 7], "the ledger has it");
    // A new task with the same id has a separate budget.
    world.get("task.cancel", &json!({"taskId": "t"})).unwrap();
    world.settle();
    world.get("task.remove", &json!({"taskId": "t"})).unwrap();
    world.pass(TICK_MS);
    world.begun.clear();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    world.tell(process, &[taken(3)]);
    world.settle();
    assert_eq!(reported_budgets(&world), [25, 7, 3]);
}

#[test]
fn task_6_raised_budget_resumes_a_task_also_after_a_restart() {
    let all = |tokens| {
        vec![budget(
            BudgetScope::Workspace,
            None,
            BudgetPeriod::Ever,
            tokens,
        )]
    };
    for is_killed in [false, true] {
        let mut world = World::budgeted(all(100));
        world.get("task.new", &new("t", true)).unwrap();
        let process = world.run("t");
        world.tell(process, &[taken(70)]);
        world.settle();
        world.exit(process, None);
        world.settle();
        assert_eq!(world.status("t"), "paused");
        if is_killed {
            world.kill_daemon();
            world.settle();
        }
        world.pass(TICK_MS);
        world.settle();
        assert_eq!(world.status("t"), "paused");
        world.set_budgets(all(1_000));
        world.settle();
        world.pass(TICK_MS);
        world.settle();
        assert_eq!(world.status("t"), "running", "{is_killed}");
    }
}

#[test]
fn task_6_agent_budget_per_task_holds_only_that_task() {
    let each = budget(BudgetScope::Instance, Some("coder"), BudgetPeriod::Ever, 50);
    let mut world = World::budgeted(vec![each]);
    world.get("task.new", &new("a", true)).unwrap();
    world.get("task.new", &new("b", true)).unwrap();
    let (a, b) = (world.run("a"), world.run("b"));
    world.tell(a, &[taken(40)]);
    world.tell(b, &[taken(20)]);
    world.settle();
    assert!(world.children[&a].is_asked_to_end);
    assert!(!world.children[&b].is_asked_to_end);
}
