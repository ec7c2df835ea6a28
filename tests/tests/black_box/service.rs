//! `gdn daemon service`, with fake service managers that behave like the real ones and record their calls
//! (`REL-1`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use goondan_tests::home::{CommandOutput, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::{Daemon, Home, needs};
use serde_json::{Value, json};

/// Common part of both managers: they start the program in the file, and stop it.
const COMMON: &str = r#"#!/bin/sh
dir="$HOME/manager"
mkdir -p "$dir"
echo "$(basename "$0") $*" >> "$dir/calls"
runs() { [ -f "$dir/pid" ] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; }
start() {
  runs && return
  sh -c "$1" > "$dir/log" 2>&1 < /dev/null &
  echo $! > "$dir/pid"
}
stop() {
  runs && kill "$(cat "$dir/pid")"
  while runs; do sleep 0.05; done
  rm -f "$dir/pid"
}
"#;

const SYSTEMCTL: &str = r#"
scope="$1"
shift
unit="$HOME/.config/systemd/user/goondan.service"
case "$scope $1" in
"--system show")
  if [ -f "$dir/of-the-machine" ]; then
    printf 'LoadState=loaded\nActiveState=active\nMainPID=1\nFragmentPath=/etc/systemd/system/goondan.service\n'
  else
    printf 'LoadState=not-found\nActiveState=inactive\nMainPID=0\nFragmentPath=\n'
  fi ;;
"--user show")
  if [ -f "$dir/loaded" ]; then
    printf 'LoadState=loaded\nFragmentPath=%s\n' "$unit"
  else
    printf 'LoadState=not-found\nFragmentPath=\n'
  fi
  if [ -f "$dir/enabled" ]; then echo UnitFileState=enabled; else echo UnitFileState=disabled; fi
  if runs; then
    printf 'ActiveState=active\nMainPID=%s\n' "$(cat "$dir/pid")"
  elif [ -f "$dir/pid" ]; then
    printf 'ActiveState=failed\nMainPID=0\n'
  else
    printf 'ActiveState=inactive\nMainPID=0\n'
  fi ;;
"--user daemon-reload")
  if [ -f "$unit" ]; then cp "$unit" "$dir/loaded"; else rm -f "$dir/loaded"; fi ;;
"--user enable")
  if [ -f "$dir/refuses" ]; then echo "Job for goondan.service failed." >&2; exit 1; fi
  touch "$dir/enabled"
  command=$(sed -n 's/^ExecStart=//p' "$dir/loaded" | sed "s|%h|$HOME|g")
  if [ -f "$dir/dies" ]; then command=false; fi
  start "exec $command" ;;
"--user disable")
  rm -f "$dir/enabled"
  stop ;;
"--user start")
  # One that has just ended may not have been waited for yet.
  while runs; do sleep 0.05; done
  command=$(sed -n 's/^ExecStart=//p' "$dir/loaded" | sed "s|%h|$HOME|g")
  start "exec $command"
  # As a service does that tells when it is ready: the command ends with that, or with the service.
  while runs && ! [ -S "$HOME/state/run/orchestrator.sock" ]; do sleep 0.05; done
  if ! runs; then echo "Job for goondan.service failed." >&2; exit 1; fi ;;
"--user stop") stop ;;
"--user reset-failed") ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
"#;

const LAUNCHCTL: &str = r#"
case "$1" in
print)
  if ! [ -f "$dir/loaded" ]; then echo "Could not find service" >&2; exit 113; fi
  printf '%s = {\n\tpath = %s\n\tstate = running\n\tpid = %s\n}\n' "$2" "$(cat "$dir/loaded")" "$(cat "$dir/pid")" ;;
bootstrap)
  echo "$3" > "$dir/loaded"
  start "$(sed -n 's|.*<string>\(exec .*\)</string>|\1|p' "$3")" ;;
bootout)
  stop
  rm -f "$dir/loaded" ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
"#;

/// A home with fake managers.
fn home() -> Home {
    let home = Home::new(LAB);
    write_managers(&home);
    home
}

/// Creates fake managers of a home, in `managers`.
pub(crate) fn write_managers(home: &Home) {
    for (name, text) in [("systemctl", SYSTEMCTL), ("launchctl", LAUNCHCTL)] {
        home.write_program(&format!("managers/{name}"), &format!("{COMMON}{text}"));
    }
}

fn gdn(home: &Home, args: &[&str]) -> CommandOutput {
    let mut command = home.command(&goondan_tests::binaries::bin("gdn"), args);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}/managers:{path}", home.path().display()));
    RunningProgram::start(command).wait()
}

/// Calls to the managers since the last time.
fn calls(home: &Home) -> Vec<String> {
    let file = home.path().join("manager/calls");
    let text = fs::read_to_string(&file).unwrap_or_default();
    drop(fs::remove_file(file));
    let told = text
        .lines()
        .filter(|line| !line.contains(" show ") && !line.contains(" print "));
    told.map(str::to_owned).collect()
}

