//! Goal: `snapshot.tar.gz` is a standard archive (`CKPT-3`). Method: common programs unpack an
//! archive with difficult names, lengths, modes and links, and the result is compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastrand::Rng;
use goondan_durable::disk::{Folder as _, append_all};
use goondan_trees::RealFolder;

use crate::world::{at, request};
use crate::{CheckpointSelector, Retention, Store};

type ExtractedNodes = BTreeMap<PathBuf, (u32, i64, Vec<u8>)>;

fn write(root: &RealFolder, path: &[u8], mode: u32, content: &[u8]) {
    let path = Path::new(OsStr::from_bytes(path));
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    for dir in above.into_iter().skip(1) {
        if root.look(dir).unwrap().is_none() {
            root.create_dir(dir, 0o755).unwrap();
        }
    }
    let mut file = root.create(path, mode).unwrap();
    append_all(file.as_mut(), content).unwrap();
}

/// A work area with all difficult cases.
fn hard(root: &Path) {
    let folder = RealFolder::open(root).unwrap();
    let mut random = Rng::with_seed(3);
    let long = "n".repeat(200);
    let deep = "d".repeat(60) + "/" + &"e".repeat(60) + "/" + &"f".repeat(60);
    for (path, mode, len) in [
        (b"plain.txt".to_vec(), 0o644, 100),
        (b"run.sh".to_vec(), 0o775, 20),
        (b"only-mine".to_vec(), 0o600, 0),
        (b"read-only".to_vec(), 0o444, 512),
        (b".git/objects/ab/cdef".to_vec(), 0o444, 1024),
        ("\u{d55c}\u{ae00}/\u{e9} with space.md".into(), 0o644, 511),
        (b"caf\xe9".to_vec(), 0o644, 513),
        (b"new\nline".to_vec(), 0o644, 1),
        (b"a\\back".to_vec(), 0o644, 1),
        (long.clone().into_bytes(), 0o644, 30),
        (format!("{deep}/{long}").into_bytes(), 0o644, 30),
        (b"case".to_vec(), 0o644, 1),
        (b"CASE".to_vec(), 0o644, 2),
        (b"large.bin".to_vec(), 0o644, 5_000_001),
    ] {
        let content: Vec<u8> = std::iter::repeat_with(|| random.u8(b'a'..b'p'))
            .take(len)
            .collect();
        write(&folder, &path, mode, &content);
    }
    // Enough for several groups.
    for number in 0..300 {
        let len = random.usize(..9000);
        let content: Vec<u8> = std::iter::repeat_with(|| random.u8(b'a'..b'f'))
            .take(len)
            .collect();
        let path = format!("many/{}/{number}.txt", number % 7);
        write(&folder, path.as_bytes(), 0o644, &content);
    }
    let link = |path: &str, target: &str| {
        folder
            .create_link(Path::new(path), Path::new(target))
            .unwrap();
    };
    link("guide", "/nowhere/guide");
    link("link", "plain.txt");
    link("up", "../../up");
    link("long-link", &format!("{deep}/{long}"));
    folder.create_dir(Path::new("empty"), 0o750).unwrap();
}

/// All entries of a directory except `.checkpoints`: mode, time (of files) and content.
fn nodes(root: &Path) -> ExtractedNodes {
    let mut nodes = ExtractedNodes::new();
    let mut rest = vec![root.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if name == Path::new(".checkpoints") {
                continue;
            }
            let stat = std::fs::symlink_metadata(&path).unwrap();
            let mode = stat.permissions().mode() & 0o7777;
            let node = if stat.is_dir() {
                rest.push(path);
                (mode, 0, b"directory".to_vec())
            } else if stat.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                (0, 0, target.into_os_string().as_bytes().to_vec())
            } else {
                (mode, stat.mtime(), std::fs::read(&path).unwrap())
            };
            nodes.insert(name, node);
        }
    }
    nodes
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--help").stdin(Stdio::null());
    let is_there = command.output().is_ok();
    if !is_there {
        eprintln!(
            "SKIPPED: `{program}` is not installed, so reading a snapshot with it is untested"
        );
    }
    is_there
}

fn run(command: &mut Command) -> Vec<u8> {
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {printed}");
    output.stdout
}

