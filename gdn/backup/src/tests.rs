//! Backups of real directories.
#![expect(clippy::disallowed_methods, reason = "test files need not be durable")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use goondan_protocol::state_root::RESTORE_MARK;
use goondan_protocol::time::Timestamp;

use crate::{
    BackupDir, BackupError, Created, Identities, Recipients, RestoreOptions, Session,
    SessionOptions, restore, verify,
};

/// A state root and a directory of backups.
struct World {
    dir: tempfile::TempDir,
    identity: age::x25519::Identity,
    is_encrypted: bool,
    made: i64,
}

impl World {
    fn new(is_encrypted: bool) -> Self {
        let world = Self {
            dir: tempfile::tempdir().unwrap(),
            identity: age::x25519::Identity::generate(),
            is_encrypted,
            made: 0,
        };
        let root = world.root();
        fs::create_dir_all(root.join("workspaces/w/instances/main/work/empty")).unwrap();
        for (path, content) in [
            ("config.json", b"{}".to_vec()),
            ("system/identity.age", b"secret words".to_vec()),
            ("run/orchestrator.pid", b"1".to_vec()),
            ("logs/orchestrator.log", b"{}".to_vec()),
            ("workspaces/w/instances/main/work/big", noise(2_500_000)),
            ("workspaces/w/instances/main/base.jsonl", b"one\n".to_vec()),
        ] {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let work = root.join("workspaces/w/instances/main/work");
        fs::write(work.join("run.sh"), "#!/bin/sh\n").unwrap();
        let mode = |path: PathBuf, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(work.join("run.sh"), 0o755);
        symlink("/etc/passwd", work.join("link")).unwrap();
        symlink("..", work.join("up")).unwrap();
        mode(work.join("empty"), 0o500);
        world
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn backups(&self) -> PathBuf {
        self.dir.path().join("backups")
    }

    fn identities(&self) -> Identities {
        Identities::of(vec![self.identity.clone()])
    }

    fn create(&mut self) -> Created {
        self.made += 1;
        let recipient = self.identity.to_public().to_string();
        let recipients = self.is_encrypted.then_some(recipient.as_str());
        let options = SessionOptions {
            state_root: self.root(),
            recipients: Recipients::parse(recipients).unwrap(),
            cache: Some(self.dir.path().join("cache")),
            full: false,
            now: Timestamp::from_unix_millis(1_700_000_000_000 + self.made * 60_000),
            goondan: "0.1.0".to_owned(),
        };
        let dir = BackupDir::open_or_create(&self.backups()).unwrap();
        let mut session = Session::begin(dir, options).unwrap();
        session.pass().unwrap();
        session.pass().unwrap();
        session.finish().unwrap()
    }

    fn restore(&self, backup: Option<&str>, name: &str) -> Result<PathBuf, BackupError> {
        let target = self.dir.path().join(name);
        let options = RestoreOptions {
            backup: backup.map(str::to_owned),
            identities: self.identities(),
            target: target.clone(),
            now: Timestamp::from_unix_millis(0),
        };
        restore(&BackupDir::open(&self.backups())?, &options).map(|_| target)
    }

    /// No unfinished restore is left.
    fn assert_nothing_left(&self) {
        let names = fs::read_dir(self.dir.path()).unwrap();
        let names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("restoring"))
            .collect();
        assert_eq!(names, Vec::<String>::new());
    }
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state: u64 = 7;
    let byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(byte).take(len).collect()
}

/// Every path below a directory: mode, time, and content or target.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if ["run", "logs"].map(Path::new).contains(&name.as_path())
                || name == Path::new(RESTORE_MARK)
            {
                continue;
            }
            let stat = fs::symlink_metadata(&path).unwrap();
            let content = if stat.is_dir() {
                dirs.push(path);
                Vec::new()
            } else if stat.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                target.into_os_string().into_string().unwrap().into_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let mtime = if stat.is_symlink() { 0 } else { stat.mtime() };
            found.insert(name, (stat.mode(), mtime, content));
        }
    }
    found
}

