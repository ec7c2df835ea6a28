//! A daemon of another machine over real OpenSSH (`REP-2`): commands, screens, lost connections, refused logins.

#![expect(
    clippy::disallowed_methods,
    reason = "these files belong to a person's client and to OpenSSH"
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::screen::Screen;
use goondan_tests::sshd::{ALIAS, Sshd};
use goondan_tests::{CommandOutput, Daemon, Home, needs, wait_until};

use crate::approvals;
use crate::studio::Studio;

/// A server with a daemon, and a laptop without one. The laptop has no access to the server's files by a name that
/// its commands could guess.
///
/// Fields are dropped in this order: connections end first.
struct Machines {
    sshd: Sshd,
    daemon: Daemon,
    laptop: Home,
    server: Home,
}

impl Machines {
    fn new(project: &str) -> Option<Self> {
        let server = Home::new(project);
        let sshd = Sshd::start(&server, &server.state_root())?;
        let daemon = Daemon::serving(&server);
        Some(Self {
            sshd,
            daemon,
            laptop: laptop(),
            server,
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        command(&self.laptop, &self.sshd, args)
    }

    /// A command with `--remote`.
    fn start(&self, args: &[&str]) -> RunningProgram {
        let remote = address();
        RunningProgram::start(self.command(&[&["--remote", &remote], args].concat()))
    }

    fn gdn(&self, args: &[&str]) -> CommandOutput {
        self.start(args).wait()
    }
}

fn address() -> String {
    format!("ssh://{ALIAS}")
}

/// A home with no project in its current directory.
fn laptop() -> Home {
    let laptop = Home::without_project();
    laptop.write("run/.keep", "");
    laptop
}

fn command(laptop: &Home, sshd: &Sshd, args: &[&str]) -> Command {
    let mut command = laptop.command(&bin(GDN), args);
    command
        .env("PATH", sshd.path())
        .env("XDG_RUNTIME_DIR", laptop.path().join("run"));
    command
}

#[test]
fn rep_2_commands_use_the_daemon_of_another_machine() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    assert_eq!(machines.gdn(&["send", "echo one"]).exits(0).stdout, "one\n");
    let ps = machines.gdn(&["ps", "--json"]).exits(0).json();
    let processes = ps["processes"].as_array().unwrap();
    assert!(
        processes.iter().any(|it| it["instanceKey"] == "main"),
        "{ps}"
    );
    machines
        .gdn(&["conversation", "history"])
        .exits(0)
        .prints(&["echo one"]);
    machines
        .gdn(&["top", "--once"])
        .exits(0)
        .prints(&["@goondan/lab"]);
    // Status shows the paths of the server as its own, and no file of this machine.
    let status = machines
        .gdn(&["daemon", "status", "--json"])
        .exits(0)
        .json();
    assert_eq!(status["remote"], address());
    assert_eq!(
        status["stateRoot"],
        machines.server.state_root().to_str().unwrap()
    );
    assert!(
        status["observation"].is_null() && status["format"].is_null(),
        "{status}"
    );
    let shown = machines.gdn(&["daemon", "status"]).exits(0);
    shown.prints(&["Remote", "ssh://server"]);
    let overview = machines.gdn(&["--json"]).exits(0).json();
    assert_eq!(overview["remote"], address());
    assert_eq!(overview["stateRoot"], status["stateRoot"]);
    assert_eq!(overview["next"], "gdn --remote ssh://server top");
    // The environment selects it as well, and loses against the option.
    let by_variable = |args: &[&str]| {
        let mut command = machines.command(args);
        command.env("GOONDAN_REMOTE", address());
        RunningProgram::start(command).wait()
    };
    by_variable(&["workspace", "list"])
        .exits(0)
        .prints(&["goondan_lab"]);
    by_variable(&["--remote", "local", "ps"]).exits(3);
    // A file of this machine needs no daemon.
    let project = machines.laptop.filled_in(LAB);
    machines.laptop.write("project/goondan.yaml", &project);
    by_variable(&["validate"]).exits(0);
    let refused = by_variable(&["run"]).exits(2);
    refused.tells(&[
        "works only on this machine",
        "from GOONDAN_REMOTE",
        "gdn --remote local run",
    ]);
    // The project here is not the one there.
    let project = machines.server.project();
    machines
        .gdn(&["--project", project.to_str().unwrap(), "ps"])
        .exits(0);
    machines
        .gdn(&["--project", ".", "ps"])
        .exits(2)
        .tells(&["not an absolute path on ssh://server"]);
    assert!(
        !machines.laptop.state_root().exists(),
        "no daemon was started here"
    );
    // Later commands share a connection.
    let accepted = machines.sshd.log().matches("Accepted publickey").count();
    assert_eq!(accepted, 1, "{}", machines.sshd.log());
}

#[test]
fn rep_2_saved_default_is_used_until_another_one() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    let gdn = |args: &[&str]| {
        let mut command = machines.command(args);
        command.env_remove("GOONDAN_STATE_ROOT");
        RunningProgram::start(command).wait()
    };
    gdn(&["daemon", "remote", "show"])
        .exits(0)
        .prints(&["local"]);
    gdn(&["ps"]).exits(3);
    gdn(&["daemon", "remote", "use", "ssh://-x"]).exits(2);
    gdn(&["daemon", "remote", "use", &address()])
        .exits(0)
        .prints(&["ssh://server"]);
    let settings = machines.laptop.path().join(".config/goondan/client.json");
    assert!(settings.is_file());
    let shown = gdn(&["daemon", "remote", "show", "--json"]).exits(0).json();
    assert_eq!(
        (&shown["remote"], &shown["source"]),
        (&address().into(), &"saved".into())
    );
    assert_eq!(gdn(&["send", "echo one"]).exits(0).stdout, "one\n");
    gdn(&["run"])
        .exits(2)
        .tells(&["the saved default", "gdn --remote local run"]);
    // More specific choices win.
    gdn(&["--remote", "local", "ps"]).exits(3);
    let state_root = machines.laptop.state_root();
    gdn(&["--state-root", state_root.to_str().unwrap(), "ps"]).exits(3);
    RunningProgram::start(machines.command(&["ps"]))
        .wait()
        .exits(3);
    gdn(&["daemon", "remote", "use", "local"]).exits(0);
    gdn(&["ps"]).exits(3);
    let listed = gdn(&["daemon", "remote", "list", "--json"]).exits(0).json();
    assert_eq!(
        (&listed["remote"], &listed["remotes"]),
        (&serde_json::Value::Null, &serde_json::json!([address()]))
    );
    gdn(&["daemon", "remote", "remove", &address()]).exits(0);
    gdn(&["daemon", "remote", "remove", &address()])
        .exits(5)
        .tells(&["is not saved"]);
    std::fs::write(&settings, "{").unwrap();
    gdn(&["ps"])
        .exits(15)
        .tells(&["client.json", "correct or remove it"]);
    gdn(&["--remote", "local", "ps"]).exits(3);
}

