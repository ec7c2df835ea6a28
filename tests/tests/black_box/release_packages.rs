//! Goal: the packages from `.ci/package` are complete, reproducible, and contain nothing specific
//! to the build machine (`REL-2`).
//!
//! Method: it packs stand-ins for the programs, but the real `gdn` generates pages and completions.
//! `GOONDAN_TEST_PACKAGE=1` builds the real programs instead, in the default target directory and
//! in another.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, CONNECTOR, CommandOutput, GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::{Home, needs};
use serde_json::Value;

const PROGRAMS: [&str; 6] = [
    GDN,
    ORCHESTRATOR,
    AGENT,
    CONNECTOR,
    "goondan-studio",
    "goondan-replica",
];

/// Builds the real programs, twice.
const KNOB: &str = "GOONDAN_TEST_PACKAGE";

/// Target of the archive, when nothing is built.
const TARGET: &str = "x86_64-unknown-linux-gnu";

fn repository() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    above.canonicalize().unwrap()
}

fn run(directory: &Path, program: &str, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(program);
    command.args(args).current_dir(directory);
    piped(command)
}

fn piped(mut command: Command) -> CommandOutput {
    use std::process::Stdio;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    RunningProgram::start(command).wait()
}

/// Creates stand-ins for the programs.
fn stand_ins(home: &Home, line_of_others: &str) -> PathBuf {
    for program in PROGRAMS {
        let line = match program {
            GDN => "exec \"$GOONDAN_TEST_GDN\" \"$@\"",
            _ => line_of_others,
        };
        let path = format!("programs/{program}");
        home.write_program(&path, &format!("#!/bin/sh\n{line}\n"));
    }
    home.path().join("programs")
}

fn package(out: &Path, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(repository().join(".ci/package"));
    command
        .args(["--out", out.to_str().unwrap()])
        .args(args)
        .env("GOONDAN_TEST_GDN", bin(GDN))
        .current_dir(out.parent().unwrap());
    piped(command)
}

fn one_that_ends(out: &Path, end: &str) -> PathBuf {
    let names = files(out);
    let name = names.iter().find(|name| name.ends_with(end));
    out.join(name.unwrap_or_else(|| panic!("no {end} among {names:?}")))
}

/// All files below a directory, by their paths in it.
fn files(directory: &Path) -> BTreeSet<String> {
    let listed = run(directory, "find", &[".", "-type", "f", "-printf", "%P\\n"]);
    listed.exits(0).stdout.lines().map(str::to_owned).collect()
}

fn check_archive(out: &Path, room: &Path) {
    let archive = one_that_ends(out, ".tar.gz");
    let archive = archive.to_str().unwrap();
    let top = Path::new(archive).file_name().unwrap().to_str().unwrap();
    let top = top.strip_suffix(".tar.gz").unwrap();
    let listed = run(room, "tar", &["-tvzf", archive]).exits(0).stdout;
    for line in listed.lines() {
        let path = line.split_whitespace().last().unwrap();
        assert!(path.starts_with(&format!("{top}/")), "{line}");
        assert!(!path.contains(".."), "{line}");
        // Neither links nor other owners, and no write permission for others.
        let modes = ["drwxr-xr-x 0/0", "-rwxr-xr-x 0/0", "-rw-r--r-- 0/0"];
        assert!(modes.iter().any(|mode| line.starts_with(mode)), "{line}");
    }
    run(room, "tar", &["-xzf", archive]).exits(0);
    let unpacked = room.join(top);
    run(
        &unpacked,
        "sha256sum",
        &["--check", "--strict", "--quiet", "SHA256SUMS"],
    )
    .exits(0);
    let sums = fs::read_to_string(unpacked.join("SHA256SUMS")).unwrap();
    let summed: BTreeSet<String> = sums
        .lines()
        .map(|line| line.split_once("  ").unwrap().1.to_owned())
        .collect();
    // An example is copied and run unchanged.
    let agent = unpacked.join("share/doc/goondan/docs/examples/task/agent.sh");
    let mode = fs::metadata(&agent).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "{}", agent.display());
    let mut all = files(&unpacked);
    assert!(all.remove("SHA256SUMS"));
    assert_eq!(summed, all);
    let wanted = [
        "share/man/man1/gdn-demo-kill.1",
        "share/man/man8/goondan-orchestrator.8",
        "share/bash-completion/completions/gdn",
        "share/zsh/site-functions/_gdn",
        "share/fish/vendor_completions.d/gdn.fish",
        "share/doc/goondan/LICENSE-MIT",
        "share/doc/goondan/LICENSE-APACHE",
        "share/doc/goondan/docs/packaging.md",
        "share/doc/goondan/systemd/goondan.service",
        "share/doc/goondan/sbom.cdx.json",
    ];
    for path in PROGRAMS.iter().chain(&wanted) {
        assert!(all.contains(*path), "no {path} in {all:#?}");
    }
}