#[test]
fn restored_files_are_equal_byte_by_byte() {
    for is_encrypted in [false, true] {
        let mut world = World::new(is_encrypted);
        let first = world.create();
        assert_eq!(first.skipped, []);
        assert_eq!(first.unsteady, Vec::<String>::new());
        assert_eq!(first.no_cache, None);
        let before = tree(&world.root());
        // Of the large file, one part changes; another file grows; one is removed.
        let main = world.root().join("workspaces/w/instances/main");
        let mut big = noise(2_500_000);
        big[1_500_000] ^= 1;
        fs::write(main.join("work/big"), big).unwrap();
        fs::write(main.join("base.jsonl"), "one\ntwo\n").unwrap();
        fs::remove_file(main.join("work/run.sh")).unwrap();
        let second = world.create();
        let after = tree(&world.root());
        assert!(
            (1_000_000..1_200_000).contains(&second.new_bytes),
            "{second:?}"
        );
        let third = world.create();
        assert_eq!(third.new_bytes, 0, "{third:?}");
        for (id, name, expected) in [
            (Some(first.id.as_str()), "first", &before),
            (Some(second.id.as_str()), "second", &after),
            (None, "latest", &after),
        ] {
            let restored = world.restore(id, name).unwrap();
            assert_eq!(tree(&restored), *expected, "{name}");
            assert!(restored.join(RESTORE_MARK).is_file());
        }
        let dir = BackupDir::open(&world.backups()).unwrap();
        let checked = verify(&dir, None, &world.identities()).unwrap();
        assert_eq!(checked.findings, Vec::<String>::new());
        assert_eq!(checked.opened.len(), 3);

        // The first backup's contents are still needed.
        let pruned = dir.prune(1).unwrap();
        assert_eq!(pruned.kept, [third.id]);
        drop(dir);
        let restored = world.restore(None, "pruned").unwrap();
        assert_eq!(tree(&restored), after);
    }
}

#[test]
fn encrypted_backup_shows_no_content_and_needs_its_identity() {
    let mut world = World::new(true);
    world.create();
    let mut files = tree(&world.backups());
    files.retain(|path, _| path.extension().is_some());
    assert_eq!(files.len(), 3);
    for (path, (_, _, content)) in files {
        for text in ["identity.age", "secret words", "base.jsonl"] {
            let bytes = text.as_bytes();
            let shows = content.windows(bytes.len()).any(|window| window == bytes);
            assert!(!shows, "{path:?} shows `{text}`");
        }
    }
    let dir = BackupDir::open(&world.backups()).unwrap();
    let checked = verify(&dir, None, &Identities::default()).unwrap();
    assert_eq!((checked.findings.len(), checked.opened.len()), (0, 0));
    for (identities, is_other) in [
        (Identities::default(), false),
        (
            Identities::of(vec![age::x25519::Identity::generate()]),
            true,
        ),
    ] {
        let options = RestoreOptions {
            backup: None,
            identities,
            target: world.dir.path().join("target"),
            now: Timestamp::from_unix_millis(0),
        };
        let refused = restore(&dir, &options).unwrap_err();
        let is_refused_as_other = matches!(refused, BackupError::OtherIdentity { .. });
        assert_eq!(is_refused_as_other, is_other, "{refused}");
        assert!(!options.target.exists());
    }
    world.assert_nothing_left();
}

#[test]
fn every_damage_is_found_and_nothing_is_restored() {
    for is_encrypted in [false, true] {
        let mut world = World::new(is_encrypted);
        world.create();
        let files: Vec<PathBuf> = tree(&world.backups()).into_keys().collect();
        for file in files {
            let file = world.backups().join(file);
            if !file.is_file() || file.extension().unwrap() == "json" {
                continue;
            }
            let intact = fs::read(&file).unwrap();
            let mut damaged: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new())];
            let len = intact.len();
            for position in [0, 5, len / 2, len - 1] {
                let mut changed = intact.clone();
                changed[position] ^= 1;
                damaged.push(Some(changed));
            }
            damaged.push(Some(intact[..len / 2].to_vec()));
            for content in damaged {
                match content {
                    Some(content) => fs::write(&file, content).unwrap(),
                    None => fs::remove_file(&file).unwrap(),
                }
                let dir = BackupDir::open(&world.backups()).unwrap();
                let is_listed = dir.ids().unwrap().len() == 1;
                let checked = verify(&dir, None, &world.identities()).unwrap();
                assert_eq!(checked.findings.is_empty(), !is_listed, "{checked:?}");
                world.restore(None, "target").unwrap_err();
                assert!(!world.dir.path().join("target").exists());
                world.assert_nothing_left();
            }
            fs::write(&file, &intact).unwrap();
        }
        world.restore(None, "target").unwrap();
    }
}

