//! Owner of the state root, and a daemon with a missing socket (`ROOT-11`, `SEC-4`, `CTL-1`).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, wait_until};

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
        // Only root can change owners.
        return;
    }
    let refused = home.gdn(&["run"]).exits(13);
    refused.tells(&["belongs to user id 65534", "sudo chown -R"]);
    home.gdn(&["--json", "doctor"])
        .exits(16)
        .prints(&["belongs to user id 65534"]);
}

#[test]
fn ctl_1_a_removed_socket_is_made_again_and_clients_wait_for_it() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let (pid, run) = (daemon.pid(), home.state_root().join("run"));
    fs::remove_file(run.join("orchestrator.sock")).unwrap();
    assert_eq!(home.gdn_json(&["status"])["pid"], pid);
    home.gdn(&["run"]).exits(0);
    fs::remove_dir_all(&run).unwrap();
    assert_eq!(home.gdn_json(&["status"])["pid"], pid);
    let written = fs::read_to_string(run.join("orchestrator.pid")).unwrap();
    assert_eq!(written.trim(), pid.to_string());
    assert_eq!(home.ask("main", "echo here"), "here");
    home.gdn(&["shutdown"])
        .exits(0)
        .prints(&[&format!("Stopped the daemon, pid {pid}")]);
    assert!(home.running(ORCHESTRATOR).is_empty());
    drop(daemon.wait());
}

#[test]
fn ctl_1_a_daemon_that_cannot_listen_is_named_and_stopped() {
    let home = Home::new(LAB);
    let daemon = Daemon::serving(&home);
    let pid = daemon.pid();
    let socket = home.state_root().join("run/orchestrator.sock");
    // Unlike a socket, a directory at its path cannot be removed.
    fs::remove_file(&socket).unwrap();
    fs::create_dir_all(socket.join("in the way")).unwrap();
    let text = format!("pid {pid},");
    for command in [&["status"][..], &["run"]] {
        home.gdn(command)
            .exits(11)
            .tells(&[&text, "does not listen", "`gdn daemon shutdown`"]);
    }
    home.gdn(&["shutdown"])
        .exits(0)
        .prints(&[&format!("Stopped the daemon, pid {pid}")]);
    wait_until("the daemon is gone", || {
        home.running(ORCHESTRATOR).is_empty()
    });
    drop(daemon.wait());
}
