use std::path::Path;

use goondan_durable::disk::{CallFault, Crash, Disk as _};
use goondan_trees::RelativePath;

use super::*;
use crate::world::{World, at, request};

fn names(world: &World) -> Vec<String> {
    let names = world.folder().names(Path::new(".checkpoints")).unwrap();
    let mut names: Vec<String> = names
        .into_iter()
        .map(|name| name.into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn ckpt_1_ckpt_2_a_checkpoint_has_its_files_and_latest_names_it() {
    let world = World::new();
    let made = world.make("periodic").unwrap();
    assert_eq!(made.checkpoint_id.to_string(), "checkpoint_001");
    assert!(!made.is_unchanged);
    assert_eq!(names(&world), ["checkpoint_001", "index", "latest.json"]);
    let latest: serde_json::Value =
        serde_json::from_slice(&world.read(".checkpoints/latest.json").unwrap()).unwrap();
    assert_eq!(
        latest,
        serde_json::json!({
            "checkpointId": "checkpoint_001", "path": ".checkpoints/checkpoint_001",
            "createdAt": "2024-02-15T10:00:00.000Z", "phase": 1, "progress": 35, "type": "periodic",
        })
    );
    let text = world
        .read(".checkpoints/checkpoint_001/metadata.json")
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for (field, value) in [
        ("id", serde_json::json!("checkpoint_001")),
        ("taskId", serde_json::json!("task_20240215_abc123")),
        ("type", serde_json::json!("periodic")),
        ("phase", serde_json::json!(1)),
        ("progress", serde_json::json!(35)),
        (
            "agentState",
            serde_json::json!({"status": "running", "currentStep": "Creating persona document"}),
        ),
        ("tokensUsed", serde_json::json!(12500)),
        ("createdAt", serde_json::json!("2024-02-15T10:00:00.000Z")),
        ("consistency", serde_json::json!("stopped")),
        ("snapshotSize", serde_json::json!(made.snapshot_bytes)),
    ] {
        assert_eq!(metadata[field], value, "{field}");
    }
    let files: Vec<&str> = metadata["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file.as_str().unwrap())
        .collect();
    assert_eq!(
        files,
        [
            ".git/HEAD",
            ".git/hooks/pre-commit",
            ".metadata/history.jsonl",
            "README.md",
            "docs/planning/01_idea.md",
            "docs/planning/02_market.md",
            "guide",
            "readme.md",
            "src/empty",
            "src/link",
            "src/main.rs",
            "src/run",
            "src/up",
        ]
    );
    assert_eq!(metadata["leftOut"][0]["path"], ".env");
}

#[test]
fn ckpt_4_restore_is_exact_and_can_be_undone_by_a_restore() {
    let world = World::new();
    world.make("periodic").unwrap();
    let before = world.restorable();
    world.write("src/main.rs", "fn main() { later() }\n");
    world.write("made/later/file", "mine\n");
    world.write(".metadata/history.jsonl", "one\ntwo\n");
    world.write(".env", "KEY=other\n");
    world.remove("src/link");
    world.remove("docs/planning");
    world.write("docs/planning", "a file now\n");
    world.remove("README.md");
    world.write("README.md/x", "a directory now\n");
    world
        .folder()
        .set_dir_mode(Path::new("docs"), 0o700)
        .unwrap();
    let later = world.restorable();
    let mut store = world.store();
    let dry = store
        .restore(CheckpointSelector::Latest, true, at(1))
        .unwrap();
    assert_eq!(world.restorable(), later, "a dry run changes nothing");
    let restored = store
        .restore(CheckpointSelector::Latest, false, at(1))
        .unwrap();
    assert_eq!(world.restorable(), before);
    assert_eq!(
        (&restored.added, &restored.changed, &restored.removed),
        (&dry.added, &dry.changed, &dry.removed)
    );
    assert!(restored.differs.is_empty() && restored.kept.is_empty());
    let removed: Vec<String> = restored.removed.iter().map(ToString::to_string).collect();
    assert_eq!(
        removed,
        ["README.md/x", "made", "made/later", "made/later/file"]
    );
    // Histories and paths excluded from snapshots are unchanged.
    assert_eq!(
        world.read(".metadata/history.jsonl").unwrap(),
        b"one\ntwo\n"
    );
    assert_eq!(world.read(".env").unwrap(), b"KEY=other\n");
    // Undoes the restore.
    let pre = restored.pre_restore.unwrap();
    assert_eq!(pre.to_string(), "checkpoint_002");
    store
        .restore(CheckpointSelector::Id(pre), false, at(2))
        .unwrap();
    assert_eq!(world.restorable(), later);
    // By default, a restore does not use a checkpoint made by a restore.
    assert_eq!(
        store
            .restore(CheckpointSelector::Latest, false, at(3))
            .unwrap()
            .used,
        made_id("checkpoint_001")
    );
    assert_eq!(world.restorable(), before);
    let again = store
        .restore(CheckpointSelector::Latest, false, at(4))
        .unwrap();
    assert_eq!(again.pre_restore, None, "nothing changed");
}

fn made_id(text: &str) -> CheckpointId {
    text.parse().unwrap()
}

fn flip(content: &mut [u8]) {
    let middle = content.len() / 2;
    content[middle] ^= 1;
}

#[test]
fn ckpt_4_damaged_newest_falls_back_to_previous_with_a_warning() {
    let world = World::new();
    world.make("periodic").unwrap();
    let before = world.restorable();
    world.write("src/new.rs", "new\n");
    world.make("periodic").unwrap();
    world.damage(".checkpoints/checkpoint_002/snapshot.tar.gz", |content| {
        flip(content);
    });
    let restored = world.restore("latest").unwrap();
    assert_eq!(restored.used, made_id("checkpoint_001"));
    assert_eq!(restored.fell_back_from.len(), 1);
    assert_eq!(restored.fell_back_from[0].0, made_id("checkpoint_002"));
    assert_eq!(world.restorable(), before);
    let refused = world.restore("checkpoint_002").unwrap_err();
    assert!(
        matches!(refused, CheckpointError::Damaged { .. }),
        "{refused}"
    );
    let unknown = world.restore("checkpoint_009").unwrap_err();
    assert!(matches!(unknown, CheckpointError::Unknown { .. }));
}

#[test]
fn msg_11_a_file_is_unpacked_from_each_checkpoint() {
    const FILE: &str = "docs/planning/01_idea.md";
    let world = World::new();
    world.make("periodic").unwrap();
    world.write(FILE, "another idea\n");
    world.make("periodic").unwrap();
    let (file, into) = (RelativePath::new(FILE.as_bytes()).unwrap(), World::empty());
    let mut found = Vec::new();
    let take = || -> Result<bool, CheckpointError> {
        found.push(into.read(FILE).unwrap());
        Ok(false)
    };
    let folder = into.folder();
    world
        .store()
        .find_file(&file, folder.as_ref(), take)
        .unwrap();
    assert_eq!(found, [&b"another idea\n"[..], b"an idea\n"]);
}

#[test]
fn ckpt_5_the_newest_and_those_with_names_are_never_removed() {
    let world = World::empty();
    let mut store = world.store();
    for number in 1..=6_u8 {
        world.write("f", [number; 5000]);
        let named = MakeCheckpoint {
            name: (number == 2).then(|| "before the rewrite".to_owned()),
            ..request("periodic")
        };
        store.make(&named, at(i64::from(number))).unwrap();
    }
    let ids = |ids: &[CheckpointId]| -> Vec<String> {
        let names = ids.iter().map(ToString::to_string);
        names
            .map(|name| name.trim_start_matches("checkpoint_00").to_owned())
            .collect()
    };
    let prune =
        |store: &mut Store, count, bytes| ids(&store.prune(Retention { count, bytes }).unwrap());
    assert_eq!(prune(&mut store, 10, None).len(), 0);
    assert_eq!(prune(&mut store, 4, None), ["1", "3"]);
    let size = store.list().unwrap().last().unwrap().size;
    assert_eq!(prune(&mut store, 10, Some(3 * size + 100)), ["4"]);
    // If the newest is damaged, the last intact one is still kept.
    world.damage(".checkpoints/checkpoint_006/snapshot.tar.gz", |content| {
        content.push(0);
    });
    assert_eq!(prune(&mut store, 0, Some(0)).len(), 0);
    let left: Vec<CheckpointId> = store.list().unwrap().iter().map(|one| one.id).collect();
    assert_eq!(ids(&left), ["2", "5", "6"]);
    // Removed ids are not reused.
    let made = store.make(&request("periodic"), at(9)).unwrap();
    assert_eq!(made.checkpoint_id, made_id("checkpoint_007"));
}

#[test]
fn ckpt_5_unchanged_files_are_neither_read_nor_compressed_again() {
    let world = World::empty();
    for number in 0..40 {
        world.write(
            &format!("d{}/f{number}", number % 5),
            [b'a' + number; 20_000],
        );
    }
    let mut store = world.store();
    let first = store.make(&request("periodic"), at(0)).unwrap();
    assert_eq!(first.files_read, 40);
    let second = store.make(&request("periodic"), at(1)).unwrap();
    assert_eq!((second.files_read, second.is_unchanged), (0, true));
    let first = world.read(".checkpoints/checkpoint_001/snapshot.tar.gz");
    assert_eq!(
        world.read(".checkpoints/checkpoint_002/snapshot.tar.gz"),
        first
    );
    // Also after a restart of the daemon, but not after a reboot.
    let third = world.make("periodic").unwrap();
    assert_eq!((third.files_read, third.is_unchanged), (0, true));
    world.write("d1/f1", "changed");
    let fourth = world.make("periodic").unwrap();
    assert!((1..20).contains(&fourth.files_read), "{fourth:?}");
    assert!(!fourth.is_unchanged);
    let restarted = world.after(Crash::KeepUnsynced);
    let fifth = restarted.make("periodic").unwrap();
    assert_eq!((fifth.files_read, fifth.is_unchanged), (40, true));
    // A longer task history is not a change of the task's files.
    restarted.write(".metadata/history.jsonl", "more\n");
    assert!(restarted.make("periodic").unwrap().is_unchanged);
    // Nothing is copied from a damaged archive.
    restarted.damage(".checkpoints/checkpoint_006/snapshot.tar.gz", |content| {
        flip(content);
    });
    restarted.make("periodic").unwrap();
    assert_eq!(restarted.store().drill(at(5)).unwrap().problem, None);
}

/// A file changed at the moment it is recorded would look unchanged from then on, like git's racily
/// clean files.
#[test]
fn ckpt_5_a_file_of_the_moment_of_a_checkpoint_is_read_again() {
    let world = World::empty();
    world.write("f", "old");
    let mut store = world.store();
    store.make(&request("periodic"), at(0)).unwrap();
    world.write("g", "new");
    store.make(&request("periodic"), at(1)).unwrap();
    let index = store.take_index(made_id("checkpoint_002")).unwrap();
    for (path, is_noted) in [("f", true), ("g", true)] {
        let path = RelativePath::new(path.as_bytes()).unwrap();
        assert_eq!(index.files.contains_key(&path), is_noted, "{path}");
    }
    let stat = world.folder().look(Path::new("g")).unwrap().unwrap();
    let [.., changed] = stat.version;
    let path = RelativePath::new(b"g").unwrap();
    for (begun, is_noted) in [(changed + 1, true), (changed, false), (changed - 1, false)] {
        let folder = world.folder();
        let writing = archive::ArchiveParams {
            source: folder.as_ref(),
            base: None,
            consistency: Consistency::Stopped,
            begun,
            may_move: place::Scope::Task.may_move(),
        };
        let found = store.survey(Consistency::Stopped).unwrap();
        let mut file = world.disk.create(Path::new("/archive")).unwrap();
        let written = archive::write(writing, &found.found, file.as_mut()).unwrap();
        assert_eq!(written.files.contains_key(&path), is_noted, "{begun}");
    }
}

#[test]
fn ckpt_4_a_drill_finds_damage_and_leaves_nothing() {
    let world = World::new();
    assert!(matches!(
        world.store().drill(at(1)),
        Err(CheckpointError::None)
    ));
    world.make("periodic").unwrap();
    let drill = world.store().drill(at(1)).unwrap();
    assert_eq!((drill.problem, drill.entries), (None, 20));
    assert_eq!(names(&world), ["checkpoint_001", "index", "latest.json"]);
    let path = ".checkpoints/checkpoint_001/snapshot.tar.gz";
    let whole = world.read(path).unwrap();
    for at_byte in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at_byte] ^= 4;
        world.write(path, damaged);
        let drill = world.store().drill(at(2)).unwrap();
        assert!(drill.problem.is_some(), "byte {at_byte}");
        assert_eq!(world.store().verify().unwrap().len(), 1);
    }
    world.remove(path);
    assert!(world.store().drill(at(3)).unwrap().problem.is_some());
    let listed = world.store().list().unwrap();
    assert!(listed[0].damaged.as_ref().unwrap().contains("missing"));
}

#[test]
fn ckpt_1_too_little_room_is_refused_before_anything_is_written() {
    let world = World::new();
    world.make("periodic").unwrap();
    let before = names(&world);
    world.disk.set_free_bytes(limits::CHECKPOINT_FREE_BYTES_MIN);
    let error = world.make("periodic").unwrap_err();
    assert!(matches!(error, CheckpointError::NoRoom { .. }));
    assert!(error.to_string().contains("free disk space"), "{error}");
    assert_eq!(names(&world), before);
    world
        .disk
        .set_free_bytes(limits::CHECKPOINT_FREE_BYTES_MIN + 1_000_000);
    world.make("periodic").unwrap();
}

/// If any single call fails, existing checkpoints are kept and the next attempt succeeds.
#[test]
fn ckpt_1_one_disk_failure_at_any_call_loses_no_checkpoint() {
    const ENOSPC: i32 = 28;
    let base = World::new();
    base.make("periodic").unwrap();
    for call in 1.. {
        let world = base.copy();
        let mut store = world.store();
        let calls = world.disk.calls();
        world
            .disk
            .fail_at(calls + call, CallFault::Errno(ENOSPC), false);
        let done = store.make(&request("error"), at(1));
        if world.disk.calls() - calls < call {
            assert!(done.is_ok() && call > 50);
            return;
        }
        let mut store = world.store();
        assert!(store.verify().unwrap().is_empty(), "call {call}");
        store.make(&request("error"), at(2)).unwrap();
        assert_eq!(store.drill(at(3)).unwrap().problem, None);
    }
}

#[test]
fn ckpt_2_checkpoint_requests_are_validated() {
    let world = World::new();
    let mut store = world.store();
    let mut long = request("periodic");
    long.name = Some("n".repeat(101));
    let mut line = request("periodic");
    line.name = Some("two\nlines".to_owned());
    let mut progress = request("periodic");
    progress.progress = 101;
    for bad in [
        long,
        line,
        progress,
        request(""),
        request("Periodic"),
        request("../x"),
        request(PRE_RESTORE),
    ] {
        let refused = store.make(&bad, at(0)).unwrap_err();
        assert!(
            matches!(refused, CheckpointError::Invalid { .. }),
            "{bad:?}"
        );
    }
    for bad in [
        "checkpoint_1",
        "checkpoint_000",
        "checkpoint_0001",
        "x",
        "../checkpoint_001",
    ] {
        assert!(bad.parse::<CheckpointId>().is_err(), "{bad}");
    }
    assert_eq!(made_id("checkpoint_1000").to_string(), "checkpoint_1000");
    assert!(store.list().unwrap().is_empty());
}
