use std::path::Path;

use super::*;
use crate::world::{World, at};

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
fn ckpt_4_a_restore_brings_back_exactly_what_was_and_keeps_what_came_later() {
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
    let dry = store.restore(Which::Latest, true, at(1)).unwrap();
    assert_eq!(world.restorable(), later, "a dry run changes nothing");
    let restored = store.restore(Which::Latest, false, at(1)).unwrap();
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
    // What happened stays; so does what no snapshot holds.
    assert_eq!(
        world.read(".metadata/history.jsonl").unwrap(),
        b"one\ntwo\n"
    );
    assert_eq!(world.read(".env").unwrap(), b"KEY=other\n");
    // And back again.
    let pre = restored.pre_restore.unwrap();
    assert_eq!(pre.to_string(), "checkpoint_002");
    store.restore(Which::Id(pre), false, at(2)).unwrap();
    assert_eq!(world.restorable(), later);
    // The newest that is restored unasked is not what a restore took away.
    assert_eq!(
        store.restore(Which::Latest, false, at(3)).unwrap().used,
        made_id("checkpoint_001")
    );
    assert_eq!(world.restorable(), before);
    let again = store.restore(Which::Latest, false, at(4)).unwrap();
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
fn ckpt_4_a_damaged_newest_falls_back_to_the_one_before_with_a_warning() {
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