fn unit(home: &Home) -> PathBuf {
    home.path().join(".config/systemd/user/goondan.service")
}

fn status(home: &Home, args: &[&str]) -> Value {
    gdn(home, &[&["--json", "service", "status"], args].concat()).json()
}

#[test]
fn rel_1_service_installs_runs_and_is_removed_but_state_is_kept() {
    let home = home();
    let printed = gdn(&home, &["service", "install", "--print"])
        .exits(0)
        .stdout;
    assert!(printed.contains("--state-root %h/state"), "{printed}");
    gdn(&home, &["service", "status"])
        .exits(5)
        .tells(&["hint: install it: `gdn daemon service install`"]);
    assert_eq!((calls(&home), unit(&home).exists()), (vec![], false));

    let installed = gdn(&home, &["service", "install"]).exits(0);
    let told = [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now goondan.service",
    ];
    assert_eq!(calls(&home), told);
    assert_eq!(fs::read_to_string(unit(&home)).unwrap(), printed);
    let pid = home.gdn_json(&["status"])["pid"].clone();
    installed.prints(&[&format!("The service runs: pid {pid}")]);
    let shown = status(&home, &[]);
    assert_eq!(
        (
            &shown["pid"],
            &shown["installed"],
            &shown["enabled"],
            &shown["active"],
            &shown["differs"]
        ),
        (
            &pid,
            &json!(true),
            &json!("enabled"),
            &json!("active"),
            &json!(false)
        )
    );
    assert_eq!(
        shown["version"],
        home.gdn_json(&["status"])["version"]["goondan"]
    );
    gdn(&home, &["service", "status"])
        .exits(0)
        .prints(&["up to date"]);

    // A repetition changes nothing.
    gdn(&home, &["service", "install"])
        .exits(0)
        .prints(&[&pid.to_string()]);

    let removed = gdn(&home, &["service", "remove"]).exits(0);
    removed.tells(&["stay in the state directory"]);
    assert!(calls(&home).contains(&"systemctl --user disable --now goondan.service".to_owned()));
    assert!(!unit(&home).exists() && home.running(ORCHESTRATOR).is_empty());
    assert!(home.state_root().join("system/format.json").exists());
    gdn(&home, &["service", "remove"])
        .exits(0)
        .prints(&["The service is not installed"]);
    assert_eq!(calls(&home), Vec::<String>::new());
    gdn(&home, &["service", "status"]).exits(5);
}

#[test]
fn rel_1_changed_service_file_is_reported_and_replaced_by_force() {
    let home = home();
    gdn(&home, &["service", "install"]).exits(0);
    let ours = fs::read_to_string(unit(&home)).unwrap();
    let changed = ours.replace("RestartSec=1s", "RestartSec=9s");
    home.write(".config/systemd/user/goondan.service", &changed);
    assert_eq!(status(&home, &[])["differs"], true);
    gdn(&home, &["service", "status"])
        .exits(0)
        .prints(&["--print | diff"]);
    gdn(&home, &["service", "install"])
        .exits(10)
        .tells(&["hint: show the differences:", "--force"]);
    assert_eq!(fs::read_to_string(unit(&home)).unwrap(), changed);
    let forced = gdn(&home, &["service", "install", "--force"]).exits(0);
    forced.tells(&["`systemctl --user restart goondan` restarts it"]);
    assert_eq!(fs::read_to_string(unit(&home)).unwrap(), ours);
    gdn(&home, &["service", "remove"]).exits(0);
}

#[test]
fn rel_1_a_directory_is_made_writable_and_stays_so() {
    let home = home();
    let project = home.project().canonicalize().unwrap();
    let dir = project.to_str().unwrap();
    let listed = |home: &Home| status(home, &[])["writable"].clone();
    gdn(&home, &["service", "install"]).exits(0);
    assert_eq!(listed(&home), json!([]));
    let widened = ["service", "install", "--writable", dir];
    gdn(&home, &widened)
        .exits(0)
        .tells(&["`systemctl --user restart goondan` restarts it"]);
    let text = fs::read_to_string(unit(&home)).unwrap();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("ReadWritePaths="))
        .collect();
    assert_eq!(
        lines,
        ["ReadWritePaths=-%h/state", "ReadWritePaths=-%h/project"]
    );
    // Earlier options apply until they are changed.
    gdn(&home, &["service", "install"]).exits(0);
    assert_eq!(fs::read_to_string(unit(&home)).unwrap(), text);
    assert_eq!(listed(&home), json!([dir]));
    assert_eq!(status(&home, &[])["differs"], false);
    let missing = format!("{dir}/missing");
    for (args, told) in [
        (&["--writable", missing.as_str()][..], "cannot make"),
        (&["--writable", dir, "--manager", "launchd"], "launchd"),
    ] {
        gdn(&home, &[&["service", "install"], args].concat())
            .exits(2)
            .tells(&[told]);
    }
    gdn(&home, &["service", "remove"]).exits(0);
}

