//! Tests of proposals on other nodes.

use std::path::Path;

use goondan_durable::disk::{Crash, Disk as _, read_all};

use crate::NoGit;
use crate::world::{PROJECT, SANDBOXES, SimulatedDiskFiles, WORK, World, apply, at, create};

/// A project with a replicated proposal.
fn handed_on() -> World {
    let world = World::with_work();
    let mut sandboxes = world.sandboxes().handing_on();
    sandboxes.create(&create(), &NoGit).unwrap();
    world
}

/// The same project on another node, with the replicated part of the sandboxes.
fn other_node(world: &World) -> World {
    let other = World::new();
    let run = Path::new(SANDBOXES).join("r1");
    let handed_on = run.join(".handed-on");
    for dir in [&run, &handed_on] {
        other.disk().create_dir(dir).unwrap();
    }
    let entries = match world.disk().stat(&handed_on).unwrap() {
        Some(_) => world.disk().list(&handed_on).unwrap(),
        None => Vec::new(),
    };
    let entries = entries.into_iter().map(|entry| handed_on.join(entry.name));
    for path in std::iter::once(run.join("events.jsonl")).chain(entries) {
        if world.disk().stat(&path).unwrap().is_none() {
            continue;
        }
        let mut file = world.disk().open_read(&path).unwrap();
        let bytes = read_all(file.as_mut(), 1 << 24).unwrap();
        other.disk().plant(&path, &bytes).unwrap();
    }
    other
}

/// The content of the sandbox, after the readable files were published.
fn sandbox(world: &World) -> Vec<(String, goondan_trees::TreeEntry)> {
    world.sandboxes().show(&at()).unwrap();
    let tree = world.tree(&format!("{SANDBOXES}/r1/coder"));
    let entries = tree
        .entries()
        .map(|(path, entry)| (path.to_string(), entry.clone()));
    entries.collect()
}

#[test]
fn rep_1_transferred_proposal_is_reviewed_and_applied_elsewhere() {
    let world = World::with_work();
    let mut here = world.sandboxes().handing_on();
    here.create(&create(), &NoGit).unwrap();
    // Submitted again: the last one counts.
    world.write(WORK, "src/new.rs", "newer\n");
    let shown = here.create(&create(), &NoGit).unwrap();
    let handed = world
        .disk()
        .list(&Path::new(SANDBOXES).join("r1/.handed-on"));
    assert_eq!(handed.unwrap().len(), 2, "a record and an archive");

    let other = other_node(&world);
    let mut there = other.sandboxes().handing_on();
    assert!(there.take_on().is_empty());
    assert_eq!(there.show(&at()).unwrap().info, shown.info);
    assert_eq!(sandbox(&other), sandbox(&world));
    assert!(there.verify().unwrap().1.findings.is_empty());
    // It was unpacked and is not overwritten.
    other.write(WORK, "src/later.rs", "later\n");
    assert!(there.take_on().is_empty());
    assert!(other.read(WORK, "src/later.rs").is_some());
    let applied = there.apply(&apply()).unwrap();
    assert_eq!(applied.files.len(), 3);
    assert_eq!(other.read(PROJECT, "src/new.rs").unwrap(), "newer\n");

    // Only the node that applied it has the previous state.
    let third = other_node(&other);
    let mut elsewhere = third.sandboxes().handing_on();
    assert!(elsewhere.take_on().is_empty());
    let refused = elsewhere.revert(&at()).unwrap_err();
    assert!(refused.to_string().contains("on another node"), "{refused}");
    there.revert(&at()).unwrap();
    there.remove(&at(), false).unwrap();
    let handed = other
        .disk()
        .list(&Path::new(SANDBOXES).join("r1/.handed-on"));
    assert!(handed.unwrap().is_empty());
}

#[test]
fn rep_1_old_local_sandbox_gives_way_to_the_transferred_one() {
    let world = handed_on();
    let other = other_node(&world);
    // The node owned the workspace earlier and has a sandbox with the same name.
    let old = other.disk().folder(Path::new(SANDBOXES));
    old.create_dir(Path::new("r1/coder"), 0o700).unwrap();
    other.write(SANDBOXES, "r1/coder/work/old.txt", "old\n");
    assert!(other.sandboxes().take_on().is_empty());
    assert_eq!(sandbox(&other), sandbox(&world));
    let run = other.disk().list(&Path::new(SANDBOXES).join("r1")).unwrap();
    let aside = run
        .iter()
        .find(|entry| entry.name.to_string_lossy().starts_with(".superseded-"));
    let aside = aside.unwrap().name.to_str().unwrap();
    let kept = other.read(SANDBOXES, &format!("r1/{aside}/work/old.txt"));
    assert_eq!(kept.unwrap(), "old\n");
}

