//! Recorded changes match what happened.

use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{CallFault, Disk, append_all};
use goondan_replicated_disk::ConfirmPoint;
use goondan_replicated_disk::limits::TAKEN_BYTES_MAX;
use goondan_replication::operation::FileOperation;

use crate::workload::{Faults, run, seeds};
use crate::world::{Owner, bare, content, dir, memory, relative, replica};

#[test]
fn rep_1_log_replay_makes_the_same_files_for_any_workload() {
    for seed in seeds(300) {
        let owner = Owner::new(ConfirmPoint::AtEachSync);
        run(&owner, seed, 60, Faults::None);
        owner.is_replayed(&format!("seed {seed}"));
    }
}

#[test]
fn rep_1_log_replay_makes_the_same_files_despite_disk_faults() {
    for seed in seeds(600) {
        let owner = Owner::new(ConfirmPoint::AtConfirm);
        run(&owner, seed, 80, Faults::Some);
        owner.is_replayed(&format!("seed {seed}"));
    }
}

#[test]
fn a_short_append_is_taken_down_as_far_as_it_went() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let mut file = owner.replicated.create(&dir().join("a")).unwrap();
    owner
        .disk
        .fail_at(owner.disk.calls() + 2, CallFault::ShortWrite(2), false);
    assert_eq!(file.append(b"abc").unwrap(), 2);
    file.append(b"d").unwrap();
    let created = FileOperation::Create {
        path: relative("a"),
    };
    let appended = FileOperation::Append {
        path: relative("a"),
        offset: 0,
        bytes: b"abd".to_vec(),
    };
    assert_eq!(owner.operations(), [created, appended]);
}

#[test]
fn failed_change_on_an_unreadable_disk_blocks_the_next_one() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let path = dir().join("a");
    let mut file = owner.replicated.create(&path).unwrap();
    file.append(b"ab").unwrap();
    let next = owner.disk.calls() + 1;
    owner.disk.fail_at(next, CallFault::Errno(5), true);
    assert!(owner.replicated.remove_file(&path).is_err());
    let refused = owner.replicated.create_dir(&dir().join("d")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(5));
    assert!(!owner.recording.is_quiet(&crate::world::workspace()));
    owner.disk.fail_at(0, CallFault::Errno(5), false);
    owner.replicated.create_dir(&dir().join("d")).unwrap();
    owner.is_replayed("after the disk answers again");
}

#[test]
fn open_file_follows_renames_and_unlinked_file_is_not_recorded() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let disk = &owner.replicated;
    disk.create_dir(&dir().join("new")).unwrap();
    let mut moved = disk.create(&dir().join("new/a")).unwrap();
    let mut removed = disk.create(&dir().join("b")).unwrap();
    disk.rename(&dir().join("new"), &dir().join("old")).unwrap();
    disk.remove_file(&dir().join("b")).unwrap();
    moved.append(b"1").unwrap();
    removed.append(b"2").unwrap();
    let memory = memory(&owner.operations());
    assert_eq!(memory.file(&relative("old/a")), Some(b"1".as_slice()));
    assert_eq!(memory.file(&relative("b")), None);
    owner.is_replayed("open files");
}

#[test]
fn files_moved_out_are_removed_and_workspaces_cannot_move() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let disk = &owner.replicated;
    for path in ["instances", "instances/i", "instances/i/old", "tasks"] {
        disk.create_dir(&dir().join(path)).unwrap();
    }
    let file = dir().join("instances/i/old/a");
    append_all(disk.create(&file).unwrap().as_mut(), b"1").unwrap();
    let instance = dir().join("instances/i");
    disk.rename(&instance.join("old"), &instance.join("work"))
        .unwrap();
    assert_eq!(
        memory(&owner.operations()).file(&relative("instances/i/old/a")),
        None
    );
    let kept = instance.join("work/a");
    assert_eq!(content(disk.as_ref(), &kept), Some(b"1".to_vec()));
    for (from, to) in [
        (dir().as_path(), Path::new("/r/workspaces/v")),
        (&instance, &dir().join("elsewhere")),
    ] {
        let error = disk.rename(from, to).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
    }
    let error = disk.remove_tree(&dir()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
    owner.is_replayed("what is left");
}