#[test]
fn rel_1_second_service_and_daemon_outside_service_are_refused() {
    let home = home();
    home.write("manager/of-the-machine", "");
    let refused = gdn(&home, &["service", "install"]).exits(10);
    refused.tells(&[
        "/etc/systemd/system/goondan.service",
        "`sudo gdn daemon service remove --system`",
    ]);
    fs::remove_file(home.path().join("manager/of-the-machine")).unwrap();

    let daemon = Daemon::start(&home);
    let refused = gdn(&home, &["service", "install"]).exits(10);
    refused.tells(&[
        &format!("pid {}", daemon.pid()),
        "hint: stop it, and try again: `gdn daemon shutdown`",
    ]);
    assert_eq!((calls(&home), unit(&home).exists()), (vec![], false));
    gdn(&home, &["shutdown"]).exits(0);
    drop(daemon.wait());
    gdn(&home, &["service", "install"]).exits(0);
    gdn(&home, &["service", "remove"]).exits(0);
}

#[test]
fn rel_1_service_that_fails_to_start_is_reported_with_log_hint() {
    let home = home();
    let look = ["hint: for the reason: `journalctl --user -u goondan -n 50 --no-pager`"];
    home.write("manager/refuses", "");
    let refused = gdn(&home, &["service", "install"]).exits(13);
    refused
        .tells(&["Job for goondan.service failed."])
        .tells(&look);
    fs::remove_file(home.path().join("manager/refuses")).unwrap();
    home.write("manager/dies", "");
    gdn(&home, &["service", "install"])
        .exits(13)
        .tells(&["does not run: `failed`"])
        .tells(&look);
    gdn(&home, &["service", "status"])
        .exits(16)
        .tells(&["does not run"])
        .tells(&look);
    gdn(&home, &["service", "remove"]).exits(0);
    assert!(!unit(&home).exists());
    // No manager.
    let mut command = home.command(
        &goondan_tests::binaries::bin("gdn"),
        &["service", "install"],
    );
    command.env("PATH", home.notes());
    let none = RunningProgram::start(command).wait().exits(5);
    none.tells(&[
        "cannot run systemctl",
        "`gdn run` starts the daemon in the background",
    ]);
    assert!(!unit(&home).exists());
}

#[test]
fn rel_1_launchd_has_its_agent() {
    let home = home();
    let launchd = ["--manager", "launchd"];
    let run = |command: &str| gdn(&home, &[&["service", command], &launchd[..]].concat());
    run("status").exits(5);
    run("install").exits(0);
    let file = home
        .path()
        .join("Library/LaunchAgents/ai.goondan.orchestrator.plist");
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .contains(r#"--state-root "$HOME/state""#)
    );
    let pid = home.gdn_json(&["status"])["pid"].clone();
    let shown = status(&home, &launchd);
    assert_eq!((&shown["pid"], &shown["differs"]), (&pid, &json!(false)));
    run("remove").exits(0);
    assert!(!file.exists() && home.running(ORCHESTRATOR).is_empty());
    let told: Vec<String> = calls(&home);
    let told: Vec<&str> = told
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(told, ["bootstrap", "bootout"]);
    gdn(
        &home,
        &["service", "install", "--system", "--manager", "launchd"],
    )
    .exits(2);
}

#[test]
fn rel_1_systemd_accepts_the_generated_units() {
    let home = home();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap()
        .name;
    let system = [
        "service", "install", "--system", "--run-as", &user, "--print",
    ];
    let printed = gdn(&home, &system).exits(0).stdout;
    assert!(printed.contains(&format!("\nUser={user}\n")), "{printed}");
    gdn(
        &home,
        &[
            "service",
            "install",
            "--system",
            "--run-as",
            "nobody-at-all",
            "--print",
        ],
    )
    .exits(2)
    .tells(&["does not exist"]);
    if !needs::program("systemd-analyze") {
        return;
    }
    let of_a_user = gdn(&home, &["service", "install", "--print"])
        .exits(0)
        .stdout;
    for (whose, text) in [("--user", of_a_user), ("--system", printed)] {
        home.write("verified/goondan.service", &text);
        let verified = Command::new("systemd-analyze")
            .args(["verify", whose, "--man=no"])
            .arg(home.path().join("verified/goondan.service"))
            .env("HOME", home.path())
            .env("XDG_RUNTIME_DIR", home.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{whose}: {told}");
        assert!(!told.contains("goondan.service:"), "{whose}: {told}");
    }
}
