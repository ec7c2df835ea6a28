//! Runs the startup script of a node's container in `docs/examples/two-nodes`, without the
//! container.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use goondan_tests::binaries::bin_dir;
use goondan_tests::{Daemon, Home, processes};
use serde_json::{Value, json};

use crate::pages::repository;

const EXAMPLE: &str = "docs/examples/two-nodes";
/// An unreachable server: the directory of its socket does not exist. Its password occurs nowhere
/// else.
const LOG_URL: &str = "postgres://goondan:hunter2@/goondan?host=/nowhere";

/// Startup command of the container of node `a`.
fn start(home: &Home) -> Command {
    let script = repository().join(EXAMPLE).join("node/start.sh");
    let mut command = home.command(Path::new("sh"), &[script.to_str().unwrap()]);
    let mut path = bin_dir().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command
        .env("PATH", path)
        .env("NODE", "a")
        .env("LOG_URL", LOG_URL);
    command
}

#[test]
fn a_node_writes_its_configuration_once_and_becomes_the_daemon() {
    let home = Home::without_project();
    std::fs::create_dir(home.state_root()).unwrap();
    let path = home.state_root().join("config.json");
    let written = || std::fs::read_to_string(&path).unwrap();

    let daemon = Daemon::start_command(&home, start(&home));
    let config: Value = serde_json::from_str(&written()).unwrap();
    let replication = json!({"node": "a", "postgres": LOG_URL});
    assert_eq!(config, json!({ "replication": replication }));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(home.gdn_json(&["node", "list"])["node"], "a");
    let environment = processes::environment(daemon.pid());
    assert!(!environment.contains("hunter2"), "{environment}");
    drop(daemon.stop());

    let changed = written().replace("\"a\"", "\"b\"");
    home.write("state/config.json", &changed);
    let daemon = Daemon::start_command(&home, start(&home));
    assert_eq!(home.gdn_json(&["node", "list"])["node"], "b");
    assert_eq!(written(), changed);
    drop(daemon.stop());
}

#[test]
fn node_without_its_environment_does_not_start() {
    for unset in ["NODE", "LOG_URL"] {
        let home = Home::without_project();
        std::fs::create_dir(home.state_root()).unwrap();
        let ran = start(&home).env_remove(unset).output().unwrap();
        assert!(!ran.status.success(), "{ran:?}");
        assert!(!home.state_root().join("config.json").exists());
    }
}

#[test]
fn the_files_that_containers_get_are_there() {
    let dir = repository().join(EXAMPLE);
    let compose = std::fs::read_to_string(dir.join("compose.yaml")).unwrap();
    let mounts = compose.lines().map(str::trim);
    let mounts = mounts.filter_map(|line| line.strip_prefix("- ./")?.split(':').next());
    let mounts: BTreeSet<_> = mounts.collect();
    assert!(mounts.contains("node/start.sh"), "{mounts:?}");
    for file in mounts {
        assert!(dir.join(file).is_file(), "{file}");
    }
}