#[test]
fn rep_2_logs_are_followed_until_the_connection_is_lost() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    let logs = machines.start(&["logs", "--follow"]);
    machines.server.ask("main", "echo one");
    logs.wait_for_stdout("turn committed and answered");
    machines.sshd.cut();
    let ended = logs.wait().exits(9);
    ended.tells(&[
        "the connection to the daemon was lost",
        "ssh ended",
        "gdn --remote ssh://server daemon status",
    ]);
}

#[test]
fn rep_2_lost_connection_loses_no_event() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    let sending = machines.start(&["send", "--event-id", "e1", "hold a"]);
    wait_until("the tool runs", || {
        machines.server.note("a.runs") == "run\n"
    });
    machines.sshd.cut();
    let lost = sending.wait().exits(9);
    lost.tells(&[
        "the connection to the daemon was lost before the answer arrived",
        "--event-id e1",
    ]);
    machines.server.write("notes/a.go", "");
    let again = machines
        .gdn(&["send", "--event-id", "e1", "hold a"])
        .exits(0);
    assert_eq!(again.stdout, "done a\n");
    assert_eq!(machines.server.note("a.runs"), "run\n");
}

#[test]
fn rep_2_decision_is_made_from_another_machine() {
    let Some(machines) = Machines::new(&approvals::project()) else {
        return;
    };
    let (sending, id) = approvals::sent(&machines.server, "main", "run a");
    let inbox = machines.gdn(&["inbox", "--json"]).exits(0);
    inbox.prints(&[&id]);
    machines.gdn(&["inbox", "approve", &id]).exits(0);
    sending.wait().exits(0).prints(&["ran a"]);
    assert_eq!(approvals::runs_of(&machines.server, "a"), 1);
}

