//! `gdn daemon upgrade`: versions made from the real binaries, and agents at work during an upgrade
//! (`REL-1`).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use goondan_tests::binaries::bin;
use goondan_tests::home::{AGENT, CONNECTOR, CommandOutput, GDN, ORCHESTRATOR, RunningProgram};
use goondan_tests::projects::LAB;
use goondan_tests::{Home, wait_until};
use serde_json::Value;

use crate::conversation::{check, text};
use crate::service::write_managers;

/// An unreachable service manager, so that no test calls the real one.
const NO_MANAGER: &str = "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n";

struct InstallationHome {
    home: Home,
}

impl InstallationHome {
    /// A home whose daemon runs from installed version `a`.
    fn running() -> Self {
        let place = Self::new();
        let a = place.build("a");
        place.install(&a).exits(0);
        place.current(&["run"]).exits(0);
        place
    }

    fn new() -> Self {
        let home = Home::new(LAB);
        for manager in ["systemctl", "launchctl"] {
            home.write_program(&format!("managers/{manager}"), NO_MANAGER);
        }
        Self { home }
    }

    fn prefix(&self) -> PathBuf {
        self.home.path().join("prefix")
    }

    /// A directory with a distinct build: the real programs, one with an extra byte at its end.
    fn build(&self, name: &str) -> PathBuf {
        let dir = self.home.path().join("builds").join(name);
        fs::create_dir_all(&dir).unwrap();
        for program in [ORCHESTRATOR, AGENT, CONNECTOR] {
            symlink(bin(program), dir.join(program)).unwrap();
        }
        fs::copy(bin(GDN), dir.join(GDN)).unwrap();
        let mut gdn = fs::File::options()
            .append(true)
            .open(dir.join(GDN))
            .unwrap();
        gdn.write_all(name.as_bytes()).unwrap();
        dir
    }

    /// A build in which a script replaces a program for any argument other than its version.
    fn build_with(&self, name: &str, program: &str, script: &str) -> PathBuf {
        let dir = self.build(name);
        let version = Command::new(bin(program))
            .arg("--version")
            .output()
            .unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        fs::remove_file(dir.join(program)).unwrap();
        self.home.write_program(
            &format!("builds/{name}/{program}"),
            &format!(
                "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{}'; exit; fi\n{script}\n",
                version.trim()
            ),
        );
        dir
    }

    fn command(&self, gdn: &Path, args: &[&str]) -> Command {
        let mut command = self.home.command(gdn, args);
        let path = std::env::var("PATH").unwrap();
        let managers = self.home.path().join("managers");
        command.env("PATH", format!("{}:{path}", managers.display()));
        command
    }

    /// Starts the `gdn` of the current version.
    fn start(&self, args: &[&str]) -> RunningProgram {
        RunningProgram::start(self.command(&self.prefix().join("bin/gdn"), args))
    }

    /// Runs the `gdn` of the current version to its end.
    fn current(&self, args: &[&str]) -> CommandOutput {
        self.start(args).wait()
    }

    /// Installs with a `gdn` outside of the installation.
    fn install(&self, from: &Path) -> CommandOutput {
        let prefix = self.prefix();
        let args = [
            "upgrade",
            from.to_str().unwrap(),
            "--prefix",
            prefix.to_str().unwrap(),
        ];
        RunningProgram::start(self.command(&bin(GDN), &args)).wait()
    }

    fn upgrade(&self, from: &Path) -> CommandOutput {
        self.upgrade_with(from, &[])
    }

    fn upgrade_with(&self, from: &Path, options: &[&str]) -> CommandOutput {
        self.current(&[&["upgrade", from.to_str().unwrap()], options].concat())
    }

    /// Installed versions, from `--list`.
    fn list(&self) -> Value {
        self.current(&["--json", "upgrade", "--list"])
            .exits(0)
            .json()
    }

