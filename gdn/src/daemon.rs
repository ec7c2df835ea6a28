//! Starts the daemon.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::client::{Client, ConnectError};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::programs::ORCHESTRATOR;

/// Maximum time from a daemon's start until it accepts connections, in milliseconds.
const START_TIMEOUT_MS: u64 = 20_000;

/// Polling interval while a daemon starts, in milliseconds.
const START_POLL_MS: u64 = 25;

/// Time to look for another daemon if ours exits immediately, in milliseconds: two concurrent `gdn run` start two
/// daemons, and one of them yields.
const YIELD_MS: u64 = 1_000;

/// Maximum wait for a daemon that is exiting, in milliseconds: a killed daemon's socket still accepts connections
/// for a moment.
const GOING_MS: u64 = 5_000;

/// Maximum size of the daemon's stderr in messages, in bytes.
const STDERR_MAX_BYTES: u64 = 16 * 1024;

/// Reason why the daemon could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The binary cannot be run.
    #[error("cannot run {}", program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file for its stderr cannot be created.
    #[error("cannot create a temporary file for the daemon's error output in {}", std::env::temp_dir().display())]
    Stderr(#[source] std::io::Error),
    #[error("the daemon could not start ({status}): {stderr}")]
    Ended { status: ExitStatus, stderr: String },
    /// The daemon runs but does not accept connections.
    #[error("the daemon did not accept connections within {} s", START_TIMEOUT_MS / 1000)]
    NotReady,
    /// The daemon accepts connections, but not ours.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let hint = match &error {
            StartError::Connect(_) => "",
            StartError::Spawn { .. } => {
                "install goondan-orchestrator beside gdn or in PATH: `cargo build --release` builds both"
            }
            StartError::Stderr(_) => {
                "make sure that the directory exists and has space, or set TMPDIR to another one"
            }
            StartError::Ended { .. } | StartError::NotReady => {
                "run it in this terminal: `gdn run --foreground`"
            }
        };
        match error {
            StartError::Connect(error) => error.into(),
            error => Self::of(Exit::StartFailed, &error, hint),
        }
    }
}

/// A daemon that this command started.
#[derive(Debug)]
pub(crate) struct StartedDaemon {
    pub(crate) client: Client,
    /// Log directory of the daemon.
    pub(crate) log_dir: PathBuf,
}

/// Log directory of a background daemon.
pub(crate) fn log_dir(state_root: &Path) -> PathBuf {
    state_root.join("logs")
}

/// Connects to the running daemon; none if none runs. Waits for a daemon that is exiting.
pub(crate) async fn attach(state_root: &Path) -> Result<Option<Client>, ConnectError> {
    let deadline = Instant::now() + Duration::from_millis(GOING_MS);
    loop {
        match Client::connect(state_root).await {
            Ok(client) => return Ok(Some(client)),
            Err(ConnectError::NotRunning { .. }) => return Ok(None),
            Err(ConnectError::Handshake(error)) if error.is_lost() && Instant::now() < deadline => {
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(START_POLL_MS)).await;
    }
}

/// Starts the daemon in the background and waits until it accepts connections.
pub(crate) async fn start(state_root: &Path, is_strict: bool) -> Result<StartedDaemon, StartError> {
    let (mut child, mut stderr) = spawn(orchestrator(), state_root, is_strict)?;
    let client = wait_until_ready(state_root, &mut child, &mut stderr).await?;
    Ok(StartedDaemon {
        client,
        log_dir: log_dir(state_root),
    })
}

/// Starts a daemon's program; also returns the file with its stderr.
fn spawn(
    program: PathBuf,
    state_root: &Path,
    is_strict: bool,
) -> Result<(Child, File), StartError> {
    let stderr = tempfile::tempfile().map_err(StartError::Stderr)?;
    let child = Command::new(&program)
        .arg("--detach")
        .args([OsString::from("--state-root"), state_root.into()])
        .args([OsString::from("--log-dir"), log_dir(state_root).into()])
        .args(is_strict.then_some("--strict"))
        // The daemon must not keep the current directory in use.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(StartError::Stderr)?)
        .spawn()
        .map_err(|source| StartError::Spawn { program, source })?;
    Ok((child, stderr))
}

/// Starts a daemon of any version in the background by the path of its program, and waits until it accepts
/// connections. Kills it if it does not.
pub(crate) async fn start_program(program: &Path, state_root: &Path) -> Result<(), StartError> {
    let (mut child, mut stderr) = spawn(program.to_owned(), state_root, false)?;
    match wait_until_ready(state_root, &mut child, &mut stderr).await {
        Ok(_) | Err(StartError::Connect(ConnectError::VersionMismatch { .. })) => Ok(()),
        Err(error) => {
            // Kill fails if the process has already exited.
            drop(child.kill());
            drop(child.wait());
            Err(error)
        }
    }
}

/// Polls until the daemon accepts connections, because it sends no readiness signal.
async fn wait_until_ready(
    state_root: &Path,
    child: &mut Child,
    stderr: &mut File,
) -> Result<Client, StartError> {
    let mut deadline = Instant::now() + Duration::from_millis(START_TIMEOUT_MS);
    let mut ended: Option<ExitStatus> = None;
    loop {
        match Client::connect(state_root).await {
            Ok(client) => return Ok(client),
            Err(ConnectError::NotRunning { .. } | ConnectError::NotListening { .. }) => {}
            // The listener exists a moment before the daemon reads from it.
            Err(ConnectError::Handshake(error)) if error.is_lost() => {}
            Err(error) => return Err(error.into()),
        }
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
            // A daemon that forks to detach has a first process that exits successfully.
            && !status.success()
        {
            ended = Some(status);
            deadline = Instant::now() + Duration::from_millis(YIELD_MS);
        }
        if Instant::now() >= deadline {
            return Err(match ended {
                Some(status) => StartError::Ended {
                    status,
                    stderr: stderr_text(stderr),
                },
                None => StartError::NotReady,
            });
        }
        tokio::time::sleep(Duration::from_millis(START_POLL_MS)).await;
    }
}

fn stderr_text(stderr: &mut File) -> String {
    let mut words = Vec::new();
    let read = stderr
        .seek(SeekFrom::Start(0))
        .and_then(|_| stderr.take(STDERR_MAX_BYTES).read_to_end(&mut words));
    let words = String::from_utf8_lossy(&words);
    match (read, words.trim().trim_start_matches("error: ")) {
        (Err(error), _) => format!("cannot read its error output: {error}"),
        (Ok(_), "") => "no error output".to_owned(),
        (Ok(_), words) => words.to_owned(),
    }
}

/// Replaces this process with the daemon, which opens `project` with `options`. Returns only on failure.
pub(crate) fn become_daemon(
    state_root: &Path,
    project: Option<&Path>,
    options: &[OsString],
) -> StartError {
    let program = orchestrator();
    let mut command = Command::new(&program);
    command.args([OsString::from("--state-root"), state_root.into()]);
    if let Some(project) = project {
        command.args([OsString::from("--open"), project.into()]);
        command.args(options);
    }
    let source = command.exec();
    StartError::Spawn { program, source }
}

/// Path of the daemon's binary: beside this one, otherwise from `PATH`.
fn orchestrator() -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join(ORCHESTRATOR)))
        .filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from(ORCHESTRATOR))
}
