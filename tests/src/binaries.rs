//! Location of the binaries under test.
//!
//! Cargo builds a package's binaries only for that package's own tests, so the harness builds them:
//! once per test run, with the toolchain, profile and target directory of the tests. Without
//! changes this is fast. They are built together with the examples, which gives them the dependency
//! features of the tests, so that no dependency is built a second time after
//! `cargo test --workspace`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Environment variable with a directory of binaries to test instead, such as those of a release.
pub const BIN_DIR_VAR: &str = "GOONDAN_TEST_BIN_DIR";

/// Distinguishes the processes of one `cargo nextest` run from those of another.
const RUN_ID_VAR: &str = "NEXTEST_RUN_ID";

/// Directory of the binaries under test.
///
/// # Panics
///
/// If the build fails, with the command.
#[must_use]
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| match std::env::var_os(BIN_DIR_VAR) {
        Some(dir) => fs::canonicalize(dir).unwrap(),
        None => {
            let dir = own_dir();
            build_once(&dir);
            dir
        }
    })
}

/// One binary under test.
#[must_use]
pub fn bin(name: &str) -> PathBuf {
    let path = bin_dir().join(name);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

/// An example of this package. It is built with its tests, and with the binaries in any case.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    // With other binaries under test, only the examples that cargo built with the tests are used.
    let dir = match std::env::var_os(BIN_DIR_VAR) {
        Some(_) => own_dir(),
        None => bin_dir().to_owned(),
    };
    dir.join("examples").join(name)
}

/// The directory of the profile the tests were built with: the test itself is in its `deps`.
fn own_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let dir = test.ancestors().nth(2).unwrap();
    dir.to_owned()
}

/// Builds the binaries unless a process of the same test run has.
fn build_once(dir: &Path) {
    let Ok(run_id) = std::env::var(RUN_ID_VAR) else {
        return build(dir);
    };
    let marker = dir.join(".goondan-tests-run");
    let lock = File::create(dir.join(".goondan-tests-lock")).unwrap();
    lock.lock().unwrap();
    if fs::read_to_string(&marker).ok().as_ref() != Some(&run_id) {
        build(dir);
        fs::write(&marker, run_id).unwrap();
    }
}

fn build(dir: &Path) {
    let profile = match dir.file_name().unwrap().to_str().unwrap() {
        // The profile of the tests, so that nothing is compiled twice.
        "debug" => "test",
        name => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--workspace",
            "--bins",
            "--examples",
            "--quiet",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(dir.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // Variables that cargo sets for a package's tests: build scripts of dependencies that read
    // these would run again here, and again in the next build.
    let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_", "OUT_DIR"];
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if of_package.iter().any(|prefix| shown.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    let built = command.output().unwrap();
    assert!(
        built.status.success(),
        "the binaries under test cannot be built; try it by hand: {command:?}\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
}