#[test]
fn rep_2_chat_and_top_run_on_a_screen() {
    if !needs::program("tmux") {
        return;
    }
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    let screen = Screen::start(&machines.command(&[]), 80, 24);
    let home = machines.laptop.path().display();
    let (gdn, path) = (bin(GDN), machines.sshd.path());
    let begin = |command: &str| {
        let gdn = gdn.display();
        screen.types(&format!(
            "clear; HOME='{home}' PATH='{path}' '{gdn}' --remote ssh://{ALIAS} {command}"
        ));
        screen.press(&["Enter"]);
    };
    begin("chat");
    screen.wait_for("Ctrl-D ends.\nyou>");
    screen.types("hold a");
    screen.press(&["Enter"]);
    wait_until("the tool runs", || {
        machines.server.note("a.runs") == "run\n"
    });
    // Ctrl-C is for the chat, and not for ssh.
    screen.press(&["C-c"]);
    screen.wait_for("stopped waiting");
    screen.wait_for("\nyou>");
    screen.press(&["C-c"]);
    screen.wait_for("Canceled the turn of main");
    screen.types("echo after");
    screen.press(&["Enter"]);
    screen.wait_for("worker> after\nyou>");
    screen.press(&["C-d"]);
    screen.wait_for_prompt();
    begin("top");
    screen.wait_for("1 Overview");
    screen.wait_for("1 conversation ");
    screen.press(&["q"]);
    screen.wait_for_prompt();
}

#[test]
fn rep_2_studio_here_shows_the_daemon_there() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    let mut studio = Studio::of(machines.command(&["--remote", &address(), "studio", "--json"]));
    let page = studio.page();
    let status = page.result("daemon.status", &serde_json::json!({}));
    assert_eq!(status["pid"], machines.daemon.pid());
    machines.sshd.authorize("stranger");
    machines.sshd.cut();
    wait_until("Studio shows why the daemon is unreachable", || {
        let lost = page.call("daemon.status", &serde_json::json!({}));
        lost.status == 503 && lost.body.contains("it refused the login")
    });
}

#[test]
fn rep_2_another_machine_can_stop_the_daemon() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    machines
        .gdn(&["daemon", "shutdown"])
        .exits(0)
        .prints(&["Stopped the daemon"]);
    let none = machines.gdn(&["ps"]).exits(3);
    none.tells(&[
        "no daemon runs on",
        "start it there",
        "ssh server gdn run DIR",
    ]);
    machines
        .gdn(&["daemon", "shutdown"])
        .exits(0)
        .prints(&["No daemon runs."]);
}

#[test]
fn rep_2_each_failure_names_its_reason_and_next_command() {
    let server = Home::new(LAB);
    let Some(sshd) = Sshd::start(&server, &server.state_root()) else {
        return;
    };
    let laptop = laptop();
    let run = |remote: &str, args: &[&str]| {
        // Each attempt authenticates, because no directory for shared connections can be created.
        let mut command = command(&laptop, &sshd, &[&["--remote", remote], args].concat());
        command.env("XDG_RUNTIME_DIR", laptop.path().join("run/.keep"));
        RunningProgram::start(command).wait()
    };
    let failed = |texts: &[&str]| {
        let failed = run(&address(), &["ps"]);
        let failed = failed.tells(&[&["cannot reach the daemon on ssh://server"], texts].concat());
        failed.exits(22);
    };
    run(&address(), &["ps"])
        .exits(3)
        .tells(&["no daemon runs on", "ssh server gdn run DIR"]);
    let elsewhere = format!("ssh://{ALIAS}{}", server.path().join("other").display());
    run(&elsewhere, &["ps"])
        .exits(3)
        .tells(&[server.path().join("other").to_str().unwrap()]);

    sshd.authorize("stranger");
    failed(&[
        "it refused the login",
        "Permission denied (publickey)",
        "`ssh server true`",
    ]);
    sshd.authorize("user");

    let known = std::fs::read_to_string(sshd.known_hosts()).unwrap();
    std::fs::write(sshd.known_hosts(), "").unwrap();
    failed(&[
        "its host key is not accepted",
        "Host key verification failed",
        "`ssh server true`",
    ]);
    std::fs::write(sshd.known_hosts(), known).unwrap();

    sshd.begin_sessions_with("echo Welcome to the server");
    failed(&["prints text", "must print nothing"]);
    sshd.begin_sessions_with("PATH=/nowhere");
    failed(&["does not find the program `gdn`", "install goondan there"]);
    // An older version does not know the command.
    sshd.begin_sessions_with("echo \"error: unrecognized subcommand 'dial-stdio'\" >&2; exit 2");
    run(&address(), &["ps"])
        .exits(4)
        .tells(&["gdn there is older", "ssh server gdn --version"]);
    sshd.begin_sessions_with("");

    let mut missing = laptop.command(&bin(GDN), &["--remote", &address(), "ps"]);
    missing.env("PATH", "/nowhere");
    let missing = RunningProgram::start(missing).wait().exits(22);
    missing.tells(&["cannot run `ssh`", "install OpenSSH's client"]);
    let closed = format!(
        "ssh://127.0.0.1:{}",
        goondan_tests::server::free_ports::<1>()[0]
    );
    let refused = run(&closed, &["ps"]).exits(22);
    refused.tells(&["no connection to the machine", "Connection refused"]);
    let json = run(&closed, &["ps", "--json"]).exits(22).error_json();
    assert_eq!(json["code"], "remoteUnreachable");
}