#[test]
fn restore_replaces_no_file() {
    let mut world = World::new(false);
    world.create();
    let target = world.dir.path().join("target");
    fs::create_dir(&target).unwrap();
    world.restore(None, "target").unwrap();
    let refused = world.restore(None, "target").unwrap_err();
    assert!(
        matches!(refused, BackupError::TargetExists { .. }),
        "{refused}"
    );
    symlink(&target, world.dir.path().join("link")).unwrap();
    let refused = world.restore(None, "link").unwrap_err();
    assert!(
        matches!(refused, BackupError::TargetExists { .. }),
        "{refused}"
    );
}

#[test]
fn unsuitable_directories_are_refused() {
    let mut world = World::new(false);
    let occupied = world.dir.path().join("occupied");
    fs::create_dir(&occupied).unwrap();
    fs::write(occupied.join("file"), "x").unwrap();
    let refused = BackupDir::open_or_create(&occupied).unwrap_err();
    assert!(matches!(refused, BackupError::Occupied { .. }), "{refused}");
    let refused = BackupDir::open(&occupied).unwrap_err();
    let is_expected = matches!(refused, BackupError::NotABackupDirectory { .. });
    assert!(is_expected, "{refused}");

    world.create();
    let first = BackupDir::open_or_create(&world.backups()).unwrap();
    let refused = BackupDir::open_or_create(&world.backups()).unwrap_err();
    assert!(matches!(refused, BackupError::Busy { .. }), "{refused}");
    drop(first);

    let nested = BackupDir::open_or_create(&world.root().join("backups-here")).unwrap();
    let options = SessionOptions {
        state_root: world.root(),
        recipients: Recipients::default(),
        cache: None,
        full: false,
        now: Timestamp::from_unix_millis(0),
        goondan: String::new(),
    };
    let refused = Session::begin(nested, options).unwrap_err();
    assert!(matches!(refused, BackupError::Nested { .. }), "{refused}");
}

#[test]
fn interrupted_backup_leaves_nothing_to_the_next() {
    let mut world = World::new(true);
    world.create();
    let leftover = world.backups().join("packs/2023-left-1.pack");
    fs::write(&leftover, "x").unwrap();
    world.create();
    assert!(!leftover.exists());
    // Without its cache, a backup is complete.
    fs::remove_dir_all(world.dir.path().join("cache")).unwrap();
    let made = world.create();
    assert!(made.new_bytes > 2_000_000, "{made:?}");
    // A damaged backup does not prevent a new one.
    fs::write(world.backups().join("backups/0-damaged.backup"), "x").unwrap();
    world.create();
    world.restore(None, "target").unwrap();
}

#[test]
fn sparse_file_is_restored_with_its_holes() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    let mut world = World::new(false);
    let path = "workspaces/w/instances/main/work/sparse";
    let sparse = fs::File::create(world.root().join(path)).unwrap();
    sparse.write_all_at(b"between holes", 8 << 20).unwrap();
    sparse.set_len(16 << 20).unwrap();
    world.create();
    let restored = world.restore(None, "target").unwrap();
    assert_eq!(tree(&restored), tree(&world.root()));
    let stat = fs::metadata(restored.join(path)).unwrap();
    assert!(stat.blocks() * 512 < 4 << 20, "{stat:?}");
}

#[test]
fn unreadable_directory_is_reported_and_the_rest_is_copied() {
    let mut world = World::new(false);
    let closed = world.root().join("workspaces/w/instances/main/work/closed");
    fs::create_dir(&closed).unwrap();
    let mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    mode(0);
    let is_root = fs::read_dir(&closed).is_ok();
    let made = world.create();
    mode(0o700);
    assert_eq!(made.skipped.len(), usize::from(!is_root), "{made:?}");
    let restored = world.restore(None, "target").unwrap();
    assert!(restored.join("config.json").is_file());
}