fn check_deb(out: &Path, room: &Path) {
    let deb = one_that_ends(out, ".deb");
    let deb = deb.to_str().unwrap();
    let tree = room.join("deb");
    run(room, "dpkg-deb", &["-R", deb, tree.to_str().unwrap()]).exits(0);
    // No scripts and no configuration files: the package starts, stops and asks nothing.
    let control: BTreeSet<String> = files(&tree.join("DEBIAN"));
    assert_eq!(control, ["control", "md5sums"].map(str::to_owned).into());
    run(
        &tree,
        "md5sum",
        &["--check", "--strict", "--quiet", "DEBIAN/md5sums"],
    )
    .exits(0);
    let all = files(&tree);
    for program in PROGRAMS {
        assert!(all.contains(&format!("usr/bin/{program}")), "{all:#?}");
    }
    let tops: BTreeSet<&str> = all
        .iter()
        .map(|path| path.split('/').next().unwrap())
        .collect();
    assert_eq!(tops, BTreeSet::from(["DEBIAN", "usr"]));
    let unit = fs::read_to_string(tree.join("usr/lib/systemd/user/goondan.service")).unwrap();
    assert!(
        unit.contains("\nExecStart=/usr/bin/goondan-orchestrator "),
        "{unit}"
    );
    assert!(!unit.contains(".cargo"), "{unit}");
    let fields = run(room, "dpkg-deb", &["-f", deb]).exits(0).stdout;
    assert!(fields.contains("\nDepends: libc6"), "{fields}");
}

#[test]
fn rel_2_packages_have_expected_files_and_are_reproducible() {
    if !needs::program("git") || !needs::program("python3") || !needs::optional_program("dpkg-deb")
    {
        return;
    }
    let home = Home::without_project();
    let room = home.path();
    let (once, again) = (room.join("once"), room.join("again"));
    if std::env::var_os(KNOB).is_some() {
        package(&once, &[]).exits(0);
        let clone = room.join("clone");
        let from = repository();
        run(
            room,
            "git",
            &["clone", "-q", from.to_str().unwrap(), "clone"],
        )
        .exits(0);
        run(&clone, ".ci/package", &["--out", again.to_str().unwrap()]).exits(0);
    } else {
        let programs = stand_ins(&home, "echo stand-in");
        let args = ["--target", TARGET, "--programs", programs.to_str().unwrap()];
        package(&once, &args).exits(0);
        package(&again, &args).exits(0);
    }
    assert_eq!(files(&once), files(&again));
    for name in files(&once) {
        let [one, other] = [&once, &again].map(|out| fs::read(out.join(&name)).unwrap());
        assert!(one == other, "{name} is not the same the second time");
    }
    check_archive(&once, room);
    check_deb(&once, room);
    check_npm(&once, room);
    check_wheel(&once, room);
}

/// Text of a file in an archive.
fn unpacked(room: &Path, program: &str, args: &[&str]) -> String {
    run(room, program, args).exits(0).stdout
}

fn check_npm(out: &Path, room: &Path) {
    let file = |start: &str| {
        let names = files(&out.join("npm"));
        let is_it = |name: &&String| {
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let name = names
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{names:?}"));
        out.join("npm").join(name).to_str().unwrap().to_owned()
    };
    let manifest = |archive: &str| -> Value {
        let text = unpacked(room, "tar", &["-xOzf", archive, "package/package.json"]);
        serde_json::from_str(&text).unwrap()
    };
    let main = manifest(&file("goondan-gdn-"));
    let own = file("goondan-gdn-linux-x64-");
    let platform = manifest(&own);
    assert_eq!(
        main["optionalDependencies"]["@goondan/gdn-linux-x64"],
        platform["version"]
    );
    assert_eq!(
        (&platform["os"][0], &platform["cpu"][0]),
        (&"linux".into(), &"x64".into())
    );
    // Nothing runs during an installation.
    for manifest in [&main, &platform, &manifest(&file("goondan-types-"))] {
        assert_eq!(manifest.get("scripts"), None, "{manifest:#}");
        assert_eq!(manifest.get("dependencies"), None, "{manifest:#}");
    }
    let listed = unpacked(room, "tar", &["-tvzf", &own]);
    for program in PROGRAMS {
        let is_program = |line: &str| {
            line.starts_with("-rwxr-xr-x 0/0") && line.ends_with(&format!("package/bin/{program}"))
        };
        assert!(listed.lines().any(is_program), "{program}: {listed}");
    }
}

/// Installs the wheel's files as a program that reads its record would, and checks their digests.
const CHECK_WHEEL: &str = r#"
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
record = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")][0]
rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
assert sorted(row[0] for row in rows) == sorted(wheel.namelist())
for path, digest, size in rows:
    if path == record:
        continue
    content = wheel.read(path)
    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert digest == "sha256=" + found and int(size) == len(content), path
    if path.startswith("goondan/bin/"):
        assert wheel.getinfo(path).external_attr >> 16 == 0o100755, path
        print(path)
"#;

fn check_wheel(out: &Path, room: &Path) {
    let wheel = one_that_ends(out, ".whl");
    let wheel = wheel.to_str().unwrap();
    assert!(wheel.ends_with("-manylinux_2_17_x86_64.whl") || std::env::var_os(KNOB).is_some());
    let programs = unpacked(room, "python3", &["-c", CHECK_WHEEL, wheel]);
    let programs: BTreeSet<&str> = programs.lines().collect();
    let wanted = PROGRAMS.map(|program| format!("goondan/bin/{program}"));
    assert_eq!(
        programs,
        wanted.iter().map(String::as_str).collect::<BTreeSet<_>>()
    );
}

#[test]
fn rel_2_program_containing_its_build_path_is_not_packaged() {
    if !needs::program("git") || !needs::program("python3") {
        return;
    }
    let home = Home::without_project();
    let (place, out) = (repository(), home.path().join("out"));
    let programs = stand_ins(&home, &format!("echo {}/src/main.rs", place.display()));
    let args = ["--target", TARGET, "--programs", programs.to_str().unwrap()];
    let refused = package(&out, &args).exits(1);
    refused.tells(&["goondan-orchestrator", place.to_str().unwrap()]);
    assert_eq!(files(&out), BTreeSet::new());
}
