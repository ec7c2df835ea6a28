//! Goal: a snapshot is complete, reports exclusions, and appears atomically.

use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;

use goondan_durable::disk::{CallFault, Crash, Disk as _, Folder as _, SimulatedDisk, append_all};

use crate::RealFolder;
use crate::TreeError;
use crate::excludes::Excludes;
use crate::freeze::{EntryPolicy, Options, Reason, freeze, scan};
use crate::limits::Limits;
use crate::random_trees::{everything, nodes, read, write};

fn world() -> (SimulatedDisk, crate::Manifest) {
    let disk = SimulatedDisk::new();
    for name in ["/source", "/frozen"] {
        disk.create_dir(Path::new(name)).unwrap();
    }
    disk.sync_dir(Path::new("/")).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let tree = nodes(&mut random, 30);
    let manifest = write(disk.folder(Path::new("/source")).as_ref(), &tree);
    (disk, manifest)
}

fn freeze_in(disk: &SimulatedDisk) -> Result<crate::Manifest, TreeError> {
    let (source, parent) = (
        disk.folder(Path::new("/source")),
        disk.folder(Path::new("/frozen")),
    );
    let frozen = freeze(source.as_ref(), parent.as_ref(), "tree", &everything())?;
    Ok(frozen.manifest)
}

#[test]
fn box_1_freeze_stopped_at_any_call_is_whole_or_absent() {
    let mut whole = 0;
    for call in 1.. {
        let (disk, manifest) = world();
        disk.crash_at(disk.calls() + call);
        let outcome = freeze_in(&disk);
        for crash in [Crash::LoseUnsynced, Crash::KeepUnsynced]
            .into_iter()
            .chain((0..8).map(Crash::Subset))
        {
            let after = disk.after_crash(crash);
            let frozen = after.folder(Path::new("/frozen"));
            if frozen.look(Path::new("tree")).unwrap().is_some() {
                let folder = after.folder(Path::new("/frozen/tree"));
                assert_eq!(read(folder.as_ref()), manifest, "call {call}, {crash:?}");
                whole += 1;
            } else {
                assert!(
                    outcome.is_err(),
                    "call {call}, {crash:?}: it was acknowledged as durable"
                );
                assert_eq!(
                    freeze_in(&after).unwrap(),
                    manifest,
                    "call {call}, {crash:?}"
                );
            }
        }
        if !disk.is_down() {
            assert!(call > 40 && whole > 10, "{call} {whole}");
            return;
        }
    }
}

#[test]
fn box_1_an_error_at_any_call_leaves_nothing_under_the_name() {
    for call in 1.. {
        let (disk, manifest) = world();
        let start = disk.calls();
        disk.fail_at(start + call, CallFault::Errno(28), false);
        match freeze_in(&disk) {
            Ok(frozen) => assert_eq!(frozen, manifest),
            Err(TreeError::Taken { .. }) => panic!("nothing had that name"),
            Err(_) => {
                // After the rename only the sync of the name can fail, so the tree exists and is
                // complete.
                let frozen = disk.folder(Path::new("/frozen"));
                if frozen.look(Path::new("tree")).unwrap().is_none() {
                    assert_eq!(freeze_in(&disk).unwrap(), manifest);
                }
            }
        }
        if disk.calls() < start + call {
            return;
        }
    }
}

