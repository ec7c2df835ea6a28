//! Environment of one test: a project, a state root, clean variables.

use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::binaries::{bin, bin_dir};
use crate::log::check_line;
use crate::processes::{self, Signal};
use crate::wait::{PATIENCE, wait_until, within};

/// The daemon's binary.
pub const ORCHESTRATOR: &str = "goondan-orchestrator";
pub const AGENT: &str = "goondan-agent-process";
/// The binary of connectors.
pub const CONNECTOR: &str = "goondan-connector-process";
/// The binary of the page in the browser.
pub const STUDIO: &str = "goondan-studio";
/// The client's binary.
pub const GDN: &str = "gdn";

/// Exit code of `status` and `ps` if something is degraded.
pub const DEGRADED: i32 = 16;

/// Maximum wait at the end of a test for processes that must exit on their own.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// A project, a state root and a directory for notes, deleted at the end of the test together with
/// every process that belongs to them.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Home {
    /// A home whose project is `goondan_yaml`.
    #[must_use]
    pub fn new(goondan_yaml: &str) -> Self {
        let home = Self::without_project();
        home.write("project/goondan.yaml", &home.filled_in(goondan_yaml));
        home
    }

    /// A home without a project.
    #[must_use]
    pub fn without_project() -> Self {
        let dir = tempfile::Builder::new().prefix("gdn-").tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let home = Self { path, _dir: dir };
        fs::create_dir(home.project()).unwrap();
        fs::create_dir(home.notes()).unwrap();
        home
    }

    /// Root directory; `HOME` of all processes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.path.join("project")
    }

    #[must_use]
    pub fn state_root(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Directory in which the tools of a test's agents write notes and wait for them.
    #[must_use]
    pub fn notes(&self) -> PathBuf {
        self.path.join("notes")
    }

    /// Working directory of a conversation's tools.
    #[must_use]
    pub fn work_dir(&self, instance_key: &str) -> PathBuf {
        let instances = self.workspace_dir().join("instances");
        instances.join(instance_key).join("work")
    }

    /// A text with `NOTES` replaced by the path of [`Self::notes`].
    #[must_use]
    pub fn filled_in(&self, text: &str) -> String {
        text.replace("NOTES", self.notes().to_str().unwrap())
    }

    /// Writes a file below this home.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path.join(path);
        // Others must not be able to write to a state root, even with a permissive umask.
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o755);
        directories.create(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes an executable file below this home.
    pub fn write_program(&self, path: &str, text: &str) {
        self.write(path, text);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.path.join(path), executable).unwrap();
    }

    /// Content of a note; empty if it does not exist.
    #[must_use]
    pub fn note(&self, name: &str) -> String {
        fs::read_to_string(self.notes().join(name)).unwrap_or_default()
    }

    /// The one workspace's directory in the System Root.
    #[must_use]
    pub fn workspace_dir(&self) -> PathBuf {
        self.found_workspace_dir().unwrap()
    }

    /// The same, or `None` while the System Root has no workspace.
    #[must_use]
    pub fn found_workspace_dir(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.state_root().join("workspaces")).ok()?;
        let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        dirs.retain(|dir| dir.join("workspace.json").is_file());
        assert!(dirs.len() < 2, "{dirs:?}");
        dirs.pop()
    }

    /// A directory with hard links to the daemon and `gdn`, in which other programs can replace the
    /// children's binaries. It is next to the real binaries: a link, unlike a copy, is never
    /// half-written or open for writing.
    #[must_use]
    pub fn bin_dir_of_its_own(&self) -> tempfile::TempDir {
        let dir = tempfile::Builder::new()
            .prefix(".goondan-tests-")
            .tempdir_in(bin_dir())
            .unwrap();
        for name in [ORCHESTRATOR, GDN] {
            fs::hard_link(bin(name), dir.path().join(name)).unwrap();
        }
        dir
    }

    /// A command in the project, with no inherited environment variable except the path.
    #[must_use]
    pub fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.path)
            .env("TZ", "UTC")
            .env("GOONDAN_STATE_ROOT", self.state_root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // The processes of a test are found by their environment, which otherwise only root can
        // read.
        if !nix::unistd::geteuid().is_root() {
            command.env(goondan_protocol::secret::ALLOW_DEBUGGER_VAR, "1");
        }
        command
    }

    /// Starts `gdn` in the project.
    #[must_use]
    pub fn start_gdn(&self, args: &[&str]) -> RunningProgram {
        RunningProgram::start(self.command(&bin(GDN), args))
    }

    /// Runs `gdn` in the project to its end.
    #[track_caller]
    pub fn gdn(&self, args: &[&str]) -> CommandOutput {
        self.start_gdn(args).wait()
    }

    /// Runs `gdn --json`, which must succeed, and returns its output. `status` and `ps` may exit
    /// with the code for a degraded state.
    #[track_caller]
    pub fn gdn_json(&self, args: &[&str]) -> Value {
        let ran = self.gdn(&[&["--json"], args].concat());
        let is_look = matches!(args.first(), Some(&("status" | "ps")));
        match ran.code {
            DEGRADED if is_look => ran.json(),
            _ => ran.exits(0).json(),
        }
    }

    /// The reply of `gdn send`, which must succeed.
    #[track_caller]
    pub fn ask(&self, key: &str, text: &str) -> String {
        let ran = self.gdn(&["send", "--instance", key, text]).exits(0);
        ran.stdout.trim_end_matches('\n').to_owned()
    }

    /// Messages of a conversation; those of the turn in progress are last.
    #[track_caller]
    pub fn history(&self, key: &str) -> Vec<Value> {
        let history = self.gdn_json(&["instance", "history", "--", key]);
        let messages = history["messages"].as_array().unwrap().iter();
        let pending = history["pending"].as_array().unwrap().iter();
        messages.chain(pending).cloned().collect()
    }

    /// The processes that `gdn ps` shows.
    #[track_caller]
    pub fn ps(&self) -> Vec<Value> {
        self.gdn_json(&["ps"])["processes"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// Entry of one agent's conversation in `gdn ps`.
    #[track_caller]
    pub fn ps_agent(&self, key: &str) -> Option<Value> {
        self.ps()
            .into_iter()
            .find(|process| process["instanceKey"] == key)
    }

    /// This test's processes that run `program`.
    #[must_use]
    pub fn running(&self, program: &str) -> Vec<processes::Process> {
        processes::running(&self.path, program)
    }

    /// Stops daemons in the background, and checks that every process ends.
    fn stop_all(&self) -> Vec<processes::Process> {
        for daemon in self.running(ORCHESTRATOR) {
            processes::signal(daemon.pid, Signal::SIGTERM);
        }
        let is_gone = || processes::of_home(&self.path).is_empty().then_some(());
        match within(LAST_WAIT, is_gone) {
            Some(()) => Vec::new(),
            None => processes::of_home(&self.path),
        }
    }

    fn kill_all(&self) {
        wait_until("every process is killed", || {
            let left = processes::of_home(&self.path);
            for process in &left {
                processes::signal(process.pid, Signal::SIGKILL);
            }
            left.is_empty()
        });
    }

    /// The lines of the log files of daemons in the background, oldest first, every one checked.
    #[must_use]
    pub fn log_files(&self) -> Vec<Value> {
        let Ok(entries) = fs::read_dir(self.state_root().join("logs")) else {
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        // `orchestrator.log.2`, `orchestrator.log.1`, `orchestrator.log`.
        files.sort_by_key(|path| {
            let number = path
                .extension()
                .and_then(|end| end.to_str()?.parse::<u32>().ok());
            std::cmp::Reverse(number.unwrap_or(0))
        });
        let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
        let checked = |text: String| -> Vec<Value> {
            let lines = text.lines().map(check_line);
            lines
                .map(|line| line.unwrap_or_else(|fault| panic!("{fault}")))
                .collect()
        };
        texts.flat_map(checked).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.kill_all();
            return;
        }
        let left = self.stop_all();
        self.kill_all();
        assert!(
            left.is_empty(),
            "processes outlived their daemon: {left:#?}"
        );
        drop(self.log_files());
    }
}

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Arc<CapturedOutput>,
    stderr: Arc<CapturedOutput>,
    readers: Vec<JoinHandle<()>>,
    shown: String,
}