    /// The name of the current version.
    fn version(&self) -> String {
        let link = fs::read_link(self.prefix().join("current")).unwrap();
        link.file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.prefix().join("upgrade.json")).unwrap_or_default()
    }

    /// Waits until a started upgrade has reached one of the steps, or is over.
    fn reaches(&self, steps: &[&str]) {
        let mut is_under_way = false;
        wait_until("the upgrade reaches its step", || {
            let journal = self.journal();
            let is_over = is_under_way && journal.is_empty();
            is_under_way |= !journal.is_empty();
            let is_at = |step| journal.contains(&format!("\"step\":\"{step}\""));
            is_over || steps.iter().any(is_at)
        });
    }

    /// Checks that the daemon runs the current version.
    #[track_caller]
    fn runs_by_current(&self) {
        let program = self.home.gdn_json(&["status"])["program"].clone();
        let of = self
            .prefix()
            .join("versions")
            .join(self.version())
            .join(ORCHESTRATOR);
        assert_eq!(program, of.to_str().unwrap());
        assert_eq!(self.home.running(ORCHESTRATOR).len(), 1);
    }

    /// Sends `work` to a separate conversation until it is answered, even if the daemon is killed
    /// or replaced.
    fn work(&self, number: &str) -> JoinHandle<()> {
        let command = |args: &[&str]| self.command(&bin(GDN), args);
        let (id, text) = (format!("e{number}"), format!("work {number}"));
        let send = ["send", "--instance", number, "--event-id", &id, &text];
        let first = command(&send);
        let (program, args): (PathBuf, Vec<_>) = (
            first.get_program().into(),
            first.get_args().map(ToOwned::to_owned).collect(),
        );
        let env: Vec<_> = first
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        let project = self.home.project();
        let answer = format!("worked {number}\n");
        std::thread::spawn(move || {
            goondan_tests::wait_for("the event is answered", || {
                let mut command = Command::new(&program);
                let sent = command
                    .args(&args)
                    .env_clear()
                    .envs(env.clone())
                    .current_dir(&project)
                    .output()
                    .unwrap();
                // Sent again while no daemon runs, or it is about to stop.
                let is_done = sent.status.success();
                is_done.then(|| assert_eq!(String::from_utf8(sent.stdout).unwrap(), answer))
            });
        })
    }

    /// Checks that the work of a conversation was done once.
    #[track_caller]
    fn was_done_once(&self, number: &str) {
        let messages = self.home.history(number);
        check(&messages);
        let asked = messages
            .iter()
            .filter(|message| text(message) == format!("work {number}"));
        let answered = messages
            .iter()
            .filter(|message| text(message) == format!("worked {number}"));
        assert_eq!((asked.count(), answered.count()), (1, 1), "{messages:#?}");
    }
}

