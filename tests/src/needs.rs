//! Programs that a test needs and that are not ours.
//!
//! A machine with a Rust toolchain and nothing else can run all tests. One that needs a program which
//! is not there is left out, and `tests/run` names it in its last lines:
//!
//! ```no_run
//! if !goondan_tests::needs::program("git") {
//!     return;
//! }
//! ```
//!
//! With [`REQUIRED_VAR`] set, as in CI, a missing program fails the test instead.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::Home;
use crate::projects::lab_at;

/// The variable that names the file in which tests that were left out are noted, a line each:
/// `test<TAB>why`.
pub const LEFT_OUT_VAR: &str = "GOONDAN_TEST_LEFT_OUT";

/// The variable that, set to anything, makes a missing program a failure.
pub const REQUIRED_VAR: &str = "GOONDAN_TEST_REQUIRE_PROGRAMS";

/// Whether a program is in `PATH`; if not, the calling test is noted as left out.
///
/// # Panics
///
/// If it is missing and [`REQUIRED_VAR`] is set.
#[must_use]
pub fn program(name: &str) -> bool {
    path_of(name).is_some() || left_out(&format!("there is no {name}"))
}

/// Whether a program is in `PATH` that not even CI has to have; if not, the calling test is noted as left out.
#[must_use]
pub fn optional_program(name: &str) -> bool {
    path_of(name).is_some()
        || note_left_out(&format!("there is no {name}, which nothing else needs"))
}

/// The variable that names the directory in which the npm package `@modelcontextprotocol/sdk` is installed.
pub const MCP_SDK_VAR: &str = "GOONDAN_TEST_MCP_SDK";

/// An example server of the SDK of MCP for JavaScript, which not even CI has to have; if it is not there, the calling
/// test is noted as left out.
#[must_use]
pub fn mcp_example(name: &str) -> Option<PathBuf> {
    const EXAMPLES: &str = "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server";
    let place = std::env::var_os(MCP_SDK_VAR);
    let script = place.map(|place| PathBuf::from(place).join(EXAMPLES).join(name));
    let script = script.filter(|script| script.is_file());
    if script.is_none() {
        note_left_out(&format!(
            "{MCP_SDK_VAR} names no directory with the npm package @modelcontextprotocol/sdk"
        ));
    }
    script
}

/// Chromium, where a page can be looked at in it, with node and what drives it; if not, the calling test is noted as
/// left out.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn browser() -> Option<PathBuf> {
    let driver = Path::new(STUDIO_WEB).join("node_modules/playwright-core");
    let is_there = program("node")
        && program("chromium")
        && (driver.is_dir() || left_out("`npm ci` was not run in gdn/studio/web"));
    is_there.then(|| path_of("chromium"))?
}

/// Where the sources of the page are, with the suites that look at it.
pub const STUDIO_WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gdn/studio/web");

/// Whether modules in JavaScript can be run; if not, the calling test is noted as left out.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn javascript() -> bool {
    javascript_runtime().is_some()
}

/// What modules in JavaScript are run by, and where it is; if nothing is there, the calling test is noted as left
/// out.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn javascript_runtime() -> Option<(&'static str, PathBuf)> {
    let mut runtimes = ["bun", "deno", "node"].into_iter();
    let found = runtimes.find_map(|name| Some((name, path_of(name)?)));
    if found.is_none() {
        left_out("nothing runs JavaScript: no bun, deno or node");
    }
    found
}

/// Whether modules in TypeScript can be run; if not, the calling test is noted as left out.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn typescript() -> bool {
    runs_typescript() || left_out("nothing runs TypeScript: no bun, deno, or node 22.6 or newer")
}

/// Whether modules in TypeScript can be run. For a test that has something to check either way.
#[must_use]
pub fn runs_typescript() -> bool {
    let strips_types = ["--experimental-strip-types", "--eval", "0"];
    let node = || Command::new("node").args(strips_types).output();
    path_of("bun").is_some()
        || path_of("deno").is_some()
        || node().is_ok_and(|ran| ran.status.success())
}

/// Whether sandboxes of a level can be made, by goondan's own word; if not, the calling test is noted as left out.
///
/// # Panics
///
/// As [`program`], and if goondan refuses a project for another reason than that.
#[must_use]
pub fn sandbox(level: &str) -> bool {
    let validated = Home::new(&lab_at(level)).gdn(&["validate"]);
    if validated.stderr.contains("E_CONFIG_NO_SANDBOX") {
        return left_out(&format!("this machine does not give the level `{level}`"));
    }
    validated.exits(0);
    true
}

/// True if a system of its own can be booted, with a real systemd; if not, the calling test is noted as left out.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn systemd() -> bool {
    if !cfg!(target_os = "linux") {
        return note_left_out("systemd is for Linux");
    }
    let places = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];
    program("systemd-nspawn")
        && program("dbus-daemon")
        && (places.iter().any(|place| Path::new(place).exists()) || left_out("there is no systemd"))
        && (nix::unistd::geteuid().is_root() || note_left_out("only root boots a system"))
}

/// Notes that the calling test, or part of it, is left out; returns false.
///
/// # Panics
///
/// If [`REQUIRED_VAR`] is set, or the note cannot be written.
pub fn left_out(why: &str) -> bool {
    assert!(
        std::env::var_os(REQUIRED_VAR).is_none(),
        "{why}; the README says what to install"
    );
    note_left_out(why)
}

/// As [`left_out`], for what not even CI has to have.
///
/// # Panics
///
/// If the note cannot be written.
pub fn note_left_out(why: &str) -> bool {
    let test = thread::current();
    let test = test.name().unwrap_or("a test");
    eprintln!("LEFT OUT: {test}: {why}");
    if let Some(path) = std::env::var_os(LEFT_OUT_VAR) {
        let file = OpenOptions::new().append(true).create(true).open(path);
        // One write, so that lines of several processes do not mix.
        file.unwrap()
            .write_all(format!("{test}\t{why}\n").as_bytes())
            .unwrap();
    }
    false
}

fn path_of(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| {
            let executable = |mode: u32| mode & 0o111 != 0;
            file.metadata()
                .is_ok_and(|it| it.is_file() && executable(it.permissions().mode()))
        })
}
