use std::path::Path;

use super::*;
use crate::disk::{Crash, SimulatedDisk, append_all};

const WORKSPACE: &str = "/w";
const FOLDER: &str = "/w/tasks/t";
const LOG: &str = "log.jsonl";
const CURSOR: &str = "cursor.yaml";

fn fresh() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for dir in ["/w", "/w/tasks", FOLDER] {
        disk.create_dir(Path::new(dir)).unwrap();
        disk.sync_dir(Path::new(dir).parent().unwrap()).unwrap();
    }
    disk
}

fn register(disk: &SimulatedDisk) -> Register<'_> {
    Register::of(disk, Path::new(FOLDER))
}

fn append(disk: &SimulatedDisk, line: &str) -> Result<(), FileError> {
    let path = Path::new(FOLDER).join(LOG);
    let mut file = disk.open(&path).during("open", &path)?;
    append_all(file.as_mut(), line.as_bytes()).during("append to", &path)?;
    file.sync().during("sync", &path)?;
    disk.sync_dir(Path::new(FOLDER)).during("sync", &path)
}

/// One run of a folder: a growing log, a replaced file, and a temporary file.
fn live(disk: &SimulatedDisk) -> Result<(), FileError> {
    let register = register(disk);
    for round in 0..3 {
        append(disk, &format!("{{\"round\":{round}}}\n"))?;
        register.note(&[LOG]);
        register.replace(CURSOR, format!("cursor {round}").as_bytes())?;
        let passing = Path::new(FOLDER).join("passing");
        files::replace(disk, &passing, b"passing")?;
        register.note(&["passing"]);
        register.release("passing")?;
        disk.remove_file(&passing).during("remove", &passing)?;
        let folder = Path::new(FOLDER);
        disk.sync_dir(folder).during("sync", folder)?;
    }
    // A failed update is ignored; a stopped machine is not.
    let root = Path::new(WORKSPACE);
    disk.stat(root).during("inspect", root).map(drop)
}

fn kinds(disk: &SimulatedDisk) -> Vec<FindingKind> {
    let found = register(disk).check().unwrap();
    found.into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn msg_11_no_crash_makes_a_known_file_look_lost() {
    for call in 0.. {
        let mut has_ended = true;
        for crash in [
            Crash::LoseUnsynced,
            Crash::KeepUnsynced,
            Crash::Subset(call),
        ] {
            let disk = fresh();
            disk.crash_at(disk.calls() + call);
            has_ended &= live(&disk).is_ok();
            let after = disk.after_crash(crash);
            assert_eq!(kinds(&after), [], "call {call}, {crash:?}");
            // A second crash, after the first one.
            live(&after).unwrap();
            let after = after.after_crash(Crash::LoseUnsynced);
            assert_eq!(kinds(&after), [], "call {call}, {crash:?}, again");
        }
        if has_ended {
            return;
        }
    }
}

#[test]
fn msg_11_every_loss_of_a_known_file_is_found() {
    let whole = |name: &str| match name {
        LOG => &b"{\"round\":0}\n{\"round\":1}\n{\"round\":2}\n"[..],
        _ => &b"cursor 2"[..],
    };
    for name in [LOG, CURSOR] {
        let content = whole(name);
        let mut flipped = content.to_vec();
        flipped[3] ^= 1;
        for (damage, expected) in [
            (None, FindingKind::MissingRecords),
            (Some(Vec::new()), FindingKind::MissingRecords),
            (
                Some(content[..content.len() / 2].to_vec()),
                FindingKind::MissingRecords,
            ),
            (Some(flipped), FindingKind::ReplacedFile),
        ] {
            let disk = fresh();
            live(&disk).unwrap();
            let path = Path::new(FOLDER).join(name);
            match &damage {
                None => disk.remove_file(&path).unwrap(),
                Some(content) => files::replace(&disk, &path, content).unwrap(),
            }
            assert_eq!(kinds(&disk), [expected], "{name}, {damage:?}");
            register(&disk).acknowledge().unwrap();
            assert_eq!(kinds(&disk), [], "{name}, {damage:?}");
        }
    }
}

#[test]
fn msg_11_a_loss_is_not_forgotten_when_the_file_grows() {
    let disk = fresh();
    live(&disk).unwrap();
    let path = Path::new(FOLDER).join(LOG);
    files::replace(&disk, &path, b"{\"round\":0}\n").unwrap();
    append(&disk, "{\"round\":9}\n").unwrap();
    register(&disk).note(&[LOG]);
    for _ in 0..9 {
        append(&disk, "{\"round\":10}\n").unwrap();
        register(&disk).note(&[LOG]);
    }
    assert_eq!(kinds(&disk), [FindingKind::MissingRecords]);
}

#[test]
fn msg_11_a_removed_folder_is_found_until_acknowledged() {
    let disk = fresh();
    live(&disk).unwrap();
    assert_eq!(names(&disk, Path::new(WORKSPACE), "tasks").unwrap(), ["t"]);
    disk.remove_tree(Path::new(FOLDER)).unwrap();
    assert_eq!(kinds(&disk), [FindingKind::MissingFile]);
    register(&disk).acknowledge().unwrap();
    assert_eq!(kinds(&disk), []);
    assert!(
        names(&disk, Path::new(WORKSPACE), "tasks")
            .unwrap()
            .is_empty()
    );
}

#[test]
fn msg_11_a_replaced_folder_is_one_loss() {
    let disk = fresh();
    live(&disk).unwrap();
    register(&disk).here().note(&[LOG]);
    disk.remove_tree(Path::new(FOLDER)).unwrap();
    register(&disk).begin_again().unwrap();
    register(&disk).here().begin_again().unwrap();
    disk.create_dir(Path::new(FOLDER)).unwrap();
    assert_eq!(kinds(&disk), [FindingKind::MissingFile]);
    assert_eq!(register(&disk).here().check().unwrap(), []);
    register(&disk).acknowledge().unwrap();
    assert_eq!(kinds(&disk), []);
}

#[test]
fn existing_files_are_registered_with_the_first_note() {
    let disk = fresh();
    append(&disk, "{}\n").unwrap();
    assert_eq!(kinds(&disk), []);
    register(&disk).note_new(&[LOG]);
    append(&disk, "{}\n").unwrap();
    // An existing claim stays, because missing data must not become the expected state.
    register(&disk).note_new(&[LOG]);
    disk.remove_file(&Path::new(FOLDER).join(LOG)).unwrap();
    let found = register(&disk).check().unwrap();
    assert_eq!(found.len(), 1);
    assert!(
        found[0].problem.contains("1 records in 3 bytes"),
        "{found:?}"
    );
}
