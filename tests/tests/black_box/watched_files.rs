//! Files next to `goondan.yaml` that are edited while in use, and a system that cannot watch files
//! (`SUP-8`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::ORCHESTRATOR;
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, needs, wait_until};
use serde_json::{Value, json};

/// [`LAB`] with a tool for its worker and a connection, both of which are shell scripts.
fn lab() -> String {
    let rules = "      - when: {user: '^count$', step: 1}
        call: [{tool: own__run}]
      - when: {user: '^count$'}
        say: \"${result}\"
";
    let lab = LAB
        .replacen("    rules:\n", &format!("    rules:\n{rules}"), 1)
        .replacen("  tools:\n", "  tools:\n    - Tool/own\n", 1);
    format!(
        "{lab}---
apiVersion: goondan.ai/v1
kind: Tool
metadata: {{name: own}}
spec:
  entry: tools/own
  exports: [{{name: run, description: Counts., parameters: {{type: object}}}}]
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {{name: own}}
spec: {{entry: connectors/own}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: own}}
spec: {{connectorRef: Connector/own}}
"
    )
}

fn tool(says: &str) -> String {
    format!(
        "#!/bin/sh
echo ready
while read -r line; do
  id=${{line#*\\\"id\\\":}}
  echo \"{{\\\"type\\\":\\\"result\\\",\\\"id\\\":${{id%%,*}},\\\"output\\\":\\\"{says}\\\"}}\"
done
"
    )
}

fn connector(says: &str) -> String {
    format!(
        "#!/bin/sh
read -r start
echo '{{\"type\":\"status\",\"ready\":true,\"detail\":\"{says}\"}}'
read -r rest
"
    )
}

/// Saves a script atomically like careful editors, and keeps its mode.
fn save(home: &Home, path: &str, text: &str) {
    home.write("draft", text);
    let draft = home.path().join("draft");
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
    let path = home.project().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    rename(&draft, &path);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person's changes to a project are not state of goondan"
)]
fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

fn home() -> Home {
    let home = Home::new(&lab());
    save(&home, "tools/own", &tool("one"));
    save(&home, "connectors/own", &connector("first"));
    home
}

fn watch(home: &Home, how: &str) {
    home.gdn(&["run", "--watch"]).exits(0);
    let is_watched = || home.gdn_json(&["status"])["workspaces"][0]["watch"] == how;
    wait_until("the project is watched", is_watched);
}

fn process(home: &Home, name: &str) -> Value {
    let mut processes = home.ps().into_iter();
    let found = processes.find(|process| process["name"] == name);
    found.unwrap_or_default()
}

fn wait_for_detail(home: &Home, detail: &str) {
    wait_until(detail, || process(home, "own")["detail"] == detail);
}

#[test]
fn sup_8_edited_program_or_module_restarts_only_its_processes() {
    let home = home();
    let daemon = Daemon::start(&home);
    watch(&home, "events");
    assert_eq!(home.ask("main", "count"), "one");
    home.gdn(&["send", "--agent", "helper", "--instance", "h", "echo x"])
        .exits(0);
    wait_for_detail(&home, "first");
    let pids = |names: [&str; 4]| names.map(|name| process(&home, name)["pid"].clone());
    let all = ["own", "worker", "helper", "hook"];
    let [own, worker, helper, hook] = pids(all);

    let seen = daemon.log().lines().len();
    save(&home, "connectors/own", &connector("second"));
    let line = daemon.log().wait_for_after(seen, "it is taken up", |line| {
        message(line) == "configuration changed"
    });
    assert_eq!(line["changes"], json!(["Connection/own changed"]));
    wait_for_detail(&home, "second");
    let [new_own, same_worker, same_helper, same_hook] = pids(all);
    assert_ne!(new_own, own);
    assert_eq!(
        [&same_worker, &same_helper, &same_hook],
        [&worker, &helper, &hook]
    );

    let seen = daemon.log().lines().len();
    save(&home, "tools/own", &tool("two"));
    let line = daemon.log().wait_for_after(seen, "it is taken up", |line| {
        message(line) == "configuration changed"
    });
    assert_eq!(line["changes"], json!(["Agent/worker changed"]));
    assert_eq!(home.ask("main", "count"), "two");
    let [same_own, new_worker, same_helper, same_hook] = pids(all);
    assert_ne!(new_worker, worker);
    assert_eq!(
        [&same_own, &same_helper, &same_hook],
        [&new_own, &helper, &hook]
    );
}

#[test]
fn sup_8_edited_module_import_restarts_processes_of_the_module() {
    if !needs::javascript() {
        return;
    }
    let home = Home::new(&lab().replace("entry: tools/own", "entry: tools/own.mjs"));
    save(&home, "connectors/own", &connector("first"));
    save(
        &home,
        "tools/own.mjs",
        "import { says } from \"../shared/words.mjs\";\nexport const handlers = { run: () => says };",
    );
    save(
        &home,
        "shared/words.mjs",
        "export { says } from './says.mjs'",
    );
    save(&home, "shared/says.mjs", "export const says = 'one'");
    let daemon = Daemon::start(&home);
    watch(&home, "events");
    assert_eq!(home.ask("main", "count"), "one");
    home.gdn(&["send", "--agent", "helper", "--instance", "h", "echo x"])
        .exits(0);
    let helper = process(&home, "helper")["pid"].clone();
    let seen = daemon.log().lines().len();
    save(&home, "shared/says.mjs", "export const says = 'two'");
    let line = daemon.log().wait_for_after(seen, "it is taken up", |line| {
        message(line) == "configuration changed"
    });
    assert_eq!(line["changes"], json!(["Agent/worker changed"]));
    assert_eq!(home.ask("main", "count"), "two");
    assert_eq!(process(&home, "helper")["pid"], helper);
}

#[test]
fn sup_8_an_edit_is_found_when_the_system_lost_count() {
    let home = home();
    let daemon = Daemon::start(&home);
    watch(&home, "events");
    wait_for_detail(&home, "first");
    // While the daemon is stopped, more changes occur than the system's queue can hold.
    let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
    let kept: usize = kept.unwrap_or_default().trim().parse().unwrap_or(16_384);
    processes::signal(daemon.pid(), Signal::SIGSTOP);
    home.write("project/noise.1", "");
    let noise = ["noise.1", "noise.2"].map(|name| home.project().join(name));
    for number in 0..kept {
        rename(&noise[number % 2], &noise[(number + 1) % 2]);
    }
    save(&home, "connectors/own", &connector("second"));
    processes::signal(daemon.pid(), Signal::SIGCONT);
    wait_for_detail(&home, "second");
    if cfg!(target_os = "linux") {
        daemon.log().wait_for("the loss is reported", |line| {
            message(line).starts_with("too many file changes to report")
        });
    }
}

#[test]
fn sup_8_files_are_compared_where_inotify_is_unavailable() {
    let home = home();
    let script = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$1\"";
    let unshare = |command: &str, argument: &Path| {
        let mut unshare = home.command(
            Path::new("unshare"),
            &["--user", "--map-root-user", "sh", "-c", command, "sh"],
        );
        unshare.arg(argument);
        unshare
    };
    let tried = unshare(script, Path::new("true")).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!(
            "NOT RUN: nobody but the system's owner can take inotify away from a process here"
        );
        return;
    }
    let daemon = Daemon::start_command(&home, unshare(script, &bin(ORCHESTRATOR)));
    watch(&home, "polling");
    daemon.log().wait_for("it is reported", |line| {
        message(line) == "no file change notifications; comparing files instead"
    });
    home.gdn(&["status"]).exits(0).prints(&["polling"]);
    wait_for_detail(&home, "first");
    save(&home, "connectors/own", &connector("second"));
    wait_for_detail(&home, "second");
}
