//! Tests of task retention: disk quotas, removal by age, restore drills.

use goondan_protocol::control::ErrorCode;
use serde_json::json;

use super::tests::new;
use super::world::{DAY_MS, World};
use crate::exchange::tasks::TaskWork;
use crate::limits::{
    RETENTION_INTERVAL_MS, TASK_DISK_BYTES_DEFAULT, TASK_DRILL_AGAIN_MS, TASK_DRILL_PAUSE_MS,
};
use crate::{ClientOrigin, Peer};

#[test]
fn task_9_usage_is_measured_rarely_and_over_quota_run_is_held() {
    let mut world = World::new();
    world.get("task.new", &new("t", true)).unwrap();
    let process = world.run("t");
    // Before the first measurement, a run is measured immediately.
    world.pass(1);
    assert!(matches!(
        world.works.front(),
        Some(TaskWork::Measure { .. })
    ));
    world.settle();
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["disk"]["bytes"], 1_000);
    assert_eq!(shown["disk"]["quotaBytes"], TASK_DISK_BYTES_DEFAULT);
    world.disk_use.bytes = 5_000;
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["disk"]["bytes"], 1_000, "the last look is fresh");
    world.pass(1);
    assert!(world.works.is_empty(), "it was just looked at");
    world
        .get("task.checkpoint", &json!({"taskId": "t"}))
        .unwrap();
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["disk"]["bytes"], 5_000, "each checkpoint is a look");
    assert!(!world.children[&process].is_held);

    let budget = |bytes: u64| json!({"taskId": "t", "budget": {"diskBytes": bytes}});
    world.get("task.budget", &budget(4_000)).unwrap();
    world
        .get("task.checkpoint", &json!({"taskId": "t"}))
        .unwrap();
    world.settle();
    assert!(world.children[&process].is_held);
    let waiting = world.get("task.list", &json!({"needsMe": true})).unwrap()["tasks"].take();
    assert_eq!(waiting[0]["blockedBy"], "quota");
    let refused = world.get("task.resume", &json!({"taskId": "t"}));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TaskRefused);
    assert!(refused.message.contains("uses 5000 bytes"), "{refused:?}");
    // A user frees space and does not have to wait for the next check.
    world.disk_use.bytes = 3_000;
    let resumed = world.get("task.resume", &json!({"taskId": "t"})).unwrap();
    assert_eq!(resumed["status"], "running");
    assert!(!world.children[&process].is_held);
}

#[test]
fn task_9_task_removed_before_the_measurement_is_not_found() {
    let mut world = World::new();
    world.get("task.new", &new("t", false)).unwrap();
    world.get("task.cancel", &json!({"taskId": "t"})).unwrap();
    let shown = world.ask("task.show", &json!({"taskId": "t"}));
    let removed = world.ask("task.remove", &json!({"taskId": "t"}));
    world.works.rotate_left(1);
    world.settle();
    assert!(world.answers[&removed].is_ok());
    let error = world.answers.remove(&shown).unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::TaskNotFound);
}

/// Creates and cancels a task.
fn cancelled(world: &mut World, task: &str) {
    world.get("task.new", &new(task, false)).unwrap();
    world.get("task.cancel", &json!({"taskId": task})).unwrap();
}

/// Runs the next check of the policies.
fn look(world: &mut World) {
    world.pass(RETENTION_INTERVAL_MS);
    world.settle();
}