#[test]
fn ckpt_3_any_tar_opens_a_snapshot() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("task");
    std::fs::create_dir(&root).unwrap();
    hard(&root);
    let expected = nodes(&root);
    let folder = Box::new(RealFolder::open(&root).unwrap());
    let (mut store, _) = Store::open(folder, "task", "boot").unwrap();
    store.make(&request("periodic"), at(0)).unwrap();
    // An archive assembled from the groups of the previous one.
    let folder = RealFolder::open(&root).unwrap();
    folder.remove(Path::new("many/3/3.txt")).unwrap();
    write(&folder, b"many/3/3.txt", 0o644, b"changed");
    let expected = [
        expected,
        BTreeMap::from([(
            PathBuf::from("many/3/3.txt"),
            nodes(&root)[Path::new("many/3/3.txt")].clone(),
        )]),
    ];
    let expected: ExtractedNodes = expected.into_iter().flatten().collect();
    store.make(&request("periodic"), at(1)).unwrap();
    assert_eq!(store.drill(at(2)).unwrap().problem, None);
    let archive = root.join(".checkpoints/checkpoint_002/snapshot.tar.gz");

    let extracted = |name: &str, command: &mut Command| {
        let into = temporary.path().join(name);
        std::fs::create_dir(&into).unwrap();
        run(command.current_dir(&into));
        let found = nodes(&into);
        for (path, node) in &expected {
            assert!(found.get(path) == Some(node), "{name}: {}", path.display());
        }
        assert_eq!(found.len(), expected.len(), "{name}");
    };
    let with = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).arg(&archive);
        command
    };
    extracted("tar", &mut with("tar", &["xpzf"]));
    if is_there("bsdtar") {
        extracted("bsdtar", &mut with("bsdtar", &["-xpzf"]));
    }
    if is_there("busybox") {
        extracted("busybox", &mut with("busybox", &["tar", "-xpzf"]));
    }
    if is_there("python3") {
        let script = "import sys, tarfile; tarfile.open(sys.argv[1], 'r:gz').extractall()";
        extracted("python3", &mut with("python3", &["-c", script]));
    }
    let tar = run(Command::new("gzip").arg("-dc").arg(&archive));
    if is_there("node") {
        let script = "process.stdout.write(require('zlib').gunzipSync(require('fs').readFileSync(process.argv[1])))";
        let unpacked = run(Command::new("node").args(["-e", script]).arg(&archive));
        assert!(unpacked == tar, "node reads other bytes than gzip");
    }
    if is_there("go") {
        let program = temporary.path().join("list.go");
        let mut file = RealFolder::open(temporary.path())
            .unwrap()
            .create(Path::new("list.go"), 0o644)
            .unwrap();
        append_all(file.as_mut(), GO.as_bytes()).unwrap();
        let mut command = Command::new("go");
        command.arg("run").arg(&program).arg(&archive);
        command.env("GOCACHE", temporary.path().join("go-cache"));
        let listed = String::from_utf8(run(&mut command)).unwrap();
        assert_eq!(listed.trim(), expected.len().to_string());
    }
}

const GO: &str = r#"package main

import ("archive/tar"; "compress/gzip"; "fmt"; "io"; "os")

func main() {
	file, _ := os.Open(os.Args[1])
	unzipped, err := gzip.NewReader(file)
	if err != nil { panic(err) }
	count := 0
	for archive := tar.NewReader(unzipped); ; count++ {
		_, err := archive.Next()
		if err == io.EOF { break }
		if err != nil { panic(err) }
		if _, err := io.Copy(io.Discard, archive); err != nil { panic(err) }
	}
	fmt.Println(count)
}
"#;

/// The same on a real file system with real times and modes.
#[test]
fn ckpt_4_ckpt_5_unchanged_files_are_not_read_and_all_restore() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("task");
    std::fs::create_dir(&root).unwrap();
    hard(&root);
    let set_mode = |path: &str, mode: u32| {
        let folder = RealFolder::open(&root).unwrap();
        folder.set_dir_mode(Path::new(path), mode).unwrap();
    };
    set_mode("many/3", 0o555);
    let open = || {
        let folder = Box::new(RealFolder::open(&root).unwrap());
        Store::open(folder, "task", "boot").unwrap().0
    };
    let before = nodes(&root);
    let first = open().make(&request("periodic"), at(0)).unwrap();
    // Files changed at the time of the checkpoint are read once more.
    wait_for_the_clock(&root);
    let second = open().make(&request("periodic"), at(1)).unwrap();
    let third = open().make(&request("periodic"), at(2)).unwrap();
    assert!(second.is_unchanged && third.is_unchanged);
    assert_eq!(third.files_read, 0, "of {}", first.files_read);
    assert_eq!(third.snapshot_bytes, first.snapshot_bytes);
    set_mode("many/3", 0o755);
    let folder = RealFolder::open(&root).unwrap();
    folder.remove(Path::new("many/3/3.txt")).unwrap();
    write(&folder, b"many/3/3.txt", 0o600, b"changed");
    write(&folder, b"new/file", 0o644, b"new");
    folder.remove(Path::new("guide")).unwrap();
    set_mode("many", 0o500);
    let mut store = open();
    let restored = store
        .restore(CheckpointSelector::Latest, false, at(3))
        .unwrap();
    assert!(restored.differs.is_empty(), "{restored:?}");
    assert_eq!(restored.used, third.checkpoint_id);
    let strip = |nodes: ExtractedNodes| -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let strip = |(path, (mode, _, content))| (path, (mode, content));
        nodes.into_iter().map(strip).collect()
    };
    assert!(strip(nodes(&root)) == strip(before));
    let fourth = store.make(&request("periodic"), at(4)).unwrap();
    assert!(fourth.files_read < first.files_read, "{fourth:?}");
    let one = Retention {
        count: 1,
        bytes: None,
    };
    store.prune(one).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
}

/// Waits until new files get a later time than all existing ones.
fn wait_for_the_clock(root: &Path) {
    let folder = RealFolder::open(root).unwrap();
    let path = Path::new(".checkpoints/clock");
    let time = || {
        let [.., changed] = folder.look(path).unwrap().unwrap().version;
        changed
    };
    folder.create(path, 0o600).unwrap();
    let first = time();
    while time() == first {
        folder.remove(path).unwrap();
        folder.create(path, 0o600).unwrap();
    }
    folder.remove(path).unwrap();
}