#[derive(Debug, Default)]
struct CapturedOutput {
    bytes: Mutex<Vec<u8>>,
    changed: Condvar,
}

impl CapturedOutput {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn read(self: &Arc<Self>, mut stream: impl Read + Send + 'static) -> JoinHandle<()> {
        let captured = self.clone();
        std::thread::spawn(move || {
            let mut chunk = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut chunk) {
                captured
                    .bytes
                    .lock()
                    .unwrap()
                    .extend_from_slice(&chunk[..read]);
                captured.changed.notify_all();
            }
        })
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = self.bytes.lock().unwrap();
        while !String::from_utf8_lossy(&bytes).contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let so_far = String::from_utf8_lossy(&bytes);
            assert!(
                !left.is_zero(),
                "it does not print {text:?}; it printed {so_far:?}"
            );
            bytes = self.changed.wait_timeout(bytes, left).unwrap().0;
        }
    }
}

impl RunningProgram {
    /// Starts a command, whose streams must be pipes.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let shown = format!("{command:?}");
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        let (stdout, stderr) = (
            Arc::new(CapturedOutput::default()),
            Arc::new(CapturedOutput::default()),
        );
        let readers = vec![
            stdout.read(child.stdout.take().unwrap()),
            stderr.read(child.stderr.take().unwrap()),
        ];
        Self {
            stdin: child.stdin.take(),
            child,
            stdout,
            stderr,
            readers,
            shown,
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types a line into its standard input, which must be a pipe.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// True if it has exited.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until its standard output contains this text.
    #[track_caller]
    pub fn wait_for_stdout(&self, text: &str) {
        self.stdout.wait_for(text);
    }

    /// Waits until its standard error contains this text.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) {
        self.stderr.wait_for(text);
    }

    /// Closes its standard input and waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> CommandOutput {
        drop(self.stdin.take());
        let ended = within(PATIENCE, || self.child.try_wait().unwrap());
        let status: ExitStatus = ended.unwrap_or_else(|| {
            let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
            panic!(
                "{} does not end; stdout {stdout:?}, stderr {stderr:?}",
                self.shown
            );
        });
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        CommandOutput::of(&Output {
            status,
            stdout: std::mem::take(&mut self.stdout.bytes.lock().unwrap()),
            stderr: std::mem::take(&mut self.stderr.bytes.lock().unwrap()),
        })
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It may have exited and been reaped already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Result of a program.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks the exit code; shows everything if it differs.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Checks that stdout contains each of the texts.
    #[track_caller]
    pub fn prints(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stdout.contains(text), "no {text:?} in {self:#?}");
        }
        self
    }

    /// Checks that stderr contains each of the texts.
    #[track_caller]
    pub fn tells(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "no {text:?} in {self:#?}");
        }
        self
    }

    /// stdout as one JSON object.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// stderr as the one JSON object of an error.
    #[track_caller]
    #[must_use]
    pub fn error_json(&self) -> Value {
        serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}
