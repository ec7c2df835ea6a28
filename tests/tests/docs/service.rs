//! The service file is valid for systemd.

use std::process::Command;

use goondan_tests::needs;

use crate::pages::repository;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a fixture is not state of goondan"
)]
fn the_service_file_has_nothing_that_systemd_does_not_know() {
    if !needs::program("systemd-analyze") {
        return;
    }
    let unit = std::fs::read_to_string(repository().join("systemd/goondan.service")).unwrap();
    // The path of the daemon does not matter for the syntax check.
    let installed = "%h/.cargo/bin/goondan-orchestrator";
    assert!(unit.contains(installed));
    let unit = unit.replace(installed, "/bin/sh");
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("goondan.service");
    std::fs::write(&path, unit).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--user", "--man=no"])
        .arg(&path)
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{printed}");
    // systemd ignores unknown settings, and reports them with the file's line.
    assert!(!printed.contains("goondan.service:"), "{printed}");
}
