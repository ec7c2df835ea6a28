//! A person permits servers to be downloaded, and their packages are kept (`PROV-1`, `SEC-3`).

use std::fs;

use goondan_tests::binaries::bin;
use goondan_tests::home::GDN;
use goondan_tests::log::message;
use goondan_tests::terminal::Terminal;
use goondan_tests::{Daemon, Home, mcp, needs, wait_until};

const QUESTION: &str = "Allow `packages`? [y/N]";

const READY: &str = "MCP server double 1.2";

/// Line of the runner when it downloads.
const DOWNLOADS: &str = "runner downloads";

/// Stands in for `npx`: downloads what its cache does not have, then starts the server.
const RUNNER: &str = r#"#!/bin/sh
package="$npm_config_cache/package"
if [ ! -e "$package" ]; then
    mkdir -p "$npm_config_cache" && echo 1 > "$package" || exit 9
    echo 'runner downloads' >&2
fi
echo "runner prefers its cache: ${npm_config_prefer_offline:-false}" >&2
exec 'SERVER'
"#;

fn home() -> Home {
    let home = Home::without_project();
    let server = mcp::program();
    let server = server.to_str().unwrap();
    home.write_program("project/npx", &RUNNER.replace("SERVER", server));
    write_command(&home, "docs");
    home
}

/// Writes the project, whose server has this argument.
fn write_command(home: &Home, argument: &str) {
    let connection = format!(
        "  sandbox: {{read: ['{}']}}\n  config: {{command: [./npx, -y, '@a/b', {argument}], env: {{HOME: {}}}}}",
        mcp::program().display(),
        // Lets the harness identify the server's processes.
        home.path().display()
    );
    home.write("project/goondan.yaml", &super::mcp::project(&connection));
}

/// Detail of the server in `gdn ps`. The egress of its sandbox is a connector, too.
pub(crate) fn detail(home: &Home) -> String {
    let ps = home.ps();
    let server = ps.iter().find(|process| process["name"] == "server");
    let detail = server.and_then(|server| server["detail"].as_str());
    detail.unwrap_or_default().to_owned()
}

fn is_refused(home: &Home) -> bool {
    detail(home).contains("gdn workspace permission allow packages --project")
}

fn downloads(daemon: &Daemon) -> usize {
    daemon.log().saying(DOWNLOADS).len()
}

fn downloads_once(daemon: &Daemon) {
    let log = daemon.log();
    log.wait_for("it downloads", |line| message(line) == DOWNLOADS);
    assert_eq!(downloads(daemon), 1);
}

fn start_from_cache(daemon: &Daemon) {
    daemon.log().wait_for("it starts from its cache", |line| {
        message(line) == "runner prefers its cache: true"
    });
}

#[test]
fn prov_1_downloaded_servers_need_permission_once_and_keep_packages() {
    if !needs::sandbox("full") {
        return;
    }
    let home = home();
    let daemon = Daemon::serving(&home);
    wait_until("it is refused", || is_refused(&home));
    let why = detail(&home);
    assert!(
        why.contains("would download `@a/b`") && why.contains("npm install @a/b"),
        "{why}"
    );
    let allow = "permission allow packages";
    home.gdn(&["ps"])
        .tells(&["servers are not downloaded", allow]);
    assert_eq!(downloads(&daemon), 0);

    let allowed = home.gdn(&["run", "--allow", "packages"]);
    allowed.tells(&["Allowed `packages`"]);
    wait_until("it is there", || detail(&home) == READY);
    assert_eq!(home.ask("a", "call echo hello"), "so: echo: hello");
    downloads_once(&daemon);
    let ps = home.gdn(&["ps"]).exits(0);
    assert!(!ps.stderr.contains(allow), "{}", ps.stderr);

    // The next start needs no registry.
    home.gdn(&["restart"]).exits(0);
    start_from_cache(&daemon);
    wait_until("it is there again", || detail(&home) == READY);
    drop(daemon.stop());
    let daemon = Daemon::serving(&home);
    start_from_cache(&daemon);
    wait_until("it is there again", || detail(&home) == READY);
    assert_eq!(downloads(&daemon), 0);

    // A command that no person has seen needs another decision, and gets another cache.
    write_command(&home, "secrets");
    drop(home.gdn(&["reload"]));
    wait_until("it is refused again", || is_refused(&home));
    home.gdn(&["permission", "allow", "packages"]).exits(0);
    wait_until("it is there with the new command", || {
        detail(&home) == READY
    });
    downloads_once(&daemon);
    let workspaces = fs::read_dir(home.state_root().join("caches/packages")).unwrap();
    let workspaces: Vec<_> = workspaces.map(|entry| entry.unwrap().path()).collect();
    let caches = fs::read_dir(workspaces[0].join("server")).unwrap();
    assert_eq!((workspaces.len(), caches.count()), (1, 1));

    home.gdn(&["permission", "deny", "packages"]).exits(0);
    wait_until("it is refused after the withdrawal", || is_refused(&home));
}

#[test]
fn sec_3_run_shows_the_downloaded_packages_and_asks_once() {
    if !needs::sandbox("full") {
        return;
    }
    let home = home();
    let daemon = Daemon::start(&home);
    let run = || Terminal::start(home.command(&bin(GDN), &["run"]), 200);
    let mut person = run();
    person.wait_for(QUESTION);
    // The whole command, except for the arguments of the server.
    for word in ["server:", "./npx", "@a/b"] {
        assert!(person.shown().contains(word), "{}", person.shown());
    }
    person.say("n");
    let (_, shown) = person.ends();
    assert!(shown.contains("Denied `packages`"), "{shown}");
    let (_, shown) = run().ends();
    assert!(!shown.contains(QUESTION), "{shown}");
    wait_until("it is refused", || is_refused(&home));
    let listed = home.gdn_json(&["permission", "list"]);
    assert_eq!(listed["decisions"][0]["permission"], "packages", "{listed}");
    assert_eq!(listed["decisions"][0]["allowed"], false, "{listed}");
    home.gdn(&["permission", "allow", "network"])
        .exits(2)
        .tells(&["has no use for the permission `network`"]);
    drop(daemon.stop());
}