#[test]
fn rep_1_altered_transferred_sandbox_is_refused_and_retried() {
    let world = handed_on();
    let other = other_node(&world);
    let dir = Path::new(SANDBOXES).join("r1/.handed-on");
    let entries = other.disk().list(&dir).unwrap();
    let archive = entries
        .iter()
        .find(|entry| entry.name.to_string_lossy().ends_with(".gz"));
    let archive = dir.join(&archive.unwrap().name);
    let mut file = other.disk().open_read(&archive).unwrap();
    let whole = read_all(file.as_mut(), 1 << 24).unwrap();
    other
        .disk()
        .plant(&archive, &whole[..whole.len() / 2])
        .unwrap();
    assert_eq!(other.sandboxes().take_on().len(), 1);
    let run = other.disk().list(&Path::new(SANDBOXES).join("r1")).unwrap();
    assert_eq!(run.len(), 2, "{run:?}");
    other.disk().plant(&archive, &whole).unwrap();
    assert!(other.sandboxes().take_on().is_empty());
    assert_eq!(sandbox(&other), sandbox(&world));
}

#[test]
fn rep_1_interrupted_takeover_of_a_proposal_completes_later() {
    let world = handed_on();
    let before = other_node(&world).disk().after_crash(Crash::KeepUnsynced);
    for call in 1.. {
        let stopped = World(SimulatedDiskFiles(before.after_crash(Crash::ProcessOnly)));
        stopped.disk().crash_at(call);
        stopped.sandboxes().take_on();
        let is_down = stopped.disk().is_down();
        for crash in [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::Subset(call),
        ] {
            let after = World(SimulatedDiskFiles(stopped.disk().after_crash(crash)));
            assert!(after.sandboxes().take_on().is_empty(), "{call}, {crash:?}");
            assert_eq!(sandbox(&after), sandbox(&world), "{call}, {crash:?}");
        }
        if !is_down {
            return;
        }
    }
}

#[test]
fn rep_1_proposal_made_before_replication_is_transferred_later() {
    let world = World::with_proposal();
    // A rejected attempt has left its journal.
    world.write(PROJECT, "src/a.rs", "a person's\n");
    world.applied().unwrap_err();
    let digest = world.sandboxes().show(&at()).unwrap().info.digest;
    let apply = format!("r1/coder/kept/{digest}/apply");
    world.write(SANDBOXES, &format!("{apply}/new"), "");
    world.remove(SANDBOXES, &format!("{apply}/new"));
    let mut here = world.sandboxes().handing_on();
    assert!(here.recover_all().is_empty());
    let other = other_node(&world);
    assert!(other.sandboxes().take_on().is_empty());
    assert!(
        other
            .read(SANDBOXES, &format!("r1/coder/kept/{digest}/proposal.json"))
            .is_some()
    );
    let folder = other.disk().folder(Path::new(SANDBOXES));
    assert!(folder.look(Path::new(&apply)).unwrap().is_none());
    assert_eq!(other.applied().unwrap().files.len(), 3);
}

#[test]
fn rep_1_crash_while_making_a_proposal_transfers_all_or_nothing() {
    let before = World::with_work().disk().after_crash(Crash::KeepUnsynced);
    let mut seen = [0; 2];
    for call in 1.. {
        let stopped = World(SimulatedDiskFiles(before.after_crash(Crash::ProcessOnly)));
        stopped.disk().crash_at(call);
        drop(stopped.sandboxes().handing_on().create(&create(), &NoGit));
        let is_down = stopped.disk().is_down();
        for crash in [Crash::LoseUnsynced, Crash::Subset(call)] {
            let after = World(SimulatedDiskFiles(stopped.disk().after_crash(crash)));
            let is_made = after.sandboxes().standing(&at()).unwrap().is_some();
            seen[usize::from(is_made)] += 1;
            let other = other_node(&after);
            assert!(other.sandboxes().take_on().is_empty(), "{call}, {crash:?}");
            let shown = other.sandboxes().show(&at());
            assert_eq!(shown.is_ok(), is_made, "{call}, {crash:?}: {shown:?}");
        }
        if !is_down {
            assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
            return;
        }
    }
}