#[test]
fn rep_2_key_can_be_restricted_to_the_daemon() {
    let Some(machines) = Machines::new(LAB) else {
        return;
    };
    machines.sshd.authorize_only_gdn("user");
    assert_eq!(machines.gdn(&["send", "echo one"]).exits(0).stdout, "one\n");
    machines.gdn(&["ps"]).exits(0).prints(&["worker"]);
    // A shell command of the key's owner is not run.
    let mark = machines.server.path().join("mark");
    let mut ssh = Command::new("ssh");
    ssh.env("PATH", machines.sshd.path());
    ssh.args([ALIAS, &format!("touch {}", mark.display())]);
    let ran = ssh.stdin(Stdio::null()).output().unwrap();
    assert!(!mark.exists(), "{ran:?}");
}

#[test]
fn rep_2_hostile_addresses_run_nothing() {
    let laptop = laptop();
    let mark = laptop.path().join("mark");
    let touch = format!("touch {}", mark.display());
    for address in [
        format!("ssh://-oProxyCommand={touch}"),
        format!("ssh://-oProxyCommand={}", touch.replace(' ', "${IFS}")),
        format!("ssh://user@-oProxyCommand={touch}"),
        format!("ssh://-oProxyCommand={touch}@host"),
        format!("ssh://host/$({touch})"),
        format!("ssh://host/srv;{touch}"),
        format!("ssh://host:22;{touch}"),
        format!("ssh://`{touch}`"),
        "ssh://".to_owned(),
        "desk".to_owned(),
    ] {
        let refused = laptop.gdn(&["--remote", &address, "ps"]).exits(2);
        refused.tells(&["expected ssh://[user@]host[:port][/state-root]"]);
        let mut command = laptop.command(&bin(GDN), &["ps"]);
        command.env("GOONDAN_REMOTE", &address);
        let refused = RunningProgram::start(command).wait().exits(2);
        refused.tells(&[
            "GOONDAN_REMOTE",
            "expected ssh://[user@]host[:port][/state-root]",
        ]);
    }
    assert!(!mark.exists());
}

#[test]
fn rep_2_local_commands_refuse_another_machine() {
    let laptop = laptop();
    let dir = PathBuf::from("x");
    let file = dir.to_str().unwrap();
    for args in [
        &["init", file][..],
        &["run"],
        &["validate"],
        &["config", "show"],
        &["package", "list"],
        &["doctor"],
        &["demo", "--ask", "x"],
        &["incident", "export"],
        &["incident", "test", file],
        &["task", "import", file],
        &["workspace", "forget"],
        &["workspace", "permission", "allow", "project"],
        &["daemon", "upgrade"],
        &["daemon", "service", "status"],
        &["daemon", "node", "leave"],
        &["daemon", "dial-stdio"],
        &["completions", "bash"],
    ] {
        let refused = laptop.gdn(&[&["--remote", "ssh://nowhere.invalid"], args].concat());
        let refused = refused.exits(2);
        refused.tells(&[
            "works only on this machine, and not on ssh://nowhere.invalid",
            "--remote local",
        ]);
    }
    let both = laptop
        .gdn(&["--remote", "ssh://desk", "--state-root", "/srv", "ps"])
        .exits(2);
    both.tells(&[
        "`--state-root` is a directory of this machine",
        "ssh://host/DIR",
    ]);
}
