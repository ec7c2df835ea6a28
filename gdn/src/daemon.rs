//! Starting the daemon.

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

/// Longest a daemon may take from its start until it accepts connections, in milliseconds.
const START_TIMEOUT_MS: u64 = 20_000;

/// How often a starting daemon is asked whether it accepts connections, in milliseconds.
const START_POLL_MS: u64 = 25;

/// How long to look for another daemon when ours ended at once, in milliseconds: two `gdn run` at the
/// same time start two, and one of them yields to the other.
const YIELD_MS: u64 = 1_000;

/// How long to wait for a daemon that is going to be gone, in milliseconds: one that was just killed
/// still takes connections for a moment, and answers none.
const GOING_MS: u64 = 5_000;

/// Most of the daemon's stderr that is shown, in bytes.
const STDERR_MAX_BYTES: u64 = 16 * 1024;

/// Why the daemon could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Its binary cannot be run.
    #[error("cannot run {}", program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Its stderr has no place to go.
    #[error("cannot make a temporary file for the daemon's error output")]
    Stderr(#[source] std::io::Error),
    /// It ended at once.
    #[error("the daemon could not start ({status}): {stderr}")]
    Ended { status: ExitStatus, stderr: String },
    /// It runs but does not accept connections.
    #[error("the daemon did not accept connections within {} s", START_TIMEOUT_MS / 1000)]
    NotReady,
    /// It accepts connections, but not ours.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let hint = match &error {
            StartError::Connect(_) => "",
            StartError::Spawn { .. } => {
                "goondan-orchestrator must lie beside gdn or in PATH: `cargo build --release` makes both"
            }
            StartError::Stderr(_) => {
                "make room in the temporary directory, or name another: TMPDIR"
            }
            StartError::Ended { .. } | StartError::NotReady => {
                "see what it does, in this terminal: `gdn run --foreground`"
            }
        };
        match error {
            StartError::Connect(error) => error.into(),
            error => Self::of(Exit::StartFailed, &error, hint),
        }
    }
}

/// A daemon this command started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) client: Client,
    /// Where it writes its log.
    pub(crate) log_dir: PathBuf,
}

/// Where a daemon in the background writes its log.
pub(crate) fn log_dir(state_root: &Path) -> PathBuf {
    state_root.join("logs")
}

/// Connects to the running daemon; none if none runs. One that is just going is waited for.
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
pub(crate) async fn start(state_root: &Path, is_strict: bool) -> Result<Started, StartError> {
    let (mut child, mut stderr) = spawn(orchestrator(), state_root, is_strict)?;
    let client = wait_until_ready(state_root, &mut child, &mut stderr).await?;
    Ok(Started {
        client,
        log_dir: log_dir(state_root),
    })
}

/// Starts a daemon's program, and gives where it complains.
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
        // A daemon must not hold the directory it happened to be started in.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(StartError::Stderr)?)
        .spawn()
        .map_err(|source| StartError::Spawn { program, source })?;
    Ok((child, stderr))
}

/// Starts a daemon of any version in the background, by the file of its program, and waits until it accepts
/// connections. One that does not is killed.
pub(crate) async fn start_program(program: &Path, state_root: &Path) -> Result<(), StartError> {
    let (mut child, mut stderr) = spawn(program.to_owned(), state_root, false)?;
    match wait_until_ready(state_root, &mut child, &mut stderr).await {
        Ok(_) | Err(StartError::Connect(ConnectError::VersionMismatch { .. })) => Ok(()),
        Err(error) => {
            // Whoever has ended by itself is not there to be killed.
            drop(child.kill());
            drop(child.wait());
            Err(error)
        }
    }
}

/// Asks until the daemon accepts. It gives no sign that could be waited for, so this polls.
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
            // The daemon's listener is there a moment before it reads from it.
            Err(ConnectError::Handshake(error)) if error.is_lost() => {}
            Err(error) => return Err(error.into()),
        }
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
            // A daemon that detaches by forking leaves a first process that ends well.
            && !status.success()
        {
            ended = Some(status);
            deadline = Instant::now() + Duration::from_millis(YIELD_MS);
        }
        if Instant::now() >= deadline {
            return Err(match ended {
                Some(status) => StartError::Ended {
                    status,
                    stderr: words_of(stderr),
                },
                None => StartError::NotReady,
            });
        }
        tokio::time::sleep(Duration::from_millis(START_POLL_MS)).await;
    }
}

/// What the daemon said before it ended.
fn words_of(stderr: &mut File) -> String {
    let mut words = Vec::new();
    let read = stderr
        .seek(SeekFrom::Start(0))
        .and_then(|_| stderr.take(STDERR_MAX_BYTES).read_to_end(&mut words));
    let words = String::from_utf8_lossy(&words);
    match (read, words.trim().trim_start_matches("error: ")) {
        (Err(error), _) => format!("its error output cannot be read: {error}"),
        (Ok(_), "") => "it said nothing".to_owned(),
        (Ok(_), words) => words.to_owned(),
    }
}

/// Becomes the daemon, in this terminal, and opens `project` with `options`. Returns only if it cannot.
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

/// The daemon's binary: beside this one, else from `PATH`.
fn orchestrator() -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join(ORCHESTRATOR)))
        .filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from(ORCHESTRATOR))
}
