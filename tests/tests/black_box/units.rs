//! The service under a real systemd, in a separate system (`REL-1`).

use std::path::Path;
use std::process::Command;

use goondan_tests::{binaries, needs};

#[test]
fn rel_1_agents_proposals_and_tasks_work_under_each_unit() {
    if !needs::systemd() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let gdn = binaries::bin("gdn");
    let tried = Command::new(root.join(".ci/try-units"))
        .arg(gdn.parent().unwrap())
        .output()
        .unwrap();
    assert!(
        tried.status.success(),
        "{}{}",
        String::from_utf8_lossy(&tried.stdout),
        String::from_utf8_lossy(&tried.stderr)
    );
}
