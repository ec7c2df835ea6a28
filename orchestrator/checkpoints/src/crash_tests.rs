//! Goal: if the machine or the daemon stops at any point, earlier checkpoints are intact, a new
//! checkpoint is complete or absent, and a restore is complete or not begun. Method: every
//! operation is stopped at every disk call, then its recovery once more, with every kind of crash.

use goondan_durable::disk::Crash;

use crate::world::{World, WorldNodes, at, request};
use crate::{CheckpointId, CheckpointSelector, PRE_RESTORE, Retention};

/// Stops the machine at every call of `work`, then once more during recovery.
fn stop_everywhere(base: &World, work: &dyn Fn(&World), judge: &dyn Fn(&World, bool) -> bool) {
    let mut outcomes = [0, 0];
    for call in 1.. {
        let world = base.copy();
        world.disk.crash_at(world.disk.calls() + call);
        work(&world);
        let is_whole = !world.disk.is_down();
        let kinds = [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::ProcessOnly,
            Crash::Subset(call),
            Crash::Subset(call + 10_000),
        ];
        for crash in kinds {
            let stopped = world.after(crash);
            stopped.disk.crash_at(1 + call * 7 % 60);
            drop(stopped.open());
            let found = stopped.after(Crash::Subset(call));
            drop(found.open().unwrap_or_else(|error| {
                panic!("call {call}, {crash:?}: {error}");
            }));
            let is_new = judge(&found, is_whole);
            outcomes[usize::from(is_new)] += 1;
            assert!(is_new || !is_whole, "acknowledged work is done");
        }
        if is_whole {
            assert!(
                call > 20 && outcomes.iter().all(|count| *count > 2),
                "{call} {outcomes:?}"
            );
            return;
        }
    }
}

/// Checks that every checkpoint is intact and that `latest.json` names the newest one not made by a
/// restore.
fn ids(world: &World) -> Vec<String> {
    let store = world.store();
    let findings = store.verify().unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let listed = store.list().unwrap();
    let told = listed.iter().rev().find(|one| {
        one.about
            .as_ref()
            .is_some_and(|about| about.kind != PRE_RESTORE)
    });
    let latest = store.latest().unwrap();
    assert_eq!(
        latest.map(|latest| latest.checkpoint_id),
        told.map(|one| one.id)
    );
    listed.iter().map(|one| one.id.to_string()).collect()
}

fn two() -> World {
    let world = World::new();
    world.make("periodic").unwrap();
    world.write("src/main.rs", "fn main() { later() }\n");
    world.write("src/later/new.rs", "new\n");
    world.remove("docs/planning/02_market.md");
    world
}

/// The files after restoring a checkpoint.
fn restored(world: &World, id: &str) -> WorldNodes {
    let world = world.copy();
    world.restore(id).unwrap();
    world.restorable()
}

#[test]
fn ckpt_1_checkpoint_stopped_at_any_call_is_whole_or_absent() {
    let base = two();
    let first = restored(&base, "checkpoint_001");
    let second = base.restorable();
    stop_everywhere(
        &base,
        &|world| drop(world.make("error")),
        &|world, is_whole| {
            assert_eq!(world.restorable(), second);
            let ids = ids(world);
            assert_eq!(ids[0], "checkpoint_001");
            if is_whole {
                assert_eq!(restored(world, "checkpoint_001"), first);
            }
            if ids.len() == 1 {
                assert_eq!(
                    world.make("error").unwrap().checkpoint_id.to_string(),
                    "checkpoint_002"
                );
                return false;
            }
            world.write("src/main.rs", "lost\n");
            assert_eq!(restored(world, "checkpoint_002"), second);
            true
        },
    );
}

#[test]
fn ckpt_4_restore_stopped_at_any_call_is_all_old_or_all_new() {
    let base = two();
    let old = base.restorable();
    let new = restored(&base, "checkpoint_001");
    let first: CheckpointId = "checkpoint_001".parse().unwrap();
    let restore = |world: &World| {
        let mut store = world.open().ok()?;
        store
            .restore(CheckpointSelector::Id(first), false, at(1))
            .ok()
    };
    stop_everywhere(&base, &|world| drop(restore(world)), &|world, _| {
        let ids = ids(world);
        let found = world.restorable();
        if found == new {
            // The replaced files can be restored.
            assert_eq!(ids.len(), 2);
            assert_eq!(restored(world, "checkpoint_002"), old);
            return true;
        }
        assert_eq!(found, old);
        let restored = restore(world).unwrap();
        assert!(restored.pre_restore.is_some());
        assert_eq!(world.restorable(), new);
        false
    });
}

#[test]
fn ckpt_5_removal_stopped_at_any_call_keeps_whole_checkpoints() {
    let base = two();
    base.make("error").unwrap();
    base.write("src/main.rs", "fn main() { last() }\n");
    base.make("error").unwrap();
    let last = base.restorable();
    let keep_one = Retention {
        count: 1,
        bytes: None,
    };
    stop_everywhere(
        &base,
        &|world| {
            if let Ok(mut store) = world.open() {
                drop(store.prune(keep_one));
            }
        },
        &|world, _| {
            let ids = ids(world);
            assert_eq!(ids.last().unwrap(), "checkpoint_003");
            assert_eq!(world.restorable(), last);
            ids.len() == 1
        },
    );
}

#[test]
fn ckpt_1_file_times_from_before_a_crash_are_not_trusted() {
    for seed in 0..200 {
        let base = two();
        base.make("periodic").unwrap();
        // Written without a sync: a crash may revert the content but keep the times.
        let folder = base.folder();
        let path = std::path::Path::new("src/main.rs");
        goondan_trees::remove_all(folder.as_ref(), path).unwrap();
        let mut file = folder.create(path, 0o644).unwrap();
        goondan_durable::disk::append_all(file.as_mut(), b"fn main() { unsynced() }\n").unwrap();
        base.make("periodic").unwrap();
        let found = base.after(Crash::Subset(seed));
        let now = found.restorable();
        let made = found.store().make(&request("periodic"), at(5)).unwrap();
        found.write("src/main.rs", "other\n");
        assert_eq!(
            restored(&found, &made.checkpoint_id.to_string()),
            now,
            "{seed}"
        );
    }
}
