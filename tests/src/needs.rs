//! Third-party programs that tests need.
//!
//! All tests run on a machine with only a Rust toolchain. A test whose program is missing is skipped,
//! and `tests/run` lists it at the end:
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

/// Variable with the file that lists skipped tests, one per line: `test<TAB>why`.
pub const LEFT_OUT_VAR: &str = "GOONDAN_TEST_LEFT_OUT";

/// Variable that, if set, makes a missing program a failure.
pub const REQUIRED_VAR: &str = "GOONDAN_TEST_REQUIRE_PROGRAMS";

/// True if a program is in `PATH`; if not, the calling test is listed as skipped.
///
/// # Panics
///
/// If it is missing and [`REQUIRED_VAR`] is set.
#[must_use]
pub fn program(name: &str) -> bool {
    path_of(name).is_some() || left_out(&format!("there is no {name}"))
}

/// True if a program that is optional even in CI is in `PATH`; if not, the calling test is listed
/// as skipped.
#[must_use]
pub fn optional_program(name: &str) -> bool {
    path_of(name).is_some()
        || note_left_out(&format!("there is no {name}, which nothing else needs"))
}

/// Variable with the directory in which the npm package `@modelcontextprotocol/sdk` is installed.
pub const MCP_SDK_VAR: &str = "GOONDAN_TEST_MCP_SDK";

/// An example server of the MCP SDK for JavaScript, which is optional even in CI; if it is missing,
/// the calling test is listed as skipped.
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

/// Variable with the directory in which the npm package `@slack/bolt` is installed.
pub const SLACK_BOLT_VAR: &str = "GOONDAN_TEST_SLACK_BOLT";

/// The directory with Slack's own framework, which is optional even in CI; if it is missing, the
/// calling test is listed as skipped.
#[must_use]
pub fn slack_bolt() -> Option<PathBuf> {
    let place = std::env::var_os(SLACK_BOLT_VAR).map(PathBuf::from);
    let place = place.filter(|place| place.join("node_modules/@slack/bolt").is_dir());
    if place.is_none() {
        note_left_out(&format!(
            "{SLACK_BOLT_VAR} names no directory with the npm package @slack/bolt"
        ));
    }
    place.filter(|_| program("node"))
}

/// Variable with the directory in which the npm package `grammy` is installed.
pub const GRAMMY_VAR: &str = "GOONDAN_TEST_GRAMMY";

/// The directory with grammY, a framework for bots of Telegram, which is optional even in CI; if it
/// is missing, the calling test is listed as skipped.
#[must_use]
pub fn grammy() -> Option<PathBuf> {
    let place = std::env::var_os(GRAMMY_VAR).map(PathBuf::from);
    let place = place.filter(|place| place.join("node_modules/grammy").is_dir());
    if place.is_none() {
        note_left_out(&format!(
            "{GRAMMY_VAR} names no directory with the npm package grammy"
        ));
    }
    place.filter(|_| program("node"))
}

/// Variable with the directory of a Python virtual environment in which the package
/// `matrix-synapse` is installed.
pub const SYNAPSE_VAR: &str = "GOONDAN_TEST_SYNAPSE";

/// The Python interpreter that runs Synapse, which is optional even in CI; if it is missing, the
/// calling test is listed as skipped.
#[must_use]
pub fn synapse() -> Option<PathBuf> {
    let place = std::env::var_os(SYNAPSE_VAR).map(PathBuf::from);
    let place = place.filter(|place| place.join("bin/synapse_homeserver").is_file());
    if place.is_none() {
        note_left_out(&format!(
            "{SYNAPSE_VAR} names no virtual environment with the package matrix-synapse"
        ));
    }
    place.map(|place| place.join("bin/python"))
}

/// Path of Dovecot, which is not in the `PATH` of all users; if it is missing, the calling test is
/// listed as skipped.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn dovecot() -> Option<PathBuf> {
    server("dovecot")
}

/// Path of nginx; if it is missing, the calling test is listed as skipped.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn nginx() -> Option<PathBuf> {
    server("nginx")
}

/// Path of OpenSSH's server, if its client is installed, too; if not, the calling test is listed as
/// skipped.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn sshd() -> Option<PathBuf> {
    let has_client = program("ssh") && program("ssh-keygen");
    has_client.then(|| server("sshd"))?
}

/// Path of a server, which is not in the `PATH` of users.
fn server(name: &str) -> Option<PathBuf> {
    let usual = Some(Path::new("/usr/sbin").join(name));
    let found = path_of(name).or_else(|| usual.filter(|file| file.is_file()));
    if found.is_none() {
        left_out(&format!("there is no {name}"));
    }
    found
}

/// Path of Chromium, if pages can be tested in it with node and its driver; if not, the calling
/// test is listed as skipped.
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

/// Directory of the page's sources and its test suites.
pub const STUDIO_WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gdn/studio/web");

/// True if JavaScript modules can run; if not, the calling test is listed as skipped.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn javascript() -> bool {
    javascript_runtime().is_some()
}

/// Runtime for JavaScript modules, with its path; if there is none, the calling test is listed as
/// skipped.
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

/// True if TypeScript modules can run; if not, the calling test is listed as skipped.
///
/// # Panics
///
/// As [`program`].
#[must_use]
pub fn typescript() -> bool {
    runs_typescript() || left_out("nothing runs TypeScript: no bun, deno, or node 22.6 or newer")
}

/// True if TypeScript modules can run. For tests that check something in either case.
#[must_use]
pub fn runs_typescript() -> bool {
    let strips_types = ["--experimental-strip-types", "--eval", "0"];
    let node = || Command::new("node").args(strips_types).output();
    path_of("bun").is_some()
        || path_of("deno").is_some()
        || node().is_ok_and(|ran| ran.status.success())
}

/// True if goondan reports that it can create sandboxes of a level; if not, the calling test is
/// listed as skipped.
///
/// # Panics
///
/// As [`program`], and if goondan rejects a project for another reason.
#[must_use]
pub fn sandbox(level: &str) -> bool {
    let validated = Home::new(&lab_at(level)).gdn(&["validate"]);
    if validated.stderr.contains("E_CONFIG_NO_SANDBOX") {
        return left_out(&format!("this machine does not give the level `{level}`"));
    }
    validated.exits(0);
    true
}

/// True if a separate system with a real systemd can be booted; if not, the calling test is listed
/// as skipped.
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

/// Lists the calling test, or part of it, as skipped; returns false.
///
/// # Panics
///
/// If [`REQUIRED_VAR`] is set, or the list cannot be written.
pub fn left_out(why: &str) -> bool {
    assert!(
        std::env::var_os(REQUIRED_VAR).is_none(),
        "{why}; the README says what to install"
    );
    note_left_out(why)
}

/// As [`left_out`], for dependencies that are optional even in CI.
///
/// # Panics
///
/// If the list cannot be written.
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

pub(crate) fn path_of(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| {
            let executable = |mode: u32| mode & 0o111 != 0;
            file.metadata()
                .is_ok_and(|it| it.is_file() && executable(it.permissions().mode()))
        })
}