#[test]
fn move_from_an_unreplicated_directory_records_whole_content() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let disk = &owner.replicated;
    for path in ["tasks", "tasks/.import-1", "tasks/.import-1/.metadata"] {
        disk.create_dir(&dir().join(path)).unwrap();
    }
    let (staged, task) = (dir().join("tasks/.import-1"), dir().join("tasks/t"));
    for (name, bytes) in [
        (".metadata/history.jsonl", b"history"),
        (".metadata/secrets.yaml", b"secrets"),
        ("own file", b"content"),
    ] {
        append_all(disk.create(&staged.join(name)).unwrap().as_mut(), bytes).unwrap();
    }
    assert_eq!(owner.operations().len(), 1, "the directory of all tasks");
    disk.rename(&staged, &task).unwrap();
    let memory = memory(&owner.operations());
    let history = memory.file(&relative("tasks/t/.metadata/history.jsonl"));
    assert_eq!(history, Some(b"history".as_slice()));
    for apart in ["tasks/t/own file", "tasks/t/.metadata/secrets.yaml"] {
        assert!(owner.disk.stat(&dir().join(apart)).unwrap().is_some());
        assert_eq!(memory.file(&relative(apart)), None, "{apart}");
    }
    owner.is_replayed("it came");
    // The target is free.
    disk.create_dir(&staged).unwrap();
    let taken = disk.rename(&staged, &task).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    // The rename back out of scope, on a disk that fails and is then inspected.
    let out = dir().join("tasks/.export");
    disk.rename(&task, &out).unwrap();
    owner.is_replayed("it went");
    owner
        .disk
        .fail_at(owner.disk.calls() + 2, CallFault::Errno(5), false);
    assert!(disk.rename(&out, &task).is_err());
    owner.is_replayed("it failed");
}

#[test]
fn large_amounts_are_handed_over_without_a_sync() {
    let owner = Owner::new(ConfirmPoint::AtConfirm);
    let mut file = owner.replicated.create(&dir().join("a")).unwrap();
    let piece = vec![7; 1024 * 1024];
    // Overhead besides the bytes counts as well.
    let pieces = TAKEN_BYTES_MAX / piece.len();
    for _ in 0..pieces {
        assert!(owner.batches().is_empty());
        append_all(file.as_mut(), &piece).unwrap();
    }
    assert_eq!(owner.batches().len(), 1);
    // Regardless of the pieces, a continued append becomes one operation up to the maximum length.
    assert_eq!(owner.batches().concat().len(), 1 + pieces);
}

#[test]
fn concurrent_changes_are_recorded_in_the_order_they_were_made() {
    let owner = Owner::new(ConfirmPoint::AtEachSync);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let disk = Arc::clone(&owner.replicated);
            scope.spawn(move || {
                let own = dir().join(format!("own-{thread}"));
                for round in 0..50_u8 {
                    let mut shared = disk.open(&dir().join("shared")).unwrap();
                    append_all(shared.as_mut(), &[thread, round]).unwrap();
                    let mut file = disk.create(&dir().join(format!("tmp-{thread}"))).unwrap();
                    append_all(file.as_mut(), &[round; 3]).unwrap();
                    file.sync().unwrap();
                    disk.rename(&dir().join(format!("tmp-{thread}")), &own)
                        .unwrap();
                    disk.sync_dir(&dir()).unwrap();
                }
            });
        }
    });
    let shared = content(owner.replicated.as_ref(), &dir().join("shared")).unwrap();
    assert_eq!(shared.len(), 400);
    owner.is_replayed("four threads");
}

#[test]
fn data_synced_by_a_replica_survives_any_crash() {
    let owner = Owner::new(ConfirmPoint::AtEachSync);
    run(&owner, 7, 200, Faults::None);
    let operations = owner.operations();
    let standby = bare();
    let mut replica_of_it = replica(&standby);
    for piece in operations.chunks(9) {
        replica_of_it.apply(piece).unwrap().unwrap();
        replica_of_it.sync().unwrap();
        let found = replica_of_it.digest().unwrap();
        let after = standby.after_crash(goondan_durable::disk::Crash::LoseUnsynced);
        assert_eq!(replica(&after).digest().unwrap(), found);
    }
}