fn listed(world: &mut World) -> Vec<String> {
    let listed = world.get("task.list", &json!({"all": true})).unwrap()["tasks"].take();
    let ids = listed.as_array().unwrap().iter();
    let mut ids: Vec<String> = ids
        .map(|info| info["taskId"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn task_10_old_ended_tasks_are_removed_when_two_checks_agree() {
    let mut world = World::new();
    cancelled(&mut world, "old");
    world.get("task.new", &new("idle", false)).unwrap();
    world.pass(DAY_MS);
    cancelled(&mut world, "young");
    look(&mut world);
    assert_eq!(listed(&mut world), ["idle", "old", "young"]);
    // A temporary clock jump removes nothing.
    world.wall_ahead_ms = 10 * DAY_MS;
    look(&mut world);
    world.wall_ahead_ms = 0;
    look(&mut world);
    assert_eq!(listed(&mut world), ["idle", "old", "young"]);
    world.pass(DAY_MS);
    world.settle();
    assert_eq!(listed(&mut world), ["idle", "old", "young"], "one look");
    world.is_disk_full = true;
    look(&mut world);
    assert_eq!(listed(&mut world), ["idle", "old", "young"], "it stays");
    look(&mut world);
    assert_eq!(listed(&mut world), ["idle", "young"]);
    let told = world.audited.iter();
    let told = told.filter(|audit| audit.contains("remove for its age, by policy"));
    assert_eq!(told.count(), 1, "{:#?}", world.audited);
}

#[test]
fn task_10_restored_state_keeps_old_tasks_until_it_is_resumed() {
    let mut world = World::new();
    cancelled(&mut world, "old");
    world.pass(10 * DAY_MS);
    world.restore_daemon();
    world.settle();
    look(&mut world);
    look(&mut world);
    assert_eq!(listed(&mut world), ["old"]);
    world.get("daemon.resume", &json!({})).unwrap();
    look(&mut world);
    look(&mut world);
    assert_eq!(listed(&mut world), Vec::<String>::new());
}

#[test]
fn task_10_a_person_removes_by_age_and_a_program_may_not() {
    let mut world = World::new();
    for task in ["one", "two", "three"] {
        cancelled(&mut world, task);
        world.pass(1_000);
    }
    world.get("task.new", &new("idle", false)).unwrap();
    let older = |ms: u64, is_dry: bool| json!({"olderThanMs": ms, "dryRun": is_dry});
    let would = world.get("task.prune", &older(1_500, true)).unwrap();
    let ids: Vec<&str> = would["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["taskId"].as_str().unwrap())
        .collect();
    assert_eq!(
        (ids, &would["removed"]),
        (vec!["one", "two"], &json!(false))
    );
    assert_eq!(listed(&mut world).len(), 4);
    let below = Peer {
        pid: None,
        standing: ClientOrigin::BelowDaemon,
    };
    let token = world.ask_as(below, "task.prune", &older(0, false));
    let error = world.answers.remove(&token).unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::PersonNeeded);
    // A task that cannot be removed stays, and the problem is reported.
    world.is_disk_full = true;
    let pruned = world.get("task.prune", &older(1_500, false)).unwrap();
    assert_eq!(pruned["tasks"][0]["problem"], "the disk is full");
    assert_eq!(pruned["tasks"][1]["backup"], "/backups/two");
    assert_eq!(listed(&mut world), ["idle", "one", "three"]);
    let mut bare = older(0, false);
    bare["noBackup"] = json!(true);
    let pruned = world.get("task.prune", &bare).unwrap();
    assert!(pruned["tasks"][0].get("backup").is_none(), "{pruned}");
    assert_eq!(listed(&mut world), ["idle"]);
}

#[test]
fn ckpt_4_scheduled_drill_is_recorded_and_its_failure_is_shown() {
    let mut world = World::new();
    world.get("task.new", &new("t", false)).unwrap();
    world.pass(2 * DAY_MS);
    assert!(world.works.is_empty(), "there is nothing to try");
    world
        .get("task.checkpoint", &json!({"taskId": "t"}))
        .unwrap();
    world.drill_problem = Some("`snapshot.tar.gz` is missing".to_owned());
    world.pass(1);
    world.settle();
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["drill"]["checkpointId"], "checkpoint_001");
    assert_eq!(shown["drill"]["problem"], "`snapshot.tar.gz` is missing");
    let warning = shown["info"]["warning"].as_str().unwrap();
    assert!(warning.contains("the restore drill of"), "{warning}");
    let status = world.get("daemon.status", &json!({})).unwrap();
    assert_eq!(status["workspaces"][0]["failedDrills"], json!(["t"]));
    assert!(
        world
            .logged
            .iter()
            .any(|line| line.contains("drill of a task failed"))
    );
    world.pass(DAY_MS / 2);
    assert!(world.works.is_empty(), "it is not due again");
    world.drill_problem = None;
    let drilled = world.get("task.drill", &json!({"taskId": "t"})).unwrap();
    assert_eq!(drilled["entries"], 3);
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert!(shown["info"].get("warning").is_none(), "{shown}");
    // The drill survives a restart, because it is part of the history.
    world.kill_daemon();
    let shown = world.get("task.show", &json!({"taskId": "t"})).unwrap();
    assert_eq!(shown["drill"]["checkpointId"], "checkpoint_001");
}

#[test]
fn ckpt_4_impossible_drill_does_not_block_drills_of_other_tasks() {
    let mut world = World::new();
    for task in ["bad", "good"] {
        world.get("task.new", &new(task, false)).unwrap();
        let made = world.get("task.checkpoint", &json!({"taskId": task}));
        made.unwrap();
    }
    world.without_drill = Some("bad");
    world.pass(2 * DAY_MS);
    world.settle();
    world.pass(TASK_DRILL_PAUSE_MS);
    world.settle();
    let shown = world.get("task.show", &json!({"taskId": "good"})).unwrap();
    assert_eq!(shown["drill"]["entries"], 3, "{shown}");
    world.pass(TASK_DRILL_PAUSE_MS);
    world.settle();
    let count = |world: &World| {
        let failed = world.logged.iter();
        let failed = failed.filter(|line| line.contains("failed to run a task's restore drill"));
        failed.count()
    };
    assert_eq!(count(&world), 1, "it is left in peace for a while");
    world.pass(TASK_DRILL_AGAIN_MS);
    world.settle();
    assert_eq!(count(&world), 2);
}

#[test]
fn task_10_clock_fix_during_removal_saves_the_remaining_tasks() {
    let mut world = World::new();
    cancelled(&mut world, "one");
    world.pass(1);
    cancelled(&mut world, "two");
    world.wall_ahead_ms = 10 * DAY_MS;
    look(&mut world);
    world.pass(RETENTION_INTERVAL_MS);
    world.wall_ahead_ms = 0;
    world.settle();
    assert_eq!(listed(&mut world), ["one", "two"][1..]);
}

#[test]
fn task_7_without_a_review_nothing_is_approved_nor_reworked() {
    let mut world = World::new();
    world.get("task.new", &new("t", false)).unwrap();
    for (method, params) in [
        ("task.approve", json!({"taskId": "t"})),
        ("task.rework", json!({"taskId": "t", "text": "Shorter."})),
    ] {
        let error = world.get(method, &params).unwrap_err();
        assert!(error.message.contains("waits for a review"), "{error:?}");
        let hint = error.suggestion.unwrap();
        assert!(hint.contains("gdn task show t"), "{hint}");
    }
}