#[test]
fn rel_1_upgrade_of_busy_agents_loses_nothing_and_can_roll_back() {
    let place = InstallationHome::running();
    place.runs_by_current();
    let first = place.version();
    let b = place.build("b");
    let held = place.work("before");
    let asking = place.start(&["send", "--event-id", "held", "hold x"]);
    wait_until("the tool runs", || place.home.note("x.runs") == "run\n");
    let upgrading = place.start(&["upgrade", b.to_str().unwrap()]);
    wait_until("the daemon is stopping", || {
        place.journal().contains("drain")
    });
    // A concurrent upgrade is refused.
    let second = place.current(&["upgrade", "--rollback"]).exits(8);
    second.tells(&["another upgrade works on", "hint: wait until it ends"]);
    let during: Vec<JoinHandle<()>> = ["1", "2", "3"].map(|it| place.work(it)).into();
    place.home.write("notes/x.go", "");
    // The turn in progress completed with the daemon it started with.
    assert_eq!(asking.wait().stdout, "done x\n");
    upgrading
        .wait()
        .exits(0)
        .prints(&["is now the current version"]);
    held.join().unwrap();
    during.into_iter().for_each(|work| work.join().unwrap());
    assert_ne!(place.version(), first);
    place.runs_by_current();
    assert_eq!(place.home.note("x.runs"), "run\n");
    for number in ["before", "1", "2", "3"] {
        place.was_done_once(number);
    }
    let second = place.version();
    place
        .upgrade(&b)
        .exits(0)
        .prints(&["is already the current version"]);
    place.current(&["upgrade", "--rollback"]).exits(0);
    assert_eq!(place.version(), first);
    place.runs_by_current();
    let list = place.list();
    let marks: Vec<(&Value, &Value)> = list["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["name"], &it["current"]))
        .collect();
    assert_eq!(marks.len(), 2, "{list}");
    for (name, is_current) in marks {
        assert!(name == first.as_str() || name == second.as_str());
        assert_eq!(*is_current, name == first.as_str());
    }
    // A third version replaces the second.
    place.upgrade(&place.build("c")).exits(0);
    let list = place.list()["versions"].to_string();
    assert!(!list.contains(&second) && list.contains(&first), "{list}");
}

#[test]
fn rel_1_a_version_that_does_not_do_its_work_is_taken_back() {
    let place = InstallationHome::running();
    let first = place.version();
    let broken = [
        (
            "dies",
            ORCHESTRATOR,
            "echo 'it is broken' >&2; exit 1",
            "it is broken",
        ),
        (
            "hangs",
            ORCHESTRATOR,
            "exec sleep 1000",
            "did not accept connections",
        ),
        ("crashes", CONNECTOR, "exit 1", "keeps crashing"),
    ];
    for (name, program, script, why) in broken {
        let build = place.build_with(name, program, script);
        let work = place.work(name);
        let failed = place.upgrade(&build).exits(18);
        failed.tells(&["failed, and", why, "hint: show the log"]);
        work.join().unwrap();
        assert_eq!(
            (place.version(), place.journal()),
            (first.clone(), String::new())
        );
        place.runs_by_current();
        place.was_done_once(name);
        assert!(place.home.running("sleep").is_empty());
    }
    // The previous version is unchanged.
    place.current(&["upgrade", "--rollback"]).exits(5);
}

/// The steps of an upgrade, as its journal names them.
const STEPS: [&str; 4] = ["drain", "swap", "start", "check"];

#[test]
fn rel_1_upgrade_killed_at_any_step_completes_or_rolls_back() {
    let place = InstallationHome::running();
    let a = place.home.path().join("builds/a");
    let mut builds = [a, place.build("b")];
    let mut seen = Vec::new();
    for (number, step) in STEPS.into_iter().enumerate() {
        for way in ["--rollback", "--resume"] {
            // The first of the two is the current one.
            let build = &builds[1].clone();
            let before = place.version();
            let work = place.work(&format!("{number}{way}"));
            let upgrading = place.start(&["upgrade", build.to_str().unwrap()]);
            place.reaches(&[step, "check"]);
            drop(upgrading);
            let journal = place.journal();
            seen.extend(
                STEPS
                    .iter()
                    .find(|step| journal.contains(&format!("\"{step}\""))),
            );
            let doctor = place.current(&["--json", "doctor"]).json().to_string();
            assert!(doctor.contains("gdn daemon upgrade --resume"), "{doctor}");
            let refused = place.upgrade(build).exits(10);
            refused.tells(&[
                "was interrupted",
                "`gdn daemon upgrade --resume`",
                "`gdn daemon upgrade --rollback`",
            ]);
            place.current(&["upgrade", way]).exits(0);
            work.join().unwrap();
            let is_before = place.version() == before;
            assert_eq!(is_before, way == "--rollback", "{step}: {journal}");
            assert_eq!(place.journal(), "");
            place.runs_by_current();
            place.was_done_once(&format!("{number}{way}"));
            if !is_before {
                builds.reverse();
            }
        }
    }
    for step in ["drain", "start", "check"] {
        assert!(seen.contains(&step), "{step} was never reached: {seen:?}");
    }
}

#[test]
fn rel_1_an_upgrade_killed_on_its_way_back_ends_as_it_was() {
    let place = InstallationHome::running();
    let first = place.version();
    let build = place.build_with("dies", ORCHESTRATOR, "exit 1");
    for step in ["swapBack", "startOld", "finishBack"] {
        let work = place.work(step);
        let upgrading = place.start(&["upgrade", build.to_str().unwrap()]);
        place.reaches(&[step]);
        drop(upgrading);
        // It may have completed by then.
        let resumed = place.current(&["upgrade", "--resume"]);
        assert!([0, 18].contains(&resumed.code), "{resumed:#?}");
        work.join().unwrap();
        assert_eq!(
            (place.version(), place.journal()),
            (first.clone(), String::new())
        );
        place.runs_by_current();
        place.was_done_once(step);
    }
}

#[test]
fn rel_1_upgrade_to_an_invalid_version_changes_nothing() {
    let place = InstallationHome::new();
    let a = place.build("a");
    // This installation is not supported: the error names the command that creates a suitable one.
    let refused =
        RunningProgram::start(place.command(&bin(GDN), &["upgrade", a.to_str().unwrap()]));
    refused
        .wait()
        .exits(10)
        .tells(&["--prefix ~/.local/lib/goondan`"]);
    place
        .install(&a)
        .exits(0)
        .tells(&["export PATH=", "prefix/bin"]);
    let (first, list) = (place.version(), place.list());
    let other = place.build_with("other", AGENT, "");
    let mut script = fs::read_to_string(other.join(AGENT)).unwrap();
    script = script.replace("process 0", "process 9");
    place
        .home
        .write("builds/other/goondan-agent-process", &script);
    place.upgrade(&other).exits(15).tells(&["has version 9"]);
    let silent = place.build("without");
    fs::remove_file(silent.join(CONNECTOR)).unwrap();
    place
        .upgrade(&silent)
        .exits(5)
        .tells(&["goondan-connector-process"]);
    for (name, content, code) in [("no.tar.gz", "nonsense", 15), ("none", "", 15)] {
        place.home.write(name, content);
        let path = place.home.path().join(name);
        place
            .upgrade(&path)
            .exits(code)
            .tells(&["nothing was changed"]);
    }
    let planned = place
        .upgrade_with(&place.build("b"), &["--dry-run"])
        .exits(0);
    planned.prints(&["would become the current version"]);
    assert_eq!((place.version(), place.list()), (first, list));
    let left = fs::read_dir(place.prefix().join("versions"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "something was left of what was refused");
}

#[test]
fn rel_1_foreign_daemon_and_irreversible_upgrade_are_refused() {
    let place = InstallationHome::new();
    place.install(&place.build("a")).exits(0);
    let first = place.version();
    place.home.gdn(&["run"]).exits(0);
    let b = place.build("b");
    let refused = place.upgrade(&b).exits(10);
    refused.tells(&["is not from this installation", "/prefix/bin/gdn run`"]);
    place.home.gdn(&["shutdown"]).exits(0);
    // A version whose files the previous one cannot read.
    let newer = place.build_with(
        "newer",
        GDN,
        r#"echo '{"version":"0.1.0","wrote":1001,"readableFrom":1000}'"#,
    );
    let refused = place.upgrade(&newer).exits(10);
    refused.tells(&["a rollback would not be possible", "--one-way"]);
    // A version that cannot read the state.
    place.home.gdn(&["run"]).exits(0);
    place.home.gdn(&["shutdown"]).exits(0);
    let older = place.build_with("older", GDN, "echo 'error: has a newer format' >&2; exit 4");
    place
        .upgrade(&older)
        .exits(4)
        .tells(&["has a newer format", "nothing was changed"]);
    assert_eq!(place.version(), first);
    // Without a daemon, only the link is swapped.
    place.upgrade(&b).exits(0);
    assert_ne!(place.version(), first);
    assert!(place.home.running(ORCHESTRATOR).is_empty());
}

#[test]
fn rel_1_service_manager_upgrades_and_rolls_back_the_service() {
    let place = InstallationHome::new();
    write_managers(&place.home);
    place.install(&place.build("a")).exits(0);
    // Its file refers to the current version, so it does not change.
    place.current(&["service", "install"]).exits(0);
    let unit = place
        .home
        .path()
        .join(".config/systemd/user/goondan.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(
        unit.contains("ExecStart=%h/prefix/current/goondan-orchestrator"),
        "{unit}"
    );
    place.current(&["run"]).exits(0);
    let first = place.version();
    let calls = place.home.path().join("manager/calls");
    fs::remove_file(&calls).unwrap();
    let work = place.work("1");
    place.upgrade(&place.build("b")).exits(0);
    work.join().unwrap();
    place.runs_by_current();
    assert_ne!(place.version(), first);
    let text = fs::read_to_string(&calls).unwrap();
    assert!(
        text.contains("systemctl --user start goondan.service"),
        "{text}"
    );
    assert!(!text.contains("enable"), "{text}");
    let second = place.version();
    let dies = place.build_with("dies", ORCHESTRATOR, "exit 1");
    place
        .upgrade(&dies)
        .exits(18)
        .tells(&["Job for goondan.service failed."]);
    assert_eq!(place.version(), second);
    place.runs_by_current();
    place.current(&["service", "status"]).exits(0);
    place.was_done_once("1");
    place.current(&["service", "remove"]).exits(0);
}