#[test]
fn box_2_excluded_paths_are_listed_and_forbidden_ones_refused() {
    let directory = tempfile::tempdir().unwrap();
    let top = RealFolder::open(directory.path()).unwrap();
    for name in ["p", "p/.git", "p/src", "p/node_modules"] {
        top.create_dir(Path::new(name), 0o755).unwrap();
    }
    for (name, mode) in [
        ("p/.git/config", 0o644),
        ("p/src/a.rs", 0o640),
        ("p/run", 0o755),
        ("p/a.key", 0o600),
    ] {
        let mut file = top.create(Path::new(name), mode).unwrap();
        append_all(file.as_mut(), name.as_bytes()).unwrap();
    }
    symlink("../../etc", directory.path().join("p/out")).unwrap();
    symlink("src/a.rs", directory.path().join("p/in")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(directory.path().join("p/socket")).unwrap();
    let is_socket = |path: &Path| {
        std::fs::symlink_metadata(path)
            .unwrap()
            .file_type()
            .is_socket()
    };
    assert!(is_socket(&directory.path().join("p/socket")));
    let source = top.below(Path::new("p")).unwrap();
    let mut options = Options {
        excludes: Excludes::new(&[".git/", "node_modules/", "*.key"]).unwrap(),
        outside_links: EntryPolicy::LeaveOut,
        special: EntryPolicy::LeaveOut,
        limits: Limits::default(),
    };
    let frozen = freeze(source.as_ref(), &top, "frozen", &options).unwrap();
    let left_out: Vec<(&str, &Reason)> = frozen
        .left_out
        .iter()
        .map(|left| (left.path.as_str(), &left.reason))
        .collect();
    let excluded = |pattern: &str| Reason::Excluded(pattern.to_owned());
    assert_eq!(
        left_out,
        [
            (".git", &excluded(".git/")),
            ("a.key", &excluded("*.key")),
            ("node_modules", &excluded("node_modules/")),
            ("out", &Reason::OutsideLink),
            ("socket", &Reason::Special),
        ]
    );
    let shown: Vec<String> = frozen
        .manifest
        .entries()
        .map(|(path, _)| path.to_string())
        .collect();
    assert_eq!(shown, ["in", "run", "src", "src/a.rs"]);
    let copy = top.below(Path::new("frozen")).unwrap();
    assert_eq!(
        scan(copy.as_ref(), &options).unwrap().manifest,
        frozen.manifest
    );
    assert_eq!(
        frozen.manifest.digest().unwrap(),
        scan(copy.as_ref(), &options)
            .unwrap()
            .manifest
            .digest()
            .unwrap()
    );
    let taken = freeze(source.as_ref(), &top, "frozen", &options).unwrap_err();
    assert!(matches!(taken, TreeError::Taken { .. }));

    options.special = EntryPolicy::Refuse;
    assert!(matches!(
        scan(source.as_ref(), &options),
        Err(TreeError::Special { .. })
    ));
    drop(socket);
    source.remove(Path::new("socket")).unwrap();
    options.outside_links = EntryPolicy::Refuse;
    assert!(matches!(
        scan(source.as_ref(), &options),
        Err(TreeError::OutsideLink { .. })
    ));
    options.outside_links = EntryPolicy::Keep;
    for (limits, is_enough) in [
        (Limits::new(5, 100), true),
        (Limits::new(4, 100), false),
        (Limits::new(5, 10), false),
    ] {
        let limited = Options {
            limits,
            ..options.clone()
        };
        assert_eq!(scan(source.as_ref(), &limited).is_ok(), is_enough);
    }
    let nothing_excluded = Options {
        excludes: Excludes::new::<&str>(&[]).unwrap(),
        ..options
    };
    let refused = scan(source.as_ref(), &nothing_excluded).unwrap_err();
    assert!(matches!(refused, TreeError::Path(_)), "{refused}");
}

/// Paths are resolved beneath the root only, including links in them.
#[test]
fn box_2_no_path_leads_out_of_a_folder() {
    let directory = tempfile::tempdir().unwrap();
    let top = RealFolder::open(directory.path()).unwrap();
    for name in ["in", "out"] {
        top.create_dir(Path::new(name), 0o755).unwrap();
    }
    top.create(Path::new("out/secret"), 0o644).unwrap();
    symlink("../out", directory.path().join("in/link")).unwrap();
    symlink("../out/secret", directory.path().join("in/file")).unwrap();
    let folder = top.below(Path::new("in")).unwrap();
    for path in ["link/secret", "../out/secret", "/etc/passwd", "file"] {
        assert!(folder.read(Path::new(path)).is_err(), "{path} was read");
    }
    for path in ["link/new", "../out/new", "/tmp/goondan-new"] {
        assert!(
            folder.create(Path::new(path), 0o644).is_err(),
            "{path} was made"
        );
        assert!(
            folder.create_dir(Path::new(path), 0o755).is_err(),
            "{path} was made"
        );
        assert!(
            folder
                .rename_new(Path::new("file"), Path::new(path))
                .is_err(),
            "{path} was renamed to"
        );
        assert!(folder.remove(Path::new("link/secret")).is_err());
    }
    assert!(folder.names(Path::new("link")).is_err());
    assert!(top.look(Path::new("out/secret")).unwrap().is_some());
}
