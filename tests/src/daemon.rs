//! A daemon in the foreground, with its log.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::PATIENCE;
use crate::binaries::bin;
use crate::home::{Home, ORCHESTRATOR};
use crate::log::{Log, message};
use crate::processes::{self, Signal};
use crate::wait::{wait_until, within};

/// Clients of the daemon, which may outlive it.
const CLIENTS: [&str; 2] = [crate::home::GDN, crate::home::STUDIO];

/// A daemon. When dropped, it is stopped as by a service manager, its log is checked, and it must
/// have exited successfully.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
    complaints: Option<JoinHandle<String>>,
    home: PathBuf,
    has_ended: bool,
}

impl Daemon {
    /// Starts the daemon of a home and waits until it accepts connections.
    #[must_use]
    pub fn start(home: &Home) -> Self {
        Self::start_program(home, &bin(ORCHESTRATOR))
    }

    /// Starts a daemon whose binary, and those of its children, are in `dir`.
    #[must_use]
    pub fn start_in(home: &Home, dir: &Path) -> Self {
        Self::start_program(home, &dir.join(ORCHESTRATOR))
    }

    fn start_program(home: &Home, program: &Path) -> Self {
        Self::start_command(home, home.command(program, &[]))
    }

    /// Starts a daemon with a command that executes it, and waits until it accepts connections.
    #[must_use]
    pub fn start_command(home: &Home, command: Command) -> Self {
        let daemon = Self::starting(home, command);
        daemon.log.wait_for("the daemon has started", |line| {
            message(line) == "orchestrator started"
        });
        daemon
    }

    /// Starts a daemon with a command that executes it, without waiting: it may exit before it has
    /// started.
    #[must_use]
    pub fn starting(home: &Home, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (log, reader) = Log::collect(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let complaints = std::thread::spawn(move || {
            let mut text = String::new();
            drop(stderr.read_to_string(&mut text));
            text
        });
        Self {
            child,
            log,
            reader: Some(reader),
            complaints: Some(complaints),
            home: home.path().to_owned(),
            has_ended: false,
        }
    }

    /// A daemon that serves the home's project, whose connections may be invalid.
    #[must_use]
    pub fn serving(home: &Home) -> Self {
        Self::start(home).runs_project(home)
    }

    /// As [`Self::serving`], with the log's details: it has a line for each step of a turn.
    #[must_use]
    pub fn serving_with_details(home: &Home) -> Self {
        let mut command = home.command(&bin(ORCHESTRATOR), &[]);
        command.env("GOONDAN_LOG", "debug");
        Self::start_command(home, command).runs_project(home)
    }

    fn runs_project(self, home: &Home) -> Self {
        let ran = home.gdn(&["run"]);
        let is_partly_ready = ran.code == 16 && ran.stderr.contains("the workspace runs, but");
        assert!(ran.code == 0 || is_partly_ready, "{ran:?}");
        self
    }

    /// Reads the log without checking its lines from now on, so that the test's work does not
    /// affect measurements.
    #[must_use]
    pub fn measured(self) -> Self {
        self.log.drain();
        self
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Current address of a webhook listener.
    #[track_caller]
    pub fn webhook(&self, connection: &str) -> SocketAddr {
        let is_listening = |line: &serde_json::Value| {
            message(line) == "listening" && line["connection"] == connection
        };
        self.log.wait_for("the webhook listens", is_listening);
        let latest = self.log.latest(is_listening).unwrap();
        latest["address"].as_str().unwrap().parse().unwrap()
    }

    /// Kills it with `SIGKILL`, checks that all its processes end (`SUP-7`), and returns its log.
    pub fn kill(mut self) -> Arc<Log> {
        processes::signal(self.pid(), Signal::SIGKILL);
        self.ended();
        wait_until("every process ends with the daemon", || {
            self.processes_left().is_empty()
        });
        self.log.check(true);
        self.log.clone()
    }

    /// Waits for the end of a daemon that was killed together with its cleanup processes. Does not
    /// check for leftovers.
    pub fn is_gone(mut self) {
        self.ended();
        self.log.check(true);
    }

    /// Stops it as a service manager would, and returns its log.
    pub fn stop(mut self) -> Arc<Log> {
        processes::signal(self.pid(), Signal::SIGTERM);
        self.end_well();
        self.log.clone()
    }

    /// Waits until it exits on its own, and returns its log.
    pub fn wait(mut self) -> Arc<Log> {
        self.end_well();
        self.log.clone()
    }

    /// Waits until it exits on its own with an exit code, checks that all its processes end, and
    /// returns its stderr.
    pub fn ends_with(self, code: i32) -> String {
        let (found, told) = self.ends();
        assert_eq!(found, Some(code), "{told}");
        told
    }

    /// True if it has exited, so that [`Self::ends`] does not wait.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it exits for any reason, and checks that all its processes do. Returns its exit
    /// code, which is none if a signal ended it, and its stderr.
    #[must_use]
    pub fn ends(mut self) -> (Option<i32>, String) {
        let status = self.ended();
        wait_until("every process ends with the daemon", || {
            self.processes_left().is_empty()
        });
        self.log.check(true);
        let complaints = self.complaints.take();
        let told = complaints.map_or_else(String::new, |thread| thread.join().unwrap());
        (status.code(), told)
    }

    fn end_well(&mut self) {
        let status = self.ended();
        assert!(status.success(), "the daemon ended badly: {status}");
        // It waits for its children, so none may be left now.
        let left = self.processes_left();
        assert!(
            left.is_empty(),
            "processes outlived their daemon: {left:#?}"
        );
        self.log.check(false);
        let complaints = self.complaints.take().map(|thread| thread.join().unwrap());
        assert_eq!(
            complaints.as_deref(),
            Some(""),
            "the daemon wrote to stderr"
        );
    }

    /// This test's processes, except clients that may still run.
    fn processes_left(&self) -> Vec<processes::Process> {
        let mut left = processes::of_home(&self.home);
        left.retain(|process| !CLIENTS.contains(&process.program()));
        left
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let ended = within(PATIENCE, || self.child.try_wait().unwrap());
        let Some(status) = ended else {
            self.log.show();
            eprintln!("--- its threads:\n{}", processes::threads_of(self.pid()));
            panic!("waited {} s in vain: the daemon ends", PATIENCE.as_secs());
        };
        self.has_ended = true;
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            processes::signal(self.pid(), Signal::SIGKILL);
            drop(self.child.wait());
            self.log.show();
        } else if !self.has_ended {
            processes::signal(self.pid(), Signal::SIGTERM);
            self.end_well();
        }
    }
}
