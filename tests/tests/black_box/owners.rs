//! Whose the state root is (`SEC-4`).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn sec_4_no_daemon_starts_on_files_that_others_can_write() {
    let home = Home::new(LAB);
    drop(Daemon::start(&home));
    let root = home.state_root();
    for path in [root.clone(), root.join("run"), root.join("system")] {
        let mode = fs::metadata(&path).unwrap().mode() & 0o777;
        set_mode(&path, 0o770);
        let hint = format!("chmod go-w '{}'", path.display());
        home.gdn(&["run"])
            .exits(13)
            .tells(&["can be written by other users", &hint]);
        home.gdn(&["--json", "doctor"])
            .exits(16)
            .prints(&["mode 770"]);
        set_mode(&path, mode);
    }
    home.gdn(&["run"]).exits(0);
    home.gdn(&["shutdown"]).exits(0);
}

#[test]
fn sec_4_no_daemon_starts_on_files_of_another_user() {
    let home = Home::new(LAB);
    drop(Daemon::start(&home));
    let run = home.state_root().join("run");
    if chown(&run, Some(65534), None).is_err() {
        // Only root gives files away.
        return;
    }
    let refused = home.gdn(&["run"]).exits(13);
    refused.tells(&["belongs to user id 65534", "sudo chown -R"]);
    home.gdn(&["--json", "doctor"])
        .exits(16)
        .prints(&["belongs to user id 65534"]);
}
